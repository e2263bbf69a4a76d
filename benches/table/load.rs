//! Drives calls through a session and measures each.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::client::{Client, Incoming};
use crate::eras::{Era, META};

/// Calls of one kind, so many at a time.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Name and arguments, for each tool in turn.
    tails: Vec<Vec<u8>>,
    window: usize,
    progress: bool,
    /// Whether its calls outlast the measurement: nobody waits for them.
    endless: bool,
    /// Whether all requests that are due go out with one write.
    batch: bool,
}

/// When a measurement is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// Calls at least.
    pub(crate) calls: usize,
    /// Time at least.
    pub(crate) time: Duration,
}

/// What was measured of the first lane.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// In seconds, ascending.
    latencies: Vec<f64>,
    /// From the first request to the last reply.
    pub(crate) seconds: f64,
    /// Notifications that came meanwhile.
    pub(crate) notifications: usize,
}

// === impl Lane ===

impl Lane {
    /// Calls of these tools in turn.
    pub(crate) fn new<T: AsRef<str>>(tools: impl IntoIterator<Item = T>, arguments: &str, window: usize) -> Self {
        let tail = |tool: T| format!("\"name\":\"{}\",\"arguments\":{arguments}", tool.as_ref()).into_bytes();
        Self { tails: tools.into_iter().map(tail).collect(), window, progress: false, endless: false, batch: false }
    }

    /// With a progress token.
    pub(crate) fn with_progress(self) -> Self {
        Self { progress: true, ..self }
    }

    /// Whose requests go out with one write for all that are due.
    pub(crate) fn batched(self) -> Self {
        Self { batch: true, ..self }
    }

    /// Whose calls nobody waits for.
    pub(crate) fn endless(self) -> Self {
        Self { endless: true, ..self }
    }
}

// === impl Outcome ===

impl Outcome {
    pub(crate) fn calls(&self) -> usize {
        self.latencies.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.calls() as f64 / self.seconds
    }

    /// A latency in microseconds; `share` of all calls took at most that.
    pub(crate) fn micros(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).map_or(f64::NAN, |seconds| seconds * 1e6)
    }
}

struct Run<'a> {
    client: &'a mut Client,
    lanes: &'a [Lane],
    /// By the number of the request, counted from `base`: its lane and when it was sent.
    sent: Vec<(usize, Instant)>,
    base: Option<u64>,
    open: Vec<usize>,
    turn: usize,
}

/// Drives all lanes until the first one has reached the goal and its last call is answered.
pub(crate) fn drive(client: &mut Client, lanes: &[Lane], goal: Goal) -> anyhow::Result<Outcome> {
    let mut run =
        Run { client, lanes, sent: Vec::with_capacity(1 << 16), base: None, open: vec![0; lanes.len()], turn: 0 };
    let mut latencies = Vec::with_capacity(1 << 16);
    let mut notifications = 0;
    let started = Instant::now();
    let mut finished = started;
    // The others first, so that they are under way when the measured one begins.
    for (number, lane) in lanes.iter().enumerate().rev() {
        for _ in 0..lane.window {
            run.send(number)?;
        }
    }
    let mut over = false;
    while run.open.iter().zip(lanes).any(|(open, lane)| *open > 0 && !lane.endless) {
        run.client.exchange()?;
        let now = Instant::now();
        while let Some(incoming) = run.client.take()? {
            let Incoming::Reply { id, .. } = incoming else {
                notifications += 1;
                continue;
            };
            // A smaller number is one of an earlier measurement that nobody waited for.
            let Some(number) = run.base.and_then(|base| id.checked_sub(base)) else { continue };
            let (lane, since) = *run.sent.get(number as usize).context("an answer to no question")?;
            run.open[lane] -= 1;
            if lane == 0 {
                latencies.push((now - since).as_secs_f64());
                finished = now;
                over |= latencies.len() >= goal.calls && now - started >= goal.time;
            }
            if !over {
                run.send(lane)?;
            }
        }
    }
    latencies.sort_by(f64::total_cmp);
    Ok(Outcome { latencies, seconds: (finished - started).as_secs_f64(), notifications })
}

impl Run<'_> {
    fn send(&mut self, number: usize) -> anyhow::Result<()> {
        let lane = &self.lanes[number];
        let era = self.client.era();
        let (id, out) = self.client.begin();
        out.extend_from_slice(b",\"method\":\"tools/call\",\"params\":{");
        if lane.progress {
            out.extend_from_slice(b"\"_meta\":{\"progressToken\":");
            out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
            out.extend_from_slice(b"},");
        }
        out.extend_from_slice(&lane.tails[self.turn % lane.tails.len()]);
        if era == Era::Modern {
            out.extend_from_slice(b",\"_meta\":{");
            out.extend_from_slice(META.as_bytes());
            out.push(b'}');
        }
        out.extend_from_slice(b"}}\n");
        self.turn += 1;
        self.base.get_or_insert(id);
        self.sent.push((number, Instant::now()));
        self.open[number] += 1;
        // Like every host, one write for each message.
        if lane.batch { Ok(()) } else { self.client.write_some() }
    }
}
