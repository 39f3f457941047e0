//! What is sent: the conversation and the tools, in the wire's words.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::model::{ModelError, ModelRequest, WireNames};
use crate::protocol::{Message, Part, ToolDefinition};
use crate::tool::told_schema;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

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

/// The request's body, its tools under the names that the wire takes.
///
/// # Errors
/// [`ModelError::Malformed`] when it cannot be written as JSON.
pub(super) fn encode(model: &str, request: &ModelRequest, names: &WireNames) -> Result<Vec<u8>, ModelError> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(WireMessage::System { content: &request.system });
    }
    wire_messages(&request.messages, names, &mut messages);
    let body = Body {
        model,
        messages,
        tools: request.tools.iter().map(|tool| wire_tool(tool, names)).collect(),
        reasoning_effort: request.reasoning.effort(),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
    };
    serde_json::to_vec(&body).map_err(|error| ModelError::Malformed(format!("the request: {error}")))
}

/// The conversation. A tool's message cannot hold images on this wire, and all results of a reply have to follow it
/// at once: their images come in one message of the user behind them, each under the name of its call.
fn wire_messages<'m>(messages: &'m [Message], names: &'m WireNames, out: &mut Vec<WireMessage<'m>>) {
    let mut images: Vec<WirePart<'m>> = Vec::new();
    for message in messages {
        if !images.is_empty() && !matches!(message, Message::ToolResult { .. }) {
            out.push(WireMessage::User { content: Content::Parts(std::mem::take(&mut images)) });
        }
        out.push(wire_message(message, names));
        if let Message::ToolResult { call_id, name, parts, .. } = message
            && !parts.is_empty()
        {
            images.push(WirePart::Label { text: format!("What {} (call {call_id}) shows:", names.wire(name)) });
            images.extend(parts.iter().map(wire_part));
        }
    }
    if !images.is_empty() {
        out.push(WireMessage::User { content: Content::Parts(images) });
    }
}

fn wire_message<'m>(message: &'m Message, names: &'m WireNames) -> WireMessage<'m> {
    match message {
        Message::User(parts) => WireMessage::User { content: content(parts) },
        Message::Assistant { text, calls } => WireMessage::Assistant {
            content: (!text.is_empty() || calls.is_empty()).then_some(text.as_str()),
            tool_calls: calls
                .iter()
                .map(|call| WireCall {
                    id: &call.id,
                    r#type: "function",
                    function: WireCallFunction {
                        name: names.wire(&call.name),
                        // A map with string keys: writing it cannot fail.
                        arguments: serde_json::to_string(&call.arguments).unwrap_or_default(),
                    },
                })
                .collect(),
        },
        Message::ToolResult { call_id, output, .. } => WireMessage::Tool { tool_call_id: call_id, content: output },
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
