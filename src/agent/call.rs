//! One call: hook → permission → validation → run → hook → findings.
//!
//! Invariants: one outcome for each request, whatever goes wrong; one `tool.call.end` for each
//! `tool.call.start`; a tool runs only after the gate said yes and its arguments fit its definition.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{Gate, Sink, Untold};
use crate::base::ear::Ear;
use crate::base::{limit, panics};
use crate::hook::{Before, CallPoint, Hooks, Line, NoHooks};
use crate::protocol::{
    ErrorBody, ErrorCode, EventBody, SessionId, ToolCallRequest, ToolCallResult, ToolCategory, ToolDefinition,
};
use crate::tool::{
    JudgedPaths, Previewed, Registry, Scope, Subject, Tool, ToolContext, ToolError, ToolEvents, ToolOutput,
    bound_output, bound_parts, canonical, validate_call,
};

/// Everything around a call.
#[derive(Clone)]
pub struct CallEnvironment {
    /// Where the tools are.
    pub registry: Arc<Registry>,
    /// The tools of it that the model is not told of.
    pub untold: Arc<Untold>,
    /// Who gives permission.
    pub gate: Arc<dyn Gate>,
    /// The hooks.
    pub hooks: Arc<dyn Hooks>,
    /// Takes `tool.*` events; None: the caller makes them from the outcome.
    pub sink: Option<Arc<dyn Sink>>,
    /// The session, when there is one.
    pub session: Option<SessionId>,
    /// State that tools keep between calls.
    pub scope: Arc<Scope>,
    /// A line to the session's clients, when there is one.
    pub clients: Line,
    /// Who listens to what a call does while it runs, beside its events.
    pub ear: Option<Arc<dyn Ear>>,
}

impl CallEnvironment {
    /// The surroundings of calls that belong to no session: no hooks, nobody who takes events, and the registry's own scope.
    ///
    /// What more there is goes over it: `CallEnvironment { hooks, ..CallEnvironment::new(registry, gate) }`.
    pub fn new(registry: Arc<Registry>, gate: Arc<dyn Gate>) -> Self {
        let scope = Arc::clone(&registry.scope);
        let (hooks, clients) = (Arc::new(NoHooks), Line::default());
        let untold = Arc::default();
        Self { registry, untold, gate, hooks, sink: None, session: None, scope, clients, ear: None }
    }
}

impl CallEnvironment {
    /// The tools that the model is told of.
    pub(super) fn told(&self) -> Arc<[ToolDefinition]> {
        self.untold.left_of(&self.registry)
    }
}

/// What came of a call. Always exactly one for each request.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The result, in the words of typescript-api.md §2.
    pub result: ToolCallResult,
    /// What `tool.result.validate` found; goes into the next round.
    pub findings: Vec<String>,
    /// The limit that it ran into, when it timed out.
    pub timed_out_ms: Option<u64>,
    /// Why it failed, when it failed by itself; a hook that made a failure of it gave the output its words.
    pub failure: Option<ErrorBody>,
    /// How long the tool ran. None: it never did.
    pub ran: Option<Duration>,
}

/// Why a call has no output of its own.
pub(super) struct Failure {
    output: String,
    body: ErrorBody,
    timed_out_ms: Option<u64>,
}

impl Failure {
    pub(super) fn new(code: ErrorCode, output: String) -> Self {
        Self { body: ErrorBody { code, message: output.clone(), details: None }, output, timed_out_ms: None }
    }

    /// As long as an output may be: it repeats what was asked for.
    fn bounded(self, chars_max: usize) -> Self {
        let message = bound_output(self.body.message, chars_max);
        Self { output: bound_output(self.output, chars_max), body: ErrorBody { message, ..self.body }, ..self }
    }

    /// The form of every failure inside a tool.
    pub(super) fn execution(code: ErrorCode, name: &str, message: &str) -> Self {
        Self::new(code, format!("Tool \"{name}\" execution failed: {message}"))
    }
}

/// Runs one call to its end. Never fails: whatever goes wrong is a failed result.
pub async fn run_call(
    environment: &CallEnvironment,
    request: ToolCallRequest,
    cancel: &CancellationToken,
) -> CallOutcome {
    let (id, name) = (request.id.clone(), request.name.clone());
    let announced = environment.emit(|| EventBody::ToolCallStart {
        call_id: id.clone(),
        name: name.clone(),
        args: request.arguments.clone(),
    });
    let outcome = match announced {
        Ok(()) => {
            let steps = pin!(steps(environment, request, (&id, &name), cancel));
            AssertUnwindSafe(steps).catch_unwind().await.unwrap_or_else(|panic| {
                let message = format!("panicked: {}", panics::words(panic.as_ref()));
                failed(&id, &name, Failure::execution(ErrorCode::Internal, &name, &message), None)
            })
        }
        // What is not in the log does not happen.
        Err(error) => {
            return failed(&id, &name, Failure::execution(ErrorCode::Internal, &name, &error.to_string()), None);
        }
    };
    environment.report(&outcome);
    outcome
}

/// Ends a call that is not run: announces it, fails it with `output`, and ends it.
pub(super) fn refuse_call(
    environment: &CallEnvironment,
    request: &ToolCallRequest,
    code: ErrorCode,
    message: &str,
) -> CallOutcome {
    // A sink that fails is noticed by the turn at its next event.
    let _ = environment.emit(|| EventBody::ToolCallStart {
        call_id: request.id.clone(),
        name: request.name.clone(),
        args: request.arguments.clone(),
    });
    let failure = Failure::execution(code, &request.name, message);
    let outcome = failed(&request.id, &request.name, failure, None);
    environment.report(&outcome);
    outcome
}

/// All steps of a call, without its events. Its outcome is that of `asked`, whatever a hook made of id and name.
async fn steps(
    environment: &CallEnvironment,
    request: ToolCallRequest,
    asked: (&str, &str),
    cancel: &CancellationToken,
) -> CallOutcome {
    let (id, name) = asked;
    let aborted = || Failure::execution(ErrorCode::Conflict, name, "aborted");
    if cancel.is_cancelled() {
        return failed(id, name, aborted(), None);
    }
    // An open question has to be closed: the gate gets its moment.
    let admitted = finish_soon(cancel, pin!(admit(environment, request, cancel))).await;
    match admitted.unwrap_or_else(|| Err(aborted())) {
        Ok(_) if cancel.is_cancelled() => failed(id, name, aborted(), None),
        Ok(admitted) => admitted.run(environment, asked, cancel).await,
        Err(failure) => failed(id, name, failure.bounded(environment.registry.output_chars_max), None),
    }
}

/// Waits for `work`; once `cancel` has fired, only a moment longer. None when it did not end in that time.
pub(super) async fn finish_soon<T>(cancel: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    // What is done at once needs nobody who watches for an abort.
    if let Poll::Ready(done) = futures_util::poll!(work.as_mut()) {
        return Some(done);
    }
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = cancel.cancelled() => {}
    }
    tokio::time::timeout(Duration::from_millis(limit::TOOL_STOP_GRACE_MS), work).await.ok()
}

/// A call whose tool is found.
pub(super) struct Prepared {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) request: ToolCallRequest,
    pub(super) context: ToolContext,
}

/// Hook, permission, validation.
async fn admit(
    environment: &CallEnvironment,
    request: ToolCallRequest,
    cancel: &CancellationToken,
) -> Result<Prepared, Failure> {
    let named = properly_named(environment, request);
    let hooked = environment.hooks.hears(CallPoint::Before);
    let (mut request, found) = if hooked { before(environment, named).await? } else { named };
    let Some(tool) = found else {
        // A name that a model made up, or one that it may not use.
        return Err(match environment.registry.why_withheld(&request.name) {
            Some(why) => Failure::execution(ErrorCode::Forbidden, &request.name, &why),
            None => Failure::new(ErrorCode::NotFound, format!("Tool not found: \"{}\"", request.name)),
        });
    };
    if let Some(why) = environment.scope.why_narrowed(&request.name) {
        return Err(Failure::execution(ErrorCode::Forbidden, &request.name, &why));
    }
    request.arguments = canonical(tool.as_ref(), request.arguments);
    let cancel_call = cancel.child_token();
    let context = ToolContext {
        call_id: request.id.clone(),
        session: environment.session.clone(),
        clients: environment.line(&request.id, &cancel_call),
        cancel: cancel_call,
        scope: Arc::clone(&environment.scope),
        events: environment.tool_events(),
        veil: tool.searches().then(|| environment.gate.veil(tool.definition())).flatten(),
        previewed: Previewed::default(),
        judged: JudgedPaths::default(),
    };
    let checked = validate_call(tool.as_ref(), &request.arguments);
    let mut admitted = Prepared { tool, request, context };
    admitted.permit(environment, checked.is_err(), cancel).await?;
    match checked {
        Ok(()) => Ok(admitted),
        Err(bad) => Err(Failure::execution(ErrorCode::InvalidArgument, &admitted.request.name, &bad.0)),
    }
}

/// What the hooks before a tool make of a call.
async fn before(
    environment: &CallEnvironment,
    (request, found): (ToolCallRequest, Option<Arc<dyn Tool>>),
) -> Result<(ToolCallRequest, Option<Arc<dyn Tool>>), Failure> {
    let (id, asked) = (request.id.clone(), request.name.clone());
    match environment.hooks.before_tool(request).await {
        // Questions and results are matched by the id: no hook changes it.
        Before::Continue(request) if request.name == asked => Ok((ToolCallRequest { id, ..request }, found)),
        Before::Continue(request) => Ok(properly_named(environment, ToolCallRequest { id, ..request })),
        Before::Blocked { reason } => {
            Err(Failure::new(ErrorCode::Forbidden, format!("Tool \"{asked}\" was blocked: {reason}")))
        }
    }
}

/// The tool of a call, and the call under the tool's own name: hooks, rules and figures know it by that, whatever a
/// model calls it.
fn properly_named(
    environment: &CallEnvironment,
    mut request: ToolCallRequest,
) -> (ToolCallRequest, Option<Arc<dyn Tool>>) {
    let found = environment.registry.get(&request.name);
    if let Some(tool) = &found
        && tool.definition().name != request.name
    {
        request.name.clone_from(&tool.definition().name);
    }
    (request, found)
}

/// How a tool's run ended.
enum Run {
    Returned(Result<ToolOutput, ToolError>),
    Panicked(&'static str),
    TimedOut(u64),
    Stopped,
}

impl Prepared {
    async fn run(
        mut self,
        environment: &CallEnvironment,
        asked: (&str, &str),
        cancel: &CancellationToken,
    ) -> CallOutcome {
        let holding = match self.claim_paths().await {
            Ok(holding) => holding,
            Err(failure) => return failed(asked.0, asked.1, failure.bounded(self.chars_max(environment)), None),
        };
        let started = Instant::now();
        // What cannot say itself what it does to files may be a command.
        let recorder = self.is_command().then(|| environment.scope.recorder.lock().clone()).flatten();
        if let Some(recorder) = &recorder {
            recorder.command_begins().await;
        }
        let run = self.run_tool(environment).await;
        drop(holding);
        if let Some(recorder) = &recorder {
            recorder.command_ended().await;
        }
        let elapsed = started.elapsed();
        let mut outcome = self.outcome(environment, run, elapsed);
        environment.registry.record(&self.request.name, elapsed.as_secs_f64() * 1e3, outcome.result.is_error);
        if environment.hooks.hears(CallPoint::After) {
            // The result before a hook is the one that counts when the hook panics or hangs.
            let after = environment.hooks.after_tool(&self.request, outcome.result.clone());
            if let Some(Ok(result)) = finish_soon(cancel, AssertUnwindSafe(after).catch_unwind()).await {
                outcome.result = result;
            }
            if !outcome.result.is_error {
                outcome.failure = None;
            }
        }
        if environment.hooks.hears(CallPoint::Validate) {
            let findings = environment.hooks.validate_result(&self.request, &outcome.result);
            if let Some(Ok(findings)) = finish_soon(cancel, AssertUnwindSafe(findings).catch_unwind()).await {
                outcome.findings = self.bound_findings(environment, findings);
            }
        }
        if !outcome.result.is_error {
            outcome.findings.extend(self.guidance(environment, cancel).await);
        }
        outcome.name(asked);
        outcome
    }

    /// What is to be known of the places that the call has touched, where that was not told yet.
    async fn guidance(&self, environment: &CallEnvironment, cancel: &CancellationToken) -> Vec<String> {
        let Some(guide) = environment.scope.guide.lock().clone() else { return Vec::new() };
        let Subject::Paths(paths) = self.tool.subject_in(&self.request.arguments, &self.context) else {
            return Vec::new();
        };
        let paths: Vec<PathBuf> = paths.into_iter().filter_map(|path| path.resolved).collect();
        let told = guide.at(&paths, &environment.scope.guided);
        let told = finish_soon(cancel, AssertUnwindSafe(told).catch_unwind()).await;
        let chars_max = environment.registry.output_chars_max;
        told.and_then(Result::ok).unwrap_or_default().into_iter().map(|text| bound_output(text, chars_max)).collect()
    }

    /// Whether it may change files without saying which.
    fn is_command(&self) -> bool {
        let definition = self.tool.judged_as(&self.request.arguments);
        let read_only = definition.annotations.as_ref().and_then(|hints| hints.read_only);
        let looks =
            matches!(definition.category, Some(ToolCategory::Read | ToolCategory::Search | ToolCategory::Memory));
        !self.tool.records_changes() && !read_only.unwrap_or(looks)
    }

    /// Findings stay as long as the conversation does, so they are held to limits as outputs are.
    fn bound_findings(&self, environment: &CallEnvironment, mut findings: Vec<String>) -> Vec<String> {
        let chars_max = self.chars_max(environment);
        let more = findings.len().saturating_sub(limit::FINDINGS_MAX);
        findings.truncate(limit::FINDINGS_MAX);
        let mut bound: Vec<String> = findings.into_iter().map(|text| bound_output(text, chars_max)).collect();
        if more > 0 {
            bound.push(format!("(and {more} more findings)"));
        }
        bound
    }

    /// Longest output of the tool, in UTF-16 units.
    fn chars_max(&self, environment: &CallEnvironment) -> usize {
        self.tool.definition().max_output_chars.unwrap_or(environment.registry.output_chars_max)
    }

    /// Runs the tool inside its limit. On abort and time-out it is told, and given a moment to stop by itself.
    async fn run_tool(&mut self, environment: &CallEnvironment) -> Run {
        let limit_ms = self.tool.definition().timeout_ms.or(environment.registry.default_timeout_ms);
        let arguments = std::mem::take(&mut self.request.arguments);
        // Hooks after the tool see the arguments as well.
        self.request.arguments.clone_from(&arguments);
        let started = AssertUnwindSafe(async { self.tool.run(arguments, &self.context).await });
        let mut tool = pin!(started.catch_unwind());
        // What is done at once needs no clock, and nobody who watches for an abort.
        if let Poll::Ready(result) = futures_util::poll!(tool.as_mut()) {
            return Run::from(result);
        }
        let stop = tokio::select! {
            biased;
            result = &mut tool => return Run::from(result),
            () = self.context.cancel.cancelled() => Run::Stopped,
            limit_ms = sleep(limit_ms, &self.context.events) => Run::TimedOut(limit_ms),
        };
        self.context.cancel.cancel();
        let rest = tokio::time::timeout(Duration::from_millis(limit::TOOL_STOP_GRACE_MS), &mut tool).await;
        match (stop, rest) {
            // It was done, or says itself how it was stopped.
            (Run::Stopped, Ok(result)) => Run::from(result),
            (stop, _) => stop,
        }
    }

    fn outcome(&self, environment: &CallEnvironment, run: Run, elapsed: Duration) -> CallOutcome {
        let (id, name) = (&self.request.id, &self.request.name);
        let chars_max = self.chars_max(environment);
        let failure = match run {
            Run::Returned(Ok(output)) => {
                let ToolOutput { text, parts, details } = bound_parts(output);
                let result = ToolCallResult {
                    id: id.clone(),
                    name: name.clone(),
                    output: bound_output(text, chars_max),
                    is_error: false,
                    duration_ms: Some(in_ms(elapsed)),
                    parts,
                    details,
                };
                let ran = Some(elapsed);
                return CallOutcome { result, findings: Vec::new(), timed_out_ms: None, failure: None, ran };
            }
            Run::Returned(Err(error)) => {
                let code = match error {
                    ToolError::Failed(_) => ErrorCode::Internal,
                    ToolError::BadArguments(_) => ErrorCode::InvalidArgument,
                    ToolError::Conflict(_) | ToolError::Aborted | ToolError::AbortedAfter(_) => ErrorCode::Conflict,
                };
                Failure::execution(code, name, &bound_output(error.to_string(), chars_max))
            }
            Run::Panicked(text) => Failure::execution(ErrorCode::Internal, name, &format!("panicked: {text}")),
            Run::Stopped => Failure::execution(ErrorCode::Conflict, name, "aborted"),
            Run::TimedOut(ms) => {
                let text = format!("Operation \"tool:{name}\" timed out after {ms}ms");
                let failure = Failure::execution(ErrorCode::Timeout, name, &text);
                Failure { timed_out_ms: Some(ms), ..failure }
            }
        };
        failed(id, name, failure, Some(elapsed))
    }
}

impl From<Result<Result<ToolOutput, ToolError>, Box<dyn Any + Send>>> for Run {
    fn from(result: Result<Result<ToolOutput, ToolError>, Box<dyn Any + Send>>) -> Self {
        match result {
            Ok(returned) => Self::Returned(returned),
            Err(panic) => Self::Panicked(panics::words(panic.as_ref())),
        }
    }
}

/// Waits out a limit, as often as the tool said meanwhile that it goes on; for ever when there is none.
async fn sleep(limit_ms: Option<u64>, events: &ToolEvents) -> u64 {
    let Some(ms) = limit_ms else { return std::future::pending().await };
    for _ in 0..limit::TOOL_TIMEOUTS_MAX {
        let beats = events.beats();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        if events.beats() == beats {
            break;
        }
    }
    ms
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn failed(id: &str, name: &str, failure: Failure, ran: Option<Duration>) -> CallOutcome {
    let Failure { output, body, timed_out_ms } = failure;
    CallOutcome {
        result: ToolCallResult {
            id: id.to_owned(),
            name: name.to_owned(),
            output,
            is_error: true,
            duration_ms: ran.map(in_ms),
            parts: Vec::new(),
            details: None,
        },
        findings: Vec::new(),
        timed_out_ms,
        failure: Some(body),
        ran,
    }
}
