//! The wire of Anthropic's Messages (`POST …/v1/messages`, streamed), as Anthropic and some others speak it.
//!
//! `request` writes what is sent, `talk` the conversation in it, `thinking` how each model is told how much to think, `schema` what answers may be held to;
//! `assemble` makes events of what comes.
//!
//! Invariants: blocks that the model has to be given back (thinking with its signature) go back as they came, to the model that
//! they came from and to no other; each call that is sent has exactly one result behind it.

mod assemble;
mod request;
mod schema;
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
const NAME: &str = "anthropic-messages";
/// The version that stands in addresses.
const VERSION: &str = "/v1";
/// The route of the models.
const MESSAGES: &str = "/messages";
/// The route that counts.
const COUNT: &str = "/messages/count_tokens";
/// The version of the wire.
const API: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Lets a request say what becomes of thinking whose conversation has changed.
const BINDING: (&str, &str) = ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// The wire.
pub(super) struct Messages;

impl Wire for Messages {
    fn name(&self) -> &'static str {
        NAME
    }

    fn url(&self, base: &str, _: &str) -> String {
        route_url(base, VERSION, MESSAGES)
    }

    fn key_header(&self) -> KeyHeader {
        KeyHeader::Named("x-api-key")
    }

    fn headers(&self, spec: &Spec) -> &'static [(&'static str, &'static str)] {
        if thinking::Ways::of(spec).bound { &[API, BINDING] } else { &[API] }
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

    fn count_url(&self, base: &str, _: &str) -> Option<String> {
        let base = base.trim().trim_end_matches('/');
        Some(route_url(base.strip_suffix(MESSAGES).unwrap_or(base), VERSION, COUNT))
    }

    fn encode_count(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
        request::encode(spec, request, told, Purpose::Count)
    }

    fn counted(&self, body: &str) -> Option<u64> {
        #[derive(Deserialize)]
        struct Counted {
            input_tokens: u64,
        }
        serde_json::from_str::<Counted>(body).ok().map(|counted| counted.input_tokens)
    }
}
