//! The small glob of rules and names: `*` and `?`, everything else literal, anchored at both ends.
//!
//! `*` stands for any run of characters, line ends and slashes too; `?` for exactly one character.
//! There is no escape and no class: `[a]` matches the three characters `[a]`. File patterns
//! (`src/**/*.rs`) are another language and belong to the tools that walk directories.
//!
//! Invariant: no pattern is slow. Each literal piece is looked for once, leftmost, and never given
//! back, so that time grows with the text and not with the number of stars.

use memchr::memmem;

/// Whether the whole of `text` fits `pattern`.
///
/// The empty pattern fits only the empty text. Cannot fail.
///
/// Source: typescript-api.md §3.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = after_prefix(first, text) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match after_leftmost(piece, rest) {
            Some(tail) => rest = tail,
            None => return false,
        }
    }
    ends_with(last, rest)
}

/// What follows `piece` (which may hold `?`, never `*`) at the very start of `text`.
fn after_prefix<'t>(piece: &str, text: &'t str) -> Option<&'t str> {
    if !piece.contains('?') {
        return text.strip_prefix(piece);
    }
    let mut chars = text.chars();
    let fits = piece.chars().all(|p| chars.next().is_some_and(|c| p == '?' || p == c));
    if fits { Some(chars.as_str()) } else { None }
}

/// What follows the leftmost place in `text` that fits `piece`.
fn after_leftmost<'t>(piece: &str, text: &'t str) -> Option<&'t str> {
    if !piece.contains('?') {
        return memmem::find(text.as_bytes(), piece.as_bytes()).map(|at| &text[at + piece.len()..]);
    }
    text.char_indices().find_map(|(at, _)| after_prefix(piece, &text[at..]))
}

fn ends_with(piece: &str, text: &str) -> bool {
    if !piece.contains('?') {
        return text.ends_with(piece);
    }
    let mut chars = text.chars().rev();
    piece.chars().rev().all(|p| chars.next().is_some_and(|c| p == '?' || p == c))
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks_only() {
        #[rustfmt::skip]
        let table = [
            ("", "", true), ("", "a", false), ("*", "", true), ("*", "a\nb/c", true), ("?", "", false),
            ("?", "ä", true), ("?", "\n", true), ("??", "a", false), ("a", "ab", false), ("a", "ba", false),
            ("a*", "a", true), ("a*a", "a", false), ("a*a", "aa", true), ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false), ("git *", "git status; rm\n-rf", true), ("git *", "git", false),
            ("fs_?ead", "fs_read", true), ("*?b", "ab", true), ("*?b", "b", false), ("*a?c*", "xxabcx", true),
            ("*a?c*", "xxacx", false), ("a.c", "abc", false), ("[ab]", "a", false), ("[ab]", "[ab]", true),
            (r"\*", r"\x", true), ("{a,b}", "a", false), ("*.rs", "src/base/glob.rs", true), ("**", "x", true),
            ("*ab?", "abab1", true), ("mcp:*/read", "mcp:a/b/read", true),
        ];
        for (pattern, text, want) in table {
            assert_eq!(matches(pattern, text), want, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn many_stars_on_a_long_text_end_soon() {
        let text = "a".repeat(100_000);
        let pattern = "a*".repeat(2_000) + "b";
        assert!(!matches(&pattern, &text));
    }

    /// The definition, exponential and plainly right.
    fn slow(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some(('*', p)), None) => slow(p, text),
            (Some(('*', p)), Some((_, t))) => slow(p, text) || slow(pattern, t),
            (Some((p, ps)), Some((t, ts))) => (*p == '?' || p == t) && slow(ps, ts),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?é]{0,8}", text in "[abé\n]{0,10}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), slow(&p, &t));
        }
    }
}
