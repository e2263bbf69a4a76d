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
///
/// A line that outgrows a chunk is gathered in chunks, and copied once, into a buffer of just its size, when it is
/// whole. So its bytes lie in memory once while it comes, and what waits of it afterwards costs what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Framer {
    /// What was read last.
    buffer: BytesMut,
    /// How much of the buffer holds no line end, so that no byte is looked at twice.
    scanned: usize,
    /// The full chunks with which the line in the buffer begins.
    chunks: Vec<BytesMut>,
    /// Bytes in them.
    chunked: usize,
    /// Bound of a line in bytes.
    limit: usize,
    skimming: Option<Skimmer>,
}

/// How much room a read is offered, where room is made for it.
const READ_ROOM: usize = 64 * 1024;
/// What is left of a buffer is still offered if it is this much: small messages come in far smaller reads, and memory
/// that was just used is cheaper than fresh one.
const READ_LEAST: usize = 16 * 1024;
/// A buffer that is full to here without a line end becomes a chunk.
const CHUNK: usize = 256 * 1024;

impl Framer {
    /// A framer for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), scanned: 0, chunks: Vec::new(), chunked: 0, limit, skimming: None }
    }

    /// Changes the bound of a line.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The buffer to read into, with room for another read. It stays between chunk and line: a line that has begun gets
    /// room in proportion to what it already is, a long one by the chunk, and what a long one needed is given back.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.buffer.len() >= CHUNK && self.scanned == self.buffer.len() {
            self.chunked += self.buffer.len();
            self.chunks.push(std::mem::take(&mut self.buffer));
            self.scanned = 0;
        }
        if self.buffer.is_empty() {
            let (least, room) = if self.chunks.is_empty() { (READ_LEAST, READ_ROOM) } else { (CHUNK, CHUNK) };
            if self.buffer.capacity() < least {
                self.buffer.reserve(room);
            }
            if self.buffer.capacity() > 2 * READ_ROOM && self.chunks.is_empty() {
                self.buffer = BytesMut::with_capacity(READ_ROOM);
            }
        } else if self.buffer.capacity() - self.buffer.len() < READ_ROOM {
            self.buffer.reserve(READ_ROOM.max(self.buffer.len().min(CHUNK)));
        }
        &mut self.buffer
    }

    /// Puts bytes in: what a read into [`Framer::room`] does without the copy.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of a line that is not yet whole.
    pub fn held(&self) -> usize {
        self.chunked + self.buffer.len()
    }

    /// The next whole line. `None`: more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if self.buffer.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            if self.chunked + end.unwrap_or(self.buffer.len()) > self.limit {
                self.skimming.get_or_insert_default();
            }
            if self.skimming.is_some() {
                self.skim(end);
                end?;
                return self.skimming.take().map(|skimmer| Frame::TooLong(skimmer.finish()));
            }
            let Some(end) = end else {
                self.scanned = self.buffer.len();
                return None;
            };
            self.scanned = 0;
            let line = self.gathered(end);
            self.buffer.advance(1);
            if let Some(line) = trimmed(line) {
                return Some(Frame::Line(line));
            }
        }
    }

    /// The line whose last bytes are the first `end` of the buffer.
    fn gathered(&mut self, end: usize) -> BytesMut {
        if self.chunks.is_empty() {
            return self.buffer.split_to(end);
        }
        let mut line = BytesMut::with_capacity(self.chunked + end);
        self.chunked = 0;
        // Each chunk is given back as soon as it is copied.
        for chunk in self.chunks.drain(..) {
            line.extend_from_slice(&chunk);
        }
        self.chunks = Vec::new();
        line.extend_from_slice(&self.buffer[..end]);
        self.buffer.advance(end);
        line
    }

    /// Looks at what is there of a line over the limit, up to its end, and keeps nothing of it.
    fn skim(&mut self, end: Option<usize>) {
        let Some(skimmer) = &mut self.skimming else { return };
        for chunk in std::mem::take(&mut self.chunks) {
            skimmer.feed(&chunk);
        }
        self.chunked = 0;
        let count = end.unwrap_or(self.buffer.len());
        skimmer.feed(&self.buffer[..count]);
        self.buffer.advance(end.map_or(count, |end| end + 1));
        self.scanned = 0;
    }

    /// What stands after the last line end when the stream is over, if it is a line at all.
    pub fn finish(&mut self) -> Option<Frame> {
        self.scanned = 0;
        if self.skimming.is_some() {
            self.skim(None);
            return self.skimming.take().map(|skimmer| Frame::TooLong(skimmer.finish()));
        }
        let last = self.gathered(self.buffer.len());
        self.buffer = BytesMut::new();
        trimmed(last).map(Frame::Line)
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

    /// Reads `text` as the pump does; gives the lines and the most that the framer had room for meanwhile.
    fn read_in(framer: &mut Framer, text: &[u8]) -> (Vec<Bytes>, usize) {
        let (mut lines, mut most, mut rest) = (Vec::new(), 0, text);
        while !rest.is_empty() {
            while let Some(frame) = framer.next_frame() {
                let Frame::Line(line) = frame else { panic!("{frame:?}") };
                lines.push(line);
            }
            let room = framer.room();
            assert!(room.capacity() - room.len() >= READ_ROOM);
            // What a pipe gives at once.
            let (now, later) = rest.split_at(rest.len().min(READ_ROOM));
            room.extend_from_slice(now);
            rest = later;
            most = most.max(kept(framer));
        }
        while let Some(Frame::Line(line)) = framer.next_frame() {
            lines.push(line);
        }
        (lines, most)
    }

    fn kept(framer: &Framer) -> usize {
        framer.buffer.capacity() + framer.chunks.iter().map(BytesMut::capacity).sum::<usize>()
    }

    fn of_length(length: usize) -> Vec<u8> {
        let mut text = b"{\"x\":\"".to_vec();
        text.resize(length - 2, b'y');
        text.extend_from_slice(b"\"}");
        text
    }

    #[test]
    fn a_long_line_needs_little_more_than_itself_and_leaves_nothing_behind() {
        for length in [READ_ROOM, CHUNK - 1, CHUNK, CHUNK + 1, 1 << 20, 20 << 20] {
            let mut framer = Framer::new(64 << 20);
            let whole = of_length(length);
            let text = [&whole[..], b"\n{}\n", &whole[..], b"\n"].concat();
            let (lines, most) = read_in(&mut framer, &text);
            assert_eq!(lines.iter().map(Bytes::len).collect::<Vec<_>>(), [length, 2, length]);
            assert!(lines[0] == whole && lines[2] == whole, "{length}");
            assert!(most <= length + 4 * CHUNK, "{length}: room for {most}");
            for line in lines.into_iter().filter(|line| line.len() > 2 * CHUNK) {
                let line = line.try_into_mut().expect("a long line shares its buffer with nothing");
                assert!(line.capacity() < length + READ_ROOM, "{length}: kept in {}", line.capacity());
            }
            framer.room();
            assert!(kept(&framer) <= 2 * READ_ROOM, "{length}: {} are kept", kept(&framer));
            assert_eq!(framer.held(), 0);
        }
    }

    #[test]
    fn a_line_over_the_limit_is_not_gathered() {
        let mut framer = Framer::new(1 << 20);
        let text = of_length(30 << 20);
        let mut most = 0;
        for piece in text.chunks(READ_ROOM) {
            assert_eq!(framer.next_frame(), None);
            framer.room().extend_from_slice(piece);
            most = most.max(kept(&framer));
        }
        framer.push(b"\n{}\n");
        assert!(matches!(framer.next_frame(), Some(Frame::TooLong(told)) if told.length == text.len() as u64));
        assert_eq!(framer.next_frame(), Some(line("{}")));
        assert!(most < 3 << 20, "{most}");
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
