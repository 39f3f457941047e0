//! The messages of the WebSocket and of stdio: what a client says, and what it is told.

use serde_json::{Map, Value, json};

use super::events::words;
use super::schemas::{Schemas, reference};
use crate::app::{KINDS, Kind, Names};
use crate::base::limit;

/// Adds them. What comes back names both directions.
pub(super) fn add(schemas: &mut Schemas) -> Value {
    let commands: Vec<(&str, Value)> = KINDS.iter().map(|kind| (kind.name, command(kind, schemas))).collect();
    let of_client = any("What a client says on a socket or a pipe.", &commands);
    let of_client = schemas.add_incoming("ClientMessage", of_client);
    let answers: Vec<Value> = KINDS.iter().map(|kind| response(kind, schemas)).collect();
    let failed = failed(schemas);
    let mut described = json!({ "description": "The answer to a command: exactly one for each." });
    described["oneOf"] = answers.into_iter().chain([failed]).collect();
    let response = schemas.add("CommandResponse", described);
    let mut of_server: Vec<Value> = marks(schemas);
    of_server.push(response);
    of_server.extend(notices(schemas));
    let of_server = json!({ "description": "What a client is told on a socket or a pipe.", "oneOf": of_server });
    let of_server = schemas.add("ServerMessage", of_server);
    json!({ "client": of_client, "server": of_server })
}

fn any(description: &str, choices: &[(&str, Value)]) -> Value {
    let mapping: Map<String, Value> =
        choices.iter().map(|(name, schema)| ((*name).to_owned(), schema["$ref"].clone())).collect();
    let all: Vec<&Value> = choices.iter().map(|(_, schema)| schema).collect();
    json!({ "description": description, "oneOf": all, "discriminator": { "propertyName": "type", "mapping": mapping } })
}

/// A message of a client: what is around every command, and its own fields.
fn command(kind: &Kind, schemas: &mut Schemas) -> Value {
    let mut schema = schemas.incoming_whole(kind.body);
    let own = schema["properties"].as_object().cloned().unwrap_or_default();
    let mut properties = Map::new();
    properties.insert("type".to_owned(), json!({ "type": "string", "const": kind.name }));
    properties.insert(
        "id".to_owned(),
        name("Its id: an answer names it, and what comes again with it is done once.", "^(?!anon:)"),
    );
    let mut required = vec![json!("type")];
    match kind.names {
        Names::Must => {
            required.push(json!("sessionId"));
            properties.insert("sessionId".to_owned(), session());
        }
        Names::May => {
            properties.insert("sessionId".to_owned(), json!({ "anyOf": [session(), { "type": "null" }] }));
        }
        Names::Never => {
            properties.insert("sessionId".to_owned(), json!({ "type": "null" }));
        }
    }
    if kind.name != "subscribe" && kind.name != "unsubscribe" {
        let about = "Ids of commands of the same client that must have succeeded before.";
        let ids = json!({ "description": about, "type": ["array", "null"], "items": { "type": "string" }, "maxItems": limit::DEPENDENCIES_MAX });
        properties.insert("dependsOn".to_owned(), ids);
        let version = json!({ "description": "Refuse unless the session has this version.", "type": ["integer", "null"], "format": "uint64", "minimum": 0 });
        properties.insert("ifSessionVersion".to_owned(), version);
    }
    properties.insert(
        "idempotencyKey".to_owned(),
        name("A key: what comes again under it is done once, whatever its id.", ""),
    );
    for (field, value) in own {
        properties.entry(field).or_insert(value);
    }
    required.extend(schema["required"].as_array().cloned().unwrap_or_default());
    schema["description"] = format!("The command `{}`.", kind.name).into();
    schema["properties"] = Value::Object(properties);
    schema["required"] = Value::Array(required);
    schema["additionalProperties"] = false.into();
    schemas.add_incoming(&format!("{}Command", words(kind.name)), schema)
}

fn session() -> Value {
    reference("SessionId")
}

fn name(description: &str, start: &str) -> Value {
    let mut schema = json!({ "description": description, "type": ["string", "null"], "minLength": 1, "maxLength": limit::COMMAND_ID_BYTES_MAX });
    schema["pattern"] =
        format!("{}[^\\u0000-\\u001f\\u007f-\\u009f]*$", if start.is_empty() { "^" } else { start }).into();
    schema
}

/// The answer to a command that succeeded.
fn response(kind: &Kind, schemas: &mut Schemas) -> Value {
    let data = schemas.outgoing_of(kind.answer);
    let schema = json!({
        "description": format!("`{}` succeeded.", kind.name),
        "type": "object",
        "properties": {
            "type": { "type": "string", "const": "response" },
            "id": { "type": "string" },
            "command": { "type": "string", "const": kind.name },
            "success": { "type": "boolean", "const": true },
            "data": data,
            "sessionVersion": { "description": "The session's version behind it.", "type": "integer", "format": "uint64", "minimum": 0 },
            "replayed": { "description": "It was done before, or beside this.", "type": "boolean" },
        },
        "required": ["type", "id", "command", "success", "data"],
    });
    schemas.add(&format!("{}Response", words(kind.name)), schema)
}

fn failed(schemas: &mut Schemas) -> Value {
    let schema = json!({
        "description": "A command failed, or was refused, or is none. `id` and `command` are there as far as they could be read.",
        "type": "object",
        "properties": {
            "type": { "type": "string", "const": "response" },
            "id": { "type": "string" },
            "command": { "type": "string" },
            "success": { "type": "boolean", "const": false },
            "error": reference("ErrorBody"),
            "timedOut": { "description": "It took too long.", "type": "boolean" },
            "replayed": { "description": "It was done before, or beside this.", "type": "boolean" },
            "sessionVersion": { "type": "integer", "format": "uint64", "minimum": 0 },
        },
        "required": ["type", "success", "error"],
    });
    schemas.add("FailedResponse", schema)
}

/// The steps of a command.
fn marks(schemas: &mut Schemas) -> Vec<Value> {
    let steps = [
        ("command_accepted", "A command was taken on."),
        ("command_started", "It runs."),
        ("command_finished", "It is over; its answer follows."),
    ];
    let mark = |(kind, description): (&str, &str)| {
        let mut schema = json!({
            "description": description,
            "type": "object",
            "properties": {
                "type": { "type": "string", "const": kind },
                "id": { "type": "string" },
                "command": { "type": "string", "enum": KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>() },
                "sessionId": session(),
            },
            "required": ["type", "id", "command"],
        });
        if kind == "command_finished" {
            schema["properties"]["success"] = json!({ "type": "boolean" });
            schema["properties"]["replayed"] =
                json!({ "description": "It was done before, or beside this.", "type": "boolean" });
            schema["required"] = json!(["type", "id", "command", "success"]);
        }
        schemas.add(&words(kind), schema)
    };
    steps.into_iter().map(mark).collect()
}

/// What is told unasked.
fn notices(schemas: &mut Schemas) -> Vec<Value> {
    let text = || json!({ "type": "string" });
    let notices = [
        (
            "server_ready",
            "The first message.",
            json!({ "serverVersion": text(), "protocolVersion": text(), "transport": { "type": "string", "enum": ["websocket", "stdio"] } }),
        ),
        (
            "server_shutdown",
            "The server stops: turns get `timeoutMs` to finish, and no new work is taken on.",
            json!({ "reason": text(), "timeoutMs": { "type": "integer", "minimum": 0 } }),
        ),
        (
            "event",
            "An event of a session that was subscribed to.",
            json!({ "sessionId": session(), "event": reference("Event") }),
        ),
        (
            "lifecycle_event",
            "An event of any session of the caller: how they come and go. `place` is where it stands among these.",
            json!({ "place": { "type": "integer", "format": "uint64", "minimum": 1 }, "event": reference("LifecycleEvent") }),
        ),
        (
            "subscription_ended",
            "No more events of this session come; without a session, of all of them.",
            json!({ "sessionId": session(), "reason": text() }),
        ),
    ];
    let notice = |(kind, description, fields): (&str, &str, Value)| {
        let mut properties = json!({ "type": { "type": "string", "const": kind } });
        if let (Value::Object(all), Value::Object(own)) = (&mut properties, fields) {
            all.extend(own);
        }
        let names = properties.as_object().into_iter().flat_map(Map::keys);
        let required: Vec<&String> =
            names.filter(|name| kind != "subscription_ended" || *name != "sessionId").collect();
        let schema =
            json!({ "description": description, "type": "object", "properties": properties, "required": required });
        schemas.add(&format!("{}Message", words(kind)), schema)
    };
    notices.into_iter().map(notice).collect()
}
