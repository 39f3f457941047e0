//! Events as JSON: their wire names and payloads.

use serde_json::value::RawValue;

use super::event::EventBody;

/// Room for an event's name and payload while it is encoded: enough for a delta.
const ROOM: usize = 96;

impl EventBody {
    /// The wire name, and the payload in JSON.
    pub fn encode(&self) -> (&'static str, Box<RawValue>) {
        let mut text = Vec::with_capacity(ROOM);
        self.append_payload(&mut text);
        let text = String::from_utf8(text).unwrap_or_default();
        let payload = RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned());
        (self.kind(), payload)
    }

    /// Writes the payload in JSON behind what is there.
    pub fn append_payload(&self, out: &mut Vec<u8>) {
        let from = out.len();
        // Plain data with string keys: serialising it into memory cannot fail. serde writes `{"type":KIND,"payload":PAYLOAD}`.
        if serde_json::to_writer(&mut *out, self).is_err() {
            out.truncate(from);
            return out.extend_from_slice(b"null");
        }
        let front = r#"{"type":"","payload":"#.len() + self.kind().len();
        out.pop();
        out.drain(from..(from + front).min(out.len()));
    }

    /// Whether it ends a turn.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::SessionCompleted { .. } | Self::SessionError { .. } | Self::Abort { .. })
    }
}
