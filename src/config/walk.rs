//! The walk over the parsed file: TOML values → checked values, by the table of keys.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Problem, Severity, Source, dotted, nearest};
use super::fields::{Fields, Node, Value};
use super::keys::{Key, Kind, ROOT, Table};
use super::reference;
use super::rules::Rule;
use super::units;

/// The walk's state: where it is, and what it found.
pub(crate) struct Walk<'s> {
    pub(crate) source: &'s Source<'s>,
    pub(crate) faults: Vec<Fault>,
    /// Values that must not be shown in an excerpt.
    pub(crate) hidden: Vec<Range<usize>>,
    path: Vec<String>,
}

/// A shorter literal is shown where it only may be one.
const SHORTEST_SECRET: usize = 8;

/// Words of other programs' files, each with what it is called here.
const FILE_ALIASES: &[(&str, &str)] = &[
    ("mcpservers", "write a table [servers.NAME] for each server, or let \"mcp-proxy import FILE\" do it"),
    ("mcp_servers", "write a table [servers.NAME] for each server, or let \"mcp-proxy import FILE\" do it"),
    ("mcp", "write a table [servers.NAME] for each server"),
];
const SERVER_ALIASES: &[(&str, &str)] = &[
    ("type", NO_TYPE),
    ("transport", NO_TYPE),
    ("disabled", "write enabled = false"),
    ("environment", "write env"),
    ("cmd", WRITE_COMMAND),
    ("program", WRITE_COMMAND),
    ("executable", WRITE_COMMAND),
    ("arguments", "write args"),
    ("argv", "write args"),
    ("httpurl", WRITE_URL),
    ("serverurl", WRITE_URL),
    ("endpoint", WRITE_URL),
    ("http_headers", "write headers"),
    ("working_directory", "write cwd"),
    ("workdir", "write cwd"),
    ("dir", "write cwd"),
    ("timeout", "write start_timeout, list_timeout, call_idle_timeout or call_max_time"),
    ("startup_timeout_sec", "write start_timeout, with a unit: \"30s\""),
    ("tool_timeout_sec", "write call_max_time, with a unit: \"60s\""),
    ("allowed_tools", "write tools = { allow = [...] }"),
    ("enabled_tools", "write tools = { allow = [...] }"),
    ("disabled_tools", "write tools = { deny = [...] }"),
];
const FILTER_ALIASES: &[(&str, &str)] =
    &[("include", "write allow"), ("exclude", "write deny"), ("block", "write deny")];
const PROXY_ALIASES: &[(&str, &str)] =
    &[("log_level", "write level in [log]"), ("timeout", "write initialize_wait or list_wait")];
const NO_TYPE: &str = "leave it out: a server with \"command\" speaks stdio, one with \"url\" Streamable HTTP";
const WRITE_COMMAND: &str = "write command";
const WRITE_URL: &str = "write url";

/// Whether a help says that `command` or `url` was meant.
pub(crate) fn means_transport(help: &str) -> bool {
    [WRITE_COMMAND, WRITE_URL, &did_you_mean("command"), &did_you_mean("url")].contains(&help)
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean {word:?}?")
}

fn alias(table: &Table, name: &str) -> Option<&'static str> {
    let aliases = match table.noun {
        "the file" => FILE_ALIASES,
        "a server's table" | "[defaults]" => SERVER_ALIASES,
        "tools" | "prompts" | "resources" | "a profile's filter" => FILTER_ALIASES,
        "[proxy]" => PROXY_ALIASES,
        _ => return None,
    };
    aliases.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(&name.replace('-', "_"))).map(|(_, help)| *help)
}

/// The defaults of these keys, as the table of keys has them.
pub(crate) fn builtin(table: &Table) -> Fields {
    let source = Source::new(std::path::Path::new(""), "");
    let mut walk = Walk::new(&source);
    let mut fields = Fields::default();
    for key in table.keys() {
        let value = match (&key.kind, key.default) {
            (_, Some(text)) => {
                let parsed = DeValue::parse(text).expect("a default is TOML");
                walk.value(&key.kind, &parsed)
            }
            (Kind::Table(table), None) => Some(Value::Table(builtin(table))),
            _ => None,
        };
        if let Some(value) = value {
            fields.0.push((key.name, Node { value, span: 0..0, key_span: 0..0 }));
        }
    }
    debug_assert!(walk.faults.is_empty(), "a default obeys its own rule: {:?}", walk.faults);
    fields
}

/// What a TOML value is, for messages; never the value itself, which may be a secret.
fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

// === impl Walk ===

impl<'s> Walk<'s> {
    pub(crate) fn new(source: &'s Source<'s>) -> Self {
        Self { source, faults: Vec::new(), hidden: Vec::new(), path: Vec::new() }
    }

    /// Walks the whole file.
    pub(crate) fn root(&mut self, table: &DeTable<'_>) -> Fields {
        self.table(&ROOT, table)
    }

    /// Notes a fault at the place where the walk is.
    fn fault(&mut self, span: Range<usize>, problem: Problem) {
        let key = dotted(self.path.iter().map(String::as_str));
        let server = (self.path.len() > 1 && self.path[0] == "servers").then(|| self.path[1].clone());
        let severity = if server.is_some() { Severity::ServerOnly } else { Severity::Fatal };
        let fault = self.source.fault(span, key, severity, problem);
        self.faults.push(Fault { server, ..fault });
    }

    /// Notes what only shows when several values are looked at together.
    pub(crate) fn note(&mut self, path: &[&str], span: Range<usize>, severity: Severity, problem: Problem) {
        let server = (path.len() > 1 && path[0] == "servers").then(|| path[1].to_owned());
        let fault = self.source.fault(span, dotted(path.iter().copied()), severity, problem);
        self.faults.push(Fault { server, ..fault });
    }

    fn table(&mut self, table: &Table, values: &DeTable<'_>) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in in_order(values) {
            let key_span = name.span();
            let name = name.get_ref().as_ref();
            self.path.push(name.to_owned());
            match table.keys().find(|key| key.name == name) {
                Some(key) => {
                    if let Some(node) = self.node(&key.kind, value, key_span) {
                        fields.0.push((key.name, node));
                    }
                }
                None => self.unknown(table, name, value, key_span),
            }
            self.path.pop();
        }
        fields
    }

    fn node(&mut self, kind: &Kind, value: &Spanned<DeValue<'_>>, key_span: Range<usize>) -> Option<Node> {
        let value_read = self.value(kind, value)?;
        Some(Node { value: value_read, span: value.span(), key_span })
    }

    /// Reads one value; `None`: it is faulty, and the fault is noted.
    fn value(&mut self, kind: &Kind, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let span = value.span();
        let read = match (kind, value.get_ref()) {
            (Kind::Bool | Kind::BoolOrList(_), DeValue::Boolean(value)) => Ok(Value::Bool(*value)),
            (Kind::Integer { min, max }, DeValue::Integer(number)) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok();
                match parsed.filter(|number| (*min..=*max).contains(number)) {
                    Some(number) => Ok(Value::Integer(number)),
                    None => Err(Problem::mismatch(&expected(kind), number.as_str())),
                }
            }
            (Kind::Duration { min }, DeValue::String(text)) => match units::duration(text) {
                Ok(value) if value < *min => Err(Problem::mismatch("a duration above zero", &format!("{text:?}"))
                    .help("leave the key out for its default")),
                read => read.map(Value::Duration),
            },
            (Kind::Size { min, max }, DeValue::String(text)) => match units::size(text) {
                Ok(value) if !(*min..=*max).contains(&value) => {
                    let bounds = format!("a size from {} to {}", units::spell_size(*min), units::spell_size(*max));
                    Err(Problem::mismatch(&bounds, &format!("{text:?}")))
                }
                read => read.map(Value::Size),
            },
            (Kind::Text(rule), DeValue::String(text)) => {
                if self.is_secret() && !reference::names_only(text) {
                    self.hidden.push(span.clone());
                }
                rule.check(text).map(|()| Value::Text(text.to_string()))
            }
            (Kind::Choice(words), DeValue::String(text)) => choice(words, text),
            (Kind::List(of) | Kind::BoolOrList(of), DeValue::Array(values)) => {
                // A list with a faulty entry is faulty as a whole: a rule must not be dropped in silence.
                let nodes: Vec<_> = values.iter().map(|value| self.node(of, value, 0..0)).collect();
                return nodes.into_iter().collect::<Option<Vec<_>>>().map(Value::List);
            }
            (Kind::Map { names, of, .. }, DeValue::Table(values)) => return Some(self.map(*names, of, values)),
            (Kind::Table(table), DeValue::Table(values)) => return Some(Value::Table(self.table(table, values))),
            (_, other) => {
                if self.is_secret() {
                    self.hidden.push(span.clone());
                }
                Err(self.wrong_type(kind, other))
            }
        };
        read.map_err(|problem| self.fault(span, problem)).ok()
    }

    fn map(&mut self, names: Rule, of: &Kind, values: &DeTable<'_>) -> Value {
        let mut nodes = Vec::new();
        for (name, value) in in_order(values) {
            let key_span = name.span();
            let name = name.get_ref().as_ref();
            let lawful = names.check(name);
            // A name with a value in it, "TOKEN=secret", is shown up to there.
            let secret = lawful.is_err() && self.is_secret();
            self.path.push(if secret { name.split(['=', ':']).next().unwrap_or_default() } else { name }.to_owned());
            if let Err(problem) = lawful {
                if secret {
                    self.hidden.push(key_span.clone());
                }
                self.fault(key_span.clone(), problem);
            }
            if let Some(node) = self.node(of, value, key_span) {
                nodes.push((name.to_owned(), node));
            }
            self.path.pop();
        }
        Value::Map(nodes)
    }

    /// Whether the walk is in a table whose values are nobody's business.
    fn is_secret(&self) -> bool {
        let table = match self.path.first().map(String::as_str) {
            Some("servers") => self.path.get(2),
            Some("defaults") => self.path.get(1),
            _ => None,
        };
        table.is_some_and(|name| name == "env" || name == "headers")
    }

    fn unknown(&mut self, table: &Table, name: &str, value: &Spanned<DeValue<'_>>, span: Range<usize>) {
        self.hide_all(value);
        let message = format!("unknown key {name:?} in {}", table.noun);
        let known: Vec<&str> = table.keys().map(|key| key.name).collect();
        let mut problem = Problem::new(message);
        problem.expected = Some(format!("one of {}", known.join(", ")));
        problem.help = if table.defaults && table.keys.iter().any(|key| key.own && key.name == name) {
            Some("it belongs to one server: write it in [servers.NAME]".to_owned())
        } else if let Some(help) = alias(table, name) {
            Some(help.to_owned())
        } else if let Some(near) = nearest(name, known) {
            Some(did_you_mean(near))
        } else {
            elsewhere(name, table).or_else(|| problem.expected.as_ref().map(|keys| format!("write {keys}")))
        };
        self.fault(span, problem);
    }

    /// Hides what may be secret below an unknown key: it may be a misspelt `env`.
    fn hide_all(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => table.iter().for_each(|(_, value)| self.hide_all(value)),
            DeValue::Array(values) => values.iter().for_each(|value| self.hide_all(value)),
            DeValue::String(text) if text.chars().count() < SHORTEST_SECRET => {}
            _ => self.hidden.push(value.span()),
        }
    }

    fn wrong_type(&self, kind: &Kind, value: &DeValue<'_>) -> Problem {
        let problem = Problem::mismatch(&expected(kind), found(value));
        let key = self.path.last().map_or("", String::as_str);
        let secret = self.is_secret();
        match (kind, value) {
            (Kind::Duration { .. }, DeValue::Integer(number)) if number.radix() == 10 => {
                problem.help(format!("write {key} = \"{}s\"", number.as_str().trim_start_matches(['-', '+'])))
            }
            (Kind::Size { .. }, DeValue::Integer(number)) if number.radix() == 10 => {
                problem.help(format!("write {key} = \"{}B\"", number.as_str().trim_start_matches(['-', '+'])))
            }
            (Kind::Bool, DeValue::String(text)) => {
                let yes = matches!(text.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1");
                problem.help(format!("write {key} = {yes}, without quotes"))
            }
            (Kind::Integer { .. }, DeValue::String(text))
                if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) =>
            {
                problem.help(format!("write {key} = {text}, without quotes"))
            }
            (Kind::Text(Rule::Command), DeValue::Array(_)) => {
                problem.help("write command = \"PROGRAM\" and args = [\"ARGUMENT\", ...]")
            }
            (Kind::List(_), DeValue::String(_)) if key == "args" => {
                problem.help("write each argument as a string of its own: args = [\"-y\", \"package\"]")
            }
            (Kind::BoolOrList(_), DeValue::String(_)) => {
                problem.help("write true for everything, false for the safe basics, or a list of names")
            }
            (Kind::List(_), DeValue::String(_)) => problem.help("put it into brackets: [\"...\"]"),
            (Kind::Text(_), DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))
                if secret || matches!(kind, Kind::Text(Rule::Reference)) =>
            {
                problem.help("put the value into quotes: the server gets text")
            }
            (Kind::Text(_), DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_)) => {
                problem.help("put the value into quotes")
            }
            (Kind::Map { noun: "server", .. }, DeValue::Array(_)) => {
                problem.help("write [servers.NAME], with single brackets and a name")
            }
            (Kind::Map { noun: "variable" | "header", .. }, DeValue::Array(_)) => {
                problem.help(format!("write {key} = {{ NAME = \"value\" }}"))
            }
            (Kind::Table(_), DeValue::String(_)) if self.path.len() == 2 && self.path[0] == "servers" => {
                problem.help(format!("write a table [servers.{key}] with command and args"))
            }
            (Kind::Table(Table { noun: "tools" | "prompts" | "resources" | "a profile's filter", .. }), _) => {
                problem.help(format!("write {key} = {{ allow = [\"...\"] }}"))
            }
            (Kind::Table(Table { noun: "restart", .. }), DeValue::String(_)) => {
                problem.help("write restart = { policy = \"...\" }")
            }
            (Kind::Table(_), DeValue::Array(_)) => problem.help("write the table's name in single brackets"),
            _ => problem,
        }
    }
}

/// The entries of a table in the order of the file.
fn in_order<'v, 'i>(values: &'v DeTable<'i>) -> Vec<(&'v Spanned<toml::de::DeString<'i>>, &'v Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = values.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// What a value of a kind is, for messages.
pub(crate) fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "true or false".to_owned(),
        Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Duration { .. } => units::A_DURATION.to_owned(),
        Kind::Size { .. } => units::A_SIZE.to_owned(),
        Kind::Text(rule) => rule.expected().to_owned(),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            format!("one of {}", words.join(", "))
        }
        Kind::List(_) => "an array of strings".to_owned(),
        Kind::Map { noun, .. } => format!("a table with an entry for each {noun}"),
        Kind::Table(_) => "a table".to_owned(),
        Kind::BoolOrList(_) => "true, false or an array of strings".to_owned(),
    }
}

fn choice(words: &'static [(&'static str, &'static str)], text: &str) -> Result<Value, Problem> {
    if words.iter().any(|(word, _)| *word == text) {
        return Ok(Value::Text(text.to_owned()));
    }
    let shown: String = text.chars().take(40).collect();
    let problem = Problem::mismatch(&expected(&Kind::Choice(words)), &format!("{shown:?}"));
    Err(match nearest(text, words.iter().map(|(word, _)| *word)) {
        Some(near) => problem.help(did_you_mean(near)),
        None => problem,
    })
}

/// Whether the key has its place in another table, and in which.
fn elsewhere(name: &str, here: &Table) -> Option<String> {
    let has = |table: &Table| table.keys().any(|key: &Key| key.name == name);
    for key in ROOT.keys() {
        let (inner, title) = match &key.kind {
            Kind::Table(table) if !table.defaults => (table, format!("[{}]", key.name)),
            Kind::Map { of: Kind::Table(table), .. } => (table, format!("[{}.NAME]", key.name)),
            _ => continue,
        };
        if inner.noun != here.noun && has(inner) {
            return Some(format!("it belongs into {title}"));
        }
    }
    None
}
