//! Text → every fault at once, and a configuration of what is sound.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::fault::{Fault, NOT_TOML, Problem, Severity, Source, nearest};
use super::lift;
use super::types::Config;
use super::walk::Walk;

/// How the parser tells of a value that is a bare word.
const UNQUOTED: &str = "string values must be quoted";

/// What came of a text.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What is sound; of use only while nothing is [`fatal`](Self::fatal).
    pub config: Config,
    /// Everything that is wrong, in the order of the text.
    pub faults: Vec<Fault>,
    /// The enabled servers (of the profile, if one was chosen) that are left out because of a fault, in the order of
    /// the file.
    pub broken: Vec<Broken>,
    /// The bytes that must not be shown in an excerpt, since they may be secrets.
    pub hidden: Vec<Range<usize>>,
}

/// A server that is left out because of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The key of its table.
    pub key: String,
    /// Its prefix, or the key where that is faulty, too.
    pub prefix: String,
    /// Its first fault in a line.
    pub reason: String,
}

/// Reads a configuration; `path` is for messages only, and `profile` is the one that was chosen.
///
/// Never fails: [`Parsed::faults`] says what is wrong.
pub fn parse(path: &Path, text: &str, profile: Option<&str>) -> Parsed {
    let source = Source::new(path, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut syntax = syntax_faults(&source, text, &errors);
    let mut walk = Walk::new(&source);
    let root = walk.root(table.get_ref());
    let lifted = lift::lift(&mut walk, root, profile);
    let Walk { mut faults, hidden, .. } = walk;
    if !syntax.is_empty() {
        // What the parser put together after a structural error would be judged for what the person never wrote.
        let structural = errors.iter().any(|error| !keeps_structure(error.message()));
        let sound = |fault: &Fault| !structural && !fault.message.starts_with(lift::MISSING);
        faults.retain(|fault| sound(fault) && syntax.iter().all(|error| error.line != fault.line));
        faults.append(&mut syntax);
    }
    faults.sort_by_key(|fault| (fault.span.start, fault.span.end));
    let config = Config { path: path.to_owned(), ..lifted.config };
    Parsed { config, faults, broken: lifted.broken, hidden }
}

/// The text's errors as TOML, the first of each line: what follows it there is mostly its consequence.
fn syntax_faults(source: &Source<'_>, text: &str, errors: &[toml::de::Error]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            source.fault(span.clone(), String::new(), Severity::Fatal, syntax_problem(text, error.message(), &span))
        })
        .collect();
    faults.sort_by_key(|fault| fault.span.start);
    faults.dedup_by_key(|fault| fault.line);
    faults
}

/// Whether the parser's recovery leaves the tables as they were meant.
fn keeps_structure(message: &str) -> bool {
    const OF_A_VALUE: [&str; 5] = [UNQUOTED, "invalid boolean", "invalid integer", "invalid float", "duplicate key"];
    OF_A_VALUE.iter().any(|start| message.starts_with(start))
}

fn syntax_problem(text: &str, message: &str, span: &Range<usize>) -> Problem {
    let line_start = text[..floor(text, span.start)].rfind('\n').map_or(0, |at| at + 1);
    let line = text[line_start..].lines().next().unwrap_or_default().trim();
    let value = text.get(span.clone()).unwrap_or_default();
    let lower = value.to_ascii_lowercase();
    let wrong_case = lower == "true" || lower == "false";
    // The parser guesses what a bare word was to become: `npx` a NaN, `null` as well.
    let guessed =
        ["invalid boolean", "invalid float", "invalid integer"].iter().any(|start| message.starts_with(start));
    let bare_word = value.starts_with(|c: char| c.is_ascii_alphabetic()) && !wrong_case && guessed;
    let message = if bare_word { UNQUOTED } else { message };
    let problem = Problem::new(format!("{NOT_TOML}{message}"));
    let first = text.trim_start_matches('\u{feff}').trim_start();
    if first.starts_with('{') {
        return problem.help("this looks like JSON: let \"mcp-proxy import FILE\" turn it into TOML");
    }
    if line.starts_with('[') && !line.trim_end().ends_with(']') {
        return problem.help("a table's name stands in brackets: [servers.NAME]");
    }
    if line.starts_with('[') {
        return match message {
            "duplicate key" => problem.help("this table stands in the file twice: merge the two"),
            _ => problem.help("a name may hold letters, digits, \"_\" and \"-\"; put any other into quotes"),
        };
    }
    let key_end = line.find(|c: char| !(c.is_alphanumeric() || "_-.\"".contains(c))).unwrap_or(line.len());
    if line[key_end..].trim_start().starts_with(':') {
        return problem.help("write KEY = VALUE, with an equals sign");
    }
    if message.starts_with(UNQUOTED) {
        return match (lower.as_str(), value.is_empty()) {
            ("yes" | "on", _) => problem.help("write true"),
            ("no" | "off", _) => problem.help("write false"),
            ("null" | "nil" | "none" | "~", _) => problem.help("TOML has no null: leave the key out"),
            (_, true) => problem.help("write a value after the equals sign"),
            _ => problem.help("put the value into quotes: KEY = \"value\""),
        };
    }
    if wrong_case {
        return problem.help("write true or false in lower case");
    }
    if message == "duplicate key" {
        return problem.help("this key is set twice: remove one");
    }
    if message.contains("unicode") || message.contains("escape") {
        return problem.help("write paths of Windows in single quotes, 'C:\\dir', or double each backslash");
    }
    if message.contains("string") {
        return problem.help("close the quotes in the same line");
    }
    if message.contains("comma") {
        return problem.help("put one comma between two entries");
    }
    if message.contains("array") {
        return problem.help("close the array with \"]\"");
    }
    if message.contains("inline table") {
        return problem.help("close the table with \"}\"");
    }
    if !line.is_empty() && !line.contains('=') {
        return problem.help("write KEY = VALUE");
    }
    problem
}

fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// "did you mean …?", or the list of what there is.
pub(crate) fn suggest(word: &str, known: &[&str], what: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => format!("the file has no {what}s"),
        None => format!("the {what}s are {}", known.join(", ")),
    }
}

// === impl Parsed ===

impl Parsed {
    /// Whether the proxy can't start with it.
    pub fn fatal(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Fatal)
    }

    /// Whether it is without fault; warnings don't count. A reload takes nothing else over.
    pub fn sound(&self) -> bool {
        self.faults.iter().all(|fault| fault.severity == Severity::Warning)
    }
}
