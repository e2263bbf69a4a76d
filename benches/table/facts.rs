//! Where and with what a table was made.

use std::process::Command;

use serde::Serialize;

/// All that a reader needs to judge the figures.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) date: String,
    pub(crate) version: String,
    pub(crate) commit: String,
    pub(crate) rustc: String,
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) pinned_to: Option<usize>,
    pub(crate) load_average: String,
    pub(crate) rounds: usize,
}

pub(crate) fn gather(pinned_to: Option<usize>, rounds: usize, version: String) -> Facts {
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()))
        .unwrap_or_else(|| told("uname", &["-m"]));
    let cores = read("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
    Facts {
        date: told("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        version,
        commit: told("git", &["describe", "--always", "--dirty", "--tags"]),
        rustc: told("rustc", &["--version"]),
        kernel: told("uname", &["-sr"]),
        processor,
        cores,
        pinned_to,
        load_average: load_average(),
        rounds,
    }
}

/// Of 1, 5 and 15 minutes.
pub(crate) fn load_average() -> String {
    read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn told(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
