//! What the host sends: classification, and where each method is handled (`PROTOCOL.md` 1.4, 2.1, 2.4).

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Effect, Hub, Stopping};
use crate::engine::era;
use crate::engine::link::Answers;
use crate::engine::listing::Kind;
use crate::engine::outcome::OutcomeId;
use crate::engine::session::{Batch, Phase};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, PeerId};
use crate::wire::message::{self, Envelope, Kind as MessageKind, Line};
use crate::wire::method::{LOG_LEVELS, Method, Revision};
use crate::wire::params::{Params, text_at};
use crate::wire::skim::Skimmed;

/// Unparsable lines that are answered in one second: two peers must not bounce errors at each other.
const JUNK_ANSWERS: u32 = 10;

/// A request of the host as its handlers see it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: HostId,
    pub(super) frame: Bytes,
    pub(super) id_at: Range<usize>,
    pub(super) params: Params,
    /// What a retry brings along to a modern child.
    pub(super) answers: Option<Box<Answers>>,
    /// The row that it repeats, by a person's word.
    pub(super) repeat_of: Option<OutcomeId>,
}

impl Request {
    pub(super) fn new(id: HostId, frame: Bytes, id_at: Range<usize>, params: Params) -> Self {
        Self { id, frame, id_at, params, answers: None, repeat_of: None }
    }
}

impl Hub {
    /// A line of the host.
    pub fn handle_host(&mut self, now: Instant, line: Bytes) {
        if self.stopping == Some(Stopping::Down) {
            return self.too_late(&line);
        }
        match message::read(&line) {
            Line::One(envelope) => self.host_message(now, line, &envelope, None),
            Line::Batch(items) if self.session.is_opened() && self.session.revision == Revision::V2025_03_26 => {
                self.host_batch(now, &line, &items);
            }
            Line::Batch(_) => self.bad_line(
                now,
                code::INVALID_REQUEST,
                "An array of messages is not part of this revision of the protocol. Send one message on a line.",
            ),
            Line::Other => self.bad_line(
                now,
                code::INVALID_REQUEST,
                "The line is JSON, but no message. Send one JSON-RPC object on a line.",
            ),
            Line::Junk => {
                self.bad_line(now, code::PARSE, "The line is not JSON in UTF-8. Send one JSON-RPC object on a line.");
            }
        }
    }

    /// A request that was in the pipe when the end began has its answer, too.
    fn too_late(&mut self, line: &Bytes) {
        let Line::One(envelope) = message::read(line) else { return };
        let MessageKind::Request(id) = envelope.kind(line) else { return };
        if !self.session.is_in_use(&HostId(id.clone())) {
            let error = RpcError::new(code::UNAVAILABLE, "The proxy is ending. The request was not sent.");
            self.say(&error.with("reason", "proxy_stopped").response(id.raw()));
        }
    }

    /// A line of the host that was over `max_message`.
    pub fn handle_host_too_long(&mut self, now: Instant, told: &Skimmed) {
        let limit = self.config.proxy.max_message;
        tracing::warn!(bytes = told.length, limit, "the host sent a line over max_message; it was skipped");
        let Some(id) = told.id.as_deref().and_then(PeerId::from_token).map(HostId) else {
            self.bad_line(now, code::INVALID_REQUEST, "The line is over the proxy's max_message and was skipped.");
            return;
        };
        if told.method.is_none() || self.session.is_in_use(&id) {
            return;
        }
        let error = RpcError::new(
            code::UNAVAILABLE,
            format!("The request has {} bytes, and the proxy passes at most {limit} (max_message). It was not sent. Send less at once.", told.length),
        )
        .with("reason", "request_too_large");
        self.say(&error.response(id.0.raw()));
    }

    /// The host closed its pipe: open calls may finish for a moment.
    pub fn handle_host_eof(&mut self, now: Instant) {
        if self.stopping.is_none() {
            tracing::info!("the host closed its pipe");
            self.stopping = Some(Stopping::Finishing(now + super::FINISH));
            self.finish_when_idle(now);
        }
    }

    fn bad_line(&mut self, now: Instant, code: i64, message: &str) {
        tracing::warn!(source = "host", "{message}");
        let (since, count) = self.junk;
        let fresh = since.is_none_or(|since| now.saturating_duration_since(since) >= Duration::from_secs(1));
        self.junk = if fresh { (Some(now), 1) } else { (since, count + 1) };
        if self.junk.1 <= JUNK_ANSWERS {
            let error = RpcError::new(code, message).with("detail", "the line was skipped");
            let text = error.response("null");
            // An id that could not be read is left out from 2025-11-25 on, and null before.
            let text = if self.session.revision >= Revision::V2025_11_25 {
                text.replacen(r#""id":null,"#, "", 1)
            } else {
                text
            };
            self.say(&text);
        }
    }

    fn host_batch(&mut self, now: Instant, line: &Bytes, items: &[Range<usize>]) {
        if items.is_empty() {
            self.bad_line(now, code::INVALID_REQUEST, "The array of messages is empty.");
            return;
        }
        let envelopes: Vec<(Bytes, Option<Envelope>)> = items
            .iter()
            .map(|item| {
                let element = line.slice(item.clone());
                let envelope = match message::read(&element) {
                    Line::One(envelope) => Some(envelope),
                    _ => None,
                };
                (element, envelope)
            })
            .collect();
        // An element that is no message gets its error in the array, too.
        let answered = |(text, envelope): &&(Bytes, Option<Envelope>)| match envelope {
            Some(envelope) => {
                matches!(envelope.kind(text), MessageKind::Request(_) | MessageKind::BadId | MessageKind::Neither)
            }
            None => true,
        };
        let number = self.session.next_batch;
        self.session.next_batch += 1;
        let open = envelopes.iter().filter(answered).count();
        self.session.batches.insert(number, Batch { open, ..Batch::default() });
        for (element, envelope) in envelopes {
            if let Some(envelope) = envelope {
                self.host_message(now, element, &envelope, Some(number));
            } else {
                let error = RpcError::new(code::INVALID_REQUEST, "An element of the array is no message.");
                self.gather(Some(number), Bytes::from(error.response("null")));
            }
        }
        if open == 0 {
            self.session.batches.remove(&number);
        }
    }

    fn host_message(&mut self, now: Instant, line: Bytes, envelope: &Envelope, batch: Option<u64>) {
        match envelope.kind(&line) {
            MessageKind::Request(id) => self.host_request(now, line, envelope, HostId(id), batch),
            MessageKind::Notification => self.host_notification(now, &line, envelope),
            MessageKind::Result(id) | MessageKind::Error(id) => self.host_response(now, &line, envelope, &id),
            MessageKind::Both(id) => self.host_answered_badly(now, &id),
            MessageKind::BadId | MessageKind::Neither => {
                let message =
                    "The message is no request, notification or response. An id must be a string or an integer.";
                if batch.is_some() {
                    self.gather(batch, Bytes::from(RpcError::new(code::INVALID_REQUEST, message).response("null")));
                } else {
                    self.bad_line(now, code::INVALID_REQUEST, message);
                }
            }
            MessageKind::ErrorWithoutId => {
                tracing::warn!(source = "host", "an error without an id; it can't be matched");
            }
        }
    }

    fn host_request(&mut self, now: Instant, frame: Bytes, envelope: &Envelope, id: HostId, batch: Option<u64>) {
        if !self.session.begin(&id, batch) {
            tracing::warn!(id = %id, "the host used the id of a request that is under way; the second one gets no answer");
            self.gather(batch, Bytes::new());
            return;
        }
        if !envelope.version {
            let error = RpcError::new(code::INVALID_REQUEST, "The member \"jsonrpc\" must be \"2.0\".");
            self.answer_error(&id, &error);
            return;
        }
        let token = envelope.method.clone().map(|at| frame.slice(at)).unwrap_or_default();
        let method = Method::from_token(&token);
        let Ok(params) = envelope.read_params(&frame) else {
            self.answer_error(&id, &RpcError::new(code::INVALID_PARAMS, "The member \"params\" must be an object."));
            return;
        };
        let id_at = envelope.id.clone().unwrap_or_default();
        if era::is_modern(&frame, params.meta.as_ref()) {
            return self.modern_request(now, method, &token, Request::new(id, frame, id_at, params));
        }
        if let Err(error) = self.may_come_now(method, batch) {
            self.answer_error(&id, &error);
            return;
        }
        if self.stopping.is_some()
            && method != Some(Method::Ping)
            && !self.session.is_opened()
            && method != Some(Method::Initialize)
        {
            return self.answer_error(
                &id,
                &RpcError::new(code::UNAVAILABLE, "The proxy is ending.").with("reason", "proxy_stopped"),
            );
        }
        self.dispatch(now, method, &token, Request::new(id, frame, id_at, params));
    }

    /// Before `initialize` there is only `initialize` and `ping`.
    fn may_come_now(&self, method: Option<Method>, batch: Option<u64>) -> Result<(), RpcError> {
        match method {
            Some(Method::Ping) => Ok(()),
            Some(Method::Discover | Method::Listen) if self.session.is_opened() => Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                "The method belongs to the modern era; in it, each request names its revision in _meta.",
            )
            .with("detail", "no protocolVersion in _meta")),
            Some(Method::Initialize) if batch.is_some() => {
                Err(RpcError::new(code::INVALID_REQUEST, "initialize must not be part of an array."))
            }
            Some(Method::Initialize) if self.session.is_opened() => {
                Err(RpcError::new(code::INVALID_REQUEST, "The session is already open: initialize comes once."))
            }
            Some(Method::Initialize) => Ok(()),
            _ if !self.session.is_opened() => Err(RpcError::new(
                code::INVALID_PARAMS,
                "Nothing was opened yet: send initialize first, or name the revision 2026-07-28 in _meta of each request (io.modelcontextprotocol/protocolVersion).",
            )
            .with("detail", "not initialized")),
            _ => Ok(()),
        }
    }

    pub(super) fn dispatch(&mut self, now: Instant, method: Option<Method>, token: &[u8], request: Request) {
        let Some(method) = method else {
            let name = String::from_utf8_lossy(token).into_owned();
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, format!("The method {name} is not known.")).with("detail", name);
            return self.answer_error(&request.id, &error);
        };
        match method {
            Method::Initialize => self.initialize(now, request),
            Method::Ping => self.answer(&request.id, "{}"),
            Method::ToolsList => self.list(now, Kind::Tools, &request),
            Method::PromptsList => self.list(now, Kind::Prompts, &request),
            Method::ResourcesList => self.list(now, Kind::Resources, &request),
            Method::TemplatesList => self.list(now, Kind::Templates, &request),
            Method::ToolsCall => self.call_tool(now, request),
            Method::PromptsGet => self.get_prompt(now, request),
            Method::ResourcesRead => self.read_resource(now, request),
            Method::Subscribe => self.subscribe(now, request),
            Method::Unsubscribe => self.unsubscribe(now, request),
            Method::Complete => self.complete(now, request),
            Method::SetLevel => self.set_level(now, &request),
            Method::TasksGet | Method::TasksResult | Method::TasksCancel => self.task_request(now, method, request),
            Method::TasksList => self.tasks_list(now, &request),
            _ => {
                let error = RpcError::new(
                    code::METHOD_NOT_FOUND,
                    format!("The method {} is not served here.", method.as_str()),
                )
                .with("detail", method.as_str());
                self.answer_error(&request.id, &error);
            }
        }
    }

    fn host_notification(&mut self, now: Instant, line: &Bytes, envelope: &Envelope) {
        let Some(method) = envelope.method.clone().and_then(|at| Method::from_token(&line[at])) else { return };
        let Ok(params) = envelope.read_params(line) else { return };
        match method {
            Method::Initialized => self.note_initialized(),
            Method::Cancelled => {
                if let Some(id) = params.request_id.and_then(|at| PeerId::from_token(&line[at])) {
                    self.host_cancelled(now, &HostId(id), line);
                }
            }
            Method::Progress => self.host_progress(line, &params),
            Method::RootsChanged => self.host_roots_changed(now),
            Method::TaskStatus => self.host_task_status(now, line, &params),
            _ => {}
        }
    }

    /// A host that sends everything at once says it before it has the answer to `initialize`.
    fn note_initialized(&mut self) {
        match &mut self.session.phase {
            Phase::Opening { initialized, .. } => *initialized = true,
            Phase::Open => self.host_initialized(),
            Phase::Unopened | Phase::Initialized => {}
        }
    }

    pub(super) fn host_initialized(&mut self) {
        self.session.phase = Phase::Initialized;
        for (_, text) in std::mem::take(&mut self.session.held) {
            self.out.push(super::HostTag::default(), &text);
        }
        self.announce_missed();
    }

    fn set_level(&mut self, now: Instant, request: &Request) {
        let level = text_at(&request.frame, request.params.level.as_ref());
        let Some(level) = level.filter(|level| LOG_LEVELS.contains(&&**level)) else {
            let error =
                RpcError::new(code::INVALID_PARAMS, format!("The level must be one of {}.", LOG_LEVELS.join(", ")))
                    .with("detail", "level");
            return self.answer_error(&request.id, &error);
        };
        self.session.log_level = Some(level.into_owned());
        for id in self.order.clone() {
            self.restore_level(now, id);
        }
        self.answer(&request.id, "{}");
    }

    /// Tells the pump, once, that the host is there.
    pub(super) fn host_spoke(&mut self) {
        self.effect(Effect::WatchParent);
    }
}
