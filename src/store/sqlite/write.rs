//! The writer thread: takes all commits that wait, makes them one transaction, then calls back in order.
//!
//! Each commit has a savepoint of its own, so that one that fails (a taken id) does not touch the
//! others. When the transaction itself fails and held several, each is tried alone: a commit too
//! large for the disk does not take small ones with it. Between transactions, and while nothing comes, it
//! sweeps up after deleted sessions (see `sweep`) and gathers what turns have said (see `fresh`).

mod append;
mod crowd;
mod fork;
mod gather;
mod grants;
mod known;
mod presence;
mod said;
mod sessions;
mod wal;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use self::crowd::Crowd;
use self::known::Known;
use self::presence::Presence;
use self::wal::Wal;
use super::fresh::Fresh;
use super::places::Places;
use super::read;
use super::{chained, lifecycle, outcome, schema, sweep};
use crate::protocol::SessionId;
use crate::store::layer::Layer;
use crate::store::lifecycle::Bell;
use crate::store::meters::events_of;
use crate::store::turn::TurnBody;
use crate::store::{CommitMeter, Committed, Made, StoreError, TurnRow, Write, made};

/// Commits of one transaction, at most.
const GROUP_MAX: usize = 1_024;
/// Bytes of events in one row, about. More make several rows: a reader decodes rows whole.
pub(super) const ROW_BYTES_MAX: usize = 64 << 10;
/// Turns of a session whose places are remembered.
pub(super) const TURNS_MAX: usize = 8;
/// Sessions whose numbers are remembered.
const KNOWN_MAX: usize = 4_096;
/// Rest after which the write-ahead log is emptied into the database.
const REST: Duration = Duration::from_secs(1);

/// How much longer than a slice of sweeping the pause behind it is.
const SWEEP_REST: u32 = 3;
/// Pause after sweeping that failed: a full disk is no reason to try all the time.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);

/// What the writer is told. It ends when nobody can tell it anything more.
pub(super) enum Job {
    /// Do this, together or not at all.
    Commit(Made, Committed),
    /// Let the database grow to so many pages.
    LimitPages(u32),
    /// Write nothing, or write again.
    RefuseWrites(bool),
}

/// The key of a row: a session's number, and an event's number or a turn's place.
pub(super) fn key_of(session: i64, place: u64) -> i64 {
    (session << 32) | i64::from(u32::try_from(place).unwrap_or(u32::MAX))
}

/// The two halves of a key.
pub(super) fn split_key(key: i64) -> (i64, u64) {
    (key >> 32, u64::from_le_bytes(key.to_le_bytes()) & u64::from(u32::MAX))
}

/// Starts the writer and its helper that empties the write-ahead log.
pub(super) fn start(
    (mut connection, layer): (Connection, Layer),
    path: &Path,
    (jobs, bell, meter): (Receiver<Job>, Arc<Bell>, Arc<CommitMeter>),
) -> Result<(Vec<JoinHandle<()>>, Arc<Places>), StoreError> {
    let failed = |e: std::io::Error| crate::store::directory::failure("start the writer", path, &e);
    let (wal, helper) = Wal::start(&mut connection, (path, layer)).map_err(failed)?;
    let unread = |e: rusqlite::Error| schema::failure("look for what is to be swept", path, &e);
    let next_number = sweep::next_number(&connection).map_err(unread)?;
    let sweep_at = sweep::is_due(&connection).map_err(unread)?.then(Instant::now);
    let fresh = Fresh::load(&connection).map_err(|e| schema::failure("look for what is to be gathered", path, &e))?;
    let (gather_at, places) = ((!fresh.is_empty()).then(Instant::now), fresh.places());
    let writer = Writer {
        connection,
        fresh,
        gather_at,
        path: path.to_owned(),
        presence: Presence::of(path),
        known: HashMap::new(),
        wal,
        next_number,
        sweep_at,
        bell,
        rung: BTreeSet::new(),
        failing: false,
        meter,
    };
    let writer_thread = std::thread::Builder::new().name("simse-store".into());
    let writer = writer_thread.spawn(move || writer.run(&jobs)).map_err(failed)?;
    Ok((vec![writer, helper], places))
}

struct Writer {
    connection: Connection,
    path: PathBuf,
    presence: Presence,
    known: HashMap<SessionId, Known>,
    wal: Wal,
    /// The number of the next session.
    next_number: i64,
    /// When there is something to sweep up again. None: there is nothing.
    sweep_at: Option<Instant>,
    fresh: Fresh,
    /// When something is gathered again. None: nothing is.
    gather_at: Option<Instant>,
    bell: Arc<Bell>,
    /// Clients for whom the transaction has lifecycle events.
    rung: BTreeSet<String>,
    meter: Arc<CommitMeter>,
    /// The disk refused the last that was written.
    failing: bool,
}

/// Why a write did not happen.
pub(super) enum Failed {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>) {
        self.count_outcomes();
        lifecycle::count(&self.connection, &self.meter);
        let mut group: Vec<(Made, Committed)> = Vec::new();
        let mut rested = true;
        let mut crowd = Crowd::default();
        loop {
            match self.next_job(jobs, rested) {
                Ok(job) => {
                    crowd.wait();
                    self.collect(job, jobs, &mut group);
                }
                Err(RecvTimeoutError::Timeout) if self.sweeps_now() || self.gathers_now() => {}
                Err(RecvTimeoutError::Timeout) => {
                    rested = self.rest();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.gather_all();
                    wal::close(&self.connection);
                    return;
                }
            }
            rested = false;
            if !group.is_empty() {
                let (made, began) = (made::make_all(&mut group), Instant::now());
                let results = self.write_all(made.iter().map(|(writes, _)| writes.as_slice()).collect());
                let done = made.iter().zip(&results).map(|((writes, _), done)| (events_of(writes), done.is_ok()));
                self.meter.wrote(began.elapsed(), done);
                crowd.came(made.len(), began.elapsed());
                if made.iter().flat_map(|(writes, _)| writes).any(is_of_outcomes) {
                    self.count_outcomes();
                }
                self.failing = results.iter().any(|result| matches!(result, Err(StoreError::Io { .. })));
                for ((_, done), result) in made.into_iter().zip(results) {
                    // A callback that panics is its owner's fault, and must not take the writer with it.
                    let _ = catch_unwind(AssertUnwindSafe(move || done(result)));
                }
                self.wal.look(&self.connection);
            }
            if self.fresh.is_much() {
                self.begin_to_gather();
            }
            if self.gathers_now() {
                self.gather_some();
                self.wal.look(&self.connection);
            }
            if self.sweeps_now() {
                self.sweep();
                self.wal.look(&self.connection);
            }
        }
    }

    fn count_outcomes(&self) {
        // What cannot be read now is counted with the next.
        if let Ok(count) = outcome::count(&self.connection) {
            *self.meter.outcomes.lock() = count;
        }
    }

    /// The next job, or that there is none: at once when there is something to sweep up or to gather, else after a rest.
    fn next_job(&self, jobs: &Receiver<Job>, rested: bool) -> Result<Job, RecvTimeoutError> {
        match self.sweep_at.into_iter().chain(self.gather_at).min() {
            Some(at) => jobs.recv_timeout(at.saturating_duration_since(Instant::now()).min(REST)),
            None if rested => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            None => jobs.recv_timeout(REST),
        }
    }

    fn sweeps_now(&self) -> bool {
        self.sweep_at.is_some_and(|at| at <= Instant::now())
    }

    /// Takes out one slice of what deleted sessions left. Sweeping gets a share of the writer's time, not all of it.
    fn sweep(&mut self) {
        let began = Instant::now();
        self.sweep_at = match sweep::slice(&self.connection) {
            Ok(true) => Some(Instant::now() + began.elapsed() * SWEEP_REST),
            Ok(false) => None,
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "deleted sessions could not be swept up yet");
                Some(Instant::now() + SWEEP_PAUSE)
            }
        };
        lifecycle::count(&self.connection, &self.meter);
    }

    /// Takes what waits.
    fn collect(&mut self, first: Job, jobs: &Receiver<Job>, group: &mut Vec<(Made, Committed)>) {
        let mut next = Ok(first);
        loop {
            match next {
                Ok(Job::Commit(make, done)) => group.push((make, done)),
                Ok(Job::LimitPages(pages)) => {
                    let pages = if pages == 0 { u32::MAX } else { pages };
                    let limit = format!("PRAGMA max_page_count={pages}");
                    let _ = self.connection.query_row(&limit, [], |_| Ok(()));
                }
                Ok(Job::RefuseWrites(refuse)) => {
                    let _ = self.connection.pragma_update(None, "query_only", refuse);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
            if group.len() >= GROUP_MAX {
                return;
            }
            next = jobs.try_recv();
        }
    }

    /// One result for each commit, in order.
    fn write_all(&mut self, group: Vec<&[Write]>) -> Vec<Result<(), StoreError>> {
        if let Err(gone) = self.presence.check() {
            return group.iter().map(|_| Err(gone.clone())).collect();
        }
        match self.write_group(&group) {
            Ok(results) => results,
            Err(error) if group.len() == 1 => vec![Err(error)],
            Err(_) => {
                let alone = |writes: &[Write]| match self.write_group(&[writes]) {
                    Ok(mut results) => results.pop().unwrap_or(Ok(())),
                    Err(error) => Err(error),
                };
                group.into_iter().map(alone).collect()
            }
        }
    }

    /// One transaction. The outer error is the transaction's: nothing of it happened.
    fn write_group(&mut self, group: &[&[Write]]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        let result = self.try_group(group);
        if result.as_ref().map_or(true, |results| results.iter().any(Result::is_err)) {
            self.known.clear();
        }
        if result.is_err() && !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        match result {
            Ok(_) => self.fresh.settle(),
            Err(_) => self.fresh.roll_back(0),
        }
        // Of what was rolled back too: who is woken looks and finds nothing.
        for client in std::mem::take(&mut self.rung) {
            self.bell.ring(&client);
        }
        result
    }

    fn try_group(&mut self, group: &[&[Write]]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.execute("BEGIN IMMEDIATE").map_err(|e| self.failure("begin to write", &e))?;
        let mut results = Vec::with_capacity(group.len());
        for writes in group {
            results.push(self.write_one(writes, group.len() > 1)?);
        }
        self.execute("COMMIT").map_err(|e| self.failure("write to the disk", &e))?;
        Ok(results)
    }

    /// One commit. The outer error ends the transaction, the inner one only this commit.
    fn write_one(&mut self, writes: &[Write], in_company: bool) -> Result<Result<(), StoreError>, StoreError> {
        // Events alone are refused before any of them is written: there is nothing to go back from.
        let is_simple = matches!(writes, [Write::Append(..)]);
        if in_company && !is_simple {
            self.execute("SAVEPOINT one").map_err(|e| self.failure("begin to write", &e))?;
        }
        let mark = self.fresh.mark();
        let done = match writes {
            // Somebody wants to know how the disk is: one that refused is tried, with the number that stands there.
            [] if self.failing => schema::touch(&self.connection).map_err(Failed::from),
            writes => self.apply_all(writes),
        };
        let result = match done {
            Ok(()) => Ok(()),
            Err(Failed::Sqlite(e)) => return Err(self.failure("write to the disk", &e)),
            Err(Failed::Store(error)) => {
                self.known.clear();
                self.fresh.roll_back(mark);
                Err(error)
            }
        };
        let end = match (in_company, &result) {
            (true, _) if is_simple => return Ok(result),
            (true, Ok(())) => "RELEASE one",
            (true, Err(_)) => "ROLLBACK TO one",
            (false, Ok(())) => return Ok(result),
            (false, Err(error)) => return Err(error.clone()),
        };
        self.execute(end).map_err(|e| self.failure("write to the disk", &e))?;
        Ok(result)
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn failure(&self, doing: &str, cause: &rusqlite::Error) -> StoreError {
        schema::failure(doing, &self.path, cause)
    }

    /// A session's row is written behind the events of the same commit: it has the head of its log.
    fn apply_all(&mut self, writes: &[Write]) -> Result<(), Failed> {
        let mut late = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            match write {
                Write::UpdateSession(row) if appends_to(&row.id, writes.get(at + 1..).unwrap_or_default()) => {
                    late.push(row);
                }
                write => self.apply(write)?,
            }
        }
        late.into_iter().try_for_each(|row| self.update_session(row))
    }

    fn apply(&mut self, write: &Write) -> Result<(), Failed> {
        match write {
            Write::CreateSession(row) => self.create_session(row),
            Write::ForkSession { row, parent, at, chain } => self.fork(row, parent, (*at, *chain)),
            Write::UpdateSession(row) => self.update_session(row),
            Write::DeleteSession(id) => self.delete_session(id),
            Write::Append(id, events) => self.append(id, events),
            Write::SaveTurn(turn) => self.save_turn(turn),
            Write::Said(id, at, said) => self.save_said((id, *at), said.as_deref()),
            Write::SaveGrant(row) => self.save_grant(row),
            Write::DeleteGrant(id) => self.delete_grant(id),
            Write::SaveSpending(row) => self.save_spending(row),
            Write::SaveOutcome(row) => Ok(outcome::save(&self.connection, row)?),
            Write::ForgetOutcome(name) => Ok(outcome::forget(&self.connection, name)?),
        }
    }

    fn delete_session(&mut self, id: &SessionId) -> Result<(), Failed> {
        let (number, last_seq) = {
            let known = self.know(id)?;
            (known.number, known.last_seq)
        };
        self.rung.extend(lifecycle::end(&self.connection, (id, number), last_seq)?);
        self.fresh.gather(&self.connection, number)?;
        self.fresh.forget(&self.connection, number)?;
        // At once for whoever looks, whatever its log weighs.
        self.connection.prepare_cached("DELETE FROM session WHERE number = ?")?.execute([number])?;
        sweep::doom(&self.connection, number)?;
        self.sweep_at.get_or_insert_with(Instant::now);
        self.known.remove(id);
        Ok(())
    }

    fn save_turn(&mut self, turn: &TurnRow) -> Result<(), Failed> {
        let record = &turn.record;
        let place = self.turn_place(&record.session_id, &record.turn_id)?;
        let number = self.know(&record.session_id)?.number;
        let key = key_of(number, u64::try_from(place).unwrap_or_default());
        let mut update = self.connection.prepare_cached("UPDATE turn SET open = ?2, body = ?3 WHERE key = ?1")?;
        update.execute((key, !record.status.is_terminal(), json(&TurnBody::of(turn))?))?;
        Ok(())
    }

    fn know(&mut self, id: &SessionId) -> Result<&mut Known, Failed> {
        if !self.known.contains_key(id) {
            let number = read::number_of(&self.connection, id)?;
            let number = number.ok_or_else(|| StoreError::NoSession(id.clone()))?;
            self.fresh.gather(&self.connection, number)?;
            let last_seq = read::last_logged(&self.connection, number)?;
            let (chain, anchored) = chained::resume(&self.connection, (id, number))?;
            self.remember(id.clone(), Known::at((number, last_seq), (chain, anchored)));
        }
        self.known.get_mut(id).ok_or_else(|| StoreError::NoSession(id.clone()).into())
    }

    fn remember(&mut self, id: SessionId, known: Known) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(id, known);
    }
}

fn is_of_outcomes(write: &Write) -> bool {
    matches!(write, Write::SaveOutcome(_) | Write::ForgetOutcome(_))
}

/// Whether one of the writes appends to a session's log, and none of them takes the session out.
fn appends_to(id: &SessionId, writes: &[Write]) -> bool {
    let gone = |write: &Write| matches!(write, Write::DeleteSession(other) if other == id);
    let appends = |write: &Write| matches!(write, Write::Append(other, _) if other == id);
    writes.iter().any(appends) && !writes.iter().any(gone)
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|e| StoreError::Io { doing: "put a row into words".into(), cause: e.to_string() })
}
