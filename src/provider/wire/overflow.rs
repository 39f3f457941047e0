//! Whether a refusal says that the conversation does not fit into the model's window. Few providers have a code for it, so
//! here, and only here, words count: those that each of them is known to use, in a refusal that cannot mean anything else.

/// Codes and types of errors that say it.
const CODES: [&str; 6] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "prompt_too_long",
    "request_too_large",
];

/// Words that say it, in lower case. Each entry is a list of words that all have to be there, in this order.
const WORDS: &[&[&str]] = &[
    // Anthropic: `prompt is too long: 210000 tokens > 200000 maximum`; `input length and max_tokens exceed context limit`.
    &["prompt is too long"],
    &["input length and", "exceed context limit"],
    // Amazon Bedrock, Vertex.
    &["input is too long"],
    &["too long for requested model"],
    // OpenAI, DeepSeek, vLLM, OpenRouter, Fireworks, Together: `This model's maximum context length is 8192 tokens`.
    &["maximum context length"],
    &["exceeds the context window"],
    &["exceed the context window"],
    &["context window of this model"],
    &["context length exceeded"],
    &["context_length_exceeded"],
    &["longer than the maximum model length"],
    &["exceeds maximum allowed length"],
    // Gemini: `The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)`.
    &["input token count", "exceeds the maximum"],
    &["exceeds the maximum number of tokens"],
    // xAI.
    &["maximum prompt length is"],
    // Groq.
    &["reduce the length of the messages"],
    // llama.cpp, LM Studio, Ollama.
    &["exceeds the available context size"],
    &["greater than the context length"],
    &["exceeds the context length"],
    &["exceeded max context length"],
    &["larger than the context"],
    // MiniMax, Moonshot, Mistral, Cohere, Zhipu.
    &["context window exceeds limit"],
    &["exceeded model token limit"],
    &["too large for model with", "maximum context length"],
    &["too many tokens", "context"],
    &["model_context_window_exceeded"],
    // Copilot: `prompt token count of 70000 exceeds the limit of 64000`.
    &["prompt token count", "exceeds the limit of"],
    &["token limit exceeded"],
    &["context size has been exceeded"],
];

/// Words of limits on how much is asked in a time: they also speak of tokens.
const RATES: [&str; 7] =
    ["rate limit", "rate_limit", "tokens per minute", "tokens per min", "per day", "too many requests", "throttl"];

/// Whether an error with this code, type and message says it.
pub(super) fn is_overflow(codes: [&str; 2], message: &str) -> bool {
    if codes.iter().any(|code| CODES.contains(code)) {
        return true;
    }
    let message = message.to_lowercase();
    if RATES.iter().any(|words| message.contains(words)) {
        return false;
    }
    WORDS.iter().any(|words| {
        let mut rest = message.as_str();
        words.iter().all(|word| rest.find(word).map(|at| rest = &rest[at + word.len()..]).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_providers_words_are_known() {
        #[rustfmt::skip]
        let table = [
            ("invalid_request_error", "", "prompt is too long: 213462 tokens > 200000 maximum"),
            ("invalid_request_error", "", "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000, decrease input length"),
            ("request_too_large", "", "Request exceeds the maximum size"),
            ("ValidationException", "", "Input is too long for requested model."),
            ("invalid_request_error", "context_length_exceeded", "Your input exceeds the context window of this model."),
            ("", "", "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
            ("BadRequestError", "", "The prompt (total length 40000) is longer than the maximum model length of 32768"),
            ("", "", "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."),
            ("", "", "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
            ("", "", "Please reduce the length of the messages or completion."),
            ("exceed_context_size_error", "", "the request exceeds the available context size, try increasing it"),
            ("", "", "The number of tokens to keep from the initial prompt is greater than the context length"),
            ("", "", "prompt too long; exceeded max context length by 12 tokens"),
            ("", "", "invalid params, context window exceeds limit (2013)"),
            ("", "", "Invalid request: Your request exceeded model token limit: 262144"),
            ("", "", "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
            ("", "model_max_prompt_tokens_exceeded", "prompt token count of 70000 exceeds the limit of 64000"),
            ("", "", "too many tokens: the total exceeds the model's context of 128000"),
        ];
        for (kind, code, message) in table {
            assert!(is_overflow([kind, code], message), "{message}");
        }
    }

    #[test]
    fn limits_of_rates_and_other_refusals_are_none() {
        for message in [
            "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Requested 40000.",
            "Too many requests. Your token limit exceeded the quota per day",
            "max_tokens is too large: 200000. This model supports at most 128000 completion tokens",
            "Unsupported parameter: 'max_tokens'",
            "The image is too large",
            "",
        ] {
            assert!(!is_overflow(["invalid_request_error", ""], message), "{message}");
        }
    }
}
