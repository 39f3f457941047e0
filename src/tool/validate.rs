//! Holds a call's arguments against its tool's definition, before anything runs.
//!
//! A definition names its parameters in the simple form (name → `{type, description, required?}`) or as
//! a JSON Schema object. Nothing is coerced: `"5"` is no number. Of JSON Schema, `format` and the `unevaluated` words are
//! left to the tool; `words` has those that are less common.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use grep_regex::RegexMatcher;
use serde_json::{Map, Value, json};

use super::{Arguments, Tool};
use crate::protocol::ToolDefinition;

/// Nested schemas, at most; a schema that refers to itself ends here.
pub(super) const DEPTH_MAX: u32 = 64;
/// Parts of a schema that are held against parts of a value, at most: forms of forms double with each level, and a check runs
/// where others wait.
pub(super) const STEPS_MAX: u32 = 500_000;
/// Characters of a value that are repeated in an error.
const SHOWN_CHARS_MAX: usize = 60;
/// Characters of what is wrong with one of several forms.
const PROBLEM_CHARS_MAX: usize = 400;

/// Arguments that do not fit the definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadArguments(pub String);

/// Holds arguments against a definition: which argument, what was expected, what came.
///
/// In the simple form null stands for an optional argument that is left out, and arguments that the
/// definition does not name are let through.
///
/// # Errors
/// [`BadArguments`] that names the argument.
pub fn validate(definition: &ToolDefinition, arguments: &Arguments) -> Result<(), BadArguments> {
    let parameters = &definition.parameters;
    if is_schema(parameters) {
        let checker = Checker::new(parameters);
        return checker.over(checker.check_object(parameters, arguments, "", 0));
    }
    validate_simple(parameters, arguments)
}

/// Holds a model's answer against a schema.
///
/// # Errors
/// Which part of it does not fit, what was expected, what came.
pub fn hold_to(schema: &Map<String, Value>, answer: &Value) -> Result<(), String> {
    let checker = Checker::new(schema);
    let fits = checker.over(checker.check_schema(schema, answer, "", 0));
    // The words are those for arguments.
    fits.map_err(|BadArguments(text)| match text.strip_prefix("argument ") {
        Some(text) => text.to_owned(),
        None => text.replacen("the arguments", "the answer", 1),
    })
}

/// The same for the simple form.
fn validate_simple(parameters: &Map<String, Value>, arguments: &Arguments) -> Result<(), BadArguments> {
    for (name, parameter) in parameters {
        let required = parameter.get("required") == Some(&Value::Bool(true));
        match arguments.get(name) {
            None | Some(Value::Null) if !required => {}
            None => return Err(missing(name, parameter)),
            Some(value) => check_type(parameter, value, name)?,
        }
    }
    Ok(())
}

/// The same for a call of `tool`: what its definition does not name is refused, unless the tool takes it.
///
/// # Errors
/// [`BadArguments`] that names the argument, and those that are known.
pub fn validate_call(tool: &dyn Tool, arguments: &Arguments) -> Result<(), BadArguments> {
    let fits = || tool.check(arguments).map_err(|error| BadArguments(error.to_string()));
    if tool.checks_arguments() {
        return fits();
    }
    let known = &tool.definition().parameters;
    if is_schema(known) {
        validate(tool.definition(), arguments)?;
        return fits();
    }
    if !tool.takes_unknown()
        && let Some(name) = arguments.keys().find(|name| !known.contains_key(name.as_str()))
    {
        return Err(unknown(name, Some(known)));
    }
    validate_simple(known, arguments)?;
    fits()
}

/// The definition's parameters as a JSON Schema object, for a model.
pub(super) fn json_schema(definition: &ToolDefinition) -> Value {
    if is_schema(&definition.parameters) {
        return Value::Object(definition.parameters.clone());
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, parameter) in &definition.parameters {
        let mut schema = parameter.as_object().cloned().unwrap_or_default();
        if schema.remove("required") == Some(Value::Bool(true)) {
            required.push(Value::from(name.as_str()));
        }
        if !schema.get("type").is_some_and(is_known_type) {
            schema.remove("type");
        }
        properties.insert(name.clone(), Value::Object(schema));
    }
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = Value::Array(required);
    }
    schema
}

/// Whether the parameters are a JSON Schema. In the simple form every entry is an object.
pub(super) fn is_schema(parameters: &Map<String, Value>) -> bool {
    if parameters.is_empty() {
        return false;
    }
    parameters.get("type").is_some_and(Value::is_string)
        || parameters.get("$ref").is_some_and(Value::is_string)
        || ["anyOf", "oneOf", "allOf"].iter().any(|word| parameters.get(*word).is_some_and(Value::is_array))
}

pub(super) fn is_known_type(name: &Value) -> bool {
    matches!(name.as_str(), Some("string" | "number" | "integer" | "boolean" | "object" | "array" | "null"))
}

/// Holds values against the parts of one schema.
pub(super) struct Checker<'s> {
    root: &'s Map<String, Value>,
    /// The patterns that were needed so far; None: it is none.
    pub(super) patterns: RefCell<HashMap<String, Option<Rc<RegexMatcher>>>>,
    /// How many steps it may still take.
    steps: Cell<u32>,
}

impl<'s> Checker<'s> {
    pub(super) fn new(root: &'s Map<String, Value>) -> Self {
        Self { root, patterns: RefCell::default(), steps: Cell::new(STEPS_MAX) }
    }

    /// Takes a step. The error says that there is none left: what is refused for it is not known to be wrong.
    fn step(&self) -> Result<(), BadArguments> {
        let left = self.steps.get().checked_sub(1);
        self.steps.set(left.unwrap_or(0));
        left.map(drop).ok_or_else(|| BadArguments(String::new()))
    }

    /// What came of it all. Who ran out of steps knows nothing, whatever the forms on the way made of that.
    fn over(&self, fits: Result<(), BadArguments>) -> Result<(), BadArguments> {
        match self.steps.get() {
            0 => Err(BadArguments(format!(
                "the arguments: cannot be held against the schema within {STEPS_MAX} steps: it has too many forms within forms"
            ))),
            _ => fits,
        }
    }
}

impl Checker<'_> {
    pub(super) fn check(&self, schema: &Value, value: &Value, path: &str, depth: u32) -> Result<(), BadArguments> {
        self.step()?;
        match schema {
            Value::Object(schema) => self.check_schema(schema, value, path, depth),
            Value::Bool(false) => Err(wrong(path, "nothing: it is not allowed here", value)),
            _ => Ok(()),
        }
    }

    fn check_schema(
        &self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        self.step()?;
        if depth > DEPTH_MAX {
            return Err(BadArguments(format!("{}: nested more than {DEPTH_MAX} deep", named(path))));
        }
        match schema.get("$ref") {
            Some(reference) if reference == "#" => self.check_schema(self.root, value, path, depth + 1)?,
            Some(reference) => {
                let target = self.resolve(reference);
                target.map_or(Ok(()), |target| self.check(target, value, path, depth + 1))?;
            }
            None => {}
        }
        if let Some(kinds) = schema.get("type") {
            check_kinds(kinds, value, path)?;
        }
        check_choice(schema, value, path)?;
        self.check_combined(schema, value, path, depth)?;
        self.check_condition(schema, value, path, depth)?;
        match value {
            Value::Number(_) => check_number(schema, value, path),
            Value::String(text) => {
                check_size(schema, ["minLength", "maxLength", "characters"], text.chars().count(), path)?;
                self.check_pattern(schema, text, path)
            }
            Value::Array(items) => self.check_array(schema, items, path, depth),
            Value::Object(members) => self.check_members(schema, members, path, depth),
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn check_object(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        let combined = ["$ref", "anyOf", "oneOf", "allOf", "not", "if"].iter().any(|word| schema.contains_key(*word));
        if combined {
            return self.check_schema(schema, &Value::Object(members.clone()), path, depth);
        }
        self.check_members(schema, members, path, depth)
    }

    fn check_members(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        let properties = schema.get("properties").and_then(Value::as_object);
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                let property = properties.and_then(|p| p.get(name)).unwrap_or(&Value::Null);
                return Err(missing(&join(path, name), property));
            }
        }
        self.check_whole(schema, members, path, depth)?;
        let rest = schema.get("additionalProperties");
        for (name, value) in members {
            let by_pattern = self.check_named(schema, (name, value), path, depth)?;
            match (properties.and_then(|p| p.get(name)), rest) {
                (Some(property), _) => self.check(property, value, &join(path, name), depth + 1)?,
                (None, _) if by_pattern => {}
                (None, Some(Value::Bool(false))) => return Err(unknown(&join(path, name), properties)),
                (None, Some(rest)) => self.check(rest, value, &join(path, name), depth + 1)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn check_array(
        &self,
        schema: &Map<String, Value>,
        items: &[Value],
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        check_size(schema, ["minItems", "maxItems", "items"], items.len(), path)?;
        self.check_items(schema, items, path, depth)?;
        // Earlier drafts have the first ones in `items`, and the rest in `additionalItems`.
        let (first, rest) = match schema.get("items") {
            Some(Value::Array(first)) => (Some(first), schema.get("additionalItems")),
            rest => (schema.get("prefixItems").and_then(Value::as_array), rest),
        };
        for (at, item) in items.iter().enumerate() {
            if let Some(schema) = first.and_then(|first| first.get(at)).or(rest) {
                self.check(schema, item, &format!("{path}[{at}]"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn check_combined(
        &self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        let list = |word: &str| schema.get(word).and_then(Value::as_array);
        for part in list("allOf").into_iter().flatten() {
            self.check(part, value, path, depth + 1)?;
        }
        for word in ["anyOf", "oneOf"] {
            let Some(choices) = list(word) else { continue };
            let results: Vec<_> = choices.iter().map(|c| self.check(c, value, path, depth + 1)).collect();
            let fitting = results.iter().filter(|r| r.is_ok()).count();
            let first_problem = results.into_iter().find_map(Result::err);
            match (fitting, first_problem) {
                (0, Some(problem)) if choices.len() == 1 => return Err(problem),
                (0, Some(problem)) => {
                    let text = format!(
                        "one of {} forms (the first fails: {})",
                        choices.len(),
                        clip(&problem.0, PROBLEM_CHARS_MAX)
                    );
                    return Err(wrong(path, &text, value));
                }
                (2.., _) if word == "oneOf" => {
                    return Err(wrong(path, "exactly one of the allowed forms, not several at once", value));
                }
                _ => {}
            }
        }
        match schema.get("not") {
            Some(not) if self.check(not, value, path, depth + 1).is_ok() => {
                Err(wrong(path, &format!("not {}", shown(not)), value))
            }
            _ => Ok(()),
        }
    }

    /// What a reference inside this schema means. None for one that leads elsewhere: nothing is fetched.
    pub(super) fn resolve(&self, reference: &Value) -> Option<&Value> {
        let pointer = reference.as_str()?.strip_prefix("#/")?;
        let mut parts = pointer.split('/').map(|p| p.replace("~1", "/").replace("~0", "~"));
        let mut at = self.root.get(&parts.next()?)?;
        for part in parts {
            at = match at {
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                other => other.get(&part)?,
            };
        }
        Some(at)
    }
}

/// The type and the choices of a simple parameter.
fn check_type(parameter: &Value, value: &Value, path: &str) -> Result<(), BadArguments> {
    let Some(schema) = parameter.as_object() else { return Ok(()) };
    if let Some(kind) = schema.get("type").filter(|kind| is_known_type(kind)) {
        check_kinds(kind, value, path)?;
    }
    check_choice(schema, value, path)?;
    if value.is_number() { check_number(schema, value, path) } else { Ok(()) }
}

fn check_kinds(kinds: &Value, value: &Value, path: &str) -> Result<(), BadArguments> {
    let names: Vec<&str> = match kinds {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    if names.is_empty() || names.iter().any(|name| is_kind(name, value)) {
        return Ok(());
    }
    let expected: Vec<String> = names.iter().map(|name| with_article(name)).collect();
    Err(wrong(path, &expected.join(" or "), value))
}

fn is_kind(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        // A type of nobody's: what it means is the tool's business.
        _ => true,
    }
}

fn check_choice(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), BadArguments> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.iter().any(|choice| same(choice, value))
    {
        let choices: Vec<String> = choices.iter().map(shown).collect();
        return Err(wrong(path, &format!("one of {}", choices.join(", ")), value));
    }
    match schema.get("const") {
        Some(only) if !same(only, value) => Err(wrong(path, &shown(only), value)),
        _ => Ok(()),
    }
}

/// Equal as JSON: 1 and 1.0 are one number.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

fn check_number(schema: &Map<String, Value>, value: &Value, path: &str) -> Result<(), BadArguments> {
    let Some(number) = value.as_f64() else { return Ok(()) };
    let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
    let tests: [(&str, &str, fn(f64, f64) -> bool); 4] = [
        ("minimum", "at least", |n, b| n >= b),
        ("maximum", "at most", |n, b| n <= b),
        ("exclusiveMinimum", "more than", |n, b| n > b),
        ("exclusiveMaximum", "less than", |n, b| n < b),
    ];
    for (word, words, holds) in tests {
        if let Some(bound) = bound(word).filter(|bound| !holds(number, *bound)) {
            return Err(wrong(path, &format!("{words} {bound}"), value));
        }
    }
    match bound("multipleOf") {
        Some(step) if step > 0.0 && ((number / step) - (number / step).round()).abs() > 1e-9 => {
            Err(wrong(path, &format!("a multiple of {step}"), value))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_size(
    schema: &Map<String, Value>,
    [least, most, unit]: [&str; 3],
    size: usize,
    path: &str,
) -> Result<(), BadArguments> {
    let bound = |word: &str| schema.get(word).and_then(Value::as_u64).and_then(|b| usize::try_from(b).ok());
    let problem = match (bound(least), bound(most)) {
        (Some(least), _) if size < least => format!("at least {least} {unit}"),
        (_, Some(most)) if size > most => format!("at most {most} {unit}"),
        _ => return Ok(()),
    };
    Err(BadArguments(format!("{}: expected {problem}, got {size}", named(path))))
}

pub(super) fn wrong(path: &str, expected: &str, value: &Value) -> BadArguments {
    let kind = match value {
        Value::Null => return BadArguments(format!("{}: expected {expected}, got null", named(path))),
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    BadArguments(format!("{}: expected {expected}, got the {kind} {}", named(path), shown(value)))
}

pub(super) fn missing(path: &str, parameter: &Value) -> BadArguments {
    let kind = parameter.get("type").and_then(Value::as_str).map_or_else(|| "a value".to_owned(), with_article);
    let purpose = parameter.get("description").and_then(Value::as_str).filter(|d| !d.is_empty());
    let purpose = purpose.map_or_else(String::new, |d| format!(" ({})", clip(d, 2 * SHOWN_CHARS_MAX)));
    BadArguments(format!("{} is missing: expected {kind}{purpose}, got nothing", named(path)))
}

fn unknown(path: &str, properties: Option<&Map<String, Value>>) -> BadArguments {
    let known: Vec<&str> = properties.into_iter().flat_map(|p| p.keys()).map(String::as_str).collect();
    let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
    BadArguments(format!("{} is unknown: expected only {known}", named(path)))
}

pub(super) fn named(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("argument \"{path}\"") }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn with_article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        _ if kind.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

/// The beginning of a value: no more of it is written than is shown.
pub(super) fn shown(value: &Value) -> String {
    struct Beginning(Vec<u8>);

    impl std::io::Write for Beginning {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > 4 * SHOWN_CHARS_MAX {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            let room = bytes.len().min(8 * SHOWN_CHARS_MAX);
            self.0.extend_from_slice(&bytes[..room]);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut beginning = Beginning(Vec::new());
    // What does not go in any more is not shown.
    drop(serde_json::to_writer(&mut beginning, value));
    clip(&String::from_utf8_lossy(&beginning.0), SHOWN_CHARS_MAX)
}

fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(parameters: Value) -> ToolDefinition {
        serde_json::from_value(json!({ "name": "t", "description": "", "parameters": parameters })).unwrap()
    }

    fn problem(parameters: &Value, arguments: Value) -> Option<String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        validate(&definition(parameters.clone()), &arguments).err().map(|e| e.0)
    }

    #[test]
    fn simple_parameters() {
        let parameters = json!({
            "path": {"type": "string", "description": "where", "required": true},
            "depth": {"type": "integer", "description": ""},
            "size": {"type": "number", "minimum": 1},
            "type": {"type": "string", "enum": ["a", "b"]},
            "odd": {"type": "string[]", "description": "a type of the caller's own"},
        });
        #[rustfmt::skip]
        let table = [
            (json!({"path": "x"}), None),
            (json!({"path": "x", "depth": null, "size": 1.5, "type": "a", "odd": 3, "more": {}}), None),
            (json!({}), Some("argument \"path\" is missing: expected a string (where), got nothing")),
            (json!({"path": null}), Some("argument \"path\": expected a string, got null")),
            (json!({"path": 5}), Some("argument \"path\": expected a string, got the number 5")),
            (json!({"path": "x", "depth": "2"}), Some("argument \"depth\": expected an integer, got the string \"2\"")),
            (json!({"path": "x", "depth": 2.5}), Some("argument \"depth\": expected an integer, got the number 2.5")),
            (json!({"path": "x", "depth": 2.0}), None),
            (json!({"path": "x", "size": 0}), Some("argument \"size\": expected at least 1, got the number 0")),
            (json!({"path": "x", "type": "c"}), Some("argument \"type\": expected one of \"a\", \"b\", got the string \"c\"")),
        ];
        for (arguments, want) in table {
            assert_eq!(problem(&parameters, arguments.clone()).as_deref(), want, "{arguments}");
        }
    }

    #[test]
    fn json_schema_parameters() {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 2, "maxLength": 3},
                "edits": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/edit"}},
                "when": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
                "n": {"type": ["integer", "null"], "maximum": 9, "exclusiveMinimum": 0, "multipleOf": 3},
                "not": {"not": {"const": 7}},
            },
            "required": ["path"],
            "additionalProperties": false,
            "$defs": {"edit": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]}},
        });
        #[rustfmt::skip]
        let table = [
            (json!({"path": "ab", "edits": [{"old": ""}], "when": null, "one": 1.5, "n": 3, "not": 8}), None),
            (json!({"n": 3}), Some("argument \"path\" is missing: expected a string, got nothing")),
            (json!({"path": "a"}), Some("argument \"path\": expected at least 2 characters, got 1")),
            (json!({"path": "äöüß"}), Some("argument \"path\": expected at most 3 characters, got 4")),
            (json!({"path": "ab", "edits": []}), Some("argument \"edits\": expected at least 1 items, got 0")),
            (json!({"path": "ab", "edits": [{"old": ""}, {}]}), Some("argument \"edits[1].old\" is missing: expected a string, got nothing")),
            (json!({"path": "ab", "edits": {}}), Some("argument \"edits\": expected an array, got the object {}")),
            (json!({"path": "ab", "pth": 1}), Some("argument \"pth\" is unknown: expected only path, edits, when, one, n, not")),
            (json!({"path": "ab", "when": 1}), Some("argument \"when\": expected one of 2 forms (the first fails: argument \"when\": expected a string, got the number 1), got the number 1")),
            (json!({"path": "ab", "one": 1}), Some("argument \"one\": expected exactly one of the allowed forms, not several at once, got the number 1")),
            (json!({"path": "ab", "n": "3"}), Some("argument \"n\": expected an integer or null, got the string \"3\"")),
            (json!({"path": "ab", "n": 12}), Some("argument \"n\": expected at most 9, got the number 12")),
            (json!({"path": "ab", "n": 0}), Some("argument \"n\": expected more than 0, got the number 0")),
            (json!({"path": "ab", "n": 4}), Some("argument \"n\": expected a multiple of 3, got the number 4")),
            (json!({"path": "ab", "n": null}), None),
            (json!({"path": "ab", "not": 7}), Some("argument \"not\": expected not {\"const\":7}, got the number 7")),
        ];
        for (arguments, want) in table {
            assert_eq!(problem(&parameters, arguments.clone()).as_deref(), want, "{arguments}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let parameters = json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}});
        assert!(problem(&parameters, json!({"a": 1})).is_some_and(|p| p.contains("nested more than")));
    }

    #[test]
    fn a_schema_of_forms_within_forms_is_given_up_and_not_taken_for_fit() {
        let twice = json!({ "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] });
        let not = json!({ "oneOf": [{ "$ref": "#/$defs/a" }, { "not": { "$ref": "#/$defs/a" } }] });
        let all = json!({ "not": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } });
        for form in [twice, not, all] {
            let schema =
                json!({ "type": "object", "properties": { "c": { "$ref": "#/$defs/a" } }, "$defs": { "a": form } });
            let problem = problem(&schema, json!({ "c": 1 })).expect("it is refused");
            assert!(problem.contains("cannot be held against the schema within"), "{problem}");
            let why = hold_to(schema.as_object().expect("an object"), &json!({ "c": 1 })).expect_err("refused");
            assert!(why.starts_with("the answer: cannot be held"), "{why}");
        }
        let many: Vec<u32> = (0..100_000).collect();
        let plain = json!({ "type": "object", "properties": { "c": { "items": { "type": "integer" } } } });
        assert_eq!(problem(&plain, json!({ "c": many })), None);
        let long = shown(&json!({ "text": "ä".repeat(1 << 20), "more": vec![0; 100_000] }));
        assert_eq!(long.chars().count(), SHOWN_CHARS_MAX + 1, "{long}");
    }

    #[test]
    fn a_choice_at_the_root() {
        let parameters =
            json!({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]});
        assert_eq!(problem(&parameters, json!({"b": 1})), None);
        assert!(
            problem(&parameters, json!({})).is_some_and(|p| p.starts_with("the arguments: expected one of 2 forms"))
        );
    }

    #[test]
    fn the_schema_that_a_model_gets() {
        let simple = definition(json!({
            "path": {"type": "string", "description": "where", "required": true},
            "any": {"type": "any", "description": "", "required": false},
        }));
        let want = json!({
            "type": "object",
            "properties": {"path": {"type": "string", "description": "where"}, "any": {"description": ""}},
            "required": ["path"],
        });
        assert_eq!(json_schema(&simple), want);
        assert_eq!(json_schema(&definition(json!({}))), json!({"type": "object", "properties": {}}));
        let schema = json!({"type": "object", "properties": {"a": {}}});
        assert_eq!(json_schema(&definition(schema.clone())), schema);
    }
}
