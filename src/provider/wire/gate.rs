//! How much may be asked of a provider at once, by all sessions together: so many requests side by side, so many begun in a
//! minute. Who is too many waits in line, and gives up its place when it is cancelled (its future is dropped).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A minute.
const MINUTE: Duration = Duration::from_secs(60);

/// The bounds of a provider. None: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GateOptions {
    /// Requests side by side.
    pub concurrency_max: Option<usize>,
    /// Requests begun in a minute.
    pub per_minute: Option<u32>,
}

/// Lets requests through. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    room: Option<Arc<Semaphore>>,
    pace: Option<Arc<Pace>>,
}

/// The right to have a request under way.
#[derive(Debug, Default)]
pub(super) struct Pass {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Requests are begun at even distances, the first few at once: a bucket that fills.
#[derive(Debug)]
struct Pace {
    between: Duration,
    /// When the bucket would be full, were nobody to take from it. Never more than a burst in the past.
    next: Mutex<Option<Instant>>,
    burst: Duration,
}

impl Gate {
    pub(super) fn new(options: GateOptions) -> Self {
        let room = options.concurrency_max.map(|max| Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS))));
        let pace = options.per_minute.map(|max| {
            let between = MINUTE / max.max(1);
            // A tenth of a minute's requests may come at once.
            let burst = between * (max / 10).max(1);
            Arc::new(Pace { between, next: Mutex::default(), burst })
        });
        Self { room, pace }
    }

    /// Waits until one more request may begin.
    pub(super) async fn enter(&self) -> Pass {
        let pass = match &self.room {
            // It is never closed.
            Some(room) => Pass { _permit: Arc::clone(room).acquire_owned().await.ok() },
            None => Pass::default(),
        };
        if let Some(pace) = &self.pace {
            let at = pace.place(Instant::now());
            tokio::time::sleep_until(at).await;
        }
        pass
    }
}

impl Pace {
    /// When the next request may begin; its place is taken.
    fn place(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        let earliest = now.checked_sub(self.burst).unwrap_or(now) + self.between;
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(at + self.between);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_side_by_side_than_there_is_room_for() {
        let gate = Gate::new(GateOptions { concurrency_max: Some(2), per_minute: None });
        let (one, two) = (gate.enter().await, gate.enter().await);
        let third = gate.clone();
        let third = tokio::spawn(async move { third.enter().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!third.is_finished());
        drop(one);
        let three = third.await.unwrap();
        let cancelled = tokio::time::timeout(Duration::from_secs(1), gate.enter()).await;
        assert!(cancelled.is_err(), "who gives up takes no room");
        drop((two, three));
        let (_four, _five) = (gate.enter().await, gate.enter().await);
    }

    #[tokio::test(start_paused = true)]
    async fn begun_requests_keep_their_pace() {
        let gate = Gate::new(GateOptions { concurrency_max: None, per_minute: Some(60) });
        let begun = Instant::now();
        let mut seconds = Vec::new();
        for _ in 0..10 {
            drop(gate.enter().await);
            seconds.push(begun.elapsed().as_secs());
        }
        assert_eq!(seconds, [0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let rested = Instant::now();
        for _ in 0..7 {
            drop(gate.enter().await);
        }
        assert_eq!(rested.elapsed().as_secs(), 1, "a long rest gives no more than one burst");
    }

    #[tokio::test(start_paused = true)]
    async fn without_bounds_nobody_waits() {
        let gate = Gate::new(GateOptions::default());
        let begun = Instant::now();
        for _ in 0..1_000 {
            drop(gate.enter().await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
