//! Cuts texts into tokens as `tokenizer.json` says (the form of Hugging Face's `tokenizers`), for the kinds that static
//! models have.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::classes::{PUNCTUATION, WORD};
use super::normalize::{self, Step};
use super::pieces::Pieces;

/// How a text is cut before its words are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Split {
    /// At blanks; punctuation stands alone.
    Bert,
    /// Runs of letters, and runs of what is neither letter nor blank.
    Words,
    /// At blanks.
    Blanks,
    /// Punctuation stands alone.
    Punctuation,
    /// Blanks become a character that belongs to the word behind it.
    Metaspace { blank: char, first: bool, always: bool, split: bool },
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Given {
    BertPreTokenizer,
    Whitespace,
    WhitespaceSplit,
    Punctuation {
        #[serde(default)]
        behavior: Behavior,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: Option<Scheme>,
        add_prefix_space: Option<bool>,
        split: Option<bool>,
    },
    Sequence {
        pretokenizers: Vec<Value>,
    },
}

#[derive(Default, Deserialize)]
enum Behavior {
    #[default]
    Isolated,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scheme {
    Always,
    First,
    Never,
}

/// What cuts texts.
pub(super) struct Tokenizer {
    steps: Vec<Step>,
    splits: Vec<Split>,
    pieces: Pieces,
}

fn splits(given: &Value) -> Result<Vec<Split>, String> {
    if given.is_null() {
        return Ok(Vec::new());
    }
    let read: Given = serde_json::from_value(given.clone()).map_err(|error| format!("`pre_tokenizer`: {error}"))?;
    let split = match read {
        Given::Sequence { pretokenizers } => {
            return pretokenizers.iter().map(splits).collect::<Result<Vec<_>, _>>().map(|splits| splits.concat());
        }
        Given::BertPreTokenizer => Split::Bert,
        Given::Whitespace => Split::Words,
        Given::WhitespaceSplit => Split::Blanks,
        Given::Punctuation { behavior: Behavior::Isolated } => Split::Punctuation,
        Given::Metaspace { replacement, prepend_scheme, add_prefix_space, split } => {
            let old = if add_prefix_space == Some(false) { Scheme::Never } else { Scheme::Always };
            let scheme = prepend_scheme.unwrap_or(old);
            let (first, always) = (scheme == Scheme::First, scheme == Scheme::Always);
            Split::Metaspace { blank: replacement, first, always, split: split.unwrap_or(true) }
        }
    };
    Ok(vec![split])
}

impl Split {
    /// Cuts a part of a text further; `at_start`: it is the text's first.
    fn on(&self, part: &str, at_start: bool) -> Vec<String> {
        match self {
            Self::Bert => runs(part, |c| match c {
                c if c.is_whitespace() => Run::Nothing,
                c if c.is_ascii_punctuation() || PUNCTUATION.has(c) => Run::Alone,
                _ => Run::Of(0),
            }),
            Self::Words => runs(part, |c| match c {
                c if c.is_whitespace() => Run::Nothing,
                c => Run::Of(u8::from(WORD.has(c))),
            }),
            Self::Blanks => part.split_whitespace().map(str::to_owned).collect(),
            Self::Punctuation => runs(part, |c| match c {
                c if c.is_ascii_punctuation() || PUNCTUATION.has(c) => Run::Alone,
                _ => Run::Of(0),
            }),
            Self::Metaspace { blank, first, always, split } => {
                let mut text: String = part.chars().map(|c| if c == ' ' { *blank } else { c }).collect();
                if (*always || (*first && at_start)) && !text.starts_with(*blank) {
                    text.insert(0, *blank);
                }
                if !split {
                    return vec![text];
                }
                let mut cuts: Vec<usize> = text.match_indices(*blank).map(|(at, _)| at).filter(|at| *at > 0).collect();
                cuts.insert(0, 0);
                cuts.push(text.len());
                cuts.windows(2).map(|cut| text[cut[0]..cut[1]].to_owned()).collect()
            }
        }
    }
}

/// Where a character goes.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Nothing,
    Alone,
    Of(u8),
}

fn runs(text: &str, of: impl Fn(char) -> Run) -> Vec<String> {
    let mut runs: Vec<String> = Vec::new();
    let mut last = Run::Nothing;
    for c in text.chars() {
        let this = of(c);
        match (this, runs.last_mut()) {
            (Run::Nothing, _) => {}
            (Run::Of(_), Some(run)) if this == last => run.push(c),
            _ => runs.push(c.into()),
        }
        last = this;
    }
    runs
}

impl Tokenizer {
    pub(super) fn read(file: &[u8]) -> Result<Self, String> {
        let read: Map<String, Value> = serde_json::from_slice(file).map_err(|error| error.to_string())?;
        let part = |name: &str| read.get(name).unwrap_or(&Value::Null);
        Ok(Self {
            steps: normalize::read(part("normalizer"))?,
            splits: splits(part("pre_tokenizer"))?,
            pieces: Pieces::read(part("model"))?,
        })
    }

    /// How many numbers of tokens there can be.
    pub(super) fn ids(&self) -> usize {
        self.pieces.count()
    }

    /// The numbers of the first tokens of a text, at most `max`; those that are not known are left out.
    pub(super) fn ids_of(&self, text: &str, max: usize) -> Vec<u32> {
        let text = self.steps.iter().fold(text.to_owned(), |text, step| step.on(text));
        let mut parts = vec![text];
        for split in &self.splits {
            parts = parts.iter().enumerate().flat_map(|(at, part)| split.on(part, at == 0)).collect();
        }
        let mut ids = Vec::new();
        for part in parts {
            self.pieces.of(&part, &mut ids);
            if ids.len() >= max {
                break;
            }
        }
        ids.truncate(max);
        ids
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_cut_before_words_are_looked_up() {
        let metaspace =
            |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
        let both = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always")]});
        #[rustfmt::skip]
        let table: &[(Value, &[&str])] = &[
            (json!(null), &["Don't stop,  猫。"]),
            (json!({"type": "BertPreTokenizer"}), &["Don", "'", "t", "stop", ",", "猫", "。"]),
            (json!({"type": "Whitespace"}), &["Don", "'", "t", "stop", ",", "猫", "。"]),
            (json!({"type": "WhitespaceSplit"}), &["Don't", "stop,", "猫。"]),
            (json!({"type": "Punctuation"}), &["Don", "'", "t stop", ",", "  猫", "。"]),
            (metaspace("always"), &["▁Don't", "▁stop,", "▁", "▁猫。"]),
            (metaspace("never"), &["Don't", "▁stop,", "▁", "▁猫。"]),
            (both, &["▁Don't", "▁stop,", "▁猫。"]),
        ];
        for (given, want) in table {
            let mut parts = vec!["Don't stop,  猫。".to_owned()];
            for split in splits(given).expect("read") {
                parts = parts.iter().enumerate().flat_map(|(at, part)| split.on(part, at == 0)).collect();
            }
            assert_eq!(parts, *want, "{given}");
        }
        for given in [json!({"type": "ByteLevel"}), json!({"type": "Punctuation", "behavior": "Removed"})] {
            assert!(splits(&given).expect_err("refused").contains("`pre_tokenizer`: unknown variant"), "{given}");
        }
    }
}
