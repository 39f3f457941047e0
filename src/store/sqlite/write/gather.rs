//! When the writer gathers what turns have said: when it has become much, at rest, at the beginning and at the end.

use std::time::{Duration, Instant};

use super::Writer;

/// Pause after gathering that failed: a full disk is no reason to try all the time.
const PAUSE: Duration = Duration::from_secs(5);

impl Writer {
    pub(super) fn gathers_now(&self) -> bool {
        self.gather_at.is_some_and(|at| at <= Instant::now())
    }

    /// From now on, unless it goes on already or waits after a failure.
    pub(super) fn begin_to_gather(&mut self) {
        self.gather_at.get_or_insert_with(Instant::now);
    }

    /// Nothing was written for a while. Whether nothing is left to be done.
    pub(super) fn rest(&mut self) -> bool {
        if self.fresh.is_empty() {
            self.wal.rest();
        } else {
            self.begin_to_gather();
        }
        self.sweep_at.is_none() && self.gather_at.is_none()
    }

    /// One slice, so that commits go on in between; more when they bring more than that.
    pub(super) fn gather_some(&mut self) {
        self.fresh.begin();
        loop {
            if let Err(error) = self.fresh.slice(&self.connection) {
                tracing::warn!(%error, path = %self.path.display(), "what turns have said could not be gathered yet");
                self.gather_at = Some(Instant::now() + PAUSE);
                return;
            }
            if !self.fresh.is_gathering() {
                self.gather_at = None;
                return;
            }
            if !self.fresh.is_much() {
                return;
            }
        }
    }

    /// At the end: what cannot be gathered is, at the next beginning.
    pub(super) fn gather_all(&mut self) {
        self.gather_at = None;
        while !self.fresh.is_empty() && self.gather_at.is_none() {
            self.gather_some();
        }
    }
}
