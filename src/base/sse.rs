//! Reads an event stream (`text/event-stream`) in whatever pieces it arrives.
//!
//! Knows BOM, CR, LF and CRLF, comments, several `data:` lines, and characters that are split between
//! pieces. An event counts when its blank line has come: what the end of the stream cuts off is void.
//!
//! Invariant: how the bytes are cut into pieces changes nothing.

use std::borrow::Cow;

/// A line or an event is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// The reader. One for each stream.
#[derive(Debug)]
pub struct SseReader {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    event: String,
    data: String,
    /// Whether any `data:` line has come: an event may be empty.
    has_data: bool,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
    /// What the last `id:` line said, and what the last whole event had by it.
    id: String,
    last_id: String,
    bytes_max: usize,
}

impl SseReader {
    /// A reader of a new stream. No line and no event may be longer than `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
            id: String::new(),
            last_id: String::new(),
            bytes_max,
        }
    }

    /// Takes a piece; calls `take` with the name and the data of each event that is whole now.
    ///
    /// The name is empty when the event has none.
    ///
    /// # Errors
    /// [`TooLong`]; the reader is of no use afterwards.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(&str, &str)) -> Result<(), TooLong> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        // The first line of an event's data, where it lies in this piece: mostly it is all of it, and need not be copied.
        let mut held = None;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            self.check_room(end)?;
            if self.line.is_empty() {
                self.take_line(&bytes[..end], &mut held, &mut take)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                let mut own = None;
                self.take_line(&line, &mut own, &mut take)?;
                self.keep(own)?;
                // Its room is used again.
                line.clear();
                self.line = line;
            }
            let cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if cr {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.keep(held)?;
        self.check_room(bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// The id of the last whole event; empty before the first that has one.
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    fn check_room(&self, more: usize) -> Result<(), TooLong> {
        if self.line.len().saturating_add(more) > self.bytes_max { Err(TooLong(self.bytes_max)) } else { Ok(()) }
    }

    /// Copies what lies in a piece that goes.
    fn keep(&mut self, held: Option<&[u8]>) -> Result<(), TooLong> {
        let Some(value) = held else { return Ok(()) };
        if self.data.len().saturating_add(value.len()) > self.bytes_max {
            return Err(TooLong(self.bytes_max));
        }
        self.data.push_str(&readable(value));
        Ok(())
    }

    fn take_line<'b>(
        &mut self,
        mut line: &'b [u8],
        held: &mut Option<&'b [u8]>,
        take: &mut impl FnMut(&str, &str),
    ) -> Result<(), TooLong> {
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            self.last_id.clone_from(&self.id);
            if std::mem::take(&mut self.has_data) {
                match held.take() {
                    Some(data) => take(&self.event, &readable(data)),
                    None => take(&self.event, &self.data),
                }
            }
            self.event.clear();
            self.data.clear();
            return Ok(());
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if !std::mem::replace(&mut self.has_data, true) => *held = Some(value),
            b"data" => {
                self.keep(held.take())?;
                self.data.push('\n');
                self.keep(Some(value))?;
            }
            b"event" => {
                self.event.clear();
                self.event.push_str(&readable(value));
            }
            b"id" if !value.contains(&0) => self.id = readable(value).into_owned(),
            // A comment, `retry`, or a word of the future.
            _ => {}
        }
        Ok(())
    }
}

/// A text as it is; what is no UTF-8 in it is replaced.
fn readable(bytes: &[u8]) -> Cow<'_, str> {
    // Checked whole first: that is many times as fast as looking for what would have to be replaced.
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<(String, String)>, TooLong> {
        let mut reader = SseReader::new(64);
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, |event, data| events.push((event.to_owned(), data.to_owned())))?;
        }
        Ok(events)
    }

    #[test]
    fn streams_and_their_events() {
        #[rustfmt::skip]
        let table: [(&[u8], &[(&str, &str)]); 14] = [
            (b"data: a\n\n", &[("", "a")]),
            (b"data:a\n\n", &[("", "a")]),
            (b"data:  a \n\n", &[("", " a ")]),
            (b"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", &[("", "a"), ("", "b"), ("", "c")]),
            (b"\xEF\xBB\xBFdata: a\n\n", &[("", "a")]),
            (b"data: a\ndata: b\ndata\n\n", &[("", "a\nb\n")]),
            (b": note\nevent: error\nid: 7\nretry: 1\ndata: a\n\ndata: b\n\n", &[("error", "a"), ("", "b")]),
            (b"event: x\n\ndata: a\n\n", &[("", "a")]),
            (b"data\n\ndata:\n\n", &[("", ""), ("", "")]),
            (b"\n\n\ndata: a\n\n\n", &[("", "a")]),
            (b"data: a\n\ndata: cut off", &[("", "a")]),
            (b"data: a\n\ndata: no blank line\n", &[("", "a")]),
            ("data: äöü😀\n\n".as_bytes(), &[("", "äöü😀")]),
            (b"data: \xFF\n\n", &[("", "\u{FFFD}")]),
        ];
        for (bytes, want) in table {
            let want: Vec<_> = want.iter().map(|(e, d)| ((*e).to_owned(), (*d).to_owned())).collect();
            assert_eq!(read(&[bytes]).unwrap(), want, "{:?}", String::from_utf8_lossy(bytes));
            for cut in 0..=bytes.len() {
                let (a, b) = bytes.split_at(cut);
                assert_eq!(read(&[a, b"", b]).unwrap(), want, "{:?} cut at {cut}", String::from_utf8_lossy(bytes));
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single).unwrap(), want, "{:?} byte by byte", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_too_long_is_refused_however_it_comes() {
        let line = [b"data: ".as_slice(), &[b'x'; 65], b"\n\n"].concat();
        let event = b"data: 12345678901234567890\n".repeat(4);
        for bytes in [line, event] {
            assert_eq!(read(&[&bytes]), Err(TooLong(64)));
            assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()), Err(TooLong(64)));
        }
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            lines in proptest::collection::vec("(data|data: |event: |: |x)[a-zäß😀 :]{0,6}(\r|\n|\r\n)(\r|\n|\r\n)?", 0..8),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = lines.concat().into_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in at {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(read(&pieces), read(&[&bytes]));
        }
    }
}
