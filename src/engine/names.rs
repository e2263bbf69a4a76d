//! The names that the host sees: a function of the configuration and of the child's own name only (`DESIGN.md`
//! chapter 5), so never of start order, of time or of what else a child lists.

use std::sync::Arc;

use compact_str::CompactString;
use sha2::{Digest, Sha256};

use super::listing::Kind;
use crate::config::{Config, Server};

/// Length of the hash at the end of a name that had to be changed, in characters.
const HASH_LENGTH: usize = 8;

/// What names depend on beside the server's own table. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Naming {
    shared: Arc<Shared>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shared {
    separator: String,
    max_name_length: usize,
    /// Prefix and separator of every server that has a prefix.
    starts: Vec<String>,
}

// === impl Naming ===

impl Naming {
    /// Takes what matters out of the configuration.
    pub fn new(config: &Config) -> Self {
        let separator = config.proxy.separator.clone();
        let prefixes = config.servers.iter().map(|server| &server.prefix).filter(|prefix| !prefix.is_empty());
        let starts = prefixes.map(|prefix| format!("{prefix}{separator}")).collect();
        let max_name_length = config.proxy.max_name_length;
        Self { shared: Arc::new(Shared { separator, max_name_length, starts }) }
    }

    /// The name under which the host sees a child's tool or prompt.
    ///
    /// It is `prefix + separator + name` where that is lawful, fits and can't be mistaken for another; else it is cut
    /// as needed and ends in `_` and a hash of server, kind and original name.
    pub fn tool_or_prompt(&self, server: &Server, kind: Kind, original: &str) -> CompactString {
        let renames = if kind == Kind::Tools { server.tools.rename.as_slice() } else { &[] };
        let given = renames.iter().find(|(own, _)| own == original).map(|(_, new)| new.as_str());
        let plain = given.unwrap_or(original);

        let mut name = String::with_capacity(server.prefix.len() + self.shared.separator.len() + plain.len());
        if !server.prefix.is_empty() {
            name.push_str(&server.prefix);
            name.push_str(&self.shared.separator);
        }
        name.extend(plain.chars().map(|c| if is_lawful(c) { c } else { '_' }));

        let changed = !plain.chars().all(is_lawful);
        let too_long = name.len() > self.shared.max_name_length;
        let foreign = server.prefix.is_empty() && self.shared.starts.iter().any(|start| name.starts_with(start));
        let taken = renames.iter().any(|(own, new)| own != original && new == plain);
        if changed || too_long || foreign || taken {
            name.truncate(self.shared.max_name_length.saturating_sub(HASH_LENGTH + 1));
            name.push('_');
            name.push_str(&hash(&server.key, kind, original));
        }
        name.into()
    }
}

/// What every host and every model's API accepts in a name.
fn is_lawful(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Lower-case base32 of (server, kind, original name). A key holds no NUL and the kind is one of four words, so two
/// different triples are never one text.
fn hash(key: &str, kind: Kind, original: &str) -> String {
    let mut sha = Sha256::new();
    for part in [key, "\0", kind.array_key(), "\0", original] {
        sha.update(part.as_bytes());
    }
    let mut text = data_encoding::BASE32_NOPAD.encode(&sha.finalize()[..5]);
    text.make_ascii_lowercase();
    debug_assert_eq!(text.len(), HASH_LENGTH);
    text
}

/// A name as hosts see it that fold case, `-` and `_` together.
pub(crate) fn folded(name: &str) -> CompactString {
    name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    const FILE: &str = r#"
        [servers.github]
        command = "x"
        prefix = "gh"
        tools = { rename = { create_issue = "new_issue", odd = "a.b", old = "taken" } }
        [servers.team-alpha]
        command = "x"
        [servers.bare]
        command = "x"
        prefix = ""
    "#;

    static CONFIG: LazyLock<Config> = LazyLock::new(|| {
        let parsed = crate::config::parse(Path::new("mcp-proxy.toml"), FILE, None);
        assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
        parsed.config
    });

    fn name(server: usize, kind: Kind, original: &str) -> String {
        let config = &*CONFIG;
        Naming::new(config).tool_or_prompt(&config.servers[server], kind, original).into()
    }

    #[test]
    fn lawful_names_are_prefixed_and_others_end_in_a_hash() {
        let long = "n".repeat(60);
        for (server, original, expected) in [
            (0, "search", "gh__search"),
            (0, "x__y", "gh__x__y"),
            (0, "create_issue", "gh__new_issue"),
            (0, "a.b", "gh__a_b_########"),
            (0, "a/b", "gh__a_b_########"),
            (0, "a_b", "gh__a_b"),
            (0, "a-b", "gh__a-b"),
            (0, "größe", "gh__gr__e_########"),
            // What a rename made unlawful is mended like a name of the child's own.
            (0, "odd", "gh__a_b_########"),
            // It is what `rename` gave to another tool.
            (0, "new_issue", "gh__new_issue_########"),
            (0, "taken", "gh__taken_########"),
            (0, &long, &format!("gh__{}_########", "n".repeat(54 - 4 - 9))),
            (0, &"n".repeat(50), &format!("gh__{}", "n".repeat(50))),
            (1, "search", "team-alpha__search"),
            (2, "search", "search"),
            (2, "gh__search", "gh__search_########"),
            (2, "team-alpha__x", "team-alpha__x_########"),
            (2, "gh_search", "gh_search"),
            (2, &long, &format!("{}_########", "n".repeat(54 - 9))),
        ] {
            let found = name(server, Kind::Tools, original);
            let (stem, hash) = expected.split_at(expected.len() - if expected.ends_with('#') { 8 } else { 0 });
            assert_eq!(&found[..stem.len()], stem, "{original}");
            assert_eq!(found.len(), expected.len(), "{original}");
            if !hash.is_empty() {
                let lawful = |b: u8| matches!(b, b'a'..=b'z' | b'2'..=b'7');
                assert!(found[stem.len()..].bytes().all(lawful), "{found}");
            }
        }
    }

    #[test]
    fn the_hash_depends_on_server_kind_and_name_and_on_nothing_else() {
        // Pinned: a change of it would rename what people have written down.
        assert_eq!(name(0, Kind::Tools, "a.b"), "gh__a_b_w4tyyk22");
        let all = [
            name(0, Kind::Tools, "a.b"),
            name(0, Kind::Tools, "a/b"),
            name(0, Kind::Prompts, "a.b"),
            name(1, Kind::Tools, "a.b"),
        ];
        let hashes: BTreeSet<_> = all.iter().map(|name| &name[name.len() - 8..]).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn renames_are_of_tools_only() {
        assert_eq!(name(0, Kind::Prompts, "create_issue"), "gh__create_issue");
    }

    proptest! {
        #[test]
        fn names_are_lawful_bounded_stable_and_distinct(
            originals in proptest::collection::btree_set("[a-c_./ äA-]{1,70}|gh__[a-c]{1,3}|(create|new)_issue|odd|old", 1..40),
        ) {
            let config = &*CONFIG;
            let naming = Naming::new(config);
            let mut seen = BTreeSet::new();
            for server in &config.servers {
                for kind in [Kind::Tools, Kind::Prompts] {
                    let mut of_kind = BTreeSet::new();
                    for original in &originals {
                        let name = naming.tool_or_prompt(server, kind, original);
                        prop_assert!(name.len() <= config.proxy.max_name_length && !name.is_empty());
                        prop_assert!(name.chars().all(is_lawful), "{}", name);
                        prop_assert_eq!(&name, &naming.clone().tool_or_prompt(server, kind, original));
                        prop_assert!(of_kind.insert((kind, name.clone())), "{} of {:?}", name, original);
                    }
                    let before = seen.len();
                    seen.extend(of_kind.iter().cloned());
                    prop_assert_eq!(seen.len(), before + of_kind.len(), "two servers share a name");
                }
            }
        }

        #[test]
        fn names_do_not_depend_on_the_other_servers(original in "[a-z_.]{1,60}") {
            let config = &*CONFIG;
            let mut alone = config.clone();
            alone.servers.truncate(1);
            let server = &config.servers[0];
            prop_assert_eq!(
                Naming::new(config).tool_or_prompt(server, Kind::Tools, &original),
                Naming::new(&alone).tool_or_prompt(server, Kind::Tools, &original)
            );
        }
    }
}
