//! Tasks whose state is asked for until they end: a modern child's, for a legacy host that waits, with its questions as
//! real requests; and a legacy child's, for a modern host's stream (`PROTOCOL.md` 5.13).

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::known::task_params;
use crate::engine::child::Conn;
use crate::engine::era::Era;
use crate::engine::hub::Hub;
use crate::engine::link::{Poll, Purpose};
use crate::engine::outcome::Reason;
use crate::engine::session::{Asker, Question};
use crate::engine::task::{self, RELATED, Status, Told};
use crate::wire::code::{self, RpcError};
use crate::wire::id::OurId;
use crate::wire::json as text;
use crate::wire::message::{self, Envelope, Line};
use crate::wire::meta;
use crate::wire::method::Method;
use crate::wire::splice;

/// The pause before a state is asked for again that did not come.
const AGAIN: Duration = Duration::from_secs(1);

impl Hub {
    /// Asks for the state of a task from now on, until it has ended.
    pub(super) fn poll_task(&mut self, now: Instant, conn: Conn, own: &str) {
        let _ = now;
        let Some(link) = self.link_mut(conn) else { return };
        if !link.polls.contains_key(own) {
            link.polls.insert(own.to_owned(), Poll::default());
            self.ask_state(conn, own);
        }
    }

    fn ask_state(&mut self, conn: Conn, own: &str) {
        let until = self.link_of(conn).map(|link| link.last_traffic + self.child(conn.server).config.list_timeout);
        let purpose = Purpose::TaskState(own.to_owned());
        self.ask_child(conn, Method::TasksGet, Some(&task_params(own)), purpose, until);
        if let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) {
            poll.at = None;
        }
    }

    /// Asks for states that are due.
    pub(in crate::engine::hub) fn polls_due(&mut self, now: Instant, conn: Conn) {
        let polls = self.link_of(conn).into_iter().flat_map(|link| &link.polls);
        let due = polls.filter(|(_, poll)| poll.at.is_some_and(|at| at <= now));
        let due: Vec<String> = due.map(|(own, _)| own.clone()).collect();
        for own in due {
            if self.waiting_for(conn, &own).is_empty() && !self.is_watched(conn.server, &own) {
                self.drop_poll(conn, &own);
            } else {
                self.ask_state(conn, &own);
            }
        }
    }

    fn ask_again(&mut self, conn: Conn, own: &str, at: Instant) {
        if let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) {
            poll.at = Some(at);
        }
    }

    /// A state did not come in time.
    pub(in crate::engine::hub) fn task_silent(&mut self, now: Instant, conn: Conn, own: &str) {
        self.ask_again(conn, own, now + AGAIN);
    }

    /// A state came, or an error in its place.
    pub(in crate::engine::hub) fn task_state(
        &mut self,
        now: Instant,
        conn: Conn,
        own: &str,
        line: &Bytes,
        envelope: &Envelope,
    ) {
        if !self.link_of(conn).is_some_and(|link| link.polls.contains_key(own)) {
            return;
        }
        let Some(result) = &envelope.result else {
            // Its child does not know it any more, and its word is the answer.
            return self.end_with_error(now, conn, own, line, envelope);
        };
        let Some(told) = task::read(line, result) else {
            let what = "what it said of the task is no task";
            return self.lose_waiting(now, conn, own, Reason::InvalidResponse, what);
        };
        if let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) {
            poll.every = told.poll;
        }
        if self.era_of(conn) == Era::Legacy {
            self.note_state(now, conn, own, &line.slice(result.clone()));
            if told.status.is_last() {
                self.drop_poll(conn, own);
            } else {
                self.ask_again(conn, own, now + told.poll);
            }
            return;
        }
        if told.status == Status::Working {
            self.ask_again(conn, own, now + told.poll);
        }
        self.modern_state(now, conn, own, line, result, &told);
    }

    /// A modern child told the state of a task of a legacy host, whether it was asked or not.
    pub(super) fn modern_state(
        &mut self,
        now: Instant,
        conn: Conn,
        own: &str,
        line: &Bytes,
        state: &std::ops::Range<usize>,
        told: &Told,
    ) {
        if let Some(exposed) = self.exposed_of(conn.server, own).cloned() {
            self.hear_state(conn, &exposed, line, state, told.status);
        }
        match told.status {
            Status::Working => {}
            Status::InputRequired => self.ask_for_task(now, conn, own, line, state),
            Status::Completed | Status::Failed | Status::Cancelled => {
                self.modern_task_ended(now, conn, own, line, state, told.status);
            }
        }
    }

    fn end_with_error(&mut self, now: Instant, conn: Conn, own: &str, line: &Bytes, envelope: &Envelope) {
        self.drop_poll(conn, own);
        for wire in self.waiting_for(conn, own) {
            let Some(mut call) = self.take_waiting(conn, wire) else { continue };
            call.task = None;
            self.call_answered(now, conn, wire, call, line, envelope);
        }
    }

    /// What a modern child's task came to goes to who waits for it.
    fn modern_task_ended(
        &mut self,
        now: Instant,
        conn: Conn,
        own: &str,
        line: &Bytes,
        state: &std::ops::Range<usize>,
        status: Status,
    ) {
        let inlined = |name: &str| text::get(line, state.clone(), name).filter(|at| text::is_object(line, at));
        let said = match (status, inlined("result"), inlined("error")) {
            (Status::Cancelled, ..) => return self.task_has_ended(now, conn, own),
            (_, Some(at), _) => {
                format!(r#"{{"jsonrpc":"2.0","id":0,"result":{}}}"#, String::from_utf8_lossy(&line[at]))
            }
            (_, None, Some(at)) => {
                format!(r#"{{"jsonrpc":"2.0","id":0,"error":{}}}"#, String::from_utf8_lossy(&line[at]))
            }
            (_, None, None) => {
                let what = "its task has ended, and it did not say with what";
                return self.lose_waiting(now, conn, own, Reason::InvalidResponse, what);
            }
        };
        let said = Bytes::from(said);
        if let Line::One(envelope) = message::read(&said) {
            self.end_waiting(now, conn, own, &said, &envelope);
        }
    }

    // Questions of a modern child's task, to a legacy host.

    fn ask_for_task(&mut self, now: Instant, conn: Conn, own: &str, line: &Bytes, state: &std::ops::Range<usize>) {
        let requests = text::get(line, state.clone(), "inputRequests").filter(|at| text::is_object(line, at));
        let entries: Vec<(String, std::ops::Range<usize>)> = requests
            .into_iter()
            .flat_map(|at| text::members(line, at))
            .filter_map(|member| Some((text::string(line, member.key)?.into_owned(), member.value)))
            .collect();
        for (key, at) in entries {
            let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) else { return };
            if !poll.seen.insert(key.clone()) {
                continue;
            }
            let Some((key, method, params)) = self.question_of(conn, key, line.slice(at)) else {
                let what = "its task asked for input in a way that the protocol does not allow";
                self.cancel_task(conn, own);
                return self.lose_waiting(now, conn, own, Reason::InvalidResponse, what);
            };
            self.put_task_question(conn, own, key, method, &params);
        }
        let open = self.link_of(conn).and_then(|link| link.polls.get(own)).map(|poll| (poll.open.len(), poll.every));
        if let Some((0, every)) = open {
            self.ask_again(conn, own, now + every);
        }
    }

    fn put_task_question(&mut self, conn: Conn, own: &str, key: String, method: Method, params: &Bytes) {
        let our = self.session.question_id();
        self.session.questions.insert(our, Question { asker: Asker::Task { conn, own: own.to_owned() }, method });
        if let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) {
            poll.open.insert(our, key);
        }
        // A host that does not know of the task is asked as in any call.
        let mut edits = Vec::new();
        if let Some(exposed) = self.exposed_of(conn.server, own) {
            let related = format!(r#""{RELATED}":{{"taskId":{}}}"#, text::quoted(exposed));
            let whole = 0..params.len();
            match text::get(params, whole.clone(), "_meta").filter(|at| text::is_object(params, at)) {
                Some(at) => meta::edit_object(params, &at, &[RELATED], &related, &mut edits),
                None => meta::edit_object(params, &whole, &[], &format!(r#""_meta":{{{related}}}"#), &mut edits),
            }
        }
        let params = splice::apply(params, &mut edits);
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}}"#,
            our.0,
            method.as_str(),
            String::from_utf8_lossy(&params)
        );
        if self.session.is_initialized() {
            self.say(&request);
        } else {
            self.session.held.push((Some(our), Bytes::from(request)));
        }
    }

    /// The host answered a question of a task; when all are answered, the child is told at once.
    pub(in crate::engine::hub) fn task_question_answered(
        &mut self,
        now: Instant,
        conn: Conn,
        own: &str,
        our: OurId,
        method: Method,
        result: Option<String>,
    ) {
        let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.get_mut(own)) else { return };
        let Some(key) = poll.open.remove(&our) else { return };
        let answer = match (result, method) {
            (Some(result), _) => result,
            (None, Method::Elicit) => r#"{"action":"cancel"}"#.to_owned(),
            (None, _) => return self.task_input_refused(now, conn, own),
        };
        poll.answers.insert(key, answer);
        if !poll.open.is_empty() {
            return;
        }
        let at = now + poll.every;
        let answers: Vec<String> = std::mem::take(&mut poll.answers)
            .into_iter()
            .map(|(key, answer)| format!("{}:{answer}", text::quoted(&key)))
            .collect();
        let params = format!(r#"{{"taskId":{},"inputResponses":{{{}}}}}"#, text::quoted(own), answers.join(","));
        let until = now + self.child(conn.server).config.list_timeout;
        self.ask_child(conn, Method::TasksUpdate, Some(&params), Purpose::TaskWord, Some(until));
        self.ask_again(conn, own, at);
    }

    /// The host refused what a task can't go on without.
    fn task_input_refused(&mut self, now: Instant, conn: Conn, own: &str) {
        self.cancel_task(conn, own);
        self.drop_poll(conn, own);
        let key = self.child(conn.server).config.key.clone();
        let error = RpcError::new(
            code::REFUSED,
            format!("The task of server \"{key}\" was ended: the host refused what the server asked for."),
        )
        .with("server", key)
        .with("reason", "input_not_provided");
        for wire in self.waiting_for(conn, own) {
            if let Some(call) = self.take_waiting(conn, wire) {
                self.settle_now(call.outcome);
                self.answer_error_from(&call.host_id, Some(conn.server), &error);
            }
        }
        self.drained(now, conn.server);
    }

    /// Ends a task at its child.
    pub(super) fn cancel_task(&mut self, conn: Conn, own: &str) {
        let child = self.child(conn.server);
        let timeout = child.config.list_timeout;
        let able = self.era_of(conn) == Era::Modern || child.capabilities().tasks_cancel;
        let Some(until) = self.link_of(conn).map(|link| link.last_traffic + timeout).filter(|_| able) else { return };
        self.ask_child(conn, Method::TasksCancel, Some(&task_params(own)), Purpose::TaskWord, Some(until));
    }

    /// No longer asks for the state of a task; its open questions are taken back.
    pub(super) fn drop_poll(&mut self, conn: Conn, own: &str) {
        let Some(poll) = self.link_mut(conn).and_then(|link| link.polls.remove(own)) else { return };
        for our in poll.open.into_keys() {
            if self.session.questions.remove(&our).is_some() {
                self.withdraw_question(our, "the task needs no answer any more");
            }
        }
    }
}
