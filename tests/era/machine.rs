//! The machine alone, with a clock that the test turns, a host and servers that it plays.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_proxy::config::{Text, Transport, parse};
use mcp_proxy::engine::child::{Conn, ServerId};
use mcp_proxy::engine::hub::{Clock, Effect, Entropy, Hub, Incoming};
use mcp_proxy::engine::outcome::{Exit, UnixMs};
use serde_json::{Value, json};

use crate::rig::{MODERN, able, answer_to};

const KEY: &str = "io.modelcontextprotocol/";
/// The extension of tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A machine with one server, `s`, whose tools are `t`, `u` and `long`, which at a legacy server runs only as a task.
pub(crate) struct Machine {
    hub: Hub,
    now: Instant,
    conn: Conn,
    /// The key of the server that is spoken of.
    key: String,
    legacy_host: bool,
    pub(crate) capabilities: Value,
    /// Rows that were written down as lost.
    pub(crate) lost: usize,
}

impl Machine {
    fn new(legacy_host: bool, key: u8) -> Self {
        Self::with(legacy_host, key, 1, "fake")
    }

    fn with(legacy_host: bool, key: u8, servers: usize, command: &str) -> Self {
        let table = |key: String| format!("[servers.{key}]\ncommand = \"{command}\"\nping_interval = \"0s\"\n");
        let text: String = (0..servers).map(key_of).map(table).collect();
        let parsed = parse(Path::new("t.toml"), &text, None);
        assert!(parsed.sound(), "{:?}", parsed.faults);
        let now = Instant::now();
        let clock = Clock { instant: now, unix: UnixMs(1_800_000_000_000) };
        let mut hub = Hub::new(Arc::new(parsed.config), vec![None; servers], clock, Entropy::new([key; 32]), 1);
        hub.set_seal_key(&[7; 32]);
        let conn = Conn { server: ServerId(0), generation: 1 };
        let mut machine = Self { hub, now, conn, key: key_of(0), legacy_host, capabilities: able(), lost: 0 };
        machine.hub.handle_rows_known(now);
        machine.effects();
        for server in (0..servers).map(ServerId) {
            machine.hub.handle_spawned(now, Conn { server, generation: 1 }, Ok(1));
        }
        machine
    }

    /// A modern host before so many legacy servers, `s`, `s1`, `s2` …
    pub(crate) fn modern_before_many_legacy(servers: usize) -> Self {
        let mut machine = Self::with(false, 1, servers, "fake");
        machine.host(json!({ "id": "first", "method": "prompts/list" }));
        for server in 0..servers {
            machine.speak_of(server);
            machine.greet_legacy();
        }
        machine.told();
        machine
    }

    /// From now on that server is meant.
    pub(crate) fn speak_of(&mut self, server: usize) {
        self.conn.server = ServerId(server);
        self.key = key_of(server);
    }

    /// A modern host before a legacy server.
    pub(crate) fn modern_before_legacy() -> Self {
        Self::modern_before_legacy_as(1)
    }

    /// The same as another process.
    pub(crate) fn modern_before_legacy_as(key: u8) -> Self {
        let mut machine = Self::new(false, key);
        machine.host(json!({ "id": "first", "method": "prompts/list" }));
        machine.greet_legacy();
        machine
    }

    fn greet_legacy(&mut self) {
        let mut opening = self.sent();
        if self.conn.generation == 1 {
            assert_eq!(opening[0]["method"], "server/discover");
            self.child(json!({ "id": opening[0]["id"], "error": { "code": -32601, "message": "no" } }));
            opening = self.sent();
        }
        assert_eq!(opening[0]["method"], "initialize");
        self.child(json!({ "id": opening[0]["id"], "result": {
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "logging": {}, "tasks": { "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } } },
            "serverInfo": { "name": "s", "version": "1" } } }));
        self.lists();
    }

    /// A modern host before a modern server that knows tasks.
    pub(crate) fn modern_before_modern() -> Self {
        Self::modern_before_modern_as(1)
    }

    /// The same as another process.
    pub(crate) fn modern_before_modern_as(key: u8) -> Self {
        Self::modern_before_modern_with(key, "fake")
    }

    /// The same before another program.
    pub(crate) fn modern_before_modern_with(key: u8, command: &str) -> Self {
        let mut machine = Self::with(false, key, 1, command);
        machine.host(json!({ "id": "first", "method": "prompts/list" }));
        machine.discovered();
        machine.lists();
        machine
    }

    /// A legacy host before a modern server.
    pub(crate) fn legacy_before_modern() -> Self {
        let mut machine = Self::new(true, 1);
        machine.host(json!({ "id": "first", "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": able(), "clientInfo": { "name": "h", "version": "1" } } }));
        let opening = machine.sent();
        machine.child(json!({ "id": opening[0]["id"], "error": { "code": -32022, "message": "no", "data": { "supported": [MODERN] } } }));
        machine.discovered();
        machine.host(json!({ "method": "notifications/initialized" }));
        machine.lists();
        machine
    }

    fn discovered(&mut self) {
        let probe = self.sent();
        assert_eq!(probe[0]["method"], "server/discover");
        self.child(json!({ "id": probe[0]["id"], "result": { "resultType": "complete", "supportedVersions": [MODERN],
            "capabilities": { "tools": {}, "extensions": { TASKS: {} } }, "ttlMs": 0, "cacheScope": "private" } }));
    }

    fn lists(&mut self) {
        let list = self.sent().into_iter().find(|line| line["method"] == "tools/list").expect("tools are listed");
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let mut long = tool("long");
        long["execution"] = json!({ "taskSupport": "required" });
        let tools = [tool("t"), tool("u"), long];
        self.child(json!({ "id": list["id"], "result": { "resultType": "complete", "tools": tools } }));
        // The host is told of the change.
        self.pass(Duration::from_millis(60));
        self.told();
    }

    /// The host says something; a request is dressed as its era has it.
    pub(crate) fn host(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        if !self.legacy_host && message.get("id").is_some() && message.get("method").is_some() {
            let capabilities = self.capabilities.clone();
            let meta =
                json!({ format!("{KEY}protocolVersion"): MODERN, format!("{KEY}clientCapabilities"): capabilities });
            let params = message.as_object_mut().unwrap().entry("params").or_insert_with(|| json!({}));
            let given = params.as_object_mut().unwrap().entry("_meta").or_insert_with(|| json!({}));
            given.as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        }
        self.hub.handle_host(self.now, Bytes::from(message.to_string()));
        self.effects();
    }

    /// The server says something.
    pub(crate) fn child(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.hub.handle_child(self.now, self.conn, Bytes::from(message.to_string()));
        self.effects();
    }

    /// The server ends.
    pub(crate) fn child_exits(&mut self) {
        self.hub.handle_gone(self.now, self.conn, Some(Exit::Code(3)));
        self.effects();
    }

    /// The legacy server that ended is there again.
    pub(crate) fn child_returns(&mut self) {
        self.hub.handle_reaped(self.now, self.conn);
        self.pass(Duration::from_secs(2));
        self.conn.generation += 1;
        self.hub.handle_spawned(self.now, self.conn, Ok(1));
        self.effects();
        self.greet_legacy();
    }

    /// The configuration has another program for the server.
    pub(crate) fn replaced(&mut self, command: &str) {
        let mut config = mcp_proxy::config::Config::clone(self.hub.config());
        if let Transport::Stdio(stdio) = &mut config.servers[0].transport {
            stdio.command = Text(command.into());
        }
        let server = Arc::new(config.servers[0].clone());
        self.hub.handle_reload(self.now, Arc::new(config), vec![Incoming { server, same_launch: false, known: None }]);
        self.effects();
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.hub.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.hub.handle_timeout(self.now);
            self.effects();
        }
        self.now = end;
        self.hub.handle_timeout(end);
        self.effects();
    }

    fn effects(&mut self) {
        while let Some(effect) = self.hub.poll_effect() {
            if let Effect::Lost(_) = effect {
                self.lost += 1;
            }
        }
    }

    /// What the host was told since the last time.
    pub(crate) fn told(&mut self) -> Vec<Value> {
        let mut bytes = Vec::new();
        while self.hub.host_bytes() > 0 {
            let before = bytes.len();
            bytes.extend(self.hub.host_outbox().front().flatten().copied());
            self.hub.host_accepted(bytes.len() - before);
        }
        self.effects();
        lines(&bytes)
    }

    /// The one thing that the host was told since the last time.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Value {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:#?}");
        told.into_iter().next().unwrap()
    }

    /// What the server was sent since the last time.
    pub(crate) fn sent(&mut self) -> Vec<Value> {
        let bytes: Vec<u8> =
            self.hub.child_outbox(self.conn).map(|out| out.front().flatten().copied().collect()).unwrap_or_default();
        self.hub.child_accepted(self.conn, bytes.len());
        lines(&bytes)
    }

    /// The host calls a tool of the server's; returns our number of the call there, if it was sent.
    pub(crate) fn call(&mut self, id: u64, tool: &str) -> Option<Value> {
        self.call_with(id, tool, json!({}))
    }

    pub(crate) fn call_with(&mut self, id: u64, tool: &str, meta: Value) -> Option<Value> {
        self.host(json!({ "id": id, "method": "tools/call", "params": { "name": format!("{}__{tool}", self.key), "arguments": { "a": tool }, "_meta": meta } }));
        let sent = self.sent();
        sent.iter().find(|line| line["method"] == "tools/call").map(|line| line["id"].clone())
    }

    /// The host comes back with answers.
    pub(crate) fn retry(&mut self, id: u64, tool: &str, state: &Value, responses: Value) {
        self.host(json!({ "id": id, "method": "tools/call", "params": { "name": format!("{}__{tool}", self.key), "arguments": { "a": tool },
            "inputResponses": responses, "requestState": state } }));
    }

    /// The server asks for a form.
    pub(crate) fn asks(&mut self, id: u64) {
        self.child(json!({ "id": id, "method": "elicitation/create", "params": { "message": "m", "requestedSchema": { "type": "object", "properties": {} } } }));
    }

    /// The server asks, and the host gets the question.
    #[track_caller]
    pub(crate) fn parks(&mut self, id: u64) -> Value {
        self.asks(id);
        self.pass(Duration::from_millis(25));
        let answer = self.answer();
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        answer
    }

    /// The server answers a call.
    pub(crate) fn done(&mut self, wire: &Value) {
        self.child(json!({ "id": wire, "result": { "content": [{ "type": "text", "text": "done" }] } }));
    }
}

fn key_of(server: usize) -> String {
    if server == 0 { "s".into() } else { format!("s{server}") }
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An accepted form.
pub(crate) fn accepted() -> Value {
    answer_to("elicitation/create", &json!({}))
}
