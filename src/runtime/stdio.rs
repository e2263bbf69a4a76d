//! The host's two streams: descriptors 0 and 1, taken over and put on the reactor.
//!
//! Invariant: after [`HostStreams::take`] a stray print can't reach the host.

use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

use super::process::{ChildIn, ChildOut};

#[cfg(unix)]
#[path = "stdio/unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "stdio/windows.rs"]
mod platform;

pub use platform::{PairRead, PairWrite};

/// A stream of bytes to read: the host's, or a child's.
#[derive(Debug)]
pub enum PipeIn {
    /// A pipe.
    Pipe(ChildOut),
    /// One side of a socket pair, as hosts built on Node give.
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
}

/// A stream of bytes to write: the host's, or a child's.
#[derive(Debug)]
pub enum PipeOut {
    /// A pipe.
    Pipe(ChildIn),
    /// One side of a socket pair, as hosts built on Node give.
    #[cfg(unix)]
    Socket(tokio::net::UnixStream),
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

/// Streams within this process, between the proxy and a host of our own.
#[derive(Debug)]
pub struct Pair {
    /// What the proxy reads.
    pub input: PipeIn,
    /// Where it answers.
    pub output: PipeOut,
    /// Where the host reads the answers.
    pub read: PairRead,
    /// Where the host speaks.
    pub write: PairWrite,
}

/// What is left to do when `output` was dropped.
#[derive(Debug)]
pub struct HostTail {
    /// Resolves when the thread that copies to the host has written all.
    written: Option<oneshot::Receiver<()>>,
    /// Undoes at its drop what was done to descriptors that others share.
    kept: platform::Kept,
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
            #[cfg(unix)]
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
            Self::Pipe(pipe) => ended(pipe.try_read(buffer)),
            #[cfg(unix)]
            Self::Socket(socket) => socket.try_read(buffer),
        }
    }

    /// Reads what is there into the free room of `buffer`; 0 is the end, if there was room. A read that does not fill
    /// the room has emptied the stream: the next one tells so without asking the system.
    ///
    /// # Errors
    ///
    /// As [`PipeIn::try_read`].
    pub fn try_read_buf(&mut self, buffer: &mut impl BufMut) -> io::Result<usize> {
        let mut nobody = Context::from_waker(Waker::noop());
        let read = match self {
            Self::Pipe(pipe) => pin!(pipe.read_buf(buffer)).poll(&mut nobody),
            #[cfg(unix)]
            Self::Socket(socket) => pin!(socket.read_buf(buffer)).poll(&mut nobody),
        };
        match read {
            Poll::Ready(read) => ended(read),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
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
            #[cfg(unix)]
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
            #[cfg(unix)]
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
            #[cfg(unix)]
            Self::Socket(socket) => socket.try_write_vectored(pieces),
        }
    }

    /// Waits until nobody reads this stream any more; for ever where only a write can tell.
    pub fn reader_gone(&self) -> impl Future<Output = ()> + Send + use<> {
        platform::reader_gone(self)
    }
}

/// A pipe whose writer is gone reads as an error on Windows, and as the end elsewhere.
fn ended(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        read => read,
    }
}

// === impl HostStreams ===

impl HostStreams {
    /// Takes descriptors 0 and 1 over. To be called once, within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system has no descriptor, pipe or thread to spare.
    pub fn take() -> io::Result<Self> {
        platform::take()
    }
}

// === impl Pair ===

impl Pair {
    /// Makes them. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system has no descriptor or pipe to spare.
    pub fn new() -> io::Result<Self> {
        platform::pair()
    }
}

// === impl HostTail ===

impl HostTail {
    /// Waits, for `limit` at most, until all was written, and puts the descriptors' flags back (a drop does, too).
    /// `output` must have been dropped.
    pub async fn finish(self, limit: Duration) {
        if let Some(written) = self.written {
            let _ = tokio::time::timeout(limit, written).await;
        }
        drop(self.kept);
    }
}
