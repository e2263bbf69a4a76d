//! Talking to running proxies over their control sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;

use crate::runtime::control::Request;
use crate::runtime::control::place::{self, Found};

/// Which of the running proxies.
#[derive(Clone, Copy, Debug, Args)]
pub struct Which {
    /// Only the proxy of this process; without it all running ones
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
}

/// A line to a proxy.
#[derive(Debug)]
pub struct Line {
    read: BufReader<Stream>,
}

#[cfg(unix)]
type Stream = std::os::unix::net::UnixStream;
#[cfg(windows)]
type Stream = std::fs::File;

/// How long a proxy may take.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(12);
/// Bytes of a reply.
const REPLY: u64 = 64 << 20;

/// A line to each running proxy, and its process.
///
/// # Errors
/// `--pid` names none that runs.
pub fn running(which: Which) -> anyhow::Result<Vec<(u32, Line)>> {
    let found = place::find().into_iter().filter(|found| which.pid.is_none_or(|pid| pid == found.pid));
    // A socket that nobody listens on was left behind by a proxy that was killed.
    let lines: Vec<_> = found.filter_map(|found| Some((found.pid, Line::open(&found).ok()?))).collect();
    match which.pid {
        Some(pid) if lines.is_empty() => {
            bail!("no proxy runs as process {pid}; `mcp-proxy status` shows those that do")
        }
        _ => Ok(lines),
    }
}

/// As [`running`], for commands that need one at least.
///
/// # Errors
/// None runs.
pub fn some_running(which: Which) -> anyhow::Result<Vec<(u32, Line)>> {
    let lines = running(which)?;
    if lines.is_empty() {
        bail!(
            "no proxy is running; a host starts one (`mcp-proxy install HOST`), or `mcp-proxy run`. \
             A proxy under another user or another XDG_RUNTIME_DIR can't be seen from here"
        );
    }
    Ok(lines)
}

// === impl Line ===

impl Line {
    #[cfg(unix)]
    fn open(found: &Found) -> std::io::Result<Self> {
        let stream = Stream::connect(&found.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { read: BufReader::new(stream) })
    }

    #[cfg(windows)]
    fn open(found: &Found) -> std::io::Result<Self> {
        let stream = std::fs::OpenOptions::new().read(true).write(true).open(&found.path)?;
        Ok(Self { read: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the proxy says is wrong, or it does not answer.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Value> {
        self.say(request)?;
        loop {
            if let Some(answer) = self.next()? {
                return answer;
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The proxy is gone.
    pub fn say(&mut self, request: &Request) -> anyhow::Result<()> {
        let text = format!("{}\n", serde_json::to_string(request)?);
        self.read.get_mut().write_all(text.as_bytes()).context("the proxy is gone")
    }

    /// Lets replies take any time.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait_for_ever(&self) -> std::io::Result<()> {
        #[cfg(unix)]
        self.read.get_ref().set_read_timeout(None)?;
        Ok(())
    }

    /// The next reply; `None`: a line of the log, see [`Line::next_line`].
    fn next(&mut self) -> anyhow::Result<Option<anyhow::Result<Value>>> {
        let mut reply = self.reply()?;
        if let Some(error) = reply.get("error").and_then(Value::as_str) {
            return Ok(Some(Err(anyhow::anyhow!("{error}"))));
        }
        Ok(reply.get_mut("ok").map(|value| Ok(value.take())))
    }

    /// The next line of the log; `None`: there are no more.
    ///
    /// # Errors
    /// The proxy is gone, or what it says is wrong.
    pub fn next_line(&mut self) -> anyhow::Result<Option<Value>> {
        let mut reply = self.reply()?;
        if let Some(error) = reply.get("error").and_then(Value::as_str) {
            bail!("{error}");
        }
        Ok(reply.get_mut("line").map(Value::take))
    }

    fn reply(&mut self) -> anyhow::Result<Value> {
        let mut line = Vec::new();
        let count = (&mut self.read).take(REPLY).read_until(b'\n', &mut line).context("the proxy does not answer")?;
        anyhow::ensure!(count > 0, "the proxy ended");
        serde_json::from_slice(&line).context("the proxy's answer can't be read; it may be of another version")
    }
}
