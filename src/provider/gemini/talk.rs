//! A conversation in the wire's words.
//!
//! User and model take turns, the user begins and has the last word, the results of a reply's calls come right behind it, as
//! many and in the same order. Ours may come from other models and be cut anywhere; so it is brought into that form. What is said
//! of a message depends on what stands before it and on the next message alone.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

use super::NAME;
use super::thinking::version;
use crate::model::{ModelError, WireNames};
use crate::protocol::{Message, Part, ToolCallRequest};
use crate::provider::wire::{Spec, write};

/// Said by the user where the conversation does not begin with one or does not end with one.
const GO_ON: &str = "Go on.";
/// What came of a call that has no result.
const NO_RESULT: &str = "This call was not run.";
/// Stands where a call of another model has no signature: the wire's own word for that.
const UNSIGNED: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(untagged)]
enum WirePart<'a> {
    Text {
        text: Cow<'a, str>,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        inline_data: Blob<'a>,
    },
    #[serde(rename_all = "camelCase")]
    Call {
        function_call: Call<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'static str>,
    },
    #[serde(rename_all = "camelCase")]
    Result {
        function_response: Outcome<'a>,
    },
    /// As it came.
    Given(&'a Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct Call<'a> {
    name: Cow<'a, str>,
    args: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Response<'a> {
    Output(&'a str),
    Error(&'a str),
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: &'a [WirePart<'a>],
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
}

/// A call that waits for its result.
struct Waiting<'m> {
    call: &'m ToolCallRequest,
    /// The id that the model gave it.
    sent: Option<&'m str>,
}

impl<'m> Talk<'m> {
    /// Where the last message of the user begins, as it is on the wire: all between two of the model's are one.
    pub(super) fn last_of_user(&self) -> usize {
        let mut begin = None;
        for (at, message) in self.all.iter().enumerate().rev().filter(|(_, message)| !self.is_void(message)) {
            match (is_of_model(message), begin) {
                (true, Some(begin)) => return begin,
                (true, None) => {}
                (false, _) => begin = Some(at),
            }
        }
        0
    }

    /// Adds some of the messages to an open list.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn add(&self, body: &mut Vec<u8>, range: Range<usize>) -> Result<(), ModelError> {
        let mut waiting = self.waiting_before(range.start);
        let (mut at, mut by_user) = (range.start, false);
        while let Some(group) = self.group(at..range.end) {
            at = group.end;
            by_user = !self.all.get(group.start).is_some_and(is_of_model);
            if by_user {
                self.say_of_user(body, group, &std::mem::take(&mut waiting))?;
                continue;
            }
            if !waiting.is_empty() {
                self.say_of_user(body, 0..0, &waiting)?;
            } else if body.ends_with(b"[") {
                push(body, "user", &[WirePart::Text { text: GO_ON.into() }])?;
            }
            push(body, "model", &self.of_model(group.clone()))?;
            waiting = self.waiting_before(group.end);
        }
        if range.end < self.all.len() {
            return Ok(());
        }
        if !waiting.is_empty() {
            return self.say_of_user(body, 0..0, &waiting);
        }
        if by_user { Ok(()) } else { push(body, "user", &[WirePart::Text { text: GO_ON.into() }]) }
    }

    /// The parts of a reply that have to be given back as they were. None: it is told in our words.
    fn original(&self, message: &'m Message) -> Option<&'m [Value]> {
        let Message::Assistant { calls, original: Some(original), .. } = message else { return None };
        let own = original.wire == NAME && original.model == self.spec.id;
        (own && is_about(&original.items, calls)).then_some(&original.items)
    }

    /// Whether nothing would be sent for a message.
    fn is_void(&self, message: &'m Message) -> bool {
        match message {
            Message::User(parts) => parts.iter().all(|part| matches!(part, Part::Text { text } if text.trim().is_empty())),
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
        let mut sent = self.original(message).unwrap_or_default().iter().filter_map(call_in);
        let waiting = |call| Waiting { call, sent: sent.next().and_then(|made| made.get("id")?.as_str()) };
        calls.iter().map(waiting).collect()
    }

    fn of_model(&self, group: Range<usize>) -> Vec<WirePart<'m>> {
        let signs = version(&self.spec.model).is_some_and(|version| version >= (3, 0));
        let mut parts = Vec::new();
        for message in self.all.get(group).unwrap_or_default() {
            let Message::Assistant { text, calls, .. } = message else { continue };
            if let Some(items) = self.original(message) {
                parts.extend(items.iter().map(WirePart::Given));
                continue;
            }
            if !text.trim().is_empty() {
                parts.push(WirePart::Text { text: text.into() });
            }
            parts.extend(calls.iter().enumerate().map(|(at, call)| WirePart::Call {
                function_call: Call { name: self.names.wire(&call.name), args: &call.arguments },
                // Only the first of a reply has one.
                thought_signature: (signs && at == 0).then_some(UNSIGNED),
            }));
        }
        parts
    }

    /// The results, in the order of their calls; then what else there is, apart from them.
    fn say_of_user(&self, body: &mut Vec<u8>, group: Range<usize>, waiting: &[Waiting<'m>]) -> Result<(), ModelError> {
        let mut others: Vec<WirePart<'m>> = Vec::new();
        let mut came: Vec<Option<Response<'m>>> = waiting.iter().map(|_| None).collect();
        for message in self.all.get(group).unwrap_or_default() {
            match message {
                Message::User(parts) => others.extend(parts.iter().filter_map(of_part)),
                Message::ToolResult { call_id, name, output, is_error, parts } => {
                    let mut open = waiting.iter().zip(&mut came).filter(|(_, came)| came.is_none());
                    match open.find(|(waiting, _)| waiting.call.id == *call_id) {
                        Some((_, came)) if *is_error => *came = Some(Response::Error(output)),
                        Some((_, came)) => *came = Some(Response::Output(output)),
                        None => {
                            let text = format!("What {} said: {output}", self.names.wire(name));
                            others.push(WirePart::Text { text: text.into() });
                        }
                    }
                    if !parts.is_empty() {
                        let text = format!("What {} shows:", self.names.wire(name));
                        others.push(WirePart::Text { text: text.into() });
                        others.extend(parts.iter().filter_map(of_part));
                    }
                }
                Message::Assistant { .. } => {}
            }
        }
        let results = waiting.iter().zip(came).map(|(waiting, came)| WirePart::Result {
            function_response: Outcome {
                id: waiting.sent,
                name: self.names.wire(&waiting.call.name),
                response: came.unwrap_or(Response::Error(NO_RESULT)),
            },
        });
        let results: Vec<WirePart<'m>> = results.collect();
        for parts in [results, others].into_iter().filter(|parts| !parts.is_empty()) {
            push(body, "user", &parts)?;
        }
        Ok(())
    }
}

fn is_of_model(message: &Message) -> bool {
    matches!(message, Message::Assistant { .. })
}

/// The call in a part.
fn call_in(part: &Value) -> Option<&Value> {
    part.get("functionCall")
}

/// Whether parts hold these very calls.
fn is_about(items: &[Value], calls: &[ToolCallRequest]) -> bool {
    let made: Vec<&Value> = items.iter().filter_map(call_in).collect();
    let same = |(made, call): (&&Value, &ToolCallRequest)| {
        let id = made.get("id").and_then(Value::as_str);
        let arguments = made.get("args").and_then(Value::as_object);
        id.is_none_or(|id| id == call.id) && arguments.map_or(call.arguments.is_empty(), |args| *args == call.arguments)
    };
    made.len() == calls.len() && made.iter().zip(calls).all(same)
}

/// None: an empty text.
fn of_part(part: &Part) -> Option<WirePart<'_>> {
    match part {
        Part::Text { text } => (!text.trim().is_empty()).then(|| WirePart::Text { text: text.into() }),
        Part::Image { media_type, data } => Some(WirePart::Image { inline_data: Blob { mime_type: media_type, data } }),
    }
}

fn push(body: &mut Vec<u8>, role: &'static str, parts: &[WirePart<'_>]) -> Result<(), ModelError> {
    if !body.ends_with(b"[") {
        body.push(b',');
    }
    write(body, &Content { role, parts })
}
