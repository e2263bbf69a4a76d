//! The canonical digest of a call: how it is told that two calls are the same.
//!
//! Key order, white space, escapes and the spelling of numbers make no difference; the order of an array does. Numbers
//! are compared as exact decimals, never as floats. Of a doubled key the last value counts.

use std::fmt;
use std::str::FromStr;

use memchr::memchr2;
use sha2::{Digest as _, Sha256};

use crate::wire::json;

/// Arguments above this many bytes are compared as they are spelled: the message path does not stop for them.
pub const LITERAL_ABOVE: usize = 1024 * 1024;

/// What is nested deeper is compared as it is spelled; it also bounds our own recursion.
const LITERAL_BELOW: usize = 64;

/// A buffer that grew over this is given back.
const KEEP_BUFFER: usize = 64 * 1024;

/// The digest of server, tool and arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 16]);

/// Makes digests, and keeps its buffers from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Digester {
    out: Vec<u8>,
    spare: Vec<u8>,
    members: Vec<Member>,
}

/// A member of an object in the canonical text.
#[derive(Clone, Copy, Debug)]
struct Member {
    start: usize,
    key_end: usize,
    end: usize,
}

/// The text is no JSON.
struct Malformed;

/// One pass over one text.
struct Pass<'a> {
    text: &'a [u8],
    at: usize,
    to: &'a mut Digester,
}

// === impl Digest ===

impl Digest {
    /// Its 32 hexadecimal digits.
    pub fn text(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.text()).expect("digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).map_err(drop)?;
        bytes.try_into().map(Self).map_err(drop)
    }
}

// === impl Digester ===

impl Digester {
    /// The digest of a call. No arguments are the same as `{}`; arguments that are no JSON are compared byte by byte.
    pub fn digest(&mut self, server: &str, tool: &str, arguments: Option<&[u8]>) -> Digest {
        let arguments = arguments.unwrap_or(b"{}");
        let mut hash = Sha256::new();
        for part in [server, tool] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        if arguments.len() <= LITERAL_ABOVE && self.canonical(arguments).is_ok() {
            hash.update(&self.out);
        } else {
            hash.update(b"!");
            hash.update(arguments);
        }
        if self.out.capacity() > KEEP_BUFFER {
            *self = Self::default();
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        Digest(digest)
    }

    /// Leaves the canonical text in `out`.
    fn canonical(&mut self, text: &[u8]) -> Result<(), Malformed> {
        self.out.clear();
        self.members.clear();
        let mut pass = Pass { text, at: 0, to: self };
        pass.value(0)?;
        pass.skip_space();
        if pass.at == text.len() { Ok(()) } else { Err(Malformed) }
    }

    /// Puts the members from `first` on, whose text begins at `base`, in the order of their keys.
    fn sort_members(&mut self, first: usize, base: usize) {
        let Self { out, spare, members } = self;
        let key = |member: &Member| &out[member.start..member.key_end];
        if !members[first..].is_sorted_by(|a, b| key(a) < key(b)) {
            // A stable sort keeps doubled keys in their order, so the last of them is the one that counts.
            members[first..].sort_by(|a, b| key(a).cmp(key(b)));
            spare.clear();
            for (index, member) in members.iter().enumerate().skip(first) {
                if members.get(index + 1).is_none_or(|next| key(next) != key(member)) {
                    spare.extend_from_slice(&out[member.start..member.end]);
                }
            }
            out.truncate(base);
            out.extend_from_slice(spare);
        }
        members.truncate(first);
    }
}

// === impl Pass ===

impl Pass<'_> {
    fn skip_space(&mut self) {
        self.at = json::skip_space(self.text, self.at);
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Takes this byte, if it comes next after white space.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<(), Malformed> {
        self.skip_space();
        match self.peek().ok_or(Malformed)? {
            b'{' | b'[' if depth == LITERAL_BELOW => self.literal(),
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.literal(),
        }
    }

    /// Copies a value as it is spelled.
    fn literal(&mut self) -> Result<(), Malformed> {
        let end = json::skip_value(self.text, self.at).map_err(|_| Malformed)?;
        self.to.out.extend_from_slice(&self.text[self.at..end]);
        self.at = end;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.to.out.push(b'[');
        if !self.take(b']') {
            loop {
                self.value(depth + 1)?;
                self.to.out.push(b',');
                if self.take(b']') {
                    break;
                }
                if !self.take(b',') {
                    return Err(Malformed);
                }
            }
        }
        self.to.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), Malformed> {
        self.at += 1;
        self.to.out.push(b'{');
        let (first, base) = (self.to.members.len(), self.to.out.len());
        if !self.take(b'}') {
            loop {
                self.skip_space();
                let start = self.to.out.len();
                self.string()?;
                let key_end = self.to.out.len();
                if !self.take(b':') {
                    return Err(Malformed);
                }
                self.value(depth + 1)?;
                self.to.out.push(b',');
                self.to.members.push(Member { start, key_end, end: self.to.out.len() });
                if self.take(b'}') {
                    break;
                }
                if !self.take(b',') {
                    return Err(Malformed);
                }
            }
        }
        self.to.sort_members(first, base);
        self.to.out.push(b'}');
        Ok(())
    }

    /// Writes the string with `"` and `\` escaped and all else as itself; a lone surrogate as its three bytes.
    fn string(&mut self) -> Result<(), Malformed> {
        if self.peek() != Some(b'"') {
            return Err(Malformed);
        }
        self.at += 1;
        self.to.out.push(b'"');
        loop {
            let rest = &self.text[self.at..];
            let stop = memchr2(b'"', b'\\', rest).ok_or(Malformed)?;
            self.to.out.extend_from_slice(&rest[..stop]);
            self.at += stop + 1;
            if rest[stop] == b'"' {
                self.to.out.push(b'"');
                return Ok(());
            }
            self.escape()?;
        }
    }

    /// Writes what the escape after the backslash means.
    fn escape(&mut self) -> Result<(), Malformed> {
        let kind = self.peek().ok_or(Malformed)?;
        self.at += 1;
        let plain = match kind {
            b'"' | b'\\' => {
                self.to.out.extend_from_slice(&[b'\\', kind]);
                return Ok(());
            }
            b'/' => b'/',
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(Malformed),
        };
        self.to.out.push(plain);
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<(), Malformed> {
        let high = self.hex(self.at)?;
        self.at += 4;
        let mut code = high;
        if (0xd800..0xdc00).contains(&high)
            && self.text[self.at..].starts_with(b"\\u")
            && let Ok(low @ 0xdc00..0xe000) = self.hex(self.at + 2)
        {
            self.at += 6;
            code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        }
        let out = &mut self.to.out;
        match char::from_u32(code) {
            Some(char @ ('"' | '\\')) => out.extend_from_slice(&[b'\\', char as u8]),
            Some(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            None => {
                let [_, _, top, low] = code.to_be_bytes();
                out.extend_from_slice(&[0xe0 | top >> 4, 0x80 | (top & 15) << 2 | low >> 6, 0x80 | low & 63]);
            }
        }
        Ok(())
    }

    fn hex(&self, at: usize) -> Result<u32, Malformed> {
        let digits = self.text.get(at..at + 4).ok_or(Malformed)?;
        digits.iter().try_fold(0, |value, &digit| {
            let digit = char::from(digit).to_digit(16).ok_or(Malformed)?;
            Ok(value << 4 | digit)
        })
    }

    /// Writes the number as its digits without zeros at either end and, unless it is 0, a power of ten.
    fn number(&mut self) -> Result<(), Malformed> {
        let end = json::skip_value(self.text, self.at).map_err(|_| Malformed)?;
        let token = &self.text[self.at..end];
        self.at = end;
        let (negative, token) = match token.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, token),
        };
        let mantissa_end = token.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(token.len());
        let (mantissa, exponent) = token.split_at(mantissa_end);
        let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
        let fraction = mantissa.len() - (point + 1).min(mantissa.len());

        let out = &mut self.to.out;
        let start = out.len();
        if negative {
            out.push(b'-');
        }
        let first = out.len();
        let digits = mantissa.iter().copied().filter(u8::is_ascii_digit).skip_while(|&digit| digit == b'0');
        out.extend(digits);
        let zeros = out[first..].iter().rev().take_while(|&&digit| digit == b'0').count();
        out.truncate(out.len() - zeros);
        if out.len() == first {
            out.truncate(start);
            out.push(b'0');
            return Ok(());
        }
        let shift = zeros as i128 - fraction as i128;
        if let Some(power) = parse_exponent(exponent) {
            push_power(out, power + shift);
        } else {
            // A power beyond all use is compared as it is spelled.
            push_power(out, shift);
            out.extend_from_slice(exponent);
        }
        Ok(())
    }
}

fn push_power(out: &mut Vec<u8>, power: i128) {
    if power != 0 {
        out.push(b'e');
        out.extend_from_slice(power.to_string().as_bytes());
    }
}

/// The power after `e`; empty: 0; `None`: more than 30 digits.
fn parse_exponent(text: &[u8]) -> Option<i128> {
    let Some(text) = text.get(1..) else { return Some(0) };
    let (negative, text) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let zeros = text.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &text[zeros..];
    if digits.len() > 30 {
        return None;
    }
    let power = digits.iter().fold(0, |power: i128, digit| power * 10 + i128::from(digit - b'0'));
    Some(if negative { -power } else { power })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn digest(arguments: &str) -> Digest {
        Digester::default().digest("s", "t", Some(arguments.as_bytes()))
    }

    fn canonical(text: &str) -> Vec<u8> {
        let mut digester = Digester::default();
        assert!(digester.canonical(text.as_bytes()).is_ok(), "{text}");
        digester.out
    }

    #[test]
    fn the_same_call_has_one_digest() {
        let nines = "9".repeat(500);
        for (left, right) in [
            ("1", "1.0"),
            ("1", "1e0"),
            ("1", "0.1E+1"),
            ("1", "10000e-0004"),
            ("0", "-0.000e99"),
            ("1e400", "10e399"),
            ("100", "1e2"),
            ("-12.50", "-125e-1"),
            (&nines, &format!("{nines}.0")),
            ("1e99999999999999999999999999999999", " 1e99999999999999999999999999999999 "),
            (r#"{"a":1,"b":[2,3]}"#, "{ \"b\" : [ 2 , 3.0 ],\t\"a\":1 }"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"b":0,"a":1,"b":9,"a":2}"#, r#"{"a":2,"b":9}"#),
            (r#""A\/\n\u00e9""#, "\"\\u0041/\\u000aé\""),
            (r#""\ud83d\ude00""#, r#""😀""#),
            (r#"{"\u0061":1}"#, r#"{"a":1}"#),
            (r#""\u0022\u005c""#, r#""\"\\""#),
        ] {
            assert_eq!(digest(left), digest(right), "{left} {right}");
        }
        assert_eq!(Digester::default().digest("s", "t", None), digest("{}"));
    }

    #[test]
    fn another_call_has_another_digest() {
        for (left, right) in [
            ("9007199254740993", "9007199254740992"),
            ("1e400", "1e401"),
            ("0.1", "0.10000000000000001"),
            ("1", "\"1\""),
            ("1", "-1"),
            ("[1,2]", "[2,1]"),
            ("[1,2]", "[12]"),
            ("[[1],2]", "[[1,2]]"),
            ("null", "\"null\""),
            ("{}", "[]"),
            (r#"{"a":null}"#, "{}"),
            (r#"{"a":"b"}"#, r#"{"b":"a"}"#),
            (r#""\\n""#, r#""\n""#),
            (r#""\ud800""#, r#""\ud801""#),
            (r#""\ud800""#, r#""\ufffd""#),
        ] {
            assert_ne!(digest(left), digest(right), "{left} {right}");
        }
        let mut digester = Digester::default();
        assert_ne!(digester.digest("ab", "c", None), digester.digest("a", "bc", None));
    }

    #[test]
    fn depth_and_size_are_bounded_and_junk_is_taken() {
        let deep = |inner: &str, depth: usize| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(digest(&deep("1", 60)), digest(&deep("1.0", 60)));
        assert_ne!(digest(&deep("1", 100_000)), digest(&deep("2", 100_000)));
        let nested = |depth: usize| format!("{}1{}", r#"{"b":"#.repeat(depth), r#","a":1}"#.repeat(depth));
        digest(&nested(50_000));
        let long = format!("\"{}\"", "x".repeat(LITERAL_ABOVE));
        assert_eq!(digest(&long), digest(&long));
        for junk in ["", "{", "[1", "[1,]", "{1:2}", "\"\\x\"", "1 2", "\"\\u12\"", "tru", "-", "{\"a\"}"] {
            assert_eq!(digest(junk), digest(junk));
            assert_ne!(digest(junk), digest("{}"));
        }
    }

    #[test]
    fn digests_can_be_read_back() {
        let known = digest("{}");
        assert_eq!(known.to_string().parse(), Ok(known));
        assert_eq!("00".parse::<Digest>(), Err(()));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".{0,4}", inner), 0..6)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    /// Another spelling of the same value.
    fn respell(value: &Value, salt: usize) -> String {
        let spaces = [" ", "", "\t", "\n "][salt % 4];
        let inner = |value: &Value| respell(value, salt / 2 + 1);
        match value {
            Value::Number(number) if salt % 3 == 1 => format!("{number}.0"),
            Value::Number(number) if salt % 3 == 2 => format!("{number}00E-2"),
            Value::String(text) if salt % 2 == 1 => {
                let escapes = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
                format!("\"{}\"", escapes.collect::<String>())
            }
            Value::Array(items) => format!("[{spaces}{}]", items.iter().map(inner).collect::<Vec<_>>().join(", ")),
            Value::Object(members) => {
                let key = |key: &String| respell(&Value::from(key.as_str()), salt);
                let members =
                    members.iter().rev().map(|(name, value)| format!("{}{spaces}:{}", key(name), inner(value)));
                format!("{{{}{spaces}}}", members.collect::<Vec<_>>().join(","))
            }
            other => other.to_string(),
        }
    }

    proptest! {
        #[test]
        fn spelling_makes_no_difference(value in any_json(), salt in 0_usize..64) {
            prop_assert_eq!(canonical(&value.to_string()), canonical(&respell(&value, salt)));
        }

        #[test]
        fn values_that_differ_differ(left in any_json(), right in any_json()) {
            // Objects of `serde_json` compare without regard to order, as the digest must.
            prop_assert_eq!(left == right, canonical(&left.to_string()) == canonical(&right.to_string()));
        }

        #[test]
        fn no_input_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut digester = Digester::default();
            prop_assert_eq!(
                digester.digest("s", "t", Some(&bytes)),
                Digester::default().digest("s", "t", Some(&bytes))
            );
        }
    }
}
