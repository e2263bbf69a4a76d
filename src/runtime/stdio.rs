//! The host's two streams: descriptors 0 and 1, taken over and put on the reactor.
//!
//! What is a pipe is opened anew, so that "non-blocking" is a property of ours alone and not of every process that
//! shares the host's descriptor; where that is refused, and with sockets, the flag is set and put back at the end.
//! Anything else (a file, a terminal) gets a thread that copies between it and a pipe.
//!
//! Invariant: after [`HostStreams::take`] descriptor 1 is the standard error, so a stray print can't reach the host.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::BufMut;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

/// A stream of bytes to read: the host's, or a child's.
#[derive(Debug)]
pub enum PipeIn {
    /// A pipe.
    Pipe(Receiver),
    /// One side of a socket pair, as hosts built on Node give.
    Socket(UnixStream),
}

/// A stream of bytes to write: the host's, or a child's.
#[derive(Debug)]
pub enum PipeOut {
    /// A pipe.
    Pipe(Sender),
    /// One side of a socket pair, as hosts built on Node give.
    Socket(UnixStream),
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
    /// Resolves when the thread that copies to a file or terminal has written all.
    written: Option<oneshot::Receiver<()>>,
    restore: Vec<Restore>,
}

/// Puts the flags of a shared descriptor back.
#[derive(Debug)]
struct Restore {
    descriptor: OwnedFd,
    flags: OFlags,
}

// === impl PipeIn ===

impl PipeIn {
    /// Waits until a read may succeed. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// The reactor is gone.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.readable().await,
            Self::Socket(socket) => socket.readable().await,
        }
    }

    /// Reads what is there; 0 is the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there; else what the system says, a reset socket included.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read(buffer),
            Self::Socket(socket) => socket.try_read(buffer),
        }
    }

    /// Reads what is there into the free room of `buffer`; 0 is the end, if there was room.
    ///
    /// # Errors
    ///
    /// As [`PipeIn::try_read`].
    pub fn try_read_buf(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read_buf(buffer),
            Self::Socket(socket) => socket.try_read_buf(buffer),
        }
    }
}

// === impl PipeOut ===

impl PipeOut {
    /// Waits until a write may succeed. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// The reactor is gone.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.writable().await,
            Self::Socket(socket) => socket.writable().await,
        }
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; `BrokenPipe` if nobody reads.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write(bytes),
            Self::Socket(socket) => socket.try_write(bytes),
        }
    }

    /// Writes what there is room for, of several pieces.
    ///
    /// # Errors
    ///
    /// As [`PipeOut::try_write`].
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_write_vectored(pieces),
            Self::Socket(socket) => socket.try_write_vectored(pieces),
        }
    }

    /// Waits until nobody reads this stream any more.
    pub fn reader_gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let descriptor = rustix::io::fcntl_dupfd_cloexec(self.as_fd(), 3);
        async move {
            match descriptor {
                Ok(descriptor) => super::signal::reader_gone(descriptor).await,
                // Writing will tell, later.
                Err(_) => std::future::pending().await,
            }
        }
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

// === impl HostStreams ===

impl HostStreams {
    /// Takes descriptors 0 and 1 over. To be called once, within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system has no descriptor or thread to spare.
    pub fn take() -> io::Result<Self> {
        let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        displace(&output)?;
        let (kind_in, kind_out) = (kind(&input)?, kind(&output)?);
        // Both may be one and the same, so both are looked at before either is changed.
        let flags = (rustix::fs::fcntl_getfl(&input)?, rustix::fs::fcntl_getfl(&output)?);
        let mut tail = HostTail { written: None, restore: Vec::new() };
        let input = match kind_in {
            FileType::Fifo => PipeIn::Pipe(match reopened(&input, OFlags::RDONLY) {
                Some(own) => Receiver::from_owned_fd_unchecked(own)?,
                None => Receiver::from_owned_fd(tail.keep(input, flags.0)?)?,
            }),
            FileType::Socket => PipeIn::Socket(socket(tail.keep(input, flags.0)?)?),
            _ => PipeIn::Pipe(copied_in(input)?),
        };
        let output = match kind_out {
            FileType::Fifo => PipeOut::Pipe(match reopened(&output, OFlags::WRONLY) {
                Some(own) => Sender::from_owned_fd_unchecked(own)?,
                None => Sender::from_owned_fd(tail.keep(output, flags.1)?)?,
            }),
            FileType::Socket => PipeOut::Socket(socket(tail.keep(output, flags.1)?)?),
            _ => {
                let (sender, written) = copied_out(output)?;
                tail.written = Some(written);
                PipeOut::Pipe(sender)
            }
        };
        Ok(Self { input, output, tail })
    }
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

// === impl HostTail ===

impl HostTail {
    /// Keeps the flags of a descriptor that is about to be made non-blocking.
    fn keep(&mut self, descriptor: OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
        self.restore.push(Restore { descriptor: descriptor.try_clone()?, flags });
        Ok(descriptor)
    }

    /// Waits, for `limit` at most, until all was written, and puts the descriptors' flags back (a drop does, too).
    /// `output` must have been dropped.
    pub async fn finish(self, limit: Duration) {
        if let Some(written) = self.written {
            let _ = tokio::time::timeout(limit, written).await;
        }
        drop(self.restore);
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Nothing can be done about a refusal, and nothing of ours depends on it.
        let _ = rustix::fs::fcntl_setfl(&self.descriptor, self.flags);
    }
}
