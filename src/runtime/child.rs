//! The pipes and the process of one life of a child.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, oneshot};

use super::process::{ChildIn, ChildOut, Exit, Life, Pipes};
use super::shelf::Shelf;
use crate::engine::child::Conn;
use crate::wire::frame::{Frame, Framer};

/// What the tasks around a child tell the pump.
#[derive(Debug)]
pub enum ChildEvent {
    /// Its stdout may have bytes.
    Readable(Conn),
    /// Its stdin may take bytes.
    Writable(Conn),
    /// A line of its stderr, masked.
    Stderr(Conn, String),
    /// The leader exited.
    Exited(Conn, Exit),
    /// It closed its output, and did not exit soon after.
    Silent(Conn),
    /// Nothing of its group is left.
    Reaped(Conn),
    /// A task of ours around it panicked.
    Broken(Conn),
}

/// Says so when it is dropped by a panic.
pub(super) struct Alarm<T, F: FnOnce() -> T> {
    events: mpsc::UnboundedSender<T>,
    event: Option<F>,
}

/// Our ends of one life.
#[derive(Debug)]
pub struct ChildIo {
    /// Which life.
    pub conn: Conn,
    /// Dropped, it is the end of its input.
    pub stdin: Option<Arc<ChildIn>>,
    /// Until its end.
    pub stdout: Option<ChildOut>,
    /// Cuts its output into lines.
    pub framer: Framer,
    /// Somebody waits for its stdin to take bytes.
    pub write_blocked: bool,
    /// Rings when its stdout has bytes again.
    bell: Waker,
    reader: tokio::task::AbortHandle,
    stop: Option<oneshot::Sender<Duration>>,
}

/// Tells the pump that a stdout may have bytes. The reactor rings it itself: there is no task between.
#[derive(Debug)]
struct Bell {
    conn: Conn,
    events: mpsc::UnboundedSender<ChildEvent>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.events.send(ChildEvent::Readable(self.conn));
    }
}

/// A line of stderr beyond this is cut.
const STDERR_LINE: usize = 8 * 1024;
/// Lines of stderr that are logged in a second; the rest is counted.
const STDERR_RATE: u32 = 100;
/// How long the last words on stderr are waited for after the exit.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// How long an exit is waited for after the end of the output.
const EXIT_WAIT: Duration = Duration::from_millis(250);

impl<T, F: FnOnce() -> T> Alarm<T, F> {
    pub(super) fn new(events: mpsc::UnboundedSender<T>, event: F) -> Self {
        Self { events, event: Some(event) }
    }
}

impl<T, F: FnOnce() -> T> Drop for Alarm<T, F> {
    fn drop(&mut self) {
        if let (true, Some(event)) = (std::thread::panicking(), self.event.take()) {
            let _ = self.events.send(event());
        }
    }
}

impl ChildIo {
    /// Puts the tasks around a life. They end with its pipes and its process.
    #[expect(clippy::too_many_arguments, reason = "all that a life is made of, at one place")]
    pub fn start(
        conn: Conn,
        name: &str,
        process: Box<dyn Life>,
        pipes: Pipes,
        limit: usize,
        shelf: Shelf,
        events: &mpsc::UnboundedSender<ChildEvent>,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> Self {
        let bell = Arc::new(Bell { conn, events: events.clone() });
        // It rings once unasked: the first read hangs it up.
        bell.wake_by_ref();
        let (stop, stopped) = oneshot::channel();
        let (said_all, last_words) = oneshot::channel();
        let alarmed = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let alarm = Alarm::new(events.clone(), move || ChildEvent::Broken(conn));
            async move {
                task.await;
                drop(alarm);
            }
        };
        let read = read_stderr(conn, name.to_owned(), pipes.stderr, shelf, events.clone(), said_all);
        let reader = tasks.spawn(alarmed(Box::pin(read)));
        let fuse = super::pump::Fuse::from_environment();
        let (life, place) = (format!("{name}:{}", conn.generation), ["mind", "mind-exit"]);
        let breaks = place.map(|place| fuse.is_lit(place, life.as_bytes()));
        tasks.spawn(alarmed(Box::pin(mind(conn, process, stopped, last_words, events.clone(), breaks))));
        Self {
            conn,
            stdin: Some(Arc::new(pipes.stdin)),
            stdout: Some(pipes.stdout),
            framer: Framer::new(limit),
            write_blocked: false,
            bell: bell.into(),
            reader,
            stop: Some(stop),
        }
    }

    /// Reads from its stdout what is there; pending, it is told by [`ChildEvent::Readable`] when there is more.
    pub fn poll_read(&mut self) -> Poll<io::Result<usize>> {
        let Some(stdout) = &mut self.stdout else { return Poll::Pending };
        pin!(stdout.read_buf(self.framer.room())).poll(&mut Context::from_waker(&self.bell))
    }

    /// Closes its stdin and goes down the ladder.
    pub fn stop(&mut self, grace: Duration, events: &mpsc::UnboundedSender<ChildEvent>) {
        self.stdin = None;
        // Its minder ends only after this, but for a panic, in which the group was killed.
        if self.stop.take().is_some_and(|stop| stop.send(grace).is_err()) {
            let _ = events.send(ChildEvent::Reaped(self.conn));
        }
    }

    /// Waits, beside the pump, until its stdin takes bytes again.
    pub fn await_writable(&mut self, events: &mpsc::UnboundedSender<ChildEvent>, tasks: &mut tokio::task::JoinSet<()>) {
        let Some(stdin) = self.stdin.as_ref().map(Arc::downgrade).filter(|_| !self.write_blocked) else { return };
        self.write_blocked = true;
        let (conn, events) = (self.conn, events.clone());
        let alarm = Alarm::new(events.clone(), move || ChildEvent::Broken(conn));
        tasks.spawn(async move {
            let _alarm = alarm;
            // A weak hold: this wait must not keep the pipe open. It looks again when the pipe is let go.
            loop {
                let Some(pipe) = stdin.upgrade() else { return };
                if tokio::time::timeout(Duration::from_millis(500), pipe.writable()).await.is_ok() {
                    break;
                }
            }
            let _ = events.send(ChildEvent::Writable(conn));
        });
    }

    /// Its output ended: an exit may follow at once and says more.
    pub fn await_exit(&self, events: &mpsc::UnboundedSender<ChildEvent>, tasks: &mut tokio::task::JoinSet<()>) {
        let (conn, events) = (self.conn, events.clone());
        tasks.spawn(async move {
            tokio::time::sleep(EXIT_WAIT).await;
            let _ = events.send(ChildEvent::Silent(conn));
        });
    }
}

impl Drop for ChildIo {
    /// Who reads its stderr may wait at a pipe that a descendant keeps open.
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads stderr always, line by line, into the log and to the pump.
async fn read_stderr(
    conn: Conn,
    name: String,
    stderr: ChildOut,
    shelf: Shelf,
    events: mpsc::UnboundedSender<ChildEvent>,
    said_all: oneshot::Sender<()>,
) {
    let mut framer = Framer::new(STDERR_LINE);
    let mut window = tokio::time::Instant::now();
    let (mut lines, mut dropped) = (0_u32, 0_u64);
    let fuse = super::pump::Fuse::from_environment();
    loop {
        if stderr.readable().await.is_err() {
            break;
        }
        let ended = match stderr.try_read_buf(framer.room()) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => true,
        };
        if window.elapsed() >= Duration::from_secs(1) {
            if dropped > 0 {
                tracing::warn!(server = %name, "{dropped} lines of stderr were left out of the log");
            }
            (window, lines, dropped) = (tokio::time::Instant::now(), 0, 0);
        }
        let last = ended.then(|| framer.finish()).flatten();
        while let Some(frame) = framer.next_frame() {
            if let Frame::Line(line) = &frame {
                fuse.check("", line);
            }
            tell(conn, &name, &frame, &shelf, &events, &mut lines, &mut dropped);
        }
        if let Some(frame) = last {
            tell(conn, &name, &frame, &shelf, &events, &mut lines, &mut dropped);
        }
        if ended {
            break;
        }
        // A flood must not keep the message path waiting.
        tokio::task::yield_now().await;
    }
    let _ = said_all.send(());
}

fn tell(
    conn: Conn,
    name: &str,
    frame: &Frame,
    shelf: &Shelf,
    events: &mpsc::UnboundedSender<ChildEvent>,
    lines: &mut u32,
    dropped: &mut u64,
) {
    if *lines >= STDERR_RATE {
        *dropped += 1;
        return;
    }
    *lines += 1;
    let text = match frame {
        Frame::Line(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Frame::TooLong(told) => format!("(a line of {} bytes was left out)", told.length),
    };
    let text = shelf.masker().mask(&text).into_owned();
    tracing::info!(target: "mcp_proxy::stderr", server = %name, "{text}");
    let _ = events.send(ChildEvent::Stderr(conn, text));
}

/// Minds the process: tells its exit, and goes down the ladder when told to.
async fn mind(
    conn: Conn,
    process: Box<dyn Life>,
    mut stop: oneshot::Receiver<Duration>,
    last_words: oneshot::Receiver<()>,
    events: mpsc::UnboundedSender<ChildEvent>,
    breaks: [bool; 2],
) {
    assert!(!breaks[0], "as MCP_PROXY_TEST_PANIC asks for");
    let grace = tokio::select! {
        exit = process.wait() => {
            assert!(!breaks[1], "as MCP_PROXY_TEST_PANIC asks for");
            let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
            let _ = events.send(ChildEvent::Exited(conn, exit));
            stop.await
        }
        grace = &mut stop => grace,
    };
    // Without a pump there is nobody to tell, and the guard has the group.
    let Ok(grace) = grace else { return };
    process.ladder(grace).await;
    let _ = events.send(ChildEvent::Reaped(conn));
}
