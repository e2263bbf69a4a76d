//! How hosts and servers of both eras are met (`PROTOCOL.md` 2), and streams of notifications (5.6).

use serde_json::{Value, json};

use crate::rig::{MODERN, Place, until};

fn code(answer: &Value) -> i64 {
    answer["code"].as_i64().unwrap_or_default()
}

#[test]
fn modern_requests_are_judged_in_the_order_of_the_protocol() {
    let place = Place::new().server("c", "");
    let mut host = place.start();
    let opened = host.open(MODERN);
    assert_eq!(opened["supportedVersions"][0], MODERN);
    let meta =
        |value: Value| json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": { "_meta": value } });
    let version = "io.modelcontextprotocol/protocolVersion";
    let mut check = |message: Value, expected: i64| {
        host.send(&message);
        let answer = host.response(&json!("x"));
        assert_eq!(code(&answer["error"]), expected, "{message}: {answer}");
        answer
    };
    let answer = check(meta(json!({ version: "2099-01-01" })), -32022);
    assert_eq!(answer["error"]["data"]["supported"], json!([MODERN]));
    assert_eq!(answer["error"]["data"]["requested"], "2099-01-01");
    check(meta(json!({ version: MODERN })), -32602);
    check(json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/list" }), -32602);
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "nothing/here",
    ] {
        let answer = host.ask(method, json!({}));
        assert_eq!(code(&answer), -32601, "{method}");
    }
    assert_eq!(code(&host.ask("tasks/get", json!({ "taskId": "t" }))), -32021);
    // Whoever says nothing of itself is served, too, and nobody is asked anything by a request.
    host.send(&meta(json!({ version: MODERN, "io.modelcontextprotocol/clientCapabilities": {} })));
    assert!(host.response(&json!("x"))["result"]["tools"].is_array());
    let received = host.finish();
    assert!(!received.iter().any(|line| line.get("id").is_some() && line.get("method").is_some()));
}

#[test]
fn both_eras_on_one_pipe() {
    let place = Place::new().server("c", "");
    let mut host = place.start();
    host.open("2025-11-25");
    host.wait_for_tool("c__echo");
    host.revision = MODERN.into();
    let modern = host.call("c__echo", json!({}));
    assert_eq!(modern["resultType"], "complete");
    host.revision = "2025-11-25".into();
    let legacy = host.call("c__echo", json!({}));
    assert_eq!(legacy.get("resultType"), None);
    assert_eq!(host.ask("ping", json!({})), json!({}));
}

#[test]
fn servers_are_greeted_as_the_protocol_has_it() {
    let check = |revision: &str, flags: &str, first: &[&str], starts: usize| {
        let place = Place::new().server("c", flags);
        let mut host = place.start();
        host.open(revision);
        host.wait_for_tool("c__echo");
        let methods: Vec<String> =
            place.record("c").iter().filter_map(|line| line["method"].as_str().map(str::to_owned)).collect();
        assert_eq!(&methods[..first.len()], first, "{revision} {flags}");
        assert_eq!(place.starts("c"), starts, "{revision} {flags}");
        // What was found out is known at the next start.
        until("it is kept", || place.is_cached("c"));
        drop(host);
        let before = place.record("c").len();
        let mut host = place.start();
        host.open(revision);
        host.wait_for_tool("c__echo");
        until("it is greeted again", || place.record("c").len() > before);
        let again = place.record("c")[before]["method"].clone();
        assert_eq!(
            again,
            *first.iter().rev().find(|method| **method == "initialize" || **method == "server/discover").unwrap()
        );
        assert_eq!(place.starts("c"), starts + 1);
    };
    check("2025-11-25", "", &["initialize", "notifications/initialized"], 1);
    check("2025-11-25", "modern", &["initialize", "notifications/initialized"], 1);
    check("2025-11-25", "modern=only", &["initialize", "server/discover"], 1);
    check(MODERN, "modern", &["server/discover"], 1);
    check(MODERN, "modern=only", &["server/discover"], 1);
    check(MODERN, "", &["server/discover", "initialize"], 1);
    check(MODERN, "error:server/discover=-32602", &["server/discover", "initialize"], 1);
    check(MODERN, "error:server/discover=-32000", &["server/discover", "initialize"], 1);
    check(MODERN, "strict_first", &["server/discover", "initialize"], 2);
}

/// Two streams want a resource of a server that is known from the cache, is still being started, and lets nobody watch.
#[test]
fn what_a_starting_server_refuses_is_honoured_by_no_stream() {
    let place = Place::new().server("c", "slowinit=500 error:resources/subscribe=-32601");
    let mut host = place.start();
    host.open(MODERN);
    host.wait_for_tool("c__echo");
    drop(host);
    let mut host = place.start();
    host.open(MODERN);
    let wanted = json!({ "notifications": { "resourceSubscriptions": ["c+mem:///hello"] } });
    host.request("subscriptions/listen", wanted.clone());
    host.request("subscriptions/listen", wanted);
    for _ in 0..2 {
        let acknowledged = host.notification("notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"], json!({}), "{acknowledged}");
    }
    host.call("c__echo", json!({}));
    assert_eq!(place.sent("c", "resources/subscribe"), 1);
    assert_eq!(host.notifications("notifications/resources/updated"), [json!(null); 0]);
}

#[test]
fn streams_are_apart_and_say_what_was_asked_for() {
    for flags in ["", "modern=only"] {
        let place = Place::new().server("c", flags);
        let mut host = place.start();
        host.open(MODERN);
        host.wait_for_tool("c__echo");
        let uri = json!(["c+mem:///hello"]);
        let first = host.request("subscriptions/listen", json!({ "notifications": { "resourceSubscriptions": uri } }));
        host.notification("notifications/subscriptions/acknowledged");
        let second = host.request(
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": uri } }),
        );
        let acknowledged = host.notification("notifications/subscriptions/acknowledged");
        assert_eq!(
            acknowledged["params"]["notifications"],
            json!({ "toolsListChanged": true, "resourceSubscriptions": uri })
        );
        if flags.is_empty() {
            assert_eq!(place.sent("c", "resources/subscribe"), 1);
        }
        let of = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
        host.call("c__updated", json!({ "uri": "mem:///hello" }));
        let mut told = vec![
            of(&host.notification("notifications/resources/updated")),
            of(&host.notification("notifications/resources/updated")),
        ];
        told.sort_by_key(Value::to_string);
        assert_eq!(told, [first.clone(), second.clone()]);
        host.notify("notifications/cancelled", json!({ "requestId": first }));
        host.call("c__change_tools", json!({ "add": "grown" }));
        assert_eq!(of(&host.notification("notifications/tools/list_changed")), second);
        host.call("c__updated", json!({ "uri": "mem:///hello" }));
        assert_eq!(of(&host.notification("notifications/resources/updated")), second);
        assert!(host.notifications("notifications/resources/updated").is_empty());
        let received = host.finish();
        let end: Vec<&Value> =
            received.iter().filter(|line| line["id"] == second || line["params"]["requestId"] == second).collect();
        assert_eq!(end.len(), 2, "{end:#?}");
        assert_eq!(end[0]["result"]["resultType"], "complete");
        assert_eq!(end[1]["method"], "notifications/cancelled");
    }
}

#[test]
fn a_stream_at_a_modern_server_is_opened_again() {
    let place = Place::new().server("c", "modern=only");
    let mut host = place.start();
    host.open("2025-11-25");
    host.wait_for_tool("c__echo");
    host.ask("resources/subscribe", json!({ "uri": "c+mem:///hello" }));
    place.sent_until("c", "subscriptions/listen", 2);
    let record = place.record("c");
    let new = record.iter().rposition(|line| line["method"] == "subscriptions/listen").unwrap();
    assert_eq!(record[new]["params"]["notifications"]["resourceSubscriptions"], json!(["mem:///hello"]));
    let old = record.iter().position(|line| line["method"] == "subscriptions/listen").unwrap();
    until("the old one is cancelled", || {
        let record = place.record("c");
        let at = record.iter().position(|line| {
            line["method"] == "notifications/cancelled" && line["params"]["requestId"] == record[old]["id"]
        });
        at.is_some_and(|at| at > new)
    });
    host.call("c__end_listens", json!({}));
    place.sent_until("c", "subscriptions/listen", 3);
    host.call("c__exit", json!({ "code": 3 }));
    place.sent_until("c", "subscriptions/listen", 4);
}
