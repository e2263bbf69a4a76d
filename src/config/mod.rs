//! The configuration file: text → faults and a valid [`Config`].
//!
//! One declarative table of keys (`keys`) drives the walk over the parsed file, the defaults and the JSON Schema, so
//! that they can't drift apart. [`parse()`] is pure and reports every fault at once; [`load`] reads the file; [`expand()`]
//! resolves the references of one server just before it is started.

mod domain;
mod environment;
mod expand;
mod fault;
mod fields;
mod find;
mod hints;
mod keychain;
mod keys;
mod lift;
mod parse;
mod reference;
mod report;
mod rules;
mod schema;
mod secrets;
mod types;
mod units;
mod unmet;
mod walk;

pub use environment::{ProgramError, child_environment, find_program, usual_places};
pub use expand::{Endpoint, ExpandError, HostLookup, Launch, Lookup, Program, Target, Unmet, expand, may_block};
pub use fault::{Fault, Severity};
pub use find::{LoadError, Loaded, cache_dir, config_path, home_dir, load, read, state_dir};
pub use keychain::{keyring_delete, keyring_get, keyring_set};
pub use lift::scheme_prefix;
pub use parse::{Broken, Parsed, parse};
pub use report::{faults_json, render_faults};
pub use rules::glob;
pub use schema::schema;
pub use secrets::Masker;
pub use types::*;
pub use unmet::{Here, unmet};

#[cfg(test)]
mod tests;
