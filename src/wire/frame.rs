//! Newline framing, push-based: bytes in, lines out (`PROTOCOL.md` 1.1).
//!
//! Tolerates CRLF, blank lines, trailing blanks and a byte order mark before any line. A line over the limit is not
//! kept: it is skimmed for its id, and the reader goes on with the next line.

use bytes::{Buf, Bytes, BytesMut};

use super::skim::{Skimmed, Skimmer};

/// What the framer found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One line without its end, never blank.
    Line(Bytes),
    /// A line over the limit.
    TooLong(Skimmed),
}

/// Cuts a stream of bytes into lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Framer {
    buffer: BytesMut,
    /// How much of the buffer holds no line end, so that no byte is looked at twice.
    scanned: usize,
    /// Bound of a line in bytes.
    limit: usize,
    skimming: Option<Skimmer>,
}

/// How much room a read is offered at least.
const READ_ROOM: usize = 64 * 1024;

impl Framer {
    /// A framer for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, limit, skimming: None }
    }

    /// Changes the bound of a line.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The buffer to read into, with room for another read. A line that has begun gets room in proportion to what it
    /// already is, so that a long one costs few reads and few moves.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > 16 * READ_ROOM {
            self.buffer = BytesMut::new();
        }
        self.buffer.reserve(READ_ROOM.max(self.buffer.len()));
        &mut self.buffer
    }

    /// Puts bytes in: what a read into [`Framer::room`] does without the copy.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of a line that is not yet whole.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// The next whole line. `None`: more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if self.buffer.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            if let Some(mut skimmer) = self.skimming.take() {
                let Some(end) = end else {
                    skimmer.feed(&self.buffer);
                    self.buffer.clear();
                    self.scanned = 0;
                    self.skimming = Some(skimmer);
                    return None;
                };
                skimmer.feed(&self.buffer[..end]);
                self.buffer.advance(end + 1);
                self.scanned = 0;
                return Some(Frame::TooLong(skimmer.finish()));
            }
            let Some(end) = end else {
                self.scanned = self.buffer.len();
                if self.scanned > self.limit {
                    self.skimming = Some(Skimmer::default());
                    continue;
                }
                return None;
            };
            self.scanned = 0;
            if end > self.limit {
                self.skimming = Some(Skimmer::default());
                continue;
            }
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            if let Some(line) = trimmed(line) {
                return Some(Frame::Line(line));
            }
        }
    }

    /// What stands after the last line end when the stream is over, if it is a line at all.
    pub fn finish(&mut self) -> Option<Frame> {
        self.scanned = 0;
        if let Some(mut skimmer) = self.skimming.take() {
            skimmer.feed(&self.buffer);
            self.buffer.clear();
            return Some(Frame::TooLong(skimmer.finish()));
        }
        trimmed(std::mem::take(&mut self.buffer)).map(Frame::Line)
    }
}

/// Takes away blanks at the end and a byte order mark at the start. `None`: nothing is left.
fn trimmed(mut line: BytesMut) -> Option<Bytes> {
    while let Some(b' ' | b'\t' | b'\r') = line.last() {
        line.truncate(line.len() - 1);
    }
    if line.starts_with(b"\xef\xbb\xbf") {
        line.advance(3);
    }
    (!line.iter().all(u8::is_ascii_whitespace)).then(|| line.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(limit: usize, chunks: &[&[u8]]) -> Vec<Frame> {
        let mut framer = Framer::new(limit);
        let mut found = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            while let Some(frame) = framer.next_frame() {
                found.push(frame);
            }
        }
        found.extend(framer.finish());
        found
    }

    fn line(text: &str) -> Frame {
        Frame::Line(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn ends_marks_and_blanks_are_tolerated() {
        let text = b"\xef\xbb\xbf{\"a\":1}\r\n\r\n  \n\xef\xbb\xbf{}\t \nlast";
        assert_eq!(frames(100, &[text]), [line("{\"a\":1}"), line("{}"), line("last")]);
        // U+2028 is no line end, and neither is a carriage return inside a line.
        assert_eq!(frames(100, &["\"\u{2028}\"\n".as_bytes()]), [line("\"\u{2028}\"")]);
    }

    #[test]
    fn a_line_over_the_limit_is_told_and_the_next_one_is_read() {
        let long = format!("{{\"id\":5,\"result\":\"{}\"}}", "y".repeat(200));
        let text = format!("{long}\n{{\"id\":6}}\n");
        for cut in [1, 3, 50, 1000] {
            let chunks: Vec<_> = text.as_bytes().chunks(cut).collect();
            let found = frames(64, &chunks);
            assert!(
                matches!(&found[0], Frame::TooLong(s) if s.id.as_deref() == Some(b"5") && s.length == long.len() as u64)
            );
            assert_eq!(found[1..], [line("{\"id\":6}")]);
        }
        assert_eq!(frames(8, &[b"12345678\n"]), [line("12345678")]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_lines(text in "[ab\\r\\n ]{0,60}", cuts in proptest::collection::vec(1..9usize, 0..30)) {
            let whole = frames(20, &[text.as_bytes()]);
            let mut rest = text.as_bytes();
            let mut chunks = Vec::new();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            chunks.push(rest);
            prop_assert_eq!(frames(20, &chunks), whole);
        }
    }
}
