//! Faults of our own in the steps of the machine: a panic costs what the step was about, and no more.
//!
//! The machine knows what to do about a step that was left half done (`engine/hub/fault.rs`); here is what catches it, and
//! what puts one there for the tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use bytes::Bytes;

use crate::engine::child::Conn;
use crate::engine::hub::Hub;
use crate::wire::id::HostId;

/// Which panics are asked for, in builds for tests: the text of `MCP_PROXY_TEST_PANIC`, alone or behind the name of a
/// place and a colon.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Fuse(Option<String>);

// === impl Fuse ===

impl Fuse {
    #[cfg(any(debug_assertions, feature = "test-fakes"))]
    pub(in crate::runtime) fn from_environment() -> Self {
        Self(std::env::var("MCP_PROXY_TEST_PANIC").ok())
    }

    #[cfg(not(any(debug_assertions, feature = "test-fakes")))]
    pub(in crate::runtime) fn from_environment() -> Self {
        Self(None)
    }

    /// Whether a panic is asked for at that place (empty: where a child's line is handled) for these bytes.
    pub(in crate::runtime) fn is_lit(&self, place: &str, bytes: &[u8]) -> bool {
        let Some(asked) = &self.0 else { return false };
        let (at, text) = asked.split_once(':').unwrap_or(("", asked));
        at == place && memchr::memmem::find(bytes, text.as_bytes()).is_some()
    }

    fn is_for(&self, place: &str) -> bool {
        self.0.as_deref().and_then(|asked| asked.strip_prefix(place)).is_some_and(|rest| rest.starts_with(':'))
    }

    /// Panics if that is asked for.
    pub(in crate::runtime) fn check(&self, place: &str, bytes: &[u8]) {
        assert!(!self.is_lit(place, bytes), "as MCP_PROXY_TEST_PANIC asks for");
    }
}

/// Does `work`; a fault of ours in it is followed by `mend`.
pub(super) fn shield(hub: &mut Hub, work: impl FnOnce(&mut Hub), mend: impl FnOnce(&mut Hub)) {
    if catch_unwind(AssertUnwindSafe(|| work(hub))).is_err() && catch_unwind(AssertUnwindSafe(|| mend(hub))).is_err() {
        tracing::error!("what a fault of the proxy left could not be put in order");
    }
}

/// Does `work` about a child, which costs that child's life at the most.
pub(super) fn of_child(hub: &mut Hub, now: Instant, conn: Conn, work: impl FnOnce(&mut Hub)) {
    shield(hub, work, |hub| hub.handle_broken(now, conn));
}

/// Does `work`, maybe about that request of the host.
pub(super) fn of_all(hub: &mut Hub, now: Instant, id: Option<&HostId>, work: impl FnOnce(&mut Hub)) {
    shield(hub, work, |hub| hub.handle_fault(now, id));
}

/// Hands a line of the host to the machine.
pub(super) fn host_line(hub: &mut Hub, now: Instant, line: Bytes, fuse: &Fuse) {
    let before = hub.mark();
    let kept = line.clone();
    let work = |hub: &mut Hub| {
        fuse.check("host", &line);
        let after = fuse.is_lit("host-after", &line);
        hub.handle_host(now, line);
        assert!(!after, "as MCP_PROXY_TEST_PANIC asks for");
    };
    shield(hub, work, |hub| {
        shield(hub, |hub| hub.handle_host_fault(now, &kept, before), |hub| hub.handle_host_unreadable(&kept));
    });
}

/// Does all that is due.
pub(super) fn timeout(hub: &mut Hub, now: Instant, fuse: &Fuse) {
    for due in hub.dues() {
        let work = |hub: &mut Hub| {
            let [breaks, breaks_after] = ["timer", "timer-after"].map(|place| {
                fuse.is_for(place) && fuse.is_lit(place, hub.name_of_due(due).as_bytes()) && hub.is_due(now, due)
            });
            assert!(!breaks, "as MCP_PROXY_TEST_PANIC asks for");
            hub.handle_due(now, due);
            assert!(!breaks_after, "as MCP_PROXY_TEST_PANIC asks for");
        };
        shield(hub, work, |hub| hub.handle_due_fault(now, due));
    }
}

/// The end, whatever goes wrong in it.
pub(super) fn stop(hub: &mut Hub, now: Instant) {
    shield(hub, |hub| hub.handle_stop(now), |hub| hub.handle_stop_fault(now));
}
