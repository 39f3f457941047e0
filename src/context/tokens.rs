//! Tokens of a text, as the model that reads it counts them, as far as that is known.
//!
//! The tables of three vocabularies are in the program (OpenAI's two and Qwen's): there the count is exact. The others' are
//! not free to be handed on, or not public at all; their models cut text much alike, so they count by one of these, times a factor that was
//! measured. A model that nobody knows is estimated by the length of the text. What a provider says that a request had corrects
//! all of it ([`Correction`]). Why these, and what they weigh: ADR 0130.
//!
//! Pure, except that a table is unpacked when it is first needed, which takes a tenth of a second or more: who may not
//! wait asks [`Counter::is_ready`] first.

use std::sync::atomic::{AtomicBool, Ordering};

use tiktoken::CoreBpe;

use super::{estimate_tokens, json};
use crate::base::limit;
use crate::protocol::{Message, Part, ToolDefinition};

/// A vocabulary that is in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    O200k,
    Cl100k,
    Qwen,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
            Self::Qwen => "qwen2",
        }
    }

    fn loaded(self) -> &'static AtomicBool {
        static LOADED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
        match self {
            Self::O200k => &LOADED[0],
            Self::Cl100k => &LOADED[1],
            Self::Qwen => &LOADED[2],
        }
    }

    fn get(self) -> Option<&'static CoreBpe> {
        let table = tiktoken::get_encoding(self.name());
        self.loaded().store(true, Ordering::Release);
        table
    }
}

/// How the tokens of a model are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// None: by the length alone.
    table: Option<Table>,
    /// Its tokens for a thousand of the table's.
    permille: u32,
}

/// What is in a model's name, in lower case; the first row that fits counts. Factors other than 1,000: measured over 1.1 million
/// characters of Rust, JavaScript, Python, prose, JSON and what commands print (ADR 0130 has the figures of each).
#[rustfmt::skip]
const FAMILIES: &[(&[&str], Table, u32)] = &[
    (&["gpt-oss", "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-6", "chatgpt-4o", "codex"], Table::O200k, 1_000),
    (&["gpt-4", "gpt-3.5", "text-embedding-3", "text-embedding-ada"],                       Table::Cl100k, 1_000),
    (&["qwen", "qwq"],                                  Table::Qwen,  1_000),
    (&["claude"],                                       Table::O200k, 1_070),
    (&["gemini", "gemma"],                              Table::O200k, 1_170),
    (&["deepseek"],                                     Table::O200k, 1_038),
    (&["llama"],                                        Table::O200k,   996),
    (&["kimi", "moonshot"],                             Table::O200k,   996),
    (&["glm"],                                          Table::O200k, 1_003),
    (&["minimax"],                                      Table::O200k, 1_006),
    (&["mistral", "mixtral", "codestral", "devstral", "magistral", "pixtral"], Table::O200k, 1_075),
];

/// How a model's tokens are counted: `provider/name`, or the name alone.
pub fn counter(model_id: &str) -> Counter {
    let id = model_id.to_ascii_lowercase();
    // A model of OpenAI's whose name is a letter and a number: `o3`, `o4-mini`.
    let name = id.rsplit('/').next().unwrap_or(&id);
    let is_o = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| ('1'..='9').contains(&c)));
    if is_o {
        return Counter { table: Some(Table::O200k), permille: 1_000 };
    }
    let fits = |(words, _, _): &&(&[&str], Table, u32)| words.iter().any(|word| id.contains(word));
    FAMILIES.iter().find(fits).map_or(Counter { table: None, permille: 1_000 }, |(_, table, permille)| Counter {
        table: Some(*table),
        permille: *permille,
    })
}

/// Tokens of a text for a model.
pub fn count(model_id: &str, text: &str) -> u64 {
    counter(model_id).count(text)
}

impl Counter {
    /// Tokens of a text.
    pub fn count(self, text: &str) -> u64 {
        let Some(table) = self.table else { return estimate_tokens(text) as u64 };
        // A table that is in the program is there; should it not be, the length has to do.
        let counted = table.get().map_or_else(|| estimate_tokens(text), |table| table.count(text)) as u64;
        if self.permille == 1_000 { counted } else { (counted * u64::from(self.permille)).div_ceil(1_000) }
    }

    /// Whether the count is the model's own.
    pub fn is_exact(self) -> bool {
        self.table.is_some() && self.permille == 1_000
    }

    /// Whether its table is unpacked, or it needs none.
    pub fn is_ready(self) -> bool {
        self.table.is_none_or(|table| table.loaded().load(Ordering::Acquire))
    }

    /// Tokens of a message, what a wire writes around it included, about.
    pub fn message(self, message: &Message) -> u64 {
        let sum = match message {
            Message::User(parts) => self.parts(parts),
            Message::Assistant { text, calls, .. } => {
                let call = |call: &crate::protocol::ToolCallRequest| {
                    let given = serde_json::to_string(&call.arguments).unwrap_or_default();
                    limit::MESSAGE_TOKENS + self.count(&call.name) + self.count(&given)
                };
                self.count(text) + calls.iter().map(call).sum::<u64>()
            }
            Message::ToolResult { output, parts, .. } => self.count(output) + self.parts(parts),
        };
        sum + limit::MESSAGE_TOKENS
    }

    fn parts(self, parts: &[Part]) -> u64 {
        let tokens = |part: &Part| match part {
            Part::Text { text } => self.count(text),
            Part::Image { .. } => limit::IMAGE_TOKENS,
        };
        parts.iter().map(tokens).sum()
    }

    /// Tokens of what stands before a conversation: the system text and the tools.
    pub fn beside(self, system: &str, tools: &[ToolDefinition]) -> u64 {
        let tool = |tool: &ToolDefinition| {
            let parameters = serde_json::to_string(&tool.parameters).unwrap_or_default();
            limit::MESSAGE_TOKENS + self.count(&tool.name) + self.count(&tool.description) + self.count(&parameters)
        };
        self.count(system) + tools.iter().map(tool).sum::<u64>()
    }
}

/// About how many tokens a message has, by its length alone. Quick.
pub fn estimate_message(message: &Message) -> u64 {
    let part = |part: &Part| match part {
        Part::Text { text } => estimate_tokens(text) as u64,
        Part::Image { .. } => limit::IMAGE_TOKENS,
    };
    let sum = match message {
        Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant { text, calls, .. } => {
            let call = |call: &crate::protocol::ToolCallRequest| {
                let given: usize = call.arguments.iter().map(|(name, value)| name.len() + json(value)).sum();
                limit::MESSAGE_TOKENS + (call.name.len() + given).div_ceil(4) as u64
            };
            estimate_tokens(text) as u64 + calls.iter().map(call).sum::<u64>()
        }
        Message::ToolResult { output, parts, .. } => {
            estimate_tokens(output) as u64 + parts.iter().map(part).sum::<u64>()
        }
    };
    sum + limit::MESSAGE_TOKENS
}

/// Tokens of a whole conversation. A conversation that grows is counted by [`Messages::tokens`](crate::model) in less.
pub fn tokens_of(messages: &[Message], model_id: &str, correction: Correction) -> u64 {
    let counter = counter(model_id);
    correction.apply(messages.iter().map(|message| counter.message(message)).sum())
}

/// What a provider's figures say of ours: theirs for a thousand of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Correction {
    permille: u64,
}

impl Default for Correction {
    /// Nothing is known.
    fn default() -> Self {
        Self { permille: 1_000 }
    }
}

impl Correction {
    /// Shorter requests say little: what a wire writes around them counts too much.
    const TOKENS_MIN: u64 = 200;
    /// Nothing beyond is believed.
    const PERMILLE: std::ops::RangeInclusive<u64> = 250..=4_000;

    /// Learns from a request of which the provider said how many tokens it had. The newest one counts as much as all before.
    pub fn learn(&mut self, counted: u64, reported: u64) {
        if counted < Self::TOKENS_MIN || reported == 0 {
            return;
        }
        let said = (reported.saturating_mul(1_000) / counted).clamp(*Self::PERMILLE.start(), *Self::PERMILLE.end());
        self.permille = if *self == Self::default() { said } else { u64::midpoint(self.permille, said) };
    }

    /// A count of ours, as the provider would have it.
    pub fn apply(self, counted: u64) -> u64 {
        counted.saturating_mul(self.permille).div_ceil(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_counter() {
        let of = |table, permille| Counter { table, permille };
        let (o200k, cl100k, qwen) = (Some(Table::O200k), Some(Table::Cl100k), Some(Table::Qwen));
        #[rustfmt::skip]
        let table = [
            ("openai/gpt-5.1-codex", of(o200k, 1_000)), ("openai/gpt-4o-mini", of(o200k, 1_000)), ("o3", of(o200k, 1_000)),
            ("openrouter/openai/o4-mini", of(o200k, 1_000)), ("openai/gpt-4-turbo", of(cl100k, 1_000)),
            ("openai/gpt-4.1", of(o200k, 1_000)), ("ollama/qwen3-coder:30b", of(qwen, 1_000)),
            ("anthropic/claude-opus-5", of(o200k, 1_070)), ("openrouter/anthropic/Claude-Sonnet-5", of(o200k, 1_070)),
            ("google/gemini-3-pro", of(o200k, 1_170)), ("demo/scripted", of(None, 1_000)), ("other/opus", of(None, 1_000)),
            ("groq/llama-4-scout", of(o200k, 996)), ("omni/omega", of(None, 1_000)),
        ];
        for (id, want) in table {
            assert_eq!(counter(id), want, "{id}");
        }
        assert!(counter("openai/gpt-5").is_exact() && !counter("anthropic/claude-opus-5").is_exact());
    }

    /// The figures are those of OpenAI's own library and of Qwen's.
    #[test]
    fn texts_have_the_tokens_that_their_makers_count() {
        let code = "fn main() {\n    println!(\"{}\", 12345 + x);\n}\n";
        #[rustfmt::skip]
        let table = [
            ("openai/gpt-5", "hello world", 2), ("openai/gpt-5", "", 0), ("openai/gpt-5", code, 14),
            ("openai/gpt-4", code, 14), ("ollama/qwen3", code, 17),
            ("openai/gpt-5", "Straße 東京 🙂", 4), ("demo/scripted", "12345678", 2),
        ];
        for (id, text, want) in table {
            assert_eq!(count(id, text), want, "{id} {text}");
        }
        assert_eq!(
            count("anthropic/claude-opus-5", &code.repeat(100)),
            (count("o3", &code.repeat(100)) * 107).div_ceil(100)
        );
        assert!(counter("openai/gpt-5").is_ready(), "it was used");
    }

    #[test]
    fn a_text_without_any_words_is_counted_soon() {
        for text in ["a", " ", "=-", "ä", "\n"] {
            assert!(count("openai/gpt-5", &text.repeat(300_000)) > 0);
        }
    }

    #[test]
    fn what_the_provider_says_corrects() {
        let mut correction = Correction::default();
        assert_eq!(correction.apply(1_000), 1_000);
        correction.learn(100, 900);
        assert_eq!(correction.apply(1_000), 1_000, "that was too short a request to say anything");
        correction.learn(1_000, 1_500);
        assert_eq!(correction.apply(1_000), 1_500);
        correction.learn(1_000, 1_300);
        assert_eq!(correction.apply(1_000), 1_400);
        correction.learn(1_000, 1_000_000);
        assert_eq!(correction.apply(1_000), 2_700, "nobody counts so differently");
        correction.learn(1_000, 0);
        assert_eq!(correction.apply(1_000), 2_700);
    }

    #[test]
    fn a_message_is_counted_with_its_calls_and_images() {
        let mut arguments = serde_json::Map::new();
        arguments.insert("path".into(), "src/main.rs".into());
        let call = crate::protocol::ToolCallRequest { id: "1".into(), name: "fs_read".into(), arguments };
        let image = Part::Image { media_type: "image/png".into(), data: "A".repeat(1_000_000) };
        let messages = [
            Message::User(vec![Part::Text { text: "hello world".into() }, image]),
            Message::assistant("hello world", vec![call]),
        ];
        let count = counter("openai/gpt-5");
        let given = count.count("{\"path\":\"src/main.rs\"}") + count.count("fs_read");
        assert_eq!(count.message(&messages[0]), 2 + limit::IMAGE_TOKENS + limit::MESSAGE_TOKENS);
        assert_eq!(count.message(&messages[1]), 2 + given + 2 * limit::MESSAGE_TOKENS);
        let sum = count.message(&messages[0]) + count.message(&messages[1]);
        assert_eq!(tokens_of(&messages, "openai/gpt-5", Correction::default()), sum);
    }
}
