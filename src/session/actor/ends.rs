//! How a turn ended, as its row says it.

use super::Running;
use crate::agent::Ended;
use crate::base::clock;
use crate::model::StopReason;
use crate::protocol::{ErrorBody, ErrorCode, TurnStatus, TurnStop};
use crate::session::turn::{Input, Phase};

/// Why a turn ended for which no call of a client was left.
const NOTHING_TO_DO: &str = "No call of a client is left for this turn. A session that runs such calls has no model of its own: give it one to prompt it.";

impl Running {
    /// Puts the end of its loop into its row.
    pub(super) fn close(&mut self, ended: &Ended, (text, stop): (String, Option<StopReason>), rounds_max: u32) {
        let (input, error) = match ended {
            Ended::Failed(error) if self.carries && is_blank(error) => {
                // Its calls were taken back, or went with the process that they came to.
                self.phase = self.phase.after(Input::Abort).unwrap_or(self.phase);
                self.reason.get_or_insert_with(|| NOTHING_TO_DO.to_owned());
                (Input::Stop, None)
            }
            Ended::Completed => (Input::Complete, None),
            Ended::Aborted => (Input::Stop, None),
            Ended::Interrupted => (Input::Halt, None),
            Ended::Paused => (Input::Hold, None),
            Ended::IterationLimit => (Input::Fail, Some(iteration_limit(rounds_max))),
            Ended::OverBudget(error) | Ended::Failed(error) => (Input::Fail, Some(error.clone())),
        };
        self.phase = self.phase.after(input).unwrap_or(Phase::Failed);
        if let (Phase::Aborted, Some(error)) = (self.phase, &error) {
            let (turn, cause) = (&self.row.record.turn_id, &error.message);
            tracing::warn!(%turn, cause, "a turn that was aborted failed before it had stopped");
        }
        self.note_end(error);
        let record = &mut self.row.record;
        match (self.phase, ended, stop) {
            (Phase::Completed, _, stop) => {
                record.result = Some(text);
                record.stop_reason = Some(cut_off(stop).unwrap_or(TurnStop::EndTurn));
            }
            (Phase::Failed, Ended::IterationLimit, _) => record.stop_reason = Some(TurnStop::MaxIterations),
            (Phase::Failed, Ended::OverBudget(_), _) => record.stop_reason = Some(TurnStop::Budget),
            (Phase::Failed, Ended::Failed(error), _) if is_loop(error) => record.stop_reason = Some(TurnStop::Loop),
            // It said nothing, and why.
            (Phase::Failed, Ended::Failed(error), stop) if is_blank(error) => {
                record.stop_reason = Some(cut_off(stop).unwrap_or(TurnStop::Error));
            }
            _ => {}
        }
    }

    /// Puts its end into its row, as its phase says.
    pub(super) fn note_end(&mut self, error: Option<ErrorBody>) {
        let record = &mut self.row.record;
        record.ended_at = Some(clock::now_ms());
        record.status = self.phase.status(false);
        (record.result, record.output, record.error, record.reason) = (None, None, None, None);
        match self.phase {
            Phase::Completed => record.stop_reason = Some(TurnStop::EndTurn),
            Phase::Aborted => {
                record.reason.clone_from(&self.reason);
                record.stop_reason = Some(TurnStop::Aborted);
            }
            Phase::Interrupted => {
                record.reason.clone_from(&self.reason);
                record.stop_reason = Some(TurnStop::Interrupted);
            }
            Phase::Failed
            | Phase::Queued
            | Phase::Running
            | Phase::Pausing
            | Phase::Paused
            | Phase::Interrupting
            | Phase::Stopping => {
                let message = "the turn ended in a way that its state does not know".to_owned();
                record.status = TurnStatus::Failed;
                record.error = Some(error.unwrap_or(ErrorBody { code: ErrorCode::Internal, message, details: None }));
                record.stop_reason = Some(TurnStop::Error);
            }
        }
    }
}

/// Why a model stopped that was not done.
fn cut_off(stop: Option<StopReason>) -> Option<TurnStop> {
    match stop? {
        StopReason::Length => Some(TurnStop::MaxTokens),
        StopReason::ContentFilter => Some(TurnStop::ContentFilter),
        StopReason::Refusal => Some(TurnStop::Refusal),
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Paused => None,
    }
}

/// Whether this is the error of a model that cannot be brought out of its circles.
fn is_loop(error: &ErrorBody) -> bool {
    error.details.as_ref().is_some_and(|details| details["kind"] == "loop")
}

/// Whether this is the error of a model that said nothing.
fn is_blank(error: &ErrorBody) -> bool {
    error.details.as_ref().is_some_and(|details| details["kind"] == "blank")
}

fn iteration_limit(rounds_max: u32) -> ErrorBody {
    let message = format!("the turn reached its limit of {rounds_max} rounds with the model");
    let details = Some(serde_json::json!({ "limit": "max_iterations", "value": rounds_max }));
    ErrorBody { code: ErrorCode::ResourceExhausted, message, details }
}
