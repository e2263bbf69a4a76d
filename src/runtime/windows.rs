//! Processes and pipes on Windows: a job object per server takes the place of process group, launcher and guard.
//!
//! A job ends everything in it when its last handle is closed, also by the death of the proxy. Pipes are named ones,
//! for only those can be waited for without a thread.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::windows::named_pipe::{ClientOptions, NamedPipeClient, NamedPipeServer, ServerOptions};

/// A pipe of our own: our end on the reactor, and the other for a child or a thread.
pub(super) fn pipe(inbound: bool) -> io::Result<(NamedPipeServer, File)> {
    let (ours, name) = half(inbound)?;
    let theirs = File::options().read(!inbound).write(inbound).open(&name)?;
    Ok((ours, theirs))
}

/// A pipe of our own with both ends on the reactor.
pub(super) fn joined(inbound: bool) -> io::Result<(NamedPipeServer, NamedPipeClient)> {
    let (ours, name) = half(inbound)?;
    let theirs = ClientOptions::new().read(!inbound).write(inbound).open(&name)?;
    Ok((ours, theirs))
}

/// Our end of a pipe, and the name by which the other is opened: one that nobody can guess.
fn half(inbound: bool) -> io::Result<(NamedPipeServer, String)> {
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
    Ok((ours, name))
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
