//! Threads at the proxy's pipes: no write of a test blocks, and no read.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

/// Lets the reader of the proxy's stdout stand still, or go in small steps.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) closed: Mutex<bool>,
    pub(super) opened: Condvar,
    pub(super) step: Mutex<Option<usize>>,
}

pub(super) fn writer(mut input: Box<dyn Write + Send>) -> Sender<Vec<u8>> {
    let (sender, bytes) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        while let Ok(bytes) = bytes.recv() {
            if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

pub(super) fn reader(mut output: Box<dyn Read + Send>, gate: &Arc<Gate>) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    let gate = Arc::clone(gate);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut line = Vec::new();
        loop {
            {
                let closed = gate.closed.lock().unwrap();
                drop(gate.opened.wait_while(closed, |closed| *closed).unwrap());
            }
            let step = gate.step.lock().unwrap().unwrap_or(buffer.len());
            let count = match output.read(&mut buffer[..step]) {
                Ok(count) if count > 0 => count,
                _ => break,
            };
            let mut rest = &buffer[..count];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                line.extend_from_slice(&rest[..end]);
                let _ = sender.send(std::mem::take(&mut line));
                rest = &rest[end + 1..];
            }
            line.extend_from_slice(rest);
        }
        if !line.is_empty() {
            let _ = sender.send(line);
        }
    });
    lines
}

pub(super) fn collect(stderr: impl Read + Send + 'static, text: &Arc<Mutex<String>>) {
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        while matches!(stderr.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            text.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

/// The writing half of a socket: its end is told at its drop.
pub(super) struct HalfSocket(pub(super) std::os::unix::net::UnixStream);

impl Write for HalfSocket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for HalfSocket {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}
