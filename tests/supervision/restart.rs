//! Back-off, giving up, half-open attempts, policies, and what a new life is given.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{SOON, Setup};

/// One failure is enough; in one era, since a start in the other is no failure.
const ONE_ATTEMPT: &str = "protocol = \"legacy\"\nrestart = { min = \"10ms\", max = \"10ms\", attempts = 1 }";

/// How often a server with `record` was started.
fn starts(events: &[Value]) -> usize {
    events.iter().filter(|event| event["k"] == "start").count()
}

/// When each life of a server began, in milliseconds of the day, from lines like
/// `2026-01-31T12:00:00.123456Z  INFO starting server=NAME generation=1`.
fn start_times(log: &str, server: &str) -> Vec<u64> {
    let wanted = format!(" starting server={server} ");
    let lines = log.lines().filter(|line| line.contains(&wanted));
    lines
        .map(|line| {
            let part = |at: std::ops::Range<usize>| line[at].parse::<u64>().unwrap();
            ((part(11..13) * 60 + part(14..16)) * 60 + part(17..19)) * 1000 + part(20..23)
        })
        .collect()
}

#[test]
fn f45_a_crash_loop_is_slowed_down_and_given_up_while_others_serve() {
    let restart = "protocol = \"legacy\"\nrestart = { min = \"200ms\", max = \"800ms\", attempts = 5 }";
    let mut host = Setup::new().tuned("loop", "record crashinit=3", restart).server("good", "").open();
    let mut slowest = Duration::ZERO;
    let failed = |host: &mut crate::harness::Host| host.status("loop")["state"] == "failed";
    while !failed(&mut host) {
        let start = Instant::now();
        host.call("good__echo", "{}");
        slowest = slowest.max(start.elapsed());
    }
    let times = start_times(&host.stderr(), "loop");
    assert_eq!(times.len(), 5, "{times:?}");
    for (pair, full) in times.windows(2).zip([200, 400, 800, 800]) {
        let pause = (pair[1] + 86_400_000 - pair[0]) % 86_400_000;
        assert!(pause >= full / 2, "{pause} ms where {full} ms is the whole");
        assert!(pause < full + 8000, "{pause} ms where {full} ms is the whole");
    }
    assert!(slowest < SOON, "a call to another took {slowest:?}");
    let status = host.status("loop");
    assert_eq!(status["lastExit"]["code"], 3);
    assert!(status["lastError"].as_str().unwrap().contains("code 3") || status["lastError"].is_string());
}

#[test]
fn f45_a_call_to_a_failed_server_makes_one_attempt_that_may_succeed() {
    // It fails until the file is there.
    let setup = Setup::new();
    let gate = setup.path("gate");
    let flags = format!("record initfail_once={}", gate.display());
    let restart = ONE_ATTEMPT;
    let mut host = setup.tuned("x", &flags, restart).open();
    host.status_until("x", "it is given up", |status| status["state"] == "failed");
    let ids: Vec<String> = (0..20).map(|n| host.request_call("x__echo", &format!(r#"{{"n":{n}}}"#))).collect();
    for id in &ids {
        host.wait(id).result();
    }
    assert_eq!(starts(&host.events("x")), 2, "one attempt for all that wait");
}

#[test]
fn a_half_open_attempt_that_fails_ends_the_wait_of_all_and_names_stay() {
    let setup = Setup::new();
    let restart = ONE_ATTEMPT;
    let mut host = setup.tuned("x", "record @2+:crashinit=4", restart).open();
    let names = host.names_until("tools", "all are there", |names| names.len() > 10);
    // Its crash is a failure, and the only one that is allowed.
    host.call("x__exit", r#"{"code":9}"#).error(-31010);
    host.status_until("x", "it is given up", |status| status["state"] == "failed");
    assert_eq!(host.names("tools"), names, "no flapping");
    let start = Instant::now();
    let ids: Vec<String> = (0..5).map(|_| host.request_call("x__echo", "{}")).collect();
    for id in &ids {
        let error = host.wait(id).error(-31011);
        assert_eq!(error["data"]["server"], "x");
        assert!(error["data"]["retryAfterMs"].as_u64().unwrap() > 0, "{error:#}");
    }
    assert!(start.elapsed() < SOON + Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(starts(&host.events("x")), 2);
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.pids("x").len(), 2, "nothing more is started by itself");
}

#[test]
fn never_and_on_failure() {
    let mut host = Setup::new()
        .tuned("never", "", r#"restart = { policy = "never" }"#)
        .tuned("onfail", "", r#"restart = { policy = "on-failure", min = "10ms" }"#)
        .open();
    for server in ["never", "onfail"] {
        host.status_until(server, "it is ready", |status| status["state"] == "ready");
    }
    let names = host.names("tools");
    host.call("never__die_before_reply", "{}").error(-31010);
    let error = host.call("never__echo", "{}").error(-31011);
    assert_eq!(error["data"]["state"], "failed");
    assert!(error["data"].get("retryAfterMs").is_none(), "sending again does not help: {error:#}");
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.pids("never").len(), 1);

    // Exit 0 between calls: it rests until it is used. With a call pending it is a crash.
    let pid = host.pids("onfail")[0];
    let id = host.request_call("onfail__reply_then_die", r#"{"code":0}"#);
    assert_eq!(host.wait(&id).text(), "last words");
    let status = host.status_until("onfail", "it rests", |status| status["state"] == "stopped");
    assert_eq!(status["lastExit"]["code"], 0, "{pid}: {status:#}");
    assert!(status["lastError"].is_null(), "no crash: {status:#}");
    host.call("onfail__echo", "{}").result();
    assert_eq!(host.pids("onfail").len(), 2);
    host.call("onfail__exit", r#"{"code":0}"#).error(-31010);
    host.until("a crash is followed by another start", || host.pids("onfail").len() == 3);
}

#[test]
fn exit_0_between_calls_is_no_crash_and_the_next_call_starts_it() {
    let restart = r#"restart = { attempts = 2, min = "10ms", max = "10ms" }"#;
    let mut host = Setup::new().tuned("x", "record", restart).open();
    for round in 1..=6 {
        assert_eq!(host.call("x__reply_then_die", r#"{"code":0}"#).text(), "last words", "round {round}");
        let status = host.status_until("x", "it is down", |status| status["state"] == "stopped");
        assert!(status["lastError"].is_null(), "round {round}: {status:#}");
    }
    assert_eq!(starts(&host.events("x")), 6, "started on demand only, and never given up");
}

#[test]
fn a_new_life_has_the_level_the_watches_and_the_roots_of_the_old_one() {
    let restart = r#"restart = { min = "10ms", max = "10ms" }"#;
    let mut host = Setup::new().tuned("x", "record rootsoninit", restart).open_able();
    let roots = host.asked("roots/list");
    host.reply(&roots, r#"{"roots":[{"uri":"file:///work/one"}]}"#);
    host.status_until("x", "it is ready", |status| status["tools"].as_u64() > Some(10));
    host.ask("logging/setLevel", r#"{"level":"notice"}"#).result();
    let uri = host.names("resources").into_iter().find(|uri| uri.starts_with("x+")).unwrap();
    host.ask("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#)).result();
    assert_eq!(host.call("x__level", "{}").text(), "\"notice\"");
    let watched = host.call("x__subscriptions", "{}").text();
    assert!(watched.starts_with("[\""), "{watched}");
    let names = host.names("tools");
    host.notifications("notifications/tools/list_changed");

    host.call("x__kill", "{}").error(-31010);
    let roots = host.asked("roots/list");
    host.reply(&roots, r#"{"roots":[{"uri":"file:///work/one"}]}"#);
    host.status_until("x", "the second life is ready", |s| s["generation"] == 2 && s["state"] == "ready");
    assert_eq!(host.call("x__level", "{}").text(), "\"notice\"");
    assert_eq!(host.call("x__subscriptions", "{}").text(), watched);
    // The lists are fetched anew and are the same: nobody is told.
    host.until("all lists were asked for", || {
        host.sent("x", "tools/list") == 2 && host.sent("x", "resources/list") == 2
    });
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.notifications("notifications/tools/list_changed").len(), 0);
}

#[test]
fn other_lists_after_a_restart_are_one_change() {
    let restart = r#"restart = { min = "10ms", max = "10ms" }"#;
    let mut host = Setup::new().tuned("x", "tools=3 @2+:tools=30", restart).open();
    host.names_until("tools", "all are there", |names| names.contains(&"x__tool_2".to_owned()) || names.len() > 10);
    let before = host.names("tools").len();
    host.notifications("notifications/tools/list_changed");
    host.call("x__kill", "{}").error(-31010);
    host.notification("notifications/tools/list_changed");
    assert_eq!(host.names("tools").len(), before + 27);
    host.fence();
    assert_eq!(host.notifications("notifications/tools/list_changed").len(), 0, "one is enough");
}

#[test]
fn calls_wait_for_a_child_that_is_down_and_then_get_31011() {
    // It was well once, and does not come up again: the names are known, the calls wait.
    let more = "protocol = \"legacy\"\nstart_timeout = \"2s\"\nrestart = { min = \"10ms\", max = \"50ms\" }";
    let mut host = Setup::new().tuned("x", "@2:hanginit @3+:slowinit=500", more).open();
    host.status_until("x", "it is ready", |status| status["tools"].as_u64() > Some(10));
    host.call("x__kill", "{}").error(-31010);
    let start = Instant::now();
    let id = host.request_call("x__echo", r#"{"n":1}"#);
    let answer = host.wait(&id);
    let took = start.elapsed();
    // It waited for start_timeout, or for the attempt after it.
    let error = answer.error(-31011);
    assert!(took >= Duration::from_millis(1800), "{took:?}");
    assert!(took < 2 * SOON, "{took:?}");
    assert!(error["data"]["retryAfterMs"].as_u64().is_some(), "{error:#}");
    assert!(error["message"].as_str().unwrap().contains("not sent"), "{error:#}");
    // The third life is well: a call that comes now waits for it and is answered.
    assert!(host.call("x__echo", r#"{"n":2}"#).text().contains("\"n\":2"));
}

#[test]
fn what_a_restart_cannot_mend_fails_at_once_with_the_reason() {
    let mut host = Setup::new()
        .table("[servers.gone]\ncommand = \"/nowhere/no-such-server\"\n")
        .table("[servers.plain]\ncommand = \"/etc/passwd\"\n")
        .server("good", "")
        .open();
    for server in ["gone", "plain"] {
        let status = host.status_until(server, "it is failed", |status| status["state"] == "failed");
        assert_eq!(status["restarts"], 0, "{status:#}");
        let path = if server == "gone" { "no-such-server" } else { "/etc/passwd" };
        assert!(status["lastError"].as_str().unwrap().contains(path), "{status:#}");
    }
    host.call("good__echo", "{}").result();
}

#[test]
fn a_server_that_is_replaced_while_it_starts_is_stopped_and_started_anew() {
    // The second configuration comes while the first life is still in its start.
    let mut host = Setup::new().tuned("x", "slowinit=300", "stop_grace = \"100ms\"").start();
    host.logged("starting");
    for round in 0..6 {
        host.reconfigure(|text| text.replace("slowinit=300", &format!("slowinit=300\",\"r{round}")));
        host.signal(Signal::HUP);
        host.until("it is taken over", || host.stderr().matches("is taken over").count() > round);
    }
    host.initialize("2025-11-25", "{}");
    host.status_until("x", "it is ready", |status| status["state"] == "ready");
    host.until("one process is left of it", || host.living().len() == 2);
    host.call("x__echo", "{}").result();
}

#[test]
fn a_call_to_a_server_whose_reference_is_not_set_says_what_to_set_and_not_to_try_again() {
    let mut host = Setup::new()
        .server("a", "")
        .table("[servers.unset]\ncommand = \"sh\"\nenv = { TOKEN = \"${env:NO_SUCH_TOKEN}\" }\n")
        .open();
    host.status_until("unset", "it is given up", |status| status["state"] == "failed");
    for _ in 0..2 {
        let error = host.call("unset__tool", "{}").error(-31011);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("set the variable NO_SUCH_TOKEN"), "{message}");
        assert!(message.contains("helps only after this was mended") && !message.contains("safe to send"), "{message}");
        assert!(error["data"].get("retryAfterMs").is_none(), "{error:#}");
    }
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}
