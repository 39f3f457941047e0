//! What a store counts of its own work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{EndsKept, OutcomesKept, StoreError, Write};
use crate::base::limit;
use crate::base::metrics::{Counter, Histogram, Kind, Page, QUICK, SIZES};

/// Commits of a store that writes to a disk.
#[derive(Debug)]
pub struct CommitMeter {
    /// How long transactions took, the disk included.
    seconds: Histogram,
    /// Commits that went into one transaction together.
    sizes: Histogram,
    /// Events that were written.
    events: Counter,
    /// Commits that failed.
    failed: Counter,
    /// Commits that are handed in and not done.
    waiting: AtomicUsize,
    /// Outcomes of commands that are remembered.
    pub(super) outcomes: Mutex<OutcomesKept>,
    /// Ends of sessions that are told of.
    pub(super) ends: Mutex<EndsKept>,
}

impl Default for CommitMeter {
    fn default() -> Self {
        let [events, failed] = std::array::from_fn(|_| Counter::default());
        Self {
            seconds: Histogram::new(&QUICK),
            sizes: Histogram::new(&SIZES),
            events,
            failed,
            waiting: AtomicUsize::new(0),
            outcomes: Mutex::default(),
            ends: Mutex::default(),
        }
    }
}

impl CommitMeter {
    /// A commit is handed in; it waits until it is written.
    ///
    /// # Errors
    /// [`StoreError::Io`] when as many wait as may.
    pub(super) fn hand_in(&self) -> Result<(), StoreError> {
        let one_more = |waiting: usize| (waiting < limit::COMMITS_WAITING_MAX).then_some(waiting + 1);
        let taken = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.map(drop).map_err(|waiting| StoreError::Io {
            doing: "hand a commit to the writer".into(),
            cause: format!("{waiting} wait already, for a disk that is slow or does not answer"),
        })
    }

    /// So many wait no longer.
    pub(super) fn take(&self, count: usize) {
        let fewer = |waiting: usize| Some(waiting.saturating_sub(count));
        // Never refused: the closure always has an answer.
        let _ = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }

    /// Commits that are handed in and not done; at most [`limit::COMMITS_WAITING_MAX`].
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Counts a transaction that took so long: for each of its commits the events in it, and whether it was done.
    pub fn wrote(&self, time: Duration, commits: impl Iterator<Item = (u64, bool)>) {
        let mut size = 0;
        for (events, done) in commits {
            size += 1;
            if done {
                self.events.add(events);
            } else {
                self.failed.count();
            }
        }
        self.take(usize::try_from(size).unwrap_or(usize::MAX));
        self.sizes.record(size);
        self.seconds.took(time);
    }

    /// Writes all of it.
    pub fn write(&self, page: &mut Page) {
        page.family("simse_events_appended_total", Kind::Counter, "Events that were written to the logs of sessions.");
        page.sample(&[], self.events.get());
        page.family(
            "simse_store_commit_duration_seconds",
            Kind::Histogram,
            "Time that transactions of the store took.",
        );
        page.histogram(&[], &self.seconds);
        page.family("simse_store_commit_size", Kind::Histogram, "Commits that went into one transaction together.");
        page.histogram(&[], &self.sizes);
        page.family("simse_store_commits_failed_total", Kind::Counter, "Commits of the store that failed.");
        page.sample(&[], self.failed.get());
    }
}

/// Events that a commit appends.
pub(super) fn events_of(writes: &[Write]) -> u64 {
    let events = |write: &Write| match write {
        Write::Append(_, events) => events.len() as u64,
        Write::CreateSession(_)
        | Write::ForkSession { .. }
        | Write::UpdateSession(_)
        | Write::DeleteSession(_)
        | Write::SaveTurn(_)
        | Write::Said(..)
        | Write::SaveGrant(_)
        | Write::DeleteGrant(_)
        | Write::SaveSpending(_)
        | Write::SaveOutcome(_)
        | Write::ForgetOutcome(_) => 0,
    };
    writes.iter().map(events).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_commits_wait_as_may_and_no_more() {
        let meter = CommitMeter::default();
        (0..limit::COMMITS_WAITING_MAX).for_each(|_| meter.hand_in().expect("room"));
        let said = meter.hand_in().expect_err("full").to_string();
        assert!(said.contains("100000 wait already"), "{said}");
        meter.wrote(Duration::ZERO, [(1, true), (0, false)].into_iter());
        assert_eq!(meter.waiting(), limit::COMMITS_WAITING_MAX - 2, "written or failed, they wait no longer");
        meter.hand_in().expect("room again");
    }
}
