//! An MCP server as it is configured (typescript-api.md §1, `MCPServerEntry`).
//!
//! Invariant: whoever holds an [`McpServer`] holds one that can be tried: its name fits into a tool's name, and
//! its transport has what it needs and nothing that belongs to the other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::base::{http, limit};

/// Headers that the protocol sets itself.
const OWN_HEADERS: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// An MCP server.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entry")]
pub struct McpServer {
    /// Its name; its tools are called `mcp:<name>/<tool>`.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
}

/// How an MCP server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// A program that is started here and talked to over its standard streams.
    Stdio {
        /// The program; with a slash, relative to its working directory.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Over the inherited environment, out of which credentials are taken.
        env: BTreeMap<String, String>,
        /// Its working directory, relative to that of the server. None: that one itself.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// Sent with each request.
        headers: BTreeMap<String, String>,
    },
}

/// As it is written down.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    transport: Option<TransportName>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransportName {
    Stdio,
    Http,
}

/// An entry that is no server; names the field. Values are not repeated: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the MCP server `{server}`: expected {expected}")]
pub struct BadMcpServer {
    /// The server's name, as far as it has one.
    pub server: String,
    /// The field.
    pub field: &'static str,
    /// What was expected.
    pub expected: String,
}

impl TryFrom<Entry> for McpServer {
    type Error = BadMcpServer;

    fn try_from(entry: Entry) -> Result<Self, BadMcpServer> {
        let server: String = entry.name.chars().take(limit::MCP_SERVER_NAME_CHARS_MAX).collect();
        let bad = |field: &'static str, expected: &str| BadMcpServer {
            server: server.clone(),
            field,
            expected: expected.to_owned(),
        };
        if !is_name(&entry.name) {
            let expected = format!(
                "1 to {} characters, none of them a blank, a control character, a quote, `/`, `*` or `?`",
                limit::MCP_SERVER_NAME_CHARS_MAX
            );
            return Err(bad("name", &expected));
        }
        let default =
            if entry.command.is_none() && entry.url.is_some() { TransportName::Http } else { TransportName::Stdio };
        let transport = match entry.transport.unwrap_or(default) {
            TransportName::Stdio => {
                let stray = [("url", entry.url.is_some()), ("headers", entry.headers.is_some())];
                refuse(&stray, |field| bad(field, "nothing: it belongs to the transport `http`"))?;
                let command = entry.command.filter(|command| !command.is_empty());
                let command = command.ok_or_else(|| bad("command", "a program, because the transport is `stdio`"))?;
                let env = entry.env.unwrap_or_default();
                if env.iter().any(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'))
                {
                    return Err(bad("env", "names without `=` and values, neither with a zero byte"));
                }
                let args = entry.args.unwrap_or_default();
                McpTransport::Stdio { command, args, env, cwd: entry.cwd }
            }
            TransportName::Http => {
                let stray = [
                    ("command", entry.command.is_some()),
                    ("args", entry.args.is_some()),
                    ("env", entry.env.is_some()),
                    ("cwd", entry.cwd.is_some()),
                ];
                refuse(&stray, |field| bad(field, "nothing: it belongs to the transport `stdio`"))?;
                let url = entry.url.ok_or_else(|| bad("url", "an address, because the transport is `http`"))?;
                http::check_url(&url).map_err(|_| bad("url", "an http or https address without a user or password"))?;
                let headers = entry.headers.unwrap_or_default();
                http::header_pairs(&headers).map_err(|error| bad("headers", &error.to_string()))?;
                if let Some(own) =
                    headers.keys().find(|name| OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)))
                {
                    return Err(bad("headers", &format!("none that the protocol sets itself, such as `{own}`")));
                }
                McpTransport::Http { url, headers }
            }
        };
        Ok(Self { name: entry.name, transport })
    }
}

impl McpServer {
    /// Takes a relative working directory of its program as relative to `base`.
    pub(super) fn start_within(&mut self, base: &Path) {
        if let McpTransport::Stdio { cwd: Some(cwd), .. } = &mut self.transport {
            *cwd = base.join(&cwd);
        }
    }
}

/// Fails with the first field that is there and should not be.
fn refuse(
    stray: &[(&'static str, bool)],
    problem: impl FnOnce(&'static str) -> BadMcpServer,
) -> Result<(), BadMcpServer> {
    match stray.iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(problem(field)),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    (1..=limit::MCP_SERVER_NAME_CHARS_MAX).contains(&name.chars().count())
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '/' | '*' | '?' | '"'))
}

/// Names alone: commands, environments, addresses and headers may hold keys.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("name", &self.name).field("transport", &self.transport).finish()
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "Stdio(..)",
            Self::Http { .. } => "Http(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problem(entry: Value) -> Option<String> {
        serde_json::from_value::<McpServer>(entry).err().map(|error| error.to_string())
    }

    #[test]
    fn what_makes_a_server() {
        #[rustfmt::skip]
        let table: [(Value, Option<&str>); 19] = [
            (json!({ "name": "a", "command": "x" }), None),
            (json!({ "name": "a", "transport": "stdio", "command": "x", "args": ["-y"], "env": { "K": "v" }, "cwd": "d" }), None),
            (json!({ "name": "a", "url": "http://127.0.0.1:1/mcp" }), None),
            (json!({ "name": "a", "transport": "http", "url": "https://x/mcp", "headers": { "Authorization": "Bearer s" } }), None),
            (json!({ "name": "", "command": "x" }), Some("`name`")),
            (json!({ "name": "a/b", "command": "x" }), Some("`name`")),
            (json!({ "name": "a b", "command": "x" }), Some("`name`")),
            (json!({ "name": "*", "command": "x" }), Some("`name`")),
            (json!({ "name": "n".repeat(65), "command": "x" }), Some("`name`")),
            (json!({ "name": "a" }), Some("`command` of the MCP server `a`: expected a program")),
            (json!({ "name": "a", "command": "" }), Some("`command`")),
            (json!({ "name": "a", "command": "x", "url": "http://x/" }), Some("`url` of the MCP server `a`: expected nothing: it belongs to the transport `http`")),
            (json!({ "name": "a", "transport": "http", "command": "x", "url": "http://x/" }), Some("`command`")),
            (json!({ "name": "a", "transport": "http" }), Some("`url`")),
            (json!({ "name": "a", "url": "ftp://x/" }), Some("`url`")),
            (json!({ "name": "a", "url": "http://x/", "headers": { "A\n": "s3cret" } }), Some("`headers`")),
            (json!({ "name": "a", "url": "http://x/", "headers": { "Accept": "s3cret" } }), Some("`headers`")),
            (json!({ "name": "a", "command": "x", "env": { "A=B": "s3cret" } }), Some("`env`")),
            (json!({ "name": "a", "command": "x", "comand": "y" }), Some("unknown field `comand`")),
        ];
        for (entry, want) in table {
            let said = problem(entry.clone());
            match (&said, want) {
                (None, None) => {}
                (Some(said), Some(want)) => assert!(said.contains(want) && !said.contains("s3cret"), "{entry}: {said}"),
                (said, want) => panic!("{entry}: {said:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let entry = json!({ "name": "a", "url": "http://x/?key=s3cret", "headers": { "X-Key": "s3cret" } });
        let server: McpServer = serde_json::from_value(entry).unwrap();
        assert_eq!(format!("{server:?}"), r#"McpServer { name: "a", transport: Http(..) }"#);
    }
}
