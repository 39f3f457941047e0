//! The turn state machine: what may follow what, and nothing else.
//!
//! Pure: no clock, no channel, no await. `actor` owns the effects and asks this module what comes next.

use crate::protocol::TurnStatus;

/// Where a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the turn before it.
    Queued,
    /// Works.
    Running,
    /// Waits for an answer of the client.
    Waiting,
    /// Was told to stop and has not yet.
    Stopping,
    /// Ended by itself.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended by a client.
    Aborted,
}

/// What can happen to a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Its time has come.
    Start,
    /// One of its calls asks the client.
    Ask,
    /// No question of it is open any more.
    Answered,
    /// A client wants it to end.
    Abort,
    /// The loop came to its end by itself.
    Complete,
    /// The loop stopped because it was told to.
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
    /// Abort is idempotent. An aborted turn ends as aborted even where the loop was faster: the client
    /// was told so already. A failure stays a failure.
    ///
    /// # Errors
    /// [`Refused`] when the pair has no meaning; nothing changes.
    pub(super) fn after(self, input: Input) -> Result<Self, Refused> {
        use Input as I;
        use Phase as P;
        match (self, input) {
            (P::Queued, I::Start) => Ok(P::Running),
            (P::Running | P::Waiting, I::Ask) => Ok(P::Waiting),
            (P::Waiting, I::Answered) => Ok(P::Running),
            (P::Stopping, I::Answered | I::Abort) | (P::Running | P::Waiting, I::Abort) => Ok(P::Stopping),
            (P::Running, I::Complete) => Ok(P::Completed),
            (P::Stopping, I::Complete | I::Stop) => Ok(P::Aborted),
            (P::Running | P::Waiting | P::Stopping, I::Fail) => Ok(P::Failed),
            (P::Queued, I::Ask | I::Answered | I::Abort | I::Complete | I::Stop | I::Fail)
            | (P::Running, I::Start | I::Answered | I::Stop)
            | (P::Waiting, I::Start | I::Complete | I::Stop)
            | (P::Stopping, I::Start | I::Ask)
            | (
                P::Completed | P::Failed | P::Aborted,
                I::Start | I::Ask | I::Answered | I::Abort | I::Complete | I::Stop | I::Fail,
            ) => Err(Refused { phase: self, input }),
        }
    }

    /// What callers are told.
    pub(super) fn status(self) -> TurnStatus {
        match self {
            Self::Queued => TurnStatus::Queued,
            Self::Running | Self::Stopping => TurnStatus::Running,
            Self::Waiting => TurnStatus::Waiting,
            Self::Completed => TurnStatus::Completed,
            Self::Failed => TurnStatus::Failed,
            Self::Aborted => TurnStatus::Aborted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Input::*;
    use super::Phase::*;

    #[test]
    fn every_pair_is_decided() {
        #[rustfmt::skip]
        let table = [
            //           Start          Ask            Answered        Abort           Complete         Stop           Fail
            (Queued,    [Some(Running), None,          None,           None,           None,            None,          None]),
            (Running,   [None,          Some(Waiting), None,           Some(Stopping), Some(Completed), None,          Some(Failed)]),
            (Waiting,   [None,          Some(Waiting), Some(Running),  Some(Stopping), None,            None,          Some(Failed)]),
            (Stopping,  [None,          None,          Some(Stopping), Some(Stopping), Some(Aborted),   Some(Aborted), Some(Failed)]),
            (Completed, [None,          None,          None,           None,           None,            None,          None]),
            (Failed,    [None,          None,          None,           None,           None,            None,          None]),
            (Aborted,   [None,          None,          None,           None,           None,            None,          None]),
        ];
        for (phase, row) in table {
            for (input, want) in [Start, Ask, Answered, Abort, Complete, Stop, Fail].into_iter().zip(row) {
                assert_eq!(phase.after(input).ok(), want, "{phase:?} + {input:?}");
            }
        }
    }

    #[test]
    fn the_status_ends_when_the_phase_does() {
        for phase in [Queued, Running, Waiting, Stopping, Completed, Failed, Aborted] {
            let over = [Start, Ask, Answered, Abort, Complete, Stop, Fail].iter().all(|i| phase.after(*i).is_err());
            assert_eq!(phase.status().is_terminal(), over, "{phase:?}");
        }
    }
}
