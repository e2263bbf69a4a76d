//! The command line: one file per command. Nothing else of the program talks to a terminal.

pub mod app;
pub mod arguments;
pub mod check;
pub mod client;
pub mod control;
pub mod doctor;
pub mod explain;
pub mod import;
pub mod install;
pub mod list;
pub mod log;
pub mod logs;
pub mod order;
pub mod run;
pub mod schema;
pub mod send;
pub mod status;
pub mod top;
pub mod unknown;
