//! What the sessions of a tree share.

use axum::http::StatusCode;
use axum::http::header::ETAG;
use axum::response::Response;

use crate::protocol::{ApiError, BoardEntry, BoardKey};
use crate::server::answer::{Answer, json, ok};
use crate::server::call::Call;
use crate::server::headers::etag;

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
    let (id, key): (_, BoardKey) = (call.id("sessionId")?, call.id("key")?);
    let body = call.bytes().await?;
    let done = call.carry_out("put_board_entry", Some(id), (vec![("key", key.as_str().into())], &body)).await?;
    let mut response = done.respond(StatusCode::OK);
    response.headers_mut().insert(ETAG, etag(done.read::<BoardEntry>()?.version));
    Ok(response)
}

pub(super) async fn delete(mut call: Call) -> Answer {
    call.no_query()?;
    let (id, key): (_, BoardKey) = (call.id("sessionId")?, call.id("key")?);
    let fields = vec![("key", key.as_str().into())];
    Ok(call.carry_out("delete_board_entry", Some(id), (fields, b"")).await?.respond(StatusCode::OK))
}

pub(super) async fn clear(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.carry_out("clear_board", Some(id), (Vec::new(), b"")).await?.respond(StatusCode::OK))
}

pub(super) async fn create_task(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("create_task", Some(id)).await?.respond(StatusCode::CREATED))
}

pub(super) async fn update_task(mut call: Call) -> Answer {
    call.no_query()?;
    let (id, task): (_, String) = (call.id("sessionId")?, call.id("taskId")?);
    let body = call.bytes().await?;
    let fields = vec![("taskId", task.into())];
    Ok(call.carry_out("update_task", Some(id), (fields, &body)).await?.respond(StatusCode::OK))
}

pub(super) async fn delete_task(mut call: Call) -> Answer {
    call.no_query()?;
    let (id, task): (_, String) = (call.id("sessionId")?, call.id("taskId")?);
    let fields = vec![("taskId", task.into())];
    Ok(call.carry_out("delete_task", Some(id), (fields, b"")).await?.respond(StatusCode::OK))
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
