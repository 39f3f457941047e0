//! `GET /events`: the caller's own stream over all its sessions (contract.md, The event stream).
//!
//! The events are those of the sessions' logs, to the byte; the line `id:` has their place in this stream, by which it is
//! resumed. `session.deleted` is the one event that no log has.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::call::Call;
use super::headers::{last_event_id, of_the_header};
use super::query::number;
use super::routes::event_types;
use super::sse;
use crate::app::{Begin, LifecyclePage, LifecycleReader, encode_frame};
use crate::base::clock;
use crate::base::metrics::Entered;
use crate::protocol::{ApiError, LIFECYCLE_TYPES};

/// Answers with the stream.
pub(super) async fn open(call: Call) -> Answer {
    let mut query = call.query()?;
    let (after, types) = (query.text("after"), query.text("types"));
    query.finish(&["after", "types"])?;
    let types = types.map(|list| event_types(&list, LIFECYCLE_TYPES)).transpose()?;
    let after = after.map(|text| begin(&text)).transpose()?;
    // A browser that reconnects repeats the address and knows better by now.
    let resumed = last_event_id(&call.head.headers)?;
    let begin = resumed.map(Begin::Behind).or(after).unwrap_or(Begin::Behind(0));
    let reader = call.shared.app.lifecycle(&call.caller, begin).await;
    let reader = reader.map_err(|error| if resumed.is_some() { of_the_header(error) } else { error })?;
    let (heartbeat, stop) = (call.shared.options.heartbeat, call.shared.streams.clone());
    let mut payload = json!({ "position": reader.position() });
    if let Some(since) = reader.told_since() {
        payload["endsSince"] = since.into();
    }
    let first = json!({ "type": "ready", "payload": payload, "at": clock::now_ms() });
    let _open = call.shared.app.meters().streams.enter();
    let feed = Feed { reader, types, heartbeat, stop, _open, first: Some(Bytes::from(format!("data: {first}\n\n"))) };
    let frames = stream::unfold(feed, |mut feed| async move {
        let frame = feed.next().await?;
        Some((Ok::<_, Infallible>(frame), feed))
    });
    Ok(sse::response(Body::from_stream(frames)))
}

fn begin(text: &str) -> Result<Begin, ApiError> {
    if text == "newest" {
        return Ok(Begin::Newest);
    }
    let place = number("after", text).map_err(|_| ApiError::invalid("after", "a whole number, or `newest`"))?;
    Ok(Begin::Behind(place))
}

struct Feed {
    reader: LifecycleReader,
    types: Option<Vec<String>>,
    heartbeat: Duration,
    stop: CancellationToken,
    first: Option<Bytes>,
    /// It is one of those that are open.
    _open: Entered,
}

impl Feed {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let silence = tokio::time::sleep(self.heartbeat);
        tokio::pin!(silence);
        loop {
            let page = tokio::select! {
                // Events first: who watches a stop sees how the turns ended.
                biased;
                page = self.reader.next() => page,
                () = self.stop.cancelled() => return None,
                () = &mut silence => return Some(sse::STILL_HERE),
            };
            match page {
                Ok(Some(page)) => {
                    let frames = self.frames(&page);
                    if !frames.is_empty() {
                        return Some(frames.into());
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(%error, "a stream over all sessions ended: the log failed");
                    return None;
                }
            }
        }
    }

    fn frames(&self, page: &LifecyclePage) -> Vec<u8> {
        let mut out = Vec::new();
        for (place, event) in &page.entries {
            if self.types.as_ref().is_none_or(|types| types.iter().any(|kind| *kind == event.kind)) {
                encode_frame(&mut out, *place, event);
            }
        }
        out
    }
}
