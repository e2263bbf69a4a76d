//! URL elicitation as an error, -32042, which is of 2025-11-25 alone (`PROTOCOL.md` 5.12).

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::Hub;
use super::from_host::Request;
use crate::engine::child::{Conn, ServerId};
use crate::engine::link::{Answers, Call};
use crate::engine::seal::{Kind, State};
use crate::wire::code::{self, RpcError};
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::{Method, Revision};

/// The error that asks for a visit of a URL.
const URL_REQUIRED: &[u8] = b"-32042";
/// How long a person may take.
const URLS_FOR: u64 = 15 * 60 * 1000;
/// How long word of the child that all is done is awaited before the call goes out anew.
const DONE_WAIT: Duration = Duration::from_secs(30);
/// Such words that are remembered.
const DONE_MAX: usize = 256;

impl Hub {
    /// A child wants a URL to be visited first. `true`: the host was answered in a form that it knows.
    pub(super) fn urls_required(&mut self, now: Instant, conn: Conn, call: &Call, line: &Bytes) -> bool {
        let error = text::get(line, 0..line.len(), "error").unwrap_or_default();
        if text::get(line, error.clone(), "code").is_none_or(|at| &line[at] != URL_REQUIRED) {
            return false;
        }
        let error: Value = serde_json::from_slice(&line[error]).unwrap_or_default();
        let urls: Vec<Value> =
            error.pointer("/data/elicitations").and_then(Value::as_array).cloned().unwrap_or_default();
        match &call.modern {
            Some(sender)
                if sender.capabilities.elicitation_url && !urls.is_empty() && super::asks::may_ask(call.method) =>
            {
                self.ask_for_urls(now, conn.server, call, &urls);
            }
            None if self.session.revision >= Revision::V2025_11_25 => return false,
            _ => self.tell_of_urls(conn.server, call, &error, &urls),
        }
        true
    }

    /// `input_required` with a URL for each; the host carries all that is to be known later.
    fn ask_for_urls(&mut self, now: Instant, server: ServerId, call: &Call, urls: &[Value]) {
        let Some(digest) = self.digest_of(call) else { return };
        let key = self.child(server).config.key.clone();
        let mut requests = serde_json::Map::new();
        let mut ids = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            let member = |name: &str| url.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let params =
                json!({ "mode": "url", "url": member("url"), "message": format!("[{key}] {}", member("message")) });
            requests.insert(format!("u{}", index + 1), json!({ "method": "elicitation/create", "params": params }));
            ids.push(member("elicitationId"));
        }
        let expires = self.unix(now).0 + URLS_FOR;
        let id = self.own_question(now, expires);
        let state = self.seal(&State { kind: Kind::Urls { id, ids }, server: key, digest, expires });
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{},"requestState":"{state}","_meta":{{"{}":{}}}}}"#,
            Value::from(requests),
            meta::SERVER,
            self.server_info()
        );
        self.answer_as_is(&call.host_id, &result);
    }

    /// A host that knows no such error reads it as the result of the tool, or as a plain error.
    fn tell_of_urls(&mut self, server: ServerId, call: &Call, error: &Value, urls: &[Value]) {
        let mut message =
            error.get("message").and_then(Value::as_str).unwrap_or("a URL must be visited first").to_owned();
        for url in urls {
            let member = |name: &str| url.get(name).and_then(Value::as_str).unwrap_or_default();
            message.push_str(&format!("\n{}: {}", member("message"), member("url")));
        }
        if call.method == Method::ToolsCall {
            let result = json!({ "content": [{ "type": "text", "text": message }], "isError": true });
            return self.answer(&call.host_id, &result.to_string());
        }
        self.answer_error_from(&call.host_id, Some(server), &RpcError::new(code::INTERNAL, message));
    }

    /// The host comes back from the URLs: the call goes out as a new one, which is the repeat that the protocol means.
    pub(super) fn urls_answered(
        &mut self,
        now: Instant,
        method: Method,
        mut request: Request,
        server: &str,
        asked: u64,
        ids: Vec<String>,
    ) {
        let whole = request.params.whole.clone().unwrap_or_default();
        let responses = text::get(&request.frame, whole, "inputResponses");
        let response = |key: String| responses.clone().and_then(|at| text::get(&request.frame, at, &key));
        let answers: Vec<_> = (1..=ids.len()).map(|number| response(format!("u{number}"))).collect();
        let action = |at: &std::ops::Range<usize>| {
            text::get(&request.frame, at.clone(), "action").and_then(|at| text::string(&request.frame, at))
        };
        if answers.iter().flatten().any(|at| action(at).is_none()) {
            let error = RpcError::new(code::INVALID_PARAMS, "Each of inputResponses must be an object with an action.")
                .with("detail", "inputResponses");
            return self.answer_error(&request.id, &error);
        }
        if !self.takes_answer(asked, &request.id) {
            return;
        }
        if answers.iter().flatten().any(|at| action(at).as_deref() != Some("accept")) {
            let message =
                format!("The call was not sent: the person did not visit what server \"{server}\" asked for.");
            let error =
                RpcError::new(code::REFUSED, message).with("server", server).with("reason", "input_not_provided");
            return self.answer_error(&request.id, &error);
        }
        // Where one is missing, the child says again what it wants.
        let open = if answers.iter().all(Option::is_some) { ids } else { Vec::new() };
        let open = open.into_iter().filter(|id| !self.urls_done.iter().any(|(key, done)| key == server && done == id));
        request.answers = Some(Box::new(Answers { urls: open.collect(), ..Answers::default() }));
        self.dispatch(now, Some(method), b"", request);
    }

    /// A call waits, for a while, for its child's word that the visit is over.
    pub(super) fn hold_for_urls(&mut self, now: Instant, server: ServerId, mut call: Box<Call>) {
        let urls = call.answers.as_mut().map(|answers| std::mem::take(&mut answers.urls)).unwrap_or_default();
        self.hold(server, call, urls, now + DONE_WAIT);
    }

    /// A child says that a visit is over.
    pub(super) fn url_is_done(&mut self, now: Instant, server: ServerId, id: &str) {
        let key = self.child(server).config.key.clone();
        self.urls_done.push_back((key, id.to_owned()));
        if self.urls_done.len() > DONE_MAX {
            self.urls_done.pop_front();
        }
        self.held_url_done(now, server, id);
    }
}
