//! Tokens that reach one session and nothing else: made by whoever has the session, gone with it, or with the token that made them.
//!
//! Doors ask here whose a token is; what its bearer reaches is held in [`Caller::only`], by every look at a session.
//!
//! Invariants: a token is told once and kept as a hash; what counts here is on the disk, where there is one, before anybody is told of
//! it; one that has ended opens nothing, and ends what it had opened.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{App, Caller};
use crate::base::panics::broken;
use crate::base::{clock, limit};
use crate::config::session_tokens::{self, SessionTokenEntry};
use crate::config::tokens::Fingerprint;
use crate::protocol::{
    Access, ApiError, Deleted, ErrorCode, MadeSessionToken, NewSessionToken, SessionId, SessionTokenId,
    SessionTokenList, SessionTokenRole, SessionTokenView, TokenName, TokenRole,
};
use crate::session::{CHANGES_MISSED_MAX, store_failure};
use crate::store::{Cluster, Store, StoreError};

/// Pause between two looks for a token that nobody knows: a wrong one costs the store no more.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// What they are among the texts that all servers of a store know.
const NOTES: &str = "session token";

/// Who shows such a token.
#[derive(Debug, Clone)]
pub struct Confined {
    /// Who that is, for the application.
    pub caller: Caller,
    /// The named token with which it was made. None: the owner's.
    pub by: Option<TokenName>,
    /// Fires when it no longer counts.
    pub ends: CancellationToken,
}

/// The tokens of all sessions.
#[derive(Default)]
pub struct SessionTokens {
    directory: Option<PathBuf>,
    /// Where they are, where several servers share the store.
    cluster: Option<Arc<dyn Cluster>>,
    held: Mutex<HashMap<Fingerprint, Held>>,
    /// One change after the other, each until it is on the disk.
    changing: tokio::sync::Mutex<()>,
    /// When it was looked last for one that nobody knew here.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

impl std::fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionTokens").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Held {
    entry: SessionTokenEntry,
    ends: CancellationToken,
}

impl Held {
    fn counts(&self) -> bool {
        self.entry.expires_at.is_none_or(|end| clock::now_ms() < end)
    }
}

impl SessionTokens {
    /// Those of a data directory. A file that cannot be trusted opens nothing, and says so.
    pub(super) async fn open(directory: Option<PathBuf>, store: &Arc<dyn Store>) -> Arc<Self> {
        let cluster = store.cluster();
        let entries = match &cluster {
            Some(cluster) => shared(&**cluster).await,
            None => own(directory.clone()).await,
        };
        let mut held = HashMap::new();
        for entry in entries {
            // One whose session went while that could not be written down must not open another of its name.
            if matches!(store.session(&entry.session).await, Ok(Some(row)) if row.client == entry.client) {
                held.insert(entry.sha256, Held { entry, ends: CancellationToken::new() });
            }
        }
        Arc::new(Self { directory, cluster, held: Mutex::new(held), ..Self::default() })
    }

    /// Takes on what other servers of the store change, as long as what is returned lives. None: it has the store alone.
    pub(super) fn follow(self: &Arc<Self>) -> Option<AbortOnDropHandle<()>> {
        let (tokens, cluster) = (Arc::clone(self), self.cluster.clone()?);
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut changes = cluster.changes();
            loop {
                // What was missed is found a little later.
                drop(tokio::time::timeout(CHANGES_MISSED_MAX, changes.changed()).await);
                tokens.reload(&*cluster).await;
            }
        })))
    }

    /// Reads again what there is.
    async fn reload(&self, cluster: &dyn Cluster) {
        let _one = self.changing.lock().await;
        let Ok(entries) = entries_of(cluster).await else { return };
        let mut held = self.held.lock();
        let mut before = std::mem::take(&mut *held);
        for entry in entries {
            let ends = before.remove(&entry.sha256).map(|old| old.ends).unwrap_or_default();
            held.insert(entry.sha256, Held { entry, ends });
        }
        before.into_values().for_each(|gone| gone.ends.cancel());
    }

    /// Whose token it is. None: nobody's, or it has ended. What is looked up is a hash: how long it takes tells nothing of a token.
    pub fn find(&self, given: &str) -> Option<Confined> {
        let print = session_tokens::print_of(&SecretString::from(given.to_owned()))?;
        let held = self.held.lock().get(&print).filter(|held| held.counts()).cloned()?;
        let SessionTokenEntry { session, client, role, by, .. } = held.entry;
        Some(Confined { caller: Caller { client, role, only: Some(session) }, by, ends: held.ends })
    }

    /// Looks for one that another server of the store may have made a moment ago. False: there is none to look for.
    pub async fn look_for(&self, given: &str) -> bool {
        let Some(cluster) = self.cluster.as_deref() else { return false };
        if session_tokens::print_of(&SecretString::from(given.to_owned())).is_none() {
            return false;
        }
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        // All who came before a look are served by it.
        if looked.is_none_or(|looked| looked < asked) {
            if let Some(looked) = *looked {
                tokio::time::sleep_until(looked + LOOK_PAUSE).await;
            }
            let now = Instant::now();
            self.reload(cluster).await;
            *looked = Some(now);
        }
        true
    }

    /// Ends what was opened with tokens that have run out, or whose maker is no longer there.
    pub fn sweep(&self, is_there: impl Fn(&TokenName) -> bool) {
        for held in self.held.lock().values_mut() {
            let has_maker = held.entry.by.as_ref().is_none_or(&is_there);
            if !held.counts() || !has_maker {
                std::mem::take(&mut held.ends).cancel();
            }
        }
    }

    /// Takes the tokens away that are meant. How many those were.
    async fn take_away(&self, meant: impl Fn(&SessionTokenEntry) -> bool) -> Result<usize, ApiError> {
        let _one = self.changing.lock().await;
        let (gone, left): (Vec<_>, Vec<_>) = {
            let held = self.held.lock();
            held.values().cloned().partition(|held| meant(&held.entry))
        };
        if gone.is_empty() {
            return Ok(0);
        }
        // They end whatever the disk says.
        let prints: Vec<Fingerprint> = gone.iter().map(|held| held.entry.sha256).collect();
        self.held.lock().retain(|print, _| !prints.contains(print));
        gone.iter().for_each(|held| held.ends.cancel());
        match &self.cluster {
            Some(cluster) => {
                let ids = gone.iter().map(|held| held.entry.id.to_string()).collect();
                cluster.forget_notes(NOTES, ids).await.map_err(|error| store_failure(&error))?;
            }
            None => self.write(left.into_iter().map(|held| held.entry).collect()).await?,
        }
        Ok(gone.len())
    }

    async fn write(&self, mut entries: Vec<SessionTokenEntry>) -> Result<(), ApiError> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        entries.sort_by(|one, other| one.id.cmp(&other.id));
        let written = tokio::task::spawn_blocking(move || session_tokens::write(&directory, entries)).await;
        let failed = |error: String| ApiError::internal(format!("the tokens could not be stored: {error}"));
        written.map_err(|cause| failed(broken(cause)))?.map_err(|error| failed(error.to_string()))
    }

    async fn add(&self, entry: SessionTokenEntry) -> Result<(), ApiError> {
        let _one = self.changing.lock().await;
        let mut entries: Vec<SessionTokenEntry> = {
            let held = self.held.lock();
            // Those that have run out make room.
            held.values().filter(|held| held.counts()).map(|held| held.entry.clone()).collect()
        };
        let of_session = entries.iter().filter(|other| other.session == entry.session).count();
        for (many, max, whose) in [
            (of_session, limit::SESSION_TOKENS_MAX, "the session"),
            (entries.len(), limit::SESSION_TOKENS_OF_ALL_MAX, "the server's sessions"),
        ] {
            if many >= max {
                let message = format!("{whose} already has {max} tokens; revoke some");
                return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
            }
        }
        match &self.cluster {
            Some(cluster) => {
                let body = serde_json::to_string(&entry).map_err(|error| ApiError::internal(error.to_string()))?;
                let kept = cluster.keep_note(NOTES, entry.id.as_str(), body).await;
                kept.map_err(|error| store_failure(&error))?;
            }
            None => {
                entries.push(entry.clone());
                self.write(entries).await?;
            }
        }
        let mut held = self.held.lock();
        held.retain(|_, held| {
            let counts = held.counts();
            if !counts {
                held.ends.cancel();
            }
            counts
        });
        held.insert(entry.sha256, Held { entry, ends: CancellationToken::new() });
        Ok(())
    }
}

/// Those of a data directory.
async fn own(place: Option<PathBuf>) -> Vec<SessionTokenEntry> {
    let read =
        tokio::task::spawn_blocking(move || place.map_or_else(|| Ok(Vec::new()), |it| session_tokens::read(&it)));
    match read.await {
        Ok(Ok(entries)) => entries,
        Ok(Err(error)) => {
            tracing::error!(%error, "no token of a session counts");
            Vec::new()
        }
        Err(cause) => {
            tracing::error!(cause = broken(cause), "no token of a session counts");
            Vec::new()
        }
    }
}

/// Those of all servers of the store.
async fn shared(cluster: &dyn Cluster) -> Vec<SessionTokenEntry> {
    entries_of(cluster).await.unwrap_or_else(|error| {
        tracing::error!(%error, "no token of a session counts yet");
        Vec::new()
    })
}

async fn entries_of(cluster: &dyn Cluster) -> Result<Vec<SessionTokenEntry>, StoreError> {
    let notes = cluster.notes(NOTES).await?;
    Ok(notes.iter().filter_map(|body| serde_json::from_str(body).ok()).collect())
}

impl Caller {
    /// Refuses who reaches one session alone: what is asked for is beyond it, or its owner's.
    ///
    /// # Errors
    /// `FORBIDDEN`.
    pub fn at_large(&self) -> Result<(), ApiError> {
        self.only.as_ref().map_or(Ok(()), |id| Err(ApiError::confined(id)))
    }

    /// Refuses a session out of its reach: for who reaches one alone, no other is there.
    pub(super) fn reaches(&self, id: &SessionId) -> Result<(), ApiError> {
        match &self.only {
            Some(only) if only != id => Err(ApiError::not_found(format!("session {id}"))),
            Some(_) | None => Ok(()),
        }
    }
}

fn view(entry: &SessionTokenEntry) -> SessionTokenView {
    let role = if entry.role == TokenRole::ReadOnly { SessionTokenRole::ReadOnly } else { SessionTokenRole::Operator };
    SessionTokenView {
        token_id: entry.id.clone(),
        session_id: entry.session.clone(),
        role,
        created_at: entry.created_at,
        expires_at: entry.expires_at,
    }
}

impl App {
    /// The tokens that reach one session each.
    pub fn session_tokens(&self) -> &Arc<SessionTokens> {
        &self.session_tokens
    }

    /// Makes a token for a session. `by`: the named token of whoever asks.
    ///
    /// # Errors
    /// `FORBIDDEN` for the role, or the bearer of such a token; `NOT_FOUND`, `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED`.
    pub async fn create_session_token(
        &self,
        caller: &Caller,
        id: &SessionId,
        (new, by): (NewSessionToken, Option<TokenName>),
    ) -> Result<MadeSessionToken, ApiError> {
        caller.at_large()?;
        caller.needs(Access::Work)?;
        let session = self.session(caller, id).await?.session_id;
        if new.expires_in_ms.is_some_and(|ms| !(1..=limit::SESSION_TOKEN_MS_MAX).contains(&ms)) {
            let expected = format!("a whole number from 1 to {}", limit::SESSION_TOKEN_MS_MAX);
            return Err(ApiError::invalid("expiresInMs", expected));
        }
        let (token, sha256) = session_tokens::mint();
        let created_at = clock::now_ms();
        let entry = SessionTokenEntry {
            id: SessionTokenId::generate(),
            session,
            client: caller.client.clone(),
            role: match new.role {
                SessionTokenRole::ReadOnly => TokenRole::ReadOnly,
                SessionTokenRole::Operator => TokenRole::Operator,
            },
            by,
            sha256,
            created_at,
            expires_at: new.expires_in_ms.map(|ms| created_at.saturating_add(ms)),
        };
        let about = view(&entry);
        self.session_tokens.add(entry).await?;
        // It may have been deleted meanwhile, and took its tokens with it before this one.
        if let Err(gone) = self.session(caller, id).await {
            self.session_tokens.take_away(|entry| entry.session == *id).await?;
            return Err(gone);
        }
        tracing::info!(session = %id, token = %about.token_id, "a token for a session was made");
        Ok(MadeSessionToken { token: token.expose_secret().to_owned(), about })
    }

    /// A session's tokens that count, the oldest first.
    ///
    /// # Errors
    /// `FORBIDDEN` for the bearer of such a token, `NOT_FOUND`.
    pub async fn list_session_tokens(&self, caller: &Caller, id: &SessionId) -> Result<SessionTokenList, ApiError> {
        caller.at_large()?;
        let id = self.session(caller, id).await?.session_id;
        let mut tokens: Vec<SessionTokenView> = {
            let held = self.session_tokens.held.lock();
            let own = held.values().filter(|held| held.entry.session == id && held.counts());
            own.map(|held| view(&held.entry)).collect()
        };
        // Not all were given their ids by one clock.
        tokens.sort_by(|one, other| (one.created_at, &one.token_id).cmp(&(other.created_at, &other.token_id)));
        Ok(SessionTokenList { tokens })
    }

    /// Takes a session's token away: what it has opened ends.
    ///
    /// # Errors
    /// `FORBIDDEN` for the role, or the bearer of such a token; `NOT_FOUND`.
    pub async fn revoke_session_token(
        &self,
        caller: &Caller,
        (id, token): (&SessionId, &SessionTokenId),
    ) -> Result<Deleted, ApiError> {
        caller.at_large()?;
        caller.needs(Access::Work)?;
        let id = self.session(caller, id).await?.session_id;
        let gone = self.session_tokens.take_away(|entry| entry.session == id && entry.id == *token).await?;
        if gone == 0 { Err(ApiError::not_found(format!("token {token}"))) } else { Ok(Deleted { deleted: true }) }
    }

    /// A session is gone, and its tokens go with it.
    pub(super) async fn forget_session_tokens(&self, id: &SessionId) {
        if let Err(error) = self.session_tokens.take_away(|entry| entry.session == *id).await {
            tracing::error!(%error, session = %id, "tokens of a deleted session stay in the file; here they count no longer");
        }
    }
}
