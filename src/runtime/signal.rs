//! What tells the proxy to end or to reload: signals, the parent's exit, and a host that no longer reads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{self, SignalKind};

/// Between looks where the system sends no event.
const POLL: Duration = Duration::from_secs(1);

/// What the outside asks of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The first SIGINT or SIGTERM: end in order, within 100 ms.
    Stop,
    /// Another SIGINT or SIGTERM: end at once.
    StopNow,
    /// SIGHUP: read the configuration again.
    Reload,
    /// The parent has exited, and with it the host.
    ParentGone,
}

/// The stream of [`Signal`]s.
#[derive(Debug)]
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    parent: Parent,
    stopping: bool,
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

// === impl Signals ===

impl Signals {
    /// Takes over SIGINT, SIGTERM and SIGHUP for good. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hangup: unix::signal(SignalKind::hangup())?,
            parent: Parent::Unwatched,
            stopping: false,
        })
    }

    /// Watches the parent from now on: to be called at the first message of the host.
    ///
    /// Not earlier, for a host may start us through a launcher that exits at once; the parent that we have by the
    /// first message is the one that counts. A parent outside of our view (another process namespace) is not watched.
    pub fn watch_parent(&mut self) {
        if let (Parent::Unwatched, Some(parent)) = (&self.parent, rustix::process::getppid()) {
            self.parent = watch(parent);
            // What exited before it was watched told nobody.
            if rustix::process::getppid() != Some(parent) {
                self.parent = Parent::Gone;
            }
        }
    }

    /// The next signal; waits for ever if there is none. May be dropped and called again without loss.
    pub async fn next(&mut self) -> Signal {
        let stop = tokio::select! {
            biased;
            _ = self.interrupt.recv() => true,
            _ = self.terminate.recv() => true,
            _ = self.hangup.recv() => return Signal::Reload,
            () = self.parent.gone() => false,
        };
        if !stop {
            self.parent = Parent::Unwatched;
            return Signal::ParentGone;
        }
        if std::mem::replace(&mut self.stopping, true) { Signal::StopNow } else { Signal::Stop }
    }
}

#[cfg(target_os = "linux")]
fn watch(parent: Pid) -> Parent {
    use rustix::process::{PidfdFlags, pidfd_open};
    match pidfd_open(parent, PidfdFlags::empty()) {
        Ok(descriptor) => {
            super::on_reactor(descriptor, Interest::READABLE).map_or(Parent::Polled(parent), Parent::Watched)
        }
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

/// Waits until nobody reads what is written to `output`, a pipe or a socket; for ever with anything else.
///
/// A reader's end is an event for a pipe. A socket whose other side has shut its writing down only is still read, so
/// that is looked at once a second.
pub async fn reader_gone(output: OwnedFd) {
    let Some(watch) = super::on_reactor(output, Interest::READABLE | Interest::ERROR) else {
        return std::future::pending().await;
    };
    loop {
        if hung_up(watch.as_fd()) {
            return;
        }
        let event = async {
            match watch.ready(Interest::READABLE | Interest::ERROR).await {
                Ok(mut ready) => {
                    // A closed reading side is an event for ever, and no news after the first time.
                    let settled = ready.ready().is_read_closed();
                    ready.clear_ready();
                    settled
                }
                Err(_) => true,
            }
        };
        let tick = cfg!(not(target_os = "linux"));
        let idle = if tick { tokio::time::timeout(POLL, event).await.unwrap_or(false) } else { event.await };
        if idle && !hung_up(watch.as_fd()) {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn hung_up(output: BorrowedFd<'_>) -> bool {
    let mut looked_at = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut looked_at, Some(&now)).is_ok()
        && looked_at[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_pipe_without_reader_is_told_even_when_full() {
        let (reader, writer) = io::pipe().unwrap();
        let full = tokio::net::unix::pipe::Sender::from_owned_fd(writer.try_clone().unwrap().into()).unwrap();
        while full.try_write(b"filler").is_ok() {}
        let mut gone = std::pin::pin!(reader_gone(writer.into()));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut gone).await.is_err());
        drop(reader);
        tokio::time::timeout(SOON, gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_is_read_until_it_is_closed_both_ways() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let mut gone = std::pin::pin!(reader_gone(writer.into()));
        reader.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut gone).await.is_err());
        drop(reader);
        tokio::time::timeout(SOON, gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_for_ever() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let gone = reader_gone(file.into());
        assert!(tokio::time::timeout(Duration::from_millis(20), gone).await.is_err());
    }
}
