//! A session that goes on from any event of another one.
//!
//! The log up to that event is shared. A turn that the event lies in the middle of, and turns that waited there, are closed
//! in the fork as ones that were aborted. Settings come along as they are now; grants do not.
//!
//! At the end of a session at rest nothing is read but its view. Anywhere else the log before the event is read once, here
//! and not where others' commits wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::actor::{queued_turn, terminal_event, view_of};
use super::manager::{Manager, event_of};
use super::places::follow;
use super::receipt::Receipt;
use super::repair::Remains;
use super::settings::beginning;
use super::tally::Tally;
use super::views::status_after;
use super::{stopping, store_failure};
use crate::base::clock;
use crate::protocol::{
    ApiError, ErrorBody, ErrorCode, Event, EventBody, PromptContent, SessionId, SessionStatus, SessionView, Spending,
    TurnId, TurnRecord, TurnStatus, TurnStop, Usage,
};
use crate::store::chain::Chain;
use crate::store::{SessionRow, SharedPlaces, Steers, Store, StoreError, TurnRow, Waiting, Write, commit};

/// Events that are read at once.
const PAGE: usize = 1_000;

/// A fork to be made, held against limits already.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Its id.
    pub id: SessionId,
    /// The last event in common. None: the newest.
    pub at: Option<u64>,
    /// Its title. None: that of the other one.
    pub title: Option<String>,
}

/// A session as it was behind an event.
#[derive(Debug)]
struct Past {
    /// What the last turn that ended left it as.
    status: SessionStatus,
    messages: u64,
    usage: Usage,
    /// The turn that ran, and its first event.
    running: Option<(TurnId, u64)>,
    /// Turns that waited, oldest first.
    waiting: Vec<TurnId>,
    /// Where stands what its tree shares.
    shared: SharedPlaces,
    /// The chain to that event, where the log was followed.
    chain: Option<Chain>,
}

/// What is written behind the shared events.
#[derive(Default)]
struct Own {
    /// Number of the last event so far.
    seq: u64,
    events: Vec<(Option<TurnId>, EventBody)>,
    turns: Vec<TurnRow>,
}

impl Manager {
    /// Makes a session that goes on from an event of another one, which stays as it is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an event that is not there, `CONFLICT` for an id that is taken, or what the store says.
    pub async fn fork(
        &self,
        parent: SessionRow,
        fork: NewFork,
        receipt: Option<&Receipt>,
    ) -> Result<SessionView, ApiError> {
        if self.shelf.closing.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let store = &self.shelf.store;
        let failed = |e: StoreError| store_failure(&e);
        let now = self.view_of_row(parent.clone()).await?;
        let at = fork.at.unwrap_or(now.last_seq);
        if !(1..=now.last_seq).contains(&at) {
            let expected = format!("the number of an event of this session, 1 to {}", now.last_seq);
            return Err(ApiError::unfit("at", expected, at));
        }
        let past = match now.status {
            SessionStatus::Created | SessionStatus::Completed | SessionStatus::Aborted if at == now.last_seq => {
                shared_at_rest(store.as_ref(), &now).await.map_err(failed)?.map(|shared| Past::at_rest(&now, shared))
            }
            _ => None,
        };
        let past = match past {
            Some(past) => past,
            None => Past::read(store.as_ref(), &parent.id, at).await.map_err(failed)?,
        };
        let mut row = row_of(&parent, fork, &past);
        let mut own = Own { seq: at, ..Own::default() };
        own.close(store.as_ref(), (&parent.id, at), (&past, &mut row)).await.map_err(failed)?;
        let (session_id, parent_session_id) = (row.id.clone(), parent.id.clone());
        let beginning = beginning(&row.settings);
        own.push(None, EventBody::SessionForked { session_id, parent_session_id, at, beginning });
        let numbered = own.events.iter().zip(at + 1..);
        let events: Vec<Event> =
            numbered.map(|((turn, body), seq)| event_of(&row.id, seq, turn.as_ref(), body)).collect();
        let view = view_of(&row, events.last().map_or(at, |event| event.seq));
        let append = Write::Append(row.id.clone(), Arc::new(events));
        let shared = Write::ForkSession { row: Box::new(row), parent: parent.id, at, chain: past.chain };
        let mut writes = vec![shared, append];
        writes.extend(own.turns.into_iter().map(|turn| Write::SaveTurn(Box::new(turn))));
        if let Some(receipt) = receipt {
            writes.extend(receipt.take(&view, view.version)?);
        }
        // The one that is taken is the one that was chosen.
        let taken = |error: StoreError| store_failure(&error).with_field("sessionId", "newSessionId");
        commit(store, writes).await.map_err(taken)?;
        Ok(view)
    }
}

/// The row of a fork as it begins, before anything in it is closed.
fn row_of(parent: &SessionRow, fork: NewFork, past: &Past) -> SessionRow {
    let now = clock::now_ms();
    let mut settings = parent.settings.clone();
    settings.grants.clear();
    settings.title = fork.title.or(settings.title);
    SessionRow {
        id: fork.id,
        client: parent.client.clone(),
        status: past.status,
        version: 0,
        created_at: now,
        updated_at: now,
        message_count: past.messages,
        usage: past.usage,
        spent: Default::default(),
        settings,
        lineage: None,
        children: Vec::new(),
        shared: past.shared.clone(),
    }
}

impl Past {
    /// Of a session in which nothing runs or waits, behind its last event.
    fn at_rest(now: &SessionView, shared: SharedPlaces) -> Self {
        let (status, messages, usage) = (now.status, now.message_count, now.usage);
        Self { status, messages, usage, running: None, waiting: Vec::new(), shared, chain: None }
    }

    /// Reads the log up to event `at`.
    async fn read(store: &dyn Store, id: &SessionId, at: u64) -> Result<Self, StoreError> {
        let (mut tally, mut chain, mut shared) = (Tally::default(), Chain::default(), SharedPlaces::default());
        let (mut status, mut running, mut waiting) = (SessionStatus::Created, None, Vec::new());
        while chain.seq() < at {
            let events = store.events(id, chain.seq(), PAGE).await?;
            if events.is_empty() {
                break;
            }
            for event in events.iter().take_while(|event| event.seq <= at) {
                chain.push(event);
                // They are most of a log, and none of what is looked for.
                if event.kind == "stream.delta" {
                    continue;
                }
                let Some(body) = event.body() else { continue };
                tally.push(&body);
                follow(&mut shared, event.seq, &body);
                let Some(turn) = &event.turn_id else { continue };
                match body {
                    EventBody::TurnQueued { .. } if !waiting.contains(turn) => waiting.push(turn.clone()),
                    EventBody::SessionPrompt { .. } => {
                        waiting.retain(|other| other != turn);
                        running = Some((turn.clone(), event.seq));
                    }
                    EventBody::SessionCompleted { .. } | EventBody::SessionError { .. } | EventBody::Abort { .. } => {
                        waiting.retain(|other| other != turn);
                        running = running.filter(|(other, _)| other != turn);
                        let stopped = matches!(body, EventBody::Abort { .. });
                        status = status_after(if stopped { TurnStatus::Aborted } else { TurnStatus::Completed });
                    }
                    _ => {}
                }
            }
        }
        let (messages, usage) = (tally.messages, tally.usage);
        Ok(Self { status, messages, usage, running, waiting, shared, chain: Some(chain) })
    }
}

/// Where stands what the tree of a session at rest shares, at its last event. None: more has come since it was looked at.
async fn shared_at_rest(store: &dyn Store, now: &SessionView) -> Result<Option<SharedPlaces>, StoreError> {
    let row = store.session(&now.session_id).await?;
    let is_last = store.last_seq(&now.session_id).await? == now.last_seq;
    Ok(row.filter(|_| is_last).map(|row| row.shared))
}

impl Own {
    /// Closes what was open behind event `at`: the turn that ran, and those that waited.
    async fn close(
        &mut self,
        store: &dyn Store,
        (parent, at): (&SessionId, u64),
        (past, row): (&Past, &mut SessionRow),
    ) -> Result<(), StoreError> {
        let reason = |what: &str| format!("the session was forked at event {at}, {what}");
        if let Some((turn, first)) = &past.running {
            let reason = reason("in the middle of this turn");
            let why = ErrorBody { code: ErrorCode::Conflict, message: reason.clone(), details: None };
            let remains = Remains::read_to(store, parent, turn, (*first, at)).await?;
            let (rounds, usage, before) = (remains.tally.rounds, remains.tally.usage, remains.tally.messages);
            let (closing, messages) = remains.close(&why);
            row.message_count += messages.saturating_sub(before);
            closing.into_iter().for_each(|body| self.push(Some(turn.clone()), body));
            let record = aborted(store, parent, (turn, &row.id), reason).await?;
            self.end(TurnRecord { rounds, usage, first_seq: Some(*first), ..record });
        }
        for turn in &past.waiting {
            let record = aborted(store, parent, (turn, &row.id), reason("while this turn waited")).await?;
            self.end(TurnRecord { first_seq: None, ..record });
        }
        if !self.turns.is_empty() {
            row.status = SessionStatus::Aborted;
        }
        Ok(())
    }

    fn push(&mut self, turn: Option<TurnId>, body: EventBody) {
        self.seq += 1;
        self.events.push((turn, body));
    }

    fn end(&mut self, record: TurnRecord) {
        self.push(Some(record.turn_id.clone()), terminal_event(&record, Spending::default()));
        let record = TurnRecord { last_seq: Some(self.seq), ..record };
        self.turns.push(TurnRow {
            record,
            prompt: None,
            configure: None,
            only: None,
            came: None,
            held: None,
            aborted: None,
            steers: Steers::default(),
        });
    }
}

/// The record of a turn that did not end before the fork.
async fn aborted(
    store: &dyn Store,
    parent: &SessionId,
    (turn, fork): (&TurnId, &SessionId),
    reason: String,
) -> Result<TurnRecord, StoreError> {
    let known = store.turn(parent, turn).await?.map(|row| row.record);
    let known =
        known.unwrap_or_else(|| queued_turn(fork, Waiting::Here(PromptContent::Text(String::new())), None).record);
    Ok(TurnRecord {
        turn_id: turn.clone(),
        session_id: fork.clone(),
        status: TurnStatus::Aborted,
        ended_at: Some(clock::now_ms()),
        result: None,
        output: None,
        error: None,
        reason: Some(reason),
        stop_reason: Some(TurnStop::Aborted),
        last_seq: None,
        rounds: 0,
        usage: Usage::default(),
        ..known
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::base::BoxFuture;
    use crate::protocol::ClientId;
    use crate::session::manager::tests::manager;
    use crate::store::{Bell, Committed, GrantRow, LifecyclePage, MemoryStore, OutcomeRow, Said, SqliteStore, Which};

    /// Counts what is read of logs and what is written.
    struct Counting {
        inner: Arc<dyn Store>,
        events_read: AtomicUsize,
        writes: AtomicUsize,
    }

    type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

    impl Store for Counting {
        fn commit(&self, writes: Vec<Write>, done: Committed) {
            self.writes.fetch_add(writes.len(), Ordering::Relaxed);
            self.inner.commit(writes, done);
        }
        fn session<'a>(&'a self, id: &'a SessionId) -> Answer<'a, Option<SessionRow>> {
            self.inner.session(id)
        }
        fn sessions<'a>(
            &'a self,
            client: Option<&'a ClientId>,
            after: Option<&'a SessionId>,
            limit: usize,
        ) -> Answer<'a, Vec<SessionRow>> {
            self.inner.sessions(client, after, limit)
        }
        fn family<'a>(
            &'a self,
            root: &'a SessionId,
            after: Option<&'a SessionId>,
            limit: usize,
        ) -> Answer<'a, Vec<SessionRow>> {
            self.inner.family(root, after, limit)
        }
        fn with_children(&self) -> Answer<'_, Vec<SessionRow>> {
            self.inner.with_children()
        }
        fn events<'a>(&'a self, id: &'a SessionId, after: u64, limit: usize) -> Answer<'a, Vec<Event>> {
            Box::pin(async move {
                let events = self.inner.events(id, after, limit).await?;
                self.events_read.fetch_add(events.len(), Ordering::Relaxed);
                Ok(events)
            })
        }
        fn last_seq<'a>(&'a self, id: &'a SessionId) -> Answer<'a, u64> {
            self.inner.last_seq(id)
        }
        fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> Answer<'a, bool> {
            self.inner.asked(id, which)
        }
        fn turn<'a>(&'a self, id: &'a SessionId, turn: &'a TurnId) -> Answer<'a, Option<TurnRow>> {
            self.inner.turn(id, turn)
        }
        fn said<'a>(&'a self, id: &'a SessionId, at: u64) -> Answer<'a, Option<Arc<Said>>> {
            self.inner.said(id, at)
        }
        fn turns<'a>(&'a self, id: &'a SessionId, after: Option<&'a TurnId>, limit: usize) -> Answer<'a, Vec<TurnRow>> {
            self.inner.turns(id, after, limit)
        }
        fn open_turns(&self) -> Answer<'_, Vec<TurnRow>> {
            self.inner.open_turns()
        }
        fn grants(&self) -> Answer<'_, Vec<GrantRow>> {
            self.inner.grants()
        }
        fn spending<'a>(&'a self, client: Option<&'a ClientId>) -> Answer<'a, Option<crate::store::ClientSpending>> {
            self.inner.spending(client)
        }
        fn outcome<'a>(&'a self, name: &'a str) -> Answer<'a, Option<OutcomeRow>> {
            self.inner.outcome(name)
        }
        fn lifecycle<'a>(
            &'a self,
            client: Option<&'a ClientId>,
            after: u64,
            limit: usize,
        ) -> Answer<'a, LifecyclePage> {
            self.inner.lifecycle(client, after, limit)
        }
        fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> Answer<'a, u64> {
            self.inner.lifecycle_end(client)
        }
        fn bell(&self) -> &Bell {
            self.inner.bell()
        }
        fn session_count(&self) -> Answer<'_, u64> {
            self.inner.session_count()
        }
        fn check(&self) -> Answer<'_, ()> {
            self.inner.check()
        }
        fn close(&self) -> Answer<'_, ()> {
            self.inner.close()
        }
    }

    const ITEMS: u64 = 10_000;

    /// A session at rest with so many items: prompts, each answered.
    async fn long(store: &Arc<dyn Store>, id: &SessionId) -> u64 {
        let mut seq = 1;
        while seq < ITEMS * 2 {
            let mut turns = Vec::new();
            for _ in 0..1_000 {
                let turn = TurnId::generate();
                let said = |text: &str| EventBody::StreamComplete { text: text.into(), original: None };
                let prompt = EventBody::SessionPrompt {
                    session_id: id.clone(),
                    prompt: "and then?".into(),
                    parts: None,
                    turn: None,
                    task: None,
                    version: None,
                };
                let end = EventBody::SessionCompleted {
                    session_id: id.clone(),
                    result: "so it went".into(),
                    output: None,
                    spent: Default::default(),
                };
                for body in [prompt, EventBody::StreamStart {}, said("so it went"), end] {
                    seq += 1;
                    turns.push(event_of(id, seq, Some(&turn), &body));
                }
            }
            commit(store, vec![Write::Append(id.clone(), Arc::new(turns))]).await.expect("written");
        }
        let mut row = store.session(id).await.expect("read").expect("there");
        (row.status, row.message_count) = (SessionStatus::Completed, ITEMS);
        commit(store, vec![Write::UpdateSession(Box::new(row))]).await.expect("written");
        seq
    }

    fn named(id: &str, at: Option<u64>) -> NewFork {
        NewFork { id: id.parse().expect("an id"), at, title: None }
    }

    #[tokio::test]
    async fn a_fork_of_ten_thousand_items_reads_and_writes_little() {
        let home = tempfile::tempdir().expect("a directory");
        let stores: [Arc<dyn Store>; 2] =
            [Arc::new(MemoryStore::new()), Arc::new(SqliteStore::open(home.path()).expect("opens"))];
        for inner in stores {
            let (events_read, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let counting = Arc::new(Counting { inner, events_read, writes });
            let store: Arc<dyn Store> = Arc::clone(&counting) as Arc<dyn Store>;
            let manager = manager(Arc::clone(&store), Duration::from_secs(30));
            let made = crate::session::manager::tests::created(&manager).await;
            let last = long(&store, &made).await;
            let parent = store.session(&made).await.expect("read").expect("there");
            let count =
                || (counting.events_read.swap(0, Ordering::Relaxed), counting.writes.swap(0, Ordering::Relaxed));
            count();
            let view = manager.fork(parent.clone(), named("end", None), None).await.expect("forked");
            assert_eq!(count(), (0, 2), "its row, and one event");
            assert_eq!((view.last_seq, view.message_count, view.status), (last + 1, ITEMS, SessionStatus::Completed));
            // In the middle of a turn, and so with what closes it.
            let view = manager.fork(parent.clone(), named("middle", Some(12)), None).await.expect("forked");
            let (read, written) = count();
            assert!(read <= 3 * PAGE && written == 3, "{read} {written}");
            assert_eq!((view.message_count, view.status), (6, SessionStatus::Aborted));
            let whole = manager.fork(parent, named("late", Some(last - 1)), None).await.expect("forked");
            assert!(count().0 <= usize::try_from(last).expect("few") + 2 * PAGE, "once, and the turn");
            assert_eq!(whole.message_count, ITEMS);
            assert_eq!(store.last_seq(&whole.session_id).await, Ok(whole.last_seq));
        }
    }
}
