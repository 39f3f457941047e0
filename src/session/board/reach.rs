//! What a turn's tools can do with what their tree shares. The turn's session may stand anywhere in the tree: all of it is done
//! by the session above all.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::BoardChange;
use crate::base::{BoxFuture, limit};
use crate::protocol::{
    ApiError, BoardEntry, BoardKey, Coordination, Lineage, PromptContent, PromptMode, SessionId, TaskView, TreeMember,
};
use crate::session::actor::{BoardOrder, ChildOrder, NewPrompt, Order};
use crate::session::live::Live;
use crate::session::locks::Claimant;
use crate::session::manager::{Manager, Shelf};
use crate::session::receipt::Receipt;
use crate::session::store_failure;
use crate::store::SessionRow;
use crate::tool::{HeldPath, Scope, TaskOrder, Tree};

/// The tree of a turn's session.
struct TurnTree {
    /// The session. It is not kept in memory by this.
    live: Weak<Live>,
    /// The one above all, where that is another one.
    root: Option<Weak<Live>>,
    /// Who the session is in its tree.
    member: TreeMember,
    /// Those above it: the root first, the one that has made it last.
    above: Vec<SessionId>,
    /// Whether it was started as a peer of others.
    is_peer: bool,
    shelf: Arc<Shelf>,
}

impl std::fmt::Debug for TurnTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnTree").field("member", &self.member).finish_non_exhaustive()
    }
}

/// Lets the tools of a turn know what its session shares with the others of its tree, of which `root` is above all.
pub(in crate::session) fn lend_tree(
    (scope, live): (&Scope, &Arc<Live>),
    shelf: &Arc<Shelf>,
    root: Option<(&Arc<Live>, &Lineage)>,
) {
    let lineage = root.map(|(_, lineage)| lineage);
    let member = TreeMember { session_id: live.id.clone(), name: lineage.and_then(|of| of.name.clone()) };
    let above = lineage.map(|of| of.path.clone()).unwrap_or_default();
    let is_peer = lineage.is_some_and(|of| of.coordination == Coordination::Peer);
    let root = root.map(|(root, _)| Arc::downgrade(root));
    let tree = TurnTree { live: Arc::downgrade(live), root, member, above, is_peer, shelf: Arc::clone(shelf) };
    *scope.tree.lock() = Some(Arc::new(tree));
}

impl TurnTree {
    fn root_id(&self) -> &SessionId {
        self.above.first().unwrap_or(&self.member.session_id)
    }

    /// The session above all.
    fn root(&self) -> Result<Arc<Live>, ApiError> {
        let root = self.root.as_ref().unwrap_or(&self.live);
        root.upgrade().ok_or_else(|| ApiError::not_found("the session above all"))
    }
}

impl TurnTree {
    /// The sessions that were started as peers of this one, newest first.
    async fn peers(&self) -> Result<Vec<SessionRow>, ApiError> {
        if !self.is_peer {
            return Err(ApiError::conflict("this session was not started as a peer of others: tell your parent"));
        }
        let mut found: Vec<SessionRow> = Vec::new();
        let mut after: Option<SessionId> = None;
        loop {
            let page = self.shelf.store.family(self.root_id(), after.as_ref(), limit::PAGE_ITEMS_MAX).await;
            let page = page.map_err(|error| store_failure(&error))?;
            let more = page.len() >= limit::PAGE_ITEMS_MAX;
            after = page.last().map(|row| row.id.clone());
            found.extend(page.into_iter().filter(|row| {
                row.id != self.member.session_id
                    && row
                        .lineage
                        .as_ref()
                        .is_some_and(|of| of.path == self.above && of.coordination == Coordination::Peer)
            }));
            if !more {
                return Ok(found);
            }
        }
    }
}

impl Drop for TurnTree {
    fn drop(&mut self) {
        // The turn is over.
        self.release(None);
    }
}

impl Tree for TurnTree {
    fn entries(&self) -> BoxFuture<'_, Result<Vec<Arc<BoardEntry>>, ApiError>> {
        Box::pin(async move { self.root()?.board().await })
    }

    fn put(
        &self,
        key: BoardKey,
        (value, if_version): (Option<Value>, Option<u64>),
    ) -> BoxFuture<'_, Result<Option<Arc<BoardEntry>>, ApiError>> {
        let change = BoardChange { key, value, if_version, by: Some(self.member.clone()) };
        Box::pin(async move { self.root()?.change_board(change, None).await })
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskView>, ApiError>> {
        Box::pin(async move { self.root()?.tasks().await })
    }

    fn change_tasks(&self, order: TaskOrder) -> BoxFuture<'_, Result<Option<TaskView>, ApiError>> {
        Box::pin(async move { self.root()?.change_tasks(order, Some(self.member.clone()), None).await })
    }

    fn send_to_peer<'a>(&'a self, who: &'a str, message: String) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let peers = self.peers().await?;
            let name = |row: &SessionRow| row.lineage.as_ref().and_then(|lineage| lineage.name.clone());
            let meant = peers.iter().find(|row| row.id.as_str() == who || name(row).as_deref() == Some(who));
            let row = meant.ok_or_else(|| {
                let names: Vec<String> =
                    peers.iter().map(|row| name(row).unwrap_or_else(|| row.id.to_string())).collect();
                let there = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
                ApiError::not_found(format!("peer `{who}`; beside you there is: {there}"))
            })?;
            let manager = Manager { shelf: Arc::clone(&self.shelf) };
            let peer = manager.live(row.client.as_ref(), &row.id).await?;
            let prompt = Box::new(said_by(&self.member, &message));
            peer.tell_of_child(|reply| ChildOrder::Say(prompt, reply)).await?
        })
    }

    fn has_others(&self) -> bool {
        self.root.is_some() || self.shelf.lanes.has_open(&self.member.session_id)
    }

    fn claim(&self, paths: &[PathBuf], patience: Option<Duration>) -> Result<(), HeldPath> {
        let how = (patience.unwrap_or(Duration::from_millis(limit::LOCK_MS)), patience.is_some(), Instant::now());
        let who = Claimant { member: &self.member, above: &self.above };
        self.shelf.locks.claim(self.root_id(), who, paths, how)
    }

    fn release(&self, paths: Option<&[PathBuf]>) -> Vec<PathBuf> {
        self.shelf.locks.release(self.root_id(), &self.member.session_id, paths)
    }

    fn notify_parent(&self, message: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let none = || ApiError::conflict("no session stands above this one: there is no parent to be notified");
            let parent = self.above.last().ok_or_else(none)?;
            let live = self.live.upgrade().ok_or_else(none)?;
            let manager = Manager { shelf: Arc::clone(&self.shelf) };
            let parent = manager.live(live.client.as_ref(), parent).await?;
            parent.prompt(said_by(&self.member, &message)).await.map(drop)
        })
    }
}

/// What a session of the tree says to another one: into what that does, or as the next thing to do.
fn said_by(member: &TreeMember, message: &str) -> NewPrompt {
    let name = member.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
    NewPrompt {
        content: PromptContent::Text(format!("[Sub-agent {name}{}]: {message}", member.session_id)),
        mode: PromptMode::Steer,
        configure: None,
        only: None,
        task: None,
        if_version: None,
        receipt: None,
    }
}

impl Live {
    /// What stands on the board of the tree that this session is above, in the order of the keys.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted; what the store says.
    pub async fn board(&self) -> Result<Vec<Arc<BoardEntry>>, ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::Look(reply))).await?
    }

    /// Changes the board. What stands there then; None: nothing does any more. The receipt of a command goes into the same commit.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub async fn change_board(
        &self,
        change: BoardChange,
        receipt: Option<Arc<Receipt>>,
    ) -> Result<Option<Arc<BoardEntry>>, ApiError> {
        let order = |reply| BoardOrder::Change(Box::new((change, receipt)), reply);
        self.ask(|reply| Order::Board(order(reply))).await?
    }

    /// The tasks of the tree that this session is above, in the order in which they were created.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted; what the store says.
    pub async fn tasks(&self) -> Result<Vec<TaskView>, ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::Tasks(reply))).await?
    }

    /// Changes the list of tasks, for somebody of the tree or (None) a client. The task that it is about, as it is then; None: it
    /// is gone. The receipt of a command goes into the same commit.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub async fn change_tasks(
        &self,
        order: TaskOrder,
        by: Option<TreeMember>,
        receipt: Option<Arc<Receipt>>,
    ) -> Result<Option<TaskView>, ApiError> {
        let order = |reply| BoardOrder::ChangeTasks(Box::new((order, by, receipt)), reply);
        self.ask(|reply| Order::Board(order(reply))).await?
    }

    /// Takes everything off the board. The receipt of a command goes into the same commit.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub async fn clear_board(&self, receipt: Option<Arc<Receipt>>) -> Result<(), ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::Clear(receipt, reply))).await?
    }
}
