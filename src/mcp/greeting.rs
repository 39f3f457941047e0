//! Which revision of the protocol is spoken with a server: the newest (2026-07-28, no `initialize`) where it can, else an older one.
//!
//! A server is asked first what it can (`server/discover`). One that does not know the question says so, and is greeted as ever. Others do worse: they say
//! nothing, or end. Who says nothing for a while is taken for an older one, and who does not begin is begun with once more in the other
//! way. What was found out so is kept for the next start.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString, ProtocolVersion,
    RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleClient};
use tokio::time::{Instant, sleep_until};

use super::login::wanted_of;

/// How long a program has to say what it can, before it is taken for one that does not know the question.
const PROGRAM_WAIT: Duration = Duration::from_secs(3);
/// How long one behind an address has for its whole beginning, before it is greeted in another way.
pub(super) const ADDRESS_WAIT: Duration = Duration::from_secs(8);

/// What is said in the place of a server that says nothing.
const SILENT: &str = "it did not say what it can";

/// How a server is greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Greeting {
    /// Asked what it can, and greeted accordingly.
    #[default]
    Asked,
    /// As all servers were once.
    Older,
    /// In the newest revision, or not at all.
    Newest,
}

impl Greeting {
    pub(super) fn mode(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Asked => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
            Self::Older => ClientLifecycleMode::Initialize,
            Self::Newest => ClientLifecycleMode::Discover { preferred_versions },
        }
    }

    /// How a server is greeted that did not begin so. None: it would not begin either.
    pub(super) fn after(self, error: &ClientInitializeError) -> Option<Self> {
        if self != Self::Asked || wanted_of(error).is_some() {
            return None;
        }
        match error {
            ClientInitializeError::LegacyFallbackFailed { discover, fallback } => match (&**discover, &**fallback) {
                // It was slow, and knows nothing of the old way.
                (ClientInitializeError::JsonRpcError(said), ClientInitializeError::JsonRpcError(_)) => {
                    (said.message == SILENT).then_some(Self::Newest)
                }
                (_, fallback) => wanted_of(fallback).is_none().then_some(Self::Older),
            },
            ClientInitializeError::Cancelled | ClientInitializeError::JsonRpcError(_) => None,
            _ => Some(Self::Older),
        }
    }
}

/// Whether the newest revision is spoken: each request says all by itself.
pub(super) fn is_newest(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize())
}

/// A transport that speaks for a server which does not say what it can.
pub(super) struct Patient<T> {
    inner: T,
    wait: Duration,
    /// The question, and until when its answer is waited for.
    asked: Option<(RequestId, Instant)>,
    /// A question that was answered in the server's place.
    given_up: Option<RequestId>,
    was_silent: Arc<AtomicBool>,
}

impl<T> Patient<T> {
    /// `was_silent` is set when the server said nothing.
    pub(super) fn new(inner: T, was_silent: &Arc<AtomicBool>) -> Self {
        Self { inner, wait: PROGRAM_WAIT, asked: None, given_up: None, was_silent: Arc::clone(was_silent) }
    }
}

/// Whose answer it is.
fn answers(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// Whether an id is that of a question; some servers make a text of it.
fn is_of(id: &RequestId, question: &RequestId) -> bool {
    id == question || matches!(id, NumberOrString::String(text) if **text == question.to_string())
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Patient<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message
            && let ClientRequest::DiscoverRequest(_) = request.request
        {
            self.asked = Some((request.id.clone(), Instant::now() + self.wait));
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let received = match &self.asked {
                None => self.inner.receive().await,
                Some((_, until)) => tokio::select! {
                    received = self.inner.receive() => received,
                    () = sleep_until(*until) => {
                        let (id, _) = self.asked.take()?;
                        self.given_up = Some(id.clone());
                        self.was_silent.store(true, Ordering::Release);
                        let silent = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, SILENT, None);
                        return Some(ServerJsonRpcMessage::error(silent, Some(id)));
                    }
                },
            };
            let message = received?;
            let id = answers(&message);
            if self.asked.as_ref().is_some_and(|(asked, _)| id.is_some_and(|id| is_of(id, asked))) {
                self.asked = None;
            }
            let late = self.given_up.as_ref().is_some_and(|asked| id.is_some_and(|id| is_of(id, asked)));
            if !late {
                return Some(message);
            }
            // It knows by now that it was taken for an older one.
            self.given_up = None;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
