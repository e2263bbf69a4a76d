//! What the sides declare of themselves: a child's capabilities as we learned them, the host's as it told them, and
//! the one function each that computes what we declare to the other side (`PROTOCOL.md` chapter 4).

use serde_json::{Map, Value, json};

use super::task::EXTENSION as TASKS;
use crate::wire::method::Revision;

/// What is known of a child, live or from the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The revision that its handshake ended with.
    pub revision: Revision,
    /// What it declared.
    pub capabilities: ServerCapabilities,
    /// Its instructions.
    pub instructions: Option<String>,
    /// `name version` of its `serverInfo`, for people.
    pub identity: String,
}

/// A child's capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ServerCapabilities {
    /// It has tools.
    pub tools: bool,
    /// It announces their changes.
    pub tools_changed: bool,
    /// It has prompts.
    pub prompts: bool,
    /// It announces their changes.
    pub prompts_changed: bool,
    /// It has resources.
    pub resources: bool,
    /// It announces their changes.
    pub resources_changed: bool,
    /// A resource can be watched.
    pub subscribe: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It has a log level.
    pub logging: bool,
    /// It runs tool calls as tasks.
    pub tasks_call: bool,
    /// It lists tasks.
    pub tasks_list: bool,
    /// It cancels tasks.
    pub tasks_cancel: bool,
    /// It may make tasks of calls by itself: the extension of 2026-07-28.
    pub tasks_extension: bool,
    /// It has MCP Apps.
    pub ui: bool,
}

/// What the host declared at `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostCapabilities {
    /// It has roots.
    pub roots: bool,
    /// It announces their changes.
    pub roots_changed: bool,
    /// It samples.
    pub sampling: bool,
    /// Its sampling takes tools.
    pub sampling_tools: bool,
    /// Its sampling takes `includeContext`.
    pub sampling_context: bool,
    /// It asks the person by form.
    pub elicitation_form: bool,
    /// It asks the person by URL.
    pub elicitation_url: bool,
    /// Its `tasks` capability, as JSON text.
    pub tasks: Option<String>,
    /// It knows tasks of the extension, on a modern request.
    pub tasks_extension: bool,
    /// Its `extensions["io.modelcontextprotocol/ui"]`, as JSON text.
    pub ui: Option<String>,
}

/// The extension of MCP Apps.
const UI: &str = "io.modelcontextprotocol/ui";
/// The extensions that we relay, and tell of.
pub const EXTENSIONS: [&str; 2] = [UI, TASKS];

// === impl ServerCapabilities ===

impl ServerCapabilities {
    /// Reads the `capabilities` of an `initialize` result.
    pub fn read(value: &Value) -> Self {
        let has = |name: &str| value.get(name).is_some_and(|v| !v.is_null());
        let flag =
            |name: &str, sub: &str| value.pointer(&format!("/{name}/{sub}")).and_then(Value::as_bool) == Some(true);
        let under = |pointer: &str| value.pointer(pointer).is_some_and(|v| !v.is_null());
        Self {
            tools: has("tools"),
            tools_changed: flag("tools", "listChanged"),
            prompts: has("prompts"),
            prompts_changed: flag("prompts", "listChanged"),
            resources: has("resources"),
            resources_changed: flag("resources", "listChanged"),
            subscribe: flag("resources", "subscribe"),
            completions: has("completions"),
            logging: has("logging"),
            tasks_call: under("/tasks/requests/tools/call"),
            tasks_list: under("/tasks/list"),
            tasks_cancel: under("/tasks/cancel"),
            tasks_extension: value.get("extensions").and_then(|e| e.get(TASKS)).is_some_and(Value::is_object),
            ui: value.get("extensions").and_then(|e| e.get(UI)).is_some(),
        }
    }

    /// What a child that is not yet known is taken for.
    pub fn assumed() -> Self {
        Self {
            tools: true,
            prompts: true,
            resources: true,
            subscribe: true,
            completions: true,
            logging: true,
            ..Self::default()
        }
    }
}

// === impl HostCapabilities ===

impl HostCapabilities {
    /// Reads the `capabilities` of an `initialize` request.
    pub fn read(value: &Value) -> Self {
        let has = |pointer: &str| value.pointer(pointer).is_some_and(|v| !v.is_null());
        let elicitation = value.get("elicitation").and_then(Value::as_object);
        Self {
            roots: has("/roots"),
            roots_changed: value.pointer("/roots/listChanged").and_then(Value::as_bool) == Some(true),
            sampling: has("/sampling"),
            sampling_tools: has("/sampling/tools"),
            sampling_context: has("/sampling/context"),
            // An empty object means form only.
            elicitation_form: elicitation.is_some_and(|e| e.contains_key("form") || !e.contains_key("url")),
            elicitation_url: has("/elicitation/url"),
            tasks: value.get("tasks").filter(|v| v.is_object()).map(Value::to_string),
            tasks_extension: value.get("extensions").and_then(|e| e.get(TASKS)).is_some_and(Value::is_object),
            ui: value.get("extensions").and_then(|e| e.get(UI)).map(Value::to_string),
        }
    }

    /// What we declare to a legacy child: the host's set, cut to the revision that we offer.
    pub fn for_child(&self, host: Option<Revision>, offered: Revision) -> Value {
        let mut out = Map::new();
        if self.roots {
            let changes = if offered.is_legacy() { json!({ "listChanged": self.roots_changed }) } else { json!({}) };
            out.insert("roots".into(), changes);
        }
        if self.sampling {
            let mut sampling = Map::new();
            if offered >= Revision::V2025_11_25 && self.sampling_tools {
                sampling.insert("tools".into(), json!({}));
            }
            if offered >= Revision::V2025_11_25 && self.sampling_context {
                sampling.insert("context".into(), json!({}));
            }
            out.insert("sampling".into(), sampling.into());
        }
        if offered >= Revision::V2025_06_18 && (self.elicitation_form || self.elicitation_url) {
            let mut elicitation = Map::new();
            if offered >= Revision::V2025_11_25 {
                if self.elicitation_form {
                    elicitation.insert("form".into(), json!({}));
                }
                if self.elicitation_url {
                    elicitation.insert("url".into(), json!({}));
                }
            }
            if offered >= Revision::V2025_11_25 || self.elicitation_form {
                out.insert("elicitation".into(), elicitation.into());
            }
        }
        if let (Some(tasks), Revision::V2025_11_25, Some(Revision::V2025_11_25)) = (&self.tasks, offered, host) {
            out.insert("tasks".into(), serde_json::from_str(tasks).unwrap_or_default());
        }
        if let Some(ui) = &self.ui {
            out.insert("extensions".into(), json!({ UI: serde_json::from_str::<Value>(ui).unwrap_or_default() }));
        }
        out.into()
    }
}

/// What we declare to a host: the one function from which all that we answer derives.
pub fn declared(children: impl Iterator<Item = ServerCapabilities>, host: Revision) -> Value {
    let mut any = ServerCapabilities::default();
    for child in children {
        any.subscribe |= child.subscribe;
        any.completions |= child.completions;
        any.logging |= child.logging;
        // Each of the two kinds of tasks is bridged to the other.
        any.tasks_call |= child.tasks_call || child.tasks_extension;
        any.ui |= child.ui;
    }
    let mut out = json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true },
    });
    if any.subscribe {
        out["resources"]["subscribe"] = true.into();
    }
    if any.completions && host >= Revision::V2025_03_26 {
        out["completions"] = json!({});
    }
    if any.logging {
        out["logging"] = json!({});
    }
    if any.tasks_call && host == Revision::V2025_11_25 {
        out["tasks"] = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
    }
    let mut extensions = Map::new();
    if any.tasks_call && !host.is_legacy() {
        extensions.insert(TASKS.into(), json!({}));
    }
    if any.ui {
        extensions.insert(UI.into(), json!({}));
    }
    if !extensions.is_empty() {
        out["extensions"] = extensions.into();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_host_has_is_told_to_a_child() {
        let check = |host: Value, offered: Revision, expected: Value| {
            assert_eq!(
                HostCapabilities::read(&host).for_child(Some(Revision::V2025_11_25), offered),
                expected,
                "{host}"
            );
        };
        check(json!({}), Revision::V2025_11_25, json!({}));
        check(json!({"elicitation": {}}), Revision::V2025_11_25, json!({"elicitation": {"form": {}}}));
        check(json!({"elicitation": {"url": {}}}), Revision::V2025_06_18, json!({}));
        check(json!({"elicitation": {"form": {}, "url": {}}}), Revision::V2025_06_18, json!({"elicitation": {}}));
        check(json!({"elicitation": {}, "roots": {}}), Revision::V2024_11_05, json!({"roots": {"listChanged": false}}));
        check(json!({"sampling": {"tools": {}}}), Revision::V2025_11_25, json!({"sampling": {"tools": {}}}));
        check(json!({"sampling": {"tools": {}}}), Revision::V2025_06_18, json!({"sampling": {}}));
    }

    #[test]
    fn nothing_newer_than_the_session_is_declared() {
        let child = ServerCapabilities { tasks_call: true, completions: true, ..Default::default() };
        let old = declared([child].into_iter(), Revision::V2024_11_05);
        assert!(old.get("tasks").is_none() && old.get("completions").is_none());
        let new = declared([child].into_iter(), Revision::V2025_11_25);
        assert!(new.get("tasks").is_some() && new.get("completions").is_some());
        assert_eq!(new["tools"]["listChanged"], true);
    }

    #[test]
    fn r56_each_era_is_told_of_tasks_in_its_own_way() {
        let core = ServerCapabilities { tasks_call: true, ..Default::default() };
        let extension = ServerCapabilities { tasks_extension: true, ..Default::default() };
        for child in [core, extension] {
            let legacy = declared([child].into_iter(), Revision::V2025_11_25);
            assert!(legacy.get("tasks").is_some() && legacy.get("extensions").is_none());
            let modern = declared([child].into_iter(), Revision::V2026_07_28);
            assert!(modern.get("tasks").is_none() && modern["extensions"][TASKS] == json!({}));
        }
    }

    #[test]
    fn r61_unknown_extensions_are_told_to_nobody() {
        let child = ServerCapabilities::read(&json!({ "extensions": { "com.example/x": {}, UI: {} } }));
        assert_eq!(declared([child].into_iter(), Revision::V2026_07_28)["extensions"], json!({ UI: {} }));
        let host = HostCapabilities::read(&json!({ "extensions": { "com.example/x": {} } }));
        assert_eq!(host.for_child(None, Revision::V2025_11_25), json!({}));
    }
}
