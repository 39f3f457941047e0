//! Models: each fills [`Model`] over its own wire.

mod openai;

use std::sync::Arc;

use crate::model::Model;

pub use openai::OpenAiOptions;

/// A model behind an OpenAI-compatible chat-completions endpoint. Its id is `openai/<name>`.
pub fn openai(options: OpenAiOptions) -> Arc<dyn Model> {
    Arc::new(openai::OpenAi::new(options))
}
