//! A server that costs next to nothing itself: lines by hand, no tree.
//!
//! Tools: `echo` (read-only), `write` (the same, not annotated), `big` (a result of `size` bytes), `sink` (takes
//! anything), `storm` (`count` progress notifications, then the result), `sleep` (`ms`). The rest of its list is filler.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::eras::{Era, SIGNED, VERSION};
use crate::lines::{Lines, token, write_all};

/// What the server is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Tools in its list, at least the six that it has
    #[arg(long, hide = true, default_value_t = 6)]
    pub(crate) tools: usize,
    /// Bytes of one entry of its list
    #[arg(long, hide = true, default_value_t = 300)]
    pub(crate) tool_bytes: usize,
    /// Answers all that was ready with one write, in place of one for each message
    #[arg(long, hide = true)]
    pub(crate) batch: bool,
    /// Speaks the modern era, and that alone
    #[arg(long, hide = true)]
    pub(crate) modern: bool,
}

/// From here on texts are written from where they are.
const WRITE_THROUGH: usize = 16 * 1024;
/// Of a message, where its members are looked for.
const HEAD: usize = 512;

struct Server {
    out: Vec<u8>,
    /// The text of the last large result.
    text: String,
    list: String,
    sleeping: Vec<(Instant, Vec<u8>)>,
    batch: bool,
    era: Era,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let stdin = rustix::stdio::stdin();
    let mut server = Server {
        out: Vec::with_capacity(1 << 17),
        text: String::new(),
        list: list(options),
        sleeping: Vec::new(),
        batch: options.batch,
        era: if options.modern { Era::Modern } else { Era::Legacy },
    };
    let mut lines = Lines::new();
    loop {
        if let Some(first) = server.sleeping.iter().map(|sleeper| sleeper.0).min() {
            let wait = first.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
            let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
            let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&wait))?;
            server.wake()?;
            if ready == 0 {
                continue;
            }
        }
        if lines.read(stdin)? == 0 {
            return Ok(());
        }
        while let Some(line) = lines.take() {
            server.answer(lines.line(line))?;
            server.message_done()?;
        }
        server.flush()?;
    }
}

/// A text as tools return it: source code, with escaped line ends and quotes.
pub(crate) fn filler(size: usize) -> String {
    const UNIT: &str = r#"    let answer = lookup(\"name\", &table)?;\n    // And so on.\n"#;
    let mut text = UNIT.repeat(size / UNIT.len());
    text.extend(std::iter::repeat_n('x', size - text.len()));
    text
}

fn list(options: &Options) -> String {
    let names = ["echo", "write", "big", "sink", "storm", "sleep"].map(String::from);
    let names = names.into_iter().chain((0..).map(|number| format!("tool_{number:05}")));
    let mut list = String::from("{\"tools\":[");
    for (number, name) in names.take(options.tools.max(6)).enumerate() {
        let hints = if name == "write" { "" } else { r#","annotations":{"readOnlyHint":true}"# };
        let comma = if number > 0 { "," } else { "" };
        let head = format!(r#"{comma}{{"name":"{name}","description":""#);
        let tail =
            format!(r#"","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}}}}{hints}}}"#);
        let room = options.tool_bytes.saturating_sub(head.len() + tail.len());
        list.push_str(&head);
        list.push_str(&filler(room));
        list.push_str(&tail);
    }
    list.push(']');
    if options.modern {
        list.push_str(r#","ttlMs":0,"cacheScope":"private","#);
        list.push_str(SIGNED);
    }
    list.push('}');
    list
}

impl Server {
    fn answer(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let Some(method) = token(line, b"\"method\":", HEAD) else { return Ok(()) };
        let Some(id) = token(line, b"\"id\":", HEAD) else { return Ok(()) };
        match method {
            b"\"tools/call\"" => return self.call(id, line),
            b"\"tools/list\"" => {
                let list = std::mem::take(&mut self.list);
                self.long_result(id, "", &list, "")?;
                self.list = list;
            }
            b"\"server/discover\"" if self.era == Era::Modern => {
                let capabilities = r#"{"tools":{"listChanged":true}}"#;
                let more = format!(r#""capabilities":{capabilities},"ttlMs":0,"cacheScope":"private",{SIGNED}"#);
                self.short_result(id, format!(r#"{{"supportedVersions":["{VERSION}"],{more}}}"#).as_bytes());
            }
            b"\"subscriptions/listen\"" if self.era == Era::Modern => {
                self.out.extend_from_slice(
                    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",",
                );
                self.out.extend_from_slice(b"\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":");
                self.out.extend_from_slice(id);
                self.out.extend_from_slice(b"},\"notifications\":{\"toolsListChanged\":true}}}\n");
            }
            b"\"initialize\"" if self.era == Era::Legacy => {
                let version = token(line, b"\"protocolVersion\":", line.len()).unwrap_or(b"\"2025-06-18\"");
                self.head(id);
                self.out.extend_from_slice(b"{\"protocolVersion\":");
                self.out.extend_from_slice(version);
                self.out.extend_from_slice(
                    br#","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"load","version":"1.0.0"}}}"#,
                );
                self.out.push(b'\n');
            }
            b"\"ping\"" => self.short_result(id, b"{}"),
            _ => {
                self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
                self.out.extend_from_slice(id);
                let error = match (self.era, method) {
                    (Era::Modern, b"\"initialize\"") => format!(
                        r#"{{"code":-32022,"message":"Unsupported version","data":{{"supported":["{VERSION}"],"requested":"?"}}}}"#
                    ),
                    _ => r#"{"code":-32601,"message":"Method not found"}"#.to_owned(),
                };
                self.out.extend_from_slice(format!(",\"error\":{error}}}\n").as_bytes());
            }
        }
        Ok(())
    }

    fn call(&mut self, id: &[u8], line: &[u8]) -> anyhow::Result<()> {
        let name = match self.era {
            Era::Legacy => token(line, b"\"name\":", HEAD),
            // There the client has a name, too; the tool's is the one before the arguments.
            Era::Modern => memchr::memmem::find(line, b"\"arguments\":")
                .and_then(|end| memchr::memmem::rfind(&line[..end], b"\"name\":"))
                .and_then(|at| token(&line[at..], b"\"name\":", HEAD)),
        };
        let name = name.context("a call without a name near its head")?;
        let name = &name[1..name.len() - 1];
        // The relay that carries two servers leaves the prefix on.
        let name = memchr::memmem::find(name, b"__").map_or(name, |at| &name[at + 2..]);
        match name {
            b"big" => {
                let size = number(line, b"\"size\":")?;
                if self.text.len() != size {
                    self.text = filler(size);
                }
                let text = std::mem::take(&mut self.text);
                self.long_result(id, "{\"content\":[{\"type\":\"text\",\"text\":\"", &text, "\"}]}")?;
                self.text = text;
            }
            b"storm" => self.storm(id, line)?,
            b"sleep" => {
                let until = Instant::now() + Duration::from_millis(number(line, b"\"ms\":")? as u64);
                self.sleeping.push((until, id.to_vec()));
            }
            b"sink" => self.short_result(id, b"{\"content\":[]}"),
            _ => {
                let text = argument_text(line).context("an echo without a text")?;
                self.head(id);
                self.out.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":\"");
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\"}]");
                if self.era == Era::Modern {
                    self.out.push(b',');
                    self.out.extend_from_slice(SIGNED.as_bytes());
                }
                self.out.extend_from_slice(b"}}\n");
            }
        }
        Ok(())
    }

    fn storm(&mut self, id: &[u8], line: &[u8]) -> anyhow::Result<()> {
        let count = number(line, b"\"count\":")?;
        let token = token(line, b"\"progressToken\":", line.len()).context("a storm without a progress token")?;
        for step in 1..=count {
            self.out.extend_from_slice(
                b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":",
            );
            self.out.extend_from_slice(token);
            self.out.extend_from_slice(b",\"progress\":");
            self.out.extend_from_slice(itoa::Buffer::new().format(step).as_bytes());
            self.out.extend_from_slice(b",\"message\":\"still at it\"}}\n");
            self.message_done()?;
        }
        self.short_result(id, b"{\"content\":[]}");
        Ok(())
    }

    /// Answers the sleepers whose time has come.
    fn wake(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let (due, sleeping) = std::mem::take(&mut self.sleeping).into_iter().partition(|sleeper| sleeper.0 <= now);
        self.sleeping = sleeping;
        let due: Vec<(Instant, Vec<u8>)> = due;
        for (_, id) in &due {
            self.short_result(id, b"{\"content\":[]}");
        }
        self.flush()
    }

    fn head(&mut self, id: &[u8]) {
        self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.out.extend_from_slice(id);
        self.out.extend_from_slice(b",\"result\":");
    }

    fn short_result(&mut self, id: &[u8], result: &[u8]) {
        self.head(id);
        self.out.extend_from_slice(result);
        self.out.extend_from_slice(b"}\n");
    }

    fn long_result(&mut self, id: &[u8], before: &str, text: &str, after: &str) -> anyhow::Result<()> {
        self.head(id);
        self.out.extend_from_slice(before.as_bytes());
        if text.len() >= WRITE_THROUGH {
            self.flush()?;
            write_all(rustix::stdio::stdout(), text.as_bytes())?;
        } else {
            self.out.extend_from_slice(text.as_bytes());
        }
        self.out.extend_from_slice(after.as_bytes());
        self.out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Like every SDK, writes each message at once, unless it was told to gather them.
    fn message_done(&mut self) -> anyhow::Result<()> {
        if self.batch && self.out.len() < 1 << 16 { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        write_all(rustix::stdio::stdout(), &self.out)?;
        self.out.clear();
        Ok(())
    }
}

fn number(line: &[u8], marker: &[u8]) -> anyhow::Result<usize> {
    let token = token(line, marker, line.len()).context("a call without its number")?;
    Ok(std::str::from_utf8(token)?.parse()?)
}

/// The argument `text`, still escaped.
fn argument_text(line: &[u8]) -> Option<&[u8]> {
    let from = memchr::memmem::find(line, b"\"text\":\"")? + 8;
    let mut at = from;
    loop {
        at += memchr::memchr2(b'"', b'\\', &line[at..])?;
        if line[at] == b'"' {
            return Some(&line[from..at]);
        }
        at += 2;
    }
}
