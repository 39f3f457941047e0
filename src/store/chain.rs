//! The hash chain over the events of a session: each value follows from the one before it and from the event.
//!
//! Pure. The value behind the last event, the *head*, stands for the whole log: who changes, leaves out, adds or moves
//! an event gets another one. The chain is over events and not over rows, so that an export has the same head as the
//! database. Two bytes of each value, its *tag*, are kept beside each event and tell which one does not fit.
//!
//! It shows what was changed by somebody who does not know of it, and by a disk. Who can write the database can make the
//! chain anew: only a head that was kept elsewhere (an export, what `simse check` prints) tells of that (ADR 0034).

use std::borrow::Cow;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::protocol::Event;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 2;
/// The value before event 1. It also tells this chain from other uses of the hash, and its form from later ones.
const START: [u8; SHA256_OUTPUT_LEN] = *b"simse: the events of a session 1";

/// A chain as far as it has been followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    seq: u64,
    value: [u8; SHA256_OUTPUT_LEN],
}

impl Default for Chain {
    fn default() -> Self {
        Self { seq: 0, value: START }
    }
}

impl Chain {
    /// A chain that was followed to event `seq` before. None: that is no value of a chain.
    pub fn resumed(seq: u64, value: &[u8]) -> Option<Self> {
        Some(Self { seq, value: value.try_into().ok()? })
    }

    /// Number of the event that it was followed to; 0: none.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The value behind that event.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The value in hexadecimal digits.
    pub fn head(&self) -> String {
        self.value.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What is kept beside the event.
    pub fn tag(&self) -> [u8; TAG_BYTES] {
        [self.value[0], self.value[1]]
    }

    /// Takes the next event. Its session is not part of the value: event 1 names it.
    pub fn push(&mut self, event: &Event) {
        let turn = event.turn_id.as_ref().map_or("", |turn| turn.as_str());
        let payload = one_line(event.payload.get());
        let mut hash = Context::new(&SHA256);
        let mut front = [0; SHA256_OUTPUT_LEN + 16];
        front[..SHA256_OUTPUT_LEN].copy_from_slice(&self.value);
        front[SHA256_OUTPUT_LEN..][..8].copy_from_slice(&event.seq.to_le_bytes());
        front[SHA256_OUTPUT_LEN + 8..].copy_from_slice(&event.at.to_le_bytes());
        hash.update(&front);
        // Neither a type nor an id has a line break, so the parts cannot run into each other.
        for part in [event.kind.as_ref(), "\n", turn, "\n", &payload] {
            hash.update(part.as_bytes());
        }
        self.take(event.seq, hash);
    }

    /// Goes past what cannot be read, up to event `seq`.
    pub fn skip(&mut self, seq: u64, bytes: &[u8]) {
        let mut hash = Context::new(&SHA256);
        hash.update(&self.value);
        hash.update(b"unreadable\n");
        hash.update(bytes);
        self.take(seq, hash);
    }

    fn take(&mut self, seq: u64, hash: Context) {
        self.seq = seq;
        self.value.copy_from_slice(hash.finish().as_ref());
    }
}

/// JSON on one line. A raw line break in it is a blank between tokens: inside strings it is escaped.
pub fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains('\n') { Cow::Owned(json.replace('\n', " ")) } else { Cow::Borrowed(json) }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::protocol::TurnId;

    fn event(seq: u64, kind: &str, payload: &str) -> Event {
        Event {
            seq,
            kind: crate::protocol::kind_named(kind),
            payload: RawValue::from_string(payload.into()).expect("json"),
            session_id: "s".parse().expect("id"),
            turn_id: None,
            at: 1000,
        }
    }

    fn head(events: &[Event]) -> String {
        let mut chain = Chain::default();
        events.iter().for_each(|event| chain.push(event));
        chain.head()
    }

    #[test]
    fn every_change_of_any_event_gives_another_head() {
        let base = vec![event(1, "a", "{}"), event(2, "b", r#"{"x":1}"#), event(3, "b", r#"{"x":2}"#)];
        let turn: TurnId = "t".parse().expect("id");
        let changes: Vec<(&str, Vec<Event>)> = vec![
            ("an event less", base[..2].to_vec()),
            ("an event more", [&base[..], &[event(4, "a", "{}")]].concat()),
            ("another payload", vec![base[0].clone(), event(2, "b", r#"{"x":3}"#), base[2].clone()]),
            ("another type", vec![base[0].clone(), event(2, "c", r#"{"x":1}"#), base[2].clone()]),
            ("another time", vec![Event { at: 1001, ..base[0].clone() }, base[1].clone(), base[2].clone()]),
            ("another turn", vec![Event { turn_id: Some(turn), ..base[0].clone() }, base[1].clone(), base[2].clone()]),
            ("another order", vec![base[0].clone(), base[2].clone(), base[1].clone()]),
            ("one left out", vec![base[0].clone(), base[2].clone()]),
        ];
        let heads: Vec<String> = changes.iter().map(|(_, events)| head(events)).chain([head(&base)]).collect();
        for (at, one) in heads.iter().enumerate() {
            let what = changes.get(at).map_or("the same", |(what, _)| what);
            assert_eq!(heads.iter().filter(|other| *other == one).count(), 1, "{what}");
        }
    }

    /// What is in databases and exports: it must not change.
    #[test]
    fn the_value_is_what_it_was() {
        let first = event(1, "session.created", r#"{"sessionId":"s"}"#);
        assert_eq!(head(&[]), "73696d73653a20746865206576656e7473206f6620612073657373696f6e2031");
        assert_eq!(head(&[first]), "7faf478f0e5daf7c160e2bc988ef8885e9ea05b226aacdf815c7d1df94d9ba36");
    }

    #[test]
    fn a_chain_goes_on_where_it_was_left() {
        let events = [event(1, "a", "{}"), event(2, "b", "{\n}"), event(3, "b", "{ }")];
        let mut chain = Chain::default();
        chain.push(&events[0]);
        let mut chain = Chain::resumed(chain.seq(), chain.value()).expect("a value");
        events[1..].iter().for_each(|event| chain.push(event));
        assert_eq!((chain.seq(), chain.head()), (3, head(&events)));
        assert_eq!(chain.tag(), chain.value()[..2]);
        assert_eq!(Chain::resumed(1, b"short"), None);
        let broken = [events[0].clone(), event(2, "b", "{ }"), events[2].clone()];
        assert_eq!(head(&broken), head(&events), "a line break between tokens is stored as a blank");
    }
}
