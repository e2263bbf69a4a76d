//! Edits of YAML in its text: lines are added and taken away, and no other line is touched.

use serde_json::Value;

use super::plan::Field;
use super::yaml::{self, Content, Node};

/// Writes an entry: a new one as a block at the end of its table, of an existing one only the essential keys.
pub(super) fn set(text: &str, key: &str, name: &str, fields: &[Field]) -> Result<String, String> {
    let mut lines = Lines::of(text);
    let Some(root) = yaml::parse(text)? else {
        lines.end_last();
        lines.insert(lines.list.len(), block(Some(key), name, 2, 2, fields));
        return Ok(lines.join());
    };
    if !matches!(root.content, Content::Map(_)) || root.flow {
        return Err("its top is not a mapping in block style".to_owned());
    }
    let Some((key_node, table)) = root.get(key) else {
        let at = lines.end_of_block(lines.list.len(), 0);
        lines.end_last();
        lines.insert(at, block(Some(key), name, 2, 2, fields));
        return Ok(lines.join());
    };
    let end = lines.end_of_block(next_line(&root, key_node).unwrap_or(lines.list.len()), key_node.column + 1);
    let empty = match &table.content {
        Content::Scalar { .. } => table.to_value() == Value::Null,
        Content::Map(entries) => entries.is_empty(),
        Content::List(_) => false,
    };
    if empty {
        lines.open_block(key_node)?;
        lines.end_last();
        lines.insert(key_node.line + 1, block(None, name, key_node.column + 2, 2, fields));
        return Ok(lines.join());
    }
    let Content::Map(entries) = &table.content else { return Err(format!("`{key}` in it is not a mapping")) };
    if table.flow {
        return Err(format!("`{key}` in it is written with braces"));
    }
    if let Some((_, entry)) = table.get(name) {
        return update(lines, entry, name, fields);
    }
    let (first, value) = &entries[0];
    let step = match &value.content {
        Content::Map(inner) if !value.flow && !inner.is_empty() => {
            inner[0].0.column.saturating_sub(first.column).max(1)
        }
        _ => 2,
    };
    lines.end_last();
    lines.insert(end, block(None, name, first.column, step, fields));
    Ok(lines.join())
}

/// Removes entries; the table itself stays.
pub(super) fn remove(text: &str, key: &str, names: &[String]) -> Result<String, String> {
    let mut lines = Lines::of(text);
    let Some(root) = yaml::parse(text)? else { return Ok(text.to_owned()) };
    let Some((key_node, table)) = root.get(key) else { return Ok(text.to_owned()) };
    let Content::Map(entries) = &table.content else { return Ok(text.to_owned()) };
    if table.flow
        && entries.iter().any(|(name, _)| name.text().is_some_and(|name| names.iter().any(|other| other == name)))
    {
        return Err(format!("`{key}` in it is written with braces"));
    }
    let end = lines.end_of_block(next_line(&root, key_node).unwrap_or(lines.list.len()), key_node.column + 1);
    let mut gone = 0;
    for (at, (name, _)) in entries.iter().enumerate().rev() {
        if !name.text().is_some_and(|name| names.iter().any(|other| other == name)) {
            continue;
        }
        let last = match entries.get(at + 1) {
            // Comments right above the next entry are its own.
            Some((next, _)) => lines.end_of_block(next.line, name.column + 1),
            None => end,
        };
        lines.list.drain(name.line..last.max(name.line + 1));
        gone += 1;
    }
    if gone == entries.len() && gone > 0 {
        let line = &mut lines.list[key_node.line];
        let (text, ending) = split_ending(line);
        let colon = text.find(':').map_or(text.len(), |at| at + 1);
        *line = format!("{} {{}}{}{ending}", &text[..colon], &text[colon..]);
    }
    Ok(lines.join())
}

/// Rewrites the essential keys of an entry that is there, each of which stands on one line.
fn update(mut lines: Lines, entry: &Node, name: &str, fields: &[Field]) -> Result<String, String> {
    let Content::Map(own) = &entry.content else { return Err(format!("`{name}` in it is not a mapping")) };
    if entry.flow {
        return Err(format!("`{name}` in it is written with braces"));
    }
    for field in fields.iter().filter(|field| field.essential).rev() {
        let Some(at) = own.iter().position(|(key, _)| key.text() == Some(&field.key)) else {
            return Err(format!("`{name}` in it has no `{}`", field.key));
        };
        let (key, value) = &own[at];
        if value.to_value() == field.value {
            continue;
        }
        let next = own.get(at + 1).map_or(key.line + 1, |(next, _)| next.line);
        let last = lines.end_of_block(next, key.column + 1).max(key.line + 1);
        let indent = " ".repeat(key.column);
        let ending = lines.ending;
        lines.list.splice(key.line..last, [format!("{indent}{}: {}{ending}", field.key, flow(&field.value))]);
    }
    Ok(lines.join())
}

/// The line of the key after this one in a map.
fn next_line(map: &Node, key: &Node) -> Option<usize> {
    let Content::Map(entries) = &map.content else { return None };
    entries.iter().map(|(other, _)| other.line).filter(|line| *line > key.line).min()
}

/// The lines of an entry, and of its table's key.
fn block(key: Option<&str>, name: &str, indent: usize, step: usize, fields: &[Field]) -> Vec<String> {
    let mut lines: Vec<String> = key.map(|key| format!("{key}:")).into_iter().collect();
    lines.push(format!("{}{}:", " ".repeat(indent), scalar(name)));
    for field in fields {
        lines.push(format!("{}{}: {}", " ".repeat(indent + step), field.key, flow(&field.value)));
    }
    lines
}

/// A value on one line.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        // JSON is YAML, too.
        other => other.to_string(),
    }
}

/// Text plain where that is safe, else in double quotes.
fn scalar(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-~+@".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let word =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if starts && !word && text.chars().all(|c| safe(c) || c == ' ') && !text.ends_with(' ') {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

/// A text's lines, each with its ending.
struct Lines {
    list: Vec<String>,
    ending: &'static str,
}

// === impl Lines ===

impl Lines {
    fn of(text: &str) -> Self {
        let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { list: text.split_inclusive('\n').map(str::to_owned).collect(), ending }
    }

    fn join(&self) -> String {
        self.list.concat()
    }

    /// Sees that the last line has an ending.
    fn end_last(&mut self) {
        if let Some(last) = self.list.last_mut()
            && !last.ends_with('\n')
        {
            last.push_str(self.ending);
        }
    }

    fn insert(&mut self, at: usize, lines: Vec<String>) {
        let ending = self.ending;
        self.list.splice(at..at, lines.into_iter().map(|line| line + ending));
    }

    /// The end of a block that ends before `limit`, without the blank lines and outer comments between.
    fn end_of_block(&self, limit: usize, indent: usize) -> usize {
        let mut end = limit.min(self.list.len());
        while end > 0 {
            let line = self.list[end - 1].trim_end();
            let body = line.trim_start();
            let marker = matches!(line, "---" | "...");
            let outer_comment = body.starts_with('#') && line.len() - body.len() < indent.max(1);
            if !(body.is_empty() || outer_comment || marker) {
                break;
            }
            end -= 1;
        }
        end
    }

    /// Takes `{}`, `null` or `~` from behind a key.
    fn open_block(&mut self, key: &Node) -> Result<(), String> {
        let line = &mut self.list[key.line];
        let (text, ending) = split_ending(line);
        let (head, tail) = text.split_once(':').ok_or("a key without its colon")?;
        let comment = tail.find(" #").map_or("", |at| &tail[at..]);
        let value = tail[..tail.len() - comment.len()].split_whitespace().collect::<String>();
        if !matches!(value.as_str(), "" | "{}" | "null" | "~" | "Null" | "NULL") {
            return Err("its empty table is written in a way that can't be edited".to_owned());
        }
        *line = format!("{head}:{comment}{ending}");
        Ok(())
    }
}

fn split_ending(line: &str) -> (&str, &str) {
    let text = line.trim_end_matches(['\r', '\n']);
    line.split_at(text.len())
}
