//! What nodes do for each other: they tell who is there and what they have to do, follow what changes for all, and take what is left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::{TELL, Whereabouts};
use crate::protocol::{ApiError, ClientId, NodeState, NodeView, SessionId};
use crate::session::manager::{Manager, Shelf};
use crate::session::store_failure;
use crate::store::{Cluster, Holder, Load, Presence};

/// So many tellings later is looked for sessions that nobody has.
const LOOK_ROUNDS: u32 = 10;
/// From so many turns on that run here, new sessions may go elsewhere.
const CROWDED: u64 = 4;
/// Longest time in which a change that another node has told of is not known here.
pub const CHANGES_MISSED_MAX: Duration = Duration::from_secs(15);

/// The servers that share the store, as one of them counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Company {
    /// Those that take sessions, this one included.
    pub active: u64,
    /// Those that hand theirs over.
    pub draining: u64,
    /// Trees of sessions that this one has taken since its start.
    pub taken: u64,
}

impl Manager {
    /// Where a new session is made: here, unless this node takes none, or another one that reaches the same has much less to do.
    ///
    /// # Errors
    /// What the store says.
    pub async fn place_for_new(&self) -> Result<Whereabouts, ApiError> {
        let Some(cluster) = self.shelf.cluster.as_deref() else { return Ok(Whereabouts::Here) };
        if self.takes_none(cluster) {
            return Ok(self.another_node(cluster, None).await?.map_or(Whereabouts::Here, Whereabouts::At));
        }
        let running = *self.shelf.running.subscribe().borrow() as u64;
        let idler = self.shelf.tenure.idler.lock().clone();
        let much_less = |least: &u64| running >= CROWDED && least * 2 < running;
        Ok(idler.filter(|(least, _)| much_less(least)).map_or(Whereabouts::Here, |(_, holder)| Whereabouts::At(holder)))
    }

    /// The servers that share the store. None: this one has it alone.
    pub fn company(&self) -> Option<Company> {
        self.shelf.cluster.as_ref()?;
        let [there, active] = *self.shelf.tenure.nodes.lock();
        let taken = self.shelf.tenure.taken.load(Ordering::Relaxed);
        Some(Company { active, draining: there.saturating_sub(active), taken })
    }

    /// Notes how many nodes there are, and which one reaches the same as this one and has least to do.
    fn note_nodes(&self, nodes: Vec<NodeView>) {
        let count = |is: fn(NodeState) -> bool| nodes.iter().filter(|node| is(node.state)).count() as u64;
        *self.shelf.tenure.nodes.lock() =
            [count(|state| state != NodeState::Over), count(|state| state == NodeState::Active)];
        let own: Vec<String> =
            nodes.iter().find(|node| node.is_self).map(|node| node.labels.clone()).unwrap_or_default();
        let reaches_the_same = |node: &NodeView| node.labels.iter().any(|label| own.contains(label));
        let others = nodes.into_iter().filter(|node| !node.is_self && node.state == NodeState::Active);
        let least = others.filter(reaches_the_same).min_by_key(|node| node.running);
        let holder = least.and_then(|NodeView { number, name, url, running, .. }| {
            Some((running, Holder { number, name, url: url? }))
        });
        *self.shelf.tenure.idler.lock() = holder;
    }

    /// A node that takes sessions and has one of those labels, or of this one's: the one that has least to do. No labels: any.
    pub(super) async fn another_node(
        &self,
        cluster: &dyn Cluster,
        labels: Option<&[String]>,
    ) -> Result<Option<Holder>, ApiError> {
        let nodes = cluster.nodes().await.map_err(|e| store_failure(&e))?;
        let own = || nodes.iter().find(|node| node.is_self).map_or_else(Vec::new, |node| node.labels.clone());
        let labels = labels.map_or_else(own, <[String]>::to_vec);
        let reaches = |node: &NodeView| labels.is_empty() || node.labels.iter().any(|label| labels.contains(label));
        let others = nodes.into_iter().filter(|node| !node.is_self && node.state == NodeState::Active);
        let others = others.filter(reaches);
        let least = others.filter(|node| node.url.is_some()).min_by_key(|node| (node.running, node.sessions));
        Ok(least.and_then(|NodeView { number, name, url, .. }| Some(Holder { number, name, url: url? })))
    }

    /// Whether another node takes what this one hands over.
    ///
    /// # Errors
    /// What the store says.
    pub async fn others_take(&self, cluster: &dyn Cluster) -> Result<bool, ApiError> {
        Ok(self.another_node(cluster, None).await?.is_some())
    }

    /// What this node does for the others, as long as what is returned lives. None: it has the store alone.
    pub fn keep_company(&self) -> Option<AbortOnDropHandle<()>> {
        let cluster = self.shelf.cluster.clone()?;
        let manager = Self { shelf: Arc::clone(&self.shelf) };
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::join!(
                manager.follow_departures(&*cluster),
                manager.tell_others(&*cluster),
                manager.hear_others(&*cluster),
                manager.follow_changes(&*cluster),
            );
        })))
    }

    async fn follow_departures(&self, cluster: &dyn Cluster) {
        let mut departures = cluster.departures();
        loop {
            // What was missed is found a little later.
            let looked = tokio::time::timeout(TELL * LOOK_ROUNDS, departures.changed());
            drop(looked.await);
            if let Err(error) = self.take_left_behind(cluster).await {
                tracing::warn!(%error, "it could not be looked for what servers that are gone have left open");
            }
        }
    }

    async fn tell_others(&self, cluster: &dyn Cluster) {
        loop {
            tokio::time::sleep(TELL).await;
            let now = self.now();
            cluster.tell_load(Load { awake: now.awake, running: now.running + now.waiting });
            let sessions = self.shelf.tenure.attended.lock().keys().cloned().collect();
            let clients = self.shelf.attendance.clients();
            cluster.tell_presence(Presence { sessions, clients });
            if let Err(error) = self.shelf.ledger.look_elsewhere().await {
                tracing::debug!(%error, "what clients spend on other servers could not be read");
            }
            // Where it cannot be asked, all is made here.
            self.note_nodes(cluster.nodes().await.unwrap_or_default());
        }
    }

    async fn follow_changes(&self, cluster: &dyn Cluster) {
        let mut changes = cluster.changes();
        loop {
            // What was missed is found a little later.
            let told = tokio::time::timeout(CHANGES_MISSED_MAX, changes.changed()).await;
            if let Err(error) = self.shelf.terms.saved.reload().await {
                tracing::debug!(%error, "grants could not be read again");
            }
            // All rows are looked at for it: not for each change.
            if told.is_err()
                && let Ok(count) = self.shelf.store.session_count().await
            {
                self.shelf.terms.session_count.store(count, Ordering::Release);
            }
        }
    }

    async fn hear_others(&self, cluster: &dyn Cluster) {
        let mut presence = cluster.presence();
        loop {
            match presence.recv().await {
                Ok(Presence { sessions, clients }) => self.shelf.are_there(&sessions, &clients),
                // What was missed comes again.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                Err(tokio::sync::broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Shelf {
    /// Somebody is there on another node: of sessions, and of all sessions of clients.
    fn are_there(&self, sessions: &[SessionId], clients: &[Option<ClientId>]) {
        let lives = self.lives.lock();
        for live in sessions.iter().filter_map(|id| lives.get(id)) {
            live.touch();
        }
        if !clients.is_empty() {
            for live in lives.values().filter(|live| clients.contains(&live.client)) {
                live.touch();
            }
        }
    }
}
