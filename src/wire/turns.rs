//! Messages of several senders that wait for one pipe and take turns at it.
//!
//! Whose message is large waits with it, and not the others: a message that is not begun yet lets those of other senders
//! go first, and each sender gets as many bytes as any other that has something to say. Messages of one sender never
//! change their order. What has no sender belongs to all: nothing passes it, and it passes nothing.

use std::collections::VecDeque;

use bytes::Bytes;

use super::outbox::Outbox;
use super::splice::Edit;

/// What tells a message's sender.
pub trait Sent: Copy + PartialEq {
    /// Whose it is; `None`: nothing may change places with it.
    fn sender(&self) -> Option<u32>;
}

/// A queue of messages of several senders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turns<T> {
    /// What is written next, in its order.
    line: Outbox<T>,
    /// Those who wait for a place in it, in the order of their turns; none of them is empty.
    lanes: VecDeque<Lane<T>>,
    /// Bytes that wait.
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane<T> {
    sender: u32,
    queue: Outbox<T>,
    /// Bytes that it may send before the others have a turn.
    credit: usize,
}

/// Bytes that are put in a line before the pipe has taken any: as many as a pipe holds. Only a message that is longer
/// by itself makes it longer.
const LINE: usize = 64 * 1024;
/// Bytes that a turn is worth.
const SHARE: usize = 64 * 1024;

impl<T: Sent> Turns<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self { line: Outbox::new(), lanes: VecDeque::new(), bytes: 0 }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message that is already whole, without its line end.
    pub fn push(&mut self, tag: T, message: &[u8]) {
        self.add(tag, message.len(), |queue| queue.push(tag, message));
    }

    /// Adds `frame` with `edits` made, and a line end; see [`Outbox::push_edited`].
    pub fn push_edited(&mut self, tag: T, frame: &Bytes, edits: &mut [Edit]) {
        self.add(tag, frame.len(), |queue| queue.push_edited(tag, frame, edits));
    }

    /// Adds a message of several pieces; what is long is not copied.
    pub fn push_pieces(&mut self, tag: T, pieces: &[Bytes]) {
        self.add(tag, pieces.iter().map(Bytes::len).sum(), |queue| queue.push_pieces(tag, pieces));
    }

    /// What is to be offered to the pipe. It is decided only here, so that what came last has its chance, too.
    pub fn compose(&mut self) -> &Outbox<T> {
        while let Some(mut lane) = self.lanes.pop_front() {
            let length = lane.queue.next_length();
            if !self.line.is_empty() && self.line.bytes() + length > LINE {
                self.lanes.push_front(lane);
                break;
            }
            if lane.credit < length {
                lane.credit += SHARE;
                self.lanes.push_back(lane);
                continue;
            }
            lane.credit -= length;
            self.line.take_next(&mut lane.queue);
            if !lane.queue.is_empty() {
                self.lanes.push_front(lane);
            }
        }
        &self.line
    }

    /// Notes that the pipe accepted `count` bytes; see [`Outbox::accepted`].
    pub fn accepted(&mut self, count: usize, each: impl FnMut(T, usize, bool)) {
        self.bytes -= count;
        self.line.accepted(count, each);
    }

    fn add(&mut self, tag: T, about: usize, push: impl FnOnce(&mut Outbox<T>)) {
        let queue = match tag.sender() {
            None => {
                for lane in &mut self.lanes {
                    while !lane.queue.is_empty() {
                        self.line.take_next(&mut lane.queue);
                    }
                }
                self.lanes.clear();
                &mut self.line
            }
            Some(_) if self.lanes.is_empty() && self.line.bytes() + about <= LINE => &mut self.line,
            Some(sender) => self.lane(sender),
        };
        let before = queue.bytes();
        push(queue);
        self.bytes += queue.bytes() - before;
    }

    fn lane(&mut self, sender: u32) -> &mut Outbox<T> {
        let known = self.lanes.iter().position(|lane| lane.sender == sender);
        let at = known.unwrap_or_else(|| {
            self.lanes.push_back(Lane { sender, queue: Outbox::new(), credit: 0 });
            self.lanes.len() - 1
        });
        &mut self.lanes[at].queue
    }
}

impl<T: Sent> Default for Turns<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Tag {
        sender: Option<u32>,
        number: usize,
    }

    impl Sent for Tag {
        fn sender(&self) -> Option<u32> {
            self.sender
        }
    }

    fn tag(sender: u32, number: usize) -> Tag {
        Tag { sender: Some(sender), number }
    }

    /// Lets the pipe take `count` bytes at most with one write; the messages that are whole by it.
    fn write(turns: &mut Turns<Tag>, count: usize) -> Vec<Tag> {
        let count = count.min(turns.compose().bytes());
        let mut whole = Vec::new();
        turns.accepted(count, |tag, _, last| whole.extend(last.then_some(tag)));
        whole
    }

    fn drain(turns: &mut Turns<Tag>, count: usize) -> Vec<usize> {
        let mut order = Vec::new();
        while !turns.is_empty() {
            order.extend(write(turns, count).into_iter().map(|tag| tag.number));
        }
        order
    }

    #[test]
    fn a_small_message_does_not_wait_for_the_large_ones_of_another() {
        let large = Bytes::from(vec![b'x'; 4 << 20]);
        let mut turns = Turns::new();
        turns.push_edited(tag(1, 1), &large, &mut []);
        turns.push_edited(tag(1, 2), &large, &mut []);
        turns.push(tag(1, 3), b"behind them");
        write(&mut turns, 1000);
        turns.push(tag(2, 4), b"of another");
        turns.push_edited(tag(2, 5), &large, &mut []);
        // The begun one is ended; then whoever has had less. A sender's own order stays.
        assert_eq!(drain(&mut turns, 1 << 16), [1, 4, 2, 3, 5]);
        // Of those that came before the pipe took anything the small one is first, too.
        turns.push_edited(tag(1, 1), &large, &mut []);
        turns.push(tag(2, 2), b"of another");
        assert_eq!(drain(&mut turns, 1 << 16), [2, 1]);
    }

    #[test]
    fn what_has_no_sender_changes_places_with_nothing() {
        let large = Bytes::from(vec![b'x'; 1 << 20]);
        let mut turns = Turns::new();
        turns.push_edited(tag(1, 1), &large, &mut []);
        turns.push_edited(tag(1, 2), &large, &mut []);
        turns.push(Tag { sender: None, number: 3 }, b"of all");
        turns.push(tag(2, 4), b"behind it");
        assert_eq!(drain(&mut turns, 1 << 16), [1, 2, 3, 4]);
    }

    #[test]
    fn who_floods_gets_no_more_than_the_others() {
        let mut turns = Turns::new();
        for number in 0..10_000 {
            turns.push(tag(1, number), &[b'x'; 1000]);
        }
        for number in 10_000..10_200 {
            turns.push(tag(2, number), &[b'x'; 1000]);
        }
        let order = drain(&mut turns, 1 << 16);
        let last = order.iter().position(|number| *number == 10_199).unwrap();
        assert!(last < 600, "the last one of the second was written as number {last}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn each_senders_messages_stay_in_order_and_whole(
            steps in proptest::collection::vec((0..5_u32, 0..4_usize, 1..300_000_usize), 1..40),
        ) {
            const SIZES: [usize; 4] = [10, 900, 30_000, 200_000];
            let mut turns = Turns::new();
            let (mut order, mut said) = (Vec::new(), Vec::new());
            let mut text = Vec::new();
            let mut total = 0;
            let mut take = |turns: &mut Turns<Tag>, count: usize, order: &mut Vec<Tag>| {
                let next = turns.compose();
                let count = count.min(next.bytes());
                let bytes: Vec<u8> = next.front().flatten().copied().collect();
                text.extend_from_slice(&bytes[..count]);
                turns.accepted(count, |tag, _, last| order.extend(last.then_some(tag)));
                count
            };
            for (number, (sender, size, count)) in steps.into_iter().enumerate() {
                let tag = Tag { sender: sender.checked_sub(1), number };
                let message = Bytes::from(format!("{number} {}", "x".repeat(SIZES[size])));
                turns.push_edited(tag, &message, &mut []);
                said.push(tag);
                total += message.len() + 1;
                prop_assert_eq!(turns.bytes(), total);
                if count % 3 > 0 {
                    total -= take(&mut turns, count, &mut order);
                }
            }
            while take(&mut turns, 70_000, &mut order) > 0 {}
            prop_assert!(turns.is_empty() && turns == Turns::new());
            // Every message came whole, in the order in which the tags were told.
            let lines = String::from_utf8(text).unwrap();
            let numbers: Vec<usize> = lines.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
            prop_assert_eq!(&numbers, &order.iter().map(|tag| tag.number).collect::<Vec<_>>());
            prop_assert_eq!(order.len(), said.len());
            for (at, tag) in order.iter().enumerate() {
                for later in &order[at..] {
                    let bound = tag.sender.is_none() || later.sender.is_none() || tag.sender == later.sender;
                    prop_assert!(!bound || tag.number <= later.number, "{:?} before {:?}", tag, later);
                }
            }
        }
    }
}
