//! Several hooks as one, in a row: what one leaves is what the next one is given.
//!
//! The first block ends a row; texts are joined. One that panics is a hook that failed: it blocks where that is said of failures,
//! and changes nothing elsewhere.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::{
    Before, BeforeCompaction, CallPoint, CompactionSaid, Hooks, Line, Notification, Point, SessionEnd, SessionStart,
    Submission, Submitted, TurnStopping,
};
use crate::base::BoxFuture;
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

/// Why a hook that panicked blocks.
const PANICKED: &str = "a hook failed: the hook panicked";

/// Hooks in a row.
#[derive(Clone)]
pub struct HookRow(Arc<[Arc<dyn Hooks>]>);

impl std::fmt::Debug for HookRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HookRow").field(&self.0.len()).finish()
    }
}

impl HookRow {
    /// These, in this order.
    pub fn new(all: Vec<Arc<dyn Hooks>>) -> Self {
        Self(all.into())
    }
}

/// What it comes to. None: it panicked.
async fn caught<T>(point: &str, work: BoxFuture<'_, T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await.ok();
    if done.is_none() {
        tracing::warn!(hook = point, "a hook panicked");
    }
    done
}

impl Hooks for HookRow {
    fn with_clients(&self, line: Line) -> Option<Arc<dyn Hooks>> {
        let with = |hooks: &Arc<dyn Hooks>| hooks.with_clients(line.clone()).unwrap_or_else(|| Arc::clone(hooks));
        Some(Arc::new(Self(self.0.iter().map(with).collect())))
    }

    fn hears(&self, point: CallPoint) -> bool {
        self.0.iter().any(|hooks| hooks.hears(point))
    }

    fn before_tool(&self, mut request: ToolCallRequest) -> BoxFuture<'_, Before> {
        Box::pin(async move {
            for hooks in self.0.iter().filter(|hooks| hooks.hears(CallPoint::Before)) {
                match caught("tool.execute.before", hooks.before_tool(request)).await {
                    Some(Before::Continue(changed)) => request = changed,
                    Some(blocked @ Before::Blocked { .. }) => return blocked,
                    None => return Before::Blocked { reason: PANICKED.to_owned() },
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
        Box::pin(async move {
            for hooks in self.0.iter().filter(|hooks| hooks.hears(CallPoint::After)) {
                let changed = caught("tool.execute.after", hooks.after_tool(request, result.clone())).await;
                result = changed.unwrap_or(result);
            }
            result
        })
    }

    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut findings = Vec::new();
            for hooks in self.0.iter().filter(|hooks| hooks.hears(CallPoint::Validate)) {
                let found = caught("tool.result.validate", hooks.validate_result(request, result)).await;
                findings.extend(found.into_iter().flatten());
            }
            findings
        })
    }

    fn transform_system(&self, mut prompt: String) -> BoxFuture<'_, String> {
        Box::pin(async move {
            for hooks in &*self.0 {
                let changed = caught("prompt.system.transform", hooks.transform_system(prompt.clone())).await;
                prompt = changed.unwrap_or(prompt);
            }
            prompt
        })
    }

    fn hears_messages(&self) -> bool {
        self.0.iter().any(|hooks| hooks.hears_messages())
    }

    fn transform_messages(&self, mut messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        Box::pin(async move {
            for hooks in self.0.iter().filter(|hooks| hooks.hears_messages()) {
                let changed = caught("prompt.messages.transform", hooks.transform_messages(messages.clone())).await;
                messages = changed.unwrap_or(messages);
            }
            messages
        })
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], mut summary: String) -> BoxFuture<'a, String> {
        Box::pin(async move {
            for hooks in &*self.0 {
                let changed = caught("session.compacting", hooks.compacting(messages, summary.clone())).await;
                summary = changed.unwrap_or(summary);
            }
            summary
        })
    }

    fn attends(&self, point: Point) -> bool {
        self.0.iter().any(|hooks| hooks.attends(point))
    }

    fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut texts = Vec::new();
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::SessionStart)) {
                texts.extend(caught("session.start", hooks.session_start(start.clone())).await.into_iter().flatten());
            }
            texts
        })
    }

    fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::SessionEnd)) {
                caught("session.end", hooks.session_end(end.clone())).await;
            }
        })
    }

    fn prompt_submit(&self, mut submitted: Submitted) -> BoxFuture<'_, Submission> {
        Box::pin(async move {
            let (mut changed, mut all) = (None, Vec::new());
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::PromptSubmit)) {
                match caught("prompt.submit", hooks.prompt_submit(submitted.clone())).await {
                    Some(Submission::Continue { prompt, context }) => {
                        all.extend(context);
                        if let Some(prompt) = prompt {
                            submitted.put(prompt.clone());
                            changed = Some(prompt);
                        }
                    }
                    Some(blocked @ Submission::Blocked { .. }) => return blocked,
                    None => return Submission::Blocked { reason: PANICKED.to_owned() },
                }
            }
            Submission::Continue { prompt: changed, context: all }
        })
    }

    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut texts = Vec::new();
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::TurnStop)) {
                texts.extend(caught("turn.stop", hooks.turn_stop(stop.clone())).await.into_iter().flatten());
            }
            texts
        })
    }

    fn compact_before(&self, mut before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        Box::pin(async move {
            let mut changed = None;
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::CompactBefore)) {
                match caught("session.compact.before", hooks.compact_before(before.clone())).await {
                    Some(CompactionSaid::Continue { focus: Some(focus) }) => {
                        before.focus = Some(focus.clone());
                        changed = Some(focus);
                    }
                    Some(blocked @ CompactionSaid::Blocked { .. }) => return blocked,
                    Some(CompactionSaid::Continue { focus: None }) | None => {}
                }
            }
            CompactionSaid::Continue { focus: changed }
        })
    }

    fn notified(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for hooks in self.0.iter().filter(|hooks| hooks.attends(Point::Notification)) {
                caught("notification", hooks.notified(notification.clone())).await;
            }
        })
    }
}
