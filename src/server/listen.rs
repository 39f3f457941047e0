//! The sockets: accepting, one task a connection, and the orderly end of both.
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
use axum::http::header::UPGRADE;
use axum::http::{HeaderValue, Method, Request, StatusCode, request};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt, TryFutureExt as _};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower::ServiceExt;
use tracing::Instrument as _;

use super::Shared;
use super::answer::Failure;
use super::call;
use super::connection::{self, Terms};
use super::guard::{Admitted, Nobody, Shown};
use super::hand_on::{self, Passing};
use super::held::{Held, Holding};
use super::io::WriteDeadline;
use super::letters;
use super::log::{self, Line};
use super::peer::Peer;
use super::socket::{Socket, is_ours};
use super::tls::Tls;
use super::until::Until;
use crate::app::{COMMAND_PATH, HERE_PATH, LEAVES};
use crate::protocol::{ApiError, ErrorCode};

/// Pause after an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Pause between two warnings about it.
const WARN_PAUSE: Duration = Duration::from_secs(5);
/// Connections that are told at once that there is no room.
pub(super) const REFUSALS_MAX: usize = 256;
/// Longest time that such a refusal takes.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Largest head of a request in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of a request, at most: hyper's default, which costs nothing as long as it is not set.
pub(super) const HEADERS_MAX: usize = 100;

/// What ends the accept loop.
pub(super) struct Ends {
    /// No new connections.
    pub(super) closed: CancellationToken,
    /// Connections end, within the time that is sent here. Closed: at once.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Fires when everything has ended.
    pub(super) done: CancellationToken,
}

/// Where connections come in.
pub(super) struct Listeners {
    /// Over the network.
    pub(super) network: TcpListener,
    /// Over the Unix socket, where there is one.
    pub(super) local: Option<Socket>,
}

impl Listeners {
    async fn accept(&self) -> std::io::Result<Guest> {
        let local = async {
            match &self.local {
                Some(socket) => socket.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.network.accept() => accepted.map(|(socket, address)| Guest::Network(socket, address)),
            accepted = local => accepted.map(|(socket, _)| Guest::Local(socket)),
        }
    }
}

/// Somebody before the door.
enum Guest {
    Network(TcpStream, SocketAddr),
    Local(UnixStream),
}

/// Accepts and serves until it is told to end.
pub(super) async fn run(listeners: Listeners, router: Router, shared: Arc<Shared>, mut ends: Ends) {
    let door = Arc::new(Door {
        router,
        http: connection_builder(&shared),
        tasks: TaskTracker::new(),
        leaving: CancellationToken::new(),
        cut: CancellationToken::new(),
        shared,
    });
    door.watch_files();
    door.take_letters();
    let mut warned = None;
    loop {
        tokio::select! {
            accepted = listeners.accept() => match accepted {
                Ok(guest) => door.enter(guest),
                Err(cause) => pause_after(&cause, &mut warned).await,
            },
            () = ends.closed.cancelled() => break,
        }
    }
    // Those that are through the door already, as far as their clients know.
    while let Some(Ok(guest)) = listeners.accept().now_or_never() {
        door.enter(guest);
    }
    drop(listeners);
    // An error means that the server was dropped without a stop: then nothing is waited for.
    let grace = ends.drain.wait_for(Option::is_some).await.ok().and_then(|grace| *grace).unwrap_or_default();
    door.shared.mcp.end();
    door.leaving.cancel();
    door.tasks.close();
    if tokio::time::timeout(grace, door.tasks.wait()).await.is_err() {
        tracing::warn!("connections were still busy when the server stopped, and were cut");
    }
    door.cut.cancel();
    door.tasks.wait().await;
    ends.done.cancel();
}

fn connection_builder(shared: &Shared) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(shared.options.head_timeout).max_buf_size(HEAD_BYTES_MAX);
    // The buffer alone would let through what happens to come with the last read.
    http.max_header_size(HEAD_BYTES_MAX);
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

/// What a connection that becomes a socket takes with it: its place, and what ends it.
#[derive(Clone)]
pub(super) struct Berth {
    /// Its place among the connections.
    _place: Arc<OwnedSemaphorePermit>,
    /// A stop waits for it.
    _task: TaskTrackerToken,
    /// Fires when every connection ends at once.
    cut: CancellationToken,
    /// Fires when its token is revoked.
    ends: Option<CancellationToken>,
}

impl Berth {
    /// Runs a socket, until it ends or has to.
    pub(super) async fn hold(self, socket: impl Future<Output = ()>) {
        let ends = self.ends.clone().unwrap_or_default();
        tokio::select! {
            () = socket => {}
            () = ends.cancelled() => {}
            () = self.cut.cancelled() => {}
        }
    }
}

struct Door {
    router: Router,
    http: http1::Builder,
    tasks: TaskTracker,
    /// Ends every connection behind the request that it is at.
    leaving: CancellationToken,
    /// Ends every connection at once.
    cut: CancellationToken,
    shared: Arc<Shared>,
}

impl Door {
    /// Tokens and certificates are read again when they change.
    fn watch_files(self: &Arc<Self>) {
        let door = Arc::clone(self);
        self.tasks.spawn(async move {
            let certificate = async {
                if let Some(tls) = &door.shared.tls {
                    tls.watch(door.leaving.clone()).await;
                }
            };
            tokio::join!(door.shared.guard.keys().watch(door.leaving.clone()), certificate);
        });
    }

    /// Requests that come through the database.
    fn take_letters(self: &Arc<Self>) {
        if self.shared.node_key.is_some() {
            let (shared, router) = (Arc::clone(&self.shared), self.router.clone());
            let ends = letters::Ends { leaving: self.leaving.clone(), cut: self.cut.clone() };
            self.tasks.spawn(letters::take((shared, router), self.tasks.clone(), ends));
        }
    }

    fn enter(self: &Arc<Self>, guest: Guest) {
        let room = Arc::clone(&self.shared.room).try_acquire_owned();
        match guest {
            Guest::Network(socket, address) => {
                // Without it a small frame waits for the answer to the one before it.
                if let Err(cause) = socket.set_nodelay(true) {
                    tracing::debug!(%cause, "TCP_NODELAY");
                }
                self.let_in(socket, Peer::Network(address), room.map_err(|_| no_room()));
            }
            Guest::Local(socket) => {
                let ours = is_ours(&socket) == Some(true);
                let room = room.map_err(|_| no_room()).and_then(|permit| ours.then_some(permit).ok_or_else(not_ours));
                self.let_in(socket, Peer::Local, room);
            }
        }
    }

    fn let_in<T>(self: &Arc<Self>, socket: T, peer: Peer, room: Result<OwnedSemaphorePermit, ApiError>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let door = Arc::clone(self);
        let socket = WriteDeadline::new(socket, self.shared.options.write_timeout);
        let secured = self.shared.tls.as_ref().filter(|_| peer != Peer::Local).map(Tls::acceptor);
        let refusal = match &room {
            Ok(_) => None,
            Err(_) => match Arc::clone(&self.shared.refusals).try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => return,
            },
        };
        self.tasks.spawn(async move {
            let work = async {
                let Some(acceptor) = secured else { return door.attend(socket, peer, room).await };
                // Who does not get through with it has sent no request: one deadline for both.
                match tokio::time::timeout(door.shared.options.head_timeout, acceptor.accept(socket)).await {
                    Ok(Ok(socket)) => door.attend(socket, peer, room).await,
                    Ok(Err(cause)) => tracing::debug!(%cause, %peer, "no TLS came about"),
                    Err(_) => tracing::debug!(%peer, "no TLS came about in time"),
                }
            };
            tokio::select! {
                () = work => {}
                () = door.cut.cancelled() => {}
            }
            drop(refusal);
        });
    }

    async fn attend<T>(&self, socket: T, peer: Peer, room: Result<OwnedSemaphorePermit, ApiError>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match room {
            Ok(permit) => self.serve(socket, peer, permit).await,
            Err(error) => refuse(socket, peer, error).await,
        }
    }

    async fn serve<T>(&self, socket: T, peer: Peer, permit: OwnedSemaphorePermit)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (shared, router) = (Arc::clone(&self.shared), self.router.clone());
        let (place, task, cut) = (Arc::new(permit), self.tasks.token(), self.cut.clone());
        let berth = Berth { _place: Arc::clone(&place), _task: task, cut, ends: None };
        let held = Held::default();
        let upgrades = held.clone();
        let service = service_fn(move |mut request| {
            if request.headers().contains_key(UPGRADE) {
                request.extensions_mut().insert(berth.clone());
            }
            let upgrades = upgrades.clone();
            let answered = answer(Arc::clone(&shared), router.clone(), peer, request.map(Body::new));
            answered.inspect_ok(move |response| {
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    upgrades.upgrade();
                }
            })
        });
        let socket = TokioIo::new(Holding::new(socket, held.clone()));
        let connection = self.http.serve_connection(socket, service).with_upgrades();
        let body_bytes_max = self.shared.options.body_bytes_max;
        let terms = Terms { held, leaving: self.leaving.clone(), peer, body_bytes_max };
        if let Err(cause) = connection::serve(connection, terms).await {
            tracing::debug!(%cause, %peer, "a connection ended badly");
        }
        drop(place);
    }
}

fn no_room() -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, "too many connections; try again later")
}

fn not_ours() -> ApiError {
    ApiError::new(ErrorCode::Forbidden, "this socket is for the user of the server, and for root")
        .with_details(serde_json::json!({ "field": "peer", "expected": "a program of the same user" }))
}

/// Reads a little, so that the client is not cut off while it writes, and says why it may not come in.
async fn refuse<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, peer: Peer, error: ApiError) {
    let telling = async {
        let mut head = [0; 4096];
        let _bytes: usize = socket.read(&mut head).await?;
        let failure = Failure::from(error).closing();
        let id = log::refused(&failure, peer);
        socket.write_all(&failure.raw(&id)).await?;
        socket.shutdown().await
    };
    if !matches!(tokio::time::timeout(REFUSAL_TIME, telling).await, Ok(Ok(()))) {
        tracing::debug!("a client that was refused did not listen");
    }
}

/// Answers one request: log, guard, route. Never fails, and never without an answer.
pub(super) async fn answer(
    shared: Arc<Shared>,
    router: Router,
    peer: Peer,
    mut request: Request<Body>,
) -> Result<Response, Infallible> {
    let line = Line::of(&mut request, peer, (Arc::clone(shared.app.meters()), shared.app.tracer()));
    let origin = line.origin();
    let lines = tracing::info_span!("request", requestId = origin.request_id.as_deref().unwrap_or_default());
    let handled = origin.scope(guarded(&shared, router, (peer, request))).instrument(lines);
    let handled = AssertUnwindSafe(handled).catch_unwind().await;
    let response = handled.unwrap_or_else(|_| {
        // The panic hook has said where.
        Failure::from(ApiError::internal("something went wrong inside the server; its log says what")).into_response()
    });
    Ok(line.follow(response))
}

async fn guarded(shared: &Shared, router: Router, (peer, request): (Peer, Request<Body>)) -> Response {
    let (head, body) = request.into_parts();
    let admitted = match shared.guard.admit(&head, peer).await {
        Ok(admitted) => admitted,
        Err(error) => {
            call::drain(&head.headers, body, shared);
            return Failure::from(error).into_response();
        }
    };
    // Whoever asked knows this server by it.
    let answers = admitted.answers.clone();
    let waits = head.uri.query().is_some_and(|query| query.contains("wait="));
    let mut response = admitted_to(shared, router, (head, body), admitted).await;
    if let (Some(answers), Some(key)) = (answers, &shared.node_key) {
        let is_in_vain = match response.status() {
            StatusCode::SERVICE_UNAVAILABLE => shared.app.is_leaving(false),
            StatusCode::ACCEPTED => waits && shared.app.is_leaving(true),
            _ => false,
        };
        if is_in_vain {
            response.headers_mut().insert(LEAVES, HeaderValue::from_static("1"));
        }
        key.sign_answer(response.headers_mut(), &answers);
    }
    response
}

async fn admitted_to(
    shared: &Shared,
    router: Router,
    (mut head, body): (request::Parts, Body),
    admitted: Admitted,
) -> Response {
    if admitted.answers.is_some() && head.uri.path() == HERE_PATH {
        return StatusCode::NO_CONTENT.into_response();
    }
    if admitted.answers.is_some() && head.method == Method::POST && head.uri.path() == COMMAND_PATH {
        return hand_on::take_command(shared, admitted.caller, (&head, body)).await;
    }
    let passing = Passing::of(shared, &head, &admitted);
    head.extensions.insert(admitted.caller);
    head.extensions.insert(Shown(admitted.token));
    if admitted.is_nobody {
        head.extensions.insert(Nobody);
    }
    if let Some(berth) = head.extensions.get_mut::<Berth>() {
        berth.ends.clone_from(&admitted.ends);
    }
    let routed = async {
        match passing {
            Some(passing) => passing.answer(head, body, router).await,
            None => {
                let Ok(response) = router.oneshot(Request::from_parts(head, body)).await;
                response
            }
        }
    };
    let Some(ends) = admitted.ends else {
        return routed.await;
    };
    match ends.run_until_cancelled(routed).await {
        Some(response) => response.map(|body| Body::new(Until::new(body, ends))),
        None => Failure::from(ApiError::new(ErrorCode::Unauthorized, "the token was revoked")).into_response(),
    }
}
