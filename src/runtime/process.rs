//! One life of a server's process: what to start, how it ended, and why it could not be started.
//!
//! [`Spawner`] and [`Process`] do it, each platform in its own way: with process groups and a guard, or with jobs. The
//! pump knows them as [`Start`] and [`Life`] only, and so can be given servers that are no processes.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
pub use super::group::{Process, Spawner};
#[cfg(windows)]
pub use super::windows::process::{Process, Spawner};

/// The way to a server's standard input.
#[cfg(unix)]
pub type ChildIn = tokio::net::unix::pipe::Sender;
/// The way from a server's standard output or error.
#[cfg(unix)]
pub type ChildOut = tokio::net::unix::pipe::Receiver;
/// The way to a server's standard input.
#[cfg(windows)]
pub type ChildIn = tokio::net::windows::named_pipe::NamedPipeServer;
/// The way from a server's standard output or error.
#[cfg(windows)]
pub type ChildOut = tokio::net::windows::named_pipe::NamedPipeServer;

/// The guard could not be told: it could not be started anew, or the runtime is ending.
#[derive(Debug, thiserror::Error)]
#[error("the guard process could not be told of the new process group")]
pub struct GuardGone;

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// A path, or a name that is looked up in the `PATH` of `env`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment: nothing of ours is added.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; `None`: ours.
    pub cwd: Option<PathBuf>,
    /// Each grace of the stop ladder, should the guard have to go down it.
    pub stop_grace: Duration,
}

/// A future on the heap, as a trait object's method gives it.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A server that runs, and our ends of its pipes; or why it does not.
pub type Begun = Result<(Box<dyn Life>, Pipes), SpawnError>;

/// Whoever starts servers.
pub trait Start: fmt::Debug + Send + Sync {
    /// Starts a server and tells when its command runs, or the reason why it does not.
    fn start<'a>(&'a self, plan: &'a Spawn) -> Later<'a, Begun>;
}

/// A started server, to be ended with [`Life::ladder`], also after the leader's exit.
pub trait Life: fmt::Debug + Send + Sync {
    /// The leader's process number.
    fn pid(&self) -> u32;

    /// Waits for the leader's exit. May be dropped and called again.
    fn wait(&self) -> Later<'_, Exit>;

    /// Ends all that belongs to the server, by the stop ladder with that grace; its stdin was closed before.
    fn ladder(self: Box<Self>, grace: Duration) -> Later<'static, Exit>;
}

/// Asked before each start; an error that it gives is taken for that of the start.
pub type Fault = Arc<dyn Fn() -> Option<io::Error> + Send + Sync>;

/// Our ends of a server's pipes, non-blocking and on the reactor.
#[derive(Debug)]
pub struct Pipes {
    /// Dropped, it is the server's end of input: the first rung of the ladder.
    pub stdin: ChildIn,
    /// What the server says.
    pub stdout: ChildOut,
    /// What it tells people.
    pub stderr: ChildOut,
}

/// How the leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It is gone, and the system can't tell how.
    Unknown,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command does not exist.
    #[error("command `{}` was not found {place}; give its full path, or install it", program.display())]
    NotFound {
        /// As configured.
        program: PathBuf,
        /// Where it was looked for.
        place: String,
    },
    /// The command exists, but what it names in its first line does not.
    #[error(
        "`{}` exists but can't be started: the interpreter that it names is missing; install it, or correct the \
         file's first line",
        program.display()
    )]
    NoInterpreter {
        /// As configured.
        program: PathBuf,
    },
    /// The command can't be executed.
    #[error(
        "command `{}` can't be executed: {source}; it must be an executable file for this system",
        program.display()
    )]
    NotExecutable {
        /// As configured.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The working directory can't be entered.
    #[error("working directory `{}` can't be entered: {source}; correct `cwd`", directory.display())]
    Directory {
        /// As configured.
        directory: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no process, descriptor or memory to spare now.
    #[error("no process could be started: {source}; it is tried again")]
    Resources {
        /// The system's reason.
        source: io::Error,
    },
    /// The guard does not know of the process, so it may not run.
    #[error("{source}; it is tried again")]
    Guard {
        /// What the guard's handle said.
        #[from]
        source: GuardGone,
    },
}

#[cfg(any(debug_assertions, feature = "test-fakes"))]
pub(super) fn fault_of_environment() -> Option<Fault> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let list = std::env::var("MCP_PROXY_TEST_SPAWN_ERRORS").ok()?;
    let errors: Vec<i32> = list.split(',').filter_map(|word| word.trim().parse().ok()).collect();
    let next = AtomicUsize::new(0);
    Some(Arc::new(move || {
        errors.get(next.fetch_add(1, Ordering::Relaxed)).map(|number| io::Error::from_raw_os_error(*number))
    }))
}

#[cfg(not(any(debug_assertions, feature = "test-fakes")))]
pub(super) fn fault_of_environment() -> Option<Fault> {
    None
}

impl Start for Spawner {
    fn start<'a>(&'a self, plan: &'a Spawn) -> Later<'a, Begun> {
        Box::pin(async {
            let (process, pipes) = self.spawn(plan).await?;
            Ok((Box::new(process) as Box<dyn Life>, pipes))
        })
    }
}

impl Life for Process {
    fn pid(&self) -> u32 {
        self.pid()
    }

    fn wait(&self) -> Later<'_, Exit> {
        Box::pin(self.wait())
    }

    fn ladder(self: Box<Self>, grace: Duration) -> Later<'static, Exit> {
        Box::pin((*self).ladder(grace))
    }
}

// === impl Spawn ===

impl Spawn {
    /// Where the program is, if no look-up in `PATH` was needed.
    pub(super) fn path(&self) -> Option<PathBuf> {
        if self.program.components().count() < 2 {
            return None;
        }
        let base = self.cwd.as_deref().unwrap_or(Path::new(""));
        Some(base.join(&self.program))
    }

    pub(super) fn place(&self) -> String {
        if self.path().is_some() {
            return "at that path".to_owned();
        }
        match self.env.iter().rev().find(|(name, _)| name == "PATH") {
            Some((_, path)) => format!("in PATH ({})", path.to_string_lossy()),
            None => "in the system's default PATH (the server is given none)".to_owned(),
        }
    }
}

// === impl SpawnError ===

impl SpawnError {
    /// Whether another attempt would fail alike: only a person can mend it.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Resources { .. } | Self::Guard { .. })
    }
}

// === impl Exit ===

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match signal_name(*number) {
                Some(name) => write!(f, "signal {number} ({name})"),
                None => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("an exit that the system did not tell"),
        }
    }
}

/// The name of a signal that ends processes, by the number that all Unix systems share.
fn signal_name(number: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    names.into_iter().find(|(known, _)| *known == number).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_told_in_words() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(Exit::Signal(64).to_string(), "signal 64");
    }
}
