//! Makes events of a stream's chunks. Pure: text in, events out.
//!
//! Calls come whole, with an object; ids may be missing, and are made then. Signatures stand on parts, also on empty ones at the
//! end: what the model has to be given back is the parts as they came, where pieces of one text are one.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::NAME;
use crate::model::{ModelError, ModelEvent, StopReason};
use crate::protocol::{Original, Usage};
use crate::provider::wire::{
    Assemble, Length, Redactor, State, Text, arguments_or_none, call_of, count, lenient, size,
};

/// Parts of one reply that are kept, at most.
const PARTS_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(default, borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    usage_metadata: Option<WireUsage>,
    #[serde(default)]
    prompt_feedback: Option<Feedback>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default, deserialize_with = "count")]
    index: Option<u64>,
    #[serde(default, borrow)]
    content: Option<Content<'a>>,
    #[serde(default, borrow)]
    finish_reason: Text<'a>,
    #[serde(default)]
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(default, borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(default, borrow)]
    text: Option<Text<'a>>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(default, borrow)]
    thought_signature: Text<'a>,
    #[serde(default, borrow)]
    function_call: Option<WireCall<'a>>,
    /// What the provider did itself is only kept.
    #[serde(default)]
    executable_code: Option<Value>,
    #[serde(default)]
    code_execution_result: Option<Value>,
    #[serde(default)]
    tool_call: Option<Value>,
    #[serde(default)]
    tool_response: Option<Value>,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// Read apart: what is wrong with it, the model is told.
    #[serde(default, borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    #[serde(default)]
    block_reason: Option<String>,
    #[serde(default)]
    block_reason_message: Option<String>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireUsage {
    #[serde(deserialize_with = "count")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    cached_content_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    thoughts_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_token_count: Option<u64>,
}

impl WireUsage {
    fn told(self) -> Usage {
        let thoughts = self.thoughts_token_count.unwrap_or(0);
        let input = self.prompt_token_count.unwrap_or(0).saturating_add(self.tool_use_prompt_token_count.unwrap_or(0));
        let output = self.candidates_token_count.unwrap_or(0).saturating_add(thoughts);
        Usage {
            input_tokens: input,
            output_tokens: output,
            total_tokens: self.total_token_count.unwrap_or(input.saturating_add(output)),
            cached_input_tokens: self.cached_content_token_count.unwrap_or(0),
            reasoning_tokens: thoughts,
            ..Usage::default()
        }
    }
}

/// One stream's state.
pub(in crate::provider) struct Assembler {
    model: String,
    redact: Redactor,
    events: Vec<ModelEvent>,
    calls: Vec<ModelEvent>,
    /// The parts that go back, and whether they have to.
    parts: Vec<Map<String, Value>>,
    signed: bool,
    usage: Option<WireUsage>,
    stop: Option<String>,
    length: Length,
    done: bool,
}

impl Assembler {
    /// For a reply of the model of this id.
    pub(in crate::provider) fn new(model: &str, redact: Redactor) -> Self {
        Self {
            model: model.to_owned(),
            redact,
            events: Vec::new(),
            calls: Vec::new(),
            parts: Vec::new(),
            signed: false,
            usage: None,
            stop: None,
            length: Length::default(),
            done: false,
        }
    }
}

impl Assemble for Assembler {
    fn drain(&mut self) -> std::vec::Drain<'_, ModelEvent> {
        self.events.drain(..)
    }

    fn state(&self) -> State {
        State::of(self.done, self.stop.is_some())
    }

    fn take(&mut self, event: &str, data: &str) -> Result<(), ModelError> {
        if self.done || data.trim().is_empty() {
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            return self.close();
        }
        if event == "error" {
            return Err(self.redact.told_error(data));
        }
        self.take_all(data)
    }

    fn take_whole(&mut self, body: &str) -> Result<(), ModelError> {
        self.take_all(body)?;
        if self.stop.is_none() {
            let error = ModelError::Malformed("the model's provider sent JSON without the end of a reply in it".into());
            return Err(error);
        }
        self.finish()
    }

    /// Gives out the calls, the words of the wire, the tokens and the end.
    fn finish(&mut self) -> Result<(), ModelError> {
        self.done = true;
        let any = !self.calls.is_empty();
        self.events.append(&mut self.calls);
        if self.signed {
            // Thoughts that are not signed are for people.
            let goes =
                |part: &Map<String, Value>| !part.contains_key("thought") || part.contains_key("thoughtSignature");
            let items = std::mem::take(&mut self.parts).into_iter().filter(goes).map(Value::Object).collect();
            let original =
                Original { wire: NAME.to_owned(), model: std::mem::take(&mut self.model), items, paused: false };
            self.events.push(ModelEvent::Original(Arc::new(original)));
        }
        self.events.extend(self.usage.map(|usage| ModelEvent::Usage(usage.told())));
        self.events.push(ModelEvent::Finished(match self.stop.as_deref() {
            Some("MAX_TOKENS") => StopReason::Length,
            Some(
                "SAFETY"
                | "RECITATION"
                | "LANGUAGE"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT"
                | "IMAGE_RECITATION",
            ) => StopReason::ContentFilter,
            _ if any => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        }));
        Ok(())
    }
}

impl Assembler {
    /// One chunk, or a list of them, as servers send it that do not stream.
    fn take_all(&mut self, data: &str) -> Result<(), ModelError> {
        if data.trim_start().starts_with('[') {
            let chunks: Vec<Chunk<'_>> = self.redact.read(data)?;
            return chunks.into_iter().try_for_each(|chunk| self.take_chunk(chunk));
        }
        let chunk: Chunk<'_> = self.redact.read(data)?;
        self.take_chunk(chunk)
    }

    fn take_chunk(&mut self, chunk: Chunk<'_>) -> Result<(), ModelError> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(self.redact.reported(&error));
        }
        self.usage = chunk.usage_metadata.or(self.usage);
        let blocked = chunk.prompt_feedback.and_then(|told| Some((told.block_reason?, told.block_reason_message)));
        if let Some((reason, message)) = blocked {
            let said = message.map(|message| format!(": {message}")).unwrap_or_default();
            let words = format!("the model's provider does not take this conversation ({reason}){said}");
            return Err(self.redact.error(ModelError::Blocked(words)));
        }
        // One answer was asked for: whatever else a server gives is another one's.
        let ours = |candidate: &Candidate<'_>| candidate.index.is_none_or(|index| index == 0);
        let Some(candidate) = chunk.candidates.into_iter().flatten().find(ours) else { return Ok(()) };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.take_part(part)?;
        }
        match candidate.finish_reason.0.as_ref() {
            "" | "FINISH_REASON_UNSPECIFIED" => {}
            // Another try may be one that can be read; nothing has run.
            reason @ ("OTHER"
            | "MALFORMED_RESPONSE"
            | "MISSING_THOUGHT_SIGNATURE"
            | "TOO_MANY_TOOL_CALLS"
            | "NO_IMAGE"
            | "IMAGE_OTHER") => {
                let said = candidate.finish_message.map(|message| format!(": {message}")).unwrap_or_default();
                let message = format!("the model's provider ended the answer in its middle ({reason}){said}");
                return Err(self.redact.error(ModelError::Transient { message, retry_after: None }));
            }
            reason @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
                let said = candidate.finish_message.map(|message| format!(": {message}")).unwrap_or_default();
                let message = format!("the model made a call that its provider cannot read ({reason}){said}");
                return Err(self.redact.error(ModelError::Transient { message, retry_after: None }));
            }
            reason => self.stop = Some(reason.to_owned()),
        }
        Ok(())
    }

    fn take_part(&mut self, part: Part<'_>) -> Result<(), ModelError> {
        let Part { text, thought, thought_signature: Text(signature), function_call, .. } = part;
        let others = [
            ("executableCode", part.executable_code),
            ("codeExecutionResult", part.code_execution_result),
            ("toolCall", part.tool_call),
            ("toolResponse", part.tool_response),
        ];
        let thought = thought.unwrap_or(false);
        let does = function_call.is_some() || others.iter().any(|(_, value)| value.is_some());
        let has_text = text.is_some();
        if let Some(Text(text)) = text {
            self.length.add(text.len())?;
            // Beside a call the signature is the call's.
            let signature = if does { "" } else { &*signature };
            if thought || !text.is_empty() || !signature.is_empty() {
                self.keep_text(&text, thought, signature)?;
            }
            match (text.is_empty(), thought) {
                (true, _) => {}
                (false, true) => self.events.push(ModelEvent::Reasoning(text.into_owned())),
                (false, false) => self.events.push(ModelEvent::Text(text.into_owned())),
            }
        }
        if !does && has_text {
            return Ok(());
        }
        let mut kept = Map::new();
        if let Some(call) = function_call {
            kept.insert("functionCall".to_owned(), self.take_call(call)?);
        }
        for (name, value) in others.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            self.signed = true;
            self.length.add(size(&value))?;
            kept.insert(name.to_owned(), value);
        }
        if kept.is_empty() && signature.is_empty() {
            return Ok(());
        }
        self.keep(kept, &signature)
    }

    /// Pieces of a text that have no signature are one.
    fn keep_text(&mut self, text: &str, thought: bool, signature: &str) -> Result<(), ModelError> {
        let goes_on = self.parts.last_mut().filter(|last| {
            let same = last.get("thought").is_some() == thought;
            same && !last.contains_key("thoughtSignature") && signature.is_empty()
        });
        if let Some(Value::String(said)) = goes_on.and_then(|last| last.get_mut("text")) {
            said.push_str(text);
            return Ok(());
        }
        let mut kept = Map::from_iter([("text".to_owned(), Value::from(text))]);
        if thought {
            kept.insert("thought".to_owned(), true.into());
        }
        self.keep(kept, signature)
    }

    fn keep(&mut self, mut part: Map<String, Value>, signature: &str) -> Result<(), ModelError> {
        if self.parts.len() >= PARTS_MAX {
            return Err(ModelError::Malformed(format!("the model's reply has more than {PARTS_MAX} parts")));
        }
        if !signature.is_empty() {
            self.signed = true;
            self.length.add(signature.len())?;
            part.insert("thoughtSignature".to_owned(), signature.into());
        }
        self.parts.push(part);
        Ok(())
    }

    /// A call, and the same in the words of the wire.
    fn take_call(&mut self, call: WireCall<'_>) -> Result<Value, ModelError> {
        let WireCall { id, name, args } = call;
        let name = name.unwrap_or_default();
        let args = args.map(RawValue::get).filter(|args| *args != "null");
        self.length.add(name.len() + args.map_or(0, str::len))?;
        let mut kept = Map::from_iter([("name".to_owned(), Value::from(name.as_str()))]);
        let given = id.filter(|id| !id.is_empty());
        kept.extend(given.as_deref().map(|id| ("id".to_owned(), Value::from(id))));
        kept.extend(args.map(|args| ("args".to_owned(), arguments_or_none(args).into())));
        let id = given.unwrap_or_else(|| format!("call_{:016x}", RandomState::new().hash_one(self.calls.len())));
        self.calls.push(call_of((id, name), args.unwrap_or_default(), false));
        Ok(Value::Object(kept))
    }
}
