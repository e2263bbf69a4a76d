//! The assembly: configuration, cache, machine, pump (`DESIGN.md` chapter 12).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::desk::Desk;
use super::guard::Guard;
use super::launch::{self, First, Starter};
use super::process::Spawner;
use super::pump::{Event, Parts, Pump};
use super::reload::{self, UNEXPANDED, Watch};
use super::shelf::Shelf;
use super::signal::Signals;
use super::stdio::{HostStreams, PipeIn, PipeOut};
use super::{cache, control, ledger, own_binary};
use crate::config::{self, Loaded};
use crate::engine::hub::{Clock, Entropy, Hub};

/// What a proxy is run with.
#[derive(Debug)]
pub struct Options {
    /// The configuration.
    pub loaded: Loaded,
    /// The chosen profile, for reloads.
    pub profile: Option<String>,
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// The cache directory.
    pub cache_dir: Option<PathBuf>,
    /// Secrets that are known; shared with the log.
    pub shelf: Shelf,
    /// A channel of events that the caller speaks on, too.
    pub news: Option<(mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>)>,
}

/// How long calls may wait at the start for the rows of unknown outcomes.
const ROWS_WAIT: Duration = Duration::from_millis(500);

/// The runtime that a proxy runs on.
///
/// # Errors
/// The system refuses descriptors.
pub fn reactor() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Threads of the pool are for moments; an idle one costs memory.
    builder.enable_all().thread_keep_alive(Duration::from_secs(1)).build()
}

/// Serves the host on descriptors 0 and 1 until the end.
///
/// # Errors
/// The system refuses descriptors, signals or random numbers.
pub async fn serve(options: Options) -> anyhow::Result<()> {
    super::seal_descriptors();
    let signals = Signals::new()?;
    let HostStreams { input, output, tail } = HostStreams::take()?;
    let guard = run(options, input, output, Some(signals)).await?;
    guard.hand_over().await;
    tail.finish(Duration::from_millis(20)).await;
    Ok(())
}

/// Serves a host on any two streams.
///
/// # Errors
/// The system refuses random numbers.
pub async fn run(options: Options, input: PipeIn, output: PipeOut, signals: Option<Signals>) -> anyhow::Result<Guard> {
    let Options { loaded, profile, state_dir, cache_dir, shelf, news } = options;
    let config = Arc::new(loaded.config);
    let binary = own_binary()?;
    let guard = Guard::start(binary.clone());
    let spawner = Arc::new(Spawner::new(binary, guard.clone()));
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    let expanded = launch::first(&config, &shelf).await;
    let print = |first: &First| match first {
        First::Known(expanded) => Some(expanded.as_ref().map_or(UNEXPANDED, |launch| launch.fingerprint)),
        First::Coming(_) => None,
    };
    let launches: BTreeMap<_, _> =
        expanded.iter().filter_map(|(key, first)| Some((key.clone(), print(first)?))).collect();
    let cached = |server: &config::Server| cache::read(cache_dir.as_deref()?, server, launches.get(&server.key)?);
    let known = config.servers.iter().map(cached).collect();
    let clock = Clock { instant: Instant::now(), unix: ledger::unix_now() };
    let mut hub = Hub::new(Arc::clone(&config), known, clock, Entropy::new(seed), std::process::id());
    for broken in &loaded.broken {
        tracing::error!(server = %broken.key, "left out: {}", broken.reason);
        hub.note_broken(&broken.key, &broken.prefix, &broken.reason);
    }
    let (to_events, events) = news.unwrap_or_else(mpsc::unbounded_channel);
    let config_path: Arc<std::path::Path> = config.path.as_path().into();
    let mut desk = Desk::open(state_dir.as_deref(), cache_dir.as_deref(), to_events.clone());
    if let Some(key) = state_dir.as_deref().and_then(seal_key) {
        hub.set_seal_key(&key);
    }
    hub.set_outcomes_kept(desk.has_intents());
    if desk.has_ledger() {
        hub.await_rows(Instant::now() + ROWS_WAIT);
    }
    let mut control = None;
    if signals.is_some() {
        let trigger = reload::watch(
            Watch {
                path: config.path.clone(),
                profile,
                digest: loaded.digest,
                launches,
                watch: config.proxy.watch,
                cache_dir,
                shelf: shelf.clone(),
            },
            to_events.clone(),
        );
        control = control::open(to_events.clone(), trigger.clone(), shelf.lines().clone());
        desk.set_reload(trigger);
    }
    let starter = Starter::new(spawner, shelf.clone(), config_path, expanded);
    let parts = Parts { hub, input, output, desk, starter, shelf, signals, events: (to_events, events) };
    Pump::new(parts).run().await;
    drop(control);
    Ok(guard)
}

/// The key of the seals, made at the first start. Without one, states end with the process.
fn seal_key(state_dir: &std::path::Path) -> Option<[u8; 32]> {
    let path = state_dir.join("seal.key");
    if let Ok(key) = std::fs::read(&path) {
        return key.try_into().ok();
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).ok()?;
    super::inflight::create_private_dir(state_dir).ok()?;
    let file = super::inflight::private_file().write(true).create_new(true).open(&path);
    match file.and_then(|mut file| std::io::Write::write_all(&mut file, &key)) {
        Ok(()) => Some(key),
        // Another proxy made it in the same moment.
        Err(_) => std::fs::read(&path).ok()?.try_into().ok(),
    }
}

/// The directories that the platform has for us.
pub fn directories() -> (Option<PathBuf>, Option<PathBuf>) {
    (config::state_dir(), config::cache_dir())
}
