//! Models: each fills [`Model`] over its own wire.

mod acp;
mod demo;
mod openai;

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Embedder, Model};

pub use acp::{AcpAgent, AcpLoad, AcpOptions};
pub use demo::DEMO_MODEL_ID;
pub use openai::{OpenAiOptions, Reach};

/// A model behind an OpenAI-compatible chat-completions endpoint. Its id is `openai/<name>`.
pub fn openai(options: OpenAiOptions) -> Arc<dyn Model> {
    Arc::new(openai::OpenAi::new(options))
}

/// An embedding model behind the same endpoint's `/embeddings`.
pub fn openai_embedder(options: OpenAiOptions) -> Arc<dyn Embedder> {
    Arc::new(openai::OpenAiEmbedder::new(options))
}

/// The scripted model, `demo/scripted`. It says that it is one.
pub fn demo() -> Arc<dyn Model> {
    Arc::new(demo::Demo::new(Duration::from_millis(demo::DELTA_PAUSE_MS)))
}
