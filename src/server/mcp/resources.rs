//! Sessions as resources: the list of them, each one, and its history. All of the caller's, and nobody else's.

use std::sync::Arc;

use serde_json::{Value, json};

use super::methods::{Outcome, listed};
use super::peer::Peer;
use super::wire::{NO_RESOURCE, Request, RpcError};
use crate::base::limit;
use crate::protocol::{SessionId, SessionView};

/// The list of sessions.
const SESSIONS: &str = "simse://sessions";
/// The addresses with a place for the session's id.
const SESSION: &str = "simse://sessions/{sessionId}";
const HISTORY: &str = "simse://sessions/{sessionId}/history{?after}";
/// What all of them are written in.
const JSON: &str = "application/json";
/// Values that a completion gives at most.
const VALUES_MAX: usize = 100;

/// What an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    /// The sessions, the newest first.
    Sessions,
    /// One of them.
    Session(SessionId),
    /// What was said and done in it, behind this event.
    History(SessionId, u64),
}

impl Resource {
    /// What an address means. None: nothing.
    pub(super) fn at(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SESSIONS)?;
        if rest.is_empty() {
            return Some(Self::Sessions);
        }
        let path = rest.strip_prefix('/')?;
        let Some((id, tail)) = path.split_once('/') else { return path.parse().ok().map(Self::Session) };
        let after = match tail.strip_prefix("history")? {
            "" => 0,
            query => query.strip_prefix("?after=")?.parse().ok()?,
        };
        id.parse().ok().map(|id| Self::History(id, after))
    }
}

fn none(uri: &str) -> RpcError {
    RpcError { data: Some(json!({ "uri": uri })), ..RpcError::new(NO_RESOURCE, format!("Resource not found: {uri}")) }
}

/// Answers `resources/list`.
pub(super) async fn list(peer: &Peer, request: &Request) -> Outcome {
    let cursor = match request.params.get("cursor") {
        None | Some(Value::Null) => None,
        Some(cursor) => Some(cursor.as_str().ok_or_else(|| RpcError::params("`cursor`: expected a text"))?),
    };
    let page = peer.app.sessions(&peer.caller, cursor, limit::PAGE_ITEMS).await?;
    let mut resources = Vec::with_capacity(page.items.len() + 1);
    if cursor.is_none() {
        resources.push(json!({
            "uri": SESSIONS, "name": "sessions", "title": "Sessions", "mimeType": JSON,
            "description": "The sessions of this client, the newest first.",
        }));
    }
    resources.extend(page.items.iter().map(told));
    Ok(listed("resources", resources, page.next_cursor))
}

fn told(session: &SessionView) -> Value {
    let id = session.session_id.as_str();
    let title = session.title.as_deref().unwrap_or(id);
    let description = format!("A session in {}, answered by {}.", session.working_directory.display(), session.model);
    json!({ "uri": format!("{SESSIONS}/{id}"), "name": id, "title": title, "description": description, "mimeType": JSON })
}

/// Answers `resources/templates/list`.
pub(super) fn templates(_: &Peer, request: &Request) -> Outcome {
    let template = |uri: &str, name: &str, title: &str, description: &str| json!({ "uriTemplate": uri, "name": name, "title": title, "description": description, "mimeType": JSON });
    let all = vec![
        template(SESSION, "session", "A session", "A session as it is now: its state, its turn, its questions."),
        template(
            HISTORY,
            "history",
            "The history of a session",
            "What was said and done in a session, oldest first. `nextCursor` is the `after` of the next page.",
        ),
    ];
    let (templates, next) = super::methods::page(all, request, limit::PAGE_ITEMS)?;
    Ok(listed("resourceTemplates", templates, next))
}

/// Answers `resources/read`.
pub(super) async fn read(peer: &Peer, uri: &str) -> Outcome {
    let resource = Resource::at(uri).ok_or_else(|| none(uri))?;
    let text = match resource {
        Resource::Sessions => written(&peer.app.sessions(&peer.caller, None, limit::PAGE_ITEMS_MAX).await?),
        Resource::Session(id) => written(&peer.app.session(&peer.caller, &id).await?),
        Resource::History(id, after) => {
            written(&peer.app.history(&peer.caller, &id, after, limit::PAGE_ITEMS_MAX).await?)
        }
    }?;
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": JSON, "text": text }] }))
}

fn written<T: serde::Serialize>(value: &T) -> Result<String, RpcError> {
    serde_json::to_string(value).map_err(|cause| RpcError::new(super::wire::INTERNAL, cause.to_string()))
}

/// Answers `resources/subscribe`.
pub(super) async fn subscribe(peer: &Arc<Peer>, uri: &str) -> Outcome {
    let resource = Resource::at(uri).ok_or_else(|| none(uri))?;
    peer.watched.add(peer, uri, resource).await?;
    Ok(json!({}))
}

/// Answers `resources/unsubscribe`.
pub(super) fn unsubscribe(peer: &Peer, uri: &str) -> Outcome {
    Resource::at(uri).ok_or_else(|| none(uri))?;
    peer.watched.remove(uri);
    Ok(json!({}))
}

/// Answers `completion/complete`: ids of sessions that begin so.
pub(super) async fn complete(peer: &Peer, request: &Request) -> Outcome {
    let object = |name: &str| {
        let object = request.params.get(name).and_then(Value::as_object);
        object.ok_or_else(|| RpcError::params(format!("`{name}`: expected an object")))
    };
    let (of, argument) = (object("ref")?, object("argument")?);
    let word = |object: &serde_json::Map<String, Value>, name: &str| {
        object.get(name).and_then(Value::as_str).map(str::to_owned)
    };
    let begun = word(argument, "value").ok_or_else(|| RpcError::params("`argument.value`: expected a text"))?;
    let template = word(of, "uri").unwrap_or_default();
    match (of.get("type").and_then(Value::as_str), word(argument, "name").as_deref()) {
        (Some("ref/resource"), Some("sessionId")) if [SESSION, HISTORY].contains(&template.as_str()) => {}
        (Some("ref/resource" | "ref/prompt"), Some(_)) => return Ok(completed(Vec::new())),
        _ => {
            return Err(RpcError::params(
                "`ref`: expected a `ref/resource` or `ref/prompt`, and `argument.name` a text",
            ));
        }
    }
    let sessions = peer.app.sessions(&peer.caller, None, limit::PAGE_ITEMS_MAX).await?;
    let ids = sessions.items.iter().map(|session| session.session_id.as_str());
    Ok(completed(ids.filter(|id| id.starts_with(&begun)).map(str::to_owned).collect()))
}

fn completed(mut values: Vec<String>) -> Value {
    let total = values.len();
    values.truncate(VALUES_MAX);
    json!({ "completion": { "values": values, "total": total, "hasMore": total > VALUES_MAX } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_means_one_thing_or_nothing() {
        let id = || "ses_1".parse().unwrap();
        #[rustfmt::skip]
        let table = [
            ("simse://sessions", Some(Resource::Sessions)),
            ("simse://sessions/ses_1", Some(Resource::Session(id()))),
            ("simse://sessions/ses_1/history", Some(Resource::History(id(), 0))),
            ("simse://sessions/ses_1/history?after=7", Some(Resource::History(id(), 7))),
            ("simse://sessions/", None), ("simse://sessions/..", None), ("simse://sessionsx", None), ("", None),
            ("simse://sessions/ses_1/", None), ("simse://sessions/ses_1/history?after=x", None),
            ("simse://sessions/ses_1/history/x", None), ("file:///etc/passwd", None), ("simse://sessions/a b", None),
        ];
        for (uri, want) in table {
            assert_eq!(Resource::at(uri), want, "{uri}");
        }
    }
}
