//! Tests of the configuration as a whole.

mod environment;
mod expand;
mod faults;
mod laws;
mod load;
mod report;
mod sample;
mod schema;
