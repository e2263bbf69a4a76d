//! What was known of each server, kept for the next start (`DESIGN.md` chapter 9).
//!
//! One file for each set of values that makes a server what it is, named by their digest, so that a changed token or
//! command is another file. Written beside and renamed, since several proxies share the directory.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::Server;
use crate::engine::catalog::Listing;
use crate::engine::child::Verdict;
use crate::engine::facts::{Facts, ServerCapabilities};
use crate::engine::hub::Known;
use crate::wire::method::Revision;

/// Counts writes, for a name for each alone: the last two catalogs of a server may be on their way at the same time.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Keeps what becomes known of the servers of a proxy, beside the message path and one after the other.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    /// Of the launch of each server's present life.
    fingerprints: BTreeMap<String, [u8; 32]>,
    waiting: Arc<Mutex<Waiting>>,
}

/// What is to be written, by server: the last word counts.
#[derive(Debug, Default)]
struct Waiting {
    files: BTreeMap<String, News>,
    /// Somebody writes.
    writing: bool,
}

/// What is new of a server.
#[derive(Debug)]
struct News {
    server: Arc<Server>,
    fingerprint: [u8; 32],
    known: Box<Known>,
}

/// Of the format below.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    server: String,
    revision: String,
    capabilities: ServerCapabilities,
    instructions: Option<String>,
    identity: String,
    #[serde(default)]
    verdict: Option<Verdict>,
    #[serde(default)]
    interactive: bool,
    tools: Vec<Box<RawValue>>,
    prompts: Vec<Box<RawValue>>,
    resources: Vec<Box<RawValue>>,
    templates: Vec<Box<RawValue>>,
}

impl Cache {
    /// Writes into that directory.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), fingerprints: BTreeMap::new(), waiting: Arc::default() }
    }

    /// A server was started with a launch of that fingerprint.
    pub fn launched(&mut self, key: &str, fingerprint: [u8; 32]) {
        self.fingerprints.insert(key.to_owned(), fingerprint);
    }

    /// Keeps what is known of a server that was started.
    pub fn keep(&mut self, server: Arc<Server>, known: Box<Known>) {
        let Some(fingerprint) = self.fingerprints.get(&server.key) else { return };
        let mut waiting = lock(&self.waiting);
        let key = server.key.clone();
        waiting.files.insert(key, News { server, fingerprint: *fingerprint, known });
        if !std::mem::replace(&mut waiting.writing, true) {
            let (dir, waiting) = (self.dir.clone(), Arc::clone(&self.waiting));
            // One thread for all: twenty servers become ready in the same moment.
            tokio::task::spawn_blocking(move || write_all(&dir, &waiting));
        }
    }
}

fn write_all(dir: &Path, waiting: &Mutex<Waiting>) {
    loop {
        let mut held = lock(waiting);
        let Some((_, news)) = held.files.pop_first() else {
            held.writing = false;
            return;
        };
        drop(held);
        write(dir, &news.server, &news.fingerprint, &news.known);
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Nothing panics under it.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a server from before; `None` if there is nothing, or nothing that can be read.
///
/// `fingerprint` is that of the [`Launch`](crate::config::Launch) of the server.
pub fn read(dir: &Path, server: &Server, fingerprint: &[u8; 32]) -> Option<Known> {
    let text = std::fs::read(path_of(dir, server, fingerprint)).ok()?;
    let file: File = match serde_json::from_slice(&text) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(server = %server.key, %error, "the cached catalog is damaged and not used");
            return None;
        }
    };
    let revision = Revision::parse(&file.revision)?;
    let raw = |entries: Vec<Box<RawValue>>| -> Vec<Bytes> {
        entries.into_iter().map(|entry| Bytes::from(String::from(Box::<str>::from(entry)))).collect()
    };
    (file.version == VERSION).then(|| Known {
        facts: Facts {
            revision,
            capabilities: file.capabilities,
            instructions: file.instructions,
            identity: file.identity,
        },
        listing: Listing {
            tools: raw(file.tools),
            prompts: raw(file.prompts),
            resources: raw(file.resources),
            templates: raw(file.templates),
            ..Listing::default()
        },
        verdict: file.verdict,
        interactive: file.interactive,
    })
}

/// Keeps what is known of a server. A disk that is full costs a warning.
pub fn write(dir: &Path, server: &Server, fingerprint: &[u8; 32], known: &Known) {
    if let Err(error) = try_write(dir, &path_of(dir, server, fingerprint), server, known) {
        tracing::warn!(server = %server.key, %error, "the catalog can't be cached");
    }
}

fn try_write(dir: &Path, path: &Path, server: &Server, known: &Known) -> std::io::Result<()> {
    let raw = |entries: &[Bytes]| -> std::io::Result<Vec<Box<RawValue>>> {
        entries.iter().map(|entry| Ok(serde_json::from_slice(entry)?)).collect()
    };
    let file = File {
        version: VERSION,
        server: server.key.clone(),
        revision: known.facts.revision.as_str().to_owned(),
        capabilities: known.facts.capabilities,
        instructions: known.facts.instructions.clone(),
        identity: known.facts.identity.clone(),
        verdict: known.verdict,
        interactive: known.interactive,
        tools: raw(&known.listing.tools)?,
        prompts: raw(&known.listing.prompts)?,
        resources: raw(&known.listing.resources)?,
        templates: raw(&known.listing.templates)?,
    };
    let text = serde_json::to_vec(&file)?;
    if std::fs::read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    super::inflight::create_private_dir(dir)?;
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let mut out = super::inflight::private_file().write(true).create(true).truncate(true).open(&beside)?;
    out.write_all(&text)?;
    drop(out);
    std::fs::rename(&beside, path)
}

fn path_of(dir: &Path, server: &Server, fingerprint: &[u8; 32]) -> PathBuf {
    let digest = data_encoding::HEXLOWER.encode(&fingerprint[..16]);
    dir.join(format!("{}-{digest}.json", server.key))
}
