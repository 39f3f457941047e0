//! The lines of a text that are shown, and what is known of the others.
//!
//! What is held is one line and the output, whatever the text is long.

use crate::base::show::{self, Encoding};
use crate::base::{limit, text};
use crate::tool::ToolError;

/// Of UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();
const MARKED: &str = "\n\n(UTF-8 with a byte order mark, which is not shown; fs_edit keeps it)";

/// What is fed with a text piece by piece and keeps the lines that were asked for.
#[derive(Debug)]
pub(super) struct Window {
    first: usize,
    count: usize,
    out: String,
    out_units: usize,
    shown: usize,
    /// Ended lines so far.
    ended: usize,
    /// The start of the line that is being read; kept only while it will be shown.
    line: Vec<u8>,
    line_bytes: usize,
    /// The output is full: nothing more is shown.
    full: bool,
    /// The text goes on behind what was looked at.
    goes_on: bool,
    begins_with_mark: bool,
    old_encoding: bool,
    lossy: bool,
}

impl Window {
    /// A window of `count` lines from line `first`, which is at least 1.
    pub(super) fn new(first: usize, count: usize) -> Self {
        Self {
            first,
            count,
            out: String::new(),
            out_units: 0,
            shown: 0,
            ended: 0,
            line: Vec::new(),
            line_bytes: 0,
            full: false,
            goes_on: false,
            begins_with_mark: false,
            old_encoding: false,
            lossy: false,
        }
    }

    /// Whether more text would only be counted.
    pub(super) fn is_full(&self) -> bool {
        self.full || self.shown == self.count
    }

    /// There is more text than it will be fed.
    pub(super) fn stop_counting(&mut self) {
        self.goes_on = true;
    }

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            // Lines in front of the window and behind it are only counted.
            let skipped = if self.is_full() { chunk.len() } else { self.in_front(chunk) };
            if skipped > 0 {
                self.skip(&chunk[..skipped]);
                chunk = &chunk[skipped..];
                continue;
            }
            let at = memchr::memchr(b'\n', chunk);
            let piece = &chunk[..at.unwrap_or(chunk.len())];
            let room = (limit::READ_LINE_BYTES_MAX + 4).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            self.line_bytes += piece.len();
            if at.is_some() {
                self.end_line();
            }
            chunk = &chunk[(piece.len() + usize::from(at.is_some()))..];
        }
    }

    /// How much of `chunk` belongs to lines before the first that is shown.
    fn in_front(&self, chunk: &[u8]) -> usize {
        let lines = self.first.saturating_sub(self.ended + 1);
        if lines == 0 {
            return 0;
        }
        memchr::memchr_iter(b'\n', chunk).nth(lines - 1).map_or(chunk.len(), |at| at + 1)
    }

    fn skip(&mut self, chunk: &[u8]) {
        self.ended += memchr::memchr_iter(b'\n', chunk).count();
        match memchr::memrchr(b'\n', chunk) {
            Some(at) => self.line_bytes = chunk.len() - at - 1,
            None => self.line_bytes += chunk.len(),
        }
    }

    fn end_line(&mut self) {
        self.ended += 1;
        if self.ended >= self.first && !self.is_full() {
            self.show();
        }
        self.line.clear();
        self.line_bytes = 0;
    }

    fn show(&mut self) {
        let mut bytes = self.line.as_slice();
        if self.ended == 1
            && let Some(rest) = bytes.strip_prefix(MARK)
        {
            bytes = rest;
            self.begins_with_mark = true;
        }
        let cut = self.line_bytes > limit::READ_LINE_BYTES_MAX;
        if cut {
            bytes = &bytes[..bytes.len().min(limit::READ_LINE_BYTES_MAX)];
            // A character that the cut split is no fault of the file.
            if let Err(e) = std::str::from_utf8(bytes)
                && e.error_len().is_none()
            {
                bytes = &bytes[..e.valid_up_to()];
            }
        }
        let (line, encoding) = show::line(bytes);
        let mut shown = format!("{:>6}\t{}", self.ended, line.strip_suffix('\r').unwrap_or(&line));
        if cut {
            shown += &format!(" [line cut: {} bytes in all]", self.line_bytes);
        }
        let units = shown.encode_utf16().count() + 1;
        if self.shown > 0 && self.out_units + units > limit::FILE_OUTPUT_CHARS_MAX {
            self.full = true;
            return;
        }
        match encoding {
            Encoding::Utf8 => {}
            Encoding::Windows1252 => self.old_encoding = true,
            Encoding::Broken => self.lossy = true,
        }
        if self.shown > 0 {
            self.out.push('\n');
        }
        self.out.push_str(&shown);
        self.out_units += units;
        self.shown += 1;
    }

    /// The output. `path` is the file as the caller gave it, `bytes` its size.
    ///
    /// # Errors
    /// The text ends before the first line that was asked for.
    pub(super) fn finish(mut self, path: &str, bytes: u64) -> Result<String, ToolError> {
        if self.ended == 0 && self.line_bytes == MARK.len() && self.line == MARK {
            return Ok(format!("(\"{path}\" is empty){MARKED}"));
        }
        if self.line_bytes > 0 {
            self.end_line();
        }
        if self.ended == 0 {
            return Ok(format!("(\"{path}\" is empty)"));
        }
        if self.shown == 0 {
            let lines = text::counted(self.ended, "line");
            return Err(ToolError::failed(format!(
                "`offset`: {} is beyond the end of \"{path}\", which has {lines}",
                self.first
            )));
        }
        let last = self.first + self.shown - 1;
        if self.goes_on {
            let more = format!("the file goes on, {bytes} bytes in all. Read on with offset: {}", last + 1);
            self.out += &format!("\n\n(Showing lines {}-{last}; {more})", self.first);
        } else if self.first > 1 || last < self.ended {
            self.out += &format!("\n\n(Showing lines {}-{last} of {}.", self.first, self.ended);
            if last < self.ended {
                self.out += &format!(" Read on with offset: {}", last + 1);
            }
            self.out.push(')');
        }
        if self.begins_with_mark {
            self.out += MARKED;
        }
        if self.old_encoding {
            self.out += "\n\n(Not UTF-8: read as Windows-1252, that is Latin-1; fs_edit will not touch the file)";
        }
        if self.lossy {
            self.out += "\n\n(Not valid UTF-8: bytes that are no text are shown as \u{fffd}, and fs_edit will not touch the file)";
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the text is cut into pieces, the output is the same.
    #[test]
    fn pieces_do_not_matter() {
        let text = "one\ntwo\r\n\nfour ä\nfive";
        for (first, count) in [(1, 9), (2, 2), (4, 1), (5, 1)] {
            let output = |size: usize| {
                let mut window = Window::new(first, count);
                text.as_bytes().chunks(size).for_each(|piece| window.feed(piece));
                window.finish("f", 0).unwrap()
            };
            let whole = output(100);
            assert!((1..10).all(|size| output(size) == whole), "{first} {count}: {whole}");
        }
    }
}
