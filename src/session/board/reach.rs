//! What a turn's tools can do with what their tree shares. The turn's session may stand anywhere in the tree: all of it is done
//! by the session above all.

use std::sync::{Arc, Weak};

use serde_json::Value;

use super::BoardChange;
use crate::base::BoxFuture;
use crate::protocol::{
    ApiError, BoardEntry, BoardKey, Lineage, PromptContent, PromptMode, SessionId, TaskView, TreeMember,
};
use crate::session::actor::{BoardOrder, NewPrompt, Order};
use crate::session::live::Live;
use crate::session::manager::{Manager, Shelf};
use crate::tool::{Scope, TaskOrder, Tree};

/// The tree of a turn's session.
struct TurnTree {
    /// The session. It is not kept in memory by this.
    live: Weak<Live>,
    /// The one above all, where that is another one.
    root: Option<Weak<Live>>,
    /// Who the session is in its tree.
    member: TreeMember,
    /// The one that has made it.
    parent: Option<SessionId>,
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
    let parent = lineage.and_then(|of| of.parent().cloned());
    let root = root.map(|(root, _)| Arc::downgrade(root));
    let tree = TurnTree { live: Arc::downgrade(live), root, member, parent, shelf: Arc::clone(shelf) };
    *scope.tree.lock() = Some(Arc::new(tree));
}

impl TurnTree {
    /// The session above all.
    fn root(&self) -> Result<Arc<Live>, ApiError> {
        let root = self.root.as_ref().unwrap_or(&self.live);
        root.upgrade().ok_or_else(|| ApiError::not_found("the session above all"))
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
        Box::pin(async move { self.root()?.change_board(change).await })
    }

    fn tasks(&self) -> BoxFuture<'_, Result<Vec<TaskView>, ApiError>> {
        Box::pin(async move { self.root()?.tasks().await })
    }

    fn change_tasks(&self, order: TaskOrder) -> BoxFuture<'_, Result<Option<TaskView>, ApiError>> {
        Box::pin(async move { self.root()?.change_tasks(order, self.member.clone()).await })
    }

    fn notify_parent(&self, message: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let none = || ApiError::conflict("no session stands above this one: there is no parent to be notified");
            let parent = self.parent.as_ref().ok_or_else(none)?;
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

    /// Changes the board. What stands there then; None: nothing does any more.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub async fn change_board(&self, change: BoardChange) -> Result<Option<Arc<BoardEntry>>, ApiError> {
        let order = |reply| BoardOrder::Change(Box::new(change), reply);
        self.ask(|reply| Order::Board(order(reply))).await?
    }

    /// The tasks of the tree that this session is above, in the order in which they were created.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted; what the store says.
    pub async fn tasks(&self) -> Result<Vec<TaskView>, ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::Tasks(reply))).await?
    }

    /// Changes the list of tasks. The task that it is about, as it is then; None: it is gone.
    async fn change_tasks(&self, order: TaskOrder, by: TreeMember) -> Result<Option<TaskView>, ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::ChangeTasks(Box::new((order, by)), reply))).await?
    }

    /// Takes everything off the board.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub async fn clear_board(&self) -> Result<(), ApiError> {
        self.ask(|reply| Order::Board(BoardOrder::Clear(reply))).await?
    }
}
