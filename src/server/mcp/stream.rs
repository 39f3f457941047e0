//! What is said to an MCP client, in order, until it has been taken: one stream a request, and one for what belongs to none.
//!
//! A stream outlives the connection that reads it: a client whose line breaks goes on behind the last message that it saw.
//! One reader at a time; a new one ends the one before.
//!
//! Invariants: messages leave in the order in which they were said; what was taken is kept for a while within
//! [`limit::MCP_REPLAY_BYTES_MAX`], what was not within [`limit::MCP_WAITING_BYTES_MAX`]: beyond it hints are left out, the
//! oldest of the standing stream goes, and a stream of a request breaks, which its client learns by its end.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::base::limit;

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its number in its client's session; 0 is the standing one.
    pub(super) number: u64,
    state: Mutex<State>,
    /// Changes when there is something to read.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    /// With their numbers, the oldest first.
    messages: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    /// Of these, bytes that were not taken.
    waiting: usize,
    /// Number of the newest message.
    last: u64,
    /// Number of the newest that was taken.
    taken: u64,
    /// Nothing more will be said.
    closed: bool,
    /// Which reader counts.
    reader: u64,
}

impl State {
    fn push(&mut self, text: String) {
        self.last += 1;
        self.bytes += text.len();
        self.waiting += text.len();
        self.messages.push_back((self.last, text.into()));
        self.trim();
    }

    /// What was taken goes when it is more than is kept; the newest stays.
    fn trim(&mut self) {
        while self.bytes > limit::MCP_REPLAY_BYTES_MAX
            && self.messages.len() > 1
            && self.messages.front().is_some_and(|(number, _)| *number <= self.taken)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((number, text)) = self.messages.pop_front() {
            self.bytes -= text.len();
            if number > self.taken {
                self.waiting -= text.len();
            }
        }
    }

    /// Whether a text of this length may wait too. One that is alone always may.
    fn has_room(&self, length: usize) -> bool {
        self.waiting == 0 || self.waiting + length <= limit::MCP_WAITING_BYTES_MAX
    }
}

impl Stream {
    /// An empty one.
    pub(super) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self { number, state: Mutex::default(), changed: watch::Sender::new(()) })
    }

    /// Says what has to be heard.
    pub(super) fn say(&self, text: String) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        while self.number == 0 && !state.has_room(text.len()) {
            state.drop_oldest();
        }
        match state.has_room(text.len()) {
            true => state.push(text),
            false => state.closed = true,
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Says what may be left out when much waits already.
    pub(super) fn hint(&self, text: String) {
        let waiting = self.state.lock().waiting;
        if waiting < limit::MCP_HINT_BYTES_MAX {
            self.say(text);
        }
    }

    /// Ends the reader that there is, and nothing else.
    pub(super) fn hang_up(&self) {
        self.state.lock().reader += 1;
        self.changed.send_replace(());
    }

    /// Nothing more will be said.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.send_replace(());
    }

    /// Number of the newest message that was taken.
    pub(super) fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    /// Whether there is nothing behind a message, and never will be.
    pub(super) fn ends_at(&self, number: u64) -> bool {
        let state = self.state.lock();
        state.closed && state.last <= number
    }

    /// Whether all was said and taken.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closed && state.taken == state.last
    }

    /// Reads on behind a message; who read before reads no more.
    pub(super) fn read(self: &Arc<Self>, after: u64) -> Reader {
        let mut state = self.state.lock();
        state.reader += 1;
        let reader = state.reader;
        drop(state);
        let changed = self.changed.subscribe();
        self.changed.send_replace(());
        Reader { stream: Arc::clone(self), position: after, reader, changed }
    }
}

/// Reads a stream.
#[derive(Debug)]
pub(super) struct Reader {
    stream: Arc<Stream>,
    position: u64,
    reader: u64,
    changed: watch::Receiver<()>,
}

impl Reader {
    /// The stream that it reads.
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Number of the message that was read last.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next message and its number; waits for it. None: nothing more comes, or another one reads now. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(u64, Arc<str>)> {
        let (number, text) = self.peek().await?;
        self.position = number;
        let mut state = self.stream.state.lock();
        let fresh = state.messages.iter().filter(|(other, _)| *other > state.taken && *other <= number);
        let taken: usize = fresh.map(|(_, text)| text.len()).sum();
        state.waiting -= taken;
        state.taken = state.taken.max(number);
        state.trim();
        drop(state);
        Some((number, text))
    }

    /// The same, without taking it.
    pub(super) async fn peek(&mut self) -> Option<(u64, Arc<str>)> {
        loop {
            self.changed.borrow_and_update();
            {
                let state = self.stream.state.lock();
                if state.reader != self.reader {
                    return None;
                }
                let at = state.messages.partition_point(|(number, _)| *number <= self.position);
                if let Some(found) = state.messages.get(at) {
                    return Some(found.clone());
                }
                if state.closed {
                    return None;
                }
            }
            if self.changed.changed().await.is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: &Option<(u64, Arc<str>)>) -> Option<(u64, &str)> {
        of.as_ref().map(|(number, text)| (*number, &**text))
    }

    #[tokio::test]
    async fn a_reader_goes_on_behind_what_it_saw_and_ends_the_one_before() {
        let stream = Stream::new(1);
        for said in ["a", "b", "c"] {
            stream.say(said.to_owned());
        }
        let mut first = stream.read(0);
        assert_eq!(text(&first.next().await), Some((1, "a")));
        assert_eq!(text(&first.next().await), Some((2, "b")));
        let mut second = stream.read(1);
        assert_eq!(text(&first.next().await), None);
        assert_eq!(text(&second.next().await), Some((2, "b")));
        assert!(!stream.is_done());
        stream.close();
        stream.say("late".to_owned());
        assert_eq!(text(&second.next().await), Some((3, "c")));
        assert_eq!(text(&second.next().await), None);
        assert!(stream.is_done());
    }

    #[tokio::test]
    async fn what_nobody_takes_is_bounded() {
        let much = || "x".repeat(limit::MCP_WAITING_BYTES_MAX / 4);
        let (standing, asked) = (Stream::new(0), Stream::new(1));
        for stream in [&standing, &asked] {
            for _ in 0..12 {
                stream.say(much());
            }
            stream.hint("left out".to_owned());
            assert!(stream.state.lock().bytes <= limit::MCP_WAITING_BYTES_MAX, "{}", stream.number);
        }
        assert!(!standing.state.lock().closed, "the oldest goes");
        assert!(asked.state.lock().closed, "it breaks");
        let mut reader = standing.read(0);
        let (first, _) = reader.next().await.unwrap();
        assert!(first > 1);
    }

    #[tokio::test]
    async fn what_was_taken_is_kept_for_a_while() {
        let stream = Stream::new(1);
        let mut reader = stream.read(0);
        let piece = "x".repeat(limit::MCP_REPLAY_BYTES_MAX / 4);
        for _ in 0..20 {
            stream.say(piece.clone());
            reader.next().await.unwrap();
        }
        assert!(stream.state.lock().bytes <= limit::MCP_REPLAY_BYTES_MAX);
        assert!(stream.read(18).next().await.is_some());
    }
}
