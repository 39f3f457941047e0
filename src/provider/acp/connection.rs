//! One running agent program: requests out, answers back, and what it says of its own to the turn it is for.
//!
//! One task reads, one writes, one drains the error stream. Invariants: what the agent says of a session
//! reaches that session's turn in the order it was said, the turn's end included; when the program is gone, whoever
//! waits for it hears why; its whole process group ends with it, and it ends with this connection's stop token.

mod streams;
mod told;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::BufReader;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::AcpLoad;
use super::door::{Door, Room};
use super::known::{Known, Said};
use super::turn::is_served;
use super::wire::{self, Lines, Message, NoLine, RpcError};
use crate::base::process::{self, ChildStderr, ChildStdin, ChildStdout, Invocation, Piped};
use crate::base::secrets::Secrets;
use crate::base::{limit, text};
use crate::protocol::{SessionId, ToolDefinition};

use streams::{drain, write};
use told::unserved;

/// What the agent says that a turn has not taken yet.
const UNTAKEN_MAX: usize = 64;
/// Lines that are no messages and are warned of; more are only noted for debugging.
const NOISE_WARNINGS_MAX: usize = 10;
/// Bytes of such a line that are shown.
const NOISE_BYTES_SHOWN: usize = 200;
/// Bytes of it that are looked at: a secret that is cut lies beyond what is shown.
const NOISE_BYTES_LOOKED_AT: usize = 4 * 1024;
/// JSON-RPC: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong.
const INVALID_PARAMS: i64 = -32602;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    /// The program is gone, or was ended; why.
    Gone(String),
    /// It took too long.
    TimedOut(Duration),
    /// The agent says no.
    Refused(RpcError),
    /// The answer is not what the protocol says.
    Malformed(String),
}

/// What reaches a turn.
#[derive(Debug)]
pub(super) enum Incoming {
    /// `session/update`, its `update`: what the agent says and does.
    Update(Value),
    /// What it says of itself.
    Said(Said),
    /// It wants no answer to this request of its any more.
    Withdrawn(Value),
    /// A request of the agent that is for this turn.
    Request { id: Value, method: String, params: Value },
    /// The answer to the prompt. Nothing comes after it.
    Done(Result<Value, RpcError>),
}

/// Who waits for an answer.
enum Waiting {
    Answer(oneshot::Sender<Result<Value, RpcError>>),
    Turn(mpsc::Sender<Incoming>),
}

#[derive(Default)]
struct Table {
    next_id: u64,
    waiting: HashMap<u64, Waiting>,
    turns: HashMap<String, mpsc::Sender<Incoming>>,
    /// Why it is over.
    over: Option<String>,
}

/// The connection to one running program.
pub(super) struct Connection {
    name: String,
    /// Never repeated when the program says them.
    secrets: Secrets,
    out: mpsc::UnboundedSender<String>,
    unread: AtomicUsize,
    unread_bytes: AtomicUsize,
    table: Mutex<Table>,
    /// Sessions that are open in the program.
    pub sessions: Mutex<HashSet<String>>,
    known: Mutex<HashMap<String, Known>>,
    /// Where its tool clients come in.
    door: Arc<Door>,
    stop: CancellationToken,
    retired: CancellationToken,
    used: watch::Sender<Used>,
}

/// Who uses the program.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// Turns, from before their session is opened.
    turns: usize,
    /// When that changed last.
    since: Instant,
    /// It is given up: no further one comes.
    over: bool,
}

/// While it lives, the program is in use.
#[derive(Debug)]
pub(super) struct InUse(Arc<Connection>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.used.send_modify(|used| {
            used.turns = used.turns.saturating_sub(1);
            used.since = Instant::now();
        });
    }
}

impl Connection {
    /// Starts the program. The task ends when the program and its group have ended; firing `stop` ends them.
    pub fn open(
        (name, secrets, grace): (&str, &Secrets, Duration),
        what: &Invocation,
        stop: CancellationToken,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let mut piped = process::spawn(what)?;
        let missing = || io::Error::other("a standard stream of the program is missing");
        let stdin = piped.stdin.take().ok_or_else(missing)?;
        let stdout = piped.stdout.take().ok_or_else(missing)?;
        let stderr = piped.stderr.take().ok_or_else(missing)?;
        let (out, lines) = mpsc::unbounded_channel();
        let connection = Arc::new(Self {
            name: name.to_owned(),
            secrets: secrets.clone(),
            out,
            unread: AtomicUsize::new(0),
            unread_bytes: AtomicUsize::new(0),
            table: Mutex::default(),
            sessions: Mutex::default(),
            known: Mutex::default(),
            door: Arc::default(),
            stop,
            retired: CancellationToken::new(),
            used: watch::Sender::new(Used { turns: 0, since: Instant::now(), over: false }),
        });
        let supervised = Supervised { connection: Arc::clone(&connection), piped, stdin, stdout, stderr, grace };
        Ok((connection, tokio::spawn(supervised.run(lines))))
    }

    /// The room of a session's tools, furnished anew; `make`: also where there is none yet. None: there is none.
    pub async fn room(
        &self,
        host: Option<&SessionId>,
        tools: Vec<ToolDefinition>,
        make: bool,
    ) -> io::Result<Option<Arc<Room>>> {
        match host {
            Some(host) if make && !tools.is_empty() => self.door.make(host, tools, &self.stop).await.map(Some),
            Some(host) => Ok(self.door.room(host, tools)),
            None => Ok(None),
        }
    }

    /// Why it can take no further turn. None: it can.
    pub fn over(&self) -> Option<String> {
        let retired = self.retired.is_cancelled() || self.stop.is_cancelled();
        self.table.lock().over.clone().or_else(|| retired.then(|| "its program was ended".to_owned()))
    }

    /// Keeps the program in use. None: it can take no further turn.
    pub fn enter(self: &Arc<Self>) -> Option<InUse> {
        let mut taken = false;
        self.used.send_modify(|used| {
            taken = !used.over;
            if taken {
                used.turns += 1;
                used.since = Instant::now();
            }
        });
        // One that is not handed out lets go again.
        let here = taken.then(|| InUse(Arc::clone(self)));
        here.filter(|_| self.over().is_none())
    }

    /// Waits until nobody has used the program for `rest`, and gives it up. Nobody gets it meanwhile or afterwards.
    pub async fn unused(&self, rest: Duration) {
        let mut changes = self.used.subscribe();
        loop {
            let now = *changes.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(now.since + rest), if now.turns == 0 => {
                    let over = self.used.send_if_modified(|used| {
                        used.over |= used.turns == 0 && used.since == now.since;
                        used.over
                    });
                    if over {
                        return;
                    }
                }
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// How much it has to do.
    pub fn load(&self) -> AcpLoad {
        let sessions = self.sessions.lock().len();
        let [unread, unread_bytes] = [&self.unread, &self.unread_bytes].map(|count| count.load(Ordering::Acquire));
        AcpLoad { sessions, unread, unread_bytes }
    }

    /// Takes no further turn, and ends the program as soon as no turn runs in it.
    pub fn retire(&self) {
        self.retired.cancel();
        if self.table.lock().turns.is_empty() {
            self.stop.cancel();
        }
    }

    /// Asks, and waits at most `wait` for the answer.
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        wait: Duration,
    ) -> Result<T, Fault> {
        let (tell, answer) = oneshot::channel();
        let id = self.expect(Waiting::Answer(tell))?;
        self.send(wire::request(id, method, params));
        let answered = tokio::time::timeout(wait, answer).await;
        let Ok(answered) = answered else {
            self.table.lock().waiting.remove(&id);
            return Err(Fault::TimedOut(wait));
        };
        let value = answered.map_err(|_| self.gone())?.map_err(Fault::Refused)?;
        serde_json::from_value(value).map_err(|error| Fault::Malformed(format!("its answer to {method}: {error}")))
    }

    /// Sends a prompt to a session: from now on what the agent says of the session comes here.
    pub fn prompt(self: &Arc<Self>, session: &str, params: &impl Serialize) -> Result<Turn, Fault> {
        let (tell, incoming) = mpsc::channel(UNTAKEN_MAX);
        {
            let mut table = self.table.lock();
            if table.turns.contains_key(session) {
                return Err(Fault::Gone("it still stops the turn before in this session".into()));
            }
            table.turns.insert(session.to_owned(), tell.clone());
        }
        let turn = Turn { connection: Arc::clone(self), session: session.to_owned(), incoming };
        let id = self.expect(Waiting::Turn(tell))?;
        self.send(wire::request(id, "session/prompt", params));
        Ok(turn)
    }

    /// Tells the agent something.
    pub fn note(&self, method: &str, params: &impl Serialize) {
        self.send(wire::note(method, params));
    }

    /// Answers a request of the agent.
    pub fn answer(&self, id: &Value, result: Result<Value, (i64, String)>) {
        self.send(wire::answer(id, result));
    }

    fn expect(&self, waiting: Waiting) -> Result<u64, Fault> {
        let mut table = self.table.lock();
        if let Some(why) = &table.over {
            return Err(Fault::Gone(why.clone()));
        }
        table.next_id += 1;
        let id = table.next_id;
        table.waiting.insert(id, waiting);
        Ok(id)
    }

    fn send(&self, line: String) {
        // An agent that reads nothing must not make us hold everything it should have read.
        let lines = self.unread.fetch_add(1, Ordering::AcqRel);
        let bytes = self.unread_bytes.fetch_add(line.len(), Ordering::AcqRel);
        // A single one may be as large as it is.
        if lines >= limit::ACP_UNREAD_MAX || (lines > 0 && bytes >= limit::ACP_UNREAD_BYTES_MAX) {
            self.close("it does not read what it is sent");
            self.stop.cancel();
        }
        // Without a writer the reader has ended as well, and everybody knows.
        let _ = self.out.send(line);
    }

    fn gone(&self) -> Fault {
        Fault::Gone(self.over().unwrap_or_else(|| "its program has ended".to_owned()))
    }

    /// Notes why it is over; whoever waits hears it. The first reason counts.
    fn close(&self, why: &str) {
        let mut table = self.table.lock();
        table.over.get_or_insert_with(|| why.to_owned());
        table.waiting.clear();
        table.turns.clear();
    }

    async fn take(&self, message: Message) {
        match message {
            Message::Answer { id, result } => {
                let waiting = self.table.lock().waiting.remove(&id);
                match waiting {
                    // Who has stopped waiting does not miss it.
                    Some(Waiting::Answer(tell)) => drop(tell.send(result)),
                    Some(Waiting::Turn(turn)) => {
                        self.is_over(&turn);
                        drop(turn.send(Incoming::Done(result)).await);
                    }
                    None => tracing::debug!(agent = self.name, id, "an answer that nobody waits for"),
                }
            }
            Message::Note { method, params } if method == "session/update" => self.take_update(params).await,
            Message::Note { method, mut params } if method == "$/cancel_request" => {
                let (id, turns) = (params["requestId"].take(), self.table.lock().turns.clone());
                for turn in turns.into_values() {
                    let _ = turn.send(Incoming::Withdrawn(id.clone())).await;
                }
            }
            Message::Note { method, .. } => tracing::debug!(agent = self.name, method, "a notification without a use"),
            Message::Request { id, method, params } => self.take_request(id, method, params).await,
        }
    }

    async fn take_request(&self, id: Value, method: String, params: Value) {
        if !is_served(&method) {
            self.answer(&id, Err((METHOD_NOT_FOUND, format!("no method {method}"))));
            return;
        }
        let Some(turn) = self.turn_of(&params) else {
            self.answer(&id, unserved(&method));
            return;
        };
        if turn.send(Incoming::Request { id: id.clone(), method: method.clone(), params }).await.is_err() {
            self.answer(&id, unserved(&method));
        }
    }

    fn turn_of(&self, params: &Value) -> Option<mpsc::Sender<Incoming>> {
        self.table.lock().turns.get(params["sessionId"].as_str()?).cloned()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A turn that runs in a session of the agent.
#[derive(Debug)]
pub(super) struct Turn {
    connection: Arc<Connection>,
    session: String,
    incoming: mpsc::Receiver<Incoming>,
}

impl Turn {
    /// What the agent says next; why, when it says nothing any more.
    pub async fn next(&mut self) -> Result<Incoming, Fault> {
        self.incoming.recv().await.ok_or_else(|| self.connection.gone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let idle = {
            let mut table = self.connection.table.lock();
            table.turns.remove(&self.session);
            table.turns.is_empty()
        };
        if idle && self.connection.retired.is_cancelled() {
            self.connection.stop.cancel();
        }
    }
}

/// The running program, and the three streams of it.
struct Supervised {
    connection: Arc<Connection>,
    piped: Piped,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
    /// How long it may take to end once its input has ended.
    grace: Duration,
}

impl Supervised {
    async fn run(self, lines: mpsc::UnboundedReceiver<String>) {
        let Self { connection, mut piped, stdin, stdout, stderr, grace } = self;
        let writer = tokio::spawn(write(Arc::clone(&connection), stdin, lines));
        let said = Arc::new(Mutex::new(Vec::new()));
        let drain = tokio::spawn(drain(Arc::clone(&connection), stderr, Arc::clone(&said)));
        let (why, grace) = tokio::select! {
            biased;
            () = connection.stop.cancelled() => (None, grace),
            ended = read(&connection, stdout) => (Some(ended), Duration::ZERO),
        };
        let why = match why {
            None => "its program was ended".to_owned(),
            Some(NoLine::TooLong) => format!("it sent a line of more than {} bytes", limit::ACP_LINE_BYTES_MAX),
            Some(NoLine::Broken(error)) => format!("its output broke: {error}"),
            Some(NoLine::End) => {
                let status = tokio::time::timeout(Duration::from_millis(500), piped.wait()).await;
                // What it said last is on its way.
                let _ = tokio::time::timeout(Duration::from_millis(50), drain_end(&drain)).await;
                ended_words(
                    status.ok().and_then(Result::ok),
                    &connection.secrets.hide(String::from_utf8_lossy(&said.lock())),
                )
            }
        };
        tracing::debug!(agent = connection.name, why, "the connection to an agent is over");
        connection.close(&why);
        // The writer holds the end of its input.
        writer.abort();
        let _ = writer.await;
        piped.stop(grace).await;
        drain.abort();
    }
}

async fn drain_end(drain: &JoinHandle<()>) {
    while !drain.is_finished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How a program ended, in words, with what it said last.
fn ended_words(status: Option<std::process::ExitStatus>, said: &str) -> String {
    let how =
        status.map_or_else(|| "its output has ended".to_owned(), |status| format!("its program ended ({status})"));
    let said: String = said.trim().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    if said.is_empty() { how } else { format!("{how}; it said: {}", text::tail(&said, 500).trim()) }
}

async fn read(connection: &Connection, stdout: ChildStdout) -> NoLine {
    let mut lines = Lines::new(BufReader::with_capacity(64 * 1024, stdout), limit::ACP_LINE_BYTES_MAX);
    let mut noise = 0_usize;
    loop {
        let line = match lines.next().await {
            Ok(line) => line,
            Err(none) => return none,
        };
        match Message::parse(&line) {
            Some(message) => connection.take(message).await,
            None if line.trim_ascii().is_empty() => {}
            None => {
                noise += 1;
                let looked_at = &line[..line.len().min(NOISE_BYTES_LOOKED_AT)];
                let told = connection.secrets.hide(String::from_utf8_lossy(looked_at));
                let line = text::head(&told, NOISE_BYTES_SHOWN);
                if noise <= NOISE_WARNINGS_MAX {
                    tracing::warn!(
                        agent = connection.name,
                        line,
                        "an agent printed a line that is no message; skipped"
                    );
                } else {
                    tracing::debug!(
                        agent = connection.name,
                        line,
                        "an agent printed a line that is no message; skipped"
                    );
                }
            }
        }
    }
}
