//! Each way to lose an answer gives one row with its reason, and an error that says what to do; late answers settle it.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{edit_config, outcome_of, row, rows, rows_until};
use crate::harness::{Host, Setup};

/// A host whose server `a` has one call of a recorded tool under way.
fn under_way(setup: Setup) -> (Host, String) {
    let mut host = setup.open();
    host.names("tools");
    let id = host.request_call("a__ledger", r#"{"ms":60000,"note":"x"}"#);
    host.pending("a", 1);
    (host, id)
}

/// The error of a lost call and its one row say the same.
#[track_caller]
fn told_and_written(host: &mut Host, id: &str, reason: &str, exit: Option<&Value>) -> Value {
    let error = host.wait(id).error(-31010);
    let (data, message) = (&error["data"], error["message"].as_str().unwrap());
    let outcome = outcome_of(&error);
    assert_eq!(data["reason"], reason, "{error:#}");
    assert_eq!(data["source"], "mcp-proxy");
    assert_eq!((&data["server"], data.get("exit")), (&json!("a"), exit), "{error:#}");
    assert!(data["tool"].as_str().unwrap().starts_with("a__"), "{error:#}");
    assert!(message.contains(&outcome), "the message carries the row's id: {message}");
    let hint = data["hint"].as_str().unwrap();
    assert!(message.contains(hint) && hint.contains("check"), "and how to verify: {message}");
    let row = row(host, &outcome);
    assert_eq!((&row["reason"], row.get("exit")), (&json!(reason), exit), "{row:#}");
    assert_eq!((&row["server"], &row["exposed"], &row["request"]), (&data["server"], &data["tool"], &data["request"]));
    assert_eq!(row["hostRequestId"].to_string(), id);
    assert_eq!(row["state"], "unknown");
    assert_eq!(row["pid"], host.pid);
    row
}

#[test]
fn the_process_ends() {
    for (crash, code) in [("before_run", 3), ("after_run", 3), ("half_reply", 3)] {
        let mut host = Setup::new().server_with("a", &["ledger"], "").open();
        host.names("tools");
        let arguments = format!(r#"{{"crash":"{crash}","amount":1.50}}"#);
        let id = host.request_call("a__ledger", &arguments);
        let row = told_and_written(&mut host, &id, "child_exited", Some(&json!({ "code": code })));
        assert_eq!(row["arguments"], json!({ "crash": crash, "amount": 1.5 }));
        assert_eq!((&row["tool"], &row["generation"]), (&json!("ledger"), &json!(1)));
        assert_eq!(host.ledger("a").len(), usize::from(crash != "before_run"), "{crash}");
    }
}

#[test]
fn the_answer_comes_before_the_process_ends() {
    let mut host = Setup::new().server_with("a", &["ledger"], "").open();
    host.names("tools");
    assert_eq!(host.call("a__ledger", r#"{"crash":"after_reply"}"#).text(), "written");
    // A call that goes into its pipe before that would be lost with it.
    host.status_until("a", "its end is known", |status| !status["lastExit"].is_null());
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(rows(&host), Vec::<Value>::new());
}

#[test]
fn a_request_dies_unread_in_the_pipe() {
    let mut host = Setup::new().server_with("a", &["ledger"], "").open();
    host.names("tools");
    host.request_call("a__exit", r#"{"ms":600,"code":4}"#);
    host.request_call("a__block", r#"{"ms":60000}"#);
    let id = host.request_call("a__ledger", "{}");
    told_and_written(&mut host, &id, "child_exited", Some(&json!({ "code": 4 })));
    assert!(host.ledger("a").iter().all(|effect| effect["tool"] != "ledger"));
}

#[test]
fn the_connection_is_lost() {
    let (mut host, id) = under_way(Setup::new().server("a", ""));
    host.request_call("a__close_stdout", "{}");
    told_and_written(&mut host, &id, "connection_lost", None);
}

#[test]
fn the_limits_pass() {
    for limit in ["call_max_time", "call_idle_timeout"] {
        let mut host = Setup::new().tuned("a", "", &format!(r#"{limit} = "200ms""#)).open();
        host.names("tools");
        let id = host.request_call("a__ledger", r#"{"ms":60000}"#);
        told_and_written(&mut host, &id, "timeout", None);
        assert_eq!(host.call("a__echo", "{}").text(), "{}", "the server lives on");
        assert_eq!(host.pids("a").len(), 1);
    }
}

#[test]
fn the_host_cancels_after_sending() {
    let (mut host, id) = under_way(Setup::new().server("a", ""));
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":"no need"}}"#));
    let rows = rows_until(&host.path("home/state"), "the row of the cancelled call", |rows| rows.len() == 1);
    assert_eq!((&rows[0]["reason"], rows[0]["hostRequestId"].to_string()), (&json!("cancelled"), id.clone()));
    host.fence();
    assert!(!host.has_answer(&id), "a cancelled request has no answer");
    // A person was at hand: it stands in nobody's way.
    let again = host.request_call("a__ledger", r#"{"ms":0,"note":"x"}"#);
    assert_eq!(host.wait(&again).text(), "written");
}

#[test]
fn the_answer_is_too_large_or_no_answer() {
    let cases = [
        ("oversize", r#"{"bytes":300000}"#, "response_too_large"),
        ("invalid_reply", r#"{"kind":"both"}"#, "invalid_response"),
        ("invalid_reply", r#"{"kind":"neither"}"#, "invalid_response"),
        ("invalid_reply", r#"{"kind":"number"}"#, "invalid_response"),
        ("invalid_reply", r#"{"kind":"errorstring"}"#, "invalid_response"),
    ];
    let mut host = Setup::new().proxy(r#"max_message = "128KiB""#).server("a", "").open();
    host.names("tools");
    for (tool, arguments, reason) in cases {
        let id = host.request_call(&format!("a__{tool}"), arguments);
        told_and_written(&mut host, &id, reason, None);
    }
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(host.pids("a").len(), 1);
}

#[test]
fn the_server_is_replaced() {
    let (mut host, id) = under_way(Setup::new().tuned("a", "", "drain_timeout = \"200ms\"\nenv = { V = \"1\" }"));
    edit_config(&host, r#"V = "1""#, r#"V = "2""#);
    host.signal(Signal::HUP);
    told_and_written(&mut host, &id, "server_replaced", None);
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert_eq!(host.pids("a").len(), 2);
}

#[test]
fn the_proxy_is_stopped() {
    for by_signal in [true, false] {
        let (mut host, id) = under_way(Setup::new().server("a", ""));
        if by_signal {
            host.signal(Signal::TERM);
        } else {
            host.close();
        }
        let error = host.wait(&id).error(-31010);
        assert_eq!(error["data"]["reason"], "proxy_stopped", "{error:#}");
        host.was_killed();
        host.exit();
        // What the ledger had no time for is in the in-flight file, and whoever comes next takes it over.
        let row = row(&host, &outcome_of(&error));
        assert_eq!((&row["reason"], row["hostRequestId"].to_string()), (&json!("proxy_stopped"), id));
    }
}

#[test]
fn a_crash_after_the_hosts_eof_is_still_a_crash() {
    let mut host = Setup::new().server("a", "").open();
    host.names("tools");
    let id = host.request_call("a__ledger", r#"{"ms":200,"crash":"after_run"}"#);
    host.pending("a", 1);
    host.close();
    let error = host.wait(&id).error(-31010);
    assert_eq!(error["data"]["reason"], "child_exited", "{error:#}");
    assert_eq!(error["data"]["exit"], json!({ "code": 3 }));
}

#[test]
fn the_proxy_is_killed() {
    let (mut host, id) = under_way(Setup::new().server("a", ""));
    let pid = host.pid;
    assert_eq!(host.call("a__ledger", r#"{"note":"answered"}"#).text(), "written");
    // An answer that is being written in the moment of a kill may have a row: this one is not.
    host.fence();
    host.signal(Signal::KILL);
    host.was_killed();
    host.exit();
    let mut host = host.restart().open();
    // The next start takes it over, once.
    host.until("the row is there", || rows(&host).len() == 1);
    let row = rows(&host).remove(0);
    assert_eq!((&row["reason"], &row["pid"]), (&json!("proxy_killed"), &json!(pid)), "{row:#}");
    assert_eq!((row["hostRequestId"].to_string(), &row["arguments"]["note"]), (id, &json!("x")));
    // It is in the way of an identical call of the new life, too.
    host.names("tools");
    let error = host.call("a__ledger", r#"{"ms":60000,"note":"x"}"#).error(-31012);
    assert_eq!(error["data"]["outcomeId"], row["id"]);
    assert!(error["message"].as_str().unwrap().contains("killed"), "{error:#}");
}

#[test]
fn late_answers_settle_their_rows_and_reach_nobody() {
    let mut host = Setup::new().tuned("a", "", r#"call_max_time = "300ms""#).open();
    host.names("tools");
    let cases = [
        ("a__ledger", r#"{"ms":900,"k":1}"#, "success", json!({ "content": [{ "type": "text", "text": "written" }] })),
        (
            "a__ledger",
            r#"{"ms":900,"error":true}"#,
            "protocol_error",
            json!({ "code": -32602, "message": "bad arguments" }),
        ),
    ];
    for (tool, arguments, kind, result) in cases {
        let id = host.request_call(tool, arguments);
        settled(&mut host, &id, kind, &result);
    }
    // Its request lies in the pipe until the thread that reads goes on.
    host.request_call("a__block", r#"{"ms":900}"#);
    let id = host.request_call("a__is_error", r#"{"text":"no such account"}"#);
    let result = json!({ "content": [{ "type": "text", "text": "no such account" }], "isError": true });
    settled(&mut host, &id, "tool_error", &result);
    // What settled late with an error arms nothing; with success it does, and the answer says so.
    let error = host.call("a__ledger", r#"{"ms":900,"k":1}"#).error(-31012);
    assert!(error["message"].as_str().unwrap().contains("succeeded"), "{error:#}");
    let error = host.call("a__is_error", r#"{"text":"no such account"}"#).result();
    assert_eq!(error["isError"], true);
}

/// A call that was given up is settled by its late answer.
#[track_caller]
fn settled(host: &mut Host, id: &str, kind: &str, result: &Value) {
    let outcome = outcome_of(&host.wait(id).error(-31010));
    let is_settled = |rows: &[Value]| rows.iter().any(|row| row["id"] == *outcome && row["state"] == "settled");
    let rows = rows_until(&host.path("home/state"), &format!("{outcome} is settled"), is_settled);
    let row = rows.iter().find(|row| row["id"] == *outcome).unwrap();
    assert_eq!(row["settlement"]["kind"], kind, "{row:#}");
    assert_eq!(row["settlement"]["result"], *result, "{row:#}");
    assert_eq!(row["reason"], "timeout");
    host.fence();
    assert!(!host.has_answer(id), "one answer, and no second");
}

#[test]
fn the_late_answer_of_a_cancelled_call_settles_it() {
    let mut host = Setup::new().server("a", "").open();
    host.names("tools");
    let id = host.request_call("a__late", r#"{"ms":100}"#);
    host.pending("a", 1);
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#));
    let settled = |rows: &[Value]| rows.len() == 1 && rows[0]["state"] == "settled";
    let rows = rows_until(&host.path("home/state"), "it is settled", settled);
    assert_eq!((&rows[0]["settlement"]["kind"], &rows[0]["reason"]), (&json!("success"), &json!("cancelled")));
    assert_eq!(rows[0]["settlement"]["result"]["content"][0]["text"], "late");
    host.fence();
    assert!(!host.has_answer(&id));
}
