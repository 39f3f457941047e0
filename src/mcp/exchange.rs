//! The requests of a login: sent as we send all others, and with a proof where the tokens that come of them are to be bound to a key.
//!
//! Only what goes to the token endpoint is proven. A server that wants its own word in the proof (`use_dpop_nonce`) is given it, once.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Request, Response};
use parking_lot::Mutex;
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde_json::Value;
use tokio::time::timeout;

use super::dpop::{ProofKey, Proven};
use crate::base::http::HttpError;
use crate::base::{http as net, limit};

/// Where a proof goes.
pub(super) const PROOF: HeaderName = HeaderName::from_static("dpop");
/// Where a server says what it wants in the next proof.
const NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// The largest such word.
const NONCE_BYTES_MAX: usize = 1 << 10;

/// The key that the next tokens are bound to.
#[derive(Clone, Default)]
pub(super) struct Binding(Arc<Mutex<Option<Bound>>>);

struct Bound {
    key: Arc<ProofKey>,
    endpoint: String,
    nonce: Option<String>,
}

impl Binding {
    /// Takes a new key for a new login, where the authorization server binds tokens to one.
    pub(super) fn anew(&self, metadata: &AuthorizationMetadata) -> Result<(), AuthError> {
        let key = ProofKey::for_server(metadata).map_err(|bad| AuthError::InternalError(bad.to_string()))?;
        match key {
            Some(key) => self.take(Arc::new(key), &metadata.token_endpoint),
            None => *self.0.lock() = None,
        }
        Ok(())
    }

    /// Takes the key of a login that is renewed.
    pub(super) fn take(&self, key: Arc<ProofKey>, endpoint: &str) {
        *self.0.lock() = Some(Bound { key, endpoint: endpoint.to_owned(), nonce: None });
    }

    /// The key as it is kept.
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().as_ref().map(|bound| bound.key.text().to_owned())
    }

    /// Puts a proof into a request for tokens. False: it is none, or there is no key.
    fn prove(&self, request: &mut Request<Vec<u8>>) -> Result<bool, HttpError> {
        let bound = self.0.lock();
        let url = request.uri().to_string();
        let Some(bound) = bound.as_ref().filter(|bound| net::bare_address(&bound.endpoint) == net::bare_address(&url))
        else {
            return Ok(false);
        };
        let proven =
            Proven { method: request.method().as_str(), url: &url, token: None, nonce: bound.nonce.as_deref() };
        let proof = bound.key.proof(proven).map_err(|bad| HttpError::BadHeader(bad.to_string()))?;
        let proof = net::secret_header("dpop", &proof)?;
        request.headers_mut().insert(PROOF, proof);
        Ok(true)
    }

    /// Keeps what a server wants in the next proof. Whether this one was refused for want of it.
    fn heed(&self, answer: &Response<Vec<u8>>) -> bool {
        let Some(nonce) = nonce_of(answer) else { return false };
        if let Some(bound) = self.0.lock().as_mut() {
            bound.nonce = Some(nonce);
        }
        let said: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        !answer.status().is_success() && said["error"] == "use_dpop_nonce"
    }
}

/// What an answer says is to stand in the next proof.
pub(super) fn nonce_of(answer: &Response<Vec<u8>>) -> Option<String> {
    let nonce = answer.headers().get(NONCE)?.to_str().ok()?;
    (!nonce.is_empty() && nonce.len() <= NONCE_BYTES_MAX).then(|| nonce.to_owned())
}

/// Sends the requests of a login.
#[derive(Clone, Default)]
pub(super) struct Exchanges {
    pub(super) binding: Binding,
}

impl Exchanges {
    /// One of them, in a bounded time.
    pub(super) async fn send(&self, request: Request<Vec<u8>>, follows: bool) -> Result<Response<Vec<u8>>, HttpError> {
        let mut answer = self.once(request.clone(), follows).await?;
        if answer.1 && self.binding.heed(&answer.0) {
            answer = self.once(request, follows).await?;
        }
        Ok(answer.0)
    }

    async fn once(&self, mut request: Request<Vec<u8>>, follows: bool) -> Result<(Response<Vec<u8>>, bool), HttpError> {
        let is_proven = self.binding.prove(&mut request)?;
        // A proof is for one address.
        let follows = follows && !is_proven;
        Ok((net::exchange(request, follows, limit::MCP_LOGIN_ANSWER_BYTES_MAX).await?, is_proven))
    }
}

impl OAuthHttpClient for Exchanges {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let follows = request.redirect_policy == OAuthHttpRedirectPolicy::Follow;
            let most = request.timeout.unwrap_or(Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS));
            let sent = timeout(most, self.send(request.request, follows)).await;
            Ok(sent.map_err(|_| "it did not answer in time")??)
        })
    }
}
