//! What tells the proxy to end or to reload: signals, the parent's exit, the console's events.

use std::io;

#[cfg(unix)]
#[path = "signal/unix.rs"]
mod platform;
#[cfg(windows)]
#[path = "signal/windows.rs"]
mod platform;

/// What the outside asks of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The first SIGINT or SIGTERM, or the end of the console: end in order, within 100 ms.
    Stop,
    /// Another one of them: end at once.
    StopNow,
    /// SIGHUP: read the configuration again. There is none on Windows.
    Reload,
    /// The parent has exited, and with it the host. Not told on Windows, where the end of its pipe says so.
    ParentGone,
}

/// The stream of [`Signal`]s.
#[derive(Debug)]
pub struct Signals {
    source: platform::Source,
    stopping: bool,
}

// === impl Signals ===

impl Signals {
    /// Takes over the platform's signals for good. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self { source: platform::Source::new()?, stopping: false })
    }

    /// Watches the parent from now on: to be called at the first message of the host.
    ///
    /// Not earlier, for a host may start us through a launcher that exits at once; the parent that we have by the
    /// first message is the one that counts. A parent outside of our view (another process namespace) is not watched.
    pub fn watch_parent(&mut self) {
        self.source.watch_parent();
    }

    /// The next signal; waits for ever if there is none. May be dropped and called again without loss.
    pub async fn next(&mut self) -> Signal {
        match self.source.next().await {
            Signal::Stop if std::mem::replace(&mut self.stopping, true) => Signal::StopNow,
            signal => signal,
        }
    }
}
