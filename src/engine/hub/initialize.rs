//! The host's handshake (`PROTOCOL.md` 2.2, 4.1, 6.3).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Hub;
use super::from_host::Request;
use crate::engine::catalog::RenderClass;
use crate::engine::facts::{self, HostCapabilities};
use crate::engine::session::{Client, Phase};
use crate::hosts;
use crate::wire::method::Revision;

/// How long a first complete list may take where neither the file nor the host table says.
const LIST_WAIT: Duration = Duration::from_secs(8);

impl Hub {
    pub(super) fn initialize(&mut self, now: Instant, request: Request) {
        let params: Value =
            request.params.whole.and_then(|at| serde_json::from_slice(&request.frame[at]).ok()).unwrap_or_default();
        let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let text = |pointer: &str| params.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        self.session.revision =
            Revision::parse(asked).filter(|revision| revision.is_legacy()).unwrap_or(Revision::NEWEST_LEGACY);
        self.session.client = Client { name: text("/clientInfo/name"), version: text("/clientInfo/version") };
        self.session.capabilities = HostCapabilities::read(params.get("capabilities").unwrap_or(&Value::Null));
        tracing::info!(
            host = %self.session.client.name, version = %self.session.client.version,
            protocol = self.session.revision.as_str(), "the host opened the session"
        );
        self.session.phase =
            Phase::Opening { id: request.id, until: now + self.config.proxy.initialize_wait, initialized: false };
        self.opened(now);
        self.answer_initialize(now);
    }

    /// The host has spoken, in either era: lists are waited for from now on, and children are greeted.
    pub(super) fn opened(&mut self, now: Instant) {
        let known = self.host_facts();
        // Looked up once: it is asked for at each call.
        self.call_limit = known.and_then(|host| host.call_limit);
        let list_wait = self.config.proxy.list_wait.or_else(|| known?.list_wait).unwrap_or(LIST_WAIT);
        self.lists_until = Some(now + list_wait);
        self.host_spoke();
        let class = self.render_class();
        let bridged = class != RenderClass::Modern && self.present().any(|child| child.capabilities().tasks_extension);
        if bridged || class != RenderClass::of(Revision::NEWEST_LEGACY) {
            // What the cache had was rendered for a host of the newest revision with a handshake, and servers like it.
            for id in self.order.clone() {
                self.child_mut(id).part = None;
            }
            self.catalog_anew(now, &self.order.clone());
            self.announce = [None; 3];
        }
        for id in self.order.clone() {
            self.begin_handshake(now, id);
        }
    }

    /// What entries must be for this host; one that speaks both eras gets what both can read.
    pub(super) fn render_class(&self) -> RenderClass {
        match (&self.session.phase, &self.session.sender) {
            (Phase::Unopened, Some(_)) => RenderClass::Modern,
            _ => RenderClass::of(self.session.revision),
        }
    }

    /// What the table knows of this host.
    pub(super) fn host_facts(&self) -> Option<&'static hosts::Host> {
        hosts::by_client_name(self.host_name())
    }

    /// What the host calls itself.
    pub(super) fn host_name(&self) -> &str {
        match (&self.session.phase, &self.session.sender) {
            (Phase::Unopened, Some(sender)) => &sender.client.name,
            _ => &self.session.client.name,
        }
    }

    /// Answers `initialize` if all children are known, or if its time is over.
    pub(super) fn answer_initialize(&mut self, now: Instant) {
        let Phase::Opening { id, until, initialized } = &self.session.phase else { return };
        if now < *until && !self.present().all(crate::engine::child::Child::is_known) {
            return;
        }
        let (id, initialized) = (id.clone(), *initialized);
        self.session.phase = Phase::Open;
        let result = self.initialize_result();
        self.answer(&id, &result.to_string());
        if initialized {
            self.host_initialized();
        }
    }

    fn initialize_result(&self) -> Value {
        let revision = self.session.revision;
        let mut info = Map::new();
        info.insert("name".into(), self.config.proxy.name.as_str().into());
        if revision >= Revision::V2025_06_18 && !self.config.proxy.title.is_empty() {
            info.insert("title".into(), self.config.proxy.title.as_str().into());
        }
        info.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        let mut result = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": facts::declared(self.present().map(crate::engine::child::Child::capabilities), revision),
            "serverInfo": info,
        });
        let instructions = self.instructions();
        if !instructions.is_empty() {
            result["instructions"] = instructions.into();
        }
        result
    }

    /// Ours first, then a section for each child that has some, in the order of the file.
    pub(super) fn instructions(&self) -> String {
        let mut out = self.config.proxy.instructions.trim().to_owned();
        for child in self.present() {
            let Some(text) = child.facts.as_ref().and_then(|facts| facts.instructions.as_deref()) else { continue };
            if text.trim().is_empty() {
                continue;
            }
            if !out.is_empty() {
                out.push_str("\n\n");
            }
            let (key, prefix) = (&child.config.key, &child.config.prefix);
            if prefix.is_empty() {
                let _ = write!(out, "## {key}\n\n{text}");
            } else {
                let _ = write!(out, "## {key} (names begin with {prefix}{})\n\n{text}", self.config.proxy.separator);
            }
        }
        out
    }
}
