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
        return if is_json && path != "." {
            ApiError::invalid(&path, "a string that is one of its names")
        } else {
            broken(whole, cause)
        };
    }
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
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
    let (field, expected) = if let Some(name) = quoted("missing field `") {
        (inside(name), "to be there".to_owned())
    } else if let Some((name, known)) = unknown {
        (inside(name), format!("{known} (there is no `{name}`)"))
    } else if let Some(name) = quoted("duplicate field `") {
        (inside(name), "one value, not several".to_owned())
    } else {
        let field = if path == "." { whole.to_owned() } else { path };
        match text.strip_prefix("expected ").map(|expected| ("", expected)).or_else(|| text.rsplit_once(", expected "))
        {
            Some(("", expected)) => (field, in_words(expected).to_owned()),
            Some((got, expected)) => (field, format!("{}; {got}", in_words(expected))),
            None => (field, text.to_owned()),
        }
    };
    ApiError::invalid(&field, expected)
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

    fn fault<T: DeserializeOwned>(text: &str) -> (String, String) {
        let error = parse_json::<T>(text.as_bytes(), "body").err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{text}");
        let details = error.0.details.unwrap();
        (details["field"].as_str().unwrap().to_owned(), details["expected"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_field_and_what_was_expected_are_named() {
        #[rustfmt::skip]
        let table = [
            (fault::<Prompt>(r#"{"prompt":5}"#), "prompt", "a text, or a list of parts; invalid type: integer `5`"),
            (fault::<Prompt>("{}"), "prompt", "to be there"),
            (fault::<Prompt>(r#"{"promt":"x"}"#), "promt", "one of `prompt`, `mode`, `configure`, `ifVersion` (there is no `promt`)"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":"later"}"#), "mode", "one of `queue`, `steer`, `reject`; unknown variant `later`"),
            (fault::<Prompt>(r#"{"":"x"}"#), "body", "one of `prompt`, `mode`, `configure`, `ifVersion` (there is no ``)"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":{"":1}}"#), "configure", "one of `model`, `reasoning`, `title`, `instructions`, `tools`, `permissionMode`, `workingDirectory` (there is no ``)"),
            (fault::<Prompt>(r#"{"prompt":"x","a`b, expected c":1}"#), "a`b, expected c", "one of `prompt`, `mode`, `configure`, `ifVersion` (there is no `a`b, expected c`)"),
            (fault::<Feedback>(r#"{"allowed":"as expected "}"#), "allowed", "a boolean; invalid type: string \"as expected \""),
            (fault::<Prompt>(r#""expected struct ""#), "body", "a JSON object"),
            (fault::<Prompt>(r#""expected struct " "#), "body", "a JSON object"),
            (fault::<Prompt>("\"expected struct \" x"), "body", "an object; invalid type: string \"expected struct \""),
            (fault::<Prompt>(r#"{"prompt":"x","ifVersion":-1}"#), "ifVersion", "a whole number, 0 or more; invalid value: integer `-1`"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":5}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":null}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","mode":{}}"#), "mode", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","prompt":"y"}"#), "prompt", "one value, not several"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":5}"#), "configure", "an object; invalid type: integer `5`"),
            (fault::<Prompt>(r#"{"prompt":[5]}"#), "prompt[0]", "an object; invalid type: integer `5`"),
            (fault::<Prompt>(r#"{"prompt":[["text","x"]]}"#), "prompt[0]", "an object; invalid type: sequence"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":[null]}"#), "configure", "an object; invalid type: sequence"),
            (fault::<CreateSession>(r#"{"toolPermissions":["ask"]}"#), "toolPermissions", "an object; invalid type: sequence"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[["*",null,"ask"]]}}"#), "toolPermissions.rules[0]", "an object; invalid type: sequence"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"ask","annotations":[null,true]}]}}"#), "toolPermissions.rules[0].annotations", "an object; invalid type: sequence"),
            (fault::<CreateSession>(r#"{"tools":5}"#), "tools", "a list; invalid type: integer `5`"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"ask","category":7}]}}"#), "toolPermissions.rules[0].category", "a category, or a list of categories"),
            (fault::<Feedback>(r#"{"decision":true}"#), "decision", "a string that is one of its names"),
            (fault::<Prompt>(r#"{"prompt":"x","configure":{"model":1}}"#), "configure.model", "a string; invalid type: integer `1`"),
            (fault::<Prompt>(r#"{"prompt":[{"type":"text"}]}"#), "prompt[0].text", "to be there"),
            (fault::<CreateSession>(r#"{"sessionId":"a/b"}"#), "sessionId", "1 to 256 letters, digits, `_`, `-` or `.`, and neither `.` nor `..`; got 3 bytes"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"rules":[]}}"#), "toolPermissions.defaultPolicy", "to be there"),
            (fault::<CreateSession>(r#"{"toolPermissions":{"defaultPolicy":"ask","rules":[{"tool":"*","policy":"maybe"}]}}"#), "toolPermissions.rules[0].policy", "one of `allow`, `ask`, `deny`; unknown variant `maybe`"),
            (fault::<Feedback>(r#"{"allowed":"yes"}"#), "allowed", "a boolean; invalid type: string \"yes\""),
            (fault::<Feedback>("[]"), "body", "a JSON object"),
            (fault::<Feedback>("null"), "body", "a JSON object"),
            (fault::<Feedback>("{"), "body", "a JSON object"),
            (fault::<Feedback>("{}x"), "body", "a JSON object"),
            (fault::<Feedback>("\u{feff}{}"), "body", "a JSON object"),
            (fault::<Feedback>(&"[".repeat(100_000)), "body", "a JSON object"),
        ];
        let wrong = table.iter().filter(|((field, expected), f, e)| (field.as_str(), expected.as_str()) != (*f, *e));
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&((String, String), &str, &str)>::new());
    }
}
