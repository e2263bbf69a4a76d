//! Checked values → the domain's types, with the rules that concern several keys or servers.

use std::ops::Range;
use std::path::PathBuf;

use super::fault::{Fault, Problem, Severity, dotted};
use super::fields::{Fields, Node, Value};
use super::keys::{Kind, ROOT, SERVER, Table};
use super::parse::{Broken, suggest};
use super::types::{Config, Proxy, Server};
use super::walk::{Walk, builtin, means_transport};
use super::{domain, hints};

/// How the message of a server begins that lacks what makes it one.
pub(crate) const MISSING: &str = "the server has neither";

pub(crate) struct Lifted {
    pub(crate) config: Config,
    pub(crate) broken: Vec<Broken>,
}

/// A server's table on its way into the domain's types.
struct Draft {
    key: String,
    at: usize,
    prefix: String,
    /// Where the prefix stands, if it is set.
    prefix_span: Option<Range<usize>>,
    enabled: bool,
    /// `None`: not even a table.
    server: Option<Server>,
}

/// The first name cut to its bound keeps this much: a character, `_` and the hash.
const SHORTEST_REST: usize = 10;

/// Lifts the file's values; what can't be lifted is noted in the walk's faults.
pub(crate) fn lift(walk: &mut Walk<'_>, root: Fields, profile: Option<&str>) -> Lifted {
    let mut root = complete(&ROOT, root);
    let proxy = domain::proxy(&root.take_table("proxy"));
    let log = domain::log(&root.take_table("log"));
    let defaults = root.take_table("defaults");
    let profiles = root.take_map("profiles");
    let servers = root.take_map("servers");
    if servers.is_empty() && walk.faults.iter().all(|fault| !fault.key.starts_with("servers")) {
        let problem =
            Problem::new("no servers are configured").help("write a table [servers.NAME] with command or url");
        walk.note(&["servers"], 0..0, Severity::Warning, problem);
    }
    let mut drafts: Vec<Draft> =
        servers.into_iter().map(|(key, node)| draft(walk, &proxy, &defaults, key, node)).collect();
    not_even_tables(walk, &mut drafts);
    equal_prefixes(walk, &drafts);
    check_profiles(walk, &profiles, &drafts);
    let chosen = profile.and_then(|name| choose(walk, &profiles, name));
    let (servers, broken) = sort_out(walk, drafts, chosen);
    Lifted { config: Config { path: PathBuf::new(), proxy, log, servers }, broken }
}

/// The values of the file over the defaults of the table of keys, for tables of the file that are set or not.
fn complete(table: &Table, fields: Fields) -> Fields {
    let mut below = Fields::default();
    for key in table.keys() {
        // What `[defaults]` leaves open is decided where a server's table is completed.
        if let (Kind::Table(table), false) = (&key.kind, key.name == "defaults") {
            below.0.push((key.name, Node { value: Value::Table(builtin(table)), span: 0..0, key_span: 0..0 }));
        }
    }
    fields.over(below)
}

fn draft(walk: &mut Walk<'_>, proxy: &Proxy, defaults: &Fields, key: String, node: Node) -> Draft {
    let Node { value: Value::Table(own), key_span, .. } = node else { unreachable!("the kind of a server is a table") };
    hints::hints(walk, &key, &own);
    one_transport(walk, &key, &key_span, &own);
    let prefix_span = own.get("prefix").map(|node| node.span.clone());
    let fields = own.over(defaults.clone()).over(builtin(&Table { noun: "", keys: SERVER, defaults: false }));
    let prefix = fields.set_text("prefix").unwrap_or_else(|| key.clone());
    separator_inside(walk, proxy, &key, &key_span, &prefix, prefix_span.as_ref());
    restart_bounds(walk, &key, &fields);
    let server = domain::server(&key, &prefix, &fields);
    Draft { at: key_span.start, prefix, prefix_span, enabled: fields.bool("enabled"), server: Some(server), key }
}

/// A server has a command or a url, and not both.
fn one_transport(walk: &mut Walk<'_>, key: &str, key_span: &Range<usize>, own: &Fields) {
    // A misspelt or faulty one of them was told already.
    let told = |fault: &Fault| {
        let faulty = ["command", "url"].iter().any(|name| fault.key == dotted(["servers", key, name]));
        let misspelt = fault.help.as_deref().is_some_and(means_transport);
        fault.severity == Severity::ServerOnly && fault.server.as_deref() == Some(key) && (faulty || misspelt)
    };
    match (own.get("command"), own.get("url")) {
        (Some(_), Some(url)) => {
            let problem = Problem::new("the server has both \"command\" and \"url\"")
                .help("keep \"command\" for a program, or \"url\" for a remote server");
            walk.note(&["servers", key, "url"], url.key_span.clone(), Severity::ServerOnly, problem);
        }
        (None, None) if !walk.faults.iter().any(told) => {
            let problem = Problem::new(format!("{MISSING} \"command\" nor \"url\""))
                .help("write command = \"PROGRAM\" for a program, or url = \"https://...\" for a remote server");
            walk.note(&["servers", key], key_span.clone(), Severity::ServerOnly, problem);
        }
        _ => {}
    }
}

/// A prefix ends at the first separator, so neither it nor the key may hold one.
fn separator_inside(
    walk: &mut Walk<'_>,
    proxy: &Proxy,
    key: &str,
    key_span: &Range<usize>,
    prefix: &str,
    prefix_span: Option<&Range<usize>>,
) {
    let separator = &proxy.separator;
    let mut judge = |path: &[&str], what: &str, text: &str, span: &Range<usize>| {
        // Where its own rule is broken already, one message is enough.
        let reported = walk.faults.iter().any(|fault| fault.key == dotted(path.iter().copied()) && fault.span == *span);
        if text.contains(separator.as_str()) && !reported {
            let better = text.replace(separator.as_str(), if separator.contains('_') { "-" } else { "_" });
            let mut problem = Problem::new(format!("{what} holds the separator {separator:?}"));
            if !better.contains(separator.as_str()) {
                problem = problem.help(format!("write {better:?}, or another [proxy] separator"));
            }
            walk.note(path, span.clone(), Severity::ServerOnly, problem);
        }
    };
    judge(&["servers", key], "the server's key", key, key_span);
    if let Some(span) = prefix_span {
        judge(&["servers", key, "prefix"], "the prefix", prefix, span);
    }
    let (path, span): (&[&str], _) = match prefix_span {
        Some(span) => (&["servers", key, "prefix"], span),
        None => (&["servers", key], key_span),
    };
    let needed = prefix.len() + separator.len() + SHORTEST_REST;
    if !prefix.is_empty() && needed > proxy.max_name_length {
        let problem = Problem::new(format!(
            "the prefix {prefix:?} leaves no room for names within max_name_length = {}",
            proxy.max_name_length
        ))
        .help(format!("write a shorter prefix, or a max_name_length of at least {needed}"));
        walk.note(path, span.clone(), Severity::ServerOnly, problem);
    }
}

fn restart_bounds(walk: &mut Walk<'_>, key: &str, fields: &Fields) {
    let restart = fields.table("restart");
    let (Some(min), Some(max)) = (restart.get("min"), restart.get("max")) else { return };
    // Both spans are empty where both are defaults, which agree.
    let span = if max.span.is_empty() { min.span.clone() } else { max.span.clone() };
    if restart.duration("min") > restart.duration("max") {
        let problem =
            Problem::new("the longest pause \"max\" is shorter than the first, \"min\"").help("make max at least min");
        walk.note(&["servers", key, "restart", "max"], span, Severity::ServerOnly, problem);
    }
}

/// Adds the servers whose value was no table: they are known, and broken.
fn not_even_tables(walk: &Walk<'_>, drafts: &mut Vec<Draft>) {
    for fault in &walk.faults {
        let Some(key) = &fault.server else { continue };
        if drafts.iter().all(|draft| draft.key != *key) {
            drafts.push(Draft {
                key: key.clone(),
                at: fault.span.start,
                prefix: key.clone(),
                prefix_span: None,
                enabled: true,
                server: None,
            });
        }
    }
    drafts.sort_by_key(|draft| draft.at);
}

fn equal_prefixes(walk: &mut Walk<'_>, drafts: &[Draft]) {
    let enabled: Vec<&Draft> = drafts.iter().filter(|draft| draft.enabled).collect();
    for (index, draft) in enabled.iter().enumerate() {
        let (key, prefix) = (draft.key.as_str(), draft.prefix.as_str());
        let Some(other) = enabled[..index].iter().find(|other| scheme_prefix(&other.prefix) == scheme_prefix(prefix))
        else {
            continue;
        };
        let problem = if prefix.is_empty() {
            format!("only one server may have an empty prefix, and {:?} has it", other.key)
        } else if other.prefix == prefix {
            format!("the prefix {prefix:?} is that of the server {:?}", other.key)
        } else {
            let (scheme, other_prefix) = (scheme_prefix(prefix), &other.prefix);
            format!(
                "the prefix {prefix:?} becomes {scheme:?} in URIs, as {other_prefix:?} of the server {:?} does",
                other.key
            )
        };
        let problem = Problem::new(problem).help("give this server a prefix of its own: prefix = \"...\"");
        match &draft.prefix_span {
            Some(span) => walk.note(&["servers", key, "prefix"], span.clone(), Severity::ServerOnly, problem),
            None => walk.note(&["servers", key], draft.at..draft.at + key.len(), Severity::ServerOnly, problem),
        }
    }
}

/// The prefix as it stands before a URI: made safe for a scheme.
pub fn scheme_prefix(prefix: &str) -> String {
    let safe = prefix.to_ascii_lowercase().replace('_', "-");
    if safe.starts_with(|c: char| c.is_ascii_digit()) { format!("s{safe}") } else { safe }
}

fn check_profiles(walk: &mut Walk<'_>, profiles: &[(String, Node)], drafts: &[Draft]) {
    let known: Vec<&str> = drafts.iter().map(|draft| draft.key.as_str()).collect();
    for (profile, node) in profiles {
        let Some(fields) = node.as_table() else { continue };
        let mut judge = |path: &[&str], name: &str, span: &Range<usize>| {
            if !known.contains(&name) {
                let path: Vec<&str> = ["profiles", profile].iter().chain(path).copied().collect();
                let problem =
                    Problem::new(format!("there is no server {name:?}")).help(suggest(name, &known, "server"));
                walk.note(&path, span.clone(), Severity::Fatal, problem);
            }
        };
        for (_, node) in fields.entries("servers") {
            if let Value::Text(name) = &node.value {
                judge(&["servers"], name, &node.span);
            }
        }
        for kind in ["tools", "prompts", "resources"] {
            for (name, node) in fields.entries(kind) {
                let name = name.as_deref().unwrap_or_default();
                judge(&[kind, name], name, &node.key_span);
            }
        }
    }
}

fn choose<'p>(walk: &mut Walk<'_>, profiles: &'p [(String, Node)], name: &str) -> Option<&'p Fields> {
    let chosen = profiles.iter().find(|(key, _)| key == name);
    if chosen.is_none() && walk.faults.iter().all(|fault| fault.key != dotted(["profiles", name])) {
        let known: Vec<&str> = profiles.iter().map(|(key, _)| key.as_str()).collect();
        let problem = Problem::new(format!("there is no profile {name:?}")).help(suggest(name, &known, "profile"));
        walk.note(&["profiles", name], 0..0, Severity::Fatal, problem);
    }
    chosen.and_then(|(_, node)| node.as_table())
}

/// Parts the servers that run from those that are broken, and lays the profile over them.
fn sort_out(walk: &Walk<'_>, drafts: Vec<Draft>, profile: Option<&Fields>) -> (Vec<Server>, Vec<Broken>) {
    let (mut servers, mut broken) = (Vec::new(), Vec::new());
    let listed = profile.and_then(|profile| profile.texts("servers"));
    for draft in drafts {
        if !draft.enabled || listed.as_ref().is_some_and(|listed| !listed.contains(&draft.key)) {
            continue;
        }
        let own = walk
            .faults
            .iter()
            .filter(|fault| fault.severity == Severity::ServerOnly && fault.server.as_ref() == Some(&draft.key));
        if let Some(fault) = own.min_by_key(|fault| fault.span.start) {
            broken.push(Broken { key: draft.key, prefix: draft.prefix, reason: fault.to_string() });
            continue;
        }
        let Some(mut server) = draft.server else { continue };
        for (kind, rules) in
            [("tools", &mut server.tools), ("prompts", &mut server.prompts), ("resources", &mut server.resources)]
        {
            let filters = profile.map(|profile| profile.entries(kind)).unwrap_or_default();
            let filter = filters.into_iter().find(|(name, _)| name.as_deref() == Some(draft.key.as_str()));
            if let Some(fields) = filter.and_then(|(_, node)| node.as_table()) {
                let (allow, deny) = domain::allow_deny(fields);
                rules.profile_allow = allow.filter(|allow| !allow.is_empty());
                rules.profile_deny = deny;
            }
        }
        servers.push(server);
    }
    (servers, broken)
}
