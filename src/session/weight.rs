//! What prompts that wait weigh in memory: a sum over all sessions, of which each has its part.
//!
//! Invariant: what a session has counted is out of the sum when its part is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A session's part of the sum.
#[derive(Debug)]
pub(super) struct Weight {
    sum: Arc<AtomicUsize>,
    own: usize,
}

impl Weight {
    /// A part of this sum, with nothing in it.
    pub(super) fn of(sum: &Arc<AtomicUsize>) -> Self {
        Self { sum: Arc::clone(sum), own: 0 }
    }

    /// Adds so many bytes. False: the sum would be above `max`, and nothing is added.
    pub(super) fn add(&mut self, bytes: usize, max: usize) -> bool {
        let fits = |sum: usize| sum.checked_add(bytes).filter(|sum| *sum <= max);
        let added = self.sum.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        self.own += if added { bytes } else { 0 };
        added
    }

    /// Has so many bytes from now on, whatever the sum is then.
    pub(super) fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.own) {
            Some(more) => self.sum.fetch_add(more, Ordering::AcqRel),
            None => self.sum.fetch_sub(self.own - bytes, Ordering::AcqRel),
        };
        self.own = bytes;
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_all_parts() {
        let sum = Arc::default();
        let (mut one, mut other) = (Weight::of(&sum), Weight::of(&sum));
        let now = || sum.load(Ordering::Acquire);
        assert!(one.add(60, 100) && !other.add(41, 100) && other.add(40, 100));
        assert_eq!(now(), 100);
        // What was there before the bound came is counted all the same.
        other.set(90);
        assert!(!one.add(1, 100));
        assert_eq!(now(), 150);
        one.set(10);
        assert_eq!(now(), 100);
        drop(other);
        assert_eq!(now(), 10);
    }
}
