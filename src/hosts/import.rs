//! A host's servers, read into a neutral model and written as our file.
//!
//! Secrets are moved to references on the way; their values live in [`Secret`], which shows none of them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::read::{self, Syntax};
use super::vars::Piece;
use super::{Dialect, Form, Format, HOSTS, Host, Surroundings, TimeoutUnit, Vars, entry};

pub use super::render::{Need, Rendered, Secret, Whence};
pub use super::vars::Store;

/// What was read.
#[derive(Debug, Default)]
pub struct Import {
    /// The servers, in the order of the files.
    pub servers: Vec<Server>,
    /// What could not be carried over, and why.
    pub left: Vec<Left>,
    /// The files that were read, as a person writes them.
    pub read: Vec<String>,
    /// How the host's person would call the source: its name or the file's.
    pub source: String,
}

/// A server that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its name there.
    pub name: String,
    /// Why, as a clause: `it is this proxy itself`.
    pub why: String,
    /// Whether the same server is in our file all the same, under this or another name.
    pub same: bool,
}

/// One server of a host.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its key in our file: valid, and unique.
    pub key: String,
    /// Its name in the host's file.
    pub original: String,
    /// Which table of which file it came from: `projects["/home/ada/app"]`, empty for the person's own table.
    pub scope: String,
    /// How it is reached.
    pub(super) transport: Transport,
    /// Whether it is switched on.
    pub enabled: bool,
    /// A start's time limit.
    pub start_timeout: Option<Duration>,
    /// A call's time limit.
    pub call_max_time: Option<Duration>,
    /// The tools that are allowed; empty: all.
    pub allow: Vec<String>,
    /// The tools that are left out.
    pub deny: Vec<String>,
    /// What a person should know about it, a sentence each.
    pub notes: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// A process.
    Process(Process),
    /// A remote endpoint.
    Remote(Remote),
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) command: Vec<Piece>,
    pub(super) args: Vec<Vec<Piece>>,
    pub(super) env: Vec<(String, Vec<Piece>)>,
    /// Variables that it takes from the environment if they are there.
    pub(super) inherit: Vec<String>,
    pub(super) cwd: Option<Vec<Piece>>,
}

/// A remote endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) url: Vec<Piece>,
    pub(super) headers: Vec<(String, Vec<Piece>)>,
    /// Whether it speaks the old HTTP+SSE transport.
    pub(super) sse: bool,
}

// === impl Server ===

impl Server {
    /// Whether it is a remote endpoint.
    pub fn is_remote(&self) -> bool {
        matches!(self.transport, Transport::Remote(_))
    }

    /// Whether it needs the folder that an editor has open.
    pub fn needs_workspace(&self) -> bool {
        self.texts().any(|text| text.contains(&Piece::Workspace))
    }

    /// All its texts that may hold variables.
    pub(super) fn texts(&self) -> Box<dyn Iterator<Item = &Vec<Piece>> + '_> {
        match &self.transport {
            Transport::Process(process) => Box::new(
                [&process.command]
                    .into_iter()
                    .chain(&process.args)
                    .chain(process.env.iter().map(|(_, value)| value))
                    .chain(&process.cwd),
            ),
            Transport::Remote(remote) => {
                Box::new([&remote.url].into_iter().chain(remote.headers.iter().map(|(_, value)| value)))
            }
        }
    }
}

/// Reads all files of a host that exist.
///
/// # Errors
///
/// A sentence: there is no file, or one can't be read or parsed.
pub fn from_host(host: &'static Host, around: &Surroundings, own: Option<&Path>) -> Result<Import, String> {
    let files = around.host_files_to_read(host);
    if files.is_empty() {
        let Some(place) = around.host_file(host) else {
            return Err(format!("{} keeps its servers in no file; name a file to import from", host.title));
        };
        return Err(format!("{} has no file {}; name the file to import from", host.title, around.tilde(&place)));
    }
    let mut import = Import { source: host.id.to_owned(), ..Import::default() };
    for file in files {
        let text = read_text(&file)?;
        add(&mut import, &text, &file, Some(host), around, own)?;
    }
    Ok(import)
}

/// Reads one file of any host.
///
/// # Errors
///
/// As [`from_host`], and that the file holds no servers.
pub fn from_file(
    file: &Path,
    host: Option<&'static Host>,
    around: &Surroundings,
    own: Option<&Path>,
) -> Result<Import, String> {
    let text = read_text(file)?;
    let host = host.or_else(|| guess_host(file));
    from_text(&text, file, host, around, own)
}

/// Reads a text as if it were this file.
///
/// # Errors
///
/// As [`from_file`].
pub fn from_text(
    text: &str,
    file: &Path,
    host: Option<&'static Host>,
    around: &Surroundings,
    own: Option<&Path>,
) -> Result<Import, String> {
    let mut import = Import { source: around.tilde(file), ..Import::default() };
    let tables = add(&mut import, text, file, host, around, own)?;
    if tables == 0 {
        return Err(format!(
            "{} holds no servers: there is none of `mcpServers`, `servers`, `context_servers`, `mcp`, `mcp_servers` and \
             `extensions` in it",
            file.display()
        ));
    }
    Ok(import)
}

fn read_text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("can't read {}: {error}", file.display()))
}

/// Adds a file's servers; returns how many tables of servers it has.
fn add(
    import: &mut Import,
    text: &str,
    file: &Path,
    host: Option<&'static Host>,
    around: &Surroundings,
    own: Option<&Path>,
) -> Result<usize, String> {
    let syntax = syntax_of(file, host);
    let value = read::parse(text, syntax)
        .map_err(|error| format!("{} can't be read as {syntax:?}: {error}", file.display()))?;
    import.read.push(around.tilde(file));
    let found = tables(&value, host);
    for table in &found {
        for (name, item) in &table.entries {
            let dialect = table.host.or(host).map_or(ANY, |host| host.dialect);
            let context = entry::Context { dialect, around, file, own, scope: &table.scope };
            match entry::server(name, item, &context) {
                Ok(server) => push(import, server),
                Err(why) => import.left.push(Left { name: (*name).to_owned(), why, same: false }),
            }
        }
    }
    Ok(found.len())
}

/// How the entries of a file of no known host are understood.
const ANY: Dialect = Dialect { vars: Vars::Any, timeout: TimeoutUnit::Millis, bare_url_is_sse: false };

/// Adds a server under a key that is free, unless the same is there already.
fn push(import: &mut Import, mut server: Server) {
    if let Some(same) = import.servers.iter().find(|other| other.transport == server.transport) {
        let why = format!("it is the same as `{}`", same.key);
        import.left.push(Left { name: server.original, why, same: true });
        return;
    }
    let taken: Vec<&str> = import.servers.iter().map(|other| other.key.as_str()).collect();
    server.key = free_key(&server.original, &taken);
    if server.key != server.original {
        server.notes.push(format!("It was called {:?}.", server.original));
    }
    import.servers.push(server);
}

/// A valid key like this name that is not taken.
pub(super) fn free_key(name: &str, taken: &[&str]) -> String {
    let mut key = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        // The default separator `__` must not stand inside, and a row of signs says nothing.
        if !(matches!(c, '_' | '-') && key.ends_with(['_', '-'])) {
            key.push(c);
        }
    }
    let trimmed = |key: &str, length: usize| key[..key.len().min(length)].trim_matches(['_', '-']).to_owned();
    let base = trimmed(key.trim_matches(['_', '-']), 32);
    let base = if base.is_empty() { "server".to_owned() } else { base };
    let is_taken = |key: &str| taken.iter().any(|other| other.eq_ignore_ascii_case(key));
    if !is_taken(&base) {
        return base;
    }
    // One more candidate than there are servers: one of them is free.
    (2..taken.len() + 3)
        .map(|count| format!("{}-{count}", trimmed(&base, 28)))
        .find(|key| !is_taken(key))
        .expect("there are more numbers than servers")
}

/// A table of servers in a file.
pub(super) struct Table<'v> {
    pub(super) entries: Vec<(&'v str, &'v Map<String, Value>)>,
    pub(super) scope: String,
    /// The host that the table's own form tells of, where the file's name does not.
    host: Option<&'static Host>,
}

/// The tables of servers of a file, the person's own first.
pub(super) fn tables<'v>(value: &'v Value, host: Option<&'static Host>) -> Vec<Table<'v>> {
    let by_form = |form: Form| HOSTS.iter().find(|host| host.form == form);
    let candidates: [(&[&str], Option<&'static Host>); 9] = [
        (&["mcpServers"], None),
        (&["servers"], HOSTS.iter().find(|host| host.id == "vscode")),
        (&["context_servers"], by_form(Form::Zed)),
        (&["mcp_servers"], by_form(Form::Codex)),
        (&["extensions"], by_form(Form::Goose)),
        (&["mcp", "servers"], HOSTS.iter().find(|host| host.id == "vscode")),
        (&["mcp.servers"], HOSTS.iter().find(|host| host.id == "vscode")),
        (&["amp.mcpServers"], None),
        (&["mcp"], by_form(Form::Opencode)),
    ];
    let mut found = Vec::new();
    for (keys, form_host) in candidates {
        let Some(table) = keys.iter().try_fold(value, |value, key| value.get(*key)) else { continue };
        // `mcp.servers` and `mcp` are two readings of one key.
        if keys == ["mcp"] && found.iter().any(|table: &Table| table.scope.is_empty()) {
            continue;
        }
        let list_host = table.is_array().then(|| by_form(Form::Continue)).flatten();
        let host = if host.is_some() { None } else { list_host.or(form_host) };
        if let Some(entries) = entries(table) {
            found.push(Table { entries, scope: String::new(), host });
        }
    }
    for (path, project) in value.get("projects").and_then(Value::as_object).into_iter().flatten() {
        if let Some(entries) = project.get("mcpServers").and_then(entries).filter(|entries| !entries.is_empty()) {
            let host = HOSTS.iter().find(|host| host.id == "claude-code");
            found.push(Table { entries, scope: format!("projects[{path:?}]"), host });
        }
    }
    found
}

fn entries(table: &Value) -> Option<Vec<(&str, &Map<String, Value>)>> {
    match table {
        Value::Object(map) => {
            Some(map.iter().filter_map(|(name, item)| Some((name.as_str(), item.as_object()?))).collect())
        }
        Value::Array(items) => Some(
            items
                .iter()
                .filter_map(Value::as_object)
                .map(|item| (item.get("name").and_then(Value::as_str).unwrap_or("server"), item))
                .collect(),
        ),
        _ => None,
    }
}

/// What a file is written in, by its ending or its host.
pub(super) fn syntax_of(file: &Path, host: Option<&Host>) -> Syntax {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match (ending.as_deref(), host.map(|host| host.format)) {
        (Some("toml"), _) => Syntax::Toml,
        (Some("yaml" | "yml"), _) => Syntax::Yaml,
        (Some("json" | "jsonc" | "json5"), _) => Syntax::Jsonc,
        (_, Some(Format::Toml)) => Syntax::Toml,
        (_, Some(Format::Yaml)) => Syntax::Yaml,
        _ => Syntax::Jsonc,
    }
}

/// File names that several hosts use: the directory must fit, too.
const COMMON: &[&str] = &[
    "mcp.json",
    "settings.json",
    "config.toml",
    "config.yaml",
    "mcp_config.json",
    "mcp_settings.json",
    "hub.yaml",
    "mcp-config.json",
];

/// The host whose file this is, by its name and directory.
pub fn guess_host(file: &Path) -> Option<&'static Host> {
    let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').filter(|part| !part.starts_with(['~', '$'])).collect();
        let Some((name, directories)) = wanted.split_last() else { return false };
        let Some((own_name, own_directories)) = parts.split_last() else { return false };
        let directory_fits = || match (directories.last(), own_directories.last()) {
            (Some(wanted), Some(own)) => wanted == own,
            (None, _) => true,
            _ => false,
        };
        name == own_name && (!COMMON.contains(name) || directory_fits())
    };
    HOSTS.iter().find(|host| {
        let places = [host.places.linux, host.places.macos, host.places.windows, host.places.also_read];
        places.into_iter().flatten().copied().chain(host.project_file).any(fits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_valid() {
        let check = |name: &str, taken: &[&str], expected: &str| assert_eq!(free_key(name, taken), expected, "{name}");
        check("github", &[], "github");
        check("My Server (new)", &[], "My-Server-new");
        check("@scope/server", &[], "scope-server");
        check("a__b", &[], "a_b");
        check("__", &[], "server");
        check("ключ", &[], "server");
        check("github", &["GitHub"], "github-2");
        check("github", &["github", "github-2"], "github-3");
        check(&"x".repeat(40), &[], &"x".repeat(32));
        check(&"x".repeat(40), &[&"x".repeat(32)], &format!("{}-2", "x".repeat(28)));
    }

    #[test]
    fn a_file_tells_its_host() {
        let check = |file: &str, expected: Option<&str>| {
            assert_eq!(guess_host(Path::new(file)).map(|host| host.id), expected, "{file}");
        };
        check("/tmp/claude_desktop_config.json", Some("claude-desktop"));
        check("/home/ada/app/.mcp.json", Some("claude-code"));
        check("/home/ada/app/.cursor/mcp.json", Some("cursor"));
        check("/home/ada/app/.vscode/mcp.json", Some("vscode"));
        check("/home/ada/.config/zed/settings.json", Some("zed"));
        check("/home/ada/.gemini/settings.json", Some("gemini"));
        check("/home/ada/.codex/config.toml", Some("codex"));
        check("/home/ada/.config/goose/config.yaml", Some("goose"));
        check("/home/ada/.continue/config.yaml", Some("continue"));
        check("/home/ada/opencode.jsonc", Some("opencode"));
        check("/home/ada/servers.json", None);
        check("/home/ada/mcp.json", None);
    }
}
