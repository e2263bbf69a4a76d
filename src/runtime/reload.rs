//! The configuration read anew: by a look through its path about once a second, by SIGHUP, or by order
//! (`DESIGN.md` chapter 3).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, mpsc};

use super::desk::DeskEvent;
use super::pump::Event;
use super::shelf::Shelf;
use super::{cache, launch};
use crate::config::{self, Config, Loaded};
use crate::engine::hub::Incoming;

/// A configuration that is to be taken over.
#[derive(Debug)]
pub struct Reloaded {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its servers.
    pub incoming: Vec<Incoming>,
}

/// Asks for a reload from outside the watcher.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<Notify>);

impl Trigger {
    /// Read it now.
    pub fn fire(&self) {
        self.0.notify_one();
    }
}

/// Between looks at the file.
const LOOK: Duration = Duration::from_secs(1);
/// It counts as saved when size and time have stood still for so long.
const STILL: Duration = Duration::from_millis(250);

/// In place of a fingerprint, of a server whose references could not be expanded.
pub const UNEXPANDED: [u8; 32] = [0; 32];

/// What the watcher needs.
#[derive(Debug)]
pub struct Watch {
    /// The file.
    pub path: PathBuf,
    /// The chosen profile.
    pub profile: Option<String>,
    /// Digest of what is in force.
    pub digest: [u8; 32],
    /// Fingerprints of the servers in force, by key; one that is missing is not known.
    pub launches: BTreeMap<String, [u8; 32]>,
    /// Whether the file is looked at by itself.
    pub watch: bool,
    /// Where catalogs are cached.
    pub cache_dir: Option<PathBuf>,
    /// Secrets that are known.
    pub shelf: Shelf,
}

/// Begins to watch; ends with the pump.
#[expect(clippy::disallowed_methods, reason = "ends when nobody takes its events, and holds nothing worth a wait")]
pub fn watch(watch: Watch, events: mpsc::UnboundedSender<Event>) -> Trigger {
    let wish = Arc::new(Notify::new());
    let trigger = Trigger(Arc::clone(&wish));
    tokio::spawn(run(watch, wish, events));
    trigger
}

async fn run(mut state: Watch, wish: Arc<Notify>, events: mpsc::UnboundedSender<Event>) {
    let mut seen = look(&state.path).await;
    // An empty file, or one without servers, counts only when it is saved once more.
    let mut emptied = false;
    loop {
        let asked = tokio::select! {
            () = wish.notified() => true,
            () = tokio::time::sleep(LOOK) => false,
        };
        if !asked {
            if !state.watch {
                continue;
            }
            let mark = look(&state.path).await;
            if mark == seen || mark.is_none() {
                continue;
            }
            seen = settled(&state.path).await;
        }
        let (path, profile) = (state.path.clone(), state.profile.clone());
        let Ok(read) = tokio::task::spawn_blocking(move || config::load(&path, profile.as_deref())).await else {
            continue;
        };
        let loaded = match read {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!("the configuration was changed but not taken over; the old one stays: {error}");
                continue;
            }
        };
        if loaded.digest == state.digest && !asked {
            continue;
        }
        if !loaded.faults.iter().all(|fault| fault.severity == config::Severity::Warning) {
            for fault in &loaded.faults {
                tracing::warn!("the configuration was changed but not taken over; the old one stays: {fault}");
            }
            continue;
        }
        if loaded.config.servers.is_empty() && !state.launches.is_empty() && !emptied && !asked {
            tracing::warn!("the configuration has no servers any more; it is taken over when it is saved once more");
            emptied = true;
            continue;
        }
        emptied = false;
        state.digest = loaded.digest;
        let Some(reloaded) = prepare(&mut state, loaded).await else { continue };
        state.watch = reloaded.config.proxy.watch;
        state.shelf.levels().set(&reloaded.config.servers);
        tracing::info!("the configuration is taken over");
        if events.send(Event::Desk(DeskEvent::Reload(Box::new(reloaded)))).is_err() {
            return;
        }
    }
}

/// Expands references, to tell which servers are others now, and reads what the cache has of them.
async fn prepare(state: &mut Watch, loaded: Loaded) -> Option<Reloaded> {
    let (path, cache_dir, shelf) = (state.path.clone(), state.cache_dir.clone(), state.shelf.clone());
    let before = state.launches.clone();
    let work = tokio::task::spawn_blocking(move || {
        let mut after = BTreeMap::new();
        let mut incoming = Vec::new();
        for server in &loaded.config.servers {
            // A reference that can't be expanded is that server's fault alone: its start will say so.
            let print = launch::expand(server, &path, &shelf).map_or(UNEXPANDED, |launch| launch.fingerprint);
            let same_launch = before.get(&server.key).is_none_or(|old| *old == print && print != UNEXPANDED);
            let fresh = before.get(&server.key) != Some(&print);
            let known = cache_dir.as_deref().filter(|_| fresh).and_then(|dir| cache::read(dir, server, &print));
            after.insert(server.key.clone(), print);
            incoming.push(Incoming { server: Arc::new(server.clone()), same_launch, known });
        }
        (Arc::new(loaded.config), incoming, after)
    });
    let (config, incoming, after) = work.await.ok()?;
    state.launches = after;
    Some(Reloaded { config, incoming })
}

/// Size, time and digest of the file behind the path, links followed: the first two of a file that a package manager or
/// a dotfile tool puts in place may be those of the old one.
type Mark = (u64, SystemTime, [u8; 32]);

/// Looks at the file; on the pool, for a network home may be away.
async fn look(path: &Path) -> Option<Mark> {
    let path = path.to_owned();
    let read = || -> std::io::Result<Mark> {
        let mut file = std::fs::File::open(path)?;
        let data = file.metadata()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok((data.len(), data.modified()?, Sha256::digest(&text).into()))
    };
    tokio::task::spawn_blocking(read).await.ok()?.ok()
}

/// Waits until the file stands still.
async fn settled(path: &Path) -> Option<Mark> {
    loop {
        let before = look(path).await;
        tokio::time::sleep(STILL).await;
        let after = look(path).await;
        if before == after {
            return after;
        }
    }
}
