//! What the fake lists, as JSON texts: they go out byte for byte.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::flags::Flags;
use crate::own::{OWN, Own};

/// The entries of each list, in order.
#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) tools: Vec<String>,
    pub(crate) prompts: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) templates: Vec<String>,
}

// === impl Catalog ===

impl Catalog {
    pub(crate) fn new(flags: &Flags) -> Self {
        let mut catalog = Self::default();
        let scheme = flags.text("scheme").unwrap_or("mem");
        let label = flags.text("label").unwrap_or("fake");
        if !flags.has("only") {
            catalog.tools.extend(OWN.iter().map(own_tool));
            catalog.prompts.extend([
                format!(
                    r#"{{"name":"greet","title":"Greet {label}","description":"Greets a person.","arguments":[{{"name":"name","description":"Whom","required":true}},{{"name":"tone"}}]}}"#
                ),
                r#"{"name":"embed","description":"Embeds a resource.","_meta":{"x/y":1}}"#.to_owned(),
            ]);
            catalog.resources.extend([
                format!(
                    r#"{{"uri":"{scheme}:///hello","name":"hello","title":"Hello","mimeType":"text/plain","size":5,"annotations":{{"priority":0.50}},"_meta":{{"x/y":1}}}}"#
                ),
                format!(r#"{{"uri":"{scheme}:///blob","name":"blob","mimeType":"application/octet-stream"}}"#),
                r#"{"uri":"config://x","name":"config"}"#.to_owned(),
            ]);
            catalog.templates.push(format!(
                r#"{{"uriTemplate":"{scheme}:///item/{{id}}","name":"item","description":"An item by its id."}}"#
            ));
        }
        catalog.add_numbered(flags, scheme);
        catalog.add_odd(flags);
        if let Some(file) = flags.text("catalog") {
            catalog.add_file(file);
        }
        catalog
    }

    fn add_numbered(&mut self, flags: &Flags, scheme: &str) {
        let text = "d".repeat(flags.number("desc").map_or(12, |_| flags.size("desc")));
        for i in 0..flags.size("tools") {
            self.tools.push(format!(
                r#"{{"name":"tool_{i:03}","description":"{text}","inputSchema":{{"type":"object","properties":{{"q":{{"type":"string"}}}}}}}}"#
            ));
        }
        for i in 0..flags.size("prompts") {
            self.prompts.push(format!(r#"{{"name":"prompt_{i:03}","description":"{text}"}}"#));
        }
        for i in 0..flags.size("resources") {
            self.resources
                .push(format!(r#"{{"uri":"{scheme}:///res/{i:03}","name":"res_{i:03}","description":"{text}"}}"#));
        }
        for i in 0..flags.size("templates") {
            self.templates.push(format!(
                r#"{{"uriTemplate":"{scheme}:///tmpl/{i:03}/{{id}}","name":"tmpl_{i:03}","description":"{text}"}}"#
            ));
        }
    }

    fn add_odd(&mut self, flags: &Flags) {
        let ok = r#""inputSchema":{"type":"object"}"#;
        let long = |end: &str| format!(r#"{{"name":"{}{end}",{ok}}}"#, "n".repeat(70 - end.len()));
        let deep = format!("{}{}", r#"{"items":"#.repeat(200), "{}".to_owned() + &"}".repeat(200));
        let kinds: [(&str, Vec<String>); 13] = [
            ("noschema", vec![r#"{"name":"noschema","description":"no schema"}"#.into()]),
            ("notype", vec![r#"{"name":"notype","inputSchema":{"properties":{"a":{"type":"string"}}}}"#.into()]),
            ("badschema", vec![r#"{"name":"badschema","inputSchema":"none"}"#.into()]),
            ("nullschema", vec![r#"{"name":"nullschema","inputSchema":null}"#.into()]),
            ("nulldesc", vec![format!(r#"{{"name":"nulldesc","description":null,"title":null,{ok}}}"#)]),
            ("emptyname", vec![format!(r#"{{"name":"",{ok}}}"#), format!("{{{ok}}}"), "7".into()]),
            ("dup", vec![
                format!(r#"{{"name":"dup","description":"the first",{ok}}}"#),
                format!(r#"{{"name":"dup","description":"the second",{ok}}}"#),
            ]),
            ("unicode", vec![format!(r#"{{"name":"prüfen_日本","description":"é € 😀 \ud83d\ude00",{ok}}}"#)]),
            ("long", vec![long(""), long("_one"), long("_two"), format!(r#"{{"name":"a{}",{ok}}}"#, "n".repeat(69))]),
            ("chars", ["a.b", "a/b", "a_b", "a b", "a-b", "x__y", "A_B", "9digit", "_lead"]
                .iter().map(|name| format!(r#"{{"name":"{name}",{ok}}}"#)).collect()),
            ("fields", vec![format!(
                r#"{{"x_first":{{"a":[1,{{"b":null}}]}},"name":"fields",{ok},"outputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true,"x_hint":"?"}},"icons":[{{"src":"https://example.com/i.png","x_icon":1}}],"execution":{{"taskSupport":"forbidden"}},"_meta":{{"x/deep":{{"y":[{{"z":1}}]}}}},"x_future":true}}"#
            )]),
            ("numbers", vec![r#"{"name":"numbers","inputSchema":{"type":"object","properties":{"n":{"type":"integer","minimum":-0,"maximum":9007199254740993,"default":1e400,"multipleOf":0.1000000000000000055}}},"x_n":[1.0,18446744073709551616,1e2]}"#.into()]),
            ("deep", vec![format!(r#"{{"name":"deep","inputSchema":{{"type":"object","properties":{{"d":{deep}}},"$defs":{{"N":true}},"additionalProperties":false}}}}"#)]),
        ];
        for (kind, entries) in kinds {
            if flags.lists("odd", kind) {
                self.tools.extend(entries);
            }
        }
    }

    fn add_file(&mut self, file: &str) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lists: HashMap<String, Vec<Box<RawValue>>> = serde_json::from_str(&text).unwrap_or_default();
        for (kind, entries) in lists {
            if let Some(list) = self.list(&kind) {
                list.extend(entries.iter().map(|entry| entry.get().to_owned()));
            }
        }
    }

    /// The list of `tools`, `prompts`, `resources`, `templates` or `resourceTemplates`.
    pub(crate) fn list(&mut self, kind: &str) -> Option<&mut Vec<String>> {
        match kind {
            "tools" => Some(&mut self.tools),
            "prompts" => Some(&mut self.prompts),
            "resources" => Some(&mut self.resources),
            "templates" | "resourceTemplates" => Some(&mut self.templates),
            _ => None,
        }
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|entry| named(entry, "name", name))
    }

    pub(crate) fn has_prompt(&self, name: &str) -> bool {
        self.prompts.iter().any(|entry| named(entry, "name", name))
    }

    pub(crate) fn has_resource(&self, uri: &str) -> bool {
        self.resources.iter().any(|entry| named(entry, "uri", uri))
            || self.templates.iter().any(|entry| {
                let template = member(entry, "uriTemplate").unwrap_or_default();
                let fixed = template.split('{').next().unwrap_or_default();
                !fixed.is_empty() && uri.starts_with(fixed)
            })
    }
}

/// One page of a list, or `None` for a cursor that was never given out.
pub(crate) fn page(flags: &Flags, kind: &str, entries: &[String], cursor: Option<&str>) -> Option<String> {
    let size = match flags.size("page") {
        0 => entries.len().max(1),
        size => size,
    };
    let start = match cursor {
        None | Some("" | "same") => 0,
        Some(cursor) => cursor.strip_prefix("at-")?.parse::<usize>().ok()?,
    };
    let end = entries.len().min(start.saturating_add(size));
    let items = entries.get(start..end).unwrap_or_default().join(",");
    let next = match flags.text("cursor") {
        Some("repeat") => Some("same".to_owned()),
        Some("endless") => Some(format!("at-{}", start.saturating_add(size))),
        Some("empty") if end >= entries.len() => Some(String::new()),
        _ if end < entries.len() => Some(format!("at-{end}")),
        _ => None,
    };
    let next = next.map(|cursor| format!(r#","nextCursor":"{cursor}""#)).unwrap_or_default();
    Some(format!(r#"{{"{kind}":[{items}]{next}}}"#))
}

fn own_tool(tool: &Own) -> String {
    let Own { name, description, properties, more } = tool;
    format!(
        r#"{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object","properties":{{{properties}}}}}{more}}}"#
    )
}

fn named(entry: &str, key: &str, name: &str) -> bool {
    member(entry, key).is_some_and(|value| value == name)
}

/// A string member of a JSON object, whatever else is in it.
pub(crate) fn member(entry: &str, key: &str) -> Option<String> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(entry).ok()?;
    serde_json::from_str(members.get(key)?.get()).ok()
}
