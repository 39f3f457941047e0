//! An ACP agent as it is configured (typescript-api.md §1, `ACPServerEntry`).
//!
//! Invariant: whoever holds an [`AcpServer`] holds one that can be tried: its name fits into a tool's name and a
//! model's id, it has a program, and its environment can be one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::acp_profile::{ACP_PROFILES, AcpProfile};
use crate::base::limit;
use crate::base::secrets::Secrets;

/// An ACP agent.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entry")]
pub struct AcpServer {
    /// Its name; its model is called `acp/<name>`, its tools `acp:<name>/<tool>`.
    pub name: String,
    /// The program; with a slash, relative to its working directory.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working directory, relative to that of the server. None: that one itself.
    pub cwd: Option<PathBuf>,
    /// Over the inherited environment.
    pub env: BTreeMap<String, String>,
    /// The mode or agent of its own that sessions are set to.
    pub default_agent: Option<String>,
    /// Longest wait for an answer to a request; never for a prompt.
    pub timeout_ms: Option<u64>,
    /// What happens when it asks for permission.
    pub permission_policy: Option<AcpPermissionPolicy>,
    /// How it is logged in to when it wants that: the id of one of its own methods.
    pub auth_method: Option<String>,
    /// Whether it is offered that we read and write files for it.
    pub files: bool,
    /// Whether it is offered that we run commands for it.
    pub terminals: bool,
    /// Which of our tools it can call.
    pub tools: AcpTools,
    /// How it comes to the tools of a session's MCP servers.
    pub mcp_servers: AcpMcpServers,
    /// How long its program may take to end by itself once its input has ended: its profile knows.
    pub exit_grace_ms: u64,
}

/// How an ACP agent comes to the tools of a session's MCP servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcpMcpServers {
    /// It connects them itself, those that can be told to it; the others through us.
    #[default]
    Direct,
    /// Their tools are among ours: under our rules, in our log, over our connection.
    Through,
    /// Not at all.
    None,
}

/// Which of a session's tools an ACP agent can call (docs/adr/0100-agents-call-our-tools.md).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ToolsEntry")]
pub enum AcpTools {
    /// Those that agents have not themselves: all but our tools for files, commands and git.
    #[default]
    Own,
    /// All.
    All,
    /// None.
    None,
    /// These.
    Named(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolsEntry {
    Word(String),
    Names(Vec<String>),
}

impl TryFrom<ToolsEntry> for AcpTools {
    type Error = &'static str;

    fn try_from(entry: ToolsEntry) -> Result<Self, Self::Error> {
        match entry {
            ToolsEntry::Word(word) => match word.as_str() {
                "own" => Ok(Self::Own),
                "all" => Ok(Self::All),
                "none" => Ok(Self::None),
                _ => Err("`tools`: expected `own`, `all`, `none` or a list of names"),
            },
            ToolsEntry::Names(names) if names.iter().any(String::is_empty) => {
                Err("`tools`: expected names that are not empty")
            }
            ToolsEntry::Names(names) => Ok(Self::Named(names)),
        }
    }
}

/// The program that joins an agent's tool client to this one: agents start it, and talk to it over its standard streams.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolBridge {
    /// The program; absolute.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl AcpServer {
    /// What its program is given and must not be shown when it repeats it.
    pub fn secrets(&self) -> Secrets {
        Secrets::of_program(&self.args, &self.env)
    }
}

/// What happens when an ACP agent asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcpPermissionPolicy {
    /// It gets it.
    AutoApprove,
    /// Our permission flow decides.
    Prompt,
    /// It is refused.
    Deny,
}

/// As it is written down.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    profile: Option<String>,
    name: Option<String>,
    command: Option<String>,
    args: Option<Vec<String>>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    default_agent: Option<String>,
    timeout_ms: Option<u64>,
    permission_policy: Option<AcpPermissionPolicy>,
    auth_method: Option<String>,
    files: Option<bool>,
    terminals: Option<bool>,
    #[serde(default)]
    tools: AcpTools,
    #[serde(default)]
    mcp_servers: AcpMcpServers,
}

/// An entry that is no agent; names the field. Values are not repeated: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the ACP server `{server}`: expected {expected}")]
pub struct BadAcpServer {
    /// The server's name, as far as it has one.
    pub server: String,
    /// The field.
    pub field: &'static str,
    /// What was expected.
    pub expected: String,
}

impl TryFrom<Entry> for AcpServer {
    type Error = BadAcpServer;

    fn try_from(entry: Entry) -> Result<Self, BadAcpServer> {
        if let Some((field, expected)) = entry.faults().into_iter().next() {
            let server = entry.name().chars().take(limit::ACP_SERVER_NAME_CHARS_MAX).collect();
            return Err(BadAcpServer { server, field, expected });
        }
        let profile = entry.profile.as_deref().and_then(AcpProfile::of);
        let (name, command) = (entry.name().to_owned(), entry.command().to_owned());
        let Entry {
            args, cwd, env, default_agent, timeout_ms, permission_policy, auth_method, tools, mcp_servers, ..
        } = entry;
        // Arguments of a profile belong to its own program, and also to another one that is put in its place.
        let usual =
            || profile.map_or_else(Vec::new, |profile| profile.args.iter().map(|&arg| arg.to_owned()).collect());
        let files = entry.files.unwrap_or(profile.is_none_or(|profile| profile.files));
        let terminals = entry.terminals.unwrap_or(profile.is_none_or(|profile| profile.terminals));
        Ok(Self {
            name,
            command,
            args: args.unwrap_or_else(usual),
            cwd,
            env,
            default_agent,
            timeout_ms,
            permission_policy,
            auth_method,
            files,
            terminals,
            tools,
            mcp_servers,
            exit_grace_ms: profile.map_or(limit::ACP_EXIT_GRACE_MS, |profile| profile.exit_grace_ms),
        })
    }
}

impl Entry {
    /// Its name: that of its profile, where it has none of its own.
    fn name(&self) -> &str {
        self.name.as_deref().or(self.profile.as_deref()).unwrap_or_default()
    }

    fn command(&self) -> &str {
        let usual = || self.profile.as_deref().and_then(AcpProfile::of).map(|profile| profile.command);
        self.command.as_deref().or_else(usual).unwrap_or_default()
    }

    /// Everything that is wrong with it: the field, and what was expected there.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let names = format!(
            "1 to {} characters, none of them a blank, a control character, a quote, `/`, `*` or `?`",
            limit::ACP_SERVER_NAME_CHARS_MAX
        );
        let waits = format!("a whole number from 1 to {}", limit::SET_MS_MAX);
        let variable = |(name, value): (&String, &String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        let profiles = format!("one of {}", ACP_PROFILES.map(|profile| profile.name).join(", "));
        let known = self.profile.as_deref().is_none_or(|profile| AcpProfile::of(profile).is_some());
        let (command, args) = (self.command(), self.args.iter().flatten());
        #[rustfmt::skip]
        let rules = [
            ("profile", known, profiles.as_str()),
            ("name", !known || is_name(self.name()), names.as_str()),
            ("command", !known || !command.is_empty() && !command.contains('\0'), "a program"),
            ("args", !args.into_iter().any(|arg| arg.contains('\0')), "texts without a zero byte"),
            ("env", self.env.iter().all(variable), "names without `=` and values, neither with a zero byte"),
            ("defaultAgent", self.default_agent.as_deref() != Some(""), "a name that is not empty"),
            ("authMethod", self.auth_method.as_deref() != Some(""), "an id that is not empty"),
            ("timeoutMs", self.timeout_ms.is_none_or(|wait| (1..=limit::SET_MS_MAX).contains(&wait)), waits.as_str()),
        ];
        let broken = rules.into_iter().filter(|(_, holds, _)| !holds);
        broken.map(|(field, _, expected)| (field, expected.to_owned())).collect()
    }
}

/// Everything that is wrong with an entry as it is written down: the field, and what was expected there. None: its form is not even
/// that of an entry.
pub(super) fn faults_of_entry(entry: serde_json::Value) -> Option<Vec<(&'static str, String)>> {
    serde_json::from_value::<Entry>(entry).ok().map(|entry| entry.faults())
}

impl AcpServer {
    /// Takes a relative working directory of its program as relative to `base`.
    pub(super) fn start_within(&mut self, base: &Path) {
        if let Some(cwd) = &mut self.cwd {
            *cwd = base.join(&cwd);
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=limit::ACP_SERVER_NAME_CHARS_MAX).contains(&name.chars().count())
        && !name.chars().any(|c| matches!(c, '/' | '*' | '?' | '"') || c.is_whitespace() || c.is_control())
}

/// The name alone: arguments and environments may hold keys.
impl fmt::Debug for AcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpServer").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_entry_names_its_field_and_not_its_values() {
        #[rustfmt::skip]
        let table = [
            (json!({"name": "", "command": "x"}), "`name` of the ACP server ``: expected 1 to 64 characters"),
            (json!({"name": "a b", "command": "x"}), "`name` of the ACP server `a b`"),
            (json!({"name": "a", "command": ""}), "`command` of the ACP server `a`: expected a program"),
            (json!({"name": "a", "command": "x", "args": ["\u{0}"]}), "`args` of the ACP server `a`"),
            (json!({"name": "a", "command": "x", "env": {"A=": "sk"}}), "`env` of the ACP server `a`"),
            (json!({"name": "a", "command": "x", "defaultAgent": ""}), "`defaultAgent` of the ACP server `a`"),
            (json!({"name": "a", "command": "x", "timeoutMs": 0}), "`timeoutMs` of the ACP server `a`: expected a whole number from 1 to 31536000000"),
            (json!({"name": "a"}), "`command` of the ACP server `a`: expected a program"),
            (json!({"command": "x"}), "`name` of the ACP server ``: expected 1 to 64 characters"),
            (json!({"profile": "x"}), "`profile` of the ACP server `x`: expected one of claude, codex,"),
            (json!({"profile": "pi", "name": ""}), "`name` of the ACP server ``"),
            (json!({"profile": "pi", "authMethod": ""}), "`authMethod` of the ACP server `pi`"),
            (json!({"name": "a", "command": "x", "tools": "some"}), "`tools`: expected `own`, `all`, `none` or a list"),
            (json!({"name": "a", "command": "x", "tools": [""]}), "`tools`: expected names that are not empty"),
            (json!({"name": "a", "command": "x", "comand": 1}), "unknown field `comand`"),
        ];
        for (entry, want) in table {
            let error = serde_json::from_value::<AcpServer>(entry.clone()).unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains("sk"), "{entry}: {error}");
        }
    }

    #[test]
    fn a_whole_entry_is_taken() {
        let entry = json!({
            "name": "a", "command": "x", "args": ["b"], "cwd": "d", "env": {"K": "sk"}, "defaultAgent": "plan",
            "timeoutMs": 5, "permissionPolicy": "auto-approve", "authMethod": "key", "files": false,
            "tools": ["notify"], "mcpServers": "through",
        });
        let mut server: AcpServer = serde_json::from_value(entry).unwrap();
        server.start_within(Path::new("/base"));
        assert_eq!(server.cwd.as_deref(), Some(Path::new("/base/d")));
        assert_eq!((server.timeout_ms, server.permission_policy), (Some(5), Some(AcpPermissionPolicy::AutoApprove)));
        assert_eq!((server.auth_method.as_deref(), server.files, server.terminals), (Some("key"), false, true));
        assert_eq!(server.tools, AcpTools::Named(vec!["notify".to_owned()]));
        assert_eq!(server.mcp_servers, AcpMcpServers::Through);
        assert!(!format!("{server:?}").contains("sk"));
        for (word, want) in [("own", AcpTools::Own), ("all", AcpTools::All), ("none", AcpTools::None)] {
            assert_eq!(serde_json::from_value::<AcpTools>(json!(word)).unwrap(), want);
        }
    }

    #[test]
    fn a_profile_says_what_the_entry_does_not() {
        let entry = |entry| serde_json::from_value::<AcpServer>(entry).unwrap();
        let gemini = entry(json!({"profile": "gemini"}));
        assert_eq!((gemini.name.as_str(), gemini.command.as_str()), ("gemini", "gemini"));
        assert_eq!((gemini.args, gemini.files, gemini.terminals), (vec!["--acp".to_owned()], false, false));
        let other = entry(json!({"profile": "gemini", "name": "g", "command": "/x", "args": [], "files": true}));
        assert_eq!((other.name.as_str(), other.command.as_str(), other.args.len(), other.files), ("g", "/x", 0, true));
        assert!(entry(json!({"profile": "codex", "command": "/x"})).exit_grace_ms > gemini.exit_grace_ms);
        for profile in ACP_PROFILES {
            assert_eq!(entry(json!({"profile": profile.name})).command, profile.command);
            assert!(!profile.package.is_empty(), "{} says what brings it", profile.name);
        }
    }
}
