//! The machine that ships, in worlds that are made up: a scripted host, scripted children, pipes that take what they
//! like, and a clock that jumps. After every step the promises of `DESIGN.md` chapter 2 are looked at.
//!
//! `MCP_PROXY_SIM_SCHEDULES` sets how many schedules run; `MCP_PROXY_SIM_SEED` runs one and prints what happened.

#![expect(unreachable_pub, reason = "the parts of a test see each other")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "counts, and the seed of what failed")]

#[path = "sim/act.rs"]
mod act;
#[path = "sim/child.rs"]
mod child;
#[path = "sim/config.rs"]
mod config;
#[path = "sim/explore.rs"]
mod explore;
#[path = "sim/fuse.rs"]
mod fuse;
#[path = "sim/host.rs"]
mod host;
#[path = "sim/modern.rs"]
mod modern;
#[path = "sim/pins.rs"]
mod pins;
#[path = "sim/schedule.rs"]
mod schedule;
#[path = "sim/watch.rs"]
mod watch;
#[path = "sim/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use schedule::{Dice, Flavour};
use watch::Stats;

/// Schedules of each flavour.
const SCHEDULES: u64 = 5_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run_one(flavour: Flavour, seed: u64, traced: bool, broken: bool) -> Stats {
    let mut dice = Dice(seed);
    let mut world = schedule::world(flavour, &mut dice);
    world.broken = broken;
    world.trace = traced.then(Vec::new);
    let run = catch_unwind(AssertUnwindSafe(|| schedule::run(&mut world, flavour, &mut dice)));
    if let Err(panic) = run {
        if traced {
            let trace = world.trace.take().unwrap_or_default();
            eprintln!("{}", trace[trace.len().saturating_sub(120)..].join("\n"));
        } else {
            let _ = catch_unwind(|| run_one(flavour, seed, true, broken));
            eprintln!("replay with MCP_PROXY_SIM_SEED={seed} and the name of this test");
        }
        resume_unwind(panic);
    }
    if number("MCP_PROXY_SIM_SEED").is_some() {
        eprintln!("{}", world.trace.take().unwrap_or_default().join("\n"));
    }
    world.watch.stats
}

/// Runs the schedules of a flavour; each of `must` has to have occurred.
fn schedules(flavour: Flavour, must: &[&str]) {
    drawn(flavour, must, false);
}

fn drawn(flavour: Flavour, must: &[&str], broken: bool) {
    if let Some(seed) = number("MCP_PROXY_SIM_SEED") {
        run_one(flavour, seed, true, broken);
        return;
    }
    let count = number("MCP_PROXY_SIM_SCHEDULES").map_or(SCHEDULES, |all| all.div_ceil(5));
    let count = if broken { count / 10 } else { count };
    let mut stats = Stats::default();
    for seed in 0..count {
        stats.sum(&run_one(flavour, seed + ((flavour as u64) << 32), false, broken));
    }
    println!("{flavour:?}: {count} schedules");
    for (name, count) in Stats::NAMES.iter().zip(&stats.0) {
        println!("{count:>10} {name}");
        assert!(*count > 0 || !must.contains(name), "no {name} in all schedules");
    }
}

/// What every flavour must see.
const ALWAYS: &[&str] = &[
    "calls",
    "answered",
    "lost",
    "unavailable",
    "cancels",
    "unsent cancels",
    "executed",
    "crashes",
    "spawns",
    "restarts",
    "orders",
    "reloads",
    "list changes",
    "announced",
    "stops",
    "ends of input",
];

#[test]
fn calm_schedules() {
    schedules(Flavour::Calm, ALWAYS);
}

#[test]
fn schedules_of_faults() {
    let more = ["late", "exit 0", "closed stdout", "failed spawns", "stale", "junk", "questions", "withdrawn"];
    schedules(Flavour::Faults, &[ALWAYS, &more].concat());
}

#[test]
fn schedules_of_orders() {
    schedules(Flavour::Orders, ALWAYS);
}

#[test]
fn schedules_of_hosts() {
    let more = ["refused", "questions answered", "progress", "batches", "duplicates", "guard asked"];
    schedules(Flavour::Host, &[ALWAYS, &more].concat());
}

#[test]
fn schedules_of_modern_hosts() {
    let more = [
        "questions",
        "questions answered",
        "parked",
        "retries",
        "retries refused",
        "given up",
        "guard asked",
        "roots asked",
        "late",
        "progress",
    ];
    let always = ALWAYS.iter().copied().filter(|name| *name != "announced").collect::<Vec<_>>();
    schedules(Flavour::Modern, &[&*always, &more].concat());
}

/// The same worlds, with faults of our own in the middle of steps: what is promised holds all the same, but that an outcome
/// may stay open in the in-flight file.
#[test]
fn schedules_with_faults_of_our_own() {
    tracing::subscriber::with_default(fuse::Fuse, || {
        for flavour in [Flavour::Calm, Flavour::Faults, Flavour::Orders, Flavour::Host, Flavour::Modern] {
            drawn(flavour, &["faults of ours", "answered", "lost", "unavailable", "restarts"], true);
        }
    });
}
