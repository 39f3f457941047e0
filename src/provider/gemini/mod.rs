//! The wire of Gemini's generateContent (`POST …/v1beta/models/NAME:streamGenerateContent`, streamed).
//!
//! `request` writes what is sent, `talk` the conversation in it, `thinking` how each model is told how much to think; `assemble`
//! makes events of what comes.
//!
//! Invariants: signatures go back with the very parts that they came with, to the model that they came from and to no other;
//! each call that is sent has exactly one result behind it, in the order of the calls.

mod assemble;
mod request;
mod talk;
#[cfg(test)]
mod tests;
mod thinking;

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::wire::{Assemble, KeyHeader, Redactor, Spec, Told, Wire, route_url};
use crate::model::{ModelError, ModelRequest};
use crate::protocol::ToolDefinition;

pub(super) use assemble::Assembler;
use request::Purpose;

/// The wire's name.
const NAME: &str = "gemini";
/// The version that stands in addresses.
const VERSION: &str = "/v1beta";

/// The wire.
pub(super) struct GenerateContent;

impl Wire for GenerateContent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn url(&self, base: &str, model: &str) -> String {
        route_url(base, VERSION, &format!("/models/{}:streamGenerateContent?alt=sse", bare(model)))
    }

    fn key_header(&self) -> KeyHeader {
        KeyHeader::Named("x-goog-api-key")
    }

    fn tell(&self, tools: &[ToolDefinition]) -> Result<Told, ModelError> {
        request::tell(tools)
    }

    fn encode(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
        request::encode(spec, request, told, Purpose::Answer)
    }

    fn assembler(&self, spec: &Spec, redact: Redactor) -> Box<dyn Assemble> {
        Box::new(Assembler::new(&spec.id, redact))
    }

    fn count_url(&self, base: &str, model: &str) -> Option<String> {
        Some(route_url(base, VERSION, &format!("/models/{}:countTokens", bare(model))))
    }

    fn encode_count(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
        request::encode(spec, request, told, Purpose::Count)
    }

    fn counted(&self, body: &str) -> Option<u64> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Counted {
            total_tokens: u64,
        }
        serde_json::from_str::<Counted>(body).ok().map(|counted| counted.total_tokens)
    }
}

/// A model's name, as it stands in addresses.
fn bare(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}
