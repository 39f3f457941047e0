//! simse: a headless coding-agent server, and the host tools it is made of.
//!
//! One crate, three faces: this Rust library, the `simse` program, and the Node addon (feature `node`).
//!
//! # The tools alone
//!
//! A [`Registry`](tool::Registry) holds tools by name: the host's own ([`host`]: files, searches, patches, a shell, git), and
//! those of your program (implement [`Tool`](tool::Tool), or hand a closure to [`tool::function`]). A call goes through
//! [`run_call`](agent::run_call), several through [`run_batch`](agent::run_batch): hook, permission, validation, run, hook.
//! There is exactly one result for each call, and what went wrong is told in it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde_json::json;
//! use simse::agent::{CallEnvironment, CancellationToken, RulesGate, run_call};
//! use simse::base::workspace::Workspace;
//! use simse::{config, host, permission::Rules, protocol::ToolCallRequest, tool::Registry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("a.txt"), "hello\n")?;
//! let workspace = Arc::new(Workspace::new(folder.path(), &[])?);
//! let registry = Arc::new(Registry::default());
//! registry.extend(host::filesystem_tools(&workspace));
//!
//! // Looking is allowed; the rest would have to be asked, and here nobody answers.
//! let gate = RulesGate::new(Rules::new(&config::default_permissions()), workspace.working_directory());
//! let environment = CallEnvironment::new(registry, Arc::new(gate));
//! let mut call = ToolCallRequest { id: "1".into(), name: "fs_read".into(), arguments: Default::default() };
//! call.arguments.insert("path".into(), json!("a.txt"));
//!
//! let outcome = run_call(&environment, call, &CancellationToken::new()).await;
//! assert!(outcome.result.output.contains("hello"));
//! # Ok(())
//! # }
//! ```
//!
//! | for | see |
//! |---|---|
//! | which calls may run: rules, their patterns, why | [`permission`], [`agent::RulesGate`], [`agent::Asker`] |
//! | changing or blocking calls, changing results | [`hook::HookSystem`] |
//! | what happens, as it happens | [`agent::Sink`] (a closure will do), [`protocol::EventBody`] |
//! | edits and patches without a file system | [`edit`], [`edit::patch`] |
//! | keeping paths inside a folder | [`base::workspace::Workspace`] |
//!
//! # The server
//!
//! [`app::App`] is everything that a client can ask for, with sessions, turns and their events; [`server::Server`] is its HTTP
//! door. Both take models ([`model::Model`]), tools and hooks of your program ([`app::Extras`]). Who reads a session's events
//! holds a cursor ([`app::EventReader`]); [`bus`] is what stands behind it.
//!
//! Whole programs stand in `examples/`: `tools_only`, `own_tool`, `search`, `edit`, `server`.
//!
//! # Where things are
//!
//! The modules stand in the order of their ranks: each names only lower ones, peers never name each other, and
//! `tests/architecture.rs` keeps it so. ARCHITECTURE.md is the map. Everything async runs on tokio.

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
// For `main.rs` alone: it ends the process and prints.
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "node")]
#[cfg_attr(test, allow(dead_code, reason = "napi-derive drops its registrations under cfg(test)"))]
mod node;
