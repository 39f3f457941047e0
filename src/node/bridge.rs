//! Calls from Rust into JavaScript, and the answers.
//!
//! Calls wait in an outbox; one weak function for each environment wakes JavaScript for all that wait there, and
//! `js/bridge.cjs` takes them, finds the object that each is for by its number, runs it, and answers through
//! [`NativeBridge::settle`]. So many calls at once cost one change of thread. An answer comes once; a call that is
//! dropped tells JavaScript so, once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi::{Env, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::leftovers::Leftovers;
use super::text::{JsText, js_text};

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

type Answer = Result<String, CallFailure>;

/// What Rust calls JavaScript with.
pub(super) struct Bridge {
    wake: Wake,
    /// What JavaScript has not taken yet, as the inside of a JSON array of `[sequence, target, operation, input]`. Operation
    /// `abort` means: the call of that sequence is not wanted any more, `release`: the handler of that number is not.
    /// Bounded by the calls that wait.
    outbox: Mutex<String>,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
    next: AtomicU32,
    /// What ends with the environment.
    pub(super) leftovers: Arc<Leftovers>,
}

/// One call under way: when it is dropped unanswered, JavaScript is told.
struct Call<'a> {
    bridge: &'a Bridge,
    sequence: u32,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.bridge.waiting.lock().remove(&self.sequence).is_some() {
            self.bridge.send(self.sequence, 0, "abort", "null");
        }
    }
}

impl Bridge {
    /// Puts a call into the outbox. `input` is JSON. False: nobody takes it any more.
    fn send(&self, sequence: u32, target: u32, operation: &str, input: &str) -> bool {
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
        if cancel.is_cancelled() {
            return Err(CallFailure::Aborted);
        }
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = oneshot::channel();
        self.waiting.lock().insert(sequence, tx);
        let _call = Call { bridge: self, sequence };
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
        let (outbox, waiting) = (Mutex::default(), Mutex::default());
        Ok(Self { inner: Arc::new(Bridge { wake, outbox, waiting, next: AtomicU32::new(1), leftovers }) })
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

    /// Calls that wait for an answer, for tests.
    #[napi(catch_unwind)]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.inner.waiting.lock().len()).unwrap_or(u32::MAX)
    }
}
