//! The new text of a host's file: our entry in it, or out of it. Pure: text in, text out.

use serde_json::{Map, Value, json};

use super::read::{self, Syntax};
use super::{Form, Format, Host, bridge, edit_json, edit_toml, edit_yaml, entry};

/// Our entry in a host's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name there.
    pub name: String,
    /// The absolute path of our binary.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// A key of an entry as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: Value,
    /// Whether an entry that is there already must have it so; the others are the person's to change.
    pub(super) essential: bool,
}

/// The entry in a host's form.
pub(super) fn fields(form: Form, entry: &Entry) -> Vec<Field> {
    let (command, args) = (json!(entry.command), json!(entry.args));
    let whole = || {
        let words: Vec<&str> =
            [entry.command.as_str()].into_iter().chain(entry.args.iter().map(String::as_str)).collect();
        json!(words)
    };
    let list: Vec<(&str, Value)> = match form {
        Form::Plain => vec![("command", command), ("args", args)],
        Form::Typed => vec![("type", json!("stdio")), ("command", command), ("args", args)],
        Form::ClaudeCode => {
            vec![("type", json!("stdio")), ("command", command), ("args", args), ("env", json!({}))]
        }
        Form::Zed => vec![("source", json!("custom")), ("command", command), ("args", args), ("env", json!({}))],
        Form::Codex => vec![
            ("command", command),
            ("args", args),
            ("startup_timeout_sec", json!(30)),
            ("tool_timeout_sec", json!(600)),
        ],
        Form::Gemini => vec![("command", command), ("args", args), ("timeout", json!(600_000))],
        Form::Opencode => vec![("type", json!("local")), ("command", whole()), ("enabled", json!(true))],
        Form::Cline => {
            vec![("command", command), ("args", args), ("disabled", json!(false)), ("timeout", json!(300))]
        }
        Form::Goose => vec![
            ("enabled", json!(true)),
            ("type", json!("stdio")),
            ("name", json!(entry.name)),
            ("description", json!("MCP hub")),
            ("cmd", command),
            ("args", args),
            ("envs", json!({})),
            ("env_keys", json!([])),
            ("timeout", json!(300)),
        ],
        Form::Continue => vec![("name", json!(entry.name)), ("command", command), ("args", args)],
        Form::CopilotCli => {
            vec![("type", json!("local")), ("command", command), ("args", args), ("tools", json!(["*"]))]
        }
    };
    let essential = |key: &str| matches!(key, "command" | "cmd" | "args");
    list.into_iter().map(|(key, value)| Field { key: key.to_owned(), value, essential: essential(key) }).collect()
}

/// What a person would paste into the host's file.
pub(super) fn snippet(host: &Host, entry: &Entry) -> String {
    let fields = fields(host.form, entry);
    match (host.form, host.format) {
        (Form::Continue, _) => continue_block(entry),
        (_, Format::Toml) => edit_toml::set("", host.keys, &entry.name, &fields).unwrap_or_default(),
        (_, Format::Yaml) => edit_yaml::set("", host.keys[0], &entry.name, &fields).unwrap_or_default(),
        _ => edit_json::set("", &read::JSON, host.keys, &entry.name, &fields).unwrap_or_default(),
    }
}

/// Continue's block file, which is ours alone.
fn continue_block(entry: &Entry) -> String {
    let mut text = format!("name: {}\nversion: 0.0.1\nschema: v1\nmcpServers:\n", entry.name);
    for (at, field) in fields(Form::Continue, entry).iter().enumerate() {
        text.push_str(if at == 0 { "  - " } else { "    " });
        text.push_str(&field.key);
        text.push_str(": ");
        text.push_str(&edit_yaml::flow(&field.value));
        text.push('\n');
    }
    text
}

/// A host's file, read.
pub(super) struct Document<'t> {
    host: &'static Host,
    text: &'t str,
    pub(super) value: Value,
}

// === impl Document ===

impl<'t> Document<'t> {
    /// Reads a text as this host's file.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(host: &'static Host, text: &'t str) -> Result<Self, String> {
        let value = read::parse(text, syntax(host))?;
        if !value.is_object() {
            return Err("its top is not an object".to_owned());
        }
        Ok(Self { host, text, value })
    }

    /// The entries by name, in order.
    pub(super) fn entries(&self) -> Vec<(String, Value)> {
        let table = self.host.keys.iter().try_fold(&self.value, |value, key| value.get(*key));
        match table {
            Some(Value::Object(map)) => map.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|entry| (entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(), entry.clone()))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// How many entries a table at the top has.
    pub(super) fn entries_of(&self, key: &str) -> usize {
        let table = self.value.get(key);
        table.and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// The name of our own entry: the given one if it is ours, else the first that is.
    pub(super) fn own_entry(&self, name: &str, own: &str) -> Option<String> {
        let own: Vec<String> =
            self.entries().into_iter().filter(|(_, entry)| is_own(entry, own)).map(|(name, _)| name).collect();
        own.iter().find(|other| *other == name).or_else(|| own.first()).cloned()
    }

    /// The text with some entries out and ours in.
    ///
    /// # Errors
    ///
    /// Why it can't be edited; also if the edit would change anything else.
    pub(super) fn with(&self, removed: &[String], entry: Option<(&str, &[Field])>) -> Result<String, String> {
        if self.host.form == Form::Continue {
            return Err("it is not a block file of ours".to_owned());
        }
        let mut text = self.text.to_owned();
        let mut expected = self.value.clone();
        if !removed.is_empty() {
            text = match syntax(self.host) {
                Syntax::Json => edit_json::remove(&text, &read::JSON, self.host.keys, removed),
                Syntax::Jsonc => edit_json::remove(&text, &read::JSONC, self.host.keys, removed),
                Syntax::Toml => edit_toml::remove(&text, self.host.keys, removed),
                Syntax::Yaml => edit_yaml::remove(&text, self.host.keys[0], removed),
            }?;
            if let Some(table) = table_mut(&mut expected, self.host.keys, false) {
                table.retain(|name, _| !removed.contains(name));
            }
        }
        if let Some((name, fields)) = entry {
            text = match syntax(self.host) {
                Syntax::Json => edit_json::set(&text, &read::JSON, self.host.keys, name, fields),
                Syntax::Jsonc => edit_json::set(&text, &read::JSONC, self.host.keys, name, fields),
                Syntax::Toml => edit_toml::set(&text, self.host.keys, name, fields),
                Syntax::Yaml => edit_yaml::set(&text, self.host.keys[0], name, fields),
            }?;
            if let Some(table) = table_mut(&mut expected, self.host.keys, true) {
                let known = table.contains_key(name);
                let own = table.entry(name).or_insert_with(|| json!({}));
                for field in fields.iter().filter(|field| !known || field.essential) {
                    own[&field.key] = field.value.clone();
                }
            }
        }
        let found =
            read::parse(&text, syntax(self.host)).map_err(|error| format!("the edit would break it ({error})"))?;
        if without_empty(found, self.host) != without_empty(expected, self.host) {
            return Err("the edit would change more than our entry".to_owned());
        }
        Ok(text)
    }
}

/// An empty table of servers is as good as none.
fn without_empty(mut value: Value, host: &Host) -> Value {
    let empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
    if let (Some(map), [key]) = (value.as_object_mut(), host.keys)
        && map.get(*key).is_some_and(empty)
    {
        map.shift_remove(*key);
    }
    value
}

fn table_mut<'v>(value: &'v mut Value, keys: &[&str], create: bool) -> Option<&'v mut Map<String, Value>> {
    let mut value = value;
    for key in keys {
        let map = value.as_object_mut()?;
        if create && map.get(*key).is_none_or(Value::is_null) {
            map.insert((*key).to_owned(), json!({}));
        }
        value = map.get_mut(*key)?;
    }
    value.as_object_mut()
}

/// Whether an entry starts this program as a proxy.
fn is_own(item: &Value, own: &str) -> bool {
    let Some((command, args)) = item.as_object().and_then(entry::start) else { return false };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    bridge::is_own(&command, &args, Some(std::path::Path::new(own)))
}

fn syntax(host: &Host) -> Syntax {
    match host.format {
        Format::Json => Syntax::Json,
        Format::Jsonc | Format::Paste => Syntax::Jsonc,
        Format::Toml => Syntax::Toml,
        Format::Yaml => Syntax::Yaml,
    }
}
