//! The ledger's thread: opens the file, stores what it is given, and looks for what others wrote.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::db::{Db, FILE, LedgerError};
use super::{Command, Event, unix_now};
use crate::engine::outcome::{UnixMs, WINDOW_MS};
use crate::runtime::inflight::Orphan;

/// How often the rows of other processes are looked for: half of the two seconds in which the guard has to know them.
const POLL: Duration = Duration::from_secs(1);

/// The pause before a file that can't be used is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// How often old rows are deleted.
const PRUNE: Duration = Duration::from_hours(24);

/// At most so many commands in one transaction.
const BATCH: usize = 256;

/// All that the thread owns.
pub(super) struct Worker {
    dir: PathBuf,
    keep_settled: Duration,
    commands: Receiver<Command>,
    events: UnboundedSender<Event>,
    closing: Arc<AtomicBool>,
    /// Taken from the channel and not yet done: kept over a failure.
    batch: Vec<Command>,
}

/// Why the service of one opened file ended.
enum End {
    Closed,
    Failed(LedgerError),
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(
        dir: PathBuf,
        keep_settled: Duration,
        commands: Receiver<Command>,
        events: UnboundedSender<Event>,
        closing: Arc<AtomicBool>,
    ) -> Self {
        Self { dir, keep_settled, commands, events, closing, batch: Vec::new() }
    }

    /// Runs until the owner hangs up.
    pub(super) fn run(mut self) {
        let mut warned = String::new();
        if self.wait_for_something() {
            return;
        }
        loop {
            let end = match Db::open(&self.dir) {
                Ok(mut db) => self.serve(&mut db),
                Err(error) => End::Failed(error),
            };
            let End::Failed(error) = end else { return };
            // Another process moved the damaged file aside: go on with the new one at once.
            if matches!(error, LedgerError::Replaced(_)) {
                continue;
            }
            let text = error.to_string();
            if text != warned {
                tracing::warn!(
                    "{text}; calls go on, and it is tried again. Until then the in-flight file, where there is one, keeps their outcomes"
                );
                warned = text;
            }
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            std::thread::park_timeout(RETRY);
        }
    }

    /// Waits until there is something to be opened or to be written: most proxies never lose a call, and SQLite, once it
    /// has run, takes a tenth of all memory. `true`: the owner has hung up.
    fn wait_for_something(&mut self) -> bool {
        let file = self.dir.join(FILE);
        let orphans = Orphan::find(&self.dir).is_ok_and(|orphans| !orphans.is_empty());
        // Where nothing can be kept that is told at once, by trying it.
        if orphans || file.exists() || !Db::has_room_in(&self.dir) {
            return false;
        }
        self.tell(Event::Ready);
        loop {
            match self.commands.recv_timeout(POLL) {
                Ok(command) => {
                    self.batch.push(command);
                    if file.exists() || self.batch.iter().any(Command::is_change) {
                        return false;
                    }
                    for command in self.batch.drain(..) {
                        // An asker that is gone is no fault.
                        match command {
                            Command::List(_, reply) => drop(reply.send(Vec::new())),
                            Command::Counts(reply) => drop(reply.send(BTreeMap::new())),
                            _ => {}
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if file.exists() => return false,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    fn serve(&mut self, db: &mut Db) -> End {
        let end = self.try_serve(db);
        end.map_or_else(End::Failed, |()| End::Closed)
    }

    /// Serves one opened file; `Ok` once the owner has hung up and everything is done.
    fn try_serve(&mut self, db: &mut Db) -> Result<(), LedgerError> {
        let adopted = db.adopt(&self.dir)?;
        if adopted > 0 {
            tracing::warn!(
                "{adopted} calls of a proxy that was killed have an unknown outcome: see `mcp-proxy unknown`"
            );
        }
        let mut revision = self.poll(db, 0)?;
        self.tell(Event::Ready);
        let mut polled = Instant::now();
        let mut pruned: Option<Instant> = None;
        loop {
            let hung_up = if self.batch.is_empty() { self.wait(POLL.saturating_sub(polled.elapsed())) } else { false };
            self.store(db)?;
            if hung_up {
                return Ok(());
            }
            if polled.elapsed() >= POLL {
                revision = self.poll(db, revision)?;
                polled = Instant::now();
            }
            // Not before the first rows are served: a start has better things to do.
            if pruned.is_none_or(|at| at.elapsed() >= PRUNE) {
                let keep = u64::try_from(self.keep_settled.as_millis()).unwrap_or(u64::MAX);
                db.write(|change| change.prune(UnixMs(unix_now().0.saturating_sub(keep))))?;
                pruned = Some(Instant::now());
            }
        }
    }

    /// Fills the batch with what has come; waits for the first. `true`: the owner has hung up and all was taken.
    fn wait(&mut self, at_most: Duration) -> bool {
        match self.commands.recv_timeout(at_most) {
            Ok(first) => {
                self.batch.push(first);
                self.batch.extend(self.commands.try_iter().take(BATCH - 1));
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Does what is in the batch: first all changes as one, then the questions.
    fn store(&mut self, db: &mut Db) -> Result<(), LedgerError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut stored = Vec::new();
        if self.batch.iter().any(Command::is_change) {
            db.write(|change| {
                for command in &self.batch {
                    match command {
                        Command::Insert(row) => {
                            change.insert(row)?;
                            stored.push(row.id);
                        }
                        Command::Settle(id, settlement) => change.settle(*id, settlement)?,
                        Command::Repeated { of, at } => change.mark_repeat(*of, *at)?,
                        Command::Refused { of, at } => change.mark_refused(*of, *at)?,
                        Command::List(..) | Command::Counts(_) => {}
                    }
                }
                Ok(())
            })?;
        }
        for command in std::mem::take(&mut self.batch) {
            // An asker that is gone is no fault.
            match command {
                Command::List(filter, reply) => drop(reply.send(db.list(&filter)?)),
                Command::Counts(reply) => drop(reply.send(db.counts()?)),
                _ => {}
            }
        }
        self.tell(Event::Stored(stored));
        Ok(())
    }

    /// Sends what changed after this revision.
    fn poll(&mut self, db: &Db, revision: i64) -> Result<i64, LedgerError> {
        let since = UnixMs(unix_now().0.saturating_sub(WINDOW_MS));
        let (rows, revision) = db.changes(revision, since)?;
        if !rows.is_empty() {
            self.tell(Event::Rows(rows));
        }
        Ok(revision)
    }

    fn tell(&self, event: Event) {
        // The owner may be gone before us; then nobody is left to be told.
        let _ = self.events.send(event);
    }
}
