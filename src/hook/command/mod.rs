//! Configured commands at hook points (`[[hooks]]`).
//!
//! A command gets what a handler in JavaScript gets, as one JSON object on its standard input, with `event` beside it, in the working
//! directory of the session. All commands of a point run in their order, each on what the one before it left. What each point makes
//! of an answer stands in the table of the README; how an answer is read, in `answer`.
//!
//! Invariants: before a call or a prompt a command that fails blocks, as nobody has looked then; elsewhere it changes nothing, and a
//! warning is logged. Reasons and warnings name a command by its place in the configuration: its line may hold what others are not
//! to see.

mod answer;
mod run;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use self::answer::{Outcome, outcome};
use super::shown::{read_messages, show_message};
use super::{
    Before, BeforeCompaction, CallPoint, CompactionSaid, Hooks, Line, Notification, Point, SessionEnd, SessionStart,
    Submission, Submitted, TurnStopping, Whose,
};
use crate::base::BoxFuture;
use crate::config::HookCommand;
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

const BEFORE: &str = "tool.execute.before";
const AFTER: &str = "tool.execute.after";
const VALIDATE: &str = "tool.result.validate";
const SYSTEM: &str = "prompt.system.transform";
const MESSAGES: &str = "prompt.messages.transform";
const COMPACTING: &str = "session.compacting";
const SUBMIT: &str = "prompt.submit";

/// The commands of a configuration.
#[derive(Clone)]
pub struct CommandHooks {
    commands: Arc<[HookCommand]>,
    /// Where they start that belong to no session.
    directory: PathBuf,
    /// Whose turn it is.
    whose: Option<Whose>,
}

impl std::fmt::Debug for CommandHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandHooks").field("commands", &self.commands.len()).finish_non_exhaustive()
    }
}

impl CommandHooks {
    /// These commands. What belongs to no session starts in `directory`.
    pub fn new(commands: Vec<HookCommand>, directory: PathBuf) -> Self {
        Self { commands: commands.into(), directory, whose: None }
    }

    fn has(&self, event: &str) -> bool {
        self.commands.iter().any(|command| command.event == event)
    }

    /// The commands of a point, with their places in the configuration.
    fn of<'s>(&'s self, event: &'static str, tool: Option<&str>) -> Vec<(usize, &'s HookCommand)> {
        let all = self.commands.iter().enumerate().filter(|(_, command)| command.event == event);
        all.filter(|(_, command)| tool.is_none_or(|tool| command.is_about(tool))).collect()
    }

    /// Runs one.
    async fn run(&self, (at, command): (usize, &HookCommand), context: &impl Serialize) -> Outcome {
        let mut input = json!({ "event": command.event });
        let whose = self.whose.as_ref().map(|whose| json!(whose));
        for more in [whose, Some(json!(context))].into_iter().flatten() {
            if let (Some(input), Value::Object(more)) = (input.as_object_mut(), more) {
                input.extend(more);
            }
        }
        let place = input["workingDirectory"].as_str().map_or_else(|| self.directory.clone(), PathBuf::from);
        let outcome = match run::run(command, input.to_string().into_bytes(), &place).await {
            Ok(ran) => outcome(&ran, &input),
            Err(error) => Outcome::Failed(format!("it cannot be started: {error}")),
        };
        match outcome {
            Outcome::Failed(why) => {
                let why = format!("hooks[{at}] failed: {why}");
                tracing::warn!(event = command.event, why, "a configured hook failed");
                Outcome::Failed(why)
            }
            outcome => outcome,
        }
    }

    /// Runs all of a point that only add texts.
    async fn texts(&self, event: &'static str, context: &impl Serialize) -> Vec<String> {
        let mut texts = Vec::new();
        for command in self.of(event, None) {
            texts.extend(self.run(command, context).await.into_texts("context"));
        }
        texts
    }

    /// Chains those of a point over a text: one that is named takes its place, any other stands behind it.
    async fn text(&self, event: &'static str, name: &str, mut context: Map<String, Value>) -> Option<String> {
        let mut changed = None;
        for command in self.of(event, None) {
            let before = context[name].as_str().unwrap_or_default();
            let next = match self.run(command, &context).await {
                Outcome::Text(more) => format!("{before}\n\n{more}"),
                Outcome::Members(mut members) => match members.remove(name) {
                    Some(Value::String(next)) => next,
                    Some(_) | None => continue,
                },
                Outcome::Nothing | Outcome::Texts(_) | Outcome::Blocked(_) | Outcome::Failed(_) => continue,
            };
            context.insert(name.to_owned(), next.clone().into());
            changed = Some(next);
        }
        changed
    }
}

fn point_name(point: Point) -> &'static str {
    match point {
        Point::SessionStart => "session.start",
        Point::SessionEnd => "session.end",
        Point::PromptSubmit => SUBMIT,
        Point::TurnStop => "turn.stop",
        Point::CompactBefore => "session.compact.before",
        Point::Notification => "notification",
    }
}

/// A result that a command after a tool leaves.
fn changed(mut result: ToolCallResult, outcome: Outcome) -> ToolCallResult {
    match outcome {
        // The call was made; that somebody objects is told with what came of it.
        Outcome::Blocked(reason) => {
            result.is_error = true;
            result.output = format!("{}\n\n[A hook objects] {reason}", result.output);
        }
        Outcome::Members(mut members) => {
            if let Some(Value::String(output)) = members.remove("output") {
                result.output = output;
            }
            if let Some(Value::Bool(is_error)) = members.remove("isError") {
                result.is_error = is_error;
            }
        }
        Outcome::Nothing | Outcome::Text(_) | Outcome::Texts(_) | Outcome::Failed(_) => {}
    }
    result
}

impl Hooks for CommandHooks {
    fn with_clients(&self, line: Line) -> Option<Arc<dyn Hooks>> {
        Some(Arc::new(Self { whose: line.whose(), ..self.clone() }))
    }

    fn hears(&self, point: CallPoint) -> bool {
        self.has(match point {
            CallPoint::Before => BEFORE,
            CallPoint::After => AFTER,
            CallPoint::Validate => VALIDATE,
        })
    }

    fn before_tool(&self, mut request: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(async move {
            let name = request.name.clone();
            for command in self.of(BEFORE, Some(&name)) {
                match self.run(command, &json!({ "request": request })).await {
                    Outcome::Blocked(reason) | Outcome::Failed(reason) => return Before::Blocked { reason },
                    Outcome::Members(mut members) => {
                        if let Some(Value::Object(arguments)) = members.remove("arguments") {
                            request.arguments = arguments;
                        }
                    }
                    Outcome::Nothing | Outcome::Text(_) | Outcome::Texts(_) => {}
                }
            }
            Before::Continue(request)
        })
    }

    fn after_tool<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        mut result: ToolCallResult,
    ) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(async move {
            for command in self.of(AFTER, Some(&request.name)) {
                let said = self.run(command, &json!({ "request": request, "result": result })).await;
                result = changed(result, said);
            }
            result
        })
    }

    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut findings = Vec::new();
            for command in self.of(VALIDATE, Some(&request.name)) {
                match self.run(command, &json!({ "request": request, "result": result })).await {
                    Outcome::Blocked(finding) => findings.push(finding),
                    said => findings.extend(said.into_texts("findings")),
                }
            }
            findings
        })
    }

    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(async move {
            if !self.has(SYSTEM) {
                return prompt;
            }
            let context = Map::from_iter([("prompt".to_owned(), Value::from(prompt.as_str()))]);
            self.text(SYSTEM, "prompt", context).await.unwrap_or(prompt)
        })
    }

    fn hears_messages(&self) -> bool {
        self.has(MESSAGES)
    }

    fn transform_messages(&self, mut messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(async move {
            for command in self.of(MESSAGES, None) {
                let shown: Vec<Value> = messages.iter().map(show_message).collect();
                let Outcome::Members(mut members) = self.run(command, &json!({ "messages": shown })).await else {
                    continue;
                };
                match members.remove("messages").map(read_messages) {
                    Some(Some(changed)) => messages = changed,
                    Some(None) => {
                        tracing::warn!(event = MESSAGES, at = command.0, "a configured hook gave no messages")
                    }
                    None => {}
                }
            }
            messages
        })
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(async move {
            if !self.has(COMPACTING) {
                return summary;
            }
            let shown: Vec<Value> = messages.iter().map(show_message).collect();
            let context = [("messages", Value::from(shown)), ("summary", Value::from(summary.as_str()))];
            let context = context.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
            self.text(COMPACTING, "summary", context).await.unwrap_or(summary)
        })
    }

    fn attends(&self, point: Point) -> bool {
        self.has(point_name(point))
    }

    fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move { self.texts(point_name(Point::SessionStart), &start).await })
    }

    fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
        Box::pin(async move { drop(self.texts(point_name(Point::SessionEnd), &end).await) })
    }

    fn prompt_submit(&self, mut submitted: Submitted) -> BoxFuture<'_, Submission> {
        Box::pin(async move {
            let (mut changed, mut all) = (None, Vec::new());
            for command in self.of(SUBMIT, None) {
                match self.run(command, &submitted).await {
                    Outcome::Blocked(reason) | Outcome::Failed(reason) => return Submission::Blocked { reason },
                    said => {
                        if let Outcome::Members(members) = &said
                            && let Some(Value::String(prompt)) = members.get("prompt")
                        {
                            submitted.put(prompt.clone());
                            changed = Some(prompt.clone());
                        }
                        all.extend(said.into_texts("context"));
                    }
                }
            }
            Submission::Continue { prompt: changed, context: all }
        })
    }

    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut texts = Vec::new();
            for command in self.of(point_name(Point::TurnStop), None) {
                // What it merely writes does not keep a turn going.
                if let Outcome::Blocked(reason) = self.run(command, &stop).await {
                    texts.push(reason);
                }
            }
            texts
        })
    }

    fn compact_before(&self, mut before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        Box::pin(async move {
            let mut changed = None;
            for command in self.of(point_name(Point::CompactBefore), None) {
                match self.run(command, &before).await {
                    Outcome::Blocked(reason) => return CompactionSaid::Blocked { reason },
                    said => {
                        if let Some(focus) = said.into_texts("focus").pop() {
                            before.focus = Some(focus.clone());
                            changed = Some(focus);
                        }
                    }
                }
            }
            CompactionSaid::Continue { focus: changed }
        })
    }

    fn notified(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move { drop(self.texts(point_name(Point::Notification), &notification).await) })
    }
}

#[cfg(test)]
mod tests;
