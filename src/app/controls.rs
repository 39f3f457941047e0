//! Abort, interrupt, pause and resume, as the doors see them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{App, Caller, bodies};
use crate::protocol::{ApiError, Control, SessionId, TurnId, TurnStatus};
use crate::session::Controlled;

/// Why an abort happened, when the client does not say.
const ABORT_REASON: &str = "aborted by the client";
/// Why an interrupt happened, when the client does not say.
const INTERRUPT_REASON: &str = "interrupted by the client";

/// Answer to an abort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aborted {
    /// Always true.
    pub aborted: bool,
    /// The turn that was aborted.
    pub turn_id: TurnId,
}

/// Answer to an interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interrupted {
    /// Always true.
    pub interrupted: bool,
    /// The turn that was interrupted.
    pub turn_id: TurnId,
}

/// Answer to a pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// Whether the turn holds. False: it has not come to a boundary yet, and holds at the next one (`turn.paused` says when).
    pub paused: bool,
    /// The turn.
    pub turn_id: TurnId,
    /// Where it is.
    pub status: TurnStatus,
}

/// Answer to a resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    /// Always true.
    pub resumed: bool,
    /// The turn that goes on.
    pub turn_id: TurnId,
}

impl App {
    /// Aborts the turn that runs or is paused, at once: stream, tools, questions.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing runs.
    pub async fn abort(&self, caller: &Caller, id: &SessionId, body: Control) -> Result<Aborted, ApiError> {
        let command = bodies::check_control(body, ABORT_REASON)?;
        let turn_id = self.live(caller, id).await?.abort(command).await?.turn_id;
        Ok(Aborted { aborted: true, turn_id })
    }

    /// Ends the turn at its next boundary, and waits for that; one that reaches none in time is cut off. The session stays
    /// usable.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing runs, or the turn was faster.
    pub async fn interrupt(&self, caller: &Caller, id: &SessionId, body: Control) -> Result<Interrupted, ApiError> {
        let command = bodies::check_control(body, INTERRUPT_REASON)?;
        let turn_id = self.live(caller, id).await?.interrupt(command).await?.turn_id;
        Ok(Interrupted { interrupted: true, turn_id })
    }

    /// Lets the turn hold at its next boundary, and waits a while for that.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing runs, or the turn was faster, or it is resumed meanwhile.
    pub async fn pause(&self, caller: &Caller, id: &SessionId, body: Control) -> Result<Paused, ApiError> {
        let command = bodies::check_control(body, "")?;
        let patience = Duration::from_millis(self.settings().limits.interrupt_grace_ms);
        let Controlled { turn_id, status } = self.live(caller, id).await?.pause(command, patience).await?;
        Ok(Paused { paused: status == TurnStatus::Paused, turn_id, status })
    }

    /// Lets the paused turn go on; one that was to pause and has not yet does not.
    ///
    /// # Errors
    /// `NOT_FOUND`; `CONFLICT` when nothing is paused.
    pub async fn resume(&self, caller: &Caller, id: &SessionId, body: Control) -> Result<Resumed, ApiError> {
        let command = bodies::check_control(body, "")?;
        let turn_id = self.live(caller, id).await?.resume(command).await?.turn_id;
        Ok(Resumed { resumed: true, turn_id })
    }
}
