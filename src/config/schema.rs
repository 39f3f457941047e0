//! The configuration file as a JSON Schema (draft 2020-12), made from the settings themselves. `faults` holds files against it.

use serde_json::{Value, json};

use super::acp_profile::ACP_PROFILES;
use super::node_settings::{LABEL_PATTERN, LABELS_MAX};
use super::{BOUNDS, HOOK_EVENTS, Options, options};
use crate::base::limit;

/// The schema. Each setting has its words of `--help` as its description.
pub fn schema() -> Value {
    let mut properties = Options::schemas();
    let mut bound = |name: &str, keyword: &str, value: Value| {
        if let Some(property) = properties.get_mut(name) {
            property[keyword] = value;
        }
    };
    for bounds in BOUNDS {
        bound(bounds.name, "minimum", bounds.least.into());
        bound(bounds.name, "maximum", bounds.most.into());
    }
    bound("memory_similarity_threshold", "minimum", 0.into());
    bound("memory_similarity_threshold", "maximum", 1.into());
    bound("replay_speed", "minimum", 0.into());
    bound("host", "minLength", 1.into());
    bound("node_labels", "items", json!({ "type": "string", "pattern": LABEL_PATTERN }));
    bound("node_labels", "maxItems", LABELS_MAX.into());
    bound("node_labels", "uniqueItems", true.into());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration file of simse (TOML)",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// A text that is one of those in a sentence such as `allow, ask or deny`.
pub(super) fn one_of(expected: &str) -> Value {
    let words: Vec<&str> = expected.split(", ").flat_map(|part| part.split(" or ")).collect();
    json!({ "type": "string", "enum": words })
}

/// An array of such things.
pub(super) fn list_of(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// An object with these members and no other.
fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn texts_by_name(description: &str) -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": description })
}

/// `[permissions]`.
pub(super) fn permissions() -> Value {
    let categories = one_of("read, edit, search, execute, memory, vfs, task, subagent or other");
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    let annotations = object(
        &[],
        json!({
            "title": text("A name for people"),
            "destructive": flag("May destroy something"),
            "readOnly": flag("Changes nothing"),
        }),
    );
    let rule = object(
        &["tool", "policy"],
        json!({
            "tool": text("Glob over the tool's name"),
            "pattern": { "type": "string", "minLength": 1, "description": "Glob over the command or the path" },
            "policy": options::policies(),
            "category": { "anyOf": [categories, { "type": "array", "items": categories, "minItems": 1 }] },
            "annotations": annotations,
        }),
    );
    object(&[], json!({ "rules": list_of(rule) }))
}

/// One of `[[acp_servers]]`.
pub(super) fn acp_server() -> Value {
    object(
        &[],
        json!({
            "profile": one_of(&ACP_PROFILES.map(|one| one.name).join(", ")),
            "name": text("Its name; its model is acp/NAME. Default: the profile's"),
            "command": text("The program. Default: the profile's"),
            "args": texts("Its arguments"),
            "cwd": text("Its working directory, relative to the file"),
            "env": texts_by_name("Variables over the inherited ones"),
            "defaultAgent": text("The mode or agent of its own that sessions are set to"),
            "timeoutMs": { "type": "integer", "minimum": 1, "maximum": limit::SET_MS_MAX, "description": "Longest wait for an answer" },
            "permissionPolicy": one_of("auto-approve, prompt or deny"),
            "authMethod": text("How it is logged in to: the id of one of its methods"),
            "files": { "type": "boolean", "description": "Offer it to have files read and written by our tools" },
            "terminals": { "type": "boolean", "description": "Offer it to have commands run by our tools" },
            "tools": {
                "description": "Which of our tools it can call: own (all but those for files, commands and git), all, none, or names",
                "anyOf": [{ "type": "string", "enum": ["own", "all", "none"] }, { "type": "array", "items": { "type": "string", "minLength": 1 } }],
            },
            "mcpServers": {
                "type": "string",
                "enum": ["direct", "through", "none"],
                "description": "How the session's MCP servers come to it: direct (it connects them itself), through (their tools are among ours) or none",
            },
        }),
    )
}

/// One of `[[agent_types]]`.
pub(super) fn agent_type() -> Value {
    object(
        &["name"],
        json!({
            "name": text("Its name"),
            "description": text("What it is good for"),
            "model": text("Its model, as provider/name. Default: that of whoever starts it"),
            "reasoning": one_of("auto, none, minimal, low, medium, high or xhigh"),
            "tools": texts("Its tools, of those of whoever starts it; `*`: all. Default: those that only look"),
        }),
    )
}

/// `[session_budget]` and `[client_budget]`.
pub(super) fn budget() -> Value {
    let whole = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let money = |description: &str| json!({ "type": "number", "minimum": 1e-9, "description": description });
    object(
        &[],
        json!({
            "tokens": whole("Tokens, sent and received"),
            "cost_usd": money("What they cost, in US dollars, where the prices are known"),
            "time_ms": whole("How long turns run, in milliseconds"),
            "turns": whole("Turns that answer prompts"),
            "tool_calls": whole("Calls of tools"),
        }),
    )
}

/// One of `[[hooks]]`.
pub(super) fn hook() -> Value {
    object(
        &["event", "command"],
        json!({
            "event": { "type": "string", "enum": HOOK_EVENTS, "description": "The point at which it stands" },
            "matcher": text("Which tools it is about, of the events tool.*: names with `|` between them, `*` and `?` as in rules. Default: all"),
            "command": text("What a shell runs: the event as JSON on its standard input, its answer on its output; exit code 2 blocks"),
            "timeoutMs": { "type": "integer", "minimum": 1, "maximum": limit::HOOK_TIMEOUT_MS_MAX, "description": "How long it may work. Default: a minute" },
        }),
    )
}

/// One of `[[providers]]`.
pub(super) fn provider() -> Value {
    let apis = || one_of("openai-chat, openai-responses, anthropic-messages or gemini");
    let number = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let most = |most: u64, description: &str| json!({ "type": "integer", "minimum": 1, "maximum": most, "description": description });
    let price = |description: &str| json!({ "type": "number", "minimum": 0, "description": description });
    let flag = |description: &str| json!({ "type": "boolean", "description": description });
    let body =
        || json!({ "type": "object", "additionalProperties": true, "description": "Members of each request's body" });
    let prices = object(
        &["input", "output"],
        json!({
            "input": price("US dollars for a million tokens sent"),
            "output": price("The same, received"),
            "cacheRead": price("The same, found in the provider's cache"),
            "cacheWrite": price("The same, put into the provider's cache"),
        }),
    );
    let model = object(
        &["name"],
        json!({
            "name": text("Its name on the wire"),
            "api": apis(),
            "label": text("Its name for people"),
            "contextTokens": number("Tokens of its window"),
            "outputTokens": number("Tokens of one reply, at most"),
            "images": flag("Whether it can be shown images"),
            "reasoning": flag("Whether it can think before it answers"),
            "prices": prices,
            "body": body(),
        }),
    );
    object(
        &["name"],
        json!({
            "name": text("Its name; its models are NAME/MODEL"),
            "api": apis(),
            "baseUrl": text("Its address"),
            "apiKey": text("Its key"),
            "apiKeyFile": text("The file that its key stands in, relative to this one"),
            "headers": texts_by_name("Sent with each request"),
            "concurrency": most(limit::PROVIDER_CONCURRENCY_MAX as u64, "Requests side by side, of all sessions together"),
            "requestsPerMinute": most(limit::PROVIDER_PER_MINUTE_MAX.into(), "Requests begun in a minute, of all sessions together"),
            "body": body(),
            "models": list_of(model),
        }),
    )
}

/// One of `[[mcp_servers]]`.
pub(super) fn mcp_server() -> Value {
    object(
        &["name"],
        json!({
            "name": text("Its name; its tools are mcp:NAME/TOOL"),
            "transport": one_of("stdio or http"),
            "command": text("The program, of stdio"),
            "args": texts("Its arguments"),
            "env": texts_by_name("Variables over the inherited ones"),
            "cwd": text("Its working directory, relative to the file"),
            "url": text("Its address, of http"),
            "headers": texts_by_name("Sent with each request"),
            "oauth": object(&[], json!({
                "clientId": text("As whom we are known there"),
                "clientSecret": text("The secret of that"),
                "clientMetadataUrl": text("An address at which we introduce ourselves"),
                "scopes": texts("What is asked for; empty: what the server wants"),
                "redirectPort": { "type": "integer", "minimum": 1, "maximum": 65_535, "description": "Where a browser comes back on this machine" },
                "clientCredentials": { "type": "boolean", "description": "Log in with clientId and clientSecret or privateKeyFile alone" },
                "privateKeyFile": text("A private key (PEM, PKCS #8) instead of the secret"),
                "identityProvider": object(&["tokenEndpoint", "clientId", "idTokenFile"], json!({
                    "tokenEndpoint": text("Where a company's identity provider exchanges tokens"),
                    "clientId": text("As whom we are known there"),
                    "clientSecret": text("The secret of that"),
                    "idTokenFile": text("A file with the user's ID token, read anew for each login"),
                })),
                "workloadTokenFile": text("A file with a token that says which workload this is, read anew each time"),
            })),
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The members that the reader of the file knows, as its refusal of another one names them.
    fn members(file: &str) -> BTreeSet<String> {
        let refusal = toml::from_str::<Options>(file).unwrap_err().to_string();
        let (_, names) = refusal.split_once("expected ").unwrap_or_else(|| panic!("{refusal}"));
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn what_can_be_chosen_are_words() {
        fn walk(at: &Value, words: &mut Vec<String>) {
            match at {
                Value::Object(members) => {
                    let named = members.get("enum").and_then(Value::as_array).into_iter().flatten();
                    words.extend(named.filter_map(Value::as_str).map(str::to_owned));
                    members.values().for_each(|member| walk(member, words));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, words)),
                _ => {}
            }
        }
        let mut words = Vec::new();
        walk(&schema(), &mut words);
        assert!(words.contains(&"through".to_owned()));
        let strange: Vec<_> = words.iter().filter(|word| word.contains([' ', '('])).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    #[test]
    fn members_are_those_that_are_read() {
        let schema = schema();
        let names = |pointer: &str| -> BTreeSet<String> {
            let found = schema.pointer(pointer).and_then(Value::as_object);
            found.unwrap_or_else(|| panic!("{pointer}")).keys().cloned().collect()
        };
        #[rustfmt::skip]
        let table = [
            ("no_such = 1", "/properties"),
            ("[permissions]\nno_such = 1", "/properties/permissions/properties"),
            ("[[permissions.rules]]\nno_such = 1", "/properties/permissions/properties/rules/items/properties"),
            ("[[permissions.rules]]\ntool = 'x'\npolicy = 'ask'\nannotations = { no_such = 1 }", "/properties/permissions/properties/rules/items/properties/annotations/properties"),
            ("[[acp_servers]]\nno_such = 1", "/properties/acp_servers/items/properties"),
            ("[[mcp_servers]]\nno_such = 1", "/properties/mcp_servers/items/properties"),
            ("[[providers]]\nno_such = 1", "/properties/providers/items/properties"),
            ("[[hooks]]\nno_such = 1", "/properties/hooks/items/properties"),
            ("[[providers]]\nname = 'x'\n[[providers.models]]\nno_such = 1", "/properties/providers/items/properties/models/items/properties"),
            ("[[providers]]\nname = 'x'\n[[providers.models]]\nname = 'x'\nprices = { no_such = 1 }", "/properties/providers/items/properties/models/items/properties/prices/properties"),
        ];
        for (file, pointer) in table {
            let want = if pointer == "/properties" {
                Options::NAMES.iter().map(|n| (*n).to_owned()).collect()
            } else {
                members(file)
            };
            assert_eq!(names(pointer), want, "{pointer}");
        }
        assert!(schema["properties"]["port"]["description"].as_str().unwrap().starts_with("Port to listen on"));
        assert_eq!(schema["properties"]["log_level"]["enum"], json!(["off", "error", "warn", "info", "debug"]));
    }
}
