//! One life of one child connection: what was asked of it, and what waits for its pipe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use compact_str::CompactString;

use super::child::Conn;
use super::era::{Era, Sender};
use super::listing::Kind;
use super::outcome::{Digest, OutcomeId};
use crate::wire::id::{ChildId, HostId, OurId, PeerId, WireId};
use crate::wire::method::Method;
use crate::wire::outbox::Outbox;
use crate::wire::splice::Edit;

/// The connection of one generation.
#[derive(Clone, Debug)]
pub struct Link {
    /// Which life of which server.
    pub conn: Conn,
    /// Which era it is spoken to in.
    pub era: Era,
    /// How far it is.
    pub phase: Phase,
    /// The probe that found no answer in time; a late one still counts.
    pub probe: Option<WireId>,
    /// What the child said to `initialize`, if it refused it.
    pub refused: Option<String>,
    /// Requests to it that have no answer yet.
    pub pending: BTreeMap<WireId, Pending>,
    /// Numbers of cancelled or timed-out requests whose late answer would still settle something.
    pub dead: BTreeMap<WireId, Option<OutcomeId>>,
    /// What waits for its stdin.
    pub outbox: Outbox<ChildTag>,
    /// Its own requests that are open at the host.
    pub questions: BTreeMap<ChildId, OurId>,
    /// Its questions for roots that wait for a call of a modern host, and until when.
    pub roots_wanted: Vec<(ChildId, Instant)>,
    /// Progress tokens of calls that became tasks, by our number, until the task is over.
    pub task_tokens: BTreeMap<WireId, PeerId>,
    /// Task ids of the host that this child started there (2025-11-25).
    pub host_tasks: BTreeSet<String>,
    /// Its tasks whose state we ask for, by its own ids.
    pub polls: BTreeMap<String, Poll>,
    /// Its tasks whose result we wait for, by its own ids.
    pub reading: BTreeSet<String>,
    /// A time at which [`Link::expired`] must be looked at; may be too early, never too late.
    pub wake: Option<Instant>,
    /// Our stream of notifications, at a modern child.
    pub listening: Listening,
    /// When something last went either way.
    pub last_traffic: Instant,
    /// It refused our revision and was asked once more with one of its own.
    pub asked_again: bool,
    /// Its output has ended, and its exit may follow: nothing more goes to it.
    pub silent: bool,
}

/// A task whose state is asked for again and again.
#[derive(Clone, Debug, Default)]
pub struct Poll {
    /// The next time; `None`: it is being asked for, or the host is.
    pub at: Option<Instant>,
    /// The pause between two times.
    pub every: Duration,
    /// Questions of it that were put to the host, by its keys: no key comes twice.
    pub seen: BTreeSet<String>,
    /// Of these, those that are open.
    pub open: BTreeMap<OurId, String>,
    /// The answers so far, by key, as JSON text.
    pub answers: BTreeMap<String, String>,
}

/// The state of our stream at a modern child.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// The one that counts.
    pub current: Option<WireId>,
    /// The one that is not acknowledged yet.
    pub next: Option<WireId>,
    /// Requests of a legacy host that wait for it, with the child's own URI.
    pub subscribers: Vec<(HostId, String)>,
    /// When it is opened anew.
    pub reopen_at: Option<Instant>,
    /// The next pause before that.
    pub pause: Duration,
}

/// How far a life is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The process is being started.
    Spawning,
    /// It runs; the handshake waits for the host's.
    Spawned,
    /// `initialize` was sent.
    Handshake,
    /// It serves.
    Ready,
    /// It is on its way down; nothing new goes to it.
    Ending,
}

/// What a piece of the outbox belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildTag {
    /// A request of that number.
    Request(WireId),
    /// Anything else.
    Other,
}

/// A request to a child.
#[derive(Clone, Debug)]
pub struct Pending {
    /// What for.
    pub purpose: Purpose,
    /// Longest silence, and when it would be over.
    pub idle: Option<(Duration, Instant)>,
    /// When it is over whatever comes.
    pub until: Option<Instant>,
}

/// What a request to a child is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A request of the host.
    Call(Box<Call>),
    /// Our handshake.
    Initialize,
    /// A page of a list.
    Page(Kind),
    /// A sign of life.
    Ping,
    /// Our own `logging/setLevel` or `resources/subscribe` after a start.
    Restore,
    /// Finds out whether it is modern.
    Discover,
    /// Its shared `subscriptions/listen`.
    Listen,
    /// A watch that listens of a modern host ask for.
    Watch {
        /// The child's own URI.
        own: String,
    },
    /// Its part of a gathered `tasks/list`.
    Gather(u64),
    /// The state of a task of its, by its own id.
    TaskState(String),
    /// The result of a task of its, by its own id.
    TaskResult(String),
    /// A word about a task that needs no answer.
    TaskWord,
}

/// A request of the host on its way through.
#[derive(Clone, Debug)]
pub struct Call {
    /// The host's id.
    pub host_id: HostId,
    /// The method.
    pub method: Method,
    /// The host's line; let go when it is in the outbox.
    pub frame: Bytes,
    /// What is replaced in it, beside id and progress token.
    pub edits: Vec<Edit>,
    /// Place of the id.
    pub id_at: std::ops::Range<usize>,
    /// The host's progress token, and its place.
    pub token: Option<PeerId>,
    /// Where the token stands.
    pub token_at: Option<std::ops::Range<usize>>,
    /// What a modern request says of its sender.
    pub modern: Option<Arc<Sender>>,
    /// The record of its questions at a modern host.
    pub parked: Option<u64>,
    /// What a retry brings along to a modern child.
    pub answers: Option<Box<Answers>>,
    /// Rounds of questions so far.
    pub rounds: u32,
    /// Whether we know tasks of the extension for it, though its host did not ask for one.
    pub tasks: bool,
    /// The child's own id of the task whose end it waits for.
    pub task: Option<Box<str>>,
    /// What it is about, for errors and for the ledger.
    pub about: About,
    /// When it came.
    pub since: Instant,
    /// Its intent in the in-flight file.
    pub outcome: Option<OutcomeId>,
    /// Of server, tool and arguments. Left out where the line is kept, which tells it if it is ever needed.
    pub digest: Option<Digest>,
    /// Our number, once it was sent.
    pub wire: Option<WireId>,
    /// The row that it repeats.
    pub repeat_of: Option<OutcomeId>,
}

/// What goes to a modern child with a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// `inputResponses` as JSON text; `None`: as the host sent them, or none.
    pub responses: Option<String>,
    /// Before it is sent, word is awaited that these URL elicitations are done.
    pub urls: Vec<String>,
    /// The child's exact `requestState` as a JSON string; `None`: it gave none.
    pub state: Option<String>,
    /// It answers a question that we put before anything was sent.
    pub unsent: bool,
}

/// What a request of the host is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// A tool.
    Tool(Box<ToolCall>),
    /// A prompt, by the child's own name.
    Prompt(CompactString),
    /// A resource, by the child's own URI.
    Resource(String),
    /// Watching a resource.
    Subscribe {
        /// The child's own URI.
        own: String,
        /// The host's spelling.
        spelling: String,
    },
    /// No longer watching a resource.
    Unsubscribe,
    /// A completion.
    Completion,
    /// A task, by its exposed id.
    Task(String),
}

/// What is known of a tool that is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolCall {
    /// The child's own name.
    pub original: CompactString,
    /// The name that the host used.
    pub exposed: CompactString,
    /// Annotated read-only: nothing is written down.
    pub read_only: bool,
    /// Annotated idempotent: the repeat guard lets it pass.
    pub idempotent: bool,
    /// Whether a legacy host asks for a task.
    pub task: bool,
    /// Whether it runs only as a task, and a modern host, which can't ask for one, calls it.
    pub only_as_task: bool,
    /// Where the arguments stand in the host's line, if they are written down.
    pub arguments_at: Option<std::ops::Range<usize>>,
}

impl Call {
    /// Whether its outcome is written down if it is lost.
    pub fn is_recorded(&self) -> bool {
        matches!(&self.about, About::Tool(tool) if !tool.read_only)
    }
}

impl Link {
    /// A life that has just begun.
    pub fn new(conn: Conn, now: Instant) -> Self {
        Self {
            conn,
            era: Era::Legacy,
            phase: Phase::Spawning,
            probe: None,
            refused: None,
            pending: BTreeMap::new(),
            dead: BTreeMap::new(),
            outbox: Outbox::new(),
            questions: BTreeMap::new(),
            roots_wanted: Vec::new(),
            task_tokens: BTreeMap::new(),
            host_tasks: BTreeSet::new(),
            polls: BTreeMap::new(),
            reading: BTreeSet::new(),
            wake: None,
            listening: Listening::default(),
            last_traffic: now,
            asked_again: false,
            silent: false,
        }
    }

    /// Notes a request that was put into the outbox.
    pub fn register(&mut self, id: WireId, pending: Pending) {
        for at in [pending.idle.map(|(_, at)| at), pending.until].into_iter().flatten() {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
        self.pending.insert(id, pending);
    }

    /// Progress came for a request: its silence begins anew.
    pub fn heard(&mut self, now: Instant, id: WireId) {
        if let Some(Pending { idle: Some((limit, at)), .. }) = self.pending.get_mut(&id) {
            *at = now + *limit;
        }
    }

    /// A question of the child is answered: all silences begin anew, for people think slowly.
    pub fn answered_question(&mut self, now: Instant) {
        for pending in self.pending.values_mut() {
            if let Some((limit, at)) = &mut pending.idle {
                *at = now + *limit;
            }
        }
    }

    /// The requests whose time is over, with whether it was the silence; sets the next wake.
    pub fn expired(&mut self, now: Instant) -> Vec<(WireId, bool)> {
        let person_asked = !self.questions.is_empty();
        let mut over = Vec::new();
        let mut wake: Option<Instant> = None;
        for (&id, pending) in &mut self.pending {
            if let Some((limit, at)) = &mut pending.idle
                && *at <= now
            {
                if person_asked {
                    *at = now + *limit;
                } else {
                    over.push((id, true));
                    continue;
                }
            }
            if pending.until.is_some_and(|until| until <= now) {
                over.push((id, false));
                continue;
            }
            for at in [pending.idle.map(|(_, at)| at), pending.until].into_iter().flatten() {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
        }
        self.wake = wake;
        over
    }

    /// Requests of the host under way to it.
    pub fn calls(&self) -> usize {
        self.pending.values().filter(|p| matches!(p.purpose, Purpose::Call(_))).count()
    }
}

/// How many numbers of the dead are remembered for late answers.
pub const DEAD_MAX: usize = 1024;
