//! An MCP server as it is configured (typescript-api.md §1, `MCPServerEntry`).
//!
//! Invariant: whoever holds an [`McpServer`] holds one that can be tried: its name fits into a tool's name, and
//! its transport has what it needs and nothing that belongs to the other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::base::secrets::Secrets;
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
        /// Sent with each request. With `Authorization` among them there is no other login.
        headers: BTreeMap<String, String>,
        /// How one logs in there, as far as the server does not say it itself.
        oauth: Option<Box<OAuth>>,
    },
}

/// How one logs in at a server (OAuth). All of it may be left out: then the server says where, and we introduce ourselves there.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OAuth {
    /// As whom we are known there.
    pub client_id: Option<String>,
    /// The secret of that.
    pub client_secret: Option<String>,
    /// An address at which we introduce ourselves, for servers that take one as a client id.
    pub client_metadata_url: Option<String>,
    /// What is asked for. Empty: what the server wants.
    pub scopes: Vec<String>,
    /// Where a browser comes back on this machine. None: any port.
    pub redirect_port: Option<u16>,
    /// Log in with `client_id` and `client_secret` or `private_key_file` alone, without a person.
    pub client_credentials: bool,
    /// A file with a private key (PEM, PKCS #8) instead of the secret. Relative to the working directory of the server.
    pub private_key_file: Option<PathBuf>,
    /// Log in with what a company's identity provider says of the user, without a browser.
    pub identity_provider: Option<IdentityProvider>,
    /// Log in with a token that says which workload this is (workload identity), read anew each time. Relative to the working directory of
    /// the server.
    pub workload_token_file: Option<PathBuf>,
}

/// A company's identity provider, which vouches for its users at servers (enterprise-managed authorization).
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentityProvider {
    /// Where it exchanges tokens.
    pub token_endpoint: String,
    /// As whom we are known there.
    pub client_id: String,
    /// The secret of that, where there is one.
    #[serde(default)]
    pub client_secret: Option<String>,
    /// A file with the user's ID token, read anew for each login: whoever signs the user in keeps it fresh.
    pub id_token_file: PathBuf,
}

impl OAuth {
    /// What is wrong with a login by the token of a workload.
    fn fault_of_workload(&self, file: &Path) -> Option<(&'static str, String)> {
        let expected = if file.as_os_str().is_empty() {
            "a file as `workloadTokenFile`"
        } else if self.client_credentials || self.identity_provider.is_some() {
            "neither `clientCredentials` nor `identityProvider` beside `workloadTokenFile`"
        } else {
            return None;
        };
        Some(("oauth", expected.to_owned()))
    }
}

impl IdentityProvider {
    /// What is wrong with it, in this login.
    fn fault(&self, oauth: &OAuth) -> Option<(&'static str, String)> {
        let expected = if http::check_url(&self.token_endpoint).is_err() {
            "an http or https address as `identityProvider.tokenEndpoint`"
        } else if self.client_id.is_empty() || self.id_token_file.as_os_str().is_empty() {
            "`clientId` and `idTokenFile` in `identityProvider`"
        } else if oauth.client_id.is_none() || oauth.client_credentials {
            "a `clientId` and no `clientCredentials` beside `identityProvider`"
        } else {
            return None;
        };
        Some(("oauth", expected.to_owned()))
    }
}

impl McpServer {
    /// The same with its program and that one's working directory as they lie below `place`.
    pub fn started_from(mut self, place: &Path) -> Self {
        if let McpTransport::Stdio { command, cwd, .. } = &mut self.transport {
            let start = cwd.as_ref().map_or_else(|| place.to_owned(), |cwd| place.join(cwd));
            if command.contains('/') {
                *command = start.join(&*command).display().to_string();
            }
            if cwd.is_some() {
                *cwd = Some(start);
            }
        }
        self
    }

    /// What it is given and must not be shown when it repeats it.
    pub fn secrets(&self) -> Secrets {
        match &self.transport {
            McpTransport::Stdio { args, env, .. } => Secrets::of_program(args, env),
            McpTransport::Http { url, headers, oauth } => {
                let oauth = oauth.as_deref();
                let secret = oauth.and_then(|oauth| oauth.client_secret.clone());
                let of_provider = oauth.and_then(|oauth| oauth.identity_provider.as_ref()?.client_secret.clone());
                let mut given = headers.clone();
                given.extend(secret.map(|secret| ("client-secret".to_owned(), secret)));
                given.extend(of_provider.map(|secret| ("provider-secret".to_owned(), secret)));
                Secrets::of_server(url, &given)
            }
        }
    }
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
    oauth: Option<Box<OAuth>>,
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

impl Entry {
    /// What it is reached over: as it says, else as what it has lets guess.
    fn over(&self) -> TransportName {
        let default =
            if self.command.is_none() && self.url.is_some() { TransportName::Http } else { TransportName::Stdio };
        self.transport.unwrap_or(default)
    }

    /// Everything that is wrong with it: the field, and what was expected there.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !is_name(&self.name) {
            let expected = format!(
                "1 to {} characters, none of them a blank, a control character, a quote, `/`, `*` or `?`",
                limit::MCP_SERVER_NAME_CHARS_MAX
            );
            faults.push(("name", expected));
        }
        let of_stdio = [
            ("command", self.command.is_some()),
            ("args", self.args.is_some()),
            ("env", self.env.is_some()),
            ("cwd", self.cwd.is_some()),
        ];
        let of_http =
            [("url", self.url.is_some()), ("headers", self.headers.is_some()), ("oauth", self.oauth.is_some())];
        let stray = |fields: &[(&'static str, bool)], other: &str| -> Vec<_> {
            let given = fields.iter().filter(|(_, given)| *given);
            given.map(|(field, _)| (*field, format!("nothing: it belongs to the transport `{other}`"))).collect()
        };
        match self.over() {
            TransportName::Stdio => {
                faults.extend(stray(&of_http, "http"));
                faults.extend(self.faults_of_program());
            }
            TransportName::Http => {
                faults.extend(stray(&of_stdio, "stdio"));
                faults.extend(self.faults_of_address());
            }
        }
        faults
    }

    fn faults_of_program(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.command.as_ref().is_none_or(|command| command.is_empty() || command.contains('\0')) {
            faults.push(("command", "a program, because the transport is `stdio`".to_owned()));
        }
        if self.args.iter().flatten().any(|arg| arg.contains('\0')) {
            faults.push(("args", "texts without a zero byte".to_owned()));
        }
        let bad =
            |(name, value): (&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if self.env.iter().flatten().any(bad) {
            faults.push(("env", "names without `=` and values, neither with a zero byte".to_owned()));
        }
        faults
    }

    fn faults_of_address(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        match &self.url {
            None => faults.push(("url", "an address, because the transport is `http`".to_owned())),
            Some(url) if http::check_url(url).is_err() => {
                faults.push(("url", "an http or https address without a user or password".to_owned()));
            }
            Some(_) => {}
        }
        if let Some(oauth) = &self.oauth {
            if oauth.client_id.is_none() && (oauth.client_secret.is_some() || oauth.client_credentials) {
                faults.push(("oauth", "a `clientId` beside `clientSecret` or `clientCredentials`".to_owned()));
            }
            if oauth.client_credentials && oauth.client_secret.is_some() == oauth.private_key_file.is_some() {
                faults
                    .push(("oauth", "either `clientSecret` or `privateKeyFile` beside `clientCredentials`".to_owned()));
            }
            if oauth.private_key_file.is_some() && !oauth.client_credentials {
                faults.push(("oauth", "`clientCredentials` beside `privateKeyFile`".to_owned()));
            }
            faults.extend(oauth.identity_provider.as_ref().and_then(|provider| provider.fault(oauth)));
            faults.extend(oauth.workload_token_file.as_ref().and_then(|file| oauth.fault_of_workload(file)));
        }
        let Some(headers) = &self.headers else { return faults };
        if let Err(error) = http::header_pairs(headers) {
            faults.push(("headers", error.to_string()));
        }
        let own = |name: &&String| OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name));
        if let Some(own) = headers.keys().find(own) {
            faults.push(("headers", format!("none that the protocol sets itself, such as `{own}`")));
        }
        faults
    }
}

impl TryFrom<Entry> for McpServer {
    type Error = BadMcpServer;

    fn try_from(entry: Entry) -> Result<Self, BadMcpServer> {
        if let Some((field, expected)) = entry.faults().into_iter().next() {
            let server = entry.name.chars().take(limit::MCP_SERVER_NAME_CHARS_MAX).collect();
            return Err(BadMcpServer { server, field, expected });
        }
        let transport = match entry.over() {
            TransportName::Stdio => McpTransport::Stdio {
                command: entry.command.unwrap_or_default(),
                args: entry.args.unwrap_or_default(),
                env: entry.env.unwrap_or_default(),
                cwd: entry.cwd,
            },
            TransportName::Http => McpTransport::Http {
                url: entry.url.unwrap_or_default(),
                headers: entry.headers.unwrap_or_default(),
                oauth: entry.oauth,
            },
        };
        Ok(Self { name: entry.name, transport })
    }
}

/// Everything that is wrong with an entry as it is written down: the field, and what was expected there. None: its form is not even
/// that of an entry.
pub(super) fn faults_of_entry(entry: serde_json::Value) -> Option<Vec<(&'static str, String)>> {
    serde_json::from_value::<Entry>(entry).ok().map(|entry| entry.faults())
}

impl McpServer {
    /// Takes a relative working directory of its program as relative to `base`.
    pub(super) fn start_within(&mut self, base: &Path) {
        if let McpTransport::Stdio { cwd: Some(cwd), .. } = &mut self.transport {
            *cwd = base.join(&cwd);
        }
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
        let table: [(Value, Option<&str>); 22] = [
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
            (json!({ "name": "a", "url": "http://x/", "oauth": { "workloadTokenFile": "/run/token", "clientId": "w" } }), None),
            (json!({ "name": "a", "url": "http://x/", "oauth": { "workloadTokenFile": "" } }), Some("`oauth` of the MCP server `a`: expected a file as `workloadTokenFile`")),
            (json!({ "name": "a", "url": "http://x/", "oauth": { "workloadTokenFile": "/t", "clientId": "w", "clientSecret": "s3cret", "clientCredentials": true } }), Some("beside `workloadTokenFile`")),
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
