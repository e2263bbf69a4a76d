//! How everything ends: EOF, signals, the host's death (F01 to F06).

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{SOON, Setup, children_of, kill};

/// What a server with `record` saw of its end, with times in milliseconds.
fn end_of(events: &[Value]) -> Vec<(String, u64)> {
    let told = events.iter().filter(|event| ["eof", "signal", "exit"].contains(&event["k"].as_str().unwrap()));
    told.map(|event| {
        let kind = match event["k"].as_str().unwrap() {
            "signal" => event["d"].as_str().unwrap(),
            kind => kind,
        };
        (kind.to_owned(), event["t"].as_u64().unwrap())
    })
    .collect()
}

fn kinds(end: &[(String, u64)]) -> Vec<&str> {
    end.iter().map(|(kind, _)| kind.as_str()).collect()
}

#[test]
fn f01_a_wrapper_with_a_worker_that_ignores_everything_leaves_nothing() {
    for round in 0..10 {
        let kind = if round % 2 == 0 { "wrapper" } else { "wrapper=exit" };
        let mut host =
            Setup::new().tuned("w", &format!("{kind} ignore_eof ignore_term"), "stop_grace = \"100ms\"").open();
        if round % 2 == 0 {
            assert!(host.call("w__echo", r#"{"n":1}"#).text().contains("\"n\":1"));
        }
        let pid = host.pid;
        let start = Instant::now();
        host.close();
        assert_eq!(host.exit().code(), Some(0));
        host.until("the tree is gone", || host.living().is_empty());
        assert!(start.elapsed() < SOON, "round {round}: {:?}", start.elapsed());
        assert_eq!(children_of(pid), [0; 0], "nothing is defunct below the proxy");
    }
}

#[test]
fn f02_twenty_reloads_leave_as_many_children_as_are_configured() {
    let mut host =
        Setup::new().tuned("a", "record", "stop_grace = \"300ms\"").tuned("b", "", "stop_grace = \"300ms\"").open();
    host.names_until("tools", "both are there", |names| names.iter().any(|name| name.starts_with("b__")));
    for round in 0..20 {
        let changed = round % 4 == 3;
        host.reconfigure(|text| {
            let (old, new) =
                (format!("[proxy]\npage_size = {round}\n"), format!("[proxy]\npage_size = {}\n", round + 1));
            let text = if round == 0 { text.replace("[proxy]\n", &new) } else { text.replace(&old, &new) };
            if changed { text.replace("\"label=b\"", &format!("\"label=b\",\"round={round}\"")) } else { text }
        });
        host.signal(Signal::HUP);
        let taken = "the configuration is taken over";
        host.until("it is taken over", || host.stderr().matches(taken).count() > round);
        let lives = host.pids("b").len();
        let lives = if changed { lives.max(round / 4 + 2) } else { lives };
        host.until("the new life of b runs", || host.pids("b").len() == lives);
        host.status_until("b", "it is ready", |status| status["state"] == "ready");
        // The proxy and one process of each server; the guard has no environment to be known by.
        host.until("live children are those of the configuration", || host.living().len() == 3);
    }
    assert_eq!(host.pids("a").len(), 1, "what did not change was not touched");
    assert_eq!(host.pids("b").len(), 6);
}

#[test]
fn f02_twenty_hosts_one_after_the_other_leave_nothing_of_the_last() {
    let mut host = Setup::new().server("a", "").tuned("b", "ignore_eof ignore_term", "stop_grace = \"100ms\"").open();
    for round in 1..=20 {
        for server in ["a", "b"] {
            host.call(&format!("{server}__echo"), "{}").result();
            assert_eq!(host.pids(server).len(), round, "one process for each host");
        }
        // The proxy and one process of each server; the guard has no environment to be known by.
        host.until("live children are those of the configuration", || host.living().len() == 3);
        let pid = host.pid;
        // Every other one goes without a word.
        if round % 2 == 0 {
            host.was_killed();
            host.signal(Signal::KILL);
            host.exit();
        }
        host = host.restart().open();
        assert_ne!(host.pid, pid);
    }
}

#[test]
fn f03_fifty_first_calls_to_a_lazy_child_start_one_process() {
    // The first run fills the cache, so that the second knows the name without a process.
    let setup = Setup::new().tuned("lazy", "slowinit=1000", "start = \"lazy\"");
    let mut host = setup.open();
    host.status_until("lazy", "its lists are known", |status| status["tools"].as_u64() > Some(10));
    host.until("they are kept", || {
        let cache = std::fs::read_dir(host.path("home/cache/mcp-proxy"));
        cache.is_ok_and(|mut entries| entries.next().is_some())
    });
    let mut host = host.restart().open();
    assert_eq!(host.pids("lazy").len(), 1, "with a cache nothing is started");
    let ids: Vec<String> = (0..50).map(|n| host.request_call("lazy__echo", &format!(r#"{{"n":{n}}}"#))).collect();
    for (n, id) in ids.iter().enumerate() {
        assert!(host.wait(id).text().contains(&format!("\"n\":{n}}}")));
    }
    assert_eq!(host.pids("lazy").len(), 2);
}

#[test]
fn f04_the_death_of_the_host_ends_everything_also_while_another_holds_its_pipe() {
    for flags in ["", "ignore_eof ignore_term"] {
        let mut host = Setup::new().tuned("c", flags, "stop_grace = \"200ms\"").launched().open();
        host.was_killed();
        host.call("c__echo", "{}");
        // The harness still holds the other end of the proxy's stdin: only the parent's death tells it.
        host.signal(Signal::KILL);
        let start = Instant::now();
        host.until("all are gone", || host.living().is_empty());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

#[test]
fn f04_sigterm_and_sigint_end_the_proxy_within_a_moment_and_its_children_by_the_ladder() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = Setup::new()
            .tuned("deaf", "record ignore_eof ignore_term", "stop_grace = \"5s\"")
            .tuned("good", "record", "stop_grace = \"5s\"")
            .open();
        let open = host.request_call("deaf__hang", "{}");
        host.until("the call is under way", || host.sent("deaf", "tools/call") == 1);
        let start = Instant::now();
        host.signal(signal);
        assert_eq!(host.exit().code(), Some(0));
        // 100 ms of the design, with room for a busy machine; the ladder of the deaf one takes twice five seconds.
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(host.wait(&open).error(-31010)["data"]["reason"], "proxy_stopped");
        host.until("all are gone", || host.living().is_empty());
        assert_eq!(kinds(&end_of(&host.events("good"))), ["eof", "exit"], "who ends at EOF gets no signal");
    }
}

#[test]
fn f05_eof_grace_term_grace_kill_in_this_order_for_each_child() {
    let grace = "stop_grace = \"500ms\"";
    let mut host = Setup::new()
        .tuned("obeys", "record linger=200", grace)
        .tuned("needs_term", "record ignore_eof", grace)
        .tuned("needs_kill", "record ignore_eof ignore_term", grace)
        .open();
    for server in ["obeys", "needs_term", "needs_kill"] {
        host.call(&format!("{server}__echo"), "{}");
    }
    let start = Instant::now();
    host.close();
    assert_eq!(host.exit().code(), Some(0));
    host.until("all are gone", || host.living().is_empty());
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(kinds(&end_of(&host.events("obeys"))), ["eof", "exit"]);
    for (server, expected) in [("needs_term", ["eof", "SIGTERM"]), ("needs_kill", ["eof", "SIGTERM"])] {
        let end = end_of(&host.events(server));
        assert_eq!(kinds(&end), expected, "{server}");
        let pause = end[1].1 - end[0].1;
        assert!((400..10_000).contains(&pause), "{server}: SIGTERM came {pause} ms after EOF");
    }
}

#[test]
fn f06_eight_slow_children_end_within_one_grace_and_a_pending_call_gets_a_whole_answer() {
    for by_signal in [false, true] {
        let setup = (0..8).fold(Setup::new(), |setup, n| {
            setup.tuned(&format!("c{n}"), "record linger=3000 ignore_term", "stop_grace = \"1s\"")
        });
        let mut host = setup.open();
        for n in 0..8 {
            host.call(&format!("c{n}__echo"), "{}");
        }
        let open = host.request_call("c1__hang", "{}");
        host.until("the call is under way", || host.record("c1").iter().any(|line| line.contains("\"hang\"")));
        let start = Instant::now();
        if by_signal {
            host.signal(Signal::TERM);
        } else {
            host.close();
        }
        assert_eq!(host.exit().code(), Some(0));
        let took = start.elapsed();
        // One second for open calls, one grace; in a row it would be eight graces at least.
        assert!(took < Duration::from_secs(if by_signal { 6 } else { 8 }), "{took:?}");
        host.wait(&open).error(-31010);
        host.until("all are gone", || host.living().is_empty());
        assert!(start.elapsed() < Duration::from_secs(14), "in a row sixteen: {:?}", start.elapsed());
    }
}

/// Hosts that give us half a second, a quarter, or nothing at all.
#[test]
fn impatient_hosts_leave_nothing() {
    let patterns: [&[(u64, Signal)]; 4] = [
        &[(0, Signal::INT), (200, Signal::TERM), (250, Signal::KILL)],
        &[(0, Signal::TERM), (250, Signal::KILL)],
        &[(0, Signal::KILL)],
        &[(0, Signal::TERM), (0, Signal::TERM), (0, Signal::KILL)],
    ];
    for pattern in patterns {
        let mut host = Setup::new()
            .tuned("deaf", "ignore_eof ignore_term", "stop_grace = \"200ms\"")
            .tuned("wrapped", "wrapper ignore_eof ignore_term", "stop_grace = \"200ms\"")
            .tuned("good", "", "")
            .open();
        host.call("deaf__spawn_grandchild", r#"{"ignore_term":true,"hold":true}"#);
        host.call("wrapped__echo", "{}");
        host.was_killed();
        for (pause, signal) in pattern {
            // The host's own pause, not a wait for something.
            std::thread::sleep(Duration::from_millis(*pause));
            kill(host.pid, *signal);
        }
        let start = Instant::now();
        host.exit();
        host.until("all are gone", || host.living().is_empty());
        assert!(start.elapsed() < SOON, "{pattern:?}: {:?}", start.elapsed());
    }
}

#[test]
fn a_daemon_in_a_session_of_its_own_is_let_live() {
    let mut host = Setup::new().server("c", "").open();
    let daemon: u32 = host.call("c__spawn_grandchild", r#"{"session":true}"#).text().parse().unwrap();
    host.until("it has its own session", || {
        let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.split_whitespace().nth(3) == Some(&daemon.to_string()))
    });
    host.close();
    host.exit();
    host.until("only it is left", || host.living() == [daemon]);
    kill(daemon, Signal::KILL);
    host.until("the test has ended it", || host.living().is_empty());
}
