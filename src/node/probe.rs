//! What tests and benches need of the addon and no program does: panics, and a tool that does nothing.
//! The package does not export it.

use std::panic::panic_any;
use std::sync::Arc;

use napi::bindgen_prelude::{FnArgs, PromiseRaw};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue};
use napi::{Env, Status};
use napi_derive::napi;

use super::events::NativeEvents;
use super::registry::NativeRegistry;
use crate::agent::Sink as _;
use crate::protocol::{EventBody, ToolDefinition};
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    Panic,
}

struct Probe {
    definition: ToolDefinition,
    act: Act,
}

impl Probe {
    fn tool(name: &str, act: Act) -> Arc<dyn Tool> {
        let definition = ToolDefinition {
            name: name.to_owned(),
            description: String::from("For tests."),
            parameters: serde_json::Map::new(),
            category: None,
            annotations: None,
            timeout_ms: None,
            max_output_chars: None,
        };
        Arc::new(Self { definition, act })
    }
}

impl Tool for Probe {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn run<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            match self.act {
                Act::Nothing => Ok(ToolOutput::default()),
                Act::Panic => panic_any("a probe panics"),
            }
        })
    }
}

/// Registers `probe_noop`, which does nothing, and `probe_panic`.
#[napi(catch_unwind)]
pub fn probe_register(registry: &NativeRegistry) -> napi::Result<String> {
    registry.add_all(vec![Probe::tool("probe_noop", Act::Nothing), Probe::tool("probe_panic", Act::Panic)])
}

/// How JavaScript is called for one event alone: type, and payload in JSON.
type Each =
    ThreadsafeFunction<FnArgs<(String, String)>, UnknownReturnValue, FnArgs<(String, String)>, Status, false, true, 0>;

/// The event number `n` of a flood.
fn delta(n: u32) -> EventBody {
    EventBody::StreamDelta { text: format!("word {n} ") }
}

/// Hands in `count` events from a thread of Rust's, by way of a batch's queue.
#[napi(catch_unwind, ts_return_type = "Promise<void>")]
pub fn probe_events<'env>(env: &'env Env, events: &NativeEvents, count: u32) -> napi::Result<PromiseRaw<'env, ()>> {
    let queue = Arc::clone(&events.queue);
    flood(env, move || (0..count).all(|n| queue.emit(delta(n)).is_ok()))
}

/// The same, with a call into JavaScript for each.
#[napi(catch_unwind, ts_return_type = "Promise<void>")]
pub fn probe_events_each(env: &Env, each: Each, count: u32) -> napi::Result<PromiseRaw<'_, ()>> {
    let one = move |n| {
        let (kind, payload) = delta(n).encode();
        let args = FnArgs::from((kind.to_owned(), payload.get().to_owned()));
        each.call(args, ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok
    };
    flood(env, move || (0..count).all(one))
}

fn flood(env: &Env, work: impl FnOnce() -> bool + Send + 'static) -> napi::Result<PromiseRaw<'_, ()>> {
    env.spawn_future(async move {
        let sent = tokio::task::spawn_blocking(work).await.unwrap_or(false);
        sent.then_some(()).ok_or_else(|| napi::Error::from_reason("an event was not taken"))
    })
}

/// Panics in a plain export.
#[napi(catch_unwind)]
pub fn probe_panic_sync() {
    panic_any("a probe panics");
}

/// Panics in a promise.
#[napi]
pub async fn probe_panic_async() {
    tokio::task::yield_now().await;
    panic_any("a probe panics");
}
