//! Makes events of a stream's events. Pure: text in, events out.
//!
//! A reply is a list of blocks. Pieces belong to a block by its index; several may be open at once, and some servers close
//! all of them at the end. A call counts when the model has stopped. Kinds of events and blocks that are not known say nothing
//! and harm nothing.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::NAME;
use crate::model::{ModelError, ModelEvent, StopReason, add_reasoning, add_text};
use crate::protocol::{Original, Usage};
use crate::provider::wire::{
    Alike, Assemble, Length, Redactor, State, Text, arguments_or_none, call_of, count, lenient, size,
};

/// Blocks of one reply, at most.
const BLOCKS_MAX: usize = 1_000;

/// Any event, and the whole of an answer that is not streamed.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow)]
    r#type: Text<'a>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    delta: Option<Delta<'a>>,
    #[serde(default)]
    content_block: Option<Map<String, Value>>,
    #[serde(default)]
    message: Option<Whole>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(borrow)]
    partial_json: Text<'a>,
    #[serde(borrow)]
    thinking: Text<'a>,
    #[serde(borrow)]
    signature: Text<'a>,
    #[serde(borrow)]
    stop_reason: Text<'a>,
}

impl Delta<'_> {
    /// What it says, and whether that is a text, arguments or thinking.
    fn words(&self) -> (Kind, &str) {
        let all = [(Kind::Text, &self.text), (Kind::Call, &self.partial_json), (Kind::Thinking, &self.thinking)];
        let said = all.into_iter().find(|(_, words)| !words.0.is_empty());
        said.map_or((Kind::Thinking, ""), |(kind, words)| (kind, words.0.as_ref()))
    }

    /// The same where it says nothing else, in words that stand in the event as they are.
    fn alone(&self) -> Option<(Kind, &str)> {
        let all = [&self.text, &self.partial_json, &self.thinking, &self.signature, &self.stop_reason];
        let mut said = all.into_iter().filter(|words| !words.0.is_empty());
        let alone = said.next().is_some_and(|words| matches!(words.0, Cow::Borrowed(_))) && said.next().is_none();
        Some(self.words()).filter(|(_, words)| alone && !words.is_empty())
    }
}

/// A message.
#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    content: Vec<Map<String, Value>>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<WireUsage>,
}

/// Tokens so far. Later ones replace those of before.
#[derive(Deserialize, Clone, Copy, Default)]
#[serde(default)]
struct WireUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    output_tokens_details: Option<WireDetails>,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(default)]
struct WireDetails {
    #[serde(deserialize_with = "count")]
    thinking_tokens: Option<u64>,
}

impl WireUsage {
    fn updated(self, later: Self) -> Self {
        Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            cache_creation_input_tokens: later.cache_creation_input_tokens.or(self.cache_creation_input_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
        }
    }

    /// What the wire calls input is what was neither read from the cache nor put into it.
    fn told(self) -> Usage {
        let (read, written) =
            (self.cache_read_input_tokens.unwrap_or(0), self.cache_creation_input_tokens.unwrap_or(0));
        let input = self.input_tokens.unwrap_or(0).saturating_add(read).saturating_add(written);
        let output = self.output_tokens.unwrap_or(0);
        Usage {
            input_tokens: input,
            output_tokens: output,
            total_tokens: input.saturating_add(output),
            cached_input_tokens: read,
            cache_write_tokens: written,
            reasoning_tokens: self.output_tokens_details.and_then(|all| all.thinking_tokens).unwrap_or(0),
            ..Usage::default()
        }
    }
}

/// What a block is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
    /// It is only kept.
    Other,
}

/// A block of which parts have come.
struct Block {
    index: Option<u64>,
    kind: Kind,
    /// As it began.
    begun: Map<String, Value>,
    /// Its text, its thinking, or its arguments.
    words: String,
    signature: String,
}

/// One stream's state.
pub(in crate::provider) struct Assembler {
    model: String,
    redact: Redactor,
    events: Vec<ModelEvent>,
    blocks: Vec<Block>,
    usage: Option<WireUsage>,
    stop: Option<String>,
    length: Length,
    /// The last piece: what it belongs to, and what stands about it.
    last: (Option<u64>, Kind),
    alike: Alike,
    done: bool,
}

impl Assembler {
    /// For a reply of the model of this id.
    pub(in crate::provider) fn new(model: &str, redact: Redactor) -> Self {
        Self {
            model: model.to_owned(),
            redact,
            events: Vec::new(),
            blocks: Vec::new(),
            usage: None,
            stop: None,
            length: Length::default(),
            last: (None, Kind::Other),
            alike: Alike::default(),
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
        if let Some(words) = self.alike.text(event, data) {
            let (index, kind) = self.last;
            return self.add(index, kind, words, "");
        }
        // Some end with the word of another wire.
        if data.trim() == "[DONE]" {
            return self.close();
        }
        if event == "error" {
            return Err(self.redact.told_error(data));
        }
        let name = event;
        let event: Event<'_> = self.redact.read(data)?;
        if let Some(error) = event.error.filter(|error| !error.is_null()) {
            return Err(self.redact.reported(&error));
        }
        if let (Some(delta), None, "content_block_delta") = (&event.delta, event.usage, event.r#type.0.as_ref())
            && let Some((kind, words)) = delta.alone()
        {
            self.alike.learn(name, data, words);
            self.last = (event.index, kind);
        }
        if let Some(usage) = event.usage {
            self.usage = Some(self.usage.unwrap_or_default().updated(usage));
        }
        match event.r#type.0.as_ref() {
            "content_block_delta" => self.take_delta(event.index, &event.delta.unwrap_or_default()),
            "content_block_start" => self.begin(event.index, event.content_block.unwrap_or_default()),
            "message_start" => {
                if let Some(message) = event.message {
                    self.take_start(message)?;
                }
                Ok(())
            }
            "message_delta" => {
                let reason = event.delta.unwrap_or_default().stop_reason.0;
                if !reason.is_empty() {
                    self.stop = Some(reason.into_owned());
                }
                Ok(())
            }
            "message_stop" => self.close(),
            _ => Ok(()),
        }
    }

    fn take_whole(&mut self, body: &str) -> Result<(), ModelError> {
        let event: Event<'_> = self.redact.read(body)?;
        if let Some(error) = event.error.filter(|error| !error.is_null()) {
            return Err(self.redact.reported(&error));
        }
        let whole: Whole = self.redact.read(body)?;
        if whole.stop_reason.is_none() && whole.content.is_empty() {
            let error = ModelError::Malformed("the model's provider sent JSON without any content in it".into());
            return Err(error);
        }
        let stop = whole.stop_reason.clone().unwrap_or_else(|| "end_turn".to_owned());
        self.take_start(whole)?;
        self.stop = Some(stop);
        self.finish()
    }

    /// Gives out the calls, the words of the wire, the tokens and the end.
    fn finish(&mut self) -> Result<(), ModelError> {
        self.done = true;
        let reason = self.stop.take().unwrap_or_default();
        let blocks = std::mem::take(&mut self.blocks);
        let calls = blocks.iter().any(|block| block.kind == Kind::Call);
        let said = calls || blocks.iter().any(|block| block.kind == Kind::Text && !block.words.trim().is_empty());
        let full = reason == "model_context_window_exceeded";
        if full && !said {
            let words = "the conversation fills the model's window: no room is left for a reply";
            return Err(ModelError::Overflow(words.to_owned()));
        }
        let length = full || reason == "max_tokens";
        self.events.extend(blocks.iter().filter(|block| block.kind == Kind::Call).map(|block| block.call(length)));
        // What a provider has paused goes back as it is, whatever it is: the model goes on with it.
        let paused = reason == "pause_turn" && !calls && !blocks.is_empty();
        if paused || blocks.iter().any(Block::goes_back) {
            // What was cut before its signature is not taken back.
            let whole = |block: &&Block| !(length && block.kind == Kind::Thinking && block.signature.is_empty());
            let items: Vec<Value> = blocks.iter().filter(whole).filter_map(Block::as_it_came).collect();
            let original = Original { wire: NAME.to_owned(), model: self.model.clone(), items, paused };
            self.events.push(ModelEvent::Original(Arc::new(original)));
        }
        self.events.extend(self.usage.map(|usage| ModelEvent::Usage(usage.told())));
        self.events.push(ModelEvent::Finished(match reason.as_str() {
            _ if length => StopReason::Length,
            "refusal" => StopReason::Refusal,
            _ if calls => StopReason::ToolUse,
            _ if paused => StopReason::Paused,
            _ => StopReason::EndTurn,
        }));
        Ok(())
    }
}

impl Assembler {
    /// A message as it begins, or is.
    fn take_start(&mut self, message: Whole) -> Result<(), ModelError> {
        for block in message.content {
            self.begin(None, block)?;
        }
        if let Some(usage) = message.usage {
            self.usage = Some(usage);
            // What was sent is paid for, whatever becomes of the answer.
            self.events.push(ModelEvent::Usage(usage.told()));
        }
        Ok(())
    }

    fn begin(&mut self, index: Option<u64>, begun: Map<String, Value>) -> Result<(), ModelError> {
        let word = |name: &str| begun.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, words) = match begun.get("type").and_then(Value::as_str) {
            Some("text") => (Kind::Text, word("text")),
            Some("thinking") => (Kind::Thinking, word("thinking")),
            Some("tool_use") => (Kind::Call, String::new()),
            _ => (Kind::Other, String::new()),
        };
        let signature = word("signature");
        // The rest of a block is bounded by its event.
        self.open(Block { index, kind, begun, words: String::new(), signature })?;
        self.say(self.blocks.len() - 1, &words)
    }

    fn open(&mut self, block: Block) -> Result<(), ModelError> {
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(ModelError::Malformed(format!("the model's reply has more than {BLOCKS_MAX} parts")));
        }
        let bytes = block.begun.iter().map(|(name, value)| name.len() + size(value)).sum();
        self.blocks.push(block);
        self.length.add(bytes)
    }

    fn take_delta(&mut self, index: Option<u64>, delta: &Delta<'_>) -> Result<(), ModelError> {
        let (kind, words) = delta.words();
        self.add(index, kind, words, &delta.signature.0)
    }

    /// Adds to the block of that index. Nothing begins none.
    fn add(&mut self, index: Option<u64>, kind: Kind, words: &str, signature: &str) -> Result<(), ModelError> {
        if words.is_empty() && signature.is_empty() {
            return Ok(());
        }
        // Without an index it is the last one's.
        let found = self.blocks.iter().rposition(|block| index.is_none() || block.index == index);
        let at = match found {
            Some(at) => at,
            None => {
                let begun = Map::from_iter([("type".to_owned(), Value::from(type_of(kind)))]);
                self.open(Block { index, kind, begun, words: String::new(), signature: String::new() })?;
                self.blocks.len() - 1
            }
        };
        if let Some(block) = self.blocks.get_mut(at) {
            block.signature.push_str(signature);
        }
        self.length.add(signature.len())?;
        self.say(at, words)
    }

    /// Adds to a block.
    fn say(&mut self, at: usize, words: &str) -> Result<(), ModelError> {
        if words.is_empty() {
            return Ok(());
        }
        self.length.add(words.len())?;
        let Some(block) = self.blocks.get_mut(at) else { return Ok(()) };
        block.words.push_str(words);
        match block.kind {
            Kind::Text => add_text(&mut self.events, words),
            Kind::Thinking => add_reasoning(&mut self.events, words),
            Kind::Call | Kind::Other => {}
        }
        Ok(())
    }
}

impl Block {
    fn call(&self, length: bool) -> ModelEvent {
        let word = |name: &str| self.begun.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        // A call begins with an empty object: where the reply was cut it says nothing of what would have come.
        let begun = length && self.words.is_empty() && self.begun.get("input").is_some_and(|input| *input == json!({}));
        let arguments = if begun { Cow::Borrowed("") } else { self.arguments() };
        call_of((word("id"), word("name")), &arguments, length)
    }

    /// The arguments: in pieces, or whole from the start.
    fn arguments(&self) -> Cow<'_, str> {
        match self.begun.get("input") {
            Some(input) if self.words.is_empty() => Cow::Owned(input.to_string()),
            _ => Cow::Borrowed(&self.words),
        }
    }

    /// Whether the model has to be given it back as it was.
    fn goes_back(&self) -> bool {
        match self.kind {
            Kind::Thinking => true,
            Kind::Text | Kind::Call => false,
            // Such as thinking that nobody may read, and what the provider did itself.
            Kind::Other => !self.begun.is_empty(),
        }
    }

    /// The block in the words of the wire. None: an empty text, which would not be taken.
    fn as_it_came(&self) -> Option<Value> {
        let mut block = self.begun.clone();
        match self.kind {
            Kind::Text if self.words.trim().is_empty() => return None,
            Kind::Text => drop(block.insert("text".to_owned(), self.words.as_str().into())),
            Kind::Thinking => {
                block.insert("thinking".to_owned(), self.words.as_str().into());
                block.insert("signature".to_owned(), self.signature.as_str().into());
            }
            Kind::Call | Kind::Other if self.words.is_empty() && self.kind == Kind::Other => {}
            Kind::Call | Kind::Other => {
                block.insert("input".to_owned(), Value::Object(arguments_or_none(&self.arguments())));
            }
        }
        Some(Value::Object(block))
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Thinking => "thinking",
        Kind::Call => "tool_use",
        Kind::Other => "unknown",
    }
}
