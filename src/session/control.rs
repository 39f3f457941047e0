//! What a client can do to a turn that runs or is paused, and what it is told.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::turn::{Input, Phase};
use crate::protocol::{ApiError, ControlKind, SessionId, TurnId, TurnRecord, TurnStatus};

/// The controls. None of them waits behind the turn that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// End at once.
    Abort,
    /// End at the next boundary.
    Interrupt,
    /// Hold at the next boundary.
    Pause,
    /// Go on.
    Resume,
}

impl Kind {
    /// What the log calls it.
    pub(super) fn told(self) -> ControlKind {
        match self {
            Self::Abort => ControlKind::Abort,
            Self::Interrupt => ControlKind::Interrupt,
            Self::Pause => ControlKind::Pause,
            Self::Resume => ControlKind::Resume,
        }
    }

    /// What it is to the turn.
    pub(super) fn input(self) -> Input {
        match self {
            Self::Abort => Input::Abort,
            Self::Interrupt => Input::Interrupt,
            Self::Pause => Input::Pause,
            Self::Resume => Input::Resume,
        }
    }
}

/// A control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The turn that is meant. None: the one that runs or is paused.
    pub turn: Option<TurnId>,
    /// Why.
    pub reason: String,
    /// Refuse unless the session has this version.
    pub if_version: Option<u64>,
}

/// What became of a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Controlled {
    /// The turn that it was for.
    pub turn_id: TurnId,
    /// Where that is now.
    pub status: TurnStatus,
}

/// Who waits for the end of a control.
pub(super) type Told = oneshot::Sender<Result<Controlled, ApiError>>;

/// Those who wait for what becomes of a turn.
#[derive(Debug, Default)]
pub(super) struct Waiting(Vec<(Kind, Told)>);

impl Waiting {
    /// Adds one.
    pub(super) fn add(&mut self, kind: Kind, told: Told) {
        self.0.retain(|(_, told)| !told.is_closed());
        self.0.push((kind, told));
    }

    /// The turn holds.
    pub(super) fn held(&mut self, turn: &TurnId) {
        for (_, told) in self.0.drain(..) {
            let _ = told.send(Ok(Controlled { turn_id: turn.clone(), status: TurnStatus::Paused }));
        }
    }

    /// The turn goes on: who wanted it to hold was too slow.
    pub(super) fn resumed(&mut self, turn: &TurnId) {
        let waiting = std::mem::take(&mut self.0);
        for (kind, told) in waiting {
            match kind {
                Kind::Pause => {
                    let error = ApiError::conflict(format!("turn {turn} was resumed before it paused"));
                    let _ = told.send(Err(error.with_details(facts("resumed", turn, TurnStatus::Running))));
                }
                Kind::Abort | Kind::Interrupt | Kind::Resume => self.0.push((kind, told)),
            }
        }
    }

    /// The turn is to end: it will hold no more.
    pub(super) fn ending(&mut self, turn: &TurnId, phase: Phase) {
        let waiting = std::mem::take(&mut self.0);
        for (kind, told) in waiting {
            match kind {
                Kind::Pause => drop(told.send(Err(out_of_place(kind, turn, phase)))),
                Kind::Abort | Kind::Interrupt | Kind::Resume => self.0.push((kind, told)),
            }
        }
    }

    /// The turn is over.
    pub(super) fn over(&mut self, record: &TurnRecord) {
        for (kind, told) in self.0.drain(..) {
            let won = kind == Kind::Interrupt && record.status == TurnStatus::Interrupted;
            let controlled = Controlled { turn_id: record.turn_id.clone(), status: record.status };
            let _ = told.send(if won { Ok(controlled) } else { Err(too_late(&record.turn_id, record.status)) });
        }
    }
}

/// The refusal of a control for a turn that is over.
pub(super) fn too_late(turn: &TurnId, status: TurnStatus) -> ApiError {
    let word = match status {
        TurnStatus::Completed => "completed",
        TurnStatus::Failed => "failed",
        TurnStatus::Aborted => "aborted",
        TurnStatus::Interrupted => "interrupted",
        TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => {
            let error = ApiError::conflict(format!("turn {turn} does not run yet"));
            return error.with_details(facts("not_running_yet", turn, status));
        }
    };
    ApiError::conflict(format!("turn already {word}")).with_details(facts("turn_over", turn, status))
}

/// The refusal of a control that means nothing where the turn is.
pub(super) fn out_of_place(kind: Kind, turn: &TurnId, phase: Phase) -> ApiError {
    let status = phase.status(false);
    let (why, message) = match (kind, phase) {
        (_, Phase::Stopping) => ("being_aborted", format!("turn {turn} is being aborted")),
        (_, Phase::Interrupting) => ("being_interrupted", format!("turn {turn} is being interrupted")),
        (Kind::Resume, _) => ("not_paused", format!("turn {turn} is not paused")),
        (Kind::Abort | Kind::Interrupt | Kind::Pause, _) => return too_late(turn, status),
    };
    ApiError::conflict(message).with_details(facts(why, turn, status))
}

/// The refusal of a control in a session where nothing runs and nothing ran.
pub(super) fn nothing_runs(kind: Kind, session: &SessionId) -> ApiError {
    let (why, what) = match kind {
        Kind::Abort | Kind::Interrupt | Kind::Pause => ("nothing_runs", "runs"),
        Kind::Resume => ("nothing_is_paused", "is paused"),
    };
    ApiError::conflict(format!("nothing {what} in session {session}")).with_details(json!({ "why": why }))
}

/// `why` is stable and made for programs (docs/errors.md).
fn facts(why: &str, turn: &TurnId, status: TurnStatus) -> Value {
    json!({ "why": why, "turnId": turn, "status": status })
}
