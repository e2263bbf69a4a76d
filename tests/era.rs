//! Both eras of the protocol on both sides: what a host sees beside the native pair, the machine's states, the schemas.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[path = "era/greeting.rs"]
mod greeting;
#[path = "era/machine.rs"]
mod machine;
#[path = "era/matrix.rs"]
mod matrix;
#[path = "era/parked.rs"]
mod parked;
#[path = "era/requirements.rs"]
mod requirements;
#[path = "era/rig.rs"]
mod rig;
#[path = "era/rounds.rs"]
mod rounds;
#[path = "era/spec.rs"]
mod spec;
#[path = "era/tasks.rs"]
mod tasks;
