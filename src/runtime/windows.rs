//! Processes and streams on Windows: a job object per server takes the place of process group, launcher and guard.
//!
//! A job ends everything in it when its last handle is closed, also by the death of the proxy. Pipes are named ones,
//! for only those can be waited for without a thread.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};

/// A pipe of our own: our end on the reactor, and the other for a child or a thread.
fn pipe(inbound: bool) -> io::Result<(NamedPipeServer, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(io::Error::other)?;
    let token = data_encoding::HEXLOWER.encode(&token);
    let name = format!(r"\\.\pipe\mcp-proxy-{}-{number}-{token}", std::process::id());
    let ours = ServerOptions::new()
        .first_pipe_instance(true)
        .reject_remote_clients(true)
        .access_inbound(inbound)
        .access_outbound(!inbound)
        .create(&name)?;
    let theirs = File::options().read(!inbound).write(inbound).open(&name)?;
    Ok((ours, theirs))
}

/// The guard's handle; jobs need none.
pub mod guard {
    use std::path::PathBuf;

    pub use crate::runtime::process::GuardGone;

    /// Nothing to guard: the system ends a job with its owner.
    #[derive(Clone, Debug)]
    pub struct Guard;

    impl Guard {
        /// Does nothing here.
        pub fn start(_binary: PathBuf) -> Self {
            Self
        }

        /// Does nothing here.
        #[expect(clippy::unused_async, reason = "other platforms wait")]
        pub async fn hand_over(&self) {}
    }
}

/// One server in one job.
pub(super) mod process {
    use std::ffi::OsStr;
    use std::io;
    use std::os::windows::io::OwnedHandle;
    use std::path::{Path, PathBuf};
    use std::process::Stdio;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use process_wrap::tokio::{CommandWrap, JobObject, KillOnDrop};
    use tokio::sync::{mpsc, watch};
    use tokio::task::AbortHandle;

    use super::guard::Guard;
    use crate::runtime::process::{Exit, Fault, Pipes, Spawn, SpawnError, fault_of_environment};

    /// How long a killed job is waited for.
    const KILLED_LIMIT: Duration = Duration::from_secs(2);

    /// Starts servers.
    #[derive(Clone)]
    pub struct Spawner {
        fault: Option<Fault>,
    }

    /// A started server. Dropped, it and all in its job are ended.
    #[derive(Debug)]
    pub struct Process {
        pid: u32,
        exit: watch::Receiver<Option<Exit>>,
        orders: mpsc::UnboundedSender<()>,
        killed: AtomicBool,
        keeper: AbortHandle,
    }

    impl Spawner {
        /// Starts servers; binary and guard are for other platforms.
        pub fn new(_binary: PathBuf, _guard: Guard) -> Self {
            Self { fault: fault_of_environment() }
        }

        /// Has `fault` asked before each start, for tests.
        #[must_use]
        pub fn with_fault(mut self, fault: Fault) -> Self {
            self.fault = Some(fault);
            self
        }

        /// Starts a server.
        ///
        /// # Errors
        ///
        /// See [`SpawnError`].
        #[expect(clippy::unused_async, reason = "other platforms wait")]
        pub async fn spawn(&self, plan: &Spawn) -> Result<(Process, Pipes), SpawnError> {
            if let Some(source) = self.fault.as_ref().and_then(|fault| fault()) {
                return Err(SpawnError::Resources { source });
            }
            if let Some(directory) = plan.cwd.as_ref().filter(|directory| !directory.is_dir()) {
                let source = io::ErrorKind::NotADirectory.into();
                return Err(SpawnError::Directory { directory: directory.clone(), source });
            }
            let resources = |source| SpawnError::Resources { source };
            let (stdin, their_stdin) = super::pipe(false).map_err(resources)?;
            let (stdout, their_stdout) = super::pipe(true).map_err(resources)?;
            let (stderr, their_stderr) = super::pipe(true).map_err(resources)?;
            let mut command = CommandWrap::with_new(resolved(plan), |command| {
                command
                    .args(&plan.args)
                    .env_clear()
                    .envs(plan.env.iter().map(|(name, value)| (name, value)))
                    .stdin(Stdio::from(OwnedHandle::from(their_stdin)))
                    .stdout(Stdio::from(OwnedHandle::from(their_stdout)))
                    .stderr(Stdio::from(OwnedHandle::from(their_stderr)));
                if let Some(directory) = &plan.cwd {
                    command.current_dir(directory);
                }
            });
            let child = command.wrap(KillOnDrop).wrap(JobObject).spawn().map_err(|error| refused(plan, error))?;
            Ok((Process::new(child), Pipes { stdin, stdout, stderr }))
        }
    }

    impl std::fmt::Debug for Spawner {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Spawner").finish_non_exhaustive()
        }
    }

    impl Process {
        #[expect(clippy::disallowed_methods, reason = "it is aborted with its process, which ends the job")]
        fn new(mut child: Box<dyn process_wrap::tokio::ChildWrapper>) -> Self {
            let (tell, exit) = watch::channel(None);
            let (orders, mut inbox) = mpsc::unbounded_channel();
            let pid = child.id().unwrap_or_default();
            let keeper = tokio::spawn(async move {
                // The leader's exit counts; what it leaves in the job is ended with the job.
                loop {
                    tokio::select! {
                        status = child.inner_mut().wait() => {
                            let exit = status.ok().and_then(|status| status.code()).map_or(Exit::Unknown, Exit::Code);
                            tell.send_replace(Some(exit));
                            break;
                        }
                        Some(()) = inbox.recv() => {
                            // What can't be killed has ended already.
                            let _ = child.start_kill();
                        }
                    }
                }
                while inbox.recv().await.is_some() {
                    let _ = child.start_kill();
                }
            });
            Self { pid, exit, orders, killed: AtomicBool::new(false), keeper: keeper.abort_handle() }
        }

        /// The leader's process number.
        pub fn pid(&self) -> u32 {
            self.pid
        }

        /// Waits for the leader's exit. May be dropped and called again.
        pub async fn wait(&self) -> Exit {
            let mut exit = self.exit.clone();
            match exit.wait_for(Option::is_some).await {
                Ok(exit) => exit.unwrap_or(Exit::Unknown),
                Err(_) => Exit::Unknown,
            }
        }

        /// How the leader ended, if it did.
        pub fn exit(&self) -> Option<Exit> {
            *self.exit.borrow()
        }

        /// Ends the whole job now.
        pub fn kill(&self) {
            self.killed.store(true, Ordering::Relaxed);
            // Without its task the job has ended.
            let _ = self.orders.send(());
        }

        /// Ends the whole job: EOF (the caller has dropped its stdin), `grace`, and the end of the job. Windows has
        /// nothing that a console program could be asked with in between.
        pub async fn ladder(self, grace: Duration) -> Exit {
            if self.exit().is_none() && !self.killed.load(Ordering::Relaxed) {
                let _ = tokio::time::timeout(grace, self.wait()).await;
            }
            self.kill();
            tokio::time::timeout(KILLED_LIMIT, self.wait()).await.unwrap_or(Exit::Unknown)
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            // The task owns the job's only handle.
            self.keeper.abort();
        }
    }

    fn refused(plan: &Spawn, source: io::Error) -> SpawnError {
        let program = plan.program.clone();
        match source.kind() {
            io::ErrorKind::NotFound => SpawnError::NotFound { program, place: plan.place() },
            io::ErrorKind::OutOfMemory | io::ErrorKind::ResourceBusy => SpawnError::Resources { source },
            _ => SpawnError::NotExecutable { program, source },
        }
    }

    /// Finds `npx` as `npx.cmd`, as a shell would: the system alone tries `.exe` only.
    fn resolved(plan: &Spawn) -> PathBuf {
        let variable = |wanted: &str| {
            let found = plan.env.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.as_os_str())
        };
        let extensions = variable("PATHEXT").unwrap_or(OsStr::new(".COM;.EXE;.BAT;.CMD")).to_string_lossy();
        let candidates = |base: &Path| {
            let bare = plan.program.extension().is_some().then(|| base.join(&plan.program));
            let dressed = extensions.split(';').filter(|extension| !extension.is_empty()).map(|extension| {
                let mut name = base.join(&plan.program).into_os_string();
                name.push(extension);
                PathBuf::from(name)
            });
            bare.into_iter().chain(dressed).find(|path| path.is_file())
        };
        let found = if plan.path().is_some() {
            candidates(plan.cwd.as_deref().unwrap_or(Path::new("")))
        } else {
            let path = variable("PATH").unwrap_or_default();
            std::env::split_paths(path).find_map(|directory| candidates(&directory))
        };
        found.unwrap_or_else(|| plan.program.clone())
    }
}

/// What tells the proxy to end.
pub mod signal {
    use std::io;

    use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose};

    /// What the outside asks of the proxy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Signal {
        /// The first Ctrl-C, Ctrl-Break or close of the console.
        Stop,
        /// Another one: end at once.
        StopNow,
        /// Never sent here: there is no SIGHUP.
        Reload,
        /// Never sent here: the host's end is the end of its pipe.
        ParentGone,
    }

    /// The stream of [`Signal`]s.
    #[derive(Debug)]
    pub struct Signals {
        interrupt: CtrlC,
        interrupted_hard: CtrlBreak,
        close: CtrlClose,
        stopping: bool,
    }

    impl Signals {
        /// Takes the console's events over.
        ///
        /// # Errors
        ///
        /// The system refuses a handler.
        pub fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: windows::ctrl_c()?,
                interrupted_hard: windows::ctrl_break()?,
                close: windows::ctrl_close()?,
                stopping: false,
            })
        }

        /// Does nothing here.
        pub fn watch_parent(&mut self) {}

        /// The next signal; waits for ever if there is none.
        pub async fn next(&mut self) -> Signal {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.interrupted_hard.recv() => {}
                _ = self.close.recv() => {}
            }
            if std::mem::replace(&mut self.stopping, true) { Signal::StopNow } else { Signal::Stop }
        }
    }
}

/// The host's two streams, each copied by a thread: a host's anonymous pipes can't be waited for.
pub mod stdio {
    use std::io::{self, IoSlice, Write};
    use std::time::Duration;

    use bytes::BufMut;
    use tokio::net::windows::named_pipe::NamedPipeServer;
    use tokio::sync::oneshot;

    /// A stream of bytes to read: the host's, or a child's.
    #[derive(Debug)]
    pub enum PipeIn {
        /// A pipe.
        Pipe(NamedPipeServer),
    }

    /// A stream of bytes to write: the host's, or a child's.
    #[derive(Debug)]
    pub enum PipeOut {
        /// A pipe.
        Pipe(NamedPipeServer),
    }

    /// Both streams of the host.
    #[derive(Debug)]
    pub struct HostStreams {
        /// What the host says.
        pub input: PipeIn,
        /// What it is told.
        pub output: PipeOut,
        /// To be ended last.
        pub tail: HostTail,
    }

    /// What is left to do when `output` was dropped.
    #[derive(Debug)]
    pub struct HostTail {
        written: oneshot::Receiver<()>,
    }

    impl PipeIn {
        /// Waits until a read may succeed.
        ///
        /// # Errors
        ///
        /// The reactor is gone.
        pub async fn readable(&self) -> io::Result<()> {
            let Self::Pipe(pipe) = self;
            pipe.readable().await
        }

        /// Reads what is there; 0 is the end.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if nothing is there.
        pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let Self::Pipe(pipe) = self;
            ended(pipe.try_read(buffer))
        }

        /// Reads what is there into the free room of `buffer`; 0 is the end, if there was room.
        ///
        /// # Errors
        ///
        /// As [`PipeIn::try_read`].
        pub fn try_read_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
            let Self::Pipe(pipe) = self;
            ended(pipe.try_read_buf(buffer))
        }
    }

    /// A pipe whose writer is gone reads as an error here, and as the end elsewhere.
    fn ended(read: io::Result<usize>) -> io::Result<usize> {
        match read {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            read => read,
        }
    }

    impl PipeOut {
        /// Waits until a write may succeed.
        ///
        /// # Errors
        ///
        /// The reactor is gone.
        pub async fn writable(&self) -> io::Result<()> {
            let Self::Pipe(pipe) = self;
            pipe.writable().await
        }

        /// Writes what there is room for.
        ///
        /// # Errors
        ///
        /// `WouldBlock` if there is none; `BrokenPipe` if nobody reads.
        pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
            let Self::Pipe(pipe) = self;
            pipe.try_write(bytes)
        }

        /// Writes what there is room for, of several pieces.
        ///
        /// # Errors
        ///
        /// As [`PipeOut::try_write`].
        pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let Self::Pipe(pipe) = self;
            pipe.try_write_vectored(pieces)
        }

        /// Waits for ever: here only a write tells.
        pub fn reader_gone(&self) -> impl Future<Output = ()> + Send + use<> {
            std::future::pending()
        }
    }

    impl HostStreams {
        /// Takes both standard streams over. To be called once, within a tokio runtime.
        ///
        /// # Errors
        ///
        /// The system has no pipe or thread to spare.
        pub fn take() -> io::Result<Self> {
            let (input, mut inner) = super::pipe(true)?;
            std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
                // The end, a fault and a closed pipe are all the end of the input.
                let _ = io::copy(&mut io::stdin().lock(), &mut inner);
            })?;
            let (output, mut inner) = super::pipe(false)?;
            let (done, written) = oneshot::channel();
            std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
                let mut stdout = io::stdout().lock();
                let _ = io::copy(&mut inner, &mut stdout).and_then(|_| stdout.flush());
                let _ = done.send(());
            })?;
            Ok(Self { input: PipeIn::Pipe(input), output: PipeOut::Pipe(output), tail: HostTail { written } })
        }
    }

    impl HostTail {
        /// Waits, for `limit` at most, until all was written. `output` must have been dropped.
        pub async fn finish(self, limit: Duration) {
            let _ = tokio::time::timeout(limit, self.written).await;
        }
    }
}
