//! One connection, from its first byte to its last.
//!
//! Requests go to the service. What is no request, and so never reaches it, is answered here in the one
//! envelope: hyper's own answer to it is a bare status, which `held` keeps back.
//!
//! Invariant: a client that has sent something is told something, unless its last request was answered.

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::server::conn::http1::UpgradeableConnection;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::answer::Failure;
use super::framing::Unclear;
use super::held::{Held, Holding};
use super::listen::{HEAD_BYTES_MAX, HEADERS_MAX};
use super::log;
use super::peer::Peer;
use crate::protocol::{ApiError, ErrorCode};

/// Longest time for which a client that was refused may go on sending: were the connection cut
/// meanwhile, its system would throw away what it was told.
const LINGER: Duration = Duration::from_secs(1);

/// The bytes of a connection as hyper sees them.
pub(super) type Socket<T> = TokioIo<Holding<T>>;

/// What belongs to a connection beside its bytes.
pub(super) struct Terms {
    /// What is held back of its answers.
    pub(super) held: Held,
    /// Ends it behind the request that it is at.
    pub(super) leaving: CancellationToken,
    /// The other end.
    pub(super) peer: Peer,
    /// Bytes of a body, at most.
    pub(super) body_bytes_max: usize,
}

/// Serves a connection to its end.
///
/// # Errors
/// How it ended, when that was not in order.
pub(super) async fn serve<T, S>(
    mut connection: UpgradeableConnection<Socket<T>, S>,
    Terms { held, leaving, peer, body_bytes_max }: Terms,
) -> Result<(), hyper::Error>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = axum::body::Body> + Unpin,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut told = pin!(leaving.cancelled().fuse());
    let mut has_left = false;
    let ended = std::future::poll_fn(|cx| {
        if !has_left && told.as_mut().poll(cx).is_ready() {
            has_left = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        loop {
            match Pin::new(&mut connection).poll(cx) {
                Poll::Ready(ended) => return Poll::Ready(ended),
                // It goes on, so that was no last word.
                Poll::Pending if held.let_go() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    let Err(cause) = ended.await else { return Ok(()) };
    // Gone with an upgrade: then it is no longer ours.
    let Some(parts) = connection.into_parts() else { return Err(cause) };
    let bare = held.take();
    let unread = (&*parts.read_buf, body_bytes_max);
    let refused = held.unclear().map_or_else(|| refusal(&cause, &bare, unread), unclear);
    let answer = refused.map(|failure| {
        let id = log::refused(&failure, peer);
        failure.raw(&id)
    });
    let last = answer.unwrap_or(bare);
    if !last.is_empty() {
        tokio::select! {
            () = tell(parts.io.into_inner().into_inner(), &last) => {}
            () = leaving.cancelled() => {}
        }
    }
    Err(cause)
}

/// Says the last word, and hears the client out, so that it is heard.
async fn tell<T: AsyncRead + AsyncWrite + Unpin>(mut socket: T, last: &[u8]) {
    let telling = async {
        socket.write_all(last).await?;
        socket.shutdown().await?;
        let mut rest = [0; 4096];
        while socket.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that has gone does not miss it.
    drop(tokio::time::timeout(LINGER, telling).await);
}

/// What to say to a client whose request could not be read. None: nothing, it has its answer or has sent nothing.
fn refusal(cause: &hyper::Error, bare: &[u8], (unread, body_bytes_max): (&[u8], usize)) -> Option<Failure> {
    let said = !unread.trim_ascii().is_empty();
    if cause.is_timeout() && said {
        let error = ApiError::new(ErrorCode::Timeout, "the head of the request did not arrive in time");
        return Some(Failure::with_status(error, 408).closing());
    }
    if cause.is_incomplete_message() && said {
        return Some(no_http("the connection ended within the head of the request"));
    }
    let status = bare.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    match status {
        Some("431" | "414") => Some(too_large(unread, body_bytes_max)),
        Some(_) => Some(no_http(&cause.to_string())),
        None if unread.starts_with(b"PRI * HTTP/2.0") => Some(no_http("it is the beginning of HTTP/2")),
        None => None,
    }
}

fn no_http(why: &str) -> Failure {
    let error = ApiError::new(ErrorCode::InvalidArgument, format!("this is no request that can be read: {why}"));
    let details = json!({ "field": "request", "expected": "a request of HTTP/1.1" });
    Failure::from(error.with_details(details)).closing()
}

/// What to say to a request whose end cannot be told. None: who reads its body says it.
fn unclear(why: Unclear) -> Option<Failure> {
    let (field, expected) = match why {
        Unclear::TwoLengths => ("Transfer-Encoding", "not both `Content-Length` and `Transfer-Encoding`"),
        Unclear::Coding => ("Transfer-Encoding", "`chunked` and no other coding, in one header"),
        Unclear::OldVersion => ("Transfer-Encoding", "no such header in a request of HTTP/1.0"),
        Unclear::Length => ("Content-Length", "a whole number of bytes, in plain digits"),
        Unclear::Chunks => return None,
    };
    Some(Failure::from(ApiError::invalid(field, expected)).closing())
}

/// A head that is too large, or announces too much, by what of it has come.
fn too_large(unread: &[u8], body_bytes_max: usize) -> Failure {
    let headers = memchr::memchr_iter(b'\n', unread).count();
    let first_bytes = memchr::memchr(b'\n', unread).unwrap_or(unread.len());
    let (status, field, what, expected) = if first_bytes >= HEAD_BYTES_MAX {
        (414, "path", "the first line of the request is too long", format!("at most {HEAD_BYTES_MAX} bytes"))
    } else if headers > HEADERS_MAX {
        (431, "headers", "the request has too many headers", format!("at most {HEADERS_MAX} headers"))
    } else if unread.len() >= HEAD_BYTES_MAX {
        (431, "headers", "the head of the request is too large", format!("at most {HEAD_BYTES_MAX} bytes"))
    } else {
        // The head was fine, and is gone: what it announces is not.
        (413, "Content-Length", "the body is too large", format!("at most {body_bytes_max} bytes"))
    };
    let message = format!("{what}: expected {expected}");
    let error = ApiError::new(ErrorCode::PayloadTooLarge, message);
    let mut details = json!({ "field": field, "expected": expected });
    if status == 413 {
        details["bytesMax"] = body_bytes_max.into();
    }
    Failure::with_status(error.with_details(details), status).closing()
}
