//! What waits to be written to a client on a socket or a pipe: few frames, and few bytes.
//!
//! Who has something to say waits until there is room. So what a client does not take stays where it is: events in the
//! log, commands with the client.
//!
//! Invariant: at most [`FRAMES_WAITING_MAX`](limit::FRAMES_WAITING_MAX) frames and
//! [`FRAMES_WAITING_BYTES_MAX`](limit::FRAMES_WAITING_BYTES_MAX) bytes wait, or a single frame that is larger.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::base::limit;

/// The way to a client.
#[derive(Debug, Clone)]
pub(super) struct Out {
    frames: mpsc::Sender<Frame>,
    room: Arc<Semaphore>,
}

/// A frame of text. Its room is free again when it is dropped: after it was written.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) text: String,
    pub(super) room: OwnedSemaphorePermit,
}

/// A way to a client, and its other end.
pub(super) fn channel() -> (Out, mpsc::Receiver<Frame>) {
    let (frames, receiver) = mpsc::channel(limit::FRAMES_WAITING_MAX);
    (Out { frames, room: Arc::new(Semaphore::new(limit::FRAMES_WAITING_BYTES_MAX)) }, receiver)
}

/// The ways that are open, to see how full they are.
#[derive(Debug, Default)]
pub(super) struct Outs(Mutex<Vec<(mpsc::WeakSender<Frame>, Weak<Semaphore>)>>);

impl Outs {
    /// Takes one in; those that are closed go.
    pub(super) fn add(&self, out: &Out) {
        let mut open = self.0.lock();
        // Looking at all of them is for when there are twice as many as at the last look.
        if open.len() == open.capacity() {
            open.retain(|(frames, _)| frames.strong_count() > 0);
        }
        open.push((out.frames.downgrade(), Arc::downgrade(&out.room)));
    }

    /// Frames that wait on one of them, and bytes: the most of each.
    pub(super) fn fullest(&self) -> (usize, usize) {
        let open = self.0.lock();
        let frames = open.iter().filter_map(|(frames, _)| frames.upgrade());
        let frames = frames.map(|frames| frames.max_capacity() - frames.capacity()).max();
        let rooms = open.iter().filter_map(|(_, room)| room.upgrade());
        let bytes = rooms.map(|room| limit::FRAMES_WAITING_BYTES_MAX - room.available_permits()).max();
        (frames.unwrap_or(0), bytes.unwrap_or(0))
    }
}

impl Out {
    /// Hands a frame over, when there is room. False: nobody takes frames any more. Cancel-safe: it is handed over or not.
    pub(super) async fn say(&self, text: String) -> bool {
        let all = limit::FRAMES_WAITING_BYTES_MAX;
        let bytes = u32::try_from(text.len().min(all)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = Arc::clone(&self.room).acquire_many_owned(bytes) => room,
            () = self.frames.closed() => return false,
        };
        // Nobody closes it.
        let Ok(room) = room else { return false };
        self.frames.send(Frame { text, room }).await.is_ok()
    }

    /// Whether nobody takes frames any more.
    pub(super) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    /// Waits until nobody takes frames any more.
    pub(super) async fn closed(&self) {
        self.frames.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_waits_is_bounded_in_frames_and_in_bytes() {
        let (out, mut frames) = channel();
        for _ in 0..limit::FRAMES_WAITING_MAX {
            assert_eq!(out.say("x".into()).now_or_never(), Some(true));
        }
        assert_eq!(out.say("x".into()).now_or_never(), None, "frames");
        let outs = Outs::default();
        for _ in 0..100 {
            outs.add(&channel().0);
        }
        assert!(outs.0.lock().len() <= 8, "those that are closed go");
        outs.add(&out);
        assert_eq!(outs.fullest(), (limit::FRAMES_WAITING_MAX, limit::FRAMES_WAITING_MAX));
        while frames.try_recv().is_ok() {}
        let half = "x".repeat(limit::FRAMES_WAITING_BYTES_MAX / 2);
        assert_eq!(out.say(half.clone()).now_or_never(), Some(true));
        assert_eq!(out.say(half.clone()).now_or_never(), Some(true));
        assert_eq!(out.say("x".into()).now_or_never(), None, "bytes");
        // Taken is not written yet.
        let first = frames.try_recv().expect("it was handed over");
        assert_eq!(out.say("x".into()).now_or_never(), None, "bytes");
        drop(first);
        assert_eq!(out.say("x".into()).now_or_never(), Some(true));
        while frames.try_recv().is_ok() {}
        // A single one that is larger than all room goes by itself.
        assert_eq!(out.say(half.repeat(3)).now_or_never(), Some(true));
        assert_eq!(out.say("x".into()).now_or_never(), None);
        drop(frames);
        assert_eq!(out.say("x".into()).now_or_never(), Some(false));
        assert!(out.is_closed());
    }
}
