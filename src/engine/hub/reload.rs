//! Another configuration: what stays, what is replaced, what comes and goes (`DESIGN.md` chapter 3).

use std::sync::Arc;
use std::time::Instant;

use super::Hub;
use crate::config::{Config, Server, Start};
use crate::engine::catalog::{Catalog, Changed, Part};
use crate::engine::child::{Rest, ServerId, State, Then};
use crate::engine::listing::Kind;
use crate::engine::names::Naming;

/// A server of the new configuration with what its references expand to.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its table.
    pub server: Arc<Server>,
    /// Whether what makes it another process is the same as before; `true` for one that was not there.
    pub same_launch: bool,
    /// What the cache has of it, if it is new or another.
    pub known: Option<super::Known>,
}

impl Hub {
    /// Takes over another configuration. `incoming` holds its servers in their order.
    pub fn handle_reload(&mut self, now: Instant, config: Arc<Config>, incoming: Vec<Incoming>) {
        if self.stopping.is_some() {
            return;
        }
        let old_order = std::mem::take(&mut self.order);
        let naming = Naming::new(&config);
        let renamed = naming != self.naming;
        self.naming = naming;
        self.server_info = super::modern::server_info(&config);
        self.config = Arc::clone(&config);
        let mut started = Vec::new();
        let mut replaced = Vec::new();
        for Incoming { server, same_launch, known } in incoming {
            let old = old_order.iter().copied().find(|id| self.child(*id).config.key == server.key);
            let Some(id) = old else {
                let id = self.add_child(now, server, known);
                self.order.push(id);
                started.push(id);
                continue;
            };
            self.order.push(id);
            let was_lazy = self.child(id).config.start == Start::Lazy;
            if !same_launch {
                let is_known = known.is_some();
                if let Some(known) = known {
                    self.child_mut(id).remember(known);
                }
                // What rests goes on resting: what a person stopped, and a lazy server whose new catalog is known.
                let unused = self.child(id).state == State::Stopped(Rest::UntilUsed);
                let rests = self.child(id).is_put_away() || (unused && server.start == Start::Lazy && is_known);
                if !rests {
                    replaced.push(id);
                }
            } else if was_lazy
                && server.start == Start::Eager
                && self.child(id).state == State::Stopped(Rest::UntilUsed)
            {
                started.push(id);
            }
            let child = self.child_mut(id);
            let render = renamed || *child.config != *server;
            child.scheme = crate::engine::uri::safe_prefix(&server.prefix);
            child.config = server;
            if render {
                child.part = None;
            }
        }
        self.catalog_anew(now, &old_order);
        self.take_down(now, &old_order);
        for id in started {
            self.start_if_due(now, id);
        }
        for id in replaced {
            self.drain(now, id, Then::Start, false);
        }
        for id in self.order.clone() {
            if matches!(self.child(id).state, State::Failed { .. }) {
                let child = self.child_mut(id);
                child.restart.forgive();
                child.state = State::Stopped(Rest::UntilUsed);
                self.start_if_due(now, id);
            }
        }
        self.answer_lists(now);
    }

    /// Builds the merged view of the new order; parts that are the same are taken over as they are.
    pub(super) fn catalog_anew(&mut self, now: Instant, old_order: &[ServerId]) {
        let mut catalog = self.next_catalog(old_order);
        let mut rendered = Vec::new();
        for (position, id) in self.order.iter().enumerate() {
            let child = &self.children[id.0];
            let part = match &child.part {
                Some(part) => Some(Arc::clone(part)),
                None if child.is_put_away() => None,
                None if child.listed.iter().any(|listed| *listed) => {
                    Some(Arc::new(crate::engine::catalog::build_part(
                        &self.naming,
                        &child.config,
                        &child.listing,
                        self.render_class(),
                    )))
                }
                None => None,
            };
            if let Some(part) = part {
                catalog.set(position, Arc::clone(&part));
                rendered.push((*id, part));
            }
        }
        for (id, part) in rendered {
            self.child_mut(id).part = Some(part);
        }
        let differs = |kinds: &[Kind]| {
            kinds.iter().any(|kind| !self.catalog.snapshot(*kind).same_bytes(&catalog.snapshot(*kind)))
        };
        let changed = Changed {
            tools: differs(&[Kind::Tools]),
            prompts: differs(&[Kind::Prompts]),
            resources: differs(&[Kind::Resources, Kind::Templates]),
        };
        self.catalog = catalog;
        self.note_changed(now, changed);
    }

    /// Places for all servers, and our own resources behind them. What was seen of a server is taken along.
    fn next_catalog(&self, old_order: &[ServerId]) -> Catalog {
        let old_places = self.order.iter().map(|id| old_order.iter().position(|old| old == id));
        let mut catalog = self.catalog.successor(old_places.chain([None]));
        if self.config.proxy.own_resources {
            catalog.set(self.order.len(), Arc::new(Part::verbatim("mcp-proxy", &super::status::own_listing())));
        }
        catalog
    }

    /// Those that left: what is pending may finish, what waits gets its answer.
    fn take_down(&mut self, now: Instant, old_order: &[ServerId]) {
        for id in old_order {
            if !self.order.contains(id) {
                tracing::info!(server = %self.child(*id).config.key, "removed from the configuration");
                self.refuse_waiting(now, *id, "removed");
                self.drain(now, *id, Then::Remove, false);
                self.session.watches.retain(|(server, _), _| server != id);
            }
        }
    }
}
