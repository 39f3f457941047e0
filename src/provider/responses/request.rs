//! What is sent: the conversation as items, and the tools.
//!
//! A reply of this very model goes back as the items that it came in, so that its encrypted reasoning is of use to it; every
//! other is told in texts and calls. Either way each call has one id, and its output the same.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::NAME;
use crate::base::text::fnv1a;
use crate::model::{CallIds, ModelError, ModelRequest, WireNames, is_named};
use crate::protocol::{Message, Original, Part, Reasoning, ToolCallRequest, ToolDefinition};
use crate::provider::wire::{Draft, Spec, Told, is_strict, write};
use crate::tool::told_schema;

/// The longest id of a call that is taken.
const CALL_ID_BYTES_MAX: usize = 64;
/// What stands in the names of the vendor's models that do not reason.
const WITHOUT_REASONING: [&str; 5] = ["gpt-3", "gpt-4", "chatgpt", "davinci", "babbage"];
/// `_` and sixteen hexadecimal digits.
const MARK_BYTES: usize = 17;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireItem<'a> {
    Message { role: &'static str, content: Vec<WirePart<'a>> },
    FunctionCall { call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: String },
    FunctionCallOutput { call_id: Cow<'a, str>, output: Output<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    InputText { text: &'a str },
    OutputText { text: &'a str },
    InputImage { detail: &'static str, image_url: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(&'a str),
    Parts(Vec<WirePart<'a>>),
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Value,
    strict: bool,
}

/// The words for these tools.
///
/// # Errors
/// [`ModelError::Malformed`] when they cannot be written as JSON.
pub(super) fn tell(tools: &[ToolDefinition]) -> Result<Told, ModelError> {
    let names = WireNames::of(tools);
    let mut list = Vec::new();
    if !tools.is_empty() {
        let wire_tool = |tool| wire_tool(tool, &names);
        write(&mut list, &tools.iter().map(wire_tool).collect::<Vec<_>>())?;
    }
    Ok(Told { names, list })
}

fn wire_tool<'t>(definition: &'t ToolDefinition, names: &'t WireNames) -> WireTool<'t> {
    WireTool {
        r#type: "function",
        name: names.wire(&definition.name),
        description: &definition.description,
        parameters: told_schema(definition),
        // A strict one may leave nothing out; ours have what may be left out.
        strict: false,
    }
}

/// The request's body, its tools in these words.
///
/// # Errors
/// [`ModelError::Malformed`] when it cannot be written as JSON.
pub(super) fn encode(spec: &Spec, request: &ModelRequest, told: &Arc<Told>) -> Result<Bytes, ModelError> {
    let mut head = Vec::from(*b"{\"model\":");
    write(&mut head, &spec.model)?;
    if !request.system.is_empty() {
        head.extend_from_slice(b",\"instructions\":");
        write(&mut head, &request.system)?;
    }
    head.extend_from_slice(b",\"input\":[");
    let messages = &request.messages;
    let draft = Draft { head, messages, told, settled: messages.len() };
    let ids =
        CallIds::of(messages, CALL_ID_BYTES_MAX, |_, calls| calls.iter().map(|call| Some(call_id(&call.id))).collect());
    let talk = Talk { spec, names: &told.names, ids: &ids };
    let add_all = |body: &mut Vec<u8>, messages: &[Message]| add(body, messages, talk);
    draft.finish(&add_all, &add_all, |body| end(body, spec, request, told))
}

/// What stands behind the items. What the settings want in each request stands in the place of ours.
fn end(body: &mut Vec<u8>, spec: &Spec, request: &ModelRequest, told: &Told) -> Result<(), ModelError> {
    body.push(b']');
    let mut member = |name: &str, value: &dyn Fn() -> Value| -> Result<(), ModelError> {
        if spec.body.contains_key(name) {
            return Ok(());
        }
        body.extend_from_slice(format!(",\"{name}\":").as_bytes());
        write(body, &value())
    };
    if !told.list.is_empty() {
        member("parallel_tool_calls", &|| true.into())?;
    }
    if thinks(spec, request.reasoning) {
        member("reasoning", &|| match request.reasoning.effort() {
            Some(effort) => json!({ "effort": effort, "summary": "auto" }),
            None => json!({ "summary": "auto" }),
        })?;
        member("include", &|| json!(["reasoning.encrypted_content"]))?;
    }
    if let Some(key) = &request.cache_key {
        member("prompt_cache_key", &|| key.as_str().into())?;
    }
    member("store", &|| false.into())?;
    member("stream", &|| true.into())?;
    let text = request.output_schema.as_deref().map(|schema| formatted(spec, schema));
    if let Some(text) = &text {
        body.extend_from_slice(b",\"text\":");
        write(body, text)?;
    }
    if !told.list.is_empty() {
        body.extend_from_slice(b",\"tools\":");
        body.extend_from_slice(&told.list);
    }
    spec.write_members_without(body, if text.is_some() { "text" } else { "" })?;
    body.push(b'}');
    Ok(())
}

/// Whether something is said of reasoning. A model that does not reason refuses any word about it; so of one that nothing is
/// known of nothing is said unless it was asked for. At the vendor's own address names tell: all but the old ones reason.
fn thinks(spec: &Spec, asked: Reasoning) -> bool {
    let old = |name: &str| WITHOUT_REASONING.iter().any(|old| name.contains(old));
    let told = spec.facts.reasoning_known || asked != Reasoning::Auto;
    spec.facts.reasoning && (told || spec.vendor && !old(&spec.model))
}

/// How the answer's text is to be: as the settings want it, and held to a schema.
fn formatted(spec: &Spec, schema: &Value) -> Value {
    let mut text = spec.body.get("text").and_then(Value::as_object).cloned().unwrap_or_default();
    let format = json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema) });
    text.insert("format".to_owned(), format);
    Value::Object(text)
}

/// What a conversation is written with.
#[derive(Clone, Copy)]
struct Talk<'m> {
    spec: &'m Spec,
    names: &'m WireNames,
    /// Other names of ids that are there twice.
    ids: &'m CallIds<'m>,
}

impl Talk<'_> {
    /// A call's id as it is sent.
    fn sent<'a>(&'a self, reply: &Message, (at, call): (usize, &'a ToolCallRequest)) -> Cow<'a, str> {
        self.ids.call(reply, at).map_or_else(|| call_id(&call.id), Cow::Borrowed)
    }

    /// Adds an item as it came; a call has the id that its output has, and arguments that can be read.
    fn add_given(&self, body: &mut Vec<u8>, item: &Value, sent: Option<Cow<'_, str>>) -> Result<(), ModelError> {
        let Some(sent) = sent else { return push(body, item) };
        let arguments = item.get("arguments").and_then(Value::as_str).unwrap_or_default();
        let reads = serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
        if reads && item.get("call_id").and_then(Value::as_str) == Some(&*sent) {
            return push(body, item);
        }
        let mut item = item.clone();
        item["call_id"] = Value::from(sent);
        if !reads {
            item["arguments"] = Value::from("{}");
        }
        push(body, &item)
    }
}

/// Adds messages to a list in JSON that is open.
fn add(body: &mut Vec<u8>, messages: &[Message], talk: Talk<'_>) -> Result<(), ModelError> {
    let (spec, names) = (talk.spec, talk.names);
    for message in messages {
        match message {
            Message::User(parts) => {
                let content = parts.iter().map(wire_part).collect();
                push(body, &WireItem::Message { role: "user", content })?;
            }
            Message::Assistant { text, calls, original } => {
                if let Some(original) = original.as_deref().filter(|original| is_own(original, spec, calls)) {
                    let mut made = calls.iter().enumerate();
                    for item in original.items.iter().filter(|item| is_known_there(item, spec)) {
                        let call = is_call(item).then(|| made.next()).flatten();
                        talk.add_given(body, item, call.map(|call| talk.sent(message, call)))?;
                    }
                    continue;
                }
                if !text.is_empty() {
                    let content = vec![WirePart::OutputText { text }];
                    push(body, &WireItem::Message { role: "assistant", content })?;
                }
                for (at, call) in calls.iter().enumerate() {
                    // A map with string keys: writing it cannot fail.
                    let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
                    let (call_id, name) = (talk.sent(message, (at, call)), names.wire(&call.name));
                    push(body, &WireItem::FunctionCall { call_id, name, arguments })?;
                }
            }
            Message::ToolResult { call_id: id, output, parts, .. } => {
                let output = if parts.is_empty() {
                    Output::Text(output)
                } else {
                    let text = (!output.is_empty()).then_some(WirePart::InputText { text: output });
                    Output::Parts(text.into_iter().chain(parts.iter().map(wire_part)).collect())
                };
                let call_id = talk.ids.result(message).map_or_else(|| call_id(id), Cow::Borrowed);
                push(body, &WireItem::FunctionCallOutput { call_id, output })?;
            }
        }
    }
    Ok(())
}

fn push<T: Serialize + ?Sized>(body: &mut Vec<u8>, item: &T) -> Result<(), ModelError> {
    if !body.ends_with(b"[") {
        body.push(b',');
    }
    write(body, item)
}

/// Whether these are this model's items, with these very calls in them.
fn is_own(original: &Original, spec: &Spec, calls: &[ToolCallRequest]) -> bool {
    if original.wire != NAME || original.model != spec.id {
        return false;
    }
    let made = original.items.iter().filter(|item| is_call(item));
    let mut made = made.map(|item| item.get("call_id").and_then(Value::as_str).unwrap_or_default());
    let is_it = |given: &str, ours: &str| given == call_id(ours) || is_named(given, ours);
    calls.iter().all(|call| made.next().is_some_and(|given| is_it(given, &call.id))) && made.next().is_none()
}

fn is_call(item: &Value) -> bool {
    item.get("type").and_then(Value::as_str) == Some("function_call")
}

/// Whether an item says what it is. One whose content is kept on the other side alone is not found there: nothing is kept.
fn is_known_there(item: &Value, spec: &Spec) -> bool {
    let stored = spec.body.get("store").and_then(Value::as_bool) == Some(true);
    let has = |name: &str| match item.get(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    stored
        || item.get("type").and_then(Value::as_str) != Some("reasoning")
        || has("encrypted_content")
        || has("content")
}

/// An id of a call as it is taken. Other models' may be longer.
fn call_id(id: &str) -> Cow<'_, str> {
    if id.len() <= CALL_ID_BYTES_MAX {
        return Cow::Borrowed(id);
    }
    let end = id.floor_char_boundary(CALL_ID_BYTES_MAX - MARK_BYTES);
    Cow::Owned(format!("{}_{:016x}", &id[..end], fnv1a(id.as_bytes())))
}

fn wire_part(part: &Part) -> WirePart<'_> {
    match part {
        Part::Text { text } => WirePart::InputText { text },
        Part::Image { media_type, data } => {
            WirePart::InputImage { detail: "auto", image_url: format!("data:{media_type};base64,{data}") }
        }
    }
}
