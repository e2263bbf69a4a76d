//! SIGINT, SIGTERM, SIGHUP, and the parent's exit.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{self, SignalKind};

use super::Signal;
use crate::runtime::on_reactor;

/// Between looks where the system sends no event.
const POLL: Duration = Duration::from_secs(1);

/// Where signals come from.
#[derive(Debug)]
pub(super) struct Source {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    parent: Parent,
}

/// What is known of the parent.
#[derive(Debug)]
enum Parent {
    /// Nobody to watch, or told already.
    Unwatched,
    /// A descriptor that is readable when it has exited.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems have no such descriptor"))]
    Watched(AsyncFd<OwnedFd>),
    /// To be asked for again and again: it has exited when we have another.
    Polled(Pid),
    /// It exited while the watch was set up.
    Gone,
}

// === impl Source ===

impl Source {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hangup: unix::signal(SignalKind::hangup())?,
            parent: Parent::Unwatched,
        })
    }

    pub(super) fn watch_parent(&mut self) {
        if let (Parent::Unwatched, Some(parent)) = (&self.parent, rustix::process::getppid()) {
            self.parent = watch(parent);
            // What exited before it was watched told nobody.
            if rustix::process::getppid() != Some(parent) {
                self.parent = Parent::Gone;
            }
        }
    }

    /// The next signal, where each end is the first.
    pub(super) async fn next(&mut self) -> Signal {
        let signal = tokio::select! {
            biased;
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
            () = self.parent.gone() => Signal::ParentGone,
        };
        if signal == Signal::ParentGone {
            self.parent = Parent::Unwatched;
        }
        signal
    }
}

#[cfg(target_os = "linux")]
fn watch(parent: Pid) -> Parent {
    use rustix::process::{PidfdFlags, pidfd_open};
    match pidfd_open(parent, PidfdFlags::empty()) {
        Ok(descriptor) => on_reactor(descriptor, Interest::READABLE).map_or(Parent::Polled(parent), Parent::Watched),
        Err(rustix::io::Errno::SRCH) => Parent::Gone,
        Err(_) => Parent::Polled(parent),
    }
}

#[cfg(not(target_os = "linux"))]
fn watch(parent: Pid) -> Parent {
    Parent::Polled(parent)
}

// === impl Parent ===

impl Parent {
    async fn gone(&self) {
        match self {
            Self::Unwatched => std::future::pending().await,
            Self::Gone => {}
            Self::Watched(descriptor) => {
                if descriptor.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Polled(parent) => {
                while rustix::process::getppid() == Some(*parent) {
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }
}
