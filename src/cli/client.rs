//! A host of our own, in this process: for the commands that need none.
//!
//! It speaks to the proxy as any host does, over a pair of pipes, so that what these commands show is what a host
//! would get.

use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::app::Global;
use super::{log, run};
use crate::config::Start;
use crate::runtime::desk::DeskEvent;
use crate::runtime::proxy::{self, Options};
use crate::runtime::pump::Event;
use crate::runtime::shelf::Shelf;
use crate::runtime::stdio::{Pair, PairRead, PairWrite};

/// A session with the proxy.
#[derive(Debug)]
pub struct Client {
    read: BufReader<PairRead>,
    write: PairWrite,
    next: u64,
    news: mpsc::UnboundedSender<Event>,
}

/// What a request came to.
#[derive(Debug)]
pub enum Reply {
    /// The result, as it came.
    Result(Box<RawValue>),
    /// The error, as it came.
    Error(Box<RawValue>),
}

/// How the servers are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts<'a> {
    /// All, and what they say counts.
    All,
    /// As if the configuration had this one alone.
    One(&'a str),
    /// Those that are needed; the rest is known from the cache.
    Needed,
}

/// Time after which work shows itself on a terminal.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// What a command says of its own accord. Why a server did not start is left to the command: it knows whether that
/// matters to what was asked for.
const QUIET: &str = "error,mcp_proxy::engine=off,mcp_proxy::runtime::proxy=off";
/// Characters of a reason that is told in one line.
const REASON: usize = 160;

/// Runs `work` with a session, and ends the proxy in order after it.
///
/// # Errors
/// The configuration can't be used, or what `work` says.
pub fn with<T>(
    global: &Global,
    starts: Starts<'_>,
    what: &str,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut loaded = run::load(global)?;
    let shelf = Shelf::new();
    // The log of a command is for its faults; the file of the running proxies stays theirs.
    loaded.config.log.file = None;
    if loaded.config.log.level == "info" {
        loaded.config.log.level = QUIET.into();
    }
    if let Starts::One(name) = starts {
        loaded.config.servers.retain(|server| server.key == name);
        loaded.broken.retain(|broken| broken.key == name);
    }
    let _log = log::init(&loaded.config.log, shelf.clone())?;
    let slowest = loaded.config.servers.iter().map(|server| server.start_timeout).max().unwrap_or_default();
    loaded.config.proxy.list_wait = Some(slowest);
    loaded.config.proxy.page_size = 0;
    let (state_dir, cache_dir) = proxy::directories();
    if starts == Starts::Needed {
        for server in &mut loaded.config.servers {
            server.start = Start::Lazy;
        }
    } else {
        for server in &mut loaded.config.servers {
            server.start = Start::Eager;
        }
    }
    let cache_dir = cache_dir.filter(|_| starts == Starts::Needed);
    let (news, events) = mpsc::unbounded_channel();
    let options = Options { loaded, profile: None, state_dir, cache_dir, shelf, news: Some((news.clone(), events)) };
    let runtime = proxy::reactor()?;
    let result = runtime.block_on(async {
        let Pair { input, output, read, write } = Pair::new()?;
        let served = proxy::run(options, input, output, None);
        let mut client = Client { read: BufReader::new(read), write, next: 0, news };
        let worked = async {
            let done = shown(what, work(&mut client)).await;
            client.write.shutdown().await.ok();
            drop(client);
            done
        };
        let (served, done) = tokio::join!(served, worked);
        served?;
        done
    });
    runtime.shutdown_background();
    result
}

/// One line on stderr for each server of a status that is not up and that `matters`. Whether there was one.
///
/// # Errors
/// Standard error is closed.
pub fn tell_missing(status: &Value, matters: impl Fn(&Value) -> bool) -> std::io::Result<bool> {
    let mut told = false;
    let servers = status["servers"].as_array().into_iter().flatten();
    for server in servers.filter(|server| server["state"] != "ready" && matters(server)) {
        let name = server["name"].as_str().unwrap_or_default();
        let what = if server["startMs"].is_null() { "did not start" } else { "is not up" };
        let why = server["lastError"].as_str().unwrap_or("it is not ready yet");
        writeln!(
            std::io::stderr(),
            "mcp-proxy: server {name} {what}: {}; `mcp-proxy doctor {name}` says more",
            brief(why)
        )?;
        told = true;
    }
    Ok(told)
}

/// The first part of a reason: what follows it is where was looked, and the remedy.
fn brief(why: &str) -> String {
    let first = why.lines().next().unwrap_or_default();
    let first = first.split("; ").next().unwrap_or_default();
    match first.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first.to_owned(),
    }
}

/// Shows that something is being waited for, on a terminal and after a moment.
async fn shown<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    if let Ok(done) = tokio::time::timeout(SHOWN_AFTER, &mut work).await {
        return done;
    }
    let spinner = indicatif::ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    let done = work.await;
    spinner.finish_and_clear();
    done
}

impl Client {
    /// Opens the session.
    ///
    /// # Errors
    /// The proxy does not answer as a proxy does.
    pub async fn open(&mut self) -> anyhow::Result<()> {
        let params = format!(
            r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"mcp-proxy-cli","version":"{}"}}}}"#,
            env!("CARGO_PKG_VERSION")
        );
        match self.ask("initialize", &params).await? {
            Reply::Result(_) => {}
            Reply::Error(error) => bail!("the session could not be opened: {error}"),
        }
        self.write.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await?;
        Ok(())
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn ask(&mut self, method: &str, params: &str) -> anyhow::Result<Reply> {
        self.next += 1;
        let id = self.next;
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n");
        self.write.write_all(line.as_bytes()).await?;
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.read.read_until(b'\n', &mut line).await? == 0 {
                bail!("the proxy ended before it answered");
            }
            let answer: Answer<'_> = serde_json::from_slice(&line).context("the proxy's answer can't be read")?;
            if answer.method.is_some() || answer.id.map(RawValue::get) != Some(id.to_string().as_str()) {
                continue;
            }
            return Ok(match (answer.result, answer.error) {
                (Some(result), _) => Reply::Result(result.to_owned()),
                (None, Some(error)) => Reply::Error(error.to_owned()),
                (None, None) => bail!("the proxy's answer is empty"),
            });
        }
    }

    /// Asks the machine itself.
    ///
    /// # Errors
    /// The proxy has ended.
    pub async fn inquire(
        &mut self,
        question: impl FnOnce(oneshot::Sender<Value>) -> DeskEvent,
    ) -> anyhow::Result<Value> {
        let (reply, answer) = oneshot::channel();
        let _ = self.news.send(Event::Desk(question(reply)));
        answer.await.context("the proxy ended before it answered")
    }
}

#[derive(serde::Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_in_one_line() {
        let check = |why: &str, told: &str| assert_eq!(brief(why), told, "{why}");
        check("the command \"x\" was not found; looked in /a, /b; install it", "the command \"x\" was not found");
        check("its process ended (exit code 3)", "its process ended (exit code 3)");
        check("Traceback\n  in line 3", "Traceback");
        check(&"ä".repeat(REASON + 1), &format!("{}…", "ä".repeat(REASON)));
    }
}
