//! The schema says what the parser says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use super::sample::SAMPLE;
use crate::config::rules::Rule;
use crate::config::*;

/// Judges a value by the part of JSON Schema that ours uses; patterns have a test of their own.
fn validate(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let good = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "pattern" | "propertyNames" => true,
            "type" => match rule.as_str().expect("one type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64(),
                other => panic!("unknown type {other}"),
            },
            "enum" => rule.as_array().expect("words").contains(value),
            "minimum" => value.as_i64() >= rule.as_i64(),
            "maximum" => value.as_i64() <= rule.as_i64(),
            "required" => {
                rule.as_array().expect("names").iter().all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            "oneOf" => {
                rule.as_array().expect("schemas").iter().filter(|rule| validate(rule, value, path).is_ok()).count() == 1
            }
            "anyOf" => rule.as_array().expect("schemas").iter().any(|rule| validate(rule, value, path).is_ok()),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    validate(rule, item, path)?;
                }
                true
            }
            "properties" | "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let known = schema.get("properties").and_then(|known| known.get(name));
                    match (keyword.as_str(), known, rule) {
                        ("properties", Some(known), _) => validate(known, value, &format!("{path}.{name}"))?,
                        ("additionalProperties", None, Value::Bool(false)) => {
                            return Err(format!("{path}.{name} is unknown"));
                        }
                        ("additionalProperties", None, rule) => validate(rule, value, &format!("{path}.{name}"))?,
                        _ => {}
                    }
                }
                true
            }
            other => panic!("the test does not know the keyword {other}"),
        };
        if !good {
            return Err(format!("{path}: {keyword} {rule}, found {value}"));
        }
    }
    Ok(())
}

fn as_json(text: &str) -> Value {
    let table: toml::Table = text.parse().expect("TOML");
    serde_json::to_value(table).expect("has a counterpart in JSON")
}

/// Panics if the schema refuses a text.
pub(super) fn validate_text(text: &str) {
    validate(&schema(), &as_json(text), "").expect("the schema accepts it");
}

#[test]
fn validates_the_sample() {
    validate_text(SAMPLE);
}

#[test]
fn refuses_what_the_parser_refuses() {
    for text in [
        "[proxy]\nnmae = 'x'",
        "[servers.a]\nargs = []",
        "[servers.a]\ncommand = 'x'\nurl = 'https://x'",
        "[servers.a]\ncommand = 'x'\nmax_pending = 0",
        "[servers.a]\ncommand = 'x'\nstart = 'lasy'",
        "[servers.a]\ncommand = 'x'\nenv = { A = 1 }",
        "[servers.a]\ncommand = 'x'\ninherit_env = 'all'",
        "[defaults]\ncommand = 'x'",
        "[profiles.p]\nenv = {}",
    ] {
        assert!(validate(&schema(), &as_json(text), "").is_err(), "schema: {text}");
        assert!(!parse(Path::new("f.toml"), text, None).sound(), "parser: {text}");
    }
}

/// The paths of all keys in a schema; `*` stands for any name.
fn paths(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        assert!(inner["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path} has a description");
        found.insert(path.clone());
        paths(inner, &path, found);
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
        paths(inner, &format!("{at}.*"), found);
    }
}

/// A value for each key, other than its default.
const OTHER_VALUES: &[(&str, &str)] = &[
    ("name", "'n'"),
    ("title", "'t'"),
    ("instructions", "'i'"),
    ("separator", "'--'"),
    ("max_name_length", "60"),
    ("page_size", "7"),
    ("initialize_wait", "'3s'"),
    ("list_wait", "'3s'"),
    ("max_message", "'1MiB'"),
    ("allow_repeat_after_unknown", "'always'"),
    ("ledger_arguments", "'digest'"),
    ("own_resources", "false"),
    ("watch", "false"),
    ("level", "'debug'"),
    ("format", "'json'"),
    ("file", "'/x'"),
    ("command", "'y'"),
    ("args", "['z']"),
    ("env", "{ A = 'b' }"),
    ("inherit_env", "true"),
    ("cwd", "'/'"),
    ("url", "'https://other'"),
    ("headers", "{ A = 'b' }"),
    ("prefix", "'p'"),
    ("enabled", "false"),
    ("start", "'lazy'"),
    ("protocol", "'modern'"),
    ("start_timeout", "'3s'"),
    ("list_timeout", "'3s'"),
    ("call_idle_timeout", "'3s'"),
    ("call_max_time", "'3s'"),
    ("stop_grace", "'3s'"),
    ("idle_stop", "'3s'"),
    ("ping_interval", "'3s'"),
    ("max_pending", "3"),
    ("drain_timeout", "'3s'"),
    ("log_level", "'warn'"),
    ("policy", "'never'"),
    ("min", "'3s'"),
    ("max", "'3s'"),
    ("attempts", "3"),
    ("stable", "'3s'"),
    ("allow", "['x*']"),
    ("deny", "['x*']"),
    ("rename", "{ a = 'b' }"),
    ("describe", "{ a = 'b' }"),
    ("servers", "[]"),
];

#[test]
fn every_key_of_the_schema_acts() {
    let mut found = BTreeSet::new();
    paths(&schema(), "", &mut found);
    let mut tried = BTreeSet::new();
    for path in &found {
        let parts: Vec<&str> = path.split('.').map(|part| if part == "*" { "s" } else { part }).collect();
        let (key, table) = parts.split_last().expect("a path has a part");
        if found.iter().any(|other| other.starts_with(&format!("{path}."))) {
            continue;
        }
        let (_, value) =
            OTHER_VALUES.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("a value for {path}"));
        let remote = matches!(*key, "url" | "headers");
        let transport = if remote { "url = 'https://x'" } else { "command = 'x'" };
        let base = format!("servers.s.{transport}\n");
        let line = format!("{}.{key} = {value}\n", table.join("."));
        let text = if table == ["servers", "s"] && (*key == "command" || *key == "url") {
            line
        } else {
            format!("{base}{line}")
        };
        let profile = if table[0] == "profiles" { Some("s") } else { None };
        let plain = parse(Path::new("f.toml"), &base, None).config;
        let parsed = parse(Path::new("f.toml"), &text, profile);
        assert!(parsed.sound(), "{text}: {:?}", parsed.faults);
        assert_ne!(parsed.config, plain, "{path} changes nothing: {text}");
        tried.insert((*key).to_owned());
    }
    let listed: BTreeSet<String> = OTHER_VALUES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, tried, "no value is left over");
}

#[test]
fn defaults_of_the_schema_are_those_of_the_parser() {
    let mut lines = String::from("servers.s.command = 'x'\n");
    let schema = schema();
    let server = &schema["properties"]["servers"]["additionalProperties"];
    for (at, table) in [
        ("proxy", &schema["properties"]["proxy"]),
        ("log", &schema["properties"]["log"]),
        ("servers.s", server),
        ("servers.s.restart", &server["properties"]["restart"]),
        ("servers.s.tools", &server["properties"]["tools"]),
    ] {
        for (name, key) in table["properties"].as_object().expect("keys") {
            if let Some(default) = key.get("default").filter(|_| name != "headers") {
                let default: toml::Value = serde_json::from_value(default.clone()).expect("has a counterpart in TOML");
                writeln!(lines, "{at}.{name} = {default}").expect("a string takes any text");
            }
        }
    }
    let spelled = parse(Path::new("f.toml"), &lines, None);
    assert!(spelled.faults.is_empty(), "{lines}{:?}", spelled.faults);
    assert_eq!(spelled.config, parse(Path::new("f.toml"), "servers.s.command = 'x'\n", None).config);
}

#[test]
fn every_pattern_is_within_its_rule() {
    for rule in
        [Rule::Line, Rule::NonEmpty, Rule::Separator, Rule::ServerKey, Rule::Prefix, Rule::EnvName, Rule::HeaderName]
    {
        let pattern = rule.pattern().expect("has a pattern").trim_start_matches('^').trim_end_matches('$');
        let strategy = proptest::string::string_regex(pattern).expect("a pattern");
        let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
        runner
            .run(&strategy, |text| {
                prop_assume!(!text.contains('\0'));
                prop_assert!(rule.check(&text).is_ok(), "{rule:?} refuses {text:?}");
                Ok(())
            })
            .unwrap();
    }
}
