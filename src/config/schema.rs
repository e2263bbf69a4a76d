//! The JSON Schema of the file, for editors, made from the table of keys.

use serde_json::{Map, Value, json};

use super::keys::{Key, Kind, ROOT, SERVER, Table};
use super::rules::Rule;
use super::units::{DURATION_PATTERN, SIZE_PATTERN};

/// The JSON Schema (draft 7, which editors' TOML support knows) of the configuration file.
pub fn schema() -> Value {
    let mut schema = table(&ROOT);
    schema.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    schema.insert("title".to_owned(), json!("mcp-proxy.toml"));
    schema.insert(
        "description".to_owned(),
        json!("The configuration of mcp-proxy. Every key is optional except a server's command or url."),
    );
    Value::Object(schema)
}

fn table(table: &Table) -> Map<String, Value> {
    let properties: Map<String, Value> = table.keys().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut schema = object(json!({ "type": "object", "properties": properties, "additionalProperties": false }));
    if std::ptr::eq(table.keys, SERVER) && !table.defaults {
        schema.insert("oneOf".to_owned(), json!([{ "required": ["command"] }, { "required": ["url"] }]));
    }
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = kind(&key.kind);
    let mut description = key.doc.to_owned();
    if let Kind::Choice(words) = &key.kind {
        let words: Vec<_> = words.iter().map(|(word, meaning)| format!("{word:?}: {meaning}")).collect();
        description = format!("{description} {}.", words.join("; "));
    }
    schema.insert("description".to_owned(), json!(description));
    if let Some(default) = key.default {
        schema.insert("default".to_owned(), default_value(default));
    }
    Value::Object(schema)
}

fn kind(kind: &Kind) -> Map<String, Value> {
    match kind {
        Kind::Bool => object(json!({ "type": "boolean" })),
        Kind::Integer { min, max } => object(json!({ "type": "integer", "minimum": min, "maximum": max })),
        Kind::Duration { .. } => object(json!({ "type": "string", "pattern": DURATION_PATTERN })),
        Kind::Size { .. } => object(json!({ "type": "string", "pattern": SIZE_PATTERN })),
        Kind::Text(rule) => text(*rule),
        Kind::Choice(words) => {
            object(json!({ "type": "string", "enum": words.iter().map(|(word, _)| *word).collect::<Vec<_>>() }))
        }
        Kind::List(of) => object(json!({ "type": "array", "items": self::kind(of) })),
        Kind::Map { names, of, .. } => {
            let mut schema = object(json!({ "type": "object", "additionalProperties": self::kind(of) }));
            if let Some(pattern) = names.pattern() {
                schema.insert("propertyNames".to_owned(), json!({ "pattern": pattern }));
            }
            schema
        }
        Kind::Table(inner) => table(inner),
        Kind::BoolOrList(of) => {
            object(json!({ "anyOf": [{ "type": "boolean" }, { "type": "array", "items": self::kind(of) }] }))
        }
    }
}

fn text(rule: Rule) -> Map<String, Value> {
    let mut schema = object(json!({ "type": "string" }));
    if let Some(pattern) = rule.pattern() {
        schema.insert("pattern".to_owned(), json!(pattern));
    }
    schema
}

fn default_value(toml: &str) -> Value {
    let parsed: toml::Table = format!("x = {toml}").parse().expect("a default is TOML");
    serde_json::to_value(&parsed["x"]).expect("defaults have counterparts in JSON")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => unreachable!("only called with objects"),
    }
}
