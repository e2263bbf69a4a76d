//! Files of others: read, kept a copy of, and replaced as a whole.
//!
//! A file is written beside itself and renamed, its mode is kept, a link is followed, and what changed since it was read
//! is not touched.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file as it was when it was read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its path as it was named; it may be a link.
    pub path: PathBuf,
    /// Its text; `None`: there was no file.
    pub text: Option<String>,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else wrote it after it was read.
    #[error("{} changed since it was read; nothing was written, run the command again", .0.display())]
    Changed(PathBuf),
    /// The system refused.
    #[error("can't write {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

// === impl Snapshot ===

impl Snapshot {
    /// Reads a file, or notes that there is none.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), text })
    }

    /// Copies the file beside itself as `NAME.bak-SECONDS`; `None`: there is nothing to copy.
    ///
    /// # Errors
    ///
    /// [`WriteError::Io`].
    pub fn back_up(&self, unix_seconds: u64) -> Result<Option<PathBuf>, WriteError> {
        let Some(text) = &self.text else { return Ok(None) };
        let target = resolve(&self.path);
        for count in 1..1000 {
            let mut name = self.path.file_name().unwrap_or_default().to_owned();
            name.push(if count == 1 { format!(".bak-{unix_seconds}") } else { format!(".bak-{unix_seconds}-{count}") });
            let backup = self.path.with_file_name(name);
            match create_like(&backup, &target, text) {
                Ok(()) => return Ok(Some(backup)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(WriteError::Io(backup, error)),
            }
        }
        Err(WriteError::Io(self.path.clone(), io::Error::other("there are too many copies of it")))
    }

    /// Replaces the file's text, or removes the file.
    ///
    /// # Errors
    ///
    /// [`WriteError::Changed`] if the file is no longer what was read, [`WriteError::Io`] otherwise.
    pub fn replace(&self, text: Option<&str>) -> Result<(), WriteError> {
        let failed = |error| WriteError::Io(self.path.clone(), error);
        let target = resolve(&self.path);
        let Some(text) = text else {
            self.check_unchanged()?;
            return fs::remove_file(&target).map_err(failed);
        };
        let directory = target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(failed)?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let written = create_like(&temporary, &target, text).map_err(failed).and_then(|()| {
            self.check_unchanged()?;
            fs::rename(&temporary, &target).map_err(failed)
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn check_unchanged(&self) -> Result<(), WriteError> {
        match Self::read(&self.path) {
            Ok(now) if now.text == self.text => Ok(()),
            Ok(_) => Err(WriteError::Changed(self.path.clone())),
            Err(error) => Err(WriteError::Io(self.path.clone(), error)),
        }
    }
}

/// The copies that lie beside a file, the newest first.
pub fn backups(path: &Path) -> Vec<PathBuf> {
    let start = format!("{}.bak-", path.file_name().unwrap_or_default().to_string_lossy());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<((u64, u64), PathBuf)> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stamp = name.strip_prefix(&start)?;
            let (seconds, count) = stamp.split_once('-').unwrap_or((stamp, "1"));
            Some(((seconds.parse().ok()?, count.parse().ok()?), path.with_file_name(&name)))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// A program's name without directory and ending, in lower case; both kinds of slashes separate.
pub(super) fn program_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command).to_ascii_lowercase();
    let bare = [".exe", ".cmd", ".bat", ".ps1"].iter().find_map(|ending| name.strip_suffix(ending));
    bare.unwrap_or(&name).to_owned()
}

/// Follows the links of a path's last part, also to a file that is not there.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Creates a file with the mode of another, closed to others from its first moment.
fn create_like(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let mode = fs::metadata(like).ok().map(|metadata| metadata.permissions());
    #[cfg(unix)]
    if mode.is_some() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut file = options.open(path)?;
    let written = (|| {
        file.write_all(text.as_bytes())?;
        if let Some(mode) = mode {
            file.set_permissions(mode)?;
        }
        file.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_is_not_touched() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.json");
        fs::write(&path, "old").expect("written");
        let snapshot = Snapshot::read(&path).expect("read");
        fs::write(&path, "theirs").expect("written");
        assert!(matches!(snapshot.replace(Some("ours")), Err(WriteError::Changed(_))));
        assert!(matches!(snapshot.replace(None), Err(WriteError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).expect("read"), "theirs");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1, "nothing is left behind");
    }

    #[cfg(unix)]
    #[test]
    fn mode_and_link_are_kept() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        let (real, link) = (directory.path().join("dotfiles.json"), directory.path().join("a.json"));
        fs::write(&real, "old").expect("written");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink("dotfiles.json", &link).expect("linked");
        let snapshot = Snapshot::read(&link).expect("read");
        let backup = snapshot.back_up(7).expect("copied").expect("there was a file");
        snapshot.replace(Some("new")).expect("replaced");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(&real).expect("read"), "new");
        for path in [&real, &backup] {
            assert_eq!(fs::metadata(path).expect("there").permissions().mode() & 0o777, 0o640);
        }
    }

    #[test]
    fn backups_are_listed_newest_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.json");
        fs::write(&path, "x").expect("written");
        let snapshot = Snapshot::read(&path).expect("read");
        let names: Vec<_> = [9, 10, 10].map(|time| snapshot.back_up(time).expect("copied").expect("some")).into();
        fs::write(directory.path().join("a.json.bak-old"), "x").expect("written");
        assert_eq!(backups(&path), [names[2].clone(), names[1].clone(), names[0].clone()]);
    }
}
