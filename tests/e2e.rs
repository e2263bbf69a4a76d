//! The real proxy between a host and scripted servers: each fault of the field is shown to be absent.
//!
//! A module for each group of faults; tests are named after the fault (`f13_…`) or the rule of the protocol (`r32_…`).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[path = "support/harness.rs"]
mod harness;

#[path = "e2e/commands.rs"]
mod commands;
#[path = "e2e/crash.rs"]
mod crash;
#[path = "e2e/framing.rs"]
mod framing;
#[path = "e2e/ids.rs"]
mod ids;
#[path = "e2e/names.rs"]
mod names;
#[path = "e2e/pages.rs"]
mod pages;
#[path = "e2e/payload.rs"]
mod payload;
#[path = "e2e/reverse.rs"]
mod reverse;
#[path = "e2e/routing.rs"]
mod routing;
#[path = "e2e/session.rs"]
mod session;
#[path = "e2e/startup.rs"]
mod startup;
#[path = "e2e/tasks.rs"]
mod tasks;
