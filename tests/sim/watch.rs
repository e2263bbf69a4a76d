//! The promises of `DESIGN.md` chapter 2, watched from outside the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use mcp_proxy::engine::child::Conn;
use mcp_proxy::engine::hub::{Effect, Noted};
use mcp_proxy::engine::outcome::OutcomeId;
use serde_json::Value;

/// Number of a request or a question in the life of a world.
pub type Mark = usize;

/// What the host asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Initialize,
    List(&'static str),
    /// Something for the child of that key; whether an intent is due.
    Call {
        key: String,
        recorded: bool,
    },
    /// A modern host comes back to a call of its, which is that request.
    Retry {
        of: Mark,
    },
    /// Answered by the proxy itself.
    Own,
}

#[derive(Clone, Debug, Hash)]
pub struct Request {
    pub what: What,
    pub id: String,
    pub token: Option<String>,
    /// It came in an array.
    pub array: bool,
    pub cancelled: bool,
    pub answers: u32,
    /// The code of its answer: 0 for a result, and the reason that was given.
    pub told: Option<(i64, String)>,
    /// The last byte of the answer was accepted by the host.
    pub delivered: bool,
    /// The life that its first byte went to.
    pub started: Option<Conn>,
    pub executed: u32,
    /// It was promised that it was not sent.
    pub never: bool,
    /// It was answered with questions that no retry has come back from.
    pub parked: bool,
    /// Method and params as they were sent, for retries.
    pub sent: (&'static str, String),
}

/// Questions that a modern host was given for a call.
#[derive(Clone, Debug, Hash)]
pub struct Round {
    pub of: Mark,
    /// The id of the request that they answered.
    pub id: String,
    pub state: State,
    /// Key → the question; our own have none.
    pub keys: BTreeMap<String, Option<Mark>>,
    /// How often the host came back to it.
    pub retries: u8,
    /// A later one was given, or the call is over.
    pub old: bool,
}

/// A `requestState`: random, so it does not tell worlds apart.
#[derive(Clone, Debug)]
pub struct State(pub String);

impl Hash for State {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Open,
    Settled,
    Lost,
}

/// A question of a child to the host.
#[derive(Clone, Debug, Hash)]
pub struct Question {
    pub conn: Conn,
    pub id: String,
    /// It asks for roots, which are one answer to all who do.
    pub roots: bool,
    /// Our number of it at the host.
    pub our: Option<u64>,
    pub answered: bool,
    pub taken_back: bool,
}

/// What really occurred.
#[derive(Clone, Copy, Debug)]
pub struct Stats(pub [u64; Stats::NAMES.len()]);

impl Stats {
    pub const NAMES: [&'static str; 38] = [
        "calls",
        "answered",
        "lost",
        "unavailable",
        "refused",
        "cancels",
        "unsent cancels",
        "late",
        "executed",
        "crashes",
        "exit 0",
        "closed stdout",
        "spawns",
        "failed spawns",
        "restarts",
        "orders",
        "reloads",
        "list changes",
        "announced",
        "questions",
        "questions answered",
        "withdrawn",
        "progress",
        "batches",
        "duplicates",
        "junk",
        "stale",
        "guard asked",
        "roots asked",
        "parked",
        "retries",
        "retries refused",
        "given up",
        "expired",
        "stops",
        "ends of input",
        "faults of ours",
        "steps",
    ];

    pub fn add(&mut self, name: &str) {
        let at = Self::NAMES.iter().position(|known| *known == name);
        self.0[at.unwrap_or_else(|| panic!("{name} is no statistic"))] += 1;
    }

    pub fn of(&self, name: &str) -> u64 {
        Self::NAMES.iter().zip(self.0).find(|(known, _)| **known == name).expect("it is a statistic").1
    }

    pub fn sum(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self([0; Self::NAMES.len()])
    }
}

/// The watch.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    pub requests: Vec<Request>,
    /// By the host's id.
    pub open: BTreeMap<String, Mark>,
    /// Members of arrays that were cancelled: the answer may stand in the array already, which is the protocol's race.
    pub limbo: BTreeMap<String, Mark>,
    pub outcomes: BTreeMap<OutcomeId, (Mark, Fate)>,
    pub questions: Vec<Question>,
    /// Questions at the host that it may still answer: our number → child's question, or none for the guard's.
    pub at_host: BTreeMap<u64, Option<Mark>>,
    /// The last answer to each list, and whether a change was announced since.
    pub given: BTreeMap<&'static str, (String, bool)>,
    /// Versions of each server's catalog that were told to the proxy at all.
    pub served: BTreeMap<String, BTreeSet<u32>>,
    /// Requests that each server has read, over all its lives.
    pub wires: BTreeSet<(usize, u64)>,
    pub initialized: bool,
    /// What a modern host was asked.
    pub rounds: Vec<Round>,
    /// There was a fault of ours.
    pub faulty: bool,
    pub stats: Stats,
}

impl Hash for Watch {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.requests.hash(to);
        self.open.hash(to);
        self.questions.hash(to);
        self.at_host.hash(to);
        self.rounds.hash(to);
        self.given.hash(to);
        let mut fates: Vec<_> = self.outcomes.values().collect();
        fates.sort_by_key(|(mark, fate)| (*mark, *fate as u8));
        fates.hash(to);
    }
}

/// What is in a line for the host.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Requests that it answers.
    pub marks: Vec<Mark>,
    /// A question: our number.
    pub question: Option<u64>,
    /// Kinds whose change it announces.
    pub changed: Option<&'static str>,
}

/// The mark at that place of a message.
pub fn mark_at(value: &Value, pointer: &str) -> Option<Mark> {
    value.pointer(pointer).and_then(Value::as_u64).and_then(|mark| Mark::try_from(mark).ok())
}

fn token(value: &Value) -> String {
    value.to_string()
}

impl Watch {
    /// The host sends a request.
    pub fn asks(&mut self, what: What, id: &str, progress: Option<String>) -> Mark {
        let mark = self.requests.len();
        let request = Request {
            what,
            id: id.to_owned(),
            token: progress,
            array: false,
            cancelled: false,
            answers: 0,
            told: None,
            delivered: false,
            started: None,
            executed: 0,
            never: false,
            parked: false,
            sent: ("", String::new()),
        };
        if self.open.contains_key(id) {
            self.stats.add("duplicates");
            self.requests.push(Request { never: true, cancelled: true, ..request });
        } else {
            self.open.insert(id.to_owned(), mark);
            self.requests.push(request);
        }
        mark
    }

    /// The request that began the call which that request belongs to.
    pub fn call_of(&self, mark: Mark) -> Mark {
        match self.requests[mark].what {
            What::Retry { of } => of,
            _ => mark,
        }
    }

    /// The host cancelled a request.
    pub fn cancels(&mut self, id: &str) {
        let Some(mark) = self.open.get(id).copied() else {
            // It may cross questions that we gave for it: then the call is given up.
            for round in self.rounds.iter_mut().filter(|round| round.id == id && !round.old) {
                round.old = true;
                self.stats.add("given up");
            }
            return;
        };
        let request = &mut self.requests[mark];
        // The handshake can't be cancelled, and what we answer ourselves need not be.
        if matches!(request.what, What::Initialize | What::Own) {
            return;
        }
        self.open.remove(id);
        request.cancelled = true;
        if request.array {
            self.limbo.insert(id.to_owned(), mark);
        }
        self.stats.add("cancels");
        let of = self.call_of(mark);
        self.end_rounds(of);
        let request = &mut self.requests[of];
        if request.started.is_none() {
            request.never = true;
            self.stats.add("unsent cancels");
        }
    }

    /// A call is over, or asks anew: what was given for it before is void.
    fn end_rounds(&mut self, of: Mark) {
        self.rounds.iter_mut().filter(|round| round.of == of).for_each(|round| round.old = true);
    }

    /// The first byte of a request was accepted by a child's pipe.
    pub fn started(&mut self, conn: Conn, mark: Mark) {
        let request = &mut self.requests[mark];
        assert!(request.started.is_none(), "P4: request {mark} was sent twice: {request:?}");
        assert!(!request.never, "P4: request {mark} was sent after it was said not to be: {request:?}");
        request.started = Some(conn);
        if matches!(request.what, What::Call { recorded: true, .. }) {
            let open = self.outcomes.values().filter(|(of, fate)| *of == mark && *fate == Fate::Open).count();
            assert_eq!(open, 1, "request {mark} was sent without one intent: {request:?}");
        }
    }

    /// A child carries a call out.
    pub fn executes(&mut self, key: &str, mark: Mark) {
        let request = &mut self.requests[mark];
        request.executed += 1;
        assert_eq!(request.executed, 1, "P4: request {mark} ran twice");
        let What::Call { key: meant, .. } = &request.what else { panic!("a child got {request:?}") };
        assert_eq!(meant, key, "P2: request {mark} went to another child");
        self.stats.add("executed");
    }

    /// An effect for the ledger.
    pub fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Intent(row) => self.intent(row),
            Effect::Settle(id) => {
                let (mark, fate) = *self.outcomes.get(id).expect("what is settled was intended");
                assert_eq!(fate, Fate::Open, "the outcome of request {mark} ends twice");
                let request = &self.requests[mark];
                assert!(
                    request.delivered || request.parked || request.started.is_none(),
                    "settled before its answer was accepted: {request:?}"
                );
                self.outcomes.insert(*id, (mark, Fate::Settled));
            }
            Effect::Lost(row) => {
                let (mark, fate) = *self.outcomes.get(&row.id).expect("what is lost was intended");
                assert_eq!(fate, Fate::Open, "the outcome of request {mark} ends twice");
                assert!(self.requests[mark].started.is_some(), "lost without a byte sent: {:?}", self.requests[mark]);
                self.outcomes.insert(row.id, (mark, Fate::Lost));
            }
            Effect::Late(id, _) => {
                let fate = self.outcomes.get(id).map(|(_, fate)| *fate);
                assert_eq!(fate, Some(Fate::Lost), "a late answer to what is not lost");
                self.stats.add("late");
            }
            _ => {}
        }
    }

    fn intent(&mut self, noted: &Noted) {
        let mark = *self.open.get(noted.host_id.0.raw()).expect("an intent is of an open request");
        let mark = self.call_of(mark);
        let request = &self.requests[mark];
        assert!(matches!(request.what, What::Call { recorded: true, .. }), "an intent of {request:?}");
        assert!(self.outcomes.insert(noted.id, (mark, Fate::Open)).is_none(), "an outcome's id came twice");
    }

    /// A line is on its way to the host.
    pub fn tells_host(&mut self, line: &str) -> Heard {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("P9: {error}: {line}"));
        let mut heard = Heard::default();
        match value {
            Value::Array(items) => {
                self.stats.add("batches");
                assert!(!items.is_empty(), "an empty array");
                for item in &items {
                    self.tells(item, line, &mut heard);
                }
            }
            value => self.tells(&value, line, &mut heard),
        }
        heard
    }

    fn tells(&mut self, value: &Value, line: &str, heard: &mut Heard) {
        assert_eq!(value["jsonrpc"], "2.0", "{line}");
        match (value.get("method").and_then(Value::as_str), value.get("id")) {
            (Some(method), Some(id)) => self.asks_host(method, id, value, heard),
            (Some(method), None) => self.notifies(method, &value["params"], line, heard),
            (None, Some(id)) if !id.is_null() => {
                let (mark, last) = self.answers(&token(id), value, line);
                heard.marks.extend(last.then_some(self.call_of(mark)));
                heard.marks.push(mark);
            }
            (None, _) => assert!(value.get("error").is_some(), "a response without an id: {line}"),
        }
    }

    /// Which request that answers, and whether its call has its answer now.
    fn answers(&mut self, id: &str, value: &Value, line: &str) -> (Mark, bool) {
        let mark = self.open.remove(id).or_else(|| self.limbo.remove(id));
        let mark = mark.unwrap_or_else(|| panic!("P1: nobody waits for this answer: {line}"));
        let of = self.call_of(mark);
        let started = self.requests[of].started;
        let is_retry = of != mark;
        let request = &mut self.requests[mark];
        request.answers += 1;
        assert_eq!(request.answers, 1, "P1: two answers: {line}");
        let reason = value.pointer("/error/data/reason").and_then(Value::as_str).unwrap_or_default();
        request.told = Some((value["error"]["code"].as_i64().unwrap_or(0), reason.to_owned()));
        match (value.get("result"), value.get("error")) {
            (Some(result), None) if result["resultType"] == "input_required" => {
                self.given_questions(of, id, result, line);
                return (mark, false);
            }
            (Some(result), None) => {
                assert!(result.is_object(), "P6: {line}");
                self.result(of, result, line);
            }
            (None, Some(error)) => {
                let reported = error.pointer("/data/mark").and_then(Value::as_str);
                match error["code"].as_i64() {
                    _ if reported.is_some() => self.result(of, error, line),
                    Some(-31010) => {
                        // With a fault of ours in between it may not be known any more.
                        assert!(started.is_some() || self.faulty, "lost, though nothing was sent: {line}");
                        self.stats.add("lost");
                        self.outcome_told(of, error, line);
                    }
                    // A retry that is refused changes nothing of its call, but where the call was given up.
                    Some(code) if is_retry && started.is_some() => {
                        let reason = error["data"]["reason"].as_str().unwrap_or_default();
                        let known = match code {
                            -32602 | -31011 => true,
                            -32603 => self.faulty,
                            -31012 => reason == "input_expired",
                            _ => false,
                        };
                        assert!(known, "a retry of a call that was sent: {line}");
                        self.stats.add(if code == -31012 { "expired" } else { "retries refused" });
                        return (mark, code == -31012);
                    }
                    // A word about the state alone: the call was never begun, and may be by another retry.
                    Some(-32602 | -31011) if is_retry => {
                        self.stats.add("retries refused");
                        return (mark, false);
                    }
                    Some(code) => {
                        assert!(started.is_none(), "not sent ({code}), though it was: {line}");
                        self.requests[of].never = true;
                        match code {
                            -31011 => self.stats.add("unavailable"),
                            -31012 => self.stats.add("refused"),
                            _ => {}
                        }
                    }
                    None => panic!("an error without a code: {line}"),
                }
            }
            _ => panic!("neither or both: {line}"),
        }
        self.end_rounds(of);
        (mark, true)
    }

    /// A modern host's request was answered with questions.
    fn given_questions(&mut self, of: Mark, id: &str, result: &Value, line: &str) {
        let Some(state) = result["requestState"].as_str() else { panic!("no state: {line}") };
        let entries = result["inputRequests"].as_object().filter(|entries| !entries.is_empty());
        let entries = entries.unwrap_or_else(|| panic!("no questions: {line}"));
        let mut keys = BTreeMap::new();
        for (key, entry) in entries {
            let mark = mark_at(entry, "/params/mark");
            match mark {
                Some(mark) => {
                    let question = &mut self.questions[mark];
                    assert!(!question.answered, "asked again, though answered: {line}");
                    assert_eq!(
                        Some(question.conn),
                        self.requests[of].started,
                        "P2: a question of another life: {line}"
                    );
                    self.stats.add("questions");
                }
                None => {
                    assert!(key.starts_with("mcp-proxy."), "nobody asked: {line}");
                    assert!(self.requests[of].started.is_none(), "our own question for what runs: {line}");
                    self.stats.add(if key == "mcp-proxy.repeat" { "guard asked" } else { "roots asked" });
                }
            }
            keys.insert(key.clone(), mark);
        }
        self.end_rounds(of);
        self.requests[of].parked = true;
        self.stats.add("parked");
        let (id, state) = (id.to_owned(), State(state.to_owned()));
        self.rounds.push(Round { of, id, state, keys, retries: 0, old: false });
    }

    fn outcome_told(&self, mark: Mark, error: &Value, line: &str) {
        let told = error.pointer("/data/outcomeId").and_then(Value::as_str);
        if told.is_none() && self.faulty {
            // The call itself was lost with the fault.
        } else if matches!(self.requests[mark].what, What::Call { recorded: true, .. }) {
            let own = self.outcomes.iter().any(|(id, (of, _))| *of == mark && Some(&*id.to_string()) == told);
            assert!(own, "not the outcome of this call: {line}");
        } else {
            assert_eq!(told, None, "{line}");
        }
    }

    fn result(&mut self, mark: Mark, result: &Value, line: &str) {
        let request = &self.requests[mark];
        match &request.what {
            What::Call { key, .. } => {
                assert!(line.contains(&format!("{key}#{mark}\"")), "P2: the answer of another call: {line}");
                assert_eq!(request.executed, 1, "an answer to what never ran: {line}");
                self.stats.add("answered");
            }
            What::List(array) => {
                let array = *array;
                self.list(array, result, line);
                self.given.insert(array, (result[array].to_string(), false));
            }
            What::Retry { .. } => unreachable!("it is looked at as its call"),
            What::Initialize => assert!(result.get("protocolVersion").is_some(), "P2: {line}"),
            What::Own => assert!(result.get("protocolVersion").is_none(), "P2: {line}"),
        }
    }

    /// P10: of each server, all entries of one version or none.
    fn list(&self, array: &str, result: &Value, line: &str) {
        let items = result[array].as_array().unwrap_or_else(|| panic!("P2: no list: {line}"));
        let key = if array == "resources" { "uri" } else { "name" };
        let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for item in items {
            let name = item[key].as_str().unwrap_or_default();
            let cut = if array == "resources" { name.split_once("+mem:") } else { name.split_once("__") };
            let Some((server, own)) = cut else { continue };
            if own.starts_with(['v', 'w']) {
                assert!(seen.entry(server.to_owned()).or_default().insert(own.to_owned()), "twice: {line}");
            }
        }
        for (server, names) in seen {
            let version: u32 = names.first().and_then(|name| name[1..].parse().ok()).expect("versions are numbers");
            let whole = BTreeSet::from([format!("v{version}"), format!("w{version}")]);
            assert_eq!(names, whole, "P10: a list in pieces: {line}");
            let served = self.served.get(&server).is_some_and(|served| served.contains(&version));
            assert!(served, "P10: nobody listed this: {line}");
        }
    }

    fn asks_host(&mut self, method: &str, id: &Value, value: &Value, heard: &mut Heard) {
        let our = id.as_u64().expect("our numbers are integers");
        assert!(self.initialized, "a request before initialized: {value}");
        assert!(!self.at_host.contains_key(&our), "a number twice: {value}");
        let mark = mark_at(value, "/params/mark");
        if let Some(mark) = mark {
            let question = &mut self.questions[mark];
            assert!(question.our.is_none(), "asked twice: {value}");
            question.our = Some(our);
            self.stats.add("questions");
        } else {
            assert_eq!(method, "elicitation/create", "nobody asked: {value}");
            self.stats.add("guard asked");
        }
        self.at_host.insert(our, mark);
        heard.question = Some(our);
    }

    fn notifies(&mut self, method: &str, params: &Value, line: &str, heard: &mut Heard) {
        match method {
            "notifications/progress" => {
                let token = token(&params["progressToken"]);
                let open = self.open.values().any(|mark| self.requests[*mark].token.as_deref() == Some(&*token));
                assert!(open, "progress for nothing that is under way: {line}");
                self.stats.add("progress");
            }
            "notifications/cancelled" => {
                let our = params["requestId"].as_u64().expect("our numbers are integers");
                let known = self.at_host.remove(&our);
                assert!(known.is_some(), "withdrawn, but not asked or answered: {line}");
                self.stats.add("withdrawn");
            }
            "notifications/tools/list_changed" => heard.changed = Some("tools"),
            "notifications/prompts/list_changed" => heard.changed = Some("prompts"),
            "notifications/resources/list_changed" => heard.changed = Some("resources"),
            "notifications/message" => {}
            _ => panic!("an odd notification: {line}"),
        }
    }

    /// A child asks the host.
    pub fn child_asks(&mut self, conn: Conn, id: String, roots: bool) -> Mark {
        self.questions.push(Question { conn, id, roots, our: None, answered: false, taken_back: false });
        self.questions.len() - 1
    }

    /// A response came to a child.
    pub fn answers_child(&mut self, conn: Conn, value: &Value) {
        let id = token(&value["id"]);
        let open = |q: &Question| q.conn == conn && q.id == id && !q.answered;
        let Some(at) = self.questions.iter().rposition(open) else {
            panic!("an answer that the child did not ask for: {value}")
        };
        let question = &mut self.questions[at];
        // A word that was under way when the child took its question back is the protocol's own race.
        question.answered = true;
        self.stats.add("questions answered");
        if let Some(asked) = mark_at(value, "/result/question") {
            assert_eq!(asked, at, "P2: the answer to another question: {value}");
        }
        if let Some(result) = value.get("result").filter(|result| result.get("our").is_some()) {
            assert_eq!(result["our"].as_u64(), question.our, "P2: the answer to another question: {value}");
        }
    }
}
