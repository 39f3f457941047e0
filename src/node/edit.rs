//! `fuzzyMatch`: the edit chain on a text in memory.

use napi_derive::napi;

use super::text::{JsText, js_text};

/// What an edit gave.
#[napi(object)]
pub struct FuzzyMatch {
    /// The whole new text.
    pub replaced: JsText,
    /// The tier that found the place.
    pub strategy: String,
}

/// Replaces the one place that `old` means; null when no tier finds exactly one.
#[napi(catch_unwind)]
pub fn fuzzy_match(content: String, old: String, new: String) -> Option<FuzzyMatch> {
    let edit = crate::edit::fuzzy_match(&content, &old, &new)?;
    Some(FuzzyMatch { replaced: js_text(edit.text), strategy: edit.strategy.name().to_owned() })
}
