//! `mcp-proxy import`: a host's servers as our file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::config;
use crate::hosts::file::Snapshot;
use crate::hosts::import::{self, Import, Rendered, Store};
use crate::hosts::{Surroundings, by_id};

const EXAMPLES: &str = "Examples:
  mcp-proxy import claude-desktop
  mcp-proxy import cursor --output ~/.config/mcp-proxy/mcp-proxy.toml
  mcp-proxy import ./mcp.json --as vscode --keyring";

/// Turns the servers of a host into our configuration.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// A host (claude-desktop, cursor, vscode, codex …), or one of its files
    #[arg(value_name = "HOST|FILE")]
    pub source: String,
    /// Read the file as this host's
    #[arg(long = "as", value_name = "HOST")]
    pub host: Option<String>,
    /// Write to this file; what it holds already stays, and the new servers come after it
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keep secrets in the system's keyring in place of environment variables
    #[arg(long)]
    pub keyring: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command: our file goes to `out`, what is to be said about it to `err`. Returns the exit code.
///
/// # Errors
///
/// What went wrong; nothing was written then.
pub fn run(args: &ImportArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<u8> {
    run_in(args, &super::install::Scene::of_process()?, out, err)
}

/// As [`run`], in a scene of one's own.
///
/// # Errors
///
/// As [`run`].
pub fn run_in(
    args: &ImportArgs,
    scene: &super::install::Scene,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<u8> {
    let around = &scene.around;
    let import = read(args, around, &scene.binary)?;
    let store = if args.keyring { Store::Keyring } else { Store::Env };
    let target = args.output.as_deref().map(Snapshot::read).transpose().context("can't read the output file")?;
    let existing = target.as_ref().and_then(|target| target.text.as_deref());
    let rendered = import.render(store, existing, around).map_err(anyhow::Error::msg)?;
    if import.servers.is_empty() {
        report(&import, &rendered, store, around, err)?;
        bail!("{} has no server that can be imported", import.source);
    }
    if args.keyring {
        store_secrets(&rendered, err)?;
    }
    if args.json {
        writeln!(out, "{:#}", as_json(&import, &rendered))?;
    } else if target.is_none() {
        out.write_all(rendered.toml.as_bytes())?;
    }
    if let Some(target) = target.filter(|target| target.text.as_deref() != Some(&rendered.toml)) {
        let copy = target.back_up(scene.unix_seconds)?;
        target.replace(Some(&rendered.toml))?;
        writeln!(err, "Wrote {}.", around.tilde(&target.path))?;
        if let Some(copy) = copy {
            writeln!(err, "What it was before is in {}.", around.tilde(&copy))?;
        }
    }
    report(&import, &rendered, store, around, err)?;
    Ok(0)
}

fn read(args: &ImportArgs, around: &Surroundings, own: &Path) -> anyhow::Result<Import> {
    let file = Path::new(&args.source);
    if let Some(host) = &args.host {
        let host = by_id(host).map_err(anyhow::Error::msg)?;
        return import::from_file(file, Some(host), around, Some(own)).map_err(anyhow::Error::msg);
    }
    match by_id(&args.source) {
        Ok(host) => import::from_host(host, around, Some(own)),
        Err(_) if file.exists() => import::from_file(file, None, around, Some(own)),
        Err(unknown) => Err(format!("there is no file {}, and {unknown}", file.display())),
    }
    .map_err(anyhow::Error::msg)
}

/// Keeps the secrets in the system's keyring, before anything is written that refers to them.
pub(super) fn store_secrets(rendered: &Rendered, err: &mut dyn Write) -> anyhow::Result<()> {
    for secret in &rendered.secrets {
        match config::keyring_set(&secret.name, secret.reveal().to_owned()) {
            Ok(()) => writeln!(err, "Kept {} in the keyring.", secret.name)?,
            Err(error) => bail!(
                "{} can't be kept in the keyring: {error}; no file was written. Without --keyring the configuration refers \
                 to environment variables instead",
                secret.name
            ),
        }
    }
    Ok(())
}

/// Says what was read, what was left out, and what is to be set.
pub(super) fn report(
    import: &Import,
    rendered: &Rendered,
    store: Store,
    around: &Surroundings,
    err: &mut dyn Write,
) -> std::io::Result<()> {
    let keys: Vec<&str> = import.servers.iter().map(|server| server.key.as_str()).collect();
    let from = if import.read.is_empty() { import.source.clone() } else { import.read.join(", ") };
    writeln!(err, "Read {} from {from}: {}.", count(keys.len(), "server"), keys.join(", "))?;
    for left in import.left.iter().chain(&rendered.left) {
        writeln!(err, "  left out {}: {}", left.name, left.why)?;
    }
    for server in &import.servers {
        for note in &server.notes {
            writeln!(err, "  {}: {note}", server.key)?;
        }
    }
    let wanted = rendered.wanted.iter().map(|name| (name, "the host kept its value elsewhere".to_owned()));
    let taken = rendered.secrets.iter().map(|secret| (&secret.name, format!("for {}", secret.servers.join(", "))));
    match store {
        Store::Env => {
            let unset: Vec<_> = taken.chain(wanted).filter(|(name, _)| around.var(name).is_none()).collect();
            let any = !unset.is_empty();
            if any {
                writeln!(err, "Set these where the host is started; their values are not shown:")?;
            }
            for (name, why) in unset {
                writeln!(err, "  export {name}=…   # {why}")?;
            }
            if any {
                writeln!(err, "With --keyring they are kept in the system's keyring; hosts on a desktop need that.")?;
            }
        }
        Store::Keyring => {
            for (name, why) in wanted {
                writeln!(err, "  to be put into the keyring, service mcp-proxy: {name} ({why})")?;
            }
        }
    }
    Ok(())
}

/// `1 server`, `2 servers`.
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn as_json(import: &Import, rendered: &Rendered) -> serde_json::Value {
    let left = import.left.iter().chain(&rendered.left);
    let left: Vec<_> = left.map(|left| serde_json::json!({ "name": left.name, "why": left.why })).collect();
    let servers: Vec<_> = import
        .servers
        .iter()
        .map(|server| serde_json::json!({ "key": server.key, "original": server.original, "notes": server.notes }))
        .collect();
    let secrets: Vec<_> = rendered
        .secrets
        .iter()
        .map(|secret| serde_json::json!({ "name": secret.name, "servers": secret.servers }))
        .collect();
    serde_json::json!({
        "read": import.read, "servers": servers, "left": left, "secrets": secrets, "wanted": rendered.wanted,
        "toml": rendered.toml,
    })
}
