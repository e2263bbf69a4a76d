//! Children that crash, hang, flood and fork, behind the real proxy: none costs the others, and none is left behind.
//!
//! Tests are named after the fault of the field that they show to be absent (`f03_…`), or after what the design says of
//! supervision.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[path = "support/harness.rs"]
#[allow(dead_code, unused_imports, reason = "other tests use the rest of it")]
mod harness;

#[path = "supervision/crash.rs"]
mod crash;
#[path = "supervision/end.rs"]
mod end;
#[path = "supervision/faults.rs"]
mod faults;
#[path = "supervision/kill.rs"]
mod kill;
#[path = "supervision/limits.rs"]
mod limits;
#[path = "supervision/pipes.rs"]
mod pipes;
#[path = "supervision/restart.rs"]
mod restart;
#[path = "supervision/soak.rs"]
mod soak;
#[path = "supervision/survive.rs"]
mod survive;
