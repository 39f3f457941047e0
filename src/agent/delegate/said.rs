//! What the user says while an agent works, in the terms of the log: behind what the agent has said until it took it.

use super::super::turn::steered;
use super::super::wants::say;
use super::super::{SinkError, Steering};
use super::{Round, Scene};
use crate::protocol::{Part, RoundKind};

impl Scene {
    /// Tells the agent what waits to be said to it.
    pub(super) async fn tell(&mut self, steering: &dyn Steering) -> Result<(), SinkError> {
        let Some(steer) = &self.steer else { return Ok(()) };
        let said = steering.take().await?.concat();
        if !said.is_empty() {
            self.telling = true;
            self.jobs.push(say(steer, said, self.jobs_cancel.clone()));
        }
        Ok(())
    }

    /// The agent has taken what the user said: what it says and does from now on comes behind it.
    pub(super) fn steered(&mut self, parts: Vec<Part>) -> Result<(), SinkError> {
        self.hush()?;
        if let Some(event) = steered(self.environment.session.as_ref(), &parts) {
            if !self.fresh {
                self.complete(RoundKind::ToolUse, None)?;
            }
            self.emit(event)?;
        }
        match self.rounds.last_mut().filter(|_| self.fresh) {
            Some(round) => round.before.push(parts),
            None => self.rounds.push(Round { before: vec![parts], ..Round::default() }),
        }
        self.fresh = true;
        Ok(())
    }
}
