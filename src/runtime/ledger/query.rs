//! Reading the ledger, resolving its rows, and their form in JSON.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::params;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::db::{COLUMNS, Db, GUARD_COLUMNS, LedgerError, read_guard_row, read_row, signed};
use crate::engine::outcome::{
    CAPACITY, Exit, GuardRow, Kept, OutcomeId, Reason, Resolution, Row, SettledAs, State, UnixMs,
};

/// Which rows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this server only.
    pub server: Option<String>,
    /// In one of these states; empty: in any.
    pub states: Vec<State>,
    /// Sent at this time or later.
    pub since: Option<UnixMs>,
    /// At most so many; `None`: all.
    pub limit: Option<usize>,
}

// === impl Db ===

impl Db {
    /// Opens the ledger for a command: files of dead processes are taken over first, so that what is shown is complete.
    /// `None`: there is no state directory, so nothing was ever written.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_existing(dir: &Path) -> Result<Option<Self>, LedgerError> {
        // What is there and is no directory is a fault, and no empty ledger.
        if dir.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let mut db = Self::open(dir)?;
        db.adopt(dir)?;
        Ok(Some(db))
    }

    /// The rows that pass a filter, newest first.
    ///
    /// # Errors
    /// As of SQLite.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Row>, LedgerError> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM calls WHERE (?1 IS NULL OR server = ?1) AND time >= ?2 ORDER BY time DESC, id"
        ))?;
        let since = signed(filter.since.unwrap_or_default().0);
        let rows = statement.query_map(params![filter.server, since], read_row)?.filter(is_readable);
        let wanted = |row: &Row| filter.states.is_empty() || filter.states.contains(&row.state());
        let rows = rows.filter(|row| row.as_ref().map_or(true, wanted)).take(filter.limit.unwrap_or(usize::MAX));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The row whose id begins with this; `u-` may be left out.
    ///
    /// # Errors
    /// None or several rows have such an id.
    pub fn find(&self, prefix: &str) -> Result<Row, LedgerError> {
        const SHOWN: usize = 8;
        let digits = prefix.strip_prefix("u-").unwrap_or(prefix);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(LedgerError::NoSuchRow(prefix.to_owned()));
        }
        let from = format!("u-{}", digits.to_ascii_lowercase());
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM calls WHERE id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT {SHOWN}"
        ))?;
        let mut rows =
            statement.query_map(params![from], read_row)?.filter(is_readable).collect::<Result<Vec<_>, _>>()?;
        match rows.len() {
            0 => Err(LedgerError::NoSuchRow(prefix.to_owned())),
            1 => Ok(rows.remove(0)),
            _ => Err(LedgerError::Ambiguous { given: prefix.to_owned(), ids: rows.iter().map(|row| row.id).collect() }),
        }
    }

    /// Says what happened to the call whose id begins with this, and gives the row as it is then.
    ///
    /// # Errors
    /// As [`Db::find`], or of SQLite.
    pub fn resolve(&mut self, prefix: &str, resolution: &Resolution) -> Result<Row, LedgerError> {
        let id = self.find(prefix)?.id;
        self.write(|change| change.resolve(id, resolution))?;
        self.find(&id.to_string())
    }

    /// The number of rows in state `unknown`, by server.
    ///
    /// # Errors
    /// As of SQLite.
    pub fn counts(&self) -> Result<BTreeMap<String, u64>, LedgerError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT server, count(*) FROM calls WHERE settled_as IS NULL AND resolved_as IS NULL GROUP BY server",
        )?;
        let counts = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
        Ok(counts.collect::<Result<_, _>>()?)
    }

    /// What changed after this revision among the rows that were lost since a time, and the revision to ask with next.
    ///
    /// # Errors
    /// As of SQLite.
    pub fn changes(&self, after: i64, lost_since: UnixMs) -> Result<(Vec<GuardRow>, i64), LedgerError> {
        // The counter is read first: what is written in between is seen twice rather than never.
        let latest = self.connection.query_row("SELECT revision FROM counter", [], |row| row.get(0))?;
        if latest == after {
            return Ok((Vec::new(), latest));
        }
        // More than the guard keeps is not read, and of each row only what it asks for.
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {GUARD_COLUMNS} FROM calls WHERE revision > ?1 AND lost_at >= ?2 ORDER BY lost_at DESC LIMIT ?3"
        ))?;
        let newest = i64::try_from(CAPACITY).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![after, signed(lost_since.0), newest], read_guard_row)?;
        let rows = rows.filter(is_readable).collect::<Result<_, _>>()?;
        Ok((rows, latest))
    }
}

/// One row that this program does not understand must not hide the others.
fn is_readable<T>(row: &Result<T, rusqlite::Error>) -> bool {
    !matches!(row, Err(rusqlite::Error::InvalidColumnType(..)))
}

// === impl Row ===

/// A row as it stands in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    id: OutcomeId,
    time: UnixMs,
    lost_at: UnixMs,
    state: State,
    server: &'a str,
    tool: &'a str,
    exposed: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Json<'a>>,
    /// Only where `arguments` is but the head of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_length: Option<u64>,
    arguments_digest: String,
    host_request_id: Json<'a>,
    generation: u64,
    sequence: u64,
    request: String,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<&'a Exit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settlement: Option<SettlementView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<&'a Resolution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat_of: Option<OutcomeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated_at: Option<UnixMs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_at: Option<UnixMs>,
    pid: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SettlementView<'a> {
    kind: SettledAs,
    at: UnixMs,
    result: Json<'a>,
    /// Only where `result` is but the head of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_length: Option<u64>,
}

/// A text that is JSON as the value that it is, and any other as a string.
struct Json<'a>(&'a str);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(value) => value.serialize(to),
            Err(_) => self.0.serialize(to),
        }
    }
}

fn length_if_cut(kept: &Kept) -> Option<u64> {
    kept.cut.then_some(kept.length)
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let view = View {
            id: self.id,
            time: self.time,
            lost_at: self.lost_at,
            state: self.state(),
            server: &self.server,
            tool: &self.tool,
            exposed: &self.exposed,
            arguments: self.arguments.as_ref().map(|kept| Json(&kept.text)),
            arguments_length: self.arguments.as_ref().and_then(length_if_cut),
            arguments_digest: self.digest.to_string(),
            host_request_id: Json(&self.host_request_id),
            generation: self.generation,
            sequence: self.sequence,
            request: self.request(),
            reason: self.reason,
            exit: self.exit.as_ref(),
            settlement: self.settlement.as_ref().map(|late| SettlementView {
                kind: late.kind,
                at: late.at,
                result: Json(&late.result.text),
                result_length: length_if_cut(&late.result),
            }),
            resolution: self.resolution.as_ref(),
            repeat_of: self.repeat_of,
            repeated_at: self.repeated_at,
            refused_at: self.refused_at,
            pid: self.pid,
        };
        view.serialize(to)
    }
}
