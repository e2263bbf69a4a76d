//! The script: `key=value` flags of one start.

use std::collections::BTreeMap;
use std::io::Write as _;

/// The flags that count at this start.
pub(crate) struct Flags {
    map: BTreeMap<String, String>,
    /// Which start this is, from 1, by the lines of the file `pids`.
    pub(crate) generation: usize,
    /// As they were given, for processes that this one starts.
    pub(crate) given: Vec<String>,
}

// === impl Flags ===

impl Flags {
    /// Reads arguments and environment, and writes the own pid where `pids` says.
    pub(crate) fn from_process() -> Self {
        let more = std::env::var("FAKE_FLAGS").unwrap_or_default();
        let given: Vec<String> = std::env::args().skip(1).chain(more.split_whitespace().map(str::to_owned)).collect();
        let pids = given.iter().find_map(|flag| flag.strip_prefix("pids="));
        let generation = match pids {
            Some(file) if !given.iter().any(|flag| flag == "wrapper" || flag.starts_with("wrapper=")) => {
                append(file, &std::process::id().to_string());
                std::fs::read_to_string(file).map_or(1, |text| text.lines().count())
            }
            _ => 1,
        };
        let map = given.iter().filter_map(|flag| effective(flag, generation)).collect();
        Self { map, generation, given }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key).map(String::as_str)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.text(key).and_then(|value| value.parse().ok())
    }

    pub(crate) fn size(&self, key: &str) -> usize {
        self.number(key).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    pub(crate) fn exit_code(&self, key: &str) -> Option<i32> {
        self.text(key).map(|value| value.parse().unwrap_or(1))
    }

    /// Whether `item` is in the comma-separated value of `key`; a bare key holds every item.
    pub(crate) fn lists(&self, key: &str, item: &str) -> bool {
        self.text(key).is_some_and(|value| value.is_empty() || value.split(',').any(|part| part == item))
    }
}

fn effective(flag: &str, generation: usize) -> Option<(String, String)> {
    let flag = match flag.strip_prefix('@').and_then(|rest| rest.split_once(':')) {
        None => flag,
        Some((when, rest)) => {
            let counts = match when.strip_suffix('+') {
                Some(from) => from.parse().is_ok_and(|n: usize| generation >= n),
                None => when.parse().is_ok_and(|n: usize| generation == n),
            };
            if !counts {
                return None;
            }
            rest
        }
    };
    let (key, value) = flag.split_once('=').unwrap_or((flag, ""));
    Some((key.to_owned(), value.to_owned()))
}

/// Appends one line in one write, so that several processes may share the file.
pub(crate) fn append(file: &str, line: &str) {
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(file) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
