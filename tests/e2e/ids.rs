//! Ids, cancellation, progress, time limits, signs of life (F28–F32).

use std::time::Instant;

use serde_json::json;

use crate::harness::{SOON, Setup, raw_member};

#[test]
fn f28_every_id_comes_back_as_it_was() {
    let mut host = Setup::new().server("a", "").server("b", "string_ids").open();
    let long = format!("\"{}\"", "k".repeat(1024));
    let ids = [
        "0",
        "-1",
        "\"0\"",
        "\"-1\"",
        "9007199254740993",
        "\"9007199254740993\"",
        "\"\"",
        "\"a-b\"",
        "\"\\u00e9\\n\\\"\"",
        "18446744073709551616",
        &long,
    ];
    for (server, method) in [("a", "echo"), ("b", "echo")] {
        for id in ids {
            host.send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{server}__{method}","arguments":{{"of":{id}}}}}}}"#
            ));
        }
        for id in ids {
            assert_eq!(host.wait(id).text(), format!(r#"{{"of":{id}}}"#), "{server}");
        }
    }
}

#[test]
fn f28_a_child_that_answers_with_a_string_is_understood_and_a_late_double_is_not() {
    let mut host = Setup::new().server("a", "").open();
    assert_eq!(host.call("a__string_id", "{}").text(), "ok");
    assert_eq!(host.call("a__double_reply", "{}").text(), "first");
    assert_eq!(host.call("a__wrong_id", r#"{"id":1}"#).text(), "right", "an answered number is nobody's");
    assert_eq!(host.call("a__wrong_id", r#"{"id":"x"}"#).text(), "right");
    assert_eq!(host.call("a__echo", r#"{"x":1}"#).text(), r#"{"x":1}"#);
    assert_eq!(host.others(), 0);
}

#[test]
fn f28_answers_that_are_none_fail_their_call_at_once() {
    let mut host = Setup::new().server("a", "").open();
    for kind in ["both", "neither", "number"] {
        let error = host.call("a__invalid_reply", &json!({ "kind": kind }).to_string()).error(-31010);
        assert_eq!(error["data"]["reason"], "invalid_response", "{kind}");
    }
    for kind in ["nojsonrpc", "noversion"] {
        let reply = host.call("a__invalid_reply", &json!({ "kind": kind }).to_string());
        assert_eq!(reply.text(), "ok", "{kind}");
        assert_eq!(reply.raw_member("jsonrpc").as_deref(), Some("\"2.0\""), "{kind}");
    }
    assert_eq!(host.status("a")["restarts"], 0);
}

#[test]
fn f28_an_id_in_use_is_not_taken_twice() {
    let mut host = Setup::new().server("a", "").open();
    host.send(
        r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"a__sleep","arguments":{"ms":200}}}"#,
    );
    host.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"a__echo","arguments":{}}}"#);
    assert_eq!(host.wait("\"x\"").text(), "slept");
    host.fence();
    assert!(!host.has_answer("\"x\""));
    host.logged("under way");
    // Once it is answered it may be used again.
    host.send(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"a__echo","arguments":{"y":2}}}"#);
    assert_eq!(host.wait("\"x\"").text(), r#"{"y":2}"#);
}

#[test]
fn f29_two_children_with_the_same_ids_get_their_own_answers() {
    for flags in ["", "ids=string"] {
        let mut host = Setup::new().server("a", flags).server("b", flags).open_able();
        let calls = ["a", "b"].map(|key| host.request_call(&format!("{key}__elicit"), r#"{"message":"Who?"}"#));
        let mut questions = [host.asked("elicitation/create"), host.asked("elicitation/create")];
        questions.sort_by_key(|question| question.params()["message"].as_str().unwrap().to_owned());
        assert_eq!(questions[0].params()["message"], "[a] Who?");
        assert_ne!(questions[0].raw_member("id"), questions[1].raw_member("id"));
        for (question, who) in questions.iter().zip(["a", "b"]).rev() {
            host.reply(question, &format!(r#"{{"action":"accept","content":{{"name":"for {who}"}}}}"#));
        }
        for (call, who) in calls.iter().zip(["a", "b"]) {
            let told = host.wait(call).text();
            assert!(told.contains(&format!("for {who}")), "{told}");
            let id = raw_member(&told, "id").unwrap();
            assert_eq!(id, if flags.is_empty() { "0" } else { "\"0\"" }, "the child's own id in its own type");
        }
    }
}

#[test]
fn f30_a_cancellation_reaches_its_call_and_nobody_else() {
    let mut host = Setup::new().server("a", "single").server("b", "").server("c", "").open();
    host.names("tools");
    let id = host.request_call("c__sleep", r#"{"ms":60000}"#);
    host.pending("c", 1);
    let began = Instant::now();
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id},"reason":"no longer"}}"#));
    let told = host.call("c__cancelled", "{}").told();
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
    assert!(began.elapsed() < SOON);
    // It has the child's number and the host's reason.
    let line =
        host.call("c__received", r#"{"method":"notifications/cancelled"}"#).told()[0].as_str().unwrap().to_owned();
    assert!(
        line.contains(r#""reason":"no longer""#) && line.contains(&format!(r#""requestId":{}"#, told[0])),
        "{line}"
    );
    // Ids that are unknown, answered, or the handshake's: ignored.
    for other in ["424242", "\"x\"", "1"] {
        host.notify("notifications/cancelled", &format!(r#"{{"requestId":{other}}}"#));
    }
    host.notify("notifications/cancelled", "{}");
    assert_eq!(host.call("b__cancelled", "{}").told(), json!([]));
    assert_eq!(host.call("c__cancelled", "{}").told().as_array().unwrap().len(), 1);
    assert!(!host.has_answer(&id), "a cancelled request gets no answer");
    assert_eq!(host.status("c")["pending"], 0);
}

#[test]
fn f30_a_late_answer_of_a_cancelled_call_is_swallowed() {
    let mut host = Setup::new().server("a", "").open();
    let id = host.request_call("a__late", r#"{"ms":50}"#);
    host.pending("a", 1);
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#));
    host.pending("a", 0);
    host.call("a__echo", "{}");
    assert!(!host.has_answer(&id));
}

#[test]
fn f30_our_own_time_limit_cancels_too() {
    let mut host = Setup::new().tuned("a", "", "call_max_time = \"300ms\"").open();
    let error = host.call("a__hang", "{}").error(-31010);
    assert_eq!(error["data"]["reason"], "timeout");
    assert!(error["data"]["outcomeId"].as_str().unwrap().starts_with("u-"), "{error:#}");
    let told = host.call("a__cancelled", "{}").told();
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}

#[test]
fn f31_progress_and_meta_reach_their_own_call() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("tools");
    let tokens = ["7", "\"7\"", "\"seven\"", "0"];
    let mut calls = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        let server = ["a", "b"][n % 2];
        let params = format!(
            r#"{{"name":"{server}__progress","arguments":{{"n":5,"bytes":{}}},"_meta":{{"x/deep":{{"n":1.0}},"progressToken":{token}}}}}"#,
            n + 1
        );
        calls.push(host.request("tools/call", &params));
    }
    for call in &calls {
        assert_eq!(host.wait(call).text(), "done");
    }
    let news = host.notifications("notifications/progress");
    for (n, token) in tokens.iter().enumerate() {
        let own: Vec<u64> = news
            .iter()
            .filter(|message| raw_member(&message.raw_member("params").unwrap(), "progressToken").unwrap() == *token)
            .map(|message| {
                assert_eq!(message.params()["message"].as_str().unwrap().len(), n + 1, "of its own call");
                message.params()["progress"].as_u64().unwrap()
            })
            .collect();
        assert_eq!(own, [1, 2, 3, 4, 5], "{token}");
    }
    assert_eq!(news.len(), 20);
    // Without a token there is none, and all else of `_meta` goes through.
    host.call("a__progress", r#"{"n":3}"#);
    assert!(host.notifications("notifications/progress").is_empty());
    let meta = r#"{"x/y":[1.0,null],"traceparent":"00-a-b-01","z":{"progressToken":1}}"#;
    let reply = host.ask("tools/call", &format!(r#"{{"name":"a__echo_meta","arguments":{{}},"_meta":{meta}}}"#));
    assert_eq!(reply.text(), meta);
}

#[test]
fn f31_no_progress_after_the_answer() {
    let mut host = Setup::new().server("a", "").open();
    let params = r#"{"name":"a__progress","arguments":{"n":2,"after":true},"_meta":{"progressToken":"t"}}"#;
    host.ask("tools/call", params).result();
    host.call("a__echo", "{}");
    assert_eq!(host.notifications("notifications/progress").len(), 2);
}

#[test]
fn f32_a_busy_or_deaf_child_is_not_taken_for_dead() {
    let quick = "ping_interval = \"100ms\"";
    let mut host = Setup::new()
        .tuned("busy", "single record", quick)
        .tuned("never", "hang:ping record", quick)
        .tuned("refuses", "error:ping=-32603 record", quick)
        .tuned("unknown", "error:ping=-32601 record", quick)
        .open();
    host.names("tools");
    let id = host.request_call("busy__block", r#"{"ms":1500}"#);
    assert_eq!(host.wait(&id).text(), "blocked");
    for key in ["busy", "refuses"] {
        host.until(key, || host.sent(key, "ping") >= 2);
    }
    assert!(host.sent("never", "ping") <= 1 && host.sent("unknown", "ping") <= 1, "asked once, then no more");
    for key in ["busy", "never", "refuses", "unknown"] {
        assert_eq!(host.pids(key).len(), 1, "{key} was restarted");
        assert_eq!(host.call(&format!("{key}__echo"), "{}").text(), "{}");
        assert_eq!(host.status(key)["state"], "ready");
    }
    // None while a call was pending.
    let lines = host.record("busy");
    let at = lines.iter().position(|line| line.contains("__block") || line.contains("\"block\"")).unwrap();
    let next = lines.get(at + 1).cloned().unwrap_or_default();
    assert!(!next.contains("\"ping\"") || host.sent("busy", "ping") >= 1, "{next}");
}

#[test]
fn max_pending_refuses_what_is_too_much_and_nothing_else() {
    let mut host = Setup::new().tuned("a", "", "max_pending = 3").server("b", "").open();
    host.names("tools");
    let ids: Vec<String> = (0..5).map(|_| host.request_call("a__sleep", r#"{"ms":60000}"#)).collect();
    for id in &ids[3..] {
        let error = host.wait(id).error(-31011);
        assert_eq!((&error["data"]["reason"], &error["data"]["server"]), (&json!("busy"), &json!("a")));
    }
    assert_eq!(host.call("b__echo", "{}").text(), "{}");
    for id in &ids[..3] {
        host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#));
    }
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}
