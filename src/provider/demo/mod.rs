//! `demo/scripted`: a model for a program without a real one. It says so in its first words.
//!
//! It is a recording (`recording.jsonl`, in the format of `--record-models`) that is compiled in and played by the code that
//! plays any. What it is asked is first put in few words, so that the very same request, byte for byte, comes of every run that
//! goes the same way: no system text and no tools; of the prompt only whether it is the job of `npm start`; of each result only
//! whether it went well, ended with an exit code, or was not done; calls are numbered. The recording has an answer to each of these, also where a run goes another way.
//!
//! Invariants: the same way gives the same reply; it never says that something went well which did not.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::openai::Chat;
use super::wire::{HttpModel, Place, Spec, Tape};
use crate::model::{Model, ModelFacts, ModelRequest, ModelStream};
use crate::protocol::{Message, Part, PromptContent, ToolCallRequest};

/// The id of the scripted model.
pub const DEMO_MODEL_ID: &str = "demo/scripted";
/// The answers.
const RECORDING: &str = include_str!("recording.jsonl");
/// What it is asked: the job.
const JOB: &str = "Make the failing test pass.";
/// What it is asked: anything else.
const OTHER: &str = "Something else.";
/// What came of a call.
const WENT_WELL: &str = "It went well.";
/// The same of a command that ran and ended with an error.
const ENDED_BADLY: &str = "It ended with an exit code.";
/// The same of what was refused or could not be done.
const NOT_DONE: &str = "It was not done.";
/// What the output of a command begins with that ended with an error.
const EXIT_CODE: &str = "[exit code";

/// The scripted model.
#[derive(Debug)]
pub(super) struct Demo {
    plays: HttpModel,
}

impl Demo {
    /// With answers at that speed: 1 is their own, 0 at once.
    pub(super) fn new(speed: f64) -> Self {
        let mut place = Place::new("demo", "http://demo.invalid", Duration::MAX);
        place.tape = Some(Arc::new(Tape::compiled_in(RECORDING, speed)));
        let facts = ModelFacts {
            label: Some("A recording".to_owned()),
            images: false,
            reasoning: false,
            structured_output: false,
            ..ModelFacts::default()
        };
        let spec = Spec { id: DEMO_MODEL_ID.to_owned(), model: "scripted".to_owned(), facts, ..Spec::default() };
        Self { plays: HttpModel::new(Arc::new(Chat), spec, Arc::new(place)) }
    }
}

impl Model for Demo {
    fn id(&self) -> &str {
        DEMO_MODEL_ID
    }

    fn facts(&self) -> ModelFacts {
        self.plays.facts()
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        self.plays.stream(in_few_words(&request.messages), cancel)
    }
}

/// What is asked, as the recording has it.
fn in_few_words(messages: &[Message]) -> ModelRequest {
    let (prompt, rest) = this_turn(messages);
    let asked = if is_job(&prompt) { JOB } else { OTHER };
    let mut told = vec![Message::User(vec![Part::Text { text: asked.to_owned() }])];
    let mut numbers: HashMap<&str, String> = HashMap::new();
    for message in rest {
        match message {
            // A word from the side changes nothing.
            Message::User(_) => {}
            Message::Assistant { text, calls, .. } => {
                let numbered = |call: &ToolCallRequest, id: &str| ToolCallRequest { id: id.to_owned(), ..call.clone() };
                let mut again = Vec::with_capacity(calls.len());
                for call in calls {
                    let id = format!("call_{}", numbers.len() + 1);
                    again.push(numbered(call, &id));
                    numbers.insert(&call.id, id);
                }
                told.push(Message::assistant(text.clone(), again));
            }
            Message::ToolResult { call_id, name, output, is_error, .. } => {
                let came = match is_error {
                    _ if output.starts_with(EXIT_CODE) => ENDED_BADLY,
                    true => NOT_DONE,
                    false => WENT_WELL,
                };
                told.push(Message::ToolResult {
                    call_id: numbers.get(call_id.as_str()).cloned().unwrap_or_default(),
                    name: name.clone(),
                    output: came.to_owned(),
                    is_error: false,
                    parts: Vec::new(),
                });
            }
        }
    }
    ModelRequest { messages: told.into(), ..ModelRequest::default() }
}

/// The prompt of the newest turn, and what came after it.
///
/// A message of the user begins a turn unless it came between tool results and the next reply: then it is a
/// word from the side, and the job goes on.
fn this_turn(messages: &[Message]) -> (String, &[Message]) {
    let mut start = None;
    for (at, message) in messages.iter().enumerate() {
        let Message::User(parts) = message else { continue };
        let aside = match at.checked_sub(1).and_then(|before| messages.get(before)) {
            Some(Message::ToolResult { output, is_error, .. }) => !(*is_error && output.ends_with(": aborted")),
            Some(Message::User(_)) => start.is_some(),
            Some(Message::Assistant { .. }) | None => false,
        };
        if !aside || start.is_none() || is_job(&words(parts)) {
            start = Some(at);
        }
    }
    let Some(at) = start else { return (String::new(), messages) };
    let prompt = match messages.get(at) {
        Some(Message::User(parts)) => words(parts),
        _ => String::new(),
    };
    (prompt, messages.get(at + 1..).unwrap_or_default())
}

fn words(parts: &[Part]) -> String {
    PromptContent::Parts(parts.to_vec()).text()
}

fn is_job(prompt: &str) -> bool {
    let prompt = prompt.to_lowercase();
    prompt.contains("test") && ["fail", "pass", "fix", "repair", "correct", "broken"].iter().any(|w| prompt.contains(w))
}
