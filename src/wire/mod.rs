//! What bytes mean: framing, envelopes, ids and shallow edits. Knows nothing of proxying.
//!
//! Nothing here builds a tree. A message stays the bytes that it was; [`json`] finds the places in it, [`splice`]
//! writes it anew with a few of them replaced.

pub mod code;
pub mod frame;
pub mod id;
pub mod json;
pub mod message;
pub mod meta;
pub mod method;
pub mod outbox;
pub mod params;
pub mod skim;
pub mod splice;
pub mod turns;
