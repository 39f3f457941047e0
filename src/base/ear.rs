//! Who listens to one call of a tool beside those who read its result: a program that asked for the call and needs the bytes.
//!
//! Nothing here may block.

use std::fmt::Debug;

/// Hears what a call does while it runs. All of it comes before the call's result.
pub trait Ear: Send + Sync + Debug {
    /// A command is about to run: what forbade it or was wrong with it would have been told by now.
    fn begun(&self) {}

    /// The command has written this.
    fn wrote(&self, _bytes: &[u8]) {}

    /// The command has ended.
    fn ended(&self, _end: Exit) {}

    /// Which text is wanted of a file that is read. None: nobody wants any.
    fn wants(&self) -> Option<Lines> {
        None
    }

    /// The text of the file that was read, as it is there.
    fn read(&self, _text: String) {}
}

/// How a command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code. None: a signal ended it.
    pub code: Option<i32>,
    /// That signal.
    pub signal: Option<i32>,
}

/// Lines of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    /// The first one, from 1.
    pub first: usize,
    /// At most so many. None: all.
    pub count: Option<usize>,
}

impl Lines {
    /// These lines, with their ends.
    pub fn of(self, text: &str) -> &str {
        let start = if self.first <= 1 { 0 } else { end_of(text, self.first - 1) };
        let rest = &text[start..];
        self.count.map_or(rest, |count| &rest[..end_of(rest, count)])
    }
}

/// Where the first `lines` lines end.
fn end_of(text: &str, lines: usize) -> usize {
    match lines.checked_sub(1) {
        None => 0,
        Some(before) => memchr::memchr_iter(b'\n', text.as_bytes()).nth(before).map_or(text.len(), |at| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_as_they_are() {
        #[rustfmt::skip]
        let table = [
            ("a\r\nb\nc", 1, None, "a\r\nb\nc"), ("a\r\nb\nc", 2, None, "b\nc"), ("a\r\nb\nc", 1, Some(1), "a\r\n"),
            ("a\nb\nc", 2, Some(1), "b\n"), ("a\nb", 2, Some(9), "b"), ("a\nb", 3, None, ""), ("a\n", 0, Some(0), ""),
            ("", 1, Some(3), ""),
        ];
        for (text, first, count, want) in table {
            assert_eq!(Lines { first, count }.of(text), want, "{text:?} {first} {count:?}");
        }
    }
}
