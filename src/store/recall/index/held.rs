//! Which projects are in memory: those that were searched last, as many as there is room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

use super::Index;
use crate::base::limit;

/// Projects that are remembered at all, so that looking for one is short.
const PROJECTS_MAX: usize = 64;

/// A project that has been searched.
#[derive(Default)]
pub(in crate::store::recall) struct Held {
    state: Mutex<State>,
    bytes: AtomicUsize,
}

/// What there is of it.
#[derive(Default)]
pub(in crate::store::recall) struct State {
    index: Option<Index>,
    /// With so many texts it did not fit. 0: that is not known.
    too_many: usize,
}

/// The projects of one store, the one that was searched last at the end.
pub(in crate::store::recall) struct Indexes {
    held: Mutex<Vec<(String, Arc<Held>)>>,
    bytes_max: usize,
}

impl Default for Indexes {
    fn default() -> Self {
        Self { held: Mutex::default(), bytes_max: limit::MEMORY_INDEX_BYTES_MAX }
    }
}

impl Indexes {
    /// The same with room for so much.
    #[cfg(test)]
    pub(in crate::store::recall) fn within(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Forgets all of them.
    pub(in crate::store::recall) fn clear(&self) {
        self.held.lock().clear();
    }

    /// The place of a project.
    pub(in crate::store::recall) fn of(&self, project: &str) -> Arc<Held> {
        let mut held = self.held.lock();
        let found = held.iter().position(|(name, _)| name == project);
        let entry = found.map_or_else(|| (project.to_owned(), Arc::default()), |at| held.remove(at));
        let place = Arc::clone(&entry.1);
        held.push(entry);
        place
    }

    /// Makes room: who was searched longest ago goes.
    pub(in crate::store::recall) fn trim(&self) {
        let mut held = self.held.lock();
        let mut bytes: usize = held.iter().map(|(_, held)| held.bytes.load(Ordering::Relaxed)).sum();
        while held.len() > 1 && (held.len() > PROJECTS_MAX || bytes > self.bytes_max) {
            bytes -= held.remove(0).1.bytes.load(Ordering::Relaxed);
        }
    }

    /// How much each project takes.
    #[cfg(test)]
    pub(in crate::store::recall) fn sizes(&self) -> Vec<(String, usize)> {
        self.held.lock().iter().map(|(name, held)| (name.clone(), held.bytes.load(Ordering::Relaxed))).collect()
    }
}

impl Held {
    /// The project, for whoever searches it now.
    pub(in crate::store::recall) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Notes how much the project takes by now.
    pub(in crate::store::recall) fn weigh(&self, state: &State) {
        self.bytes.store(state.index.as_ref().map_or(0, Index::bytes), Ordering::Relaxed);
    }
}

impl State {
    /// Brings the project's index to what the tables are, with the vectors of a model. `texts`: how many there are. None
    /// in the end: it does not fit.
    pub(in crate::store::recall) fn refresh(
        &mut self,
        (connection, indexes): (&Connection, &Indexes),
        (project, texts): (i64, usize),
        vectors: Option<(i64, usize)>,
    ) -> rusqlite::Result<()> {
        // Who did not fit is looked at again when a quarter of it is gone.
        if self.too_many > 0 && texts > self.too_many - self.too_many / 4 {
            return Ok(());
        }
        // What fails half-way is made anew the next time.
        let index = match self.index.take() {
            Some(index) => Some(index),
            None => Index::read(connection, project, indexes.bytes_max)?,
        };
        if let Some(mut index) = index
            && index.refresh(connection, (project, vectors), indexes.bytes_max)?
        {
            (self.index, self.too_many) = (Some(index), 0);
            return Ok(());
        }
        self.too_many = texts.max(1);
        Ok(())
    }

    /// The index, when it fits.
    pub(in crate::store::recall) fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }
}
