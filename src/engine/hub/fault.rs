//! What follows a fault of our own: a panic in the middle of a step (`DESIGN.md` chapter 7).
//!
//! A step is not undone; what it left is looked at. The request at hand is taken back from wherever it got to and answered;
//! then [`Hub::mend`] answers every other request that hangs in the air and ends what was half ended. The pipes are
//! written between the steps only, so a request that came with the faulty step was not sent.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Effect, Hub, Stopping};
use crate::engine::child::{Conn, ServerId, State, Then, Waiting};
use crate::engine::link::{Call, ChildTag, Link, Phase as LinkPhase, Purpose};
use crate::engine::outcome::Reason;
use crate::engine::restart::Ending;
use crate::engine::session::{Asker, Batch, InFlight, Phase, Place};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, OurId, PeerId};
use crate::wire::message::{self, Kind, Line};
use crate::wire::skim::Skimmer;

/// What the log and the errors call such a fault.
const FAULT: &str = "a fault of the proxy itself";

/// The pause of all timers after such a fault in one: what stays due must not keep the processor busy.
const PAUSE: Duration = Duration::from_secs(1);

/// What is due at some time, as parts that fail one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Changes of lists are announced.
    Announce,
    /// `initialize` is answered.
    Initialize,
    /// First lists are answered.
    Lists,
    /// Calls stop waiting for the rows of earlier lives.
    Rows,
    /// Questions of the repeat guard are given up.
    Asked,
    /// Parked calls.
    Parked,
    /// Rounds of questions.
    Rounds,
    /// Streams of the host.
    Listens,
    /// Limits of a server.
    Child(ServerId),
    /// The end after the host's own.
    Finish,
}

impl Due {
    /// All but the servers, in the order in which they are done; the servers come before the last.
    pub(super) const OWN: [Self; 9] = [
        Self::Announce,
        Self::Initialize,
        Self::Lists,
        Self::Rows,
        Self::Asked,
        Self::Parked,
        Self::Rounds,
        Self::Listens,
        Self::Finish,
    ];
}

/// How far the host's requests had come before a line of its was handled.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    batches: u64,
    begun: u64,
}

/// What a server seems to be whose life is over.
#[derive(Clone, Copy, Debug)]
enum Half {
    /// It starts or is ready.
    Alive,
    /// It drains.
    Draining(Then),
}

impl Hub {
    /// How far the host's requests have come; to be asked before a line of its is handled.
    pub fn mark(&self) -> Mark {
        Mark { batches: self.session.next_batch, begun: self.session.begun }
    }

    /// All that may be due, in the order in which it is done.
    pub fn dues(&mut self) -> impl Iterator<Item = Due> + use<> {
        self.due_not_before = None;
        let [first @ .., last] = Due::OWN;
        let children = (0..self.children.len()).map(|index| Due::Child(ServerId(index)));
        first.into_iter().chain(children).chain([last])
    }

    /// The name of a part, and for a server the name of its state; for tests.
    pub fn name_of_due(&self, due: Due) -> String {
        match due {
            Due::Child(id) => format!("child:{}", self.child(id).state_name()),
            other => format!("{other:?}").to_ascii_lowercase(),
        }
    }

    /// Whether that waits for nothing but its turn.
    pub fn is_due(&self, now: Instant, due: Due) -> bool {
        self.due_at(due).is_some_and(|at| at <= now)
    }

    /// When a part is due.
    pub(super) fn due_at(&self, due: Due) -> Option<Instant> {
        match due {
            Due::Announce => self.announce.iter().copied().flatten().min(),
            Due::Initialize => match &self.session.phase {
                Phase::Opening { until, .. } => Some(*until),
                _ => None,
            },
            Due::Lists => self.lists_until.filter(|_| self.has_waiting_lists()),
            Due::Rows => self.rows_until,
            Due::Asked => self.asked.values().map(|asked| asked.until).min(),
            Due::Parked => self.parked_deadline(),
            Due::Rounds => self.rounds_deadline(),
            Due::Listens => self.listens_deadline(),
            Due::Child(id) => Self::child_deadline(self.child(id)),
            Due::Finish => match self.stopping {
                Some(Stopping::Finishing(until)) => Some(until),
                _ => None,
            },
        }
    }

    /// Does one part of what is due.
    pub fn handle_due(&mut self, now: Instant, due: Due) {
        match due {
            Due::Announce => self.announce_due(now),
            Due::Initialize => self.answer_initialize(now),
            Due::Lists => self.answer_lists(now),
            Due::Rows if self.rows_until.is_some_and(|until| until <= now) => self.handle_rows_known(now),
            Due::Rows => {}
            Due::Asked => self.asked_expired(now),
            Due::Parked => self.parked_due(now),
            Due::Rounds => self.rounds_due(now),
            Due::Listens => self.listens_due(now),
            Due::Child(id) => self.child_timeout(now, id),
            Due::Finish => self.finish_when_idle(now),
        }
    }

    /// A fault of ours in the handling of a line of the host; `before`: how far its requests had come.
    pub fn handle_host_fault(&mut self, now: Instant, line: &Bytes, before: Mark) {
        match message::read(line) {
            Line::One(envelope) => match envelope.kind(line) {
                Kind::Request(id) => {
                    let id = HostId(id);
                    if self.session.begun == before.begun && !self.session.is_in_use(&id) {
                        self.say(&not_sent().response(id.0.raw()));
                    } else if self.session.begun != before.begun {
                        self.fail(now, &id);
                    }
                }
                Kind::Result(id) | Kind::Error(id) | Kind::Both(id) => self.answer_lost(now, &id),
                _ => {}
            },
            Line::Batch(items) => self.fail_batch(now, line, &items, before),
            Line::Junk | Line::Other => {}
        }
        self.mend(now);
    }

    /// The same, where even [`Hub::handle_host_fault`] has the fault: the id is read in another way.
    pub fn handle_host_unreadable(&mut self, line: &[u8]) {
        let mut skimmer = Skimmer::default();
        skimmer.feed(line);
        let told = skimmer.finish();
        let Some(id) = told.id.as_deref().and_then(PeerId::from_token).filter(|_| told.method.is_some()) else {
            return;
        };
        self.session.in_flight.remove(&HostId(id.clone()));
        self.say(&not_sent().response(id.raw()));
    }

    /// A fault of ours in a part of what was due.
    pub fn handle_due_fault(&mut self, now: Instant, due: Due) {
        // What stays due is not tried again at once.
        self.due_not_before = Some(now + PAUSE);
        let over = match due {
            Due::Initialize => self.placed(|place| *place == Place::Initialize),
            Due::Lists => self.placed(|place| matches!(place, Place::List { .. })),
            Due::Asked => self.asked.iter().filter(|(_, asked)| asked.until <= now).map(|(id, _)| id.clone()).collect(),
            Due::Rounds => self.rounds_over(now),
            Due::Child(id) => {
                if let Some(conn) = self.child(id).link.as_ref().map(|link| link.conn) {
                    self.handle_broken(now, conn);
                }
                let late = |waiting: &Waiting| match waiting {
                    Waiting::Call { call, until } => (*until <= now).then(|| call.host_id.clone()),
                    Waiting::Unrouted { id, until, .. } => (*until <= now).then(|| id.clone()),
                };
                self.child(id).waiting.iter().filter_map(late).collect()
            }
            Due::Finish => {
                self.handle_stop_fault(now);
                Vec::new()
            }
            Due::Announce | Due::Rows | Due::Parked | Due::Listens => Vec::new(),
        };
        for id in over {
            self.fail(now, &id);
        }
        self.mend(now);
    }

    /// A fault of ours in the end: what is still open is answered, and the end goes on.
    pub fn handle_stop_fault(&mut self, now: Instant) {
        self.stopping = Some(Stopping::Down);
        self.mend(now);
        for id in self.placed(|_| true) {
            self.fail(now, &id);
        }
        for index in 0..self.children.len() {
            let Some(link) = self.child_mut(ServerId(index)).link.as_mut() else { continue };
            link.phase = LinkPhase::Ending;
            let conn = link.conn;
            self.effect(Effect::Stop { conn });
        }
        self.effect(Effect::Exit);
    }

    /// A fault of ours in anything else, maybe about that request of the host.
    pub fn handle_fault(&mut self, now: Instant, id: Option<&HostId>) {
        if let Some(id) = id {
            self.fail(now, id);
        }
        self.mend(now);
    }

    fn placed(&self, is_so: impl Fn(&Place) -> bool) -> Vec<HostId> {
        let flights = self.session.in_flight.iter().filter(|(_, flight)| is_so(&flight.place));
        flights.map(|(id, _)| id.clone()).collect()
    }

    /// Takes a request of the host back from wherever it got to, and answers it.
    fn fail(&mut self, now: Instant, id: &HostId) {
        let Some(InFlight { place, .. }) = self.session.in_flight.get(id).cloned() else { return };
        let mine = |call: &Call| call.host_id == *id;
        let mut sent = None;
        for index in 0..self.children.len() {
            self.child_mut(ServerId(index)).waiting.retain(|waiting| match waiting {
                Waiting::Call { call, .. } => !mine(call),
                Waiting::Unrouted { id: other, .. } => other != id,
            });
            // A parked call may have come under the same id, and waits for a retry.
            let pending = self.child(ServerId(index)).link.iter().flat_map(|link| &link.pending);
            let wire = pending.into_iter().find_map(|(wire, pending)| match &pending.purpose {
                Purpose::Call(call) if mine(call) && !self.is_detached(call) => Some(*wire),
                _ => None,
            });
            let Some((wire, link)) = wire.zip(self.child_mut(ServerId(index)).link.as_mut()) else { continue };
            let conn = link.conn;
            let unsent = link.outbox.take_back(ChildTag::Request(wire));
            let Some(Purpose::Call(call)) = link.pending.remove(&wire).map(|pending| pending.purpose) else { continue };
            if unsent {
                self.settle_now(call.outcome);
            } else {
                sent = Some((conn, wire, call));
            }
        }
        match &place {
            &Place::Asked(question) => {
                self.forget_asked(id);
                self.session.questions.remove(&question);
                self.withdraw_question(question, FAULT);
            }
            &Place::Gathering(number) => self.cancel_gathering(now, number),
            Place::Listening => self.stop_listening(now, id),
            &Place::Rounds(number) => self.drop_round(number, FAULT),
            Place::Initialize if matches!(&self.session.phase, Phase::Opening { id: opening, .. } if opening == id) => {
                // It may be sent again.
                self.session.phase = Phase::Unopened;
            }
            Place::Initialize | Place::List { .. } | Place::Waiting(_) | Place::AtChild(..) => {}
        }
        match sent {
            Some((conn, wire, call)) => {
                self.cancel_sent(conn, wire, &call, None);
                self.lose(now, conn, wire, &call, &super::lost::Loss::new(Reason::ConnectionLost, LOST));
                self.bury(conn, wire, call.outcome);
            }
            // An intent without its call: nothing was written to a pipe since.
            None => {
                let intents = self.effects.iter().filter_map(|effect| match effect {
                    Effect::Intent(noted) if noted.host_id == *id => Some(noted.id),
                    _ => None,
                });
                for outcome in intents.collect::<Vec<_>>() {
                    self.effect(Effect::Settle(outcome));
                }
                let error = if matches!(place, Place::Rounds(_)) { not_asked() } else { not_sent() };
                self.answer_error(id, &error);
            }
        }
    }

    /// The requests of an array that have no answer yet. None of them was sent: an array is handled in one step.
    fn fail_batch(&mut self, now: Instant, line: &Bytes, items: &[std::ops::Range<usize>], before: Mark) {
        let ids = items.iter().filter_map(|item| {
            let element = line.slice(item.clone());
            let Line::One(envelope) = message::read(&element) else { return None };
            let Kind::Request(id) = envelope.kind(&element) else { return None };
            Some(HostId(id))
        });
        let ids: Vec<HostId> = ids.collect();
        let number = before.batches;
        if self.session.next_batch == number {
            // It was not begun.
            self.session.next_batch += 1;
            self.session.batches.insert(number, Batch { open: ids.len(), ..Batch::default() });
        } else if !self.session.batches.contains_key(&number) {
            return;
        }
        for id in ids {
            let Some(batch) = self.session.batches.get(&number) else { return };
            if self.session.in_flight.get(&id).is_some_and(|flight| flight.batch == Some(number)) {
                self.fail(now, &id);
            } else if !batch.ids.contains(&id) {
                self.gather(Some(number), Bytes::from(not_sent().response(id.0.raw())));
            }
        }
        // What was no request may have been counted and not reached.
        if let Some(batch) = self.session.batches.get_mut(&number) {
            batch.open = 1;
            self.gather(Some(number), Bytes::new());
        }
    }

    /// The host's answer to a question was lost: whoever asked is told that there is none.
    fn answer_lost(&mut self, now: Instant, id: &PeerId) {
        let Ok(number) = id.raw().trim_matches('"').parse() else { return };
        let our = OurId(number);
        if let Some(question) = self.session.questions.get(&our) {
            return match question.asker.clone() {
                Asker::Guard { about } => self.fail(now, &about),
                _ => self.host_answered_badly(now, id),
            };
        }
        // It was taken from the table already.
        let links = self.children.iter().filter_map(|child| child.link.as_ref());
        let asker = links.flat_map(|link| link.questions.iter().map(|(id, our)| (link.conn, id.clone(), *our)));
        if let Some((conn, child_id, _)) = asker.into_iter().find(|(_, _, question)| *question == our) {
            if let Some(link) = self.link_mut(conn) {
                link.questions.remove(&child_id);
            }
            self.answer_child_error(conn, &child_id, code::INTERNAL, "the host's answer was lost in the proxy");
        }
    }

    /// Answers what hangs in the air after a fault, and ends what was half ended.
    fn mend(&mut self, now: Instant) {
        for index in 0..self.children.len() {
            self.mend_child(now, ServerId(index));
        }
        self.mend_parked();
        self.mend_gatherings(now);
        let hanging: Vec<(HostId, Place)> = self
            .session
            .in_flight
            .iter()
            .filter(|(id, flight)| !self.is_somewhere(id, &flight.place))
            .map(|(id, flight)| (id.clone(), flight.place.clone()))
            .collect();
        for (id, place) in hanging {
            match place {
                // It had a number, so it may have been sent.
                Place::AtChild(server, _) => {
                    let error = self.lost_in_fault(server);
                    self.answer_error_from(&id, Some(server), &error);
                }
                _ => self.fail(now, &id),
            }
        }
    }

    /// Whether the record of a request is where the request is said to be.
    fn is_somewhere(&self, id: &HostId, place: &Place) -> bool {
        match place {
            Place::Initialize | Place::List { .. } => true,
            Place::Waiting(server) => self.child(*server).waiting.iter().any(|waiting| match waiting {
                Waiting::Call { call, .. } => call.host_id == *id,
                Waiting::Unrouted { id: other, .. } => other == id,
            }),
            Place::AtChild(server, wire) => {
                self.child(*server).link.as_ref().is_some_and(|link| link.pending.contains_key(wire))
            }
            Place::Asked(question) => self.asked.contains_key(id) && self.session.questions.contains_key(question),
            Place::Gathering(number) => self.gatherings.contains_key(number),
            Place::Rounds(number) => self.rounds.contains_key(number),
            Place::Listening => {
                let waits = |link: &Link| link.listening.subscribers.iter().any(|(other, _)| other == id);
                self.session.listens.contains_key(id)
                    || self.children.iter().filter_map(|child| child.link.as_ref()).any(waits)
            }
        }
    }

    fn mend_child(&mut self, now: Instant, id: ServerId) {
        let stopping = self.stopping.is_some();
        let child = self.child_mut(id);
        let half = match child.state {
            State::Ready { .. } => Some(Half::Alive),
            State::Draining { then, .. } => Some(Half::Draining(then)),
            State::Starting => (!child.start_when_gone).then_some(Half::Alive),
            State::Stopped(_) | State::Backoff { .. } | State::Failed { .. } => None,
        };
        let half = half.filter(|_| !stopping);
        let Some(link) = child.link.as_mut() else { return self.end_half(now, id, half) };
        let conn = link.conn;
        // A request that is in no table would have an answer that belongs to nobody.
        let tags: Vec<ChildTag> = link.outbox.unsent().collect();
        for tag in tags {
            if matches!(tag, ChildTag::Request(wire) if !link.pending.contains_key(&wire)) {
                link.outbox.take_back(tag);
            }
        }
        if link.phase == LinkPhase::Ending && half.is_some() {
            // Told twice it is done once.
            self.effect(Effect::Stop { conn });
            self.end_half(now, id, half);
        }
    }

    /// Decides what follows a life that is over, where that was not decided.
    fn end_half(&mut self, now: Instant, id: ServerId, half: Option<Half>) {
        match half {
            Some(Half::Draining(then)) => self.after_drain(now, id, then),
            Some(Half::Alive) => self.ended(now, id, Ending::Badly, FAULT),
            None => {}
        }
    }

    /// -31010 for a request of which nothing is left but its id.
    pub(super) fn lost_in_fault(&self, server: ServerId) -> RpcError {
        let key = self.child(server).config.key.as_str();
        let message = format!(
            "The outcome of the request to server \"{key}\" is unknown: {LOST}. It may or may not have run; if it \
             changes anything, check with a reading tool before calling it again."
        );
        RpcError::new(code::UNKNOWN_OUTCOME, message).with("server", key).with("reason", Reason::ConnectionLost.name())
    }

    /// A fault of ours in the handling of what that life said, or in a task around it: the life ends, and what was lost
    /// on the way is answered.
    pub fn handle_broken(&mut self, now: Instant, conn: Conn) {
        if self.link_of(conn).is_some_and(|link| link.phase != LinkPhase::Ending) {
            let what = "the proxy failed in handling what it said, which is a fault of the proxy; please report it";
            tracing::error!(server = %self.child(conn.server).config.key, generation = conn.generation, "{what}");
            self.end_life(now, conn, None, what);
        }
        self.mend(now);
    }
}

/// What is said of a request that may have been sent.
const LOST: &str = "a fault of the proxy itself hit it on its way, which is in the log; please report it";

/// -32603 for a request that was not sent.
fn not_sent() -> RpcError {
    fault(
        "It was lost before it was sent to any server; other requests go on. Sending it again is safe, but may meet \
         the same fault.",
    )
}

/// -32603 for a request whose server asked for input, and will not get it.
fn not_asked() -> RpcError {
    fault(
        "Its server had asked for input and was not given any; what it did before that is not known. Check before \
         sending it again.",
    )
}

fn fault(what: &str) -> RpcError {
    let report = "Please report it, with what the proxy's log says.";
    RpcError::new(code::INTERNAL, format!("A fault of the proxy itself hit this request. {what} {report}"))
        .with("detail", "fault of the proxy")
}
