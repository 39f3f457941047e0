//! Text and bytes: cuts that never split a character, what a file holds, and what its name may have meant.

use super::image::{Image, image};

/// Bytes at the start of a file that tell what it holds.
pub const SNIFF_BYTES: usize = 8192;

/// The longest start of `text` that is at most `bytes_max` long.
pub fn head(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The longest end of `text` that is at most `bytes_max` long.
pub fn tail(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

/// FNV-1a: short, and the same in every version, which std's hasher does not promise.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Which byte of a pair comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// The lower one.
    Little,
    /// The higher one.
    Big,
}

/// What a file's first bytes say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Valid UTF-8 as far as it was looked at, without NUL.
    Text,
    /// UTF-16, by its byte order mark or because nothing else is likely.
    Utf16(ByteOrder),
    /// Text in some older encoding: no NUL, few control characters, not UTF-8.
    OtherText,
    /// An image.
    Image(Image),
    /// Anything else.
    Binary,
}

/// What a file holds, by its first bytes (as many as there are, at most [`SNIFF_BYTES`] matter, except for JPEG).
///
/// A character cut at the end of `start` is no fault.
pub fn sniff(start: &[u8]) -> Content {
    if let Some(image) = image(start) {
        return Content::Image(image);
    }
    if let Some(order) = utf16(start) {
        return Content::Utf16(order);
    }
    if start.contains(&0) {
        return Content::Binary;
    }
    match std::str::from_utf8(start) {
        Ok(_) => Content::Text,
        Err(e) if e.error_len().is_none() => Content::Text,
        Err(_) => {
            let odd = start.iter().filter(|&&b| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b)).count();
            if odd * 20 > start.len() { Content::Binary } else { Content::OtherText }
        }
    }
}

/// The byte order of UTF-16. Without a byte order mark only where it is sure: one byte of most pairs is zero and the
/// other one hardly ever, and all of it is printable.
fn utf16(start: &[u8]) -> Option<ByteOrder> {
    match start {
        // UTF-32, which nobody writes.
        [0xff, 0xfe, 0, 0, ..] => return None,
        [0xff, 0xfe, ..] => return Some(ByteOrder::Little),
        [0xfe, 0xff, ..] => return Some(ByteOrder::Big),
        _ => {}
    }
    let pairs: Vec<[u8; 2]> = start.chunks_exact(2).filter_map(|pair| pair.try_into().ok()).collect();
    let zeros = |at: usize| pairs.iter().filter(|pair| pair[at] == 0).count();
    let (first, second) = (zeros(0), zeros(1));
    let (order, most, least) =
        if first < second { (ByteOrder::Little, second, first) } else { (ByteOrder::Big, first, second) };
    if pairs.len() < 2 || most * 10 < pairs.len() * 7 || least * 5 > most {
        return None;
    }
    let read = match order {
        ByteOrder::Little => u16::from_le_bytes,
        ByteOrder::Big => u16::from_be_bytes,
    };
    let characters = char::decode_utf16(pairs.into_iter().map(read));
    let printable = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}');
    // A pair that the end cuts is no fault.
    let whole = characters.collect::<Vec<_>>();
    let inner = &whole[..whole.len() - usize::from(whole.last().is_some_and(Result::is_err))];
    inner.iter().all(|c| c.as_ref().is_ok_and(|&c| printable(c))).then_some(order)
}

/// The names that `wrong` may have meant, nearest first, at most three. Letter case does not count.
pub fn near_misses<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(&wrong, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// `1 line`, `2 lines`: for sentences with counts.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Gathers what comes in pieces into lines, of each as much as is looked at.
#[derive(Debug, Default)]
pub struct Gathered {
    line: Vec<u8>,
}

/// Of a line that is gathered, in bytes.
const GATHERED_BYTES_MAX: usize = 4 * 1024;

impl Gathered {
    /// Takes a piece, and gives out the lines that it ends.
    pub fn take(&mut self, said: &[u8], mut told: impl FnMut(&[u8])) {
        for piece in said.split_inclusive(|&b| b == b'\n') {
            let room = GATHERED_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end(&mut told);
            }
        }
    }

    /// Gives out what is left, unless it is blank.
    pub fn end(&mut self, mut told: impl FnMut(&[u8])) {
        let line = self.line.trim_ascii();
        if !line.is_empty() {
            told(line);
        }
        self.line.clear();
    }
}

/// As it stands in an address: all but what RFC 3986 leaves as it is (§2.3) is written as `%` and its number.
pub fn percent_encoded(value: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn cuts_keep_characters_whole() {
        let table = [
            ("aäb", 0, "", ""),
            ("aäb", 1, "a", "b"),
            ("aäb", 2, "a", "b"),
            ("aäb", 3, "aä", "äb"),
            ("aäb", 9, "aäb", "aäb"),
        ];
        for (text, max, start, end) in table {
            assert_eq!((head(text, max), tail(text, max)), (start, end), "{text} {max}");
        }
    }

    #[test]
    fn contents_are_recognised() {
        #[rustfmt::skip]
        let table: &[(&[u8], Content)] = &[
            (b"", Content::Text), (b"abc\n", Content::Text), ("ä".as_bytes(), Content::Text), (b"ab\xc3", Content::Text),
            (b"caf\xe9 au lait\n", Content::OtherText), (b"a\0b", Content::Binary),
            (b"\xff\xfea\0", Content::Utf16(ByteOrder::Little)), (b"\xfe\xff\0a", Content::Utf16(ByteOrder::Big)),
            (b"a\0b\0\n\0", Content::Utf16(ByteOrder::Little)), (b"\0a\0b\0\n", Content::Utf16(ByteOrder::Big)),
            (b"\xff\xfe\0\0a\0\0\0", Content::Binary), (b"a\0\0\0b\0\0\0", Content::Binary), (b"a\0\x01\0", Content::Binary),
            (b"\x10\0\x20\0\x30\0", Content::Binary),
            (b"\xfe\x01\x02\x03\x04\xff\x05", Content::Binary), (b"\x7fELF\x02\x01\x01\0", Content::Binary),
        ];
        for (bytes, want) in table {
            assert_eq!(sniff(bytes), *want, "{bytes:?}");
        }
    }

    #[test]
    fn near_names() {
        let names = ["main.rs", "lib.rs", "README.md", "mian.rb"];
        assert_eq!(near_misses("mian.rs", names), ["main.rs", "mian.rb"]);
        assert_eq!(near_misses("readme", ["README.md", "x"]), ["README.md"]);
        assert!(near_misses("zzz", names).is_empty());
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let said = [b"one\n\n  tw".to_vec(), vec![b'o'; 5_000], b"\nlast".to_vec()].concat();
        for size in [1, 7, said.len()] {
            let (mut gathered, mut lines) = (Gathered::default(), Vec::new());
            said.chunks(size).for_each(|piece| gathered.take(piece, |line| lines.push(line.to_vec())));
            gathered.end(|line| lines.push(line.to_vec()));
            assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [3, GATHERED_BYTES_MAX - 2, 4]);
        }
    }
}
