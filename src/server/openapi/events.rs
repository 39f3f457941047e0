//! The events of the document: one schema a type, with its payload, and one that is any of them.

use serde_json::{Map, Value, json};

use super::schemas::{Schemas, reference};
use crate::protocol::{EVENT_TYPES, Event, EventBody, LIFECYCLE_TYPES, SESSION_DELETED};

/// Adds `Event`, `LifecycleEvent`, the names of their types, and every type's own schema.
pub(super) fn add(schemas: &mut Schemas) {
    let envelope = schemas.outgoing_whole::<Event>();
    let bodies = schemas.outgoing_whole::<EventBody>();
    let bodies = bodies["oneOf"].as_array().into_iter().flatten();
    let mut all = Vec::new();
    for body in bodies {
        let Some(kind) = body["properties"]["type"]["const"].as_str() else { continue };
        all.push((kind, event(schemas, (&envelope, kind), (&body["description"], &body["properties"]["payload"]))));
    }
    let gone =
        json!({ "type": "object", "properties": { "sessionId": reference("SessionId") }, "required": ["sessionId"] });
    let about = json!("A session was deleted. The last of its events, and in no log: that is gone.");
    let deleted = (SESSION_DELETED, event(schemas, (&envelope, SESSION_DELETED), (&about, &gone)));
    let about = "One record of a session's log. A program that meets a type that it does not know passes it over.";
    schemas.add("Event", any_of(about, all.iter()));
    let lifecycle = all.iter().chain([&deleted]).filter(|(kind, _)| LIFECYCLE_TYPES.contains(kind));
    let about = "An event that tells how sessions come and go, or that one of them waits for somebody.";
    schemas.add("LifecycleEvent", any_of(about, lifecycle));
    schemas.add("EventType", json!({ "description": "The types of events.", "type": "string", "enum": EVENT_TYPES }));
    let about = "The types of events in the stream over all sessions.";
    schemas.add("LifecycleType", json!({ "description": about, "type": "string", "enum": LIFECYCLE_TYPES }));
    schemas.add("StreamReady", ready());
}

/// One type of events; gives back a reference to it.
fn event(schemas: &mut Schemas, (envelope, kind): (&Value, &str), (about, payload): (&Value, &Value)) -> Value {
    let mut event = envelope.clone();
    event["description"] = about.clone();
    event["properties"]["type"] = json!({ "type": "string", "const": kind });
    event["properties"]["payload"] = payload.clone();
    schemas.add(&(words(kind) + "Event"), event)
}

fn any_of<'a>(about: &str, events: impl Iterator<Item = &'a (&'a str, Value)>) -> Value {
    let (mut all, mut mapping) = (Vec::new(), Map::new());
    for (kind, named) in events {
        mapping.insert((*kind).to_owned(), named["$ref"].clone());
        all.push(named.clone());
    }
    let discriminator = json!({ "propertyName": "type", "mapping": mapping });
    json!({ "description": about, "oneOf": all, "discriminator": discriminator })
}

/// The first frame of a stream.
fn ready() -> Value {
    let number = |about: &str| json!({ "description": about, "type": "integer", "format": "uint64", "minimum": 0 });
    json!({
        "description": "The first frame of a stream, which is not in the log and has no number.",
        "type": "object",
        "properties": {
            "type": { "type": "string", "const": "ready" },
            "payload": {
                "type": "object",
                "properties": {
                    "position": number("What comes is behind this."),
                    "endsSince": number("Of the stream over all sessions, once it has forgotten some that were deleted: since when it tells of all, in milliseconds since 1970. Who was away for longer looks at the list of sessions."),
                },
                "required": ["position"],
            },
            "sessionId": { "description": "The session; absent in the stream over all of them.", "$ref": reference("SessionId")["$ref"] },
            "turnId": { "description": "The turn, of a stream of its events alone.", "$ref": reference("TurnId")["$ref"] },
            "at": number("When, in milliseconds since 1970."),
        },
        "required": ["type", "payload", "at"],
    })
}

/// A name of a wire, such as `create_session` or `tool.call.end`, as that of a type.
pub(super) fn words(kind: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    kind.split(['.', '_']).map(capital).collect()
}
