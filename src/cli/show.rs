//! Events as a person reads them.

use serde_json::{Map, Value};

use super::screen::{aside, clean, excerpt, line, note, piece, problem, short};
use crate::protocol::{
    AgentPlan, BudgetNotice, Display, Event, EventBody, PlanEntry, RoundKind, VerdictSource, of_tree,
};

/// Lines of a tool's output that are shown.
const OUTPUT_LINES: usize = 12;

/// Where a stream is shown, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Face {
    /// For a person, on stdout.
    #[default]
    Person,
    /// For a person, on stderr: stdout is for the result.
    Aside,
    /// For a program: one event a line on stdout, as the server sends it.
    Json,
}

/// Shows a stream, one event after the other.
#[derive(Debug, Default)]
pub(super) struct Show {
    face: Face,
    /// Whether the last thing shown was a piece of text without a line's end.
    open: bool,
}

impl Show {
    /// Shows a stream there.
    pub(super) fn on(face: Face) -> Self {
        Self { face, open: false }
    }

    /// Shows one event.
    pub(super) fn event(&mut self, event: &Event) {
        if self.face == Face::Json {
            return match serde_json::to_string(event) {
                Ok(text) => line(&text),
                Err(cause) => problem(format_args!("event {}: {cause}", event.seq)),
            };
        }
        let Some(body) = event.body() else { return };
        if let EventBody::StreamDelta { text } = &body {
            return self.delta(text);
        }
        if let Some(text) = told(&body) {
            self.line(text.trim_end());
        } else {
            self.close();
        }
    }

    /// Says a line of our own.
    pub(super) fn line(&mut self, text: &str) {
        self.close();
        match self.face {
            Face::Person => line(text),
            Face::Aside | Face::Json => note(text),
        }
    }

    /// Asks for a line: what is typed stands behind it.
    pub(super) fn ask(&mut self, text: &str) {
        self.close();
        match self.face {
            Face::Person => piece(text),
            Face::Aside | Face::Json => aside(text),
        }
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.line("");
        }
    }

    fn delta(&mut self, text: &str) {
        let text = clean(text).replace('\n', "\n  ");
        let text = if self.open { text } else { format!("  {text}") };
        match self.face {
            Face::Person => piece(&text),
            Face::Aside | Face::Json => aside(&text),
        }
        self.open = true;
    }
}

/// A model is asked once more, or another one.
fn again((attempt, delay_ms): (u32, u64), error: &str, model: Option<&str>) -> String {
    let error = short(error, 200);
    match model {
        Some(model) => format!("  ! the model failed ({error}); {model} is asked instead"),
        None => format!("  ! the model's stream broke ({error}); attempt {attempt} in {delay_ms} ms"),
    }
}

/// How the conversation is made shorter.
fn shortened(body: &EventBody) -> Option<String> {
    match body {
        EventBody::CompactionStart { .. } => Some("  (the conversation is summed up)".to_owned()),
        EventBody::CompactionComplete { compaction, .. } => {
            Some(format!("  (it was summed up; the newest {} messages stay)", compaction.kept))
        }
        EventBody::CompactionFailed { error, .. } => {
            Some(format!("  ! the conversation could not be summed up: {}", short(&error.message, 400)))
        }
        EventBody::CompactionPrune { message_count, .. } => Some(format!(
            "  ! the conversation did not fit; {message_count} messages of it are left, old outputs shortened"
        )),
        _ => None,
    }
}

/// One event in words. None: there is nothing to say about it.
fn told(body: &EventBody) -> Option<String> {
    Some(match body {
        EventBody::SessionPrompt { prompt, .. } => format!("  prompt: {}", short(prompt, 400)),
        EventBody::SessionSteer { prompt, .. } => format!("  added to the prompt: {}", short(prompt, 400)),
        EventBody::CompactionStart { .. }
        | EventBody::CompactionComplete { .. }
        | EventBody::CompactionFailed { .. }
        | EventBody::CompactionPrune { .. } => return shortened(body),
        EventBody::StreamRetry { attempt, delay_ms, error, model } => {
            again((*attempt, *delay_ms), error, model.as_deref())
        }
        EventBody::ToolCallStart { name, args, .. } => format!("\n  > {}", call(name, args)),
        EventBody::ToolCallEnd { output, is_error, duration_ms, .. } => {
            let outcome = if *is_error { "failed" } else { "done" };
            format!("  < {outcome} after {duration_ms} ms\n{}", excerpt(output, OUTPUT_LINES))
        }
        EventBody::PermissionRequest { tool_name, args, preview, .. } => {
            format!("  ? may this run: {}\n{}", call(tool_name, args), what_would_happen(preview.as_ref()))
        }
        EventBody::PermissionResponse { allowed, by, reason, .. } => answered(*allowed, (by, reason)),
        EventBody::ClientRequest { .. } | EventBody::ClientResponse { .. } => return of_client(body),
        EventBody::ClientNotice { text, .. } => format!("  ! {}", short(text, 200)),
        EventBody::ClientDisplay { display, .. } => return displayed(display),
        EventBody::AgentSession { .. }
        | EventBody::AgentPlan(_)
        | EventBody::AgentCommands(_)
        | EventBody::AgentOptions(_)
        | EventBody::AgentUsage(_)
        | EventBody::AgentCompaction(_) => return of_agent(body),
        EventBody::LoopDoomLoop { .. } | EventBody::LoopComplete { .. } | of_tree!() => return of_loop(body),
        EventBody::TurnComplete { turn, kind: RoundKind::Text, usage: Some(usage) } => {
            format!("  (round {turn}: {} tokens in, {} out)", usage.input_tokens, usage.output_tokens)
        }
        EventBody::SessionError { error, .. } => format!("  ! the turn failed: {}", clean(&error.message)),
        EventBody::Abort { reason, .. } => format!("  ! the turn was aborted: {}", clean(reason)),
        EventBody::TurnQueued { position, .. } => format!("  waits behind {position} others"),
        EventBody::TurnPaused { reason, .. } => format!("  (paused) {}", short(reason, 200)),
        EventBody::TurnResumed { reason, .. } => format!("  (goes on) {}", short(reason, 200)),
        EventBody::TurnContinued { texts } => format!("  (goes on: a hook says) {}", short(&texts.join(" "), 200)),
        EventBody::SessionCreated { .. }
        | EventBody::SessionConfigured(_)
        | EventBody::PermissionGranted(_)
        | EventBody::PermissionRevoked { .. }
        | EventBody::TurnControl { .. }
        | EventBody::SessionCompleted { .. }
        | EventBody::LoopStart {}
        | EventBody::StreamStart {}
        | EventBody::StreamDelta { .. }
        | EventBody::StreamReasoning { .. }
        | EventBody::StreamComplete { .. }
        | EventBody::ToolCallError { .. }
        | EventBody::ToolCallOutput { .. }
        | EventBody::ToolTimeout { .. }
        | EventBody::TurnComplete { .. }
        | EventBody::MemoryAdd { .. }
        | EventBody::MemoryDelete { .. }
        | EventBody::TurnChanges(_)
        | EventBody::ChangesUndone { .. }
        | EventBody::ChangesRedone { .. }
        | EventBody::SessionForked { .. } => return None,
        EventBody::BudgetWarning(notice) | EventBody::BudgetExceeded(notice) => of_budget(notice),
        EventBody::SubagentStart(_)
        | EventBody::SubagentQueued(_)
        | EventBody::SubagentComplete(_)
        | EventBody::SubagentError(_)
        | EventBody::SubagentRequest(_)
        | EventBody::SubagentResponse(_) => return of_subagent(body),
        EventBody::MemorySearch { degraded, .. } => format!("  ! memory: {}", short(degraded.as_ref()?, 200)),
    })
}

/// How much of a budget is spent.
fn of_budget(notice: &BudgetNotice) -> String {
    format!("  ! {}", short(&notice.words(), 200))
}

/// What tools and hooks ask, and what they are answered.
fn of_client(body: &EventBody) -> Option<String> {
    Some(match body {
        EventBody::ClientRequest { question, .. } => {
            format!("  ? {} ({})", short(question.title(), 200), question.kind())
        }
        EventBody::ClientResponse { value: Some(value), .. } => format!("  = {}", short(&value.to_string(), 200)),
        EventBody::ClientResponse { value: None, reason, .. } => format!("  = no answer: {}", short(reason, 200)),
        _ => return None,
    })
}

/// What becomes of sub-agents.
fn of_subagent(body: &EventBody) -> Option<String> {
    Some(match body {
        EventBody::SubagentStart(start) => {
            let who =
                start.name.as_ref().or(start.agent.as_ref()).map_or_else(|| start.session_id.as_str(), String::as_str);
            format!("  > sub-agent {}: {}", short(who, 60), short(&start.task, 200))
        }
        EventBody::SubagentQueued(queued) => format!("  (sub-agent {} waits)", queued.session_id),
        EventBody::SubagentComplete(end) => {
            format!("  < sub-agent {} done after {} ms", end.session_id, end.duration_ms)
        }
        EventBody::SubagentError(end) => {
            let why = end.error.as_ref().map_or("", |error| error.message.as_str());
            format!("  < sub-agent {} failed: {}", end.session_id, short(why, 200))
        }
        EventBody::SubagentRequest(asked) => {
            return told(&asked.request).map(|words| format!("  sub-agent {} asks:\n{words}", asked.session_id));
        }
        _ => return None,
    })
}

/// What the loop says of itself, and what it is with the tasks of its tree.
fn of_loop(body: &EventBody) -> Option<String> {
    Some(match body {
        EventBody::LoopDoomLoop { tool_name, call_count, .. } => {
            format!("  ! the same call of {} came {call_count} times and was not run again", clean(tool_name))
        }
        EventBody::LoopComplete { hit_turn_limit: true, total_turns } => {
            format!("  ! stopped at the limit of {total_turns} rounds")
        }
        EventBody::TaskCreate(change) | EventBody::TaskUpdate(change) => {
            let (task, status) = (&change.task, change.task.status.name());
            format!("  (task {}, {status}: {})", clean(&task.id), short(&task.subject, 200))
        }
        _ => return None,
    })
}

/// What an agent says of itself.
fn of_agent(body: &EventBody) -> Option<String> {
    match body {
        EventBody::AgentSession { model, agent_session_id } => {
            Some(format!("  ({}, session {})", clean(model), clean(agent_session_id)))
        }
        EventBody::AgentPlan(plan) => Some(planned(plan)),
        EventBody::AgentCompaction(compaction) => {
            Some(format!("  (the agent makes its context shorter: {})", short(&compaction.status, 64)))
        }
        _ => None,
    }
}

/// A plan, one step a line.
fn planned(plan: &AgentPlan) -> String {
    let sign = |status: &str| match status {
        "completed" => 'x',
        "in_progress" => '>',
        _ => ' ',
    };
    let step = |entry: &PlanEntry| format!("  [{}] {}", sign(&entry.status), short(&entry.content, 200));
    let steps: Vec<String> = plan.entries.iter().map(step).collect();
    match &plan.text {
        Some(text) if steps.is_empty() => excerpt(text, OUTPUT_LINES),
        _ => steps.join("\n"),
    }
}

fn answered(allowed: bool, (by, reason): (&VerdictSource, &str)) -> String {
    let answer = if allowed { "allowed" } else { "refused" };
    let by = serde_json::to_value(by).ok().and_then(|by| by.as_str().map(str::to_owned)).unwrap_or_default();
    let reason = if reason.is_empty() { String::new() } else { format!(": {}", short(reason, 200)) };
    format!("  = {answer} (by {by}){reason}")
}

/// What is put onto the screen, as lines go. None: it is taken away, or is for windows alone.
fn displayed(display: &Display) -> Option<String> {
    match display {
        Display::Status { key, text: Some(text) } => Some(format!("  ({}: {})", short(key, 64), short(text, 200))),
        Display::Working { text: Some(text) } => Some(format!("  ({})", short(text, 200))),
        Display::Widget { lines: Some(lines), .. } => Some(excerpt(&lines.join("\n"), OUTPUT_LINES)),
        Display::Status { .. } | Display::Working { .. } | Display::Widget { .. } | Display::Title { .. } => None,
    }
}

/// A question that waits, in words.
pub(super) fn question(body: &EventBody) -> String {
    told(body).unwrap_or_default().trim_end().to_owned()
}

/// A question's preview: the diff where there is one, else its facts.
fn what_would_happen(preview: Option<&Value>) -> String {
    let Some(preview) = preview else { return String::new() };
    match preview.get("diff").and_then(Value::as_str) {
        Some(diff) => excerpt(diff, 2 * OUTPUT_LINES),
        None => excerpt(&preview.to_string(), OUTPUT_LINES),
    }
}

/// A call on one line.
pub(super) fn call(name: &str, arguments: &Map<String, Value>) -> String {
    let shown: Vec<String> = arguments
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{}: {}", clean(name), short(text, 160)),
            other => format!("{}: {}", clean(name), short(&other.to_string(), 160)),
        })
        .collect();
    format!("{}  {}", clean(name), shown.join(", "))
}
