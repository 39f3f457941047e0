//! One line in the log for each request, written when its answer has gone out or its client has gone.
//!
//! Invariant: neither the query nor any header reaches the log, so no secret does.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::MatchedPath;
use axum::http::{Extensions, HeaderMap, HeaderValue, Request};
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::answer::Failure;
use super::headers::REQUEST_ID;
use super::peer::Peer;
use crate::base::metrics::meters::{Meters, NO_ROUTE};
use crate::base::trace::{Origin, Span, SpanKind, Tracer};
use crate::protocol::ClientId;

/// Gets to know the route of a request once it has met one.
#[derive(Debug, Clone, Default)]
pub(super) struct Route(Arc<OnceLock<MatchedPath>>);

impl Route {
    /// Learns it from the extensions of the request, where it is.
    pub(super) fn learn(extensions: &Extensions) {
        if let (Some(route), Some(path)) = (extensions.get::<Self>(), extensions.get::<MatchedPath>()) {
            // A request meets one route.
            let _ = route.0.set(path.clone());
        }
    }
}

/// What a line says about a request.
#[derive(Debug)]
pub(crate) struct Line {
    id: HeaderValue,
    method: String,
    path: String,
    client: String,
    peer: String,
    started: Instant,
    route: Route,
    meters: Arc<Meters>,
    span: Span,
    status: u16,
    bytes: u64,
}

impl Line {
    /// The line of a request that comes in.
    pub(crate) fn of<B>(request: &mut Request<B>, peer: Peer, (meters, tracer): (Arc<Meters>, &Tracer)) -> Self {
        let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok()?.parse().ok());
        let route = Route::default();
        request.extensions_mut().insert(route.clone());
        Self {
            id: request_id(request.headers()),
            method: request.method().as_str().to_owned(),
            path: request.uri().path().chars().take(512).collect(),
            client: client(request.headers()),
            peer: peer.to_string(),
            started: Instant::now(),
            route,
            meters,
            span: Span::new(tracer, "request", (SpanKind::Server, parent)),
            status: 0,
            bytes: 0,
        }
    }

    /// Where the work for this request comes from.
    pub(crate) fn origin(&self) -> Origin {
        Origin { request_id: self.id.to_str().ok().map(Into::into), context: self.span.context() }
    }

    /// Puts the request's id on the answer, and writes the line when its body has ended.
    pub(crate) fn follow(mut self, mut response: Response) -> Response {
        self.status = response.status().as_u16();
        let route = self.route.0.get().map_or(NO_ROUTE, MatchedPath::as_str);
        self.meters.routes.of(route).answered(&self.method, self.status, self.started.elapsed());
        self.span.rename(|| format!("{} {route}", self.method));
        self.span.set("http.request.method", self.method.as_str());
        self.span.set("http.route", route);
        self.span.set("http.response.status_code", u64::from(self.status));
        self.span.set("simse.request_id", self.id.to_str().unwrap_or_default());
        if self.status >= 500 {
            self.span.fail();
        }
        response.headers_mut().insert(REQUEST_ID, self.id.clone());
        response.map(|inner| Body::new(Followed { inner, line: self }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let duration_ms = self.started.elapsed().as_secs_f64() * 1_000.0;
        tracing::info!(
            requestId = self.id.to_str().unwrap_or_default(),
            method = self.method,
            path = self.path,
            status = self.status,
            durationMs = (duration_ms * 1_000.0).round() / 1_000.0,
            bytes = self.bytes,
            client = self.client,
            peer = self.peer,
            "request"
        );
    }
}

/// The caller's own id where it is a plain word, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    super::headers::request_id(headers).cloned().unwrap_or_else(new_id)
}

fn new_id() -> HeaderValue {
    let made = HeaderValue::from_str(&uuid::Uuid::now_v7().simple().to_string());
    made.unwrap_or(HeaderValue::from_static("none"))
}

/// Writes the line of what could not be read as a request, and gives it an id.
pub(crate) fn refused(failure: &Failure, peer: Peer) -> HeaderValue {
    let id = new_id();
    let (status, reason) = (failure.status(), failure.reason());
    tracing::info!(requestId = id.to_str().unwrap_or_default(), status, reason, %peer, "request that is none");
    id
}

/// Who says that he calls, if that can be a client's id: what else stands there is not repeated.
fn client(headers: &HeaderMap) -> String {
    let given = headers.get("x-client-id").and_then(|value| value.to_str().ok());
    given.and_then(|text| ClientId::plain(text).ok()).map_or_else(|| "-".to_owned(), |client| client.to_string())
}

/// A body that counts what goes out.
struct Followed {
    inner: Body,
    line: Line,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            this.line.bytes += bytes;
            this.line.meters.sent_bytes.add(bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
