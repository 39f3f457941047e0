//! What a request would cost: its tokens as the provider counts them, without an answer. Where a wire has no route for it, or
//! answers come from a recording, nobody is asked.

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::answer::Answering;
use super::failure::{BODY_BYTES_MAX, from_http, from_status};
use super::model::Endpoint;
use crate::base::http;
use crate::model::{ModelError, ModelRequest};

/// Asks for the tokens of a request. None: the provider does not count.
///
/// # Errors
/// As a model's stream; an answer that is no count is [`ModelError::Malformed`].
pub(super) async fn tokens(
    endpoint: &Endpoint,
    request: &ModelRequest,
    cancel: &CancellationToken,
) -> Result<Option<u64>, ModelError> {
    let Some(url) = endpoint.wire.count_url(&endpoint.place.base_url, &endpoint.spec.model) else { return Ok(None) };
    if endpoint.place.tape.as_ref().is_some_and(|tape| tape.plays()) {
        return Ok(None);
    }
    endpoint.set_up()?;
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ModelError::Aborted),
        counted = ask(endpoint, request, &url) => counted.map(Some),
    }
}

async fn ask(endpoint: &Endpoint, request: &ModelRequest, url: &str) -> Result<u64, ModelError> {
    let _pass = endpoint.place.gate.enter().await;
    let told = endpoint.told(&request.tools)?;
    let body = endpoint.wire.encode_count(&endpoint.spec, request, &told)?;
    let mut keyed = endpoint.place.keyed().await?;
    let mut answer = http::post(endpoint.post((url, "application/json"), body.clone(), &keyed)).await;
    if matches!(&answer, Ok(answer) if answer.status == 401)
        && let Some(other) = endpoint.place.refreshed(&keyed).await
    {
        keyed = other;
        answer = http::post(endpoint.post((url, "application/json"), body, &keyed)).await;
    }
    let redact = &keyed.redact;
    let answer = answer.map_err(|error| redact.error(from_http(&error)))?;
    let mut answer = Answering::Live(Box::new(answer), None);
    let (status, retry_after) = (answer.status(), answer.retry_after());
    if !(200..300).contains(&status) {
        let said = redact.text(answer.text(BODY_BYTES_MAX).await);
        return Err(redact.error(from_status(status, retry_after, &said)));
    }
    if let Some(error) = answer.unread() {
        return Err(error);
    }
    // It is short: signs of life do not begin the wait anew.
    let patience = endpoint.place.idle_timeout;
    let said = timeout(patience, answer.whole(&[], BODY_BYTES_MAX + 1)).await.map_err(|_| ModelError::Transient {
        message: format!(
            "the model's provider was asked for a count and has not said it within {} ms",
            patience.as_millis()
        ),
        retry_after: None,
    })?;
    let said = said.map_err(|error| redact.error(from_http(&error)))?;
    if said.len() > BODY_BYTES_MAX {
        let words = format!("the model's provider was asked for a count and said more than {BODY_BYTES_MAX} bytes");
        return Err(ModelError::Malformed(words));
    }
    // Read as it came: a short key may stand in any word.
    endpoint.wire.counted(&said).ok_or_else(|| {
        let start: String = redact.text(said).chars().take(80).collect();
        ModelError::Malformed(format!("the model's provider was asked for a count and said `{start}`"))
    })
}
