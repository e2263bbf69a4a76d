//! mcp-proxy: one MCP server over stdio in front of many.
//!
//! A host starts the binary and speaks to it as to any server. It starts the servers of its configuration (*children*),
//! merges what they offer, and carries every message to its place and back.
//!
//! # The map
//!
//! ```text
//!            host                                                               children
//!              │ stdin, stdout                                 stdin, stdout, stderr │ │ │
//! ┌────────────┼─────────────────────────── runtime ──────────────────────────────── │ │ │ ─┐
//! │   stdio::HostStreams                                    child::ChildIo, for each life  │
//! │            │ lines                                          lines, exits │             │
//! │            └───────────────▶  ╔═══════════════╗  ◀───────────────────────┘             │
//! │                               ║   pump::Pump  ║  one loop, one thread                  │
//! │     reload, signal ─────────▶ ╚═╤═══════════╤═╝ ─────────▶ desk::Desk                  │
//! │                        handle_* │           ▲ poll_effect,   inflight, ledger, cache   │
//! │                        and now  ▼           │ outboxes                                 │
//! │ ┌───────────────────────────── engine ────────────────────────────────────────────┐    │
//! │ │  hub::Hub   session (the host)   child + link (each server and its present life)│    │
//! │ │             catalog, names, uri  listing, repair, restart, outcome, facts, era  │    │
//! │ └─────────────────────────────────────────────────────────────────────────────────┘    │
//! │ ┌─ wire ──────────────────────────────────────────────────────────────────────────┐    │
//! │ │  frame  message  params  json  splice  outbox: bytes ↔ messages, no tree        │    │
//! │ └─────────────────────────────────────────────────────────────────────────────────┘    │
//! │   guard, launcher: two small processes of the same binary; group, process: their wards │
//! └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - **Three layers, and imports go downwards only**: [`wire`] (what bytes mean) ← [`engine`] (what to do: no async, no
//!   clock, no IO) ← [`runtime`] (tokio: does, decides nothing) ← [`cli`]. [`config`] and the table of [`hosts`] are data
//!   that all but `wire` may use. `tests/tidy.rs` looks after that.
//! - **One machine, one pump.** [`engine::hub::Hub`] owns everything that is decided. It is told what happened
//!   (`handle_*`, with the time as an argument), and asked what is to be done (`poll_effect`, the outboxes), whether
//!   more may be read (`wants_*`) and when it wants to be woken (`deadline`). [`runtime::pump::Pump`] is the one loop
//!   around it. One thread carries the path anyway; with one owner no hand-over can lose a call, and the simulation
//!   in `tests/sim` runs exactly what ships.
//! - **A message stays the bytes that it was.** Places in it are found and a few of them replaced; a reply is written
//!   from slices of the buffer in which it came.
//! - **One number for one request**: its id at the child, its progress token, and what a cancellation names. It counts
//!   on over all lives of a child, so what comes late can reach nobody.
//! - **Sent or not sent is exact.** An intent is in its file before the call is in the pipe. What no byte was written of
//!   waits for the next life; what was begun is never sent again, and its outcome is unknown until somebody tells.
//! - **Who ends whom.** The end of the host's input, a signal, or the parent's end stops the pump; the pump ends the
//!   children; the guard ends whatever is left when the proxy vanishes.
//!
//! # To read it
//!
//! 1. [`wire`]: [`wire::frame`], [`wire::message`], [`wire::json`] and [`wire::splice`], then [`wire::outbox`].
//! 2. [`config`]: from the file's text to a valid value, or to all faults at once.
//! 3. [`engine`]: [`engine::names`], [`engine::uri`], [`engine::repair`], [`engine::listing`] and [`engine::catalog`]
//!    are pure and stand alone; then [`engine::session`], [`engine::link`], [`engine::child`]; then
//!    [`engine::hub`], in which they meet; [`engine::outcome`] and [`engine::restart`] for the bad days.
//! 4. [`runtime`]: [`runtime::pump`], [`runtime::child`], [`runtime::desk`], [`runtime::proxy`], which puts them
//!    together; [`runtime::process`], [`runtime::guard`] and [`runtime::launcher`] for processes and their end.
//! 5. [`hosts`]: what is known of each host, and the edits of their files. [`cli`]: one file for each command.

pub mod cli;
pub mod config;
pub mod engine;
pub mod hosts;
pub mod runtime;
pub mod wire;
