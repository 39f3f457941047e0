//! simse: a headless coding-agent server, and the host tools it is made of.
//!
//! One crate, three faces: this Rust library, the `simse` binary ([`cli`]), and the Node addon
//! (feature `node`). The modules stand in the order of their ranks: each names only lower ones,
//! peers never name each other, and `tests/architecture.rs` keeps it so. ARCHITECTURE.md is the map.

// 0 · words and ground
pub mod base;
pub mod protocol;
// 1 · state and settings
pub mod bus;
pub mod config;
pub mod store;
// 2 · decisions
pub mod context;
pub mod edit;
pub mod hook;
pub mod permission;
pub mod prompt;
// 3 · seams
pub mod model;
pub mod tool;
// 4 · hands, and the loop
pub mod agent;
pub mod host;
pub mod mcp;
pub mod memory;
pub mod provider;
// 5 · life
pub mod session;
// 6 · the one facade
pub mod app;
// 7 · doors
pub mod server;
// 8 · outermost
pub mod cli;
#[cfg(feature = "node")]
#[cfg_attr(test, allow(dead_code, reason = "napi-derive drops its registrations under cfg(test)"))]
mod node;
