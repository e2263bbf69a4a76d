//! The ledger of unknown outcomes: SQLite in the state directory, on a thread of its own, shared by all proxies.
//!
//! The message path hands rows over and goes on; nothing waits for the ledger, not even the end of the process beyond
//! a short bound. No row is lost by that: its record in the in-flight file ([`super::inflight`]) stays open until
//! [`Event::Stored`] says that the row is on disk. When the thread can't keep up, rows wait in a bounded backlog; what
//! does not fit there, or was not stored when the process ended, is taken over from the in-flight file by the proxy
//! that starts next.
//!
//! At its start the thread takes over the in-flight files of dead processes, then it looks once a second for what other
//! processes wrote, so that the repeat guard knows of their rows. As long as nobody ever lost a call there is no file, and
//! SQLite is not even begun. Whoever ends it: dropping the [`Ledger`].

mod db;
mod query;
mod thread;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::engine::outcome::{GuardRow, OutcomeId, Row, Settlement, UnixMs};

pub use db::{Db, FILE, LedgerError};
pub use query::Filter;

/// How long settled and resolved rows are kept, if nothing else is asked for.
pub const KEEP_SETTLED: Duration = Duration::from_hours(30 * 24);

/// So many commands wait in the channel.
const CHANNEL: usize = 1024;

/// So many bytes wait in the backlog behind it.
const BACKLOG_BYTES: usize = 16 * 1024 * 1024;

/// The message path's hold on the ledger's thread.
#[derive(Debug)]
pub struct Ledger {
    /// `None` once it is closed.
    commands: Option<SyncSender<Command>>,
    /// What the channel had no room for, in order.
    backlog: VecDeque<Command>,
    backlog_bytes: usize,
    closing: Arc<AtomicBool>,
    thread: Thread,
    /// Ends when the thread has ended.
    ended: Receiver<()>,
}

/// What the thread has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The files of dead processes are taken over, and their rows and those of the last hour were sent as [`Event::Rows`].
    Ready,
    /// These rows are on disk: [`settle`](super::inflight::Intents::settle) their intents. May be empty.
    Stored(Vec<OutcomeId>),
    /// Rows that are new or changed, also by other processes: [`note`](crate::engine::outcome::RepeatGuard::note) them.
    Rows(Vec<GuardRow>),
}

#[derive(Debug)]
enum Command {
    Insert(Box<Row>),
    Settle(OutcomeId, Box<Settlement>),
    Repeated { of: OutcomeId, at: UnixMs },
    Refused { of: OutcomeId, at: UnixMs },
    List(Filter, oneshot::Sender<Vec<Row>>),
    Counts(oneshot::Sender<BTreeMap<String, u64>>),
}

/// The time of the system's clock.
pub fn unix_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

// === impl Ledger ===

impl Ledger {
    /// Starts the thread and returns at once; the file is opened there, as soon as there is one or something is to be
    /// written. A file that can't be opened is a warning, and is tried again; a damaged one is moved aside. After each
    /// event the owner calls [`flush`](Self::flush).
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn open(dir: &Path, keep_settled: Duration) -> std::io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let (commands, from_owner) = sync_channel(CHANNEL);
        // Unbounded so that the thread never waits for the message path. Events are bounded by calls that were lost.
        let (to_owner, events) = mpsc::unbounded_channel();
        let (ending, ended) = sync_channel(0);
        let closing = Arc::new(AtomicBool::new(false));
        let worker = thread::Worker::new(dir.to_owned(), keep_settled, from_owner, to_owner, Arc::clone(&closing));
        let work = move || {
            worker.run();
            drop(ending);
        };
        let thread = std::thread::Builder::new().name("ledger".to_owned()).spawn(work)?.thread().clone();
        let commands = Some(commands);
        let ledger = Self { commands, backlog: VecDeque::new(), backlog_bytes: 0, closing, thread, ended };
        Ok((ledger, events))
    }

    /// Stores a row, unless one with its id is there. `false`: no room; the in-flight file keeps it for the next start.
    pub fn insert(&mut self, row: Row) -> bool {
        self.send(Command::Insert(Box::new(row)))
    }

    /// Keeps a late response with its row; the first counts. `false`: no room.
    pub fn settle(&mut self, id: OutcomeId, settlement: Settlement) -> bool {
        self.send(Command::Settle(id, Box::new(settlement)))
    }

    /// Notes that the call of a row was sent again. `false`: no room.
    pub fn mark_repeat(&mut self, of: OutcomeId, at: UnixMs) -> bool {
        self.send(Command::Repeated { of, at })
    }

    /// Notes that an identical call was refused because of a row. `false`: no room.
    pub fn mark_refused(&mut self, of: OutcomeId, at: UnixMs) -> bool {
        self.send(Command::Refused { of, at })
    }

    /// Asks for rows, newest first. The answer does not come while the file can't be opened: wait with a limit.
    pub fn list(&mut self, filter: Filter) -> oneshot::Receiver<Vec<Row>> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::List(filter, reply));
        answer
    }

    /// Asks for the number of rows in state `unknown`, by server. Wait with a limit, as for [`list`](Self::list).
    pub fn counts(&mut self) -> oneshot::Receiver<BTreeMap<String, u64>> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Counts(reply));
        answer
    }

    /// Moves what waits in the backlog on, as far as there is room. To be called after each event.
    pub fn flush(&mut self) {
        let Some(commands) = &self.commands else { return };
        while let Some(command) = self.backlog.pop_front() {
            let size = command.size();
            match commands.try_send(command) {
                Ok(()) => self.backlog_bytes -= size,
                Err(TrySendError::Full(command) | TrySendError::Disconnected(command)) => {
                    self.backlog.push_front(command);
                    return;
                }
            }
        }
    }

    /// Ends the thread, and waits for what it still has to do, but no longer than `bound`. `false`: it was not done in
    /// time, and the in-flight file tells the rest.
    pub fn close(mut self, bound: Duration) -> bool {
        self.flush();
        let whole = self.backlog.is_empty();
        self.hang_up();
        // The other end is never written to, only dropped.
        let done = self.ended.recv_timeout(bound) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
        whole && done
    }

    fn send(&mut self, command: Command) -> bool {
        self.flush();
        let Some(commands) = self.commands.as_ref().filter(|_| self.backlog.is_empty()) else {
            return self.keep(command);
        };
        match commands.try_send(command) {
            Ok(()) => true,
            Err(TrySendError::Full(command)) => self.keep(command),
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    fn keep(&mut self, command: Command) -> bool {
        let size = command.size();
        let fits = self.commands.is_some() && self.backlog_bytes + size <= BACKLOG_BYTES;
        if fits {
            self.backlog_bytes += size;
            self.backlog.push_back(command);
        }
        fits
    }

    fn hang_up(&mut self) {
        self.commands = None;
        self.closing.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.hang_up();
    }
}

// === impl Command ===

impl Command {
    fn is_change(&self) -> bool {
        !matches!(self, Self::List(..) | Self::Counts(_))
    }

    /// About how many bytes it holds.
    fn size(&self) -> usize {
        const FIXED: usize = 512;
        FIXED
            + match self {
                Self::Insert(row) => {
                    row.arguments.as_ref().map_or(0, |kept| kept.text.len()) + row.tool.len() + row.exposed.len()
                }
                Self::Settle(_, settlement) => settlement.result.text.len(),
                Self::Repeated { .. } | Self::Refused { .. } | Self::List(..) | Self::Counts(_) => 0,
            }
    }
}

#[cfg(test)]
mod tests;
