//! The server: state, and what becomes of each line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;
use serde_json::value::RawValue;

use crate::catalog::{Catalog, page};
use crate::flags::{Flags, append};
use crate::modern;
use crate::out::Out;
use crate::tasks::Tasks;
use crate::tools::{self, Call};

/// A cheap handle to the one server.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) flags: Flags,
    pub(crate) out: Out,
    pub(crate) tasks: Tasks,
    began: Instant,
    state: Mutex<State>,
    /// Wakes whoever waits for a cancellation.
    cancelled: Condvar,
}

/// All that changes. Ids are JSON texts, so that `1` and `"1"` differ.
pub(crate) struct State {
    pub(crate) catalog: Catalog,
    /// Requests that have no answer yet.
    pub(crate) pending: Vec<String>,
    /// Ids of cancellations, in order, known or not.
    pub(crate) cancelled: Vec<String>,
    /// Every message, raw, with its method (empty: a response).
    pub(crate) received: Vec<(String, String)>,
    pub(crate) level: Option<String>,
    pub(crate) subscriptions: BTreeSet<String>,
    /// What `initialize` said, raw.
    pub(crate) opening: Option<String>,
    /// Open subscriptions of 2026-07-28: what each wants.
    pub(crate) listens: BTreeMap<String, serde_json::Value>,
    /// Requests of 2026-07-28 that have no answer yet, with their methods.
    modern: BTreeMap<String, String>,
    waiting: HashMap<String, Sender<String>>,
    next_id: u64,
    /// Methods whose `error1:` was spent.
    failed_once: BTreeSet<String>,
}

/// The members of a message that matter here; all of them raw.
#[derive(serde::Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// How a request ends: a raw result, a raw error, or what was done already or never will be.
pub(crate) enum Reply {
    Result(String),
    Error(String),
    None,
}

impl std::ops::Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn new(flags: Flags) -> Self {
        let state = State {
            catalog: Catalog::new(&flags),
            pending: Vec::new(),
            cancelled: Vec::new(),
            received: Vec::new(),
            level: None,
            subscriptions: BTreeSet::new(),
            opening: None,
            listens: BTreeMap::new(),
            modern: BTreeMap::new(),
            waiting: HashMap::new(),
            next_id: 0,
            failed_once: BTreeSet::new(),
        };
        Self(Arc::new(Inner {
            out: Out::new(&flags),
            tasks: Tasks::default(),
            flags,
            began: Instant::now(),
            state: Mutex::new(state),
            cancelled: Condvar::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Appends to the record.
    pub(crate) fn record(&self, kind: &str, data: &str) {
        if let Some(file) = self.flags.text("record") {
            let line = json!({
                "t": u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                "pid": std::process::id(),
                "gen": self.flags.generation,
                "k": kind,
                "d": data,
            });
            append(file, &line.to_string());
        }
    }

    /// Takes one line of input.
    pub(crate) fn take(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n');
        self.record("in", text);
        let Ok(Message { id, method, params }) = serde_json::from_str(text) else {
            return self.remember("?", text);
        };
        self.remember(method.as_deref().unwrap_or_default(), text);
        let params = params.map_or("{}", RawValue::get);
        match (id.map(RawValue::get), method) {
            (Some(id), Some(method)) => self.request(id, &method, params),
            (None, Some(method)) => self.notification(&method, params),
            (Some(id), None) => {
                let waiter = self.state().waiting.remove(id);
                if let Some(waiter) = waiter {
                    let _ = waiter.send(text.to_owned());
                }
            }
            (None, None) => {}
        }
    }

    /// Keeps a line for the tool `received`: the last few thousand, unless they are huge.
    fn remember(&self, method: &str, line: &str) {
        let mut state = self.state();
        if state.received.len() > 5000 {
            state.received.drain(..2500);
        }
        if line.len() < 1 << 20 {
            state.received.push((method.to_owned(), line.to_owned()));
        }
    }

    fn request(&self, id: &str, method: &str, params: &str) {
        let opening = matches!(method, "initialize" | "ping");
        if self.flags.has("strict_first") && !opening && self.state().opening.is_none() {
            std::process::exit(1);
        }
        self.state().pending.push(id.to_owned());
        if let Some(reply) = self.scripted(method) {
            return self.finish(id, reply);
        }
        let modern = match modern::classify(self, method, params) {
            Err(refusal) => return self.finish(id, refusal),
            Ok(modern) => modern,
        };
        if modern {
            self.state().modern.insert(id.to_owned(), method.to_owned());
            if let Some(reply) = modern::answer(self, id, method, params) {
                return self.finish(id, reply);
            }
        }
        if method == "tools/call" {
            let server = self.clone();
            let call = Call::new(id, params, modern);
            if self.flags.has("single") || !tools::waits(&call.name) {
                server.call(&call);
            } else {
                std::thread::spawn(move || server.call(&call));
            }
        } else if method == "tasks/result" {
            let (server, id, params) = (self.clone(), id.to_owned(), params.to_owned());
            std::thread::spawn(move || server.finish(&id, server.tasks.result(&server, &params)));
        } else {
            self.finish(id, self.answer(method, params));
            if method == "tools/list" && self.flags.has("changed_on_list") {
                self.changed("tools");
            }
        }
    }

    /// What a flag says about this method.
    fn scripted(&self, method: &str) -> Option<Reply> {
        let flags = &self.flags;
        let list = method.ends_with("/list") && method != "tasks/list";
        let slow = flags.number(&format!("slow:{method}")).or(match method {
            "initialize" => flags.number("slowinit"),
            _ if list => flags.number("slowlist"),
            _ => None,
        });
        if let Some(ms) = slow {
            std::thread::sleep(Duration::from_millis(ms));
        }
        let hang = flags.has(&format!("hang:{method}"))
            || (method == "initialize" && flags.has("hanginit"))
            || (list && flags.has("hanglist"));
        if hang {
            return Some(Reply::None);
        }
        let once = format!("error1:{method}");
        if flags.has(&once) && self.state().failed_once.insert(method.to_owned()) {
            return Some(Reply::error(flags.number_or(&once, -32603), "scripted, once"));
        }
        let always = format!("error:{method}");
        if flags.has(&always) {
            return Some(Reply::error(flags.number_or(&always, -32603), "scripted"));
        }
        let lacking = match method.split('/').next().unwrap_or_default() {
            "completion" => !flags.declares("completions"),
            kind @ ("tools" | "prompts" | "resources" | "logging" | "tasks") => !flags.declares(kind),
            _ => false,
        };
        (lacking || (list && flags.has("nolists"))).then(|| Reply::error(-32601, "Method not found"))
    }

    fn answer(&self, method: &str, params: &str) -> Reply {
        let text = |key| crate::catalog::member(params, key);
        match method {
            "initialize" => self.initialize(params),
            "ping" => Reply::Result("{}".into()),
            "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
                let kind = if method.contains("templates") {
                    "resourceTemplates"
                } else {
                    method.split('/').next().unwrap_or_default()
                };
                let mut state = self.state();
                let entries = state.catalog.list(kind).map(std::mem::take).unwrap_or_default();
                let reply = page(&self.flags, kind, &entries, text("cursor").as_deref());
                if let Some(list) = state.catalog.list(kind) {
                    *list = entries;
                }
                reply.map_or_else(|| Reply::error(-32602, "Invalid cursor"), Reply::Result)
            }
            "prompts/get" => self.prompt(params),
            "resources/read" => self.read(&text("uri").unwrap_or_default(), params),
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = text("uri").unwrap_or_default();
                let mut state = self.state();
                if method.ends_with("unsubscribe") {
                    state.subscriptions.remove(&uri);
                } else {
                    state.subscriptions.insert(uri);
                }
                Reply::Result("{}".into())
            }
            "logging/setLevel" => {
                self.state().level = text("level");
                Reply::Result("{}".into())
            }
            "completion/complete" => {
                let escaped = json!(params);
                Reply::Result(format!(
                    r#"{{"completion":{{"values":["alpha","beta",{}],"total":3,"hasMore":false}},"_meta":{{"params":{escaped}}}}}"#,
                    json!(self.label())
                ))
            }
            "tasks/get" | "tasks/list" | "tasks/cancel" | "tasks/update" => self.tasks.answer(self, method, params),
            _ => Reply::error(-32601, "Method not found"),
        }
    }

    fn initialize(&self, params: &str) -> Reply {
        let flags = &self.flags;
        if let Some(code) = flags.exit_code("crashinit") {
            std::process::exit(code);
        }
        if let Some(file) = flags.text("initfail_once")
            && !std::path::Path::new(file).exists()
        {
            append(file, "failed");
            std::process::exit(1);
        }
        self.state().opening = Some(params.to_owned());
        if let Some(line) = flags.text("initreply") {
            let id = self.state().pending.pop().unwrap_or_default();
            self.out.line(&line.replace("ID", &id));
            return Reply::None;
        }
        let asked = crate::catalog::member(params, "protocolVersion").unwrap_or_default();
        let known = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"].contains(&asked.as_str());
        let version = flags.text("ver").unwrap_or(if known { &asked } else { "2025-11-25" });
        let instructions =
            flags.text("instructions").unwrap_or("Use echo first.").to_owned() + &"i".repeat(flags.size("ilen"));
        let extra = flags.text("initextra").map(|members| format!(",{members}")).unwrap_or_default();
        Reply::Result(format!(
            r#"{{"protocolVersion":{},"capabilities":{},"serverInfo":{{"name":{},"version":"1.0"}},"instructions":{}{extra}}}"#,
            json!(version),
            self.capabilities(version),
            json!(self.label()),
            json!(instructions),
        ))
    }

    /// The declared capabilities, as JSON.
    pub(crate) fn capabilities(&self, version: &str) -> String {
        let changed = if self.flags.has("nolistchanged") { "" } else { r#""listChanged":true"# };
        let subscribe = match (self.flags.declares("subscribe"), changed.is_empty()) {
            (true, true) => r#""subscribe":true"#,
            (true, false) => r#","subscribe":true"#,
            _ => "",
        };
        let all = [
            ("tools", format!("{{{changed}}}")),
            ("prompts", format!("{{{changed}}}")),
            ("resources", format!("{{{changed}{subscribe}}}")),
            ("logging", "{}".into()),
            ("completions", "{}".into()),
            ("tasks", r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#.into()),
        ];
        let declared: Vec<String> = all
            .iter()
            .filter(|(kind, _)| self.flags.declares(kind))
            .filter(|(kind, _)| *kind != "tasks" || version == "2025-11-25" || self.flags.has("caps"))
            .map(|(kind, value)| format!(r#""{kind}":{value}"#))
            .collect();
        format!("{{{}}}", declared.join(","))
    }

    fn prompt(&self, params: &str) -> Reply {
        let name = crate::catalog::member(params, "name").unwrap_or_default();
        if !self.state().catalog.has_prompt(&name) {
            return Reply::error(-32602, &format!("Unknown prompt: {name}"));
        }
        let content = if name == "embed" {
            format!(
                r#"{{"type":"resource","resource":{{"uri":"{}:///hello","mimeType":"text/plain","text":"hello"}}}}"#,
                self.flags.text("scheme").unwrap_or("mem")
            )
        } else {
            format!(r#"{{"type":"text","text":{}}}"#, json!(format!("{} {params}", self.label())))
        };
        Reply::Result(format!(
            r#"{{"description":"{name}","messages":[{{"role":"user","content":{content}}}],"_meta":{{"n":1e400}}}}"#
        ))
    }

    fn read(&self, uri: &str, params: &str) -> Reply {
        if !self.state().catalog.has_resource(uri) {
            return Reply::Error(format!(
                r#"{{"code":-32002,"message":"Resource not found","data":{{"uri":{}}}}}"#,
                json!(uri)
            ));
        }
        let body = if uri.ends_with("/blob") {
            r#""mimeType":"application/octet-stream","blob":"AAEC/w==""#.to_owned()
        } else {
            let text = format!("{} {uri}", self.label());
            format!(r#""mimeType":"text/plain","text":{},"_meta":{{"params":{}}}"#, json!(text), json!(params))
        };
        Reply::Result(format!(r#"{{"contents":[{{"uri":{},{body},"x_future":1.0}}]}}"#, json!(uri)))
    }

    fn notification(&self, method: &str, params: &str) {
        match method {
            "notifications/cancelled" => {
                let members: HashMap<String, &RawValue> = serde_json::from_str(params).unwrap_or_default();
                if let Some(id) = members.get("requestId") {
                    let mut state = self.state();
                    state.listens.remove(id.get());
                    state.cancelled.push(id.get().to_owned());
                    drop(state);
                    self.cancelled.notify_all();
                }
            }
            "notifications/initialized" if self.flags.has("rootsoninit") => {
                let server = self.clone();
                std::thread::spawn(move || {
                    let answer = server.ask(None, "roots/list", None);
                    let line = answer.recv().unwrap_or_default();
                    server.record("roots", &line);
                });
            }
            _ => {}
        }
    }

    fn call(&self, call: &Call) {
        let reply = match self.tasks.wanted(self, call) {
            Some(reply) => reply,
            None => tools::run(self, call),
        };
        self.finish(&call.id, reply);
    }

    /// Sends the answer to `id`, if there is one.
    pub(crate) fn finish(&self, id: &str, reply: Reply) {
        let modern = if matches!(reply, Reply::None) { None } else { self.state().modern.remove(id) };
        let reply = match modern {
            Some(method) => modern::dress(self, &method, reply),
            None => reply,
        };
        let member = match reply {
            Reply::Result(result) => format!(r#""result":{result}"#),
            Reply::Error(error) => format!(r#""error":{error}"#),
            Reply::None => return,
        };
        self.state().pending.retain(|pending| pending != id);
        let quoted;
        let id = if self.flags.has("string_ids") && !id.starts_with('"') {
            quoted = format!("\"{id}\"");
            &quoted
        } else {
            id
        };
        self.out.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#));
    }

    /// Sends a notification; `params` are raw.
    pub(crate) fn notify(&self, method: &str, params: Option<&str>) {
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        self.out.line(&format!(r#"{{"jsonrpc":"2.0","method":{}{params}}}"#, json!(method)));
    }

    /// Sends a request of its own, under `id` or the next one; the answer's whole line comes through the channel.
    pub(crate) fn ask(&self, id: Option<String>, method: &str, params: Option<&str>) -> Receiver<String> {
        let (sender, receiver) = channel();
        let id = {
            let mut state = self.state();
            let id = id.unwrap_or_else(|| {
                let n = state.next_id;
                state.next_id += 1;
                if self.flags.text("ids") == Some("string") { format!("\"{n}\"") } else { n.to_string() }
            });
            state.waiting.insert(id.clone(), sender);
            id
        };
        let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}{params}}}"#, json!(method));
        self.record("asks", &line);
        self.out.line(&line);
        receiver
    }

    /// Waits until `id` is cancelled or the time is over; tells which.
    pub(crate) fn cancelled_within(&self, id: &str, limit: Duration) -> bool {
        let state = self.state();
        let (state, _) = self
            .cancelled
            .wait_timeout_while(state, limit, |state| !state.cancelled.iter().any(|other| other == id))
            .expect("no holder of this lock panics");
        state.cancelled.iter().any(|other| other == id)
    }

    pub(crate) fn label(&self) -> &str {
        self.flags.text("label").unwrap_or("fake")
    }
}

// === impl Reply ===

impl Reply {
    pub(crate) fn error(code: i64, message: &str) -> Self {
        Self::Error(json!({"code": code, "message": message}).to_string())
    }

    /// A result of one text block.
    pub(crate) fn text(text: &str) -> Self {
        Self::Result(format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, json!(text)))
    }
}

impl Flags {
    /// Whether this capability is declared.
    fn declares(&self, kind: &str) -> bool {
        !self.has("caps") || self.lists("caps", kind)
    }

    fn number_or(&self, key: &str, default: i64) -> i64 {
        self.text(key).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
}
