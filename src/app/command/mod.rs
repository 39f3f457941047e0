//! The way of a command, whatever door it came through: remembered outcomes, duplicates, dependencies, shares,
//! lanes, versions, clocks.
//!
//! `parse` makes a command of an object; `flight` knows what is under way and waits in `lane`s; `run` takes one
//! through; `outcome` is what comes of it; `operations` is what the application does for each.
//!
//! Invariants: what has an id or a key is done at most once while its outcome is remembered, over the end of the
//! process too, and is always answered alike. An outcome is stored before it is given. What is refused (a limit, a
//! conflict, a dependency that cannot be met) has changed nothing, is not remembered, and costs nothing.

mod fields;
mod fingerprint;
mod flight;
#[cfg(test)]
#[path = "../../../fuzz/src/inside/commands.rs"]
mod inside;
mod kinds;
mod lane;
mod operations;
mod outcome;
mod parse;
mod rate;
mod run;
mod sharing;

#[cfg(test)]
mod simulate;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::app::Caller;
use crate::base::trace::Origin;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ApiError, LimitView, SessionId};
use crate::session::Receipt;
use crate::store::Store;

use flight::{Entry, Flights};
use lane::Lanes;
pub(super) use operations::Performed;
use outcome::Reads;
use rate::Rate;
use run::{Run, Tell};

pub use kinds::{KINDS, Kind, Names};
pub use outcome::Outcome;
pub use parse::{ANONYMOUS, Command, Listed, Message, Operation, Request, Subscribe, Unread};
pub use sharing::Sharing;

/// Time between two tellings of what clients give.
const TELL: Duration = Duration::from_secs(1);

/// What the pipeline asks of the application. Tests fill it with something smaller.
pub(super) trait Operations: Send + Sync + 'static {
    /// A session's version.
    fn version(&self, caller: Caller, session: SessionId) -> BoxFuture<'_, Result<u64, ApiError>>;

    /// Does what is asked. Of an operation that rides, the receipt's rows go into the commit of its effect.
    fn perform(self: Arc<Self>, task: Task) -> BoxFuture<'static, Result<Performed, ApiError>>;
}

/// What is to be done, for whom.
pub(super) struct Task {
    pub(super) caller: Caller,
    pub(super) session: Option<SessionId>,
    pub(super) operation: Operation,
    pub(super) receipt: Arc<Receipt>,
}

/// A step of a command on its way. The last one is [`Step::Done`].
#[derive(Debug, Clone)]
pub enum Step {
    /// It was taken on.
    Accepted,
    /// It runs.
    Started,
    /// It is over, or was refused.
    Done(Handled),
}

/// The end of a command.
#[derive(Debug, Clone)]
pub struct Handled {
    /// What came of it.
    pub outcome: Arc<Outcome>,
    /// Whether it was done before, or beside this one.
    pub replayed: bool,
    /// Whether it was taken on, now or before. One that was not has no outcome to be remembered.
    pub accepted: bool,
}

impl Handled {
    /// Of what was done by a door itself.
    ///
    /// # Errors
    /// When it cannot be put into words.
    pub fn done<T: Serialize>(data: &T) -> Result<Self, ApiError> {
        let done = Performed::of(data, None)?;
        Ok(Self { outcome: Arc::new(Outcome::success(done.data, None)), replayed: false, accepted: true })
    }

    /// Of what was not taken on.
    pub fn refused(error: ApiError) -> Self {
        Self { outcome: Arc::new(Outcome::failure(error)), replayed: false, accepted: false }
    }
}

/// A command that was handed in. It goes its way whether or not anybody looks.
#[derive(Debug)]
pub struct Submitted {
    /// Its id; one that we gave it begins with [`ANONYMOUS`].
    pub id: String,
    /// Its type.
    pub command: &'static str,
    /// Its session.
    pub session: Option<SessionId>,
    steps: mpsc::Receiver<Step>,
}

impl Submitted {
    /// The next step. None: the last one was given. Cancel-safe.
    pub async fn next(&mut self) -> Option<Step> {
        self.steps.recv().await
    }

    /// Waits for the end.
    pub async fn end(mut self) -> Handled {
        while let Some(step) = self.steps.recv().await {
            match step {
                Step::Accepted | Step::Started => {}
                Step::Done(handled) => return handled,
            }
        }
        Handled::refused(ApiError::internal("the command broke off"))
    }
}

/// Waits of the pipeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    /// Longest run of a command.
    pub(super) run: Duration,
    /// Longest wait for what it depends on.
    pub(super) dependencies: Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            run: Duration::from_millis(limit::COMMAND_TIMEOUT_MS),
            dependencies: Duration::from_millis(limit::DEPENDENCY_WAIT_MS),
        }
    }
}

/// All commands.
pub(super) struct Commands {
    shared: Arc<Shared>,
}

/// What all runs share.
struct Shared {
    store: Arc<dyn Store>,
    flights: Flights,
    lanes: Lanes,
    rate: Rate,
    reads: Mutex<Reads>,
    /// Room for work; one that timed out keeps its room until it has stopped.
    room: Arc<Semaphore>,
    room_max: usize,
    /// Room for controls when there is no other.
    controls: Arc<Semaphore>,
    /// Outcomes that are remembered.
    outcomes_max: u64,
    clocks: Clocks,
    anonymous: AtomicU64,
    /// No more are taken.
    closed: AtomicBool,
}

impl Commands {
    /// A pipeline whose outcomes are in `store`; `per_minute` is each client's share.
    pub(super) fn new(store: Arc<dyn Store>, per_minute: u32) -> Self {
        Self::with(store, per_minute, (Clocks::default(), limit::COMMANDS_IN_FLIGHT_MAX))
    }

    /// Takes no more commands, and waits until none is under way, or for so long: what came of each is to be stored before the store
    /// closes.
    pub(super) async fn settle(&self, longest: Duration) {
        self.shared.closed.store(true, Ordering::Release);
        let all = u32::try_from(self.shared.room_max).unwrap_or(u32::MAX);
        drop(tokio::time::timeout(longest, self.shared.room.acquire_many(all)).await);
    }

    /// The same with other waits and room for `in_flight_max`.
    fn with(store: Arc<dyn Store>, per_minute: u32, (clocks, in_flight_max): (Clocks, usize)) -> Self {
        let rate = Rate::new(per_minute);
        let rate = if store.cluster().is_some() { rate.among_others() } else { rate };
        let shared = Shared {
            store,
            flights: Flights::default(),
            lanes: Lanes::default(),
            rate,
            reads: Mutex::default(),
            room: Arc::new(Semaphore::new(in_flight_max)),
            room_max: in_flight_max,
            controls: Arc::new(Semaphore::new(limit::CONTROLS_IN_FLIGHT_MAX)),
            outcomes_max: limit::OUTCOMES_MAX,
            clocks,
            anonymous: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What is bounded here, and how full it is.
    pub(super) fn limits(&self) -> Vec<LimitView> {
        let Shared { reads, rate, room, room_max, controls, .. } = &*self.shared;
        let used = limit::CONTROLS_IN_FLIGHT_MAX.saturating_sub(controls.available_permits());
        let (read, read_bytes) = reads.lock().size();
        vec![
            LimitView::new("commandsUnderWay", room_max.saturating_sub(room.available_permits()), *room_max),
            LimitView::new("controlsBesideThem", used, limit::CONTROLS_IN_FLIGHT_MAX),
            LimitView::new("readOutcomes", read, limit::READ_OUTCOMES_MAX),
            LimitView::new("readOutcomeBytes", read_bytes, limit::READ_OUTCOMES_BYTES_MAX),
            LimitView::new("ratedClients", rate.count(), limit::RATED_CLIENTS_MAX),
        ]
    }

    /// Another number of commands a minute.
    pub(super) fn set_rate(&self, per_minute: u32) {
        self.shared.rate.set(per_minute);
    }

    /// Tells the other servers of the store what clients give here, and hears what they give there, as long as what is returned lives. None:
    /// there are no others.
    pub(super) fn keep_company(&self) -> Option<AbortOnDropHandle<()>> {
        let cluster = self.shared.store.cluster()?;
        let shared = Arc::clone(&self.shared);
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut heard = cluster.commands();
            let mut ticks = tokio::time::interval(TELL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => cluster.tell_commands(shared.rate.taken()),
                    given = heard.recv() => match given {
                        Ok(given) => shared.rate.take_elsewhere(given),
                        // What was missed is not made up for.
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return,
                    },
                }
            }
        })))
    }

    /// Hands a command in. Its place in its lane is that of this call.
    pub(super) fn submit<O: Operations>(&self, operations: Arc<O>, caller: Caller, command: Command) -> Submitted {
        let (tell, submitted) = self.announce(&command);
        match self.shared.enter(&caller, &command) {
            Err(error) => tell.done(Handled::refused(error)),
            Ok(Entry::Beside(mut other, None)) => {
                tokio::spawn(async move { tell.done(other.end().await) });
            }
            Ok(Entry::Beside(other, Some(entered))) => {
                let run = Run { shared: Arc::clone(&self.shared), entered, tell };
                tokio::spawn(run.beside(other, caller, command).in_current_span());
            }
            Ok(Entry::Own(entered)) => {
                let run = Run { shared: Arc::clone(&self.shared), entered, tell };
                // It belongs to whoever handed it in.
                let work = Origin::current().scope(run.go(operations, caller, command));
                tokio::spawn(work.in_current_span());
            }
        }
        submitted
    }

    /// Refuses a command that is not for its caller.
    fn refuse(&self, command: &Command, error: ApiError) -> Submitted {
        let (tell, submitted) = self.announce(command);
        tell.done(Handled::refused(error));
        submitted
    }

    /// The steps of a command that is done elsewhere, and what tells them.
    pub(super) fn announced(&self, command: &Command) -> (mpsc::Sender<Step>, Submitted) {
        let (tell, submitted) = self.announce(command);
        (tell.0, submitted)
    }

    fn announce(&self, command: &Command) -> (Tell, Submitted) {
        // Three steps at most, so nobody ever waits for who looks.
        let (tell, steps) = mpsc::channel(3);
        let id = command.id.clone().unwrap_or_else(|| {
            let number = self.shared.anonymous.fetch_add(1, Ordering::Relaxed) + 1;
            format!("{ANONYMOUS}{number}")
        });
        let (kind, _) = command.operation.kind();
        (Tell(tell), Submitted { id, command: kind, session: command.session.clone(), steps })
    }

    /// The same with so many outcomes.
    #[cfg(test)]
    fn remembering(mut self, outcomes_max: u64) -> Self {
        Arc::get_mut(&mut self.shared).expect("nobody has it yet").outcomes_max = outcomes_max;
        self
    }

    /// Commands under way, and lanes in which some stand.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.shared.flights.count(), self.shared.lanes.count())
    }
}

/// Whose commands are told apart.
fn scope(caller: &Caller) -> &str {
    caller.client.as_ref().map_or("", |client| client.as_str())
}

/// What is answered to a command, on a socket or a pipe.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response<'a> {
    /// `response`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The command's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<&'a str>,
    /// Whether it succeeded.
    pub success: bool,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: &'a Outcome,
    /// Whether it was done before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}
