//! One request to a server: sent once, over the connection that there is or can be made, and cancelled when nobody
//! waits for it any more.

use rmcp::model::{ClientRequest, ErrorData, GetExtensions as _, PingRequest, RequestId, ServerResult};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleClient, ServiceError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::elicit::{READ_WAIT, Underway};
use super::explain::request_failed;
use super::link::Link;
use super::login::wanted_by;
use super::rounds::{Answer, Rounds, understood};
use crate::config::McpTransport;

/// What a server is told about a request that is not waited for any more.
const CANCEL_REASON: &str = "the call was aborted";

/// Why a request has no answer. The texts are sentences about the server.
#[derive(Debug)]
pub(super) enum AskError {
    /// Cancelled; the server was told.
    Aborted,
    /// There is no connection, and none could be made.
    NotConnected(String),
    /// The server wants a login, or more than the one that there is; it has not carried out anything.
    NeedsLogin(String),
    /// The server answered with an error.
    Refused(ErrorData),
    /// The connection broke, or what came is no answer.
    Broken(String),
}

/// Asks. What the answer is made of is the caller's to know. `underway`: the call whose clients the server may ask meanwhile, and
/// when it ends the request with questions.
pub(super) async fn ask(
    link: &Link,
    (request, underway): (ClientRequest, Option<&Underway>),
    cancel: &CancellationToken,
) -> Result<ServerResult, AskError> {
    let _in_use = link.in_use();
    let mut rounds = Rounds::new(link.answers(), request);
    loop {
        let (id, answer) = once(link, (rounds.request(), underway), cancel).await?;
        let wants = match understood(answer) {
            Answer::Given(answer) => return Ok(*answer),
            Answer::Asks(wants) if underway.is_some() => wants,
            Answer::Asks(_) | Answer::Strange => {
                return Err(AskError::Broken(link.sentence("asked something that cannot be answered")));
            }
        };
        let answered = tokio::select! {
            biased;
            answered = rounds.answer(wants, (&id, cancel)) => answered,
            () = cancel.cancelled() => return Err(AskError::Aborted),
        };
        if cancel.is_cancelled() {
            return Err(AskError::Aborted);
        }
        answered.map_err(|why| AskError::Broken(link.told(link.sentence(&why))))?;
    }
}

/// Asks once; the id of the request, and what the server answered to it.
async fn once(
    link: &Link,
    (mut request, underway): (ClientRequest, Option<&Underway>),
    cancel: &CancellationToken,
) -> Result<(RequestId, ServerResult), AskError> {
    let peer = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(AskError::Aborted),
        peer = link.ready() => peer.map_err(AskError::NotConnected)?,
    };
    if let Some(underway) = underway {
        underway.sending();
        request.extensions_mut().insert(underway.mark());
    }
    let mut options = PeerRequestOptions::no_options();
    options.meta = link.said_with(&peer);
    // A server that reads nothing holds this up.
    let sent = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(AskError::Aborted),
        sent = peer.send_cancellable_request(request, options) => sent,
    };
    let mut handle = match sent {
        Ok(handle) => handle,
        Err(error) => {
            underway.inspect(|underway| underway.answered());
            return Err(failure(link, error).await);
        }
    };
    let answer = tokio::select! {
        biased;
        answer = &mut handle.rx => answer.unwrap_or(Err(ServiceError::TransportClosed)),
        () = cancel.cancelled() => {
            // Told, and not waited for: what is gone needs no telling.
            let _ = handle.cancel(Some(CANCEL_REASON.to_owned())).await;
            let over_pipes = matches!(link.spec().transport, McpTransport::Stdio { .. });
            if let Some(underway) = underway.filter(|_| over_pipes) {
                tokio::spawn(read_of_it(peer, underway.until_read()));
            }
            return Err(AskError::Aborted);
        }
    };
    underway.inspect(|underway| underway.answered());
    match answer {
        Ok(answer) => Ok((handle.id, answer)),
        Err(error) => Err(failure(link, error).await),
    }
}

/// Waits until the server answers what comes behind a cancellation.
async fn read_of_it(peer: Peer<RoleClient>, tell: impl FnOnce()) {
    if timeout(READ_WAIT, still_there(&peer)).await.is_ok_and(|answer| answer.is_ok()) {
        tell();
    }
}

/// Whether a server still answers. An error is an answer too: the newest revision has no `ping`.
pub(super) async fn still_there(peer: &Peer<RoleClient>) -> Result<(), ServiceError> {
    match peer.send_request(ClientRequest::PingRequest(PingRequest::default())).await {
        Ok(_) | Err(ServiceError::McpError(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn failure(link: &Link, error: ServiceError) -> AskError {
    match error {
        ServiceError::McpError(refused) => AskError::Refused(refused),
        ServiceError::TransportClosed => AskError::Broken(link.why_it_ended().await),
        ServiceError::TransportSend(failed) if wanted_by(failed.error.as_ref()).is_some() => {
            link.wants_login(wanted_by(failed.error.as_ref()).unwrap_or_default());
            AskError::NeedsLogin(link.needs_login())
        }
        ServiceError::TransportSend(_) => {
            link.doubt();
            let url = match &link.spec().transport {
                McpTransport::Http { url, .. } => Some(url.as_str()),
                McpTransport::Stdio { .. } => None,
            };
            AskError::Broken(link.sentence(&format!("could not be asked: {}", link.told(request_failed(&error, url)))))
        }
        other => AskError::Broken(link.sentence(&format!("failed: {}", link.told(request_failed(&other, None))))),
    }
}
