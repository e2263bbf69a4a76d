//! What to do: decisions without async, clock or IO.
//!
//! [`hub::Hub`] is the machine as a whole. It owns the host's [`session`], one [`child::Child`] for each server with
//! the [`link`] of its present life, and the merged [`catalog`]; its verbs are called by the one pump in `runtime`.

pub mod catalog;
pub mod child;
pub mod convert;
pub mod era;
pub mod facts;
pub mod hashed;
pub mod hub;
pub mod link;
pub mod listing;
pub mod names;
pub mod outcome;
pub mod recent;
pub mod repair;
pub mod restart;
pub mod rewrite;
pub mod seal;
pub mod session;
pub mod task;
pub mod uri;
