//! The errors of the document: one response a status, all with the one envelope.

use serde_json::{Map, Value, json};

use super::schemas::{Schemas, reference};
use crate::protocol::{ErrorCode, ErrorEnvelope};

/// A status of an error: its name in the document, its code, and when it comes.
pub(crate) struct Status {
    pub(crate) status: u16,
    pub(crate) name: &'static str,
    pub(crate) code: ErrorCode,
    pub(crate) when: &'static str,
}

/// All of them.
#[rustfmt::skip]
pub(crate) const STATUSES: &[Status] = &[
    of(400, "InvalidArgument", ErrorCode::InvalidArgument, "The request is not valid: `details` names the field and what was expected."),
    of(401, "Unauthorized", ErrorCode::Unauthorized, "No token, a wrong one, or one that was revoked."),
    of(403, "Forbidden", ErrorCode::Forbidden, "The `Host` or the `Origin` is not the server's own, or the token's role is too small."),
    of(404, "NotFound", ErrorCode::NotFound, "There is nothing by that name, or it is another client's."),
    of(405, "MethodNotAllowed", ErrorCode::InvalidArgument, "The route does not take this method; `Allow` names those that it takes."),
    of(406, "NotAcceptable", ErrorCode::InvalidArgument, "The request takes no form that the answer has."),
    of(408, "RequestTimeout", ErrorCode::Timeout, "The request did not come in time."),
    of(409, "Conflict", ErrorCode::Conflict, "It does not fit the present state: read that, then decide anew."),
    of(413, "PayloadTooLarge", ErrorCode::PayloadTooLarge, "The body is larger than the limit, which `details` names."),
    of(414, "AddressTooLong", ErrorCode::PayloadTooLarge, "The first line of the request is longer than the limit."),
    of(415, "UnsupportedEncoding", ErrorCode::InvalidArgument, "The body has a `Content-Encoding`."),
    of(426, "UpgradeRequired", ErrorCode::InvalidArgument, "The request is not the head of a WebSocket of version 13."),
    of(429, "ResourceExhausted", ErrorCode::ResourceExhausted, "A limit is reached; nothing was changed."),
    of(431, "HeadersTooLarge", ErrorCode::PayloadTooLarge, "The headers of the request are larger than the limit, or too many."),
    of(500, "Internal", ErrorCode::Internal, "Our fault, or the disk's."),
    of(503, "UpstreamUnavailable", ErrorCode::UpstreamUnavailable, "A model or an agent is not there, or the server is stopping."),
    of(504, "Timeout", ErrorCode::Timeout, "Something did not answer in its time."),
];

const fn of(status: u16, name: &'static str, code: ErrorCode, when: &'static str) -> Status {
    Status { status, name, code, when }
}

/// The name of a status.
pub(super) fn name(status: u16) -> &'static str {
    STATUSES.iter().find(|known| known.status == status).map_or("Internal", |known| known.name)
}

/// The responses of all statuses.
pub(super) fn responses(schemas: &mut Schemas) -> Map<String, Value> {
    schemas.outgoing::<ErrorEnvelope>();
    let written = STATUSES.iter().map(|known| {
        let mut headers = json!({ "X-Request-Id": header("X-Request-Id") });
        let own = match known.status {
            401 => Some("WWW-Authenticate"),
            405 => Some("Allow"),
            429 => Some("Retry-After"),
            _ => None,
        };
        for name in own.into_iter().chain((known.status == 409).then_some("Idempotency-Replayed")) {
            headers[name] = header(name);
        }
        let schema = json!({
            "allOf": [reference("ErrorEnvelope")],
            "properties": { "error": { "properties": { "code": { "const": known.code } } } },
        });
        let content = json!({ "application/json": { "schema": schema } });
        let response = json!({ "description": known.when, "headers": headers, "content": content });
        (known.name.to_owned(), response)
    });
    written.collect()
}

fn header(name: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{name}") })
}

/// The headers of answers.
pub(super) fn headers() -> Value {
    let text = |description: &str, required: bool, more: Value| {
        let mut schema = json!({ "type": "string" });
        if let (Value::Object(schema), Value::Object(more)) = (&mut schema, more) {
            schema.extend(more);
        }
        json!({ "description": description, "required": required, "schema": schema })
    };
    json!({
        "Acp-Connection-Id": text("The connection, which all further messages name.", false, json!({ "pattern": "^[0-9a-f]{32}$" })),
        "X-Request-Id": text("The request's id, the same as in the server's log: the one that was sent, or a new one.", true, json!({})),
        "ETag": text("The session's version.", false, json!({ "pattern": "^\"[0-9]+\"$" })),
        "Location": text("The path of what was made.", true, json!({ "pattern": "^/sessions/" })),
        "Idempotency-Replayed": text("There when nothing was done, because it was done before or beside this request.", false, json!({ "const": "true" })),
        "WWW-Authenticate": text("The scheme of the token.", true, json!({ "const": "Bearer" })),
        "Allow": text("The methods that the route takes.", true, json!({})),
        "Retry-After": text("Seconds to wait.", true, json!({ "pattern": "^[0-9]+$" })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status_here() {
        let error = serde_json::from_str::<ErrorCode>("\"?\"").unwrap_err().to_string();
        let codes: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(codes.len() >= 10, "{error}");
        for code in codes {
            let code: ErrorCode = serde_json::from_value(code.into()).unwrap();
            assert!(STATUSES.iter().any(|known| known.code == code && known.status == code.status()), "{code:?}");
        }
    }
}
