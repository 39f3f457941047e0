//! What a look at a data directory can find wrong, and what it needs to find more.
//!
//! The looking itself is `sqlite::Inspection`: it only reads, and may do so while a server runs.

use super::chain::Chain;
use super::{SessionRow, TurnRow};
use crate::protocol::{SessionId, TurnId};

/// Something in a data directory that is not as it was written, or that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// SQLite finds its own file wrong.
    #[error("the database: {said}")]
    Database {
        /// SQLite's words.
        said: String,
    },
    /// Rows that belong to no session.
    #[error("table {table}: {rows} rows of session number {number}, which is not there")]
    Orphans {
        /// The table.
        table: &'static str,
        /// The number that they are under.
        number: i64,
        /// How many.
        rows: u64,
    },
    /// The list of deleted and forked sessions and the sessions do not say the same.
    #[error("session number {number}: {what}")]
    Doomed {
        /// Its number.
        number: i64,
        /// What is wrong.
        what: &'static str,
    },
    /// The row of a grant that outlives its session cannot be read, or is another one's.
    #[error("grant {id}: its row cannot be read: {cause}")]
    Grant {
        /// Its id.
        id: String,
        /// Why.
        cause: String,
    },
    /// In the list of lifecycle events something is neither an event of a log nor the end of a session.
    #[error("lifecycle event {place} of client `{client}`: it is neither an event of a log nor the end of a session")]
    End {
        /// Whose it is; empty: everyone's without a client id.
        client: String,
        /// Its place.
        place: i64,
    },
    /// A session's row cannot be read.
    #[error("session number {number}: its row cannot be read: {cause}")]
    Row {
        /// Its number.
        number: i64,
        /// Why.
        cause: String,
    },
    /// In a column stands something of another kind than was written there, so that the session cannot be read.
    #[error("session {session}: column {column} of table {table}: expected {expected}, found {found}")]
    Column {
        /// The session or, where that cannot be read, its number.
        session: String,
        /// The table.
        table: &'static str,
        /// Its column.
        column: &'static str,
        /// What belongs there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A turn's row cannot be read.
    #[error("session {session}: the row of turn {turn} cannot be read: {cause}")]
    Turn {
        /// The session.
        session: SessionId,
        /// The turn, as far as it can be told.
        turn: String,
        /// Why.
        cause: String,
    },
    /// The numbers of events do not follow each other.
    #[error("session {session}, event {seq}: it is not there; the next is {found}")]
    Missing {
        /// The session.
        session: SessionId,
        /// The first that is missing, or that is there twice.
        seq: u64,
        /// What comes instead.
        found: u64,
    },
    /// An event cannot be read.
    #[error("session {session}, event {seq}: it cannot be read: {cause}")]
    Unreadable {
        /// The session.
        session: SessionId,
        /// The first such event.
        seq: u64,
        /// Why.
        cause: String,
    },
    /// An event is not the one that was written.
    #[error("session {session}, event {seq}: it is not what was written (its chain does not fit)")]
    Changed {
        /// The session.
        session: SessionId,
        /// The first such event.
        seq: u64,
    },
    /// The log and the head of its chain do not fit, although each event seems to.
    #[error(
        "session {session}: something up to event {seq} is not what was written (the head of the chain does not fit)"
    )]
    Head {
        /// The session.
        session: SessionId,
        /// The event that the head stands behind.
        seq: u64,
    },
    /// The end of the log is gone.
    #[error("session {session}, event {seq}: the log ends before it, and went on to event {head} at least", seq = last + 1)]
    CutOff {
        /// The session.
        session: SessionId,
        /// The last event that is there.
        last: u64,
        /// The last event that there was, at least.
        head: u64,
    },
    /// An event belongs to a turn that is not there.
    #[error("session {session}, event {seq}: its turn is not there")]
    NoTurn {
        /// The session.
        session: SessionId,
        /// The event.
        seq: u64,
    },
    /// The list of questions and the log do not say the same.
    #[error("session {session}, event {seq}: {what}")]
    Question {
        /// The session.
        session: SessionId,
        /// The event.
        seq: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The list of lifecycle events and the log do not say the same.
    #[error("session {session}, event {seq}: {what}")]
    Lifecycle {
        /// The session.
        session: SessionId,
        /// The event.
        seq: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An event cannot come where it does.
    #[error("session {session}, event {seq}, `{field}`: expected {expected}")]
    Misplaced {
        /// The session.
        session: SessionId,
        /// The event.
        seq: u64,
        /// What of it.
        field: &'static str,
        /// What could come.
        expected: String,
    },
    /// A view says something else than the log that it is made of.
    #[error("session {session}{of}: {field} is {stored}, by the log {log}", of = of_turn(turn.as_ref()))]
    View {
        /// The session.
        session: SessionId,
        /// The turn, when it is a turn's record.
        turn: Option<TurnId>,
        /// What of it.
        field: &'static str,
        /// As it is stored.
        stored: String,
        /// As the log has it.
        log: String,
    },
}

fn of_turn(turn: Option<&TurnId>) -> String {
    turn.map(|turn| format!(", turn {turn}")).unwrap_or_default()
}

/// A session as a look at it has found it.
#[derive(Debug)]
pub struct Inspected {
    /// Its row.
    pub row: SessionRow,
    /// Its turns, oldest first.
    pub turns: Vec<TurnRow>,
    /// The chain to the end of its log.
    pub chain: Chain,
}
