//! Children that die with calls under way, and answers that are none (F43, F44; oversized and invalid replies).

use std::time::Instant;

use serde_json::json;

use crate::harness::{SOON, Setup};

/// Lets the same call be lost again and again.
pub(crate) const ALWAYS: &str = "allow_repeat_after_unknown = \"always\"";

#[test]
fn f43_each_way_to_die_with_twenty_calls_pending() {
    let ways = [
        ("exit", r#"{"code":0}"#, "child_exited", json!({ "code": 0 })),
        ("exit", r#"{"code":17}"#, "child_exited", json!({ "code": 17 })),
        ("kill", "{}", "child_exited", json!({ "signal": "SIGKILL" })),
        ("half_reply", r#"{"code":5}"#, "child_exited", json!({ "code": 5 })),
        ("close_stdout", "{}", "connection_lost", json!(null)),
    ];
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    for (tool, arguments, reason, exit) in ways {
        let mut host = Setup::new().tuned("x", "", restart).server("other", "").open();
        host.call("other__echo", "{}");
        let ids: Vec<String> = (0..20).map(|_| host.request_call("x__hang", "{}")).collect();
        host.status_until("x", "all are under way", |status| status["pending"] == 20);
        let start = Instant::now();
        let last = host.request_call(&format!("x__{tool}"), arguments);
        for id in ids.iter().chain([&last]) {
            let error = host.wait(id).error(-31010);
            let data = &error["data"];
            assert_eq!((&data["reason"], &data["exit"]), (&json!(reason), &exit), "{tool}: {error:#}");
            assert!(data["outcomeId"].as_str().unwrap().starts_with("u-"), "{error:#}");
            assert!(data["request"].as_str().unwrap().starts_with("1:"), "{error:#}");
            assert_eq!(data["server"], "x");
        }
        assert!(start.elapsed() < SOON, "{tool}: {:?}", start.elapsed());
        host.call("other__echo", "{}").result();
        assert_eq!(host.pids("other").len(), 1, "{tool}: another child was touched");
        host.call("x__echo", "{}").result();
        assert_eq!(host.pids("x").len(), 2, "{tool}");
        let status = host.status("x");
        assert_eq!(status["unknown"].as_u64(), Some(21), "{tool}");
        let why = if reason == "child_exited" { "its process ended" } else { "it closed its output" };
        assert!(status["lastError"].as_str().is_some_and(|error| error.contains(why)), "{tool}: {status:#}");
    }
}

#[test]
fn f43_a_whole_answer_before_the_death_is_delivered_however_long() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    let mut host = Setup::new().proxy(ALWAYS).tuned("x", "", restart).open();
    for round in 0..10 {
        let code = if round % 2 == 0 { 0 } else { 7 };
        let pending = host.request_call("x__hang", "{}");
        let id = host.request_call("x__reply_then_die", &format!(r#"{{"code":{code}}}"#));
        assert_eq!(host.wait(&id).text(), "last words", "round {round}");
        let error = host.wait(&pending).error(-31010);
        assert_eq!(error["data"]["exit"]["code"], code, "{error:#}");
    }
}

#[test]
fn f43_the_last_words_on_stderr_are_told() {
    let mut host = Setup::new().tuned("x", "@1:stderr_line=out-of-cheese", "").open();
    host.until("it said so", || host.stderr().contains("out-of-cheese"));
    let error = host.call("x__kill", "{}").error(-31010);
    assert!(error["message"].as_str().unwrap().contains("out-of-cheese"), "{error:#}");
}

#[test]
fn f44_nothing_is_sent_twice() {
    let restart = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;
    for crash in ["before_run", "after_run", "half_reply", "after_reply"] {
        for tool in ["ledger", "ledger_readonly", "ledger_idempotent"] {
            let mut host = Setup::new().tuned("x", "ledger", restart).open();
            let answer = host.call(&format!("x__{tool}"), &format!(r#"{{"crash":"{crash}"}}"#));
            if crash == "after_reply" {
                answer.result();
            } else {
                let error = answer.error(-31010);
                let written = error["data"].get("outcomeId").is_some();
                assert_eq!(written, tool != "ledger_readonly", "{crash} {tool}: {error:#}");
            }
            // A call that is on its way when it exits is lost, too.
            while host.call("x__echo", "{}").raw_member("error").is_some() {}
            let runs = host.ledger("x").iter().filter(|line| line["tool"] == tool).count();
            assert!(runs <= 1, "{crash} {tool}: {runs} runs");
        }
    }
}

#[test]
fn f44_an_ordinary_error_is_passed_on_and_no_reason_for_a_restart() {
    let mut host = Setup::new().server("x", "ledger").open();
    let error = host.call("x__reply_error", r#"{"code":-32602,"message":"bad","data":{"k":1}}"#).error(-32602);
    assert_eq!(error, json!({ "code": -32602, "message": "bad", "data": { "k": 1 } }));
    host.call("x__echo", "{}").result();
    assert_eq!(host.pids("x").len(), 1);
}

#[test]
fn an_answer_that_is_too_long_costs_its_call_alone() {
    let mut host = Setup::new().proxy("max_message = \"1MiB\"").server("x", "").open();
    let other = host.request_call("x__sleep", r#"{"ms":1500}"#);
    let error = host.call("x__oversize", r#"{"bytes":30000000}"#).error(-31010);
    assert_eq!(error["data"]["reason"], "response_too_large");
    assert!(error["message"].as_str().unwrap().contains("max_message"), "{error:#}");
    assert_eq!(host.wait(&other).text(), "slept", "the next lines are read");
    let memory = memory_of(host.pid);
    assert!(memory < 60 << 20, "{memory} bytes of memory after a line of 30 MB");
    assert_eq!(host.pids("x").len(), 1);
}

#[test]
fn an_answer_that_is_none_costs_its_call_alone() {
    let mut host = Setup::new().tuned("x", "", "call_idle_timeout = \"1500ms\"").open();
    for (kind, reason) in [
        ("both", "invalid_response"),
        ("neither", "timeout"),
        ("number", "invalid_response"),
        ("errorstring", "invalid_response"),
        ("idarray", "timeout"),
        ("cut", "timeout"),
    ] {
        let answer = host.call("x__invalid_reply", &format!(r#"{{"kind":"{kind}"}}"#));
        let error = answer.error(-31010);
        let told = error["data"]["reason"].as_str().unwrap();
        // Where the id can be told, it may be known at once; else the limit ends the call.
        assert!(told == reason || told == "invalid_response", "{kind}: {error:#}");
        host.call("x__echo", "{}").result();
    }
    for kind in ["nojsonrpc", "noversion"] {
        let answer = host.call("x__invalid_reply", &format!(r#"{{"kind":"{kind}"}}"#));
        assert_eq!(answer.text(), "ok", "{kind}");
        assert_eq!(answer.value()["jsonrpc"], "2.0", "{kind}");
    }
    host.call("x__double_reply", "{}").result();
    host.call("x__wrong_id", "{}").result();
    host.call("x__string_id", "{}").result();
    assert_eq!(host.pids("x").len(), 1);
}

/// Resident memory in bytes.
pub(crate) fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
