//! JSON Schema as answers can be held to it on this wire: objects are closed, and of the words that narrow a value only some
//! are taken. What is not taken stands in the description, where the model still reads it. Pure.

use serde_json::{Map, Value};

/// Depth of schemas that are looked at; deeper ones stay as they are.
const DEPTH_MAX: u32 = 64;
/// Formats of strings that are taken.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// The same schema in the words that are taken.
pub(super) fn taken(schema: &Value) -> Value {
    narrowed(schema, 0)
}

fn narrowed(schema: &Value, depth: u32) -> Value {
    let Some(schema) = schema.as_object().filter(|_| depth < DEPTH_MAX) else { return schema.clone() };
    let mut taken = Map::new();
    let mut told: Vec<String> = Vec::new();
    for (word, value) in schema {
        match word.as_str() {
            "$schema" | "description" | "additionalProperties" => {}
            "$ref" | "type" | "title" | "enum" | "const" | "required" => {
                taken.insert(word.clone(), value.clone());
            }
            "$defs" | "definitions" | "properties" => {
                let each = value.as_object().into_iter().flatten();
                let each = each.map(|(name, schema)| (name.clone(), narrowed(schema, depth + 1)));
                taken.insert(word.clone(), Value::Object(each.collect()));
            }
            "anyOf" | "oneOf" | "allOf" => {
                let each = value.as_array().into_iter().flatten().map(|schema| narrowed(schema, depth + 1));
                let word = if word == "oneOf" { "anyOf" } else { word };
                taken.insert(word.to_owned(), Value::Array(each.collect()));
            }
            "items" => {
                taken.insert(word.clone(), narrowed(value, depth + 1));
            }
            "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                taken.insert(word.clone(), value.clone());
            }
            "minItems" if matches!(value.as_u64(), Some(0 | 1)) => {
                taken.insert(word.clone(), value.clone());
            }
            _ => told.push(format!("{word}: {value}")),
        }
    }
    if schema.get("type").is_some_and(|kind| kind == "object") || schema.contains_key("properties") {
        taken.insert("additionalProperties".into(), false.into());
        taken.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    describe(&mut taken, schema.get("description").and_then(Value::as_str), &told);
    Value::Object(taken)
}

fn describe(taken: &mut Map<String, Value>, description: Option<&str>, told: &[String]) {
    let told = (!told.is_empty()).then(|| format!("({})", told.join(", ")));
    let words: Vec<&str> = description.into_iter().chain(told.as_deref()).collect();
    // Beside a reference nothing else may stand.
    if !words.is_empty() && !taken.contains_key("$ref") {
        taken.insert("description".into(), words.join(" ").into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_taken_is_told_in_words() {
        #[rustfmt::skip]
        let table = [
            (json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "how many"}}, "required": ["n"], "$schema": "x"}),
             json!({"type": "object", "properties": {"n": {"type": "integer", "description": "how many (minimum: 1)"}}, "required": ["n"], "additionalProperties": false})),
            (json!({"type": "array", "items": {"oneOf": [{"type": "string", "format": "date"}, {"type": "object"}]}, "minItems": 3}),
             json!({"type": "array", "items": {"anyOf": [{"type": "string", "format": "date"}, {"type": "object", "properties": {}, "additionalProperties": false}]}, "description": "(minItems: 3)"})),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "pattern": "^a"}}}),
             json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "description": "(pattern: \"^a\")"}}})),
            (json!({"type": "string", "format": "color"}), json!({"type": "string", "description": "(format: \"color\")"})),
        ];
        for (given, want) in table {
            assert_eq!(taken(&given), want);
        }
    }
}
