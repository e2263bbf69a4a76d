//! Calls whose answer will not come: what the host is told, and what is written down (`DESIGN.md` chapters 6 and 8).

use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::{Effect, Hub, Noted};
use crate::engine::child::{Conn, ServerId, Waiting};
use crate::engine::link::{About, Call, ChildTag, DEAD_MAX, Purpose};
use crate::engine::outcome::{
    ARGUMENTS_BOUND, Exit, GuardRow, Kept, OutcomeId, RESULT_BOUND, Reason, Row, SettledAs, Settlement, Standing,
};
use crate::engine::recent::Outcome;
use crate::engine::session::Place;
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;

/// Why a call was lost, with all that can be said about it.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) reason: Reason,
    pub(super) exit: Option<Exit>,
    /// What happened, as the middle of a sentence.
    pub(super) what: String,
    /// The last lines of its stderr, where they may say why.
    pub(super) stderr: Vec<String>,
}

impl Loss {
    pub(super) fn new(reason: Reason, what: impl Into<String>) -> Self {
        Self { reason, exit: None, what: what.into(), stderr: Vec::new() }
    }
}

impl Hub {
    /// What is written down before a call is sent.
    pub(super) fn noted(&self, now: Instant, server: ServerId, call: &Call, id: OutcomeId) -> Noted {
        let child = self.child(server);
        let (tool, exposed, arguments_at) = match &call.about {
            About::Tool(tool) => (tool.original.clone(), tool.exposed.clone(), tool.arguments_at.clone()),
            _ => unreachable!("only tool calls have intents"),
        };
        let kept = arguments_at.filter(|at| self.keeps_arguments() && at.end <= call.frame.len());
        Noted {
            id,
            time: self.unix(now),
            server: std::sync::Arc::clone(&child.config),
            tool,
            exposed,
            host_id: call.host_id.clone(),
            generation: child.generation,
            sequence: call.wire.map_or(child.next_wire, |wire| wire.0),
            digest: call.digest,
            arguments: kept.map(|at| call.frame.slice(at)).unwrap_or_default(),
            repeat_of: call.repeat_of,
        }
    }

    /// A request that was sent gets no answer: tells the host, and writes it down.
    pub(super) fn lose(&mut self, now: Instant, conn: Conn, wire: WireId, call: &Call, loss: &Loss) {
        self.write_loss(now, conn.server, call, loss);
        self.call_over(now, conn, call, Outcome::Lost(loss.reason));
        let error = self.loss_error(conn, wire, call, loss);
        let kept = self.keep_loss(call, &error);
        let child = self.child_mut(conn.server);
        child.record.calls += 1;
        child.record.errors += 1;
        // Its id may be that of another request by now.
        if !kept {
            self.answer_error_from(&call.host_id, Some(conn.server), &error);
        }
    }

    /// The row of a lost call, if it has one.
    pub(super) fn write_loss(&mut self, now: Instant, server: ServerId, call: &Call, loss: &Loss) {
        let (Some(outcome), About::Tool(tool)) = (call.outcome, &call.about) else { return };
        let key = self.children[server.0].config.key.clone();
        let digest = call.digest.unwrap_or_else(|| self.repeat_digest(server, call));
        let noted = self.noted(now, server, call, outcome);
        let arguments = std::str::from_utf8(&noted.arguments).ok().filter(|text| !text.is_empty());
        let row = Row {
            id: outcome,
            time: noted.time,
            lost_at: self.unix(now),
            server: key.clone(),
            tool: noted.tool.to_string(),
            exposed: noted.exposed.to_string(),
            arguments: arguments.map(|text| Kept::unmasked(text, ARGUMENTS_BOUND)),
            digest,
            host_request_id: noted.host_id.0.raw().to_owned(),
            generation: u64::from(noted.generation),
            sequence: noted.sequence,
            reason: loss.reason,
            exit: loss.exit.clone(),
            settlement: None,
            resolution: None,
            repeat_of: noted.repeat_of,
            repeated_at: None,
            refused_at: None,
            pid: self.about.pid,
        };
        self.guard.note(
            row.lost_at,
            GuardRow {
                id: outcome,
                digest,
                server: key,
                exposed: tool.exposed.to_string(),
                time: row.time,
                lost_at: row.lost_at,
                reason: loss.reason,
                standing: Standing::Unknown,
                warned: false,
            },
        );
        self.count_unknown(outcome);
        self.child_mut(server).record.unknown += 1;
        self.effect(Effect::Lost(Box::new(row)));
    }

    fn loss_error(&self, conn: Conn, wire: WireId, call: &Call, loss: &Loss) -> RpcError {
        let key = self.child(conn.server).config.key.as_str();
        let subject = match &call.about {
            About::Tool(tool) => format!("the tool \"{}\" of server \"{key}\"", tool.exposed),
            About::Prompt(name) => format!("the prompt \"{name}\" of server \"{key}\""),
            About::Resource(uri) => format!("the resource {uri} of server \"{key}\""),
            _ => format!("{} at server \"{key}\"", call.method.as_str()),
        };
        let hint = match (&call.about, call.outcome) {
            (About::Tool(_), Some(_)) if !self.outcomes_kept => "It may or may not have run. Before calling it again, check with a reading tool whether its effect is there; the proxy can't use its state directory, so it keeps no record of this call.".to_owned(),
            (About::Tool(_), Some(outcome)) => format!(
                "It may or may not have run. Before calling it again, check with a reading tool whether its effect is there; the outcome is kept as {outcome} (mcp-proxy unknown show {outcome})."
            ),
            _ => "It only reads, so asking again is safe.".to_owned(),
        };
        let mut message = format!("The outcome of the call to {subject} is unknown: {}. {hint}", loss.what);
        if !loss.stderr.is_empty() {
            message.push_str(" The server's last words: ");
            message.push_str(&loss.stderr.join(" | "));
        }
        let error = RpcError::new(code::UNKNOWN_OUTCOME, message).with("server", key);
        let error = match &call.about {
            About::Tool(tool) => error.with("tool", tool.exposed.as_str()),
            _ => error.with("method", call.method.as_str()),
        };
        error
            .with("reason", loss.reason.name())
            .with("request", format!("{}:{}", conn.generation, wire.0))
            .with_some("exit", loss.exit.as_ref().map(|exit| json!(exit)))
            .with_some("outcomeId", call.outcome.map(|outcome| outcome.to_string()))
            .with("hint", hint)
    }

    /// The host no longer wants an answer.
    pub(super) fn host_cancelled(&mut self, now: Instant, id: &HostId, line: &Bytes) {
        // The protocol forbids to cancel the handshake, and what is not under way can't be cancelled.
        let Some(flight) = self.session.in_flight.get(id).cloned() else { return self.abandon_parked(now, id) };
        if flight.place == Place::Initialize {
            return;
        }
        self.session.in_flight.remove(id);
        self.gather(flight.batch, Bytes::new());
        match flight.place {
            Place::Waiting(server) => self.child_mut(server).waiting.retain(|waiting| match waiting {
                Waiting::Call { call, .. } => call.host_id != *id,
                Waiting::Unrouted { id: other, .. } => other != id,
            }),
            Place::AtChild(server, wire) => self.cancel_at_child(now, server, wire, line),
            Place::Asked(question) => {
                self.forget_asked(id);
                self.session.questions.remove(&question);
                self.withdraw_question(question, "the call was cancelled");
            }
            Place::Gathering(number) => self.cancel_gathering(now, number),
            Place::Listening => self.stop_listening(now, id),
            Place::Rounds(number) => self.drop_round(number, "the call was cancelled"),
            Place::Initialize | Place::List { .. } => {}
        }
    }

    fn cancel_at_child(&mut self, now: Instant, server: ServerId, wire: WireId, line: &Bytes) {
        let Some(link) = self.child_mut(server).link.as_mut() else { return };
        let conn = link.conn;
        let Some(Purpose::Call(call)) = link.pending.remove(&wire).map(|pending| pending.purpose) else { return };
        if link.outbox.take_back(ChildTag::Request(wire)) {
            if let Some(outcome) = call.outcome {
                self.effect(Effect::Settle(outcome));
            }
            self.call_over(now, conn, &call, Outcome::NotSent);
            return self.drained(now, server);
        }
        self.forget_parked(&call);
        let reason = text::path(line, 0..line.len(), &["params", "reason"]).map(|at| line.slice(at));
        self.cancel_sent(conn, wire, &call, reason.as_deref().and_then(|token| std::str::from_utf8(token).ok()));
        self.call_over(now, conn, &call, Outcome::Lost(Reason::Cancelled));
        self.write_loss(now, server, &call, &Loss::new(Reason::Cancelled, "the host cancelled it after it was sent"));
        self.bury(conn, wire, call.outcome);
        self.cancel_questions_of(now, conn);
        self.drained(now, server);
    }

    /// Ends a call at its child: what has become a task by a request of its own, else by the notification.
    pub(super) fn cancel_sent(&mut self, conn: Conn, wire: WireId, call: &Call, reason: Option<&str>) {
        match &call.task {
            Some(own) => self.give_task_up(conn, own, call.method),
            None => self.tell_cancelled(conn, wire, reason),
        }
    }

    /// `notifications/cancelled` for one of our requests to a child; `reason` is a JSON token.
    pub(super) fn tell_cancelled(&mut self, conn: Conn, wire: WireId, reason: Option<&str>) {
        let Some(link) = self.link_mut(conn) else { return };
        let reason = reason.map(|reason| format!(r#","reason":{reason}"#)).unwrap_or_default();
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}{reason}}}}}"#,
            wire.0
        );
        link.outbox.push(ChildTag::Other, text.as_bytes());
    }

    /// Remembers a number so that its late answer can still settle something, and reaches nobody.
    pub(super) fn bury(&mut self, conn: Conn, wire: WireId, outcome: Option<OutcomeId>) {
        let Some(link) = self.link_mut(conn) else { return };
        link.dead.insert(wire, outcome);
        if link.dead.len() > DEAD_MAX {
            link.dead.pop_first();
        }
    }

    /// A limit of a call has passed.
    pub(super) fn call_expired(&mut self, now: Instant, conn: Conn, wire: WireId, silence: bool) {
        let Some(link) = self.link_mut(conn) else { return };
        let Some(Purpose::Call(call)) = link.pending.remove(&wire).map(|pending| pending.purpose) else { return };
        if link.outbox.take_back(ChildTag::Request(wire)) {
            // No byte of it was written: nothing can have happened.
            if let Some(outcome) = call.outcome {
                self.effect(Effect::Settle(outcome));
            }
            self.call_over(now, conn, &call, Outcome::NotSent);
            let error = self.unavailable(now, conn.server, "it did not read the request within its time limit");
            self.answer_error_from(&call.host_id, Some(conn.server), &error);
            return self.drained(now, conn.server);
        }
        let limit = if silence { "call_idle_timeout" } else { "call_max_time" };
        self.cancel_sent(conn, wire, &call, Some(&format!("\"the time limit {limit} has passed\"")));
        let loss = Loss::new(Reason::Timeout, format!("no answer came within {limit}"));
        self.lose(now, conn, wire, &call, &loss);
        self.bury(conn, wire, call.outcome);
        self.drained(now, conn.server);
    }

    /// An answer for a number that nobody waits for any more.
    pub(super) fn late(&mut self, now: Instant, conn: Conn, wire: WireId, line: &Bytes, envelope: &Envelope) {
        if self.late_probe(now, conn, wire, line, envelope) {
            return;
        }
        let Some(outcome) = self.link_mut(conn).and_then(|link| link.dead.remove(&wire)) else {
            self.child_mut(conn.server).record.faults += 1;
            tracing::warn!(
                server = %self.child(conn.server).config.key, request = %format!("{}:{}", conn.generation, wire.0),
                "a response that nobody waits for; it was dropped"
            );
            return;
        };
        let Some(outcome) = outcome else { return };
        let kind = settled_as(line, envelope);
        let at = envelope.result.clone().or_else(|| envelope.error.clone()).unwrap_or_default();
        let text = std::str::from_utf8(&line[at]).unwrap_or_default();
        let result = Kept::unmasked(text, RESULT_BOUND);
        self.guard.settled(outcome, kind);
        let settlement = Settlement { kind, at: self.unix(now), result };
        self.effect(Effect::Late(outcome, Box::new(settlement)));
    }

    /// Cancels at the host what a lost or cancelled call of a child may have asked there.
    pub(super) fn cancel_questions_of(&mut self, now: Instant, conn: Conn) {
        // Legacy stdio can't say which call a question belongs to: with another call under way it may be that one's.
        if self.link_of(conn).is_some_and(|link| link.calls() > 0) {
            return;
        }
        for (child_id, id) in self.link_of(conn).map(|link| link.questions.clone()).unwrap_or_default() {
            // Questions of tasks are put to a modern host in another way, and go on.
            let Some(question) = self.session.questions.remove(&id) else { continue };
            if let Some(link) = self.link_mut(conn) {
                link.questions.remove(&child_id);
            }
            self.withdraw_question(id, "the call that asked is over");
            // The child is not left waiting for a word that will not come.
            self.refuse_question(conn, &child_id, question.method);
        }
        if let Some(link) = self.link_mut(conn) {
            link.answered_question(now);
        }
    }
}

/// What a response was: three different things.
fn settled_as(line: &[u8], envelope: &Envelope) -> SettledAs {
    match &envelope.result {
        Some(result) => match text::get(line, result.clone(), "isError") {
            Some(at) if &line[at.clone()] == b"true" => SettledAs::ToolError,
            _ => SettledAs::Success,
        },
        None => SettledAs::ProtocolError,
    }
}
