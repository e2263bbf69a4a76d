//! What a child sends: direction first, then the id space (`PROTOCOL.md` 1.4, 6.9).

use std::time::Instant;

use bytes::Bytes;

use super::Hub;
use super::answer::Droppable;
use super::lost::Loss;
use crate::engine::child::{Conn, ServerId};
use crate::engine::convert;
use crate::engine::era::{self, Era, Hints};
use crate::engine::link::{About, Call, Link, Phase, Purpose};
use crate::engine::listing::Kind;
use crate::engine::outcome::Reason;
use crate::engine::recent::Outcome;
use crate::engine::rewrite::Rewriter;
use crate::wire::id::{ChildId, PeerId, WireId};
use crate::wire::json;
use crate::wire::message::{self, Envelope, Kind as MessageKind, Line};
use crate::wire::meta;
use crate::wire::method::{LOG_LEVELS, Method, Revision};
use crate::wire::params::{Params, text_at};
use crate::wire::skim::Skimmed;
use crate::wire::splice::Edit;

/// Noise is logged at the first line and then at each power of two, so that a flood is a few lines.
fn worth_a_line(count: u64) -> bool {
    count.is_power_of_two()
}

impl Hub {
    /// A line of a child. Lines of an older life are dropped.
    pub fn handle_child(&mut self, now: Instant, conn: Conn, line: Bytes) {
        let Some(link) = self.link_mut(conn) else { return };
        link.last_traffic = now;
        match message::read(&line) {
            Line::One(envelope) => self.child_message(now, conn, line, &envelope),
            Line::Batch(items) => self.child_batch(now, conn, &line, &items),
            Line::Junk | Line::Other => self.noise(conn.server, &line),
        }
    }

    /// A line of a child that was over `max_message`.
    pub fn handle_child_too_long(&mut self, now: Instant, conn: Conn, told: &Skimmed) {
        let limit = self.config.proxy.max_message;
        let key = self.child(conn.server).config.key.clone();
        tracing::warn!(server = %key, bytes = told.length, limit, "a line over max_message; it was skipped");
        self.child_mut(conn.server).record.faults += 1;
        let Some(id) = told.id.as_deref().and_then(PeerId::from_token) else { return };
        if told.method.is_some() {
            return self.answer_child_error(
                conn,
                &ChildId(id),
                crate::wire::code::INVALID_REQUEST,
                "the message is over the proxy's max_message",
            );
        }
        let what = format!("its answer has {} bytes, over the proxy's max_message of {limit}", told.length);
        self.broken_answer(now, conn, &id, Loss::new(Reason::ResponseTooLarge, what));
    }

    /// A line that is no message: counted, told with its source, survived. Nothing is written back.
    fn noise(&mut self, server: ServerId, line: &Bytes) {
        let child = self.child_mut(server);
        child.record.noise += 1;
        if worth_a_line(child.record.noise) {
            let shown: String = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
            tracing::warn!(server = %child.config.key, lines = child.record.noise, "stdout holds a line that is no message: {shown}");
        }
    }

    fn child_batch(&mut self, now: Instant, conn: Conn, line: &Bytes, items: &[std::ops::Range<usize>]) {
        let may = self
            .child(conn.server)
            .facts
            .as_ref()
            .is_some_and(|facts| facts.revision == crate::wire::method::Revision::V2025_03_26);
        if !may {
            return self.noise(conn.server, line);
        }
        for item in items {
            let element = line.slice(item.clone());
            match message::read(&element) {
                Line::One(envelope) => self.child_message(now, conn, element, &envelope),
                Line::Batch(_) | Line::Junk | Line::Other => self.noise(conn.server, &element),
            }
        }
    }

    fn child_message(&mut self, now: Instant, conn: Conn, line: Bytes, envelope: &Envelope) {
        match envelope.kind(&line) {
            MessageKind::Result(id) | MessageKind::Error(id) => {
                if let Some(wire) = self.wire_of(conn.server, &id) {
                    self.child_answered(now, conn, wire, &line, envelope);
                } else {
                    self.child_mut(conn.server).record.faults += 1;
                    tracing::warn!(server = %self.child(conn.server).config.key, id = id.raw(), "a response to nothing that was asked; it was dropped");
                }
            }
            MessageKind::Both(id) => {
                let loss = Loss::new(
                    Reason::InvalidResponse,
                    "its answer is no valid response: it needs exactly one of result and error",
                );
                self.broken_answer(now, conn, &id, loss);
            }
            MessageKind::Request(id) => self.child_request(now, conn, line, envelope, ChildId(id)),
            MessageKind::Notification => self.child_notification(now, conn, &line, envelope),
            MessageKind::ErrorWithoutId | MessageKind::BadId | MessageKind::Neither => self.noise(conn.server, &line),
        }
    }

    /// Our number that a child echoed. As a decimal string it is still ours, and a fault of the child.
    fn wire_of(&mut self, server: ServerId, id: &PeerId) -> Option<WireId> {
        if let Some(number) = id.number() {
            return Some(WireId(number));
        }
        let number = id.raw().trim_matches('"').parse().ok()?;
        self.child_mut(server).record.faults += 1;
        Some(WireId(number))
    }

    /// An answer came whose id can be told and that is none.
    fn broken_answer(&mut self, now: Instant, conn: Conn, id: &PeerId, loss: Loss) {
        let Some(wire) = self.wire_of(conn.server, id) else { return };
        let Some(link) = self.link_mut(conn) else { return };
        let Some(pending) = link.pending.remove(&wire) else { return };
        match pending.purpose {
            Purpose::Call(call) => {
                self.lose(now, conn, wire, &call, &loss);
                self.drained(now, conn.server);
            }
            other => self.own_failed(now, conn, wire, &other, None, &loss.what),
        }
    }

    fn child_answered(&mut self, now: Instant, conn: Conn, wire: WireId, line: &Bytes, envelope: &Envelope) {
        let Some(link) = self.link_mut(conn) else { return };
        let Some(pending) = link.pending.remove(&wire) else {
            return self.late(now, conn, wire, line, envelope);
        };
        match pending.purpose {
            Purpose::Call(call) => self.call_answered(now, conn, wire, call, line, envelope),
            other => self.own_answered(now, conn, wire, other, line, envelope),
        }
    }

    pub(super) fn call_answered(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: Box<Call>,
        line: &Bytes,
        envelope: &Envelope,
    ) {
        let server = conn.server;
        let Some(call) = self.hold_for_task(now, conn, wire, call, line, envelope) else { return };
        let took = now.saturating_duration_since(call.since);
        let child = self.child_mut(server);
        child.record.calls += 1;
        child.record.errors += u64::from(envelope.error.is_some());
        child.note_duration(took);
        child.last_used = now;
        // An object that is no object of a result would break the host's parser.
        if let Some(result) = &envelope.result
            && !json::is_object(line, result)
        {
            let loss = Loss::new(Reason::InvalidResponse, "its answer is no valid response: the result is no object");
            self.lose(now, conn, wire, &call, &loss);
            return self.drained(now, server);
        }
        if let Some(error) = &envelope.error
            && !json::is_object(line, error)
        {
            let loss = Loss::new(Reason::InvalidResponse, "its answer is no valid response: the error is no object");
            self.lose(now, conn, wire, &call, &loss);
            return self.drained(now, server);
        }
        if self.keep_answer(now, &call, line, envelope) {
            return self.drained(now, server);
        }
        let id_at = envelope.id.clone().unwrap_or_default();
        let mut edits = vec![Edit::text(id_at, call.host_id.0.raw())];
        let era = self.era_of(conn);
        if let Some(result) = &envelope.result
            && self.task_answered(now, conn, wire, &call, line, result)
        {
            return self.drained(now, server);
        }
        if era == Era::Modern
            && let Some(result) = &envelope.result
        {
            let kind = json::get(line, result.clone(), "resultType")
                .map(|at| json::string(line, at).unwrap_or_default().into_owned());
            match (kind.as_deref(), call.modern.is_some()) {
                (None | Some("complete"), _) => {}
                (Some("input_required"), false) => {
                    self.input_required(now, conn, wire, call, line, &result.clone());
                    return self.drained(now, server);
                }
                (Some("input_required"), true) if passes(&call, line, result) => {
                    self.pass_questions(now, server, &call, line, result, &mut edits);
                    self.answer_edited(&call.host_id, server, line, &mut edits, call.outcome);
                    return self.drained(now, server);
                }
                // A state is no task that was made; some servers say so of it.
                (Some("task"), true) if matches!(call.about, About::Task(_)) => {
                    edits.extend(
                        json::get(line, result.clone(), "resultType").map(|at| Edit::text(at, r#""complete""#)),
                    );
                }
                (Some(other), _) => {
                    let loss = Loss::new(
                        Reason::InvalidResponse,
                        format!("its answer is no valid one: its resultType is \"{other}\""),
                    );
                    self.lose(now, conn, wire, &call, &loss);
                    return self.drained(now, server);
                }
            }
        }
        let outcome = if envelope.result.is_some() { Outcome::Answered } else { Outcome::Error };
        self.call_over(now, conn, &call, outcome);
        if !envelope.version {
            edits.push(version_edit(line));
        }
        if let Some(result) = &envelope.result {
            let prefix = &self.children[server.0].scheme;
            let seen = Rewriter::new(line, prefix, &mut edits).result(call.method, result);
            self.note_seen(server, &seen);
            self.note_result(now, conn, wire, &call, line, result, &mut edits);
            match (era, call.modern.is_some()) {
                (child, false) => {
                    let (modern, host) = (child == Era::Modern, self.session.revision);
                    if modern || host < Revision::V2025_06_18 {
                        let scheme = &self.children[server.0].scheme;
                        let more = convert::content(line, call.method, result, host, modern, scheme, &mut edits);
                        if modern {
                            era::to_legacy(line, result, &more, &mut edits);
                        } else {
                            meta::edit_object(line, result, &more.gone, &more.insert, &mut edits);
                        }
                    }
                }
                (Era::Modern, true) => {
                    let keeps = (call.method == Method::ResourcesRead).then_some(call.answers.is_none());
                    era::sign(line, result, keeps, self.server_info(), &mut edits);
                }
                (Era::Legacy, true) => {
                    let hints = if call.method == Method::ResourcesRead { Hints::Private(0) } else { Hints::None };
                    era::to_modern(line, result, hints, self.server_info(), &mut edits);
                }
            }
        } else if era == Era::Legacy && self.urls_required(now, conn, &call, line) {
            self.settle_now(call.outcome);
            return self.drained(now, server);
        } else if let Some(error) = &envelope.error {
            let modern = call.modern.is_some();
            if call.method == Method::ResourcesRead || (era == Era::Legacy && modern) {
                self.expose_error_uri(server, era, modern, line, error, &mut edits);
            }
            if era == Era::Modern
                && let Some(at) = json::get(line, error.clone(), "code")
            {
                match (&line[at.clone()], modern) {
                    // What the host did not say, we did not say: elsewhere it is ours to have said too little.
                    (b"-32021", false) => edits.push(Edit::text(at, "-32603")),
                    (b"-32020" | b"-32022", _) => {
                        self.settle_now(call.outcome);
                        let error = self.unavailable(now, server, "it refused the request's form before any work");
                        self.answer_error_from(&call.host_id, Some(server), &error);
                        return self.drained(now, server);
                    }
                    _ => {}
                }
            }
        }
        self.answer_edited(&call.host_id, server, line, &mut edits, call.outcome);
        self.drained(now, server);
    }

    /// The error of a missing resource names it in the host's spelling, and has the code of the host's era.
    fn expose_error_uri(
        &self,
        server: ServerId,
        child: Era,
        host_is_modern: bool,
        line: &Bytes,
        error: &std::ops::Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        let Some(code_at) = json::get(line, error.clone(), "code") else { return };
        let uri_at = json::path(line, error.clone(), &["data", "uri"]);
        let is_missing = match child {
            Era::Legacy => &line[code_at.clone()] == b"-32002",
            Era::Modern => &line[code_at.clone()] == b"-32602" && uri_at.is_some(),
        };
        if !is_missing {
            return;
        }
        match (child, host_is_modern) {
            (Era::Legacy, true) => edits.push(Edit::text(code_at, "-32602")),
            (Era::Modern, false) => edits.push(Edit::text(code_at, "-32002")),
            (Era::Legacy, false) | (Era::Modern, true) => {}
        }
        if let Some(at) = uri_at
            && let Some(own) = json::string(line, at.clone())
        {
            let exposed = crate::engine::uri::expose_uri(&self.child(server).scheme, &own);
            if exposed != own {
                edits.push(Edit::text(at, json::quoted(&exposed)));
            }
        }
    }

    /// What an answer changes in our own state.
    #[expect(clippy::too_many_arguments, reason = "one answer with what was read of it")]
    fn note_result(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        call: &Call,
        line: &Bytes,
        result: &std::ops::Range<usize>,
        edits: &mut Vec<Edit>,
    ) {
        match &call.about {
            About::Subscribe { own, spelling } => {
                self.session.watches.insert((conn.server, own.clone()), spelling.clone());
            }
            About::Tool(tool) if tool.task => self.task_created(now, conn, wire, call, line, result, edits),
            About::Task(exposed) => self.task_told(now, conn, exposed, call.method, line, result, edits),
            _ => {}
        }
    }

    fn child_notification(&mut self, now: Instant, conn: Conn, line: &Bytes, envelope: &Envelope) {
        let Some(method) = envelope.method.clone().and_then(|at| Method::from_token(&line[at])) else { return };
        let Ok(params) = envelope.read_params(line) else {
            self.child_mut(conn.server).record.faults += 1;
            return;
        };
        if self.era_of(conn) == Era::Modern {
            let of_stream = matches!(
                method,
                Method::ToolsChanged
                    | Method::PromptsChanged
                    | Method::ResourcesChanged
                    | Method::ResourceUpdated
                    | Method::TaskNews
            );
            if of_stream && !self.is_on_stream(conn, line, &params) {
                self.child_mut(conn.server).record.faults += 1;
                return;
            }
        }
        match method {
            Method::Acknowledged => self.child_acknowledged(conn, line, &params),
            Method::Progress => self.child_progress(now, conn, line, envelope, &params),
            Method::LogMessage => self.child_log(conn, line, envelope, &params),
            Method::Cancelled => self.child_cancelled(now, conn, line, &params),
            Method::ToolsChanged => self.child_list_changed(now, conn, &[Kind::Tools]),
            Method::PromptsChanged => self.child_list_changed(now, conn, &[Kind::Prompts]),
            Method::ResourcesChanged => self.child_list_changed(now, conn, &[Kind::Resources, Kind::Templates]),
            Method::ResourceUpdated => self.child_updated(conn, line, &params),
            Method::ElicitationComplete => self.elicitation_complete(now, conn, line, &params),
            Method::TaskStatus => self.child_task_status(now, conn, line, &params),
            Method::TaskNews => self.child_task_news(now, conn, line, &params),
            _ => {}
        }
    }

    fn child_progress(&mut self, now: Instant, conn: Conn, line: &Bytes, envelope: &Envelope, params: &Params) {
        let Some(at) = params.progress_token.clone() else { return };
        let Some(wire) = PeerId::from_token(&line[at.clone()]).and_then(|id| self.wire_of(conn.server, &id)) else {
            return;
        };
        let Some(link) = self.link_mut(conn) else { return };
        link.heard(now, wire);
        let token = match link.pending.get(&wire).map(|pending| &pending.purpose) {
            Some(Purpose::Call(call)) => call.token.clone(),
            _ => link.task_tokens.get(&wire).cloned(),
        };
        let Some(token) = token else { return };
        let mut edits = vec![Edit::text(at, token.raw())];
        if !envelope.version {
            edits.push(version_edit(line));
        }
        self.say_edited(conn.server, line, &mut edits, Droppable::Progress);
    }

    fn child_log(&mut self, conn: Conn, line: &Bytes, envelope: &Envelope, params: &Params) {
        let Some(whole) = params.whole.clone() else { return };
        if !self.session.is_opened() {
            let level = json::get(line, whole.clone(), "level").and_then(|at| json::string(line, at));
            let severity = level.and_then(|level| LOG_LEVELS.iter().position(|known| *known == level));
            if !severity.is_some_and(|severity| self.wants_log(conn, severity)) {
                return;
            }
        }
        let key = self.child(conn.server).config.key.as_str();
        let edit = if let Some(at) = json::get(line, whole.clone(), "logger") {
            let own = json::string(line, at.clone()).unwrap_or_default();
            Edit::text(at, json::quoted(&format!("{key}/{own}")))
        } else {
            let comma = if json::members(line, whole.clone()).next().is_some() { "," } else { "" };
            Edit::text(whole.start + 1..whole.start + 1, format!(r#""logger":{}{comma}"#, json::quoted(key)))
        };
        let mut edits = vec![edit];
        if !envelope.version {
            edits.push(version_edit(line));
        }
        self.say_edited(conn.server, line, &mut edits, Droppable::Log);
    }

    pub(super) fn child_list_changed(&mut self, now: Instant, conn: Conn, kinds: &[Kind]) {
        let child = self.child_mut(conn.server);
        if child.pagers.is_empty() {
            return;
        }
        for kind in kinds {
            child.pagers[*kind as usize].invalidate(now);
        }
        self.drive_pagers(now, conn);
    }

    /// Word of a change goes to who watches it, in the spelling that the watcher used.
    fn child_updated(&mut self, conn: Conn, line: &Bytes, params: &Params) {
        let Some(own) = text_at(line, params.uri.as_ref()) else { return };
        self.updated_to_listens(conn.server, &own);
        let key = (conn.server, own.to_string());
        let spelling = if let Some(spelling) = self.session.watches.get(&key) {
            spelling.clone()
        } else {
            // It may be a part of a watched resource.
            let part_of = |watched: &str| {
                own.strip_prefix(watched).is_some_and(|rest| rest.starts_with('/') || watched.ends_with('/'))
            };
            if !self.session.watches.keys().any(|(server, watched)| *server == conn.server && part_of(watched)) {
                return;
            }
            crate::engine::uri::expose_uri(&self.child(conn.server).scheme, &own)
        };
        if self.era_of(conn) == Era::Modern {
            let text = format!(r#"{{"uri":{}}}"#, json::quoted(&spelling));
            return self.notify_host(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{text}}}"#
            ));
        }
        let at = params.uri.clone().unwrap_or_default();
        self.say_edited(conn.server, line, &mut [Edit::text(at, json::quoted(&spelling))], Droppable::No);
    }
}

/// Whether a modern child asks a modern host only for what that request declares, and where asking is allowed.
fn passes(call: &Call, line: &[u8], result: &std::ops::Range<usize>) -> bool {
    let Some(sender) = &call.modern else { return false };
    let asks = json::get(line, result.clone(), "inputRequests");
    let has_state = json::get(line, result.clone(), "requestState").is_some();
    let allowed = matches!(call.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
    let mut entries = asks.clone().into_iter().flat_map(|at| json::members(line, at));
    allowed
        && (asks.is_some() || has_state)
        && entries.all(|entry| {
            let method = json::get(line, entry.value.clone(), "method").and_then(|at| Method::from_token(&line[at]));
            let params = json::get(line, entry.value, "params");
            let read = Params::read(line, params).unwrap_or_default();
            method.is_some_and(|method| super::parked::covered(&sender.capabilities, method, line, &read).is_ok())
        })
}

/// Makes `jsonrpc` what a host wants to see.
fn version_edit(line: &[u8]) -> Edit {
    let whole = 0..line.len();
    if let Some(at) = json::get(line, whole.clone(), "jsonrpc") {
        return Edit { at, with: crate::wire::splice::With::Static(b"\"2.0\"") };
    }
    let at = json::skip_space(line, 0) + 1;
    Edit { at: at..at, with: crate::wire::splice::With::Static(b"\"jsonrpc\":\"2.0\",") }
}

/// Whether a life still takes messages.
pub(super) fn is_live(link: &Link) -> bool {
    matches!(link.phase, Phase::Handshake | Phase::Ready)
}
