//! What is lawful in a server's table and probably not meant.

use std::ops::Range;
use std::time::Duration;

use super::fault::{Problem, Severity};
use super::fields::{Fields, Node, Value};
use super::keys::{Only, SERVER};
use super::walk::Walk;

/// Notes a warning for each.
pub(crate) fn hints(walk: &mut Walk<'_>, server: &str, own: &Fields) {
    let mut warn = |path: &[&str], span: &Range<usize>, message: String, help: String| {
        let path: Vec<&str> = ["servers", server].into_iter().chain(path.iter().copied()).collect();
        walk.note(&path, span.clone(), Severity::Warning, Problem::new(message).help(help));
    };
    remote(own, &mut warn);
    no_effect(own, &mut warn);
    shell_line(own, &mut warn);
    literals(own, &mut warn);
    renames(own, &mut warn);
}

/// Takes the path below the server, the place, the message and the help.
type Warn<'w> = dyn FnMut(&[&str], &Range<usize>, String, String) + 'w;

fn remote(own: &Fields, warn: &mut Warn<'_>) {
    let is_off = own.get("enabled").is_some_and(|enabled| enabled.value == Value::Bool(false));
    if let (Some(url), None) = (own.get("url"), own.get("command"))
        && !is_off
    {
        let help = "its calls are answered with -31011; set enabled = false to hide it";
        warn(&["url"], &url.key_span, "remote servers are not supported yet".to_owned(), help.to_owned());
    }
}

fn no_effect(own: &Fields, warn: &mut Warn<'_>) {
    let (has, wants, foreign) = match (own.get("command"), own.get("url")) {
        (Some(_), None) => ("command", "url", Only::Url),
        (None, Some(_)) => ("url", "command", Only::Command),
        _ => return,
    };
    for key in SERVER.iter().filter(|key| key.only == Some(foreign)) {
        if let Some(node) = own.get(key.name) {
            let message = format!("{:?} has no effect on a server with {has:?}", key.name);
            warn(&[key.name], &node.key_span, message, format!("remove it; it is for servers with {wants:?}"));
        }
    }
    let eager = own.set_text("start").is_some_and(|start| start == "eager");
    if let Some(node) = own.get("idle_stop").filter(|node| eager && node.value != Value::Duration(Duration::ZERO)) {
        let message = "\"idle_stop\" has no effect on a server that starts with the proxy";
        warn(&["idle_stop"], &node.key_span, message.to_owned(), "write start = \"lazy\"".to_owned());
    }
}

fn shell_line(own: &Fields, warn: &mut Warn<'_>) {
    let Some(Node { value: Value::Text(command), span, .. }) = own.get("command") else { return };
    let program = command.split_whitespace().next().unwrap_or_default();
    if own.get("args").is_none() && command.contains(char::is_whitespace) && !program.contains(['/', '\\', '$']) {
        let message = "the command looks like a program with its arguments, and no shell splits it";
        let help = format!("write command = {program:?} and the rest as args = [...]");
        warn(&["command"], span, message.to_owned(), help);
    }
}

fn literals(own: &Fields, warn: &mut Warn<'_>) {
    for name in ["args", "env", "headers"] {
        for (part, node) in own.entries(name) {
            let Value::Text(text) = &node.value else { continue };
            let path: Vec<&str> = std::iter::once(name).chain(part.as_deref()).collect();
            let variable = text.strip_prefix('$').unwrap_or_default();
            if !variable.is_empty() && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                let message = "a \"$\" without braces is no reference: the server gets the text as it is";
                warn(&path, &node.span, message.to_owned(), "write ${env:NAME} for the variable NAME".to_owned());
            } else if text.starts_with("~/") {
                let message = "\"~\" is not expanded here: the server gets the text as it is";
                warn(&path, &node.span, message.to_owned(), "write ${env:HOME}/ in its place".to_owned());
            }
        }
    }
}

fn renames(own: &Fields, warn: &mut Warn<'_>) {
    let Some(tools) = own.get("tools").and_then(Node::as_table) else { return };
    let mut new_names: Vec<&str> = Vec::new();
    for (old, node) in tools.entries("rename") {
        let (Some(old), Value::Text(new)) = (old, &node.value) else { continue };
        if new_names.contains(&new.as_str()) {
            let help = "give each a name of its own; until then the later one carries a hash";
            warn(&["tools", "rename", &old], &node.span, format!("two tools are renamed to {new:?}"), help.to_owned());
        }
        new_names.push(new);
    }
}
