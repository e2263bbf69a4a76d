//! Lists for the host, and word of their changes (`DESIGN.md` chapter 9).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Hub;
use super::from_host::Request;
use crate::engine::catalog::{self, Changed, PageError, Part};
use crate::engine::child::{Child, ServerId};
use crate::engine::era;
use crate::engine::listing::Kind;
use crate::engine::repair::Repair;
use crate::engine::session::Place;
use crate::wire::code::{self, RpcError};
use crate::wire::id::HostId;
use crate::wire::json;
use crate::wire::method::{Method, Revision};

/// Changes of one kind within this time are announced once.
const COALESCE: Duration = Duration::from_millis(50);

/// At most so many repairs of one catalog are logged one by one.
const REPAIRS_TOLD: usize = 20;

/// The kinds of announcement.
const ANNOUNCED: [(Method, &[Kind]); 3] = [
    (Method::ToolsChanged, &[Kind::Tools]),
    (Method::PromptsChanged, &[Kind::Prompts]),
    (Method::ResourcesChanged, &[Kind::Resources, Kind::Templates]),
];

impl Hub {
    pub(super) fn list(&mut self, now: Instant, kind: Kind, request: &Request) {
        let cursor = request.params.cursor.clone().map(|at| &request.frame[at]).filter(|token| *token != b"null");
        if let Some(token) = cursor {
            let cursor = json::string(token, 0..token.len());
            return self.answer_page(now, kind, &request.id, cursor.as_deref().unwrap_or_default());
        }
        if self.may_answer_list(now, kind) {
            self.answer_list(now, kind, &request.id);
        } else if let Some(flight) = self.session.in_flight.get_mut(&request.id) {
            flight.place = Place::List { kind };
        }
    }

    fn may_answer_list(&self, now: Instant, kind: Kind) -> bool {
        self.lists_until.is_none_or(|until| until <= now)
            || matches!(self.stopping, Some(super::Stopping::Down))
            || self.present().all(|child| child.is_settled(kind))
    }

    pub(super) fn has_waiting_lists(&self) -> bool {
        self.session.in_flight.values().any(|flight| matches!(flight.place, Place::List { .. }))
    }

    /// Answers the lists that waited, as far as they need not wait any longer.
    pub(super) fn answer_lists(&mut self, now: Instant) {
        let Some(until) = self.lists_until else { return };
        let waiting: Vec<(HostId, Kind)> = self
            .session
            .in_flight
            .iter()
            .filter_map(|(id, flight)| match flight.place {
                Place::List { kind } => Some((id.clone(), kind)),
                _ => None,
            })
            .collect();
        for (id, kind) in waiting {
            if self.may_answer_list(now, kind) {
                self.answer_list(now, kind, &id);
            }
        }
        // First lists are over: from now on every list is answered at once.
        if until <= now || self.present().all(|child| Kind::ALL.iter().all(|kind| child.is_settled(*kind))) {
            self.lists_until = None;
        }
    }

    pub(super) fn answer_list(&mut self, now: Instant, kind: Kind, id: &HostId) {
        let snapshot = self.catalog.snapshot(kind);
        self.given[kind as usize] = Some(snapshot.revision());
        let page = self.snapshots.first(snapshot, self.config.proxy.page_size);
        self.send_page(now, kind, id, page);
    }

    fn answer_page(&mut self, now: Instant, kind: Kind, id: &HostId, cursor: &str) {
        match self.snapshots.next(kind, cursor, self.config.proxy.page_size) {
            Ok(page) => self.send_page(now, kind, id, page),
            Err(PageError) => {
                let error = RpcError::new(
                    code::INVALID_PARAMS,
                    "The cursor is not known, or the list changed too often since. Begin anew: list again without a cursor.",
                )
                .with("detail", "cursor");
                self.answer_error(id, &error);
            }
        }
    }

    fn send_page(&mut self, now: Instant, kind: Kind, id: &HostId, page: catalog::Page) {
        let mut head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.0.raw());
        let mut page = page.pieces.into_iter();
        if self.is_modern(id) {
            let first = page.next().unwrap_or_default();
            let members = era::complete_members(self.list_hints(now, kind), Some(self.server_info()));
            head.push_str(&format!("{{{members},{}", String::from_utf8_lossy(first.get(1..).unwrap_or_default())));
        }
        let mut pieces = vec![Bytes::from(head)];
        pieces.extend(page);
        pieces.push(Bytes::from_static(b"}"));
        self.answer_pieces(id, None, &pieces);
    }

    /// Renders what a child adds anew, and arranges the announcement if that changed the merged view.
    pub(super) fn publish(&mut self, now: Instant, id: ServerId) {
        if self.child(id).is_put_away() {
            return self.answer_lists(now);
        }
        // We declare tasks for those who have them; a child that has none must not seem to.
        let tasks_somewhere = self.present().map(Child::capabilities).any(|has| has.tasks_call || has.tasks_extension);
        let legacy_with_tasks = self.session.revision == Revision::V2025_11_25 && self.session.is_opened();
        let child = self.child_mut(id);
        let has = child.capabilities();
        child.listing.execution = match (has.tasks_call, has.tasks_extension) {
            (false, true) if legacy_with_tasks => catalog::Execution::Optional,
            (false, _) if tasks_somewhere => catalog::Execution::Removed,
            _ => catalog::Execution::AsItIs,
        };
        let child = self.child(id);
        let part =
            std::sync::Arc::new(catalog::build_part(&self.naming, &child.config, &child.listing, self.render_class()));
        tell_repairs(&child.config.key, child.part.as_deref(), &part);
        self.child_mut(id).part = Some(std::sync::Arc::clone(&part));
        let Some(position) = self.position(id) else { return };
        let changed = self.catalog.set(position, part);
        self.note_changed(now, changed);
        self.answer_lists(now);
    }

    /// Takes what a child adds out of the merged view.
    pub(super) fn withdraw(&mut self, now: Instant, id: ServerId) {
        self.child_mut(id).part = None;
        if let Some(position) = self.position(id) {
            let changed = self.catalog.remove(position);
            self.note_changed(now, changed);
        }
    }

    pub(super) fn note_changed(&mut self, now: Instant, changed: Changed) {
        for (slot, changed) in self.announce.iter_mut().zip([changed.tools, changed.prompts, changed.resources]) {
            if changed && slot.is_none() {
                *slot = Some(now + COALESCE);
            }
        }
    }

    /// Tells the host of what changed, once for each kind, and not if it has already listed what is.
    pub(super) fn announce_due(&mut self, now: Instant) {
        for (index, (method, kinds)) in ANNOUNCED.iter().enumerate() {
            if self.announce[index].is_none_or(|at| at > now) {
                continue;
            }
            self.announce[index] = None;
            let news = self.is_news(kinds);
            if news {
                self.announce_to_listens(index);
            }
            if news && self.session.is_initialized() {
                self.say(&format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, method.as_str()));
            }
        }
    }

    /// Whether the host has a list of theirs that is old, or none at all. A list that it waits for will be new. Resources
    /// and templates share one word: a host that lists only one of them is not told of the other.
    fn is_news(&self, kinds: &[Kind]) -> bool {
        let given = |kind: &Kind| self.given[*kind as usize];
        let awaited =
            |kind: &Kind| self.session.in_flight.values().any(|flight| flight.place == Place::List { kind: *kind });
        let old = |kind: &Kind| given(kind).is_some_and(|given| given != self.shown(*kind));
        kinds.iter().any(|kind| old(kind) && !awaited(kind))
            || kinds.iter().all(|kind| given(kind).is_none() && !awaited(kind))
    }

    /// Nothing may be announced before `notifications/initialized`: tells now what changed since the host listed it.
    pub(super) fn announce_missed(&mut self) {
        for (method, kinds) in &ANNOUNCED {
            if kinds.iter().any(|kind| self.given[*kind as usize].is_some()) && self.is_news(kinds) {
                self.say(&format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, method.as_str()));
            }
        }
    }

    fn shown(&self, kind: Kind) -> u64 {
        self.catalog.snapshot(kind).revision()
    }

    /// A notification of ours; it waits for `notifications/initialized`. Told twice, it is told once.
    pub(super) fn notify_host(&mut self, text: &str) {
        if self.session.is_initialized() {
            self.say(text);
        } else if self.session.is_opened() && !self.session.held.iter().any(|(_, held)| held == text.as_bytes()) {
            self.session.held.push((None, Bytes::copy_from_slice(text.as_bytes())));
        }
    }
}

/// Logs each repair that the part before had not: what one kind adds is built with all others, and again in each life.
fn tell_repairs(server: &str, before: Option<&Part>, part: &Part) {
    let known: HashSet<&Repair> = before.into_iter().flat_map(Part::repairs).collect();
    let new: Vec<&Repair> = part.repairs().iter().filter(|repair| !known.contains(repair)).collect();
    for repair in new.iter().take(REPAIRS_TOLD) {
        tracing::warn!(%server, kind = repair.kind.noun(), name = %repair.name, "repaired: {}", repair.what);
    }
    if let Some(more) = new.len().checked_sub(REPAIRS_TOLD).filter(|more| *more > 0) {
        tracing::warn!(%server, more, "more entries were repaired; `mcp-proxy check --start` lists them all");
    }
}
