//! Revision 2026-07-28: no handshake, all metadata in each request, questions as results.
//!
//! Flags: `modern` serves it next to the handshake, `modern=only` alone; `ttl=MS` of lists (default 0);
//! `noresulttype` leaves `resultType` out; `noack` never acknowledges a subscription; `supported=a,b` names these
//! versions in place of the one. Errors, delays and silence come from the flags of `fake_server.rs`
//! (`error:server/discover=-32602` …).
//!
//! `elicit`, `sample`, `roots` and `five` answer `input_required` first, and the raw `inputResponses` as text when they
//! come back; `rounds` asks n times and checks its `requestState`; `state_only` asks nothing, n times.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::tools::{self, Call};

const VERSION: &str = "2026-07-28";
const KEY: &str = "io.modelcontextprotocol/";
/// Methods that this revision no longer has.
const GONE: [&str; 7] = [
    "initialize",
    "ping",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "tasks/result",
    "tasks/list",
];
/// Methods whose results say how long they may be kept.
const KEPT: [&str; 6] =
    ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"];

/// Looks at a request before the handshake's revisions do: `Ok(true)`, it is of this revision and sound.
pub(crate) fn classify(server: &Server, method: &str, params: &str) -> Result<bool, Reply> {
    if !server.flags.has("modern") {
        return Ok(false);
    }
    let asked = meta(params, "protocolVersion").and_then(|version| version.as_str().map(str::to_owned));
    let Some(asked) = asked else {
        if server.flags.text("modern") != Some("only") {
            return Ok(false);
        }
        return Err(match method {
            "initialize" => unsupported(server, &crate::catalog::member(params, "protocolVersion").unwrap_or_default()),
            _ => Reply::error(-32602, "params._meta lacks the protocol version"),
        });
    };
    if !supported(server).contains(&asked) {
        return Err(unsupported(server, &asked));
    }
    if !meta(params, "clientCapabilities").is_some_and(|caps| caps.is_object()) {
        return Err(Reply::error(-32602, "params._meta lacks the client's capabilities"));
    }
    if GONE.contains(&method) {
        return Err(Reply::error(-32601, "Method not found"));
    }
    Ok(true)
}

/// What only this revision has; `None`: the method is answered as ever.
pub(crate) fn answer(server: &Server, id: &str, method: &str, params: &str) -> Option<Reply> {
    match method {
        "server/discover" => Some(Reply::Result(format!(
            r#"{{"supportedVersions":{},"capabilities":{},"instructions":{}}}"#,
            json!(supported(server)),
            capabilities(server),
            json!(server.flags.text("instructions").unwrap_or("Use echo first.")),
        ))),
        "subscriptions/listen" => {
            let wanted: Value = serde_json::from_str(params).unwrap_or_default();
            let wanted = wanted["notifications"].clone();
            server.state().listens.insert(id.to_owned(), wanted.clone());
            if !server.flags.has("noack") {
                let params = format!(r#"{{"_meta":{},"notifications":{wanted}}}"#, subscription(id));
                server.notify("notifications/subscriptions/acknowledged", Some(&params));
            }
            Some(Reply::None)
        }
        _ => None,
    }
}

/// Puts into a result what this revision demands there.
pub(crate) fn dress(server: &Server, method: &str, reply: Reply) -> Reply {
    let result = match reply {
        Reply::Result(result) => result,
        Reply::Error(error) => return Reply::Error(error.replace(r#""code":-32002,"#, r#""code":-32602,"#)),
        Reply::None => return Reply::None,
    };
    let mut members = Vec::new();
    if !server.flags.has("noresulttype") && !result.contains(r#""resultType""#) {
        members.push(r#""resultType":"complete""#.to_owned());
    }
    if KEPT.contains(&method) {
        members.push(format!(r#""ttlMs":{},"cacheScope":"private""#, server.flags.number("ttl").unwrap_or(0)));
    }
    if !result.contains(r#""_meta""#) {
        members.push(format!(r#""_meta":{{"{KEY}serverInfo":{{"name":{},"version":"1.0"}}}}"#, json!(server.label())));
    }
    let rest = result.strip_prefix('{').unwrap_or(&result).trim_start();
    let comma = if rest.starts_with('}') || members.is_empty() { "" } else { "," };
    Reply::Result(format!("{{{}{comma}{rest}", members.join(",")))
}

/// The tools that ask, in the manner of this revision; `None`: not one of them.
pub(crate) fn ask(call: &Call) -> Option<Reply> {
    let elicit = |n: u64| {
        let question = tools::form(&call.text("message", &format!("question {n}")), None);
        format!(r#""q{n}":{{"method":"elicitation/create","params":{question}}}"#)
    };
    let sample = |n: u64| {
        format!(
            r#""q{n}":{{"method":"sampling/createMessage","params":{{"messages":[{{"role":"user","content":{{"type":"text","text":"hi"}}}}],"maxTokens":10}}}}"#
        )
    };
    let done = call.state.as_deref().and_then(|state| state.strip_prefix("round-")).and_then(|n| n.parse().ok());
    let round: u64 = done.unwrap_or(0);
    let questions = match call.name.as_str() {
        "rounds" | "state_only" if round >= call.number("n", 2) => return Some(answered(call)),
        "rounds" if round > 0 && call.responses.is_none() => {
            return Some(Reply::error(-32602, "the answers of the last round are missing"));
        }
        "rounds" => elicit(round),
        "state_only" => String::new(),
        _ if call.responses.is_some() => return Some(answered(call)),
        "elicit" if call.text("mode", "form") == "url" => {
            r#""q0":{"method":"elicitation/create","params":{"mode":"url","url":"https://idp.example/start","message":"Sign in"}}"#.into()
        }
        "elicit" | "task_elicit" => elicit(0),
        "sample" => sample(0),
        "roots" => r#""q0":{"method":"roots/list"}"#.into(),
        "five" => {
            let all = (0..call.number("n", 5)).map(|n| if n % 2 == 0 { elicit(n) } else { sample(n) });
            all.collect::<Vec<_>>().join(",")
        }
        _ => return None,
    };
    let questions = match questions.as_str() {
        "" => String::new(),
        questions => format!(r#""inputRequests":{{{questions}}},"#),
    };
    Some(Reply::Result(format!(r#"{{"resultType":"input_required",{questions}"requestState":"round-{}"}}"#, round + 1)))
}

/// What came back, raw.
fn answered(call: &Call) -> Reply {
    Reply::text(call.responses.as_deref().unwrap_or("no answers"))
}

/// Ends all subscriptions as a server does that shuts down.
pub(crate) fn end_listens(server: &Server) {
    let ids: Vec<String> = std::mem::take(&mut server.state().listens).into_keys().collect();
    for id in ids {
        server.finish(&id, Reply::Result(format!(r#"{{"resultType":"complete","_meta":{}}}"#, subscription(&id))));
        server.notify("notifications/cancelled", Some(&format!(r#"{{"requestId":{id}}}"#)));
    }
}

/// The `_meta` of a notification that belongs to a subscription.
pub(crate) fn subscription(id: &str) -> String {
    format!(r#"{{"{KEY}subscriptionId":{id}}}"#)
}

fn capabilities(server: &Server) -> String {
    let capabilities = server.capabilities(VERSION);
    if server.flags.has("caps") && !server.flags.lists("caps", "tasks") {
        return capabilities;
    }
    let comma = if capabilities == "{}" { "" } else { "," };
    format!(r#"{{"extensions":{{"{KEY}tasks":{{}}}}{comma}{}"#, &capabilities[1..])
}

fn supported(server: &Server) -> Vec<String> {
    server.flags.text("supported").unwrap_or(VERSION).split(',').map(str::to_owned).collect()
}

fn unsupported(server: &Server, asked: &str) -> Reply {
    let data = json!({"supported": supported(server), "requested": asked});
    Reply::Error(json!({"code": -32022, "message": "Unsupported protocol version", "data": data}).to_string())
}

fn meta(params: &str, key: &str) -> Option<Value> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(params).ok()?;
    let meta: HashMap<String, &RawValue> = serde_json::from_str(members.get("_meta")?.get()).ok()?;
    serde_json::from_str(meta.get(&format!("{KEY}{key}"))?.get()).ok()
}
