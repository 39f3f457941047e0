//! Questions that a tool or a hook puts to the session's clients, beside those about permission: what can be asked, and which
//! answers fit. And notices, which nobody answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::permission::VerdictSource;

/// Longest title, message or placeholder of a question, and longest notice, in bytes.
const WORDS_BYTES_MAX: usize = 16_000;
/// Longest text that an editor begins with, in bytes.
const TEXT_BYTES_MAX: usize = 1_000_000;
/// Options of one question, at most.
const OPTIONS_MAX: usize = 1_000;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientReply {
    /// A client answered, with a value that fits.
    Value(Value),
    /// Nobody did, or a client would not.
    Cancelled {
        /// Who decided that.
        by: VerdictSource,
        /// Why, in words.
        reason: String,
    },
}

/// What came of a form: several questions that belong together.
#[derive(Debug, Clone, PartialEq)]
pub enum FormReply {
    /// It is filled in; the values fit.
    Filled(Map<String, Value>),
    /// A client would not. Why, in words.
    Declined(String),
    /// Nobody answered, or not to the end. Why, in words.
    Cancelled(String),
}

impl NoticeLevel {
    /// Holds the text of a notice against its limit.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub fn check(text: &str) -> Result<(), ApiError> {
        bounded("text", text, WORDS_BYTES_MAX)
    }
}

fn bounded(field: &str, text: &str, bytes_max: usize) -> Result<(), ApiError> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(ApiError::unfit(field, format!("at most {bytes_max} bytes"), text.len()))
}

fn titled(title: &str) -> Result<(), ApiError> {
    if title.trim().is_empty() {
        return Err(ApiError::invalid("title", "a text that is not empty"));
    }
    bounded("title", title, WORDS_BYTES_MAX)
}

fn check_options(options: &[String]) -> Result<(), ApiError> {
    if options.is_empty() || options.len() > OPTIONS_MAX {
        return Err(ApiError::unfit("options", format!("1 to {OPTIONS_MAX} texts"), options.len()));
    }
    let mut seen = std::collections::HashSet::new();
    for (at, option) in options.iter().enumerate() {
        let field = format!("options[{at}]");
        bounded(&field, option, WORDS_BYTES_MAX)?;
        if !seen.insert(option) {
            return Err(ApiError::invalid(&field, "each option once"));
        }
    }
    Ok(())
}

impl ClientQuestion {
    /// Whether it can be put: it says something, leaves a choice, and is not too long.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub fn check_itself(&self) -> Result<(), ApiError> {
        match self {
            Self::Select { title, options, .. } => titled(title).and_then(|()| check_options(options)),
            Self::Confirm { title, message } => {
                titled(title).and_then(|()| bounded("message", message.as_deref().unwrap_or_default(), WORDS_BYTES_MAX))
            }
            Self::Input { title, placeholder } => titled(title)
                .and_then(|()| bounded("placeholder", placeholder.as_deref().unwrap_or_default(), WORDS_BYTES_MAX)),
            Self::Editor { title, text } => titled(title).and_then(|()| bounded("text", text, TEXT_BYTES_MAX)),
        }
    }

    /// Its kind, as the wire calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Select { .. } => "select",
            Self::Confirm { .. } => "confirm",
            Self::Input { .. } => "input",
            Self::Editor { .. } => "editor",
        }
    }

    /// What is asked, in words.
    pub fn title(&self) -> &str {
        match self {
            Self::Select { title, .. }
            | Self::Confirm { title, .. }
            | Self::Input { title, .. }
            | Self::Editor { title, .. } => title,
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
    fn a_question_that_cannot_be_put_says_why() {
        let long = "x".repeat(WORDS_BYTES_MAX + 1);
        #[rustfmt::skip]
        let table = [
            (json!({ "kind": "confirm", "title": "t" }), None),
            (json!({ "kind": "confirm", "title": " " }), Some("title")),
            (json!({ "kind": "confirm", "title": long }), Some("title")),
            (json!({ "kind": "confirm", "title": "t", "message": long }), Some("message")),
            (json!({ "kind": "input", "title": "t", "placeholder": long }), Some("placeholder")),
            (json!({ "kind": "editor", "title": "t", "text": long }), None),
            (json!({ "kind": "editor", "title": "t", "text": "x".repeat(TEXT_BYTES_MAX + 1) }), Some("text")),
            (json!({ "kind": "select", "title": "t", "options": [] }), Some("options")),
            (json!({ "kind": "select", "title": "t", "options": ["a", "b", "a"] }), Some("options[2]")),
            (json!({ "kind": "select", "title": "t", "options": ["a", long] }), Some("options[1]")),
            (json!({ "kind": "select", "title": "t", "options": ["", "b"] }), None),
        ];
        for (value, field) in table {
            let question: ClientQuestion = serde_json::from_value(value).expect("a question");
            let refused = question.check_itself().err().and_then(|error| error.0.details);
            assert_eq!(refused.map(|details| details["field"].clone()), field.map(|field| json!(field)));
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
