//! What an agent is sent as its prompt: what it has not heard of the conversation, and what the user says now.
//!
//! The user's words alone go out as they are, so that an agent's own commands (`/plan`) work (E5). Only when there
//! is something before them that the agent does not know is it told first: the newest summary and the newest turns. All of it together has a
//! limit; what goes first is the oldest turn, then the summary, then the beginning of what the user says (E4).

use agent_client_protocol::v1::schema as acp;

use crate::base::limit;
use crate::context::{describe_images, is_summary};
use crate::model::{AgentRequest, ModelRequest};
use crate::protocol::{Message, Part};

/// Whether what the user says is a command of the agent's own (`/plan`) with nothing before it that the agent does not know: it goes out
/// alone, or it would be none (E5).
pub(super) fn is_command(request: &ModelRequest, agent: &AgentRequest, fresh: bool) -> bool {
    let unheard = if fresh { request.messages.len() } else { agent.unheard };
    let last = request.messages.last().filter(|_| unheard == 1);
    let Some(Message::User(parts)) = last else { return false };
    matches!(parts.first(), Some(Part::Text { text }) if text.starts_with('/'))
}

/// The blocks of a prompt. `fresh`: the agent's session is new and knows nothing; `instructs`: it is told the system text. An agent that
/// takes no images is told what they are.
pub(super) fn blocks(
    request: &ModelRequest,
    agent: &AgentRequest,
    (fresh, instructs): (bool, bool),
    takes_images: bool,
) -> Vec<acp::ContentBlock> {
    let all = &request.messages;
    let unheard = if fresh { all.len() } else { agent.unheard.min(all.len()) };
    let unheard = &all[all.len() - unheard..];
    let spoken = unheard.iter().rev().take_while(|message| matches!(message, Message::User(_))).count();
    let (before, now) = unheard.split_at(unheard.len() - spoken);
    let mut now = now.to_vec();
    if !takes_images {
        describe_images(&mut now);
    }
    let mut blocks = Vec::new();
    if instructs && !request.system.trim().is_empty() {
        blocks.push(block(&format!("[Instructions]\n{}", request.system.trim())));
    }
    if !before.is_empty() {
        shorten(&mut now);
        let told = transcript(before, limit::STATELESS_CHARS_MAX - chars(&now));
        if let Some(told) = told {
            blocks.extend([block(&told), block("[Current user input]")]);
        }
    }
    for message in &now {
        let Message::User(parts) = message else { continue };
        blocks.extend(parts.iter().map(part_block));
    }
    blocks
}

/// The blocks of one thing that a user says.
pub(super) fn said(parts: &[Part], takes_images: bool) -> Vec<acp::ContentBlock> {
    let mut message = [Message::User(parts.to_vec())];
    if !takes_images {
        describe_images(&mut message);
    }
    let [Message::User(parts)] = &message else { return Vec::new() };
    parts.iter().map(part_block).collect()
}

fn part_block(part: &Part) -> acp::ContentBlock {
    match part {
        Part::Text { text } => block(text),
        Part::Image { media_type, data } => {
            acp::ContentBlock::Image(acp::ImageContent::new(data.clone(), media_type.clone()))
        }
    }
}

fn block(text: &str) -> acp::ContentBlock {
    acp::ContentBlock::Text(acp::TextContent::new(text))
}

/// What stands where something was left out.
const CUT: &str = "[The beginning is left out]\n…";
/// Less of a summary, or of a turn, says nothing.
const PART_CHARS_MIN: usize = 200;
/// Characters of a tool's output that are told.
const OUTPUT_CHARS: usize = 1_000;

/// Characters of the texts.
fn chars(messages: &[Message]) -> usize {
    let texts = messages.iter().flat_map(|message| match message {
        Message::User(parts) => parts.as_slice(),
        Message::Assistant { .. } | Message::ToolResult { .. } => &[],
    });
    texts.map(|part| if let Part::Text { text } = part { text.chars().count() } else { 0 }).sum()
}

/// The end of a text, of so many characters.
fn end_of(text: &str, chars: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(chars);
    text.char_indices().nth(skipped).map_or("", |(at, _)| &text[at..])
}

/// Takes the beginning of what the user says where it is too long by itself. Images stay.
fn shorten(now: &mut [Message]) {
    let mut over = chars(now).saturating_sub(limit::STATELESS_CHARS_MAX);
    let cut = over > 0;
    for message in now {
        let Message::User(parts) = message else { continue };
        for part in parts {
            let Part::Text { text } = part else { continue };
            if over == 0 {
                continue;
            }
            let count = text.chars().count();
            let note = CUT.chars().count();
            // The note takes room, too; a text that goes whole leaves none.
            let gone = if cut && count > over + note { over + note } else { count.min(over) };
            let rest = end_of(text, count - gone);
            *text = if gone < count && gone > note { format!("{CUT}{rest}") } else { rest.to_owned() };
            over = over.saturating_sub(gone);
        }
        parts_without_blanks(message);
    }
}

/// Takes out texts of which nothing is left.
fn parts_without_blanks(message: &mut Message) {
    if let Message::User(parts) = message {
        parts.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
    }
}

/// The newest summary and the newest turns as one text (the form of `Conversation.serialize`, typescript-api.md §7), of about so many
/// characters. None: nothing of it fits.
fn transcript(messages: &[Message], room: usize) -> Option<String> {
    let begins = messages.iter().rposition(is_summary);
    let summary = begins.map(|at| shown(&messages[at]));
    let mut turns: Vec<String> = Vec::new();
    let mut answered = true;
    for message in &messages[begins.map_or(0, |at| at + 1)..] {
        let text = shown(message);
        match turns.last_mut().filter(|_| !(answered && matches!(message, Message::User(_)))) {
            Some(turn) => *turn = format!("{turn}\n\n{text}"),
            None => turns.push(text),
        }
        // What comes behind results is a word into a turn that goes on.
        answered = matches!(message, Message::Assistant { calls, .. } if calls.is_empty());
    }
    let lengths: Vec<usize> = turns.iter().map(|turn| turn.chars().count() + 2).collect();
    let summed = summary.as_ref().map_or(0, |summary| summary.chars().count() + 2);
    let mut from = turns.len().saturating_sub(limit::STATELESS_TURNS_MAX);
    let length = |from: usize| lengths[from..].iter().sum::<usize>() + summed;
    while from + 1 < turns.len() && length(from) > room {
        from += 1;
    }
    let cut = from > 0 || summary.is_some();
    let mut parts: Vec<String> = Vec::new();
    if length(from) > room {
        // One turn is left, if any, and it is too long beside the summary.
        let left = room.saturating_sub(summed);
        let summary = summary.map(|text| if summed > room { text.chars().take(room).collect() } else { text });
        parts.extend(summary.filter(|text| text.chars().count() >= PART_CHARS_MIN.min(summed)));
        if left >= PART_CHARS_MIN
            && let Some(turn) = turns.last()
        {
            parts.push(format!("{CUT}{}", end_of(turn, left)));
        }
    } else {
        parts.extend(summary);
        if cut && parts.is_empty() {
            parts.push("[Earlier turns are left out]".to_owned());
        }
        parts.extend(turns.drain(from..));
    }
    (!parts.is_empty()).then(|| format!("[Conversation so far]\n{}", parts.join("\n\n")))
}

/// A tool's output, without its middle where it is long.
fn output_in_short(output: &str) -> String {
    let count = output.chars().count();
    if count <= OUTPUT_CHARS {
        return output.to_owned();
    }
    let head: String = output.chars().take(OUTPUT_CHARS / 2).collect();
    format!("{head}\n[{} characters are left out]\n{}", count - OUTPUT_CHARS, end_of(output, OUTPUT_CHARS / 2))
}

fn shown(message: &Message) -> String {
    match message {
        Message::User(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .map(|part| match part {
                    Part::Text { text } => text.as_str(),
                    Part::Image { .. } => "[image]",
                })
                .collect();
            format!("[User]\n{}", texts.join("\n"))
        }
        Message::Assistant { text, calls, .. } => {
            let mut out = format!("[Assistant]\n{text}");
            for call in calls {
                let arguments = serde_json::Value::Object(call.arguments.clone());
                out.push_str(&format!("\n[Tool Call: {}] {arguments}", call.name));
            }
            out
        }
        Message::ToolResult { name, output, .. } => format!("[Tool Result: {name}]\n{}", output_in_short(output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Message {
        Message::User(vec![Part::Text { text: text.into() }])
    }

    fn said(text: &str) -> Message {
        Message::assistant(text, Vec::new())
    }

    fn texts(system: &str, messages: Vec<Message>, unheard: usize, fresh: bool) -> Vec<String> {
        let request = ModelRequest { system: system.into(), messages: messages.into(), ..ModelRequest::default() };
        let agent = AgentRequest { unheard, ..AgentRequest::default() };
        let blocks = blocks(&request, &agent, (fresh, fresh), false);
        blocks.iter().map(super::super::calls::block_text).collect()
    }

    #[test]
    fn an_agent_is_told_what_it_has_not_heard() {
        let talk = || vec![user("a"), said("b"), user("c")];
        let told = "[Conversation so far]\n[User]\na\n\n[Assistant]\nb";
        #[rustfmt::skip]
        let table = [
            (texts("", vec![user("a")], 1, true), vec!["a"]),
            (texts("Rhyme.", vec![user("a")], 1, true), vec!["[Instructions]\nRhyme.", "a"]),
            (texts("Rhyme.", talk(), 1, false), vec!["c"]),
            (texts("", talk(), 1, true), vec![told, "[Current user input]", "c"]),
            (texts("", talk(), 2, false), vec!["[Conversation so far]\n[Assistant]\nb", "[Current user input]", "c"]),
            (texts("", talk(), 99, false), vec![told, "[Current user input]", "c"]),
            (texts("", vec![user("a"), user("b")], 2, true), vec!["a", "b"]),
        ];
        for (got, want) in table {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn what_is_too_long_loses_the_oldest_turn_first_then_the_summary_then_the_beginning_of_the_input() {
        let max = limit::STATELESS_CHARS_MAX;
        let turn = |n: usize, length: usize| {
            vec![user(&format!("ask {n}")), said(&format!("{} said {n}", "ä".repeat(length)))]
        };
        let summary = |length: usize| vec![user(&format!("[Conversation summary]\nsum {}", "s".repeat(length)))];
        let told = |past: Vec<Message>, input: &str| texts("", [past, vec![user(input)]].concat(), 99, true);
        let turns = |of: std::ops::Range<usize>, length| of.flat_map(|n| turn(n, length)).collect::<Vec<_>>();
        // Ten turns, and no more.
        let ten = told(turns(0..30, 10), "now");
        assert!(
            ten[0].starts_with("[Conversation so far]\n[Earlier turns are left out]\n\n[User]\nask 20\n"),
            "{}",
            ten[0]
        );
        assert_eq!((ten[0].matches("ask ").count(), ten[1..].join("|")), (10, "[Current user input]|now".to_owned()));
        // What was summed up is not told beside its summary.
        let summed = told([turns(0..3, 10), summary(10), turns(3..5, 10)].concat(), "now");
        assert!(
            summed[0].starts_with("[Conversation so far]\n[User]\n[Conversation summary]\nsum ")
                && !summed[0].contains("said 2")
        );
        assert_eq!(summed[0].matches("ask ").count(), 2);
        // The oldest turns go, as many as have to.
        let long = told([summary(5_000), turns(0..5, 6_000)].concat(), "now");
        assert!(
            long[0].contains("sum sss") && !long[0].contains("said 2") && long[0].contains("said 3"),
            "{}",
            long[0].len()
        );
        assert!(long[0].chars().count() <= max + 100);
        // Then the summary, from its end, and at last the input, from its beginning.
        let input = "i".repeat(15_000);
        let less = told([summary(9_000), turns(0..1, 9_000)].concat(), &input);
        assert!(less[0].contains("sum sss") && !less[0].contains("said 0"), "{}", &less[0][..200]);
        assert!(less[0].chars().count() <= 5_100 && less[2] == input);
        let last = told([summary(9_000), turns(0..1, 9_000)].concat(), &format!("head {input}{input} tail"));
        assert_eq!((last.len(), last[0].chars().count()), (1, max));
        assert!(last[0].starts_with(CUT) && last[0].ends_with("i tail"));
    }

    #[test]
    fn a_turn_that_is_too_long_is_told_from_its_end_and_outputs_without_their_middle() {
        let output = |length| Message::ToolResult {
            call_id: "1".into(),
            name: "bash".into(),
            output: format!("first {} last", "o".repeat(length)),
            is_error: false,
            parts: Vec::new(),
        };
        let past = vec![user(&"ä".repeat(limit::STATELESS_CHARS_MAX)), output(10_000), said("the end"), user("now")];
        let told = texts("", past, 9, true);
        assert!(told[0].chars().count() < limit::STATELESS_CHARS_MAX + 100, "{}", told[0].len());
        assert!(told[0].contains(CUT) && told[0].ends_with("the end"));
        assert!(
            told[0].contains("[Tool Result: bash]\nfirst ooo") && told[0].contains("characters are left out]\nooo")
        );
    }

    #[test]
    fn the_first_words_go_out_as_they_are() {
        let long = format!("/plan {}", "x".repeat(2 * limit::STATELESS_CHARS_MAX));
        assert_eq!(
            texts("", vec![user(&long)], 1, true),
            [long.as_str()],
            "there is nothing beside them that has to have room"
        );
        let command = |messages: Vec<Message>, unheard, fresh| {
            let request = ModelRequest { messages: messages.into(), ..ModelRequest::default() };
            is_command(&request, &AgentRequest { unheard, ..AgentRequest::default() }, fresh)
        };
        let talk = || vec![user("a"), said("b"), user("/plan")];
        #[rustfmt::skip]
        let table = [
            (vec![user("/plan it")], 1, true, true), (vec![user("plan /it")], 1, true, false), (talk(), 1, false, true),
            (talk(), 1, true, false), (talk(), 2, false, false), (Vec::new(), 0, true, false),
        ];
        for (messages, unheard, fresh, want) in table {
            assert_eq!(command(messages.clone(), unheard, fresh), want, "{messages:?} {unheard} {fresh}");
        }
    }

    #[test]
    fn an_image_is_never_dropped_in_silence() {
        let image = Part::Image { media_type: "image/png".into(), data: "QQ==".into() };
        let request = ModelRequest { messages: vec![Message::User(vec![image])].into(), ..ModelRequest::default() };
        let agent = AgentRequest { unheard: 1, ..AgentRequest::default() };
        assert!(matches!(blocks(&request, &agent, (false, false), false)[..], [acp::ContentBlock::Text(_)]));
        assert!(matches!(blocks(&request, &agent, (false, false), true)[..], [acp::ContentBlock::Image(_)]));
    }
}
