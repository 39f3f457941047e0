//! Whether parameters that a program registers are a schema that calls can be held against.
//!
//! What is no schema, and words whose meaning is not checked here, are refused when the tool is registered: an argument
//! that nobody looks at would come as a surprise later. The simple form has types of the caller's own and is left alone.

use serde_json::{Map, Value};

use super::validate::{Checker, DEPTH_MAX, is_known_type, is_schema, shown};
use super::words::compile;

/// Words whose value is a schema.
const SCHEMA_WORDS: [&str; 9] =
    ["additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"];
/// Words whose value is a list of schemas.
const LIST_WORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Words whose value is schemas by name.
const NAMED_WORDS: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Words whose value is a number.
const NUMBER_WORDS: [&str; 5] = ["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"];
/// Words whose value is a count.
const COUNT_WORDS: [&str; 8] =
    ["maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"];
/// Words of JSON Schema that are not checked.
const OTHER_WORDS: [&str; 5] =
    ["$dynamicRef", "$recursiveRef", "dependencies", "unevaluatedItems", "unevaluatedProperties"];

/// Looks at a definition's parameters.
///
/// # Errors
/// Where they are no schema, and what was expected there: a path and a sentence.
pub fn check_parameters(parameters: &Map<String, Value>) -> Result<(), (String, String)> {
    if !is_schema(parameters) {
        return Ok(());
    }
    let checker = Checker::new(parameters);
    look(&checker, parameters, "parameters", 0)
}

/// Looks at a schema that answers are to be held to, which is said in `field`.
///
/// # Errors
/// As [`check_parameters`]. An answer is an object.
pub fn check_output_schema(field: &str, schema: &Map<String, Value>) -> Result<(), (String, String)> {
    if schema.get("type").is_none_or(|kind| kind != "object") {
        let got = schema.get("type").map_or_else(|| "nothing".to_owned(), shown);
        return Err((format!("{field}.type"), format!("expected \"object\", got {got}")));
    }
    look(&Checker::new(schema), schema, field, 0)
}

type Fault = Result<(), (String, String)>;

fn fault(path: &str, word: &str, expected: &str, value: &Value) -> Fault {
    Err((format!("{path}.{word}"), format!("expected {expected}, got {}", shown(value))))
}

/// A schema in words, behind the system text: for models whose provider has no place for it.
pub fn output_in_words(schema: &Value) -> String {
    format!(
        "Your final answer, the one with which you are done and call no more tools, is one JSON value and nothing else: no words \
         before or behind it, and no code fence. It fits this JSON Schema:\n{schema}"
    )
}

fn look_any(checker: &Checker<'_>, schema: &Value, path: &str, depth: u32) -> Fault {
    match schema {
        Value::Bool(_) => Ok(()),
        Value::Object(schema) => look(checker, schema, path, depth),
        other => Err((path.to_owned(), format!("expected a schema, got {}", shown(other)))),
    }
}

fn look(checker: &Checker<'_>, schema: &Map<String, Value>, path: &str, depth: u32) -> Fault {
    if depth > DEPTH_MAX {
        return Err((path.to_owned(), format!("nested more than {DEPTH_MAX} deep")));
    }
    for (word, value) in schema {
        let here = || format!("{path}.{word}");
        match word.as_str() {
            // A list is what tuples were in earlier drafts.
            "items" if value.is_array() => look_list(checker, value, &here(), depth)?,
            word if SCHEMA_WORDS.contains(&word) => look_any(checker, value, &here(), depth + 1)?,
            word if LIST_WORDS.contains(&word) => look_list(checker, value, &here(), depth)?,
            word if NAMED_WORDS.contains(&word) => look_named(checker, (word, value), &here(), depth)?,
            word => look_word(checker, (word, value), path)?,
        }
    }
    Ok(())
}

fn look_list(checker: &Checker<'_>, value: &Value, path: &str, depth: u32) -> Fault {
    let Some(items) = value.as_array() else {
        return Err((path.to_owned(), format!("expected a list of schemas, got {}", shown(value))));
    };
    items.iter().enumerate().try_for_each(|(at, item)| look_any(checker, item, &format!("{path}.{at}"), depth + 1))
}

fn look_named(checker: &Checker<'_>, (word, value): (&str, &Value), path: &str, depth: u32) -> Fault {
    let Some(members) = value.as_object() else {
        return Err((path.to_owned(), format!("expected schemas by name, got {}", shown(value))));
    };
    for (name, schema) in members {
        if word == "patternProperties" {
            look_pattern(name, &format!("{path}.{name}"))?;
        }
        look_any(checker, schema, &format!("{path}.{name}"), depth + 1)?;
    }
    Ok(())
}

/// A word whose value is no schema.
fn look_word(checker: &Checker<'_>, (word, value): (&str, &Value), path: &str) -> Fault {
    let names = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    match word {
        "type" if !is_type(value) => {
            let types = "a type of JSON (string, number, integer, boolean, object, array, null) or a list of some";
            fault(path, word, types, value)
        }
        "required" if !names(value) => fault(path, word, "a list of names", value),
        "enum" if !value.is_array() => fault(path, word, "a list", value),
        "uniqueItems" if !value.is_boolean() => fault(path, word, "true or false", value),
        "dependentRequired" if !value.as_object().is_some_and(|by_name| by_name.values().all(names)) => {
            fault(path, word, "lists of names by name", value)
        }
        "pattern" => match value.as_str() {
            Some(pattern) => look_pattern(pattern, &format!("{path}.{word}")),
            None => fault(path, word, "a regular expression", value),
        },
        "$ref" if value != "#" && checker.resolve(value).is_none() => {
            fault(path, word, "a place inside this schema (nothing is fetched)", value)
        }
        _ if NUMBER_WORDS.contains(&word) && !value.is_number() => fault(path, word, "a number", value),
        _ if COUNT_WORDS.contains(&word) && !value.is_u64() => fault(path, word, "a whole number, 0 or more", value),
        _ if OTHER_WORDS.contains(&word) => {
            let message = "this word of JSON Schema is not checked here; leave it out, or use a Standard Schema";
            Err((format!("{path}.{word}"), message.to_owned()))
        }
        _ => Ok(()),
    }
}

fn look_pattern(pattern: &str, path: &str) -> Fault {
    compile(pattern).map(drop).map_err(|e| {
        // The engine draws the place over several lines; its last one says what is wrong.
        let text = e.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        (path.to_owned(), format!("expected a regular expression that can be checked here: {why}"))
    })
}

fn is_type(value: &Value) -> bool {
    match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(is_known_type),
        other => is_known_type(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(property: &Value) -> Option<String> {
        let Value::Object(parameters) =
            json!({"type": "object", "properties": {"a": property}, "$defs": {"d": {"type": "string"}}})
        else {
            panic!("an object")
        };
        check_parameters(&parameters).err().map(|(path, message)| format!("{path}: {message}"))
    }

    #[test]
    fn what_is_no_schema_is_said_with_its_place() {
        let types = "expected a type of JSON (string, number, integer, boolean, object, array, null) or a list of some";
        #[rustfmt::skip]
        let table = [
            (json!({"type": "strin"}), format!("parameters.properties.a.type: {types}, got \"strin\"")),
            (json!({"type": ["string", "nul"]}), format!("parameters.properties.a.type: {types}, got [\"string\",\"nul\"]")),
            (json!("string"), "parameters.properties.a: expected a schema, got \"string\"".to_owned()),
            (json!({"items": {"anyOf": {}}}), "parameters.properties.a.items.anyOf: expected a list of schemas, got {}".to_owned()),
            (json!({"allOf": [{"required": true}]}), "parameters.properties.a.allOf.0.required: expected a list of names, got true".to_owned()),
            (json!({"pattern": "("}), "parameters.properties.a.pattern: expected a regular expression that can be checked here: unclosed group".to_owned()),
            (json!({"patternProperties": {"(?=x)": {}}}), "parameters.properties.a.patternProperties.(?=x): expected a regular expression that can be checked here: look-around, including look-ahead and look-behind, is not supported".to_owned()),
            (json!({"minimum": "1"}), "parameters.properties.a.minimum: expected a number, got \"1\"".to_owned()),
            (json!({"minLength": -1}), "parameters.properties.a.minLength: expected a whole number, 0 or more, got -1".to_owned()),
            (json!({"$ref": "#/$defs/e"}), "parameters.properties.a.$ref: expected a place inside this schema (nothing is fetched), got \"#/$defs/e\"".to_owned()),
            (json!({"dependentRequired": {"a": "b"}}), "parameters.properties.a.dependentRequired: expected lists of names by name, got {\"a\":\"b\"}".to_owned()),
            (json!({"unevaluatedProperties": false}), "parameters.properties.a.unevaluatedProperties: this word of JSON Schema is not checked here; leave it out, or use a Standard Schema".to_owned()),
        ];
        for (property, want) in table {
            assert_eq!(problem(&property), Some(want), "{property}");
        }
        let fine = json!({
            "$ref": "#/$defs/d", "description": 5, "x-own": {}, "format": "date", "default": null, "items": [{}, true],
            "additionalProperties": {"$ref": "#"}, "pattern": "^\\d+$", "enum": [1], "if": {"const": 1}, "then": false,
        });
        assert_eq!(problem(&fine), None);
    }

    #[test]
    fn an_answer_is_an_object() {
        let fault = |schema: Value| check_output_schema("s", schema.as_object().expect("an object")).err();
        let said = |path: &str, words: &str| Some((path.to_owned(), words.to_owned()));
        assert_eq!(fault(json!({})), said("s.type", "expected \"object\", got nothing"));
        assert_eq!(fault(json!({"type": "array"})), said("s.type", "expected \"object\", got \"array\""));
        let inner = json!({"type": "object", "properties": {"a": {"type": "object", "required": 1}}});
        assert_eq!(fault(inner), said("s.properties.a.required", "expected a list of names, got 1"));
        assert_eq!(fault(json!({"type": "object", "properties": {"a": {"$ref": "#"}}})), None);
    }

    #[test]
    fn the_simple_form_has_types_of_its_own() {
        let Value::Object(simple) = json!({"a": {"type": "string[]"}, "pattern": {"type": "string"}}) else {
            panic!("an object")
        };
        assert_eq!(check_parameters(&simple), Ok(()));
    }
}
