//! Makes events of a stream's events. Pure: text in, events out.
//!
//! Texts and reasoning are given out as they come. Items are kept as they came; what an item says when it is done counts more
//! than the pieces of it, and where nothing of it came in pieces it is given out then. Servers differ in what they tell: some
//! never end the arguments of a call, some number no items, some send the whole at the end alone. Calls count when the response
//! has its end.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::NAME;
use crate::model::{ModelError, ModelEvent, StopReason};
use crate::protocol::{Original, Usage};
use crate::provider::wire::{
    Assemble, Length, Redactor, Shared, State, Words, call_of, count, cut_short, from_object, lenient,
};

/// Items of one reply, at most.
const ITEMS_MAX: usize = 1_000;

/// An event, as far as it is needed.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default, borrow)]
    item_id: Option<Shared<'a>>,
    #[serde(default)]
    summary_index: Option<u64>,
    #[serde(default)]
    delta: Option<String>,
    /// The whole of what came in pieces.
    #[serde(default, borrow)]
    arguments: Option<Words<'a>>,
    #[serde(default, borrow)]
    item: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
}

/// A response at its end.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(default, borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    incomplete_details: Option<Incomplete>,
    #[serde(default, borrow)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Incomplete {
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient")]
    input_tokens_details: Option<WireDetails>,
    #[serde(default, deserialize_with = "lenient")]
    output_tokens_details: Option<WireDetails>,
}

#[derive(Deserialize, Clone, Copy)]
struct WireDetails {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

/// What it is about, of one that is not understood.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// An item, as far as it is understood.
#[derive(Deserialize)]
struct WireItem<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    arguments: Option<Words<'a>>,
    #[serde(default)]
    content: Option<Vec<WirePart>>,
    #[serde(default)]
    summary: Option<Vec<WirePart>>,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct WirePart {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    annotations: Option<Vec<Value>>,
}

/// An item of which something has come.
#[derive(Default)]
struct Partial {
    index: Option<u64>,
    id: Option<String>,
    call: Option<Call>,
    /// Something of its text was given out.
    spoke: bool,
    done: bool,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// One stream's state.
pub(in crate::provider) struct Assembler {
    model: String,
    redact: Redactor,
    events: Vec<ModelEvent>,
    items: Vec<Partial>,
    /// The items that are done, as they came.
    originals: Vec<Value>,
    /// One of them says more than a text or a call of ours can.
    says_more: bool,
    refused: bool,
    length: Length,
    done: bool,
}

impl Assembler {
    pub(in crate::provider) fn new(model: &str, redact: Redactor) -> Self {
        Self {
            model: model.to_owned(),
            redact,
            events: Vec::new(),
            items: Vec::new(),
            originals: Vec::new(),
            says_more: false,
            refused: false,
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
        State::of(self.done, false)
    }

    fn take(&mut self, event: &str, data: &str) -> Result<(), ModelError> {
        if self.done || data.trim().is_empty() {
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            return Err(cut_short());
        }
        if event == "error" {
            return Err(self.failed(data));
        }
        let read: Event<'_> = match self.redact.read(data) {
            Ok(read) => read,
            // One that nobody here knows may have any form.
            Err(_) if serde_json::from_str::<Kind<'_>>(data).is_ok_and(|other| !is_known(&other.kind)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let kind = if read.kind.is_empty() { Cow::Borrowed(event) } else { read.kind.clone() };
        self.take_event(&kind, read, data)
    }

    fn take_whole(&mut self, body: &str) -> Result<(), ModelError> {
        let response: Response<'_> = self.redact.read(body)?;
        if response.error.as_ref().is_none_or(Value::is_null) && response.status.is_none() && response.output.is_none()
        {
            let error = ModelError::Malformed("the model's provider sent JSON that is no response".into());
            return Err(error);
        }
        self.end(&response)
    }
}

impl Assembler {
    /// An error object, or what has one in it.
    fn failed(&self, data: &str) -> ModelError {
        let data = self.redact.text(data.to_owned());
        let value: Value = serde_json::from_str(&data).unwrap_or_else(|_| Value::from(data.as_str()));
        let inner = ["error", "response"].iter().find_map(|name| value.get(*name).filter(|inner| !inner.is_null()));
        let inner = inner.map(|inner| inner.get("error").unwrap_or(inner)).unwrap_or(&value);
        self.redact.error(from_object(inner))
    }

    /// What is no event: some send an error in place of one.
    fn nameless(&self, data: &str) -> ModelError {
        let has_error = serde_json::from_str::<Value>(data).is_ok_and(|value| value.get("error").is_some());
        if has_error {
            return self.failed(data);
        }
        let start: String = self.redact.text(data.to_owned()).chars().take(80).collect();
        ModelError::Malformed(format!("the model's stream: an event without a type: `{start}`"))
    }

    fn take_event(&mut self, kind: &str, event: Event<'_>, data: &str) -> Result<(), ModelError> {
        match kind {
            "response.output_text.delta" => self.speak(&event, ModelEvent::Text),
            "response.refusal.delta" => {
                self.refused = true;
                self.speak(&event, ModelEvent::Text)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.speak(&event, ModelEvent::Reasoning)
            }
            // Each part is a paragraph.
            "response.reasoning_summary_part.added" if event.summary_index.is_some_and(|index| index > 0) => {
                self.events.push(ModelEvent::Reasoning("\n\n".to_owned()));
                Ok(())
            }
            "response.output_item.added" => self.begin(&event),
            "response.function_call_arguments.delta" => {
                let piece = event.delta.as_deref().unwrap_or_default();
                self.length.add(piece.len())?;
                let at = self.place_of(&event)?;
                self.items[at].call.get_or_insert_default().arguments.push_str(piece);
                Ok(())
            }
            "response.function_call_arguments.done" => {
                let at = self.place_of(&event)?;
                let whole = event.arguments.map(|words| words.text.into_owned());
                set(&mut self.items[at].call.get_or_insert_default().arguments, whole);
                Ok(())
            }
            "response.output_item.done" => match event.item {
                Some(item) => {
                    let at = self.place_of(&event)?;
                    self.settle(at, item)
                }
                None => Ok(()),
            },
            "response.completed" | "response.incomplete" | "response.done" => match event.response {
                Some(response) => {
                    let response = self.redact.read(response.get())?;
                    self.end(&response)
                }
                None => Err(ModelError::Malformed(format!("the model's stream: `{kind}` without a response"))),
            },
            "response.failed" | "error" => Err(self.failed(data)),
            "" => Err(self.nameless(data)),
            _ => Ok(()),
        }
    }

    /// A piece of a text.
    fn speak(&mut self, event: &Event<'_>, tell: fn(String) -> ModelEvent) -> Result<(), ModelError> {
        let Some(text) = event.delta.as_ref().filter(|text| !text.is_empty()) else { return Ok(()) };
        self.length.add(text.len())?;
        let at = self.place_of(event)?;
        self.items[at].spoke = true;
        self.events.push(tell(text.clone()));
        Ok(())
    }

    /// An item begins.
    fn begin(&mut self, event: &Event<'_>) -> Result<(), ModelError> {
        let Some(item) = event.item else { return Ok(()) };
        let item: WireItem<'_> = self.redact.read(item.get())?;
        let at = self.add(Partial { index: event.output_index, id: item.id, ..Partial::default() })?;
        if item.kind == "function_call" {
            let (id, name) = (item.call_id.unwrap_or_default(), item.name.unwrap_or_default());
            self.length.add(id.len() + name.len())?;
            self.items[at].call =
                Some(Call { id, name, arguments: item.arguments.unwrap_or_default().text.into_owned() });
        }
        Ok(())
    }

    fn add(&mut self, item: Partial) -> Result<usize, ModelError> {
        if self.items.len() >= ITEMS_MAX {
            return Err(ModelError::Malformed(format!("the model's reply has more than {ITEMS_MAX} items")));
        }
        self.items.push(item);
        Ok(self.items.len() - 1)
    }

    /// Which item an event is about: the one of that number or id, or the last one that is not done, or a new one.
    fn place_of(&mut self, event: &Event<'_>) -> Result<usize, ModelError> {
        let index = event.output_index;
        let own_id = event.item.and_then(|item| serde_json::from_str::<WireItem<'_>>(item.get()).ok()?.id);
        let id = event.item_id.as_ref().map(|id| id.0.as_ref()).or(own_id.as_deref());
        let found = match (index, id) {
            (Some(_), _) => self.items.iter().rposition(|item| item.index == index),
            (None, Some(_)) => self.items.iter().rposition(|item| item.id.as_deref() == id),
            (None, None) => self.items.iter().rposition(|item| !item.done),
        };
        match found {
            Some(at) => Ok(at),
            None => self.add(Partial { index, id: id.map(str::to_owned), ..Partial::default() }),
        }
    }

    /// An item is whole.
    fn settle(&mut self, at: usize, whole: &RawValue) -> Result<(), ModelError> {
        if std::mem::replace(&mut self.items[at].done, true) {
            return Ok(());
        }
        self.length.add(whole.get().len())?;
        let item: WireItem<'_> = self.redact.read(whole.get())?;
        self.says_more |= says_more(&item);
        self.originals.push(self.redact.read(whole.get())?);
        let partial = &mut self.items[at];
        if item.kind == "function_call" {
            let call = partial.call.get_or_insert_default();
            set(&mut call.id, item.call_id.or(item.id));
            set(&mut call.name, item.name);
            set(&mut call.arguments, item.arguments.map(|words| words.text.into_owned()));
            return Ok(());
        }
        let spoke = partial.spoke;
        let thinks = item.kind == "reasoning";
        let summary = item.summary.unwrap_or_default().into_iter().filter_map(|part| part.text).collect::<Vec<_>>();
        if thinks && !spoke && !summary.is_empty() {
            self.events.push(ModelEvent::Reasoning(summary.join("\n\n")));
        }
        for part in item.content.into_iter().flatten() {
            self.refused |= part.refusal.is_some();
            let text = part.text.or(part.refusal).filter(|text| !text.is_empty() && !spoke);
            self.events.extend(text.map(if thinks { ModelEvent::Reasoning } else { ModelEvent::Text }));
        }
        Ok(())
    }

    /// The item of that number is whole, as the end of the response says.
    fn settle_at(&mut self, index: usize, item: &RawValue) -> Result<(), ModelError> {
        let number = Some(index as u64);
        let known = self.items.iter().position(|item| item.index == number);
        let unnumbered = || self.items.get(index).filter(|item| item.index.is_none()).map(|_| index);
        let at = match known.or_else(unnumbered) {
            Some(at) => at,
            None => self.add(Partial { index: number, ..Partial::default() })?,
        };
        self.settle(at, item)
    }

    /// The response has its end: gives out what came with it alone, the calls, the tokens and the end.
    fn end(&mut self, response: &Response<'_>) -> Result<(), ModelError> {
        if let Some(error) = response.error.as_ref().filter(|error| !error.is_null()) {
            return Err(self.failed(&error.to_string()));
        }
        let status = response.status.as_deref().unwrap_or("completed");
        if matches!(status, "failed" | "cancelled") {
            let message = format!("the model's provider says that the response is {status}, and not why");
            return Err(ModelError::Transient { message, retry_after: None });
        }
        if !self.items.iter().any(|item| item.done) {
            for (index, item) in response.output.iter().flatten().enumerate() {
                self.settle_at(index, item)?;
            }
        }
        let incomplete = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        let cut = (status == "incomplete").then_some(match incomplete {
            Some("content_filter") => StopReason::ContentFilter,
            _ => StopReason::Length,
        });
        self.done = true;
        let calls: Vec<Call> = std::mem::take(&mut self.items).into_iter().filter_map(|item| item.call).collect();
        let any = !calls.is_empty();
        let whole =
            |Call { id, name, arguments }: Call| call_of((id, name), &arguments, cut == Some(StopReason::Length));
        self.events.extend(calls.into_iter().map(whole));
        // Of what was cut the last item is not whole: it is of no use to anybody.
        if self.says_more && cut.is_none() {
            let (wire, model, items) = (NAME.to_owned(), self.model.clone(), std::mem::take(&mut self.originals));
            self.events.push(ModelEvent::Original(Arc::new(Original { wire, model, items, paused: false })));
        }
        self.events.extend(response.usage.map(|usage| ModelEvent::Usage(usage.into())));
        let stop = match cut {
            // Half a refusal is one.
            None | Some(StopReason::Length) if self.refused && !any => StopReason::Refusal,
            Some(stop) => stop,
            None if any => StopReason::ToolUse,
            None => StopReason::EndTurn,
        };
        self.events.push(ModelEvent::Finished(stop));
        Ok(())
    }
}

/// Whether an event says something here.
fn is_known(kind: &str) -> bool {
    kind.is_empty()
        || kind == "error"
        || ["response.output", "response.refusal", "response.reasoning", "response.function_call_arguments"]
            .iter()
            .any(|front| kind.starts_with(front))
        || ["response.completed", "response.incomplete", "response.done", "response.failed"].contains(&kind)
}

fn set(text: &mut String, new: Option<String>) {
    if let Some(new) = new.filter(|new| !new.is_empty()) {
        *text = new;
    }
}

/// Whether an item says what a text or a call of ours cannot.
fn says_more(item: &WireItem<'_>) -> bool {
    match item.kind.as_ref() {
        "message" => {
            let noted = |part: &WirePart| part.annotations.as_ref().is_some_and(|notes| !notes.is_empty());
            item.phase.is_some() || item.content.iter().flatten().any(|part| noted(part) || part.refusal.is_some())
        }
        "function_call" => item.namespace.is_some(),
        _ => true,
    }
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let (input, output) = (wire.input_tokens.unwrap_or(0), wire.output_tokens.unwrap_or(0));
        Self {
            input_tokens: input,
            output_tokens: output,
            total_tokens: wire.total_tokens.unwrap_or(input.saturating_add(output)),
            cached_input_tokens: wire.input_tokens_details.and_then(|all| all.cached_tokens).unwrap_or(0),
            reasoning_tokens: wire.output_tokens_details.and_then(|all| all.reasoning_tokens).unwrap_or(0),
            ..Self::default()
        }
    }
}
