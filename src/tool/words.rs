//! The further words of JSON Schema: patterns, names and numbers of members, conditions.
//!
//! A pattern is one of Rust's regular expressions, found anywhere in a text. One that does not compile holds nothing:
//! `schema` refuses it where a program registers it.

use std::collections::HashSet;
use std::rc::Rc;

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::{Map, Value};

use super::BadArguments;
use super::validate::{Checker, check_size, join, missing, named, shown, wrong};

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Compiles a pattern.
///
/// # Errors
/// Why it is none, or none that can be held against a text here.
pub(super) fn compile(pattern: &str) -> Result<RegexMatcher, grep_regex::Error> {
    RegexMatcherBuilder::new().size_limit(PATTERN_BYTES_MAX).build(pattern)
}

impl Checker<'_> {
    /// Whether a text has the pattern somewhere in it. None: the pattern is none.
    fn has_pattern(&self, pattern: &str, text: &str) -> Option<bool> {
        let mut compiled = self.patterns.borrow_mut();
        if !compiled.contains_key(pattern) {
            compiled.insert(pattern.to_owned(), compile(pattern).ok().map(Rc::new));
        }
        let matcher = compiled.get(pattern)?.as_ref()?;
        matcher.is_match(text.as_bytes()).ok()
    }

    /// `pattern`.
    pub(super) fn check_pattern(
        &self,
        schema: &Map<String, Value>,
        text: &str,
        path: &str,
    ) -> Result<(), BadArguments> {
        let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else { return Ok(()) };
        match self.has_pattern(pattern, text) {
            Some(false) => Err(wrong(path, &format!("a text that matches /{pattern}/"), &Value::from(text))),
            Some(true) | None => Ok(()),
        }
    }

    /// `patternProperties` for one member; true when one of them is about it.
    pub(super) fn check_named(
        &self,
        schema: &Map<String, Value>,
        (name, value): (&str, &Value),
        path: &str,
        depth: u32,
    ) -> Result<bool, BadArguments> {
        let mut about = false;
        for (pattern, schema) in schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
            if self.has_pattern(pattern, name) == Some(true) {
                about = true;
                self.check(schema, value, &join(path, name), depth + 1)?;
            }
        }
        Ok(about)
    }

    /// `minProperties`, `maxProperties`, `propertyNames`, `dependentRequired` and `dependentSchemas`.
    pub(super) fn check_whole(
        &self,
        schema: &Map<String, Value>,
        members: &Map<String, Value>,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        check_size(schema, ["minProperties", "maxProperties", "members"], members.len(), path)?;
        if let Some(names) = schema.get("propertyNames") {
            for name in members.keys() {
                self.check(names, &Value::from(name.as_str()), &format!("the name {}", join(path, name)), depth + 1)?;
            }
        }
        let dependent = |word: &str| schema.get(word).and_then(Value::as_object).into_iter().flatten();
        for (name, needed) in dependent("dependentRequired").filter(|(name, _)| members.contains_key(*name)) {
            let mut needed = needed.as_array().into_iter().flatten().filter_map(Value::as_str);
            if let Some(lacking) = needed.find(|needed| !members.contains_key(*needed)) {
                let BadArguments(text) = missing(&join(path, lacking), &Value::Null);
                return Err(BadArguments(format!("{text}, beside \"{name}\"")));
            }
        }
        for (_, schema) in dependent("dependentSchemas").filter(|(name, _)| members.contains_key(*name)) {
            self.check(schema, &Value::Object(members.clone()), path, depth + 1)?;
        }
        Ok(())
    }

    /// `uniqueItems`, `contains`, `minContains` and `maxContains`.
    pub(super) fn check_items(
        &self,
        schema: &Map<String, Value>,
        items: &[Value],
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            let mut seen = HashSet::new();
            if let Some(at) = items.iter().position(|item| !seen.insert(key(item))) {
                return Err(wrong(&format!("{path}[{at}]"), "an item that is not there yet", &items[at]));
            }
        }
        let Some(contained) = schema.get("contains") else { return Ok(()) };
        let count = items.iter().filter(|item| self.check(contained, item, path, depth + 1).is_ok()).count();
        let bound = |word: &str| schema.get(word).and_then(Value::as_u64).and_then(|b| usize::try_from(b).ok());
        let least = bound("minContains").unwrap_or(1);
        let problem = match bound("maxContains") {
            _ if count < least => format!("at least {least}"),
            Some(most) if count > most => format!("at most {most}"),
            Some(_) | None => return Ok(()),
        };
        let items = format!("{problem} items that fit {}", shown(contained));
        Err(BadArguments(format!("{}: expected {items}, got {count}", named(path))))
    }

    /// `if`, `then` and `else`.
    pub(super) fn check_condition(
        &self,
        schema: &Map<String, Value>,
        value: &Value,
        path: &str,
        depth: u32,
    ) -> Result<(), BadArguments> {
        let Some(condition) = schema.get("if") else { return Ok(()) };
        let word = if self.check(condition, value, path, depth + 1).is_ok() { "then" } else { "else" };
        schema.get(word).map_or(Ok(()), |schema| self.check(schema, value, path, depth + 1))
    }
}

/// A text that two values share only when they are equal as JSON: 1 and 1.0 are one number, and members have no order.
fn key(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |n| format!("{n}")),
        Value::Array(items) => format!("[{}]", items.iter().map(key).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<String> =
                members.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), key(value))).collect();
            members.sort_unstable();
            format!("{{{}}}", members.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::validate::validate;
    use super::*;
    use crate::protocol::ToolDefinition;

    fn problem(schema: &Value, arguments: Value) -> Option<String> {
        let definition = json!({ "name": "t", "description": "", "parameters": schema });
        let definition: ToolDefinition = serde_json::from_value(definition).unwrap();
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        validate(&definition, &arguments).err().map(|e| e.0)
    }

    #[test]
    fn the_further_words() {
        let schema = json!({
            "type": "object",
            "properties": {
                "date": {"pattern": "^\\d{4}-\\d\\d$"},
                "odd": {"pattern": "("},
                "set": {"uniqueItems": true},
                "some": {"contains": {"type": "string"}, "maxContains": 2},
                "none": {"contains": {"type": "string"}, "minContains": 0},
                "map": {"minProperties": 1, "maxProperties": 2, "propertyNames": {"pattern": "^[a-z]+$"}},
                "by": {"patternProperties": {"^n_": {"type": "number"}}, "additionalProperties": false},
                "tuple": {"items": [{"type": "string"}], "additionalItems": {"type": "number"}},
                "card": {"dependentRequired": {"number": ["name"]}, "dependentSchemas": {"name": {"required": ["number"]}}},
                "root": {"$ref": "#"},
            },
            "if": {"required": ["date"]},
            "then": {"properties": {"set": {"type": "array"}}},
            "else": {"required": ["set"]},
        });
        #[rustfmt::skip]
        let table = [
            (json!({"date": "2026-11"}), None),
            (json!({"date": 5, "set": []}), None),
            (json!({"date": "x2026-11"}), Some("argument \"date\": expected a text that matches /^\\d{4}-\\d\\d$/, got the string \"x2026-11\"")),
            (json!({}), Some("argument \"set\" is missing: expected a value, got nothing")),
            (json!({"date": "2026-11", "set": 1}), Some("argument \"set\": expected an array, got the number 1")),
            (json!({"set": [], "odd": "anything"}), None),
            (json!({"set": [1, "1", [1], {"a": 1, "b": [2]}]}), None),
            (json!({"set": [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]}), Some("argument \"set[1]\": expected an item that is not there yet, got the object {\"b\":[2.0],\"a\":1}")),
            (json!({"set": [], "some": [1, "a"]}), None),
            (json!({"set": [], "some": [1]}), Some("argument \"some\": expected at least 1 items that fit {\"type\":\"string\"}, got 0")),
            (json!({"set": [], "some": ["a", "b", "c"]}), Some("argument \"some\": expected at most 2 items that fit {\"type\":\"string\"}, got 3")),
            (json!({"set": [], "none": [1]}), None),
            (json!({"set": [], "map": {"a": 1}}), None),
            (json!({"set": [], "map": {}}), Some("argument \"map\": expected at least 1 members, got 0")),
            (json!({"set": [], "map": {"a": 1, "b": 1, "c": 1}}), Some("argument \"map\": expected at most 2 members, got 3")),
            (json!({"set": [], "map": {"A": 1}}), Some("argument \"the name map.A\": expected a text that matches /^[a-z]+$/, got the string \"A\"")),
            (json!({"set": [], "by": {"n_a": 1}}), None),
            (json!({"set": [], "by": {"n_a": "1"}}), Some("argument \"by.n_a\": expected a number, got the string \"1\"")),
            (json!({"set": [], "by": {"a": 1}}), Some("argument \"by.a\" is unknown: expected only none at all")),
            (json!({"set": [], "tuple": ["a", 1]}), None),
            (json!({"set": [], "tuple": [1]}), Some("argument \"tuple[0]\": expected a string, got the number 1")),
            (json!({"set": [], "tuple": ["a", "b"]}), Some("argument \"tuple[1]\": expected a number, got the string \"b\"")),
            (json!({"set": [], "card": {"number": 1}}), Some("argument \"card.name\" is missing: expected a value, got nothing, beside \"number\"")),
            (json!({"set": [], "card": {"name": 1}}), Some("argument \"card.number\" is missing: expected a value, got nothing")),
            (json!({"set": [], "root": {"set": []}}), None),
            (json!({"set": [], "root": {}}), Some("argument \"root.set\" is missing: expected a value, got nothing")),
        ];
        for (arguments, want) in table {
            assert_eq!(problem(&schema, arguments.clone()).as_deref(), want, "{arguments}");
        }
    }
}
