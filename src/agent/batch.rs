//! Several calls of one reply: side by side, in order, each by itself.

use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, run_call};
use crate::protocol::ToolCallRequest;

/// Runs calls, at most `concurrency_max` at once (at least 1). Results in input order, one for each call.
///
/// The calls share the caller's task: a tool that computes for long belongs on the blocking pool.
pub async fn run_batch(
    environment: &CallEnvironment,
    requests: Vec<ToolCallRequest>,
    concurrency_max: usize,
    cancel: &CancellationToken,
) -> Vec<CallOutcome> {
    if requests.len() == 1 || concurrency_max <= 1 {
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(run_call(environment, request, cancel).await);
        }
        return outcomes;
    }
    let mut numbered: Vec<(usize, CallOutcome)> = futures_util::stream::iter(requests.into_iter().enumerate())
        .map(|(at, request)| async move { (at, run_call(environment, request, cancel).await) })
        .buffer_unordered(concurrency_max)
        .collect()
        .await;
    numbered.sort_unstable_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, outcome)| outcome).collect()
}
