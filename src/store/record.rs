//! How consecutive events of one turn lie in one row: a line each, `MS KIND PAYLOAD`.
//!
//! MS is the distance to the row's time in milliseconds (negative when the clock was set back).
//! KIND is the event's type. The most frequent one, `stream.delta`, is written `.`, and of its
//! payload only what stands behind `{"text":`. So a delta costs a handful of bytes over its text.
//! Behind the lines come the tags of the events' chain (see `store::chain`), two bytes each, in their order.

use std::io::Write as _;

use serde_json::value::RawValue;

use crate::protocol::{Event, SessionId, TurnId, kind_named};
use crate::store::chain::{TAG_BYTES, one_line};

const DELTA_KIND: &str = "stream.delta";
const DELTA_FRONT: &str = "{\"text\":";

/// Appends one event to a row's body. `at` is the row's time.
pub(super) fn encode_line(body: &mut Vec<u8>, at: u64, event: &Event) {
    let distance = i128::from(event.at) - i128::from(at);
    let payload = event.payload.get();
    let delta = (event.kind == DELTA_KIND).then(|| payload.strip_prefix(DELTA_FRONT)?.strip_suffix('}')).flatten();
    let (kind, payload) = delta.map_or((event.kind.as_ref(), payload), |inner| (".", inner));
    // Writing into memory cannot fail.
    let _ = write!(body, "{distance} {kind} ");
    body.extend_from_slice(one_line(payload).as_bytes());
    body.push(b'\n');
}

/// A stored body's lines, and the tags of its `count` events. None: it is too short to have them.
pub(super) fn split(stored: &[u8], count: u64) -> Option<(&[u8], &[u8])> {
    let tags = usize::try_from(count).ok()?.checked_mul(TAG_BYTES)?;
    stored.split_at_checked(stored.len().checked_sub(tags)?)
}

/// A row as it was read.
pub(super) struct Row<'a> {
    pub(super) session: &'a SessionId,
    pub(super) turn: Option<TurnId>,
    pub(super) first_seq: u64,
    pub(super) at: u64,
    pub(super) body: &'a [u8],
}

/// A line that is not what was written: the event's number and what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    pub(super) seq: u64,
    pub(super) cause: String,
}

impl<'a> Row<'a> {
    /// A row as it is stored, and the tags of its `count` events.
    pub(super) fn parted(&self, count: u64) -> Result<(Self, &'a [u8]), BadLine> {
        let bad = || BadLine { seq: self.first_seq, cause: format!("{} bytes for {count} events", self.body.len()) };
        let (body, tags) = split(self.body, count).ok_or_else(bad)?;
        Ok((Self { turn: self.turn.clone(), body, ..*self }, tags))
    }

    /// Adds its events with numbers above `after` to `out`.
    pub(super) fn decode(&self, after: u64, out: &mut Vec<Event>) -> Result<(), BadLine> {
        let lines = self.body.strip_suffix(b"\n").unwrap_or(self.body).split(|b| *b == b'\n');
        for (line, seq) in lines.zip(self.first_seq..) {
            if seq > after {
                out.push(self.decode_line(line, seq).map_err(|cause| BadLine { seq, cause })?);
            }
        }
        Ok(())
    }

    fn decode_line(&self, line: &[u8], seq: u64) -> Result<Event, String> {
        let text = std::str::from_utf8(line).map_err(|e| e.to_string())?;
        let (distance, rest) = text.split_once(' ').ok_or("a line without a time")?;
        let (kind, payload) = rest.split_once(' ').ok_or("a line without a type")?;
        let distance: i64 = distance.parse().map_err(|_| format!("`{distance}` is no time"))?;
        let (kind, payload) = match kind {
            "." => (DELTA_KIND.into(), format!("{DELTA_FRONT}{payload}}}")),
            kind => (kind_named(kind), payload.to_owned()),
        };
        Ok(Event {
            seq,
            kind,
            payload: RawValue::from_string(payload).map_err(|e| e.to_string())?,
            session_id: self.session.clone(),
            turn_id: self.turn.clone(),
            at: self.at.saturating_add_signed(distance),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, kind: &str, payload: &str, at: u64) -> Event {
        Event {
            seq,
            kind: kind_named(kind),
            payload: RawValue::from_string(payload.into()).expect("json"),
            session_id: "s".parse().expect("id"),
            turn_id: None,
            at,
        }
    }

    fn lines(body: &[u8]) -> Result<Vec<(u64, String, String, u64)>, BadLine> {
        let session = "s".parse().expect("id");
        let mut out = Vec::new();
        Row { session: &session, turn: None, first_seq: 7, at: 1000, body }.decode(0, &mut out)?;
        Ok(out.into_iter().map(|e| (e.seq, e.kind.into_owned(), e.payload.get().to_owned(), e.at)).collect())
    }

    #[test]
    fn what_goes_in_comes_out() {
        #[rustfmt::skip]
        let table = [
            ("stream.delta", r#"{"text":"a b \n\"} é"}"#, 1000, "0 . \"a b \\n\\\"} é\"\n"),
            ("stream.delta", r#"{"text":"a","more":1}"#,  1003, "3 . \"a\",\"more\":1\n"),
            ("stream.delta", r#"{"other":1}"#,             999, "-1 stream.delta {\"other\":1}\n"),
            ("loop.start",   "{}",                        1000, "0 loop.start {}\n"),
            ("own.kind",     r#"{"deep":[1,{"x":" "}]}"#, 1000, "0 own.kind {\"deep\":[1,{\"x\":\" \"}]}\n"),
        ];
        for (kind, payload, at, want) in table {
            let mut body = Vec::new();
            encode_line(&mut body, 1000, &event(7, kind, payload, at));
            assert_eq!(String::from_utf8_lossy(&body), want);
            assert_eq!(lines(&body), Ok(vec![(7, kind.to_owned(), payload.to_owned(), at)]));
        }
    }

    #[test]
    fn a_line_break_between_tokens_does_not_end_the_line() {
        let mut body = Vec::new();
        encode_line(&mut body, 1000, &event(7, "k", "{\n\"a\":1}", 1000));
        encode_line(&mut body, 1000, &event(8, "k", "{}", 1000));
        let read = lines(&body).expect("whole");
        assert_eq!(read.iter().map(|l| (l.0, l.2.as_str())).collect::<Vec<_>>(), [(7, "{ \"a\":1}"), (8, "{}")]);
    }

    #[test]
    fn damage_is_found_and_placed() {
        let bad: [&[u8]; 5] =
            [b"0 k {}\n0 k {\n", b"0 k {}\nx k {}\n", b"0 k {}\n0\n", b"0 k {}\n0 k\n", b"0 k {}\n0 k \xff\n"];
        for body in bad {
            assert_eq!(lines(body).map_err(|bad| bad.seq), Err(8), "{}", String::from_utf8_lossy(body));
        }
    }
}
