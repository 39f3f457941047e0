//! What the subjects share.

pub mod agent;
pub mod binary;
pub mod edit_corpus;
pub mod house;
pub mod http;
pub mod model_server;
#[allow(dead_code, reason = "the tests of the store use the rest of it")]
pub mod postgres;
pub mod program;
pub mod says;
pub mod sessions;
pub mod socket;
pub mod turns;
