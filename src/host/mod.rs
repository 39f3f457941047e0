//! The host's tools: one file a tool, its definition, permission subject, run and tests together.

pub mod bash;
