//! The two doors of a client whose server may go at any moment: HTTP, and a socket with commands. None as an answer: it went
//! before it had said all.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;

/// Longest wait for an answer of a server that lives.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A command, for either door.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub kind: &'static str,
    /// The session that it is about; of a new one, none.
    pub session: String,
    pub fields: Map<String, Value>,
    /// With one it can be asked for again, through both doors.
    pub key: Option<String>,
    /// With one others can depend on it; then it goes over the socket.
    pub id: Option<String>,
    pub depends_on: Vec<String>,
    pub if_version: Option<u64>,
}

impl Asked {
    pub fn of(kind: &'static str, session: &str, fields: Value) -> Self {
        let Value::Object(fields) = fields else { panic!("{fields}: no fields") };
        Self { kind, session: session.to_owned(), fields, ..Self::default() }
    }

    /// Whether its outcome is in the commit of its effect: so it is never unknown whether it was done.
    pub fn rides(&self) -> bool {
        matches!(self.kind, "create_session" | "prompt" | "steer" | "configure" | "fork")
    }

    /// Whether only a socket can carry it.
    pub fn needs_socket(&self) -> bool {
        self.id.is_some() || !self.depends_on.is_empty() || self.kind == "steer"
    }

    /// What stands behind the first word of its prompt, or in its title: nothing else has it.
    pub fn token(&self) -> Option<&str> {
        match self.kind {
            "prompt" | "steer" => self.fields["prompt"].as_str()?.split(' ').nth(1),
            "configure" | "fork" => self.fields["title"].as_str(),
            _ => None,
        }
    }

    fn route(&self) -> (&'static str, String) {
        let id = &self.session;
        match self.kind {
            "create_session" => ("POST", "/sessions".to_owned()),
            "delete_session" => ("DELETE", format!("/sessions/{id}")),
            "configure" => ("PATCH", format!("/sessions/{id}")),
            other => ("POST", format!("/sessions/{id}/{other}")),
        }
    }

    fn message(&self, id: &str) -> Value {
        let mut message = Value::Object(self.fields.clone());
        message["type"] = self.kind.into();
        message["id"] = id.into();
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        if let Some(key) = &self.key {
            message["idempotencyKey"] = key.as_str().into();
        }
        if !self.depends_on.is_empty() {
            message["dependsOn"] = json!(self.depends_on);
        }
        if let Some(version) = self.if_version {
            message["ifSessionVersion"] = version.into();
        }
        message
    }
}

/// What was answered to a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub ok: bool,
    /// The answer, or the error.
    pub value: Value,
    pub replayed: bool,
}

impl Said {
    pub fn code(&self) -> &str {
        self.value["code"].as_str().unwrap_or_default()
    }

    /// It is not known whether it was done, and it never will be done.
    pub fn is_cut(&self) -> bool {
        self.value["details"]["reason"] == "interrupted by restart"
    }
}

/// One exchange: status, whether it says that it was answered before, body.
pub async fn exchange(
    port: u16,
    (method, path): (&str, &str),
    headers: &str,
    body: Option<&Value>,
) -> Option<(u16, bool, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{headers}{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        // An answer that was cut off is none.
        (length == Some(body.len())).then_some(())?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, head.contains("\r\nidempotency-replayed: true"), serde_json::from_str(body).ok()?))
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| panic!("{method} {path} was never answered"))
}

/// One request and its answer.
pub async fn call(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    exchange(port, (method, path), "", body).await.map(|(status, _, value)| (status, value))
}

/// A command over HTTP.
pub async fn ask(port: u16, asked: &Asked) -> Option<Said> {
    let (method, path) = asked.route();
    let mut headers = asked.key.as_ref().map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    if let Some(version) = asked.if_version {
        headers += &format!("if-match: \"{version}\"\r\n");
    }
    let body = Value::Object(asked.fields.clone());
    let body = (method != "DELETE").then_some(&body);
    let (status, replayed, mut value) = exchange(port, (method, &path), &headers, body).await?;
    let ok = (200..300).contains(&status);
    assert!(ok || value["error"].is_object(), "{asked:?}: {status} {value}");
    Some(Said { ok, value: if ok { value } else { value["error"].take() }, replayed })
}

/// Sees the events that come over a socket: session, number, text.
pub type Sees = Arc<dyn Fn(&str, u64, &str) + Send + Sync>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    session_id: Option<String>,
    event: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

/// What both ends of a socket know.
#[derive(Default)]
struct Open {
    /// Who waits for the answer to which id. Closed: the server has gone.
    waiting: Mutex<Option<HashMap<String, oneshot::Sender<Value>>>>,
    /// The next event of each session that is subscribed to.
    wanted: Mutex<BTreeMap<String, u64>>,
}

/// Ids of commands that nobody asks for again.
static NAMES: AtomicU64 = AtomicU64::new(0);

/// A socket with commands.
pub struct Socket {
    out: tokio::sync::Mutex<OwnedWriteHalf>,
    open: Arc<Open>,
    reader: tokio::task::JoinHandle<()>,
}

impl Socket {
    pub async fn open(port: u16, sees: Sees) -> Option<Arc<Self>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let (from, out) = stream.into_split();
        let open = Arc::new(Open { waiting: Mutex::new(Some(HashMap::new())), ..Open::default() });
        let reader = tokio::spawn(read(from, bytes.split_off(end), Arc::clone(&open), sees));
        Some(Arc::new(Self { out: tokio::sync::Mutex::new(out), open, reader }))
    }

    async fn say(&self, id: &str, message: &Value) -> Option<oneshot::Receiver<Value>> {
        let (tell, told) = oneshot::channel();
        self.open.waiting.lock().as_mut()?.insert(id.to_owned(), tell);
        self.out.lock().await.write_all(&frame(message.to_string().as_bytes())).await.ok()?;
        Some(told)
    }

    /// Hands a command in. It has its place in its lane when this returns, before those that are handed in later.
    pub async fn start(&self, asked: &Asked) -> Option<Answering> {
        // Names are remembered over all connections, and one of a command without a key is not to be.
        let id = asked.id.clone().unwrap_or_else(|| format!("once-{}", NAMES.fetch_add(1, Ordering::Relaxed)));
        let message = asked.message(&id);
        self.say(&id, &message).await.map(Answering)
    }

    pub async fn ask(&self, asked: &Asked) -> Option<Said> {
        self.start(asked).await?.end().await
    }

    /// Asks for a session's events behind number `after`. False: there is no such session.
    pub async fn subscribe(&self, session: &str, after: u64) -> Option<bool> {
        self.open.wanted.lock().insert(session.to_owned(), after + 1);
        let id = format!("subscribe-{session}");
        let message = json!({ "type": "subscribe", "id": id, "sessionId": session, "after": after });
        let told = self.say(&id, &message).await?;
        let said = tokio::time::timeout(PATIENCE, told).await.expect("an answer in time").ok()?;
        Some(said["success"] == true)
    }

    /// Waits until the server has gone.
    pub async fn finished(self: Arc<Self>) {
        match Arc::try_unwrap(self) {
            Ok(own) => own.reader.await.expect("the reader of a socket found something wrong"),
            Err(_) => panic!("somebody uses the socket still"),
        }
    }
}

/// A command under way.
pub struct Answering(oneshot::Receiver<Value>);

impl Answering {
    pub async fn end(self) -> Option<Said> {
        let mut said = tokio::time::timeout(PATIENCE, self.0).await.expect("an answer in time").ok()?;
        let ok = said["success"] == true;
        let value = said[if ok { "data" } else { "error" }].take();
        Some(Said { ok, value, replayed: said["replayed"] == true })
    }
}

async fn read(mut from: OwnedReadHalf, mut bytes: Vec<u8>, open: Arc<Open>, sees: Sees) {
    loop {
        while let Some((payload, length)) = split(&bytes) {
            if bytes[0] & 0x0f == 1 {
                let frame: Frame = serde_json::from_slice(&payload).expect("a message");
                match (frame.kind.as_str(), frame.event) {
                    ("event", Some(event)) => {
                        let session = frame.session_id.expect("a session");
                        let Numbered { seq } = serde_json::from_str(event.get()).expect("an event");
                        let want = {
                            let mut wanted = open.wanted.lock();
                            let want = wanted.get_mut(&session).expect("it was subscribed to");
                            *want += 1;
                            *want - 1
                        };
                        assert_eq!(seq, want, "{session}: the order of events over a socket");
                        sees(&session, seq, event.get());
                    }
                    ("response", _) => {
                        let id = frame.id.expect("an id");
                        let waits = open.waiting.lock().as_mut().and_then(|all| all.remove(&id));
                        let waits = waits.unwrap_or_else(|| panic!("{id} was answered and never asked, or twice"));
                        let _ = waits.send(serde_json::from_slice(&payload).expect("JSON"));
                    }
                    _ => {}
                }
            }
            bytes.drain(..length);
        }
        if from.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            // Who waits for an answer hears that there will be none.
            *open.waiting.lock() = None;
            return;
        }
    }
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    // A mask of zeros changes nothing.
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn split(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (head, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, usize::from(short)),
    };
    Some((bytes.get(head..head + length)?.to_vec(), head + length))
}
