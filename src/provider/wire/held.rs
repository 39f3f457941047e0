//! Schemas that answers are held to. OpenAI's wires hold an answer to some of them strictly: nothing may be left out and nothing
//! added, and only some words are taken. Any other is refused when it is called strict; without that word it is a guide. Models
//! whose wire has no place for a schema are told it in words. Either way the answer is looked at when it has come. Pure.

use serde_json::{Map, Value};

/// Depth of schemas that are looked at.
const DEPTH_MAX: u32 = 64;
/// Words that may stand there beside those that hold schemas.
const WORDS: [&str; 18] = [
    "$ref",
    "$schema",
    "additionalProperties",
    "const",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
];

/// Whether an answer can be held to it strictly.
pub(in crate::provider) fn is_strict(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object") && fits(schema, 0)
}

fn fits(schema: &Value, depth: u32) -> bool {
    let Some(schema) = schema.as_object().filter(|_| depth < DEPTH_MAX) else { return false };
    let is_object = schema.contains_key("properties") || schema.get("type").is_some_and(|kind| has(kind, "object"));
    (!is_object || is_closed(schema))
        && schema.iter().all(|(word, value)| match word.as_str() {
            "properties" | "$defs" | "definitions" => {
                value.as_object().is_some_and(|all| all.values().all(|schema| fits(schema, depth + 1)))
            }
            "items" => fits(value, depth + 1),
            "anyOf" => value.as_array().is_some_and(|all| all.iter().all(|schema| fits(schema, depth + 1))),
            word => WORDS.contains(&word),
        })
}

fn has(kinds: &Value, kind: &str) -> bool {
    kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind))
}

/// Whether all of an object's members have to be there, and no other may be.
fn is_closed(schema: &Map<String, Value>) -> bool {
    let none = Map::new();
    let members = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let all = members.keys().all(|name| required.iter().any(|one| one == name.as_str()));
    all && schema.get("additionalProperties") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_closed_is_strict_and_nothing_else() {
        let closed = |inner: Value| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"], "additionalProperties": false });
        #[rustfmt::skip]
        let table = [
            (closed(json!({ "type": "string" })), true), (closed(json!({ "type": ["integer", "null"], "minimum": 1 })), true),
            (closed(json!({ "type": "array", "items": closed(json!({ "anyOf": [{ "type": "null" }, { "$ref": "#" }] })) })), true),
            (json!({ "type": "object" }), false), (json!({ "type": "string" }), false), (json!({}), false),
            (json!({ "type": "object", "properties": { "a": {} }, "additionalProperties": false }), false),
            (json!({ "type": "object", "properties": {}, "additionalProperties": true }), false),
            (closed(json!({ "type": ["object", "null"] })), false), (closed(json!({ "type": "string", "minLength": 1 })), false),
            (closed(json!({ "not": {} })), false), (closed(json!(true)), false),
        ];
        for (schema, want) in table {
            assert_eq!(is_strict(&schema), want, "{schema}");
        }
    }
}
