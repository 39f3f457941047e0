//! Files that are no UTF-8, as the text that is shown of them: what is searched is what is read.
//!
//! Lines are judged one by one, as [`show::line`] does. A file that is UTF-8 costs a look at its bytes and no copy.

use std::io::{self, Read};

use crate::base::show;

/// Bytes that are read and decoded at once.
const CHUNK_BYTES: usize = 64 << 10;
/// A longer line is decoded in pieces.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Whether bytes begin as UTF-16 does, which is decoded elsewhere.
pub(super) fn is_utf16(start: &[u8]) -> bool {
    start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff")
}

/// The text of a whole file. None when it is UTF-8 as it is.
pub(super) fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.is_ascii() || is_utf16(bytes) || std::str::from_utf8(bytes).is_ok() {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    decode_lines(bytes, &mut out);
    Some(out)
}

fn decode_lines(bytes: &[u8], out: &mut Vec<u8>) {
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, &b"\n"[..]),
            None => (line, &b""[..]),
        };
        out.extend_from_slice(show::line(text).0.as_bytes());
        out.extend_from_slice(end);
    }
}

/// A file that is read as text. Until there is something that is no UTF-8, what is read is handed on where it lies.
#[derive(Debug)]
pub(super) struct Decoded<R> {
    file: R,
    /// The beginning of a character that the last read cut.
    cut: Vec<u8>,
    /// From here on, all is decoded.
    decodes: bool,
    /// What was read and is not decoded yet: the beginning of a line.
    raw: Vec<u8>,
    /// What was decoded, and how much of it is handed on.
    text: Vec<u8>,
    taken: usize,
    ended: bool,
}

impl<R: Read> Decoded<R> {
    pub(super) fn new(file: R) -> Self {
        Self { file, cut: Vec::new(), decodes: false, raw: Vec::new(), text: Vec::new(), taken: 0, ended: false }
    }

    /// Reads what is UTF-8. None from the line on that is not: that one waits to be decoded.
    fn plain(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let cut = self.cut.len();
            if into.len() <= cut {
                return Ok(self.begin(&[]));
            }
            let got = self.file.read(&mut into[cut..])?;
            if got == 0 && cut > 0 {
                return Ok(self.begin(&[]));
            }
            into[..cut].copy_from_slice(&self.cut);
            let read = &into[..cut + got];
            if read.is_ascii() {
                return Ok(Some(got));
            }
            self.cut.clear();
            let Err(fault) = std::str::from_utf8(read) else { return Ok(Some(read.len())) };
            let (sound, rest) = read.split_at(fault.valid_up_to());
            if fault.error_len().is_some() {
                let lines = memchr::memrchr(b'\n', sound).map_or(0, |at| at + 1);
                let waits = read[lines..].to_vec();
                self.begin(&waits);
                return Ok((lines > 0).then_some(lines));
            }
            self.cut = rest.to_vec();
            if !sound.is_empty() {
                return Ok(Some(sound.len()));
            }
        }
    }

    /// From now on all is decoded: what was cut, then this.
    fn begin(&mut self, read: &[u8]) -> Option<usize> {
        self.decodes = true;
        self.raw = std::mem::take(&mut self.cut);
        self.raw.extend_from_slice(read);
        None
    }

    /// Decodes further lines.
    fn decode(&mut self) -> io::Result<()> {
        self.text.clear();
        self.taken = 0;
        let had = self.raw.len();
        self.raw.resize(had + CHUNK_BYTES, 0);
        let got = self.file.read(&mut self.raw[had..]);
        self.raw.truncate(had + got.as_ref().map_or(0, |got| *got));
        self.ended = got? == 0;
        let lines = memchr::memrchr(b'\n', &self.raw).map_or(0, |at| at + 1);
        let end = match lines {
            _ if self.ended => self.raw.len(),
            0 if self.raw.len() >= LINE_BYTES_MAX => match std::str::from_utf8(&self.raw) {
                Err(fault) if fault.error_len().is_none() => fault.valid_up_to(),
                Ok(_) | Err(_) => self.raw.len(),
            },
            lines => lines,
        };
        decode_lines(&self.raw[..end], &mut self.text);
        self.raw.drain(..end);
        Ok(())
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if !self.decodes
            && let Some(got) = self.plain(into)?
        {
            return Ok(got);
        }
        while self.taken == self.text.len() {
            if self.ended && self.raw.is_empty() {
                return Ok(0);
            }
            self.decode()?;
        }
        let count = into.len().min(self.text.len() - self.taken);
        into[..count].copy_from_slice(&self.text[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives at most so many bytes at a time.
    struct Pieces<'b>(&'b [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(into.len());
            let (now, rest) = self.0.split_at(count);
            into[..count].copy_from_slice(now);
            self.0 = rest;
            Ok(count)
        }
    }

    fn read(bytes: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let (mut reader, mut out, mut into) = (Decoded::new(Pieces(bytes, piece)), Vec::new(), vec![0; room]);
        loop {
            match reader.read(&mut into).unwrap() {
                0 => return out,
                got => out.extend_from_slice(&into[..got]),
            }
        }
    }

    #[test]
    fn lines_that_are_no_utf8_are_decoded_and_others_stay() {
        #[rustfmt::skip]
        let table: &[(&[u8], Option<&str>)] = &[
            (b"plain\n", None), ("gr\u{f6}\u{df}e\n".as_bytes(), None), (b"\xff\xfea\0", None), (b"", None),
            (b"a\ncaf\xe9\r\n\xc3\xb6\n", Some("a\ncaf\u{e9}\r\n\u{f6}\n")), (b"\xc3\xb6 \xf6\n\xf6", Some("\u{f6} \u{fffd}\n\u{f6}")),
            (b"caf\xe9", Some("caf\u{e9}")), (b"\x80 \x92", Some("\u{20ac} \u{2019}")),
        ];
        for (bytes, want) in table {
            assert_eq!(decoded(bytes).as_deref(), want.map(str::as_bytes), "{bytes:?}");
            if !is_utf16(bytes) {
                assert_eq!(read(bytes, 1_000, 1_000), want.map_or(*bytes, str::as_bytes), "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_line_that_never_ends_is_decoded_in_pieces() {
        let mut bytes = b"\xe9".repeat(LINE_BYTES_MAX + CHUNK_BYTES);
        bytes.extend_from_slice("\u{f6}".repeat(LINE_BYTES_MAX).as_bytes());
        let text = read(&bytes, CHUNK_BYTES, CHUNK_BYTES);
        assert!(std::str::from_utf8(&text).is_ok() && text.starts_with("\u{e9}\u{e9}".as_bytes()));
    }

    proptest! {
        /// However the file is cut into pieces: UTF-8 stays as it is, and what is decoded is what is shown.
        #[test]
        fn pieces_do_not_matter(
            lines in proptest::collection::vec(prop_oneof!["[a\u{f6}\u{20ac}\u{1f600}]{0,4}".prop_map(String::into_bytes), "[a-c]{0,3}".prop_map(|line| [line.as_bytes(), b"\xe9"].concat())], 0..6),
            piece in 1_usize..9,
            room in 4_usize..9,
        ) {
            let bytes = lines.join(&b'\n');
            let want = decoded(&bytes).unwrap_or_else(|| bytes.clone());
            prop_assert_eq!(read(&bytes, piece, room), want);
        }
    }
}
