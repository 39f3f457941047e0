//! What hooks say of a turn from outside its rounds: that it is not done, and how it is to be summed up.
//!
//! Invariants: a turn that hooks make go on does so a bounded number of times, and never past its limit of rounds; what the model is
//! told then is in the log (`turn.continued`), so that who reads it has the same conversation; who ends a turn from outside
//! is not held up by hooks; a summary without which the turn cannot go on is not held back.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::call::finish_soon;
use super::compact::Compacted;
use super::fault::Fault;
use super::turn::{Ended, Turn};
use super::{SinkError, Wish};
use crate::base::{limit, text};
use crate::hook::{BeforeCompaction, CompactionSaid, Point, StopKind, TurnStopping, bounded};
use crate::protocol::{CompactionTrigger, EventBody, Message, NoticeLevel, Part};

impl Turn {
    /// Tells hooks how the turn ends. True: it completes, and they make it go on.
    pub(super) async fn goes_on(&mut self, ended: &Ended, cancel: &CancellationToken) -> Result<bool, SinkError> {
        let (kind, error) = match ended {
            Ended::Completed => (StopKind::Completed, None),
            Ended::IterationLimit => (StopKind::IterationLimit, None),
            Ended::Failed(error) => (StopKind::Failed, Some(error.message.clone())),
            // Somebody outside wants it so.
            Ended::Aborted | Ended::Interrupted | Ended::OverBudget(_) | Ended::Paused => return Ok(false),
        };
        let hooks = &self.input.environment.hooks;
        if !hooks.attends(Point::TurnStop) || self.input.steering.wish() == Wish::Interrupt {
            return Ok(false);
        }
        let stopping = TurnStopping {
            whose: self.input.environment.clients.whose(),
            ended: kind,
            text: self.final_text.clone(),
            rounds: self.rounds,
            continued: self.continued,
            error,
        };
        let said = finish_soon(cancel, AssertUnwindSafe(hooks.turn_stop(stopping)).catch_unwind()).await;
        let texts = bounded(said.and_then(Result::ok).unwrap_or_default());
        if texts.is_empty() || kind != StopKind::Completed || cancel.is_cancelled() {
            return Ok(false);
        }
        if self.continued >= limit::HOOK_CONTINUES_MAX || self.rounds >= self.input.iterations_max {
            let times = self.continued;
            let told = format!("a hook wants the turn to go on; it has done so {times} times, and ends now");
            // A notice that is too long is none; this one is not.
            drop(self.input.environment.clients.for_turn().notify(NoticeLevel::Warning, told));
            return Ok(false);
        }
        self.continued += 1;
        // What was the answer is none any more.
        self.output = None;
        self.input.sink.emit(EventBody::TurnContinued { texts: texts.clone() })?;
        self.input.messages.push(Message::User(texts.into_iter().map(|text| Part::Text { text }).collect()));
        Ok(true)
    }

    /// What a summary is to look at, as hooks want it. Err: they hold it back, or the turn was told to end.
    pub(super) async fn hooked_focus(
        &mut self,
        (trigger, focus): (CompactionTrigger, Option<&str>),
        cancel: &CancellationToken,
    ) -> Result<Option<String>, Compacted> {
        let focus = focus.map(str::to_owned);
        let environment = &self.input.environment;
        if !environment.hooks.attends(Point::CompactBefore) {
            return Ok(focus);
        }
        let before = BeforeCompaction {
            whose: environment.clients.whose(),
            trigger,
            focus: focus.clone(),
            message_count: self.input.messages.len() as u64,
            estimated_chars: self.input.messages.chars(),
        };
        let said = finish_soon(cancel, AssertUnwindSafe(environment.hooks.compact_before(before)).catch_unwind()).await;
        if cancel.is_cancelled() {
            return Err(Compacted::Stopped(Ended::Aborted));
        }
        match said.and_then(Result::ok) {
            None | Some(CompactionSaid::Continue { focus: None }) => Ok(focus),
            Some(CompactionSaid::Continue { focus: Some(other) }) => {
                let end = other.char_indices().nth(limit::COMPACT_FOCUS_CHARS_MAX).map_or(other.len(), |(at, _)| at);
                Ok(Some(other[..end].trim().to_owned()).filter(|focus| !focus.is_empty()))
            }
            Some(CompactionSaid::Blocked { reason }) if trigger == CompactionTrigger::Overflow => {
                tracing::warn!(reason, "a hook would hold a summary back without which the turn cannot go on");
                Ok(focus)
            }
            Some(CompactionSaid::Blocked { reason }) => {
                let reason = text::head(&reason, limit::HOOK_TEXTS_BYTES_MAX);
                Err(Compacted::Failed(Fault::NotCompacted.told(format!("a hook holds it back: {reason}"))))
            }
        }
    }
}
