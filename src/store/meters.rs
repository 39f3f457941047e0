//! What a store counts of its own work.

use std::time::Duration;

use super::Write;
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
}

impl Default for CommitMeter {
    fn default() -> Self {
        let [events, failed] = std::array::from_fn(|_| Counter::default());
        Self { seconds: Histogram::new(&QUICK), sizes: Histogram::new(&SIZES), events, failed }
    }
}

impl CommitMeter {
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
        | Write::SaveGrant(_)
        | Write::DeleteGrant(_)
        | Write::SaveOutcome(_)
        | Write::ForgetOutcome(_) => 0,
    };
    writes.iter().map(events).sum()
}
