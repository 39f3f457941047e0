//! Models: each fills [`Model`] over its own wire.

mod acp;
mod anthropic;
mod catalog;
mod demo;
mod errands;
mod gemini;
mod local;
mod openai;
mod responses;
mod wire;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::Api;
use crate::model::{Embedder, Model, ModelFacts};

use anthropic::Messages;
use gemini::GenerateContent;
use openai::Chat;
use responses::Responses;
use wire::{HttpModel, Spec, Wire};

pub use acp::{AcpAbilities, AcpAgent, AcpLoad, AcpOffer, AcpOptions, AcpServices, AcpSession};
pub use demo::DEMO_MODEL_ID;
pub use errands::{Errands, HandedIn};
pub use local::{LocalEmbedder, LocalModelError};
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

/// The scripted model, `demo/scripted`: a recording. It says that it is one.
pub fn demo() -> Arc<dyn Model> {
    Arc::new(demo::Demo::new(1.0))
}

/// A model of a provider.
#[derive(Debug, Clone)]
pub struct HttpModelOptions {
    /// Its name on the wire. Its id is `provider/name`.
    pub name: String,
    /// Its wire.
    pub api: Api,
    /// What is known of it.
    pub facts: ModelFacts,
    /// Members that go into each request's body as they are.
    pub body: Map<String, Value>,
}

/// A model that is spoken to over its provider's wire.
pub fn http_model(options: HttpModelOptions, place: &Arc<Place>) -> Arc<dyn Model> {
    let HttpModelOptions { name, api, facts, body } = options;
    let spec = Spec { id: format!("{}/{name}", place.provider), model: name, facts, body, ..Spec::default() };
    Arc::new(HttpModel::new(wire_of(api), spec, Arc::clone(place)))
}

fn wire_of(api: Api) -> Arc<dyn Wire> {
    match api {
        Api::Chat => Arc::new(Chat),
        Api::Responses => Arc::new(Responses),
        Api::Messages => Arc::new(Messages),
        Api::Gemini => Arc::new(GenerateContent),
    }
}

/// What the catalogue knows of the model of that id. None: nothing.
pub fn known_facts(id: &str) -> Option<ModelFacts> {
    catalog::facts(id)
}

/// The names of the models of a provider that the catalogue knows.
pub fn known_models(provider: &str) -> Vec<&'static str> {
    catalog::models_of(provider).collect()
}
