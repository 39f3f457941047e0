//! What is sent: the conversation and the tools, in the wire's words.
//!
//! Nearly all of it was sent before: a turn adds a message or two to a conversation, and the tools are the same for
//! days. So the tools are put into words once ([`Told`]), and a long conversation keeps the words of its last request:
//! the next one adds to them. What is sent is the same, byte for byte, as if all of it were written anew.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::model::{ModelError, ModelRequest, WireNames};
use crate::protocol::{Message, Part, ToolDefinition};
use crate::tool::told_schema;

/// Shorter conversations are written anew each time.
const KEPT_BYTES_MIN: usize = 8 << 10;
/// Of shorter ones a copy is kept, without what stands behind the messages; longer ones are never copied.
const COPIED_BYTES_MAX: usize = 128 << 10;
/// Nothing longer is kept.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Tools in the wire's words, and how they are called there.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Their names.
    pub(super) names: WireNames,
    /// A list in JSON; empty when there are none.
    list: Vec<u8>,
}

/// The last request of a conversation, which stays with it.
struct Sent {
    body: Bytes,
    told: Arc<Told>,
    /// Bytes before the first message that is not the system's.
    head: usize,
    /// How many messages stand in the first `upto` bytes.
    count: usize,
    upto: usize,
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

impl Told {
    /// The words for these tools.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn of(tools: &[ToolDefinition]) -> Result<Self, ModelError> {
        let names = WireNames::of(tools);
        let mut list = Vec::new();
        if !tools.is_empty() {
            let wire: Vec<WireTool<'_>> = tools.iter().map(|tool| wire_tool(tool, &names)).collect();
            write(&mut list, &wire)?;
        }
        Ok(Self { names, list })
    }
}

impl Sent {
    /// The words that can be sent again, and of how many messages. None: something before them is different.
    fn again(self, head: &[u8], told: &Arc<Told>, messages: usize) -> Option<(Vec<u8>, usize)> {
        let same = self.head == head.len() && self.body.starts_with(head) && Arc::ptr_eq(&self.told, told);
        if !same || self.count > messages {
            return None;
        }
        if self.upto <= COPIED_BYTES_MAX {
            let mut body = Vec::with_capacity(self.upto + told.list.len() + COPIED_BYTES_MAX / 8);
            body.extend_from_slice(&self.body);
            return Some((body, self.count));
        }
        // Without a copy, unless the last request is still on its way.
        let mut body = Vec::from(self.body);
        body.truncate(self.upto);
        Some((body, self.count))
    }
}

/// The request's body, its tools in these words.
///
/// # Errors
/// [`ModelError::Malformed`] when it cannot be written as JSON.
pub(super) fn encode(model: &str, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
    let mut head = Vec::from(*b"{\"model\":");
    write(&mut head, model)?;
    head.extend_from_slice(b",\"messages\":[");
    if !request.system.is_empty() {
        write(&mut head, &WireMessage::System { content: &request.system })?;
    }
    let (messages, head_bytes) = (&request.messages, head.len());
    let sent = messages.kept::<Sent>().and_then(|sent| sent.again(&head, told, messages.len()));
    let (mut body, count) = sent.unwrap_or((head, 0));
    // Behind a tool's result there may come more of them, and what belongs behind all of them.
    let settled = messages.iter().rposition(|message| !matches!(message, Message::ToolResult { .. }));
    let settled = settled.map_or(0, |last| last + 1).max(count);
    add(&mut body, messages.get(count..settled).unwrap_or_default(), &told.names)?;
    let upto = body.len();
    add(&mut body, messages.get(settled..).unwrap_or_default(), &told.names)?;
    body.push(b']');
    if !told.list.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(&told.list);
    }
    if let Some(effort) = request.reasoning.effort() {
        body.extend_from_slice(b",\"reasoning_effort\":");
        write(&mut body, effort)?;
    }
    body.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    let body = Bytes::from(body);
    if (KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&upto) {
        let copied = upto <= COPIED_BYTES_MAX;
        let body = if copied { Bytes::copy_from_slice(body.get(..upto).unwrap_or_default()) } else { body.clone() };
        let told = Arc::clone(told);
        messages.keep(Sent { body, told, head: head_bytes, count: settled, upto });
    }
    Ok(body)
}

/// Adds messages to a list in JSON that is open.
fn add(body: &mut Vec<u8>, messages: &[Message], names: &WireNames) -> Result<(), ModelError> {
    let mut wire = Vec::with_capacity(messages.len());
    wire_messages(messages, names, &mut wire);
    for message in wire {
        if !body.ends_with(b"[") {
            body.push(b',');
        }
        write(body, &message)?;
    }
    Ok(())
}

fn write<T: Serialize + ?Sized>(body: &mut Vec<u8>, value: &T) -> Result<(), ModelError> {
    serde_json::to_writer(body, value).map_err(|error| ModelError::Malformed(format!("the request: {error}")))
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
