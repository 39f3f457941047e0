//! An HTTP client that sends exactly what a test says, and tells exactly what came.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Longest wait for anything; a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What something comes to. Panics when that takes too long: a test that waits for ever tells nobody what it waits for.
#[track_caller]
pub fn within<T>(waits: impl Future<Output = T>) -> impl Future<Output = T> {
    let at = std::panic::Location::caller();
    async move {
        let came = tokio::time::timeout(PATIENCE, waits).await;
        came.unwrap_or_else(|_| panic!("{at} waits for longer than {PATIENCE:?}"))
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }

    /// The error code of the envelope, whose other parts must be there too.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body = self.json();
        assert!(body["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
        body["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// A request under construction.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A request with a `Host` that fits.
pub fn request(address: SocketAddr, method: &str, path: &str) -> Request {
    let headers = vec![("Host".to_owned(), address.to_string())];
    Request { method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
}

impl Request {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// A JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string().as_bytes())
    }

    /// Any body.
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.header("Content-Length", &body.len().to_string())
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it on a connection of its own and takes the whole answer.
    pub async fn send(&self, address: SocketAddr) -> Reply {
        let mut stream = self.open(address).await;
        let body = stream.rest().await;
        Reply { status: stream.status, headers: stream.headers, body }
    }

    /// The same; None when the connection is refused, or breaks before the answer is there.
    pub async fn try_send(&self, address: SocketAddr) -> Option<Reply> {
        let mut connection = TcpStream::connect(address).await.ok()?;
        connection.write_all(&self.bytes()).await.ok()?;
        let mut first = [0];
        if connection.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        let mut stream = Stream::read_head(connection).await;
        let body = stream.rest().await;
        Some(Reply { status: stream.status, headers: stream.headers, body })
    }

    /// Sends it and reads the head of the answer.
    pub async fn open(&self, address: SocketAddr) -> Stream {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(&self.bytes()).await.unwrap();
        Stream::read_head(connection).await
    }
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct Stream {
    /// The status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    connection: BufReader<TcpStream>,
    buffer: Vec<u8>,
}

/// One frame of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The line `id:`.
    pub id: Option<u64>,
    /// The line `data:`, as JSON. `Null` for a comment.
    pub data: Value,
    /// Whether it is a comment.
    pub comment: bool,
}

impl Frame {
    /// The event's type.
    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or("")
    }
}

impl Stream {
    /// Reads status and headers.
    pub async fn read_head(connection: TcpStream) -> Self {
        let mut connection = BufReader::new(connection);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, connection.read_line(&mut line)).await;
            assert!(read.expect("no answer").unwrap() > 0, "the connection ended before the head did: {lines:?}");
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines[1..]
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Self { status, headers, connection, buffer: Vec::new() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The next piece of the body. None: its end.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        if self.header("transfer-encoding") != Some("chunked") {
            let mut all = Vec::new();
            match self.header("content-length").map(|length| length.parse::<u64>().unwrap()) {
                Some(length) => (&mut self.connection).take(length).read_to_end(&mut all).await.unwrap(),
                None => self.connection.read_to_end(&mut all).await.unwrap(),
            };
            return (!all.is_empty()).then_some(all);
        }
        let mut size = String::new();
        if self.connection.read_line(&mut size).await.ok()? == 0 {
            return None;
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.connection.read_exact(&mut chunk).await.ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// All that is left of the body.
    pub async fn rest(&mut self) -> Vec<u8> {
        let reading = async {
            let mut all = std::mem::take(&mut self.buffer);
            let counted = self.header("transfer-encoding") == Some("chunked");
            while let Some(piece) = self.piece().await {
                all.extend(piece);
                if !counted {
                    break;
                }
            }
            all
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the body does not end")
    }

    /// The connection, for the next request.
    pub fn into_socket(self) -> TcpStream {
        assert!(self.connection.buffer().is_empty(), "something stands behind the answer");
        self.connection.into_inner()
    }

    /// The next frame of an event stream. None: its end.
    pub async fn frame(&mut self) -> Option<Frame> {
        let reading = async {
            loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                    let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
                    return Some(parse_frame(std::str::from_utf8(&frame).unwrap()));
                }
                let piece = self.piece().await?;
                self.buffer.extend(piece);
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no frame came")
    }

    /// The next frame of an event stream as it stands. None: its end.
    pub async fn raw_frame(&mut self) -> Option<String> {
        let reading = async {
            loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                    let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
                    return Some(String::from_utf8(frame).unwrap());
                }
                let piece = self.piece().await?;
                self.buffer.extend(piece);
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no frame came")
    }

    /// The next event that is no comment. Panics at the end, and when none comes in time.
    pub async fn event(&mut self) -> Frame {
        let reading = async {
            loop {
                let frame = self.frame().await.expect("the stream ended");
                if !frame.comment {
                    return frame;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no event came")
    }

    /// Events up to and with the first of a type.
    pub async fn until(&mut self, kind: &str) -> Vec<Frame> {
        let mut seen = Vec::new();
        loop {
            seen.push(self.event().await);
            if seen.last().is_some_and(|frame| frame.kind() == kind) {
                return seen;
            }
        }
    }
}

fn parse_frame(text: &str) -> Frame {
    let mut frame = Frame { id: None, data: Value::Null, comment: false };
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("", _)) => frame.comment = true,
            Some(("id", id)) => frame.id = Some(id.parse().unwrap()),
            Some(("data", data)) => frame.data = serde_json::from_str(data).unwrap(),
            _ => panic!("a line that no stream of ours has: {line:?}"),
        }
    }
    frame
}
