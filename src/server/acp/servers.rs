//! Tool servers that an editor brings along, as ours are configured. Pure.

use serde_json::{Map, Value, json};

use crate::base::limit;
use crate::config::McpServer;
use crate::protocol::ApiError;

/// The servers; names that ours cannot have are made to fit, and of two that are alike the second gets a number.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the server and the field.
pub(super) fn servers(given: &[Value]) -> Result<Vec<McpServer>, ApiError> {
    let mut names: Vec<String> = Vec::with_capacity(given.len());
    let mut all = Vec::with_capacity(given.len());
    for (at, server) in given.iter().enumerate() {
        let name = fitting(server["name"].as_str().unwrap_or_default(), &names);
        all.push(one(&format!("mcpServers[{at}]"), server, &name)?);
        names.push(name);
    }
    Ok(all)
}

fn one(field: &str, server: &Value, name: &str) -> Result<McpServer, ApiError> {
    let entry = match server["type"].as_str() {
        None | Some("stdio") => json!({
            "name": name,
            "transport": "stdio",
            "command": server["command"],
            "args": server.get("args").cloned().unwrap_or_else(|| json!([])),
            "env": pairs(&format!("{field}.env"), &server["env"])?,
        }),
        Some("http") => json!({
            "name": name,
            "transport": "http",
            "url": server["url"],
            "headers": pairs(&format!("{field}.headers"), &server["headers"])?,
        }),
        Some(other) => {
            return Err(ApiError::unfit(&format!("{field}.type"), "http, or none for a program", format!("`{other}`")));
        }
    };
    serde_json::from_value(entry).map_err(|cause| ApiError::invalid(field, format!("a tool server: {cause}")))
}

/// A list of names and values, as a table.
fn pairs(field: &str, list: &Value) -> Result<Value, ApiError> {
    let Some(list) = list.as_array() else {
        return if list.is_null() {
            Ok(json!({}))
        } else {
            Err(ApiError::invalid(field, "a list of names and values"))
        };
    };
    let mut table = Map::new();
    for (at, pair) in list.iter().enumerate() {
        match (pair["name"].as_str(), pair["value"].as_str()) {
            (Some(name), Some(value)) => drop(table.insert(name.to_owned(), value.into())),
            _ => return Err(ApiError::invalid(&format!("{field}[{at}]"), "`name` and `value`, both texts")),
        }
    }
    Ok(table.into())
}

/// A name that ours can have, and that no other has.
fn fitting(name: &str, taken: &[String]) -> String {
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, '/' | '*' | '?' | '"'));
    // Room for a number.
    let most = limit::MCP_SERVER_NAME_CHARS_MAX - 4;
    let name: String = name.trim().chars().take(most).map(|c| if fits(c) { c } else { '-' }).collect();
    let name = if name.is_empty() { "server".to_owned() } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editors_servers_are_read_as_ours() {
        let read = |server: Value| match servers(&[server]) {
            Ok(all) => format!("{} {:?}", all[0].name, all[0].transport),
            Err(error) => error.to_string(),
        };
        #[rustfmt::skip]
        let table = [
            (json!({ "name": "my server", "command": "x", "args": ["y"], "env": [{ "name": "K", "value": "v" }] }), "my-server Stdio(..)"),
            (json!({ "name": "a", "command": "x", "args": [], "env": [] }), "a Stdio(..)"),
            (json!({ "name": "", "type": "stdio", "command": "x" }), "server Stdio(..)"),
            (json!({ "name": "h", "type": "http", "url": "http://127.0.0.1:1/mcp", "headers": [{ "name": "X", "value": "v" }] }), "h Http(..)"),
            (json!({ "name": "s", "type": "sse", "url": "http://x/", "headers": [] }), "`mcpServers[0].type`: expected http, or none for a program, got `sse`"),
            (json!({ "name": "s", "command": "x", "env": [{ "name": 1 }] }), "`mcpServers[0].env[0]`: expected `name` and `value`, both texts"),
            (json!({ "name": "s", "command": "x", "env": {} }), "`mcpServers[0].env`: expected a list of names and values"),
        ];
        for (server, want) in table {
            assert_eq!(read(server.clone()), want, "{server}");
        }
        assert!(read(json!({ "name": "s" })).starts_with("`mcpServers[0]`: expected a tool server"));
        let alike = json!({ "name": "a b", "command": "x" });
        let both = servers(&[alike.clone(), alike]).unwrap();
        assert_eq!([&both[0].name, &both[1].name], ["a-b", "a-b-2"]);
    }
}
