//! A conversation as wires want it in which user and model take turns: the user begins and has the last word, and the results of
//! a reply's calls come right behind it. Ours may come from other models and be cut anywhere; so it is brought into that form.
//!
//! Invariant: what is said of a message depends on what stands before it and on the next message alone, so that what was sent
//! before is sent again as it was.

use std::ops::Range;

use serde_json::Value;

use crate::model::ModelError;
use crate::protocol::{Message, Part, ToolCallRequest};

/// Said by the user where the conversation does not begin with one or does not end with one.
pub(in crate::provider) const GO_ON: &str = "Go on.";
/// What came of a call that has no result.
pub(in crate::provider) const NO_RESULT: &str = "This call was not run.";

/// What stands in the place of an image of a kind that the wire does not take.
pub(in crate::provider) fn not_shown(media_type: &str) -> String {
    format!("(An image of the kind {media_type}, which cannot be shown to you.)")
}

/// What stands in the place of a result whose call is not there.
pub(in crate::provider) fn said_unasked(tool: &str, output: &str) -> String {
    format!("What {tool} said: {output}")
}

/// How a wire says what stands in a conversation.
pub(in crate::provider) trait Rounds<'m> {
    /// All of it.
    fn all(&self) -> &'m [Message];

    /// The pieces of a reply that have to be given back as they were. None: it is told in our words.
    fn original(&self, message: &'m Message) -> Option<&'m [Value]>;

    /// Whether the conversation ends with a reply that the model is to go on with.
    fn goes_on(&self) -> bool {
        let paused = |message: &'m Message| match message {
            Message::Assistant { original: Some(original), .. } => original.paused && self.original(message).is_some(),
            _ => false,
        };
        self.all().iter().rfind(|message| !is_void(self, message)).is_some_and(paused)
    }

    /// Adds what the model said to an open list. `group`: messages of it that are one on the wire.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when it cannot be written as JSON.
    fn add_of_model(&self, body: &mut Vec<u8>, group: &'m [Message]) -> Result<(), ModelError>;

    /// Adds what the user said: the results of these calls, each once, and what else there is.
    ///
    /// # Errors
    /// As [`Rounds::add_of_model`].
    fn add_of_user(&self, body: &mut Vec<u8>, said: OfUser<'m>) -> Result<(), ModelError>;
}

/// What the user says between two replies.
pub(in crate::provider) struct OfUser<'m> {
    /// The messages; none where a reply's calls have no results at all.
    pub(in crate::provider) group: &'m [Message],
    /// The reply whose calls wait for their results.
    pub(in crate::provider) reply: Option<&'m Message>,
    /// It is a place that the wire marks, and nothing is said but that it should go on.
    pub(in crate::provider) kind: Kind,
}

/// What there is about something that the user says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Kind {
    /// Nothing.
    Plain,
    /// It is one of the marked ones.
    Marked,
    /// There is nothing: only [`GO_ON`] is said.
    GoOn,
}

/// The calls of a reply.
pub(in crate::provider) fn calls_of(reply: Option<&Message>) -> &[ToolCallRequest] {
    match reply {
        Some(Message::Assistant { calls, .. }) => calls,
        _ => &[],
    }
}

/// The pieces of a reply, where they came over this wire from this model.
pub(in crate::provider) fn own_words<'m>(
    message: &'m Message,
    (wire, model): (&str, &str),
    is_about: impl FnOnce(&[Value], &[ToolCallRequest]) -> bool,
) -> Option<&'m [Value]> {
    let Message::Assistant { calls, original: Some(original), .. } = message else { return None };
    let own = original.wire == wire && original.model == model && is_about(&original.items, calls);
    own.then_some(&original.items)
}

pub(in crate::provider) fn is_of_model(message: &Message) -> bool {
    matches!(message, Message::Assistant { .. })
}

/// Whether nothing would be sent for a message.
pub(in crate::provider) fn is_void<'m>(talk: &(impl Rounds<'m> + ?Sized), message: &'m Message) -> bool {
    match message {
        Message::User(parts) => parts.iter().all(|part| matches!(part, Part::Text { text } if text.trim().is_empty())),
        Message::Assistant { text, calls, .. } => {
            text.trim().is_empty() && calls.is_empty() && talk.original(message).is_none()
        }
        Message::ToolResult { .. } => false,
    }
}

/// Where the last `count` messages of the user begin, as they are on the wire: all between two of the model's are one.
pub(in crate::provider) fn last_of_user<'m>(talk: &impl Rounds<'m>, count: usize) -> Vec<usize> {
    let mut begins = Vec::with_capacity(count);
    let mut begin = None;
    for (at, message) in talk.all().iter().enumerate().rev().filter(|(_, message)| !is_void(talk, message)) {
        if !is_of_model(message) {
            begin = Some(at);
            continue;
        }
        begins.extend(begin.take());
        if begins.len() == count {
            break;
        }
    }
    begins.extend(begin.filter(|_| begins.len() < count));
    begins.reverse();
    begins
}

/// Adds some of the messages to an open list. Those of the user that begin in `marks` are marked.
///
/// # Errors
/// [`ModelError::Malformed`] when they cannot be written as JSON.
pub(in crate::provider) fn add<'m>(
    talk: &impl Rounds<'m>,
    body: &mut Vec<u8>,
    range: Range<usize>,
    marks: &[usize],
) -> Result<(), ModelError> {
    let mut reply = waiting_before(talk, range.start);
    let (mut at, mut by_user) = (range.start, false);
    let none = |reply, kind| OfUser { group: &[], reply, kind };
    while let Some(found) = group(talk, at..range.end) {
        let start = found.start;
        at = found.end;
        let group = talk.all().get(found).unwrap_or_default();
        by_user = !group.first().is_some_and(is_of_model);
        if by_user {
            let kind = if marks.contains(&start) { Kind::Marked } else { Kind::Plain };
            talk.add_of_user(body, OfUser { group, reply: reply.take(), kind })?;
            continue;
        }
        if reply.is_some() {
            talk.add_of_user(body, none(reply, Kind::Plain))?;
        } else if body.ends_with(b"[") {
            talk.add_of_user(body, none(None, Kind::GoOn))?;
        }
        talk.add_of_model(body, group)?;
        reply = waiting_before(talk, at);
    }
    match (range.end < talk.all().len(), reply, by_user) {
        (true, _, _) | (false, None, true) => Ok(()),
        (false, None, false) if talk.goes_on() => Ok(()),
        (false, None, false) => talk.add_of_user(body, none(None, Kind::GoOn)),
        (false, reply, _) => talk.add_of_user(body, none(reply, Kind::Plain)),
    }
}

/// The next messages that are one on the wire. None: nothing is left to be said. Behind calls of the model there has to be one
/// of the user's.
fn group<'m>(talk: &impl Rounds<'m>, range: Range<usize>) -> Option<Range<usize>> {
    let all = talk.all();
    let said = |at: &usize| all.get(*at).is_some_and(|message| !is_void(talk, message));
    let begin = range.clone().find(said)?;
    let by_model = all.get(begin).is_some_and(is_of_model);
    let mut end = begin;
    for at in (begin..range.end).filter(said) {
        let Some(message) = all.get(at).filter(|message| is_of_model(message) == by_model) else { break };
        end = at + 1;
        if !calls_of(Some(message)).is_empty() {
            break;
        }
    }
    Some(begin..end)
}

/// The reply whose calls have their results right there.
fn waiting_before<'m>(talk: &impl Rounds<'m>, at: usize) -> Option<&'m Message> {
    let before = talk.all().get(..at).unwrap_or_default().iter().rev().find(|message| !is_void(talk, message));
    before.filter(|message| !calls_of(Some(message)).is_empty())
}
