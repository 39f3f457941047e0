//! What a session asks becomes a form that the MCP client shows (`elicitation/create`), and what comes back its answer.
//!
//! Fails closed: a client that declines, dismisses the form, or answers what does not fit says no; one that says nothing is
//! answered for by the question's own deadline. Another client may answer first: then the form is taken back.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::peer::{Peer, Question};
use super::stream::Stream;
use super::wire::RpcError;
use crate::base::limit;
use crate::protocol::{ClientQuestion, Decision, EventBody, Feedback, RequestId, SessionId};

/// Told beside a refusal of what this client could not be asked.
pub(super) const CANNOT_ASK: &str = "This MCP client does not offer elicitation (forms), so it could not be asked. A rule, a \
    permission mode or a grant of the server can allow the call, or another client that is connected to the session.";

/// A form, and how its answer is read.
struct Form {
    message: String,
    schema: Value,
    read: Read,
}

enum Read {
    Permission(Vec<Decision>),
    Client(ClientQuestion),
}

/// Puts a question to the client. None: it cannot be asked. The form is taken back when what this gives is dropped.
pub(super) fn put(
    peer: &Arc<Peer>,
    session: &SessionId,
    (stream, asked): (&Arc<Stream>, EventBody),
) -> Option<Question> {
    let titled = peer.hello().filter(|_| peer.can_be_asked())?.version >= "2025-11-25";
    let (request_id, form) = form_of(asked, titled)?;
    let mut params = json!({ "message": form.message, "requestedSchema": form.schema });
    if titled {
        params["mode"] = "form".into();
    }
    let (question, answer) = peer.question(stream, ("elicitation/create", &params));
    let (peer, session) = (Arc::clone(peer), session.clone());
    tokio::spawn(async move {
        let Ok(answer) = answer.await else { return };
        let feedback = form.read.feedback(request_id, answer);
        // Somebody may have been faster.
        if let Err(error) = peer.app.feedback(&peer.caller, &session, feedback).await {
            tracing::debug!(%error, "the answer of an MCP client came to nothing");
        }
    });
    Some(question)
}

fn form_of(asked: EventBody, titled: bool) -> Option<(RequestId, Form)> {
    match asked {
        EventBody::PermissionRequest { request_id, tool_name, args, preview, options, .. } => {
            let message = permission(&tool_name, &args, preview.as_ref());
            let choices: Vec<(&str, &str)> = options.iter().map(|option| words(*option)).collect();
            let schema = object("decision", one_of("Decision", &choices, titled));
            Some((request_id, Form { message, schema, read: Read::Permission(options) }))
        }
        EventBody::ClientRequest { request_id, question, .. } => {
            let (message, schema) = client_form(&question);
            Some((request_id, Form { message, schema, read: Read::Client(question) }))
        }
        _ => None,
    }
}

/// An option as it is answered with, and in words.
fn words(option: Decision) -> (&'static str, &'static str) {
    match option {
        Decision::Allow => ("allow", "Allow this call"),
        Decision::AllowAlways => ("allow_always", "Allow calls like it for the rest of the session"),
        Decision::Deny => ("deny", "Refuse"),
    }
}

/// What is to be allowed, for a person: what it does, and what would come of it.
fn permission(tool: &str, args: &Map<String, Value>, preview: Option<&Value>) -> String {
    let mut message = format!("May `{tool}` run?");
    let command = args.get("command").or_else(|| args.get("cmd")).and_then(Value::as_str);
    match (command, preview.is_some()) {
        (Some(command), _) => add(&mut message, command),
        (None, false) => add(&mut message, &serde_json::to_string_pretty(args).unwrap_or_default()),
        (None, true) => {}
    }
    for (name, value) in preview.and_then(Value::as_object).into_iter().flatten() {
        match value {
            Value::String(text) if text.contains('\n') => add(&mut message, text),
            Value::String(text) => add(&mut message, &format!("{name}: {text}")),
            Value::Null => {}
            other => add(&mut message, &format!("{name}: {other}")),
        }
    }
    message
}

fn add(message: &mut String, text: &str) {
    let left = limit::MCP_QUESTION_BYTES_MAX.saturating_sub(message.len());
    message.push_str("\n\n");
    let end = text.floor_char_boundary(left);
    message.push_str(text.get(..end).unwrap_or_default());
    if end < text.len() {
        message.push_str(" …");
    }
}

/// The form of a question that is not about permission.
fn client_form(question: &ClientQuestion) -> (String, Value) {
    let field = match question {
        ClientQuestion::Confirm { .. } => json!({ "type": "boolean", "title": "Yes" }),
        ClientQuestion::Input { placeholder, .. } => {
            let mut field = json!({ "type": "string", "title": "Text" });
            if let Some(placeholder) = placeholder {
                field["description"] = placeholder.as_str().into();
            }
            field
        }
        ClientQuestion::Editor { text, .. } => json!({ "type": "string", "title": "Text", "default": text }),
        ClientQuestion::Select { options, several: false, .. } => {
            json!({ "type": "string", "title": "Choice", "enum": options })
        }
        ClientQuestion::Select { options, several: true, .. } => {
            json!({ "type": "array", "title": "Choices", "items": { "type": "string", "enum": options } })
        }
    };
    let mut message = question.title().to_owned();
    if let ClientQuestion::Confirm { message: Some(more), .. } = question {
        add(&mut message, more);
    }
    (message, object("value", field))
}

fn object(name: &str, field: Value) -> Value {
    json!({ "type": "object", "properties": { name: field }, "required": [name] })
}

/// A choice, in the form that the version has for it.
fn one_of(title: &str, choices: &[(&str, &str)], titled: bool) -> Value {
    if titled {
        let options: Vec<Value> =
            choices.iter().map(|(value, words)| json!({ "const": value, "title": words })).collect();
        return json!({ "type": "string", "title": title, "oneOf": options });
    }
    let (values, words): (Vec<&str>, Vec<&str>) = choices.iter().copied().unzip();
    json!({ "type": "string", "title": title, "enum": values, "enumNames": words })
}

impl Read {
    /// What is handed in. What is no yes that fits is a no.
    fn feedback(&self, request_id: RequestId, answer: Result<Value, RpcError>) -> Feedback {
        let feedback = Feedback { request_id: Some(request_id), ..Feedback::default() };
        let no = |why: &str| {
            let message = Some(why.to_owned());
            match self {
                Self::Permission(_) => Feedback { decision: Some(Decision::Deny), message, ..feedback.clone() },
                Self::Client(_) => Feedback { cancelled: Some(true), message, ..feedback.clone() },
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return no(&format!("the MCP client could not ask: {}", error.message)),
        };
        match answer.get("action").and_then(Value::as_str) {
            Some("accept") => {}
            Some("decline") => return no("declined by the user of the MCP client"),
            _ => return no("dismissed by the user of the MCP client"),
        }
        let content = answer.get("content").unwrap_or(&Value::Null);
        let yes = match self {
            Self::Permission(options) => {
                let said = content.get("decision").and_then(Value::as_str);
                let decision = options.iter().find(|option| Some(words(**option).0) == said).copied();
                decision.map(|decision| Feedback { decision: Some(decision), ..feedback.clone() })
            }
            Self::Client(question) => {
                let value = content.get("value").filter(|value| question.check(value).is_ok()).cloned();
                value.map(|value| Feedback { value: Some(value), ..feedback.clone() })
            }
        };
        yes.unwrap_or_else(|| no("the MCP client gave an answer that does not fit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(answer: Value) -> (Option<Decision>, bool) {
        let read = Read::Permission(vec![Decision::Allow, Decision::Deny]);
        let feedback = read.feedback("req_1".parse().unwrap(), Ok(answer));
        (feedback.decision, feedback.message.is_some())
    }

    #[test]
    fn only_a_yes_among_the_options_is_one() {
        let accept = |decision: Value| json!({ "action": "accept", "content": { "decision": decision } });
        #[rustfmt::skip]
        let table = [
            (accept("allow".into()), (Some(Decision::Allow), false)),
            (accept("deny".into()), (Some(Decision::Deny), false)),
            // It was not among them.
            (accept("allow_always".into()), (Some(Decision::Deny), true)),
            (accept("yes".into()), (Some(Decision::Deny), true)),
            (accept(true.into()), (Some(Decision::Deny), true)),
            (json!({ "action": "accept" }), (Some(Decision::Deny), true)),
            (json!({ "action": "decline", "content": { "decision": "allow" } }), (Some(Decision::Deny), true)),
            (json!({ "action": "cancel" }), (Some(Decision::Deny), true)),
            (json!({ "content": { "decision": "allow" } }), (Some(Decision::Deny), true)),
            (json!("allow"), (Some(Decision::Deny), true)),
        ];
        for (answer, want) in table {
            assert_eq!(decided(answer.clone()), want, "{answer}");
        }
        let failed =
            Read::Permission(vec![Decision::Allow]).feedback("r".parse().unwrap(), Err(RpcError::params("no")));
        assert_eq!(failed.decision, Some(Decision::Deny));
    }

    #[test]
    fn an_answer_fits_its_question() {
        let select =
            ClientQuestion::Select { title: "t".into(), options: vec!["a".into(), "b".into()], several: false };
        let said = |value: Value| {
            let answer = json!({ "action": "accept", "content": { "value": value } });
            let read = Read::Client(select.clone());
            let feedback = read.feedback("req_1".parse().unwrap(), Ok(answer));
            (feedback.value, feedback.cancelled)
        };
        assert_eq!(said("a".into()), (Some("a".into()), None));
        assert_eq!(said("c".into()), (None, Some(true)));
    }

    #[test]
    fn the_form_shows_what_would_happen_and_is_bounded() {
        let Value::Object(args) = json!({ "command": "rm -rf x" }) else { panic!("an object") };
        let shown = permission("bash", &args, Some(&json!({ "cwd": "/w", "diff": "-a\n+b", "none": null })));
        for part in ["`bash`", "rm -rf x", "cwd: /w", "-a\n+b"] {
            assert!(shown.contains(part), "{shown}");
        }
        let Value::Object(args) = json!({ "command": "é".repeat(limit::MCP_QUESTION_BYTES_MAX) }) else {
            panic!("an object")
        };
        let shown = permission("bash", &args, None);
        assert!(shown.len() <= limit::MCP_QUESTION_BYTES_MAX + 16 && shown.ends_with('…'));
        let form = one_of("t", &[("allow", "Allow")], false);
        assert_eq!(form["enum"], json!(["allow"]));
        assert_eq!(one_of("t", &[("allow", "Allow")], true)["oneOf"][0]["const"], "allow");
    }
}
