//! What turns did to files: shown, undone, redone.

use crate::app::DiffWanted;
use crate::protocol::{ApiError, TurnId, Undo};
use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

/// `?turn=` one turn, `?cursor=` the next page, `?path=` one path with more of its diff.
pub(super) async fn diff(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (turn, after, path) = (query.text("turn"), query.text("cursor"), query.text("path"));
    query.finish(&["turn", "cursor", "path"])?;
    let turn = turn.map(|text| text.parse::<TurnId>()).transpose();
    let turn = turn.map_err(|cause| ApiError::invalid("turn", cause.to_string()))?;
    if after.is_some() && path.is_some() {
        return Err(ApiError::invalid("cursor", "not together with `path`, which names one file").into());
    }
    ok(&call.shared.app.diff(&call.caller, &id, DiffWanted { turn, after, path }).await?)
}

pub(super) async fn undo(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let body: Undo = call.json().await?;
    ok(&call.shared.app.undo(&call.caller, &id, body).await?)
}

pub(super) async fn redo(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let body: Undo = call.json().await?;
    ok(&call.shared.app.redo(&call.caller, &id, body).await?)
}
