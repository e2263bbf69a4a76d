//! What a peer sends that the other side's revision does not know, in a form that it does (`PROTOCOL.md` 5.9, 5.14).
//!
//! Within one revision nothing here runs; where it may, one fast search tells that there is nothing to do.

use std::ops::Range;

use serde_json::{Value, json};

use super::uri::expose_uri;
use crate::wire::json::{self, elements, get, string};
use crate::wire::method::{Method, Revision};
use crate::wire::splice::Edit;

/// What changes in a result beside its blocks: members that go, and text of members that come in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Names.
    pub gone: Vec<&'static str>,
    /// `"a":1`, without a comma at its end; or nothing.
    pub insert: String,
}

/// Makes the blocks of a result ones that a host of that revision knows; `scheme` is the child's. `child_is_modern`:
/// its structured content may be any value.
pub fn content(
    line: &[u8],
    method: Method,
    result: &Range<usize>,
    host: Revision,
    child_is_modern: bool,
    scheme: &str,
    edits: &mut Vec<Edit>,
) -> Members {
    let holds = |needle: &str| memchr::memmem::find(&line[result.clone()], needle.as_bytes()).is_some();
    let old = host < Revision::V2025_06_18;
    let links = old && holds("resource_link");
    let audio = host == Revision::V2024_11_05 && holds("audio");
    let structured = (old || child_is_modern) && holds("structuredContent");
    let of_tool = matches!(method, Method::ToolsCall | Method::TasksResult);
    if links || audio {
        for block in blocks(line, method, result) {
            if let Some(text) = older_block(line, &block, host, scheme) {
                edits.retain(|edit| edit.at.start < block.start || edit.at.end > block.end);
                edits.push(Edit::text(block, text));
            }
        }
    }
    if structured && of_tool { structured_as_text(line, result, old, edits) } else { Members::default() }
}

fn blocks(line: &[u8], method: Method, result: &Range<usize>) -> Vec<Range<usize>> {
    let of = |object: Range<usize>| -> Vec<Range<usize>> {
        match get(line, object, "content") {
            Some(at) if json::is_object(line, &at) => vec![at],
            Some(at) => elements(line, at).collect(),
            None => Vec::new(),
        }
    };
    match method {
        Method::ToolsCall | Method::TasksResult => of(result.clone()),
        Method::PromptsGet => get(line, result.clone(), "messages")
            .into_iter()
            .flat_map(|at| elements(line, at).collect::<Vec<_>>())
            .flat_map(of)
            .collect(),
        _ => Vec::new(),
    }
}

fn older_block(line: &[u8], block: &Range<usize>, host: Revision, scheme: &str) -> Option<String> {
    let member = |name: &str| get(line, block.clone(), name).and_then(|at| string(line, at));
    match &*member("type")? {
        "resource_link" => {
            let (name, uri) = (member("name").unwrap_or_default(), member("uri").unwrap_or_default());
            let text = format!("{name}: {}", expose_uri(scheme, &uri));
            Some(json!({ "type": "text", "text": text }).to_string())
        }
        "audio" if host == Revision::V2024_11_05 => {
            let token =
                |name: &str| get(line, block.clone(), name).map(|at| String::from_utf8_lossy(&line[at]).into_owned());
            let data = token("data")?;
            let kind = token("mimeType").map(|kind| format!(r#","mimeType":{kind}"#)).unwrap_or_default();
            Some(format!(r#"{{"type":"resource","resource":{{"uri":"mcp-proxy://audio"{kind},"blob":{data}}}}}"#))
        }
        _ => None,
    }
}

/// A host that does not know structured content, or not of this kind, finds it as text.
fn structured_as_text(line: &[u8], result: &Range<usize>, old: bool, edits: &mut Vec<Edit>) -> Members {
    let Some(at) = get(line, result.clone(), "structuredContent") else { return Members::default() };
    let is_object = json::is_object(line, &at);
    if is_object && !old {
        return Members::default();
    }
    let mut members = Members::default();
    if !is_object {
        members.gone.push("structuredContent");
    }
    let value: Value = serde_json::from_slice(&line[at.clone()]).unwrap_or_default();
    let says = |block: &Range<usize>| {
        let text = get(line, block.clone(), "text").and_then(|at| string(line, at));
        text.is_some_and(|text| {
            text.as_bytes() == &line[at.clone()] || serde_json::from_str::<Value>(&text).is_ok_and(|v| v == value)
        })
    };
    let block = json!({ "type": "text", "text": String::from_utf8_lossy(&line[at.clone()]) });
    match get(line, result.clone(), "content").filter(|at| line[at.start] == b'[') {
        Some(content) => {
            let there: Vec<Range<usize>> = elements(line, content.clone()).collect();
            match there.last() {
                _ if there.iter().any(says) => {}
                Some(last) => edits.push(Edit::text(last.end..last.end, format!(",{block}"))),
                None => edits.push(Edit::text(content.start + 1..content.start + 1, block.to_string())),
            }
        }
        None => {
            members.gone.push("content");
            members.insert = format!(r#""content":[{block}]"#);
        }
    }
    members
}

/// The form of a question as a host of 2025-06-18 knows it; `Ok(None)`: it is one.
///
/// # Errors
/// It asks for several choices at once, which that revision has not.
pub fn older_form(schema: &[u8]) -> Result<Option<String>, SeveralChoices> {
    let mut value: Value = serde_json::from_slice(schema).unwrap_or_default();
    let Some(properties) = value.get_mut("properties").and_then(Value::as_object_mut) else { return Ok(None) };
    let mut changed = false;
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        let kind = property.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind == "array" {
            return Err(SeveralChoices);
        }
        if kind != "boolean" {
            changed |= property.shift_remove("default").is_some();
        }
        if let Some(Value::Array(choices)) = property.shift_remove("oneOf") {
            let of = |name: &str| choices.iter().filter_map(|choice| choice.get(name).cloned()).collect::<Vec<_>>();
            property.insert("enum".into(), of("const").into());
            property.insert("enumNames".into(), of("title").into());
            changed = true;
        }
    }
    Ok(changed.then(|| value.to_string()))
}

/// A form with several choices at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeveralChoices;

/// Makes the messages of a sampling request ones with one block each, for hosts before 2025-11-25.
pub fn one_block_each(line: &[u8], params: &Range<usize>, edits: &mut Vec<Edit>) {
    let Some(messages) = get(line, params.clone(), "messages") else { return };
    for message in elements(line, messages) {
        let Some(content) = get(line, message.clone(), "content").filter(|at| line[at.start] == b'[') else { continue };
        let role_at = get(line, message, "role");
        let role =
            role_at.clone().map_or_else(|| "\"user\"".into(), |at| String::from_utf8_lossy(&line[at]).into_owned());
        let role_is_first = role_at.is_some_and(|at| at.start < content.start);
        let between = if role_is_first {
            format!(r#"}},{{"role":{role},"content":"#)
        } else {
            format!(r#","role":{role}}},{{"content":"#)
        };
        let blocks: Vec<Range<usize>> = elements(line, content.clone()).collect();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            edits.push(Edit::text(content, r#"{"type":"text","text":""}"#));
            continue;
        };
        edits.push(Edit::remove(content.start..first.start));
        edits.extend(blocks.windows(2).map(|pair| Edit::text(pair[0].end..pair[1].start, between.as_str())));
        edits.push(Edit::remove(last.end..content.end));
    }
}

/// Whether a sampling request holds a block of that type.
pub fn samples_with(line: &[u8], params: &Range<usize>, kind: &str) -> bool {
    if memchr::memmem::find(&line[params.clone()], kind.as_bytes()).is_none() {
        return false;
    }
    let value: Value = serde_json::from_slice(&line[params.clone()]).unwrap_or_default();
    let messages = value.get("messages").and_then(Value::as_array);
    messages.into_iter().flatten().any(|message| {
        let content = message.get("content");
        let list = content
            .and_then(Value::as_array)
            .map_or_else(|| content.into_iter().collect(), |list| list.iter().collect::<Vec<_>>());
        list.iter().any(|block| block.get("type").and_then(Value::as_str) == Some(kind))
    })
}

/// A sampled answer of several blocks as the one text that a child before 2025-11-25 knows; `None`: it is one block.
pub fn one_text(line: &[u8], result: &Range<usize>) -> Option<Edit> {
    let content = get(line, result.clone(), "content").filter(|at| line[at.start] == b'[')?;
    let texts: Vec<String> = elements(line, content.clone())
        .filter_map(|block| get(line, block, "text"))
        .filter_map(|at| string(line, at).map(std::borrow::Cow::into_owned))
        .collect();
    Some(Edit::text(content, json!({ "type": "text", "text": texts.join("\n") }).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::splice::apply;

    fn converted(text: &str, host: Revision, modern: bool) -> String {
        let (line, whole) = (text.as_bytes(), 0..text.len());
        let mut edits = Vec::new();
        let members = content(line, Method::ToolsCall, &whole, host, modern, "wiki", &mut edits);
        crate::wire::meta::edit_object(line, &whole, &members.gone, &members.insert, &mut edits);
        String::from_utf8(apply(line, &mut edits)).unwrap()
    }

    #[test]
    fn a_host_gets_content_that_it_knows() {
        use Revision::*;
        let check = |text: &str, host, modern, expected: &str| {
            assert_eq!(converted(text, host, modern), expected, "{text} for {host:?}");
        };
        let link = r#"{"content":[{"type":"resource_link","uri":"mem:///a","name":"a"}]}"#;
        check(link, V2024_11_05, false, r#"{"content":[{"type":"text","text":"a: wiki+mem:///a"}]}"#);
        check(link, V2025_06_18, false, link);
        let audio = r#"{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}"#;
        check(
            audio,
            V2024_11_05,
            false,
            r#"{"content":[{"type":"resource","resource":{"uri":"mcp-proxy://audio","mimeType":"audio/wav","blob":"AA=="}}]}"#,
        );
        check(audio, V2025_03_26, false, audio);
        let object = r#"{"content":[],"structuredContent":{"n":1}}"#;
        check(
            object,
            V2025_03_26,
            false,
            r#"{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}"#,
        );
        check(object, V2025_11_25, true, object);
        let list = r#"{"structuredContent":[1,2],"content":[{"type":"text","text":"x"}]}"#;
        check(list, V2025_11_25, true, r#"{"content":[{"type":"text","text":"x"},{"type":"text","text":"[1,2]"}]}"#);
        check(list, V2025_11_25, false, list);
        let said = r#"{"structuredContent":[1,2],"content":[{"type":"text","text":"[1, 2]"}]}"#;
        check(said, V2025_06_18, true, r#"{"content":[{"type":"text","text":"[1, 2]"}]}"#);
        check(r#"{"structuredContent":3}"#, V2025_06_18, true, r#"{"content":[{"type":"text","text":"3"}]}"#);
    }

    #[test]
    fn forms_and_messages_fit_older_peers() {
        let form = r#"{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"boolean","default":true},"c":{"type":"string","oneOf":[{"const":"1","title":"One"}]}}}"#;
        let expected = r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"boolean","default":true},"c":{"type":"string","enum":["1"],"enumNames":["One"]}}}"#;
        assert_eq!(older_form(form.as_bytes()), Ok(Some(expected.to_owned())));
        assert_eq!(older_form(expected.as_bytes()), Ok(None));
        assert_eq!(older_form(br#"{"properties":{"a":{"type":"array"}}}"#), Err(SeveralChoices));
        let split = |text: &str| {
            let mut edits = Vec::new();
            one_block_each(text.as_bytes(), &(0..text.len()), &mut edits);
            String::from_utf8(apply(text.as_bytes(), &mut edits)).unwrap()
        };
        assert_eq!(
            split(r#"{"messages":[{"role":"user","content":[{"a":1}, {"b":2}]}]}"#),
            r#"{"messages":[{"role":"user","content":{"a":1}},{"role":"user","content":{"b":2}}]}"#
        );
        assert_eq!(
            split(r#"{"messages":[{"content":[{"a":1},{"b":2}],"role":"assistant"}]}"#),
            r#"{"messages":[{"content":{"a":1},"role":"assistant"},{"content":{"b":2},"role":"assistant"}]}"#
        );
        let answer = r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"role":"assistant"}"#;
        let edit = one_text(answer.as_bytes(), &(0..answer.len())).unwrap();
        let whole = String::from_utf8(apply(answer.as_bytes(), &mut [edit])).unwrap();
        assert_eq!(whole, r#"{"content":{"type":"text","text":"a\nb"},"role":"assistant"}"#);
    }
}
