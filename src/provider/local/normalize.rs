//! How a text is brought into the form that a model's vocabulary has (`normalizer` in `tokenizer.json`).

use serde::Deserialize;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

use super::charsmap::Charsmap;
use super::classes::ACCENTS;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Bert {
        clean: bool,
        spread: bool,
        strip: bool,
        lower: bool,
    },
    Charsmap(Charsmap),
    Lowercase,
    StripAccents,
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Strip {
        left: bool,
        right: bool,
    },
    Replace {
        piece: String,
        content: String,
    },
    /// Of several blanks in a row one.
    OneBlank(String),
    Prepend(String),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Given {
    BertNormalizer {
        clean_text: bool,
        handle_chinese_chars: bool,
        strip_accents: Option<bool>,
        lowercase: bool,
    },
    Precompiled {
        precompiled_charsmap: String,
    },
    Lowercase,
    StripAccents,
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    Prepend {
        prepend: String,
    },
    Sequence {
        normalizers: Vec<Value>,
    },
}

#[derive(Deserialize)]
enum Pattern {
    String(String),
    Regex(String),
}

/// The steps of a normalizer. An error says what is not understood.
pub(super) fn read(given: &Value) -> Result<Vec<Step>, String> {
    if given.is_null() {
        return Ok(Vec::new());
    }
    let read: Given = serde_json::from_value(given.clone()).map_err(|error| format!("`normalizer`: {error}"))?;
    let step = match read {
        Given::Sequence { normalizers } => {
            return normalizers.iter().map(self::read).collect::<Result<Vec<_>, _>>().map(|steps| steps.concat());
        }
        Given::BertNormalizer { clean_text, handle_chinese_chars, strip_accents, lowercase } => Step::Bert {
            clean: clean_text,
            spread: handle_chinese_chars,
            strip: strip_accents.unwrap_or(lowercase),
            lower: lowercase,
        },
        Given::Precompiled { precompiled_charsmap } => {
            let read = Charsmap::read(&precompiled_charsmap);
            Step::Charsmap(read.map_err(|error| format!("`normalizer.precompiled_charsmap`: {error}"))?)
        }
        Given::Lowercase => Step::Lowercase,
        Given::StripAccents => Step::StripAccents,
        Given::Nfc => Step::Nfc,
        Given::Nfd => Step::Nfd,
        Given::Nfkc => Step::Nfkc,
        Given::Nfkd => Step::Nfkd,
        Given::Strip { strip_left, strip_right } => Step::Strip { left: strip_left, right: strip_right },
        Given::Replace { pattern: Pattern::String(piece), content } if !piece.is_empty() => {
            Step::Replace { piece, content }
        }
        Given::Replace { pattern: Pattern::Regex(regex), content } if regex == " {2,}" => Step::OneBlank(content),
        Given::Replace { pattern: Pattern::String(regex) | Pattern::Regex(regex), .. } => {
            return Err(format!("`normalizer.pattern`: expected a text, or \" {{2,}}\", got {regex:?}"));
        }
        Given::Prepend { prepend } => Step::Prepend(prepend),
    };
    Ok(vec![step])
}

fn is_ideograph(c: char) -> bool {
    matches!(u32::from(c),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        | 0x2B820..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

fn cleaned(text: &str) -> String {
    let blank = |c: char| if c.is_whitespace() { ' ' } else { c };
    // Tabs and ends of lines are controls, too, but blanks first.
    let kept = |c: &char| !matches!(c, '\0' | '\u{FFFD}') && (c.is_whitespace() || !c.is_control());
    text.chars().filter(kept).map(blank).collect()
}

fn without_accents(text: &str) -> String {
    text.nfd().filter(|c| !ACCENTS.has(*c)).collect()
}

impl Step {
    pub(super) fn on(&self, text: String) -> String {
        match self {
            Self::Bert { clean, spread, strip, lower } => {
                let text = if *clean { cleaned(&text) } else { text };
                let text = if *spread { spread_out(&text) } else { text };
                let text = if *strip { without_accents(&text) } else { text };
                if *lower { text.to_lowercase() } else { text }
            }
            Self::Charsmap(charsmap) => charsmap.normalize(&text),
            Self::Lowercase => text.to_lowercase(),
            Self::StripAccents => text.chars().filter(|c| !ACCENTS.has(*c)).collect(),
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
            Self::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { &text };
                (if *right { text.trim_end() } else { text }).to_owned()
            }
            Self::Replace { piece, content } => text.replace(piece.as_str(), content),
            Self::OneBlank(content) => one_blank(&text, content),
            Self::Prepend(prefix) if !text.is_empty() => format!("{prefix}{text}"),
            Self::Prepend(_) => text,
        }
    }
}

/// With blanks around each ideograph.
fn spread_out(text: &str) -> String {
    let mut spread = String::with_capacity(text.len());
    for c in text.chars() {
        if is_ideograph(c) {
            spread.extend([' ', c, ' ']);
        } else {
            spread.push(c);
        }
    }
    spread
}

fn one_blank(text: &str, content: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("  ") {
        out.push_str(&rest[..at]);
        out.push_str(content);
        rest = rest[at..].trim_start_matches(' ');
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_brought_into_form() {
        let bert = |lower| json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": lower});
        let regex = |regex| json!({"type": "Replace", "pattern": {"Regex": regex}, "content": " "});
        #[rustfmt::skip]
        let table = [
            (json!(null), "A b", "A b"),
            (bert(true), "Café\tÀ\u{0}\u{7}b 猫", "cafe ab  猫 "),
            (bert(false), "Café", "Café"),
            (json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, regex(" {2,}")]}), "ﬁ  X", "fi x"),
            (json!({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}), "é", "e"),
            (json!({"type": "Strip", "strip_left": true, "strip_right": false}), " a ", "a "),
            (json!({"type": "Replace", "pattern": {"String": "``"}, "content": "\""}), "``a", "\"a"),
            (json!({"type": "Prepend", "prepend": "▁"}), "a", "▁a"),
        ];
        for (given, text, want) in table {
            let steps = read(&given).expect("read");
            let got = steps.iter().fold(text.to_owned(), |text, step| step.on(text));
            assert_eq!(got, want, "{given}");
        }
        for (given, want) in [
            (json!({"type": "ByteLevel"}), "unknown variant `ByteLevel`"),
            (regex("\\p{L}"), "got \"\\\\p{L}\""),
            (json!({"type": "Precompiled", "precompiled_charsmap": "*"}), "precompiled_charsmap"),
            (json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"}), "expected a text"),
        ] {
            let said = read(&given).expect_err("refused");
            assert!(said.contains(want), "{said}");
        }
    }
}
