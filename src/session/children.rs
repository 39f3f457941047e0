//! Sessions that start others: what a turn's tools can do about them, and who hears what comes of them.
//!
//! - `coordination`: how they work with those beside them
//! - `lanes`: how many run at once
//! - `rights`: what a session under another one may do: at most what that one may
//! - `spawn`: how one comes to be
//! - `follow`: who waits for a run's end, and tells the session above
//! - `tree`: the sessions under one, as the store has them
//!
//! A session's actor owns which runs under it are not done with ([`OpenRun`]); each of them is followed by a task of its own, so
//! that a run that ends in whatever way (with an answer, a failure, an abort, a panic, the end of its session) is an end that
//! is told, and nobody waits for ever.

mod coordination;
mod follow;
mod lanes;
mod rights;
mod spawn;
pub(super) mod tree;
mod useless;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::actor::{ChildOrder, NewPrompt, Order};
use super::control::Command;
use super::live::Live;
use super::manager::{Manager, Shelf};
use super::{Terms, Workbench, store_failure};
use crate::base::BoxFuture;
use crate::protocol::{
    ApiError, ErrorBody, ErrorCode, EventBody, Merge, PromptContent, PromptMode, RequestId, RunId, SessionId, TurnId,
    TurnRecord, TurnStatus, Usage,
};
use crate::store::{OpenRun, SessionRow, SessionSettings, TurnRow, Write};
use crate::tool::{ChildState, Children, Registry, Spawn};

pub(super) use lanes::{Lanes, Slot, Unfinished};
pub use rights::{AgentRole, may_work_in};
pub(super) use rights::{Ceiling, ceilings, narrowed};
pub(super) use useless::of_no_use;

/// Ends of runs of which a session remembers what became of their working trees.
const MERGES_MAX: usize = 200;

/// Turns that are looked through for the newest run of a session.
const NEWEST_TURNS: usize = 20;

/// A session that is to be, as it is to be written down.
pub(super) struct NewChild {
    /// Its first run.
    pub(super) run: OpenRun,
    /// What is written beside the row of the session above.
    pub(super) writes: Vec<Write>,
    /// What the log of that one says.
    pub(super) events: Vec<EventBody>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(super) struct RunEnd {
    pub(super) session: SessionId,
    pub(super) turn: TurnId,
    pub(super) status: TurnStatus,
    pub(super) result: Option<String>,
    pub(super) error: Option<ErrorBody>,
    pub(super) duration_ms: u64,
    pub(super) rounds: u32,
    pub(super) usage: Usage,
    pub(super) merge: Option<Merge>,
}

impl RunEnd {
    /// By its record. None: its session is gone, or broke.
    pub(super) fn of(run: &OpenRun, record: Option<TurnRecord>, merge: Option<Merge>) -> Self {
        let (session, turn) = (run.session.clone(), run.turn.clone());
        let Some(record) = record else {
            let message = "its session is not there any more".to_owned();
            let error = Some(ErrorBody { code: ErrorCode::NotFound, message, details: None });
            let (status, usage) = (TurnStatus::Failed, Usage::default());
            return Self { session, turn, status, result: None, error, duration_ms: 0, rounds: 0, usage, merge };
        };
        let duration_ms = record.ended_at.unwrap_or(record.created_at).saturating_sub(record.created_at);
        let error = match record.status {
            TurnStatus::Completed => None,
            _ => Some(super::actor::reason_of(&record)),
        };
        Self {
            session,
            turn,
            status: record.status,
            result: record.result,
            error,
            duration_ms,
            rounds: record.rounds,
            usage: record.usage,
            merge,
        }
    }

    /// The run.
    pub(super) fn run_id(&self) -> RunId {
        RunId { session: self.session.clone(), turn: self.turn.clone() }
    }

    /// Its final text, or why there is none.
    fn text(&self) -> String {
        let why = || self.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
        self.result.clone().unwrap_or_else(why)
    }
}

/// The end of a run as the model above is told of it.
pub(super) fn told(end: &RunEnd, name: Option<&str>) -> String {
    let who = name.map(|name| format!("{name}, ")).unwrap_or_default();
    let how = match end.status {
        TurnStatus::Completed => "is done",
        TurnStatus::Aborted | TurnStatus::Interrupted => "was ended",
        _ => "failed",
    };
    let merge =
        end.merge.as_ref().map(|merge| format!("\n\n[{}]", crate::host::merge_words(merge))).unwrap_or_default();
    format!("[Sub-agent {who}{} {how}]\n{}{merge}", end.session, end.text())
}

/// A question of a session under the one above all.
#[derive(Debug)]
pub(super) struct AskedBelow {
    pub(super) session: SessionId,
    pub(super) request: RequestId,
    pub(super) call: Option<String>,
    /// Whether it is about permission.
    pub(super) permission: bool,
    /// As it stands in the log of who asks.
    pub(super) event: EventBody,
}

impl AskedBelow {
    pub(super) fn of(session: SessionId, event: &EventBody) -> Option<Self> {
        let (request, call, permission) = match event {
            EventBody::PermissionRequest { request_id, call_id, .. } => (request_id, Some(call_id.clone()), true),
            EventBody::ClientRequest { request_id, call_id, .. } => (request_id, call_id.clone(), false),
            _ => return None,
        };
        Some(Self { session, request: request.clone(), call, permission, event: event.clone() })
    }
}

/// What a session in memory knows of those under it.
#[derive(Debug, Default)]
pub(super) struct Brood {
    /// Grows with each run that is done with.
    settled: watch::Sender<u64>,
    /// Sessions for which a call waits, and how many do.
    watched: Mutex<HashMap<SessionId, usize>>,
    /// What became of the working trees of the newest ends.
    merges: Mutex<VecDeque<(RunId, Merge)>>,
}

impl Brood {
    /// Whether a call waits for a session, and will tell the model itself.
    pub(super) fn is_watched(&self, session: &SessionId) -> bool {
        self.watched.lock().contains_key(session)
    }

    /// A run is done with.
    pub(super) fn settled(&self, end: &RunEnd) {
        if let Some(merge) = &end.merge {
            let mut merges = self.merges.lock();
            merges.push_back((end.run_id(), merge.clone()));
            if merges.len() > MERGES_MAX {
                merges.pop_front();
            }
        }
        self.settled.send_modify(|count| *count += 1);
    }

    fn merge_of(&self, run: &RunId) -> Option<Merge> {
        self.merges.lock().iter().rev().find(|(of, _)| of == run).map(|(_, merge)| merge.clone())
    }
}

/// While it lives, a call waits for these sessions.
struct Watching<'a> {
    brood: &'a Brood,
    whom: &'a [SessionId],
}

impl<'a> Watching<'a> {
    fn of(brood: &'a Brood, whom: &'a [SessionId]) -> Self {
        let mut watched = brood.watched.lock();
        whom.iter().for_each(|session| *watched.entry(session.clone()).or_default() += 1);
        drop(watched);
        Self { brood, whom }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut watched = self.brood.watched.lock();
        for session in self.whom {
            if let Some(count) = watched.get_mut(session) {
                *count -= 1;
                if *count == 0 {
                    watched.remove(session);
                }
            }
        }
    }
}

/// What a turn's tools can do about sessions under its own.
pub(super) struct TurnChildren {
    /// The session. It is not kept in memory by this.
    pub(super) live: Weak<Live>,
    pub(super) shelf: Arc<Shelf>,
    pub(super) bench: Arc<dyn Workbench>,
    pub(super) terms: Arc<Terms>,
    pub(super) turn: TurnId,
    /// What the turn works with.
    pub(super) settings: SessionSettings,
    pub(super) registry: Arc<Registry>,
}

impl std::fmt::Debug for TurnChildren {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnChildren").field("turn", &self.turn).finish_non_exhaustive()
    }
}

impl TurnChildren {
    fn live(&self) -> Result<Arc<Live>, ApiError> {
        self.live.upgrade().ok_or_else(|| ApiError::not_found("the session"))
    }

    fn manager(&self) -> Manager {
        Manager { shelf: Arc::clone(&self.shelf) }
    }

    async fn row(&self, live: &Live) -> Result<SessionRow, ApiError> {
        let row = self.shelf.store.session(&live.id).await.map_err(|e| store_failure(&e))?;
        row.ok_or_else(|| ApiError::not_found(format!("session {}", live.id)))
    }

    /// How a session under this one is. `open`: runs that are not done with.
    async fn state(&self, live: &Live, session: &SessionId, open: &[OpenRun]) -> Result<ChildState, ApiError> {
        let manager = self.manager();
        let row = self.shelf.store.session(session).await.map_err(|e| store_failure(&e))?;
        let name = row.and_then(|row| row.lineage?.name.clone());
        let going = open.iter().rev().find(|run| run.session == *session && !run.ended).map(|run| run.turn.clone());
        let turn = match going {
            Some(turn) => Some(turn),
            None => {
                let newest =
                    self.shelf.store.turns(session, None, NEWEST_TURNS).await.map_err(|e| store_failure(&e))?;
                // Those that answer nothing are not what is asked about.
                let answers = |turn: &TurnRow| turn.record.task.is_none();
                newest.into_iter().find(answers).map(|turn| turn.record.turn_id)
            }
        };
        let gone = |error: &ApiError| error.code() == ErrorCode::NotFound;
        let record = match &turn {
            Some(turn) => match manager.turn(live.client.as_ref(), session, turn).await {
                Err(error) if gone(&error) => None,
                found => Some(found?),
            },
            None => None,
        };
        let run = turn.map(|turn| RunId { session: session.clone(), turn });
        let Some(record) = record else {
            let text = "its session is not there any more".to_owned();
            return Ok(ChildState {
                session: session.clone(),
                name,
                run,
                status: TurnStatus::Failed,
                text,
                merge: None,
            });
        };
        let merge = run.as_ref().and_then(|run| live.brood.merge_of(run));
        let status = record.status;
        let text = match record.result {
            Some(text) => text,
            None if status.is_terminal() => super::actor::reason_of(&record).message,
            None => String::new(),
        };
        Ok(ChildState { session: session.clone(), name, run, status, text, merge })
    }

    /// Counts one more run under this session.
    async fn count(&self, live: &Live) -> Result<Unfinished, ApiError> {
        let (root, depth) = spawn::place_under(&self.row(live).await?);
        let open_max = self.terms.limits.read().subagents_max;
        self.shelf.lanes.open((&root, depth), open_max).ok_or_else(|| spawn::too_many(open_max))
    }

    /// Whether a session still has where it works: a working tree of its own goes with the run that it was made for.
    async fn check_place(&self, session: &SessionId) -> Result<(), ApiError> {
        let row = self.shelf.store.session(session).await.map_err(|e| store_failure(&e))?;
        let tree = row.and_then(|row| row.lineage?.worktree);
        let Some(tree) = tree.filter(|tree| !tree.directory.is_dir()) else { return Ok(()) };
        let message =
            format!("sub-agent {session} worked in {}, which is gone: start another one", tree.directory.display());
        Err(ApiError::conflict(message))
    }

    /// Whether a session was started by this one.
    async fn check_own(&self, live: &Live, session: &SessionId) -> Result<(), ApiError> {
        let none = || ApiError::not_found(format!("sub-agent {session} of this session"));
        let row = self.shelf.store.session(session).await.map_err(|e| store_failure(&e))?.ok_or_else(none)?;
        let own = row.lineage.as_ref().and_then(|lineage| lineage.parent()) == Some(&live.id);
        if own && row.client == live.client { Ok(()) } else { Err(none()) }
    }
}

impl Live {
    /// Tells its actor something about a session under it.
    pub(super) async fn tell_of_child<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<T>) -> ChildOrder,
    ) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        // Without an actor the sender is dropped, and so the answer fails.
        let _ = self.mail.send(Order::Child(order(reply))).await;
        answer.await.map_err(|_| ApiError::not_found(format!("session {}", self.id)))
    }

    /// Somebody ends what a session under this one does, and wants quiet: this one is not told.
    pub async fn hush(&self, child: &SessionId) {
        // Without an actor there is nobody to be told.
        let _ = self.mail.send(Order::Child(ChildOrder::Silence(child.clone()))).await;
    }

    async fn open_runs(&self) -> Result<Vec<OpenRun>, ApiError> {
        self.tell_of_child(ChildOrder::Runs).await
    }
}

impl Children for TurnChildren {
    fn spawn(&self, spawn: Spawn) -> BoxFuture<'_, Result<ChildState, ApiError>> {
        Box::pin(async move { self.start(spawn).await })
    }

    fn find<'a>(&'a self, who: &'a str) -> BoxFuture<'a, Result<SessionId, ApiError>> {
        Box::pin(async move {
            let live = self.live()?;
            if let Ok(id) = who.parse::<SessionId>()
                && self.check_own(&live, &id).await.is_ok()
            {
                return Ok(id);
            }
            let rows = self.manager().under(&self.row(&live).await?).await?;
            let named = |row: &&SessionRow| {
                row.lineage.as_ref().is_some_and(|of| of.parent() == Some(&live.id) && of.name.as_deref() == Some(who))
            };
            // The newest of that name.
            let found = rows.iter().find(named).map(|row| row.id.clone());
            found.ok_or_else(|| ApiError::not_found(format!("sub-agent `{who}` of this session")))
        })
    }

    fn send<'a>(
        &'a self,
        to: &'a SessionId,
        message: String,
        call_id: &'a str,
    ) -> BoxFuture<'a, Result<ChildState, ApiError>> {
        Box::pin(async move { self.tell_child(to, message, call_id).await })
    }

    fn wait<'a>(
        &'a self,
        whom: &'a [SessionId],
        (all, patience): (bool, Option<Duration>),
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<ChildState>, ApiError>> {
        Box::pin(async move {
            let live = self.live()?;
            let mut settled = live.brood.settled.subscribe();
            let watching = Watching::of(&live.brood, whom);
            let late = async {
                match patience {
                    Some(patience) => tokio::time::sleep(patience).await,
                    None => std::future::pending().await,
                }
            };
            tokio::pin!(late);
            loop {
                settled.borrow_and_update();
                let open = live.open_runs().await?;
                let goes_on = |session: &&SessionId| open.iter().any(|run| run.session == **session && !run.ended);
                let going = whom.iter().filter(goes_on).count();
                if going == 0 || (!all && going < whom.len()) {
                    break;
                }
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => break,
                    changed = settled.changed() => if changed.is_err() { break },
                    () = live.over.cancelled() => return Err(super::stopping()),
                    () = &mut late => break,
                }
            }
            // What is done with from now on comes by itself; all before it is told here.
            drop(watching);
            let open = live.open_runs().await?;
            let mut states = Vec::with_capacity(whom.len());
            for session in whom {
                states.push(self.state(&live, session, &open).await?);
            }
            Ok(states)
        })
    }

    fn kill<'a>(&'a self, whom: &'a SessionId) -> BoxFuture<'a, Result<ChildState, ApiError>> {
        Box::pin(async move {
            let live = self.live()?;
            self.check_own(&live, whom).await?;
            // Who kills knows.
            live.hush(whom).await;
            let open = live.open_runs().await?;
            let manager = self.manager();
            for run in open.iter().filter(|run| run.session == *whom && !run.ended) {
                let reason = "ended by its parent".to_owned();
                let command = Command { turn: Some(run.turn.clone()), reason, if_version: None };
                let child = manager.live(live.client.as_ref(), whom).await?;
                match child.abort(command).await {
                    // It was faster.
                    Err(error) if error.code() != ErrorCode::Conflict => return Err(error),
                    Ok(_) | Err(_) => drop(child.end_of(&run.turn).await),
                }
            }
            self.state(&live, whom, &[]).await
        })
    }
}

impl TurnChildren {
    /// Gives a session under this one more to do.
    async fn tell_child(&self, to: &SessionId, message: String, call_id: &str) -> Result<ChildState, ApiError> {
        let live = self.live()?;
        self.check_own(&live, to).await?;
        self.check_place(to).await?;
        let unfinished = self.count(&live).await?;
        let child = self.manager().live(live.client.as_ref(), to).await?;
        let task = crate::store::shown(message.clone());
        let prompt = NewPrompt {
            content: PromptContent::Text(message),
            mode: PromptMode::Steer,
            configure: None,
            only: None,
            task: None,
            if_version: None,
            receipt: None,
        };
        let accepted = child.prompt(prompt).await?;
        let open = live.open_runs().await?;
        if !open.iter().any(|run| run.session == *to && run.turn == accepted.turn_id) {
            let row = self.shelf.store.session(to).await.map_err(|e| store_failure(&e))?;
            let row = row.ok_or_else(|| ApiError::not_found(format!("session {to}")))?;
            let (session, turn, by) = (to.clone(), accepted.turn_id.clone(), self.turn.clone());
            let run = OpenRun { session, turn, by, background: true, ended: false, merge: None };
            let event = spawn::start_event((&live.id, &row), &run, (call_id, task));
            live.tell_of_child(|reply| ChildOrder::Adopt(Box::new((run.clone(), event)), reply)).await??;
            self.shelf.follow((&live.id, live.client.as_ref()), run, Some(unfinished));
        }
        let open = live.open_runs().await?;
        self.state(&live, to, &open).await
    }
}
