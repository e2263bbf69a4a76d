//! A modern server needs input for a legacy host's call (`PROTOCOL.md` 5.4).

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::{Machine, accepted};

fn asks(wire: &Value, requests: &Value, state: &Value) -> Value {
    let mut result = json!({ "resultType": "input_required" });
    for (name, value) in [("inputRequests", requests), ("requestState", state)] {
        if !value.is_null() {
            result[name] = value.clone();
        }
    }
    json!({ "id": wire, "result": result })
}

fn form() -> Value {
    json!({ "method": "elicitation/create", "params": { "message": "Name?", "requestedSchema": { "type": "object", "properties": {} } } })
}

fn sampling() -> Value {
    json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } })
}

#[test]
fn r85_r86_questions_are_real_requests_and_the_call_goes_out_with_the_exact_state() {
    let mut m = Machine::legacy_before_modern();
    let wire = m.call(7, "t").unwrap();
    m.child(asks(&wire, &json!({ "who": form() }), &json!("opaque-\u{e9}")));
    let question = m.answer();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "[s] Name?");
    m.host(json!({ "id": question["id"], "result": accepted() }));
    let again = m.sent().remove(0);
    assert_ne!(again["id"], wire);
    assert_eq!(again["params"]["inputResponses"], json!({ "who": accepted() }));
    assert_eq!(again["params"]["requestState"], "opaque-\u{e9}");
    assert_eq!(again["params"]["arguments"], json!({ "a": "t" }));
    m.child(json!({ "id": again["id"], "result": { "resultType": "complete", "content": [], "_meta": { "io.modelcontextprotocol/serverInfo": {} } } }));
    let answer = m.answer();
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } }), "r92");
    assert_eq!(m.lost, 0);
}

#[test]
fn r86_without_a_state_none_goes_back() {
    let mut m = Machine::legacy_before_modern();
    let wire = m.call(7, "t").unwrap();
    m.child(asks(&wire, &json!({ "who": form() }), &Value::Null));
    let question = m.answer();
    m.host(json!({ "id": question["id"], "error": { "code": -32603, "message": "no" } }));
    let again = m.sent().remove(0);
    assert_eq!(again["params"].get("requestState"), None);
    assert_eq!(again["params"]["inputResponses"], json!({ "who": { "action": "cancel" } }), "r90");
}

#[test]
fn r90_a_refused_sampling_ends_the_call() {
    let mut m = Machine::legacy_before_modern();
    let wire = m.call(7, "t").unwrap();
    m.child(asks(&wire, &json!({ "a": form(), "b": sampling() }), &json!("s")));
    let told = m.told();
    let of = |method: &str| told.iter().find(|line| line["method"] == method).unwrap()["id"].clone();
    m.host(json!({ "id": of("sampling/createMessage"), "error": { "code": -1, "message": "User rejected" } }));
    let told = m.told();
    let withdrawn =
        told.iter().find(|line| line["method"] == "notifications/cancelled").expect("the other is withdrawn");
    assert_eq!(withdrawn["params"]["requestId"], of("elicitation/create"));
    let answer = told.iter().find(|line| line["id"] == 7).expect("the call is answered");
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["reason"]),
        (&json!(-31012), &json!("input_not_provided"))
    );
    assert!(m.sent().is_empty());
}

#[test]
fn r88_r89_a_state_alone_goes_back_at_once_and_sixteen_times() {
    let mut m = Machine::legacy_before_modern();
    let mut wire = m.call(7, "t").unwrap();
    for round in 0..16 {
        m.child(asks(&wire, &Value::Null, &json!(format!("s{round}"))));
        if round > 0 {
            assert!(m.sent().is_empty(), "there is a pause before round {round}");
            m.pass(Duration::from_secs(2));
        }
        let again = m.sent().remove(0);
        assert_eq!(again["params"]["requestState"], format!("s{round}"));
        wire = again["id"].clone();
    }
    m.child(asks(&wire, &Value::Null, &json!("s16")));
    let told = m.told();
    let answer = told.iter().find(|line| line["id"] == 7).expect("the call is answered");
    assert_eq!(answer["error"]["data"]["reason"], "input_expired");
}

#[test]
fn r91_a_cancelled_call_takes_its_questions_back() {
    let mut m = Machine::legacy_before_modern();
    let wire = m.call(7, "t").unwrap();
    m.child(asks(&wire, &json!({ "who": form() }), &json!("s")));
    let question = m.answer();
    m.host(json!({ "method": "notifications/cancelled", "params": { "requestId": 7 } }));
    let withdrawn = m.answer();
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &question["id"])
    );
    assert!(m.sent().is_empty(), "nothing is open at the server");
    m.host(json!({ "id": question["id"], "result": accepted() }));
    assert!(m.sent().is_empty() && m.told().is_empty());
    assert_eq!(m.lost, 0);
}

#[test]
fn r93_what_is_no_answer_of_this_era_is_an_unknown_outcome() {
    let check = |result: Value| {
        let mut m = Machine::legacy_before_modern();
        let wire = m.call(7, "t").unwrap();
        m.child(json!({ "id": wire, "result": result }));
        let answer = m.answer();
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["reason"]),
            (&json!(-31010), &json!("invalid_response")),
            "{result}"
        );
    };
    check(json!({ "resultType": "dream", "content": [] }));
    check(json!({ "resultType": "input_required" }));
    check(json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "tools/list" } } }));
}

#[test]
fn r46_r47_a_modern_server_is_answered_nothing_and_asks_nothing() {
    let mut m = Machine::legacy_before_modern();
    m.child(json!({ "id": 1, "method": "roots/list" }));
    m.child(json!({ "id": 2, "method": "ping" }));
    assert!(m.sent().is_empty() && m.told().is_empty());
}
