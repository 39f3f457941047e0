//! Whether an endpoint could be used when it was last asked: by what came of the requests of turns, without any of its own.
//!
//! Invariant: what is held against an endpoint or a model is forgotten after [`KNOWN_FOR`], so that one that is asked no more
//! because of it is not called dead for ever, and at once when a request succeeds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::ModelError;

/// How long a failure is held against what failed.
const KNOWN_FOR: Duration = Duration::from_secs(5 * 60);

/// What is known of an endpoint. Clones share it, as the models of one endpoint do.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    endpoint: Arc<Mutex<Option<Trouble>>>,
}

/// The same, and what is known of one model of it.
#[derive(Debug, Default)]
pub(super) struct Known {
    reach: Reach,
    model: Mutex<Option<Trouble>>,
}

#[derive(Debug, Clone)]
struct Trouble {
    since: Instant,
    error: ModelError,
}

/// What came of a request, as far as it tells something about where it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was taken.
    Success,
    /// Nobody answered, or the endpoint takes nothing from us.
    NoEndpoint,
    /// The endpoint answers, and not for this model.
    NoModel,
    /// The endpoint answers, and did not like this request.
    Refusal,
    /// It says nothing of either: too much is asked now.
    Nothing,
}

impl Heard {
    /// By the status of an answer, and what was made of it.
    pub(super) fn of_status(status: u16, error: &ModelError) -> Self {
        match (status, error) {
            // The account has no money.
            (401 | 402 | 500.., _) | (429, ModelError::Spent(_)) => Self::NoEndpoint,
            (403 | 404, _) => Self::NoModel,
            (408 | 425 | 429, _) => Self::Nothing,
            _ => Self::Refusal,
        }
    }
}

impl Known {
    pub(super) fn of(reach: Reach) -> Self {
        Self { reach, model: Mutex::default() }
    }

    /// Notes what came of a request.
    pub(super) fn note(&self, heard: Heard, error: Option<&ModelError>) {
        let trouble = error.map(|error| Trouble { since: Instant::now(), error: error.clone() });
        match heard {
            Heard::Success => {
                *self.reach.endpoint.lock() = None;
                *self.model.lock() = None;
            }
            Heard::NoEndpoint => *self.reach.endpoint.lock() = trouble,
            Heard::NoModel => {
                *self.reach.endpoint.lock() = None;
                *self.model.lock() = trouble;
            }
            Heard::Refusal => *self.reach.endpoint.lock() = None,
            Heard::Nothing => {}
        }
    }

    /// Why it cannot be used, by what is known.
    ///
    /// # Errors
    /// What came of the last request that says so.
    pub(super) fn usable(&self) -> Result<(), ModelError> {
        let endpoint = self.reach.endpoint.lock().clone();
        let trouble = endpoint.or_else(|| self.model.lock().clone());
        let Some(Trouble { since, error }) = trouble.filter(|trouble| trouble.since.elapsed() < KNOWN_FOR) else {
            return Ok(());
        };
        let words = format!("{error} (when it was last asked, {} s ago)", since.elapsed().as_secs());
        Err(match error {
            ModelError::Unauthorized(_) => ModelError::Unauthorized(words),
            _ => ModelError::Unavailable(words),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> ModelError {
        ModelError::Transient { message: "cut".into(), retry_after: None }
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_known_until_it_works_or_some_time_has_passed() {
        let reach = Reach::default();
        let (one, other) = (Known::of(reach.clone()), Known::of(reach));
        let usable = || (one.usable().is_ok(), other.usable().is_ok());
        #[rustfmt::skip]
        let table = [
            (Heard::Nothing, (true, true)), (Heard::NoEndpoint, (false, false)), (Heard::Nothing, (false, false)), (Heard::Refusal, (true, true)),
            (Heard::NoModel, (false, true)), (Heard::Refusal, (false, true)), (Heard::NoEndpoint, (false, false)), (Heard::NoModel, (false, true)),
            (Heard::Success, (true, true)), (Heard::NoModel, (false, true)),
        ];
        for (step, (heard, want)) in table.into_iter().enumerate() {
            one.note(heard, (heard != Heard::Success).then(failed).as_ref());
            assert_eq!(usable(), want, "step {step}");
        }
        other.note(Heard::NoEndpoint, Some(&ModelError::Unauthorized("no key".into())));
        tokio::time::advance(Duration::from_secs(7)).await;
        let words = "no key (when it was last asked, 7 s ago)".to_owned();
        assert_eq!(one.usable(), Err(ModelError::Unauthorized(words)));
        tokio::time::advance(KNOWN_FOR).await;
        assert_eq!(usable(), (true, true));
    }

    #[test]
    fn a_status_tells_of_the_endpoint_of_the_model_or_of_neither() {
        let refused = ModelError::Refused("x".into());
        #[rustfmt::skip]
        let table = [
            (401, Heard::NoEndpoint), (500, Heard::NoEndpoint), (503, Heard::NoEndpoint), (403, Heard::NoModel), (404, Heard::NoModel),
            (400, Heard::Refusal), (413, Heard::Refusal), (302, Heard::Refusal), (408, Heard::Nothing), (425, Heard::Nothing),
        ];
        for (status, want) in table {
            assert_eq!(Heard::of_status(status, &refused), want, "{status}");
        }
        assert_eq!(Heard::of_status(429, &ModelError::Spent("x".into())), Heard::NoEndpoint, "no money");
        assert_eq!(Heard::of_status(429, &failed()), Heard::Nothing);
    }
}
