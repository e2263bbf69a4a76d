//! Tests of the configuration as a whole.

mod sample;
