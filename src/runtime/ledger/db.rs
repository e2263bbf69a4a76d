//! The file of the ledger: how it is opened, repaired and written. Every process has its own connection.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params};

use super::unix_now;
use crate::engine::outcome::{
    Exit, GuardRow, Kept, OutcomeId, Reason, Resolution, ResolvedAs, Row, Settlement, Standing, UnixMs, WINDOW_MS,
};
use crate::runtime::inflight::{Orphan, create_private_dir, private_file};

/// The name of the file in the state directory.
pub const FILE: &str = "ledger.sqlite3";

/// Only one process at a time opens the file, so that a damaged one is moved aside once.
const OPEN_LOCK: &str = "ledger.lock";

/// How long another process may hold the file or the lock before this is an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// What this program writes and understands, kept as SQLite's `user_version`.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE calls (
    id TEXT PRIMARY KEY, time INTEGER NOT NULL, lost_at INTEGER NOT NULL,
    server TEXT NOT NULL, tool TEXT NOT NULL, exposed TEXT NOT NULL,
    arguments TEXT, arguments_length INTEGER, arguments_cut INTEGER, digest TEXT NOT NULL,
    host_request_id TEXT NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL, pid INTEGER NOT NULL,
    reason TEXT NOT NULL, exit TEXT,
    settled_as TEXT, settled_at INTEGER, result TEXT, result_length INTEGER, result_cut INTEGER,
    resolved_as TEXT, resolved_at INTEGER, note TEXT,
    repeat_of TEXT, repeated_at INTEGER, refused_at INTEGER,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_by_time ON calls (time);
CREATE INDEX calls_by_digest ON calls (digest);
CREATE INDEX calls_by_revision ON calls (revision);
CREATE TABLE counter (revision INTEGER NOT NULL) STRICT;
INSERT INTO counter VALUES (0);
";

/// Every column in the order of [`read_row`].
pub(super) const COLUMNS: &str = "id, time, lost_at, server, tool, exposed, arguments, arguments_length, \
    arguments_cut, digest, host_request_id, generation, sequence, pid, reason, exit, settled_as, settled_at, result, \
    result_length, result_cut, resolved_as, resolved_at, note, repeat_of, repeated_at, refused_at";

/// What the guard is told of a row, in the order of [`read_guard_row`].
pub(super) const GUARD_COLUMNS: &str = "id, digest, server, exposed, time, lost_at, reason, settled_as, \
    resolved_as IS NOT NULL, refused_at IS NOT NULL OR repeated_at IS NOT NULL";

/// Pages that SQLite may keep in memory, in KiB. Its own bound of 2,000 is more than all of an idle proxy; a row is
/// written and never looked at again.
const CACHE_KIB: i32 = 256;

/// A connection to the ledger.
#[derive(Debug)]
pub struct Db {
    pub(super) connection: Connection,
    path: PathBuf,
    /// Which file it is, to notice that another process moved it aside; `None` where that can't be told.
    identity: Option<(u64, u64)>,
}

/// Why the ledger can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory or a file in it.
    #[error("the ledger in {dir} can't be opened: {source}")]
    Io {
        /// The state directory.
        dir: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A later version of this program made it.
    #[error("the ledger {path} has version {found}, and this program knows {VERSION}: update mcp-proxy")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// What SQLite says.
    #[error("the ledger can't be used: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file is no longer the one that was opened.
    #[error("the ledger {0} was replaced by another file")]
    Replaced(PathBuf),
    /// A check of the file found a fault.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
    /// No row has this id.
    #[error("no call of unknown outcome has an id that begins with {0:?}; `mcp-proxy unknown list` shows them")]
    NoSuchRow(String),
    /// Several rows have such an id.
    #[error("{given:?} is the beginning of several ids: {}", .ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// What was given.
        given: String,
        /// The ids that begin with it, a few of them.
        ids: Vec<OutcomeId>,
    },
}

// === impl Db ===

impl Db {
    /// Opens the ledger of a state directory, and makes what is missing. A damaged file is moved aside with a warning.
    ///
    /// # Errors
    /// The directory or the file can't be used, or a later version made it.
    pub fn open(dir: &Path) -> Result<Self, LedgerError> {
        let io = |source| LedgerError::Io { dir: dir.to_owned(), source };
        create_private_dir(dir).map_err(io)?;
        let path = dir.join(FILE);
        let _lock = lock_opening(dir).map_err(io)?;
        match Self::connect(&path) {
            Err(error) if error.is_damage() => {
                let moved_to = move_aside(&path).map_err(io)?;
                tracing::warn!(
                    "the ledger of unknown outcomes was damaged ({error}): it was moved to {} and a new one begun",
                    moved_to.display()
                );
                Self::connect(&path)
            }
            other => other,
        }
    }

    /// Whether a file could be made in that directory.
    pub fn has_room_in(dir: &Path) -> bool {
        create_private_dir(dir).and_then(|()| lock_opening(dir)).is_ok()
    }

    fn connect(path: &Path) -> Result<Self, LedgerError> {
        make_private(path)
            .map_err(|source| LedgerError::Io { dir: path.parent().unwrap_or(path).to_owned(), source })?;

        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        let found = version(&connection)?;
        if found > VERSION {
            return Err(LedgerError::Newer { path: path.to_owned(), found });
        }
        set_journal(&connection)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version(&transaction)? == 0 {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        transaction.commit()?;
        let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(LedgerError::Damaged(verdict));
        }
        Ok(Self { connection, path: path.to_owned(), identity: identity(path) })
    }

    /// Takes over the in-flight files of dead processes, and tells how many rows they held. Any number of processes may
    /// do so at the same time: a row is inserted or ignored by its id, and a file is deleted after its rows are stored.
    ///
    /// # Errors
    /// As of SQLite. What can't be read is left for the next start with a warning.
    pub fn adopt(&mut self, dir: &Path) -> Result<usize, LedgerError> {
        let orphans = Orphan::find(dir).map_err(|source| LedgerError::Io { dir: dir.to_owned(), source })?;
        let mut adopted = 0;
        for mut orphan in orphans {
            match orphan.rows(unix_now()) {
                Ok(rows) => {
                    self.write(|change| rows.iter().try_for_each(|row| change.insert(row)))?;
                    adopted += rows.len();
                    orphan.remove();
                }
                Err(error) => tracing::warn!("an in-flight file of a dead process can't be read: {error}"),
            }
        }
        Ok(adopted)
    }

    /// Makes some changes as one, all of them or none.
    ///
    /// # Errors
    /// As of SQLite, or the file was moved aside by another process.
    pub fn write<T>(
        &mut self,
        changes: impl FnOnce(&Change<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<T, LedgerError> {
        if self.identity.is_some() && self.identity != identity(&self.path) {
            return Err(LedgerError::Replaced(self.path.clone()));
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let revision =
            transaction
                .query_row("UPDATE counter SET revision = revision + 1 RETURNING revision", [], |row| row.get(0))?;
        let change = Change { transaction, revision };
        let made = changes(&change)?;
        change.transaction.commit()?;
        Ok(made)
    }
}

// === impl Change ===

/// Changes under way.
#[derive(Debug)]
pub struct Change<'c> {
    transaction: Transaction<'c>,
    /// What the changed rows are marked with, so that other processes find them.
    revision: i64,
}

impl Change<'_> {
    /// Inserts a row, unless its id is known.
    pub fn insert(&self, row: &Row) -> Result<(), rusqlite::Error> {
        let mut statement = self.transaction.prepare_cached(
            "INSERT OR IGNORE INTO calls (id, time, lost_at, server, tool, exposed, arguments, arguments_length, \
             arguments_cut, digest, host_request_id, generation, sequence, pid, reason, exit, repeat_of, revision) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        let arguments = row.arguments.as_ref();
        statement.execute(params![
            row.id.to_string(),
            signed(row.time.0),
            signed(row.lost_at.0),
            row.server,
            row.tool,
            row.exposed,
            arguments.map(|kept| &kept.text),
            arguments.map(|kept| signed(kept.length)),
            arguments.map(|kept| kept.cut),
            row.digest.to_string(),
            row.host_request_id,
            signed(row.generation),
            signed(row.sequence),
            row.pid,
            row.reason.name(),
            row.exit.as_ref().map(|exit| serde_json::json!(exit).to_string()),
            row.repeat_of.map(|id| id.to_string()),
            self.revision,
        ])?;
        Ok(())
    }

    /// Keeps a late response; the first counts.
    pub fn settle(&self, id: OutcomeId, settlement: &Settlement) -> Result<(), rusqlite::Error> {
        let mut statement = self.transaction.prepare_cached(
            "UPDATE calls SET settled_as = ?2, settled_at = ?3, result = ?4, result_length = ?5, result_cut = ?6, \
             revision = ?7 WHERE id = ?1 AND settled_as IS NULL",
        )?;
        let Kept { text, length, cut } = &settlement.result;
        let at = signed(settlement.at.0);
        let kind = settlement.kind.name();
        statement.execute(params![id.to_string(), kind, at, text, signed(*length), cut, self.revision])?;
        Ok(())
    }

    /// Keeps what somebody said; the last counts.
    pub fn resolve(&self, id: OutcomeId, resolution: &Resolution) -> Result<(), rusqlite::Error> {
        let Resolution { verdict, note, at } = resolution;
        self.transaction.execute(
            "UPDATE calls SET resolved_as = ?2, note = ?3, resolved_at = ?4, revision = ?5 WHERE id = ?1",
            params![id.to_string(), verdict.name(), note, signed(at.0), self.revision],
        )?;
        Ok(())
    }

    /// Notes that the call was sent again; the last time counts.
    pub fn mark_repeat(&self, of: OutcomeId, at: UnixMs) -> Result<(), rusqlite::Error> {
        self.transaction.execute(
            "UPDATE calls SET repeated_at = ?2, revision = ?3 WHERE id = ?1",
            params![of.to_string(), signed(at.0), self.revision],
        )?;
        Ok(())
    }

    /// Notes that an identical call was refused: with this row, and with those of the same call in the last hour.
    pub fn mark_refused(&self, of: OutcomeId, at: UnixMs) -> Result<(), rusqlite::Error> {
        self.transaction.execute(
            "UPDATE calls SET refused_at = ?2, revision = ?3 WHERE refused_at IS NULL AND lost_at >= ?4 \
             AND digest = (SELECT digest FROM calls WHERE id = ?1)",
            params![of.to_string(), signed(at.0), self.revision, signed(at.0.saturating_sub(WINDOW_MS))],
        )?;
        Ok(())
    }

    /// Deletes the rows that were settled or resolved before that time.
    pub fn prune(&self, before: UnixMs) -> Result<usize, rusqlite::Error> {
        self.transaction.execute(
            "DELETE FROM calls WHERE max(coalesce(resolved_at, settled_at), coalesce(settled_at, resolved_at)) < ?1",
            params![signed(before.0)],
        )
    }
}

// === impl LedgerError ===

impl LedgerError {
    /// Whether the file itself is broken.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Sqlite(error) => {
                matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
            }
            _ => false,
        }
    }
}

/// Takes the lock that is held while the file is opened. A file system without locks goes without.
fn lock_opening(dir: &Path) -> std::io::Result<File> {
    let file = private_file().append(true).create(true).open(dir.join(OPEN_LOCK))?;
    let start = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock()
        && start.elapsed() < PATIENCE
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(file)
}

/// Makes the file for its owner only; SQLite makes its own files beside it with the same rights. A file that is there is
/// not opened: closing it again would take SQLite's locks from this process's other connections.
fn make_private(path: &Path) -> std::io::Result<()> {
    match private_file().append(true).create_new(true).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Write-ahead logging, or the rollback journal where the file system has no shared memory.
pub(super) fn set_journal(connection: &Connection) -> Result<(), rusqlite::Error> {
    let set =
        |mode: &str| connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get::<_, String>(0));
    match set("WAL") {
        Ok(mode) if mode == "wal" => Ok(()),
        Err(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) =>
        {
            Err(error)
        }
        Ok(_) | Err(_) => set("DELETE").map(drop),
    }
}

/// Moves a damaged file, and what SQLite keeps beside it, to a name that tells when. Nothing is deleted.
fn move_aside(path: &Path) -> std::io::Result<PathBuf> {
    let stamp: String = unix_now().to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let beside = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut target = beside(path, &format!(".damaged-{stamp}"));
    while target.exists() {
        target = beside(&target, "-again");
    }
    std::fs::rename(path, &target)?;
    for suffix in ["-wal", "-shm", "-journal"] {
        match std::fs::rename(beside(path, suffix), beside(&target, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(target)
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    // An open file can't be moved there.
    None
}

/// SQLite's integers are signed; none of ours comes near that end.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a row of [`COLUMNS`]. A strange value is an [`InvalidColumnType`](rusqlite::Error::InvalidColumnType).
pub(super) fn read_row(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    let strange =
        |column: usize| rusqlite::Error::InvalidColumnType(column, COLUMNS.into(), rusqlite::types::Type::Text);
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let maybe = |column: usize| row.get::<_, Option<i64>>(column).map(|number| number.map(i64::cast_unsigned));
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let id =
        |column: usize| text(column)?.map(|text| text.parse::<OutcomeId>().map_err(|_| strange(column))).transpose();
    let kept = |text: Option<String>, length: usize| -> Result<Option<Kept>, rusqlite::Error> {
        let Some(text) = text else { return Ok(None) };
        Ok(Some(Kept { length: maybe(length)?.unwrap_or(text.len() as u64), cut: row.get(length + 1)?, text }))
    };
    let settlement = match row.get::<_, Option<String>>(16)?.as_deref() {
        None => None,
        Some(kind) => Some(Settlement {
            kind: kind.parse().map_err(|()| strange(16))?,
            at: UnixMs(number(17)?),
            result: kept(text(18)?, 19)?.ok_or_else(|| strange(18))?,
        }),
    };
    let resolution = match row.get::<_, Option<String>>(21)?.as_deref() {
        None => None,
        Some(verdict) => Some(Resolution {
            verdict: match verdict {
                "done" => ResolvedAs::Done,
                "not-done" => ResolvedAs::NotDone,
                _ => return Err(strange(21)),
            },
            at: UnixMs(number(22)?),
            note: text(23)?.unwrap_or_default(),
        }),
    };
    Ok(Row {
        id: id(0)?.ok_or_else(|| strange(0))?,
        time: UnixMs(number(1)?),
        lost_at: UnixMs(number(2)?),
        server: row.get(3)?,
        tool: row.get(4)?,
        exposed: row.get(5)?,
        arguments: kept(text(6)?, 7)?,
        digest: row.get::<_, String>(9)?.parse().map_err(|()| strange(9))?,
        host_request_id: row.get(10)?,
        generation: number(11)?,
        sequence: number(12)?,
        pid: row.get(13)?,
        reason: row.get::<_, String>(14)?.parse::<Reason>().map_err(|()| strange(14))?,
        exit: text(15)?.and_then(|exit| serde_json::from_str::<Exit>(&exit).ok()),
        settlement,
        resolution,
        repeat_of: id(24)?,
        repeated_at: maybe(25)?.map(UnixMs),
        refused_at: maybe(26)?.map(UnixMs),
    })
}

/// Reads a row of [`GUARD_COLUMNS`], as [`read_row`] does.
pub(super) fn read_guard_row(row: &rusqlite::Row<'_>) -> Result<GuardRow, rusqlite::Error> {
    let text = |column: usize| row.get::<_, Option<String>>(column).map(Option::unwrap_or_default);
    let strange =
        |column: usize| rusqlite::Error::InvalidColumnType(column, GUARD_COLUMNS.into(), rusqlite::types::Type::Text);
    let time = |column: usize| row.get::<_, i64>(column).map(|number| UnixMs(number.cast_unsigned()));
    let settled = row.get::<_, Option<String>>(7)?.map(|kind| kind.parse().map_err(|()| strange(7))).transpose()?;
    Ok(GuardRow {
        id: text(0)?.parse().map_err(|_| strange(0))?,
        digest: text(1)?.parse().map_err(|()| strange(1))?,
        server: row.get(2)?,
        exposed: row.get(3)?,
        time: time(4)?,
        lost_at: time(5)?,
        reason: text(6)?.parse().map_err(|()| strange(6))?,
        standing: Standing::of(settled, row.get(8)?),
        warned: row.get(9)?,
    })
}
