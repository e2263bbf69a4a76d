//! URIs of a child wherever they travel to the host, and back (`DESIGN.md` chapter 5, `PROTOCOL.md` 6.6).
//!
//! A message that can hold no URI is told by one fast search and costs no walk.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::wire::json::{self, get, string};
use crate::wire::method::Method;
use crate::wire::splice::Edit;

/// Collects the edits of one message of one child.
#[derive(Debug)]
pub struct Rewriter<'a> {
    text: &'a [u8],
    /// The child's prefix made safe for a scheme; empty: its URIs stay.
    prefix: &'a str,
    edits: &'a mut Vec<Edit>,
    /// The child's own URIs that were met.
    seen: Vec<String>,
}

impl<'a> Rewriter<'a> {
    /// A collector into `edits`.
    pub fn new(text: &'a [u8], prefix: &'a str, edits: &'a mut Vec<Edit>) -> Self {
        Self { text, prefix, edits, seen: Vec::new() }
    }

    /// The result of a request of that method; returns the child's own URIs that it holds.
    pub fn result(mut self, method: Method, result: &Range<usize>) -> Vec<String> {
        if may_hold_uri(&self.text[result.clone()]) {
            match method {
                Method::ToolsCall | Method::TasksResult => {
                    self.blocks(get(self.text, result.clone(), "content"));
                    self.ui(result);
                }
                Method::PromptsGet => self.messages(result),
                Method::ResourcesRead => {
                    if let Some(contents) = get(self.text, result.clone(), "contents") {
                        for item in json::elements(self.text, contents) {
                            self.uri(&item);
                            self.ui(&item);
                        }
                    }
                }
                _ => {}
            }
        }
        self.seen
    }

    /// The parameters of a sampling request.
    pub fn sampling(mut self, params: &Range<usize>) {
        if may_hold_uri(&self.text[params.clone()]) {
            self.messages(params);
        }
    }

    fn messages(&mut self, object: &Range<usize>) {
        let Some(messages) = get(self.text, object.clone(), "messages") else { return };
        for message in json::elements(self.text, messages) {
            self.blocks(get(self.text, message, "content"));
        }
    }

    /// One content block or an array of them. Tool results inside sampling messages hold blocks once more; deeper
    /// there are none.
    fn blocks(&mut self, content: Option<Range<usize>>) {
        let Some(content) = content else { return };
        if json::is_object(self.text, &content) {
            self.block(&content, true);
        } else {
            for block in json::elements(self.text, content) {
                self.block(&block, true);
            }
        }
    }

    fn block(&mut self, block: &Range<usize>, outer: bool) {
        let Some(kind) = get(self.text, block.clone(), "type").and_then(|at| string(self.text, at)) else { return };
        match &*kind {
            "resource_link" => self.uri(block),
            "resource" => {
                if let Some(resource) = get(self.text, block.clone(), "resource") {
                    self.uri(&resource);
                    self.ui(&resource);
                }
            }
            "tool_result" if outer => {
                if let Some(content) = get(self.text, block.clone(), "content") {
                    for inner in json::elements(self.text, content) {
                        self.block(&inner, false);
                    }
                }
            }
            _ => {}
        }
    }

    /// The member `uri` of an object.
    fn uri(&mut self, object: &Range<usize>) {
        if let Some(at) = get(self.text, object.clone(), "uri") {
            self.replace(at);
        }
    }

    /// `_meta.ui.resourceUri`, and its older flat spelling.
    fn ui(&mut self, object: &Range<usize>) {
        let Some(meta) = get(self.text, object.clone(), "_meta") else { return };
        for names in [&["ui", "resourceUri"][..], &["ui/resourceUri"]] {
            if let Some(at) = json::path(self.text, meta.clone(), names) {
                self.replace(at);
            }
        }
    }

    fn replace(&mut self, at: Range<usize>) {
        let Some(own) = string(self.text, at.clone()) else { return };
        let exposed = super::uri::expose_uri(self.prefix, &own);
        if exposed != own {
            self.edits.push(Edit::text(at, json::quoted(&exposed)));
        }
        self.seen.push(own.into_owned());
    }
}

/// Whether a text can hold a member that we rewrite.
fn may_hold_uri(text: &[u8]) -> bool {
    // The ends of `"uri"`, `"resourceUri"` and `"ui/resourceUri"`.
    static END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"ri\""));
    END.find_iter(text).any(|at| at > 0 && matches!(text[at - 1], b'u' | b'U'))
}

/// Arguments of a call: a string value that as a whole is a URI which we exposed goes to the child as the one that it
/// knows. `known` decides; `hint` is what such a value must hold.
pub fn arguments(
    text: &[u8],
    arguments: &Range<usize>,
    prefix: &str,
    mut known: impl FnMut(&str) -> Option<String>,
    edits: &mut Vec<Edit>,
) {
    static UI: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"ui:"));
    if prefix.is_empty() {
        return;
    }
    let inside = &text[arguments.clone()];
    // A slash may be spelled `\/`, so only what stands before one is looked for.
    let prefixed = || memchr::memchr_iter(b'+', inside).any(|at| inside[..at].ends_with(prefix.as_bytes()));
    if !prefixed() && UI.find(inside).is_none() {
        return;
    }
    for at in string_values(text, arguments.clone()) {
        if let Some(value) = string(text, at.clone())
            && let Some(own) = known(&value)
        {
            edits.push(Edit::text(at, json::quoted(&own)));
        }
    }
}

/// The places of all string values in a value, at every depth; keys are none.
fn string_values(text: &[u8], value: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = value.start;
    while at < value.end {
        if text[at] != b'"' {
            at += 1;
            continue;
        }
        let Ok(end) = json::skip_string(text, at) else { break };
        let after = json::skip_space(text, end);
        if after >= value.end || text[after] != b':' {
            found.push(at..end);
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::splice::apply;

    fn result(method: Method, text: &str) -> String {
        let mut edits = Vec::new();
        Rewriter::new(text.as_bytes(), "p", &mut edits).result(method, &(0..text.len()));
        String::from_utf8(apply(text.as_bytes(), &mut edits)).unwrap()
    }

    #[test]
    fn uris_are_rewritten_where_the_protocol_has_them_and_nowhere_else() {
        let text = r#"{"content":[{"type":"text","text":"a://x","uri":"a://no"},{"uri":"a://1","type":"resource_link"},{"type":"resource","resource":{"uri":"a://2","text":"\"uri\":\"a://3\""}}],"structuredContent":{"uri":"a://4"},"_meta":{"ui":{"resourceUri":"ui://v/w"}}}"#;
        let expected = r#"{"content":[{"type":"text","text":"a://x","uri":"a://no"},{"uri":"p+a://1","type":"resource_link"},{"type":"resource","resource":{"uri":"p+a://2","text":"\"uri\":\"a://3\""}}],"structuredContent":{"uri":"a://4"},"_meta":{"ui":{"resourceUri":"ui://p/v/w"}}}"#;
        assert_eq!(result(Method::ToolsCall, text), expected);
        assert_eq!(
            result(Method::ResourcesRead, r#"{"contents":[{"uri":"a://1"},{"uri":"https://x/y"}]}"#),
            r#"{"contents":[{"uri":"p+a://1"},{"uri":"https://x/y"}]}"#
        );
        assert_eq!(
            result(
                Method::PromptsGet,
                r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b"}}]}"#
            ),
            r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"p+a:b"}}]}"#
        );
    }

    #[test]
    fn arguments_change_only_where_a_whole_value_is_a_known_uri() {
        let text = r#"{"p+a://1":"p+a://1","n":["see p+a://1",{"u":"p+a:\/\/1"}],"g":"git+https://x"}"#;
        let mut edits = Vec::new();
        let known = |uri: &str| (uri == "p+a://1").then(|| "a://1".to_owned());
        arguments(text.as_bytes(), &(0..text.len()), "p", known, &mut edits);
        let out = String::from_utf8(apply(text.as_bytes(), &mut edits)).unwrap();
        assert_eq!(out, r#"{"p+a://1":"a://1","n":["see p+a://1",{"u":"a://1"}],"g":"git+https://x"}"#);
    }
}
