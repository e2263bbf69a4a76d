//! A legacy child's questions in a task of a modern host, and that host's streams of tasks (`PROTOCOL.md` 5.13).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;

use super::TaskQuestion;
use crate::engine::child::{Conn, ServerId};
use crate::engine::era::Era;
use crate::engine::hub::Hub;
use crate::engine::hub::listen::subscription;
use crate::engine::hub::parked::covered;
use crate::engine::link::{Call, Purpose};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{ChildId, HostId, OurId, WireId};
use crate::wire::json as text;
use crate::wire::method::Method;
use crate::wire::params::Params;

/// Questions of one task that may be open at a modern host.
const QUESTIONS_MAX: usize = 32;

impl Hub {
    // Questions of a legacy child in a task.

    /// A legacy child asks on behalf of a task. `false`: it is no task of a modern host.
    #[expect(clippy::too_many_arguments, reason = "a message with what was read of it")]
    pub(in crate::engine::hub) fn task_asks(
        &mut self,
        now: Instant,
        conn: Conn,
        task_at: Range<usize>,
        line: &Bytes,
        params: &Params,
        id: &ChildId,
        method: Method,
    ) -> bool {
        let Some(own) = text::string(line, task_at).map(std::borrow::Cow::into_owned) else { return false };
        if let Some(wire) = self.waiting_for(conn, &own).into_iter().find(|wire| self.is_held_modern(conn, *wire)) {
            self.park(now, conn, wire, line, params, id.clone(), method);
            return true;
        }
        let Some(exposed) = self.exposed_of(conn.server, &own).cloned() else { return false };
        let Some(task) = self.tasks.known.get(&exposed).filter(|task| task.host == Era::Modern) else { return false };
        if let Err((code, message)) = covered(&task.capabilities, method, line, params) {
            self.answer_child_error(conn, id, code, message);
            return true;
        }
        if task.questions.len() >= QUESTIONS_MAX {
            self.answer_child_error(conn, id, code::INTERNAL, "too many questions of this task wait for the host");
            return true;
        }
        let our = self.session.question_id();
        let request = self.question_request(conn, line, params, method);
        if let Some(link) = self.link_mut(conn) {
            link.questions.insert(id.clone(), our);
        }
        if let Some(task) = self.tasks.known.get_mut(&exposed) {
            task.next_key += 1;
            let question = TaskQuestion { conn, our, child_id: id.clone(), method, request };
            task.questions.insert(format!("q{}", task.next_key), question);
        }
        self.tell_streams_of_task(&exposed);
        true
    }

    pub(super) fn is_held_modern(&self, conn: Conn, wire: WireId) -> bool {
        let pending = self.link_of(conn).and_then(|link| link.pending.get(&wire));
        matches!(pending.map(|pending| &pending.purpose), Some(Purpose::Call(call)) if call.modern.is_some() && call.method == Method::ToolsCall)
    }

    /// `tasks/update` of a modern host for a legacy child: taken at once, and handed on to who asked.
    pub(super) fn answer_task_questions(&mut self, now: Instant, exposed: &str, call: &Call) {
        let params = crate::engine::hub::calls::params_of(&call.frame).unwrap_or_default();
        let responses = text::get(&call.frame, params, "inputResponses");
        let responses: Vec<(String, Range<usize>)> = responses
            .into_iter()
            .flat_map(|at| text::members(&call.frame, at))
            .filter_map(|member| Some((text::string(&call.frame, member.key)?.into_owned(), member.value)))
            .collect();
        if responses.iter().any(|(_, at)| !text::is_object(&call.frame, at)) {
            let error = RpcError::new(code::INVALID_PARAMS, "Each of inputResponses must be an object.")
                .with("detail", "inputResponses");
            return self.answer_error(&call.host_id, &error);
        }
        for (key, at) in responses {
            let Some(task) = self.tasks.known.get_mut(exposed) else { break };
            let Some(question) = task.questions.remove(&key) else { continue };
            self.give_response(now, question.conn, &question.child_id, question.method, &call.frame[at]);
        }
        self.answer(&call.host_id, "{}");
    }

    /// A legacy child takes a question of a task back.
    pub(in crate::engine::hub) fn unask_task(&mut self, our: OurId) -> bool {
        self.tasks.known.values_mut().any(|task| {
            let before = task.questions.len();
            task.questions.retain(|_, question| question.our != our);
            task.questions.len() < before
        })
    }

    /// A life of a child is over, and its questions with it.
    pub(in crate::engine::hub) fn forget_task_questions(&mut self, conn: Conn) {
        for task in self.tasks.known.values_mut() {
            task.questions.retain(|_, question| question.conn != conn);
        }
    }

    // Streams of a modern host.

    /// The tasks that a stream names and that its host may know.
    pub(in crate::engine::hub) fn tasks_named(
        &mut self,
        now: Instant,
        ids: Option<&Value>,
    ) -> BTreeMap<(ServerId, String), String> {
        let ids = ids.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let task = |id: &str| {
            let found = self.finds_task(now, id, Era::Modern);
            let task = self.tasks.known.get(id).filter(|_| found)?;
            Some(((task.server, task.own.clone()), id.to_owned()))
        };
        ids.filter_map(task).collect()
    }

    pub(super) fn is_watched(&self, server: ServerId, own: &str) -> bool {
        let key = (server, own.to_owned());
        self.session.listens.values().any(|listen| listen.tasks.contains_key(&key))
    }

    pub(in crate::engine::hub) fn watch_task(&mut self, now: Instant, id: &HostId, server: ServerId, own: &str) {
        let Some((conn, era)) = self.child_mut(server).ready_link().map(|link| (link.conn, link.era)) else { return };
        if era == Era::Modern {
            if let (Some(wire), Some(listen)) = (self.listen_at_child(conn), self.session.listens.get_mut(id)) {
                listen.asked.insert((server, wire));
            }
            return;
        }
        let ended = self.exposed_of(server, own).and_then(|exposed| self.tasks.known.get(exposed)?.ended.as_ref());
        if ended.is_none() {
            // It may tell of changes by itself, but need not.
            self.poll_task(now, conn, own);
        }
    }

    pub(in crate::engine::hub) fn unwatch_task(&mut self, server: ServerId, own: &str) {
        let Some((conn, era)) = self.child_mut(server).ready_link().map(|link| (link.conn, link.era)) else { return };
        if era == Era::Modern {
            self.listen_at_child(conn);
        } else if self.waiting_for(conn, own).is_empty() && !self.is_watched(server, own) {
            self.drop_poll(conn, own);
        }
    }

    /// A stream that is acknowledged only now is told of a task that ended before.
    pub(in crate::engine::hub) fn tell_ended_task(&mut self, id: &HostId, exposed: &str) {
        if self.tasks.known.get(exposed).is_some_and(|task| task.ended.is_some()) {
            self.tell_stream_of_task(id, exposed);
        }
    }

    pub(super) fn tell_streams_of_task(&mut self, exposed: &str) {
        let listens = self.session.listens.iter();
        let named = listens.filter(|(_, listen)| listen.tasks.values().any(|named| named == exposed));
        let ids: Vec<HostId> = named.map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.tell_stream_of_task(&id, exposed);
        }
    }

    pub(super) fn tell_stream_of_task(&mut self, id: &HostId, exposed: &str) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"{}","params":{{{},{}}}}}"#,
            Method::TaskNews.as_str(),
            subscription(id),
            self.detailed(exposed)
        );
        self.say_on(id, &text);
    }
}
