//! The last lines of the log, by server: what `mcp-proxy logs` shows.
//!
//! A layer beside the log's own keeps them, masked. One lock, held for the push of a line or for a copy of some lines;
//! nothing is awaited under it. Bounded in lines and bytes for each server.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

use super::ledger;
use super::shelf::Shelf;

/// Lines that are kept of each server.
pub const KEPT: usize = 1000;
/// Bytes that are kept of each server.
const BYTES: usize = 1 << 20;
/// A line beyond this is cut.
const LINE: usize = 4 * 1024;
/// Servers that lines are kept of; a configuration that is reloaded for ever must not fill the memory.
const SERVERS: usize = 1024;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its number in this process, from 1.
    pub seq: u64,
    /// When, in UTC.
    pub time: String,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// The server that it is about; empty: the proxy itself.
    pub server: String,
    /// Whether the server wrote it to its stderr.
    pub stderr: bool,
    /// What it says.
    pub text: String,
}

/// The last lines; clones share them.
#[derive(Clone, Debug)]
pub struct Lines {
    kept: Arc<Mutex<Kept>>,
    /// The number of the last line, for who waits for more.
    news: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    servers: BTreeMap<String, Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

/// The layer that keeps them.
#[derive(Debug)]
pub struct Keep {
    shelf: Shelf,
}

// === impl Lines ===

impl Default for Lines {
    fn default() -> Self {
        Self { kept: Arc::default(), news: Arc::new(watch::Sender::new(0)) }
    }
}

impl Lines {
    /// Lines after number `after`, of one server or of all, in their order; at most `most`, the oldest first.
    pub fn after(&self, after: u64, server: Option<&str>, most: usize) -> Vec<LogLine> {
        let kept = self.lock();
        let rings = kept.servers.iter().filter(|(name, _)| server.is_none_or(|wanted| wanted == name.as_str()));
        let newer = rings.flat_map(|(_, ring)| {
            let from = ring.lines.partition_point(|line| line.seq <= after);
            ring.lines.range(from..)
        });
        let mut lines: Vec<&LogLine> = newer.collect();
        lines.sort_unstable_by_key(|line| line.seq);
        lines.into_iter().take(most).cloned().collect()
    }

    /// Tells when there are more.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    fn push(&self, mut line: LogLine) {
        line.text.truncate(line.text.floor_char_boundary(LINE));
        let mut kept = self.lock();
        if !kept.servers.contains_key(&line.server) && kept.servers.len() >= SERVERS {
            return;
        }
        kept.last += 1;
        line.seq = kept.last;
        let last = kept.last;
        let ring = kept.servers.entry(line.server.clone()).or_default();
        ring.bytes += line.text.len();
        ring.lines.push_back(line);
        while ring.lines.len() > KEPT || ring.bytes > BYTES {
            ring.bytes -= ring.lines.pop_front().map_or(0, |line| line.text.len());
        }
        drop(kept);
        self.news.send_replace(last);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics under it that would leave it half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Keep ===

impl Keep {
    /// Keeps lines on that shelf, masked by what is on it.
    pub fn new(shelf: Shelf) -> Self {
        Self { shelf }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let said = format!("{}{}", text.message, text.fields);
        let line = LogLine {
            seq: 0,
            time: ledger::unix_now().to_string(),
            level: event.metadata().level().to_string(),
            server: text.server,
            stderr: event.metadata().target() == "mcp_proxy::stderr",
            text: self.shelf.masker().mask(&said).into_owned(),
        };
        self.shelf.lines().push(line);
    }
}

#[derive(Default)]
struct Text {
    server: String,
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string can't fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "server" => write!(self.server, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            "server" => write!(self.server, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn line(server: &str, text: &str) -> LogLine {
        LogLine {
            seq: 0,
            time: String::new(),
            level: "INFO".into(),
            server: server.into(),
            stderr: false,
            text: text.into(),
        }
    }

    #[test]
    fn each_server_keeps_its_last_lines_and_a_flood_of_one_costs_the_others_nothing() {
        let lines = Lines::default();
        lines.push(line("quiet", "one"));
        for number in 0..3 * KEPT {
            lines.push(line("loud", &number.to_string()));
        }
        let quiet: Vec<_> = lines.after(0, Some("quiet"), 10).into_iter().map(|line| line.text).collect();
        assert_eq!(quiet, ["one"]);
        let loud = lines.after(0, Some("loud"), usize::MAX);
        assert_eq!(loud.len(), KEPT);
        assert_eq!(loud[0].text, (2 * KEPT).to_string());
        assert_eq!(lines.after(0, None, usize::MAX).len(), KEPT + 1);
        assert!(lines.after(loud[KEPT - 1].seq, None, 10).is_empty());
        assert_eq!(lines.after(loud[10].seq, None, 2).len(), 2);
    }

    #[test]
    fn long_lines_are_cut_and_bytes_are_bounded() {
        let lines = Lines::default();
        for _ in 0..KEPT {
            lines.push(line("x", &"ü".repeat(LINE)));
        }
        let kept = lines.after(0, Some("x"), usize::MAX);
        assert!(kept.iter().all(|line| line.text.len() <= LINE));
        assert!(kept.iter().map(|line| line.text.len()).sum::<usize>() <= BYTES && kept.len() > 100);
    }

    #[test]
    fn the_layer_masks_and_tells_whose_a_line_is() {
        let shelf = Shelf::new();
        shelf.add_secrets(&["sesame-open".to_owned()]);
        let subscriber = tracing_subscriber::registry().with(Keep::new(shelf.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let key = "files";
            tracing::warn!(server = %key, count = 3, "it said sesame-open");
            tracing::info!(target: "mcp_proxy::stderr", server = key, "hello");
            tracing::info!("of the proxy");
        });
        let lines = shelf.lines().after(0, Some("files"), 10);
        let told: Vec<_> = lines.iter().map(|line| (line.level.as_str(), line.stderr, line.text.as_str())).collect();
        assert!(!told[0].2.contains("sesame") && told[0].2.ends_with("count=3"), "{told:?}");
        assert_eq!(told[1], ("INFO", true, "hello"));
        assert_eq!(shelf.lines().after(0, Some(""), 10).len(), 1);
    }
}
