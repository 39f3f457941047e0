//! A call into JavaScript that answers in many pieces: what comes over a generator, in batches.
//!
//! JavaScript pushes a batch with one call that waits for nothing, and is told whether there is room for more. When there
//! is none it waits until Rust has taken what is there (`drain`). So a slow reader holds a generator up, and a fast
//! generator costs no change of thread for each piece. Whoever drops a [`Feed`] tells JavaScript that no more is wanted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use napi_derive::napi;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::bridge::{Answer, Bridge, CallFailure, NativeBridge};

/// Bytes of batches that wait, from which on no more are wanted.
const FULL_BYTES: usize = 256 << 10;

/// What JavaScript pushes into.
#[derive(Default)]
pub(super) struct Inlet {
    waiting: Mutex<Waiting>,
    came: Notify,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<String>,
    bytes: usize,
    /// JavaScript was told that there is no room.
    full: bool,
}

/// One such call under way.
pub(super) struct Feed {
    bridge: Arc<Bridge>,
    sequence: u32,
    inlet: Arc<Inlet>,
    end: oneshot::Receiver<Answer>,
    answer: Option<Answer>,
}

/// What comes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// A batch, as JavaScript wrote it.
    Batch(String),
    /// The end; no batch follows.
    End(Answer),
}

impl Feed {
    /// Asks object `target` to do `operation`. `input` is JSON. None: the environment is gone.
    pub(super) fn open(bridge: &Arc<Bridge>, (target, operation): (u32, &str), input: &str) -> Option<Self> {
        let sequence = bridge.next.fetch_add(1, Ordering::Relaxed);
        let (tx, end) = oneshot::channel();
        let inlet = Arc::<Inlet>::default();
        bridge.waiting.lock().insert(sequence, tx);
        bridge.feeds.lock().insert(sequence, Arc::clone(&inlet));
        let feed = Self { bridge: Arc::clone(bridge), sequence, inlet, end, answer: None };
        feed.bridge.send(sequence, target, operation, input).then_some(feed)
    }

    /// The next batch, or the end. May be dropped while it waits; nothing is lost.
    pub(super) async fn next(&mut self) -> Fed {
        loop {
            if let Some(batch) = self.take() {
                return Fed::Batch(batch);
            }
            // It was pushed before the end was told.
            if let Some(answer) = self.answer.take() {
                return Fed::End(answer);
            }
            tokio::select! {
                biased;
                () = self.inlet.came.notified() => {}
                answer = &mut self.end => self.answer = Some(answer.unwrap_or(Err(CallFailure::Aborted))),
            }
        }
    }

    fn take(&self) -> Option<String> {
        let (batch, drained) = self.inlet.take()?;
        if drained {
            // An environment that is gone needs no news.
            let _ = self.bridge.send(self.sequence, 0, "drain", "null");
        }
        Some(batch)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.bridge.feeds.lock().remove(&self.sequence);
        if self.bridge.waiting.lock().remove(&self.sequence).is_some() {
            let _ = self.bridge.send(self.sequence, 0, "abort", "null");
        }
    }
}

impl Inlet {
    /// Whether there is room for more.
    fn push(&self, batch: String) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.bytes += batch.len();
        waiting.batches.push_back(batch);
        waiting.full |= waiting.bytes >= FULL_BYTES;
        let room = !waiting.full;
        drop(waiting);
        self.came.notify_one();
        room
    }

    /// The oldest batch, and whether JavaScript has to be told that there is room again.
    fn take(&self) -> Option<(String, bool)> {
        let mut waiting = self.waiting.lock();
        let batch = waiting.batches.pop_front()?;
        waiting.bytes -= batch.len();
        let drained = waiting.full && waiting.bytes < FULL_BYTES / 2;
        if drained {
            waiting.full = false;
        }
        Some((batch, drained))
    }
}

#[napi]
impl NativeBridge {
    /// Hands over a batch of the call of this sequence. 0: nobody wants it any more; 1: there is room for more; 2: there is
    /// none until `drain` is told.
    #[napi(catch_unwind)]
    pub fn push(&self, sequence: u32, batch: String) -> u32 {
        let inlet = self.inner.feeds.lock().get(&sequence).cloned();
        inlet.map_or(0, |inlet| if inlet.push(batch) { 1 } else { 2 })
    }

    /// Calls that answer in pieces and are under way, for tests.
    #[napi(catch_unwind)]
    pub fn feeding(&self) -> u32 {
        u32::try_from(self.inner.feeds.lock().len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_is_bounded_and_room_is_told_once() {
        let inlet = Inlet::default();
        let quarter = || "x".repeat(FULL_BYTES / 4);
        let rooms: Vec<bool> = (0..5).map(|_| inlet.push(quarter())).collect();
        assert_eq!(rooms, [true, true, true, false, false]);
        let drained = |inlet: &Inlet| inlet.take().map(|(_, drained)| drained);
        let all: Vec<Option<bool>> = (0..6).map(|_| drained(&inlet)).collect();
        assert_eq!(all, [Some(false), Some(false), Some(false), Some(true), Some(false), None]);
        assert!(inlet.push(quarter()), "there is room again");
        assert_eq!(drained(&inlet), Some(false), "nobody waited for it");
    }
}
