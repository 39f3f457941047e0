//! Markdown as lines of a terminal. What is no markdown is shown as it stands; HTML is text.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::text::{harmless, plain, wrap};

/// The lines of a text.
pub(super) fn lines(text: &str, columns: usize, front: &'static str) -> Vec<Line<'static>> {
    let clean = harmless(text);
    let mut page = Page {
        lines: Vec::new(),
        columns,
        front,
        spans: Vec::new(),
        styles: vec![Style::new()],
        lists: Vec::new(),
        marker: None,
        quotes: 0,
        code: None,
        cells: 0,
        links: Vec::new(),
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    for event in Parser::new_ext(&clean, options) {
        page.take(event);
    }
    page.flush();
    while page.lines.last().is_some_and(|line| line.width() <= front.len() && line.to_string().trim().is_empty()) {
        page.lines.pop();
    }
    page.lines
}

struct Page {
    lines: Vec<Line<'static>>,
    columns: usize,
    front: &'static str,
    /// Words of the paragraph that has not ended.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// Numbers of the lists that are open; None: points.
    lists: Vec<Option<u64>>,
    /// What stands before the next line.
    marker: Option<String>,
    quotes: usize,
    /// The code block that is open.
    code: Option<String>,
    /// Cells of the row so far.
    cells: usize,
    /// Where the links lead that are open, and where their words begin.
    links: Vec<(String, usize)>,
}

impl Page {
    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push(&mut self, style: Style) {
        let style = self.style().patch(style);
        self.styles.push(style);
    }

    fn say(&mut self, text: &str) {
        let style = self.style();
        self.spans.push(Span::styled(text.to_owned(), style));
    }

    /// A paragraph ends.
    fn flush(&mut self) {
        if self.spans.is_empty() && self.marker.is_none() {
            return;
        }
        let quotes = "│ ".repeat(self.quotes);
        let depth = self.lists.len().saturating_sub(1);
        let indent = format!("{}{quotes}{}", self.front, "  ".repeat(depth));
        let marker = self.marker.take();
        let (first, rest) = match (&marker, self.lists.is_empty()) {
            (Some(marker), _) => {
                (format!("{indent}{marker}"), format!("{indent}{}", " ".repeat(marker.chars().count())))
            }
            (None, false) => (format!("{indent}  "), format!("{indent}  ")),
            (None, true) => (indent.clone(), indent),
        };
        let spans = std::mem::take(&mut self.spans);
        self.lines.extend(wrap(&spans, self.columns, (&Span::raw(first), &Span::raw(rest))));
    }

    fn gap(&mut self) {
        if self.lists.is_empty() && !self.lines.is_empty() {
            self.lines.push(Line::raw(self.front));
        }
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.say(&text),
            },
            Event::Code(text) => {
                let style = self.style().fg(Color::Cyan);
                self.spans.push(Span::styled(text.into_string(), style));
            }
            Event::Html(text) | Event::InlineHtml(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.say(&text);
            }
            Event::FootnoteReference(text) => self.say(&format!("[{text}]")),
            Event::SoftBreak | Event::HardBreak => self.say("\n"),
            Event::Rule => {
                self.flush();
                self.lines.push(Line::raw(format!("{}{}", self.front, "─".repeat(self.columns.min(40)))));
                self.gap();
            }
            Event::TaskListMarker(done) => self.say(if done { "[x] " } else { "[ ] " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush();
                let colour = if level <= HeadingLevel::H2 { Color::Magenta } else { Color::Reset };
                self.push(Style::new().fg(colour).add_modifier(Modifier::BOLD));
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.quotes += 1;
            }
            Tag::CodeBlock(_) => {
                self.flush();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                self.marker = Some(match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "• ".to_owned(),
                });
            }
            Tag::Emphasis => self.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.push(Style::new().add_modifier(Modifier::UNDERLINED));
                self.links.push((dest_url.into_string(), self.spans.len()));
            }
            Tag::TableHead | Tag::TableRow => self.cells = 0,
            Tag::TableCell => {
                if self.cells > 0 {
                    self.say(" │ ");
                }
                self.cells += 1;
            }
            _ => {}
        }
    }

    /// Where a link leads is said behind its words, unless they say it.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((address, from)) = self.links.pop() else { return };
        let words: String = self.spans.iter().skip(from).map(|span| span.content.as_ref()).collect();
        if words != address {
            self.spans.push(Span::styled(format!(" ⟨{address}⟩"), Style::new().fg(Color::DarkGray)));
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.gap();
            }
            TagEnd::Paragraph => {
                self.flush();
                self.gap();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => {
                let code = self.code.take().unwrap_or_default();
                let style = Style::new().fg(Color::Yellow);
                let indent = format!("{}  ", self.front);
                for line in plain(&code, style, self.columns.saturating_sub(indent.len()), "") {
                    let mut spans = vec![Span::raw(indent.clone())];
                    spans.extend(line.spans);
                    self.lines.push(Line::from(spans));
                }
                self.gap();
            }
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
                self.gap();
            }
            TagEnd::Item | TagEnd::HtmlBlock => self.flush(),
            TagEnd::TableHead | TagEnd::TableRow => self.flush(),
            TagEnd::Table => self.gap(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        lines(text, 40, "").iter().map(|line| line.to_string().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn markdown_becomes_lines() {
        for (text, wanted) in [
            ("# Title\n\nSome *words* here.", "Title\n\nSome words here."),
            ("- one\n- two\n  - three", "• one\n• two\n  • three"),
            ("2. b\n3. c", "2. b\n3. c"),
            ("```rust\nfn a() {}\n```", "  fn a() {}"),
            ("> said", "│ said"),
            ("| a | b |\n|---|---|\n| 1 | 2 |", "a │ b\n1 │ 2"),
            ("<b>no html</b>", "<b>no html</b>"),
            ("- [x] done", "• [x] done"),
            ("a\u{1b}[31mb", "a\u{fffd}[31mb"),
            ("", ""),
        ] {
            assert_eq!(shown(text), wanted, "{text:?}");
        }
        assert_eq!(shown("see [words](https://a.org) now"), "see words ⟨https://a.org⟩ now");
        assert_eq!(shown("<https://a.org>"), "https://a.org");
    }
}
