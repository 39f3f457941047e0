//! The chat-completions wire (`POST …/chat/completions`, streamed), as OpenAI and many others speak it.
//!
//! `request` writes what is sent, `assemble` makes events of what comes, `own` keeps what a model wants back. `embeddings` is the same endpoint's other wire.

mod assemble;
mod embeddings;
#[cfg(test)]
#[path = "../../../fuzz/src/inside/answers.rs"]
mod inside;
mod own;
mod request;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;

use super::wire::{Assemble, Key, KeyHeader, Place, Reach, Redactor, Spec, Told, Wire, route_url};
use crate::base::http;
use crate::model::{ModelError, ModelRequest};
use crate::protocol::ToolDefinition;

pub(super) use embeddings::OpenAiEmbedder;

use assemble::Assembler;

/// OpenAI's own endpoint.
pub(super) const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// The version that stands in addresses.
pub(super) const VERSION: &str = "/v1";
/// The wire's name, as settings and replies in its words have it.
const NAME: &str = "openai-chat";
/// The route of the models that talk.
const CHAT: &str = "/chat/completions";
/// What is said where OpenAI's own endpoint is to be asked without a key.
const NO_KEY: &str = "no API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none";

/// Where a model is and how it is spoken to.
#[derive(Clone)]
pub struct OpenAiOptions {
    /// The model's name on the wire, such as `gpt-5`.
    pub model: String,
    /// With or without `/v1` or a slash at its end. None: OpenAI's own.
    pub base_url: Option<String>,
    /// The key. Local servers often want none; OpenAI's own does.
    pub api_key: Option<SecretString>,
    /// Longest silence, before the first byte and between any two.
    pub idle_timeout: Duration,
    /// Whether the model can be shown images.
    pub images: bool,
    /// What is known of the endpoint, shared by its models.
    pub reach: Reach,
}

impl fmt::Debug for OpenAiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.base_url.as_deref().map(http::shown_address);
        f.debug_struct("OpenAiOptions").field("model", &self.model).field("base_url", &base_url).finish_non_exhaustive()
    }
}

impl OpenAiOptions {
    /// The provider `openai` there.
    pub fn place(&self) -> Place {
        let base_url = self.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let mut place = Place::new("openai", base_url, self.idle_timeout);
        place.wants_key = self.base_url.is_none().then(|| NO_KEY.to_owned());
        place.key = self.api_key.clone().map_or(Key::None, Key::Fixed);
        place.reach = self.reach.clone();
        place
    }
}

/// The wire.
pub(super) struct Chat;

impl Wire for Chat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn url(&self, base: &str, _: &str) -> String {
        route_url(base, VERSION, CHAT)
    }

    fn vendor(&self) -> Option<&'static str> {
        Some("https://api.openai.com/")
    }

    fn key_header(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    fn tell(&self, tools: &[ToolDefinition]) -> Result<Told, ModelError> {
        request::tell(tools)
    }

    fn encode(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
        request::encode(spec, request, told)
    }

    fn assembler(&self, spec: &Spec, redact: Redactor) -> Box<dyn Assemble> {
        Box::new(Assembler::new(&spec.id, redact))
    }
}
