//! Events of a stream that say the same as the one before, but for their text.
//!
//! A model's text comes in thousands of events that differ in nothing else: the same names, numbers and braces each time. What
//! stands before and behind the text of one that was read is kept; an event that has the same there, and between them nothing
//! that JSON writes in another way, says the same with another text, and need not be read again (ADR 0117).
//!
//! Invariant: what comes out is what reading the event would have given.

/// The last event that said nothing but a text.
#[derive(Debug, Default)]
pub(in crate::provider) struct Alike {
    /// The name of the event.
    event: String,
    /// What stands before the text, with its quote. Empty: nothing is known.
    front: String,
    /// What stands behind it, with its quote.
    back: String,
}

impl Alike {
    /// The text of an event that is the same otherwise.
    pub(in crate::provider) fn text<'d>(&self, event: &str, data: &'d str) -> Option<&'d str> {
        if self.front.is_empty() || self.event != event {
            return None;
        }
        let text = data.strip_prefix(self.front.as_str())?.strip_suffix(self.back.as_str())?;
        // Nothing that ends the string, begins an escape, or may not stand in it.
        let plain = |odd: bool, byte: &u8| odd | (*byte < b' ') | (*byte == b'"') | (*byte == b'\\');
        let odd = text.as_bytes().iter().fold(false, plain);
        (!odd && !text.is_empty()).then_some(text)
    }

    /// Keeps what stands about the text of an event: a part of its data as it came, not a copy.
    pub(in crate::provider) fn learn(&mut self, event: &str, data: &str, text: &str) {
        self.front.clear();
        let at = (text.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let (Some(front), Some(back)) = (data.get(..at), data.get(at.saturating_add(text.len())..)) else { return };
        if text.is_empty() || !front.ends_with('"') || !back.starts_with('"') {
            return;
        }
        self.event.clear();
        self.event.push_str(event);
        self.front.push_str(front);
        self.back.clear();
        self.back.push_str(back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_in_its_text_alone_is_taken() {
        let data = r#"{"delta":{"text":"one"},"n":0}"#;
        let mut alike = Alike::default();
        assert_eq!(alike.text("", data), None, "nothing was learnt");
        // A copy of the text stands elsewhere.
        alike.learn("", data, &String::from("one"));
        assert_eq!(alike.text("", data), None);
        alike.learn("e", data, &data[18..21]);
        let cases = [
            (r#"{"delta":{"text":"one"},"n":0}"#, Some("one")),
            (r#"{"delta":{"text":"twö, } ]"},"n":0}"#, Some("twö, } ]")),
            (r#"{"delta":{"text":""},"n":0}"#, None),
            (r#"{"delta":{"text":"a\"b"},"n":0}"#, None),
            (r#"{"delta":{"text":"a\n"},"n":0}"#, None),
            (r#"{"delta":{"text":"a\"},"n":0}"#, None),
            (r#"{"delta":{"text":"a","text":"b"},"n":0}"#, None),
            (r#"{"delta":{"text":"a"},"n":0,"delta":{"text":"b"},"n":0}"#, None),
            ("{\"delta\":{\"text\":\"a\tb\"},\"n\":0}", None),
            (r#"{"delta":{"text":"a"},"n":1}"#, None),
            (r#"{"delta":{"text":"#, None),
            (r#"{"delta":{"text":"},"n":0}"#, None),
            ("", None),
        ];
        for (data, want) in cases {
            assert_eq!(alike.text("e", data), want, "{data}");
        }
        assert_eq!(alike.text("other", cases[0].0), None);
        // What cannot be learnt is not mixed with what was known.
        alike.learn("e", data, "");
        assert_eq!(alike.text("e", cases[0].0), None);
    }
}
