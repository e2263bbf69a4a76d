//! Start: slow, silent, missing and broken children cost only themselves (F14–F17).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{SOON, Setup};

#[test]
fn f14_initialize_does_not_wait_for_a_slow_child() {
    let mut host = Setup::new()
        .proxy("list_wait = \"2s\"")
        .server("slow", "only tools=1 hanginit")
        .server("quick", "only tools=2")
        .start();
    let began = Instant::now();
    let opened = host.initialize("2025-11-25", "{}");
    let took = began.elapsed();
    assert!(took < SOON, "initialize took {took:?}");
    assert_eq!(opened["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(host.names("tools"), ["quick__tool_000", "quick__tool_001"]);
    assert!(began.elapsed() < SOON + Duration::from_secs(2), "the list has a bound of its own");
    assert_eq!(host.call("quick__tool_000", "{}").text(), "quick tool_000 {}");
    assert_eq!(host.status("slow")["state"], "starting");
}

#[test]
fn f14_a_child_that_comes_later_is_announced() {
    let mut host = Setup::new()
        .proxy("list_wait = \"50ms\"\ninitialize_wait = \"50ms\"")
        .server("slow", "only tools=1 slowinit=1500")
        .server("quick", "only tools=1")
        .open();
    let early = host.names("tools");
    assert!(!early.contains(&"slow__tool_000".to_owned()), "{early:?}");
    host.notification("notifications/tools/list_changed");
    let names = host.names_until("tools", "both are there", |names| names.len() == 2);
    assert_eq!(names, ["slow__tool_000", "quick__tool_000"], "in the order of the file");
}

#[test]
fn f14_the_start_limit_is_a_servers_own() {
    let mut host = Setup::new()
        .tuned("slow", "hanginit", "start_timeout = \"200ms\"\nrestart = { policy = \"never\" }")
        .server("quick", "")
        .open();
    let status = host.status_until("slow", "it is given up", |status| status["state"] == "failed");
    assert!(status["lastError"].as_str().unwrap().contains("start_timeout"), "{status:#}");
    assert_eq!(host.call("quick__echo", "{}").text(), "{}");
}

#[test]
fn f15_the_first_list_waits_for_a_child_that_needs_a_moment() {
    let mut host = Setup::new().server("a", "only tools=3 slowinit=1500").open();
    assert_eq!(host.names("tools").len(), 3, "never an empty list that looks like the truth");
}

#[test]
fn f15_the_last_known_catalog_is_listed_at_once_and_calls_wait() {
    let mut host = Setup::new().server("a", "only tools=3 instructions=Remember @2:slowinit=1500").open();
    let names = host.names("tools");
    host.status_until("a", "it is ready", |status| status["tools"] == 3);
    let mut host = host.restart().start();
    let opened = host.initialize("2025-11-25", "{}");
    assert!(opened["instructions"].as_str().unwrap().contains("Remember"), "known from last time: {opened:#}");
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.status("a")["state"], "starting");
    assert_eq!(host.call("a__tool_001", "{}").text(), "a tool_001 {}");
    assert_eq!(host.status("a")["state"], "ready");
}

#[test]
fn f16_broken_children_cost_only_themselves() {
    let mut host = Setup::new()
        .proxy("list_wait = \"1s\"")
        .table("[servers.missing]\ncommand = \"no-such-program-anywhere\"\n")
        .tuned("exits", "crashinit=1 stderr_line=no-token-given", "restart = { policy = \"never\" }")
        .server("silent", "hanginit")
        .tuned("junk", "initreply=junk", "start_timeout = \"300ms\"\nrestart = { policy = \"never\" }")
        .server("listless", "hanglist")
        .tuned("odd", "ver=1999-01-01", "restart = { policy = \"never\" }")
        .server("well", "only tools=1")
        .start();
    let began = Instant::now();
    host.initialize("2025-11-25", "{}");
    assert_eq!(host.names("tools"), ["well__tool_000"]);
    assert!(began.elapsed() < SOON + Duration::from_secs(2), "{:?}", began.elapsed());
    let second = Instant::now();
    assert_eq!(host.names("tools"), ["well__tool_000"]);
    assert!(second.elapsed() < SOON / 2, "{:?}", second.elapsed());
    assert_eq!(host.call("well__tool_000", "{}").text(), "well tool_000 {}");
    for (key, state, why) in [
        ("missing", "failed", "no-such-program-anywhere"),
        ("exits", "failed", "code 1"),
        ("junk", "failed", "start_timeout"),
        ("odd", "failed", "1999-01-01"),
    ] {
        let status = host.status_until(key, "its end", |status| status["state"] == state);
        assert!(status["lastError"].as_str().is_some_and(|text| text.contains(why)), "{key}: {status:#}");
        let error = host.call(&format!("{key}__x"), "{}").error(-31011);
        assert_eq!((&error["data"]["server"], &error["data"]["state"]), (&json!(key), &json!("failed")));
    }
    assert_eq!(host.status("silent")["state"], "starting");
    assert_eq!(host.status("listless")["state"], "ready");
    assert!(host.stderr().contains("no-token-given"));
    assert!(host.lives());
}

#[test]
fn f17_the_four_lists_never_say_method_not_found() {
    let mut host = Setup::new()
        .server("t", "caps=tools record")
        .server("p", "caps=prompts record")
        .server("r", "caps=resources record")
        .server("liar", "nolists")
        .open();
    for (kind, prefix) in [("tools", "t_"), ("prompts", "p_"), ("resources", "r+"), ("resourceTemplates", "r+")] {
        let mut names = host.names(kind);
        names.retain(|name| !name.starts_with("mcp-proxy:"));
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with(prefix)), "{kind}: {names:?}");
    }
    // A child is asked only for what it declares.
    for (key, asked) in [("t", [1, 0, 0, 0]), ("p", [0, 1, 0, 0]), ("r", [0, 0, 1, 1])] {
        let methods = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"];
        assert_eq!(methods.map(|method| host.sent(key, method)), asked, "{key}");
    }
    assert_eq!(host.status("liar")["state"], "ready");
}

#[test]
fn f17_a_proxy_without_servers_lists_nothing() {
    let mut host = Setup::new().proxy("own_resources = false").open();
    for kind in ["tools", "prompts", "resources", "resourceTemplates"] {
        assert!(host.names(kind).is_empty());
    }
}

#[test]
fn f54_a_child_that_ends_at_any_other_first_message_is_fine() {
    let mut host = Setup::new().server("a", "strict_first record").open();
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
    assert!(host.record("a")[0].contains(r#""method":"initialize""#));
    assert_eq!(host.pids("a").len(), 1);
}
