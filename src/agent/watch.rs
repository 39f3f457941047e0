//! The loop breaker at the hooks of a turn: what it finds in results goes the way of all findings, into the log and into
//! the next request.

use std::sync::Arc;

use parking_lot::Mutex;

use super::LoopBreaker;
use crate::base::BoxFuture;
use crate::hook::{
    Before, BeforeCompaction, CallPoint, CompactionSaid, Hooks, Notification, Point, SessionEnd, SessionStart,
    Submission, Submitted, TurnStopping,
};
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};
use crate::tool::Registry;

/// The hooks of a turn, and behind them its breaker.
pub(super) struct Watched {
    pub hooks: Arc<dyn Hooks>,
    pub registry: Arc<Registry>,
    pub breaker: Arc<Mutex<LoopBreaker>>,
}

impl Hooks for Watched {
    fn hears(&self, point: CallPoint) -> bool {
        // The breaker looks at every result.
        point == CallPoint::Validate || self.hooks.hears(point)
    }

    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        self.hooks.before_tool(request)
    }

    fn after_tool<'a>(&'a self, request: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        self.hooks.after_tool(request, result)
    }

    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut findings = self.hooks.validate_result(request, result).await;
            let tool = self.registry.get(&request.name);
            let hint = self.breaker.lock().result(tool.as_ref().map(|tool| tool.definition()), result);
            findings.extend(hint);
            findings
        })
    }

    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        self.hooks.transform_system(prompt)
    }

    fn hears_messages(&self) -> bool {
        self.hooks.hears_messages()
    }

    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        self.hooks.transform_messages(messages)
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        self.hooks.compacting(messages, summary)
    }

    fn attends(&self, point: Point) -> bool {
        self.hooks.attends(point)
    }

    fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        self.hooks.session_start(start)
    }

    fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
        self.hooks.session_end(end)
    }

    fn prompt_submit(&self, prompt: Submitted) -> BoxFuture<'_, Submission> {
        self.hooks.prompt_submit(prompt)
    }

    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        self.hooks.turn_stop(stop)
    }

    fn compact_before(&self, before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        self.hooks.compact_before(before)
    }

    fn notified(&self, notification: Notification) -> BoxFuture<'_, ()> {
        self.hooks.notified(notification)
    }
}
