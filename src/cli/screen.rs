//! Writing to the terminal: the only place that prints.
//!
//! Text that came from elsewhere (models, tools, files) is cleaned first, so that it cannot move the
//! cursor or change colours. A reader that has gone is no reason to stop; a stdout that takes nothing is one to fail, at the end.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why something could not be printed on stdout, the first time.
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Prints a line on stdout.
pub(super) fn line(text: &str) {
    piece(&format!("{text}\n"));
}

/// Prints a piece of text on stdout, at once.
pub(super) fn piece(text: &str) {
    match print(text) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => drop(UNPRINTED.set(cause.to_string())),
        Ok(()) | Err(_) => {}
    }
}

/// The same for what must not be lost.
///
/// # Errors
/// Why it could not be printed.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Why something that was to be on stdout is not there. A reader that has gone is none.
pub(super) fn unprinted() -> Option<&'static str> {
    UNPRINTED.get().map(String::as_str)
}

/// Stdout as a place for many lines.
pub(super) fn out() -> impl Write {
    std::io::BufWriter::new(std::io::stdout().lock())
}

/// Prints a line on stderr.
pub(super) fn note(text: &str) {
    drop(std::io::stderr().lock().write_all(format!("{text}\n").as_bytes()));
}

/// Prints why something cannot go on, on stderr.
pub(super) fn problem(text: impl std::fmt::Display) {
    note(&format!("simse: {text}"));
}

/// The text without control characters, line breaks and tabs excepted.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(bad) { Cow::Owned(text.replace(bad, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The first `chars_max` characters on one line, with a mark where something is left out.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    let flat = clean(text).replace(['\n', '\t'], " ");
    match flat.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{} …", flat.get(..end).unwrap_or_default()),
        None => flat,
    }
}

/// The first and last lines, each indented, with a count of what is left out between them.
pub(super) fn excerpt(text: &str, lines_max: usize) -> String {
    let text = clean(text.trim_end());
    let lines: Vec<&str> = text.lines().collect();
    let show = |lines: &[&str]| lines.iter().map(|line| format!("      {}\n", short(line, 150))).collect::<String>();
    if lines.len() <= lines_max + 1 {
        return show(&lines);
    }
    let (head, tail) = (lines_max / 3, lines_max - lines_max / 3);
    let (first, rest) = lines.split_at(head);
    let (middle, last) = rest.split_at(rest.len() - tail);
    format!("{}      … {} more lines …\n{}", show(first), middle.len(), show(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\tc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\n\tc\u{fffd}");
        assert_eq!(short("one\ntwo three", 7), "one two …");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn an_excerpt_keeps_both_ends() {
        let text = (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
        let shown = excerpt(&text, 6);
        assert_eq!(shown.lines().count(), 7);
        assert!(shown.starts_with("      1\n      2\n      … 14 more lines …\n      17\n"), "{shown}");
        assert_eq!(excerpt("a\nb\n", 6), "      a\n      b\n");
    }
}
