//! Names of things: sessions, turns, requests.
//!
//! Each id is a newtype with one door in (`parse`, which serde uses too), so holders never re-check.
//! Generated ids are a prefix and a version 7 UUID: ordered by creation on one machine, with 74 random bits. Each event in memory has two
//! ids, so copies of one share its text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 256 letters, digits, `_`, `-` or `.`, and neither `.` nor `..`; got {len} bytes")]
pub struct BadId {
    /// Length in bytes of the text that was refused.
    pub len: usize,
}

/// Longest id in bytes (contract.md, `POST /sessions`).
const ID_BYTES_MAX: usize = 256;

/// Whether a text has the form of an id.
pub(super) fn check(text: &str) -> Result<(), BadId> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let fits = (1..=ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed);
    if fits && text != "." && text != ".." { Ok(()) } else { Err(BadId { len: text.len() }) }
}

/// What [`check`] says, as a schema.
fn form(description: &str) -> Schema {
    json_schema!({
        "description": description.trim(),
        "type": "string",
        "pattern": format!("^[A-Za-z0-9_.-]{{1,{ID_BYTES_MAX}}}$"),
        "not": { "enum": [".", ".."] },
    })
}

macro_rules! id {
    ($(#[doc = $doc:literal])* $name:ident, $prefix:literal) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// A new, unguessable one.
            pub fn generate() -> Self {
                Self(format!(concat!($prefix, "{}"), uuid::Uuid::now_v7().simple()).into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                form(concat!($($doc),*))
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                check(text).map(|()| Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                check(&text).map(|()| Self(text.into()))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// Names one session for its whole life, across restarts. A client may choose it.
    SessionId,
    "ses_"
);
id!(
    /// Names one turn: one user input worked to its end.
    TurnId,
    "turn_"
);
id!(
    /// Names one question to the client, such as a permission request.
    RequestId,
    "req_"
);
id!(
    /// Names one saved grant.
    GrantId,
    "grant_"
);

id!(
    /// Names one token of a session.
    SessionTokenId,
    "tok_"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_letters_digits_and_three_signs() {
        let long = "a".repeat(256);
        let longer = "a".repeat(257);
        #[rustfmt::skip]
        let table = [
            ("ses_1", true), ("A.b-c_9", true), ("...", true), (long.as_str(), true),
            ("", false), (".", false), ("..", false), ("a/b", false), ("a b", false), ("é", false), (longer.as_str(), false),
        ];
        for (text, ok) in table {
            assert_eq!(text.parse::<SessionId>().is_ok(), ok, "{text:?}");
        }
    }

    #[test]
    fn generated_ids_parse_and_differ() {
        let (a, b) = (SessionId::generate(), SessionId::generate());
        assert_ne!(a, b);
        assert_eq!(a.as_str().parse::<SessionId>(), Ok(a));
    }
}
