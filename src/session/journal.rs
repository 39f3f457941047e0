//! Number, store, show: the one way of an event from a turn to its readers.
//!
//! [`Journal::emit`] numbers an event and returns. What was emitted while a commit is under way goes
//! into the next one together, so a flood makes few large commits and a trickle makes small quick ones.
//! Other writes (a turn's row, the session's) can ride in the commit of the events they belong to.
//!
//! Where nobody reads along, what a model says waits up to [`LINGER`] for company: the end of a short turn then takes all
//! of the turn with it. Who asks for durability, who comes to read and any other event ends that wait at once.
//!
//! Invariants: events are published after their commit, in the order of their numbers, without gaps.
//! At most one commit of a session is under way. When one fails, it and all that waited behind it are
//! dropped unseen, their numbers are given out again, and a turn's further events are refused until
//! [`Journal::reopen`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::base::{clock, limit};
use crate::bus::Topic;
use crate::protocol::{Event, EventBody, SessionId, TurnId, of_tree};
use crate::store::{Store, StoreError, Write};

/// How long what a model says may wait for company while nobody reads along.
const LINGER: Duration = Duration::from_millis(20);
/// Bytes of it that may.
const LINGER_BYTES: usize = 16 << 10;

/// What an event costs in memory beside its payload, in bytes, about.
const EVENT_OVERHEAD: usize = 200;

type Ack = oneshot::Sender<Result<(), StoreError>>;

/// What goes into one commit.
#[derive(Default)]
struct Pack {
    events: Vec<Event>,
    writes: Vec<Write>,
    acks: Vec<Ack>,
    bytes: usize,
    /// It is not to wait for company.
    urgent: bool,
    /// Until when it waits for that.
    until: Option<Instant>,
    /// The last of the events, when it is a piece of text or of thinking, and whose turn's.
    said: Option<(TurnId, EventBody)>,
}

struct State {
    next_seq: u64,
    pending: Pack,
    /// Bytes of the commit under way.
    in_flight: Option<usize>,
    /// Somebody looks after what waits for company.
    lingers: bool,
    failure: Option<StoreError>,
}

/// One session's log, as its writer sees it.
pub(super) struct Journal {
    session: SessionId,
    store: Arc<dyn Store>,
    topic: Arc<Topic>,
    state: Mutex<State>,
    moved: Notify,
}

/// Events and rows that become durable together.
#[derive(Default)]
pub(super) struct Entry {
    /// The events, in order.
    pub(super) events: Vec<(Option<TurnId>, EventBody)>,
    /// The rows.
    pub(super) writes: Vec<Write>,
}

impl Journal {
    /// A journal that goes on behind the newest event that `topic` knows.
    pub(super) fn new(session: SessionId, store: Arc<dyn Store>, topic: Arc<Topic>) -> Arc<Self> {
        let next_seq = topic.durable_seq() + 1;
        let state = State { next_seq, pending: Pack::default(), in_flight: None, lingers: false, failure: None };
        Arc::new(Self { session, store, topic, state: Mutex::new(state), moved: Notify::new() })
    }

    /// Hands in one event of a turn. Never blocks.
    ///
    /// # Errors
    /// The failure of an earlier commit.
    pub(super) fn emit(self: &Arc<Self>, turn: &TurnId, body: &EventBody) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if self.joins(&mut state, turn, body) {
            return Ok(());
        }
        self.push(&mut state, Some(turn.clone()), body.encode());
        if matches!(body, EventBody::StreamDelta { .. } | EventBody::StreamReasoning { .. }) {
            state.pending.said = Some((turn.clone(), body.clone()));
        }
        // What was done in the world is written at once; what is said, when somebody listens or it becomes much.
        state.pending.urgent |= !is_said(body) || state.pending.bytes > LINGER_BYTES || self.is_read();
        if state.pending.urgent {
            self.submit(state);
        } else {
            self.linger(state);
        }
        Ok(())
    }

    /// Puts a piece of text to the one before it, where that waits for the disk still and many others do: each event has its
    /// price, and who is late already gains most when they are fewer.
    fn joins(&self, state: &mut State, turn: &TurnId, body: &EventBody) -> bool {
        let Pack { events, said, bytes, .. } = &mut state.pending;
        let (Some((of, before)), Some(last)) = (said, events.last_mut()) else { return false };
        let ((EventBody::StreamDelta { text: whole }, EventBody::StreamDelta { text })
        | (EventBody::StreamReasoning { text: whole }, EventBody::StreamReasoning { text })) = (&mut *before, body)
        else {
            return false;
        };
        if of != turn || whole.len() + text.len() > limit::JOINED_BYTES_MAX || !self.store.is_crowded() {
            return false;
        }
        whole.push_str(text);
        *bytes += text.len();
        last.payload = before.encode().1;
        true
    }

    /// Leaves what waits for a little while.
    fn linger(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        let until = *state.pending.until.get_or_insert_with(|| Instant::now() + LINGER);
        if state.lingers {
            return;
        }
        // Outside of a runtime nobody could look after it.
        let Ok(runtime) = Handle::try_current() else { return self.hasten_all(state) };
        state.lingers = true;
        runtime.spawn(look_after(Arc::downgrade(self), until));
    }

    /// Somebody has come to read: nothing waits for company any more.
    pub(super) fn hasten(self: &Arc<Self>) {
        self.hasten_all(self.state.lock());
    }

    fn hasten_all(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        state.pending.urgent = true;
        self.submit(state);
    }

    /// The time is over of what has waited since then. When that of what waits now is; None: nothing does.
    fn look(self: &Arc<Self>) -> Option<Instant> {
        let mut state = self.state.lock();
        match state.pending.until {
            Some(until) if until > Instant::now() => return Some(until),
            Some(_) => {
                state.lingers = false;
                self.hasten_all(state);
            }
            None => state.lingers = false,
        }
        None
    }

    /// Hands in what `entry` makes of the next event's number, and waits until it is durable. `entry` may take no lock: a
    /// turn that says something holds its own while it waits for the one that is held here.
    ///
    /// # Errors
    /// Why it is not. Then none of it is.
    pub(super) async fn record(self: &Arc<Self>, entry: impl FnOnce(u64) -> Entry) -> Result<(), StoreError> {
        let (ack, durable) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let entry = entry(state.next_seq);
            for (turn, body) in entry.events {
                self.push(&mut state, turn, body.encode());
            }
            state.pending.writes.extend(entry.writes);
            state.pending.acks.push(ack);
            state.pending.urgent = true;
            self.submit(state);
        }
        durable.await.unwrap_or(Err(StoreError::Closed))
    }

    /// A row that becomes durable with the next events.
    pub(super) fn attach(&self, write: Write) {
        let mut state = self.state.lock();
        if state.failure.is_none() {
            state.pending.writes.push(write);
        }
    }

    /// Waits until all that was handed in is durable.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        self.record(|_| Entry::default()).await
    }

    /// The same, without a word to the store when nothing waits.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) async fn settle(self: &Arc<Self>) -> Result<(), StoreError> {
        let idle = {
            let state = self.state.lock();
            state.in_flight.is_none() && state.pending.is_empty()
        };
        if idle { Ok(()) } else { self.flush().await }
    }

    /// Bytes that wait for the disk.
    pub(super) fn backlog_bytes(&self) -> usize {
        let state = self.state.lock();
        state.pending.bytes + state.in_flight.unwrap_or(0)
    }

    /// Waits until few enough bytes wait for the disk.
    ///
    /// # Errors
    /// The failure of an earlier commit.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            {
                let state = self.state.lock();
                if let Some(failure) = &state.failure {
                    return Err(failure.clone());
                }
                if state.pending.bytes + state.in_flight.unwrap_or(0) <= limit::BACKLOG_BYTES_MAX {
                    return Ok(());
                }
            }
            moved.await;
        }
    }

    /// See [`Store::out_of_touch`].
    pub(super) fn out_of_touch(&self) -> Option<crate::base::BoxFuture<'static, ()>> {
        self.store.out_of_touch()
    }

    /// Whether somebody reads events as they come.
    pub(super) fn is_read(&self) -> bool {
        self.topic.is_watched()
    }

    /// Takes a turn's events again after a failure, and says what it was.
    pub(super) fn reopen(&self) -> Option<StoreError> {
        self.state.lock().failure.take()
    }

    fn push(
        &self,
        state: &mut State,
        turn_id: Option<TurnId>,
        (kind, payload): (&'static str, Box<serde_json::value::RawValue>),
    ) {
        state.pending.bytes += payload.get().len() + EVENT_OVERHEAD;
        let seq = state.next_seq;
        state.next_seq += 1;
        state.pending.said = None;
        let session_id = self.session.clone();
        state.pending.events.push(Event { seq, kind: kind.into(), payload, session_id, turn_id, at: clock::now_ms() });
    }

    /// Commits what waits, if it is urgent; unless a commit is under way: then that one's end does. What comes until the
    /// store writes goes with it.
    fn submit(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.in_flight.is_some() || !state.pending.urgent || state.pending.is_empty() {
            return;
        }
        state.in_flight = Some(0);
        drop(state);
        let (journal, taken) = (Arc::clone(self), Arc::new(Mutex::new((Arc::default(), Vec::new()))));
        let (ended, packed) = (Arc::clone(self), Arc::clone(&taken));
        let make = move || {
            let (events, writes, acks) = journal.pack();
            *taken.lock() = (events, acks);
            writes
        };
        let done = move |result| {
            let (events, acks) = std::mem::take(&mut *packed.lock());
            ended.committed(events, acks, result);
        };
        self.store.commit_made(Box::new(make), Box::new(done));
    }

    /// Takes all that waits into the commit that is under way.
    fn pack(&self) -> (Arc<Vec<Event>>, Vec<Write>, Vec<Ack>) {
        let mut state = self.state.lock();
        let Pack { events, mut writes, acks, bytes, .. } = std::mem::take(&mut state.pending);
        state.in_flight = Some(bytes);
        let events = Arc::new(events);
        if !events.is_empty() {
            writes.push(Write::Append(self.session.clone(), Arc::clone(&events)));
        }
        (events, writes, acks)
    }

    /// The end of a commit.
    fn committed(self: Arc<Self>, events: Arc<Vec<Event>>, acks: Vec<Ack>, result: Result<(), StoreError>) {
        // Nobody else commits meanwhile: `in_flight` is still set.
        let dropped = match &result {
            Ok(()) => {
                self.topic.publish(events);
                Vec::new()
            }
            Err(error) => self.give_up(error),
        };
        for ack in acks.into_iter().chain(dropped) {
            // Who no longer waits does not want to know.
            let _ = ack.send(result.clone());
        }
        let mut state = self.state.lock();
        state.in_flight = None;
        self.submit(state);
        self.moved.notify_waiters();
    }

    /// Forgets what waits behind a failed commit. Its numbers were never seen by anyone.
    fn give_up(&self, error: &StoreError) -> Vec<Ack> {
        let mut state = self.state.lock();
        state.failure = Some(error.clone());
        state.next_seq = self.topic.durable_seq() + 1;
        std::mem::take(&mut state.pending).acks
    }
}

/// Looks after what waits for company, as long as something does.
async fn look_after(journal: Weak<Journal>, mut until: Instant) {
    loop {
        sleep_until(until).await;
        match journal.upgrade().and_then(|journal| journal.look()) {
            Some(later) => until = later,
            None => return,
        }
    }
}

/// Whether an event tells no more than what a model says.
fn is_said(body: &EventBody) -> bool {
    match body {
        EventBody::LoopStart {}
        | EventBody::LoopComplete { .. }
        | EventBody::StreamStart {}
        | EventBody::StreamDelta { .. }
        | EventBody::StreamReasoning { .. }
        | EventBody::StreamComplete { .. }
        | EventBody::TurnComplete { .. } => true,
        EventBody::SessionCreated { .. }
        | EventBody::SessionPrompt { .. }
        | EventBody::SessionSteer { .. }
        | EventBody::SessionCompleted { .. }
        | EventBody::SessionError { .. }
        | EventBody::SessionConfigured(_)
        | EventBody::TurnQueued { .. }
        | EventBody::TurnContinued { .. }
        | EventBody::TurnControl { .. }
        | EventBody::TurnPaused { .. }
        | EventBody::TurnResumed { .. }
        | EventBody::LoopDoomLoop { .. }
        | EventBody::AgentSession { .. }
        | EventBody::AgentPlan(_)
        | EventBody::AgentCommands(_)
        | EventBody::AgentOptions(_)
        | EventBody::AgentUsage(_)
        | EventBody::AgentCompaction(_)
        | EventBody::StreamRetry { .. }
        | EventBody::CompactionStart { .. }
        | EventBody::CompactionComplete { .. }
        | EventBody::CompactionFailed { .. }
        | EventBody::CompactionPrune { .. }
        | EventBody::ToolCallStart { .. }
        | EventBody::ToolCallOutput { .. }
        | EventBody::ToolCallEnd { .. }
        | EventBody::ToolCallError { .. }
        | EventBody::ToolTimeout { .. }
        | EventBody::PermissionRequest { .. }
        | EventBody::PermissionResponse { .. }
        | EventBody::PermissionGranted(_)
        | EventBody::PermissionRevoked { .. }
        | EventBody::ClientRequest { .. }
        | EventBody::ClientResponse { .. }
        | EventBody::ClientNotice { .. }
        | EventBody::ClientDisplay { .. }
        | EventBody::MemoryAdd { .. }
        | EventBody::MemorySearch { .. }
        | EventBody::MemoryDelete { .. }
        | EventBody::TurnChanges(_)
        | EventBody::ChangesUndone { .. }
        | EventBody::ChangesRedone { .. }
        | EventBody::SessionForked { .. }
        | EventBody::BudgetWarning(_)
        | EventBody::BudgetExceeded(_)
        | EventBody::SubagentStart(_)
        | EventBody::SubagentQueued(_)
        | EventBody::SubagentComplete(_)
        | EventBody::SubagentError(_)
        | EventBody::SubagentRequest(_)
        | EventBody::SubagentResponse(_)
        | of_tree!()
        | EventBody::Abort { .. } => false,
    }
}

impl Pack {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.writes.is_empty() && self.acks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::base::BoxFuture;
    use crate::bus::{Next, Tails};
    use crate::protocol::ClientId;
    use crate::store::{Committed, Made, MemoryStore, SessionRow, TurnRow, Which};

    /// Holds commits back until a test lets them through.
    #[derive(Default)]
    struct Held {
        commits: Mutex<VecDeque<(Vec<Write>, Committed)>>,
        /// Takes commits instead, as they are handed in.
        late: Mutex<Option<Arc<Slow>>>,
        crowded: std::sync::atomic::AtomicBool,
        empty: MemoryStore,
    }

    impl Held {
        fn waiting(&self) -> usize {
            self.commits.lock().len()
        }

        /// What the events of the oldest commit hold.
        fn held(&self) -> Vec<String> {
            let commits = self.commits.lock();
            let writes = commits.front().into_iter().flat_map(|(writes, _)| writes);
            let events = writes.filter_map(|write| match write {
                Write::Append(_, events) => Some(events),
                _ => None,
            });
            events.flat_map(|events| events.iter()).map(|event| event.payload.get().to_owned()).collect()
        }

        /// Ends the oldest commit, and gives the numbers of its events.
        fn end(&self, result: Result<(), StoreError>) -> Vec<u64> {
            let (writes, done) = self.commits.lock().pop_front().expect("a commit waits");
            done(result);
            writes.iter().flat_map(seqs).collect()
        }
    }

    fn seqs(write: &Write) -> Vec<u64> {
        match write {
            Write::Append(_, events) => events.iter().map(|event| event.seq).collect(),
            _ => Vec::new(),
        }
    }

    impl Store for Held {
        fn commit(&self, writes: Vec<Write>, done: Committed) {
            self.commits.lock().push_back((writes, done));
        }
        fn commit_made(&self, make: Made, done: Committed) {
            match self.late.lock().clone() {
                Some(slow) => slow.jobs.lock().push_back((make, done)),
                None => self.commit(make(), done),
            }
        }
        fn session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<SessionRow>, StoreError>> {
            self.empty.session(id)
        }
        fn sessions<'a>(
            &'a self,
            client: Option<&'a ClientId>,
            after: Option<&'a SessionId>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
            self.empty.sessions(client, after, limit)
        }
        fn family<'a>(
            &'a self,
            root: &'a SessionId,
            after: Option<&'a SessionId>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<SessionRow>, StoreError>> {
            self.empty.family(root, after, limit)
        }
        fn with_children(&self) -> BoxFuture<'_, Result<Vec<SessionRow>, StoreError>> {
            self.empty.with_children()
        }
        fn events<'a>(
            &'a self,
            id: &'a SessionId,
            after: u64,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<Event>, StoreError>> {
            self.empty.events(id, after, limit)
        }
        fn last_seq<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<u64, StoreError>> {
            self.empty.last_seq(id)
        }
        fn asked<'a>(&'a self, id: &'a SessionId, which: &'a Which) -> BoxFuture<'a, Result<bool, StoreError>> {
            self.empty.asked(id, which)
        }
        fn turn<'a>(
            &'a self,
            id: &'a SessionId,
            turn: &'a TurnId,
        ) -> BoxFuture<'a, Result<Option<TurnRow>, StoreError>> {
            self.empty.turn(id, turn)
        }
        fn said<'a>(
            &'a self,
            id: &'a SessionId,
            at: u64,
        ) -> BoxFuture<'a, Result<Option<Arc<crate::store::Said>>, StoreError>> {
            self.empty.said(id, at)
        }
        fn turns<'a>(
            &'a self,
            id: &'a SessionId,
            after: Option<&'a TurnId>,
            limit: usize,
        ) -> BoxFuture<'a, Result<Vec<TurnRow>, StoreError>> {
            self.empty.turns(id, after, limit)
        }
        fn open_turns(&self) -> BoxFuture<'_, Result<Vec<TurnRow>, StoreError>> {
            self.empty.open_turns()
        }
        fn grants(&self) -> BoxFuture<'_, Result<Vec<crate::store::GrantRow>, StoreError>> {
            self.empty.grants()
        }
        fn spending<'a>(
            &'a self,
            client: Option<&'a ClientId>,
        ) -> BoxFuture<'a, Result<Option<crate::store::ClientSpending>, StoreError>> {
            self.empty.spending(client)
        }
        fn outcome<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<crate::store::OutcomeRow>, StoreError>> {
            self.empty.outcome(name)
        }
        fn lifecycle<'a>(
            &'a self,
            client: Option<&'a ClientId>,
            after: u64,
            limit: usize,
        ) -> BoxFuture<'a, Result<crate::store::LifecyclePage, StoreError>> {
            self.empty.lifecycle(client, after, limit)
        }
        fn lifecycle_end<'a>(&'a self, client: Option<&'a ClientId>) -> BoxFuture<'a, Result<u64, StoreError>> {
            self.empty.lifecycle_end(client)
        }
        fn bell(&self) -> &crate::store::Bell {
            self.empty.bell()
        }
        fn session_count(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
            self.empty.session_count()
        }
        fn is_crowded(&self) -> bool {
            self.crowded.load(std::sync::atomic::Ordering::Acquire)
        }
        fn check(&self) -> BoxFuture<'_, Result<(), StoreError>> {
            self.empty.check()
        }
        fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
            self.empty.close()
        }
    }

    /// A journal that is not read along.
    fn unread() -> (Arc<Journal>, Arc<Held>, Arc<Topic>) {
        let (store, topic) =
            (Arc::new(Held::default()), Arc::new(Topic::new(0, 1 << 20, Arc::new(Tails::new(1 << 20)))));
        let id = "s".parse().expect("an id");
        (Journal::new(id, Arc::clone(&store) as Arc<dyn Store>, Arc::clone(&topic)), store, topic)
    }

    /// The same with a reader.
    fn journal() -> (Arc<Journal>, Arc<Held>, Arc<Topic>, tokio::sync::watch::Receiver<u64>) {
        let (journal, store, topic) = unread();
        let reader = topic.watch();
        (journal, store, topic, reader)
    }

    fn delta(text: &str) -> EventBody {
        EventBody::StreamDelta { text: text.into() }
    }

    #[test]
    fn where_many_write_what_waits_becomes_one_piece() {
        let (journal, store, _topic, _reader) = journal();
        store.crowded.store(true, std::sync::atomic::Ordering::Release);
        let (turn, other) = (TurnId::generate(), TurnId::generate());
        let say = |turn: &TurnId, text: &str| journal.emit(turn, &delta(text)).expect("taken");
        // The first one is on its way already, the last ones are another turn's, or come behind something else.
        for text in ["1", "2", "\"3", "4"] {
            say(&turn, text);
        }
        say(&other, "5");
        journal.emit(&other, &EventBody::StreamStart {}).expect("taken");
        say(&other, "6");
        say(&other, &"x".repeat(limit::JOINED_BYTES_MAX));
        for text in ["7", "8"] {
            journal.emit(&other, &EventBody::StreamReasoning { text: text.into() }).expect("taken");
        }
        say(&other, "9");
        assert_eq!(store.end(Ok(())), [1]);
        let held = store.held();
        assert_eq!(held[..4], [r#"{"text":"2\"34"}"#, r#"{"text":"5"}"#, "{}", r#"{"text":"6"}"#]);
        assert_eq!(held[4].len(), limit::JOINED_BYTES_MAX + r#"{"text":""}"#.len());
        assert_eq!(held[5..], [r#"{"text":"78"}"#, r#"{"text":"9"}"#]);
        assert_eq!(store.end(Ok(())), [2, 3, 4, 5, 6, 7, 8]);
        // With room for each, each is its own.
        store.crowded.store(false, std::sync::atomic::Ordering::Release);
        for text in ["7", "8", "9"] {
            say(&turn, text);
        }
        assert_eq!(store.end(Ok(())), [9]);
        assert_eq!(store.end(Ok(())), [10, 11]);
    }

    fn full() -> StoreError {
        StoreError::Io { doing: "write".into(), cause: "full".into() }
    }

    #[test]
    fn what_comes_during_a_commit_goes_together_and_is_seen_afterwards() {
        let (journal, store, topic, _reader) = journal();
        let turn = TurnId::generate();
        for text in ["1", "2", "3", "4"] {
            journal.emit(&turn, &delta(text)).expect("taken");
        }
        assert_eq!((store.waiting(), topic.durable_seq()), (1, 0));
        assert!(matches!(topic.next(0), Next::Wait), "logged, then seen");
        assert_eq!(store.end(Ok(())), [1]);
        assert_eq!((store.waiting(), topic.durable_seq()), (1, 1));
        assert_eq!(store.end(Ok(())), [2, 3, 4]);
        assert_eq!((store.waiting(), topic.durable_seq()), (0, 4));
        let Next::Batch(batch) = topic.next(1) else { panic!("there are more") };
        assert_eq!((batch.first_seq(), batch.last_seq()), (2, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_hears_waits_for_company() {
        let turn = TurnId::generate();
        let say = |journal: &Arc<Journal>, text: &str| journal.emit(&turn, &delta(text)).expect("taken");
        let ends: [(&str, fn(&Arc<Journal>, &TurnId)); 4] = [
            ("something was done", |journal, turn| {
                let end = EventBody::ToolTimeout { name: "t".into(), timeout_ms: 1 };
                journal.emit(turn, &end).expect("taken");
            }),
            ("somebody wants it durable", |journal, _| {
                assert!(Box::pin(journal.flush()).now_or_never().is_none());
            }),
            ("somebody has come to read", |journal, _| journal.hasten()),
            ("it is much", |journal, turn| journal.emit(turn, &delta(&"x".repeat(LINGER_BYTES))).expect("taken")),
        ];
        for (why, end) in ends {
            let (journal, store, _) = unread();
            say(&journal, "1");
            say(&journal, "2");
            assert_eq!(store.waiting(), 0, "{why}");
            end(&journal, &turn);
            assert_eq!(store.waiting(), 1, "{why}");
            assert_eq!(store.end(Ok(()))[..2], [1, 2], "{why}");
            // What comes then waits again, from then on.
            say(&journal, "4");
            tokio::time::sleep(LINGER / 2).await;
            assert_eq!(store.waiting(), 0, "{why}");
            tokio::time::sleep(LINGER).await;
            assert_eq!(store.waiting(), 1, "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_during_a_commit_does_not_follow_at_once() {
        let (journal, store, topic) = unread();
        let turn = TurnId::generate();
        assert!(
            Box::pin(journal.record(|_| Entry { events: vec![(None, delta("1"))], writes: Vec::new() }))
                .now_or_never()
                .is_none()
        );
        journal.emit(&turn, &delta("2")).expect("taken");
        assert_eq!(store.end(Ok(())), [1]);
        assert_eq!((store.waiting(), topic.durable_seq()), (0, 1));
        tokio::time::sleep(LINGER * 2).await;
        assert_eq!(store.end(Ok(())), [2]);
        journal.emit(&turn, &delta("3")).expect("taken");
        drop(journal);
        tokio::time::sleep(LINGER * 2).await;
        assert_eq!(store.waiting(), 0, "nobody is left");
    }

    /// A store that writes when it is told to.
    #[derive(Default)]
    struct Slow {
        jobs: Mutex<VecDeque<(Made, Committed)>>,
    }

    impl Slow {
        /// Writes the oldest commit, or refuses it unseen. The numbers of its events.
        fn write(&self, result: Result<(), StoreError>) -> Vec<u64> {
            let (make, done) = self.jobs.lock().pop_front().expect("a commit waits");
            let writes = if result == Err(StoreError::Closed) { Vec::new() } else { make() };
            done(result);
            writes.iter().flat_map(seqs).collect()
        }
    }

    #[tokio::test]
    async fn what_comes_until_the_store_writes_goes_with_it() {
        let (held, topic) =
            (Arc::new(Held::default()), Arc::new(Topic::new(0, 1 << 20, Arc::new(Tails::new(1 << 20)))));
        let id = "s".parse().expect("an id");
        let journal = Journal::new(id, Arc::clone(&held) as Arc<dyn Store>, Arc::clone(&topic));
        let _reader = topic.watch();
        held.late.lock().replace(Arc::default());
        let slow = held.late.lock().clone().expect("set");
        let turn = TurnId::generate();
        journal.emit(&turn, &delta("1")).expect("taken");
        journal.emit(&turn, &delta("2")).expect("taken");
        let recorded = journal.record(|next| {
            assert_eq!(next, 3);
            Entry { events: vec![(None, delta("3"))], writes: Vec::new() }
        });
        tokio::pin!(recorded);
        assert!(recorded.as_mut().now_or_never().is_none());
        assert_eq!(slow.jobs.lock().len(), 1, "one commit at a time");
        assert_eq!(slow.write(Ok(())), [1, 2, 3]);
        assert_eq!((recorded.await, topic.durable_seq()), (Ok(()), 3));
        journal.emit(&turn, &delta("4")).expect("taken");
        let flushed = journal.flush();
        tokio::pin!(flushed);
        assert!(flushed.as_mut().now_or_never().is_none());
        assert!(slow.write(Err(StoreError::Closed)).is_empty());
        assert_eq!(flushed.await, Err(StoreError::Closed), "who waits is told, though nothing was taken");
        assert_eq!((topic.durable_seq(), slow.jobs.lock().len()), (3, 0));
    }

    #[tokio::test]
    async fn a_failed_commit_takes_what_waits_behind_it_and_gives_its_numbers_back() {
        let (journal, store, topic, _reader) = journal();
        let turn = TurnId::generate();
        journal.emit(&turn, &delta("1")).expect("taken");
        assert_eq!(store.end(Ok(())), [1]);
        journal.emit(&turn, &delta("2")).expect("taken");
        journal.emit(&turn, &delta("3")).expect("taken");
        let recorded = journal.record(|next| {
            assert_eq!(next, 4);
            Entry { events: vec![(None, delta("4"))], writes: Vec::new() }
        });
        tokio::pin!(recorded);
        assert!(recorded.as_mut().now_or_never().is_none());
        assert_eq!(store.end(Err(full())), [2]);
        assert_eq!(recorded.await, Err(full()), "who waits is told");
        assert_eq!((store.waiting(), topic.durable_seq()), (0, 1));
        assert_eq!(journal.emit(&turn, &delta("5")), Err(full()), "the turn is told");
        assert_eq!(journal.ready().await, Err(full()));
        assert_eq!(journal.reopen(), Some(full()));
        journal.emit(&turn, &delta("6")).expect("taken again");
        assert_eq!(store.end(Ok(())), [2]);
        assert_eq!(topic.durable_seq(), 2);
    }

    #[tokio::test]
    async fn a_flood_waits_for_the_disk() {
        let (journal, store, _topic, _reader) = journal();
        let turn = TurnId::generate();
        let large = delta(&"x".repeat(limit::BACKLOG_BYTES_MAX / 2));
        journal.emit(&turn, &large).expect("taken");
        assert_eq!(journal.ready().now_or_never(), Some(Ok(())));
        journal.emit(&turn, &large).expect("taken");
        let ready = journal.ready();
        tokio::pin!(ready);
        assert!(ready.as_mut().now_or_never().is_none(), "too much waits");
        store.end(Ok(()));
        ready.await.expect("room again");
        store.end(Ok(()));
        let flushed = journal.flush();
        tokio::pin!(flushed);
        assert!(flushed.as_mut().now_or_never().is_none());
        store.end(Ok(()));
        flushed.await.expect("all is durable");
    }
}
