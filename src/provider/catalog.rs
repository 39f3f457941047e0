//! Models that many use: their windows, abilities and prices, as their makers publish them (gathered in November 2026). What
//! settings say of a model counts more; a model that is not here can be used all the same, and nothing is known of it.
//!
//! Prices are those of the plain tier, in US dollars for a million tokens; discounts for batches, surcharges for long prompts and
//! for priority are not known here.

use crate::model::{ModelFacts, Prices};

/// One model.
#[derive(Debug, Clone, Copy)]
struct Row {
    id: &'static str,
    label: &'static str,
    /// Tokens of the window, and of one reply at most.
    tokens: (u64, u64),
    /// Whether it takes images, and whether it can think first.
    abilities: (bool, bool),
    /// Sent, received, found in the cache, put into the cache. 0 of the last two: as any sent.
    prices: [f64; 4],
}

const fn row(id: &'static str, label: &'static str, tokens: (u64, u64), rest: ((bool, bool), [f64; 4])) -> Row {
    Row { id, label, tokens, abilities: rest.0, prices: rest.1 }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("anthropic/claude-fable-5", "Claude Fable 5", (1_000_000, 128_000), ((true, true), [10.0, 50.0, 1.0, 12.5])),
    row("anthropic/claude-fable-5-1", "Claude Fable 5.1", (1_000_000, 128_000), ((true, true), [10.0, 50.0, 0.25, 12.5])),
    row("anthropic/claude-haiku-4-5", "Claude Haiku 4.5", (200_000, 64_000), ((true, true), [1.0, 5.0, 0.1, 1.25])),
    row("anthropic/claude-opus-4-5", "Claude Opus 4.5", (200_000, 64_000), ((true, true), [5.0, 25.0, 0.5, 6.25])),
    row("anthropic/claude-opus-4-6", "Claude Opus 4.6", (1_000_000, 128_000), ((true, true), [5.0, 25.0, 0.5, 6.25])),
    row("anthropic/claude-opus-4-7", "Claude Opus 4.7", (1_000_000, 128_000), ((true, true), [5.0, 25.0, 0.5, 6.25])),
    row("anthropic/claude-opus-4-8", "Claude Opus 4.8", (1_000_000, 128_000), ((true, true), [5.0, 25.0, 0.5, 6.25])),
    row("anthropic/claude-opus-5", "Claude Opus 5", (1_000_000, 128_000), ((true, true), [5.0, 25.0, 0.5, 6.25])),
    row("anthropic/claude-opus-5-5", "Claude Opus 5.5", (1_000_000, 128_000), ((true, true), [4.0, 20.0, 0.2, 5.0])),
    row("anthropic/claude-sonnet-4-5", "Claude Sonnet 4.5", (1_000_000, 64_000), ((true, true), [3.0, 15.0, 0.3, 3.75])),
    row("anthropic/claude-sonnet-4-6", "Claude Sonnet 4.6", (1_000_000, 128_000), ((true, true), [3.0, 15.0, 0.3, 3.75])),
    row("anthropic/claude-sonnet-5", "Claude Sonnet 5", (1_000_000, 128_000), ((true, true), [2.0, 10.0, 0.2, 2.5])),
    row("openai/gpt-4.1", "GPT-4.1", (1_047_576, 32_768), ((true, false), [2.0, 8.0, 0.5, 0.0])),
    row("openai/gpt-4.1-mini", "GPT-4.1 mini", (1_047_576, 32_768), ((true, false), [0.4, 1.6, 0.1, 0.0])),
    row("openai/gpt-4.1-nano", "GPT-4.1 nano", (1_047_576, 32_768), ((true, false), [0.1, 0.4, 0.025, 0.0])),
    row("openai/gpt-4o", "GPT-4o", (128_000, 16_384), ((true, false), [2.5, 10.0, 1.25, 0.0])),
    row("openai/gpt-4o-mini", "GPT-4o mini", (128_000, 16_384), ((true, false), [0.15, 0.6, 0.075, 0.0])),
    row("openai/gpt-5", "GPT-5", (400_000, 128_000), ((true, true), [1.25, 10.0, 0.125, 0.0])),
    row("openai/gpt-5-mini", "GPT-5 Mini", (400_000, 128_000), ((true, true), [0.25, 2.0, 0.025, 0.0])),
    row("openai/gpt-5-nano", "GPT-5 Nano", (400_000, 128_000), ((true, true), [0.05, 0.4, 0.005, 0.0])),
    row("openai/gpt-5-pro", "GPT-5 Pro", (400_000, 128_000), ((true, true), [15.0, 120.0, 0.0, 0.0])),
    row("openai/gpt-5.1", "GPT-5.1", (400_000, 128_000), ((true, true), [1.25, 10.0, 0.125, 0.0])),
    row("openai/gpt-5.2", "GPT-5.2", (400_000, 128_000), ((true, true), [1.75, 14.0, 0.175, 0.0])),
    row("openai/gpt-5.2-pro", "GPT-5.2 Pro", (400_000, 128_000), ((true, true), [21.0, 168.0, 0.0, 0.0])),
    row("openai/gpt-5.3-codex", "GPT-5.3 Codex", (400_000, 128_000), ((true, true), [1.75, 14.0, 0.175, 0.0])),
    row("openai/gpt-5.3-codex-spark", "GPT-5.3 Codex Spark", (128_000, 32_000), ((true, true), [1.75, 14.0, 0.175, 0.0])),
    row("openai/gpt-5.4", "GPT-5.4", (272_000, 128_000), ((true, true), [2.5, 15.0, 0.25, 0.0])),
    row("openai/gpt-5.4-mini", "GPT-5.4 mini", (400_000, 128_000), ((true, true), [0.75, 4.5, 0.075, 0.0])),
    row("openai/gpt-5.4-nano", "GPT-5.4 nano", (400_000, 128_000), ((true, true), [0.2, 1.25, 0.02, 0.0])),
    row("openai/gpt-5.4-pro", "GPT-5.4 Pro", (1_050_000, 128_000), ((true, true), [30.0, 180.0, 0.0, 0.0])),
    row("openai/gpt-5.5", "GPT-5.5", (272_000, 128_000), ((true, true), [5.0, 30.0, 0.5, 0.0])),
    row("openai/gpt-5.5-pro", "GPT-5.5 Pro", (1_050_000, 128_000), ((true, true), [30.0, 180.0, 0.0, 0.0])),
    row("openai/gpt-5.6-luna", "GPT-5.6 Luna", (272_000, 128_000), ((true, true), [0.2, 1.2, 0.02, 0.25])),
    row("openai/gpt-5.6-sol", "GPT-5.6 Sol", (272_000, 128_000), ((true, true), [4.0, 20.0, 0.4, 5.0])),
    row("openai/gpt-5.6-terra", "GPT-5.6 Terra", (272_000, 128_000), ((true, true), [2.0, 12.0, 0.2, 2.5])),
    row("openai/gpt-6-astra", "GPT-6 Astra", (272_000, 128_000), ((true, true), [10.0, 50.0, 1.0, 12.5])),
    row("openai/gpt-6-luna", "GPT-6 Luna", (272_000, 128_000), ((true, true), [0.1, 0.5, 0.01, 0.125])),
    row("openai/gpt-6-sol", "GPT-6 Sol", (272_000, 128_000), ((true, true), [2.0, 10.0, 0.2, 2.5])),
    row("openai/o1", "o1", (200_000, 100_000), ((true, true), [15.0, 60.0, 7.5, 0.0])),
    row("openai/o1-pro", "o1-pro", (200_000, 100_000), ((true, true), [150.0, 600.0, 0.0, 0.0])),
    row("openai/o3", "o3", (200_000, 100_000), ((true, true), [2.0, 8.0, 0.5, 0.0])),
    row("openai/o3-mini", "o3-mini", (200_000, 100_000), ((false, true), [1.1, 4.4, 0.55, 0.0])),
    row("openai/o3-pro", "o3-pro", (200_000, 100_000), ((true, true), [20.0, 80.0, 0.0, 0.0])),
    row("openai/o4-mini", "o4-mini", (200_000, 100_000), ((true, true), [1.1, 4.4, 0.275, 0.0])),
    row("gemini/gemini-2.5-flash", "Gemini 2.5 Flash", (1_048_576, 65_536), ((true, true), [0.3, 2.5, 0.03, 0.0])),
    row("gemini/gemini-2.5-flash-lite", "Gemini 2.5 Flash-Lite", (1_048_576, 65_536), ((true, true), [0.1, 0.4, 0.01, 0.0])),
    row("gemini/gemini-2.5-pro", "Gemini 2.5 Pro", (1_048_576, 65_536), ((true, true), [1.25, 10.0, 0.125, 0.0])),
    row("gemini/gemini-3-flash-preview", "Gemini 3 Flash Preview", (1_048_576, 65_536), ((true, true), [0.5, 3.0, 0.05, 0.0])),
    row("gemini/gemini-3.1-flash-lite", "Gemini 3.1 Flash Lite", (1_048_576, 65_536), ((true, true), [0.25, 1.5, 0.025, 0.0])),
    row("gemini/gemini-3.1-flash-lite-image", "Nano Banana 2 Lite", (65_536, 65_536), ((true, true), [0.25, 30.0, 0.0, 0.0])),
    row("gemini/gemini-3.1-flash-lite-preview", "Gemini 3.1 Flash Lite Preview", (1_048_576, 65_536), ((true, true), [0.25, 1.5, 0.025, 0.0])),
    row("gemini/gemini-3.1-pro-preview", "Gemini 3.1 Pro Preview", (1_048_576, 65_536), ((true, true), [2.0, 12.0, 0.2, 0.0])),
    row("gemini/gemini-3.5-flash", "Gemini 3.5 Flash", (1_048_576, 65_536), ((true, true), [1.5, 9.0, 0.15, 0.0])),
    row("gemini/gemini-3.5-flash-lite", "Gemini 3.5 Flash Lite", (1_048_576, 65_536), ((true, true), [0.3, 2.5, 0.03, 0.0])),
    row("gemini/gemini-3.6-flash", "Gemini 3.6 Flash", (1_048_576, 65_536), ((true, true), [0.75, 3.75, 0.075, 0.0])),
    row("gemini/gemini-3.7-flash", "Gemini 3.7 Flash", (1_048_576, 65_536), ((true, true), [0.75, 3.75, 0.075, 0.0])),
    row("gemini/gemini-3.8-flash", "Gemini 3.8 Flash", (1_048_576, 65_536), ((true, true), [0.75, 3.75, 0.075, 0.0])),
    row("gemini/gemini-flash-latest", "Gemini Flash Latest", (1_048_576, 65_536), ((true, true), [1.5, 9.0, 0.15, 0.0])),
    row("gemini/gemini-flash-lite-latest", "Gemini Flash-Lite Latest", (1_048_576, 65_536), ((true, true), [0.25, 1.5, 0.025, 0.0])),
    row("deepseek/deepseek-flash", "DeepSeek V4.1 Flash", (1_000_000, 384_000), ((true, true), [0.3, 1.2, 0.006, 0.0])),
    row("deepseek/deepseek-v4-pro", "DeepSeek V4 Pro", (1_000_000, 384_000), ((false, true), [1.32, 3.96, 0.044, 0.0])),
    row("xai/grok-4.3", "Grok 4.3", (1_000_000, 30_000), ((true, true), [1.25, 2.5, 0.2, 0.0])),
    row("xai/grok-4.5", "Grok 4.5", (500_000, 500_000), ((true, true), [2.0, 6.0, 0.3, 0.0])),
    row("xai/grok-4.6", "Grok 4.6", (500_000, 500_000), ((true, true), [2.0, 6.0, 0.5, 0.0])),
    row("xai/grok-4.7", "Grok 4.7", (500_000, 500_000), ((true, true), [2.0, 6.0, 0.5, 0.0])),
    row("mistral/codestral-latest", "Codestral", (256_000, 4_096), ((false, false), [0.3, 0.9, 0.03, 0.0])),
    row("mistral/devstral-2512", "Devstral 2", (262_144, 262_144), ((false, false), [0.4, 2.0, 0.04, 0.0])),
    row("mistral/devstral-latest", "Devstral 2", (262_144, 262_144), ((false, false), [0.4, 2.0, 0.04, 0.0])),
    row("mistral/devstral-medium-latest", "Devstral 2", (262_144, 262_144), ((false, false), [0.4, 2.0, 0.04, 0.0])),
    row("mistral/magistral-medium-latest", "Magistral Medium", (128_000, 16_384), ((false, true), [2.0, 5.0, 0.2, 0.0])),
    row("mistral/magistral-small", "Magistral Small", (128_000, 128_000), ((false, true), [0.5, 1.5, 0.05, 0.0])),
    row("mistral/ministral-3b-latest", "Ministral 3B", (128_000, 128_000), ((false, false), [0.04, 0.04, 0.004, 0.0])),
    row("mistral/ministral-8b-latest", "Ministral 8B", (128_000, 128_000), ((false, false), [0.1, 0.1, 0.01, 0.0])),
    row("mistral/mistral-large-2512", "Mistral Large 3", (262_144, 262_144), ((true, false), [0.5, 1.5, 0.05, 0.0])),
    row("mistral/mistral-large-latest", "Mistral Large", (262_144, 262_144), ((true, false), [0.5, 1.5, 0.05, 0.0])),
    row("mistral/mistral-medium-2604", "Mistral Medium 3.5", (262_144, 262_144), ((true, true), [1.5, 7.5, 0.15, 0.0])),
    row("mistral/mistral-medium-3.5", "Mistral Medium 3.5", (262_144, 262_144), ((true, true), [1.5, 7.5, 0.0, 0.0])),
    row("mistral/mistral-medium-latest", "Mistral Medium", (262_144, 262_144), ((true, true), [1.5, 7.5, 0.15, 0.0])),
    row("mistral/mistral-small-2506", "Mistral Small 3.2", (128_000, 16_384), ((true, false), [0.1, 0.3, 0.01, 0.0])),
    row("mistral/mistral-small-2603", "Mistral Small 4", (256_000, 256_000), ((true, true), [0.15, 0.6, 0.015, 0.0])),
    row("mistral/mistral-small-latest", "Mistral Small", (256_000, 256_000), ((true, true), [0.15, 0.6, 0.015, 0.0])),
    row("zai/glm-4.7", "GLM-4.7", (204_800, 131_072), ((false, true), [0.6, 2.2, 0.11, 0.0])),
    row("zai/glm-5-turbo", "GLM-5-Turbo", (200_000, 131_072), ((false, true), [1.2, 4.0, 0.24, 0.0])),
    row("zai/glm-5.2", "GLM-5.2", (1_000_000, 131_072), ((false, true), [1.4, 4.4, 0.26, 0.0])),
    row("zai/glm-5.3", "GLM-5.3", (1_000_000, 131_072), ((false, true), [1.4, 4.4, 0.26, 0.0])),
    row("zai/glm-5.3-flash", "GLM-5.3-Flash", (1_000_000, 131_072), ((true, true), [0.15, 0.5, 0.03, 0.0])),
    row("moonshot/kimi-k2.6", "Kimi K2.6", (262_144, 262_144), ((true, true), [0.95, 4.0, 0.16, 0.0])),
    row("moonshot/kimi-k2.7-code", "Kimi K2.7 Code", (262_144, 262_144), ((true, true), [0.95, 4.0, 0.19, 0.0])),
    row("moonshot/kimi-k3", "Kimi K3", (1_048_576, 131_072), ((true, true), [3.0, 15.0, 0.3, 0.0])),
];

/// What is known of the model `provider/name`. None: nothing.
pub(super) fn facts(id: &str) -> Option<ModelFacts> {
    let found = ROWS.iter().find(|row| row.id == id)?;
    let [input, output, cache_read, cache_write] = found.prices;
    let price = |price: f64| (price > 0.0).then_some(price);
    let prices = Prices { input, output, cache_read: price(cache_read), cache_write: price(cache_write) };
    Some(ModelFacts {
        label: Some(found.label.to_owned()),
        context_tokens: Some(found.tokens.0),
        output_tokens_max: Some(found.tokens.1),
        images: found.abilities.0,
        reasoning: found.abilities.1,
        reasoning_known: true,
        prices: Some(prices),
        ..ModelFacts::default()
    })
}

/// The names of the models of a provider, in the order of this list.
pub(super) fn models_of(provider: &str) -> impl Iterator<Item = &'static str> {
    ROWS.iter().filter_map(move |row| row.id.strip_prefix(provider)?.strip_prefix('/'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_model_is_here_once_with_numbers_that_can_be() {
        let mut seen = HashSet::new();
        for row in ROWS {
            assert!(seen.insert(row.id), "{} twice", row.id);
            assert!(row.tokens.0 >= 1_000 && row.tokens.1 >= 1_000 && row.tokens.1 <= row.tokens.0, "{}", row.id);
            let [input, output, read, write] = row.prices;
            assert!(input >= 0.0 && output >= input && read <= input && (write == 0.0 || write >= input), "{}", row.id);
        }
    }

    #[test]
    fn facts_are_found_by_the_whole_id() {
        let found = facts("anthropic/claude-sonnet-4-5").unwrap();
        assert_eq!((found.context_tokens, found.images, found.reasoning), (Some(1_000_000), true, true));
        assert_eq!(found.prices.unwrap().cache_write, Some(3.75));
        assert_eq!(facts("claude-sonnet-4-5"), None);
        assert!(models_of("gemini").any(|name| name == "gemini-2.5-pro"));
        assert_eq!(models_of("gem").count(), 0);
    }
}
