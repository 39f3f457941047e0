//! Room for the commands of one connection: how many are under way, and how many were read and wait until they may be.
//!
//! A command for which there is no room waits here, in its order, while what comes behind it is read. Controls have a room of
//! their own. So an abort and the answer to a question reach the server past the work that they are about.
//!
//! Invariants: commands are begun in the order in which they came, controls beside them. With as many waiting as may, or as many
//! bytes, nothing more is read.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::Command;
use crate::base::limit;

/// A command, and the text that it came as, where another server may have to hear it.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) command: Command,
    pub(super) text: Option<Bytes>,
}

/// What a command holds from its beginning to its answer.
pub(super) type Place = OwnedSemaphorePermit;

/// The room of one connection.
#[derive(Debug)]
pub(super) struct Room {
    underway: Arc<Semaphore>,
    controls: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// None: none waits, and nobody is busy beginning them.
    waiting: Mutex<Option<VecDeque<Waiting>>>,
}

/// A command that waits, with what it holds while it does.
#[derive(Debug)]
struct Waiting {
    command: Said,
    _slot: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// What is to be done with a command.
#[derive(Debug)]
pub(super) enum Entry {
    /// It begins now.
    Now(Box<Said>, Place),
    /// It waits with others.
    Later,
    /// It waits, and somebody has to begin what waits: [`Room::next`] until there is none.
    First,
}

impl Room {
    /// Empty room.
    pub(super) fn new() -> Arc<Self> {
        let of = |places| Arc::new(Semaphore::new(places));
        Arc::new(Self {
            underway: of(limit::COMMANDS_PER_CONNECTION_MAX),
            controls: of(limit::CONTROLS_PER_CONNECTION_MAX),
            slots: of(limit::COMMANDS_WAITING_MAX),
            bytes: of(limit::COMMANDS_WAITING_BYTES_MAX),
            waiting: Mutex::new(None),
        })
    }

    /// Lets a command of so many bytes in. Waits when as many wait as may. None: never, nobody closes the room.
    pub(super) async fn enter(&self, command: Said, bytes: usize) -> Option<Entry> {
        // What depends on others comes behind them.
        if command.command.is_control() && command.command.depends_on.is_empty() {
            let place = Arc::clone(&self.controls).acquire_owned().await.ok()?;
            return Some(Entry::Now(Box::new(command), place));
        }
        if self.waiting.lock().is_none()
            && let Ok(place) = Arc::clone(&self.underway).try_acquire_owned()
        {
            return Some(Entry::Now(Box::new(command), place));
        }
        let _slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let bytes = u32::try_from(bytes.min(limit::COMMANDS_WAITING_BYTES_MAX)).unwrap_or(u32::MAX);
        let _bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()?;
        let mut waiting = self.waiting.lock();
        let entry = if waiting.is_none() { Entry::First } else { Entry::Later };
        waiting.get_or_insert_default().push_back(Waiting { command, _slot, _bytes });
        Some(entry)
    }

    /// The next one of those that wait, as soon as there is room for it; `begin` is called before any other can be let in.
    /// False: none waits any more.
    pub(super) async fn next(&self, begin: impl FnOnce(Said, Place)) -> bool {
        let Ok(place) = Arc::clone(&self.underway).acquire_owned().await else { return false };
        let mut all = self.waiting.lock();
        match all.as_mut().and_then(VecDeque::pop_front) {
            Some(Waiting { command, .. }) => {
                begin(command, place);
                true
            }
            None => {
                *all = None;
                false
            }
        }
    }

    /// Waits until every command that was begun has its answer.
    pub(super) async fn settled(&self) {
        drop(all(&self.underway, limit::COMMANDS_PER_CONNECTION_MAX).await);
    }

    /// Waits until every command that was let in has its answer, those that wait and controls too. For when no more come.
    pub(super) async fn empty(&self) {
        drop(all(&self.slots, limit::COMMANDS_WAITING_MAX).await);
        self.settled().await;
        drop(all(&self.controls, limit::CONTROLS_PER_CONNECTION_MAX).await);
    }
}

async fn all(places: &Semaphore, count: usize) -> Option<tokio::sync::SemaphorePermit<'_>> {
    places.acquire_many(u32::try_from(count).unwrap_or(u32::MAX)).await.ok()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::app::Message;

    fn command(text: &str) -> Said {
        let Ok(Message::Command(command)) = Message::parse(text.as_bytes()) else { panic!("{text}") };
        Said { command: *command, text: None }
    }

    fn read(id: usize) -> Said {
        command(&format!(r#"{{"type":"list_sessions","id":"{id}"}}"#))
    }

    #[test]
    fn a_control_goes_past_what_has_no_room_and_the_others_keep_their_order() {
        let room = Room::new();
        let enter = |command: Said, bytes| room.enter(command, bytes).now_or_never().map(|entry| entry.unwrap());
        let mut held = Vec::new();
        for id in 0..limit::COMMANDS_PER_CONNECTION_MAX {
            let Some(Entry::Now(_, place)) = enter(read(id), 10) else { panic!("room for {id}") };
            held.push(place);
        }
        assert!(matches!(enter(read(1_000), 10), Some(Entry::First)));
        assert!(matches!(enter(read(1_001), 10), Some(Entry::Later)));
        let abort = r#"{"type":"abort","sessionId":"s-1"}"#;
        let Some(Entry::Now(_, control)) = enter(command(abort), 10) else { panic!("a control has room") };
        let behind = r#"{"type":"abort","sessionId":"s-1","dependsOn":["1000"]}"#;
        assert!(matches!(enter(command(behind), 10), Some(Entry::Later)), "it is to come behind another");
        drop(control);
        let mut begun = Vec::new();
        assert!(room.next(|_, _| ()).now_or_never().is_none(), "no room");
        held.pop();
        // One comes while there is room, and others wait: it is not faster than they are.
        assert!(matches!(enter(read(1_002), 10), Some(Entry::Later)));
        held.clear();
        while room.next(|command, _| begun.push(command.command.id)).now_or_never() == Some(true) {}
        assert_eq!(begun, [Some("1000".into()), Some("1001".into()), None, Some("1002".into())]);
        assert!(matches!(enter(read(1_003), 10), Some(Entry::Now(..))), "none waits any more");
        assert!(room.empty().now_or_never().is_some());
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_in_bytes() {
        for (count, bytes) in [(limit::COMMANDS_WAITING_MAX, 1), (4, limit::COMMANDS_WAITING_BYTES_MAX / 4)] {
            let room = Room::new();
            let _held: Vec<_> = (0..limit::COMMANDS_PER_CONNECTION_MAX)
                .map(|id| room.enter(read(id), 1).now_or_never().unwrap())
                .collect();
            for id in 0..count {
                assert!(room.enter(read(1_000 + id), bytes).now_or_never().is_some(), "{id}");
            }
            assert!(room.enter(read(2_000), bytes).now_or_never().is_none(), "{count} of {bytes} bytes");
            assert!(room.empty().now_or_never().is_none());
        }
        // One that is larger than all room waits by itself.
        let room = Room::new();
        let _held: Vec<_> =
            (0..limit::COMMANDS_PER_CONNECTION_MAX).map(|id| room.enter(read(id), 1).now_or_never().unwrap()).collect();
        assert!(room.enter(read(1), 2 * limit::COMMANDS_WAITING_BYTES_MAX).now_or_never().is_some());
        assert!(room.enter(read(2), 1).now_or_never().is_none());
    }
}
