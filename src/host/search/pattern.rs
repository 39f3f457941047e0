//! A grep's pattern: how it is compiled within limits, and what is said about one that is no expression.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

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
    fn text_is_no_expression() {
        assert!(Pattern { literal: true, ..pattern("foo(a[") }.compile().is_ok());
        assert!(Pattern { multiline: true, ..pattern("a\\nb") }.compile().is_ok());
    }
}
