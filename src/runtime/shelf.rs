//! What others than the pump may read at any time, without asking it: one writer, any number of readers.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::levels::Levels;
use super::lines::Lines;
use crate::config::Masker;

/// The one shared cell.
#[derive(Clone, Debug)]
pub struct Shelf {
    masker: Arc<ArcSwap<Masker>>,
    secrets: Arc<ArcSwap<Vec<String>>>,
    lines: Lines,
    levels: Levels,
}

impl Shelf {
    /// A shelf with nothing on it.
    pub fn new() -> Self {
        Self {
            masker: Arc::new(ArcSwap::from_pointee(Masker::default())),
            secrets: Arc::new(ArcSwap::from_pointee(Vec::new())),
            lines: Lines::default(),
            levels: Levels::default(),
        }
    }

    /// Hides the secrets that are known.
    pub fn masker(&self) -> arc_swap::Guard<Arc<Masker>> {
        self.masker.load()
    }

    /// The last lines of the log.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// How much of each server is logged.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Adds values that nothing of ours may show. What was once a secret stays one.
    pub fn add_secrets(&self, values: &[String]) {
        let known = self.secrets.load();
        let new: Vec<_> = values.iter().filter(|value| !known.contains(value)).cloned().collect();
        if new.is_empty() {
            return;
        }
        let all: Vec<String> = known.iter().cloned().chain(new).collect();
        self.masker.store(Arc::new(Masker::new(&all)));
        self.secrets.store(Arc::new(all));
    }
}

impl Default for Shelf {
    fn default() -> Self {
        Self::new()
    }
}
