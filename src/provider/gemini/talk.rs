//! A conversation in the wire's words.
//!
//! Beside what [`rounds`] sees to, the results of a reply's calls are as many as the calls and in the same order, and stand apart
//! from what else the user says. What a tool shows stands in its result where the model takes that.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

use super::NAME;
use super::thinking::version;
use crate::model::{CallIds, ModelError, WireNames, is_named};
use crate::protocol::{Message, Part, ToolCallRequest};
use crate::provider::wire::rounds::{self, GO_ON, Kind, NO_RESULT, OfUser, Rounds, calls_of};
use crate::provider::wire::{Spec, write};

/// Stands where a call of another model has no signature: the wire's own word for that.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// Kinds of images that are taken.
const IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
/// Those that results of tools may hold.
const SHOWN: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];

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
    /// As it came, but for the id of a call.
    Given(Cow<'a, Value>),
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Shown<'a>>,
}

/// What a tool shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    inline_data: Blob<'a>,
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
    /// Other names of ids that are there twice.
    pub(super) ids: &'m CallIds<'m>,
}

/// A call that waits for its result.
struct Waiting<'m> {
    call: &'m ToolCallRequest,
    /// The id that the model gave it.
    sent: Option<&'m str>,
}

impl<'m> Talk<'m> {
    /// The names of ids, so that each is there once. Only those that the model gave itself are sent.
    pub(super) fn ids(&self) -> CallIds<'m> {
        CallIds::of(self.all, usize::MAX, |reply, _| {
            let made = self.original(reply).unwrap_or_default().iter().filter_map(call_in);
            made.map(|made| id_in(made).map(Cow::Borrowed)).collect()
        })
    }

    /// Where the last message of the user begins, as it is on the wire.
    pub(super) fn last_of_user(&self) -> usize {
        rounds::last_of_user(self, 1).first().copied().unwrap_or(0)
    }

    /// Adds some of the messages to an open list.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when they cannot be written as JSON.
    pub(super) fn add(&self, body: &mut Vec<u8>, range: Range<usize>) -> Result<(), ModelError> {
        rounds::add(self, body, range, &[])
    }

    /// The calls of a reply.
    fn waiting(&self, reply: &'m Message) -> Vec<Waiting<'m>> {
        let mut sent = self.original(reply).unwrap_or_default().iter().filter_map(call_in);
        let calls = calls_of(Some(reply)).iter().enumerate();
        let waiting = |(at, call)| {
            let given = sent.next().and_then(id_in);
            Waiting { call, sent: self.ids.call(reply, at).or(given) }
        };
        calls.map(waiting).collect()
    }

    /// Whether it is of the generation that has its signatures given back and takes what tools show in their results.
    fn is_third(&self) -> bool {
        version(&self.spec.model).is_some_and(|version| version >= (3, 0))
    }

    fn of_model(&self, group: &'m [Message]) -> Vec<WirePart<'m>> {
        let signs = self.is_third();
        let mut parts = Vec::new();
        for message in group {
            let Message::Assistant { text, calls, .. } = message else { continue };
            if let Some(items) = self.original(message) {
                let mut sent = self.waiting(message).into_iter().map(|waiting| waiting.sent);
                parts.extend(items.iter().map(|item| given(item, &mut sent)));
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

    /// The results, in the order of their calls, and what else there is.
    fn of_user(&self, group: &'m [Message], waiting: &[Waiting<'m>]) -> [Vec<WirePart<'m>>; 2] {
        let third = self.is_third();
        let mut others: Vec<WirePart<'m>> = Vec::new();
        let mut came: Vec<Option<(Response<'m>, Vec<Shown<'m>>)>> = waiting.iter().map(|_| None).collect();
        for message in group {
            let (id, name, output, is_error, parts) = match message {
                Message::User(parts) => {
                    others.extend(parts.iter().filter_map(of_part));
                    continue;
                }
                Message::ToolResult { call_id, name, output, is_error, parts } => {
                    (call_id, name, output, *is_error, parts)
                }
                Message::Assistant { .. } => continue,
            };
            let mut open = waiting.iter().zip(&mut came).filter(|(_, came)| came.is_none());
            let (inside, apart): (Vec<&Part>, Vec<&Part>) =
                parts.iter().partition(|part| third && is_shown_inside(part));
            if let Some((_, came)) = open.find(|(waiting, _)| waiting.call.id == *id) {
                let response = if is_error { Response::Error(output) } else { Response::Output(output) };
                *came = Some((response, inside.into_iter().filter_map(shown).collect()));
            } else {
                let text = rounds::said_unasked(&self.names.wire(name), output);
                others.push(WirePart::Text { text: text.into() });
                others.extend(inside.into_iter().filter_map(of_part));
            }
            if !apart.is_empty() {
                let text = format!("What {} shows:", self.names.wire(name));
                others.push(WirePart::Text { text: text.into() });
                others.extend(apart.into_iter().filter_map(of_part));
            }
        }
        let results = waiting.iter().zip(came).map(|(waiting, came)| {
            let (response, parts) = came.unwrap_or((Response::Error(NO_RESULT), Vec::new()));
            let name = self.names.wire(&waiting.call.name);
            WirePart::Result { function_response: Outcome { id: waiting.sent, name, response, parts } }
        });
        [results.collect(), others]
    }
}

impl<'m> Rounds<'m> for Talk<'m> {
    fn all(&self) -> &'m [Message] {
        self.all
    }

    fn original(&self, message: &'m Message) -> Option<&'m [Value]> {
        rounds::own_words(message, (NAME, &self.spec.id), is_about)
    }

    fn add_of_model(&self, body: &mut Vec<u8>, group: &'m [Message]) -> Result<(), ModelError> {
        push(body, "model", &self.of_model(group))
    }

    fn add_of_user(&self, body: &mut Vec<u8>, said: OfUser<'m>) -> Result<(), ModelError> {
        if said.kind == Kind::GoOn {
            return push(body, "user", &[WirePart::Text { text: GO_ON.into() }]);
        }
        let waiting = said.reply.map(|reply| self.waiting(reply)).unwrap_or_default();
        let parts = self.of_user(said.group, &waiting);
        parts.iter().filter(|parts| !parts.is_empty()).try_for_each(|parts| push(body, "user", parts))
    }
}

/// Whether results of tools may hold it.
fn is_shown_inside(part: &Part) -> bool {
    matches!(part, Part::Image { media_type, .. } if SHOWN.contains(&media_type.as_str()))
}

fn shown(part: &Part) -> Option<Shown<'_>> {
    let Part::Image { media_type, data } = part else { return None };
    Some(Shown { inline_data: Blob { mime_type: media_type, data } })
}

/// The call in a part.
fn call_in(part: &Value) -> Option<&Value> {
    part.get("functionCall")
}

/// The id that the model gave a call.
fn id_in(made: &Value) -> Option<&str> {
    made.get("id")?.as_str()
}

/// A part as it came; the id of a call is the one that its result has.
fn given<'m>(item: &'m Value, sent: &mut impl Iterator<Item = Option<&'m str>>) -> WirePart<'m> {
    let other = call_in(item).and_then(|made| Some((id_in(made), sent.next()??)));
    let Some((_, id)) = other.filter(|(given, id)| *given != Some(*id)) else {
        return WirePart::Given(Cow::Borrowed(item));
    };
    let mut item = item.clone();
    item["functionCall"]["id"] = Value::from(id);
    WirePart::Given(Cow::Owned(item))
}

/// Whether parts hold these very calls.
fn is_about(items: &[Value], calls: &[ToolCallRequest]) -> bool {
    let made: Vec<&Value> = items.iter().filter_map(call_in).collect();
    let same = |(made, call): (&&Value, &ToolCallRequest)| {
        let arguments = made.get("args").and_then(Value::as_object);
        id_in(made).is_none_or(|id| is_named(id, &call.id))
            && arguments.map_or(call.arguments.is_empty(), |args| *args == call.arguments)
    };
    made.len() == calls.len() && made.iter().zip(calls).all(same)
}

/// None: an empty text.
fn of_part(part: &Part) -> Option<WirePart<'_>> {
    match part {
        Part::Text { text } => (!text.trim().is_empty()).then(|| WirePart::Text { text: text.into() }),
        Part::Image { media_type, data } if IMAGES.contains(&media_type.as_str()) => {
            Some(WirePart::Image { inline_data: Blob { mime_type: media_type, data } })
        }
        Part::Image { media_type, .. } => Some(WirePart::Text { text: rounds::not_shown(media_type).into() }),
    }
}

fn push(body: &mut Vec<u8>, role: &'static str, parts: &[WirePart<'_>]) -> Result<(), ModelError> {
    if !body.ends_with(b"[") {
        body.push(b',');
    }
    write(body, &Content { role, parts })
}
