//! Whose question it is: attribution, the one running call of a child that asks, and roots (`PROTOCOL.md` 5.3).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Hub;
use super::from_host::Request;
use super::modern::bad_responses;
use super::parked::covered;
use crate::engine::child::{Conn, ServerId, State, Waiting};
use crate::engine::era::Era;
use crate::engine::link::{Answers, Call, ChildTag, Purpose};
use crate::engine::seal::{Kind, State as Sealed};
use crate::engine::session::Place;
use crate::wire::code;
use crate::wire::id::{ChildId, WireId};
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::Method;
use crate::wire::params::Params;

/// How long a child's question for roots waits for a call that can carry it.
const ROOTS_WAIT: Duration = Duration::from_secs(10);
/// How long the host's roots count.
pub(super) const ROOTS_KEPT: Duration = Duration::from_secs(15 * 60);
/// How long a person may take to name them.
const ROOTS_FOR: u64 = 15 * 60 * 1000;
/// The key of our own question for roots.
const ROOTS_KEY: &str = "mcp-proxy.roots";

/// A call in which a host can be asked: the protocol allows it in these only.
pub(super) fn may_ask(method: Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
}

impl Hub {
    // Attribution.

    /// The call that a question of a legacy child belongs to, if a modern host's is the one. With several that it may
    /// belong to, the child is marked: from then on one of its calls runs at a time.
    pub(super) fn modern_asker(
        &mut self,
        now: Instant,
        conn: Conn,
        method: Method,
        line: &[u8],
        params: &Params,
    ) -> Option<WireId> {
        let link = self.link_of(conn)?;
        // What the child has not seen a byte of did not make it ask.
        let unseen: BTreeSet<ChildTag> = link.outbox.unsent().collect();
        let mut idle = Vec::new();
        let mut asking = Vec::new();
        for (wire, pending) in &link.pending {
            if unseen.contains(&ChildTag::Request(*wire)) {
                continue;
            }
            if let Purpose::Call(call) = &pending.purpose
                && let (Some(sender), true) = (&call.modern, may_ask(call.method))
            {
                let able = covered(&sender.capabilities, method, line, params).is_ok();
                if self.asks(call) { &mut asking } else { &mut idle }.push((able, *wire));
            }
        }
        let candidates = if idle.is_empty() { asking } else { idle };
        if candidates.len() > 1 && !std::mem::replace(&mut self.child_mut(conn.server).interactive, true) {
            tracing::info!(server = %self.child(conn.server).config.key, "it asks while several calls run; from now on it is given one at a time");
            self.lists_complete(now, conn);
        }
        // The youngest that can be asked.
        candidates.into_iter().max().map(|(_, wire)| wire)
    }

    // The slot.

    /// Whether a child that asks has a call under way that may ask.
    pub(super) fn slot_taken(&self, conn: Conn) -> bool {
        let interactive = self.child(conn.server).interactive && !self.session.is_opened();
        interactive
            && self.link_of(conn).is_some_and(|link| {
                link.era == Era::Legacy
                    && link.pending.values().any(|pending| match &pending.purpose {
                        Purpose::Call(call) => may_ask(call.method) && !self.is_detached(call),
                        _ => false,
                    })
            })
    }

    /// Whether a call must wait until another one at its child is over.
    pub(super) fn must_wait_for_slot(&self, server: ServerId, call: &Call) -> bool {
        let Some(conn) = self.child(server).link.as_ref().map(|link| link.conn) else { return false };
        call.modern.is_some() && may_ask(call.method) && self.slot_taken(conn)
    }

    /// A retry waits for its turn; its round is not used up.
    pub(super) fn wait_for_slot(&mut self, now: Instant, server: ServerId, request: Request) {
        self.place(&request.id, Place::Waiting(server));
        let until = now + self.child(server).config.start_timeout;
        let waiting = Waiting::Unrouted { id: request.id, frame: request.frame, until };
        self.child_mut(server).waiting.push_back(waiting);
    }

    /// A call is over, or asks: the next one that waits for its turn gets it.
    pub(super) fn slot_free(&mut self, now: Instant, server: ServerId) {
        let child = self.child(server);
        if !child.interactive || self.stopping.is_some() || !matches!(child.state, State::Ready { .. }) {
            return;
        }
        for _ in 0..child.waiting.len() {
            let Some(conn) = self.child(server).link.as_ref().map(|link| link.conn) else { return };
            if self.slot_taken(conn) {
                return;
            }
            match self.child_mut(server).waiting.pop_front() {
                Some(Waiting::Call { call, .. }) => self.offer(now, server, call),
                Some(Waiting::Unrouted { id, frame, .. }) => self.dispatch_again(now, &id, frame),
                None => return,
            }
        }
    }

    // Roots and questions of no call.

    /// The host named its roots in a round.
    pub(super) fn note_roots(&mut self, now: Instant, result: String) {
        if result.contains("\"roots\"") {
            self.session.roots = Some((result, now));
        }
    }

    /// Questions of a legacy child under a modern host that belong to no call.
    pub(super) fn refuse_stray(&mut self, now: Instant, conn: Conn, id: ChildId, method: Method) {
        if method != Method::RootsList {
            return self.answer_child_error(conn, &id, code::INVALID_PARAMS, "the host is asked only within a call");
        }
        if !self.session.sender.as_ref().is_some_and(|sender| sender.capabilities.roots) {
            return self.answer_child_error(conn, &id, code::METHOD_NOT_FOUND, "the host does not offer this");
        }
        let known = self.session.roots.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) < ROOTS_KEPT);
        if let Some((roots, _)) = known.cloned() {
            return self.answer_child(conn, &id, &roots);
        }
        if let Some(link) = self.link_mut(conn) {
            link.roots_wanted.push((id, now + ROOTS_WAIT));
        }
    }

    /// When questions for roots are given up.
    pub(super) fn roots_due(&mut self, now: Instant, conn: Conn) {
        let Some(link) = self.link_mut(conn) else { return };
        let (over, rest) = std::mem::take(&mut link.roots_wanted).into_iter().partition(|(_, until)| *until <= now);
        link.roots_wanted = rest;
        let over: Vec<(ChildId, Instant)> = over;
        for (id, _) in over {
            self.answer_child_error(conn, &id, code::METHOD_NOT_FOUND, "the host tells its roots only within a call");
        }
    }

    /// A call to a child that waits for roots asks the host for them first; nothing was sent yet.
    pub(super) fn asks_for_roots(&mut self, now: Instant, server: ServerId, call: &Call) -> bool {
        let able = call.modern.as_ref().is_some_and(|sender| sender.capabilities.roots);
        let first = able && may_ask(call.method) && call.answers.is_none() && call.repeat_of.is_none();
        let wanted = self.child(server).link.as_ref().is_some_and(|link| !link.roots_wanted.is_empty());
        if !first || !wanted {
            return false;
        }
        let Some(digest) = self.digest_of(call) else { return false };
        let expires = self.unix(now).0 + ROOTS_FOR;
        let kind = Kind::Roots { id: self.own_question(now, expires) };
        let sealed = Sealed { kind, server: self.child(server).config.key.clone(), digest, expires };
        let sealed = self.seal(&sealed);
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"{ROOTS_KEY}":{{"method":"roots/list"}}}},"requestState":"{sealed}","_meta":{{"{}":{}}}}}"#,
            meta::SERVER,
            self.server_info()
        );
        self.answer_as_is(&call.host_id, &result);
        true
    }

    /// The host named its roots before its call: who waits for them is told, and the call goes out.
    pub(super) fn roots_answered(
        &mut self,
        now: Instant,
        method: Method,
        mut request: Request,
        server: &str,
        asked: u64,
    ) {
        let whole = request.params.whole.clone().unwrap_or_default();
        let answer = text::path(&request.frame, whole, &["inputResponses", ROOTS_KEY]);
        if answer.as_ref().is_some_and(|at| !text::is_object(&request.frame, at)) {
            return self.answer_error(&request.id, &bad_responses());
        }
        if !self.takes_answer(asked, &request.id) {
            return;
        }
        let roots = answer.map(|at| String::from_utf8_lossy(&request.frame[at]).into_owned());
        if let Some(roots) = &roots {
            self.note_roots(now, roots.clone());
        }
        let id = self.order.iter().copied().find(|id| self.child(*id).config.key == server);
        if let Some((conn, wanted)) = id
            .and_then(|id| self.child_mut(id).link.as_mut())
            .map(|link| (link.conn, std::mem::take(&mut link.roots_wanted)))
        {
            for (id, _) in wanted {
                match &roots {
                    Some(roots) => self.answer_child(conn, &id, roots),
                    None => self.answer_child_error(conn, &id, code::METHOD_NOT_FOUND, "the host did not say"),
                }
            }
        }
        request.answers = Some(Box::new(Answers { unsent: true, ..Answers::default() }));
        self.dispatch(now, Some(method), b"", request);
    }

    /// What a state for this call is bound to.
    pub(super) fn digest_of(&mut self, call: &Call) -> Option<String> {
        let params = Params::read(&call.frame, super::calls::params_of(&call.frame)).ok()?;
        let request = Request::new(call.host_id.clone(), call.frame.clone(), call.id_at.clone(), params);
        Some(self.call_digest(call.method, &request))
    }
}
