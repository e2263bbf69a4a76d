//! The host's side: its session, and everything of its that is under way.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::child::{Conn, ServerId};
use super::era::Sender;
use super::facts::HostCapabilities;
use super::listing::Kind;
use super::outcome::OutcomeId;
use crate::wire::id::{ChildId, HostId, OurId, WireId};
use crate::wire::method::{Method, Revision};

/// The state of the one legacy session that a host has with us.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// How far the handshake is.
    pub phase: Phase,
    /// The negotiated revision; the newest with the handshake until then.
    pub revision: Revision,
    /// What the host declared.
    pub capabilities: HostCapabilities,
    /// Who the host is.
    pub client: Client,
    /// Requests of the host that have no answer yet.
    pub in_flight: BTreeMap<HostId, InFlight>,
    /// Arrays of a 2025-03-26 host whose answers are being gathered.
    pub batches: BTreeMap<u64, Batch>,
    /// Requests to the host that have no answer yet.
    pub questions: BTreeMap<OurId, Question>,
    /// Requests, with their numbers, and notices to the host that wait for `notifications/initialized`.
    pub held: Vec<(Option<OurId>, Bytes)>,
    /// The level that the host set.
    pub log_level: Option<String>,
    /// Resources that the host watches: server and the child's own URI → the host's spelling.
    pub watches: BTreeMap<(ServerId, String), String>,
    /// The last sender of a modern request, for what we ask on our own behalf.
    pub sender: Option<Arc<Sender>>,
    /// Its whole `_meta`: who says the same, byte by byte, is known at a glance.
    pub sender_text: Vec<u8>,
    /// The roots that a modern host named last, as the result of `roots/list`, and when.
    pub roots: Option<(String, Instant)>,
    /// Open `subscriptions/listen` requests.
    pub listens: BTreeMap<HostId, Listen>,
    /// Number of the next request to the host.
    pub next_question: u64,
    /// Number of the next batch.
    pub next_batch: u64,
    /// Requests that were begun so far.
    pub begun: u64,
}

/// How far the handshake with the host is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing was said.
    Unopened,
    /// `initialize` came and waits, until then at the latest, for facts of children.
    Opening {
        /// The id of the request.
        id: HostId,
        /// When it is answered with what is known.
        until: Instant,
        /// A host that does not wait has said `notifications/initialized` already.
        initialized: bool,
    },
    /// `initialize` was answered.
    Open,
    /// The host said `notifications/initialized`.
    Initialized,
}

/// `clientInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its name, by which the host table knows it.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A request of the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Where it is.
    pub place: Place,
    /// The array that it came in.
    pub batch: Option<u64>,
    /// What it says of its sender; `None`: it came in the legacy session.
    pub modern: Option<Arc<Sender>>,
    /// The question of our own that it answers.
    pub answers: Option<u64>,
}

/// Where a request of the host is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `initialize` that waits for facts.
    Initialize,
    /// A list that waits for first catalogs.
    List {
        /// Of what.
        kind: Kind,
    },
    /// Unsent: it waits for its server.
    Waiting(ServerId),
    /// With a child, sent or about to be.
    AtChild(ServerId, WireId),
    /// A question of ours about it is open at the host.
    Asked(OurId),
    /// Answers of several children are being gathered.
    Gathering(u64),
    /// A modern host listens.
    Listening,
    /// Questions of a modern child are open at the host.
    Rounds(u64),
}

/// A modern host's stream of notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listen {
    /// Which of tools, prompts and resources.
    pub changes: [bool; 3],
    /// Watched resources: server and the child's own URI → the host's spelling.
    pub uris: BTreeMap<(ServerId, String), String>,
    /// Watched tasks: server and the child's own id → the host's.
    pub tasks: BTreeMap<(ServerId, String), String>,
    /// Watches that were asked for at children and have no answer yet.
    pub asked: BTreeSet<(ServerId, WireId)>,
    /// When it is acknowledged with what is known; `None`: it is.
    pub until: Option<Instant>,
    /// What came before the acknowledgement.
    pub held: Vec<Bytes>,
}

/// An array of requests that is answered by one array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    /// How many are open.
    pub open: usize,
    /// The answers so far.
    pub answers: Vec<Bytes>,
    /// Requests whose answer is among them: their ids are in use until the array is sent.
    pub ids: BTreeSet<HostId>,
    /// Outcomes that are settled when the array was accepted.
    pub outcomes: Vec<OutcomeId>,
}

/// A request of ours to the host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// On whose behalf.
    pub asker: Asker,
    /// What is asked.
    pub method: Method,
}

/// On whose behalf the host is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// A child.
    Child {
        /// Which life of which.
        conn: Conn,
        /// Its own id of the request.
        id: ChildId,
        /// Its own progress token.
        token: Option<crate::wire::id::PeerId>,
    },
    /// A round of questions of a modern child.
    Round {
        /// Which.
        id: u64,
        /// The child's key of the question.
        key: String,
    },
    /// A task of a modern child, by its own id.
    Task {
        /// Which life of which.
        conn: Conn,
        /// The task.
        own: String,
    },
    /// The repeat guard, about that request of the host.
    Guard {
        /// The request that waits for the answer.
        about: HostId,
    },
}

impl Session {
    /// A session that nothing was said in.
    pub fn new() -> Self {
        Self {
            phase: Phase::Unopened,
            revision: Revision::NEWEST_LEGACY,
            capabilities: HostCapabilities::default(),
            client: Client::default(),
            in_flight: BTreeMap::new(),
            batches: BTreeMap::new(),
            questions: BTreeMap::new(),
            held: Vec::new(),
            log_level: None,
            watches: BTreeMap::new(),
            sender: None,
            sender_text: Vec::new(),
            roots: None,
            listens: BTreeMap::new(),
            next_question: 1,
            next_batch: 1,
            begun: 0,
        }
    }

    /// Whether the host waits for an answer under that id.
    pub fn is_in_use(&self, id: &HostId) -> bool {
        self.in_flight.contains_key(id) || self.batches.values().any(|batch| batch.ids.contains(id))
    }

    /// Notes that a request came; false if the host waits for an answer under that id already.
    pub fn begin(&mut self, id: &HostId, batch: Option<u64>) -> bool {
        if self.batches.values().any(|batch| batch.ids.contains(id)) {
            return false;
        }
        let Entry::Vacant(free) = self.in_flight.entry(id.clone()) else { return false };
        free.insert(InFlight { place: Place::Initialize, batch, modern: None, answers: None });
        self.begun += 1;
        true
    }

    /// Whether `initialize` came.
    pub fn is_opened(&self) -> bool {
        self.phase != Phase::Unopened
    }

    /// Whether requests to the host may go out.
    pub fn is_initialized(&self) -> bool {
        self.phase == Phase::Initialized
    }

    /// The number of the next request to the host.
    pub fn question_id(&mut self) -> OurId {
        let id = OurId(self.next_question);
        self.next_question += 1;
        id
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
