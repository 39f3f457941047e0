//! Several calls of one reply: side by side, in order, each by itself.
//!
//! A call that is known to change something is a barrier: those before it have ended when it starts, and those behind
//! it start when it has ended. So a model that writes a file and reads it in one reply reads what it wrote.

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, refuse_call, run_call};
use crate::protocol::{ErrorCode, ToolCallRequest, ToolCategory};

/// Calls between two moments in which the worker may do something else.
const CALLS_PER_BREATH: usize = 256;

/// What is done about a call.
pub(super) struct Planned {
    /// The call.
    pub request: ToolCallRequest,
    /// Why it is answered without running.
    pub refusal: Option<(ErrorCode, String)>,
}

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
    let planned = requests.into_iter().map(|request| Planned { request, refusal: None }).collect();
    run_planned(environment, planned, concurrency_max, cancel).await
}

/// The same for calls some of which are not to run. They start in their order, these too.
pub(super) async fn run_planned(
    environment: &CallEnvironment,
    calls: Vec<Planned>,
    concurrency_max: usize,
    cancel: &CancellationToken,
) -> Vec<CallOutcome> {
    let mut outcomes: Vec<Option<CallOutcome>> = std::iter::repeat_with(|| None).take(calls.len()).collect();
    let mut running = FuturesUnordered::new();
    for (at, call) in calls.into_iter().enumerate() {
        let alone = concurrency_max <= 1 || (call.refusal.is_none() && is_writer(environment, &call.request));
        while running.len() >= if alone { 1 } else { concurrency_max }
            && let Some((at, outcome)) = running.next().await
        {
            outcomes[at] = Some(outcome);
        }
        if alone {
            outcomes[at] = Some(run_one(environment, call, cancel).await);
            continue;
        }
        let mut work = Box::pin(async move { (at, run_one(environment, call, cancel).await) });
        // What is done at once needs no place among those that wait.
        match (&mut work).now_or_never() {
            Some((at, outcome)) => outcomes[at] = Some(outcome),
            None => running.push(work),
        }
        if at % CALLS_PER_BREATH == CALLS_PER_BREATH - 1 {
            tokio::task::yield_now().await;
        }
    }
    while let Some((at, outcome)) = running.next().await {
        outcomes[at] = Some(outcome);
    }
    // Each place was filled: a call is either among those that ran, or was waited for.
    outcomes.into_iter().flatten().collect()
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

async fn run_one(environment: &CallEnvironment, call: Planned, cancel: &CancellationToken) -> CallOutcome {
    match call.refusal {
        Some((code, message)) => refuse_call(environment, &call.request, code, &message),
        None => run_call(environment, call.request, cancel).await,
    }
}
