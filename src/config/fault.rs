//! What is wrong with a configuration file, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One fault of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as the person named it.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The bytes of the text that it is about.
    pub span: Range<usize>,
    /// The dotted path of the key; empty where there is none.
    pub key: String,
    /// What is wrong, as one sentence without a final period.
    pub message: String,
    /// What would have been right.
    pub expected: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
    /// The server whose table holds it.
    pub server: Option<String>,
    /// Whom it stops.
    pub severity: Severity,
}

/// Whom a fault stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Nobody.
    Warning,
    /// The server whose table holds it.
    ServerOnly,
    /// The whole proxy.
    Fatal,
}

/// What a rule says about a value: a fault without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) message: String,
    pub(crate) expected: Option<String>,
    pub(crate) help: Option<String>,
}

/// How the message of a fault of the syntax begins.
pub(crate) const NOT_TOML: &str = "this is not TOML: ";

/// The text of a file, for turning offsets into lines and columns.
pub(crate) struct Source<'t> {
    path: &'t Path,
    text: &'t str,
    line_starts: Vec<usize>,
}

/// The candidate that was most likely meant by `word`, if any is near.
///
/// Case counts for nothing, and neither does the difference of `-` and `_`.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let folded = fold(word);
    let bound = (folded.len() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= bound && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A dotted path, with the parts quoted that TOML would want quoted.
pub(crate) fn dotted<'p>(parts: impl IntoIterator<Item = &'p str>) -> String {
    let mut path = String::new();
    for part in parts {
        if !path.is_empty() {
            path.push('.');
        }
        let bare = !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if bare {
            path.push_str(part);
        } else {
            path.push_str(&Value::from(part).to_string());
        }
    }
    path
}

fn fold(word: &str) -> Vec<char> {
    // Long junk needs no exact distance, and the table below is quadratic.
    word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// Edits between two words; swapping neighbours counts as one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

// === impl Fault ===

impl Fault {
    /// Whether the text isn't even TOML there.
    pub(crate) fn is_syntax(&self) -> bool {
        self.message.starts_with(NOT_TOML)
    }
}

impl fmt::Display for Fault {
    /// One line: place, key, message and remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

// === impl Problem ===

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// "expected X, found Y".
    pub(crate) fn mismatch(expected: &str, found: &str) -> Self {
        Self { expected: Some(expected.to_owned()), ..Self::new(format!("expected {expected}, found {found}")) }
    }
}

// === impl Source ===

impl<'t> Source<'t> {
    pub(crate) fn new(path: &'t Path, text: &'t str) -> Self {
        let line_starts =
            std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|i| i + 1)).collect();
        Self { path, text, line_starts }
    }

    /// Line and column of an offset, both from 1; the byte order mark at the start has no width.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let before = &self.text[self.line_starts[line - 1]..offset];
        (line, before.chars().filter(|c| *c != '\u{feff}').count() + 1)
    }

    pub(crate) fn fault(&self, span: Range<usize>, key: String, severity: Severity, problem: Problem) -> Fault {
        let (line, column) = self.place(span.start);
        let Problem { message, expected, help } = problem;
        Fault { file: self.path.to_owned(), line, column, span, key, message, expected, help, server: None, severity }
    }
}
