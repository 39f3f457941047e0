//! What a store that several servers share says of them: who they are, and who has which session.
//!
//! A session, with all under it, is held by one node. The one that made it has it, or the one that was asked for it when nobody had it.
//! Writes of anybody else are refused by the store.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{BoxFuture, ClientSpending, SessionRow, StoreError, TurnRow};
use crate::protocol::{ClientId, NodeView, SessionId};

/// A node that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number; never given twice.
    pub number: i64,
    /// For people: machine and process.
    pub name: String,
    /// Where other servers reach it.
    pub url: String,
}

/// Who has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// There is no such session.
    Nowhere,
    /// This node.
    Here {
        /// The session above all of its tree, or itself.
        root: SessionId,
    },
    /// Another one that is there.
    Elsewhere(Holder),
    /// Nobody who is there: it may be taken.
    Free {
        /// The session above all of its tree, or itself.
        root: SessionId,
    },
    /// Nobody who is there, and this node does not reach its workspace.
    OutOfReach {
        /// Labels of which a node has to have one.
        labels: Vec<String>,
    },
}

/// What a tree of sessions has left open: what whoever takes it has to deal with.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Turns that are not over, oldest first.
    pub turns: Vec<TurnRow>,
    /// Sessions that have not done with runs of sessions under them, oldest first.
    pub with_children: Vec<SessionRow>,
}

/// How much a node has to do, as it tells the others with each beat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Sessions in memory.
    pub awake: u64,
    /// Turns that run.
    pub running: u64,
}

/// Who is there on a node, for sessions of others: they have somebody who can be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Sessions that somebody reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
    /// Clients that are there for all of theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Option<ClientId>>,
}

/// How many commands a client has given to a node since that was told last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandsGiven {
    /// Its name; empty: all that say none.
    pub client: String,
    /// Whether they are controls.
    pub control: bool,
    /// So many.
    pub count: u32,
}

/// A letter to this node, which has taken it.
#[derive(Debug)]
pub struct Letter {
    /// Never given twice.
    pub id: i64,
    /// What it says.
    pub request: Vec<u8>,
    /// Fires when nobody waits for its answer any more.
    pub gone: CancellationToken,
}

/// What has become of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replied {
    /// It was answered.
    With(Vec<u8>),
    /// It was not taken, and never will be: nothing was done.
    Never,
    /// It was taken, or may have been, and no answer comes: it may have been done.
    Lost,
}

/// What nodes that do not reach one another say through the store, and what is answered. What it means is none of the store's.
pub trait Letters: Send + Sync + 'static {
    /// Sends a letter to a node (and whether it is urgent: not to wait behind others), and waits for its answer: as long as that node is
    /// there, and `given_up` has not come. One that is not taken for a while is withdrawn. Nothing is left of it when this has ended, or is
    /// dropped.
    fn exchange<'a>(
        &'a self,
        to: (i64, bool),
        request: Vec<u8>,
        given_up: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<Replied, StoreError>>;

    /// Waits for a letter to this node, urgent or not, and takes it. Each is given once.
    fn next(&self, is_urgent: bool) -> BoxFuture<'_, Result<Letter, StoreError>>;

    /// Answers a letter that was taken. None: it is not answered.
    fn answer(&self, id: i64, answer: Option<Vec<u8>>) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// The servers that share a store.
pub trait Cluster: Send + Sync + 'static {
    /// What all of them know and nobody else: by it they know one another.
    fn secret(&self) -> &str;

    /// The number of this one.
    fn own(&self) -> i64;

    /// Who has a session. Takes nothing.
    fn look<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Held, StoreError>>;

    /// Waits until a node was seen to be there later than at that moment.
    fn hears(&self, node: i64, since: Instant) -> BoxFuture<'_, ()>;

    /// Takes a session, and all under it, where nobody who is there has it. False: somebody was faster, or this node takes none, or does not
    /// reach its workspace.
    fn take<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Gives up a session and all under it. Nothing of them may be under way here.
    fn let_go<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Gives up all sessions but those trees.
    fn let_go_but<'a>(&'a self, kept: &'a [SessionId]) -> BoxFuture<'a, Result<u64, StoreError>>;

    /// What a tree has left open.
    fn unfinished<'a>(&'a self, root: &'a SessionId) -> BoxFuture<'a, Result<Unfinished, StoreError>>;

    /// Trees in reach that have something left open and that nobody who is there has; some of them, in no order.
    fn left_behind(&self, limit: usize) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>>;

    /// Changes when a node is there no longer.
    fn departures(&self) -> watch::Receiver<u64>;

    /// Changes with the number of the newest event of a session, whichever node has written it; breaks when the session is gone.
    fn follow<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<watch::Receiver<u64>, StoreError>>;

    /// Keeps a text that all nodes know, under its kind and its id.
    fn keep_note<'a>(&'a self, kind: &'a str, id: &'a str, body: String) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Forgets such texts.
    fn forget_notes<'a>(&'a self, kind: &'a str, ids: Vec<String>) -> BoxFuture<'a, Result<(), StoreError>>;

    /// All of a kind, by id.
    fn notes<'a>(&'a self, kind: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// What each of those clients has spent on all nodes but this one, in the newest span of time in which it has spent anything there.
    fn spent_elsewhere<'a>(
        &'a self,
        clients: &'a [Option<ClientId>],
    ) -> BoxFuture<'a, Result<Vec<ClientSpending>, StoreError>>;

    /// Changes when another node may have changed what all of them know: such texts, and grants that outlive their sessions.
    fn changes(&self) -> watch::Receiver<u64>;

    /// The nodes that are there, and those that are over and not forgotten yet.
    fn nodes(&self) -> BoxFuture<'_, Result<Vec<NodeView>, StoreError>>;

    /// Tells the others how much there is to do, from now on.
    fn tell_load(&self, load: Load);

    /// Tells the others who is there. What is lost is told again by whoever told it.
    fn tell_presence(&self, presence: Presence);

    /// What others tell of it.
    fn presence(&self) -> broadcast::Receiver<Presence>;

    /// Tells the others how many commands clients have given here. What is lost is not told again.
    fn tell_commands(&self, given: Vec<CommandsGiven>);

    /// What others tell of it.
    fn commands(&self) -> broadcast::Receiver<Vec<CommandsGiven>>;

    /// Letters between the nodes.
    fn letters(&self) -> &dyn Letters;

    /// From now on this node takes no sessions, and the others are told so.
    fn drain(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Whether it does.
    fn is_draining(&self) -> bool;
}
