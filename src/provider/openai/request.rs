//! What is sent: the conversation and the tools, in the wire's words.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::own::Back;
use crate::model::{CallIds, ModelError, ModelRequest, WireNames};
use crate::protocol::{Message, Part, ToolCallRequest, ToolDefinition};
use crate::provider::wire::{Draft, Spec, Told, is_strict, write};
use crate::tool::told_schema;

/// The longest id of a call that every server takes.
const ID_BYTES_MAX: usize = 40;

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<&'a Value>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text {
        text: &'a str,
    },
    /// A text of ours among them.
    #[serde(rename = "text")]
    Label {
        text: String,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireCallFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct WireCallFunction<'a> {
    name: Cow<'a, str>,
    /// JSON inside a string: so the wire wants it.
    arguments: String,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Value,
}

/// The words for these tools.
///
/// # Errors
/// [`ModelError::Malformed`] when they cannot be written as JSON.
pub(super) fn tell(tools: &[ToolDefinition]) -> Result<Told, ModelError> {
    let names = WireNames::of(tools);
    let mut list = Vec::new();
    if !tools.is_empty() {
        let wire: Vec<WireTool<'_>> = tools.iter().map(|tool| wire_tool(tool, &names)).collect();
        write(&mut list, &wire)?;
    }
    Ok(Told { names, list })
}

/// The request's body, its tools in these words.
///
/// # Errors
/// [`ModelError::Malformed`] when it cannot be written as JSON.
pub(super) fn encode(spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
    let mut head = Vec::from(*b"{\"model\":");
    write(&mut head, &spec.model)?;
    head.extend_from_slice(b",\"messages\":[");
    if !request.system.is_empty() {
        write(&mut head, &WireMessage::System { content: &request.system })?;
    }
    // Behind a tool's result there may come more of them, and what belongs behind all of them.
    let messages = &request.messages;
    let settled = messages.iter().rposition(|message| !matches!(message, Message::ToolResult { .. }));
    let draft = Draft { head, messages, told, settled: settled.map_or(0, |last| last + 1) };
    let ids = CallIds::of(&request.messages, ID_BYTES_MAX, |_, calls| {
        calls.iter().map(|call| Some(Cow::Borrowed(call.id.as_str()))).collect()
    });
    let talk = Talk { model: &spec.id, names: &told.names, ids: &ids };
    let write_messages = |body: &mut Vec<u8>, messages: &[Message]| add(body, messages, talk);
    draft.finish(&write_messages, &write_messages, |body| end(body, spec, request, told))
}

/// What stands behind the messages.
fn end(body: &mut Vec<u8>, spec: &Spec, request: &ModelRequest, told: &Told) -> Result<(), ModelError> {
    body.push(b']');
    if !told.list.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(&told.list);
    }
    // What the settings want in each request stands in the place of ours.
    let mut member = |name: &str, value: &dyn Fn() -> Value| -> Result<(), ModelError> {
        if spec.body.contains_key(name) {
            return Ok(());
        }
        body.extend_from_slice(format!(",\"{name}\":").as_bytes());
        write(body, &value())
    };
    if let Some(effort) = request.reasoning.effort() {
        member("reasoning_effort", &|| effort.into())?;
    }
    if let Some(schema) = request.output_schema.as_deref() {
        let format = || json!({ "name": "answer", "schema": schema, "strict": is_strict(schema) });
        member("response_format", &|| json!({ "type": "json_schema", "json_schema": format() }))?;
    }
    // Servers of others may refuse what they do not know.
    if let Some(key) = request.cache_key.as_deref().filter(|_| spec.vendor) {
        member("prompt_cache_key", &|| key.into())?;
    }
    member("stream", &|| true.into())?;
    member("stream_options", &|| json!({ "include_usage": true }))?;
    spec.write_members(body)?;
    body.push(b'}');
    Ok(())
}

/// What a conversation is written with.
#[derive(Clone, Copy)]
struct Talk<'m> {
    model: &'m str,
    names: &'m WireNames,
    /// Other names of ids that are there twice.
    ids: &'m CallIds<'m>,
}

/// Adds messages to a list in JSON that is open.
fn add(body: &mut Vec<u8>, messages: &[Message], talk: Talk<'_>) -> Result<(), ModelError> {
    let mut wire = Vec::with_capacity(messages.len());
    wire_messages(messages, talk, &mut wire);
    for message in wire {
        if !body.ends_with(b"[") {
            body.push(b',');
        }
        write(body, &message)?;
    }
    Ok(())
}

/// The conversation. A tool's message cannot hold images on this wire, and all results of a reply have to follow it
/// at once: their images come in one message of the user behind them, each under the name of its call.
fn wire_messages<'m>(messages: &'m [Message], talk: Talk<'m>, out: &mut Vec<WireMessage<'m>>) {
    let mut images: Vec<WirePart<'m>> = Vec::new();
    for message in messages {
        if !images.is_empty() && !matches!(message, Message::ToolResult { .. }) {
            out.push(WireMessage::User { content: Content::Parts(std::mem::take(&mut images)) });
        }
        out.push(wire_message(message, talk));
        if let Message::ToolResult { call_id, name, parts, .. } = message
            && !parts.is_empty()
        {
            let (name, id) = (talk.names.wire(name), talk.ids.result(message).unwrap_or(call_id));
            images.push(WirePart::Label { text: format!("What {name} (call {id}) shows:") });
            images.extend(parts.iter().map(wire_part));
        }
    }
    if !images.is_empty() {
        out.push(WireMessage::User { content: Content::Parts(images) });
    }
}

fn wire_message<'m>(message: &'m Message, talk: Talk<'m>) -> WireMessage<'m> {
    match message {
        Message::User(parts) => WireMessage::User { content: content(parts) },
        Message::Assistant { text, calls, original } => {
            let back = Back::of(original.as_deref(), talk.model);
            let wire_call = |(at, call): (usize, &'m ToolCallRequest)| {
                let extra = back.and_then(|back| back.extra(at, call));
                wire_call((talk.ids.call(message, at).unwrap_or(&call.id), call), talk.names, extra)
            };
            WireMessage::Assistant {
                content: (!text.is_empty() || calls.is_empty()).then_some(text.as_str()),
                reasoning_content: back.and_then(|back| back.member("reasoning_content")),
                reasoning_details: back.and_then(|back| back.member("reasoning_details")),
                tool_calls: calls.iter().enumerate().map(wire_call).collect(),
            }
        }
        Message::ToolResult { call_id, output, .. } => {
            WireMessage::Tool { tool_call_id: talk.ids.result(message).unwrap_or(call_id), content: output }
        }
    }
}

fn wire_call<'m>(
    (id, call): (&'m str, &'m ToolCallRequest),
    names: &'m WireNames,
    extra: Option<&'m Value>,
) -> WireCall<'m> {
    WireCall {
        id,
        r#type: "function",
        function: WireCallFunction {
            name: names.wire(&call.name),
            // A map with string keys: writing it cannot fail.
            arguments: serde_json::to_string(&call.arguments).unwrap_or_default(),
        },
        extra_content: extra,
    }
}

fn content(parts: &[Part]) -> Content<'_> {
    if let [Part::Text { text }] = parts {
        return Content::Text(text);
    }
    Content::Parts(parts.iter().map(wire_part).collect())
}

fn wire_part(part: &Part) -> WirePart<'_> {
    match part {
        Part::Text { text } => WirePart::Text { text },
        Part::Image { media_type, data } => {
            WirePart::ImageUrl { image_url: ImageUrl { url: format!("data:{media_type};base64,{data}") } }
        }
    }
}

fn wire_tool<'t>(definition: &'t ToolDefinition, names: &'t WireNames) -> WireTool<'t> {
    WireTool {
        r#type: "function",
        function: WireFunction {
            name: names.wire(&definition.name),
            description: &definition.description,
            parameters: told_schema(definition),
        },
    }
}
