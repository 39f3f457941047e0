//! What a store keeps of all sessions of a client: their lifecycle events in the order in which they were stored.
//!
//! Each has a place, counted for each client by itself, so that nobody can tell from the numbers what others do. Places
//! are never given twice. When a session is deleted its events go, and one that says so comes: its end. Ends outlive their
//! sessions, so they are bounded by themselves, in number over all clients and in age; the oldest are forgotten first. A
//! client of whom nothing is left begins behind the newest place that was ever forgotten.

use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::base::{clock, limit};
use crate::protocol::{ClientId, Event, SESSION_DELETED, SessionId};

/// What is kept of sessions that are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndsKept {
    /// So many ends are told of, about.
    pub count: u64,
    /// When the newest one came that is no longer told of, in milliseconds since 1970; 0: all of them are.
    pub forgotten_at: u64,
}

/// Which ends are to be forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// As many stay.
    pub(super) count: u64,
    /// Those from before this go, in milliseconds since 1970.
    pub(super) before: u64,
}

impl Bounds {
    /// Those of now.
    pub(super) fn now() -> Self {
        let before = clock::now_ms().saturating_sub(limit::SESSION_ENDS_MS);
        Self { count: limit::SESSION_ENDS_MAX, before }
    }
}

/// Bytes of events in one page, about.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;

/// Some of a client's lifecycle events, oldest first.
#[derive(Debug, Clone, Default)]
pub struct LifecyclePage {
    /// The events, each with its place.
    pub entries: Vec<(u64, Event)>,
    /// The place up to which this is all there is. There may be more behind it.
    pub upto: u64,
}

/// Wakes who waits for the next lifecycle event of a client.
#[derive(Debug, Default)]
pub struct Bell(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// By client; the one without an id is the empty text, which is no id.
    open: HashMap<String, watch::Sender<()>>,
    closed: bool,
}

/// A client as a text.
pub(super) fn line_of(client: Option<&ClientId>) -> &str {
    client.map_or("", ClientId::as_str)
}

impl Bell {
    /// Listens: the receiver changes with each event, and breaks when there will be none. None: `listeners_max` of
    /// this client do already.
    pub fn listen(&self, client: Option<&ClientId>, listeners_max: usize) -> Option<watch::Receiver<()>> {
        let mut lines = self.0.lock();
        lines.open.retain(|_, line| line.receiver_count() > 0);
        if lines.closed {
            return Some(watch::Sender::default().subscribe());
        }
        let line = lines.open.entry(line_of(client).to_owned()).or_default();
        (line.receiver_count() < listeners_max).then(|| line.subscribe())
    }

    /// How many listen, of the client of whom the most do.
    pub fn listeners(&self) -> usize {
        self.0.lock().open.values().map(watch::Sender::receiver_count).max().unwrap_or(0)
    }

    /// There is something new for a client.
    pub(super) fn ring(&self, client: &str) {
        if let Some(line) = self.0.lock().open.get(client) {
            line.send_replace(());
        }
    }

    /// There may be something new for anybody.
    pub(super) fn ring_all(&self) {
        for line in self.0.lock().open.values() {
            line.send_replace(());
        }
    }

    /// There will be nothing more, for nobody.
    pub fn close(&self) {
        let mut lines = self.0.lock();
        lines.closed = true;
        lines.open.clear();
    }
}

/// Says that a session is gone whose last event was `last_seq`.
pub(super) fn gone(session: &SessionId, last_seq: u64) -> Event {
    let payload = format!(r#"{{"sessionId":"{session}"}}"#);
    Event {
        seq: last_seq + 1,
        kind: SESSION_DELETED.into(),
        // An id has no character that JSON would write in another way.
        payload: RawValue::from_string(payload).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        session_id: session.clone(),
        turn_id: None,
        at: clock::now_ms(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_woken_for_its_client_alone() {
        let bell = Bell::default();
        let client: ClientId = "a".parse().expect("an id");
        let (mut all, mut own) = (bell.listen(None, 2).expect("room"), bell.listen(Some(&client), 2).expect("room"));
        bell.ring("a");
        assert_eq!((all.has_changed().ok(), own.has_changed().ok()), (Some(false), Some(true)));
        own.borrow_and_update();
        bell.ring("");
        assert_eq!((all.has_changed().ok(), own.has_changed().ok()), (Some(true), Some(false)));
        all.borrow_and_update();
        let second = bell.listen(None, 2).expect("room");
        assert!(bell.listen(None, 2).is_none() && bell.listen(Some(&client), 2).is_some());
        assert_eq!(bell.listeners(), 2);
        drop((second, all));
        assert!(bell.listen(None, 1).is_some(), "who has gone makes room");
        bell.close();
        assert!(own.has_changed().is_err());
        assert!(bell.listen(None, 1).expect("a receiver").has_changed().is_err());
    }

    #[test]
    fn the_end_of_a_session_is_an_event() {
        let event = gone(&"s.1".parse().expect("an id"), 7);
        let text = serde_json::to_string(&event).expect("json");
        assert!(text.starts_with(r#"{"seq":8,"type":"session.deleted","payload":{"sessionId":"s.1"}"#), "{text}");
    }
}
