//! The loop against models and tools made of a few lines each. No sleep where a signal will do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

mod acting;
mod compact;
mod hooked;
mod rescue;

use super::*;
use crate::hook::{Before, Hooks, NoHooks};
use crate::model::retry::RetryPolicy;
use crate::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::protocol::{
    ErrorCode, InteractionMode, Message, Reasoning, RoundKind, SessionId, ToolCallResult, Usage, VerdictSource,
};
use crate::tool::{Registry, Scope, Tool, ToolContext, ToolError, ToolOutput};

#[derive(Default)]
struct Log {
    events: Mutex<Vec<EventBody>>,
    /// Fails from this event on.
    fails_at: Option<usize>,
    looks: AtomicUsize,
}

impl Sink for Log {
    fn emit(&self, event: EventBody) -> Result<(), SinkError> {
        let mut events = self.events.lock();
        if self.fails_at.is_some_and(|at| events.len() >= at) {
            return Err(SinkError("the disk is full".into()));
        }
        events.push(event);
        Ok(())
    }
    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Log {
    /// One word for each event.
    fn words(&self) -> Vec<String> {
        self.events.lock().iter().map(|e| e.encode().0.to_owned()).collect()
    }
    fn find<T>(&self, pick: impl Fn(&EventBody) -> Option<T>) -> Vec<T> {
        self.events.lock().iter().filter_map(pick).collect()
    }
}

struct Verdict(bool, &'static str);

impl Gate for Verdict {
    fn check<'a>(&'a self, _: GateQuestion<'a>, _: &'a CancellationToken) -> BoxFuture<'a, PermissionVerdict> {
        let verdict = PermissionVerdict { allowed: self.0, by: VerdictSource::Policy, reason: self.1.into() };
        Box::pin(std::future::ready(verdict))
    }
}

/// Never answers by itself; says that it was asked.
#[derive(Default)]
struct Asker {
    asked: Notify,
    closed: AtomicUsize,
}

impl Gate for Asker {
    fn check<'a>(&'a self, _: GateQuestion<'a>, cancel: &'a CancellationToken) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(async move {
            self.asked.notify_one();
            cancel.cancelled().await;
            self.closed.fetch_add(1, Ordering::Relaxed);
            PermissionVerdict { allowed: false, by: VerdictSource::Abort, reason: "aborted".into() }
        })
    }
}

struct NoSteering;

impl Steering for NoSteering {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    fn waits(&self) -> bool {
        false
    }
}

struct Steers(Mutex<VecDeque<Vec<Vec<Part>>>>);

impl Steering for Steers {
    fn take(&self) -> BoxFuture<'_, Result<Vec<Vec<Part>>, SinkError>> {
        Box::pin(std::future::ready(Ok(self.0.lock().pop_front().unwrap_or_default())))
    }
    fn waits(&self) -> bool {
        self.0.lock().front().is_some_and(|messages| !messages.is_empty())
    }
}

type Work = Arc<dyn Fn(Arguments, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync>;

struct FnTool(ToolDefinition, Work);

impl Tool for FnTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }
    fn takes_unknown(&self) -> bool {
        true
    }
    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        (self.1)(arguments, context.clone())
    }
}

fn tool<F>(definition: Value, work: impl Fn(Arguments, ToolContext) -> F + Send + Sync + 'static) -> Arc<dyn Tool>
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let mut definition = definition;
    definition["description"] = json!("");
    let definition = serde_json::from_value(definition).unwrap();
    Arc::new(FnTool(definition, Arc::new(move |a, c| Box::pin(work(a, c)))))
}

fn registry() -> Registry {
    let registry = Registry::default();
    let tools = [
        tool(
            json!({"name": "echo", "parameters": {"text": {"type": "string", "required": true}}}),
            |a, _| async move { Ok(a["text"].as_str().unwrap().to_owned().into()) },
        ),
        tool(json!({"name": "fails"}), |_, _| async { Err(ToolError::failed("network down")) }),
        tool(json!({"name": "panics"}), |_, _| async { panic!("oh {}", std::hint::black_box("s3cret")) }),
        tool(json!({"name": "slow", "timeoutMs": 30}), |_, c: ToolContext| async move {
            c.cancel.cancelled().await;
            Err(ToolError::Aborted)
        }),
        tool(json!({"name": "deaf", "timeoutMs": 20}), |_, _| std::future::pending()),
        tool(json!({"name": "long", "maxOutputChars": 3}), |_, _| async { Ok("abcdef".to_owned().into()) }),
    ];
    for tool in tools {
        registry.register(tool).unwrap();
    }
    registry
}

fn environment(log: &Arc<Log>) -> CallEnvironment {
    CallEnvironment {
        registry: Arc::new(registry()),
        untold: Arc::default(),
        gate: Arc::new(Verdict(true, "")),
        hooks: Arc::new(NoHooks),
        sink: Some(Arc::clone(log) as Arc<dyn Sink>),
        session: Some("ses_1".parse::<SessionId>().unwrap()),
        scope: Arc::new(Scope::default()),
        clients: Default::default(),
        ear: None,
    }
}

fn call(id: &str, name: &str, arguments: Value) -> ToolCallRequest {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    ToolCallRequest { id: id.into(), name: name.into(), arguments }
}

async fn result_of(environment: &CallEnvironment, name: &str, arguments: Value) -> CallOutcome {
    run_call(environment, call("c", name, arguments), &CancellationToken::new()).await
}

#[tokio::test]
async fn results_in_the_words_of_the_table() {
    let log = Arc::new(Log::default());
    let environment = environment(&log);
    #[rustfmt::skip]
    let table = [
        ("echo", json!({"text": "hi"}), "hi", None, true),
        ("gone", json!({}), "Tool not found: \"gone\"", Some(ErrorCode::NotFound), false),
        ("echo", json!({}), "Tool \"echo\" execution failed: argument \"text\" is missing: expected a string, got nothing", Some(ErrorCode::InvalidArgument), false),
        ("fails", json!({}), "Tool \"fails\" execution failed: network down", Some(ErrorCode::Internal), true),
        ("panics", json!({}), "Tool \"panics\" execution failed: panicked: in words that are not repeated", Some(ErrorCode::Internal), true),
        ("slow", json!({}), "Tool \"slow\" execution failed: Operation \"tool:slow\" timed out after 30ms", Some(ErrorCode::Timeout), true),
        ("deaf", json!({}), "Tool \"deaf\" execution failed: Operation \"tool:deaf\" timed out after 20ms", Some(ErrorCode::Timeout), true),
        ("long", json!({}), "abc\n\n[OUTPUT TRUNCATED — 6 chars total, showing first 3]", None, true),
    ];
    for (name, arguments, output, code, ran) in table {
        log.events.lock().clear();
        let outcome = result_of(&environment, name, arguments).await;
        assert_eq!(outcome.result.output, output);
        assert_eq!(outcome.result.is_error, code.is_some(), "{name}");
        assert_eq!(outcome.failure.as_ref().map(|f| f.code), code, "{name}");
        assert_eq!(outcome.result.duration_ms.is_some(), ran, "{name}");
        assert_eq!(outcome.timed_out_ms.is_some(), code == Some(ErrorCode::Timeout), "{name}");
        let mut want = vec!["tool.call.start"];
        want.extend((code == Some(ErrorCode::Timeout)).then_some("tool.timeout"));
        want.extend(code.is_some().then_some("tool.call.error"));
        want.push("tool.call.end");
        assert_eq!(log.words(), want, "{name}");
    }
}

#[tokio::test]
async fn a_denial_says_why_when_there_is_a_why() {
    let log = Arc::new(Log::default());
    for (reason, want) in [
        ("", "Permission denied for tool: \"echo\""),
        ("no client", "Permission denied for tool: \"echo\" (no client)"),
    ] {
        let environment = CallEnvironment { gate: Arc::new(Verdict(false, reason)), ..environment(&log) };
        let outcome = result_of(&environment, "echo", json!({})).await;
        assert_eq!(outcome.result.output, want);
        assert!(outcome.result.is_error && outcome.result.duration_ms.is_none());
    }
}

/// Changes the request, the result and the findings; blocks what is called `blocked`.
struct Meddler;

impl Hooks for Meddler {
    fn before_tool(&self, mut request: ToolCallRequest) -> BoxFuture<'_, Before> {
        if request.name == "fails" {
            return Box::pin(std::future::ready(Before::Blocked { reason: "not today".into() }));
        }
        request.arguments.insert("text".into(), json!("changed"));
        Box::pin(std::future::ready(Before::Continue(request)))
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, r: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        let result = ToolCallResult { output: format!("<{}>", r.output), id: "other".into(), ..r };
        Box::pin(std::future::ready(result))
    }
    fn validate_result<'a>(&'a self, q: &'a ToolCallRequest, r: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(vec![format!("{} said {}", q.name, r.output)]))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(prompt + "!"))
    }
    fn transform_messages(&self, mut messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        messages.insert(0, Message::User(text("first")));
        Box::pin(std::future::ready(messages))
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary + " and more"))
    }
}

#[tokio::test]
async fn hooks_around_a_call() {
    let log = Arc::new(Log::default());
    let environment = CallEnvironment { hooks: Arc::new(Meddler), ..environment(&log) };
    let outcome = result_of(&environment, "echo", json!({"text": "hi"})).await;
    assert_eq!((outcome.result.id.as_str(), outcome.result.output.as_str()), ("c", "<changed>"));
    assert_eq!(outcome.findings, ["echo said <changed>"]);
    let outcome = result_of(&environment, "fails", json!({})).await;
    assert_eq!(outcome.result.output, "Tool \"fails\" was blocked: not today");
    assert_eq!(outcome.failure.map(|f| f.code), Some(ErrorCode::Forbidden));
}

#[tokio::test]
async fn a_batch_keeps_order_and_width() {
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let registry = registry();
    let counters = (Arc::clone(&now), Arc::clone(&peak));
    let wide = tool(json!({"name": "wide"}), move |a, _| {
        let (now, peak) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Later ones end earlier.
            for _ in 0..20 - a["n"].as_u64().unwrap() {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(a["n"].to_string().into())
        }
    });
    registry.register(wide).unwrap();
    let log = Arc::new(Log::default());
    let environment = CallEnvironment { registry: Arc::new(registry), ..environment(&log) };
    for width in [1, 3, 8] {
        peak.store(0, Ordering::SeqCst);
        let mut requests: Vec<_> = (0..20).map(|n| call(&format!("c{n}"), "wide", json!({"n": n}))).collect();
        requests.insert(7, call("bad", "panics", json!({})));
        let outcomes = run_batch(&environment, requests, width, &CancellationToken::new()).await;
        let ids: Vec<_> = outcomes.iter().map(|o| o.result.id.clone()).collect();
        let mut want: Vec<_> = (0..20).map(|n| format!("c{n}")).collect();
        want.insert(7, "bad".into());
        assert_eq!(ids, want);
        assert_eq!(outcomes.iter().filter(|o| o.result.is_error).count(), 1);
        assert!(peak.load(Ordering::SeqCst) <= width);
        assert!(width == 1 || peak.load(Ordering::SeqCst) > 1, "side by side");
    }
    assert!(run_batch(&environment, Vec::new(), 8, &CancellationToken::new()).await.is_empty());
}

#[tokio::test]
async fn a_writer_is_a_barrier_and_readers_run_side_by_side() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let registry = Registry::default();
    let noted = |name: &'static str, more: Value| {
        let seen = Arc::clone(&seen);
        let mut definition = more;
        definition["name"] = json!(name);
        tool(definition, move |_, _| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().push(format!("+{name}"));
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                seen.lock().push(format!("-{name}"));
                Ok(String::new().into())
            }
        })
    };
    for (name, more) in [
        ("read", json!({"annotations": {"readOnly": true}, "category": "execute"})),
        ("plain", json!({})),
        ("edit", json!({"category": "edit"})),
        ("destroy", json!({"annotations": {"destructive": true}})),
        ("change", json!({"annotations": {"readOnly": false}, "category": "read"})),
    ] {
        registry.register(noted(name, more)).unwrap();
    }
    let log = Arc::new(Log::default());
    let environment = CallEnvironment { registry: Arc::new(registry), ..environment(&log) };
    for writer in ["edit", "destroy", "change"] {
        seen.lock().clear();
        let names = ["read", "plain", writer, "plain", "read", writer, writer];
        let requests = names.iter().enumerate().map(|(n, name)| call(&n.to_string(), name, json!({}))).collect();
        let outcomes = run_batch(&environment, requests, 8, &CancellationToken::new()).await;
        let answered: Vec<_> = outcomes.iter().map(|o| o.result.name.as_str()).collect();
        assert_eq!(answered, names);
        let mut seen = seen.lock().clone();
        assert_eq!(seen[..2], ["+read", "+plain"], "they start in their order");
        // Which of two that run side by side ends first is open.
        seen[2..4].sort();
        seen[8..10].sort();
        let (on, off) = (format!("+{writer}"), format!("-{writer}"));
        #[rustfmt::skip]
        let want = [
            "+read", "+plain", "-plain", "-read", &on, &off, "+plain", "+read", "-plain", "-read", &on, &off, &on, &off,
        ];
        assert_eq!(seen, want, "{writer}");
    }
}

/// Strict about its arguments, with another name for one of them.
struct FileTool(ToolDefinition);

impl Tool for FileTool {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }
    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("file", "path")]
    }
    fn run<'a>(&'a self, a: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::ready(Ok(Value::Object(a).to_string().into())))
    }
}

#[tokio::test]
async fn models_names_lead_to_the_tool_and_unknown_arguments_are_refused() {
    let log = Arc::new(Log::default());
    let environment = environment(&log);
    let definition = json!({"name": "fs_read", "description": "", "parameters": {"path": {"type": "string"}}});
    environment.registry.register(Arc::new(FileTool(serde_json::from_value(definition).unwrap()))).unwrap();
    #[rustfmt::skip]
    let table = [
        ("fs_read", json!({"path": "a"}), r#"{"path":"a"}"#),
        ("Read", json!({"file": "a"}), r#"{"path":"a"}"#),
        ("read_file", json!({}), "{}"),
        ("Read", json!({"path": "a", "lines": 3}), "Tool \"fs_read\" execution failed: argument \"lines\" is unknown: expected only path"),
        ("Read", json!({"path": "a", "file": "b"}), "Tool \"fs_read\" execution failed: argument \"file\" is unknown: expected only path"),
        ("Write", json!({}), "Tool not found: \"Write\""),
    ];
    for (name, arguments, want) in table {
        let outcome = result_of(&environment, name, arguments).await;
        assert_eq!((outcome.result.name.as_str(), outcome.result.output.as_str()), (name, want));
    }
    // What is refused by its own name is refused by every other: hooks and figures know one tool.
    assert_eq!(environment.registry.metrics()[0].name, "fs_read");
    let blocked = CallEnvironment { hooks: Arc::new(Forbids("fs_read")), ..environment };
    assert!(result_of(&blocked, "Read", json!({})).await.result.output.contains("was blocked"));
}

/// Blocks one tool.
struct Forbids(&'static str);

impl Hooks for Forbids {
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        let verdict =
            if request.name == self.0 { Before::Blocked { reason: "no".into() } } else { Before::Continue(request) };
        Box::pin(std::future::ready(verdict))
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, r: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(std::future::ready(r))
    }
    fn validate_result<'a>(&'a self, _: &'a ToolCallRequest, _: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(prompt))
    }
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(std::future::ready(messages))
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary))
    }
}

/// Replies in order; the last one is repeated. Keeps the requests.
struct Script {
    replies: Mutex<VecDeque<Vec<Result<ModelEvent, ModelError>>>>,
    asked: Mutex<Vec<ModelRequest>>,
    /// After its items a reply hangs instead of ending.
    hangs: bool,
}

impl Script {
    fn new<R: IntoIterator<Item = Result<ModelEvent, ModelError>>>(replies: impl IntoIterator<Item = R>) -> Arc<Self> {
        let replies = replies.into_iter().map(|r| r.into_iter().collect()).collect();
        Arc::new(Self { replies: Mutex::new(replies), asked: Mutex::default(), hangs: false })
    }
}

impl Model for Script {
    fn id(&self) -> &str {
        "test/script"
    }
    fn stream(&self, request: ModelRequest, _: CancellationToken) -> ModelStream {
        self.asked.lock().push(request);
        let mut replies = self.replies.lock();
        let reply = if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() };
        let items = futures_util::stream::iter(reply);
        if self.hangs { Box::pin(items.chain(futures_util::stream::pending())) } else { Box::pin(items) }
    }
}

fn says(text: &str) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Text(text.into()))
}

fn calls(id: &str, name: &str, arguments: Value) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Call(call(id, name, arguments)))
}

fn tokens(n: u64) -> Result<ModelEvent, ModelError> {
    Ok(ModelEvent::Usage(Usage { input_tokens: n, output_tokens: 1, total_tokens: n + 1, ..Usage::default() }))
}

fn broken() -> Result<ModelEvent, ModelError> {
    Err(ModelError::Transient { message: "cut".into(), retry_after: None })
}

const DONE: Result<ModelEvent, ModelError> = Ok(ModelEvent::Finished(StopReason::EndTurn));
const TOOLS: Result<ModelEvent, ModelError> = Ok(ModelEvent::Finished(StopReason::ToolUse));

fn text(text: &str) -> Vec<Part> {
    vec![Part::Text { text: text.into() }]
}

fn input(model: Arc<Script>, log: &Arc<Log>) -> TurnInput {
    TurnInput {
        model,
        system: "be good".into(),
        messages: vec![Message::User(text("hello"))].into(),
        directory: "/".into(),
        directories: Vec::new(),
        agent: None,
        reasoning: Reasoning::High,
        agent_options: Default::default(),
        agent_servers: Arc::default(),
        environment: CallEnvironment { sink: None, ..environment(log) },
        sink: Arc::clone(log) as Arc<dyn Sink>,
        progress: Progress::default(),
        steering: Arc::new(NoSteering),
        iterations_max: 10,
        fallbacks: Vec::new(),
        output_schema: None,
        task: None,
        compacting: Compacting::default(),
        mode: InteractionMode::Chat,
        works_as: None,
        retry: RetryPolicy {
            attempts_max: 3,
            base_delay: Duration::from_millis(1),
            delay_max: Duration::from_millis(2),
        },
    }
}

#[tokio::test]
async fn a_turn_with_tools_from_start_to_end() {
    let log = Arc::new(Log::default());
    let script = Script::new([
        vec![
            says("Let me "),
            says("see."),
            calls("a", "echo", json!({"text": "1"})),
            calls("b", "gone", json!({})),
            tokens(10),
            TOOLS,
        ],
        vec![says("Done."), tokens(20), DONE],
    ]);
    let outcome = run_turn(input(Arc::clone(&script), &log), CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    assert_eq!((outcome.final_text.as_str(), outcome.progress.rounds), ("Done.", 2));
    assert_eq!(
        outcome.progress.usage,
        Usage { input_tokens: 30, output_tokens: 2, total_tokens: 32, ..Usage::default() }
    );
    #[rustfmt::skip]
    let want = [
        "loop.start", "stream.start", "stream.delta", "stream.delta", "stream.complete",
        "tool.call.start", "tool.call.end", "tool.call.start", "tool.call.error", "tool.call.end", "turn.complete",
        "stream.start", "stream.delta", "stream.complete", "turn.complete", "loop.complete",
    ];
    assert_eq!(log.words(), want);
    let result = |id: &str, name: &str, output: &str, is_error| Message::ToolResult {
        call_id: id.into(),
        name: name.into(),
        output: output.into(),
        is_error,
        parts: Vec::new(),
    };
    let messages = [
        Message::User(text("hello")),
        Message::Assistant {
            text: "Let me see.".into(),
            calls: vec![call("a", "echo", json!({"text": "1"})), call("b", "gone", json!({}))],
            original: None,
        },
        result("a", "echo", "1", false),
        result("b", "gone", "Tool not found: \"gone\"", true),
        Message::assistant("Done.", vec![]),
    ];
    assert_eq!(outcome.messages, messages);
    let asked = script.asked.lock();
    assert_eq!((asked[0].system.as_str(), asked[0].tools.len()), ("be good", 6));
    assert_eq!(asked[1].messages, messages[..4]);
    let rounds = log.find(|e| match e {
        EventBody::TurnComplete { turn, kind, usage } => Some((*turn, *kind, usage.map(|u| u.input_tokens))),
        _ => None,
    });
    assert_eq!(rounds, [(1, RoundKind::ToolUse, Some(10)), (2, RoundKind::Text, Some(20))]);
}

#[tokio::test]
async fn hooks_findings_and_steering_reach_the_next_request() {
    let log = Arc::new(Log::default());
    let script = Script::new([
        vec![calls("a", "echo", json!({"text": "1"})), TOOLS],
        vec![says("Answer."), DONE],
        vec![says("To the late word."), DONE],
    ]);
    let mut input = input(Arc::clone(&script), &log);
    input.environment.hooks = Arc::new(Meddler);
    let takes = [vec![], vec![text("also this")], vec![text("late")], vec![], vec![]];
    input.steering = Arc::new(Steers(Mutex::new(takes.into())));
    let outcome = run_turn(input, CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "To the late word."));
    let asked = script.asked.lock();
    assert_eq!(asked[0].system, "be good!");
    assert_eq!(asked[0].messages, [Message::User(text("first")), Message::User(text("hello"))]);
    let tail = &asked[1].messages[asked[1].messages.len() - 2..];
    assert_eq!(tail, [Message::User(text("echo said <changed>")), Message::User(text("also this"))]);
    assert_eq!(asked[2].messages.last(), Some(&Message::User(text("late"))));
    let steered = log.find(|e| match e {
        EventBody::SessionSteer { prompt, parts: None, .. } => Some(prompt.clone()),
        _ => None,
    });
    assert_eq!(steered, ["also this", "late"]);
}

#[tokio::test]
async fn a_broken_stream_is_tried_again_and_its_calls_never_run() {
    let log = Arc::new(Log::default());
    let script = Script::new([
        vec![says("half"), calls("a", "echo", json!({"text": "1"})), tokens(5), broken()],
        vec![says("cut without a word")],
        vec![says("whole"), tokens(7), DONE],
    ]);
    let outcome = run_turn(input(script, &log), CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "whole"));
    assert_eq!(outcome.progress.usage.input_tokens, 12);
    #[rustfmt::skip]
    let want = [
        "loop.start", "stream.start", "stream.delta", "stream.retry", "stream.delta", "stream.retry", "stream.delta",
        "stream.complete", "turn.complete", "loop.complete",
    ];
    assert_eq!(log.words(), want);
    assert_eq!(
        log.find(|e| if let EventBody::StreamComplete { text, .. } = e { Some(text.clone()) } else { None }),
        ["whole"]
    );
    assert_eq!(outcome.messages.len(), 2);
}

#[tokio::test]
async fn only_the_transient_kind_is_retried() {
    #[rustfmt::skip]
    let table = [
        (ModelError::Transient { message: "network".into(), retry_after: None }, 3, "transient"),
        (ModelError::Unauthorized("network timeout 503".into()), 1, "unauthorized"),
        (ModelError::Refused("network timeout 503".into()), 1, "refused"),
        (ModelError::Malformed("network timeout 503".into()), 1, "malformed"),
        (ModelError::Unavailable("network timeout 503".into()), 1, "unavailable"),
    ];
    for (error, attempts, kind) in table {
        let log = Arc::new(Log::default());
        let script = Script::new([vec![says("part"), Err(error.clone())]]);
        let outcome = run_turn(input(Arc::clone(&script), &log), CancellationToken::new()).await;
        assert_eq!(script.asked.lock().len(), attempts, "{error:?}");
        let Ended::Failed(body) = outcome.ended else { panic!("{error:?} ended as {:?}", outcome.ended) };
        assert_eq!((body.code, body.message), (ErrorCode::UpstreamUnavailable, error.to_string()));
        assert_eq!(body.details, Some(json!({ "kind": kind })));
        let words = log.words();
        assert_eq!(words[words.len() - 2..], ["stream.complete", "loop.complete"]);
    }
}

#[tokio::test]
async fn a_blank_answer_is_an_error_in_the_words_of_the_design() {
    let log = Arc::new(Log::default());
    let script = Script::new([vec![says(" \n"), Ok(ModelEvent::Finished(StopReason::Length))]]);
    let outcome = run_turn(input(script, &log), CancellationToken::new()).await;
    assert_eq!(outcome.final_text, "No response received from model.");
    let Ended::Failed(body) = outcome.ended else { panic!("ended as {:?}", outcome.ended) };
    assert_eq!(body.message, "No response received from model.");
    assert_eq!(body.details, Some(json!({ "kind": "blank", "stopReason": "length" })));
}

#[tokio::test]
async fn bad_arguments_are_told_to_the_model_and_nothing_runs() {
    let log = Arc::new(Log::default());
    let bad = ModelEvent::BadCall { id: "x".into(), name: "echo".into(), problem: "not JSON".into() };
    let good = |id: &str| calls(id, "echo", json!({ "text": id }));
    let script = Script::new([vec![good("before"), Ok(bad), good("after"), TOOLS], vec![says("ok"), DONE]]);
    let outcome = run_turn(input(script, &log), CancellationToken::new()).await;
    let Message::ToolResult { output, is_error: true, .. } = &outcome.messages[3] else { panic!("{outcome:?}") };
    assert_eq!(output, "Tool \"echo\" execution failed: not JSON");
    // The log has them in the order in which they were made.
    let starts = log.find(|e| match e {
        EventBody::ToolCallStart { call_id, args, .. } => Some((call_id.clone(), args.len())),
        _ => None,
    });
    assert_eq!(starts, [("before".to_owned(), 1), ("x".to_owned(), 0), ("after".to_owned(), 1)]);
}

#[tokio::test]
async fn the_same_call_three_times_in_a_row_is_not_run_the_third_time() {
    let log = Arc::new(Log::default());
    let same = || vec![calls("a", "echo", json!({"text": "1"})), TOOLS];
    let script = Script::new([same(), same(), same(), vec![says("I see"), DONE]]);
    let outcome = run_turn(input(script, &log), CancellationToken::new()).await;
    assert_eq!(outcome.ended, Ended::Completed);
    let errors: Vec<_> = outcome
        .messages
        .iter()
        .filter_map(|m| {
            if let Message::ToolResult { call_id, is_error, .. } = m {
                Some((call_id.as_str(), *is_error))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(errors, [("a", false), ("a_2", false), ("a_3", true)]);
    let dooms = log.find(|e| if let EventBody::LoopDoomLoop { call_count, .. } = e { Some(*call_count) } else { None });
    assert_eq!(dooms, [3]);
}

#[tokio::test]
async fn rounds_have_a_limit() {
    let log = Arc::new(Log::default());
    let script = Script::new([
        vec![says("one"), calls("a", "echo", json!({"text": "1"})), TOOLS],
        vec![calls("a", "echo", json!({"text": "2"})), TOOLS],
    ]);
    let input = TurnInput { iterations_max: 2, ..input(script, &log) };
    let outcome = run_turn(input, CancellationToken::new()).await;
    assert_eq!(
        (outcome.ended, outcome.progress.rounds, outcome.final_text.as_str()),
        (Ended::IterationLimit, 2, "one")
    );
    assert_eq!(log.events.lock().last(), Some(&EventBody::LoopComplete { total_turns: 2, hit_turn_limit: true }));
    assert!(matches!(outcome.messages.last(), Some(Message::ToolResult { .. })));
}

/// Starts and ends in pairs, every stream closed, the loop's end last.
fn assert_consistent(log: &Log) {
    let words = log.words();
    let count = |word: &str| words.iter().filter(|w| *w == word).count();
    assert_eq!(count("stream.start"), count("stream.complete"), "{words:?}");
    assert_eq!(count("tool.call.start"), count("tool.call.end"), "{words:?}");
    assert_eq!(words.last().map(String::as_str), Some("loop.complete"));
}

#[tokio::test]
async fn abort_in_the_stream_closes_the_partial_text() {
    let log = Arc::new(Log::default());
    let items = vec![says("so far"), calls("a", "echo", json!({"text": "1"}))];
    let script = Script { replies: Mutex::new([items].into()), asked: Mutex::default(), hangs: true };
    let cancel = CancellationToken::new();
    let turn = tokio::spawn(run_turn(input(Arc::new(script), &log), cancel.clone()));
    while !log.words().iter().any(|w| w == "stream.delta") {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    let outcome = turn.await.unwrap();
    assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Aborted, "so far"));
    assert_eq!(outcome.messages[1], Message::assistant("so far", vec![]));
    assert_eq!(log.words()[2..], ["stream.delta", "stream.complete", "loop.complete"]);
    assert_consistent(&log);
}

#[tokio::test]
async fn abort_ends_running_tools_and_those_that_wait() {
    let log = Arc::new(Log::default());
    let started = Arc::new(Notify::new());
    let registry = registry();
    let heard = Arc::clone(&started);
    let waits = tool(json!({"name": "waits"}), move |_, c: ToolContext| {
        let heard = Arc::clone(&heard);
        async move {
            heard.notify_one();
            c.cancel.cancelled().await;
            Err(ToolError::Aborted)
        }
    });
    registry.register(waits).unwrap();
    // More than run at once: the last ones never start.
    let mut items: Vec<_> = (0..20).map(|n| calls(&format!("c{n}"), "waits", json!({ "n": n }))).collect();
    items.push(TOOLS);
    let mut input = input(Script::new([items]), &log);
    input.environment.registry = Arc::new(registry);
    let cancel = CancellationToken::new();
    let turn = tokio::spawn(run_turn(input, cancel.clone()));
    started.notified().await;
    cancel.cancel();
    let outcome = turn.await.unwrap();
    assert_eq!(outcome.ended, Ended::Aborted);
    let results = outcome.messages.iter().filter(|m| matches!(m, Message::ToolResult { is_error: true, .. })).count();
    assert_eq!(results, 20);
    assert_consistent(&log);
}

#[tokio::test]
async fn abort_lets_a_question_be_closed() {
    let log = Arc::new(Log::default());
    let asker = Arc::new(Asker::default());
    let script = Script::new([vec![calls("a", "echo", json!({"text": "1"})), TOOLS]]);
    let mut input = input(script, &log);
    input.environment.gate = Arc::clone(&asker) as Arc<dyn Gate>;
    let cancel = CancellationToken::new();
    let turn = tokio::spawn(run_turn(input, cancel.clone()));
    asker.asked.notified().await;
    cancel.cancel();
    let outcome = turn.await.unwrap();
    assert_eq!((outcome.ended, asker.closed.load(Ordering::Relaxed)), (Ended::Aborted, 1));
    assert_consistent(&log);
}

#[tokio::test]
async fn abort_before_the_first_round() {
    let log = Arc::new(Log::default());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = run_turn(input(Script::new([vec![DONE]]), &log), cancel).await;
    assert_eq!((outcome.ended, outcome.progress.rounds), (Ended::Aborted, 0));
    assert_eq!(log.words(), ["loop.start", "loop.complete"]);
}

#[tokio::test]
async fn a_log_that_fails_ends_the_turn_wherever_it_happens() {
    for at in 0..12 {
        let log = Arc::new(Log { fails_at: Some(at), ..Log::default() });
        let script =
            Script::new([vec![says("x"), calls("a", "echo", json!({"text": "1"})), TOOLS], vec![says("done"), DONE]]);
        let outcome = run_turn(input(script, &log), CancellationToken::new()).await;
        let Ended::Failed(body) = outcome.ended else { panic!("at {at}: {:?}", outcome.ended) };
        assert_eq!((body.code, body.message.as_str()), (ErrorCode::Internal, "the disk is full"));
    }
}

#[tokio::test]
async fn a_call_that_could_not_be_logged_does_not_run() {
    let log = Arc::new(Log { fails_at: Some(0), ..Log::default() });
    let environment = environment(&log);
    let outcome = result_of(&environment, "echo", json!({"text": "1"})).await;
    assert!(outcome.result.is_error);
    assert!(environment.registry.metrics().is_empty());
}

#[tokio::test]
async fn a_flood_looks_at_the_disk_now_and_then() {
    let log = Arc::new(Log::default());
    let mut items: Vec<_> = (0..1000).map(|_| says("x")).collect();
    items.push(DONE);
    let outcome = run_turn(input(Script::new([items]), &log), CancellationToken::new()).await;
    assert_eq!(outcome.final_text.len(), 1000);
    assert_eq!(log.looks.load(Ordering::Relaxed), 1000 / 64);
}

/// How a turn of these replies ends, and its last message to the model.
async fn circling(replies: Vec<Vec<Result<ModelEvent, ModelError>>>) -> (Ended, Arc<Log>, Vec<Message>) {
    let log = Arc::new(Log::default());
    let script = Script::new(replies);
    let input = input(script, &log);
    let find = json!({"name": "find", "category": "search"});
    input
        .environment
        .registry
        .register(tool(find, |_, _| async { Ok("No matches found.".to_owned().into()) }))
        .unwrap();
    let outcome = run_turn(input, CancellationToken::new()).await;
    (outcome.ended, log, outcome.messages.into())
}

#[tokio::test]
async fn a_model_in_circles_is_told_and_at_last_stopped() {
    // Two calls by turns: no call is the same as the one before it, but each reply is.
    let both = || vec![calls("a", "echo", json!({"text": "1"})), calls("b", "echo", json!({"text": "2"})), TOOLS];
    let (ended, _, messages) = circling(vec![both()]).await;
    let Ended::Failed(body) = ended else { panic!("{ended:?}") };
    assert_eq!(body.message, "The model gave the same reply 8 times in a row; the turn was stopped.");
    assert_eq!(body.details, Some(json!({"kind": "loop"})));
    let results: Vec<_> = messages
        .iter()
        .filter_map(|m| if let Message::ToolResult { output, .. } = m { Some(output.as_str()) } else { None })
        .collect();
    assert_eq!(results.len(), 16, "one result for each call");
    assert_eq!(results[..6], ["1", "2", "1", "2", "1", "2"]);
    assert!(results[6].contains("this same reply 4 times in a row"), "{}", results[6]);
    // Arguments that cannot be read.
    let bad = |n: usize| {
        let problem = format!("not JSON {n}");
        vec![Ok(ModelEvent::BadCall { id: "x".into(), name: "echo".into(), problem }), TOOLS]
    };
    let (ended, log, _) = circling((0..6).map(bad).collect()).await;
    let Ended::Failed(body) = ended else { panic!("{ended:?}") };
    assert_eq!(
        body.message,
        "The model made calls whose arguments cannot be read 4 times in a row; the turn was stopped."
    );
    assert_eq!(log.words().iter().filter(|w| *w == "stream.start").count(), 4);
}

#[tokio::test]
async fn the_fourth_empty_search_in_a_row_is_a_finding() {
    let find = |n: usize| vec![calls("a", "find", json!({ "n": n })), TOOLS];
    let replies = (0..4).map(find).chain([vec![says("It is not there."), DONE]]).collect();
    let (ended, log, messages) = circling(replies).await;
    assert_eq!(ended, Ended::Completed);
    let findings =
        log.find(|e| if let EventBody::ToolCallEnd { findings, .. } = e { Some(findings.len()) } else { None });
    assert_eq!(findings, [0, 0, 0, 1]);
    let Some(Message::User(parts)) = messages.iter().rev().nth(1) else { panic!("{messages:?}") };
    assert!(
        matches!(&parts[..], [Part::Text { text }] if text.starts_with("4 searches in a row found nothing")),
        "{parts:?}"
    );
}
