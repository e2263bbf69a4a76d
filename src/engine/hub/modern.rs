//! The host's modern requests, and what crosses between the eras with a call (`PROTOCOL.md` 2.1, 4.2, 5.2, 5.11).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Hub;
use super::from_host::Request;
use crate::config::Config;
use crate::engine::child::{Child, ServerId, State};
use crate::engine::era::{self, Era, Hints, MODERN, REQUEST_KEYS, Sender};
use crate::engine::facts;
use crate::engine::link::{About, Answers, Call, Purpose};
use crate::engine::listing::Kind;
use crate::engine::outcome::{OutcomeId, UnixMs};
use crate::engine::seal::{self, State as Sealed};
use crate::engine::session::Place;
use crate::engine::task::EXTENSION;
use crate::wire::code::{self, RpcError};
use crate::wire::id::HostId;
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::{LOG_LEVELS, Method, Revision};
use crate::wire::params::text_at;
use crate::wire::splice::Edit;

/// How long a modern child's own state may travel.
const PASS_FOR: u64 = 24 * 3600 * 1000;
/// How long a person may think about a repeat.
const OWN_FOR: u64 = 15 * 60 * 1000;
/// The key of our own question; children's keys can't begin like it.
const OWN_KEY: &str = "mcp-proxy.repeat";
/// Questions of our own that may be open; of more the oldest are void.
const OWN_MAX: usize = 1024;
/// Why a state is refused that was good once.
pub(super) const USED: &str = "it was used already, or has expired";
/// How long a legacy child goes on logging what nobody asks for any more.
const LEVEL_KEPT: Duration = Duration::from_secs(60);
/// The longest time that a list may be kept, in milliseconds.
const LONGEST: u64 = 3_600_000;

impl Hub {
    /// Whether a request that is under way is modern.
    pub(super) fn is_modern(&self, id: &HostId) -> bool {
        self.session.in_flight.get(id).is_some_and(|flight| flight.modern.is_some())
    }

    /// Who we are, on modern results.
    pub(super) fn server_info(&self) -> &str {
        &self.server_info
    }

    /// A request that names its revision.
    pub(super) fn modern_request(&mut self, now: Instant, method: Option<Method>, token: &[u8], request: Request) {
        let meta = request.params.meta.clone().unwrap_or_default();
        let same = self.session.sender_text == request.frame[meta.clone()];
        let last = self.session.sender.as_ref().filter(|last| same || last.says(&request.frame, &meta));
        let sender = match last {
            Some(last) => Arc::clone(last),
            None => match era::sender(&request.frame, &meta) {
                Ok(sender) => Arc::new(sender),
                Err(error) => return self.answer_error(&request.id, &error),
            },
        };
        if let Some(flight) = self.session.in_flight.get_mut(&request.id) {
            flight.modern = Some(Arc::clone(&sender));
        }
        if method != Some(Method::Discover) {
            if !same {
                self.session.sender_text.clear();
                self.session.sender_text.extend_from_slice(&request.frame[meta]);
            }
            self.modern_spoke(now, &sender);
        }
        match method {
            Some(Method::Discover) => self.discovered(&request.id),
            Some(Method::Listen) => self.listen(now, request),
            Some(Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead) if self.is_retry(&request) => {
                self.retry(now, method.unwrap_or(Method::ToolsCall), request);
            }
            Some(
                Method::ToolsList
                | Method::PromptsList
                | Method::ResourcesList
                | Method::TemplatesList
                | Method::ToolsCall
                | Method::PromptsGet
                | Method::ResourcesRead
                | Method::Complete,
            ) => self.dispatch(now, method, token, request),
            Some(method @ (Method::TasksGet | Method::TasksUpdate | Method::TasksCancel)) => {
                if sender.capabilities.tasks_extension {
                    self.task_request(now, method, request);
                } else {
                    self.answer_error(&request.id, &needs_tasks(method.as_str()));
                }
            }
            _ => {
                let name = String::from_utf8_lossy(token).into_owned();
                let error = RpcError::new(
                    code::METHOD_NOT_FOUND,
                    format!("The method {name} is not part of {}.", MODERN.as_str()),
                )
                .with("detail", name);
                self.answer_error(&request.id, &error);
            }
        }
    }

    /// The first modern request that is no probe opens what a legacy host opens with `initialize`.
    fn modern_spoke(&mut self, now: Instant, sender: &Arc<Sender>) {
        let first = self.session.sender.is_none();
        self.session.sender = Some(Arc::clone(sender));
        if !first || self.session.is_opened() {
            return;
        }
        tracing::info!(host = %sender.client.name, version = %sender.client.version, protocol = MODERN.as_str(), "the host spoke");
        self.opened(now);
    }

    fn discovered(&mut self, id: &HostId) {
        let versions: Vec<&str> = std::iter::once(MODERN).chain(Revision::LEGACY).map(Revision::as_str).collect();
        let mut result = json!({
            "supportedVersions": versions,
            "capabilities": facts::declared(self.present().map(Child::capabilities), MODERN),
        });
        let instructions = self.instructions();
        if !instructions.is_empty() {
            result["instructions"] = instructions.into();
        }
        self.answer_with(id, &result.to_string(), Hints::Private(2000));
    }

    /// How long a modern host may keep a list: what all its parts allow, and not long while some are still coming up.
    pub(super) fn list_hints(&self, now: Instant, kind: Kind) -> Hints {
        let (mut least, mut public, mut any) = (LONGEST, true, false);
        for child in self.present() {
            let has = child.capabilities();
            let (there, tells) = match kind {
                Kind::Tools => (has.tools, has.tools_changed),
                Kind::Prompts => (has.prompts, has.prompts_changed),
                Kind::Resources | Kind::Templates => (has.resources, has.resources_changed),
            };
            let ready = matches!(child.state, State::Ready { .. });
            if !there && ready {
                continue;
            }
            any = true;
            let modern = child.link.as_ref().is_some_and(|link| link.era == Era::Modern);
            let (ms, open) = match (ready, modern, child.kept[kind as usize]) {
                (false, ..) => (2000, false),
                (true, true, Some(kept)) => (kept.left(now), kept.public),
                (true, true, None) => (0, false),
                (true, false, _) => (if tells { 60_000 } else { 0 }, false),
            };
            least = least.min(ms);
            public &= open;
        }
        match (any, public) {
            (false, _) => Hints::Private(60_000),
            (true, true) => Hints::Public(least),
            (true, false) => Hints::Private(least),
        }
    }

    /// What of a call is written anew for a child, beside id and names, when a modern side is involved.
    pub(super) fn cross(&self, server: ServerId, child: Era, call: &Call, edits: &mut Vec<Edit>) {
        let frame = &call.frame;
        let Some(params) = super::calls::params_of(frame) else { return };
        let meta = text::get(frame, params.clone(), "_meta").filter(|at| text::is_object(frame, at));
        if child == Era::Legacy {
            let only_as_task = matches!(&call.about, About::Tool(tool) if tool.only_as_task);
            let task = only_as_task && self.child(server).capabilities().tasks_call;
            let gone = ["inputResponses", "requestState", "task"];
            meta::edit_object(frame, &params, &gone, if task { r#""task":{}"# } else { "" }, edits);
            if let Some(meta) = meta {
                meta::edit_object(frame, &meta, &REQUEST_KEYS, "", edits);
            }
            return;
        }
        let members = self.members_for(call);
        let mut inserted = Vec::new();
        match &meta {
            Some(meta) => meta::edit_object(frame, meta, &REQUEST_KEYS, &members, edits),
            None => inserted.push(format!(r#""_meta":{{{members}}}"#)),
        }
        if matches!(call.about, About::Task(_)) {
            // The answers to a task's questions stand in a request of their own.
            return meta::edit_object(frame, &params, &[], &inserted.join(","), edits);
        }
        let mut gone = vec!["requestState", "task"];
        if let Some(answers) = &call.answers {
            if let Some(responses) = &answers.responses {
                gone.push("inputResponses");
                inserted.push(format!(r#""inputResponses":{responses}"#));
            }
            inserted.extend(answers.state.as_ref().map(|state| format!(r#""requestState":{state}"#)));
        } else {
            gone.push("inputResponses");
        }
        meta::edit_object(frame, &params, &gone, &inserted.join(","), edits);
    }

    fn members_for<'a>(&'a self, call: &'a Call) -> Cow<'a, str> {
        match &call.modern {
            Some(sender) => Cow::Borrowed(sender.members.as_str()),
            None => {
                let asks =
                    matches!(&call.about, About::Tool(tool) if tool.task) || matches!(call.about, About::Task(_));
                let capabilities = self.session_capabilities(asks || call.tasks);
                let level = self
                    .session
                    .log_level
                    .as_deref()
                    .and_then(|level| LOG_LEVELS.iter().position(|known| *known == level));
                Cow::Owned(era::request_members(&capabilities, &self.session.client, level))
            }
        }
    }

    /// What a legacy host can do, as a modern child reads it; `tasks`: and that it gets to know of tasks.
    fn session_capabilities(&self, tasks: bool) -> String {
        let mut capabilities = self.session.capabilities.for_child(Some(self.session.revision), MODERN);
        if tasks && let Some(all) = capabilities.as_object_mut() {
            let extensions = all.entry("extensions").or_insert_with(|| json!({}));
            extensions[EXTENSION] = json!({});
        }
        capabilities.to_string()
    }

    /// `_meta` of our own requests to a modern child: nobody is there to be asked, but by a task.
    pub(super) fn own_members(&self, about_tasks: bool) -> String {
        let client = self.session.sender.as_ref().map_or(&self.session.client, |sender| &sender.client);
        let capabilities = if about_tasks { self.session_capabilities(true) } else { "{}".to_owned() };
        era::request_members(&capabilities, client, None)
    }

    /// A legacy child tells log messages from a level on: the most verbose that a request to it asks for.
    pub(super) fn raise_level(&mut self, now: Instant, server: ServerId, call: &Call) {
        let Some(level) = call.modern.as_ref().and_then(|sender| sender.level) else { return };
        let child = self.child_mut(server);
        if !child.capabilities().logging {
            return;
        }
        child.level_until = Some(now + LEVEL_KEPT);
        if child.level.is_none_or(|set| set > level) {
            self.set_child_level(now, server, level);
        }
    }

    /// Nobody may want any more what a legacy child was told to log; it is told so late, for the next request may.
    pub(super) fn lower_level(&mut self, now: Instant, server: ServerId) {
        let child = self.child(server);
        let (Some(set), Some(_)) = (child.level, child.level_until.filter(|at| *at <= now)) else { return };
        let wanted =
            child.link.iter().flat_map(|link| link.pending.values()).filter_map(|pending| match &pending.purpose {
                Purpose::Call(call) => call.modern.as_ref()?.level,
                _ => None,
            });
        let session = self.session.log_level.as_deref();
        let session = session.and_then(|level| LOG_LEVELS.iter().position(|known| *known == level));
        let least = LOG_LEVELS.len() - 1;
        let wanted = wanted.chain(session).min().unwrap_or(least);
        self.child_mut(server).level_until = (wanted < least).then_some(now + LEVEL_KEPT);
        if wanted > set {
            self.set_child_level(now, server, wanted);
        }
    }

    fn set_child_level(&mut self, now: Instant, server: ServerId, level: usize) {
        let child = self.child_mut(server);
        let until = now + child.config.list_timeout;
        child.level = Some(level);
        let Some((conn, Era::Legacy)) = child.ready_link().map(|link| (link.conn, link.era)) else { return };
        let params = json!({ "level": LOG_LEVELS[level] }).to_string();
        self.ask_child(conn, Method::SetLevel, Some(&params), Purpose::Restore, Some(until));
    }

    // Retries.

    fn is_retry(&self, request: &Request) -> bool {
        let whole = request.params.whole.clone().unwrap_or_default();
        let frame = &request.frame;
        let is_one = |member: &text::Member| {
            ["requestState", "inputResponses"].iter().any(|name| text::key_is(frame, &member.key, name))
        };
        text::members(frame, whole).any(|member| is_one(&member))
    }

    /// What a state is bound to: the same call, by method, name or URI, and arguments.
    pub(super) fn call_digest(&mut self, method: Method, request: &Request) -> String {
        let name = text_at(&request.frame, request.params.name.as_ref().or(request.params.uri.as_ref()));
        let arguments = request.params.arguments.clone().map(|at| request.frame.slice(at));
        let digest = self.digester.digest(method.as_str(), name.as_deref().unwrap_or_default(), arguments.as_deref());
        String::from_utf8_lossy(&digest.text()).into_owned()
    }

    /// Seals a state for the host to carry.
    pub(super) fn seal(&mut self, state: &Sealed) -> String {
        let bits = (self.entropy.bits(), self.entropy.bits());
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&bits.0.to_le_bytes());
        nonce[8..].copy_from_slice(&bits.1.to_le_bytes()[..4]);
        self.sealer.seal(state, nonce)
    }

    /// A request that comes back with answers.
    fn retry(&mut self, now: Instant, method: Method, mut request: Request) {
        let whole = request.params.whole.clone().unwrap_or_default();
        let state_at = text::get(&request.frame, whole.clone(), "requestState");
        let Some(state_at) = state_at else {
            // A modern child that gave no state takes the answers alone.
            request.answers = Some(Box::default());
            return self.dispatch(now, Some(method), b"", request);
        };
        let digest = self.call_digest(method, &request);
        let opened = text::string(&request.frame, state_at).and_then(|state| self.sealer.open(&state));
        let unix = self.unix(now).0;
        let Some(sealed) = opened.filter(|state| state.digest == digest && state.expires >= unix) else {
            return self.answer_error(
                &request.id,
                &bad_state("it is not one that was given for this call, or it has expired"),
            );
        };
        match sealed.kind {
            seal::Kind::Parked { id, round, outcome } => self.resume(now, request, id, round, &sealed.server, outcome),
            seal::Kind::Pass { state } => {
                if !self.leads_to(method, &request, &sealed.server) {
                    return self.answer_error(&request.id, &bad_state("it belongs to another server"));
                }
                request.answers =
                    Some(Box::new(Answers { state: state.map(|state| text::quoted(&state)), ..Answers::default() }));
                self.dispatch(now, Some(method), b"", request);
            }
            seal::Kind::Roots { id } => self.roots_answered(now, method, request, &sealed.server, id),
            seal::Kind::Urls { id, ids } => self.urls_answered(now, method, request, &sealed.server, id, ids),
            seal::Kind::Own { id, of } => self.repeat_answered(now, request, id, &of),
            seal::Kind::Task { .. } => self.answer_error(&request.id, &bad_state("it is the id of a task")),
        }
    }

    /// Notes a question of our own; one answer to it counts, for on that the call goes out.
    pub(super) fn own_question(&mut self, now: Instant, expires: u64) -> u64 {
        let unix = self.unix(now);
        while self.own_questions.len() >= OWN_MAX || self.own_questions.front().is_some_and(|(_, until)| *until < unix)
        {
            self.own_questions.pop_front();
        }
        let id = self.next_own_question;
        self.next_own_question = id.wrapping_add(1);
        self.own_questions.push_back((id, UnixMs(expires)));
        id
    }

    /// Whether this request is the one answer to a question of our own. Of an earlier run of ours nobody knows whether it
    /// was answered: then, as for a second answer, the request is refused here.
    pub(super) fn takes_answer(&mut self, question: u64, by: &HostId) -> bool {
        let Some(flight) = self.session.in_flight.get_mut(by) else { return false };
        if flight.answers == Some(question) {
            // It waited for its server to tell its names.
            return true;
        }
        let Some(at) = self.own_questions.iter().position(|(id, _)| *id == question) else {
            self.answer_error(by, &bad_state(USED));
            return false;
        };
        self.own_questions.remove(at);
        flight.answers = Some(question);
        true
    }

    fn leads_to(&self, method: Method, request: &Request, server: &str) -> bool {
        let name = text_at(&request.frame, request.params.name.as_ref()).unwrap_or_default();
        let position = match method {
            Method::ToolsCall => self.catalog.tool(&name).map(|(position, _)| position),
            Method::PromptsGet => self.catalog.prompt(&name).map(|(position, _)| position),
            _ => return true,
        };
        position.and_then(|position| self.order.get(position)).is_some_and(|id| self.child(*id).config.key == server)
    }

    /// A modern child's questions for a modern host: passed on, with its state sealed to it.
    pub(super) fn pass_questions(
        &mut self,
        now: Instant,
        server: ServerId,
        call: &Call,
        line: &[u8],
        result: &std::ops::Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        let state = text::get(line, result.clone(), "requestState");
        let own = state.clone().and_then(|at| text::string(line, at)).map(std::borrow::Cow::into_owned);
        let Ok(params) = crate::wire::params::Params::read(&call.frame, super::calls::params_of(&call.frame)) else {
            return;
        };
        let request = Request::new(call.host_id.clone(), call.frame.clone(), call.id_at.clone(), params);
        let digest = self.call_digest(call.method, &request);
        let sealed = Sealed {
            kind: seal::Kind::Pass { state: own },
            server: self.child(server).config.key.clone(),
            digest,
            expires: self.unix(now).0 + PASS_FOR,
        };
        let sealed = self.seal(&sealed);
        match state {
            Some(at) => edits.push(Edit::text(at, text::quoted(&sealed))),
            None => meta::edit_object(line, result, &[], &format!(r#""requestState":"{sealed}""#), edits),
        }
        self.label_questions(server, line, result, edits);
        era::sign(line, result, None, self.server_info(), edits);
    }

    /// Says in each elicitation among `inputRequests` whose question it is.
    pub(super) fn label_questions(
        &self,
        server: ServerId,
        line: &[u8],
        object: &std::ops::Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        for entry in text::get(line, object.clone(), "inputRequests").into_iter().flat_map(|at| text::members(line, at))
        {
            let method = text::get(line, entry.value.clone(), "method").and_then(|at| text::string(line, at));
            if method.as_deref() == Some("elicitation/create")
                && let Some(params) = text::get(line, entry.value, "params")
            {
                self.label(server, line, &params, edits);
            }
        }
    }

    /// Says in an elicitation's message whose question it is.
    pub(super) fn label(&self, server: ServerId, line: &[u8], params: &std::ops::Range<usize>, edits: &mut Vec<Edit>) {
        if let Some(at) = text::get(line, params.clone(), "message")
            && text::string(line, at.clone()).is_some()
        {
            let label = format!("[{}] ", self.child(server).config.key);
            edits.push(Edit::text(at.start + 1..at.start + 1, label));
        }
    }

    /// The repeat guard's question to a modern host: nothing was sent yet.
    pub(super) fn ask_modern_about_repeat(&mut self, server: ServerId, call: &Call, of: OutcomeId, question: &str) {
        let Ok(params) = crate::wire::params::Params::read(&call.frame, super::calls::params_of(&call.frame)) else {
            return;
        };
        let request = Request::new(call.host_id.clone(), call.frame.clone(), call.id_at.clone(), params);
        let digest = self.call_digest(call.method, &request);
        let expires = self.unix(call.since).0 + OWN_FOR;
        let kind = seal::Kind::Own { id: self.own_question(call.since, expires), of: of.to_string() };
        let sealed = Sealed { kind, server: self.child(server).config.key.clone(), digest, expires };
        let sealed = self.seal(&sealed);
        let mut params = super::repeat::repeat_question(question);
        params["mode"] = "form".into();
        let info: Value = serde_json::from_str(self.server_info()).unwrap_or_default();
        let result = json!({
            "resultType": "input_required",
            "inputRequests": { OWN_KEY: { "method": "elicitation/create", "params": params } },
            "requestState": sealed,
            "_meta": { meta::SERVER: info },
        });
        self.answer_as_is(&call.host_id, &result.to_string());
    }

    /// A modern host answered the guard's question.
    fn repeat_answered(&mut self, now: Instant, mut request: Request, asked: u64, of: &str) {
        let whole = request.params.whole.clone().unwrap_or_default();
        let answer = text::path(&request.frame, whole, &["inputResponses", OWN_KEY]);
        if answer.as_ref().is_some_and(|at| !text::is_object(&request.frame, at)) {
            return self.answer_error(&request.id, &bad_responses());
        }
        let answer = super::repeat::repeat_answer(&request.frame, answer);
        let Ok(of) = of.parse::<OutcomeId>() else {
            return self.answer_error(&request.id, &bad_state("it names no outcome"));
        };
        if !self.takes_answer(asked, &request.id) {
            return;
        }
        if answer == crate::engine::outcome::Answer::Accepted {
            request.repeat_of = Some(of);
            self.effect(super::Effect::Repeated(of));
            return self.dispatch(now, Some(Method::ToolsCall), b"", request);
        }
        let name = text_at(&request.frame, request.params.name.as_ref()).unwrap_or_default().into_owned();
        let error = RpcError::new(code::REFUSED, "The call was not sent: the person did not allow it to run again.")
            .with("tool", name)
            .with("reason", "unknown_outcome")
            .with("outcomeId", of.to_string());
        self.place(&request.id, Place::Initialize);
        self.answer_error(&request.id, &error);
    }
}

/// -32602 for answers that are none; no state is used up by them.
pub(super) fn bad_responses() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "Each of inputResponses must be an object.").with("detail", "inputResponses")
}

/// -32602 for a state.
pub(super) fn bad_state(why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("The requestState can't be used: {why}. Call anew without it."))
        .with("detail", "requestState")
}

/// Who we are, as modern results tell it.
pub(super) fn server_info(config: &Config) -> String {
    let proxy = &config.proxy;
    let mut info = json!({ "name": proxy.name, "version": env!("CARGO_PKG_VERSION") });
    if !proxy.title.is_empty() {
        info["title"] = proxy.title.as_str().into();
    }
    info.to_string()
}

/// -32021 for what is of the extension of tasks, in a request that does not declare it.
pub(super) fn needs_tasks(what: &str) -> RpcError {
    let message = format!("{what} needs the extension {EXTENSION} among the request's capabilities.");
    RpcError::new(code::MISSING_CAPABILITY, message)
        .with("requiredCapabilities", json!({ "extensions": { EXTENSION: {} } }))
}
