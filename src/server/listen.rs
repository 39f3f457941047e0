//! The socket: accepting, one task a connection, and the orderly end of both.
//!
//! Invariants: at most `connections_max` connections are served at once, and one more is told so;
//! after a stop no task of the server is left.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::Shared;
use super::answer::Failure;
use super::io::WriteDeadline;
use super::log::Line;
use crate::protocol::ApiError;

/// Pause after an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Pause between two warnings about it.
const WARN_PAUSE: Duration = Duration::from_secs(5);
/// Connections that are told at once that there is no room.
const REFUSALS_MAX: usize = 256;
/// Longest time that such a refusal takes.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Largest head of a request in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

const NO_ROOM: &str = r#"{"error":{"code":"RESOURCE_EXHAUSTED","message":"too many connections; try again later"}}"#;

/// What ends the accept loop.
pub(super) struct Ends {
    /// No new connections.
    pub(super) accepting: CancellationToken,
    /// Connections end, within the time that is sent here. Closed: at once.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Fires when everything has ended.
    pub(super) done: CancellationToken,
}

/// Accepts and serves until it is told to end.
pub(super) async fn run(listener: TcpListener, router: Router, shared: Arc<Shared>, mut ends: Ends) {
    let graceful = GracefulShutdown::new();
    let door = Door {
        router,
        http: connection_builder(&shared),
        room: Arc::new(Semaphore::new(shared.options.connections_max)),
        refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        tasks: TaskTracker::new(),
        cut: CancellationToken::new(),
        shared,
    };
    let mut warned = None;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => door.enter(socket, peer, &graceful),
                Err(cause) => pause_after(&cause, &mut warned).await,
            },
            () = ends.accepting.cancelled() => break,
        }
    }
    // Those that are through the door already, as far as their clients know.
    while let Some(Ok((socket, peer))) = listener.accept().now_or_never() {
        door.enter(socket, peer, &graceful);
    }
    drop(listener);
    // An error means that the server was dropped without a stop: then nothing is waited for.
    let grace = ends.drain.wait_for(Option::is_some).await.ok().and_then(|grace| *grace).unwrap_or_default();
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were still busy when the server stopped, and were cut");
    }
    door.cut.cancel();
    door.tasks.close();
    door.tasks.wait().await;
    ends.done.cancel();
}

fn connection_builder(shared: &Shared) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(shared.options.head_timeout).max_buf_size(HEAD_BYTES_MAX);
    http
}

/// A full table of file descriptors is no reason to spin, nor to fill the log.
async fn pause_after(cause: &std::io::Error, warned: &mut Option<Instant>) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(cause.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    if warned.is_none_or(|at| at.elapsed() > WARN_PAUSE) {
        *warned = Some(Instant::now());
        tracing::warn!(%cause, "connections cannot be accepted");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

struct Door {
    router: Router,
    http: http1::Builder,
    room: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Ends every connection at once.
    cut: CancellationToken,
    shared: Arc<Shared>,
}

impl Door {
    fn enter(&self, socket: TcpStream, peer: SocketAddr, graceful: &GracefulShutdown) {
        // Without it a small frame waits for the answer to the one before it.
        if let Err(cause) = socket.set_nodelay(true) {
            tracing::debug!(%cause, "TCP_NODELAY");
        }
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            return self.refuse(socket);
        };
        let (shared, router) = (Arc::clone(&self.shared), self.router.clone());
        let service = service_fn(move |request| answer(Arc::clone(&shared), router.clone(), peer, request));
        let socket = WriteDeadline::new(socket, self.shared.options.write_timeout);
        let connection = graceful.watch(self.http.serve_connection(TokioIo::new(socket), service));
        let cut = self.cut.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                ended = connection => if let Err(cause) = ended {
                    tracing::debug!(%cause, %peer, "a connection ended badly");
                },
                () = cut.cancelled() => {}
            }
            drop(permit);
        });
    }

    /// Reads a little, so that the client is not cut off while it writes, and says that there is no room.
    fn refuse(&self, mut socket: TcpStream) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        self.tasks.spawn(async move {
            let telling = async {
                let mut head = [0; 4096];
                let _bytes: usize = socket.read(&mut head).await?;
                let length = NO_ROOM.len();
                let text = format!(
                    "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                     retry-after: 1\r\nconnection: close\r\n\r\n{NO_ROOM}"
                );
                socket.write_all(text.as_bytes()).await?;
                socket.shutdown().await
            };
            if !matches!(tokio::time::timeout(REFUSAL_TIME, telling).await, Ok(Ok(()))) {
                tracing::debug!("a client for whom there was no room did not listen");
            }
            drop(permit);
        });
    }
}

/// Answers one request: log, guard, route. Never fails, and never without an answer.
async fn answer(
    shared: Arc<Shared>,
    router: Router,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let line = Line::of(&request, peer);
    let handled = AssertUnwindSafe(guarded(&shared, router, request)).catch_unwind().await;
    let response = handled.unwrap_or_else(|_| {
        // The panic hook has said where.
        Failure::from(ApiError::internal("something went wrong inside the server; its log says what")).into_response()
    });
    Ok(line.follow(response))
}

async fn guarded(shared: &Shared, router: Router, request: Request<Incoming>) -> Response {
    let (mut head, body) = request.into_parts();
    match shared.guard.admit(&head).await {
        Ok(caller) => head.extensions.insert(caller),
        Err(error) => return Failure::from(error).into_response(),
    };
    match router.oneshot(Request::from_parts(head, Body::new(body))).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
