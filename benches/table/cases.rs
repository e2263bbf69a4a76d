//! What is measured: one case after the other, in the order of the table.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::client::Client;
use crate::eras;
use crate::load::{Goal, Lane, Outcome, drive};
use crate::probe;
use crate::rig::{Rig, Servers, Via};
use crate::server::filler;
use crate::watched;

/// What is done once for each round and each way, and what comes of it.
pub(crate) struct Case {
    /// For `--rows`.
    pub(crate) key: String,
    /// What is done, for people.
    pub(crate) title: String,
    pub(crate) metrics: Vec<Metric>,
    /// One value for each metric; `None`: that way has no such thing.
    #[expect(clippy::type_complexity, reason = "said once")]
    pub(crate) measure: Box<dyn Fn(&Rig, Via) -> anyhow::Result<Option<Vec<f64>>>>,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) budget: Option<Budget>,
}

/// What the proxy must keep to (`DESIGN.md` chapter 13).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// So many times the relay's value at most.
    OfRelayAtMost(f64),
    /// So many times the relay's value at least.
    OfRelayAtLeast(f64),
    /// So much more than without anything between, at most.
    OverDirectAtMost(f64),
    /// At most.
    AtMost(f64),
}

use Budget::{AtMost, OfRelayAtLeast, OfRelayAtMost, OverDirectAtMost};

pub(crate) const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, budget: None }
}

const fn judged(name: &'static str, unit: &'static str, budget: Budget) -> Metric {
    Metric { name, unit, budget: Some(budget) }
}

/// A small call: a hundred bytes of text.
pub(crate) fn small() -> String {
    format!("{{\"text\":\"{}\"}}", filler(100))
}

/// How long is measured.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    quick: bool,
}

pub(crate) fn all(quick: bool) -> Vec<Case> {
    let pace = Pace { quick };
    let mut cases = vec![one_at_a_time(pace)];
    cases.extend(
        [(1, false), (16, false), (64, false), (64, true)].map(|(window, batch)| in_flight(pace, window, batch)),
    );
    cases.extend(sizes(quick).iter().map(|(label, size)| results(pace, label, *size)));
    cases.extend(sizes(quick).iter().map(|(label, size)| arguments(pace, label, *size)));
    cases.extend(eras::cases(pace));
    cases.extend(counts(quick).iter().map(|count| children(pace, *count)));
    cases.extend([storm(pace), beside_a_stream(pace), beside_sleepers(pace)]);
    cases.extend(
        lists(quick).iter().map(|tools| list(format!("list-{tools}"), Servers { tools: *tools, ..Servers::of(1) })),
    );
    if !quick {
        cases.push(list("list-20x500".into(), Servers { tools: 500, tool_bytes: 2048, ..Servers::of(20) }));
    }
    cases.extend(counts(quick).iter().map(|count| start(*count)));
    cases.extend(counts(quick).iter().map(|count| start_cached(*count)));
    cases.push(intent(pace));
    cases.push(memory(quick));
    cases.extend([watched_case("watched", "", quick), watched_case("watched-debug", "level = \"debug\"", quick)]);
    cases
}

fn sizes(quick: bool) -> &'static [(&'static str, usize)] {
    let all = &[("100B", 100), ("10KiB", 10 << 10), ("1MiB", 1 << 20), ("16MiB", 16 << 20)];
    if quick { &all[..3] } else { all }
}

fn counts(quick: bool) -> &'static [usize] {
    if quick { &[1, 5] } else { &[1, 5, 20, 50] }
}

fn lists(quick: bool) -> &'static [usize] {
    if quick { &[10, 1000] } else { &[10, 100, 1000, 20_000] }
}

// === impl Pace ===

impl Pace {
    pub(crate) fn goal(self, calls: usize) -> Goal {
        if self.quick {
            Goal { calls: calls.div_ceil(20), time: Duration::from_millis(50) }
        } else {
            Goal { calls, time: Duration::from_millis(400) }
        }
    }

    /// Warms up, then measures.
    fn drive(self, client: &mut Client, lanes: &[Lane], calls: usize) -> anyhow::Result<Outcome> {
        let goal = self.goal(calls);
        drive(client, lanes, Goal { calls: goal.calls.div_ceil(10), time: goal.time / 8 })?;
        drive(client, lanes, goal)
    }
}

/// A case over one server, the same for all three ways.
fn alike(
    key: &str,
    title: &str,
    metrics: Vec<Metric>,
    measure: impl Fn(Via, &mut Client) -> anyhow::Result<Vec<f64>> + 'static,
) -> Case {
    alike_with(Servers::of(1), key, title, metrics, measure)
}

fn alike_with(
    servers: Servers,
    key: &str,
    title: &str,
    metrics: Vec<Metric>,
    measure: impl Fn(Via, &mut Client) -> anyhow::Result<Vec<f64>> + 'static,
) -> Case {
    let measure = move |rig: &Rig, via| {
        let mut client = rig.open(via, servers)?;
        let values = measure(via, &mut client)?;
        client.close()?;
        Ok(Some(values))
    };
    Case { key: key.into(), title: title.into(), metrics, measure: Box::new(measure) }
}

fn lane(via: Via, tool: &str, arguments: &str, window: usize) -> Lane {
    Lane::new([Rig::tool(via, Servers::of(1), 0, tool)], arguments, window)
}

fn one_at_a_time(pace: Pace) -> Case {
    let metrics = vec![judged("p50", "µs", OfRelayAtMost(1.5)), metric("p99", "µs")];
    alike("call", "one call at a time, 100 B", metrics, move |via, client| {
        let outcome = pace.drive(client, &[lane(via, "echo", &small(), 1)], 2000)?;
        Ok(vec![outcome.micros(0.5), outcome.micros(0.99)])
    })
}

fn in_flight(pace: Pace, window: usize, batch: bool) -> Case {
    let rate = Metric { name: "rate", unit: "calls/s", budget: (window > 1).then_some(OfRelayAtLeast(0.7)) };
    let cpu = Metric { name: "CPU of 1,000 calls", unit: "ms", budget: (window == 64).then_some(OfRelayAtMost(3.0)) };
    let peers = if batch { ("-batched", ", both ends gather messages into one write") } else { ("", "") };
    let title = format!("{window} in flight, 100 B{}", peers.1);
    let servers = Servers { batch, ..Servers::of(1) };
    alike_with(servers, &format!("inflight-{window}{}", peers.0), &title, vec![rate, cpu], move |via, client| {
        let lane = lane(via, "echo", &small(), window);
        let lanes = [if batch { lane.batched() } else { lane }];
        drive(client, &lanes, pace.goal(1000))?;
        let before = probe::cpu(client.pid()).unwrap_or_default();
        let outcome = drive(client, &lanes, pace.goal(20_000))?;
        let used = probe::cpu(client.pid()).unwrap_or_default().saturating_sub(before);
        // Without anything between, that would be the server's.
        let used = if via == Via::Direct { f64::NAN } else { used.as_secs_f64() * 1e6 / outcome.calls() as f64 };
        Ok(vec![outcome.per_second(), used])
    })
}

/// Fewer calls of what is large.
fn calls_of(size: usize) -> usize {
    ((64 << 20) / size).clamp(4, 2000)
}

fn mega_bytes(outcome: &Outcome, size: usize) -> f64 {
    outcome.per_second() * size as f64 / 1e6
}

fn results(pace: Pace, label: &str, size: usize) -> Case {
    let budget = (label == "1MiB").then_some(OfRelayAtLeast(0.8));
    let metrics = vec![Metric { name: "throughput", unit: "MB/s", budget }];
    alike(&format!("results-{label}"), &format!("results of {label}, one at a time"), metrics, move |via, client| {
        let arguments = format!("{{\"size\":{size}}}");
        let outcome = pace.drive(client, &[lane(via, "big", &arguments, 1)], calls_of(size))?;
        Ok(vec![mega_bytes(&outcome, size)])
    })
}

fn arguments(pace: Pace, label: &str, size: usize) -> Case {
    let metrics = vec![metric("throughput", "MB/s")];
    alike(
        &format!("arguments-{label}"),
        &format!("arguments of {label}, one at a time"),
        metrics,
        move |via, client| {
            let arguments = format!("{{\"text\":\"{}\"}}", filler(size));
            let outcome = pace.drive(client, &[lane(via, "sink", &arguments, 1)], calls_of(size))?;
            Ok(vec![mega_bytes(&outcome, size)])
        },
    )
}

fn children(pace: Pace, count: usize) -> Case {
    let measure = move |rig: &Rig, via| {
        // The relay has one server, whatever stands beside the proxy's.
        let servers = Servers::of(if via == Via::Proxy { count } else { 1 });
        let mut client = rig.open(via, servers)?;
        let tools = (0..servers.count).map(|number| Rig::tool(via, servers, number, "echo"));
        let outcome = pace.drive(&mut client, &[Lane::new(tools, &small(), 1)], 2000)?;
        client.close()?;
        Ok(Some(vec![outcome.micros(0.5)]))
    };
    let title = format!("calls to {count} children in turn");
    Case { key: format!("children-{count}"), title, metrics: vec![metric("p50", "µs")], measure: Box::new(measure) }
}

fn storm(pace: Pace) -> Case {
    let count = if pace.quick { 500 } else { 10_000 };
    let metrics = vec![metric("rate", "notifications/s"), metric("lost", "")];
    alike("storm", &format!("{count} progress notifications to a call"), metrics, move |via, client| {
        let arguments = format!("{{\"count\":{count}}}");
        let outcome = pace.drive(client, &[lane(via, "storm", &arguments, 1).with_progress()], 5)?;
        let sent = outcome.calls() * count;
        Ok(vec![outcome.notifications as f64 / outcome.seconds, sent.saturating_sub(outcome.notifications) as f64])
    })
}

fn beside_a_stream(pace: Pace) -> Case {
    let size = if pace.quick { 1 << 20 } else { 4 << 20 };
    let measure = move |rig: &Rig, via| {
        if via == Via::Direct {
            return Ok(None);
        }
        let servers = Servers::of(2);
        let mut client = rig.open(via, servers)?;
        let echo = Lane::new([Rig::tool(via, servers, 1, "echo")], &small(), 1);
        let stream = Lane::new([Rig::tool(via, servers, 0, "big")], &format!("{{\"size\":{size}}}"), 2);
        let outcome = pace.drive(&mut client, &[echo, stream], 100)?;
        client.close()?;
        Ok(Some(vec![outcome.micros(0.5), outcome.micros(0.99)]))
    };
    Case {
        key: "beside-stream".into(),
        title: "an echo on B while A streams 4 MiB results".into(),
        metrics: vec![judged("p50", "µs", OfRelayAtMost(1.5)), judged("p99", "µs", OfRelayAtMost(1.5))],
        measure: Box::new(measure),
    }
}

fn beside_sleepers(pace: Pace) -> Case {
    let measure = move |rig: &Rig, via| {
        if via == Via::Direct {
            return Ok(None);
        }
        let servers = Servers::of(2);
        let mut client = rig.open(via, servers)?;
        let echo = Lane::new([Rig::tool(via, servers, 1, "echo")], &small(), 1);
        let idle = pace.drive(&mut client, std::slice::from_ref(&echo), 2000)?;
        let sleepers = Lane::new([Rig::tool(via, servers, 0, "sleep")], "{\"ms\":600000}", 50).endless();
        let asleep = drive(&mut client, &[echo, sleepers], pace.goal(2000))?;
        // Not closed but dropped: the calls that sleep need not be waited for.
        drop(client);
        let (idle, asleep) = (idle.micros(0.5), asleep.micros(0.5));
        Ok(Some(vec![idle, asleep, asleep / idle]))
    };
    Case {
        key: "beside-sleepers".into(),
        title: "an echo on B while 50 calls sleep on A".into(),
        // "As with an idle A": what lies within the noise of one run.
        metrics: vec![
            metric("p50, A idle", "µs"),
            metric("p50, 50 asleep", "µs"),
            judged("asleep to idle", "×", AtMost(1.15)),
        ],
        measure: Box::new(measure),
    }
}

fn list(key: String, servers: Servers) -> Case {
    let many = servers.count > 1;
    let title = if many {
        format!("list of {} children × {} tools of {} B", servers.count, servers.tools, servers.tool_bytes)
    } else {
        format!("list of {} tools", servers.tools)
    };
    let measure = move |rig: &Rig, via| {
        // Without a proxy, one server has them all.
        let whole = servers.count * servers.tools;
        let servers = if via == Via::Proxy { servers } else { Servers { count: 1, tools: whole, ..servers } };
        let mut client = rig.open(via, servers)?;
        let mut times = Vec::new();
        let mut bytes = 0;
        let before = probe::cpu(client.pid()).unwrap_or_default();
        for _ in 0..20 {
            let started = Instant::now();
            bytes = client.ask("tools/list", "{}")?.len();
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let used = probe::cpu(client.pid()).unwrap_or_default().saturating_sub(before).as_secs_f64() * 1e3;
        client.close()?;
        times.sort_by(f64::total_cmp);
        Ok(Some(vec![times[times.len() / 2], used / times.len() as f64, bytes as f64]))
    };
    // The time contains the client's and, without a proxy, the server's own: what the proxy itself takes is judged.
    let cpu = Metric { name: "CPU", unit: "ms", budget: many.then_some(AtMost(10.0)) };
    let metrics = vec![metric("time", "ms"), cpu, metric("size", "bytes")];
    Case { key, title, metrics, measure: Box::new(measure) }
}

fn start(count: usize) -> Case {
    let measure = move |rig: &Rig, via| {
        let servers = Servers::of(count);
        if via == Via::Direct {
            return Ok(Some(vec![f64::NAN, rig.slowest_list(servers)?.as_secs_f64() * 1e3]));
        }
        if via == Via::Relay && count > 1 {
            return Ok(None);
        }
        started(rig, via, servers, &rig.state()?).map(Some)
    };
    let complete =
        Metric { name: "complete list", unit: "ms", budget: (count == 20).then_some(OverDirectAtMost(20.0)) };
    let title = format!("start without cache, {}", children_text(count));
    Case {
        key: format!("start-{count}"),
        title,
        metrics: vec![metric("initialize", "ms"), complete],
        measure: Box::new(measure),
    }
}

fn start_cached(count: usize) -> Case {
    let measure = move |rig: &Rig, via| {
        if via != Via::Proxy {
            return Ok(None);
        }
        let state = rig.state()?;
        started(rig, via, Servers::of(count), &state)?;
        started(rig, via, Servers::of(count), &state).map(Some)
    };
    let title = format!("start with cache, {}", children_text(count));
    let metrics = vec![judged("initialize", "ms", AtMost(15.0)), metric("complete list", "ms")];
    Case { key: format!("start-cached-{count}"), title, metrics, measure: Box::new(measure) }
}

fn children_text(count: usize) -> String {
    if count == 1 { "1 child".into() } else { format!("{count} children") }
}

/// From the start of the command to the answer of `initialize`, and to the complete list, in milliseconds.
fn started(rig: &Rig, via: Via, servers: Servers, state: &crate::rig::State) -> anyhow::Result<Vec<f64>> {
    let mut client = rig.spawn(via, servers, state)?;
    let initialized = client.handshake()?;
    client.list_of(servers.count * servers.tools)?;
    let complete = client.age();
    // Children that start behind a cache do so undisturbed, and what they tell is written down.
    sleep(Duration::from_millis(300));
    client.close()?;
    Ok(vec![initialized.as_secs_f64() * 1e3, complete.as_secs_f64() * 1e3])
}

fn intent(pace: Pace) -> Case {
    let metrics = vec![
        metric("p50, read-only", "µs"),
        metric("p50, plain", "µs"),
        judged("CPU of the proxy, difference of a call", "µs", AtMost(3.0)),
    ];
    alike("intent", "intent and settlement: a plain tool beside a read-only one", metrics, move |via, client| {
        let mut values = Vec::new();
        let mut costs = Vec::new();
        for tool in ["echo", "write"] {
            let lanes = [lane(via, tool, &small(), 1)];
            drive(client, &lanes, pace.goal(500))?;
            let before = probe::cpu(client.pid()).unwrap_or_default();
            let outcome = drive(client, &lanes, pace.goal(10_000))?;
            let used = probe::cpu(client.pid()).unwrap_or_default().saturating_sub(before);
            values.push(outcome.micros(0.5));
            costs.push(used.as_secs_f64() * 1e6 / outcome.calls() as f64);
        }
        values.push(costs[1] - costs[0]);
        Ok(values)
    })
}

fn watched_case(key: &str, log: &'static str, quick: bool) -> Case {
    let metrics = vec![
        metric("p50, nobody looks", "µs"),
        metric("p50, status --watch, top and logs -f", "µs"),
        judged("watched to not", "×", AtMost(1.05)),
    ];
    let lines = if log.is_empty() { "" } else { ", a line of the log for each call" };
    watched::case(key, &format!("one call at a time while people look on{lines}"), metrics, log, quick)
}

fn memory(quick: bool) -> Case {
    let measure = move |rig: &Rig, via| {
        if via != Via::Proxy {
            return Ok(None);
        }
        let servers = Servers::of(20);
        let mut client = rig.open(via, servers)?;
        sleep(Duration::from_secs(1));
        let family = probe::family(client.pid());
        let now = || {
            let sizes = family.iter().map(|pid| probe::resident(*pid).context("its memory can't be read"));
            anyhow::Ok(sizes.sum::<anyhow::Result<u64>>()? as f64 / 1024.0)
        };
        let idle = now()?;
        let share = family.iter().filter_map(|pid| probe::proportional(*pid)).sum::<u64>() as f64 / 1024.0;
        let tools = (0..servers.count).map(|number| Rig::tool(via, servers, number, "big"));
        let lanes = [Lane::new(tools, "{\"size\":1048576}", 64)];
        drive(&mut client, &lanes, Goal { calls: if quick { 128 } else { 512 }, time: Duration::ZERO })?;
        let peak = probe::resident_peak(client.pid()).context("its memory can't be read")? as f64 / 1024.0;
        sleep(Duration::from_secs(if quick { 1 } else { 3 }));
        let after = now()?;
        let processes = family.len();
        ensure!(processes < 4, "{processes} processes are more than a proxy and its guard");
        client.close()?;
        Ok(Some(vec![idle, share, peak, after, processes as f64]))
    };
    Case {
        key: "memory".into(),
        title: "memory, 20 children of 10 tools, guard included".into(),
        metrics: vec![
            judged("idle", "MiB", AtMost(15.0)),
            metric("idle, shared pages counted once", "MiB"),
            metric("peak, 64 in flight of 1 MiB", "MiB"),
            metric("3 s after it", "MiB"),
            metric("processes", ""),
        ],
        measure: Box::new(measure),
    }
}
