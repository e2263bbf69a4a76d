//! The merged view: one [`Part`] for each server in the order of the file, and the tables that look names up.
//!
//! Replacing a part costs what that part costs. What the host reads is a [`Snapshot`]: pieces of the parts' rendered
//! bytes, which no later change touches.

pub mod part;
mod rules;
pub mod snapshot;

use std::collections::hash_map::{Entry as Slot, RandomState};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use compact_str::CompactString;

use super::hashed::BuildHashed;
use super::listing::Kind;
pub use super::repair::{Execution, Fix, RenderClass, Repair, TaskSupport};
use super::uri::{Score, original_uri};
pub use part::{Entry, Listing, Part, build_part};
pub use rules::{Unmatched, hiding_rule};
pub use snapshot::{Page, PageError, Snapshot, Snapshots};

/// URIs seen in one server's results that are remembered, at least; twice as many at most.
const MAX_SEEN: usize = 1024;

/// The merged view.
#[derive(Clone, Debug)]
pub struct Catalog {
    servers: Vec<Member>,
    tables: [Table; 4],
    hash: RandomState,
}

#[derive(Clone, Debug, Default)]
struct Member {
    part: Option<Arc<Part>>,
    /// Places of entries that an earlier server shows under the same name, by kind.
    hidden: [Arc<BTreeSet<usize>>; 4],
    seen: Arc<Seen>,
}

/// Where an entry is: server, and place in its part.
type Place = (u32, u32);

/// What is exposed → where it is. Keys are hashes under a secret of this process, so that a copy of the table is a copy
/// of plain memory and no child can choose names that fall together; each hit is compared with the name itself.
#[derive(Clone, Debug, Default)]
struct Table {
    first: HashMap<u64, Place, BuildHashed>,
    /// Further places of the same hash: the same name in several servers, or chance.
    more: HashMap<u64, BTreeSet<Place>, BuildHashed>,
}

/// Hashes of the URIs seen in results: the young ones, and the generation before them.
#[derive(Clone, Debug, Default)]
struct Seen {
    young: HashSet<u64, BuildHashed>,
    old: HashSet<u64, BuildHashed>,
}

/// Which lists of the host differ after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changed {
    /// The tools.
    pub tools: bool,
    /// The prompts.
    pub prompts: bool,
    /// The resources or the templates.
    pub resources: bool,
}

/// Who serves a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This server, under its own URI.
    One {
        /// Its place in the file.
        server: usize,
        /// The URI that the child knows.
        uri: String,
    },
    /// This server, but the configuration's rules leave it out.
    Refused {
        /// Its place in the file.
        server: usize,
        /// The URI that the child knows.
        uri: String,
    },
    /// Nobody.
    Unknown,
    /// Several servers, named by their places.
    Ambiguous(Vec<usize>),
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of so many servers, none of which has shown anything yet.
    pub fn new(servers: usize) -> Self {
        Self { servers: vec![Member::default(); servers], tables: Default::default(), hash: RandomState::new() }
    }

    /// A catalog of other servers after a reload, none of which has shown anything yet: each remembers the URIs that
    /// were seen in results of the server that had the given place before.
    #[must_use]
    pub fn successor(&self, places: impl IntoIterator<Item = Option<usize>>) -> Self {
        let seen =
            |place: Option<usize>| place.and_then(|place| self.servers.get(place)).map(|old| Arc::clone(&old.seen));
        let servers =
            places.into_iter().map(|place| Member { seen: seen(place).unwrap_or_default(), ..Member::default() });
        Self { servers: servers.collect(), tables: Default::default(), hash: self.hash.clone() }
    }

    /// Replaces one server's part; at most the lists that are told differ afterwards.
    pub fn set(&mut self, server: usize, part: Arc<Part>) -> Changed {
        self.replace(server, Some(part))
    }

    /// Takes one server's part away.
    pub fn remove(&mut self, server: usize) -> Changed {
        self.replace(server, None)
    }

    /// One server's part.
    pub fn part(&self, server: usize) -> Option<&Arc<Part>> {
        self.servers.get(server)?.part.as_ref()
    }

    /// The tool that the host sees under this name.
    pub fn tool(&self, exposed: &str) -> Option<(usize, &Entry)> {
        self.entry(Kind::Tools, exposed)
    }

    /// The prompt that the host sees under this name.
    pub fn prompt(&self, exposed: &str) -> Option<(usize, &Entry)> {
        self.entry(Kind::Prompts, exposed)
    }

    /// The resource template of that text: the server, and the text that it knows. For references of completions.
    pub fn template(&self, exposed: &str) -> Option<(usize, &CompactString)> {
        self.entry(Kind::Templates, exposed).map(|(server, entry)| (server, &entry.original))
    }

    /// What the host sees under this name; of several servers the first in the file.
    pub fn entry(&self, kind: Kind, exposed: &str) -> Option<(usize, &Entry)> {
        let table = &self.tables[kind as usize];
        let hash = self.hash.hash_one(exposed);
        let named = |place: &Place| self.at(kind, *place).filter(|(_, entry)| entry.exposed == exposed);
        let first = named(table.first.get(&hash)?);
        if table.more.is_empty() || !table.more.contains_key(&hash) {
            return first;
        }
        let more = table.more[&hash].iter().filter_map(named);
        first.into_iter().chain(more).min_by_key(|(server, _)| self.rank(*server))
    }

    /// The server whose rules leave out what has this exposed name.
    pub fn filtered(&self, kind: Kind, exposed: &str) -> Option<usize> {
        self.parts().find(|(_, part)| part.filtered_original(kind, exposed).is_some()).map(|(server, _)| server)
    }

    /// The tool that an app calls by its own name, if exactly one server with a user interface has it (`PROTOCOL.md`
    /// 5.15).
    pub fn app_tool(&self, original: &str) -> Option<(usize, &Entry)> {
        let mut found = self.app_tools(original);
        found.next().filter(|_| found.next().is_none())
    }

    /// The tools of that own name of all servers with a user interface; several are ambiguous.
    pub fn app_tools(&self, original: &str) -> impl Iterator<Item = (usize, &Entry)> {
        let bearing = self.parts().filter(|(_, part)| part.bears_ui());
        bearing.filter_map(move |(server, part)| Some((server, part.find_original(Kind::Tools, original)?)))
    }

    /// Who serves a URI that the host names: listed, matched by a template, carrying a prefix, or the child's own URI
    /// that exactly one child owns.
    pub fn resource(&self, uri: &str) -> Owner {
        if let Some((server, entry)) = self.entry(Kind::Resources, uri) {
            return Owner::One { server, uri: entry.original.to_string() };
        }
        if let Some((server, uri)) = self.by_template(uri).or_else(|| self.by_prefix(uri)) {
            return self.judge(server, uri);
        }
        let owners: Vec<_> = (0..self.servers.len()).filter(|&server| self.owns(server, uri)).collect();
        match owners[..] {
            [server] => self.judge(server, uri.to_owned()),
            [] => self.unlisted(uri),
            _ => Owner::Ambiguous(owners),
        }
    }

    /// The URI that the server knows, if an argument's value as a whole is one that the host can only have from it:
    /// listed, matching an exposed template, or seen in a result.
    pub fn argument_uri(&self, server: usize, value: &str) -> Option<String> {
        let uri = original_uri(self.part(server)?.safe_prefix(), value)?;
        self.owns(server, &uri).then_some(uri)
    }

    /// Remembers that the child's own URI stood in a result of it. Bounded: the oldest are forgotten.
    pub fn note_seen(&mut self, server: usize, uri: &str) {
        let hash = self.hash.hash_one(uri);
        if let Some(member) = self.servers.get_mut(server).filter(|member| !member.seen.contains(hash)) {
            Arc::make_mut(&mut member.seen).insert(hash);
        }
    }

    /// The list of a kind as it is now.
    pub fn snapshot(&self, kind: Kind) -> Snapshot {
        let shown = self.servers.iter().filter_map(|member| {
            let part = member.part.as_ref().filter(|part| part.count(kind) > 0)?;
            Some((Arc::clone(part), Arc::clone(&member.hidden[kind as usize])))
        });
        Snapshot::new(kind, shown.collect())
    }

    /// Entries that the host does not see since an earlier server shows the same name: (server, kind, exposed).
    pub fn hidden(&self) -> impl Iterator<Item = (usize, Kind, &CompactString)> {
        self.parts().flat_map(move |(server, part)| {
            Kind::ALL.into_iter().flat_map(move |kind| {
                let hidden = self.servers[server].hidden[kind as usize].iter();
                hidden.map(move |&at| (server, kind, &part.entries(kind)[at].exposed))
            })
        })
    }

    fn parts(&self) -> impl Iterator<Item = (usize, &Arc<Part>)> {
        self.servers.iter().enumerate().filter_map(|(server, member)| Some((server, member.part.as_ref()?)))
    }

    /// Who wins a name: we, then the servers in the order of the file.
    fn rank(&self, server: usize) -> usize {
        if self.part(server).is_some_and(|part| part.is_ours()) { 0 } else { server + 1 }
    }

    fn at(&self, kind: Kind, (server, at): Place) -> Option<(usize, &Entry)> {
        let part = self.servers[server as usize].part.as_ref()?;
        Some((server as usize, part.entries(kind).get(at as usize)?))
    }

    fn by_template(&self, uri: &str) -> Option<(usize, String)> {
        let prefixed = self.by_prefix(uri).map(|(server, _)| server);
        let mut best: Option<(Score, usize, String)> = None;
        for (server, part) in self.parts() {
            // What carries a server's prefix is that server's, however broad another's template.
            if prefixed.is_some_and(|owner| owner != server) {
                continue;
            }
            let Some(own) = part.own_form(uri) else { continue };
            let Some(score) = part.match_template(&own) else { continue };
            if best.as_ref().is_none_or(|(best, ..)| score > *best) {
                best = Some((score, server, own));
            }
        }
        best.map(|(_, server, own)| (server, own))
    }

    fn by_prefix(&self, uri: &str) -> Option<(usize, String)> {
        let mut owners = self.parts().filter_map(|(at, part)| Some((at, original_uri(part.safe_prefix(), uri)?)));
        owners.next()
    }

    /// Whether the child's own URI is listed by it, matches a template of it, or was seen in a result of it.
    fn owns(&self, server: usize, uri: &str) -> bool {
        let member = &self.servers[server];
        let part = member.part.as_ref();
        part.is_some_and(|part| part.lists_uri(uri) || part.match_template(uri).is_some())
            || member.seen.contains(self.hash.hash_one(uri))
    }

    /// A URI that nobody owns: left out by somebody's rules, or for the server without prefix if that has resources,
    /// since servers may serve what they do not list.
    fn unlisted(&self, uri: &str) -> Owner {
        if let Some((server, _)) = self.parts().find(|(_, part)| part.filtered(Kind::Resources, uri)) {
            return Owner::Refused { server, uri: uri.to_owned() };
        }
        let mut bare = self.parts().filter(|(_, part)| {
            let serves = part.count(Kind::Resources) + part.count(Kind::Templates) > 0;
            serves && part.safe_prefix().is_empty() && !part.is_ours()
        });
        bare.next().map_or(Owner::Unknown, |(server, _)| self.judge(server, uri.to_owned()))
    }

    fn judge(&self, server: usize, uri: String) -> Owner {
        match self.part(server) {
            Some(part) if !part.permits_uri(&uri) => Owner::Refused { server, uri },
            _ => Owner::One { server, uri },
        }
    }

    fn replace(&mut self, server: usize, part: Option<Arc<Part>>) -> Changed {
        if server >= self.servers.len() {
            return Changed::default();
        }
        let old = self.servers[server].part.clone();
        // Of all servers: an entry that another one hid, or shows from now on, may read the same.
        let before = Kind::ALL.map(|kind| self.snapshot(kind));
        for kind in Kind::ALL {
            if let Some(old) = &old {
                self.unlist(server, kind, old);
            }
        }
        self.servers[server].part = part;
        self.servers[server].hidden = Default::default();
        if let Some(part) = self.servers[server].part.clone() {
            for kind in Kind::ALL {
                self.list(server, kind, &part);
            }
        }
        let [tools, prompts, resources, templates] =
            Kind::ALL.map(|kind| !before[kind as usize].same_bytes(&self.snapshot(kind)));
        Changed { tools, prompts, resources: resources || templates }
    }

    /// Enters a part's entries, and hides what an earlier server shows.
    fn list(&mut self, server: usize, kind: Kind, part: &Part) {
        for (at, entry) in part.entries(kind).iter().enumerate() {
            self.tables[kind as usize].insert(self.hash.hash_one(entry.exposed.as_str()), place(server, at));
            self.settle(kind, &entry.exposed);
        }
    }

    /// Takes a part's entries out, and shows what they hid.
    fn unlist(&mut self, server: usize, kind: Kind, part: &Part) {
        for (at, entry) in part.entries(kind).iter().enumerate() {
            let hash = self.hash.hash_one(entry.exposed.as_str());
            if self.tables[kind as usize].remove(hash, place(server, at)) {
                self.settle(kind, &entry.exposed);
            }
        }
    }

    /// Of all entries with one exposed name the first server's is shown.
    fn settle(&mut self, kind: Kind, exposed: &str) {
        let hash = self.hash.hash_one(exposed);
        let Some(more) = self.tables[kind as usize].more.get(&hash) else { return self.show_single(kind, hash) };
        let first = self.tables[kind as usize].first.get(&hash);
        let all = first.into_iter().chain(more).copied();
        let mut named: Vec<_> =
            all.filter(|place| self.at(kind, *place).is_some_and(|(_, entry)| entry.exposed == exposed)).collect();
        named.sort_unstable_by_key(|(server, _)| self.rank(*server as usize));
        for (i, (server, at)) in named.into_iter().enumerate() {
            self.hide(kind, (server, at), i > 0);
        }
    }

    fn show_single(&mut self, kind: Kind, hash: u64) {
        if let Some(&place) = self.tables[kind as usize].first.get(&hash) {
            self.hide(kind, place, false);
        }
    }

    fn hide(&mut self, kind: Kind, (server, at): Place, hide: bool) {
        let hidden = &mut self.servers[server as usize].hidden[kind as usize];
        if hidden.contains(&(at as usize)) == hide {
            return;
        }
        let hidden = Arc::make_mut(hidden);
        if hide {
            hidden.insert(at as usize);
        } else {
            hidden.remove(&(at as usize));
        }
    }
}

fn place(server: usize, at: usize) -> Place {
    let number = |n: usize| u32::try_from(n).expect("lists are bounded far below 2^32");
    (number(server), number(at))
}

// === impl Table ===

impl Table {
    fn insert(&mut self, hash: u64, place: Place) {
        match self.first.entry(hash) {
            Slot::Vacant(slot) => {
                slot.insert(place);
            }
            Slot::Occupied(_) => {
                self.more.entry(hash).or_default().insert(place);
            }
        }
    }

    /// Takes a place out; tells whether others of that hash are left.
    fn remove(&mut self, hash: u64, place: Place) -> bool {
        let Some(more) = self.more.get_mut(&hash) else {
            if self.first.get(&hash) == Some(&place) {
                self.first.remove(&hash);
            }
            return false;
        };
        let first = self.first.get(&hash) == Some(&place);
        if let (false, true, Some(&next)) = (more.remove(&place), first, more.first()) {
            more.remove(&next);
            self.first.insert(hash, next);
        }
        if more.is_empty() {
            self.more.remove(&hash);
        }
        true
    }
}

// === impl Seen ===

impl Seen {
    fn contains(&self, hash: u64) -> bool {
        self.young.contains(&hash) || self.old.contains(&hash)
    }

    fn insert(&mut self, hash: u64) {
        if self.young.len() >= MAX_SEEN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash);
    }
}

// === impl Changed ===

impl Changed {
    /// Whether any list differs.
    pub fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }
}

impl std::ops::BitOrAssign for Changed {
    fn bitor_assign(&mut self, other: Self) {
        self.tools |= other.tools;
        self.prompts |= other.prompts;
        self.resources |= other.resources;
    }
}

#[cfg(test)]
mod tests;
