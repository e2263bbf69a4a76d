//! A legacy child asks while a modern host's call runs: the call stays open at the child, and the host comes back with
//! the answers (`PROTOCOL.md` 5.3).

mod ending;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Hub;
use super::from_host::Request;
use super::modern::{USED, bad_responses, bad_state};
use crate::engine::child::Conn;
use crate::engine::convert;
use crate::engine::era::Era;
use crate::engine::facts::HostCapabilities;
use crate::engine::link::{Call, ChildTag, Purpose};
use crate::engine::seal::{Kind, State};
use crate::engine::session::Place;
use crate::wire::code::{self, RpcError};
use crate::wire::id::{ChildId, HostId, OurId, WireId};
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::Method;
use crate::wire::params::Params;
use crate::wire::splice::{self, Edit};

/// Questions that come within this time travel in one round.
const WINDOW: Duration = Duration::from_millis(20);
/// How long a call may wait for a host that may never come back.
const INTERACTION: Duration = Duration::from_secs(15 * 60);
/// How long a child may take to end its call after its questions were answered negatively.
const WIND_UP: Duration = Duration::from_secs(5);
/// Calls that may be parked: at one child, and in all.
const PARKED_MAX: (usize, usize) = (32, 256);

/// States that are used up and known as such.
const CONSUMED_MAX: usize = 1024;

/// A call that outlives the request that made it.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    conn: Conn,
    wire: WireId,
    digest: String,
    round: u32,
    next_key: u32,
    open: BTreeMap<String, Question>,
    /// The request of the host that waits now; `None`: it was answered with questions.
    attached: bool,
    /// The last request, for a cancellation that crosses our questions.
    last: HostId,
    capabilities: HostCapabilities,
    /// When the collected questions are put.
    ask_at: Option<Instant>,
    /// When the host is given up, and then when the child is.
    expires: Instant,
    winding_up: bool,
    end: Option<End>,
}

#[derive(Clone, Debug)]
struct Question {
    our: OurId,
    child_id: ChildId,
    method: Method,
    /// `{"method":…,"params":…}`.
    request: Bytes,
}

/// What the next retry gets.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is moved once, to where it is used up")]
enum End {
    /// The child's answer.
    Answered(Box<Call>, Bytes, Envelope),
    /// An error of ours.
    Error(RpcError),
}

impl Parked {
    /// When the host, or what is kept for it, is given up: while nobody waits.
    fn given_up(&self) -> Option<Instant> {
        (!self.attached || self.end.is_some()).then_some(self.expires)
    }
}

impl Hub {
    /// A legacy child asks in a modern host's call.
    #[expect(clippy::too_many_arguments, reason = "a message with what was read of it")]
    pub(super) fn park(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        line: &Bytes,
        params: &Params,
        id: ChildId,
        method: Method,
    ) {
        let Some(Purpose::Call(call)) =
            self.link_of(conn).and_then(|link| link.pending.get(&wire)).map(|p| p.purpose.clone())
        else {
            return;
        };
        let known = call.parked.filter(|id| self.parked.contains_key(id));
        let capabilities = match known.and_then(|id| self.parked.get(&id)) {
            Some(parked) => parked.capabilities.clone(),
            None => call.modern.as_ref().map(|sender| sender.capabilities.clone()).unwrap_or_default(),
        };
        if let Err((code, message)) = covered(&capabilities, method, line, params) {
            return self.answer_child_error(conn, &id, code, message);
        }
        let at_child = self.parked.values().filter(|parked| parked.conn.server == conn.server).count();
        if known.is_none() && (at_child >= PARKED_MAX.0 || self.parked.len() >= PARKED_MAX.1) {
            return self.answer_child_error(conn, &id, code::INTERNAL, "too many calls wait for the host");
        }
        let number = match known {
            Some(number) => number,
            None => self.begin_parked(now, conn, wire, &call, capabilities),
        };
        let our = self.session.question_id();
        let request = self.question_request(conn, line, params, method);
        if let Some(link) = self.link_mut(conn) {
            link.questions.insert(id.clone(), our);
        }
        let Some(parked) = self.parked.get_mut(&number) else { return };
        parked.next_key += 1;
        parked.open.insert(format!("q{}", parked.next_key), Question { our, child_id: id, method, request });
        if parked.attached && parked.ask_at.is_none() {
            parked.ask_at = Some(now + WINDOW);
        }
    }

    fn begin_parked(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: &Call,
        capabilities: HostCapabilities,
    ) -> u64 {
        let number = self.entropy.bits() >> 12;
        let params = Params::read(&call.frame, super::calls::params_of(&call.frame)).unwrap_or_default();
        let request = Request::new(call.host_id.clone(), call.frame.clone(), call.id_at.clone(), params);
        let digest = self.call_digest(call.method, &request);
        self.parked.insert(
            number,
            Parked {
                conn,
                wire,
                digest,
                round: 0,
                next_key: 0,
                open: BTreeMap::new(),
                attached: true,
                last: call.host_id.clone(),
                capabilities,
                ask_at: None,
                expires: now + INTERACTION,
                winding_up: false,
                end: None,
            },
        );
        if let Some(call) = self.parked_call(conn, wire) {
            call.parked = Some(number);
        }
        number
    }

    pub(super) fn parked_call(&mut self, conn: Conn, wire: WireId) -> Option<&mut Call> {
        match self.link_mut(conn)?.pending.get_mut(&wire).map(|pending| &mut pending.purpose) {
            Some(Purpose::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// The question as a modern host reads it.
    pub(super) fn question_request(&mut self, conn: Conn, line: &Bytes, params: &Params, method: Method) -> Bytes {
        let Some(whole) = params.whole.clone() else {
            return Bytes::from(format!(r#"{{"method":"{}"}}"#, method.as_str()));
        };
        let mut edits = Vec::new();
        match method {
            Method::CreateMessage => self.edit_sampling(conn, line, &whole, &mut edits),
            Method::Elicit => {
                self.label(conn.server, line, &whole, &mut edits);
                // A form may say so by saying nothing; in this era it says so. Ids of URL questions have no place here.
                let mode = if text::get(line, whole.clone(), "mode").is_none() { r#""mode":"form""# } else { "" };
                meta::edit_object(line, &whole, &["elicitationId", "_meta", "task"], mode, &mut edits);
            }
            _ => {}
        }
        if method != Method::Elicit {
            meta::edit_object(line, &whole, &["_meta", "task"], "", &mut edits);
        }
        let edited = splice::apply(&line[..whole.end], &mut edits);
        let params = String::from_utf8_lossy(&edited[whole.start..]).into_owned();
        Bytes::from(format!(r#"{{"method":"{}","params":{params}}}"#, method.as_str()))
    }

    /// For [`Hub::fingerprint`]: the numbers of the records are random, and do not count.
    pub(super) fn hash_parked(&self, now: Instant, to: &mut impl Hasher) {
        let of = |parked: &Parked| {
            let mut one = DefaultHasher::new();
            (parked.conn, parked.wire, parked.round, parked.next_key, parked.attached, parked.winding_up)
                .hash(&mut one);
            (&parked.last, &parked.capabilities).hash(&mut one);
            for (key, question) in &parked.open {
                (key, question.our, &question.child_id).hash(&mut one);
            }
            for at in [parked.ask_at, Some(parked.expires)] {
                at.map(|at| at.saturating_duration_since(now)).hash(&mut one);
            }
            match &parked.end {
                None => 0.hash(&mut one),
                Some(End::Answered(_, line, _)) => (1, line).hash(&mut one),
                Some(End::Error(error)) => (2, error).hash(&mut one),
            }
            one.finish()
        };
        let mut all: Vec<u64> = self.parked.values().map(of).collect();
        all.sort_unstable();
        (all, self.consumed.len(), self.own_questions.len()).hash(to);
    }

    pub(super) fn parked_deadline(&self) -> Option<Instant> {
        self.parked.values().flat_map(|parked| parked.ask_at.into_iter().chain(parked.given_up())).min()
    }

    pub(super) fn parked_due(&mut self, now: Instant) {
        let due = |at: Instant| at <= now;
        let asking: Vec<u64> =
            self.parked.iter().filter(|(_, p)| p.ask_at.is_some_and(due)).map(|(id, _)| *id).collect();
        for number in asking {
            self.put_questions(now, number);
        }
        let over: Vec<u64> =
            self.parked.iter().filter(|(_, p)| p.given_up().is_some_and(due)).map(|(id, _)| *id).collect();
        for number in over {
            self.parked_expired(now, number);
        }
    }

    /// Answers the attached request with all open questions.
    fn put_questions(&mut self, now: Instant, number: u64) {
        let Some(parked) = self.parked.get_mut(&number) else { return };
        parked.ask_at = None;
        if parked.open.is_empty() || !parked.attached {
            return;
        }
        parked.round += 1;
        parked.attached = false;
        parked.expires = now + INTERACTION;
        let (conn, wire, last) = (parked.conn, parked.wire, parked.last.clone());
        let requests: Vec<String> = parked
            .open
            .iter()
            .map(|(key, question)| format!("\"{key}\":{}", String::from_utf8_lossy(&question.request)))
            .collect();
        let (digest, round) = (parked.digest.clone(), parked.round);
        let outcome = self.parked_call(conn, wire).and_then(|call| {
            // Between two attempts nobody is told of progress: the id and the token may be another request's by then.
            call.token = None;
            call.outcome
        });
        let outcome = outcome.map(|outcome| outcome.to_string());
        let state = State {
            kind: Kind::Parked { id: number, round, outcome },
            server: self.child(conn.server).config.key.clone(),
            digest,
            expires: self.unix(now).0 + 24 * 3600 * 1000,
        };
        let state = self.seal(&state);
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":"{state}","_meta":{{"{}":{}}}}}"#,
            requests.join(","),
            meta::SERVER,
            self.server_info()
        );
        self.answer_as_is(&last, &result);
        self.slot_free(now, conn.server);
    }

    /// The host comes back.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        request: Request,
        number: u64,
        round: u32,
        server: &str,
        outcome: Option<String>,
    ) {
        if self.consumed.contains(&number) {
            return self.answer_error(&request.id, &bad_state(USED));
        }
        let Some(parked) = self.parked.get(&number) else {
            let error = self.forgotten(server, outcome);
            return self.answer_error(&request.id, &error);
        };
        if parked.round != round || parked.attached {
            return self.answer_error(&request.id, &bad_state(USED));
        }
        let (conn, wire) = (parked.conn, parked.wire);
        let whole = request.params.whole.clone().unwrap_or_default();
        let responses = text::get(&request.frame, whole, "inputResponses");
        let given: Vec<(String, std::ops::Range<usize>)> = responses
            .into_iter()
            .flat_map(|at| text::members(&request.frame, at))
            .filter_map(|member| Some((text::string(&request.frame, member.key)?.into_owned(), member.value)))
            .collect();
        if given.iter().any(|(key, at)| parked.open.contains_key(key) && !text::is_object(&request.frame, at)) {
            return self.answer_error(&request.id, &bad_responses());
        }
        if self.parked.get(&number).is_some_and(|parked| parked.end.is_none()) && self.slot_taken(conn) {
            return self.wait_for_slot(now, conn.server, request);
        }
        for (key, at) in given {
            let Some(question) = self.parked.get_mut(&number).and_then(|parked| parked.open.remove(&key)) else {
                continue;
            };
            self.give_response(now, conn, &question.child_id, question.method, &request.frame[at]);
        }
        if let Some(end) = self.parked.get_mut(&number).and_then(|parked| parked.end.take()) {
            self.consume(number);
            return self.give_end(now, conn, wire, &request, end);
        }
        self.attach(now, number, request);
    }

    /// Hands a modern host's response to the child that asked.
    pub(super) fn give_response(&mut self, now: Instant, conn: Conn, id: &ChildId, method: Method, response: &[u8]) {
        let mut result = String::from_utf8_lossy(response).into_owned();
        if method == Method::CreateMessage && self.is_before_blocks(conn) {
            let mut edits: Vec<Edit> = convert::one_text(result.as_bytes(), &(0..result.len())).into_iter().collect();
            result = String::from_utf8_lossy(&splice::apply(result.as_bytes(), &mut edits)).into_owned();
        }
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0.raw());
        if method == Method::RootsList {
            self.note_roots(now, result);
        }
        if let Some(link) = self.link_mut(conn) {
            if link.questions.remove(id).is_some() {
                link.outbox.push(ChildTag::Other, answer.as_bytes());
            }
            link.answered_question(now);
        }
    }

    /// The request waits for the call from now on; its own token, level and capabilities count.
    fn attach(&mut self, now: Instant, number: u64, request: Request) {
        let sender = self.session.in_flight.get(&request.id).and_then(|flight| flight.modern.clone());
        let Some(parked) = self.parked.get_mut(&number) else { return };
        parked.attached = true;
        parked.winding_up = false;
        parked.last = request.id.clone();
        parked.capabilities = sender.as_ref().map(|sender| sender.capabilities.clone()).unwrap_or_default();
        if !parked.open.is_empty() {
            parked.ask_at = Some(now);
        }
        let (conn, wire) = (parked.conn, parked.wire);
        let token = request.params.token(&request.frame).map(|(_, token)| token);
        if let Some(call) = self.parked_call(conn, wire) {
            call.host_id = request.id.clone();
            call.token = token;
            call.modern = sender;
        }
        self.place(&request.id, Place::AtChild(conn.server, wire));
        self.parked_due(now);
    }

    fn give_end(&mut self, now: Instant, conn: Conn, wire: WireId, request: &Request, end: End) {
        match end {
            End::Error(error) => self.answer_error_from(&request.id, Some(conn.server), &error),
            End::Answered(mut call, line, envelope) => {
                call.host_id = request.id.clone();
                call.outcome = None;
                call.parked = None;
                call.since = now;
                self.call_answered(now, conn, wire, call, &line, &envelope);
            }
        }
    }

    /// Whether a log line of a legacy child is wanted by a modern request that is under way there.
    pub(super) fn wants_log(&self, conn: Conn, severity: usize) -> bool {
        self.link_of(conn).is_some_and(|link| {
            link.pending.values().any(|pending| match &pending.purpose {
                Purpose::Call(call) if !self.is_detached(call) => {
                    call.modern.as_ref().is_some_and(|sender| sender.level.is_some_and(|level| level <= severity))
                }
                _ => false,
            })
        })
    }

    /// Which era that life speaks.
    pub(super) fn era_of(&self, conn: Conn) -> Era {
        self.link_of(conn).map_or(Era::Legacy, |link| link.era)
    }
}

/// Whether the host can be asked that.
pub(super) fn covered(
    host: &HostCapabilities,
    method: Method,
    line: &[u8],
    params: &Params,
) -> Result<(), (i64, &'static str)> {
    let whole = params.whole.clone().unwrap_or_default();
    let has = |name: &str| text::get(line, whole.clone(), name);
    match method {
        Method::RootsList if host.roots => Ok(()),
        Method::CreateMessage if host.sampling => {
            let tools = has("tools").is_some() || has("toolChoice").is_some();
            if tools && !host.sampling_tools {
                Err((code::INVALID_PARAMS, "the host's sampling takes no tools"))
            } else {
                Ok(())
            }
        }
        Method::Elicit if host.elicitation_form || host.elicitation_url => {
            let url = has("mode").and_then(|at| text::string(line, at)).as_deref() == Some("url");
            match (url, host.elicitation_url, host.elicitation_form) {
                (true, true, _) | (false, _, true) => Ok(()),
                (true, false, _) => Err((code::INVALID_PARAMS, "the host does not elicit by url")),
                (false, _, false) => Err((code::INVALID_PARAMS, "the host does not elicit by form")),
            }
        }
        _ => Err((code::METHOD_NOT_FOUND, "the host does not offer this")),
    }
}
