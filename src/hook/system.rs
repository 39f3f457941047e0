//! Handlers at the hook points, and how their answers are put together (typescript-api.md §6).
//!
//! At each point they run in the order of registration, on the list as it was when the run began. A
//! handler that answers nothing leaves the value as it is. One that fails, panics or works too long: before a tool it
//! blocks the call and before a prompt the prompt, with the reason; elsewhere its answer is left out and a warning logged.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::RwLock;

use super::{
    Before, BeforeCompaction, CallPoint, CompactionSaid, Hooks, Notification, Point, SessionEnd, SessionStart,
    Submission, Submitted, TurnStopping,
};
use crate::base::{BoxFuture, limit};
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

/// What a handler answers: nothing, a value, or why it failed.
pub type Answer<T> = BoxFuture<'static, Result<Option<T>, String>>;
/// A handler over one value.
pub type Handle<A, T> = Arc<dyn Fn(A) -> Answer<T> + Send + Sync>;
/// A handler over two values.
pub type Handle2<A, B, T> = Arc<dyn Fn(A, B) -> Answer<T> + Send + Sync>;

/// A handler for one of the points.
#[derive(Clone)]
pub enum Handler {
    /// `tool.execute.before`: another request, or a block.
    BeforeTool(Handle<ToolCallRequest, Before>),
    /// `tool.execute.after`: another result.
    AfterTool(Handle2<ToolCallRequest, ToolCallResult, ToolCallResult>),
    /// `tool.result.validate`: texts for the next round.
    ValidateResult(Handle2<ToolCallRequest, ToolCallResult, Vec<String>>),
    /// `prompt.system.transform`: another system text.
    TransformSystem(Handle<String, String>),
    /// `prompt.messages.transform`: other messages.
    TransformMessages(Handle<Vec<Message>, Vec<Message>>),
    /// `session.compacting`: another summary.
    Compacting(Handle2<Vec<Message>, String, String>),
    /// `session.start`: texts for the model.
    SessionStart(Handle<SessionStart, Vec<String>>),
    /// `session.end`.
    SessionEnd(Handle<SessionEnd, ()>),
    /// `prompt.submit`: another text, more texts, or a block.
    PromptSubmit(Handle<Submitted, Submission>),
    /// `turn.stop`: texts with which the turn goes on.
    TurnStop(Handle<TurnStopping, Vec<String>>),
    /// `session.compact.before`: what the summary is to look at, or a block.
    CompactBefore(Handle<BeforeCompaction, CompactionSaid>),
    /// `notification`.
    Notification(Handle<Notification, ()>),
}

/// Names one registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration(u64);

/// The handlers of one point, with the numbers of their registrations and how long they may work.
type List<H> = Vec<((u64, Duration), H)>;

#[derive(Clone, Default)]
struct Lists {
    before_tool: List<Handle<ToolCallRequest, Before>>,
    after_tool: List<Handle2<ToolCallRequest, ToolCallResult, ToolCallResult>>,
    validate_result: List<Handle2<ToolCallRequest, ToolCallResult, Vec<String>>>,
    transform_system: List<Handle<String, String>>,
    transform_messages: List<Handle<Vec<Message>, Vec<Message>>>,
    compacting: List<Handle2<Vec<Message>, String, String>>,
    session_start: List<Handle<SessionStart, Vec<String>>>,
    session_end: List<Handle<SessionEnd, ()>>,
    prompt_submit: List<Handle<Submitted, Submission>>,
    turn_stop: List<Handle<TurnStopping, Vec<String>>>,
    compact_before: List<Handle<BeforeCompaction, CompactionSaid>>,
    notification: List<Handle<Notification, ()>>,
    last: u64,
}

/// Handlers by point.
#[derive(Clone, Default)]
pub struct HookSystem {
    lists: Arc<RwLock<Arc<Lists>>>,
}

impl std::fmt::Debug for HookSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookSystem").finish_non_exhaustive()
    }
}

impl HookSystem {
    /// Adds a handler behind those that are there. It may work for ten minutes.
    pub fn register(&self, handler: Handler) -> Registration {
        self.register_within(handler, Duration::from_millis(limit::HOOK_HANDLER_TIMEOUT_MS))
    }

    /// The same with how long it may work.
    pub fn register_within(&self, handler: Handler, most: Duration) -> Registration {
        let mut guard = self.lists.write();
        let lists = Arc::make_mut(&mut guard);
        lists.last += 1;
        let entry = (lists.last, most);
        match handler {
            Handler::BeforeTool(handle) => lists.before_tool.push((entry, handle)),
            Handler::AfterTool(handle) => lists.after_tool.push((entry, handle)),
            Handler::ValidateResult(handle) => lists.validate_result.push((entry, handle)),
            Handler::TransformSystem(handle) => lists.transform_system.push((entry, handle)),
            Handler::TransformMessages(handle) => lists.transform_messages.push((entry, handle)),
            Handler::Compacting(handle) => lists.compacting.push((entry, handle)),
            Handler::SessionStart(handle) => lists.session_start.push((entry, handle)),
            Handler::SessionEnd(handle) => lists.session_end.push((entry, handle)),
            Handler::PromptSubmit(handle) => lists.prompt_submit.push((entry, handle)),
            Handler::TurnStop(handle) => lists.turn_stop.push((entry, handle)),
            Handler::CompactBefore(handle) => lists.compact_before.push((entry, handle)),
            Handler::Notification(handle) => lists.notification.push((entry, handle)),
        }
        Registration(entry.0)
    }

    /// Takes a handler out; one that runs now runs to its end. Harmless when it is gone already.
    pub fn unregister(&self, Registration(number): Registration) {
        fn without<H>(list: &mut List<H>, number: u64) {
            list.retain(|((n, _), _)| *n != number);
        }
        let mut guard = self.lists.write();
        let lists = Arc::make_mut(&mut guard);
        without(&mut lists.before_tool, number);
        without(&mut lists.after_tool, number);
        without(&mut lists.validate_result, number);
        without(&mut lists.transform_system, number);
        without(&mut lists.transform_messages, number);
        without(&mut lists.compacting, number);
        without(&mut lists.session_start, number);
        without(&mut lists.session_end, number);
        without(&mut lists.prompt_submit, number);
        without(&mut lists.turn_stop, number);
        without(&mut lists.compact_before, number);
        without(&mut lists.notification, number);
    }

    fn now(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.read())
    }
}

/// A handler's answer; a panic is a failure like any other, and so is too long a work.
async fn answer_of<T>(most: Duration, start: impl FnOnce() -> Answer<T>) -> Result<Option<T>, String> {
    let work = AssertUnwindSafe(async { start().await });
    let in_time = tokio::time::timeout(most, work.catch_unwind()).await;
    let caught = in_time.map_err(|_| format!("the hook did not answer within {} ms", most.as_millis()))?;
    caught.unwrap_or_else(|_| Err("the hook panicked".to_owned()))
}

/// The answers of handlers that all hear the same; those that failed are left out.
async fn answers<A: Clone, T>(point: &str, list: &List<Handle<A, T>>, given: A) -> Vec<T> {
    let mut all = Vec::new();
    for ((_, most), handle) in list {
        match answer_of(*most, || handle(given.clone())).await {
            Ok(answer) => all.extend(answer),
            Err(problem) => tracing::warn!(hook = point, problem, "a hook failed; its answer is left out"),
        }
    }
    all
}

/// The answer, or what was there before it.
async fn chained<T: Clone>((point, most): (&str, Duration), value: T, start: impl FnOnce(T) -> Answer<T>) -> T {
    let given = value.clone();
    match answer_of(most, || start(given)).await {
        Ok(answer) => answer.unwrap_or(value),
        Err(problem) => {
            tracing::warn!(hook = point, problem, "a hook failed; the value before it is kept");
            value
        }
    }
}

impl Hooks for HookSystem {
    fn hears(&self, point: CallPoint) -> bool {
        let lists = self.lists.read();
        match point {
            CallPoint::Before => !lists.before_tool.is_empty(),
            CallPoint::After => !lists.after_tool.is_empty(),
            CallPoint::Validate => !lists.validate_result.is_empty(),
        }
    }

    fn before_tool(&self, mut request: ToolCallRequest) -> BoxFuture<'_, Before> {
        let lists = self.now();
        Box::pin(async move {
            for ((_, most), handle) in &lists.before_tool {
                let given = request.clone();
                match answer_of(*most, || handle(given)).await {
                    Ok(None) => {}
                    Ok(Some(Before::Continue(changed))) => request = changed,
                    Ok(Some(Before::Blocked { reason })) => return Before::Blocked { reason },
                    Err(problem) => {
                        tracing::warn!(hook = "tool.execute.before", problem, "a hook failed; the call is blocked");
                        return Before::Blocked { reason: format!("a hook failed: {problem}") };
                    }
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
        let lists = self.now();
        Box::pin(async move {
            for ((_, most), handle) in &lists.after_tool {
                result = chained(("tool.execute.after", *most), result, |result| handle(request.clone(), result)).await;
            }
            result
        })
    }

    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        let lists = self.now();
        Box::pin(async move {
            let mut findings = Vec::new();
            for ((_, most), handle) in &lists.validate_result {
                match answer_of(*most, || handle(request.clone(), result.clone())).await {
                    Ok(found) => findings.extend(found.into_iter().flatten()),
                    Err(problem) => {
                        tracing::warn!(hook = "tool.result.validate", problem, "a hook failed; it found nothing");
                    }
                }
            }
            findings
        })
    }

    fn transform_system(&self, mut prompt: String) -> BoxFuture<'_, String> {
        let lists = self.now();
        Box::pin(async move {
            for ((_, most), handle) in &lists.transform_system {
                prompt = chained(("prompt.system.transform", *most), prompt, |prompt| handle(prompt)).await;
            }
            prompt
        })
    }

    fn hears_messages(&self) -> bool {
        !self.now().transform_messages.is_empty()
    }

    fn transform_messages(&self, mut messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        let lists = self.now();
        Box::pin(async move {
            for ((_, most), handle) in &lists.transform_messages {
                messages = chained(("prompt.messages.transform", *most), messages, |messages| handle(messages)).await;
            }
            messages
        })
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], mut summary: String) -> BoxFuture<'a, String> {
        let lists = self.now();
        Box::pin(async move {
            for ((_, most), handle) in &lists.compacting {
                summary =
                    chained(("session.compacting", *most), summary, |summary| handle(messages.to_vec(), summary)).await;
            }
            summary
        })
    }

    fn attends(&self, point: Point) -> bool {
        let lists = self.lists.read();
        match point {
            Point::SessionStart => !lists.session_start.is_empty(),
            Point::SessionEnd => !lists.session_end.is_empty(),
            Point::PromptSubmit => !lists.prompt_submit.is_empty(),
            Point::TurnStop => !lists.turn_stop.is_empty(),
            Point::CompactBefore => !lists.compact_before.is_empty(),
            Point::Notification => !lists.notification.is_empty(),
        }
    }

    fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        let lists = self.now();
        Box::pin(async move { answers("session.start", &lists.session_start, start).await.concat() })
    }

    fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
        let lists = self.now();
        Box::pin(async move { drop(answers("session.end", &lists.session_end, end).await) })
    }

    fn prompt_submit(&self, mut submitted: Submitted) -> BoxFuture<'_, Submission> {
        let lists = self.now();
        Box::pin(async move {
            let (mut changed, mut all) = (None, Vec::new());
            for ((_, most), handle) in &lists.prompt_submit {
                match answer_of(*most, || handle(submitted.clone())).await {
                    Ok(None) => {}
                    Ok(Some(Submission::Continue { prompt, context })) => {
                        all.extend(context);
                        if let Some(prompt) = prompt {
                            submitted.put(prompt.clone());
                            changed = Some(prompt);
                        }
                    }
                    Ok(Some(blocked @ Submission::Blocked { .. })) => return blocked,
                    Err(problem) => {
                        tracing::warn!(hook = "prompt.submit", problem, "a hook failed; the prompt is blocked");
                        return Submission::Blocked { reason: format!("a hook failed: {problem}") };
                    }
                }
            }
            Submission::Continue { prompt: changed, context: all }
        })
    }

    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        let lists = self.now();
        Box::pin(async move { answers("turn.stop", &lists.turn_stop, stop).await.concat() })
    }

    fn compact_before(&self, mut before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        let lists = self.now();
        Box::pin(async move {
            let mut changed = None;
            for ((_, most), handle) in &lists.compact_before {
                match answer_of(*most, || handle(before.clone())).await {
                    Ok(Some(CompactionSaid::Continue { focus: Some(focus) })) => {
                        before.focus = Some(focus.clone());
                        changed = Some(focus);
                    }
                    Ok(None | Some(CompactionSaid::Continue { focus: None })) => {}
                    Ok(Some(blocked @ CompactionSaid::Blocked { .. })) => return blocked,
                    Err(problem) => {
                        tracing::warn!(hook = "session.compact.before", problem, "a hook failed; it says nothing");
                    }
                }
            }
            CompactionSaid::Continue { focus: changed }
        })
    }

    fn notified(&self, notification: Notification) -> BoxFuture<'_, ()> {
        let lists = self.now();
        Box::pin(async move { drop(answers("notification", &lists.notification, notification).await) })
    }
}

#[cfg(test)]
mod tests;
