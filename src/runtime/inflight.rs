//! The in-flight file: what this process has sent and has no settled answer to, on disk before it is sent.
//!
//! One file a process, `inflight-PID-RANDOM.jsonl` in the state directory, locked while the process lives. A record is
//! one line and one `write`; nothing is synced, for what must be survived is the end of the process, not of the machine.
//! Whenever nothing is open the next record begins at the start again: to write into a page that is there and has its
//! size costs the kernel least, and a proxy with a call at a time never leaves its first page.
//!
//! The life of a call: [`begin`](Intents::begin), then either [`settle`](Intents::settle) once its answer was accepted,
//! or [`lost`](Intents::lost), which writes down why and gives the row for the ledger, and `settle` once the ledger
//! has stored that row.
//!
//! Invariant: a record is open in the file until its call has an answer or its row is in the ledger. So the file is
//! also what holds the rows that the ledger could not take yet.

mod record;

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::engine::hashed::BuildHashed;
use crate::engine::outcome::{Intent, Loss, Mask, OutcomeId, Row, UnixMs};

pub use record::{RECORD_BOUND, open_rows};

/// The file is cut back when it is over this and nothing is open.
pub const CUT_ABOVE: u64 = 1024 * 1024;

/// The file is rewritten when it is over this and little of it is still open.
const REWRITE_ABOVE: u64 = 8 * 1024 * 1024;

/// With so many bytes open nothing more is written: the ledger has been out of order for a long time.
const FULL_ABOVE: u64 = 64 * 1024 * 1024;

const PREFIX: &str = "inflight-";
const SUFFIX: &str = ".jsonl";

/// The intents of this process. All calls are made by one thread.
#[derive(Debug)]
pub struct Intents {
    /// `None`: the file could not be opened, or was given up.
    file: Option<Journal>,
    /// What is neither answered nor stored by the ledger.
    open: HashMap<OutcomeId, Place, BuildHashed>,
    /// The bytes of the file that open records take.
    live: u64,
    /// One record, reused.
    line: Vec<u8>,
    ids: IdSource,
}

/// The file and what is known of it.
#[derive(Debug)]
struct Journal {
    file: File,
    path: PathBuf,
    dir: PathBuf,
    /// When this process began its first file.
    started: UnixMs,
    /// Where the next record begins. What stands behind it is over.
    end: u64,
    /// The size of the file.
    size: u64,
    /// Where the first record begins.
    header: u64,
    /// Records that are not yet in the file, while they are held for one write.
    held: Vec<u8>,
    holding: bool,
    /// The size above which it is rewritten next.
    rewrite_at: u64,
}

/// Where the record of an open call is.
#[derive(Debug)]
enum Place {
    File {
        offset: u64,
        length: u32,
        /// Why no answer will come, once that is so.
        loss: Option<Box<Loss>>,
    },
    /// It could not be written: it is lost if the process is killed, but not before.
    Memory(Box<[u8]>),
}

/// Random ids, some dozens for one call of the operating system.
#[derive(Debug)]
struct IdSource {
    pool: [u64; 32],
    left: usize,
}

/// A file of a dead process, locked by us.
#[derive(Debug)]
pub struct Orphan {
    file: File,
    path: PathBuf,
}

// === impl Intents ===

impl Intents {
    /// Makes and locks a new file in the state directory, which is made if it is missing.
    ///
    /// # Errors
    /// The directory can't be made, or the file can't be made or locked. The caller warns and goes on with
    /// [`Intents::disabled`].
    pub fn open(dir: &Path, now: UnixMs) -> io::Result<Self> {
        create_private_dir(dir)?;
        let mut intents = Self::disabled();
        intents.file = Some(Journal::create(dir, intents.ids.next(), now)?);
        Ok(intents)
    }

    /// Keeps everything in memory: what is open when the process is killed is forgotten.
    pub fn disabled() -> Self {
        let ids = IdSource { pool: [0; 32], left: 0 };
        Self { file: None, open: HashMap::default(), live: 0, line: Vec::new(), ids }
    }

    /// Where the file is; `None` if there is none.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|journal| journal.path.as_path())
    }

    /// An id for the next intent.
    pub fn fresh_id(&mut self) -> OutcomeId {
        OutcomeId::from_random(self.ids.next())
    }

    /// How many calls are open.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Writes down a call before it is sent: one `write` of at most [`RECORD_BOUND`] bytes. Without a `mask` there is
    /// nothing to hide.
    ///
    /// # Errors
    /// The record could not be written. The call is known all the same and may be sent; the caller warns once.
    pub fn begin(&mut self, intent: &Intent<'_>, mask: Option<&Mask<'_>>) -> io::Result<()> {
        self.line.clear();
        record::begin(&mut self.line, intent, mask);
        let written = match &mut self.file {
            Some(_) if self.live > FULL_ABOVE => Err(io::Error::other("too many unstored outcomes")),
            Some(journal) => journal.append(&self.line).map(Some),
            None => Ok(None),
        };
        let place = match &written {
            Ok(Some(offset)) => {
                self.live += self.line.len() as u64;
                Place::File { offset: *offset, length: u32::try_from(self.line.len()).unwrap_or(u32::MAX), loss: None }
            }
            Ok(None) | Err(_) => Place::Memory(self.line.as_slice().into()),
        };
        self.open.insert(intent.id, place);
        written.map(drop)
    }

    /// Holds records back until [`Intents::flush`], so that those of one turn are one `write`. The turn must flush
    /// before it writes to any pipe.
    pub fn hold(&mut self) {
        if let Some(journal) = &mut self.file {
            journal.holding = true;
        }
    }

    /// Writes what was held.
    ///
    /// # Errors
    /// The records could not be written; they are kept in memory in place of that, and the calls may be sent.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(journal) = &mut self.file else { return Ok(()) };
        journal.holding = false;
        self.write_held()
    }

    fn write_held(&mut self) -> io::Result<()> {
        let Some(journal) = &mut self.file else { return Ok(()) };
        if journal.held.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut journal.held);
        let (from, written) = (journal.end, journal.write(&held));
        if written.is_err() {
            for place in self.open.values_mut() {
                let &mut Place::File { offset, length, .. } = place else { continue };
                let Some(start) = offset.checked_sub(from).and_then(|start| usize::try_from(start).ok()) else {
                    continue;
                };
                if let Some(record) = held.get(start..start + length as usize) {
                    self.live -= u64::from(length);
                    *place = Place::Memory(record.into());
                }
            }
        }
        journal.held = held;
        journal.held.clear();
        self.rewind_if_idle();
        written.map(drop)
    }

    /// With nothing open the next record begins at the start again.
    fn rewind_if_idle(&mut self) {
        if let Some(journal) = &mut self.file
            && self.live == 0
            && journal.held.is_empty()
        {
            journal.end = journal.header;
        }
    }

    /// Closes a call: its answer was accepted, or the ledger has its row. One `write`; an id that is not open is
    /// ignored.
    ///
    /// # Errors
    /// The record could not be written: after a kill the call is taken for one of unknown outcome.
    pub fn settle(&mut self, id: OutcomeId) -> io::Result<()> {
        let Some(Place::File { length, .. }) = self.open.remove(&id) else { return Ok(()) };
        self.live -= u64::from(length);
        let Some(journal) = &mut self.file else { return Ok(()) };
        if self.live == 0 && journal.size > CUT_ABOVE {
            // Nothing that is held is open either.
            journal.held.clear();
            return journal.cut_to(journal.header);
        }
        self.line.clear();
        record::settle(&mut self.line, id);
        journal.append(&self.line)?;
        if journal.end > journal.rewrite_at {
            self.write_held()?;
            self.rewrite()?;
        }
        self.rewind_if_idle();
        Ok(())
    }

    /// Writes down that no answer will come, and gives the row for the ledger; `None` if the call is not open or is
    /// known to be lost, so that a call has one row. The
    /// record stays open until [`settle`](Self::settle) is called because the ledger has stored the row.
    pub fn lost(&mut self, id: OutcomeId, loss: &Loss) -> Option<Row> {
        // What can't be written is found in memory.
        let _ = self.write_held();
        self.line.clear();
        match self.open.get_mut(&id)? {
            Place::File { loss: Some(_), .. } => None,
            Place::File { offset, length, loss: known } => {
                let journal = self.file.as_mut()?;
                self.line.resize(*length as usize, 0);
                read_at(&journal.file, &mut self.line, *offset).ok()?;
                let row = record::row(&self.line, loss, std::process::id());
                *known = Some(Box::new(loss.clone()));
                self.line.clear();
                record::lost(&mut self.line, id, loss);
                // If this can't be written the reason after a kill is `proxy_killed`; the row is whole all the same.
                let _ = journal.append(&self.line);
                row
            }
            Place::Memory(line) => record::row(line, loss, std::process::id()),
        }
    }

    /// Begins a new file with the open records only, for a busy process whose file is never without one.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some(old) = &mut self.file else { return Ok(()) };
        // Whatever comes of this, the next attempt is not made at the next call.
        old.rewrite_at = old.end * 2;
        if self.live * 4 > old.end {
            return Ok(());
        }
        let mut new = Journal::prepare(&old.dir, self.ids.next(), old.started)?;
        let mut moved = Vec::with_capacity(self.open.len());
        let mut losses = Vec::new();
        let mut buffer = Vec::with_capacity(usize::try_from(self.live).unwrap_or(0));
        for (&id, place) in &self.open {
            let &Place::File { offset, length, ref loss } = place else { continue };
            let start = buffer.len();
            buffer.resize(start + length as usize, 0);
            read_at(&old.file, &mut buffer[start..], offset)?;
            moved.push((id, new.end + start as u64));
            if let Some(loss) = loss {
                record::lost(&mut losses, id, loss);
            }
        }
        buffer.extend_from_slice(&losses);
        new.write(&buffer)?;
        new.publish()?;
        // The old file is emptied before its lock goes, so that nobody takes its records for those of a dead process.
        old.file.set_len(0)?;
        let _ = std::fs::remove_file(&old.path);
        *old = new;
        for (id, moved_to) in moved {
            if let Some(Place::File { offset, .. }) = self.open.get_mut(&id) {
                *offset = moved_to;
            }
        }
        Ok(())
    }
}

impl Drop for Intents {
    /// Leaves no file when there is nothing to be told by it.
    fn drop(&mut self) {
        if let Some(journal) = &self.file
            && self.live == 0
        {
            let _ = journal.file.set_len(0);
            let _ = std::fs::remove_file(&journal.path);
        }
    }
}

// === impl Journal ===

impl Journal {
    fn create(dir: &Path, random: u64, now: UnixMs) -> io::Result<Self> {
        let mut journal = Self::prepare(dir, random, now)?;
        journal.publish()?;
        Ok(journal)
    }

    /// Makes and locks a file under a name that nobody adopts: between the two it would look like a dead process's.
    fn prepare(dir: &Path, random: u64, started: UnixMs) -> io::Result<Self> {
        let pid = std::process::id();
        let path = dir.join(format!("{PREFIX}{pid}-{random:016x}{SUFFIX}.new"));
        // Not for appending: such a file could not be cut back on Windows. Nobody else writes to it.
        let file = private_file().read(true).write(true).create_new(true).open(&path)?;
        let mut journal = Self {
            file,
            path,
            dir: dir.to_owned(),
            started,
            end: 0,
            size: 0,
            header: 0,
            held: Vec::new(),
            holding: false,
            rewrite_at: REWRITE_ABOVE,
        };
        let mut header = Vec::new();
        record::header(&mut header, pid, started);
        if let Err(error) = journal.file.lock().and_then(|()| journal.write(&header)) {
            let _ = std::fs::remove_file(&journal.path);
            return Err(error);
        }
        journal.header = journal.end;
        Ok(journal)
    }

    /// Gives the file the name under which others find it.
    fn publish(&mut self) -> io::Result<()> {
        let path = self.path.with_extension("");
        std::fs::rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }

    /// Appends a line, and tells where it begins.
    fn append(&mut self, line: &[u8]) -> io::Result<u64> {
        if self.holding {
            let offset = self.end + self.held.len() as u64;
            self.held.extend_from_slice(line);
            return Ok(offset);
        }
        self.write(line)
    }

    /// Adds lines with one `write`, and tells where they begin.
    fn write(&mut self, line: &[u8]) -> io::Result<u64> {
        let written = loop {
            match write_at(&self.file, line, self.end) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if written < line.len() {
            let _ = self.cut_to(self.end);
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk took only a part of the record"));
        }
        let offset = self.end;
        self.end += written as u64;
        self.size = self.size.max(self.end);
        Ok(offset)
    }

    /// Cuts the file back to this many bytes.
    fn cut_to(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        (self.end, self.size) = (end, end);
        Ok(())
    }
}

// === impl IdSource ===

impl IdSource {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            let mut bytes = [0; 256];
            // Without a source of randomness a program of today can't start; an id that is not unique loses a row.
            getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
            for (id, bytes) in self.pool.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *id = u64::from_le_bytes(*bytes);
            }
            self.left = self.pool.len();
        }
        self.left -= 1;
        self.pool[self.left]
    }
}

// === impl Orphan ===

impl Orphan {
    /// The files of dead processes: those whose lock can be had. It is held as long as the value lives. What can't be
    /// opened, or is being taken over by another, is passed over.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn find(dir: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let half_made = name.strip_suffix(".new");
            if !name.starts_with(PREFIX) || !half_made.unwrap_or(name).ends_with(SUFFIX) {
                continue;
            }
            let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
            match file.try_lock() {
                Ok(()) if half_made.is_none() => found.push(Self { file, path }),
                Ok(()) => remove_if_stale(&file, &path),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
            }
        }
        Ok(found)
    }

    /// The rows of what is open in it. Lines that are torn or strange are passed over.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn rows(&mut self, now: UnixMs) -> io::Result<Vec<Row>> {
        let mut text = Vec::new();
        self.file.read_to_end(&mut text)?;
        Ok(open_rows(&text, now))
    }

    /// Deletes the file: its rows are stored. It is emptied first, for whoever opened it already.
    pub fn remove(self) {
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Deletes a file whose maker died before it gave it its name; a living maker needs a moment for that.
fn remove_if_stale(file: &File, path: &Path) {
    const MOMENT: std::time::Duration = std::time::Duration::from_hours(1);
    let modified = file.metadata().and_then(|about| about.modified());
    if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MOMENT)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Makes the state directory, for its owner only.
///
/// # Errors
/// As of the operating system.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// How a file is opened that is its owner's alone, if it is made by that.
pub fn private_file() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "elsewhere the directory says who may read it"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    match std::os::windows::fs::FileExt::seek_read(file, buffer, offset)? {
        read if read == buffer.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests;
