//! Tasks: ids that lead back to their child, what is relayed between sides of one era, and the list over all children
//! (`PROTOCOL.md` 5.13, 6.12). What crosses the eras is in [`bridge`].

mod bridge;
mod known;
mod news;
mod poll;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::Hub;
use super::answer::Droppable;
use super::from_host::Request;
use crate::engine::child::{Conn, ServerId};
use crate::engine::era::Era;
use crate::engine::facts::HostCapabilities;
use crate::engine::link::{About, Call, ChildTag, Pending, Purpose};
use crate::engine::rewrite::Rewriter;
use crate::engine::seal::{Kind, State};
use crate::engine::session::Place;
use crate::engine::task::{self, RELATED};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{ChildId, HostId, OurId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::{Method, Revision};
use crate::wire::params::{Params, text_at};
use crate::wire::splice::Edit;

/// Exposed task ids and what they stand for.
///
/// An exposed id says, sealed, what it stands for, so that it leads back to its server whatever was forgotten here, and
/// after a restart of ours.
#[derive(Clone, Debug, Default)]
pub(super) struct Tasks {
    known: BTreeMap<String, Task>,
    by_own: BTreeMap<(ServerId, String), String>,
    /// The exposed ids, the oldest first.
    order: VecDeque<String>,
    /// Our number of the call that made a task, whose progress token lives as long as the task.
    calls: BTreeMap<(ServerId, String), (Conn, WireId)>,
}

impl Tasks {
    /// The tasks of a modern child that a legacy host made and that go on, by the child's ids.
    pub(super) fn of_legacy_host(&self, server: ServerId) -> impl Iterator<Item = &String> {
        let goes_on = move |task: &&Task| {
            task.server == server && task.host == Era::Legacy && !task.state.is_empty() && task.ended.is_none()
        };
        self.known.values().filter(goes_on).map(|task| &task.own)
    }
}

/// What an exposed id stands for.
#[derive(Clone, Debug)]
struct Task {
    server: ServerId,
    /// Which process or endpoint that was: one that a reload put in its place knows nothing of the task.
    config: u64,
    own: String,
    /// Which era's host knows it: ids of the one mean nothing to the other.
    host: Era,
    /// Its state as the child told it last, an object; there where its two sides are of different eras.
    state: Bytes,
    /// What it came to; there where its two sides are of different eras.
    ended: Option<Ended>,
    /// What a modern host can be asked.
    capabilities: HostCapabilities,
    /// Questions of a legacy child, for a modern host, by our keys.
    questions: BTreeMap<String, TaskQuestion>,
    next_key: u32,
}

/// What a task came to, in the host's form.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Result(String),
    Error(String),
    Cancelled,
}

#[derive(Clone, Debug)]
struct TaskQuestion {
    conn: Conn,
    our: OurId,
    child_id: ChildId,
    method: Method,
    /// `{"method":…,"params":…}`.
    request: Bytes,
}

/// A `tasks/list` that is gathered from all children.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    host_id: HostId,
    waiting: BTreeSet<Conn>,
    tasks: Vec<Bytes>,
}

/// Tasks that are known; of more the oldest are forgotten.
const KNOWN_MAX: usize = 4096;
/// How long an id leads back to its task where nothing is known of that any more, in milliseconds.
const LEADS_FOR: u64 = 7 * 24 * 3600 * 1000;
/// How the id of a task begins that is no server's: a call was at its end at once.
const OURS: &str = "mcp-proxy.";

impl Hub {
    /// The exposed id of a child's task; unguessable, and the same for as long as we run.
    fn exposed_task(&mut self, now: Instant, server: ServerId, own: &str, host: Era) -> String {
        let config = &self.child(server).config;
        if let Some(known) = self.tasks.by_own.get(&(server, own.to_owned()))
            && self.tasks.known.get(known).is_some_and(|task| task.config == config.identity())
        {
            return known.clone();
        }
        let key = config.key.clone();
        let exposed = if own.starts_with(OURS) {
            // What it came to is known here alone.
            format!("{key}.{}", self.entropy.text())
        } else {
            let kind = Kind::Task { own: own.to_owned(), host, config: config.identity() };
            let expires = self.unix(now).0 + LEADS_FOR;
            let sealed = self.seal(&State { kind, server: key.clone(), digest: String::new(), expires });
            format!("{key}.{sealed}")
        };
        self.know_task(exposed.clone(), server, own, host);
        exposed
    }

    /// Whether a host of that era knows a task by that id. One that is not known here any more says what it stands for.
    fn finds_task(&mut self, now: Instant, exposed: &str, host: Era) -> bool {
        // A server that was taken out of the configuration and put back in has another number.
        if let Some(task) = self.tasks.known.get(exposed)
            && self.position(task.server).is_some()
        {
            return task.host == host && self.child(task.server).config.identity() == task.config;
        }
        // The server's key has no point in it; the seal has one.
        let Some((key, sealed)) = exposed.split_once('.') else { return false };
        let Some(State { kind: Kind::Task { own, host: of, config }, server, expires, .. }) = self.sealer.open(sealed)
        else {
            return false;
        };
        let found = self.order.iter().copied().find(|id| self.child(*id).config.key == server);
        let Some(found) = found.filter(|id| self.child(*id).config.identity() == config) else { return false };
        if server != key || of != host || expires < self.unix(now).0 {
            return false;
        }
        self.know_task(exposed.to_owned(), found, &own, host);
        true
    }

    fn know_task(&mut self, exposed: String, server: ServerId, own: &str, host: Era) {
        let config = self.child(server).config.identity();
        let task = Task {
            server,
            config,
            own: own.to_owned(),
            host,
            state: Bytes::new(),
            ended: None,
            capabilities: HostCapabilities::default(),
            questions: BTreeMap::new(),
            next_key: 0,
        };
        self.tasks.known.insert(exposed.clone(), task);
        self.tasks.by_own.insert((server, own.to_owned()), exposed.clone());
        self.tasks.order.push_back(exposed);
        if self.tasks.order.len() > KNOWN_MAX
            && let Some(task) = self.tasks.order.pop_front().and_then(|oldest| self.tasks.known.remove(&oldest))
        {
            self.tasks.by_own.remove(&(task.server, task.own));
        }
    }

    /// The exposed id of a child's task, if it is known.
    fn exposed_of(&self, server: ServerId, own: &str) -> Option<&String> {
        self.tasks.by_own.get(&(server, own.to_owned()))
    }

    /// Puts the exposed id in the place of a child's own, between sides of one era.
    pub(super) fn expose_task(
        &mut self,
        now: Instant,
        conn: Conn,
        line: &Bytes,
        at: Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        if let Some(own) = text::string(line, at.clone()).map(std::borrow::Cow::into_owned) {
            let exposed = self.exposed_task(now, conn.server, &own, self.era_of(conn));
            edits.push(Edit::text(at, text::quoted(&exposed)));
        }
    }

    /// Puts the child's own id back into what the host says about a task.
    pub(super) fn unexpose_related(&self, line: &Bytes, envelope: &Envelope, edits: &mut Vec<Edit>) {
        let related = ["_meta", RELATED, "taskId"];
        let Some(at) = envelope.result.clone().and_then(|at| text::path(line, at, &related)) else { return };
        if let Some(task) = text::string(line, at.clone()).and_then(|task| self.tasks.known.get(&*task)) {
            edits.push(Edit::text(at, text::quoted(&task.own)));
        }
    }

    /// `tasks/get`, `tasks/result`, `tasks/update` and `tasks/cancel` of the host.
    pub(super) fn task_request(&mut self, now: Instant, method: Method, request: Request) {
        let host = if self.is_modern(&request.id) { Era::Modern } else { Era::Legacy };
        if host == Era::Legacy && self.session.revision != Revision::V2025_11_25 {
            let error = RpcError::new(
                code::METHOD_NOT_FOUND,
                format!("{} is not part of this session's revision.", method.as_str()),
            );
            return self.answer_error(&request.id, &error);
        }
        let exposed = text_at(&request.frame, request.params.task_id.as_ref()).unwrap_or_default().into_owned();
        let found = self.finds_task(now, &exposed, host);
        let Some(task) = self.tasks.known.get(&exposed).filter(|_| found) else {
            let error =
                RpcError::new(code::INVALID_PARAMS, format!("The task \"{exposed}\" is not known, or it has expired."))
                    .with("taskId", exposed);
            return self.answer_error(&request.id, &error);
        };
        let (server, own) = (task.server, task.own.clone());
        let ended = task.ended.is_some();
        let sender = self.session.in_flight.get(&request.id).and_then(|flight| flight.modern.as_ref());
        if let (Some(sender), Some(task)) = (sender, self.tasks.known.get_mut(&exposed)) {
            // What its server may ask is judged by who was heard of last.
            task.capabilities.clone_from(&sender.capabilities);
        }
        if ended {
            return self.answer_ended(method, &request.id, &exposed);
        }
        let at = request.params.task_id.clone().unwrap_or_default();
        let edits = vec![Edit::text(at, text::quoted(&own))];
        self.route(now, server, request, About::Task(exposed), method, edits);
    }

    /// A call became a task.
    #[expect(clippy::too_many_arguments, reason = "one answer with what was read of it")]
    pub(super) fn task_created(
        &mut self,
        now: Instant,
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
        self.expose_task(now, conn, line, at, edits);
    }

    /// A child told something about a task in an answer, to a host of its era.
    #[expect(clippy::too_many_arguments, reason = "one answer with what was read of it")]
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
        if self.era_of(conn) == Era::Modern {
            return self.edit_state(now, conn, line, result, edits);
        }
        if method == Method::TasksResult {
            let related = ["_meta", RELATED, "taskId"];
            if let Some(at) = text::path(line, result.clone(), &related) {
                self.expose_task(now, conn, line, at, edits);
            }
            self.task_over(exposed);
            return;
        }
        if let Some(at) = text::get(line, result.clone(), "taskId") {
            self.expose_task(now, conn, line, at, edits);
        }
        if task::read(line, result).is_some_and(|told| told.status.is_last()) {
            self.task_over(exposed);
        }
    }

    /// What a modern child says of a task, for a modern host: the id, the URIs of an inlined result, and whose the
    /// questions are.
    fn edit_state(&mut self, now: Instant, conn: Conn, line: &Bytes, state: &Range<usize>, edits: &mut Vec<Edit>) {
        if let Some(at) = text::get(line, state.clone(), "taskId") {
            self.expose_task(now, conn, line, at, edits);
        }
        if let Some(inlined) = text::get(line, state.clone(), "result") {
            let scheme = &self.children[conn.server.0].scheme;
            let seen = Rewriter::new(line, scheme, edits).result(Method::ToolsCall, &inlined);
            self.note_seen(conn.server, &seen);
        }
        self.label_questions(conn.server, line, state, edits);
    }

    /// URIs that a child named are its own from then on.
    pub(super) fn note_seen(&mut self, server: ServerId, seen: &[String]) {
        if let (false, Some(position)) = (seen.is_empty(), self.position(server)) {
            for uri in seen {
                self.catalog.note_seen(position, uri);
            }
        }
    }

    /// A task is over: its progress token is free.
    fn task_over(&mut self, exposed: &str) {
        let Some(key) = self.tasks.known.get(exposed).map(|task| (task.server, task.own.clone())) else { return };
        if let Some((conn, wire)) = self.tasks.calls.remove(&key)
            && let Some(link) = self.link_mut(conn)
        {
            link.task_tokens.remove(&wire);
        }
    }

    /// A child's word about a task goes to the host, if it knows the task.
    pub(super) fn child_task_status(&mut self, now: Instant, conn: Conn, line: &Bytes, params: &Params) {
        let Some(own) = text_at(line, params.task_id.as_ref()).map(std::borrow::Cow::into_owned) else { return };
        let Some(exposed) = self.exposed_of(conn.server, &own).cloned() else { return };
        let whole = params.whole.clone().unwrap_or_default();
        if self.tasks.known.get(&exposed).is_some_and(|task| task.host == Era::Modern) {
            return self.note_state(now, conn, &own, &line.slice(whole));
        }
        let at = params.task_id.clone().unwrap_or_default();
        if task::read(line, &whole).is_some_and(|told| told.status.is_last()) {
            self.task_over(&exposed);
        }
        self.say_edited(conn.server, line, &mut [Edit::text(at, text::quoted(&exposed))], Droppable::No);
    }

    /// A modern child's word about a task goes to the streams that name it, or to the legacy host that made it.
    pub(super) fn child_task_news(&mut self, now: Instant, conn: Conn, line: &Bytes, params: &Params) {
        let (Some(own), Some(whole)) = (text_at(line, params.task_id.as_ref()), params.whole.clone()) else { return };
        let key = (conn.server, own.into_owned());
        let known = self.tasks.by_own.get(&key).and_then(|exposed| self.tasks.known.get(exposed));
        if known.is_some_and(|task| task.host == Era::Legacy) {
            if let Some(told) = task::read(line, &whole) {
                self.modern_state(now, conn, &key.1, line, &whole, &told);
            }
            return;
        }
        let mut edits = Vec::new();
        self.edit_state(now, conn, line, &whole, &mut edits);
        let Some(at) = params.meta.clone().and_then(|at| text::get(line, at, meta::SUBSCRIPTION)) else { return };
        let named = |listen: &crate::engine::session::Listen| listen.tasks.contains_key(&key);
        let ids: Vec<HostId> =
            self.session.listens.iter().filter(|(_, listen)| named(listen)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let mut edits = edits.clone();
            edits.push(Edit::text(at.clone(), id.0.raw()));
            let told = crate::wire::splice::apply(line, &mut edits);
            self.say_on(&id, &String::from_utf8_lossy(&told));
        }
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
        let tasks = self.bridged_tasks();
        let mut gathering = Gathering { host_id: request.id.clone(), waiting: BTreeSet::new(), tasks };
        for id in self.order.clone() {
            let until = now + self.child(id).config.list_timeout;
            if !self.child(id).capabilities().tasks_list {
                continue;
            }
            let Some((conn, Era::Legacy)) = self.child_mut(id).ready_link().map(|link| (link.conn, link.era)) else {
                continue;
            };
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
                    self.expose_task(now, conn, &entry, at, &mut edits);
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

    /// After a fault of ours: who is asked no more has nothing to add.
    pub(super) fn mend_gatherings(&mut self, now: Instant) {
        let asked = |conn: &Conn, number: u64| {
            let gathers = |pending: &Pending| matches!(pending.purpose, Purpose::Gather(other) if other == number);
            self.link_of(*conn).is_some_and(|link| link.pending.values().any(gathers))
        };
        let all = self.gatherings.iter().flat_map(|(number, gathering)| {
            gathering.waiting.iter().filter(|conn| !asked(conn, *number)).map(|conn| (*conn, *number))
        });
        for (conn, number) in all.collect::<Vec<_>>() {
            self.gathered(now, conn, number, None);
        }
    }

    pub(super) fn cancel_gathering(&mut self, now: Instant, number: u64) {
        let _ = now;
        self.gatherings.remove(&number);
    }
}
