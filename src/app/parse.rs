//! From JSON text to what it asks for; what does not fit is refused by field, with what was expected there.

use serde::de::DeserializeOwned;
use serde_json::json;

use crate::protocol::{ApiError, ErrorCode};

/// JSON text as a value of a type. `whole` is what errors call all of it, such as `body`.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the field and what was expected.
pub fn parse_json<T: DeserializeOwned>(text: &[u8], whole: &str) -> Result<T, ApiError> {
    let first = text.iter().find(|b| !b.is_ascii_whitespace());
    // Lists would do for serde, field by field; and what is no JSON at all says so below.
    let other = || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    if first == Some(&b'[') || (first != Some(&b'{') && other()) {
        return Err(ApiError::invalid(whole, "a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| refused(text, whole, &error))?;
    deserializer.end().map_err(|cause| broken(whole, &cause))?;
    Ok(value)
}

fn broken(whole: &str, cause: &serde_json::Error) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, format!("the {whole} is not valid JSON: {cause}")).with_details(
        json!({ "field": whole, "expected": "a JSON object", "line": cause.line(), "column": cause.column() }),
    )
}

/// What serde did not like, as a field and what it expected.
fn refused(body: &[u8], whole: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let cause = error.inner();
    let path = error.path().to_string();
    // A field without a name is told by what it stands in.
    let path = if path.is_empty() { ".".to_owned() } else { path };
    if !cause.is_data() {
        // Where a name is due and something else stands, serde_json speaks of the syntax.
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok();
        let text = cause.to_string();
        return match came(words_of(&text)) {
            _ if !is_json || path == "." => broken(whole, cause),
            HALF => ApiError::unfit(&path, "a text of whole characters", HALF),
            _ if text.starts_with("expected value") => ApiError::invalid(&path, "a string that is one of its names"),
            _ => broken(whole, cause),
        };
    }
    let text = cause.to_string();
    let text = words_of(&text);
    let inside = |name: &str| match path.as_str() {
        "." if name.is_empty() => whole.to_owned(),
        "." => name.to_owned(),
        path if name.is_empty() => path.strip_suffix('.').unwrap_or(path).to_owned(),
        path if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        path => format!("{path}.{name}"),
    };
    // Names and texts of the caller's own stand in between: what follows them is behind the last of our words.
    let quoted = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix('`');
    let unknown = text.strip_prefix("unknown field `").and_then(|rest| {
        let none = || rest.strip_suffix("`, there are no fields").map(|name| (name, "no such field"));
        rest.rsplit_once("`, expected ").or_else(none)
    });
    if let Some(name) = quoted("missing field `") {
        return ApiError::invalid(&inside(name), "to be there");
    }
    if let Some((name, known)) = unknown {
        return ApiError::unfit(&inside(name), known, format!("`{name}`"));
    }
    if let Some(name) = quoted("duplicate field `") {
        return ApiError::invalid(&inside(name), "one value, not several");
    }
    let field = if path == "." { whole.to_owned() } else { path };
    match text.strip_prefix("expected ") {
        Some(expected) => ApiError::unread(&field, &in_words(expected)),
        None => match text.rsplit_once(", expected ") {
            Some((got, expected)) => ApiError::unfit(&field, in_words(expected), came(got)),
            None => ApiError::invalid(&field, text),
        },
    }
}

/// What serde says, without the place in the text.
fn words_of(text: &str) -> &str {
    text.rsplit_once(" at line ").map_or(text, |(words, _)| words)
}

/// What serde_json calls in several ways: an escape, or bytes, of which no character can be made.
const HALF: &str = "half of a character";

/// What came instead, in the words in which serde says that it does not fit.
pub(super) fn came(text: &str) -> &str {
    let text = ["invalid type: ", "invalid value: ", "unknown variant "]
        .iter()
        .find_map(|words| text.strip_prefix(words))
        .unwrap_or(text);
    match text {
        "sequence" => "a list",
        "map" => "an object",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" | "invalid unicode code point" => HALF,
        other => other,
    }
}

/// What serde expected, without the names of our types.
fn in_words(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "an object",
        "path string" => "a path",
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{CreateSession, Feedback, Prompt};

    /// The field, what belongs there, and what the sentence says came instead.
    fn fault<T: DeserializeOwned>(text: &str) -> [String; 3] {
        let error = parse_json::<T>(text.as_bytes(), "body").err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{text}");
        let details = error.0.details.unwrap();
        let [field, expected] = ["field", "expected"].map(|name| details[name].as_str().unwrap().to_owned());
        let said = error.0.message;
        let came = said.strip_prefix(&format!("`{field}`: expected {expected}")).unwrap_or_default();
        let came = came.strip_prefix(", got ").unwrap_or_default().to_owned();
        [field, expected, came]
    }

    #[test]
    fn the_field_and_what_was_expected_are_named() {
        #[rustfmt::skip]
        let table = [
            (fault::<Prompt>(r#"{"prompt":5}"#), "prompt", "a text, or a list of parts", "integer `5`"),
            (fault::<Prompt>("{}"), "prompt", "to be there", ""),
            (fault::<Prompt>(r#"{"promt":"x"}"#), "promt", "one of `prompt`, `mode`, `configure`, `turn`, `ifVersion`", "`promt`"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":"later"}"#), "mode", "one of `queue`, `steer`, `reject`", "`later`"),
            (fault::<Prompt>(r#"{"":"x"}"#), "body", "one of `prompt`, `mode`, `configure`, `turn`, `ifVersion`", "``"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":{"":1}}"#), "configure", "one of `agent`, `interactionMode`, `model`, `reasoning`, `agentOptions`, `modelFallbacks`, `budget`, `title`, `instructions`, `tools`, `permissionMode`, `workingDirectory`, `additionalDirectories`", "``"),
            (fault::<Prompt>(r#"{"prompt":"x","a`b, expected c":1}"#), "a`b, expected c", "one of `prompt`, `mode`, `configure`, `turn`, `ifVersion`", "`a`b, expected c`"),
            (fault::<Feedback>(r#"{"allowed":"as expected "}"#), "allowed", "a boolean", "string \"as expected \""),
            (fault::<Prompt>(r#""expected struct ""#), "body", "a JSON object", ""),
            (fault::<Prompt>(r#""expected struct " "#), "body", "a JSON object", ""),
            (fault::<Prompt>("\"expected struct \" x"), "body", "an object", "string \"expected struct \""),
            (fault::<Prompt>(r#"{"prompt":"x","ifVersion":-1}"#), "ifVersion", "a whole number, 0 or more", "integer `-1`"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":5}"#), "mode", "a string that is one of its names", ""),
            (fault::<Prompt>(r#"{"prompt":"x","mode":null}"#), "mode", "a string that is one of its names", ""),
            (fault::<Prompt>(r#"{"prompt":"x","mode":{}}"#), "mode", "a string that is one of its names", ""),
            (fault::<Prompt>(r#"{"prompt":"x","prompt":"y"}"#), "prompt", "one value, not several", ""),
            (fault::<Prompt>(r#"{"prompt":"x","configure":5}"#), "configure", "an object", "integer `5`"),
            (fault::<Prompt>(r#"{"prompt":[5]}"#), "prompt[0]", "an object", "integer `5`"),
            (fault::<Prompt>(r#"{"prompt":[["text","x"]]}"#), "prompt[0]", "an object", "a list"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":[null]}"#), "configure", "an object", "a list"),
            (fault::<CreateSession>(r#"{"toolPermissions":["ask"]}"#), "toolPermissions", "an object", "a list"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[["*",null,"ask"]]}}"#), "toolPermissions.rules[0]", "an object", "a list"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"ask","annotations":[null,true]}]}}"#), "toolPermissions.rules[0].annotations", "an object", "a list"),
            (fault::<CreateSession>(r#"{"tools":5}"#), "tools", "a list", "integer `5`"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"ask","category":7}]}}"#), "toolPermissions.rules[0].category", "a category, or a list of categories", ""),
            (fault::<Feedback>(r#"{"decision":true}"#), "decision", "a string that is one of its names", ""),
            (fault::<Prompt>(r#"{"prompt":"x","configure":{"model":1}}"#), "configure.model", "a string", "integer `1`"),
            (fault::<Prompt>(r#"{"prompt":[{"type":"text"}]}"#), "prompt[0].text", "to be there", ""),
            (fault::<CreateSession>(r#"{"sessionId":"a/b"}"#), "sessionId", "1 to 256 letters, digits, `_`, `-` or `.`, and neither `.` nor `..`", "3 bytes"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"rules":[]}}"#), "toolPermissions.defaultPolicy", "to be there", ""),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"maybe"}]}}"#), "toolPermissions.rules[0].policy", "one of `allow`, `ask`, `deny`", "`maybe`"),
            (fault::<Feedback>(r#"{"allowed":"yes"}"#), "allowed", "a boolean", "string \"yes\""),
            (fault::<CreateSession>(r#"{"title":"\ud800"}"#), "title", "a text of whole characters", "half of a character"),
            (fault::<CreateSession>(r#"{"title":"\ud800x"}"#), "title", "a text of whole characters", "half of a character"),
            (fault::<Prompt>(r#"{"prompt":"x\udfff"}"#), "prompt", "a text of whole characters", "half of a character"),
            (fault::<Feedback>("[]"), "body", "a JSON object", ""),
            (fault::<Feedback>("null"), "body", "a JSON object", ""),
            (fault::<Feedback>("{"), "body", "a JSON object", ""),
            (fault::<Feedback>("{}x"), "body", "a JSON object", ""),
            (fault::<Feedback>("\u{feff}{}"), "body", "a JSON object", ""),
            (fault::<Feedback>(&"[".repeat(100_000)), "body", "a JSON object", ""),
        ];
        let wrong: Vec<_> =
            table.iter().filter(|(told, field, expected, came)| *told != [*field, *expected, *came]).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
