//! What is remembered of commands, in memory.

use std::collections::{HashMap, VecDeque};

use crate::store::OutcomeRow;

/// What is remembered of commands.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) rows: HashMap<String, OutcomeRow>,
    /// Their names, oldest first; those whose row was replaced stand there twice.
    pub(super) order: VecDeque<(u64, String)>,
}

impl Outcomes {
    pub(super) fn save(&mut self, row: OutcomeRow) {
        let kept = row.expired_before..=row.wrong_behind;
        match self.rows.get_mut(&row.name) {
            Some(old) if row.replaces(old) => {
                self.order.push_back((row.at, row.name.clone()));
                *old = row;
            }
            Some(_) => {}
            None => {
                self.order.push_back((row.at, row.name.clone()));
                self.rows.insert(row.name.clone(), row);
            }
        }
        while self.order.front().is_some_and(|(at, _)| !kept.contains(at)) {
            let Some((at, name)) = self.order.pop_front() else { return };
            if self.rows.get(&name).is_some_and(|row| row.at == at) {
                self.rows.remove(&name);
            }
        }
    }
}
