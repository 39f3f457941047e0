//! The calls of clients that drive our tools themselves, as turns: a model that says nothing and hands on what it was given.
//!
//! A call is put on the desk of its session; the turn that is on takes it from there, and where none is on, one is asked for.
//! So such a call is logged, asked about, recorded and undone as any other, and several run side by side in one turn.
//! It is not an agent of anybody's: it has no process, and keeps nothing between turns.
//!
//! Invariants: each call that is put on a desk has one answer, whatever becomes of its turn; a turn ends as soon as none of its
//! calls is left, and what comes behind its end is for the next one.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::base::BoxFuture;
use crate::model::{AgentEvent, Carried, Errand, Model, ModelError, ModelEvent, ModelFacts, ModelRequest, ModelStream};
use crate::model::{ERRANDS_MODEL_ID, Reply, StopReason};
use crate::protocol::{ApiError, SessionId};

/// What came of a call, or why nothing did.
type Told = oneshot::Sender<Result<Carried, ApiError>>;

/// The desks of all sessions, and the model that works at them.
#[derive(Clone, Default)]
pub struct Errands {
    desks: Arc<Mutex<HashMap<SessionId, Desk>>>,
}

#[derive(Default)]
struct Desk {
    /// For the turn that is on.
    waiting: VecDeque<(Errand, Told)>,
    /// For the one that was asked for.
    next: VecDeque<(Errand, Told)>,
    /// Wakes the turn that is on.
    bell: Option<Arc<Notify>>,
    /// A turn was asked for and has not begun; dropped when it does.
    called: Option<oneshot::Sender<()>>,
}

impl Desk {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.next.is_empty() && self.bell.is_none() && self.called.is_none()
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errands").field("desks", &self.desks.lock().len()).finish()
    }
}

/// A call that was put on a desk.
pub struct HandedIn {
    /// What comes of it.
    pub answer: oneshot::Receiver<Result<Carried, ApiError>>,
    /// A turn has to be asked for; it breaks once that has begun.
    pub turn: Option<oneshot::Receiver<()>>,
}

impl Errands {
    /// Puts a call on the desk of its session. `crowded`: something else waits in the session for the end of the turn that is on,
    /// which takes no further call then.
    pub fn hand_in(&self, session: &SessionId, errand: Errand, crowded: bool) -> HandedIn {
        let (told, answer) = oneshot::channel();
        let mut desks = self.desks.lock();
        let desk = desks.entry(session.clone()).or_default();
        if let Some(bell) = desk.bell.as_ref().filter(|_| !crowded) {
            desk.waiting.push_back((errand, told));
            bell.notify_one();
            return HandedIn { answer, turn: None };
        }
        desk.next.push_back((errand, told));
        let wanted = desk.called.is_none();
        let turn = wanted.then(|| {
            let (called, begun) = oneshot::channel();
            desk.called = Some(called);
            begun
        });
        HandedIn { answer, turn }
    }

    /// Puts a call on the desk of a session in which a turn is on, and asks for none. None: no turn is on that would take it.
    pub fn join(&self, session: &SessionId, errand: Errand) -> Option<oneshot::Receiver<Result<Carried, ApiError>>> {
        let mut desks = self.desks.lock();
        let desk = desks.get_mut(session)?;
        let bell = desk.bell.as_ref()?;
        let (told, answer) = oneshot::channel();
        desk.waiting.push_back((errand, told));
        bell.notify_one();
        Some(answer)
    }

    /// The calls on the desk of a session that their clients no longer want are told so, and taken from it.
    pub fn sweep(&self, session: &SessionId) {
        let left: VecDeque<_> = {
            let mut desks = self.desks.lock();
            let Some(desk) = desks.get_mut(session) else { return };
            let mut gone = VecDeque::new();
            for list in [&mut desk.waiting, &mut desk.next] {
                let (back, wanted): (VecDeque<_>, _) =
                    std::mem::take(list).into_iter().partition(|(errand, _)| errand.cancel.is_cancelled());
                *list = wanted;
                gone.extend(back);
            }
            gone
        };
        left.into_iter().for_each(|(_, told)| drop(told.send(Err(taken_back()))));
    }

    /// The same agent, whose turns take what is put on the desk of their session meanwhile: calls that it makes itself, as a
    /// client of ours.
    pub fn beside(&self, agent: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(Beside { errands: self.clone(), agent })
    }

    /// The turn that was asked for will not come: what waits for it is told why.
    pub fn fail(&self, session: &SessionId, error: &ApiError) {
        let left = {
            let mut desks = self.desks.lock();
            let Some(desk) = desks.get_mut(session).filter(|desk| desk.called.is_some()) else { return };
            desk.called = None;
            let left = std::mem::take(&mut desk.next);
            if desk.is_idle() {
                desks.remove(session);
            }
            left
        };
        for (_, told) in left {
            let _ = told.send(Err(error.clone()));
        }
    }

    /// A turn begins at the desk. `asked`: it may be the one that was asked for, and takes what lies there for that.
    fn open(&self, session: SessionId, cancel: CancellationToken, asked: bool) -> Shift {
        let bell = Arc::<Notify>::default();
        let mut desks = self.desks.lock();
        let desk = desks.entry(session.clone()).or_default();
        if asked {
            desk.called = None;
            let next = std::mem::take(&mut desk.next);
            desk.waiting.extend(next);
        }
        desk.bell = Some(Arc::clone(&bell));
        drop(desks);
        Shift { errands: self.clone(), session, bell, cancel, running: FuturesUnordered::new(), over: false }
    }
}

impl Model for Errands {
    fn id(&self) -> &str {
        ERRANDS_MODEL_ID
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn only_carries(&self) -> bool {
        true
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let Some(session) = request.agent.and_then(|agent| agent.host) else {
            let error = ModelError::Refused("the calls of a client need a session".to_owned());
            return Box::pin(stream::iter([Err(error)]));
        };
        let shift = self.open(session, cancel, true);
        Box::pin(stream::unfold(shift, |mut shift| async move { Some((Ok(shift.next().await?), shift)) }))
    }
}

/// An agent beside whose stream the desk of its session is worked at.
struct Beside {
    errands: Errands,
    agent: Arc<dyn Model>,
}

impl Model for Beside {
    fn id(&self) -> &str {
        self.agent.id()
    }

    fn available(&self) -> Result<(), ModelError> {
        self.agent.available()
    }

    fn facts(&self) -> ModelFacts {
        self.agent.facts()
    }

    fn takes_images(&self) -> bool {
        self.agent.takes_images()
    }

    fn is_agent(&self) -> bool {
        self.agent.is_agent()
    }

    fn count_tokens<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>> {
        self.agent.count_tokens(request, cancel)
    }

    fn only_carries(&self) -> bool {
        self.agent.only_carries()
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let session = request.agent.as_ref().and_then(|agent| agent.host.clone());
        let own = self.agent.stream(request, cancel.clone());
        let Some(session) = session else { return own };
        let shift = self.errands.open(session, cancel, false);
        Box::pin(stream::unfold((shift, own), |(mut shift, mut own)| async move {
            let event = shift.beside(&mut own).await?;
            Some((event, (shift, own)))
        }))
    }
}

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One turn at a desk.
struct Shift {
    errands: Errands,
    session: SessionId,
    bell: Arc<Notify>,
    cancel: CancellationToken,
    /// Each ends when its client has been told.
    running: FuturesUnordered<Running>,
    over: bool,
}

impl Shift {
    async fn next(&mut self) -> Option<ModelEvent> {
        while !self.over {
            if self.cancel.is_cancelled() {
                // Nothing more is taken; what runs is waited for.
                self.close(true);
            } else if let Some((errand, told)) = self.take() {
                return Some(self.carry(errand, told));
            }
            if self.running.is_empty() {
                if self.close(false) {
                    self.over = true;
                    return Some(ModelEvent::Finished(StopReason::EndTurn));
                }
                continue;
            }
            let (cancel, stopped) = (self.cancel.clone(), self.cancel.is_cancelled());
            tokio::select! {
                biased;
                Some(()) = self.running.next() => {}
                () = cancel.cancelled(), if !stopped => {}
                () = self.bell.notified() => {}
            }
        }
        None
    }

    /// The next event of an agent's stream, or a call that was put on the desk meanwhile. With the stream the desk is left.
    async fn beside(&mut self, own: &mut ModelStream) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some((errand, told)) = self.take().filter(|_| !self.cancel.is_cancelled()) {
                return Some(Ok(self.carry(errand, told)));
            }
            tokio::select! {
                biased;
                event = own.next() => return event,
                Some(()) = self.running.next(), if !self.running.is_empty() => {}
                () = self.bell.notified() => {}
            }
        }
    }

    /// The next call on the desk that its client still wants. The others are told that they will not be.
    fn take(&self) -> Option<(Errand, Told)> {
        loop {
            let (errand, told) = self.errands.desks.lock().get_mut(&self.session)?.waiting.pop_front()?;
            if !errand.cancel.is_cancelled() {
                return Some((errand, told));
            }
            let _ = told.send(Err(taken_back()));
        }
    }

    fn carry(&mut self, errand: Errand, told: Told) -> ModelEvent {
        let (reply, answer) = Reply::channel();
        self.running.push(Box::pin(async move {
            let _ = told.send(answer.await.map_err(|_| aborted()));
        }));
        ModelEvent::Agent(AgentEvent::Carry(Box::new(errand), reply))
    }

    /// Leaves the desk, where nothing waits on it; with `force` what waits is told that it will not be. False: something waits.
    fn close(&self, force: bool) -> bool {
        let left = {
            let mut desks = self.errands.desks.lock();
            let Some(desk) = desks.get_mut(&self.session) else { return true };
            // Another turn is on, or asked for.
            if !desk.bell.as_ref().is_some_and(|bell| Arc::ptr_eq(bell, &self.bell)) {
                return true;
            }
            if !force && !desk.waiting.is_empty() {
                return false;
            }
            desk.bell = None;
            let left = std::mem::take(&mut desk.waiting);
            if desk.is_idle() {
                desks.remove(&self.session);
            }
            left
        };
        for (_, told) in left {
            let _ = told.send(Err(aborted()));
        }
        true
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        self.close(true);
    }
}

fn aborted() -> ApiError {
    ApiError::conflict("the turn of the call was ended before the call was")
}

fn taken_back() -> ApiError {
    ApiError::conflict("the call was aborted before it began")
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::model::AgentRequest;
    use crate::protocol::{ToolCallRequest, ToolCallResult};

    fn errand(id: &str) -> Errand {
        let request = ToolCallRequest { id: id.to_owned(), name: "t".to_owned(), arguments: Map::new() };
        Errand { request, cancel: CancellationToken::new() }
    }

    fn begin(errands: &Errands, session: &SessionId, cancel: &CancellationToken) -> ModelStream {
        let agent = Some(AgentRequest { host: Some(session.clone()), ..AgentRequest::default() });
        errands.stream(ModelRequest { agent, ..ModelRequest::default() }, cancel.clone())
    }

    async fn carried(stream: &mut ModelStream) -> (String, Reply<Carried>) {
        match stream.next().await {
            Some(Ok(ModelEvent::Agent(AgentEvent::Carry(errand, reply)))) => (errand.request.id.clone(), reply),
            other => panic!("expected a call, got {other:?}"),
        }
    }

    fn done(id: &str) -> Carried {
        let (id, name, output) = (id.to_owned(), "t".to_owned(), String::new());
        let result =
            ToolCallResult { id, name, output, is_error: false, duration_ms: None, parts: Vec::new(), details: None };
        Carried { result, findings: Vec::new(), failure: None }
    }

    #[tokio::test]
    async fn one_turn_is_asked_for_and_takes_what_comes_while_it_is_on() {
        let (errands, session, cancel) = (Errands::default(), SessionId::generate(), CancellationToken::new());
        let first = errands.hand_in(&session, errand("1"), false);
        let second = errands.hand_in(&session, errand("2"), false);
        assert!(first.turn.is_some() && second.turn.is_none());
        let mut stream = begin(&errands, &session, &cancel);
        assert!(first.turn.unwrap().await.is_err(), "it has begun");
        let (one, reply_one) = carried(&mut stream).await;
        let (two, reply_two) = carried(&mut stream).await;
        assert_eq!((one.as_str(), two.as_str()), ("1", "2"));
        let third = errands.hand_in(&session, errand("3"), false);
        assert!(third.turn.is_none());
        reply_two.send(done("2"));
        let (three, reply_three) = carried(&mut stream).await;
        assert_eq!(three, "3");
        reply_one.send(done("1"));
        reply_three.send(done("3"));
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        for handed in [first.answer, second.answer, third.answer] {
            assert!(handed.await.unwrap().is_ok());
        }
        assert!(errands.desks.lock().is_empty());
        assert!(errands.hand_in(&session, errand("4"), false).turn.is_some(), "that turn is over");
    }

    #[tokio::test]
    async fn a_call_that_is_taken_back_before_it_began_is_handed_to_nobody() {
        let (errands, session, cancel) = (Errands::default(), SessionId::generate(), CancellationToken::new());
        let [first, second] = ["1", "2"].map(errand);
        let (swept, passed_over) = (first.cancel.clone(), second.cancel.clone());
        let first = errands.hand_in(&session, first, false);
        let second = errands.hand_in(&session, second, false);
        let third = errands.hand_in(&session, errand("3"), false);
        swept.cancel();
        errands.sweep(&session);
        assert_eq!(first.answer.await.unwrap(), Err(taken_back()), "nobody waits for a turn with it");
        passed_over.cancel();
        let mut stream = begin(&errands, &session, &cancel);
        let (id, reply) = carried(&mut stream).await;
        assert_eq!(id, "3");
        assert_eq!(second.answer.await.unwrap(), Err(taken_back()));
        reply.send(done("3"));
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        assert!(third.answer.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_turn_that_something_waits_for_takes_no_further_call() {
        let (errands, session, cancel) = (Errands::default(), SessionId::generate(), CancellationToken::new());
        let _first = errands.hand_in(&session, errand("1"), false);
        let mut stream = begin(&errands, &session, &cancel);
        let (_, reply) = carried(&mut stream).await;
        let second = errands.hand_in(&session, errand("2"), true);
        let third = errands.hand_in(&session, errand("3"), true);
        assert!(second.turn.is_some() && third.turn.is_none(), "one more turn, for both");
        reply.send(done("1"));
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        drop(stream);
        let mut stream = begin(&errands, &session, &cancel);
        for id in ["2", "3"] {
            let (carried, reply) = carried(&mut stream).await;
            assert_eq!(carried, id);
            reply.send(done(id));
        }
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        assert!(second.answer.await.unwrap().is_ok() && third.answer.await.unwrap().is_ok());
        assert!(errands.desks.lock().is_empty());
    }

    #[tokio::test]
    async fn whatever_becomes_of_the_turn_each_call_is_answered() {
        let (errands, session, cancel) = (Errands::default(), SessionId::generate(), CancellationToken::new());
        let failed = errands.hand_in(&session, errand("1"), false);
        errands.fail(&session, &ApiError::conflict("paused"));
        assert_eq!(failed.answer.await.unwrap(), Err(ApiError::conflict("paused")));
        // Aborted: one runs, one comes too late, and one is handed in for the turn after it.
        let running = errands.hand_in(&session, errand("2"), false);
        let mut stream = begin(&errands, &session, &cancel);
        let (_, reply) = carried(&mut stream).await;
        let late = errands.hand_in(&session, errand("3"), false);
        cancel.cancel();
        drop(reply);
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        assert_eq!(running.answer.await.unwrap(), Err(aborted()));
        assert_eq!(late.answer.await.unwrap(), Err(aborted()));
        let dropped = errands.hand_in(&session, errand("4"), false);
        drop(begin(&errands, &session, &CancellationToken::new()));
        assert_eq!(dropped.answer.await.unwrap(), Err(aborted()));
        assert!(errands.desks.lock().is_empty());
    }

    /// An agent that says one word and ends when it is told to.
    struct Talks(Arc<Notify>);

    impl Model for Talks {
        fn id(&self) -> &str {
            "acp/talks"
        }

        fn is_agent(&self) -> bool {
            true
        }

        fn stream(&self, _: ModelRequest, _: CancellationToken) -> ModelStream {
            let bell = Arc::clone(&self.0);
            let end = stream::once(async move {
                bell.notified().await;
                Ok(ModelEvent::Finished(StopReason::EndTurn))
            });
            Box::pin(stream::iter([Ok(ModelEvent::Text("word".to_owned()))]).chain(end))
        }
    }

    #[tokio::test]
    async fn the_turn_of_an_agent_takes_the_calls_that_come_meanwhile() {
        let (errands, session, bell) = (Errands::default(), SessionId::generate(), Arc::<Notify>::default());
        assert!(errands.join(&session, errand("0")).is_none(), "no turn is on");
        let agent = errands.beside(Arc::new(Talks(Arc::clone(&bell))));
        let host = Some(session.clone());
        let request =
            ModelRequest { agent: Some(AgentRequest { host, ..AgentRequest::default() }), ..ModelRequest::default() };
        let mut stream = agent.stream(request, CancellationToken::new());
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("word".to_owned()))));
        let first = errands.join(&session, errand("1")).unwrap();
        let (id, reply) = carried(&mut stream).await;
        assert_eq!(id, "1");
        reply.send(done("1"));
        bell.notify_one();
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        // What is put there behind its last word is told that it will not be.
        let late = errands.join(&session, errand("2")).unwrap();
        drop(stream);
        assert_eq!(late.await.unwrap(), Err(aborted()));
        drop(first);
        assert!(errands.desks.lock().is_empty());
    }

    #[tokio::test]
    async fn a_turn_for_which_no_call_is_left_says_nothing() {
        let (errands, session) = (Errands::default(), SessionId::generate());
        let mut stream = begin(&errands, &session, &CancellationToken::new());
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::Finished(StopReason::EndTurn))));
        assert_eq!(stream.next().await, None);
    }
}
