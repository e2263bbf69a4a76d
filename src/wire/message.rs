//! The envelope of one JSON-RPC message, found without touching what it carries (`PROTOCOL.md` 1.2, 1.4).

use std::ops::Range;

use super::id::PeerId;
use super::json::{self, key_is};
use super::params::{NoObject, Params};

/// Where the members of an envelope stand in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// `id`.
    pub id: Option<Range<usize>>,
    /// `method`.
    pub method: Option<Range<usize>>,
    /// `params`.
    pub params: Option<Range<usize>>,
    /// The members of `params`, where the walk over the envelope has met them.
    inside: Option<Params>,
    /// `result`.
    pub result: Option<Range<usize>>,
    /// `error`.
    pub error: Option<Range<usize>>,
    /// Whether `jsonrpc` is `"2.0"`.
    pub version: bool,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every line is one message, and a box would cost each an allocation"
)]
pub enum Line {
    /// One message.
    One(Envelope),
    /// An array: the places of its elements.
    Batch(Vec<Range<usize>>),
    /// Not JSON, or not UTF-8.
    Junk,
    /// JSON, but neither an object nor an array.
    Other,
}

/// What an envelope says by the members that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `method` and a lawful `id`.
    Request(PeerId),
    /// `method` only.
    Notification,
    /// A lawful `id` and `result`.
    Result(PeerId),
    /// A lawful `id` and `error`.
    Error(PeerId),
    /// An `error` whose id is absent or null: it can't be matched.
    ErrorWithoutId,
    /// A lawful `id` with both `result` and `error`, or with neither and no method.
    Both(PeerId),
    /// `method` with an id that is none: null, fractional, boolean or an object.
    BadId,
    /// None of these.
    Neither,
}

/// Reads a line. The whole of it is checked, so what is passed on from it is JSON.
pub fn read(text: &[u8]) -> Line {
    if !is_utf8(text) {
        return Line::Junk;
    }
    let start = json::skip_space(text, 0);
    match text.get(start) {
        Some(b'{') => match envelope(text, start) {
            Some((envelope, end)) if json::skip_space(text, end) == text.len() => Line::One(envelope),
            _ => Line::Junk,
        },
        Some(first) => match json::skip_value(text, start) {
            Ok(end) if json::skip_space(text, end) == text.len() => {
                if *first == b'[' {
                    Line::Batch(json::elements(text, start..end).collect())
                } else {
                    Line::Other
                }
            }
            _ => Line::Junk,
        },
        None => Line::Junk,
    }
}

/// Short texts do without the vector code's start-up.
fn is_utf8(text: &[u8]) -> bool {
    if text.len() < 64 { std::str::from_utf8(text).is_ok() } else { simdutf8::basic::from_utf8(text).is_ok() }
}

/// Reads the object that begins at `start`: its envelope and its end. `None` if it is no JSON.
pub fn envelope(text: &[u8], start: usize) -> Option<(Envelope, usize)> {
    let mut found = Envelope::default();
    let end = json::skip_object(text, start, |key, value| {
        let params = &text[key.clone()] == b"\"params\"" && text.get(value) == Some(&b'{');
        if params {
            // The one member that is looked into: both are done in one walk.
            let end = found.inside.insert(Params::default()).check(text, value)?;
            found.params = Some(value..end);
            return Ok(end);
        }
        let end = json::skip_value(text, value)?;
        found.note(text, &key, value..end);
        Ok(end)
    });
    end.ok().map(|end| (found, end))
}

// === impl Envelope ===

impl Envelope {
    fn note(&mut self, text: &[u8], key: &Range<usize>, value: Range<usize>) {
        // By length first: most keys are told apart by it.
        match key.len() - 2 {
            2 if key_is(text, key, "id") => self.id = Some(value),
            6 if key_is(text, key, "method") => self.method = Some(value),
            6 if key_is(text, key, "params") => (self.params, self.inside) = (Some(value), None),
            6 if key_is(text, key, "result") => self.result = Some(value),
            5 if key_is(text, key, "error") => self.error = Some(value),
            7 if key_is(text, key, "jsonrpc") => self.version = &text[value] == b"\"2.0\"",
            _ if text[key.clone()].contains(&b'\\') => self.note_escaped(text, key, value),
            _ => {}
        }
    }

    /// A key that is spelled with escapes means what it spells.
    fn note_escaped(&mut self, text: &[u8], key: &Range<usize>, value: Range<usize>) {
        match json::string(text, key.clone()).as_deref() {
            Some("id") => self.id = Some(value),
            Some("method") => self.method = Some(value),
            Some("params") => (self.params, self.inside) = (Some(value), None),
            Some("result") => self.result = Some(value),
            Some("error") => self.error = Some(value),
            Some("jsonrpc") => self.version = &text[value] == b"\"2.0\"",
            _ => {}
        }
    }

    /// The places in `params`.
    ///
    /// # Errors
    /// They are there and no object.
    pub fn read_params(&self, text: &[u8]) -> Result<Params, NoObject> {
        self.inside.clone().map_or_else(|| Params::read(text, self.params.clone()), Ok)
    }

    /// The id, if it is a lawful one.
    pub fn peer_id(&self, text: &[u8]) -> Option<PeerId> {
        PeerId::from_token(&text[self.id.clone()?])
    }

    /// Classifies: direction first, then the id space.
    pub fn kind(&self, text: &[u8]) -> Kind {
        let id = self.peer_id(text);
        if self.method.is_some() {
            return match (id, &self.id) {
                (Some(id), _) => Kind::Request(id),
                (None, None) => Kind::Notification,
                (None, Some(_)) => Kind::BadId,
            };
        }
        match (id, &self.result, &self.error) {
            (Some(id), Some(_), None) => Kind::Result(id),
            (Some(id), None, Some(_)) => Kind::Error(id),
            (Some(id), ..) => Kind::Both(id),
            (None, None, Some(_)) => Kind::ErrorWithoutId,
            (None, ..) => Kind::Neither,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<Kind> {
        match read(text.as_bytes()) {
            Line::One(envelope) => Some(envelope.kind(text.as_bytes())),
            _ => None,
        }
    }

    #[test]
    fn messages_are_told_by_their_members() {
        let id = |text: &str| PeerId::from_token(text.as_bytes()).unwrap();
        let check = |text: &str, expected: Kind| assert_eq!(kind(text), Some(expected), "{text}");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, Kind::Request(id("1")));
        check(r#"{"jsonrpc":"2.0","method":"a"}"#, Kind::Notification);
        check(r#"{"id":"x","result":{}}"#, Kind::Result(id("\"x\"")));
        check(r#"{"id":1,"error":{}}"#, Kind::Error(id("1")));
        check(r#"{"id":null,"error":{}}"#, Kind::ErrorWithoutId);
        check(r#"{"id":1,"error":{},"result":{}}"#, Kind::Both(id("1")));
        check(r#"{"id":null,"method":"a"}"#, Kind::BadId);
        check(r#"{"id":1.5,"method":"a"}"#, Kind::BadId);
        check(r#"{"\u0069d":1,"m\u0065thod":"a"}"#, Kind::Request(id("1")));
        check("{}", Kind::Neither);
    }

    #[test]
    fn the_last_params_count_however_they_are_spelled() {
        for (text, name) in [
            (r#"{"params":{"name":"a"}}"#, Ok(Some("a"))),
            (r#"{"params":{"name":"a"},"params":{"name":"b"}}"#, Ok(Some("b"))),
            (r#"{"params":{"name":"a"},"p\u0061rams":{"name":"b"}}"#, Ok(Some("b"))),
            (r#"{"params":{"name":"a"},"params":null}"#, Ok(None)),
            (r#"{"params":{"name":"a"},"params":[]}"#, Err(NoObject)),
            (r#"{"p\u0061rams":{"n\u0061me":"b"}, "x" : 1 }"#, Ok(Some("b"))),
            (r#"{ "params" : { } }"#, Ok(None)),
        ] {
            let Line::One(envelope) = read(text.as_bytes()) else { panic!("{text}") };
            let params = envelope.read_params(text.as_bytes());
            let found = params.map(|params| params.name.map(|at| text[at].trim_matches('"').to_owned()));
            assert_eq!(found.as_ref().map(Option::as_deref), name.as_ref().map(|name| *name), "{text}");
        }
        assert_eq!(read(br#"{"params":{"name":"a",}}"#), Line::Junk);
        assert_eq!(read(br#"{"params":{"name" "a"}}"#), Line::Junk);
    }

    #[test]
    fn junk_is_junk() {
        for text in ["", "{", "hello", "{\"id\":1", "{\"id\":1}}", "{\"a\":1,}", "[1"] {
            assert_eq!(read(text.as_bytes()), Line::Junk, "{text}");
        }
        assert_eq!(read(b"{\"a\":\"\xff\"}"), Line::Junk);
        assert_eq!(read(b"17"), Line::Other);
        assert!(matches!(read(b"[{},1]"), Line::Batch(items) if items.len() == 2));
    }
}
