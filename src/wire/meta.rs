//! Shallow edits of objects: members taken away and put in front, the rest untouched; and the protocol's own keys of
//! `_meta` (`PROTOCOL.md` 3.5).

use std::ops::Range;

use super::json;
use super::splice::Edit;

/// The revision that a modern request is made under.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do, for that request.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client is.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on it wants log messages of that request.
pub const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who the server is; on results.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// Which listen request a notification belongs to.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Takes the members that `gone` names out of an object, and puts `insert` (members without a comma at their end, or
/// nothing) in front of what stays.
pub fn edit_object(text: &[u8], object: &Range<usize>, gone: &[&str], insert: &str, edits: &mut Vec<Edit>) {
    let members: Vec<json::Member> = json::members(text, object.clone()).collect();
    let is_gone = |member: &json::Member| gone.iter().any(|name| json::key_is(text, &member.key, name));
    let last_kept = members.iter().rposition(|member| !is_gone(member));
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for (index, member) in members.iter().enumerate() {
        if is_gone(member) && last_kept.is_some_and(|last| index < last) {
            cuts.push(member.key.start..members[index + 1].key.start);
        }
    }
    if let Some(last) = members.last().filter(|last| is_gone(last)) {
        let from = last_kept.map_or(members[0].key.start, |kept| members[kept].value.end);
        cuts.push(from..last.value.end);
    }
    if !insert.is_empty() {
        let comma = if last_kept.is_some() { "," } else { "" };
        let at = members.first().map_or(object.start + 1, |first| first.key.start);
        // Where the first member goes, what comes in takes its place: two edits must not begin at one place.
        match cuts.iter().position(|cut| cut.start == at) {
            Some(first) => edits.push(Edit::text(cuts.swap_remove(first), format!("{insert}{comma}"))),
            None => edits.push(Edit::text(at..at, format!("{insert}{comma}"))),
        }
    }
    edits.extend(cuts.into_iter().map(Edit::remove));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::splice::apply;
    use proptest::prelude::*;

    fn edited(text: &str, gone: &[&str], insert: &str) -> String {
        let mut edits = Vec::new();
        edit_object(text.as_bytes(), &(0..text.len()), gone, insert, &mut edits);
        String::from_utf8(apply(text.as_bytes(), &mut edits)).unwrap()
    }

    #[test]
    fn members_go_and_come_and_commas_stay_right() {
        let check = |text: &str, gone: &[&str], insert: &str, expected: &str| {
            assert_eq!(edited(text, gone, insert), expected, "{text} - {gone:?} + {insert}");
        };
        check("{}", &["a"], "", "{}");
        check("{}", &["a"], "\"n\":0", "{\"n\":0}");
        check(r#"{"a":1}"#, &["a"], "", "{}");
        check(r#"{"a":1}"#, &["a"], "\"n\":0", "{\"n\":0}");
        check(r#"{"a":1,"b":2}"#, &["a"], "\"n\":0", r#"{"n":0,"b":2}"#);
        check(r#"{ "a":1, "b":2 }"#, &["b"], "\"n\":0", r#"{ "n":0,"a":1 }"#);
        check(r#"{"a":1,"b":2,"c":3,"d":4}"#, &["b", "c"], "", r#"{"a":1,"d":4}"#);
        check(r#"{"a":1,"b":2,"c":3}"#, &["b", "c"], "", r#"{"a":1}"#);
        check(r#"{"a":1,"b":2}"#, &[], "\"n\":0", r#"{"n":0,"a":1,"b":2}"#);
    }

    proptest! {
        #[test]
        fn what_stays_is_json_and_unchanged(keys in proptest::collection::vec("[abc]", 0..6), gone in "[abc]", put in any::<bool>()) {
            let members: Vec<_> = keys.iter().enumerate().map(|(i, k)| format!("\"{k}\":{i}")).collect();
            let text = format!("{{{}}}", members.join(", "));
            let insert = if put { "\"n\":true" } else { "" };
            let out = edited(&text, &[&gone], insert);
            prop_assert!(json::skip_value(out.as_bytes(), 0) == Ok(out.len()), "{}", out);
            let kept: Vec<_> = json::members(out.as_bytes(), 0..out.len())
                .map(|m| out[m.key.start..m.value.end].to_owned()).filter(|m| m != "\"n\":true").collect();
            let expected: Vec<_> = members.into_iter().filter(|m| !m.starts_with(&format!("\"{gone}\""))).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
