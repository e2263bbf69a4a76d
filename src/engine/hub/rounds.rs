//! A modern child answers a call with questions: they become requests to a legacy host, and the call goes out again
//! with the answers (`PROTOCOL.md` 5.4).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::lost::Loss;
use super::{Effect, Hub};
use crate::engine::child::{Conn, ServerId};
use crate::engine::convert;
use crate::engine::link::{Answers, Call};
use crate::engine::outcome::Reason;
use crate::engine::session::{Asker, Place, Question};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, OurId, WireId};
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::{Method, Revision};
use crate::wire::params::Params;
use crate::wire::splice;

/// Rounds of one call.
const ROUNDS_MAX: u32 = 16;
/// How long a round may take.
const ROUND_TIME: Duration = Duration::from_secs(10 * 60);
/// Bounds of the pause before a call that needs no answers goes out again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A call between two of its requests.
#[derive(Clone, Debug)]
pub(super) struct Round {
    server: ServerId,
    call: Box<Call>,
    /// The child's exact state, a JSON string.
    state: Option<String>,
    /// The child's key → what the host answered, as JSON text.
    answers: BTreeMap<String, String>,
    open: BTreeMap<OurId, String>,
    /// URL elicitations whose end is awaited, by the child's ids.
    urls: Vec<String>,
    /// When it is given up, or, with nothing open, when the call goes out again.
    at: Instant,
}

impl Hub {
    /// A modern child needs input for a call of a legacy host.
    pub(super) fn input_required(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        mut call: Box<Call>,
        line: &Bytes,
        result: &std::ops::Range<usize>,
    ) {
        let requests = text::get(line, result.clone(), "inputRequests").filter(|at| text::is_object(line, at));
        let state =
            text::get(line, result.clone(), "requestState").map(|at| String::from_utf8_lossy(&line[at]).into_owned());
        let entries: Vec<(String, std::ops::Range<usize>)> = requests
            .into_iter()
            .flat_map(|at| text::members(line, at))
            .filter_map(|member| Some((text::string(line, member.key)?.into_owned(), member.value)))
            .collect();
        let allowed = matches!(call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
        let questions: Option<Vec<(String, Method, Bytes)>> =
            entries.into_iter().map(|(key, at)| self.question_of(conn, key, line.slice(at))).collect();
        let Some(questions) = questions.filter(|questions| allowed && (!questions.is_empty() || state.is_some()))
        else {
            let loss =
                Loss::new(Reason::InvalidResponse, "it asked for input in a way that the protocol does not allow");
            return self.lose(now, conn, wire, &call, &loss);
        };
        // That request has its answer; the next one is another.
        if let Some(outcome) = call.outcome.take() {
            self.effect(Effect::Settle(outcome));
        }
        call.rounds += 1;
        if call.rounds > ROUNDS_MAX {
            return self.refuse_round(conn.server, &call, "input_expired", "it asked more often than is allowed");
        }
        let number = self.session.next_batch;
        self.session.next_batch += 1;
        self.place(&call.host_id, Place::Rounds(number));
        let pause = if questions.is_empty() { self.round_pause(&call) } else { ROUND_TIME };
        let mut round = Round {
            server: conn.server,
            call,
            state,
            answers: BTreeMap::new(),
            open: BTreeMap::new(),
            urls: Vec::new(),
            at: now + pause,
        };
        for (key, method, params) in questions {
            let our = self.session.question_id();
            round.open.insert(our, key.clone());
            self.session.questions.insert(our, Question { asker: Asker::Round { id: number, key }, method });
            let params = String::from_utf8_lossy(&params);
            let request =
                format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{params}}}"#, our.0, method.as_str());
            if self.session.is_initialized() {
                self.say(&request);
            } else {
                self.session.held.push((Some(our), Bytes::from(request)));
            }
        }
        self.rounds.insert(number, round);
        self.rounds_due(now);
    }

    /// The first time at once, then after a pause that doubles.
    fn round_pause(&self, call: &Call) -> Duration {
        if call.rounds <= 1 {
            Duration::ZERO
        } else {
            PAUSE.0.saturating_mul(1 << (call.rounds - 2).min(8)).min(PAUSE.1)
        }
    }

    /// One question as the host's revision has it; `None` if it can't be put to this host.
    pub(super) fn question_of(&mut self, conn: Conn, key: String, entry: Bytes) -> Option<(String, Method, Bytes)> {
        let whole = 0..entry.len();
        let method = Method::from_token(&entry[text::get(&entry, whole.clone(), "method")?])?;
        let Some(params_at) = text::get(&entry, whole, "params") else {
            return (method == Method::RootsList && self.session.capabilities.roots)
                .then(|| (key, method, Bytes::from_static(b"{}")));
        };
        let line = entry.slice(params_at);
        let params = Params::read(&line, Some(0..line.len())).ok()?;
        super::parked::covered(&self.session.capabilities, method, &line, &params).ok()?;
        let mut edits = Vec::new();
        match method {
            Method::CreateMessage => {
                self.edit_sampling(conn, &line, &(0..line.len()), &mut edits);
                if self.session.revision < Revision::V2025_11_25 {
                    convert::one_block_each(&line, &(0..line.len()), &mut edits);
                }
            }
            Method::Elicit => {
                self.label(conn.server, &line, &(0..line.len()), &mut edits);
                let url = text::get(&line, 0..line.len(), "mode").and_then(|at| text::string(&line, at)).as_deref()
                    == Some("url");
                let newest = self.session.revision >= Revision::V2025_11_25;
                let minted = format!(r#""elicitationId":"{}""#, self.entropy.text());
                let gone: &[&str] = if newest { &[] } else { &["mode"] };
                if !newest {
                    super::reverse::older_form(&line, &(0..line.len()), &mut edits);
                }
                meta::edit_object(&line, &(0..line.len()), gone, if url && newest { &minted } else { "" }, &mut edits);
            }
            _ => {}
        }
        Some((key, method, Bytes::from(splice::apply(&line, &mut edits))))
    }

    /// The host answered one question of a round.
    pub(super) fn round_answered(
        &mut self,
        now: Instant,
        number: u64,
        our: OurId,
        method: Method,
        result: Option<String>,
    ) {
        let Some(round) = self.rounds.get_mut(&number) else { return };
        let Some(key) = round.open.remove(&our) else { return };
        match (result, method) {
            (Some(result), _) => {
                round.answers.insert(key, result);
            }
            (None, Method::Elicit) => {
                round.answers.insert(key, r#"{"action":"cancel"}"#.into());
            }
            (None, _) => {
                let (server, call) = (round.server, round.call.clone());
                self.drop_round(number, "another question was refused");
                return self.refuse_round(
                    server,
                    &call,
                    "input_not_provided",
                    "the host refused what the server asked for",
                );
            }
        }
        if self.rounds.get(&number).is_some_and(|round| round.open.is_empty()) {
            self.next_round(now, number);
        }
    }

    /// The call goes out again, under a new number, with all answers and the exact state.
    fn next_round(&mut self, now: Instant, number: u64) {
        let Some(Round { server, mut call, state, answers, .. }) = self.rounds.remove(&number) else { return };
        let responses = (!answers.is_empty()).then(|| {
            let members: Vec<String> =
                answers.iter().map(|(key, answer)| format!("{}:{answer}", text::quoted(key))).collect();
            format!("{{{}}}", members.join(","))
        });
        call.answers = Some(Box::new(Answers { responses, state, ..Answers::default() }));
        self.offer(now, server, call);
    }

    /// Keeps a call back until its URLs were visited, or until that time.
    pub(super) fn hold(&mut self, server: ServerId, call: Box<Call>, urls: Vec<String>, until: Instant) {
        let number = self.session.next_batch;
        self.session.next_batch += 1;
        self.place(&call.host_id, Place::Rounds(number));
        let (answers, open) = (BTreeMap::new(), BTreeMap::new());
        self.rounds.insert(number, Round { server, call, state: None, answers, open, urls, at: until });
    }

    /// One of those URLs was visited.
    pub(super) fn held_url_done(&mut self, now: Instant, server: ServerId, id: &str) {
        let mut due = Vec::new();
        for (number, round) in self.rounds.iter_mut().filter(|(_, round)| round.server == server) {
            let waited = !round.urls.is_empty();
            round.urls.retain(|url| url != id);
            if waited && round.urls.is_empty() {
                due.push(*number);
            }
        }
        for number in due {
            self.next_round(now, number);
        }
    }

    /// Ends a round without an answer for the host: it cancelled.
    pub(super) fn drop_round(&mut self, number: u64, why: &str) {
        let Some(round) = self.rounds.remove(&number) else { return };
        for our in round.open.into_keys() {
            self.session.questions.remove(&our);
            self.withdraw_question(our, why);
        }
    }

    fn refuse_round(&mut self, server: ServerId, call: &Call, reason: &'static str, what: &str) {
        let key = self.child(server).config.key.as_str();
        let error = RpcError::new(code::REFUSED, format!("The call to server \"{key}\" was ended: {what}."))
            .with("server", key)
            .with("reason", reason);
        self.answer_error_from(&call.host_id, Some(server), &error);
    }

    pub(super) fn rounds_deadline(&self) -> Option<Instant> {
        self.rounds.values().map(|round| round.at).min()
    }

    /// The requests of rounds whose time is over.
    pub(super) fn rounds_over(&self, now: Instant) -> Vec<HostId> {
        self.rounds.values().filter(|round| round.at <= now).map(|round| round.call.host_id.clone()).collect()
    }

    pub(super) fn rounds_due(&mut self, now: Instant) {
        let due: Vec<(u64, bool)> = self
            .rounds
            .iter()
            .filter(|(_, round)| round.at <= now)
            .map(|(id, round)| (*id, round.open.is_empty()))
            .collect();
        for (number, nothing_open) in due {
            if nothing_open {
                self.next_round(now, number);
            } else if let Some((server, call)) =
                self.rounds.get(&number).map(|round| (round.server, round.call.clone()))
            {
                self.drop_round(number, "it took too long");
                self.refuse_round(server, &call, "input_expired", "nobody answered what the server asked for");
            }
        }
    }
}
