//! The cap on what a tool may say and show.

use super::ToolOutput;
use crate::base::limit;
use crate::protocol::Part;

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

/// Drops images beyond `CALL_IMAGES_BYTES_MAX` and says so; texts among the parts join the text.
pub fn bound_parts(output: ToolOutput) -> ToolOutput {
    let ToolOutput { mut text, parts, details } = output;
    let (mut kept, mut kept_bytes, mut dropped) = (Vec::new(), 0, 0);
    for part in parts {
        match part {
            Part::Text { text: more } => {
                text.push('\n');
                text.push_str(&more);
            }
            Part::Image { data, .. } if kept_bytes + data.len() > limit::CALL_IMAGES_BYTES_MAX => dropped += 1,
            Part::Image { media_type, data } => {
                kept_bytes += data.len();
                kept.push(Part::Image { media_type, data });
            }
        }
    }
    if dropped > 0 {
        let most = limit::CALL_IMAGES_BYTES_MAX;
        text.push_str(&format!("\n[IMAGES DROPPED — {dropped}: a call shows at most {most} bytes of base64]"));
    }
    ToolOutput { text, parts: kept, details }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_beyond_the_cap_are_dropped_and_said() {
        let image = |bytes: usize| Part::Image { media_type: "image/png".into(), data: "A".repeat(bytes) };
        let most = limit::CALL_IMAGES_BYTES_MAX;
        let parts = vec![image(most), image(1), Part::Text { text: "b".into() }];
        let output = bound_parts(ToolOutput { text: "a".into(), parts, details: None });
        assert_eq!(output.parts, [image(most)]);
        assert_eq!(output.text, format!("a\nb\n[IMAGES DROPPED — 1: a call shows at most {most} bytes of base64]"));
    }

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
