//! The machine as a whole: the host's session, a child for each server, the merged catalog, and what goes between them.
//!
//! The verbs follow one pattern: `handle_*` takes an input and the time, decides, and can neither fail nor wait;
//! [`Hub::poll_effect`] and the outboxes give what is to be done; [`Hub::wants_child`] is the back-pressure;
//! [`Hub::deadline`] says when [`Hub::handle_timeout`] is due. **Drain the effects before the outboxes are written**: an
//! intent must be in its file before the call is in the pipe.

mod announce;
mod answer;
mod asks;
mod calls;
mod children;
mod control;
mod explain;
mod fault;
mod from_child;
mod from_host;
mod initialize;
mod inspect;
mod lifecycle;
mod limits;
mod listen;
mod lost;
mod modern;
mod own;
mod parked;
mod record;
mod reload;
mod repeat;
mod reverse;
mod rounds;
mod status;
mod tasks;
mod urls;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use compact_str::CompactString;

use super::catalog::{Catalog, Listing, Snapshots};
use super::child::{Child, Conn, ServerId, Verdict};
use super::era::Era;
use super::facts::Facts;
use super::link::{ChildTag, Link, Purpose};
use super::names::Naming;
use super::outcome::{Digest, Digester, OutcomeId, RepeatGuard, Row, Settlement, UnixMs};
use super::recent::Recent;
use super::seal::Sealer;
use super::session::Session;
use crate::config::{self, Config};
use crate::wire::id::HostId;
use crate::wire::outbox::Outbox;
use crate::wire::splice::Edit;
use crate::wire::turns::{Sent, Turns};

pub use control::Command;
pub use fault::{Due, Mark};
pub use lifecycle::StartFailure;
pub use reload::Incoming;

/// The machine. It can be cloned, so that small worlds can be explored in every order.
#[derive(Clone, Debug)]
pub struct Hub {
    config: Arc<Config>,
    /// Who we are, as modern results tell it.
    server_info: String,
    naming: Naming,
    session: Session,
    /// By [`ServerId`]; those that left the configuration stay as empty shells.
    children: children::Children,
    /// The present servers, in the order of the file.
    order: Vec<ServerId>,
    catalog: Catalog,
    snapshots: Snapshots,
    /// What waits for descriptor 1.
    out: Turns<HostTag>,
    /// Bytes of each child in `out`, by server.
    out_of: Vec<usize>,
    effects: VecDeque<Effect>,
    /// First lists wait until then at the latest.
    lists_until: Option<Instant>,
    /// When a change of tools, prompts or resources is announced.
    announce: [Option<Instant>; 3],
    /// The snapshot that the host was last given of each kind.
    given: [Option<u64>; 4],
    guard: RepeatGuard,
    digester: Digester,
    /// Outcomes whose answers are on their way to descriptor 1 as one array, by a number of it.
    settling: BTreeMap<u64, Vec<OutcomeId>>,
    next_settling: u64,
    /// Calls that wait for a person's word about a repeat.
    asked: BTreeMap<HostId, repeat::Asked>,
    tasks: tasks::Tasks,
    gatherings: BTreeMap<u64, tasks::Gathering>,
    /// Calls of a modern host that wait, at a legacy child, for its answers.
    parked: BTreeMap<u64, parked::Parked>,
    /// Records of parked calls that are over.
    consumed: VecDeque<u64>,
    /// Questions of our own to a modern host that it may answer, and until when.
    own_questions: VecDeque<(u64, UnixMs)>,
    /// The number of the next one; another run of ours counts from elsewhere.
    next_own_question: u64,
    /// Rounds of questions of modern children, put to a legacy host.
    rounds: BTreeMap<u64, rounds::Round>,
    /// URL elicitations of which children said that they are over: server and id.
    urls_done: VecDeque<(String, String)>,
    sealer: Sealer,
    /// How long the host is known to wait for a call; `None`: long, or it is not known.
    call_limit: Option<Duration>,
    /// Edits of the message at hand; kept for its room.
    scratch: Vec<Edit>,
    /// URL elicitations that are open, by the id that the host knows.
    elicitations: BTreeMap<String, (ServerId, String)>,
    stopping: Option<Stopping>,
    clock: Clock,
    entropy: Entropy,
    /// Unparsable lines from the host that were answered in the present second.
    junk: (Option<Instant>, u32),
    /// Rows of the ledger that are unresolved, as far as known; for `status`.
    unknown: BTreeSet<OutcomeId>,
    /// Whether there is a file that an unknown outcome is kept in.
    outcomes_kept: bool,
    about: About,
    /// Bytes that may wait in all.
    room: usize,
    /// Until then calls that are written down wait for the rows of earlier lives.
    rows_until: Option<Instant>,
    /// After a fault of ours in a timer none rings before then.
    due_not_before: Option<Instant>,
    /// Servers that were left out because of a fault in their tables.
    broken: Vec<Broken>,
    /// The last calls, for `top`.
    recent: Recent,
}

/// Who we are.
#[derive(Clone, Debug)]
pub struct About {
    /// The proxy's process.
    pub pid: u32,
    /// When it began.
    pub started_at: UnixMs,
}

/// A server that was left out.
#[derive(Clone, Debug)]
struct Broken {
    key: String,
    prefix: String,
    reason: String,
}

/// What the pump is to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Start a process; tell [`Hub::handle_spawned`].
    Spawn {
        /// Which life.
        conn: Conn,
        /// Of what.
        server: Arc<config::Server>,
    },
    /// Close its stdin and end its group by the ladder; tell [`Hub::handle_reaped`].
    Stop {
        /// Which life.
        conn: Conn,
    },
    /// Write an intent down, before the outbox of that child is written.
    Intent(Box<Noted>),
    /// The answer of that call was accepted by descriptor 1, or it was never sent.
    Settle(OutcomeId),
    /// The outcome of that call is unknown.
    Lost(Box<Row>),
    /// A late answer came for it.
    Late(OutcomeId, Box<Settlement>),
    /// A call repeats that row.
    Repeated(OutcomeId),
    /// An identical call was refused because of that row.
    Refused(OutcomeId),
    /// A child's facts and lists are complete and new: keep them for the next start.
    Cache {
        /// Whose.
        server: Arc<config::Server>,
        /// What.
        known: Box<Known>,
    },
    /// Read one of our own resources; tell [`Hub::answer_own`].
    ReadOwn {
        /// The request.
        id: HostId,
        /// The ledger; else the status.
        unknown: bool,
    },
    /// The host spoke for the first time: watch its process.
    WatchParent,
    /// Everything is answered and all children are on their way down.
    Exit,
}

/// What is known of a call before it is sent; shares what it can with the call.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The id of its outcome.
    pub id: OutcomeId,
    /// When it is sent.
    pub time: UnixMs,
    /// The server.
    pub server: Arc<config::Server>,
    /// The child's own name of the tool.
    pub tool: CompactString,
    /// The name that the host used.
    pub exposed: CompactString,
    /// The host's id of the request.
    pub host_id: HostId,
    /// The life of the child that it goes to.
    pub generation: u32,
    /// Our number of the request.
    pub sequence: u64,
    /// Of server, tool and arguments; `None`: it can be told from these.
    pub digest: Option<Digest>,
    /// The arguments as JSON text; empty: there are none, or only the digest is kept.
    pub arguments: Bytes,
    /// The row that it repeats.
    pub repeat_of: Option<OutcomeId>,
}

/// What is kept of a child for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its facts.
    pub facts: Facts,
    /// Its lists.
    pub listing: Listing,
    /// Which era it speaks.
    pub verdict: Option<Verdict>,
    /// It asks while several calls run.
    pub interactive: bool,
}

/// What a piece of the host's outbox belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostTag {
    /// Whose message it is; for the bound of what waits, and for turns.
    server: Option<u32>,
    settles: Settles,
}

/// The outcomes that are settled when a message is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Settles {
    #[default]
    None,
    /// That of the call that it answers.
    One(OutcomeId),
    /// Those of an array, by its number.
    Array(u64),
}

impl std::hash::Hash for Settles {
    /// Which ones they are decides nothing: random names do not count in [`Hub::fingerprint`].
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

impl Sent for HostTag {
    fn sender(&self) -> Option<u32> {
        self.server
    }
}

/// How the end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stopping {
    /// The host closed its pipe: open calls may finish until then.
    Finishing(Instant),
    /// All are on their way down.
    Down,
}

/// Ties the two clocks together once, so that the engine needs one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    /// A moment.
    pub instant: Instant,
    /// The same moment.
    pub unix: UnixMs,
}

/// Numbers that nobody can guess, from one random seed.
#[derive(Clone, Debug)]
pub struct Entropy {
    seed: [u8; 32],
    count: u64,
    /// Words of the last block that nobody has had yet.
    words: Vec<u64>,
}

/// How long open calls may take after the host closed its pipe.
const FINISH: Duration = Duration::from_secs(1);
/// What may wait for the host of one child before it is no longer read.
const CHILD_ROOM: usize = 8 << 20;
/// A longer line of the host is let go as soon as it was written to its child.
const FRAME_KEPT: usize = 4 << 10;
/// What may wait in all, for the host and for all children, beyond one message.
const TOTAL_ROOM: usize = 512 << 20;

impl Hub {
    /// The machine before its first turn. `known` holds, for each server of `config` in its order, what the cache has.
    pub fn new(config: Arc<Config>, known: Vec<Option<Known>>, clock: Clock, entropy: Entropy, pid: u32) -> Self {
        let mut hub = Self {
            server_info: modern::server_info(&config),
            naming: Naming::new(&config),
            session: Session::new(),
            children: children::Children::default(),
            order: Vec::new(),
            catalog: Catalog::new(0),
            snapshots: Snapshots::new(entropy.seed),
            out: Turns::new(),
            out_of: Vec::new(),
            effects: VecDeque::new(),
            lists_until: None,
            announce: [None; 3],
            given: [None; 4],
            guard: RepeatGuard::default(),
            digester: Digester::default(),
            settling: BTreeMap::new(),
            next_settling: 1,
            asked: BTreeMap::new(),
            tasks: tasks::Tasks::default(),
            gatherings: BTreeMap::new(),
            parked: BTreeMap::new(),
            consumed: VecDeque::new(),
            own_questions: VecDeque::new(),
            next_own_question: entropy.first(),
            rounds: BTreeMap::new(),
            urls_done: VecDeque::new(),
            sealer: Sealer::new(&entropy.seed),
            call_limit: None,
            scratch: Vec::new(),
            elicitations: BTreeMap::new(),
            stopping: None,
            clock,
            entropy,
            junk: (None, 0),
            unknown: BTreeSet::new(),
            outcomes_kept: true,
            about: About { pid, started_at: clock.unix },
            room: TOTAL_ROOM,
            rows_until: None,
            due_not_before: None,
            broken: Vec::new(),
            recent: Recent::default(),
            config: Arc::clone(&config),
        };
        hub.populate(clock.instant, &config, known);
        hub
    }

    /// Seals with a key that outlives the process, so that a state of an earlier one is known as ours.
    pub fn set_seal_key(&mut self, key: &[u8; 32]) {
        self.sealer = Sealer::new(key);
    }

    /// Tells whether there is a file that unknown outcomes are kept in.
    pub fn set_outcomes_kept(&mut self, kept: bool) {
        self.outcomes_kept = kept;
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Bytes that wait for descriptor 1.
    pub fn host_bytes(&self) -> usize {
        self.out.bytes()
    }

    /// What is to be offered to descriptor 1 next. Empty: nothing waits.
    pub fn host_outbox(&mut self) -> &Outbox<HostTag> {
        self.out.compose()
    }

    /// Descriptor 1 accepted so many bytes.
    pub fn host_accepted(&mut self, count: usize) {
        let (out_of, settling, effects) = (&mut self.out_of, &mut self.settling, &mut self.effects);
        self.out.accepted(count, |tag, bytes, whole| {
            if let Some(server) = tag.server {
                out_of[server as usize] -= bytes;
            }
            match tag.settles {
                Settles::One(outcome) if whole => effects.push_back(Effect::Settle(outcome)),
                Settles::Array(number) if whole => {
                    effects.extend(settling.remove(&number).into_iter().flatten().map(Effect::Settle));
                }
                Settles::None | Settles::One(_) | Settles::Array(_) => {}
            }
        });
    }

    /// What waits for the stdin of that life; `None` also once its output has ended.
    pub fn child_outbox(&self, conn: Conn) -> Option<&Outbox<ChildTag>> {
        self.link_of(conn).filter(|link| !link.silent).map(|link| &link.outbox)
    }

    /// The output of that life has ended: no answer can come any more, so nothing more is sent. [`Hub::handle_gone`]
    /// follows, and gives back what was not sent.
    pub fn handle_output_ended(&mut self, conn: Conn) {
        if let Some(link) = self.link_mut(conn) {
            link.silent = true;
        }
    }

    /// The next life whose outbox may have got something since it was last told; each is told once.
    pub fn poll_spoken_to(&mut self) -> Option<Conn> {
        self.children.poll_spoken_to()
    }

    /// The stdin of that life accepted so many bytes.
    pub fn child_accepted(&mut self, conn: Conn, count: usize) {
        if let Some(link) = self.link_mut(conn) {
            let (outbox, pending, era) = (&mut link.outbox, &mut link.pending, link.era);
            outbox.accepted(count, |tag, _, whole| {
                // Between legacy sides, what was written whole is never rendered again.
                if let (ChildTag::Request(wire), true, Era::Legacy) = (tag, whole, era)
                    && let Some(Purpose::Call(call)) = pending.get_mut(&wire).map(|pending| &mut pending.purpose)
                    && call.modern.is_none()
                    && call.frame.len() > FRAME_KEPT
                {
                    call.frame = bytes::Bytes::new();
                    call.edits = Vec::new();
                }
            });
        }
    }

    /// Whether more of that child may be read.
    pub fn wants_child(&self, conn: Conn) -> bool {
        let own = self.out_of.get(conn.server.0).copied().unwrap_or_default();
        let back = self.link_of(conn).map_or(0, |link| link.outbox.bytes());
        own < CHILD_ROOM && back < CHILD_ROOM + self.config.proxy.max_message && self.out.bytes() < self.room
    }

    /// Whether what waits for all pipes leaves room, `held` bytes of lines that are not yet whole included.
    pub fn has_room(&mut self, held: usize) -> bool {
        self.out.bytes() + self.children.unsent_bytes() + held < self.room
    }

    /// Whether another line of the host may be kept: not while those that are reach the bound. So it is passed by the
    /// largest single line at most.
    fn has_room_for_calls(&self) -> bool {
        let kept = self.children.iter().map(Child::kept_bytes).sum::<usize>();
        let asked = self.asked.values().map(repeat::Asked::bytes).sum::<usize>();
        self.out.bytes() + kept + asked < self.room
    }

    /// Sets another bound for all that waits than `DESIGN.md` P8 does; for tests of that bound.
    pub fn set_room(&mut self, bytes: usize) {
        self.room = bytes;
    }

    /// Whether more of the host may be read: not while it leaves a mass of answers unread.
    pub fn wants_host(&self) -> bool {
        self.out.bytes() < self.room
    }

    /// When [`Hub::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let own = Due::OWN.iter().filter_map(|due| self.due_at(*due));
        let at = own.chain(self.children.deadline()).min();
        at.map(|at| self.due_not_before.map_or(at, |not_before| at.max(not_before)))
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for due in self.dues() {
            self.handle_due(now, due);
        }
    }

    /// The largest line that may pass.
    pub fn max_message(&self) -> usize {
        self.config.proxy.max_message
    }

    /// The configuration that is in force.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    // Access to the parts.

    fn child(&self, id: ServerId) -> &Child {
        &self.children[id.0]
    }

    fn child_mut(&mut self, id: ServerId) -> &mut Child {
        &mut self.children[id.0]
    }

    fn link_of(&self, conn: Conn) -> Option<&Link> {
        self.children.get(conn.server.0)?.link.as_ref().filter(|link| link.conn == conn)
    }

    fn link_mut(&mut self, conn: Conn) -> Option<&mut Link> {
        self.children.get_mut(conn.server.0)?.link.as_mut().filter(|link| link.conn == conn)
    }

    fn present(&self) -> impl Iterator<Item = &Child> {
        self.order.iter().map(|id| self.child(*id))
    }

    fn position(&self, id: ServerId) -> Option<usize> {
        self.order.iter().position(|other| *other == id)
    }

    fn unix(&self, now: Instant) -> UnixMs {
        let passed = now.saturating_duration_since(self.clock.instant);
        UnixMs(self.clock.unix.0 + u64::try_from(passed.as_millis()).unwrap_or(u64::MAX / 2))
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }
}

// === impl Entropy ===

impl Entropy {
    /// From a random seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, count: 0, words: Vec::new() }
    }

    fn block(&mut self) -> [u8; 32] {
        use sha2::Digest as _;
        self.count += 1;
        let mut hash = sha2::Sha256::new();
        hash.update(self.seed);
        hash.update(self.count.to_le_bytes());
        hash.finalize().into()
    }

    /// The first of numbers that are counted on from here, and that no other process counts.
    fn first(&self) -> u64 {
        self.seed.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        if self.words.is_empty() {
            let block = self.block();
            self.words.extend(block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        }
        self.words.pop().unwrap_or_default()
    }

    /// 130 bits as 26 characters of base32.
    pub fn text(&mut self) -> String {
        data_encoding::BASE32_NOPAD.encode(&self.block()[..17])[..26].to_ascii_lowercase()
    }
}
