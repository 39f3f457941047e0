//! The events around a call: what it hands in while it runs, and what ends it.
//!
//! Where nobody takes events, nothing is made for them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, CallOutcome};
use super::{CallEnd, CallFate, SinkError};
use crate::hook::Line;
use crate::protocol::{ErrorBody, ErrorCode, EventBody};
use crate::tool::ToolEvents;

impl CallEnvironment {
    /// Hands in an event, where somebody takes them.
    pub(super) fn emit(&self, event: impl FnOnce() -> EventBody) -> Result<(), SinkError> {
        self.sink.as_ref().map_or(Ok(()), |sink| sink.emit(event()))
    }

    /// What a tool's own events go to. A sink that fails is noticed by the turn at its next event.
    pub(super) fn tool_events(&self) -> ToolEvents {
        let ear = self.ear.clone();
        let Some(sink) = self.sink.clone() else { return ToolEvents::default().heard_by(ear) };
        let audience = Arc::clone(&sink);
        let events = ToolEvents::new(move |event| drop(sink.emit(event)));
        events.while_wanted(move || audience.has_audience()).heard_by(ear)
    }

    /// A call's line to the clients. Costs nothing where it leads to nobody.
    pub(super) fn line(&self, call_id: &str, cancel: &CancellationToken) -> Line {
        if self.clients.is_open() { self.clients.for_call(call_id).until(cancel.clone()) } else { Line::default() }
    }

    /// Hands in the events that end a call. A sink that fails is noticed by the turn at its next event.
    pub(super) fn report(&self, outcome: &CallOutcome) {
        let Some(sink) = &self.sink else { return };
        let (call_id, name) = (outcome.result.id.clone(), outcome.result.name.clone());
        if let Some(timeout_ms) = outcome.timed_out_ms {
            let _ = sink.emit(EventBody::ToolTimeout { name: name.clone(), timeout_ms });
        }
        if outcome.result.is_error {
            // A hook made a failure of it: its words are what the model is told.
            let said =
                || ErrorBody { code: ErrorCode::Internal, message: outcome.result.output.clone(), details: None };
            let error = outcome.failure.clone().unwrap_or_else(said);
            let _ = sink.emit(EventBody::ToolCallError { call_id: call_id.clone(), name: name.clone(), error });
        }
        let told = sink.emit(EventBody::ToolCallEnd {
            call_id,
            name,
            output: outcome.result.output.clone(),
            is_error: outcome.result.is_error,
            duration_ms: outcome.result.duration_ms.unwrap_or(0),
            parts: outcome.result.parts.clone(),
            details: outcome.result.details.clone(),
            findings: outcome.findings.clone(),
        });
        if told.is_ok() {
            sink.call_ended(CallEnd { name: &outcome.result.name, how: outcome.fate(), ran: outcome.ran });
        }
    }
}

impl CallOutcome {
    /// What became of the call; a hook may have made a success or a failure of it.
    fn fate(&self) -> CallFate {
        match self.ran {
            None => CallFate::Refused,
            Some(_) if !self.result.is_error => CallFate::Done,
            Some(_) if self.timed_out_ms.is_some() => CallFate::TimedOut,
            Some(_) => CallFate::Failed,
        }
    }

    /// Gives it the id and name that were asked for, whatever a hook made of them.
    pub(super) fn name(&mut self, (id, name): (&str, &str)) {
        if self.result.id != id {
            id.clone_into(&mut self.result.id);
        }
        if self.result.name != name {
            name.clone_into(&mut self.result.name);
        }
    }
}
