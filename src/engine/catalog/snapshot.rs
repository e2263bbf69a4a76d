//! What the host reads: one list at one moment, whole or in pages, and the cursors between them (`PROTOCOL.md` 6.4).

use std::collections::{BTreeSet, VecDeque};
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

/// A page: `{"tools":[…]` in pieces, without the closing brace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The bytes, in order.
    pub pieces: Vec<Bytes>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<usize>,
}

/// A cursor that we did not issue, or whose snapshot is gone: the host must list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is unknown or out of date; list again without one")]
pub struct Stale;

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

    /// The whole result, `{"tools":[…]}`, in pieces.
    pub fn whole(&self) -> Vec<Bytes> {
        let mut pieces = self.page(0, 0).pieces;
        pieces.push(Bytes::from_static(b"}"));
        pieces
    }

    /// At most `size` entries from the place `offset` on; 0 is all of them.
    pub fn page(&self, offset: usize, size: usize) -> Page {
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
        Page { pieces, next: (end < before).then_some(end) }
    }

    /// Whether it is the very same list, entries not compared.
    fn is(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(other.parts.iter()).all(|(a, b)| Arc::ptr_eq(&a.0, &b.0) && a.1 == b.1)
    }

    /// Whether the host reads the same bytes.
    pub fn same_bytes(&self, other: &Self) -> bool {
        self.is(other) || {
            let bytes = |snapshot: &Self| snapshot.page(0, 0).pieces;
            bytes(self).iter().flatten().eq(bytes(other).iter().flatten())
        }
    }
}

/// The places in the rendered bytes of the shown entries number `range.start` to `range.end`, as few as there can be.
fn runs(part: &Part, kind: Kind, hidden: &BTreeSet<usize>, range: Range<usize>) -> Vec<Range<usize>> {
    let entries = part.entries(kind);
    if range.is_empty() {
        return Vec::new();
    }
    if hidden.is_empty() {
        return vec![entries[range.start].at.start..entries[range.end - 1].at.end];
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
    /// Nothing is alive yet. The secret makes cursors that only we can issue; any random bytes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self { secret, revision: 0, alive: VecDeque::new() }
    }

    /// The result of a list request in pieces: the first page of `now` without a cursor, else the page that the cursor
    /// names, from the snapshot that it names. A `page_size` of 0 is one page.
    pub fn list(&mut self, now: &Snapshot, cursor: Option<&str>, page_size: usize) -> Result<Vec<Bytes>, Stale> {
        let (revision, offset, snapshot) = match cursor {
            None if page_size == 0 => return Ok(now.whole()),
            None => (None, 0, now),
            Some(cursor) => {
                let (revision, offset) = self.decode(now.kind, cursor).ok_or(Stale)?;
                let alive = self.alive.iter().find(|(alive, snapshot)| *alive == revision && snapshot.kind == now.kind);
                (Some(revision), offset, &alive.ok_or(Stale)?.1)
            }
        };
        let Page { mut pieces, next } = snapshot.page(offset, page_size);
        if let Some(next) = next {
            let revision = revision.unwrap_or_else(|| self.keep(now));
            pieces.push(Bytes::from(format!(",\"nextCursor\":\"{}\"", self.encode(now.kind, revision, next))));
        }
        pieces.push(Bytes::from_static(b"}"));
        Ok(pieces)
    }

    /// The revision of a snapshot, which is kept alive for cursors.
    fn keep(&mut self, snapshot: &Snapshot) -> u64 {
        if let Some((revision, _)) = self.alive.iter().find(|(_, alive)| alive.is(snapshot)) {
            return *revision;
        }
        let of_kind = self.alive.iter().filter(|(_, alive)| alive.kind == snapshot.kind).count();
        if of_kind >= MAX_ALIVE {
            let oldest = self.alive.iter().position(|(_, alive)| alive.kind == snapshot.kind);
            oldest.map(|at| self.alive.remove(at));
        }
        self.revision += 1;
        self.alive.push_back((self.revision, snapshot.clone()));
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
