//! A world around one machine: the pump's part of the work, with pipes that take what the schedule lets them take.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp_proxy::engine::child::Conn;
use mcp_proxy::engine::hub::{Clock, Effect, Entropy, Hub, Incoming, Known, StartFailure};
use mcp_proxy::engine::outcome::{Exit, UnixMs};
use mcp_proxy::wire::id::HostId;

use super::child::{Out, PIPE, Proc, Stage, too_long};
use super::config::{Common, Table, config};
use super::fuse;
use super::watch::{Fate, Mark, Watch};

/// A line that waits for the host to read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    left: usize,
    marks: Vec<Mark>,
    question: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub hub: Hub,
    pub now: Instant,
    pub base: Instant,
    pub procs: BTreeMap<Conn, Proc>,
    pub watch: Watch,
    pub tables: Vec<Table>,
    pub common: Common,
    /// Of each server's catalog.
    pub versions: BTreeMap<String, u32>,
    /// Whether children of that world have more than tools.
    pub rich: bool,
    /// The host's revision has arrays.
    pub batches: bool,
    /// The host is one of 2026-07-28, and names that in each request.
    pub modern: bool,
    /// A modern host that is left in peace comes back with its answers.
    pub returns: bool,
    to_host: VecDeque<Line>,
    /// Bytes of the host's outbox that the watch has seen.
    seen: usize,
    /// Questions that the host has read.
    pub questions: Vec<u64>,
    /// Own resources that are being read.
    pub reads: Vec<(HostId, bool)>,
    pub exited: bool,
    /// Lives that are over.
    pub past: Vec<Conn>,
    pub trace: Option<Vec<String>>,
    /// Some steps have a fault of ours.
    pub broken: bool,
    /// The next step has a fault of ours, after so many words to the log.
    pub fuse: Option<u32>,
    /// Digests of the states that the machine was in since this was last emptied.
    pub states: Option<Vec<u64>>,
}

/// How much of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Amount {
    One,
    Half,
    All,
}

impl Amount {
    fn of(self, whole: usize) -> usize {
        match self {
            Self::One => whole.min(1),
            Self::Half => whole.div_ceil(2),
            Self::All => whole,
        }
    }
}

impl World {
    pub fn new(tables: Vec<Table>, common: Common, known: Vec<Option<Known>>, seed: u64) -> Self {
        let base = Instant::now();
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let clock = Clock { instant: base, unix: UnixMs(1_800_000_000_000) };
        let hub = Hub::new(config(&tables, common), known, clock, Entropy::new(secret), 1);
        let mut world = Self {
            hub,
            now: base,
            base,
            procs: BTreeMap::new(),
            watch: Watch::default(),
            versions: BTreeMap::new(),
            tables,
            common,
            rich: false,
            batches: false,
            modern: false,
            returns: true,
            to_host: VecDeque::new(),
            seen: 0,
            questions: Vec::new(),
            reads: Vec::new(),
            exited: false,
            past: Vec::new(),
            trace: None,
            broken: false,
            fuse: None,
            states: None,
        };
        world.step_done();
        world
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} {}", (self.now - self.base).as_secs_f64(), text()));
        }
    }

    /// All that decides how the world goes on.
    pub fn fingerprint(&self) -> u64 {
        let mut to = DefaultHasher::new();
        self.hub.fingerprint(self.now).hash(&mut to);
        (&self.procs, &self.watch, &self.tables, &self.versions, &self.to_host, &self.questions).hash(&mut to);
        (self.exited, self.reads.len(), self.returns).hash(&mut to);
        to.finish()
    }

    /// One step of the machine. A fault of ours in it is followed by `mend`, as the pump has it.
    pub fn step(&mut self, work: impl FnOnce(&mut Hub, Instant), mend: impl FnOnce(&mut Hub, Instant)) {
        let now = self.now;
        let Some(after) = self.fuse.take() else { return work(&mut self.hub, now) };
        if !fuse::done(&mut self.hub, after, |hub| work(hub, now)) {
            self.note(|| "A FAULT OF OURS".to_owned());
            self.watch.faulty = true;
            self.watch.stats.add("faults of ours");
            mend(&mut self.hub, now);
        }
    }

    /// A step about a child.
    pub fn child_step(&mut self, conn: Conn, work: impl FnOnce(&mut Hub, Instant)) {
        self.step(work, |hub, now| hub.handle_broken(now, conn));
    }

    /// What must follow each input: effects are done, and what was said is looked at.
    pub fn step_done(&mut self) {
        loop {
            self.look();
            let Some(effect) = self.hub.poll_effect() else { break };
            self.do_effect(effect);
        }
        if let Some(states) = &mut self.states {
            states.push(self.hub.fingerprint(self.now));
        }
    }

    fn do_effect(&mut self, effect: Effect) {
        self.watch.effect(&effect);
        match effect {
            Effect::Spawn { conn, server } => {
                assert!(!self.exited, "a start after the end began");
                let twin = self.procs.values().find(|proc| proc.key == server.key);
                assert!(twin.is_none(), "two lives of one server: {twin:?}");
                self.watch.stats.add("spawns");
                if conn.generation > 1 {
                    self.watch.stats.add("restarts");
                }
                self.note(|| format!("  -> spawn {conn:?} {}", server.key));
                let rich = self.rich;
                self.procs.insert(conn, Proc::new(conn, &server.key, rich));
            }
            Effect::Stop { conn } => {
                self.note(|| format!("  -> stop {conn:?}"));
                // Like the pump's: a process that is not there yet can't be stopped.
                if let Some(proc) = self.procs.get_mut(&conn).filter(|proc| proc.stage != Stage::Spawning) {
                    proc.stop_ordered = true;
                }
            }
            Effect::ReadOwn { id, unknown } => self.reads.push((id, unknown)),
            Effect::Exit => {
                let twice = std::mem::replace(&mut self.exited, true);
                assert!(!twice || self.watch.faulty, "the end is told twice");
                let alive = self.procs.values().find(|proc| proc.is_running() && !proc.stop_ordered);
                assert!(alive.is_none(), "the end began without {alive:?}");
            }
            _ => {}
        }
    }

    /// Shows the watch what was newly said to the host.
    fn look(&mut self) {
        let outbox = self.hub.host_outbox();
        if outbox.bytes() == self.seen {
            return;
        }
        let mut skip = self.seen;
        let mut fresh = Vec::new();
        for part in outbox.front() {
            let from = skip.min(part.len());
            skip -= from;
            fresh.extend_from_slice(&part[from..]);
        }
        self.seen = outbox.bytes();
        for line in String::from_utf8(fresh).expect("what is said is UTF-8").split_inclusive('\n') {
            self.note(|| format!("  => {}", line.trim_end()));
            let heard = self.watch.tells_host(line.trim_end());
            if let Some(kind) = heard.changed {
                self.changed(kind);
            }
            self.to_host.push_back(Line { left: line.len(), marks: heard.marks, question: heard.question });
        }
    }

    /// A change was announced: there must be one.
    fn changed(&mut self, kind: &'static str) {
        self.watch.stats.add("announced");
        let arrays: &[&'static str] = if kind == "resources" { &["resources", "resourceTemplates"] } else { &[kind] };
        let mut news = false;
        for array in arrays {
            let now = self.list_now(array);
            match self.watch.given.get_mut(array) {
                Some((given, told)) => {
                    news |= now.is_none_or(|now| now != *given);
                    *told = true;
                }
                None => news = true,
            }
        }
        assert!(news, "a change of {kind} was announced, and there is none");
    }

    /// The list that the host would get now, if it need not wait.
    pub fn list_now(&self, array: &str) -> Option<String> {
        let mut probe = self.hub.clone();
        let line = self.request_line("\"probe\"", list_method(array), "", "");
        probe.handle_host(self.now, Bytes::from(line));
        let text: Vec<u8> = probe.host_outbox().front().flatten().copied().collect();
        // What is not about a server alone is the last thing that is said.
        let last = text.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty())?;
        let value: serde_json::Value =
            serde_json::from_slice(last).ok().filter(|value: &serde_json::Value| value["id"] == "probe")?;
        Some(value["result"][array].to_string())
    }

    // The host.

    pub fn host_says(&mut self, line: String) {
        self.note(|| format!("host: {line}"));
        let line = Bytes::from(line);
        let (mark, kept) = (self.hub.mark(), line.clone());
        self.step(|hub, now| hub.handle_host(now, line), |hub, now| hub.handle_host_fault(now, &kept, mark));
        self.step_done();
    }

    pub fn host_reads(&mut self, amount: Amount) {
        let count = amount.of(self.hub.host_outbox().bytes());
        let mut left = count;
        while left > 0 {
            let line = self.to_host.front_mut().expect("what is accepted was looked at");
            let taken = left.min(line.left);
            line.left -= taken;
            left -= taken;
            if line.left == 0 {
                let line = self.to_host.pop_front().unwrap_or_else(|| unreachable!());
                for mark in line.marks {
                    self.watch.requests[mark].delivered = true;
                }
                self.questions.extend(line.question);
            }
        }
        self.seen -= count;
        self.hub.host_accepted(count);
        self.step_done();
    }

    pub fn host_has(&self) -> bool {
        !self.to_host.is_empty()
    }

    // Children.

    pub fn spawned(&mut self, conn: Conn, result: Result<(), StartFailure>) {
        self.note(|| format!("spawned {conn:?} {result:?}"));
        match result {
            Ok(()) => {
                let proc = self.procs.get_mut(&conn).expect("it is being started");
                proc.stage = Stage::Running;
                self.child_step(conn, |hub, now| hub.handle_spawned(now, conn, Ok(7)));
                if self.hub.child_outbox(conn).is_none() {
                    self.procs.get_mut(&conn).expect("it was started").stop_ordered = true;
                }
            }
            Err(failure) => {
                self.procs.remove(&conn);
                self.past.push(conn);
                self.watch.stats.add("failed spawns");
                self.child_step(conn, |hub, now| hub.handle_spawned(now, conn, Err(failure)));
            }
        }
        self.step_done();
    }

    /// Whether its stdin takes bytes and there are some.
    pub fn can_write(&self, conn: Conn) -> bool {
        let proc = &self.procs[&conn];
        proc.is_running()
            && !proc.stop_ordered
            && proc.pipe.len() < PIPE
            && self.hub.child_outbox(conn).is_some_and(|outbox| !outbox.is_empty())
    }

    pub fn write(&mut self, conn: Conn, amount: Amount) {
        let proc = self.procs.get_mut(&conn).expect("it lives");
        let outbox = self.hub.child_outbox(conn).expect("there is something to write");
        let bytes: Vec<u8> = outbox.front().flatten().copied().collect();
        let count = amount.of(bytes.len()).min(PIPE.saturating_sub(proc.pipe.len()).max(1));
        let mut at = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if at >= count {
                break;
            }
            if (at > 0 || !proc.midway)
                && let Some(mark) = mark_of(line)
            {
                self.watch.started(conn, mark);
            }
            at += line.len();
        }
        proc.pipe.extend_from_slice(&bytes[..count]);
        proc.midway = bytes[count - 1] != b'\n';
        self.note(|| format!("write {conn:?} {}", String::from_utf8_lossy(&bytes[..count]).trim_end()));
        self.hub.child_accepted(conn, count);
        self.step_done();
    }

    /// The next line of its stdout comes through.
    pub fn deliver(&mut self, conn: Conn) {
        let Some(out) = self.procs.get_mut(&conn).and_then(|proc| proc.stdout.pop_front()) else { return };
        self.note(|| format!("{conn:?} says {out:?}"));
        self.child_step(conn, |hub, now| match out {
            Out::Line(line) => hub.handle_child(now, conn, Bytes::from(line)),
            Out::TooLong { id } => hub.handle_child_too_long(now, conn, &too_long(id)),
        });
        self.step_done();
    }

    /// Its exit, or the end of its output, is noticed: what it had written comes first.
    pub fn gone(&mut self, conn: Conn) {
        while self.procs[&conn].stdout.front().is_some() {
            self.deliver(conn);
        }
        let proc = self.procs.get_mut(&conn).expect("it is not reaped");
        proc.told = true;
        let exit = match proc.stage {
            Stage::Exited(code) if code >= 0 => Some(Exit::Code(code)),
            Stage::Exited(_) => Some(Exit::Signal("SIGKILL".to_owned())),
            _ => None,
        };
        self.note(|| format!("gone {conn:?} {exit:?}"));
        self.child_step(conn, |hub, now| hub.handle_gone(now, conn, exit));
        self.step_done();
    }

    pub fn reap(&mut self, conn: Conn) {
        self.note(|| format!("reaped {conn:?}"));
        let proc = self.procs.remove(&conn).expect("it is not reaped");
        assert!(proc.stop_ordered, "reaped without an order");
        self.past.push(conn);
        self.child_step(conn, |hub, now| hub.handle_reaped(now, conn));
        self.step_done();
    }

    // Time, orders, the end.

    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.note(|| format!("wait {time:?}"));
        if self.hub.deadline().is_some_and(|at| at <= self.now) {
            self.timeout();
        }
    }

    /// Waits until something is due.
    pub fn tick(&mut self) -> bool {
        let Some(at) = self.hub.deadline() else { return false };
        self.now = self.now.max(at);
        self.note(|| "tick".to_owned());
        self.timeout();
        true
    }

    fn timeout(&mut self) {
        // What one turn ends may make something else due at once, but not for ever.
        for _ in 0..4 {
            for due in self.hub.dues() {
                self.step(|hub, now| hub.handle_due(now, due), |hub, now| hub.handle_due_fault(now, due));
            }
            self.step_done();
            if self.hub.deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("what was due is still due");
    }

    pub fn reload(&mut self, tables: Vec<Table>) {
        self.note(|| format!("reload {tables:?}"));
        let config = config(&tables, self.common);
        let incoming = config
            .servers
            .iter()
            .map(|server| {
                let old = self.hub.config().servers.iter().find(|old| old.key == server.key).cloned();
                Incoming {
                    server: std::sync::Arc::new(server.clone()),
                    same_launch: old.is_none_or(|old| old.same_identity(server)),
                    known: None,
                }
            })
            .collect();
        self.tables = tables;
        self.watch.stats.add("reloads");
        self.step(|hub, now| hub.handle_reload(now, config, incoming), |hub, now| hub.handle_fault(now, None));
        self.step_done();
    }

    pub fn answer_read(&mut self, at: usize) {
        let (id, unknown) = self.reads.remove(at);
        self.step(|hub, _| hub.answer_own(&id, unknown, "[]"), |hub, now| hub.handle_fault(now, Some(&id)));
        self.step_done();
    }

    /// The host's id of an open request, and what is open at all.
    pub fn open_calls(&self) -> Vec<String> {
        self.watch.open.keys().cloned().collect()
    }

    /// After the end every outcome is told.
    pub fn assert_fates(&self) {
        for (id, (mark, fate)) in &self.watch.outcomes {
            // What a fault of ours lost stays open in the in-flight file, for the next start to find.
            assert!(
                self.watch.faulty || *fate != Fate::Open,
                "the outcome {id} of {:?} never ended",
                self.watch.requests[*mark]
            );
        }
    }
}

pub fn list_method(array: &str) -> &'static str {
    match array {
        "tools" => "tools/list",
        "prompts" => "prompts/list",
        "resources" => "resources/list",
        _ => "resources/templates/list",
    }
}

fn mark_of(line: &[u8]) -> Option<Mark> {
    let text = std::str::from_utf8(line).ok()?;
    let at = text.find("\"mark\":")? + "\"mark\":".len();
    let end = text[at..].find(|c: char| !c.is_ascii_digit())?;
    text.contains("\"method\"").then(|| text[at..at + end].parse().ok()).flatten()
}
