//! What tools remember of sessions that rest: a session that wakes finds it again.
//!
//! A person may change a file between two prompts, long after the session left memory; what it read before has to be
//! known then. Bounded: the sessions that have rested longest are forgotten. Those whose programs go on have a bound of their
//! own; one that is forgotten over it takes its programs along.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::base::limit;
use crate::protocol::SessionId;
use crate::tool::Scope;

/// The scopes of resting sessions, the newest last, and which ones the others hold.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    kept: Mutex<VecDeque<(SessionId, Arc<Scope>)>>,
    held: Mutex<HashMap<SessionId, Weak<Scope>>>,
}

impl Scopes {
    /// Keeps the scope of a session that leaves memory.
    pub fn keep(&self, id: &SessionId, scope: &Arc<Scope>) {
        self.held.lock().remove(id);
        let mut kept = self.kept.lock();
        kept.retain(|(other, _)| other != id);
        kept.push_back((id.clone(), Arc::clone(scope)));
        let busy = |scope: &Arc<Scope>| !scope.consoles.is_empty();
        let mut forgotten = Vec::new();
        for (is_busy, max) in [(false, limit::RESTING_SCOPES_MAX), (true, limit::RESTING_PROGRAM_SCOPES_MAX)] {
            if kept.iter().filter(|(_, scope)| busy(scope) == is_busy).count() > max
                && let Some(oldest) = kept.iter().position(|(_, scope)| busy(scope) == is_busy)
            {
                forgotten.extend(kept.remove(oldest));
            }
        }
        // Their programs end with them, and nobody waits for that here.
        drop(kept);
    }

    /// The scope of a session that wakes; an empty one when nothing is remembered.
    pub fn take(&self, id: &SessionId) -> Arc<Scope> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(other, _)| other == id);
        let scope = at.and_then(|at| kept.remove(at)).map(|(_, scope)| scope).unwrap_or_default();
        self.held.lock().insert(id.clone(), Arc::downgrade(&scope));
        scope
    }

    /// How many sessions rest: those of which nothing goes on, and those whose programs do.
    pub fn resting(&self) -> [usize; 2] {
        let kept = self.kept.lock();
        let busy = kept.iter().filter(|(_, scope)| !scope.consoles.is_empty()).count();
        [kept.len() - busy, busy]
    }

    /// The most of something that one session has, awake or resting.
    pub fn most(&self, of: impl Fn(&Scope) -> usize) -> usize {
        let awake = self.held.lock().values().filter_map(Weak::upgrade).map(|scope| of(&scope)).max();
        let resting = self.kept.lock().iter().map(|(_, scope)| of(scope)).max();
        awake.max(resting).unwrap_or(0)
    }

    /// The scope of a session that is awake.
    pub fn of(&self, id: &SessionId) -> Option<Arc<Scope>> {
        self.held.lock().get(id).and_then(Weak::upgrade)
    }

    /// Ends the programs of a session that is deleted, and forgets it.
    pub async fn end(&self, id: &SessionId, scope: &Scope) {
        self.held.lock().remove(id);
        scope.consoles.end_all().await;
    }

    /// Ends the programs of all sessions.
    pub async fn end_all(&self) {
        let mut all: Vec<Arc<Scope>> = self.kept.lock().iter().map(|(_, scope)| Arc::clone(scope)).collect();
        all.extend(self.held.lock().values().filter_map(Weak::upgrade));
        all.iter().for_each(|scope| scope.consoles.stop_all());
        for scope in all {
            scope.consoles.end_all().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_each_is_found_once() {
        let scopes = Scopes::default();
        let id = |n: usize| format!("ses_{n}").parse::<SessionId>().unwrap();
        let made: Vec<Arc<Scope>> = (0..=limit::RESTING_SCOPES_MAX).map(|_| Arc::default()).collect();
        made.iter().enumerate().for_each(|(n, scope)| scopes.keep(&id(n), scope));
        assert!(!Arc::ptr_eq(&scopes.take(&id(0)), &made[0]), "the oldest has gone");
        assert!(Arc::ptr_eq(&scopes.take(&id(1)), &made[1]));
        assert!(!Arc::ptr_eq(&scopes.take(&id(1)), &made[1]), "taken already");
        let again = Arc::default();
        scopes.keep(&id(2), &again);
        assert!(Arc::ptr_eq(&scopes.take(&id(2)), &again));
    }
}
