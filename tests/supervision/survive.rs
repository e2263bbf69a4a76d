//! What the proxy survives: failing starts, stopped processes, a lost guard, faults of its own (F46).

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::crash::ALWAYS;
use crate::harness::{Host, SOON, Setup, children_of, kill};

#[test]
fn a_system_without_processes_or_descriptors_to_spare_is_tried_again() {
    // EAGAIN, EMFILE and ENOMEM for the first starts.
    let restart = r#"restart = { min = "20ms", max = "50ms" }"#;
    let mut host = Setup::new().env("MCP_PROXY_TEST_SPAWN_ERRORS", "11,24,12,11").tuned("x", "", restart).open();
    let status = host.status_until("x", "it is ready", |status| status["state"] == "ready");
    assert_eq!(status["generation"], 5, "{status:#}");
    assert_eq!(host.pids("x").len(), 1);
    host.call("x__echo", "{}").result();
}

#[test]
fn everything_may_be_stopped_and_continued() {
    let mut host = Setup::new().tuned("x", "", "ping_interval = \"200ms\"").server("y", "").open();
    host.call("x__echo", "{}").result();
    host.call("y__echo", "{}").result();
    let open = host.request_call("x__sleep", r#"{"ms":300}"#);
    let all = host.living();
    for pid in &all {
        kill(*pid, Signal::STOP);
    }
    host.until("all stand still", || {
        all.iter().all(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    });
    let asked = host.request_call("y__echo", "{}");
    std::thread::sleep(Duration::from_secs(1));
    for pid in &all {
        kill(*pid, Signal::CONT);
    }
    assert_eq!(host.wait(&open).text(), "slept");
    host.wait(&asked).result();
    assert_eq!((host.pids("x").len(), host.pids("y").len()), (1, 1));
}

#[test]
fn a_descendant_that_holds_the_pipes_keeps_nothing_waiting() {
    let restart = "stop_grace = \"100ms\"\nrestart = { min = \"10ms\", max = \"20ms\" }";
    let mut host = Setup::new().proxy(ALWAYS).tuned("x", "", restart).open();
    for session in [false, true] {
        let arguments = format!(r#"{{"ignore_term":true,"hold":true,"session":{session}}}"#);
        let holder: u32 = host.call("x__spawn_grandchild", &arguments).text().parse().unwrap();
        if session {
            host.until("it has left the group", || {
                let stat = std::fs::read_to_string(format!("/proc/{holder}/stat")).unwrap_or_default();
                stat.rsplit_once(')')
                    .is_some_and(|(_, rest)| rest.split_whitespace().nth(2) == Some(&holder.to_string()))
            });
        }
        let start = Instant::now();
        let error = host.call("x__die_before_reply", r#"{"code":6}"#).error(-31010);
        assert_eq!(error["data"]["exit"]["code"], 6);
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        host.call("x__echo", "{}").result();
        // In the group it was ended before the next life began; out of it, it is let live.
        assert_eq!(host.living().contains(&holder), session);
        kill(holder, Signal::KILL);
    }
}

/// The guard of that proxy; its environment is empty, so it is known by its parent.
pub(crate) fn guard_of(proxy: u32) -> Option<u32> {
    children_of(proxy).into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"__guard")
    })
}

#[test]
fn a_dead_guard_is_replaced_and_knows_everything() {
    let mut host =
        Setup::new().tuned("deaf", "ignore_eof ignore_term", "stop_grace = \"200ms\"").server("y", "").open();
    host.call("deaf__echo", "{}").result();
    for _ in 0..3 {
        let old = guard_of(host.pid).expect("a guard");
        kill(old, Signal::KILL);
        host.until("another guard lives", || guard_of(host.pid).is_some_and(|new| new != old));
        host.call("deaf__echo", "{}").result();
        host.call("y__echo", "{}").result();
    }
    // A start waits for the guard's word, which comes after the whole list.
    host.call("y__kill", "{}").error(-31010);
    host.call("y__echo", "{}").result();
    host.was_killed();
    let guard = guard_of(host.pid).expect("a guard");
    host.signal(Signal::KILL);
    host.exit();
    host.until("the last guard ends them all", || host.living().is_empty());
    host.until("and itself", || !std::path::Path::new(&format!("/proc/{guard}")).exists());
}

#[test]
fn a_fault_of_ours_costs_the_child_that_met_it_and_no_other() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let mut host = Setup::new()
        .proxy(ALWAYS)
        .env("MCP_PROXY_TEST_PANIC", "makes-us-panic")
        .tuned("x", "", restart)
        .server("other", "")
        .open();
    host.call("other__echo", "{}").result();
    for round in 1..=3 {
        let long = host.request_call("other__sleep", r#"{"ms":300}"#);
        let waiting = host.request_call("x__hang", "{}");
        host.pending("x", 1);
        let id = host.request_call("x__echo", r#"{"text":"makes-us-panic"}"#);
        for id in [&id, &waiting] {
            let error = host.wait(id).error(-31010);
            assert_eq!(error["data"]["reason"], "connection_lost", "{error:#}");
            assert!(error["message"].as_str().unwrap().contains("fault of the proxy"), "{error:#}");
        }
        assert_eq!(host.wait(&long).text(), "slept", "round {round}");
        host.call("x__echo", "{}").result();
        assert_eq!(host.pids("x").len(), round + 1);
        assert_eq!(host.pids("other").len(), 1);
    }
    assert!(host.stderr().contains("MCP_PROXY_TEST_PANIC"), "the panic is in the log");
}

#[test]
fn a_fault_in_a_task_beside_a_child_costs_that_child_alone() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let setup = Setup::new().proxy(ALWAYS).env("MCP_PROXY_TEST_PANIC", "eeee");
    let mut host = setup.tuned("x", "", restart).server("other", "").open();
    host.call("other__echo", "{}").result();
    for round in 1..=3 {
        let waiting = host.request_call("x__hang", "{}");
        host.pending("x", 1);
        host.request_call("x__flood_stderr", r#"{"bytes":40,"line":20}"#);
        let error = host.wait(&waiting).error(-31010);
        assert!(error["message"].as_str().unwrap().contains("fault of the proxy"), "{error:#}");
        host.call("x__echo", "{}").result();
        assert_eq!(host.pids("x").len(), round + 1);
        host.call("other__echo", "{}").result();
    }
    assert_eq!(host.pids("other").len(), 1);
}

#[test]
fn a_fault_in_the_writing_to_a_child_costs_that_child_alone_and_sends_nothing_twice() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let setup = Setup::new().proxy(ALWAYS).env("MCP_PROXY_TEST_PANIC", "write:breaks-our-write");
    let mut host = setup.tuned("x", "ledger", restart).server("other", "").open();
    host.call("other__echo", "{}").result();
    for round in 1..=3 {
        let waiting = host.request_call("x__hang", "{}");
        host.pending("x", 1);
        let id = host.request_call("x__ledger", r#"{"text":"breaks-our-write"}"#);
        for id in [&id, &waiting] {
            let error = host.wait(id).error(-31010);
            assert!(error["message"].as_str().unwrap().contains("fault of the proxy"), "{error:#}");
        }
        host.call("x__echo", "{}").result();
        host.call("other__echo", "{}").result();
        assert_eq!(host.pids("x").len(), round + 1);
        let runs = host.ledger("x").iter().filter(|line| line["tool"] == "ledger").count();
        assert!(runs <= round, "{runs} runs of {round} calls");
    }
    assert_eq!(host.pids("other").len(), 1);
}

#[test]
fn without_any_directory_to_write_to_calls_still_go_through() {
    let mut setup = Setup::new();
    for name in ["XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        setup = setup.env(name, "/proc/nowhere");
    }
    let restart = r#"restart = { min = "10ms", max = "20ms" }"#;
    let mut host = setup.tuned("x", "", restart).open();
    host.call("x__write", "{}").result();
    host.call("x__kill", "{}").error(-31010);
    host.call("x__write", "{}").result();
}

/// Loses calls, fills the log, changes what is cached, and looks that everything works.
fn busy_day(host: &mut Host) {
    for round in 0..10 {
        host.call("x__write", &format!(r#"{{"round":{round},"text":"{}"}}"#, "w".repeat(3000))).result();
        host.call("x__flood_stderr", r#"{"bytes":20000,"line":100}"#).result();
        host.call("x__noise", r#"{"kind":"text","n":50}"#).result();
        host.call("x__die_before_reply", &format!(r#"{{"code":3,"round":{round}}}"#)).error(-31010);
        host.call("x__echo", "{}").result();
    }
    host.ask("ping", "{}").result();
    assert!(host.names("tools").iter().any(|name| name == "x__echo"));
    assert!(host.lives());
}

#[test]
fn f46_a_full_disk_stops_nothing() {
    // Every file ends at 4 KiB: the log, the in-flight file, the ledger, the cache.
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let setup = Setup::new().proxy(ALWAYS).after("trap '' XFSZ; ulimit -f 8").tuned("x", "tools=50", restart);
    let log = setup.path("proxy.log");
    let mut host = setup.table(&format!("[log]\nfile = {:?}\nlevel = \"debug\"", log.display())).open();
    busy_day(&mut host);
    // A ledger that takes nothing may be asked all the same.
    host.ask("resources/read", r#"{"uri":"mcp-proxy://unknown"}"#).result();
    let full = std::fs::read_dir(host.path("")).unwrap().flatten();
    let full = full.filter(|entry| entry.file_name().to_string_lossy().starts_with("proxy.log"));
    assert_eq!(full.map(|entry| entry.metadata().unwrap().len()).collect::<Vec<_>>(), [4096], "it was full");
}

#[test]
fn f46_a_log_on_a_full_device_stops_nothing() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let setup = Setup::new().proxy(ALWAYS).after("exec 2>/dev/full").tuned("x", "", restart);
    busy_day(&mut setup.table("[log]\nlevel = \"debug\"").open());
}

#[test]
fn f46_junk_from_both_sides_ends_nothing() {
    let mut host = Setup::new().server("x", "").server("y", "").open();
    host.call("x__echo", "{}").result();
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let huge = "9".repeat(5000);
    let lines = [
        "junk".to_owned(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "\u{0}\u{1}\u{2}".to_owned(),
        deep.clone(),
        format!(r#"{{"jsonrpc":"2.0","id":{huge},"method":"ping"}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{{"name":"x__echo","arguments":{{"a":{deep}}}}}}}"#
        ),
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"p","method":"tools/call","params":7}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#.to_owned(),
    ];
    for line in &lines {
        host.send(line);
        host.send_bytes(b"\xff\xfe\xfd\n".to_vec());
        host.call("y__echo", "{}").result();
    }
    for kind in ["text", "json", "number", "empty", "invalid", "utf8", "batch"] {
        host.call("x__noise", &format!(r#"{{"kind":"{kind}","n":50}}"#)).result();
    }
    for line in &lines {
        let quoted = serde_json::to_string(line).unwrap();
        host.call("x__raw_line", &format!(r#"{{"line":{quoted}}}"#)).result();
    }
    host.fence();
    host.call("x__echo", "{}").result();
    assert!(host.lives());
    assert_eq!((host.pids("x").len(), host.pids("y").len()), (1, 1));
}

#[test]
fn a_pipe_that_a_child_closed_ends_its_life_and_not_ours() {
    let restart = r#"restart = { min = "10ms", max = "20ms" }"#;
    let mut host = Setup::new().tuned("x", "", restart).server("y", "").open();
    assert_eq!(host.call("x__close_stdin", "{}").text(), "closed");
    // The next write breaks: the call, if a byte of it was taken at all, is lost; else it waits for the next life.
    let text = "p".repeat(1 << 20);
    let answer = host.call("x__echo", &format!(r#"{{"text":"{text}"}}"#));
    if answer.raw_member("error").is_some() {
        answer.error(-31010);
    }
    host.call("y__echo", "{}").result();
    host.call("x__echo", "{}").result();
    assert_eq!(host.pids("x").len(), 2);
}

#[test]
fn a_host_whose_socket_is_reset_ends_the_proxy_and_its_children() {
    let mut host = Setup::new().socket().tuned("x", "ignore_eof ignore_term", "stop_grace = \"100ms\"").open();
    host.call("x__echo", "{}").result();
    let start = Instant::now();
    host.close();
    assert_eq!(host.exit().code(), Some(0));
    host.until("all are gone", || host.living().is_empty());
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
