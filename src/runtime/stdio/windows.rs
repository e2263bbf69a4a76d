//! Both standard streams, each copied by a thread: a host's anonymous pipes can't be waited for.

use std::io::{self, Write as _};

use tokio::sync::oneshot;

use super::{HostStreams, HostTail, Pair, PipeIn, PipeOut};
use crate::runtime::windows::{joined, pipe};

/// Where a host of our own reads.
pub type PairRead = tokio::net::windows::named_pipe::NamedPipeClient;
/// Where it speaks.
pub type PairWrite = tokio::net::windows::named_pipe::NamedPipeClient;

/// Nothing is changed that would have to be put back.
#[derive(Debug)]
pub(super) struct Kept;

/// Takes both standard streams over.
pub(super) fn take() -> io::Result<HostStreams> {
    let (input, mut inner) = pipe(true)?;
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // The end, a fault and a closed pipe are all the end of the input.
        let _ = io::copy(&mut io::stdin().lock(), &mut inner);
    })?;
    let (output, mut inner) = pipe(false)?;
    let (done, written) = oneshot::channel();
    std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        let mut stdout = io::stdout().lock();
        let _ = io::copy(&mut inner, &mut stdout).and_then(|_| stdout.flush());
        let _ = done.send(());
    })?;
    let tail = HostTail { written: Some(written), kept: Kept };
    Ok(HostStreams { input: PipeIn::Pipe(input), output: PipeOut::Pipe(output), tail })
}

/// Two named pipes.
pub(super) fn pair() -> io::Result<Pair> {
    let (input, write) = joined(true)?;
    let (output, read) = joined(false)?;
    Ok(Pair { input: PipeIn::Pipe(input), output: PipeOut::Pipe(output), read, write })
}

/// Waits for ever: here only a write tells.
pub(super) fn reader_gone(_: &PipeOut) -> impl Future<Output = ()> + Send + use<> {
    std::future::pending()
}
