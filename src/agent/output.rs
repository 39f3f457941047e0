//! An answer that has to be data: whether it fits its schema, and what a model is told of one that does not.
//!
//! Invariants: a model is told at most once in a turn that its answer does not fit, and what it said then is void for all who
//! read (`stream.retry`) and in no history; a turn that wants data completes with data that fits, or fails and says why.

use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::turn::Turn;
use crate::model::{Messages, Model, ModelError, StopReason};
use crate::protocol::{ErrorBody, ErrorCode, Message, Part};
use crate::tool::hold_to;

/// An answer that did not fit.
#[derive(Debug, Clone)]
pub(super) struct Unfit {
    text: String,
    why: String,
}

impl Unfit {
    /// The conversation, with that answer and what is wrong with it behind it.
    pub(super) fn told(&self, messages: &Messages) -> Messages {
        let mut messages = messages.to_vec();
        messages.push(Message::assistant(self.text.clone(), Vec::new()));
        let text = format!(
            "This answer cannot be used: {}. Answer once more, with the whole of it: one JSON value that fits the schema, and \
             nothing else.",
            self.why
        );
        messages.push(Message::User(vec![Part::Text { text }]));
        messages.into()
    }
}

impl Turn {
    /// Whether a model's answers can be held to what this turn wants.
    pub(super) fn can_answer(&self, model: &dyn Model) -> bool {
        self.input.output_schema.is_none() || !model.is_agent() && model.facts().structured_output
    }

    /// The failure of a turn whose model cannot be held to it.
    pub(super) fn cannot_answer(&self) -> Option<ErrorBody> {
        let model = self.input.model.as_ref();
        (!self.can_answer(model)).then(|| ErrorBody {
            code: ErrorCode::Conflict,
            message: format!("answers of `{}` cannot be held to a schema (`turn.outputSchema`)", model.id()),
            details: Some(json!({ "kind": "no_structured_output" })),
        })
    }

    /// What is wrong with a reply that would be the turn's answer, where its model has not been told of one before.
    pub(super) fn does_not_fit(&mut self, reply: &Reply) -> Option<ModelError> {
        let schema = self.input.output_schema.as_ref().filter(|_| !self.was_unfit)?;
        let by_itself = matches!(reply.stop, None | Some(StopReason::EndTurn | StopReason::ToolUse));
        let answers = reply.calls.is_empty() && !reply.text.trim().is_empty() && !self.input.steering.waits();
        let why = read(schema, &reply.text).err().filter(|_| by_itself && answers)?;
        self.was_unfit = true;
        self.unfit = Some(Unfit { text: reply.text.clone(), why: why.clone() });
        Some(ModelError::Malformed(format!("the answer does not fit `turn.outputSchema`: {why}")))
    }

    /// Takes the turn's answer as data, where that is wanted.
    pub(super) fn take_output(&mut self, text: &str, stop: Option<StopReason>) -> Result<(), ErrorBody> {
        let Some(schema) = &self.input.output_schema else { return Ok(()) };
        // Who was stopped has not failed to write data: that it was is what there is to know.
        let (kind, stopped) = match stop {
            Some(StopReason::Refusal) => ("refusal", "it does not want to answer; "),
            Some(StopReason::ContentFilter) => ("content_filter", "its provider cut it for its content; "),
            Some(StopReason::Length) => ("max_tokens", "it reached its limit of tokens; "),
            None | Some(StopReason::EndTurn | StopReason::ToolUse) => ("output_invalid", ""),
        };
        let value = read(schema, text).map_err(|why| ErrorBody {
            code: ErrorCode::UpstreamUnavailable,
            message: format!("the model's answer does not fit `turn.outputSchema`: {stopped}{why}"),
            details: Some(json!({ "kind": kind })),
        })?;
        self.output = Some(value);
        Ok(())
    }
}

/// An answer as data, or what is wrong with it.
fn read(schema: &Map<String, Value>, text: &str) -> Result<Value, String> {
    let value = serde_json::from_str(bare(text)).map_err(|error| format!("it is not one JSON value: {error}"))?;
    hold_to(schema, &value)?;
    Ok(value)
}

/// An answer without the fence that some models put around code.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).map_or(text, str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_value_that_fits() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"], "additionalProperties": false });
        let schema = schema.as_object().expect("an object");
        #[rustfmt::skip]
        let table = [
            ("{\"n\":1}", Ok(json!({ "n": 1 }))), (" ```json\n{\"n\": 2}\n```\n", Ok(json!({ "n": 2 }))), ("```\n{\"n\":3}```", Ok(json!({ "n": 3 }))),
            ("{\"n\":0}", Err("\"n\": expected")), ("{}", Err("\"n\" is missing")), ("{\"n\":1,\"m\":2}", Err("\"m\" is unknown")), ("[]", Err("the answer: expected an object")),
            ("Sure! {\"n\":1}", Err("it is not one JSON value")), ("{\"n\":1} {}", Err("it is not one JSON value")),
        ];
        for (text, want) in table {
            match (read(schema, text), want) {
                (Ok(value), Ok(want)) => assert_eq!(value, want, "{text}"),
                (Err(why), Err(want)) => assert!(why.starts_with(want), "{text}: {why}"),
                (read, want) => panic!("{text}: {read:?} and not {want:?}"),
            }
        }
    }
}
