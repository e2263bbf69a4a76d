//! One server's contribution to the catalog: filtered, renamed, mended, sorted and rendered once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use bytes::Bytes;
use compact_str::CompactString;

use super::super::listing::Kind;
use super::super::names::{Naming, folded};
use super::super::repair::{Draft, Execution, Fix, Plan, RenderClass, Repair, TaskSupport};
use super::super::uri::{Score, Template, expose_uri, is_web, original_uri, safe_prefix};
use super::rules::{Filter, Unmatched};
use crate::config::{Rules, Server};
use crate::wire::json;

/// What a child lists: raw entries in its own order, each a valid JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Listing {
    /// Its tools.
    pub tools: Vec<Bytes>,
    /// Its prompts.
    pub prompts: Vec<Bytes>,
    /// Its resources.
    pub resources: Vec<Bytes>,
    /// Its resource templates.
    pub templates: Vec<Bytes>,
    /// What becomes of the `execution` of its tools.
    pub execution: Execution,
}

/// One entry as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, URI or template that the host sees.
    pub exposed: CompactString,
    /// The same as a JSON string.
    pub exposed_token: Bytes,
    /// The child's own.
    pub original: CompactString,
    /// The same as the child spelled it, a JSON string.
    pub original_token: Bytes,
    /// Where the entry stands in [`Part::rendered`].
    pub at: Range<usize>,
    /// The tool's `readOnlyHint`.
    pub read_only: bool,
    /// The tool's `idempotentHint`.
    pub idempotent: bool,
    /// The tool's `execution.taskSupport`.
    pub task_support: TaskSupport,
    /// The child's own URI of the tool's user interface.
    pub ui_uri: Option<CompactString>,
}

/// One server's contribution, immutable.
#[derive(Debug)]
pub struct Part {
    key: String,
    safe_prefix: String,
    /// Entries of our own, no server's.
    ours: bool,
    kinds: [OfKind; 4],
    /// Compiled templates, as the child knows them.
    templates: Vec<Template>,
    resource_filter: Filter,
    /// The child's own URIs that its tools point at.
    ui_uris: BTreeSet<CompactString>,
    repairs: Vec<Repair>,
    unmatched: Vec<Unmatched>,
}

#[derive(Debug, Default)]
struct OfKind {
    /// The entries, joined by commas.
    rendered: Bytes,
    /// A digest of them.
    digest: u64,
    /// Sorted by the bytes of the original.
    entries: Vec<Entry>,
    /// Places in `entries`, sorted by what is exposed.
    by_exposed: Vec<usize>,
    /// What the rules leave out: exposed → original.
    filtered: BTreeMap<CompactString, CompactString>,
}

/// Builds a server's part.
pub fn build_part(naming: &Naming, server: &Server, listing: &Listing, target: RenderClass) -> Part {
    let safe_prefix = safe_prefix(&server.prefix);
    let mut part = Part::empty(server.key.clone(), safe_prefix, Filter::new(&server.resources));
    for kind in Kind::ALL {
        let own;
        let filter = match kind {
            Kind::Tools => {
                own = Filter::new(&server.tools);
                &own
            }
            Kind::Prompts => {
                own = Filter::new(&server.prompts);
                &own
            }
            Kind::Resources | Kind::Templates => &part.resource_filter,
        };
        let expose = |original: &str| match kind {
            Kind::Tools | Kind::Prompts => naming.tool_or_prompt(server, kind, original),
            Kind::Resources | Kind::Templates => expose_uri(&part.safe_prefix, original).into(),
        };
        let rules = (kind == Kind::Tools).then_some(&server.tools);
        let (of_kind, mut repairs) = collect(kind, listing, target, &part.safe_prefix, filter, rules, expose);
        part.kinds[kind as usize] = of_kind;
        part.repairs.append(&mut repairs);
    }
    part.finish();
    part.unmatched = Unmatched::of(server, |kind| part.originals(kind).collect());
    part
}

/// Filters, exposes, mends and sorts one list.
fn collect(
    kind: Kind,
    listing: &Listing,
    class: RenderClass,
    safe_prefix: &str,
    filter: &Filter,
    rules: Option<&Rules>,
    expose: impl Fn(&str) -> CompactString,
) -> (OfKind, Vec<Repair>) {
    let mut repairs = Vec::new();
    let mut repair = |name: &str, what| repairs.push(Repair { kind, name: name.into(), what });
    let describes: HashMap<&str, &str> =
        rules.iter().flat_map(|rules| &rules.describe).map(|(own, text)| (own.as_str(), text.as_str())).collect();

    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for raw in listing.of(kind) {
        match Draft::read(kind, raw) {
            Ok(draft) => drafts.push(draft),
            Err(fix) => repair("", fix),
        }
    }
    // A stable sort: of two with one name the child's first stands first.
    drafts.sort_by(|a, b| a.original.cmp(&b.original));

    let mut of_kind = OfKind::default();
    let mut text = Vec::new();
    let mut exposures = BTreeSet::new();
    let mut before: Option<CompactString> = None;
    for draft in drafts {
        let original = draft.original.clone();
        if before.replace(original.clone()).as_ref() == Some(&original) {
            repair(&original, Fix::Doubled);
            continue;
        }
        let exposed = expose(&original);
        if !filter.permits(&original) {
            of_kind.filtered.insert(exposed, original);
            continue;
        }
        if exposures.contains(&exposed) {
            repair(&original, Fix::Doubled);
            continue;
        }
        let exposed_token = json::quoted(&exposed);
        let plan = Plan {
            kind,
            class,
            safe_prefix,
            exposed_token: (exposed != original).then_some(exposed_token.as_str()),
            describe: describes.get(original.as_str()).copied(),
            execution: listing.execution,
        };
        let mut fixes = Vec::new();
        let rendered = match draft.render(&plan, &mut fixes) {
            Ok(rendered) => rendered,
            Err(fix) => {
                repair(&original, fix);
                continue;
            }
        };
        for fix in fixes {
            repair(&original, fix);
        }
        if !text.is_empty() {
            text.push(b',');
        }
        let start = text.len();
        text.extend_from_slice(&rendered);
        exposures.insert(exposed.clone());
        of_kind.entries.push(Entry {
            at: start..text.len(),
            exposed_token: if exposed == original { draft.token_bytes() } else { exposed_token.into() },
            exposed,
            original_token: draft.token_bytes(),
            read_only: draft.hint("readOnlyHint"),
            idempotent: draft.hint("idempotentHint"),
            task_support: draft.task_support(),
            ui_uri: if kind == Kind::Tools { draft.ui_uri() } else { None },
            original,
        });
    }
    of_kind.rendered = text.into();
    let mut hasher = DefaultHasher::new();
    of_kind.rendered.hash(&mut hasher);
    of_kind.digest = hasher.finish();
    (of_kind, repairs)
}

// === impl Listing ===

impl Listing {
    /// The entries of a kind.
    pub fn of(&self, kind: Kind) -> &[Bytes] {
        match kind {
            Kind::Tools => &self.tools,
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
        }
    }

    /// The entries of a kind, to be replaced.
    pub fn of_mut(&mut self, kind: Kind) -> &mut Vec<Bytes> {
        match kind {
            Kind::Tools => &mut self.tools,
            Kind::Prompts => &mut self.prompts,
            Kind::Resources => &mut self.resources,
            Kind::Templates => &mut self.templates,
        }
    }
}

// === impl Part ===

impl Part {
    /// Entries of our own, shown as they are: their names win over every server's, and what is not among them is never
    /// ours.
    pub fn verbatim(key: &str, listing: &Listing) -> Self {
        let mut part = Self::empty(key.to_owned(), String::new(), Filter::all());
        for kind in Kind::ALL {
            let (of_kind, _) =
                collect(kind, listing, RenderClass::Modern, "", &part.resource_filter, None, |uri| uri.into());
            part.kinds[kind as usize] = of_kind;
        }
        part.ours = true;
        part.finish();
        part
    }

    /// The entries of a kind, joined by commas.
    pub fn rendered(&self, kind: Kind) -> &Bytes {
        &self.kinds[kind as usize].rendered
    }

    /// A digest of [`Self::rendered`].
    pub(super) fn digest(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].digest
    }

    /// The entries of a kind, sorted by the bytes of the child's own name or URI.
    pub fn entries(&self, kind: Kind) -> &[Entry] {
        &self.kinds[kind as usize].entries
    }

    /// How many of a kind the host sees.
    pub fn count(&self, kind: Kind) -> usize {
        self.entries(kind).len()
    }

    /// The entry that the host sees under this name.
    pub fn find(&self, kind: Kind, exposed: &str) -> Option<&Entry> {
        let of_kind = &self.kinds[kind as usize];
        let at = of_kind.by_exposed.binary_search_by(|&at| of_kind.entries[at].exposed.as_str().cmp(exposed)).ok()?;
        Some(&of_kind.entries[of_kind.by_exposed[at]])
    }

    /// The entry that the child knows under this name.
    pub fn find_original(&self, kind: Kind, original: &str) -> Option<&Entry> {
        let entries = self.entries(kind);
        let at = entries.binary_search_by(|entry| entry.original.as_str().cmp(original)).ok()?;
        Some(&entries[at])
    }

    /// Whether the configuration's rules leave out what has this exposed or own name: a call of it is refused, where
    /// an unknown name is an error of the caller.
    pub fn filtered(&self, kind: Kind, name: &str) -> bool {
        let filtered = &self.kinds[kind as usize].filtered;
        filtered.contains_key(name) || filtered.values().any(|original| original == name)
    }

    /// The child's own name of what the rules leave out under this exposed name.
    pub fn filtered_original(&self, kind: Kind, exposed: &str) -> Option<&str> {
        self.kinds[kind as usize].filtered.get(exposed).map(CompactString::as_str)
    }

    /// What the rules leave out: exposed and own names.
    pub fn filtered_names(&self, kind: Kind) -> impl Iterator<Item = (&str, &str)> {
        self.kinds[kind as usize].filtered.iter().map(|(exposed, original)| (exposed.as_str(), original.as_str()))
    }

    /// What was mended or left out.
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// Rules that match nothing that the child lists.
    pub fn unmatched_rules(&self) -> &[Unmatched] {
        &self.unmatched
    }

    /// Groups of tool and prompt names that hosts which fold case, `-` and `_` take for one.
    pub fn folded_names(&self) -> Vec<Vec<CompactString>> {
        let mut groups: BTreeMap<(Kind, CompactString), Vec<CompactString>> = BTreeMap::new();
        for kind in [Kind::Tools, Kind::Prompts] {
            for entry in self.entries(kind) {
                groups.entry((kind, folded(&entry.exposed))).or_default().push(entry.exposed.clone());
            }
        }
        groups.into_values().filter(|group| group.len() > 1).collect()
    }

    /// The server's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The prefix of its URIs; empty for the server without.
    pub fn safe_prefix(&self) -> &str {
        &self.safe_prefix
    }

    /// Whether these are entries of our own.
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// The child's own form of a URI that the host sees; `None` if it can't be this server's.
    pub fn own_form(&self, exposed: &str) -> Option<String> {
        if self.ours {
            None
        } else if self.safe_prefix.is_empty() || is_web(exposed) {
            Some(exposed.to_owned())
        } else {
            original_uri(&self.safe_prefix, exposed)
        }
    }

    /// Whether a tool of it has a user interface.
    pub fn bears_ui(&self) -> bool {
        !self.ui_uris.is_empty()
    }

    /// Whether the child's own URI is listed, or pointed at by a tool.
    pub fn lists_uri(&self, original: &str) -> bool {
        self.find_original(Kind::Resources, original).is_some() || self.ui_uris.contains(original)
    }

    /// The best of its templates for the child's own URI.
    pub fn match_template(&self, original: &str) -> Option<Score> {
        self.templates.iter().filter_map(|template| template.matches(original)).max()
    }

    /// Whether the rules let the host read the child's own URI: what they deny never, what they don't allow only
    /// through a template that they do.
    pub fn permits_uri(&self, original: &str) -> bool {
        !self.resource_filter.denies(original)
            && (self.resource_filter.permits(original) || self.match_template(original).is_some())
    }

    /// All that the child lists and that is lawful, what the rules leave out included.
    fn originals(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let of_kind = &self.kinds[kind as usize];
        let shown = of_kind.entries.iter().map(|entry| entry.original.as_str());
        shown.chain(of_kind.filtered.values().map(CompactString::as_str))
    }

    fn empty(key: String, safe_prefix: String, resource_filter: Filter) -> Self {
        Self {
            key,
            safe_prefix,
            ours: false,
            kinds: Default::default(),
            templates: Vec::new(),
            resource_filter,
            ui_uris: BTreeSet::new(),
            repairs: Vec::new(),
            unmatched: Vec::new(),
        }
    }

    /// Builds what is looked up.
    fn finish(&mut self) {
        for of_kind in &mut self.kinds {
            let entries = &of_kind.entries;
            of_kind.by_exposed = (0..entries.len()).collect();
            of_kind.by_exposed.sort_unstable_by(|&a, &b| entries[a].exposed.cmp(&entries[b].exposed));
        }
        let templates = self.entries(Kind::Templates).iter();
        self.templates = templates.filter_map(|entry| Template::parse(&entry.original)).collect();
        self.ui_uris = self.entries(Kind::Tools).iter().filter_map(|entry| entry.ui_uri.clone()).collect();
    }
}
