//! One script for a server: run directly and through the proxy, it must tell the same story.

use serde_json::{Value, json};

use crate::peer::Peer;

/// What was done, and what came of it.
pub(crate) type Story = Vec<(String, Value)>;

/// The names that the proxy gives; without a prefix those of the server itself.
pub(crate) struct Names(pub(crate) Option<&'static str>);

impl Names {
    /// The name of a tool or prompt.
    pub(crate) fn of(&self, name: &str) -> String {
        self.0.map_or_else(|| name.to_owned(), |prefix| format!("{prefix}__{name}"))
    }

    /// A URI or a template of one.
    pub(crate) fn uri(&self, uri: &str) -> String {
        self.0.map_or_else(|| uri.to_owned(), |prefix| format!("{prefix}+{uri}"))
    }

    /// Undoes the documented renames: prefixes of names, of URIs and of loggers, and the name before a question.
    pub(crate) fn undo(&self, value: &mut Value) {
        let Some(prefix) = self.0 else { return };
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.undo(item)),
            Value::Object(members) => {
                if members.get("logger") == Some(&json!(prefix)) {
                    members.remove("logger");
                }
                for (key, member) in members.iter_mut() {
                    let start = match key.as_str() {
                        "name" => format!("{prefix}__"),
                        "uri" | "uriTemplate" => format!("{prefix}+"),
                        "logger" => format!("{prefix}/"),
                        // A person sees who asks.
                        "message" => format!("[{prefix}] "),
                        _ => {
                            self.undo(member);
                            continue;
                        }
                    };
                    match member.as_str().and_then(|text| text.strip_prefix(&start)) {
                        Some(own) => *member = own.into(),
                        None => self.undo(member),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Takes out what differs between two runs of the server itself: times, and ids that it draws.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(members) => {
            let dynamic = members.get("uri").and_then(Value::as_str).is_some_and(|uri| uri.contains("/dynamic/"));
            for (key, member) in members.iter_mut() {
                match (key.as_str(), member.as_str()) {
                    ("createdAt" | "lastUpdatedAt" | "taskId", Some(_)) => *member = "…".into(),
                    ("text", Some(text)) if dynamic => {
                        *member = text.split_once(" created at ").unwrap().0.into();
                    }
                    // The time stands at the end.
                    ("blob", Some(blob)) if dynamic => *member = blob[..60].into(),
                    _ => mask(member),
                }
            }
        }
        _ => {}
    }
}

/// What every server has: its lists, and a call of each tool; none may be left out.
pub(crate) fn lists_and_calls(peer: &mut Peer, names: &Names, calls: &[(&str, Value)]) -> Story {
    let mut story = vec![("initialize".to_owned(), peer.opened.clone())];
    let lists = [
        ("tools/list", "tools", "name"),
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ];
    for (method, member, key) in lists {
        let mut listed = peer.request(method, &json!({}));
        // A host may ask any server for any list: what a server does not have is an empty list behind the proxy.
        if listed.pointer("/error/code") == Some(&json!(-32601)) {
            listed = json!({ member: [] });
        }
        if let Some(entries) = listed.get_mut(member).and_then(Value::as_array_mut) {
            // The proxy's own resources are no server's.
            entries.retain(|entry| !entry[key].as_str().unwrap().starts_with("mcp-proxy://"));
            // The proxy sorts.
            entries.sort_by(|a, b| a[key].as_str().cmp(&b[key].as_str()));
        }
        if method == "tools/list" {
            let mut listed: Vec<&str> =
                listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
            let mut called: Vec<String> = calls.iter().map(|(name, _)| names.of(name)).collect();
            called.sort();
            called.dedup();
            listed.sort_unstable();
            assert_eq!(listed, called, "the script does not call exactly the tools that there are");
        }
        story.push((method.to_owned(), listed));
    }
    for (name, arguments) in calls {
        let mut params = json!({ "name": names.of(name), "arguments": arguments });
        if name.contains("long-running") {
            params["_meta"] = json!({ "progressToken": "steps" });
        }
        if name.contains("research") {
            story.extend(task(peer, params));
            continue;
        }
        let asked = peer.asked.len();
        let result = peer.request("tools/call", &params);
        story.push((format!("{name} {arguments}"), result));
        story.push((format!("{name}: what it asked"), Value::from(peer.asked[asked..].to_vec())));
    }
    story.push(("progress".into(), Value::from(peer.notes("notifications/progress"))));
    story
}

/// A call that is a task, and asks in its midst.
fn task(peer: &mut Peer, mut params: Value) -> Story {
    params["task"] = json!({ "ttl": 60000 });
    let created = peer.request("tools/call", &params);
    let id = json!({ "taskId": created["task"]["taskId"] });
    assert!(id["taskId"].is_string(), "{created}");
    let mut story = vec![("a task".to_owned(), created)];
    let asked = peer.asked.len();
    story.push(("its result".into(), peer.request("tasks/result", &id)));
    story.push(("what it asked".into(), Value::from(peer.asked[asked..].to_vec())));
    story.push(("its end".into(), peer.request("tasks/get", &id)));
    story.push(("all tasks".into(), peer.request("tasks/list", &json!({}))));
    story.push(("too late to cancel".into(), peer.request("tasks/cancel", &id)));
    story
}

/// Prompts, resources, completions, subscriptions, logging and roots of `server-everything`.
pub(crate) fn everything_else(peer: &mut Peer, names: &Names) -> Story {
    let mut story = Story::new();
    let prompts = [
        ("simple-prompt", json!({})),
        ("args-prompt", json!({ "city": "Lima" })),
        ("args-prompt", json!({ "city": "Lima", "state": "Peru" })),
        ("args-prompt", json!({})),
        ("completable-prompt", json!({ "department": "Sales", "name": "Eve" })),
        ("resource-prompt", json!({ "resourceType": "Text", "resourceId": "3" })),
        ("resource-prompt", json!({ "resourceType": "Blob", "resourceId": "4" })),
    ];
    for (name, arguments) in prompts {
        let params = json!({ "name": names.of(name), "arguments": arguments });
        story.push((format!("prompt {name} {arguments}"), peer.request("prompts/get", &params)));
    }
    let listed = peer.request("resources/list", &json!({}));
    let listed = listed["resources"].as_array().unwrap().iter().map(|entry| entry["uri"].as_str().unwrap().to_owned());
    let mut listed = listed.filter(|uri| !uri.starts_with("mcp-proxy://")).collect::<Vec<_>>();
    listed.sort();
    assert!(listed.len() > 5, "{listed:?}");
    let dynamic = ["text/5", "blob/6", "text/none"].map(|rest| names.uri(&format!("demo://resource/dynamic/{rest}")));
    for (number, uri) in listed.into_iter().chain(dynamic).enumerate() {
        story.push((format!("resource {number}"), peer.request("resources/read", &json!({ "uri": uri }))));
    }
    let prompt = |name: &str| json!({ "type": "ref/prompt", "name": names.of(name) });
    let resource = json!({ "type": "ref/resource", "uri": names.uri("demo://resource/dynamic/text/{resourceId}") });
    let completions = [
        (prompt("completable-prompt"), "department", "S", json!({})),
        (prompt("completable-prompt"), "name", "", json!({ "arguments": { "department": "Marketing" } })),
        (prompt("resource-prompt"), "resourceType", "B", json!({})),
        (resource.clone(), "resourceId", "12", json!({})),
        (resource, "resourceId", "x", json!({})),
    ];
    for (number, (reference, name, value, context)) in completions.into_iter().enumerate() {
        let params = json!({ "ref": reference, "argument": { "name": name, "value": value }, "context": context });
        story.push((format!("completion {number}"), peer.request("completion/complete", &params)));
    }
    story.extend(subscription(peer, names));
    story.extend(logging(peer, names));
    story.extend(roots(peer, names));
    story
}

fn subscription(peer: &mut Peer, names: &Names) -> Story {
    let watched = json!({ "uri": names.uri("demo://resource/dynamic/text/7") });
    let toggle = json!({ "name": names.of("toggle-subscriber-updates"), "arguments": {} });
    let mut story = vec![("subscribe".to_owned(), peer.request("resources/subscribe", &watched))];
    story.push(("updates on".into(), peer.request("tools/call", &toggle)));
    peer.until("an update", |peer| !peer.notes("notifications/resources/updated").is_empty());
    story.push(("an update".into(), peer.notes("notifications/resources/updated")[0].clone()));
    story.push(("updates off".into(), peer.request("tools/call", &toggle)));
    story.push(("unsubscribe".into(), peer.request("resources/unsubscribe", &watched)));
    let said = |peer: &Peer| {
        let notes = peer.notes("notifications/message");
        notes.into_iter().find(|note| note["data"].as_str().is_some_and(|data| data.contains("Unsubscribe")))
    };
    peer.until("a word on it", |peer| said(peer).is_some());
    story.push(("a word on it".into(), said(peer).unwrap()));
    story
}

/// The server draws a level each time: that a message comes, and how it looks, is what can be compared.
fn logging(peer: &mut Peer, names: &Names) -> Story {
    let toggle = json!({ "name": names.of("toggle-simulated-logging"), "arguments": {} });
    let mut story = vec![("level".to_owned(), peer.request("logging/setLevel", &json!({ "level": "debug" })))];
    story.push(("logging on".into(), peer.request("tools/call", &toggle)));
    let drawn = |peer: &Peer| {
        let notes = peer.notes("notifications/message");
        notes.into_iter().find(|note| note["data"].as_str().is_some_and(|data| data.contains("evel")))
    };
    peer.until("a message", |peer| drawn(peer).is_some());
    let mut message = drawn(peer).unwrap();
    for member in ["level", "data"] {
        message[member] = message[member].is_string().into();
    }
    story.push(("a message".into(), message));
    story.push(("logging off".into(), peer.request("tools/call", &toggle)));
    story.push(("no such level".into(), peer.request("logging/setLevel", &json!({ "level": "loud" }))));
    story
}

fn roots(peer: &mut Peer, names: &Names) -> Story {
    let asked = |peer: &Peer| peer.asked.iter().filter(|asked| asked["method"] == "roots/list").count();
    let before = asked(peer);
    peer.notify("notifications/roots/list_changed");
    peer.until("the question after the change", |peer| asked(peer) > before);
    let params = json!({ "name": names.of("get-roots-list"), "arguments": {} });
    vec![("roots".to_owned(), peer.request("tools/call", &params))]
}
