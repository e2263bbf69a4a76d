//! Text of others that is written down: masked and bounded.

use std::borrow::Cow;
use std::fmt::Write as _;

use memchr::memchr;

/// Replaces the known secret values in a text (`DESIGN.md` P11).
pub type Mask<'m> = dyn Fn(&str) -> Cow<'_, str> + 'm;

/// How much of a call's arguments a row keeps, in bytes.
pub const ARGUMENTS_BOUND: usize = 8 * 1024;

/// How much of a late result a row keeps, in bytes.
pub const RESULT_BOUND: usize = 16 * 1024;

/// Much more than what is kept is masked, so that a secret at the cut is not kept in half.
const MASKED_OVER_KEPT: usize = 4;

/// JSON text, or the head of one that was too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The text, or its head.
    pub text: String,
    /// How many bytes the whole had.
    pub length: u64,
    /// Whether `text` is only a head.
    pub cut: bool,
}

/// Masks nothing.
pub fn no_mask(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

/// Masks a JSON text, also where a secret is spelled with escapes. A text that is no JSON is masked as it stands.
pub fn mask_json<'t>(text: &'t str, mask: &Mask<'_>) -> Cow<'t, str> {
    if memchr(b'\\', text.as_bytes()).is_none() {
        return mask(text);
    }
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(open) = memchr(b'"', &text.as_bytes()[at..]).map(|found| at + found) {
        let Ok(close) = crate::wire::json::skip_string(text.as_bytes(), open) else { break };
        let token = &text[open..close];
        if memchr(b'\\', token.as_bytes()).is_some()
            && let Ok(plain) = serde_json::from_str::<String>(token)
            && let Cow::Owned(masked) = mask(&plain)
        {
            out.push_str(&text[copied..open]);
            let _ = write!(out, "{}", serde_json::Value::from(masked));
            copied = close;
        }
        at = close;
    }
    if copied == 0 {
        return mask(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(mask(&out).into_owned())
}

/// The longest head of at most `bound` bytes.
fn head(text: &str, bound: usize) -> &str {
    &text[..text.floor_char_boundary(bound)]
}

// === impl Kept ===

impl Kept {
    /// Keeps at most `bound` bytes of a JSON text.
    pub fn new(text: &str, bound: usize, mask: &Mask<'_>) -> Self {
        let masked = mask_json(head(text, bound * MASKED_OVER_KEPT), mask);
        let kept = head(&masked, bound);
        let cut = kept.len() < masked.len() || text.len() > bound * MASKED_OVER_KEPT;
        Self { text: kept.to_owned(), length: text.len() as u64, cut }
    }

    /// Takes as much of a JSON text as [`Kept::masked`] needs to keep `bound` bytes of it.
    pub fn unmasked(text: &str, bound: usize) -> Self {
        let taken = head(text, bound * MASKED_OVER_KEPT);
        Self { text: taken.to_owned(), length: text.len() as u64, cut: taken.len() < text.len() }
    }

    /// Masks what was taken as it came, and keeps at most `bound` bytes of it.
    #[must_use]
    pub fn masked(&self, bound: usize, mask: &Mask<'_>) -> Self {
        let kept = Self::new(&self.text, bound, mask);
        Self { cut: kept.cut || self.cut, length: self.length, ..kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(text: &str) -> Cow<'_, str> {
        if ["s3cret\"x", "päss"].iter().any(|secret| text.contains(secret)) {
            Cow::Owned(text.replace("s3cret\"x", "***").replace("päss", "***"))
        } else {
            Cow::Borrowed(text)
        }
    }

    #[test]
    fn secrets_are_masked_however_they_are_spelled() {
        for (given, expected) in [
            (r#"{"a":"päss"}"#, r#"{"a":"***"}"#),
            (r#"{"a":"p\u00e4ss","b":"x\ny"}"#, r#"{"a":"***","b":"x\ny"}"#),
            (r#"{"a":"p\u00e4ss","b":"päss"}"#, r#"{"a":"***","b":"***"}"#),
            (r#"{"a":"1 s3cret\"x 2"}"#, r#"{"a":"1 *** 2"}"#),
            (r#"{"a\n":"none"}"#, r#"{"a\n":"none"}"#),
            (r#"{"a":"\ud800","b":"päss"}"#, r#"{"a":"\ud800","b":"***"}"#),
            (r#"{"a":"\n päss"#, r#"{"a":"\n ***"#),
        ] {
            assert_eq!(mask_json(given, &mask), expected);
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let whole = Kept::new("[1,2]", 5, &no_mask);
        assert_eq!((whole.text.as_str(), whole.length, whole.cut), ("[1,2]", 5, false));
        let cut = Kept::new("\"ääää\"", 4, &no_mask);
        assert_eq!((cut.text.as_str(), cut.length, cut.cut), ("\"ä", 10, true));
        let taken = Kept::unmasked("päss-päss-päss-", 4);
        let masked = |text: &str, length, cut| Kept { text: text.into(), length, cut };
        assert_eq!((taken.text.as_str(), taken.length, taken.cut), ("päss-päss-päs", 18, true));
        assert_eq!(taken.masked(5, &mask), masked("***-*", 18, true));
        assert_eq!(Kept::unmasked("päss", 2).masked(5, &mask), masked("***", 5, false));
        let long = "x".repeat(100);
        assert_eq!(Kept::new(&long, 4, &no_mask), Kept { text: "xxxx".into(), length: 100, cut: true });
    }
}
