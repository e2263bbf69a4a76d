//! One script of every feature, played by hosts of each revision before servers of each revision, beside the native pair.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::rig::{MODERN, Place, Rig, until};
use crate::spec;

/// What is seen otherwise than with the native pair: hosts, servers, step, and the reason. An empty text stands for all.
/// The same list is in `docs/eras.md`.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &include!("differences.in");

const SERVERS: [(&str, &str); 6] = [
    ("ver=2024-11-05", "2024-11-05"),
    ("ver=2025-03-26", "2025-03-26"),
    ("ver=2025-06-18", "2025-06-18"),
    ("ver=2025-11-25", "2025-11-25"),
    ("modern=only", MODERN),
    ("modern", "both"),
];

/// The names that a host uses: before the proxy with the prefix, else as they are.
struct Names(bool);

impl Names {
    fn tool(&self, name: &str) -> String {
        if self.0 { format!("c__{name}") } else { name.to_owned() }
    }

    fn uri(&self, uri: &str) -> String {
        if self.0 { format!("c+{uri}") } else { uri.to_owned() }
    }
}

/// Takes out what differs by its nature: names, who answers, hints of time.
fn plain(value: &Value) -> Value {
    let text = value.to_string().replace("c__", "").replace("c+", "").replace("[c] ", "").replace("c/", "");
    let mut value: Value = serde_json::from_str(&text).unwrap();
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        for name in ["ttlMs", "cacheScope", "execution", "source"] {
            object.remove(name);
        }
        if let Some(meta) = object.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.remove("io.modelcontextprotocol/serverInfo");
            meta.remove("io.modelcontextprotocol/subscriptionId");
            if meta.is_empty() {
                object.remove("_meta");
            }
        }
        object.values_mut().for_each(strip);
    } else if let Some(list) = value.as_array_mut() {
        list.iter_mut().for_each(strip);
    } else if let Some(text) = value.as_str()
        && let Some(at) = text.find("{\"")
        && let Ok(Value::Object(mut echoed)) = serde_json::from_str(&text[at..])
    {
        // The scripted server tells the parameters that it was sent; their `_meta` is its own matter.
        echoed.shift_remove("_meta");
        *value = format!("{}{}", &text[..at], Value::from(echoed)).into();
    }
}

fn listed(result: &Value, kind: &str, key: &str) -> Value {
    let ours = |name: &str| name.starts_with("mcp-proxy:");
    let mut entries: Vec<(String, Value)> = result[kind]
        .as_array()
        .unwrap_or_else(|| panic!("no list: {result}"))
        .iter()
        .map(plain)
        .map(|entry| (entry[key].as_str().unwrap_or_default().to_owned(), entry))
        .filter(|(name, _)| !ours(name))
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// What a server was told to its question, whichever way it was told.
fn heard(result: &Value) -> Value {
    let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
    let Ok(value) = serde_json::from_str::<Value>(text) else { return failed(result) };
    if value.get("jsonrpc").is_some() {
        return value.get("result").cloned().unwrap_or_else(|| failed(&value["error"]));
    }
    value.as_object().and_then(|answers| answers.values().next()).cloned().unwrap_or_else(|| failed(result))
}

/// An error without its words.
fn failed(value: &Value) -> Value {
    match value.get("code") {
        Some(code) => json!({ "error": code }),
        None => plain(value),
    }
}

fn script(host: &mut Rig, names: &Names) -> BTreeMap<&'static str, Value> {
    let mut seen = BTreeMap::new();
    host.wait_for_tool(&names.tool("echo"));
    let mut list = |host: &mut Rig, step, method: &str, kind: &str, key: &str| {
        let result = host.ask(method, json!({}));
        seen.insert(step, listed(&result, kind, key));
    };
    list(host, "tools", "tools/list", "tools", "name");
    list(host, "prompts", "prompts/list", "prompts", "name");
    list(host, "resources", "resources/list", "resources", "uri");
    list(host, "templates", "resources/templates/list", "resourceTemplates", "uriTemplate");
    let call = |host: &mut Rig, tool: &str, arguments: Value| host.call(&names.tool(tool), arguments);
    seen.insert("echo", call(host, "echo", json!({ "n": 1.5, "s": "é" }))["content"][0].clone());
    for (step, tool, arguments) in [
        ("structured", "structured", json!({ "a": 1 })),
        ("content", "content", json!({})),
        ("is_error", "is_error", json!({})),
        ("error", "reply_error", json!({ "code": -32000, "data": { "k": 1 } })),
        ("odd result", "raw_result", json!({ "result": { "content": [], "structuredContent": [1, 2] } })),
    ] {
        let result = plain(&call(host, tool, arguments));
        seen.insert(step, result);
    }
    seen.insert("unknown tool", failed(&call(host, "nowhere", json!({}))));
    seen.insert(
        "prompt",
        plain(&host.ask("prompts/get", json!({ "name": names.tool("greet"), "arguments": { "name": "Ada" } }))),
    );
    seen.insert("embedding prompt", plain(&host.ask("prompts/get", json!({ "name": names.tool("embed") }))));
    seen.insert("read", plain(&host.ask("resources/read", json!({ "uri": names.uri("mem:///hello") }))));
    seen.insert("read by template", plain(&host.ask("resources/read", json!({ "uri": names.uri("mem:///item/7") }))));
    seen.insert("missing resource", failed(&host.ask("resources/read", json!({ "uri": names.uri("mem:///nowhere") }))));
    let complete = json!({ "ref": { "type": "ref/prompt", "name": names.tool("greet") }, "argument": { "name": "name", "value": "a" } });
    seen.insert("completion", plain(&host.ask("completion/complete", complete)));
    let params =
        json!({ "name": names.tool("progress"), "arguments": { "n": 3 }, "_meta": { "progressToken": "tok" } });
    host.ask("tools/call", params);
    let progress: Vec<Value> =
        host.notifications("notifications/progress").iter().map(|message| message["params"].clone()).collect();
    seen.insert("progress", progress.into());
    for (step, tool, arguments) in [
        ("elicitation", "elicit", json!({ "message": "Name?" })),
        ("elicitation by url", "elicit", json!({ "message": "Sign in", "mode": "url" })),
        ("sampling", "sample", json!({})),
        ("roots", "roots", json!({})),
    ] {
        let answer = heard(&call(host, tool, arguments));
        seen.insert(step, answer);
    }
    let asked: Vec<Value> = host.asked.iter().map(|(method, _)| json!(method)).collect();
    seen.insert("questions", asked.into());
    seen.insert("log", log(host, names));
    seen.insert("watch", watch(host, names));
    seen.insert("change", change(host, names));
    seen.insert("cancel", cancel(host, names));
    if !host.is_modern() {
        seen.insert("ping", host.ask("ping", json!({})));
    }
    seen
}

fn log(host: &mut Rig, names: &Names) -> Value {
    let mut params =
        json!({ "name": names.tool("log"), "arguments": { "level": "error", "data": { "k": 1 }, "logger": "l" } });
    if host.is_modern() {
        params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": "info" });
    } else {
        host.ask("logging/setLevel", json!({ "level": "info" }));
    }
    host.ask("tools/call", params);
    host.notifications("notifications/message").iter().map(|message| plain(&message["params"])).collect()
}

fn watch(host: &mut Rig, names: &Names) -> Value {
    let uri = names.uri("mem:///hello");
    let mut stream = Value::Null;
    if host.is_modern() {
        let wanted = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": [uri] } });
        stream = host.request("subscriptions/listen", wanted);
        let honoured = host.notification("notifications/subscriptions/acknowledged");
        if honoured["params"]["notifications"].get("resourceSubscriptions").is_none() {
            return plain(&honoured["params"]);
        }
    } else {
        let result = host.ask("resources/subscribe", json!({ "uri": uri }));
        if result.get("code").is_some() {
            return failed(&result);
        }
    }
    host.call(&names.tool("updated"), json!({ "uri": "mem:///hello" }));
    let mut message = host.notification("notifications/resources/updated");
    if host.is_modern() {
        let id = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].take();
        assert_eq!(id, stream, "r98");
    }
    message["params"].as_object_mut().unwrap().remove("_meta");
    plain(&message["params"])
}

fn change(host: &mut Rig, names: &Names) -> Value {
    host.call(&names.tool("change_tools"), json!({ "add": "grown" }));
    let message = host.notification("notifications/tools/list_changed");
    host.wait_for_tool(&names.tool("grown"));
    json!({ "method": message["method"], "result": plain(&host.call(&names.tool("grown"), json!({}))) })
}

fn cancel(host: &mut Rig, names: &Names) -> Value {
    let id = host.request("tools/call", json!({ "name": names.tool("sleep"), "arguments": { "ms": 60_000 } }));
    let told = |host: &mut Rig, tool: &str| host.call(&names.tool(tool), json!({}))["content"][0]["text"] != "[]";
    until("the call runs", || told(host, "pending"));
    host.notify("notifications/cancelled", json!({ "requestId": id, "reason": "stopped" }));
    until("the cancellation has come", || told(host, "cancelled"));
    let answers = host.received.iter().filter(|message| message["id"] == id && message.get("method").is_none()).count();
    json!(answers)
}

fn matches(pattern: &str, value: &str) -> bool {
    pattern.is_empty() || pattern.split('|').any(|one| one == value)
}

fn compare(revision: &str) {
    let native_flags = if revision == MODERN { "modern=only".to_owned() } else { format!("ver={revision}") };
    let place = Place::new();
    let mut direct = Rig::direct(&native_flags, place.dir.path());
    direct.open(revision);
    let native = script(&mut direct, &Names(false));
    drop(direct);
    let mut wrong = Vec::new();
    let mut used = vec![false; DIFFERENCES.len()];
    for (flags, server) in SERVERS {
        let place = Place::new().server("c", flags);
        let mut host = place.start();
        host.open(revision);
        let seen = script(&mut host, &Names(true));
        let requests: HashMap<String, String> = host.methods.clone();
        let received = host.finish();
        spec::check_told(revision, &requests, &received);
        let spoken = if server == "both" && revision == MODERN {
            MODERN
        } else if server == "both" {
            "2025-11-25"
        } else {
            server
        };
        let sent: Vec<Value> = place
            .record("c")
            .into_iter()
            .filter(|line| spoken == MODERN || line["method"] != "server/discover")
            .collect();
        let sent: Vec<Value> =
            sent.into_iter().filter(|line| spoken != MODERN || line["method"] != "initialize").collect();
        spec::check_sent(spoken, &place.asked("c"), &sent);
        for (step, native) in &native {
            if seen[step] == *native {
                continue;
            }
            match DIFFERENCES
                .iter()
                .position(|(h, s, what, _)| matches(h, revision) && matches(s, server) && matches(what, step))
            {
                Some(known) => used[known] = true,
                None => wrong.push(format!(
                    "host {revision}, server {server}, {step}:\n  native {native}\n  seen   {}",
                    seen[step]
                )),
            }
        }
        assert!(!place.stderr().contains("panicked"), "{}", place.stderr());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let hosts_own: Vec<_> =
        DIFFERENCES.iter().zip(&used).filter(|((h, ..), used)| *h == revision && !**used).map(|(d, _)| d).collect();
    assert!(hosts_own.is_empty(), "no longer so: {hosts_own:?}");
}

#[test]
fn hosts_of_2024_11_05() {
    compare("2024-11-05");
}

#[test]
fn hosts_of_2025_03_26() {
    compare("2025-03-26");
}

#[test]
fn hosts_of_2025_06_18() {
    compare("2025-06-18");
}

#[test]
fn hosts_of_2025_11_25() {
    compare("2025-11-25");
}

#[test]
fn hosts_of_2026_07_28() {
    compare(MODERN);
}

#[test]
fn every_difference_is_in_the_book_with_its_reason() {
    let book = include_str!("../../docs/eras.md");
    for (.., reason) in DIFFERENCES {
        assert!(book.contains(reason), "docs/eras.md does not say: {reason}");
    }
}
