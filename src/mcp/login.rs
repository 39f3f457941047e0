//! Logins at servers that want one (OAuth): how a person makes one, and how one is made without a person.
//!
//! A person logs in with a browser: the server's authorization server is found by what the server says of itself, a listener on
//! loopback takes the answer, and what comes of it is kept in the data directory, for us alone. A server whose credentials stand in
//! the configuration logs in by itself. A server for which there is neither is asked without a login, and is down when it wants one.
//! Where what is kept stands is told in `drawer`, how it is renewed and goes with requests in `signer`.
//! A server may name another authorization server later: what we were registered as at the one before is not used there.
//!
//! Invariant: what a login consists of is sent to the authorization server that gave it and to the server it is for, and never shown.

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationRequest, AuthorizationSession,
    ClientCredentialsConfig, CredentialStore as _, StoredCredentials,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::drawer::{Drawer, Logins, Wanted};
use super::exchange::Exchanges;
use super::explain::chain;
use super::key::{Applicant, token_by_key};
use super::vouched::{token_by_provider, token_by_workload};
use crate::base::{BoxFuture, clock, limit};
use crate::config::{McpServer, McpTransport, OAuth};

/// How long a browser has to send what it was told.
const REQUEST_WAIT: Duration = Duration::from_secs(10);
/// The largest head of a browser's request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How servers are told where their answer goes.
const CALLBACK: &str = "/callback";

/// Who speaks with the authorization server of a server; what comes of it goes into the drawer.
pub(super) async fn manager(
    url: &str,
    drawer: Drawer,
    exchanges: &Exchanges,
) -> Result<AuthorizationManager, AuthError> {
    let mut manager = AuthorizationManager::new_with_oauth_http_client(url, Arc::new(exchanges.clone())).await?;
    manager.set_credential_store(drawer.bound_by(&exchanges.binding));
    // Servers of before the rule that metadata names its issuer are met still.
    manager.set_allow_missing_issuer(true);
    Ok(manager)
}

/// Whether a login needs no person.
pub(super) fn needs_nobody(oauth: &OAuth) -> bool {
    oauth.client_credentials || oauth.identity_provider.is_some() || oauth.workload_token_file.is_some()
}

/// What the server wants of a login, as its authorization server is found now.
async fn found(
    manager: &mut AuthorizationManager,
    (exchanges, wanted): (&Exchanges, &Wanted),
    (oauth, before): (Option<&OAuth>, Option<&StoredCredentials>),
) -> Result<AuthorizationMetadata, AuthError> {
    let metadata = manager.resolve_metadata_from_challenge(wanted.challenge.as_deref()).await?.metadata;
    let (old, new) = (before.and_then(|before| before.issuer.as_deref()), metadata.issuer.as_deref());
    let is_same_client =
        before.is_some_and(|before| oauth.is_some_and(|oauth| oauth.client_id.as_ref() == Some(&before.client_id)));
    if let (Some(old), Some(new)) = (old, new)
        && old != new
        && is_same_client
    {
        return Err(AuthError::RegistrationFailed(format!(
            "`oauth.clientId` was registered at {}, and the server names {} now: register there, and name that `clientId`",
            old.escape_debug(),
            new.escape_debug(),
        )));
    }
    exchanges.binding.anew(&metadata)?;
    manager.set_metadata(metadata.clone());
    Ok(metadata)
}

/// Logs in with the credentials of the configuration.
pub(super) async fn by_itself(
    (server, url): (&str, &str),
    (oauth, logins): (&OAuth, &Logins),
) -> Result<(), AuthError> {
    let (drawer, exchanges) = (logins.drawer(server, url), Exchanges::default());
    let mut manager = manager(url, drawer.clone(), &exchanges).await?;
    let wanted = logins.wanted(server);
    let before = drawer.kept().await?.map(|kept| kept.credentials);
    let metadata = found(&mut manager, (&exchanges, &wanted), (Some(oauth), before.as_ref())).await?;
    let mut scopes = oauth.scopes.clone();
    if scopes.is_empty() {
        scopes = manager.select_scopes(wanted.scope.as_deref(), &[]);
    }
    let client_id = oauth.client_id.as_deref().unwrap_or_default();
    let to = (&metadata, &exchanges);
    let token = match (&oauth.identity_provider, &oauth.workload_token_file, &oauth.private_key_file) {
        (Some(provider), ..) => Some(token_by_provider(to, (oauth, provider), (url, &scopes)).await?),
        (None, Some(file), _) => Some(token_by_workload(to, (oauth, file), (url, &scopes)).await?),
        (None, None, Some(key_file)) => {
            Some(token_by_key(to, Applicant { client_id, key_file, scopes: &scopes, resource: url }).await?)
        }
        (None, None, None) => None,
    };
    if let Some(token) = token {
        let now = Some(clock::machine_ms() / 1_000);
        let made = StoredCredentials::new(client_id.to_owned(), Some(token), scopes, now);
        return drawer.bound_by(&exchanges.binding).save(made.with_issuer(metadata.issuer)).await;
    }
    let config = ClientCredentialsConfig::ClientSecret {
        client_id: oauth.client_id.clone().unwrap_or_default(),
        client_secret: oauth.client_secret.clone().unwrap_or_default(),
        scopes,
        resource: Some(url.to_owned()),
    };
    manager.validate_client_credentials_metadata(&config)?;
    manager.configure_client_credentials(&config)?;
    manager.exchange_client_credentials(&config).await.map(drop)
}

/// Makes a login at a server: `show` is told the address that a person has to open, on this machine. Ends when the browser came back.
///
/// # Errors
/// Why there is none, as a sentence.
pub async fn log_in(
    server: &McpServer,
    logins: &Logins,
    show: impl FnOnce(String) -> BoxFuture<'static, ()> + Send,
) -> Result<(), String> {
    let McpTransport::Http { url, oauth, .. } = &server.transport else {
        return Err(format!("the MCP server `{}` is a program, and needs no login", server.name));
    };
    let sentence = |why: String| format!("the login at the MCP server `{}` failed: {why}", server.name);
    let failed = |error: AuthError| sentence(told(&error, url));
    let port = oauth.as_ref().and_then(|oauth| oauth.redirect_port).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(|cause| sentence(cause.to_string()))?;
    let port = listener.local_addr().map_err(|cause| sentence(cause.to_string()))?.port();
    let (drawer, exchanges) = (logins.drawer(&server.name, url), Exchanges::default());
    let mut manager = manager(url, drawer.clone(), &exchanges).await.map_err(failed)?;
    let wanted = logins.wanted(&server.name);
    let before = drawer.kept().await.map_err(failed)?.map(|kept| kept.credentials);
    let known = (oauth.as_deref(), before.as_ref());
    found(&mut manager, (&exchanges, &wanted), known).await.map_err(failed)?;
    let request = request(&format!("http://127.0.0.1:{port}{CALLBACK}"), (oauth.as_deref(), &wanted), before.as_ref());
    let session = AuthorizationSession::new(manager, request).await.map_err(|(_, error)| failed(error))?;
    let address = session.get_authorization_url().to_owned();
    let most = Duration::from_millis(limit::MCP_LOGIN_WAIT_MS);
    let came = async {
        let (came, ()) = tokio::join!(arrival(&listener, port), show(address));
        came
    };
    let came =
        timeout(most, came).await.map_err(|_| sentence(format!("nobody came back within {} s", most.as_secs())))?;
    session.handle_callback_url(&came).await.map(drop).map_err(failed)
}

/// How we introduce ourselves, and what we ask for: what the configuration says, else what the server wants beside what we have.
fn request(
    redirect: &str,
    (oauth, wanted): (Option<&OAuth>, &Wanted),
    before: Option<&StoredCredentials>,
) -> AuthorizationRequest {
    let mut request = AuthorizationRequest::new(redirect).with_client_name("simse").with_application_type("native");
    let mut scopes = oauth.map(|oauth| oauth.scopes.clone()).unwrap_or_default();
    if let Some(scope) = &wanted.scope {
        scopes.extend(before.into_iter().flat_map(|before| before.granted_scopes.iter().cloned()));
        scopes.extend(scope.split_whitespace().map(str::to_owned));
    }
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    if !scopes.is_empty() {
        request = request.with_scopes(scopes);
    }
    let Some(oauth) = oauth else { return request };
    if let Some(id) = &oauth.client_id {
        request = request.with_preregistered_client(id.clone());
        if let Some(secret) = &oauth.client_secret {
            request = request.with_client_secret(secret.clone());
        }
    }
    match &oauth.client_metadata_url {
        Some(url) => request.with_client_metadata_url(url.clone()),
        None => request,
    }
}

/// Waits for the browser, and gives the address with which it came back.
async fn arrival(listener: &TcpListener, port: u16) -> String {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if let Ok(Some(target)) = timeout(REQUEST_WAIT, read(stream)).await {
            return format!("http://127.0.0.1:{port}{target}");
        }
    }
}

/// Reads a browser's request and answers it. None: it is about something else, such as an icon.
async fn read(mut stream: TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok()?;
        head.extend_from_slice(&chunk[..count]);
        if count == 0 || head.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    let line = String::from_utf8_lossy(head.split(|&b| b == b'\r').next()?).into_owned();
    let target = line.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    let is_ours = target.split('?').next() == Some(CALLBACK);
    let (status, words) = if is_ours {
        ("200 OK", "You can close this page: the rest goes on where the login was begun.")
    } else {
        ("404 Not Found", "There is nothing here.")
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{words}",
        words.len()
    );
    // Who does not wait for it has been heard all the same.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    is_ours.then_some(target)
}

/// What went wrong, without an address beyond its host.
pub(super) fn told(error: &AuthError, url: &str) -> String {
    chain(error, Some(url))
}

/// What a server wants that refused a request for want of a login, or of more than that. None: it refused for another reason, or not.
pub(super) fn wanted_by(error: &(dyn std::error::Error + 'static)) -> Option<Wanted> {
    use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};
    let mut source = Some(error);
    while let Some(current) = source {
        if let Some(required) = current.downcast_ref::<AuthRequiredError>() {
            return Some(Wanted { challenge: Some(required.www_authenticate_header.clone()), scope: None });
        }
        if let Some(scope) = current.downcast_ref::<InsufficientScopeError>() {
            let (challenge, scope) = (scope.www_authenticate_header.clone(), scope.required_scope.clone());
            return Some(Wanted { challenge: Some(challenge), scope });
        }
        if matches!(current.downcast_ref::<AuthError>(), Some(AuthError::AuthorizationRequired)) {
            return Some(Wanted::default());
        }
        source = current.source();
    }
    None
}

/// The same of a connection that did not begin.
pub(super) fn wanted_of(error: &ClientInitializeError) -> Option<Wanted> {
    let error = match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => fallback,
        error => error,
    };
    let ClientInitializeError::TransportError { error: failed, .. } = error else { return None };
    let found = wanted_by(failed.error.as_ref());
    // Old servers do not say how one logs in.
    let refused = || chain(failed.error.as_ref(), None).contains("401 Unauthorized").then(Wanted::default);
    found.or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_browser_that_comes_back_is_taken_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let say = async move |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let browser = async {
            assert!(say("GET /favicon.ico HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
            assert!(say("GET /callback?code=c&state=s HTTP/1.1\r\nhost: x\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        };
        let (came, ()) = tokio::join!(arrival(&listener, address.port()), browser);
        assert_eq!(came, format!("http://{address}/callback?code=c&state=s"));
    }
}
