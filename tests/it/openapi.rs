//! The OpenAPI document: what is committed is what the code says, and the server does what it says.

use serde_json::Value;
use simse::server::openapi_document;

fn document() -> Value {
    serde_json::from_str(&openapi_document()).unwrap()
}

#[test]
fn the_committed_document_is_the_codes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap();
    let made = openapi_document();
    let differs = committed.lines().zip(made.lines()).position(|(a, b)| a != b);
    assert!(committed == made, "docs/openapi.json differs from line {differs:?} on: simse openapi > docs/openapi.json");
}

/// Every `$ref` leads somewhere, and every schema is named by something.
#[test]
fn every_name_stands_for_something() {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value.as_str() {
                        Some(name) if key == "$ref" => found.push(name.to_owned()),
                        _ => names(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    names(&document, &mut found);
    for name in &found {
        assert!(name.starts_with("#/") && document.pointer(&name[1..]).is_some(), "{name} leads nowhere");
    }
    // What no schema names: the names that are looked up by who reads a stream.
    let loose = ["Event", "EventType", "LifecycleEvent", "LifecycleType", "StreamReady"];
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        let place = format!("#/components/schemas/{name}");
        assert!(found.contains(&place) || loose.contains(&name.as_str()), "nothing names {name}");
    }
}
