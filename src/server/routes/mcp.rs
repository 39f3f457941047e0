//! The tool servers of a session: shown, asked, and a project's file trusted.

use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

pub(super) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    ok(&call.shared.app.mcp(&call.caller, &id).await?)
}

pub(super) async fn trust(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let body = call.json().await?;
    ok(&call.shared.app.trust_project(&call.caller, &id, body).await?)
}

pub(super) async fn ask(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let body = call.json().await?;
    ok(&call.shared.app.ask_mcp(&call.caller, &id, body).await?)
}
