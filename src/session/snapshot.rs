//! A session at one moment: the picture behind one event of its log, from which the stream goes on.
//!
//! What the actor alone knows (its row, its queue, which turn it has) is taken when all that it made is in the log; all the
//! rest is read from the log up to that event, so that the picture and the stream can never disagree.

use super::history::{is_item, items};
use super::live::Live;
use super::store_failure;
use super::tally::Tally;
use crate::protocol::{
    ApiError, Display, Event, EventBody, Item, OpenCall, RequestId, SessionId, SessionView, Snapshot, TurnId,
    TurnRecord, Underway, Usage,
};
use crate::store::{Store, StoreError};

/// Events that are read at once.
const PAGE: usize = 1_000;
/// Events that one page of items looks through, at most.
const SCAN_MAX: usize = 50_000;
/// Bytes of the events in one page of items, about.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Bytes that are kept of what a running call has written.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What the actor knows beside the log, at the moment of its view's last event.
pub(super) struct Stand {
    /// The session, with the turn that runs or is paused.
    pub(super) view: SessionView,
    /// The session's messages and tokens without that turn.
    pub(super) ended: (u64, Usage),
    /// Turns that wait.
    pub(super) queue: Vec<TurnRecord>,
    /// What sessions under it ask, which is answered here too.
    pub(super) below: Vec<EventBody>,
}

impl Live {
    /// The session as it is now, with a picture of it: the newest items of its history, at most `limit`, and what is under way.
    ///
    /// # Errors
    /// `NOT_FOUND` when it has just been deleted; what the store says.
    pub async fn snapshot(&self, limit: usize) -> Result<SessionView, ApiError> {
        let Stand { mut view, ended: (messages, usage), queue, below } = self.stand().await?;
        let (store, seq) = (self.store.as_ref(), view.last_seq);
        let failed = |cause: StoreError| store_failure(&cause);
        let mut open = None;
        view.requests = Vec::new();
        if let Some(turn) = &mut view.turn {
            let first = turn.first_seq.unwrap_or(1);
            let read = Read::of(store, &self.id, &turn.turn_id, (first, seq)).await.map_err(failed)?;
            (turn.rounds, turn.usage) = (read.tally.rounds, read.tally.usage);
            view.message_count = messages + read.tally.messages;
            view.usage = usage.plus(read.tally.usage);
            view.requests = read.requests.into_iter().map(|(_, request)| request).collect();
            let (text, reasoning) = (read.text, Some(read.reasoning).filter(|text| !text.is_empty()));
            let (calls, displays) = (read.calls, read.displays);
            open = Some(Underway { turn_id: turn.turn_id.clone(), text, reasoning, calls, displays });
        }
        view.requests.extend(below);
        let (mut items, before) = items_back(store, &self.id, seq.saturating_add(1), limit).await.map_err(failed)?;
        items.reverse();
        let before = before.map(|seq| seq.to_string());
        view.snapshot = Some(Box::new(Snapshot { seq, items, before, open, queue }));
        Ok(view)
    }
}

/// The newest items in front of event `before`, at most `limit`, the newest first; and what is given as `before` for
/// those in front of them, while there may be some. There may be fewer than were asked for, and even none.
///
/// # Errors
/// What the store says.
pub async fn items_back(
    store: &dyn Store,
    session: &SessionId,
    before: u64,
    limit: usize,
) -> Result<(Vec<Item>, Option<u64>), StoreError> {
    let (mut found, mut seen, mut bytes, mut stretch) = (Vec::new(), 0, 0, PAGE);
    let mut end = before.min(store.last_seq(session).await?.saturating_add(1));
    while end > 1 && seen < SCAN_MAX {
        let after = end.saturating_sub(1 + stretch as u64);
        let events = store.events(session, after, stretch).await?;
        // It was deleted meanwhile.
        let Some(last) = events.last() else { return Ok((found, None)) };
        // They are too large to be read at once: what is missing are the newest.
        if last.seq + 1 < end {
            stretch = (stretch / 4).max(1);
            continue;
        }
        stretch = (stretch * 2).min(PAGE);
        for event in events.iter().rev().filter(|event| event.seq < end && is_item(&event.kind)) {
            let Some(item) = items(std::slice::from_ref(event)).pop() else { continue };
            if found.len() >= limit || bytes >= PAGE_BYTES_MAX {
                return Ok((found, Some(event.seq + 1)));
            }
            bytes += event.payload.get().len();
            found.push(item);
        }
        (end, seen) = (after + 1, seen + events.len());
    }
    Ok((found, (end > 1).then_some(end)))
}

/// What the log has of a turn that is not over.
#[derive(Debug, Default)]
struct Read {
    tally: Tally,
    requests: Vec<(RequestId, EventBody)>,
    text: Option<String>,
    reasoning: String,
    calls: Vec<OpenCall>,
    displays: Vec<Display>,
}

impl Read {
    async fn of(
        store: &dyn Store,
        session: &SessionId,
        turn: &TurnId,
        (first, last): (u64, u64),
    ) -> Result<Self, StoreError> {
        let mut read = Self::default();
        let mut after = first.saturating_sub(1);
        while after < last {
            let events = store.events(session, after, PAGE).await?;
            let Some(newest) = events.last() else { break };
            after = newest.seq;
            for event in events.iter().filter(|event| event.turn_id.as_ref() == Some(turn) && event.seq <= last) {
                read.push(event);
            }
        }
        Ok(read)
    }

    fn push(&mut self, event: &Event) {
        let Some(body) = event.body() else { return };
        self.tally.push(&body);
        match body {
            EventBody::StreamStart {} | EventBody::StreamRetry { .. } => {
                self.text = Some(String::new());
                self.reasoning.clear();
            }
            EventBody::StreamDelta { text } => self.text.get_or_insert_default().push_str(&text),
            EventBody::StreamReasoning { text } => self.reasoning.push_str(&text),
            EventBody::StreamComplete { .. } => {
                self.text = None;
                self.reasoning.clear();
            }
            EventBody::ToolCallStart { call_id, name, args: arguments } => {
                let (at, output) = (event.at, String::new());
                self.calls.push(OpenCall { call_id, name, arguments, at, output, skipped_bytes: 0 });
            }
            EventBody::ToolCallOutput { call_id, text, skipped_bytes, .. } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) {
                    wrote(call, &text, skipped_bytes);
                }
            }
            EventBody::ToolCallEnd { call_id, .. } => self.calls.retain(|call| call.call_id != call_id),
            EventBody::PermissionRequest { ref request_id, .. } | EventBody::ClientRequest { ref request_id, .. } => {
                self.requests.push((request_id.clone(), body));
            }
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
                self.requests.retain(|(id, _)| *id != request_id);
            }
            EventBody::ClientDisplay { display, .. } => display.put(&mut self.displays),
            _ => {}
        }
    }
}

/// A piece more of what a call has written. Pieces behind a hole stand alone: what lies before it is left out with it.
fn wrote(call: &mut OpenCall, text: &str, skipped: u64) {
    if skipped > 0 {
        call.skipped_bytes += skipped + call.output.len() as u64;
        call.output.clear();
    }
    call.output.push_str(text);
    let over = call.output.len().saturating_sub(OUTPUT_BYTES_MAX);
    let cut = call.output.ceil_char_boundary(over);
    call.output.drain(..cut);
    call.skipped_bytes += cut as u64;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::session::manager::event_of;
    use crate::session::manager::tests::{created, manager};
    use crate::store::{MemoryStore, Write};

    fn body(kind: &str, payload: Value) -> EventBody {
        serde_json::from_value(json!({ "type": kind, "payload": payload })).unwrap()
    }

    #[test]
    fn what_is_under_way_is_what_has_begun_and_not_ended() {
        let call = |id: &str| body("tool.call.start", json!({"callId": id, "name": "t", "args": {}}));
        let end = |id: &str| {
            body("tool.call.end", json!({"callId": id, "name": "t", "output": "", "isError": false, "durationMs": 1}))
        };
        let wrote = |id: &str, text: &str, skipped: u64| {
            body("tool.call.output", json!({"callId": id, "name": "t", "text": text, "skippedBytes": skipped}))
        };
        let delta = |text: &str| body("stream.delta", json!({"text": text}));
        let thinks = |text: &str| body("stream.reasoning", json!({"text": text}));
        let begin = || body("stream.start", json!({}));
        let retry = || body("stream.retry", json!({"attempt": 2, "delayMs": 1, "error": "e"}));
        let said = |text: &str| body("stream.complete", json!({"text": text}));
        let ask = body(
            "client.request",
            json!({"requestId": "q", "question": {"kind": "confirm", "title": "t"}, "deadline": 1}),
        );
        let reply = body("client.response", json!({"requestId": "q", "cancelled": true, "by": "timeout"}));
        let shown = |key: &str, text: Value| {
            body("client.display", json!({"display": {"kind": "status", "key": key, "text": text}}))
        };
        let long = "\u{e9}".repeat(OUTPUT_BYTES_MAX);
        let kept = long.len() - OUTPUT_BYTES_MAX;
        #[rustfmt::skip]
        let table: Vec<(Vec<EventBody>, Value)> = vec![
            (vec![], json!([null, "", [], 0])),
            (vec![begin()], json!(["", "", [], 0])),
            (vec![begin(), thinks("h"), thinks("m"), delta("a"), delta("b")], json!(["ab", "hm", [], 0])),
            (vec![begin(), thinks("h"), delta("a"), retry(), delta("b")], json!(["b", "", [], 0])),
            (vec![begin(), thinks("h"), delta("a"), said("a"), call("1"), call("2")], json!([null, "", [["1", "", 0], ["2", "", 0]], 0])),
            (vec![call("1"), call("2"), ask.clone(), end("1")], json!([null, "", [["2", "", 0]], 1])),
            (vec![call("1"), ask, reply], json!([null, "", [["1", "", 0]], 0])),
            (vec![call("1"), wrote("1", "a", 0), wrote("1", "b", 0)], json!([null, "", [["1", "ab", 0]], 0])),
            (vec![call("1"), wrote("1", "abc", 0), wrote("1", "d", 7)], json!([null, "", [["1", "d", 10]], 0])),
            (vec![call("1"), wrote("1", &long, 0), wrote("1", "x", 0)], json!([null, "", [["1", format!("{}x", &long[kept + 2..]), kept + 2]], 0])),
            (vec![call("1"), end("1"), wrote("1", "late", 0)], json!([null, "", [], 0])),
            (vec![shown("a", json!("1")), shown("b", json!("2")), shown("a", json!("3")), shown("b", Value::Null)], json!([null, "", [], 0, ["3"]])),
        ];
        let session: SessionId = "s".parse().unwrap();
        for (bodies, want) in table {
            let mut read = Read::default();
            for (at, body) in bodies.iter().enumerate() {
                read.push(&event_of(&session, at as u64 + 1, None, body));
            }
            let calls: Vec<_> =
                read.calls.iter().map(|call| json!([call.call_id, call.output, call.skipped_bytes])).collect();
            let texts: Vec<_> = read
                .displays
                .iter()
                .filter_map(|shown| serde_json::to_value(shown).ok()?.get("text").cloned())
                .collect();
            let mut got = json!([read.text, read.reasoning, calls, read.requests.len()]);
            if !texts.is_empty() {
                got.as_array_mut().expect("a list").push(json!(texts));
            }
            assert_eq!(got, want, "{bodies:?}");
        }
    }

    #[tokio::test]
    async fn items_are_read_backwards_over_any_number_of_events_between_them() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let id = created(&manager(Arc::clone(&store), std::time::Duration::from_secs(30))).await;
        // Items at 2, 3, 1003, 1004, and far behind a flood of deltas.
        let last = 1_010 + SCAN_MAX as u64 + 2 * PAGE as u64;
        let at = [2, 3, 1_003, 1_004, last];
        let said = |text: &str| EventBody::StreamComplete { text: text.into(), original: None };
        let bodies = (2..=last).map(|seq| {
            let delta = EventBody::StreamDelta { text: "d".into() };
            event_of(&id, seq, None, &if at.contains(&seq) { said("x") } else { delta })
        });
        let write = Write::Append(id.clone(), Arc::new(bodies.collect()));
        crate::store::commit(&store, vec![write]).await.unwrap();
        for limit in [1, 2, 3, 10] {
            let (mut found, mut before, mut pages) = (Vec::new(), Some(last + 1), 0);
            while let Some(end) = before {
                let (items, next) = items_back(store.as_ref(), &id, end, limit).await.unwrap();
                assert!(items.len() <= limit && next.is_none_or(|next| next < end), "{limit}: {end} {next:?}");
                found.extend(items.iter().map(|item| item.seq));
                (before, pages) = (next, pages + 1);
            }
            assert!(found.iter().rev().eq(&at), "{limit}: {found:?}");
            assert!(pages > 1, "the flood is not read at once");
        }
    }
}
