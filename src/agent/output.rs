//! An answer that has to be data: whether it fits its schema, and what a model is told of one that does not.
//!
//! Invariants: a model is told at most once in a turn that its answer does not fit, and what it said then is void for all who
//! read (`stream.retry`) and in no history; a turn that wants data completes with data that fits, or fails and says why.

use serde_json::{Map, Value};

use super::fault::Fault;
use super::reply::Reply;
use super::turn::Turn;
use crate::model::{Messages, Model, ModelError, StopReason};
use crate::protocol::{ErrorBody, Message, Part};
use crate::tool::hold_to;

/// What some put before a text.
const BOM: char = '\u{feff}';
/// What some put around code.
const FENCE: &str = "```";

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
        if !self.text.trim().is_empty() {
            messages.push(Message::assistant(self.text.clone(), Vec::new()));
        }
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
        (!self.can_answer(model)).then(|| {
            Fault::NoStructuredOutput
                .told(format!("answers of `{}` cannot be held to a schema (`turn.outputSchema`)", model.id()))
        })
    }

    /// What is wrong with a reply that would be the turn's answer, where its model has not been told of one before.
    pub(super) fn does_not_fit(&mut self, reply: &Reply) -> Option<ModelError> {
        let schema = self.input.output_schema.as_ref().filter(|_| !self.was_unfit)?;
        let by_itself = matches!(reply.stop, None | Some(StopReason::EndTurn | StopReason::ToolUse));
        let answers = reply.calls.is_empty() && !self.input.steering.waits();
        let why = read(schema, &self.whole(&reply.text)).err().filter(|_| by_itself && answers)?;
        (self.was_unfit, self.begins) = (true, self.input.messages.len());
        self.unfit = Some(Unfit { text: reply.text.clone(), why: why.clone() });
        Some(ModelError::Malformed(format!("the answer does not fit `turn.outputSchema`: {why}")))
    }

    /// Takes the turn's answer as data, where that is wanted.
    pub(super) fn take_output(&mut self, text: &str, stop: Option<StopReason>) -> Result<(), ErrorBody> {
        let Some(schema) = &self.input.output_schema else { return Ok(()) };
        // Who was stopped has not failed to write data: that it was is what there is to know. Words of who does not want to answer are
        // no answer, whatever they look like, and neither is what the provider took back.
        let (fault, stopped) = match stop {
            Some(StopReason::Refusal) => {
                return Err(Fault::Refusal.told("the model does not want to answer".to_owned()));
            }
            Some(StopReason::ContentFilter) => {
                return Err(Fault::ContentFilter.told("the provider cut the model's answer for its content".to_owned()));
            }
            Some(StopReason::Length) => (Fault::MaxTokens, "it reached its limit of tokens; "),
            None | Some(StopReason::EndTurn | StopReason::ToolUse | StopReason::Paused) => (Fault::OutputInvalid, ""),
        };
        let value = read(schema, text).map_err(|why| {
            fault.told(format!("the model's answer does not fit `turn.outputSchema`: {stopped}{why}"))
        })?;
        self.output = Some(value);
        Ok(())
    }
}

/// An answer as data, or what is wrong with it.
fn read(schema: &Map<String, Value>, text: &str) -> Result<Value, String> {
    let text = text.trim_matches(|c: char| c == BOM || c.is_whitespace());
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    let parsed = serde_json::from_str(text).map(|value| (text, value));
    let fenced = |error| match fenced(text) {
        Some(inner) => serde_json::from_str(inner).map(|value| (inner, value)),
        None => Err(error),
    };
    let (text, value) = parsed.or_else(fenced).map_err(|error| format!("it is not one JSON value: {error}"))?;
    if let Some(number) = too_long(text) {
        return Err(format!("the whole number {number} has more digits than can be kept: write it as a string"));
    }
    hold_to(schema, &value)?;
    Ok(value)
}

/// What stands in the one fence that some models put around data, and words around that.
fn fenced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(FENCE)?;
    // A fence may stand in the data, too.
    let (inner, _) = rest.rsplit_once(FENCE)?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-_.".contains(c);
    let data = inner.trim_start_matches(is_word);
    let word = &inner[..inner.len() - data.len()];
    let named = data.starts_with(char::is_whitespace) || word.to_ascii_lowercase().starts_with("json");
    Some(if named { data } else { inner }.trim_matches(|c: char| c == BOM || c.is_whitespace()))
}

/// The first whole number that a value of ours cannot hold: it would become another one.
fn too_long(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        let end = if rest.starts_with('"') {
            end_of_string(rest)
        } else {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
            let number = &rest[..end];
            let whole = !number.contains(['.', 'e', 'E']);
            if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                return Some(number);
            }
            end
        };
        rest = &rest[end..];
    }
    None
}

/// Where a string ends that begins here.
fn end_of_string(json: &str) -> usize {
    let mut escaped = false;
    for (at, c) in json.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_kept_as_they_are_or_not_at_all() {
        let any = Map::new();
        #[rustfmt::skip]
        let table = [
            (r#"["12345678901234567890123", "\\", -9223372036854775808, 1.25, 1e30]"#, None), (r#"{"a\"1": [-12345678901234567890]}"#, Some("-12345678901234567890")),
            (r#"{"a": "```", "b": 7}"#, None),
        ];
        for (text, want) in table {
            assert_eq!(read(&any, text).err().is_some(), want.is_some(), "{text}");
            assert_eq!(too_long(text), want, "{text}");
        }
    }

    #[test]
    fn an_answer_is_one_value_that_fits() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"], "additionalProperties": false });
        let schema = schema.as_object().expect("an object");
        #[rustfmt::skip]
        let table = [
            ("{\"n\":1}", Ok(json!({ "n": 1 }))), (" ```json\n{\"n\": 2}\n```\n", Ok(json!({ "n": 2 }))), ("```\n{\"n\":3}```", Ok(json!({ "n": 3 }))),
            ("{\"n\":0}", Err("\"n\": expected")), ("{}", Err("\"n\" is missing")), ("{\"n\":1,\"m\":2}", Err("\"m\" is unknown")), ("[]", Err("the answer: expected an object")),
            ("\u{feff}{\"n\":4}", Ok(json!({ "n": 4 }))), ("```JSON\r\n{\"n\":5}\r\n```", Ok(json!({ "n": 5 }))), ("```json{\"n\":6}```", Ok(json!({ "n": 6 }))),
            ("Here it is:\n\n```jsonc\n\u{feff}{\"n\":7}\n```\nAs you asked.", Ok(json!({ "n": 7 }))), ("```{\"n\":8}```", Ok(json!({ "n": 8 }))),
            ("```json\n{\"n\":1}\n```\nor\n```json\n{\"n\":2}\n```", Err("it is not one JSON value")), ("", Err("it is empty")), (" \u{feff}\n", Err("it is empty")),
            ("{\"n\":12345678901234567890123}", Err("the whole number 12345678901234567890123 has more digits")), ("{\"n\":18446744073709551615}", Ok(json!({ "n": u64::MAX }))),
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
