//! One command, from its entry to its end.

use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::flight::{Dependency, Entered, Watcher, conflict};
use super::outcome::is_begun_elsewhere;
use super::parse::{Class, Command};
use super::{Handled, Operations, Outcome, Performed, Shared, Step, Task, scope};
use crate::app::Caller;
use crate::base::trace::Origin;
use crate::base::{clock, limit};
use crate::protocol::{ApiError, ErrorCode};
use crate::session::{Receipt, store_failure};
use crate::store::{Fingerprint, OutcomeRow, StoreError, Write, commit};

/// Pause between two looks at what another server is at.
const ELSEWHERE_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Who is told of the steps. Nobody has to listen.
pub(super) struct Tell(pub(super) mpsc::Sender<Step>);

impl Tell {
    fn step(&self, step: Step) {
        // There is room for all the steps that a command has.
        drop(self.0.try_send(step));
    }

    /// The last word.
    pub(super) fn done(&self, handled: Handled) {
        self.step(Step::Done(handled));
    }
}

/// A command on its way.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) entered: Box<Entered>,
    pub(super) tell: Tell,
}

/// What is remembered of a command.
#[derive(Default)]
struct Known {
    outcome: Option<Arc<Outcome>>,
    /// It had begun, and the process ended.
    begun: bool,
    /// Names under which no outcome is known.
    unknown: Vec<String>,
}

/// How work ended.
type Worked = Result<Performed, ApiError>;

impl Run {
    /// Takes it through.
    pub(super) async fn go<O: Operations>(mut self, operations: Arc<O>, caller: Caller, command: Command) {
        let handled = self.handle(operations, caller, command).await;
        self.done(handled);
    }

    /// Ends as the same command does that is under way, and is remembered under its own names too.
    pub(super) async fn beside(self, mut other: Watcher, caller: Caller, command: Command) {
        let unknown = match self.known().await {
            Ok(Known { unknown, .. }) => unknown,
            Err(error) => return self.done(Handled::refused(error)),
        };
        let handled = other.end().await;
        let handled = match handled.accepted && !handled.outcome.is_refusal() {
            true => self.name_too(handled.outcome, &unknown, (&caller, command.operation.kind().1)).await,
            false => handled,
        };
        self.done(handled);
    }

    fn done(self, handled: Handled) {
        let Self { entered, tell, .. } = self;
        entered.end(&handled);
        // Whoever hears of the end and asks again finds the outcome where outcomes are.
        drop(entered);
        tell.done(handled);
    }

    async fn handle<O: Operations>(&mut self, operations: Arc<O>, caller: Caller, command: Command) -> Handled {
        let class = command.operation.kind().1;
        match self.before_here_or_elsewhere().await {
            Ok(Some((outcome, unknown))) => return self.name_too(outcome, &unknown, (&caller, class)).await,
            Ok(None) => {}
            Err(error) => return Handled::refused(error),
        }
        let allowed = match self.check_dependencies().await {
            Ok(()) => self.take_share(&caller, class),
            refused => refused,
        };
        if let Err(error) = allowed {
            return Handled::refused(error);
        }
        self.tell.step(Step::Accepted);
        if let Some(place) = &mut self.entered.place {
            place.wait().await;
        }
        self.tell.step(Step::Started);
        let outcome = self.execute(operations, caller, command).await;
        // Another server of the store was faster with the same command: what it has come to there is the answer. It may show as what that
        // one has changed, too: an id that is taken, a version that is another one.
        let is_late = outcome.is_refusal_for_conflict() && self.shared.store.cluster().is_some();
        if is_late && let Ok(Some((outcome, _))) = self.before_here_or_elsewhere().await {
            return Handled { outcome, replayed: true, accepted: true };
        }
        if outcome.is_begun_elsewhere() {
            return match self.before_here_or_elsewhere().await {
                Ok(Some((outcome, _))) => Handled { outcome, replayed: true, accepted: true },
                Ok(None) => Handled::refused(given_up_elsewhere()),
                Err(error) => Handled::refused(error),
            };
        }
        Handled { outcome, replayed: false, accepted: true }
    }

    /// What is remembered of it; of a command that another server of the store is at, what comes of it.
    async fn before_here_or_elsewhere(&self) -> Result<Option<(Arc<Outcome>, Vec<String>)>, ApiError> {
        let deadline = Instant::now() + self.shared.clocks.run;
        loop {
            match self.before().await {
                Err(error) if is_begun_elsewhere(&error.0) && Instant::now() < deadline => {
                    tokio::time::sleep(ELSEWHERE_PAUSE).await;
                }
                Err(error) if is_begun_elsewhere(&error.0) => return Err(given_up_elsewhere()),
                known => return known,
            }
        }
    }

    async fn is_begun_elsewhere(&self) -> Result<bool, ApiError> {
        for name in &self.entered.names {
            if self.shared.store.begun_elsewhere(name).await.map_err(|error| store_failure(&error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What came of it before, and under which of its names that is not known. None: it is new.
    async fn before(&self) -> Result<Option<(Arc<Outcome>, Vec<String>)>, ApiError> {
        match self.known().await? {
            Known { outcome: Some(outcome), unknown, .. } => Ok(Some((outcome, unknown))),
            Known { begun: true, .. } if self.is_begun_elsewhere().await? => Err(begun_elsewhere()),
            Known { begun: true, .. } => {
                let outcome = Arc::new(Outcome::interrupted());
                self.store(&outcome).await.map_err(|error| unstored(&error))?;
                Ok(Some((outcome, Vec::new())))
            }
            Known { .. } => Ok(None),
        }
    }

    /// What is remembered under its names; none of them is another command's.
    async fn known(&self) -> Result<Known, ApiError> {
        let mut known = Known::default();
        for name in &self.entered.names {
            match self.shared.remembered(name).await? {
                Some((print, _)) if print != self.entered.fingerprint() => return Err(conflict(name)),
                Some((_, Some(outcome))) => {
                    known.outcome.get_or_insert(outcome);
                    continue;
                }
                Some((_, None)) => known.begun = true,
                None => {}
            }
            known.unknown.push(name.clone());
        }
        Ok(known)
    }

    /// Gives an outcome that is known under another name. From then on it is known under these, too; that counts as a command.
    async fn name_too(&self, outcome: Arc<Outcome>, names: &[String], (caller, class): (&Caller, Class)) -> Handled {
        let named = match names.is_empty() {
            true => Ok(()),
            false => self.save_under(&outcome, names, (caller, class)).await,
        };
        match named {
            Ok(()) => Handled { outcome, replayed: true, accepted: true },
            // Another server had ended it between two looks, and named it itself.
            Err(error) if is_begun_elsewhere(&error.0) => match self.before_here_or_elsewhere().await {
                Ok(Some((outcome, unknown))) if unknown.is_empty() => {
                    Handled { outcome, replayed: true, accepted: true }
                }
                Ok(_) => Handled::refused(given_up_elsewhere()),
                Err(error) => Handled::refused(error),
            },
            Err(error) => Handled::refused(error),
        }
    }

    async fn save_under(
        &self,
        outcome: &Arc<Outcome>,
        names: &[String],
        (caller, class): (&Caller, Class),
    ) -> Result<(), ApiError> {
        self.take_share(caller, class)?;
        let print = self.entered.fingerprint();
        if class == Class::Read {
            let (now, mut reads) = (clock::now_ms(), self.shared.reads.lock());
            names.iter().for_each(|name| reads.save(name, (print, outcome), now));
            return Ok(());
        }
        let rows = names.iter().map(|name| row(name, print, Some(outcome)));
        self.write(rows.collect()).await.map_err(|error| unnamed(&error))
    }

    /// Takes one out of the caller's share, unless what comes of it could not be remembered.
    fn take_share(&self, caller: &Caller, class: Class) -> Result<(), ApiError> {
        let control = class == Class::Control;
        let (kept, more) = (self.shared.store.outcomes_kept(), limit::OUTCOMES_OF_CONTROLS_MAX);
        let most = self.shared.outcomes_max + if control { more } else { 0 };
        let now = clock::now_ms();
        let kept_at = now.saturating_sub(limit::OUTCOME_MS)..=now.saturating_add(limit::OUTCOME_AHEAD_MS);
        let has_gone = !kept_at.contains(&kept.oldest_at);
        let is_kept = class != Class::Read && !self.entered.names.is_empty();
        // With each that comes go several that have expired.
        if is_kept && kept.count >= most && !has_gone {
            let message = format!(
                "{most} outcomes are remembered, and none may be forgotten yet, so that nothing is done twice; wait, or ask without an id or a key"
            );
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        self.shared.rate.take(scope(caller), control)
    }

    /// Refuses what can be seen never to be met.
    async fn check_dependencies(&self) -> Result<(), ApiError> {
        for (at, dependency) in self.entered.dependencies.iter().enumerate() {
            if dependency.flight.is_some() {
                continue;
            }
            match self.shared.remembered(&dependency.name).await? {
                None => {
                    let field = format!("dependsOn[{at}]");
                    let expected = format!("a command that was given before; `{}` is not known", dependency.id);
                    return Err(ApiError::invalid(&field, expected));
                }
                Some((_, Some(outcome))) if outcome.error.is_none() => {}
                Some(_) => return Err(failed(&dependency.id)),
            }
        }
        Ok(())
    }

    /// Waits for what is still under way.
    async fn await_dependencies(&mut self) -> Result<(), ApiError> {
        let deadline = Instant::now() + self.shared.clocks.dependencies;
        for Dependency { id, flight, .. } in &mut self.entered.dependencies {
            let Some(flight) = flight else { continue };
            let Ok(end) = tokio::time::timeout_at(deadline, flight.end()).await else {
                let wait_ms = self.shared.clocks.dependencies.as_millis();
                let message = format!("command `{id}`, on which this one depends, did not end within {wait_ms} ms");
                return Err(ApiError::new(ErrorCode::Timeout, message));
            };
            if end.outcome.error.is_some() {
                return Err(failed(id));
            }
        }
        Ok(())
    }

    async fn check_version<O: Operations>(
        &self,
        operations: &O,
        caller: &Caller,
        command: &Command,
    ) -> Result<(), ApiError> {
        let (Some(wanted), Some(session)) = (command.if_version, &command.session) else { return Ok(()) };
        let version = operations.version(caller.clone(), session.clone()).await?;
        if version == wanted {
            return Ok(());
        }
        let message = format!("session {session} has version {version}, not {wanted}");
        let details = serde_json::json!({ "field": command.version_field, "expected": version, "got": wanted });
        Err(ApiError::conflict(message).with_details(details))
    }

    /// Everything behind the start.
    async fn execute<O: Operations>(&mut self, operations: Arc<O>, caller: Caller, command: Command) -> Arc<Outcome> {
        let (_, class) = command.operation.kind();
        let rides = command.operation.rides();
        let ready = match self.await_dependencies().await {
            Ok(()) => self.check_version(&*operations, &caller, &command).await,
            failed => failed,
        };
        if let Err(error) = ready {
            return self.keep(Outcome::failure(error), class, false).await;
        }
        if !rides
            && class != Class::Read
            && let Err(error) = self.begin().await
        {
            return Arc::new(Outcome::failure(error));
        }
        let kept = Arc::new(OnceLock::new());
        let receipt = Arc::new(self.receipt(&kept));
        let version_field = command.version_field;
        let task =
            Task { caller, session: command.session, operation: command.operation, receipt: Arc::clone(&receipt) };
        let worked = self.work(operations, task, (rides, class, receipt)).await;
        // Who makes the change knows it by one name, callers by several.
        let worked = worked.map_err(|error| error.with_field("ifVersion", version_field));
        match (worked, kept.get()) {
            // It is in the log, with its effect.
            (Ok(_), Some(outcome)) => Arc::clone(outcome),
            (Ok(done), None) => self.keep(Outcome::success(done.data, done.version), class, true).await,
            (Err(error), _) => self.keep(Outcome::failure(error), class, false).await,
        }
    }

    /// Does it, for as long as it may take.
    async fn work<O: Operations>(
        &mut self,
        operations: Arc<O>,
        task: Task,
        (rides, class, receipt): (bool, Class, Arc<Receipt>),
    ) -> Worked {
        let work = Origin::current().scope(operations.perform(task));
        let mut work = tokio::spawn(work.in_current_span());
        let joined = match tokio::time::timeout(self.shared.clocks.run, &mut work).await {
            Ok(joined) => joined,
            // What is in the middle of its commit ends with that.
            Err(_) if rides && !receipt.revoke() => (&mut work).await,
            Err(_) => {
                self.leave(work, class);
                return Err(timed_out(self.shared.clocks.run, rides || class == Class::Read));
            }
        };
        // The panic hook has said where.
        joined.unwrap_or_else(|_| Err(ApiError::internal("something went wrong inside the server; its log says what")))
    }

    /// Goes on without work that takes too long. It keeps its place and its room until it has stopped.
    fn leave(&mut self, work: tokio::task::JoinHandle<Worked>, class: Class) {
        if class == Class::Read {
            return work.abort();
        }
        let place = self.entered.place.take();
        let room = self.entered.room.take();
        tokio::spawn(async move {
            drop(work.await);
            drop((place, room));
        });
    }

    /// The rows that go into the commit of the effect.
    fn receipt(&self, kept: &Arc<OnceLock<Arc<Outcome>>>) -> Receipt {
        let (names, fingerprint, kept) = (self.entered.names.clone(), self.entered.fingerprint(), Arc::clone(kept));
        Receipt::new(move |data, version| {
            let outcome = Arc::new(Outcome::success(data, version));
            let rows = names.iter().map(|name| row(name, fingerprint, Some(&outcome)));
            let writes = rows.collect();
            let _ = kept.set(outcome);
            writes
        })
    }

    /// Notes that it begins, before it does anything.
    async fn begin(&self) -> Result<(), ApiError> {
        let rows = self.entered.names.iter().map(|name| row(name, self.entered.fingerprint(), None));
        self.write(rows.collect()).await.map_err(|error| unstored(&error))
    }

    /// Remembers an outcome, and gives it as it is to be answered.
    async fn keep(&self, outcome: Outcome, class: Class, done: bool) -> Arc<Outcome> {
        let outcome = Arc::new(outcome);
        if class == Class::Read {
            let (now, print) = (clock::now_ms(), self.entered.fingerprint());
            let names = self.entered.names.iter().filter(|_| !outcome.is_refusal());
            names.for_each(|name| self.shared.reads.lock().save(name, (print, &outcome), now));
            return outcome;
        }
        let stored = match outcome.is_refusal() {
            true => self.write(self.entered.names.iter().cloned().map(Write::ForgetOutcome).collect()).await,
            false => self.store(&outcome).await,
        };
        match stored {
            Err(error) if done => {
                let message = format!("it was done, but what came of it could not be stored: {}", error.0.message);
                let is_away = error.0.code == ErrorCode::UpstreamUnavailable;
                let code = if is_away { ErrorCode::UpstreamUnavailable } else { ErrorCode::Internal };
                Arc::new(Outcome::failure(ApiError::new(code, message)))
            }
            Err(error) if outcome.gives_way_to(&error.0, self.shared.store.cluster().is_some()) => {
                Arc::new(Outcome::failure(error))
            }
            Ok(()) | Err(_) => outcome,
        }
    }

    async fn store(&self, outcome: &Outcome) -> Result<(), ApiError> {
        let rows = self.entered.names.iter().map(|name| row(name, self.entered.fingerprint(), Some(outcome)));
        self.write(rows.collect()).await
    }

    async fn write(&self, writes: Vec<Write>) -> Result<(), ApiError> {
        if writes.is_empty() {
            return Ok(());
        }
        commit(&self.shared.store, writes).await.map_err(|error| store_failure(&error))
    }
}

impl Shared {
    /// What is remembered under a name: what it asked for, and what came of it. No outcome: it had begun, and the
    /// process ended.
    async fn remembered(&self, name: &str) -> Result<Option<(Fingerprint, Option<Arc<Outcome>>)>, ApiError> {
        let now = clock::now_ms();
        if let Some(read) = self.reads.lock().find(name, now) {
            return Ok(Some((read.fingerprint, Some(read.outcome))));
        }
        let found = self.store.outcome(name).await.map_err(|error| store_failure(&error))?;
        let Some(row) = found.filter(|row| now < row.at + limit::OUTCOME_MS) else { return Ok(None) };
        let outcome = match &row.body {
            None => None,
            Some(body) => match serde_json::from_str(body) {
                Ok(outcome) => Some(Arc::new(outcome)),
                Err(cause) => return Err(ApiError::internal(format!("a stored outcome cannot be read: {cause}"))),
            },
        };
        Ok(Some((row.fingerprint, outcome)))
    }
}

fn row(name: &str, fingerprint: Fingerprint, outcome: Option<&Outcome>) -> Write {
    let at = clock::now_ms();
    // Plain data: it can always be written.
    let body = outcome.map(|outcome| serde_json::to_string(outcome).unwrap_or_default());
    let expired_before = at.saturating_sub(limit::OUTCOME_MS);
    let wrong_behind = at.saturating_add(limit::OUTCOME_AHEAD_MS);
    let name = name.to_owned();
    Write::SaveOutcome(Box::new(OutcomeRow { name, fingerprint, at, expired_before, wrong_behind, body }))
}

/// Says that another server was at the same command, and that it is not known what comes of it.
fn given_up_elsewhere() -> ApiError {
    let message = "another server was at this command, and nothing has come of it yet: ask again";
    ApiError::new(ErrorCode::UpstreamUnavailable, message)
}

/// Says that another server of the store is at the same command.
fn begun_elsewhere() -> ApiError {
    store_failure(&StoreError::Begun)
}

fn failed(id: &str) -> ApiError {
    ApiError::conflict(format!("command `{id}`, on which this one depends, failed"))
        .with_details(serde_json::json!({ "field": "dependsOn", "failed": id }))
}

fn unstored(error: &ApiError) -> ApiError {
    if is_begun_elsewhere(&error.0) {
        return begun_elsewhere();
    }
    let message = format!(
        "nothing was done, because it could not be written down: {}; without an id and a key it is done all the same",
        error.0.message
    );
    ApiError::new(error.code(), message)
}

fn unnamed(error: &ApiError) -> ApiError {
    if is_begun_elsewhere(&error.0) {
        return begun_elsewhere();
    }
    let message = format!(
        "it was done before under another name, and what came of it could not be written down under this one: {}",
        error.0.message
    );
    ApiError::new(error.code(), message)
}

fn timed_out(after: std::time::Duration, undone: bool) -> ApiError {
    let after_ms = after.as_millis();
    let what = if undone { "nothing was changed" } else { "it may still be done; its lane waits for it" };
    ApiError::new(ErrorCode::Timeout, format!("the command did not end within {after_ms} ms; {what}"))
}
