//! What the application does for each operation.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::parse::{Class, Listed};
use super::{Command, Operation, Operations, Submitted, Task};
use crate::app::{App, Caller, Listing};
use crate::base::BoxFuture;
use crate::protocol::{Access, ApiError, ModelList, SessionId, ToolList};
use crate::session::Accepted;

/// What was done.
#[derive(Debug)]
pub(in crate::app) struct Performed {
    /// The answer of the route of the same operation.
    pub(super) data: Box<RawValue>,
    /// The session's version behind it.
    pub(super) version: Option<u64>,
}

impl Performed {
    /// Something that was done.
    pub(in crate::app) fn of<T: Serialize>(data: &T, version: Option<u64>) -> Result<Self, ApiError> {
        let data = to_raw_value(data).map_err(|cause| ApiError::internal(cause.to_string()))?;
        Ok(Self { data, version })
    }
}

impl App {
    /// Hands a command in. It goes its way whether or not anybody waits for its end.
    pub fn submit(self: &Arc<Self>, caller: Caller, command: Command) -> Submitted {
        let access = match command.operation.kind().1 {
            Class::Read => Access::Read,
            Class::Change | Class::Control => Access::Work,
        };
        match caller.needs(access) {
            Ok(()) => self.commands.submit(Arc::clone(self), caller, command),
            Err(error) => self.commands.refuse(&command, error),
        }
    }

    /// The session that an operation is about.
    async fn version_of(&self, caller: &Caller, session: &SessionId) -> Option<u64> {
        self.session(caller, session).await.ok().map(|view| view.version)
    }

    async fn change(&self, task: Task) -> Result<Performed, ApiError> {
        let Task { caller, session, operation, receipt } = task;
        let named = session.clone().ok_or_else(|| ApiError::invalid("sessionId", "to be there"));
        match operation {
            Operation::CreateSession(body) => {
                let view = self.create_session_with(&caller, body, Some(&receipt)).await?;
                Performed::of(&view, Some(view.version))
            }
            Operation::DeleteSession(at) => Performed::of(&self.delete_session_at(&caller, &named?, at).await?, None),
            Operation::Prompt(body) | Operation::Steer(body) => {
                accepted(&self.prompt_with(&caller, &named?, (body, Some(receipt))).await?)
            }
            Operation::Compact(body) => accepted(&self.compact_with(&caller, &named?, (body, Some(receipt))).await?),
            Operation::Configure(changes, if_version) => {
                let view = self.configure_with((&caller, &named?), (changes, if_version), Some(receipt)).await?;
                Performed::of(&view, Some(view.version))
            }
            Operation::Abort(body) => {
                let session = named?;
                Performed::of(&self.abort(&caller, &session, body).await?, self.version_of(&caller, &session).await)
            }
            Operation::Interrupt(body) => {
                let session = named?;
                Performed::of(&self.interrupt(&caller, &session, body).await?, self.version_of(&caller, &session).await)
            }
            Operation::Pause(body) => {
                let session = named?;
                Performed::of(&self.pause(&caller, &session, body).await?, self.version_of(&caller, &session).await)
            }
            Operation::Resume(body) => {
                let session = named?;
                Performed::of(&self.resume(&caller, &session, body).await?, self.version_of(&caller, &session).await)
            }
            Operation::Feedback(body) => {
                let session = named?;
                Performed::of(&self.feedback(&caller, &session, body).await?, self.version_of(&caller, &session).await)
            }
            Operation::Undo(body) => {
                let undone = self.undo(&caller, &named?, body).await?;
                Performed::of(&undone, Some(undone.version))
            }
            Operation::Redo(body) => {
                let redone = self.redo(&caller, &named?, body).await?;
                Performed::of(&redone, Some(redone.version))
            }
            Operation::Fork(body) => {
                let view = self.fork_with(&caller, &named?, (body, Some(&receipt))).await?;
                Performed::of(&view, Some(view.version))
            }
            Operation::Share(sharing) => self.share(&caller, &named?, (sharing, receipt)).await,
            Operation::RevokeGrant(grant) => {
                let deleted = self.revoke_grant(&caller, (grant, session.as_ref())).await?;
                let version = match &session {
                    Some(session) => self.version_of(&caller, session).await,
                    None => None,
                };
                Performed::of(&deleted, version)
            }
            Operation::ExplainPermission(_)
            | Operation::GetSession(_)
            | Operation::GetHistory(..)
            | Operation::GetTurn(_)
            | Operation::ListTurns(..)
            | Operation::ListSessions(..)
            | Operation::ListGrants(_)
            | Operation::List(_)
            | Operation::GetHealth => self.look(&caller, session, operation).await,
        }
    }

    async fn listed(&self, caller: &Caller, session: Option<SessionId>, listed: Listed) -> Result<Performed, ApiError> {
        let listing = Listing { session, directory: None };
        match listed {
            Listed::Tools => Performed::of(&ToolList { tools: self.tools() }, None),
            Listed::Agents => Performed::of(&self.agents_in(None).await?, None),
            Listed::Skills => Performed::of(&self.skills(caller, listing).await?, None),
            Listed::Commands => Performed::of(&self.slash_commands(caller, listing).await?, None),
            Listed::Models => Performed::of(&ModelList { models: self.models().await }, None),
        }
    }

    async fn look(
        &self,
        caller: &Caller,
        session: Option<SessionId>,
        operation: Operation,
    ) -> Result<Performed, ApiError> {
        let named = session.clone().ok_or_else(|| ApiError::invalid("sessionId", "to be there"));
        match operation {
            Operation::ExplainPermission(body) => Performed::of(&self.explain(caller, body).await?, None),
            Operation::GetSession(snapshot) => {
                let view = match snapshot {
                    Some(limit) => self.snapshot(caller, &named?, limit).await?,
                    None => self.session(caller, &named?).await?,
                };
                Performed::of(&view, Some(view.version))
            }
            Operation::GetHistory(before, limit, true) => {
                Performed::of(&self.history_back(caller, &named?, (before, limit)).await?, None)
            }
            Operation::GetHistory(after, limit, false) => {
                Performed::of(&self.history(caller, &named?, after.unwrap_or(0), limit).await?, None)
            }
            Operation::GetTurn(turn) => Performed::of(&self.turn(caller, &named?, &turn).await?, None),
            Operation::ListTurns(cursor, limit) => {
                Performed::of(&self.turns(caller, &named?, (cursor.as_deref(), limit), false).await?, None)
            }
            Operation::ListSessions(cursor, limit) => {
                Performed::of(&self.sessions(caller, cursor.as_deref(), limit).await?, None)
            }
            Operation::ListGrants(cursor) => {
                Performed::of(&self.grants(caller, (session.as_ref(), cursor.as_deref())).await?, None)
            }
            Operation::List(listed) => self.listed(caller, session, listed).await,
            Operation::GetHealth => Performed::of(&self.health().await, None),
            Operation::CreateSession(_)
            | Operation::DeleteSession(_)
            | Operation::Prompt(_)
            | Operation::Steer(_)
            | Operation::Compact(_)
            | Operation::Configure(..)
            | Operation::Abort(_)
            | Operation::Interrupt(_)
            | Operation::Pause(_)
            | Operation::Resume(_)
            | Operation::Feedback(_)
            | Operation::Undo(_)
            | Operation::Redo(_)
            | Operation::Fork(_)
            | Operation::Share(_)
            | Operation::RevokeGrant(_) => Err(ApiError::internal("a change came where only looking is done")),
        }
    }
}

/// A turn was made.
fn accepted(accepted: &Accepted) -> Result<Performed, ApiError> {
    Performed::of(accepted, Some(accepted.version))
}

impl Operations for App {
    fn version(&self, caller: Caller, session: SessionId) -> BoxFuture<'_, Result<u64, ApiError>> {
        Box::pin(async move { Ok(self.session(&caller, &session).await?.version) })
    }

    fn perform(self: Arc<Self>, task: Task) -> BoxFuture<'static, Result<Performed, ApiError>> {
        Box::pin(async move { self.change(task).await })
    }
}
