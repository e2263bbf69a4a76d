//! Places in a JSON text: finds where values begin and end, checks the grammar, and never builds a tree.
//!
//! All functions work on byte offsets into one text. [`skip_value`] checks the whole grammar of RFC 8259 without
//! recursion, so that no nesting can exhaust a stack and no half-valid line is ever passed on; the walkers
//! ([`members`], [`elements`]) are for texts that it has accepted.

use std::borrow::Cow;
use std::ops::Range;

use wide::u8x16;

/// Where a text stops being JSON, as a byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not JSON at byte {0}")]
pub struct Syntax(pub usize);

/// A member of an object: the key with its quotes, and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key's token, quotes included.
    pub key: Range<usize>,
    /// The value's token.
    pub value: Range<usize>,
}

/// Skips white space from `at` on.
#[inline]
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// Finds the end of the value that begins at or after `at`, and checks its grammar.
///
/// # Errors
/// The offset of the first byte that no JSON value can have there.
pub fn skip_value(text: &[u8], mut at: usize) -> Result<usize, Syntax> {
    let mut open = Nesting::default();
    loop {
        at = skip_space(text, at);
        at = match text.get(at) {
            Some(b'{') => {
                at = skip_space(text, at + 1);
                if text.get(at) == Some(&b'}') {
                    at + 1
                } else {
                    open.push(true);
                    at = skip_key(text, at)?;
                    continue;
                }
            }
            Some(b'[') => {
                at = skip_space(text, at + 1);
                if text.get(at) == Some(&b']') {
                    at + 1
                } else {
                    open.push(false);
                    continue;
                }
            }
            Some(b'"') => skip_string(text, at)?,
            Some(b't') => skip_word(text, at, b"true")?,
            Some(b'f') => skip_word(text, at, b"false")?,
            Some(b'n') => skip_word(text, at, b"null")?,
            _ => skip_number(text, at)?,
        };
        loop {
            let Some(in_object) = open.top() else { return Ok(at) };
            at = skip_space(text, at);
            match (text.get(at), in_object) {
                (Some(b','), true) => {
                    at = skip_key(text, skip_space(text, at + 1))?;
                    break;
                }
                (Some(b','), false) => {
                    at += 1;
                    break;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    open.pop();
                    at += 1;
                }
                _ => return Err(Syntax(at)),
            }
        }
    }
}

/// Finds the end of the object that begins at `at`, and checks its grammar. `member` is given each key's token and where
/// its value begins, and says where that ends.
///
/// # Errors
/// As [`skip_value`].
pub fn skip_object(
    text: &[u8],
    at: usize,
    mut member: impl FnMut(Range<usize>, usize) -> Result<usize, Syntax>,
) -> Result<usize, Syntax> {
    let mut at = skip_space(text, at + 1);
    if text.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    loop {
        let key_end = skip_string(text, at)?;
        let colon = skip_space(text, key_end);
        if text.get(colon) != Some(&b':') {
            return Err(Syntax(colon));
        }
        let end = member(at..key_end, skip_space(text, colon + 1))?;
        at = skip_space(text, end);
        match text.get(at) {
            Some(b',') => at = skip_space(text, at + 1),
            Some(b'}') => return Ok(at + 1),
            _ => return Err(Syntax(at)),
        }
    }
}

/// Walks the members of the object at `object`; ends early at what is not one.
pub fn members(text: &[u8], object: Range<usize>) -> Members<'_> {
    let at = skip_space(text, object.start);
    let at = if text.get(at) == Some(&b'{') { Some(at + 1) } else { None };
    Members { text, at }
}

/// The iterator of [`members`].
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: Option<usize>,
}

/// Walks the elements of the array at `array`; ends early at what is not one.
pub fn elements(text: &[u8], array: Range<usize>) -> Elements<'_> {
    let at = skip_space(text, array.start);
    let at = if text.get(at) == Some(&b'[') { Some(at + 1) } else { None };
    Elements { text, at }
}

/// The iterator of [`elements`].
#[derive(Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    at: Option<usize>,
}

/// The value of the last member of that name: a doubled name means its last value, as JSON's common readers have it.
pub fn get(text: &[u8], object: Range<usize>, name: &str) -> Option<Range<usize>> {
    find(text, object, name).map(|member| member.value)
}

/// The last member of that name.
pub fn find(text: &[u8], object: Range<usize>, name: &str) -> Option<Member> {
    members(text, object).filter(|member| key_is(text, &member.key, name)).last()
}

/// Follows names from object to object.
pub fn path(text: &[u8], object: Range<usize>, names: &[&str]) -> Option<Range<usize>> {
    names.iter().try_fold(object, |at, name| get(text, at, name))
}

/// Tells whether the key token spells `name`, escapes decoded.
#[inline]
pub fn key_is(text: &[u8], key: &Range<usize>, name: &str) -> bool {
    let inner = &text[key.start + 1..key.end - 1];
    if inner == name.as_bytes() {
        return true;
    }
    memchr::memchr(b'\\', inner).is_some() && string(text, key.clone()).is_some_and(|key| key == name)
}

/// The string that a token spells; `None` if it is no string.
pub fn string(text: &[u8], token: Range<usize>) -> Option<Cow<'_, str>> {
    let token = text.get(token)?;
    let inner = token.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    match serde_json::from_slice::<String>(token) {
        Ok(text) => Some(Cow::Owned(text)),
        // A lone surrogate is lawful JSON but no Unicode text: take the token as it is spelled.
        Err(_) => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
    }
}

/// The token that spells this string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Tells whether the token is an object.
pub fn is_object(text: &[u8], token: &Range<usize>) -> bool {
    text.get(token.start) == Some(&b'{')
}

/// A non-negative integer token.
pub fn integer(text: &[u8], token: Range<usize>) -> Option<u64> {
    std::str::from_utf8(text.get(token)?).ok()?.parse().ok()
}

// === impl Members ===

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        let mut start = skip_space(self.text, self.at.take()?);
        if self.text.get(start) == Some(&b',') {
            start = skip_space(self.text, start + 1);
        }
        let key_end = skip_string(self.text, start).ok()?;
        let value = skip_space(self.text, skip_space(self.text, key_end) + 1);
        let end = skip_value(self.text, value).ok()?;
        self.at = Some(end);
        Some(Member { key: start..key_end, value: value..end })
    }
}

// === impl Elements ===

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let mut start = skip_space(self.text, self.at.take()?);
        if self.text.get(start) == Some(&b',') {
            start = skip_space(self.text, start + 1);
        }
        let end = skip_value(self.text, start).ok()?;
        self.at = Some(end);
        Some(start..end)
    }
}

/// Which brackets are open, one bit each: true is an object.
#[derive(Default)]
struct Nesting {
    depth: usize,
    bits: u64,
    below: Vec<u64>,
}

impl Nesting {
    #[inline]
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.below.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.below.pop().unwrap_or_default();
        }
    }

    #[inline]
    fn top(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }
}

/// Skips a key, the colon behind it, and what is white around them.
#[inline]
fn skip_key(text: &[u8], at: usize) -> Result<usize, Syntax> {
    let at = skip_space(text, skip_string(text, at)?);
    if text.get(at) == Some(&b':') { Ok(at + 1) } else { Err(Syntax(at)) }
}

/// Skips a string token that begins exactly at `at`.
#[inline]
pub fn skip_string(text: &[u8], at: usize) -> Result<usize, Syntax> {
    if text.get(at) != Some(&b'"') {
        return Err(Syntax(at));
    }
    let from = at + 1;
    // Most strings are keys and short values: one lane tells their end.
    let Some(lane) = text.get(from..).and_then(|rest| rest.first_chunk()) else { return skip_rest(text, from) };
    let marks = stops(u8x16::new(*lane)).to_bitmask();
    let stop = from + marks.trailing_zeros() as usize;
    if marks != 0 && text[stop] == b'"' { Ok(stop + 1) } else { skip_long(text, from) }
}

/// Bytes that are compared at once.
const LANE: usize = 16;
/// Bytes whose stops fit into one integer.
const BLOCK: usize = 64;

/// Where a string may end or needs a look: a quote, a backslash, a control character.
#[inline]
fn stops(bytes: u8x16) -> u8x16 {
    let control = bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    is(bytes, b'"') | is(bytes, b'\\') | control
}

#[inline]
fn is(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

/// One bit for each byte of a block of which that is so.
#[inline]
fn places(block: &[u8x16; BLOCK / LANE], of: impl Fn(u8x16) -> u8x16) -> u64 {
    let [a, b, c, d] = block.map(|lane| u64::from(of(lane).to_bitmask()));
    (a | b << LANE) | (c << (2 * LANE) | d << (3 * LANE))
}

/// The bytes behind a backslash that is not itself escaped, as in simdjson: in a run of backslashes every second one
/// escapes, and an addition carries the parity of the run's length to its end. `carry` says whether the first byte is one
/// of them, and then whether the first byte behind the block is.
#[inline]
fn escaped(backslashes: u64, carry: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslashes = backslashes & !u64::from(*carry);
    let follows = backslashes << 1 | u64::from(*carry);
    let odd_starts = backslashes & !EVEN & !follows;
    let (even_ends, overflow) = odd_starts.overflowing_add(backslashes);
    *carry = overflow;
    (EVEN ^ (even_ends << 1)) & follows
}

/// Goes on inside a string, a block at a time: the escapes of a block are told apart and checked all at once, so that it
/// makes no difference to the processor's guesses where and how many they are.
#[inline(never)]
fn skip_long(text: &[u8], mut at: usize) -> Result<usize, Syntax> {
    let mut carry = false;
    while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        let (lanes, _) = block.as_chunks();
        let block = [0, 1, 2, 3].map(|lane| u8x16::new(lanes[lane]));
        let stops = places(&block, stops);
        if stops == 0 && !carry {
            at += BLOCK;
            continue;
        }
        let backslashes = places(&block, |lane| is(lane, b'\\'));
        let escaped = escaped(backslashes, &mut carry);
        let end = stops & !backslashes & !escaped;
        let before_end = end.wrapping_sub(1) & !end;
        // The escapes that texts are full of; any other one is looked at alone.
        let common = places(&block, |lane| (is(lane, b'"') | is(lane, b'\\')) | (is(lane, b'n') | is(lane, b't')));
        let mut rare = escaped & !common & before_end;
        while rare != 0 {
            skip_escape(text, at + rare.trailing_zeros() as usize - 1)?;
            rare &= rare - 1;
        }
        if end != 0 {
            let end = at + end.trailing_zeros() as usize;
            return if text[end] == b'"' { Ok(end + 1) } else { Err(Syntax(end)) };
        }
        at += BLOCK;
    }
    skip_rest(text, at - usize::from(carry))
}

/// Goes on inside a string, a byte at a time.
fn skip_rest(text: &[u8], mut at: usize) -> Result<usize, Syntax> {
    loop {
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\' | ..0x20) => at = skip_escape(text, at)?,
            Some(_) => at += 1,
            None => return Err(Syntax(at)),
        }
    }
}

/// Skips the escape that begins at `at`; a control character there is none.
#[inline]
fn skip_escape(text: &[u8], at: usize) -> Result<usize, Syntax> {
    match (text[at], text.get(at + 1)) {
        (b'\\', Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => Ok(at + 2),
        (b'\\', Some(b'u')) => {
            let digits = text.get(at + 2..at + 6).ok_or(Syntax(at))?;
            if digits.iter().all(u8::is_ascii_hexdigit) { Ok(at + 6) } else { Err(Syntax(at)) }
        }
        _ => Err(Syntax(at)),
    }
}

fn skip_word(text: &[u8], at: usize, word: &[u8]) -> Result<usize, Syntax> {
    if text[at..].starts_with(word) { Ok(at + word.len()) } else { Err(Syntax(at)) }
}

fn skip_number(text: &[u8], at: usize) -> Result<usize, Syntax> {
    let digits = |mut at: usize| {
        let from = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at > from { Ok(at) } else { Err(Syntax(at)) }
    };
    let mut end = if text.get(at) == Some(&b'-') { at + 1 } else { at };
    end = if text.get(end) == Some(&b'0') { end + 1 } else { digits(end)? };
    if text.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        end += 1;
        if let Some(b'+' | b'-') = text.get(end) {
            end += 1;
        }
        end = digits(end)?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &[u8]) -> bool {
        skip_value(text, 0).is_ok_and(|end| skip_space(text, end) == text.len())
    }

    #[test]
    fn the_grammar_is_that_of_the_standard() {
        let deep = format!("{}1{}", "[{\"a\":".repeat(5000), "}]".repeat(5000));
        for good in [
            "1",
            "-0",
            "1.0e+5",
            "1e400",
            "\"\"",
            "\"\\u00e9\\n\\/\"",
            "[]",
            "{}",
            " [1 , {\"a\" : null}] ",
            "true",
            "{\"a\":[{},[[]],\"x\"],\"b\":false}",
            &deep,
        ] {
            assert!(whole(good.as_bytes()), "{good:.60}");
        }
        for bad in [
            "",
            "{",
            "}",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\t\"",
            "tru",
            "nul",
            "[1 2]",
            "{\"a\" 1}",
            "[}",
            "{\"a\":1]",
            "NaN",
            "'a'",
        ] {
            assert!(!whole(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_string_ends_where_it_ends_wherever_that_lies_in_a_block() {
        for before in 0..140 {
            for after in [0, 1, 15, 16, 70, 140] {
                let check = |middle: &str, good: bool| {
                    let text = format!("\"{}{middle}{}\" ", "a".repeat(before), "b".repeat(after));
                    let end = skip_string(text.as_bytes(), 0).ok();
                    assert_eq!(end, good.then_some(text.len() - 1), "{text}");
                };
                for good in ["", "\\n", "\\u00e9", "\\\\", "\\\"", "\\\\\\\"\\/", "é"] {
                    check(good, true);
                }
                for bad in ["\t", "\\x", "\\u12g4", "\u{1f}"] {
                    check(bad, false);
                }
            }
            let open = format!("\"{}", "a".repeat(before));
            assert_eq!(skip_string(open.as_bytes(), 0), Err(Syntax(open.len())));
        }
    }

    #[test]
    fn members_and_elements_are_found_where_they_stand() {
        let text = br#" { "a" : 1 , "b\u0062" : [ 1, "x" ,{} ], "a":2 } "#;
        let names: Vec<_> = members(text, 0..text.len()).map(|m| string(text, m.key).unwrap().into_owned()).collect();
        assert_eq!(names, ["a", "bb", "a"]);
        let doubled = get(text, 0..text.len(), "a").unwrap();
        assert_eq!(&text[doubled], b"2");
        let list = get(text, 0..text.len(), "bb").unwrap();
        let items: Vec<_> = elements(text, list).map(|e| &text[e]).collect();
        assert_eq!(items, [&b"1"[..], b"\"x\"", b"{}"]);
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{},:"\\a-cu0-2eE.+\- tfn]{0,24}"#) {
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(whole(text.as_bytes()), theirs, "{}", text);
        }

        /// Runs of backslashes of any length before, at and behind the border of a block, between what is mostly harmless.
        #[test]
        fn agrees_with_serde_json_about_escapes(
            before in 0_usize..70,
            parts in proptest::collection::vec((r#"\\\\{0,9}["nu\tx/]?[0-9a-f]{0,4}"#, 0_usize..70), 0..6),
        ) {
            let mut text = format!("\"{}", "a".repeat(before));
            for (part, plain) in parts {
                text += &part;
                text += &"b".repeat(plain);
            }
            let mut ends = serde_json::Deserializer::from_str(&text).into_iter::<&serde_json::value::RawValue>();
            let theirs = ends.next().and_then(Result::ok).map(|token| token.get().len());
            prop_assert_eq!(skip_string(text.as_bytes(), 0).ok(), theirs, "{}", text);
        }

        #[test]
        fn accepts_what_serde_json_writes(values in proptest::collection::vec(".*", 0..8)) {
            let text = serde_json::to_string(&values).unwrap();
            prop_assert!(whole(text.as_bytes()));
            let back: Vec<_> = elements(text.as_bytes(), 0..text.len())
                .map(|e| string(text.as_bytes(), e).unwrap().into_owned()).collect();
            prop_assert_eq!(back, values);
        }
    }
}
