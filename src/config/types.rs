//! The types that the rest of the program works with.
//!
//! Every value is in range, every name is checked, and references such as `${env:TOKEN}` are still unexpanded (see
//! [`Text`]), so that no secret lives in a value that is compared, logged or cached.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// A whole, valid configuration after `[defaults]` and the chosen profile were applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The file that it came from, as the person named it.
    pub path: PathBuf,
    /// `[proxy]`.
    pub proxy: Proxy,
    /// `[log]`.
    pub log: Log,
    /// The enabled servers that are without fault, in the order of the file.
    pub servers: Vec<Server>,
}

/// `[proxy]`: what concerns all servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// `serverInfo.name` that the host sees.
    pub name: String,
    /// `serverInfo.title`.
    pub title: String,
    /// Put before the children's merged instructions.
    pub instructions: String,
    /// Stands between prefix and name; 1 to 4 of `_` and `-`.
    pub separator: String,
    /// Bound of an exposed tool or prompt name, in characters.
    pub max_name_length: usize,
    /// Entries on a page of a list; 0 is one page.
    pub page_size: usize,
    /// Bound of the wait for facts of children before `initialize` is answered.
    pub initialize_wait: Duration,
    /// Bound of the wait for a first complete list, counted from the start; `None`: not set in the file, so the host
    /// table may shorten the default of 8 s.
    pub list_wait: Option<Duration>,
    /// Bound of one line in bytes, either way.
    pub max_message: usize,
    /// What to do with a call that repeats one of unknown outcome.
    pub allow_repeat_after_unknown: Repeat,
    /// What the ledger keeps of a call's arguments.
    pub ledger_arguments: LedgerArguments,
    /// Whether `mcp-proxy://status` and `mcp-proxy://unknown` are offered.
    pub own_resources: bool,
    /// Whether the file is reloaded when it changes.
    pub watch: bool,
}

/// `allow_repeat_after_unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Ask, or refuse once.
    Confirm,
    /// Send it.
    Always,
    /// Refuse it until the row is resolved.
    Never,
}

/// `ledger_arguments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LedgerArguments {
    /// The text of the arguments, bounded.
    Full,
    /// A digest only.
    Digest,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    /// A filter in `tracing`'s `EnvFilter` syntax.
    pub level: String,
    /// Text for people or JSON for machines.
    pub format: LogFormat,
    /// Where it goes; `None`: stderr.
    pub file: Option<PathBuf>,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// One enabled server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The key of its table: 1 to 32 of `[A-Za-z0-9_-]`.
    pub key: String,
    /// What stands before its names; empty for at most one server.
    pub prefix: String,
    /// How it is reached.
    pub transport: Transport,
    /// With the proxy, or at first use.
    pub start: Start,
    /// Which era it is spoken to in.
    pub protocol: Protocol,
    /// From the first byte of the handshake to its end.
    pub start_timeout: Duration,
    /// For each page of a list.
    pub list_timeout: Duration,
    /// Silence of a call; `None`: unbounded.
    pub call_idle_timeout: Option<Duration>,
    /// A call as a whole; `None`: not set in the file, so the default of 1 h holds or what the host table says.
    pub call_max_time: Option<Duration>,
    /// EOF, grace, SIGTERM, grace, SIGKILL.
    pub stop_grace: Duration,
    /// A lazy child is stopped after this long unused; `None`: never.
    pub idle_stop: Option<Duration>,
    /// Only while nothing is pending; `None`: never.
    pub ping_interval: Option<Duration>,
    /// Requests under way to it; above it a call gets -31011 `busy`.
    pub max_pending: usize,
    /// How long pending calls may finish when it is replaced, removed or stopped.
    pub drain_timeout: Duration,
    /// How much of it is logged; `None`: as `[log]` says.
    pub log_level: Option<LogLevel>,
    /// When it is started anew.
    pub restart: RestartPolicy,
    /// Filters, renames and descriptions of its tools, by the child's own names.
    pub tools: Rules,
    /// Filters of its prompts.
    pub prompts: Rules,
    /// Filters of its resources and templates, globs over the child's own URIs.
    pub resources: Rules,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A process that speaks on its standard streams.
    Stdio(Stdio),
    /// A remote endpoint.
    Http(Http),
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stdio {
    /// The program: a path, or a name to be found on `PATH`.
    pub command: Text,
    /// Its arguments.
    pub args: Vec<Text>,
    /// Its own variables, in the order of the file.
    pub env: Vec<(String, Text)>,
    /// What it inherits of ours.
    pub inherit_env: InheritEnv,
    /// Its working directory; `None`: ours.
    pub cwd: Option<Text>,
}

/// A remote endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Http {
    /// Where it is.
    pub url: Text,
    /// What is sent with each request.
    pub headers: Vec<(String, Text)>,
}

/// Text as it stands in the file, with its references unexpanded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(pub String);

/// `inherit_env`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InheritEnv {
    /// The safe basics.
    Basics,
    /// Everything.
    All,
    /// The basics and these.
    Also(Vec<String>),
}

/// `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// With the proxy.
    Eager,
    /// At first use; its catalog comes from the cache until then.
    Lazy,
}

/// `protocol`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// As the host speaks, else what the child can.
    Auto,
    /// Only the handshake of 2024-11-05 … 2025-11-25.
    Legacy,
    /// Only 2026-07-28 and later.
    Modern,
    /// One revision.
    Revision(String),
}

/// `log_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What can't be mended by itself.
    Error,
    /// And what is odd.
    Warn,
    /// And starts, ends and its stderr.
    Info,
    /// And a line for each call.
    Debug,
    /// Everything.
    Trace,
}

/// `restart`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RestartPolicy {
    /// Whether at all.
    pub policy: RestartWhen,
    /// First pause.
    pub min: Duration,
    /// Longest pause.
    pub max: Duration,
    /// Failures in a row until it is given up.
    pub attempts: u32,
    /// Ready time after which the count starts anew.
    pub stable: Duration,
}

/// `restart.policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartWhen {
    /// After each end.
    Always,
    /// Not after exit code 0.
    OnFailure,
    /// Never.
    Never,
}

/// What of one kind is offered, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Globs, one of which must match; empty: all (`allow = []` in the file becomes `deny = ["*"]`).
    pub allow: Vec<String>,
    /// Globs, none of which may match.
    pub deny: Vec<String>,
    /// A profile's further `allow`: matches must match this, too; `None`: no such rule.
    pub profile_allow: Option<Vec<String>>,
    /// A profile's further `deny`.
    pub profile_deny: Vec<String>,
    /// Own name → new name, before the prefix is added. Tools only.
    pub rename: Vec<(String, String)>,
    /// Own name → description. Tools only.
    pub describe: Vec<(String, String)>,
}

// === impl Server ===

impl Server {
    /// Whether `other` is the same process or endpoint as far as the file tells: if not, it must be replaced, while any
    /// other difference is taken over by the running one.
    ///
    /// References are compared unexpanded; [`Launch::fingerprint`](super::Launch) also sees a changed value behind one.
    pub fn same_identity(&self, other: &Self) -> bool {
        self.transport == other.transport && self.protocol == other.protocol
    }

    /// A digest of what [`Self::same_identity`] compares, for what is to lead back to that server after a restart of ours.
    pub fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.transport, &self.protocol).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether a change of this key of a server's table replaces the server at a reload.
    pub fn is_identity_key(key: &str) -> bool {
        super::keys::SERVER.iter().any(|known| known.identity && known.name == key)
    }
}

// === impl Text ===

impl std::fmt::Debug for Text {
    /// Shows nothing: a literal in `env` may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Text(…)")
    }
}
