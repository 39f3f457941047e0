//! The hook points, their order and their verdicts (typescript-api.md §6).
//!
//! [`Hooks`] is the seam that the loop, the registry and the sessions call. No hook leaves its input unchanged.
//! A hook that fails: before a tool it blocks the call and before a prompt the prompt, with the reason, as what nobody could look at
//! does not pass; elsewhere the value before it is kept.

mod clients;
mod command;
mod herald;
mod points;
mod row;
mod sampler;
mod shown;
mod system;
mod texts;

use std::future::ready;
use std::sync::Arc;

use crate::base::BoxFuture;
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

pub use clients::{Asked, Clients, Line, Notice};
pub use command::CommandHooks;
pub use herald::Herald;
pub use points::{
    BeforeCompaction, CompactionSaid, EndReason, News, Notification, Point, SessionEnd, SessionStart, StartSource,
    StopKind, Submission, Submitted, TurnNews, TurnStopping, Whose,
};
pub use row::HookRow;
pub use sampler::{NotSampled, SampleRequest, SampleStop, Sampled, Sampler};
pub use shown::{read_messages, show_message};
pub use system::{Answer, Handle, Handle2, Handler, HookSystem, Registration};
pub use texts::bounded;

/// What a hook before a tool says.
#[derive(Debug, Clone, PartialEq)]
pub enum Before {
    /// Go on, with this request.
    Continue(ToolCallRequest),
    /// Do not run it.
    Blocked {
        /// Why, for the model.
        reason: String,
    },
}

/// The points around a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPoint {
    /// `tool.execute.before`.
    Before,
    /// `tool.execute.after`.
    After,
    /// `tool.result.validate`.
    Validate,
}

/// The hook points. What is left out changes nothing; who wraps others hands every one on.
pub trait Hooks: Send + Sync + 'static {
    /// The same hooks for one turn, whose clients they can ask and tell. None: they ask nobody.
    fn with_clients(&self, _line: Line) -> Option<Arc<dyn Hooks>> {
        None
    }
    /// Whether there is anybody at this point. If not, it is left out: nothing is copied for it.
    fn hears(&self, _point: CallPoint) -> bool {
        true
    }
    /// `tool.execute.before`.
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(ready(Before::Continue(request)))
    }
    /// `tool.execute.after`.
    fn after_tool<'a>(
        &'a self,
        _request: &'a ToolCallRequest,
        result: ToolCallResult,
    ) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(ready(result))
    }
    /// `tool.result.validate`: texts for the next round.
    fn validate_result<'a>(
        &'a self,
        _request: &'a ToolCallRequest,
        _result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(ready(Vec::new()))
    }
    /// `prompt.system.transform`.
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(ready(prompt))
    }
    /// Whether there is anybody at `prompt.messages.transform`. If not, it is left out: the conversation is not copied for it.
    fn hears_messages(&self) -> bool {
        true
    }
    /// `prompt.messages.transform`.
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(ready(messages))
    }
    /// `session.compacting`: may change the summary.
    fn compacting<'a>(&'a self, _messages: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(ready(summary))
    }
    /// Whether there is anybody at this point. If not, it is left out.
    fn attends(&self, _point: Point) -> bool {
        true
    }
    /// `session.start`: texts that the model is told with the prompt.
    fn session_start(&self, _start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        Box::pin(ready(Vec::new()))
    }
    /// `session.end`.
    fn session_end(&self, _end: SessionEnd) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
    /// `prompt.submit`.
    fn prompt_submit(&self, _prompt: Submitted) -> BoxFuture<'_, Submission> {
        Box::pin(ready(Submission::unchanged()))
    }
    /// `turn.stop`: texts with which the turn goes on. None: it ends.
    fn turn_stop(&self, _stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        Box::pin(ready(Vec::new()))
    }
    /// `session.compact.before`.
    fn compact_before(&self, _before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        Box::pin(ready(CompactionSaid::Continue { focus: None }))
    }
    /// `notification`.
    fn notified(&self, _notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// No hooks at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn hears(&self, _: CallPoint) -> bool {
        false
    }
    fn hears_messages(&self) -> bool {
        false
    }
    fn attends(&self, _: Point) -> bool {
        false
    }
}
