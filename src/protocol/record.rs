//! A record of a session's log: an event with its number, as it stands on the disk and goes over the wire.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::event::EventBody;
use super::id::{SessionId, TurnId};

/// One record of the log, its payload already in JSON: serialised once, for the disk and for every reader.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its number in its session, from 1.
    pub seq: u64,
    /// Its type, such as `stream.delta`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// Its payload, as the type says.
    #[schemars(with = "Value")]
    pub payload: Box<RawValue>,
    /// Its session.
    pub session_id: SessionId,
    /// Its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// When, in milliseconds since 1970.
    pub at: u64,
}

impl Event {
    /// The typed form. None for a type that this version does not know.
    pub fn body(&self) -> Option<EventBody> {
        #[derive(Serialize)]
        struct Tagged<'a> {
            r#type: &'a str,
            payload: &'a RawValue,
        }
        let text = serde_json::to_string(&Tagged { r#type: &self.kind, payload: &self.payload }).ok()?;
        serde_json::from_str(&text).ok()
    }
}
