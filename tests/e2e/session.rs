//! The host's session: revisions, arrays, what is refused, and its end (`PROTOCOL.md` R1–R35 for a legacy host).

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Host, SOON, Setup, raw_elements};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn opened(version: &str) -> Host {
    let mut host = Setup::new().server("a", "").server("b", "").start();
    host.initialize(version, "{}");
    host
}

// === Revisions ===

#[test]
fn r21_each_revision_is_answered_with_itself_and_declares_nothing_newer() {
    for version in REVISIONS {
        let mut host = Setup::new().server("a", "").start();
        let opened = host.initialize(version, "{}");
        assert_eq!(opened["protocolVersion"], version);
        let has = |name: &str| opened["capabilities"].get(name).is_some();
        assert_eq!(has("completions"), version >= "2025-03-26", "{version}");
        assert_eq!(has("tasks"), version == "2025-11-25", "{version}");
        assert_eq!(opened["serverInfo"].get("title").is_some(), version >= "2025-06-18", "{version}");
        assert_eq!(host.call("a__echo", r#"{"x":1}"#).text(), r#"{"x":1}"#);
        assert!(host.names("prompts").contains(&"a__greet".to_owned()));
        let read = host.ask("resources/read", r#"{"uri":"a+mem:///hello"}"#).result();
        assert_eq!(read["contents"][0]["text"], "a mem:///hello");
        let missing = host.ask("resources/read", r#"{"uri":"a+none:///x"}"#).error(-32002);
        assert_eq!(missing["data"]["uri"], "a+none:///x");
        let code = if version == "2025-11-25" { -32602 } else { -32601 };
        host.ask("tasks/get", r#"{"taskId":"nobody"}"#).error(code);
    }
}

#[test]
fn r22_any_other_version_is_answered_with_the_newest() {
    for params in [
        r#"{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"h","version":"1"}}"#,
        r#"{"protocolVersion":"2099-01-01","capabilities":{}}"#,
        r#"{"protocolVersion":"DRAFT-2026-v1","capabilities":{}}"#,
        r#"{"protocolVersion":7}"#,
        "{}",
    ] {
        let mut host = Setup::new().server("a", "").start();
        assert_eq!(host.ask("initialize", params).result()["protocolVersion"], "2025-11-25", "{params}");
    }
}

#[test]
fn each_child_gets_what_it_speaks() {
    for host_version in ["2024-11-05", "2025-11-25"] {
        let mut setup = Setup::new();
        for (n, version) in REVISIONS.iter().enumerate() {
            setup = setup.server(&format!("v{n}"), &format!("ver={version}"));
        }
        let mut host = setup.start();
        host.initialize(host_version, "{}");
        for (n, version) in REVISIONS.iter().enumerate() {
            assert_eq!(host.call(&format!("v{n}__echo"), "{}").text(), "{}");
            assert_eq!(host.status(&format!("v{n}"))["protocol"], *version);
        }
    }
}

// === What comes too early, too late, twice ===

#[test]
fn r33_before_initialize_only_ping_is_answered_and_both_ways_in_are_named() {
    let mut host = Setup::new().server("a", "").start();
    host.fence();
    for method in ["tools/list", "tools/call", "resources/read", "server/discover", "subscriptions/listen", "no/such"] {
        let error = host.ask(method, "{}").error(-32602);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("initialize") && message.contains("_meta"), "{message}");
    }
    host.initialize("2025-11-25", "{}");
    host.ask("server/discover", "{}").error(-32601);
    host.ask("subscriptions/listen", "{}").error(-32601);
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}

#[test]
fn r32_a_second_initialize_is_refused_and_disturbs_nothing() {
    let mut host = opened("2025-06-18");
    let params = r#"{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}"#;
    host.ask("initialize", params).error(-32600);
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    let read = host.ask("resources/read", r#"{"uri":"mcp-proxy://status"}"#).result();
    let status: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&status["host"]["name"], &status["host"]["protocol"]), (&json!("test-host"), &json!("2025-06-18")));
}

#[test]
fn r29_ping_is_answered_at_any_time() {
    let mut host = Setup::new().proxy("initialize_wait = \"2s\"").server("a", "hanginit").start();
    host.fence();
    let id = host.request("initialize", r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
    host.fence();
    assert!(!host.has_answer(&id), "still waiting for its child");
    host.wait(&id).result();
    host.fence();
}

#[test]
fn r31_nothing_but_log_messages_comes_before_initialized() {
    let mut host = Setup::new().server("a", "rootsoninit record").start();
    host.handshake("2025-11-25", r#"{"roots":{"listChanged":true}}"#);
    host.call("a__change_tools", r#"{"add":"early"}"#);
    host.call("a__log", r#"{"n":1}"#);
    host.notification("notifications/message");
    host.until("the child has asked", || host.stderr().contains("ready"));
    assert_eq!(host.open_requests(), 0);
    assert!(host.notifications("notifications/tools/list_changed").is_empty());
    host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let question = host.asked("roots/list");
    host.reply(&question, r#"{"roots":[]}"#);
}

#[test]
fn a_host_that_sends_everything_at_once_is_served() {
    let mut host = Setup::new().server("a", "slowinit=300").start();
    host.send_bytes(
        concat!(
            r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"script","version":"1"}}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a__echo","arguments":{"x":1}}}"#,
            "\n",
        )
        .as_bytes(),
    );
    host.wait("\"i\"").result();
    assert!(!host.wait("\"l\"").result()["tools"].as_array().unwrap().is_empty());
    assert_eq!(host.wait("\"c\"").text(), r#"{"x":1}"#);
    // The word that it is initialized was not lost: it can be asked, and told of changes.
    let id = host.request_call("a__roots", "{}");
    let question = host.asked("roots/list");
    host.reply(&question, r#"{"roots":[]}"#);
    host.wait(&id).text();
    host.call("a__change_tools", r#"{"add":"later"}"#);
    host.notification("notifications/tools/list_changed");
}

// === Envelopes ===

#[test]
fn r9_junk_is_answered_with_an_id_by_the_revision() {
    for version in REVISIONS {
        let mut host = opened(version);
        for line in ["{junk", "\u{feff}nonsense", "{\"jsonrpc\":\"2.0\",\"id\":1", "\"\\uD800"] {
            host.send(line);
            let answer = host.other();
            answer.error(-32700);
            let id = answer.raw_member("id");
            assert_eq!(id.as_deref(), (version < "2025-11-25").then_some("null"), "{version}: {line}");
        }
        host.send_bytes(*b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}\n");
        host.other().error(-32700);
        assert_eq!(host.call("a__echo", "{}").text(), "{}");
    }
}

#[test]
fn r5_ids_that_are_none_are_refused() {
    // Bad lines are answered ten times a second at most: two hosts for the two halves.
    let mut host = opened("2025-11-25");
    for id in ["null", "1.5", "1e3", "true", "{}", "[]"] {
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        let answer = host.other();
        answer.error(-32600);
        assert_eq!(answer.raw_member("id"), None, "{id}");
    }
    let mut host = opened("2025-11-25");
    for line in ["7", "\"text\"", "null", "{}", r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"2.0","params":{}}"#] {
        host.send(line);
        host.other().error(-32600);
    }
}

#[test]
fn r4_bad_envelopes_are_answered_under_their_id() {
    let mut host = opened("2025-11-25");
    for (line, code) in [
        (r#"{"id":"q","method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":"q","method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":"q","method":"ping","params":[]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"tools/list","params":"x"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":"q","method":"tools/call"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":7}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"a__nope"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"prompts/get","params":{"name":"greet"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"logging/setLevel","params":{"level":"loud"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":"q","method":"completion/complete","params":{"ref":{"type":"x"}}}"#, -32602),
    ] {
        host.send(line);
        let error = host.wait("\"q\"").error(code);
        assert_eq!(error["data"]["source"], "mcp-proxy", "{line}");
    }
}

#[test]
fn r7_notifications_and_stray_answers_are_never_answered() {
    let mut host = opened("2025-11-25");
    host.names("tools");
    for line in [
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a__echo"}}"#,
        r#"{"jsonrpc":"2.0","id":424242,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":424242,"result":{},"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}"#,
    ] {
        host.send(line);
    }
    assert_eq!(host.others(), 0);
    assert!(!host.has_answer("424242") && !host.has_answer("\"x\""));
}

// === Arrays ===

#[test]
fn r11_an_array_is_answered_with_one_array() {
    let mut host = opened("2025-03-26");
    host.send(
        r#"[{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"a__sleep","arguments":{"ms":100}}},{"jsonrpc":"2.0","method":"notifications/none"},{"jsonrpc":"2.0","id":"p","method":"ping"},{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"b__echo","arguments":{"n":1e400}}},{"jsonrpc":"2.0","id":"x","method":"no/such"},7]"#,
    );
    let answers = raw_elements(&host.other().raw);
    assert_eq!(answers.len(), 5, "{answers:#?}");
    for (id, part) in [("s", "slept"), ("p", r#""result":{}"#), ("e", "1e400"), ("x", "-32601")] {
        let id = format!(r#""id":"{id}""#);
        assert!(answers.iter().any(|answer| answer.contains(&id) && answer.contains(part)), "{id}: {answers:#?}");
    }
    assert!(answers.iter().any(|answer| answer.contains("-32600")));
    // Only notifications: nothing. An empty one: an error. The handshake: refused.
    host.send(r#"[{"jsonrpc":"2.0","method":"notifications/none"}]"#);
    assert_eq!(host.others(), 0);
    host.send("[]");
    host.other().error(-32600);
    host.send(r#"[{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}]"#);
    assert!(host.other().raw.contains("-32600"));
    // A cancelled element has no answer, and the rest does not wait for it.
    host.send(
        r#"[{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"a__hang"}},{"jsonrpc":"2.0","id":"q","method":"ping"}]"#,
    );
    host.notify("notifications/cancelled", r#"{"requestId":"h"}"#);
    let answers = raw_elements(&host.other().raw);
    assert!(answers.len() == 1 && answers[0].contains(r#""id":"q""#), "{answers:?}");
}

#[test]
fn r13_an_array_is_refused_in_every_other_revision() {
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut host = opened(version);
        host.send(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#);
        host.other().error(-32600);
        host.fence();
    }
}

#[test]
fn r11_arrays_of_a_child_are_unpacked_where_it_may_send_them() {
    for (version, expected) in [("2025-03-26", 1), ("2025-11-25", 0)] {
        let mut host = Setup::new().server("a", &format!("ver={version}")).open();
        let line = r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"in an array"}},{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]"#;
        let id = host.request_call("a__raw_line", &json!({ "line": line, "noreply": true }).to_string());
        if expected == 1 {
            assert_eq!(host.wait(&id).raw_result(), r#"{"content":[]}"#);
        } else {
            host.status_until("a", "the array is noise", |status| status["noiseLines"] == 1);
            assert!(!host.has_answer(&id));
            host.notify("notifications/cancelled", &format!(r#"{{"requestId":{id}}}"#));
        }
        assert_eq!(host.notifications("notifications/message").len(), expected, "{version}");
    }
}

// === The end ===

#[test]
fn r52_signals_and_eof_end_it_well_whatever_it_does() {
    for end in ["eof", "term", "int"] {
        for socket in [false, true] {
            let mut setup = Setup::new().server("a", "").server("b", "hanginit");
            if socket {
                setup = setup.socket();
            }
            let mut host = setup.open();
            host.call("a__echo", "{}");
            let id = host.request_call("a__hang", "{}");
            host.pending("a", 1);
            let began = Instant::now();
            match end {
                "eof" => host.close(),
                "term" => host.signal(Signal::TERM),
                _ => host.signal(Signal::INT),
            }
            let error = host.wait(&id).error(-31010);
            assert_eq!(error["data"]["reason"], "proxy_stopped", "{end}");
            assert_eq!(host.exit().code(), Some(0), "{end}");
            assert!(began.elapsed() < SOON * 2, "{end}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn r52_calls_may_finish_after_eof() {
    let mut host = Setup::new().server("a", "").open();
    let id = host.request_call("a__sleep", r#"{"ms":300}"#);
    host.close();
    assert_eq!(host.wait(&id).text(), "slept");
    assert_eq!(host.exit().code(), Some(0));
}

#[test]
fn r52_a_script_can_pipe_its_requests_in() {
    let mut host = Setup::new().server("a", "slowinit=200").start();
    let initialize = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"script","version":"1"}}}"#;
    host.send(initialize);
    host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    host.send(r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#);
    host.send(r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"a__echo","arguments":{"x":1}}}"#);
    host.close();
    host.wait("\"i\"").result();
    assert!(!host.wait("\"l\"").result()["tools"].as_array().unwrap().is_empty());
    assert_eq!(host.wait("\"c\"").text(), r#"{"x":1}"#);
    assert_eq!(host.exit().code(), Some(0));
}

#[test]
fn r52_an_end_before_the_beginning_is_fine_too() {
    for end in ["eof", "term"] {
        let mut host = Setup::new().server("a", "hanginit").start();
        host.fence();
        if end == "eof" {
            host.close();
        } else {
            host.signal(Signal::TERM);
        }
        assert_eq!(host.exit().code(), Some(0), "{end}");
    }
}

#[test]
fn p02_a_signal_during_the_handshake_gives_each_request_its_own_answer() {
    let mut host = Setup::new().proxy("initialize_wait = \"20s\"").server("a", "hanginit").start();
    host.send(
        r#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
    );
    host.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__echo"}}"#);
    host.fence();
    host.signal(Signal::TERM);
    assert_eq!(host.wait("5").result()["protocolVersion"], "2025-11-25");
    host.wait("2").error(-31011);
    assert_eq!(host.exit().code(), Some(0));
}

#[test]
fn r52_stubborn_children_do_not_outlive_it() {
    let setup = Setup::new().tuned("a", "ignore_eof ignore_term", "stop_grace = \"100ms\"");
    let mut host = setup.tuned("b", "wrapper", "stop_grace = \"100ms\"").open();
    host.call("a__echo", "{}");
    host.call("b__spawn_grandchild", r#"{"ignore_term":true}"#);
    host.close();
    // The harness looks for what is left.
    assert_eq!(host.exit().code(), Some(0));
}
