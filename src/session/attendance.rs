//! Clients that are there without looking at one session: at all of theirs, or with an open line. Each session of such a client
//! has somebody who can be asked.
//!
//! Invariant: a session in memory counts the lines of its client, whichever of both came first; both change under the shelf's lock.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::manager::{Manager, Shelf};
use crate::protocol::ClientId;

/// How many lines each client has open.
#[derive(Debug, Default)]
pub(super) struct Attendance(Mutex<HashMap<Option<ClientId>, usize>>);

impl Attendance {
    /// Lines of a client.
    pub(super) fn of(&self, client: Option<&ClientId>) -> usize {
        self.0.lock().get(&client.cloned()).copied().unwrap_or(0)
    }

    /// All who are there.
    pub(super) fn clients(&self) -> Vec<Option<ClientId>> {
        self.0.lock().keys().cloned().collect()
    }
}

/// While it lives, every session of its client has somebody who can be asked.
pub struct Attending {
    shelf: Arc<Shelf>,
    client: Option<ClientId>,
}

impl std::fmt::Debug for Attending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attending").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Manager {
    /// A client is there, for all of its sessions.
    pub fn attend(&self, client: Option<ClientId>) -> Attending {
        let lives = self.shelf.lives.lock();
        *self.shelf.attendance.0.lock().entry(client.clone()).or_default() += 1;
        for live in lives.values().filter(|live| live.client == client) {
            live.joined();
        }
        drop(lives);
        Attending { shelf: Arc::clone(&self.shelf), client }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let lives = self.shelf.lives.lock();
        let mut attendance = self.shelf.attendance.0.lock();
        if let Some(count) = attendance.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                attendance.remove(&self.client);
            }
        }
        for live in lives.values().filter(|live| live.client == self.client) {
            live.left();
        }
    }
}
