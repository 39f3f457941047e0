//! Makes events of what a JavaScript model yields. Pure: batches in, events out.
//!
//! `js/models.cjs` has held each chunk against its form and has the words for those that do not fit. Here calls are put
//! together of their pieces; a call counts when the model has stopped. A generator that returns has stopped.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::base::limit;
use crate::model::{ModelError, ModelEvent, StopReason};
use crate::protocol::{Original, ToolCallRequest, Usage};

/// What replies of JavaScript models are called that are given back in their own words.
pub(super) const WIRE: &str = "javascript";
/// Calls of one reply, at most.
const CALLS_MAX: usize = 1_000;

/// One chunk, as `js/models.cjs` writes it: a text is a piece of the answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Chunk {
    Text(String),
    Other(Other),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Other {
    Reasoning { text: String },
    ToolCall(CallPiece),
    ToolCallDelta(CallPiece),
    Usage(GivenUsage),
    Original { items: Vec<Value> },
    Complete { finish_reason: Option<GivenReason> },
}

/// A call or a piece of one. Arguments are JSON in a text, which may be cut anywhere in a piece.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    total_tokens: Option<u64>,
    #[serde(default)]
    cached_input_tokens: u64,
    #[serde(default)]
    cache_write_tokens: u64,
    #[serde(default)]
    reasoning_tokens: u64,
}

impl From<GivenUsage> for Usage {
    fn from(given: GivenUsage) -> Self {
        let both = given.input_tokens.saturating_add(given.output_tokens);
        Self {
            input_tokens: given.input_tokens,
            output_tokens: given.output_tokens,
            total_tokens: given.total_tokens.unwrap_or(both),
            cached_input_tokens: given.cached_input_tokens,
            cache_write_tokens: given.cache_write_tokens,
            reasoning_tokens: given.reasoning_tokens,
            ..Self::default()
        }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum GivenReason {
    EndTurn,
    ToolUse,
    Length,
    ContentFilter,
    Refusal,
}

/// How a model failed, as JavaScript has sorted it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failure {
    message: String,
    kind: FailureKind,
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    Transient,
    Unauthorized,
    Refused,
    ContextOverflow,
    Quota,
    ContentFilter,
    Malformed,
    Unavailable,
    Aborted,
}

impl From<Failure> for ModelError {
    fn from(Failure { message, kind, retry_after_ms }: Failure) -> Self {
        match kind {
            FailureKind::Transient => {
                let retry_after = retry_after_ms.map(std::time::Duration::from_millis);
                Self::Transient { message, retry_after }
            }
            FailureKind::Unauthorized => Self::Unauthorized(message),
            FailureKind::Refused => Self::Refused(message),
            FailureKind::ContextOverflow => Self::Overflow(message),
            FailureKind::Quota => Self::Spent(message),
            FailureKind::ContentFilter => Self::Blocked(message),
            FailureKind::Malformed => Self::Malformed(message),
            FailureKind::Unavailable => Self::Unavailable(message),
            FailureKind::Aborted => Self::Aborted,
        }
    }
}

/// A call of which parts have come.
#[derive(Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// It came in one piece: no piece belongs to it.
    whole: bool,
}

/// One reply as it comes.
#[derive(Default)]
pub(super) struct Assembler {
    /// The model's id.
    model: String,
    /// The whole reply in the model's own words, as far as it has said.
    original: Vec<Value>,
    calls: Vec<Partial>,
    bytes: usize,
    done: bool,
}

impl Assembler {
    /// Of a reply of the model of that id.
    pub(super) fn of(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Takes a batch: a JSON array of chunks.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] for what is too much. What came before it is in `events`.
    pub(super) fn take(&mut self, batch: &str, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.count(batch.len())?;
        let chunks: Vec<Chunk> = serde_json::from_str(batch)
            .map_err(|error| ModelError::Malformed(format!("what the model yielded cannot be read: {error}")))?;
        for chunk in chunks {
            if self.done {
                break;
            }
            match chunk {
                Chunk::Text(text) => events.push(ModelEvent::Text(text)),
                Chunk::Other(other) => self.take_other(other, events)?,
            }
        }
        Ok(())
    }

    fn take_other(&mut self, other: Other, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        match other {
            Other::Reasoning { text } => events.push(ModelEvent::Reasoning(text)),
            Other::ToolCall(piece) => self.begin(piece, true)?,
            Other::ToolCallDelta(piece) => self.add(piece)?,
            Other::Usage(usage) => events.push(ModelEvent::Usage(usage.into())),
            // Who says it again says it of more.
            Other::Original { items } => self.original = items,
            Other::Complete { finish_reason } => self.finish(finish_reason, events),
        }
        Ok(())
    }

    /// The generator has returned.
    pub(super) fn close(&mut self, events: &mut Vec<ModelEvent>) {
        if !self.done {
            self.finish(None, events);
        }
    }

    /// Whether the last event was given out.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        let max = limit::MODEL_REPLY_BYTES_MAX;
        if self.bytes <= max {
            return Ok(());
        }
        Err(ModelError::Malformed(format!("the model's reply is longer than {max} bytes")))
    }

    fn begin(&mut self, piece: CallPiece, whole: bool) -> Result<(), ModelError> {
        if self.calls.len() >= CALLS_MAX {
            return Err(ModelError::Malformed(format!("the model's reply has more than {CALLS_MAX} calls")));
        }
        self.calls.push(Partial {
            index: piece.index,
            id: piece.id.unwrap_or_default(),
            name: piece.name.unwrap_or_default(),
            arguments: piece.arguments.unwrap_or_default(),
            whole,
        });
        Ok(())
    }

    fn add(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        let Some(at) = self.place_of(&piece) else { return self.begin(piece, false) };
        let call = &mut self.calls[at];
        if let Some(id) = piece.id {
            call.id = id;
        }
        // Some repeat the whole name with every piece.
        if let Some(name) = piece.name.filter(|name| *name != call.name) {
            call.name.push_str(&name);
        }
        call.arguments.push_str(piece.arguments.as_deref().unwrap_or_default());
        Ok(())
    }

    /// Which call a piece belongs to: by its index, else by its id, else the last one that comes in pieces. None: a new one.
    fn place_of(&self, piece: &CallPiece) -> Option<usize> {
        let open = |call: &Partial| !call.whole;
        match (piece.index, piece.id.as_deref()) {
            (Some(_), _) => self.calls.iter().rposition(|call| open(call) && call.index == piece.index),
            (None, Some(id)) => self.calls.iter().rposition(|call| open(call) && call.id == id),
            (None, None) => self.calls.iter().rposition(open),
        }
    }

    /// Gives out the calls and the end.
    fn finish(&mut self, reason: Option<GivenReason>, events: &mut Vec<ModelEvent>) {
        self.done = true;
        let calls = std::mem::take(&mut self.calls);
        let stop = match reason {
            Some(GivenReason::Length) => StopReason::Length,
            Some(GivenReason::ContentFilter) => StopReason::ContentFilter,
            Some(GivenReason::Refusal) => StopReason::Refusal,
            None | Some(GivenReason::EndTurn | GivenReason::ToolUse) if !calls.is_empty() => StopReason::ToolUse,
            Some(GivenReason::ToolUse) => StopReason::ToolUse,
            None | Some(GivenReason::EndTurn) => StopReason::EndTurn,
        };
        let items = std::mem::take(&mut self.original);
        if !items.is_empty() {
            let original = Original { wire: WIRE.to_owned(), model: self.model.clone(), items, paused: false };
            events.push(ModelEvent::Original(Arc::new(original)));
        }
        let length = stop == StopReason::Length;
        events.extend(calls.into_iter().map(|call| call.into_event(length)));
        events.push(ModelEvent::Finished(stop));
    }
}

impl Partial {
    fn into_event(self, length: bool) -> ModelEvent {
        let Self { id, name, arguments, .. } = self;
        let bad = |problem: String| ModelEvent::BadCall { id: id.clone(), name: name.clone(), problem };
        if name.is_empty() {
            return bad("the call names no tool".into());
        }
        if arguments.trim().is_empty() {
            return ModelEvent::Call(ToolCallRequest { id, name, arguments: Map::new() });
        }
        match serde_json::from_str::<Value>(&arguments) {
            Ok(Value::Object(arguments)) => ModelEvent::Call(ToolCallRequest { id, name, arguments }),
            Ok(_) => bad("the arguments must be one JSON object".into()),
            Err(_) if length => bad(format!(
                "the reply reached its limit of tokens inside the arguments, after {} bytes of them; nothing was run. \
                 Use fewer or shorter arguments",
                arguments.len()
            )),
            Err(error) => bad(format!("the arguments are not a JSON object: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What comes of these batches and the generator's return.
    fn events_of(batches: &[Value]) -> Result<Vec<ModelEvent>, ModelError> {
        let (mut assembler, mut events) = (Assembler::default(), Vec::new());
        for batch in batches {
            assembler.take(&batch.to_string(), &mut events)?;
        }
        assembler.close(&mut events);
        Ok(events)
    }

    fn call(id: &str, name: &str, arguments: Value) -> ModelEvent {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        ModelEvent::Call(ToolCallRequest { id: id.into(), name: name.into(), arguments })
    }

    fn piece(more: Value) -> Value {
        let Value::Object(mut piece) = more else { panic!("{more}") };
        piece.insert("type".into(), "tool_call_delta".into());
        Value::Object(piece)
    }

    #[test]
    fn what_is_yielded_becomes_events_in_its_order() {
        use ModelEvent::{Finished, Reasoning, Text};
        let original = |item: Value| {
            ModelEvent::Original(Arc::new(Original {
                wire: WIRE.into(),
                model: String::new(),
                items: vec![item],
                paused: false,
            }))
        };
        let usage = |input_tokens, output_tokens, total_tokens| {
            ModelEvent::Usage(Usage { input_tokens, output_tokens, total_tokens, ..Usage::default() })
        };
        #[rustfmt::skip]
        let table = [
            (vec![], vec![Finished(StopReason::EndTurn)]),
            (vec![json!(["a", {"type": "reasoning", "text": "r"}]), json!(["b"])],
                vec![Text("a".into()), Reasoning("r".into()), Text("b".into()), Finished(StopReason::EndTurn)]),
            (vec![json!([{"type": "usage", "inputTokens": 3}, {"type": "complete", "finishReason": "length"}, "late"])],
                vec![usage(3, 0, 3), Finished(StopReason::Length)]),
            (vec![json!([{"type": "usage", "inputTokens": 3, "outputTokens": 4, "totalTokens": 9}])],
                vec![usage(3, 4, 9), Finished(StopReason::EndTurn)]),
            (vec![json!([{"type": "original", "items": [1]}, {"type": "original", "items": [{"a": 2}]}, "b"])],
                vec![Text("b".into()), original(json!({"a": 2})), Finished(StopReason::EndTurn)]),
            (vec![json!([{"type": "original", "items": []}])], vec![Finished(StopReason::EndTurn)]),
            (vec![json!([{"type": "complete", "finishReason": "content_filter"}])], vec![Finished(StopReason::ContentFilter)]),
        ];
        for (batches, want) in table {
            assert_eq!(events_of(&batches), Ok(want), "{batches:?}");
        }
    }

    #[test]
    fn calls_are_put_together_of_their_pieces() {
        let done = || ModelEvent::Finished(StopReason::ToolUse);
        let whole = |id: &str| json!({"type": "tool_call", "id": id, "name": "t", "arguments": "{\"a\":1}"});
        #[rustfmt::skip]
        let table = [
            // Whole ones, without an id too.
            (vec![whole("1"), json!({"type": "tool_call", "name": "t", "arguments": ""})],
                vec![call("1", "t", json!({"a": 1})), call("", "t", json!({}))]),
            // By index, cut anywhere, mixed; the id comes late.
            (vec![piece(json!({"index": 0, "name": "a", "arguments": "{\"x"})), piece(json!({"index": 1, "name": "b"})),
                  piece(json!({"index": 0, "id": "i", "arguments": "\":2}"})), piece(json!({"index": 1, "arguments": "{}"}))],
                vec![call("i", "a", json!({"x": 2})), call("", "b", json!({}))]),
            // By id; and without either: the last one. One that came whole takes no piece.
            (vec![piece(json!({"id": "1", "name": "a"})), piece(json!({"id": "2", "name": "b", "arguments": "{"})), whole("w"),
                  piece(json!({"arguments": "}"})), piece(json!({"id": "1", "arguments": "{}"}))],
                vec![call("1", "a", json!({})), call("2", "b", json!({})), call("w", "t", json!({"a": 1}))]),
        ];
        for (chunks, mut want) in table {
            want.push(done());
            assert_eq!(events_of(&[Value::Array(chunks.clone())]), Ok(want), "{chunks:?}");
        }
    }

    #[test]
    fn calls_that_cannot_be_read_are_told_and_not_run() {
        let length = json!({"type": "complete", "finishReason": "length"});
        #[rustfmt::skip]
        let table = [
            (json!([{"type": "tool_call", "id": "1", "arguments": "{}"}]), "names no tool"),
            (json!([{"type": "tool_call", "id": "1", "name": "t", "arguments": "[1]"}]), "must be one JSON object"),
            (json!([{"type": "tool_call", "id": "1", "name": "t", "arguments": "{\"a\":"}]), "not a JSON object"),
            (json!([{"type": "tool_call_delta", "id": "1", "name": "t", "arguments": "{\"a\":"}, length]), "limit of tokens inside the arguments, after 5 bytes"),
        ];
        for (batch, want) in table {
            let events = events_of(std::slice::from_ref(&batch)).unwrap();
            let Some(ModelEvent::BadCall { problem, .. }) = events.first() else { panic!("{events:?}") };
            assert!(problem.contains(want), "{problem}");
        }
    }

    #[test]
    fn failures_keep_their_kind() {
        let retry_after = Some(std::time::Duration::from_millis(50));
        #[rustfmt::skip]
        let table = [
            ("transient", ModelError::Transient { message: "m".into(), retry_after }),
            ("unauthorized", ModelError::Unauthorized("m".into())),
            ("refused", ModelError::Refused("m".into())),
            ("context_overflow", ModelError::Overflow("m".into())),
            ("quota", ModelError::Spent("m".into())),
            ("content_filter", ModelError::Blocked("m".into())),
            ("malformed", ModelError::Malformed("m".into())),
            ("unavailable", ModelError::Unavailable("m".into())),
            ("aborted", ModelError::Aborted),
        ];
        for (kind, want) in table {
            let failure: Failure =
                serde_json::from_value(json!({ "message": "m", "kind": kind, "retryAfterMs": 50 })).unwrap();
            assert_eq!(ModelError::from(failure), want);
        }
    }

    #[test]
    fn a_reply_has_an_end() {
        let (mut assembler, mut events) = (Assembler::default(), Vec::new());
        let batch = format!("[\"{}\"]", "x".repeat(limit::MODEL_REPLY_BYTES_MAX / 2));
        assert_eq!(assembler.take(&batch, &mut events), Ok(()));
        assert!(
            matches!(assembler.take(&batch, &mut events), Err(ModelError::Malformed(said)) if said.contains("longer than"))
        );
        let many: Vec<Value> = (0..=CALLS_MAX).map(|_| json!({"type": "tool_call", "name": "t"})).collect();
        assert!(matches!(events_of(&[Value::Array(many)]), Err(ModelError::Malformed(said)) if said.contains("calls")));
    }
}
