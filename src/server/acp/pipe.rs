//! The protocol over a pipe: one message a line, in and out.
//!
//! A line that is too long, or no message, is answered and ends nothing. The end of the input is an orderly stop, as on the pipe
//! of our own protocol: turns get their time to finish, and what they say still goes out.
//!
//! Invariant: nothing but whole lines of the protocol is written into the output.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader};
use tokio_util::sync::CancellationToken;

use super::Peer;
use crate::app::{App, Caller};
use crate::protocol::{ApiError, ErrorCode};
use crate::server::lines::{Line, line};
use crate::server::out;
use crate::server::stdio::{LAST_LINES, write};

/// How long the end of the input waits for what was asked just before it.
const SETTLING: Duration = Duration::from_secs(5);

/// The two ends of a pipe to a client of the protocol.
#[derive(Debug)]
pub struct AcpPipe<R, W> {
    /// Where messages come from.
    pub input: R,
    /// Where they go.
    pub output: W,
    /// Longest message in bytes.
    pub line_bytes_max: usize,
}

/// Serves the owner over a pipe until its input ends or `stop` fires; then `ending` stops the application, while the pipe still
/// carries what turns say.
///
/// # Errors
/// Those of `ending`.
pub async fn serve_acp_pipe<R, W>(
    app: Arc<App>,
    pipe: AcpPipe<R, W>,
    stop: CancellationToken,
    ending: impl Future<Output = Result<(), ApiError>>,
) -> Result<(), ApiError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let AcpPipe { input, output, line_bytes_max } = pipe;
    let (out, frames) = out::channel();
    let writing = tokio::spawn(write(output, frames));
    let peer = Peer::on_line(app, Caller::default(), out.clone());
    let mut reading = Box::pin(read(BufReader::new(input), line_bytes_max, &peer));
    let more = tokio::select! {
        () = &mut reading => false,
        () = stop.cancelled() => true,
        () = out.closed() => false,
    };
    if !out.is_closed() {
        // Who has just prompted and closed the input wants the turn.
        drop(tokio::time::timeout(SETTLING, peer.settled()).await);
    }
    let mut ending = Box::pin(ending);
    let stored = tokio::select! {
        biased;
        stored = &mut ending => stored,
        // A turn can be cancelled, and a question of it answered, up to its end.
        () = &mut reading, if more => (&mut ending).await,
    };
    drop((reading, ending));
    drop(tokio::time::timeout(LAST_LINES, peer.finished()).await);
    drop((peer, out));
    drop(tokio::time::timeout(LAST_LINES, writing).await);
    stored
}

/// Takes lines until there are none.
async fn read<R: AsyncBufRead + Unpin>(mut input: R, line_bytes_max: usize, peer: &Peer) {
    loop {
        let goes_on = match line(&mut input, line_bytes_max).await {
            Ok(Some(Line::Whole(text))) if text.trim_ascii().is_empty() => true,
            Ok(Some(Line::Whole(text))) => peer.take(&text).await,
            Ok(Some(Line::TooLong)) => peer.refuse(too_long(line_bytes_max)).await,
            Ok(None) => return,
            Err(cause) => {
                tracing::warn!(%cause, "the input cannot be read");
                return;
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// What is said of a line that is not taken.
pub(super) fn too_long(line_bytes_max: usize) -> ApiError {
    let expected = format!("at most {line_bytes_max} bytes");
    let details = json!({ "field": "message", "expected": expected, "bytesMax": line_bytes_max });
    let message = format!("the message is longer than {line_bytes_max} bytes");
    ApiError::new(ErrorCode::PayloadTooLarge, message).with_details(details)
}
