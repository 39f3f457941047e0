//! Which of our texts a model is given: one for each family, since they were brought up differently.
//!
//! The texts stand in `text/`. Settings go before all of them (`providerPrompts`).

/// For whom nothing better is known.
const DEFAULT: &str = include_str!("text/default.md");
/// OpenAI's.
const OPENAI: &str = include_str!("text/openai.md");
/// Anthropic's.
const ANTHROPIC: &str = include_str!("text/anthropic.md");
/// Google's.
const GEMINI: &str = include_str!("text/gemini.md");
/// Those with open weights: what is meant is said step by step.
const OPEN: &str = include_str!("text/open.md");
/// The small ones among these: as short as can be.
const SMALL: &str = include_str!("text/small.md");

/// What is in a model's name, in lower case; the first row that fits counts.
const FAMILIES: &[(&[&str], &str)] = &[
    (&["claude"], ANTHROPIC),
    (&["gemini"], GEMINI),
    (
        &[
            "gpt-oss",
            "qwen",
            "qwq",
            "deepseek",
            "glm",
            "kimi",
            "moonshot",
            "llama",
            "mistral",
            "mixtral",
            "devstral",
            "codestral",
            "magistral",
            "minimax",
            "gemma",
            "phi-",
            "phi3",
            "phi4",
            "granite",
            "starcoder",
            "nemotron",
        ],
        OPEN,
    ),
    (&["gpt-", "codex", "chatgpt"], OPENAI),
];
/// Models with open weights and fewer parameters, in thousand millions, are small.
const SMALL_BELOW: f64 = 14.0;

/// Our text for a model, `provider/name`.
pub fn family_prompt(model_id: &str) -> &'static str {
    let id = model_id.to_ascii_lowercase();
    let name = id.rsplit('/').next().unwrap_or(&id);
    // A model of OpenAI's whose name is a letter and a number: `o3`, `o4-mini`.
    if name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| ('1'..='9').contains(&c))) {
        return OPENAI;
    }
    // A provider's name says nothing of its models: `ollama` and `mistral` have many.
    let fits = |(words, _): &&(&[&str], &str)| words.iter().any(|word| name.contains(word));
    match FAMILIES.iter().find(fits) {
        Some((_, text)) if *text == OPEN && is_small(name) => SMALL,
        Some((_, text)) => text,
        None => DEFAULT,
    }
}

/// Whether a name says that the model is small: `llama3.2:3b`, `qwen2.5-coder-7b-instruct`, `phi-3-mini`.
fn is_small(name: &str) -> bool {
    let sizes = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).filter_map(|word| {
        let number = word.strip_suffix('b')?;
        // `e4b` is four, and of `30b-a3b` the whole counts, which comes first.
        number.strip_prefix('e').unwrap_or(number).parse::<f64>().ok()
    });
    match sizes.fold(None, |most: Option<f64>, size| Some(most.map_or(size, |most| most.max(size)))) {
        Some(size) => size < SMALL_BELOW,
        None => name.starts_with("phi") || name.split(['-', ':']).any(|word| matches!(word, "tiny" | "nano")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_text() {
        #[rustfmt::skip]
        let table = [
            ("openai/gpt-5.1-codex", OPENAI), ("openai/o4-mini", OPENAI), ("openrouter/openai/o3", OPENAI),
            ("openai/codex-mini-latest", OPENAI), ("anthropic/claude-opus-5", ANTHROPIC),
            ("openrouter/anthropic/Claude-Sonnet-5", ANTHROPIC), ("google/gemini-3-pro", GEMINI),
            ("groq/openai/gpt-oss-120b", OPEN), ("ollama/qwen3-coder:30b", OPEN), ("x/qwen3-30b-a3b", OPEN),
            ("deepseek/deepseek-chat", OPEN), ("z/glm-5", OPEN), ("moonshot/kimi-k2", OPEN), ("groq/llama-4-scout", OPEN),
            ("ollama/llama3.2:3b", SMALL), ("x/qwen2.5-coder-7b-instruct", SMALL), ("ollama/gemma3n:e4b", SMALL),
            ("ollama/phi-3-mini", SMALL), ("ollama/gpt-oss:20b", OPEN),
            ("demo/scripted", DEFAULT), ("mistral/own", DEFAULT), ("omni/omega", DEFAULT), ("test/puppet", DEFAULT),
        ];
        for (id, want) in table {
            let first = |text: &str| text.lines().take(3).collect::<String>();
            assert_eq!(family_prompt(id), want, "{id}: {}", first(family_prompt(id)));
        }
    }

    #[test]
    fn the_texts_are_ready_to_be_sent() {
        for text in [DEFAULT, OPENAI, ANTHROPIC, GEMINI, OPEN, SMALL] {
            assert!(text.starts_with("You are a coding agent") && text.ends_with('\n') && !text.ends_with("\n\n"));
            assert!(text.len() < 4_500 && text.is_ascii(), "{}", text.len());
            for care in ["Commit only", "Do not commit", "do not commit", "committing"] {
                if text.contains(care) {
                    break;
                }
                assert_ne!(care, "committing", "{text}");
            }
        }
    }
}
