//! Replies in the words of their wires, through the hands of hooks.

use crate::protocol::Message;

/// What hooks hand back has lost the words of its wire; a reply that they left as it was has them again.
pub(super) fn give_back_originals(before: &[Message], after: &mut [Message]) {
    let mut known = before.iter().filter(|message| matches!(message, Message::Assistant { original: Some(_), .. }));
    for message in after {
        let Message::Assistant { text, calls, original: lost @ None } = message else { continue };
        let same = |known: &&Message| match known {
            Message::Assistant { text: known_text, calls: known_calls, .. } => {
                text == known_text && calls == known_calls
            }
            Message::User(_) | Message::ToolResult { .. } => false,
        };
        // One that they changed or took out is passed over.
        let mut ahead = known.clone();
        if let Some(Message::Assistant { original, .. }) = ahead.find(same) {
            lost.clone_from(original);
            known = ahead;
        }
    }
}
