//! A conversation in the wire's words.
//!
//! The wire is strict about conversations: user and model take turns, the user begins and has the last word, each call has its
//! result in the very next message, first in it, no text is empty, and ids have few letters. Ours may come from other models
//! and be cut anywhere; so it is brought into that form. What is said of a message depends on what stands before it and on the
//! next message alone, so that what was sent before is sent again as it was.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

use super::NAME;
use crate::base::text::fnv1a;
use crate::model::{ModelError, WireNames};
use crate::protocol::{Message, Part, ToolCallRequest};
use crate::provider::wire::{Spec, write};

/// Said by the user where the conversation does not begin with one or does not end with one.
const GO_ON: &str = "Go on.";
/// What came of a call that has no result.
const NO_RESULT: &str = "This call was not run.";
/// What is said of a call that failed without a word.
const FAILED: &str = "It failed.";
/// Kinds of images that are taken.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
/// The longest id that is sent as it is.
const ID_BYTES_MAX: usize = 64;

/// A piece of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Ephemeral>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Ephemeral>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: &'a Map<String, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Content<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Ephemeral>,
    },
    /// As it came.
    #[serde(untagged)]
    Given(&'a Value),
}

/// What a tool said.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

/// An image.
#[derive(Serialize)]
pub(super) struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// What stands up to here is kept by the provider for a while.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Ephemeral {
    r#type: &'static str,
}

/// The words for it.
pub(super) const EPHEMERAL: Ephemeral = Ephemeral { r#type: "ephemeral" };

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: &'a [Block<'a>],
}

impl<'a> Block<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }

    fn mark(&mut self) {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => *cache_control = Some(EPHEMERAL),
            Self::ToolUse { .. } | Self::Given(_) => {}
        }
    }
}

/// A conversation that is written down.
#[derive(Clone, Copy)]
pub(super) struct Talk<'m> {
    /// Whose words are given back.
    pub(super) spec: &'m Spec,
    /// The names of the tools.
    pub(super) names: &'m WireNames,
    /// All of it.
    pub(super) all: &'m [Message],
    /// Whether what the model thought is given back to it.
    pub(super) gives_back: bool,
}

/// A call that waits for its result.
struct Waiting<'m> {
    id: &'m str,
    /// The id as it was sent.
    sent: Cow<'m, str>,
}

impl<'m> Talk<'m> {
    /// Whether the reply may begin with thinking: the model's part of this turn has begun with it, or has not begun.
    pub(super) fn can_begin_with_thinking(&self) -> bool {
        let prompt = self.all.iter().rposition(|message| matches!(message, Message::User(_)) && !self.is_void(message));
        let turn = self.all.get(prompt.map_or(0, |at| at + 1)..).unwrap_or_default();
        let Some(first) = turn.iter().find(|message| is_of_model(message)) else { return true };
        let kind = self.original(first).and_then(|items| items.first()?.get("type")?.as_str());
        matches!(kind, Some("thinking" | "redacted_thinking"))
    }

    /// Where the last two messages of the user begin, as they are on the wire: all between two of the model's are one.
    pub(super) fn last_of_user(&self) -> Vec<usize> {
        let mut begins = Vec::with_capacity(2);
        let mut begin = None;
        for (at, message) in self.all.iter().enumerate().rev().filter(|(_, message)| !self.is_void(message)) {
            if !is_of_model(message) {
                begin = Some(at);
                continue;
            }
            begins.extend(begin.take());
            if begins.len() == 2 {
                break;
            }
        }
        begins.extend(begin.filter(|_| begins.len() < 2));
        begins.reverse();
        begins
    }

    /// Adds some of the messages to an open list. Those of the user that begin in `marks` are kept by the provider up to their end.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn add(&self, body: &mut Vec<u8>, range: Range<usize>, marks: &[usize]) -> Result<(), ModelError> {
        let mut waiting = self.waiting_before(range.start);
        let (mut at, mut by_user) = (range.start, false);
        while let Some(group) = self.group(at..range.end) {
            at = group.end;
            by_user = !self.all.get(group.start).is_some_and(is_of_model);
            if by_user {
                let marked = marks.contains(&group.start);
                let mut content = self.of_user(group, &std::mem::take(&mut waiting));
                content.last_mut().filter(|_| marked).map(Block::mark);
                push(body, "user", &content)?;
                continue;
            }
            if !waiting.is_empty() {
                push(body, "user", &without_results(&waiting))?;
            } else if body.ends_with(b"[") {
                push(body, "user", &[Block::text(GO_ON)])?;
            }
            let content = self.of_model(group.clone());
            push(body, "assistant", &content)?;
            waiting = group.last().map(|last| self.waiting_before(last + 1)).unwrap_or_default();
        }
        if range.end < self.all.len() {
            return Ok(());
        }
        if !waiting.is_empty() {
            return push(body, "user", &without_results(&waiting));
        }
        if by_user { Ok(()) } else { push(body, "user", &[Block::text(GO_ON)]) }
    }

    /// The blocks of a reply that have to be given back as they were. None: it is told in our words.
    fn original(&self, message: &'m Message) -> Option<&'m [Value]> {
        let Message::Assistant { calls, original: Some(original), .. } = message else { return None };
        let own = self.gives_back && original.wire == NAME && original.model == self.spec.id;
        (own && is_about(&original.items, calls)).then_some(&original.items)
    }

    /// Whether nothing would be sent for a message.
    fn is_void(&self, message: &'m Message) -> bool {
        match message {
            Message::User(parts) => {
                parts.iter().all(|part| matches!(part, Part::Text { text } if text.trim().is_empty()))
            }
            Message::Assistant { text, calls, .. } => {
                text.trim().is_empty() && calls.is_empty() && self.original(message).is_none()
            }
            Message::ToolResult { .. } => false,
        }
    }

    /// The next messages that are one on the wire. None: nothing is left to be said. Behind calls of the model there has to be
    /// one of the user's.
    fn group(&self, range: Range<usize>) -> Option<Range<usize>> {
        let said = |at: &usize| self.all.get(*at).is_some_and(|message| !self.is_void(message));
        let begin = range.clone().find(said)?;
        let by_model = self.all.get(begin).is_some_and(is_of_model);
        let mut end = begin;
        for at in (begin..range.end).filter(said) {
            let Some(message) = self.all.get(at).filter(|message| is_of_model(message) == by_model) else { break };
            end = at + 1;
            if matches!(message, Message::Assistant { calls, .. } if !calls.is_empty()) {
                break;
            }
        }
        Some(begin..end)
    }

    /// The calls whose results belong right there.
    fn waiting_before(&self, at: usize) -> Vec<Waiting<'m>> {
        let before = self.all.get(..at).unwrap_or_default().iter().rev().find(|message| !self.is_void(message));
        let Some(message @ Message::Assistant { calls, .. }) = before else { return Vec::new() };
        let as_is = self.original(message).is_some();
        let sent = |id: &'m str| if as_is { Cow::Borrowed(id) } else { wire_id(id) };
        calls.iter().map(|call| Waiting { id: &call.id, sent: sent(&call.id) }).collect()
    }

    fn of_model(&self, group: Range<usize>) -> Vec<Block<'m>> {
        let mut content = Vec::new();
        for message in self.all.get(group).unwrap_or_default() {
            let Message::Assistant { text, calls, .. } = message else { continue };
            if let Some(items) = self.original(message) {
                content.extend(items.iter().map(Block::Given));
                continue;
            }
            if !text.trim().is_empty() {
                content.push(Block::text(text));
            }
            content.extend(calls.iter().map(|call| Block::ToolUse {
                id: wire_id(&call.id),
                name: self.names.wire(&call.name),
                input: &call.arguments,
            }));
        }
        content
    }

    /// Results first, each once; then what else there is.
    fn of_user(&self, group: Range<usize>, waiting: &[Waiting<'m>]) -> Vec<Block<'m>> {
        let (mut results, mut others) = (Vec::new(), Vec::new());
        let mut open: Vec<&Waiting<'m>> = waiting.iter().collect();
        for message in self.all.get(group).unwrap_or_default() {
            match message {
                Message::User(parts) => others.extend(parts.iter().filter_map(of_part)),
                Message::ToolResult { call_id, name, output, is_error, parts } => {
                    let images = parts.iter().filter_map(of_part);
                    let Some(at) = open.iter().position(|waiting| waiting.id == call_id) else {
                        others.push(Block::text(format!("What {} said: {output}", self.names.wire(name))));
                        others.extend(images);
                        continue;
                    };
                    let id = open.remove(at).sent.clone();
                    if *is_error {
                        // Beside the words of a failure nothing is taken.
                        results.push(result(id, Some(Content::Text(said_or(output, FAILED))), true));
                        others.extend(images);
                    } else {
                        results.push(result(id, content(output, images.collect()), false));
                    }
                }
                Message::Assistant { .. } => {}
            }
        }
        results.extend(open.into_iter().map(without_result));
        results.append(&mut others);
        results
    }
}

fn is_of_model(message: &Message) -> bool {
    matches!(message, Message::Assistant { .. })
}

/// Whether blocks hold these very calls.
fn is_about(items: &[Value], calls: &[ToolCallRequest]) -> bool {
    let word = |item: &'_ Value, name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    let used = items.iter().filter(|item| word(item, "type").as_deref() == Some("tool_use"));
    used.map(|item| word(item, "id").unwrap_or_default()).eq(calls.iter().map(|call| call.id.clone()))
}

fn result<'m>(tool_use_id: Cow<'m, str>, content: Option<Content<'m>>, is_error: bool) -> Block<'m> {
    Block::ToolResult { tool_use_id, content, is_error, cache_control: None }
}

fn without_result<'m>(waiting: &Waiting<'m>) -> Block<'m> {
    result(waiting.sent.clone(), Some(Content::Text(NO_RESULT)), true)
}

fn without_results<'m>(waiting: &[Waiting<'m>]) -> Vec<Block<'m>> {
    waiting.iter().map(without_result).collect()
}

/// What a tool said and shows.
fn content<'m>(output: &'m str, images: Vec<Block<'m>>) -> Option<Content<'m>> {
    let said = !output.trim().is_empty();
    if images.is_empty() {
        return said.then_some(Content::Text(output));
    }
    let text = said.then(|| Block::text(output));
    Some(Content::Blocks(text.into_iter().chain(images).collect()))
}

fn said_or<'m>(text: &'m str, otherwise: &'m str) -> &'m str {
    if text.trim().is_empty() { otherwise } else { text }
}

/// None: an empty text, which is not taken.
fn of_part(part: &Part) -> Option<Block<'_>> {
    match part {
        Part::Text { text } => (!text.trim().is_empty()).then(|| Block::text(text)),
        Part::Image { media_type, data } if IMAGES.contains(&media_type.as_str()) => {
            Some(Block::Image { source: Source { r#type: "base64", media_type, data }, cache_control: None })
        }
        Part::Image { media_type, .. } => {
            Some(Block::text(format!("(An image of the kind {media_type}, which cannot be shown to you.)")))
        }
    }
}

/// An id in the letters that are taken: the same for the same id.
fn wire_id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.chars().all(fits) {
        return Cow::Borrowed(id);
    }
    let mut spelt: String = id.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    spelt.truncate(ID_BYTES_MAX - 17);
    Cow::Owned(format!("{spelt}_{:016x}", fnv1a(id.as_bytes())))
}

fn push(body: &mut Vec<u8>, role: &'static str, content: &[Block<'_>]) -> Result<(), ModelError> {
    if !body.ends_with(b"[") {
        body.push(b',');
    }
    write(body, &WireMessage { role, content })
}
