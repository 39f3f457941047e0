//! A round whose reply is JSON actions: what becomes of it.
//!
//! Calls go the way of all calls, with their gates, hooks, permission and loop breakers; what ends the task does so behind them,
//! and only where none of them failed. A reply without actions is told so, and after a few in a row the turn stops.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::actions::{Action, guide, parse, retell};
use super::calls::{Asked, plan_calls};
use super::fault::{Fault, NO_RESPONSE, no_response};
use super::reply::Reply;
use super::turn::{Ended, Turn};
use super::{SinkError, Step};
use crate::model::ModelRequest;
use crate::protocol::{AgentGate, EventBody, InteractionMode, Message, Part, RoundKind, ToolCallRequest};

/// How a task ends.
enum Finish {
    Packet(Map<String, Value>),
    Words(String),
}

impl Turn {
    /// Whether its model answers with actions. One whose answer has to be data is held to that by its provider instead.
    pub(super) fn acts(&self) -> bool {
        self.input.mode == InteractionMode::Auto && self.input.output_schema.is_none()
    }

    fn opens(&self, gate: AgentGate) -> bool {
        self.input.works_as.as_ref().is_none_or(|agent| agent.opens(gate))
    }

    /// A request in the form of actions: the tools in words, the conversation in words.
    pub(super) fn in_actions(&self, mut request: ModelRequest) -> ModelRequest {
        request.system.push_str(&guide(&request.tools, self.opens(AgentGate::Finalize)));
        request.tools = Vec::new().into();
        request.messages = retell(&request.messages).into();
        request
    }

    /// What a reply in actions wants to happen, happens. None: the next round follows.
    pub(super) async fn act(&mut self, reply: Reply, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        let Reply { text, usage, stop, .. } = reply;
        if text.trim().is_empty() {
            self.input.sink.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::Text, usage })?;
            self.final_text = NO_RESPONSE.to_owned();
            return Ok(Some(Ended::Failed(no_response(stop))));
        }
        let actions = match parse(&text) {
            Ok(actions) => actions,
            Err(why) => {
                self.input.sink.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::Text, usage })?;
                return Ok(self.unreadable(text, &why));
            }
        };
        let (mut calls, finish) = sorted(actions);
        self.calls.adopt(&mut calls);
        for asked in &mut calls {
            self.input.environment.registry.unwrap_call(&mut asked.request);
        }
        self.remember(text.clone(), calls.iter().map(|asked| asked.request.clone()).collect());
        let results = self.input.messages.len();
        if calls.is_empty() {
            self.input.sink.emit(EventBody::TurnComplete { turn: self.rounds, kind: RoundKind::Text, usage })?;
        } else {
            self.held = plan_calls(&self.input.environment, &mut self.calls, (&text, calls), usage)?;
            if let Some(ended) = self.call_tools(cancel).await? {
                return Ok(Some(ended));
            }
        }
        let failed = self.input.messages[results..]
            .iter()
            .any(|message| matches!(message, Message::ToolResult { is_error: true, .. }));
        match finish {
            None => Ok(None),
            Some(_) if failed => {
                self.note("The task goes on: an action before its end failed. Look at the result, and end it when it is done.");
                Ok(None)
            }
            Some(finish) => Ok(self.finish(finish)),
        }
    }

    /// The task ends, where it may.
    fn finish(&mut self, finish: Finish) -> Option<Ended> {
        match finish {
            Finish::Packet(_) if !self.opens(AgentGate::Finalize) => {
                let name = self.input.works_as.as_ref().map_or("", |agent| agent.name.as_str());
                let text = format!(
                    "`finalize_task` was refused: the policy of the agent `{name}` does not name `Finalize`. End with `done`."
                );
                self.note(&text);
                return None;
            }
            Finish::Packet(packet) => {
                self.final_text = Value::Object(packet.clone()).to_string();
                self.output = Some(Value::Object(packet));
            }
            Finish::Words(words) => self.final_text = words,
        }
        // Who spoke while the model gave its answer is heard in this turn still.
        (!self.input.steering.waits()).then_some(Ended::Completed)
    }

    /// A reply that has no actions, or some that cannot be read.
    fn unreadable(&mut self, text: String, why: &str) -> Option<Ended> {
        let step = self.calls.breaker.lock().reply(&text, &[], true);
        self.remember(text, Vec::new());
        match step {
            Step::Stop(why) => Some(Ended::Failed(Fault::Loop.told(why))),
            Step::GoOn | Step::Tell(_) => {
                self.note(&format!(
                    "Nothing of this answer was carried out: {why}. Answer with actions alone; the last one is `done`, with your \
                     answer to the user."
                ));
                None
            }
        }
    }

    /// Tells the model something that nobody said.
    fn note(&mut self, text: &str) {
        self.input.messages.push(Message::User(vec![Part::Text { text: text.to_owned() }]));
    }
}

/// The calls of some actions, and how they end: what stands behind an end is never reached.
fn sorted(actions: Vec<Action>) -> (Vec<Asked>, Option<Finish>) {
    let mut calls = Vec::new();
    for action in actions {
        match action {
            Action::Tool(name, arguments) => {
                let request = ToolCallRequest { id: String::new(), name, arguments };
                calls.push(Asked { request, problem: None });
            }
            Action::Finalize(packet) => return (calls, Some(Finish::Packet(packet))),
            Action::Done(message) => return (calls, Some(Finish::Words(message))),
        }
    }
    (calls, None)
}
