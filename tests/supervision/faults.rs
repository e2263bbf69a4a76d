//! Faults of our own, put in where a message of the host, a timer or the minder of a process is handled: each costs what it
//! hit, is told, and ends nothing else.

use std::time::Instant;

use serde_json::json;

use crate::crash::ALWAYS;
use crate::harness::{Host, Message, Setup};

const RESTART: &str = r#"restart = { min = "10ms", max = "20ms", attempts = 100 }"#;

/// A proxy that breaks as `asked` says, with a server of each kind.
fn breaking(asked: &str) -> Setup {
    let setup = Setup::new().proxy(ALWAYS).env("MCP_PROXY_TEST_PANIC", asked);
    setup.tuned("x", "ledger", RESTART).server("other", "")
}

fn is_told(answer: &Message) {
    let error = answer.error(-32603);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("fault of the proxy") && message.contains("report"), "{error:#}");
    assert_eq!(error["data"]["source"], "mcp-proxy", "{error:#}");
}

/// Nothing is open any more, and nobody heard of anything else.
fn at_rest(host: &mut Host) {
    for server in ["x", "other"] {
        host.status_until(server, "nothing is pending", |status| status["pending"] == 0);
    }
    assert_eq!((host.open_requests(), host.others()), (0, 0));
    let log = host.stderr();
    assert!(log.contains("MCP_PROXY_TEST_PANIC") && log.contains("shield.rs"), "the place is in the log: {log}");
}

#[test]
fn a_request_that_breaks_us_is_answered_and_not_sent() {
    for place in ["host", "host-after"] {
        let mut host = breaking(&format!("{place}:breaks-us")).open();
        host.call("x__echo", "{}").result();
        let waiting = host.request_call("x__sleep", r#"{"ms":1500}"#);
        host.pending("x", 1);
        for _ in 0..3 {
            for tool in ["x__ledger", "other__write", "other__echo"] {
                is_told(&host.call(tool, r#"{"text":"breaks-us"}"#));
            }
            is_told(&host.ask("resources/read", r#"{"uri":"x+mem:breaks-us"}"#));
            host.call("other__echo", "{}").result();
        }
        // What was answered in the broken step has that answer, and no other.
        let pong = host.ask("ping", r#"{"_meta":{"a":"breaks-us"}}"#);
        if place == "host" {
            is_told(&pong);
        } else {
            assert_eq!(pong.raw_result(), "{}");
        }
        assert_eq!(host.wait(&waiting).text(), "slept");
        assert_eq!(host.ledger("x").iter().filter(|line| line["tool"] == "ledger").count(), 0, "it was not sent");
        assert_eq!((host.status("x")["unknown"].as_u64(), host.pids("x").len()), (Some(0), 1));
        at_rest(&mut host);
    }
}

#[test]
fn a_call_that_waits_for_its_server_is_taken_back() {
    let mut host = breaking("host-after:breaks-us").tuned("slow", "slowinit=1500 record", "").open();
    let good = host.request_call("slow__echo", r#"{"text":"good"}"#);
    is_told(&host.call("slow__echo", r#"{"text":"breaks-us"}"#));
    assert!(host.wait(&good).text().contains("good"));
    assert_eq!(host.sent("slow", "tools/call"), 1, "the other was not sent");
    at_rest(&mut host);
}

#[test]
fn an_initialize_that_breaks_us_may_be_sent_again() {
    for place in ["host", "host-after"] {
        let mut host = breaking(&format!("{place}:breaks-us")).start();
        let params = |name: &str| {
            format!(
                r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"{name}","version":"1"}}}}"#
            )
        };
        is_told(&host.ask("initialize", &params("breaks-us")));
        host.ask("initialize", &params("well")).result();
        host.notify("notifications/initialized", "{}");
        host.call("x__echo", "{}").result();
        at_rest(&mut host);
    }
}

#[test]
fn an_array_that_breaks_us_is_answered_as_a_whole() {
    for place in ["host", "host-after"] {
        let mut host = breaking(&format!("{place}:breaks-us")).start();
        host.initialize("2025-03-26", "{}");
        host.call("x__echo", "{}").result();
        let call = |id: &str, tool: &str| {
            let params = json!({"name": tool, "arguments": {"text": "breaks-us"}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        };
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
        let array =
            json!([call("a", "x__ledger"), note, call("b", "other__write"), {"junk": true}, call("c", "no__tool")]);
        host.send(&array.to_string());
        let answers = host.other().value();
        let answers = answers.as_array().unwrap();
        let codes = |id: &str| {
            let with_id = answers.iter().filter(|answer| answer["id"] == id);
            with_id.map(|answer| answer["error"]["code"].as_i64().unwrap()).collect::<Vec<_>>()
        };
        // The last was refused before the fault in one of them.
        let refused = if place == "host" { -32603 } else { -32602 };
        assert_eq!([codes("a"), codes("b"), codes("c")], [vec![-32603], vec![-32603], vec![refused]], "{answers:#?}");
        assert_eq!(host.ledger("x").iter().filter(|line| line["tool"] == "ledger").count(), 0, "it was not sent");
        at_rest(&mut host);
    }
}

#[test]
fn a_word_of_the_host_that_breaks_us_leaves_nobody_waiting() {
    let mut host = breaking("host:breaks-us").open_able();
    // An answer to a question of a server: it is told that there is none.
    let call = host.request_call("x__elicit", "{}");
    let question = host.asked("elicitation/create");
    host.reply(&question, r#"{"action":"accept","content":{"name":"breaks-us"}}"#);
    assert!(host.wait(&call).text().contains("-32603"));
    // A cancellation is lost: the call goes on.
    let call = host.request_call("x__sleep", r#"{"ms":300}"#);
    host.pending("x", 1);
    host.notify("notifications/cancelled", &format!(r#"{{"requestId":{call},"reason":"breaks-us"}}"#));
    assert_eq!(host.wait(&call).text(), "slept");
    at_rest(&mut host);
}

#[test]
fn a_limit_that_breaks_us_costs_the_server_that_it_is_about() {
    for place in ["timer", "timer-after"] {
        let setup = Setup::new().proxy(ALWAYS).env("MCP_PROXY_TEST_PANIC", &format!("{place}:child:ready"));
        let limits = format!("call_idle_timeout = \"300ms\"\n{RESTART}");
        let mut host = setup.tuned("x", "", &limits).server("other", "").open();
        host.status_until("x", "it is ready", |status| status["state"] == "ready");
        let long = host.request_call("other__sleep", r#"{"ms":1500}"#);
        let both = ["a", "b"].map(|text| host.request_call("x__hang", &format!(r#"{{"text":"{text}"}}"#)));
        for id in &both {
            let error = host.wait(id).error(-31010);
            let told = error["message"].as_str().unwrap();
            assert!(told.contains("fault of the proxy") || error["data"]["reason"] == "timeout", "{error:#}");
        }
        assert_eq!(host.wait(&long).text(), "slept");
        host.call("x__echo", "{}").result();
        host.call("other__echo", "{}").result();
        assert_eq!(host.pids("other").len(), 1);
        at_rest(&mut host);
    }
}

#[test]
fn a_timer_that_breaks_us_for_ever_is_tried_now_and_then_and_stops_no_other() {
    let start = Instant::now();
    let mut host = breaking("timer:announce").open();
    host.settle();
    host.call("x__change_tools", r#"{"add":"new"}"#).result();
    let faults = |host: &Host| host.stderr().matches("MCP_PROXY_TEST_PANIC").count();
    host.until("it was tried again", || faults(&host) >= 3);
    // A line at the first time, the second, the fourth.
    let tries = 1 << (faults(&host) - 1);
    assert!(tries <= start.elapsed().as_secs() + 3, "{tries} tries in {:?}", start.elapsed());
    host.call("other__echo", "{}").result();
    host.names_until("tools", "it is listed though not announced", |names| names.iter().any(|name| name == "x__new"));
    at_rest(&mut host);
}

#[test]
fn first_lists_that_break_us_are_answered() {
    for place in ["timer", "timer-after"] {
        let setup = Setup::new()
            .proxy("initialize_wait = \"10ms\"\nlist_wait = \"500ms\"")
            .env("MCP_PROXY_TEST_PANIC", &format!("{place}:lists"));
        let mut host = setup.server("x", "").tuned("other", "hanginit", "").open();
        let answer = host.ask("tools/list", "{}");
        if place == "timer" {
            is_told(&answer);
        } else {
            drop(answer.result());
        }
        host.call("x__echo", "{}").result();
        assert!(host.lives());
    }
}

#[test]
fn an_end_that_breaks_us_is_an_end() {
    for place in ["timer", "timer-after"] {
        let mut host = breaking(&format!("{place}:finish")).open();
        host.call("x__echo", "{}").result();
        let open = host.request_call("x__hang", "{}");
        host.pending("x", 1);
        host.close();
        host.wait(&open).error(-31010);
        assert_eq!(host.exit().code(), Some(0));
        host.until("all are gone", || host.living().is_empty());
    }
}

#[test]
fn a_minder_that_breaks_costs_its_server_one_life() {
    // At its begin, and when the process has exited.
    for place in ["mind", "mind-exit"] {
        let mut host = breaking(&format!("{place}:x:1")).open();
        if place == "mind-exit" {
            host.call("x__echo", "{}").result();
            let waiting = host.request_call("x__hang", "{}");
            host.pending("x", 1);
            host.request_call("x__spawn_grandchild", r#"{"ignore_term":true}"#);
            host.request_call("x__exit", r#"{"code":3}"#);
            host.wait(&waiting).error(-31010);
        }
        host.status_until("x", "another life", |status| status["generation"] == 2 && status["state"] == "ready");
        host.call("x__echo", "{}").result();
        host.call("other__echo", "{}").result();
        assert_eq!(host.pids("other").len(), 1);
        // The proxy and two servers: of the first life nothing is left.
        host.until("the first life is gone", || host.living().len() == 3);
        assert!(host.stderr().contains("MCP_PROXY_TEST_PANIC"), "the panic is in the log");
    }
}
