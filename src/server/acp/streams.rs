//! What waits for a client over HTTP: a stream for the connection, and one for each of its sessions.
//!
//! Nothing is lost between two readers of a stream: what nobody has taken waits, and the last of what was taken is kept, so
//! that a reader who lost its connection goes on behind the number that it saw last. The protocol knows no such replay; ours are
//! the numbers.
//!
//! Invariants: what waits is bounded over all streams, and who has something to say waits for room; where nobody takes
//! anything for long, the connection is closed. A stream has one reader.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::limit;

/// Frames that were taken and are kept for who comes back, of one stream.
const KEPT_FRAMES_MAX: usize = 256;
/// The same in bytes.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    state: Mutex<State>,
    /// Wakes when something was taken, or the connection is closed.
    room: Notify,
    /// The connection is over.
    closed: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// By session; None: the connection's own.
    streams: HashMap<Option<String>, Stream>,
    /// Bytes that wait, in all of them.
    waiting: usize,
    /// Readers that are there.
    readers: usize,
    /// When something was last taken, or somebody came.
    touched: Instant,
}

#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Frame>,
    kept: VecDeque<Frame>,
    kept_bytes: usize,
    /// Of the newest frame.
    number: u64,
    /// Ends the reader that is there.
    reader: Option<CancellationToken>,
    wake: Arc<Notify>,
}

/// A message, and its number in its stream.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) text: Arc<str>,
}

/// Why a stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// Somebody reads it.
    Taken,
    /// What came behind that number is no longer there.
    Gone,
    /// There are too many streams.
    TooMany,
}

/// A reader of a stream.
#[derive(Debug)]
pub(super) struct Reader {
    streams: Arc<Streams>,
    session: Option<String>,
    wake: Arc<Notify>,
    over: CancellationToken,
}

impl Streams {
    /// Streams with nothing in them.
    pub(super) fn new() -> Arc<Self> {
        let state = State { streams: HashMap::new(), waiting: 0, readers: 0, touched: Instant::now() };
        Arc::new(Self { state: Mutex::new(state), room: Notify::new(), closed: CancellationToken::new() })
    }

    /// Says something on the stream of a session, or on the connection's own. False: the connection is over.
    pub(super) async fn say(&self, session: Option<&str>, text: String) -> bool {
        let text: Arc<str> = text.into();
        let patience = Duration::from_millis(limit::ACP_STALL_MS);
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.put(session, &text) {
                Some(put) => return put,
                None => {
                    let taken = tokio::time::timeout(patience, room).await;
                    if taken.is_err() {
                        tracing::warn!("an ACP client takes nothing; its connection is closed");
                        self.close();
                    }
                }
            }
        }
    }

    /// Puts it where it waits. None: there is no room. False: the connection is over.
    fn put(&self, session: Option<&str>, text: &Arc<str>) -> Option<bool> {
        if self.closed.is_cancelled() {
            return Some(false);
        }
        let mut state = self.state.lock();
        if state.waiting > 0 && state.waiting + text.len() > limit::BACKLOG_BYTES_MAX {
            return None;
        }
        let key = session.map(str::to_owned);
        if !state.streams.contains_key(&key) && state.streams.len() >= limit::ACP_STREAMS_MAX {
            drop(state);
            tracing::warn!("an ACP client has too many streams that it does not read; its connection is closed");
            self.close();
            return Some(false);
        }
        state.waiting += text.len();
        let stream = state.streams.entry(key).or_default();
        stream.number += 1;
        stream.waiting.push_back(Frame { number: stream.number, text: Arc::clone(text) });
        stream.wake.notify_one();
        Some(true)
    }

    /// Waits until whoever reads a session's stream has taken all that waits there; no longer than that may take at most. Where nobody
    /// reads it, not at all.
    pub(super) async fn taken(&self, session: &str) {
        let key = Some(session.to_owned());
        let taken = async {
            loop {
                let room = self.room.notified();
                tokio::pin!(room);
                room.as_mut().enable();
                let waits = self.state.lock().streams.get(&key).is_some_and(|stream| {
                    let read = stream.reader.as_ref().is_some_and(|reader| !reader.is_cancelled());
                    read && !stream.waiting.is_empty()
                });
                if !waits {
                    return;
                }
                room.await;
            }
        };
        drop(tokio::time::timeout(Duration::from_millis(limit::ACP_STALL_MS), taken).await);
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().waiting < limit::BACKLOG_BYTES_MAX
    }

    /// Reads a stream; behind a number, where one is named: then whoever reads it ends.
    ///
    /// # Errors
    /// [`Unread`].
    pub(super) fn read(self: &Arc<Self>, session: Option<String>, after: Option<u64>) -> Result<Reader, Unread> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.streams.contains_key(&session) && state.streams.len() >= limit::ACP_STREAMS_MAX {
            return Err(Unread::TooMany);
        }
        let stream = state.streams.entry(session.clone()).or_default();
        if let Some(reader) = stream.reader.as_ref().filter(|reader| !reader.is_cancelled()) {
            if after.is_none() {
                return Err(Unread::Taken);
            }
            reader.cancel();
        }
        if let Some(after) = after {
            state.waiting += stream.back_to(after)?;
        }
        let over = self.closed.child_token();
        stream.reader = Some(over.clone());
        state.readers += 1;
        state.touched = Instant::now();
        let wake = Arc::clone(&stream.wake);
        Ok(Reader { streams: Arc::clone(self), session, wake, over })
    }

    /// Somebody was here.
    pub(super) fn touch(&self) {
        self.state.lock().touched = Instant::now();
    }

    /// Until when nobody has been here for so long that nobody is expected. None: somebody is.
    pub(super) fn deserted_at(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.readers == 0).then(|| state.touched + Duration::from_millis(limit::ACP_DESERTED_MS))
    }

    /// Ends all of it.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.room.notify_waiters();
    }

    /// Fires when it is over.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }
}

impl Stream {
    /// Puts back what was taken behind a number. Gives back how many bytes wait again.
    fn back_to(&mut self, after: u64) -> Result<usize, Unread> {
        let first = self.kept.front().or(self.waiting.front()).map_or(self.number + 1, |frame| frame.number);
        if after > self.number || after + 1 < first {
            return Err(Unread::Gone);
        }
        let mut bytes = 0;
        while let Some(frame) = self.kept.pop_back_if(|frame| frame.number > after) {
            self.kept_bytes -= frame.text.len();
            bytes += frame.text.len();
            self.waiting.push_front(frame);
        }
        Ok(bytes)
    }

    fn keep(&mut self, frame: Frame) {
        self.kept_bytes += frame.text.len();
        self.kept.push_back(frame);
        while self.kept.len() > KEPT_FRAMES_MAX || (self.kept_bytes > KEPT_BYTES_MAX && self.kept.len() > 1) {
            let Some(gone) = self.kept.pop_front() else { break };
            self.kept_bytes -= gone.text.len();
        }
    }
}

impl Reader {
    /// The next message. None: there will be none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            let woken = self.wake.notified();
            if self.over.is_cancelled() {
                return None;
            }
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            tokio::select! {
                () = woken => {}
                () = self.over.cancelled() => return None,
            }
        }
    }

    fn take(&self) -> Option<Frame> {
        let mut state = self.streams.state.lock();
        let stream = state.streams.get_mut(&self.session)?;
        let frame = stream.waiting.pop_front()?;
        stream.keep(frame.clone());
        state.waiting -= frame.text.len();
        state.touched = Instant::now();
        drop(state);
        self.streams.room.notify_waiters();
        Some(frame)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.over.cancel();
        let mut state = self.streams.state.lock();
        state.readers -= 1;
        state.touched = Instant::now();
        drop(state);
        self.streams.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn said(streams: &Streams, session: Option<&str>, text: &str) -> Option<bool> {
        streams.say(session, text.to_owned()).now_or_never()
    }

    fn next(reader: &mut Reader) -> Option<(u64, String)> {
        reader.next().now_or_never().flatten().map(|frame| (frame.number, frame.text.to_string()))
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_behind_what_it_saw() {
        let streams = Streams::new();
        for text in ["a", "b", "c"] {
            assert_eq!(said(&streams, Some("s"), text), Some(true));
        }
        let mut first = streams.read(Some("s".into()), None).unwrap();
        assert_eq!(streams.read(Some("s".into()), None).unwrap_err(), Unread::Taken);
        assert_eq!(next(&mut first), Some((1, "a".into())));
        assert_eq!(next(&mut first), Some((2, "b".into())));
        // Its connection broke behind the first, and nobody has noticed.
        let mut second = streams.read(Some("s".into()), Some(1)).unwrap();
        assert_eq!(next(&mut first), None);
        assert_eq!(next(&mut second), Some((2, "b".into())));
        assert_eq!(next(&mut second), Some((3, "c".into())));
        assert_eq!(next(&mut second), None);
        drop(second);
        assert_eq!(streams.read(Some("s".into()), Some(4)).unwrap_err(), Unread::Gone);
        for number in 0..=KEPT_FRAMES_MAX {
            assert_eq!(said(&streams, Some("s"), &number.to_string()), Some(true));
        }
        let mut third = streams.read(Some("s".into()), Some(3)).unwrap();
        while next(&mut third).is_some() {}
        drop(third);
        assert_eq!(streams.read(Some("s".into()), Some(3)).unwrap_err(), Unread::Gone);
        let mut own = streams.read(None, None).unwrap();
        assert_eq!(next(&mut own), None, "a session's messages are on its stream alone");
        streams.close();
        assert_eq!(said(&streams, None, "x"), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_bounded_and_who_takes_nothing_is_left() {
        let streams = Streams::new();
        let half = "x".repeat(limit::BACKLOG_BYTES_MAX / 2);
        assert_eq!(said(&streams, None, &half), Some(true));
        assert_eq!(said(&streams, Some("s"), &half), Some(true));
        assert!(!streams.has_room());
        let mut reader = streams.read(None, None).unwrap();
        let waits = tokio::spawn({
            let streams = Arc::clone(&streams);
            async move { streams.say(None, "y".into()).await }
        });
        tokio::task::yield_now().await;
        assert!(next(&mut reader).is_some());
        assert!(waits.await.unwrap());
        assert_eq!(said(&streams, None, &half), None);
        assert!(!streams.say(None, half).await, "nobody takes anything for long");
        assert!(streams.closed().is_cancelled());
    }
}
