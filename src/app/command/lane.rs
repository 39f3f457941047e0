//! Lanes: what stands in one goes one after the other, in the order in which it was put there.
//!
//! A place is taken at once and without waiting, so that the order is that of the calls. A lane that nobody
//! stands in is not remembered.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Whose lane it is, and of which session.
pub(super) type LaneKey = (String, String);

/// All lanes in which somebody stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Lanes(Arc<Mutex<HashMap<LaneKey, Arc<Semaphore>>>>);

type Turn = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// A place in a lane; dropped, it makes way.
pub(super) struct Place {
    turn: Option<Turn>,
    permit: Option<OwnedSemaphorePermit>,
    key: LaneKey,
    lanes: Lanes,
}

impl Lanes {
    /// Takes the last place in a lane.
    pub(super) fn line_up(&self, key: LaneKey) -> Place {
        let mut lanes = self.0.lock();
        let lane = Arc::clone(lanes.entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let mut turn: Turn = Box::pin(lane.acquire_owned());
        // Asked once, it stands in line; who waits for it asks again.
        let (turn, permit) = match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(permit) => (None, permit.ok()),
            std::task::Poll::Pending => (Some(turn), None),
        };
        Place { turn, permit, key, lanes: self.clone() }
    }

    /// Lanes in which somebody stands.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Place {
    /// Waits until everybody before it has gone.
    pub(super) async fn wait(&mut self) {
        if let Some(turn) = &mut self.turn {
            // Nobody closes a lane.
            self.permit = turn.await.ok();
            self.turn = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turn = None;
        self.permit = None;
        let mut lanes = self.lanes.0.lock();
        // A place holds its lane, whether it waits or goes.
        if lanes.get(&self.key).is_some_and(|lane| Arc::strong_count(lane) == 1) {
            lanes.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn key(name: &str) -> LaneKey {
        (String::new(), name.to_owned())
    }

    #[tokio::test]
    async fn the_order_is_that_of_lining_up() {
        let lanes = Lanes::default();
        let (mut first, mut second, mut third) =
            (lanes.line_up(key("a")), lanes.line_up(key("a")), lanes.line_up(key("a")));
        let mut beside = lanes.line_up(key("b"));
        assert!(beside.wait().now_or_never().is_some(), "lanes are apart");
        assert!(third.wait().now_or_never().is_none() && second.wait().now_or_never().is_none());
        assert!(first.wait().now_or_never().is_some());
        drop(first);
        assert!(third.wait().now_or_never().is_none(), "asked before, and yet behind");
        drop(second);
        assert!(third.wait().now_or_never().is_some(), "who leaves makes way");
        drop((third, beside));
        assert_eq!(lanes.count(), 0);
    }
}
