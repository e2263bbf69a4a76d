//! Tasks of 2025-11-25: ids that lead back to their child, and the list over all children (`PROTOCOL.md` 5.13, 6.12).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::Hub;
use super::answer::Droppable;
use super::from_host::Request;
use crate::engine::child::{Conn, ServerId};
use crate::engine::link::{About, Call, ChildTag, Purpose};
use crate::engine::session::Place;
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::method::{Method, Revision};
use crate::wire::params::{Params, text_at};
use crate::wire::splice::Edit;

/// Exposed task ids and what they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tasks {
    by_exposed: BTreeMap<String, (ServerId, String)>,
    by_own: BTreeMap<(ServerId, String), String>,
    /// Our number of the call that made a task, whose progress token lives as long as the task.
    calls: BTreeMap<(ServerId, String), (Conn, WireId)>,
}

/// A `tasks/list` that is gathered from all children.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    host_id: HostId,
    waiting: BTreeSet<Conn>,
    tasks: Vec<Bytes>,
}

/// The states of a task that no other follows.
const TERMINAL: [&str; 3] = ["completed", "failed", "cancelled"];

impl Hub {
    /// The exposed id of a child's task; unguessable, and the same for as long as we run.
    fn exposed_task(&mut self, server: ServerId, own: &str) -> String {
        if let Some(known) = self.tasks.by_own.get(&(server, own.to_owned())) {
            return known.clone();
        }
        let prefix = self.child(server).config.key.clone();
        let exposed = format!("{prefix}.{}", self.entropy.text());
        self.tasks.by_exposed.insert(exposed.clone(), (server, own.to_owned()));
        self.tasks.by_own.insert((server, own.to_owned()), exposed.clone());
        exposed
    }

    /// Puts the exposed id in the place of a child's own.
    pub(super) fn expose_task(&mut self, conn: Conn, line: &Bytes, at: Range<usize>, edits: &mut Vec<Edit>) {
        if let Some(own) = text::string(line, at.clone()).map(std::borrow::Cow::into_owned) {
            let exposed = self.exposed_task(conn.server, &own);
            edits.push(Edit::text(at, text::quoted(&exposed)));
        }
    }

    /// Puts the child's own id back into what the host says about a task.
    pub(super) fn unexpose_related(&self, line: &Bytes, envelope: &Envelope, edits: &mut Vec<Edit>) {
        let related = ["_meta", "io.modelcontextprotocol/related-task", "taskId"];
        let Some(at) = envelope.result.clone().and_then(|at| text::path(line, at, &related)) else { return };
        if let Some((_, own)) = text::string(line, at.clone()).and_then(|task| self.tasks.by_exposed.get(&*task)) {
            edits.push(Edit::text(at, text::quoted(own)));
        }
    }

    /// `tasks/get`, `tasks/result` and `tasks/cancel` of the host.
    pub(super) fn task_request(&mut self, now: Instant, method: Method, request: Request) {
        if self.session.revision != Revision::V2025_11_25 {
            let error = RpcError::new(
                code::METHOD_NOT_FOUND,
                format!("{} is not part of this session's revision.", method.as_str()),
            );
            return self.answer_error(&request.id, &error);
        }
        let exposed = text_at(&request.frame, request.params.task_id.as_ref()).unwrap_or_default().into_owned();
        let Some((server, own)) = self.tasks.by_exposed.get(&exposed).cloned() else {
            let error =
                RpcError::new(code::INVALID_PARAMS, format!("The task \"{exposed}\" is not known, or it has expired."))
                    .with("taskId", exposed);
            return self.answer_error(&request.id, &error);
        };
        let at = request.params.task_id.clone().unwrap_or_default();
        let edits = vec![Edit::text(at, text::quoted(&own))];
        self.route(now, server, request, About::Task(exposed), method, edits);
    }

    /// A call became a task.
    pub(super) fn task_created(
        &mut self,
        conn: Conn,
        wire: WireId,
        call: &Call,
        line: &Bytes,
        result: &Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        let Some(at) = text::path(line, result.clone(), &["task", "taskId"]) else { return };
        if let Some(own) = text::string(line, at.clone())
            && let Some(token) = &call.token
        {
            let own = own.into_owned();
            self.tasks.calls.insert((conn.server, own), (conn, wire));
            let token = token.clone();
            if let Some(link) = self.link_mut(conn) {
                link.task_tokens.insert(wire, token);
            }
        }
        self.expose_task(conn, line, at, edits);
    }

    /// A child told something about a task in an answer.
    #[expect(clippy::too_many_arguments, reason = "one answer with everything that may be edited in it")]
    pub(super) fn task_told(
        &mut self,
        now: Instant,
        conn: Conn,
        exposed: &str,
        method: Method,
        line: &Bytes,
        result: &Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        let _ = now;
        if method == Method::TasksResult {
            let related = ["_meta", "io.modelcontextprotocol/related-task", "taskId"];
            if let Some(at) = text::path(line, result.clone(), &related) {
                self.expose_task(conn, line, at, edits);
            }
            self.task_over(exposed);
            return;
        }
        if let Some(at) = text::get(line, result.clone(), "taskId") {
            self.expose_task(conn, line, at, edits);
        }
        let status = text::get(line, result.clone(), "status").and_then(|at| text::string(line, at));
        if status.is_some_and(|status| TERMINAL.contains(&&*status)) {
            self.task_over(exposed);
        }
    }

    /// A task is over: its progress token is free.
    fn task_over(&mut self, exposed: &str) {
        let Some(key) = self.tasks.by_exposed.get(exposed).cloned() else { return };
        if let Some((conn, wire)) = self.tasks.calls.remove(&key)
            && let Some(link) = self.link_mut(conn)
        {
            link.task_tokens.remove(&wire);
        }
    }

    /// A child's word about a task goes to the host, if it knows the task.
    pub(super) fn child_task_status(&mut self, conn: Conn, line: &Bytes, params: &Params) {
        let Some(own) = text_at(line, params.task_id.as_ref()).map(std::borrow::Cow::into_owned) else { return };
        let Some(exposed) = self.tasks.by_own.get(&(conn.server, own)).cloned() else { return };
        let at = params.task_id.clone().unwrap_or_default();
        let status =
            params.whole.clone().and_then(|at| text::get(line, at, "status")).and_then(|at| text::string(line, at));
        if status.is_some_and(|status| TERMINAL.contains(&&*status)) {
            self.task_over(&exposed);
        }
        self.say_edited(conn.server, line, &mut [Edit::text(at, text::quoted(&exposed))], Droppable::No);
    }

    /// The host's word about a task that a child started there.
    pub(super) fn host_task_status(&mut self, now: Instant, line: &Bytes, params: &Params) {
        let _ = now;
        let Some(task) = text_at(line, params.task_id.as_ref()) else { return };
        for index in 0..self.order.len() {
            let id = self.order[index];
            if let Some(link) = self.child_mut(id).ready_link()
                && link.host_tasks.contains(&*task)
            {
                link.outbox.push(ChildTag::Other, line);
            }
        }
    }

    /// `tasks/list` of the host: asks all children that list theirs.
    pub(super) fn tasks_list(&mut self, now: Instant, request: &Request) {
        if self.session.revision != Revision::V2025_11_25 {
            let error = RpcError::new(code::METHOD_NOT_FOUND, "tasks/list is not part of this session's revision.");
            return self.answer_error(&request.id, &error);
        }
        let number = self.session.next_batch;
        self.session.next_batch += 1;
        self.place(&request.id, Place::Gathering(number));
        let mut gathering = Gathering { host_id: request.id.clone(), waiting: BTreeSet::new(), tasks: Vec::new() };
        for id in self.order.clone() {
            let until = now + self.child(id).config.list_timeout;
            if !self.child(id).capabilities().tasks_list {
                continue;
            }
            let Some(conn) = self.child_mut(id).ready_link().map(|link| link.conn) else { continue };
            if self.ask_child(conn, Method::TasksList, None, Purpose::Gather(number), Some(until)).is_some() {
                gathering.waiting.insert(conn);
            }
        }
        self.gatherings.insert(number, gathering);
        self.gathering_done(number);
    }

    /// A page of a child's tasks came, or will not come.
    pub(super) fn gathered(&mut self, now: Instant, conn: Conn, number: u64, result: Option<&Bytes>) {
        let mut next = None;
        let mut found = Vec::new();
        if let Some(result) = result {
            let whole = 0..result.len();
            let list = text::get(result, whole.clone(), "tasks");
            for item in list.into_iter().flat_map(|at| text::elements(result, at)).collect::<Vec<_>>() {
                let entry = result.slice(item);
                let mut edits = Vec::new();
                if let Some(at) = text::get(&entry, 0..entry.len(), "taskId") {
                    self.expose_task(conn, &entry, at, &mut edits);
                }
                found.push(Bytes::from(crate::wire::splice::apply(&entry, &mut edits)));
            }
            next = text::get(result, whole, "nextCursor")
                .and_then(|at| text::string(result, at))
                .filter(|cursor| !cursor.is_empty())
                .map(|cursor| json!({ "cursor": cursor }).to_string());
        }
        let Some(gathering) = self.gatherings.get_mut(&number) else { return };
        let grows = !found.is_empty() && gathering.tasks.len() < crate::engine::listing::MAX_ITEMS;
        gathering.tasks.extend(found);
        if let (Some(params), true) = (next, grows) {
            let until = now + self.child(conn.server).config.list_timeout;
            if self.ask_child(conn, Method::TasksList, Some(&params), Purpose::Gather(number), Some(until)).is_some() {
                return;
            }
        }
        if let Some(gathering) = self.gatherings.get_mut(&number) {
            gathering.waiting.remove(&conn);
        }
        self.gathering_done(number);
    }

    fn gathering_done(&mut self, number: u64) {
        if self.gatherings.get(&number).is_none_or(|gathering| !gathering.waiting.is_empty()) {
            return;
        }
        let Some(gathering) = self.gatherings.remove(&number) else { return };
        let tasks: Vec<&str> = gathering.tasks.iter().filter_map(|task| std::str::from_utf8(task).ok()).collect();
        self.answer(&gathering.host_id, &format!(r#"{{"tasks":[{}]}}"#, tasks.join(",")));
    }

    pub(super) fn cancel_gathering(&mut self, now: Instant, number: u64) {
        let _ = now;
        self.gatherings.remove(&number);
    }
}
