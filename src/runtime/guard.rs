//! The guard: a small process of our own binary that finishes the stop ladder when we vanish, `kill -9` included.
//!
//! It lives in a session of its own, holds neither the host's pipes nor any child's, and is deaf to the signals that
//! end the proxy. Its descriptor 0 is one end of a socket pair that only we hold the other end of: the end of that
//! stream is the news of our death. Until then it is told, in lines, of each process group and its grace before that
//! group can run anything (`+ PGID GRACE_MS`, answered by one byte) and of each group that is empty (`- PGID`).
//!
//! [`Guard`] is the proxy's handle. Its task owns the list; a guard that dies or no longer answers is started anew
//! with the whole of it.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

pub use super::process::GuardGone;

/// The first argument that makes the binary a guard.
pub const ARGUMENT: &str = "__guard";

/// The one byte that the guard ever says: ready, or a group is known.
const ACKNOWLEDGED: u8 = b'.';
/// A guard that takes longer for one answer is replaced.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Between attempts to start a guard that could not be started.
const RETRY: Duration = Duration::from_millis(100);
/// How often the guard looks whether a group is empty.
const LOOK: Duration = Duration::from_millis(10);
/// How long the guard waits for what was killed to be gone; only what hangs in the kernel takes longer.
const KILLED_LIMIT: Duration = Duration::from_secs(2);
/// Signals that end a proxy, and others whose default is the end of a process.
const DEAF_TO: [i32; 7] = [
    signal_hook::consts::SIGINT,
    signal_hook::consts::SIGTERM,
    signal_hook::consts::SIGHUP,
    signal_hook::consts::SIGQUIT,
    signal_hook::consts::SIGUSR1,
    signal_hook::consts::SIGUSR2,
    signal_hook::consts::SIGALRM,
];

/// The proxy's handle on the guard process; clones share one guard.
///
/// The guard acts when the process that started it is gone, or when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Guard {
    orders: mpsc::UnboundedSender<Order>,
}

/// What the handle asks of its task.
#[derive(Debug)]
enum Order {
    Add { group: Pid, grace: Duration, known: oneshot::Sender<()> },
    Remove { group: Pid },
    Settle { settled: oneshot::Sender<()> },
}

// === impl Guard ===

impl Guard {
    /// Starts the guard from `binary` when it is told of the first group, in the background and again and again until it
    /// lives: [`Guard::add`] waits for it. Must be called within a tokio runtime.
    #[expect(clippy::disallowed_methods, reason = "it ends with the last handle, and holds nothing worth a wait")]
    pub fn start(binary: PathBuf) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        let keeper = Keeper { binary, groups: HashMap::new(), waiting: VecDeque::new() };
        tokio::spawn(keeper.run(inbox));
        Self { orders }
    }

    /// Tells the guard of a process group; returns when the guard has confirmed it.
    ///
    /// # Errors
    ///
    /// No guard could be started to tell it to.
    pub async fn add(&self, group: Pid, grace: Duration) -> Result<(), GuardGone> {
        let (known, heard) = oneshot::channel();
        self.orders.send(Order::Add { group, grace, known }).map_err(|_| GuardGone)?;
        heard.await.map_err(|_| GuardGone)
    }

    /// Tells the guard that a process group is empty.
    pub fn remove(&self, group: Pid) {
        // Without the task there is no guard that would act on the group either.
        let _ = self.orders.send(Order::Remove { group });
    }

    /// Returns when a living guard knows the whole list: from then on this process may end at any moment and the
    /// guard finishes the ladder of every group. Waits 50 ms at most.
    pub async fn hand_over(&self) {
        let (settled, heard) = oneshot::channel();
        if self.orders.send(Order::Settle { settled }).is_ok() {
            let _ = tokio::time::timeout(Duration::from_millis(50), heard).await;
        }
    }
}

/// Owns the list of groups and keeps one guard informed.
#[derive(Debug)]
struct Keeper {
    binary: PathBuf,
    groups: HashMap<Pid, Duration>,
    /// Whom to tell of each answer that is due, oldest first.
    waiting: VecDeque<Option<oneshot::Sender<()>>>,
}

// === impl Keeper ===

impl Keeper {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        // The host has an answer by then, and without servers there is nothing to guard.
        loop {
            match inbox.recv().await {
                Some(Order::Add { group, grace, known }) => {
                    self.groups.insert(group, grace);
                    self.waiting.push_back(Some(known));
                    break;
                }
                Some(Order::Settle { settled }) => drop(settled.send(())),
                Some(Order::Remove { .. }) => {}
                None => return,
            }
        }
        let mut post = self.replacement(&mut inbox).await;
        loop {
            let mut answers = [0; 64];
            let due = !self.waiting.is_empty();
            let alive = tokio::select! {
                biased;
                read = post.stream.read(&mut answers) => match read {
                    Ok(count) if count > 0 => { self.answered(count); true }
                    _ => false,
                },
                order = inbox.recv() => match order {
                    Some(order) => self.carry_out(order, &mut post).await.is_ok(),
                    None => return,
                },
                () = tokio::time::sleep(ANSWER_LIMIT), if due => false,
            };
            if !alive {
                tracing::warn!("the guard process died or does not answer; it is started anew");
                post.dismiss();
                post = self.replacement(&mut inbox).await;
            }
        }
    }

    fn answered(&mut self, count: usize) {
        for known in self.waiting.drain(..count.min(self.waiting.len())).flatten() {
            // The one who asked may have given up meanwhile.
            let _ = known.send(());
        }
    }

    async fn carry_out(&mut self, order: Order, post: &mut Post) -> io::Result<()> {
        match order {
            Order::Add { group, grace, known } => {
                self.groups.insert(group, grace);
                self.waiting.push_back(Some(known));
                post.write(&add_line(group, grace)).await
            }
            Order::Remove { group } => {
                if self.groups.remove(&group).is_none() {
                    return Ok(());
                }
                post.write(&format!("- {}\n", group.as_raw_nonzero())).await
            }
            Order::Settle { settled } => {
                // An answered line is proof that the guard lives and has read all before it.
                self.waiting.push_back(Some(settled));
                post.write("?\n").await
            }
        }
    }

    /// Starts guards until one knows the whole list. Who waits is told that it failed, after each failure.
    async fn replacement(&mut self, inbox: &mut mpsc::UnboundedReceiver<Order>) -> Post {
        loop {
            match self.successor().await {
                Ok(post) => return post,
                Err(error) => {
                    tracing::error!(%error, "the guard process can't be started; trying again");
                    self.waiting.clear();
                }
            }
            tokio::time::sleep(RETRY).await;
            while let Ok(order) = inbox.try_recv() {
                match order {
                    // Dropping the sender says no: nothing may run that no guard knows of.
                    Order::Add { .. } | Order::Settle { .. } => {}
                    Order::Remove { group } => drop(self.groups.remove(&group)),
                }
            }
        }
    }

    async fn successor(&mut self) -> io::Result<Post> {
        let mut post = Post::start(&self.binary).await?;
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut list = String::new();
        for (group, grace) in &self.groups {
            list.push_str(&add_line(*group, *grace));
            self.waiting.push_back(None);
        }
        // Whoever still waits gets the answer to this line, which comes after the whole list.
        for known in waiting.drain(..) {
            list.push_str("?\n");
            self.waiting.push_back(known);
        }
        post.write(&list).await?;
        Ok(post)
    }
}

fn add_line(group: Pid, grace: Duration) -> String {
    let mut line = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(line, "+ {} {}", group.as_raw_nonzero(), grace.as_millis());
    line
}

/// One guard process and the way to it.
#[derive(Debug)]
struct Post {
    process: Child,
    stream: UnixStream,
}

// === impl Post ===

impl Post {
    async fn start(binary: &Path) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let mut command = command(binary, theirs.into());
        // The thread that forks stands still until the guard was executed.
        let process = tokio::task::spawn_blocking(move || command.spawn()).await.map_err(io::Error::other)??;
        let mut post = Self { process, stream: ours };
        let mut ready = [0];
        match tokio::time::timeout(ANSWER_LIMIT, post.stream.read_exact(&mut ready)).await {
            Ok(Ok(_)) => Ok(post),
            Ok(Err(error)) => {
                post.dismiss();
                Err(error)
            }
            Err(_) => {
                post.dismiss();
                Err(io::Error::new(io::ErrorKind::TimedOut, "the guard process did not get ready"))
            }
        }
    }

    async fn write(&mut self, text: &str) -> io::Result<()> {
        match tokio::time::timeout(ANSWER_LIMIT, self.stream.write_all(text.as_bytes())).await {
            Ok(written) => written,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Kills and reaps the guard before its stream ends: a slow guard must not take that end for our death.
    fn dismiss(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(binary: &Path, control: OwnedFd) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(binary);
    // The environment of the host may hold secrets, which a guard has no use for.
    command.arg0("mcp-proxy").arg(ARGUMENT).env_clear().current_dir("/");
    command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A group under the guard's care.
#[derive(Debug)]
struct Ward {
    group: Pid,
    grace: Duration,
    rung: Rung,
    since: Instant,
}

/// How far down the ladder a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Eof,
    Term,
    Kill,
}

/// Plays the guard: listens until the proxy is gone, then ends every group that is left.
pub(super) fn run() -> ExitCode {
    let deaf = Arc::new(AtomicBool::new(false));
    for signal in DEAF_TO {
        // A signal that can't be caught on this platform is one more way to die, and then we are started anew.
        let _ = signal_hook::flag::register(signal, Arc::clone(&deaf));
    }
    // Fails only for the leader of a group, which has no terminal's signals to fear from us.
    let _ = rustix::process::setsid();
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"mcp-proxy-guard");

    let groups = listen();
    let now = Instant::now();
    let mut wards: Vec<Ward> =
        groups.into_iter().map(|(group, grace)| Ward { group, grace, rung: Rung::Eof, since: now }).collect();
    loop {
        wards.retain_mut(|ward| ward.step(Instant::now()));
        if wards.is_empty() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(LOOK);
    }
}

/// Keeps the list until the stream ends.
fn listen() -> HashMap<Pid, Duration> {
    let mut groups = HashMap::new();
    if !acknowledge() {
        return groups;
    }
    let mut input = BufReader::with_capacity(1024, io::stdin());
    let mut line = String::new();
    loop {
        line.clear();
        match input.read_line(&mut line) {
            Ok(count) if count > 0 => {}
            _ => return groups,
        }
        match parse(&line) {
            Some(Line::Add(group, grace)) => {
                groups.insert(group, grace);
                acknowledge();
            }
            Some(Line::Remove(group)) => drop(groups.remove(&group)),
            Some(Line::Ask) => drop(acknowledge()),
            None => {}
        }
    }
}

/// A line of the guard's stream.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Add(Pid, Duration),
    Remove(Pid),
    Ask,
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let verb = words.next()?;
    // Group 1 and below would be everybody.
    let mut group = || words.next()?.parse().ok().filter(|raw| *raw > 1).and_then(Pid::from_raw);
    match verb {
        "+" => {
            let group = group()?;
            Some(Line::Add(group, Duration::from_millis(words.next()?.parse().ok()?)))
        }
        "-" => Some(Line::Remove(group()?)),
        "?" => Some(Line::Ask),
        _ => None,
    }
}

/// Says the one byte; false if nobody is there.
fn acknowledge() -> bool {
    rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdin(), &[ACKNOWLEDGED])).is_ok()
}

// === impl Ward ===

impl Ward {
    /// Moves the group down the ladder as its time is up; false when it needs no more care.
    fn step(&mut self, now: Instant) -> bool {
        // Who has inherited the zombies may never reap them (the first process of many containers does not).
        if rustix::process::test_kill_process_group(self.group) == Err(rustix::io::Errno::SRCH)
            || !super::group::group_lives(self.group)
        {
            // Whoever was forked while the list of processes was read goes with the rest.
            send(self.group, Signal::KILL);
            return false;
        }
        let limit = if self.rung == Rung::Kill { KILLED_LIMIT } else { self.grace };
        if now.saturating_duration_since(self.since) < limit {
            if self.rung == Rung::Kill {
                send(self.group, Signal::KILL);
            }
            return true;
        }
        self.since = now;
        match self.rung {
            Rung::Eof => {
                self.rung = Rung::Term;
                send(self.group, Signal::TERM);
                // What is stopped could not act on it.
                send(self.group, Signal::CONT);
            }
            Rung::Term => {
                self.rung = Rung::Kill;
                send(self.group, Signal::KILL);
            }
            Rung::Kill => return false,
        }
        true
    }
}

fn send(group: Pid, signal: Signal) {
    // An empty group is what we want.
    let _ = rustix::process::kill_process_group(group, signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_name_no_group_are_ignored() {
        let pid = |raw| Pid::from_raw(raw).unwrap();
        let table = [
            ("+ 7 250\n", Some(Line::Add(pid(7), Duration::from_millis(250)))),
            ("- 7\n", Some(Line::Remove(pid(7)))),
            ("?\n", Some(Line::Ask)),
            ("", None),
            ("\n", None),
            ("+ 7\n", None),
            ("+ 1 250\n", None),
            ("+ 0 250\n", None),
            ("- -1\n", None),
            ("- x\n", None),
            ("* 7 250\n", None),
        ];
        for (line, expected) in table {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn add_lines_are_read_back() {
        let pid = Pid::from_raw(4711).unwrap();
        let grace = Duration::from_millis(1500);
        assert_eq!(parse(&add_line(pid, grace)), Some(Line::Add(pid, grace)));
    }
}
