//! Complete fields → the domain's types, key by key.

use std::path::PathBuf;

use super::fields::{Fields, Value};
use super::types::{
    Http, InheritEnv, LedgerArguments, Log, LogFormat, LogLevel, Protocol, Proxy, Repeat, RestartPolicy, RestartWhen,
    Rules, Server, Start, Stdio, Text, Transport,
};

pub(crate) fn proxy(fields: &Fields) -> Proxy {
    Proxy {
        name: fields.text("name"),
        title: fields.text("title"),
        instructions: fields.text("instructions"),
        separator: fields.text("separator"),
        max_name_length: fields.integer("max_name_length"),
        page_size: fields.integer("page_size"),
        initialize_wait: fields.duration("initialize_wait"),
        list_wait: fields.set_duration("list_wait"),
        max_message: fields.size("max_message"),
        allow_repeat_after_unknown: match fields.text("allow_repeat_after_unknown").as_str() {
            "always" => Repeat::Always,
            "never" => Repeat::Never,
            _ => Repeat::Confirm,
        },
        ledger_arguments: match fields.text("ledger_arguments").as_str() {
            "digest" => LedgerArguments::Digest,
            _ => LedgerArguments::Full,
        },
        own_resources: fields.bool("own_resources"),
        watch: fields.bool("watch"),
    }
}

pub(crate) fn log(fields: &Fields) -> Log {
    let file = fields.text("file");
    Log {
        level: fields.text("level"),
        format: if fields.text("format") == "json" { LogFormat::Json } else { LogFormat::Text },
        file: (!file.is_empty()).then(|| PathBuf::from(file)),
    }
}

pub(crate) fn server(key: &str, prefix: &str, fields: &Fields) -> Server {
    let transport = match fields.set_text("url") {
        Some(url) => Transport::Http(Http { url: Text(url), headers: fields.map_of_text("headers") }),
        None => Transport::Stdio(Stdio {
            command: Text(fields.set_text("command").unwrap_or_default()),
            args: fields.texts("args").unwrap_or_default().into_iter().map(Text).collect(),
            env: fields.map_of_text("env"),
            inherit_env: match &fields.expect("inherit_env").value {
                Value::Bool(true) => InheritEnv::All,
                Value::Bool(false) => InheritEnv::Basics,
                _ => InheritEnv::Also(fields.texts("inherit_env").unwrap_or_default()),
            },
            cwd: fields.set_text("cwd").map(Text),
        }),
    };
    let optional = |name: &str| Some(fields.duration(name)).filter(|duration| !duration.is_zero());
    let restart = fields.table("restart");
    Server {
        key: key.to_owned(),
        prefix: prefix.to_owned(),
        transport,
        start: if fields.text("start") == "lazy" { Start::Lazy } else { Start::Eager },
        protocol: match fields.text("protocol").as_str() {
            "auto" => Protocol::Auto,
            "legacy" => Protocol::Legacy,
            "modern" => Protocol::Modern,
            revision => Protocol::Revision(revision.to_owned()),
        },
        start_timeout: fields.duration("start_timeout"),
        list_timeout: fields.duration("list_timeout"),
        call_idle_timeout: optional("call_idle_timeout"),
        call_max_time: fields.set_duration("call_max_time"),
        stop_grace: fields.duration("stop_grace"),
        idle_stop: optional("idle_stop"),
        ping_interval: optional("ping_interval"),
        max_pending: fields.integer("max_pending"),
        drain_timeout: fields.duration("drain_timeout"),
        log_level: fields.set_text("log_level").and_then(|level| log_level(&level)),
        restart: RestartPolicy {
            policy: match restart.text("policy").as_str() {
                "never" => RestartWhen::Never,
                "on-failure" => RestartWhen::OnFailure,
                _ => RestartWhen::Always,
            },
            min: restart.duration("min"),
            max: restart.duration("max"),
            attempts: restart.integer("attempts"),
            stable: restart.duration("stable"),
        },
        tools: rules(fields.table("tools")),
        prompts: rules(fields.table("prompts")),
        resources: rules(fields.table("resources")),
    }
}

/// The level of that name; `None`, the default, leaves it to `[log]`.
fn log_level(name: &str) -> Option<LogLevel> {
    match name {
        "off" => Some(LogLevel::Off),
        "error" => Some(LogLevel::Error),
        "warn" => Some(LogLevel::Warn),
        "info" => Some(LogLevel::Info),
        "debug" => Some(LogLevel::Debug),
        "trace" => Some(LogLevel::Trace),
        _ => None,
    }
}

fn rules(fields: &Fields) -> Rules {
    let (allow, deny) = allow_deny(fields);
    Rules {
        allow: allow.unwrap_or_default(),
        deny,
        profile_allow: None,
        profile_deny: Vec::new(),
        rename: fields.map_if_set("rename"),
        describe: fields.map_if_set("describe"),
    }
}

/// The two lists of a filter. An empty `allow` in the file allows nothing, and in the types everything.
pub(crate) fn allow_deny(fields: &Fields) -> (Option<Vec<String>>, Vec<String>) {
    let mut deny = fields.texts("deny").unwrap_or_default();
    let allow = fields.texts("allow").map(|allow| {
        if allow.is_empty() && !deny.iter().any(|glob| glob == "*") {
            deny.push("*".to_owned());
        }
        if allow.iter().any(|glob| glob == "*") { Vec::new() } else { allow }
    });
    (allow, deny)
}
