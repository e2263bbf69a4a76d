//! References in texts: `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`, `${keyring:NAME}`, and `$${` for `${`.

use std::fmt;

use super::fault::{Problem, nearest};

/// One reference, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference<'t> {
    /// A variable of our environment; the default is taken when it is unset or empty.
    Env { name: &'t str, default: Option<&'t str> },
    /// The text of a file.
    File(&'t str),
    /// An entry of the system's keyring.
    Keyring(&'t str),
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    Literal(&'t str),
    Reference(Reference<'t>),
}

const KINDS: [&str; 3] = ["env", "file", "keyring"];

/// Judges the references of a text.
pub(crate) fn check(text: &str) -> Result<(), Problem> {
    segments(text).map(drop)
}

/// Whether a text is nothing but references, and none of them brings a value of its own.
pub(crate) fn names_only(text: &str) -> bool {
    let brings_none = |segment: &Segment<'_>| match segment {
        Segment::Literal(_) | Segment::Reference(Reference::Env { default: Some(_), .. }) => false,
        Segment::Reference(Reference::Env { default: None, .. } | Reference::File(_) | Reference::Keyring(_)) => true,
    };
    segments(text).is_ok_and(|segments| segments.iter().all(brings_none))
}

/// Cuts a text into literals and references.
pub(crate) fn segments(text: &str) -> Result<Vec<Segment<'_>>, Problem> {
    let mut segments = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${` is a literal `${`: the first dollar goes, the other two characters stay.
            push_literal(&mut segments, &rest[..at - 1]);
            push_literal(&mut segments, "${");
            rest = &rest[at + 2..];
            continue;
        }
        push_literal(&mut segments, &rest[..at]);
        let body = &rest[at + 2..];
        let end = body.find('}').ok_or_else(|| {
            Problem::new("a reference is not closed: \"${\" without \"}\"")
                .help("add \"}\", or write \"$${\" for a literal \"${\"")
        })?;
        segments.push(Segment::Reference(reference(&body[..end])?));
        rest = &body[end + 1..];
    }
    push_literal(&mut segments, rest);
    Ok(segments)
}

fn push_literal<'t>(segments: &mut Vec<Segment<'t>>, text: &'t str) {
    if !text.is_empty() {
        segments.push(Segment::Literal(text));
    }
}

fn reference(body: &str) -> Result<Reference<'_>, Problem> {
    let Some((kind, rest)) = body.split_once(':') else {
        return Err(bare(body));
    };
    if rest.contains("${") {
        return Err(Problem::new("references don't nest").help("write one reference, with a plain text as its default"));
    }
    match kind {
        "env" => env(rest),
        "file" if rest.trim().is_empty() => Err(Problem::new("${file:} names no file").help("write ${file:PATH}")),
        "file" => Ok(Reference::File(rest)),
        "keyring" if rest.trim().is_empty() => {
            Err(Problem::new("${keyring:} names no entry").help("write ${keyring:NAME}"))
        }
        "keyring" => Ok(Reference::Keyring(rest)),
        _ => Err(unknown(kind)),
    }
}

fn env(rest: &str) -> Result<Reference<'_>, Problem> {
    let (name, default) = match rest.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (rest, None),
    };
    if name.is_empty() {
        return Err(Problem::new("${env:} names no variable").help("write ${env:NAME}"));
    }
    if name.contains(':') || name.contains('=') || name.contains(char::is_whitespace) {
        // What follows the name may be a secret, so it is not quoted.
        let name = name.split([':', '=', ' ']).next().unwrap_or_default();
        return Err(Problem::new(format!("${{env:{name}…}} is not a reference"))
            .help(format!("write ${{env:{name}}}, or ${{env:{name}:-default}} with a default")));
    }
    Ok(Reference::Env { name, default })
}

/// `${NAME}`, as shells and other hosts write it.
fn bare(body: &str) -> Problem {
    let plain = !body.is_empty() && body.len() <= 64 && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain {
        return Problem::new(format!("${{{body}}} is not a reference"))
            .help(format!("write ${{env:{body}}} for the variable, or $${{{body}}} for the text itself"));
    }
    Problem::new("${…} without a kind is not a reference")
        .help("write ${env:NAME}, ${file:PATH} or ${keyring:NAME}, or \"$${\" for a literal \"${\"")
}

fn unknown(kind: &str) -> Problem {
    let plain = !kind.is_empty() && kind.len() <= 16 && kind.bytes().all(|b| b.is_ascii_alphanumeric());
    let shown = if plain { kind } else { "…" };
    let problem = Problem::new(format!("${{{shown}:…}} is not a known kind of reference"));
    let meant = match kind {
        "input" | "prompt" | "secret" | "password" => Some("keyring"),
        "environment" | "ENV" => Some("env"),
        "path" => Some("file"),
        _ => nearest(kind, KINDS),
    };
    match meant {
        Some(meant) if plain => problem.help(format!("write ${{{meant}:…}}; the kinds are env, file and keyring")),
        _ => problem.help("the kinds are env, file and keyring"),
    }
}

// === impl Reference ===

impl fmt::Display for Reference<'_> {
    /// As it stands in the file, but for the default, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { name, .. } => write!(f, "${{env:{name}}}"),
            Self::File(path) => write!(f, "${{file:{path}}}"),
            Self::Keyring(name) => write!(f, "${{keyring:{name}}}"),
        }
    }
}
