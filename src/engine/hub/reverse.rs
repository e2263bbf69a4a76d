//! Requests of a child to the host, and what the host says to them (`PROTOCOL.md` 3.2, 5.5, 5.9).

use std::time::Instant;

use bytes::Bytes;

use super::Hub;
use super::answer::Droppable;
use super::parked::covered;
use crate::engine::child::Conn;
use crate::engine::convert;
use crate::engine::era::Era;
use crate::engine::link::ChildTag;
use crate::engine::outcome::Answer;
use crate::engine::rewrite::Rewriter;
use crate::engine::session::{Asker, Question};
use crate::wire::code;
use crate::wire::id::{ChildId, OurId, PeerId, WireId};
use crate::wire::json;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::{Method, Revision};
use crate::wire::params::{Params, text_at};
use crate::wire::splice::{self, Edit};

impl Hub {
    pub(super) fn child_request(&mut self, now: Instant, conn: Conn, line: Bytes, envelope: &Envelope, id: ChildId) {
        let token = envelope.method.clone().map(|at| line.slice(at)).unwrap_or_default();
        let Some(link) = self.link_mut(conn) else { return };
        if !super::from_child::is_live(link) {
            return;
        }
        if link.era == Era::Modern {
            // It has nothing to ask by requests, and nothing is answered.
            let child = self.child_mut(conn.server);
            child.record.faults += 1;
            tracing::warn!(server = %child.config.key, "a request of a modern server; it was dropped");
            return;
        }
        if link.questions.contains_key(&id) {
            return self.answer_child_error(conn, &id, code::INVALID_REQUEST, "a request of this id is under way");
        }
        let Ok(params) = envelope.read_params(&line) else {
            return self.answer_child_error(conn, &id, code::INVALID_PARAMS, "params must be an object");
        };
        let method = Method::from_token(&token);
        let asks = matches!(method, Some(Method::RootsList | Method::CreateMessage | Method::Elicit));
        if let (true, Some(method)) = (asks, method) {
            if let Some(at) = params.related_task(&line)
                && self.task_asks(now, conn, at, &line, &params, &id, method)
            {
                return;
            }
            if let Some(wire) = self.modern_asker(now, conn, method, &line, &params) {
                return self.park(now, conn, wire, &line, &params, id, method);
            }
            if !self.session.is_opened() {
                return self.refuse_stray(now, conn, id, method);
            }
        }
        if let (true, Some(method)) = (asks, method) {
            return match self.may_ask_host(method, &line, &params) {
                Ok(()) => self.ask_host(now, conn, line, envelope, id, &params, method),
                Err((code, message)) => self.answer_child_error(conn, &id, code, message),
            };
        }
        let host = &self.session.capabilities;
        match method {
            Some(Method::Ping) => self.answer_child(conn, &id, "{}"),
            Some(method @ (Method::TasksGet | Method::TasksResult | Method::TasksCancel)) if host.tasks.is_some() => {
                let task = text_at(&line, params.task_id.as_ref()).unwrap_or_default();
                let known = self.link_of(conn).is_some_and(|link| link.host_tasks.contains(&*task));
                if known {
                    self.ask_host(now, conn, line, envelope, id, &params, method);
                } else {
                    self.answer_child_error(conn, &id, code::INVALID_PARAMS, "no such task was started by this server");
                }
            }
            _ => {
                let name = String::from_utf8_lossy(&token).into_owned();
                self.answer_child_error(conn, &id, code::METHOD_NOT_FOUND, &format!("the host does not offer {name}"));
            }
        }
    }

    /// Whether the session's host can be asked that: by what it declared, and by what its revision has.
    fn may_ask_host(&self, method: Method, line: &[u8], params: &Params) -> Result<(), (i64, &'static str)> {
        covered(&self.session.capabilities, method, line, params)?;
        let whole = params.whole.clone().unwrap_or_default();
        let revision = self.session.revision;
        if method == Method::CreateMessage
            && revision == Revision::V2024_11_05
            && convert::samples_with(line, &whole, "audio")
        {
            return Err((code::INVALID_PARAMS, "the host's sampling takes no audio"));
        }
        let schema = json::get(line, whole, "requestedSchema");
        let has_lists = |at: std::ops::Range<usize>| convert::older_form(&line[at]).is_err();
        if method == Method::Elicit && revision < Revision::V2025_11_25 && schema.is_some_and(has_lists) {
            return Err((code::INVALID_PARAMS, "the host's forms have no lists of choices"));
        }
        Ok(())
    }

    /// Relays a child's request under a number of ours.
    #[expect(clippy::too_many_arguments, reason = "a message with what was read of it")]
    fn ask_host(
        &mut self,
        now: Instant,
        conn: Conn,
        line: Bytes,
        envelope: &Envelope,
        id: ChildId,
        params: &Params,
        method: Method,
    ) {
        let our = self.session.question_id();
        let mut edits = vec![Edit::number(envelope.id.clone().unwrap_or_default(), our.0)];
        let token = params.token(&line).map(|(at, token)| {
            edits.push(Edit::number(at, our.0));
            token
        });
        if let Some(at) = params.related_task(&line) {
            self.expose_task(now, conn, &line, at, &mut edits);
        }
        let whole = params.whole.clone().unwrap_or_default();
        match method {
            Method::CreateMessage => {
                self.edit_sampling(conn, &line, &whole, &mut edits);
                if self.session.revision < Revision::V2025_11_25 {
                    convert::one_block_each(&line, &whole, &mut edits);
                }
            }
            Method::Elicit => self.edit_elicitation(conn, &line, &whole, &mut edits),
            _ => {}
        }
        self.session.questions.insert(our, Question { asker: Asker::Child { conn, id: id.clone(), token }, method });
        if let Some(link) = self.link_mut(conn) {
            link.questions.insert(id, our);
        }
        if self.session.is_initialized() {
            self.say_edited(conn.server, &line, &mut edits, Droppable::No);
        } else {
            self.session.held.push((Some(our), Bytes::from(splice::apply(&line, &mut edits))));
        }
    }

    pub(super) fn edit_sampling(
        &self,
        conn: Conn,
        line: &Bytes,
        whole: &std::ops::Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        Rewriter::new(line, &self.child(conn.server).scheme, edits).sampling(whole);
        // "This server" would mean all children: they must not see each other's context.
        if let Some(at) = json::get(line, whole.clone(), "includeContext")
            && matches!(json::string(line, at.clone()).as_deref(), Some("thisServer" | "allServers"))
        {
            edits.push(Edit::text(at, "\"none\""));
        }
    }

    fn edit_elicitation(&mut self, conn: Conn, line: &Bytes, whole: &std::ops::Range<usize>, edits: &mut Vec<Edit>) {
        self.label(conn.server, line, whole, edits);
        if self.session.revision < Revision::V2025_11_25 {
            older_form(line, whole, edits);
            let mode = json::get(line, whole.clone(), "mode").and_then(|at| json::string(line, at));
            if mode.as_deref() == Some("form") {
                meta::edit_object(line, whole, &["mode"], "", edits);
            }
        }
        if let Some(at) = json::get(line, whole.clone(), "elicitationId")
            && let Some(own) = json::string(line, at.clone())
        {
            let taken = self.elicitations.get(&*own).is_some_and(|(server, _)| *server != conn.server);
            let exposed = if taken { format!("{}.{own}", self.child(conn.server).config.key) } else { own.to_string() };
            self.elicitations.insert(exposed.clone(), (conn.server, own.to_string()));
            if exposed != own {
                edits.push(Edit::text(at, json::quoted(&exposed)));
            }
        }
    }

    /// A URL elicitation is done: told under the id that the host knows.
    pub(super) fn elicitation_complete(&mut self, now: Instant, conn: Conn, line: &Bytes, params: &Params) {
        let Some(whole) = params.whole.clone() else { return };
        let Some(at) = json::get(line, whole, "elicitationId") else { return };
        let Some(own) = json::string(line, at.clone()).map(std::borrow::Cow::into_owned) else { return };
        self.url_is_done(now, conn.server, &own);
        let known = self.elicitations.iter().find(|(_, (server, id))| *server == conn.server && *id == own);
        if !self.session.is_initialized() {
            // A modern host is told by the call's result.
            return;
        }
        // An id that came in an error -32042 went through as it was.
        let exposed = known.map_or_else(|| own.clone(), |(exposed, _)| exposed.clone());
        self.elicitations.remove(&exposed);
        self.say_edited(conn.server, line, &mut [Edit::text(at, json::quoted(&exposed))], Droppable::No);
    }

    /// The host answered a request of ours.
    pub(super) fn host_response(&mut self, now: Instant, line: &Bytes, envelope: &Envelope, id: &PeerId) {
        let Some((our, question)) = self.take_question(id) else {
            tracing::debug!(id = id.raw(), "a response of the host to nothing that was asked; it was dropped");
            return;
        };
        match question.asker {
            Asker::Task { conn, own } => {
                let result = envelope.result.clone().map(|at| String::from_utf8_lossy(&line[at]).into_owned());
                self.task_question_answered(now, conn, &own, our, question.method, result);
            }
            Asker::Round { id, .. } => {
                let result = envelope.result.clone().map(|at| String::from_utf8_lossy(&line[at]).into_owned());
                self.round_answered(now, id, our, question.method, result);
            }
            Asker::Guard { about } => {
                let answer = super::repeat::repeat_answer(line, envelope.result.clone());
                self.guard_answered(now, &about, answer);
            }
            Asker::Child { conn, id: child_id, .. } => {
                let Some(link) = self.link_mut(conn) else { return };
                link.questions.remove(&child_id);
                if link.questions.is_empty() {
                    link.answered_question(now);
                }
                if let Some(at) = envelope.result.clone().and_then(|at| json::path(line, at, &["task", "taskId"]))
                    && let Some(task) = json::string(line, at)
                {
                    link.host_tasks.insert(task.into_owned());
                }
                let id_at = envelope.id.clone().unwrap_or_default();
                let mut edits = vec![Edit::text(id_at, child_id.0.raw())];
                self.unexpose_related(line, envelope, &mut edits);
                if let (Method::CreateMessage, Some(result)) = (question.method, &envelope.result)
                    && self.is_before_blocks(conn)
                {
                    edits.extend(convert::one_text(line, result));
                }
                if let Some(link) = self.link_mut(conn) {
                    link.outbox.push_edited(ChildTag::Other, line, &mut edits);
                }
            }
        }
    }

    /// Whether a child knows sampled answers of one block only.
    pub(super) fn is_before_blocks(&self, conn: Conn) -> bool {
        self.child(conn.server).facts.as_ref().is_some_and(|facts| facts.revision < Revision::V2025_11_25)
    }

    fn take_question(&mut self, id: &PeerId) -> Option<(OurId, Question)> {
        // Some hosts echo a number as a string.
        let our = OurId(id.raw().trim_matches('"').parse().ok()?);
        self.session.questions.remove(&our).map(|question| (our, question))
    }

    /// A response with both a result and an error settles the question as failed.
    pub(super) fn host_answered_badly(&mut self, now: Instant, id: &PeerId) {
        let Some((our, question)) = self.take_question(id) else { return };
        tracing::warn!(source = "host", "a response with neither or both of result and error");
        match question.asker {
            Asker::Guard { about } => self.guard_answered(now, &about, Answer::None),
            Asker::Round { id, .. } => self.round_answered(now, id, our, question.method, None),
            Asker::Task { conn, own } => self.task_question_answered(now, conn, &own, our, question.method, None),
            Asker::Child { conn, id, .. } => {
                if let Some(link) = self.link_mut(conn) {
                    link.questions.remove(&id);
                }
                self.answer_child_error(conn, &id, code::INTERNAL, "the host's answer was no valid response");
            }
        }
    }

    /// Tells the host that a question need not be answered any more.
    pub(super) fn withdraw_question(&mut self, id: OurId, reason: &str) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":{}}}}}"#,
            id.0,
            json::quoted(reason)
        );
        // A question that still waits for the handshake is withdrawn without a trace.
        if let Some(at) = self.session.held.iter().position(|(held, _)| *held == Some(id)) {
            self.session.held.remove(at);
            return;
        }
        self.say(&text);
    }

    /// The answer of a child's question that the host will not give.
    pub(super) fn refuse_question(&mut self, conn: Conn, id: &ChildId, method: Method) {
        if method == Method::Elicit {
            self.answer_child(conn, id, r#"{"action":"cancel"}"#);
        } else {
            self.answer_child_error(conn, id, code::INTERNAL, "the call that asked was cancelled");
        }
    }

    /// A child takes its question back.
    pub(super) fn child_cancelled(&mut self, now: Instant, conn: Conn, line: &Bytes, params: &Params) {
        let Some(id) = params.request_id.clone().and_then(|at| PeerId::from_token(&line[at])).map(ChildId) else {
            return;
        };
        if self.era_of(conn) == Era::Modern {
            if let Ok(number) = id.0.raw().trim_matches('"').parse() {
                self.child_stream_over(now, conn, WireId(number), false);
            }
            return;
        }
        let Some(our) = self.link_mut(conn).and_then(|link| link.questions.remove(&id)) else { return };
        if self.unask(our) {
            return;
        }
        if self.session.questions.remove(&our).is_some() {
            let at = params.request_id.clone().unwrap_or_default();
            if self.session.is_initialized() {
                self.say_edited(conn.server, line, &mut [Edit::number(at, our.0)], Droppable::No);
            } else {
                self.withdraw_question(our, "the server took it back");
            }
        }
    }

    /// Progress of the host on a child's request, under the child's own token.
    pub(super) fn host_progress(&mut self, line: &Bytes, params: &Params) {
        let Some(at) = params.progress_token.clone() else { return };
        let Some(our) =
            std::str::from_utf8(&line[at.clone()]).ok().and_then(|text| text.trim_matches('"').parse().ok())
        else {
            return;
        };
        let Some(Asker::Child { conn, token: Some(token), .. }) =
            self.session.questions.get(&OurId(our)).map(|q| q.asker.clone())
        else {
            return;
        };
        if let Some(link) = self.link_mut(conn) {
            link.outbox.push_edited(ChildTag::Other, line, &mut [Edit::text(at, token.raw())]);
        }
    }

    /// Tells the children that were promised it.
    pub(super) fn host_roots_changed(&mut self, now: Instant) {
        let _ = now;
        if !self.session.capabilities.roots {
            return;
        }
        for id in self.order.clone() {
            if let Some(conn) = self.child_mut(id).ready_link().map(|link| link.conn) {
                self.tell_child(conn, r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
            }
        }
    }

    /// Answers a child's request with a result that is JSON text.
    pub(super) fn answer_child(&mut self, conn: Conn, id: &ChildId, result: &str) {
        self.tell_child(conn, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0.raw()));
    }

    /// Answers a child's request with an error of ours.
    pub(super) fn answer_child_error(&mut self, conn: Conn, id: &ChildId, code: i64, message: &str) {
        let error = code::RpcError::new(code, message);
        self.tell_child(conn, &error.response(id.0.raw()));
    }
}

/// The form of a question, for a host before 2025-11-25.
pub(super) fn older_form(line: &[u8], params: &std::ops::Range<usize>, edits: &mut Vec<Edit>) {
    if let Some(at) = json::get(line, params.clone(), "requestedSchema")
        && let Ok(Some(schema)) = convert::older_form(&line[at.clone()])
    {
        edits.push(Edit::text(at, schema));
    }
}
