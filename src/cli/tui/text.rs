//! Text as lines of a terminal: made harmless, and broken where the width ends.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns of a tab.
const TAB: &str = "    ";

/// The text as it may be shown: no control characters, and nothing that turns the direction of what stands around it.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => shown.push_str(TAB),
            '\n' => shown.push('\n'),
            '\r' => {}
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.push('\u{fffd}'),
            c if c.is_control() => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
    }
    shown
}

/// Columns of a text.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The beginning of a text that fits into so many columns, with a mark where something is left out.
pub(super) fn cut(text: &str, columns: usize) -> String {
    let flat = harmless(text).replace('\n', " ");
    if width(&flat) <= columns {
        return flat;
    }
    let mut shown = String::new();
    let mut used = 0;
    for c in flat.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// Words in their styles, broken into lines of at most so many columns. `first` and `rest` stand in front of them.
pub(super) fn wrap(
    spans: &[Span<'static>],
    columns: usize,
    (first, rest): (&Span<'static>, &Span<'static>),
) -> Vec<Line<'static>> {
    let mut lines = Wrapped { lines: Vec::new(), columns: columns.max(8), first, rest, line: Vec::new(), used: 0 };
    lines.begin();
    for span in spans {
        let mut parts = span.content.split('\n');
        if let Some(part) = parts.next() {
            lines.words(part, span.style);
        }
        for part in parts {
            lines.end();
            lines.words(part, span.style);
        }
    }
    lines.close()
}

struct Wrapped<'a> {
    lines: Vec<Line<'static>>,
    columns: usize,
    first: &'a Span<'static>,
    rest: &'a Span<'static>,
    line: Vec<Span<'static>>,
    used: usize,
}

impl Wrapped<'_> {
    fn begin(&mut self) {
        let front = if self.lines.is_empty() { self.first } else { self.rest };
        self.used = width(&front.content);
        if !front.content.is_empty() {
            self.line.push(front.clone());
        }
    }

    fn end(&mut self) {
        self.lines.push(Line::from(std::mem::take(&mut self.line)));
        self.begin();
    }

    fn close(mut self) -> Vec<Line<'static>> {
        self.lines.push(Line::from(std::mem::take(&mut self.line)));
        self.lines
    }

    fn words(&mut self, text: &str, style: Style) {
        for word in text.split_inclusive(' ') {
            let bare = width(word.trim_end_matches(' '));
            let front = width(&self.rest.content);
            if self.used + bare > self.columns && self.used > front {
                self.end();
            }
            if bare <= self.columns.saturating_sub(self.used) {
                self.push(word, style);
            } else {
                self.letters(word, style);
            }
        }
    }

    /// A word that is longer than a line.
    fn letters(&mut self, word: &str, style: Style) {
        let mut piece = String::new();
        let mut wide = 0;
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if self.used + wide + columns > self.columns {
                self.push(&std::mem::take(&mut piece), style);
                wide = 0;
                self.end();
            }
            piece.push(c);
            wide += columns;
        }
        self.push(&piece, style);
    }

    fn push(&mut self, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        self.used += width(text);
        match self.line.last_mut().filter(|last| last.style == style) {
            Some(last) => last.content.to_mut().push_str(text),
            None => self.line.push(Span::styled(text.to_owned(), style)),
        }
    }
}

/// A text of one style, broken into lines, each behind `front`.
pub(super) fn plain(text: &str, style: Style, columns: usize, front: &'static str) -> Vec<Line<'static>> {
    let front = Span::raw(front);
    let mut lines = Vec::new();
    for line in harmless(text.trim_end_matches('\n')).split('\n') {
        lines.extend(wrap(&[Span::styled(line.to_owned(), style)], columns, (&front, &front)));
    }
    lines
}

/// The lines of a difference between two files, in their colours.
pub(super) fn difference(text: &str, columns: usize, front: &'static str) -> Vec<Line<'static>> {
    use ratatui::style::Color;
    let mut lines = Vec::new();
    for line in harmless(text.trim_end_matches('\n')).split('\n') {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Style::new().bold(),
            [b'+', ..] => Style::new().fg(Color::Green),
            [b'-', ..] => Style::new().fg(Color::Red),
            [b'@', b'@', ..] => Style::new().fg(Color::Cyan),
            _ => Style::new(),
        };
        lines.extend(plain(line, style, columns, front));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[Line<'static>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_end_at_words_and_never_pass_the_width() {
        #[rustfmt::skip]
        let table: &[(&str, usize, &[&str])] = &[
            ("one two three", 8, &["one two ", "three"]),
            ("abcdefghijklmnop", 8, &["abcdefgh", "ijklmnop"]),
            ("a abcdefghijkl", 8, &["a ", "abcdefgh", "ijkl"]),
            ("日本語日本語", 8, &["日本語日", "本語"]),
            ("", 8, &[""]),
            ("a\nb", 8, &["a", "b"]),
        ];
        for (text, columns, wanted) in table {
            assert_eq!(shown(&plain(text, Style::new(), *columns, "")), *wanted, "{text:?}");
        }
        let front = plain("one two three", Style::new(), 10, "  ");
        assert_eq!(shown(&front), ["  one two ", "  three"]);
    }

    #[test]
    fn what_came_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\r\n\tc\u{202e}d\u{9b}"), "a\u{fffd}[2Jb\n    c\u{fffd}d\u{fffd}");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("a\nb", 5), "a b");
    }
}
