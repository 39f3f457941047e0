//! How each model is told how much to think: 2.5 takes a budget of tokens, 3 and later a level, older ones do not think. Pure: a
//! name in, words out. A name without a version is taken for the newest.

use serde_json::{Map, Value, json};

use crate::protocol::Reasoning;
use crate::provider::wire::Spec;

/// The version of a model. None: it is no Gemini.
pub(super) fn version(model: &str) -> Option<(u32, u32)> {
    let name = model.to_ascii_lowercase();
    let rest = name.get(name.find("gemini")?..)?;
    let mut parts = rest.split(|c: char| !c.is_ascii_alphanumeric()).skip(1);
    let Some(major) = parts.next().and_then(|part| part.parse().ok()) else { return Some((u32::MAX, 0)) };
    let minor = parts.next().filter(|part| part.len() <= 2).and_then(|part| part.parse().ok());
    Some((major, minor.unwrap_or(0)))
}

/// The member `thinkingConfig`. None: nothing is said.
pub(super) fn config(spec: &Spec, reasoning: Reasoning) -> Option<Value> {
    let version = version(&spec.model).filter(|version| spec.facts.reasoning && *version >= (2, 5))?;
    let mut config = Map::from_iter([("includeThoughts".to_owned(), json!(true))]);
    if reasoning == Reasoning::None {
        config.remove("includeThoughts");
    }
    if reasoning != Reasoning::Auto {
        let (word, value) = if version < (3, 0) {
            ("thinkingBudget", json!(budget(reasoning, spec.model.contains("pro"))))
        } else {
            ("thinkingLevel", json!(level(reasoning, version, &spec.model)))
        };
        config.insert(word.to_owned(), value);
    }
    Some(Value::Object(config))
}

/// Tokens of thinking. The large ones cannot be told not to think.
fn budget(reasoning: Reasoning, large: bool) -> u64 {
    match reasoning {
        Reasoning::Auto | Reasoning::None => {
            if large {
                128
            } else {
                0
            }
        }
        Reasoning::Minimal => 512,
        Reasoning::Low => 2_048,
        Reasoning::Medium => 8_192,
        Reasoning::High => 16_384,
        Reasoning::Xhigh => {
            if large {
                32_768
            } else {
                24_576
            }
        }
    }
}

/// None of these can be told not to think.
fn level(reasoning: Reasoning, version: (u32, u32), model: &str) -> &'static str {
    let early = version < (3, 5);
    match reasoning {
        Reasoning::None | Reasoning::Minimal if early && model.contains("flash") => "MINIMAL",
        Reasoning::None | Reasoning::Minimal | Reasoning::Low => "LOW",
        // The first of the large ones knows two levels.
        Reasoning::Medium if version == (3, 0) && model.contains("pro") => "HIGH",
        Reasoning::Medium => "MEDIUM",
        Reasoning::Auto | Reasoning::High | Reasoning::Xhigh => "HIGH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_is_told_in_its_own_words() {
        use Reasoning::{Auto, High, Low, Medium, Minimal, None as Off, Xhigh};
        let budget = |tokens: u64| json!({ "includeThoughts": true, "thinkingBudget": tokens });
        let level = |word: &str| json!({ "includeThoughts": true, "thinkingLevel": word });
        #[rustfmt::skip]
        let table = [
            ("gemini-2.0-flash", High, Value::Null), ("gemma-4", High, Value::Null), ("gemini-2.5-flash", Auto, json!({ "includeThoughts": true })),
            ("gemini-2.5-flash", Off, json!({ "thinkingBudget": 0 })), ("gemini-2.5-pro", Off, json!({ "thinkingBudget": 128 })),
            ("gemini-2.5-pro", Xhigh, budget(32_768)), ("gemini-2.5-flash-lite", Xhigh, budget(24_576)), ("gemini-2.5-flash", Minimal, budget(512)),
            ("gemini-3-flash-preview", Off, json!({ "thinkingLevel": "MINIMAL" })), ("gemini-3-pro-preview", Medium, level("HIGH")),
            ("gemini-3.1-pro-preview", Medium, level("MEDIUM")), ("gemini-3.8-flash", Minimal, level("LOW")), ("models/gemini-3.8-flash", Low, level("LOW")),
            ("gemini-flash-latest", Xhigh, level("HIGH")), ("gemini-4-argon", Auto, json!({ "includeThoughts": true })),
        ];
        for (model, reasoning, want) in table {
            let spec = Spec { model: model.into(), ..Spec::default() };
            assert_eq!(json!(config(&spec, reasoning)), want, "{model} {reasoning:?}");
        }
        let mut spec = Spec { model: "gemini-3.8-flash".into(), ..Spec::default() };
        spec.facts.reasoning = false;
        assert_eq!(config(&spec, High), None);
    }
}
