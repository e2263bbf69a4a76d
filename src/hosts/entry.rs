//! One entry of a host's file, in any host's form.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::import::{Process, Remote, Server, Transport};
use super::vars::{Piece, pieces};
use super::{Dialect, REMOTE_SUPPORTED, Surroundings, TimeoutUnit, bridge};

/// What an entry is read under.
pub(super) struct Context<'a> {
    pub(super) dialect: Dialect,
    pub(super) around: &'a Surroundings,
    pub(super) file: &'a Path,
    /// Our own binary.
    pub(super) own: Option<&'a Path>,
    pub(super) scope: &'a str,
}

/// Keys that are read here.
const READ: &[&str] = &[
    "type",
    "source",
    "transport",
    "command",
    "cmd",
    "args",
    "env",
    "environment",
    "envs",
    "env_keys",
    "env_vars",
    "envFile",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "uri",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "requestOptions",
    "enabled",
    "disabled",
    "timeout",
    "tool_timeout_sec",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "connectionTimeout",
    "enabled_tools",
    "includeTools",
    "available_tools",
    "disabled_tools",
    "excludeTools",
    "disabledTools",
    "tools",
];

/// Keys of the host's own affairs: what it shows, what it asks before.
const HOSTS_OWN: &[&str] = &[
    "name",
    "description",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "bundled",
    "display_name",
    "alwaysLoad",
    "gallery",
    "version",
    "dev",
    "required",
    "icon",
    "default_tools_approval_mode",
    "supports_parallel_tool_calls",
];

/// Reads one entry.
///
/// # Errors
///
/// Why it can't be carried over, as a clause.
pub(super) fn server(name: &str, entry: &Map<String, Value>, context: &Context) -> Result<Server, String> {
    let entry = &flatten(entry);
    let text = |keys: &[&str]| keys.iter().find_map(|key| entry.get(*key)?.as_str());
    let kind = text(&["type"]).unwrap_or_default().to_ascii_lowercase();
    if text(&["source"]) == Some("extension") || (entry.contains_key("settings") && !entry.contains_key("command")) {
        return Err("it belongs to an extension of the host, which alone can start it".to_owned());
    }
    if matches!(kind.as_str(), "builtin" | "platform" | "frontend" | "inline_python" | "sdk") {
        return Err(format!("it is a part of the host (type `{kind}`)"));
    }
    let mut notes = Vec::new();
    let url = text(&["url", "serverUrl", "httpUrl", "uri"]).filter(|url| !url.is_empty());
    let (command, first_args) = command(entry)?;
    let transport = match (command, url) {
        (Some(command), _) if !matches!(kind.as_str(), "http" | "sse" | "remote") => {
            let (transport, bridged) = bridge::through(process(&command, first_args, entry, context, &mut notes)?);
            if bridged {
                notes.push("A bridge carried to it before.".to_owned());
            }
            transport
        }
        (_, Some(url)) => Transport::Remote(remote(url, &kind, entry, context, &mut notes)),
        _ => return Err("it has neither a command nor a URL".to_owned()),
    };
    let mut server = Server {
        key: String::new(),
        original: name.to_owned(),
        scope: context.scope.to_owned(),
        transport,
        enabled: is_enabled(entry),
        start_timeout: start_timeout(entry),
        call_max_time: call_time(entry, context.dialect),
        allow: strings(entry, &["enabled_tools", "includeTools", "available_tools"]),
        deny: strings(entry, &["disabled_tools", "excludeTools", "disabledTools"]),
        notes,
    };
    if let Some(tools) = entry.get("tools").filter(|tools| tools.is_array()) {
        server.allow.extend(list(tools).into_iter().filter(|tool| tool != "*"));
    }
    finish(&mut server, entry, context);
    Ok(server)
}

fn finish(server: &mut Server, entry: &Map<String, Value>, context: &Context) {
    if !context.scope.is_empty() {
        server.notes.push(format!("It was set for {} alone.", context.scope));
    }
    if server.needs_workspace() {
        server.notes.push(
            "It names the folder that the editor has open, which the proxy does not know: put a path in place of \
             ${env:WORKSPACE_FOLDER}, or set that variable."
                .to_owned(),
        );
    }
    if let Transport::Remote(remote) = &server.transport {
        if !REMOTE_SUPPORTED {
            server.enabled = false;
            server.notes.push("Remote servers are not supported yet: it is switched off.".to_owned());
        }
        if remote.sse {
            server.notes.push("It speaks the older HTTP+SSE transport.".to_owned());
        }
    }
    for key in entry.keys().filter(|key| !READ.contains(&key.as_str()) && !HOSTS_OWN.contains(&key.as_str())) {
        server.notes.push(format!("`{key}` has no counterpart here and was left out."));
    }
}

/// Brings what some hosts nest to the top: `transport: {…}` and `command: {path, args, env}`.
fn flatten(entry: &Map<String, Value>) -> Map<String, Value> {
    let mut flat = entry.clone();
    for (key, renamed) in [("transport", None), ("command", Some("path"))] {
        let Some(Value::Object(nested)) = entry.get(key) else { continue };
        flat.remove(key);
        for (name, value) in nested {
            let name = if Some(name.as_str()) == renamed { "command" } else { name };
            flat.entry(name).or_insert_with(|| value.clone());
        }
    }
    flat
}

/// What an entry starts, with all its arguments, as they stand there; `None`: nothing.
pub(super) fn start(entry: &Map<String, Value>) -> Option<(String, Vec<String>)> {
    let entry = flatten(entry);
    let (command, mut args) = command(&entry).ok()?;
    args.extend(entry.get("args").map(list).unwrap_or_default());
    Some((command?, args))
}

/// The command, and the arguments that stand with it.
fn command(entry: &Map<String, Value>) -> Result<(Option<String>, Vec<String>), String> {
    match entry.get("command").or_else(|| entry.get("cmd")) {
        None | Some(Value::Null) => Ok((None, Vec::new())),
        Some(Value::String(command)) if command.trim().is_empty() => Ok((None, Vec::new())),
        Some(Value::String(command)) => Ok((Some(command.clone()), Vec::new())),
        Some(words @ Value::Array(_)) => {
            let mut words = list(words);
            if words.is_empty() {
                return Ok((None, words));
            }
            Ok((Some(words.remove(0)), words))
        }
        Some(_) => Err("its command is not text".to_owned()),
    }
}

fn process(
    command: &str,
    mut args: Vec<String>,
    entry: &Map<String, Value>,
    context: &Context,
    notes: &mut Vec<String>,
) -> Result<Process, String> {
    args.extend(entry.get("args").map(list).unwrap_or_default());
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if bridge::is_own(command, &words, context.own) {
        return Err("it is this proxy itself".to_owned());
    }
    let vars = context.dialect.vars;
    let mut env: Vec<(String, Vec<Piece>)> = Vec::new();
    let maps = ["env", "environment", "envs"].iter().filter_map(|key| entry.get(*key)?.as_object());
    for (key, value) in maps.flatten() {
        match scalar(value) {
            Some(value) => env.push((key.clone(), pieces(&value, vars))),
            None => notes.push(format!("It unset the variable `{key}`, which it gets here only if it is a basic one.")),
        }
    }
    for key in strings(entry, &["env_keys"]) {
        notes.push(format!("The value of `{key}` lies in the host's own keyring: set it anew."));
        env.push((key.clone(), vec![Piece::Wanted(key)]));
    }
    if let Some(file) = entry.get("envFile").and_then(Value::as_str) {
        env_file(file, context, &mut env, notes);
    }
    let inherit = entry.get("env_vars").and_then(Value::as_array).into_iter().flatten();
    let inherit = inherit.filter_map(|item| item.as_str().or_else(|| item.get("name")?.as_str()));
    let cwd = entry.get("cwd").and_then(Value::as_str).filter(|cwd| !cwd.is_empty());
    let mut process = Process {
        command: pieces(command, vars),
        args: args.iter().map(|arg| pieces(arg, vars)).collect(),
        env,
        inherit: inherit.map(str::to_owned).collect(),
        cwd: cwd.map(|cwd| pieces(cwd, vars)),
    };
    bridge::without_shell(&mut process);
    Ok(process)
}

/// Reads the names that an environment file sets. Its values are taken for secrets, all of them.
fn env_file(file: &str, context: &Context, env: &mut Vec<(String, Vec<Piece>)>, notes: &mut Vec<String>) {
    let path = match file.strip_prefix("~/").or_else(|| file.strip_prefix("${userHome}/")) {
        Some(rest) => context.around.home.join(rest),
        None => context.file.parent().map_or_else(|| PathBuf::from(file), |directory| directory.join(file)),
    };
    let Ok(text) = std::fs::read_to_string(&path) else {
        notes.push(format!(
            "Its variables stood in the file `{file}`, which can't be read from here: add them to `env`."
        ));
        return;
    };
    let mut names = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, _)) = line.split_once('=') else { continue };
        let name = name.trim();
        if !name.is_empty() && env.iter().all(|(own, _)| own != name) {
            env.push((name.to_owned(), vec![Piece::Wanted(name.to_owned())]));
            names.push(name.to_owned());
        }
    }
    notes.push(format!("Its variables {} stood in the file `{file}`.", names.join(", ")));
}

fn remote(url: &str, kind: &str, entry: &Map<String, Value>, context: &Context, notes: &mut Vec<String>) -> Remote {
    let vars = context.dialect.vars;
    let nested = entry.get("requestOptions").and_then(|options| options.get("headers"));
    let maps = [entry.get("headers"), entry.get("http_headers"), nested];
    let mut headers: Vec<(String, Vec<Piece>)> = Vec::new();
    for (name, value) in maps.into_iter().flatten().filter_map(Value::as_object).flatten() {
        if let Some(value) = scalar(value) {
            headers.push((name.clone(), pieces(&value, vars)));
        }
    }
    for (name, variable) in entry.get("env_http_headers").and_then(Value::as_object).into_iter().flatten() {
        if let Some(variable) = variable.as_str() {
            headers.push((name.clone(), vec![Piece::Env { name: variable.to_owned(), default: None }]));
        }
    }
    if let Some(variable) = entry.get("bearer_token_env_var").and_then(Value::as_str) {
        let token = Piece::Env { name: variable.to_owned(), default: None };
        headers.push(("Authorization".to_owned(), vec![Piece::Literal("Bearer ".to_owned()), token]));
    }
    if entry.contains_key("oauth") || entry.contains_key("auth") {
        notes.push("The host had logged in to it: it needs a login of its own here.".to_owned());
    }
    let streams = entry.contains_key("httpUrl") || (!kind.is_empty() && kind != "sse");
    let sse = kind == "sse" || (!streams && context.dialect.bare_url_is_sse);
    Remote { url: pieces(url, vars), headers, sse }
}

/// Whether the host starts it.
pub(super) fn is_enabled(entry: &Map<String, Value>) -> bool {
    entry.get("enabled").and_then(Value::as_bool) != Some(false)
        && entry.get("disabled").and_then(Value::as_bool) != Some(true)
}

fn start_timeout(entry: &Map<String, Value>) -> Option<Duration> {
    duration(entry, "startup_timeout_sec", TimeoutUnit::Seconds)
        .or_else(|| duration(entry, "startup_timeout_ms", TimeoutUnit::Millis))
        .or_else(|| duration(entry, "connectionTimeout", TimeoutUnit::Millis))
}

fn call_time(entry: &Map<String, Value>, dialect: Dialect) -> Option<Duration> {
    duration(entry, "tool_timeout_sec", TimeoutUnit::Seconds).or_else(|| duration(entry, "timeout", dialect.timeout))
}

fn duration(entry: &Map<String, Value>, key: &str, unit: TimeoutUnit) -> Option<Duration> {
    let number = entry.get(key)?.as_f64().filter(|number| *number > 0.0)?;
    let seconds = match unit {
        TimeoutUnit::Seconds => number,
        TimeoutUnit::Millis => number / 1000.0,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// A list of tool names; some write `name(...)` for one with its arguments.
fn strings(entry: &Map<String, Value>, keys: &[&str]) -> Vec<String> {
    let found = keys.iter().filter_map(|key| entry.get(*key)).flat_map(list);
    found.map(|name| name.split('(').next().unwrap_or_default().to_owned()).collect()
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(scalar).collect()
}

/// Text, or a number or truth value as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
