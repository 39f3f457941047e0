//! Replies that their provider paused: the pieces of one are one reply, wherever a text of it is wanted.
//!
//! Invariant: the pieces are read off the conversation, so a turn that goes on after a pause or a restart has the same.

use std::borrow::Cow;

use super::turn::Turn;
use crate::protocol::Message;

impl Turn {
    /// What came of the reply that its provider has paused and the model goes on with, the last piece first. Who speaks in between
    /// ends it.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        self.input.messages.iter().skip(self.begins).rev().map_while(|message| match message {
            Message::Assistant { text, calls, original: Some(original) } if calls.is_empty() && original.paused => {
                Some(text.as_str())
            }
            Message::Assistant { .. } | Message::User(_) | Message::ToolResult { .. } => None,
        })
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
