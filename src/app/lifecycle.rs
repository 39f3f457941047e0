//! All sessions of a caller in one stream: how they come and go, and which of them waits for somebody.
//!
//! A reader is a cursor here too: it holds a place, reads what comes behind it from the store, and is woken when there is
//! more. So a slow one loses nothing and costs nothing.

use std::sync::Arc;

use tokio::sync::watch;

use super::{App, Caller};
use crate::base::limit;
use crate::protocol::{ApiError, ClientId, ErrorCode};
use crate::session::{Attending, store_failure};
pub use crate::store::LifecyclePage;
use crate::store::{Store, StoreError};

/// Events that a reader takes from the store at once.
const PAGE: usize = 200;

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Behind this place; 0: with the first event.
    Behind(u64),
    /// With what comes next.
    Newest,
}

/// A cursor into the lifecycle events of a client's sessions.
pub struct LifecycleReader {
    store: Arc<dyn Store>,
    client: Option<ClientId>,
    position: u64,
    /// See [`Self::told_since`].
    told_since: Option<u64>,
    /// Changes when there is more, breaks when there will be none.
    more: watch::Receiver<()>,
    /// None: who reads is nobody who could be asked.
    _here: Option<Attending>,
}

impl std::fmt::Debug for LifecycleReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LifecycleReader").field("position", &self.position).finish_non_exhaustive()
    }
}

impl App {
    /// A caller with an open line: as long as the answer lives, each of its sessions has somebody who can be asked.
    pub fn attend(&self, caller: &Caller) -> Attending {
        self.sessions.attend(caller.client.clone())
    }

    /// Reads the lifecycle events of all sessions of the caller, in the order in which they were stored.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` (a place that lies ahead), `RESOURCE_EXHAUSTED` (too many streams of this client).
    pub async fn lifecycle(&self, caller: &Caller, begin: Begin) -> Result<LifecycleReader, ApiError> {
        caller.at_large()?;
        let client = caller.client.clone();
        let streams_max = limit::LIFECYCLE_STREAMS_MAX;
        // Before the look: what comes between is not missed.
        let more = self.store.bell().listen(client.as_ref(), streams_max).ok_or_else(|| {
            let message = format!("{streams_max} streams over all sessions are open already");
            ApiError::new(ErrorCode::ResourceExhausted, message)
        })?;
        let newest = self.store.lifecycle_end(client.as_ref()).await.map_err(|e| store_failure(&e))?;
        let position = match begin {
            Begin::Newest => newest,
            Begin::Behind(place) if place <= newest => place,
            Begin::Behind(place) => {
                let expected = format!("the place of an event of this stream, 0 to {newest}, or `newest`");
                return Err(ApiError::unfit("after", expected, place));
            }
        };
        let _here = Some(self.attend(caller));
        let forgotten_at = self.store.ends_kept().forgotten_at;
        let told_since = (forgotten_at > 0).then(|| forgotten_at + 1);
        Ok(LifecycleReader { store: Arc::clone(&self.store), client, position, told_since, more, _here })
    }
}

impl LifecycleReader {
    /// The same for who reads along and could not be asked anything.
    #[must_use]
    pub fn unattended(mut self) -> Self {
        self._here = None;
        self
    }

    /// The place up to which everything was given out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Since when all ends of sessions are told, in milliseconds since 1970: who was away for longer may have missed some, and
    /// looks at the list of sessions. None: all there ever were.
    pub fn told_since(&self) -> Option<u64> {
        self.told_since
    }

    /// The next events; waits for them. None: there will be none. Cancel-safe.
    ///
    /// # Errors
    /// What the store says.
    pub async fn next(&mut self) -> Result<Option<LifecyclePage>, ApiError> {
        loop {
            // Before the look, so that what comes behind it shows.
            let last = self.more.has_changed().is_err();
            self.more.borrow_and_update();
            let page = match self.store.lifecycle(self.client.as_ref(), self.position, PAGE).await {
                Ok(page) => page,
                Err(StoreError::Closed) => return Ok(None),
                Err(cause) => return Err(store_failure(&cause)),
            };
            if page.upto > self.position {
                self.position = page.upto;
                if page.entries.is_empty() {
                    continue;
                }
                return Ok(Some(page));
            }
            if last {
                return Ok(None);
            }
            // Broken: once more, for what came just before the end.
            let _ = self.more.changed().await;
        }
    }
}
