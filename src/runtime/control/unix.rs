//! The socket of this process.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use super::place::{Found, PlaceError, Surroundings, sockets};

/// After a refusal of the system, such as no descriptor to spare.
const PAUSE: Duration = Duration::from_millis(500);

/// Our socket in the file system, removed at the end.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    /// Device and file, so that another's socket under our name is let be.
    mark: (u64, u64),
}

/// Where clients come in.
#[derive(Debug)]
pub(super) struct Door(UnixListener);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{} can't be made: {error}", path.display())]
    Bind { path: PathBuf, error: io::Error },
}

/// Makes the socket, and removes what dead proxies left.
pub(super) fn open() -> Result<(Socket, Door), OpenError> {
    let surroundings = Surroundings::current();
    let dir = surroundings.own();
    surroundings.make(&dir)?;
    clean(&dir);
    let path = dir.join(format!("{}.sock", std::process::id()));
    let bound = (|| {
        // Of an earlier process with our number: it can't live.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        // Until here the directory's mode kept others out.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let data = fs::symlink_metadata(&path)?;
        Ok((Socket { path: path.clone(), mark: (data.dev(), data.ino()) }, Door(listener)))
    })();
    bound.map_err(|error| OpenError::Bind { path, error })
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = |data: fs::Metadata| (data.dev(), data.ino()) == self.mark;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes sockets that nobody listens on and whose process is gone. Either alone is not enough: a proxy may live in
/// another namespace of processes, and one that is starting may not listen yet.
fn clean(dir: &Path) {
    for Found { pid, path } in sockets(dir) {
        let is_gone = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
        if is_gone && is_refused(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_refused(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Door {
    /// The next client of our user.
    pub(super) async fn next(&mut self) -> Option<UnixStream> {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) if is_ours(&stream) => return Some(stream),
                Ok(_) => tracing::warn!("another user's process knocked at the control socket; it was turned away"),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Whether the other end is a process of our user, or the system's administrator.
fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}
