//! `demo/scripted`: a scripted model, for a program without a real one. It says so in its first words.
//!
//! Its replies are computed from what its tools really returned in this turn, by a small fixed program:
//! `job` decides what comes next, `report` reads what a test run printed, `repair` knows which small
//! changes of a function are worth a try. Asked to make a failing test of a Node project pass
//! (`node --test`, sources in JavaScript), it looks, runs the tests, finds the function that the failing
//! test names, tries one small change after the other and runs the tests after each. It commits when
//! they pass, and says so when they do not. Asked anything else, it says what it is.
//!
//! Invariant: the same messages give the same reply.

mod job;
mod repair;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::protocol::ToolCallRequest;

/// The id of the scripted model.
pub const DEMO_MODEL_ID: &str = "demo/scripted";
/// Pause between two pieces of text, so that a person can follow.
pub(super) const DELTA_PAUSE_MS: u64 = 8;

/// What the script says and does next. No calls: it is done.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    text: String,
    calls: Vec<(&'static str, Map<String, Value>)>,
}

/// The scripted model.
#[derive(Debug)]
pub(super) struct Demo {
    pause: Duration,
}

impl Demo {
    pub fn new(pause: Duration) -> Self {
        Self { pause }
    }
}

impl Model for Demo {
    fn id(&self) -> &str {
        DEMO_MODEL_ID
    }

    fn takes_images(&self) -> bool {
        false
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let Step { text, calls } = job::next_step(&request);
        let round = request.messages.len();
        let mut events: Vec<ModelEvent> = pieces(&text).into_iter().map(ModelEvent::Text).collect();
        let stop = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        events.extend(calls.into_iter().enumerate().map(|(at, (name, arguments))| {
            // The place in the conversation makes it unique in the session.
            let id = format!("demo_{round}_{at}");
            ModelEvent::Call(ToolCallRequest { id, name: name.to_owned(), arguments })
        }));
        events.push(ModelEvent::Finished(stop));
        let pause = self.pause;
        let paced = futures_util::stream::iter(events).then(move |event| {
            let cancel = cancel.clone();
            async move {
                if pause.is_zero() {
                    return Ok(event);
                }
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => Err(ModelError::Aborted),
                    () = tokio::time::sleep(pause) => Ok(event),
                }
            }
        });
        Box::pin(paced)
    }
}

/// A text in pieces of a word or two.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '\n']) {
        match pieces.last_mut() {
            Some(last) if last.len() + word.len() <= 12 => last.push_str(word),
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces
}
