//! A pipe to a client of the protocol, led on to a server that runs already: lines here, a WebSocket there.
//!
//! What comes is handed on as it is. Only what is no message is answered here, and what has no answer yet when the server goes.
//!
//! Invariant: every request that was handed on is answered, by the server or, when it is gone, by an error.

use std::collections::BTreeMap;

use futures_util::{SinkExt as _, StreamExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use super::pipe::{AcpPipe, too_long};
use super::rpc::{self, Incoming, RpcError};
use crate::base::limit;
use crate::protocol::{ApiError, ErrorCode};
use crate::server::lines::{Line, line};

/// Leads a pipe on to the server at the other end of `line`, which is called `host`. Until the input ends, or `stop` fires.
///
/// # Errors
/// Why the server does not take it, or that it has gone.
pub async fn bridge_acp_pipe<R, W, L>(
    (line, host): (L, &str),
    token: Option<&SecretString>,
    pipe: AcpPipe<R, W>,
    stop: CancellationToken,
) -> Result<(), ApiError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    L: AsyncRead + AsyncWrite + Unpin,
{
    let unreached = |cause: Error| {
        let message = format!("the server that runs does not take the connection: {cause}");
        ApiError::new(ErrorCode::UpstreamUnavailable, message)
    };
    let mut request = format!("ws://{host}/acp").into_client_request().map_err(unreached)?;
    if let Some(token) = token {
        let value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()));
        let value = value.map_err(|_| ApiError::internal("the token is no text for a header"))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(limit::ACP_LINE_BYTES_MAX))
        .max_frame_size(Some(limit::ACP_LINE_BYTES_MAX));
    let (socket, _) = client_async_with_config(request, line, Some(config)).await.map_err(unreached)?;
    let AcpPipe { input, output, line_bytes_max } = pipe;
    let mut bridge = Bridge { socket, output, line_bytes_max, open: BTreeMap::new() };
    let ended = tokio::select! {
        ended = bridge.run(BufReader::new(input)) => ended,
        () = stop.cancelled() => Ok(()),
    };
    bridge.end().await;
    ended
}

struct Bridge<L, W> {
    socket: WebSocketStream<L>,
    output: W,
    line_bytes_max: usize,
    /// The client's requests that have no answer, by their ids as text.
    open: BTreeMap<String, Value>,
}

impl<L, W> Bridge<L, W>
where
    L: AsyncRead + AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
{
    async fn run<R: AsyncBufRead + Unpin>(&mut self, mut input: R) -> Result<(), ApiError> {
        let line_bytes_max = self.line_bytes_max;
        let mut next = Box::pin(read(&mut input, line_bytes_max));
        loop {
            tokio::select! {
                taken = &mut next => {
                    drop(next);
                    match taken {
                        Some(taken) => self.hand_on(taken).await?,
                        None => return Ok(()),
                    }
                    next = Box::pin(read(&mut input, line_bytes_max));
                }
                said = self.socket.next() => match said {
                    Some(Ok(Message::Text(text))) => {
                        if !self.open.is_empty()
                            && let Ok(Incoming::Response { id, .. }) = rpc::read(text.as_bytes())
                        {
                            self.open.remove(&id.to_string());
                        }
                        self.write(&text).await?;
                    }
                    Some(Ok(Message::Close(_))) | None => return Err(gone("it has stopped")),
                    Some(Ok(_)) => {}
                    Some(Err(cause)) => return Err(gone(&cause.to_string())),
                },
            }
        }
    }

    async fn hand_on(&mut self, taken: Line) -> Result<(), ApiError> {
        let text = match taken {
            Line::Whole(text) if text.trim_ascii().is_empty() => return Ok(()),
            Line::Whole(text) => text,
            Line::TooLong => {
                let answer = rpc::response(&Value::Null, Err(too_long(self.line_bytes_max).into()));
                return self.write(&answer).await;
            }
        };
        match (rpc::read(&text), String::from_utf8(text)) {
            (Ok(incoming), Ok(text)) => {
                if let Incoming::Request { id, .. } = incoming {
                    self.open.insert(id.to_string(), id);
                }
                self.socket.send(Message::text(text)).await.map_err(|cause| gone(&cause.to_string()))
            }
            (Err((id, error)), _) => self.write(&rpc::response(&id, Err(error))).await,
            (Ok(_), Err(_)) => {
                let error = RpcError::invalid_request("expected UTF-8");
                self.write(&rpc::response(&Value::Null, Err(error))).await
            }
        }
    }

    async fn write(&mut self, text: &str) -> Result<(), ApiError> {
        let written = async {
            self.output.write_all(text.as_bytes()).await?;
            self.output.write_all(b"\n").await?;
            self.output.flush().await
        };
        written.await.map_err(|cause| ApiError::internal(format!("the output takes nothing more: {cause}")))
    }

    /// Answers what has no answer, and leaves the server.
    async fn end(&mut self) {
        for (_, id) in std::mem::take(&mut self.open) {
            let error = gone("this request has no answer");
            if self.write(&rpc::response(&id, Err(error.into()))).await.is_err() {
                break;
            }
        }
        // Who has gone does not miss it.
        drop(self.socket.close(None).await);
    }
}

/// The next line. None: there are no more.
async fn read<R: AsyncBufRead + Unpin>(input: &mut R, line_bytes_max: usize) -> Option<Line> {
    match line(input, line_bytes_max).await {
        Ok(taken) => taken,
        Err(cause) => {
            tracing::warn!(%cause, "the input cannot be read");
            None
        }
    }
}

fn gone(why: &str) -> ApiError {
    ApiError::new(ErrorCode::UpstreamUnavailable, format!("the server that the sessions are in is gone: {why}"))
}
