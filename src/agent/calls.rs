//! The calls of one reply: which are run, which are answered without running.
//!
//! Not run are calls whose arguments are no JSON object, and calls that come again and again.

use std::collections::HashSet;

use tokio_util::sync::CancellationToken;

use super::SinkError;
use super::batch::{Planned, run_planned};
use super::call::{CallEnvironment, CallOutcome};
use crate::base::limit;
use crate::protocol::{ErrorCode, EventBody, ToolCallRequest};

/// A call as the model made it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The call; without arguments when they could not be read.
    pub request: ToolCallRequest,
    /// What is wrong with its arguments.
    pub problem: Option<String>,
}

/// What is remembered of a turn's earlier calls.
#[derive(Debug, Default)]
pub(super) struct CallMemory {
    ids: HashSet<String>,
    last: Option<ToolCallRequest>,
    in_a_row: u32,
}

impl CallMemory {
    /// Gives a call an id that is unique in its turn: questions and results are matched by it.
    fn name_uniquely(&mut self, request: &mut ToolCallRequest) {
        let given = if request.id.is_empty() { "call".to_owned() } else { std::mem::take(&mut request.id) };
        request.id.clone_from(&given);
        let mut number = 1_u64;
        while !self.ids.insert(request.id.clone()) {
            number += 1;
            request.id = format!("{given}_{number}");
        }
    }

    /// How often this call has now come in a row.
    fn count(&mut self, request: &ToolCallRequest) -> u32 {
        let same = self.last.as_ref().is_some_and(|l| l.name == request.name && l.arguments == request.arguments);
        self.in_a_row = if same { self.in_a_row.saturating_add(1) } else { 1 };
        if !same {
            self.last = Some(request.clone());
        }
        self.in_a_row
    }

    /// Makes the ids of a reply's calls unique.
    pub fn adopt(&mut self, calls: &mut [Asked]) {
        for call in calls {
            self.name_uniquely(&mut call.request);
        }
    }
}

/// Answers all calls of a reply, in their order.
///
/// # Errors
/// [`SinkError`] when an event could not be handed in; what had started is ended then, too.
pub(super) async fn answer_calls(
    environment: &CallEnvironment,
    memory: &mut CallMemory,
    calls: Vec<Asked>,
    cancel: &CancellationToken,
) -> Result<Vec<CallOutcome>, SinkError> {
    let mut planned = Vec::with_capacity(calls.len());
    for Asked { request, problem } in calls {
        let times = memory.count(&request);
        let refusal = match problem {
            Some(problem) => Some((ErrorCode::InvalidArgument, problem)),
            None if times >= limit::IDENTICAL_CALLS_MAX => {
                environment.emit(|| EventBody::LoopDoomLoop {
                    tool_name: request.name.clone(),
                    call_count: times,
                    args: request.arguments.clone(),
                })?;
                Some((ErrorCode::Conflict, repeated(times)))
            }
            None => None,
        };
        planned.push(Planned { request, refusal });
    }
    Ok(run_planned(environment, planned, limit::CONCURRENT_CALLS_MAX, cancel).await)
}

fn repeated(times: u32) -> String {
    format!(
        "this same call came {times} times in a row and was not run again, for its result would be the same. \
         Look at the results you have, and do something else."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str) -> ToolCallRequest {
        ToolCallRequest { id: id.into(), name: name.into(), arguments: serde_json::Map::new() }
    }

    #[test]
    fn ids_become_unique_in_a_turn() {
        let mut memory = CallMemory::default();
        let mut ids = Vec::new();
        for id in ["a", "a", "", "", "a_2"] {
            let mut calls = vec![Asked { request: call(id, "t"), problem: None }];
            memory.adopt(&mut calls);
            ids.push(calls[0].request.id.clone());
        }
        assert_eq!(ids, ["a", "a_2", "call", "call_2", "a_2_2"]);
    }

    #[test]
    fn only_the_same_call_in_a_row_counts() {
        let mut memory = CallMemory::default();
        let names = ["a", "a", "b", "a", "a", "a", "a"];
        let counts: Vec<u32> = names.iter().map(|n| memory.count(&call("x", n))).collect();
        assert_eq!(counts, [1, 2, 1, 1, 2, 3, 4]);
    }
}
