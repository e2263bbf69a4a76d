//! A host of either era that a test plays, before the proxy or straight before a scripted server.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything here takes; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "io.modelcontextprotocol/";
pub(crate) const MODERN: &str = "2026-07-28";

/// What the host can do.
pub(crate) fn able() -> Value {
    json!({ "roots": {}, "sampling": {}, "elicitation": { "form": {}, "url": {} } })
}

/// A host with its server.
pub(crate) struct Rig {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The revision that the host speaks.
    pub(crate) revision: String,
    pub(crate) capabilities: Value,
    /// Every line that came, in order.
    pub(crate) received: Vec<Value>,
    notifications: VecDeque<Value>,
    responses: VecDeque<Value>,
    requests: VecDeque<Value>,
    /// Whether questions are answered by themselves.
    pub(crate) answers: bool,
    /// Questions that were answered: method and params.
    pub(crate) asked: Vec<(String, Value)>,
    next: u64,
    /// The methods of the requests so far, by id.
    pub(crate) methods: HashMap<String, String>,
}

/// A place for a proxy and its servers.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    servers: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), servers: String::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Adds a scripted server; what it is sent is recorded.
    pub(crate) fn server(mut self, key: &str, flags: &str) -> Self {
        let mut args: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        args.push(format!("record={}", self.path(&format!("{key}.record")).display()));
        args.push(format!("label={key}"));
        let (command, args) = (json!(env!("CARGO_BIN_EXE_fake-server")), json!(args));
        self.servers.push_str(&format!("[servers.{key}]\ncommand = {command}\nargs = {args}\n"));
        self
    }

    /// The lines that a server was sent.
    pub(crate) fn record(&self, key: &str) -> Vec<Value> {
        self.events(key, "in")
    }

    /// The methods of the requests that a server made, by id.
    pub(crate) fn asked(&self, key: &str) -> HashMap<String, String> {
        let method = |line: &Value| line["method"].as_str().unwrap_or_default().to_owned();
        self.events(key, "asks").iter().map(|line| (line["id"].to_string(), method(line))).collect()
    }

    fn events(&self, key: &str, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(&format!("{key}.record"))).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["k"] == kind)
            .filter_map(|event| serde_json::from_str(event["d"].as_str()?).ok())
            .collect()
    }

    /// Whether what is known of a server is kept for the next start.
    pub(crate) fn is_cached(&self, key: &str) -> bool {
        fn holds(dir: &Path, start: &str) -> bool {
            std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name.starts_with(start) && entry.path().extension().is_some_and(|kind| kind == "json"))
                    || holds(&entry.path(), start)
            })
        }
        holds(&self.path("home/cache"), &format!("{key}-"))
    }

    /// How often a server was started.
    pub(crate) fn starts(&self, key: &str) -> usize {
        let text = std::fs::read_to_string(self.path(&format!("{key}.record"))).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|event| event["k"] == "start")
            .count()
    }

    /// How often a server was sent that method.
    pub(crate) fn sent(&self, key: &str, method: &str) -> usize {
        self.record(key).iter().filter(|line| line["method"] == method).count()
    }

    /// Waits until a server was sent that method so often.
    pub(crate) fn sent_until(&self, key: &str, method: &str, count: usize) {
        until(&format!("{key} is sent {method} {count} times"), || self.sent(key, method) >= count);
    }

    /// Starts the proxy.
    pub(crate) fn start(&self) -> Rig {
        let home = self.path("home");
        std::fs::create_dir_all(&home).unwrap();
        let config = self.path("mcp-proxy.toml");
        std::fs::write(&config, &self.servers).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-proxy"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &home);
        command.env("XDG_RUNTIME_DIR", &home);
        for kind in ["CONFIG", "STATE", "CACHE", "DATA"] {
            command.env(format!("XDG_{kind}_HOME"), home.join(kind.to_lowercase()));
        }
        command.arg("--config").arg(config).arg("run");
        Rig::of(command, &self.path("stderr"))
    }

    /// What the proxy said on stderr.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Rig {
    /// A scripted server without the proxy.
    pub(crate) fn direct(flags: &str, dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-server"));
        command.args(flags.split_whitespace()).arg("label=c");
        Self::of(command, &dir.join("direct.stderr"))
    }

    fn of(mut command: Command, stderr: &Path) -> Self {
        let stderr = std::fs::File::options().create(true).append(true).open(stderr).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let (sender, lines) = channel();
        let output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            revision: MODERN.into(),
            capabilities: able(),
            received: Vec::new(),
            notifications: VecDeque::new(),
            responses: VecDeque::new(),
            requests: VecDeque::new(),
            answers: true,
            asked: Vec::new(),
            next: 1,
            methods: HashMap::new(),
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision == MODERN
    }

    /// Opens what the revision asks to be opened; returns what the server tells of itself.
    pub(crate) fn open(&mut self, revision: &str) -> Value {
        self.revision = revision.into();
        if self.is_modern() {
            return self.ask("server/discover", json!({}));
        }
        let mut capabilities = self.capabilities.clone();
        if revision < "2025-06-18" {
            capabilities.as_object_mut().unwrap().remove("elicitation");
        }
        if revision == "2025-06-18" {
            capabilities["elicitation"] = json!({});
        }
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": { "name": "test", "version": "1" } });
        let result = self.ask("initialize", params);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        result
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("the pipe is open");
        input.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// The params of a request as the host's era has them.
    pub(crate) fn dressed(&self, mut params: Value) -> Value {
        if self.is_modern() {
            let meta = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
            meta[format!("{KEY}protocolVersion")] = MODERN.into();
            meta[format!("{KEY}clientCapabilities")] = self.capabilities.clone();
            meta[format!("{KEY}clientInfo")] = json!({ "name": "test", "version": "1" });
        }
        params
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next);
        self.next += 1;
        self.request_as(&id, method, params);
        id
    }

    pub(crate) fn request_as(&mut self, id: &Value, method: &str, params: Value) {
        let params = self.dressed(params);
        self.methods.insert(id.to_string(), method.to_owned());
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// The whole response to a request.
    pub(crate) fn response(&mut self, id: &Value) -> Value {
        self.take(&format!("the answer to {id}"), |rig| {
            let at = rig.responses.iter().position(|message| message["id"] == *id)?;
            rig.responses.remove(at)
        })
    }

    /// Sends a request and goes through its rounds; its result, or its error.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let mut id = self.request(method, params.clone());
        loop {
            let response = self.response(&id);
            if response["result"]["resultType"] != "input_required" || !self.answers {
                return response.get("result").or(response.get("error")).cloned().unwrap_or(response);
            }
            let again = self.retry_of(&params, &response["result"]);
            id = self.request(method, again);
        }
    }

    /// The params of the retry that answers all questions of an `input_required` result.
    pub(crate) fn retry_of(&mut self, params: &Value, result: &Value) -> Value {
        let mut again = params.clone();
        if let Some(requests) = result.get("inputRequests").and_then(Value::as_object) {
            let mut responses = serde_json::Map::new();
            for (key, question) in requests {
                responses.insert(key.clone(), self.answer_of(question));
            }
            again["inputResponses"] = responses.into();
        }
        if let Some(state) = result.get("requestState") {
            again["requestState"] = state.clone();
        }
        again
    }

    fn answer_of(&mut self, question: &Value) -> Value {
        let method = question["method"].as_str().unwrap().to_owned();
        self.asked.push((method.clone(), question.get("params").cloned().unwrap_or_default()));
        answer_to(&method, question)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The next notification of that method.
    pub(crate) fn notification(&mut self, method: &str) -> Value {
        self.take(method, |rig| {
            let at = rig.notifications.iter().position(|message| message["method"] == method)?;
            rig.notifications.remove(at)
        })
    }

    /// Everything that was written before this has come in after it.
    pub(crate) fn fence(&mut self) {
        let method = if self.is_modern() { "server/discover" } else { "ping" };
        self.ask(method, json!({}));
    }

    /// Notifications of that method that came so far.
    pub(crate) fn notifications(&mut self, method: &str) -> Vec<Value> {
        self.fence();
        let (wanted, rest) = std::mem::take(&mut self.notifications).into_iter().partition(|m| m["method"] == method);
        self.notifications = rest;
        let wanted: VecDeque<Value> = wanted;
        wanted.into()
    }

    /// Lists until an entry is there.
    pub(crate) fn wait_for_tool(&mut self, name: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let list = self.ask("tools/list", json!({}));
            if list["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name)) {
                return;
            }
            assert!(Instant::now() < end, "no tool {name}: {list:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn take(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<Value>) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(message) = found(self) {
                return message;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!(
                    "{what} did not come; what came: {:#?}",
                    self.received.iter().map(Value::to_string).collect::<Vec<_>>()
                );
            };
            self.sort(&line);
        }
    }

    fn sort(&mut self, line: &str) {
        // What no schema and no double can hold; other tests look at the bytes.
        let line = line
            .replace("1e400", "1e40")
            .replace(r#"{"type":"hologram","depth":3.0}"#, r#"{"type":"text","text":"h"}"#);
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.received.push(message.clone());
        let (has_id, has_method) = (message.get("id").is_some(), message.get("method").is_some());
        match (has_id, has_method) {
            (true, true) if self.answers && message["method"] == "elicitation/create" && !self.elicits(&message) => {
                let code = if self.revision.as_str() < "2025-06-18" { -32601 } else { -32602 };
                self.send(
                    &json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": code, "message": "no" } }),
                );
            }
            (true, true) if self.answers => {
                let result = self.answer_of(&message);
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
            }
            (true, true) => self.requests.push_back(message),
            (false, true) => self.notifications.push_back(message),
            _ => self.responses.push_back(message),
        }
    }

    /// Closes the pipe and waits for the end; whatever came until then is in `received`.
    pub(crate) fn finish(mut self) -> Vec<Value> {
        self.input = None;
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.sort_quietly(&line);
        }
        std::mem::take(&mut self.received)
    }

    /// Whether its revision has that form of question.
    fn elicits(&self, message: &Value) -> bool {
        let url = message["params"]["mode"] == "url";
        self.revision.as_str() >= if url { "2025-11-25" } else { "2025-06-18" }
    }

    fn sort_quietly(&mut self, line: &str) {
        if let Ok(message) = serde_json::from_str(line) {
            self.received.push(message);
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.input = None;
        let end = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the host says to a question.
pub(crate) fn answer_to(method: &str, question: &Value) -> Value {
    match method {
        "elicitation/create" if question["params"]["mode"] == "url" => json!({ "action": "accept" }),
        "elicitation/create" => json!({ "action": "accept", "content": { "name": "Ada" } }),
        "sampling/createMessage" => {
            json!({ "role": "assistant", "content": { "type": "text", "text": "sampled" }, "model": "m", "stopReason": "endTurn" })
        }
        "roots/list" => json!({ "roots": [{ "uri": "file:///r", "name": "r" }] }),
        _ => json!({}),
    }
}
