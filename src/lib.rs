//! mcp-proxy: one MCP server over stdio in front of many.
//!
//! Three layers, and imports go downwards only: `wire` (bytes ↔ messages) → `engine` (decisions: no async, no clock,
//! no IO) → `runtime` (tokio: does, decides nothing).

pub mod cli;
pub mod config;
pub mod engine;
pub mod hosts;
pub mod runtime;
pub mod wire;
