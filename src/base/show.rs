//! How the names and the lines of files are shown: one line each, and nothing in it that a terminal would obey.

use std::borrow::Cow;
use std::fmt::Write as _;

use encoding_rs::WINDOWS_1252;

/// A path (or name) as it is shown. Ordinary ones are themselves.
///
/// One with a control character or an invisible sign that turns the text about, or with a quotation mark in front, is
/// written as a JSON string: read as JSON, it is the path again. In one that is no UTF-8, bytes that are no text are `\\xff`;
/// no argument can name it ([`is_nameless`]).
pub fn name(bytes: &[u8]) -> Cow<'_, str> {
    if is_plain(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if is_odd(c) => push_escaped(&mut out, c),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Into a text nothing can fail.
            let _written = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// Whether [`name`] shows a path as it is.
pub fn is_plain(bytes: &[u8]) -> bool {
    if bytes.first() == Some(&b'"') {
        return false;
    }
    // Most names are ASCII.
    if bytes.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        return true;
    }
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(is_odd))
}

/// Whether no argument can name a path, because it is no text.
pub fn is_nameless(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err()
}

/// What a reader of names has to know, beside those names: `quoted`, some stand in quotation marks; `nameless`, some are
/// no text.
pub fn notes(quoted: bool, nameless: bool) -> impl Iterator<Item = &'static str> {
    let quoted = quoted.then_some("(A path in double quotes is written as a JSON string)");
    let nameless = nameless.then_some("(A path with \\x is not UTF-8: no argument can name it)");
    quoted.into_iter().chain(nameless)
}

/// Ends a line, is obeyed by terminals, or turns the text about it round.
fn is_odd(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn push_escaped(out: &mut String, c: char) {
    // None of them lies beyond the first plane.
    let _written = write!(out, "\\u{:04x}", u32::from(c));
}

/// What the bytes of a line turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// No UTF-8 at all, and text when it is taken as this.
    Windows1252,
    /// UTF-8 with faults, or no text.
    Broken,
}

/// A line as text. Each is judged by itself, so that the reading need not go back.
pub fn line(bytes: &[u8]) -> (Cow<'_, str>, Encoding) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (Cow::Borrowed(text), Encoding::Utf8);
    }
    let no_text = |&b: &u8| (b < 0x20 && !b"\t\r\x0c\x1b".contains(&b)) || b"\x7f\x81\x8d\x8f\x90\x9d".contains(&b);
    if bytes.utf8_chunks().any(|chunk| !chunk.valid().is_ascii()) || bytes.iter().any(no_text) {
        return (String::from_utf8_lossy(bytes), Encoding::Broken);
    }
    (WINDOWS_1252.decode_without_bom_handling(bytes).0, Encoding::Windows1252)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_one_line_and_can_be_read_back() {
        #[rustfmt::skip]
        let table: &[(&[u8], &str)] = &[
            (b"src/main.rs", "src/main.rs"), (b"", ""), ("gr\u{f6}\u{df}e \u{1f600}.txt".as_bytes(), "gr\u{f6}\u{df}e \u{1f600}.txt"),
            (br#"it's a "b" \ $x"#, r#"it's a "b" \ $x"#), (b"[x] {y}*", "[x] {y}*"), (b" a ", " a "),
            (b"a\nb.txt", r#""a\nb.txt""#), (b"\x1b[31mred", r#""\u001b[31mred""#), (b"\"a\"", r#""\"a\"""#), (b"a\\b\t", r#""a\\b\t""#),
            ("a\u{202e}txt.exe".as_bytes(), r#""a\u202etxt.exe""#), ("\u{85}\u{7f}".as_bytes(), r#""\u0085\u007f""#),
        ];
        for (bytes, want) in table {
            assert_eq!(name(bytes), *want);
            assert_eq!(is_plain(bytes), !want.starts_with('"'), "{want}");
            if !is_plain(bytes) {
                let back: String = serde_json::from_str(&name(bytes)).unwrap();
                assert_eq!(back.as_bytes(), *bytes, "{want}");
            }
            assert!(!is_nameless(bytes));
        }
        assert_eq!(name(b"ba\xffd\n"), r#""ba\xffd\n""#);
        assert!(is_nameless(b"ba\xffd") && !is_plain(b"ba\xffd"));
    }

    #[test]
    fn lines_are_judged_by_themselves() {
        #[rustfmt::skip]
        let table: &[(&[u8], &str, Encoding)] = &[
            (b"plain", "plain", Encoding::Utf8), ("gr\u{f6}\u{df}e".as_bytes(), "gr\u{f6}\u{df}e", Encoding::Utf8),
            (b"gr\xf6\xdfe \x80", "gr\u{f6}\u{df}e \u{20ac}", Encoding::Windows1252),
            (b"\xc3\xb6 \xf6", "\u{f6} \u{fffd}", Encoding::Broken), (b"\xf6\x01", "\u{fffd}\u{1}", Encoding::Broken),
            (b"\x81", "\u{fffd}", Encoding::Broken),
        ];
        for (bytes, text, encoding) in table {
            assert_eq!(line(bytes), (Cow::Borrowed(*text), *encoding), "{bytes:?}");
        }
    }
}
