//! Other people's protocol code on both sides of the proxy.
//!
//! Always: `rmcp`, the Rust SDK, as the host's client and (in `examples/`) as the servers behind the proxy, each in both
//! eras of the protocol. With the feature `real-servers`: npm's and PyPI's reference servers, each given one script
//! directly and through the proxy, and the SDKs of TypeScript and Python and the Inspector as hosts;
//! `tests/real/install.sh` puts them in place.
//!
//! | host | server | eras of host and server | where |
//! |---|---|---|---|
//! | `rmcp` | `rmcp` | each with each | `eras`, `sdk` |
//! | TypeScript SDK 1, Inspector | `rmcp` | legacy | `clients` |
//! | TypeScript SDK 2 | `rmcp` | each with each, but for a legacy host before a modern server | `clients` |
//! | PyPI `mcp` | `rmcp` | legacy | `clients` |
//! | PyPI `fastmcp` | `rmcp` | modern | `clients` |
//! | ours | npm's `server-everything`, `-filesystem`, `-memory` (TypeScript SDK), PyPI `mcp-server-time` | legacy | `compare` |
//! | ours | PyPI `mcp`, `fastmcp`, `mcp-server-time`, TypeScript SDK 2 | each with each | `native` |
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[path = "interop/eras.rs"]
mod eras;
#[path = "interop/place.rs"]
mod place;
#[path = "interop/sdk.rs"]
mod sdk;

#[cfg(feature = "real-servers")]
#[path = "interop/clients.rs"]
mod clients;
#[cfg(feature = "real-servers")]
#[path = "interop/compare.rs"]
mod compare;
#[cfg(feature = "real-servers")]
#[path = "interop/native.rs"]
mod native;
#[cfg(feature = "real-servers")]
#[path = "interop/peer.rs"]
mod peer;
#[cfg(feature = "real-servers")]
#[path = "interop/script.rs"]
mod script;
