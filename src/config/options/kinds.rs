//! What a setting can be: how it is read from a variable, what it is in the file, and how it is shown.

mod node_url;
mod store;

use std::ffi::OsStr;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{FilePermissions, LogFilter, LogFormat, LogLevel};
use crate::base::sandbox::Mode as SandboxMode;
use crate::base::workspace::StaleCheck;
use crate::config::{AcpServer, Address, AgentType, HookCommand, McpServer, OpenAiApi, Provider, schema};
use crate::protocol::{Budget, PermissionMode, PermissionPolicy};

/// What stands for a secret.
pub const HIDDEN: &str = "(hidden)";

/// What the value of a setting can be, and how it is read and shown.
pub(super) trait Setting: Sized {
    /// What was expected, for the error.
    const EXPECTED: &'static str;
    /// None when the text is not such a value.
    fn parse(text: &OsStr) -> Option<Self>;
    /// As it stands in the file.
    fn schema() -> Value;
    /// For people. Never a secret.
    fn show(&self) -> Value;
    /// Whether both are the same.
    fn is(&self, other: &Self) -> bool;
    /// The number, when it is a whole one.
    fn whole_number(&self) -> Option<u64> {
        None
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            const EXPECTED: &'static str = "a whole number";
            fn parse(text: &OsStr) -> Option<Self> {
                text.to_str()?.parse().ok()
            }
            fn schema() -> Value {
                // `schema` adds the bounds.
                json!({ "type": "integer" })
            }
            fn show(&self) -> Value {
                (*self).into()
            }
            fn is(&self, other: &Self) -> bool {
                self == other
            }
            fn whole_number(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }
        }
    )*};
}

numbers!(u16, u32, u64, usize);

impl Setting for String {
    const EXPECTED: &'static str = "UTF-8 text";
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str().map(str::to_owned)
    }
    fn schema() -> Value {
        json!({ "type": "string" })
    }
    fn show(&self) -> Value {
        self.as_str().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Address {
    const EXPECTED: &'static str = "UTF-8 text";
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str().map(|text| text.to_owned().into())
    }
    fn schema() -> Value {
        json!({ "type": "string" })
    }
    fn show(&self) -> Value {
        self.to_string().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for PathBuf {
    const EXPECTED: &'static str = "a path that is not empty";
    fn parse(text: &OsStr) -> Option<Self> {
        // Joined to a directory, an empty one would be that directory.
        (!text.is_empty()).then(|| text.into())
    }
    fn schema() -> Value {
        json!({ "type": "string", "minLength": 1 })
    }
    fn show(&self) -> Value {
        self.display().to_string().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<PathBuf> {
    const EXPECTED: &'static str = "paths joined by `:`, none of them empty";
    fn parse(text: &OsStr) -> Option<Self> {
        let paths: Self = std::env::split_paths(text).collect();
        paths.iter().all(|path| !path.as_os_str().is_empty()).then_some(paths)
    }
    fn schema() -> Value {
        schema::list_of(PathBuf::schema())
    }
    fn show(&self) -> Value {
        self.iter().map(Setting::show).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true, false, 1 or 0";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }
    fn schema() -> Value {
        json!({ "type": "boolean" })
    }
    fn show(&self) -> Value {
        (*self).into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for f64 {
    const EXPECTED: &'static str = "a number";
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str()?.parse().ok()
    }
    fn schema() -> Value {
        json!({ "type": "number" })
    }
    fn show(&self) -> Value {
        (*self).into()
    }
    fn is(&self, other: &Self) -> bool {
        self.total_cmp(other).is_eq()
    }
}

/// `costUsd` as `cost_usd`.
fn snake(name: &str) -> String {
    let letter = |letter: char| match letter.is_ascii_uppercase() {
        true => format!("_{}", letter.to_ascii_lowercase()),
        false => letter.to_string(),
    };
    name.chars().map(letter).collect()
}

impl Setting for Budget {
    const EXPECTED: &'static str = "limits joined by commas: tokens=N, costUsd=DOLLARS, timeMs=N, turns=N or toolCalls=N, each once and more than 0";
    fn parse(text: &OsStr) -> Option<Self> {
        let mut members = serde_json::Map::new();
        for part in text.to_str()?.split(',') {
            let (name, value) = part.split_once('=')?;
            let value = serde_json::from_str(value.trim()).ok().filter(Value::is_number)?;
            if members.insert(name.trim().to_owned(), value).is_some() {
                return None;
            }
        }
        let budget: Self = serde_json::from_value(members.into()).ok()?;
        budget.check().is_ok().then_some(budget)
    }
    fn schema() -> Value {
        schema::budget()
    }
    /// By the names that the file has.
    fn show(&self) -> Value {
        let Value::Object(members) = json!(self) else { return Value::Null };
        members.into_iter().map(|(name, value)| (snake(&name), value)).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for SecretString {
    const EXPECTED: &'static str = "UTF-8 text";
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str().map(|text| text.trim().to_owned().into())
    }
    fn schema() -> Value {
        json!({ "type": "string" })
    }
    fn show(&self) -> Value {
        HIDDEN.into()
    }
    fn is(&self, other: &Self) -> bool {
        self.expose_secret() == other.expose_secret()
    }
}

impl Setting for PermissionPolicy {
    const EXPECTED: &'static str = "allow, ask or deny";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "deny" => Some(Self::Deny),
            _ => None,
        }
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for SandboxMode {
    const EXPECTED: &'static str = "read-only, workspace-write or off";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "read-only" => Some(Self::ReadOnly),
            "workspace-write" => Some(Self::WorkspaceWrite),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for StaleCheck {
    const EXPECTED: &'static str = "strict, warn or off";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "strict" => Some(Self::Strict),
            "warn" => Some(Self::Warn),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for PermissionMode {
    const EXPECTED: &'static str = "plan, ask, accept-edits or auto";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "plan" => Some(Self::Plan),
            "ask" => Some(Self::Ask),
            "accept-edits" => Some(Self::AcceptEdits),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for LogFormat {
    const EXPECTED: &'static str = "text or json";
    fn parse(text: &OsStr) -> Option<Self> {
        clap::ValueEnum::from_str(text.to_str()?, false).ok()
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for LogLevel {
    const EXPECTED: &'static str = "off, error, warn, info or debug";
    fn parse(text: &OsStr) -> Option<Self> {
        clap::ValueEnum::from_str(text.to_str()?, false).ok()
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        json!(self)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for LogFilter {
    const EXPECTED: &'static str = "MODULE=LEVEL, several joined by `,`, such as simse::store=debug,simse::mcp=off";
    fn parse(text: &OsStr) -> Option<Self> {
        text.to_str()?.parse().ok()
    }
    fn schema() -> Value {
        let level = "(off|error|warn|info|debug)";
        json!({ "type": "string", "pattern": format!("^([A-Za-z0-9_:]+={level}(,|$))*$") })
    }
    fn show(&self) -> Value {
        self.to_string().into()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<AcpServer> {
    const EXPECTED: &'static str = "nothing: ACP agents stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::list_of(schema::acp_server())
    }
    fn show(&self) -> Value {
        self.iter().map(|server| Value::from(server.name.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<AgentType> {
    const EXPECTED: &'static str = "nothing: types of sub-agents stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::list_of(schema::agent_type())
    }
    fn show(&self) -> Value {
        self.iter().map(|kind| Value::from(kind.name.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<HookCommand> {
    const EXPECTED: &'static str = "nothing: hooks stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::list_of(schema::hook())
    }
    fn show(&self) -> Value {
        // Their lines may hold what is not to be seen.
        self.iter().map(|hook| Value::from(hook.event.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<McpServer> {
    const EXPECTED: &'static str = "nothing: MCP servers stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::list_of(schema::mcp_server())
    }
    fn show(&self) -> Value {
        self.iter().map(|server| Value::from(server.name.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for FilePermissions {
    const EXPECTED: &'static str = "nothing: rules stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::permissions()
    }
    fn show(&self) -> Value {
        json!(self.rules)
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<Provider> {
    const EXPECTED: &'static str = "nothing: providers stand in the configuration file";
    fn parse(_: &OsStr) -> Option<Self> {
        None
    }
    fn schema() -> Value {
        schema::list_of(schema::provider())
    }
    fn show(&self) -> Value {
        self.iter().map(|provider| Value::from(provider.name.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for Vec<String> {
    const EXPECTED: &'static str = "names with commas between them";
    fn parse(text: &OsStr) -> Option<Self> {
        let names: Vec<String> = text.to_str()?.split(',').map(|name| name.trim().to_owned()).collect();
        names.iter().all(|name| !name.is_empty()).then_some(names)
    }
    fn schema() -> Value {
        schema::list_of(json!({ "type": "string" }))
    }
    fn show(&self) -> Value {
        self.iter().map(|name| Value::from(name.as_str())).collect()
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}

impl Setting for OpenAiApi {
    const EXPECTED: &'static str = "openai-chat or openai-responses";
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()? {
            "openai-chat" => Some(Self::Chat),
            "openai-responses" => Some(Self::Responses),
            _ => None,
        }
    }
    fn schema() -> Value {
        schema::one_of(Self::EXPECTED)
    }
    fn show(&self) -> Value {
        match self {
            Self::Chat => "openai-chat".into(),
            Self::Responses => "openai-responses".into(),
        }
    }
    fn is(&self, other: &Self) -> bool {
        self == other
    }
}
