//! The OpenAPI document: what is committed is what the code says, and the server does what it says.

use serde_json::Value;
use simse::server::openapi_document;

use crate::support::house::House;
use crate::support::http::request;

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

/// What is refused of every request stands at every route, and `HEAD` is answered wherever `GET` is.
#[tokio::test]
async fn what_holds_for_every_route_is_said_of_every_route() {
    let house = House::open().await;
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let operations =
            methods.as_object().unwrap().iter().filter(|(_, operation)| operation["responses"].is_object());
        for (method, operation) in operations {
            assert!(operation["responses"]["413"].is_object(), "{method} {path}");
        }
    }
    assert!(document["info"]["description"].as_str().unwrap().contains("`HEAD`"));
    for path in ["/health", "/sessions", "/models", "/openapi.json"] {
        // Its length is that of the body, which does not come.
        assert_eq!(request(house.address, "HEAD", path).open(house.address).await.status, 200, "{path}");
    }
    for method in ["GET", "DELETE"] {
        let large = request(house.address, method, "/sessions/s").header("Content-Length", "18446744073709551615");
        assert_eq!(large.send(house.address).await.status, 413, "{method}");
    }
    house.close().await;
}
