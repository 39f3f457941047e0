//! Handlers at the hook points, and how their answers are put together (typescript-api.md §6).
//!
//! At each point they run in the order of registration, on the list as it was when the run began. A
//! handler that answers nothing leaves the value as it is. One that fails or panics: before a tool it
//! blocks the call, with the reason; elsewhere its answer is left out and a warning logged.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::RwLock;

use super::{Before, CallPoint, Hooks};
use crate::base::BoxFuture;
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
}

/// Names one registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration(u64);

/// The handlers of one point, with the numbers of their registrations.
type List<H> = Vec<(u64, H)>;

#[derive(Clone, Default)]
struct Lists {
    before_tool: List<Handle<ToolCallRequest, Before>>,
    after_tool: List<Handle2<ToolCallRequest, ToolCallResult, ToolCallResult>>,
    validate_result: List<Handle2<ToolCallRequest, ToolCallResult, Vec<String>>>,
    transform_system: List<Handle<String, String>>,
    transform_messages: List<Handle<Vec<Message>, Vec<Message>>>,
    compacting: List<Handle2<Vec<Message>, String, String>>,
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
    /// Adds a handler behind those that are there.
    pub fn register(&self, handler: Handler) -> Registration {
        let mut guard = self.lists.write();
        let lists = Arc::make_mut(&mut guard);
        lists.last += 1;
        let number = lists.last;
        match handler {
            Handler::BeforeTool(handle) => lists.before_tool.push((number, handle)),
            Handler::AfterTool(handle) => lists.after_tool.push((number, handle)),
            Handler::ValidateResult(handle) => lists.validate_result.push((number, handle)),
            Handler::TransformSystem(handle) => lists.transform_system.push((number, handle)),
            Handler::TransformMessages(handle) => lists.transform_messages.push((number, handle)),
            Handler::Compacting(handle) => lists.compacting.push((number, handle)),
        }
        Registration(number)
    }

    /// Takes a handler out; one that runs now runs to its end. Harmless when it is gone already.
    pub fn unregister(&self, Registration(number): Registration) {
        fn without<H>(list: &mut List<H>, number: u64) {
            list.retain(|(n, _)| *n != number);
        }
        let mut guard = self.lists.write();
        let lists = Arc::make_mut(&mut guard);
        without(&mut lists.before_tool, number);
        without(&mut lists.after_tool, number);
        without(&mut lists.validate_result, number);
        without(&mut lists.transform_system, number);
        without(&mut lists.transform_messages, number);
        without(&mut lists.compacting, number);
    }

    fn now(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.read())
    }
}

/// A handler's answer; a panic is a failure like any other.
async fn answer_of<T>(start: impl FnOnce() -> Answer<T>) -> Result<Option<T>, String> {
    let work = AssertUnwindSafe(async { start().await });
    work.catch_unwind().await.unwrap_or_else(|_| Err("the hook panicked".to_owned()))
}

/// The answer, or what was there before it.
async fn chained<T: Clone>(point: &str, value: T, start: impl FnOnce(T) -> Answer<T>) -> T {
    let given = value.clone();
    match answer_of(|| start(given)).await {
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
            for (_, handle) in &lists.before_tool {
                let given = request.clone();
                match answer_of(|| handle(given)).await {
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
            for (_, handle) in &lists.after_tool {
                result = chained("tool.execute.after", result, |result| handle(request.clone(), result)).await;
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
            for (_, handle) in &lists.validate_result {
                match answer_of(|| handle(request.clone(), result.clone())).await {
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
            for (_, handle) in &lists.transform_system {
                prompt = chained("prompt.system.transform", prompt, |prompt| handle(prompt)).await;
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
            for (_, handle) in &lists.transform_messages {
                messages = chained("prompt.messages.transform", messages, |messages| handle(messages)).await;
            }
            messages
        })
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], mut summary: String) -> BoxFuture<'a, String> {
        let lists = self.now();
        Box::pin(async move {
            for (_, handle) in &lists.compacting {
                summary = chained("session.compacting", summary, |summary| handle(messages.to_vec(), summary)).await;
            }
            summary
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::protocol::Part;

    fn request() -> ToolCallRequest {
        ToolCallRequest { id: "c".into(), name: "t".into(), arguments: Map::new() }
    }

    fn result(output: &str) -> ToolCallResult {
        ToolCallResult {
            id: "c".into(),
            name: "t".into(),
            output: output.into(),
            is_error: false,
            duration_ms: None,
            parts: Vec::new(),
            details: None,
        }
    }

    fn now<T: Send + 'static>(answer: Result<Option<T>, String>) -> Answer<T> {
        Box::pin(std::future::ready(answer))
    }

    /// A handler before a tool: renames it, blocks it, says nothing, fails, or panics.
    fn before(word: &'static str) -> Handler {
        Handler::BeforeTool(Arc::new(move |request| match word {
            "nothing" => now(Ok(None)),
            "block" => now(Ok(Some(Before::Blocked { reason: "no".into() }))),
            "fail" => now(Err("broken".into())),
            "panic" => Box::pin(async { panic!("oh") }),
            _ => {
                let name = format!("{}{word}", request.name);
                now(Ok(Some(Before::Continue(ToolCallRequest { name, ..request }))))
            }
        }))
    }

    #[tokio::test]
    async fn before_a_tool() {
        #[rustfmt::skip]
        let table: &[(&[&str], Result<&str, &str>)] = &[
            (&[], Ok("t")),
            (&["a", "nothing", "b"], Ok("tab")),
            (&["a", "block", "fail"], Err("no")),
            (&["fail", "block"], Err("a hook failed: broken")),
            (&["a", "panic", "b"], Err("a hook failed: the hook panicked")),
        ];
        for (words, want) in table {
            let hooks = HookSystem::default();
            for word in *words {
                hooks.register(before(word));
            }
            let want = match want {
                Ok(name) => Before::Continue(ToolCallRequest { name: (*name).into(), ..request() }),
                Err(reason) => Before::Blocked { reason: (*reason).into() },
            };
            assert_eq!(hooks.before_tool(request()).await, want, "{words:?}");
        }
    }

    #[tokio::test]
    async fn chains_keep_the_value_of_before_a_failure() {
        let hooks = HookSystem::default();
        for word in ["a", "", "fail", "b"] {
            let changed = move |text: String| match word {
                "" => now(Ok(None)),
                "fail" => now(Err("broken".into())),
                _ => now(Ok(Some(text + word))),
            };
            hooks.register(Handler::TransformSystem(Arc::new(changed)));
            hooks.register(Handler::Compacting(Arc::new(move |messages: Vec<Message>, summary| {
                changed(format!("{summary}{}", messages.len()))
            })));
            hooks.register(Handler::AfterTool(Arc::new(move |_, r: ToolCallResult| match word {
                "" => now(Ok(None)),
                "fail" => now(Err("broken".into())),
                _ => now(Ok(Some(result(&(r.output + word))))),
            })));
            hooks.register(Handler::ValidateResult(Arc::new(move |_, _| match word {
                "" => now(Ok(None)),
                "fail" => now(Err("broken".into())),
                _ => now(Ok(Some(vec![word.to_owned(), "x".into()]))),
            })));
            hooks.register(Handler::TransformMessages(Arc::new(move |mut messages: Vec<Message>| match word {
                "" => now(Ok(None)),
                "fail" => now(Err("broken".into())),
                _ => {
                    messages.push(Message::User(vec![Part::Text { text: word.into() }]));
                    now(Ok(Some(messages)))
                }
            })));
        }
        assert_eq!(hooks.transform_system("s".into()).await, "sab");
        assert_eq!(hooks.compacting(&[], "s".into()).await, "s0a0b");
        assert_eq!(hooks.after_tool(&request(), result("o")).await.output, "oab");
        assert_eq!(hooks.validate_result(&request(), &result("o")).await, ["a", "x", "b", "x"]);
        assert_eq!(hooks.transform_messages(Vec::new()).await.len(), 2);
    }

    #[tokio::test]
    async fn what_is_unregistered_runs_no_more() {
        let hooks = HookSystem::default();
        let first = hooks.register(before("a"));
        hooks.register(before("b"));
        hooks.unregister(first);
        hooks.unregister(first);
        let want = Before::Continue(ToolCallRequest { name: "tb".into(), ..request() });
        assert_eq!(hooks.before_tool(request()).await, want);
    }
}
