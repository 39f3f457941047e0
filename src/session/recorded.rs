//! What is recorded of turns is theirs alone: the record of changes is a file of its own, and so may know turns of a session that
//! is gone. A later session of the same id, which may be another client's, neither sees nor undoes what those did.

use std::sync::Arc;

use super::store_failure;
use crate::base::panics::broken;
use crate::host::Recording;
use crate::protocol::{ApiError, SessionId};
use crate::store::{Store, StoreError};

/// Forgets what is recorded under a session's id of turns that it does not have.
///
/// # Errors
/// What a store says.
pub async fn disown(store: &dyn Store, recording: &Arc<Recording>, session: &SessionId) -> Result<(), ApiError> {
    let (record, id) = (Arc::clone(recording), session.clone());
    let recorded = blocking(move || record.store().turn_ids(&id)).await?;
    let mut strangers = Vec::new();
    for (number, turn) in recorded {
        // Numbers grow: what comes behind a turn of this session is of this session.
        if store.turn(session, &turn).await.map_err(|e| store_failure(&e))?.is_some() {
            break;
        }
        strangers.push(number);
    }
    if strangers.is_empty() {
        return Ok(());
    }
    let (record, count) = (Arc::clone(recording), strangers.len());
    blocking(move || record.store().forget_turns(&strangers)).await?;
    tracing::info!(%session, turns = count, "what turns of a deleted session did to files was still recorded");
    Ok(())
}

/// The same for all sessions of which something is recorded, also for those that are gone.
pub async fn disown_all(store: Arc<dyn Store>, recording: Arc<Recording>) {
    let record = Arc::clone(&recording);
    let tidied = async {
        for session in blocking(move || record.store().sessions()).await? {
            disown(&*store, &recording, &session).await?;
        }
        Ok::<_, ApiError>(())
    };
    if let Err(error) = tidied.await {
        tracing::debug!(error = %error.0.message, "the record of changes was not tidied; the next start does it");
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|e| ApiError::internal(broken(e)))?;
    done.map_err(|e| store_failure(&e))
}
