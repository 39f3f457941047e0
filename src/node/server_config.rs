//! The configuration of a server as the facade hands it over, and what it means to the engine.
//! The facade has checked forms and types with better words; what still does not fit is an error here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use napi_derive::napi;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use super::error::envelope;
use super::model::GivenModel;
use crate::base::limit;
use crate::base::sandbox::Mode;
use crate::base::workspace::StaleCheck;
use crate::config::{
    AcpServer, AgentType, BOUNDS, Bounds, Database, DefinitionFolders, HookCommand, InstructionDiscovery,
    KNOWN_PROVIDERS, Limits, McpServer, MemorySettings, Names, NodeSettings, NodeUrl, OpenAiApi, OpenAiSettings,
    Provider, ProviderPrompts, SandboxSettings, Settings, Storage, StoreAddress, TapeSettings, ToolBridge,
    embedded_data_directory,
};
use crate::protocol::Budget;
use crate::protocol::{PermissionConfig, PermissionMode};
use crate::server::ListenOptions;

/// `SimseServerConfig`, its functions taken out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServerConfig {
    host: Option<String>,
    port: Option<u16>,
    auth_token: Option<SecretString>,
    #[serde(default)]
    allow_public: bool,
    working_directory: PathBuf,
    #[serde(default)]
    allowed_roots: Vec<PathBuf>,
    #[serde(default)]
    allowed_paths: Vec<PathBuf>,
    #[serde(default)]
    stale_check: StaleCheck,
    sandbox: Option<Mode>,
    #[serde(default)]
    sandbox_network: bool,
    #[serde(default)]
    agents_dirs: Vec<PathBuf>,
    #[serde(default)]
    skills_dirs: Vec<PathBuf>,
    #[serde(default)]
    commands_dirs: Vec<PathBuf>,
    data_directory: Option<PathBuf>,
    #[serde(default)]
    store: StoreAddress,
    node_url: Option<NodeUrl>,
    #[serde(default)]
    node_labels: Vec<String>,
    model: Option<String>,
    /// Those of JavaScript, their functions taken out.
    #[serde(default)]
    pub(super) models: Vec<GivenModel>,
    openai: Option<OpenAi>,
    #[serde(default)]
    providers: Vec<Provider>,
    #[serde(default)]
    model_fallbacks: Vec<String>,
    small_model: Option<String>,
    compaction_model: Option<String>,
    #[serde(default)]
    find_local_models: bool,
    record_models: Option<PathBuf>,
    replay_models: Option<PathBuf>,
    replay_speed: Option<f64>,
    #[serde(default)]
    acp_servers: Vec<AcpServer>,
    #[serde(default)]
    mcp_servers: Vec<McpServer>,
    #[serde(default)]
    agent_types: Vec<AgentType>,
    #[serde(default)]
    hooks: Vec<HookCommand>,
    tool_bridge: Option<ToolBridge>,
    tool_permissions: Option<PermissionConfig>,
    #[serde(default)]
    permission_mode: PermissionMode,
    provider_prompts: Option<ProviderPrompts>,
    instruction_discovery: Option<InstructionDiscovery>,
    memory: Option<GivenMemory>,
    #[serde(default)]
    limits: GivenLimits,
    /// Whether `onPermissionRequest` is there.
    #[serde(default)]
    pub(super) asks: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OpenAi {
    base_url: Option<String>,
    api_key: Option<SecretString>,
    images: Option<bool>,
    api: Option<OpenAiApi>,
}

/// `MemoryConfig`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenMemory {
    enabled: bool,
    embedding_agent: Option<String>,
    model: Option<PathBuf>,
    similarity_threshold: Option<f64>,
    max_results: Option<usize>,
    max_entries: Option<usize>,
    forget_after_days: Option<u64>,
}

impl GivenMemory {
    fn over(self, defaults: MemorySettings, within: &Path) -> MemorySettings {
        MemorySettings {
            enabled: self.enabled,
            embedding_model: self.embedding_agent,
            model: self.model.map(|directory| within.join(directory)),
            similarity_threshold: self.similarity_threshold.unwrap_or(defaults.similarity_threshold),
            results: self.max_results.unwrap_or(defaults.results),
            entries_max: self.max_entries.unwrap_or(defaults.entries_max),
            forget_after_days: self.forget_after_days,
        }
    }
}

/// Limits that the caller sets; the others have their defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GivenLimits {
    permission_timeout_ms: Option<u64>,
    client_grace_ms: Option<u64>,
    interrupt_grace_ms: Option<u64>,
    session_idle_ms: Option<u64>,
    agent_idle_ms: Option<u64>,
    model_idle_timeout_ms: Option<u64>,
    max_iterations: Option<u32>,
    compact_percent: Option<u32>,
    queued_prompts: Option<usize>,
    queued_bytes: Option<usize>,
    turns: Option<usize>,
    subagents_running: Option<usize>,
    subagents: Option<usize>,
    subagent_depth: Option<usize>,
    sessions: Option<u64>,
    streams_per_session: Option<usize>,
    snapshot_bytes: Option<u64>,
    mcp_told_bytes: Option<usize>,
    commands_per_minute: Option<u32>,
    session_budget: Option<Budget>,
    client_budget: Option<Budget>,
    budget_window_ms: Option<u64>,
    body_bytes: Option<usize>,
    connections: Option<usize>,
    heartbeat_ms: Option<u64>,
    shutdown_grace_ms: Option<u64>,
}

impl GivenLimits {
    fn over(&self, defaults: Limits) -> Limits {
        Limits {
            permission_timeout_ms: self.permission_timeout_ms.unwrap_or(defaults.permission_timeout_ms),
            client_grace_ms: self.client_grace_ms.unwrap_or(defaults.client_grace_ms),
            interrupt_grace_ms: self.interrupt_grace_ms.unwrap_or(defaults.interrupt_grace_ms),
            session_idle_ms: self.session_idle_ms.unwrap_or(defaults.session_idle_ms),
            agent_idle_ms: self.agent_idle_ms.unwrap_or(defaults.agent_idle_ms),
            model_idle_timeout_ms: self.model_idle_timeout_ms.unwrap_or(defaults.model_idle_timeout_ms),
            max_iterations: self.max_iterations.unwrap_or(defaults.max_iterations),
            compact_percent: self.compact_percent.unwrap_or(defaults.compact_percent),
            queued_prompts_max: self.queued_prompts.unwrap_or(defaults.queued_prompts_max),
            queued_bytes_max: self.queued_bytes.unwrap_or(defaults.queued_bytes_max),
            turns_max: self.turns.unwrap_or(defaults.turns_max),
            subagents_running_max: self.subagents_running.unwrap_or(defaults.subagents_running_max),
            subagents_max: self.subagents.unwrap_or(defaults.subagents_max),
            subagent_depth: self.subagent_depth.unwrap_or(defaults.subagent_depth),
            sessions_max: self.sessions.unwrap_or(defaults.sessions_max),
            streams_per_session_max: self.streams_per_session.unwrap_or(defaults.streams_per_session_max),
            snapshot_bytes_max: self.snapshot_bytes.unwrap_or(defaults.snapshot_bytes_max),
            mcp_told_bytes_max: self.mcp_told_bytes.unwrap_or(defaults.mcp_told_bytes_max),
            commands_per_minute: self.commands_per_minute.unwrap_or(defaults.commands_per_minute),
            session_budget: self.session_budget.unwrap_or(defaults.session_budget),
            client_budget: self.client_budget.unwrap_or(defaults.client_budget),
            budget_window_ms: self.budget_window_ms.unwrap_or(defaults.budget_window_ms),
        }
    }

    fn listen(&self, options: ListenOptions) -> ListenOptions {
        ListenOptions {
            body_bytes_max: self.body_bytes.unwrap_or(options.body_bytes_max),
            connections_max: self.connections.unwrap_or(options.connections_max),
            heartbeat: self.heartbeat_ms.map_or(options.heartbeat, Duration::from_millis),
            shutdown_grace: self.shutdown_grace_ms.map_or(options.shutdown_grace, Duration::from_millis),
            ..options
        }
    }
}

/// What each whole number of a configuration may be, from and to, by its path: JSON.
#[napi(catch_unwind)]
pub fn config_bounds() -> String {
    let member = |bounds: Bounds| Some((bounds.member?.to_owned(), json!([bounds.least, bounds.most])));
    let mut all: serde_json::Map<String, serde_json::Value> = BOUNDS.into_iter().filter_map(member).collect();
    all.insert("acpServers.timeoutMs".to_owned(), json!([1, limit::SET_MS_MAX]));
    serde_json::Value::Object(all).to_string()
}

/// The names of providers that need neither an address nor a wire: JSON.
#[napi(catch_unwind)]
pub fn known_providers() -> String {
    json!(KNOWN_PROVIDERS.iter().map(|known| known.name).collect::<Vec<_>>()).to_string()
}

impl ServerConfig {
    /// Longest silence of a model.
    pub(super) fn model_idle_timeout(&self) -> Duration {
        Duration::from_millis(self.limits.model_idle_timeout_ms.unwrap_or(limit::MODEL_IDLE_TIMEOUT_MS))
    }

    /// The engine's settings, where to listen, and how long a stop waits for turns.
    pub(super) fn resolve(self) -> napi::Result<(Settings, ListenOptions, Duration)> {
        let working_directory = directory("workingDirectory", &self.working_directory)?;
        let grace = Duration::from_millis(self.limits.shutdown_grace_ms.unwrap_or(limit::SHUTDOWN_GRACE_MS));
        let defaults = ListenOptions::default();
        let listen = self.limits.listen(ListenOptions {
            host: self.host.unwrap_or_else(|| defaults.host.clone()),
            port: self.port.unwrap_or(DEFAULT_PORT),
            allow_public: self.allow_public,
            token: self.auth_token,
            ..defaults
        });
        let base = Settings::new(working_directory.clone());
        let instructions = self.instruction_discovery.unwrap_or_default();
        let root_dir = instructions.root_dir.as_ref().map(|root| working_directory.join(root));
        let within = |paths: Vec<PathBuf>| paths.into_iter().map(|path| working_directory.join(path)).collect();
        let settings = Settings {
            names: Names::Members,
            allowed_roots: within(self.allowed_roots),
            allowed_paths: within(self.allowed_paths),
            definitions: DefinitionFolders {
                agents: within(self.agents_dirs),
                skills: within(self.skills_dirs),
                commands: within(self.commands_dirs),
                homes: Vec::new(),
            },
            stale_check: self.stale_check,
            sandbox: SandboxSettings {
                mode: self.sandbox.unwrap_or(base.sandbox.mode),
                network: self.sandbox_network,
                ..SandboxSettings::default()
            },
            storage: storage(self.data_directory, &working_directory)?,
            database: database(self.store, (self.node_url, self.node_labels))?,
            model: self.model,
            openai: self
                .openai
                .map(|o| OpenAiSettings {
                    base_url: o.base_url.map(Into::into),
                    api_key: o.api_key,
                    images: o.images,
                    api: o.api,
                })
                .unwrap_or_default(),
            providers: self.providers,
            model_fallbacks: self.model_fallbacks,
            small_model: self.small_model,
            compaction_model: self.compaction_model,
            find_local_models: self.find_local_models,
            tape: match (self.replay_models, self.record_models) {
                (Some(path), _) => TapeSettings::Replay(working_directory.join(path), self.replay_speed.unwrap_or(0.0)),
                (None, Some(path)) => TapeSettings::Record(working_directory.join(path)),
                (None, None) => TapeSettings::Off,
            },
            acp_servers: self.acp_servers,
            tool_bridge: self.tool_bridge,
            mcp_servers: self.mcp_servers,
            agent_types: self.agent_types,
            hooks: self.hooks,
            permissions: self.tool_permissions.unwrap_or(base.permissions),
            permission_mode: self.permission_mode,
            provider_prompts: self.provider_prompts.unwrap_or_default(),
            instructions: InstructionDiscovery { root_dir, ..instructions },
            memory: self.memory.map_or(MemorySettings::default(), |given| given.over(base.memory, &working_directory)),
            limits: self.limits.over(base.limits),
            ..base
        };
        Ok((settings, listen, grace))
    }
}

/// `port` of a configuration that names none (typescript-api.md §1).
const DEFAULT_PORT: u16 = 3000;

/// A directory that exists, as it resolves.
fn directory(field: &str, path: &Path) -> napi::Result<PathBuf> {
    let problem = match path.canonicalize() {
        Ok(real) if real.is_dir() => return Ok(real),
        Ok(_) => format!("expected a directory, got the file {}", path.display()),
        Err(cause) => format!("expected a directory that can be read, got {}: {cause}", path.display()),
    };
    Err(misfit(field, &problem))
}

fn misfit(field: &str, problem: &str) -> napi::Error {
    let issues = json!({ "issues": [{ "path": field, "message": problem }] });
    envelope("CONFIG_VALIDATION", format!("createSimseServer: {field}: {problem}"), issues)
}

/// The database that has the sessions, and this server among those that share it.
fn database(store: StoreAddress, said: (Option<NodeUrl>, Vec<String>)) -> napi::Result<Option<Database>> {
    let node = NodeSettings::of(said, &store, Names::Members)
        .map_err(|(field, expected)| misfit(&field, &format!("expected {expected}")))?;
    Ok(Database::of(store).map(|database| Database { node, ..database }))
}

/// A directory that the caller names is used as it is; else each server gets one of its own, by working directory.
fn storage(named: Option<PathBuf>, working_directory: &Path) -> napi::Result<Storage> {
    if let Some(path) = named {
        return Ok(Storage::Directory(working_directory.join(path)));
    }
    embedded_data_directory(working_directory)
        .map(Storage::FirstFreeUnder)
        .ok_or_else(|| misfit("dataDirectory", "expected a directory, because neither HOME nor XDG_DATA_HOME is set"))
}
