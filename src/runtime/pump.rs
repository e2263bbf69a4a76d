//! The one loop of the message path: inputs into the [`Hub`], effects and outboxes out of it.
//!
//! A turn takes a bounded number of events, looks once at the host, at the clock, does the effects, and then writes
//! all that is ready with one call for each pipe. Nothing in it waits; it waits only in `wait`, for whatever comes first.
//! So a flood of one child can delay the others by one turn, and neither a full pipe nor a slow disk stops it.

mod reading;
mod shield;

pub(super) use shield::Fuse;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::child::{Alarm, ChildEvent, ChildIo};
use super::desk::{Desk, DeskEvent};
use super::launch::{Started, Starter};
use super::process::Exit as ProcessExit;
use super::shelf::Shelf;
use super::signal::{Signal, Signals};
use super::stdio::{PipeIn, PipeOut};
use crate::engine::child::Conn;
use crate::engine::hub::{Effect, Hub, StartFailure};
use crate::engine::outcome::Exit;
use crate::wire::frame::{Frame, Framer};

/// Events that one turn takes.
const EVENTS: usize = 64;
/// Lines of one pipe that one turn takes.
const LINES: usize = 64;
/// Lines of the host that the last turn takes.
const LAST_LINES: usize = 4096;
/// Bytes of one pipe that one turn reads.
const BYTES: usize = 1 << 20;
/// Pieces that one call writes.
const PIECES: usize = 64;
/// How long the first servers wait for the host's first word, which mostly is there already.
const FIRST_WORD: Duration = Duration::from_millis(5);
/// How long, after a signal, answers for the host may take to be written.
const LAST_ANSWERS: Duration = Duration::from_millis(30);

/// What happened around the pump.
#[derive(Debug)]
pub enum Event {
    /// At a child.
    Child(ChildEvent),
    /// A start ended.
    Spawned(Conn, Result<Started, StartFailure>),
    /// At the desk: ledger, cache, control, reload.
    Desk(DeskEvent),
}

/// The loop and what it owns.
#[derive(Debug)]
pub struct Pump {
    hub: Hub,
    input: Option<PipeIn>,
    output: Option<PipeOut>,
    framer: Framer,
    children: BTreeMap<Conn, ChildIo>,
    /// Children with more to read than one turn takes.
    ready: VecDeque<Conn>,
    host_blocked: bool,
    /// The host has said more than one turn takes.
    host_ready: bool,
    desk: Desk,
    starter: Starter,
    shelf: Shelf,
    signals: Option<Signals>,
    events: mpsc::UnboundedReceiver<Event>,
    child_events: mpsc::UnboundedReceiver<ChildEvent>,
    to_events: mpsc::UnboundedSender<Event>,
    to_child_events: mpsc::UnboundedSender<ChildEvent>,
    tasks: JoinSet<()>,
    exiting: Option<Exiting>,
    /// Wakes at the next deadline.
    timer: Pin<Box<tokio::time::Sleep>>,
    timer_at: Option<Instant>,
    /// The timer has rung.
    due: bool,
    /// Children that may have something to be written.
    to_write: Vec<Conn>,
    /// Children whose output was left unread since too much waits for the host.
    paused: Vec<Conn>,
    /// Bytes of children's lines that are not yet whole, at most; looked up when it is too much.
    held: usize,
    /// For tests.
    fuse: Fuse,
}

/// Why and until when the end is on its way.
#[derive(Clone, Copy, Debug)]
struct Exiting {
    /// A signal, the parent's end, or a host that no longer reads: be gone at once.
    hasty: bool,
    until: Instant,
}

/// What the pump is made of.
#[derive(Debug)]
pub struct Parts {
    /// The machine.
    pub hub: Hub,
    /// What the host says.
    pub input: PipeIn,
    /// What it is told.
    pub output: PipeOut,
    /// Ledger, cache, control and reload.
    pub desk: Desk,
    /// Starts servers.
    pub starter: Starter,
    /// Secrets that are known.
    pub shelf: Shelf,
    /// What ends us; `None` for a command that is no server.
    pub signals: Option<Signals>,
    /// Where events come from, and the way to send some.
    pub events: (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>),
}

impl Pump {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let (to_child_events, child_events) = mpsc::unbounded_channel();
        Self {
            framer: Framer::new(parts.hub.max_message()),
            hub: parts.hub,
            input: Some(parts.input),
            output: Some(parts.output),
            children: BTreeMap::new(),
            ready: VecDeque::new(),
            host_blocked: false,
            host_ready: false,
            desk: parts.desk,
            starter: parts.starter,
            shelf: parts.shelf,
            signals: parts.signals,
            events: parts.events.1,
            to_events: parts.events.0,
            child_events,
            to_child_events,
            tasks: JoinSet::new(),
            exiting: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: None,
            due: false,
            to_write: Vec::new(),
            paused: Vec::new(),
            held: 0,
            fuse: Fuse::from_environment(),
        }
    }

    /// Runs until the host, a signal or the parent's end says that it is over. What is left of the stop ladders then
    /// is the guard's.
    pub async fn run(mut self) {
        // What the host has said already is answered before the first server is started.
        if let Some(input) = &self.input {
            let _ = tokio::time::timeout(FIRST_WORD, input.readable()).await;
        }
        let mut reader_gone = self.output.as_ref().map(|output| Box::pin(output.reader_gone()));
        loop {
            self.turn();
            // The first lives are on their way.
            self.starter.forget_first();
            if self.is_done() {
                break;
            }
            self.wait(&mut reader_gone).await;
        }
        self.desk.close();
        self.tasks.abort_all();
    }

    /// One turn; see the module.
    fn turn(&mut self) {
        let now = now();
        for _ in 0..EVENTS {
            let Ok(event) = self.child_events.try_recv() else { break };
            self.child_event(now, event);
        }
        for _ in 0..EVENTS {
            let Ok(event) = self.events.try_recv() else { break };
            self.event(now, event);
        }
        for _ in 0..self.ready.len() {
            let Some(conn) = self.ready.pop_front() else { break };
            self.read_child(now, conn);
        }
        self.read_host(now);
        if std::mem::take(&mut self.due) || self.timer_at.is_some_and(|at| at <= now) {
            shield::timeout(&mut self.hub, now, &self.fuse);
        }
        self.do_effects(now);
        self.write_host(now);
        self.write_children(now);
        self.resume_paused();
        self.do_effects(now);
    }

    fn is_done(&self) -> bool {
        let Some(exiting) = self.exiting else { return false };
        let written = self.output.is_none() || self.hub.host_bytes() == 0;
        let all = written && (exiting.hasty || self.children.is_empty());
        all || exiting.until <= now()
    }

    /// Waits for whatever comes first.
    async fn wait(&mut self, reader_gone: &mut Option<Pin<Box<impl Future<Output = ()>>>>) {
        // With more left to read it looks once at everything else, and the reactor at the pipes, and goes on.
        let input = self.input.as_ref().filter(|_| self.hub.wants_host());
        let more = !self.ready.is_empty() || (self.host_ready && input.is_some());
        let deadline = [self.hub.deadline(), self.exiting.map(|exiting| exiting.until)].into_iter().flatten().min();
        if let Some(at) = deadline.filter(|at| self.timer_at.is_none_or(|set| *at < set)) {
            // Moving a timer costs more than most turns do, and most deadlines only move away: then it may ring early.
            self.timer.as_mut().reset(at.into());
            self.timer_at = deadline;
        }
        let mut came = None;
        let mut signal = None;
        let mut gone = false;
        tokio::select! {
            biased;
            said = next_signal(&mut self.signals) => signal = Some(said),
            event = self.child_events.recv() => came = event.map(Event::Child),
            event = self.events.recv() => came = event,
            () = readable(input) => {}
            () = writable(self.output.as_ref(), self.host_blocked) => self.host_blocked = false,
            () = &mut self.timer, if self.timer_at.is_some() => (self.due, self.timer_at) = (true, None),
            () = when(reader_gone) => gone = true,
            () = tokio::task::yield_now(), if more => {}
        }
        let now = now();
        match came {
            Some(Event::Child(event)) => self.child_event(now, event),
            Some(event) => self.event(now, event),
            None => {}
        }
        if gone {
            *reader_gone = None;
            tracing::info!("nobody reads the answers any more");
            self.output = None;
            self.stop(now, true);
        }
        match signal {
            Some(Signal::Reload) => self.desk.reload(),
            Some(Signal::Stop | Signal::ParentGone) => {
                tracing::info!(?signal, "told to end");
                self.stop(now, true);
            }
            Some(Signal::StopNow) => self.exiting = Some(Exiting { hasty: true, until: now }),
            None => {}
        }
    }

    fn stop(&mut self, now: Instant, hasty: bool) {
        shield::stop(&mut self.hub, now);
        self.begin_exit(now, hasty);
    }

    fn begin_exit(&mut self, now: Instant, hasty: bool) {
        if hasty || self.exiting.is_none() {
            let grace = self.hub.config().servers.iter().map(|server| server.stop_grace).max().unwrap_or_default();
            let until = now + if hasty { LAST_ANSWERS } else { grace };
            self.exiting = Some(Exiting { hasty, until });
        }
    }

    // Inputs.

    fn event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Child(event) => self.child_event(now, event),
            Event::Spawned(conn, result) => self.spawned(now, conn, result),
            Event::Desk(event) => {
                let id = event.request().cloned();
                shield::of_all(&mut self.hub, now, id.as_ref(), |hub| self.desk.event(now, hub, event));
            }
        }
    }

    fn child_event(&mut self, now: Instant, event: ChildEvent) {
        match event {
            ChildEvent::Readable(conn) => self.read_child(now, conn),
            ChildEvent::Writable(conn) => {
                if let Some(child) = self.children.get_mut(&conn) {
                    child.write_blocked = false;
                    self.to_write.push(conn);
                }
            }
            ChildEvent::Stderr(conn, line) => {
                shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_stderr(conn, line));
            }
            ChildEvent::Exited(conn, exit) => {
                self.read_rest(now, conn);
                shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_gone(now, conn, exit_of(exit)));
            }
            ChildEvent::Silent(conn) => {
                shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_gone(now, conn, None));
            }
            ChildEvent::Reaped(conn) => {
                self.children.remove(&conn);
                shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_reaped(now, conn));
            }
            ChildEvent::Broken(conn) => shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_broken(now, conn)),
        }
    }

    fn spawned(&mut self, now: Instant, conn: Conn, result: Result<Started, StartFailure>) {
        let Started { process, pipes, fingerprint } = match result {
            Ok(started) => started,
            Err(failure) => {
                return shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_spawned(now, conn, Err(failure)));
            }
        };
        let pid = process.pid();
        let name = self.hub.name_of(conn).to_owned();
        self.desk.launched(&name, fingerprint);
        let limit = self.hub.max_message();
        let io = ChildIo::start(
            conn,
            &name,
            process,
            pipes,
            limit,
            self.shelf.clone(),
            &self.to_child_events,
            &mut self.tasks,
        );
        self.children.insert(conn, io);
        shield::of_child(&mut self.hub, now, conn, |hub| hub.handle_spawned(now, conn, Ok(pid)));
        if self.hub.child_outbox(conn).is_none() {
            // It is no longer wanted: its link went while it was being started.
            self.stop_child(conn);
        }
    }

    fn read_host(&mut self, now: Instant) {
        let Some(input) = &mut self.input else { return };
        let mut read = 0;
        let mut ended = false;
        self.host_ready = true;
        // At a hasty end there may be no other turn: what the host has sent is answered in this one.
        let lines = if self.exiting.is_some() { LAST_LINES } else { LINES };
        for _ in 0..lines {
            if !self.hub.wants_host() {
                return;
            }
            match self.framer.next_frame() {
                Some(Frame::Line(line)) => {
                    shield::host_line(&mut self.hub, now, line, &self.fuse);
                    continue;
                }
                Some(Frame::TooLong(told)) => {
                    shield::of_all(&mut self.hub, now, None, |hub| hub.handle_host_too_long(now, &told));
                    continue;
                }
                None if read >= BYTES => break,
                None => {}
            }
            match input.try_read_buf(self.framer.room()) {
                Ok(0) => ended = true,
                Ok(count) => {
                    read += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.host_ready = false,
                Err(error) => {
                    tracing::warn!(source = "host", %error, "its pipe can't be read");
                    ended = true;
                }
            }
            break;
        }
        if ended {
            if let Some(Frame::Line(line)) = self.framer.finish() {
                shield::host_line(&mut self.hub, now, line, &self.fuse);
            }
            self.input = None;
            shield::shield(&mut self.hub, |hub| hub.handle_host_eof(now), |hub| hub.handle_stop_fault(now));
        }
    }

    // Outputs.

    fn do_effects(&mut self, now: Instant) {
        self.desk.hold();
        while let Some(effect) = self.hub.poll_effect() {
            match effect {
                Effect::Spawn { conn, server } => {
                    let start = self.starter.start(server);
                    let events = self.to_events.clone();
                    self.tasks.spawn(async move {
                        let alarm = Alarm::new(events.clone(), move || Event::Spawned(conn, Err(start_broke())));
                        let _ = events.send(Event::Spawned(conn, start.await));
                        drop(alarm);
                    });
                }
                Effect::Stop { conn } => self.stop_child(conn),
                Effect::WatchParent => {
                    if let Some(signals) = &mut self.signals {
                        signals.watch_parent();
                    }
                }
                Effect::Exit => self.begin_exit(now, false),
                other => {
                    let id = if let Effect::ReadOwn { id, .. } = &other { Some(id.clone()) } else { None };
                    let (desk, shelf) = (&mut self.desk, &self.shelf);
                    shield::of_all(&mut self.hub, now, id.as_ref(), |hub| desk.effect(hub, other, shelf));
                }
            }
        }
        self.desk.flush();
    }

    fn stop_child(&mut self, conn: Conn) {
        let grace = self.hub.grace_of(conn);
        if let Some(child) = self.children.get_mut(&conn) {
            child.stop(grace, &self.to_child_events);
        }
    }

    fn write_host(&mut self, now: Instant) {
        while let Some(output) = &self.output
            && !self.host_blocked
            && self.hub.host_bytes() > 0
        {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = fill(&mut pieces, self.hub.host_outbox().front());
            match output.try_write_vectored(&pieces[..count]) {
                Ok(count) => self.hub.host_accepted(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.host_blocked = true,
                Err(error) => {
                    tracing::info!(%error, "the host no longer reads");
                    self.output = None;
                    self.stop(now, true);
                }
            }
        }
    }

    fn write_children(&mut self, now: Instant) {
        while let Some(conn) = self.to_write.pop().or_else(|| self.hub.poll_spoken_to()) {
            self.write_child(now, conn);
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn write_child(&mut self, now: Instant, conn: Conn) {
        let Some(child) = self.children.get_mut(&conn) else { return };
        while let (Some(stdin), false) = (&child.stdin, child.write_blocked) {
            let Some(outbox) = self.hub.child_outbox(conn).filter(|outbox| !outbox.is_empty()) else { return };
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = fill(&mut pieces, outbox.front());
            let breaks = pieces[..count].iter().any(|piece| self.fuse.is_lit("write", piece));
            match stdin.try_write_vectored(&pieces[..count]) {
                Ok(count) => shield::of_child(&mut self.hub, now, conn, |hub| {
                    hub.child_accepted(conn, count);
                    assert!(!breaks, "as MCP_PROXY_TEST_PANIC asks for");
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    child.await_writable(&self.to_child_events, &mut self.tasks);
                }
                Err(_) => {
                    // It reads no more: an exit may follow at once and says more.
                    child.stdin = None;
                    child.await_exit(&self.to_child_events, &mut self.tasks);
                }
            }
        }
    }

    /// Children that were left unread may be read again when there is room.
    fn resume_paused(&mut self) {
        for conn in std::mem::take(&mut self.paused) {
            let may = self.may_read(conn);
            if may { self.ready.push_back(conn) } else { self.paused.push(conn) }
        }
    }
}

/// The runtime's clock, which tests may hold.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn start_broke() -> StartFailure {
    StartFailure { reason: "the proxy failed in starting it, which is a fault of the proxy".into(), hopeless: false }
}

fn exit_of(exit: ProcessExit) -> Option<Exit> {
    match exit {
        ProcessExit::Code(code) => Some(Exit::Code(code)),
        ProcessExit::Signal(number) => Some(Exit::Signal(signal_name(number))),
        ProcessExit::Unknown => None,
    }
}

/// `SIGKILL` for 9.
fn signal_name(number: i32) -> String {
    let names = [
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
        "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
    names.get(index).map_or_else(|| format!("signal {number}"), |name| (*name).to_owned())
}

async fn next_signal(signals: &mut Option<Signals>) -> Signal {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

async fn readable(input: Option<&PipeIn>) {
    match input {
        Some(input) => {
            let _ = input.readable().await;
        }
        None => std::future::pending().await,
    }
}

async fn writable(output: Option<&PipeOut>, blocked: bool) {
    match output {
        Some(output) if blocked => {
            let _ = output.writable().await;
        }
        _ => std::future::pending().await,
    }
}

/// Puts what is to be written into the places for one call; tells how many it took.
fn fill<'a>(pieces: &mut [IoSlice<'a>], front: impl Iterator<Item = &'a [u8]>) -> usize {
    pieces.iter_mut().zip(front).map(|(place, piece)| *place = IoSlice::new(piece)).count()
}

async fn when(future: &mut Option<Pin<Box<impl Future<Output = ()>>>>) {
    match future {
        Some(future) => future.as_mut().await,
        None => std::future::pending().await,
    }
}
