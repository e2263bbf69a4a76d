//! Processes that must be gone at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;

pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The children of a process, of whichever of its threads.
#[allow(dead_code, reason = "for some tests only")]
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Processes with this home in their environment: the proxy, its guard, servers and what they started.
pub(super) fn living(dir: &Path) -> Vec<u32> {
    let mark = format!("HOME={}/home", dir.display()).into_bytes();
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        // A zombie has no environment any more.
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == mark)
    })
    .collect()
}

pub(super) fn assert_nothing_left(dir: &Path) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = living(dir);
        if left.is_empty() {
            return;
        }
        if Instant::now() > until {
            let shown: Vec<String> = left
                .iter()
                .map(|pid| {
                    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
                })
                .collect();
            for pid in &left {
                kill(*pid, rustix::process::Signal::KILL);
            }
            panic!("processes outlive the proxy: {shown:#?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
