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
