//! What the sessions of a tree share: a board of values under keys, and a list of tasks. The session above all has both.
//!
//! Pure but for one function that reads. Each change is an event in the log of that session, and nothing else is: its row knows
//! the numbers of the events that count ([`SharedPlaces`]), and the values are read from there when the board is asked for first.
//! So a restart, a fork and a reader of the log all see the same board, in the same order.
//!
//! - `reach`: what a turn's tools can do with it, whichever session of the tree the turn is of
//! - `tasks`: the list of tasks
//!
//! Invariant: a value's version is the number of its event. Who names the version that he has seen overwrites nothing else.

mod reach;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::base::limit;
use crate::protocol::{ApiError, BoardEntry, BoardKey, ErrorCode, EventBody, SessionId, TreeMember};
use crate::store::{SharedPlaces, Store, StoreError};

pub(super) use reach::lend_tree;
pub(super) use tasks::{Author, Tasks};

/// A change that somebody wants.
#[derive(Debug, Clone)]
pub struct BoardChange {
    /// The key.
    pub key: BoardKey,
    /// What is to stand there. None: nothing.
    pub value: Option<Value>,
    /// Refuse unless it has this version; 0: unless nothing stands there.
    pub if_version: Option<u64>,
    /// Who wants it. None: a client.
    pub by: Option<TreeMember>,
}

#[derive(Debug, Clone)]
struct Held {
    entry: Arc<BoardEntry>,
    bytes: usize,
}

/// The board and the list, whole.
#[derive(Debug, Default)]
pub(super) struct Board {
    entries: BTreeMap<BoardKey, Held>,
    bytes: usize,
    tasks: Tasks,
}

/// How long a value is, as it stands in the log.
fn bytes_of(value: &Value) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |text| text.len())
}

impl Board {
    /// Reads what stands at these places of a log.
    ///
    /// # Errors
    /// What the store says; [`StoreError::Damaged`] where something else stands there.
    pub(super) async fn read(store: &dyn Store, id: &SessionId, places: &SharedPlaces) -> Result<Self, StoreError> {
        let mut board = Self::default();
        for (key, seq) in &places.board {
            match event_at(store, id, *seq).await? {
                Some(EventBody::BlackboardSet(entry)) if entry.key == *key => board.put(Arc::new(*entry)),
                _ => return Err(not_there(id, *seq, format!("the value of `{key}` on the board"))),
            }
        }
        let mut tasks = Vec::with_capacity(places.tasks.len());
        for (number, seq) in &places.tasks {
            match event_at(store, id, *seq).await? {
                Some(EventBody::TaskCreate(change) | EventBody::TaskUpdate(change)) => {
                    tasks.push((*number, change.task))
                }
                _ => return Err(not_there(id, *seq, format!("task {number}"))),
            }
        }
        board.tasks = Tasks::of(tasks, places.last_task);
        Ok(board)
    }

    /// The list of tasks.
    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// All of it, in the order of the keys.
    pub(super) fn entries(&self) -> Vec<Arc<BoardEntry>> {
        self.entries.values().map(|held| Arc::clone(&held.entry)).collect()
    }

    /// Whether a change may be made.
    ///
    /// # Errors
    /// `CONFLICT` for another version, `NOT_FOUND` where nothing stands that is to go, `RESOURCE_EXHAUSTED` where it would be too
    /// much, `INVALID_ARGUMENT` for a value that is too long.
    pub(super) fn check(&self, change: &BoardChange) -> Result<(), ApiError> {
        let now = self.entries.get(&change.key);
        let version = now.map_or(0, |held| held.entry.version);
        if let Some(wanted) = change.if_version.filter(|wanted| *wanted != version) {
            let is = now.map_or_else(|| "is not on the board".to_owned(), |_| format!("has version {version}"));
            let message = format!("`{}` {is}, not version {wanted}: read it again", change.key);
            let details = serde_json::json!({ "field": "ifVersion", "expected": version, "got": wanted });
            return Err(ApiError::conflict(message).with_details(details));
        }
        let Some(value) = &change.value else {
            let none = || ApiError::not_found(format!("`{}` on the board", change.key));
            return now.map(drop).ok_or_else(none);
        };
        let bytes = bytes_of(value);
        if bytes > limit::BOARD_VALUE_BYTES_MAX {
            let expected = format!("at most {} bytes of JSON", limit::BOARD_VALUE_BYTES_MAX);
            return Err(ApiError::unfit("value", expected, format!("{bytes} bytes")));
        }
        if now.is_none() && self.entries.len() >= limit::BOARD_KEYS_MAX {
            return Err(full("keys", limit::BOARD_KEYS_MAX));
        }
        if self.bytes - now.map_or(0, |held| held.bytes) + bytes > limit::BOARD_BYTES_MAX {
            return Err(full("bytes of values", limit::BOARD_BYTES_MAX));
        }
        Ok(())
    }

    /// Takes in what an event says.
    pub(super) fn take(&mut self, body: &EventBody) {
        match body {
            EventBody::BlackboardSet(entry) => self.put(Arc::new(BoardEntry::clone(entry))),
            EventBody::BlackboardDelete(deletion) => self.remove(&deletion.key),
            _ => self.tasks.take(body),
        }
    }

    fn put(&mut self, entry: Arc<BoardEntry>) {
        self.remove(&entry.key);
        let bytes = bytes_of(&entry.value);
        self.bytes += bytes;
        self.entries.insert(entry.key.clone(), Held { entry, bytes });
    }

    fn remove(&mut self, key: &BoardKey) {
        if let Some(held) = self.entries.remove(key) {
            self.bytes -= held.bytes;
        }
    }
}

fn not_there(session: &SessionId, seq: u64, what: String) -> StoreError {
    StoreError::Damaged { session: session.clone(), seq, cause: format!("{what} is not there") }
}

fn full(what: &str, max: usize) -> ApiError {
    let message = format!("the board has {max} {what} already, which is its limit: take something off it");
    let details = serde_json::json!({ "field": "value", "expected": format!("at most {max} {what} on the board") });
    ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details)
}

/// The event of that number.
async fn event_at(store: &dyn Store, id: &SessionId, seq: u64) -> Result<Option<EventBody>, StoreError> {
    let events = store.events(id, seq.saturating_sub(1), 1).await?;
    Ok(events.into_iter().find(|event| event.seq == seq).and_then(|event| event.body()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::places::follow;

    fn key(text: &str) -> BoardKey {
        text.parse().expect("a key")
    }

    fn set(name: &str, value: Value, version: u64) -> EventBody {
        EventBody::BlackboardSet(Box::new(BoardEntry { key: key(name), value, version, by: None, updated_at: 1 }))
    }

    fn change(name: &str, value: Option<Value>, if_version: Option<u64>) -> BoardChange {
        BoardChange { key: key(name), value, if_version, by: None }
    }

    #[test]
    fn who_names_a_version_overwrites_nothing_else() {
        let mut board = Board::default();
        board.take(&set("a", json!(1), 7));
        #[rustfmt::skip]
        let table = [
            ("a", Some(json!(2)), None, None),
            ("a", Some(json!(2)), Some(7), None),
            ("a", Some(json!(2)), Some(6), Some(ErrorCode::Conflict)),
            ("a", Some(json!(2)), Some(0), Some(ErrorCode::Conflict)),
            ("b", Some(json!(2)), Some(0), None),
            ("b", Some(json!(2)), Some(7), Some(ErrorCode::Conflict)),
            ("a", None, Some(7), None),
            ("a", None, Some(8), Some(ErrorCode::Conflict)),
            ("b", None, None, Some(ErrorCode::NotFound)),
        ];
        for (name, value, if_version, want) in table {
            let got = board.check(&change(name, value.clone(), if_version)).err().map(|error| error.code());
            assert_eq!(got, want, "{name} {value:?} {if_version:?}");
        }
    }

    #[test]
    fn it_is_bounded_and_what_goes_makes_room() {
        let mut board = Board::default();
        let long = |bytes: usize| Value::from("x".repeat(bytes - 2));
        let refused = |board: &Board, name: &str, value: Value| {
            board.check(&change(name, Some(value), None)).err().map(|error| error.code())
        };
        assert_eq!(refused(&board, "a", long(limit::BOARD_VALUE_BYTES_MAX)), None);
        assert_eq!(refused(&board, "a", long(limit::BOARD_VALUE_BYTES_MAX + 1)), Some(ErrorCode::InvalidArgument));
        let whole = limit::BOARD_BYTES_MAX / limit::BOARD_VALUE_BYTES_MAX;
        for n in 0..whole {
            board.take(&set(&format!("k{n}"), long(limit::BOARD_VALUE_BYTES_MAX), 1));
        }
        assert_eq!(board.bytes, limit::BOARD_BYTES_MAX);
        assert_eq!(refused(&board, "more", json!(1)), Some(ErrorCode::ResourceExhausted));
        // The same again, or less, is no more than there was.
        assert_eq!(refused(&board, "k0", long(limit::BOARD_VALUE_BYTES_MAX)), None);
        board.take(&EventBody::BlackboardDelete(crate::protocol::BoardDeletion { key: key("k0"), by: None }));
        assert_eq!(refused(&board, "more", json!(1)), None);
        let mut board = Board::default();
        for n in 0..limit::BOARD_KEYS_MAX {
            board.take(&set(&format!("k{n}"), json!(n), 1));
        }
        assert_eq!(refused(&board, "more", json!(1)), Some(ErrorCode::ResourceExhausted));
        assert_eq!(refused(&board, "k0", json!(1)), None);
    }

    #[test]
    fn places_are_those_of_the_newest_values() {
        let mut places = SharedPlaces::default();
        follow(&mut places, 3, &set("a", json!(1), 3));
        follow(&mut places, 4, &set("b", json!(1), 4));
        follow(&mut places, 6, &set("a", json!(2), 6));
        follow(&mut places, 7, &EventBody::LoopStart {});
        assert_eq!(places.board, BTreeMap::from([(key("a"), 6), (key("b"), 4)]));
        for name in ["a", "b"] {
            let deletion = crate::protocol::BoardDeletion { key: key(name), by: None };
            follow(&mut places, 8, &EventBody::BlackboardDelete(deletion));
        }
        assert!(places.is_empty());
    }
}
