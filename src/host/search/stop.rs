//! Ends a search early: an abort within microseconds for the caller, a time limit with what was found so far.
//!
//! The workers look at one atomic number; the clock and the cancellation are watched from the async side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::host::fs_common::blocking;
use crate::tool::ToolError;

/// Why a search ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::host) enum Stopped {
    /// Nobody waits for the result.
    Aborted,
    /// Its time was over: what was found counts.
    Late,
}

/// The sign to stop, shared by all workers of a search.
#[derive(Debug, Default)]
pub(in crate::host) struct Stop(AtomicU8);

impl Stop {
    const LATE: u8 = 1;
    const ABORTED: u8 = 2;

    /// Whether to go on, or why not.
    pub(in crate::host) fn check(&self) -> Result<(), Stopped> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            Self::LATE => Err(Stopped::Late),
            _ => Err(Stopped::Aborted),
        }
    }

    /// Ends the search. An abort outranks a time limit.
    pub(in crate::host) fn stop(&self, why: Stopped) {
        let number = match why {
            Stopped::Late => Self::LATE,
            Stopped::Aborted => Self::ABORTED,
        };
        self.0.fetch_max(number, Ordering::Relaxed);
    }
}

/// Aborts the search when the future that waits for it is dropped.
struct Guard(Arc<Stop>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stop(Stopped::Aborted);
    }
}

/// Runs a search where it may block, for at most `time`.
///
/// An abort answers at once, while the search ends by itself; after `time` the search says what it has. A `time` of zero is
/// over before the search begins.
///
/// # Errors
/// [`ToolError::Aborted`], and what `work` fails with.
pub(in crate::host) async fn searching<T: Send + 'static>(
    cancel: &CancellationToken,
    time: Duration,
    work: impl FnOnce(&Arc<Stop>) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    if cancel.is_cancelled() {
        return Err(ToolError::Aborted);
    }
    let guard = Guard(Arc::default());
    if time.is_zero() {
        // The clock's first tick would come after a short search has ended.
        guard.0.stop(Stopped::Late);
    }
    let stop = Arc::clone(&guard.0);
    let mut work = std::pin::pin!(blocking(move || work(&stop)));
    tokio::select! {
        biased;
        result = &mut work => return result,
        () = cancel.cancelled() => return Err(ToolError::Aborted),
        () = tokio::time::sleep(time) => guard.0.stop(Stopped::Late),
    }
    tokio::select! {
        result = &mut work => result,
        () = cancel.cancelled() => Err(ToolError::Aborted),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Works until it is told to stop.
    fn until_stopped(stop: &Stop) -> Stopped {
        loop {
            if let Err(why) = stop.check() {
                return why;
            }
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn time_ends_a_search_with_a_result() {
        let never = CancellationToken::new();
        let found = searching(&never, Duration::from_millis(1), |stop| Ok(until_stopped(stop))).await;
        assert_eq!(found, Ok(Stopped::Late));
    }

    #[tokio::test]
    async fn an_abort_answers_before_the_work_ends() {
        let cancel = CancellationToken::new();
        let (begun, begins) = mpsc::channel();
        let (go_on, may_end) = mpsc::channel::<()>();
        let (ended, ends) = mpsc::channel();
        let work = move |stop: &Arc<Stop>| {
            let _ = begun.send(());
            let _ = may_end.recv();
            let _ = ended.send(until_stopped(stop));
            Ok(())
        };
        let aborting = cancel.clone();
        let aborter = std::thread::spawn(move || begins.recv().map(|()| aborting.cancel()));
        assert_eq!(searching(&cancel, Duration::from_secs(600), work).await, Err(ToolError::Aborted));
        assert!(aborter.join().is_ok());
        assert!(go_on.send(()).is_ok(), "the work was still running");
        assert_eq!(ends.recv(), Ok(Stopped::Aborted));
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_ends_the_work() {
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (ended, ends) = tokio::sync::oneshot::channel();
        let never = CancellationToken::new();
        let search = searching(&never, Duration::from_secs(600), move |stop| {
            let _ = begun.send(());
            let _ = ended.send(until_stopped(stop));
            Ok(())
        });
        tokio::select! {
            _ = search => unreachable!("it works until it is told to stop"),
            _ = begins => {}
        }
        assert_eq!(ends.await, Ok(Stopped::Aborted));
    }
}
