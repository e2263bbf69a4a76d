//! Tests of the configuration as a whole.

mod environment;
mod expand;
mod sample;
