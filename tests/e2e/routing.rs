//! What goes to which child, and under which name: completion, levels, URIs, filters, own resources.

use serde_json::{Value, json};

use crate::harness::{Host, Setup, raw_member};

/// The params of a completion as the child got them.
fn completed(host: &mut Host, reference: &Value) -> (String, Value) {
    let params = json!({ "ref": reference, "argument": { "name": "name", "value": "x" }, "context": { "arguments": { "a": "b" } } });
    let result = host.ask("completion/complete", &params.to_string()).result();
    let owner = result["completion"]["values"].as_array().unwrap().last().cloned().unwrap_or_default();
    let seen = result["_meta"]["params"].as_str().map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
    (owner.as_str().unwrap_or_default().to_owned(), seen)
}

#[test]
fn completion_reaches_the_owner_of_both_kinds_of_reference() {
    let mut host = Setup::new().server("a", "").server("b", "").server("c", "caps=prompts,resources").open();
    for kind in ["prompts", "resourceTemplates"] {
        host.names(kind);
    }
    for key in ["b", "a"] {
        let (owner, seen) = completed(&mut host, &json!({ "type": "ref/prompt", "name": format!("{key}__greet") }));
        assert_eq!((owner.as_str(), &seen["ref"]["name"]), (key, &json!("greet")));
        assert_eq!(seen["context"]["arguments"]["a"], "b");
        let uri = format!("{key}+mem:///item/{{id}}");
        let (owner, seen) = completed(&mut host, &json!({ "type": "ref/resource", "uri": uri }));
        assert_eq!((owner.as_str(), &seen["ref"]["uri"]), (key, &json!("mem:///item/{id}")));
    }
    // A child that completes nothing: no error, nothing to offer.
    let (owner, seen) = completed(&mut host, &json!({ "type": "ref/prompt", "name": "c__greet" }));
    assert_eq!((owner.as_str(), seen), ("", Value::Null));
    let params = r#"{"ref":{"type":"ref/prompt","name":"a__none"},"argument":{"name":"n","value":""}}"#;
    host.ask("completion/complete", params).error(-32602);
}

#[test]
fn completion_of_an_older_child_gets_no_context() {
    let mut host = Setup::new().server("a", "ver=2025-03-26").open();
    host.names("prompts");
    let (owner, seen) = completed(&mut host, &json!({ "type": "ref/prompt", "name": "a__greet" }));
    assert_eq!((owner.as_str(), seen.get("context")), ("a", None));
    assert_eq!(seen["argument"]["value"], "x");
}

#[test]
fn the_log_level_reaches_all_that_log_and_their_lives_to_come() {
    let mut host = Setup::new().server("a", "").server("b", "").server("c", "caps=tools record").open();
    host.names("tools");
    host.ask("logging/setLevel", r#"{"level":"warning"}"#).result();
    for key in ["a", "b"] {
        assert_eq!(host.call(&format!("{key}__level"), "{}").told(), "warning");
    }
    host.call("c__echo", "{}");
    assert_eq!(host.sent("c", "logging/setLevel"), 0);
    host.call("a__kill", "{}").error(-31010);
    assert_eq!(host.call("a__level", "{}").told(), "warning", "also after a restart");
    assert_eq!(host.status("a")["generation"], 2);
}

#[test]
fn log_messages_name_their_server_first() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.call("a__log", r#"{"logger":"db","data":{"n":1e400,"x":[1.0]},"level":"error"}"#);
    host.call("b__log", r#"{"data":"plain"}"#);
    let news = host.notifications("notifications/message");
    let params: Vec<String> = news.iter().map(|message| message.raw_member("params").unwrap()).collect();
    assert_eq!(raw_member(&params[0], "logger").unwrap(), r#""a/db""#);
    assert_eq!(raw_member(&params[0], "data").unwrap(), r#"{"n":1e400,"x":[1.0]}"#);
    assert_eq!(raw_member(&params[1], "logger").unwrap(), r#""b""#);
}

#[test]
fn watches_are_set_again_after_a_restart_and_only_where_they_can_be() {
    let mut host = Setup::new().server("a", "").server("b", "caps=tools,resources").open();
    host.names("resources");
    host.ask("resources/subscribe", r#"{"uri":"a+mem:///hello"}"#).result();
    let error = host.ask("resources/subscribe", r#"{"uri":"b+mem:///hello"}"#).error(-32602);
    assert_eq!(error["data"]["uri"], "b+mem:///hello");
    host.ask("resources/subscribe", r#"{"uri":"nobody:///x"}"#).error(-32002);
    host.call("a__kill", "{}").error(-31010);
    assert_eq!(host.call("a__subscriptions", "{}").told(), json!(["mem:///hello"]));
    host.call("a__updated", "{}");
    assert_eq!(host.notification("notifications/resources/updated").params()["uri"], "a+mem:///hello");
}

#[test]
fn uris_in_arguments_are_turned_back_for_the_called_child_alone() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("resources");
    let arguments = r#"{"own":"a+mem:///hello","item":["a+mem:///item/7"],"text":"see a+mem:///hello","other":"b+mem:///hello","git":"a+https://example.com","unknown":"a+nope:///x","n":1e400}"#;
    let expected =
        arguments.replacen("a+mem:///hello", "mem:///hello", 1).replacen("a+mem:///item/7", "mem:///item/7", 1);
    assert_eq!(host.call("a__echo", arguments).text(), expected);
    let text = host.ask("prompts/get", r#"{"name":"a__greet","arguments":{"name":"a+mem:///hello"}}"#).raw_result();
    assert!(text.contains(r#"\"name\":\"mem:///hello\""#), "{text}");
}

#[test]
fn uris_are_rewritten_in_prompts_and_results_and_read_back() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("resources");
    let prompt = host.ask("prompts/get", r#"{"name":"b__embed"}"#);
    assert_eq!(
        prompt.raw_result(),
        r#"{"description":"embed","messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"b+mem:///hello","mimeType":"text/plain","text":"hello"}}}],"_meta":{"n":1e400}}"#
    );
    // A URI that was seen in a result is its sender's, listed or not.
    let result = r#"{"content":[{"type":"resource_link","uri":"seen:///x","name":"x"}]}"#;
    let link = host.call("b__raw_result", &format!(r#"{{"result":{result}}}"#)).result()["content"][0]["uri"].clone();
    assert_eq!(link, "b+seen:///x");
    for uri in ["b+seen:///x", "seen:///x"] {
        let error = host.ask("resources/read", &json!({ "uri": uri }).to_string()).error(-32002);
        assert!(error["data"].get("source").is_none(), "it went to the child, which has its own opinion: {error:#}");
    }
    assert_eq!(host.call("b__received", r#"{"method":"resources/read"}"#).told().as_array().unwrap().len(), 2);
}

#[test]
fn user_interfaces_keep_their_scheme_and_find_their_tools() {
    let catalog = r#"{"tools":[{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://card/x"},"ui/resourceUri":"ui://card/x"}}]}"#;
    let mut host =
        Setup::new().server("a", "only catalog=CATALOG").server("b", "only tools=1").open_with_catalog(catalog);
    let show = host.list("tools").into_iter().find(|tool| tool["name"] == "a__show").unwrap();
    assert_eq!(show["_meta"], json!({ "ui": { "resourceUri": "ui://a/card/x" }, "ui/resourceUri": "ui://a/card/x" }));
    // An app knows its tool by the name that its server gave it.
    assert_eq!(host.call("show", r#"{"x":1}"#).text(), r#"a show {"x":1}"#);
    host.call("tool_000", "{}").error(-32602);
}

#[test]
fn what_a_filter_hides_is_neither_listed_nor_served() {
    let filters = "tools = { allow = [\"e*\"], deny = [\"echo_meta\"] }\nprompts = { deny = [\"embed\"] }\nresources = { deny = [\"config:*\"] }";
    let mut host = Setup::new().tuned("a", "record", filters).open();
    assert!(host.names("tools").iter().all(|name| name.starts_with("a__e") && name != "a__echo_meta"));
    assert_eq!(host.names("prompts"), ["a__greet"]);
    assert!(!host.names("resources").contains(&"a+config://x".to_owned()));
    for (tool, own) in [("a__write", "write"), ("a__echo_meta", "echo_meta")] {
        let error = host.call(tool, "{}").error(-31012);
        assert_eq!((&error["data"]["server"], &error["data"]["reason"]), (&json!("a"), &json!("filtered")));
        assert!(error["data"]["tool"].as_str().unwrap().ends_with(own), "{error:#}");
    }
    let error = host.ask("prompts/get", r#"{"name":"a__embed"}"#).error(-31012);
    assert!(error["data"]["prompt"].as_str().unwrap().ends_with("embed"), "{error:#}");
    for uri in ["a+config://x", "config://x"] {
        let error = host.ask("resources/read", &json!({ "uri": uri }).to_string()).error(-31012);
        assert!(error["data"]["uri"].as_str().unwrap().ends_with("config://x"), "{error:#}");
    }
    assert_eq!(host.sent("a", "tools/call") + host.sent("a", "prompts/get") + host.sent("a", "resources/read"), 0);
}

#[test]
fn renamed_and_described_tools_and_the_prefixes_of_their_servers() {
    let mut host = Setup::new()
        .tuned(
            "a",
            "only tools=2",
            "prefix = \"first\"\ntools = { rename = { tool_000 = \"zero\" }, describe = { tool_001 = \"Ours.\" } }",
        )
        .tuned("bare", "only tools=1", "prefix = \"\"")
        .open();
    let tools = host.list("tools");
    let shown: Vec<(&str, &str)> =
        tools.iter().map(|tool| (tool["name"].as_str().unwrap(), tool["description"].as_str().unwrap())).collect();
    assert_eq!(shown, [("first__zero", "dddddddddddd"), ("first__tool_001", "Ours."), ("tool_000", "dddddddddddd")]);
    assert_eq!(host.call("first__zero", "{}").text(), "a tool_000 {}");
    assert_eq!(host.call("tool_000", "{}").text(), "bare tool_000 {}");
    host.call("first__tool_000", "{}").error(-32602);
}

#[test]
fn remote_and_disabled_servers_are_told_as_what_they_are() {
    let mut host = Setup::new()
        .table("[servers.docs]\nurl = \"https://docs.example.com/mcp\"\n")
        .tuned("off", "only tools=1", "enabled = false")
        .server("a", "only tools=1")
        .open();
    assert_eq!(host.names("tools"), ["a__tool_000"]);
    let error = host.call("docs__search", "{}").error(-31011);
    assert_eq!((&error["data"]["server"], &error["data"]["reason"]), (&json!("docs"), &json!("not_supported")));
    host.call("off__tool_000", "{}").error(-32602);
    assert!(host.pids("off").is_empty());
}

#[test]
fn capabilities_are_those_that_some_child_has() {
    for (flags, expected) in [
        ("caps=tools", json!([false, false, false, false])),
        ("caps=tools,completions", json!([true, false, false, false])),
        ("caps=tools,logging", json!([false, true, false, false])),
        ("caps=resources,subscribe", json!([false, false, true, false])),
        ("caps=tools,tasks", json!([false, false, false, true])),
    ] {
        let mut host = Setup::new().server("a", flags).server("b", "caps=tools").start();
        let has = host.initialize("2025-11-25", "{}")["capabilities"].clone();
        let there = json!([
            has.get("completions").is_some(),
            has.get("logging").is_some(),
            has["resources"]["subscribe"] == true,
            has.get("tasks").is_some(),
        ]);
        assert_eq!(there, expected, "{flags}: {has:#}");
        for kind in ["tools", "prompts", "resources"] {
            assert_eq!(has[kind]["listChanged"], true);
        }
    }
}

#[test]
fn our_own_resources_tell_status_and_unknown_outcomes() {
    let mut host = Setup::new().server("a", "").open();
    let uris = host.names("resources");
    assert!(uris.contains(&"mcp-proxy://status".to_owned()) && uris.contains(&"mcp-proxy://unknown".to_owned()));
    let status = host.status("a");
    for key in
        ["state", "generation", "pid", "protocol", "tools", "calls", "unknown", "restarts", "lastExit", "startMs"]
    {
        assert!(status.get(key).is_some(), "{key} is not in {status:#}");
    }
    assert_eq!((&status["state"], &status["generation"]), (&json!("ready"), &json!(1)));
    let outcome = host.call("a__die_before_reply", r#"{"code":4}"#).error(-31010)["data"]["outcomeId"].clone();
    let read = host.ask("resources/read", r#"{"uri":"mcp-proxy://unknown"}"#).result();
    let rows: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&rows[0]["id"], &rows[0]["tool"]), (&outcome, &json!("die_before_reply")), "{rows:#}");
    let without = Setup::new().proxy("own_resources = false").server("a", "").open();
    let mut host = without;
    assert!(host.names("resources").iter().all(|uri| !uri.starts_with("mcp-proxy:")));
    host.ask("resources/read", r#"{"uri":"mcp-proxy://status"}"#).error(-32002);
}

#[test]
fn a_lazy_child_is_started_by_its_first_call() {
    let mut host = Setup::new().tuned("a", "only tools=2", "start = \"lazy\"").open();
    let names = host.names("tools");
    assert_eq!(names.len(), 2, "without a cache it is started once to fill it");
    let mut host = host.restart().open();
    assert_eq!(host.names("tools"), names);
    assert_eq!(host.status("a")["state"], "stopped");
    assert_eq!(host.pids("a").len(), 1);
    assert_eq!(host.call("a__tool_001", "{}").text(), "a tool_001 {}");
    assert_eq!(host.pids("a").len(), 2);
}
