//! What the programs of one session share: numbers by which they know each other, a network that has nothing but a loopback,
//! shared memory, and the rooms that were prepared for them.
//!
//! A session has it from its first program on. Of those in which nothing runs any more the ones used last are kept, the
//! others are given back and made anew when they are needed: a session that rests costs nothing.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::holder::Holder;
use super::room::Room;
use super::{Policy, support};

/// Homes that are kept although nothing runs in them.
const HOMES_KEPT: usize = 16;

/// Those that have a home, the one used last at the end.
static HOMES: Mutex<Vec<Weak<Loopback>>> = Mutex::new(Vec::new());

/// Where the programs of one session live.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) holder: Holder,
    /// The last that was made is the last here.
    pub(super) rooms: Mutex<Vec<Arc<Room>>>,
}

/// A way into a home, and what keeps it there.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) home: Arc<Home>,
    /// The holder's.
    pub(super) handle: OwnedFd,
}

impl Entry {
    /// # Errors
    /// When there are too many open files.
    pub(super) fn new(home: Arc<Home>) -> io::Result<Self> {
        Ok(Self { handle: home.holder.handle()?, home })
    }
}

impl Home {
    /// The room of a policy, if one was made.
    pub(super) fn room(&self, policy: &Policy) -> Option<Arc<Room>> {
        self.rooms.lock().iter().find(|room| room.policy == *policy).cloned()
    }
}

/// What the programs of one session share. When nobody holds it any more, all that runs there is ended.
#[derive(Debug, Default)]
pub struct Loopback {
    /// None: nothing has run yet, or nothing runs any more.
    home: Mutex<Option<Arc<Home>>>,
    /// Places that were searched for repositories, and what was found.
    pub(super) searched: Mutex<Vec<(PathBuf, Arc<Vec<PathBuf>>)>>,
    /// What git would follow and was not there.
    pub(super) absent: Mutex<BTreeSet<PathBuf>>,
}

impl Loopback {
    /// Nothing yet. None where [`support`] says that there are no name spaces. Blocking, the first time.
    pub fn make() -> Option<Arc<Self>> {
        support().namespaces.then(Arc::default)
    }

    /// The home; made where there is none. Blocks for as long as it takes to start a program then.
    ///
    /// # Errors
    /// When the kernel refuses: too many name spaces, processes, open files.
    pub(super) fn home(self: &Arc<Self>) -> io::Result<Arc<Home>> {
        let mut kept = self.home.lock();
        if let Some(home) = kept.as_ref().filter(|home| home.holder.lives()) {
            return Ok(Arc::clone(home));
        }
        let home = Arc::new(Home { holder: Holder::start(support())?, rooms: Mutex::default() });
        *kept = Some(Arc::clone(&home));
        drop(kept);
        self.note_use();
        Ok(home)
    }

    /// Is the last to be given back, and gives back what is too much.
    pub(super) fn note_use(self: &Arc<Self>) {
        let mut homes = HOMES.lock();
        let own = Arc::downgrade(self);
        homes.retain(|other| !other.ptr_eq(&own) && other.strong_count() > 0);
        homes.push(own);
        let mut surplus = homes.len().saturating_sub(HOMES_KEPT);
        homes.retain(|other| {
            let gone = surplus > 0 && other.upgrade().is_none_or(|other| other.give_back());
            surplus -= usize::from(gone);
            !gone
        });
    }

    /// Gives the home back, unless something runs there. Whether there is none any more.
    fn give_back(&self) -> bool {
        // One that is busy with it is not idle.
        let Some(mut kept) = self.home.try_lock() else { return false };
        let idle = |home: &Arc<Home>| Arc::strong_count(home) == 1 && home.holder.has_no_children();
        if kept.as_ref().is_some_and(|home| !idle(home)) {
            return false;
        }
        *kept = None;
        true
    }

    #[cfg(test)]
    pub(super) fn has_home(&self) -> bool {
        self.home.lock().is_some()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // Also when a program that is on its way out still holds the home.
        if let Some(home) = self.home.get_mut() {
            home.holder.end();
        }
    }
}
