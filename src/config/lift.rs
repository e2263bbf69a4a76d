//! Checked values → the domain's types, with the rules that concern several keys or servers.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::fault::{Problem, Severity, dotted};
use super::keys::{Kind, Only, ROOT, SERVER, Table};
use super::parse::{Broken, suggest};
use super::types::{
    Config, Http, InheritEnv, LedgerArguments, Log, LogFormat, Protocol, Proxy, Repeat, RestartPolicy, RestartWhen,
    Rules, Server, Start, Stdio, Text, Transport,
};
use super::walk::{Fields, Node, Value, Walk, builtin};

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
    let proxy = proxy(&take_table(&mut root, "proxy"));
    let log = log(&take_table(&mut root, "log"));
    let defaults = take_table(&mut root, "defaults");
    let profiles = take_map(&mut root, "profiles");
    let servers = take_map(&mut root, "servers");
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

fn proxy(fields: &Fields) -> Proxy {
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

fn log(fields: &Fields) -> Log {
    let file = fields.text("file");
    Log {
        level: fields.text("level"),
        format: if fields.text("format") == "json" { LogFormat::Json } else { LogFormat::Text },
        file: (!file.is_empty()).then(|| PathBuf::from(file)),
    }
}

fn draft(walk: &mut Walk<'_>, proxy: &Proxy, defaults: &Fields, key: String, node: Node) -> Draft {
    let Node { value: Value::Table(own), key_span, .. } = node else { unreachable!("the kind of a server is a table") };
    server_warnings(walk, &key, &own);
    let transport_is = |only| if only == Only::Url { own.get("url").is_some() } else { own.get("command").is_some() };
    let (command, url) = (transport_is(Only::Command), transport_is(Only::Url));
    let faulty = |name: &str| walk.faults.iter().any(|fault| fault.key == dotted(["servers", key.as_str(), name]));
    if command && url {
        let span = own.get("url").map_or(key_span.clone(), |node| node.key_span.clone());
        let problem = Problem::new("the server has both \"command\" and \"url\"")
            .help("keep \"command\" for a program, or \"url\" for a remote server");
        walk.note(&["servers", &key, "url"], span, Severity::ServerOnly, problem);
    } else if !command && !url && !faulty("command") && !faulty("url") {
        let misspelt = walk.faults.iter().any(|fault| {
            fault.server.as_ref() == Some(&key)
                && fault.help.as_deref().is_some_and(|help| help.contains("command") || help.contains("url"))
        });
        if !misspelt {
            let problem = Problem::new(format!("{MISSING} \"command\" nor \"url\""))
                .help("write command = \"PROGRAM\" for a program, or url = \"https://...\" for a remote server");
            walk.note(&["servers", &key], key_span.clone(), Severity::ServerOnly, problem);
        }
    }
    let prefix_span = own.get("prefix").map(|node| node.span.clone());
    let fields = own.over(defaults.clone()).over(builtin(&Table { noun: "", keys: SERVER, defaults: false }));
    let prefix = fields.set_text("prefix").unwrap_or_else(|| key.clone());
    separator_inside(walk, proxy, &key, &key_span, &prefix, prefix_span.as_ref());
    restart_bounds(walk, &key, &fields);
    let server = server(&key, &prefix, &fields);
    Draft { at: key_span.start, prefix, prefix_span, enabled: fields.bool("enabled"), server: Some(server), key }
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

fn server(key: &str, prefix: &str, fields: &Fields) -> Server {
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
fn allow_deny(fields: &Fields) -> (Option<Vec<String>>, Vec<String>) {
    let mut deny = fields.texts("deny").unwrap_or_default();
    let allow = fields.texts("allow").map(|allow| {
        if allow.is_empty() && !deny.iter().any(|glob| glob == "*") {
            deny.push("*".to_owned());
        }
        if allow.iter().any(|glob| glob == "*") { Vec::new() } else { allow }
    });
    (allow, deny)
}

/// What is lawful and probably not meant.
fn server_warnings(walk: &mut Walk<'_>, server: &str, own: &Fields) {
    let mut warn = |path: &[&str], span: &Range<usize>, message: String, help: String| {
        let path: Vec<&str> = ["servers", server].into_iter().chain(path.iter().copied()).collect();
        walk.note(&path, span.clone(), Severity::Warning, Problem::new(message).help(help));
    };
    let remote = own.get("url").is_some();
    if let Some(url) = own.get("url") {
        warn(
            &["url"],
            &url.key_span,
            "remote servers are not supported yet".to_owned(),
            "its calls are answered with -31011; set enabled = false to hide it".to_owned(),
        );
    }
    if remote != own.get("command").is_some() {
        for key in SERVER.iter().filter(|key| key.only == Some(if remote { Only::Command } else { Only::Url })) {
            if let Some(node) = own.get(key.name) {
                let (has, wants) = if remote { ("url", "command") } else { ("command", "url") };
                warn(
                    &[key.name],
                    &node.key_span,
                    format!("{:?} has no effect on a server with {has:?}", key.name),
                    format!("remove it; it is for servers with {wants:?}"),
                );
            }
        }
    }
    if let Some(Node { value: Value::Text(command), span, .. }) = own.get("command") {
        let program = command.split_whitespace().next().unwrap_or_default();
        if own.get("args").is_none() && command.contains(char::is_whitespace) && !program.contains(['/', '\\', '$']) {
            warn(
                &["command"],
                span,
                "the command looks like a program with its arguments, and no shell splits it".to_owned(),
                format!("write command = {program:?} and the rest as args = [...]"),
            );
        }
    }
    if let (Some(node), None | Some("eager")) = (own.get("idle_stop"), own.set_text("start").as_deref()) {
        if node.value != Value::Duration(Duration::ZERO) {
            warn(
                &["idle_stop"],
                &node.key_span,
                "\"idle_stop\" has no effect on a server that starts with the proxy".to_owned(),
                "add start = \"lazy\"".to_owned(),
            );
        }
    }
    for name in ["args", "env", "headers"] {
        for (part, node) in own.entries(name) {
            let Value::Text(text) = &node.value else { continue };
            let variable = text.strip_prefix('$').unwrap_or_default();
            let path: Vec<&str> = std::iter::once(name).chain(part.as_deref()).collect();
            if !variable.is_empty() && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                warn(
                    &path,
                    &node.span,
                    "a \"$\" without braces is no reference: the server gets the text as it is".to_owned(),
                    "write ${env:NAME} for the variable NAME".to_owned(),
                );
            } else if text.starts_with("~/") {
                warn(
                    &path,
                    &node.span,
                    "\"~\" is not expanded here: the server gets the text as it is".to_owned(),
                    "write ${env:HOME}/ in its place".to_owned(),
                );
            }
        }
    }
    let mut new_names: Vec<&str> = Vec::new();
    let tools = own.get("tools").and_then(Node::as_table);
    for (old, node) in tools.map(|tools| tools.entries("rename")).unwrap_or_default() {
        let (Some(old), Value::Text(new)) = (old, &node.value) else { continue };
        if new_names.contains(&new.as_str()) {
            warn(
                &["tools", "rename", &old],
                &node.span,
                format!("two tools are renamed to {new:?}"),
                "give each a name of its own; until then both names carry a hash".to_owned(),
            );
        }
        new_names.push(new);
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
                "the prefix {prefix:?} is in URIs the same as {other_prefix:?} of the server {:?} ({scheme:?})",
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
        let mut judge = |key: &str, name: &str, span: &Range<usize>| {
            if !known.contains(&name) {
                let problem =
                    Problem::new(format!("there is no server {name:?}")).help(suggest(name, &known, "server"));
                walk.note(&["profiles", profile, key], span.clone(), Severity::Fatal, problem);
            }
        };
        for (_, node) in fields.entries("servers") {
            if let Value::Text(name) = &node.value {
                judge("servers", name, &node.span);
            }
        }
        for kind in ["tools", "prompts", "resources"] {
            for (name, node) in fields.entries(kind) {
                judge(kind, name.as_deref().unwrap_or_default(), &node.key_span);
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
                let (allow, deny) = allow_deny(fields);
                rules.profile_allow = allow.filter(|allow| !allow.is_empty());
                rules.profile_deny = deny;
            }
        }
        servers.push(server);
    }
    (servers, broken)
}

fn take_table(root: &mut Fields, name: &str) -> Fields {
    match root.take(name) {
        Some(Node { value: Value::Table(fields), .. }) => fields,
        _ => Fields::default(),
    }
}

fn take_map(root: &mut Fields, name: &str) -> Vec<(String, Node)> {
    match root.take(name) {
        Some(Node { value: Value::Map(entries), .. }) => entries,
        _ => Vec::new(),
    }
}

// === impl Node ===

impl Node {
    fn as_table(&self) -> Option<&Fields> {
        match &self.value {
            Value::Table(fields) => Some(fields),
            _ => None,
        }
    }
}

// === impl Fields ===

/// The getters of values that are set or have a default: the table of keys says which, and a test sets every key.
impl Fields {
    fn take(&mut self, name: &str) -> Option<Node> {
        let at = self.0.iter().position(|(key, _)| *key == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn expect(&self, name: &str) -> &Node {
        self.get(name).unwrap_or_else(|| panic!("the key {name:?} has a default in the table of keys"))
    }

    fn bool(&self, name: &str) -> bool {
        self.expect(name).value == Value::Bool(true)
    }

    fn text(&self, name: &str) -> String {
        self.expect(name);
        self.set_text(name).unwrap_or_default()
    }

    fn set_text(&self, name: &str) -> Option<String> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn integer<N: TryFrom<i64> + Default>(&self, name: &str) -> N {
        match self.expect(name).value {
            Value::Integer(number) => N::try_from(number).unwrap_or_default(),
            _ => N::default(),
        }
    }

    fn size(&self, name: &str) -> usize {
        match self.expect(name).value {
            Value::Size(size) => usize::try_from(size).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    fn duration(&self, name: &str) -> Duration {
        self.expect(name);
        self.set_duration(name).unwrap_or_default()
    }

    fn set_duration(&self, name: &str) -> Option<Duration> {
        match self.get(name)?.value {
            Value::Duration(duration) => Some(duration),
            _ => None,
        }
    }

    fn texts(&self, name: &str) -> Option<Vec<String>> {
        let Value::List(nodes) = &self.get(name)?.value else { return None };
        let text = |node: &Node| match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        Some(nodes.iter().filter_map(text).collect())
    }

    fn table(&self, name: &str) -> &Fields {
        self.expect(name).as_table().expect("the kind of this key is a table")
    }

    fn map_of_text(&self, name: &str) -> Vec<(String, Text)> {
        self.map_if_set(name).into_iter().map(|(name, text)| (name, Text(text))).collect()
    }

    fn map_if_set(&self, name: &str) -> Vec<(String, String)> {
        let text = |(name, node): (Option<String>, &Node)| match &node.value {
            Value::Text(text) => Some((name?, text.clone())),
            _ => None,
        };
        self.entries(name).into_iter().filter_map(text).collect()
    }

    /// The entries of a list or a map, those of a map with their names.
    fn entries(&self, name: &str) -> Vec<(Option<String>, &Node)> {
        match self.get(name).map(|node| &node.value) {
            Some(Value::List(nodes)) => nodes.iter().map(|node| (None, node)).collect(),
            Some(Value::Map(nodes)) => nodes.iter().map(|(name, node)| (Some(name.clone()), node)).collect(),
            _ => Vec::new(),
        }
    }
}
