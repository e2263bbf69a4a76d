//! The table of all keys: it drives the walk, the defaults and the schema.
//!
//! Invariant: a key that the walk accepts stands here, and its default is what holds when the file is silent. The
//! descriptions are shown by editors and become the reference of the documentation.

use std::time::Duration;

use super::rules::Rule;

/// A table of the file and its keys.
pub(crate) struct Table {
    /// How messages call it.
    pub(crate) noun: &'static str,
    pub(crate) keys: &'static [Key],
    /// Whether it is `[defaults]`, where a server's own keys have no place.
    pub(crate) defaults: bool,
}

/// One key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// What holds when it is not set, as TOML; `None`: nothing does.
    pub(crate) default: Option<&'static str>,
    pub(crate) doc: &'static str,
    /// Whether it has no place in `[defaults]`.
    pub(crate) own: bool,
    /// Whether a change replaces the server at a reload.
    pub(crate) identity: bool,
    /// The transport that it has a meaning for.
    pub(crate) only: Option<Only>,
}

/// The kind of server that a key has a meaning for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Command,
    Url,
}

/// What a value may be.
pub(crate) enum Kind {
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    /// Not below `min`.
    Duration {
        min: Duration,
    },
    Size {
        min: u64,
        max: u64,
    },
    Text(Rule),
    /// One of these words, each with what it means.
    Choice(&'static [(&'static str, &'static str)]),
    List(&'static Kind),
    /// Any names, each with a value of one kind.
    Map {
        names: Rule,
        of: &'static Kind,
        noun: &'static str,
    },
    Table(Table),
    /// true, false, or a list.
    BoolOrList(&'static Kind),
}

/// The file as a whole.
pub(crate) const ROOT: Table = table(
    "the file",
    &[
        key("proxy", Kind::Table(table("[proxy]", PROXY)), None, "What concerns all servers."),
        key("log", Kind::Table(table("[log]", LOG)), None, "Where the log goes, and how much of it."),
        key(
            "defaults",
            Kind::Table(DEFAULTS),
            None,
            "Values for all servers: any key of a server's table but command, args, url and prefix. A server's own value \
         wins; the tables env, headers, restart, tools, prompts and resources are merged key by key.",
        ),
        key("servers", SERVERS, None, "The servers behind the proxy, each in a table [servers.NAME]."),
        key(
            "profiles",
            Kind::Map { names: Rule::ServerKey, of: &Kind::Table(table("a profile", PROFILE)), noun: "profile" },
            None,
            "Selections that --profile NAME chooses from. A profile only narrows what the servers' tables allow.",
        ),
    ],
);

const SERVERS: Kind =
    Kind::Map { names: Rule::ServerKey, of: &Kind::Table(table("a server's table", SERVER)), noun: "server" };
const DEFAULTS: Table = Table { noun: "[defaults]", keys: SERVER, defaults: true };

const PROXY: &[Key] = &[
    key("name", Kind::Text(Rule::NonEmpty), Some("\"mcp-proxy\""), "The serverInfo.name that the host sees."),
    key(
        "title",
        Kind::Text(Rule::Line),
        Some("\"hub\""),
        "The serverInfo.title that the host sees. Keep it short: some hosts put it before every tool name.",
    ),
    key("instructions", Kind::Text(Rule::Any), Some("\"\""), "Put before the servers' merged instructions."),
    key(
        "separator",
        Kind::Text(Rule::Separator),
        Some("\"__\""),
        "Stands between a server's prefix and a name: 1 to 4 of \"_\" and \"-\".",
    ),
    key(
        "max_name_length",
        Kind::Integer { min: 16, max: 1024 },
        Some("54"),
        "Bound of an exposed tool or prompt name, in characters. The default fits every known host.",
    ),
    key(
        "page_size",
        Kind::Integer { min: 0, max: 100_000 },
        Some("0"),
        "Entries on a page of a list; 0 is one page, since several hosts never ask for a second.",
    ),
    key(
        "initialize_wait",
        at_least(0),
        Some("\"1s\""),
        "How long the answer to initialize waits for servers without cached facts.",
    ),
    key(
        "list_wait",
        at_least(0),
        None,
        "How long a first list waits for all servers, counted from the start. Unset: 8s, and less for hosts that are \
         known to be hastier.",
    ),
    key(
        "max_message",
        Kind::Size { min: 1 << 10, max: 1 << 30 },
        Some("\"64MiB\""),
        "Bound of one message, either way.",
    ),
    key(
        "allow_repeat_after_unknown",
        Kind::Choice(&[
            ("confirm", "ask the person, or refuse once where the host can't ask"),
            ("always", "send it"),
            ("never", "refuse it until the outcome was resolved"),
        ]),
        Some("\"confirm\""),
        "What to do with a call that repeats one whose outcome is unknown.",
    ),
    key(
        "ledger_arguments",
        Kind::Choice(&[("full", "the text, bounded"), ("digest", "a digest only")]),
        Some("\"full\""),
        "What the ledger of unknown outcomes keeps of a call's arguments.",
    ),
    key("own_resources", Kind::Bool, Some("true"), "Whether mcp-proxy://status and mcp-proxy://unknown are offered."),
    key("watch", Kind::Bool, Some("true"), "Whether this file is loaded anew when it changes."),
];

const LOG: &[Key] = &[
    key(
        "level",
        Kind::Text(Rule::LogFilter),
        Some("\"info\""),
        "How much is logged: error, warn, info, debug or trace, or a filter such as \"info,mcp_proxy=debug\".",
    ),
    key(
        "format",
        Kind::Choice(&[("text", "for people"), ("json", "one JSON object a line")]),
        Some("\"text\""),
        "The form of the log.",
    ),
    key(
        "file",
        Kind::Text(Rule::Line),
        Some("\"\""),
        "A file that is rotated daily, 7 kept; \"~\" at its start is the home directory. Empty: standard error.",
    ),
];

/// A server's table.
pub(crate) const SERVER: &[Key] = &[
    own(command_only(identity(key(
        "command",
        Kind::Text(Rule::Command),
        None,
        "The program to start: a path, or a name to be found on PATH. References and \"~\" are expanded.",
    )))),
    own(command_only(identity(key(
        "args",
        Kind::List(&Kind::Text(Rule::Reference)),
        Some("[]"),
        "The program's arguments. References are expanded.",
    )))),
    command_only(identity(key(
        "env",
        Kind::Map { names: Rule::EnvName, of: &Kind::Text(Rule::Reference), noun: "variable" },
        Some("{}"),
        "The server's own environment variables. References such as ${env:TOKEN} are expanded.",
    ))),
    command_only(identity(key(
        "inherit_env",
        Kind::BoolOrList(&Kind::Text(Rule::EnvName)),
        Some("false"),
        "What the server inherits of our environment: false is the safe basics, true everything, a list the basics and \
         these variables.",
    ))),
    command_only(identity(key(
        "cwd",
        Kind::Text(Rule::Path),
        None,
        "The working directory. \"~\" and references are expanded; a relative path starts at this file's directory. \
         Unset: ours.",
    ))),
    own(url_only(identity(key(
        "url",
        Kind::Text(Rule::Url),
        None,
        "The Streamable HTTP endpoint of a remote server. References are expanded.",
    )))),
    url_only(identity(key(
        "headers",
        Kind::Map { names: Rule::HeaderName, of: &Kind::Text(Rule::HeaderValue), noun: "header" },
        Some("{}"),
        "What is sent with each request to a remote server. References are expanded.",
    ))),
    own(key(
        "prefix",
        Kind::Text(Rule::Prefix),
        None,
        "Stands before the server's names. Unset: the server's key. Empty, for at most one server: its names stay as \
         they are.",
    )),
    key("enabled", Kind::Bool, Some("true"), "Whether the server is used."),
    key(
        "start",
        Kind::Choice(&[
            ("eager", "with the proxy"),
            ("lazy", "at first use; its catalog comes from the cache until then"),
        ]),
        Some("\"eager\""),
        "When the server is started.",
    ),
    identity(key(
        "protocol",
        Kind::Choice(&[
            ("auto", "as the host speaks, else what the server can"),
            ("legacy", "only the revisions with a handshake"),
            ("modern", "only 2026-07-28 and later"),
            ("2024-11-05", "this revision"),
            ("2025-03-26", "this revision"),
            ("2025-06-18", "this revision"),
            ("2025-11-25", "this revision"),
            ("2026-07-28", "this revision"),
        ]),
        Some("\"auto\""),
        "The protocol revisions that the server is spoken to in.",
    )),
    key(
        "start_timeout",
        at_least(1),
        Some("\"60s\""),
        "From the first byte of the handshake to its end. A program that can't be started counts at once.",
    ),
    key("list_timeout", at_least(1), Some("\"30s\""), "For each page of a list."),
    key(
        "call_idle_timeout",
        at_least(0),
        Some("\"0s\""),
        "How long a call may be silent. Progress restarts it, and it stands still while a person is asked. \"0s\" is none.",
    ),
    key(
        "call_max_time",
        at_least(1),
        None,
        "How long a call may take, whatever progress says. Unset: 1h, and less for hosts that are known to give up \
         earlier.",
    ),
    key(
        "stop_grace",
        at_least(0),
        Some("\"2s\""),
        "The pause between the steps of stopping: end of input, SIGTERM, SIGKILL.",
    ),
    key("idle_stop", at_least(0), Some("\"0s\""), "A lazy server is stopped after this long unused. \"0s\" is never."),
    key(
        "ping_interval",
        at_least(0),
        Some("\"60s\""),
        "How often a quiet server is asked whether it still answers. \"0s\" is never.",
    ),
    key(
        "max_pending",
        Kind::Integer { min: 1, max: 65_536 },
        Some("256"),
        "Requests under way to the server; above it a call is answered with -31011 \"busy\".",
    ),
    key(
        "drain_timeout",
        at_least(0),
        Some("\"10s\""),
        "How long pending calls may finish when the server is replaced, removed or stopped.",
    ),
    key(
        "log_level",
        Kind::Choice(&[
            ("off", "nothing"),
            ("error", "what can't be mended by itself"),
            ("warn", "and what is odd"),
            ("info", "and starts, ends and its stderr"),
            ("debug", "and a line for each call"),
            ("trace", "everything"),
        ]),
        None,
        "How much of this server is logged, in place of what log.level says. Unset: as log.level says.",
    ),
    key("restart", Kind::Table(table("restart", RESTART)), None, "When the server is started anew after it ended."),
    key(
        "tools",
        Kind::Table(table("tools", TOOLS)),
        None,
        "Which of the server's tools are offered, and how, by the server's own names.",
    ),
    key("prompts", Kind::Table(table("prompts", FILTER)), None, "Which of the server's prompts are offered."),
    key(
        "resources",
        Kind::Table(table("resources", FILTER)),
        None,
        "Which of the server's resources are offered: globs over its own URIs.",
    ),
];

const RESTART: &[Key] = &[
    key(
        "policy",
        Kind::Choice(&[
            ("always", "after each end"),
            ("on-failure", "not after exit code 0"),
            ("never", "the first end is the last"),
        ]),
        Some("\"always\""),
        "Whether the server is started anew.",
    ),
    key("min", at_least(1), Some("\"250ms\""), "The first pause; it doubles with each failure."),
    key("max", at_least(1), Some("\"30s\""), "The longest pause."),
    key("attempts", Kind::Integer { min: 1, max: 1_000_000 }, Some("8"), "Failures in a row until it is given up."),
    key("stable", at_least(0), Some("\"60s\""), "Ready time after which the count of failures starts anew."),
];

const TOOLS: &[Key] = &[
    ALLOW,
    DENY,
    key(
        "rename",
        Kind::Map { names: Rule::NonEmpty, of: &Kind::Text(Rule::NonEmpty), noun: "tool" },
        Some("{}"),
        "New names for tools, applied before the prefix: own name = \"new name\".",
    ),
    key(
        "describe",
        Kind::Map { names: Rule::NonEmpty, of: &Kind::Text(Rule::Any), noun: "tool" },
        Some("{}"),
        "New descriptions for tools: own name = \"description\".",
    ),
];

const FILTER: &[Key] = &[ALLOW, DENY];
const ALLOW: Key = key(
    "allow",
    Kind::List(&Kind::Text(Rule::Glob)),
    None,
    "Globs, one of which must match. Unset: all. An empty list: none.",
);
const DENY: Key = key("deny", Kind::List(&Kind::Text(Rule::Glob)), Some("[]"), "Globs, none of which may match.");

const PROFILE: &[Key] = &[
    key("servers", Kind::List(&Kind::Text(Rule::ServerKey)), None, "The servers that are used. Unset: all."),
    key("tools", PROFILE_FILTERS, None, "Further filters of tools, for each server."),
    key("prompts", PROFILE_FILTERS, None, "Further filters of prompts, for each server."),
    key("resources", PROFILE_FILTERS, None, "Further filters of resources, for each server."),
];

const PROFILE_FILTERS: Kind =
    Kind::Map { names: Rule::ServerKey, of: &Kind::Table(table("a profile's filter", FILTER)), noun: "server" };

// === impl Table ===

const fn table(noun: &'static str, keys: &'static [Key]) -> Table {
    Table { noun, keys, defaults: false }
}

impl Table {
    /// The keys that have a place here.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let defaults = self.defaults;
        self.keys.iter().filter(move |key| !(defaults && key.own))
    }
}

// === impl Key ===

const fn key(name: &'static str, kind: Kind, default: Option<&'static str>, doc: &'static str) -> Key {
    Key { name, kind, default, doc, own: false, identity: false, only: None }
}

const fn own(mut key: Key) -> Key {
    key.own = true;
    key
}

const fn identity(mut key: Key) -> Key {
    key.identity = true;
    key
}

const fn command_only(mut key: Key) -> Key {
    key.only = Some(Only::Command);
    key
}

const fn url_only(mut key: Key) -> Key {
    key.only = Some(Only::Url);
    key
}

const fn at_least(millis: u64) -> Kind {
    Kind::Duration { min: Duration::from_millis(millis) }
}
