//! The Responses wire of OpenAI (`POST …/responses`, streamed), as its own endpoint, llama.cpp, vLLM, LM Studio and others
//! speak it.
//!
//! `request` writes what is sent, `assemble` makes events of what comes. Nothing is kept on the other side: each request has the
//! whole conversation (`store: false`), and what a model said goes back to it item by item, as it came.

mod assemble;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use super::wire::{Assemble, KeyHeader, Redactor, Spec, Told, Wire, route_url};
use crate::model::{ModelError, ModelRequest};
use crate::protocol::ToolDefinition;

pub(super) use assemble::Assembler;

/// Its name, as settings and replies in its words have it.
const NAME: &str = "openai-responses";
/// The version that stands in addresses.
const VERSION: &str = "/v1";
/// The route.
const ROUTE: &str = "/responses";

/// The wire.
pub(super) struct Responses;

impl Wire for Responses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn url(&self, base: &str, _: &str) -> String {
        route_url(base, VERSION, ROUTE)
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
