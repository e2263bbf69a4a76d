//! All servers, and what is asked about all of them at every turn: kept by looking again at those alone that may have
//! changed, so that a turn costs the same with one server and with fifty.

use std::ops::{Deref, Index, IndexMut};
use std::time::Instant;

use super::Hub;
use crate::engine::child::{Child, Conn};

/// The servers by number. Whoever changes one goes through here and so marks it.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    all: Vec<Child>,
    /// What is known of each.
    notes: Vec<Note>,
    /// Those that may have changed since then.
    touched: Vec<usize>,
    /// Bytes that wait for all of them, as far as noted.
    unsent: usize,
    /// Lives that something waits for, for the pump.
    spoken_to: Vec<Conn>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Note {
    touched: bool,
    unsent: usize,
    due: Option<Instant>,
}

impl Children {
    pub(super) fn push(&mut self, child: Child) {
        self.all.push(child);
        self.notes.push(Note::default());
        self.touch(self.all.len() - 1);
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Child> {
        (index < self.all.len()).then(|| &mut self[index])
    }

    /// Bytes that wait for all of them.
    pub(super) fn unsent_bytes(&mut self) -> usize {
        for &index in &self.touched {
            let unsent = self.all[index].unsent_bytes();
            let noted = std::mem::replace(&mut self.notes[index].unsent, unsent);
            self.unsent = self.unsent + unsent - noted;
        }
        self.unsent
    }

    /// When something of any of them is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let noted = self.notes.iter().filter(|note| !note.touched).filter_map(|note| note.due);
        noted.chain(self.touched.iter().filter_map(|&index| Hub::child_deadline(&self.all[index]))).min()
    }

    /// The next life whose outbox may have got something.
    pub(super) fn poll_spoken_to(&mut self) -> Option<Conn> {
        self.look();
        self.spoken_to.pop()
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.notes[index].touched, true) {
            self.touched.push(index);
        }
    }

    fn look(&mut self) {
        self.unsent_bytes();
        for index in self.touched.drain(..) {
            let (child, note) = (&self.all[index], &mut self.notes[index]);
            note.touched = false;
            note.due = Hub::child_deadline(child);
            self.spoken_to.extend(child.link.as_ref().filter(|link| !link.outbox.is_empty()).map(|link| link.conn));
        }
    }
}

impl Deref for Children {
    type Target = [Child];

    fn deref(&self) -> &[Child] {
        &self.all
    }
}

impl Index<usize> for Children {
    type Output = Child;

    fn index(&self, index: usize) -> &Child {
        &self.all[index]
    }
}

impl IndexMut<usize> for Children {
    fn index_mut(&mut self, index: usize) -> &mut Child {
        self.touch(index);
        &mut self.all[index]
    }
}
