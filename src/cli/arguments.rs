//! The arguments of a tool or prompt as a person reads them, and a call that can be typed.

use std::collections::BTreeMap;
use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// How a tool or prompt is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What it takes, what it must have first.
    pub arguments: Vec<Argument>,
    /// A command line that calls it.
    pub example: String,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// What values it takes.
    pub kind: String,
    /// Whether it must be there.
    pub required: bool,
    /// What it is for.
    pub about: String,
}

/// What is read of an entry; all else is skipped unread, for it may hold numbers that fit no type of ours.
#[derive(serde::Deserialize)]
struct Entry {
    name: Option<String>,
    #[serde(rename = "inputSchema")]
    schema: Option<Box<RawValue>>,
    arguments: Option<Vec<PromptArgument>>,
}

#[derive(serde::Deserialize)]
struct PromptArgument {
    name: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    description: String,
}

/// Levels of a schema that are looked into.
const DEEP: usize = 4;
/// Values of a choice that are shown.
const CHOICES: usize = 12;

/// Prints what [`Usage::to_json`] gave.
///
/// # Errors
/// The output is closed.
pub fn print(arguments: &Value, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(arguments) = arguments.as_array() else { return Ok(()) };
    if arguments.is_empty() {
        return writeln!(out, "  arguments none");
    }
    writeln!(out, "  arguments")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    for argument in arguments {
        let text = |key: &str| argument[key].as_str().unwrap_or_default().to_owned();
        let kind = if argument["required"] == true { format!("{}, required", text("type")) } else { text("type") };
        table.add_row([text("name"), kind, text("about")]);
    }
    table.to_string().lines().try_for_each(|line| writeln!(out, "   {}", line.trim_end()))
}

// === impl Usage ===

impl Usage {
    /// Of a tool or prompt of the merged lists.
    pub fn find(catalog: &str, kind: &Value, exposed: &Value) -> Option<Self> {
        let list = if kind == "tool" { "tools" } else { "prompts" };
        if kind != "tool" && kind != "prompt" {
            return None;
        }
        let lists: BTreeMap<String, Vec<Entry>> = serde_json::from_str(catalog).ok()?;
        let name = exposed.as_str()?;
        let entry = lists.get(list)?.iter().find(|entry| entry.name.as_deref() == Some(name))?;
        if kind == "prompt" {
            return Some(Self::of_prompt(name, entry.arguments.as_deref().unwrap_or_default()));
        }
        Some(Self::of_tool(name, &serde_json::from_str(entry.schema.as_ref()?.get()).ok()?))
    }

    fn of_prompt(name: &str, arguments: &[PromptArgument]) -> Self {
        let argument = |argument: &PromptArgument| Argument {
            name: argument.name.clone(),
            kind: "string".to_owned(),
            required: argument.required,
            about: first_line(&argument.description),
        };
        let mut arguments: Vec<Argument> = arguments.iter().map(argument).collect();
        arguments.sort_by_key(|argument| !argument.required);
        let needed = arguments.iter().filter(|argument| argument.required);
        let words: Vec<String> = needed.map(|argument| quoted(&format!("{}=TEXT", argument.name))).collect();
        Self { example: line("prompt", name, &words), arguments }
    }

    fn of_tool(name: &str, schema: &Value) -> Self {
        let members = members(schema, schema);
        let argument = |(name, of, required): &(String, Value, bool)| Argument {
            name: name.clone(),
            kind: kind(schema, of, DEEP),
            required: *required,
            about: first_line(of["description"].as_str().or(of["title"].as_str()).unwrap_or_default()),
        };
        let mut arguments: Vec<Argument> = members.iter().map(argument).collect();
        arguments.sort_by_key(|argument| !argument.required);
        let needed: Vec<(&String, Value)> = members
            .iter()
            .filter(|(.., required)| *required)
            .map(|(name, of, _)| (name, sample(schema, of, DEEP)))
            .collect();
        // A name with an equals sign in it can be given inside an object alone.
        let words = if needed.iter().any(|(name, _)| name.contains('=')) {
            let object: Map<String, Value> = needed.into_iter().map(|(name, value)| (name.clone(), value)).collect();
            vec![quoted(&Value::from(object).to_string())]
        } else {
            needed.into_iter().map(|(name, value)| quoted(&format!("{name}={}", word(&value)))).collect()
        };
        Self { example: line("call", name, &words), arguments }
    }

    /// `[{name, type, required, about}]`.
    pub fn to_json(&self) -> Value {
        let argument = |argument: &Argument| {
            json!({
                "name": argument.name, "type": argument.kind, "required": argument.required, "about": argument.about,
            })
        };
        self.arguments.iter().map(argument).collect()
    }
}

fn line(command: &str, name: &str, words: &[String]) -> String {
    let start = format!("mcp-proxy {command} {}", quoted(name));
    [start].into_iter().chain(words.iter().cloned()).collect::<Vec<_>>().join(" ")
}

/// The properties of an object: name, schema, whether it must be there.
fn members(root: &Value, schema: &Value) -> Vec<(String, Value, bool)> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let member = |(name, of): (&String, &Value)| {
        (name.clone(), resolved(root, of), required.iter().any(|required| required == name.as_str()))
    };
    properties.map(member).collect()
}

/// What a reference inside the document stands for; its own words come first.
fn resolved(root: &Value, schema: &Value) -> Value {
    let target = schema["$ref"].as_str().and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    match (target.and_then(Value::as_object), schema.as_object()) {
        (Some(target), Some(own)) => {
            let mut whole = target.clone();
            whole.extend(own.iter().filter(|(key, _)| *key != "$ref").map(|(key, value)| (key.clone(), value.clone())));
            whole.into()
        }
        _ => schema.clone(),
    }
}

/// What values a schema takes, in a few words.
fn kind(root: &Value, schema: &Value, deep: usize) -> String {
    let schema = &resolved(root, schema);
    let mut told = values(root, schema, deep);
    match &schema["default"] {
        Value::Null => {}
        default => told.push_str(&format!(", default {default}")),
    }
    told
}

fn values(root: &Value, schema: &Value, deep: usize) -> String {
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(choices) = schema["enum"].as_array() {
        let mut shown: Vec<String> = choices.iter().take(CHOICES).map(Value::to_string).collect();
        if choices.len() > CHOICES {
            shown.push("…".to_owned());
        }
        return shown.join(" | ");
    }
    let several = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(several) = several.filter(|_| deep > 0) {
        let mut shown: Vec<String> = several.iter().map(|one| values(root, &resolved(root, one), deep - 1)).collect();
        shown.dedup();
        return shown.join(" | ");
    }
    let of_type = |name: &str| match name {
        "array" if deep > 0 && schema["items"].is_object() => {
            let items = values(root, &resolved(root, &schema["items"]), deep - 1);
            if items.contains(" | ") { format!("array of ({items})") } else { format!("array of {items}") }
        }
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => of_type(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).map(of_type).collect::<Vec<_>>().join(" | "),
        _ if schema["properties"].is_object() => "object".to_owned(),
        _ => "any".to_owned(),
    }
}

/// A value that a schema takes.
fn sample(root: &Value, schema: &Value, deep: usize) -> Value {
    let schema = &resolved(root, schema);
    let given = [schema.get("const"), schema.get("default"), schema["examples"].get(0), schema["enum"].get(0)];
    if let Some(given) = given.into_iter().flatten().find(|given| !given.is_null()) {
        return given.clone();
    }
    let several = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(first) = several.and_then(|several| several.first()).filter(|_| deep > 0) {
        return sample(root, first, deep - 1);
    }
    let name = match &schema["type"] {
        Value::Array(names) => names.first().and_then(Value::as_str),
        name => name.as_str(),
    };
    match name {
        Some("integer" | "number") => {
            schema.get("minimum").filter(|least| least.is_number()).cloned().unwrap_or(json!(1))
        }
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") if deep > 0 && schema["items"].is_object() => json!([sample(root, &schema["items"], deep - 1)]),
        Some("array") => json!([]),
        Some("object") if deep > 0 => {
            let members = members(root, schema).into_iter().filter(|(.., required)| *required);
            members.map(|(name, of, _)| (name, sample(root, &of, deep - 1))).collect::<Map<_, _>>().into()
        }
        Some("object") => json!({}),
        _ => json!("TEXT"),
    }
}

/// How a value is written after `key=`: a text that would be read as JSON is written as JSON.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) if serde_json::from_str::<&RawValue>(text).is_err() => text.clone(),
        other => other.to_string(),
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-=+.:/,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(schema: &Value) -> (Vec<String>, String) {
        let tool = json!({ "tools": [{ "name": "a__t", "inputSchema": schema, "x": 1 }] }).to_string();
        let tool = tool.replace("\"x\":1", "\"x\":1e400");
        let usage = Usage::find(&tool, &json!("tool"), &json!("a__t")).expect("it is there");
        let line = |argument: &Argument| {
            let must = if argument.required { "!" } else { "" };
            format!("{}{must}: {} ({})", argument.name, argument.kind, argument.about)
        };
        (usage.arguments.iter().map(line).collect(), usage.example)
    }

    #[test]
    fn arguments_are_told_in_words_with_a_call() {
        let check = |schema: Value, lines: &[&str], example: &str| {
            let (told, call) = usage(&schema);
            assert_eq!((told, call.as_str()), (lines.iter().map(ToString::to_string).collect(), example), "{schema:#}");
        };
        check(json!({ "type": "object" }), &[], "mcp-proxy call a__t");
        check(
            json!({ "properties": {
                "limit": { "type": "integer", "default": 10 },
                "query": { "type": "string", "description": "What to find\nand where" },
                "sort": { "enum": ["up", "it's down"] },
            }, "required": ["query", "sort"] }),
            &["query!: string (What to find)", r#"sort!: "up" | "it's down" ()"#, "limit: integer, default 10 ()"],
            "mcp-proxy call a__t query=TEXT sort=up",
        );
        check(
            json!({ "properties": {
                "tags": { "type": "array", "items": { "type": ["string", "null"] } },
                "at": { "$ref": "#/$defs/Place", "description": "Where" },
                "code": { "type": "string", "examples": ["007", "7"] },
                "n": { "anyOf": [{ "type": "integer", "minimum": 3 }, { "type": "null" }] },
                "it's": {},
            }, "required": ["tags", "at", "code", "n", "it's"],
               "$defs": { "Place": { "type": "object", "properties": { "x": { "type": "number" }, "y": {} }, "required": ["x"] } } }),
            &[
                "tags!: array of (string | null) ()",
                "at!: object (Where)",
                "code!: string ()",
                "n!: integer | null ()",
                "it's!: any ()",
            ],
            r#"mcp-proxy call a__t 'tags=["TEXT"]' 'at={"x":1}' code=007 n=3 'it'\''s=TEXT'"#,
        );
        check(
            json!({ "properties": { "a=b": { "type": "string" }, "c": { "const": "7" } }, "required": ["a=b", "c"] }),
            &["a=b!: string ()", r#"c!: "7" ()"#],
            r#"mcp-proxy call a__t '{"a=b":"TEXT","c":"7"}'"#,
        );
        check(
            json!({ "properties": { "c": { "const": "7" } }, "required": ["c"] }),
            &[r#"c!: "7" ()"#],
            r#"mcp-proxy call a__t 'c="7"'"#,
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({ "properties": { "tree": { "$ref": "#/$defs/Tree" } }, "required": ["tree"],
            "$defs": { "Tree": { "type": "array", "items": { "$ref": "#/$defs/Tree" } } } });
        let (told, call) = usage(&schema);
        assert_eq!(told, ["tree!: array of array of array of array of array ()"]);
        assert_eq!(call, "mcp-proxy call a__t 'tree=[[[[[]]]]]'");
    }

    #[test]
    fn prompts_have_texts() {
        let catalog = r#"{"prompts":[{"name":"a__p","arguments":[{"name":"tone"},{"name":"who","required":true,"description":"Whom"}]}]}"#;
        let usage = Usage::find(catalog, &json!("prompt"), &json!("a__p")).expect("it is there");
        assert_eq!(usage.example, "mcp-proxy prompt a__p who=TEXT");
        assert_eq!(usage.arguments.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["who", "tone"]);
        assert_eq!(Usage::find(catalog, &json!("resource"), &json!("a__p")), None);
    }
}
