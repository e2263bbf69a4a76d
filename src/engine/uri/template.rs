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
    /// `{/v}`, `{.v}`, `{;v}`: up to so many times, or `None` as often as need be, the separator and one or more
    /// characters but `/ ? #`.
    Separated(u8, Option<usize>),
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
            b'/' | b'.' | b';' => Self::Separated(operator, (!any).then_some(variables)),
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
            Self::Separated(byte, None) => repeat(text, from, *byte),
            Self::Separated(byte, Some(times)) => {
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
                let is_known = |pair: &[u8]| any_or_known(*any, names, pair);
                walk_query(text, from, *first, is_known)
            }
        }
    }
}

/// The ends of all lawful parts of the queries that begin at the places.
fn walk_query(text: &[u8], from: &[bool], first: u8, is_known: impl Fn(&[u8]) -> bool) -> Vec<bool> {
    // Where the part that holds a place ends.
    let mut ends = vec![text.len(); text.len() + 1];
    for at in (0..text.len()).rev() {
        ends[at] = if matches!(text[at], b'&' | b'#') { at } else { ends[at + 1] };
    }
    let mut to = from.to_vec();
    let mut walked = vec![false; from.len()];
    for start in reachable(from) {
        let (mut at, mut lead) = (start, first);
        while text.get(at) == Some(&lead) && is_known(&text[at + 1..]) {
            at = ends[at + 1];
            to[at] = true;
            lead = b'&';
            if std::mem::replace(&mut walked[at], true) {
                break;
            }
        }
    }
    to
}

/// Whether a part of a query begins with one of the names.
fn any_or_known(any: bool, names: &[String], pair: &[u8]) -> bool {
    any || names.iter().any(|name| {
        let behind = pair.strip_prefix(name.as_bytes());
        behind.is_some_and(|behind| matches!(behind.first(), None | Some(b'=' | b'&' | b'#')))
    })
}

/// The places behind any number of runs, each behind a separator.
fn repeat(text: &[u8], from: &[bool], separator: u8) -> Vec<bool> {
    let mut runs = vec![false; from.len()];
    let mut behind_separator = false;
    for (at, &byte) in text.iter().enumerate() {
        runs[at + 1] = (behind_separator || runs[at]) && is_simple(byte);
        behind_separator = (from[at] || runs[at]) && byte == separator;
    }
    join(&mut runs, from);
    runs
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn matches(template: &str, uri: &str) -> bool {
        Template::parse(template).expect("a lawful template").matches(uri).is_some()
    }

    #[test]
    fn expressions_match_what_they_expand_to() {
        for (template, yes, no) in [
            ("a://b", vec!["a://b"], vec!["a://", "a://bc", ""]),
            ("a://{x}", vec!["a://1", "a://1.2,3", "a://%2F"], vec!["a://", "a://1/2", "a://1?q", "a://1#f"]),
            ("a://{x}/c/{y}", vec!["a://b/c/d"], vec!["a://b/c/", "a:///c/d", "a://b/x/d"]),
            ("a://{x,y}", vec!["a://1,2"], vec!["a://"]),
            ("a://{+x}", vec!["a://1/2", "a://1?q#f"], vec!["a://"]),
            ("a://{+x}/end", vec!["a://1/end", "a://1/end/end"], vec!["a://end", "a://1/end/"]),
            ("a://b{#x}", vec!["a://b", "a://b#c/d"], vec!["a://bc", "a://b#"]),
            ("a://b{/x}", vec!["a://b", "a://b/c"], vec!["a://b/", "a://b/c/d"]),
            ("a://b{/x,y}", vec!["a://b/c", "a://b/c/d"], vec!["a://b/c/d/e"]),
            ("a://b{/x*}", vec!["a://b", "a://b/c/d/e"], vec!["a://b//c", "a://b/c/"]),
            ("a://b{.x}", vec!["a://b.json", "a://b.tar.gz"], vec!["a://b.", "a://bjson"]),
            ("a://b{;x}", vec!["a://b;x=1", "a://b;x"], vec!["a://bx"]),
            (
                "a://b{?x,y}",
                vec!["a://b", "a://b?x=1", "a://b?y=2&x=1", "a://b?x"],
                vec!["a://b?z=1", "a://b?", "a://b?xy=1"],
            ),
            ("a://b{?x}{&y}", vec!["a://b?y=1&x=2"], vec!["a://b?y=1&z=2", "a://b&y=1"]),
            ("a://b{?x*}", vec!["a://b?any=1&thing=2"], vec!["a://b&x=1"]),
            ("a://b?f=1{&x}", vec!["a://b?f=1", "a://b?f=1&x=2"], vec!["a://b?x=2"]),
            ("a://{x:3}", vec!["a://abc"], vec!["a://"]),
            ("a://%41 é/{x}", vec!["a://A%20%c3%a9/1", "a://%41 é/1"], vec!["a://a%20%C3%A9/1"]),
            ("{+x}", vec!["any:thing/at?all"], vec![""]),
        ] {
            for uri in yes {
                assert!(matches(template, uri), "{template} should match {uri}");
            }
            for uri in no {
                assert!(!matches(template, uri), "{template} should not match {uri}");
            }
        }
    }

    #[test]
    fn what_is_no_template_matches_nothing() {
        for bad in ["a{", "a}", "a{}", "a{x", "a{{x}}", "a{=x}", "a{x,}", &"a".repeat(MAX_TEMPLATE + 1)] {
            assert_eq!(Template::parse(bad), None, "{bad:.20}");
        }
        assert!(!matches("{+x}", &"a".repeat(MAX_URI + 1)));
    }

    #[test]
    fn the_most_literal_wins_and_then_the_fewest_variables() {
        let score = |template: &str| Template::parse(template).unwrap().matches("a://bc").unwrap();
        assert!(score("a://bc") > score("a://b{x}"));
        assert!(score("a://b{x}") > score("a://{x}"));
        assert!(score("a://{x}") > score("a://{x,y}"));
        assert!(score("a://{x}") > score("{+x}"));
    }

    #[test]
    fn no_template_and_uri_take_long() {
        let many = "{+x}a".repeat(MAX_TEMPLATE / 5);
        let queries = "{+x}{?y*}".repeat(MAX_TEMPLATE / 9);
        let began = Instant::now();
        assert!(!matches(&many, &format!("{}b", "a".repeat(MAX_URI - 1))));
        let _ = matches(&queries, &"?y".repeat(MAX_URI / 2));
        let _ = matches(&"{/x*}".repeat(MAX_TEMPLATE / 5), &"/a".repeat(MAX_URI / 2));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    proptest! {
        #[test]
        fn an_expansion_matches_its_template(values in proptest::collection::vec("[a-z0-9.~%-]{1,8}", 3)) {
            let [a, b, c] = &values[..] else { unreachable!() };
            let uri = format!("s://h/{a}/x/{b}?q={c}");
            for template in ["s://h/{a}/x/{b}{?p,q}", "s://h/{+rest}"] {
                prop_assert!(matches(template, &uri), "{}", uri);
            }
        }

        #[test]
        fn nothing_panics(template in "[a-c{}+#/.;?&*:,%1é]{0,24}", uri in "[a-c#/.;?&=%1é]{0,24}") {
            if let Some(template) = Template::parse(&template) {
                let _ = template.matches(&uri);
            }
        }
    }
}
