//! The seam by which a tool starts other sessions, talks to them, waits for them and ends them. A session fills it, for the
//! time of a turn.

use std::fmt::Debug;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use crate::protocol::{ApiError, Coordination, Isolation, Merge, Reasoning, RunId, SessionId, TurnStatus};

/// What a new session under this one is to be and to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawn {
    /// The call that asks for it.
    pub call_id: String,
    /// A defined agent, or a type of agent. None: the default type.
    pub agent: Option<String>,
    /// What it is to do.
    pub task: String,
    /// Its model. None: that of its type, else of this session.
    pub model: Option<String>,
    /// How much it thinks. None: as its type says, else as this session does.
    pub reasoning: Option<Reasoning>,
    /// What it is called here.
    pub name: Option<String>,
    /// Whether nobody waits for it.
    pub background: bool,
    /// Where it works.
    pub isolation: Isolation,
    /// How it works with those beside it.
    pub coordination: Coordination,
    /// The tools it may use, of those that this session has. `*`: all. None: as its type says.
    pub tools: Option<Vec<String>>,
}

/// How a session under this one is, by its newest run.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildState {
    /// The session.
    pub session: SessionId,
    /// What it is called here.
    pub name: Option<String>,
    /// Its newest run. None: it has none.
    pub run: Option<RunId>,
    /// Where that is.
    pub status: TurnStatus,
    /// Its final text, or why there is none.
    pub text: String,
    /// What became of what it did in a working tree of its own.
    pub merge: Option<Merge>,
}

/// The sessions under one.
pub trait Children: Debug + Send + Sync + 'static {
    /// Starts a session and gives it its task. It may have to wait for room.
    ///
    /// # Errors
    /// `FORBIDDEN`, `RESOURCE_EXHAUSTED` or `INVALID_ARGUMENT`: then there is none.
    fn spawn(&self, spawn: Spawn) -> BoxFuture<'_, Result<ChildState, ApiError>>;

    /// The session of that id or that name.
    ///
    /// # Errors
    /// `NOT_FOUND`: it is no session under this one.
    fn find<'a>(&'a self, who: &'a str) -> BoxFuture<'a, Result<SessionId, ApiError>>;

    /// Tells a session something: into what it does, or as the next thing to do.
    ///
    /// # Errors
    /// Why it is not told.
    fn send<'a>(
        &'a self,
        to: &'a SessionId,
        message: String,
        call_id: &'a str,
    ) -> BoxFuture<'a, Result<ChildState, ApiError>>;

    /// Waits until all of them, or any, are done; at most so long. How each is then.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn wait<'a>(
        &'a self,
        whom: &'a [SessionId],
        all_and_patience: (bool, Option<Duration>),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ChildState>, ApiError>>;

    /// Ends what a session does, and what those under it do.
    ///
    /// # Errors
    /// Why that cannot be done.
    fn kill<'a>(&'a self, whom: &'a SessionId) -> BoxFuture<'a, Result<ChildState, ApiError>>;
}
