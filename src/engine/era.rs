//! The two eras: what a modern request says of itself, and what a result looks like in each (`PROTOCOL.md` 2.1, 5.2).

use std::ops::Range;

use serde_json::{Value, json};

use super::convert::Members;
use super::facts::{EXTENSIONS, HostCapabilities};
use super::session::Client;
use super::task::RELATED;
use crate::wire::code::{self, RpcError};
use crate::wire::json as text;
use crate::wire::meta;
use crate::wire::method::{LOG_LEVELS, Revision};
use crate::wire::splice::Edit;

/// Which era a side speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Era {
    /// With the handshake.
    #[default]
    Legacy,
    /// With `_meta` on each request.
    Modern,
}

/// The modern revision that is served.
pub const MODERN: Revision = Revision::V2026_07_28;

/// What a modern request says of itself. Nothing of it counts for another request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    /// What the host can do.
    pub capabilities: HostCapabilities,
    /// What a modern child is told of all this in `_meta`, without braces and without extensions that we can't relay.
    pub members: String,
    /// Place in [`LOG_LEVELS`] from which on it wants log messages.
    pub level: Option<usize>,
    /// Who it is.
    pub client: Client,
    /// The tokens of all this, in the order of [`REQUEST_KEYS`]; empty: absent.
    tokens: [String; 4],
}

/// Which hints for caching a modern result carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// None: the method has none.
    None,
    /// So many milliseconds, for nobody else.
    Private(u64),
    /// So many milliseconds, for anybody.
    Public(u64),
}

/// Tells whether a request is modern: its `_meta` names a revision.
pub fn is_modern(line: &[u8], meta: Option<&Range<usize>>) -> bool {
    let Some(meta) = meta else { return false };
    // One fast search, so that a legacy request pays nothing.
    memchr::memmem::find(&line[meta.clone()], b"protocolVersion").is_some()
        && text::members(line, meta.clone()).any(|member| text::key_is(line, &member.key, meta::VERSION))
}

/// Reads what a modern request says of itself.
///
/// # Errors
/// In the order of `PROTOCOL.md` 2.1: a revision that is not served, no capabilities, an unknown level.
pub fn sender(line: &[u8], at: &Range<usize>) -> Result<Sender, RpcError> {
    let value: Value = serde_json::from_slice(&line[at.clone()]).unwrap_or_default();
    let version = value.get(meta::VERSION).and_then(Value::as_str).unwrap_or_default();
    if version != MODERN.as_str() {
        return Err(RpcError::new(
            code::UNSUPPORTED_VERSION,
            format!("The protocol revision \"{version}\" is not served."),
        )
        .with("supported", json!([MODERN.as_str()]))
        .with("requested", version));
    }
    let capabilities = value.get(meta::CAPABILITIES).filter(|value| value.is_object()).ok_or_else(|| {
        RpcError::new(code::INVALID_PARAMS, format!("_meta needs {} as an object in each request.", meta::CAPABILITIES))
            .with("detail", meta::CAPABILITIES)
    })?;
    let level = match value.get(meta::LEVEL) {
        None | Some(Value::Null) => None,
        Some(level) => Some(LOG_LEVELS.iter().position(|known| level == known).ok_or_else(|| {
            RpcError::new(code::INVALID_PARAMS, format!("The log level must be one of {}.", LOG_LEVELS.join(", ")))
                .with("detail", meta::LEVEL)
        })?),
    };
    let client = |key: &str| {
        value.get(meta::CLIENT).and_then(|info| info.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let tokens = REQUEST_KEYS.map(|key| {
        let token = text::get(line, at.clone(), key);
        token.map(|at| String::from_utf8_lossy(&line[at]).into_owned()).unwrap_or_default()
    });
    let client = Client { name: client("name"), version: client("version") };
    let told = relayed(capabilities);
    let members = request_members(told.as_ref().unwrap_or(&tokens[1]), &client, level);
    Ok(Sender { capabilities: HostCapabilities::read(capabilities), members, level, client, tokens })
}

impl Sender {
    /// Whether a request says of itself the same, byte by byte: then nothing of it is read anew.
    pub fn says(&self, line: &[u8], at: &Range<usize>) -> bool {
        let mut said = [false; REQUEST_KEYS.len()];
        for member in text::members(line, at.clone()) {
            if let Some(index) = REQUEST_KEYS.iter().position(|key| text::key_is(line, &member.key, key)) {
                if line[member.value] != *self.tokens[index].as_bytes() {
                    return false;
                }
                said[index] = true;
            }
        }
        said.iter().zip(&self.tokens).all(|(said, known)| *said || known.is_empty())
    }
}

/// The capabilities without extensions that we do not know: what those add we would handle wrongly. `None`: it has none.
fn relayed(capabilities: &Value) -> Option<String> {
    let extensions = capabilities.get("extensions")?.as_object()?;
    if extensions.keys().all(|name| EXTENSIONS.contains(&name.as_str())) {
        return None;
    }
    let mut capabilities = capabilities.clone();
    if let Some(extensions) = capabilities.get_mut("extensions").and_then(Value::as_object_mut) {
        extensions.retain(|name, _| EXTENSIONS.contains(&name.as_str()));
    }
    Some(capabilities.to_string())
}

/// The members that a complete modern result begins with, without a comma at the end.
pub fn complete_members(hints: Hints, server_info: Option<&str>) -> String {
    let mut out = r#""resultType":"complete""#.to_owned();
    match hints {
        Hints::None => {}
        Hints::Private(ms) => out.push_str(&format!(r#","ttlMs":{ms},"cacheScope":"private""#)),
        Hints::Public(ms) => out.push_str(&format!(r#","ttlMs":{ms},"cacheScope":"public""#)),
    }
    if let Some(info) = server_info {
        out.push_str(&format!(r#","_meta":{{"{}":{info}}}"#, meta::SERVER));
    }
    out
}

/// A result of ours as a modern host reads it.
pub fn complete(result: &str, hints: Hints, server_info: &str) -> String {
    let members = complete_members(hints, Some(server_info));
    match result.strip_prefix('{').map(str::trim_start) {
        Some("}") | None => format!("{{{members}}}"),
        Some(rest) => format!("{{{members},{rest}"),
    }
}

/// Makes the result of a legacy child one that a modern host reads: `resultType`, hints, and who we are.
pub fn to_modern(line: &[u8], result: &Range<usize>, hints: Hints, server_info: &str, edits: &mut Vec<Edit>) {
    let meta = text::get(line, result.clone(), "_meta").filter(|at| text::is_object(line, at));
    let info = if meta.is_some() { None } else { Some(server_info) };
    let gone = ["resultType", "ttlMs", "cacheScope"];
    meta::edit_object(line, result, &gone, &complete_members(hints, info), edits);
    if let Some(meta) = meta {
        let gone = [meta::SERVER, RELATED];
        meta::edit_object(line, &meta, &gone, &format!(r#""{}":{server_info}"#, meta::SERVER), edits);
    }
}

/// Makes the result of a modern child for a modern host ours: who answers is told anew, and what must be there is.
/// `keeps`: the method has hints for a cache; with `Some(false)` nobody may keep it, for it answers a retry.
pub fn sign(line: &[u8], result: &Range<usize>, keeps: Option<bool>, server_info: &str, edits: &mut Vec<Edit>) {
    // The result is gone through once: it may be long.
    let mut said: [Option<Range<usize>>; 4] = Default::default();
    for member in text::members(line, result.clone()) {
        let names = ["resultType", "ttlMs", "cacheScope", "_meta"];
        if let Some(index) = names.iter().position(|name| text::key_is(line, &member.key, name)) {
            said[index] = Some(member.value);
        }
    }
    let [kind, ms, scope, meta] = said;
    let (mut gone, mut insert) = (Vec::new(), Vec::new());
    if kind.is_none() {
        insert.push(r#""resultType":"complete""#.to_owned());
    }
    if let Some(keeps) = keeps {
        if !keeps || ms.is_none_or(|at| !line[at.start].is_ascii_digit()) {
            gone.push("ttlMs");
            insert.push(r#""ttlMs":0"#.to_owned());
        }
        if !keeps || scope.is_none() {
            gone.push("cacheScope");
            insert.push(r#""cacheScope":"private""#.to_owned());
        }
    }
    let member = format!(r#""{}":{server_info}"#, meta::SERVER);
    match meta.filter(|at| text::is_object(line, at)) {
        Some(at) => meta::edit_object(line, &at, &[meta::SERVER], &member, edits),
        None => insert.push(format!(r#""_meta":{{{member}}}"#)),
    }
    if !gone.is_empty() || !insert.is_empty() {
        meta::edit_object(line, result, &gone, &insert.join(","), edits);
    }
}

/// Takes out of a modern child's result what a legacy host does not know, and `more`.
pub fn to_legacy(line: &[u8], result: &Range<usize>, more: &Members, edits: &mut Vec<Edit>) {
    let mut gone = vec!["resultType", "ttlMs", "cacheScope"];
    gone.extend(&more.gone);
    if let Some(at) = text::get(line, result.clone(), "_meta").filter(|at| text::is_object(line, at)) {
        let others = text::members(line, at.clone()).any(|member| !text::key_is(line, &member.key, meta::SERVER));
        if others {
            meta::edit_object(line, &at, &[meta::SERVER], "", edits);
        } else if text::get(line, at, meta::SERVER).is_some() {
            gone.push("_meta");
        }
    }
    meta::edit_object(line, result, &gone, &more.insert, edits);
}

/// What a modern request to a child carries in `_meta`, without braces.
pub fn request_members(capabilities: &str, client: &Client, level: Option<usize>) -> String {
    let mut info = json!({ "name": "mcp-proxy", "version": env!("CARGO_PKG_VERSION") });
    if !client.name.is_empty() {
        info["title"] = format!("{} by mcp-proxy", client.name).into();
    }
    let mut out = format!(
        r#""{}":"{}","{}":{capabilities},"{}":{info}"#,
        meta::VERSION,
        MODERN.as_str(),
        meta::CAPABILITIES,
        meta::CLIENT
    );
    if let Some(level) = level {
        out.push_str(&format!(r#","{}":"{}""#, meta::LEVEL, LOG_LEVELS[level]));
    }
    out
}

/// The protocol's own keys of a request's `_meta`.
pub const REQUEST_KEYS: [&str; 4] = [meta::VERSION, meta::CAPABILITIES, meta::CLIENT, meta::LEVEL];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::splice::apply;

    #[test]
    fn results_cross_the_eras_with_everything_else_untouched() {
        #[expect(clippy::type_complexity, reason = "a table of cases")]
        let edit = |text: &str, with: &dyn Fn(&[u8], &Range<usize>, &mut Vec<Edit>)| {
            let mut edits = Vec::new();
            with(text.as_bytes(), &(0..text.len()), &mut edits);
            String::from_utf8(apply(text.as_bytes(), &mut edits)).unwrap()
        };
        let modern = |text: &str| {
            edit(text, &|line, at, edits| to_modern(line, at, Hints::Private(0), "{\"name\":\"p\"}", edits))
        };
        assert_eq!(
            modern(r#"{"contents":[]}"#),
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p"}},"contents":[]}"#
        );
        assert_eq!(
            modern(r#"{"_meta":{"k":1},"contents":[]}"#),
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p"},"k":1},"contents":[]}"#
        );
        let legacy = |text: &str| edit(text, &|line, at, edits| to_legacy(line, at, &Members::default(), edits));
        assert_eq!(
            legacy(r#"{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#),
            r#"{"content":[]}"#
        );
        assert_eq!(
            legacy(r#"{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{},"k":2},"ttlMs":3}"#),
            r#"{"content":[],"_meta":{"k":2}}"#
        );
        assert_eq!(
            complete("{}", Hints::None, "{}"),
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#
        );
    }

    #[test]
    fn a_modern_request_is_judged_in_order() {
        let code = |meta: &str| sender(meta.as_bytes(), &(0..meta.len())).map_or_else(|error| error.code, |_| 0);
        assert_eq!(code(r#"{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}"#), -32022);
        assert_eq!(code(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#), -32602);
        let good = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;
        assert!(sender(good.as_bytes(), &(0..good.len())).unwrap().capabilities.elicitation_form);
        let open = good.strip_suffix('}').unwrap();
        let bad = format!("{open},\"io.modelcontextprotocol/logLevel\":\"loud\"}}");
        assert_eq!(code(&bad), -32602);
        let more = good.replace(
            r#"{"elicitation":{}}"#,
            r#"{"extensions":{"com.example/x":{},"io.modelcontextprotocol/tasks":{}},"sampling":{}}"#,
        );
        let told = sender(more.as_bytes(), &(0..more.len())).unwrap();
        assert!(told.members.contains(r#":{"extensions":{"io.modelcontextprotocol/tasks":{}},"sampling":{}},"#), "r61");
        assert!(told.says(more.as_bytes(), &(0..more.len())) && !told.says(good.as_bytes(), &(0..good.len())));
        assert!(is_modern(good.as_bytes(), Some(&(0..good.len()))));
        assert!(!is_modern(b"{\"progressToken\":1}", Some(&(0..18))));
    }
}
