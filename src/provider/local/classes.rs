//! Classes of characters, from the tables of `regex-syntax`.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as Parsed, HirKind};

/// Characters, as ranges in their order.
pub(super) struct Class(Vec<(char, char)>);

/// Marks that take no room of their own.
pub(super) static ACCENTS: LazyLock<Class> = LazyLock::new(|| Class::of(r"\p{Mn}"));
/// Punctuation.
pub(super) static PUNCTUATION: LazyLock<Class> = LazyLock::new(|| Class::of(r"\p{P}"));
/// What a word is made of.
pub(super) static WORD: LazyLock<Class> = LazyLock::new(|| Class::of(r"\w"));

impl Class {
    /// Empty where the expression is no class; a test holds that these are.
    fn of(expression: &str) -> Self {
        let parsed = regex_syntax::parse(expression).ok().map(regex_syntax::hir::Hir::into_kind);
        let Some(HirKind::Class(Parsed::Unicode(class))) = parsed else { return Self(Vec::new()) };
        Self(class.ranges().iter().map(|range| (range.start(), range.end())).collect())
    }

    pub(super) fn has(&self, c: char) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < c);
        self.0.get(at).is_some_and(|(start, _)| *start <= c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_of_their_classes() {
        for (class, yes, no) in
            [(&ACCENTS, "\u{301}\u{941}", "aé\u{93E}"), (&PUNCTUATION, ".-«。_", "a $+"), (&WORD, "aé_9猫", " .-$")]
        {
            assert!(yes.chars().all(|c| class.has(c)), "{yes:?}");
            assert!(!no.chars().any(|c| class.has(c)), "{no:?}");
        }
    }
}
