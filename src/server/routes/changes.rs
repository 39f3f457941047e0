//! Files: what there is, what turns did to them: shown, undone, redone; and sessions forked.

use axum::http::StatusCode;

use crate::app::{DiffWanted, FilesWanted};
use crate::base::limit;
use crate::protocol::{ApiError, TurnId};
use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

/// `?turn=` one turn, `?cursor=` the next page, `?path=` one path with more of its diff.
pub(super) async fn diff(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (turn, after, path) = (query.text("turn"), query.text("cursor"), query.text("path"));
    query.finish(&["turn", "cursor", "path"])?;
    let turn = turn.map(|text| text.parse::<TurnId>()).transpose();
    let turn = turn.map_err(|cause| ApiError::unread("turn", &cause))?;
    if after.is_some() && path.is_some() {
        return Err(ApiError::invalid("cursor", "not together with `path`, which names one file").into());
    }
    ok(&call.shared.app.diff(&call.caller, &id, DiffWanted { turn, after, path }).await?)
}

/// `?path=` a directory, `?query=` the letters of files below it, `?limit=` how many.
pub(super) async fn files(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (path, letters) = (query.text("path"), query.text("query"));
    let most = query.number("limit")?.unwrap_or(limit::FILES_TOLD as u64);
    query.finish(&["path", "query", "limit"])?;
    let limit = match usize::try_from(most) {
        Ok(limit @ 1..=limit::FILES_TOLD_MAX) => limit,
        _ => return Err(ApiError::invalid("limit", format!("a number from 1 to {}", limit::FILES_TOLD_MAX)).into()),
    };
    if letters.as_ref().is_some_and(|letters| letters.len() > limit::FILES_QUERY_BYTES_MAX) {
        return Err(ApiError::invalid("query", format!("at most {} bytes", limit::FILES_QUERY_BYTES_MAX)).into());
    }
    let wanted = FilesWanted { path: path.unwrap_or_else(|| ".".to_owned()), query: letters, limit };
    ok(&call.shared.app.files(&call.caller, &id, wanted).await?)
}

pub(super) async fn undo(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("undo", Some(id)).await?.respond(StatusCode::OK))
}

pub(super) async fn redo(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    Ok(call.write("redo", Some(id)).await?.respond(StatusCode::OK))
}

pub(super) async fn fork(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    super::created(&call.write("fork", Some(id)).await?)
}
