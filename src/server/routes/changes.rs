//! What turns did to files: shown, undone, redone; and sessions forked.

use axum::http::StatusCode;

use crate::app::DiffWanted;
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
