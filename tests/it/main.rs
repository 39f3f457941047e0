//! The integration tests: one binary, one module a subject, so that everything is linked once.
//!
//! `support` holds what they share. `architecture` and `tidy` (beside this folder) read the sources and link nothing.

#![allow(clippy::unwrap_used, reason = "in tests an unwrap is an assertion")]

mod acp;
mod acp_agent;
mod acp_told;
mod acp_tools;
mod activation;
mod anthropic;
mod attack;
mod changes;
mod commands;
mod controls;
mod crash;
mod damage;
mod demo;
mod doors;
mod editing;
mod exec;
mod failing;
mod forks;
mod fuzzing;
mod gemini;
mod guard;
mod idle;
mod lifecycle;
mod load;
mod log;
mod main_job;
mod malformed;
mod mcp;
mod mcp_attach;
mod mcp_http;
mod mcp_killed;
mod mcp_modern;
mod mcp_project;
mod mcp_real;
mod mcp_rich;
mod mcp_server;
mod memory;
mod metrics;
mod names;
mod openai;
mod openapi;
mod patching;
mod providers;
mod readme;
mod rehearsal;
mod restart;
mod routes;
mod sandbox;
mod secrets;
mod serve;
mod service;
mod shell;
mod sockets;
mod stream;
mod structured;
mod support;
mod swapped;
mod tampered;
mod tokens;
mod traces;
mod turn;
mod waiting;
