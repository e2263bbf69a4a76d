//! The lines of an in-flight file: one JSON object each, which says by its only key what it is.
//!
//! `{"inflight":1,"pid":…,"at":…}`, `{"begin":{…}}`, `{"lost":{…}}`, `{"settle":"u-…"}`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use serde::Deserialize;

use crate::engine::outcome::{
    ARGUMENTS_BOUND, Digest, Exit, Intent, Kept, Loss, Mask, OutcomeId, Reason, Row, UnixMs, mask_json,
};

/// No record is longer than this, in bytes.
pub const RECORD_BOUND: usize = 16 * 1024;

/// Of longer arguments only so much is written, beside their digest.
const HEAD: usize = 4 * 1024;

/// Of a longer name only so much is written.
const NAME: usize = 512;

/// A line, by what it may hold.
#[derive(Deserialize)]
struct Line<'a> {
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
    digest: &'a str,
    repeats: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
    /// The length of the whole, where `arguments` is only the head.
    length: Option<u64>,
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
    put(line, format_args!("{{\"inflight\":1,\"pid\":{pid},\"at\":{}}}\n", now.0));
}

/// Writes an intent, with the arguments masked and, if they are long, only the head of them.
pub(super) fn begin(line: &mut Vec<u8>, intent: &Intent<'_>, mask: &Mask<'_>) {
    line.extend_from_slice(b"{\"begin\":{\"id\":\"");
    line.extend_from_slice(&intent.id.text());
    line.extend_from_slice(b"\",\"digest\":\"");
    line.extend_from_slice(&intent.digest.text());
    line.extend_from_slice(b"\",\"server\":");
    string(line, head(intent.server, NAME));
    line.extend_from_slice(b",\"tool\":");
    string(line, head(intent.tool, NAME));
    line.extend_from_slice(b",\"exposed\":");
    string(line, head(intent.exposed, NAME));
    line.extend_from_slice(b",\"host\":");
    string(line, head(intent.host_request_id, NAME));
    for (key, number) in [("at", intent.time.0), ("generation", intent.generation), ("sequence", intent.sequence)] {
        line.extend_from_slice(b",\"");
        line.extend_from_slice(key.as_bytes());
        line.extend_from_slice(b"\":");
        decimal(line, number);
    }
    if let Some(of) = intent.repeat_of {
        line.extend_from_slice(b",\"repeats\":\"");
        line.extend_from_slice(&of.text());
        line.push(b'"');
    }
    if let Some(text) = intent.arguments {
        arguments(line, text, mask);
    }
    line.extend_from_slice(b"}}\n");
}

fn arguments(line: &mut Vec<u8>, text: &str, mask: &Mask<'_>) {
    const KEY: &[u8] = b",\"arguments\":";
    const END: usize = "}}\n".len();
    let start = line.len();
    if text.len() <= ARGUMENTS_BOUND {
        line.extend_from_slice(KEY);
        string(line, &mask_json(text, mask));
        if line.len() + END <= RECORD_BOUND {
            return;
        }
        line.truncate(start);
    }
    let kept = Kept::new(text, HEAD, mask);
    put(line, format_args!(",\"length\":{}", text.len()));
    let without_head = line.len();
    line.extend_from_slice(KEY);
    string(line, &kept.text);
    if line.len() + END > RECORD_BOUND {
        line.truncate(without_head);
    }
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
    let mut pid = 0;
    // A last line without its end was being written when the process ended, so its call was not sent.
    for line in text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { continue };
        pid = line.pid.unwrap_or(pid);
        if let Some(begin) = line.begin
            && let Ok(id) = begin.id.parse::<OutcomeId>()
        {
            open.insert(id, begin);
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
            arguments: self.arguments.map(kept),
            digest: self.digest.parse::<Digest>().ok()?,
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

fn decimal(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a digit is small");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}

/// Writes a JSON string.
fn string(line: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(line, text).expect("a string is plain JSON and a vector takes all");
}
