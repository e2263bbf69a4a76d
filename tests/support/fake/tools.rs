//! What the tools do; `own.rs` lists them with their arguments.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::RawValue;

use crate::catalog::Catalog;
use crate::flags::append;
use crate::server::{Reply, Server};
use crate::{modern, out, process};

/// Whether the tool may take time, or needs the reading thread to go on.
pub(crate) fn waits(name: &str) -> bool {
    matches!(
        name,
        "sleep"
            | "late"
            | "burn"
            | "hang"
            | "progress"
            | "exit"
            | "flood_stdout"
            | "flood_stderr"
            | "notify"
            | "log"
            | "elicit"
            | "sample"
            | "roots"
            | "ping_host"
            | "ask"
            | "five"
            | "storm"
            | "half_reply"
    ) || name.starts_with("ledger")
        || name.starts_with("task_")
}

/// One `tools/call`. All texts are raw JSON but the name.
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) params: String,
    pub(crate) arguments: String,
    pub(crate) meta: Option<String>,
    pub(crate) task: Option<String>,
    /// Whether it came as 2026-07-28 has it.
    pub(crate) modern: bool,
    /// `inputResponses`, raw, and `requestState` of a repeated call.
    pub(crate) responses: Option<String>,
    pub(crate) state: Option<String>,
    token: Option<String>,
    members: HashMap<String, Box<RawValue>>,
}

// === impl Call ===

impl Call {
    pub(crate) fn new(id: &str, params: &str, modern: bool) -> Self {
        let all: HashMap<String, Box<RawValue>> = serde_json::from_str(params).unwrap_or_default();
        let raw = |key: &str| all.get(key).map(|value| value.get().to_owned());
        let meta = raw("_meta");
        let in_meta: HashMap<String, Box<RawValue>> =
            meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok()).unwrap_or_default();
        let arguments = raw("arguments").unwrap_or_else(|| "{}".into());
        Self {
            id: id.to_owned(),
            name: raw("name").and_then(|name| serde_json::from_str(&name).ok()).unwrap_or_default(),
            params: params.to_owned(),
            members: serde_json::from_str(&arguments).unwrap_or_default(),
            arguments,
            token: in_meta.get("progressToken").map(|token| token.get().to_owned()),
            meta,
            modern,
            responses: raw("inputResponses"),
            state: raw("requestState").and_then(|state| serde_json::from_str(&state).ok()),
            task: raw("task"),
        }
    }

    /// Whether the request declares the tasks extension of 2026-07-28.
    pub(crate) fn tasks_declared(&self) -> bool {
        let key = "io.modelcontextprotocol/clientCapabilities";
        let meta: serde_json::Value =
            self.meta.as_deref().and_then(|meta| serde_json::from_str(meta).ok()).unwrap_or_default();
        meta[key]["extensions"]["io.modelcontextprotocol/tasks"].is_object()
    }

    /// An argument, raw.
    fn raw(&self, key: &str) -> Option<String> {
        self.members.get(key).map(|value| value.get().to_owned())
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.members.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    pub(crate) fn text(&self, key: &str, default: &str) -> String {
        self.get(key).unwrap_or_else(|| default.to_owned())
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> u64 {
        self.get(key).unwrap_or(default)
    }

    pub(crate) fn ms(&self, key: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(key, default))
    }

    fn size(&self, key: &str, default: u64) -> usize {
        usize::try_from(self.number(key, default)).unwrap_or(usize::MAX)
    }

    pub(crate) fn is(&self, key: &str) -> bool {
        self.get(key).unwrap_or(false)
    }
}

/// Runs one call to its answer.
pub(crate) fn run(server: &Server, call: &Call) -> Reply {
    if !server.state().catalog.has_tool(&call.name) {
        return Reply::error(-32602, &format!("Unknown tool: {}", call.name));
    }
    let crash = call.get::<String>("crash").filter(|_| call.name.starts_with("ledger"));
    if crash.as_deref() == Some("before_run") {
        std::process::exit(3);
    }
    if let Some(file) = server.flags.text("ledger") {
        let (name, arguments) = (json!(call.name), &call.arguments);
        let (pid, generation) = (std::process::id(), server.flags.generation);
        append(file, &format!(r#"{{"tool":{name},"arguments":{arguments},"pid":{pid},"gen":{generation}}}"#));
    }
    match call.name.as_str() {
        name if name.starts_with("ledger") => ledger(server, call, crash.as_deref()),
        name if name.starts_with("task_") => crate::tasks::body(server, call),
        "echo" | "write" => Reply::Result(format!(
            r#"{{"content":[{{"type":"text","text":{}}},{{"type":"text","text":{}}}]}}"#,
            json!(call.arguments),
            json!(call.params)
        )),
        "echo_meta" => Reply::text(call.meta.as_deref().unwrap_or_default()),
        "structured" => Reply::Result(format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{},"_meta":{{"arguments":{}}}}}"#,
            json!(call.arguments),
            call.arguments,
            call.arguments
        )),
        "received" | "pending" | "cancelled" | "whoami" | "opening" | "level" | "subscriptions" => told(server, call),
        "big" | "content" | "raw_result" | "is_error" | "reply_error" | "url_required" => result(call),
        "oversize" | "invalid_reply" | "double_reply" | "string_id" | "wrong_id" | "raw_line" | "notify_then_reply"
        | "noise" => wire(server, call),
        "sleep" | "late" | "block" | "burn" | "hang" | "progress" => time(server, call),
        "exit" | "kill" | "die_before_reply" | "reply_then_die" | "half_reply" | "close_stdout" | "close_stdin"
        | "stop_reading" | "spawn_grandchild" => end(server, call),
        "flood_stdout" | "flood_stderr" | "log" | "notify" => flood(server, call),
        "elicit" | "sample" | "roots" | "ping_host" | "ask" | "five" | "rounds" | "state_only" => ask(server, call),
        "change_tools" | "storm" | "reload" | "updated" | "end_listens" => change(server, call),
        name => Reply::text(&format!("{} {name} {}", server.label(), call.arguments)),
    }
}

/// What the fake knows about itself.
fn told(server: &Server, call: &Call) -> Reply {
    let state = server.state();
    let text = match call.name.as_str() {
        "received" => {
            let wanted: Option<String> = call.get("method");
            let lines =
                state.received.iter().filter(|(method, _)| wanted.as_ref().is_none_or(|wanted| wanted == method));
            json!(lines.map(|(_, line)| line).collect::<Vec<_>>()).to_string()
        }
        "pending" => {
            let others: Vec<&str> = state.pending.iter().filter(|id| **id != call.id).map(String::as_str).collect();
            format!("[{}]", others.join(","))
        }
        "cancelled" => format!("[{}]", state.cancelled.join(",")),
        "whoami" => format!(
            r#"{{"label":{},"gen":{},"process":{}}}"#,
            json!(server.label()),
            server.flags.generation,
            process::about()
        ),
        "opening" => state.opening.clone().unwrap_or_default(),
        "level" => json!(state.level).to_string(),
        _ => json!(state.subscriptions).to_string(),
    };
    drop(state);
    Reply::text(&text)
}

/// Results and errors that are right.
fn result(call: &Call) -> Reply {
    match call.name.as_str() {
        "big" => Reply::text(&call.text("char", "b").repeat(call.size("bytes", 65536))),
        "content" => Reply::Result(CONTENT.to_owned()),
        "raw_result" => Reply::Result(call.raw("result").unwrap_or_else(|| "{}".into())),
        "is_error" => Reply::Result(format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#,
            json!(call.text("text", "it failed"))
        )),
        "url_required" => Reply::Error(
            r#"{"code":-32042,"message":"sign in first","data":{"elicitations":[{"mode":"url","elicitationId":"e-1","url":"https://idp.example/start","message":"Connect your drive"}]}}"#.into(),
        ),
        _ => {
            let code = call.raw("code").unwrap_or_else(|| "-32000".into());
            let data = call.raw("data").map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
            Reply::Error(format!(r#"{{"code":{code},"message":{}{data}}}"#, json!(call.text("message", "scripted"))))
        }
    }
}

/// Answers that are wrong on the wire.
fn wire(server: &Server, call: &Call) -> Reply {
    let id = &call.id;
    server.state().pending.retain(|pending| pending != id);
    let ok = r#""result":{"content":[{"type":"text","text":"ok"}]}"#;
    let send = |line: &str| server.out.line(line);
    match call.name.as_str() {
        "oversize" => {
            let text = "o".repeat(call.size("bytes", 65 << 20));
            send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
            ));
            Reply::None
        }
        "invalid_reply" => {
            send(&match call.text("kind", "both").as_str() {
                "neither" => format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#),
                "number" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":7}}"#),
                "errorstring" => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"no"}}"#),
                "nojsonrpc" => format!(r#"{{"id":{id},{ok}}}"#),
                "noversion" => format!(r#"{{"jsonrpc":"1.0","id":{id},{ok}}}"#),
                "idarray" => format!(r#"{{"jsonrpc":"2.0","id":[{id}],{ok}}}"#),
                "cut" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":["#),
                _ => format!(r#"{{"jsonrpc":"2.0","id":{id},{ok},"error":{{"code":-1,"message":"both"}}}}"#),
            });
            Reply::None
        }
        "double_reply" => {
            send(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"first"}}]}}}}"#
            ));
            Reply::text("second")
        }
        "string_id" => {
            send(&format!(r#"{{"jsonrpc":"2.0","id":"{id}",{ok}}}"#));
            Reply::None
        }
        "wrong_id" => {
            let wrong = call.raw("id").unwrap_or_else(|| "987654321".into());
            send(&format!(
                r#"{{"jsonrpc":"2.0","id":{wrong},"result":{{"content":[{{"type":"text","text":"wrong"}}]}}}}"#
            ));
            if call.is("only") { Reply::None } else { Reply::text("right") }
        }
        "raw_line" => {
            send(&call.text("line", "").replace("ID", id));
            if call.is("noreply") { Reply::None } else { Reply::text("ok") }
        }
        "notify_then_reply" => {
            let one = notification(call);
            let mut lines = String::new();
            for _ in 0..call.number("n", 1) {
                let _ = writeln!(lines, "{one}");
            }
            send(&format!(r#"{lines}{{"jsonrpc":"2.0","id":{id},{ok}}}"#));
            Reply::None
        }
        _ => {
            let noise = out::noise(&call.text("kind", "text"));
            for _ in 0..call.number("n", 1) {
                server.out.raw(&noise);
            }
            Reply::text("after noise")
        }
    }
}

/// Calls that take time.
fn time(server: &Server, call: &Call) -> Reply {
    let ms = call.ms("ms", 0);
    match call.name.as_str() {
        "sleep" => {
            let steps = call.number("steps", 0);
            let parts = u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
            for step in 1..=parts {
                if server.cancelled_within(&call.id, ms / parts) {
                    return Reply::None;
                }
                if steps > 0 {
                    progress(server, call, u64::from(step), steps, "sleeping");
                }
            }
            Reply::text("slept")
        }
        "late" => {
            server.cancelled_within(&call.id, Duration::from_mins(10));
            std::thread::sleep(ms);
            Reply::text("late")
        }
        "block" => {
            std::thread::sleep(ms);
            Reply::text("blocked")
        }
        "burn" => {
            process::burn(call.number("ms", 0));
            Reply::text("burnt")
        }
        "progress" => {
            let n = call.number("n", 5);
            let text = "p".repeat(call.size("bytes", 1));
            for step in 1..=n {
                progress(server, call, step, n, &text);
                std::thread::sleep(ms);
            }
            if call.is("after") {
                server.finish(&call.id, Reply::text("done"));
                progress(server, call, n + 1, n + 1, "after");
                return Reply::None;
            }
            Reply::text("done")
        }
        _ => Reply::None,
    }
}

fn progress(server: &Server, call: &Call, step: u64, total: u64, message: &str) {
    if let Some(token) = &call.token {
        let params =
            format!(r#"{{"progressToken":{token},"progress":{step},"total":{total},"message":{}}}"#, json!(message));
        server.notify("notifications/progress", Some(&params));
    }
}

/// The ways to go.
fn end(server: &Server, call: &Call) -> Reply {
    let code = call.get("code").unwrap_or(3);
    match call.name.as_str() {
        "exit" => {
            std::thread::sleep(call.ms("ms", 0));
            std::process::exit(call.get("code").unwrap_or(0))
        }
        "kill" => process::kill_self(),
        "die_before_reply" => std::process::exit(code),
        "reply_then_die" => {
            server.finish(&call.id, Reply::text("last words"));
            std::process::exit(code)
        }
        "half_reply" => {
            let half = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"te"#, call.id);
            server.out.raw(half.as_bytes());
            match call.text("then", "exit").as_str() {
                "hang" => {}
                "newline" => server.out.raw(b"\n"),
                _ => std::process::exit(code),
            }
            Reply::None
        }
        "close_stdout" => {
            process::close_stdout();
            Reply::None
        }
        "close_stdin" => {
            // First, for a call after the answer would still find the pipe open, and be lost in it.
            process::close_stdin();
            server.finish(&call.id, Reply::text("closed"));
            process::forever()
        }
        "stop_reading" => {
            server.finish(&call.id, Reply::text("deaf from now on"));
            process::forever()
        }
        _ => {
            let pid = process::spawn_grandchild(server, call.is("ignore_term"), call.is("session"), call.is("hold"));
            Reply::text(&pid.to_string())
        }
    }
}

/// A notification as the arguments `method` and `params` say.
fn notification(call: &Call) -> String {
    let method = call.text("method", "notifications/message");
    let params = call.raw("params").unwrap_or_else(|| r#"{"level":"info","data":"note"}"#.into());
    format!(r#"{{"jsonrpc":"2.0","method":{},"params":{params}}}"#, json!(method))
}

/// Much output.
fn flood(server: &Server, call: &Call) -> Reply {
    let n = call.number("n", 1);
    match call.name.as_str() {
        "flood_stdout" => {
            let data = "f".repeat(call.size("bytes", 1024));
            let params = format!(r#"{{"level":"info","data":"{data}"}}"#);
            for _ in 0..call.number("n", 1000) {
                server.notify(&call.text("method", "notifications/message"), Some(&params));
            }
        }
        "flood_stderr" => process::flood_stderr(call.number("bytes", 1 << 20), call.number("line", 0)),
        "log" => {
            let logger = call.raw("logger").map(|name| format!(r#","logger":{name}"#)).unwrap_or_default();
            let data = call.raw("data").unwrap_or_else(|| "\"a message\"".into());
            let params = format!(r#"{{"level":{},"data":{data}{logger}}}"#, json!(call.text("level", "error")));
            for _ in 0..n {
                server.notify("notifications/message", Some(&params));
            }
        }
        _ => {
            let line = notification(call);
            for _ in 0..n {
                server.out.line(&line);
                std::thread::sleep(call.ms("ms", 0));
            }
        }
    }
    Reply::text("done")
}

/// Requests to the host.
fn ask(server: &Server, call: &Call) -> Reply {
    if call.modern {
        return modern::ask(call).unwrap_or_else(|| Reply::error(-32603, "not in this revision"));
    }
    if matches!(call.name.as_str(), "rounds" | "state_only") {
        return Reply::error(-32603, "only in 2026-07-28");
    }
    let message = call.text("message", "Your name?");
    let sampling = format!(
        r#"{{"messages":[{{"role":"user","content":{{"type":"text","text":{}}}}}],"maxTokens":10,"x_future":1.0}}"#,
        json!(call.text("text", "hi"))
    );
    let id = call.raw("id");
    let answer = match call.name.as_str() {
        "elicit" if call.text("mode", "form") == "url" => {
            let url = call.text("url", "https://idp.example/start");
            let params = json!({"mode": "url", "elicitationId": "e-1", "url": url, "message": message});
            server.ask(id, "elicitation/create", Some(&params.to_string()))
        }
        "elicit" => server.ask(id, "elicitation/create", Some(&form(&message, call.raw("schema").as_deref()))),
        "sample" => server.ask(id, "sampling/createMessage", Some(&sampling)),
        "roots" => server.ask(id, "roots/list", None),
        "ping_host" => server.ask(id, "ping", None),
        "five" => {
            let questions: Vec<_> = (0..call.number("n", 5))
                .map(|n| match n % 2 {
                    0 => server.ask(None, "elicitation/create", Some(&form(&format!("question {n}"), None))),
                    _ => server.ask(None, "sampling/createMessage", Some(&sampling)),
                })
                .collect();
            let answers: Vec<String> = questions.iter().map(|answer| answer.recv().unwrap_or_default()).collect();
            return Reply::text(&format!("[{}]", answers.join(",")));
        }
        _ => {
            let method = call.text("method", "ping");
            let mine = id.unwrap_or_else(|| "0".into());
            let answer = server.ask(Some(mine.clone()), &method, call.raw("params").as_deref());
            if let Some(ms) = call.get("cancel_after_ms") {
                std::thread::sleep(Duration::from_millis(ms));
                let params = format!(r#"{{"requestId":{mine},"reason":"no longer needed"}}"#);
                server.notify("notifications/cancelled", Some(&params));
            }
            answer
        }
    };
    let line = answer.recv_timeout(call.ms("timeout_ms", 60_000));
    if call.is("complete") {
        server.notify("notifications/elicitation/complete", Some(r#"{"elicitationId":"e-1"}"#));
    }
    line.map_or_else(|_| Reply::text("no answer"), |line| Reply::text(&line))
}

/// The params of an elicitation by form.
pub(crate) fn form(message: &str, schema: Option<&str>) -> String {
    let schema = schema.unwrap_or(r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#);
    format!(r#"{{"message":{},"requestedSchema":{schema}}}"#, json!(message))
}

/// Changes of the catalog and their announcements.
fn change(server: &Server, call: &Call) -> Reply {
    let kind = call.text("kind", "tools");
    match call.name.as_str() {
        "change_tools" => {
            edit(server, call, &kind);
            if !call.is("silent") {
                server.changed(&kind);
            }
        }
        "storm" => {
            let n = call.number("n", 200);
            for i in 1..=n {
                if i == n {
                    edit(server, call, &kind);
                }
                server.changed(&kind);
                std::thread::sleep(call.ms("ms", 0));
            }
        }
        "end_listens" => modern::end_listens(server),
        "reload" => {
            let catalog = Catalog::new(&server.flags);
            server.state().catalog = catalog;
            for kind in ["tools", "prompts", "resources"] {
                server.changed(kind);
            }
        }
        _ => {
            for _ in 0..call.number("n", 1) {
                server.updated(&call.text("uri", "mem:///hello"));
            }
        }
    }
    Reply::text("changed")
}

/// Removes and adds entries by their names (URIs for resources).
fn edit(server: &Server, call: &Call, kind: &str) {
    let key = if kind == "resources" { "uri" } else { "name" };
    let mut state = server.state();
    let Some(list) = state.catalog.list(kind) else { return };
    if let Some(name) = call.get::<String>("remove") {
        list.retain(|entry| crate::catalog::member(entry, key).as_ref() != Some(&name));
    }
    if let Some(name) = call.get::<String>("add") {
        let name = json!(name);
        list.push(match kind {
            "resources" => format!(r#"{{"uri":{name},"name":{name}}}"#),
            "prompts" => format!(r#"{{"name":{name}}}"#),
            _ => format!(r#"{{"name":{name},"inputSchema":{{"type":"object"}}}}"#),
        });
    }
}

/// An effect that was written down before this; what goes wrong around the answer.
fn ledger(server: &Server, call: &Call, crash: Option<&str>) -> Reply {
    std::thread::sleep(call.ms("ms", 0));
    match crash {
        Some("after_run") => std::process::exit(3),
        Some("half_reply") => {
            server.out.raw(format!(r#"{{"jsonrpc":"2.0","id":{},"resu"#, call.id).as_bytes());
            std::process::exit(3)
        }
        Some("after_reply") => {
            server.finish(&call.id, Reply::text("written"));
            std::process::exit(3)
        }
        _ if call.is("error") => Reply::error(-32602, "bad arguments"),
        _ => Reply::text("written"),
    }
}

const CONTENT: &str = concat!(
    r#"{"content":[{"type":"text","text":"t","annotations":{"priority":0.10}},"#,
    r#"{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png","_meta":{"x":1}},"#,
    r#"{"type":"audio","data":"AAAA","mimeType":"audio/wav"},"#,
    r#"{"type":"resource_link","uri":"mem:///hello","name":"hello","x_future":[null]},"#,
    r#"{"type":"resource","resource":{"uri":"mem:///item/1","mimeType":"text/plain","text":"embedded","_meta":{"y":2}}},"#,
    r#"{"type":"resource","resource":{"uri":"mem:///blob","blob":"AAEC/w=="}},"#,
    r#"{"type":"hologram","depth":3.0}],"#,
    r#""structuredContent":{"n":9007199254740993,"big":1e400,"zero":-0,"null":null},"isError":false,"#,
    r#""_meta":{"x/z":18446744073709551616},"x_future":{"a":[1.0]}}"#,
);
