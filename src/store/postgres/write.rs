//! The writer: takes all commits that wait, makes them one transaction, then calls back in order.
//!
//! What can be refused without the database is refused while the group is planned, and touches no other commit. Where the database
//! refuses a group, each of its commits is tried alone. A connection that is lost is made anew, for [`LOST_MAX`]; whether a transaction
//! happened whose end was not heard is looked up by its number in the node's row, so that it happens once, also over a restart of the
//! database.

mod statements;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Client;
use tokio_util::task::AbortOnDropHandle;

use self::statements::Statements;
use super::connect::Reach;
use super::fault::Fault;
use super::node::Node;
use super::plan::{Known, Plan, Planner, Shared};
use super::tidings::{GONE, Tidings};
use super::{fork, schema, sweep};
use crate::protocol::SessionId;
use crate::store::chain::Chain;
use crate::store::lifecycle::{Bell, Bounds};
use crate::store::meters::events_of;
use crate::store::{CommitMeter, Committed, Made, OutcomesKept, StoreError, Write};

/// Commits of one transaction, at most.
pub(super) const GROUP_MAX: usize = 1_024;
/// Sessions of which the writer remembers how they are.
const KNOWN_MAX: usize = 16_384;
/// How long a group waits for a database that does not answer.
pub(super) const LOST_MAX: Duration = Duration::from_secs(30);
/// How long an attempt may take: longer than the database gives a statement.
const ATTEMPT_MAX: Duration = Duration::from_secs(35);
/// Pauses between two attempts: the first, and the longest.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Times that a group is tried when somebody else is in the way. A database that is away has none of them: one that has just come back has
/// many at once who get into each other's way.
pub(super) const ATTEMPTS_MAX: u32 = 5;
/// Rest after which is looked for what is to be swept up.
const REST: Duration = Duration::from_secs(1);
/// How much longer than a slice of sweeping the pause behind it is.
const SWEEP_REST: u32 = 3;
/// Time between two looks for what another process has left to be swept up.
const SWEEP_LOOK: Duration = Duration::from_secs(60);

/// What the writer is told: do this, together or not at all. It ends when nobody can tell it anything more.
pub(super) type Job = (Made, Committed);

/// The connection that is written to.
struct Line {
    client: Client,
    statements: Statements,
    _driven: AbortOnDropHandle<()>,
}

pub(super) struct Writer {
    reach: Reach,
    node: Node,
    line: Option<Line>,
    known: HashMap<SessionId, Known>,
    /// Sessions with smaller numbers have a partition of the log.
    partition_upto: i64,
    bell: Arc<Bell>,
    meter: Arc<CommitMeter>,
    /// Tells the other nodes what there is to read. None: the database is this one's alone.
    tidings: Option<Arc<Tidings>>,
    /// The number of the last transaction that was begun.
    nth: i64,
    /// When is swept up again.
    sweep_at: Instant,
    /// The database did not answer for so long that commits were refused: the next is tried once.
    is_down: bool,
}

impl Writer {
    /// On a database that has its tables.
    pub(super) fn new(
        (reach, node): (Reach, Node),
        (bell, meter): (Arc<Bell>, Arc<CommitMeter>),
        tidings: Option<Arc<Tidings>>,
    ) -> Self {
        let known = HashMap::new();
        Self {
            reach,
            node,
            line: None,
            known,
            partition_upto: 0,
            bell,
            meter,
            tidings,
            nth: 0,
            sweep_at: Instant::now(),
            is_down: false,
        }
    }

    pub(super) async fn run(mut self, mut jobs: UnboundedReceiver<Job>) {
        let mut group: Vec<Job> = Vec::new();
        loop {
            let rest = self.sweep_at.saturating_duration_since(Instant::now()).min(REST);
            match tokio::time::timeout(rest, jobs.recv_many(&mut group, GROUP_MAX)).await {
                Ok(0) => return,
                Ok(_) => {
                    self.write(&mut group).await;
                    // Those that were just called back go on first: what they hand in next belongs to the same transaction.
                    tokio::task::yield_now().await;
                }
                Err(_) => {}
            }
            if self.sweep_at <= Instant::now() {
                self.sweep().await;
            }
        }
    }

    async fn write(&mut self, group: &mut Vec<Job>) {
        let (made, began) = (made_of(group), Instant::now());
        let results = self.write_all(made.iter().map(|(writes, _)| writes.as_slice()).collect()).await;
        let done = made.iter().zip(&results).map(|((writes, _), done)| (events_of(writes), done.is_ok()));
        self.meter.wrote(began.elapsed(), done);
        for ((_, done), result) in made.into_iter().zip(results) {
            // A callback that panics is its owner's fault, and must not take the writer with it.
            let _ = catch_unwind(AssertUnwindSafe(move || done(result)));
        }
    }

    /// One result for each commit, in order. What a fork shares is looked up behind all that comes before it.
    async fn write_all(&mut self, group: Vec<&[Write]>) -> Vec<Result<(), StoreError>> {
        let mut results = Vec::with_capacity(group.len());
        let mut rest = group.as_slice();
        while !rest.is_empty() {
            let plain = rest.iter().position(|writes| writes.iter().any(is_fork)).unwrap_or(rest.len()).max(1);
            let (first, behind) = rest.split_at(plain);
            results.extend(self.write_group(first).await);
            rest = behind;
        }
        results
    }

    async fn write_group(&mut self, group: &[&[Write]]) -> Vec<Result<(), StoreError>> {
        match self.try_until(group).await {
            Ok(results) => results,
            Err(fault) if group.len() == 1 => {
                let fault = match (fault, group[0]) {
                    (Fault::Taken, writes) => taken_of(writes).map_or(Fault::Taken, Fault::Store),
                    (fault, _) => fault,
                };
                vec![Err(fault.told("write to the database", &self.reach.place))]
            }
            Err(Fault::Over) => {
                self.node.end();
                vec![Err(StoreError::TakenOver); group.len()]
            }
            Err(Fault::Lost(cause)) => {
                let lost = Fault::Lost(cause).told("write to the database", &self.reach.place);
                vec![Err(lost); group.len()]
            }
            Err(_) => {
                let mut results = Vec::with_capacity(group.len());
                for writes in group {
                    results.extend(Box::pin(self.write_group(&[writes])).await);
                }
                results
            }
        }
    }

    /// Tries until it is done, the database says no, or it has not answered for too long.
    async fn try_until(&mut self, group: &[&[Write]]) -> Result<Vec<Result<(), StoreError>>, Fault> {
        let (began, mut pause, mut attempts, mut is_told) = (Instant::now(), PAUSES.0, 0, false);
        // The transaction whose end was not heard, and what its commits would have been told.
        let mut open: Option<Heard> = None;
        loop {
            let attempt = tokio::time::timeout(ATTEMPT_MAX, self.try_once(group, &mut open)).await;
            let fault = match attempt.unwrap_or_else(|_| Err(Fault::Lost("it does not answer".into()))) {
                Ok(results) => {
                    self.is_down = false;
                    return Ok(results);
                }
                Err(fault) => fault,
            };
            self.known.clear();
            match fault {
                Fault::Lost(cause) => {
                    self.line = None;
                    if self.is_down || began.elapsed() >= LOST_MAX {
                        self.is_down = true;
                        return Err(Fault::Lost(cause));
                    }
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(place = %self.reach.place, cause, "the database is lost: it is looked for");
                    }
                }
                Fault::Again(_) | Fault::Aborted | Fault::Stale => {
                    attempts += 1;
                    if attempts == ATTEMPTS_MAX {
                        return Err(fault);
                    }
                }
                fault => return Err(fault),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn try_once(
        &mut self,
        group: &[&[Write]],
        open: &mut Option<Heard>,
    ) -> Result<Vec<Result<(), StoreError>>, Fault> {
        if self.node.is_over() && open.is_none() {
            return Err(Fault::Over);
        }
        self.reach().await?;
        // It stays open until there is an answer: this attempt may be given up while it waits.
        if let Some(heard) = open.as_ref() {
            let happened = self.happened(heard).await?;
            if let Some(heard) = open.take().filter(|_| happened) {
                return Ok(self.settle(heard));
            }
        }
        let (planner, results) = self.planned(group).await?;
        let (plan, known) = planner.finish();
        let Some(line) = &self.line else { return Err(Fault::Lost("no connection".into())) };
        self.nth += 1;
        let outcomes = match line.statements.carry_out(&line.client, &plan, (self.node.number, self.nth)).await {
            Ok(outcomes) => outcomes,
            Err(fault) => {
                // A connection that is gone has rolled back by itself.
                let _ = line.client.batch_execute("ROLLBACK").await;
                return Err(fault);
            }
        };
        // Before it is sent: from then on it may happen, whether its end is heard or not.
        *open = Some(Heard { nth: self.nth, plan, known, results, outcomes });
        let ended = line.client.batch_execute("COMMIT").await.map_err(Fault::from);
        if matches!(ended, Err(Fault::Lost(_))) {
            return ended.map(|()| Vec::new());
        }
        let heard = open.take();
        ended?;
        Ok(heard.map_or_else(Vec::new, |heard| self.settle(heard)))
    }

    /// Remembers what a transaction has done, and wakes who waits for it.
    fn settle(&mut self, heard: Heard) -> Vec<Result<(), StoreError>> {
        let Heard { plan, known, results, outcomes, .. } = heard;
        if self.known.len() + known.len() > KNOWN_MAX {
            self.known.clear();
        }
        if let Some(tidings) = &self.tidings {
            let ends = plan.ends.iter().map(|(session, end)| (*session, end.chain.seq()));
            let gone = plan.deleted.iter().map(|session| (*session, GONE));
            if !plan.grants.is_empty() {
                tidings.tell_changed();
            }
            tidings.tell(ends.chain(gone), plan.told.iter().map(|told| told.client.as_str()));
        }
        let shares = self.tidings.is_some();
        for (id, known) in known {
            match known.filter(|known| !shares || known.holder == Some(self.node.number)) {
                Some(known) => drop(self.known.insert(id, known)),
                None => drop(self.known.remove(&id)),
            }
        }
        for client in plan.told.iter().map(|told| told.client.as_str()).collect::<HashSet<_>>() {
            self.bell.ring(client);
        }
        if let Some(kept) = outcomes {
            *self.meter.outcomes.lock() = kept;
        }
        if !plan.deleted.is_empty() {
            self.sweep_at = self.sweep_at.min(Instant::now());
        }
        results
    }

    /// Whether a transaction happened whose end was not heard.
    async fn happened(&self, heard: &Heard) -> Result<bool, Fault> {
        let Some(line) = &self.line else { return Err(Fault::Lost("no connection".into())) };
        // It waits for the end of that transaction, should its server process not have noticed yet that nobody is there.
        let sql = "SELECT written FROM node WHERE number = $1 FOR UPDATE";
        let row = line.client.query_opt(sql, &[&self.node.number]).await?.ok_or(Fault::Over)?;
        Ok(row.get::<_, i64>(0) == heard.nth)
    }

    /// Has a connection that works.
    async fn reach(&mut self) -> Result<(), Fault> {
        if self.line.as_ref().is_some_and(|line| !line.client.is_closed()) {
            return Ok(());
        }
        self.line = None;
        let (client, driven) = self.reach.line().await?;
        let statements = Statements::prepare(&client).await?;
        self.line = Some(Line { client, statements, _driven: driven });
        Ok(())
    }

    /// Looks up what the group needs, and plans it.
    async fn planned(&mut self, group: &[&[Write]]) -> Result<(Planner, Vec<Result<(), StoreError>>), Fault> {
        if self.tidings.as_ref().is_some_and(|tidings| tidings.has_let_go()) {
            self.known.clear();
        }
        let Some(line) = &self.line else { return Err(Fault::Lost("no connection".into())) };
        let (mut known, mut missing, mut made) = (HashMap::new(), Vec::new(), 0);
        for write in group.iter().flat_map(|writes| writes.iter()) {
            made += i64::from(matches!(write, Write::CreateSession(_) | Write::ForkSession { .. }));
            for id in named(write).into_iter().flatten() {
                if known.contains_key(id) {
                    continue;
                }
                let here = self.known.get(id).cloned();
                if here.is_none() {
                    missing.push(id.as_str());
                }
                known.insert(id.clone(), here);
            }
        }
        if !missing.is_empty() {
            for (id, found) in line.statements.look_up(&line.client, &missing).await? {
                known.insert(id, Some(found));
            }
        }
        let mut shared = HashMap::new();
        for write in group.iter().flat_map(|writes| writes.iter()) {
            if let Write::ForkSession { row, parent, at, chain } = write
                && let Some(Some(of)) = known.get(parent)
            {
                shared.insert(row.id.clone(), shared_of(&line.client, (parent, of), (*at, *chain)).await?);
            }
        }
        let numbers = if made > 0 { line.statements.numbers(&line.client, made).await? } else { Vec::new() };
        for number in &numbers {
            if *number >= self.partition_upto {
                self.partition_upto = schema::make_partition(&line.client, *number).await?;
            }
        }
        let mut planner = Planner::new(known, shared, numbers).of_node(self.tidings.as_ref().map(|_| self.node.number));
        let results = group.iter().map(|writes| planner.take(writes)).collect();
        Ok((planner, results))
    }

    async fn sweep(&mut self) {
        let began = Instant::now();
        if self.node.is_over() || self.is_down && self.line.is_none() {
            self.sweep_at = began + SWEEP_LOOK;
            return;
        }
        let swept = match self.reach().await {
            Ok(()) => match &self.line {
                Some(line) => sweep::slice(&line.client, Bounds::now(), &self.meter).await,
                None => Ok(false),
            },
            Err(fault) => Err(fault),
        };
        self.sweep_at = match swept {
            Ok(true) => Instant::now() + began.elapsed() * SWEEP_REST,
            Ok(false) => Instant::now() + SWEEP_LOOK,
            Err(fault) => {
                let error = fault.told("sweep up", &self.reach.place);
                tracing::warn!(%error, "deleted sessions could not be swept up yet");
                Instant::now() + SWEEP_LOOK
            }
        };
    }
}

/// A transaction as it was handed to the database.
struct Heard {
    /// Its number in the node's row.
    nth: i64,
    plan: Plan,
    known: HashMap<SessionId, Option<Known>>,
    results: Vec<Result<(), StoreError>>,
    outcomes: Option<OutcomesKept>,
}

fn made_of(group: &mut Vec<Job>) -> Vec<(Vec<Write>, Committed)> {
    crate::store::made::make_all(group)
}

fn is_fork(write: &Write) -> bool {
    matches!(write, Write::ForkSession { .. })
}

/// The sessions that a write is about.
fn named(write: &Write) -> [Option<&SessionId>; 2] {
    match write {
        Write::CreateSession(row) | Write::UpdateSession(row) => [Some(&row.id), None],
        Write::ForkSession { row, parent, .. } => [Some(&row.id), Some(parent)],
        Write::DeleteSession(id) | Write::Append(id, _) | Write::Said(id, ..) => [Some(id), None],
        Write::SaveTurn(turn) => [Some(&turn.record.session_id), None],
        Write::SaveGrant(_)
        | Write::DeleteGrant(_)
        | Write::SaveSpending(_)
        | Write::SaveOutcome(_)
        | Write::ForgetOutcome(_) => [None, None],
    }
}

fn taken_of(writes: &[Write]) -> Option<StoreError> {
    writes.iter().find_map(|write| match write {
        Write::CreateSession(row) | Write::ForkSession { row, .. } => Some(StoreError::Taken(row.id.clone())),
        _ => None,
    })
}

async fn shared_of(
    client: &Client,
    (parent, of): (&SessionId, &Known),
    (at, chain): (u64, Option<Chain>),
) -> Result<Shared, Fault> {
    let (base, depth) = fork::base_of(client, of.number, at).await?;
    let here = chain.into_iter().chain([of.chain]).find(|chain| chain.seq() == at);
    let chain = match here {
        Some(chain) => chain,
        None => fork::chain_at(client, (parent, of.number), at).await?,
    };
    Ok(Shared { base, chain, depth })
}
