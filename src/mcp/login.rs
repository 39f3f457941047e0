//! Logins at servers that want one (OAuth): what is kept of them, how one is renewed, and how a person makes one.
//!
//! A person logs in with a browser: the server's authorization server is found by what the server says of itself, a listener on
//! loopback takes the answer, and what comes of it is kept in the data directory, for us alone. A server whose credentials stand in
//! the configuration logs in by itself. A server for which there is neither is asked without a login, and is down when it wants one.
//!
//! Invariant: what a login consists of is sent to the authorization server that gave it and to the server it is for, and never shown.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::service::ClientInitializeError;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig,
    CredentialRefreshGuard, CredentialStore, OAuthClientConfig, OAuthHttpClient, OAuthHttpClientFuture,
    OAuthHttpRedirectPolicy, OAuthHttpRequest, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::explain::chain;
use super::key::{Applicant, token_by_key};
use super::vouched::token_by_provider;
use crate::base::panics::broken;
use crate::base::{BoxFuture, clock, file, http, limit};
use crate::config::{McpServer, McpTransport, OAuth, data_directory};

/// Where logins are kept, in a data directory.
const DIRECTORY: &str = "mcp-logins";
/// How long a browser has to send what it was told.
const REQUEST_WAIT: Duration = Duration::from_secs(10);
/// The largest head of a browser's request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How servers are told where their answer goes.
const CALLBACK: &str = "/callback";

/// The logins of a data directory, or of this process alone.
#[derive(Clone, Default)]
pub struct Logins {
    directory: Option<PathBuf>,
    held: Arc<Mutex<HashMap<String, Kept>>>,
    /// What servers wanted when they were asked last.
    wanted: Arc<Mutex<HashMap<String, Wanted>>>,
}

/// What a server wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its own words, where there are any.
    pub(super) challenge: Option<String>,
    /// Further scopes.
    pub(super) scope: Option<String>,
}

/// A login, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    server: String,
    url: String,
    credentials: StoredCredentials,
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Logins {
    /// Those of a data directory.
    pub fn within(data_directory: &Path) -> Self {
        Self { directory: Some(data_directory.join(DIRECTORY)), ..Self::default() }
    }

    fn drawer(&self, server: &str, url: &str) -> Drawer {
        let hash = Sha256::digest(format!("{server}\0{url}").as_bytes());
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Drawer { logins: self.clone(), name, server: server.to_owned(), url: url.to_owned() }
    }

    pub(super) fn note(&self, server: &str, wanted: Wanted) {
        self.wanted.lock().insert(server.to_owned(), wanted);
    }

    fn wanted(&self, server: &str) -> Wanted {
        self.wanted.lock().get(server).cloned().unwrap_or_default()
    }
}

/// Where the login of one server is.
#[derive(Clone)]
struct Drawer {
    logins: Logins,
    name: String,
    server: String,
    url: String,
}

impl Drawer {
    fn path(&self) -> Option<PathBuf> {
        self.logins.directory.as_ref().map(|directory| directory.join(format!("{}.json", self.name)))
    }

    fn read(&self) -> Result<Option<StoredCredentials>, String> {
        let Some(path) = self.path() else {
            return Ok(self.logins.held.lock().get(&self.name).map(|kept| kept.credentials.clone()));
        };
        let bytes = match file::read_small(&path, limit::MCP_LOGIN_BYTES_MAX) {
            Ok((bytes, _)) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(format!("{}: {cause}", path.display())),
        };
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|cause| format!("{}: {cause}", path.display()))?;
        Ok(Some(kept.credentials))
    }

    fn write(&self, credentials: Option<StoredCredentials>) -> Result<(), String> {
        let Some(path) = self.path() else {
            let mut held = self.logins.held.lock();
            match credentials {
                Some(credentials) => drop(held.insert(self.name.clone(), self.kept(credentials))),
                None => drop(held.remove(&self.name)),
            }
            return Ok(());
        };
        let Some(credentials) = credentials else {
            return match std::fs::remove_file(&path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause.to_string()),
                Ok(()) | Err(_) => Ok(()),
            };
        };
        self.prepare().map_err(|cause| cause.to_string())?;
        let text = serde_json::to_vec(&self.kept(credentials)).map_err(|cause| cause.to_string())?;
        data_directory::write_file(&path, &text).map_err(|error| error.to_string())
    }

    fn kept(&self, credentials: StoredCredentials) -> Kept {
        Kept { server: self.server.clone(), url: self.url.clone(), credentials }
    }

    fn prepare(&self) -> io::Result<()> {
        let Some(directory) = &self.logins.directory else { return Ok(()) };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
    }

    /// Held while a login is renewed: other processes with the same data directory renew it too.
    fn lock(&self) -> io::Result<Option<File>> {
        let Some(path) = self.path() else { return Ok(None) };
        self.prepare()?;
        let options = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).clone();
        let file = options.open(path.with_extension("lock"))?;
        file.lock()?;
        Ok(Some(file))
    }

    /// Does what takes as long as a disk.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, AuthError> {
        let drawer = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&drawer)).await;
        done.unwrap_or_else(|panic| Err(broken(panic))).map_err(AuthError::CredentialStoreError)
    }
}

/// A future as the crate's trait has it.
type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl CredentialStore for Drawer {
    fn load<'life0, 'async_trait>(&'life0 self) -> Stored<'async_trait, Option<StoredCredentials>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.apart(Self::read))
    }

    fn save<'life0, 'async_trait>(&'life0 self, credentials: StoredCredentials) -> Stored<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.apart(move |drawer| drawer.write(Some(credentials))))
    }

    fn clear<'life0, 'async_trait>(&'life0 self) -> Stored<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.apart(|drawer| drawer.write(None)))
    }

    fn acquire_refresh_guard<'life0, 'async_trait>(&'life0 self) -> Stored<'async_trait, Option<CredentialRefreshGuard>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let file = self.apart(|drawer| drawer.lock().map_err(|cause| cause.to_string())).await?;
            Ok(file.map(CredentialRefreshGuard::new))
        })
    }
}

/// Sends the requests of a login as we send all others.
struct Exchanges;

impl OAuthHttpClient for Exchanges {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let follows = request.redirect_policy == OAuthHttpRedirectPolicy::Follow;
            let most = request.timeout.unwrap_or(Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS));
            let exchanged = timeout(most, http::exchange(request.request, follows, limit::MCP_LOGIN_ANSWER_BYTES_MAX));
            Ok(exchanged.await.map_err(|_| "it did not answer in time")??)
        })
    }
}

async fn manager(server: &str, url: &str, logins: &Logins) -> Result<AuthorizationManager, AuthError> {
    let mut manager = AuthorizationManager::new_with_oauth_http_client(url, Arc::new(Exchanges)).await?;
    manager.set_credential_store(logins.drawer(server, url));
    // Servers of before the rule that metadata names its issuer are met still.
    manager.set_allow_missing_issuer(true);
    Ok(manager)
}

/// Who signs the requests to a server: with the login that there is, or one that it makes by itself, or none.
///
/// # Errors
/// Why neither works, as the end of a sentence about the server.
pub(super) async fn signer(
    (server, url): (&str, &str),
    oauth: Option<&OAuth>,
    logins: &Logins,
) -> Result<AuthorizationManager, String> {
    let failed = |error: AuthError| format!("its login does not work: {}", told(&error, url));
    let mut manager = manager(server, url, logins).await.map_err(failed)?;
    match oauth {
        Some(oauth) if oauth.client_credentials || oauth.identity_provider.is_some() => {
            by_itself(&mut manager, (server, url), (oauth, logins)).await.map_err(failed)?
        }
        _ => {
            let has_login = manager.initialize_from_store().await.map_err(failed)?;
            if let Some(OAuth { client_id: Some(id), client_secret: Some(secret), .. }) = oauth.filter(|_| has_login) {
                let client = OAuthClientConfig::new(id.clone(), String::from("http://127.0.0.1/callback"));
                manager.configure_client(client.with_client_secret(secret.clone())).map_err(failed)?;
            }
        }
    }
    Ok(manager)
}

/// Logs in with the credentials of the configuration.
async fn by_itself(
    manager: &mut AuthorizationManager,
    (server, url): (&str, &str),
    (oauth, logins): (&OAuth, &Logins),
) -> Result<(), AuthError> {
    let wanted = logins.wanted(server);
    let found = manager.resolve_metadata_from_challenge(wanted.challenge.as_deref()).await?;
    let metadata = found.metadata;
    manager.set_metadata(metadata.clone());
    let mut scopes = oauth.scopes.clone();
    if scopes.is_empty() {
        scopes = manager.select_scopes(wanted.scope.as_deref(), &[]);
    }
    let client_id = oauth.client_id.as_deref().unwrap_or_default();
    let token = match (&oauth.identity_provider, &oauth.private_key_file) {
        (Some(provider), _) => Some(token_by_provider(&metadata, (oauth, provider), (url, &scopes)).await?),
        (None, Some(key_file)) => {
            Some(token_by_key(&metadata, Applicant { client_id, key_file, scopes: &scopes, resource: url }).await?)
        }
        (None, None) => None,
    };
    if let Some(token) = token {
        let now = Some(clock::now_ms() / 1_000);
        let made = StoredCredentials::new(client_id.to_owned(), Some(token), scopes, now);
        return logins.drawer(server, url).save(made.with_issuer(metadata.issuer)).await;
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
    let mut manager = manager(&server.name, url, logins).await.map_err(failed)?;
    let wanted = logins.wanted(&server.name);
    let found = manager.resolve_metadata_from_challenge(wanted.challenge.as_deref()).await.map_err(failed)?;
    manager.set_metadata(found.metadata);
    let before = logins.drawer(&server.name, url).apart(Drawer::read).await.map_err(failed)?;
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
fn told(error: &AuthError, url: &str) -> String {
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn logins_are_kept_for_us_alone_and_apart_by_server_and_address() {
        let home = tempfile::tempdir().unwrap();
        let logins = Logins::within(home.path());
        let drawer = |server: &str, url: &str| logins.drawer(server, url);
        let credentials = StoredCredentials::new("client".into(), None, vec!["a".into()], Some(1));
        let (mine, other) = (drawer("s", "https://x/"), drawer("s", "https://y/"));
        assert!(mine.load().await.unwrap().is_none());
        mine.save(credentials).await.unwrap();
        assert_eq!(drawer("s", "https://x/").load().await.unwrap().unwrap().granted_scopes, ["a"]);
        assert!(other.load().await.unwrap().is_none(), "a server that moved is another one");
        let path = mine.path().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(mine.acquire_refresh_guard().await.unwrap());
        mine.clear().await.unwrap();
        mine.clear().await.unwrap();
        assert!(mine.load().await.unwrap().is_none());
        let alone = Logins::default().drawer("s", "https://x/");
        alone.save(StoredCredentials::new("client".into(), None, vec![], None)).await.unwrap();
        assert!(alone.load().await.unwrap().is_some() && mine.load().await.unwrap().is_none());
    }

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
