//! The tools by which a model divides its work: `spawn_agent`, `send_to_agent`, `wait_agents`, `kill_agent`, and
//! `delegate_to_agent`, which is a spawn by another name.
//!
//! They only ask [`Children`], which a session fills: how many there may be, how deep, and what they may do is decided there.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::fs_common::optional_text;
use crate::base::{BoxFuture, limit};
use crate::protocol::{
    ApiError, Coordination, Isolation, Merge, MergeOutcome, Reasoning, SessionId, ToolCategory, ToolDefinition,
    TurnStatus,
};
use crate::tool::{Arguments, ChildState, Children, Spawn, Tool, ToolContext, ToolError, ToolOutput};

/// The names of the tools by which sessions start others and deal with them.
pub const SUBAGENT_TOOLS: [&str; 5] =
    ["spawn_agent", "send_to_agent", "wait_agents", "kill_agent", "delegate_to_agent"];

/// The tools, in the order in which they are told.
pub fn subagent_tools() -> Vec<Arc<dyn Tool>> {
    let all = [What::Spawn, What::Send, What::Wait, What::Kill, What::Delegate];
    all.into_iter().map(|what| Arc::new(Subagents(what)) as Arc<dyn Tool>).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Spawn,
    Send,
    Wait,
    Kill,
    Delegate,
}

#[derive(Debug)]
struct Subagents(What);

fn define(name: &str, description: &str, parameters: &Value) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        category: Some(ToolCategory::Subagent),
        annotations: None,
        timeout_ms: None,
        max_output_chars: None,
    }
}

static SPAWN: LazyLock<ToolDefinition> = LazyLock::new(|| {
    define(
        "spawn_agent",
        "Starts a sub-agent with a task of its own and a fresh context, waits for it, and gives back its final answer. \
         Several in one reply run side by side. It knows nothing of this conversation: the task has to say everything. \
         It only looks, unless `tools` says more.",
        &json!({
            "task": {"type": "string", "description": "What it is to do, and what it is to answer", "required": true},
            "agent_type": {"type": "string", "description": "default, explorer, worker, research, simple, or another one that is configured"},
            "agent": {"type": "string", "description": "A defined agent, by its name, instead of a type"},
            "name": {"type": "string", "description": "What to call it"},
            "model": {"type": "string", "description": "Its model. Default: that of its type, else yours"},
            "reasoning": {"type": "string", "enum": ["auto", "none", "minimal", "low", "medium", "high", "xhigh"], "description": "How much it thinks"},
            "background": {"type": "boolean", "description": "Do not wait: its answer comes later by itself. Default: false"},
            "isolation": {"type": "string", "enum": ["none", "worktree"], "description": "`worktree`: it works in a git working tree of its own, and what it changed is put into yours when it ends. For several that write side by side. Default: none"},
            "coordination": {"type": "string", "enum": ["hierarchical", "blackboard", "peer"], "description": "How it works with the others that you start: hierarchical (it only answers you), blackboard (they share findings and a list of tasks), peer (that, and they talk to each other). Default: hierarchical"},
            "tools": {"type": "array", "items": {"type": "string"}, "description": "The tools it may use, of yours; [\"*\"]: all. Default: those that only look"},
        }),
    )
});

static SEND: LazyLock<ToolDefinition> = LazyLock::new(|| {
    define(
        "send_to_agent",
        "Tells a sub-agent something more: it hears it while it works, or works again. Its answer comes later by itself, or by wait_agents.",
        &json!({
            "id": {"type": "string", "description": "Its id or name", "required": true},
            "message": {"type": "string", "description": "What to tell it", "required": true},
        }),
    )
});

static WAIT: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "ids": {"type": "array", "items": {"type": "string"}, "description": "Their ids or names", "required": true},
        "mode": {"type": "string", "enum": ["any", "all"], "description": "Until one of them is done, or all. Default: any"},
        "timeout": {"type": "number", "description": "How long at most, in seconds, 10 to 300. Default: 300"},
    });
    let description = "Waits for sub-agents in the background, and gives back how each is and what it answered.";
    define("wait_agents", description, &parameters)
});

static KILL: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({"id": {"type": "string", "description": "Its id or name", "required": true}});
    define("kill_agent", "Ends what a sub-agent does, at once.", &parameters)
});

static DELEGATE: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "target_agent_id": {"type": "string", "description": "A defined agent, or a type of agent", "required": true},
        "task": {"type": "string", "description": "What it is to do, and what it is to answer", "required": true},
    });
    define("delegate_to_agent", "Gives a task to an agent, waits for it, and gives back its final answer.", &parameters)
});

/// What a call asks for that names nobody.
fn text(arguments: &Arguments, name: &str, bytes_max: usize) -> Result<String, ToolError> {
    let given = arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    if given.trim().is_empty() || given.len() > bytes_max {
        let got = if given.len() > bytes_max { format!("{} bytes", given.len()) } else { "nothing".to_owned() };
        let expected = format!("`{name}`: expected a text of at most {bytes_max} bytes, got {got}");
        return Err(ToolError::BadArguments(expected));
    }
    Ok(given.to_owned())
}

fn word<T: serde::de::DeserializeOwned>(arguments: &Arguments, name: &str) -> Result<Option<T>, ToolError> {
    let Some(given) = arguments.get(name).filter(|given| !given.is_null()) else { return Ok(None) };
    let read = serde_json::from_value(given.clone());
    read.map(Some).map_err(|cause| ToolError::BadArguments(format!("`{name}`: {cause}")))
}

fn texts(arguments: &Arguments, name: &str, count_max: usize) -> Result<Option<Vec<String>>, ToolError> {
    let given: Option<Vec<String>> = word(arguments, name)?;
    if let Some(given) = given.as_ref().filter(|given| given.len() > count_max) {
        let expected = format!("`{name}`: expected at most {count_max} entries, got {}", given.len());
        return Err(ToolError::BadArguments(expected));
    }
    Ok(given)
}

/// How long a call may wait.
fn patience(arguments: &Arguments) -> Result<Duration, ToolError> {
    let (least, most) = (limit::SUBAGENT_WAIT_MS_MIN / 1_000, limit::SUBAGENT_WAIT_MS_MAX / 1_000);
    let Some(given) = arguments.get("timeout").filter(|given| !given.is_null()) else {
        return Ok(Duration::from_secs(most));
    };
    #[allow(clippy::cast_precision_loss, reason = "a few hundred")]
    let within = |seconds: &f64| (least as f64..=most as f64).contains(seconds);
    let expected = || format!("`timeout`: expected a number of seconds from {least} to {most}, got {given}");
    given.as_f64().filter(within).map(Duration::from_secs_f64).ok_or_else(|| ToolError::BadArguments(expected()))
}

fn spawn_of(arguments: &Arguments, context: &ToolContext) -> Result<Spawn, ToolError> {
    let agent = optional_text(arguments, "agent")?;
    let kind = optional_text(arguments, "agent_type")?;
    if agent.is_some() && kind.is_some() {
        return Err(ToolError::BadArguments("`agent_type`: expected nothing beside `agent`".to_owned()));
    }
    let name = optional_text(arguments, "name")?.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let chars = limit::SUBAGENT_NAME_CHARS_MAX;
    if name.as_ref().is_some_and(|name| name.chars().count() > chars || name.chars().any(char::is_control)) {
        let expected = format!("`name`: expected at most {chars} characters, none of them a control character");
        return Err(ToolError::BadArguments(expected));
    }
    Ok(Spawn {
        call_id: context.call_id.clone(),
        agent: agent.or(kind),
        task: text(arguments, "task", limit::SUBAGENT_TASK_BYTES_MAX)?,
        model: optional_text(arguments, "model")?,
        reasoning: word::<Reasoning>(arguments, "reasoning")?,
        name,
        background: arguments.get("background").and_then(Value::as_bool).unwrap_or(false),
        isolation: word::<Isolation>(arguments, "isolation")?.unwrap_or_default(),
        coordination: word::<Coordination>(arguments, "coordination")?.unwrap_or_default(),
        tools: texts(arguments, "tools", limit::TOOL_ENTRIES_MAX)?,
    })
}

/// The same by its other name.
fn delegation(arguments: &Arguments, context: &ToolContext) -> Result<Spawn, ToolError> {
    Ok(Spawn {
        call_id: context.call_id.clone(),
        agent: Some(text(arguments, "target_agent_id", limit::AGENT_WORD_BYTES_MAX)?),
        task: text(arguments, "task", limit::SUBAGENT_TASK_BYTES_MAX)?,
        ..Spawn::default()
    })
}

fn refused(error: &ApiError) -> ToolError {
    ToolError::failed(error.to_string())
}

/// What is told of a sub-agent that goes on, or was asked about with others.
fn state(child: &ChildState) -> Value {
    let mut told = json!({ "id": child.session, "status": child.status });
    if let Some(name) = &child.name {
        told["name"] = name.as_str().into();
    }
    if child.status.is_terminal() {
        told[if child.status == TurnStatus::Completed { "result" } else { "error" }] = child.text.as_str().into();
    }
    if let Some(merge) = &child.merge {
        told["merge"] = merge_words(merge).into();
    }
    told
}

/// What became of a working tree of its own, in words.
pub fn merge_words(merge: &Merge) -> String {
    let branch =
        merge.branch.as_deref().map(|branch| format!(" They are kept on the branch {branch}.")).unwrap_or_default();
    let reason = merge.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let paths = merge.paths.join(", ");
    match merge.outcome {
        MergeOutcome::Unchanged => "It changed no files.".to_owned(),
        MergeOutcome::Merged => format!("Its changes are in your working tree now: {paths}.{branch}"),
        MergeOutcome::Conflict => {
            format!(
                "Its changes do not fit what has changed here meanwhile: nothing was put back{reason}.{branch} Files: {paths}"
            )
        }
        MergeOutcome::Failed => format!("Its changes could not be put back{reason}.{branch} Files: {paths}"),
    }
}

/// The end of a sub-agent that was waited for: its answer, or a failure.
fn answer(child: ChildState) -> Result<ToolOutput, ToolError> {
    let merge = child.merge.as_ref().map(|merge| format!("\n\n[{}]", merge_words(merge))).unwrap_or_default();
    let details = Some(state(&child));
    match child.status {
        TurnStatus::Completed => {
            Ok(ToolOutput { text: format!("{}{merge}", child.text), details, ..ToolOutput::default() })
        }
        _ => Err(ToolError::failed(format!(
            "the sub-agent {} {}: {}{merge}",
            child.session,
            ended(child.status),
            child.text
        ))),
    }
}

/// What happened to it, in a word.
fn ended(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Completed => "completed",
        TurnStatus::Failed => "failed",
        TurnStatus::Aborted => "was ended",
        TurnStatus::Interrupted => "was interrupted",
        TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => "is not done",
    }
}

impl Subagents {
    async fn spawn(
        &self,
        spawn: Spawn,
        children: &dyn Children,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let background = spawn.background;
        let child = children.spawn(spawn).await.map_err(|error| refused(&error))?;
        if background {
            let told = state(&child);
            let text = serde_json::to_string(&told).unwrap_or_default();
            return Ok(ToolOutput { text, details: Some(told), ..ToolOutput::default() });
        }
        let whom = [child.session];
        let done = self.wait(&whom, (true, None), children, context).await;
        if context.cancel.is_cancelled() {
            // Nobody waits for it any more.
            drop(children.kill(&whom[0]).await);
            return Err(ToolError::Aborted);
        }
        let child = done?.pop().ok_or_else(|| ToolError::failed("the sub-agent is not there any more"))?;
        answer(child)
    }

    /// Waits, and says now and then that it does.
    async fn wait(
        &self,
        whom: &[SessionId],
        how: (bool, Option<Duration>),
        children: &dyn Children,
        context: &ToolContext,
    ) -> Result<Vec<ChildState>, ToolError> {
        let waiting = children.wait(whom, how, &context.cancel);
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                biased;
                done = &mut waiting => return done.map_err(|error| refused(&error)),
                () = tokio::time::sleep(Duration::from_millis(limit::SUBAGENT_BEAT_MS)) => context.events.goes_on(),
            }
        }
    }

    async fn wait_for(
        &self,
        arguments: &Arguments,
        children: &dyn Children,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let names = texts(arguments, "ids", limit::SUBAGENTS_WAITED_MAX)?.unwrap_or_default();
        if names.is_empty() {
            return Err(ToolError::BadArguments("`ids`: expected at least one id or name, got none".to_owned()));
        }
        let all = match arguments.get("mode").and_then(Value::as_str) {
            None | Some("any") => false,
            Some("all") => true,
            Some(other) => {
                return Err(ToolError::BadArguments(format!("`mode`: expected \"any\" or \"all\", got {other:?}")));
            }
        };
        let patience = patience(arguments)?;
        let mut whom = Vec::with_capacity(names.len());
        for name in &names {
            whom.push(children.find(name).await.map_err(|error| refused(&error))?);
        }
        let states = self.wait(&whom, (all, Some(patience)), children, context).await?;
        if context.cancel.is_cancelled() {
            return Err(ToolError::Aborted);
        }
        let told: Vec<Value> = states.iter().map(state).collect();
        let text = serde_json::to_string_pretty(&told).unwrap_or_default();
        Ok(ToolOutput { text, details: Some(json!({ "agents": told })), ..ToolOutput::default() })
    }
}

impl Tool for Subagents {
    fn definition(&self) -> &ToolDefinition {
        match self.0 {
            What::Spawn => &SPAWN,
            What::Send => &SEND,
            What::Wait => &WAIT,
            What::Kill => &KILL,
            What::Delegate => &DELEGATE,
        }
    }

    fn may_repeat(&self, _: &Arguments) -> bool {
        // It looks at something that goes on.
        self.0 == What::Wait
    }

    fn records_changes(&self) -> bool {
        // What sub-agents do to files is theirs to record.
        true
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let children = context.scope.children.lock().clone();
            let Some(children) = children else {
                return Err(ToolError::failed("there is no session here that could have sub-agents"));
            };
            let children = children.as_ref();
            match self.0 {
                What::Spawn => self.spawn(spawn_of(&arguments, context)?, children, context).await,
                What::Delegate => self.spawn(delegation(&arguments, context)?, children, context).await,
                What::Wait => self.wait_for(&arguments, children, context).await,
                What::Send => {
                    let message = text(&arguments, "message", limit::SUBAGENT_TASK_BYTES_MAX)?;
                    let who = text(&arguments, "id", limit::AGENT_WORD_BYTES_MAX)?;
                    let to = children.find(&who).await.map_err(|error| refused(&error))?;
                    let child = children.send(&to, message, &context.call_id).await.map_err(|error| refused(&error))?;
                    Ok(serde_json::to_string(&state(&child)).unwrap_or_default().into())
                }
                What::Kill => {
                    let who = text(&arguments, "id", limit::AGENT_WORD_BYTES_MAX)?;
                    let whom = children.find(&who).await.map_err(|error| refused(&error))?;
                    let child = children.kill(&whom).await.map_err(|error| refused(&error))?;
                    Ok(serde_json::to_string(&state(&child)).unwrap_or_default().into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fs_common::testing::call;
    use super::*;

    #[test]
    fn without_a_session_there_is_nobody_to_start() {
        for tool in subagent_tools() {
            let said = call(tool.as_ref(), json!({ "task": "t" })).expect_err("no session");
            assert!(said.contains("no session"), "{said}");
        }
        let names: Vec<String> = subagent_tools().iter().map(|tool| tool.definition().name.clone()).collect();
        assert_eq!(names, SUBAGENT_TOOLS);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let arguments = |value: Value| value.as_object().cloned().unwrap_or_default();
        let context = super::super::fs_common::testing::context();
        #[rustfmt::skip]
        let table = [
            (json!({}), "`task`: expected a text"),
            (json!({"task": " "}), "`task`: expected a text"),
            (json!({"task": "x".repeat(limit::SUBAGENT_TASK_BYTES_MAX + 1)}), "`task`: expected a text of at most 200000 bytes, got 200001 bytes"),
            (json!({"task": "t", "agent": "a", "agent_type": "worker"}), "`agent_type`: expected nothing beside `agent`"),
            (json!({"task": "t", "isolation": "vm"}), "`isolation`: unknown variant `vm`"),
            (json!({"task": "t", "reasoning": "huge"}), "`reasoning`:"),
            (json!({"task": "t", "coordination": "vote"}), "`coordination`: unknown variant `vote`"),
            (json!({"task": "t", "name": "a\nb"}), "`name`: expected at most 64 characters"),
        ];
        for (given, begins) in table {
            let error = spawn_of(&arguments(given), &context).expect_err("refused").to_string();
            assert!(error.starts_with(begins), "{error}");
        }
        for seconds in [json!(9), json!(301), json!("ten")] {
            let error = patience(&arguments(json!({ "timeout": seconds }))).expect_err("refused").to_string();
            assert!(error.starts_with("`timeout`: expected a number of seconds from 10 to 300, got"), "{error}");
        }
        assert_eq!(patience(&arguments(json!({ "timeout": 10.5 }))), Ok(Duration::from_millis(10_500)));
    }
}
