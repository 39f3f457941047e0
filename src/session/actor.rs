//! The owner of all that changes in one session: its row, its queue, its running turn, its open questions.
//!
//! It takes orders one at a time and only coordinates: a turn runs in a task of its own, so that an
//! abort, a steer or an answer never waits behind it. What an order changes is durable before it is answered;
//! what could not be written has not happened.
//!
//! - `begins`: the beginning of turns
//! - `board`: what the sessions of its tree share
//! - `turns`: prompts, and the end of turns
//! - `controls`: abort, interrupt, pause, resume
//! - `settings`: what the next turns work with
//! - `ends`: how a turn ended
//! - `asks`: questions to the client
//! - `children`: sessions that it has started, and what comes of them
//! - `news`: what hooks hear of
//! - `orders`: what it is told
//! - `shown`: the session as others see it
//! - `undo`: what turns did to files is undone and redone
//! - `waiting`: how much waits, and may

mod asks;
mod begins;
mod board;
mod children;
mod controls;
mod ends;
mod news;
mod orders;
mod settings;
mod shown;
mod turns;
mod undo;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::begins::Beginning;
use self::undo::Undoing;
use super::ask::Asks;
use super::board::Board;
use super::children::{AskedBelow, Slot};
use super::control::Waiting;
use super::helm::Helm;
use super::history::Conversation;
use super::journal::Entry;
use super::live::Live;
use super::manager::Shelf;
use super::policy::Policy;
use super::sink::TurnSink;
use super::tally::Tally;
use super::turn::Phase;
use super::weight::Weight;
use super::{Terms, Workbench, store_failure};
use crate::agent::Progress;
use crate::base::clock;
use crate::base::trace::Origin;
use crate::hook::EndReason;
use crate::protocol::{ApiError, SessionId, TurnId, TurnRecord, TurnStatus};
use crate::store::{SessionRow, TurnRow, Write};
use crate::tool::Scope;

pub(super) use board::BoardOrder;
pub use orders::{Accepted, NewPrompt, NewSettings};
pub(super) use orders::{ChildOrder, Explained, Order, TurnLook};
pub(super) use shown::view_of;
pub(super) use turns::{queued_turn, reason_of, terminal_event};

/// Orders that wait for an actor, at most; more senders wait.
pub(super) const MAIL_MAX: usize = 64;

/// The turn that runs or is paused.
struct Running {
    row: TurnRow,
    phase: Phase,
    /// It only runs calls of clients: nobody is there who would hear what a user says.
    carries: bool,
    /// Why it was aborted, interrupted or paused.
    reason: Option<String>,
    sink: Arc<TurnSink>,
    helm: Arc<Helm>,
    /// Its task. None: it is paused.
    work: Option<Work>,
    /// Where a paused turn stands.
    progress: Option<Progress>,
    /// Who waits for what becomes of it.
    waiting: Waiting,
}

/// The task of a turn.
struct Work {
    cancel: CancellationToken,
    task: AbortHandle,
    _counted: super::manager::Counted,
}

/// What a session wakes to.
#[derive(Default)]
pub(super) struct Agenda {
    /// Turns that wait, oldest first.
    pub(super) queue: Vec<TurnRow>,
    /// A turn that was paused, and what is in the log of it.
    pub(super) paused: Option<(TurnRow, Tally)>,
    /// A turn that the end of a process has ended, and whose end could not be written down. Nothing is lost by it: whoever
    /// finds the turn again ends it so.
    pub(super) owed: Option<TurnRow>,
}

/// A turn that has ended and whose end could not be written down yet.
struct Owed {
    row: TurnRow,
    retry_at: Instant,
}

/// What an actor is made of.
pub(super) struct Actor {
    pub(super) live: Arc<Live>,
    shelf: Arc<Shelf>,
    bench: Arc<dyn Workbench>,
    terms: Arc<Terms>,
    mail: mpsc::Receiver<Order>,
    row: SessionRow,
    queue: VecDeque<TurnRow>,
    weight: Weight,
    /// The first of the queue: its beginning was written down with the end of the turn before it.
    next: Option<Beginning>,
    running: Option<Running>,
    /// The last turn that ended while this actor lived.
    last: Option<(TurnId, TurnStatus)>,
    owed: Option<Owed>,
    /// When a queued turn that could not be begun is tried again.
    begin_at: Option<Instant>,
    asks: Asks,
    /// Questions of sessions under this one, which stands above all.
    asked_below: Vec<AskedBelow>,
    /// What its tree shares. None: the log has it.
    board: Option<Board>,
    /// Room for turns of a session under another one.
    slot: Option<Slot>,
    policy: Arc<Policy>,
    scope: Arc<Scope>,
    /// The conversation. None: the log has it.
    conversation: Option<Conversation>,
    waiters: HashMap<TurnId, Vec<oneshot::Sender<TurnRecord>>>,
    /// Where the prompt comes from that is being accepted.
    origin: Origin,
    deleting: Option<oneshot::Sender<Result<Vec<SessionId>, ApiError>>>,
    /// Who waits for it to leave memory.
    resting: Option<oneshot::Sender<bool>>,
    /// An undo or a redo that works on files.
    undoing: Option<Undoing>,
    /// Changes that came meanwhile. Each has somebody who waits for its answer.
    behind: VecDeque<Order>,
}

impl Actor {
    /// An actor over a session's row and its turns that are not over.
    pub(super) fn new(
        live: Arc<Live>,
        mail: mpsc::Receiver<Order>,
        shelf: Arc<Shelf>,
        (row, agenda): (SessionRow, Agenda),
    ) -> Self {
        let (bench, terms) = (Arc::clone(&shelf.bench), Arc::clone(&shelf.terms));
        let policy = Arc::new(Policy::new(&terms, &row));
        let scope = shelf.scopes.take(&row.id);
        scope.take_share(shelf.estate.share(row.id.as_str()));
        let running = agenda.paused.map(|paused| Running::paused(&live, paused));
        let weight = Weight::of(&shelf.waiting_bytes);
        Self {
            live,
            shelf,
            weight,
            bench,
            terms,
            mail,
            row,
            queue: agenda.queue.into(),
            next: None,
            running,
            last: None,
            owed: agenda.owed.map(|row| Owed { row, retry_at: turns::pause() }),
            begin_at: None,
            asks: Asks::default(),
            asked_below: Vec::new(),
            board: None,
            slot: None,
            policy,
            scope,
            conversation: None,
            waiters: HashMap::new(),
            origin: Origin::default(),
            deleting: None,
            resting: None,
            undoing: None,
            behind: VecDeque::new(),
        }
    }

    /// Works until the session is deleted or nobody needs it in memory.
    pub(super) async fn run(mut self) {
        let idle = self.shelf.idle;
        self.next_turn().await;
        self.tell_results().await;
        loop {
            self.show();
            let retry = self.owed.as_ref().map(|owed| owed.retry_at).or(self.begin_at);
            let retry_at = retry.unwrap_or_else(Instant::now);
            let held = if self.undoing.is_none() { self.behind.pop_front() } else { None };
            tokio::select! {
                biased;
                Some(order) = std::future::ready(held) => self.take(order).await,
                order = self.mail.recv() => {
                    let Some(order) = order else { return };
                    self.take(order).await;
                }
                () = tokio::time::sleep_until(retry_at), if retry.is_some() => self.try_again().await,
                () = tokio::time::sleep(idle), if self.is_idle() => {
                    if self.mail.is_empty() && self.shelf.evict(&self.live, &self.scope) {
                        self.live.started.end(&self.shelf.herald, EndReason::Idle);
                        return;
                    }
                }
            }
            if let Some(reply) = self.resting.take() {
                self.rest().await;
                let _ = reply.send(true);
                return;
            }
            let rests = self.undoing.is_none() && self.running.as_ref().is_none_or(|running| running.work.is_none());
            if self.deleting.is_some() && rests && self.delete().await {
                return;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty() && self.owed.is_none() && self.undoing.is_none()
    }

    /// Whether nothing is under way that another node could not go on with: what waits and what is paused stands in the log.
    fn may_rest(&self) -> bool {
        let works = self.running.as_ref().is_some_and(|running| running.work.is_some());
        let owes = self.owed.is_some() || self.next.is_some() || !self.behind.is_empty();
        !works && !owes && self.undoing.is_none() && self.deleting.is_none()
    }

    /// Leaves memory for another node.
    async fn rest(&mut self) {
        self.live.moved.store(true, Ordering::Release);
        self.mail.close();
        self.shelf.remove(&self.live);
        self.live.over.cancel();
        self.live.started.end(&self.shelf.herald, EndReason::Idle);
        self.shelf.scopes.end(&self.row.id, &self.scope).await;
        self.scope.share().end().await;
        // Who waits for a turn is told that it goes on elsewhere by the end of this line.
        self.waiters.clear();
    }

    async fn take(&mut self, order: Order) {
        // Who has stopped waiting for an answer does not miss it.
        match order {
            order @ (Order::Prompt(..) | Order::Configure(..) | Order::Undo(..)) if self.undoing.is_some() => {
                self.behind.push_back(order);
            }
            Order::Prompt(prompt, reply) => {
                let (prompt, origin) = *prompt;
                self.origin = origin;
                let answer = self.prompt(prompt).await;
                self.origin = Origin::default();
                let _ = reply.send(answer);
            }
            Order::Control(kind, command, told) => self.control(kind, command, told).await,
            Order::Configure(settings, reply) => {
                let answer = self.configure(*settings).await;
                let _ = reply.send(answer);
            }
            Order::Answer(answer, reply) => match self.asked_below(&answer) {
                Some(session) => self.hand_on(session, answer, reply),
                None => {
                    let answer = self.answer(&answer).await;
                    let _ = reply.send(answer);
                }
            },
            Order::View(reply) => drop(reply.send(self.view())),
            Order::Stand(reply) => {
                let stand = self.stand().await;
                let _ = reply.send(stand);
            }
            Order::Explain(call, reply) => drop(reply.send(self.explain(&call))),
            Order::Grants(reply) => drop(reply.send(self.row.settings.grants.clone())),
            Order::Revoke(id, reply) => {
                let answer = self.revoke(&id).await;
                let _ = reply.send(answer);
            }
            Order::Turn(turn, reply) => {
                let look = self.look(&turn);
                let _ = reply.send(look);
            }
            Order::Delete(if_version, reply) => match self.check_version(if_version) {
                Ok(()) => {
                    self.stop("the session was deleted");
                    self.deleting = Some(reply);
                }
                Err(error) => drop(reply.send(Err(error))),
            },
            Order::Undo(undo, direction, reply) => self.undo(*undo, direction, reply).await,
            Order::Undid(done) => self.undid(*done).await,
            Order::Ask { question, named, reply } => self.put(*question, named, reply),
            Order::Resolve { request, end } => {
                self.resolve(&request, end).await;
            }
            Order::Ended(finished) => self.ended(*finished).await,
            Order::Force(turn) => self.force(&turn).await,
            Order::Stop(reason) => self.stop(&reason),
            Order::Rest(reply) if self.may_rest() => self.resting = Some(reply),
            Order::Rest(reply) => drop(reply.send(false)),
            Order::Child(order) => self.of_children(order).await,
            Order::Board(order) => self.of_board(order).await,
            Order::Slot(slot) => self.take_slot(slot).await,
        }
    }

    /// Whether it is going away: with the server, or by itself.
    fn is_closing(&self) -> bool {
        self.deleting.is_some() || self.shelf.closing.load(Ordering::Acquire)
    }

    /// Whether it begins no more turns: they are for the next process, or for another node.
    fn begins_no_more(&self) -> bool {
        self.is_closing() || self.shelf.cluster.as_ref().is_some_and(|cluster| cluster.is_draining())
    }

    fn look(&mut self, turn: &TurnId) -> TurnLook {
        if let Some(owed) = self.owed.as_ref().filter(|owed| owed.row.record.turn_id == *turn) {
            return TurnLook::Over(Box::new(owed.row.record.clone()));
        }
        let running = self.running.as_ref().map(|running| running.record(!self.asks.is_empty()));
        let mut open = running.into_iter().chain(self.queue.iter().map(|row| row.record.clone()));
        let Some(now) = open.find(|record| record.turn_id == *turn) else { return TurnLook::Unknown };
        let (tell, end) = oneshot::channel();
        let waiting = self.waiters.entry(turn.clone()).or_default();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(tell);
        TurnLook::Open { now: Box::new(now), end }
    }

    fn tell(&mut self, record: &TurnRecord) {
        for waiter in self.waiters.remove(&record.turn_id).unwrap_or_default() {
            let _ = waiter.send(record.clone());
        }
    }

    /// Refuses what was meant for another version of the session.
    fn check_version(&self, wanted: Option<u64>) -> Result<(), ApiError> {
        let version = self.row.version;
        let Some(wanted) = wanted.filter(|wanted| *wanted != version) else { return Ok(()) };
        let message = format!("session {} has version {version}, not {wanted}", self.row.id);
        let details = serde_json::json!({ "field": "ifVersion", "expected": version, "got": wanted });
        Err(ApiError::conflict(message).with_details(details))
    }

    /// The row after one more change.
    fn changed(&self) -> SessionRow {
        let mut row = self.row.clone();
        row.version += 1;
        row.updated_at = clock::now_ms();
        row
    }

    /// Removes the session. True: it is gone, and so is this actor.
    async fn delete(&mut self) -> bool {
        let Some(reply) = self.deleting.take() else { return false };
        let gone_below = self.delete_children().await;
        let write = Write::DeleteSession(self.row.id.clone());
        let result = match gone_below {
            Ok(_) => self.live.journal.record(|_| Entry { events: Vec::new(), writes: vec![write] }).await,
            Err(_) => Ok(()),
        };
        let gone = gone_below.is_ok() && result.is_ok();
        if gone {
            self.shelf.remove(&self.live);
            // Who waits for a turn of it hears that it is gone before the readers' end tells of a stop.
            self.waiters.clear();
            self.live.over.cancel();
            self.live.started.end(&self.shelf.herald, EndReason::Deleted);
            self.shelf.scopes.end(&self.row.id, &self.scope).await;
            self.scope.share().end().await;
            self.forget_changes().await;
        }
        let answer = result.map_err(|e| store_failure(&e)).and(gone_below);
        let _ = reply.send(answer);
        if !gone {
            self.next_turn().await;
        }
        gone
    }
}

impl Running {
    /// A turn that was paused before the session was woken.
    fn paused(live: &Arc<Live>, (row, tally): (TurnRow, Tally)) -> Self {
        let held = row.held.clone().unwrap_or_default();
        let (rounds, usage, continued) = (tally.rounds, tally.usage, tally.continued);
        let progress = Progress { begun: true, rounds, usage, continued, held, findings: Vec::new() };
        Self {
            phase: Phase::Paused,
            carries: false,
            reason: None,
            sink: TurnSink::going_on(Arc::clone(&live.journal), row.record.turn_id.clone(), tally),
            helm: Arc::new(Helm::with(live, row.steers.waiting.clone())),
            work: None,
            progress: Some(progress),
            waiting: Waiting::default(),
            row,
        }
    }

    /// Its record as it is now; `asking`: a call of it waits for an answer.
    fn record(&self, asking: bool) -> TurnRecord {
        let tally = self.sink.tally();
        let status = self.phase.status(asking);
        TurnRecord { status, rounds: tally.rounds, usage: tally.usage, ..self.row.record.clone() }
    }
}
