//! Ids, each of its own type, so that one can't stand where another belongs (`PROTOCOL.md` 1.3).

use compact_str::CompactString;

use super::json;

/// The text of an id or a progress token that a peer chose: a JSON string or integer, kept as it was spelled and
/// compared by type and value.
#[derive(Clone, Debug)]
pub struct PeerId {
    /// The token as it arrived.
    raw: CompactString,
    value: Value,
}

/// What a token means.
#[derive(Clone, Debug)]
enum Value {
    /// A number as nearly all ids are: compared at once.
    Number(u64),
    /// What is spelled.
    Spelled,
    /// A string with its escapes decoded.
    Decoded(Box<str>),
}

/// A value to compare. The quotes of a string stay, so that `1` and `"1"` differ.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key<'a> {
    Number(u64),
    Text(&'a str),
}

/// The host's id of its own request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub PeerId);

/// A child's id of its own request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(pub PeerId);

/// Our number of a request to a child: also its progress token and the `requestId` of its cancellation. Counts on over
/// the generations of a child and is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireId(pub u64);

/// Our number of a request to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OurId(pub u64);

// === impl PeerId ===

impl PeerId {
    /// Takes a token that is a string or an integer; `None` for anything else (`PROTOCOL.md` R5).
    pub fn from_token(token: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(token).ok()?;
        let lawful = match token.first()? {
            b'"' => true,
            b'-' | b'0'..=b'9' => !token.iter().any(|b| matches!(b, b'.' | b'e' | b'E')),
            _ => false,
        };
        if !lawful {
            return None;
        }
        let value = if let Some(number) = plain_number(text) {
            Value::Number(number)
        } else if text.contains('\\') {
            let plain = json::string(token, 0..token.len()).unwrap_or_default();
            Value::Decoded(format!("\"{plain}\"").into_boxed_str())
        } else {
            Value::Spelled
        };
        Some(Self { raw: CompactString::from(text), value })
    }

    /// The number, if it is one that has one spelling.
    pub fn number(&self) -> Option<u64> {
        match self.value {
            Value::Number(number) => Some(number),
            Value::Spelled | Value::Decoded(_) => None,
        }
    }

    /// The token as it arrived.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    fn key(&self) -> Key<'_> {
        match &self.value {
            Value::Number(number) => Key::Number(*number),
            Value::Spelled => Key::Text(&self.raw),
            Value::Decoded(text) => Key::Text(text),
        }
    }
}

/// Digits that fit into the type and do not begin with a needless zero.
fn plain_number(text: &str) -> Option<u64> {
    let lawful = text.len() < 20 && (text == "0" || !text.starts_with('0')) && text.bytes().all(|b| b.is_ascii_digit());
    lawful.then(|| text.parse().ok()).flatten()
}

impl PartialEq for PeerId {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PeerId {}

impl PartialOrd for PeerId {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PeerId {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (&self.value, &other.value) {
            (Value::Number(own), Value::Number(other)) => own.cmp(other),
            _ => self.key().cmp(&other.key()),
        }
    }
}

impl std::hash::Hash for PeerId {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Display for HostId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_value_tell_ids_apart() {
        let id = |text: &str| PeerId::from_token(text.as_bytes());
        assert_eq!(id("\"a\""), id("\"\\u0061\""));
        assert_ne!(id("1"), id("\"1\""));
        for bad in ["null", "1.5", "1e3", "true", "{}", "[1]", ""] {
            assert!(id(bad).is_none(), "{bad}");
        }
        assert_eq!((id("10").unwrap().number(), id("-1").unwrap().number()), (Some(10), None));
        assert_ne!(id("0"), id("-0"));
        for good in ["0", "-1", "18446744073709551616", "9999999999999999999", "9007199254740993", "\"\"", "\"a-b\""] {
            assert_eq!(id(good).unwrap().raw(), good);
        }
    }
}
