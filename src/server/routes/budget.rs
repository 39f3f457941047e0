//! What a session may spend, and what it has.

use crate::server::answer::{Answer, ok};
use crate::server::call::Call;

pub(super) async fn show(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    ok(&call.shared.app.budget(&call.caller, &id).await?)
}
