//! `subscriptions/listen`: a modern host's streams of notifications, and our one shared stream at a modern child
//! (`PROTOCOL.md` 5.6, 6.11).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::Hub;
use super::from_host::Request;
use crate::engine::catalog::Owner;
use crate::engine::child::{Conn, ServerId, State};
use crate::engine::era::Era;
use crate::engine::link::{Phase, Purpose};
use crate::engine::listing::Kind;
use crate::engine::session::{Listen, Place};
use crate::wire::code::{self, RpcError};
use crate::wire::id::{HostId, WireId};
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::Method;
use crate::wire::params::Params;

/// How long children may take to confirm watches before the rest is acknowledged.
const ACKNOWLEDGE: Duration = Duration::from_secs(3);
/// The members of a filter, in the order of the announcements.
const CHANGES: [&str; 3] = ["toolsListChanged", "promptsListChanged", "resourcesListChanged"];

impl Hub {
    pub(super) fn listen(&mut self, now: Instant, request: Request) {
        let whole = request.params.whole.clone().unwrap_or_default();
        let filter: Value = text::get(&request.frame, whole, "notifications")
            .and_then(|at| serde_json::from_slice(&request.frame[at]).ok())
            .unwrap_or_default();
        if !filter.is_object() {
            let error = RpcError::new(code::INVALID_PARAMS, "The parameter \"notifications\" must be an object.")
                .with("detail", "notifications");
            return self.answer_error(&request.id, &error);
        }
        let sender = self.session.in_flight.get(&request.id).and_then(|flight| flight.modern.as_ref());
        if filter.get("taskIds").is_some() && !sender.is_some_and(|sender| sender.capabilities.tasks_extension) {
            return self.answer_error(&request.id, &super::modern::needs_tasks("A stream of tasks"));
        }
        self.place(&request.id, Place::Listening);
        let mut listen = Listen {
            changes: CHANGES.map(|name| filter.get(name) == Some(&Value::Bool(true))),
            until: Some(now + ACKNOWLEDGE),
            ..Listen::default()
        };
        let mut fresh = Vec::new();
        for uri in filter
            .get("resourceSubscriptions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let Some((server, own)) = self.watchable(uri) else { continue };
            if !self.child(server).capabilities().subscribe {
                continue;
            }
            let key = (server, own);
            if self.watchers(&key) == 0 {
                fresh.push(key.clone());
            }
            // What another stream waits for is not known to this one either.
            let waiting =
                self.session.listens.values().filter(|other| other.until.is_some() && other.uris.contains_key(&key));
            listen.asked.extend(waiting.flat_map(|other| &other.asked).filter(|(asked, _)| *asked == key.0));
            listen.uris.insert(key, uri.to_owned());
        }
        listen.tasks = self.tasks_named(now, filter.get("taskIds"));
        let tasks: Vec<(ServerId, String)> = listen.tasks.keys().cloned().collect();
        self.session.listens.insert(request.id.clone(), listen);
        for (server, own) in fresh {
            self.watch_for(now, server, &own);
        }
        for (server, own) in tasks {
            self.watch_task(now, &request.id, server, &own);
        }
        self.acknowledge_if_known(&request.id);
    }

    /// Who serves a URI that is to be watched. Its prefix says it, too, while its server has listed nothing yet.
    fn watchable(&self, uri: &str) -> Option<(ServerId, String)> {
        match self.catalog.resource(uri) {
            Owner::One { server, uri } => Some((*self.order.get(server)?, uri)),
            Owner::Unknown => self.order.iter().copied().find_map(|id| {
                let scheme = &self.child(id).scheme;
                let own = crate::engine::uri::original_uri(scheme, uri)?;
                (!scheme.is_empty() && own != uri).then_some((id, own))
            }),
            Owner::Refused { .. } | Owner::Ambiguous(_) => None,
        }
    }

    /// Streams whose acknowledgement waits for a server that has just become ready: it is asked now.
    pub(super) fn watch_for_waiting(&mut self, now: Instant, conn: Conn) {
        if let Some(wire) =
            self.link_of(conn).filter(|link| link.era == Era::Modern).and_then(|link| link.listening.next)
        {
            // Its stream has just been asked for with all that is watched.
            for listen in self.session.listens.values_mut().filter(|listen| listen.until.is_some()) {
                if listen.uris.keys().any(|(server, _)| *server == conn.server) {
                    listen.asked.insert((conn.server, wire));
                }
            }
            return;
        }
        let waiting: BTreeSet<String> = self
            .session
            .listens
            .values()
            .filter(|listen| listen.until.is_some())
            .flat_map(|listen| listen.uris.keys())
            .filter(|(server, _)| *server == conn.server)
            .map(|(_, own)| own.clone())
            .collect();
        for own in waiting {
            self.watch_for(now, conn.server, &own);
        }
        let ids: Vec<HostId> = self.session.listens.keys().cloned().collect();
        for id in ids {
            self.acknowledge_if_known(&id);
        }
    }

    /// Who watches a resource of a child: the legacy session and the listens.
    fn watchers(&self, key: &(ServerId, String)) -> usize {
        usize::from(self.session.watches.contains_key(key))
            + self.session.listens.values().filter(|listen| listen.uris.contains_key(key)).count()
    }

    fn watch_for(&mut self, now: Instant, server: ServerId, own: &str) {
        let until = now + ACKNOWLEDGE;
        let Some((conn, era)) = self.child_mut(server).ready_link().map(|link| (link.conn, link.era)) else { return };
        let params = json!({ "uri": own }).to_string();
        let asked = if era == Era::Modern {
            self.listen_at_child(conn)
        } else {
            let purpose = Purpose::Watch { own: own.to_owned() };
            self.ask_child(conn, Method::Subscribe, Some(&params), purpose, Some(until))
        };
        let Some(wire) = asked else { return };
        // The answer is for all that wait for it.
        let key = (server, own.to_owned());
        for listen in self.session.listens.values_mut().filter(|listen| listen.until.is_some()) {
            if listen.uris.contains_key(&key) {
                listen.asked.insert((server, wire));
            }
        }
    }

    /// A child answered a watch that listens asked for.
    pub(super) fn watch_answered(&mut self, conn: Conn, wire: WireId, own: &str, well: bool) {
        let mut heard = Vec::new();
        for (id, listen) in &mut self.session.listens {
            if !listen.asked.remove(&(conn.server, wire)) {
                continue;
            }
            if !well {
                listen.uris.remove(&(conn.server, own.to_owned()));
            }
            heard.push(id.clone());
        }
        for id in heard {
            self.acknowledge_if_known(&id);
        }
    }

    fn acknowledge_if_known(&mut self, id: &HostId) {
        let is_known = |listen: &Listen| {
            let starting = |server: ServerId| matches!(self.child(server).state, State::Starting);
            listen.until.is_some()
                && listen.asked.is_empty()
                && !listen.uris.keys().any(|(server, _)| starting(*server))
        };
        if self.session.listens.get(id).is_some_and(is_known) {
            self.acknowledge(id);
        }
    }

    /// The first message of the stream: what is honoured.
    fn acknowledge(&mut self, id: &HostId) {
        let Some(listen) = self.session.listens.get_mut(id) else { return };
        listen.until = None;
        let mut honoured = serde_json::Map::new();
        for (name, wanted) in CHANGES.iter().zip(listen.changes) {
            if wanted {
                honoured.insert((*name).into(), true.into());
            }
        }
        if !listen.uris.is_empty() {
            let uris: Vec<&String> = listen.uris.values().collect();
            honoured.insert("resourceSubscriptions".into(), json!(uris));
        }
        let mut ended = Vec::new();
        if !listen.tasks.is_empty() {
            ended.extend(listen.tasks.values().cloned());
            honoured.insert("taskIds".into(), json!(ended));
        }
        let held = std::mem::take(&mut listen.held);
        let honoured = Value::from(honoured);
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{},"notifications":{honoured}}}}}"#,
            subscription(id)
        ));
        for text in held {
            self.say(&String::from_utf8_lossy(&text));
        }
        for exposed in ended {
            self.tell_ended_task(id, &exposed);
        }
    }

    /// Says something on a stream, after its acknowledgement.
    pub(super) fn say_on(&mut self, id: &HostId, text: &str) {
        match self.session.listens.get_mut(id) {
            Some(listen) if listen.until.is_some() => listen.held.push(Bytes::copy_from_slice(text.as_bytes())),
            Some(_) => self.say(text),
            None => {}
        }
    }

    /// A change of tools, prompts or resources, to those who asked for it.
    pub(super) fn announce_to_listens(&mut self, index: usize) {
        let method = [Method::ToolsChanged, Method::PromptsChanged, Method::ResourcesChanged][index];
        let ids: Vec<HostId> =
            self.session.listens.iter().filter(|(_, listen)| listen.changes[index]).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.say_on(
                &id,
                &format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{{{}}}}}"#, method.as_str(), subscription(&id)),
            );
        }
    }

    /// Word of a child about a resource, to the streams that watch it or what it is a part of.
    pub(super) fn updated_to_listens(&mut self, server: ServerId, own: &str) {
        let part_of = |watched: &str| {
            own == watched
                || own.strip_prefix(watched).is_some_and(|rest| rest.starts_with('/') || watched.ends_with('/'))
        };
        let mut told = Vec::new();
        for (id, listen) in &self.session.listens {
            if let Some(spelling) = listen.uris.get(&(server, own.to_owned())) {
                told.push((id.clone(), spelling.clone()));
            } else if listen.uris.keys().any(|(other, watched)| *other == server && part_of(watched)) {
                told.push((id.clone(), crate::engine::uri::expose_uri(&self.child(server).scheme, own)));
            }
        }
        for (id, uri) in told {
            self.say_on(
                &id,
                &format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{{},"uri":{}}}}}"#,
                    subscription(&id),
                    text::quoted(&uri)
                ),
            );
        }
    }

    /// After a restart something may have been missed.
    pub(super) fn tell_listens_after_restart(&mut self, server: ServerId) {
        let keys: Vec<String> = self
            .session
            .listens
            .values()
            .filter(|listen| listen.until.is_none())
            .flat_map(|listen| listen.uris.keys().filter(|(other, _)| *other == server).map(|(_, own)| own.clone()))
            .collect();
        for own in keys {
            self.updated_to_listens(server, &own);
        }
    }

    /// The host ends a stream: nothing more is said on it.
    pub(super) fn stop_listening(&mut self, now: Instant, id: &HostId) {
        let Some(listen) = self.session.listens.remove(id) else { return };
        for key in listen.uris.into_keys() {
            self.unwatch_if_last(now, &key);
        }
        for (server, own) in listen.tasks.into_keys() {
            self.unwatch_task(server, &own);
        }
    }

    pub(super) fn unwatch_if_last(&mut self, now: Instant, key: &(ServerId, String)) {
        if self.watchers(key) == 0 {
            self.unwatch(now, key);
        }
    }

    /// Nobody watches a resource any more.
    fn unwatch(&mut self, now: Instant, (server, own): &(ServerId, String)) {
        let until = now + self.child(*server).config.list_timeout;
        let Some((conn, era)) = self.child_mut(*server).ready_link().map(|link| (link.conn, link.era)) else { return };
        if era == Era::Modern {
            self.listen_at_child(conn);
            return;
        }
        let params = json!({ "uri": own }).to_string();
        self.ask_child(conn, Method::Unsubscribe, Some(&params), Purpose::Restore, Some(until));
    }

    pub(super) fn listens_deadline(&self) -> Option<Instant> {
        self.session.listens.values().filter_map(|listen| listen.until).min()
    }

    pub(super) fn listens_due(&mut self, now: Instant) {
        let due: Vec<HostId> = self
            .session
            .listens
            .iter()
            .filter(|(_, listen)| listen.until.is_some_and(|until| until <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            // Children that did not answer in time are left out.
            if let Some(listen) = self.session.listens.get_mut(&id) {
                let mut silent: Vec<ServerId> =
                    std::mem::take(&mut listen.asked).into_iter().map(|(server, _)| server).collect();
                let starting = |server: &ServerId| matches!(self.children[server.0].state, State::Starting);
                silent.extend(listen.uris.keys().map(|(server, _)| *server).filter(starting));
                listen.uris.retain(|(server, _), _| !silent.contains(server));
                // At a legacy server tasks need no stream.
                let era = |server: &ServerId| self.children[server.0].link.as_ref().map(|link| link.era);
                listen.tasks.retain(|(server, _), _| !silent.contains(server) || era(server) == Some(Era::Legacy));
            }
            self.acknowledge(&id);
        }
    }

    /// Our end: each stream gets its result and then, as this transport has it, its cancellation.
    pub(super) fn end_listens(&mut self) {
        for id in std::mem::take(&mut self.session.listens).into_keys() {
            self.session.in_flight.remove(&id);
            self.say(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"complete",{}}}}}"#,
                id.0.raw(),
                subscription(&id)
            ));
            self.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the proxy is ending"}}}}"#, id.0.raw()));
        }
    }

    // Our stream at a modern child.

    /// Opens the shared stream with all that is wanted; an older one is cancelled when this is acknowledged.
    pub(super) fn listen_at_child(&mut self, conn: Conn) -> Option<WireId> {
        let has = self.child(conn.server).capabilities();
        let mut filter = serde_json::Map::new();
        for (name, has) in CHANGES.iter().zip([has.tools_changed, has.prompts_changed, has.resources_changed]) {
            if has {
                filter.insert((*name).into(), true.into());
            }
        }
        if has.subscribe {
            let mut uris: Vec<&String> =
                self.session.watches.keys().filter(|(server, _)| *server == conn.server).map(|(_, own)| own).collect();
            let listens = self.session.listens.values().flat_map(|listen| listen.uris.keys());
            uris.extend(listens.filter(|(server, _)| *server == conn.server).map(|(_, own)| own));
            uris.sort();
            uris.dedup();
            if !uris.is_empty() {
                filter.insert("resourceSubscriptions".into(), json!(uris));
            }
        }
        if has.tasks_extension {
            let named = self.session.listens.values().flat_map(|listen| listen.tasks.keys());
            let named = named.filter(|(server, _)| *server == conn.server).map(|(_, own)| own);
            let tasks: BTreeSet<&String> = named.chain(self.tasks.of_legacy_host(conn.server)).collect();
            if !tasks.is_empty() {
                filter.insert("taskIds".into(), json!(tasks));
            }
        }
        if filter.is_empty() {
            return None;
        }
        let params = json!({ "notifications": filter }).to_string();
        let wire = self.ask_child(conn, Method::Listen, Some(&params), Purpose::Listen, None)?;
        let overtaken = self.link_mut(conn)?.listening.next.replace(wire);
        if let Some(old) = overtaken {
            // Nobody waits for its acknowledgement any more: this one has all that it had.
            self.link_mut(conn)?.pending.remove(&old);
            self.tell_cancelled(conn, old, Some("\"the filter was replaced\""));
            for listen in self.session.listens.values_mut() {
                if listen.asked.remove(&(conn.server, old)) {
                    listen.asked.insert((conn.server, wire));
                }
            }
        }
        Some(wire)
    }

    /// A modern child acknowledges a stream: it is the one that counts, and what waited for it is answered.
    pub(super) fn child_acknowledged(&mut self, conn: Conn, line: &Bytes, params: &Params) {
        let Some(wire) = self.subscription_of(line, params) else { return };
        let Some(link) = self.link_mut(conn).filter(|link| link.listening.next == Some(wire)) else { return };
        let old = link.listening.current.replace(wire);
        link.listening.next = None;
        if let Some(old) = old {
            link.pending.remove(&old);
            self.tell_cancelled(conn, old, Some("\"the filter was replaced\""));
        }
        let named = |name: &str| -> Vec<String> {
            let list = params.whole.clone().and_then(|at| text::path(line, at, &["notifications", name]));
            let list = list.into_iter().flat_map(|at| text::elements(line, at));
            list.filter_map(|at| text::string(line, at).map(std::borrow::Cow::into_owned)).collect()
        };
        let honoured = named("resourceSubscriptions");
        self.answer_subscribers(conn, &honoured);
        self.stream_known(conn, wire, &honoured, &named("taskIds"));
    }

    /// Streams of the host that waited for that one at a child are acknowledged, without what the child left out.
    fn stream_known(&mut self, conn: Conn, wire: WireId, honoured: &[String], tasks: &[String]) {
        let mut ids = Vec::new();
        for (id, listen) in &mut self.session.listens {
            if listen.asked.remove(&(conn.server, wire)) {
                listen.uris.retain(|(server, own), _| *server != conn.server || honoured.contains(own));
                listen.tasks.retain(|(server, own), _| *server != conn.server || tasks.contains(own));
                ids.push(id.clone());
            }
        }
        for id in ids {
            self.acknowledge_if_known(&id);
        }
    }

    /// Our number of the stream that a notification of a modern child belongs to.
    pub(super) fn subscription_of(&self, line: &Bytes, params: &Params) -> Option<WireId> {
        let at = text::get(line, params.meta.clone()?, meta::SUBSCRIPTION)?;
        std::str::from_utf8(&line[at]).ok()?.trim_matches('"').parse().ok().map(WireId)
    }

    /// Whether a notification of a modern child came on a stream of ours.
    pub(super) fn is_on_stream(&self, conn: Conn, line: &Bytes, params: &Params) -> bool {
        let wire = self.subscription_of(line, params);
        self.link_of(conn)
            .is_some_and(|link| wire.is_some() && (link.listening.current == wire || link.listening.next == wire))
    }

    /// Legacy `resources/subscribe` requests that waited for a modern child's word.
    fn answer_subscribers(&mut self, conn: Conn, honoured: &[String]) {
        let waiting =
            self.link_mut(conn).map(|link| std::mem::take(&mut link.listening.subscribers)).unwrap_or_default();
        for (id, own) in waiting {
            if honoured.contains(&own) {
                self.answer(&id, "{}");
            } else {
                let spelling = self.session.watches.remove(&(conn.server, own)).unwrap_or_default();
                let error = RpcError::new(code::INVALID_PARAMS, format!("The server does not watch {spelling}."))
                    .with("uri", spelling);
                self.answer_error(&id, &error);
            }
        }
    }

    /// A legacy host watches a resource of a modern child: answered when its stream is acknowledged.
    pub(super) fn subscribe_by_listen(&mut self, conn: Conn, id: HostId, own: String, spelling: String) {
        self.session.watches.insert((conn.server, own.clone()), spelling);
        self.place(&id, Place::Listening);
        if let Some(link) = self.link_mut(conn) {
            link.listening.subscribers.push((id, own));
        }
        self.listen_at_child(conn);
    }

    /// A stream at a modern child ended, or could not be opened.
    pub(super) fn child_stream_over(&mut self, now: Instant, conn: Conn, wire: WireId, refused: bool) {
        let Some(link) = self.link_mut(conn) else { return };
        if link.listening.next == Some(wire) {
            link.listening.next = None;
            self.answer_subscribers(conn, &[]);
            self.stream_known(conn, wire, &[], &[]);
        } else if link.listening.current == Some(wire) {
            link.listening.current = None;
        } else {
            return;
        }
        let again = !refused && self.link_of(conn).is_some_and(|link| link.phase == Phase::Ready);
        if again {
            let link = self.link_mut(conn).expect("it was there a moment ago");
            let pause = link.listening.pause.max(Duration::from_millis(250));
            link.listening.pause = (pause * 2).min(Duration::from_secs(30));
            link.listening.reopen_at = Some(now + pause);
        }
    }

    /// Opens a stream anew that ended some time ago, and fetches what may have been missed.
    pub(super) fn reopen_stream(&mut self, now: Instant, conn: Conn) {
        let Some(link) = self.link_mut(conn).filter(|link| link.listening.reopen_at.is_some_and(|at| at <= now)) else {
            return;
        };
        link.listening.reopen_at = None;
        self.listen_at_child(conn);
        self.child_list_changed(now, conn, &Kind::ALL);
        self.tell_listens_after_restart(conn.server);
    }
}

/// `"_meta":{…}` with the stream's id, its JSON type kept.
pub(super) fn subscription(id: &HostId) -> String {
    format!(r#""_meta":{{"{}":{}}}"#, meta::SUBSCRIPTION, id.0.raw())
}
