//! Decides what the model still gets to see. Pure: messages in, a plan out.
//!
//! Old tool outputs are the first to go: they are long, and what mattered in them the model has said
//! since. The newest turns, everything before the newest summary, and the newest output are never touched.
//! The rule stands here ([`prune_plan`]); who has a conversation that grows carries it along ([`Pruner`]).

mod compact;
mod images;
mod pruner;
mod room;
pub mod tokens;

use crate::base::limit;
use crate::protocol::{Message, Part};

pub use compact::{
    Cut, Keep, SUMMARY_MARK, UNITS_PER_TOKEN, conversation_tokens, cut, files_of, heard_of, is_summary,
    looks_like_summary, shorten_to, tidied, transcript,
};
pub use images::{bound_images, describe_images, has_image, has_too_many_images};
pub use pruner::{Look, Pruner};
use room::{chars, json};
pub use room::{conversation_chars, make_room};
pub use tokens::{Correction, tokens_of};

/// Tool outputs shorter than this many UTF-16 units stay: a placeholder would save nothing.
const PRUNED_UNITS_MIN: usize = 200;
/// What a message begins with that sums up all before it.
pub const SUMMARY_MARKS: [&str; 2] = ["[SUMMARY]", "[Conversation summary]"];
/// What a pruned output begins with.
pub const PRUNED_MARK: &str = "[OUTPUT PRUNED — ";

/// One message, as far as pruning looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// What the user says; begins a turn.
    User(&'a str),
    /// What the model says, or the system.
    Other(&'a str),
    /// A tool's output.
    Output {
        /// The tool.
        tool: &'a str,
        /// What it said.
        text: &'a str,
    },
}

/// What is spared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneOptions {
    /// Newest turns whose outputs stay.
    pub protected_turns: usize,
    /// Tools whose outputs stay.
    pub protected_tools: Vec<String>,
    /// Tokens of newest outputs that stay besides. None: none.
    pub protected_tokens: Option<usize>,
    /// Tokens that pruning must save to be worth it. None: any.
    pub minimum_tokens: Option<usize>,
}

impl Default for PruneOptions {
    /// What the loop uses.
    fn default() -> Self {
        Self {
            protected_turns: 2,
            protected_tools: Vec::new(),
            protected_tokens: Some(limit::PRUNE_PROTECTED_TOKENS),
            minimum_tokens: Some(limit::PRUNE_MINIMUM_TOKENS),
        }
    }
}

/// About how many tokens a text has: a quarter of its UTF-16 units.
pub fn estimate_tokens(text: &str) -> usize {
    units(text).div_ceil(4)
}

/// Chooses which outputs to blank: indexes, oldest first. Empty when it would save too little.
///
/// Source: typescript-api.md §7, `createContextPruner`.
pub fn prune_plan(entries: &[Entry<'_>], options: &PruneOptions) -> Vec<usize> {
    let mut chosen = Vec::new();
    let (mut turns, mut newest, mut seen_tokens, mut saved_tokens) = (0, true, 0, 0);
    for (at, entry) in entries.iter().enumerate().rev() {
        let (tool, text) = match *entry {
            Entry::User(text) | Entry::Other(text) if SUMMARY_MARKS.iter().any(|mark| text.starts_with(mark)) => break,
            Entry::User(_) => {
                turns += 1;
                continue;
            }
            Entry::Other(_) => continue,
            Entry::Output { tool, text } => (tool, text),
        };
        if std::mem::take(&mut newest) || turns < options.protected_turns {
            continue;
        }
        if options.protected_tools.iter().any(|name| name == tool) || text.starts_with(PRUNED_MARK) {
            continue;
        }
        let tokens = estimate_tokens(text);
        seen_tokens += tokens;
        if options.protected_tokens.is_some_and(|spared| seen_tokens <= spared) || units(text) < PRUNED_UNITS_MIN {
            continue;
        }
        saved_tokens += tokens;
        chosen.push(at);
    }
    if options.minimum_tokens.is_some_and(|minimum| saved_tokens < minimum) {
        return Vec::new();
    }
    chosen.reverse();
    chosen
}

/// What stands in the place of a pruned output.
pub fn placeholder(text: &str) -> String {
    format!("{PRUNED_MARK}{} chars]", units(text))
}

/// Blanks old outputs of a conversation.
pub fn prune(messages: &mut [Message], options: &PruneOptions) {
    let entries: Vec<Entry<'_>> = messages.iter().map(entry_of).collect();
    for at in prune_plan(&entries, options) {
        if let Some(Message::ToolResult { output, parts, .. }) = messages.get_mut(at) {
            *output = placeholder(output);
            parts.clear();
        }
    }
}

fn entry_of(message: &Message) -> Entry<'_> {
    match message {
        Message::User(parts) => Entry::User(match parts.first() {
            Some(Part::Text { text }) => text,
            Some(Part::Image { .. }) | None => "",
        }),
        Message::Assistant { text, .. } => Entry::Other(text),
        Message::ToolResult { name, output, .. } => Entry::Output { tool: name, text: output },
    }
}

/// Length as JavaScript counts it.
fn units(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `u` a user, `a` an answer, `s` a summary, `S` a short output, `P` a pruned one, `K` one of a kept tool,
    /// digits an output of so many hundred tokens.
    fn plan(story: &str, options: &PruneOptions) -> Vec<usize> {
        let long: Vec<String> = story.chars().map(|c| "x".repeat(400 * c.to_digit(10).unwrap_or(1) as usize)).collect();
        let entries: Vec<Entry<'_>> = story
            .chars()
            .zip(&long)
            .map(|(c, text)| match c {
                'u' => Entry::User("hi"),
                'a' => Entry::Other("ok"),
                's' => Entry::User("[Conversation summary]\nold"),
                'S' => Entry::Output { tool: "t", text: &text[..199] },
                'P' => Entry::Output { tool: "t", text: "[OUTPUT PRUNED — 999 chars]" },
                'K' => Entry::Output { tool: "keep", text },
                _ => Entry::Output { tool: "t", text },
            })
            .collect();
        prune_plan(&entries, options)
    }

    #[test]
    fn what_goes_and_what_stays() {
        let plain = PruneOptions {
            protected_turns: 2,
            protected_tools: vec!["keep".into()],
            protected_tokens: None,
            minimum_tokens: None,
        };
        let none = PruneOptions { protected_turns: 0, ..plain.clone() };
        let spared = PruneOptions { protected_tokens: Some(300), ..plain.clone() };
        let worth = PruneOptions { minimum_tokens: Some(400), ..plain.clone() };
        #[rustfmt::skip]
        let table: &[(&str, &PruneOptions, &[usize])] = &[
            ("u1au1au1a", &plain, &[1]),
            ("u1au1a",    &plain, &[]),
            ("11u",       &plain, &[]),
            ("u1SPK1auu", &plain, &[1]),
            ("u1auu1auu", &plain, &[1]),
            ("u1su1auu1", &plain, &[4]),
            ("u1u1",      &none,  &[1]),
            ("u121auu1",  &spared, &[1]),
            ("u9121auu1", &spared, &[1, 2]),
            ("u3uu1",     &worth, &[]),
            ("u31uu1",    &worth, &[1, 2]),
        ];
        for (story, options, want) in table {
            assert_eq!(plan(story, options), *want, "{story}");
        }
    }

    #[test]
    fn a_conversation_keeps_everything_but_the_output() {
        let output = |text: &str| Message::ToolResult {
            call_id: "c".into(),
            name: "t".into(),
            output: text.into(),
            is_error: true,
            parts: Vec::new(),
        };
        let user = || Message::User(vec![Part::Text { text: "hi".into() }]);
        let long = "ä😀".repeat(100);
        let options = PruneOptions { protected_tokens: None, minimum_tokens: None, ..PruneOptions::default() };
        let mut messages = vec![user(), output(&long), user(), output("new"), user()];
        prune(&mut messages, &options);
        assert_eq!(messages[1], output("[OUTPUT PRUNED — 300 chars]"));
        assert_eq!(messages[3], output("new"));
        let before = messages.clone();
        prune(&mut messages, &PruneOptions::default());
        assert_eq!(messages, before);
    }
}
