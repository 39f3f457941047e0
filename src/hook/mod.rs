//! The hook points, their order and their verdicts (typescript-api.md §6).
//!
//! [`Hooks`] is the seam that the loop and the registry call. No hook leaves its input unchanged.
//! A hook that fails: before a tool it blocks the call, with the reason; elsewhere the value before it is kept.

mod clients;
mod sampler;
mod system;

use std::sync::Arc;

use crate::base::BoxFuture;
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

pub use clients::{Asked, Clients, Line, Notice};
pub use sampler::{NotSampled, SampleRequest, SampleStop, Sampled, Sampler};
pub use system::{Answer, Handle, Handle2, Handler, HookSystem, Registration};

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

/// The six hook points.
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
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before>;
    /// `tool.execute.after`.
    fn after_tool<'a>(&'a self, request: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult>;
    /// `tool.result.validate`: texts for the next round.
    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>>;
    /// `prompt.system.transform`.
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String>;
    /// Whether there is anybody at `prompt.messages.transform`. If not, it is left out: the conversation is not copied for it.
    fn hears_messages(&self) -> bool {
        true
    }
    /// `prompt.messages.transform`.
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>>;
    /// `session.compacting`: may change the summary.
    fn compacting<'a>(&'a self, messages: &'a [Message], summary: String) -> BoxFuture<'a, String>;
}

/// No hooks at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn hears(&self, _: CallPoint) -> bool {
        false
    }
    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(std::future::ready(Before::Continue(request)))
    }
    fn after_tool<'a>(&'a self, _: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        Box::pin(std::future::ready(result))
    }
    fn validate_result<'a>(&'a self, _: &'a ToolCallRequest, _: &'a ToolCallResult) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }
    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(prompt))
    }
    fn hears_messages(&self) -> bool {
        false
    }
    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(std::future::ready(messages))
    }
    fn compacting<'a>(&'a self, _: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        Box::pin(std::future::ready(summary))
    }
}
