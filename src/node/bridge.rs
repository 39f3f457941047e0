//! Calls from Rust into JavaScript, and the answers.
//!
//! One weak function for each environment takes all calls; `js/bridge.cjs` finds the object they are
//! for by its number, runs them, and answers through [`NativeBridge::settle`]. An answer comes once; a
//! call that is dropped tells JavaScript so, once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use napi::Status;
use napi::bindgen_prelude::FnArgs;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi_derive::napi;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::text::{JsText, js_text};

/// `(sequence, target, operation, input in JSON)`; operation `abort` means: the call of that sequence is not wanted any more,
/// `release`: the handler of that number is not.
type InvokeArgs = FnArgs<(u32, u32, String, JsText)>;
/// Weak: it never keeps the process alive.
type Invoke = ThreadsafeFunction<InvokeArgs, UnknownReturnValue, InvokeArgs, Status, false, true, 0>;

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
    invoke: Invoke,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
    next: AtomicU32,
}

/// One call under way: when it is dropped unanswered, JavaScript is told.
struct Call<'a> {
    bridge: &'a Bridge,
    sequence: u32,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.bridge.waiting.lock().remove(&self.sequence).is_some() {
            self.bridge.send(self.sequence, 0, "abort", String::new());
        }
    }
}

impl Bridge {
    fn send(&self, sequence: u32, target: u32, operation: &str, input: String) -> Status {
        let args = FnArgs::from((sequence, target, operation.to_owned(), js_text(input)));
        self.invoke.call(args, ThreadsafeFunctionCallMode::NonBlocking)
    }

    /// Tells JavaScript something about number `target`, and waits for nothing.
    pub(super) fn notify(&self, target: u32, operation: &str) {
        // An environment that is gone needs no news.
        let _ = self.send(0, target, operation, String::new());
    }

    /// Tells JavaScript that handler number `handler` of object `target` will not be called again.
    pub(super) fn release(&self, target: u32, handler: u32) {
        let _ = self.send(handler, target, "release", String::new());
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
        if self.send(sequence, target, operation, input) != Status::Ok {
            self.waiting.lock().remove(&sequence);
            return Err(CallFailure::Aborted);
        }
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
    /// `invoke(sequence, target, operation, input)` is called on the JavaScript thread and must not throw.
    #[napi(constructor, catch_unwind)]
    pub fn new(invoke: Invoke) -> Self {
        Self { inner: Arc::new(Bridge { invoke, waiting: Mutex::default(), next: AtomicU32::new(1) }) }
    }

    /// Answers a call: `status` 0 is a result, 1 a thrown message, 2 a refused input.
    #[napi(catch_unwind)]
    pub fn settle(&self, sequence: u32, status: u32, text: String) {
        let Some(waiting) = self.inner.waiting.lock().remove(&sequence) else { return };
        let answer = match status {
            0 => Ok(text),
            2 => Err(CallFailure::BadInput(text)),
            _ => Err(CallFailure::Threw(text)),
        };
        // Nobody waits any more when the call was cancelled at this moment.
        drop(waiting.send(answer));
    }

    /// Calls that wait for an answer, for tests.
    #[napi(catch_unwind)]
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.inner.waiting.lock().len()).unwrap_or(u32::MAX)
    }
}
