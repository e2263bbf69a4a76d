//! The scripted host.

use super::watch::{Mark, What};
use super::world::{World, list_method};

/// The form of a request for a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub what: &'static str,
    /// Arguments: equal ones make the repeat guard look.
    pub argument: usize,
    pub progress: bool,
    /// The id as a string.
    pub text_id: bool,
    /// The id of a request that was answered, if there is one.
    pub reuse: bool,
}

impl Form {
    pub fn plain(what: &'static str, argument: usize) -> Self {
        Self { what, argument, progress: false, text_id: false, reuse: false }
    }
}

const CAPABILITIES: [&str; 3] = [
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#,
    "{}",
    r#"{"roots":{},"elicitation":{"form":{},"url":{}}}"#,
];
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-03-26", "2024-11-05", "2025-06-18"];

/// What a modern host says in each request.
const MODERN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

impl World {
    /// A request with members of its params and of its `_meta`, each without a comma at its end.
    pub fn request_line(&self, id: &str, method: &str, params: &str, meta: &str) -> String {
        let meta = [meta, if self.modern { MODERN } else { "" }].into_iter().filter(|part| !part.is_empty());
        let meta = meta.collect::<Vec<_>>().join(",");
        let meta = if meta.is_empty() { meta } else { format!(r#""_meta":{{{meta}}}"#) };
        let params = [params, &meta].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    }

    /// A request that carries a mark.
    pub fn call_line(&self, id: &str, method: &str, params: &str, mark: Mark, progress: Option<&str>) -> String {
        let progress = progress.map(|token| format!(r#","progressToken":{token}"#)).unwrap_or_default();
        self.request_line(id, method, params, &format!(r#""mark":{mark}{progress}"#))
    }

    pub fn fresh_id(&self, text: bool) -> String {
        let number = self.watch.requests.len() + 100;
        if text { format!("\"{number}\"") } else { number.to_string() }
    }

    pub fn initialize(&mut self, variant: usize) {
        if self.modern {
            // There is no handshake: what it asks first opens all.
            return self.list("prompts");
        }
        let (revision, capabilities) = (REVISIONS[variant % 4], CAPABILITIES[variant / 4 % 3]);
        let id = self.fresh_id(variant % 2 == 1);
        self.batches = revision == "2025-03-26";
        self.watch.asks(What::Initialize, &id, None);
        self.host_says(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{capabilities},"clientInfo":{{"name":"sim","version":"1"}}}}}}"#
        ));
    }

    pub fn list(&mut self, array: &'static str) {
        let id = self.fresh_id(false);
        self.watch.asks(What::List(array), &id, None);
        self.host_says(self.request_line(&id, list_method(array), "", ""));
    }

    /// The line of a request for a child.
    pub fn call(&mut self, key: &str, form: Form) -> String {
        let answered = self.watch.requests.iter().rev().filter(|request| request.delivered && !request.cancelled);
        let old = answered.map(|request| request.id.clone()).find(|id| !self.watch.open.contains_key(id));
        let id = old.filter(|_| form.reuse).unwrap_or_else(|| self.fresh_id(form.text_id));
        let progress = form.progress.then(|| format!("\"t{}\"", self.watch.requests.len()));
        let recorded = matches!(form.what, "call" | "idem");
        let mark = self.watch.asks(What::Call { key: key.to_owned(), recorded }, &id, progress.clone());
        self.watch.stats.add("calls");
        let (method, params) = match form.what {
            "prompt" => ("prompts/get", format!(r#""name":"{key}__p1""#)),
            "read" => ("resources/read", format!(r#""uri":"{key}+mem:v1""#)),
            "complete" => (
                "completion/complete",
                format!(
                    r#""ref":{{"type":"ref/prompt","name":"{key}__p1"}},"argument":{{"name":"x","value":""}},"context":{{"arguments":{{}}}}"#
                ),
            ),
            tool => ("tools/call", format!(r#""name":"{key}__{tool}","arguments":{{"n":{}}}"#, form.argument)),
        };
        self.watch.requests[mark].sent = (method, params.clone());
        self.call_line(&id, method, &params, mark, progress.as_deref())
    }

    /// Something that the proxy answers itself.
    pub fn own(&mut self, variant: usize) {
        let id = self.fresh_id(false);
        let (method, params) = [
            ("ping", ""),
            ("resources/read", r#""uri":"mcp-proxy://unknown""#),
            ("logging/setLevel", r#""level":"debug""#),
            ("no/such", ""),
            ("tools/call", r#""name":"zzz__call""#),
            ("tasks/list", ""),
            ("server/discover", ""),
            ("resources/read", r#""uri":"mcp-proxy://status""#),
        ][variant];
        self.watch.asks(What::Own, &id, None);
        self.host_says(self.request_line(&id, method, params, ""));
    }

    pub fn junk(&mut self, variant: usize) {
        self.watch.stats.add("junk");
        self.host_says(
            match variant {
                0 => "garbage",
                1 => "[]",
                2 => r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                3 => r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#,
                4 => r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}"#,
                _ => r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
            }
            .to_owned(),
        );
    }

    pub fn answer_question(&mut self, our: u64, variant: usize) {
        self.questions.retain(|other| *other != our);
        let Some(asked) = self.watch.at_host.remove(&our) else { return };
        let id = if variant == 1 { format!("\"{our}\"") } else { our.to_string() };
        let outcome = match (asked, variant) {
            (None, 0) => r#""result":{"action":"accept","content":{"runAgain":true}}"#.to_owned(),
            (None, 1) => r#""result":{"action":"decline"}"#.to_owned(),
            (_, 0 | 1) => format!(r#""result":{{"our":{our}}}"#),
            (_, 2) => r#""error":{"code":-1,"message":"no"}"#.to_owned(),
            _ => r#""result":{},"error":{"code":-1,"message":"both"}"#.to_owned(),
        };
        self.host_says(format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#));
    }
}
