//! Faults as people see them on a terminal, and as programs read them.

use std::borrow::Cow;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::fault::{Fault, Severity};
use super::keys::{Kind, ROOT, Table};

/// The faults with excerpts of the text, for people; `hidden` are the parts that may be secrets
/// (see [`Parsed::hidden`](super::Parsed)), which are shown as asterisks.
pub fn render_faults(faults: &[Fault], text: &str, hidden: &[Range<usize>], colour: bool) -> String {
    let unparsed = faults.iter().any(Fault::is_syntax);
    let text = veil(text, hidden, unparsed);
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut report = String::new();
    for fault in faults {
        report.push_str(&renderer.render(&[group(fault, &text)]));
        report.push_str("\n\n");
    }
    report
}

/// What `check --json` prints: `{ok, faults: [{file, line, column, key, message, help, server, severity}]}`.
///
/// Warnings leave `ok` true. What is not known is null.
pub fn faults_json(faults: &[Fault]) -> Value {
    let ok = faults.iter().all(|fault| fault.severity == Severity::Warning);
    let faults: Vec<Value> = faults
        .iter()
        .map(|fault| {
            json!({
                "file": fault.file.to_string_lossy(),
                "line": fault.line,
                "column": fault.column,
                "key": fault.key,
                "message": fault.message,
                "help": fault.help,
                "server": fault.server,
                "severity": match fault.severity {
                    Severity::Warning => "warning",
                    Severity::ServerOnly => "server",
                    Severity::Fatal => "fatal",
                },
            })
        })
        .collect();
    json!({ "ok": ok, "faults": faults })
}

/// A shorter literal may be shown.
const SHORTEST_SECRET: usize = 8;

fn group<'a>(fault: &'a Fault, text: &'a str) -> Group<'a> {
    let level = if fault.severity == Severity::Warning { Level::WARNING } else { Level::ERROR };
    let title: Cow<'a, str> = if fault.key.is_empty() {
        Cow::Borrowed(&fault.message)
    } else {
        Cow::Owned(format!("{}: {}", fault.key, fault.message))
    };
    let path = fault.file.to_string_lossy();
    let title = level.primary_title(title);
    let mut group = if fault.span == (0..0) {
        // It is about something that the text lacks.
        title.element(Origin::path(path).line(fault.line))
    } else {
        let end = fault.span.end.max(fault.span.start).min(text.len());
        let span = fault.span.start.min(end)..end;
        title.element(Snippet::source(text).path(path).annotation(AnnotationKind::Primary.span(span)))
    };
    if let Some(help) = &fault.help {
        group = group.element(Level::HELP.message(help));
    }
    if fault.severity == Severity::ServerOnly {
        group = group.element(Level::NOTE.message("this server is left out; the others are not affected"));
    }
    group
}

/// The text with what may be secret starred out, byte for byte, so that places stay as they are.
fn veil<'t>(text: &'t str, hidden: &[Range<usize>], unparsed: bool) -> Cow<'t, str> {
    let mut bytes = Cow::Borrowed(text.as_bytes());
    for span in hidden {
        star(&mut bytes, span.clone());
    }
    if unparsed {
        // Where the text isn't TOML nobody knows what is the value of a variable, so all is that isn't known not to be.
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            for span in suspicious(line) {
                star(&mut bytes, start + span.start..start + span.end);
            }
            start += line.len();
        }
    }
    match bytes {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).expect("whole characters became asterisks")),
    }
}

/// Stars out all but quotes and what is no part of a word.
fn star(bytes: &mut Cow<'_, [u8]>, span: Range<usize>) {
    if let Some(part) = bytes.to_mut().get_mut(span) {
        for byte in part {
            if !matches!(
                byte,
                b'"' | b'\'' | b' ' | b'\t' | b'\r' | b'\n' | b'=' | b'[' | b']' | b'{' | b'}' | b',' | b'.'
            ) {
                *byte = b'*';
            }
        }
    }
}

/// The parts of a line that may be secret: what follows a key that isn't known to be harmless, and long words that are
/// no key.
fn suspicious(line: &str) -> Vec<Range<usize>> {
    let trimmed = line.trim_start();
    let header = trimmed.starts_with('[') && !line.contains('=');
    let end = line.find(['=', ':']);
    let key = end.map(|end| line[..end].trim().trim_matches('"').rsplit('.').next().unwrap_or_default().trim());
    // A second pair may have slipped into the line, and the first key says nothing about it.
    let alone = line.matches('=').count() <= 1 && !line.contains('{');
    if !header && alone && key.is_some_and(|key| is_harmless(&ROOT, key)) {
        return Vec::new();
    }
    let value = match end {
        _ if header => line.find(['"', '\'']).unwrap_or(line.len()),
        Some(end) => end + 1,
        None => 0,
    };
    let mut spans = Vec::new();
    spans.push(value..line.len());
    let mut at = 0;
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    for part in line.split_inclusive(|c| !in_word(c)) {
        let word = part.trim_end_matches(|c| !in_word(c));
        if word.len() >= SHORTEST_SECRET && !is_harmless(&ROOT, word) {
            spans.push(at..at + word.len());
        }
        at += part.len();
    }
    spans
}

/// Whether a key of that name is known, and none below it holds secrets.
fn is_harmless(table: &Table, name: &str) -> bool {
    table.keys().any(|key| match &key.kind {
        _ if key.name == "env" || key.name == "headers" => false,
        _ if key.name == name => true,
        Kind::Table(inner) | Kind::Map { of: Kind::Table(inner), .. } => is_harmless(inner, name),
        _ => false,
    })
}
