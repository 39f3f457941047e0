//! Cuts a text into the words under which it is found. Pure; the same cut for what is kept and what is asked.
//!
//! Words are runs of letters and digits; a name such as `createServer` counts whole and in its parts. Scripts that put
//! no blanks between words (Chinese, Japanese, Korean, Thai …) are cut into overlapping pairs of characters. A symbol
//! such as an emoji is a word of its own. What comes out holds letters, digits and symbols only, so that no text can
//! be mistaken for an operator of the index.

use crate::base::limit;

/// Characters of one word that count.
const WORD_CHARS_MAX: usize = 64;

/// Words that say how a question is asked and not what about.
#[rustfmt::skip]
const FILLERS: &[&str] = &[
    "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do",
    "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or",
    "our", "please", "should", "so", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "those", "to", "us", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with", "would",
    "you", "your",
];

/// What a character is to the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Dense,
    Symbol,
    Between,
}

fn class(c: char) -> Class {
    match u32::from(c) {
        // Thai, Lao, Myanmar, Khmer; kana; ideographs; Hangul; further ideographs.
        0x0E00..=0x0EFF
        | 0x1000..=0x109F
        | 0x1780..=0x17FF
        | 0x3005..=0x3007
        | 0x3040..=0x30FF
        | 0x31F0..=0x31FF
        | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF
        | 0xF900..=0xFAFF
        | 0xFF66..=0xFF9F
        | 0x20000..=0x3FFFF => Class::Dense,
        // Arrows to miscellaneous symbols; pictographs.
        0x2190..=0x2BFF | 0x1F000..=0x1FAFF => Class::Symbol,
        // Accents that follow their letter belong to it.
        0x0300..=0x036F => Class::Letter,
        _ if c.is_alphanumeric() => Class::Letter,
        _ => Class::Between,
    }
}

/// Runs of one class, in order; what lies between words is left out, and each symbol stands alone.
fn runs(text: &str) -> Vec<(Class, &str)> {
    let mut runs: Vec<(Class, &str)> = Vec::new();
    let mut start = 0;
    let mut last = Class::Between;
    for (at, c) in text.char_indices() {
        let this = class(c);
        if this != last || this == Class::Symbol {
            if last != Class::Between {
                runs.push((last, &text[start..at]));
            }
            (start, last) = (at, this);
        }
    }
    if last != Class::Between {
        runs.push((last, &text[start..]));
    }
    runs
}

fn clipped(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect::<String>().to_lowercase()
}

/// The parts of a name in camel case; empty when it is one word.
fn camel_parts(word: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = word.char_indices().collect();
    let mut cuts = vec![0];
    for (n, pair) in chars.windows(2).enumerate() {
        let (before, (at, this)) = (pair[0].1, pair[1]);
        let next_is_lower = chars.get(n + 2).is_some_and(|(_, c)| c.is_lowercase());
        let begins = this.is_uppercase() && (!before.is_uppercase() || next_is_lower);
        if begins {
            cuts.push(at);
        }
    }
    if cuts.len() == 1 {
        return Vec::new();
    }
    cuts.push(word.len());
    cuts.windows(2).map(|cut| &word[cut[0]..cut[1]]).filter(|part| part.chars().count() > 1).collect()
}

fn letter_words(run: &str, out: &mut Vec<String>) {
    out.push(clipped(run));
    out.extend(camel_parts(run).into_iter().map(clipped));
}

fn pairs(run: &str, out: &mut Vec<String>) {
    let chars: Vec<char> = run.chars().collect();
    out.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
}

/// The words under which a text is kept, joined by blanks. Empty when it has none.
pub(super) fn indexed(text: &str) -> String {
    let mut words = Vec::new();
    for (class, run) in runs(text) {
        match class {
            Class::Letter => letter_words(run, &mut words),
            Class::Dense => {
                words.extend(run.chars().map(String::from));
                pairs(run, &mut words);
            }
            Class::Symbol => words.push(run.to_owned()),
            Class::Between => {}
        }
    }
    words.join(" ")
}

/// The words that a question asks for, each once, without fillers unless there is nothing else.
pub(super) fn asked(query: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (class, run) in runs(query) {
        match class {
            Class::Letter => letter_words(run, &mut words),
            Class::Dense if run.chars().nth(1).is_some() => pairs(run, &mut words),
            Class::Dense | Class::Symbol => words.push(run.to_owned()),
            Class::Between => {}
        }
    }
    let mut once: Vec<String> = Vec::new();
    for word in words {
        if !once.contains(&word) {
            once.push(word);
        }
    }
    if once.iter().any(|word| !FILLERS.contains(&word.as_str())) {
        once.retain(|word| !FILLERS.contains(&word.as_str()));
    }
    once.truncate(limit::MEMORY_QUERY_WORDS_MAX);
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_words() {
        #[rustfmt::skip]
        let table = [
            ("Run `npm test`, then push.", "run npm test then push"),
            ("src/app/wiring.rs", "src app wiring rs"),
            ("snake_case_name", "snake case name"),
            ("createSimseServer", "createsimseserver create simse server"),
            ("parseHTTPRequest v2", "parsehttprequest parse http request v2"),
            ("ABC", "abc"),
            ("猫", "猫"),
            ("黒い猫", "黒 い 猫 黒い い猫"),
            ("用npm测试", "用 npm 测 试 测试"),
            ("done ✅🎉", "done ✅ 🎉"),
            ("café Ärger", "café ärger"),
            ("  => () ** \"\" ", ""),
            ("", ""),
        ];
        for (text, want) in table {
            assert_eq!(indexed(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_question_is_cut_the_same_way_and_says_less() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str])] = &[
            ("How do I run the tests?", &["run", "tests"]),
            ("tests tests TESTS", &["tests"]),
            ("what is it", &["what", "is", "it"]),
            ("猫", &["猫"]),
            ("黒い猫", &["黒い", "い猫"]),
            ("\"a\" OR b* NEAR(c) AND NOT d:e", &["b", "near", "c", "not", "d", "e"]),
            ("🎉", &["🎉"]),
            ("'; DROP TABLE entry; --", &["drop", "table", "entry"]),
            ("()", &[]),
        ];
        for (query, want) in table {
            assert_eq!(asked(query), *want, "{query:?}");
        }
    }

    #[test]
    fn long_questions_and_words_are_bounded() {
        let many: String = (0..1000).map(|n| format!("w{n} ")).collect();
        assert_eq!(asked(&many).len(), limit::MEMORY_QUERY_WORDS_MAX);
        assert_eq!(asked(&"x".repeat(10_000)), ["x".repeat(WORD_CHARS_MAX)]);
        assert_eq!(indexed(&"x".repeat(10_000)), "x".repeat(WORD_CHARS_MAX));
    }
}
