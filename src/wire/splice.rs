//! Replacements in a message that otherwise stays the bytes that it was.

use std::ops::Range;

use bytes::Bytes;
use compact_str::CompactString;

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty to insert.
    pub at: Range<usize>,
    /// What stands there afterwards.
    pub with: With,
}

/// What stands in the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum With {
    /// An integer.
    Number(u64),
    /// Bytes that are shared.
    Bytes(Bytes),
    /// A short text.
    Text(CompactString),
    /// Fixed bytes.
    Static(&'static [u8]),
}

impl Edit {
    /// Replaces `at` by a text.
    pub fn text(at: Range<usize>, text: impl Into<CompactString>) -> Self {
        Self { at, with: With::Text(text.into()) }
    }

    /// Replaces `at` by a number.
    pub fn number(at: Range<usize>, number: u64) -> Self {
        Self { at, with: With::Number(number) }
    }

    /// Takes `at` away.
    pub fn remove(at: Range<usize>) -> Self {
        Self { at, with: With::Static(b"") }
    }
}

impl With {
    /// Hands the bytes to `sink`.
    pub fn write(&self, mut sink: impl FnMut(&[u8])) {
        match self {
            Self::Number(number) => sink(itoa::Buffer::new().format(*number).as_bytes()),
            Self::Bytes(bytes) => sink(bytes),
            Self::Text(text) => sink(text.as_bytes()),
            Self::Static(bytes) => sink(bytes),
        }
    }
}

/// Makes the edits in a text of its own: for what is not on the message path.
pub fn apply(text: &[u8], edits: &mut [Edit]) -> Vec<u8> {
    edits.sort_unstable_by_key(|edit| edit.at.start);
    let mut out = Vec::with_capacity(text.len() + 64);
    let mut from = 0;
    for edit in edits.iter() {
        out.extend_from_slice(&text[from..edit.at.start]);
        edit.with.write(|bytes| out.extend_from_slice(bytes));
        from = edit.at.end;
    }
    out.extend_from_slice(&text[from..]);
    out
}
