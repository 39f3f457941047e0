//! The OpenAPI document (contract.md), made from the code: routes from the table that the router is built from, bodies and
//! answers from the types that are parsed and written, events from the enum of events.
//!
//! What no schema can say stands in the descriptions. `docs/openapi.json` is this document as it was last committed; a
//! test holds it against the code.

mod errors;
mod events;
mod messages;
mod operation;
mod schemas;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::routes::table::Row;
pub(crate) use schemas::Schemas;

pub(crate) use operation::{
    Operation, acp_names, cursor, flag, id, if_match, last_event_id, lifecycle_types, limit, newest_or_position,
    operation, page_limit, position, query, types,
};
pub(crate) use schemas::reference;

/// What it is about, in the document's own words.
const ABOUT: &str = "A headless coding-agent server. Every write is a command: it may have an `Idempotency-Key`, and one about a session may be held to a version by `If-Match`. `HEAD` is answered wherever `GET` is, without the body. Errors have one form everywhere. Nothing unknown passes in a body or a query; answers and events may gain fields.";

/// The document for a table of routes.
pub(crate) fn document(rows: &[Row]) -> Value {
    let mut schemas = Schemas::new();
    events::add(&mut schemas);
    let messages = messages::add(&mut schemas);
    let mut paths: Map<String, Value> = Map::new();
    for row in rows {
        let mut written = row.operation.written((&row.method, row.path), &mut schemas);
        if row.operation.messages {
            written["x-simse-messages"] = messages.clone();
        }
        let path = paths.entry(row.path).or_insert_with(|| path(row.path, &mut schemas));
        path[row.method.as_str().to_ascii_lowercase()] = written;
    }
    let responses = errors::responses(&mut schemas);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "simse",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT", "identifier": "MIT" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "A token of the server, where it wants one." },
            },
            "parameters": { "ClientId": client_id() },
            "headers": errors::headers(),
            "responses": responses,
        },
    });
    let schemas = schemas.finish(&mut document);
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

/// The document as it is committed: on lines.
pub fn pretty() -> String {
    let document = document(&super::routes::table::rows());
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// The document as it is served.
pub(crate) fn text() -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| document(&super::routes::table::rows()).to_string().into_bytes());
    &TEXT
}

/// What a path's own parts say: the ids in it.
fn path(path: &str, schemas: &mut Schemas) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters = names.map(|name| {
        let (schema, what) = match name {
            "sessionId" => (schemas.incoming::<crate::protocol::SessionId>(), "The session."),
            "nonce" => {
                (json!({ "type": "string", "pattern": "^[0-9a-fA-F]{32,128}$" }), "A word that was never sent before.")
            }
            "turnId" => (schemas.incoming::<crate::protocol::TurnId>(), "The turn."),
            "runId" => (schemas.incoming::<crate::protocol::RunId>(), "The run."),
            "grantId" => (schemas.incoming::<crate::protocol::GrantId>(), "The grant."),
            "key" => (schemas.incoming::<crate::protocol::BoardKey>(), "The key."),
            "taskId" => (json!({ "type": "string", "minLength": 1 }), "The task."),
            "tokenId" => (schemas.incoming::<crate::protocol::SessionTokenId>(), "The token's id, not the token."),
            _ => (json!({ "type": "string", "minLength": 1 }), "A name."),
        };
        json!({ "name": name, "in": "path", "required": true, "description": what, "schema": schema })
    });
    let parameters: Vec<Value> = parameters.collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn client_id() -> Value {
    json!({
        "name": "X-Client-ID",
        "in": "header",
        "description": "Who calls, within the token: each client has its own sessions.",
        "schema": { "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,256}$", "not": { "enum": [".", ".."] } },
    })
}
