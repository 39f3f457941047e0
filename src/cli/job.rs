//! One prompt, driven over HTTP like any other client would: the session, the live events, the answers
//! to permission questions.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Client, ClientError, Events};
use super::screen::{line, piece};
use super::show::Show;
use crate::protocol::{Event, EventBody, RequestId, TurnId};

/// How permission questions are answered.
pub(super) enum Answers {
    /// Allowed, for this reason.
    Allow(&'static str),
    /// Refused: nobody is there to be asked.
    Refuse,
    /// By the lines that a person types.
    Ask(mpsc::Receiver<String>),
}

/// A job on its way.
pub(super) struct Job {
    client: Client,
    session: String,
    answers: Answers,
    show: Show,
    /// Questions that wait for the person, oldest first.
    questions: VecDeque<RequestId>,
}

/// What came of the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It ended by itself.
    Completed,
    /// It failed or was aborted; the words have been shown.
    Failed,
}

impl Job {
    /// A job in a session.
    pub(super) fn new(client: Client, session: String, answers: Answers) -> Self {
        Self { client, session, answers, show: Show::default(), questions: VecDeque::new() }
    }

    /// Watches the session, sends the prompt, and shows everything until the turn has ended.
    ///
    /// # Errors
    /// When the server refuses, or its stream ends before the turn.
    pub(super) async fn run(&mut self, prompt: &str) -> Result<Outcome, ClientError> {
        let mut events = self.client.events(&self.path("events")).await?;
        let body = json!({ "prompt": prompt });
        let accepted = self.client.call("POST", &self.path("prompt"), Some(&body)).await?;
        let turn: Option<TurnId> = serde_json::from_value(accepted.get("turnId").cloned().unwrap_or(Value::Null)).ok();
        loop {
            match self.step(&mut events).await? {
                Step::Event(event) => {
                    self.show.event(&event);
                    let Some(body) = event.body() else { continue };
                    self.react(&body).await?;
                    if body.is_terminal() && event.turn_id == turn {
                        let completed = matches!(body, EventBody::SessionCompleted { .. });
                        return Ok(if completed { Outcome::Completed } else { Outcome::Failed });
                    }
                }
                Step::Line(text) => self.typed(&text).await?,
                Step::End => {
                    let cause =
                        std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the stream ended before the turn");
                    return Err(ClientError::Broken { call: self.path("events"), cause });
                }
            }
        }
    }

    async fn step(&mut self, events: &mut Events) -> Result<Step, ClientError> {
        let typed = async {
            match &mut self.answers {
                Answers::Ask(lines) if !self.questions.is_empty() => lines.recv().await,
                Answers::Ask(_) | Answers::Allow(_) | Answers::Refuse => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.next() => Ok(event?.map_or(Step::End, |event| Step::Event(Box::new(event)))),
            text = typed => Ok(Step::Line(text.unwrap_or_default())),
        }
    }

    async fn react(&mut self, body: &EventBody) -> Result<(), ClientError> {
        if let EventBody::PermissionResponse { request_id, .. } = body {
            self.questions.retain(|waiting| waiting != request_id);
        }
        let EventBody::PermissionRequest { request_id, .. } = body else { return Ok(()) };
        match &mut self.answers {
            Answers::Allow(why) => {
                line(&format!("    answered: allow ({why})"));
                self.answer(request_id, json!({ "decision": "allow" })).await
            }
            Answers::Refuse => {
                line("    answered: deny (nobody is at the terminal; --yes allows)");
                let message = "nobody is there to give permission";
                self.answer(request_id, json!({ "decision": "deny", "message": message })).await
            }
            Answers::Ask(lines) => {
                // What was typed before the question was there is no answer to it.
                while self.questions.is_empty() && lines.try_recv().is_ok() {}
                self.questions.push_back(request_id.clone());
                piece("    [y]es, [a]lways in this session, or no: ");
                Ok(())
            }
        }
    }

    async fn typed(&mut self, text: &str) -> Result<(), ClientError> {
        let Some(request) = self.questions.pop_front() else { return Ok(()) };
        let decision = match text.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => "allow",
            "a" | "always" => "allow_always",
            _ => "deny",
        };
        self.answer(&request, json!({ "decision": decision })).await
    }

    async fn answer(&self, request: &RequestId, mut body: Value) -> Result<(), ClientError> {
        if let Some(fields) = body.as_object_mut() {
            fields.insert("requestId".to_owned(), json!(request));
        }
        match self.client.call("POST", &self.path("feedback"), Some(&body)).await {
            // Too late: the question has ended by itself, and the stream says how.
            Ok(_) | Err(ClientError::Refused { status: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn path(&self, what: &str) -> String {
        format!("/sessions/{}/{what}", self.session)
    }
}

enum Step {
    Event(Box<Event>),
    Line(String),
    End,
}
