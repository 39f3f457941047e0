//! What the subjects share.

pub mod model_server;
pub mod program;
pub mod turns;
