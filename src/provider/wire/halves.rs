//! Characters that were cut in two. JSON may write a character as a pair of escapes (`\ud83d\ude00`); servers that cut texts by
//! such halves send one without the other, which is JSON by its grammar and no text to us. Where a text is cut between two events
//! of a stream the halves are put together again; any other half becomes U+FFFD.
//!
//! Invariants: what comes out has no halves, and is the same where there were none; no event is lost, and none overtakes another but
//! one that only says that the stream lives.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;

/// What stands for a half.
const REPLACED: &str = "\\ufffd";
/// Bytes of an escape.
const ESCAPE_BYTES: usize = 6;

/// The same JSON without halves.
pub(super) fn without_halves(data: &str) -> Cow<'_, str> {
    if !has_halves(data) {
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

/// A stream's events without halves. Where a string ends with the first half of a character, the event is kept until the next one
/// says whether the same string goes on with the other.
#[derive(Debug, Default)]
pub(super) struct Halves {
    kept: Option<Kept>,
}

/// An event that ends in half a character.
#[derive(Debug)]
struct Kept {
    event: String,
    data: String,
    /// Where the half stands.
    at: usize,
    /// The name of the string that ends with it.
    name: String,
    /// When it came.
    since: Instant,
}

/// What an event of Chat Completions says to nobody.
#[derive(Deserialize)]
struct Empty {
    choices: Vec<IgnoredAny>,
    usage: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

impl Halves {
    /// Takes an event and gives out what is whole, in order.
    pub(super) fn take(&mut self, event: &str, data: &str, mut give: impl FnMut(&str, &str)) {
        // The most there are have no half, and nothing is kept.
        if self.kept.is_none() && !has_halves(data) {
            return give(event, data);
        }
        // What only says that the stream lives stands in nobody's way.
        if self.kept.is_some() && only_lives(event, data) {
            return give(event, data);
        }
        let joined = self.kept.take().and_then(|mut kept| {
            let begins = values(data).find(|value| value.name == kept.name && is_second(unit(value.text)));
            let joined = begins.map(|value| {
                let at = value.text.as_ptr() as usize - data.as_ptr() as usize;
                let half: String = kept.data.drain(kept.at..kept.at + ESCAPE_BYTES).collect();
                format!("{}{half}{}", &data[..at], &data[at..])
            });
            give(&kept.event, &without_halves(&kept.data));
            joined
        });
        let data = joined.as_deref().unwrap_or(data);
        match values(data).find_map(|value| Some((ends_in_half(value.text)?, value))) {
            Some((at, Value { name, text })) => {
                let at = text.as_ptr() as usize - data.as_ptr() as usize + at;
                let (event, name) = (event.to_owned(), name.to_owned());
                self.kept = Some(Kept { event, data: data.to_owned(), at, name, since: Instant::now() });
            }
            None => give(event, &without_halves(data)),
        }
    }

    /// Since when an event is kept. It may be the last one that there is, and say so: it is not to be kept for long.
    pub(super) fn since(&self) -> Option<Instant> {
        self.kept.as_ref().map(|kept| kept.since)
    }

    /// Nothing follows: gives out what is kept.
    pub(super) fn end(&mut self, mut give: impl FnMut(&str, &str)) {
        if let Some(kept) = self.kept.take() {
            give(&kept.event, &without_halves(&kept.data));
        }
    }
}

/// Whether an event only says that the stream lives.
fn only_lives(event: &str, data: &str) -> bool {
    let empty = |empty: Empty| empty.choices.is_empty() && empty.usage.is_none() && empty.error.is_none();
    matches!(event, "ping" | "keepalive") || serde_json::from_str(data).is_ok_and(empty)
}

/// A string in JSON, as it is written, and the name of the last member before it.
struct Value<'d> {
    name: &'d str,
    text: &'d str,
}

/// The strings of a JSON text that are no names of members.
fn values(data: &str) -> impl Iterator<Item = Value<'_>> {
    let (mut rest, mut name) = (data, "");
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('"')? + 1..];
            let text = rest.get(..end_of_string(rest)?)?;
            rest = rest.get(text.len() + 1..)?;
            if rest.trim_start().starts_with(':') {
                name = text;
            } else {
                return Some(Value { name, text });
            }
        }
    })
}

/// Where the quote stands that ends a string.
fn end_of_string(text: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.find(['"', '\\'])?;
        if text[at..].starts_with('"') {
            return Some(at);
        }
        // Whatever is escaped ends nothing.
        from = at + 1 + text[at + 1..].chars().next()?.len_utf8();
    }
}

/// Where in a string the half stands that it ends with: the first of a character.
fn ends_in_half(text: &str) -> Option<usize> {
    let at = text.len().checked_sub(ESCAPE_BYTES)?;
    let first = text.get(at..).and_then(unit).is_some_and(|unit| (0xD800..=0xDBFF).contains(&unit));
    // A backslash that is escaped itself begins no escape.
    let before = text.get(..at)?.bytes().rev().take_while(|byte| *byte == b'\\').count();
    (first && before.is_multiple_of(2)).then_some(at)
}

fn is_second(unit: Option<u16>) -> bool {
    unit.is_some_and(|unit| (0xDC00..=0xDFFF).contains(&unit))
}

/// Whether there may be a half: an escape of a number that halves have.
fn has_halves(data: &str) -> bool {
    // Most have no escape at all, which is seen much sooner.
    memchr::memchr(b'\\', data.as_bytes()).is_some() && (data.contains("\\ud") || data.contains("\\uD"))
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

    /// What comes out of these pieces of data, all of them the same event.
    fn passed(pieces: &[&str]) -> Vec<String> {
        let (mut halves, mut out) = (Halves::default(), Vec::new());
        for piece in pieces {
            halves.take("e", piece, |_, data| out.push(data.to_owned()));
        }
        halves.end(|_, data| out.push(data.to_owned()));
        out
    }

    #[test]
    fn a_character_that_was_cut_between_two_events_is_one() {
        #[rustfmt::skip]
        let table: &[(&[&str], &[&str])] = &[
            (&[r#"{"t":"a\ud83d"}"#, r#"{"t":"\ude00b"}"#], &[r#"{"t":"a"}"#, r#"{"t":"\ud83d\ude00b"}"#]),
            (&[r#"{"n":"x","t":"\uD83D","m":1}"#, r#"{"n":"x","t" : "\uDE00\ud83d"}"#, r#"{"t":"\ude00"}"#],
             &[r#"{"n":"x","t":"","m":1}"#, r#"{"n":"x","t" : "\uD83D\uDE00"}"#, r#"{"t":"\ud83d\ude00"}"#]),
            // What does not belong together is not put together.
            (&[r#"{"t":"\ud83d"}"#, r#"{"u":"\ude00"}"#], &[r#"{"t":"\ufffd"}"#, r#"{"u":"\ufffd"}"#]),
            (&[r#"{"t":"\ud83d"}"#, r#"{"t":"a\ude00"}"#], &[r#"{"t":"\ufffd"}"#, r#"{"t":"a\ufffd"}"#]),
            (&[r#"{"t":"\ud83d "}"#, r#"{"t":"\ude00"}"#], &[r#"{"t":"\ufffd "}"#, r#"{"t":"\ufffd"}"#]),
            (&[r#"{"t":"\\ud83d"}"#, r#"{"t":"\ude00"}"#], &[r#"{"t":"\\ud83d"}"#, r#"{"t":"\ufffd"}"#]),
            (&[r#"{"t":"\ud83d"}"#, r#"{"t":"\\ude00"}"#], &[r#"{"t":"\ufffd"}"#, r#"{"t":"\\ude00"}"#]),
            (&[r#"{"t":"\ud83d"}"#, "[DONE]"], &[r#"{"t":"\ufffd"}"#, "[DONE]"]),
            (&[r#"{"t":"\ud83d"}"#], &[r#"{"t":"\ufffd"}"#]),
            (&[r#"{"t":"\ud83d\ude00"}"#, "x"], &[r#"{"t":"\ud83d\ude00"}"#, "x"]),
            (&[r#"{"t\"":"\"\ud83d"}"#, r#"{"t\"":"\ude00"}"#], &[r#"{"t\"":"\""}"#, r#"{"t\"":"\ud83d\ude00"}"#]),
            // No JSON.
            (&[r#"{"t":"\ud83d"#, r#""\ude00"#], &[r#"{"t":"\ufffd"#, r#""\ufffd"#]),
        ];
        for (pieces, want) in table {
            assert_eq!(passed(pieces), *want, "{pieces:?}");
        }
        // One that only says that the stream lives may come in between.
        let (mut halves, mut out) = (Halves::default(), Vec::new());
        for (event, data) in [("e", r#"{"t":"\ud83d"}"#), ("ping", "{}"), ("e", r#"{"t":"\ude00"}"#)] {
            halves.take(event, data, |event, _| out.push(event.to_owned()));
        }
        assert_eq!(out, ["ping", "e", "e"]);
        let half = r#"{"choices":[{"t":"\ud83d"}]}"#;
        let other = r#"{"choices":[{"t":"\ude00"}]}"#;
        let cases = [
            (r#"{"choices":[],"usage":null}"#, true),
            (r#"{"id":"c","choices":[ ]}"#, true),
            (r#"{"choices":[],"usage":{"n":1}}"#, false),
            (r#"{"choices":[],"error":{"m":"x"}}"#, false),
            (r#"{"choices":[{}]}"#, false),
        ];
        for (between, passes) in cases {
            let whole = r#"{"choices":[{"t":"\ud83d\ude00"}]}"#;
            assert_eq!(passed(&[half, between, other]).iter().any(|data| data == whole), passes, "{between}");
        }
    }

    proptest! {
        /// Wherever the escapes of a text are cut, the pieces say the text.
        #[test]
        fn any_cut_gives_the_same_text(text in "[ab\"\\\\😀🦀é]{1,12}", cuts in proptest::collection::vec(any::<bool>(), 24)) {
            let units: Vec<u16> = text.encode_utf16().collect();
            let mut pieces = vec![String::new()];
            for (unit, cut) in units.iter().zip(cuts.iter().cycle()) {
                if *cut && pieces.last().is_some_and(|last| !last.is_empty()) {
                    pieces.push(String::new());
                }
                pieces.last_mut().unwrap().push_str(&format!("\\u{unit:04x}"));
            }
            let pieces: Vec<String> = pieces.iter().map(|piece| format!("{{\"n\":1,\"text\":\"{piece}\"}}")).collect();
            let out = passed(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(out.len(), pieces.len());
            let said: String = out.iter().map(|data| {
                let read: serde_json::Value = serde_json::from_str(data).unwrap();
                read["text"].as_str().unwrap().to_owned()
            }).collect();
            prop_assert_eq!(said, text);
        }

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
