//! Messages that wait for one pipe, and exactly how far each has got.
//!
//! What is *not sent* can be told from what *was* by looking here: a message is sent from the moment its first byte was
//! accepted by the pipe. An unsent one can be taken back without a trace.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::splice::Edit;

/// A queue of messages, each with a tag of its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outbox<T> {
    parts: VecDeque<Part<T>>,
    /// Whether a byte of the front message was accepted.
    started: bool,
    /// Bytes that wait.
    bytes: usize,
    /// Where small messages are written, one behind the other, to share one allocation.
    arena: BytesMut,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part<T> {
    bytes: Bytes,
    tag: T,
    first: bool,
    last: bool,
}

/// Unchanged stretches of at least this many bytes are passed on as slices of the message they came in; shorter ones
/// are cheaper to copy than to count references for.
const SLICE_MIN: usize = 16 * 1024;
/// Size of the shared allocation for small messages.
const ARENA: usize = 64 * 1024;

impl<T: Copy + PartialEq> Outbox<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self { parts: VecDeque::new(), started: false, bytes: 0, arena: BytesMut::new() }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message that is already whole, without its line end.
    pub fn push(&mut self, tag: T, message: &[u8]) {
        self.write(tag, &Bytes::new(), &mut [], Some(message));
    }

    /// Adds `frame` with `edits` made, and a line end. Edits may come in any order but must not overlap.
    pub fn push_edited(&mut self, tag: T, frame: &Bytes, edits: &mut [Edit]) {
        self.write(tag, frame, edits, None);
    }

    /// Adds a message of several pieces; what is long is not copied.
    pub fn push_pieces<'a>(&mut self, tag: T, pieces: impl IntoIterator<Item = &'a Bytes>) {
        let mut open = Open::new(self, tag);
        for piece in pieces {
            open.slice(piece);
        }
        open.close();
    }

    fn write(&mut self, tag: T, frame: &Bytes, edits: &mut [Edit], whole: Option<&[u8]>) {
        edits.sort_unstable_by_key(|edit| edit.at.start);
        let mut open = Open::new(self, tag);
        if let Some(message) = whole {
            open.copy(message);
        }
        let mut from = 0;
        for edit in edits.iter() {
            open.slice_of(frame, from, edit.at.start);
            edit.with.write(|bytes| open.copy(bytes));
            from = edit.at.end;
        }
        open.slice_of(frame, from, frame.len());
        open.close();
    }

    /// The front of the queue, to be offered to the pipe.
    pub fn front(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &part.bytes[..])
    }

    /// Notes that the pipe accepted `count` bytes; tells `each` the tag, how many bytes of it, and whether it is whole.
    pub fn accepted(&mut self, mut count: usize, mut each: impl FnMut(T, usize, bool)) {
        self.bytes -= count;
        while count > 0 {
            let Some(part) = self.parts.front_mut() else { return };
            let taken = count.min(part.bytes.len());
            count -= taken;
            let tag = part.tag;
            if taken < part.bytes.len() {
                part.bytes.advance(taken);
                self.started = true;
                each(tag, taken, false);
                return;
            }
            let last = part.last;
            self.started = !last;
            self.parts.pop_front();
            each(tag, taken, last);
        }
    }

    /// The tags of the messages of which no byte was accepted, in their order.
    pub fn unsent(&self) -> impl Iterator<Item = T> {
        let skip = usize::from(self.started);
        let mut messages = 0;
        self.parts.iter().filter_map(move |part| {
            let counts = part.first || (messages == 0);
            messages += usize::from(counts);
            (counts && messages > skip).then_some(part.tag)
        })
    }

    /// Takes back the message of that tag, if no byte of it was accepted.
    pub fn take_back(&mut self, tag: T) -> bool {
        let Some(at) = self.parts.iter().position(|part| part.first && part.tag == tag) else { return false };
        if at == 0 && self.started {
            return false;
        }
        let count = self.parts.iter().skip(at).position(|part| part.last).map_or(1, |last| last + 1);
        for part in self.parts.drain(at..at + count) {
            self.bytes -= part.bytes.len();
        }
        true
    }

    /// Length of the next message, or of what is left of it.
    pub fn next_length(&self) -> usize {
        let last = self.parts.iter().position(|part| part.last).map_or(0, |last| last + 1);
        self.parts.iter().take(last).map(|part| part.bytes.len()).sum()
    }

    /// Moves the next message of another queue to the end of this one. No byte of it may have been accepted.
    pub fn take_next(&mut self, from: &mut Self) {
        while let Some(part) = from.parts.pop_front() {
            from.bytes -= part.bytes.len();
            self.bytes += part.bytes.len();
            let last = part.last;
            self.parts.push_back(part);
            if last {
                return;
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

impl<T: Copy + PartialEq> Default for Outbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A message being added. Dropped before it is closed, as by a panic, it leaves nothing.
struct Open<'a, T> {
    outbox: &'a mut Outbox<T>,
    tag: T,
    first: bool,
    /// Parts that were there before it.
    before: usize,
    closed: bool,
}

impl<T> Drop for Open<'_, T> {
    fn drop(&mut self) {
        if !self.closed {
            self.outbox.arena.clear();
            for part in self.outbox.parts.drain(self.before..) {
                self.outbox.bytes -= part.bytes.len();
            }
        }
    }
}

impl<'a, T: Copy + PartialEq> Open<'a, T> {
    fn new(outbox: &'a mut Outbox<T>, tag: T) -> Self {
        let before = outbox.parts.len();
        Self { outbox, tag, first: true, before, closed: false }
    }

    fn copy(&mut self, bytes: &[u8]) {
        let arena = &mut self.outbox.arena;
        if arena.capacity() - arena.len() < bytes.len() {
            // Never more than a whole one, or one that is free again would not do; never little, or the next message
            // would need another.
            arena.reserve(ARENA.saturating_sub(arena.len()).max(bytes.len()));
        }
        arena.put_slice(bytes);
    }

    fn slice_of(&mut self, frame: &Bytes, from: usize, to: usize) {
        if to - from >= SLICE_MIN {
            self.slice(&frame.slice(from..to));
        } else {
            self.copy(&frame[from..to]);
        }
    }

    fn slice(&mut self, piece: &Bytes) {
        if piece.len() < SLICE_MIN {
            self.copy(piece);
        } else {
            self.flush(false);
            self.part(piece.clone(), false);
        }
    }

    fn flush(&mut self, last: bool) {
        if !self.outbox.arena.is_empty() {
            let bytes = self.outbox.arena.split().freeze();
            self.part(bytes, last);
        }
    }

    fn part(&mut self, bytes: Bytes, last: bool) {
        self.outbox.bytes += bytes.len();
        self.outbox.parts.push_back(Part { bytes, tag: self.tag, first: self.first, last });
        self.first = false;
    }

    fn close(mut self) {
        self.copy(b"\n");
        self.flush(true);
        self.closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::splice::With;

    fn text(outbox: &Outbox<u64>) -> String {
        String::from_utf8(outbox.front().flatten().copied().collect()).unwrap()
    }

    #[test]
    fn a_message_is_sent_from_its_first_byte_on() {
        let mut outbox = Outbox::new();
        outbox.push(1, b"one");
        outbox.push(2, b"two");
        outbox.push(3, b"three");
        assert_eq!(outbox.unsent().collect::<Vec<_>>(), [1, 2, 3]);
        outbox.accepted(1, |tag, count, whole| assert_eq!((tag, count, whole), (1, 1, false)));
        assert_eq!(outbox.unsent().collect::<Vec<_>>(), [2, 3]);
        assert!(!outbox.take_back(1));
        assert!(outbox.take_back(2));
        assert_eq!(text(&outbox), "ne\nthree\n");
        let mut done = Vec::new();
        outbox.accepted(4, |tag, _, whole| done.push((tag, whole)));
        assert_eq!(done, [(1, true), (3, false)]);
        assert_eq!(outbox.bytes(), 5);
        outbox.accepted(5, |_, _, _| {});
        assert!(outbox.is_empty());
    }

    #[test]
    fn long_stretches_are_not_copied_and_come_out_in_order() {
        let body = "z".repeat(40_000);
        let frame = Bytes::from(format!("{{\"id\":1,\"x\":\"{body}\",\"y\":2}}"));
        let mut outbox = Outbox::new();
        outbox.push(9, b"before");
        outbox.push_edited(1, &frame, &mut [Edit { at: 6..7, with: With::Number(77) }]);
        outbox.push(2, b"after");
        assert_eq!(text(&outbox), format!("before\n{{\"id\":77,\"x\":\"{body}\",\"y\":2}}\nafter\n"));
        assert!(outbox.take_back(1));
        assert_eq!(text(&outbox), "before\nafter\n");
        assert_eq!(outbox.bytes(), 13);
    }

    #[test]
    fn a_message_that_could_not_be_made_leaves_nothing() {
        let frame = Bytes::from("q".repeat(50_000));
        let mut outbox = Outbox::new();
        outbox.push(1, b"before");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let edit = |at| Edit { at, with: With::Static(b"x") };
            outbox.push_edited(2, &frame, &mut [edit(0..1), edit(20_000..20_001), edit(50_000..60_000)]);
        }));
        assert!(broken.is_err());
        outbox.push(3, b"after");
        assert_eq!((text(&outbox), outbox.bytes()), ("before\nafter\n".to_owned(), 13));
        assert_eq!(outbox.unsent().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_started_long_message_is_not_unsent_although_its_first_part_is_gone() {
        let frame = Bytes::from("q".repeat(50_000));
        let mut outbox = Outbox::new();
        outbox.push_edited(1, &frame, &mut [Edit { at: 0..1, with: With::Static(b"head") }]);
        outbox.push(2, b"next");
        outbox.accepted(4, |_, _, whole| assert!(!whole));
        assert_eq!(outbox.unsent().collect::<Vec<_>>(), [2]);
        assert!(!outbox.take_back(1));
    }
}
