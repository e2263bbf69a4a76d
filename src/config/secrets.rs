//! Masking of known secrets in texts that people or logs will see.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces every known secret in a text with `***`.
#[derive(Clone)]
pub struct Masker {
    /// Longest first, so that a secret that begins with another is covered whole.
    needles: Vec<String>,
    /// Which bytes a needle may begin with.
    starts: [bool; 256],
}

const MASK: &str = "***";

// === impl Masker ===

impl Masker {
    /// Knows these values, and how they are spelled inside JSON and debug output.
    pub fn new<S: AsRef<str>>(values: impl IntoIterator<Item = S>) -> Self {
        let mut needles: Vec<String> = Vec::new();
        for value in values {
            needles.extend(spellings(value.as_ref()).into_iter().filter(|needle| !needle.is_empty()));
        }
        needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        needles.dedup();
        let mut starts = [false; 256];
        for needle in &needles {
            starts[usize::from(needle.as_bytes()[0])] = true;
        }
        Self { needles, starts }
    }

    /// Whether it knows no secret.
    pub fn is_empty(&self) -> bool {
        self.needles.is_empty()
    }

    /// The text with each secret replaced; secrets that overlap are replaced as one.
    pub fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.needles.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::new();
        // Up to where the text was taken over, and up to where the last secret reaches.
        let (mut done, mut covered) = (0, 0);
        for at in 0..text.len() {
            if !self.starts[usize::from(text.as_bytes()[at])] {
                continue;
            }
            // A needle begins with a whole character, so it is only found where one begins.
            let Some(needle) = self.needles.iter().find(|needle| text.as_bytes()[at..].starts_with(needle.as_bytes()))
            else {
                continue;
            };
            if at >= covered {
                masked.push_str(&text[done..at]);
                masked.push_str(MASK);
            }
            covered = covered.max(at + needle.len());
            done = covered;
        }
        if covered == 0 {
            return Cow::Borrowed(text);
        }
        masked.push_str(&text[done..]);
        Cow::Owned(masked)
    }
}

impl Default for Masker {
    /// Knows nothing.
    fn default() -> Self {
        Self { needles: Vec::new(), starts: [false; 256] }
    }
}

impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masker({} spellings)", self.needles.len())
    }
}

/// A value as it is, as JSON writes it, as JSON in ASCII writes it, and as Rust's debug output does.
fn spellings(value: &str) -> Vec<String> {
    let json = serde_json::Value::from(value).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let mut ascii = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(ascii, "\\u{unit:04x}").expect("a string takes any text");
            }
        }
    }
    let slashes = ascii.replace('/', "\\/");
    vec![value.to_owned(), json, ascii, slashes, value.escape_debug().to_string()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks() {
        for (secrets, text, expected) in [
            (&["hunter2!"][..], "password hunter2! is wrong: hunter2!", "password *** is wrong: ***"),
            (&["abcd", "abcdefgh"], "x abcdefgh y abcd", "x *** y ***"),
            (&["abcd1234", "1234wxyz"], "<abcd1234wxyz>", "<***>"),
            (&["a\"b\\c"], r#"{"k":"a\"b\\c"}"#, r#"{"k":"***"}"#),
            (&["gehöim42"], r#"{"k":"geh\u00f6im42"}"#, r#"{"k":"***"}"#),
            (&["gehöim42"], "é gehöim42 é", "é *** é"),
            (&["aaaa"], "aaaaaa", "***"),
            (&["https://u:p@h/"], r"https:\/\/u:p@h\/x", "***x"),
            (&["line one\nline two"], r#""line one\nline two""#, r#""***""#),
        ] {
            assert_eq!(Masker::new(secrets).mask(text), expected, "{secrets:?} in {text:?}");
        }
    }

    #[test]
    fn nothing_known_costs_nothing() {
        assert!(matches!(Masker::default().mask("text"), Cow::Borrowed("text")));
        assert!(matches!(Masker::new(["secret"]).mask("text"), Cow::Borrowed("text")));
    }

    proptest! {
        #[test]
        fn no_secret_survives(secrets in proptest::collection::vec("[a-c\"é]{4,8}", 1..4), parts in proptest::collection::vec("[a-c é]{0,5}", 0..6)) {
            let masker = Masker::new(&secrets);
            let mut text = String::new();
            for (index, part) in parts.iter().enumerate() {
                text.push_str(part);
                text.push_str(&secrets[index % secrets.len()]);
            }
            let masked = masker.mask(&text);
            for secret in &secrets {
                prop_assert!(!masked.contains(secret.as_str()));
            }
        }
    }
}
