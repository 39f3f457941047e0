//! Requests that a server ends with questions of its own (`input_required`, 2026-07-28): they are answered, and the request is made once more.
//!
//! Invariant: its questions go where those go that a server asks during a call: to the clients and the model of the call that it ended with them. A
//! question that is refused ends the call, as there is no way to say so; a person's no is an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use rmcp::model::{ClientRequest, Extensions, RequestId, ServerResult};
use rmcp::service::InboundStreamOrigin;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::answers::Answers;
use super::explain::refusal;
use crate::base::limit;

/// The first pause before a request is repeated with which nothing was asked.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a server answered.
pub(super) enum Answer {
    /// What was asked for.
    Given(Box<ServerResult>),
    /// Questions of its own.
    Asks(Wants),
    /// Something that is neither.
    Strange,
}

/// What a server wants to know before it goes on.
#[derive(Debug)]
pub(super) struct Wants {
    questions: Map<String, Value>,
    state: Option<String>,
}

/// A request, and how often it was made already.
pub(super) struct Rounds<'a> {
    answers: &'a Answers,
    request: ClientRequest,
    made: usize,
    /// How often in a row nothing was asked.
    empty: u32,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(answers: &'a Answers, request: ClientRequest) -> Self {
        Self { answers, request, made: 0, empty: 0 }
    }

    /// The request as it is to be sent now.
    pub(super) fn request(&mut self) -> ClientRequest {
        self.made += 1;
        self.request.clone()
    }

    /// Answers what the server asked instead of answering the request of that id.
    ///
    /// # Errors
    /// Why the request cannot be made once more: the end of a sentence about the server.
    pub(super) async fn answer(
        &mut self,
        wants: Wants,
        (id, cancel): (&RequestId, &CancellationToken),
    ) -> Result<(), String> {
        if self.made >= limit::MCP_ROUNDS_MAX {
            return Err(format!("asked something {} times, and is not done", self.made));
        }
        if wants.questions.len() > limit::MCP_QUESTIONS_MAX {
            return Err(format!("asked {} things at once", wants.questions.len()));
        }
        if wants.questions.is_empty() {
            tokio::time::sleep(PAUSE.saturating_mul(1 << self.empty.min(8)).min(PAUSE_MAX)).await;
            self.empty += 1;
        } else {
            self.empty = 0;
        }
        let mut origin = Extensions::new();
        origin.insert(InboundStreamOrigin::OutboundRequest(id.clone()));
        let origin = &origin;
        let answered = wants.questions.into_iter().map(async |(name, mut question)| {
            let params = question.get_mut("params").map(Value::take).unwrap_or_default();
            let method = question["method"].as_str().unwrap_or_default();
            match self.answers.answer((method, params), (origin, cancel)).await {
                Ok(answer) => Ok((name, answer)),
                Err(error) => Err(format!("asked for what it does not get ({method}): {}", refusal(&error))),
            }
        });
        let answered: BTreeMap<String, Value> = try_join_all(answered).await?.into_iter().collect();
        self.take((!answered.is_empty()).then_some(answered), wants.state)
    }

    fn take(&mut self, responses: Option<BTreeMap<String, Value>>, state: Option<String>) -> Result<(), String> {
        let (input_responses, request_state) = match &mut self.request {
            ClientRequest::CallToolRequest(call) => (&mut call.params.input_responses, &mut call.params.request_state),
            ClientRequest::ReadResourceRequest(read) => {
                (&mut read.params.input_responses, &mut read.params.request_state)
            }
            ClientRequest::GetPromptRequest(get) => (&mut get.params.input_responses, &mut get.params.request_state),
            _ => return Err("asked something where nothing can be asked".to_owned()),
        };
        (*input_responses, *request_state) = (responses, state);
        Ok(())
    }
}

/// What it is that a server answered.
pub(super) fn understood(answer: ServerResult) -> Answer {
    let asked = match answer {
        ServerResult::InputRequiredResult(asked) => serde_json::to_value(asked).unwrap_or_default(),
        ServerResult::CustomResult(custom) if custom.0["resultType"] == "input_required" => custom.0,
        other => return Answer::Given(Box::new(other)),
    };
    read(asked).map_or(Answer::Strange, Answer::Asks)
}

fn read(mut asked: Value) -> Option<Wants> {
    let questions = match asked.get_mut("inputRequests").map(Value::take) {
        Some(Value::Object(questions)) => questions,
        None | Some(Value::Null) => Map::new(),
        Some(_) => return None,
    };
    let state = match asked.get_mut("requestState").map(Value::take) {
        Some(Value::String(state)) => Some(state),
        None | Some(Value::Null) => None,
        Some(_) => return None,
    };
    if questions.is_empty() && state.is_none() {
        return None;
    }
    Some(Wants { questions, state })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_a_question_and_what_is_not() {
        let question = json!({ "method": "roots/list" });
        #[rustfmt::skip]
        let table = [
            (json!({ "resultType": "input_required", "inputRequests": { "a": question } }), Some((1, None))),
            (json!({ "resultType": "input_required", "requestState": "s" }), Some((0, Some("s")))),
            (json!({ "resultType": "input_required", "inputRequests": { "a": { "method": "own/thing", "params": 5 } }, "requestState": "" }), Some((1, Some("")))),
            (json!({ "resultType": "input_required" }), None),
            (json!({ "resultType": "input_required", "inputRequests": [question] }), None),
            (json!({ "resultType": "input_required", "requestState": 5 }), None),
        ];
        for (answer, want) in table {
            let answer: ServerResult = serde_json::from_value(answer.clone()).unwrap();
            let asks = match understood(answer) {
                Answer::Asks(wants) => Some((wants.questions.len(), wants.state)),
                Answer::Given(_) | Answer::Strange => None,
            };
            assert_eq!(asks.as_ref().map(|(count, state)| (*count, state.as_deref())), want);
        }
        let done = json!({ "resultType": "complete", "content": [], "requestState": "s" });
        assert!(matches!(understood(serde_json::from_value(done).unwrap()), Answer::Given(_)));
    }
}
