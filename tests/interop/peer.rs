//! A host of our own, which says what it hears: the same for a server and for the proxy in front of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
pub(crate) struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    inbox: Receiver<Value>,
    last_id: u64,
    /// It speaks 2026-07-28: no handshake, and questions come as results.
    modern: bool,
    roots: Value,
    /// Every notification, oldest first.
    pub(crate) heard: Vec<Value>,
    /// Every request of the server, without its id.
    pub(crate) asked: Vec<Value>,
    /// The answer to `initialize`.
    pub(crate) opened: Value,
}

impl Peer {
    /// Starts a server and opens the session with every capability that a host of 2025-11-25 may have.
    pub(crate) fn open(command: Command, roots: Value) -> Self {
        let mut peer = Self::start(command, roots, false);
        peer.opened = peer.request(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {
                    "roots": { "listChanged": true },
                    "sampling": { "tools": {}, "context": {} },
                    "elicitation": { "form": {}, "url": {} },
                    "tasks": {
                        "list": {}, "cancel": {},
                        "requests": { "sampling": { "createMessage": {} }, "elicitation": { "create": {} } },
                    },
                },
                "clientInfo": { "name": "interop", "version": "1" },
            }),
        );
        peer.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        peer
    }

    /// Starts a server that is spoken to as 2026-07-28 has it.
    pub(crate) fn open_modern(command: Command, roots: Value) -> Self {
        let mut peer = Self::start(command, roots, true);
        peer.opened = peer.request("server/discover", &json!({}));
        peer
    }

    fn start(mut command: Command, roots: Value, modern: bool) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, inbox) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let (heard, asked) = (Vec::new(), Vec::new());
        Self { child, stdin, inbox, last_id: 0, modern, roots, heard, asked, opened: Value::Null }
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method }));
    }

    /// Sends a request, and goes through its rounds; its result, or an object with its `error`.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let mut params = params.clone();
        if self.modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            let capabilities = json!({ "roots": {}, "sampling": {}, "elicitation": { "form": {}, "url": {} } });
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        }
        loop {
            let result = self.exchange(method, &params);
            if result["resultType"] != "input_required" {
                return result;
            }
            let questions = result["inputRequests"].as_object().into_iter().flatten();
            let mut answers = serde_json::Map::new();
            for (key, question) in questions {
                let asked = question["method"].as_str().unwrap();
                self.asked.push(json!({ "method": asked, "params": question["params"] }));
                answers.insert(key.clone(), self.answer(asked, &question["params"]));
            }
            params["inputResponses"] = answers.into();
            match result.get("requestState") {
                Some(state) => params["requestState"] = state.clone(),
                None => drop(params.as_object_mut().and_then(|params| params.remove("requestState"))),
            }
        }
    }

    fn exchange(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next(deadline).unwrap_or_else(|| panic!("no answer to {method} {params}"));
            if message["id"] == json!(id) && message.get("method").is_none() {
                return message.get("result").cloned().unwrap_or_else(|| json!({ "error": message["error"] }));
            }
        }
    }

    /// Takes what comes until `holds`.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(self.next(deadline).is_some(), "{what} never came; heard: {:#?}", self.heard);
        }
    }

    /// The `params` of the notifications of one method.
    pub(crate) fn notes(&self, method: &str) -> Vec<Value> {
        self.heard.iter().filter(|note| note["method"] == method).map(|note| note["params"].clone()).collect()
    }

    /// Ends the session; the server must end by itself.
    pub(crate) fn close(mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end with its input");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).and_then(|()| stdin.flush()).unwrap();
    }

    fn next(&mut self, deadline: Instant) -> Option<Value> {
        let message = self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(method), Some(id)) => {
                self.asked.push(json!({ "method": method, "params": message["params"] }));
                let result = self.answer(method, &message["params"]);
                self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
            }
            (Some(_), None) => self.heard.push(message.clone()),
            (None, _) => {}
        }
        Some(message)
    }

    /// What this host says to a server's request. One that is to be a task is done when it is first asked about.
    fn answer(&self, method: &str, params: &Value) -> Value {
        let now = "2026-01-01T00:00:00Z";
        let task = |status: &str| {
            json!({
                "taskId": "host-task", "status": status, "ttl": 60000, "pollInterval": 100,
                "createdAt": now, "lastUpdatedAt": now,
            })
        };
        let form = json!({ "action": "accept", "content": filled(&params["requestedSchema"]) });
        match method {
            "roots/list" => json!({ "roots": self.roots }),
            "sampling/createMessage" | "elicitation/create" if params.get("task").is_some() => {
                json!({ "task": task("working") })
            }
            "tasks/get" => task("completed"),
            "tasks/result" if self.asked.iter().rev().any(|asked| asked["method"] == "sampling/createMessage") => {
                sampled()
            }
            "tasks/result" => json!({ "action": "accept", "content": { "name": "Ann" } }),
            "sampling/createMessage" => sampled(),
            "elicitation/create" if params["mode"] == "url" => json!({ "action": "accept" }),
            "elicitation/create" => form,
            _ => json!({}),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sampled() -> Value {
    json!({
        "role": "assistant", "model": "a-model", "stopReason": "endTurn",
        "content": { "type": "text", "text": "As the model said." },
    })
}

/// A form, filled in with its defaults or with something lawful.
fn filled(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fill = |field: &Value| match (field.get("default"), field["type"].as_str(), field["format"].as_str()) {
        (Some(default), ..) => default.clone(),
        (None, Some("string"), Some("email")) => json!("ann@example.com"),
        (None, Some("string"), Some("uri")) => json!("https://example.com/"),
        (None, Some("string"), Some("date")) => json!("2000-02-29"),
        (None, Some("string"), _) => {
            let choices = field.get("enum").or(field.pointer("/oneOf")).and_then(Value::as_array);
            let first = choices.and_then(|choices| choices.first()).cloned().unwrap_or_else(|| json!("Ann"));
            first.get("const").cloned().unwrap_or(first)
        }
        (None, Some("boolean"), _) => json!(true),
        (None, Some("array"), _) => json!([]),
        (None, ..) => json!(7),
    };
    fields.map(|(name, field)| (name.clone(), fill(field))).collect::<serde_json::Map<_, _>>().into()
}
