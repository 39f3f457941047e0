//! The clients: each owns a few sessions, does one thing after another with them, and writes down what it was told.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::ledger::{Ledger, Word};

/// Longest wait for an answer of a server that lives.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sessions of one client at a time.
const SESSIONS: usize = 2;
/// A session with more prompts than this is retired.
const PROMPTS: usize = 24;

/// Numbers that look like chance and follow from a seed (splitmix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// One request. None: the server went before the whole answer was here.
pub async fn call(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        // An answer that was cut off is none.
        (length == Some(body.len())).then_some(())?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).ok()?))
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| panic!("{method} {path} was never answered"))
}

/// Reads a session's stream from behind the newest event that anybody saw of it, until the server goes or the session
/// ends, and answers its questions.
async fn reader(port: u16, session: String, ledger: Arc<Mutex<Ledger>>, mut chance: Chance) {
    let after = ledger.lock().newest(&session);
    let head =
        format!("GET /sessions/{session}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nlast-event-id: {after}\r\n\r\n");
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let mut lines = BufReader::new(stream);
    let (mut line, mut seq, mut want) = (String::new(), None, after + 1);
    loop {
        line.clear();
        let read = tokio::time::timeout(PATIENCE, lines.read_line(&mut line)).await.expect("a stream says something");
        // A frame that breaks off shows nothing.
        if read.unwrap_or(0) == 0 || !line.ends_with('\n') {
            return;
        }
        if let Some(text) = line.strip_prefix("id: ") {
            seq = text.trim().parse::<u64>().ok();
        }
        let (Some(data), Some(number)) = (line.strip_prefix("data: "), seq) else { continue };
        if number == want {
            want += 1;
        } else {
            assert!(number < want, "{session}: event {number} came where {want} was due");
            continue;
        }
        let question = ledger.lock().saw(&session, number, data.trim_end());
        if let Some(request) = question {
            let allowed = chance.below(3) > 0;
            let body = json!({ "requestId": request, "allowed": allowed });
            let path = format!("/sessions/{session}/feedback");
            if let Some((200, _)) = call(port, "POST", &path, Some(&body)).await {
                ledger.lock().answered(&session, &request, allowed);
            }
        }
    }
}

/// One client, until the server goes.
pub async fn client(number: u64, port: u16, ledger: Arc<Mutex<Ledger>>, seed: u64) {
    let mut chance = Chance::new(seed);
    let mut readers = tokio::task::JoinSet::new();
    for session in ledger.lock().sessions_of(number) {
        let chance = Chance::new(chance.next());
        readers.spawn(reader(port, session, Arc::clone(&ledger), chance));
    }
    while step(number, port, &ledger, (&mut chance, &mut readers)).await.is_some() {}
    while let Some(ended) = readers.join_next().await {
        ended.expect("a reader found something wrong");
    }
}

/// One thing. None: the server has gone.
async fn step(
    number: u64,
    port: u16,
    ledger: &Arc<Mutex<Ledger>>,
    (chance, readers): (&mut Chance, &mut tokio::task::JoinSet<()>),
) -> Option<()> {
    let own = ledger.lock().sessions_of(number);
    if own.len() < SESSIONS {
        return create(number, port, ledger, (chance, readers)).await;
    }
    let session = own[usize::try_from(chance.below(own.len() as u64)).expect("few")].clone();
    if ledger.lock().prompts(&session) >= PROMPTS {
        ledger.lock().deleting(&session);
        let (status, answer) = call(port, "DELETE", &format!("/sessions/{session}"), None).await?;
        assert_eq!(status, 200, "{session}: {answer}");
        ledger.lock().deleted(&session);
        return Some(());
    }
    match chance.below(12) {
        0 => abort(port, &session, ledger).await,
        1 => {
            let (status, view) = call(port, "GET", &format!("/sessions/{session}"), None).await?;
            assert_eq!(status, 200, "{session}: {view}");
            ledger.lock().viewed(&session, &view);
            Some(())
        }
        2 => {
            let (status, page) = call(port, "GET", &format!("/sessions/{session}/history?limit=5"), None).await?;
            assert_eq!(status, 200, "{session}: {page}");
            Some(())
        }
        _ => prompt(port, &session, ledger, chance).await,
    }
}

async fn create(
    number: u64,
    port: u16,
    ledger: &Arc<Mutex<Ledger>>,
    (chance, readers): (&mut Chance, &mut tokio::task::JoinSet<()>),
) -> Option<()> {
    let asks = chance.below(2) == 0;
    let session = ledger.lock().creating(number);
    let policy = if asks { "ask" } else { "allow" };
    let body = json!({ "sessionId": session, "toolPermissions": { "defaultPolicy": policy, "rules": [] } });
    let (status, answer) = call(port, "POST", "/sessions", Some(&body)).await?;
    assert_eq!(status, 201, "{answer}");
    ledger.lock().created(&session);
    readers.spawn(reader(port, session, Arc::clone(ledger), Chance::new(chance.next())));
    Some(())
}

async fn abort(port: u16, session: &str, ledger: &Arc<Mutex<Ledger>>) -> Option<()> {
    let (status, answer) = call(port, "POST", &format!("/sessions/{session}/abort"), Some(&json!({}))).await?;
    match status {
        200 => ledger.lock().aborted(session, answer["turnId"].as_str().expect("an id")),
        409 => {}
        other => panic!("{session}: {other} {answer}"),
    }
    Some(())
}

async fn prompt(port: u16, session: &str, ledger: &Arc<Mutex<Ledger>>, chance: &mut Chance) -> Option<()> {
    let what = ["quick", "quick", "slow", "run", "write", "write"][usize::try_from(chance.below(6)).expect("few")];
    let mode = ["queue", "queue", "queue", "steer", "reject"][usize::try_from(chance.below(5)).expect("few")];
    let waits = what == "quick" && mode == "queue" && chance.below(4) == 0;
    let token = ledger.lock().prompting(session, mode);
    let body = json!({ "prompt": format!("{what} {token}"), "mode": mode });
    let query = if waits { "?wait=true" } else { "" };
    let answer = call(port, "POST", &format!("/sessions/{session}/prompt{query}"), Some(&body)).await;
    let (status, answer) = answer?;
    let word = match status {
        200 | 202 => Word::Yes(answer["turnId"].as_str().expect("an id").to_owned()),
        // Busy, or a full queue.
        409 | 429 => Word::No,
        other => panic!("{session}: {other} {answer}"),
    };
    let mut ledger = ledger.lock();
    ledger.prompted(session, &token, word);
    if status == 200 {
        ledger.finished(session, &answer);
    }
    Some(())
}
