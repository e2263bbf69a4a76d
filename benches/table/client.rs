//! The host's side: a command with its two pipes, requests out, replies in.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};

use crate::eras::{Era, META};
use crate::lines::{Lines, token};

/// A session with a command.
#[derive(Debug)]
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    out: Vec<u8>,
    written: usize,
    lines: Lines,
    era: Era,
    next_id: u64,
    started: Instant,
    /// Dropped, it lets the watchdog sleep.
    watchdog: Option<Sender<()>>,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Reply { id: u64, line: &'a [u8] },
    Notification,
}

/// A measurement that takes longer has failed; its command is killed.
const LIMIT: Duration = Duration::from_secs(90);
/// How long a command may take to end after its input ended.
const GRACE: Duration = Duration::from_secs(5);
/// Of a message, where its id and method are looked for.
const HEAD: usize = 128;

impl Client {
    pub(crate) fn spawn(mut command: Command, stderr: File, era: Era) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdin = child.stdin.take().context("no pipe")?;
        let stdout = child.stdout.take().context("no pipe")?;
        let flags = rustix::fs::fcntl_getfl(&stdin)?;
        rustix::fs::fcntl_setfl(&stdin, flags | rustix::fs::OFlags::NONBLOCK)?;
        let watchdog = Some(watch(&child));
        let (out, lines) = (Vec::with_capacity(1 << 17), Lines::new());
        Ok(Self { child, stdin: Some(stdin), stdout, out, written: 0, lines, era, next_id: 1, started, watchdog })
    }

    pub(crate) fn era(&self) -> Era {
        self.era
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Since the command was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes a number for a request and writes its head; the rest is the caller's.
    pub(crate) fn begin(&mut self) -> (u64, &mut Vec<u8>) {
        let id = self.next_id;
        self.next_id += 1;
        self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        self.out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
        (id, &mut self.out)
    }

    /// Writes what waits and reads once; whichever the pipes allow.
    pub(crate) fn exchange(&mut self) -> anyhow::Result<()> {
        loop {
            self.write_some()?;
            if self.out.is_empty() {
                break;
            }
            let stdin = self.stdin.as_ref().context("already closed")?;
            let mut ready = [PollFd::new(stdin, PollFlags::OUT), PollFd::new(&self.stdout, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !ready[1].revents().is_empty() {
                break;
            }
        }
        ensure!(self.lines.read(self.stdout.as_fd())? > 0, "its output ended");
        Ok(())
    }

    /// The next message that has come whole.
    pub(crate) fn take(&mut self) -> anyhow::Result<Option<Incoming<'_>>> {
        let Some(line) = self.lines.take() else { return Ok(None) };
        let head = self.lines.line(line.start..line.end.min(line.start + HEAD));
        if memchr::memmem::find(head, b"\"method\":").is_some() {
            if let Some(id) = token(head, b"\"id\":", HEAD) {
                // The other side asks whether we live.
                self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
                self.out.extend_from_slice(id);
                self.out.extend_from_slice(b",\"result\":{}}\n");
            }
            return Ok(Some(Incoming::Notification));
        }
        let id = token(head, b"\"id\":", HEAD).and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        let line = self.lines.line(line);
        match id {
            Some(id) if memchr::memmem::find(head, b"\"error\":").is_none() => Ok(Some(Incoming::Reply { id, line })),
            _ => bail!("an answer that is none: {}", String::from_utf8_lossy(&line[..line.len().min(600)])),
        }
    }

    /// Asks one thing and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &str) -> anyhow::Result<Vec<u8>> {
        let params = match self.era {
            Era::Legacy => params.to_owned(),
            // Whoever asks here has no parameters of its own in that era.
            Era::Modern => format!("{{\"_meta\":{{{META}}}}}"),
        };
        let (asked, out) = self.begin();
        out.extend_from_slice(format!(",\"method\":\"{method}\",\"params\":{params}}}\n").as_bytes());
        loop {
            self.exchange()?;
            while let Some(incoming) = self.take()? {
                match incoming {
                    Incoming::Reply { id, line } if id == asked => return Ok(line.to_vec()),
                    _ => {}
                }
            }
        }
    }

    /// Opens the session; the time from the start of the command to the answer of `initialize` or `server/discover`.
    pub(crate) fn handshake(&mut self) -> anyhow::Result<Duration> {
        if self.era == Era::Modern {
            self.ask("server/discover", "{}")?;
            return Ok(self.age());
        }
        let params = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"load","version":"1"}}"#;
        self.ask("initialize", params)?;
        let age = self.age();
        self.out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        Ok(age)
    }

    /// Asks for the list until it has that many entries: what a proxy learns late it announces and lists anew.
    pub(crate) fn list_of(&mut self, entries: usize) -> anyhow::Result<usize> {
        loop {
            let list = self.ask("tools/list", "{}")?;
            let found = memchr::memmem::find_iter(&list, b"\"inputSchema\":").count();
            if found == entries {
                return Ok(list.len());
            }
            ensure!(self.age() < LIMIT / 3, "the list has {found} entries in place of {entries}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the session and waits for the command, so that it disturbs no later measurement.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.watchdog = None;
        if self.stdin.take().is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + GRACE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                bail!("it did not end within {GRACE:?} after its input");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// Writes as much of what waits as the pipe takes.
    pub(crate) fn write_some(&mut self) -> anyhow::Result<()> {
        while self.written < self.out.len() {
            let stdin = self.stdin.as_ref().context("already closed")?;
            match rustix::io::write(stdin, &self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("its input is closed"),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // On the way out of a failed measurement; that failure is the one to tell.
        let _ = self.stop();
    }
}

/// Kills the command if nobody says within the limit that all is well.
fn watch(child: &Child) -> Sender<()> {
    let (well, told) = channel();
    let pid = rustix::process::Pid::from_child(child);
    std::thread::spawn(move || {
        if told.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    well
}
