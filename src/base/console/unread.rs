//! Output that nobody has read yet, in bounded memory: its start, its end, and how much is missing between them.
//!
//! Invariants: holds at most what it was made for; while no more than that came, it holds all; what is taken never
//! begins or ends inside a character, however the bytes came in.

use crate::base::ends::Ends;

/// Bytes that wait to be read.
#[derive(Debug)]
pub struct Unread {
    ends: Ends,
    /// What came since the last reading.
    came: u64,
}

/// What was read at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// Everything, or what came first.
    pub head: String,
    /// What came last, when something is missing before it.
    pub tail: String,
    /// Bytes that are missing between the two.
    pub omitted_bytes: u64,
    /// Bytes that came, the missing ones too.
    pub bytes: u64,
}

impl Unread {
    /// Keeps at most `bytes_max`: the first half of it from the start, the rest from the end.
    pub fn new(bytes_max: usize) -> Self {
        Self { ends: Ends::new(bytes_max), came: 0 }
    }

    /// Takes the next bytes in.
    pub fn push(&mut self, bytes: &[u8]) {
        self.came += bytes.len() as u64;
        self.ends.push(bytes);
    }

    /// Reads everything. What may be the start of a character stays for the next time, unless it is `over`.
    ///
    /// What is no UTF-8 becomes U+FFFD; a terminal's CR LF becomes LF.
    pub fn take(&mut self, over: bool) -> Piece {
        let head = std::mem::take(&mut self.ends.head);
        let mut tail = Vec::from(std::mem::take(&mut self.ends.tail));
        let came = std::mem::take(&mut self.came);
        let missing = came - (head.len() + tail.len()) as u64;
        if missing == 0 {
            let all = [head, tail].concat();
            let begun = if over { 0 } else { begun(&all) };
            self.push(&all[all.len() - begun..]);
            let bytes = came - begun as u64;
            return Piece { head: text(&all[..all.len() - begun]), bytes, ..Piece::default() };
        }
        let cut = begun(&head);
        let orphans = tail.iter().take(3).take_while(|&&b| b & 0xC0 == 0x80).count();
        let begun = if over { 0 } else { begun(&tail[orphans..]) };
        let waits = tail.split_off(tail.len() - begun);
        self.push(&waits);
        Piece {
            head: text(&head[..head.len() - cut]),
            tail: text(&tail[orphans..]),
            omitted_bytes: missing + (cut + orphans) as u64,
            bytes: came - begun as u64,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text.into_owned() }
}

/// How many bytes at the end could be the start of a character, or of an end of line.
fn begun(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let near = &bytes[bytes.len().saturating_sub(3)..];
    let Some(at) = near.iter().rposition(|b| b & 0xC0 != 0x80) else { return 0 };
    let last = &near[at..];
    let unfinished = std::str::from_utf8(last).is_err_and(|e| e.error_len().is_none());
    if unfinished { last.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(head: &str, omitted_bytes: u64, tail: &str, bytes: u64) -> Piece {
        Piece { head: head.into(), tail: tail.into(), omitted_bytes, bytes }
    }

    #[test]
    fn start_and_end_are_kept() {
        #[rustfmt::skip]
        let table: Vec<(usize, &[&[u8]], Piece)> = vec![
            (4, &[b"abcd"], piece("abcd", 0, "", 4)),
            (4, &[b"ab", b"cde"], piece("ab", 1, "de", 5)),
            (4, &[b"a\xc3\xa4\xc3\xb6b"], piece("a", 4, "b", 6)),
            (8, &[b"\xf0\x9f\x98\x80x\xf0\x9f\x98\x80\xf0\x9f\x98\x80"], piece("😀", 5, "😀", 13)),
            (9, &[b"a\xffb\r\nc"], piece("a\u{fffd}b\nc", 0, "", 6)),
            (0, &[b"abc"], piece("", 3, "", 3)),
            (9, &[], piece("", 0, "", 0)),
        ];
        for (max, chunks, want) in table {
            let mut unread = Unread::new(max);
            chunks.iter().for_each(|chunk| unread.push(chunk));
            assert_eq!(unread.take(true), want, "{max} {chunks:?}");
            assert_eq!(unread.take(true), piece("", 0, "", 0), "it is read once");
        }
    }

    #[test]
    fn what_has_only_begun_waits() {
        let mut unread = Unread::new(100);
        unread.push(b"a\xf0\x9f");
        assert_eq!(unread.take(false), piece("a", 0, "", 1));
        assert_eq!(unread.take(false), piece("", 0, "", 0));
        unread.push(b"\x98\x80b\r");
        assert_eq!(unread.take(false), piece("😀b", 0, "", 5));
        unread.push(b"\n\xc3");
        assert_eq!(unread.take(false), piece("\n", 0, "", 2));
        assert_eq!(unread.take(true), piece("\u{fffd}", 0, "", 1));
    }

    #[test]
    fn memory_stays_bounded() {
        let mut unread = Unread::new(1000);
        for _ in 0..10_000 {
            unread.push(&[b'x'; 4096]);
        }
        assert!(unread.ends.head.capacity() + unread.ends.tail.capacity() < 4000);
        let read = unread.take(false);
        assert_eq!((read.bytes, read.omitted_bytes), (40_960_000, 40_959_000));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_and_read_all_of_it_comes(text in "(?s)[a-zäö😀\r\n]{0,40}", cuts in prop::collection::vec((1usize..5, any::<bool>()), 0..40)) {
            let (mut unread, mut read) = (Unread::new(1000), String::new());
            let mut rest = text.as_bytes();
            for (cut, reads) in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                unread.push(now);
                rest = later;
                if reads {
                    read.push_str(&unread.take(false).head);
                }
            }
            unread.push(rest);
            read.push_str(&unread.take(true).head);
            prop_assert_eq!(read, text.replace("\r\n", "\n"));
        }
    }
}
