//! A buffer that bytes are read into and lines are taken out of.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

/// The buffer; grows to the longest line.
#[derive(Debug)]
pub(crate) struct Lines {
    data: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
}

/// As much as a pipe holds.
const CHUNK: usize = 64 * 1024;

impl Lines {
    pub(crate) fn new() -> Self {
        Self { data: vec![0; 4 * CHUNK], start: 0, scanned: 0, end: 0 }
    }

    /// Reads once. 0: the stream is over.
    pub(crate) fn read(&mut self, from: impl AsFd) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.scanned, self.end) = (0, 0, 0);
        } else if self.data.len() - self.end < CHUNK {
            self.data.copy_within(self.start..self.end, 0);
            self.scanned -= self.start;
            self.end -= self.start;
            self.start = 0;
            if self.data.len() - self.end < CHUNK {
                self.data.resize(self.data.len() * 2, 0);
            }
        }
        loop {
            match rustix::io::read(&from, &mut self.data[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next whole line, without its end.
    pub(crate) fn take(&mut self) -> Option<Range<usize>> {
        let Some(at) = memchr::memchr(b'\n', &self.data[self.scanned..self.end]) else {
            self.scanned = self.end;
            return None;
        };
        let line = self.start..self.scanned + at;
        self.start = line.end + 1;
        self.scanned = self.start;
        Some(line)
    }

    /// The bytes of a line that was taken since the last read.
    pub(crate) fn line(&self, at: Range<usize>) -> &[u8] {
        &self.data[at]
    }
}

/// Writes all of it to a blocking descriptor.
pub(crate) fn write_all(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&to, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The token behind `marker`, up to the comma or bracket that ends it; looks at the first bytes only, since what we
/// look for stands at the head of a message.
pub(crate) fn token<'a>(line: &'a [u8], marker: &[u8], within: usize) -> Option<&'a [u8]> {
    let head = &line[..line.len().min(within)];
    let from = memchr::memmem::find(head, marker)? + marker.len();
    let rest = &head[from..];
    let end = if rest.first() == Some(&b'"') {
        memchr::memchr(b'"', &rest[1..])? + 2
    } else {
        rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' '))?
    };
    Some(&rest[..end])
}
