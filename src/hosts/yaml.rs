//! YAML as a tree with places, so that an edit can be made in the text itself.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

/// Aliases are copied; a file that blows itself up with them is refused.
const MAX_NODES: usize = 100_000;

/// One node and the lines that it covers.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// The line it begins on, from 0.
    pub(super) line: usize,
    /// The column it begins at, from 0, in characters.
    pub(super) column: usize,
    /// Whether it is written with brackets or braces.
    pub(super) flow: bool,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar { text: String, plain: bool },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// Reads the first document; `None`: there is nothing in it.
///
/// # Errors
///
/// What is wrong, with its line.
pub(super) fn parse(text: &str) -> Result<Option<Node>, String> {
    let mut builder = Builder { text, anchors: HashMap::new(), nodes: 0 };
    let mut events = Parser::new_from_str(text);
    loop {
        match next(&mut events)? {
            (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(None),
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (event, span) => return builder.node(&mut events, event, span).map(Some),
        }
    }
}

type Events<'a> = Parser<'a, saphyr_parser::StrInput<'a>>;

fn next<'a>(events: &mut Events<'a>) -> Result<(Event<'a>, Span), String> {
    match events.next_event() {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err(format!("line {}: {}", error.marker().line(), error.info())),
        None => Err("it ends too early".to_owned()),
    }
}

// === impl Node ===

impl Node {
    /// The value under a key of a map.
    pub(super) fn get(&self, key: &str) -> Option<(&Node, &Node)> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(name, value)| (name, value))
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// The same as JSON, by YAML's core schema; a `<<` is merged.
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Scalar { text, plain: true } => plain(text),
            Content::Scalar { text, plain: false } => Value::String(text.clone()),
            Content::List(items) => items.iter().map(Self::to_value).collect(),
            Content::Map(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    let key = key.text().unwrap_or("?").to_owned();
                    match (key.as_str(), value.to_value()) {
                        ("<<", Value::Object(merged)) => {
                            for (key, value) in merged {
                                map.entry(key).or_insert(value);
                            }
                        }
                        (_, value) => {
                            map.insert(key, value);
                        }
                    }
                }
                Value::Object(map)
            }
        }
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => {
            if let Ok(number) = text.parse::<i64>() {
                return number.into();
            }
            let numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
            match text.parse::<f64>() {
                Ok(number) if numeric && number.is_finite() => number.into(),
                _ => Value::String(text.to_owned()),
            }
        }
    }
}

struct Builder<'t> {
    text: &'t str,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

// === impl Builder ===

impl Builder<'_> {
    fn node<'a>(&mut self, events: &mut Events<'a>, event: Event<'a>, span: Span) -> Result<Node, String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err("it is too large".to_owned());
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned().ok_or("an alias without its anchor")?;
                self.nodes += node.size();
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, _) => {
                (anchor, Content::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain })
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match next(events)? {
                        (Event::SequenceEnd, _) => break (anchor, Content::List(items)),
                        (event, span) => items.push(self.node(events, event, span)?),
                    }
                }
            }
            Event::MappingStart(anchor, _) => {
                let mut entries = Vec::new();
                loop {
                    let key = match next(events)? {
                        (Event::MappingEnd, _) => break (anchor, Content::Map(entries)),
                        (event, span) => self.node(events, event, span)?,
                    };
                    let (event, span) = next(events)?;
                    entries.push((key, self.node(events, event, span)?));
                }
            }
            _ => return Err("an event out of order".to_owned()),
        };
        let first = self.text.chars().nth(span.start.index());
        let node = Node {
            flow: matches!(content, Content::List(_) | Content::Map(_)) && matches!(first, Some('{' | '[')),
            content,
            line: span.start.line().saturating_sub(1),
            column: span.start.col(),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }
}

impl Node {
    fn size(&self) -> usize {
        1 + match &self.content {
            Content::Scalar { .. } => 0,
            Content::List(items) => items.iter().map(Self::size).sum(),
            Content::Map(entries) => entries.iter().map(|(key, value)| key.size() + value.size()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_the_core_schema() {
        let text = "a: 1\nb: \"1\"\nc: [x, true, ~, 1.5]\nd: &k {e: no}\nf: *k\ng:\n  <<: *k\n  h: 'it''s'\n";
        let value = parse(text).expect("right").expect("not empty").to_value();
        let expected = serde_json::json!({
            "a": 1, "b": "1", "c": ["x", true, null, 1.5], "d": {"e": "no"}, "f": {"e": "no"},
            "g": {"e": "no", "h": "it's"}
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn places_are_those_of_the_text() {
        let node = parse("# first\nextensions:\n   hub:\n      type: stdio\n   b: {}\n").expect("right").expect("some");
        let (key, value) = node.get("extensions").expect("there");
        assert_eq!((key.line, key.column, value.flow), (1, 0, false));
        let (hub, _) = value.get("hub").expect("there");
        assert_eq!((hub.line, hub.column), (2, 3));
        assert!(value.get("b").expect("there").1.flow);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert!(parse("a: [1,\nb: 2\n").expect_err("broken").contains("line"));
        assert!(parse("# nothing\n").expect("right").is_none());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for at in 1..9 {
            let last = format!("*a{}", at - 1);
            bomb.extend([format!("a{at}: &a{at} [{}]\n", [last.as_str(); 10].join(", "))]);
        }
        assert!(parse(&bomb).is_err(), "a bomb is refused");
    }
}
