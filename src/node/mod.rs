//! The Node addon: converts between JavaScript and the engine, and delegates. Decides nothing.
//!
//! Data crosses as JSON text, errors as an envelope ([`error`]), cancellation as a [`cancel::CancelHandle`].
//! Rust calls JavaScript through one weak function for each environment ([`bridge`]), so that nothing
//! here keeps a process alive, and nothing here holds a JavaScript object: what belongs together is
//! held together by the facades in `js/`.
//!
//! Invariant: every export that is not a promise says `catch_unwind`; a panic there would end the process.

mod acp;
mod allocator;
mod breaker;
mod bridge;
mod cancel;
mod chunks;
mod context;
mod edit;
mod error;
mod events;
mod feed;
mod gate;
mod hooks;
mod host_options;
mod leftovers;
mod mcp;
mod memory;
mod model;
mod permission;
mod probe;
mod registry;
mod server;
mod server_config;
mod text;
mod tool;
