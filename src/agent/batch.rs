//! Several calls of one reply: side by side, in order, each by itself.

use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome};
use crate::protocol::ToolCallRequest;

/// Runs calls, at most `concurrency_max` at once (at least 1). Results in input order, one for each call.
pub async fn run_batch(
    environment: &CallEnvironment,
    requests: Vec<ToolCallRequest>,
    concurrency_max: usize,
    cancel: &CancellationToken,
) -> Vec<CallOutcome> {
    todo!()
}
