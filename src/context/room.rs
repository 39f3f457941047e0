//! Room in a conversation that does not fit into its model's window, without a model's help.
//!
//! First go the outputs of tools that an answer has followed, then the middle of what is long, then the oldest turns. What the
//! user said last, and the newest round's calls with their results, always stay.

use super::{PRUNED_UNITS_MIN, placeholder, units};
use crate::base::text;
use crate::protocol::{Message, Part};

/// What stands in the place of the turns that went.
const LEFT_OUT: &str = "[Earlier messages are no longer shown here: the conversation did not fit.]";
/// Bytes of an output of the newest round that stay when there has to be room.
const OUTPUT_BYTES_KEPT: usize = 16 << 10;
/// What is left of the whole, in hundredths, when there is room enough.
const ENOUGH_PERCENT: u64 = 60;

/// About how long a conversation is, in UTF-16 units; an image counts as its bytes.
pub fn conversation_chars(messages: &[Message]) -> u64 {
    messages.iter().map(chars).fold(0, u64::saturating_add)
}

pub(super) fn chars(message: &Message) -> u64 {
    let part = |part: &Part| match part {
        Part::Text { text } => units(text),
        Part::Image { data, .. } => data.len(),
    };
    let sum = match message {
        Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant { text, calls, original } => {
            let calls: usize = calls.iter().map(|call| call.name.len() + arguments(&call.arguments)).sum();
            units(text) + calls + original.as_ref().map_or(0, |original| original.items.iter().map(json).sum())
        }
        Message::ToolResult { output, parts, .. } => units(output) + parts.iter().map(part).sum::<usize>(),
    };
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn arguments(arguments: &serde_json::Map<String, serde_json::Value>) -> usize {
    arguments.iter().map(|(name, value)| name.len() + json(value)).sum()
}

/// About how long a value is in JSON.
pub(super) fn json(value: &serde_json::Value) -> usize {
    use serde_json::Value as V;
    match value {
        V::Null | V::Bool(_) | V::Number(_) => 5,
        V::String(text) => units(text) + 2,
        V::Array(all) => all.iter().map(json).sum::<usize>() + 2,
        V::Object(members) => arguments(members) + 2,
    }
}

/// Makes a conversation shorter. False: there is nothing that could go.
pub fn make_room(messages: &mut Vec<Message>) -> bool {
    let before = conversation_chars(messages);
    let enough = before.saturating_mul(ENOUGH_PERCENT) / 100;
    let newest_round = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. })).unwrap_or(0);
    let (old, new) = messages.split_at_mut(newest_round);
    old.iter_mut().for_each(blank);
    if conversation_chars(old) + conversation_chars(new) > enough {
        new.iter_mut().for_each(shorten);
    }
    if conversation_chars(messages) > enough {
        drop_oldest(messages, enough);
    }
    conversation_chars(messages) < before
}

fn blank(message: &mut Message) {
    if let Message::ToolResult { output, parts, .. } = message {
        if units(output) >= PRUNED_UNITS_MIN {
            *output = placeholder(output);
        }
        parts.clear();
    }
}

fn shorten(message: &mut Message) {
    if let Message::ToolResult { output, parts, .. } = message {
        if output.len() > OUTPUT_BYTES_KEPT {
            let half = OUTPUT_BYTES_KEPT / 2;
            let (head, tail) = (text::head(output, half), text::tail(output, half));
            let gone = output.len() - head.len() - tail.len();
            *output = format!("{head}\n[{gone} bytes are left out here: the conversation did not fit]\n{tail}");
        }
        parts.clear();
    }
}

/// Drops whole turns from the front, until what is left is short enough or the last turn.
fn drop_oldest(messages: &mut Vec<Message>, enough: u64) {
    let mut left = conversation_chars(messages);
    let (mut cut, mut before) = (0, None::<&Message>);
    for (at, message) in messages.iter().enumerate() {
        // What comes behind results may be a word into a turn that goes on: that turn's beginning is still needed.
        let ends_turn = matches!(before, Some(Message::Assistant { .. }));
        if ends_turn && matches!(message, Message::User(_)) {
            cut = at;
            if left <= enough {
                break;
            }
        }
        left = left.saturating_sub(chars(message));
        before = Some(message);
    }
    if cut > 0 {
        let note = Message::User(vec![Part::Text { text: LEFT_OUT.to_owned() }]);
        messages.splice(..cut, [note]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ToolCallRequest;

    fn user(text: &str) -> Message {
        Message::User(vec![Part::Text { text: text.into() }])
    }

    fn round(id: &str, output: &str) -> [Message; 2] {
        let call = ToolCallRequest { id: id.into(), name: "t".into(), arguments: serde_json::Map::new() };
        let (call_id, name) = (id.to_owned(), "t".to_owned());
        let result = Message::ToolResult { call_id, name, output: output.into(), is_error: false, parts: Vec::new() };
        [Message::assistant("", vec![call]), result]
    }

    fn output(message: &Message) -> &str {
        match message {
            Message::ToolResult { output, .. } => output,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn outputs_go_first_and_the_newest_round_stays() {
        let long = "x".repeat(10_000);
        let mut messages = vec![user("do")];
        messages.extend(round("a", &long));
        messages.extend(round("b", &long));
        messages.extend(round("c", "newest"));
        assert!(make_room(&mut messages));
        assert_eq!(messages.len(), 7, "no message goes");
        assert_eq!((output(&messages[2]), output(&messages[6])), ("[OUTPUT PRUNED — 10000 chars]", "newest"));
        assert!(!make_room(&mut messages), "there is nothing more");
    }

    #[test]
    fn a_newest_output_that_is_too_long_loses_its_middle() {
        let mut messages = vec![user("do")];
        messages.extend(round("a", &format!("head{}tail", "ä".repeat(100_000))));
        assert!(make_room(&mut messages));
        let left = output(&messages[2]);
        assert!(left.starts_with("head") && left.ends_with("tail"), "both ends stay");
        assert!(left.len() < OUTPUT_BYTES_KEPT + 100, "{}", left.len());
    }

    #[test]
    fn then_the_oldest_turns_go_and_calls_keep_their_results() {
        let mut messages = Vec::new();
        for turn in 0..10 {
            messages.push(user(&format!("{turn} {}", "x".repeat(1_000))));
            messages.extend(round(&turn.to_string(), "short"));
            messages.push(Message::assistant("done", vec![]));
        }
        messages.push(user("last"));
        let before = conversation_chars(&messages);
        assert!(make_room(&mut messages));
        assert!(conversation_chars(&messages) <= before * 7 / 10);
        assert_eq!((&messages[0], messages.last()), (&user(LEFT_OUT), Some(&user("last"))));
        assert!(matches!(messages[1], Message::User(_)), "it goes on with a turn's beginning");
        let mut one = vec![user(&"x".repeat(9_000))];
        assert!(!make_room(&mut one), "what the user says now stays");
    }
}
