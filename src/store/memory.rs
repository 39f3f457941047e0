//! A store in memory: the same promises, gone with the process.
//!
//! Commits are applied by whoever hands one in while nobody else is at it; so callbacks come in
//! order, one at a time, and one that hands in further commits does not nest.

mod listing;
mod outcomes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use self::outcomes::Outcomes;
use super::lifecycle::{Bell, Bounds, EndsKept, LifecyclePage, gone, line_of};
use super::{
    BoxFuture, ClientSpending, Committed, GrantRow, OutcomeRow, OutcomesKept, Question, Said, SessionRow, Store,
    StoreError, TurnRow, Which, Write,
};

use crate::protocol::{ClientId, Event, SessionId, TurnId, is_lifecycle};

#[derive(Debug)]
struct Held {
    row: SessionRow,
    events: Vec<Event>,
    /// In the order they were first saved.
    turns: Vec<TurnRow>,
    /// What waits and is large.
    said: HashMap<u64, Arc<Said>>,
}

#[derive(Debug, Default)]
struct State {
    numbers: HashMap<SessionId, u64>,
    sessions: BTreeMap<u64, Held>,
    last_number: u64,
    grants: Vec<GrantRow>,
    spending: Vec<ClientSpending>,
    outcomes: Outcomes,
    /// By client; the one without an id is the empty text.
    lifecycles: HashMap<String, Lifecycle>,
    ends: Ends,
    /// Clients for whom there are new ones.
    rung: BTreeSet<String>,
    closed: bool,
}

/// The ends of sessions that are told of.
#[derive(Debug, Default)]
struct Ends {
    /// When each came, of which client it is, and its place there; oldest first.
    order: VecDeque<(u64, String, u64)>,
    /// The newest place of a client of whom nothing is left, the highest of them all.
    forgotten: u64,
    /// When the newest one came that was forgotten.
    forgotten_at: u64,
}

/// A client's lifecycle events, oldest first.
#[derive(Debug, Default)]
struct Lifecycle {
    newest: u64,
    entries: VecDeque<(u64, Told)>,
}

/// A lifecycle event.
#[derive(Debug)]
enum Told {
    /// It stands in the log of the session with this number.
    Event { number: u64, seq: u64 },
    /// The session is gone.
    Gone(Event),
}

impl Lifecycle {
    /// Of a client that has none: its first place comes behind this one.
    fn behind(newest: u64) -> Self {
        Self { newest, entries: VecDeque::new() }
    }

    fn push(&mut self, told: Told) {
        self.newest += 1;
        self.entries.push_back((self.newest, told));
    }

    /// A session has gone, and so have its events.
    fn end(&mut self, number: u64, event: Event) {
        self.entries.retain(|(_, told)| !matches!(told, Told::Event { number: other, .. } if *other == number));
        self.push(Told::Gone(event));
    }

    /// Forgets what is at a place.
    fn forget(&mut self, place: u64) {
        if let Ok(at) = self.entries.binary_search_by_key(&place, |(place, _)| *place) {
            self.entries.remove(at);
        }
    }
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Vec<Write>, Committed)>,
    served: bool,
}

/// Durable as long as the process.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    line: Mutex<Line>,
    bell: Bell,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn read<'a, T: Send + 'a>(&self, look: impl FnOnce(&State) -> T) -> BoxFuture<'a, Result<T, StoreError>> {
        let state = self.state.lock();
        let result = if state.closed { Err(StoreError::Closed) } else { Ok(look(&state)) };
        Box::pin(std::future::ready(result))
    }
}

impl State {
    fn held(&self, id: &SessionId) -> Option<&Held> {
        self.sessions.get(self.numbers.get(id)?)
    }

    fn held_mut(&mut self, id: &SessionId) -> Option<&mut Held> {
        self.sessions.get_mut(self.numbers.get(id)?)
    }

    /// Whether all of it can happen. Nothing is changed.
    fn check(&self, writes: &[Write]) -> Result<(), StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let mut made = HashSet::new();
        let mut gone = HashSet::new();
        let mut ends: HashMap<&SessionId, u64> = HashMap::new();
        for write in writes {
            let known = |id: &SessionId| made.contains(id) || (self.numbers.contains_key(id) && !gone.contains(id));
            match write {
                Write::CreateSession(row) if known(&row.id) => return Err(StoreError::Taken(row.id.clone())),
                Write::CreateSession(row) => {
                    made.insert(row.id.clone());
                    ends.insert(&row.id, 0);
                }
                Write::ForkSession { row, .. } if known(&row.id) => return Err(StoreError::Taken(row.id.clone())),
                Write::ForkSession { row, parent, at, chain: _ } => {
                    let held = self.held(parent).filter(|_| known(parent));
                    let held = held.ok_or_else(|| StoreError::NoSession(parent.clone()))?;
                    super::check_fork(parent, *at, last_seq_of(&held.events))?;
                    made.insert(row.id.clone());
                    ends.insert(&row.id, *at);
                }
                Write::UpdateSession(row) if !known(&row.id) => return Err(StoreError::NoSession(row.id.clone())),
                Write::SaveTurn(turn) if !known(&turn.record.session_id) => {
                    return Err(StoreError::NoSession(turn.record.session_id.clone()));
                }
                Write::DeleteSession(id) | Write::Append(id, _) | Write::Said(id, ..) if !known(id) => {
                    return Err(StoreError::NoSession(id.clone()));
                }
                Write::UpdateSession(_)
                | Write::SaveTurn(_)
                | Write::Said(..)
                | Write::SaveGrant(_)
                | Write::DeleteGrant(_)
                | Write::SaveSpending(_)
                | Write::SaveOutcome(_)
                | Write::ForgetOutcome(_) => {}
                Write::DeleteSession(id) => {
                    made.remove(id);
                    gone.insert(id.clone());
                }
                Write::Append(id, events) => {
                    let end = ends.entry(id).or_insert_with(|| self.held(id).map_or(0, |h| last_seq_of(&h.events)));
                    super::check_numbers(*end, events)?;
                    *end = last_seq_of(events).max(*end);
                }
            }
        }
        Ok(())
    }

    /// What is shared is copied: it is in memory anyway.
    fn fork(&mut self, row: SessionRow, parent: &SessionId, at: u64) {
        let Some(of) = self.held(parent) else { return };
        let events = of.events.iter().take_while(|event| event.seq <= at);
        let events = events.map(|event| Event { session_id: row.id.clone(), ..event.clone() }).collect();
        let shared =
            of.turns.iter().filter(|turn| turn.record.first_seq.or(turn.record.last_seq).is_some_and(|seq| seq <= at));
        let mut turns: Vec<TurnRow> = shared.filter(|turn| turn.record.status.is_terminal()).cloned().collect();
        turns.iter_mut().for_each(|turn| turn.record.session_id.clone_from(&row.id));
        self.last_number += 1;
        self.numbers.insert(row.id.clone(), self.last_number);
        self.sessions.insert(self.last_number, Held { row, events, turns, said: HashMap::new() });
    }

    fn append(&mut self, id: &SessionId, events: &[Event]) {
        let Some(number) = self.numbers.get(id) else { return };
        let Some(held) = self.sessions.get_mut(number) else { return };
        held.events.extend(events.iter().cloned());
        let (number, client) = (*number, line_of(held.row.client.as_ref()).to_owned());
        for event in events.iter().filter(|event| is_lifecycle(&event.kind)) {
            self.lifecycle_of(&client).push(Told::Event { number, seq: event.seq });
            self.rung.insert(client.clone());
        }
    }

    fn lifecycle_of(&mut self, client: &str) -> &mut Lifecycle {
        let behind = self.ends.forgotten;
        self.lifecycles.entry(client.to_owned()).or_insert_with(|| Lifecycle::behind(behind))
    }

    /// A session is gone: its end is told of, and the oldest ends no longer, where they are out of bounds.
    fn end(&mut self, client: String, number: u64, end: Event, bounds: Bounds) {
        let at = end.at;
        let of = self.lifecycle_of(&client);
        of.end(number, end);
        let place = of.newest;
        self.ends.order.push_back((at, client.clone(), place));
        self.rung.insert(client);
        let out = |ends: &Ends| {
            ends.order.front().is_some_and(|(at, ..)| ends.order.len() as u64 > bounds.count || *at < bounds.before)
        };
        while out(&self.ends)
            && let Some((at, client, place)) = self.ends.order.pop_front()
        {
            self.ends.forgotten_at = self.ends.forgotten_at.max(at);
            let Some(of) = self.lifecycles.get_mut(&client) else { continue };
            of.forget(place);
            if of.entries.is_empty() {
                self.ends.forgotten = self.ends.forgotten.max(of.newest);
                self.lifecycles.remove(&client);
            }
        }
    }

    /// Does what [`Self::check`] has found possible.
    fn apply(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::CreateSession(row) => {
                    self.last_number += 1;
                    self.numbers.insert(row.id.clone(), self.last_number);
                    let held = Held { row: *row, events: Vec::new(), turns: Vec::new(), said: HashMap::new() };
                    self.sessions.insert(self.last_number, held);
                }
                Write::ForkSession { row, parent, at, chain: _ } => self.fork(*row, &parent, at),
                Write::UpdateSession(row) => {
                    if let Some(held) = self.held_mut(&row.id) {
                        held.row = *row;
                    }
                }
                Write::DeleteSession(id) => {
                    if let Some(number) = self.numbers.remove(&id)
                        && let Some(held) = self.sessions.remove(&number)
                    {
                        let client = line_of(held.row.client.as_ref()).to_owned();
                        let end = gone(&id, last_seq_of(&held.events));
                        self.end(client, number, end, Bounds::now());
                    }
                }
                Write::Append(id, events) => {
                    self.append(&id, &events);
                }
                Write::SaveTurn(turn) => {
                    if let Some(held) = self.held_mut(&turn.record.session_id) {
                        match held.turns.iter_mut().find(|t| t.record.turn_id == turn.record.turn_id) {
                            Some(old) => *old = *turn,
                            None => held.turns.push(*turn),
                        }
                    }
                }
                Write::Said(id, at, said) => {
                    if let Some(held) = self.held_mut(&id) {
                        held.said.remove(&at);
                        held.said.extend(said.map(|said| (at, said)));
                    }
                }
                Write::SaveGrant(row) => match self.grants.iter_mut().find(|g| g.grant.id == row.grant.id) {
                    Some(old) => *old = *row,
                    None => self.grants.push(*row),
                },
                Write::DeleteGrant(id) => self.grants.retain(|g| g.grant.id != id),
                Write::SaveSpending(row) => {
                    self.spending.retain(|known| known.began >= row.began && known.client != row.client);
                    self.spending.push(*row);
                }
                Write::SaveOutcome(row) => self.outcomes.save(*row),
                Write::ForgetOutcome(name) => {
                    if self.outcomes.rows.get(&name).is_some_and(|row| row.body.is_none()) {
                        self.outcomes.rows.remove(&name);
                    }
                }
            }
        }
    }
}

fn last_seq_of(events: &[Event]) -> u64 {
    events.last().map_or(0, |e| e.seq)
}

impl Store for MemoryStore {
    fn commit(&self, writes: Vec<Write>, done: Committed) {
        let mut line = self.line.lock();
        line.waiting.push_back((writes, done));
        if line.served {
            return;
        }
        line.served = true;
        while let Some((writes, done)) = line.waiting.pop_front() {
            drop(line);
            let mut state = self.state.lock();
            let result = state.check(&writes);
            if result.is_ok() {
                state.apply(writes);
            }
            let rung = std::mem::take(&mut state.rung);
            drop(state);
            rung.iter().for_each(|client| self.bell.ring(client));
            done(result);
            line = self.line.lock();
        }
        line.served = false;
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>> {
        self.read(|s| s.held(id).map(|h| h.row.clone()))
    }

    fn sessions<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let found = self.read(|s| {
            let below = match after {
                Some(id) => Bound::Excluded(*s.numbers.get(id).ok_or_else(|| StoreError::NoSession(id.clone()))?),
                None => Bound::Unbounded,
            };
            let newest_first = s.sessions.range((Bound::Unbounded, below)).rev().map(|(_, held)| &held.row);
            Ok(newest_first.filter(|row| row.client.as_ref() == client).take(limit).cloned().collect())
        });
        Box::pin(async move { found.await.and_then(|rows| rows) })
    }

    fn family<'a>(
        &'a self,
        root: &'a SessionId,
        after: Option<&'a SessionId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
        let found = self.read(|s| s.family(root, after, limit));
        Box::pin(async move { found.await.and_then(|rows| rows) })
    }

    fn with_children(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>> {
        self.read(State::with_children)
    }

    fn events<'a>(
        &'a self,
        id: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
        self.read(|s| {
            let events = s.held(id).map_or(&[][..], |h| &h.events);
            let from = events.partition_point(|e| e.seq <= after);
            events[from..].iter().take(limit).cloned().collect()
        })
    }

    fn last_seq<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.read(|s| s.held(id).map_or(0, |h| last_seq_of(&h.events)))
    }

    fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> BoxFuture<'a, Result<bool, StoreError>> {
        let fits = |asked: Question| {
            which.request_id.as_ref().is_none_or(|id| *id == asked.request_id)
                && which.call_id.as_ref().is_none_or(|id| *id == asked.call_id)
        };
        self.read(|s| s.held(id).is_some_and(|h| h.events.iter().filter_map(Question::of).any(fits)))
    }

    fn turn<'a>(&'a self, id: &'a SessionId, turn: &'a TurnId) -> BoxFuture<'a, Result<Option<TurnRow>, StoreError>> {
        self.read(|s| s.held(id)?.turns.iter().find(|t| t.record.turn_id == *turn).cloned())
    }

    fn said<'a>(&'a self, id: &'a SessionId, at: u64) -> BoxFuture<'a, Result<Option<Arc<Said>>, StoreError>> {
        self.read(|s| s.held(id)?.said.get(&at).map(Arc::clone))
    }

    fn turns<'a>(
        &'a self,
        id: &'a SessionId,
        after: Option<&'a TurnId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TurnRow>, StoreError>> {
        let found = self.read(|s| {
            let turns = s.held(id).map_or(&[][..], |held| &held.turns);
            let place = |after: &TurnId| turns.iter().position(|turn| turn.record.turn_id == *after);
            let below = match after {
                Some(after) => place(after).ok_or_else(|| StoreError::NoTurn(after.clone()))?,
                None => turns.len(),
            };
            Ok(turns[..below].iter().rev().take(limit).cloned().collect())
        });
        Box::pin(async move { found.await.and_then(|rows| rows) })
    }

    fn open_turns(&self) -> BoxFuture<'_, Result<Vec<TurnRow>, StoreError>> {
        self.read(|s| {
            let turns = s.sessions.values().flat_map(|h| &h.turns);
            turns.filter(|t| !t.record.status.is_terminal()).cloned().collect()
        })
    }

    fn grants(&self) -> BoxFuture<'_, Result<Vec<GrantRow>, StoreError>> {
        self.read(|s| s.grants.clone())
    }

    fn spending<'a>(
        &'a self,
        client: Option<&'a ClientId>,
    ) -> BoxFuture<'a, Result<Option<ClientSpending>, StoreError>> {
        self.read(|s| s.spending.iter().find(|row| row.client.as_ref() == client).cloned())
    }

    fn outcome<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<OutcomeRow>, StoreError>> {
        self.read(|s| s.outcomes.rows.get(name).cloned())
    }

    fn lifecycle<'a>(
        &'a self,
        client: Option<&'a ClientId>,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<LifecyclePage, StoreError>> {
        self.read(|s| s.lifecycle(line_of(client), after, limit))
    }

    fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> BoxFuture<'a, Result<u64, StoreError>> {
        self.read(|s| s.lifecycles.get(line_of(client)).map_or(s.ends.forgotten, |of| of.newest))
    }

    fn ends_kept(&self) -> EndsKept {
        let state = self.state.lock();
        EndsKept { count: state.ends.order.len() as u64, forgotten_at: state.ends.forgotten_at }
    }

    fn outcomes_kept(&self) -> OutcomesKept {
        let state = self.state.lock();
        let order = &state.outcomes.order;
        OutcomesKept { count: order.len() as u64, oldest_at: order.front().map_or(0, |(at, _)| *at) }
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn session_count(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.read(|s| s.sessions.len() as u64)
    }

    fn check(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.read(|_| ())
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.state.lock().closed = true;
        Box::pin(std::future::ready(Ok(())))
    }
}
