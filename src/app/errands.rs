//! Calls that a client makes itself, without a model: each runs in a session, and there as any call of a model does.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{App, Caller, EventReader, Live, NewPrompt};
use crate::model::{ERRANDS_MODEL_ID, Errand, Model};
use crate::protocol::{
    Access, ApiError, CreateSession, PromptContent, PromptMode, SessionId, SessionView, TurnRecord, TurnSettings,
};
use crate::provider::{Errands, HandedIn};

pub use crate::model::{Carried, ERRANDS_MODEL_ID as CALLS_MODEL_ID, Errand as ClientCall};

impl App {
    /// Reads the events of a session behind number `after`, as [`Self::events`], for who is nobody who could be asked.
    ///
    /// # Errors
    /// As [`Self::events`].
    pub async fn overhear(&self, caller: &Caller, id: &SessionId, after: u64) -> Result<EventReader, ApiError> {
        let streams_max = self.settings().limits.streams_per_session_max;
        Ok(self.live(caller, id).await?.read(after, streams_max)?.unattended())
    }

    /// A session for the calls of a client; `body` says all but the model.
    ///
    /// # Errors
    /// As [`Self::create_session`].
    pub async fn create_call_session(&self, caller: &Caller, body: CreateSession) -> Result<SessionView, ApiError> {
        caller.needs(Access::Work)?;
        let body = CreateSession { model: Some(ERRANDS_MODEL_ID.to_owned()), agent: None, ..body };
        self.create_session(caller, body).await
    }

    /// Runs one call in a session: hooks, permission, tool, log, and the record of what it changed. In a session that only runs calls,
    /// and in one that a model of ours answers, it has a turn, which waits for the one that is on; a model finds it in its history.
    /// Where an external agent answers, it runs in the agent's turn that is on. What fails inside is a result; an error says that it
    /// did not come to run. It runs on when nobody waits any more, until its token fires.
    ///
    /// # Errors
    /// `FORBIDDEN` for the role, `NOT_FOUND`, `CONFLICT` (no turn of its agent is on, its turn was ended), `RESOURCE_EXHAUSTED`.
    pub async fn call(&self, caller: &Caller, id: &SessionId, call: Errand) -> Result<Carried, ApiError> {
        caller.needs(Access::Work)?;
        let live = self.live(caller, id).await?;
        let model = live.view().await?.model;
        let cancel = call.cancel.clone();
        let is_agent = |model: &Arc<dyn Model>| model.is_agent() && !model.only_carries();
        if self.models.get(&model).as_ref().is_some_and(is_agent) {
            let Some(answer) = self.errands.join(id, call) else {
                let message =
                    format!("session {id} is answered by `{model}`, and no turn of it is on that could take the call");
                return Err(ApiError::conflict(message));
            };
            return self.told(id, answer, &cancel).await;
        }
        let about = format!("[call of a client: {}]", call.request.name);
        let HandedIn { answer, turn } = self.errands.hand_in(id, call, live.has_queued());
        if let Some(begun) = turn {
            tokio::spawn(ask_for_turn((self.errands.clone(), live), about, begun));
        }
        self.told(id, answer, &cancel).await
    }

    /// What comes of a call. One that is taken back while it waits is over with that.
    async fn told(
        &self,
        id: &SessionId,
        mut answer: oneshot::Receiver<Result<Carried, ApiError>>,
        cancel: &CancellationToken,
    ) -> Result<Carried, ApiError> {
        let early = tokio::select! {
            biased;
            told = &mut answer => Some(told),
            () = cancel.cancelled() => None,
        };
        let told = match early {
            Some(told) => told,
            None => {
                self.errands.sweep(id);
                answer.await
            }
        };
        told.unwrap_or_else(|_| Err(ApiError::conflict("the call was given up")))
    }
}

/// Has a turn begun for what lies on the desk; where that comes to nothing, those who wait are told.
async fn ask_for_turn((errands, live): (Errands, Arc<Live>), about: String, begun: oneshot::Receiver<()>) {
    let only = TurnSettings { model: Some(ERRANDS_MODEL_ID.to_owned()), ..TurnSettings::default() };
    let prompt = NewPrompt {
        content: PromptContent::Text(about),
        mode: PromptMode::Queue,
        configure: None,
        only: Some(only),
        task: None,
        if_version: None,
        receipt: None,
    };
    let error = match live.prompt(prompt).await {
        Ok(accepted) => tokio::select! {
            biased;
            _ = begun => return,
            record = live.wait(&accepted.turn_id) => record.map_or_else(|error| error, |record| unbegun(&record)),
        },
        Err(error) => error,
    };
    errands.fail(live.id(), &error);
}

/// Why the calls of a turn that is over have not begun.
fn unbegun(record: &TurnRecord) -> ApiError {
    let why = record.error.as_ref().map(|error| error.message.clone()).or_else(|| record.reason.clone());
    ApiError::conflict(format!("the turn of the call ended before the call began: {}", why.unwrap_or_default()))
}
