//! The lines of a session's file, as they are written and read.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::protocol::{Event, SessionId, TurnId};
use crate::store::{SessionRow, TurnRow};

/// What the first line says of a file of ours.
pub(super) const FORMAT: &str = "simse.session";
/// The form of the lines. A reader takes this one.
pub(super) const VERSION: u64 = 1;

/// One line; it has exactly one of these.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<Head>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<EventLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<SessionRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<TurnRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<End>,
}

/// What kind of file it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Head {
    pub(super) format: String,
    pub(super) version: u64,
    /// The program that wrote it.
    pub(super) program: String,
    pub(super) session_id: SessionId,
}

/// An event as streams show it, and nothing else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EventLine {
    pub(super) seq: u64,
    pub(super) r#type: String,
    pub(super) payload: Box<RawValue>,
    pub(super) session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn_id: Option<TurnId>,
    pub(super) at: u64,
}

/// What the file adds up to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct End {
    pub(super) events: u64,
    pub(super) turns: u64,
    /// The chain's value behind the last event, in hexadecimal digits.
    pub(super) chain: String,
}

/// Writes one.
pub(super) fn put(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
    text.push(b'\n');
    out.write_all(&text)
}

impl EventLine {
    /// An event as it is written.
    pub(super) fn of(event: &Event) -> Self {
        Self {
            seq: event.seq,
            r#type: event.kind.clone().into_owned(),
            payload: event.payload.clone(),
            session_id: event.session_id.clone(),
            turn_id: event.turn_id.clone(),
            at: event.at,
        }
    }

    /// The event that it is.
    pub(super) fn into_event(self) -> Event {
        let Self { seq, r#type: kind, payload, session_id, turn_id, at } = self;
        Event { seq, kind: kind.into(), payload, session_id, turn_id, at }
    }
}
