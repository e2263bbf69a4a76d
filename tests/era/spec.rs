//! Every message that leaves us against the schema of the revision in use, where `MCP_SPEC_DIR` says where they are.

use std::collections::HashMap;
use std::path::PathBuf;

use jsonschema::Validator;
use serde_json::{Value, json};

/// The schema of one revision.
pub(crate) struct Spec {
    whole: Value,
    place: &'static str,
    validators: HashMap<String, Validator>,
}

impl Spec {
    /// Of that revision; `None`, and a word on stderr, where there are none.
    #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
    pub(crate) fn of(revision: &str) -> Option<Self> {
        let Some(dir) = std::env::var_os("MCP_SPEC_DIR") else {
            eprintln!("skipped: MCP_SPEC_DIR is not set, so messages are not held against the schemas");
            return None;
        };
        let path = PathBuf::from(dir).join(revision).join("schema.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let whole: Value = serde_json::from_str(&text).unwrap();
        let place = if whole.get("$defs").is_some() { "$defs" } else { "definitions" };
        Some(Self { whole, place, validators: HashMap::new() })
    }

    /// A request or a notification.
    pub(crate) fn message(&mut self, message: &Value) -> Result<(), String> {
        let method = &message["method"];
        let definitions = self.whole[self.place].as_object().unwrap();
        let named = |(name, of): (&String, &Value)| {
            (of.pointer("/properties/method/const") == Some(method)).then(|| name.clone())
        };
        let Some(name) = definitions.iter().find_map(named) else {
            return Err(format!("no such method in this revision: {message}"));
        };
        self.against(&name, message)
    }

    /// The result of a request of that method.
    pub(crate) fn result(&mut self, method: &str, result: &Value) -> Result<(), String> {
        let name = match method {
            _ if result["resultType"] == "input_required" => "InputRequiredResult",
            "tools/call" if result["task"].is_object() => "CreateTaskResult",
            "tasks/get" => "GetTaskResult",
            "tasks/result" => "GetTaskPayloadResult",
            "tasks/list" => "ListTasksResult",
            "tasks/cancel" => "CancelTaskResult",
            "initialize" => "InitializeResult",
            "server/discover" => "DiscoverResult",
            "tools/list" => "ListToolsResult",
            "tools/call" => "CallToolResult",
            "prompts/list" => "ListPromptsResult",
            "prompts/get" => "GetPromptResult",
            "resources/list" => "ListResourcesResult",
            "resources/templates/list" => "ListResourceTemplatesResult",
            "resources/read" => "ReadResourceResult",
            "completion/complete" => "CompleteResult",
            "roots/list" => "ListRootsResult",
            "sampling/createMessage" => "CreateMessageResult",
            "elicitation/create" => "ElicitResult",
            "ping" => "EmptyResult",
            _ => "Result",
        };
        // A server may ask for what its revision does not have; that has no form there.
        let known = self.whole[self.place].get(name).is_some();
        self.against(if known { name } else { "Result" }, result)
    }

    /// An error response.
    pub(crate) fn error(&mut self, message: &Value) -> Result<(), String> {
        let new = self.whole[self.place].get("JSONRPCErrorResponse").is_some();
        self.against(if new { "JSONRPCErrorResponse" } else { "JSONRPCError" }, message)
    }

    fn against(&mut self, name: &str, value: &Value) -> Result<(), String> {
        if !self.validators.contains_key(name) {
            let place = self.place;
            let schema = json!({
                "$schema": self.whole["$schema"],
                "$ref": format!("#/{place}/{name}"),
                place: self.whole[place],
            });
            let validator = jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            self.validators.insert(name.to_owned(), validator);
        }
        match self.validators[name].iter_errors(value).next() {
            Some(error) => Err(format!("no {name}: {error} at {}: {value}", error.instance_path())),
            None => Ok(()),
        }
    }
}

/// Everything that a host was told.
pub(crate) fn check_told(revision: &str, requests: &HashMap<String, String>, received: &[Value]) {
    let Some(mut spec) = Spec::of(revision) else { return };
    for message in received {
        let verdict = match (message.get("method"), message.get("result"), message.get("error")) {
            (Some(_), ..) => spec.message(message),
            // A legacy server's breach of its own revision is passed on as it is.
            (_, Some(result), _) if revision < "2026" && result["structuredContent"].is_array() => Ok(()),
            (_, Some(result), _) => match requests.get(&message["id"].to_string()) {
                Some(method) => spec.result(method, result),
                None => Ok(()),
            },
            _ => spec.error(message),
        };
        verdict.unwrap_or_else(|what| panic!("to a host of {revision}: {what}"));
    }
}

/// Everything that a server was sent; `asked`: the methods of its own requests, by id.
pub(crate) fn check_sent(revision: &str, asked: &HashMap<String, String>, record: &[Value]) {
    let Some(mut spec) = Spec::of(revision) else { return };
    for message in record {
        let verdict = match (message.get("method"), message.get("result")) {
            (Some(_), _) => spec.message(message),
            (None, Some(result)) => match asked.get(&message["id"].to_string()) {
                Some(method) => spec.result(method, result),
                None => Err(format!("it asked nothing under that id: {message}")),
            },
            (None, None) => spec.error(message),
        };
        verdict.unwrap_or_else(|what| panic!("to a server of {revision}: {what}"));
    }
}
