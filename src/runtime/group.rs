//! A server and all that belongs to it, as a Unix process group.
//!
//! A server is started through the [launcher](super::launcher) in a process group of its own, after the
//! [guard](super::guard) was told of that group. The leader is reaped last, when the rest of its group is gone: until
//! then its number, which is the group's, can't be given to a foreign process, and signals to the group are safe.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::Instant;

use super::guard::Guard;
use super::launcher::{ChildEnds, Held, Refusal};
use super::process::{Exit, Fault, Pipes, Spawn, SpawnError, fault_of_environment};

/// How long the last rung waits for what was killed; only what hangs in the kernel takes longer.
const KILLED_LIMIT: Duration = Duration::from_secs(2);
/// Bounds of the pause between two looks at a group whose leader is gone.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Between looks at a process that can't be watched by a descriptor.
const POLL: Duration = Duration::from_millis(500);

/// Starts servers; clones share the guard.
#[derive(Clone)]
pub struct Spawner {
    binary: PathBuf,
    guard: Guard,
    fault: Option<Fault>,
}

/// A started server. To be ended with [`Process::ladder`], also after the leader's exit.
///
/// Dropped without that, everything is left to the guard, which acts when we are gone; but if a panic drops it, its
/// group is killed at once.
#[derive(Debug)]
pub struct Process {
    group: Group,
}

/// A rung of the stop ladder; each is waited for before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Eof,
    Term,
    Kill,
}

// === impl Spawner ===

impl Spawner {
    /// Starts servers through `binary`, which must be ours.
    ///
    /// In builds for tests the variable `MCP_PROXY_TEST_SPAWN_ERRORS` holds error numbers, separated by commas: each
    /// is the fate of one start.
    pub fn new(binary: PathBuf, guard: Guard) -> Self {
        // A host may have us ignore SIGCHLD, and then no exit could be told. The handler stays for good.
        let _ = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child());
        Self { binary, guard, fault: fault_of_environment() }
    }

    /// Has `fault` asked before each start, for tests.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Starts a server and returns when its command runs, or with the reason why it does not. Dropped before that, it
    /// leaves nothing.
    ///
    /// # Errors
    ///
    /// See [`SpawnError`]; [`SpawnError::is_permanent`] tells what trying again can't mend.
    pub async fn spawn(&self, plan: &Spawn) -> Result<(Process, Pipes), SpawnError> {
        if let Some(error) = self.fault.as_ref().and_then(|fault| fault()) {
            return Err(refused(plan, error));
        }
        let (theirs, pipes) = pipes().map_err(|source| SpawnError::Resources { source })?;
        let (binary, guard, to_start) = (self.binary.clone(), self.guard.clone(), plan.clone());
        // The thread that forks stands still until the launcher was executed, which on a busy machine takes long.
        let started = tokio::task::spawn_blocking(move || {
            let held = Held::start(&binary, &to_start)?;
            let group = Group::new(held.pid(), guard);
            Ok::<_, io::Error>((held, group))
        });
        let started = started.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (held, mut group) = started.map_err(|error| refused(plan, error))?;
        self.guard.add(group.leader, plan.stop_grace).await?;
        held.release(theirs).await.map_err(|refusal| match refusal {
            Refusal::Directory(source) => {
                SpawnError::Directory { directory: plan.cwd.clone().unwrap_or_default(), source }
            }
            Refusal::Command(error) => refused(plan, error),
            Refusal::Launcher(source) => SpawnError::Resources { source },
        })?;
        group.duty = Duty::Leave;
        Ok((Process { group }, pipes))
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("binary", &self.binary).finish_non_exhaustive()
    }
}

fn pipes() -> io::Result<(ChildEnds, Pipes)> {
    let (stdin, our_stdin) = io::pipe()?;
    let (our_stdout, stdout) = io::pipe()?;
    let (our_stderr, stderr) = io::pipe()?;
    let theirs = ChildEnds { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() };
    let ours = Pipes {
        stdin: Sender::from_owned_fd(our_stdin.into())?,
        stdout: Receiver::from_owned_fd(our_stdout.into())?,
        stderr: Receiver::from_owned_fd(our_stderr.into())?,
    };
    Ok((theirs, ours))
}

/// Tells what an error of the start means.
fn refused(plan: &Spawn, source: io::Error) -> SpawnError {
    let program = plan.program.clone();
    match Errno::from_io_error(&source) {
        Some(Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::TXTBSY | Errno::INTR) => {
            SpawnError::Resources { source }
        }
        Some(Errno::NOENT) if plan.path().is_some_and(|path| path.exists()) => SpawnError::NoInterpreter { program },
        Some(Errno::NOENT) => SpawnError::NotFound { program, place: plan.place() },
        _ => SpawnError::NotExecutable { program, source },
    }
}

// === impl Process ===

impl Process {
    /// The leader's process number, which is its group's, too.
    pub fn pid(&self) -> u32 {
        self.group.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for the leader's exit, and does not reap it: its group may live on. May be dropped and called again.
    pub async fn wait(&self) -> Exit {
        self.group.exited().await
    }

    /// How the leader ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        self.group.exit()
    }

    /// Kills the whole group now; [`Process::ladder`] is still to be called, and will be short.
    pub fn kill(&self) {
        self.group.send(Signal::KILL);
    }

    /// Ends the whole group: EOF (the caller has dropped its stdin), `grace`, SIGTERM, `grace`, SIGKILL, and reaps
    /// the leader last. Each wait ends as soon as the group is empty; with a leader that has exited already the rest
    /// gets its SIGTERM at once. Takes two graces and 2 s at most.
    ///
    /// Dropped on its way, it leaves the rest to the guard.
    pub async fn ladder(mut self, grace: Duration) -> Exit {
        let rungs: &[Rung] = match self.exit() {
            None => &[Rung::Eof, Rung::Term, Rung::Kill],
            Some(_) => &[Rung::Term, Rung::Kill],
        };
        let mut gone = self.exit().is_some() && !self.group.lives().await;
        for rung in rungs {
            if gone {
                break;
            }
            let limit = match rung {
                Rung::Eof => grace,
                Rung::Term => {
                    self.group.send(Signal::TERM);
                    // What is stopped could not act on it.
                    self.group.send(Signal::CONT);
                    grace
                }
                Rung::Kill => KILLED_LIMIT,
            };
            gone = self.group.emptied(limit, *rung).await;
        }
        let exit = self.exit().unwrap_or(Exit::Unknown);
        if gone {
            self.group.bury();
        } else {
            tracing::warn!(pid = self.pid(), "processes of the group could not be killed; they hang in the system");
            self.group.duty = Duty::BuryLater;
        }
        exit
    }
}

// === Group ===

/// The process group of one server.
#[derive(Debug)]
struct Group {
    leader: Pid,
    /// Readable when the leader has exited; `None` where the system has no such thing.
    watch: Option<AsyncFd<OwnedFd>>,
    guard: Guard,
    duty: Duty,
    /// Kept, for some systems can't tell it twice.
    exit: OnceLock<Exit>,
}

/// What a drop of the group has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Kill it: nothing of the server runs yet.
    Kill,
    /// Leave it to the guard, unless we panic.
    Leave,
    /// Reap the leader when all are gone.
    BuryLater,
    /// Nothing is left.
    Buried,
}

impl Group {
    fn new(leader: Pid, guard: Guard) -> Self {
        Self { leader, watch: watch(leader), guard, duty: Duty::Kill, exit: OnceLock::new() }
    }

    fn send(&self, signal: Signal) {
        // Only a group without members can refuse, or one that runs as another user, which no signal of ours reaches.
        let _ = rustix::process::kill_process_group(self.leader, signal);
    }

    fn exit(&self) -> Option<Exit> {
        if self.exit.get().is_none()
            && let Some(exit) = exit_of(self.leader)
        {
            return Some(*self.exit.get_or_init(|| exit));
        }
        self.exit.get().copied()
    }

    async fn exited(&self) -> Exit {
        let mut signals = None;
        loop {
            if let Some(exit) = self.exit() {
                return exit;
            }
            if let Some(watch) = &self.watch
                && let Ok(mut ready) = watch.readable().await
            {
                if let Some(exit) = self.exit() {
                    return exit;
                }
                ready.clear_ready();
                continue;
            }
            if signals.is_none() {
                signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()).ok();
                // An exit before this line told nobody.
                continue;
            }
            let signal = async {
                match &mut signals {
                    Some(signals) => signals.recv().await,
                    None => std::future::pending().await,
                }
            };
            let _ = tokio::time::timeout(POLL, signal).await;
        }
    }

    /// Waits until nothing of the group lives, for `limit` at most; true if so.
    async fn emptied(&self, limit: Duration, rung: Rung) -> bool {
        let deadline = Instant::now() + limit;
        let mut pause = LOOK.0;
        if rung == Rung::Kill {
            self.send(Signal::KILL);
        }
        if tokio::time::timeout_at(deadline, self.exited()).await.is_err() {
            return false;
        }
        loop {
            if !self.lives().await {
                return true;
            }
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            if rung == Rung::Kill {
                self.send(Signal::KILL);
            }
            tokio::time::sleep_until(deadline.min(now + pause)).await;
            pause = (pause * 2).min(LOOK.1);
        }
    }

    /// Whether anything of the group lives beside a leader that has exited.
    async fn lives(&self) -> bool {
        let leader = self.leader;
        // A walk through all processes takes milliseconds on a busy machine, which the message thread can't spare.
        tokio::task::spawn_blocking(move || group_lives(leader)).await.unwrap_or(true)
    }

    /// Reaps the leader. The guard forgets the group first, while its number can't be anyone else's.
    fn bury(&mut self) {
        self.duty = Duty::Buried;
        bury(self.leader, &self.guard);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        match self.duty {
            Duty::Buried => return,
            Duty::Leave if !std::thread::panicking() => return,
            Duty::Leave | Duty::Kill => self.send(Signal::KILL),
            Duty::BuryLater => {}
        }
        let (leader, guard) = (self.leader, self.guard.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                loop {
                    let done = tokio::task::spawn_blocking(move || exit_of(leader).is_some() && !group_lives(leader));
                    if done.await.unwrap_or(false) {
                        return bury(leader, &guard);
                    }
                    tokio::time::sleep(LOOK.1).await;
                }
            });
        }
    }
}

fn bury(leader: Pid, guard: &Guard) {
    // Whoever was forked while the list of processes was read goes with the rest. The unreaped leader keeps the number.
    let _ = rustix::process::kill_process_group(leader, Signal::KILL);
    guard.remove(leader);
    // It has exited, so this does not wait; that somebody else reaped it is as good.
    let _ = rustix::process::waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

fn exit_of(leader: Pid) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(WaitId::Pid(leader), options) {
        Ok(None) | Err(Errno::INTR) => None,
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        }),
        Err(_) => Some(Exit::Unknown),
    }
}

#[cfg(target_os = "linux")]
fn watch(leader: Pid) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = rustix::process::pidfd_open(leader, rustix::process::PidfdFlags::empty()).ok()?;
    super::on_reactor(descriptor, tokio::io::Interest::READABLE)
}

#[cfg(not(target_os = "linux"))]
fn watch(_: Pid) -> Option<AsyncFd<OwnedFd>> {
    None
}

/// Whether the group has a member that is no zombie, by the list of all processes: a signal would reach zombies, too.
///
/// "No" is no certainty: a member may fork and exit between the reading of the list and the look at itself, and the new
/// one is not in the list. So the list is read twice, and who acts on a "no" kills the group first.
#[cfg(target_os = "linux")]
pub(super) fn group_lives(leader: Pid) -> bool {
    is_listed(leader) || is_listed(leader)
}

#[cfg(target_os = "linux")]
fn is_listed(leader: Pid) -> bool {
    let group = leader.as_raw_nonzero().get();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return member_answers(leader);
    };
    processes.flatten().any(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
            && std::fs::read(entry.path().join("stat"))
                .is_ok_and(|stat| is_living_member(&String::from_utf8_lossy(&stat), group))
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn group_lives(leader: Pid) -> bool {
    member_answers(leader)
}

/// Reaps the leader, for want of a better way to tell it from the rest of its group, and asks who is left.
fn member_answers(leader: Pid) -> bool {
    let _ = rustix::process::waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    !matches!(rustix::process::test_kill_process_group(leader), Err(Errno::SRCH | Errno::PERM))
}

/// Reads a line of `/proc/PID/stat`: after the name in parentheses the first word is the state, the third the group, the
/// 18th counts the threads. A process whose first thread alone has ended looks like a zombie, but for that count.
#[cfg(any(target_os = "linux", test))]
fn is_living_member(stat: &str, group: i32) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut words = rest.split_ascii_whitespace();
    let state = words.next();
    if words.nth(1).and_then(|word| word.parse().ok()) != Some(group) {
        return false;
    }
    let threads = words.nth(14).and_then(|word| word.parse::<u32>().ok());
    !matches!(state, Some("Z" | "X" | "x")) || threads > Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_of_a_group_are_told_from_the_dead_and_from_others() {
        let table = [
            ("12 (sh) S 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", true),
            ("13 (sh) T 1 12 13 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", true),
            ("13 (sh) S 1 13 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", false),
            ("12 (sh) Z 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", false),
            ("12 (sh) Z 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 3 0", true),
            ("12 (a) Z 1 9 (b) R 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", true),
            ("12 (a) R 1 9 (b) Z 1 12 12 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0", false),
            ("12 (sh) Z 1 12", false),
            ("12 (sh)", false),
            ("", false),
        ];
        for (stat, expected) in table {
            assert_eq!(is_living_member(stat, 12), expected, "{stat:?}");
        }
    }
}
