//! A conversation in the wire's words.
//!
//! The wire is strict about conversations: beside what [`rounds`] sees to, each call has its result in the very next message,
//! first in it, no text is empty, and ids have few letters.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

use super::NAME;
use crate::base::text::fnv1a;
use crate::model::{CallIds, ModelError, WireNames, is_named};
use crate::protocol::{Message, Part, ToolCallRequest};
use crate::provider::wire::rounds::{self, GO_ON, Kind, NO_RESULT, OfUser, Rounds, calls_of, is_of_model, is_void};
use crate::provider::wire::{Spec, write};

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
    /// As it came, but for the id of a call.
    #[serde(untagged)]
    Given(Cow<'a, Value>),
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
    /// Other names of ids that are there twice.
    pub(super) ids: &'m CallIds<'m>,
}

/// A call that waits for its result.
struct Waiting<'m> {
    id: &'m str,
    /// The id as it was sent.
    sent: Cow<'m, str>,
}

impl<'m> Talk<'m> {
    /// The names of ids, so that each is there once.
    pub(super) fn ids(&self) -> CallIds<'m> {
        CallIds::of(self.all, ID_BYTES_MAX, |reply, calls| {
            let mut given = self.original(reply).unwrap_or_default().iter().filter_map(id_in);
            let id = |call: &'m ToolCallRequest| match given.next() {
                Some(given) if given == call.id && !given.is_empty() => Cow::Borrowed(given),
                _ => wire_id(&call.id),
            };
            calls.iter().map(id).map(Some).collect()
        })
    }

    /// Whether the reply may begin with thinking: the model's part of this turn has begun with it, or has not begun.
    pub(super) fn can_begin_with_thinking(&self) -> bool {
        let prompt =
            self.all.iter().rposition(|message| matches!(message, Message::User(_)) && !is_void(self, message));
        let turn = self.all.get(prompt.map_or(0, |at| at + 1)..).unwrap_or_default();
        let Some(first) = turn.iter().find(|message| is_of_model(message)) else { return true };
        let kind = self.original(first).and_then(|items| items.first()?.get("type")?.as_str());
        matches!(kind, Some("thinking" | "redacted_thinking"))
    }

    /// Where the last two messages of the user begin, as they are on the wire.
    pub(super) fn last_of_user(&self) -> Vec<usize> {
        rounds::last_of_user(self, 2)
    }

    /// Adds some of the messages to an open list. Those of the user that begin in `marks` are kept by the provider up to their end.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn add(&self, body: &mut Vec<u8>, range: Range<usize>, marks: &[usize]) -> Result<(), ModelError> {
        rounds::add(self, body, range, marks)
    }

    /// The calls of a reply.
    fn waiting(&self, reply: &'m Message) -> Vec<Waiting<'m>> {
        let as_is = self.original(reply).is_some();
        let calls = calls_of(Some(reply)).iter().enumerate();
        calls.map(|(at, call)| Waiting { id: &call.id, sent: self.sent_id(reply, (at, &call.id), as_is) }).collect()
    }

    /// A call's id as it is sent.
    fn sent_id(&self, reply: &'m Message, (at, id): (usize, &'m str), as_is: bool) -> Cow<'m, str> {
        match self.ids.call(reply, at) {
            Some(other) => Cow::Borrowed(other),
            None if as_is => Cow::Borrowed(id),
            None => wire_id(id),
        }
    }

    fn of_model(&self, group: &'m [Message]) -> Vec<Block<'m>> {
        let mut content = Vec::new();
        for message in group {
            let Message::Assistant { text, calls, .. } = message else { continue };
            if let Some(items) = self.original(message) {
                let mut sent = self.waiting(message).into_iter();
                content.extend(items.iter().map(|item| given(item, &mut sent)));
                continue;
            }
            if !text.trim().is_empty() {
                content.push(Block::text(text));
            }
            content.extend(calls.iter().enumerate().map(|(at, call)| Block::ToolUse {
                id: self.sent_id(message, (at, &call.id), false),
                name: self.names.wire(&call.name),
                input: &call.arguments,
            }));
        }
        content
    }

    /// Results first, each once; then what else there is.
    fn of_user(&self, group: &'m [Message], waiting: &[Waiting<'m>]) -> Vec<Block<'m>> {
        let (mut results, mut others) = (Vec::new(), Vec::new());
        let mut open: Vec<&Waiting<'m>> = waiting.iter().collect();
        for message in group {
            match message {
                Message::User(parts) => others.extend(parts.iter().filter_map(of_part)),
                Message::ToolResult { call_id, name, output, is_error, parts } => {
                    let images = parts.iter().filter_map(of_part);
                    let Some(at) = open.iter().position(|waiting| waiting.id == call_id) else {
                        others.push(Block::text(rounds::said_unasked(&self.names.wire(name), output)));
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

impl<'m> Rounds<'m> for Talk<'m> {
    fn all(&self) -> &'m [Message] {
        self.all
    }

    fn original(&self, message: &'m Message) -> Option<&'m [Value]> {
        let words = rounds::own_words(message, (NAME, &self.spec.id), is_about);
        words.filter(|_| self.gives_back)
    }

    fn add_of_model(&self, body: &mut Vec<u8>, group: &'m [Message]) -> Result<(), ModelError> {
        push(body, "assistant", &self.of_model(group))
    }

    fn add_of_user(&self, body: &mut Vec<u8>, said: OfUser<'m>) -> Result<(), ModelError> {
        if said.kind == Kind::GoOn {
            return push(body, "user", &[Block::text(GO_ON)]);
        }
        let waiting = said.reply.map(|reply| self.waiting(reply)).unwrap_or_default();
        let mut content = self.of_user(said.group, &waiting);
        content.last_mut().filter(|_| said.kind == Kind::Marked).map(Block::mark);
        push(body, "user", &content)
    }
}

/// Whether blocks hold these very calls.
fn is_about(items: &[Value], calls: &[ToolCallRequest]) -> bool {
    let mut made = items.iter().filter_map(id_in);
    calls.iter().all(|call| made.next().is_some_and(|given| is_named(given, &call.id))) && made.next().is_none()
}

/// The id of the call in a block. None: it is no call.
fn id_in(item: &Value) -> Option<&str> {
    let is_call = item.get("type").and_then(Value::as_str) == Some("tool_use");
    is_call.then(|| item.get("id").and_then(Value::as_str).unwrap_or_default())
}

/// A block as it came; the id of a call is the one that its result has.
fn given<'m>(item: &'m Value, sent: &mut impl Iterator<Item = Waiting<'m>>) -> Block<'m> {
    let id = id_in(item).and_then(|given| sent.next().map(|call| call.sent).filter(|sent| sent != given));
    let Some(id) = id else { return Block::Given(Cow::Borrowed(item)) };
    let mut item = item.clone();
    item["id"] = Value::from(id);
    Block::Given(Cow::Owned(item))
}

fn result<'m>(tool_use_id: Cow<'m, str>, content: Option<Content<'m>>, is_error: bool) -> Block<'m> {
    Block::ToolResult { tool_use_id, content, is_error, cache_control: None }
}

fn without_result<'m>(waiting: &Waiting<'m>) -> Block<'m> {
    result(waiting.sent.clone(), Some(Content::Text(NO_RESULT)), true)
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
        Part::Image { media_type, .. } => Some(Block::text(rounds::not_shown(media_type))),
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
