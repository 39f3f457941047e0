//! Hooks whose handlers are JavaScript functions. `js/hooks.cjs` composes them; Rust sees one.
//!
//! A bit for each hook point says whether it has handlers: a point without costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure};
use super::error::to_json;
use crate::base::BoxFuture;
use crate::hook::{
    Before, BeforeCompaction, CallPoint, CompactionSaid, Hooks, Line, Notification, Point as Around, SessionEnd,
    SessionStart, Submission, Submitted, TurnStopping, read_messages, show_message,
};
use crate::protocol::{Message, ToolCallRequest, ToolCallResult};

/// The hook points, in the order of their bits in the mask.
#[derive(Debug, Clone, Copy)]
enum Point {
    Before,
    After,
    Validate,
    System,
    Messages,
    Compacting,
    SessionStart,
    SessionEnd,
    PromptSubmit,
    TurnStop,
    CompactBefore,
    Notification,
}

impl From<Around> for Point {
    fn from(point: Around) -> Self {
        match point {
            Around::SessionStart => Self::SessionStart,
            Around::SessionEnd => Self::SessionEnd,
            Around::PromptSubmit => Self::PromptSubmit,
            Around::TurnStop => Self::TurnStop,
            Around::CompactBefore => Self::CompactBefore,
            Around::Notification => Self::Notification,
        }
    }
}

impl Point {
    fn bit(self) -> u32 {
        1 << (self as u32)
    }

    fn operation(self) -> &'static str {
        match self {
            Self::Before => "hook:tool.execute.before",
            Self::After => "hook:tool.execute.after",
            Self::Validate => "hook:tool.result.validate",
            Self::System => "hook:prompt.system.transform",
            Self::Messages => "hook:prompt.messages.transform",
            Self::Compacting => "hook:session.compacting",
            Self::SessionStart => "hook:session.start",
            Self::SessionEnd => "hook:session.end",
            Self::PromptSubmit => "hook:prompt.submit",
            Self::TurnStop => "hook:turn.stop",
            Self::CompactBefore => "hook:session.compact.before",
            Self::Notification => "hook:notification",
        }
    }
}

/// The hooks of the JavaScript object `target`.
pub(super) struct JsHooks {
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
    /// A bit for each point that has handlers.
    pub(super) mask: Arc<AtomicU32>,
    /// To the clients of the session whose turn it is, where there is one.
    pub(super) line: Line,
}

impl JsHooks {
    fn has(&self, point: Point) -> bool {
        self.mask.load(Ordering::Acquire) & point.bit() != 0
    }

    async fn ask(&self, point: Point, context: Value) -> Result<Value, String> {
        let never = CancellationToken::new();
        // What a hook around a call asks belongs to that call.
        let line = match context["request"]["id"].as_str().filter(|_| self.line.is_open()) {
            Some(call_id) => self.line.for_call(call_id),
            None => self.line.clone(),
        };
        match self.bridge.call_with((self.target, point.operation()), to_json(&context), &line, &never).await {
            Ok(text) => serde_json::from_str(&text).map_err(|e| format!("what the hook returned is not JSON: {e}")),
            Err(CallFailure::Threw(message) | CallFailure::BadInput(message)) => Err(message),
            Err(CallFailure::Aborted) => Err("the JavaScript side is gone".to_owned()),
        }
    }

    /// Asks a point that changes a value. The value before it is kept when the hook fails or answers with something else.
    async fn change<T>(&self, point: Point, context: Value, read: impl Fn(Value) -> Option<T>) -> Option<T> {
        let problem = match self.ask(point, context).await {
            Ok(value) => match read(value) {
                Some(changed) => return Some(changed),
                None => "it returned something of another form".to_owned(),
            },
            Err(problem) => problem,
        };
        tracing::warn!(hook = point.operation(), problem, "a hook failed; the value before it is kept");
        None
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).ok()
}

fn read_before(value: Value) -> Before {
    if let Some(reason) = block(&value) {
        return Before::Blocked { reason };
    }
    match serde_json::from_value(value) {
        Ok(request) => Before::Continue(request),
        Err(e) => Before::Blocked { reason: format!("the hook returned no tool call: {e}") },
    }
}

impl Hooks for JsHooks {
    fn with_clients(&self, line: Line) -> Option<Arc<dyn Hooks>> {
        Some(Arc::new(Self {
            bridge: Arc::clone(&self.bridge),
            target: self.target,
            mask: Arc::clone(&self.mask),
            line,
        }))
    }

    fn hears(&self, point: CallPoint) -> bool {
        self.has(match point {
            CallPoint::Before => Point::Before,
            CallPoint::After => Point::After,
            CallPoint::Validate => Point::Validate,
        })
    }

    fn before_tool(&self, request: ToolCallRequest) -> BoxFuture<'_, Before> {
        if !self.has(Point::Before) {
            return Box::pin(std::future::ready(Before::Continue(request)));
        }
        Box::pin(async move {
            match self.ask(Point::Before, json!({ "request": request })).await {
                Ok(value) => read_before(value),
                Err(reason) => Before::Blocked { reason },
            }
        })
    }

    fn after_tool<'a>(&'a self, request: &'a ToolCallRequest, result: ToolCallResult) -> BoxFuture<'a, ToolCallResult> {
        if !self.has(Point::After) {
            return Box::pin(std::future::ready(result));
        }
        Box::pin(async move {
            let context = json!({ "request": request, "result": &result });
            self.change(Point::After, context, read).await.unwrap_or(result)
        })
    }

    fn validate_result<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        result: &'a ToolCallResult,
    ) -> BoxFuture<'a, Vec<String>> {
        if !self.has(Point::Validate) {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let context = json!({ "request": request, "result": result });
        Box::pin(async move { self.change(Point::Validate, context, read).await.unwrap_or_default() })
    }

    fn transform_system(&self, prompt: String) -> BoxFuture<'_, String> {
        if !self.has(Point::System) {
            return Box::pin(std::future::ready(prompt));
        }
        Box::pin(async move {
            let context = json!({ "prompt": &prompt });
            self.change(Point::System, context, read).await.unwrap_or(prompt)
        })
    }

    fn transform_messages(&self, messages: Vec<Message>) -> BoxFuture<'_, Vec<Message>> {
        if !self.has(Point::Messages) {
            return Box::pin(std::future::ready(messages));
        }
        Box::pin(async move {
            let shown: Vec<Value> = messages.iter().map(show_message).collect();
            let changed = self.change(Point::Messages, json!({ "messages": shown }), read_messages).await;
            changed.unwrap_or(messages)
        })
    }

    fn compacting<'a>(&'a self, messages: &'a [Message], summary: String) -> BoxFuture<'a, String> {
        if !self.has(Point::Compacting) {
            return Box::pin(std::future::ready(summary));
        }
        Box::pin(async move {
            let shown: Vec<Value> = messages.iter().map(show_message).collect();
            let context = json!({ "messages": shown, "summary": &summary });
            self.change(Point::Compacting, context, read).await.unwrap_or(summary)
        })
    }

    fn attends(&self, point: Around) -> bool {
        self.has(point.into())
    }

    fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move { self.change(Point::SessionStart, json!(start), read).await.unwrap_or_default() })
    }

    fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.change(Point::SessionEnd, json!(end), |_| Some(())).await.unwrap_or_default() })
    }

    fn prompt_submit(&self, submitted: Submitted) -> BoxFuture<'_, Submission> {
        Box::pin(async move {
            match self.ask(Point::PromptSubmit, json!(submitted)).await {
                Ok(value) => read_submission(value, &submitted.prompt),
                Err(reason) => Submission::Blocked { reason },
            }
        })
    }

    fn turn_stop(&self, stop: TurnStopping) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async move { self.change(Point::TurnStop, json!(stop), read).await.unwrap_or_default() })
    }

    fn compact_before(&self, before: BeforeCompaction) -> BoxFuture<'_, CompactionSaid> {
        Box::pin(async move {
            let said = self.change(Point::CompactBefore, json!(before), |value| Some(read_focus(value))).await;
            said.unwrap_or(CompactionSaid::Continue { focus: None })
        })
    }

    fn notified(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.change(Point::Notification, json!(notification), |_| Some(())).await.unwrap_or_default();
        })
    }
}

/// The reason of a block. None: it is none. What is neither yes nor no was meant as something, and blocks as well.
fn block(value: &Value) -> Option<String> {
    match value.get("blocked") {
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Bool(true)) => {
            Some(value.get("reason").and_then(Value::as_str).unwrap_or("a hook blocked it").to_owned())
        }
        Some(_) => Some("the hook returned a `blocked` that is neither true nor false".to_owned()),
    }
}

/// What hooks make of a prompt. What is none of it blocks.
fn read_submission(value: Value, before: &str) -> Submission {
    if let Some(reason) = block(&value) {
        return Submission::Blocked { reason };
    }
    let Value::Object(mut fields) = value else {
        return Submission::Blocked { reason: "the hook returned something else than a prompt".to_owned() };
    };
    let prompt = match fields.remove("prompt") {
        None | Some(Value::Null) => None,
        Some(Value::String(prompt)) => Some(prompt).filter(|prompt| prompt != before),
        Some(_) => return Submission::Blocked { reason: "the hook returned a `prompt` that is no text".to_owned() },
    };
    match fields.remove("context").map_or(Some(Vec::new()), read) {
        Some(context) => Submission::Continue { prompt, context },
        None => Submission::Blocked { reason: "the hook returned a `context` that is no list of texts".to_owned() },
    }
}

fn read_focus(value: Value) -> CompactionSaid {
    match (block(&value), value) {
        (Some(reason), _) => CompactionSaid::Blocked { reason },
        (None, Value::Object(mut fields)) => CompactionSaid::Continue { focus: text_field(&mut fields, "focus") },
        (None, _) => CompactionSaid::Continue { focus: None },
    }
}

fn text_field(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_before_a_tool_is_a_call_or_a_block_or_else_a_block() {
        let request = json!({"id": "1", "name": "n", "arguments": {}});
        assert!(matches!(read_before(request), Before::Continue(r) if r.name == "n"));
        assert_eq!(read_before(json!({"blocked": true, "reason": "no"})), Before::Blocked { reason: "no".into() });
        let odd = json!({"id": "1", "name": "n", "arguments": {}, "blocked": "true"});
        assert!(matches!(read_before(odd), Before::Blocked { reason } if reason.contains("neither true nor false")));
        assert!(matches!(read_before(json!(17)), Before::Blocked { .. }));
    }

    #[test]
    fn an_answer_to_a_prompt_is_a_prompt_or_a_block_or_else_a_block() {
        let goes_on = |prompt: Option<&str>, context: &[&str]| Submission::Continue {
            prompt: prompt.map(str::to_owned),
            context: context.iter().map(|text| (*text).to_owned()).collect(),
        };
        #[rustfmt::skip]
        let table = [
            (json!({ "prompt": "p" }), Some(goes_on(None, &[]))),
            (json!({ "prompt": "q", "context": ["c"] }), Some(goes_on(Some("q"), &["c"]))),
            (json!({}), Some(goes_on(None, &[]))),
            (json!({ "blocked": true, "reason": "no" }), Some(Submission::Blocked { reason: "no".into() })),
            (json!({ "blocked": false, "prompt": null }), Some(goes_on(None, &[]))),
            (json!({ "context": "c" }), None), (json!("q"), None), (json!(null), None),
            (json!({ "blocked": "true" }), None), (json!({ "blocked": 1 }), None), (json!({ "prompt": 5 }), None),
        ];
        for (value, want) in table {
            let said = read_submission(value.clone(), "p");
            match want {
                Some(want) => assert_eq!(said, want, "{value}"),
                None => assert!(matches!(said, Submission::Blocked { .. }), "{value}"),
            }
        }
        assert_eq!(read_focus(json!({ "focus": "f" })), CompactionSaid::Continue { focus: Some("f".into()) });
        assert_eq!(read_focus(json!(1)), CompactionSaid::Continue { focus: None });
    }
}
