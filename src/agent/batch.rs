//! Several calls of one reply: side by side, in order, each by itself.

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, refuse_call, run_call};
use crate::protocol::{ErrorCode, ToolCallRequest};

/// What is done about a call.
pub(super) struct Planned {
    /// The call.
    pub request: ToolCallRequest,
    /// Why it is answered without running.
    pub refusal: Option<(ErrorCode, String)>,
}

/// Runs calls, at most `concurrency_max` at once (at least 1). Results in input order, one for each call.
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
    if calls.len() == 1 || concurrency_max <= 1 {
        let mut outcomes = Vec::with_capacity(calls.len());
        for call in calls {
            outcomes.push(run_one(environment, call, cancel).await);
        }
        return outcomes;
    }
    let mut numbered: Vec<(usize, CallOutcome)> = futures_util::stream::iter(calls.into_iter().enumerate())
        .map(|(at, call)| async move { (at, run_one(environment, call, cancel).await) })
        .buffer_unordered(concurrency_max)
        .collect()
        .await;
    numbered.sort_unstable_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn run_one(environment: &CallEnvironment, call: Planned, cancel: &CancellationToken) -> CallOutcome {
    match call.refusal {
        Some((code, message)) => refuse_call(environment, &call.request, code, &message),
        None => run_call(environment, call.request, cancel).await,
    }
}
