//! What is offered: profiles, switched-off servers, defaults, filters, renames, references.

use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::Setup;

/// What a process was given.
fn environment(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    text.split_terminator('\0').filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

fn team() -> Setup {
    Setup::new()
        .server("a", "only tools=12 prompts=3 resources=2")
        .tuned("b", "only tools=2", "tools = { deny = [\"tool_001\"] }")
        .tuned("off", "only tools=2", "enabled = false")
        .table("[profiles.review]\nservers = [\"a\"]\ntools = { a = { allow = [\"tool_01*\"] } }\nprompts = { a = { deny = [\"*\"] } }")
}

#[test]
fn a_profile_narrows_and_a_server_that_is_off_is_not_there() {
    let mut host = team().open();
    let names = host.names("tools");
    assert_eq!(names.len(), 12 + 1, "{names:?}");
    assert!(host.pids("off").is_empty());
    let mut host = host.restart().flag("--profile=review").open();
    assert_eq!(host.names("tools"), ["a__tool_010", "a__tool_011"]);
    assert_eq!(host.names("prompts"), Vec::<String>::new());
    assert!(host.pids("b").len() == 1, "only of the first start");
    let error = host.call("a__tool_002", "{}").error(-31012);
    assert_eq!((&error["data"]["server"], &error["data"]["tool"]), (&json!("a"), &json!("a__tool_002")), "{error:#}");
}

#[test]
fn what_is_filtered_can_not_be_used_either() {
    let toml = r#"
tools = { allow = ["tool_*"], deny = ["tool_00[13]"], rename = { tool_000 = "first" }, describe = { tool_002 = "Says it." } }
prompts = { deny = ["prompt_000"] }
resources = { deny = ["mem:///item/*", "mem:///res/000"] }"#;
    let mut host = Setup::new().tuned("a", "tools=4 prompts=2 resources=3 record", toml).open();
    assert_eq!(host.names("tools"), ["a__first", "a__tool_002"]);
    let tools = host.list("tools");
    assert_eq!(tools[1]["description"], "Says it.");
    assert_eq!(host.call("a__first", "{}").text(), "a tool_000 {}", "called by its own name");
    for name in ["a__tool_001", "a__tool_003", "a__echo"] {
        let error = host.call(name, "{}").error(-31012);
        assert_eq!((&error["data"]["server"], &error["data"]["tool"]), (&json!("a"), &json!(name)), "{error:#}");
    }
    let prompts = host.names("prompts");
    assert!(
        !prompts.contains(&"a__prompt_000".to_owned()) && prompts.contains(&"a__prompt_001".to_owned()),
        "{prompts:?}"
    );
    let error = host.ask("prompts/get", r#"{"name":"a__prompt_000"}"#).error(-31012);
    assert_eq!(error["data"]["prompt"], "a__prompt_000", "{error:#}");
    let uris = host.names("resources");
    assert!(
        !uris.contains(&"a+mem:///res/000".to_owned()) && uris.contains(&"a+mem:///res/001".to_owned()),
        "{uris:?}"
    );
    assert_eq!(host.names("resourceTemplates"), Vec::<String>::new());
    for uri in ["mem:///item/1", "mem:///res/000"] {
        let error = host.ask("resources/read", &format!(r#"{{"uri":"a+{uri}"}}"#)).error(-31012);
        assert!(error["data"]["uri"].as_str().unwrap().ends_with(uri), "{error:#}");
    }
    // Nothing of it reached the server.
    for (method, count) in [("tools/call", 1), ("prompts/get", 0), ("resources/read", 0)] {
        assert_eq!(host.sent("a", method), count, "{method}");
    }
}

#[test]
fn defaults_count_where_a_server_says_nothing() {
    let mut host = Setup::new()
        .table("[defaults]\ncall_max_time = \"200ms\"\nenv = { FROM = \"defaults\" }")
        .server("a", "")
        .tuned("b", "", "call_max_time = \"30s\"")
        .open();
    host.names("tools");
    let ids = [host.request_call("a__sleep", r#"{"ms":1000}"#), host.request_call("b__sleep", r#"{"ms":1000}"#)];
    assert_eq!(host.wait(&ids[0]).error(-31010)["data"]["reason"], "timeout");
    assert_eq!(host.wait(&ids[1]).text(), "slept");
    assert_eq!(environment(host.pids("b")[0])["FROM"], "defaults");
}

#[test]
fn references_are_expanded_and_an_unset_one_costs_its_own_server() {
    let setup = Setup::new();
    let file = setup.path("token");
    std::fs::write(&file, "from-a-file\n").unwrap();
    let env = format!(
        "env = {{ E = \"${{env:GIVEN}}\", D = \"${{env:UNSET_HERE:-by-default}}\", F = \"${{file:{}}}\", L = \"$${{env:GIVEN}}\" }}",
        file.display()
    );
    let mut host = setup
        .env("GIVEN", "from-the-environment")
        .tuned("a", "", &env)
        .tuned("broken", "only", "env = { X = \"${env:NOBODY_SET_THIS}\" }")
        .open();
    host.names("tools");
    let env = environment(host.pids("a")[0]);
    for (name, value) in
        [("E", "from-the-environment"), ("D", "by-default"), ("F", "from-a-file"), ("L", "${env:GIVEN}")]
    {
        assert_eq!(env[name], value, "{env:#?}");
    }
    let status = host.status_until("broken", "failed", |status| status["state"] == "failed");
    assert!(status["lastError"].as_str().unwrap().contains("NOBODY_SET_THIS"), "{status:#}");
    let error = host.call("broken__echo", "{}").error(-31011);
    assert!(error["message"].as_str().unwrap().contains("NOBODY_SET_THIS"), "the reference is named: {error:#}");
    assert!(host.pids("broken").is_empty());
}
