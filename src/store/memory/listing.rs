//! Lists over the sessions of a store in memory.

use std::ops::Bound;

use super::{State, Told};
use crate::protocol::SessionId;
use crate::store::lifecycle::{LifecyclePage, PAGE_BYTES_MAX};
use crate::store::{SessionRow, StoreError};

impl State {
    /// A client's lifecycle events behind a place.
    pub(super) fn lifecycle(&self, client: &str, after: u64, limit: usize) -> LifecyclePage {
        let mut page = LifecyclePage { entries: Vec::new(), upto: after };
        let Some(of) = self.lifecycles.get(client) else { return page };
        let (from, mut bytes) = (of.entries.partition_point(|(place, _)| *place <= after), 0);
        for (place, told) in of.entries.range(from..).take(limit) {
            page.upto = *place;
            let event = match told {
                Told::Gone(event) => Some(event),
                Told::Event { number, seq } => self.sessions.get(number).and_then(|held| {
                    let at = held.events.binary_search_by_key(seq, |event| event.seq).ok()?;
                    held.events.get(at)
                }),
            };
            let Some(event) = event else { continue };
            bytes += event.payload.get().len();
            page.entries.push((*place, event.clone()));
            if bytes >= PAGE_BYTES_MAX {
                break;
            }
        }
        page
    }

    /// Sessions under a root, newest first.
    pub(super) fn family(
        &self,
        root: &SessionId,
        after: Option<&SessionId>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let below = match after {
            Some(id) => Bound::Excluded(*self.numbers.get(id).ok_or_else(|| StoreError::NoSession(id.clone()))?),
            None => Bound::Unbounded,
        };
        let rows = self.sessions.range((Bound::Unbounded, below)).rev().map(|(_, held)| &held.row);
        let under = |row: &&SessionRow| row.lineage.as_ref().and_then(|lineage| lineage.root()) == Some(root);
        Ok(rows.filter(under).take(limit).cloned().collect())
    }

    /// Sessions that have not done with those under them.
    pub(super) fn with_children(&self) -> Vec<SessionRow> {
        let rows = self.sessions.values().map(|held| &held.row);
        rows.filter(|row| !row.children.is_empty()).cloned().collect()
    }
}
