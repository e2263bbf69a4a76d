//! One client: a request a line, until it goes or takes too long.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::oneshot;

use super::{Desk, Request};
use crate::runtime::desk::DeskEvent;
use crate::runtime::pump::Event;

/// Bytes of a request.
const LINE: u64 = 16 * 1024;
/// How long a client may take to say something.
const TO_SAY: Duration = Duration::from_secs(3);
/// How long it may take to take what it is told.
const TO_TAKE: Duration = Duration::from_secs(10);
/// How long the pump may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Lines of the log that are copied at a time.
const CHUNK: usize = 128;
/// Between two looks at the log for one that follows it: a write for each line would cost the calls as much as they
/// cost themselves.
const GATHER: Duration = Duration::from_millis(20);

/// Serves a client to its end.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite, desk: Desk) {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut read).take(LINE);
        match tokio::time::timeout(TO_SAY, bounded.read_until(b'\n', &mut line)).await {
            Ok(Ok(count)) if count > 0 && line.ends_with(b"\n") => {}
            Ok(Ok(0) | Err(_)) | Err(_) => return,
            Ok(Ok(_)) => {
                let _ = tell(&mut write, &json!({ "error": "the request is no line of at most 16 KiB" })).await;
                return;
            }
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(Request::Logs { server, follow }) => logs(&mut read, &mut write, &desk, server.as_deref(), follow).await,
            Ok(request) => Some(answer(&desk, request).await),
            Err(error) => Some(Err(format!("the request can't be read: {error}"))),
        };
        let reply = match reply {
            Some(Ok(value)) => json!({ "ok": value }),
            Some(Err(error)) => json!({ "error": error }),
            None => return,
        };
        if tell(&mut write, &reply).await.is_err() {
            return;
        }
    }
}

async fn tell(write: &mut (impl AsyncWrite + Unpin), value: &Value) -> io::Result<()> {
    tell_text(write, &format!("{value}\n")).await
}

async fn tell_text(write: &mut (impl AsyncWrite + Unpin), text: &str) -> io::Result<()> {
    let told = async {
        write.write_all(text.as_bytes()).await?;
        write.flush().await
    };
    tokio::time::timeout(TO_TAKE, told).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn answer(desk: &Desk, request: Request) -> Result<Value, String> {
    match request {
        Request::Status => ask(desk, DeskEvent::Status).await,
        Request::Overview => ask(desk, DeskEvent::Overview).await,
        Request::Explain { name } => ask(desk, |reply| DeskEvent::Explain(name, reply)).await,
        Request::Catalog => ask(desk, DeskEvent::Catalog).await,
        Request::Order { command, server, now } => {
            ask(desk, |reply| DeskEvent::Order { command, server, at_once: now, reply }).await?.map(|()| Value::Null)
        }
        Request::Reload => {
            desk.reload.fire();
            Ok(Value::Null)
        }
        Request::Logs { .. } => Err("logs are served elsewhere".to_owned()),
    }
}

async fn ask<T>(desk: &Desk, question: impl FnOnce(oneshot::Sender<T>) -> DeskEvent) -> Result<T, String> {
    let (reply, answer) = oneshot::channel();
    let _ = desk.events.send(Event::Desk(question(reply)));
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err("the proxy is ending".to_owned()),
        Err(_) => Err("the proxy does not answer; it may be busy".to_owned()),
    }
}

/// Sends what there is, and with `follow` what comes, until the client goes. `None`: it went.
async fn logs(
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
    desk: &Desk,
    server: Option<&str>,
    follow: bool,
) -> Option<Result<Value, String>> {
    let mut news = desk.lines.news();
    let mut last = 0;
    loop {
        news.borrow_and_update();
        let lines = desk.lines.after(last, server, CHUNK);
        let whole = lines.len() < CHUNK;
        last = lines.last().map_or(last, |line| line.seq);
        let mut text = String::new();
        for line in lines {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{}", json!({ "line": line }));
        }
        tell_text(write, &text).await.ok()?;
        if !whole {
            continue;
        }
        if !follow {
            return Some(Ok(Value::Null));
        }
        let more = async {
            tokio::time::sleep(GATHER).await;
            news.changed().await
        };
        let mut byte = [0];
        tokio::select! {
            more = more => more.ok()?,
            // A client that follows says nothing more: whatever comes is its end.
            _ = read.read(&mut byte) => return None,
        }
    }
}
