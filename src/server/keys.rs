//! Which tokens open the door, and what each is worth.
//!
//! The owner's token is given at start; named ones stand in a file that is looked at again and again, so that one that
//! was made or revoked counts without a restart. What a revoked token has opened ends with it.
//!
//! Invariants: every comparison takes the same time whatever is given. A file that cannot be read, or that others
//! could have touched, opens nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::app::{Caller, Confined, SessionTokens};
use crate::base::limit;
use crate::base::panics::broken;
use crate::config::tokens::{Stamp, TokenEntry, Tokens};
use crate::protocol::{ClientId, TokenName, TokenRole};

/// Somebody who came in.
#[derive(Debug, Clone)]
pub(crate) struct Bearer {
    who: Who,
    /// Fires when the token no longer counts. None: it always will.
    pub(crate) ends: Option<CancellationToken>,
}

#[derive(Debug, Clone)]
enum Who {
    Owner,
    Named(TokenEntry),
    /// Of one session alone.
    Confined(Caller),
}

impl Bearer {
    /// The owner of the server.
    pub(crate) fn owner() -> Self {
        Self { who: Who::Owner, ends: None }
    }

    /// What it may do.
    pub(crate) fn role(&self) -> TokenRole {
        match &self.who {
            Who::Owner => TokenRole::Owner,
            Who::Named(entry) => entry.role,
            Who::Confined(caller) => caller.role,
        }
    }

    /// The name of its token, where it is a named one.
    pub(crate) fn name(&self) -> Option<&TokenName> {
        match &self.who {
            Who::Named(entry) => Some(&entry.name),
            Who::Owner | Who::Confined(_) => None,
        }
    }

    /// Who calls, as the application knows it. `within`: the client that it says it is.
    pub(crate) fn caller(&self, within: Option<ClientId>) -> Caller {
        let client = match &self.who {
            Who::Owner => within,
            Who::Named(entry) => entry.client(within.as_ref()),
            // It is whoever the session belongs to, there and nowhere else.
            Who::Confined(caller) => return caller.clone(),
        };
        Caller { client, role: self.role(), only: None }
    }
}

/// The tokens of a server.
#[derive(Debug)]
pub(crate) struct Keys {
    owner: Option<SecretString>,
    file: Option<PathBuf>,
    named: RwLock<Named>,
    /// Those that reach one session each.
    sessions: Arc<SessionTokens>,
}

#[derive(Debug)]
struct Named {
    stamp: Option<Stamp>,
    tokens: Arc<Tokens>,
    /// By name: fires when the token is revoked or changed.
    ends: HashMap<TokenName, CancellationToken>,
}

impl Keys {
    /// Those of a server with the owner's token, and named ones in `file`. Nothing is read yet.
    pub(crate) fn new(owner: Option<SecretString>, file: Option<PathBuf>) -> Self {
        let named = Named { stamp: None, tokens: Arc::default(), ends: HashMap::new() };
        // Without an owner's token nobody needs any.
        let file = file.filter(|_| owner.is_some());
        Self { owner, file, named: RwLock::new(named), sessions: Arc::default() }
    }

    /// The same, and those of sessions.
    pub(crate) fn with_sessions(self, sessions: Arc<SessionTokens>) -> Self {
        Self { sessions, ..self }
    }

    /// Whether a token is needed.
    pub(crate) fn wanted(&self) -> bool {
        self.owner.is_some()
    }

    /// How many named ones there are.
    pub(crate) fn count(&self) -> usize {
        self.named.read().tokens.entries().len()
    }

    /// How many names are used up, those of revoked ones included.
    pub(crate) fn names(&self) -> usize {
        let named = self.named.read();
        named.tokens.entries().len() + named.tokens.revoked().len()
    }

    /// Whose token it is. None: nobody's.
    pub(crate) fn find(&self, given: &str) -> Option<Bearer> {
        let owner = self.owner.as_ref()?.expose_secret().as_bytes().ct_eq(given.as_bytes());
        let named = self.named.read();
        let entry = named.tokens.find(given);
        if bool::from(owner) {
            return Some(Bearer::owner());
        }
        if let Some(entry) = entry {
            return Some(Bearer { who: Who::Named(entry.clone()), ends: named.ends.get(&entry.name).cloned() });
        }
        let Confined { caller, by, ends } = self.sessions.find(given)?;
        // It goes with the token that made it.
        by.is_none_or(|by| named.has(&by)).then(|| Bearer { who: Who::Confined(caller), ends: Some(ends) })
    }

    /// The same, after another look at the file where that is new, and at what other servers of the store have made: the token may have been
    /// made a moment ago.
    pub(crate) async fn find_fresh(&self, given: &str) -> Option<Bearer> {
        match self.find(given) {
            Some(bearer) => Some(bearer),
            None => {
                let (named, of_session) = (self.reload().await, self.sessions.look_for(given).await);
                if named || of_session { self.find(given) } else { None }
            }
        }
    }

    /// Reads the file when it has changed. True: it had.
    pub(crate) async fn reload(&self) -> bool {
        let Some(file) = self.file.clone() else { return false };
        let known = self.named.read().stamp;
        let looked = tokio::task::spawn_blocking(move || {
            let stamp = Stamp::of(&file);
            (known != Some(stamp)).then(|| (stamp, Tokens::read(&file)))
        });
        match looked.await {
            Ok(Some((stamp, Ok(tokens)))) => self.take(stamp, tokens),
            Ok(Some((stamp, Err(error)))) => {
                tracing::error!(%error, "no named token counts until this is mended");
                self.take(stamp, Tokens::default());
            }
            Ok(None) => return false,
            Err(cause) => {
                let cause = broken(cause);
                tracing::error!(cause, "the tokens could not be looked at");
                return false;
            }
        }
        true
    }

    fn take(&self, stamp: Stamp, tokens: Tokens) {
        let mut named = self.named.write();
        let mut gone = std::mem::take(&mut named.ends);
        for entry in tokens.entries() {
            let same = named.tokens.entries().contains(entry);
            let end = if same { gone.remove(&entry.name) } else { None };
            named.ends.insert(entry.name.clone(), end.unwrap_or_default());
        }
        (named.tokens, named.stamp) = (Arc::new(tokens), Some(stamp));
        drop(named);
        gone.into_values().for_each(|end| end.cancel());
        self.sweep();
    }

    /// Ends what was opened with tokens of sessions that have run out, or went with another.
    fn sweep(&self) {
        // The one lock is not held for the other: who is looked for takes both.
        let tokens = Arc::clone(&self.named.read().tokens);
        self.sessions.sweep(|by| tokens.entries().iter().any(|entry| entry.name == *by));
    }

    /// Looks at the file and the time again and again, until it is told to end.
    pub(crate) async fn watch(&self, end: CancellationToken) {
        if !self.wanted() {
            return;
        }
        while end.run_until_cancelled(tokio::time::sleep(Duration::from_millis(limit::RELOAD_MS))).await.is_some() {
            self.reload().await;
            self.sweep();
        }
    }
}

impl Named {
    fn has(&self, name: &TokenName) -> bool {
        self.tokens.entries().iter().any(|entry| entry.name == *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tokens::{NewToken, create, revoke, tokens_file};

    fn made(directory: &std::path::Path, name: &str, role: TokenRole) -> String {
        let new = NewToken { name: name.parse().unwrap(), role, sessions_of: None };
        create(directory, new).unwrap().expose_secret().to_owned()
    }

    #[tokio::test]
    async fn what_is_made_opens_at_once_and_what_is_revoked_ends() {
        let home = tempfile::tempdir().unwrap();
        let keys = Keys::new(Some("sesame".to_owned().into()), Some(tokens_file(home.path())));
        assert_eq!(keys.find_fresh("sesame").await.unwrap().role(), TokenRole::Owner);
        assert!(keys.find_fresh("open").await.is_none());
        let (first, second) = (made(home.path(), "a", TokenRole::Operator), made(home.path(), "b", TokenRole::Owner));
        let a = keys.find_fresh(&first).await.unwrap();
        let b = keys.find(&second).expect("the file was read for the other");
        assert_eq!((a.role(), b.role()), (TokenRole::Operator, TokenRole::Owner));
        let client = |bearer: &Bearer| bearer.caller(None).client.map(|id| id.to_string());
        assert_eq!((client(&a).as_deref(), client(&b).as_deref()), (Some("@a"), Some("@b")));
        revoke(home.path(), "a").unwrap();
        assert!(keys.reload().await && !keys.reload().await);
        assert!(keys.find_fresh(&first).await.is_none());
        assert!(a.ends.unwrap().is_cancelled() && !b.ends.as_ref().unwrap().is_cancelled());
        revoke(home.path(), "b").unwrap();
        let third = made(home.path(), "c", TokenRole::Owner);
        assert_eq!((keys.count(), keys.names()), (1, 2), "as they were at the last look");
        assert!(keys.find_fresh(&third).await.is_some() && keys.find(&second).is_none());
        assert!(b.ends.unwrap().is_cancelled());
        assert_eq!((keys.count(), keys.names()), (1, 3));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_trusted_opens_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        let token = made(home.path(), "a", TokenRole::Owner);
        let file = tokens_file(home.path());
        let keys = Keys::new(Some("sesame".to_owned().into()), Some(file.clone()));
        let bearer = keys.find_fresh(&token).await.unwrap();
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, b"{}").unwrap();
        assert!(keys.reload().await && keys.find(&token).is_none());
        assert!(bearer.ends.unwrap().is_cancelled());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(keys.find_fresh(&token).await.is_none());
        assert!(keys.find("sesame").is_some(), "the owner's own token stands elsewhere");
        std::fs::remove_file(&file).unwrap();
        assert!(keys.reload().await);
    }
}
