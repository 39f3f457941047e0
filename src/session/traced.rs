//! What a collector is told of a turn: a span for the turn, and below it one for each call and each request to a model.

use std::collections::HashMap;

use tracing::Span as LogSpan;

use crate::base::trace::{Origin, Span, SpanKind, TraceContext, Tracer};
use crate::protocol::{EventBody, SessionId, TurnId, TurnStatus};
use crate::store::Came;

/// The span of a turn, and those of its calls that are not over.
pub(super) struct TurnTrace {
    origin: Origin,
    span: Span,
    calls: HashMap<String, Span>,
    tracer: Tracer,
}

impl TurnTrace {
    /// The trace of a turn that begins, with its session, itself and its model.
    pub(super) fn new(tracer: &Tracer, origin: Origin, (session, turn, model): (&SessionId, &TurnId, &str)) -> Self {
        let mut span = Span::new(tracer, "turn", (SpanKind::Internal, origin.context));
        span.set("simse.session_id", session.as_str());
        span.set("simse.turn_id", turn.as_str());
        span.set("simse.model", model);
        if let Some(request) = &origin.request_id {
            span.set("simse.request_id", request.as_ref());
        }
        Self { origin, span, calls: HashMap::new(), tracer: tracer.clone() }
    }

    /// Where what the turn does comes from.
    pub(super) fn origin(&self) -> Origin {
        Origin { request_id: self.origin.request_id.clone(), context: self.span.context() }
    }

    /// Takes note of an event; `tool` gives a call's tool its own name.
    pub(super) fn push(&mut self, event: &EventBody, tool: impl Fn(&str) -> String) {
        if !self.tracer.is_on() {
            return;
        }
        match event {
            EventBody::ToolCallStart { call_id, name, .. } => {
                let name = tool(name);
                let about = (SpanKind::Internal, self.span.context());
                let mut span = Span::new(&self.tracer, &format!("execute_tool {name}"), about);
                span.set("gen_ai.operation.name", "execute_tool");
                span.set("gen_ai.tool.name", name);
                self.calls.insert(call_id.clone(), span);
            }
            EventBody::ToolCallEnd { call_id, is_error, .. } => {
                if let Some(mut span) = self.calls.remove(call_id)
                    && *is_error
                {
                    span.fail();
                }
            }
            _ => {}
        }
    }

    /// The turn is over.
    pub(super) fn end(mut self, status: TurnStatus) {
        self.calls.clear();
        let outcome = match status {
            TurnStatus::Completed => "completed",
            TurnStatus::Aborted => "aborted",
            TurnStatus::Interrupted => "interrupted",
            TurnStatus::Failed
            | TurnStatus::Queued
            | TurnStatus::Running
            | TurnStatus::Waiting
            | TurnStatus::Paused => {
                self.span.fail();
                "failed"
            }
        };
        self.span.set("simse.turn.outcome", outcome);
    }
}

/// The span of the log's lines that a turn writes.
pub(super) fn log_span(session: &SessionId, turn: &TurnId, origin: &Origin) -> LogSpan {
    let request = origin.request_id.as_deref().unwrap_or("-");
    tracing::info_span!("turn", sessionId = session.as_str(), turnId = turn.as_str(), requestId = request)
}

/// The span of a request to a model.
pub(super) fn model_span(tracer: &Tracer, model: &str, parent: Option<TraceContext>) -> Span {
    let mut span = Span::new(tracer, &format!("chat {model}"), (SpanKind::Client, parent));
    span.set("gen_ai.operation.name", "chat");
    span.set("gen_ai.request.model", model);
    span
}

impl Came {
    /// As it is kept. None: nothing is known.
    pub(super) fn of(origin: &Origin) -> Option<Self> {
        let request_id = origin.request_id.as_deref().map(str::to_owned);
        let came = Self { request_id, traceparent: origin.context.map(|context| context.to_string()) };
        (came != Self::default()).then_some(came)
    }
}

impl From<Came> for Origin {
    fn from(came: Came) -> Self {
        // What is no place in a trace begins one of its own.
        let context = came.traceparent.and_then(|text| text.parse().ok());
        Self { request_id: came.request_id.map(Into::into), context }
    }
}
