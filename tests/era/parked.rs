//! A legacy server asks while a modern host's call runs: each crossing of the table (`PROTOCOL.md` 5.3, 5.12).

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::{Machine, accepted};

const LIMIT: Duration = Duration::from_secs(15 * 60);

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_default()
}

#[test]
fn r63_r73_a_question_ends_the_attempt_and_the_retry_gets_the_answer() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    assert_eq!(asked["id"], 7);
    let question = &asked["result"]["inputRequests"]["q1"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "[s] m");
    assert_eq!(question["params"]["mode"], "form");
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted(), "stray": 7 }));
    assert_eq!(m.sent(), [json!({ "jsonrpc": "2.0", "id": 1, "result": accepted() })]);
    m.done(&wire);
    let answer = m.answer();
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!(8), &json!("complete")));
    m.retry(9, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    assert_eq!(code(&m.answer()), -32602, "a state is used once");
    assert!(m.sent().is_empty(), "and nothing is sent again");
}

#[test]
fn r77_several_questions_travel_in_one_round_and_r71_the_missing_are_asked_again() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    m.asks(1);
    m.asks(2);
    let asked = m.parks(3);
    let keys: Vec<&String> = asked["result"]["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["q1", "q2", "q3"]);
    let first = asked["result"]["requestState"].clone();
    m.retry(8, "t", &first, json!({ "q2": accepted() }));
    assert_eq!(m.sent().len(), 1);
    let again = m.answer();
    let keys: Vec<&String> = again["result"]["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["q1", "q3"]);
    m.retry(9, "t", &first, json!({ "q1": accepted() }));
    assert_eq!(code(&m.answer()), -32602, "of an older round");
    // One that comes meanwhile has a key of its own.
    m.asks(4);
    m.retry(10, "t", &again["result"]["requestState"], json!({ "q1": accepted(), "q3": accepted() }));
    let more = m.answer();
    let keys: Vec<&String> = more["result"]["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["q4"]);
    m.retry(11, "t", &more["result"]["requestState"], json!({ "q4": accepted() }));
    assert_eq!(m.sent().len(), 3);
    m.done(&wire);
    assert_eq!(m.answer()["id"], 11);
}

#[test]
fn a_malformed_answer_uses_nothing_up() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    let state = &asked["result"]["requestState"];
    m.retry(8, "t", state, json!({ "q1": "yes" }));
    assert_eq!(code(&m.answer()), -32602);
    m.retry(9, "t", state, json!({ "q1": accepted() }));
    m.done(&wire);
    assert_eq!(m.answer()["id"], 9);
}

#[test]
fn r68_r69_a_state_is_bound_to_its_call() {
    let mut m = Machine::modern_before_legacy();
    m.call(7, "t").unwrap();
    let asked = m.parks(1);
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    m.retry(8, "u", &json!(state), json!({ "q1": accepted() }));
    assert_eq!(code(&m.answer()), -32602, "another tool");
    let touched = format!("{}{}", &state[..state.len() - 3], if state.ends_with("AAA") { "BBB" } else { "AAA" });
    for bad in [touched.as_str(), "", "1.AAAA"] {
        m.retry(9, "t", &json!(bad), json!({ "q1": accepted() }));
        assert_eq!(code(&m.answer()), -32602, "{bad}");
    }
    assert!(m.sent().is_empty());
    m.pass(Duration::from_secs(25 * 3600));
    m.told();
    m.retry(10, "t", &json!(state), json!({ "q1": accepted() }));
    assert_eq!(code(&m.answer()), -32602, "expired");
}

#[test]
fn r70_a_second_retry_is_refused_while_the_first_waits() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    let state = &asked["result"]["requestState"];
    m.retry(8, "t", state, json!({ "q1": accepted() }));
    m.retry(9, "t", state, json!({ "q1": accepted() }));
    let refused = m.answer();
    assert_eq!((&refused["id"], code(&refused)), (&json!(9), -32602));
    assert_eq!(m.sent().len(), 1, "the answer is fed once");
    m.done(&wire);
    assert_eq!(m.answer()["id"], 8);
}

#[test]
fn r66_r78_a_question_that_is_not_covered_is_refused_and_the_call_goes_on() {
    let mut m = Machine::modern_before_legacy();
    m.capabilities = json!({ "elicitation": {} });
    let wire = m.call(7, "t").unwrap();
    m.child(json!({ "id": 1, "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } }));
    m.child(json!({ "id": 2, "method": "elicitation/create", "params": { "mode": "url", "message": "m", "url": "https://x.example/", "elicitationId": "e" } }));
    m.child(json!({ "id": 3, "method": "roots/list" }));
    let codes: Vec<i64> = m.sent().iter().map(code).collect();
    assert_eq!(codes, [-32601, -32602, -32601]);
    m.pass(Duration::from_millis(25));
    assert!(m.told().is_empty());
    m.done(&wire);
    assert_eq!(m.answer()["id"], 7);
}

#[test]
fn r82_nothing_more_is_said_for_an_attempt_that_was_answered_with_questions() {
    let mut m = Machine::modern_before_legacy();
    let meta = json!({ "progressToken": "p", "io.modelcontextprotocol/logLevel": "debug" });
    let wire = m.call_with(7, "t", meta).unwrap();
    let asked = m.parks(1);
    m.child(json!({ "method": "notifications/progress", "params": { "progressToken": wire, "progress": 1 } }));
    m.child(json!({ "method": "notifications/message", "params": { "level": "error", "data": "x" } }));
    assert!(m.told().is_empty());
    // The host may use the id anew: that request is another one.
    let other = m.call(7, "u").unwrap();
    m.child_exits();
    let answer = m.answer();
    assert_eq!((&answer["id"], code(&answer)), (&json!(7), -31010));
    assert_eq!(answer["error"]["data"]["tool"], "s__u", "{other}");
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    let answer = m.answer();
    assert_eq!(answer["error"]["data"]["tool"], "s__t");
}

#[test]
fn r83_the_retry_s_own_token_counts() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call_with(7, "t", json!({ "progressToken": "old" })).unwrap();
    let asked = m.parks(1);
    m.host(json!({ "id": 8, "method": "tools/call", "params": { "name": "s__t", "arguments": { "a": "t" }, "_meta": { "progressToken": "new" },
        "inputResponses": { "q1": accepted() }, "requestState": asked["result"]["requestState"] } }));
    m.child(json!({ "method": "notifications/progress", "params": { "progressToken": wire, "progress": 1 } }));
    assert_eq!(m.answer()["params"]["progressToken"], "new");
}

#[test]
fn a_cancelled_attempt_cancels_the_call() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    m.sent();
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 8 } }));
    assert_eq!(m.sent()[0]["params"]["requestId"], wire);
    m.done(&wire);
    m.retry(9, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    let told = m.answer();
    assert_eq!((&told["id"], code(&told)), (&json!(9), -32602));
    assert_eq!(m.lost, 1);
}

#[test]
fn a_cancel_that_crosses_our_questions_gives_the_call_up() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 7 } }));
    let sent = m.sent();
    assert_eq!(sent[0], json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "cancel" } }));
    assert_eq!(sent[1]["params"]["requestId"], wire);
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    assert_eq!(code(&m.answer()), -32602);
}

#[test]
fn r74_an_outcome_that_comes_meanwhile_is_kept() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.done(&wire);
    assert!(m.told().is_empty());
    assert_eq!(m.sent(), [json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "cancel" } })]);
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    let answer = m.answer();
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    assert!(m.sent().is_empty());
}

#[test]
fn a_call_that_ends_with_its_questions_open_leaves_none() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    m.parks(1);
    m.done(&wire);
    let cancelled = json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "cancel" } });
    assert_eq!(m.sent(), [cancelled], "the server is not left without a word");
    // The same while somebody waits.
    let wire = m.call(8, "t").unwrap();
    m.asks(2);
    m.done(&wire);
    assert_eq!(m.answer()["id"], 8);
    assert_eq!(m.sent()[0]["id"], 2);
}

#[test]
fn a_question_is_of_no_call_that_its_server_has_not_seen() {
    let mut m = Machine::modern_before_legacy();
    m.host(json!({ "id": 7, "method": "tools/call", "params": { "name": "s__t", "arguments": {} } }));
    // The call stands in our own queue still.
    m.asks(1);
    let sent = m.sent();
    assert_eq!((&sent[0]["method"], code(&sent[1])), (&json!("tools/call"), -32602));
    m.pass(Duration::from_millis(25));
    assert!(m.told().is_empty());
}

#[test]
fn a_question_that_was_taken_back_needs_no_answer() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.child(json!({ "method": "notifications/cancelled", "params": { "requestId": 1 } }));
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    assert!(m.sent().is_empty());
    m.done(&wire);
    assert_eq!(m.answer()["id"], 8);
}

#[test]
fn r75_a_host_that_never_returns_is_given_up() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.pass(LIMIT);
    assert_eq!(m.sent(), [json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "cancel" } })]);
    m.pass(Duration::from_secs(5));
    assert_eq!(m.sent()[0]["params"]["requestId"], wire);
    assert_eq!(m.lost, 1);
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    let answer = m.answer();
    assert_eq!(code(&answer), -31012);
    assert_eq!(answer["error"]["data"]["reason"], "input_expired");
}

#[test]
fn a_call_that_runs_long_after_its_questions_is_not_given_up() {
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    let asked = m.parks(1);
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    m.sent();
    m.pass(LIMIT * 2);
    assert!(m.sent().is_empty() && m.told().is_empty());
    m.done(&wire);
    assert_eq!(m.answer()["id"], 8);
}

#[test]
fn r76_the_end_of_the_child_or_of_the_proxy_is_an_unknown_outcome() {
    let mut m = Machine::modern_before_legacy();
    m.call(7, "t").unwrap();
    let asked = m.parks(1);
    let state = asked["result"]["requestState"].clone();
    m.child_exits();
    assert_eq!(m.lost, 1, "the row is written at once");
    assert!(m.told().is_empty());
    m.retry(8, "t", &state, json!({ "q1": accepted() }));
    let answer = m.answer();
    assert_eq!((code(&answer), &answer["error"]["data"]["reason"]), (-31010, &json!("child_exited")));
    let outcome = answer["error"]["data"]["outcomeId"].clone();
    assert!(outcome.as_str().unwrap().starts_with("u-"));

    let mut next = Machine::modern_before_legacy_as(2);
    next.retry(1, "t", &state, json!({ "q1": accepted() }));
    let answer = next.answer();
    assert_eq!((code(&answer), &answer["error"]["data"]["reason"]), (-31010, &json!("proxy_stopped")));
    assert_eq!(answer["error"]["data"]["outcomeId"], outcome);
    assert!(next.sent().is_empty());
}

#[test]
fn r79_an_ambiguous_question_goes_to_the_youngest_and_one_call_runs_from_then_on() {
    let mut m = Machine::modern_before_legacy();
    let first = m.call(1, "t").unwrap();
    let second = m.call(2, "u").unwrap();
    let asked = m.parks(1);
    assert_eq!(asked["id"], 2);
    // The first runs, so the next one waits, and so does the retry.
    assert_eq!(m.call(3, "t"), None);
    m.retry(4, "u", &asked["result"]["requestState"], json!({ "q1": accepted() }));
    assert!(m.sent().is_empty());
    m.done(&first);
    assert_eq!(m.answer()["id"], 1);
    let third = m.sent();
    assert_eq!(third.len(), 1, "{third:#?}");
    m.done(&third[0]["id"]);
    assert_eq!(m.answer()["id"], 3);
    assert_eq!(m.sent(), [json!({ "jsonrpc": "2.0", "id": 1, "result": accepted() })]);
    m.done(&second);
    assert_eq!(m.answer()["id"], 4);
}

#[test]
fn a_parked_call_gives_its_turn_up_and_thirty_two_may_wait() {
    let mut m = Machine::modern_before_legacy();
    m.call(1, "t").unwrap();
    m.call(2, "u").unwrap();
    m.parks(1);
    m.parks(2);
    for number in 3..33 {
        m.call(number, "t").expect("nobody has the turn");
        m.parks(number);
    }
    m.call(33, "t").expect("nobody has the turn");
    m.asks(33);
    assert_eq!(m.sent().iter().map(code).collect::<Vec<_>>(), [-32603]);
}

#[test]
fn two_hundred_and_fifty_six_calls_may_wait_at_all_servers() {
    let mut m = Machine::modern_before_many_legacy(9);
    let mut asked = Vec::new();
    let mut id = 0;
    for server in 0..8 {
        m.speak_of(server);
        for _ in 0..32 {
            id += 1;
            let wire = m.call(id, "t").expect("nobody has the turn");
            asked.push((server, wire, m.parks(id)));
        }
    }
    // Neither the ninth server nor one of the eight has room.
    for server in [8, 0] {
        m.speak_of(server);
        id += 1;
        let wire = m.call(id, "t").expect("nobody has the turn");
        m.asks(id);
        assert_eq!(m.sent().iter().map(code).collect::<Vec<_>>(), [-32603]);
        m.done(&wire);
        assert_eq!(m.answer()["id"], id, "the call itself goes on");
    }
    // A call that is over makes room.
    let (server, wire, parked) = asked.pop().unwrap();
    m.speak_of(server);
    m.retry(1000, "t", &parked["result"]["requestState"], json!({ "q1": accepted() }));
    m.sent();
    m.done(&wire);
    assert_eq!(m.answer()["id"], 1000);
    m.speak_of(8);
    m.call(1001, "t").expect("nobody has the turn");
    m.parks(1001);
}

#[test]
fn r80_questions_of_no_call_are_refused() {
    let mut m = Machine::modern_before_legacy();
    m.asks(1);
    m.child(json!({ "id": 2, "method": "ping" }));
    let sent = m.sent();
    assert_eq!((code(&sent[0]), &sent[1]["result"]), (-32602, &json!({})));
    m.child(json!({ "id": 3, "method": "roots/list" }));
    assert!(m.sent().is_empty());
    m.pass(Duration::from_secs(10));
    assert_eq!(m.sent().iter().map(code).collect::<Vec<_>>(), [-32601]);
}

#[test]
fn roots_are_asked_for_before_the_first_call_and_remembered() {
    let mut m = Machine::modern_before_legacy();
    m.child(json!({ "id": 1, "method": "roots/list" }));
    assert_eq!(m.call(7, "t"), None);
    let asked = m.answer();
    assert_eq!(asked["result"]["inputRequests"]["mcp-proxy.roots"]["method"], "roots/list");
    let roots = json!({ "roots": [{ "uri": "file:///r" }] });
    m.retry(8, "t", &asked["result"]["requestState"], json!({ "mcp-proxy.roots": roots }));
    let sent = m.sent();
    assert_eq!(sent[0]["result"], roots);
    assert_eq!(sent[1]["method"], "tools/call");
    // One answer counts, for on it the call goes out; and in the life of ours that asked.
    m.retry(9, "t", &asked["result"]["requestState"], json!({ "mcp-proxy.roots": roots }));
    assert_eq!(code(&m.answer()), -32602);
    assert!(m.sent().is_empty());
    let mut next = Machine::modern_before_legacy_as(2);
    next.retry(1, "t", &asked["result"]["requestState"], json!({ "mcp-proxy.roots": roots }));
    assert_eq!(code(&next.answer()), -32602);
    assert!(next.sent().is_empty());
    m.child(json!({ "id": 2, "method": "roots/list" }));
    m.pass(Duration::from_millis(25));
    let round = m.answer();
    assert_eq!(round["result"]["inputRequests"]["q1"]["method"], "roots/list");
}

#[test]
fn a_repeat_is_asked_about_also_behind_a_question_for_roots_and_runs_once() {
    let mut m = Machine::modern_before_legacy();
    m.call(1, "t").unwrap();
    m.child_exits();
    assert_eq!(code(&m.answer()), -31010);
    m.child_returns();
    m.child(json!({ "id": 1, "method": "roots/list" }));
    assert_eq!(m.call(2, "t"), None);
    let asked = m.answer()["result"].clone();
    m.retry(3, "t", &asked["requestState"], json!({ "mcp-proxy.roots": { "roots": [] } }));
    assert!(m.sent().iter().all(|line| line["method"] != "tools/call"), "its outcome is not known");
    let asked = m.answer()["result"].clone();
    assert_eq!(asked["inputRequests"]["mcp-proxy.repeat"]["method"], "elicitation/create", "{asked}");
    let state = &asked["requestState"];
    m.retry(4, "t", state, json!({ "mcp-proxy.repeat": "yes" }));
    assert_eq!(code(&m.answer()), -32602, "a malformed answer uses nothing up");
    // The server asks for roots again: a person was asked enough.
    m.child(json!({ "id": 2, "method": "roots/list" }));
    let yes = json!({ "mcp-proxy.repeat": { "action": "accept", "content": { "runAgain": true } } });
    m.retry(5, "t", state, yes.clone());
    let sent = m.sent();
    let call = sent.iter().find(|line| line["method"] == "tools/call").expect("it may run again");
    assert_eq!(call["params"].get("inputResponses"), None);
    m.retry(6, "t", state, yes);
    let refused = m.answer();
    assert_eq!((&refused["id"], code(&refused)), (&json!(6), -32602), "once");
    assert!(m.sent().is_empty());
    m.done(&call["id"]);
    assert_eq!(m.answer()["id"], 5);
}

#[test]
fn r122_a_url_by_error_is_a_question_and_the_call_goes_out_anew() {
    let url =
        json!({ "mode": "url", "elicitationId": "e-5", "url": "https://idp.example/start", "message": "Connect" });
    let required = |wire: &Value| json!({ "id": wire, "error": { "code": -32042, "message": "first", "data": { "elicitations": [url] } } });
    let mut m = Machine::modern_before_legacy();
    let wire = m.call(7, "t").unwrap();
    m.child(required(&wire));
    let asked = m.answer();
    let question = &asked["result"]["inputRequests"]["u1"]["params"];
    assert_eq!(question["message"], "[s] Connect");
    assert_eq!(question.get("elicitationId"), None);
    let state = asked["result"]["requestState"].clone();
    m.retry(8, "t", &state, json!({ "u1": 1 }));
    assert_eq!(code(&m.answer()), -32602, "a malformed answer uses nothing up");
    m.retry(8, "t", &state, json!({ "u1": { "action": "decline" } }));
    assert_eq!(m.answer()["error"]["data"]["reason"], "input_not_provided");
    m.retry(8, "t", &state, json!({ "u1": { "action": "accept" } }));
    assert_eq!(code(&m.answer()), -32602, "a no is an answer, too");
    let wire = m.call(7, "t").unwrap();
    m.child(required(&wire));
    let state = m.answer()["result"]["requestState"].clone();
    m.retry(9, "t", &state, json!({ "u1": { "action": "accept" } }));
    assert!(m.sent().is_empty(), "it waits for word of the visit");
    m.retry(10, "t", &state, json!({ "u1": { "action": "accept" } }));
    assert_eq!(code(&m.answer()), -32602, "one answer counts");
    m.child(json!({ "method": "notifications/elicitation/complete", "params": { "elicitationId": "e-5" } }));
    let sent = m.sent();
    assert_eq!(sent[0]["method"], "tools/call");
    assert!(m.told().is_empty(), "a modern host knows no such notification");
    // Without such word it goes out after half a minute.
    m.child(required(&sent[0]["id"]));
    let asked = m.answer();
    m.capabilities = json!({});
    m.retry(10, "t", &asked["result"]["requestState"], json!({ "u1": { "action": "accept" } }));
    m.pass(Duration::from_secs(30));
    let sent = m.sent();
    assert_eq!(sent.len(), 1);
    m.child(required(&sent[0]["id"]));
    let told = m.answer();
    assert_eq!(told["result"]["isError"], true, "a host without URLs reads what is to be done: {told}");
}

#[test]
fn the_level_is_raised_at_once_and_lowered_when_nobody_wants_it_any_more() {
    let level = |sent: &[Value]| -> Vec<String> {
        let set = sent.iter().filter(|line| line["method"] == "logging/setLevel");
        set.map(|line| line["params"]["level"].as_str().unwrap().to_owned()).collect()
    };
    let meta = |level: &str| json!({ "io.modelcontextprotocol/logLevel": level });
    let call = |m: &mut Machine, id: u64, level: &str| {
        m.host(json!({ "id": id, "method": "tools/call", "params": { "name": "s__t", "arguments": { "a": "t" }, "_meta": meta(level) } }));
        m.sent()
    };
    let said = |m: &mut Machine, sent: &[Value]| {
        for line in sent.iter().filter(|line| line["method"] == "logging/setLevel") {
            m.child(json!({ "id": line["id"], "result": {} }));
        }
    };
    let mut m = Machine::modern_before_legacy();
    let sent = call(&mut m, 1, "warning");
    said(&mut m, &sent);
    assert_eq!(level(&sent), ["warning"]);
    assert_eq!(sent[0]["method"], "logging/setLevel", "before the call");
    let verbose = call(&mut m, 2, "debug");
    said(&mut m, &verbose);
    assert_eq!(level(&verbose), ["debug"]);
    let third = call(&mut m, 3, "info");
    assert!(level(&third).is_empty());
    let wire = verbose.iter().find(|line| line["method"] == "tools/call").unwrap()["id"].clone();
    m.done(&wire);
    m.pass(Duration::from_secs(59));
    assert!(level(&m.sent()).is_empty(), "not at once");
    m.pass(Duration::from_secs(1));
    let sent = m.sent();
    said(&mut m, &sent);
    assert_eq!(level(&sent), ["info"], "what those under way want");
    for sent in [&sent, &third] {
        for call in sent.iter().filter(|line| line["method"] == "tools/call") {
            m.done(&call["id"]);
        }
    }
    m.pass(Duration::from_secs(60));
    let sent = m.sent();
    said(&mut m, &sent);
    assert_eq!(level(&sent), ["warning"]);
}
