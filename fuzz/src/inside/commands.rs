//! Frames of commands and bodies of requests: what is refused names its field, what is taken is the same however it is
//! written, over a socket or over HTTP.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ANONYMOUS, Command, KINDS, Message, Request};
use crate::app::parse_json;
use crate::base::limit;
use crate::protocol::whole;
use crate::protocol::{
    ApiError, Configure, Control, CreateSession, ErrorCode, ExplainCall, Feedback, Fork, Prompt, Undo,
};

/// The property of the target `commands`. The first letter says of what: a (m)essage, or a body, by the kind in front.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b'm', text)) => message(text),
        Some((b's', text)) => body::<CreateSession>(text),
        Some((b'p', text)) => body::<Prompt>(text),
        Some((b'c', text)) => body::<Configure>(text),
        Some((b'a', text)) => body::<Control>(text),
        Some((b'f', text)) => body::<Feedback>(text),
        Some((b'k', text)) => body::<Fork>(text),
        Some((b'u', text)) => body::<Undo>(text),
        Some((b'e', text)) => body::<ExplainCall>(text),
        Some(_) | None => {}
    }
}

fn body<T: DeserializeOwned + PartialEq + std::fmt::Debug + serde::Serialize>(text: &[u8]) {
    let shown = String::from_utf8_lossy(text);
    let read: T = match parse_json(text, "body") {
        Ok(read) => read,
        Err(error) => return refused(&error, &shown),
    };
    for other in otherwise(text) {
        let again = parse_json::<T>(&other, "body");
        assert_eq!(again.as_ref().ok(), Some(&read), "{shown}\nas {}: {again:?}", String::from_utf8_lossy(&other));
    }
    let printed = serde_json::to_vec(&read).expect("it came from JSON");
    let again = parse_json::<T>(&printed, "body");
    assert_eq!(again.as_ref().ok(), Some(&read), "{shown}\nprinted {}", String::from_utf8_lossy(&printed));
}

/// The same object with its keys turned round, and with room between everything. None of what nobody can write again.
fn otherwise(text: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(text) else { return Vec::new() };
    let turned: Map<String, Value> = fields.into_iter().rev().collect();
    let mut padded = b" \n\t".to_vec();
    padded.extend(text);
    padded.push(b'\r');
    vec![padded, serde_json::to_vec_pretty(&Value::Object(turned)).expect("it came from JSON")]
}

fn refused(error: &ApiError, text: &str) {
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{text}: {error:?}");
    let details = error.0.details.as_ref().expect("a refusal has details");
    let word = |name: &str| details[name].as_str().filter(|word| !word.is_empty());
    assert!(word("field").is_some() && word("expected").is_some(), "{text}: {details}");
    // What our own types are called is nobody's matter.
    for ours in ["struct ", "internally tagged", " at line "] {
        assert!(text.contains(ours) || !word("expected").is_some_and(|told| told.contains(ours)), "{text}: {details}");
    }
}

fn message(text: &[u8]) {
    let shown = String::from_utf8_lossy(text);
    let read = match Message::parse(text) {
        Ok(read) => read,
        Err(unread) => {
            assert!(unread.id.as_deref().is_none_or(is_name), "{shown}: {unread:?}");
            assert!(unread.command.as_deref().is_none_or(|kind| KINDS.iter().any(|known| known.name == kind)));
            return refused(&unread.error, &shown);
        }
    };
    for other in otherwise(text) {
        let again = Message::parse(&other);
        assert_eq!(again.as_ref().ok(), Some(&read), "{shown}\nas {}: {again:?}", String::from_utf8_lossy(&other));
    }
    if let Message::Command(command) = &read {
        assert!(command.id.as_deref().is_none_or(is_name), "{shown}: {command:?}");
        assert!(command.depends_on.len() <= limit::DEPENDENCIES_MAX);
        over_http(command, text);
    }
}

fn is_name(id: &str) -> bool {
    (1..=limit::COMMAND_ID_BYTES_MAX).contains(&id.len()) && !id.starts_with(ANONYMOUS)
}

/// The fields around an operation, which HTTP says elsewhere.
const AROUND: [&str; 6] = ["id", "type", "idempotencyKey", "sessionId", "dependsOn", "ifSessionVersion"];

/// The same command as the body of a request asks for the same, under the same fingerprint.
fn over_http(command: &Command, text: &[u8]) {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice::<Value>(text) else { return };
    // What nobody would say over HTTP, and what counts as absent.
    if fields.contains_key("dependsOn") || AROUND.iter().any(|name| fields.get(*name).is_some_and(Value::is_null)) {
        return;
    }
    let kind = KINDS.iter().find(|kind| fields["type"] == kind.name).expect("it was read");
    let version = fields.get("ifSessionVersion").and_then(|given| whole::number(given).ok());
    let in_body = matches!(kind.name, "create_session" | "explain_permission");
    fields.retain(|name, _| !AROUND.contains(&name.as_str()) || (in_body && name == "sessionId"));
    let body = serde_json::to_vec(&fields).expect("it came from JSON");
    let request = Request {
        kind: kind.name,
        session: command.session.clone().filter(|_| !in_body),
        key: command.key.clone(),
        if_version: version,
        fields: Vec::new(),
        body: &body,
    };
    let asked = Command::of_request(request).unwrap_or_else(|error| panic!("{command:?}: {error:?}"));
    assert_eq!(asked.operation, command.operation);
    assert_eq!(asked.if_version, command.if_version);
    if command.key.is_some() {
        assert_eq!(asked.fingerprint, command.fingerprint, "{command:?}");
    }
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("commands", b"mspcafkue", holds);
}
