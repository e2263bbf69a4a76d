//! Paging and freshness of one list of one child: when to ask, for which page, and what a page means (`DESIGN.md`
//! chapter 9, `PROTOCOL.md` 6.4 and 6.8).

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use bytes::Bytes;
use compact_str::CompactString;

use crate::wire::code;
use crate::wire::json;
use crate::wire::method::Method;

/// Pages of one list.
pub const MAX_PAGES: usize = 1_000;
/// Items of one list.
pub const MAX_ITEMS: usize = 100_000;
/// Bytes of one list unless told otherwise, so that a child that lists without end can't fill the memory.
pub const MAX_BYTES: usize = 64 << 20;

/// Shortest and longest pause between two fetches while announcements go on.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Shortest and longest pause after a fetch that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The complete result in a row that is published although it was overtaken.
const PUBLISH_ANYWAY: u32 = 3;
/// How often a cursor that the child no longer knows restarts a fetch.
const MAX_RESTARTS: u32 = 2;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
    /// Resource templates.
    Templates,
}

/// Paging and freshness of ONE kind of ONE child.
///
/// Invariant: at most one page request is under way, and at most one fetch waits behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pager {
    kind: Kind,
    legacy: bool,
    max_bytes: usize,
    /// Bumped by each announcement.
    revision: u64,
    /// When the next fetch may start.
    wanted: Option<Instant>,
    fetch: Option<Fetch>,
    /// When the last fetch ended.
    ended: Option<Instant>,
    /// The pause that the last announcement or overtaken result led to.
    pause: Duration,
    /// Complete results in a row that were overtaken.
    overtaken: u32,
    /// Cursors in a row that the child did not know any more.
    restarts: u32,
    /// Fetches in a row that failed.
    failures: u32,
}

/// A walk through the pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fetch {
    /// The revision at its start.
    revision: u64,
    next: Next,
    pages: usize,
    bytes: usize,
    items: Vec<Bytes>,
    /// Digests of the cursors that were followed.
    followed: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    /// A page was asked for.
    UnderWay,
    /// This page is to be asked for, since then.
    Ask(CompactString, Instant),
}

/// What a page meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageOutcome {
    /// There is another page: poll.
    More,
    /// The list is complete: the raw entries in the child's order.
    Done(Vec<Bytes>),
    /// Complete, but a change was announced meanwhile: discarded, and fetched again later.
    Overtaken,
    /// Ended before its end: what was read counts.
    Stopped(Vec<Bytes>, Warning),
    /// No lawful page: the fetch failed and is repeated later.
    Invalid(&'static str),
}

/// Why a list was ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Warning {
    /// The child gave a cursor twice.
    RepeatedCursor,
    /// The cursor is no string.
    BadCursor,
    /// More than [`MAX_PAGES`].
    TooManyPages,
    /// More than [`MAX_ITEMS`].
    TooManyItems,
    /// More bytes than may be.
    TooManyBytes,
}

/// What a failed page request meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailOutcome {
    /// The child does not know the method: its list is empty.
    Empty,
    /// The child forgot its cursor: the fetch starts anew at once.
    Restart,
    /// The last good list stays; the fetch is repeated after this pause.
    Retry(Duration),
}

// === impl Kind ===

impl Kind {
    /// All of them, in the order in which they are fetched and shown.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The method that lists them.
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
        }
    }

    /// The kind that this method lists.
    pub fn of_method(method: Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The member of the result that holds the entries.
    pub fn array_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an entry that identifies it.
    pub fn name_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// One of them, for people.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }

    /// The announcement of a change.
    pub fn changed_method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsChanged,
            Self::Prompts => Method::PromptsChanged,
            Self::Resources | Self::Templates => Method::ResourcesChanged,
        }
    }

    /// The kinds whose lists an announcement makes stale; empty if it is none.
    pub fn changed_kinds(method: Method) -> &'static [Self] {
        match method {
            Method::ToolsChanged => &[Self::Tools],
            Method::PromptsChanged => &[Self::Prompts],
            Method::ResourcesChanged => &[Self::Resources, Self::Templates],
            _ => &[],
        }
    }
}

// === impl Pager ===

impl Pager {
    /// A list that nobody has asked for yet.
    pub fn new(kind: Kind, legacy: bool) -> Self {
        Self {
            kind,
            legacy,
            max_bytes: MAX_BYTES,
            revision: 0,
            wanted: None,
            fetch: None,
            ended: None,
            pause: Duration::ZERO,
            overtaken: 0,
            restarts: 0,
            failures: 0,
        }
    }

    /// The same with another bound of the list's bytes.
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// What it lists.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether a fetch is under way or waits.
    pub fn is_busy(&self) -> bool {
        self.fetch.is_some() || self.wanted.is_some()
    }

    /// Takes note that the child announced a change.
    pub fn invalidate(&mut self, now: Instant) {
        self.revision += 1;
        if self.is_busy() {
            return;
        }
        // Some children announce a change after every list that they serve: what comes soon after a fetch waits.
        let soon = (self.pause * 2).max(PAUSE.0 * 2);
        match self.ended {
            Some(ended) if now < ended + soon => {
                self.pause = longer(self.pause);
                self.wanted = Some(now.max(ended + self.pause));
            }
            _ => {
                self.pause = Duration::ZERO;
                self.wanted = Some(now);
            }
        }
    }

    /// Asks for a fetch as soon as may be; one that is under way serves.
    pub fn want(&mut self, now: Instant) {
        if self.fetch.is_none() {
            self.wanted = Some(now);
        }
    }

    /// Asks for a fetch from a new generation: one that is under way is forgotten, its answer will not come.
    pub fn reset(&mut self, now: Instant) {
        self.fetch = None;
        (self.overtaken, self.restarts, self.failures) = (0, 0, 0);
        self.wanted = Some(now);
    }

    /// The next request to send, if it is time: `Some(None)` is the first page, `Some(Some(token))` the page of that
    /// cursor, a JSON string with its quotes. After `Some` a call of [`Self::page`] or [`Self::failed`] must follow
    /// before there is another.
    pub fn poll_request(&mut self, now: Instant) -> Option<Option<CompactString>> {
        if let Some(fetch) = &mut self.fetch {
            let Next::Ask(cursor, _) = std::mem::replace(&mut fetch.next, Next::UnderWay) else { return None };
            return Some(Some(cursor));
        }
        if self.wanted.is_none_or(|at| at > now) {
            return None;
        }
        self.wanted = None;
        self.fetch = Some(Fetch {
            revision: self.revision,
            next: Next::UnderWay,
            pages: 0,
            bytes: 0,
            items: Vec::new(),
            followed: BTreeSet::new(),
        });
        Some(None)
    }

    /// Takes a page: the raw text of the response's `result`, which is valid JSON.
    pub fn page(&mut self, now: Instant, result: &Bytes) -> PageOutcome {
        let Some(mut fetch) = self.fetch.take() else { return PageOutcome::Invalid("nobody asked for this page") };
        let Some(list) = json::get(result, 0..result.len(), self.kind.array_key()) else {
            return self.invalid(now, "the result has no list");
        };
        if result.get(list.start) != Some(&b'[') {
            return self.invalid(now, "the list is no array");
        }
        fetch.pages += 1;
        fetch.bytes += list.len();
        let room = MAX_ITEMS - fetch.items.len();
        let mut entries = json::elements(result, list).map(|at| result.slice(at));
        fetch.items.extend(entries.by_ref().take(room));
        if entries.next().is_some() {
            return self.complete(now, fetch, Some(Warning::TooManyItems));
        }

        let cursor = json::get(result, 0..result.len(), "nextCursor").map(|at| &result[at]);
        let cursor = match cursor {
            None | Some(b"null") => return self.complete(now, fetch, None),
            Some(b"\"\"") if self.legacy => return self.complete(now, fetch, None),
            Some(token) if token.first() == Some(&b'"') => token,
            Some(_) => return self.complete(now, fetch, Some(Warning::BadCursor)),
        };
        let Ok(cursor) = CompactString::from_utf8(cursor) else {
            return self.complete(now, fetch, Some(Warning::BadCursor));
        };
        let warning = if !fetch.followed.insert(digest(&cursor)) {
            Some(Warning::RepeatedCursor)
        } else if fetch.pages >= MAX_PAGES {
            Some(Warning::TooManyPages)
        } else if fetch.bytes > self.max_bytes {
            Some(Warning::TooManyBytes)
        } else {
            None
        };
        if warning.is_some() {
            return self.complete(now, fetch, warning);
        }
        fetch.next = Next::Ask(cursor, now);
        self.fetch = Some(fetch);
        PageOutcome::More
    }

    /// Takes note that a page request failed: with the child's error code, or without one (time limit, lost).
    pub fn failed(&mut self, now: Instant, code: Option<i64>) -> FailOutcome {
        let first = self.fetch.take().is_none_or(|fetch| fetch.pages == 0);
        match code {
            Some(code::METHOD_NOT_FOUND) => {
                self.ended = Some(now);
                self.wanted = None;
                (self.overtaken, self.restarts, self.failures) = (0, 0, 0);
                FailOutcome::Empty
            }
            Some(code::INVALID_PARAMS) if !first && self.restarts < MAX_RESTARTS => {
                self.restarts += 1;
                self.wanted = Some(now);
                FailOutcome::Restart
            }
            _ => FailOutcome::Retry(self.back_off(now)),
        }
    }

    /// When [`Self::poll_request`] may have something.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.fetch {
            Some(Fetch { next: Next::Ask(_, since), .. }) => Some(*since),
            Some(_) => None,
            None => self.wanted,
        }
    }

    fn invalid(&mut self, now: Instant, reason: &'static str) -> PageOutcome {
        self.back_off(now);
        PageOutcome::Invalid(reason)
    }

    fn back_off(&mut self, now: Instant) -> Duration {
        let pause = BACKOFF.0.saturating_mul(1 << self.failures.min(16)).min(BACKOFF.1);
        self.failures += 1;
        self.restarts = 0;
        self.ended = Some(now);
        self.wanted = Some(now + pause);
        pause
    }

    fn complete(&mut self, now: Instant, fetch: Fetch, warning: Option<Warning>) -> PageOutcome {
        self.ended = Some(now);
        (self.restarts, self.failures) = (0, 0);
        if fetch.revision == self.revision {
            self.overtaken = 0;
        } else {
            self.overtaken = self.overtaken.saturating_add(1);
            let publish = self.overtaken >= PUBLISH_ANYWAY;
            self.pause = if publish { PAUSE.1 } else { longer(self.pause) };
            self.wanted = Some(now + self.pause);
            if !publish {
                return PageOutcome::Overtaken;
            }
        }
        match warning {
            Some(warning) => PageOutcome::Stopped(fetch.items, warning),
            None => PageOutcome::Done(fetch.items),
        }
    }
}

/// The next pause while announcements go on.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE.0, PAUSE.1)
}

/// A cursor's digest: a child that makes two of them collide cuts its own list short, and nothing else.
fn digest(cursor: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cursor.hash(&mut hasher);
    hasher.finish()
}

// === impl Warning ===

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RepeatedCursor => f.write_str("it gave the same cursor twice"),
            Self::BadCursor => f.write_str("its cursor is no string"),
            Self::TooManyPages => write!(f, "it has more than {MAX_PAGES} pages"),
            Self::TooManyItems => write!(f, "it has more than {MAX_ITEMS} entries"),
            Self::TooManyBytes => f.write_str("it is too large"),
        }
    }
}

#[cfg(test)]
mod tests;
