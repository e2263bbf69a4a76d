//! What the kernel knows of our processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Puts this process, and all that it will start, on one core; tells which.
#[cfg(target_os = "linux")]
pub(crate) fn pin(core: Option<usize>) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let core = core.unwrap_or(cores - 1);
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).ok().map(|()| core)
}

/// Only Linux lets us choose.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_core: Option<usize>) -> Option<usize> {
    None
}

/// The processor time that a process has used, all its threads together.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // Nanoseconds, where `stat` has hundredths of a second.
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        sum += stat.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

/// Resident memory of a process now, in KiB.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    status(pid, "VmRSS:")
}

/// The most resident memory that a process ever had, in KiB.
pub(crate) fn resident_peak(pid: u32) -> Option<u64> {
    status(pid, "VmHWM:")
}

/// Memory of a process now, a page that several share counted in parts, in KiB.
pub(crate) fn proportional(pid: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

fn status(pid: u32, key: &str) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, key)
}

fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
}

/// A process and those of its descendants that run the same program: the proxy and its guard.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let mut found = vec![pid];
    let mut seen = BTreeSet::from([pid]);
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        for child in children(parent) {
            if seen.insert(child) {
                next.push(child);
                if program(child).is_some_and(|it| Some(it) == program(pid)) {
                    found.push(child);
                }
            }
        }
    }
    // A guard that became a session of its own may have lost its parent; it still carries our group as an argument or
    // runs our program, and nobody else of this bench does.
    for other in pids() {
        if !seen.contains(&other) && program(other).is_some_and(|it| Some(it) == program(pid)) {
            found.push(other);
        }
    }
    found
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| Path::new(&format!("/proc/{pid}/exe")).exists())
        .collect()
}
