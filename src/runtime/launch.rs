//! From a server's table to a process: references, environment, program (`DESIGN.md` chapter 3).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::process::{Life, Pipes, Spawn, Start};
use super::shelf::Shelf;
use crate::config::{self, Config, ExpandError, HostLookup, Launch, Target};
use crate::engine::hub::StartFailure;

/// What came of the references of a server.
pub type Expanded = Result<Launch, ExpandError>;

/// What is known at the proxy's own start.
#[derive(Debug)]
pub enum First {
    /// This.
    Known(Expanded),
    /// It is still being asked for: whoever needs it waits, for a person must not be asked twice.
    Coming(JoinHandle<Expanded>),
}

/// A server that runs.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub process: Box<dyn Life>,
    /// Our ends of its pipes.
    pub pipes: Pipes,
    /// Of all that makes it what it is; its catalog is cached under it.
    pub fingerprint: [u8; 32],
}

/// Starts the servers of one proxy.
#[derive(Debug)]
pub struct Starter {
    spawner: Arc<dyn Start>,
    shelf: Shelf,
    config_path: Arc<Path>,
    /// What was expanded at the proxy's own start, for the first lives: a keyring must not ask a person twice.
    first: BTreeMap<String, First>,
    turns: Arc<Semaphore>,
}

/// So many starts go on at once: each costs the message thread a millisecond, and a thread of the pool, and the host
/// is to be answered in between.
const AT_ONCE: usize = 4;
/// A start does not wait longer for the others: one of them may hang at a keyring, or in a file system that is away.
const TURN: Duration = Duration::from_millis(250);
/// How long the proxy's own start waits for files and keyrings; what takes longer costs that server its cache.
const FIRST: Duration = Duration::from_millis(500);

/// Expands the references of all servers once, for the cache, the watch over the configuration and the first lives.
///
/// What can't block is done here and now, the rest on the pool, all at the same time. What is not there in time is
/// awaited by that server's first start alone.
pub async fn first(config: &Config, shelf: &Shelf) -> BTreeMap<String, First> {
    let mut expanded = BTreeMap::new();
    let mut slow = Vec::new();
    for server in &config.servers {
        let key = server.key.clone();
        if config::may_block(server) {
            let (server, path, shelf) = (server.clone(), config.path.clone(), shelf.clone());
            slow.push((key, tokio::task::spawn_blocking(move || expand(&server, &path, &shelf))));
        } else {
            expanded.insert(key, First::Known(expand(server, &config.path, shelf)));
        }
    }
    let until = Instant::now() + FIRST;
    for (key, mut coming) in slow {
        let first = match tokio::time::timeout_at(until, &mut coming).await {
            Ok(Ok(known)) => First::Known(known),
            // Its start looks for itself.
            Ok(Err(_)) => continue,
            Err(_) => First::Coming(coming),
        };
        expanded.insert(key, first);
    }
    expanded
}

/// What a server's references expand to.
///
/// # Errors
/// Which reference could not be expanded, without any value.
pub fn expand(server: &config::Server, config_path: &Path, shelf: &Shelf) -> Expanded {
    let launch = config::expand(server, &HostLookup::new(config_path))?;
    shelf.add_secrets(&launch.secrets);
    Ok(launch)
}

// === impl Starter ===

impl Starter {
    /// Starts through `spawner`; `first` is what [`first`] gave.
    pub fn new(spawner: Arc<dyn Start>, shelf: Shelf, config_path: Arc<Path>, first: BTreeMap<String, First>) -> Self {
        Self { spawner, shelf, config_path, first, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// From now on references are expanded anew at each start: a file or a keyring may come back, or change.
    pub fn forget_first(&mut self) {
        self.first.clear();
    }

    /// Starts the process of a server. Files and keyrings may block, so they are asked on the pool.
    ///
    /// # Errors
    /// In words for people, masked.
    pub fn start(
        &mut self,
        server: Arc<config::Server>,
    ) -> impl Future<Output = Result<Started, StartFailure>> + Send + use<> {
        let first = self.first.remove(&server.key);
        let (spawner, shelf, path, turns) =
            (self.spawner.clone(), self.shelf.clone(), Arc::clone(&self.config_path), Arc::clone(&self.turns));
        async move {
            let _turn = tokio::time::timeout(TURN, turns.acquire()).await;
            let first = match first {
                Some(First::Known(known)) => Some(known),
                Some(First::Coming(coming)) => coming.await.ok(),
                None => None,
            };
            let planned = {
                let shelf = shelf.clone();
                tokio::task::spawn_blocking(move || {
                    plan(&server, first.unwrap_or_else(|| expand(&server, &path, &shelf)), &shelf)
                })
                .await
            };
            let (plan, fingerprint) = planned
                .map_err(|_| StartFailure { reason: "its start could not be prepared".into(), hopeless: false })??;
            let (process, pipes) = spawner.start(&plan).await.map_err(|error| StartFailure {
                reason: shelf.masker().mask(&error.to_string()).into_owned(),
                hopeless: error.is_permanent(),
            })?;
            Ok(Started { process, pipes, fingerprint })
        }
    }
}

fn plan(server: &config::Server, expanded: Expanded, shelf: &Shelf) -> Result<(Spawn, [u8; 32]), StartFailure> {
    // An unset variable stays unset, but a file or a keyring may come back.
    let launch = expanded.map_err(|error| StartFailure { reason: error.reason(), hopeless: true })?;
    let Target::Program(program) = launch.target else {
        return Err(StartFailure { reason: "remote servers are not supported yet".into(), hopeless: true });
    };
    let host: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let usual = config::usual_places(config::home_dir().as_deref());
    let env = config::child_environment(&host, &program, &usual);
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let found = config::find_program(&program.command, path, program.cwd.as_deref()).map_err(|error| StartFailure {
        reason: shelf.masker().mask(&error.to_string()).into_owned(),
        hopeless: true,
    })?;
    let spawn = Spawn {
        program: found,
        args: program.args.into_iter().map(OsString::from).collect(),
        env,
        cwd: program.cwd,
        stop_grace: server.stop_grace,
    };
    Ok((spawn, launch.fingerprint))
}
