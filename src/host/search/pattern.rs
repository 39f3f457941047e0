//! A grep's pattern: how it is compiled within limits, and what is said about one that is no expression.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use regex_syntax::hir::{Class, Hir, HirKind, LookSet};

use crate::base::{limit, text};
use crate::tool::ToolError;

/// What is looked for.
#[derive(Debug, Clone)]
pub(in crate::host) struct Pattern {
    /// An expression, or text.
    pub text: String,
    /// It is text.
    pub literal: bool,
    /// Capital and small letters are the same.
    pub ignore_case: bool,
    /// They are the same while the pattern has no capital letter.
    pub smart_case: bool,
    /// Only where it stands alone as a word.
    pub word: bool,
    /// It may match across lines, and `.` matches line ends.
    pub multiline: bool,
}

impl Pattern {
    /// The matcher, linear in time and bounded in memory.
    ///
    /// # Errors
    /// [`ToolError::BadArguments`] that names the place of the fault.
    pub(in crate::host) fn compile(&self) -> Result<RegexMatcher, ToolError> {
        let bad = |why: String| ToolError::BadArguments(format!("`pattern`: {why}"));
        if self.text.is_empty() {
            return Err(bad("expected a regular expression, got an empty string".to_owned()));
        }
        if self.text.len() > limit::PATTERN_BYTES_MAX {
            let most = limit::PATTERN_BYTES_MAX;
            return Err(bad(format!("expected at most {most} bytes, got {}", self.text.len())));
        }
        let mut builder = RegexMatcherBuilder::new();
        builder
            .case_insensitive(self.ignore_case)
            .case_smart(self.smart_case)
            .fixed_strings(self.literal)
            .word(self.word)
            .multi_line(true)
            .dot_matches_new_line(self.multiline)
            .crlf(true)
            .size_limit(limit::REGEX_BYTES_MAX)
            .dfa_size_limit(limit::REGEX_BYTES_MAX);
        if self.multiline {
            builder.line_terminator(None);
        }
        builder.build(&self.text).map_err(|e| bad(self.fault(&e)))
    }

    /// Whether a match can hang on how the bytes of a file that is no UTF-8 are read. Of a pattern that names such bytes it
    /// cannot: they are looked for as they are.
    pub(in crate::host) fn hangs_on_encoding(&self) -> bool {
        let text = if self.literal { regex_syntax::escape(&self.text) } else { self.text.clone() };
        let mut parser = regex_syntax::ParserBuilder::new();
        parser.utf8(false).multi_line(true).crlf(true);
        parser.case_insensitive(self.ignore_case || self.smart_case).dot_matches_new_line(self.multiline);
        let Ok(hir) = parser.build().parse(&text) else { return true };
        let mut needs = Needs::default();
        needs.look(&hir);
        !needs.bytes && (needs.characters || self.word)
    }

    /// What is wrong, and where.
    fn fault(&self, error: &grep_regex::Error) -> String {
        match error.kind() {
            grep_regex::ErrorKind::NotAllowed(_) => "it matches a line end, which needs `multiline`: true".to_owned(),
            _ if self.literal => format!("it cannot be used: {error}"),
            _ => match regex_syntax::ParserBuilder::new().utf8(false).build().parse(&self.text) {
                Err(regex_syntax::Error::Parse(fault)) => self.placed(fault.span(), &fault.kind().to_string()),
                Err(regex_syntax::Error::Translate(fault)) => self.placed(fault.span(), &fault.kind().to_string()),
                Err(_) | Ok(_) => format!("it is no regular expression that can be used: {error}"),
            },
        }
    }

    fn placed(&self, span: &regex_syntax::ast::Span, why: &str) -> String {
        let at = self.text[..span.start.offset].chars().count() + 1;
        let from = text::head(&self.text[span.start.offset..], 40);
        let from = if from.is_empty() { "its end".to_owned() } else { format!("`{from}`") };
        format!("{why}, at character {at} ({from}). For plain text set `literal`: true")
    }
}

/// What a pattern looks for beyond ASCII.
#[derive(Debug, Default)]
struct Needs {
    /// Bytes that are no characters.
    bytes: bool,
    /// Characters that older encodings have, too.
    characters: bool,
}

impl Needs {
    fn look(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Empty => {}
            HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
                Ok(text) => self.characters |= text.chars().any(|c| is_old(c, c)),
                Err(_) => self.bytes = true,
            },
            HirKind::Class(Class::Unicode(class)) => {
                self.characters |= class.iter().any(|range| is_old(range.start(), range.end()));
            }
            HirKind::Class(Class::Bytes(class)) => self.bytes |= class.iter().any(|range| !range.end().is_ascii()),
            HirKind::Look(look) => self.characters |= LookSet::singleton(*look).contains_word_unicode(),
            HirKind::Repetition(repetition) => self.look(&repetition.sub),
            HirKind::Capture(capture) => self.look(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().for_each(|part| self.look(part)),
        }
    }
}

/// Whether one of the characters from `first` to `last` stands for a byte that is no UTF-8.
fn is_old(first: char, last: char) -> bool {
    /// What Windows-1252 has in place of control characters, and what stands for no character at all.
    const ODD: &str = "\u{20ac}\u{201a}\u{192}\u{201e}\u{2026}\u{2020}\u{2021}\u{2c6}\u{2030}\u{160}\u{2039}\u{152}\u{17d}\u{2018}\u{2019}\u{201c}\u{201d}\u{2022}\u{2013}\u{2014}\u{2dc}\u{2122}\u{161}\u{203a}\u{153}\u{17e}\u{178}\u{fffd}";
    (first <= '\u{ff}' && last >= '\u{80}') || ODD.chars().any(|c| (first..=last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        let text = text.to_owned();
        Pattern { text, literal: false, ignore_case: false, smart_case: false, word: false, multiline: false }
    }

    #[test]
    fn what_is_no_expression_says_where() {
        #[rustfmt::skip]
        let table = [
            ("", "`pattern`: expected a regular expression, got an empty string"),
            ("foo(a", "`pattern`: unclosed group, at character 4 (`(a`). For plain text set `literal`: true"),
            ("ä[b", "`pattern`: unclosed character class, at character 2 (`[b`). For plain text set `literal`: true"),
            ("a\\", "`pattern`: incomplete escape sequence, reached end of pattern prematurely, at character 2 (`\\`). For plain text set `literal`: true"),
            ("(?=a)", "`pattern`: look-around, including look-ahead and look-behind, is not supported, at character 1 (`(?=`). For plain text set `literal`: true"),
            ("a\\nb", "`pattern`: it matches a line end, which needs `multiline`: true"),
        ];
        for (text, want) in table {
            let said = pattern(text).compile().unwrap_err().to_string();
            assert!(
                said.starts_with(want.trim_end_matches("). For plain text set `literal`: true").trim_end_matches('`')),
                "{said}"
            );
        }
        let said = pattern("((a{1000}){1000}){1000}").compile().unwrap_err().to_string();
        assert!(said.contains("size limit"), "{said}");
        let said = pattern(&"a".repeat(limit::PATTERN_BYTES_MAX + 1)).compile().unwrap_err().to_string();
        assert!(said.contains("at most"), "{said}");
    }

    #[test]
    fn encodings_count_where_the_pattern_can_tell() {
        #[rustfmt::skip]
        let table = [
            ("foo", false), ("fn [a-z_]+\\(", false), (r"\d+|x\.y", false), ("[\u{430}-\u{44f}]", false), ("^\\s*$", true), ("", false),
            ("caf\u{e9}", true), ("caf.", true), ("caf[^a]", true), (r"\w+", true), (r"\bfoo", true), ("\u{20ac}", true), ("\u{fffd}", true), ("[\u{2010}-\u{2015}]", true),
            (r"(?-u:\xe9)", false), (r"(?-u:.)x", false), (r"(?-u:\b)foo", false), ("(a|(b\u{fc})*)", true),
        ];
        for (text, want) in table {
            assert_eq!(pattern(text).hangs_on_encoding(), want, "{text}");
        }
        assert!(!Pattern { ignore_case: true, ..pattern("ask") }.hangs_on_encoding(), "the Kelvin sign is not in them");
        assert!(Pattern { ignore_case: true, ..pattern("\u{430}\u{c4}") }.hangs_on_encoding());
        assert!(Pattern { word: true, ..pattern("foo") }.hangs_on_encoding());
        assert!(!Pattern { literal: true, ..pattern("foo.*") }.hangs_on_encoding());
        let odd: String = encoding_rs::WINDOWS_1252.decode(&(0x80..=0x9f).collect::<Vec<u8>>()).0.into_owned();
        assert!(odd.chars().all(|c| is_old(c, c)) && !is_old('a', 'z') && !is_old('\u{430}', '\u{44f}'));
    }

    #[test]
    fn text_is_no_expression() {
        assert!(Pattern { literal: true, ..pattern("foo(a[") }.compile().is_ok());
        assert!(Pattern { multiline: true, ..pattern("a\\nb") }.compile().is_ok());
    }
}
