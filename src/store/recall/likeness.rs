//! Which texts say the same. Pure.
//!
//! Two grades. Texts that differ in blanks, in marks around words (quotation marks, backticks), in a sentence's end or in
//! how its first letter is written *are* the same: one is kept. Texts that have nearly all their words in common are
//! *much alike*: both are kept, for a single word can turn a sentence round, but of two answers the worse one gives way.

use std::collections::HashSet;

use super::words;

/// Share of the words that two texts which are much alike have in common.
const ALIKE: f64 = 0.9;

/// A number that texts share which say the same (FNV-1a); others rarely do. The same on every machine and in every version.
pub(super) fn digest(text: &str) -> i64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    core(text).bytes().fold(0xcbf2_9ce4_8422_2325, step).cast_signed()
}

/// What a text says, however it is written.
pub(super) fn core(text: &str) -> String {
    let is_mark = |c: char| matches!(c, '`' | '"' | '\'' | '“' | '”' | '„' | '‘' | '’' | '«' | '»');
    let mut core = String::with_capacity(text.len());
    let mut blank = false;
    for c in text.chars().filter(|c| !is_mark(*c)) {
        if c.is_whitespace() {
            blank = !core.is_empty();
            continue;
        }
        if std::mem::take(&mut blank) {
            core.push(' ');
        }
        match core.is_empty() {
            true => core.extend(c.to_lowercase()),
            false => core.push(c),
        }
    }
    let said = core.trim_end_matches(['.', '!', '。', '!']).trim_end();
    // A text of such marks alone is what it is.
    if said.is_empty() { text.to_owned() } else { said.to_owned() }
}

/// What a text is compared by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Likeness(HashSet<String>);

impl Likeness {
    /// That of a text.
    pub fn of(text: &str) -> Self {
        Self(words::indexed(text).split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    /// The words that two texts have in common, as a share of all that they have.
    pub fn share(&self, other: &Self) -> f64 {
        let common = self.0.intersection(&other.0).count();
        let all = self.0.len() + other.0.len() - common;
        #[allow(clippy::cast_precision_loss, reason = "numbers of words")]
        let share = common as f64 / all.max(1) as f64;
        share
    }

    /// Whether two texts have nearly all words in common, and all that have digits.
    pub fn is_much(&self, other: &Self) -> bool {
        let has_digit = |word: &String| word.chars().any(char::is_numeric);
        self.share(other) >= ALIKE && !self.0.symmetric_difference(&other.0).any(has_digit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_in_several_ways() {
        let said = core("Run `npm test`, then push.");
        for same in ["run npm test, then push", "Run  npm test,\nthen push!", "\"Run 'npm test', then push\"."] {
            assert_eq!(core(same), said, "{same}");
            assert_eq!(digest(same), digest(&said));
        }
        for other in [
            "run npm test then push",
            "run npm Test, then push",
            "Do not run npm test, then push",
            "run npm tests, then push",
        ] {
            assert_ne!(core(other), said, "{other}");
        }
        for (a, b) in [("x = a + b", "x = a - b"), ("C++", "C"), ("port >= 5", "port <= 5"), ("...", "!"), ("`", "\"")]
        {
            assert_ne!(core(a), core(b), "{a}");
        }
        assert_eq!(core("`.`"), "`.`");
    }

    #[test]
    fn texts_are_much_alike_when_nearly_all_words_are_common() {
        let long =
            "the server of the tests listens on a port of its own and logs all that it does into a file below target";
        #[rustfmt::skip]
        let table = [
            (long, &format!("{long} always") as &str, true), (long, "the server listens", false),
            (&format!("{long} 8080"), &format!("{long} 8081"), false), (&format!("{long} 8080"), long, false),
            ("a b", "b a", true), ("", "", false), ("猫が好き", "猫が好き。", true), ("tests", "weather", false),
        ];
        for (a, b, want) in table {
            assert_eq!(Likeness::of(a).is_much(&Likeness::of(b)), want, "{a:?} {b:?}");
        }
    }
}
