//! The lines of an in-flight file: one JSON object each, which says by its only key what it is.
//!
//! `{"inflight":2,"pid":…,"at":…}`, `{"begin":{…,"end":"u-…"}}`, `{"lost":{…}}`, `{"settle":"u-…"}`.
//!
//! From the second layout on a file is written over from its start when nothing is open, so behind its last line are
//! what is left of older ones. An intent therefore ends with its own id: one that was torn as it was written, and goes on
//! as an older one, is told by that. What else is left there does no harm: an older intent stands before its end, so it
//! is written over first. Arguments that are written down whole and unmasked stand there as they came, and their digest
//! is left to the one who needs it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::outcome::{
    ARGUMENTS_BOUND, Digest, Digester, Exit, Intent, Kept, Loss, Mask, OutcomeId, Reason, Row, UnixMs, mask_json,
    no_mask,
};

/// No record is longer than this, in bytes.
pub const RECORD_BOUND: usize = 16 * 1024;

/// Of longer arguments only so much is written, beside their digest.
const HEAD: usize = 4 * 1024;

/// Of a longer name only so much is written.
const NAME: usize = 512;

/// The layout that is written.
const LAYOUT: u32 = 2;

/// A line, by what it may hold.
#[derive(Deserialize)]
struct Line<'a> {
    /// The layout of the file.
    inflight: Option<u32>,
    pid: Option<u32>,
    #[serde(borrow)]
    begin: Option<Begin<'a>>,
    lost: Option<Lost>,
    settle: Option<&'a str>,
}

#[derive(Deserialize)]
struct Begin<'a> {
    id: &'a str,
    at: u64,
    #[serde(borrow)]
    server: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    exposed: Cow<'a, str>,
    #[serde(borrow)]
    host: Cow<'a, str>,
    generation: u64,
    sequence: u64,
    /// Where it can't be told from the rest.
    digest: Option<&'a str>,
    repeats: Option<&'a str>,
    /// The arguments as they came.
    #[serde(borrow)]
    raw: Option<&'a RawValue>,
    /// Or masked, or their head: as a string.
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
    /// The length of the whole, where `arguments` is only the head.
    length: Option<u64>,
    /// The id again.
    end: Option<&'a str>,
}

#[derive(Deserialize)]
struct Lost {
    id: String,
    reason: Reason,
    exit: Option<Exit>,
    at: u64,
}

/// Writes the first line of a file.
pub(super) fn header(line: &mut Vec<u8>, pid: u32, now: UnixMs) {
    put(line, format_args!("{{\"inflight\":{LAYOUT},\"pid\":{pid},\"at\":{}}}\n", now.0));
}

/// Writes an intent, with the arguments masked and, if they are long, only the head of them.
pub(super) fn begin(line: &mut Vec<u8>, intent: &Intent<'_>, mask: Option<&Mask<'_>>) {
    let id = intent.id.text();
    line.extend_from_slice(b"{\"begin\":{\"id\":\"");
    line.extend_from_slice(&id);
    line.push(b'"');
    let names = [
        (&b",\"server\":"[..], intent.server),
        (b",\"tool\":", intent.tool),
        (b",\"exposed\":", intent.exposed),
        (b",\"host\":", intent.host_request_id),
    ];
    for (key, name) in names {
        line.extend_from_slice(key);
        string(line, head(name, NAME));
    }
    let numbers = [
        (&b",\"at\":"[..], intent.time.0),
        (b",\"generation\":", intent.generation),
        (b",\"sequence\":", intent.sequence),
    ];
    for (key, number) in numbers {
        line.extend_from_slice(key);
        line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
    if let Some(of) = intent.repeat_of {
        line.extend_from_slice(b",\"repeats\":\"");
        line.extend_from_slice(&of.text());
        line.push(b'"');
    }
    let whole = intent.arguments.is_none_or(|text| arguments(line, text, mask));
    let can_be_told = whole && intent.server.len() <= NAME && intent.tool.len() <= NAME;
    let digest = intent.digest.or_else(|| {
        let arguments = intent.arguments.map(str::as_bytes);
        (!can_be_told).then(|| Digester::default().digest(intent.server, intent.tool, arguments))
    });
    if let Some(digest) = digest {
        line.extend_from_slice(b",\"digest\":\"");
        line.extend_from_slice(&digest.text());
        line.push(b'"');
    }
    line.extend_from_slice(b",\"end\":\"");
    line.extend_from_slice(&id);
    line.extend_from_slice(b"\"}}\n");
}

/// Writes the arguments; tells whether all of them, as they came.
fn arguments(line: &mut Vec<u8>, text: &str, mask: Option<&Mask<'_>>) -> bool {
    const KEY: &[u8] = b",\"arguments\":";
    const END: usize = ",\"digest\":\"0123456789abcdef0123456789abcdef\",\"end\":\"u-0123456789abc\"}}\n".len();
    let start = line.len();
    if text.len() <= ARGUMENTS_BOUND {
        let masked = mask.map_or(Cow::Borrowed(text), |mask| mask_json(text, mask));
        let raw = matches!(masked, Cow::Borrowed(_)) && memchr::memchr(b'\n', text.as_bytes()).is_none();
        if raw {
            line.extend_from_slice(b",\"raw\":");
            line.extend_from_slice(masked.as_bytes());
        } else {
            line.extend_from_slice(KEY);
            string(line, &masked);
        }
        if line.len() + END <= RECORD_BOUND {
            return raw;
        }
        line.truncate(start);
    }
    let kept = Kept::new(text, HEAD, mask.unwrap_or(&no_mask));
    put(line, format_args!(",\"length\":{}", text.len()));
    let without_head = line.len();
    line.extend_from_slice(KEY);
    string(line, &kept.text);
    if line.len() + END > RECORD_BOUND {
        line.truncate(without_head);
    }
    false
}

/// Writes that a call is closed.
pub(super) fn settle(line: &mut Vec<u8>, id: OutcomeId) {
    line.extend_from_slice(b"{\"settle\":\"");
    line.extend_from_slice(&id.text());
    line.extend_from_slice(b"\"}\n");
}

/// Writes that no answer will come.
pub(super) fn lost(line: &mut Vec<u8>, id: OutcomeId, loss: &Loss) {
    put(line, format_args!("{{\"lost\":{{\"id\":\"{id}\",\"reason\":\"{}\",\"at\":{}", loss.reason.name(), loss.at.0));
    if let Some(exit) = &loss.exit {
        line.extend_from_slice(b",\"exit\":");
        serde_json::to_writer(&mut *line, exit).expect("an exit is plain JSON and a vector takes all");
    }
    line.extend_from_slice(b"}}\n");
}

/// The row of one intent's line.
pub(super) fn row(line: &[u8], loss: &Loss, pid: u32) -> Option<Row> {
    serde_json::from_slice::<Line<'_>>(line).ok()?.begin?.row(loss.clone(), pid)
}

/// The rows of all intents in a dead process's file that are not closed, in the order of their ids. What is open and
/// not said to be lost was lost with the process.
pub fn open_rows(text: &[u8], now: UnixMs) -> Vec<Row> {
    let mut open = BTreeMap::new();
    let mut losses = BTreeMap::new();
    let (mut pid, mut layout) = (0, LAYOUT);
    // A last line without its end was being written when the process ended, so its call was not sent.
    for line in text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { continue };
        pid = line.pid.unwrap_or(pid);
        layout = line.inflight.unwrap_or(layout);
        if let Some(begin) = line.begin
            && let Ok(id) = begin.id.parse::<OutcomeId>()
        {
            if begin.end == Some(begin.id) || (begin.end.is_none() && layout < 2) {
                open.insert(id, begin);
            }
        } else if let Some(lost) = line.lost
            && let Ok(id) = lost.id.parse::<OutcomeId>()
        {
            losses.insert(id, Loss { reason: lost.reason, exit: lost.exit, at: UnixMs(lost.at) });
        } else if let Some(Ok(id)) = line.settle.map(str::parse::<OutcomeId>) {
            open.remove(&id);
            losses.remove(&id);
        }
    }
    let rows = open.into_iter().filter_map(|(id, begin)| {
        let killed = || Loss { reason: Reason::ProxyKilled, exit: None, at: now };
        begin.row(losses.remove(&id).unwrap_or_else(killed), pid)
    });
    rows.collect()
}

// === impl Begin ===

impl Begin<'_> {
    fn row(self, loss: Loss, pid: u32) -> Option<Row> {
        let digest = match self.digest {
            Some(digest) => digest.parse::<Digest>().ok()?,
            None => {
                let arguments = self.raw.map(|raw| raw.get().as_bytes());
                Digester::default().digest(&self.server, &self.tool, arguments)
            }
        };
        let whole = |raw: &RawValue| Kept { length: raw.get().len() as u64, cut: false, text: raw.get().to_owned() };
        let kept = |text: Cow<'_, str>| Kept {
            length: self.length.unwrap_or(text.len() as u64),
            cut: self.length.is_some(),
            text: text.into_owned(),
        };
        Some(Row {
            id: self.id.parse().ok()?,
            time: UnixMs(self.at),
            lost_at: loss.at,
            server: self.server.into_owned(),
            tool: self.tool.into_owned(),
            exposed: self.exposed.into_owned(),
            arguments: self.raw.map(whole).or_else(|| self.arguments.map(kept)),
            digest,
            host_request_id: self.host.into_owned(),
            generation: self.generation,
            sequence: self.sequence,
            reason: loss.reason,
            exit: loss.exit,
            settlement: None,
            resolution: None,
            repeat_of: self.repeats.and_then(|id| id.parse().ok()),
            repeated_at: None,
            refused_at: None,
            pid,
        })
    }
}

fn head(text: &str, bound: usize) -> &str {
    &text[..text.floor_char_boundary(bound)]
}

fn put(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("a vector takes all");
}

/// Writes a JSON string. Names seldom need an escape.
fn string(line: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        return serde_json::to_writer(line, text).expect("a string is plain JSON and a vector takes all");
    }
    line.push(b'"');
    line.extend_from_slice(text.as_bytes());
    line.push(b'"');
}
