//! Replies that their provider paused: the pieces of one are one reply of one model, wherever a text of it is wanted.
//!
//! Invariant: the pieces are read off the conversation, so a turn that goes on after a pause or a restart has the same.

use std::borrow::Cow;

use super::turn::Turn;
use crate::model::Messages;
use crate::protocol::Message;

impl Turn {
    /// What came of the reply that its provider has paused and the model goes on with, the last piece first. Who speaks in between
    /// ends it, and so does another model: its reply is one of its own.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        let messages = self.input.messages.iter().skip(self.begins).rev();
        let own = |(text, model): (_, &str)| (model == self.input.model.id()).then_some(text);
        messages.map_while(move |message| piece(message).and_then(own))
    }

    /// The conversation without what another model has begun at its end: who cannot go on with it answers anew.
    pub(super) fn without_pieces_of_others(&self, messages: Messages) -> Messages {
        let others = |message: &Message| piece(message).is_some_and(|(_, model)| model != self.input.model.id());
        let end = messages.iter().rev().take_while(|message| piece(message).is_some()).count();
        let begins = messages.len() - end;
        if !messages.iter().skip(begins).any(others) {
            return messages;
        }
        let mut told = messages.to_vec();
        let mut at = 0;
        told.retain(|message| {
            at += 1;
            at <= begins || !others(message)
        });
        told.into()
    }

    /// A reply with what came of it before it was paused: all of it is one.
    pub(super) fn whole<'t>(&self, last: &'t str) -> Cow<'t, str> {
        let mut pieces: Vec<&str> = self.pieces().collect();
        if pieces.is_empty() {
            return Cow::Borrowed(last);
        }
        pieces.reverse();
        pieces.push(last);
        Cow::Owned(pieces.concat())
    }
}

/// The text of a reply that was paused, and whose it is.
fn piece(message: &Message) -> Option<(&str, &str)> {
    match message {
        Message::Assistant { text, calls, original: Some(original) } if calls.is_empty() && original.paused => {
            Some((text.as_str(), original.model.as_str()))
        }
        Message::Assistant { .. } | Message::User(_) | Message::ToolResult { .. } => None,
    }
}
