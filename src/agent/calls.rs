//! The calls of one reply: which are run, which are answered without running.
//!
//! Not run are calls whose arguments are no JSON object, and calls and replies that come again and again. Before each call lies
//! a boundary: there an interrupt answers the rest without running them, and a pause holds them back.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::batch::{Terms, run_planned};
use super::call::{CallEnvironment, CallOutcome, refuse_call};
use super::{LoopBreaker, Repeated, SinkError, Steering, Step, Wish};
use crate::base::limit;
use crate::protocol::{ErrorBody, ErrorCode, EventBody, Held, HeldCall, Message, ToolCallRequest, Usage};

/// What the model is told of a call that an interrupt kept from beginning.
const INTERRUPTED: &str = "the turn was interrupted before this call began";

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
    /// Shared with the turn's hooks.
    pub breaker: Arc<Mutex<LoopBreaker>>,
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

    /// Takes note of the calls of a conversation that goes on.
    pub fn know(&mut self, messages: &[Message]) {
        for message in messages {
            if let Message::Assistant { calls, .. } = message {
                self.ids.extend(calls.iter().map(|call| call.id.clone()));
            }
        }
    }

    /// Makes the ids of a reply's calls unique.
    pub fn adopt(&mut self, calls: &mut [Asked]) {
        for call in calls {
            self.name_uniquely(&mut call.request);
        }
    }
}

/// Decides what is to be done about the calls of a reply.
///
/// # Errors
/// [`SinkError`] when an event could not be handed in.
pub(super) fn plan_calls(
    environment: &CallEnvironment,
    memory: &mut CallMemory,
    (text, calls): (&str, Vec<Asked>),
    usage: Option<Usage>,
) -> Result<Held, SinkError> {
    let looking = |asked: &Asked| asked.problem.is_none() && may_repeat(environment, &asked.request);
    let looks = !calls.is_empty() && calls.iter().all(looking);
    let step = if looks { Step::GoOn } else { judge(memory, text, &calls) };
    let (told, stopped) = match step {
        Step::GoOn => (None, None),
        Step::Tell(told) => (Some(told), None),
        Step::Stop(why) => (Some("the turn was stopped".to_owned()), Some(why)),
    };
    let mut planned = Vec::with_capacity(calls.len());
    for Asked { request, problem } in calls {
        let repeated = memory.breaker.lock().call(&request).filter(|_| !may_repeat(environment, &request));
        let refusal = match (problem, repeated) {
            (Some(problem), _) => Some((ErrorCode::InvalidArgument, problem)),
            (None, Some(Repeated { times, told })) => {
                environment.emit(|| EventBody::LoopDoomLoop {
                    tool_name: request.name.clone(),
                    call_count: times,
                    args: request.arguments.clone(),
                })?;
                Some((ErrorCode::Conflict, told))
            }
            (None, None) => told.clone().map(|told| (ErrorCode::Conflict, told)),
        };
        let refusal = refusal.map(|(code, message)| ErrorBody { code, message, details: None });
        planned.push(HeldCall { request, refusal });
    }
    Ok(Held { calls: planned, usage, stopped })
}

/// Answers calls in their order, and gives back those that a pause keeps from beginning.
pub(super) async fn answer_calls(
    environment: &CallEnvironment,
    calls: Vec<HeldCall>,
    steering: &dyn Steering,
    cancel: &CancellationToken,
) -> (Vec<CallOutcome>, Vec<HeldCall>) {
    // An abort ends each call by itself.
    let may_begin = |call: &HeldCall| {
        let may = if call.refusal.is_some() { steering.wish() == Wish::GoOn } else { steering.may_call() };
        may || cancel.is_cancelled()
    };
    let terms: Terms<'_> = (limit::CONCURRENT_CALLS_MAX, &may_begin);
    let (mut outcomes, mut held) = run_planned(environment, calls, terms, cancel).await;
    let why = match steering.wish() {
        _ if cancel.is_cancelled() => Some("aborted"),
        Wish::Interrupt => Some(INTERRUPTED),
        Wish::GoOn | Wish::Pause => None,
    };
    if let Some(why) = why {
        let refused = held.drain(..).map(|call| refuse_call(environment, &call.request, ErrorCode::Conflict, why));
        outcomes.extend(refused);
    }
    (outcomes, held)
}

/// Whether the same call again is sensible: it looks at something that goes on.
fn may_repeat(environment: &CallEnvironment, request: &ToolCallRequest) -> bool {
    environment.registry.get(&request.name).is_some_and(|tool| tool.may_repeat(&request.arguments))
}

fn judge(memory: &CallMemory, text: &str, calls: &[Asked]) -> Step {
    let requests: Vec<ToolCallRequest> = calls.iter().map(|asked| asked.request.clone()).collect();
    let unreadable = !calls.is_empty() && calls.iter().all(|asked| asked.problem.is_some());
    memory.breaker.lock().reply(text, &requests, unreadable)
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
}
