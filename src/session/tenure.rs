//! Which sessions are this node's, where several servers share a store.
//!
//! A session and all under it are one node's at a time. Who is asked for a session that nobody has takes it, deals with what its last
//! node left open, and only then is anything done in it. When a node is gone, those that are left share out among them what it has left
//! open. Who is there is told to the node that has the session, once a second: so somebody who reads on another node can be asked.
//!
//! Invariant: a session wakes only on the node that has it, and not before what was left open is dealt with.

mod company;
mod giving;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

pub use self::company::{CHANGES_MISSED_MAX, Company};
use super::actor::view_of;
use super::live::Live;
use super::manager::Manager;
use super::store_failure;
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode, SessionId, SessionView, TurnStatus};
use crate::store::{BoxFuture, Cluster, Held, Holder, StoreError, Unfinished};

/// Trees that are looked for, and those that are taken at the same time.
const TREES: (usize, usize) = (64, 8);
/// How long a session may take to hear of what it has stored, and the pause between two looks.
const KNOWN_MAX: Duration = Duration::from_secs(5);
const KNOWN_PAUSE: Duration = Duration::from_millis(5);
/// Time between two looks whether this server is in touch.
const TOUCH_PAUSE: Duration = Duration::from_millis(250);
/// Time between two tellings of who is there and what there is to do.
const TELL: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The tree that this task takes.
    static TAKES: SessionId;
}

/// What this node does with sessions that change hands.
#[derive(Debug, Default)]
pub(super) struct Tenure {
    room: Room,
    /// Trees that are being taken or given up here.
    moving: Mutex<Moves>,
    moved: Notify,
    /// Trees that were taken, and of which not all that was left open could be dealt with yet.
    unfinished: Mutex<HashSet<SessionId>>,
    /// How many here read sessions of other nodes and could be asked.
    attended: Counts,
    /// How many here read them at all.
    read: Counts,
    /// The node that reaches the same as this one and has least to do: so many turns run there.
    idler: Mutex<Option<(u64, Holder)>>,
    /// Whether it hands over what it has.
    hands_over: AtomicBool,
    /// Trees that this node has taken since its start.
    taken: AtomicU64,
    /// Nodes that are there, and of them those that take sessions, when it was last looked.
    nodes: Mutex<[u64; 2]>,
}

/// Room for trees that are taken: those that are usable first do not wait for all others.
#[derive(Debug)]
struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(TREES.1))
    }
}

/// So many of each session.
type Counts = Arc<Mutex<HashMap<SessionId, usize>>>;

/// What changes hands.
#[derive(Debug, Default)]
struct Moves {
    trees: HashSet<SessionId>,
    /// All that is not in memory is given up.
    rest: bool,
}

/// As long as it lives, nobody else here begins anything in a tree.
struct Moving<'a> {
    tenure: &'a Tenure,
    root: SessionId,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.tenure.moving.lock().trees.remove(&self.root);
        self.tenure.moved.notify_waiters();
    }
}

/// One of those that are counted, as long as it lives.
#[derive(Debug)]
pub(super) struct Counted {
    counts: Counts,
    id: SessionId,
}

/// While it lives, a session of another node has somebody here who can be asked.
pub(super) type AttendsElsewhere = Counted;
/// A reader of a session of another node.
pub(super) type Reads = Counted;

impl Counted {
    /// None: `most` are there already.
    fn one_of(counts: &Counts, id: &SessionId, most: usize) -> Option<Self> {
        let mut now = counts.lock();
        let count = now.entry(id.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self { counts: Arc::clone(counts), id: id.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.id);
            }
        }
    }
}

/// As long as it lives, nothing wakes here.
struct Resting<'a>(&'a Tenure);

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.moving.lock().rest = false;
        self.0.moved.notify_waiters();
    }
}

impl Tenure {
    /// None: somebody is at that tree.
    fn begin(&self, root: &SessionId) -> Option<Moving<'_>> {
        self.moving.lock().trees.insert(root.clone()).then(|| Moving { tenure: self, root: root.clone() })
    }

    /// Whether sessions of a tree may wake now. To be asked under the lock of those that are awake.
    pub(super) fn may_wake(&self, root: &SessionId) -> bool {
        let moving = self.moving.lock();
        let takes_it = TAKES.try_with(|takes| takes == root).unwrap_or(false);
        takes_it || !moving.rest && !moving.trees.contains(root)
    }

    /// Waits while somebody else is at that tree. Whether it had to.
    async fn settled(&self, root: &SessionId) -> bool {
        let mut waited = false;
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.may_wake(root) {
                return waited;
            }
            waited = true;
            moved.await;
        }
    }

    /// From now on nothing wakes, until what is returned is dropped. The trees that are moving.
    fn give_rest(&self) -> (Resting<'_>, Vec<SessionId>) {
        let mut moving = self.moving.lock();
        moving.rest = true;
        (Resting(self), moving.trees.iter().cloned().collect())
    }

    /// None: nobody more can be counted.
    pub(super) fn attend(&self, id: &SessionId) -> Option<AttendsElsewhere> {
        Counted::one_of(&self.attended, id, usize::MAX)
    }

    /// One more that reads a session of another node. None: `most` do already.
    pub(super) fn read(&self, id: &SessionId, most: usize) -> Option<Reads> {
        Counted::one_of(&self.read, id, most)
    }
}

/// Where what is asked of a session is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this node.
    Here,
    /// On that one.
    At(Holder),
}

/// The reasons in the refusal of what only nodes can do that are not there.
const OUT_OF_REACH: &str = "workspace out of reach";
const NONE_TAKES: &str = "no server takes it";

/// The refusal where no node that is there reaches a session's workspace.
fn out_of_reach(id: &SessionId, labels: &[String]) -> ApiError {
    let all = labels.join(", ");
    let message = format!(
        "session {id} works in a workspace that no server reaches which is there: expected one with the label {all}"
    );
    let details = serde_json::json!({ "reason": OUT_OF_REACH, "labels": labels });
    ApiError::new(ErrorCode::UpstreamUnavailable, message).with_details(details)
}

/// The refusal of a node that takes no sessions, where no other one does.
fn none_takes(id: &SessionId) -> ApiError {
    let message = format!("this server hands its sessions over, and no other one is there that takes session {id}");
    ApiError::new(ErrorCode::UpstreamUnavailable, message).with_details(serde_json::json!({ "reason": NONE_TAKES }))
}

/// Whether nobody is there to take the session: that is why it was refused. What is written can be read nevertheless.
pub fn is_nobodys(error: &ApiError) -> bool {
    let reason = error.0.details.as_ref().map(|details| &details["reason"]);
    reason.is_some_and(|reason| reason == OUT_OF_REACH || reason == NONE_TAKES)
}

/// The refusal of a node that cannot know what is stored.
fn out_of_touch() -> ApiError {
    let lost = "this server has lost touch with the database, and another one may have followed it: ask again";
    ApiError::new(ErrorCode::UpstreamUnavailable, lost)
}

/// The refusal of a node that does not have the session.
fn elsewhere(id: &SessionId, holder: &Holder) -> ApiError {
    let message = format!("session {id} is held by another server, {}", holder.name);
    let details = serde_json::json!({ "reason": "held elsewhere", "node": holder.number });
    ApiError::new(ErrorCode::UpstreamUnavailable, message).with_details(details)
}

impl Manager {
    /// Where what is asked of a session is done. `takes`: here, where nobody has it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn whereabouts(&self, id: &SessionId, takes: bool) -> Result<Whereabouts, ApiError> {
        let Some(cluster) = self.shelf.cluster.as_deref() else { return Ok(Whereabouts::Here) };
        if self.is_awake(id) {
            self.until_in_touch().await?;
            return Ok(Whereabouts::Here);
        }
        loop {
            match self.look(cluster, id).await? {
                Held::Nowhere => return Ok(Whereabouts::Here),
                Held::Here { root } => {
                    if self.shelf.tenure.settled(&root).await {
                        // It may have been given up meanwhile.
                        continue;
                    }
                    if takes && self.is_unfinished(&root) {
                        self.take_tree(cluster, &root).await?;
                        continue;
                    }
                    return Ok(Whereabouts::Here);
                }
                Held::Elsewhere(holder) => return Ok(Whereabouts::At(holder)),
                Held::Free { .. } | Held::OutOfReach { .. } if !takes => return Ok(Whereabouts::Here),
                Held::Free { .. } if self.takes_none(cluster) => {
                    let other = self.another_node(cluster, None).await?;
                    return other.map(Whereabouts::At).ok_or_else(|| none_takes(id));
                }
                Held::Free { root } => self.take_tree(cluster, &root).await?,
                // Who reaches it takes it when it is asked.
                Held::OutOfReach { labels } => {
                    let other = self.another_node(cluster, Some(&labels)).await?;
                    return other.map(Whereabouts::At).ok_or_else(|| out_of_reach(id, &labels));
                }
            }
        }
    }

    /// Asks the database who has a session, and waits for that as long as for one that is here.
    async fn look(&self, cluster: &dyn Cluster, id: &SessionId) -> Result<Held, ApiError> {
        tokio::select! {
            held = cluster.look(id) => held.map_err(|error| store_failure(&error)),
            () = self.out_of_touch_for_long() => Err(out_of_touch()),
        }
    }

    async fn out_of_touch_for_long(&self) {
        loop {
            if let Some(known) = self.shelf.store.out_of_touch()
                && tokio::time::timeout(KNOWN_MAX, known).await.is_err()
            {
                return;
            }
            tokio::time::sleep(TOUCH_PAUSE).await;
        }
    }

    /// Whether the server ends.
    pub fn is_stopping(&self) -> bool {
        self.shelf.is_closing()
    }

    /// Whether a session is in memory here.
    pub fn is_awake(&self, id: &SessionId) -> bool {
        self.shelf.lives.lock().contains_key(id)
    }

    /// Waits until a session that is awake here has heard that its event of that number is stored, if it is: who was shown it by another node
    /// may be faster than the end of the commit here.
    ///
    /// # Errors
    /// `UPSTREAM_UNAVAILABLE`: the database does not say whether it is.
    pub async fn until_known(&self, live: &Live, seq: u64) -> Result<(), ApiError> {
        let known = async {
            while self.shelf.cluster.is_some() && !live.has_stored(seq) {
                match self.shelf.store.last_seq(live.id()).await {
                    Ok(last) if last < seq => return,
                    Err(StoreError::NoSession(_)) => return,
                    Ok(_) | Err(_) => {}
                }
                tokio::time::sleep(KNOWN_PAUSE).await;
            }
        };
        tokio::time::timeout(KNOWN_MAX, known).await.map_err(|_| out_of_touch())
    }

    /// Waits until nobody can have gone on with what is in memory here: a node that was frozen, or is cut off, may be followed.
    async fn until_in_touch(&self) -> Result<(), ApiError> {
        let Some(known) = self.shelf.store.out_of_touch() else { return Ok(()) };
        tokio::time::timeout(KNOWN_MAX, known).await.map_err(|_| out_of_touch())
    }

    /// Waits until it has heard of all that is stored of it, and nobody else can have gone on with it.
    ///
    /// # Errors
    /// `UPSTREAM_UNAVAILABLE`: somebody may have.
    pub(super) async fn until_all_known(&self, live: &Live) -> Result<(), ApiError> {
        self.until_in_touch().await?;
        if self.shelf.cluster.is_none() {
            return Ok(());
        }
        let last = tokio::time::timeout(KNOWN_MAX, self.shelf.store.last_seq(live.id())).await;
        match last {
            Ok(Ok(last)) => self.until_known(live, last).await,
            // It is being deleted.
            Ok(Err(StoreError::NoSession(_))) => Ok(()),
            Ok(Err(error)) => Err(store_failure(&error)),
            Err(_) => Err(out_of_touch()),
        }
    }

    /// A session's view with what is open in it: another server has it, or nobody has it yet.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn view_elsewhere(&self, mut view: SessionView) -> Result<SessionView, StoreError> {
        let store = &self.shelf.store;
        for turn in store.turns(&view.session_id, None, limit::PAGE_ITEMS_MAX).await? {
            match turn.record.status {
                TurnStatus::Queued => view.queued += 1,
                TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => view.turn = Some(turn.record),
                TurnStatus::Completed | TurnStatus::Failed | TurnStatus::Aborted | TurnStatus::Interrupted => {}
            }
        }
        if view.turn.is_none() && view.queued == 0 {
            // It has ended since, and that is one commit with what has changed by it.
            if let Some(row) = store.session(&view.session_id).await? {
                return Ok(view_of(&row, store.last_seq(&row.id).await?));
            }
        }
        Ok(view)
    }

    /// Makes sure that a session is this node's.
    ///
    /// # Errors
    /// `UPSTREAM_UNAVAILABLE` when another one has it; what the store says.
    pub(super) async fn hold(&self, id: &SessionId) -> Result<(), ApiError> {
        match self.whereabouts(id, true).await? {
            Whereabouts::Here => Ok(()),
            Whereabouts::At(holder) => Err(elsewhere(id, &holder)),
        }
    }

    fn takes_none(&self, cluster: &dyn Cluster) -> bool {
        self.shelf.is_closing() || cluster.is_draining()
    }

    /// Takes a tree that nobody has, and deals with what was left open in it.
    async fn take_tree(&self, cluster: &dyn Cluster, root: &SessionId) -> Result<(), ApiError> {
        let Some(_moving) = self.shelf.tenure.begin(root) else {
            self.shelf.tenure.settled(root).await;
            return Ok(());
        };
        // What asks for a tree while it takes one has its room already. Nobody closes it.
        let is_within = TAKES.try_with(|_| ()).is_ok();
        let _room = if is_within { None } else { self.shelf.tenure.room.0.acquire().await.ok() };
        let taken = async {
            // Nobody else here is at it: if it is ours, it was taken before.
            match cluster.look(root).await? {
                Held::Here { .. } if self.is_unfinished(root) => {}
                // Before anything of it can be asked for here.
                Held::Free { .. } if cluster.take(root).await? => {
                    self.shelf.tenure.taken.fetch_add(1, Ordering::Relaxed);
                    self.shelf.tenure.unfinished.lock().insert(root.clone());
                }
                // What was left open in it is somebody else's to deal with, or nobody's.
                Held::Here { .. }
                | Held::Free { .. }
                | Held::Elsewhere(_)
                | Held::OutOfReach { .. }
                | Held::Nowhere => {
                    self.shelf.tenure.unfinished.lock().remove(root);
                    return Ok(());
                }
            }
            let unfinished = cluster.unfinished(root).await?;
            TAKES.scope(root.clone(), self.recover_boxed(unfinished)).await?;
            self.shelf.tenure.unfinished.lock().remove(root);
            Ok(())
        };
        taken.await.map_err(|error: StoreError| store_failure(&error))
    }

    /// Whether not all that was left open in a tree of this node could be dealt with yet. Who deals with it does not wait for that.
    fn is_unfinished(&self, root: &SessionId) -> bool {
        let takes_it = TAKES.try_with(|takes| takes == root).unwrap_or(false);
        !takes_it && self.shelf.tenure.unfinished.lock().contains(root)
    }

    /// In a box: dealing with one session may ask for others.
    fn recover_boxed(&self, unfinished: Unfinished) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.recover_from(unfinished))
    }

    /// Takes what nodes that are gone have left open, as far as nobody else is faster.
    ///
    /// # Errors
    /// What the store says.
    pub(super) async fn take_left_behind(&self, cluster: &dyn Cluster) -> Result<(), StoreError> {
        let unfinished: Vec<SessionId> = self.shelf.tenure.unfinished.lock().iter().cloned().collect();
        for root in unfinished {
            if let Err(error) = self.take_tree(cluster, &root).await {
                tracing::warn!(session = %root, %error, "what was left open could still not be dealt with; it is tried again");
            }
        }
        let mut before = HashSet::new();
        while !self.takes_none(cluster) {
            let mut trees = cluster.left_behind(TREES.0).await?;
            // One that could not be taken is not tried again and again.
            trees.retain(|root| before.insert(root.clone()));
            if trees.is_empty() {
                break;
            }
            let takes = trees.into_iter().map(|root| async move {
                if let Err(error) = self.take_tree(cluster, &root).await {
                    tracing::error!(session = %root, %error, "what a server that is gone has left open could not be taken");
                }
            });
            futures_util::stream::iter(takes).buffer_unordered(TREES.1).for_each(|()| async {}).await;
        }
        Ok(())
    }
}
