//! The limit: programs that only carry bytes between the same two processes, on an epoll reactor.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// As much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Carries bytes, whatever they are, to one server and back.
pub(crate) fn one(command: &[String]) -> anyhow::Result<()> {
    on_one_thread(async {
        let (from_host, to_host) = standard()?;
        let (child, to_child, from_child) = start(command)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(copy(from_host, to_child));
        copy(from_child, to_host).await?;
        end(child)
    })
}

/// Carries lines to two servers and back over one pipe; those that name a tool `b__…` go to the second.
pub(crate) fn two(command: &[String]) -> anyhow::Result<()> {
    on_one_thread(async {
        let (from_host, to_host) = standard()?;
        let (first, to_first, from_first) = start(command)?;
        let (second, to_second, from_second) = start(command)?;
        let (lines, queue) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(share(from_host, to_first, to_second));
        tasks.spawn(collect(from_first, lines.clone()));
        tasks.spawn(collect(from_second, lines));
        deliver(queue, to_host).await?;
        end(first)?;
        end(second)
    })
}

fn on_one_thread(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(work)
}

fn standard() -> anyhow::Result<(Receiver, Sender)> {
    let stdin = rustix::io::dup(rustix::stdio::stdin())?;
    let stdout = rustix::io::dup(rustix::stdio::stdout())?;
    Ok((Receiver::from_owned_fd(stdin)?, Sender::from_owned_fd(stdout)?))
}

fn start(command: &[String]) -> anyhow::Result<(Child, Sender, Receiver)> {
    let (program, args) = command.split_first().context("no command behind `--`")?;
    let mut child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdin = OwnedFd::from(child.stdin.take().context("no pipe")?);
    let stdout = OwnedFd::from(child.stdout.take().context("no pipe")?);
    Ok((child, Sender::from_owned_fd(stdin)?, Receiver::from_owned_fd(stdout)?))
}

fn end(mut child: Child) -> anyhow::Result<()> {
    child.wait()?;
    Ok(())
}

async fn copy(mut from: Receiver, mut to: Sender) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}

async fn share(mut from: Receiver, mut first: Sender, mut second: Sender) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        let Some(lines) = whole_lines(&mut from, &mut buffer).await? else { return Ok(()) };
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let to = if memchr::memmem::find(line, b"\"name\":\"b__").is_some() { &mut second } else { &mut first };
            to.write_all(line).await?;
        }
    }
}

async fn collect(mut from: Receiver, to: mpsc::Sender<Bytes>) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    while let Some(lines) = whole_lines(&mut from, &mut buffer).await? {
        if to.send(lines).await.is_err() {
            break;
        }
    }
    Ok(())
}

async fn deliver(mut queue: mpsc::Receiver<Bytes>, mut to: Sender) -> io::Result<()> {
    while let Some(lines) = queue.recv().await {
        to.write_all(&lines).await?;
    }
    Ok(())
}

/// Reads until at least one line is whole; all that are.
async fn whole_lines(from: &mut Receiver, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    loop {
        let known = buffer.len();
        buffer.reserve(CHUNK.max(known));
        if from.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
        if let Some(end) = memchr::memrchr(b'\n', &buffer[known..]) {
            return Ok(Some(buffer.split_to(known + end + 1).freeze()));
        }
    }
}
