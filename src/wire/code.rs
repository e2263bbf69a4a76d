//! The errors that we send (`DESIGN.md` chapter 6, `PROTOCOL.md` 1.6).

use serde_json::{Map, Value, json};

/// Not JSON.
pub const PARSE: i64 = -32700;
/// A bad envelope.
pub const INVALID_REQUEST: i64 = -32600;
/// An unknown method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Bad parameters: an unknown tool, prompt, cursor, level.
pub const INVALID_PARAMS: i64 = -32602;
/// Something unexpected.
pub const INTERNAL: i64 = -32603;
/// An unknown resource, to a legacy host.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Modern: the request needs a capability that it does not declare.
pub const MISSING_CAPABILITY: i64 = -32021;
/// Modern: the request's revision is not served.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// Sent, and no response will come.
pub const UNKNOWN_OUTCOME: i64 = -31010;
/// Not sent: safe to send again.
pub const UNAVAILABLE: i64 = -31011;
/// A policy or a person said no.
pub const REFUSED: i64 = -31012;

/// An error of ours: a code, one plain sentence, and data that says where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RpcError {
    /// The number.
    pub code: i64,
    /// One English sentence that a model can act on.
    pub message: String,
    /// Members of `data` beside `source`, as JSON text in their order.
    data: Vec<(&'static str, String)>,
}

impl RpcError {
    /// An error without further data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Vec::new() }
    }

    /// Adds a member to `data`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.data.push((name, value.into().to_string()));
        self
    }

    /// Adds a member to `data` if there is something to say.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The `error` member.
    pub fn to_value(&self) -> Value {
        let mut data = Map::new();
        data.insert("source".into(), "mcp-proxy".into());
        for (name, value) in &self.data {
            data.insert((*name).into(), serde_json::from_str(value).unwrap_or_default());
        }
        json!({ "code": self.code, "message": self.message, "data": data })
    }

    /// The whole response to the request of that id token.
    pub fn response(&self, id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, self.to_value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_it_came_from() {
        let error =
            RpcError::new(UNAVAILABLE, "Server \"a\" is down.").with("server", "a").with_some("retryAfterMs", Some(5));
        assert_eq!(
            error.response("\"x\""),
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-31011,"message":"Server \"a\" is down.","data":{"source":"mcp-proxy","server":"a","retryAfterMs":5}}}"#
        );
    }
}
