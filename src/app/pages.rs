//! The log in pages, for who would rather ask than listen.

use super::{App, Caller};
use crate::base::limit;
use crate::protocol::{ApiError, Event, Item, Page, SessionId, SessionView};
use crate::session::{items as items_of, items_back, store_failure};

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
    /// A session with a picture of it at one event, from which its stream goes on: the newest items, at most `limit`, and
    /// what is under way.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn snapshot(&self, caller: &Caller, id: &SessionId, limit: usize) -> Result<SessionView, ApiError> {
        self.live(caller, id).await?.snapshot(limit.clamp(1, limit::PAGE_ITEMS_MAX)).await
    }

    /// The history, oldest first, behind item number `after` (an event's number), at most `limit`. A page may have fewer: while
    /// there is a cursor there are more.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn history(
        &self,
        caller: &Caller,
        id: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Page<Item>, ApiError> {
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        self.session(caller, id).await?;
        let (mut items, mut at, mut bytes): (Vec<Item>, _, _) = (Vec::new(), after, 0);
        loop {
            let events = self.store.events(id, at, limit::PAGE_ITEMS_MAX).await.map_err(|e| store_failure(&e))?;
            let Some(last) = events.last() else { return Ok(Page { items, next_cursor: None }) };
            at = last.seq;
            for event in &events {
                let Some(item) = items_of(std::slice::from_ref(event)).pop() else { continue };
                if items.len() >= limit || bytes >= PAGE_BYTES_MAX {
                    let next_cursor = items.last().map(|item| item.seq.to_string());
                    return Ok(Page { items, next_cursor });
                }
                bytes += event.payload.get().len();
                items.push(item);
            }
        }
    }

    /// The history backwards, the newest item first, from the newest on or in front of event `before`; at most `limit`. A
    /// page may have fewer, and even none: while there is a cursor, to be given as `before`, there may be more.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub async fn history_back(
        &self,
        caller: &Caller,
        id: &SessionId,
        (before, limit): (Option<u64>, usize),
    ) -> Result<Page<Item>, ApiError> {
        let limit = limit.clamp(1, limit::PAGE_ITEMS_MAX);
        let end = self.session(caller, id).await?.last_seq.saturating_add(1);
        let before = before.map_or(end, |before| before.min(end));
        let read = items_back(self.store.as_ref(), id, before, limit).await;
        let (items, next) = read.map_err(|e| store_failure(&e))?;
        Ok(Page { items, next_cursor: next.map(|seq| seq.to_string()) })
    }

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
        let end = self.session(caller, id).await?.last_seq;
        let takes =
            |event: &Event| wanted.types.as_ref().is_none_or(|types| types.iter().any(|kind| *kind == event.kind));
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
