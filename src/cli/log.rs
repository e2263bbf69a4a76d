//! Where the log goes: stderr or a file, masked, and never waited for.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Log, LogFormat};
use crate::runtime::levels::{ByServer, Mode};
use crate::runtime::lines::Keep;
use crate::runtime::shelf::Shelf;

/// Files of earlier days that are kept.
const KEPT: usize = 7;
/// Lines that wait for a slow sink; beyond it they are dropped.
const LINES: usize = 8192;

/// Begins to log. The guard flushes at its drop.
///
/// # Errors
/// The filter can't be read, or the file can't be made.
pub fn init(log: &Log, shelf: Shelf) -> anyhow::Result<WorkerGuard> {
    let filter = EnvFilter::try_new(&log.level).with_context(|| format!("log.level = {:?} is no filter", log.level))?;
    let sink: Box<dyn Write + Send> = match &log.file {
        Some(path) => Box::new(rolling(path)?),
        None => Box::new(io::stderr()),
    };
    let (writer, guard) = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES).finish(sink);
    let writer = Masked { writer, shelf: shelf.clone() };
    let kept = ByServer::new(kept_filter(&log.level, filter.max_level_hint()), shelf.levels().clone(), Mode::OrMore);
    let filter = ByServer::new(filter, shelf.levels().clone(), Mode::Instead);
    let keep = Keep::new(shelf).with_filter(kept);
    let registry = tracing_subscriber::registry().with(keep);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let started = match log.format {
        LogFormat::Text => registry.with(layer.with_target(false).with_filter(filter)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true).with_filter(filter)).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log can't be started: {error}"))?;
    // What would be written to stderr at once could wait for ever there, and hold a secret.
    std::panic::set_hook(Box::new(tell_panic));
    Ok(guard)
}

/// A fault that comes again and again at one place is a few lines.
fn tell_panic(panic: &std::panic::PanicHookInfo<'_>) {
    static TOLD: Mutex<BTreeMap<(String, u32), u64>> = Mutex::new(BTreeMap::new());
    let place = panic.location().map_or_else(Default::default, |at| (at.file().to_owned(), at.line()));
    let count = {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        let count = told.entry(place).or_insert(0);
        *count += 1;
        *count
    };
    if count.is_power_of_two() {
        tracing::error!(count, "a fault of the proxy itself; please report it: {panic}");
    }
}

/// What `mcp-proxy logs` has: what the log has, and at least the level `info`, for a person asks after the fact.
fn kept_filter(level: &str, most: Option<LevelFilter>) -> EnvFilter {
    if most.is_none_or(|most| most > LevelFilter::INFO) {
        EnvFilter::new(format!("info,{level}"))
    } else {
        EnvFilter::new("info")
    }
}

fn rolling(path: &Path) -> anyhow::Result<RollingFileAppender> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str()).context("log.file is no path of a file")?;
    RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix(name)
        .max_log_files(KEPT)
        .build(directory)
        .with_context(|| format!("log.file = {} can't be written", path.display()))
}

/// Masks the secrets that are known in each line.
#[derive(Clone, Debug)]
struct Masked {
    writer: NonBlocking,
    shelf: Shelf,
}

impl<'a> MakeWriter<'a> for Masked {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let masker = self.shelf.masker();
        if masker.is_empty() {
            return self.writer.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        self.writer.write_all(masker.mask(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
