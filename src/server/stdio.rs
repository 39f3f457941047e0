//! The same dialogue over a pipe: one JSON object a line, in and out (contract.md, Commands).
//!
//! A line that cannot be read, or is too long, is answered and ends nothing. The end of the input is an orderly stop:
//! what was asked is answered, turns get their time to finish, and what they say still goes out. While they do, lines are
//! still read where there are any: a turn can be aborted, and a question of it answered, up to its end.
//!
//! Invariant: nothing but whole lines of the protocol is written into the output.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::dialogue::{Dialogue, ready, shutdown};
use super::lines::{Line, line};
use super::out::{self, Frame};
use crate::app::{App, Caller};
use crate::protocol::{ApiError, ErrorCode};

/// What is left of the time to stop when all turns have ended: for lines that are on their way.
pub(super) const LAST_LINES: Duration = Duration::from_secs(1);

/// The two ends of a pipe.
#[derive(Debug)]
pub struct Pipe<R, W> {
    /// Where lines come from.
    pub input: R,
    /// Where lines go.
    pub output: W,
    /// Longest line in bytes.
    pub line_bytes_max: usize,
    /// How long turns get to finish at the end, as it is then.
    pub grace: watch::Receiver<Duration>,
}

/// Serves the owner over a pipe until its input ends or `stop` fires, then stops the application.
///
/// # Errors
/// When not everything could be stored.
pub async fn serve_pipe<R, W>(app: Arc<App>, pipe: Pipe<R, W>, stop: CancellationToken) -> Result<(), ApiError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Pipe { input, output, line_bytes_max, grace } = pipe;
    let (out, frames) = out::channel();
    out.say(ready("stdio")).await;
    let writing = tokio::spawn(write(output, frames));
    let mut dialogue = Dialogue::new(Arc::clone(&app), Caller::default(), out.clone());
    let room = dialogue.room();
    let mut reading = Box::pin(read(BufReader::new(input), line_bytes_max, &mut dialogue));
    let more = tokio::select! {
        () = &mut reading => false,
        () = stop.cancelled() => true,
        () = out.closed() => false,
    };
    let grace = *grace.borrow();
    let mut ending = Box::pin(async {
        // Who takes no answers is waited for only so long.
        let answered = async {
            out.say(shutdown(grace)).await;
            if more { room.settled().await } else { room.empty().await }
        };
        drop(tokio::time::timeout(grace, answered).await);
        app.shutdown(grace).await
    });
    let stored = tokio::select! {
        biased;
        stored = &mut ending => stored,
        () = &mut reading, if more => (&mut ending).await,
    };
    // It writes no more; what it has begun is waited for.
    drop((reading, ending));
    drop(tokio::time::timeout(LAST_LINES, dialogue.finished()).await);
    drop((dialogue, out));
    drop(tokio::time::timeout(LAST_LINES, writing).await);
    stored
}

/// Writes the frames that come, each as a line.
pub(super) async fn write<W: AsyncWrite + Unpin>(mut output: W, mut frames: mpsc::Receiver<Frame>) {
    let written = async {
        while let Some(mut frame) = frames.recv().await {
            frame.text.push('\n');
            output.write_all(frame.text.as_bytes()).await?;
            if frames.is_empty() {
                output.flush().await?;
            }
        }
        output.flush().await
    };
    if let Err(cause) = written.await {
        tracing::warn!(%cause, "the output takes nothing more");
    }
}

/// Takes lines until there are none.
async fn read<R: AsyncBufRead + Unpin>(mut input: R, line_bytes_max: usize, dialogue: &mut Dialogue) {
    loop {
        let goes_on = match line(&mut input, line_bytes_max).await {
            Ok(Some(Line::Whole(text))) if text.trim_ascii().is_empty() => true,
            Ok(Some(Line::Whole(text))) => dialogue.take(&text).await,
            Ok(Some(Line::TooLong)) => {
                let message = format!("the line is longer than {line_bytes_max} bytes");
                let details = json!({ "field": "command", "expected": format!("at most {line_bytes_max} bytes"), "bytesMax": line_bytes_max });
                let error = ApiError::new(ErrorCode::PayloadTooLarge, message).with_details(details);
                dialogue.refuse((None, None), error).await
            }
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
