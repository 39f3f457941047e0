//! One call: hook → permission → validation → run → hook → findings.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Gate, Sink};
use crate::hook::Hooks;
use crate::protocol::{ErrorBody, SessionId, ToolCallRequest, ToolCallResult};
use crate::tool::{Registry, Scope};

/// Everything around a call.
#[derive(Clone)]
pub struct CallEnvironment {
    /// Where the tools are.
    pub registry: Arc<Registry>,
    /// Who gives permission.
    pub gate: Arc<dyn Gate>,
    /// The hooks.
    pub hooks: Arc<dyn Hooks>,
    /// Takes `tool.*` events; None: the caller makes them from the outcome.
    pub sink: Option<Arc<dyn Sink>>,
    /// The session, when there is one.
    pub session: Option<SessionId>,
    /// State that tools keep between calls.
    pub scope: Arc<Scope>,
}

/// What came of a call. Always exactly one for each request.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The result, in the words of typescript-api.md §2.
    pub result: ToolCallResult,
    /// What `tool.result.validate` found; goes into the next round.
    pub findings: Vec<String>,
    /// The limit that it ran into, when it timed out.
    pub timed_out_ms: Option<u64>,
    /// Why it failed, when it failed.
    pub failure: Option<ErrorBody>,
}

/// Runs one call to its end. Never fails: whatever goes wrong is a failed result.
pub async fn run_call(
    environment: &CallEnvironment,
    request: ToolCallRequest,
    cancel: &CancellationToken,
) -> CallOutcome {
    todo!()
}
