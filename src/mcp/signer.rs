//! Who signs the requests to a server: with the login that there is, renewed when it has run out or is refused.
//!
//! A token that many requests were refused with is renewed once, and what renews it once waits for nobody twice: a token endpoint that
//! failed is not asked again at once for each request that waited. A login that was made anew meanwhile, perhaps at another
//! authorization server, is taken up with the next request: what belongs to it is read where it is kept, and not remembered here.
//!
//! Invariant: a request is sent once more only after it was refused for its login, and then it has not been carried out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, header};
use parking_lot::Mutex;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::auth::{AuthError, AuthorizationManager, OAuthClientConfig};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use tokio::time::{Instant, timeout};

use super::dpop::Proven;
use super::drawer::{Access, Drawer, Kept, Logins};
use super::exchange::{Exchanges, PROOF, nonce_of};
use super::login::{by_itself, manager, needs_nobody, told};
use crate::base::{http as net, limit};
use crate::config::OAuth;

/// How long nobody asks again after a renewal that failed for no reason of the login's.
const FAILURE_KEPT: Duration = Duration::from_secs(5);
/// What a server says that wants its own word in a proof.
const NONCE_WANTED: &str = "use_dpop_nonce";

type Headers = HashMap<HeaderName, HeaderValue>;

/// Signs for one server.
pub(super) struct Signer {
    server: String,
    url: String,
    oauth: Option<OAuth>,
    logins: Logins,
    drawer: Drawer,
    /// Held while a login is renewed.
    renewal: tokio::sync::Mutex<Renewal>,
    /// What the server wants in the next proof.
    nonce: Mutex<Option<String>>,
}

#[derive(Default)]
struct Renewal {
    with: Option<Renewer>,
    /// Why the last one failed.
    failed: Option<(Instant, String)>,
    /// The token that cannot be renewed.
    refused: Option<String>,
}

/// Who renews the login of one holder.
struct Renewer {
    manager: AuthorizationManager,
    of: (String, Option<String>),
    stale: Arc<Mutex<String>>,
}

impl Signer {
    /// One that signs with the login that there is, or one that is made now, or not at all.
    ///
    /// # Errors
    /// Why neither works, as the end of a sentence about the server.
    pub(super) async fn new(
        (server, url): (&str, &str),
        oauth: Option<&OAuth>,
        logins: &Logins,
    ) -> Result<Arc<Self>, String> {
        let signer = Self {
            server: server.to_owned(),
            url: url.to_owned(),
            oauth: oauth.cloned(),
            logins: logins.clone(),
            drawer: logins.drawer(server, url),
            renewal: tokio::sync::Mutex::default(),
            nonce: Mutex::default(),
        };
        let begun = match oauth.filter(|oauth| needs_nobody(oauth)) {
            Some(oauth) => by_itself((server, url), (oauth, logins)).await,
            None => signer.look().await,
        };
        begun.map_err(|error| format!("its login does not work: {}", told(&error, url)))?;
        Ok(Arc::new(signer))
    }

    /// Forgets a login of which the server knows nothing any more, as it names another authorization server.
    async fn look(&self) -> Result<(), AuthError> {
        let Some(kept) = self.drawer.kept().await? else { return Ok(()) };
        let renewer = self.renewer(&kept).await?;
        self.renewal.lock().await.with = renewer;
        Ok(())
    }

    async fn renewer(&self, kept: &Kept) -> Result<Option<Renewer>, AuthError> {
        let exchanges = Exchanges::default();
        let stale = Arc::default();
        let mut manager = manager(&self.url, self.drawer.clone().renewing(&stale), &exchanges).await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        if let Some(key) = kept.key()? {
            exchanges.binding.take(key, &metadata.token_endpoint);
        }
        manager.set_metadata(metadata);
        if !manager.initialize_from_store().await? {
            return Ok(None);
        }
        if let Some(OAuth { client_id: Some(id), client_secret: Some(secret), .. }) = &self.oauth {
            let client = OAuthClientConfig::new(id.clone(), String::from("http://127.0.0.1/callback"));
            manager.configure_client(client.with_client_secret(secret.clone()))?;
        }
        Ok(Some(Renewer { manager, of: kept.holder(), stale }))
    }

    /// What goes with a request now. None: nothing.
    async fn access(&self) -> Result<Option<Access>, AuthError> {
        match self.kept_access().await? {
            Some((_, access)) if access.is_stale => self.renewed(&access.token).await,
            Some((_, access)) => Ok(Some(access)),
            None => Ok(None),
        }
    }

    async fn kept_access(&self) -> Result<Option<(Kept, Access)>, AuthError> {
        let Some(kept) = self.drawer.kept().await? else { return Ok(None) };
        Ok(kept.access()?.map(|access| (kept, access)))
    }

    /// What goes with requests instead of this token, which has run out or was refused. None: somebody has to log in.
    async fn renewed(&self, stale: &str) -> Result<Option<Access>, AuthError> {
        let mut renewal = self.renewal.lock().await;
        let (kept, access) = match self.kept_access().await? {
            Some((_, access)) if access.token != stale && !access.is_stale => return Ok(Some(access)),
            Some(found) => found,
            None => return Ok(None),
        };
        if renewal.refused.as_ref() == Some(&access.token) {
            return Ok(None);
        }
        if let Some((at, why)) = &renewal.failed
            && at.elapsed() < FAILURE_KEPT
        {
            return Err(AuthError::TokenRefreshFailed(why.clone()));
        }
        let done = match self.oauth.as_ref().filter(|oauth| needs_nobody(oauth)) {
            Some(oauth) => by_itself((&self.server, &self.url), (oauth, &self.logins)).await.map(|()| true),
            None => self.renew(&mut renewal, (&kept, &access)).await,
        };
        // Another may have been faster, and then there is nothing amiss.
        let now = self.kept_access().await?.map(|(_, now)| now).filter(|now| now.token != access.token);
        match (done, now) {
            (_, Some(now)) => {
                renewal.failed = None;
                Ok(Some(now))
            }
            (Ok(_), None) => {
                renewal.refused = Some(access.token);
                Ok(None)
            }
            (Err(error), None) => {
                renewal.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Renews it where it can be. False: it cannot.
    async fn renew(&self, renewal: &mut Renewal, (kept, access): (&Kept, &Access)) -> Result<bool, AuthError> {
        if renewal.with.as_ref().is_none_or(|with| with.of != kept.holder()) {
            renewal.with = self.renewer(kept).await?;
        }
        let Some(with) = &renewal.with else { return Ok(false) };
        (*with.stale.lock()).clone_from(&access.token);
        match with.manager.refresh_token().await {
            Ok(_) => Ok(true),
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The headers that sign a request, beside the others.
    fn sign(&self, access: Option<&Access>, method: &str, headers: &Headers) -> Result<Headers, AuthError> {
        let mut headers = headers.clone();
        let Some(access) = access else { return Ok(headers) };
        let bad = |why: String| AuthError::InternalError(why);
        let scheme = if access.key.is_some() { "DPoP" } else { "Bearer" };
        let value = net::secret_header("authorization", &format!("{scheme} {}", access.token));
        headers.insert(header::AUTHORIZATION, value.map_err(|error| bad(error.to_string()))?);
        if let Some(key) = &access.key {
            let nonce = self.nonce.lock().clone();
            let (token, nonce) = (Some(access.token.as_str()), nonce.as_deref());
            let proof = key.proof(Proven { method, url: &self.url, token, nonce });
            let proof = proof.map_err(|error| bad(error.to_string()))?;
            headers.insert(PROOF, net::secret_header("dpop", &proof).map_err(|error| bad(error.to_string()))?);
        }
        Ok(headers)
    }

    /// Asks the server for the word that it wants in proofs, with a request that asks for nothing else: the answer to ours was not
    /// given to us whole. False: it has none.
    async fn ask_for_nonce(&self, access: &Access, method: &str) -> bool {
        let Ok(headers) = self.sign(Some(access), method, &Headers::new()) else { return false };
        let mut request = http::Request::builder().method(method).uri(&self.url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let Ok(request) = request.header(header::CONTENT_TYPE, "application/json").body(b"{}".to_vec()) else {
            return false;
        };
        let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
        let asked = timeout(most, net::exchange(request, false, limit::MCP_LOGIN_ANSWER_BYTES_MAX)).await;
        let Ok(Ok(answer)) = asked else { return false };
        let nonce = nonce_of(&answer);
        let has_one = nonce.is_some();
        if has_one {
            *self.nonce.lock() = nonce;
        }
        has_one
    }
}

/// A client whose requests are signed.
#[derive(Clone)]
pub(super) struct Signed<C> {
    client: C,
    signer: Arc<Signer>,
}

impl<C: StreamableHttpClient + Sync> Signed<C> {
    pub(super) fn new(client: C, signer: Arc<Signer>) -> Self {
        Self { client, signer }
    }

    /// Sends a request, and once more with another login, or another proof, where it was refused for that.
    async fn call<T, Sent>(
        &self,
        (method, headers): (&str, Headers),
        send: impl Fn(C, Headers) -> Sent + Send + Sync,
    ) -> Result<T, StreamableHttpError<C::Error>>
    where
        Sent: Future<Output = Result<T, StreamableHttpError<C::Error>>> + Send,
    {
        let send = |headers| send(self.client.clone(), headers);
        let signer = &self.signer;
        let access = signer.access().await?;
        let mut answer = send(signer.sign(access.as_ref(), method, &headers)?).await;
        let Some(access) = access else { return answer };
        if access.key.is_some()
            && matches!(&answer, Err(StreamableHttpError::AuthRequired(wanted)) if wanted.www_authenticate_header.contains(NONCE_WANTED))
        {
            if !signer.ask_for_nonce(&access, method).await {
                return answer;
            }
            answer = send(signer.sign(Some(&access), method, &headers)?).await;
        }
        match answer {
            Err(StreamableHttpError::AuthRequired(wanted))
                if !wanted.www_authenticate_header.contains(NONCE_WANTED) =>
            {
                match signer.renewed(&access.token).await? {
                    Some(fresh) => send(signer.sign(Some(&fresh), method, &headers)?).await,
                    None => Err(StreamableHttpError::AuthRequired(wanted)),
                }
            }
            answer => answer,
        }
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Signed<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let post = |client: C, headers| {
            let (uri, message, session_id) = (uri.clone(), message.clone(), session_id.clone());
            async move { client.post_message(uri, message, session_id, None, headers).await }
        };
        self.call(("POST", headers), post).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let post = |client: C, headers| {
            let (uri, message, session_id) = (uri.clone(), message.clone(), session_id.clone());
            async move { client.post_message_with_max_sse_event_size(uri, message, session_id, None, headers, most).await }
        };
        self.call(("POST", headers), post).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        let delete = |client: C, headers| {
            let (uri, session_id) = (uri.clone(), session_id.clone());
            async move { client.delete_session(uri, session_id, None, headers).await }
        };
        self.call(("DELETE", headers), delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        let get = |client: C, headers| {
            let (uri, session_id, last_event_id) = (uri.clone(), session_id.clone(), last_event_id.clone());
            async move { client.get_stream(uri, session_id, last_event_id, None, headers).await }
        };
        self.call(("GET", headers), get).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        let get = |client: C, headers| {
            let (uri, session_id, last_event_id) = (uri.clone(), session_id.clone(), last_event_id.clone());
            async move {
                client.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, None, headers, most).await
            }
        };
        self.call(("GET", headers), get).await
    }
}
