//! What the host reads: one list at one moment, whole or in pages, and the cursors between them (`PROTOCOL.md` 6.4).

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

use super::super::listing::Kind;
use super::part::Part;

/// Snapshots of a kind that stay alive for the cursors that name them.
const MAX_ALIVE: usize = 4;

/// One list at one moment. Cheap to make and to clone: it shares the parts' bytes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    kind: Kind,
    /// The parts that have entries, and the places of the entries that are not shown.
    parts: Arc<[Shown]>,
}

type Shown = (Arc<Part>, Arc<BTreeSet<usize>>);

/// A page: the whole `result` object in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The bytes, in order.
    pub pieces: Vec<Bytes>,
    /// Entries in it.
    pub count: usize,
    /// Whether it ends in a `nextCursor`.
    pub more: bool,
}

/// A cursor that we did not issue, or whose snapshot is gone: the host must list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is unknown or out of date; list again without one")]
pub struct PageError;

/// The snapshots that cursors name.
#[derive(Clone, Debug)]
pub struct Snapshots {
    secret: [u8; 32],
    revision: u64,
    alive: VecDeque<(u64, Snapshot)>,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) fn new(kind: Kind, parts: Vec<Shown>) -> Self {
        Self { kind, parts: parts.into() }
    }

    /// What it lists.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Entries in it.
    pub fn count(&self) -> usize {
        self.parts.iter().map(|(part, hidden)| part.count(self.kind) - hidden.len()).sum()
    }

    /// A digest of what the host reads: two lists of one kind with the same are the same.
    pub fn revision(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (part, hidden) in self.parts.iter().filter(|(part, hidden)| part.count(self.kind) > hidden.len()) {
            (part.digest(self.kind), hidden).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The whole result, `{"tools":[…]}`, in pieces.
    pub fn whole(&self) -> Vec<Bytes> {
        let (mut pieces, _) = self.page(0, 0);
        pieces.push(Bytes::from_static(b"}"));
        pieces
    }

    /// At most `size` entries from the place `offset` on, 0 being all of them: `{"tools":[…]` in pieces, without the
    /// closing brace, and the place of the next page.
    pub fn page(&self, offset: usize, size: usize) -> (Vec<Bytes>, Option<usize>) {
        let end = if size == 0 { usize::MAX } else { offset.saturating_add(size) };
        let mut pieces = vec![Bytes::from(format!("{{\"{}\":[", self.kind.array_key()))];
        let mut before = 0;
        let mut first = true;
        for (part, hidden) in self.parts.iter() {
            let count = part.count(self.kind) - hidden.len();
            let range = offset.saturating_sub(before).min(count)..end.saturating_sub(before).min(count);
            for at in runs(part, self.kind, hidden, range) {
                if !std::mem::take(&mut first) {
                    pieces.push(Bytes::from_static(b","));
                }
                pieces.push(part.rendered(self.kind).slice(at));
            }
            before += count;
        }
        pieces.push(Bytes::from_static(b"]"));
        (pieces, (end < before).then_some(end))
    }

    /// Whether it is the very same list, entries not compared.
    fn is(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(other.parts.iter()).all(|(a, b)| is_same(a, b))
    }

    /// Whether the host reads the same bytes. Costs what the parts between the first and the last that differ cost.
    pub fn same_bytes(&self, other: &Self) -> bool {
        let head = self.parts.iter().zip(other.parts.iter()).take_while(|(a, b)| is_same(a, b)).count();
        let (ours, theirs) = (&self.parts[head..], &other.parts[head..]);
        let tail = ours.iter().rev().zip(theirs.iter().rev()).take_while(|(a, b)| is_same(a, b)).count();
        let between = |parts: &[Shown]| {
            let parts = parts[..parts.len() - tail].to_vec();
            Self::new(self.kind, parts).page(0, 0).0
        };
        let (ours, theirs) = (between(ours), between(theirs));
        let length = |pieces: &[Bytes]| pieces.iter().map(Bytes::len).sum::<usize>();
        ours == theirs
            // Cut in other places, but perhaps the same.
            || length(&ours) == length(&theirs) && ours.iter().flatten().eq(theirs.iter().flatten())
    }
}

/// Whether it is the same part, and the same of it is shown.
fn is_same(ours: &Shown, theirs: &Shown) -> bool {
    Arc::ptr_eq(&ours.0, &theirs.0) && ours.1 == theirs.1
}

/// The places in the rendered bytes of the shown entries number `range.start` to `range.end`, as few as there can be.
fn runs(part: &Part, kind: Kind, hidden: &BTreeSet<usize>, range: Range<usize>) -> Vec<Range<usize>> {
    let entries = part.entries(kind);
    if hidden.is_empty() {
        let run = entries[range].iter().map(|entry| entry.at.clone()).reduce(|run, at| run.start..at.end);
        return run.into_iter().collect();
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut last = None;
    let shown = (0..entries.len()).filter(|at| !hidden.contains(at));
    for at in shown.skip(range.start).take(range.len()) {
        match runs.last_mut() {
            Some(run) if last == at.checked_sub(1) => run.end = entries[at].at.end,
            _ => runs.push(entries[at].at.clone()),
        }
        last = Some(at);
    }
    runs
}

// === impl Snapshots ===

impl Snapshots {
    /// Nothing is alive yet. The secret makes cursors that only we can issue: any random bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret, revision: 0, alive: VecDeque::new() }
    }

    /// The first page of a snapshot; a `page_size` of 0 is all of it.
    pub fn first(&mut self, snapshot: Snapshot, page_size: usize) -> Page {
        let (pieces, next) = snapshot.page(0, page_size);
        let count = next.unwrap_or_else(|| snapshot.count());
        let kind = snapshot.kind;
        let next = next.map(|next| (self.keep(snapshot), next));
        self.close(kind, pieces, count, next)
    }

    /// The page that a cursor names, of the snapshot that it names.
    pub fn next(&mut self, kind: Kind, cursor: &str, page_size: usize) -> Result<Page, PageError> {
        let (revision, offset) = self.decode(kind, cursor).ok_or(PageError)?;
        let alive = self.alive.iter().find(|(alive, snapshot)| *alive == revision && snapshot.kind == kind);
        let (_, snapshot) = alive.ok_or(PageError)?;
        let (pieces, next) = snapshot.page(offset, page_size);
        let count = next.unwrap_or_else(|| snapshot.count()) - offset;
        Ok(self.close(kind, pieces, count, next.map(|next| (revision, next))))
    }

    fn close(&self, kind: Kind, mut pieces: Vec<Bytes>, count: usize, next: Option<(u64, usize)>) -> Page {
        let more = next.is_some();
        pieces.push(match next {
            Some((revision, next)) => format!(",\"nextCursor\":\"{}\"}}", self.encode(kind, revision, next)).into(),
            None => Bytes::from_static(b"}"),
        });
        Page { pieces, count, more }
    }

    /// The revision of a snapshot, which is kept alive for cursors.
    fn keep(&mut self, snapshot: Snapshot) -> u64 {
        if let Some((revision, _)) = self.alive.iter().find(|(_, alive)| alive.is(&snapshot)) {
            return *revision;
        }
        let of_kind = self.alive.iter().filter(|(_, alive)| alive.kind == snapshot.kind).count();
        if of_kind >= MAX_ALIVE {
            let oldest = self.alive.iter().position(|(_, alive)| alive.kind == snapshot.kind);
            oldest.map(|at| self.alive.remove(at));
        }
        self.revision += 1;
        self.alive.push_back((self.revision, snapshot));
        self.revision
    }

    /// `base64url(kind, revision, offset, MAC)`.
    fn encode(&self, kind: Kind, revision: u64, offset: usize) -> String {
        let mut text = vec![kind as u8];
        text.extend(revision.to_be_bytes());
        text.extend((offset as u64).to_be_bytes());
        let mac = self.mac(&text);
        text.extend(mac);
        BASE64URL_NOPAD.encode(&text)
    }

    fn decode(&self, kind: Kind, cursor: &str) -> Option<(u64, usize)> {
        let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?;
        let (text, mac) = bytes.split_at_checked(17)?;
        if mac != self.mac(text) || text[0] != kind as u8 {
            return None;
        }
        let number = |at: Range<usize>| text[at].try_into().ok().map(u64::from_be_bytes);
        Some((number(1..9)?, usize::try_from(number(9..17)?).ok()?))
    }

    /// The text is of fixed length and the digest is cut, so a plain keyed hash is a MAC.
    fn mac(&self, text: &[u8]) -> [u8; 8] {
        let mut sha = Sha256::new();
        sha.update(self.secret);
        sha.update(text);
        let digest = sha.finalize();
        std::array::from_fn(|i| digest[i])
    }
}
