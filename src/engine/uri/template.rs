//! Matches URIs against RFC 6570 templates (`PROTOCOL.md` 6.7).
//!
//! A match is a walk over the template's parts with the *set* of places in the URI that are reachable, so that its time
//! is bounded by template × URI whatever either looks like: nothing is ever tried twice.

use std::cmp::Reverse;

/// Longest template and URI that are matched, in bytes; longer ones match nothing.
const MAX_TEMPLATE: usize = 1024;
const MAX_URI: usize = 4096;

/// A compiled template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    parts: Vec<Part>,
    score: Score,
}

/// How well a template fits: the greater wins. Most literal characters, then fewest variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score {
    literal: usize,
    variables: Reverse<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// Exactly this, percent-encoding normalised.
    Literal(Vec<u8>),
    /// `{v}`: one or more characters but `/ ? #`.
    Simple,
    /// `{+v}`: one or more characters.
    Reserved,
    /// `{#v}`: nothing, or `#` and more.
    Fragment,
    /// `{/v}`, `{.v}`, `{;v}`: up to so many times the separator and one or more characters but `/ ? #`.
    Separated(u8, usize),
    /// `{?v}`, `{&v}`: the names, each at most once for each place, in any order.
    Query { first: u8, names: Vec<String>, any: bool },
}

// === impl Template ===

impl Template {
    /// Compiles a template; `None` if it is none, or too long.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEMPLATE {
            return None;
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut score = Score { literal: 0, variables: Reverse(0) };
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, behind) = match rest.find(['{', '}']) {
                Some(at) => rest.split_at(at),
                None => (rest, ""),
            };
            if !literal.is_empty() {
                score.literal += literal.chars().count();
                parts.push(Part::Literal(normal(literal)));
            }
            if behind.is_empty() {
                break;
            }
            let (expression, behind) = behind.strip_prefix('{')?.split_once('}')?;
            let (part, variables) = Part::parse(expression)?;
            score.variables.0 += variables;
            match (parts.last_mut(), part) {
                // `{?a}{&b}` is one query, whose parts come in any order.
                (Some(Part::Query { names, any, .. }), Part::Query { first: b'&', names: more, any: more_any }) => {
                    names.extend(more);
                    *any |= more_any;
                }
                (_, part) => parts.push(part),
            }
            rest = behind;
        }
        Some(Self { parts, score })
    }

    /// Tells how well it fits, or that it doesn't.
    pub fn matches(&self, uri: &str) -> Option<Score> {
        if uri.len() > MAX_URI {
            return None;
        }
        let text = normal(uri);
        let mut places = vec![false; text.len() + 1];
        places[0] = true;
        for part in &self.parts {
            places = part.walk(&text, &places);
            if !places.contains(&true) {
                return None;
            }
        }
        places[text.len()].then_some(self.score)
    }
}

// === impl Part ===

impl Part {
    /// Reads what stands between braces, and how many variables it has.
    fn parse(expression: &str) -> Option<(Self, usize)> {
        let operator = expression.bytes().next()?;
        let list = match operator {
            b'+' | b'#' | b'/' | b'.' | b';' | b'?' | b'&' => &expression[1..],
            b'=' | b',' | b'!' | b'@' | b'|' => return None,
            _ => expression,
        };
        let mut names = Vec::new();
        let mut any = false;
        for variable in list.split(',') {
            let exploded = variable.strip_suffix('*');
            any |= exploded.is_some();
            let name = exploded.unwrap_or(variable);
            let name = name.split_once(':').map_or(name, |(name, _)| name);
            if name.is_empty() || name.contains(['{', '/', '?', '#', ' ']) {
                return None;
            }
            names.push(name.to_owned());
        }
        let variables = names.len();
        let part = match operator {
            b'+' => Self::Reserved,
            b'#' => Self::Fragment,
            b'/' | b'.' | b';' => Self::Separated(operator, if any { usize::MAX } else { variables }),
            b'?' | b'&' => Self::Query { first: operator, names, any },
            _ => Self::Simple,
        };
        Some((part, variables))
    }

    /// The places that are reachable behind this part from the places before it.
    fn walk(&self, text: &[u8], from: &[bool]) -> Vec<bool> {
        match self {
            Self::Literal(literal) => {
                let mut to = vec![false; from.len()];
                for at in reachable(from) {
                    if text[at..].starts_with(literal) {
                        to[at + literal.len()] = true;
                    }
                }
                to
            }
            Self::Simple => run(text, from, is_simple),
            Self::Reserved => run(text, from, |_| true),
            Self::Fragment => {
                let mut to = run(text, &separator(text, from, b'#'), |_| true);
                join(&mut to, from);
                to
            }
            Self::Separated(byte, times) => {
                let mut all = from.to_vec();
                let mut last = from.to_vec();
                for _ in 0..*times {
                    last = run(text, &separator(text, &last, *byte), is_simple);
                    // What was reachable before leads nowhere new.
                    if !join(&mut all, &last) {
                        break;
                    }
                }
                all
            }
            Self::Query { first, names, any } => {
                let mut to = from.to_vec();
                for start in reachable(from) {
                    walk_query(text, start, *first, names, *any, &mut to);
                }
                to
            }
        }
    }
}

/// Marks the end of each lawful part of the query that begins at `at`.
fn walk_query(text: &[u8], mut at: usize, mut lead: u8, names: &[String], any: bool, to: &mut [bool]) {
    while text.get(at) == Some(&lead) {
        let pair = &text[at + 1..];
        let known = names.iter().any(|name| {
            let behind = pair.strip_prefix(name.as_bytes());
            behind.is_some_and(|behind| matches!(behind.first(), None | Some(b'=' | b'&' | b'#')))
        });
        if !known && !any {
            return;
        }
        at += 1 + pair.iter().position(|byte| matches!(byte, b'&' | b'#')).unwrap_or(pair.len());
        to[at] = true;
        lead = b'&';
    }
}

/// The places behind one or more bytes of a class.
fn run(text: &[u8], from: &[bool], class: impl Fn(u8) -> bool) -> Vec<bool> {
    let mut to = vec![false; from.len()];
    for (at, &byte) in text.iter().enumerate() {
        to[at + 1] = (from[at] || to[at]) && class(byte);
    }
    to
}

/// The places behind this byte.
fn separator(text: &[u8], from: &[bool], byte: u8) -> Vec<bool> {
    let mut to = vec![false; from.len()];
    for (at, &is) in text.iter().enumerate() {
        to[at + 1] = from[at] && is == byte;
    }
    to
}

fn reachable(places: &[bool]) -> impl Iterator<Item = usize> + '_ {
    places.iter().enumerate().filter_map(|(at, &is)| is.then_some(at))
}

/// Adds places; tells whether any was new.
fn join(to: &mut [bool], more: &[bool]) -> bool {
    let mut new = false;
    for (to, &more) in to.iter_mut().zip(more) {
        new |= more && !*to;
        *to |= more;
    }
    new
}

fn is_simple(byte: u8) -> bool {
    !matches!(byte, b'/' | b'?' | b'#')
}

/// Percent-encoding in one spelling: what need not be encoded isn't, what is has upper-case digits, what must be is.
fn normal(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let encoded = digits.and_then(hex);
        at += if encoded.is_some() { 3 } else { 1 };
        let plain = match encoded {
            Some(byte) => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'),
            None => byte.is_ascii_graphic(),
        };
        let byte = encoded.unwrap_or(byte);
        if plain {
            out.push(byte);
        } else {
            push_encoded(&mut out, byte);
        }
    }
    out
}

fn push_encoded(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Two hexadecimal digits as a byte.
fn hex(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(value(*high)? << 4 | value(*low)?).ok()
}
