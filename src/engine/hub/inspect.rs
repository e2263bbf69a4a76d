//! The machine seen from outside: what is open, and a fingerprint, for the simulation of `tests/sim.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::{Hub, Stopping};
use crate::engine::child::{Child, State, Waiting};
use crate::engine::link::{Call, Link, Purpose};
use crate::engine::listing::Kind;
use crate::engine::session::Phase;

impl Hub {
    /// The tables that are not empty, with how much they hold: at rest there are none.
    pub fn open_work(&self) -> Vec<(&'static str, usize)> {
        let session = &self.session;
        let links = || self.children.iter().filter_map(|child| child.link.as_ref());
        let pending = |link: &Link| link.pending.len();
        let tables = [
            ("requests of the host", session.in_flight.len()),
            ("arrays", session.batches.len()),
            ("questions to the host", session.questions.len()),
            ("what waits for initialized", session.held.len()),
            ("answers to settle", self.settling.len()),
            ("calls that a person was asked about", self.asked.len()),
            ("lists of tasks", self.gatherings.len()),
            ("parked calls", self.parked.len()),
            ("rounds of questions", self.rounds.len()),
            ("streams of the host", session.listens.len()),
            ("bytes for the host", self.out.bytes()),
            ("bytes for the host, by server", self.out_of.iter().sum()),
            ("effects", self.effects.len()),
            ("requests at children", links().map(pending).sum()),
            ("tasks whose state is asked for", links().map(|link| link.polls.len() + link.reading.len()).sum()),
            ("questions of children", links().map(|link| link.questions.len()).sum()),
            ("bytes for children", links().map(|link| link.outbox.bytes()).sum()),
            ("calls that wait for a server", self.children.iter().map(|child| child.waiting.len()).sum()),
        ];
        tables.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The name of that server's state, by its key.
    pub fn state_of(&self, key: &str) -> Option<&'static str> {
        self.present().find(|child| child.config.key == key).map(Child::state_name)
    }

    /// A digest of all that decides what the machine will do: times count by their distance from `now`, and counters,
    /// history and random names do not count.
    pub fn fingerprint(&self, now: Instant) -> u64 {
        let mut hasher = DefaultHasher::new();
        let to = &mut hasher;
        self.hash_session(now, to);
        for kind in Kind::ALL {
            (self.catalog.snapshot(kind).revision(), self.given[kind as usize]).hash(to);
        }
        self.announce.map(|at| ahead(now, at)).hash(to);
        ahead(now, self.lists_until).hash(to);
        (&self.out, &self.out_of, self.settling.len(), self.effects.len(), &self.order).hash(to);
        self.asked.keys().collect::<Vec<_>>().hash(to);
        self.gatherings.keys().collect::<Vec<_>>().hash(to);
        match self.stopping {
            Some(Stopping::Finishing(until)) => (1, ahead(now, Some(until))).hash(to),
            Some(Stopping::Down) => 2.hash(to),
            None => 0.hash(to),
        }
        self.guard
            .rows()
            .fold(0_u64, |sum, row| {
                let mut one = DefaultHasher::new();
                row.hash(&mut one);
                sum.wrapping_add(one.finish())
            })
            .hash(to);
        self.hash_parked(now, to);
        for child in self.children.iter() {
            hash_child(child, now, to);
        }
        hasher.finish()
    }

    fn hash_session(&self, now: Instant, to: &mut impl Hasher) {
        let session = &self.session;
        match &session.phase {
            Phase::Opening { id, until, initialized } => (id, ahead(now, Some(*until)), initialized).hash(to),
            phase => std::mem::discriminant(phase).hash(to),
        }
        (session.revision, &session.in_flight, &session.batches, &session.questions, &session.held).hash(to);
        (&session.log_level, &session.watches, &session.sender).hash(to);
        ahead(now, session.roots.as_ref().map(|(_, at)| *at + super::asks::ROOTS_KEPT)).hash(to);
    }
}

/// How far ahead a time is; what is due is due.
fn ahead(now: Instant, at: Option<Instant>) -> Option<Duration> {
    at.map(|at| at.saturating_duration_since(now))
}

fn hash_child(child: &Child, now: Instant, to: &mut impl Hasher) {
    match &child.state {
        State::Ready { .. } => 0.hash(to),
        State::Draining { until, then } => (1, ahead(now, Some(*until)), then).hash(to),
        State::Backoff { until } => (2, ahead(now, Some(*until))).hash(to),
        State::Failed { half_open, .. } => (3, half_open).hash(to),
        State::Stopped(rest) => (4, rest).hash(to),
        State::Starting => 5.hash(to),
    }
    (child.generation, child.next_wire, child.start_when_gone, child.restart.failures(), child.no_ping).hash(to);
    (child.verdict, child.greeting_ends).hash(to);
    (ahead(now, Some(child.restart.forward(now))), &child.facts, &child.listing, child.listed).hash(to);
    (child.verdict, child.interactive, child.level, ahead(now, child.level_until)).hash(to);
    (child.part.is_some(), child.pagers.len(), &child.config.key).hash(to);
    for pager in &child.pagers {
        (pager.is_busy(), ahead(now, pager.deadline())).hash(to);
    }
    for waiting in &child.waiting {
        match waiting {
            Waiting::Call { call, until } => {
                hash_call(call, to);
                ahead(now, Some(*until)).hash(to);
            }
            Waiting::Unrouted { id, until, .. } => (id, ahead(now, Some(*until))).hash(to),
        }
    }
    if let Some(link) = &child.link {
        (link.phase, &link.outbox, &link.questions, link.dead.keys().collect::<Vec<_>>()).hash(to);
        (link.era, link.probe).hash(to);
        for (id, until) in &link.roots_wanted {
            (id, ahead(now, Some(*until))).hash(to);
        }
        for (wire, pending) in &link.pending {
            (wire, std::mem::discriminant(&pending.purpose), ahead(now, pending.until)).hash(to);
            ahead(now, pending.idle.map(|(_, at)| at)).hash(to);
            if let Purpose::Call(call) = &pending.purpose {
                hash_call(call, to);
            }
        }
    }
}

fn hash_call(call: &Call, to: &mut impl Hasher) {
    (&call.host_id, &call.about, call.outcome.is_some(), call.wire, call.repeat_of.is_some()).hash(to);
    (&call.token, call.parked.is_some(), call.answers.is_some()).hash(to);
}
