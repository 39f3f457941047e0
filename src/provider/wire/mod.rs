//! What all wires of models over HTTP have in common. A wire says how a request is written and how its answer is read
//! ([`Wire`], `assemble`: pure); everything else is the same for all of them and stands here.
//!
//! - `model`: one request and its answer, from bytes to events; `count`: what a request would cost
//! - `place`: where a provider is, how one shows who one is, and how much may be asked of it at once
//! - `sent`: bodies that begin as the last one of their conversation did
//! - `rounds`: conversations for wires on which user and model take turns
//! - `calls`: arguments of calls, whole or not; `words`: texts in other forms than a string; `figures`: numbers that may be none
//! - `alike`: events as the one before; `halves`: characters that were cut in two
//! - `held`: schemas that answers are held to
//! - `failure`, `overflow`: the kinds of errors; `reach`: what is known of an endpoint
//! - `tape`: answers that are kept, and given again
//!
//! Invariants: a key stands in the header that its wire wants it in and nowhere else, no error repeats it; one stream holds at
//! most `MODEL_REPLY_BYTES_MAX` and waits at most the idle time-out for its next byte.

mod alike;
mod answer;
mod assemble;
mod calls;
mod count;
mod failure;
mod figures;
mod gate;
mod halves;
mod held;
mod model;
mod overflow;
mod place;
mod reach;
pub(super) mod rounds;
mod sent;
mod tape;
mod words;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::model::{ModelError, ModelFacts, ModelRequest, WireNames};
use crate::protocol::ToolDefinition;

pub(super) use crate::tool::output_in_words as in_words;
pub(super) use alike::Alike;
pub(super) use assemble::{Assemble, Length, State, size};
pub(super) use calls::{arguments_or_none, call_of};
pub(super) use failure::{BODY_BYTES_MAX, Redactor, cut_short, from_http, from_object, from_status};
pub(super) use figures::{amount, count, lenient};
pub use gate::GateOptions;
pub(super) use held::is_strict;
pub(super) use model::HttpModel;
pub(super) use place::trimmed;
pub use place::{Key, Place};
pub use reach::Reach;
pub(super) use sent::{Draft, write};
pub use tape::{Tape, TapeError};
pub(super) use words::{Shared, Text, Words};

/// How one wire writes requests and reads answers. Pure.
pub(super) trait Wire: Send + Sync + 'static {
    /// Its name, as settings and [`Original`](crate::protocol::Original) have it.
    fn name(&self) -> &'static str;

    /// Where the request goes.
    fn url(&self, base: &str, model: &str) -> String;

    /// The header that the key stands in.
    fn key_header(&self) -> KeyHeader;

    /// What addresses of its own vendor begin with. None: it does not matter.
    fn vendor(&self) -> Option<&'static str> {
        None
    }

    /// Headers that go with each request to that model.
    fn headers(&self, _spec: &Spec) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The tools in its words. Made once for each list.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    fn tell(&self, tools: &[ToolDefinition]) -> Result<Told, ModelError>;

    /// The body of a request, its tools in these words. It streams.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when it cannot be written as JSON.
    fn encode(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError>;

    /// What reads the answer.
    fn assembler(&self, spec: &Spec, redact: Redactor) -> Box<dyn Assemble>;

    /// Where a request is counted instead of answered. None: nowhere.
    fn count_url(&self, _base: &str, _model: &str) -> Option<String> {
        None
    }

    /// The body of a request that is to be counted.
    ///
    /// # Errors
    /// As [`Wire::encode`].
    fn encode_count(&self, spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
        self.encode(spec, request, told)
    }

    /// The tokens that the answer to that says. None: it says nothing of the kind.
    fn counted(&self, _body: &str) -> Option<u64> {
        None
    }
}

/// Which header a key stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyHeader {
    /// `Authorization: Bearer`.
    Bearer,
    /// A header of its own, the key alone.
    Named(&'static str),
}

/// A model, as far as its wire has to know it.
#[derive(Debug, Clone, Default)]
pub(super) struct Spec {
    /// `provider/name`.
    pub(super) id: String,
    /// Its name on the wire.
    pub(super) model: String,
    /// What is known of it.
    pub(super) facts: ModelFacts,
    /// Members that go into each request's body as they are.
    pub(super) body: Map<String, Value>,
    /// It is asked at the wire's own vendor, who takes what others may not know.
    pub(super) vendor: bool,
}

/// Tools in a wire's words, and how they are called there.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Their names.
    pub(super) names: WireNames,
    /// A list in JSON; empty when there are none.
    pub(super) list: Vec<u8>,
}

impl Spec {
    /// Closes a body: adds the members that the settings want in each request. They may not repeat what stands there.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn write_members(&self, body: &mut Vec<u8>) -> Result<(), ModelError> {
        self.write_members_without(body, "")
    }

    /// The same without one of them, which stands there already.
    ///
    /// # Errors
    /// As [`Spec::write_members`].
    pub(super) fn write_members_without(&self, body: &mut Vec<u8>, without: &str) -> Result<(), ModelError> {
        for (name, value) in self.body.iter().filter(|(name, _)| *name != without) {
            body.push(b',');
            write(body, name)?;
            body.push(b':');
            write(body, value)?;
        }
        Ok(())
    }
}

/// The address of a route under a base address: `version` is put between where the base has no path. A query of the base, as
/// some endpoints want one, stays behind it.
pub(super) fn route_url(base: &str, version: &str, route: &str) -> String {
    let base = base.trim();
    let base = base.split_once('#').map_or(base, |(base, _)| base);
    let (base, query) = base.find('?').map_or((base, ""), |at| base.split_at(at));
    let base = base.trim_end_matches('/');
    let base = base.strip_suffix(route).unwrap_or(base);
    let path = base.split_once("://").map_or(base, |(_, rest)| rest);
    let version = if path.contains('/') { "" } else { version };
    let query = match (query.strip_prefix('?'), route.contains('?')) {
        (Some(rest), true) if !rest.is_empty() => format!("&{rest}"),
        (Some(_), true) | (None, _) => String::new(),
        (Some(_), false) => query.to_owned(),
    };
    format!("{base}{version}{route}{query}")
}
