//! Questions of a session, put to a client: about permission as `session/request_permission`, all others as forms.
//!
//! Whoever answers first decides: where that was another client, the question is taken back here. What a client answers that
//! is none of the answers that were offered is a no.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Core;
use super::desk::{Desk, request_of};
use super::rpc;
use super::told::{Teller, call_id};
use crate::app::Resolved;
use crate::protocol::{Access, ApiError, ClientQuestion, Decision, ErrorCode, EventBody, RequestId, SessionId, TurnId};

/// The field of a form that holds the answer.
const ANSWER: &str = "answer";

/// A request of ours that has no answer yet.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    request: RequestId,
    about: About,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Permission,
    Form,
}

/// The answers to a question about permission: the option's id is the decision's own name.
const OPTIONS: [(Decision, &str, &str, &str); 3] = [
    (Decision::Allow, "allow", "allow_once", "Allow once"),
    (Decision::AllowAlways, "allow_always", "allow_always", "Allow for the rest of the session"),
    (Decision::Deny, "deny", "reject_once", "Reject"),
];

impl Core {
    /// Puts a question.
    pub(super) async fn ask(
        self: &Arc<Self>,
        desk: &Arc<Desk>,
        teller: &Teller,
        (body, turn): (EventBody, Option<TurnId>),
    ) {
        let Some(request) = request_of(&body).cloned() else { return };
        // Who may only look cannot answer.
        if self.caller.needs(Access::Work).is_err() || self.asked.lock().values().any(|one| one.request == request) {
            return;
        }
        let (about, method, params) = match body {
            EventBody::PermissionRequest { call_id: call, tool_name, args, preview, options, .. } => {
                let id = call_id(turn.as_ref(), &call);
                let shown = teller.question((&id, &tool_name), &args, preview.as_ref());
                let params = json!({ "sessionId": desk.id, "toolCall": shown, "options": offered(&options) });
                (About::Permission, "session/request_permission", params)
            }
            EventBody::ClientRequest { question, call_id: call, .. } if self.client().forms => {
                let call = call.map(|call| call_id(turn.as_ref(), &call));
                (About::Form, "elicitation/create", form(&desk.id, call, &question))
            }
            // Who prompted is who is asked: another client may still answer what it prompted itself.
            EventBody::ClientRequest { .. } if turn.is_some_and(|turn| desk.has(&turn)) => {
                let words = "the client cannot put questions to a person";
                self.settle(desk.id.clone(), json!({ "requestId": request, "cancelled": true, "message": words }));
                return;
            }
            _ => return,
        };
        let number = self.number();
        self.asked.lock().insert(number, Asked { session: desk.id.clone(), request, about });
        self.outlet.say(Some(desk.id.as_str()), rpc::request(number, method, &params)).await;
    }

    /// A question is over: takes it back, where the client has not answered it.
    pub(super) async fn withdraw(&self, session: &SessionId, request: &RequestId) {
        let number = {
            let mut asked = self.asked.lock();
            let number = asked.iter().find(|(_, one)| one.request == *request).map(|(number, _)| *number);
            number.inspect(|number| drop(asked.remove(number)))
        };
        if let Some(number) = number {
            let params = json!({ "requestId": number });
            self.outlet.say(Some(session.as_str()), rpc::notification("$/cancel_request", &params)).await;
        }
    }

    /// Takes the answer to a request of ours. None: the client cannot or would not.
    pub(super) fn answered(self: Arc<Self>, id: &Value, result: Option<Value>) {
        let asked = id.as_u64().and_then(|number| self.asked.lock().remove(&number));
        // It is over, or was never asked.
        let Some(Asked { session, request, about }) = asked else { return };
        let feedback = match about {
            About::Permission => permission(&request, result.as_ref()),
            About::Form => filled(&request, result.as_ref()),
        };
        self.settle(session, feedback);
    }

    fn settle(self: &Arc<Self>, session: SessionId, feedback: Value) {
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            let told: Result<Resolved, ApiError> = core.carry_out("feedback", Some(&session), &feedback).await;
            let Err(error) = told else { return };
            tracing::debug!(%session, %error, "an answer of a client did not count");
            // What does not fit leaves the question open, and nobody here would be asked again.
            if error.code() == ErrorCode::InvalidArgument && feedback.get("value").is_some() {
                let request = &feedback["requestId"];
                let cancelled = json!({ "requestId": request, "cancelled": true, "message": error.to_string() });
                let told: Result<Resolved, ApiError> = core.carry_out("feedback", Some(&session), &cancelled).await;
                if let Err(error) = told {
                    tracing::debug!(%session, %error, "a question stays open");
                }
            }
        });
    }
}

fn offered(options: &[Decision]) -> Vec<Value> {
    let known = OPTIONS.into_iter().filter(|(decision, ..)| options.contains(decision));
    known.map(|(_, id, kind, name)| json!({ "optionId": id, "name": name, "kind": kind })).collect()
}

/// The feedback that an answer to a question about permission is.
fn permission(request: &RequestId, result: Option<&Value>) -> Value {
    let outcome = result.map_or(&Value::Null, |result| &result["outcome"]);
    let chosen = outcome["optionId"].as_str().filter(|_| outcome["outcome"] == "selected");
    match OPTIONS.into_iter().find(|(_, id, ..)| chosen == Some(id)) {
        Some((decision, ..)) => json!({ "requestId": request, "decision": decision }),
        None => {
            let message = match (result.is_some(), outcome["outcome"].as_str()) {
                (false, _) => "the client could not ask",
                (true, Some("cancelled")) => "the question was cancelled",
                (true, _) => "the client's answer is none of those that were offered",
            };
            json!({ "requestId": request, "decision": Decision::Deny, "message": message })
        }
    }
}

/// A question as a form of one field.
fn form(session: &SessionId, call: Option<String>, question: &ClientQuestion) -> Value {
    let (field, message) = match question {
        ClientQuestion::Select { title, options, several } => {
            let field = match several {
                true => json!({ "type": "array", "title": title, "items": { "type": "string", "enum": options } }),
                false => json!({ "type": "string", "title": title, "enum": options }),
            };
            (field, title.clone())
        }
        ClientQuestion::Confirm { title, message } => {
            let words = message.as_ref().map_or_else(|| title.clone(), |message| format!("{title}\n\n{message}"));
            (json!({ "type": "boolean", "title": title }), words)
        }
        ClientQuestion::Input { title, placeholder } => {
            (json!({ "type": "string", "title": title, "description": placeholder }), title.clone())
        }
        ClientQuestion::Editor { title, text } => {
            (json!({ "type": "string", "title": title, "default": text }), title.clone())
        }
    };
    let properties = Map::from_iter([(ANSWER.to_owned(), field)]);
    let mut params = json!({
        "mode": "form",
        "sessionId": session,
        "message": message,
        "requestedSchema": { "type": "object", "properties": properties, "required": [ANSWER] },
    });
    if let Some(call) = call {
        params["toolCallId"] = call.into();
    }
    params
}

/// The feedback that a form is.
fn filled(request: &RequestId, result: Option<&Value>) -> Value {
    let result = result.unwrap_or(&Value::Null);
    let none = |message: &str| json!({ "requestId": request, "cancelled": true, "message": message });
    match (result["action"].as_str(), result["content"].get(ANSWER)) {
        (Some("accept"), Some(value)) => json!({ "requestId": request, "value": value }),
        (Some("accept"), None) => none("the form came back without an answer"),
        (Some("decline"), _) => none("declined"),
        _ => none("the form was closed"),
    }
}
