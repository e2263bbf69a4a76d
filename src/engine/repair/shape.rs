//! What the protocol's schemas ask of the members that an entry may have (`Tool`, `Prompt`, `Resource` and
//! `ResourceTemplate`, alike in all revisions that know them): hosts that check a list by them refuse all of it for one
//! `null`.

use std::ops::Range;

use super::Fix;
use crate::engine::listing::Kind;
use crate::wire::json;
use crate::wire::splice::Edit;

/// What a value has to be.
enum Shape {
    Text,
    Number,
    Flag,
    /// An object, of whose members these are known.
    Object(&'static [Field]),
    /// An array of such values.
    Array(&'static Shape),
}

/// A known member of an object.
struct Field {
    name: &'static str,
    shape: Shape,
    /// Whether the object is worth nothing without it.
    required: bool,
}

const fn may(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

const fn must(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

const TITLE: Field = may("title", Shape::Text);
const DESCRIPTION: Field = may("description", Shape::Text);
const MIME_TYPE: Field = may("mimeType", Shape::Text);
const META: Field = may("_meta", Shape::Object(&[]));
const ICONS: Field = may(
    "icons",
    Shape::Array(&Shape::Object(&[
        must("src", Shape::Text),
        MIME_TYPE,
        may("sizes", Shape::Array(&Shape::Text)),
        may("theme", Shape::Text),
    ])),
);
const ANNOTATIONS: Field = may(
    "annotations",
    Shape::Object(&[
        may("audience", Shape::Array(&Shape::Text)),
        may("priority", Shape::Number),
        may("lastModified", Shape::Text),
    ]),
);
const TOOL: [Field; 7] = [
    TITLE,
    DESCRIPTION,
    ICONS,
    META,
    may("outputSchema", Shape::Object(&[])),
    may("execution", Shape::Object(&[may("taskSupport", Shape::Text)])),
    may(
        "annotations",
        Shape::Object(&[
            TITLE,
            may("readOnlyHint", Shape::Flag),
            may("destructiveHint", Shape::Flag),
            may("idempotentHint", Shape::Flag),
            may("openWorldHint", Shape::Flag),
        ]),
    ),
];
const PROMPT: [Field; 5] = [
    TITLE,
    DESCRIPTION,
    ICONS,
    META,
    may(
        "arguments",
        Shape::Array(&Shape::Object(&[must("name", Shape::Text), TITLE, DESCRIPTION, may("required", Shape::Flag)])),
    ),
];
const RESOURCE: [Field; 7] = [TITLE, DESCRIPTION, MIME_TYPE, may("size", Shape::Number), ANNOTATIONS, ICONS, META];

/// What was decided about members of the entry itself, whatever their shape.
#[derive(Default)]
pub(super) struct Decided {
    /// They are taken out.
    pub(super) out: Vec<&'static str>,
    /// They are replaced.
    pub(super) replaced: Vec<&'static str>,
}

/// Takes out of an entry what is not as the protocol has it: the least that makes the rest lawful.
pub(super) fn mend(kind: Kind, raw: &[u8], decided: &Decided, edits: &mut Vec<Edit>, fixes: &mut Vec<Fix>) {
    let fields: &[Field] = match kind {
        Kind::Tools => &TOOL,
        Kind::Prompts => &PROMPT,
        Kind::Resources | Kind::Templates => &RESOURCE,
    };
    let whole = 0..raw.len();
    Mender { raw, edits, fixes }.object(whole, fields, decided);
}

struct Mender<'a> {
    raw: &'a [u8],
    edits: &'a mut Vec<Edit>,
    fixes: &'a mut Vec<Fix>,
}

// === impl Mender ===

impl Mender<'_> {
    /// Mends within a value; `false` if it can't be saved.
    fn value(&mut self, value: Range<usize>, shape: &Shape) -> bool {
        let first = self.raw[value.start];
        match shape {
            Shape::Text => first == b'"',
            Shape::Number => first == b'-' || first.is_ascii_digit(),
            Shape::Flag => matches!(first, b't' | b'f'),
            Shape::Object(fields) => first == b'{' && self.object(value, fields, &Decided::default()),
            Shape::Array(shape) => {
                let raw = self.raw;
                let items = json::elements(raw, value)
                    .map(|item| (item.clone(), self.kept(item, shape, Fix::ElementRemoved)))
                    .collect::<Vec<_>>();
                self.take_out(&items);
                first == b'['
            }
        }
    }

    /// Mends within the members; `false` if one is missing that must be there.
    fn object(&mut self, object: Range<usize>, fields: &[Field], decided: &Decided) -> bool {
        let raw = self.raw;
        let mut missing: Vec<_> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut items = Vec::new();
        for member in json::members(raw, object) {
            let is = |name: &str| json::key_is(raw, &member.key, name);
            let kept = if decided.out.iter().any(|name| is(name)) {
                false
            } else if decided.replaced.iter().any(|name| is(name)) {
                true
            } else if let Some(field) = fields.iter().find(|field| is(field.name)) {
                let kept = self.kept(member.value.clone(), &field.shape, Fix::MemberRemoved(field.name));
                missing.retain(|name| !kept || *name != field.name);
                kept
            } else {
                true
            };
            items.push((member.key.start..member.value.end, kept));
        }
        self.take_out(&items);
        missing.is_empty()
    }

    /// Mends within a part; one that can't be saved is to be taken out, which is told instead of all that was done in it.
    fn kept(&mut self, part: Range<usize>, shape: &Shape, fix: Fix) -> bool {
        let (edits, fixes) = (self.edits.len(), self.fixes.len());
        let kept = self.value(part, shape);
        if !kept {
            self.edits.truncate(edits);
            self.fixes.truncate(fixes);
            self.fixes.push(fix);
        }
        kept
    }

    /// Takes parts of an object or array out, each with one comma.
    fn take_out(&mut self, parts: &[(Range<usize>, bool)]) {
        let mut kept_before = false;
        for (i, (part, kept)) in parts.iter().enumerate() {
            if *kept {
                kept_before = true;
            } else if kept_before {
                self.edits.push(Edit::remove(parts[i - 1].0.end..part.end));
            } else {
                let end = parts.get(i + 1).map_or(part.end, |(next, _)| next.start);
                self.edits.push(Edit::remove(part.start..end));
            }
        }
    }
}
