//! Parameters as models' interfaces take them: an object, without a choice or a reference at its top.
//!
//! OpenAI and Anthropic refuse `anyOf`, `oneOf`, `allOf` and `$ref` there, and with one such tool the whole request. What a
//! model is told is therefore wider than the schema: all members of all forms, those required that every form requires.
//! Calls are held against the schema itself.

use serde_json::{Map, Value, json};

use super::validate::{Checker, DEPTH_MAX, json_schema};
use crate::protocol::ToolDefinition;

/// Words at the top that say which of several forms it is, or where it stands.
const CHOICES: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "not"];
/// Words of the schema that stay when its forms become one.
const KEPT: [&str; 4] = ["$defs", "definitions", "description", "title"];

/// The definition's parameters as a JSON Schema that every model's interface takes.
pub fn told_schema(definition: &ToolDefinition) -> Value {
    let Value::Object(schema) = json_schema(definition) else { return json!({ "type": "object" }) };
    if !CHOICES.iter().any(|word| schema.contains_key(*word)) {
        return Value::Object(schema);
    }
    let mut members = Members::default();
    members.take(&Checker::new(&schema), &schema, 0);
    let mut told: Map<String, Value> =
        KEPT.iter().filter_map(|word| Some(((*word).to_owned(), schema.get(*word)?.clone()))).collect();
    told.insert("type".to_owned(), "object".into());
    told.insert("properties".to_owned(), Value::Object(members.properties));
    if !members.required.is_empty() {
        told.insert("required".to_owned(), members.required.into());
    }
    Value::Object(told)
}

/// What the forms of an object add up to.
#[derive(Default)]
struct Members {
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Members {
    /// What `schema` asks for, beside what was there. A reference that leads in a circle adds nothing more.
    fn take(&mut self, checker: &Checker<'_>, schema: &Map<String, Value>, depth: u32) {
        if depth > DEPTH_MAX {
            return;
        }
        let own = schema.get("properties").and_then(Value::as_object);
        for (name, property) in own.into_iter().flatten() {
            self.add(name, property);
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            self.require(name);
        }
        if let Some(Value::Object(there)) = schema.get("$ref").and_then(|place| checker.resolve(place)) {
            self.take(checker, there, depth + 1);
        }
        for part in forms(schema, "allOf") {
            self.take(checker, part, depth + 1);
        }
        for word in ["anyOf", "oneOf"] {
            self.take_one_of(checker, &forms(schema, word).collect::<Vec<_>>(), depth + 1);
        }
    }

    /// The members of all forms; of what they require, what all of them do.
    fn take_one_of(&mut self, checker: &Checker<'_>, forms: &[&Map<String, Value>], depth: u32) {
        let mut each = forms.iter().map(|form| {
            let mut members = Self::default();
            members.take(checker, form, depth);
            members
        });
        let Some(mut all) = each.next() else { return };
        for form in each {
            all.required.retain(|name| form.required.contains(name));
            form.properties.iter().for_each(|(name, property)| all.add(name, property));
        }
        all.properties.iter().for_each(|(name, property)| self.add(name, property));
        all.required.iter().for_each(|name| self.require(name));
    }

    fn require(&mut self, name: &str) {
        if !self.required.iter().any(|known| known == name) {
            self.required.push(name.to_owned());
        }
    }

    /// A member that has another form elsewhere may have either.
    fn add(&mut self, name: &str, property: &Value) {
        let Some(known) = self.properties.get_mut(name) else {
            self.properties.insert(name.to_owned(), property.clone());
            return;
        };
        if known == property {
            return;
        }
        match known.as_object_mut().filter(|known| known.len() == 1).and_then(|known| known.get_mut("anyOf")) {
            Some(Value::Array(either)) if either.contains(property) => {}
            Some(Value::Array(either)) => either.push(property.clone()),
            _ => *known = json!({ "anyOf": [known.take(), property] }),
        }
    }
}

fn forms<'s>(schema: &'s Map<String, Value>, word: &str) -> impl Iterator<Item = &'s Map<String, Value>> {
    schema.get(word).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(parameters: Value) -> Value {
        let definition = json!({ "name": "t", "description": "", "parameters": parameters });
        told_schema(&serde_json::from_value(definition).expect("a definition"))
    }

    #[test]
    fn forms_become_one_object() {
        let a = json!({"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]});
        let b = json!({"type": "object", "properties": {"kind": {"const": "b"}, "y": {"type": "number"}}, "required": ["kind"]});
        let either = json!({"anyOf": [{"const": "a"}, {"const": "b"}]});
        #[rustfmt::skip]
        let table = [
            (json!({"type": "object", "properties": {}, "additionalProperties": false}), json!({"type": "object", "properties": {}, "additionalProperties": false})),
            (json!({"k": {"type": "string", "required": true}}), json!({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]})),
            (json!({"anyOf": [a, b]}), json!({"type": "object", "properties": {"kind": either, "x": {"type": "string"}, "y": {"type": "number"}}, "required": ["kind"]})),
            (json!({"oneOf": [a, b, a]}), json!({"type": "object", "properties": {"kind": either, "x": {"type": "string"}, "y": {"type": "number"}}, "required": ["kind"]})),
            (json!({"allOf": [a, {"properties": {"y": {}}, "required": ["y"]}], "description": "d"}),
             json!({"description": "d", "type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}, "y": {}}, "required": ["kind", "x", "y"]})),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": a}}),
             json!({"$defs": {"a": a}, "type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "string"}}, "required": ["kind", "x"]})),
            (json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]}), json!({"type": "object", "properties": {}})),
        ];
        for (parameters, want) in table {
            assert_eq!(told(parameters.clone()), want, "{parameters}");
        }
    }
}
