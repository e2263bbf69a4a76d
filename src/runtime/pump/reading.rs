//! How the pump reads its children.

use std::task::Poll;
use std::time::Instant;

use super::{BYTES, LINES, Pump, shield};
use crate::engine::child::Conn;
use crate::wire::frame::Frame;

/// What a pipe can hold at most where nobody has raised the system's own bound.
const PIPE: usize = 1 << 20;

impl Pump {
    pub(super) fn read_child(&mut self, now: Instant, conn: Conn) {
        let (mut lines, mut read) = (0, 0);
        loop {
            let may = self.may_read(conn);
            let Some(child) = self.children.get_mut(&conn) else { return };
            if !may {
                return self.paused.push(conn);
            }
            if lines >= LINES || read >= BYTES {
                return self.ready.push_back(conn);
            }
            if let Some(frame) = child.framer.next_frame() {
                lines += 1;
                self.take(now, conn, frame);
                continue;
            }
            match child.poll_read() {
                Poll::Pending => return,
                Poll::Ready(Ok(count)) if count > 0 => {
                    read += count;
                    self.held += count;
                }
                Poll::Ready(_) => return self.output_ended(now, conn),
            }
        }
    }

    /// Whether there is room for more of a child. The one that holds the most of a line may always finish it.
    pub(super) fn may_read(&mut self, conn: Conn) -> bool {
        if !self.hub.wants_child(conn) {
            return false;
        }
        self.hub.has_room(self.held) || {
            self.held = self.children.values().map(|child| child.framer.held()).sum();
            let most = self.children.iter().max_by_key(|(_, child)| child.framer.held());
            self.hub.has_room(self.held) || most.is_some_and(|(most, _)| *most == conn)
        }
    }

    /// What a child that exited had written is still delivered; a descendant may hold the pipe open for ever, and write
    /// to it, so it is read only until it would block, and no more than a pipe can hold.
    pub(super) fn read_rest(&mut self, now: Instant, conn: Conn) {
        let Some(child) = self.children.get_mut(&conn) else { return };
        let Some(stdout) = child.stdout.take() else { return };
        let mut left = PIPE;
        loop {
            while let Some(frame) = self.children.get_mut(&conn).and_then(|child| child.framer.next_frame()) {
                self.take(now, conn, frame);
            }
            let Some(child) = self.children.get_mut(&conn) else { return };
            match stdout.try_read_buf(child.framer.room()) {
                Ok(count) if count > 0 && left > 0 => left = left.saturating_sub(count),
                _ => break,
            }
        }
        self.last_line(now, conn);
    }

    fn last_line(&mut self, now: Instant, conn: Conn) {
        if let Some(frame) = self.children.get_mut(&conn).and_then(|child| child.framer.finish()) {
            self.take(now, conn, frame);
        }
    }

    pub(super) fn output_ended(&mut self, now: Instant, conn: Conn) {
        self.last_line(now, conn);
        self.hub.handle_output_ended(conn);
        if let Some(child) = self.children.get_mut(&conn) {
            child.stdout = None;
            child.await_exit(&self.to_child_events, &mut self.tasks);
        }
    }

    /// Hands a line of a child to the machine.
    fn take(&mut self, now: Instant, conn: Conn, frame: Frame) {
        let fuse = &self.fuse;
        shield::of_child(&mut self.hub, now, conn, |hub| match frame {
            Frame::Line(line) => {
                fuse.check("", &line);
                hub.handle_child(now, conn, line);
            }
            Frame::TooLong(told) => hub.handle_child_too_long(now, conn, &told),
        });
    }
}
