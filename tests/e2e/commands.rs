//! Commands that need no host: `check`, `list`, `call`, `read`, `prompt`.

use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Setup, raw_elements, raw_member};

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn data(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", out(output), err(output));
    serde_json::from_str(&out(output)).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

#[test]
fn check_says_that_all_is_well() {
    let setup = Setup::new().server("a", "").server("b", "");
    let output = setup.run(&["check"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out(&output).contains("2 servers"), "{}", out(&output));
    assert_eq!(data(&setup.run(&["check", "--json"]), 0), json!({ "ok": true, "faults": [] }));
}

#[test]
fn check_tells_every_fault_with_its_place() {
    let setup = Setup::new()
        .proxy("page_sise = 3")
        .tuned("a", "", "start_timeout = \"soon\"\nenabeld = true")
        .table("[servers.c]\nurl = 7\n");
    let output = setup.run(&["check", "--json"]);
    let report = data(&output, 1);
    assert_eq!(report["ok"], false);
    let faults = report["faults"].as_array().unwrap();
    for (key, server) in
        [("page_sise", Value::Null), ("start_timeout", json!("a")), ("enabeld", json!("a")), ("url", json!("c"))]
    {
        let fault = faults.iter().find(|fault| fault["key"].as_str().is_some_and(|k| k.ends_with(key)));
        let fault = fault.unwrap_or_else(|| panic!("{key} is not in {report:#}"));
        assert_eq!(fault["server"], server, "{fault:#}");
        assert!(fault["line"].as_u64().unwrap() > 0 && fault["column"].as_u64().unwrap() > 0, "{fault:#}");
        assert!(fault["file"].as_str().unwrap().ends_with("mcp-proxy.toml"), "{fault:#}");
        assert!(!fault["message"].as_str().unwrap().is_empty());
    }
    let help =
        faults.iter().find(|fault| fault["key"].as_str().unwrap().ends_with("enabeld")).unwrap()["help"].to_string();
    assert!(help.contains("enabled"), "the nearest key: {help}");
    let text = setup.run(&["check"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(out(&text).contains("enabled") && !out(&text).contains('\u{1b}'), "no colours when piped: {}", out(&text));
}

#[test]
fn check_tells_what_a_server_asks_for_and_is_not_there() {
    let setup = Setup::new().server("a", "").table(
        "[servers.unset]\ncommand = \"sh\"\nargs = [\"-c\", \"${env:NO_SUCH}\"]\n\
         env = { GOOD = \"${env:NO_SUCH:-x}\", KEY = \"${file:no-such-key}\" }\n\
         [servers.gone]\ncommand = \"no-such-program\"\n\
         [servers.far]\ncommand = \"sh\"\ncwd = \"no-such-place\"\n\
         [servers.off]\ncommand = \"no-such-program\"\nenabled = false\n",
    );
    let report = data(&setup.run(&["check", "--json"]), 1);
    assert_eq!(report["ok"], false);
    let told: Vec<_> = report["faults"].as_array().unwrap().iter().map(|fault| (&fault["key"], fault)).collect();
    assert_eq!(told.len(), 4, "{report:#}");
    let config = std::fs::read_to_string(setup.path("mcp-proxy.toml")).unwrap();
    for (key, at, message, help) in [
        ("servers.unset.args.1", "args = [\"-c\"", "${env:NO_SUCH} is not set", "set the variable NO_SUCH"),
        ("servers.unset.env.KEY", "KEY = ", "${file:no-such-key} can't be read", "check that"),
        ("servers.gone.command", "command = \"no-such-program\"", "looked in", "install it"),
        ("servers.far.cwd", "cwd = ", "does not exist", "create it"),
    ] {
        let fault = told.iter().find(|(of, _)| **of == key);
        let (_, fault) = fault.unwrap_or_else(|| panic!("{key} is not in {report:#}"));
        let line = config.lines().position(|line| line.contains(at)).unwrap() + 1;
        assert_eq!((&fault["severity"], &fault["line"]), (&json!("server"), &json!(line)), "{fault:#}");
        assert!(fault["message"].as_str().unwrap().contains(message), "{fault:#}");
        assert!(fault["help"].as_str().unwrap().contains(help), "{fault:#}");
    }
    let text = setup.run(&["check"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(out(&text).contains("${env:NO_SUCH} is not set") && !out(&text).contains("is well"), "{}", out(&text));
    assert!(out(&text).contains("KEY = \"${file:no-such-key}\""), "a reference is no secret: {}", out(&text));
}

#[test]
fn check_starts_every_server_and_shows_how_it_does() {
    let setup = Setup::new().server("a", "odd=noschema");
    let report = data(&setup.run(&["check", "--start", "--json"]), 0);
    let server = &report["servers"][0];
    assert_eq!((&report["ok"], &server["name"], &server["state"]), (&json!(true), &json!("a"), &json!("ready")));
    assert!(server["problems"].to_string().contains("noschema"), "{server:#}");
    let setup = setup.tuned("bad", "crashinit=3", "restart = { policy = \"never\" }");
    let report = data(&setup.run(&["check", "--start", "--json"]), 1);
    assert_eq!((&report["ok"], &report["servers"][1]["state"]), (&json!(false), &json!("failed")));
    let text = setup.run(&["check", "--start"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(out(&text).contains("bad") && out(&text).contains("failed"), "{}", out(&text));
}

#[test]
fn check_start_warns_of_rules_that_match_nothing() {
    let rules = "tools = { allow = [\"tool_*\", \"tol_*\"], deny = [\"gone\"], rename = { tool_000 = \"first\", absent = \"x\" }, \
                 describe = { missing = \"d\" } }\nprompts = { deny = [\"prompt_*\"] }\nresources = { deny = [\"nowhere:*\"] }";
    let setup = Setup::new().tuned("a", "only tools=2 prompts=1", rules);
    let report = data(&setup.run(&["check", "--start", "--json"]), 0);
    let problems = report["servers"][0]["problems"].as_array().unwrap();
    let told: Vec<&str> = problems.iter().map(|problem| problem.as_str().unwrap()).collect();
    for (rule, pattern) in [
        ("tools.allow", "tol_*"),
        ("tools.deny", "gone"),
        ("tools.rename", "absent"),
        ("tools.describe", "missing"),
        ("resources.deny", "nowhere:*"),
    ] {
        let line = format!("{rule} names {pattern}, which matches nothing");
        assert!(told.iter().any(|problem| problem.contains(&line)), "{line} is not in {told:#?}");
    }
    assert_eq!(told.len(), 5, "those that match are not told: {told:#?}");
    let text = setup.run(&["check", "--start"]);
    assert_eq!(text.status.code(), Some(0), "it is a warning");
    assert!(out(&text).contains("tools.deny names gone, which matches nothing"), "{}", out(&text));
}

#[test]
fn check_warns_of_remote_servers() {
    let setup = Setup::new().server("a", "").table("[servers.docs]\nurl = \"https://docs.example.com/mcp\"\n");
    let report = data(&setup.run(&["check", "--json"]), 0);
    assert_eq!(report["ok"], true);
    assert_eq!(report["faults"][0]["server"], "docs", "{report:#}");
}

#[test]
fn list_prints_the_protocols_objects_with_their_origin() {
    let setup = Setup::new()
        .server("a", "only tools=2 prompts=1")
        .server("b", "only tools=1 resources=1 templates=1 odd=numbers");
    let output = setup.run(&["list", "--json"]);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let tools = raw_elements(&raw_member(&text, "tools").unwrap());
    assert_eq!(tools.len(), 4);
    let origin = |entry: &str| {
        (
            raw_member(entry, "name").unwrap(),
            raw_member(entry, "server").unwrap(),
            raw_member(entry, "original").unwrap(),
        )
    };
    let expected = (r#""a__tool_000""#.to_owned(), r#""a""#.to_owned(), r#""tool_000""#.to_owned());
    assert_eq!(origin(&tools[0]), expected);
    assert!(text.contains(r#""default":1e400"#), "byte for byte: {text}");
    for (kind, count) in [("prompts", 1), ("resources", 1), ("resourceTemplates", 1)] {
        assert_eq!(raw_elements(&raw_member(&text, kind).unwrap()).len(), count, "{kind}");
    }
    let only = out(&setup.run(&["list", "prompts", "--json"]));
    assert!(raw_member(&only, "prompts").is_some() && raw_member(&only, "tools").is_none(), "{only}");
    let table = setup.run(&["list", "tools"]);
    assert!(out(&table).contains("a__tool_001") && !out(&table).contains('\u{1b}'), "{}", out(&table));
    assert_eq!(err(&table), "", "nothing but the data when piped");
}

#[test]
fn list_tells_what_is_missing_beside_the_data() {
    let setup =
        Setup::new().server("a", "only tools=1").tuned("bad", "crashinit=3", "restart = { policy = \"never\" }");
    let output = setup.run(&["list", "tools"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("a__tool_000"));
    assert!(err(&output).contains("bad"), "{}", err(&output));
}

/// A working server, and four that do not start.
fn one_of_five_starts() -> Setup {
    let crash = "restart = { policy = \"never\" }";
    Setup::new().server("a", "").tuned("crash", "crashinit=3", crash).table(
        "[servers.gone]\ncommand = \"no-such-program\"\n[servers.unset]\ncommand = \"sh\"\nargs = [\"${env:NO_SUCH}\"]\n\
         [servers.wrong]\ncomand = \"sh\"\n",
    )
}

#[test]
fn a_server_that_does_not_start_says_nothing_in_the_answer_of_another() {
    let setup = one_of_five_starts();
    for args in
        [&["call", "a__echo", "n=3"][..], &["read", "a+mem:///hello"], &["prompt", "a__greet", "name=N", "tone=3"]]
    {
        let output = setup.run(args);
        assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""), "{args:?}");
        let cached = setup.run(args);
        assert_eq!((cached.status.code(), err(&cached).as_str()), (Some(0), ""), "{args:?}");
    }
    let unknown = setup.run(&["call", "a__nope"]);
    assert_eq!(err(&unknown).lines().count(), 1, "only the answer: {}", err(&unknown));
    // One that may have had it is named, in one line before the answer.
    let missing = setup.run(&["call", "wrong__tool"]);
    let told = err(&missing);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.starts_with("mcp-proxy: server wrong did not start: "), "{told}");
    assert!(told.contains("`mcp-proxy doctor wrong` says more"), "{told}");
}

#[test]
fn list_has_one_short_line_for_each_server_that_does_not_start() {
    let setup = one_of_five_starts();
    for args in [&["list"][..], &["list", "tools", "--json"]] {
        let output = setup.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let told = err(&output);
        assert_eq!(told.lines().count(), 4, "{told}");
        for (server, why) in [
            ("crash", "exit code 3"),
            ("gone", "the command \"no-such-program\" was not found;"),
            ("unset", "${env:NO_SUCH} is not set;"),
            ("wrong", "comand"),
        ] {
            let start = format!("mcp-proxy: server {server} did not start: ");
            let line = told.lines().find(|line| line.starts_with(&start));
            let line = line.unwrap_or_else(|| panic!("{server}: {told}"));
            assert!(line.contains(why) && line.ends_with(&format!("`mcp-proxy doctor {server}` says more")), "{line}");
            assert!(!line.contains("looked in"), "{line}");
        }
    }
}

#[test]
fn doctor_looks_at_one_server_alone() {
    let setup = one_of_five_starts();
    let gone = data(&setup.run(&["doctor", "gone", "--json"]), 1);
    let servers = gone["servers"].as_array().unwrap();
    assert_eq!((servers.len(), &servers[0]["name"], &gone["hosts"]), (1, &json!("gone"), &json!([])), "{gone:#}");
    assert!(servers[0]["lastError"].as_str().unwrap().contains("looked in"), "{gone:#}");
    assert_eq!(data(&setup.run(&["doctor", "a", "--json"]), 0)["servers"][0]["state"], "ready");
    let nobody = setup.run(&["doctor", "nobody"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(err(&nobody).contains("the servers are: a, crash, gone, unset, wrong"), "{}", err(&nobody));
}

#[test]
fn call_takes_pairs_and_json_and_prints_what_came() {
    let setup = Setup::new().server("a", "");
    let output = setup.run(&["call", "a__echo", "n=3", "text=hello world", "list=[1,2]", "empty="]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let first = out(&output).lines().next().unwrap().to_owned();
    assert_eq!(first, r#"{"n":3,"text":"hello world","list":[1,2],"empty":""}"#);
    let arguments = r#"{ "n" : 9007199254740993, "e":1e400, "z":{"b":1,"a":null} }"#;
    let exact = setup.run(&["call", "a__structured", arguments, "--json"]);
    let text = out(&exact);
    assert_eq!(raw_member(&text, "structuredContent").unwrap(), arguments, "{text}");
    assert_eq!(raw_member(&raw_member(&text, "_meta").unwrap(), "arguments").unwrap(), arguments);
    assert_eq!(text.lines().count(), 1, "one object and nothing else");
    assert_eq!(err(&exact), "", "nothing but the data when piped");
}

#[test]
fn call_fails_with_the_reason_on_stderr() {
    let setup = Setup::new().server("a", "");
    let unknown = setup.run(&["call", "a__nope"]);
    assert_eq!((unknown.status.code(), out(&unknown)), (Some(1), String::new()));
    assert!(err(&unknown).contains("a__nope"), "{}", err(&unknown));
    let failed = setup.run(&["call", "a__is_error", "text=it failed"]);
    assert_eq!((failed.status.code(), out(&failed).trim()), (Some(1), "it failed"));
    let error = data(&setup.run(&["call", "a__reply_error", "code=-32099", "--json"]), 1);
    assert_eq!(error["code"], -32099);
    let lost = setup.run(&["call", "a__kill"]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(err(&lost).contains("SIGKILL") && err(&lost).contains("u-"), "{}", err(&lost));
    assert_eq!(setup.run(&["call"]).status.code(), Some(2));
    assert_eq!(setup.run(&["call", "a__echo", "no-pair"]).status.code(), Some(1));
    assert_eq!(setup.run(&["frobnicate"]).status.code(), Some(2));
}

#[test]
fn read_and_prompt_print_their_texts() {
    let setup = Setup::new().server("a", "");
    assert_eq!(out(&setup.run(&["read", "a+mem:///hello"])), "a mem:///hello\n");
    let exact = out(&setup.run(&["read", "a+mem:///blob", "--json"]));
    assert_eq!(
        exact,
        "{\"contents\":[{\"uri\":\"a+mem:///blob\",\"mimeType\":\"application/octet-stream\",\"blob\":\"AAEC/w==\",\"x_future\":1.0}]}\n"
    );
    let missing = setup.run(&["read", "a+mem:///missing"]);
    assert_eq!((missing.status.code(), out(&missing)), (Some(1), String::new()));
    let prompt = out(&setup.run(&["prompt", "a__greet", "name=N", "tone=3"]));
    assert!(
        prompt.starts_with("user: a ") && prompt.contains(r#""tone":"3""#),
        "values of prompts are strings: {prompt}"
    );
    let exact = out(&setup.run(&["prompt", "a__embed", "--json"]));
    assert!(exact.contains(r#""n":1e400"#) && exact.contains("a+mem:///hello"), "{exact}");
    let status: Value = serde_json::from_str(&out(&setup.run(&["read", "mcp-proxy://status"]))).unwrap();
    assert_eq!(status["servers"][0]["name"], "a");
}
