//! A running call's output, as events: pieces of what it has written, a few a second.
//!
//! A preview: the call's end has what counts. Costs nothing while nobody listens, and little when somebody does: pieces
//! come the more seldom the longer the call runs, and of a flood the newest bytes of each interval are shown. Where
//! nothing was skipped, the pieces of a call together are its whole output. A call that ends at once has none.

use std::time::Duration;

use tokio::time::Instant;

use super::ToolEvents;
use crate::base::limit;
use crate::base::process::Follow;
use crate::protocol::EventBody;

/// Time until the first piece, and between two at first.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Of the time that a call has run, what passes between two pieces.
const INTERVAL_SHARE: u32 = 50;

/// Publishes a call's output while it runs. The rest of it when it is dropped, unless there was no piece before.
#[derive(Debug)]
pub struct LiveOutput {
    events: ToolEvents,
    call_id: String,
    name: String,
    begun: Instant,
    last: Instant,
    any: bool,
    waiting: Vec<u8>,
    skipped_bytes: u64,
}

impl LiveOutput {
    /// For call `call_id` of tool `name`.
    pub fn new(events: ToolEvents, call_id: &str, name: &str) -> Self {
        let now = Instant::now();
        Self {
            events,
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            begun: now,
            last: now,
            any: false,
            waiting: Vec::new(),
            skipped_bytes: 0,
        }
    }

    fn next(&self) -> Instant {
        self.last + INTERVAL_MIN.max(self.last.duration_since(self.begun) / INTERVAL_SHARE)
    }

    /// Publishes what waits; but for the start of a character whose end is still to come.
    fn publish(&mut self) {
        self.last = Instant::now();
        if !self.events.are_wanted() {
            self.waiting.clear();
            self.skipped_bytes = 0;
            return;
        }
        let rest = unfinished(&self.waiting);
        let text = String::from_utf8_lossy(&self.waiting[..self.waiting.len() - rest]).into_owned();
        if text.is_empty() {
            return;
        }
        let done = self.waiting.len() - rest;
        self.waiting.drain(..done);
        self.any = true;
        self.events.publish(EventBody::ToolCallOutput {
            call_id: self.call_id.clone(),
            name: self.name.clone(),
            text,
            skipped_bytes: std::mem::take(&mut self.skipped_bytes),
        });
    }
}

impl Follow for LiveOutput {
    fn take(&mut self, bytes: &[u8]) {
        if let Some(ear) = self.events.ear() {
            ear.wrote(bytes);
        }
        let most = limit::LIVE_OUTPUT_BYTES_MAX;
        let newest = &bytes[bytes.len().saturating_sub(most)..];
        let over = (self.waiting.len() + newest.len()).saturating_sub(most);
        self.waiting.drain(..over);
        self.waiting.extend_from_slice(newest);
        let skipped = over + bytes.len() - newest.len();
        if skipped > 0 {
            // What is left of a character that was cut is skipped with it.
            let orphans = self.waiting.iter().take(3).take_while(|&&b| b & 0xC0 == 0x80).count();
            self.waiting.drain(..orphans);
            self.skipped_bytes += (skipped + orphans) as u64;
        }
        if Instant::now() >= self.next() {
            self.publish();
        }
    }

    fn due(&self) -> Option<Instant> {
        (self.waiting.len() > unfinished(&self.waiting)).then(|| self.next())
    }

    fn wake(&mut self) {
        if Instant::now() >= self.next() {
            self.publish();
        }
    }
}

impl Drop for LiveOutput {
    fn drop(&mut self) {
        if self.any && !self.waiting.is_empty() {
            self.publish();
        }
    }
}

/// How many bytes at the end are the start of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let last = &bytes[bytes.len().saturating_sub(3)..];
    (1..=last.len())
        .find(|&count| {
            let tail = &last[last.len() - count..];
            tail[0] >= 0xC0 && std::str::from_utf8(tail).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;

    use super::*;

    type Pieces = Arc<Mutex<Vec<(String, u64)>>>;

    fn live() -> (LiveOutput, Pieces, Arc<AtomicBool>) {
        let (pieces, wanted): (Pieces, _) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let (taken, asked) = (Arc::clone(&pieces), Arc::clone(&wanted));
        let events = ToolEvents::new(move |event| match event {
            EventBody::ToolCallOutput { call_id, name, text, skipped_bytes } => {
                assert_eq!((call_id.as_str(), name.as_str()), ("c", "bash"));
                taken.lock().push((text, skipped_bytes));
            }
            other => panic!("{other:?}"),
        });
        let events = events.while_wanted(move || asked.load(Ordering::Relaxed));
        (LiveOutput::new(events, "c", "bash"), pieces, wanted)
    }

    async fn pass(ms: u64) {
        tokio::time::advance(Duration::from_millis(ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_come_a_few_a_second_and_are_the_whole() {
        let (mut live, pieces, _) = live();
        assert_eq!(live.due(), None);
        live.take("aä".as_bytes());
        live.take("€".as_bytes().split_at(1).0);
        assert!(pieces.lock().is_empty(), "not at once");
        pass(100).await;
        assert!(live.due().is_some_and(|due| due <= Instant::now()));
        live.wake();
        assert_eq!(*pieces.lock(), [("aä".to_owned(), 0)]);
        assert_eq!(live.due(), None, "a started character waits for its end");
        live.take("€".as_bytes().split_at(1).1);
        live.take(b"\xff");
        pass(99).await;
        live.wake();
        assert_eq!(pieces.lock().len(), 1);
        pass(1).await;
        live.take(b"end");
        assert_eq!(pieces.lock()[1].0, "€\u{fffd}end");
        live.take(b" of it");
        drop(live);
        assert_eq!(pieces.lock()[2].0, " of it", "the rest comes with the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_call_has_none_and_a_flood_shows_its_newest() {
        let (mut live_one, pieces, _) = live();
        live_one.take(b"all");
        drop(live_one);
        assert!(pieces.lock().is_empty());
        let (mut live, pieces, wanted) = live();
        let most = limit::LIVE_OUTPUT_BYTES_MAX;
        live.take(b"first");
        live.take("ä".repeat(most).as_bytes());
        live.take(b"x");
        pass(100).await;
        live.wake();
        // An odd number of bytes of two each: one is cut and skipped whole.
        let want = format!("{}x", "ä".repeat(most / 2 - 1));
        assert_eq!(*pieces.lock(), [(want.clone(), (5 + 2 * most + 1 - want.len()) as u64)]);
        wanted.store(false, Ordering::Relaxed);
        live.take(b"unheard");
        pass(100).await;
        live.wake();
        wanted.store(true, Ordering::Relaxed);
        live.take(b"heard");
        pass(100).await;
        live.wake();
        assert_eq!(pieces.lock()[1], ("heard".to_owned(), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_it_runs_the_fewer_come() {
        let (mut live, pieces, _) = live();
        for _ in 0..36_000 {
            pass(100).await;
            live.take(b".");
        }
        let count = pieces.lock().len();
        assert!((300..500).contains(&count), "{count} pieces in an hour");
        assert_eq!(
            pieces.lock().iter().map(|(text, skipped)| text.len() as u64 + skipped).sum::<u64>()
                + live.waiting.len() as u64,
            36_000
        );
    }
}
