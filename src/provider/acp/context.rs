//! What an agent is sent as its prompt: what it has not heard of the conversation, and what the user says now.
//!
//! The user's words alone go out as they are, so that an agent's own commands (`/plan`) work. Only when there
//! is something before them that the agent does not know is it told first, newest parts kept.

use agent_client_protocol::v1::schema as acp;

use crate::base::{limit, text};
use crate::context::describe_images;
use crate::model::{AgentRequest, ModelRequest};
use crate::protocol::{Message, Part};

/// The blocks of a prompt. `fresh`: the agent's session is new and knows nothing. An agent that takes no images
/// is told what they are.
pub(super) fn blocks(
    request: &ModelRequest,
    agent: &AgentRequest,
    fresh: bool,
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
    if fresh && !request.system.trim().is_empty() {
        blocks.push(block(&format!("[Instructions]\n{}", request.system.trim())));
    }
    if !before.is_empty() {
        blocks.push(block(&transcript(before)));
        blocks.push(block("[Current user input]"));
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

/// Messages as one text (the form of `Conversation.serialize`, typescript-api.md §7), its end when it is long.
fn transcript(messages: &[Message]) -> String {
    let parts: Vec<String> = messages.iter().map(shown).collect();
    let whole = parts.join("\n\n");
    let kept = text::tail(&whole, limit::ACP_CONTEXT_BYTES_MAX);
    let cut = if kept.len() < whole.len() { "[The beginning is left out]\n…" } else { "" };
    format!("[Conversation so far]\n{cut}{kept}")
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
        Message::ToolResult { name, output, .. } => format!("[Tool Result: {name}]\n{output}"),
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
        let blocks = blocks(&request, &agent, fresh, false);
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
    fn a_long_past_is_told_from_its_end() {
        let past = vec![user(&"ä".repeat(limit::ACP_CONTEXT_BYTES_MAX)), said("the end"), user("now")];
        let told = texts("", past, 3, true);
        assert!(told[0].len() < limit::ACP_CONTEXT_BYTES_MAX + 100, "{}", told[0].len());
        assert!(told[0].contains("left out") && told[0].ends_with("the end"));
    }

    #[test]
    fn an_image_is_never_dropped_in_silence() {
        let image = Part::Image { media_type: "image/png".into(), data: "QQ==".into() };
        let request = ModelRequest { messages: vec![Message::User(vec![image])].into(), ..ModelRequest::default() };
        let agent = AgentRequest { unheard: 1, ..AgentRequest::default() };
        assert!(matches!(blocks(&request, &agent, false, false)[..], [acp::ContentBlock::Text(_)]));
        assert!(matches!(blocks(&request, &agent, false, true)[..], [acp::ContentBlock::Image(_)]));
    }
}
