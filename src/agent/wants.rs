//! What an agent wants of us while it works: permission, a form filled in, a call of ours. Each runs beside its stream, ends soon
//! after it is told to, and answers once; what is not answered is a no.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome, finish_soon, run_call};
use super::{Gate, GateQuestion, Preview};
use crate::base::BoxFuture;
use crate::hook::Before;
use crate::model::{Carried, Errand, FormRequest, HostCall, Leave, Question, Reply, Steer};
use crate::protocol::{FormReply, Part, PermissionVerdict, ToolCallResult, ToolDefinition, VerdictSource};
use crate::tool::{Arguments, Form, Scope, Veil};

/// What ran beside the stream.
pub(super) enum Job {
    /// The agent has its answer.
    Answered,
    /// A call of ours is over; the agent still waits for its result.
    Ran(Box<CallOutcome>, Reply<ToolCallResult>),
    /// A client's call is over; the client still waits for what came of it.
    Carried(Box<CallOutcome>, Reply<Carried>),
    /// The agent was told what the user says, and has taken it or not.
    Steered(Vec<Part>, bool),
}

/// Puts an agent's question: to the hooks, then to the gate.
pub(super) fn ask(
    environment: CallEnvironment,
    question: Question,
    cancel: CancellationToken,
    reply: Reply<PermissionVerdict>,
) -> BoxFuture<'static, Job> {
    Box::pin(async move {
        let put = async {
            if let Before::Blocked { reason } = environment.hooks.before_tool(question.request.clone()).await {
                return PermissionVerdict { allowed: false, by: VerdictSource::Hook, reason };
            }
            let asked = GateQuestion {
                request: &question.request,
                like: question.like,
                definition: Some(&question.definition),
                subject: &question.subject,
                place: None,
                insists: false,
                unfit: false,
                asked: false,
                preview: &Given(question.preview.clone()),
            };
            environment.gate.check(asked, &cancel).await
        };
        let aborted = || PermissionVerdict { allowed: false, by: VerdictSource::Abort, reason: String::new() };
        reply.send(finish_soon(&cancel, put).await.unwrap_or_else(aborted));
        Job::Answered
    })
}

/// Tells an agent what the user says while it works. Ends with the turn at the latest: then it has not taken it.
pub(super) fn say(steer: &Steer, parts: Vec<Part>, cancel: CancellationToken) -> BoxFuture<'static, Job> {
    let steer = steer.clone();
    Box::pin(async move {
        let (reply, taken) = Reply::channel();
        let told = async {
            // An agent that is gone drops the reply.
            let _ = steer.0.send((parts.clone(), reply)).await;
            taken.await.unwrap_or(false)
        };
        let taken = tokio::select! {
            biased;
            taken = told => taken,
            () = cancel.cancelled() => false,
        };
        Job::Steered(parts, taken)
    })
}

/// Puts an agent's form to the clients. One that cannot be put is told by there being no answer.
pub(super) fn fill(
    environment: CallEnvironment,
    wanted: FormRequest,
    cancel: CancellationToken,
    reply: Reply<FormReply>,
) -> BoxFuture<'static, Job> {
    Box::pin(async move {
        let FormRequest { who, call_id, message, schema } = wanted;
        match Form::read(&who, &message, &schema) {
            Ok(form) => {
                let line = environment.clients.until(cancel.clone());
                let line = call_id.map_or_else(|| line.clone(), |id| line.for_call(&id));
                let aborted = || FormReply::Cancelled("the turn was aborted".to_owned());
                reply.send(finish_soon(&cancel, form.put(&line)).await.unwrap_or_else(aborted));
            }
            Err(problem) => tracing::warn!(who, problem, "an agent asks for what nobody can be asked"),
        }
        Job::Answered
    })
}

/// Runs a call of ours that an agent wants.
pub(super) fn run(
    mut environment: CallEnvironment,
    call: HostCall,
    cancel: CancellationToken,
    reply: Reply<ToolCallResult>,
) -> BoxFuture<'static, Job> {
    Box::pin(async move {
        // It changes files behind our back as well: what earlier calls saw of them says nothing.
        let scope = Scope::default();
        scope.take_share(environment.scope.share().clone());
        *scope.recorder.lock() = environment.scope.recorder.lock().clone();
        *scope.earlier.lock() = environment.scope.earlier.lock().clone();
        environment.scope = Arc::new(scope);
        environment.ear = call.ear.0;
        match call.leave {
            Leave::None => {}
            Leave::Asked => environment.gate = Arc::new(AskedBefore(environment.gate)),
            Leave::Full => environment.gate = Arc::new(Unasked),
        }
        let cancel = cancel.child_token();
        let stopped = async {
            call.stop.cancelled().await;
            cancel.cancel();
            std::future::pending::<std::convert::Infallible>().await
        };
        let running = run_call(&environment, call.request, &cancel);
        let outcome = tokio::select! {
            biased;
            outcome = running => outcome,
            never = stopped => match never {},
        };
        Job::Ran(Box::new(outcome), reply)
    })
}

/// Runs a call of ours that a client wants. What it has changed, later calls of the session know, as with a model's calls.
pub(super) fn carry(
    environment: CallEnvironment,
    errand: Errand,
    cancel: CancellationToken,
    reply: Reply<Carried>,
) -> BoxFuture<'static, Job> {
    Box::pin(async move {
        let both = cancel.child_token();
        let outcome = {
            // The client's word is looked at first: a call that is taken back already does not begin.
            let run = pin!(run_call(&environment, errand.request, &both));
            match select(pin!(errand.cancel.cancelled()), run).await {
                Either::Left(((), run)) => {
                    both.cancel();
                    run.await
                }
                Either::Right((outcome, _)) => outcome,
            }
        };
        Job::Carried(Box::new(outcome), reply)
    })
}

/// A preview that came with the question.
#[derive(Debug)]
struct Given(Option<serde_json::Value>);

impl Preview for Given {
    fn compute<'a>(&'a self, _: &'a Arguments) -> BoxFuture<'a, Option<serde_json::Value>> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

/// The gate of an agent that was given leave for everything by configuration.
struct Unasked;

impl Gate for Unasked {
    fn check<'a>(&'a self, _: GateQuestion<'a>, _: &'a CancellationToken) -> BoxFuture<'a, PermissionVerdict> {
        let verdict = PermissionVerdict { allowed: true, by: VerdictSource::Policy, reason: String::new() };
        Box::pin(std::future::ready(verdict))
    }
}

/// The gate for a call that somebody said yes to before it came.
struct AskedBefore(Arc<dyn Gate>);

impl Gate for AskedBefore {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        self.0.check(GateQuestion { asked: true, ..question }, cancel)
    }

    fn veil(&self, tool: &ToolDefinition) -> Option<Veil> {
        self.0.veil(tool)
    }
}
