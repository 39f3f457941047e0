//! One session that a client has open: what is told of it, and which of its turns the client waits for.
//!
//! A task follows the log and says what there is to say, one thing after the other. A client that takes nothing is waited for:
//! the events stay in the log.
//!
//! Invariant: who waits for a turn hears of its end when all that was to be said of it has been said, and nothing more is said
//! before it has had its answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::Core;
use super::options::{Choice, mode_id, options, window};
use super::shown::Tools;
use super::told::{Said, Teller, TurnEnd};
use crate::app::EventReader;
use crate::base::{clock, limit};
use crate::protocol::{
    AgentOption, ApiError, ErrorCode, EventBody, OWN_AGENT, RequestId, SessionId, SessionView, TurnId, agent_of,
};

/// A session on a connection.
pub(super) struct Desk {
    pub(super) id: SessionId,
    turns: Mutex<Turns>,
    changed: Notify,
    /// Which agent it has other than our own, and what that can be set to.
    agent: Mutex<(String, Vec<AgentOption>)>,
    /// Ends what follows its log.
    following: Mutex<CancellationToken>,
    /// What the client knows of the settings. Who changes them holds it until the answer is made.
    pub(super) known: tokio::sync::Mutex<Known>,
}

/// The client's turns.
#[derive(Default)]
struct Turns {
    /// Prompts that were handed in and have no turn yet.
    expected: usize,
    /// Its turns that have not ended, and who waits for the end.
    own: HashMap<TurnId, oneshot::Sender<Heard>>,
    /// Those that are to end as soon as they begin.
    cancelled: HashSet<TurnId>,
    /// What it has put into running turns and has not come up in the log.
    steered: Vec<String>,
}

/// What who waits for a turn is told of its end.
pub(super) struct Heard {
    /// How it ended.
    pub(super) end: TurnEnd,
    /// Held until the answer has been said.
    pub(super) _answering: oneshot::Sender<()>,
}

/// What a client knows of a session's settings.
#[derive(Debug, Default)]
pub(super) struct Known {
    mode: &'static str,
    options: Value,
    title: Option<String>,
}

/// How a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// What comes from now on is told.
    Silent,
    /// All is told, from its beginning on.
    Replay,
}

impl Desk {
    fn new(id: SessionId, view: &SessionView, choice: &Choice) -> Self {
        let known = tokio::sync::Mutex::new(Known::of(view, choice));
        let agent = Mutex::new((agent_of(&view.model).to_owned(), choice.own.clone()));
        let (turns, following) = (Mutex::default(), Mutex::default());
        Self { id, turns, changed: Notify::new(), agent, following, known }
    }

    /// A prompt is handed in: its turn is not told to who prompts.
    pub(super) fn expect(&self) {
        self.turns.lock().expected += 1;
    }

    /// It came to nothing, or to a turn that is not this client's.
    pub(super) fn unexpect(&self) {
        let mut turns = self.turns.lock();
        turns.expected = turns.expected.saturating_sub(1);
        drop(turns);
        self.changed.notify_waiters();
    }

    /// It has become this turn. Gives back what tells of its end.
    pub(super) fn assign(&self, turn: TurnId) -> oneshot::Receiver<Heard> {
        let (ended, end) = oneshot::channel();
        self.turns.lock().own.insert(turn, ended);
        self.unexpect();
        end
    }

    /// It has become this turn, for whose end nobody waits.
    pub(super) fn adopt(&self, turn: &TurnId) {
        drop(self.assign(turn.clone()));
    }

    /// The turn is to end as soon as it begins.
    pub(super) fn cancel_later(&self, turn: &TurnId) {
        self.turns.lock().cancelled.insert(turn.clone());
    }

    /// The client puts a message into the running turn.
    pub(super) fn steers(&self, text: &str) {
        self.turns.lock().steered.push(text.to_owned());
    }

    /// Whether a message is one of its own, which it knows. Each counts once.
    pub(super) fn knows_steered(&self, text: &str) -> bool {
        let steered = &mut self.turns.lock().steered;
        let at = steered.iter().position(|one| one == text);
        at.map(|at| steered.remove(at)).is_some()
    }

    /// Whether a turn is this client's. Waits for prompts that were handed in and have no turn yet.
    async fn owns(&self, turn: &TurnId) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let turns = self.turns.lock();
                if turns.own.contains_key(turn) {
                    return true;
                }
                if turns.expected == 0 {
                    return false;
                }
            }
            changed.await;
        }
    }

    /// A turn begins. Whether it is to end at once.
    fn begins(&self, turn: &TurnId) -> bool {
        self.turns.lock().cancelled.remove(turn)
    }

    /// A turn has ended. Waits until who waits for it has its answer.
    async fn ended(&self, turn: &TurnId, end: TurnEnd) {
        let waiter = {
            let mut turns = self.turns.lock();
            turns.cancelled.remove(turn);
            turns.own.remove(turn)
        };
        let (_answering, answered) = oneshot::channel();
        if waiter.is_some_and(|waiter| waiter.send(Heard { end, _answering }).is_ok()) {
            // It is dropped when that is done.
            let _ = answered.await;
        }
    }

    /// Whether a turn that has not ended is this client's.
    pub(super) fn has(&self, turn: &TurnId) -> bool {
        self.turns.lock().own.contains_key(turn)
    }

    /// Nothing more is told of it: nobody waits in vain.
    pub(super) fn leave(&self) {
        self.following.lock().cancel();
        *self.turns.lock() = Turns::default();
        self.changed.notify_waiters();
    }
}

impl Known {
    fn of(view: &SessionView, choice: &Choice) -> Self {
        Self { mode: mode_id(view.permission_mode), options: options(view, choice), title: view.title.clone() }
    }

    /// Takes in how the settings are, and gives back what of it the client is to be told.
    pub(super) fn learn(&mut self, view: &SessionView, choice: &Choice) -> Vec<Value> {
        let now = Self::of(view, choice);
        let mut updates = Vec::new();
        if now.mode != self.mode {
            updates.push(json!({ "sessionUpdate": "current_mode_update", "currentModeId": now.mode }));
        }
        if now.options != self.options {
            updates.push(json!({ "sessionUpdate": "config_option_update", "configOptions": now.options }));
        }
        if now.title != self.title {
            updates.push(info(view));
        }
        *self = now;
        updates
    }

    /// The options as the client knows them.
    pub(super) fn options(&self) -> &Value {
        &self.options
    }
}

/// What a session is called, and when it last changed.
pub(super) fn info(view: &SessionView) -> Value {
    let updated_at = clock::text_of_ms(view.updated_at);
    json!({ "sessionUpdate": "session_info_update", "title": view.title, "updatedAt": updated_at })
}

impl Core {
    /// What can be chosen from now, in a session with these options of its agent: agents of markdown files too, as they are in
    /// its directory. Those that only others delegate to are not for a person to choose.
    async fn choice(&self, view: &SessionView, own: Vec<AgentOption>) -> Choice {
        let chosen = view.agent_options.clone();
        let there = self.app.agents_in(Some(view.working_directory.clone())).await;
        let mut agents = there.map_or_else(|_| self.app.agents(), |list| list.agents);
        agents.retain(|agent| agent.kind != "subagent");
        Choice { models: self.app.listed_models(), agents, own, chosen }
    }

    /// What can be chosen from now in a session that is open.
    pub(super) async fn choice_at(&self, desk: &Desk, view: &SessionView) -> Choice {
        let own = {
            let (agent, own) = &*desk.agent.lock();
            if *agent == agent_of(&view.model) { own.clone() } else { Vec::new() }
        };
        self.choice(view, own).await
    }

    /// What the agent of a session has said that it can be set to.
    async fn own_options(&self, view: &SessionView) -> Vec<AgentOption> {
        if agent_of(&view.model) == OWN_AGENT {
            return Vec::new();
        }
        let state = self.app.agent_state(&self.caller, &view.session_id).await;
        state.map(|state| state.options).unwrap_or_default()
    }

    /// The session as the client has it open; opens it if need be.
    pub(super) async fn desk(self: &Arc<Self>, id: &SessionId) -> Result<Arc<Desk>, ApiError> {
        let open = self.desks.lock().get(id).cloned();
        match open {
            Some(desk) => Ok(desk),
            None => Ok(self.open(id, How::Silent).await?.0),
        }
    }

    /// Opens a session. Of one that is told from the beginning, all that is past has been said when this is done.
    ///
    /// # Errors
    /// `NOT_FOUND`, `RESOURCE_EXHAUSTED`.
    pub(super) async fn open(self: &Arc<Self>, id: &SessionId, how: How) -> Result<(Arc<Desk>, SessionView), ApiError> {
        let view = self.app.session(&self.caller, id).await?;
        let there = self.desks.lock().get(id).cloned();
        let choice = match &there {
            Some(desk) => self.choice_at(desk, &view).await,
            None => self.choice(&view, self.own_options(&view).await).await,
        };
        let (desk, is_new) = self.place(&view, &choice)?;
        if !is_new && how == How::Silent {
            desk.known.lock().await.learn(&view, &choice);
            return Ok((desk, view));
        }
        let (after, replay_until) = match how {
            How::Silent => (view.last_seq, 0),
            How::Replay => (0, view.last_seq),
        };
        let reader = match self.app.events(&self.caller, id, after).await {
            Ok(reader) => reader,
            Err(error) => {
                if is_new {
                    self.desks.lock().remove(id);
                }
                return Err(error);
            }
        };
        let tools = Tools::new(self.app.tools());
        let mut teller = Teller::new(self.client(), (view.working_directory.clone(), tools), replay_until);
        teller.beside.window = window(&view, &choice);
        let stop = self.over.child_token();
        let before = std::mem::replace(&mut *desk.following.lock(), stop.clone());
        before.cancel();
        let open = match how {
            How::Silent => asked_now(&view),
            How::Replay => Vec::new(),
        };
        let (caught_up, catching_up) = oneshot::channel();
        let follower = Follower {
            core: Arc::clone(self),
            desk: Arc::clone(&desk),
            reader,
            teller,
            open,
            replay_until,
            caught_up: Some(caught_up),
        };
        self.tasks.spawn(async move {
            tokio::select! {
                () = follower.run() => {}
                () = stop.cancelled() => {}
            }
        });
        // It breaks off where the session is deleted meanwhile, or the client goes.
        let _ = catching_up.await;
        Ok((desk, view))
    }

    fn place(&self, view: &SessionView, choice: &Choice) -> Result<(Arc<Desk>, bool), ApiError> {
        let mut desks = self.desks.lock();
        if let Some(desk) = desks.get(&view.session_id) {
            return Ok((Arc::clone(desk), false));
        }
        if desks.len() >= limit::SUBSCRIPTIONS_MAX {
            let message = format!("this connection has {} sessions open; close some", limit::SUBSCRIPTIONS_MAX);
            return Err(ApiError::new(ErrorCode::ResourceExhausted, message));
        }
        let desk = Arc::new(Desk::new(view.session_id.clone(), view, choice));
        desks.insert(view.session_id.clone(), Arc::clone(&desk));
        Ok((desk, true))
    }

    /// Tells of a session no more.
    pub(super) fn leave(&self, id: &SessionId) {
        let desk = self.desks.lock().remove(id);
        if let Some(desk) = desk {
            desk.leave();
        }
        self.asked.lock().retain(|_, asked| asked.session != *id);
    }
}

/// The questions of a session that are open.
fn asked_now(view: &SessionView) -> Vec<(EventBody, Option<TurnId>)> {
    let turn = view.turn.as_ref().map(|turn| turn.turn_id.clone());
    view.requests.iter().map(|request| (request.clone(), turn.clone())).collect()
}

/// Follows a session's log for a client.
struct Follower {
    core: Arc<Core>,
    desk: Arc<Desk>,
    reader: EventReader,
    teller: Teller,
    /// Questions that were put before, and are not put to this client yet.
    open: Vec<(EventBody, Option<TurnId>)>,
    /// Up to here the log is past.
    replay_until: u64,
    /// Hears that all that is past has been said.
    caught_up: Option<oneshot::Sender<()>>,
}

impl Follower {
    async fn run(mut self) {
        let went_on = self.catch_up().await;
        if went_on {
            while self.some().await {}
        }
        // Deleted, or the server stops: who waits for a turn hears that there will be no more.
        self.desk.leave();
        self.core.desks.lock().retain(|_, desk| !Arc::ptr_eq(desk, &self.desk));
    }

    /// Says what is past. False: nobody listens any more.
    async fn catch_up(&mut self) -> bool {
        while self.reader.position() < self.replay_until {
            if !self.some().await {
                return false;
            }
        }
        self.replay_until = 0;
        for (body, turn) in std::mem::take(&mut self.open) {
            self.core.ask(&self.desk, &self.teller, (body, turn)).await;
        }
        if let Some(caught_up) = self.caught_up.take() {
            // Who opened it may have gone.
            let _ = caught_up.send(());
        }
        true
    }

    /// Says the next ones. False: there are no more, or nobody listens.
    async fn some(&mut self) -> bool {
        let cursor = self.reader.position();
        let batch = match self.reader.next().await {
            Ok(Some(batch)) => batch,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(session = %self.desk.id, %error, "a client is told no more of a session: the log failed");
                return false;
            }
        };
        let new = || batch.events.iter().filter(|event| event.seq > cursor);
        let said = self.teller.tell(new());
        let offers = new().rfind(|event| event.kind == "agent.options").and_then(|event| event.body());
        for said in said {
            if !self.say(said).await {
                return false;
            }
        }
        match offers {
            Some(EventBody::AgentOptions(offers)) => self.offered(offers.options).await,
            _ => true,
        }
    }

    /// The agent can be set to these now.
    async fn offered(&mut self, options: Vec<AgentOption>) -> bool {
        let Ok(view) = self.core.app.session(&self.core.caller, &self.desk.id).await else { return true };
        *self.desk.agent.lock() = (agent_of(&view.model).to_owned(), options);
        self.is_past() || self.configured(false).await
    }

    fn is_past(&self) -> bool {
        self.replay_until > 0
    }

    async fn say(&mut self, said: Said) -> bool {
        let (core, desk) = (&Arc::clone(&self.core), &Arc::clone(&self.desk));
        match said {
            Said::Update(update) => return core.update(&desk.id, update).await,
            Said::Begun(turn, chunks) => {
                let own = !self.is_past() && desk.owns(&turn).await;
                if desk.begins(&turn) {
                    core.abort(desk, &turn);
                }
                return own || self.all(chunks).await;
            }
            Said::Steered(text, chunks) => {
                let own = !self.is_past() && desk.knows_steered(&text);
                return own || self.all(chunks).await;
            }
            Said::Asked(body, turn) if self.is_past() => self.open.push((*body, turn)),
            Said::Asked(body, turn) => core.ask(desk, &self.teller, (*body, turn)).await,
            Said::Answered(request) => {
                self.open.retain(|(body, _)| request_of(body) != Some(&request));
                core.withdraw(&desk.id, &request).await;
            }
            Said::Configured | Said::Ended(..) if self.is_past() => {}
            Said::Configured => return self.configured(false).await,
            Said::Ended(turn, end) => {
                let listens = self.configured(true).await;
                desk.ended(&turn, end).await;
                return listens;
            }
        }
        true
    }

    async fn all(&self, updates: Vec<Value>) -> bool {
        for update in updates {
            if !self.core.update(&self.desk.id, update).await {
                return false;
            }
        }
        true
    }

    /// Tells what is other than it was. `ended`: a turn has, so that it has changed in any case.
    async fn configured(&mut self, ended: bool) -> bool {
        let mut known = self.desk.known.lock().await;
        let Ok(view) = self.core.app.session(&self.core.caller, &self.desk.id).await else { return true };
        let choice = self.core.choice_at(&self.desk, &view).await;
        let mut updates = known.learn(&view, &choice);
        drop(known);
        self.teller.beside.window = window(&view, &choice);
        if ended {
            updates.retain(|update| update["sessionUpdate"] != "session_info_update");
            updates.extend(cost(&view).and_then(|cost| self.teller.beside.usage(Some(cost))));
            updates.push(info(&view));
        }
        self.all(updates).await
    }
}

/// What a session has cost so far, in dollars, where that is known.
fn cost(view: &SessionView) -> Option<f64> {
    Some(view.usage.cost).filter(|cost| !cost.is_zero()).map(|cost| cost.dollars())
}

/// The id of a question.
pub(super) fn request_of(body: &EventBody) -> Option<&RequestId> {
    match body {
        EventBody::PermissionRequest { request_id, .. } | EventBody::ClientRequest { request_id, .. } => {
            Some(request_id)
        }
        _ => None,
    }
}
