//! Time limits, pings, bounds of what is pending, rest of the unused.

use std::time::{Duration, Instant};

use crate::harness::{SOON, Setup};

#[test]
fn silence_ends_a_call_progress_prolongs_it_and_a_late_answer_reaches_nobody() {
    let limit = "call_idle_timeout = \"600ms\"";
    let mut host = Setup::new().tuned("x", "record", limit).open();
    // Four times the limit, with progress in between.
    let params = r#"{"name":"x__sleep","arguments":{"ms":2400,"steps":12},"_meta":{"progressToken":"t"}}"#;
    assert_eq!(host.ask("tools/call", params).text(), "slept");
    let start = Instant::now();
    let error = host.call("x__late", r#"{"ms":300}"#).error(-31010);
    assert_eq!(error["data"]["reason"], "timeout");
    assert!(error["message"].as_str().unwrap().contains("call_idle_timeout"), "{error:#}");
    assert!(start.elapsed() >= Duration::from_millis(600) && start.elapsed() < SOON, "{:?}", start.elapsed());
    let request = error["data"]["request"].as_str().unwrap();
    let number = request.split_once(':').unwrap().1;
    host.until("the child got its cancellation", || {
        let lines = host.record("x");
        lines
            .iter()
            .any(|line| line.contains("notifications/cancelled") && line.contains(&format!("\"requestId\":{number}")))
    });
    // Its late answer is swallowed; a second answer would fail the harness.
    assert_eq!(host.status("x")["pending"], 0, "the slot is free");
    host.call("x__echo", "{}").result();
    let outcome = error["data"]["outcomeId"].as_str().unwrap().to_owned();
    host.until("the ledger has the late answer", || {
        let row = host.command(&["unknown", "show", &outcome, "--json"]);
        String::from_utf8_lossy(&row.stdout).contains("settled")
    });
}

#[test]
fn silence_stands_still_while_a_person_is_asked() {
    let mut host = Setup::new().tuned("x", "", "call_idle_timeout = \"500ms\"").open_able();
    let id = host.request_call("x__elicit", r#"{"message":"well?"}"#);
    let question = host.asked("elicitation/create");
    // The person thinks for three times the limit.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!host.has_answer(&id));
    host.reply(&question, r#"{"action":"decline"}"#);
    host.wait(&id).result();
}

#[test]
fn the_longest_time_of_a_call_is_never_extended() {
    let mut host = Setup::new().tuned("x", "", "call_max_time = \"1s\"\ncall_idle_timeout = \"30s\"").open();
    host.call("x__echo", "{}");
    let start = Instant::now();
    let params = r#"{"name":"x__sleep","arguments":{"ms":20000,"steps":200},"_meta":{"progressToken":1}}"#;
    let error = host.ask("tools/call", params).error(-31010);
    assert_eq!(error["data"]["reason"], "timeout");
    assert!(error["message"].as_str().unwrap().contains("call_max_time"), "{error:#}");
    assert!(start.elapsed() >= Duration::from_millis(950) && start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn a_start_that_takes_too_long_and_a_page_that_does_not_come_cost_that_server_alone() {
    let mut host = Setup::new()
        .tuned("silent", "record hanginit", "protocol = \"legacy\"\nstart_timeout = \"400ms\"\nrestart = { attempts = 2, min = \"10ms\", max = \"10ms\" }")
        .tuned("listless", "record hanglist", "list_timeout = \"300ms\"")
        .server("good", "")
        .open();
    host.call("good__echo", "{}").result();
    let status = host.status_until("silent", "it is given up", |status| status["state"] == "failed");
    assert!(status["lastError"].as_str().unwrap().contains("start_timeout"), "{status:#}");
    assert_eq!(host.pids("silent").len(), 2);
    host.until("the page is asked for again", || host.sent("listless", "tools/list") >= 2);
    let status = host.status("listless");
    assert_eq!(status["state"], "ready");
    assert!(status["lastError"].as_str().unwrap().contains("list_timeout"), "{status:#}");
}

#[test]
fn pings_only_while_nothing_is_pending_and_never_a_reason_to_kill() {
    let ping = "ping_interval = \"150ms\"";
    let mut host = Setup::new()
        .tuned("busy", "record single", ping)
        .tuned("mute", "record hang:ping", ping)
        .tuned("odd", "record error:ping=-32603", ping)
        .tuned("never", "record error:ping=-32601", ping)
        .open();
    for server in ["busy", "mute", "odd", "never"] {
        host.status_until(server, "it is ready", |status| status["tools"].as_u64() > Some(10));
    }
    host.until("an idle child is pinged again and again", || host.sent("busy", "ping") > 3);
    // The only thread stands still for many intervals: no ping may come in between.
    let id = host.request_call("busy__block", r#"{"ms":1500}"#);
    host.wait(&id).result();
    let lines = host.record("busy");
    let call = lines.iter().position(|line| line.contains("\"block\"")).unwrap();
    let behind = &lines[call + 1..];
    assert!(behind.iter().take(1).all(|line| !line.contains("\"ping\"")) || behind.len() < 3, "{behind:?}");
    host.until("odd answers are no answers to worry about", || host.sent("odd", "ping") > 3);
    assert_eq!(host.sent("mute", "ping"), 1, "who does not answer is not asked again");
    assert_eq!(host.sent("never", "ping"), 1, "who can't is not asked again");
    for server in ["busy", "mute", "odd", "never"] {
        assert_eq!(host.pids(server).len(), 1, "{server} was restarted");
        host.call(&format!("{server}__echo"), "{}").result();
    }
}

#[test]
fn above_max_pending_a_call_is_busy_and_the_slots_come_back() {
    let mut host = Setup::new().tuned("x", "", "max_pending = 20").server("y", "").open();
    host.status_until("x", "it is ready", |status| status["tools"].as_u64() > Some(10));
    let ids: Vec<String> = (0..30).map(|_| host.request_call("x__sleep", r#"{"ms":1200}"#)).collect();
    host.call("y__echo", "{}").result();
    let answers: Vec<_> = ids.iter().map(|id| host.wait(id)).collect();
    let busy: Vec<_> = answers.iter().filter(|answer| answer.raw_member("error").is_some()).collect();
    assert_eq!(busy.len(), 10);
    for answer in busy {
        let error = answer.error(-31011);
        assert_eq!(error["data"]["reason"], "busy");
        assert!(error["data"]["retryAfterMs"].is_u64());
    }
    host.call("x__echo", "{}").result();
}

#[test]
fn as_many_calls_as_may_be_pending_wait_for_a_start_and_are_all_answered() {
    let mut host = Setup::new()
        .tuned("x", "@2:slowinit=700", "max_pending = 40\nrestart = { min = \"10ms\", max = \"10ms\" }")
        .open();
    host.status_until("x", "it is ready", |status| status["tools"].as_u64() > Some(10));
    host.call("x__kill", "{}").error(-31010);
    let ids: Vec<String> = (0..40).map(|n| host.request_call("x__echo", &format!(r#"{{"n":{n}}}"#))).collect();
    let over = host.request_call("x__echo", "{}");
    assert_eq!(host.wait(&over).error(-31011)["data"]["reason"], "busy");
    for id in &ids {
        host.wait(id).result();
    }
}

#[test]
fn an_unused_lazy_child_rests_and_comes_back() {
    let mut host = Setup::new().tuned("x", "record", "start = \"lazy\"\nidle_stop = \"400ms\"").open();
    host.status_until("x", "its lists are known", |status| status["tools"].as_u64() > Some(10));
    let names = host.names("tools");
    host.status_until("x", "it rests", |status| status["state"] == "stopped");
    assert_eq!(host.names("tools"), names);
    // A call that takes longer than that is use.
    assert_eq!(host.call("x__sleep", r#"{"ms":1000}"#).text(), "slept");
    assert_eq!(host.pids("x").len(), 2);
    let status = host.status_until("x", "it rests again", |status| status["state"] == "stopped");
    assert!(status["lastError"].is_null(), "{status:#}");
}
