//! Where in the table `fresh` each session's rows lie, so that who reads one session does not go through all of them.
//!
//! An index in the table would write a page for each session that says something, which is what the table is there to
//! avoid; so this one is in memory, filled when the store is opened.
//!
//! Invariant: as long as nothing is gathered meanwhile, a session's places hold those of all its rows that any moment of
//! the database has, and perhaps some that are not there yet or never will be.

use std::collections::HashMap;

use parking_lot::Mutex;
use rusqlite::Connection;

/// The places of all rows that are not gathered.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    of: HashMap<i64, Vec<i64>>,
    /// How often rows have left.
    left: u64,
}

impl Places {
    /// A row is about to be written.
    pub(super) fn add(&self, session: i64, place: i64) {
        self.0.lock().of.entry(session).or_default().push(place);
    }

    /// The last row of a session was not written.
    pub(super) fn take_back(&self, session: i64) {
        let mut known = self.0.lock();
        let Some(places) = known.of.get_mut(&session) else { return };
        places.pop();
        if places.is_empty() {
            known.of.remove(&session);
        }
    }

    /// The first so many rows of a session have been gathered, and that is in the database.
    pub(super) fn gathered(&self, session: i64, rows: usize) {
        let mut known = self.0.lock();
        known.left += 1;
        let Some(places) = known.of.get_mut(&session) else { return };
        places.drain(..rows.min(places.len()));
        if places.is_empty() {
            known.of.remove(&session);
        }
    }

    fn left(&self) -> u64 {
        self.0.lock().left
    }
}

/// One moment of the database, and what is known of places there.
pub(super) struct Moment<'a> {
    connection: &'a Connection,
    places: &'a Places,
    left: u64,
}

impl<'a> Moment<'a> {
    /// `connection` has begun a transaction in which nothing was read yet.
    pub(super) fn new(connection: &'a Connection, places: &'a Places) -> Self {
        Self { connection, places, left: places.left() }
    }

    /// Where rows of a session lie, in their order. None: rows have been gathered meanwhile, so it is not known.
    pub(super) fn places(&self, session: i64) -> Option<Vec<i64>> {
        let known = self.places.0.lock();
        (known.left == self.left).then(|| known.of.get(&session).cloned().unwrap_or_default())
    }
}

impl std::ops::Deref for Moment<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_known_until_rows_have_left() {
        let (places, connection) = (Places::default(), Connection::open_in_memory().expect("opens"));
        let known = |moment: &Moment<'_>| [1, 2].map(|session| moment.places(session));
        (1..=3).for_each(|place| places.add(1, place));
        places.add(2, 4);
        let moment = Moment::new(&connection, &places);
        assert_eq!(known(&moment), [Some(vec![1, 2, 3]), Some(vec![4])]);
        places.take_back(2);
        places.take_back(2);
        places.add(1, 4);
        assert_eq!(known(&moment), [Some(vec![1, 2, 3, 4]), Some(vec![])]);
        places.gathered(1, 3);
        assert_eq!(known(&moment), [None, None], "the moment may be one before that");
        assert_eq!(known(&Moment::new(&connection, &places)), [Some(vec![4]), Some(vec![])]);
        places.gathered(1, 9);
        assert!(places.0.lock().of.is_empty(), "a session that has nothing here costs nothing");
    }
}
