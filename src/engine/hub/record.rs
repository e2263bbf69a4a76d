//! A call is over: its line in the log, and its place among the last ones.

use std::fmt;
use std::time::Instant;

use serde_json::{Value, json};

use super::Hub;
use crate::engine::child::{Conn, ServerId};
use crate::engine::link::{About, Call};
use crate::engine::recent::Outcome;
use crate::wire::json as text;

impl Hub {
    /// A call that was given to a life of its server is over.
    pub(super) fn call_over(&mut self, now: Instant, conn: Conn, call: &Call, outcome: Outcome) {
        let took = now.saturating_duration_since(call.since);
        self.recent.note(now, conn.server, name_of(call), took, outcome);
        if tracing::enabled!(tracing::Level::DEBUG, server) {
            let key = self.child(conn.server).config.key.as_str();
            let number = call.wire.map(|wire| format!("{}:{}", conn.generation, wire.0));
            let (trace, request) = (traceparent(call), number.as_deref());
            tracing::debug!(
                server = key, id = %call.host_id, request, method = call.method.as_str(), name = name_of(call),
                ms = %Millis(took), outcome = outcome.name(), traceparent = trace.as_deref(), "call"
            );
        }
    }

    /// A call is over that was given to no life of its server.
    pub(super) fn call_unsent(&mut self, now: Instant, server: ServerId, call: &Call) {
        self.call_over(now, Conn { server, generation: self.child(server).generation }, call, Outcome::NotSent);
    }

    /// The status with the last calls, the latest first, for `top`.
    pub fn overview(&self) -> Value {
        let calls = self.recent.latest_first().map(|entry| {
            json!({
                "server": self.child(entry.server).config.key,
                "name": entry.name.as_str(),
                "ms": millis(entry.took),
                "outcome": entry.outcome.name(),
                "at": self.unix(entry.at).to_string(),
            })
        });
        json!({ "status": self.status(), "recent": calls.collect::<Vec<_>>() })
    }
}

/// What was asked for: the name that the host used, else the method.
fn name_of(call: &Call) -> &str {
    match &call.about {
        About::Tool(tool) => &tool.exposed,
        About::Prompt(name) => name,
        About::Resource(uri) | About::Subscribe { own: uri, .. } => uri,
        About::Unsubscribe | About::Completion | About::Task(_) => call.method.as_str(),
    }
}

/// The trace context that the host gave in `_meta`, if it has the form of one.
fn traceparent(call: &Call) -> Option<String> {
    let frame = &call.frame;
    let at = text::path(frame, 0..frame.len(), &["params", "_meta", "traceparent"])?;
    let value = text::string(frame, at)?;
    let lawful =
        (55..=256).contains(&value.len()) && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    lawful.then(|| value.into_owned())
}

fn millis(took: std::time::Duration) -> f64 {
    f64::from(u32::try_from(took.as_micros()).unwrap_or(u32::MAX)) / 1000.0
}

struct Millis(std::time::Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", millis(self.0))
    }
}
