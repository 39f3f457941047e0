//! The log in pages, for who would rather ask than listen.

use super::{App, Caller};
use crate::base::limit;
use crate::protocol::{ApiError, Event, Page, SessionId};
use crate::session::store_failure;

/// Events that one page looks through, at most: a rare type in a long log takes several pages, some of them empty.
const SCAN_MAX: usize = 50_000;
/// Bytes of payloads in one page, about.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Which part of the log is wanted.
#[derive(Debug, Default)]
pub struct EventPage {
    /// Behind this event; 0: from the first on.
    pub after: u64,
    /// At most so many.
    pub limit: usize,
    /// Only these types. None: all.
    pub types: Option<Vec<String>>,
}

impl App {
    /// Events of the log, oldest first, exactly as streams show them. A page may have fewer than were asked for, and even
    /// none: while there is a cursor there may be more.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn event_page(
        &self,
        caller: &Caller,
        id: &SessionId,
        wanted: EventPage,
    ) -> Result<Page<Event>, ApiError> {
        let count_max = wanted.limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let end = self.sessions.view(caller.client.as_ref(), id).await?.last_seq;
        let takes = |event: &Event| wanted.types.as_ref().is_none_or(|types| types.contains(&event.kind));
        let (mut items, mut at, mut seen, mut bytes) = (Vec::new(), wanted.after, 0, 0);
        while at < end && seen < SCAN_MAX {
            let events = self.store.events(id, at, limit::PAGE_ITEMS_MAX).await.map_err(|e| store_failure(&e))?;
            // It was deleted meanwhile.
            let Some(last) = events.last().map(|last| last.seq) else { break };
            for event in events {
                if items.len() >= count_max || bytes >= PAGE_BYTES_MAX {
                    return Ok(Page { items, next_cursor: Some(at.to_string()) });
                }
                (at, seen) = (event.seq, seen + 1);
                if takes(&event) {
                    bytes += event.payload.get().len();
                    items.push(event);
                }
            }
            at = last;
        }
        let next_cursor = (at < end).then(|| at.to_string());
        Ok(Page { items, next_cursor })
    }
}
