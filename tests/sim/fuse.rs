//! Faults of our own in the middle of a step: a panic where the machine next says something to the log.
//!
//! A subscriber of the log is what every layer of the machine calls, and it may panic: so the places are real ones, and the
//! machine needs no word about it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mcp_proxy::engine::hub::Hub;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    /// How many words to the log are still let pass.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

pub struct Fuse;

impl Subscriber for Fuse {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                // Without the hook, which would print each of thousands.
                resume_unwind(Box::new("a fault that was put in"));
            }
            Some(left) => LEFT.set(Some(left - 1)),
            None => {}
        }
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Does `work`, with a fault after so many words to the log; false if it came.
pub fn done(hub: &mut Hub, after: u32, work: impl FnOnce(&mut Hub)) -> bool {
    LEFT.set(Some(after));
    let done = catch_unwind(AssertUnwindSafe(|| work(hub))).is_ok();
    LEFT.set(None);
    done
}
