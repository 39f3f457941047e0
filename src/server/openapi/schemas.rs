//! The schemas of the document: every type once, under its own name.
//!
//! A type says something else as what comes in than as what goes out: in a body a field may be `null` and nothing unknown
//! passes, in an answer a field that is absent is left out and new ones may come. Types of which both are told, and that
//! differ, have two names: what comes in ends in `Input`.

use std::collections::BTreeSet;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::app::narrow;

/// Where types stand in the document.
const PLACE: &str = "#/components/schemas/";
/// Where those of what comes in stand as long as their last name is not known.
const INCOMING: &str = "#/components/incoming/";

/// Types that were named so far.
pub(crate) struct Schemas {
    incoming: SchemaGenerator,
    outgoing: SchemaGenerator,
    own: Map<String, Value>,
    own_incoming: Map<String, Value>,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let of = |place: &'static str| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = place.trim_matches(['#']).into();
            settings
        };
        Self {
            incoming: of(INCOMING).into_generator(),
            outgoing: of(PLACE).for_serialize().into_generator(),
            own: Map::new(),
            own_incoming: Map::new(),
        }
    }

    /// A reference to a type as it comes in.
    pub(crate) fn incoming<T: JsonSchema>(&mut self) -> Value {
        self.incoming.subschema_for::<T>().to_value()
    }

    /// A type as it comes in, by itself.
    pub(super) fn incoming_whole(&mut self, of: fn(&mut SchemaGenerator) -> schemars::Schema) -> Value {
        of(&mut self.incoming).to_value()
    }

    /// A reference to a type as it goes out.
    pub(crate) fn outgoing<T: JsonSchema>(&mut self) -> Value {
        self.outgoing.subschema_for::<T>().to_value()
    }

    /// The same, by a function that names it.
    pub(super) fn outgoing_of(&mut self, of: fn(&mut SchemaGenerator) -> schemars::Schema) -> Value {
        of(&mut self.outgoing).to_value()
    }

    /// A type as it goes out, by itself.
    pub(super) fn outgoing_whole<T: JsonSchema>(&mut self) -> Value {
        let whole = T::json_schema(&mut self.outgoing);
        whole.to_value()
    }

    /// Adds a schema that is no type's, and gives back a reference to it.
    pub(super) fn add(&mut self, name: &str, schema: Value) -> Value {
        self.own.insert(name.to_owned(), schema);
        reference(name)
    }

    /// The same of something that comes in.
    pub(super) fn add_incoming(&mut self, name: &str, schema: Value) -> Value {
        self.own_incoming.insert(name.to_owned(), schema);
        reference(name)
    }

    /// All of them, and `document` with every name in it as it is now.
    pub(super) fn finish(mut self, document: &mut Value) -> Map<String, Value> {
        let mut incoming = self.incoming.take_definitions(true);
        let mut outgoing = self.outgoing.take_definitions(true);
        for (name, schema) in &mut incoming {
            tidy_incoming(schema);
            narrow(name, schema);
        }
        self.own_incoming.values_mut().for_each(tidy_incoming);
        for schema in outgoing.values_mut().chain(self.own.values_mut()) {
            tidy_outgoing(schema);
        }
        let twofold = twofold(&incoming, &outgoing);
        let named = |name: &str| if twofold.contains(name) { format!("{name}Input") } else { name.to_owned() };
        let mut all = outgoing;
        all.append(&mut self.own);
        all.append(&mut self.own_incoming);
        for (name, mut schema) in incoming {
            rename(&mut schema, &named);
            all.insert(named(&name), schema);
        }
        for schema in all.values_mut() {
            rename(schema, &named);
        }
        rename(document, &named);
        tidy_incoming(document);
        all.sort_keys();
        all
    }
}

/// A reference to a schema of the document.
pub(crate) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{PLACE}{name}") })
}

/// The types that say something else when they come in, or name one that does.
fn twofold(incoming: &Map<String, Value>, outgoing: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for (name, schema) in incoming {
            let Some(other) = outgoing.get(name) else { continue };
            let mut plain = schema.clone();
            rename(&mut plain, &str::to_owned);
            if plain != *other || names(schema).any(|named| found.contains(&named)) {
                found.insert(name.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The types that are named in what comes in.
fn names(schema: &Value) -> Box<dyn Iterator<Item = String> + '_> {
    match schema {
        Value::Object(fields) => Box::new(fields.iter().flat_map(|(key, value)| {
            let own = value.as_str().filter(|_| key == "$ref").and_then(|text| text.strip_prefix(INCOMING));
            own.map(str::to_owned).into_iter().chain(names(value))
        })),
        Value::Array(items) => Box::new(items.iter().flat_map(names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

/// Gives every type that comes in its last name.
fn rename(value: &mut Value, named: &dyn Fn(&str) -> String) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                let name = value.as_str().filter(|_| key == "$ref").and_then(|text| text.strip_prefix(INCOMING));
                match name {
                    Some(name) => *value = format!("{PLACE}{}", named(name)).into(),
                    None => rename(value, named),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What holds for every schema: words without links, numbers with a format that others know.
fn tidy(fields: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = plain_words(text);
    }
    if fields.get("default") == Some(&Value::Null) {
        fields.remove("default");
    }
    if let Some(format) = fields.get_mut("format") {
        match format.as_str() {
            Some("uint") => *format = "uint64".into(),
            Some("uint8" | "uint16") => *format = "uint32".into(),
            _ => {}
        }
    }
}

/// Documentation as it stands in the sources, without its line breaks and links.
fn plain_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let text = lines.join(" ").replace("[`", "`").replace("`]", "`");
    // A link's target behind its words, as in `x`(self::x).
    match text.split_once("`(") {
        Some((before, rest)) if rest.contains(')') => {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            format!("{before}`{after}")
        }
        _ => text,
    }
}

fn tidy_incoming(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            tidy(fields);
            if fields.get("minimum") == Some(&json!(0)) && !fields.contains_key("maximum") {
                let largest = match fields.get("format").and_then(Value::as_str) {
                    Some("uint64") => Some(json!(u64::MAX)),
                    Some("uint32") => Some(json!(u32::MAX)),
                    _ => None,
                };
                if let Some(largest) = largest {
                    fields.insert("maximum".to_owned(), largest);
                }
            }
            fields.values_mut().for_each(tidy_incoming);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_incoming),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What may be left out is left out where it is not there, and never `null`.
fn tidy_outgoing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            tidy(fields);
            let required: Vec<String> = fields
                .get("required")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
                .unwrap_or_default();
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                for (_, schema) in properties.iter_mut().filter(|(name, _)| !required.contains(name)) {
                    without_null(schema);
                }
            }
            fields.values_mut().for_each(tidy_outgoing);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_outgoing),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The same, but for `null`.
fn without_null(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(choices)) = fields.get_mut("anyOf") else { return };
    choices.retain(|choice| choice.get("type").and_then(Value::as_str) != Some("null"));
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        fields.remove("anyOf");
        for (key, value) in only {
            fields.entry(key).or_insert(value);
        }
    }
}
