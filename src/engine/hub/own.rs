//! Our own requests to a child: handshake, pages of lists, signs of life, and what a new life is given.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Effect, Hub, Known};
use crate::config::Protocol;
use crate::engine::child::{Child, Conn, KeptFor, ServerId, State, Verdict};
use crate::engine::era::{Era, MODERN};
use crate::engine::facts::{Facts, HostCapabilities, ServerCapabilities};
use crate::engine::link::{ChildTag, Link, Pending, Phase, Purpose};
use crate::engine::listing::{FailOutcome, Kind, PageOutcome, Pager};
use crate::wire::id::WireId;
use crate::wire::json as text;
use crate::wire::message::Envelope;
use crate::wire::meta;
use crate::wire::method::{Method, Revision};

/// How long a probe waits for its answer; part of, and less than, the time for a start.
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(10);

impl Hub {
    /// Sends a request of ours to a child. `until`: when it is given up.
    pub(super) fn ask_child(
        &mut self,
        conn: Conn,
        method: Method,
        params: Option<&str>,
        purpose: Purpose,
        until: Option<Instant>,
    ) -> Option<WireId> {
        let about_tasks = match method {
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => true,
            Method::Listen => params.is_some_and(|params| params.contains("\"taskIds\"")),
            _ => false,
        };
        let members = if self.era_of(conn) == Era::Modern { self.own_members(about_tasks) } else { String::new() };
        let child = self.children.get_mut(conn.server.0)?;
        let wire = child.wire_id();
        let link = child.link.as_mut().filter(|link| link.conn == conn)?;
        let params = match (link.era, params) {
            (Era::Legacy, None) => String::new(),
            (Era::Legacy, Some(params)) => format!(r#","params":{params}"#),
            (Era::Modern, None) => format!(r#","params":{{"_meta":{{{members}}}}}"#),
            (Era::Modern, Some(params)) => {
                format!(r#","params":{{"_meta":{{{members}}},{}"#, params.strip_prefix('{').unwrap_or(params))
            }
        };
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{}"{params}}}"#, wire.0, method.as_str());
        link.outbox.push(ChildTag::Request(wire), line.as_bytes());
        link.register(wire, Pending { purpose, idle: None, until });
        Some(wire)
    }

    /// Sends a notification of ours to a child.
    pub(super) fn tell_child(&mut self, conn: Conn, line: &str) {
        if let Some(link) = self.link_mut(conn) {
            link.outbox.push(ChildTag::Other, line.as_bytes());
        }
    }

    /// Begins with a child whose process runs, once the host has spoken. `auto` mirrors the host (`PROTOCOL.md` 2.5).
    pub(super) fn begin_handshake(&mut self, now: Instant, id: ServerId) {
        if !self.session.is_opened() && self.session.sender.is_none() {
            return;
        }
        let child = self.child(id);
        let revision = match &child.config.protocol {
            Protocol::Revision(revision) => Revision::parse(revision),
            Protocol::Auto | Protocol::Legacy | Protocol::Modern => None,
        };
        let modern = match (&child.config.protocol, revision, child.verdict) {
            (Protocol::Modern, ..) => true,
            (Protocol::Legacy, ..) => false,
            (_, Some(revision), _) => !revision.is_legacy(),
            (_, None, Some(Verdict::LegacyOnly)) => false,
            (_, None, Some(Verdict::ModernOnly)) => true,
            (_, None, Some(Verdict::Both) | None) => !self.session.is_opened(),
        };
        if modern {
            self.probe(now, id);
        } else {
            self.offer_revision(now, id, revision.unwrap_or(Revision::NEWEST_LEGACY));
        }
    }

    /// One `server/discover`; nothing else is written until its verdict.
    fn probe(&mut self, now: Instant, id: ServerId) {
        let limit = self.child(id).config.start_timeout.min(PROBE_LIMIT);
        let Some(link) = self.child_mut(id).link.as_mut().filter(|link| link.phase == Phase::Spawned) else { return };
        link.phase = Phase::Handshake;
        link.era = Era::Modern;
        let conn = link.conn;
        let wire = self.ask_child(conn, Method::Discover, None, Purpose::Discover, Some(now + limit));
        if let Some(link) = self.link_mut(conn) {
            link.probe = wire;
        }
    }

    /// The probe said that it is none of ours: the handshake is tried in the same process.
    fn fall_back(&mut self, now: Instant, conn: Conn, what: &str) {
        let child = self.child_mut(conn.server);
        let only_modern = match &child.config.protocol {
            Protocol::Modern => true,
            Protocol::Revision(revision) => Revision::parse(revision).is_some_and(|revision| !revision.is_legacy()),
            Protocol::Auto | Protocol::Legacy => false,
        };
        let Some(link) = child.link.as_mut().filter(|link| link.conn == conn) else { return };
        if let Some(refused) = link.refused.clone() {
            return self.start_failed(
                now,
                conn,
                format!("the handshake failed: {refused}; and server/discover: {what}"),
            );
        }
        if only_modern {
            return self.start_failed(
                now,
                conn,
                format!("it does not speak the modern era that its table asks for: {what}"),
            );
        }
        link.phase = Phase::Spawned;
        link.era = Era::Legacy;
        child.verdict = Some(Verdict::LegacyOnly);
        self.offer_revision(now, conn.server, Revision::NEWEST_LEGACY);
    }

    /// A child told what it is.
    fn discovered_child(&mut self, now: Instant, conn: Conn, result: &[u8]) {
        let value: Value = serde_json::from_slice(result).unwrap_or_default();
        let versions: Option<Vec<&str>> = value
            .get("supportedVersions")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).collect());
        let Some(versions) = versions.filter(|_| value.get("capabilities").is_some()) else {
            return self.fall_back(now, conn, "its answer is of another shape");
        };
        let legacy = versions.iter().filter_map(|version| Revision::parse(version)).any(Revision::is_legacy);
        if !versions.contains(&MODERN.as_str()) {
            if legacy {
                return self.fall_back(now, conn, "it has only revisions with the handshake");
            }
            return self.start_failed(
                now,
                conn,
                format!("it speaks {}, none of which is known here", versions.join(", ")),
            );
        }
        let info = value.get("_meta").and_then(|meta| meta.get(meta::SERVER)).unwrap_or(&Value::Null);
        let identity =
            ["name", "version"].map(|key| info.get(key).and_then(Value::as_str).unwrap_or_default()).join(" ");
        let facts = Facts {
            revision: MODERN,
            capabilities: ServerCapabilities::read(value.get("capabilities").unwrap_or(&Value::Null)),
            instructions: value.get("instructions").and_then(Value::as_str).map(str::to_owned),
            identity: identity.trim().to_owned(),
        };
        self.child_mut(conn.server).verdict = Some(if legacy { Verdict::Both } else { Verdict::ModernOnly });
        if let Some(link) = self.link_mut(conn) {
            link.era = Era::Modern;
            link.pending.clear();
        }
        self.serve(now, conn, facts);
    }

    /// An answer to a probe that came too late for its time, but perhaps not for its purpose.
    pub(super) fn late_probe(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        line: &Bytes,
        envelope: &Envelope,
    ) -> bool {
        let Some(link) = self.link_of(conn).filter(|link| link.probe == Some(wire)) else { return false };
        let Some(result) =
            envelope.result.clone().filter(|at| text::get(line, at.clone(), "supportedVersions").is_some())
        else {
            return true;
        };
        if link.phase == Phase::Handshake {
            self.discovered_child(now, conn, &line[result]);
        } else {
            // Its handshake is over: it stays what it is, and the next life knows better.
            self.child_mut(conn.server).verdict = Some(Verdict::Both);
        }
        true
    }

    fn offer_revision(&mut self, now: Instant, id: ServerId, offered: Revision) {
        let timeout = self.child(id).config.start_timeout;
        let capabilities = match &self.session.sender {
            // A modern host's set is that of its first request; it never tells of changed roots.
            Some(sender) if !self.session.is_opened() => {
                let declared = HostCapabilities { roots_changed: false, tasks: None, ..sender.capabilities.clone() };
                declared.for_child(None, offered)
            }
            _ => self.session.capabilities.for_child(Some(self.session.revision), offered),
        };
        let mut info = json!({ "name": "mcp-proxy", "version": env!("CARGO_PKG_VERSION") });
        let client = self.host_name();
        if offered >= Revision::V2025_06_18 && !client.is_empty() {
            info["title"] = format!("{client} by mcp-proxy").into();
        }
        let params = json!({ "protocolVersion": offered.as_str(), "capabilities": capabilities, "clientInfo": info });
        let Some(link) = self.child_mut(id).link.as_mut().filter(|link| link.phase == Phase::Spawned) else { return };
        link.phase = Phase::Handshake;
        let conn = link.conn;
        self.ask_child(conn, Method::Initialize, Some(&params.to_string()), Purpose::Initialize, Some(now + timeout));
    }

    /// A request of ours was answered.
    pub(super) fn own_answered(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        purpose: Purpose,
        line: &Bytes,
        envelope: &Envelope,
    ) {
        match &purpose {
            Purpose::TaskState(own) => return self.task_state(now, conn, own, line, envelope),
            Purpose::TaskResult(own) => return self.task_result(now, conn, own, line, envelope),
            _ => {}
        }
        let Some(result) = envelope.result.clone() else {
            let error = envelope.error.clone().unwrap_or_default();
            let code =
                text::get(line, error.clone(), "code").and_then(|at| std::str::from_utf8(&line[at]).ok()?.parse().ok());
            let message =
                text::get(line, error.clone(), "message").and_then(|at| text::string(line, at)).unwrap_or_default();
            if matches!(purpose, Purpose::Initialize)
                && (self.try_other_revision(now, conn, line, &error) || self.try_other_era(now, conn, &message))
            {
                return;
            }
            return self.own_failed(
                now,
                conn,
                wire,
                &purpose,
                code,
                &format!("it answered with an error: {message} ({})", code.unwrap_or_default()),
            );
        };
        match purpose {
            Purpose::Initialize => self.shook_hands(now, conn, &line[result]),
            Purpose::Page(kind) => self.page(now, conn, kind, &line.slice(result)),
            Purpose::Gather(number) => self.gathered(now, conn, number, Some(&line.slice(result))),
            Purpose::Discover => self.discovered_child(now, conn, &line[result]),
            Purpose::Listen => self.child_stream_over(now, conn, wire, false),
            Purpose::Watch { own } => self.watch_answered(conn, wire, &own, true),
            Purpose::Ping
            | Purpose::Restore
            | Purpose::Call(_)
            | Purpose::TaskState(_)
            | Purpose::TaskResult(_)
            | Purpose::TaskWord => {}
        }
    }

    /// A request of ours failed: by an error of the child, by a time limit, or by a broken answer.
    pub(super) fn own_failed(
        &mut self,
        now: Instant,
        conn: Conn,
        wire: WireId,
        purpose: &Purpose,
        code: Option<i64>,
        what: &str,
    ) {
        match purpose {
            Purpose::Initialize => self.start_failed(now, conn, format!("the handshake failed: {what}")),
            Purpose::Page(kind) => self.page_failed(now, conn, *kind, code, what),
            Purpose::Gather(number) => self.gathered(now, conn, *number, None),
            Purpose::Discover => self.probe_failed(now, conn, code, what),
            Purpose::Listen => self.child_stream_over(now, conn, wire, code == Some(-32601)),
            Purpose::Watch { own } => self.watch_answered(conn, wire, own, false),
            Purpose::Ping => {
                if code.is_none() || code == Some(-32601) {
                    self.child_mut(conn.server).no_ping = true;
                }
            }
            Purpose::Restore => {
                tracing::warn!(server = %self.child(conn.server).config.key, "setting a level or a watch anew failed: {what}");
            }
            Purpose::TaskState(own) => self.task_silent(now, conn, own),
            Purpose::TaskResult(own) => self.task_unread(now, conn, own, what),
            Purpose::Call(_) | Purpose::TaskWord => {}
        }
    }

    /// A child that refuses our revision and says which it takes is asked once more.
    fn try_other_revision(&mut self, now: Instant, conn: Conn, line: &[u8], error: &std::ops::Range<usize>) -> bool {
        let Some(list) = text::path(line, error.clone(), &["data", "supported"]) else { return false };
        let common = text::elements(line, list)
            .filter_map(|at| Revision::parse(&text::string(line, at)?))
            .filter(|revision| revision.is_legacy() && *revision < Revision::NEWEST_LEGACY)
            .max();
        let Some(common) = common else { return false };
        let Some(link) = self.link_mut(conn).filter(|link| !link.asked_again) else { return false };
        link.phase = Phase::Spawned;
        link.asked_again = true;
        self.offer_revision(now, conn.server, common);
        true
    }

    /// A child that refuses the handshake may be modern.
    fn try_other_era(&mut self, now: Instant, conn: Conn, message: &str) -> bool {
        let auto = self.child(conn.server).config.protocol == Protocol::Auto;
        let Some(link) = self.link_mut(conn).filter(|link| auto && link.probe.is_none()) else { return false };
        link.phase = Phase::Spawned;
        link.refused = Some(message.to_owned());
        self.probe(now, conn.server);
        true
    }

    /// A probe was refused, or found no answer in time. No one code says that a child is legacy.
    fn probe_failed(&mut self, now: Instant, conn: Conn, code: Option<i64>, what: &str) {
        match code {
            Some(-32020 | -32021) => self.start_failed(now, conn, format!("it refused server/discover: {what}")),
            _ => self.fall_back(now, conn, what),
        }
    }

    fn shook_hands(&mut self, now: Instant, conn: Conn, result: &[u8]) {
        let value: Value = serde_json::from_slice(result).unwrap_or_default();
        let version = value.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(revision) = Revision::parse(version).filter(|revision| revision.is_legacy()) else {
            return self.start_failed(
                now,
                conn,
                format!("it speaks the protocol revision \"{version}\", which is not known here"),
            );
        };
        let identity = ["/serverInfo/name", "/serverInfo/version"]
            .map(|pointer| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
            .join(" ");
        let facts = Facts {
            revision,
            capabilities: ServerCapabilities::read(value.get("capabilities").unwrap_or(&Value::Null)),
            instructions: value.get("instructions").and_then(Value::as_str).map(str::to_owned),
            identity: identity.trim().to_owned(),
        };
        self.tell_child(conn, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self.serve(now, conn, facts);
    }

    /// What a child is, is known: it serves from now on.
    fn serve(&mut self, now: Instant, conn: Conn, facts: Facts) {
        let with_tasks = |has: ServerCapabilities| has.tasks_call || has.tasks_extension;
        let first_with_tasks =
            with_tasks(facts.capabilities) && !self.present().map(Child::capabilities).any(with_tasks);
        self.child_mut(conn.server).facts = Some(facts);
        if first_with_tasks {
            for id in self.order.clone() {
                if self.child(id).part.is_some() {
                    self.publish(now, id);
                }
            }
        }
        self.became_ready(now, conn);
        self.restore(now, conn);
        self.begin_lists(now, conn);
        self.flush_waiting(now, conn.server);
        self.answer_initialize(now);
    }

    /// Gives a new life what the old one had.
    fn restore(&mut self, now: Instant, conn: Conn) {
        let child = self.child_mut(conn.server);
        (child.level, child.level_until) = (None, None);
        if self.era_of(conn) == Era::Modern {
            self.listen_at_child(conn);
            self.watch_for_waiting(now, conn);
            return self.tell_listens_after_restart(conn.server);
        }
        self.restore_level(now, conn.server);
        if !self.child(conn.server).capabilities().subscribe {
            for listen in self.session.listens.values_mut().filter(|listen| listen.until.is_some()) {
                listen.uris.retain(|(server, _), _| *server != conn.server);
            }
            return self.watch_for_waiting(now, conn);
        }
        self.watch_for_waiting(now, conn);
        let until = now + self.child(conn.server).config.list_timeout;
        let acknowledged = self.session.listens.values().filter(|listen| listen.until.is_none());
        let listens = acknowledged.flat_map(|listen| listen.uris.keys());
        let watched: std::collections::BTreeSet<String> = self
            .session
            .watches
            .keys()
            .chain(listens)
            .filter(|(server, _)| *server == conn.server)
            .map(|(_, own)| own.clone())
            .collect();
        for own in watched {
            let params = json!({ "uri": own }).to_string();
            self.ask_child(conn, Method::Subscribe, Some(&params), Purpose::Restore, Some(until));
        }
        self.tell_listens_after_restart(conn.server);
    }

    /// Tells a child the log level that the host set.
    pub(super) fn restore_level(&mut self, now: Instant, id: ServerId) {
        let Some(level) = self.session.log_level.clone() else { return };
        let child = self.child_mut(id);
        let until = now + child.config.list_timeout;
        if !child.capabilities().logging {
            return;
        }
        let Some(conn) = child.ready_link().filter(|link| link.era == Era::Legacy).map(|link| link.conn) else {
            return;
        };
        let params = json!({ "level": level }).to_string();
        self.ask_child(conn, Method::SetLevel, Some(&params), Purpose::Restore, Some(until));
    }

    fn begin_lists(&mut self, now: Instant, conn: Conn) {
        let legacy = self.era_of(conn) == Era::Legacy;
        let child = self.child_mut(conn.server);
        let has = child.capabilities();
        child.pagers = Kind::ALL.iter().map(|kind| Pager::new(*kind, legacy)).collect();
        let mut emptied = false;
        for kind in Kind::ALL {
            if has_kind(has, kind) {
                child.pagers[kind as usize].want(now);
            } else {
                emptied |= set_listing(child, kind, Vec::new());
            }
        }
        if emptied {
            self.publish(now, conn.server);
            self.reroute(now, conn.server);
        }
        self.drive_pagers(now, conn);
        self.lists_complete(now, conn);
    }

    /// Sends the page requests that are due.
    pub(super) fn drive_pagers(&mut self, now: Instant, conn: Conn) {
        if !self.link_of(conn).is_some_and(|link| link.phase == Phase::Ready) {
            return;
        }
        for kind in Kind::ALL {
            let child = self.child_mut(conn.server);
            let until = now + child.config.list_timeout;
            let Some(cursor) = child.pagers.get_mut(kind as usize).and_then(|pager| pager.poll_request(now)) else {
                continue;
            };
            let params = cursor.map(|token| format!(r#"{{"cursor":{token}}}"#));
            self.ask_child(conn, kind.method(), params.as_deref(), Purpose::Page(kind), Some(until));
        }
    }

    fn page(&mut self, now: Instant, conn: Conn, kind: Kind, result: &Bytes) {
        let key = self.child(conn.server).config.key.clone();
        let member = |name: &str| text::get(result, 0..result.len(), name).map(|at| &result[at]);
        let ms = member("ttlMs").and_then(|ms| std::str::from_utf8(ms).ok()?.parse().ok());
        let public = member("cacheScope") == Some(b"\"public\"");
        self.child_mut(conn.server).kept[kind as usize] = ms.map(|ms| KeptFor { since: now, ms, public });
        let Some(pager) = self.child_mut(conn.server).pagers.get_mut(kind as usize) else { return };
        match pager.page(now, result) {
            PageOutcome::More | PageOutcome::Overtaken => {}
            PageOutcome::Done(entries) => self.listed(now, conn, kind, entries),
            PageOutcome::Stopped(entries, warning) => {
                tracing::warn!(server = %key, "the list of {}s was ended before its end: {warning:?}", kind.noun());
                self.listed(now, conn, kind, entries);
            }
            PageOutcome::Invalid(reason) => {
                self.note_error(
                    conn.server,
                    format!("{} answered with something that is no list: {reason}", kind.method().as_str()),
                );
            }
        }
        self.drive_pagers(now, conn);
    }

    fn page_failed(&mut self, now: Instant, conn: Conn, kind: Kind, code: Option<i64>, what: &str) {
        let Some(pager) = self.child_mut(conn.server).pagers.get_mut(kind as usize) else { return };
        match pager.failed(now, code) {
            FailOutcome::Empty => self.listed(now, conn, kind, Vec::new()),
            FailOutcome::Restart => {}
            FailOutcome::Retry(pause) => {
                let message = format!("{} failed: {what}; it is asked again in {pause:?}", kind.method().as_str());
                self.note_error(conn.server, message);
            }
        }
        self.drive_pagers(now, conn);
    }

    fn listed(&mut self, now: Instant, conn: Conn, kind: Kind, entries: Vec<Bytes>) {
        let changed = set_listing(self.child_mut(conn.server), kind, entries);
        if changed {
            self.publish(now, conn.server);
        } else {
            self.answer_lists(now);
        }
        self.reroute(now, conn.server);
        self.lists_complete(now, conn);
    }

    /// Keeps what is known for the next start, whenever all lists are complete and none is on its way.
    pub(super) fn lists_complete(&mut self, now: Instant, conn: Conn) {
        let _ = now;
        let child = self.child(conn.server);
        if !child.listed.iter().all(|listed| *listed) || child.pagers.iter().any(Pager::is_busy) {
            return;
        }
        let Some(facts) = child.facts.clone() else { return };
        let known =
            Known { facts, listing: child.listing.clone(), verdict: child.verdict, interactive: child.interactive };
        let server = std::sync::Arc::clone(&child.config);
        self.effect(Effect::Cache { server, known: Box::new(known) });
    }

    pub(super) fn note_error(&mut self, server: ServerId, message: String) {
        let child = self.child_mut(server);
        tracing::warn!(server = %child.config.key, "{message}");
        child.record.last_error = Some(message);
    }

    /// Asks for a sign of life where that is due.
    pub(super) fn ping_if_due(&mut self, now: Instant, id: ServerId) {
        let child = self.child_mut(id);
        let (Some(interval), false) = (child.config.ping_interval, child.no_ping) else { return };
        let State::Ready { .. } = child.state else { return };
        let Some(link) = child.link.as_mut().filter(|link| may_ping(link)) else { return };
        if now.saturating_duration_since(link.last_traffic) < interval {
            return;
        }
        link.last_traffic = now;
        let (conn, until) = (link.conn, now + interval);
        self.ask_child(conn, Method::Ping, None, Purpose::Ping, Some(until));
    }
}

/// Only while nothing is pending, for a busy child may have one thread.
pub(super) fn may_ping(link: &Link) -> bool {
    link.phase == Phase::Ready && link.era == Era::Legacy && link.pending.is_empty()
}

fn has_kind(has: ServerCapabilities, kind: Kind) -> bool {
    match kind {
        Kind::Tools => has.tools,
        Kind::Prompts => has.prompts,
        Kind::Resources | Kind::Templates => has.resources,
    }
}

/// Takes over a complete list; tells whether it is another one than before.
fn set_listing(child: &mut Child, kind: Kind, entries: Vec<Bytes>) -> bool {
    let listing = match kind {
        Kind::Tools => &mut child.listing.tools,
        Kind::Prompts => &mut child.listing.prompts,
        Kind::Resources => &mut child.listing.resources,
        Kind::Templates => &mut child.listing.templates,
    };
    let first = !std::mem::replace(&mut child.listed[kind as usize], true);
    let changed = *listing != entries;
    *listing = entries;
    changed || (first && child.part.is_none())
}
