//! The launcher: a process that is in a group of its own before it runs anything, and becomes the server when told.
//!
//! Its descriptor 0 is one end of a socket pair; we hold the other. It waits there for one message: one byte, and with
//! it the server's three pipe ends. Until that message came the process does nothing, so there is time to tell the
//! guard of the group. If we vanish first, the socket ends and so does the launcher. The socket then carries the news
//! back: it is close-on-exec, so its plain end means that the command runs; otherwise the step that failed and its
//! error number come before the end.
//!
//! Invariant: descriptors 0, 1 and 2 are all that a server is given.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;

use super::process::Spawn;

/// The first argument that makes the binary a launcher.
pub const ARGUMENT: &str = "__launch";

/// Told just before the command is executed: what ends without it was not our failure to report, but a death.
const GOING: u8 = b'g';
/// The working directory could not be entered.
const DIRECTORY: u8 = b'd';
/// The command could not be executed.
const COMMAND: u8 = b'x';

/// A launcher that waits for its byte.
#[derive(Debug)]
pub(super) struct Held {
    pid: Pid,
    control: UnixStream,
}

/// The server's ends of its three pipes.
#[derive(Debug)]
pub(super) struct ChildEnds {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Why the launcher did not become the command.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The working directory could not be entered.
    Directory(io::Error),
    /// The command could not be executed.
    Command(io::Error),
    /// The launcher could not be reached, or ended before it came so far.
    Launcher(io::Error),
}

/// Plays the launcher; returns only if the command was not executed.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(directory), Some(program)) = (args.next(), args.next()) else {
        return ExitCode::from(2);
    };
    let Ok(Some(mut control)) = take_over() else {
        return ExitCode::SUCCESS;
    };
    if !directory.is_empty()
        && let Err(error) = std::env::set_current_dir(&directory)
    {
        return refuse(&mut control, DIRECTORY, &error);
    }
    if control.write_all(&[GOING]).is_err() {
        return ExitCode::SUCCESS;
    }
    let error = Command::new(program).args(args).exec();
    refuse(&mut control, COMMAND, &error)
}

/// Waits for the message and puts the server's pipe ends in place; `None` if the proxy is gone.
fn take_over() -> io::Result<Option<UnixStream>> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(&control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())
    })?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let ends: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|part| match part {
            RecvAncillaryMessage::ScmRights(ends) => Some(ends),
            _ => None,
        })
        .flatten()
        .collect();
    let [stdin, stdout, stderr] = ends.as_slice() else {
        return Ok(None);
    };
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    close_fds::set_fds_cloexec(3, &[]);
    Ok(Some(UnixStream::from(control)))
}

fn refuse(control: &mut UnixStream, step: u8, error: &io::Error) -> ExitCode {
    let number = error.raw_os_error().unwrap_or_default().to_le_bytes();
    let mut report = vec![step];
    report.extend(number);
    // Nobody is left to tell if this fails.
    let _ = control.write_all(&report);
    ExitCode::from(127)
}

// === impl Held ===

impl Held {
    /// Starts a launcher for `plan` in a process group of its own. It is to be reaped by its number, when its group is
    /// empty.
    pub(super) fn start(binary: &Path, plan: &Spawn) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let directory = plan.cwd.as_deref().map_or_else(OsString::new, |path| path.as_os_str().to_owned());
        let child = Command::new(binary)
            .arg0("mcp-proxy")
            .arg(ARGUMENT)
            .arg(directory)
            .arg(&plan.program)
            .args(&plan.args)
            .env_clear()
            .envs(plan.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { pid: Pid::from_child(&child), control })
    }

    /// The launcher's number, which is its group's and will be the server's.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the launcher become the command, and waits until it did or says why not.
    pub(super) async fn release(self, ends: ChildEnds) -> Result<(), Refusal> {
        self.send(&ends).map_err(Refusal::Launcher)?;
        drop(ends);
        let report = self.report().await.map_err(Refusal::Launcher)?;
        match report.as_slice() {
            [GOING] => Ok(()),
            [GOING, COMMAND, number @ ..] => Err(Refusal::Command(numbered(number))),
            [DIRECTORY, number @ ..] => Err(Refusal::Directory(numbered(number))),
            _ => Err(Refusal::Launcher(io::Error::other("the launcher ended before the command was executed"))),
        }
    }

    fn send(&self, ends: &ChildEnds) -> io::Result<()> {
        let descriptors = [ends.stdin.as_fd(), ends.stdout.as_fd(), ends.stderr.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(fits, "the space was made for three");
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.control, &[IoSlice::new(b".")], &mut ancillary, SendFlags::empty())
        })?;
        Ok(())
    }

    async fn report(self) -> io::Result<Vec<u8>> {
        self.control.set_nonblocking(true)?;
        let mut control = tokio::net::UnixStream::from_std(self.control)?;
        let mut report = Vec::new();
        control.read_to_end(&mut report).await?;
        Ok(report)
    }
}

fn numbered(number: &[u8]) -> io::Error {
    match number.try_into() {
        Ok(number) => io::Error::from_raw_os_error(i32::from_le_bytes(number)),
        Err(_) => io::Error::other("the launcher's report was cut"),
    }
}
