//! What a tool or a hook puts onto the screens of the session's clients while a turn runs: what stands there, until it is
//! replaced or taken away, and at most until the turn ends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ApiError;

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 64;
/// Longest text, and all lines of one widget together, in bytes.
const TEXT_BYTES_MAX: usize = 16_000;
/// Lines of one widget, at most.
const LINES_MAX: usize = 200;

/// One thing that stands on a screen. Without a text, or without lines, it is taken away. A later one takes the place of an
/// earlier one of its kind and key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Display {
    /// A line about one matter, beside those about others.
    Status {
        /// Which matter: 1 to 64 bytes.
        key: String,
        /// What it says; absent or null takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// What stands where a client says that it works, in place of its own words.
    Working {
        /// What it says; absent or null takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Some lines of text, which stand by themselves.
    Widget {
        /// Which of them: 1 to 64 bytes.
        key: String,
        /// What they say, at most 200; absent or null takes them away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lines: Option<Vec<String>>,
    },
    /// The title of the window, not of the session.
    Title {
        /// What it says; absent or null takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
}

fn line(field: &str, text: &str) -> Result<(), ApiError> {
    if text.contains(['\n', '\r']) {
        return Err(ApiError::invalid(field, "one line"));
    }
    bounded(field, text.len())
}

fn bounded(field: &str, bytes: usize) -> Result<(), ApiError> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(ApiError::unfit(field, format!("at most {TEXT_BYTES_MAX} bytes"), bytes))
}

impl Display {
    /// Whether it can be shown.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field and what was expected.
    pub fn check(&self) -> Result<(), ApiError> {
        if let Self::Status { key, .. } | Self::Widget { key, .. } = self
            && (key.is_empty() || key.len() > KEY_BYTES_MAX)
        {
            return Err(ApiError::unfit("key", format!("1 to {KEY_BYTES_MAX} bytes"), key.len()));
        }
        match self {
            Self::Status { text, .. } | Self::Working { text } | Self::Title { text } => {
                line("text", text.as_deref().unwrap_or_default())
            }
            Self::Widget { lines, .. } => {
                let lines = lines.as_deref().unwrap_or_default();
                if lines.len() > LINES_MAX {
                    return Err(ApiError::unfit("lines", format!("at most {LINES_MAX} lines"), lines.len()));
                }
                for (at, text) in lines.iter().enumerate() {
                    line(&format!("lines[{at}]"), text)?;
                }
                bounded("lines", lines.iter().map(String::len).sum())
            }
        }
    }

    /// Whether both stand at the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Status { key, .. }, Self::Status { key: others, .. })
            | (Self::Widget { key, .. }, Self::Widget { key: others, .. }) => key == others,
            (Self::Working { .. }, Self::Working { .. }) | (Self::Title { .. }, Self::Title { .. }) => true,
            _ => false,
        }
    }

    /// Whether it says that there is nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Status { text, .. } | Self::Working { text } | Self::Title { text } => text.is_none(),
            Self::Widget { lines, .. } => lines.is_none(),
        }
    }

    /// Puts it among what stands already, in place of what stood there.
    pub fn put(self, standing: &mut Vec<Self>) {
        let at = standing.iter().position(|other| self.is_at(other));
        match (at, self.is_empty()) {
            (Some(at), true) => drop(standing.remove(at)),
            (Some(at), false) => standing[at] = self,
            (None, true) => {}
            (None, false) => standing.push(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn display(value: Value) -> Display {
        serde_json::from_value(value).expect("a display")
    }

    #[test]
    fn what_cannot_be_shown_is_refused_by_field() {
        #[rustfmt::skip]
        let table = [
            (json!({"kind": "status", "key": "", "text": "x"}), Some("key")),
            (json!({"kind": "widget", "key": "k".repeat(65)}), Some("key")),
            (json!({"kind": "status", "key": "k", "text": "a\nb"}), Some("text")),
            (json!({"kind": "title", "text": "x".repeat(16_001)}), Some("text")),
            (json!({"kind": "widget", "key": "k", "lines": ["a", "b\r"]}), Some("lines[1]")),
            (json!({"kind": "widget", "key": "k", "lines": vec!["x"; 201]}), Some("lines")),
            (json!({"kind": "widget", "key": "k", "lines": ["x".repeat(9_000), "x".repeat(9_000)]}), Some("lines")),
            (json!({"kind": "widget", "key": "k", "lines": []}), None),
            (json!({"kind": "working", "text": null}), None),
            (json!({"kind": "status", "key": "\u{e9}", "text": ""}), None),
        ];
        for (value, field) in table {
            let refused = display(value.clone()).check().err().and_then(|error| error.0.details);
            assert_eq!(refused.as_ref().and_then(|details| details["field"].as_str()), field, "{value}");
        }
        for value in
            [json!({"kind": "status", "text": "x"}), json!({"kind": "working", "key": "k"}), json!({"kind": "x"})]
        {
            assert!(serde_json::from_value::<Display>(value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn each_has_one_place() {
        let mut standing = Vec::new();
        for value in [
            json!({"kind": "status", "key": "a", "text": "1"}),
            json!({"kind": "widget", "key": "a", "lines": ["w"]}),
            json!({"kind": "title", "text": "t"}),
            json!({"kind": "working", "text": "w"}),
            json!({"kind": "status", "key": "b"}),
            json!({"kind": "status", "key": "a", "text": "2"}),
            json!({"kind": "title"}),
        ] {
            display(value).put(&mut standing);
        }
        let want = json!([
            {"kind": "status", "key": "a", "text": "2"},
            {"kind": "widget", "key": "a", "lines": ["w"]},
            {"kind": "working", "text": "w"},
        ]);
        assert_eq!(serde_json::to_value(standing).expect("JSON"), want);
    }
}
