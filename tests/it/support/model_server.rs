//! A scripted model behind the true chat-completions wire, on loopback. HTTP by hand: a test wants to
//! decide about every byte, and a benchmark wants nothing in the way.
//!
//! A script is a function from a request to an [`Answer`]; [`queue`] makes one of a list.
//! [`prompted`] takes the script out of the prompt itself, so that one server serves any benchmark.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Such as `/v1/chat/completions`.
    pub path: String,
    /// The head, in lower case up to each colon.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a model is sent JSON")
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// What is done about a request, step by step. Headers go out with the first step that sends something.
#[derive(Debug, Clone)]
pub enum Step {
    /// Bytes of the body.
    Send(Bytes),
    /// Nothing, for a while.
    Pause(Duration),
    /// Nothing, for ever: until the client goes.
    Hang,
    /// The connection ends here, without the end of the body.
    Cut,
}

/// An answer: status, headers and steps.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<Step>,
}

/// From a request to its answer.
pub type Script = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

impl Answer {
    /// A stream of raw bytes.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::steps(vec![Step::Send(bytes.into())])
    }

    /// A stream made of steps.
    pub fn steps(steps: Vec<Step>) -> Self {
        Self { status: 200, headers: vec![("content-type".into(), "text/event-stream".into())], steps }
    }

    /// A text in these deltas, then the reason to stop, tokens and `[DONE]`.
    pub fn text(deltas: &[&str]) -> Self {
        Self::paced(deltas, Duration::ZERO)
    }

    /// The same with a pause before each delta.
    pub fn paced(deltas: &[&str], pause: Duration) -> Self {
        let mut steps = Vec::new();
        let mut out = BytesMut::new();
        for delta in deltas {
            if !pause.is_zero() {
                steps.push(Step::Send(out.split().freeze()));
                steps.push(Step::Pause(pause));
            }
            out.extend_from_slice(text_chunk(delta).as_bytes());
        }
        out.extend_from_slice(end("stop").as_bytes());
        steps.push(Step::Send(out.freeze()));
        Self::steps(steps)
    }

    /// A text so often, with a thought between each two: as many pieces on our side, too.
    pub fn text_and_thoughts(text: &str, texts: usize) -> Self {
        let pair = text_chunk(text) + &chunk(&json!({ "reasoning_content": "so" }), None);
        Self::raw(pair.repeat(texts) + &end("stop"))
    }

    /// Calls `(id, name, arguments)`, perhaps after a text.
    pub fn calls(text: &str, calls: &[(&str, &str, Value)]) -> Self {
        let mut out = String::new();
        if !text.is_empty() {
            out.push_str(&text_chunk(text));
        }
        for (index, (id, name, arguments)) in calls.iter().enumerate() {
            out.push_str(&call_chunks(index, id, name, &arguments.to_string()));
        }
        out.push_str(&end("tool_calls"));
        Self::raw(out)
    }

    /// An error status with a body.
    pub fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
        Self { status, headers: headers.iter().map(own).collect(), steps: vec![Step::Send(body.to_owned().into())] }
    }

    /// The same under another status and with other headers.
    pub fn under(self, status: u16, headers: &[(&str, &str)]) -> Self {
        Self { steps: self.steps, ..Self::status(status, headers, "") }
    }

    /// A text whose connection is cut in its middle.
    pub fn cut(deltas: &[&str]) -> Self {
        let bytes: String = deltas.iter().map(|delta| text_chunk(delta)).collect();
        Self::steps(vec![Step::Send(bytes.into()), Step::Cut])
    }

    /// A text, then silence.
    pub fn silence_after(deltas: &[&str]) -> Self {
        let bytes: String = deltas.iter().map(|delta| text_chunk(delta)).collect();
        Self::steps(vec![Step::Send(bytes.into()), Step::Hang])
    }

    /// Not even headers.
    pub fn silence() -> Self {
        Self::steps(vec![Step::Hang])
    }
}

/// Answers in order; the last one is repeated.
pub fn queue(answers: impl IntoIterator<Item = Answer>) -> Script {
    let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
    Arc::new(move |_| {
        let mut answers = answers.lock();
        let next = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        next.expect("a script has an answer")
    })
}

/// One chunk of text.
pub fn text_chunk(text: &str) -> String {
    chunk(&json!({ "content": text }), None)
}

/// A call: its announcement, then its arguments in two pieces.
pub fn call_chunks(index: usize, id: &str, name: &str, arguments: &str) -> String {
    let middle = (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = arguments.split_at(middle);
    let function = json!({ "name": name, "arguments": "" });
    let mut out =
        chunk(&json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] }), None);
    for piece in [first, second] {
        out.push_str(&chunk(&json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }), None));
    }
    out
}

/// The reason to stop, the tokens, and `[DONE]`.
pub fn end(finish_reason: &str) -> String {
    let usage = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": [],
        "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 },
    });
    format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(&json!({}), Some(finish_reason)))
}

fn chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish_reason }]);
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "choices": choices,
    });
    format!("data: {chunk}\n\n")
}

/// A server that runs until it is dropped.
pub struct ModelServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    count: watch::Receiver<usize>,
    connections: Arc<AtomicUsize>,
    _accepting: AbortOnDropHandle<()>,
}

impl ModelServer {
    /// Listens on a free port.
    pub async fn start(script: Script) -> Self {
        Self::start_on(0, script, true).await
    }

    /// Listens on a port. `keep`: requests are kept for a look at them later.
    pub async fn start_on(port: u16, script: Script, keep: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (counter, count) = watch::channel(0);
        let kept = keep.then(|| Arc::clone(&requests));
        let opened: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&opened);
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                while connections.try_join_next().is_some() {}
                let seen = Seen { requests: kept.clone(), counter: counter.clone() };
                connections.spawn(serve(socket, Arc::clone(&script), seen));
            }
        });
        Self { address, requests, count, connections: opened, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// What a client is given as its base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until that many requests have come.
    pub async fn came(&self, requests: usize) {
        let mut count = self.count.clone();
        count.wait_for(|n| *n >= requests).await.expect("the server runs");
    }
}

#[derive(Clone)]
struct Seen {
    requests: Option<Arc<Mutex<Vec<Request>>>>,
    counter: watch::Sender<usize>,
}

/// One connection, request after request. A client that goes is no error.
async fn serve(mut socket: TcpStream, script: Script, seen: Seen) {
    let _ = socket.set_nodelay(true);
    let mut buffer = BytesMut::with_capacity(64 << 10);
    while let Some(request) = read_request(&mut socket, &mut buffer).await {
        let answer = script(&request);
        if let Some(requests) = &seen.requests {
            requests.lock().push(request);
        }
        seen.counter.send_modify(|n| *n += 1);
        if write_answer(&mut socket, answer).await.is_none() {
            return;
        }
    }
}

async fn read_request(socket: &mut TcpStream, buffer: &mut BytesMut) -> Option<Request> {
    let head_end = loop {
        if let Some(at) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = buffer.split_to(head_end).freeze();
    let head = std::str::from_utf8(&head).ok()?;
    let mut lines = head.split("\r\n");
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").map_or(Ok(0), |(_, v)| v.parse::<usize>()).ok()?;
    if length > buffer.len() {
        buffer.reserve(length - buffer.len());
    }
    while buffer.len() < length {
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    Some(Request { path, headers, body: buffer.split_to(length).freeze() })
}

/// None: the connection is over.
async fn write_answer(socket: &mut TcpStream, answer: Answer) -> Option<()> {
    let mut out = format!("HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    for step in answer.steps {
        match step {
            Step::Send(bytes) if bytes.is_empty() => {}
            Step::Send(bytes) => {
                out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(&bytes);
                out.extend_from_slice(b"\r\n");
                socket.write_all(&out).await.ok()?;
                out.clear();
            }
            Step::Pause(pause) => tokio::time::sleep(pause).await,
            Step::Hang => {
                // Until the client goes: a read that ends says so.
                let _ = socket.read(&mut [0]).await;
                return None;
            }
            Step::Cut => return None,
        }
    }
    out.extend_from_slice(b"0\r\n\r\n");
    socket.write_all(&out).await.ok()
}

/// A script that stands in the prompt: `@script {"rounds": [{"text"?, "deltas"?, "pauseUs"?, "calls"?: [{"name", "arguments"}]}]}`.
///
/// The round is the number of the model's messages behind the script; after the last round, and without a
/// script, the answer is the text `done`. `deltas` sends the text that many times. The conversation is not
/// parsed: the marker and the roles are looked for in its bytes, where a quoted role is escaped and so differs.
pub fn prompted() -> Script {
    type Rounds = Arc<Vec<Answer>>;
    let known: Mutex<Vec<(Bytes, Rounds)>> = Mutex::default();
    let done = Answer::text(&["done"]);
    Arc::new(move |request| {
        let Some(at) = memchr::memmem::rfind(&request.body, b"@script ") else { return done.clone() };
        let rest = &request.body[at..];
        let end = string_end(rest);
        let round = memchr::memmem::find_iter(&rest[end..], b"\"role\":\"assistant\"").count();
        let mut known = known.lock();
        let rounds = match known.iter().find(|(text, _)| **text == rest[..end]) {
            Some((_, rounds)) => Arc::clone(rounds),
            None => {
                let rounds = Arc::new(parse_rounds(&rest[..end]));
                known.push((Bytes::copy_from_slice(&rest[..end]), Arc::clone(&rounds)));
                rounds
            }
        };
        rounds.get(round).unwrap_or(&done).clone()
    })
}

/// Where the JSON string that `bytes` lies in ends.
fn string_end(bytes: &[u8]) -> usize {
    let mut escaped = false;
    let end = bytes.iter().position(|byte| {
        let ends = !escaped && *byte == b'"';
        escaped = !escaped && *byte == b'\\';
        ends
    });
    end.unwrap_or(bytes.len())
}

fn parse_rounds(escaped: &[u8]) -> Vec<Answer> {
    let quoted = [b"\"", escaped, b"\""].concat();
    let text: String = serde_json::from_slice(&quoted).expect("a piece of a JSON string");
    let script = text.trim_start_matches("@script ");
    let mut values = serde_json::Deserializer::from_str(script).into_iter::<Value>();
    let script = values.next().and_then(Result::ok).expect("JSON behind @script");
    let rounds = script["rounds"].as_array().expect("`rounds` is a list");
    rounds.iter().enumerate().map(|(at, round)| answer_of(at, round)).collect()
}

fn answer_of(at: usize, round: &Value) -> Answer {
    let text = round["text"].as_str().unwrap_or_default();
    let none = Vec::new();
    let calls = round["calls"].as_array().unwrap_or(&none);
    if calls.is_empty() {
        let count = round["deltas"].as_u64().unwrap_or(1);
        let deltas: Vec<&str> = (0..count).map(|_| text).collect();
        return Answer::paced(&deltas, Duration::from_micros(round["pauseUs"].as_u64().unwrap_or(0)));
    }
    let ids: Vec<String> = (0..calls.len()).map(|n| format!("call_{at}_{n}")).collect();
    let calls: Vec<(&str, &str, Value)> = calls
        .iter()
        .zip(&ids)
        .map(|(call, id)| (id.as_str(), call["name"].as_str().expect("a call has a name"), call["arguments"].clone()))
        .collect();
    Answer::calls(text, &calls)
}
