//! What is known of a task that crosses the eras, and what waits for its end (`PROTOCOL.md` 5.13).

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;

use super::{Ended, Task};
use crate::engine::child::Conn;
use crate::engine::convert;
use crate::engine::era::{self, Era, Hints};
use crate::engine::hub::Hub;
use crate::engine::hub::lost::Loss;
use crate::engine::link::{Call, Pending, Purpose};
use crate::engine::outcome::Reason;
use crate::engine::recent::Outcome;
use crate::engine::rewrite::Rewriter;
use crate::engine::task::{self, RELATED, Shape, Status};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::Method;
use crate::wire::splice::{self, Edit};

impl Hub {
    pub(super) fn keep_state(&mut self, exposed: &str, state: &Bytes) {
        if let Some(task) = self.tasks.known.get_mut(exposed) {
            task.state = Bytes::copy_from_slice(state);
        }
    }

    /// Keeps what a modern child says of a legacy host's task, and tells the host what is news.
    pub(super) fn hear_state(&mut self, conn: Conn, exposed: &str, line: &Bytes, state: &Range<usize>, status: Status) {
        let before = self.news_of(exposed);
        self.keep_state(exposed, &line.slice(state.clone()));
        self.note_end(conn, exposed, line, state, status);
        if self.news_of(exposed) != before {
            self.tell_status(exposed);
        }
    }

    /// What of a state a host is told of by itself: not each time that was looked at it.
    fn news_of(&self, exposed: &str) -> (Status, Option<String>) {
        let text = self.tasks.known.get(exposed).map(|task| &task.state);
        let message = text.and_then(|line| {
            let at = text::get(line, 0..line.len(), "statusMessage")?;
            text::string(line, at).map(std::borrow::Cow::into_owned)
        });
        (self.status_of(exposed), message)
    }

    fn tell_status(&mut self, exposed: &str) {
        if self.tasks.known.get(exposed).is_none_or(|task| task.host != Era::Legacy) {
            return;
        }
        let state = self.state_for_host(exposed, self.status_of(exposed));
        let method = Method::TaskStatus.as_str();
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{state}}}}}"#);
        if self.session.is_initialized() {
            self.say(&text);
        } else {
            self.session.held.push((None, Bytes::from(text)));
        }
    }

    pub(super) fn end_task(&mut self, exposed: &str, ended: Ended) {
        if let Some(task) = self.tasks.known.get_mut(exposed) {
            task.questions.clear();
            // A cancelled task stays one, whatever still comes of it.
            task.ended.get_or_insert(ended);
        }
    }

    pub(super) fn status_of(&self, exposed: &str) -> Status {
        let Some(task) = self.tasks.known.get(exposed) else { return Status::Working };
        match &task.ended {
            Some(ended) => ended.status(task.host),
            None => task::read(&task.state, &(0..task.state.len())).map_or(Status::Working, |told| told.status),
        }
    }

    /// The state of a task in the shape of its host, as members.
    pub(super) fn state_for_host(&self, exposed: &str, status: Status) -> String {
        let Some(task) = self.tasks.known.get(exposed) else { return String::new() };
        let shape = if task.host == Era::Legacy { Shape::Core } else { Shape::Extension };
        task::state(&task.state, &(0..task.state.len()), shape, exposed, status)
    }

    /// A task of a legacy child as `tasks/get` of the extension tells it, as members.
    pub(super) fn detailed(&self, exposed: &str) -> String {
        let Some(task) = self.tasks.known.get(exposed) else { return String::new() };
        let (status, more) = match &task.ended {
            Some(Ended::Result(result)) => (Status::Completed, format!(r#","result":{result}"#)),
            Some(Ended::Error(error)) => (Status::Failed, format!(r#","error":{error}"#)),
            Some(Ended::Cancelled) => (Status::Cancelled, String::new()),
            None if !task.questions.is_empty() => (Status::InputRequired, inputs(task)),
            // What it asks, or came to, is not known yet.
            None => (Status::Working, String::new()),
        };
        format!("{}{more}", self.state_for_host(exposed, status))
    }

    /// A result as the host reads it: URIs, and what its era has.
    pub(super) fn host_form(&mut self, conn: Conn, line: &Bytes, result: &Range<usize>) -> String {
        let mut edits = Vec::new();
        let child = self.era_of(conn);
        let scheme = &self.children[conn.server.0].scheme;
        let seen = Rewriter::new(line, scheme, &mut edits).result(Method::ToolsCall, result);
        if child == Era::Modern {
            let host = self.session.revision;
            let more = convert::content(line, Method::ToolsCall, result, host, true, scheme, &mut edits);
            era::to_legacy(line, result, &more, &mut edits);
        } else {
            era::to_modern(line, result, Hints::None, self.server_info(), &mut edits);
        }
        self.note_seen(conn.server, &seen);
        edited(line, result, &mut edits)
    }

    /// A request about a task of which we know the end.
    pub(super) fn answer_ended(&mut self, method: Method, id: &HostId, exposed: &str) {
        let Some(task) = self.tasks.known.get(exposed) else { return };
        let text = match (task.host, method) {
            (Era::Modern, Method::TasksGet) => format!("{{{}}}", self.detailed(exposed)),
            (Era::Modern, _) => "{}".to_owned(),
            (Era::Legacy, Method::TasksResult) => return self.tell_end(id, exposed),
            (Era::Legacy, Method::TasksCancel) => {
                let error = RpcError::new(code::INVALID_PARAMS, "The task is at its end; it can't be cancelled.")
                    .with("taskId", exposed);
                return self.answer_error(id, &error);
            }
            (Era::Legacy, _) => format!("{{{}}}", self.state_for_host(exposed, self.status_of(exposed))),
        };
        self.answer(id, &text);
    }

    /// What a task came to, for a legacy host's `tasks/result`.
    pub(super) fn tell_end(&mut self, id: &HostId, exposed: &str) {
        let Some(task) = self.tasks.known.get(exposed) else { return };
        match task.ended.clone() {
            Some(Ended::Result(result)) => {
                let related = format!(r#""{RELATED}":{{"taskId":{}}}"#, text::quoted(exposed));
                let (line, whole) = (result.as_bytes(), 0..result.len());
                let mut edits = Vec::new();
                match text::get(line, whole.clone(), "_meta").filter(|at| text::is_object(line, at)) {
                    Some(at) => meta::edit_object(line, &at, &[RELATED], &related, &mut edits),
                    None => meta::edit_object(line, &whole, &[], &format!(r#""_meta":{{{related}}}"#), &mut edits),
                }
                let text = edited(line, &whole, &mut edits);
                self.answer(id, &text);
            }
            Some(Ended::Error(error)) => {
                let line = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.0.raw());
                self.answer_pieces(id, None, &[Bytes::from(line)]);
            }
            Some(Ended::Cancelled) | None => self.answer_error(id, &task_cancelled().with("taskId", exposed)),
        }
    }

    /// Ends what waits for a task that we know the end of.
    pub(super) fn task_has_ended(&mut self, now: Instant, conn: Conn, own: &str) {
        self.drop_poll(conn, own);
        let exposed = self.exposed_of(conn.server, own).cloned();
        for wire in self.waiting_for(conn, own) {
            let Some(call) = self.take_waiting(conn, wire) else { continue };
            self.call_over(now, conn, &call, Outcome::Answered);
            match (&exposed, call.method) {
                (Some(exposed), Method::TasksGet | Method::TasksResult) => {
                    self.answer_ended(call.method, &call.host_id, exposed);
                }
                _ => {
                    self.settle_now(call.outcome);
                    self.answer_error_from(&call.host_id, Some(conn.server), &task_cancelled());
                }
            }
        }
        self.drained(now, conn.server);
    }

    /// Ends what waits for a task with what it came to, as its child said it.
    pub(super) fn end_waiting(&mut self, now: Instant, conn: Conn, own: &str, line: &Bytes, envelope: &Envelope) {
        self.drop_poll(conn, own);
        let exposed = self.exposed_of(conn.server, own).cloned();
        for wire in self.waiting_for(conn, own) {
            let Some(mut call) = self.take_waiting(conn, wire) else { continue };
            match (&exposed, call.method) {
                (Some(exposed), Method::TasksGet | Method::TasksResult) => {
                    self.call_over(now, conn, &call, Outcome::Answered);
                    self.answer_ended(call.method, &call.host_id, exposed);
                }
                _ => {
                    call.task = None;
                    self.call_answered(now, conn, wire, call, line, envelope);
                }
            }
        }
        self.drained(now, conn.server);
    }

    pub(super) fn lose_waiting(&mut self, now: Instant, conn: Conn, own: &str, reason: Reason, what: &str) {
        self.drop_poll(conn, own);
        for wire in self.waiting_for(conn, own) {
            if let Some(call) = self.take_waiting(conn, wire) {
                self.lose(now, conn, wire, &call, &Loss::new(reason, what));
            }
        }
        self.drained(now, conn.server);
    }

    /// Requests of the host that wait for the end of a task.
    pub(super) fn waiting_for(&self, conn: Conn, own: &str) -> Vec<WireId> {
        let waits =
            |pending: &Pending| matches!(&pending.purpose, Purpose::Call(call) if call.task.as_deref() == Some(own));
        let pending = self.link_of(conn).into_iter().flat_map(|link| &link.pending);
        pending.filter(|(_, pending)| waits(pending)).map(|(wire, _)| *wire).collect()
    }

    pub(super) fn take_waiting(&mut self, conn: Conn, wire: WireId) -> Option<Box<Call>> {
        match self.link_mut(conn)?.pending.remove(&wire)?.purpose {
            Purpose::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Nobody waits any more for what a request made, or asked about.
    pub(in crate::engine::hub) fn give_task_up(&mut self, conn: Conn, own: &str, method: Method) {
        if method == Method::ToolsCall {
            self.cancel_task(conn, own);
        }
        if self.waiting_for(conn, own).is_empty() && !self.is_watched(conn.server, own) {
            self.drop_poll(conn, own);
        }
    }

    /// The tasks of modern children that a legacy host made, as `tasks/list` shows them.
    pub(super) fn bridged_tasks(&self) -> Vec<Bytes> {
        let bridged = |exposed: &&String| {
            self.tasks.known.get(*exposed).is_some_and(|task| task.host == Era::Legacy && !task.state.is_empty())
        };
        let state = |exposed: &String| format!("{{{}}}", self.state_for_host(exposed, self.status_of(exposed)));
        self.tasks.order.iter().filter(bridged).map(|exposed| Bytes::from(state(exposed))).collect()
    }
}

impl Ended {
    /// The state that a host of that era reads.
    pub(super) fn status(&self, host: Era) -> Status {
        match self {
            Self::Result(result) if host == Era::Legacy && is_error(result) => Status::Failed,
            Self::Result(_) => Status::Completed,
            Self::Error(_) => Status::Failed,
            Self::Cancelled => Status::Cancelled,
        }
    }
}

/// The parameters of a request of ours about a task.
pub(super) fn task_params(own: &str) -> String {
    format!(r#"{{"taskId":{}}}"#, text::quoted(own))
}

/// -31012 for who waits for a task that was cancelled.
fn task_cancelled() -> RpcError {
    RpcError::new(code::REFUSED, "The task was cancelled; it has no result.").with("reason", "cancelled")
}

fn is_error(result: &str) -> bool {
    text::get(result.as_bytes(), 0..result.len(), "isError").is_some_and(|at| &result[at] == "true")
}

/// `inputRequests` of a legacy child's task.
fn inputs(task: &Task) -> String {
    let entries: Vec<String> = task
        .questions
        .iter()
        .map(|(key, question)| format!(r#""{key}":{}"#, String::from_utf8_lossy(&question.request)))
        .collect();
    format!(r#","inputRequests":{{{}}}"#, entries.join(","))
}

/// A part of a line with its edits, none of which begins before it.
pub(super) fn edited(line: &[u8], part: &Range<usize>, edits: &mut [Edit]) -> String {
    let text = splice::apply(&line[..part.end], edits);
    String::from_utf8_lossy(&text[part.start..]).into_owned()
}
