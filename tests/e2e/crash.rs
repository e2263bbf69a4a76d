//! Children that die, and what is done twice by nobody (F43, F44, F46).

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Host, SOON, Setup};

/// Calls that are under way at `a`, and one at `b`.
fn with_pending(count: usize) -> (Host, Vec<String>, String) {
    let mut host = Setup::new().server_with("a", &["stderr_line=the disk is full"], "").server("b", "").open();
    host.names("tools");
    let ids = (0..count).map(|n| host.request_call("a__sleep", &format!(r#"{{"ms":60000,"n":{n}}}"#))).collect();
    let other = host.request_call("b__sleep", r#"{"ms":400}"#);
    host.pending("a", count);
    (host, ids, other)
}

/// Every one of them gets one -31010 soon, and the other server notices nothing.
fn all_lost(host: &mut Host, began: Instant, ids: &[String], other: &str, reason: &str, exit: &Value) {
    let mut outcomes = BTreeSet::new();
    for id in ids {
        let error = host.wait(id).error(-31010);
        let (data, message) = (&error["data"], error["message"].as_str().unwrap());
        assert_eq!((&data["reason"], &data["server"]), (&json!(reason), &json!("a")), "{error:#}");
        assert_eq!(data.get("exit").cloned().unwrap_or_default(), *exit, "{error:#}");
        assert!(message.contains("\"a\"") && message.contains("the disk is full"), "{message}");
        assert!(data["request"].as_str().unwrap().starts_with("1:"), "{error:#}");
        assert!(!error.to_string().to_lowercase().contains("retryable"), "{error:#}");
        outcomes.insert(data["outcomeId"].as_str().unwrap().to_owned());
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(outcomes.len(), ids.len(), "each has a row of its own");
    assert_eq!(host.wait(other).text(), "slept");
    assert_eq!(host.pids("b").len(), 1);
}

#[test]
fn f43_every_pending_call_is_told_how_its_server_ended() {
    for (tool, arguments, reason, exit) in [
        ("exit", r#"{"code":0}"#, "child_exited", json!({ "code": 0 })),
        ("exit", r#"{"code":17}"#, "child_exited", json!({ "code": 17 })),
        ("kill", "{}", "child_exited", json!({ "signal": "SIGKILL" })),
        ("half_reply", r#"{"code":9}"#, "child_exited", json!({ "code": 9 })),
        ("close_stdout", "{}", "connection_lost", Value::Null),
    ] {
        let (mut host, mut ids, other) = with_pending(20);
        let began = Instant::now();
        ids.push(host.request_call(&format!("a__{tool}"), arguments));
        all_lost(&mut host, began, &ids, &other, reason, &exit);
        // The next life is as good as the first.
        assert_eq!(host.call("a__echo", "{}").text(), "{}", "{tool}");
        assert_eq!(host.status("a")["generation"], 2, "{tool}");
    }
}

#[test]
fn f43_a_reply_that_was_written_before_the_end_is_delivered() {
    let (mut host, ids, other) = with_pending(20);
    let began = Instant::now();
    let last = host.request_call("a__reply_then_die", r#"{"code":17}"#);
    assert_eq!(host.wait(&last).text(), "last words");
    all_lost(&mut host, began, &ids, &other, "child_exited", &json!({ "code": 17 }));
}

#[test]
fn f43_large_replies_before_the_end_are_delivered_whole() {
    let mut host = Setup::new().server("a", "").open();
    host.names("tools");
    let big: Vec<String> = (0..3).map(|_| host.request_call("a__big", r#"{"bytes":2000000}"#)).collect();
    let last = host.request_call("a__reply_then_die", "{}");
    for id in &big {
        assert_eq!(host.wait(id).text().len(), 2_000_000);
    }
    assert_eq!(host.wait(&last).text(), "last words");
}

#[test]
fn f43_half_a_reply_with_a_line_end_is_noise_and_its_call_can_be_cancelled() {
    let mut host = Setup::new().server("a", "").open();
    let id = host.request_call("a__half_reply", r#"{"then":"newline"}"#);
    host.status_until("a", "the half is counted", |status| status["noiseLines"] == 1);
    assert!(!host.has_answer(&id));
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#));
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}

#[test]
fn f43_a_lost_read_says_that_asking_again_is_safe() {
    let mut host = Setup::new().server("a", "hang:resources/read hang:prompts/get").open();
    host.names("tools");
    let ids = [
        host.request("resources/read", r#"{"uri":"a+mem:///hello"}"#),
        host.request("prompts/get", r#"{"name":"a__greet"}"#),
        host.request_call("a__ledger_readonly", r#"{"ms":60000}"#),
    ];
    host.pending("a", 3);
    host.request_call("a__kill", "{}");
    for id in &ids {
        let error = host.wait(id).error(-31010);
        assert!(error["data"].get("outcomeId").is_none(), "{error:#}");
        assert!(error["message"].as_str().unwrap().contains("asking again is safe"), "{error:#}");
    }
}

#[test]
fn f43_a_child_that_ends_well_between_calls_is_started_when_it_is_used() {
    let mut host = Setup::new().server("a", "").open();
    host.settle();
    let names = host.names("tools");
    assert_eq!(host.call("a__reply_then_die", r#"{"code":0}"#).text(), "last words");
    host.status_until("a", "it rests", |status| status["state"] == "stopped");
    assert_eq!(host.names("tools"), names, "its names stay");
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(host.status("a")["generation"], 2);
    assert!(host.notifications("notifications/tools/list_changed").is_empty(), "nothing changed");
}

#[test]
fn f43_a_child_that_closes_its_input_is_noticed_at_the_next_call() {
    let mut host = Setup::new().server("a", "").open();
    assert_eq!(host.call("a__close_stdin", "{}").text(), "closed");
    let began = Instant::now();
    let id = host.request_call("a__echo", r#"{"x":1}"#);
    let reply = host.wait(&id);
    assert!(began.elapsed() < SOON * 2, "{:?}", began.elapsed());
    // Nothing of it was read: it may run in the next life, or be refused; it is not lost in silence.
    assert!(reply.raw.contains(r#"{\"x\":1}"#) || reply.raw.contains("-3101"), "{}", reply.raw);
}

#[test]
fn f44_nothing_runs_twice() {
    for tool in ["ledger", "ledger_readonly", "ledger_idempotent"] {
        for (crash, effects) in [("before_run", 0), ("after_run", 1), ("half_reply", 1)] {
            let mut host = Setup::new().server("a", "ledger").open();
            let error = host.call(&format!("a__{tool}"), &json!({ "crash": crash }).to_string()).error(-31010);
            assert_eq!(error["data"]["exit"], json!({ "code": 3 }));
            assert!(!error.to_string().to_lowercase().contains("retryable"), "{error:#}");
            // The new life is up and has been given nothing of the old.
            host.call("a__echo", r#"{"after":1}"#);
            let ran = host.ledger("a").iter().filter(|line| line["tool"] == tool).count();
            assert_eq!(ran, effects, "{tool} {crash}");
        }
    }
}

#[test]
fn f44_errors_of_a_tool_are_no_fault_of_the_connection() {
    let mut host = Setup::new().server("a", "ledger").open();
    let error = host.call("a__ledger", r#"{"error":true}"#).error(-32602);
    assert!(error.get("data").is_none(), "it is the child's own: {error:#}");
    assert_eq!(host.call("a__ledger", r#"{"crash":"after_reply"}"#).text(), "written");
    // A call that goes into its pipe before that would be lost with it.
    host.status_until("a", "its end is known", |status| !status["lastExit"].is_null());
    host.call("a__echo", "{}").result();
    let ran = host.ledger("a").iter().filter(|line| line["tool"] == "ledger").count();
    assert_eq!(ran, 2);
    assert_eq!(host.pids("a").len(), 2, "one end, and it was after a reply");
}

#[test]
fn f44_a_repeat_of_a_lost_call_is_held_once() {
    let mut host = Setup::new().server("a", "ledger @2:x").open();
    let lost = host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31010);
    let held = host.call("a__ledger", r#"{ "crash" : "after_run" }"#).error(-31012);
    assert_eq!(held["data"]["outcomeId"], lost["data"]["outcomeId"]);
    assert_eq!(host.ledger("a").len(), 1);
    // Another call of the same tool is another call.
    assert_eq!(host.call("a__ledger", r#"{"other":1}"#).text(), "written");
    host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31010);
    assert_eq!(host.ledger("a").len(), 3, "the second time it went through");
}

#[test]
fn f44_a_host_that_can_ask_asks_before_a_repeat() {
    let mut host = Setup::new().server("a", "ledger").open_able();
    host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31010);
    let again = host.request_call("a__ledger", r#"{"crash":"after_run"}"#);
    let question = host.asked("elicitation/create");
    assert!(question.params()["message"].as_str().unwrap().contains("may already have run"), "{}", question.raw);
    assert_eq!(host.ledger("a").len(), 1);
    host.reply(&question, r#"{"action":"decline"}"#);
    host.wait(&again).error(-31012);
    assert_eq!(host.ledger("a").len(), 1);
}

/// A few random bytes that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }

    fn line(&mut self) -> Vec<u8> {
        const PARTS: [&[u8]; 22] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b":",
            b",",
            b"\\",
            b"\\u",
            b"null",
            b"1e999",
            b"-",
            b"\xff\xfe",
            b"\xef\xbb\xbf",
            b"\0",
            b"\"jsonrpc\":\"2.0\"",
            b"\"id\":",
            b"\"method\":\"tools/call\"",
            b"\"method\":\"initialize\"",
            b"\"params\":{}",
            b"\"result\":{}",
            b"\"error\":{\"code\":1}",
        ];
        let mut line = Vec::new();
        for _ in 0..=self.below(24) {
            line.extend_from_slice(PARTS[self.below(PARTS.len())]);
        }
        line.push(b'\n');
        line
    }
}

#[test]
fn f46_whatever_both_sides_say_the_proxy_lives() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    let names = host.names("tools");
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut ends = Vec::new();
    for round in 0..60 {
        for _ in 0..50 {
            host.send_bytes(dice.line());
        }
        let junk = String::from_utf8_lossy(&dice.line()).trim_end().replace("ID", "id");
        host.call("a__raw_line", &json!({ "line": junk }).to_string());
        match round % 20 {
            3 => host.send_bytes([vec![b'['; 200_000], b"\n".to_vec()].concat()),
            7 => host.send(&format!(r#"{{"jsonrpc":"2.0","id":{round}{},"method":"ping"}}"#, "9".repeat(50_000))),
            11 => host.send(&format!(
                r#"{{"jsonrpc":"2.0","id":"f{round}","method":"tools/call","params":{}1{}}}"#,
                r#"{"a":"#.repeat(20_000),
                "}".repeat(20_000)
            )),
            13 => ends.push(host.request_call("b__kill", "{}")),
            17 => ends.push(host.request_call("b__close_stdout", "{}")),
            _ => {}
        }
    }
    for end in ends {
        host.wait(&end);
    }
    assert!(host.lives());
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(host.call("b__echo", "{}").text(), "{}");
    assert_eq!(host.pids("a").len(), 1, "noise is no reason to end a child");
}
