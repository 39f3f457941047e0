//! The cap on what a tool may say.

/// Cuts `text` to `chars_max` UTF-16 units and says so in the words of typescript-api.md §2. 0 means no limit.
///
/// Never cuts inside a character.
pub fn bound_output(text: String, chars_max: usize) -> String {
    if chars_max == 0 || text.len() <= chars_max {
        return text;
    }
    let total = text.encode_utf16().count();
    if total <= chars_max {
        return text;
    }
    let mut units = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if units + c.len_utf16() > chars_max {
            break;
        }
        units += c.len_utf16();
        end = at + c.len_utf8();
    }
    format!("{}\n\n[OUTPUT TRUNCATED — {total} chars total, showing first {units}]", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::bound_output;

    #[test]
    fn cut_at_utf16_units_and_said() {
        #[rustfmt::skip]
        let table = [
            ("abc", 0, "abc"),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc\n\n[OUTPUT TRUNCATED — 4 chars total, showing first 3]"),
            ("äöü", 3, "äöü"),
            ("a😀b", 2, "a\n\n[OUTPUT TRUNCATED — 4 chars total, showing first 1]"),
        ];
        for (text, max, want) in table {
            assert_eq!(bound_output(text.to_owned(), max), want, "{text} {max}");
        }
    }
}
