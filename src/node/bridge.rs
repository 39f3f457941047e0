//! Calls from Rust into JavaScript, and the answers.
//!
//! Calls wait in an outbox; one weak function for each environment wakes JavaScript for all that wait there, and
//! `js/bridge.cjs` takes them, finds the object that each is for by its number, runs it, and answers through
//! [`NativeBridge::settle`]. So many calls at once cost one change of thread. An answer comes once; a call that is
//! dropped tells JavaScript so, once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use napi::bindgen_prelude::PromiseRaw;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi::{Env, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::{envelope, parse, to_json};
use super::feed::Inlet;
use super::leftovers::Leftovers;
use super::text::{JsText, js_text};
use crate::hook::Line;
use crate::protocol::{ApiError, ClientQuestion, ClientReply, Display, NoticeLevel, VerdictSource};

/// Weak: it never keeps the process alive.
type Wake = ThreadsafeFunction<(), UnknownReturnValue, (), Status, false, true, 0>;

/// How a call into JavaScript failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// It threw; the text is the message.
    Threw(String),
    /// Its input was refused before it ran.
    BadInput(String),
    /// It was cancelled, or the environment is gone.
    Aborted,
}

/// What JavaScript answers.
pub(super) type Answer = Result<String, CallFailure>;

/// What Rust calls JavaScript with.
pub(super) struct Bridge {
    wake: Wake,
    /// What JavaScript has not taken yet, as the inside of a JSON array of `[sequence, target, operation, input]`. Operation
    /// `abort` means: the call of that sequence is not wanted any more, `drain`: it may push again, `release`: the handler
    /// of that number is not wanted.
    /// Bounded by the calls that wait.
    outbox: Mutex<String>,
    pub(super) waiting: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
    /// Where calls that answer in pieces put them, by sequence.
    pub(super) feeds: Mutex<HashMap<u32, Arc<Inlet>>>,
    /// The lines to clients of the calls that have one, by sequence.
    lines: Mutex<HashMap<u32, Line>>,
    pub(super) next: AtomicU32,
    /// What ends with the environment.
    pub(super) leftovers: Arc<Leftovers>,
}

/// One call under way: when it is dropped unanswered, JavaScript is told.
struct Call<'a> {
    bridge: &'a Bridge,
    sequence: u32,
    /// Ends what it asks clients.
    over: Option<CancellationToken>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(over) = self.over.take() {
            self.bridge.lines.lock().remove(&self.sequence);
            over.cancel();
        }
        if self.bridge.waiting.lock().remove(&self.sequence).is_some() {
            self.bridge.send(self.sequence, 0, "abort", "null");
        }
    }
}

impl Bridge {
    /// Puts a call into the outbox. `input` is JSON. False: nobody takes it any more.
    pub(super) fn send(&self, sequence: u32, target: u32, operation: &str, input: &str) -> bool {
        let mut outbox = self.outbox.lock();
        let first = outbox.is_empty();
        if !first {
            outbox.push(',');
        }
        outbox.push_str(&format!("[{sequence},{target},\"{operation}\","));
        outbox.push_str(input);
        outbox.push(']');
        drop(outbox);
        // Whoever was first has woken JavaScript already.
        if !first || self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok {
            return true;
        }
        // The environment is gone: nobody answers any more.
        self.outbox.lock().clear();
        self.waiting.lock().clear();
        false
    }

    /// Tells JavaScript something about number `target`, and waits for nothing.
    pub(super) fn notify(&self, target: u32, operation: &str) {
        // An environment that is gone needs no news.
        let _ = self.send(0, target, operation, "null");
    }

    /// Tells JavaScript that handler number `handler` of object `target` will not be called again.
    pub(super) fn release(&self, target: u32, handler: u32) {
        let _ = self.send(handler, target, "release", "null");
    }

    fn settle(&self, sequence: u32, status: u32, text: String) {
        let Some(waiting) = self.waiting.lock().remove(&sequence) else { return };
        let answer = match status {
            0 => Ok(text),
            2 => Err(CallFailure::BadInput(text)),
            _ => Err(CallFailure::Threw(text)),
        };
        // Nobody waits any more when the call was cancelled at this moment.
        drop(waiting.send(answer));
    }

    /// Asks object `target` to do `operation`, and waits for its answer or for `cancel`.
    pub(super) async fn call(&self, target: u32, operation: &str, input: String, cancel: &CancellationToken) -> Answer {
        self.call_with((target, operation), input, &Line::default(), cancel).await
    }

    /// The same; until it has answered, it can ask and tell the clients at the other end of `line`.
    pub(super) async fn call_with(
        &self,
        (target, operation): (u32, &str),
        input: String,
        line: &Line,
        cancel: &CancellationToken,
    ) -> Answer {
        if cancel.is_cancelled() {
            return Err(CallFailure::Aborted);
        }
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.waiting.lock().insert(sequence, tx);
        let over = line.is_open().then(|| line.cancel().child_token());
        if let Some(over) = &over {
            self.lines.lock().insert(sequence, line.until(over.clone()));
        }
        let _call = Call { bridge: self, sequence, over };
        if !self.send(sequence, target, operation, &input) {
            self.waiting.lock().remove(&sequence);
            return Err(CallFailure::Aborted);
        }
        drop(input);
        tokio::select! {
            biased;
            answer = rx => answer.unwrap_or(Err(CallFailure::Aborted)),
            () = cancel.cancelled() => Err(CallFailure::Aborted),
        }
    }
}

/// `context.ask(question, options)`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ask {
    question: ClientQuestion,
    timeout_ms: Option<u64>,
}

/// `context.notify(text, level)`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Notice {
    #[serde(default)]
    level: NoticeLevel,
    text: String,
}

/// What came of a question, for JavaScript.
#[derive(Serialize)]
#[serde(untagged)]
enum WireReply {
    Value { cancelled: bool, value: Value },
    Cancelled { cancelled: bool, by: VerdictSource, reason: String },
}

impl From<ClientReply> for WireReply {
    fn from(reply: ClientReply) -> Self {
        match reply {
            ClientReply::Value(value) => Self::Value { cancelled: false, value },
            ClientReply::Cancelled { by, reason } => Self::Cancelled { cancelled: true, by, reason },
        }
    }
}

/// A refusal of the engine's, as an error of the facade's.
fn misfit(what: &str, error: &ApiError) -> napi::Error {
    let path = error.0.details.as_ref().map_or(Value::Null, |details| details["field"].clone());
    let issues = json!({ "issues": [{ "path": path, "message": error.0.message }] });
    envelope("CONFIG_VALIDATION", format!("{what}: {}", error.0.message), issues)
}

impl NativeBridge {
    /// The line of a call that has not answered yet; one to nobody where there is none.
    fn line(&self, sequence: u32) -> Line {
        self.inner.lines.lock().get(&sequence).cloned().unwrap_or_default()
    }
}

/// The bridge of one JavaScript environment.
#[napi]
pub struct NativeBridge {
    pub(super) inner: Arc<Bridge>,
}

#[napi]
impl NativeBridge {
    /// `wake()` is called on the JavaScript thread when calls wait to be taken, and must not throw.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env, wake: Wake) -> napi::Result<Self> {
        let leftovers = Arc::<Leftovers>::default();
        env.add_env_cleanup_hook(Arc::clone(&leftovers), |leftovers| leftovers.end())?;
        let (outbox, waiting, lines) = (Mutex::default(), Mutex::default(), Mutex::default());
        let feeds = Mutex::default();
        Ok(Self { inner: Arc::new(Bridge { wake, outbox, waiting, feeds, lines, next: AtomicU32::new(1), leftovers }) })
    }

    /// Takes the calls that wait: a JSON array of `[sequence, target, operation, input]`.
    #[napi(catch_unwind)]
    pub fn take(&self) -> JsText {
        let taken = std::mem::take(&mut *self.inner.outbox.lock());
        js_text(format!("[{taken}]"))
    }

    /// Answers a call: `status` 0 is a result, 1 a thrown message, 2 a refused input.
    #[napi(catch_unwind)]
    pub fn settle(&self, sequence: u32, status: u32, text: String) {
        self.inner.settle(sequence, status, text);
    }

    /// Answers several calls at once: sequence, status and text of each at the same place.
    #[napi(catch_unwind)]
    pub fn settle_all(&self, sequences: Vec<u32>, statuses: Vec<u32>, texts: Vec<String>) {
        for ((sequence, status), text) in sequences.into_iter().zip(statuses).zip(texts) {
            self.inner.settle(sequence, status, text);
        }
    }

    /// Asks the clients that the call of this sequence can ask, and waits for the end: a [`WireReply`] in JSON.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn ask<'env>(&self, env: &'env Env, sequence: u32, asked: String) -> napi::Result<PromiseRaw<'env, String>> {
        let Ask { question, timeout_ms } = parse("ask", &asked)?;
        question.check_itself().map_err(|error| misfit("ask", &error))?;
        let line = self.line(sequence);
        env.spawn_future(async move {
            let reply = line.ask(question, timeout_ms.map(Duration::from_millis)).await;
            Ok(to_json(&WireReply::from(reply.map_err(|error| misfit("ask", &error))?)))
        })
    }

    /// Shows a notice to the clients of the session that the call of this sequence belongs to. False: there is none.
    #[napi(catch_unwind)]
    pub fn notice(&self, sequence: u32, notice: String) -> napi::Result<bool> {
        let Notice { level, text } = parse("notify", &notice)?;
        let line = self.line(sequence);
        line.notify(level, text).map_err(|error| misfit("notify", &error))?;
        Ok(line.is_open())
    }

    /// Puts something onto the screens of those clients. False: there is no session.
    #[napi(catch_unwind)]
    pub fn show(&self, sequence: u32, display: String) -> napi::Result<bool> {
        let display: Display = parse("show", &display)?;
        let line = self.line(sequence);
        line.show(display).map_err(|error| misfit("show", &error))?;
        Ok(line.is_open())
    }

    /// Calls that wait for an answer, for tests.
    #[napi(catch_unwind)]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.inner.waiting.lock().len()).unwrap_or(u32::MAX)
    }
}
