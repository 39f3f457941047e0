//! Questions that a tool or a hook puts to the session's clients, beside those about permission: what can be asked, and which
//! answers fit. And notices, which nobody answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ApiError;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ClientQuestion {
    /// One of several, or some of them. The answer is a text, or a list of texts where `several` is set.
    Select {
        /// What is asked.
        title: String,
        /// What can be chosen; not empty, each once.
        options: Vec<String>,
        /// Whether more than one can be, or none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        several: bool,
    },
    /// Yes or no. The answer is a boolean.
    Confirm {
        /// What is asked.
        title: String,
        /// What there is to know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A line of text.
    Input {
        /// What is asked.
        title: String,
        /// What is shown as long as nothing is typed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placeholder: Option<String>,
    },
    /// A text of several lines.
    Editor {
        /// What is asked.
        title: String,
        /// What the editor begins with.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeLevel {
    /// Good to know.
    #[default]
    Info,
    /// Worth a look.
    Warning,
    /// Something failed.
    Error,
}

impl ClientQuestion {
    /// Its kind, as the wire calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Select { .. } => "select",
            Self::Confirm { .. } => "confirm",
            Self::Input { .. } => "input",
            Self::Editor { .. } => "editor",
        }
    }

    /// Holds an answer against the question. One that does not fit leaves the question open.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub fn check(&self, value: &Value) -> Result<(), ApiError> {
        let refused = |expected: String| Err(ApiError::invalid("value", expected));
        match (self, value) {
            (Self::Confirm { .. }, Value::Bool(_)) | (Self::Editor { .. }, Value::String(_)) => Ok(()),
            (Self::Input { .. }, Value::String(text)) if !text.contains(['\n', '\r']) => Ok(()),
            (Self::Select { options, several: false, .. }, Value::String(chosen)) if options.contains(chosen) => Ok(()),
            (Self::Select { options, several: true, .. }, Value::Array(chosen)) => {
                let is_option = |value: &Value| value.as_str().is_some_and(|text| options.iter().any(|o| o == text));
                let once = |at: usize, value: &Value| !chosen[..at].contains(value);
                if chosen.iter().enumerate().all(|(at, value)| is_option(value) && once(at, value)) {
                    return Ok(());
                }
                refused(format!("a list of some of {}, each once", options.join(", ")))
            }
            (Self::Confirm { .. }, _) => refused("`true` or `false`".to_owned()),
            (Self::Editor { .. }, _) => refused("a text".to_owned()),
            (Self::Input { .. }, _) => refused("a text without line ends".to_owned()),
            (Self::Select { options, several: false, .. }, _) => refused(format!("one of {}", options.join(", "))),
            (Self::Select { options, several: true, .. }, _) => {
                refused(format!("a list of some of {}", options.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_fits_its_question_or_is_refused() {
        let question = |value: Value| serde_json::from_value::<ClientQuestion>(value).expect("a question");
        let one = question(json!({ "kind": "select", "title": "t", "options": ["a", "b"] }));
        let some = question(json!({ "kind": "select", "title": "t", "options": ["a", "b"], "several": true }));
        let confirm = question(json!({ "kind": "confirm", "title": "t" }));
        let input = question(json!({ "kind": "input", "title": "t", "placeholder": "p" }));
        let editor = question(json!({ "kind": "editor", "title": "t", "text": "x" }));
        #[rustfmt::skip]
        let table = [
            (&one, json!("a"), true), (&one, json!("c"), false), (&one, json!(["a"]), false), (&one, json!(null), false),
            (&some, json!([]), true), (&some, json!(["b", "a"]), true), (&some, json!(["a", "a"]), false),
            (&some, json!(["c"]), false), (&some, json!([1]), false), (&some, json!("a"), false),
            (&confirm, json!(true), true), (&confirm, json!(false), true), (&confirm, json!("yes"), false),
            (&input, json!(""), true), (&input, json!("a b"), true), (&input, json!("a\nb"), false), (&input, json!(1), false),
            (&editor, json!("a\nb"), true), (&editor, json!(null), false),
        ];
        for (question, value, fits) in table {
            let checked = question.check(&value);
            assert_eq!(checked.is_ok(), fits, "{} {value}", question.kind());
            let field = checked.err().and_then(|error| error.0.details).map(|details| details["field"].clone());
            assert_eq!(field, (!fits).then(|| json!("value")));
        }
    }

    #[test]
    fn a_question_is_its_wire_form_and_comes_back() {
        for value in [
            json!({ "kind": "select", "title": "t", "options": ["a"], "several": true }),
            json!({ "kind": "confirm", "title": "t", "message": "m" }),
            json!({ "kind": "input", "title": "t" }),
            json!({ "kind": "editor", "title": "t" }),
        ] {
            let question: ClientQuestion = serde_json::from_value(value.clone()).expect("a question");
            assert_eq!(
                (question.kind(), serde_json::to_value(&question).expect("JSON")),
                (value["kind"].as_str().expect("a kind"), value.clone())
            );
        }
        assert!(serde_json::from_value::<ClientQuestion>(json!({ "kind": "guess", "title": "t" })).is_err());
    }
}
