//! Tokens for one session: made, listed, taken away.

use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};

use crate::protocol::{ApiError, SessionTokenId};
use crate::server::answer::{Answer, json, ok};
use crate::server::call::Call;
use crate::server::guard::Shown;

pub(super) async fn create(mut call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    let new = call.json().await?;
    if !call.shared.guard.keys().wanted() {
        let why = "this server wants no tokens (`noAuth`): whoever reaches it reaches every session";
        return Err(ApiError::conflict(why).into());
    }
    let by = call.head.extensions.get::<Shown>().and_then(|shown| shown.0.clone());
    // No command with a key: an outcome that is kept would keep the token.
    let made = call.shared.app.create_session_token(&call.caller, &id, (new, by)).await?;
    let mut response = json(StatusCode::CREATED, &made);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub(super) async fn list(call: Call) -> Answer {
    call.no_query()?;
    let id = call.id("sessionId")?;
    ok(&call.shared.app.list_session_tokens(&call.caller, &id).await?)
}

pub(super) async fn revoke(call: Call) -> Answer {
    call.no_query()?;
    let (id, token) = (call.id("sessionId")?, call.id::<SessionTokenId>("tokenId")?);
    ok(&call.shared.app.revoke_session_token(&call.caller, (&id, &token)).await?)
}
