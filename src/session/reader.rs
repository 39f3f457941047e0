//! A cursor into a session's events, on the node that has the session or on any other.
//!
//! Here it reads along with the session, from what is in memory where it can. Elsewhere it reads the log in the store, woken by what the
//! node that has the session tells, and by a look at the log once a second.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::live::{ClientGuard, Live};
use super::manager::Manager;
use super::store_failure;
use super::tenure::{AttendsElsewhere, Reads};
use crate::bus::{Batch, Next};
use crate::protocol::{ApiError, ClientId, ErrorCode, SessionId};
use crate::store::Store;

/// Events that a reader takes from the store at once.
const PAGE: usize = 500;

/// Where the events come from.
#[derive(Debug)]
pub(super) enum Source {
    /// The session is in memory.
    Here {
        live: Arc<Live>,
        /// The session is no longer there. Made once, not for each wait.
        over: Pin<Box<WaitForCancellationFutureOwned>>,
        /// None: who reads is nobody who could be asked.
        _here: Option<ClientGuard>,
    },
    /// Another node has it.
    Log {
        log: Log,
        /// None: who reads is nobody who could be asked.
        _here: Option<AttendsElsewhere>,
        _reads: Reads,
    },
}

/// The log of a session of another node.
pub(super) struct Log {
    store: Arc<dyn Store>,
    id: SessionId,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A cursor into a session's events.
#[derive(Debug)]
pub struct EventReader {
    pub(super) source: Source,
    pub(super) position: u64,
    pub(super) changed: watch::Receiver<u64>,
}

impl EventReader {
    /// The same for who reads along and could not be asked anything.
    #[must_use]
    pub fn unattended(mut self) -> Self {
        match &mut self.source {
            Source::Here { _here, .. } => *_here = None,
            Source::Log { _here, .. } => *_here = None,
        }
        self
    }

    /// Number of the last event given out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next events; waits for them. None: there will be none. The first ones may lie at or before the
    /// position as it was. Cancel-safe.
    ///
    /// # Errors
    /// What the store says.
    pub async fn next(&mut self) -> Result<Option<Arc<Batch>>, ApiError> {
        loop {
            let newest = *self.changed.borrow_and_update();
            let next = match &self.source {
                Source::Here { live, .. } => live.topic.next(self.position),
                Source::Log { .. } if newest > self.position => Next::Store,
                Source::Log { .. } => Next::Wait,
            };
            match next {
                Next::Batch(batch) => return Ok(Some(self.give(batch))),
                Next::Store => {
                    let (store, id) = self.log();
                    let stored = store.events(id, self.position, PAGE).await;
                    match Batch::new(stored.map_err(|e| store_failure(&e))?) {
                        Some(batch) => return Ok(Some(self.give(Arc::new(batch)))),
                        // It was deleted meanwhile.
                        None => return Ok(None),
                    }
                }
                Next::Wait => {
                    let changed = match &mut self.source {
                        Source::Here { over, .. } => tokio::select! {
                            biased;
                            changed = self.changed.changed() => changed.is_ok(),
                            () = over => false,
                        },
                        Source::Log { .. } => self.changed.changed().await.is_ok(),
                    };
                    if !changed {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn log(&self) -> (&Arc<dyn Store>, &SessionId) {
        match &self.source {
            Source::Here { live, .. } => (&live.store, &live.id),
            Source::Log { log, .. } => (&log.store, &log.id),
        }
    }

    fn give(&mut self, batch: Arc<Batch>) -> Arc<Batch> {
        self.position = batch.last_seq();
        batch
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        if let Source::Here { live, .. } = &self.source {
            live.streams.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Manager {
    /// Reads the events of a session that another node has, behind number `after`. Wakes nothing.
    ///
    /// # Errors
    /// `NOT_FOUND`, another client's included; `INVALID_ARGUMENT` for a number ahead of the log; `RESOURCE_EXHAUSTED` when `streams_max`
    /// read here already.
    pub async fn read_log(
        &self,
        client: Option<&ClientId>,
        id: &SessionId,
        (after, streams_max): (u64, usize),
    ) -> Result<EventReader, ApiError> {
        let none = || ApiError::not_found(format!("session {id}"));
        let cluster = self.shelf.cluster.as_deref().ok_or_else(none)?;
        let store = Arc::clone(&self.shelf.store);
        let row = store.session(id).await.map_err(|e| store_failure(&e))?;
        row.filter(|row| row.client.as_ref() == client).ok_or_else(none)?;
        let changed = cluster.follow(id).await.map_err(|e| store_failure(&e))?;
        let last = *changed.borrow();
        if after > last {
            let expected = format!("the number of an event of this session, 0 to {last}");
            return Err(ApiError::unfit("after", expected, after));
        }
        let reads = self.shelf.tenure.read(id, streams_max).ok_or_else(|| {
            let message = format!("session {id} has {streams_max} open event streams already");
            ApiError::new(ErrorCode::ResourceExhausted, message)
        })?;
        let (log, here) = (Log { store, id: id.clone() }, self.shelf.tenure.attend(id));
        Ok(EventReader { source: Source::Log { log, _here: here, _reads: reads }, position: after, changed })
    }
}
