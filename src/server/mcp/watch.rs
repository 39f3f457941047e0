//! What an MCP client is told by itself: that tools came or went, that sessions did, that one it is subscribed to has changed.
//!
//! It is told that something changed and looks itself, so several changes in short become one notification. Lists are watched
//! only while somebody reads the standing stream.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::peer::Peer;
use super::resources::Resource;
use super::wire::{self, RpcError};
use crate::app::{Begin, EventReader, LifecycleReader};
use crate::base::limit;

/// Events over all sessions that change the list of them.
const LIST_CHANGES: [&str; 3] = ["session.created", "session.forked", "session.deleted"];

/// What a client is subscribed to, by address.
#[derive(Default)]
pub(super) struct Watched(Mutex<HashMap<String, AbortOnDropHandle<()>>>);

impl Watched {
    /// Subscribes to a resource.
    ///
    /// # Errors
    /// When there are too many, or it cannot be read.
    pub(super) async fn add(&self, peer: &Arc<Peer>, uri: &str, resource: Resource) -> Result<(), RpcError> {
        if self.0.lock().len() >= limit::MCP_CLIENT_SUBSCRIPTIONS_MAX {
            let message = format!("{} subscriptions are there already", limit::MCP_CLIENT_SUBSCRIPTIONS_MAX);
            return Err(RpcError::new(wire::INTERNAL, message));
        }
        let (weak, uri) = (Arc::downgrade(peer), uri.to_owned());
        let task = match resource {
            Resource::Sessions => {
                let reader = peer.app.lifecycle(&peer.caller, Begin::Newest).await?.unattended();
                tokio::spawn(sessions_change((weak, uri.clone()), reader))
            }
            Resource::Session(id) | Resource::History(id, _) => {
                let after = peer.app.session(&peer.caller, &id).await?.last_seq;
                let reader = peer.app.overhear(&peer.caller, &id, after).await?;
                tokio::spawn(session_changes((weak, uri.clone()), reader))
            }
        };
        self.0.lock().insert(uri, AbortOnDropHandle::new(task));
        Ok(())
    }

    /// Ends a subscription.
    pub(super) fn remove(&self, uri: &str) {
        self.0.lock().remove(uri);
    }
}

/// Tells that a resource has changed. False: nobody is there any more.
fn updated((peer, uri): &(Weak<Peer>, String)) -> bool {
    let Some(peer) = peer.upgrade() else { return false };
    peer.standing.hint(wire::notification("notifications/resources/updated", &json!({ "uri": uri })));
    true
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(limit::MCP_LOOK_MS / 4)).await;
}

async fn session_changes(told: (Weak<Peer>, String), mut reader: EventReader) {
    while let Ok(Some(_)) = reader.next().await {
        if !updated(&told) {
            return;
        }
        pause().await;
    }
    // It was deleted.
    updated(&told);
}

async fn sessions_change(told: (Weak<Peer>, String), mut reader: LifecycleReader) {
    while let Ok(Some(_)) = reader.next().await {
        if !updated(&told) {
            return;
        }
        pause().await;
    }
}

/// Watches the lists for a client, as long as it is held: what changes from the return on is told.
pub(super) async fn lists(peer: &Arc<Peer>) -> Vec<AbortOnDropHandle<()>> {
    let mut watching = vec![AbortOnDropHandle::new(tokio::spawn(tools_change(Arc::downgrade(peer))))];
    match peer.app.lifecycle(&peer.caller, Begin::Newest).await {
        Ok(reader) => {
            let sessions = tokio::spawn(list_changes(Arc::downgrade(peer), reader.unattended()));
            watching.push(AbortOnDropHandle::new(sessions));
        }
        Err(error) => tracing::debug!(%error, "an MCP client is not told of new sessions"),
    }
    watching
}

async fn tools_change(peer: Weak<Peer>) {
    let look = |peer: &Peer| {
        let mut hasher = DefaultHasher::new();
        for tool in peer.app.tools() {
            (tool.name, tool.description).hash(&mut hasher);
        }
        hasher.finish()
    };
    let mut before = None;
    loop {
        let Some(now) = peer.upgrade() else { return };
        let found = look(&now);
        if before.replace(found).is_some_and(|before| before != found) {
            now.standing.hint(wire::notification("notifications/tools/list_changed", &json!({})));
        }
        drop(now);
        tokio::time::sleep(Duration::from_millis(limit::MCP_LOOK_MS)).await;
    }
}

async fn list_changes(peer: Weak<Peer>, mut reader: LifecycleReader) {
    while let Ok(Some(page)) = reader.next().await {
        if !page.entries.iter().any(|(_, event)| LIST_CHANGES.contains(&event.kind.as_ref())) {
            continue;
        }
        let Some(now) = peer.upgrade() else { return };
        now.standing.hint(wire::notification("notifications/resources/list_changed", &json!({})));
        drop(now);
        pause().await;
    }
}
