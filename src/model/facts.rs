//! What is known of a model beside its name. Facts come from settings first, then from the provider, then from our catalogue.

use crate::protocol::{Cost, Usage};

/// What a model is and can do.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFacts {
    /// Its name for people. None: its id will do.
    pub label: Option<String>,
    /// Tokens of its window: what is sent and what is received together. None: not known.
    pub context_tokens: Option<u64>,
    /// Tokens of one reply, at most. None: not known.
    pub output_tokens_max: Option<u64>,
    /// Whether it can be shown images.
    pub images: bool,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether it can think before it answers.
    pub reasoning: bool,
    /// Whether that is known, and not only not held against it.
    pub reasoning_known: bool,
    /// Whether its answer can be held to a schema.
    pub structured_output: bool,
    /// What its tokens cost. None: not known.
    pub prices: Option<Prices>,
}

impl Default for ModelFacts {
    /// Nothing is known, and nothing is held against it.
    fn default() -> Self {
        Self {
            label: None,
            context_tokens: None,
            output_tokens_max: None,
            images: true,
            tools: true,
            reasoning: true,
            reasoning_known: false,
            structured_output: true,
            prices: None,
        }
    }
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Sent.
    pub input: f64,
    /// Received, reasoning included.
    pub output: f64,
    /// Sent, and found in the provider's cache. None: as any sent.
    pub cache_read: Option<f64>,
    /// Sent, and put into the provider's cache. None: as any sent.
    pub cache_write: Option<f64>,
}

impl Prices {
    /// What these tokens cost.
    pub fn cost(&self, usage: &Usage) -> Cost {
        let plain =
            usage.input_tokens.saturating_sub(usage.cached_input_tokens.saturating_add(usage.cache_write_tokens));
        let parts = [
            (plain, self.input),
            (usage.cached_input_tokens, self.cache_read.unwrap_or(self.input)),
            (usage.cache_write_tokens, self.cache_write.unwrap_or(self.input)),
            (usage.output_tokens, self.output),
        ];
        #[allow(clippy::cast_precision_loss, reason = "nobody uses so many tokens that it shows")]
        let dollars: f64 = parts.into_iter().map(|(tokens, price)| tokens as f64 * price / 1e6).sum();
        Cost::of_dollars(dollars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = Prices { input: 3.0, output: 15.0, cache_read: Some(0.3), cache_write: Some(3.75) };
        let used = |input_tokens, cached_input_tokens, cache_write_tokens, output_tokens| Usage {
            input_tokens,
            output_tokens,
            cached_input_tokens,
            cache_write_tokens,
            ..Usage::default()
        };
        #[rustfmt::skip]
        let table = [
            (used(1_000_000, 0, 0, 0), 3.0),
            (used(0, 0, 0, 1_000_000), 15.0),
            (used(1_000_000, 1_000_000, 0, 0), 0.3),
            (used(1_000_000, 0, 1_000_000, 0), 3.75),
            (used(1_000_000, 500_000, 250_000, 10), 0.75 + 0.15 + 0.9375 + 0.00015),
            // More of them cached than sent: nothing is less than nothing.
            (used(1, 1_000_000, 0, 0), 0.3),
            (used(0, 0, 0, 0), 0.0),
        ];
        for (usage, want) in table {
            assert_eq!(prices.cost(&usage), Cost::of_dollars(want), "{usage:?}");
        }
        let plain = Prices { cache_read: None, cache_write: None, ..prices };
        assert_eq!(plain.cost(&used(2_000_000, 1_000_000, 1_000_000, 0)), Cost::of_dollars(6.0));
    }
}
