//! What can be prepared once for all programs of a session that are held to the same policy: their view of the files, kept
//! as a mount name space that each of them enters, and the rules of Landlock.
//!
//! A room is made anew when something that it lays a mount on, or gives a right to, is another file by now. What git
//! would follow and must not come into being ([`Guarded::absent`]) cannot be held by a mount: it is taken away whenever a
//! program has ended, and before the next begins.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::thread::ThreadNameSpaceType;

use super::child::{Gear, Network, Spaces};
use super::guard::{self, Guarded};
use super::home::{Entry, Loopback};
use super::linux::{self, TEMPORARY};
use super::{Level, Policy, support};
use crate::base::beneath::{STEP, way};

/// Rooms that one session keeps; a shell and git together have four.
const ROOMS_MAX: usize = 8;
/// Places of one session that were searched for repositories; another one takes the place of the oldest.
const SEARCHED_MAX: usize = 64;

/// A prepared room.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) policy: Policy,
    pub(super) mounts: OwnedFd,
    pub(super) gear: Arc<Gear>,
    /// What it stands on, and who was there.
    seen: Vec<(PathBuf, Option<(u64, u64)>)>,
}

impl Room {
    fn stands(&self) -> bool {
        self.seen.iter().all(|(path, then)| guard::identity(path) == *then)
    }
}

impl Loopback {
    /// Makes sure that programs of this policy find a room. Blocks for as long as it takes to start a program, the first time.
    ///
    /// # Errors
    /// When the kernel refuses. Each start is then prepared by itself.
    pub fn furnish(self: &Arc<Self>, policy: &Policy) -> io::Result<()> {
        self.tidy();
        let home = self.home()?;
        self.note_use();
        if !linux::may_enter_rooms() || home.room(policy).is_some_and(|room| room.stands()) {
            return Ok(());
        }
        let guarded = self.guarded(policy);
        let places = linux::writable(policy, &[]);
        let paths = places.iter().chain(&policy.hidden).chain(&policy.kept).chain(&guarded.pinned);
        let paths = paths.chain(&guarded.links).chain(&guarded.frozen);
        let seen = paths.map(|path| (path.clone(), guard::identity(path))).collect();
        let mounts = linux::mounts(policy, &guarded);
        let plain = Spaces::new(&places, mounts, Path::new("/"));
        let gear = Arc::new(linux::rules(support(), policy, &[], home.holder.numbers)?);
        let rules = Some(Arc::clone(&gear));
        // It begins as a copy of the holder's view, which has a `/proc` of their numbers.
        let (entry, joins) = (Entry::new(Arc::clone(&home))?, ThreadNameSpaceType::MOUNT);
        let spaces = Spaces { network: Network::Whole, home: Some(entry), joins, rules, ..plain };
        let mut held = linux::held(spaces, &["mnt"])?.into_iter();
        let mounts = held.next().ok_or(io::ErrorKind::NotFound)?;
        self.absent.lock().extend(guarded.absent);
        let room = Room { policy: policy.clone(), mounts, gear, seen };
        let mut rooms = home.rooms.lock();
        rooms.retain(|room| room.policy != *policy);
        if rooms.len() == ROOMS_MAX {
            rooms.remove(0);
        }
        rooms.push(Arc::new(room));
        Ok(())
    }

    /// Takes away what programs put where git would follow it. One look for each repository.
    pub fn tidy(&self) {
        let absent = self.absent.lock().clone();
        for path in absent {
            let (Some(_), Some(git), Some(name)) = (guard::identity(&path), path.parent(), path.file_name()) else {
                continue;
            };
            // Through no link: the directory may have been exchanged for one that leads elsewhere.
            let removed =
                way().open_absolute(git, STEP).and_then(|open| Ok(rustix::fs::unlinkat(open, name, AtFlags::empty())?));
            tracing::warn!(path = %path.display(), ?removed, "a sandboxed program redirected a git repository");
        }
    }

    /// What is guarded in the places of a policy. Searched for repositories once a session.
    fn guarded(&self, policy: &Policy) -> Guarded {
        if policy.git_settings || policy.level == Level::ReadOnly {
            return Guarded::default();
        }
        let mut repositories = Vec::new();
        for place in policy.writable.iter().filter(|place| !TEMPORARY.iter().any(|t| Path::new(t) == *place)) {
            let mut searched = self.searched.lock();
            let known = searched.iter().find(|(known, _)| known == place).map(|(_, found)| Arc::clone(found));
            let found = known.unwrap_or_else(|| {
                let found = Arc::new(guard::repositories(place));
                if searched.len() == SEARCHED_MAX {
                    searched.remove(0);
                }
                searched.push((place.clone(), Arc::clone(&found)));
                found
            });
            repositories.push(place.join(".git"));
            repositories.extend(found.iter().filter(|git| **git != place.join(".git")).cloned());
        }
        guard::guarded(&repositories, &linux::writable(policy, &[]))
    }
}
