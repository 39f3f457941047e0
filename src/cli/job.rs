//! One prompt, driven over HTTP like any other client would: the session, the live events, the answers to questions, of sub-agents
//! too.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{Client, ClientError};
use super::follow::{Follow, News};
use super::show::{Show, question};
use crate::protocol::{ClientQuestion, Event, EventBody, RequestId, SessionId, SessionView, TurnId, TurnRecord};

/// How long the line to the server may be broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// How questions are answered.
pub(super) enum Answers {
    /// Allowed, for this reason.
    Allow(&'static str),
    /// Refused: nobody is there to be asked.
    Refuse,
    /// By the lines that a person types.
    Ask(mpsc::Receiver<String>),
}

/// A question that waits for a person.
struct Asked {
    session: SessionId,
    request: RequestId,
    body: EventBody,
}

/// A job on its way.
pub(super) struct Job {
    client: Client,
    session: SessionId,
    answers: Answers,
    show: Show,
    /// Questions that wait for the person, oldest first.
    questions: VecDeque<Asked>,
    /// Calls that were refused because nobody could be asked.
    refused: Vec<String>,
}

impl Job {
    /// A job in a session.
    pub(super) fn new(client: Client, session: SessionId, answers: Answers, show: Show) -> Self {
        Self { client, session, answers, show, questions: VecDeque::new(), refused: Vec::new() }
    }

    /// Goes on in another session.
    pub(super) fn turn_to(&mut self, session: SessionId) {
        self.session = session;
        self.questions.clear();
    }

    /// Where it is shown.
    pub(super) fn show(&mut self) -> &mut Show {
        &mut self.show
    }

    /// The next line that the person types. None: there will be none.
    pub(super) async fn line(&mut self) -> Option<String> {
        match &mut self.answers {
            Answers::Ask(lines) => lines.recv().await,
            Answers::Allow(_) | Answers::Refuse => None,
        }
    }

    /// Calls that were refused because nobody could be asked, in words.
    pub(super) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Watches the session, sends the prompt, and shows everything until the turn has ended. A signal aborts the turn; one more leaves
    /// it alone.
    ///
    /// # Errors
    /// When the server refuses, or is not to be reached any more.
    pub(super) async fn run(
        &mut self,
        prompt: &Value,
        signals: &mut mpsc::Receiver<i32>,
    ) -> Result<TurnRecord, ClientError> {
        let view: SessionView = self.client.read(&format!("/sessions/{}", self.session)).await?;
        // Of a session that is new all is told.
        let after = if view.turn.is_none() && view.message_count == 0 { 0 } else { view.last_seq };
        let mut follow = Follow::new(self.client.clone(), self.session.to_string(), after, Some(PATIENCE));
        follow.open().await?;
        let accepted = self.client.call("POST", &self.path("prompt"), Some(prompt)).await?;
        let turn: Option<TurnId> = serde_json::from_value(accepted.get("turnId").cloned().unwrap_or(Value::Null)).ok();
        let mut stopped = 0;
        loop {
            match self.step(&mut follow, signals).await? {
                Step::Event(event) => {
                    self.show.event(&event);
                    if event.kind == "stream.delta" {
                        continue;
                    }
                    let Some(body) = event.body() else { continue };
                    self.react(&body).await?;
                    if body.is_terminal() && event.turn_id == turn {
                        let turn = turn.map(|turn| turn.to_string()).unwrap_or_default();
                        return self.client.read(&self.path(&format!("turns/{turn}"))).await;
                    }
                }
                Step::Line(text) => self.typed(&text).await?,
                Step::Told(words) => self.show.line(&words),
                Step::Stop if stopped == 0 => {
                    stopped += 1;
                    self.show.line("  (stopping; once more leaves at once)");
                    let body = json!({ "turnId": turn, "reason": "stopped at the terminal" });
                    self.late(self.client.call("POST", &self.path("abort"), Some(&body)).await)?;
                }
                Step::Stop => {
                    let cause = std::io::ErrorKind::Interrupted.into();
                    return Err(ClientError::Broken { call: self.path("events"), cause });
                }
            }
        }
    }

    async fn step(&mut self, follow: &mut Follow, signals: &mut mpsc::Receiver<i32>) -> Result<Step, ClientError> {
        let typed = async {
            match &mut self.answers {
                Answers::Ask(lines) if !self.questions.is_empty() => lines.recv().await,
                Answers::Ask(_) | Answers::Allow(_) | Answers::Refuse => std::future::pending().await,
            }
        };
        let signal = async {
            match signals.recv().await {
                Some(_) => Step::Stop,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            news = follow.next() => Ok(match news? {
                News::Event(event) => Step::Event(event),
                News::Broken(why) => Step::Told(format!("  ! the line to the server broke ({why}); trying again")),
                News::Back => Step::Told("  (the line to the server is back)".to_owned()),
            }),
            text = typed => Ok(Step::Line(text.unwrap_or_default())),
            stop = signal => Ok(stop),
        }
    }

    async fn react(&mut self, body: &EventBody) -> Result<(), ClientError> {
        let session = self.session.clone();
        match body {
            EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } => {
                self.questions.retain(|waiting| waiting.request != *request_id);
                Ok(())
            }
            EventBody::PermissionRequest { request_id, .. } | EventBody::ClientRequest { request_id, .. } => {
                self.asked(Asked { session, request: request_id.clone(), body: body.clone() }).await
            }
            EventBody::SubagentRequest(asked) => {
                let (EventBody::PermissionRequest { request_id, .. } | EventBody::ClientRequest { request_id, .. }) =
                    asked.request.as_ref()
                else {
                    return Ok(());
                };
                let request = request_id.clone();
                let body = asked.request.as_ref().clone();
                self.asked(Asked { session: asked.session_id.clone(), request, body }).await
            }
            EventBody::SubagentResponse(answered) => {
                if let EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } =
                    answered.response.as_ref()
                {
                    self.questions.retain(|waiting| waiting.request != *request_id);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn asked(&mut self, asked: Asked) -> Result<(), ClientError> {
        let is_permission = matches!(asked.body, EventBody::PermissionRequest { .. });
        match &mut self.answers {
            Answers::Allow(why) if is_permission => {
                let words = format!("    answered: allow ({why})");
                self.show.line(&words);
                self.answer(&asked, json!({ "decision": "allow" })).await
            }
            Answers::Allow(_) | Answers::Refuse => {
                let words = if is_permission {
                    "    answered: deny (nobody is at the terminal; --yes allows)"
                } else {
                    "    answered: nothing (nobody is at the terminal)"
                };
                self.show.line(words);
                if let EventBody::PermissionRequest { tool_name, .. } = &asked.body {
                    self.refused.push(tool_name.clone());
                    let message = "nobody is there to give permission";
                    return self.answer(&asked, json!({ "decision": "deny", "message": message })).await;
                }
                self.answer(&asked, json!({ "cancelled": true, "message": "nobody is there to answer" })).await
            }
            Answers::Ask(lines) => {
                // What was typed before the question was there is no answer to it.
                while self.questions.is_empty() && lines.try_recv().is_ok() {}
                self.questions.push_back(asked);
                if self.questions.len() == 1 {
                    self.put();
                }
                Ok(())
            }
        }
    }

    /// Puts the oldest question that waits.
    fn put(&mut self) {
        let Some(asked) = self.questions.front() else { return };
        let words = match &asked.body {
            EventBody::PermissionRequest { .. } => "    [y]es, [a]lways in this session, or no: ".to_owned(),
            EventBody::ClientRequest { question, .. } => choices(question),
            _ => return,
        };
        self.show.ask(&words);
    }

    async fn typed(&mut self, text: &str) -> Result<(), ClientError> {
        let Some(asked) = self.questions.pop_front() else { return Ok(()) };
        let answer = match &asked.body {
            EventBody::PermissionRequest { .. } => Ok(json!({ "decision": decision(text) })),
            EventBody::ClientRequest { question, .. } => answer_to(question, text),
            _ => return Ok(()),
        };
        match answer {
            Ok(answer) => self.answer(&asked, answer).await?,
            Err(expected) => {
                self.show.line(&format!("    expected {expected}"));
                self.questions.push_front(asked);
                self.put();
                return Ok(());
            }
        }
        if let Some(next) = self.questions.front() {
            let words = question(&next.body);
            self.show.line(&words);
            self.put();
        }
        Ok(())
    }

    async fn answer(&self, asked: &Asked, mut body: Value) -> Result<(), ClientError> {
        if let Some(fields) = body.as_object_mut() {
            fields.insert("requestId".to_owned(), json!(asked.request));
        }
        let path = format!("/sessions/{}/feedback", asked.session);
        self.late(self.client.call("POST", &path, Some(&body)).await)
    }

    /// What comes too late is no failure: it has ended by itself, and the stream says how.
    fn late(&self, called: Result<Value, ClientError>) -> Result<(), ClientError> {
        match called {
            Ok(_) | Err(ClientError::Refused { status: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn path(&self, what: &str) -> String {
        format!("/sessions/{}/{what}", self.session)
    }
}

/// What a line says about a call.
fn decision(text: &str) -> &'static str {
    match text.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => "allow",
        "a" | "always" => "allow_always",
        _ => "deny",
    }
}

/// How a question is answered, in words.
fn choices(question: &ClientQuestion) -> String {
    match question {
        ClientQuestion::Select { options, several, .. } => {
            let lines: Vec<String> = options
                .iter()
                .enumerate()
                .map(|(at, option)| format!("    {}  {}", at + 1, super::screen::short(option, 200)))
                .collect();
            let which = if *several { "numbers, or nothing" } else { "a number, or nothing for none" };
            format!("{}\n    {which}: ", lines.join("\n"))
        }
        ClientQuestion::Confirm { .. } => "    [y]es or [n]o: ".to_owned(),
        ClientQuestion::Input { .. } | ClientQuestion::Editor { .. } => "    your answer, in a line: ".to_owned(),
    }
}

/// What a line answers.
///
/// # Errors
/// What was expected.
fn answer_to(question: &ClientQuestion, text: &str) -> Result<Value, String> {
    let text = text.trim();
    match question {
        ClientQuestion::Select { options, several, .. } => {
            let chosen = text.split([' ', ',']).filter(|word| !word.is_empty()).map(|word| {
                let at = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                let option = at.and_then(|at| options.get(at));
                option.cloned().ok_or_else(|| format!("numbers from 1 to {}, got `{word}`", options.len()))
            });
            let chosen: Vec<String> = chosen.collect::<Result<_, _>>()?;
            match (several, chosen.as_slice()) {
                (true, chosen) => Ok(json!({ "value": chosen })),
                (false, [one]) => Ok(json!({ "value": one })),
                (false, []) => Ok(json!({ "cancelled": true })),
                (false, _) => Err("one number".to_owned()),
            }
        }
        ClientQuestion::Confirm { .. } => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(json!({ "value": true })),
            "n" | "no" => Ok(json!({ "value": false })),
            _ => Err("y or n".to_owned()),
        },
        ClientQuestion::Input { .. } | ClientQuestion::Editor { .. } => Ok(json!({ "value": text })),
    }
}

enum Step {
    Event(Box<Event>),
    Line(String),
    Told(String),
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_answers_a_question() {
        let select = |several| ClientQuestion::Select {
            title: "which".into(),
            options: vec!["red".into(), "green".into(), "blue".into()],
            several,
        };
        let confirm = ClientQuestion::Confirm { title: "sure".into(), message: None };
        let input = ClientQuestion::Input { title: "name".into(), placeholder: None };
        let table: &[(ClientQuestion, &str, Result<Value, &str>)] = &[
            (select(false), " 2 ", Ok(json!({ "value": "green" }))),
            (select(false), "", Ok(json!({ "cancelled": true }))),
            (select(false), "1 2", Err("one number")),
            (select(false), "4", Err("numbers from 1 to 3, got `4`")),
            (select(false), "0", Err("numbers from 1 to 3, got `0`")),
            (select(true), "3, 1", Ok(json!({ "value": ["blue", "red"] }))),
            (select(true), "", Ok(json!({ "value": [] }))),
            (confirm.clone(), "Yes", Ok(json!({ "value": true }))),
            (confirm.clone(), "n", Ok(json!({ "value": false }))),
            (confirm, "", Err("y or n")),
            (input, " a b ", Ok(json!({ "value": "a b" }))),
        ];
        for (question, text, wanted) in table {
            let wanted = wanted.clone().map_err(str::to_owned);
            assert_eq!(answer_to(question, text), wanted, "{question:?} {text:?}");
        }
        for (text, wanted) in [("y", "allow"), ("A", "allow_always"), ("", "deny"), ("yess", "deny")] {
            assert_eq!(decision(text), wanted, "{text:?}");
        }
    }
}
