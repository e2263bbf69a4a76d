//! The real proxy between a host that a test plays and scripted servers.
//!
//! [`Setup`] writes a configuration into a directory of its own and starts the proxy there; [`Host`] speaks to it. Nothing
//! waits by sleeping: every wait has a condition and a limit, and one that is not met fails with all that was received and
//! with the proxy's stderr. At its end a [`Host`] closes the pipe, and no process may be left behind.

#[path = "harness/host.rs"]
#[allow(dead_code, reason = "for some tests only")]
mod host;
#[path = "harness/message.rs"]
mod message;
#[path = "harness/pipes.rs"]
mod pipes;
#[path = "harness/processes.rs"]
mod processes;
#[path = "harness/rough.rs"]
#[allow(dead_code, reason = "for some tests only")]
mod rough;
#[path = "harness/setup.rs"]
#[allow(dead_code, reason = "for some tests only")]
mod setup;

use std::time::Duration;

pub(crate) use host::Host;
pub(crate) use message::{Message, raw_elements, raw_member};
#[allow(unused_imports, reason = "for some tests only")]
pub(crate) use processes::{children_of, kill};
pub(crate) use setup::Setup;

/// Longer than anything here takes; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);
/// What the design calls "within a second" or "at once", with room for a machine that does much else: the figures of
/// the design are looked at by the benches. What is wrong takes longer by far, mostly for ever.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// What a host declares that can do everything.
pub(crate) const ABLE: &str =
    r#"{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;
