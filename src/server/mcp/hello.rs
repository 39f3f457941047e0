//! The handshake: what a client says of itself, and what it is told of us.

use serde_json::{Map, Value, json};

use super::peer::Peer;
use super::wire::{Request, RpcError, VERSIONS};

/// Longest name of a client that is kept, in characters.
const NAME_CHARS_MAX: usize = 80;

/// What it is told about itself once, for its model.
pub(super) const INSTRUCTIONS: &str = "The tools work in one session of this server, in its working directory, under its permission \
    rules: a call may be refused, or ask the user first. Read a file before you change it. `session_prompt` gives work to an \
    agent of this server, `session_wait` waits for its answer.";

/// What a client said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hello {
    /// The version that is spoken.
    pub(super) version: &'static str,
    /// Its name and version, for people.
    pub(super) client: String,
    /// Whether it can fill in forms.
    pub(super) fills_forms: bool,
    /// Whether it says where it works.
    pub(super) has_roots: bool,
    /// Whether it can ask a model.
    pub(super) samples: bool,
}

impl Hello {
    /// What `initialize` said.
    pub(super) fn read(request: &Request) -> Result<Self, RpcError> {
        let wanted = request.text("protocolVersion")?;
        let version = VERSIONS.iter().find(|known| **known == wanted).copied().unwrap_or(VERSIONS[0]);
        let nothing = Map::new();
        let object = |name: &str| request.params.get(name).and_then(Value::as_object);
        let can = object("capabilities").ok_or_else(|| RpcError::params("`capabilities`: expected an object"))?;
        Ok(Self::of(version, (can, object("clientInfo").unwrap_or(&nothing))))
    }

    /// The same of what it said: what it can, and about itself.
    pub(super) fn of(version: &'static str, (can, about): (&Map<String, Value>, &Map<String, Value>)) -> Self {
        let said = |name: &str| about.get(name).and_then(Value::as_str).unwrap_or_default();
        let client: String = [said("name"), said("version")].join(" ").chars().filter(|c| !c.is_control()).collect();
        let client: String = client.trim().chars().take(NAME_CHARS_MAX).collect();
        Self {
            version,
            client: if client.is_empty() { "unknown".to_owned() } else { client },
            // Where no way is named, forms are meant: before there were others, there was no name for them.
            fills_forms: can
                .get("elicitation")
                .is_some_and(|ways| ways.get("form").is_some() || ways.get("url").is_none()),
            has_roots: can.contains_key("roots"),
            samples: can.contains_key("sampling"),
        }
    }
}

/// Answers `initialize`.
pub(super) fn answer(peer: &Peer, request: &Request) -> Result<Value, RpcError> {
    let hello = Hello::read(request)?;
    let version = hello.version;
    peer.greet(hello)?;
    Ok(json!({
        "protocolVersion": version,
        "capabilities": offers(peer),
        "serverInfo": server(),
        "instructions": INSTRUCTIONS,
    }))
}

/// What is offered to a client.
pub(super) fn offers(peer: &Peer) -> Value {
    let mut capabilities = json!({
        "tools": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "logging": {},
        "completions": {},
    });
    if peer.fixtures {
        capabilities["prompts"] = json!({});
    }
    capabilities
}

/// Who says it.
pub(super) fn server() -> Value {
    json!({ "name": "simse", "title": "simse", "version": env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: Value) -> Result<Hello, RpcError> {
        let Value::Object(params) = params else { panic!("an object") };
        Hello::read(&Request { id: 1.into(), method: "initialize".into(), params })
    }

    #[test]
    fn the_version_is_the_clients_or_the_newest() {
        for (wanted, want) in [
            ("2025-11-25", "2025-11-25"),
            ("2025-06-18", "2025-06-18"),
            ("2025-03-26", "2025-03-26"),
            ("2024-11-05", "2024-11-05"),
            ("2030-01-01", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            let hello = read(json!({ "protocolVersion": wanted, "capabilities": {}, "clientInfo": { "name": "c" } }));
            assert_eq!(hello.unwrap().version, want, "{wanted}");
        }
        assert!(read(json!({ "capabilities": {} })).is_err());
        assert!(read(json!({ "protocolVersion": "2025-11-25" })).is_err());
    }

    #[test]
    fn who_can_only_be_sent_to_a_page_cannot_be_asked() {
        for (elicitation, want) in [
            (json!({}), true),
            (json!({ "form": {} }), true),
            (json!({ "form": {}, "url": {} }), true),
            (json!({ "url": {} }), false),
        ] {
            let can = json!({ "elicitation": elicitation });
            let hello = read(json!({ "protocolVersion": "2025-11-25", "capabilities": can })).unwrap();
            assert_eq!(hello.fills_forms, want, "{elicitation}");
            assert_eq!(hello.client, "unknown");
        }
    }
}
