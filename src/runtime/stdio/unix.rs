//! Descriptors 0 and 1.
//!
//! What is a pipe is opened anew, so that "non-blocking" is a property of ours alone and not of every process that
//! shares the host's descriptor; where that is refused, and with sockets, the flag is set and put back at the end.
//! Anything else (a file, a terminal) gets a thread that copies between it and a pipe. Descriptor 1 becomes the
//! standard error.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

use super::{HostStreams, HostTail, Pair, PipeIn, PipeOut};
use crate::runtime::on_reactor;

/// Between looks where the system sends no event.
const POLL: Duration = Duration::from_secs(1);

/// Where a host of our own reads.
pub type PairRead = tokio::net::unix::OwnedReadHalf;
/// Where it speaks.
pub type PairWrite = tokio::net::unix::OwnedWriteHalf;

/// The flags of shared descriptors, to be put back.
#[derive(Debug)]
pub(super) struct Kept(Vec<Restore>);

/// Puts the flags of a shared descriptor back.
#[derive(Debug)]
struct Restore {
    descriptor: OwnedFd,
    flags: OFlags,
}

/// Takes descriptors 0 and 1 over.
pub(super) fn take() -> io::Result<HostStreams> {
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    displace(&output)?;
    let (kind_in, kind_out) = (kind(&input)?, kind(&output)?);
    // Both may be one and the same, so both are looked at before either is changed.
    let flags = (rustix::fs::fcntl_getfl(&input)?, rustix::fs::fcntl_getfl(&output)?);
    let mut kept = Kept(Vec::new());
    let mut written = None;
    let input = match kind_in {
        FileType::Fifo => PipeIn::Pipe(match reopened(&input, OFlags::RDONLY) {
            Some(own) => Receiver::from_owned_fd_unchecked(own)?,
            None => Receiver::from_owned_fd(kept.keep(input, flags.0)?)?,
        }),
        FileType::Socket => PipeIn::Socket(socket(kept.keep(input, flags.0)?)?),
        _ => PipeIn::Pipe(copied_in(input)?),
    };
    let output = match kind_out {
        FileType::Fifo => PipeOut::Pipe(match reopened(&output, OFlags::WRONLY) {
            Some(own) => Sender::from_owned_fd_unchecked(own)?,
            None => Sender::from_owned_fd(kept.keep(output, flags.1)?)?,
        }),
        FileType::Socket => PipeOut::Socket(socket(kept.keep(output, flags.1)?)?),
        _ => {
            let (sender, copied) = copied_out(output)?;
            written = Some(copied);
            PipeOut::Pipe(sender)
        }
    };
    Ok(HostStreams { input, output, tail: HostTail { written, kept } })
}

/// Puts the null device in the place of descriptor 0, and the standard error in that of descriptor 1.
fn displace(output: &OwnedFd) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    let (out, err) = (rustix::fs::fstat(output)?, rustix::fs::fstat(rustix::stdio::stderr()));
    // A host may have made both the same.
    let apart = err.is_ok_and(|err| (err.st_dev, err.st_ino) != (out.st_dev, out.st_ino));
    if apart {
        rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    } else {
        rustix::stdio::dup2_stdout(&null)?;
    }
    Ok(())
}

fn kind(descriptor: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode))
}

/// Opens the same pipe once more, non-blocking; `None` where the system can't or won't.
fn reopened(pipe: &OwnedFd, access: OFlags) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    if cfg!(not(target_os = "linux")) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(descriptor);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// A thread copies the file or terminal into a pipe of ours. It may block in a read for ever, so nobody joins it.
fn copied_in(from: OwnedFd) -> io::Result<Receiver> {
    let (reader, mut writer) = io::pipe()?;
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // The end, a fault and a closed pipe are all the end of the input.
        let _ = io::copy(&mut File::from(from), &mut writer);
    })?;
    Receiver::from_owned_fd(reader.into())
}

/// A thread copies a pipe of ours to the file or terminal.
fn copied_out(to: OwnedFd) -> io::Result<(Sender, oneshot::Receiver<()>)> {
    let (mut reader, writer) = io::pipe()?;
    let (done, written) = oneshot::channel();
    std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        // A full disk closes the pipe, and the next write tells.
        let _ = io::copy(&mut reader, &mut File::from(to));
        let _ = done.send(());
    })?;
    Ok((Sender::from_owned_fd(writer.into())?, written))
}

/// A pair of sockets, as hosts built on Node give.
pub(super) fn pair() -> io::Result<Pair> {
    let (ours, theirs) = UnixStream::pair()?;
    let input = theirs.into_std()?;
    let output = PipeOut::Socket(UnixStream::from_std(input.try_clone()?)?);
    let (read, write) = ours.into_split();
    Ok(Pair { input: PipeIn::Socket(UnixStream::from_std(input)?), output, read, write })
}

// === impl Kept ===

impl Kept {
    /// Keeps the flags of a descriptor that is about to be made non-blocking.
    fn keep(&mut self, descriptor: OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        self.0.push(Restore { descriptor: descriptor.try_clone()?, flags });
        Ok(descriptor)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Nothing can be done about a refusal, and nothing of ours depends on it.
        let _ = rustix::fs::fcntl_setfl(&self.descriptor, self.flags);
    }
}

impl AsFd for PipeOut {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }
}

/// Waits until nobody reads what is written to `output`.
pub(super) fn reader_gone(output: &PipeOut) -> impl Future<Output = ()> + Send + use<> {
    let descriptor = rustix::io::fcntl_dupfd_cloexec(output.as_fd(), 3);
    async move {
        match descriptor {
            Ok(descriptor) => unread(descriptor).await,
            // Writing will tell, later.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Waits until nobody reads what is written to `output`, a pipe or a socket; for ever with anything else.
///
/// A reader's end is an event for a pipe. A socket whose other side has shut its writing down only is still read, so
/// that is looked at once a second.
async fn unread(output: OwnedFd) {
    let Some(watch) = on_reactor(output, Interest::READABLE | Interest::ERROR) else {
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
        let mut gone = std::pin::pin!(unread(writer.into()));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut gone).await.is_err());
        drop(reader);
        tokio::time::timeout(SOON, gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_socket_is_read_until_it_is_closed_both_ways() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let mut gone = std::pin::pin!(unread(writer.into()));
        reader.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut gone).await.is_err());
        drop(reader);
        tokio::time::timeout(SOON, gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_is_read_for_ever() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let gone = unread(file.into());
        assert!(tokio::time::timeout(Duration::from_millis(20), gone).await.is_err());
    }
}
