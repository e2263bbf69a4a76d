//! Hosts are data: what each one is called, where its configuration lies, and how long it waits for us.
//!
//! [`HOSTS`] is the one table. [`import`] reads a host's servers into our file, [`install`] writes our entry into a
//! host's file and takes it out again. Nothing here speaks the protocol, and only [`mod@file`] touches the disk
//! for writing.

use std::time::Duration;

mod bridge;
mod diff;
mod edit_json;
mod edit_toml;
mod edit_yaml;
mod entry;
pub mod file;
pub mod import;
pub mod install;
pub mod look;
pub mod place;
mod plan;
mod read;
mod render;
mod secrets;
mod table;
mod vars;
mod yaml;

pub use place::{Platform, Surroundings};
pub use table::HOSTS;

/// Whether the proxy can already speak to remote endpoints; until then they are imported with a note, and `--replace`
/// leaves them with the host.
pub const REMOTE_SUPPORTED: bool = false;

/// The name that our entry has in a host's file: short, letters only, since hosts put it before every tool's name.
pub const ENTRY_NAME: &str = "hub";

/// One host.
#[derive(Debug)]
pub struct Host {
    /// What a person types: `mcp-proxy install cursor`.
    pub id: &'static str,
    /// What it is called in sentences.
    pub title: &'static str,
    /// `clientInfo.name` in any case; a `*` at the end stands for anything.
    pub client_names: &'static [&'static str],
    /// How long it waits for a server's start; `None`: not known, or for ever.
    pub start_limit: Option<Duration>,
    /// The default of `call_max_time` under it, a few seconds before it gives up; `None`: it waits long, or it is not
    /// known.
    pub call_limit: Option<Duration>,
    /// The default of `list_wait` under it where 8 s are too long for it; `None`: they are not.
    pub list_wait: Option<Duration>,
    /// Tools beyond which it warns or leaves some out, of all its servers together; `None`: no such bound is known.
    pub max_tools: Option<usize>,
    /// How long a tool's name may be; `None`: no such bound is known.
    pub max_name: Option<NameLimit>,
    /// Whether it asks for a list's second page.
    pub pages: Known,
    /// Whether it lists anew after a `list_changed`.
    pub list_changed: Known,
    /// Where its configuration lies, per platform.
    pub places: Places,
    /// Its file inside a project, relative to the project's directory.
    pub project_file: Option<&'static str>,
    /// What its file is written in.
    pub format: Format,
    /// The keys that lead to the table of servers.
    pub keys: &'static [&'static str],
    /// How our entry looks in it.
    pub form: Form,
    /// How its entries are to be understood.
    pub dialect: Dialect,
    /// Its own command for servers.
    pub cli: Option<Cli>,
    /// What a person does after an install, as a sentence.
    pub after: &'static str,
    /// What else is worth knowing, a sentence each.
    pub notes: &'static [&'static str],
}

/// What is known of a host's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It was not found out.
    Unknown,
}

/// How long a tool's name may be under a host, before it is cut, left out, or takes the other tools with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameLimit {
    /// The whole of what the model sees, in characters.
    pub total: usize,
    /// What the host puts around our name, without the entry's.
    pub added: usize,
    /// Whether the entry's name stands before ours, too.
    pub with_entry: bool,
}

/// Path templates per platform, the best first; see [`place`] for their variables.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// On macOS.
    pub macos: &'static [&'static str],
    /// On Linux and other Unix systems.
    pub linux: &'static [&'static str],
    /// On Windows.
    pub windows: &'static [&'static str],
    /// Further files that only `import` reads.
    pub also_read: &'static [&'static str],
}

/// What a host's file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON whose host refuses comments.
    Json,
    /// JSON that may hold comments; what we add is plain JSON.
    Jsonc,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
    /// There is no file: a person pastes JSON into a dialog.
    Paste,
}

/// How our entry looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{command, args}`.
    Plain,
    /// `{type: "stdio", command, args}`.
    Typed,
    /// Claude Code's own: `{type, command, args, env}`.
    ClaudeCode,
    /// Zed's `{source: "custom", command, args, env}`.
    Zed,
    /// Codex' `[mcp_servers.hub]`.
    Codex,
    /// Gemini's, with a time limit in milliseconds.
    Gemini,
    /// opencode's, with the command as a list.
    Opencode,
    /// Cline's, with a time limit in seconds.
    Cline,
    /// Goose's extension.
    Goose,
    /// A block file of Continue, ours alone.
    Continue,
    /// GitHub Copilot CLI's, which needs `tools`.
    CopilotCli,
}

/// How a host's entries are to be understood where hosts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// How variables are written.
    pub vars: Vars,
    /// What `timeout` counts.
    pub timeout: TimeoutUnit,
    /// Whether a `url` without `type` means the old HTTP+SSE transport.
    pub bare_url_is_sse: bool,
}

/// The syntax of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vars {
    /// None: text is literal.
    Literal,
    /// `${X}` and `${X:-default}`.
    Shell,
    /// `$X`, `${X}`, `${X:-default}` and `%X%`.
    ShellAndBare,
    /// `${env:X}`, `${file:/p}`, `${userHome}`, `${workspaceFolder}`, `${input:id}`.
    Editor,
    /// `{env:X}` and `{file:/p}`.
    Braces,
    /// `${{ secrets.X }}`.
    Mustache,
    /// An unknown file: `${env:X}` and the like, and `${X}`.
    Any,
}

/// What a host's `timeout` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
}

/// A host's own command for servers. `{name}`, `{command}`, `{args}` and `{json}` are filled in.
#[derive(Clone, Copy, Debug)]
pub struct Cli {
    /// The program, found on `PATH`.
    pub program: &'static str,
    /// Adds our entry.
    pub add: &'static [&'static str],
    /// Takes it out; `None`: there is no such command, so the file is edited.
    pub remove: Option<&'static [&'static str]>,
}

// === impl NameLimit ===

impl NameLimit {
    /// What is left for a name of ours under an entry of that name.
    pub fn room(&self, entry: &str) -> usize {
        let entry = if self.with_entry { entry.chars().count() } else { 0 };
        self.total.saturating_sub(self.added + entry)
    }
}

/// Finds a host by what a person typed.
///
/// # Errors
///
/// A sentence that lists the known ones.
pub fn by_id(id: &str) -> Result<&'static Host, String> {
    HOSTS.iter().find(|host| host.id.eq_ignore_ascii_case(id)).ok_or_else(|| {
        let known: Vec<&str> = HOSTS.iter().map(|host| host.id).collect();
        format!("no host is called `{id}`; known are: {}", known.join(", "))
    })
}

/// Finds a host by its `clientInfo.name`.
pub fn by_client_name(name: &str) -> Option<&'static Host> {
    let name = name.to_ascii_lowercase();
    HOSTS.iter().find(|host| {
        host.client_names.iter().any(|pattern| {
            let pattern = pattern.to_ascii_lowercase();
            match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_by_client_name() {
        let check = |name: &str, id: Option<&str>| {
            assert_eq!(by_client_name(name).map(|host| host.id), id, "{name}");
        };
        check("claude-ai", Some("claude-desktop"));
        check("claude-code", Some("claude-code"));
        check("Visual Studio Code", Some("vscode"));
        check("Visual Studio Code - Insiders", Some("vscode"));
        check("codex-mcp-client", Some("codex"));
        check("gemini-cli-mcp-client-hub", Some("gemini"));
        check("@cline/core", Some("cline"));
        check("CLINE", Some("cline"));
        check("JetBrains-IU-copilot-intellij", Some("jetbrains-copilot"));
        check("a stranger", None);
    }

    #[test]
    fn the_table_is_consistent() {
        for (at, host) in HOSTS.iter().enumerate() {
            assert!(HOSTS[..at].iter().all(|other| other.id != host.id), "two hosts {}", host.id);
            assert!(!host.keys.is_empty(), "{} has keys", host.id);
            let without_file = host.places.linux.is_empty();
            assert_eq!(host.format == Format::Paste, without_file, "{}", host.id);
            assert!(host.after.ends_with('.'), "{}", host.id);
            if let (Some(call), Some(wait)) = (host.call_limit, host.list_wait) {
                assert!(wait < call, "{}", host.id);
            }
        }
    }

    #[test]
    fn the_default_length_of_a_name_fits_every_host() {
        for host in HOSTS {
            assert!(host.max_name.is_none_or(|limit| limit.room(ENTRY_NAME) >= 54), "{}", host.id);
        }
    }

    #[test]
    fn an_unknown_host_lists_the_known_ones() {
        let error = by_id("emacs").expect_err("no such host");
        assert!(error.contains("claude-desktop") && error.contains("opencode"), "{error}");
    }
}
