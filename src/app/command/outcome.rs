//! What came of a command, as it is answered, stored and answered again.

use std::collections::{HashMap, VecDeque};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::base::limit;
use crate::protocol::{ApiError, ErrorBody, ErrorCode};
use crate::session::BEGUN_ELSEWHERE;
use crate::store::Fingerprint;

/// What came of a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The answer of one that succeeded, as the route of the same operation gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// Why one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// The session's version behind it, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_version: Option<u64>,
    /// Whether it took too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
}

impl Outcome {
    /// Of one that succeeded.
    pub(super) fn success(data: Box<RawValue>, session_version: Option<u64>) -> Self {
        Self { data: Some(data), error: None, session_version, timed_out: false }
    }

    /// Of one that failed or was refused.
    pub(super) fn failure(error: ApiError) -> Self {
        let timed_out = error.code() == ErrorCode::Timeout;
        Self { data: None, error: Some(error.0), session_version: None, timed_out }
    }

    /// Of one that the end of the process cut off.
    pub(super) fn interrupted() -> Self {
        let message = "interrupted by restart: it is not known whether this was done; look, and give it a new id";
        let details = serde_json::json!({ "reason": "interrupted by restart" });
        Self::failure(ApiError::internal(message).with_details(details))
    }

    /// Whether it may be different the next time, with nothing done: then it is not remembered.
    pub(super) fn is_refusal(&self) -> bool {
        let refused = |error: &ErrorBody| match error.code {
            ErrorCode::ResourceExhausted | ErrorCode::UpstreamUnavailable => true,
            ErrorCode::InvalidArgument
            | ErrorCode::Unauthorized
            | ErrorCode::Forbidden
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::PayloadTooLarge
            | ErrorCode::Internal
            | ErrorCode::Timeout => false,
        };
        self.error.as_ref().is_some_and(|error| refused(error) || is_begun_elsewhere(error))
    }

    /// Whether nothing was done because of what there is now.
    pub(super) fn is_refusal_for_conflict(&self) -> bool {
        self.is_refusal() && self.error.as_ref().is_some_and(|error| error.code == ErrorCode::Conflict)
    }

    /// Whether one that failed is not told, for it could not be stored: it failed because of what another server did with the same command,
    /// as like as not. `shares`: there are others; then only the store knows, and who asks again is told by it.
    pub(super) fn gives_way_to(&self, error: &ErrorBody, shares: bool) -> bool {
        let is_unknown = shares && error.code == ErrorCode::UpstreamUnavailable && !self.is_refusal();
        is_begun_elsewhere(error) || is_unknown
    }

    /// Whether nothing was done because another server of the store is at it.
    pub(super) fn is_begun_elsewhere(&self) -> bool {
        self.error.as_ref().is_some_and(is_begun_elsewhere)
    }
}

/// Whether an error says that another server of the store is at the same command.
pub(super) fn is_begun_elsewhere(error: &ErrorBody) -> bool {
    let reason = error.details.as_ref().and_then(|details| details["reason"].as_str());
    error.code == ErrorCode::Conflict && reason == Some(BEGUN_ELSEWHERE)
}

/// An answer to a read.
#[derive(Debug, Clone)]
pub(super) struct ReadOutcome {
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: Arc<Outcome>,
    at: u64,
    bytes: usize,
}

/// Answers to reads, which change nothing and so need no disk: in memory, the newest ones.
#[derive(Debug, Default)]
pub(super) struct Reads {
    rows: HashMap<String, ReadOutcome>,
    order: VecDeque<(u64, String)>,
    bytes: usize,
}

impl Reads {
    /// How many are remembered, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.rows.len(), self.bytes)
    }

    pub(super) fn find(&self, name: &str, now: u64) -> Option<ReadOutcome> {
        self.rows.get(name).filter(|row| now < row.at + limit::OUTCOME_MS).cloned()
    }

    /// Remembers an answer, unless it is too large for that.
    pub(super) fn save(&mut self, name: &str, (fingerprint, outcome): (Fingerprint, &Arc<Outcome>), now: u64) {
        let bytes = name.len() * 2 + outcome.data.as_ref().map_or(0, |data| data.get().len()) + 200;
        if bytes > limit::READ_OUTCOMES_BYTES_MAX / 8 {
            return;
        }
        let row = ReadOutcome { fingerprint, outcome: Arc::clone(outcome), at: now, bytes };
        self.bytes += bytes;
        if let Some(old) = self.rows.insert(name.to_owned(), row) {
            self.bytes -= old.bytes;
        }
        self.order.push_back((now, name.to_owned()));
        while self.order.len() > limit::READ_OUTCOMES_MAX
            || self.bytes > limit::READ_OUTCOMES_BYTES_MAX
            || self.order.front().is_some_and(|(at, _)| now >= at + limit::OUTCOME_MS)
        {
            let Some((at, name)) = self.order.pop_front() else { return };
            if self.rows.get(&name).is_some_and(|row| row.at == at)
                && let Some(old) = self.rows.remove(&name)
            {
                self.bytes -= old.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::to_raw_value;

    #[test]
    fn what_failed_is_not_told_where_another_server_may_have_done_it() {
        let of = |code: ErrorCode| Outcome::failure(ApiError::new(code, "why"));
        let taken = of(ErrorCode::Conflict);
        let begun = crate::session::store_failure(&crate::store::StoreError::Begun).0;
        let followed = crate::session::store_failure(&crate::store::StoreError::TakenOver).0;
        let full = ApiError::internal("no room").0;
        assert!(taken.gives_way_to(&begun, true) && taken.gives_way_to(&followed, true));
        assert!(!taken.gives_way_to(&followed, false), "nobody else can have done it");
        assert!(!taken.gives_way_to(&full, true), "it is known that nothing was done");
        let busy = of(ErrorCode::ResourceExhausted);
        assert!(!busy.gives_way_to(&followed, true), "it says to ask again by itself");
    }

    #[test]
    fn answers_to_reads_are_bounded_and_end() {
        let mut reads = Reads::default();
        let of = |text: &str| Arc::new(Outcome::success(to_raw_value(text).expect("JSON"), None));
        let large = of(&"x".repeat(1_000_000));
        for n in 0..20 {
            reads.save(&n.to_string(), ([0; 32], &large), 1);
        }
        assert!(reads.find("0", 2).is_none() && reads.find("19", 2).is_some());
        assert!(reads.bytes <= limit::READ_OUTCOMES_BYTES_MAX && reads.rows.len() == 8, "{}", reads.rows.len());
        reads.save("whole", ([0; 32], &of(&"x".repeat(2_000_000))), 2);
        assert!(reads.find("whole", 2).is_none(), "too large");
        assert!(reads.find("19", 1 + limit::OUTCOME_MS).is_none(), "for its time");
        reads.save("new", ([0; 32], &of("y")), 1 + limit::OUTCOME_MS);
        assert_eq!((reads.rows.len(), reads.order.len()), (1, 1));
    }
}
