//! A small HTTP client for our own servers.
//!
//! It speaks HTTP/1.0: one connection a request, and a body ends where the connection ends. That is all
//! that calls to a neighbour need, event streams included. What wants TLS goes the way of `base::http`.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use crate::base::http::{self, Answer};
use crate::base::proof::ProofKey;
use crate::protocol::{ErrorEnvelope, Event};

/// Longest wait for an answer to a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest silence of a server behind TLS: it says something on every stream within seconds.
const SILENCE: Duration = Duration::from_secs(120);
/// Largest answer, and largest event.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A call did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The server refused.
    #[error("{call}: {status}, {message}")]
    Refused {
        /// Method and path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// The connection broke, or what came is not HTTP.
    #[error("{call}: {cause}")]
    Broken {
        /// Method and path.
        call: String,
        /// The system's words.
        cause: std::io::Error,
    },
}

impl ClientError {
    /// Whether trying again is of no use: the server has answered, and not that it is busy.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Refused { status: 400..=499, .. })
            && !matches!(self, Self::Refused { status: 408 | 429, .. })
    }
}

/// Where the server is, and what it wants to see.
#[derive(Debug, Clone)]
pub(super) struct Client {
    /// Where to.
    pub(super) way: Way,
    /// The token.
    pub(super) token: Option<SecretString>,
}

/// Where a server is reached.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// `host:port`.
    Network(String),
    /// A Unix socket.
    Socket(PathBuf),
    /// An address that wants TLS: `https://host:port`.
    Encrypted(String),
}

/// A connection, either way.
pub(super) trait Line: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}
type Connection = BufReader<Box<dyn Line>>;

/// The body of an answer, to be read once.
enum Body {
    /// Its connection ends with it.
    Plain(Connection),
    /// It comes in pieces; what is read of the last one lies in front.
    Pieces(Box<Answer>, Bytes),
}

impl Way {
    /// A connection to it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) async fn connect(&self) -> std::io::Result<Box<dyn Line>> {
        match self {
            Self::Network(authority) => {
                let connection = TcpStream::connect(authority).await?;
                connection.set_nodelay(true)?;
                Ok(Box::new(connection))
            }
            Self::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Encrypted(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// Its address, as a person writes it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Network(authority) => format!("http://{authority}"),
            Self::Socket(path) => format!("unix:{}", path.display()),
            Self::Encrypted(url) => url.clone(),
        }
    }

    /// Whether it leads to this machine.
    pub(super) fn is_near(&self) -> bool {
        let host = match self {
            Self::Socket(_) => return true,
            Self::Network(authority) => authority,
            Self::Encrypted(url) => url.trim_start_matches("https://"),
        };
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// What it is called in requests.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Network(authority) => authority,
            Self::Socket(_) => "localhost",
            Self::Encrypted(url) => url.trim_start_matches("https://"),
        }
    }
}

/// Events as they come.
pub(super) struct Events {
    body: Body,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    call: String,
}

impl Client {
    /// Calls a route and takes its JSON answer.
    ///
    /// # Errors
    /// [`ClientError`], with the server's own words where it gave some.
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let call = format!("{method} {path}");
        let exchange = async {
            let (status, answer) = self.send(method, path, body).await?;
            let answer = answer.all().await?;
            Ok((status, answer))
        };
        let timely = tokio::time::timeout(CALL_TIMEOUT, exchange).await;
        let (status, answer) = timely
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(|cause| ClientError::Broken { call: call.clone(), cause })?;
        if !(200..300).contains(&status) {
            return Err(refused(call, status, &answer));
        }
        serde_json::from_slice(&answer).map_err(|cause| ClientError::Broken { call, cause: cause.into() })
    }

    /// Reads what lies at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.call("GET", path, None).await?;
        serde_json::from_value(answer)
            .map_err(|cause| ClientError::Broken { call: format!("GET {path}"), cause: cause.into() })
    }

    /// Whether the server shows that it is the one whose key this is.
    pub(super) async fn shows(&self, key: &ProofKey) -> bool {
        let nonce = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let Some(wanted) = key.prove(&nonce) else { return false };
        let shown = self.call("GET", &format!("/proof/{nonce}"), None).await;
        shown.is_ok_and(|shown| shown["proof"] == wanted)
    }

    /// Opens an event stream.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn events(&self, path: &str) -> Result<Events, ClientError> {
        let call = format!("GET {path}");
        let broken = |cause| ClientError::Broken { call: call.clone(), cause };
        let (status, body) = self.send("GET", path, None).await.map_err(broken)?;
        if status == 200 {
            return Ok(Events { body, partial: Vec::new(), call });
        }
        let answer = body.all().await.map_err(broken)?;
        Err(refused(call, status, &answer))
    }

    /// Sends a request and reads the head of the answer.
    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<(u16, Body)> {
        if let Way::Encrypted(base) = &self.way {
            return self.send_encrypted((method, &format!("{base}{path}")), body).await;
        }
        let mut request = format!("{method} {path} HTTP/1.0\r\nHost: {}\r\n", self.way.host());
        if let Some(token) = &self.token {
            request.push_str(&format!("Authorization: Bearer {}\r\n", token.expose_secret()));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request.push_str("Content-Type: application/json\r\n");
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let mut connection = self.way.connect().await?;
        connection.write_all(request.as_bytes()).await?;
        let mut connection = BufReader::new(connection);
        let mut partial = Vec::new();
        let first = line(&mut connection, &mut partial).await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "not HTTP"))?;
        while line(&mut connection, &mut partial).await?.is_some_and(|header| !header.is_empty()) {}
        Ok((status, Body::Plain(connection)))
    }

    async fn send_encrypted(&self, (method, url): (&str, &str), body: Option<&Value>) -> std::io::Result<(u16, Body)> {
        let method = method.parse().map_err(std::io::Error::other)?;
        let way = http::Way::to(url, None).await.map_err(std::io::Error::other)?;
        let bearer = self.token.as_ref().map(|token| format!("Bearer {}", token.expose_secret()));
        let mut headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = body.map(|body| Bytes::from(body.to_string()));
        let answer = way.send(&method, &headers, (body, SILENCE)).await.map_err(std::io::Error::other)?;
        Ok((answer.status, Body::Pieces(Box::new(answer), Bytes::new())))
    }
}

impl Events {
    /// The next event. None: the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub(super) async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        let broken = |call: &str, cause| ClientError::Broken { call: call.to_owned(), cause };
        loop {
            let read = self.body.line(&mut self.partial).await;
            let Some(text) = read.map_err(|cause| broken(&self.call, cause))? else { return Ok(None) };
            // Comments, ids and the line between two frames say nothing new; `ready` has no number.
            let Some(data) = text.strip_prefix("data: ") else { continue };
            if let Ok(event) = serde_json::from_str(data) {
                return Ok(Some(event));
            }
        }
    }
}

impl Body {
    /// All of it.
    async fn all(self) -> std::io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        match self {
            Self::Plain(connection) => drop(connection.take(ANSWER_BYTES_MAX).read_to_end(&mut whole).await?),
            Self::Pieces(mut answer, rest) => {
                whole.extend_from_slice(&rest);
                while let Some(piece) = answer.chunk().await.map_err(std::io::Error::other)? {
                    within(whole.len() + piece.len())?;
                    whole.extend_from_slice(&piece);
                }
            }
        }
        Ok(whole)
    }

    /// The next line without its end. None at the end. Cancel-safe: what came of it so far stays in `partial`.
    async fn line(&mut self, partial: &mut Vec<u8>) -> std::io::Result<Option<String>> {
        let (answer, rest) = match self {
            Self::Plain(connection) => return line(connection, partial).await,
            Self::Pieces(answer, rest) => (answer, rest),
        };
        loop {
            if let Some(end) = memchr::memchr(b'\n', rest) {
                partial.extend_from_slice(&rest.split_to(end + 1));
                return Ok(taken(partial));
            }
            partial.extend_from_slice(&std::mem::take(rest));
            within(partial.len())?;
            match answer.chunk().await.map_err(std::io::Error::other)? {
                Some(piece) => *rest = piece,
                None => return Ok(taken(partial)),
            }
        }
    }
}

/// Whether so much may be taken.
fn within(bytes: usize) -> std::io::Result<()> {
    if bytes as u64 <= ANSWER_BYTES_MAX { Ok(()) } else { Err(std::io::ErrorKind::FileTooLarge.into()) }
}

/// The line that lies there, if one does.
fn taken(partial: &mut Vec<u8>) -> Option<String> {
    let bytes = std::mem::take(partial);
    let text = String::from_utf8_lossy(&bytes);
    (!bytes.is_empty()).then(|| text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The next line without its end. None at the end of the connection. What came of it so far stays in `partial`.
async fn line(connection: &mut Connection, partial: &mut Vec<u8>) -> std::io::Result<Option<String>> {
    connection.take(ANSWER_BYTES_MAX).read_until(b'\n', partial).await?;
    Ok(taken(partial))
}

fn refused(call: String, status: u16, answer: &[u8]) -> ClientError {
    let said = serde_json::from_slice::<ErrorEnvelope>(answer).map(|envelope| envelope.error.message);
    ClientError::Refused { call, status, message: said.unwrap_or_else(|_| "no reason given".to_owned()) }
}
