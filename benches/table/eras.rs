//! The eras of the protocol: one call at a time and many of them, for each pair of a host's and a server's.

use crate::cases::Budget::{OfRelayAtLeast, OfRelayAtMost};
use crate::cases::{Case, Metric, Pace, metric, small};
use crate::load::{Goal, Lane, drive};
use crate::probe;
use crate::rig::{Rig, Servers, Via};

/// What a side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25, with a handshake.
    Legacy,
    /// From 2026-07-28 on, with all that is said of a side in each message.
    Modern,
}

/// The modern revision.
pub(crate) const VERSION: &str = "2026-07-28";
/// What a modern client says in each request.
pub(crate) const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"}"#;
/// What a modern server says in each result.
pub(crate) const SIGNED: &str =
    r#""resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"load","version":"1.0.0"}}"#;

pub(crate) fn cases(pace: Pace) -> impl Iterator<Item = Case> {
    let both = [Era::Legacy, Era::Modern];
    both.into_iter().flat_map(move |host| both.into_iter().map(move |server| case(pace, host, server)))
}

fn case(pace: Pace, host: Era, server: Era) -> Case {
    // Across the eras there is no relay of the same messages: the host's own pair stands beside it, and nothing is judged.
    let budget = |budget| (host == server).then_some(budget);
    let metrics = vec![
        Metric { budget: budget(OfRelayAtMost(1.5)), ..metric("p50, one at a time", "µs") },
        metric("CPU of 1,000 calls, one at a time", "ms"),
        Metric { budget: budget(OfRelayAtLeast(0.7)), ..metric("rate, 64 in flight", "calls/s") },
        Metric { budget: budget(OfRelayAtMost(3.0)), ..metric("CPU of 1,000 calls, 64 in flight", "ms") },
    ];
    let measure = move |rig: &Rig, via| {
        // Without a proxy a server of the host's own era is all that the host can speak to.
        let era = if via == Via::Proxy { server } else { host };
        let servers = Servers { host, era, ..Servers::of(1) };
        let mut client = rig.open(via, servers)?;
        let mut values = Vec::new();
        for (window, calls) in [(1, 2000), (64, 20_000)] {
            let lanes = [Lane::new([Rig::tool(via, servers, 0, "echo")], &small(), window)];
            let goal = pace.goal(calls);
            drive(&mut client, &lanes, Goal { calls: goal.calls.div_ceil(10), time: goal.time / 8 })?;
            let before = probe::cpu(client.pid()).unwrap_or_default();
            let outcome = drive(&mut client, &lanes, goal)?;
            let used = probe::cpu(client.pid()).unwrap_or_default().saturating_sub(before);
            values.push(if window == 1 { outcome.micros(0.5) } else { outcome.per_second() });
            // Without anything between, that would be the server's.
            let used = used.as_secs_f64() * 1e6 / outcome.calls() as f64;
            values.push(if via == Via::Direct { f64::NAN } else { used });
        }
        client.close()?;
        Ok(Some(values))
    };
    let (host, server) = (host.name(), server.name());
    Case {
        key: format!("era-{host}-{server}"),
        title: format!("{host} host, {server} server, 100 B"),
        metrics,
        measure: Box::new(measure),
    }
}

// === impl Era ===

impl Era {
    fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}
