//! Tasks between sides of different eras: core of 2025-11-25 ⇄ the extension of 2026-07-28 (`PROTOCOL.md` 5.13).

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;

use super::Ended;
use super::known::{edited, task_params};
use crate::engine::child::{Conn, ServerId};
use crate::engine::era::{self, Era, Hints};
use crate::engine::hub::Hub;
use crate::engine::hub::lost::Loss;
use crate::engine::link::{About, Call, Pending, Purpose};
use crate::engine::outcome::{OutcomeId, Reason};
use crate::engine::recent::Outcome;
use crate::engine::session::Place;
use crate::engine::task::{self, EXTENSION, Status};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::Method;

impl Hub {
    // A call and what it becomes.

    /// A call that its host did not want to be a task becomes one, or can only be one: it stays open until the task ends.
    /// `None`: it does.
    pub(in crate::engine::hub) fn hold_for_task(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        mut call: Box<Call>,
        line: &Bytes,
        envelope: &Envelope,
    ) -> Option<Box<Call>> {
        let About::Tool(tool) = &call.about else { return Some(call) };
        let own = match (self.era_of(conn), &call.modern, &envelope.result) {
            (Era::Modern, None, None) if !call.tasks && asks_for_tasks(line, envelope) => {
                // It was rejected before any work: it goes out once more, and we know of tasks for it.
                self.settle_now(call.outcome.take());
                call.tasks = true;
                self.offer(now, conn.server, call);
                return None;
            }
            (Era::Modern, None, Some(result)) if call.tasks && !tool.task && is_task(line, result) => {
                text::get(line, result.clone(), "taskId")
            }
            (Era::Legacy, Some(sender), Some(result)) if tool.only_as_task && !sender.capabilities.tasks_extension => {
                text::path(line, result.clone(), &["task", "taskId"])
            }
            _ => None,
        };
        let Some(own) = own.and_then(|at| text::string(line, at)).map(std::borrow::Cow::into_owned) else {
            return Some(call);
        };
        self.wait_for_task(now, conn, wire, call, &own);
        if self.era_of(conn) == Era::Legacy {
            self.read_task(conn, &own);
        } else {
            self.poll_task(now, conn, &own);
        }
        None
    }

    /// Keeps a request of the host until a task of a child has ended. Its silence has no limit, for it is asked about.
    fn wait_for_task(&mut self, now: Instant, conn: Conn, wire: WireId, mut call: Box<Call>, own: &str) {
        let _ = now;
        let until = self.max_time(conn.server).map(|limit| call.since + limit);
        call.task = Some(own.into());
        let id = call.host_id.clone();
        if let Some(link) = self.link_mut(conn) {
            link.register(wire, Pending { purpose: Purpose::Call(call), idle: None, until });
        }
        self.place(&id, Place::AtChild(conn.server, wire));
    }

    /// A request about a task on its way to a child of the other era. `None`: nothing of it is sent as it is.
    pub(in crate::engine::hub) fn task_across(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: Box<Call>,
    ) -> Option<Box<Call>> {
        let About::Task(exposed) = &call.about else { return Some(call) };
        let Some(own) = self.tasks.known.get(exposed).map(|task| task.own.clone()) else { return Some(call) };
        match (self.era_of(conn), call.modern.is_some(), call.method) {
            (Era::Modern, false, Method::TasksResult) => {
                self.wait_for_task(now, conn, wire, call, &own);
                self.poll_task(now, conn, &own);
                None
            }
            (Era::Legacy, true, Method::TasksUpdate) => {
                self.answer_task_questions(now, &exposed.clone(), &call);
                None
            }
            _ => Some(call),
        }
    }

    /// An answer that makes a task, or tells of one, where one side is modern. `true`: the host has its answer, or waits.
    pub(in crate::engine::hub) fn task_answered(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: &Call,
        line: &Bytes,
        result: &Range<usize>,
    ) -> bool {
        let child = self.era_of(conn);
        match (&call.about, &call.modern, child) {
            (About::Tool(tool), None, Era::Modern) if tool.task => self.core_task_made(now, conn, call, line, result),
            (About::Tool(tool), Some(sender), Era::Legacy) if tool.only_as_task => {
                let Some(at) = text::get(line, result.clone(), "task") else { return false };
                let Some(told) = task::read(line, &at) else { return false };
                let exposed = self.exposed_task(now, conn.server, &told.id, Era::Modern);
                let capabilities = sender.capabilities.clone();
                if let Some(task) = self.tasks.known.get_mut(&exposed) {
                    task.state = line.slice(at);
                    task.capabilities = capabilities;
                }
                let members = self.state_for_host(&exposed, told.status);
                let info = self.server_info();
                let text = format!(r#"{{"resultType":"task",{members},"_meta":{{"{}":{info}}}}}"#, meta::SERVER);
                self.task_answer(now, conn, call, &text);
                true
            }
            (About::Tool(_), Some(sender), Era::Modern) if sender.capabilities.tasks_extension => {
                if !is_task(line, result) {
                    return false;
                }
                let mut edits = Vec::new();
                if let Some(at) = text::get(line, result.clone(), "taskId") {
                    self.expose_task(now, conn, line, at, &mut edits);
                }
                era::sign(line, result, None, self.server_info(), &mut edits);
                let text = edited(line, result, &mut edits);
                self.task_answer(now, conn, call, &text);
                true
            }
            (About::Task(exposed), None, Era::Modern) => self.core_task_told(now, conn, call, exposed, line, result),
            (About::Task(exposed), Some(_), Era::Legacy) => {
                self.extension_task_told(now, conn, wire, call, exposed, line, result);
                true
            }
            _ => false,
        }
    }

    /// A result of ours that a child's answer came to.
    fn task_answer(&mut self, now: Instant, conn: Conn, call: &Call, result: &str) {
        self.call_over(now, conn, call, Outcome::Answered);
        self.say_result(&call.host_id, conn.server, result, call.outcome);
    }

    fn say_result(&mut self, id: &HostId, server: ServerId, result: &str, outcome: Option<OutcomeId>) {
        let line = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0.raw()));
        self.answer_edited(id, server, &line, &mut [], outcome);
    }

    // A legacy host, a modern child.

    /// A legacy host asked for a task: it gets one, also where the child answers at once.
    fn core_task_made(&mut self, now: Instant, conn: Conn, call: &Call, line: &Bytes, result: &Range<usize>) -> bool {
        let kind = text::get(line, result.clone(), "resultType").and_then(|at| text::string(line, at));
        let (exposed, status) = match kind.as_deref() {
            Some("task") => {
                let Some(told) = task::read(line, result) else { return false };
                let exposed = self.exposed_task(now, conn.server, &told.id, Era::Legacy);
                self.keep_state(&exposed, &line.slice(result.clone()));
                if !told.status.is_last() {
                    // Its host is told of changes as far as its server tells us.
                    self.listen_at_child(conn);
                }
                (exposed, told.status)
            }
            None | Some("complete") => {
                // It has no id at the child, so it is known by ours alone.
                let own = format!("mcp-proxy.{}", self.entropy.text());
                let exposed = self.exposed_task(now, conn.server, &own, Era::Legacy);
                let time = self.unix(now);
                let state = format!(r#"{{"createdAt":"{time}","lastUpdatedAt":"{time}"}}"#);
                self.keep_state(&exposed, &Bytes::from(state));
                let ended = Ended::Result(self.host_form(conn, line, result));
                let status = ended.status(Era::Legacy);
                self.end_task(&exposed, ended);
                (exposed, status)
            }
            Some(_) => return false,
        };
        let text = format!(r#"{{"task":{{{}}}}}"#, self.state_for_host(&exposed, status));
        self.task_answer(now, conn, call, &text);
        true
    }

    /// A modern child told a legacy host of a task.
    fn core_task_told(
        &mut self,
        now: Instant,
        conn: Conn,
        call: &Call,
        exposed: &str,
        line: &Bytes,
        result: &Range<usize>,
    ) -> bool {
        if call.method == Method::TasksResult {
            return false;
        }
        if call.method == Method::TasksCancel {
            // The word was taken; in core a task is then at its end, whatever still comes of it.
            self.end_task(exposed, Ended::Cancelled);
        } else if let Some(told) = task::read(line, result) {
            self.keep_state(exposed, &line.slice(result.clone()));
            self.note_end(conn, exposed, line, result, told.status);
        }
        let Some(own) = self.tasks.known.get(exposed).map(|task| task.own.clone()) else { return false };
        let status = self.status_of(exposed);
        let text = format!("{{{}}}", self.state_for_host(exposed, status));
        self.task_answer(now, conn, call, &text);
        if status.is_last() {
            self.task_has_ended(now, conn, &own);
        }
        true
    }

    /// What a modern child says of a task that may have ended.
    pub(super) fn note_end(&mut self, conn: Conn, exposed: &str, line: &Bytes, state: &Range<usize>, status: Status) {
        let inlined = |name: &str| text::get(line, state.clone(), name).filter(|at| text::is_object(line, at));
        let ended = match status {
            Status::Working | Status::InputRequired => return,
            Status::Cancelled => Ended::Cancelled,
            Status::Completed | Status::Failed => match (inlined("result"), inlined("error")) {
                (Some(at), _) => Ended::Result(self.host_form(conn, line, &at)),
                (None, Some(at)) => Ended::Error(String::from_utf8_lossy(&line[at]).into_owned()),
                (None, None) => {
                    let error = RpcError::new(code::INTERNAL, "The server did not say what its task came to.");
                    Ended::Error(error.to_value().to_string())
                }
            },
        };
        self.end_task(exposed, ended);
    }

    // A modern host, a legacy child.

    /// A legacy child answered a modern host's request about a task.
    #[expect(clippy::too_many_arguments, reason = "one answer with what was read of it")]
    fn extension_task_told(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: &Call,
        exposed: &str,
        line: &Bytes,
        result: &Range<usize>,
    ) {
        let Some(told) = task::read(line, result) else {
            let loss = Loss::new(Reason::InvalidResponse, "its answer is no valid one: it is no task");
            return self.lose(now, conn, wire, call, &loss);
        };
        self.note_state(now, conn, &told.id, &line.slice(result.clone()));
        if call.method == Method::TasksCancel {
            let text = era::complete("{}", Hints::None, self.server_info());
            return self.task_answer(now, conn, call, &text);
        }
        let known = self.tasks.known.get(exposed).is_some_and(|task| task.ended.is_some());
        if told.status.is_last() && !known {
            // Its result is on its way, and belongs to the answer.
            return self.wait_for_task(now, conn, wire, Box::new(call.clone()), &told.id);
        }
        let text = era::complete(&format!("{{{}}}", self.detailed(exposed)), Hints::None, self.server_info());
        self.task_answer(now, conn, call, &text);
    }

    /// A legacy child told the state of a task of a modern host.
    pub(super) fn note_state(&mut self, now: Instant, conn: Conn, own: &str, state: &Bytes) {
        let Some(exposed) = self.exposed_of(conn.server, own).cloned() else { return };
        let Some(told) = task::read(state, &(0..state.len())) else { return };
        let before = self.detailed(&exposed);
        self.keep_state(&exposed, state);
        match told.status {
            Status::Working => {}
            Status::Cancelled => {
                self.end_task(&exposed, Ended::Cancelled);
                self.task_has_ended(now, conn, own);
            }
            // Its questions come, and its result is told, while somebody waits for the result.
            Status::InputRequired | Status::Completed | Status::Failed => self.read_task(conn, own),
        }
        // An end without its result is no news.
        let waits = told.status.is_last() && self.tasks.known.get(&exposed).is_some_and(|task| task.ended.is_none());
        if !waits && self.detailed(&exposed) != before {
            self.tell_streams_of_task(&exposed);
        }
    }

    /// The result of a legacy child's task came, or what is in its place.
    pub(in crate::engine::hub) fn task_result(
        &mut self,
        now: Instant,
        conn: Conn,
        own: &str,
        line: &Bytes,
        envelope: &Envelope,
    ) {
        if let Some(link) = self.link_mut(conn) {
            link.reading.remove(own);
        }
        if let Some(exposed) = self.exposed_of(conn.server, own).cloned() {
            let ended = match (&envelope.result, &envelope.error) {
                (Some(result), _) => Ended::Result(self.host_form(conn, line, result)),
                (None, error) => {
                    let error = error.clone().unwrap_or_default();
                    Ended::Error(String::from_utf8_lossy(&line[error]).into_owned())
                }
            };
            self.end_task(&exposed, ended);
            self.tell_streams_of_task(&exposed);
        }
        self.end_waiting(now, conn, own, line, envelope);
    }

    /// The result of a legacy child's task will not come in this way.
    pub(in crate::engine::hub) fn task_unread(&mut self, now: Instant, conn: Conn, own: &str, what: &str) {
        if let Some(link) = self.link_mut(conn) {
            link.reading.remove(own);
        }
        self.lose_waiting(now, conn, own, Reason::InvalidResponse, what);
    }

    /// Waits for a legacy child's word on what a task came to.
    pub(super) fn read_task(&mut self, conn: Conn, own: &str) {
        let Some(link) = self.link_mut(conn) else { return };
        if link.reading.insert(own.to_owned()) {
            let params = task_params(own);
            self.ask_child(conn, Method::TasksResult, Some(&params), Purpose::TaskResult(own.to_owned()), None);
        }
    }
}

/// Whether a result of a modern child says that a task was made.
fn is_task(line: &[u8], result: &Range<usize>) -> bool {
    text::get(line, result.clone(), "resultType").is_some_and(|at| &line[at] == br#""task""#)
        && task::read(line, result).is_some()
}

/// Whether an error says that the request should have declared the extension.
fn asks_for_tasks(line: &[u8], envelope: &Envelope) -> bool {
    let Some(error) = envelope.error.clone() else { return false };
    let is_missing = text::get(line, error.clone(), "code").is_some_and(|at| &line[at] == b"-32021");
    is_missing && text::path(line, error, &["data", "requiredCapabilities", "extensions", EXTENSION]).is_some()
}
