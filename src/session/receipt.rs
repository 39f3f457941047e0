//! What a command leaves behind in the very commit that carries its effect: so that both are there, or neither.
//!
//! Whoever makes the commit takes the rows at the last moment; from then on the command happens. Whoever has
//! waited too long for it can call it back before that, and then it never happens.
//!
//! Invariant: of [`Receipt::take`] and [`Receipt::revoke`] only the first succeeds.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::protocol::{ApiError, ErrorCode};
use crate::store::Write;

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const REVOKED: u8 = 2;

/// Makes the rows of an answer and of the session's version behind it, where there is one to tell.
type Rows = Box<dyn Fn(Box<RawValue>, Option<u64>) -> Vec<Write> + Send + Sync>;

/// A command's receipt.
pub struct Receipt {
    state: AtomicU8,
    rows: Rows,
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipt").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Receipt {
    /// A receipt whose rows are made by `rows`.
    pub fn new(rows: impl Fn(Box<RawValue>, Option<u64>) -> Vec<Write> + Send + Sync + 'static) -> Self {
        Self { state: AtomicU8::new(OPEN), rows: Box::new(rows) }
    }

    /// The rows that go into the commit, for the answer that will be given once it is durable.
    ///
    /// # Errors
    /// `TIMEOUT` when it was called back: then nothing must be changed.
    pub fn take<T: Serialize>(&self, answer: &T, version: impl Into<Option<u64>>) -> Result<Vec<Write>, ApiError> {
        let raw = to_raw_value(answer).map_err(|cause| ApiError::internal(cause.to_string()))?;
        match self.state.compare_exchange(OPEN, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok((self.rows)(raw, version.into())),
            Err(_) => Err(ApiError::new(ErrorCode::Timeout, "the command was called back before it began to change")),
        }
    }

    /// Calls the command back. False: it is happening already.
    pub fn revoke(&self) -> bool {
        self.state.compare_exchange(OPEN, REVOKED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_taking_and_revoking_only_the_first_succeeds() {
        let taken = Receipt::new(|_, _| Vec::new());
        assert!(taken.take(&1, 1_u64).is_ok() && !taken.revoke() && taken.take(&1, None::<u64>).is_err());
        let revoked = Receipt::new(|_, _| Vec::new());
        assert!(revoked.revoke() && !revoked.revoke());
        assert_eq!(revoked.take(&1, 1_u64).err().map(|error| error.code()), Some(ErrorCode::Timeout));
    }
}
