//! Where logins at tool servers are kept: in the data directory, for us alone, one file each, with the key that its tokens are bound to.
//!
//! What a login consists of stands there and nowhere else. A process that renews one holds its lock: there may be others with the same
//! data directory, and a token is renewed once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::dpop::ProofKey;
use super::exchange::Binding;
use crate::base::panics::broken;
use crate::base::{clock, file, limit};
use crate::config::data_directory;

/// A token is renewed so long before it runs out, or in the last quarter of its time.
const RENEWED_BEFORE: Duration = Duration::from_secs(30);
/// What another has done is not done again.
const RENEWED: &str = "it was renewed meanwhile";
/// Where logins are kept, in a data directory.
const DIRECTORY: &str = "mcp-logins";

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
pub(super) struct Kept {
    server: String,
    url: String,
    pub(super) credentials: StoredCredentials,
    /// The key that its tokens are bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// What goes with a request.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) token: String,
    /// The key that it is bound to. None: whoever has the token may use it.
    pub(super) key: Option<Arc<ProofKey>>,
    /// It has run out, or is about to.
    pub(super) is_stale: bool,
}

impl Kept {
    /// Its token. None: there is none.
    ///
    /// # Errors
    /// The key that it is bound to is none.
    pub(super) fn access(&self) -> Result<Option<Access>, AuthError> {
        // The types of the token's parts are another crate's.
        let said = serde_json::to_value(&self.credentials.token_response).unwrap_or_default();
        let Some(token) = said["access_token"].as_str() else { return Ok(None) };
        let is_bound = said["token_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("dpop"));
        let key = match self.key.as_deref().filter(|_| is_bound) {
            Some(text) => Some(self.proof_key(text)?),
            None if is_bound => return Err(no_key()),
            None => None,
        };
        let is_stale = match (said["expires_in"].as_u64(), self.credentials.token_received_at) {
            (Some(lasts), Some(since)) => {
                // It was received by this machine's clock.
                let left = (since + lasts).saturating_sub(clock::machine_ms() / 1_000);
                left < RENEWED_BEFORE.as_secs().min(lasts / 4)
            }
            _ => false,
        };
        Ok(Some(Access { token: token.to_owned(), key, is_stale }))
    }

    fn proof_key(&self, text: &str) -> Result<Arc<ProofKey>, AuthError> {
        ProofKey::kept(text).map(Arc::new).map_err(|_| no_key())
    }

    /// The key that a renewal has to show.
    pub(super) fn key(&self) -> Result<Option<Arc<ProofKey>>, AuthError> {
        self.key.as_deref().map(|text| self.proof_key(text)).transpose()
    }

    /// Whose it is: as whom we are known, and to whom.
    pub(super) fn holder(&self) -> (String, Option<String>) {
        (self.credentials.client_id.clone(), self.credentials.issuer.clone())
    }
}

fn no_key() -> AuthError {
    AuthError::CredentialStoreError("the key that its token is bound to is missing or none".to_owned())
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

    pub(super) fn drawer(&self, server: &str, url: &str) -> Drawer {
        let hash = Sha256::digest(format!("{server}\0{url}").as_bytes());
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let (server, url) = (server.to_owned(), url.to_owned());
        Drawer { logins: self.clone(), name, server, url, binding: Binding::default(), stale: None }
    }

    pub(super) fn note(&self, server: &str, wanted: Wanted) {
        self.wanted.lock().insert(server.to_owned(), wanted);
    }

    pub(super) fn wanted(&self, server: &str) -> Wanted {
        self.wanted.lock().get(server).cloned().unwrap_or_default()
    }
}

/// Where the login of one server is.
#[derive(Clone)]
pub(super) struct Drawer {
    logins: Logins,
    name: String,
    server: String,
    url: String,
    /// What comes next is bound to this.
    binding: Binding,
    /// The token that is to be renewed. Another one means that it is not to be any more.
    stale: Option<Arc<Mutex<String>>>,
}

impl Drawer {
    /// With the key that the tokens are bound to which come next.
    pub(super) fn bound_by(mut self, binding: &Binding) -> Self {
        self.binding = binding.clone();
        self
    }

    /// Renews no token but this one.
    pub(super) fn renewing(mut self, stale: &Arc<Mutex<String>>) -> Self {
        self.stale = Some(Arc::clone(stale));
        self
    }

    /// What is kept.
    pub(super) async fn kept(&self) -> Result<Option<Kept>, AuthError> {
        self.apart(Self::read).await
    }

    fn path(&self) -> Option<PathBuf> {
        self.logins.directory.as_ref().map(|directory| directory.join(format!("{}.json", self.name)))
    }

    fn read(&self) -> Result<Option<Kept>, String> {
        let Some(path) = self.path() else {
            return Ok(self.logins.held.lock().get(&self.name).cloned());
        };
        let bytes = match file::read_small(&path, limit::MCP_LOGIN_BYTES_MAX) {
            Ok((bytes, _)) => bytes,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(format!("{}: {cause}", path.display())),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|cause| format!("{}: {cause}", path.display()))
    }

    fn write(&self, credentials: Option<StoredCredentials>) -> Result<(), String> {
        let Some(path) = self.path() else {
            let mut held = self.logins.held.lock();
            match credentials {
                Some(credentials) => drop(held.insert(self.name.clone(), self.made(credentials))),
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
        let text = serde_json::to_vec(&self.made(credentials)).map_err(|cause| cause.to_string())?;
        data_directory::write_file(&path, &text).map_err(|error| error.to_string())
    }

    fn made(&self, credentials: StoredCredentials) -> Kept {
        Kept { server: self.server.clone(), url: self.url.clone(), credentials, key: self.binding.text() }
    }

    /// Whether another has renewed the token.
    fn was_renewed(&self) -> Result<bool, String> {
        let Some(stale) = &self.stale else { return Ok(false) };
        let now = self.read()?.and_then(|kept| kept.access().ok().flatten());
        Ok(now.is_some_and(|now| now.token != *stale.lock()))
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
    pub(super) async fn apart<T: Send + 'static>(
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
        Box::pin(async { Ok(self.kept().await?.map(|kept| kept.credentials)) })
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
            let lock = |drawer: &Self| {
                let file = drawer.lock().map_err(|cause| cause.to_string())?;
                if drawer.was_renewed()? { Err(RENEWED.to_owned()) } else { Ok(file) }
            };
            let file = self.apart(lock).await?;
            Ok(file.map(CredentialRefreshGuard::new))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn how_long_a_token_lasts_is_held_against_the_clock_that_it_was_received_by() {
        let drawer = Logins::default().drawer("s", "https://x/");
        let token = serde_json::json!({ "access_token": "t", "token_type": "bearer", "expires_in": 3600 });
        let is_stale = |since: u64| {
            let token = Some(serde_json::from_value(token.clone()).unwrap());
            let kept = drawer.made(StoredCredentials::new("client".into(), token, vec![], Some(since)));
            kept.access().unwrap().unwrap().is_stale
        };
        let now = clock::machine_ms() / 1_000;
        for by_hours in [-2, 0, 2] {
            clock::wrong::set(by_hours * 3_600_000);
            assert!(!is_stale(now) && is_stale(now - 3_600), "the time of day is wrong by {by_hours} hours");
        }
        clock::wrong::set(0);
    }

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
}
