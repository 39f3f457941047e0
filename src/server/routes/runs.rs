//! The run tree: sessions under others, and their turns as runs.

use crate::protocol::{ApiError, RunId, SessionId};
use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

pub(super) async fn children(call: Call) -> Answer {
    let id = call.id("sessionId")?;
    let mut query = call.query()?;
    let (cursor, limit) = (query.text("cursor"), query.limit()?);
    query.finish(&["cursor", "limit"])?;
    ok(&call.shared.app.children(&call.caller, &id, (cursor.as_deref(), limit)).await?)
}

pub(super) async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let (of, cursor, limit) = (query.text("sessionId"), query.text("cursor"), query.limit()?);
    query.finish(&["sessionId", "cursor", "limit"])?;
    let of = of.map(|text| text.parse::<SessionId>()).transpose();
    let of = of.map_err(|cause| ApiError::unread("sessionId", &cause))?;
    ok(&call.shared.app.runs(&call.caller, of.as_ref(), (cursor.as_deref(), limit)).await?)
}

pub(super) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let run: RunId = call.id("runId")?;
    ok(&call.shared.app.run(&call.caller, &run).await?)
}

pub(super) async fn context(call: Call) -> Answer {
    let run: RunId = call.id("runId")?;
    let mut query = call.query()?;
    let (view, cursor, limit) = (query.text("view"), query.number("cursor")?, query.limit()?);
    query.finish(&["view", "cursor", "limit"])?;
    let raw = match view.as_deref() {
        None | Some("summary") => false,
        Some("raw") => true,
        Some(other) => return Err(ApiError::unfit("view", "`summary` or `raw`", format!("`{other}`")).into()),
    };
    ok(&call.shared.app.run_context(&call.caller, &run, (raw, cursor.unwrap_or(0), limit)).await?)
}

pub(super) async fn cancel(mut call: Call) -> Answer {
    call.no_query()?;
    let run: RunId = call.id("runId")?;
    let body = call.json().await?;
    ok(&call.shared.app.cancel_run(&call.caller, &run, body).await?)
}
