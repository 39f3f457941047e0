//! Giving up sessions, for other nodes to take: when this one drains, and when it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::TELL;
use crate::protocol::{ApiError, SessionId};
use crate::session::doing::Doing;
use crate::session::live::Live;
use crate::session::manager::Manager;
use crate::session::store_failure;
use crate::store::Cluster;

/// Pause between two looks for sessions in which nothing runs any more.
const HAND_OVER_PAUSE: Duration = Duration::from_millis(100);
/// Longer than any turn.
const FOREVER: Duration = Duration::from_secs(86_400);

impl Manager {
    /// Hands over what nothing runs in, and the rest as soon as nothing does any more, at most for `grace`. From now on this node takes no
    /// sessions. How many are left.
    ///
    /// # Errors
    /// What the store says.
    pub async fn hand_over(&self, grace: Duration) -> Result<u64, ApiError> {
        let Some(cluster) = self.shelf.cluster.as_deref() else { return Ok(self.live_count() as u64) };
        cluster.drain().await.map_err(|e| store_failure(&e))?;
        let deadline = tokio::time::Instant::now() + grace;
        loop {
            let left = self.hand_over_now(cluster).await?;
            if left == 0 || tokio::time::Instant::now() >= deadline {
                return Ok(left as u64);
            }
            tokio::time::sleep(HAND_OVER_PAUSE).await;
        }
    }

    /// Hands over what comes to rest, as long as it is asked to: it never ends.
    pub(in crate::session) async fn give_away(&self) {
        if let Some(cluster) = self.shelf.cluster.as_deref() {
            // What is not handed over is taken when this node has left.
            drop(cluster.drain().await);
            loop {
                drop(self.hand_over_now(cluster).await);
                tokio::time::sleep(HAND_OVER_PAUSE).await;
            }
        }
        std::future::pending().await
    }

    /// The last round of it.
    pub(in crate::session) async fn give_away_rest(&self) {
        if let Some(cluster) = self.shelf.cluster.as_deref() {
            drop(self.hand_over_now(cluster).await);
        }
    }

    /// Goes on handing over until nothing is left.
    pub fn keep_handing_over(&self) {
        // Once: it does not end before nothing is left.
        if self.shelf.tenure.hands_over.swap(true, Ordering::AcqRel) {
            return;
        }
        let manager = Self { shelf: Arc::clone(&self.shelf) };
        tokio::spawn(async move {
            while !matches!(manager.hand_over(FOREVER).await, Ok(0)) && !manager.shelf.is_closing() {
                tokio::time::sleep(TELL).await;
            }
            manager.shelf.tenure.hands_over.store(false, Ordering::Release);
        });
    }

    /// Hands over all trees in which nothing runs. How many are left.
    async fn hand_over_now(&self, cluster: &dyn Cluster) -> Result<usize, ApiError> {
        let mut trees: HashMap<SessionId, Vec<_>> = HashMap::new();
        for live in self.shelf.lives.lock().values() {
            trees.entry(live.root.clone()).or_default().push(Arc::clone(live));
        }
        let mut busy = Vec::new();
        for (root, lives) in trees {
            let Some(moving) = self.shelf.tenure.begin(&root) else {
                busy.push(root);
                continue;
            };
            let is_busy = lives.iter().any(|live| matches!(live.doing().0, Doing::Runs | Doing::Waits));
            if is_busy || !self.rest_all(&lives).await {
                busy.push(root);
                continue;
            }
            cluster.let_go(&root).await.map_err(|e| store_failure(&e))?;
            drop(moving);
        }
        let count = busy.len();
        let (resting, moving) = self.shelf.tenure.give_rest();
        busy.extend(moving);
        busy.extend(self.shelf.lives.lock().values().map(|live| live.root.clone()));
        let let_go = cluster.let_go_but(&busy).await;
        drop(resting);
        let_go.map_err(|e| store_failure(&e))?;
        Ok(count)
    }

    /// Lets sessions leave memory, their readers too. False: something has begun in one of them.
    async fn rest_all(&self, lives: &[Arc<Live>]) -> bool {
        for live in lives {
            if !live.rest().await {
                return false;
            }
        }
        true
    }
}
