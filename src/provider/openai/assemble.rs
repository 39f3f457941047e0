//! Makes events of a stream's chunks. Pure: text in, events out.
//!
//! Calls come in pieces: found by their index where there is one, by their id or simply as the last one
//! where there is none; ids and names may come late, arguments are cut anywhere. A call counts when
//! the model has stopped.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::own::Own;
use crate::model::{ModelError, ModelEvent, StopReason, add_text};
use crate::protocol::{Cost, Usage};
use crate::provider::wire::{
    Alike, Assemble, Length, Redactor, State, Words, amount, call_of, count, cut_short, from_object, lenient,
};

/// Calls of one reply, at most.
const CALLS_MAX: usize = 1_000;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default, borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

impl Chunk<'_> {
    /// Its text, where it says nothing else, in words that stand in the data as they are.
    fn text_alone(&self) -> Option<&str> {
        let (Some([choice]), None, None) = (self.choices.as_deref(), self.usage, &self.error) else { return None };
        let (Some(delta), None, None, true) = (&choice.delta, choice.usage, &choice.error, choice.is_ours()) else {
            return None;
        };
        let Some(Words { text: Cow::Borrowed(text), .. }) = &delta.content else { return None };
        let others = [&choice.finish_reason, &delta.refusal, &delta.reasoning_content, &delta.reasoning];
        let nothing = others.iter().all(|words| words.as_deref().is_none_or(str::is_empty))
            && delta.reasoning_details.as_ref().is_none_or(Vec::is_empty)
            && delta.tool_calls.as_ref().is_none_or(Vec::is_empty);
        nothing.then_some(text)
    }
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, deserialize_with = "count")]
    index: Option<u64>,
    /// `message` is the whole of an answer that is not streamed.
    #[serde(default, borrow, alias = "message")]
    delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    finish_reason: Option<Cow<'a, str>>,
    /// Moonshot has the tokens here.
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

impl Choice<'_> {
    /// One answer was asked for: whatever else a server gives, in whatever order, is another one's.
    fn is_ours(&self) -> bool {
        self.index.is_none_or(|index| index == 0)
    }
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default, borrow)]
    content: Option<Words<'a>>,
    #[serde(default, borrow)]
    refusal: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reasoning: Option<Cow<'a, str>>,
    /// OpenRouter's, which it wants back.
    #[serde(default)]
    reasoning_details: Option<Vec<Value>>,
    #[serde(default, borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    function: Option<FunctionDelta<'a>>,
    /// Gemini's signatures of thoughts, which it wants back.
    #[serde(default)]
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    arguments: Option<Words<'a>>,
}

#[derive(Deserialize, Clone, Copy)]
struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    prompt_tokens_details: Option<WireDetails>,
    #[serde(default, deserialize_with = "lenient")]
    completion_tokens_details: Option<WireDetails>,
    /// DeepSeek's name for it.
    #[serde(default, deserialize_with = "count")]
    prompt_cache_hit_tokens: Option<u64>,
    /// In US dollars, as OpenRouter says.
    #[serde(default, deserialize_with = "amount")]
    cost: Option<f64>,
}

#[derive(Deserialize, Clone, Copy)]
struct WireDetails {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let (input, output) = (wire.prompt_tokens.unwrap_or(0), wire.completion_tokens.unwrap_or(0));
        let (sent, received) = (wire.prompt_tokens_details, wire.completion_tokens_details);
        let cached = sent.and_then(|all| all.cached_tokens).or(wire.prompt_cache_hit_tokens);
        Self {
            input_tokens: input,
            output_tokens: output,
            total_tokens: wire.total_tokens.unwrap_or(input.saturating_add(output)),
            cached_input_tokens: cached.unwrap_or(0),
            cache_write_tokens: sent.and_then(|all| all.cache_write_tokens).unwrap_or(0),
            reasoning_tokens: received.and_then(|all| all.reasoning_tokens).unwrap_or(0),
            cost: Cost::of_dollars(wire.cost.unwrap_or(0.0)),
        }
    }
}

/// A call of which parts have come.
#[derive(Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    extra: Option<Value>,
}

/// One stream's state.
pub(super) struct Assembler {
    redact: Redactor,
    events: Vec<ModelEvent>,
    calls: Vec<Partial>,
    own: Own,
    usage: Option<WireUsage>,
    stop: Option<StopReason>,
    refused: bool,
    /// Anything at all was said.
    spoke: bool,
    length: Length,
    alike: Alike,
    done: bool,
}

impl Assembler {
    /// For an answer of that model.
    pub fn new(model: &str, redact: Redactor) -> Self {
        Self {
            redact,
            events: Vec::new(),
            calls: Vec::new(),
            own: Own::of(model),
            usage: None,
            stop: None,
            refused: false,
            spoke: false,
            length: Length::default(),
            alike: Alike::default(),
            done: false,
        }
    }

    pub fn redact(&self, error: ModelError) -> ModelError {
        self.redact.error(error)
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
        if let Some(text) = self.alike.text(event, data) {
            self.count(text.len())?;
            add_text(&mut self.events, text);
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            return if self.stop.is_some() || self.spoke { self.finish() } else { Err(cut_short()) };
        }
        if event == "error" {
            let data = self.redact.text(data.to_owned());
            let value: Value = serde_json::from_str(&data).unwrap_or_else(|_| Value::from(data.as_str()));
            return Err(self.redact(from_object(value.get("error").unwrap_or(&value))));
        }
        self.take_chunk(event, data)
    }

    fn take_whole(&mut self, body: &str) -> Result<(), ModelError> {
        self.take_chunk("", body)?;
        if self.stop.is_none() && !self.spoke {
            let error = ModelError::Malformed("the model's provider sent JSON without any choice in it".into());
            return Err(error);
        }
        self.finish()
    }

    /// Gives out the calls, the tokens and the end.
    fn finish(&mut self) -> Result<(), ModelError> {
        self.done = true;
        let length = self.stop == Some(StopReason::Length);
        let calls = std::mem::take(&mut self.calls);
        let any = !calls.is_empty();
        let extras = calls.iter().map(|call| (call.id.as_str(), call.extra.as_ref()));
        let own = std::mem::take(&mut self.own).finish(extras);
        let whole = |Partial { id, name, arguments, .. }: Partial| call_of((id, name), &arguments, length);
        self.events.extend(calls.into_iter().map(whole));
        self.events.extend(own.map(|own| ModelEvent::Original(Arc::new(own))));
        self.events.extend(self.usage.map(|usage| ModelEvent::Usage(usage.into())));
        let stop = match self.stop {
            None | Some(StopReason::EndTurn) if any => StopReason::ToolUse,
            // Also where it was cut: half a refusal is one.
            None | Some(StopReason::EndTurn | StopReason::Length) if self.refused && !any => StopReason::Refusal,
            stop => stop.unwrap_or(StopReason::EndTurn),
        };
        self.events.push(ModelEvent::Finished(stop));
        Ok(())
    }
}

impl Assembler {
    fn take_chunk(&mut self, event: &str, data: &str) -> Result<(), ModelError> {
        let chunk: Chunk<'_> = self.redact.read(data)?;
        if let Some(text) = chunk.text_alone() {
            self.alike.learn(event, data, text);
        }
        self.check(chunk.error)?;
        self.usage = chunk.usage.or(self.usage);
        let Some(choice) = chunk.choices.into_iter().flatten().find(Choice::is_ours) else { return Ok(()) };
        self.check(choice.error)?;
        self.usage = choice.usage.or(self.usage);
        if let Some(delta) = choice.delta {
            self.take_delta(delta)?;
        }
        // Some send an empty reason until there is one.
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.stop = Some(stop_reason(&reason)?);
        }
        Ok(())
    }

    /// What stands where an error does.
    fn check(&self, error: Option<Value>) -> Result<(), ModelError> {
        let Some(error) = error.filter(|error| !error.is_null()) else { return Ok(()) };
        let said = self.redact.text(error.to_string());
        Err(from_object(&serde_json::from_str(&said).unwrap_or(Value::from(said))))
    }

    fn take_delta(&mut self, delta: Delta<'_>) -> Result<(), ModelError> {
        let content = delta.content.unwrap_or_default();
        if let Some(text) = &delta.reasoning_content {
            self.own.thinks(text);
        }
        let thoughts = [delta.reasoning_content.or(delta.reasoning).map(Cow::into_owned), Some(content.thoughts)];
        for text in thoughts.into_iter().flatten().filter(|text| !text.is_empty()) {
            self.count(text.len())?;
            self.events.push(ModelEvent::Reasoning(text));
        }
        for detail in delta.reasoning_details.into_iter().flatten() {
            let bytes = self.own.details(detail)?;
            self.count(bytes)?;
        }
        let refusal = delta.refusal.filter(|text| !text.is_empty());
        self.refused |= refusal.is_some();
        for text in [Some(content.text), refusal].into_iter().flatten().filter(|text| !text.is_empty()) {
            self.count(text.len())?;
            add_text(&mut self.events, &text);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            let bytes = call.function.as_ref().map_or(0, |function| {
                let name = function.name.as_ref().map_or(0, |name| name.len());
                name + function.arguments.as_ref().map_or(0, |words| words.text.len())
            });
            self.count(bytes)?;
            self.take_call(call)?;
        }
        Ok(())
    }

    /// Something was said. Errors when it is too much.
    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.spoke = true;
        self.length.add(bytes)
    }

    fn take_call(&mut self, delta: CallDelta<'_>) -> Result<(), ModelError> {
        let at = match self.place_of(&delta) {
            Some(at) => at,
            None if self.calls.len() >= CALLS_MAX => {
                return Err(ModelError::Malformed(format!("the model's reply has more than {CALLS_MAX} calls")));
            }
            None => {
                self.calls.push(Partial { index: delta.index, ..Partial::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if let Some(id) = delta.id.filter(|id| !id.is_empty()) {
            call.id = id.into_owned();
        }
        if delta.extra_content.is_some() {
            call.extra = delta.extra_content;
        }
        let Some(function) = delta.function else { return Ok(()) };
        // Some repeat the whole name with every piece.
        if let Some(name) = function.name.filter(|name| **name != call.name) {
            call.name.push_str(&name);
        }
        if let Some(arguments) = function.arguments {
            call.arguments.push_str(&arguments.text);
        }
        Ok(())
    }

    /// Which call a piece belongs to. None: a new one.
    fn place_of(&self, delta: &CallDelta<'_>) -> Option<usize> {
        let id = delta.id.as_deref().filter(|id| !id.is_empty());
        let names = delta.function.as_ref().and_then(|f| f.name.as_deref()).is_some_and(|name| !name.is_empty());
        let found = match (delta.index, id) {
            (Some(_), _) => self.calls.iter().rposition(|call| call.index == delta.index),
            (None, Some(id)) => return self.calls.iter().rposition(|call| call.id == id),
            (None, None) => self.calls.len().checked_sub(1),
        }?;
        // Some give every call the index 0; a call that has a name and an id is not renamed.
        let other = id.is_some_and(|id| !self.calls[found].id.is_empty() && self.calls[found].id != id);
        if other && names { None } else { Some(found) }
    }
}

/// Why it stopped, in the words that servers have for it.
///
/// # Errors
/// [`ModelError::Transient`]: it did not stop by itself.
fn stop_reason(word: &str) -> Result<StopReason, ModelError> {
    Ok(match word {
        "length" | "model_length" | "max_tokens" => StopReason::Length,
        "content_filter" | "sensitive" | "safety" => StopReason::ContentFilter,
        "refusal" => StopReason::Refusal,
        "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
        "abort" | "error" | "network_error" | "insufficient_system_resource" => {
            let message = format!("the model's provider broke the reply off (`{word}`)");
            return Err(ModelError::Transient { message, retry_after: None });
        }
        // `stop`, `eos`, `end_turn`, and what others may call it.
        _ => StopReason::EndTurn,
    })
}
