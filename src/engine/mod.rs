//! What to do: decisions without async, clock or IO.

pub mod catalog;
pub mod listing;
pub mod names;
pub mod outcome;
pub mod repair;
pub mod uri;
