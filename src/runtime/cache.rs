//! What was known of each server, kept for the next start (`DESIGN.md` chapter 9).
//!
//! One file for each set of values that makes a server what it is, named by their digest, so that a changed token or
//! command is another file. Written beside and renamed, since several proxies share the directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shelf::Shelf;
use crate::config::Server;
use crate::engine::catalog::Listing;
use crate::engine::child::Verdict;
use crate::engine::facts::{Facts, ServerCapabilities};
use crate::engine::hub::Known;
use crate::wire::method::Revision;

/// Counts writes, for a name for each alone: the last two catalogs of a server may be on their way at the same time.
static WRITES: AtomicU64 = AtomicU64::new(0);

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

/// What is known of a server from before; `None` if there is nothing, or nothing that can be read.
pub fn read(dir: &Path, server: &Server, config_path: &Path, shelf: &Shelf) -> Option<Known> {
    let path = path_of(dir, server, config_path, shelf)?;
    let text = std::fs::read(&path).ok()?;
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
pub fn write(dir: &Path, server: &Server, config_path: &Path, known: &Known, shelf: &Shelf) {
    let Some(path) = path_of(dir, server, config_path, shelf) else { return };
    if let Err(error) = try_write(dir, &path, server, known) {
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
    let mut out = std::fs::File::create(&beside)?;
    out.write_all(&text)?;
    drop(out);
    std::fs::rename(&beside, path)
}

fn path_of(dir: &Path, server: &Server, config_path: &Path, shelf: &Shelf) -> Option<PathBuf> {
    let launch = super::launch::expand(server, config_path, shelf).ok()?;
    let digest = data_encoding::HEXLOWER.encode(&launch.fingerprint[..16]);
    Some(dir.join(format!("{}-{digest}.json", server.key)))
}
