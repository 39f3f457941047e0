//! Requests to a node that may go, freeze or come back at any moment. None as an answer: none came, or it broke off.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The owner's token, which all nodes have.
pub const TOKEN: &str = "the-token-of-all-nodes";
/// Longest wait for an answer of a node that may be frozen, and for the end of who held the session.
pub const ANSWER: Duration = Duration::from_secs(8);
/// A stream that says nothing for so long is read elsewhere.
const SILENCE: Duration = Duration::from_secs(2);

/// Whom a request is for, and who sends it.
pub fn introduced(at: SocketAddr) -> String {
    format!("host: {at}\r\nauthorization: Bearer {TOKEN}\r\n")
}

/// A request, for any node.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    method: &'static str,
    path: String,
    client: Option<String>,
    /// With one it can be asked for again, everywhere.
    pub key: Option<String>,
    version: Option<u64>,
    /// The newest event that its sender saw.
    last_event: Option<u64>,
    body: Option<Value>,
}

impl Wanted {
    pub fn get(path: &str) -> Self {
        Self { method: "GET", path: path.to_owned(), ..Self::default() }
    }

    pub fn post(path: &str, body: Value) -> Self {
        Self { method: "POST", body: Some(body), ..Self::get(path) }
    }

    pub fn patch(path: &str, body: Value) -> Self {
        Self { method: "PATCH", ..Self::post(path, body) }
    }

    /// By a client of this name. None: by the owner.
    pub fn by(self, client: Option<&str>) -> Self {
        Self { client: client.map(str::to_owned), ..self }
    }

    pub fn keyed(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Only of a session in this version.
    pub fn at_version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Of a stream that was seen up to that event.
    pub fn behind(self, seq: u64) -> Self {
        Self { last_event: Some(seq), ..self }
    }

    /// By whom.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// The same as a command for a socket, without an id. None: there is no such command, or it cannot be asked for again.
    pub fn command(&self) -> Option<Value> {
        let pieces: Vec<&str> = self.path.split('/').skip(1).collect();
        let (kind, session) = match (self.method, &pieces[..]) {
            ("POST", ["sessions"]) => ("create_session", None),
            ("POST", ["sessions", id, kind @ ("prompt" | "abort" | "fork")]) => (*kind, Some(*id)),
            ("PATCH", ["sessions", id]) => ("configure", Some(*id)),
            _ => return None,
        };
        let mut message = self.body.clone()?;
        message["type"] = kind.into();
        message["idempotencyKey"] = self.key.as_deref()?.into();
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        if let Some(version) = self.version {
            message["ifSessionVersion"] = version.into();
        }
        Some(message)
    }

    fn text(&self, at: SocketAddr) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n{}connection: close\r\n", self.method, self.path, introduced(at));
        if let Some(client) = &self.client {
            head += &format!("x-client-id: {client}\r\n");
        }
        if let Some(key) = &self.key {
            head += &format!("idempotency-key: {key}\r\n");
        }
        if let Some(version) = self.version {
            head += &format!("if-match: \"{version}\"\r\n");
        }
        if let Some(seq) = self.last_event {
            head += &format!("last-event-id: {seq}\r\n");
        }
        match &self.body {
            Some(body) => {
                let body = body.to_string();
                format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
            None => head + "\r\n",
        }
    }

    /// Asks one node once.
    pub async fn ask(&self, at: SocketAddr) -> Option<Reply> {
        self.ask_within(at, ANSWER).await
    }

    /// The same, and waits so long for an answer.
    pub async fn ask_within(&self, at: SocketAddr, patience: Duration) -> Option<Reply> {
        let exchange = async {
            let mut stream = TcpStream::connect(at).await.ok()?;
            stream.write_all(self.text(at).as_bytes()).await.ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok()?;
            Reply::read(&answer)
        };
        tokio::time::timeout(patience, exchange).await.ok()?
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// It says that it was answered before.
    pub replayed: bool,
    pub value: Value,
}

impl Reply {
    fn read(answer: &[u8]) -> Option<Self> {
        let end = memchr::memmem::find(answer, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
        let body = &answer[end + 4..];
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let body = match length {
            // An answer that was cut off is none.
            Some(length) => (length == body.len()).then(|| body.to_vec())?,
            None => unchunked(body)?,
        };
        let value = serde_json::from_slice(&body).ok()?;
        Some(Self { status, replayed: head.contains("\r\nidempotency-replayed: true"), value })
    }

    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether nothing is to be gained by asking again.
    pub fn is_decided(&self) -> bool {
        !matches!(self.status, 429 | 502..=504)
    }

    /// It is not known whether it was done, and it never will be done: who did it was lost, or has lost its place while it did it.
    pub fn is_cut(&self) -> bool {
        let error = &self.value["error"];
        let is_lost = |text: &str| text.contains("could not be stored: another server has taken over");
        error["details"]["reason"] == "interrupted by restart" || error["message"].as_str().is_some_and(is_lost)
    }

    /// A field that is a text.
    pub fn text(&self, field: &str) -> String {
        self.value[field].as_str().unwrap_or_else(|| panic!("`{field}` is no text: {self:?}")).to_owned()
    }

    /// A field that is a number.
    pub fn number(&self, field: &str) -> u64 {
        self.value[field].as_u64().unwrap_or_else(|| panic!("`{field}` is no number: {self:?}"))
    }
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = memchr::memmem::find(rest, b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        rest = &rest[line + 2..];
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

/// An event stream of a session.
pub struct Stream {
    connection: BufReader<TcpStream>,
    is_chunked: bool,
    text: Vec<u8>,
    patience: Duration,
}

impl Stream {
    /// What stands behind event `after`. None: the node is not there, or cannot now.
    pub async fn open(at: SocketAddr, (session, client): (&str, Option<&str>), after: u64) -> Option<Self> {
        let client = client.map(|client| format!("x-client-id: {client}\r\n")).unwrap_or_default();
        let head = format!("GET /sessions/{session}/events HTTP/1.1\r\n{}{client}", introduced(at));
        let head = format!("{head}last-event-id: {after}\r\n\r\n");
        let opening = async {
            let mut connection = BufReader::new(TcpStream::connect(at).await.ok()?);
            connection.write_all(head.as_bytes()).await.ok()?;
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if connection.read_line(&mut line).await.ok()? == 0 {
                    return None;
                }
                if line.trim_end().is_empty() {
                    return Some((connection, lines));
                }
                lines.push(line.trim_end().to_ascii_lowercase());
            }
        };
        let (connection, lines) = tokio::time::timeout(ANSWER, opening).await.ok()??;
        let status: u16 = lines[0].split(' ').nth(1)?.parse().ok()?;
        if matches!(status, 429 | 502..=504) {
            return None;
        }
        assert_eq!(status, 200, "{session} behind {after}, at {at}: {lines:?}");
        let is_chunked = lines.iter().any(|line| line == "transfer-encoding: chunked");
        Some(Self { connection, is_chunked, text: Vec::new(), patience: SILENCE })
    }

    /// It may be silent for so long.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The next event: its number, and its data as they came. None: the stream has ended, or is silent.
    pub async fn next(&mut self) -> Option<(u64, String)> {
        tokio::time::timeout(self.patience, self.read()).await.ok()?
    }

    async fn read(&mut self) -> Option<(u64, String)> {
        loop {
            let Some(end) = memchr::memmem::find(&self.text, b"\n\n") else {
                self.piece().await?;
                continue;
            };
            let frame: Vec<u8> = self.text.drain(..end + 2).collect();
            let frame = std::str::from_utf8(&frame).expect("a frame is a text");
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
            // Comments and `ready` have no number.
            if let (Some(number), Some(data)) = (field("id: "), field("data: ")) {
                return Some((number.parse().expect("a number"), data.to_owned()));
            }
        }
    }

    /// Takes in the next piece of the body.
    async fn piece(&mut self) -> Option<()> {
        if !self.is_chunked {
            return (self.connection.read_buf(&mut self.text).await.ok()? > 0).then_some(());
        }
        let mut size = String::new();
        self.connection.read_line(&mut size).await.ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        self.connection.read_exact(&mut chunk).await.ok()?;
        self.text.extend_from_slice(&chunk[..size]);
        (size > 0).then_some(())
    }
}
