//! Payload: what need not change is the same bytes on the other side (F33–F36).

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Setup, kill, raw_elements, raw_member};

/// A catalog whose entries have every field of 2025-11-25 and some of the future, in an odd order and spelling.
const TOOL: &str = r##"{"x_first":{"a":[1.0,{"b":null,"a":-0}]}, "name":"full","title":"T é","description":"d \u00e9 \/ é","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"N":{"type":["string","null"]}},"type":"object","properties":{"a":{"$ref":"#/$defs/N"},"b":{"oneOf":[{"const":1e400},{"enum":["x"]}]},"c":true,"d":{"format":"uri","default":9007199254740993}},"additionalProperties":false,"required":[]},"outputSchema":{"type":"object","x":false},"annotations":{"title":"A","readOnlyHint":false,"destructiveHint":false,"x_hint":0.10},"icons":[{"src":"data:image/png;base64,AA==","sizes":["48x48"],"x":1}],"execution":{"taskSupport":"forbidden"},"_meta":{"x/deep":{"y":[{"z":[[]]}]},"traceparent":"00"},"x_future":null}"##;
const PROMPT: &str = r#"{"arguments":[{"name":"n","title":"N","required":false,"x_future":1.0}],"name":"p","title":"P","icons":[],"_meta":{"a":1},"x_future":{"d":{"e":1E2}}}"#;
const RESOURCE: &str = r#"{"name":"r","uri":"mem:///r","title":"R","description":"","mimeType":"text/plain","annotations":{"audience":["user"],"priority":0.50,"lastModified":"2025-01-01T00:00:00Z"},"size":1e2,"icons":[],"_meta":{},"x_future":[null]}"#;
const TEMPLATE: &str = r#"{"name":"t","uriTemplate":"mem:///t/{x}{?q}","mimeType":"text/plain","annotations":{},"_meta":{"k":[0.1000000000000000055]},"x_future":true}"#;

#[test]
fn f33_entries_keep_every_field_and_byte_but_the_name() {
    let catalog =
        format!(r#"{{"tools":[{TOOL}],"prompts":[{PROMPT}],"resources":[{RESOURCE}],"templates":[{TEMPLATE}]}}"#);
    let mut host =
        Setup::new().proxy("own_resources = false").server("a", "only catalog=CATALOG").open_with_catalog(&catalog);
    for (method, member, entry, own, exposed) in [
        ("tools/list", "tools", TOOL, r#""name":"full""#, r#""name":"a__full""#),
        ("prompts/list", "prompts", PROMPT, r#""name":"p""#, r#""name":"a__p""#),
        ("resources/list", "resources", RESOURCE, "mem:///r", "a+mem:///r"),
        ("resources/templates/list", "resourceTemplates", TEMPLATE, "mem:///t/", "a+mem:///t/"),
    ] {
        let list = raw_member(&host.ask(method, "{}").raw_result(), member).unwrap();
        assert_eq!(raw_elements(&list), [entry.replacen(own, exposed, 1)]);
    }
}

#[test]
fn f33_results_keep_every_field_and_byte() {
    let mut host = Setup::new().server("a", "").open();
    for result in [
        r#"{"content":[],"structuredContent":{"z":1,"a":{"n":9007199254740993,"e":1e400}},"isError":false,"_meta":{"x":{"y":[1.0]}},"x_future":{"a":{"b":{"c":null}}}}"#,
        r#"{ "content" : [ { "type":"text" , "text":"\u2028\ud83d\ude00\/" } ] }"#,
        r#"{"content":[{"type":"text","text":"a","text":"doubled"}],"content2":[]}"#,
        r#"{"structuredContent":null,"content":[]}"#,
    ] {
        let reply = host.call("a__raw_result", &format!(r#"{{"result":{result}}}"#));
        assert_eq!(reply.raw_result(), result);
    }
}

#[test]
fn f33_absent_stays_absent_and_null_stays_null() {
    let mut host = Setup::new().server("a", "").open();
    for params in [
        r#"{"name":"a__echo"}"#,
        r#"{"name":"a__echo","arguments":null}"#,
        r#"{"name":"a__echo","arguments":{},"_meta":null}"#,
        r#"{"x_future":[1.0],"arguments":{"b":1,"a":null},"name":"a__echo","_meta":{}}"#,
    ] {
        let reply = host.ask("tools/call", params);
        let expected = params.replacen("a__echo", "echo", 1);
        assert_eq!(reply.texts()[1], expected, "the params as the child got them");
    }
}

#[test]
fn f33_errors_of_a_child_keep_code_message_and_data() {
    let mut host = Setup::new().server("a", "").open();
    let arguments = r#"{"code":-32000,"message":"né \u2028","data":{"n":9007199254740993,"x":[null,1e400]}}"#;
    let reply = host.call("a__reply_error", arguments);
    assert_eq!(reply.raw_member("error").unwrap().replace('\u{2028}', "\\u2028"), arguments);
    assert_eq!(host.call("a__is_error", r#"{"text":"no"}"#).result()["isError"], true);
    let error = host.call("a__url_required", "{}").error(-32042);
    assert_eq!(error["data"]["elicitations"][0]["url"], "https://idp.example/start");
}

#[test]
fn f33_instructions_of_all_children_arrive_with_their_names() {
    let mut host = Setup::new()
        .proxy("instructions = \"Read me.\"\nname = \"our-proxy\"\ntitle = \"hub2\"")
        .server_with("a", &["instructions=Use A: {curly} \"quoted\""], "prefix = \"first\"")
        .server_with("b", &["instructions=Use B"], "")
        .server_with("c", &["instructions="], "")
        .start();
    let opened = host.initialize("2025-11-25", "{}");
    let text = opened["instructions"].as_str().unwrap();
    assert_eq!(
        text,
        "Read me.\n\n## a (names begin with first__)\n\nUse A: {curly} \"quoted\"\n\n## b (names begin with b__)\n\nUse B"
    );
    assert_eq!((&opened["serverInfo"]["name"], &opened["serverInfo"]["title"]), (&json!("our-proxy"), &json!("hub2")));
}

#[test]
fn f34_content_blocks_arrive_in_order_and_unchanged_but_their_uris() {
    let mut host = Setup::new().server("a", "").open();
    let raw = host.call("a__content", "{}").raw_result();
    let blocks = raw_elements(&raw_member(&raw, "content").unwrap());
    let expected = [
        r#"{"type":"text","text":"t","annotations":{"priority":0.10}}"#,
        r#"{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","_meta":{"x":1}}"#,
        r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"}"#,
        r#"{"type":"resource_link","uri":"a+mem:///hello","name":"hello","x_future":[null]}"#,
        r#"{"type":"resource","resource":{"uri":"a+mem:///item/1","mimeType":"text/plain","text":"embedded","_meta":{"y":2}}}"#,
        r#"{"type":"resource","resource":{"uri":"a+mem:///blob","blob":"AAEC/w=="}}"#,
        r#"{"type":"hologram","depth":3.0}"#,
    ];
    assert_eq!(blocks, expected);
    let structured = r#"{"n":9007199254740993,"big":1e400,"zero":-0,"null":null}"#;
    assert_eq!(raw_member(&raw, "structuredContent").unwrap(), structured);
    assert_eq!(raw_member(&raw, "x_future").unwrap(), r#"{"a":[1.0]}"#);
    let read = host.ask("resources/read", r#"{"uri":"a+mem:///blob"}"#).raw_result();
    let blob = r#"{"contents":[{"uri":"a+mem:///blob","mimeType":"application/octet-stream","blob":"AAEC/w==","x_future":1.0}]}"#;
    assert_eq!(read, blob);
}

#[test]
fn f35_schemas_arrive_as_they_are_however_deep() {
    let mut host = Setup::new().server("a", "only odd=deep,numbers,fields").open();
    let list = raw_member(&host.ask("tools/list", "{}").raw_result(), "tools").unwrap();
    let tools = raw_elements(&list);
    assert_eq!(tools.len(), 3);
    let deep = tools.iter().find(|tool| tool.contains("a__deep")).unwrap();
    assert_eq!(deep.matches(r#"{"items":"#).count(), 200);
    assert!(deep.contains(r#""$defs":{"N":true},"additionalProperties":false"#));
    let numbers = tools.iter().find(|tool| tool.contains("a__numbers")).unwrap();
    let schema = r#""minimum":-0,"maximum":9007199254740993,"default":1e400,"multipleOf":0.1000000000000000055"#;
    assert!(numbers.contains(schema) && numbers.contains(r#""x_n":[1.0,18446744073709551616,1e2]"#), "{numbers}");
}

const NUMBERS: &str =
    "9007199254740993 9223372036854775807 18446744073709551616 -0 1.0 1e400 -1E-400 0.1000000000000000055 1e2";

#[test]
fn f36_numbers_are_the_same_tokens_on_both_sides() {
    let mut host = Setup::new().server("a", "").open();
    let digits = "7".repeat(100);
    for number in NUMBERS.split(' ').chain([&digits[..]]) {
        let arguments = format!(r#"{{"n":{number},"deep":[{{"n":[{number}]}}]}}"#);
        let reply = host.ask(
            "tools/call",
            &format!(r#"{{"name":"a__structured","arguments":{arguments},"_meta":{{"n":{number}}}}}"#),
        );
        assert_eq!(reply.text(), arguments);
        let raw = reply.raw_result();
        assert_eq!(raw_member(&raw, "structuredContent").unwrap(), arguments);
        assert_eq!(raw_member(&raw_member(&raw, "_meta").unwrap(), "arguments").unwrap(), arguments);
        let meta = format!(r#"{{"n":{number}}}"#);
        let reply = host.ask("tools/call", &format!(r#"{{"name":"a__echo_meta","_meta":{meta}}}"#));
        assert_eq!(reply.text(), meta);
    }
}

#[test]
fn repairs_save_what_can_be_saved_and_cost_nobody_else_anything() {
    let odd = "noschema,nulldesc,emptyname,dup,notype,badschema,nullschema";
    let mut host = Setup::new().server("a", &format!("only tools=1 odd={odd}")).server("b", "only tools=1").open();
    let tools = host.list("tools");
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a__dup", "a__noschema", "a__notype", "a__nulldesc", "a__tool_000", "b__tool_000"]);
    for tool in &tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool:#}");
        assert!(tool.get("description") != Some(&Value::Null), "{tool:#}");
    }
    assert_eq!(tools[0]["description"], "the first");
    assert_eq!(tools[2]["inputSchema"]["properties"]["a"]["type"], "string", "the rest of the schema stays");
    let status = host.status("a");
    assert!(status["repairs"].as_u64().unwrap() >= 6, "{status:#}");
    assert_eq!(host.status("b")["repairs"], 0);
    // Told once, though each kind that came made the whole anew, and not again by the next life.
    kill(host.pids("a")[0], Signal::KILL);
    host.status_until("a", "the next life", |status| status["generation"] == 2 && status["state"] == "ready");
    host.settle();
    let log = host.stderr();
    for name in ["noschema", "notype", "badschema"] {
        let told = log.lines().filter(|line| line.contains("repaired") && line.ends_with(&format!("name={name}")));
        assert_eq!(told.count(), 1, "{name}\n{log}");
    }
}

#[test]
fn a_thousand_repairs_do_not_flood_the_log() {
    let tools: Vec<Value> = (0..1000).map(|number| json!({ "name": format!("t{number}") })).collect();
    let catalog = json!({ "tools": tools }).to_string();
    let mut host = Setup::new().server("a", "only catalog=CATALOG").open_with_catalog(&catalog);
    host.settle();
    assert_eq!(host.status("a")["repairs"], 1000);
    host.logged("more entries were repaired");
    let log = host.stderr();
    assert_eq!(log.lines().filter(|line| line.contains("repaired:")).count(), 20, "{log}");
    assert!(log.contains("more=980"), "{log}");
}

#[test]
fn the_line_separator_and_32_mib_survive_both_ways() {
    let mut host = Setup::new().server("a", "").open();
    let text = format!("{}\u{2028}", "z".repeat(4 << 20));
    let reply = host.call("a__structured", &json!({ "t": text }).to_string());
    let structured = raw_member(&reply.raw_result(), "structuredContent").unwrap();
    assert_eq!(structured, json!({ "t": text }).to_string());
}
