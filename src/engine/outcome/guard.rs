//! The repeat guard: a call that may already have run is not sent again blindly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Digest, OutcomeId, Reason, Row, SettledAs, UnixMs};
use crate::config::Repeat;

/// How long a row stands in the way of an identical call, in milliseconds.
pub const WINDOW_MS: u64 = 60 * 60 * 1000;

/// At most so many rows are known; above it the oldest goes. A row takes about 170 bytes.
pub const CAPACITY: usize = 4_096;

/// At most so many rows of one and the same call; above it the oldest goes, so that a call that is lost again and again
/// neither drives out the others nor makes each look longer.
const SAME: usize = 32;

/// What is known of a row's outcome, in the order in which it becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing.
    Unknown,
    /// A late response said that it failed: nothing stands in the way.
    Failed,
    /// A late response said that it succeeded: it has run.
    Succeeded,
    /// Somebody said what happened: nothing stands in the way.
    Resolved,
}

/// What the guard knows of a row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GuardRow {
    /// Its id.
    pub id: OutcomeId,
    /// Of server, tool and arguments.
    pub digest: Digest,
    /// The key of the server's table.
    pub server: String,
    /// The name of the tool that the host used.
    pub exposed: String,
    /// When the call was sent.
    pub time: UnixMs,
    /// When its outcome became unknown: the window is counted from here.
    pub lost_at: UnixMs,
    /// Why.
    pub reason: Reason,
    /// What became known since.
    pub standing: Standing,
    /// Whether the host was warned: an identical call was refused, or a person allowed it.
    pub warned: bool,
}

/// What to do with a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Send it.
    Send,
    /// Send it, and write down that it repeats this row.
    SendAsRepeat {
        /// The row.
        of: OutcomeId,
    },
    /// Ask the person, then give the [`Answer`] to [`RepeatGuard::answered`].
    Ask {
        /// The row.
        of: OutcomeId,
        /// The question.
        text: String,
    },
    /// Answer -31012 with the row's id, and write down that it was refused.
    Refuse {
        /// The row.
        of: OutcomeId,
        /// What the model is told.
        text: String,
    },
}

/// What a person said to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Run it again.
    Accepted,
    /// Do not.
    Declined,
    /// Nothing: the question was put away, failed, or took too long.
    None,
}

/// The rows of the last hour, by what was called. Deterministic; time comes in.
///
/// What it holds is bounded and small, however many calls are lost: the ledger has all of them, and the rest of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RepeatGuard {
    rows: BTreeMap<OutcomeId, Known>,
    by_digest: BTreeSet<(Digest, UnixMs, OutcomeId)>,
    by_time: BTreeSet<(UnixMs, OutcomeId)>,
    /// With the number of rows that have each.
    names: BTreeMap<Arc<Names>, u32>,
}

/// What is kept of a row, beside its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Known {
    digest: Digest,
    time: UnixMs,
    lost_at: UnixMs,
    names: Arc<Names>,
    reason: Reason,
    standing: Standing,
    warned: bool,
}

/// What a refusal names; the same for all calls of one tool.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Names {
    server: String,
    exposed: String,
}

// === impl RepeatGuard ===

impl RepeatGuard {
    /// Takes note of a row, own or another process's. What is known only grows: news that come late take nothing back.
    pub fn note(&mut self, now: UnixMs, row: GuardRow) {
        while let Some(&(lost_at, id)) = self.by_time.first()
            && now.since(lost_at) > WINDOW_MS
        {
            self.forget(id);
        }
        if let Some(known) = self.rows.get_mut(&row.id) {
            known.standing = known.standing.max(row.standing);
            known.warned |= row.warned;
        } else if now.since(row.lost_at) <= WINDOW_MS {
            self.learn(row);
        }
    }

    fn learn(&mut self, row: GuardRow) {
        let GuardRow { id, digest, server, exposed, time, lost_at, reason, standing, warned } = row;
        self.by_time.insert((lost_at, id));
        self.by_digest.insert((digest, lost_at, id));
        let names = Names { server, exposed };
        let names = self.names.get_key_value(&names).map_or_else(|| Arc::new(names), |(known, _)| Arc::clone(known));
        *self.names.entry(Arc::clone(&names)).or_default() += 1;
        self.rows.insert(id, Known { digest, time, lost_at, names, reason, standing, warned });
        let too_many = self.same(digest).nth(SAME).and_then(|_| self.same(digest).next());
        let too_much = (self.rows.len() > CAPACITY).then(|| self.by_time.first().map(|&(_, oldest)| oldest)).flatten();
        if let Some(oldest) = too_many.or(too_much) {
            self.forget(oldest);
        }
    }

    /// The rows of one call, the oldest first.
    fn same(&self, digest: Digest) -> impl DoubleEndedIterator<Item = OutcomeId> {
        let (from, to) = ((digest, UnixMs(0), OutcomeId(0)), (digest, UnixMs(u64::MAX), OutcomeId(u64::MAX)));
        self.by_digest.range(from..=to).map(|&(_, _, id)| id)
    }

    /// What decides about calls: digest, reason, standing, and whether somebody was warned; in the order of the ids.
    pub fn rows(&self) -> impl Iterator<Item = (Digest, Reason, Standing, bool)> {
        self.rows.values().map(|row| (row.digest, row.reason, row.standing, row.warned))
    }

    /// Whether no row is known: then nothing stands in the way of any call.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes note of a late response.
    pub fn settled(&mut self, id: OutcomeId, kind: SettledAs) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.standing = row.standing.max(Standing::of(Some(kind), false));
        }
    }

    /// Decides about a call. `exempt`: read-only, idempotent, or a retry with `requestState`. A refusal under
    /// `confirm` is remembered here at once; the caller writes it down.
    pub fn check(
        &mut self,
        now: UnixMs,
        policy: Repeat,
        digest: Digest,
        exempt: bool,
        host_can_elicit: bool,
    ) -> Verdict {
        if exempt {
            return Verdict::Send;
        }
        let Some((of, row)) = self.armed(now, digest) else { return Verdict::Send };
        match policy {
            Repeat::Always => Verdict::SendAsRepeat { of },
            Repeat::Never => Verdict::Refuse { of, text: row.refusal(of, now, Advice::Resolve) },
            Repeat::Confirm if row.warned => Verdict::SendAsRepeat { of },
            Repeat::Confirm if host_can_elicit => Verdict::Ask { of, text: row.question(now) },
            Repeat::Confirm => self.refuse_once(now, of),
        }
    }

    /// Decides after a person was asked about the row `of`. Who said no is asked anew at the next identical call; who
    /// said nothing has the call refused once, as if the host could not ask.
    pub fn answered(&mut self, now: UnixMs, of: OutcomeId, answer: Answer) -> Verdict {
        match (answer, self.rows.get(&of)) {
            (Answer::Accepted, _) => {
                self.warn(of);
                Verdict::SendAsRepeat { of }
            }
            (Answer::Declined, Some(row)) => Verdict::Refuse { of, text: row.refusal(of, now, Advice::Declined) },
            (Answer::None, Some(_)) => self.refuse_once(now, of),
            (Answer::Declined | Answer::None, None) => {
                Verdict::Refuse { of, text: "the call was not sent: the person did not allow it to run again".into() }
            }
        }
    }

    /// The newest row that stands in the way, preferring one that nobody was warned of.
    fn armed(&self, now: UnixMs, digest: Digest) -> Option<(OutcomeId, &Known)> {
        let rows = self.same(digest).filter_map(|id| Some((id, self.rows.get(&id)?)));
        rows.filter(|(_, row)| row.is_armed(now)).max_by_key(|(id, row)| (!row.warned, row.lost_at, *id))
    }

    fn refuse_once(&mut self, now: UnixMs, of: OutcomeId) -> Verdict {
        let text = self.rows.get(&of).map_or_else(String::new, |row| row.refusal(of, now, Advice::CallAgain));
        self.warn(of);
        Verdict::Refuse { of, text }
    }

    /// One warning counts for all rows of the same call that are known by then: it is refused once, not once a row.
    fn warn(&mut self, of: OutcomeId) {
        let Some(digest) = self.rows.get(&of).map(|row| row.digest) else { return };
        for id in self.same(digest).collect::<Vec<_>>() {
            if let Some(row) = self.rows.get_mut(&id) {
                row.warned = true;
            }
        }
    }

    fn forget(&mut self, id: OutcomeId) {
        let Some(row) = self.rows.remove(&id) else { return };
        self.by_time.remove(&(row.lost_at, id));
        self.by_digest.remove(&(row.digest, row.lost_at, id));
        if let Some(count) = self.names.get_mut(&row.names) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(&row.names);
            }
        }
    }
}

// === impl Known ===

/// What to do next, in a refusal.
#[derive(Clone, Copy)]
enum Advice {
    CallAgain,
    Resolve,
    Declined,
}

impl Known {
    fn is_armed(&self, now: UnixMs) -> bool {
        let counts = match self.standing {
            // A person was at hand when the host cancelled.
            Standing::Unknown | Standing::Succeeded => self.reason != Reason::Cancelled,
            Standing::Failed | Standing::Resolved => false,
        };
        counts && now.since(self.lost_at) <= WINDOW_MS
    }

    fn what_happened(&self, now: UnixMs) -> String {
        let ago = ago(now.since(self.time));
        let why = self.reason.clause();
        match self.standing {
            Standing::Succeeded => format!("sent {ago}; {why}, but a late answer says that it succeeded: it has run"),
            _ => format!("sent {ago}; {why}: it may already have run"),
        }
    }

    fn question(&self, now: UnixMs) -> String {
        let Names { exposed, server } = &*self.names;
        let happened = self.what_happened(now);
        format!("The same call of \"{exposed}\" (server \"{server}\") was {happened}. Run it again?")
    }

    fn refusal(&self, id: OutcomeId, now: UnixMs, advice: Advice) -> String {
        let Names { exposed, server } = &*self.names;
        let happened = self.what_happened(now);
        let next = match advice {
            Advice::CallAgain => {
                "Find out whether it ran; if it has to run again, make the same call once more and it will be sent."
                    .to_owned()
            }
            Advice::Resolve => format!(
                "It stays refused until somebody says what happened: mcp-proxy unknown resolve {id} --as done|not-done."
            ),
            Advice::Declined => "The person was asked and does not want it to run again.".to_owned(),
        };
        format!(
            "This call of \"{exposed}\" was not sent to server \"{server}\", because the same call ({id}) was \
             {happened}. {next}"
        )
    }
}

// === impl GuardRow ===

impl From<&Row> for GuardRow {
    fn from(row: &Row) -> Self {
        Self {
            id: row.id,
            digest: row.digest,
            server: row.server.clone(),
            exposed: row.exposed.clone(),
            time: row.time,
            lost_at: row.lost_at,
            reason: row.reason,
            standing: Standing::of(row.settlement.as_ref().map(|late| late.kind), row.resolution.is_some()),
            warned: row.refused_at.is_some() || row.repeated_at.is_some(),
        }
    }
}

// === impl Standing ===

impl Standing {
    /// What follows from a late response and a resolution.
    pub fn of(settled: Option<SettledAs>, resolved: bool) -> Self {
        match (resolved, settled) {
            (true, _) => Self::Resolved,
            (false, Some(SettledAs::Success)) => Self::Succeeded,
            (false, Some(SettledAs::ToolError | SettledAs::ProtocolError)) => Self::Failed,
            (false, None) => Self::Unknown,
        }
    }
}

fn ago(ms: u64) -> String {
    let of = |count: u64, unit: &str| format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" });
    match ms / 1000 {
        0 => "a moment ago".to_owned(),
        seconds @ 1..60 => of(seconds, "second"),
        seconds @ 60..3_600 => of(seconds / 60, "minute"),
        seconds @ 3_600..86_400 => of(seconds / 3_600, "hour"),
        seconds => of(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::outcome::Digester;

    const NOW: UnixMs = UnixMs(1_800_000_000_000);

    fn digest(tool: &str) -> Digest {
        Digester::default().digest("bank", tool, None)
    }

    fn row(bits: u64, reason: Reason, standing: Standing) -> GuardRow {
        GuardRow {
            id: OutcomeId::from_random(bits),
            digest: digest("pay"),
            server: "bank".into(),
            exposed: "bank__pay".into(),
            time: UnixMs(NOW.0 - 120_000),
            lost_at: UnixMs(NOW.0 - 60_000),
            reason,
            standing,
            warned: false,
        }
    }

    fn guard(rows: impl IntoIterator<Item = GuardRow>) -> RepeatGuard {
        let mut guard = RepeatGuard::default();
        for row in rows {
            guard.note(NOW, row);
        }
        guard
    }

    fn kind(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Send => "send",
            Verdict::SendAsRepeat { .. } => "repeat",
            Verdict::Ask { .. } => "ask",
            Verdict::Refuse { .. } => "refuse",
        }
    }

    /// Makes the call three times in a row.
    fn thrice(guard: &mut RepeatGuard, policy: Repeat, exempt: bool, elicit: bool) -> [&'static str; 3] {
        [(); 3].map(|()| kind(&guard.check(NOW, policy, digest("pay"), exempt, elicit)))
    }

    #[test]
    fn verdicts() {
        use Reason::{Cancelled, ChildExited, ProxyKilled, Timeout};
        use Repeat::{Always, Confirm, Never};
        use Standing::{Failed, Resolved, Succeeded, Unknown};
        for (reason, standing, policy, elicit, expected) in [
            (ChildExited, Unknown, Confirm, false, ["refuse", "repeat", "repeat"]),
            (ProxyKilled, Unknown, Confirm, false, ["refuse", "repeat", "repeat"]),
            (Timeout, Unknown, Confirm, true, ["ask", "ask", "ask"]),
            (Timeout, Succeeded, Confirm, false, ["refuse", "repeat", "repeat"]),
            (Timeout, Failed, Confirm, false, ["send", "send", "send"]),
            (Timeout, Resolved, Confirm, false, ["send", "send", "send"]),
            (Cancelled, Unknown, Confirm, false, ["send", "send", "send"]),
            (Cancelled, Succeeded, Confirm, true, ["send", "send", "send"]),
            (Cancelled, Unknown, Never, true, ["send", "send", "send"]),
            (ChildExited, Unknown, Never, true, ["refuse", "refuse", "refuse"]),
            (ChildExited, Succeeded, Never, false, ["refuse", "refuse", "refuse"]),
            (ChildExited, Failed, Never, false, ["send", "send", "send"]),
            (ChildExited, Unknown, Always, true, ["repeat", "repeat", "repeat"]),
            (ChildExited, Failed, Always, true, ["send", "send", "send"]),
        ] {
            let mut some = guard([row(1, reason, standing)]);
            assert_eq!(thrice(&mut some, policy, false, elicit), expected, "{reason:?} {standing:?} {policy:?}");
            let mut some = guard([row(1, reason, standing)]);
            assert_eq!(thrice(&mut some, policy, true, elicit), ["send"; 3], "exempt");
        }
    }

    #[test]
    fn only_the_same_call_within_the_hour() {
        let mut some = guard([row(1, Reason::Timeout, Standing::Unknown)]);
        assert_eq!(some.check(NOW, Repeat::Confirm, digest("other"), false, false), Verdict::Send);
        let last = UnixMs(NOW.0 - 60_000 + WINDOW_MS);
        assert_eq!(kind(&some.check(last, Repeat::Never, digest("pay"), false, false)), "refuse");
        let over = UnixMs(last.0 + 1);
        assert_eq!(some.check(over, Repeat::Never, digest("pay"), false, false), Verdict::Send);
        some.note(
            over,
            GuardRow { lost_at: over, digest: digest("other"), ..row(2, Reason::Timeout, Standing::Unknown) },
        );
        assert_eq!(sizes(&some), [1; 4]);
    }

    #[test]
    fn news_that_come_late_take_nothing_back() {
        let mut some = guard([row(1, Reason::Timeout, Standing::Unknown)]);
        some.settled(OutcomeId::from_random(1), SettledAs::ToolError);
        some.note(NOW, row(1, Reason::Timeout, Standing::Unknown));
        assert_eq!(some.check(NOW, Repeat::Confirm, digest("pay"), false, false), Verdict::Send);

        let mut some = guard([row(1, Reason::Timeout, Standing::Unknown)]);
        assert_eq!(kind(&some.check(NOW, Repeat::Confirm, digest("pay"), false, false)), "refuse");
        some.note(NOW, row(1, Reason::Timeout, Standing::Unknown));
        assert_eq!(kind(&some.check(NOW, Repeat::Confirm, digest("pay"), false, false)), "repeat");
    }

    #[test]
    fn the_refusal_of_another_process_counts() {
        let mut some = guard([GuardRow { warned: true, ..row(1, Reason::Timeout, Standing::Unknown) }]);
        assert_eq!(kind(&some.check(NOW, Repeat::Confirm, digest("pay"), false, false)), "repeat");
    }

    #[test]
    fn a_lost_repeat_warns_anew_and_two_rows_warn_once() {
        let mut some = guard([1, 2].map(|bits| row(bits, Reason::Timeout, Standing::Unknown)));
        assert_eq!(thrice(&mut some, Repeat::Confirm, false, false), ["refuse", "repeat", "repeat"]);
        some.note(NOW, GuardRow { lost_at: NOW, ..row(3, Reason::Timeout, Standing::Unknown) });
        let Verdict::Refuse { of, .. } = some.check(NOW, Repeat::Confirm, digest("pay"), false, false) else {
            panic!("a new row warns anew")
        };
        assert_eq!(of, OutcomeId::from_random(3));
    }

    #[test]
    fn answers_of_a_person() {
        let of = OutcomeId::from_random(1);
        for (answer, verdict, next) in [
            (Answer::Accepted, "repeat", "repeat"),
            (Answer::Declined, "refuse", "ask"),
            (Answer::None, "refuse", "repeat"),
        ] {
            let mut some = guard([row(1, Reason::Timeout, Standing::Unknown)]);
            assert_eq!(kind(&some.check(NOW, Repeat::Confirm, digest("pay"), false, true)), "ask");
            assert_eq!(kind(&some.answered(NOW, of, answer)), verdict);
            assert_eq!(kind(&some.check(NOW, Repeat::Confirm, digest("pay"), false, true)), next, "{answer:?}");
        }
        assert_eq!(kind(&guard([]).answered(NOW, of, Answer::None)), "refuse");
    }

    #[test]
    fn texts_say_what_happened_and_what_to_do() {
        let text = |standing, policy, elicit| match guard([row(1, Reason::ChildExited, standing)]).check(
            NOW,
            policy,
            digest("pay"),
            false,
            elicit,
        ) {
            Verdict::Ask { text, .. } | Verdict::Refuse { text, .. } => text,
            other => panic!("{other:?}"),
        };
        insta::assert_snapshot!(
            [
                text(Standing::Unknown, Repeat::Confirm, false),
                text(Standing::Succeeded, Repeat::Confirm, true),
                text(Standing::Unknown, Repeat::Never, false),
            ]
            .join("\n"),
            @r#"
        This call of "bank__pay" was not sent to server "bank", because the same call (u-0000000000001) was sent 2 minutes ago; the server exited before it answered: it may already have run. Find out whether it ran; if it has to run again, make the same call once more and it will be sent.
        The same call of "bank__pay" (server "bank") was sent 2 minutes ago; the server exited before it answered, but a late answer says that it succeeded: it has run. Run it again?
        This call of "bank__pay" was not sent to server "bank", because the same call (u-0000000000001) was sent 2 minutes ago; the server exited before it answered: it may already have run. It stays refused until somebody says what happened: mcp-proxy unknown resolve u-0000000000001 --as done|not-done.
        "#
        );
    }

    fn sizes(guard: &RepeatGuard) -> [usize; 4] {
        [guard.rows.len(), guard.by_digest.len(), guard.by_time.len(), guard.names.len()]
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_go_first() {
        let lost_at = |bits: usize| UnixMs(NOW.0 - 60_000 + bits as u64);
        let lost = |bits: usize, tool: &str| GuardRow {
            digest: digest(tool),
            exposed: format!("bank__{tool}"),
            lost_at: lost_at(bits),
            ..row(bits as u64, Reason::Timeout, Standing::Unknown)
        };
        let mut some = RepeatGuard::default();
        let last = CAPACITY + 500;
        for bits in 0..last {
            some.note(NOW, lost(bits, &bits.to_string()));
        }
        assert_eq!(sizes(&some), [CAPACITY; 4]);
        let mut check = |bits: usize| kind(&some.check(NOW, Repeat::Never, digest(&bits.to_string()), false, false));
        assert_eq!([check(0), check(499), check(500), check(last - 1)], ["send", "send", "refuse", "refuse"]);
        // One call that is lost again and again drives nothing else out.
        for bits in 0..CAPACITY {
            some.note(NOW, lost(last + bits, "again"));
        }
        assert_eq!(sizes(&some), [CAPACITY, CAPACITY, CAPACITY, CAPACITY - SAME + 1]);
        let Verdict::Refuse { of, .. } = some.check(NOW, Repeat::Never, digest("again"), false, false) else {
            panic!("it is refused")
        };
        assert_eq!(of, OutcomeId::from_random((last + CAPACITY - 1) as u64), "the newest is named");
        some.note(
            UnixMs(NOW.0 + 2 * WINDOW_MS),
            GuardRow { lost_at: UnixMs(NOW.0 + 2 * WINDOW_MS), ..lost(0, "late") },
        );
        assert_eq!(sizes(&some), [1; 4]);
    }

    #[test]
    fn a_row_is_as_small_as_its_bound_says() {
        let entries = [
            size_of::<(OutcomeId, Known)>(),
            size_of::<(Digest, UnixMs, OutcomeId)>(),
            size_of::<(UnixMs, OutcomeId)>(),
        ];
        // The nodes of a tree are half full at the least.
        assert!(entries.iter().sum::<usize>() <= 104, "{entries:?}");
    }
}
