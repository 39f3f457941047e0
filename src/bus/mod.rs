//! In-memory fan-out of one session's events, bounded.
//!
//! A reader is a cursor into the log, not a queue: the newest events are kept here within a byte
//! budget, and who has fallen behind reads the store until it has caught up. So a slow reader loses
//! nothing, costs nothing, and slows nobody. The budget holds for a flood too: of what is written at
//! once and does not fit, the end is kept. All sessions together have a budget too ([`Tails`]): where it is used up, each
//! keeps what readers need that read along.
//!
//! Invariant: [`Topic::publish`] is called only with batches that are durable, in order, without gaps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::base::limit::TAIL_BYTES_MIN;
use crate::protocol::Event;

/// Bytes of one batch that is kept, about: what a reader holds that has stopped in the middle of it.
const PIECE_BYTES: usize = 64 << 10;

/// Consecutive events of one session, shared by all readers.
#[derive(Debug)]
pub struct Batch {
    /// The events, oldest first; never empty.
    pub events: Arc<Vec<Event>>,
    frames: OnceLock<Bytes>,
}

impl Batch {
    /// A batch of events. None when there are none.
    pub fn new(events: impl Into<Arc<Vec<Event>>>) -> Option<Self> {
        let events = events.into();
        if events.is_empty() { None } else { Some(Self { events, frames: OnceLock::new() }) }
    }

    /// Number of its first event.
    pub fn first_seq(&self) -> u64 {
        self.events.first().map_or(0, |e| e.seq)
    }

    /// Number of its last event.
    pub fn last_seq(&self) -> u64 {
        self.events.last().map_or(0, |e| e.seq)
    }

    /// All its events as SSE frames (`id:` and `data:` lines), serialised once for all readers.
    pub fn frames(&self) -> Bytes {
        self.frames.get_or_init(|| encode_frames(&self.events).into()).clone()
    }
}

/// Events as SSE frames.
pub fn encode_frames(events: &[Event]) -> Vec<u8> {
    let mut out = Vec::with_capacity(events.len() * 288);
    for event in events {
        encode_frame(&mut out, event.seq, event);
    }
    out
}

/// Adds an event as an SSE frame whose line `id:` has the number `id`.
pub fn encode_frame(out: &mut Vec<u8>, id: u64, event: &Event) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // Plain data: serialising into memory cannot fail.
    if serde_json::to_writer(&mut *out, event).is_err() {
        out.extend_from_slice(b"{}");
    }
    out.extend_from_slice(b"\n\n");
}

/// What a cursor finds.
#[derive(Debug)]
pub enum Next {
    /// A batch whose last event lies behind the cursor (its first ones may not).
    Batch(Arc<Batch>),
    /// The events behind the cursor are no longer here: read the store.
    Store,
    /// Nothing new yet.
    Wait,
}

/// The newest events, without gaps, up to the newest one; or nothing.
#[derive(Debug, Default)]
struct Tail {
    batches: VecDeque<Piece>,
    bytes: usize,
}

/// A batch and what it weighs.
#[derive(Debug)]
struct Piece {
    batch: Arc<Batch>,
    bytes: usize,
}

/// What the newest events of all sessions weigh together.
#[derive(Debug)]
pub struct Tails {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Tails {
    /// At most about so many bytes, unless even [`TAIL_BYTES_MIN`] for each session are more.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max }
    }

    /// Bytes that are kept now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        // Others publish meanwhile.
        self.bytes() > self.bytes_max - self.bytes_max / 8
    }

    fn changed(&self, before: usize, after: usize) {
        // One after the other is never less than what is there: each topic takes away what it has added.
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

/// One session's fan-out.
#[derive(Debug)]
pub struct Topic {
    tail: Mutex<Tail>,
    durable: watch::Sender<u64>,
    bytes_max: usize,
    tails: Arc<Tails>,
}

impl Drop for Topic {
    fn drop(&mut self) {
        self.tails.changed(self.tail.get_mut().bytes, 0);
    }
}

impl Topic {
    /// A topic whose newest durable event is `durable_seq`, keeping at most about `bytes_max` bytes of newest events; fewer
    /// where all `tails` together are too much.
    pub fn new(durable_seq: u64, bytes_max: usize, tails: Arc<Tails>) -> Self {
        Self { tail: Mutex::default(), durable: watch::Sender::new(durable_seq), bytes_max, tails }
    }

    /// Makes durable events visible. What does not fit into the budget is left to the store.
    pub fn publish(&self, events: impl Into<Arc<Vec<Event>>>) {
        let events = events.into();
        let Some((first, last)) = events.first().map(|e| e.seq).zip(events.last().map(|e| e.seq)) else { return };
        let bytes_max = if self.tails.is_full() { self.bytes_max.min(TAIL_BYTES_MIN) } else { self.bytes_max };
        let pieces = pieces(events, bytes_max);
        let mut tail = self.tail.lock();
        let before = tail.bytes;
        if pieces.first().is_none_or(|piece| piece.batch.first_seq() > first) {
            // What was there before would end at a gap.
            *tail = Tail::default();
        }
        for piece in pieces {
            tail.bytes += piece.bytes;
            tail.batches.push_back(piece);
        }
        while tail.bytes > bytes_max
            && let Some(old) = tail.batches.pop_front()
        {
            tail.bytes = tail.bytes.saturating_sub(old.bytes);
        }
        self.tails.changed(before, tail.bytes);
        drop(tail);
        self.durable.send_replace(last);
    }

    /// Bytes of the newest events that are kept here.
    pub fn tail_bytes(&self) -> usize {
        self.tail.lock().bytes
    }

    /// Number of the newest durable event.
    pub fn durable_seq(&self) -> u64 {
        *self.durable.borrow()
    }

    /// Wakes when the newest durable event changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Whether somebody waits for new events.
    pub fn is_watched(&self) -> bool {
        self.durable.receiver_count() > 0
    }

    /// What comes after event `after`.
    pub fn next(&self, after: u64) -> Next {
        if after >= self.durable_seq() {
            return Next::Wait;
        }
        let tail = self.tail.lock();
        // Who reads along wants the newest; its place is not searched for among all that are kept.
        if let Some(newest) = tail.batches.back().filter(|piece| piece.batch.first_seq() <= after + 1) {
            return Next::Batch(Arc::clone(&newest.batch));
        }
        match tail.batches.front() {
            Some(front) if front.batch.first_seq() <= after + 1 => {
                let at = tail.batches.partition_point(|piece| piece.batch.last_seq() <= after);
                tail.batches.get(at).map_or(Next::Wait, |piece| Next::Batch(Arc::clone(&piece.batch)))
            }
            Some(_) | None => Next::Store,
        }
    }
}

fn size_of(event: &Event) -> usize {
    // The payload is held as JSON, and once more in the frame when somebody reads it.
    2 * event.payload.get().len() + 400
}

/// The newest of these events that fit into the budget, in pieces of some size. A small batch stays as it is.
fn pieces(events: Arc<Vec<Event>>, bytes_max: usize) -> Vec<Piece> {
    let bytes = events.iter().map(size_of).sum();
    if bytes <= bytes_max.min(PIECE_BYTES) {
        return Batch::new(events).map(|batch| Piece { batch: Arc::new(batch), bytes }).into_iter().collect();
    }
    let mut left = bytes_max;
    let fits = |event: &&Event| {
        let rest = left.checked_sub(size_of(event));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = events.iter().rev().take_while(fits).count();
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    // Copies, so that the rest of a large batch goes now.
    for event in events.iter().skip(events.len() - kept) {
        if bytes + size_of(event) > PIECE_BYTES {
            pieces.push((std::mem::take(&mut piece), std::mem::take(&mut bytes)));
        }
        bytes += size_of(event);
        piece.push(event.clone());
    }
    pieces.push((piece, bytes));
    let piece = |(events, bytes)| Batch::new(events).map(|batch| Piece { batch: Arc::new(batch), bytes });
    pieces.into_iter().filter_map(piece).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn events(seqs: std::ops::RangeInclusive<u64>) -> Vec<Event> {
        let event = |seq| Event {
            seq,
            kind: "stream.delta".into(),
            payload: RawValue::from_string(r#"{"text":"x"}"#.into()).expect("json"),
            session_id: "s".parse().expect("an id"),
            turn_id: None,
            at: 5,
        };
        seqs.map(event).collect()
    }

    /// A topic that is alone.
    fn topic(durable_seq: u64, bytes_max: usize) -> Topic {
        Topic::new(durable_seq, bytes_max, Arc::new(Tails::new(usize::MAX)))
    }

    #[test]
    fn all_together_have_a_budget_and_each_keeps_what_is_read_along() {
        let tails = Arc::new(Tails::new(4 * TAIL_BYTES_MIN));
        let topics: Vec<_> = (0..8).map(|_| Topic::new(0, 1 << 20, Arc::clone(&tails))).collect();
        for seq in 1..=1_000 {
            for topic in &topics {
                topic.publish(events(seq..=seq));
                assert_eq!(found(topic, seq - 1), format!("{seq}-{seq}"), "who reads along never goes to the store");
            }
            let sum: usize = topics.iter().map(Topic::tail_bytes).sum();
            assert_eq!(sum, tails.bytes());
            // Who publishes next makes room; until then each of the others may have brought one more.
            assert!(sum <= 8 * TAIL_BYTES_MIN, "{sum}");
        }
        assert!(topics.iter().all(|topic| topic.tail_bytes() > TAIL_BYTES_MIN / 4), "each has something to go on from");
        drop(topics);
        assert_eq!(tails.bytes(), 0);
        // Alone again, a session keeps more.
        let alone = Topic::new(0, 1 << 20, Arc::clone(&tails));
        (1..=100).for_each(|seq| alone.publish(events(seq..=seq)));
        assert!(alone.tail_bytes() > 2 * TAIL_BYTES_MIN && found(&alone, 0) == "1-1");
    }

    fn found(topic: &Topic, after: u64) -> String {
        match topic.next(after) {
            Next::Batch(batch) => format!("{}-{}", batch.first_seq(), batch.last_seq()),
            Next::Store => "store".into(),
            Next::Wait => "wait".into(),
        }
    }

    #[test]
    fn a_cursor_is_sent_to_the_batch_the_store_or_to_wait() {
        // A batch counts 424 bytes an event: three of them fit.
        let topic = topic(10, 3 * 424);
        #[rustfmt::skip]
        let steps: [(std::ops::RangeInclusive<u64>, &[(u64, &str)]); 3] = [
            (11..=12, &[(0, "store"), (9, "store"), (10, "11-12"), (11, "11-12"), (12, "wait"), (99, "wait")]),
            (13..=13, &[(9, "store"), (10, "11-12"), (12, "13-13"), (13, "wait")]),
            (14..=15, &[(10, "store"), (11, "store"), (12, "13-13"), (13, "14-15"), (15, "wait")]),
        ];
        assert_eq!((found(&topic, 10), found(&topic, 3)), ("wait".into(), "store".into()));
        for (seqs, cursors) in steps {
            topic.publish(events(seqs.clone()));
            for (after, want) in cursors {
                assert_eq!(found(&topic, *after), *want, "behind {after}, with {seqs:?} published");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_store() {
        let topic = topic(0, 3 * 424);
        topic.publish(events(1..=2));
        // Of a batch larger than the budget its end; what was there before is no use any more.
        topic.publish(events(3..=9));
        assert_eq!(topic.tail_bytes(), 3 * 424);
        for (after, want) in [(0, "store"), (5, "store"), (6, "7-9"), (8, "7-9"), (9, "wait")] {
            assert_eq!(found(&topic, after), want, "behind {after}");
        }
        // An event larger than the budget: nothing.
        let mut large = events(10..=10);
        large[0].payload = RawValue::from_string(format!("\"{}\"", "x".repeat(2_000))).expect("json");
        topic.publish(large);
        assert_eq!((topic.tail_bytes(), topic.durable_seq()), (0, 10));
        assert_eq!((found(&topic, 9), found(&topic, 10)), ("store".into(), "wait".into()));
        topic.publish(events(11..=11));
        assert_eq!((found(&topic, 9), found(&topic, 10)), ("store".into(), "11-11".into()));
        topic.publish(Vec::new());
        assert_eq!(topic.durable_seq(), 11);
    }

    #[test]
    fn a_flood_is_kept_in_pieces_within_the_budget() {
        let topic = topic(0, 1 << 20);
        topic.publish(events(1..=60_000));
        assert!(topic.tail_bytes() <= 1 << 20 && topic.tail_bytes() > (1 << 20) - 424, "{}", topic.tail_bytes());
        let mut at = 60_000 - (topic.tail_bytes() / 424) as u64;
        assert_eq!(found(&topic, at - 1), "store");
        while at < 60_000 {
            let Next::Batch(batch) = topic.next(at) else { panic!("a gap behind {at}") };
            assert_eq!(batch.first_seq(), at + 1);
            assert!(batch.events.len() * 424 <= PIECE_BYTES);
            at = batch.last_seq();
        }
    }

    #[test]
    fn frames_are_numbered_and_made_once() {
        let batch = Batch::new(events(1..=2)).expect("events");
        let frame = |seq: u64| {
            let data = r#""type":"stream.delta","payload":{"text":"x"},"sessionId":"s","at":5}"#;
            format!("id: {seq}\ndata: {{\"seq\":{seq},{data}\n\n")
        };
        assert_eq!(String::from_utf8_lossy(&batch.frames()), frame(1) + &frame(2));
        assert_eq!(batch.frames().as_ptr(), batch.frames().as_ptr());
        assert!(Batch::new(Vec::new()).is_none());
    }
}
