//! Requests of other servers of the store that come through its database: they pass the same guard and go the same way as over the
//! network, and are answered as a whole.
//!
//! A stream of events with an end, such as a turn's, is told at its end. One without an end is refused: each server reads those from the
//! log itself.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;
use super::answer::Failure;
use super::listen::answer;
use super::peer::Peer;
use crate::app::{ANSWER_BYTES_MAX, Arrived, BETWEEN_NODES, LETTERS_MAX, LetterId, URGENT_LETTERS_MAX};
use crate::protocol::{ApiError, ErrorCode};

/// Answers of more bytes are taken in a few at a time, and how many.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_MAX: usize = 8;
/// What a stream of events calls itself.
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// What ends the taking.
pub(super) struct Ends {
    /// Nothing more is taken.
    pub(super) leaving: CancellationToken,
    /// What was taken ends at once.
    pub(super) cut: CancellationToken,
}

/// What all of them need.
struct Desk {
    shared: Arc<Shared>,
    router: Router,
    /// A permit for each large answer.
    large: Semaphore,
}

/// Takes and answers them.
pub(super) async fn take((shared, router): (Arc<Shared>, Router), tasks: TaskTracker, ends: Ends) {
    let desk = Arc::new(Desk { shared, router, large: Semaphore::new(LARGE_MAX) });
    tokio::join!(
        desk.take_those((false, LETTERS_MAX), &tasks, &ends),
        desk.take_those((true, URGENT_LETTERS_MAX), &tasks, &ends),
    );
}

impl Desk {
    /// Takes urgent ones, or the others, so many at a time.
    async fn take_those(self: &Arc<Self>, (are_urgent, most): (bool, usize), tasks: &TaskTracker, ends: &Ends) {
        let places = Arc::new(Semaphore::new(most));
        let next = async || {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, self.shared.app.next_letter(are_urgent).await)
        };
        while let Some((place, letter)) = ends.leaving.run_until_cancelled(next()).await {
            let (desk, cut) = (Arc::clone(self), ends.cut.clone());
            tasks.spawn(async move {
                let _place = place;
                let _ = cut.run_until_cancelled(desk.work(letter)).await;
            });
        }
    }

    async fn work(&self, Arrived { id, request, gone }: Arrived) {
        let answered = async {
            let reads = request.method() == Method::GET;
            let request: Request<Body> = request.map(Body::from);
            let Ok(response) = answer(Arc::clone(&self.shared), self.router.clone(), Peer::Letter, request).await;
            self.answer(id, (response, reads)).await;
        };
        // As over a connection that its client has closed.
        if gone.run_until_cancelled(answered).await.is_none() {
            tracing::debug!("nobody waits any more for the answer to a request that came through the database");
        }
    }

    /// Takes an answer in, and writes it back.
    async fn answer(&self, id: LetterId, (response, reads): (Response, bool)) {
        // What it is known by, whatever it says.
        let known: Vec<_> = BETWEEN_NODES
            .iter()
            .filter_map(|name| Some((name.clone(), response.headers().get(name)?.clone())))
            .collect();
        let mut large = None;
        let whole = match whole(response, reads, (&self.large, &mut large)).await {
            Ok(whole) => Ok(whole),
            Err(error) => {
                let mut refusal = Failure::from(error).into_response();
                refusal.headers_mut().extend(known);
                whole(refusal, false, (&self.large, &mut large)).await
            }
        };
        self.shared.app.answer_letter(id, whole.ok()).await;
    }
}

/// All of an answer. `large` is its place among the large ones, where it is one.
async fn whole<'a>(
    response: Response,
    reads: bool,
    (room, large): (&'a Semaphore, &mut Option<SemaphorePermit<'a>>),
) -> Result<Response<Bytes>, ApiError> {
    let (head, mut body) = response.into_parts();
    if reads && head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM)) {
        return Err(unavailable("a stream without an end does not go through the database".to_owned()));
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |cause| unavailable(format!("the answer broke off: {cause}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if whole.len() + data.len() > ANSWER_BYTES_MAX {
            let what = "and this server is reached through the database alone";
            return Err(unavailable(format!("the answer has more than {ANSWER_BYTES_MAX} bytes, {what}")));
        }
        whole.extend_from_slice(&data);
        if whole.len() > LARGE_BYTES && large.is_none() {
            // It is never closed.
            *large = room.acquire().await.ok();
        }
    }
    Ok(Response::from_parts(head, whole.freeze()))
}

fn unavailable(message: String) -> ApiError {
    ApiError::new(ErrorCode::UpstreamUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_taken_in_as_a_whole_or_refused() {
        let room = Semaphore::new(1);
        let answer = |kind: &str, bytes: usize| {
            let pieces = (0..bytes.div_ceil(LARGE_BYTES)).map(move |nth| LARGE_BYTES.min(bytes - nth * LARGE_BYTES));
            let pieces = pieces.map(|bytes| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes])));
            let body = Body::from_stream(futures_util::stream::iter(pieces));
            Response::builder().header(CONTENT_TYPE, kind).body(body).expect("an answer")
        };
        let table = [
            ("application/json", 10, true, Ok(false)),
            ("application/json", ANSWER_BYTES_MAX, true, Ok(true)),
            ("application/json", ANSWER_BYTES_MAX + 1, false, Err("more than")),
            ("text/event-stream", 10, false, Ok(false)),
            ("text/event-stream; charset=utf-8", 10, true, Err("without an end")),
        ];
        for (kind, bytes, reads, want) in table {
            let mut large = None;
            let taken = whole(answer(kind, bytes), reads, (&room, &mut large)).await;
            match (taken, want) {
                (Ok(taken), Ok(is_large)) => {
                    assert_eq!((taken.body().len(), large.is_some()), (bytes, is_large), "{kind} {bytes}");
                }
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{kind} {bytes}: {error}"),
                (taken, want) => panic!("{kind} {bytes}: {taken:?}, not {want:?}"),
            }
        }
        let broken = futures_util::stream::iter([Ok(Bytes::from_static(b"x")), Err(std::io::Error::other("no"))]);
        let broken = Response::new(Body::from_stream(broken));
        assert!(whole(broken, false, (&room, &mut None)).await.is_err(), "it broke off");
    }
}
