//! Floods, deaf children, hosts that do not read, a log that nobody reads (F39 to F42).

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::crash::memory_of;
use crate::harness::{Host, SOON, Setup};

/// A small call, and how long it took.
fn quick(host: &mut Host, tool: &str) -> Duration {
    let start = Instant::now();
    host.call(tool, "{}").result();
    start.elapsed()
}

#[test]
fn f39_stderr_is_read_whatever_comes() {
    let mut host = Setup::new().server("x", "stderr=1048576").open();
    for _ in 0..30 {
        host.call("x__flood_stderr", r#"{"bytes":102400}"#).result();
    }
    host.call("x__flood_stderr", r#"{"bytes":3000000,"line":100}"#).result();
    // The count is told with the first line of a later second.
    while !host.stderr().contains("were left out of the log") {
        host.call("x__flood_stderr", r#"{"bytes":10,"line":10}"#).result();
    }
    let log = host.stderr();
    assert!(log.len() < 1 << 20, "{} bytes of log", log.len());
    assert!(log.contains("server=x"), "attributed");
}

#[test]
fn f39_a_log_that_nobody_reads_stops_nothing() {
    let mut host = Setup::new().server("x", "").server("y", "").log_unread().open();
    for _ in 0..20 {
        host.call("x__flood_stderr", r#"{"bytes":100000,"line":100}"#).result();
        host.call("x__noise", r#"{"kind":"text","n":100}"#).result();
        assert!(quick(&mut host, "y__echo") < SOON);
    }
    host.call("x__kill", "{}").error(-31010);
    host.call("x__echo", "{}").result();
    let start = Instant::now();
    host.close();
    assert_eq!(host.exit().code(), Some(0));
    assert!(start.elapsed() < SOON, "the end does not wait for the log: {:?}", start.elapsed());
}

#[test]
fn f40_a_child_that_stops_reading_costs_its_own_calls_alone() {
    let limit = "call_max_time = \"15s\"\nstop_grace = \"100ms\"";
    let mut host = Setup::new().proxy("max_message = \"4MiB\"").tuned("deaf", "", limit).server("good", "").open();
    host.call("deaf__stop_reading", "{}").result();
    let before = memory_of(host.pid);
    let text = "m".repeat(1 << 20);
    let ids: Vec<String> =
        (0..60).map(|n| host.request_call("deaf__echo", &format!(r#"{{"n":{n},"text":"{text}"}}"#))).collect();
    // Behind 60 MiB in the host's own pipe.
    quick(&mut host, "good__echo");
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        slowest = slowest.max(quick(&mut host, "good__echo"));
    }
    // What waits for the deaf one waits 15 s.
    assert!(slowest < SOON, "{slowest:?}");
    let memory = memory_of(host.pid).saturating_sub(before);
    println!("{} MiB more while {} MiB were sent to a deaf child", memory >> 20, ids.len());
    // 12 MiB of lines may wait, and each lies in a buffer of its size. All 60 MiB kept would be far over this.
    assert!(memory < 32 << 20, "{memory} bytes more");
    // A cancelled call that was not sent leaves no trace; its slot is free.
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{}}}"#, ids[10]));
    let (mut busy, mut unsent, mut unknown) = (0, 0, 0);
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| *n != 10) {
        let answer = host.wait(id);
        match answer.value()["error"]["code"].as_i64() {
            Some(-31011) if answer.value()["error"]["data"]["reason"] == "busy" => busy += 1,
            Some(-31011) => unsent += 1,
            Some(-31010) => unknown += 1,
            other => panic!("call {n}: {other:?}"),
        }
    }
    assert!(busy >= 47, "{busy} of 60 MiB were refused, where 12 MiB may wait");
    assert!(unsent >= 9, "{unsent} were not sent");
    assert!(unknown <= 2, "{unknown}: only what has begun to be written may have run");
    // It can be taken out.
    host.reconfigure(|text| text.replace("[servers.deaf]\n", "[servers.deaf]\nenabled = false\n"));
    host.signal(rustix::process::Signal::HUP);
    host.names_until("tools", "its names are gone", |names| !names.iter().any(|name| name.starts_with("deaf")));
    host.until("its process is gone", || host.living().len() == 2);
}

#[test]
fn f41_a_host_that_does_not_read_slows_the_flood_and_not_the_memory() {
    let mut host = Setup::new().server("flood", "").server("good", "").open();
    for server in ["flood", "good"] {
        host.call(&format!("{server}__echo"), "{}").result();
    }
    let before = memory_of(host.pid);
    host.read(false);
    // Log messages may be dropped; the answers come behind them.
    let dropped = host.request_call("flood__flood_stdout", r#"{"n":1500,"bytes":65536}"#);
    let answer = host.request_call("good__echo", r#"{"through":true}"#);
    let mut most = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        most = most.max(memory_of(host.pid).saturating_sub(before));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(most < 64 << 20, "{most} bytes more while nobody reads");
    host.read(true);
    assert!(host.wait(&answer).text().contains("through"));
    host.wait(&dropped).result();
    host.call("good__echo", "{}").result();
}

#[test]
fn f41_resource_updates_that_may_not_be_dropped_make_the_child_wait() {
    let mut host = Setup::new().server("x", "").server("good", "").open();
    host.call("good__echo", "{}");
    host.names_until("resources", "all are there", |names| names.iter().any(|uri| uri.starts_with("x+")));
    let uri = host.names("resources").into_iter().find(|uri| uri.starts_with("x+")).unwrap();
    host.ask("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#)).result();
    // Parts of what is watched, with long names: 20 MB in all.
    let own = format!("{}/{}", uri.strip_prefix("x+").unwrap(), "p".repeat(2000));
    host.read(false);
    let before = memory_of(host.pid);
    let id = host.request_call("x__updated", &format!(r#"{{"uri":"{own}","n":10000}}"#));
    let good = host.request_call("good__echo", r#"{"n":5}"#);
    std::thread::sleep(Duration::from_secs(3));
    let more = memory_of(host.pid).saturating_sub(before);
    assert!(more < 64 << 20, "{more} bytes more");
    host.read(true);
    host.wait(&good).result();
    host.wait(&id).result();
    assert_eq!(host.notifications("notifications/resources/updated").len(), 10_000, "none is lost");
}

#[test]
fn f42_a_long_call_keeps_nobody_waiting() {
    let mut host = Setup::new().server("slow", "record").server("fast", "record").open();
    host.call("fast__echo", "{}").result();
    let long: Vec<String> = (0..50).map(|_| host.request_call("slow__sleep", r#"{"ms":6000}"#)).collect();
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..100 {
        times.push(quick(&mut host, "fast__echo"));
        quick(&mut host, "slow__echo");
    }
    times.sort();
    // The long ones take six seconds.
    assert!(times[98] < Duration::from_secs(3), "p99 {:?}", times[98]);
    assert!(!host.has_answer(&long[0]));
    let fast: Vec<String> = host.record("fast").into_iter().filter(|line| line.contains("\"sleep\"")).collect();
    assert!(fast.is_empty(), "a call to one causes no traffic to another");
    for id in &long {
        assert_eq!(host.wait(id).text(), "slept");
    }
}

#[test]
fn a_flood_of_32_mib_from_each_of_eight_children_at_once() {
    // Without optimization both sides take a second for some MiB.
    let size = if cfg!(debug_assertions) { 8 << 20 } else { 32 << 20 };
    let setup = (0..8).fold(Setup::new(), |setup, n| setup.server(&format!("c{n}"), ""));
    let mut host = setup.server("good", "").open();
    for n in 0..8 {
        host.call(&format!("c{n}__echo"), "{}").result();
    }
    host.call("good__echo", "{}").result();
    let arguments = format!(r#"{{"bytes":{size}}}"#);
    let ids: Vec<String> = (0..8).map(|n| host.request_call(&format!("c{n}__big"), &arguments)).collect();
    let mut most = 0;
    let mut slowest = Duration::ZERO;
    while !ids.iter().all(|id| host.has_answer(id)) {
        slowest = slowest.max(quick(&mut host, "good__echo"));
        most = most.max(memory_of(host.pid));
    }
    for id in &ids {
        assert_eq!(host.wait(id).text().len(), size);
    }
    println!("eight times {size} bytes: at most {} MiB resident, an echo beside it at most {slowest:?}", most >> 20);
    assert!(most < 700 << 20, "{most} bytes");
    let mut after = 0;
    host.until("the memory is given back", || {
        after = memory_of(host.pid);
        after < 120 << 20
    });
}

#[test]
fn ten_thousand_notifications_before_a_result() {
    let mut host = Setup::new().server("x", "").open();
    let id = host.request_call("x__notify_then_reply", r#"{"n":10000}"#);
    assert_eq!(host.wait(&id).text(), "ok");
    let params = r#"{"name":"x__progress","arguments":{"n":10000},"_meta":{"progressToken":"p"}}"#;
    host.ask("tools/call", params).result();
    host.call("x__echo", "{}").result();
}

/// The flood test of the architecture: cancel, ping, time limits and other children work while floods come.
#[test]
fn a_flood_starves_neither_timers_nor_cancels_nor_others_nor_signals() {
    let mut host = Setup::new()
        .server("flood", "")
        .server("noisy", "")
        .tuned("timed", "record", "call_idle_timeout = \"700ms\"")
        .tuned("pinged", "record", "ping_interval = \"200ms\"")
        .open();
    for server in ["flood", "noisy", "timed", "pinged"] {
        host.call(&format!("{server}__echo"), "{}").result();
    }
    let flood = host.request_call("flood__flood_stdout", r#"{"n":2000000,"bytes":200}"#);
    let noise = host.request_call("noisy__flood_stderr", r#"{"bytes":2000000000,"line":60}"#);
    let start = Instant::now();
    let limited = host.request_call("timed__hang", "{}");
    let cancelled = host.request_call("timed__sleep", r#"{"ms":60000}"#);
    host.status_until("timed", "both are under way", |status| status["pending"] == 2);
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{cancelled}}}"#));
    host.until("the cancellation is there", || host.sent("timed", "notifications/cancelled") > 0);
    let told = start.elapsed();
    assert_eq!(host.wait(&limited).error(-31010)["data"]["reason"], "timeout");
    let expired = start.elapsed();
    let slowest = (0..30).map(|_| quick(&mut host, "timed__echo")).max().unwrap();
    host.until("pings go on", || host.sent("pinged", "ping") > 2);
    assert!(!host.has_answer(&flood) && !host.has_answer(&noise), "the floods go on");
    println!("under floods: cancel after {told:?}, limit after {expired:?}, slowest echo {slowest:?}");
    assert!(told < SOON && expired < 2 * SOON && slowest < SOON);
    // A flood does not keep the end waiting either.
    let start = Instant::now();
    host.signal(rustix::process::Signal::TERM);
    host.exit();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// A host that stops reading for a moment while droppable floods go on must get its answers afterwards.
#[test]
fn a_flood_that_is_dropped_does_not_keep_the_answers_from_a_slow_host() {
    let mut host = Setup::new().server("flood", "").server("good", "").open();
    host.call("good__echo", "{}").result();
    let flood = host.request_call("flood__flood_stdout", r#"{"n":3000000,"bytes":200}"#);
    for round in 0..5 {
        host.read(false);
        let id = host.request_call("good__echo", r#"{"n":1}"#);
        std::thread::sleep(Duration::from_millis(300));
        host.read(true);
        let start = Instant::now();
        host.wait(&id).result();
        // The test itself takes in each of the lines before it.
        assert!(start.elapsed() < 2 * SOON, "round {round}: {:?}", start.elapsed());
    }
    assert!(!host.has_answer(&flood), "the flood goes on");
}

#[test]
fn a_small_answer_does_not_stand_behind_the_large_ones_of_another_server() {
    let mut host = Setup::new().server("big", "").server("small", "").open();
    let answered = |host: &Host, key: &str| {
        let told: Value = serde_json::from_slice(&host.command(&["status", "--json"]).stdout).unwrap();
        let servers = told[0]["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == key).map_or(0, |server| server["calls"].as_u64().unwrap())
    };
    host.read(false);
    let large: Vec<_> = (0..3).map(|_| host.request_call("big__big", r#"{"bytes":2000000}"#)).collect();
    host.until("all the large ones wait for the host", || answered(&host, "big") == 3);
    let small = host.request_call("small__echo", "{}");
    host.until("so does the small one", || answered(&host, "small") == 1);
    host.read(true);
    host.wait(&small).result();
    // The first one had begun, and a message is not cut in half.
    assert!(host.has_answer(&large[0]) && !host.has_answer(&large[1]) && !host.has_answer(&large[2]));
    assert_eq!(host.wait(&large[2]).text().len(), 2_000_000);
    assert!(host.has_answer(&large[1]), "the answers of one server came in their order");
}
