//! What the configuration lets through: globs over the child's own names and URIs.

use globset::{GlobSet, GlobSetBuilder};

use super::super::listing::Kind;
use crate::config::{Rules, Server, glob};

/// The compiled `allow` and `deny` of one kind, the profile's included.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Each must match; empty: all names do.
    allow: Vec<GlobSet>,
    deny: GlobSet,
}

/// A rule that matches nothing that the child lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unmatched {
    /// Where it stands, such as `tools.allow`.
    pub rule: &'static str,
    /// The glob or the name.
    pub pattern: String,
}

// === impl Filter ===

impl Filter {
    pub(super) fn new(rules: &Rules) -> Self {
        let allow = [Some(&rules.allow), rules.profile_allow.as_ref()];
        let allow = allow.into_iter().flatten().filter(|globs| !globs.is_empty());
        Self { allow: allow.map(glob_set).collect(), deny: glob_set(rules.deny.iter().chain(&rules.profile_deny)) }
    }

    /// Lets everything through.
    pub(super) fn all() -> Self {
        Self { allow: Vec::new(), deny: GlobSet::empty() }
    }

    pub(super) fn denies(&self, name: &str) -> bool {
        self.deny.is_match(name)
    }

    pub(super) fn permits(&self, name: &str) -> bool {
        !self.denies(name) && self.allow.iter().all(|globs| globs.is_match(name))
    }
}

/// The rule that leaves a child's own name out: its key in the table, and the glob, where one matched.
pub fn hiding_rule<'a>(rules: &'a Rules, name: &str) -> Option<(&'static str, Option<&'a str>)> {
    let matching = |globs: &'a [String]| globs.iter().find(|glob| glob_set([*glob]).is_match(name)).map(String::as_str);
    let lacking = |globs: &'a [String]| !globs.is_empty() && matching(globs).is_none();
    if let Some(glob) = matching(&rules.deny) {
        return Some(("deny", Some(glob)));
    }
    if let Some(glob) = matching(&rules.profile_deny) {
        return Some(("deny of the profile", Some(glob)));
    }
    if lacking(&rules.allow) {
        return Some(("allow", None));
    }
    rules.profile_allow.as_deref().filter(|globs| lacking(globs)).map(|_| ("allow of the profile", None))
}

fn glob_set<'a>(globs: impl IntoIterator<Item = &'a String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for text in globs {
        if let Ok(glob) = glob(text) {
            set.add(glob);
        }
        // A template such as `docs://{id}` also stands for itself, though braces are alternatives in a glob.
        if text.contains(['{', '[', '\\'])
            && let Ok(glob) = glob(&globset::escape(text))
        {
            set.add(glob);
        }
    }
    set.build().unwrap_or_default()
}

// === impl Unmatched ===

impl Unmatched {
    /// Looks for rules without effect among the names and URIs that the child lists.
    pub(super) fn of<'a>(server: &Server, originals: impl Fn(Kind) -> Vec<&'a str>) -> Vec<Self> {
        let tools = originals(Kind::Tools);
        let prompts = originals(Kind::Prompts);
        let resources = [originals(Kind::Resources), originals(Kind::Templates)].concat();
        let mut found = Vec::new();
        for (rules, names, [allow, deny, profile_allow, profile_deny]) in [
            (&server.tools, &tools, ["tools.allow", "tools.deny", "profile tools.allow", "profile tools.deny"]),
            (
                &server.prompts,
                &prompts,
                ["prompts.allow", "prompts.deny", "profile prompts.allow", "profile prompts.deny"],
            ),
            (
                &server.resources,
                &resources,
                ["resources.allow", "resources.deny", "profile resources.allow", "profile resources.deny"],
            ),
        ] {
            let empty = Vec::new();
            for (rule, globs) in [
                (allow, &rules.allow),
                (deny, &rules.deny),
                (profile_allow, rules.profile_allow.as_ref().unwrap_or(&empty)),
                (profile_deny, &rules.profile_deny),
            ] {
                for glob in globs.iter().filter(|glob| *glob != "*") {
                    let set = glob_set([glob]);
                    if !names.iter().any(|name| set.is_match(name)) {
                        found.push(Self { rule, pattern: glob.clone() });
                    }
                }
            }
        }
        for (rule, pairs) in [("tools.rename", &server.tools.rename), ("tools.describe", &server.tools.describe)] {
            let without = pairs.iter().filter(|(own, _)| !tools.contains(&own.as_str()));
            found.extend(without.map(|(own, _)| Self { rule, pattern: own.clone() }));
        }
        found
    }
}
