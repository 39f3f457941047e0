//! Characters that were cut in two. JSON may write a character as a pair of escapes (`\ud83d\ude00`); servers that cut texts by
//! such halves send one without the other, which is JSON by its grammar and no text to us. A half becomes U+FFFD.

use std::borrow::Cow;

/// What stands for a half.
const REPLACED: &str = "\\ufffd";
/// Bytes of an escape.
const ESCAPE_BYTES: usize = 6;

/// The same JSON without halves.
pub(super) fn without_halves(data: &str) -> Cow<'_, str> {
    if !data.contains("\\ud") && !data.contains("\\uD") {
        return Cow::Borrowed(data);
    }
    let mut whole = String::with_capacity(data.len());
    let mut rest = data;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let used = match (unit(rest), rest.get(ESCAPE_BYTES..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 2 * ESCAPE_BYTES,
            (Some(0xD800..=0xDFFF), _) => {
                whole.push_str(REPLACED);
                rest = &rest[ESCAPE_BYTES..];
                continue;
            }
            // Whatever is escaped is no beginning of an escape itself.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        whole.push_str(&rest[..used]);
        rest = &rest[used..];
    }
    whole.push_str(rest);
    Cow::Owned(whole)
}

/// The number of an escape that a text begins with.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_are_replaced_and_nothing_else() {
        let cases = [
            (r#"{"a":"b"}"#, r#"{"a":"b"}"#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\uD83D\uDE00\n""#, r#""\uD83D\uDE00\n""#),
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ude00b""#, r#""\ufffdb""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\n\u0041""#, r#""\ufffd\n\u0041""#),
            // A backslash that is escaped, and words behind it.
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            // What is no JSON stays none.
            (r#""\ud8"#, r#""\ud8"#),
            (r#""\ud83é""#, r#""\ud83é""#),
            (r#""\ud83d\"#, r#""\ufffd\"#),
        ];
        for (data, want) in cases {
            assert_eq!(without_halves(data), want, "{data}");
        }
    }

    proptest! {
        #[test]
        fn what_is_a_text_stays_the_same(text in "[a\\\\\"ud8😀é]{0,24}", ascii in any::<bool>()) {
            let mut json = serde_json::to_string(&text).unwrap();
            if ascii {
                json = json.encode_utf16().map(|unit| match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                    _ => format!("\\u{unit:04x}"),
                }).collect();
            }
            prop_assert_eq!(serde_json::from_str::<String>(&without_halves(&json)).unwrap(), text);
        }
    }
}
