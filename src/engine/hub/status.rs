//! What `status` and `mcp-proxy://status` tell (`DESIGN.md` chapter 10).

use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Broken, Hub};
use crate::engine::catalog::Listing;
use crate::engine::child::{Child, Conn};
use crate::engine::listing::Kind;
use crate::engine::outcome::{GuardRow, OutcomeId, Standing, UnixMs};
use crate::wire::id::HostId;

/// The two resources of our own.
pub(super) const STATUS_URI: &str = "mcp-proxy://status";
/// The ledger, as a resource.
pub(super) const UNKNOWN_URI: &str = "mcp-proxy://unknown";

/// So many unknown outcomes are told apart for `status`, which says no higher number; `mcp-proxy unknown` does.
const UNKNOWN_COUNTED: usize = 65_536;

/// How they are listed.
pub(super) fn own_listing() -> Listing {
    let entry = |uri: &str, name: &str, description: &str| {
        Bytes::from(
            json!({ "uri": uri, "name": name, "description": description, "mimeType": "application/json" }).to_string(),
        )
    };
    Listing {
        resources: vec![
            entry(STATUS_URI, "mcp-proxy status", "The state of all servers behind mcp-proxy."),
            entry(UNKNOWN_URI, "mcp-proxy unknown outcomes", "Calls of which nobody knows whether they ran."),
        ],
        ..Listing::default()
    }
}

impl Hub {
    /// The state of everything, as `status --json` prints it for this process.
    pub fn status(&self) -> Value {
        let client = &self.session.client;
        let host = self.session.is_opened().then(
            || json!({ "name": client.name, "version": client.version, "protocol": self.session.revision.as_str() }),
        );
        json!({
            "pid": self.about.pid,
            "version": env!("CARGO_PKG_VERSION"),
            "config": self.config.path.display().to_string(),
            "startedAt": self.about.started_at.to_string(),
            "host": host,
            "servers": self.servers_status(),
            "unknown": self.unknown.len(),
        })
    }

    /// `status`, with all that is odd about each server.
    pub fn health(&self) -> Value {
        let mut status = self.status();
        let mut well = true;
        for server in status["servers"].as_array_mut().into_iter().flatten() {
            let mut problems = Vec::new();
            let child = self.present().find(|child| server["name"] == child.config.key.as_str());
            if server["state"] != "ready" {
                well = false;
                problems.push(server["lastError"].as_str().unwrap_or("it is not ready").to_owned());
            }
            if let Some(part) = child.and_then(|child| child.part.as_ref()) {
                problems.extend(
                    part.repairs()
                        .iter()
                        .map(|repair| format!("{} \"{}\": {}", repair.kind.noun(), repair.name, repair.what)),
                );
                problems.extend(
                    part.unmatched_rules()
                        .iter()
                        .map(|rule| format!("{} names {}, which matches nothing", rule.rule, rule.pattern)),
                );
                problems.extend(
                    part.folded_names()
                        .iter()
                        .map(|names| format!("some hosts take these names for one: {}", names.join(", "))),
                );
            }
            server["problems"] = problems.into();
        }
        json!({ "ok": well, "servers": status["servers"] })
    }

    /// The four merged lists as JSON text, each entry with its `server` and its `original` name.
    pub fn merged_lists(&self) -> String {
        let lists = Kind::ALL.map(|kind| {
            let mut entries = Vec::new();
            for child in self.present() {
                let Some(part) = &child.part else { continue };
                for entry in part.entries(kind) {
                    let raw = &part.rendered(kind)[entry.at.clone()];
                    let raw = std::str::from_utf8(raw).unwrap_or("{}").trim_end();
                    let raw = raw.strip_suffix('}').unwrap_or(raw);
                    let original = std::str::from_utf8(&entry.original_token).unwrap_or("null");
                    entries.push(format!(r#"{raw},"server":{},"original":{original}}}"#, json!(child.config.key)));
                }
            }
            format!(r#""{}":[{}]"#, kind.array_key(), entries.join(","))
        });
        format!("{{{}}}", lists.join(","))
    }

    fn servers_status(&self) -> Vec<Value> {
        let broken = self.broken.iter().map(|broken| {
            json!({ "name": broken.key, "prefix": broken.prefix, "state": "failed", "generation": 0, "lastError": broken.reason })
        });
        self.present().map(Self::server_status).chain(broken).collect()
    }

    fn server_status(child: &Child) -> Value {
        let record = &child.record;
        let count = |kind: Kind| child.part.as_ref().map_or(0, |part| part.entries(kind).len());
        let up_since = record.up_since.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let up_since = up_since.map(|at| UnixMs(u64::try_from(at.as_millis()).unwrap_or_default()).to_string());
        json!({
            "name": child.config.key,
            "prefix": child.config.prefix,
            "state": child.state_name(),
            "generation": child.generation,
            "pid": record.pid,
            "protocol": child.facts.as_ref().map(|facts| facts.revision.as_str()),
            "transport": match child.config.transport {
                crate::config::Transport::Stdio(_) => "stdio",
                crate::config::Transport::Http(_) => "http",
            },
            "tools": count(Kind::Tools),
            "prompts": count(Kind::Prompts),
            "resources": count(Kind::Resources),
            "templates": count(Kind::Templates),
            "pending": child.link.as_ref().map_or(0, crate::engine::link::Link::calls) + child.waiting.len(),
            "calls": record.calls,
            "errors": record.errors,
            "unknown": record.unknown,
            "restarts": record.restarts,
            "repairs": child.part.as_ref().map_or(0, |part| part.repairs().len()),
            "noiseLines": record.noise,
            "lastExit": record.last_exit,
            "lastError": record.last_error,
            "stderr": record.stderr,
            "upSince": up_since,
            "startMs": record.start_took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            "callMs": percentiles(record),
        })
    }

    /// Answers a read of one of our own resources.
    pub(super) fn read_own(&mut self, id: &HostId, uri: &str) -> bool {
        if !self.config.proxy.own_resources || (uri != STATUS_URI && uri != UNKNOWN_URI) {
            return false;
        }
        self.effect(super::Effect::ReadOwn { id: id.clone(), unknown: uri == UNKNOWN_URI });
        true
    }

    /// The text of one of our own resources.
    pub fn answer_own(&mut self, id: &HostId, unknown: bool, text: &str) {
        let uri = if unknown { UNKNOWN_URI } else { STATUS_URI };
        let result = json!({ "contents": [{ "uri": uri, "mimeType": "application/json", "text": text }] });
        self.answer(id, &result.to_string());
    }

    /// The key of the server that a life belongs to.
    pub fn name_of(&self, conn: Conn) -> &str {
        self.children.get(conn.server.0).map_or("", |child| child.config.key.as_str())
    }

    /// Each grace of the stop ladder of that server.
    pub fn grace_of(&self, conn: Conn) -> Duration {
        self.children.get(conn.server.0).map_or(Duration::ZERO, |child| child.config.stop_grace)
    }

    /// Rows of the ledger, own and of other proxies.
    pub fn note_rows(&mut self, now: Instant, rows: Vec<GuardRow>) {
        let unix = self.unix(now);
        for row in rows {
            if row.standing == Standing::Unknown {
                self.count_unknown(row.id);
            } else {
                self.unknown.remove(&row.id);
            }
            self.guard.note(unix, row);
        }
    }

    /// Counts an outcome that is unknown, for `status`.
    pub(super) fn count_unknown(&mut self, id: OutcomeId) {
        if self.unknown.len() < UNKNOWN_COUNTED {
            self.unknown.insert(id);
        }
    }

    /// Rows of earlier lives are being read: calls that might repeat one wait for them, at most until then.
    pub fn await_rows(&mut self, until: Instant) {
        self.rows_until = Some(until);
    }

    /// All rows of earlier lives are known.
    pub fn handle_rows_known(&mut self, now: Instant) {
        self.rows_until = None;
        for id in self.order.clone() {
            if self.child_mut(id).ready_link().is_some() {
                self.flush_waiting(now, id);
            }
        }
    }

    /// A server that was left out because of a fault in its table.
    pub fn note_broken(&mut self, key: &str, prefix: &str, reason: &str) {
        self.broken.push(Broken { key: key.into(), prefix: prefix.into(), reason: reason.into() });
    }
}

/// Of the last calls, in milliseconds.
fn percentiles(record: &crate::engine::child::Record) -> Value {
    if record.durations.is_empty() {
        return Value::Null;
    }
    let mut sorted: Vec<u32> = record.durations.iter().copied().collect();
    sorted.sort_unstable();
    let at = |percent: usize| f64::from(sorted[(sorted.len() - 1) * percent / 100]) / 1000.0;
    json!({ "p50": at(50), "p99": at(99) })
}
