//! A configured server: its state, what is known of it, and what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::catalog::{Listing, Part};
use super::facts::{Facts, ServerCapabilities};
use super::hub::Known;
use super::link::{Call, Link, Phase, Purpose};
use super::listing::{Kind, Pager};
use super::outcome::Exit;
use super::restart::Restart;
use crate::config;
use crate::wire::id::{HostId, WireId};

/// Which server: a number that is never given twice in the life of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// One life of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn {
    /// Which server.
    pub server: ServerId,
    /// Which of its lives, from 1.
    pub generation: u32,
}

/// A configured server.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its table.
    pub config: Arc<config::Server>,
    /// Its prefix made safe for a scheme.
    pub scheme: String,
    /// Where it is in its life.
    pub state: State,
    /// Lives so far.
    pub generation: u32,
    /// Number of the next request to it.
    pub next_wire: u64,
    /// The present life, until the last of its processes is gone.
    pub link: Option<Link>,
    /// A start waits for the end of the present life.
    pub start_when_gone: bool,
    /// Its history of failures.
    pub restart: Restart,
    /// Calls that wait for it, unsent.
    pub waiting: VecDeque<Waiting>,
    /// What is known of it, live or from the cache.
    pub facts: Option<Facts>,
    /// One for each kind, of the present life.
    pub pagers: Vec<Pager>,
    /// Its lists as they were last complete.
    pub listing: Listing,
    /// For which kinds the listing is known, live or from the cache.
    pub listed: [bool; 4],
    /// How long a modern child's lists may be kept.
    pub kept: [Option<KeptFor>; 4],
    /// What it adds to the merged view.
    pub part: Option<Arc<Part>>,
    /// Counters and history for `status`.
    pub record: Record,
    /// Which era it speaks, as far as that was found out.
    pub verdict: Option<Verdict>,
    /// It asks while several calls run: under a modern host one runs at a time.
    pub interactive: bool,
    /// Lives in a row that ended on their first message.
    pub greeting_ends: u32,
    /// The log level that a modern host's requests set, a place in `LOG_LEVELS`.
    pub level: Option<usize>,
    /// When it is looked whether anybody still wants that.
    pub level_until: Option<Instant>,
    /// It does not answer pings.
    pub no_ping: bool,
    /// It was last used then; for `idle_stop`.
    pub last_used: Instant,
}

/// A modern child's word on how long a list of its may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptFor {
    /// When the list came.
    pub since: Instant,
    /// Milliseconds from then.
    pub ms: u64,
    /// By anybody.
    pub public: bool,
}

impl KeptFor {
    /// The milliseconds that are left of it.
    pub fn left(self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.since).as_millis();
        self.ms.saturating_sub(u64::try_from(age).unwrap_or(u64::MAX))
    }
}

/// Which era a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Verdict {
    /// Only the handshake.
    LegacyOnly,
    /// Only per-request metadata.
    ModernOnly,
    /// Both.
    Both,
}

/// Where a server is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No process, and none is due.
    Stopped(Rest),
    /// A process is being started, or shakes hands.
    Starting,
    /// It serves.
    Ready {
        /// Since then.
        since: Instant,
    },
    /// No new calls; what is pending may finish.
    Draining {
        /// At the latest then.
        until: Instant,
        /// What follows.
        then: Then,
    },
    /// It ended badly and is started again then.
    Backoff {
        /// The next attempt.
        until: Instant,
    },
    /// It is not started again by itself.
    Failed {
        /// Why, for people.
        reason: String,
        /// A call may try once.
        half_open: bool,
    },
}

/// Why nothing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rest {
    /// Lazy and not yet used, or unused for long, or it ended well.
    UntilUsed,
    /// A person stopped it.
    ByPerson,
}

/// What follows a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// A new life.
    Start,
    /// Rest.
    Stop(Rest),
    /// It leaves the configuration.
    Remove,
}

/// A call that waits for its server.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// Routed.
    Call {
        /// The call.
        call: Box<Call>,
        /// When it is given up.
        until: Instant,
    },
    /// Its name could not be looked up yet, since the server never told its names.
    Unrouted {
        /// The host's id.
        id: HostId,
        /// The host's line.
        frame: Bytes,
        /// When it is given up.
        until: Instant,
    },
}

/// Counters and history of a server.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Calls that were answered.
    pub calls: u64,
    /// Of these, those with an error of ours or of the child.
    pub errors: u64,
    /// Calls of unknown outcome.
    pub unknown: u64,
    /// Starts after the first.
    pub restarts: u64,
    /// Lines on its stdout that were no messages.
    pub noise: u64,
    /// Late or unmatched responses, and other breaches.
    pub faults: u64,
    /// Log and progress messages that were dropped for a slow host.
    pub dropped: u64,
    /// Its last exit.
    pub last_exit: Option<Exit>,
    /// What last went wrong.
    pub last_error: Option<String>,
    /// The last lines of its stderr, masked.
    pub stderr: VecDeque<String>,
    /// The process of its present life.
    pub pid: Option<u32>,
    /// When it last became ready.
    pub up_since: Option<SystemTime>,
    /// When the present life began.
    pub started: Option<Instant>,
    /// How long its last start took.
    pub start_took: Option<Duration>,
    /// Durations of the last calls, in microseconds.
    pub durations: VecDeque<u32>,
}

/// Lines of stderr that are kept.
pub const STDERR_KEPT: usize = 20;
/// Durations that are kept for percentiles.
pub const DURATIONS_KEPT: usize = 256;

impl Child {
    /// A server that has not run yet.
    pub fn new(config: Arc<config::Server>, seed: u64, now: Instant) -> Self {
        Self {
            scheme: super::uri::safe_prefix(&config.prefix),
            config,
            state: State::Stopped(Rest::UntilUsed),
            generation: 0,
            next_wire: 1,
            link: None,
            start_when_gone: false,
            restart: Restart::new(seed),
            waiting: VecDeque::new(),
            facts: None,
            pagers: Vec::new(),
            listing: Listing::default(),
            listed: [false; 4],
            kept: [None; 4],
            part: None,
            record: Record::default(),
            verdict: None,
            interactive: false,
            greeting_ends: 0,
            level: None,
            level_until: None,
            no_ping: false,
            last_used: now,
        }
    }

    /// Takes over what the cache has of it.
    pub fn remember(&mut self, known: Known) {
        self.facts = Some(known.facts);
        self.listing = known.listing;
        self.listed = [true; 4];
        self.verdict = known.verdict;
        self.interactive = known.interactive;
    }

    /// Bytes that wait for it: in its outbox, and of calls that wait for its start.
    pub fn unsent_bytes(&self) -> usize {
        let waiting = self.waiting.iter().map(|waiting| match waiting {
            Waiting::Call { call, .. } => call.frame.len(),
            Waiting::Unrouted { frame, .. } => frame.len(),
        });
        self.link.as_ref().map_or(0, |link| link.outbox.bytes()) + waiting.sum::<usize>()
    }

    /// Bytes of the host's lines that are kept for it: as [`Child::unsent_bytes`], and of calls under way that may have
    /// to be written in another form.
    pub fn kept_bytes(&self) -> usize {
        let calls = self.link.iter().flat_map(|link| link.pending.values()).map(|pending| match &pending.purpose {
            Purpose::Call(call) => call.frame.len(),
            _ => 0,
        });
        // What is unsent is a slice of the line that is kept.
        let unsent = self.link.as_ref().map_or(0, |link| link.outbox.bytes());
        self.unsent_bytes() + calls.sum::<usize>().saturating_sub(unsent)
    }

    /// The next number for a request to it.
    pub fn wire_id(&mut self) -> WireId {
        let id = WireId(self.next_wire);
        self.next_wire += 1;
        id
    }

    /// Its link, if requests may go there now.
    pub fn ready_link(&mut self) -> Option<&mut Link> {
        match self.state {
            State::Ready { .. } => self.link.as_mut().filter(|link| link.phase == Phase::Ready && !link.silent),
            _ => None,
        }
    }

    /// What it declared, or what it is taken for as long as nothing is known.
    pub fn capabilities(&self) -> ServerCapabilities {
        match (&self.facts, &self.state) {
            (Some(facts), _) => facts.capabilities,
            (None, State::Failed { .. }) => ServerCapabilities::default(),
            (None, _) => ServerCapabilities::assumed(),
        }
    }

    /// Whether nothing more is to be expected soon for a list of that kind.
    pub fn is_settled(&self, kind: Kind) -> bool {
        self.listed[kind as usize]
            || matches!(self.state, State::Failed { .. } | State::Backoff { .. } | State::Stopped(Rest::ByPerson))
            || matches!(self.config.transport, config::Transport::Http(_))
    }

    /// Whether `max_pending` requests of the host are under way to it or wait for it. Our own do not count.
    pub fn is_full(&self) -> bool {
        let max = self.config.max_pending;
        let link = self.link.as_ref();
        let at_most = link.map_or(0, |link| link.pending.len()) + self.waiting.len();
        at_most >= max && link.map_or(0, Link::calls) + self.waiting.len() >= max
    }

    /// Whether a person stopped it, so that its names are not shown.
    pub fn is_put_away(&self) -> bool {
        matches!(self.state, State::Stopped(Rest::ByPerson) | State::Draining { then: Then::Stop(Rest::ByPerson), .. })
    }

    /// Whether its facts need not be waited for.
    pub fn is_known(&self) -> bool {
        self.facts.is_some() || self.is_settled(Kind::Tools)
    }

    /// The word for its state in errors and in `status`.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Stopped(_) => "stopped",
            State::Starting => "starting",
            State::Ready { .. } => "ready",
            State::Draining { .. } => "draining",
            State::Backoff { .. } => "backoff",
            State::Failed { .. } => "failed",
        }
    }

    /// Keeps a line of its stderr.
    pub fn note_stderr(&mut self, line: String) {
        if self.record.stderr.len() == STDERR_KEPT {
            self.record.stderr.pop_front();
        }
        self.record.stderr.push_back(line);
    }

    /// Notes how long a call took.
    pub fn note_duration(&mut self, took: Duration) {
        if self.record.durations.len() == DURATIONS_KEPT {
            self.record.durations.pop_front();
        }
        self.record.durations.push_back(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }
}
