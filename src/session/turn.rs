//! The turn state machine: what may follow what, and nothing else.
//!
//! Pure: no clock, no channel, no await. `actor` owns the effects and asks this module what comes next:
//! [`Phase::after`] for one turn, [`Phase::wish`] for its loop, [`place`] for a prompt, [`found`] for what a crash left.
//!
//! Pending together, interrupt goes before pause, and both before a steer; a turn that was paused runs before one that was
//! steered too late, and that one before those in the queue (contract.md, Turn control).

use crate::agent::Wish;
use crate::protocol::{PromptMode, TurnStatus};

/// Where a turn is. Whether it waits for an answer of the client is no phase: its calls do, it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Waits for the turn before it.
    Queued,
    /// Works.
    Running,
    /// Works, and is to hold at its next boundary.
    Pausing,
    /// Holds at a boundary.
    Paused,
    /// Works, and is to end at its next boundary.
    Interrupting,
    /// Was told to stop at once and has not yet.
    Stopping,
    /// Ended by itself.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended by a client, at once.
    Aborted,
    /// Ended by a client, at a boundary.
    Interrupted,
}

/// What can happen to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// Its time has come.
    Start,
    /// One of its calls asks the client.
    Ask,
    /// A client wants it to hold.
    Pause,
    /// A client wants it to go on.
    Resume,
    /// A client wants it to end in order.
    Interrupt,
    /// A client wants it to end at once.
    Abort,
    /// The loop came to its end by itself.
    Complete,
    /// The loop stands at a boundary and has let go.
    Hold,
    /// The loop ended at a boundary because it was told to.
    Halt,
    /// The loop was cut off.
    Stop,
    /// The loop failed.
    Fail,
}

/// A pair that has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    /// Where the turn is.
    pub(super) phase: Phase,
    /// What cannot happen there.
    pub(super) input: Input,
}

impl Phase {
    /// The phase after `input`.
    ///
    /// Controls are idempotent. An aborted turn ends as aborted even where the loop was faster: the client
    /// was told so already, and an error that comes behind it changes nothing. Who interrupts is told when the turn has ended,
    /// so there the faster one wins, and a failure stays a failure. A loop that holds although nobody wants it any more goes on.
    ///
    /// # Errors
    /// [`Refused`] when the pair has no meaning; nothing changes.
    pub(super) fn after(self, input: Input) -> Result<Self, Refused> {
        use Input as I;
        use Phase as P;
        match (self, input) {
            (P::Queued, I::Start) | (P::Running, I::Ask | I::Hold) | (P::Pausing | P::Paused, I::Resume) => {
                Ok(P::Running)
            }
            (P::Pausing, I::Ask | I::Pause) | (P::Running, I::Pause) => Ok(P::Pausing),
            (P::Pausing, I::Hold) | (P::Paused, I::Pause) => Ok(P::Paused),
            (P::Running | P::Pausing | P::Interrupting, I::Interrupt) => Ok(P::Interrupting),
            (P::Interrupting, I::Hold | I::Halt | I::Stop) | (P::Paused, I::Interrupt) => Ok(P::Interrupted),
            (P::Running | P::Pausing | P::Interrupting | P::Stopping, I::Abort) => Ok(P::Stopping),
            (P::Stopping, I::Complete | I::Hold | I::Halt | I::Stop | I::Fail) | (P::Paused, I::Abort) => {
                Ok(P::Aborted)
            }
            (P::Running | P::Pausing | P::Interrupting, I::Complete) => Ok(P::Completed),
            (P::Running | P::Pausing | P::Interrupting, I::Fail) => Ok(P::Failed),
            (
                P::Queued,
                I::Ask
                | I::Pause
                | I::Resume
                | I::Interrupt
                | I::Abort
                | I::Complete
                | I::Hold
                | I::Halt
                | I::Stop
                | I::Fail,
            )
            | (P::Running, I::Start | I::Resume | I::Halt | I::Stop)
            | (P::Pausing, I::Start | I::Halt | I::Stop)
            | (P::Paused, I::Start | I::Ask | I::Complete | I::Hold | I::Halt | I::Stop | I::Fail)
            | (P::Interrupting, I::Start | I::Ask | I::Pause | I::Resume)
            | (P::Stopping, I::Start | I::Ask | I::Pause | I::Resume | I::Interrupt)
            | (
                P::Completed | P::Failed | P::Aborted | P::Interrupted,
                I::Start
                | I::Ask
                | I::Pause
                | I::Resume
                | I::Interrupt
                | I::Abort
                | I::Complete
                | I::Hold
                | I::Halt
                | I::Stop
                | I::Fail,
            ) => Err(Refused { phase: self, input }),
        }
    }

    /// What the loop is to do at its next boundary. One that is to stop at once hears it in another way.
    pub(super) fn wish(self) -> Wish {
        match self {
            Self::Pausing | Self::Paused => Wish::Pause,
            Self::Interrupting => Wish::Interrupt,
            Self::Queued
            | Self::Running
            | Self::Stopping
            | Self::Completed
            | Self::Failed
            | Self::Aborted
            | Self::Interrupted => Wish::GoOn,
        }
    }

    /// What callers are told; `asking`: one of its calls waits for an answer.
    pub(super) fn status(self, asking: bool) -> TurnStatus {
        match self {
            Self::Queued => TurnStatus::Queued,
            Self::Running | Self::Pausing | Self::Interrupting | Self::Stopping if asking => TurnStatus::Waiting,
            Self::Running | Self::Pausing | Self::Interrupting | Self::Stopping => TurnStatus::Running,
            Self::Paused => TurnStatus::Paused,
            Self::Completed => TurnStatus::Completed,
            Self::Failed => TurnStatus::Failed,
            Self::Aborted => TurnStatus::Aborted,
            Self::Interrupted => TurnStatus::Interrupted,
        }
    }
}

/// Where a turn is that an earlier process left with this status; `aborted`: somebody was told that it is. What ran has lost
/// its loop and ends; what waited or was paused still does.
pub(super) fn found(status: TurnStatus, aborted: bool) -> Phase {
    match status {
        TurnStatus::Queued => Phase::Queued,
        TurnStatus::Paused => Phase::Paused,
        TurnStatus::Running | TurnStatus::Waiting if aborted => Phase::Aborted,
        TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Failed => Phase::Failed,
        TurnStatus::Completed => Phase::Completed,
        TurnStatus::Aborted => Phase::Aborted,
        TurnStatus::Interrupted => Phase::Interrupted,
    }
}

/// Where a prompt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It begins at once.
    Begin,
    /// Into the turn that runs, at its next boundary.
    Steer,
    /// Behind those that wait.
    Queue,
    /// Nowhere: it was not to wait, and would have to.
    Busy,
    /// Nowhere: a turn is paused.
    Paused,
}

/// Where a prompt of this mode goes; `turn` is the one that runs or is paused, `waiting` those behind it.
pub(super) fn place(turn: Option<Phase>, waiting: usize, mode: PromptMode) -> Place {
    match (turn, mode) {
        (Some(Phase::Paused), PromptMode::Queue | PromptMode::Steer | PromptMode::Reject) => Place::Paused,
        (Some(_), PromptMode::Reject) => Place::Busy,
        (Some(Phase::Running | Phase::Pausing | Phase::Interrupting), PromptMode::Steer) => Place::Steer,
        (Some(_), PromptMode::Queue | PromptMode::Steer) => Place::Queue,
        (None, PromptMode::Queue | PromptMode::Steer | PromptMode::Reject) if waiting == 0 => Place::Begin,
        (None, PromptMode::Queue | PromptMode::Steer) => Place::Queue,
        (None, PromptMode::Reject) => Place::Busy,
    }
}

#[cfg(test)]
mod explore;

#[cfg(test)]
mod tests {
    use super::Input::*;
    use super::Phase::*;
    use super::*;

    const PHASES: [Phase; 10] =
        [Queued, Running, Pausing, Paused, Interrupting, Stopping, Completed, Failed, Aborted, Interrupted];
    const INPUTS: [Input; 11] = [Start, Ask, Pause, Resume, Interrupt, Abort, Complete, Hold, Halt, Stop, Fail];

    #[test]
    fn every_pair_is_decided() {
        const NO: Option<Phase> = None;
        #[rustfmt::skip]
        let table = [
            //              Start          Ask            Pause          Resume         Interrupt            Abort           Complete         Hold               Halt               Stop               Fail
            (Queued,       [Some(Running), NO,            NO,            NO,            NO,                  NO,             NO,              NO,                NO,                NO,                NO]),
            (Running,      [NO,            Some(Running), Some(Pausing), NO,            Some(Interrupting),  Some(Stopping), Some(Completed), Some(Running),     NO,                NO,                Some(Failed)]),
            (Pausing,      [NO,            Some(Pausing), Some(Pausing), Some(Running), Some(Interrupting),  Some(Stopping), Some(Completed), Some(Paused),      NO,                NO,                Some(Failed)]),
            (Paused,       [NO,            NO,            Some(Paused),  Some(Running), Some(Interrupted),   Some(Aborted),  NO,              NO,                NO,                NO,                NO]),
            (Interrupting, [NO,            NO,            NO,            NO,            Some(Interrupting),  Some(Stopping), Some(Completed), Some(Interrupted), Some(Interrupted), Some(Interrupted), Some(Failed)]),
            (Stopping,     [NO,            NO,            NO,            NO,            NO,                  Some(Stopping), Some(Aborted),   Some(Aborted),     Some(Aborted),     Some(Aborted),     Some(Aborted)]),
            (Completed,    [NO; 11]),
            (Failed,       [NO; 11]),
            (Aborted,      [NO; 11]),
            (Interrupted,  [NO; 11]),
        ];
        assert_eq!(table.map(|(phase, _)| phase), PHASES);
        for (phase, row) in table {
            for (input, want) in INPUTS.into_iter().zip(row) {
                assert_eq!(phase.after(input).ok(), want, "{phase:?} + {input:?}");
            }
        }
    }

    #[test]
    fn the_status_ends_when_the_phase_does() {
        for phase in PHASES {
            let over = INPUTS.iter().all(|input| phase.after(*input).is_err());
            assert_eq!(phase.status(false).is_terminal(), over, "{phase:?}");
            assert_eq!(phase.status(true).is_terminal(), over, "{phase:?}");
        }
    }

    #[test]
    fn what_ran_ends_with_its_process_and_what_is_over_stays_so() {
        for phase in PHASES {
            for aborted in [false, true] {
                let after = found(phase.status(false), aborted);
                let want = match phase {
                    Running | Pausing | Interrupting | Stopping if aborted => Aborted,
                    Running | Pausing | Interrupting | Stopping => Failed,
                    Queued | Paused | Completed | Failed | Aborted | Interrupted => phase,
                };
                assert_eq!(after, want, "{phase:?} {aborted}");
                assert_eq!(found(phase.status(true), aborted), after, "{phase:?} {aborted}, asking");
            }
        }
    }

    #[test]
    fn every_prompt_has_its_place() {
        use PromptMode::{Queue, Reject, Steer};
        #[rustfmt::skip]
        let table = [
            //                     Queue          Steer          Reject
            (None,         0, [Place::Begin,  Place::Begin,  Place::Begin]),
            (None,         1, [Place::Queue,  Place::Queue,  Place::Busy]),
            (Some(Running),      0, [Place::Queue,  Place::Steer,  Place::Busy]),
            (Some(Pausing),      0, [Place::Queue,  Place::Steer,  Place::Busy]),
            (Some(Interrupting), 1, [Place::Queue,  Place::Steer,  Place::Busy]),
            (Some(Stopping),     0, [Place::Queue,  Place::Queue,  Place::Busy]),
            (Some(Paused),       3, [Place::Paused, Place::Paused, Place::Paused]),
        ];
        for (turn, waiting, row) in table {
            for (mode, want) in [Queue, Steer, Reject].into_iter().zip(row) {
                assert_eq!(place(turn, waiting, mode), want, "{turn:?} {waiting} {mode:?}");
            }
        }
    }
}
