//! What has come of messages and bodies that are not whole yet: bounded in sum, for the whole server.
//!
//! Of each, the first [`UNFINISHED_SMALL_BYTES`](limit::UNFINISHED_SMALL_BYTES) always have room, so what is small is never
//! refused; what goes beyond is counted.
//!
//! Invariant: what is counted is at most `max`, and is given back when its [`Share`] is cleared or dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};

/// The bytes of all that is not whole yet.
#[derive(Debug)]
pub(super) struct Intake {
    used: AtomicUsize,
    max: usize,
}

impl Intake {
    /// Room for so many bytes.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// Bytes that are counted now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The refusal of what there is no room for.
    pub(super) fn full(&self, field: &str) -> ApiError {
        let max = self.max;
        let message = format!("the server is taking in as much as it can, {max} bytes; try again a little later");
        let expected = format!("at most {} bytes, as long as that lasts", limit::UNFINISHED_SMALL_BYTES);
        let details = json!({ "field": field, "expected": expected, "limit": "unfinishedBytes", "limitMax": max });
        ApiError::new(ErrorCode::ResourceExhausted, message).with_details(details)
    }
}

/// What one message or body takes of it.
#[derive(Debug)]
pub(super) struct Share {
    intake: Arc<Intake>,
    bytes: usize,
}

/// There is no room.
#[derive(Debug, PartialEq)]
pub(super) struct Full;

impl Share {
    /// A share that is empty.
    pub(super) fn of(intake: &Arc<Intake>) -> Self {
        Self { intake: Arc::clone(intake), bytes: 0 }
    }

    /// Counts bytes that have come.
    ///
    /// # Errors
    /// [`Full`], and nothing is counted.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), Full> {
        let bytes = self.bytes.saturating_add(by);
        let more = counted(bytes) - counted(self.bytes);
        if more > 0 {
            let max = self.intake.max;
            let fits = |used: usize| used.checked_add(more).filter(|all| *all <= max);
            let taken = self.intake.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
            taken.map_err(|_| Full)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Gives all of it back.
    pub(super) fn clear(&mut self) {
        let counted = counted(std::mem::take(&mut self.bytes));
        self.intake.used.fetch_sub(counted, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(limit::UNFINISHED_SMALL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_shares_the_room_and_what_is_small_always_has_some() {
        let small = limit::UNFINISHED_SMALL_BYTES;
        let intake = Intake::new(1_000);
        let (mut one, mut other) = (Share::of(&intake), Share::of(&intake));
        assert_eq!((one.grow(small), intake.used()), (Ok(()), 0));
        assert_eq!((one.grow(600), intake.used()), (Ok(()), 600));
        assert_eq!((other.grow(small + 401), intake.used()), (Err(Full), 600));
        assert_eq!((other.grow(small + 400), intake.used()), (Ok(()), 1_000));
        assert_eq!((other.grow(1), intake.used()), (Err(Full), 1_000));
        let mut third = Share::of(&intake);
        assert_eq!((third.grow(small), third.grow(1)), (Ok(()), Err(Full)));
        drop(one);
        assert_eq!(intake.used(), 400);
        other.clear();
        assert_eq!((intake.used(), third.grow(1_000), intake.used()), (0, Ok(()), 1_000));
    }
}
