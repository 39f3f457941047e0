//! What is sent: the conversation and the tools, in the wire's words. What was sent before is sent again as it was.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::talk::Talk;
use super::{bare, thinking};
use crate::model::{CallIds, ModelError, ModelRequest, WireNames};
use crate::protocol::{Message, ToolDefinition};
use crate::provider::wire::{Draft, Spec, Told, in_words, write};
use crate::tool::told_schema;

/// The member that holds all that is said of the answer.
const CONFIG: &str = "generationConfig";

/// What a request is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A reply, streamed.
    Answer,
    /// To have its tokens counted.
    Count,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTools<'a> {
    function_declarations: Vec<WireTool<'a>>,
}

/// The words for these tools.
///
/// # Errors
/// [`ModelError::Malformed`] when they cannot be written as JSON.
pub(super) fn tell(tools: &[ToolDefinition]) -> Result<Told, ModelError> {
    let names = WireNames::of(tools);
    let mut list = Vec::new();
    if !tools.is_empty() {
        let function_declarations = tools.iter().map(|tool| wire_tool(tool, &names)).collect();
        write(&mut list, &[WireTools { function_declarations }])?;
    }
    Ok(Told { names, list })
}

fn wire_tool<'t>(tool: &'t ToolDefinition, names: &'t WireNames) -> WireTool<'t> {
    let schema = told_schema(tool);
    let takes = schema.get("properties").and_then(Value::as_object).is_none_or(|all| !all.is_empty());
    // One that takes nothing has no schema.
    let parameters_json_schema = takes.then_some(schema);
    WireTool { name: names.wire(&tool.name), description: &tool.description, parameters_json_schema }
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
    let none = CallIds::default();
    let talk = Talk { spec, names: &told.names, all: messages, ids: &none };
    let ids = talk.ids();
    let talk = Talk { ids: &ids, ..talk };
    let mut head = Vec::new();
    if purpose == Purpose::Count {
        head.extend_from_slice(b"{\"generateContentRequest\":{\"model\":");
        write(&mut head, &format!("models/{}", bare(&spec.model)))?;
        head.push(b',');
    } else {
        head.push(b'{');
    }
    head.extend_from_slice(b"\"contents\":[");
    let until = talk.last_of_user();
    let all = messages.len();
    let settled = |body: &mut Vec<u8>, part: &[Message]| match part {
        [] => Ok(()),
        _ => talk.add(body, until.saturating_sub(part.len())..until),
    };
    let rest = |body: &mut Vec<u8>, part: &[Message]| talk.add(body, all - part.len()..all);
    Draft { head, messages, told, settled: until }.finish(&settled, &rest, |body| {
        body.push(b']');
        end(body, spec, request, told)?;
        match purpose {
            Purpose::Answer => spec.write_members_without(body, CONFIG)?,
            Purpose::Count => body.push(b'}'),
        }
        body.push(b'}');
        Ok(())
    })
}

/// What stands behind the messages.
fn end(body: &mut Vec<u8>, spec: &Spec, request: &ModelRequest, told: &Told) -> Result<(), ModelError> {
    // Older ones take a schema or tools.
    let takes = told.list.is_empty() || thinking::version(&spec.model).is_none_or(|version| version >= (3, 0));
    let (native, told_of) = match request.output_schema.as_deref() {
        Some(schema) if takes => (Some(schema), None),
        schema => (None, schema.map(in_words)),
    };
    let system = Some(request.system.as_str()).filter(|text| !text.trim().is_empty());
    let parts: Vec<Value> = system.into_iter().chain(told_of.as_deref()).map(|text| json!({ "text": text })).collect();
    if !parts.is_empty() {
        body.extend_from_slice(b",\"systemInstruction\":");
        write(body, &json!({ "parts": parts }))?;
    }
    if !told.list.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(&told.list);
    }
    let mut config = Map::new();
    config.extend(spec.facts.output_tokens_max.map(|tokens| ("maxOutputTokens".to_owned(), tokens.into())));
    config.extend(thinking::config(spec, request.reasoning).map(|thinking| ("thinkingConfig".to_owned(), thinking)));
    if let Some(schema) = native {
        config.insert("responseMimeType".to_owned(), "application/json".into());
        config.insert("responseJsonSchema".to_owned(), schema.clone());
    }
    // What the settings say of it has the last word.
    let given = spec.body.get(CONFIG).and_then(Value::as_object).into_iter().flatten();
    config.extend(given.map(|(name, value)| (name.clone(), value.clone())));
    if !config.is_empty() {
        body.extend_from_slice(b",\"generationConfig\":");
        write(body, &config)?;
    }
    Ok(())
}
