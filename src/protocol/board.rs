//! What the sessions of a tree share: a board of values under keys. It belongs to the session above all.
//!
//! An entry's version is the number of the event that has put it there, in the log of the session above all: it grows with each
//! change and is never given again, whatever was deleted in between.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::SessionId;
use super::whole;

/// Longest key in bytes.
const KEY_BYTES_MAX: usize = 128;

/// A key of the board.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BoardKey(Arc<str>);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected 1 to 128 letters, digits, `_`, `-`, `.`, `:` or `/`, the first of them a letter, a digit or `_`; got {len} bytes"
)]
pub struct BadKey {
    /// Length in bytes of the text that was refused.
    pub len: usize,
}

impl BoardKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BoardKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let first = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let more = |b: u8| first(b) || matches!(b, b'-' | b'.' | b':' | b'/');
        let fits = text.len() <= KEY_BYTES_MAX && text.bytes().next().is_some_and(first) && text.bytes().all(more);
        if fits { Ok(Self(text.into())) } else { Err(BadKey { len: text.len() }) }
    }
}

impl TryFrom<String> for BoardKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

impl From<BoardKey> for String {
    fn from(key: BoardKey) -> Self {
        key.as_str().to_owned()
    }
}

impl fmt::Display for BoardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for BoardKey {
    fn schema_name() -> Cow<'static, str> {
        "BoardKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A key of the board that the sessions of a tree share.",
            "type": "string",
            "pattern": format!("^[A-Za-z0-9_][A-Za-z0-9_.:/-]{{0,{}}}$", KEY_BYTES_MAX - 1),
        })
    }
}

/// The session of a tree that has changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeMember {
    /// The session.
    pub session_id: SessionId,
    /// What its parent calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A value on the board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardEntry {
    /// Its key.
    pub key: BoardKey,
    /// The value: any JSON.
    pub value: Value,
    /// The number of the event that has put it there.
    pub version: u64,
    /// Who has. Absent: a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TreeMember>,
    /// When.
    pub updated_at: u64,
}

/// A value was taken off the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardDeletion {
    /// Its key.
    pub key: BoardKey,
    /// Who has. Absent: a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TreeMember>,
}

/// `PUT /sessions/:id/blackboard/:key`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutBoardEntry {
    /// The value: any JSON.
    pub value: Value,
    /// Refuse unless the entry has this version; 0: unless there is none.
    #[serde(default, deserialize_with = "whole::optional")]
    pub if_version: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_word_with_places_in_it() {
        let long = "a".repeat(128);
        let longer = "a".repeat(129);
        #[rustfmt::skip]
        let table = [
            ("a", true), ("_", true), ("9.b-c:d/e_", true), (long.as_str(), true),
            ("", false), (".", false), ("../a", false), ("/a", false), ("-a", false), ("a b", false), ("é", false), (longer.as_str(), false),
        ];
        for (text, fits) in table {
            assert_eq!(text.parse::<BoardKey>().is_ok(), fits, "{text:?}");
            let read = serde_json::from_value::<BoardKey>(text.into());
            assert_eq!(read.is_ok(), fits, "{text:?}");
        }
    }
}
