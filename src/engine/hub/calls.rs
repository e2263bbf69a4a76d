//! Requests of the host that go to one child: routing, sending, waiting (`DESIGN.md` chapters 5, 7, 8).

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::from_host::Request;
use super::{Effect, Hub};
use crate::config::{LedgerArguments, Transport};
use crate::engine::catalog::{Owner, TaskSupport, build_part};
use crate::engine::child::{Rest, ServerId, State, Then, Waiting};
use crate::engine::era::Era;
use crate::engine::link::{About, Call, ChildTag, Pending, Purpose, ToolCall};
use crate::engine::listing::Kind;
use crate::engine::outcome::{Digest, OutcomeId, Verdict};
use crate::engine::rewrite;
use crate::engine::session::Place;
use crate::wire::code::{self, RpcError};
use crate::wire::id::HostId;
use crate::wire::json as text;
use crate::wire::method::{Method, Revision};
use crate::wire::params::text_at;
use crate::wire::splice::{Edit, With};

/// How long a call as a whole may take where neither the file nor the host table says.
pub(super) const CALL_MAX_TIME: Duration = Duration::from_secs(3600);

/// Why a server that a person stopped gets no calls.
pub(super) const STOPPED: &str = "it was stopped; `mcp-proxy start` starts it";

impl Hub {
    pub(super) fn call_tool(&mut self, now: Instant, request: Request) {
        let Some(name) = text_at(&request.frame, request.params.name.as_ref()) else {
            return self.answer_error(&request.id, &missing("name"));
        };
        let found = self.catalog.tool(&name).or_else(|| self.catalog.app_tool(&name));
        let Some((position, entry)) = found else {
            let name = name.into_owned();
            return self.unknown_name(now, Kind::Tools, &name, request);
        };
        let server = self.order[position];
        let name_at = request.params.name.clone().unwrap_or_default();
        let mut edits = Vec::new();
        if entry.exposed != entry.original {
            edits.push(Edit { at: name_at, with: With::Bytes(entry.original_token.clone()) });
        }
        let mut tool = ToolCall {
            original: entry.original.clone(),
            exposed: entry.exposed.clone(),
            read_only: entry.read_only,
            idempotent: entry.idempotent,
            task: request.params.task.is_some() && !self.is_modern(&request.id),
            only_as_task: entry.task_support == TaskSupport::Required && self.is_modern(&request.id),
            arguments_at: None,
        };
        if !tool.read_only {
            tool.arguments_at.clone_from(&request.params.arguments);
        }
        self.edit_arguments(server, &request, &mut edits);
        self.route(now, server, request, About::Tool(Box::new(tool)), Method::ToolsCall, edits);
    }

    pub(super) fn get_prompt(&mut self, now: Instant, request: Request) {
        let Some(name) = text_at(&request.frame, request.params.name.as_ref()) else {
            return self.answer_error(&request.id, &missing("name"));
        };
        let Some((position, entry)) = self.catalog.prompt(&name) else {
            let name = name.into_owned();
            return self.unknown_name(now, Kind::Prompts, &name, request);
        };
        let server = self.order[position];
        let original = entry.original.clone();
        let at = request.params.name.clone().unwrap_or_default();
        let mut edits = vec![Edit { at, with: With::Bytes(entry.original_token.clone()) }];
        self.edit_arguments(server, &request, &mut edits);
        self.route(now, server, request, About::Prompt(original), Method::PromptsGet, edits);
    }

    fn edit_arguments(&self, server: ServerId, request: &Request, edits: &mut Vec<Edit>) {
        if let (Some(at), Some(position)) = (&request.params.arguments, self.position(server)) {
            let known = |value: &str| self.catalog.argument_uri(position, value);
            rewrite::arguments(&request.frame, at, &self.child(server).scheme, known, edits);
        }
    }

    /// A name that the table does not have: filtered, not yet told by its server, or unknown.
    fn unknown_name(&mut self, now: Instant, kind: Kind, name: &str, request: Request) {
        let what = if kind == Kind::Tools { "tool" } else { "prompt" };
        for index in 0..self.order.len() {
            let id = self.order[index];
            let child = self.child(id);
            if child.part.as_ref().is_some_and(|part| part.filtered(kind, name)) {
                let error = self.refused(id, what, name);
                return self.answer_error(&request.id, &error);
            }
            let begins = name.strip_prefix(child.config.prefix.as_str());
            let begins = begins.is_some_and(|rest| rest.starts_with(&self.config.proxy.separator));
            if begins && !child.config.prefix.is_empty() && !child.listed[kind as usize] {
                return self.wait_unrouted(now, id, request);
            }
        }
        if let Some(id) = self.withdrawn_owner(kind, name) {
            let error = self.unavailable(now, id, STOPPED);
            return self.answer_error_from(&request.id, Some(id), &error);
        }
        let error = RpcError::new(
            code::INVALID_PARAMS,
            format!("No server offers a {what} named \"{name}\"; it may have been taken away or its server changed. List the {what}s again."),
        )
        .with("name", name)
        .with("detail", format!("unknown {what}"));
        self.answer_error(&request.id, &error);
    }

    /// The server that a person stopped and that shows that name while it runs.
    fn withdrawn_owner(&self, kind: Kind, name: &str) -> Option<ServerId> {
        self.order.iter().copied().find(|id| {
            let child = self.child(*id);
            child.part.is_none() && child.is_put_away() && {
                let part = build_part(&self.naming, &child.config, &child.listing, self.render_class());
                part.find(kind, name).is_some()
            }
        })
    }

    fn wait_unrouted(&mut self, now: Instant, id: ServerId, request: Request) {
        if let Some(error) = self.hopeless(now, id) {
            return self.answer_error_from(&request.id, Some(id), &error);
        }
        if self.child(id).is_full() {
            let what = format!("{} requests are under way (max_pending)", self.child(id).config.max_pending);
            let error = self.busy(id, &what);
            return self.answer_error_from(&request.id, Some(id), &error);
        }
        self.place(&request.id, Place::Waiting(id));
        let until = now + self.child(id).config.start_timeout;
        let waiting = Waiting::Unrouted { id: request.id, frame: request.frame, until };
        self.child_mut(id).waiting.push_back(waiting);
        self.wanted(now, id);
    }

    pub(super) fn read_resource(&mut self, now: Instant, request: Request) {
        let Some(uri) = text_at(&request.frame, request.params.uri.as_ref()).map(std::borrow::Cow::into_owned) else {
            return self.answer_error(&request.id, &missing("uri"));
        };
        if self.read_own(&request.id, &uri) {
            return;
        }
        let Some((server, own)) = self.owner(now, &uri, &request) else { return };
        let edits = Self::uri_edit(&request, &uri, &own);
        self.route(now, server, request, About::Resource(own), Method::ResourcesRead, edits);
    }

    pub(super) fn subscribe(&mut self, now: Instant, request: Request) {
        let Some(uri) = text_at(&request.frame, request.params.uri.as_ref()).map(std::borrow::Cow::into_owned) else {
            return self.answer_error(&request.id, &missing("uri"));
        };
        let Some((server, own)) = self.owner(now, &uri, &request) else { return };
        if !self.child(server).capabilities().subscribe {
            let key = &self.child(server).config.key;
            let message = format!("Server \"{key}\" can't watch resources. Read {uri} again when you need it.");
            let error = RpcError::new(code::INVALID_PARAMS, message).with("uri", uri).with("server", key.as_str());
            return self.answer_error(&request.id, &error);
        }
        if self.session.watches.contains_key(&(server, own.clone())) {
            return self.answer(&request.id, "{}");
        }
        if let Some((conn, Era::Modern)) = self.child_mut(server).ready_link().map(|link| (link.conn, link.era)) {
            return self.subscribe_by_listen(conn, request.id, own, uri);
        }
        let edits = Self::uri_edit(&request, &uri, &own);
        self.route(now, server, request, About::Subscribe { own, spelling: uri }, Method::Subscribe, edits);
    }

    pub(super) fn unsubscribe(&mut self, now: Instant, request: Request) {
        let Some(uri) = text_at(&request.frame, request.params.uri.as_ref()).map(std::borrow::Cow::into_owned) else {
            return self.answer_error(&request.id, &missing("uri"));
        };
        let watched = self.session.watches.iter().find(|(_, spelling)| **spelling == uri).map(|(key, _)| key.clone());
        let Some((server, own)) = watched else { return self.answer(&request.id, "{}") };
        self.session.watches.remove(&(server, own.clone()));
        // Another watcher may be left, and a child that is down has forgotten its watches by itself.
        self.unwatch_if_last(now, &(server, own));
        self.answer(&request.id, "{}");
    }

    pub(super) fn complete(&mut self, now: Instant, request: Request) {
        let frame = &request.frame;
        let reference = request.params.reference.clone();
        let member = |name| reference.clone().and_then(|at| text::get(frame, at, name));
        let kind = member("type").and_then(|at| text::string(frame, at)).unwrap_or_default();
        let mut edits = Vec::new();
        let server = match &*kind {
            "ref/prompt" => {
                let Some(at) = member("name") else { return self.answer_error(&request.id, &missing("ref.name")) };
                let name = text::string(frame, at.clone()).unwrap_or_default().into_owned();
                let Some((position, entry)) = self.catalog.prompt(&name) else {
                    return self.unknown_name(now, Kind::Prompts, &name, request);
                };
                edits.push(Edit { at, with: With::Bytes(entry.original_token.clone()) });
                self.order[position]
            }
            "ref/resource" => {
                let Some(at) = member("uri") else { return self.answer_error(&request.id, &missing("ref.uri")) };
                let uri = text::string(frame, at.clone()).unwrap_or_default().into_owned();
                let template =
                    self.catalog.template(&uri).map(|(position, own)| (self.order[position], own.to_string()));
                let Some((server, own)) = template.or_else(|| self.owner(now, &uri, &request)) else { return };
                edits.push(Edit::text(at, text::quoted(&own)));
                server
            }
            _ => {
                let error =
                    RpcError::new(code::INVALID_PARAMS, "The member ref.type must be ref/prompt or ref/resource.");
                return self.answer_error(&request.id, &error);
            }
        };
        if !self.child(server).capabilities().completions && !self.is_oldest(server) {
            return self.answer(&request.id, r#"{"completion":{"values":[],"hasMore":false}}"#);
        }
        self.route(now, server, request, About::Completion, Method::Complete, edits);
    }

    /// The oldest revision completes without declaring it.
    fn is_oldest(&self, server: ServerId) -> bool {
        self.child(server).facts.as_ref().is_some_and(|facts| facts.revision == Revision::V2024_11_05)
    }

    fn uri_edit(request: &Request, uri: &str, own: &str) -> Vec<Edit> {
        match (&request.params.uri, uri == own) {
            (Some(at), false) => vec![Edit::text(at.clone(), text::quoted(own))],
            _ => Vec::new(),
        }
    }

    /// Who serves a URI; answers the request if nobody does, or if it must wait for someone.
    fn owner(&mut self, now: Instant, uri: &str, request: &Request) -> Option<(ServerId, String)> {
        let error = match self.catalog.resource(uri) {
            Owner::One { server, uri } => return Some((self.order[server], uri)),
            Owner::Refused { server, uri: own } => self.refused(self.order[server], "uri", &own),
            Owner::Unknown => {
                // The prefix of a server that has not told its resources yet still says whose it is.
                let by_prefix = self.order.iter().copied().find_map(|id| {
                    let scheme = &self.child(id).scheme;
                    let own = crate::engine::uri::original_uri(scheme, uri)?;
                    (!scheme.is_empty() && own != uri).then_some((id, own))
                });
                if by_prefix.is_some() {
                    return by_prefix;
                }
                self.unknown_resource(&request.id, uri, &[])
            }
            Owner::Ambiguous(positions) => {
                let candidates: Vec<ServerId> = positions.into_iter().map(|position| self.order[position]).collect();
                self.unknown_resource(&request.id, uri, &candidates)
            }
        };
        let _ = now;
        self.answer_error(&request.id, &error);
        None
    }

    /// Takes a request on its way to a child.
    pub(super) fn route(
        &mut self,
        now: Instant,
        server: ServerId,
        request: Request,
        about: About,
        method: Method,
        edits: Vec<Edit>,
    ) {
        let (token_at, token) = request.params.token(&request.frame).unzip();
        let modern = self.session.in_flight.get(&request.id).and_then(|flight| flight.modern.clone());
        let call = Box::new(Call {
            host_id: request.id,
            method,
            frame: request.frame,
            edits,
            id_at: request.id_at,
            token,
            token_at,
            modern,
            parked: None,
            answers: request.answers,
            rounds: 0,
            tasks: false,
            task: None,
            about,
            since: now,
            outcome: None,
            digest: None,
            wire: None,
            repeat_of: request.repeat_of,
        });
        if call.answers.as_ref().is_some_and(|answers| !answers.urls.is_empty()) {
            return self.hold_for_urls(now, server, call);
        }
        self.offer(now, server, call);
    }

    /// Sends a call, or lets it wait for its server, or refuses it.
    pub(super) fn offer(&mut self, now: Instant, server: ServerId, call: Box<Call>) {
        let limit = self.config.proxy.max_message + super::CHILD_ROOM;
        // Of short lines only those are counted that were not written: the sum over all is not for each small call.
        let long = call.frame.len() > super::FRAME_KEPT;
        let has_room = if long { self.has_room_for_calls() } else { self.has_room(0) };
        let child = self.child_mut(server);
        let of_child = if long { child.kept_bytes() } else { child.unsent_bytes() };
        child.last_used = now;
        let max = child.config.max_pending;
        let busy = if child.is_full() {
            Some(format!("{max} requests are under way (max_pending)"))
        } else if of_child + call.frame.len() > limit {
            Some("what waits for it, or is under way to it, has reached its bound".to_owned())
        } else if !has_room {
            Some("what waits for all servers and for you has reached its bound".to_owned())
        } else {
            None
        };
        if let Some(what) = busy {
            let error = self.busy(server, &what);
            self.call_unsent(now, server, &call);
            return self.answer_error_from(&call.host_id, Some(server), &error);
        }
        self.admit(now, server, call);
    }

    /// Sends a call that was found to have room, or lets it wait.
    pub(super) fn admit(&mut self, now: Instant, server: ServerId, call: Box<Call>) {
        let may_look = self.rows_until.is_none_or(|until| until <= now) || !call.is_recorded();
        if may_look && self.child_mut(server).ready_link().is_some() {
            if !self.must_wait_for_slot(server, &call) {
                if !self.asks_for_roots(now, server, &call) {
                    self.guarded(now, server, call);
                }
                return;
            }
            let until = now + self.child(server).config.start_timeout;
            self.place(&call.host_id, Place::Waiting(server));
            return self.child_mut(server).waiting.push_back(Waiting::Call { call, until });
        }
        if let Some(error) = self.hopeless(now, server) {
            self.call_unsent(now, server, &call);
            return self.answer_error_from(&call.host_id, Some(server), &error);
        }
        self.place(&call.host_id, Place::Waiting(server));
        let until = now + self.child(server).config.start_timeout;
        self.child_mut(server).waiting.push_back(Waiting::Call { call, until });
        self.wanted(now, server);
    }

    /// Why waiting for a server would be in vain.
    fn hopeless(&self, now: Instant, server: ServerId) -> Option<RpcError> {
        let child = self.child(server);
        if let Transport::Http(_) = child.config.transport {
            return Some(self.unavailable(now, server, "not_supported"));
        }
        match &child.state {
            State::Failed { reason, half_open: false } => Some(self.unavailable(now, server, reason)),
            State::Stopped(Rest::ByPerson) | State::Draining { then: Then::Stop(Rest::ByPerson), .. } => {
                Some(self.unavailable(now, server, STOPPED))
            }
            _ if self.position(server).is_none() => Some(self.removed(server)),
            _ => None,
        }
    }

    /// -31011 for a server that left the configuration.
    pub(super) fn removed(&self, server: ServerId) -> RpcError {
        let key = self.child(server).config.key.as_str();
        RpcError::new(
            code::UNAVAILABLE,
            format!("Server \"{key}\" was removed from the configuration. The request was not sent. List again."),
        )
        .with("server", key)
        .with("state", "removed")
        .with("reason", "removed")
    }

    /// Lets the repeat guard look at a call, and sends it.
    fn guarded(&mut self, now: Instant, server: ServerId, mut call: Box<Call>) {
        let About::Tool(tool) = &call.about else { return self.send(now, server, call) };
        if tool.read_only {
            return self.send(now, server, call);
        }
        // What comes back from a question that was put before anything was sent is looked at like any call.
        let answers = call.answers.as_ref().is_some_and(|answers| !answers.unsent);
        let allowed = call.repeat_of.is_some() || answers || self.guard.is_empty();
        if allowed {
            // Of most calls nobody ever asks for the digest: then it is made when an outcome is lost, from what is kept.
            let kept = call.frame.len() <= super::FRAME_KEPT && self.keeps_arguments();
            call.digest = if kept { None } else { Some(self.repeat_digest(server, &call)) };
            return self.send_intended(now, server, call);
        }
        let idempotent = tool.idempotent;
        let digest = self.repeat_digest(server, &call);
        call.digest = Some(digest);
        let can_ask = match &call.modern {
            Some(sender) => sender.capabilities.elicitation_form,
            None => self.session.capabilities.elicitation_form && self.session.is_initialized(),
        };
        let unix = self.unix(now);
        let policy = self.config.proxy.allow_repeat_after_unknown;
        match self.guard.check(unix, policy, digest, idempotent, can_ask) {
            Verdict::Send => self.send_intended(now, server, call),
            Verdict::SendAsRepeat { of } => {
                call.repeat_of = Some(of);
                self.effect(Effect::Repeated(of));
                self.send_intended(now, server, call);
            }
            Verdict::Refuse { of, text } => {
                if policy == crate::config::Repeat::Confirm {
                    self.effect(Effect::Refused(of));
                }
                self.refuse_repeat(server, &call, of, &text);
            }
            Verdict::Ask { of, text } => self.ask_about_repeat(server, call, of, &text),
        }
    }

    /// How long a call to that server may take as a whole; `None`: for ever.
    pub(super) fn max_time(&self, server: ServerId) -> Option<Duration> {
        let host_limit = self.call_limit;
        let limit = self.child(server).config.call_max_time.or(host_limit).unwrap_or(CALL_MAX_TIME);
        (!limit.is_zero()).then_some(limit)
    }

    /// How it is told that a call is the same as another.
    pub(super) fn repeat_digest(&mut self, server: ServerId, call: &Call) -> Digest {
        let About::Tool(tool) = &call.about else { unreachable!("only tool calls have intents") };
        let key = &self.children[server.0].config.key;
        let arguments = tool.arguments_at.clone().and_then(|at| call.frame.get(at));
        self.digester.digest(key, &tool.original, arguments)
    }

    fn send_intended(&mut self, now: Instant, server: ServerId, mut call: Box<Call>) {
        let outcome = OutcomeId::from_random(self.entropy.bits());
        call.outcome = Some(outcome);
        let noted = self.noted(now, server, &call, outcome);
        self.effect(Effect::Intent(Box::new(noted)));
        self.send(now, server, call);
    }

    /// Puts a call into the outbox of its ready child. The call itself stays as it came, for another life may need it.
    pub(super) fn send(&mut self, now: Instant, server: ServerId, mut call: Box<Call>) {
        let max_time = self.max_time(server);
        let child = self.child_mut(server);
        let revision = child.facts.as_ref().map(|facts| facts.revision);
        let idle = child.config.call_idle_timeout.map(|limit| (limit, now + limit));
        let until = max_time.map(|limit| call.since + limit);
        let wire = child.wire_id();
        let Some((conn, era)) = child.ready_link().map(|link| (link.conn, link.era)) else { return };
        if let (Era::Modern, About::Subscribe { own, spelling }) = (era, &call.about) {
            return self.subscribe_by_listen(conn, call.host_id.clone(), own.clone(), spelling.clone());
        }
        call.wire = Some(wire);
        if matches!(call.about, About::Task(_)) {
            match self.task_across(now, conn, wire, call) {
                Some(goes_on) => call = goes_on,
                None => return,
            }
        }
        let mut edits = std::mem::take(&mut self.scratch);
        edits.clear();
        edits.extend(call.edits.iter().cloned());
        edits.push(Edit::number(call.id_at.clone(), wire.0));
        edits.extend(call.token_at.clone().map(|at| Edit::number(at, wire.0)));
        if era == Era::Modern || call.modern.is_some() {
            self.cross(server, era, &call, &mut edits);
        }
        if call.method == Method::Complete && revision.is_some_and(|revision| revision < Revision::V2025_06_18) {
            drop_context(&call.frame, &mut edits);
        }
        self.raise_level(now, server, &call);
        let host_id = call.host_id.clone();
        if let Some(link) = self.child_mut(server).ready_link() {
            link.outbox.push_edited(ChildTag::Request(wire), &call.frame, &mut edits);
            link.last_traffic = now;
            link.register(wire, Pending { purpose: Purpose::Call(call), idle, until });
        }
        self.scratch = edits;
        self.place(&host_id, Place::AtChild(server, wire));
    }

    pub(super) fn place(&mut self, id: &HostId, place: Place) {
        if let Some(flight) = self.session.in_flight.get_mut(id) {
            flight.place = place;
        }
    }

    /// Whether the ledger keeps the text of arguments.
    pub(super) fn keeps_arguments(&self) -> bool {
        self.config.proxy.ledger_arguments == LedgerArguments::Full
    }
}

fn missing(name: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("The parameter \"{name}\" is missing or no string."))
        .with("detail", name)
}

pub(super) fn params_of(frame: &[u8]) -> Option<std::ops::Range<usize>> {
    text::get(frame, 0..frame.len(), "params")
}

/// A child before 2025-06-18 knows no `context`.
fn drop_context(frame: &Bytes, edits: &mut Vec<Edit>) {
    let Some(params) = params_of(frame) else { return };
    let Some(context) = text::find(frame, params.clone(), "context") else { return };
    let members: Vec<_> = text::members(frame, params).collect();
    let Some(index) = members.iter().position(|member| *member == context) else { return };
    // With the comma before it, or, for the first member, the one behind it.
    let at = match (index, members.get(index + 1)) {
        (0, Some(next)) => context.key.start..next.key.start,
        (0, None) => context.key.start..context.value.end,
        (_, _) => members[index - 1].value.end..context.value.end,
    };
    edits.push(Edit::remove(at));
}
