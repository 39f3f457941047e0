//! A session that is in memory: the address of its actor, its readers, and who is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::actor::{Accepted, Explained, NewPrompt, NewSettings, Order, TurnLook};
use super::ask::{Answer, Resolved, over};
use super::budget::Tree;
use super::children::Brood;
use super::control::{Command, Controlled, Kind};
use super::doing::Doing;
use super::journal::Journal;
use super::reader::{EventReader, Source};
use super::snapshot::Stand;
use super::started::{Started, Starting};
use super::store_failure;
use crate::base::trace::Origin;
use crate::bus::{Tails, Topic};
use crate::hook::{Hooks, SessionStart};
use crate::host::Direction;
use crate::permission::Subject;
use crate::protocol::{
    ApiError, ClientId, ErrorCode, GrantId, PermissionExplanation, SessionId, SessionView, ToolDefinition, TurnId,
    TurnRecord, Undo, Undone,
};
use crate::store::{Grant, Said, Store, StoreError, Waiting};

/// How many clients are connected, and since when.
#[derive(Debug, Clone, Copy)]
struct Presence {
    clients: usize,
    since: Instant,
}

/// A session in memory. It stays there while somebody holds one of these.
pub struct Live {
    pub(super) id: SessionId,
    pub(super) client: Option<ClientId>,
    /// The session above all of its tree, or itself.
    pub(super) root: SessionId,
    pub(super) journal: Arc<Journal>,
    pub(super) topic: Arc<Topic>,
    pub(super) store: Arc<dyn Store>,
    pub(super) mail: mpsc::Sender<Order>,
    /// Fires when the session is deleted, or the server has ended.
    pub(super) over: CancellationToken,
    /// The end of a turn could not be written yet.
    pub(super) owes: AtomicBool,
    /// It left memory for another node.
    pub(super) moved: AtomicBool,
    /// What is known of sessions under it.
    pub(super) brood: Brood,
    /// Whether hooks have heard that it starts.
    pub(super) started: Started,
    /// What was spent in its tree, once a turn has asked.
    pub(super) tree: OnceLock<Arc<Tree>>,
    presence: watch::Sender<Presence>,
    pub(super) streams: AtomicUsize,
    /// What it does, and how many turns wait and questions are open: what the actor last said.
    doing: Mutex<(Doing, [usize; 2])>,
    /// Bytes of the prompts that wait.
    weight: AtomicUsize,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Live {
    /// A session whose newest event is `last_seq`, with so many lines of its client.
    pub(super) fn new(
        ([id, root], client, here): ([SessionId; 2], Option<ClientId>, usize),
        store: Arc<dyn Store>,
        (last_seq, tails): (u64, &Arc<Tails>),
        mail: mpsc::Sender<Order>,
    ) -> Self {
        let topic = Arc::new(Topic::new(last_seq, crate::base::limit::TAIL_BYTES_MAX, Arc::clone(tails)));
        let journal = Journal::new(id.clone(), Arc::clone(&store), Arc::clone(&topic));
        let presence = watch::Sender::new(Presence { clients: here, since: Instant::now() });
        let (over, owes, streams) = (CancellationToken::new(), AtomicBool::new(false), AtomicUsize::new(0));
        let (brood, tree, started) = (Brood::default(), OnceLock::new(), Started::default());
        let (doing, weight) = (Mutex::default(), AtomicUsize::new(0));
        Self {
            id,
            client,
            root,
            journal,
            topic,
            store,
            mail,
            over,
            owes,
            moved: AtomicBool::new(false),
            brood,
            tree,
            started,
            presence,
            streams,
            doing,
            weight,
        }
    }

    /// What it does, and how many turns wait.
    pub(super) fn doing(&self) -> (Doing, usize) {
        let (doing, [queued, _]) = *self.doing.lock();
        (doing, queued)
    }

    /// Whether a turn waits: what the actor last said.
    pub fn has_queued(&self) -> bool {
        self.doing().1 > 0
    }

    /// Questions that are open.
    pub(super) fn asked(&self) -> usize {
        self.doing.lock().1[1]
    }

    /// Says what it does, how many turns wait, and how many questions are open.
    pub(super) fn does(&self, doing: Doing, counts: [usize; 2]) {
        *self.doing.lock() = (doing, counts);
    }

    /// Bytes of the prompts that wait: what the actor last said.
    pub(super) fn weight(&self) -> usize {
        self.weight.load(Ordering::Acquire)
    }

    /// Says how many bytes of prompts wait.
    pub(super) fn weighs(&self, bytes: usize) {
        self.weight.store(bytes, Ordering::Release);
    }

    /// Open event streams.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Acquire)
    }

    /// Orders that wait for its actor.
    pub(super) fn orders(&self) -> usize {
        self.mail.max_capacity() - self.mail.capacity()
    }

    /// Which one it is.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Whose it is; None: everyone's without a client id.
    pub fn client(&self) -> Option<&ClientId> {
        self.client.as_ref()
    }

    /// Tells hooks that it starts, unless they were told. None: they have nothing more to say to it.
    pub async fn start(&self, hooks: &dyn Hooks, start: impl FnOnce() -> SessionStart) -> Option<Starting<'_>> {
        self.started.begin(hooks, start).await
    }

    pub(super) async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.mail.send(order(reply)).await; // Without an actor the sender is dropped: the answer fails.
        answer.await.map_err(|_| self.gone())
    }

    /// Why nobody answers.
    fn gone(&self) -> ApiError {
        if self.moved.load(Ordering::Acquire) {
            let message = format!("session {} has gone to another server: ask again", self.id);
            return ApiError::new(ErrorCode::UpstreamUnavailable, message);
        }
        ApiError::not_found(format!("session {}", self.id))
    }

    /// Hands in a prompt.
    ///
    /// # Errors
    /// Why it is not accepted; then nothing has changed.
    pub async fn prompt(&self, prompt: NewPrompt) -> Result<Accepted, ApiError> {
        self.touch();
        self.ask(|reply| Order::Prompt(Box::new((prompt, Origin::current())), reply)).await?
    }

    /// Aborts the turn that runs or is paused, at once.
    ///
    /// # Errors
    /// `CONFLICT` when it does neither.
    pub async fn abort(&self, command: Command) -> Result<Controlled, ApiError> {
        self.ask(|told| Order::Control(Kind::Abort, command, told)).await?
    }

    /// Ends the turn at its next boundary, and waits for that. One that reaches none in time is cut off.
    ///
    /// # Errors
    /// `CONFLICT` when nothing runs, or the turn was over before.
    pub async fn interrupt(&self, command: Command) -> Result<Controlled, ApiError> {
        self.ask(|told| Order::Control(Kind::Interrupt, command, told)).await?
    }

    /// Lets the turn hold at its next boundary, and waits for that, at most for `patience`: then it is on its way.
    ///
    /// # Errors
    /// `CONFLICT` when nothing runs, the turn was over before, or was resumed meanwhile.
    pub async fn pause(&self, command: Command, patience: Duration) -> Result<Controlled, ApiError> {
        let held = self.ask(|told| Order::Control(Kind::Pause, command, told));
        tokio::pin!(held);
        if let Ok(held) = tokio::time::timeout(patience, &mut held).await {
            return held?;
        }
        let turn = self.view().await?.turn;
        match (held.as_mut().now_or_never(), turn) {
            (Some(held), _) => held?,
            // As long as there is no answer, it is still the turn that is meant.
            (None, Some(turn)) => Ok(Controlled { turn_id: turn.turn_id, status: turn.status }),
            (None, None) => held.await?,
        }
    }

    /// Lets the paused turn go on.
    ///
    /// # Errors
    /// `CONFLICT` when nothing is paused.
    pub async fn resume(&self, command: Command) -> Result<Controlled, ApiError> {
        self.ask(|told| Order::Control(Kind::Resume, command, told)).await?
    }

    /// Changes the settings, from the next turn on.
    ///
    /// # Errors
    /// Why they stay as they are.
    pub async fn configure(&self, settings: NewSettings) -> Result<SessionView, ApiError> {
        self.touch();
        self.ask(|reply| Order::Configure(Box::new(settings), reply)).await?
    }

    /// Undoes or redoes what turns did to files.
    ///
    /// # Errors
    /// `CONFLICT` while a turn runs, or with the paths that stand against it; then nothing has changed.
    pub async fn undo(&self, undo: Undo, direction: Direction) -> Result<Undone, ApiError> {
        self.touch();
        self.ask(|reply| Order::Undo(Box::new(undo), direction, reply)).await?
    }

    /// Answers a question.
    ///
    /// # Errors
    /// `NOT_FOUND` for an unknown one, `CONFLICT` for one that is over.
    pub async fn answer(&self, answer: Answer) -> Result<Resolved, ApiError> {
        let which = answer.which.clone();
        match self.ask(|reply| Order::Answer(answer, reply)).await? {
            // It may have had its end before the session was last woken.
            Err(error) if error.code() == ErrorCode::NotFound => match self.store.asked(&self.id, &which).await {
                Ok(true) => Err(over(&which)),
                Ok(false) => Err(error),
                Err(cause) => Err(store_failure(&cause)),
            },
            answered => answered,
        }
    }

    /// How the session is now.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted.
    pub async fn view(&self) -> Result<SessionView, ApiError> {
        self.ask(Order::View).await
    }

    pub(super) async fn stand(&self) -> Result<Stand, ApiError> {
        self.ask(Order::Stand).await?
    }

    /// What would happen to a call now, and why. Nobody is asked.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted.
    pub async fn explain(
        &self,
        (name, definition): (String, Option<ToolDefinition>),
        (subject, place): (Subject, Option<std::path::PathBuf>),
    ) -> Result<PermissionExplanation, ApiError> {
        self.ask(|reply| Order::Explain(Box::new(Explained { name, definition, subject, place }), reply)).await
    }

    /// What was granted for the session.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted.
    pub async fn grants(&self) -> Result<Vec<Grant>, ApiError> {
        self.ask(Order::Grants).await
    }

    /// Takes a grant of the session back. False: it has none of that id.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted; what the store says.
    pub async fn revoke(&self, id: GrantId) -> Result<bool, ApiError> {
        self.ask(|reply| Order::Revoke(id, reply)).await?
    }

    /// A turn's record.
    ///
    /// # Errors
    /// `NOT_FOUND`, or what the store says.
    pub async fn turn(&self, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        match self.ask(|reply| Order::Turn(turn.clone(), reply)).await? {
            TurnLook::Open { now, .. } | TurnLook::Over(now) => Ok(*now),
            TurnLook::Unknown => self.stored_turn(turn).await,
        }
    }

    /// Waits for a turn's end. The session has a client meanwhile.
    ///
    /// # Errors
    /// `NOT_FOUND`; `UPSTREAM_UNAVAILABLE` when the server ends before the turn has run.
    pub async fn wait(self: &Arc<Self>, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        let _here = ClientGuard::new(self);
        self.end_of(turn).await
    }

    /// The same for who is no client.
    pub(super) async fn end_of(&self, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        match self.ask(|reply| Order::Turn(turn.clone(), reply)).await? {
            TurnLook::Over(record) => Ok(*record),
            TurnLook::Unknown => self.stored_turn(turn).await,
            TurnLook::Open { end, .. } => tokio::select! {
                biased;
                record = end => record.map_err(|_| self.gone()),
                () = self.over.cancelled() => Err(super::stopping()),
            },
        }
    }

    async fn stored_turn(&self, turn: &TurnId) -> Result<TurnRecord, ApiError> {
        let row = self.store.turn(&self.id, turn).await.map_err(|e| store_failure(&e))?;
        row.map(|row| row.record).ok_or_else(|| ApiError::not_found(format!("turn {turn} in session {}", self.id)))
    }

    /// What waits: it is read where it is kept apart.
    ///
    /// # Errors
    /// What the store says; [`StoreError::Damaged`] when nothing is there.
    pub(super) async fn said(&self, waiting: Waiting) -> Result<Said, StoreError> {
        let at = match waiting {
            Waiting::Here(content) => return Ok(Said { content, configure: None }),
            Waiting::Apart(apart) => apart.at,
        };
        let cause = || "what was said to a turn that waits is not there".to_owned();
        let gone = || StoreError::Damaged { session: self.id.clone(), seq: at, cause: cause() };
        self.store.said(&self.id, at).await?.map(Arc::unwrap_or_clone).ok_or_else(gone)
    }

    /// Stops what runs, ends the readers, and removes the session with all under it: of this version alone, if one is named.
    /// The ids of what is gone.
    ///
    /// # Errors
    /// `CONFLICT` where it has another one; what the store says.
    pub async fn delete(&self, if_version: Option<u64>) -> Result<Vec<SessionId>, ApiError> {
        self.ask(|reply| Order::Delete(if_version, reply)).await?
    }

    /// Whether it has heard that its event of that number is stored.
    pub fn has_stored(&self, seq: u64) -> bool {
        self.topic.durable_seq() >= seq
    }

    /// Reads its events behind number `after`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a number ahead of the log, `RESOURCE_EXHAUSTED` when `streams_max` read already.
    pub fn read(self: &Arc<Self>, after: u64, streams_max: usize) -> Result<EventReader, ApiError> {
        let last = self.topic.durable_seq();
        if after > last {
            let expected = format!("the number of an event of this session, 0 to {last}");
            return Err(ApiError::unfit("after", expected, after));
        }
        let guard = ClientGuard::new(self);
        let open = self.streams.fetch_add(1, Ordering::AcqRel);
        let changed = self.topic.watch();
        // Who looks for a reader finds it from now on; what came before waits no longer.
        self.journal.hasten();
        let over = Box::pin(self.over.clone().cancelled_owned());
        let source = Source::Here { live: Arc::clone(self), over, _here: Some(guard) };
        let reader = EventReader { source, position: after, changed };
        if open >= streams_max {
            let message = format!("session {} has {streams_max} open event streams already", self.id);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        Ok(reader)
    }

    /// Wakes with each durable event, and counts as nobody.
    #[cfg(test)]
    pub(crate) fn watch_for_test(&self) -> watch::Receiver<u64> {
        self.topic.watch()
    }

    /// Leaves memory, for another node to have it. False: something is under way in it.
    pub(super) async fn rest(&self) -> bool {
        // Without an actor it has left already.
        self.ask(Order::Rest).await.unwrap_or(true)
    }

    /// Somebody has just been here.
    pub(super) fn touch(&self) {
        self.presence.send_modify(|p| p.since = Instant::now());
    }

    /// Somebody is here from now on.
    pub(super) fn joined(&self) {
        self.presence.send_modify(|p| p.clients += 1);
    }

    /// Somebody is here no longer.
    pub(super) fn left(&self) {
        self.presence.send_modify(|p| {
            p.clients = p.clients.saturating_sub(1);
            p.since = Instant::now();
        });
    }

    /// Waits until nobody has been connected for `grace`.
    pub(super) async fn deserted(&self, grace: Duration) {
        let mut changes = self.presence.subscribe();
        loop {
            let now = *changes.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(now.since + grace), if now.clients == 0 => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// While it lives, the session has a client.
#[derive(Debug)]
pub struct ClientGuard(Arc<Live>);

impl ClientGuard {
    pub(super) fn new(live: &Arc<Live>) -> Self {
        live.joined();
        Self(Arc::clone(live))
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.left();
    }
}
