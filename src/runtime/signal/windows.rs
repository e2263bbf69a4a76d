//! The console's events.

use std::io;

use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose};

use super::Signal;

/// Where they come from.
#[derive(Debug)]
pub(super) struct Source {
    interrupt: CtrlC,
    interrupted_hard: CtrlBreak,
    close: CtrlClose,
}

impl Source {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: windows::ctrl_c()?,
            interrupted_hard: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
        })
    }

    /// Does nothing here.
    #[expect(clippy::unused_self, clippy::needless_pass_by_ref_mut, reason = "other platforms watch")]
    pub(super) fn watch_parent(&mut self) {}

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.interrupted_hard.recv() => {}
            _ = self.close.recv() => {}
        }
        Signal::Stop
    }
}
