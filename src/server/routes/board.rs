//! What the sessions of a tree share.

use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::Response;

use crate::protocol::{ApiError, BoardEntry, BoardKey};
use crate::server::answer::{Answer, json, ok};
use crate::server::call::Call;
use crate::server::headers::{etag, expected_version};

pub(super) async fn list(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (prefix, cursor, limit) = (query.text("prefix"), query.text("cursor"), query.limit()?);
    query.finish(&["prefix", "cursor", "limit"])?;
    let after = cursor.map(|text| text.parse::<BoardKey>()).transpose();
    let after = after.map_err(|_| ApiError::invalid("cursor", "the `nextCursor` of the page before"))?;
    ok(&call.shared.app.board(&call.caller, &id, (prefix, after, limit)).await?)
}

pub(super) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let (id, key) = (call.id("sessionId")?, call.id("key")?);
    Ok(entry(&call.shared.app.board_entry(&call.caller, &id, &key).await?))
}

pub(super) async fn put(mut call: Call) -> Answer {
    call.no_query()?;
    let (id, key) = (call.id("sessionId")?, call.id("key")?);
    let if_match = expected_version(&call.head.headers)?;
    let body = call.json().await?;
    Ok(entry(&call.shared.app.put_board_entry(&call.caller, (&id, key), (body, if_match)).await?))
}

pub(super) async fn delete(call: Call) -> Answer {
    call.no_query()?;
    let (id, key) = (call.id("sessionId")?, call.id("key")?);
    let if_match = expected_version(&call.head.headers)?;
    ok(&call.shared.app.delete_board_entry(&call.caller, (&id, key), if_match).await?)
}

pub(super) async fn clear(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    ok(&call.shared.app.clear_board(&call.caller, &id).await?)
}

pub(super) async fn tasks(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (cursor, limit) = (query.number("cursor")?, query.limit()?);
    query.finish(&["cursor", "limit"])?;
    ok(&call.shared.app.tasks(&call.caller, &id, (cursor.unwrap_or(0), limit)).await?)
}

/// An entry, with its version in the head.
fn entry(entry: &BoardEntry) -> Response {
    let mut response = json(StatusCode::OK, entry);
    response.headers_mut().insert(ETAG, etag(entry.version));
    response
}
