//! Models: each fills [`Model`] over its own wire.

mod acp;
mod demo;
mod openai;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Embedder, Model, ModelFacts};

use openai::Chat;
use wire::{HttpModel, Spec};

pub use acp::{AcpAgent, AcpLoad, AcpOptions};
pub use demo::DEMO_MODEL_ID;
pub use openai::OpenAiOptions;
pub use wire::{GateOptions, Key, Place, Reach, Tape, TapeError};

/// A model behind an OpenAI-compatible chat-completions endpoint. Its id is `openai/<name>`.
pub fn openai(options: OpenAiOptions) -> Arc<dyn Model> {
    let place = Arc::new(options.place());
    let facts = ModelFacts { images: options.images, ..ModelFacts::default() };
    let spec = Spec { id: format!("openai/{}", options.model), model: options.model, facts, ..Spec::default() };
    Arc::new(HttpModel::new(Arc::new(Chat), spec, place))
}

/// An embedding model behind the same endpoint's `/embeddings`.
pub fn openai_embedder(options: OpenAiOptions) -> Arc<dyn Embedder> {
    Arc::new(openai::OpenAiEmbedder::new(options))
}

/// The scripted model, `demo/scripted`. It says that it is one.
pub fn demo() -> Arc<dyn Model> {
    Arc::new(demo::Demo::new(Duration::from_millis(demo::DELTA_PAUSE_MS)))
}
