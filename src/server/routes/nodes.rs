//! The servers that share the store.

use serde::Deserialize;

use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

/// What a body without anything in it says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

pub(super) async fn list(call: Call) -> Answer {
    call.no_query()?;
    ok(&call.shared.app.nodes(&call.caller).await?)
}

pub(super) async fn drain(mut call: Call) -> Answer {
    call.no_query()?;
    let Nothing {} = call.json().await?;
    ok(&call.shared.app.drain(&call.caller).await?)
}
