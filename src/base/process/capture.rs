//! Output of any length in bounded memory: its start, its end, and how much there was.

use crate::base::ends::Ends;

/// Bytes that came, of which the first and the last are kept.
///
/// Invariant: holds at most the limit it was made with; while no more than that came, it holds all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    ends: Ends,
    total_bytes: u64,
}

impl Captured {
    /// Keeps at most `bytes_max`: the first half of it from the start, the rest from the end.
    pub fn new(bytes_max: usize) -> Self {
        Self { ends: Ends::new(bytes_max), total_bytes: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        self.ends.push(bytes);
    }

    /// How many bytes came.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// All that came so far, when `more` bytes are the first of which some will be left out.
    pub(super) fn all_before_cut(&self, more: usize) -> Option<Vec<u8>> {
        let whole = || self.ends.head.iter().chain(&self.ends.tail).copied().collect();
        (!self.is_cut() && more > self.ends.room()).then(whole)
    }

    /// Whether something was left out.
    pub fn is_cut(&self) -> bool {
        self.total_bytes > self.ends.len() as u64
    }

    /// The output as text; what is no UTF-8 becomes U+FFFD, and no character is cut in two.
    ///
    /// Where something was left out, the gap is marked and the last line says so (typescript-api.md §4):
    /// `[truncated: N bytes total, showing the first A and the last B]`.
    pub fn text(&self) -> String {
        self.text_and("")
    }

    /// The same; `where_all_is` stands at the end of that line.
    pub fn text_and(&self, where_all_is: &str) -> String {
        let (one, two) = self.ends.tail.as_slices();
        if !self.is_cut() {
            return String::from_utf8_lossy(&[&self.ends.head, one, two].concat()).into_owned();
        }
        let (head_max, tail_max) = self.ends.most();
        let head = start_of(&self.ends.head, head_max);
        let tail = end_of(&[one, two].concat(), tail_max);
        let (shown, total) = (head.len() + tail.len(), self.total_bytes);
        let left_out = total.saturating_sub(shown as u64);
        format!(
            "{head}\n[… {left_out} bytes left out …]\n{tail}\n[truncated: {total} bytes total, showing the first {} and the last {}{where_all_is}]",
            head.len(),
            tail.len()
        )
    }
}

/// As text, without a character whose end is missing, at most `bytes_max` long.
fn start_of(bytes: &[u8], bytes_max: usize) -> String {
    let whole = match bytes.utf8_chunks().last() {
        Some(chunk) if chunk.invalid().len() < 4 && ends_too_early(chunk.invalid()) => {
            bytes.len() - chunk.invalid().len()
        }
        Some(_) | None => bytes.len(),
    };
    let mut text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// As text, without a character whose start is missing, at most `bytes_max` long.
fn end_of(bytes: &[u8], bytes_max: usize) -> String {
    let orphans = bytes.iter().take(3).take_while(|&&b| b & 0xC0 == 0x80).count();
    let text = String::from_utf8_lossy(&bytes[orphans..]).into_owned();
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    text[from..].to_owned()
}

/// Whether `bytes`, which stand at the end of a text and are no character, could become one.
fn ends_too_early(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Captured;

    fn captured(max: usize, chunks: &[&[u8]]) -> Captured {
        let mut captured = Captured::new(max);
        chunks.iter().for_each(|c| captured.push(c));
        captured
    }

    #[test]
    fn start_and_end_are_kept_and_no_character_is_cut() {
        let cut = |head: &str, out: usize, tail: &str, total: usize| {
            format!(
                "{head}\n[… {out} bytes left out …]\n{tail}\n[truncated: {total} bytes total, showing the first {} and the last {}]",
                head.len(),
                tail.len()
            )
        };
        #[rustfmt::skip]
        let table: Vec<(usize, &[&[u8]], String)> = vec![
            (4, &[b"abcd"], "abcd".into()),
            (4, &[b"ab", b"cd"], "abcd".into()),
            (4, &[b"a", b"b", b"c", b"d", b"e"], cut("ab", 1, "de", 5)),
            (4, &[b"abcdefgh"], cut("ab", 4, "gh", 8)),
            (5, &[b"abcdefgh"], cut("abc", 3, "gh", 8)),
            (0, &[b"abc"], cut("", 3, "", 3)),
            (1, &[b"abc"], cut("a", 2, "", 3)),
            (4, &[b"a\xc3\xa4\xc3\xb6b"], cut("a", 4, "b", 6)),
            (8, &[b"\xf0\x9f\x98\x80x\xf0\x9f\x98\x80\xf0\x9f\x98\x80"], cut("😀", 5, "😀", 13)),
            (6, &[b"\xf0\x9f\x98\x80x\xf0\x9f\x98\x80"], cut("", 9, "", 9)),
            (9, &[b"\xc3\xa4", b"\xc3", b"\xb6"], "äö".into()),
            (9, &[b"a\xffb"], "a\u{fffd}b".into()),
            (4, &[b"\xff\xff\xff\xff\xff\xff"], cut("", 6, "", 6)),
        ];
        for (max, chunks, want) in table {
            assert_eq!(captured(max, chunks).text(), want, "{max} {chunks:?}");
        }
    }

    #[test]
    fn memory_stays_bounded() {
        let mut captured = Captured::new(1000);
        for _ in 0..10_000 {
            captured.push(&[b'x'; 4096]);
        }
        assert_eq!(captured.total_bytes(), 40_960_000);
        assert!(captured.ends.head.capacity() + captured.ends.tail.capacity() < 4000);
    }

    proptest! {
        #[test]
        fn however_it_is_chunked(bytes in prop::collection::vec(any::<u8>(), 0..60), cuts in prop::collection::vec(1usize..9, 0..40), max in 0usize..40) {
            let mut pieces = Captured::new(max);
            let mut rest = &bytes[..];
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                pieces.push(now);
                rest = later;
            }
            pieces.push(rest);
            let whole = captured(max, &[&bytes]);
            prop_assert_eq!(pieces.text(), whole.text());
            prop_assert_eq!(pieces.is_cut(), bytes.len() > max);
        }
    }
}
