//! The life of a child: started, ready, draining, gone, started anew (`DESIGN.md` chapter 7).

use std::sync::Arc;
use std::time::Instant;

use super::lost::Loss;
use super::{Effect, Hub, Known, Stopping};
use crate::config::{Config, Start, Transport};
use crate::engine::child::{Child, Conn, Rest, ServerId, State, Then, Verdict, Waiting};
use crate::engine::era::Era;
use crate::engine::link::{Call, ChildTag, Link, Phase, Purpose};
use crate::engine::outcome::{Exit, Reason};
use crate::engine::restart::{Decision, Ending};
use crate::engine::session::Place;
use crate::wire::id::HostId;

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// For people: what was looked for and where.
    pub reason: String,
    /// Another attempt can't mend it: not found, not executable.
    pub hopeless: bool,
}

impl Hub {
    /// Takes the servers of a configuration in; start-up is a reload from nothing.
    pub(super) fn populate(&mut self, now: Instant, config: &Arc<Config>, known: Vec<Option<Known>>) {
        let mut known = known.into_iter();
        for server in &config.servers {
            let id = self.add_child(now, Arc::new(server.clone()), known.next().flatten());
            self.order.push(id);
        }
        self.catalog_anew(now, &[]);
        for id in self.order.clone() {
            self.start_if_due(now, id);
        }
        // What the cache had is no change.
        self.announce = [None; 3];
    }

    pub(super) fn add_child(
        &mut self,
        now: Instant,
        server: Arc<crate::config::Server>,
        known: Option<Known>,
    ) -> ServerId {
        let id = ServerId(self.children.len());
        let mut child = Child::new(server, self.entropy.bits(), now);
        if let Some(known) = known {
            child.remember(known);
        }
        self.children.push(child);
        self.out_of.push(0);
        id
    }

    /// Starts an eager child, or a lazy one whose catalog nobody knows.
    pub(super) fn start_if_due(&mut self, now: Instant, id: ServerId) {
        let child = self.child_mut(id);
        if let Transport::Http(_) = child.config.transport {
            self.not_supported(id);
        } else if child.config.start == Start::Eager || !child.listed.iter().all(|listed| *listed) {
            self.start(now, id);
        }
    }

    fn not_supported(&mut self, id: ServerId) {
        let child = self.child_mut(id);
        child.state = State::Failed { reason: "not_supported".into(), half_open: false };
        child.record.last_error = Some("remote servers are not supported yet".into());
    }

    /// Starts a life, as soon as the last one has left nothing behind.
    pub(super) fn start(&mut self, now: Instant, id: ServerId) {
        if self.stopping.is_some() || self.position(id).is_none() {
            // A state with a time in it would wake the machine for what it can't do.
            let child = self.child_mut(id);
            child.state = State::Stopped(Rest::UntilUsed);
            child.start_when_gone = false;
            return;
        }
        if let Transport::Http(_) = self.child(id).config.transport {
            return self.not_supported(id);
        }
        // The last life of this server, which may have left the configuration in between, must be over.
        let key = &self.child(id).config.key;
        let lives = self.children.iter().any(|other| other.config.key == *key && other.link.is_some());
        let child = self.child_mut(id);
        child.state = State::Starting;
        if lives {
            child.start_when_gone = true;
            return;
        }
        child.start_when_gone = false;
        child.generation += 1;
        child.record.restarts += u64::from(child.generation > 1);
        child.record.started = Some(now);
        child.record.stderr.clear();
        child.last_used = now;
        let conn = Conn { server: id, generation: child.generation };
        child.link = Some(Link::new(conn, now));
        let server = Arc::clone(&child.config);
        tracing::info!(server = %server.key, generation = conn.generation, "starting");
        self.effect(Effect::Spawn { conn, server });
    }

    /// The process runs, or could not be started.
    pub fn handle_spawned(&mut self, now: Instant, conn: Conn, result: Result<u32, StartFailure>) {
        let Some(link) = self.link_mut(conn) else { return };
        if link.phase == Phase::Ending {
            // The life was over before it began.
            return match result {
                Ok(_) => self.effect(Effect::Stop { conn }),
                Err(_) => self.handle_reaped(now, conn),
            };
        }
        match result {
            Ok(pid) => {
                if link.phase == Phase::Spawning {
                    link.phase = Phase::Spawned;
                }
                self.child_mut(conn.server).record.pid = Some(pid);
                self.begin_handshake(now, conn.server);
            }
            Err(failure) => {
                self.child_mut(conn.server).link = None;
                let ending = if failure.hopeless { Ending::Hopeless } else { Ending::Badly };
                self.note_error(conn.server, failure.reason.clone());
                self.ended(now, conn.server, ending, &failure.reason);
            }
        }
    }

    pub(super) fn became_ready(&mut self, now: Instant, conn: Conn) {
        let wall = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(self.unix(now).0);
        let child = self.child_mut(conn.server);
        child.restart.ready(now);
        child.record.up_since = Some(wall);
        child.record.start_took = child.record.started.map(|at| now.saturating_duration_since(at));
        child.no_ping = false;
        child.greeting_ends = 0;
        if let Some(link) = &mut child.link {
            link.phase = Phase::Ready;
        }
        // A drain that was ordered meanwhile goes on.
        if child.state == State::Starting {
            child.state = State::Ready { since: now };
        }
        let facts = child.facts.as_ref().expect("a ready child has just told its facts");
        tracing::info!(
            server = %child.config.key, generation = conn.generation, protocol = facts.revision.as_str(),
            identity = %facts.identity, "ready"
        );
    }

    /// The start of a life failed: the process is ended, and the decision about the next falls when it is gone.
    pub(super) fn start_failed(&mut self, now: Instant, conn: Conn, reason: String) {
        self.note_error(conn.server, reason.clone());
        self.end_life(now, conn, None, &reason);
    }

    /// The process exited, or closed its stdout (`exit` is then unknown). Everything that it had written was handled.
    pub fn handle_gone(&mut self, now: Instant, conn: Conn, exit: Option<Exit>) {
        let Some(link) = self.link_of(conn) else { return };
        if link.phase == Phase::Ending {
            self.child_mut(conn.server).record.last_exit = exit.or(self.child(conn.server).record.last_exit.clone());
            return;
        }
        let what = match &exit {
            Some(exit) => format!("its process ended ({exit})"),
            None => "it closed its output".to_owned(),
        };
        tracing::warn!(server = %self.child(conn.server).config.key, generation = conn.generation, "{what}");
        self.end_life(now, conn, exit, &what);
    }

    /// Ends a life: answers what is pending, gives back what was not sent, and decides what follows.
    pub(super) fn end_life(&mut self, now: Instant, conn: Conn, exit: Option<Exit>, what: &str) {
        let child = self.child_mut(conn.server);
        let Some(link) = child.link.as_mut().filter(|link| link.conn == conn) else { return };
        let was_ready = link.phase == Phase::Ready;
        let in_handshake = link.phase == Phase::Handshake && link.refused.is_none();
        let idle = link.calls() == 0;
        link.phase = Phase::Ending;
        let outbox = std::mem::take(&mut link.outbox);
        let pending = std::mem::take(&mut link.pending);
        let mut questions = std::mem::take(&mut link.questions).into_values().collect::<Vec<_>>();
        questions.extend(std::mem::take(&mut link.polls).into_values().flat_map(|poll| poll.open.into_keys()));
        link.reading.clear();
        link.wake = None;
        let unsent: std::collections::BTreeSet<_> = outbox
            .unsent()
            .filter_map(|tag| match tag {
                ChildTag::Request(wire) => Some(wire),
                ChildTag::Other => None,
            })
            .collect();
        child.record.last_exit = exit.clone().or(child.record.last_exit.take());
        child.record.pid = None;
        child.record.up_since = None;
        child.pagers.clear();
        let stderr: Vec<String> = child.record.stderr.iter().rev().take(5).rev().cloned().collect();
        let draining = match child.state {
            State::Draining { then, .. } => Some(then),
            _ => None,
        };
        let loss = Loss {
            reason: match (draining, &exit, self.stopping) {
                (_, _, Some(Stopping::Down)) => Reason::ProxyStopped,
                (Some(Then::Start | Then::Remove), None, _) => Reason::ServerReplaced,
                (_, Some(_), _) => Reason::ChildExited,
                (_, None, _) => Reason::ConnectionLost,
            },
            exit: exit.clone(),
            what: what.to_owned(),
            stderr,
        };
        self.forget_task_questions(conn);
        for id in questions {
            if self.session.questions.remove(&id).is_some() {
                self.withdraw_question(id, "the server that asked is gone");
            }
        }
        let mut handed_back = Vec::new();
        for (wire, pending) in pending {
            match pending.purpose {
                Purpose::Call(call) if unsent.contains(&wire) => handed_back.push(call),
                Purpose::Call(call) => self.lose(now, conn, wire, &call, &loss),
                Purpose::Gather(number) => self.gathered(now, conn, number, None),
                _ => {}
            }
        }
        self.hand_back(now, conn.server, handed_back);
        self.effect(Effect::Stop { conn });
        if let Some(then) = draining {
            return self.after_drain(now, conn.server, then);
        }
        let well = was_ready && idle && exit == Some(Exit::Code(0));
        if in_handshake && self.try_the_other_era(now, conn) {
            return;
        }
        let ending = if well { Ending::Well } else { Ending::Badly };
        if !well && self.stopping.is_none() {
            self.child_mut(conn.server).record.last_error = Some(what.to_owned());
        }
        self.ended(now, conn.server, ending, what);
    }

    /// Some servers end on a first message that they do not know: once, and without counting it as a crash, such a one
    /// is started again and greeted in the other way (`PROTOCOL.md` 2.5).
    ///
    /// One that was ready before when it was greeted so, in this process or by the cache, knows that message: its end
    /// is a crash like any other. Only if it ends on it again is its next start, which counts as well, greeted in the
    /// other way, for it may be another version by now.
    fn try_the_other_era(&mut self, now: Instant, conn: Conn) -> bool {
        let stopping = self.stopping.is_some();
        let child = self.child_mut(conn.server);
        let probed = child.link.as_ref().is_some_and(|link| link.era == Era::Modern);
        let decided = child.config.protocol != crate::config::Protocol::Auto;
        let known = child.facts.as_ref().is_some_and(|facts| facts.revision.is_legacy() != probed);
        child.greeting_ends = child.greeting_ends.saturating_add(1);
        let enough = if known { 2 } else { 1 };
        if decided || stopping || child.greeting_ends < enough {
            return false;
        }
        if child.greeting_ends > enough {
            child.verdict = None;
            return false;
        }
        child.verdict = Some(if probed { Verdict::LegacyOnly } else { Verdict::ModernOnly });
        if known {
            return false;
        }
        tracing::info!(server = %child.config.key, "it ended on the first message; it is started once more and greeted in the other way");
        self.start(now, conn.server);
        true
    }

    /// Requests of which no byte was written wait for the next life.
    #[expect(clippy::vec_box, reason = "they come boxed from the life, and go boxed into the next")]
    fn hand_back(&mut self, now: Instant, server: ServerId, calls: Vec<Box<Call>>) {
        for mut call in calls.into_iter().rev() {
            if let Some(outcome) = call.outcome.take() {
                self.effect(Effect::Settle(outcome));
            }
            let id = call.host_id.clone();
            let until = now + self.child(server).config.start_timeout;
            self.place(&id, Place::Waiting(server));
            self.child_mut(server).waiting.push_front(Waiting::Call { call, until });
        }
    }

    /// Decides what follows an end.
    pub(super) fn ended(&mut self, now: Instant, id: ServerId, ending: Ending, why: &str) {
        if self.stopping.is_some() {
            // Nothing is started any more, so nothing goes to what is over, and nobody waits for it.
            self.child_mut(id).state = State::Stopped(Rest::UntilUsed);
            return self.refuse_waiting(now, id, "the proxy is ending");
        }
        let child = self.child_mut(id);
        let half_open =
            matches!(child.state, State::Starting) && child.restart.failures() >= child.config.restart.attempts;
        let policy = child.config.restart.clone();
        let decision = child.restart.ended(now, &policy, ending);
        let wanted = !child.waiting.is_empty();
        let key = child.config.key.clone();
        match decision {
            Decision::OnDemand => {
                child.state = State::Stopped(Rest::UntilUsed);
                tracing::info!(server = %key, "it ended well and is started again when it is used");
                if wanted {
                    self.start(now, id);
                }
            }
            Decision::Retry(at) if !half_open => {
                let at = if wanted { at.min(child.restart.forward(now)) } else { at };
                child.state = State::Backoff { until: at };
                tracing::warn!(server = %key, pause_ms = at.saturating_duration_since(now).as_millis(), "it is started again after a pause: {why}");
            }
            Decision::Retry(_) => self.give_up(now, id, why, true),
            Decision::GiveUp { half_open } => self.give_up(now, id, why, half_open),
        }
        self.answer_initialize(now);
        self.answer_lists(now);
    }

    fn give_up(&mut self, now: Instant, id: ServerId, why: &str, half_open: bool) {
        let child = self.child_mut(id);
        tracing::error!(server = %child.config.key, "given up: {why}");
        child.state = State::Failed { reason: why.to_owned(), half_open };
        self.refuse_waiting(now, id, why);
    }

    /// Nothing of that life's group is left.
    pub fn handle_reaped(&mut self, now: Instant, conn: Conn) {
        let child = self.child_mut(conn.server);
        if child.link.as_ref().is_some_and(|link| link.conn == conn) {
            child.link = None;
        }
        let key = self.child(conn.server).config.key.clone();
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            if child.config.key == key && std::mem::take(&mut child.start_when_gone) {
                self.start(now, ServerId(index));
            }
        }
    }

    /// A call needs the server: brings the next attempt forward.
    pub(super) fn wanted(&mut self, now: Instant, id: ServerId) {
        let child = self.child_mut(id);
        let forward = child.restart.forward(now);
        match &mut child.state {
            State::Stopped(Rest::UntilUsed) => self.start(now, id),
            State::Backoff { until } => *until = (*until).min(forward),
            State::Failed { half_open: true, .. } => {
                if forward <= now {
                    self.start(now, id);
                } else {
                    child.state = State::Backoff { until: forward };
                }
            }
            State::Stopped(Rest::ByPerson)
            | State::Starting
            | State::Ready { .. }
            | State::Draining { .. }
            | State::Failed { .. } => {}
        }
    }

    /// Sends what waited, now that the server is ready.
    pub(super) fn flush_waiting(&mut self, now: Instant, id: ServerId) {
        let (calls, unrouted): (Vec<_>, Vec<_>) = std::mem::take(&mut self.child_mut(id).waiting)
            .into_iter()
            .partition(|waiting| matches!(waiting, Waiting::Call { .. }));
        self.child_mut(id).waiting = unrouted.into();
        for waiting in calls {
            if let Waiting::Call { call, .. } = waiting {
                self.admit(now, id, call);
            }
        }
    }

    /// Looks up again what could not be looked up before the server told its names.
    pub(super) fn reroute(&mut self, now: Instant, id: ServerId) {
        if !self.child(id).waiting.iter().any(|waiting| matches!(waiting, Waiting::Unrouted { .. })) {
            return;
        }
        let (unrouted, calls): (Vec<_>, Vec<_>) = std::mem::take(&mut self.child_mut(id).waiting)
            .into_iter()
            .partition(|waiting| matches!(waiting, Waiting::Unrouted { .. }));
        self.child_mut(id).waiting = calls.into();
        for waiting in unrouted {
            if let Waiting::Unrouted { id, frame, .. } = waiting {
                self.dispatch_again(now, &id, frame);
            }
        }
    }

    pub(super) fn dispatch_again(&mut self, now: Instant, id: &HostId, frame: bytes::Bytes) {
        use crate::wire::message::{Line, read};
        let Line::One(envelope) = read(&frame) else { return };
        let Ok(params) = envelope.read_params(&frame) else { return };
        let token = envelope.method.clone().map(|at| frame.slice(at)).unwrap_or_default();
        let method = crate::wire::method::Method::from_token(&token);
        let id_at = envelope.id.unwrap_or_default();
        let request = super::from_host::Request::new(id.clone(), frame, id_at, params);
        if self.is_modern(id) {
            return self.modern_request(now, method, &token, request);
        }
        self.dispatch(now, method, &token, request);
    }

    /// Answers all that wait for a server that will not come.
    pub(super) fn refuse_waiting(&mut self, now: Instant, id: ServerId, reason: &str) {
        for waiting in std::mem::take(&mut self.child_mut(id).waiting) {
            let host_id = match waiting {
                Waiting::Call { call, .. } => {
                    self.call_unsent(now, id, &call);
                    call.host_id
                }
                Waiting::Unrouted { id, .. } => id,
            };
            let error = if self.position(id).is_none() { self.removed(id) } else { self.unavailable(now, id, reason) };
            self.answer_error_from(&host_id, Some(id), &error);
        }
    }

    /// Milliseconds after which asking again may help.
    pub(super) fn retry_after(now: Instant, child: &Child) -> Option<u64> {
        if child.is_put_away() {
            return None;
        }
        let wait = match &child.state {
            State::Backoff { until } => until.saturating_duration_since(now),
            State::Failed { .. } if child.restart.is_hopeless() => return None,
            State::Failed { half_open: true, .. } => child.restart.forward(now).saturating_duration_since(now),
            State::Failed { .. } | State::Stopped(Rest::ByPerson) => return None,
            State::Starting | State::Ready { .. } | State::Draining { .. } | State::Stopped(Rest::UntilUsed) => {
                std::time::Duration::from_secs(1)
            }
        };
        u64::try_from(wait.as_millis()).ok().map(|ms| ms.max(1000))
    }

    /// Lets what is pending finish, then goes on with `then`.
    pub(super) fn drain(&mut self, now: Instant, id: ServerId, then: Then, at_once: bool) {
        let child = self.child_mut(id);
        let until = if at_once { now } else { now + child.config.drain_timeout };
        match &child.link {
            Some(link) if link.phase != Phase::Ending => {
                child.state = State::Draining { until, then };
                self.drained(now, id);
                self.child_timeout(now, id);
            }
            _ => self.after_drain(now, id, then),
        }
    }

    /// Something pending is over: a drain may be complete.
    pub(super) fn drained(&mut self, now: Instant, id: ServerId) {
        let child = self.child(id);
        if let (State::Draining { .. }, Some(link)) = (&child.state, &child.link)
            && link.calls() == 0
        {
            let conn = link.conn;
            self.end_life(now, conn, None, "the server was replaced or stopped");
        }
        self.slot_free(now, id);
        if self.stopping.is_some() {
            self.finish_when_idle(now);
        }
    }

    /// The time of a drain is over.
    pub(super) fn drain_ends(&mut self, now: Instant, conn: Conn) {
        self.end_life(
            now,
            conn,
            None,
            "it did not finish within drain_timeout when the server was replaced or stopped",
        );
    }

    pub(super) fn after_drain(&mut self, now: Instant, id: ServerId, then: Then) {
        match then {
            Then::Start => {
                self.child_mut(id).restart.forgive();
                self.start(now, id);
            }
            Then::Stop(rest) => {
                let child = self.child_mut(id);
                child.state = State::Stopped(rest);
                child.start_when_gone = false;
                if rest == Rest::ByPerson {
                    self.refuse_waiting(now, id, super::calls::STOPPED);
                } else if !self.child(id).waiting.is_empty() {
                    self.start(now, id);
                }
            }
            Then::Remove => {
                let child = self.child_mut(id);
                child.state = State::Stopped(Rest::ByPerson);
                child.start_when_gone = false;
                self.refuse_waiting(now, id, "removed");
            }
        }
        self.answer_lists(now);
    }

    /// A signal, or the parent's end: answers what is open, and lets everything go.
    pub fn handle_stop(&mut self, now: Instant) {
        if self.stopping == Some(Stopping::Down) {
            return;
        }
        self.stopping = Some(Stopping::Down);
        self.end_listens();
        let open: Vec<HostId> = self.session.in_flight.keys().cloned().collect();
        for index in 0..self.children.len() {
            let id = ServerId(index);
            if let Some(conn) = self.child(id).link.as_ref().map(|link| link.conn) {
                self.end_life(now, conn, None, "the proxy was told to end");
            }
            // What was given back unsent is among them.
            self.refuse_waiting(now, id, "the proxy is ending");
        }
        self.answer_lists(now);
        for id in open {
            self.abandon(now, &id);
        }
        self.effect(Effect::Exit);
    }

    /// Gives a request that is still open its one answer.
    fn abandon(&mut self, now: Instant, id: &HostId) {
        use crate::wire::code::{RpcError, UNAVAILABLE};
        if let crate::engine::session::Phase::Opening { until, .. } = &mut self.session.phase {
            *until = now;
            self.answer_initialize(now);
        }
        let error = RpcError::new(UNAVAILABLE, "The proxy is ending. The request was not sent.")
            .with("reason", "proxy_stopped");
        self.answer_error(id, &error);
    }

    /// After the host's EOF: the end begins when nothing is open, or when its time is over.
    pub(super) fn finish_when_idle(&mut self, now: Instant) {
        if let Some(Stopping::Finishing(until)) = self.stopping
            && (self.only_listens() || until <= now)
        {
            self.handle_stop(now);
        }
    }

    fn only_listens(&self) -> bool {
        self.session.in_flight.values().all(|flight| flight.place == Place::Listening)
    }

    /// A line of a child's stderr, already masked.
    pub fn handle_stderr(&mut self, conn: Conn, line: String) {
        if self.link_of(conn).is_some() {
            self.child_mut(conn.server).note_stderr(line);
        }
    }
}
