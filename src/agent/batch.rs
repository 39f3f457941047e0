//! Several calls of one reply: side by side, in order, each by itself.
//!
//! A call that is known to change something is a barrier: those before it have ended when it starts, and those behind
//! it start when it has ended. So a model that writes a file and reads it in one reply reads what it wrote.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, refuse_call, run_call};
use crate::protocol::{ErrorBody, HeldCall, ToolCallRequest, ToolCategory};

/// Calls between two moments in which the worker may do something else.
const CALLS_PER_BREATH: usize = 256;

/// How many calls run at once, at most, and whether a further one may begin: asked before each; once no, always no.
pub(super) type Terms<'a> = (usize, &'a (dyn Fn(&HeldCall) -> bool + Sync));

/// Runs calls, at most `concurrency_max` at once (at least 1), a writer by itself. Results in input order, one for each
/// call.
///
/// The calls share the caller's task: a tool that computes for long belongs on the blocking pool.
pub async fn run_batch(
    environment: &CallEnvironment,
    requests: Vec<ToolCallRequest>,
    concurrency_max: usize,
    cancel: &CancellationToken,
) -> Vec<CallOutcome> {
    let mut outcomes = Vec::with_capacity(requests.len());
    run_each(environment, requests, concurrency_max, cancel, |outcome| outcomes.push(outcome)).await;
    outcomes
}

/// The same; `take` is given each result as soon as those before it are there.
pub async fn run_each(
    environment: &CallEnvironment,
    requests: Vec<ToolCallRequest>,
    concurrency_max: usize,
    cancel: &CancellationToken,
    take: impl FnMut(CallOutcome) + Send,
) {
    let planned = requests.into_iter().map(|request| HeldCall { request, refusal: None });
    run_in_order(environment, planned, (concurrency_max, &|_| true), cancel, take).await;
}

/// The same for calls some of which are not to run. They start in their order, these too. Gives back what came of those
/// that began, which are the first ones, and those that did not.
pub(super) async fn run_planned(
    environment: &CallEnvironment,
    calls: Vec<HeldCall>,
    terms: Terms<'_>,
    cancel: &CancellationToken,
) -> (Vec<CallOutcome>, Vec<HeldCall>) {
    let mut outcomes = Vec::with_capacity(calls.len());
    let held = run_in_order(environment, calls.into_iter(), terms, cancel, |outcome| outcomes.push(outcome)).await;
    (outcomes, held)
}

async fn run_in_order(
    environment: &CallEnvironment,
    mut calls: impl Iterator<Item = HeldCall> + Send,
    (concurrency_max, may_begin): Terms<'_>,
    cancel: &CancellationToken,
    take: impl FnMut(CallOutcome) + Send,
) -> Vec<HeldCall> {
    let mut ended = InOrder { take, next: 0, early: BTreeMap::new() };
    let mut running = FuturesUnordered::new();
    let start = |at, call| async move { (at, run_one(environment, call, cancel).await) };
    // Where the last call was that was done at once: its room is large, and serves the next.
    let mut room = None;
    let mut held = Vec::new();
    for (at, call) in calls.by_ref().enumerate() {
        let alone = concurrency_max <= 1 || (call.refusal.is_none() && is_writer(environment, &call.request));
        while running.len() >= if alone { 1 } else { concurrency_max }
            && let Some((at, outcome)) = running.next().await
        {
            ended.put(at, outcome);
        }
        if !may_begin(&call) {
            held.push(call);
            break;
        }
        let mut work = match room.take() {
            Some(room) => started_in(room, start(at, call)),
            None => Box::pin(start(at, call)),
        };
        // What is done at once needs no place among those that wait.
        match (&mut work).now_or_never() {
            Some((at, outcome)) => {
                ended.put(at, outcome);
                room = Some(work);
            }
            None if alone => {
                let (at, outcome) = work.await;
                ended.put(at, outcome);
            }
            None => running.push(work),
        }
        if !alone && at % CALLS_PER_BREATH == CALLS_PER_BREATH - 1 {
            tokio::task::yield_now().await;
        }
    }
    while let Some((at, outcome)) = running.next().await {
        ended.put(at, outcome);
    }
    held.extend(calls);
    held
}

/// Hands on what ends in any order in the order of its numbers.
struct InOrder<F> {
    take: F,
    /// The number that is handed on next.
    next: usize,
    /// What ended before its turn.
    early: BTreeMap<usize, CallOutcome>,
}

impl<F: FnMut(CallOutcome)> InOrder<F> {
    fn put(&mut self, at: usize, outcome: CallOutcome) {
        if at != self.next {
            self.early.insert(at, outcome);
            return;
        }
        (self.take)(outcome);
        self.next += 1;
        while let Some(outcome) = self.early.remove(&self.next) {
            (self.take)(outcome);
            self.next += 1;
        }
    }
}

/// Puts a future where another one of its kind has ended.
fn started_in<F: Future>(mut room: Pin<Box<F>>, next: F) -> Pin<Box<F>> {
    room.set(next);
    room
}

/// Whether the tool of a call says that it changes something: by its annotations, else by its category. What says
/// neither runs beside others.
fn is_writer(environment: &CallEnvironment, request: &ToolCallRequest) -> bool {
    let Some(tool) = environment.registry.get(&request.name) else { return false };
    let definition = tool.judged_as(&request.arguments);
    let hints = definition.annotations.as_ref();
    if hints.and_then(|hints| hints.destructive) == Some(true) {
        return true;
    }
    match hints.and_then(|hints| hints.read_only) {
        Some(read_only) => !read_only,
        None => matches!(definition.category, Some(ToolCategory::Edit | ToolCategory::Execute)),
    }
}

async fn run_one(environment: &CallEnvironment, call: HeldCall, cancel: &CancellationToken) -> CallOutcome {
    match call.refusal {
        Some(ErrorBody { code, message, .. }) => refuse_call(environment, &call.request, code, &message),
        None => run_call(environment, call.request, cancel).await,
    }
}
