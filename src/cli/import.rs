//! `mcp-proxy import`: a host's servers as our file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::config;
use crate::hosts::file::Snapshot;
use crate::hosts::import::{self, Import, Need, Rendered, Store, Whence};
use crate::hosts::{HOSTS, Surroundings, by_id};

const EXAMPLES: &str = "Examples:
  mcp-proxy import
  mcp-proxy import claude-desktop
  mcp-proxy import cursor --output ~/.config/mcp-proxy/mcp-proxy.toml
  mcp-proxy import ./mcp.json --as vscode --keyring";

/// Turns the servers of a host into our configuration.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// A host (claude-desktop, cursor, vscode, codex …), or one of its files; without it the hosts that are there are listed
    #[arg(value_name = "HOST|FILE")]
    pub source: Option<String>,
    /// Read the file as this host's
    #[arg(long = "as", value_name = "HOST", requires = "source")]
    pub host: Option<String>,
    /// Write to this file; what it holds already stays, and the new servers come after it
    #[arg(long, short, value_name = "FILE", requires = "source")]
    pub output: Option<PathBuf>,
    /// Keep secrets in the system's keyring in place of environment variables
    #[arg(long, requires = "source")]
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
    let Some(source) = &args.source else { return list_hosts(args.json, around, &scene.binary, out) };
    let import = read(source, args.host.as_deref(), around, &scene.binary)?;
    let store = if args.keyring { Store::Keyring } else { Store::Env };
    let target = args.output.as_deref().map(Snapshot::read).transpose().context("can't read the output file")?;
    let existing = target.as_ref().and_then(|target| target.text.as_deref());
    let rendered = import.render(store, existing, around).map_err(anyhow::Error::msg)?;
    if import.servers.is_empty() {
        report(&import, &rendered, err)?;
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
    report(&import, &rendered, err)?;
    tell_needs(&rendered, store, around, err)?;
    Ok(0)
}

/// The hosts whose files are there, and how many servers each has.
fn list_hosts(json: bool, around: &Surroundings, own: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    let there = HOSTS.iter().map(|host| (host, around.host_files_to_read(host)));
    let there: Vec<_> = there.filter(|(_, files)| !files.is_empty()).collect();
    let read = |host| import::from_host(host, around, Some(own));
    if json {
        let hosts = there.iter().map(|(host, files)| {
            let import = read(host);
            let servers = import.as_ref().map(|import| import.servers.iter().map(|server| &server.original));
            serde_json::json!({
                "id": host.id, "title": host.title, "files": files, "error": import.as_ref().err(),
                "servers": servers.map(Iterator::collect::<Vec<_>>).unwrap_or_default(),
            })
        });
        writeln!(out, "{:#}", serde_json::Value::from(hosts.collect::<Vec<_>>()))?;
        return Ok(0);
    }
    if there.is_empty() {
        writeln!(out, "No file of a known host was found; name one: `mcp-proxy import FILE`.")?;
        return Ok(0);
    }
    let width = there.iter().map(|(host, _)| host.id.len()).max().unwrap_or_default();
    for (host, files) in &there {
        let files: Vec<String> = files.iter().map(|file| around.tilde(file)).collect();
        let told = match read(host) {
            Ok(import) => format!("{} in {}", count(import.servers.len(), "server"), files.join(", ")),
            Err(why) => why,
        };
        writeln!(out, "  {:width$}   {told}", host.id)?;
    }
    writeln!(out, "`mcp-proxy import HOST` turns the servers of one into our file.")?;
    Ok(0)
}

fn read(source: &str, host: Option<&str>, around: &Surroundings, own: &Path) -> anyhow::Result<Import> {
    let file = Path::new(source);
    if let Some(host) = host {
        let host = by_id(host).map_err(anyhow::Error::msg)?;
        return import::from_file(file, Some(host), around, Some(own)).map_err(anyhow::Error::msg);
    }
    match by_id(source) {
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

/// Says what was read, and what was left out.
pub(super) fn report(import: &Import, rendered: &Rendered, err: &mut dyn Write) -> std::io::Result<()> {
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
    Ok(())
}

/// Says which servers need what before they work, and what to type for it.
pub(super) fn tell_needs(
    rendered: &Rendered,
    store: Store,
    around: &Surroundings,
    err: &mut dyn Write,
) -> std::io::Result<()> {
    let in_keyring = |need: &&Need| store == Store::Keyring && need.value != Whence::Environment;
    // What was taken out of the host's file is in the keyring by now.
    let to_keep = rendered.needs.iter().filter(in_keyring).filter(|need| need.value == Whence::Elsewhere);
    let to_set = rendered.needs.iter().filter(|need| !in_keyring(need) && around.var(&need.name).is_none());
    let (to_keep, to_set): (Vec<_>, Vec<_>) = (to_keep.collect(), to_set.collect());
    let line = |need: &Need, command: String, width: usize| {
        let why = match need.value {
            Whence::File => "",
            Whence::Elsewhere => "; the host kept its value elsewhere",
            Whence::Environment => "; the host's file refers to it, too",
        };
        format!("  {command:width$}   # for {}{why}", need.servers.join(", "))
    };
    let mut block = |title: &str, needs: &[&Need], command: &dyn Fn(&str) -> String| {
        if needs.is_empty() {
            return Ok(());
        }
        let width = needs.iter().map(|need| command(&need.name).chars().count()).max().unwrap_or_default();
        writeln!(err, "{title}")?;
        needs.iter().try_for_each(|need| writeln!(err, "{}", line(need, command(&need.name), width)))
    };
    block(
        "Before these servers work, keep their secrets in the keyring; each command asks for the value:",
        &to_keep,
        &|name| format!("mcp-proxy secret set {name}"),
    )?;
    block(
        "Before these servers work, set this in the environment that the host is started in (no value is shown here):",
        &to_set,
        &|name| format!("export {name}=…"),
    )?;
    if let Some(need) = to_set.first() {
        let name = &need.name;
        writeln!(
            err,
            "A host on a desktop does not see what a shell exports. For it keep each in the system's keyring:"
        )?;
        writeln!(
            err,
            "`mcp-proxy secret set {name}`, and ${{keyring:{name}}} in place of ${{env:{name}}} in our file."
        )?;
        writeln!(err, "--keyring does both at an import, and at an install with --replace.")?;
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
