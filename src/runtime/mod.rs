//! The deeds: processes, descriptors, signals. It does, and decides nothing.
//!
//! One binary plays three parts. As the proxy it runs tokio on one thread. As the *guard* ([`guard`]) it outlives the
//! proxy for as long as the stop ladder takes. As the *launcher* ([`launcher`]) it becomes a server's command as soon
//! as the guard knows of that server's process group. The last two are plain `std` and branch off before anything else
//! of `main` ([`branch_off`]).

use std::path::PathBuf;
use std::process::ExitCode;

pub mod cache;
pub mod child;
pub mod control;
pub mod desk;
#[cfg(unix)]
mod group;
#[cfg(unix)]
pub mod guard;
pub mod inflight;
pub mod launch;
#[cfg(unix)]
pub mod launcher;
pub mod ledger;
pub mod levels;
pub mod lines;
pub mod process;
pub mod proxy;
pub mod pump;
pub mod reload;
pub mod shelf;
pub mod signal;
pub mod stdio;
#[cfg(windows)]
mod windows;

#[cfg(windows)]
pub use windows::guard;

/// Plays the hidden parts of the binary; `None` if this process is the proxy itself.
///
/// To be called first in `main`: before the command line is parsed and before any thread or runtime exists.
#[cfg(unix)]
pub fn branch_off() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let part = args.next()?;
    if part == guard::ARGUMENT {
        Some(guard::run())
    } else if part == launcher::ARGUMENT {
        Some(launcher::run(args))
    } else {
        None
    }
}

/// Plays the hidden parts of the binary; there are none on this platform.
#[cfg(not(unix))]
pub fn branch_off() -> Option<ExitCode> {
    None
}

/// Where guard and launcher are started from: this very binary.
///
/// On Linux a link that stays true when the file was replaced by another version meanwhile.
///
/// # Errors
///
/// The platform can't tell the path.
pub fn own_binary() -> std::io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if cfg!(target_os = "linux") && link.exists() {
        return Ok(link);
    }
    std::env::current_exe()
}

/// Marks every descriptor above 2 close-on-exec, so that none that a host left open reaches a child. On Windows a
/// child is given only what is listed for it.
pub fn seal_descriptors() {
    #[cfg(unix)]
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Puts a descriptor on the reactor; `None` if the system or the reactor refuses it.
#[cfg(unix)]
fn on_reactor(
    descriptor: std::os::fd::OwnedFd,
    interest: tokio::io::Interest,
) -> Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    #[allow(deprecated, reason = "sound for an OwnedFd; its successor is unsafe, which this crate forbids")]
    tokio::io::unix::AsyncFd::with_interest(descriptor, interest).ok()
}
