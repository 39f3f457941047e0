//! Commands over a WebSocket of a node that may go, freeze or come back at any moment.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::wire::{ANSWER, Reply, Wanted, introduced};
use crate::support::socket::frame;

/// What both ends of a socket know.
#[derive(Default)]
struct Open {
    /// Who waits for the answer to which id.
    waiting: HashMap<String, oneshot::Sender<Value>>,
    /// The node has gone.
    has_ended: bool,
    /// Something came that must not.
    fault: Option<String>,
}

/// A socket that stays open, for commands of one client.
pub struct Socket {
    out: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    open: Arc<Mutex<Open>>,
    _reading: AbortOnDropHandle<()>,
}

impl Socket {
    /// None: the node is not there, or cannot now.
    pub async fn open(at: SocketAddr, client: Option<&str>) -> Option<Self> {
        let client = client.map(|client| format!("x-client-id: {client}\r\n")).unwrap_or_default();
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
        let head = format!("GET /ws HTTP/1.1\r\n{}{client}{upgrade}\r\n\r\n", introduced(at));
        let opening = async {
            let mut stream = TcpStream::connect(at).await.ok()?;
            stream.write_all(head.as_bytes()).await.ok()?;
            let mut bytes = Vec::new();
            loop {
                if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
                    let rest = bytes.split_off(end + 4);
                    return Some((stream, bytes, rest));
                }
                if stream.read_buf(&mut bytes).await.ok()? == 0 {
                    return None;
                }
            }
        };
        let (stream, head, rest) = tokio::time::timeout(ANSWER, opening).await.ok()??;
        if !head.starts_with(b"HTTP/1.1 101 ") {
            let head = String::from_utf8_lossy(&head);
            assert!(["429", "502", "503", "504"].iter().any(|status| head[9..].starts_with(status)), "{head}");
            return None;
        }
        let (from, out) = stream.into_split();
        let (out, open) = (Arc::new(tokio::sync::Mutex::new(out)), Arc::<Mutex<Open>>::default());
        let reading = tokio::spawn(read((from, rest), Arc::clone(&out), Arc::clone(&open)));
        Some(Self { out, open, _reading: AbortOnDropHandle::new(reading) })
    }

    /// Gives a command, under an id that no other one has. None: no answer came.
    pub async fn ask(&self, wanted: &Wanted) -> Option<Reply> {
        self.ask_within(wanted, ANSWER).await
    }

    /// The same, and waits so long for an answer.
    pub async fn ask_within(&self, wanted: &Wanted, patience: Duration) -> Option<Reply> {
        // An id is remembered as a key is, over all nodes: what is asked for again has the same key and another id.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut message = wanted.command().expect("it can be a command");
        message["id"] = id.as_str().into();
        let (tell, told) = oneshot::channel();
        {
            let mut open = self.open.lock();
            assert_eq!(open.fault, None);
            if open.has_ended {
                return None;
            }
            open.waiting.insert(id, tell);
        }
        let asking = async {
            let text = message.to_string();
            self.out.lock().await.write_all(&frame(0x81, text.as_bytes())).await.ok()?;
            told.await.ok()
        };
        let said = tokio::time::timeout(patience, asking).await.ok()??;
        Some(reply(said))
    }
}

/// As HTTP would have answered it.
fn reply(mut said: Value) -> Reply {
    let replayed = said["replayed"] == true;
    if said["success"] == true {
        return Reply { status: 200, replayed, value: said["data"].take() };
    }
    let status = match said["error"]["code"].as_str() {
        Some("INVALID_ARGUMENT") => 400,
        Some("NOT_FOUND") => 404,
        Some("CONFLICT") => 409,
        Some("RESOURCE_EXHAUSTED") => 429,
        Some("UPSTREAM_UNAVAILABLE") => 503,
        Some("TIMEOUT") => 504,
        _ => 500,
    };
    Reply { status, replayed, value: json!({ "error": said["error"].take() }) }
}

async fn read(
    (mut from, mut bytes): (OwnedReadHalf, Vec<u8>),
    out: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    open: Arc<Mutex<Open>>,
) {
    loop {
        while let Some((payload, length)) = split(&bytes) {
            match bytes[0] & 0x0f {
                1 => {
                    let said: Value = serde_json::from_slice(&payload).expect("a message");
                    if said["type"] == "response" {
                        let id = said["id"].as_str().expect("an id");
                        let mut open = open.lock();
                        match open.waiting.remove(id) {
                            Some(waits) => drop(waits.send(said)),
                            None => open.fault = Some(format!("it was answered twice, or never asked: {said}")),
                        }
                    }
                }
                9 => drop(out.lock().await.write_all(&frame(0x8a, &payload)).await),
                _ => {}
            }
            bytes.drain(..length);
        }
        if from.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            // Who waits for an answer hears that there will be none.
            let mut open = open.lock();
            open.has_ended = true;
            open.waiting.clear();
            return;
        }
    }
}

/// The first frame that is whole: what it holds, and its length.
fn split(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (head, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, usize::from(short)),
    };
    Some((bytes.get(head..head + length)?.to_vec(), head + length))
}
