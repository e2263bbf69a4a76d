//! One entry of a list: the child's own bytes with the name or URI replaced, and the least repair that makes it lawful
//! (`DESIGN.md` chapters 5 and 14).
//!
//! Hosts drop a whole server's tools when one of them is unlawful, so a bad entry is mended, or left out alone. All else
//! stays byte for byte.

mod shape;

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use compact_str::CompactString;

use super::listing::Kind;
use super::uri::expose_uri;
use crate::wire::json::{self, Member};
use crate::wire::method::Revision;
use crate::wire::splice::{self, Edit};

/// What the host's revision asks of entries (`PROTOCOL.md` 5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RenderClass {
    /// 2024-11-05 and 2025-03-26: know no `outputSchema`, and leave open what they don't know.
    Old,
    /// 2025-06-18 and 2025-11-25: an `outputSchema` is an object's.
    Structured,
    /// 2026-07-28 and later.
    Modern,
}

/// A repair of an entry, or the reason why it was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repair {
    /// What it is.
    pub kind: Kind,
    /// The child's own name or URI; empty if it has none.
    pub name: CompactString,
    /// What was done.
    pub what: Fix,
}

/// What was done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fix {
    /// A tool had no `inputSchema`.
    SchemaAdded,
    /// The `inputSchema` did not say `"type":"object"`.
    SchemaTyped,
    /// That member was null, or of another type than the protocol has it.
    MemberRemoved(&'static str),
    /// The same of one element of an array.
    ElementRemoved,
    /// A resource or template had no `name`: its URI stands there.
    NameAdded,
    /// Left out: no object.
    NoObject,
    /// Left out: no name or URI, an empty one, or one that is no string.
    NoName,
    /// Left out: the `inputSchema` is no object.
    BadSchema,
    /// Left out: the same name or URI stood before it.
    Doubled,
}

/// Whether a tool may, must or can't run as a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskSupport {
    /// It can't: also what an absent member means.
    #[default]
    Forbidden,
    /// The caller chooses.
    Optional,
    /// It runs only as one.
    Required,
}

/// What becomes of a tool's `execution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Execution {
    /// It stays.
    #[default]
    AsItIs,
    /// It is taken out: its server declares no tasks, and the host may think that it does.
    Removed,
    /// Its server makes tasks of calls by itself: so that the host may ask for one.
    Optional,
}

/// What is read from a raw entry before anything is decided about it.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    raw: &'a [u8],
    members: Vec<Member>,
    /// The child's own name or URI.
    pub(super) original: CompactString,
    /// Its token as the child spelled it.
    pub(super) token: Range<usize>,
}

/// What becomes of an entry.
pub(super) struct Plan<'a> {
    pub(super) kind: Kind,
    pub(super) class: RenderClass,
    /// The prefix of URIs.
    pub(super) safe_prefix: &'a str,
    /// The token that replaces the name or URI; `None`: it stays.
    pub(super) exposed_token: Option<&'a str>,
    /// The description that the configuration gives it.
    pub(super) describe: Option<&'a str>,
    /// What becomes of `execution`.
    pub(super) execution: Execution,
}

/// What is collected while an entry is looked at.
#[derive(Default)]
struct Changes {
    edits: Vec<Edit>,
    /// Members that are put behind the last one, each with its comma.
    added: String,
    decided: shape::Decided,
    fixes: Vec<Fix>,
}

// === impl RenderClass ===

impl RenderClass {
    /// The class of a revision.
    pub fn of(revision: Revision) -> Self {
        match revision {
            Revision::V2024_11_05 | Revision::V2025_03_26 => Self::Old,
            Revision::V2025_06_18 | Revision::V2025_11_25 => Self::Structured,
            Revision::V2026_07_28 => Self::Modern,
        }
    }
}

// === impl Fix ===

impl Fix {
    /// Whether the entry was left out.
    pub fn is_left_out(self) -> bool {
        matches!(self, Self::NoObject | Self::NoName | Self::BadSchema | Self::Doubled)
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MemberRemoved(name) => {
                return write!(f, "its `{name}` is null or of the wrong type: it was removed");
            }
            Self::ElementRemoved => "an element of one of its arrays is null or of the wrong type: it was removed",
            Self::SchemaAdded => "it has no inputSchema: {\"type\":\"object\"} was added",
            Self::SchemaTyped => "its inputSchema lacks \"type\":\"object\": that was added",
            Self::NameAdded => "it has no name: its URI was put there",
            Self::NoObject => "it is no JSON object: left out",
            Self::NoName => "its name or URI is missing, empty or no string: left out",
            Self::BadSchema => "its inputSchema is no object: left out",
            Self::Doubled => "its name or URI was listed before: left out",
        })
    }
}

// === impl Repair ===

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.kind.noun(), self.name, self.what)
    }
}

// === impl Draft ===

impl<'a> Draft<'a> {
    /// Reads an entry that is valid JSON.
    pub(super) fn read(kind: Kind, raw: &'a [u8]) -> Result<Self, Fix> {
        let start = json::skip_space(raw, 0);
        if raw.get(start) != Some(&b'{') {
            return Err(Fix::NoObject);
        }
        let members: Vec<_> = json::members(raw, 0..raw.len()).collect();
        let token = last(raw, &members, kind.name_key()).map(|member| member.value.clone()).ok_or(Fix::NoName)?;
        let original = json::string(raw, token.clone()).filter(|name| !name.is_empty()).ok_or(Fix::NoName)?;
        Ok(Self { raw, original: original.into(), members, token })
    }

    /// The token in memory of its own, so that an entry does not keep a whole page alive.
    pub(super) fn token_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.raw[self.token.clone()])
    }

    /// The value of a member.
    pub(super) fn get(&self, name: &str) -> Option<Range<usize>> {
        last(self.raw, &self.members, name).map(|member| member.value.clone())
    }

    /// Whether the tool's annotations say so.
    pub(super) fn hint(&self, name: &str) -> bool {
        let hint = self.get("annotations").and_then(|annotations| json::get(self.raw, annotations, name));
        hint.is_some_and(|hint| &self.raw[hint] == b"true")
    }

    /// What its `execution` says.
    pub(super) fn task_support(&self) -> TaskSupport {
        let support = self.get("execution").and_then(|execution| json::get(self.raw, execution, "taskSupport"));
        match support.map(|support| &self.raw[support]) {
            Some(b"\"optional\"") => TaskSupport::Optional,
            Some(b"\"required\"") => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        }
    }

    /// The places of the URI of its user interface: the nested key first, then the old flat one.
    fn ui_tokens(&self) -> impl Iterator<Item = Range<usize>> {
        let meta = self.get("_meta");
        let nested = meta.clone().and_then(|meta| json::path(self.raw, meta, &["ui", "resourceUri"]));
        let flat = meta.and_then(|meta| json::get(self.raw, meta, "ui/resourceUri"));
        nested.into_iter().chain(flat)
    }

    /// The URI of its user interface.
    pub(super) fn ui_uri(&self) -> Option<CompactString> {
        self.ui_tokens().find_map(|token| json::string(self.raw, token)).map(CompactString::from)
    }

    /// The entry as the host sees it. Repairs are added to `fixes`; `Err` leaves it out.
    pub(super) fn render(&self, plan: &Plan<'_>, fixes: &mut Vec<Fix>) -> Result<Vec<u8>, Fix> {
        let mut changes = Changes::default();
        // Doubled members are replaced alike, lest a reader that takes the first sees the child's own name.
        if let Some(token) = plan.exposed_token {
            let places = self.all(plan.kind.name_key());
            changes.edits.extend(places.map(|member| Edit::text(member.value.clone(), token)));
        }
        match plan.kind {
            Kind::Tools => self.mend_tool(plan, &mut changes)?,
            Kind::Prompts => {}
            Kind::Resources | Kind::Templates => self.mend_resource(&mut changes),
        }
        self.describe(plan, &mut changes);

        shape::mend(plan.kind, self.raw, &changes.decided, &mut changes.edits, &mut changes.fixes);
        if !changes.added.is_empty() {
            let end = self.members.last().map_or(1, |member| member.value.end);
            changes.edits.push(Edit::text(end..end, changes.added));
        }
        fixes.append(&mut changes.fixes);
        Ok(splice::apply(self.raw, &mut changes.edits))
    }

    fn mend_tool(&self, plan: &Plan<'_>, changes: &mut Changes) -> Result<(), Fix> {
        match self.get("inputSchema") {
            None => {
                changes.added.push_str(r#","inputSchema":{"type":"object"}"#);
                changes.fixes.push(Fix::SchemaAdded);
            }
            Some(schema) if !json::is_object(self.raw, &schema) => return Err(Fix::BadSchema),
            Some(schema) if !says_object(self.raw, &schema) => {
                changes.edits.extend(type_object(self.raw, &schema));
                changes.fixes.push(Fix::SchemaTyped);
            }
            Some(_) => {}
        }
        let output = self.get("outputSchema");
        let is_other = |schema: Range<usize>| json::is_object(self.raw, &schema) && !says_object(self.raw, &schema);
        if plan.class == RenderClass::Structured && output.is_some_and(is_other) {
            changes.decided.out.push("outputSchema");
        }
        if plan.execution != Execution::AsItIs {
            changes.decided.out.push("execution");
        }
        if plan.execution == Execution::Optional {
            changes.added.push_str(r#","execution":{"taskSupport":"optional"}"#);
        }
        for token in self.ui_tokens() {
            if let Some(uri) = json::string(self.raw, token.clone()) {
                let exposed = expose_uri(plan.safe_prefix, &uri);
                if exposed != uri {
                    changes.edits.push(Edit::text(token, json::quoted(&exposed)));
                }
            }
        }
        Ok(())
    }

    fn mend_resource(&self, changes: &mut Changes) {
        let name = self.get("name");
        if name.as_ref().is_some_and(|name| self.raw[name.start] == b'"') {
            return;
        }
        let uri = std::str::from_utf8(&self.raw[self.token.clone()]).unwrap_or("\"\"");
        if let Some(name) = name {
            changes.edits.push(Edit::text(name, uri));
        } else {
            changes.added.push_str(",\"name\":");
            changes.added.push_str(uri);
        }
        changes.fixes.push(Fix::NameAdded);
    }

    fn describe(&self, plan: &Plan<'_>, changes: &mut Changes) {
        let Some(text) = plan.describe else { return };
        if let Some(own) = self.get("description") {
            changes.edits.push(Edit::text(own, json::quoted(text)));
            changes.decided.replaced.push("description");
        } else {
            changes.added.push_str(",\"description\":");
            changes.added.push_str(&json::quoted(text));
        }
    }

    fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Member> {
        self.members.iter().filter(move |member| json::key_is(self.raw, &member.key, name))
    }
}

fn last<'a>(raw: &[u8], members: &'a [Member], name: &str) -> Option<&'a Member> {
    members.iter().rfind(|member| json::key_is(raw, &member.key, name))
}

/// Whether a schema's root says `"type":"object"`.
fn says_object(raw: &[u8], schema: &Range<usize>) -> bool {
    let kind = json::get(raw, schema.clone(), "type");
    kind.and_then(|kind| json::string(raw, kind)).is_some_and(|kind| kind == "object")
}

/// Makes an object say `"type":"object"`.
fn type_object(raw: &[u8], schema: &Range<usize>) -> Vec<Edit> {
    let members: Vec<_> = json::members(raw, schema.clone()).collect();
    let wrong: Vec<_> = members.iter().filter(|member| json::key_is(raw, &member.key, "type")).collect();
    if wrong.is_empty() {
        let at = schema.start + 1;
        let text = if members.is_empty() { r#""type":"object""# } else { r#""type":"object","# };
        return vec![Edit::text(at..at, text)];
    }
    wrong.into_iter().map(|member| Edit::text(member.value.clone(), r#""object""#)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAN: Plan<'_> = Plan {
        kind: Kind::Tools,
        class: RenderClass::Structured,
        safe_prefix: "gh",
        exposed_token: Some("\"gh__x\""),
        describe: None,
        execution: Execution::AsItIs,
    };

    fn render(plan: &Plan<'_>, raw: &str) -> Result<(String, Vec<Fix>), Fix> {
        let mut fixes = Vec::new();
        let text = Draft::read(plan.kind, raw.as_bytes())?.render(plan, &mut fixes)?;
        Ok((String::from_utf8(text).unwrap(), fixes))
    }

    fn check(plan: &Plan<'_>, raw: &str, expected: &str, fixes: &[Fix]) {
        assert_eq!(render(plan, raw), Ok((expected.to_owned(), fixes.to_vec())), "{raw}");
    }

    #[test]
    fn tools_get_the_least_repair() {
        for (raw, expected, fixes) in [
            (
                r#"{ "x_future" : [1.0, 9007199254740993],"name":"x", "inputSchema":{"$defs":{},"type":"object"},"future":null }"#,
                r#"{ "x_future" : [1.0, 9007199254740993],"name":"gh__x", "inputSchema":{"$defs":{},"type":"object"},"future":null }"#,
                vec![],
            ),
            (r#"{"name":"x"}"#, r#"{"name":"gh__x","inputSchema":{"type":"object"}}"#, vec![Fix::SchemaAdded]),
            (
                r#"{"name":"x","inputSchema":{}}"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"}}"#,
                vec![Fix::SchemaTyped],
            ),
            (
                r#"{"inputSchema":{ "anyOf":[]},"name":"x"}"#,
                r#"{"inputSchema":{"type":"object", "anyOf":[]},"name":"gh__x"}"#,
                vec![Fix::SchemaTyped],
            ),
            (
                r#"{"inputSchema":{"a":1,"type":["object","null"]},"name":"x"}"#,
                r#"{"inputSchema":{"a":1,"type":"object"},"name":"gh__x"}"#,
                vec![Fix::SchemaTyped],
            ),
            (
                r#"{"description":null,"name":"x","inputSchema":{"type":"object"}}"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"}}"#,
                vec![Fix::MemberRemoved("description")],
            ),
            (
                r#"{"name":"x","inputSchema":{"type":"object"} , "description" : null }"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"} }"#,
                vec![Fix::MemberRemoved("description")],
            ),
            (
                r#"{"outputSchema":null,"description":null,"name":"x","description":null}"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"}}"#,
                vec![
                    Fix::SchemaAdded,
                    Fix::MemberRemoved("outputSchema"),
                    Fix::MemberRemoved("description"),
                    Fix::MemberRemoved("description"),
                ],
            ),
            (
                r#"{"name":"y","name":"x","inputSchema":{"type":"object"}}"#,
                r#"{"name":"gh__x","name":"gh__x","inputSchema":{"type":"object"}}"#,
                vec![],
            ),
            (
                r#"{"n\u0061me":"x","inputSchema":{"type":"obj\u0065ct"}}"#,
                r#"{"n\u0061me":"gh__x","inputSchema":{"type":"obj\u0065ct"}}"#,
                vec![],
            ),
            (
                r#"{"name":"x","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://f"},"ui/resourceUri":"ui://f","k":"ui://f"}}"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://gh/f"},"ui/resourceUri":"ui://gh/f","k":"ui://f"}}"#,
                vec![],
            ),
        ] {
            check(&PLAN, raw, expected, &fixes);
        }
    }

    #[test]
    fn members_that_hosts_refuse_are_removed_singly() {
        let removed = Fix::MemberRemoved;
        let tool = |members: &str| format!(r#"{{"name":"x","inputSchema":{{"type":"object"}},{members}}}"#);
        for (members, expected, fixes) in [
            (r#""title":null"#, "", vec![removed("title")]),
            (r#""title":"t","icons":null,"_meta":null"#, r#","title":"t""#, vec![removed("icons"), removed("_meta")]),
            (
                r#""annotations":{"title":null,"readOnlyHint":true,"idempotentHint":"yes"}"#,
                r#","annotations":{"readOnlyHint":true}"#,
                vec![removed("title"), removed("idempotentHint")],
            ),
            (r#""annotations":{"title":null}"#, r#","annotations":{}"#, vec![removed("title")]),
            (r#""annotations":[]"#, "", vec![removed("annotations")]),
            (
                r#""icons":[{"src":"a","mimeType":null},{"mimeType":null},null,{"src":"b","sizes":["1x1",2]}]"#,
                r#","icons":[{"src":"a"},{"src":"b","sizes":["1x1"]}]"#,
                vec![removed("mimeType"), Fix::ElementRemoved, Fix::ElementRemoved, Fix::ElementRemoved],
            ),
            (
                r#""execution":{"taskSupport":null},"x":null"#,
                r#","execution":{},"x":null"#,
                vec![removed("taskSupport")],
            ),
        ] {
            let expected = format!(r#"{{"name":"gh__x","inputSchema":{{"type":"object"}}{expected}}}"#);
            check(&PLAN, &tool(members), &expected, &fixes);
        }
        let prompt = Plan { kind: Kind::Prompts, ..PLAN };
        check(
            &prompt,
            r#"{"name":"x","arguments":[{"name":"a","description":null,"required":null},{"name":null},{"name":"b","required":true}]}"#,
            r#"{"name":"gh__x","arguments":[{"name":"a"},{"name":"b","required":true}]}"#,
            &[removed("description"), removed("required"), Fix::ElementRemoved],
        );
        let resource = Plan { kind: Kind::Resources, exposed_token: Some("\"gh+a:b\""), ..PLAN };
        check(
            &resource,
            r#"{"uri":"a:b","name":"n","mimeType":null,"size":"1","annotations":{"priority":null,"audience":["user",null]}}"#,
            r#"{"uri":"gh+a:b","name":"n","annotations":{"audience":["user"]}}"#,
            &[removed("mimeType"), removed("size"), removed("priority"), Fix::ElementRemoved],
        );
    }

    #[test]
    fn what_nothing_can_save_is_left_out() {
        for (raw, fix) in [
            ("7", Fix::NoObject),
            ("[]", Fix::NoObject),
            ("{}", Fix::NoName),
            (r#"{"name":""}"#, Fix::NoName),
            (r#"{"name":7}"#, Fix::NoName),
            (r#"{"name":null}"#, Fix::NoName),
            (r#"{"name":"x","inputSchema":null}"#, Fix::BadSchema),
            (r#"{"name":"x","inputSchema":true}"#, Fix::BadSchema),
            (r#"{"name":"x","inputSchema":"{}"}"#, Fix::BadSchema),
        ] {
            assert_eq!(render(&PLAN, raw), Err(fix), "{raw}");
            assert!(fix.is_left_out());
        }
    }

    #[test]
    fn an_output_schema_goes_where_the_revision_knows_objects_only() {
        let raw = r#"{"name":"x","outputSchema":{"type":"array"},"inputSchema":{"type":"object"}}"#;
        let with = r#"{"name":"gh__x","outputSchema":{"type":"array"},"inputSchema":{"type":"object"}}"#;
        check(&PLAN, raw, r#"{"name":"gh__x","inputSchema":{"type":"object"}}"#, &[]);
        check(&Plan { class: RenderClass::Old, ..PLAN }, raw, with, &[]);
        check(&Plan { class: RenderClass::Modern, ..PLAN }, raw, with, &[]);
        let object = r#"{"name":"gh__x","outputSchema":{"type":"object"},"inputSchema":{"type":"object"}}"#;
        check(&PLAN, object, object, &[]);
    }

    #[test]
    fn descriptions_and_execution_follow_the_configuration() {
        let plan = Plan { describe: Some("Ours \"now\"."), execution: Execution::Removed, ..PLAN };
        for (raw, expected) in [
            (
                r#"{"execution":{"taskSupport":"optional"},"description":null,"name":"x","inputSchema":{"type":"object"}}"#,
                r#"{"description":"Ours \"now\".","name":"gh__x","inputSchema":{"type":"object"}}"#,
            ),
            (
                r#"{"name":"x","inputSchema":{"type":"object"},"execution":{}}"#,
                r#"{"name":"gh__x","inputSchema":{"type":"object"},"description":"Ours \"now\"."}"#,
            ),
        ] {
            check(&plan, raw, expected, &[]);
        }
    }

    #[test]
    fn resources_need_a_name_and_prompts_nothing_more() {
        let resource = Plan { kind: Kind::Resources, exposed_token: Some("\"gh+a:b\""), ..PLAN };
        check(&resource, r#"{"uri":"a:b","name":""}"#, r#"{"uri":"gh+a:b","name":""}"#, &[]);
        check(&resource, r#"{"uri":"a:b"}"#, r#"{"uri":"gh+a:b","name":"a:b"}"#, &[Fix::NameAdded]);
        check(&resource, r#"{"name":null,"uri":"a:b"}"#, r#"{"name":"a:b","uri":"gh+a:b"}"#, &[Fix::NameAdded]);
        check(
            &resource,
            r#"{"uri":"a:b","name":"n","size":1e400}"#,
            r#"{"uri":"gh+a:b","name":"n","size":1e400}"#,
            &[],
        );
        let prompt = Plan { kind: Kind::Prompts, ..PLAN };
        let plain = |name: &str| format!(r#"{{"name":"{name}","arguments":[{{"name":"a"}}]}}"#);
        check(&prompt, &plain("x"), &plain("gh__x"), &[]);
    }

    proptest! {
        /// Whatever order and mixture of members: the result is JSON, lawful, and keeps what it need not change.
        #[test]
        fn the_result_is_always_lawful(
            members in proptest::collection::vec(
                proptest::sample::select(vec![
                    r#""description":null"#, r#""description":"d""#, r#""outputSchema":{}"#, r#""execution":{}"#,
                    r#""inputSchema":{}"#, r#""inputSchema":{"type":"string","type":1}"#, r#""keep":[ 1.0 ]"#,
                    r#""title":null"#, r#""icons":[null, 7]"#, r#""annotations":{ "title" : 1 , "openWorldHint":false}"#,
                ]),
                0..7,
            ),
            at in 0..7_usize,
            execution in proptest::sample::select(vec![Execution::AsItIs, Execution::Removed, Execution::Optional]),
        ) {
            let mut members = members;
            members.insert(at.min(members.len()), r#""name":"x""#);
            let raw = format!("{{{}}}", members.join(" , "));
            let (text, fixes) = render(&Plan { execution, ..PLAN }, &raw).expect("a tool that can be saved");
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            prop_assert_eq!(&value["name"], "gh__x");
            prop_assert_eq!(&value["inputSchema"]["type"], "object");
            prop_assert!(value.get("description").is_none_or(serde_json::Value::is_string));
            prop_assert!(value.get("outputSchema").is_none());
            prop_assert!(value.get("title").is_none());
            prop_assert!(value.get("icons").is_none_or(|icons| icons.as_array().is_some_and(Vec::is_empty)));
            prop_assert!(value.pointer("/annotations/title").is_none());
            if execution == Execution::Optional {
                prop_assert_eq!(&value["execution"]["taskSupport"], "optional");
            }
            prop_assert_eq!(text.matches("[ 1.0 ]").count(), raw.matches("[ 1.0 ]").count());
            prop_assert!(fixes.iter().all(|fix| !fix.is_left_out()));
        }
    }
}
