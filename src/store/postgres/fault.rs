//! Why the database did not do something, by what the caller should do.

use tokio_postgres::error::SqlState;

use super::connect::Place;
use crate::store::StoreError;

/// A statement that did not do what it should.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection is gone, or there was none: what was under way may have happened or not.
    Lost(String),
    /// The database said no to this; somebody else is in the way, or was. It may say yes the next time.
    Again(String),
    /// Another statement of the transaction had failed before.
    Aborted,
    /// A session of that id is there already.
    Taken,
    /// The database said no.
    Refused(String),
    /// What was known of a session is not so any more: somebody else has written to it.
    Stale,
    /// Another server was put in this one's place.
    Over,
    /// What the store itself found.
    Store(StoreError),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(said) = error.as_db_error() else {
            // What is said to a server that is gone, and words that cannot be sent.
            return if is_ours(&error) { Self::Refused(words(&error)) } else { Self::Lost(words(&error)) };
        };
        let code = said.code();
        let text = format!("{} ({})", said.message(), code.code());
        match code {
            &SqlState::UNIQUE_VIOLATION if said.constraint() == Some("session_id_key") => Self::Taken,
            &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::LOCK_NOT_AVAILABLE => {
                Self::Again(text)
            }
            &SqlState::IN_FAILED_SQL_TRANSACTION => Self::Aborted,
            // The server is told to stop, has just begun, or may not be written to yet.
            &SqlState::ADMIN_SHUTDOWN
            | &SqlState::CRASH_SHUTDOWN
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::TOO_MANY_CONNECTIONS
            | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            | &SqlState::READ_ONLY_SQL_TRANSACTION => Self::Lost(text),
            code if code.code().starts_with("08") => Self::Lost(text),
            _ => Self::Refused(text),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<deadpool_postgres::PoolError> for Fault {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => Self::from(error),
            deadpool_postgres::PoolError::Closed => Self::Store(StoreError::Closed),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl Fault {
    /// Why, for people.
    pub(super) fn cause(self, place: &Place) -> String {
        match self.told("", place) {
            StoreError::Away { cause, .. } | StoreError::Io { cause, .. } => cause,
            other => other.to_string(),
        }
    }

    /// What the caller of the store is told.
    pub(super) fn told(self, doing: &str, place: &Place) -> StoreError {
        let cause = match self {
            Self::Store(error) => return error,
            Self::Lost(cause) => {
                return StoreError::Away { doing: doing.to_owned(), cause: format!("{place}: {cause}") };
            }
            Self::Again(cause) | Self::Refused(cause) => cause,
            Self::Over => return StoreError::TakenOver,
            Self::Aborted => "another statement of the transaction had failed".to_owned(),
            Self::Taken => "an id is taken".to_owned(),
            Self::Stale => "somebody else has written to the session".to_owned(),
        };
        StoreError::Io { doing: doing.to_owned(), cause: format!("{place}: {cause}") }
    }
}

/// Whether it is no fault of the connection: a value that does not fit its column.
fn is_ours(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    !error.is_closed() && (text.starts_with("error serializing") || text.starts_with("error deserializing"))
}

/// The words of the error that began it, behind those that say what was tried.
fn words(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut at: &dyn std::error::Error = error;
    while let Some(source) = at.source() {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        at = source;
    }
    text
}
