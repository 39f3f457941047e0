//! Where sessions are kept, among the settings: SQLite in the data directory, or a PostgreSQL by its address.
//!
//! Invariant: however it is printed, user, password and parameters are not.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

/// Where the tables of sessions are.
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum StoreAddress {
    /// In the data directory.
    #[default]
    Sqlite,
    /// In a database of that address, `postgres://…`.
    Postgres(SecretString),
}

/// What a text is, that is no place for sessions.
pub const STORE_EXPECTED: &str = "sqlite, or an address that begins with postgres://";

/// The same as a schema says it.
pub(super) const STORE_PATTERN: &str = "^(sqlite|postgres(ql)?://.*)$";

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "sqlite" => Ok(Self::Sqlite),
            address if ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) => {
                Ok(Self::Postgres(address.into()))
            }
            _ => Err(format!("expected {STORE_EXPECTED}")),
        }
    }
}

impl TryFrom<String> for StoreAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl PartialEq for StoreAddress {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sqlite, Self::Sqlite) => true,
            (Self::Postgres(one), Self::Postgres(other)) => one.expose_secret() == other.expose_secret(),
            (Self::Sqlite, Self::Postgres(_)) | (Self::Postgres(_), Self::Sqlite) => false,
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite => f.write_str("sqlite"),
            Self::Postgres(address) => f.write_str(&shown(address.expose_secret())),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hosts and database alone. A text in which it cannot be said where they begin is not shown.
fn shown(address: &str) -> String {
    let behind = address.split_once("://").map_or(address, |(_, behind)| behind);
    let (front, parameters) = behind.split_once('?').unwrap_or((behind, ""));
    let place = front.rsplit_once('@').map_or(front, |(_, place)| place);
    if parameters.contains('@') || place.contains('#') {
        return "postgres://…".to_owned();
    }
    format!("postgres://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_not_shown() {
        let table = [
            ("sqlite", Ok("sqlite")),
            ("postgres://h/d", Ok("postgres://h/d")),
            ("postgresql://u:s3cret@h:5433/d?sslmode=disable", Ok("postgres://h:5433/d")),
            ("postgres://u:s3@cret@a:1,b:2/d", Ok("postgres://a:1,b:2/d")),
            ("postgres://h/d?user=u&password=s3cret", Ok("postgres://h/d")),
            ("postgres://u:s3?cret@h/d", Ok("postgres://…")),
            ("mysql://h/d", Err(STORE_EXPECTED)),
            ("", Err(STORE_EXPECTED)),
            ("Postgres", Err(STORE_EXPECTED)),
        ];
        for (text, want) in table {
            let read = text.parse::<StoreAddress>();
            let want = want.map(str::to_owned).map_err(|expected: &str| format!("expected {expected}"));
            assert_eq!(read.clone().map(|store| store.to_string()), want, "{text}");
            assert!(!format!("{read:?}").contains("s3"), "{text}");
        }
    }
}
