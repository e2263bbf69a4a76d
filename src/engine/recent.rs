//! The last calls, for `top`: who was asked for what, how long it took, and what came of it. Never any argument.
//!
//! A fixed ring whose entries keep their buffers, so that noting a call allocates nothing once the ring has gone round.

use std::time::{Duration, Instant};

use compact_str::CompactString;

use super::child::ServerId;
use super::outcome::Reason;

/// Calls that are kept.
pub const KEPT: usize = 64;
/// Bytes of a name that are kept.
const NAME: usize = 128;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The server answered with a result.
    Answered,
    /// The server answered with an error.
    Error,
    /// It was sent, and no response will come.
    Lost(Reason),
    /// It was not sent.
    NotSent,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When it was over.
    pub at: Instant,
    /// Whom it went to.
    pub server: ServerId,
    /// The name or URI that was asked for.
    pub name: CompactString,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub outcome: Outcome,
}

/// The last [`KEPT`] calls.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    entries: Vec<Entry>,
    /// Where the next one goes once all places are taken.
    next: usize,
}

// === impl Outcome ===

impl Outcome {
    /// The word for it in the log and in `top`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Error => "error",
            Self::Lost(reason) => reason.name(),
            Self::NotSent => "not_sent",
        }
    }
}

// === impl Recent ===

impl Recent {
    /// Notes a call that is over.
    pub fn note(&mut self, at: Instant, server: ServerId, name: &str, took: Duration, outcome: Outcome) {
        let name = &name[..name.floor_char_boundary(NAME)];
        match self.entries.get_mut(self.next) {
            Some(entry) => {
                entry.name.clear();
                entry.name.push_str(name);
                (entry.at, entry.server, entry.took, entry.outcome) = (at, server, took, outcome);
            }
            None => self.entries.push(Entry { at, server, name: name.into(), took, outcome }),
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// The last calls, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = &Entry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_calls_are_kept_in_order() {
        let now = Instant::now();
        let mut recent = Recent::default();
        assert_eq!(recent.latest_first().count(), 0);
        for count in [3, KEPT, KEPT + 1, 3 * KEPT + 5] {
            let mut recent = Recent::default();
            for number in 0..count {
                recent.note(now, ServerId(0), &number.to_string(), Duration::ZERO, Outcome::Answered);
            }
            let kept: Vec<_> = recent.latest_first().map(|entry| entry.name.to_string()).collect();
            let expected: Vec<_> = (0..count).rev().take(KEPT).map(|number| number.to_string()).collect();
            assert_eq!(kept, expected, "{count}");
        }
        recent.note(now, ServerId(0), &"ü".repeat(1000), Duration::ZERO, Outcome::Lost(Reason::Timeout));
        assert_eq!(recent.latest_first().next().map(|entry| entry.name.chars().count()), Some(NAME / 2));
    }
}
