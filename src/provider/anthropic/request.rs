//! What is sent: the conversation and the tools, in the wire's words.
//!
//! What was sent before is sent again as it was: the last two messages of the user are where the provider is asked to keep what
//! it has read, and all before them is written as it will be in the next request.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::schema::taken;
use super::talk::{Block, EPHEMERAL, Ephemeral, Talk};
use super::thinking::Ways;
use crate::model::{CallIds, ModelError, ModelRequest, WireNames};
use crate::protocol::{Message, ToolDefinition};
use crate::provider::wire::{Draft, Spec, Told, in_words, write};
use crate::tool::told_schema;

/// Tokens of a reply where nothing is known of the model.
const OUTPUT_TOKENS: u64 = 32_000;

/// The member that holds how an answer is to be.
const CONFIG: &str = "output_config";

/// What a request is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A reply, streamed.
    Answer,
    /// To have its tokens counted.
    Count,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Ephemeral>,
}

/// The words for these tools.
///
/// # Errors
/// [`ModelError::Malformed`] when they cannot be written as JSON.
pub(super) fn tell(tools: &[ToolDefinition]) -> Result<Told, ModelError> {
    let names = WireNames::of(tools);
    let mut list = Vec::new();
    let wire = tools.iter().enumerate().map(|(at, tool)| WireTool {
        name: names.wire(&tool.name),
        description: &tool.description,
        input_schema: told_schema(tool),
        cache_control: (at + 1 == tools.len()).then_some(EPHEMERAL),
    });
    if !tools.is_empty() {
        write(&mut list, &wire.collect::<Vec<_>>())?;
    }
    Ok(Told { names, list })
}

/// The request's body, its tools in these words.
///
/// # Errors
/// [`ModelError::Malformed`] when it cannot be written as JSON.
pub(super) fn encode(
    spec: &Spec,
    request: &ModelRequest,
    told: &Arc<Told>,
    purpose: Purpose,
) -> Result<Bytes, ModelError> {
    let messages = &request.messages;
    let tokens_max = tokens_max(spec);
    let none = CallIds::default();
    let talk = Talk { spec, names: &told.names, all: messages, gives_back: true, ids: &none };
    let plan = Ways::of(spec).plan(request.reasoning, tokens_max, talk.can_begin_with_thinking());
    let talk = Talk { gives_back: plan.gives_back, ..talk };
    let ids = talk.ids();
    let talk = Talk { ids: &ids, ..talk };
    let mut head = Vec::from(*b"{\"model\":");
    write(&mut head, &spec.model)?;
    // It stands before the messages: what is given back of them depends on it.
    if let Some(thinking) = plan.thinking.filter(|_| !spec.body.contains_key("thinking")) {
        head.extend_from_slice(b",\"thinking\":");
        write(&mut head, &thinking)?;
    }
    head.extend_from_slice(b",\"messages\":[");
    let marks = talk.last_of_user();
    let until = if let [before, _] = marks[..] { before } else { 0 };
    let settled = |body: &mut Vec<u8>, part: &[Message]| match part {
        [] => Ok(()),
        _ => talk.add(body, until.saturating_sub(part.len())..until, &[]),
    };
    let all = messages.len();
    let rest = |body: &mut Vec<u8>, part: &[Message]| talk.add(body, all - part.len()..all, &marks);
    Draft { head, messages, told, settled: until }.finish(&settled, &rest, |body| {
        body.push(b']');
        if purpose == Purpose::Answer && !spec.body.contains_key("max_tokens") {
            body.extend_from_slice(format!(",\"max_tokens\":{tokens_max}").as_bytes());
        }
        end(body, spec, (request, told), plan.effort)?;
        if purpose == Purpose::Answer {
            body.extend_from_slice(b",\"stream\":true");
            spec.write_members_without(body, CONFIG)?;
        }
        body.push(b'}');
        Ok(())
    })
}

/// What stands behind the messages.
fn end(
    body: &mut Vec<u8>,
    spec: &Spec,
    (request, told): (&ModelRequest, &Told),
    effort: Option<&'static str>,
) -> Result<(), ModelError> {
    let (format, told_of) = match request.output_schema.as_deref() {
        Some(schema) if Ways::is_held(spec) => (Some(schema), None),
        schema => (None, schema.map(in_words)),
    };
    let mut system = Vec::with_capacity(2);
    if !request.system.trim().is_empty() {
        system.push(Block::Text { text: request.system.as_str().into(), cache_control: Some(EPHEMERAL) });
    }
    system.extend(told_of.map(Block::text));
    if !system.is_empty() {
        body.extend_from_slice(b",\"system\":");
        write(body, &system)?;
    }
    if !told.list.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(&told.list);
    } else if request.messages.iter().any(is_about_tools) {
        // A conversation with calls in it is refused where there are no tools.
        let none =
            json!([{ "name": "none", "description": "Not to be called.", "input_schema": { "type": "object" } }]);
        body.extend_from_slice(b",\"tools\":");
        write(body, &none)?;
        body.extend_from_slice(b",\"tool_choice\":{\"type\":\"none\"}");
    }
    let mut config = Map::new();
    config.extend(effort.map(|effort| ("effort".to_owned(), effort.into())));
    config
        .extend(format.map(|schema| ("format".to_owned(), json!({ "type": "json_schema", "schema": taken(schema) }))));
    // What the settings say of it has the last word.
    let given = spec.body.get(CONFIG).and_then(Value::as_object).into_iter().flatten();
    config.extend(given.map(|(name, value)| (name.clone(), value.clone())));
    if !config.is_empty() {
        body.extend_from_slice(b",\"output_config\":");
        write(body, &config)?;
    }
    Ok(())
}

fn is_about_tools(message: &Message) -> bool {
    matches!(message, Message::Assistant { calls, .. } if !calls.is_empty())
}

/// How long a reply may be: never longer than half of a window that is known.
fn tokens_max(spec: &Spec) -> u64 {
    let known = spec.facts.output_tokens_max;
    let window = spec.facts.context_tokens.map_or(u64::MAX, |tokens| (tokens / 2).max(1));
    known.unwrap_or_else(|| OUTPUT_TOKENS.min(window)).max(1)
}
