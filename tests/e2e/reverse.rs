//! What children ask the host: sampling, elicitation, roots (F37, F38).

use std::time::Instant;

use serde_json::json;

use crate::harness::{ABLE, SOON, Setup, raw_member};

#[test]
fn f37_a_child_is_told_what_the_host_can_and_no_more() {
    for (version, capabilities, declared) in [
        ("2025-11-25", "{}", json!({})),
        ("2025-11-25", r#"{"elicitation":{}}"#, json!({ "elicitation": { "form": {} } })),
        ("2025-11-25", ABLE, serde_json::from_str(ABLE).unwrap()),
        ("2025-06-18", r#"{"sampling":{},"roots":{}}"#, json!({ "roots": { "listChanged": false }, "sampling": {} })),
    ] {
        let mut host = Setup::new().server("a", "").start();
        host.initialize(version, capabilities);
        let opening = host.call("a__opening", "{}").told();
        assert_eq!(opening["capabilities"], declared, "{capabilities}");
        assert_eq!(opening["clientInfo"]["name"], "mcp-proxy");
    }
}

#[test]
fn f37_what_the_host_can_not_do_is_refused_at_once() {
    let mut host = Setup::new().server("a", "").open();
    let began = Instant::now();
    for tool in ["elicit", "sample", "roots"] {
        let answer = host.call(&format!("a__{tool}"), "{}").told();
        assert_eq!(answer["error"]["code"], -32601, "{tool}");
    }
    assert!(began.elapsed() < SOON);
    assert_eq!(host.call("a__ping_host", "{}").told()["result"], json!({}), "a ping is answered by us");
    assert_eq!(host.call("a__ask", r#"{"method":"no/such"}"#).told()["error"]["code"], -32601);
    assert_eq!(host.open_requests(), 0);
}

#[test]
fn f37_modes_that_the_host_lacks_are_refused() {
    let mut host = Setup::new().server("a", "").start();
    host.initialize("2025-11-25", r#"{"elicitation":{"form":{}},"sampling":{}}"#);
    assert_eq!(host.call("a__elicit", r#"{"mode":"url"}"#).told()["error"]["code"], -32602);
    let params = r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"tools":[]}}"#;
    assert_eq!(host.call("a__ask", params).told()["error"]["code"], -32602);
    assert_eq!(host.open_requests(), 0);
}

#[test]
fn f37_five_questions_at_once_are_answered_in_any_order() {
    let mut host = Setup::new().server("a", "").server("b", "").open_able();
    let calls = ["a", "b"].map(|key| host.request_call(&format!("{key}__five"), "{}"));
    let mut questions = Vec::new();
    for (method, count) in [("elicitation/create", 6), ("sampling/createMessage", 4)] {
        for _ in 0..count {
            questions.push(host.asked(method));
        }
    }
    for question in questions.iter().rev() {
        let own = raw_member(&question.raw, "id").unwrap();
        host.reply(question, &format!(r#"{{"action":"accept","content":{{"n":1e400}},"to":{own}}}"#));
    }
    let mut seen = Vec::new();
    for call in &calls {
        let answers: Vec<String> = crate::harness::raw_elements(&host.wait(call).text());
        // Each answer stands at the child's own id, whose number is the question's place.
        for (n, answer) in answers.iter().enumerate() {
            assert_eq!(raw_member(answer, "id").unwrap(), n.to_string());
            assert!(answer.contains(r#""n":1e400"#), "{answer}");
            seen.push(raw_member(&raw_member(answer, "result").unwrap(), "to").unwrap());
        }
        assert_eq!(answers.len(), 5);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10, "ten questions, ten answers");
}

#[test]
fn f37_sampling_passes_unchanged_but_for_what_would_cross_children() {
    let mut host = Setup::new().server("a", "").open_able();
    let params = r#"{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"mem:///hello","text":"t"}}}],"maxTokens":10,"includeContext":"allServers","temperature":1e0,"x_future":null,"_meta":{"progressToken":"mine"}}}"#;
    let call = host.request_call("a__ask", params);
    let question = host.asked("sampling/createMessage");
    let token = question.params()["_meta"]["progressToken"].clone();
    assert_eq!(
        raw_member(&question.raw, "params").unwrap(),
        format!(
            r#"{{"messages":[{{"role":"user","content":{{"type":"resource","resource":{{"uri":"a+mem:///hello","text":"t"}}}}}}],"maxTokens":10,"includeContext":"none","temperature":1e0,"x_future":null,"_meta":{{"progressToken":{token}}}}}"#
        )
    );
    // The host's progress comes back under the child's own token.
    host.notify("notifications/progress", &format!(r#"{{"progressToken":{token},"progress":1}}"#));
    let id = raw_member(&question.raw, "id").unwrap();
    host.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"User rejected","data":[1.0]}}}}"#
    ));
    let answer = host.wait(&call).text();
    assert_eq!(raw_member(&answer, "error").unwrap(), r#"{"code":-1,"message":"User rejected","data":[1.0]}"#);
    let lines = host.call("a__received", r#"{"method":"notifications/progress"}"#).text();
    assert!(lines.contains(r#"\"progressToken\":\"mine\""#), "{lines}");
}

#[test]
fn f37_url_elicitations_and_their_completion_keep_children_apart() {
    let mut host = Setup::new().server("a", "").server("b", "").open_able();
    let mut exposed = Vec::new();
    for key in ["a", "b"] {
        let call = host.request_call(&format!("{key}__elicit"), r#"{"mode":"url","complete":true}"#);
        let question = host.asked("elicitation/create");
        assert_eq!(question.params()["url"], "https://idp.example/start", "never touched");
        let id = question.params()["elicitationId"].as_str().unwrap().to_owned();
        exposed.push((call, question, id));
    }
    assert_ne!(exposed[0].2, exposed[1].2, "both children call theirs e-1");
    for (call, question, id) in exposed.iter().rev() {
        host.reply(question, r#"{"action":"accept"}"#);
        host.wait(call).text();
        assert_eq!(host.notification("notifications/elicitation/complete").params()["elicitationId"], **id);
    }
}

#[test]
fn f37_a_question_that_is_taken_back_is_cancelled_at_the_host() {
    let mut host = Setup::new().server("a", "").open_able();
    let arguments = r#"{"method":"elicitation/create","params":{"message":"m","requestedSchema":{}},"id":5,"cancel_after_ms":1,"timeout_ms":50}"#;
    let call = host.request_call("a__ask", arguments);
    let question = host.asked("elicitation/create");
    let cancelled = host.notification("notifications/cancelled").params();
    assert_eq!(cancelled["requestId"].to_string(), raw_member(&question.raw, "id").unwrap());
    assert_eq!(host.wait(&call).text(), "no answer");
    // The late answer reaches nobody, and the id is free.
    host.reply(&question, r#"{"action":"accept","content":{}}"#);
    let call = host.request_call("a__elicit", r#"{"id":5}"#);
    let question = host.asked("elicitation/create");
    host.reply(&question, r#"{"action":"decline"}"#);
    assert_eq!(host.wait(&call).told()["result"]["action"], "decline");
}

#[test]
fn f37_questions_of_a_dead_child_are_withdrawn() {
    let mut host = Setup::new().server("a", "").open_able();
    let call = host.request_call("a__elicit", "{}");
    let question = host.asked("elicitation/create");
    let death = host.request_call("a__kill", "{}");
    for call in [&call, &death] {
        host.wait(call).error(-31010);
    }
    let cancelled = host.notification("notifications/cancelled").params();
    assert_eq!(cancelled["requestId"].to_string(), raw_member(&question.raw, "id").unwrap());
    host.reply(&question, r#"{"action":"accept","content":{"name":"from-the-grave"}}"#);
    let lines = host.call("a__received", "{}").text();
    assert!(!lines.contains("from-the-grave"), "an answer to a former life reaches nobody: {lines}");
}

#[test]
fn f37_an_id_that_a_child_uses_twice_at_once_is_refused() {
    let mut host = Setup::new().server("a", "").open_able();
    let first = host.request_call("a__elicit", r#"{"id":9,"message":"first"}"#);
    let question = host.asked("elicitation/create");
    let line = r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#;
    host.call("a__raw_line", &json!({ "line": line }).to_string());
    assert_eq!(host.open_requests(), 0);
    // The scripted child takes our refusal for the answer to its first; either way nobody hangs.
    host.reply(&question, r#"{"action":"cancel"}"#);
    assert_eq!(host.wait(&first).told()["error"]["code"], -32600);
}

#[test]
fn f38_roots_and_their_change_reach_every_child() {
    let mut host = Setup::new().server("a", "rootsoninit").server("b", "rootsoninit").open_able();
    let roots = r#"{"roots":[{"uri":"file:///one","name":"One","x_future":1.0},{"uri":"file:///two"}]}"#;
    for _ in 0..2 {
        let question = host.asked("roots/list");
        host.reply(&question, roots);
    }
    for key in ["a", "b"] {
        let call = host.request_call(&format!("{key}__roots"), "{}");
        let question = host.asked("roots/list");
        host.reply(&question, roots);
        assert_eq!(raw_member(&host.wait(&call).text(), "result").unwrap(), roots);
    }
    host.notify("notifications/roots/list_changed", "{}");
    host.fence();
    for key in ["a", "b"] {
        let lines = host.call(&format!("{key}__received"), r#"{"method":"notifications/roots/list_changed"}"#).told();
        assert_eq!(lines.as_array().unwrap().len(), 1, "{key}");
    }
}

#[test]
fn f38_a_host_without_roots_is_asked_for_none() {
    let mut host = Setup::new().server("a", "rootsoninit record").open();
    host.until("the child has its answer", || {
        std::fs::read_to_string(host.path("a.record")).unwrap_or_default().contains(r#""k":"roots""#)
    });
    let record = std::fs::read_to_string(host.path("a.record")).unwrap();
    assert!(record.contains("-32601"), "{record}");
    assert_eq!(host.open_requests(), 0);
}
