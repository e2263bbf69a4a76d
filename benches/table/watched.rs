//! Calls while people look on: `status --watch`, `top` and `logs -f` beside calls, against the same calls alone.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::Context as _;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::cases::{Case, Metric};
use crate::load::{Goal, Lane, drive};
use crate::rig::{Rig, Servers, State, Via};

/// The three commands, up to the end of this value.
struct Watchers(Vec<Child>);

/// How long one may take until it shows something.
const PATIENCE: Duration = Duration::from_secs(20);

impl Watchers {
    /// Starts them, and waits until each has shown something.
    fn start(rig: &Rig, state: &State) -> anyhow::Result<Self> {
        let mut watchers = Self(Vec::new());
        let (tell, shown) = channel();
        for words in [&["status", "--watch"][..], &["logs", "-f"]] {
            let mut command = rig.command(state, words);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
            let output = child.stdout.take().context("no pipe")?;
            watchers.0.push(child);
            swallow(output, tell.clone());
        }
        watchers.0.push(top(rig.command(state, &["top"]), tell)?);
        for _ in 0..watchers.0.len() {
            shown.recv_timeout(PATIENCE).context("a command shows nothing")?;
        }
        Ok(watchers)
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // What has ended by itself needs no end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A terminal of 80 by 24 with the page in it.
fn top(mut command: Command, tell: Sender<()>) -> anyhow::Result<Child> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
    let name = ptsname(&ours, Vec::new())?.into_string()?;
    let theirs = File::options().read(true).write(true).open(name)?;
    command.env("TERM", "xterm-256color").stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    let child = command.spawn()?;
    swallow(File::from(ours), tell);
    Ok(child)
}

/// Reads to the end, and tells of the first piece.
fn swallow(mut from: impl Read + Send + 'static, tell: Sender<()>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut first = Some(tell);
        while from.read(&mut buffer).is_ok_and(|count| count > 0) {
            if let Some(tell) = first.take() {
                let _ = tell.send(());
            }
        }
    });
}

/// The same calls alone and watched, in turns within one session. `log` is what stands in `[log]`.
pub(crate) fn case(key: &str, title: &str, metrics: Vec<Metric>, log: &'static str, quick: bool) -> Case {
    let measure = move |rig: &Rig, via| {
        if via != Via::Proxy {
            return Ok(None);
        }
        let servers = Servers::of(5);
        let (mut client, state) = rig.open_with(servers, log)?;
        let lanes = [Lane::new([Rig::tool(via, servers, 0, "echo")], "{\"text\":\"hello\"}", 1)];
        let goal = Goal { calls: 2000, time: Duration::from_millis(if quick { 100 } else { 1500 }) };
        drive(&mut client, &lanes, goal)?;
        let (mut alone, mut watched, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 0..if quick { 1 } else { 4 } {
            let mut one = |is_watched: bool| {
                let watchers = is_watched.then(|| Watchers::start(rig, &state)).transpose()?;
                let micros = drive(&mut client, &lanes, goal)?.micros(0.5);
                drop(watchers);
                anyhow::Ok(micros)
            };
            // Each turn begins with another one.
            let (without, with) = if turn % 2 == 0 {
                let without = one(false)?;
                (without, one(true)?)
            } else {
                let with = one(true)?;
                (one(false)?, with)
            };
            alone.push(without);
            watched.push(with);
            ratios.push(with / without);
        }
        client.close()?;
        Ok(Some(vec![median(alone), median(watched), median(ratios)]))
    };
    Case { key: key.into(), title: title.into(), metrics, measure: Box::new(measure) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
