//! Names and URIs: shortened, odd, equal, with one child and with two (F18–F21).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Host, Setup};

fn is_lawful(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Calls each exposed tool; returns the names under which the server got them.
fn originals(host: &mut Host, names: &[String]) -> Vec<String> {
    names
        .iter()
        .map(|name| {
            let text = host.call(name, "{}").text();
            // The scripted server answers "LABEL NAME ARGUMENTS".
            text.split_once(' ').unwrap().1.rsplit_once(' ').unwrap().0.to_owned()
        })
        .collect()
}

#[test]
fn f18_long_names_stay_distinct_and_stable_and_reach_their_own_tool() {
    let key = "a-server-with-a-name-of-32-bytes";
    assert_eq!(key.len(), 32);
    let mut host = Setup::new().tuned(key, "only odd=long tools=1", "").open();
    let names = host.names("tools");
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!((names.len(), distinct.len()), (5, 5), "{names:?}");
    assert!(names.iter().all(|name| is_lawful(name) && name.len() <= 54), "{names:?}");
    let called: BTreeSet<String> = originals(&mut host, &names).into_iter().collect();
    let n = "n".repeat(70);
    let expected =
        [&n[..], &format!("{}_one", &n[..66]), &format!("{}_two", &n[..66]), &format!("a{}", &n[..69]), "tool_000"];
    assert_eq!(called, expected.into_iter().map(str::to_owned).collect());
    let mut again = host.restart().open();
    assert_eq!(again.names("tools"), names, "the names are the same after a restart");
}

#[test]
fn f19_odd_characters_and_empty_names_cost_nobody_else_anything() {
    let mut host = Setup::new().server("team", "only odd=chars,unicode,emptyname").open();
    let names = host.names("tools");
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.iter().all(|name| is_lawful(name) && name.starts_with("team__")), "{names:?}");
    let called: BTreeSet<String> = originals(&mut host, &names).into_iter().collect();
    let expected = ["a.b", "a/b", "a_b", "a b", "a-b", "x__y", "A_B", "9digit", "_lead", "prüfen_日本"];
    assert_eq!(called, expected.into_iter().map(str::to_owned).collect());
    assert!(names.contains(&"team__x__y".to_owned()) && names.contains(&"team__a_b".to_owned()), "{names:?}");
    // Two without a usable name, and a number that is no entry at all: left out alone and told.
    assert_eq!(host.status("team")["repairs"], 3);
}

#[test]
fn f19_a_prefix_with_the_separator_in_it_fails_that_server_alone() {
    let mut host = Setup::new().server("a", "only tools=1").server("team__alpha", "only tools=1").open();
    assert_eq!(host.names("tools"), ["a__tool_000"]);
    let status = host.status("team__alpha");
    assert_eq!(status["state"], "failed");
    assert!(status["lastError"].as_str().is_some_and(|text| text.contains("__")), "{status:#}");
}

#[test]
fn f19_the_server_without_prefix_can_not_take_a_name_of_another() {
    let mut host = Setup::new()
        .server("a", "only tools=1")
        .tuned("bare", "only catalog=CATALOG", "prefix = \"\"")
        .open_with_catalog(r#"{"tools":[{"name":"a__tool_000","inputSchema":{"type":"object"}},{"name":"plain","inputSchema":{"type":"object"}}]}"#);
    let names = host.names("tools");
    assert_eq!(names[0], "a__tool_000");
    assert!(names.contains(&"plain".to_owned()), "{names:?}");
    let hashed = names.iter().find(|name| name.starts_with("a__tool_000_")).expect("it has a hash");
    assert_eq!(host.call("a__tool_000", "{}").text(), "a tool_000 {}");
    assert_eq!(host.call(hashed, "{}").text(), "bare a__tool_000 {}");
}

#[test]
fn f20_equal_uris_of_two_servers_each_read_their_own() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    let uris = host.names("resources");
    for own in ["config://x", "mem:///hello", "mem:///blob"] {
        for key in ["a", "b"] {
            let uri = format!("{key}+{own}");
            assert!(uris.contains(&uri), "{uri} is not in {uris:?}");
            let contents =
                host.ask("resources/read", &json!({ "uri": uri }).to_string()).result()["contents"][0].clone();
            assert_eq!(contents["uri"], uri, "the host's spelling");
            match contents["text"].as_str() {
                Some(text) => assert_eq!(text, format!("{key} {own}"), "its own server, under its own URI"),
                None => assert_eq!(contents["blob"], "AAEC/w=="),
            }
        }
    }
    assert_eq!(host.names("resourceTemplates"), ["a+mem:///item/{id}", "b+mem:///item/{id}"]);
    for key in ["b", "a"] {
        let uri = format!("{key}+mem:///item/a%20b");
        let read = host.ask("resources/read", &json!({ "uri": uri }).to_string()).result();
        assert_eq!(read["contents"][0]["text"], format!("{key} mem:///item/a%20b"));
    }
}

#[test]
fn f20_unprefixed_uris_go_to_their_one_owner_or_are_refused_with_the_candidates() {
    let mut host = Setup::new().server("a", "scheme=one").server("b", "scheme=two").open();
    host.names("resources");
    let read = host.ask("resources/read", r#"{"uri":"two:///hello"}"#).result();
    assert_eq!(read["contents"][0]["text"], "b two:///hello");
    let error = host.ask("resources/read", r#"{"uri":"config://x"}"#).error(-32002);
    assert_eq!(error["data"]["candidates"], json!(["a", "b"]));
    assert_eq!(error["data"]["uri"], "config://x");
    let error = host.ask("resources/read", r#"{"uri":"nobody://x"}"#).error(-32002);
    assert_eq!((&error["data"]["uri"], &error["data"]["source"]), (&json!("nobody://x"), &json!("mcp-proxy")));
    // A prefix says whose it is even if it is not listed; the server's own refusal comes in the host's spelling.
    let error = host.ask("resources/read", r#"{"uri":"a+one:///missing"}"#).error(-32002);
    assert_eq!(error["data"]["uri"], "a+one:///missing");
}

#[test]
fn f20_web_addresses_stay_and_the_first_in_the_file_serves_them() {
    let catalog = r#"{"resources":[{"uri":"https://example.com/doc","name":"doc"},{"uri":"noscheme","name":"n"},{"uri":"ui://card/x","name":"card"}]}"#;
    let mut host = Setup::new()
        .server("a_b", "only catalog=CATALOG")
        .server("b", "only catalog=CATALOG")
        .proxy("own_resources = false")
        .open_with_catalog(catalog);
    let uris = host.names("resources");
    let expected = ["https://example.com/doc", "a-b+:noscheme", "ui://a-b/card/x", "b+:noscheme", "ui://b/card/x"];
    assert_eq!(uris.iter().cloned().collect::<BTreeSet<_>>(), expected.map(str::to_owned).into_iter().collect());
    for (uri, text) in [
        ("https://example.com/doc", "a_b https://example.com/doc"),
        ("b+:noscheme", "b noscheme"),
        ("ui://b/card/x", "b ui://card/x"),
        ("ui://a-b/card/x", "a_b ui://card/x"),
    ] {
        let read = host.ask("resources/read", &json!({ "uri": uri }).to_string()).result();
        assert_eq!((&read["contents"][0]["text"], &read["contents"][0]["uri"]), (&json!(text), &json!(uri)));
    }
}

/// What a host does over a day, reduced to what came of it.
fn script(host: &mut Host) -> Vec<String> {
    let mut done = Vec::new();
    let mut ask = |host: &mut Host, method: &str, params: Value| {
        let answer = host.ask(method, &params.to_string());
        done.push(format!("{method}: {}", if answer.raw_member("result").is_some() { "ok" } else { &answer.raw }));
    };
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        ask(host, method, json!({}));
    }
    ask(host, "tools/call", json!({ "name": "a__echo", "arguments": {} }));
    ask(host, "prompts/get", json!({ "name": "a__greet", "arguments": { "name": "N" } }));
    ask(host, "resources/read", json!({ "uri": "a+mem:///hello" }));
    ask(host, "resources/read", json!({ "uri": "a+mem:///item/1" }));
    ask(host, "resources/subscribe", json!({ "uri": "a+mem:///hello" }));
    ask(host, "resources/unsubscribe", json!({ "uri": "a+mem:///hello" }));
    ask(
        host,
        "completion/complete",
        json!({ "ref": { "type": "ref/prompt", "name": "a__greet" }, "argument": { "name": "name", "value": "x" } }),
    );
    ask(host, "logging/setLevel", json!({ "level": "info" }));
    ask(host, "tasks/list", json!({}));
    done
}

#[test]
fn f21_everything_works_with_two_children_as_with_one() {
    let mut one = Setup::new().server("a", "").start();
    let mut two = Setup::new().server("a", "").server("b", "").start();
    let capabilities = [&mut one, &mut two].map(|host| host.initialize("2025-11-25", "{}")["capabilities"].clone());
    assert_eq!(capabilities[0], capabilities[1]);
    let all = json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "completions": {},
        "logging": {},
        "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } },
    });
    assert_eq!(capabilities[0], all);
    let done = script(&mut one);
    assert!(done.iter().all(|line| line.ends_with(": ok")), "{done:#?}");
    assert_eq!(script(&mut two), done);
}

#[test]
fn f21_a_second_child_with_nothing_changes_nothing() {
    let mut host = Setup::new().server("a", "").server("b", "caps=none only").open();
    assert!(script(&mut host).iter().all(|line| line.ends_with(": ok")));
    assert_eq!(host.status("b")["state"], "ready");
}

#[test]
fn two_children_with_identical_catalogs_never_cross() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("tools");
    let mut ids = Vec::new();
    for n in 0..300 {
        let key = if n % 3 == 0 { "a" } else { "b" };
        let id = match n % 4 {
            0 => host.request("resources/read", &json!({ "uri": format!("{key}+mem:///item/{n}") }).to_string()),
            1 => host.request("prompts/get", &json!({ "name": format!("{key}__greet"), "arguments": { "name": n.to_string() } }).to_string()),
            2 => host.request("completion/complete", &json!({ "ref": { "type": "ref/prompt", "name": format!("{key}__greet") }, "argument": { "name": "name", "value": n.to_string() } }).to_string()),
            _ => host.request_call(&format!("{key}__tool_000"), &json!({ "n": n }).to_string()),
        };
        ids.push((id, key, n));
    }
    for (id, key, n) in ids {
        let raw = host.wait(&id).raw;
        let mark = match n % 4 {
            0 => format!("{key} mem:///item/{n}"),
            1 => format!("{key} {{"),
            2 => format!("\"{key}\"]"),
            _ => format!("{key} tool_000 "),
        };
        if n % 4 == 3 {
            // There is no such tool here; the refusal is the child's own or ours, but never another's.
            assert!(raw.contains("tool_000"), "{raw}");
        } else {
            assert!(raw.contains(&mark), "{n}: {mark} is not in {raw}");
        }
        assert!(raw.contains(&n.to_string()) || n % 4 == 3, "{n}: {raw}");
    }
}
