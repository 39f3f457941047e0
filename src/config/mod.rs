//! Settings, resolved once: flags over environment over file over defaults. The only place that reads the environment.

mod acp;
mod acp_profile;
mod address;
mod agent_types;
mod bounds;
pub mod data_directory;
mod definitions;
mod embedded;
mod environment;
mod faults;
mod hooks;
#[cfg(test)]
#[path = "../../fuzz/src/inside/settings.rs"]
mod inside;
mod mcp;
mod names;
mod node_settings;
mod node_url;
mod options;
mod origin;
pub mod projects;
mod provider;
mod records;
mod rehearsal;
mod resolve;
mod schema;
pub mod session_tokens;
mod shown;
mod store_address;
mod supervision;
mod telemetry;
pub mod tokens;

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::base::limit;
use crate::base::sandbox::Mode as SandboxMode;
use crate::base::trace::Collector;
use crate::base::workspace::StaleCheck;
use crate::protocol::{
    Budget, CategoryFilter, PermissionConfig, PermissionMode, PermissionPolicy, PermissionRule, ToolAnnotations,
    ToolCategory,
};

pub use acp::{AcpMcpServers, AcpPermissionPolicy, AcpServer, AcpTools, BadAcpServer, ToolBridge};
pub use acp_profile::{ACP_PROFILES, AcpProfile};
pub use address::Address;
pub use agent_types::AgentType;
pub use bounds::{BOUNDS, Bounds};
pub use definitions::{
    AgentCatalog, AgentFolders, Catalog, CommandDefinition, DefinitionFolders, Finder, LoadedSkill, commands, expand,
    fill, load_skill, skill_file, skills,
};
pub use embedded::embedded_data_directory;
pub use environment::{
    PLATFORM, TOOL_DOOR, TOOL_KEY, attach_token, client_token, database_password, editor_program, find_program,
    find_program_in, home_directory, inherited_environment, own_arguments, own_program, tool_door,
};
pub use faults::{Fault, faults_of};
pub use hooks::{HOOK_EVENTS, HookCommand};
pub use mcp::{BadMcpServer, IdentityProvider, McpServer, McpTransport, OAuth};
pub use names::{Names, Setting, setting_of, strange_variables};
pub use node_settings::NodeSettings;
pub use node_url::{NODE_URL_EXPECTED, NodeUrl};
pub use options::{FilePermissions, HIDDEN, LogFilter, LogFormat, LogLevel, Options};
pub use origin::Origin;
pub use provider::{
    Api, BadProvider, KNOWN_PROVIDERS, KnownProvider, Provider, ProviderModel, ProviderPrices, known_provider,
};
pub use records::{change_records_directory, state_directory, temporary_state_directory};
pub use rehearsal::Rehearsal;
pub use resolve::{ConfigError, Launch, Listen};
pub use schema::schema;
pub use shown::AT_ONCE;
pub use store_address::{STORE_EXPECTED, StoreAddress};
pub use supervision::Supervision;

/// Everything that the application can be told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What their giver calls them.
    pub names: Names,
    /// Where sessions work that name no directory. Absolute.
    pub working_directory: PathBuf,
    /// Roots under which working directories may lie. Empty: the working directory alone.
    pub allowed_roots: Vec<PathBuf>,
    /// Further roots for the file tools of every session.
    pub allowed_paths: Vec<PathBuf>,
    /// When a file may be changed that the session did not read, or that has changed since.
    pub stale_check: StaleCheck,
    /// Where sessions are kept.
    pub storage: Storage,
    /// Where sessions are instead.
    pub database: Option<Database>,
    /// What the programs of sessions are held to.
    pub sandbox: SandboxSettings,
    /// The model of new sessions, `provider/name`. None: the first that is configured, else `demo/scripted`.
    pub model: Option<String>,
    /// The OpenAI-compatible endpoint.
    pub openai: OpenAiSettings,
    /// Further providers of models.
    pub providers: Vec<Provider>,
    /// Models that are asked, in this order, when a session's own cannot be used.
    pub model_fallbacks: Vec<String>,
    /// The model for small work: titles. None: sessions get none by themselves.
    pub small_model: Option<String>,
    /// The model that sums up conversations. None: each session's own does.
    pub compaction_model: Option<String>,
    /// Whether models on this machine are looked for.
    pub find_local_models: bool,
    /// Whether answers of models are recorded, or come from a recording.
    pub tape: TapeSettings,
    /// External agents.
    pub acp_servers: Vec<AcpServer>,
    /// What joins their tool clients to us. None: agents cannot call our tools.
    pub tool_bridge: Option<ToolBridge>,
    /// Types of sub-agents, beside and over those that are always there.
    pub agent_types: Vec<AgentType>,
    /// Commands at hook points, in the order in which they run.
    pub hooks: Vec<HookCommand>,
    /// MCP servers whose tools every session has.
    pub mcp_servers: Vec<McpServer>,
    /// What tools may do.
    pub permissions: PermissionConfig,
    /// How much new sessions do without asking.
    pub permission_mode: PermissionMode,
    /// The user's home directory, when it is known.
    pub home: Option<PathBuf>,
    /// System prompts by model pattern.
    pub provider_prompts: ProviderPrompts,
    /// Which instruction files are read. None: the defaults.
    pub instructions: InstructionDiscovery,
    /// Where agents and the like are looked for.
    pub definitions: DefinitionFolders,
    /// Long-term memory.
    pub memory: MemorySettings,
    /// Limits and waits.
    pub limits: Limits,
    /// Where traces and logs go. None: nowhere.
    pub collector: Option<Collector>,
}

/// What the programs of sessions are held to by the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// How far they may go.
    pub mode: SandboxMode,
    /// Whether they may talk to the network.
    pub network: bool,
    /// What they may not see beside the data directory; may come into being later.
    pub hidden: Vec<PathBuf>,
    /// The settings' own file. They may not see it either, but where it lies in a session's roots: there they may not change it.
    pub settings: Option<PathBuf>,
}

impl Default for SandboxSettings {
    /// The working directory is writable, the network is off.
    fn default() -> Self {
        Self { mode: SandboxMode::WorkspaceWrite, network: false, hidden: Vec::new(), settings: None }
    }
}

/// A PostgreSQL that has the tables of sessions.
#[derive(Debug, Clone)]
pub struct Database {
    /// `postgres://user@host/database`.
    pub address: SecretString,
    /// The user's password, where the address has none.
    pub password: Option<SecretString>,
    /// This server among several that share it. None: it has it alone.
    pub node: Option<NodeSettings>,
}

impl Database {
    /// The database that an address names, for one server, with the password of the environment. None: sessions are in the data
    /// directory.
    pub fn of(store: StoreAddress) -> Option<Self> {
        Self::named(store, || database_password().map(|password| password.expose_secret().to_owned()))
    }

    fn named(store: StoreAddress, password: impl FnOnce() -> Option<String>) -> Option<Self> {
        match store {
            StoreAddress::Sqlite => None,
            StoreAddress::Postgres(address) => Some(Self { address, password: password().map(Into::into), node: None }),
        }
    }
}

/// Where the server keeps what is its own: sessions, unless they have a [`Database`], what turns did to files, and the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory; gone with the process.
    Memory,
    /// In this directory. Refused when another process holds it.
    Directory(PathBuf),
    /// In the first numbered directory under this one that no other process holds (embedded servers).
    FirstFreeUnder(PathBuf),
}

/// An OpenAI-compatible endpoint.
#[derive(Debug, Clone, Default)]
pub struct OpenAiSettings {
    /// Such as `https://api.openai.com/v1`.
    pub base_url: Option<Address>,
    /// The key. Local servers often want none.
    pub api_key: Option<SecretString>,
    /// Whether its models can be shown images. None: they can.
    pub images: Option<bool>,
    /// Its wire. None: Responses for OpenAI's own address, else Chat Completions.
    pub api: Option<OpenAiApi>,
}

/// The wire of the OpenAI-compatible endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum OpenAiApi {
    /// Chat Completions.
    #[serde(rename = "openai-chat")]
    Chat,
    /// Responses.
    #[serde(rename = "openai-responses")]
    Responses,
}

/// Where answers of models are kept, or come from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum TapeSettings {
    /// Neither.
    #[default]
    Off,
    /// They are recorded in this file.
    Record(PathBuf),
    /// They come from this file, this much faster than they were; 0: at once.
    Replay(PathBuf, f64),
}

/// Long-term memory (typescript-api.md §7, `MemoryConfig`).
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// Whether sessions remember.
    pub enabled: bool,
    /// The embedding model at the OpenAI-compatible endpoint, with or without `openai/`. None: words alone decide.
    pub embedding_model: Option<String>,
    /// The directory of an embedding model that we run ourselves, instead of one of the endpoint.
    pub model: Option<PathBuf>,
    /// The score from which on an answer counts: 0 to 1.
    pub similarity_threshold: f64,
    /// How many answers a search gives that does not say: 1 to [`limit::MEMORY_RESULTS_MAX`].
    pub results: usize,
    /// Texts of a project: 1 to [`limit::MEMORY_ENTRIES_MAX`]. Of more, those that are of least use are forgotten.
    pub entries_max: usize,
    /// Days after which what nobody has noted or found is forgotten. None: never.
    pub forget_after_days: Option<u64>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            embedding_model: None,
            model: None,
            similarity_threshold: limit::MEMORY_SIMILARITY,
            results: limit::MEMORY_RESULTS,
            entries_max: limit::MEMORY_ENTRIES_MAX,
            forget_after_days: None,
        }
    }
}

/// System prompts by model pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProviderPrompts {
    /// Glob over `provider/name` → prompt. The first match wins, in the order given.
    pub prompts: Vec<(String, String)>,
    /// When nothing matches.
    pub default_prompt: Option<String>,
}

/// Which instruction files are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InstructionDiscovery {
    /// File names, relative to each directory that is looked at.
    pub patterns: Vec<String>,
    /// Where the walk up from the working directory ends. None: at the repository's root.
    pub root_dir: Option<PathBuf>,
    /// Whether they go into the system prompt.
    pub auto_inject: bool,
}

impl Default for InstructionDiscovery {
    fn default() -> Self {
        Self {
            patterns: ["CLAUDE.md", "AGENTS.md", ".simse/instructions.md"].map(str::to_owned).into(),
            root_dir: None,
            auto_inject: true,
        }
    }
}

/// Limits and waits; each default stands in `base::limit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a permission question waits.
    pub permission_timeout_ms: u64,
    /// How long a session with nobody connected keeps a question open.
    pub client_grace_ms: u64,
    /// How long an interrupted turn may take to its next boundary, and how long a pause waits for it.
    pub interrupt_grace_ms: u64,
    /// Rest after which a session that nobody uses leaves memory.
    pub session_idle_ms: u64,
    /// Rest after which the program of an ACP agent or an MCP server is ended; 0: never.
    pub agent_idle_ms: u64,
    /// Longest silence of a model.
    pub model_idle_timeout_ms: u64,
    /// Rounds with the model in one turn.
    pub max_iterations: u32,
    /// Hundredths of its model's window that a conversation fills when it is summed up by itself. 0: only when it does not fit.
    pub compact_percent: u32,
    /// Prompts that may wait in one session.
    pub queued_prompts_max: usize,
    /// Bytes of the prompts that may wait in one session.
    pub queued_bytes_max: usize,
    /// Turns that run at once.
    pub turns_max: usize,
    /// Runs of sub-agents under one session that are under way at once, at each depth.
    pub subagents_running_max: usize,
    /// Those that are under way or wait.
    pub subagents_max: usize,
    /// How deep sessions spawn others.
    pub subagent_depth: usize,
    /// Sessions kept in one store.
    pub sessions_max: u64,
    /// Open event streams of one session.
    pub streams_per_session_max: usize,
    /// Contents of files that are kept for undoing, in bytes. 0: what turns do to files is not recorded.
    pub snapshot_bytes_max: u64,
    /// Bytes of definitions of MCP servers' tools that a model is told one by one.
    pub mcp_told_bytes_max: usize,
    /// Commands of one client in a minute; 0: as many as it likes.
    pub commands_per_minute: u32,
    /// What each session above all may spend with those under it, at most.
    pub session_budget: Budget,
    /// What each client may spend, in `budget_window_ms`.
    pub client_budget: Budget,
    /// The span of time of a client's budget.
    pub budget_window_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            permission_timeout_ms: limit::PERMISSION_TIMEOUT_MS,
            client_grace_ms: limit::CLIENT_GRACE_MS,
            interrupt_grace_ms: limit::INTERRUPT_GRACE_MS,
            session_idle_ms: limit::SESSION_IDLE_MS,
            agent_idle_ms: limit::AGENT_IDLE_MS,
            model_idle_timeout_ms: limit::MODEL_IDLE_TIMEOUT_MS,
            max_iterations: limit::ITERATIONS_MAX,
            compact_percent: limit::COMPACT_PERCENT,
            queued_prompts_max: limit::QUEUED_PROMPTS_MAX,
            queued_bytes_max: limit::QUEUED_BYTES_MAX,
            turns_max: limit::TURNS_MAX,
            subagents_running_max: limit::SUBAGENTS_RUNNING_MAX,
            subagents_max: limit::SUBAGENTS_MAX,
            subagent_depth: limit::SUBAGENT_DEPTH,
            sessions_max: limit::SESSIONS_MAX,
            streams_per_session_max: limit::STREAMS_PER_SESSION_MAX,
            snapshot_bytes_max: limit::SNAPSHOT_BYTES_MAX,
            mcp_told_bytes_max: limit::MCP_TOLD_BYTES_MAX,
            commands_per_minute: limit::COMMANDS_PER_MINUTE,
            session_budget: Budget::default(),
            client_budget: Budget::default(),
            budget_window_ms: limit::BUDGET_WINDOW_MS,
        }
    }
}

impl Settings {
    /// Defaults for a working directory; nothing is read from the environment. Kept in memory.
    pub fn new(working_directory: PathBuf) -> Self {
        Self {
            names: Names::default(),
            working_directory,
            allowed_roots: Vec::new(),
            allowed_paths: Vec::new(),
            stale_check: StaleCheck::default(),
            sandbox: SandboxSettings::default(),
            storage: Storage::Memory,
            database: None,
            model: None,
            openai: OpenAiSettings::default(),
            providers: Vec::new(),
            model_fallbacks: Vec::new(),
            small_model: None,
            compaction_model: None,
            find_local_models: false,
            tape: TapeSettings::default(),
            acp_servers: Vec::new(),
            tool_bridge: None,
            agent_types: Vec::new(),
            hooks: Vec::new(),
            mcp_servers: Vec::new(),
            permissions: default_permissions(),
            permission_mode: PermissionMode::default(),
            home: home_directory(),
            provider_prompts: ProviderPrompts::default(),
            instructions: InstructionDiscovery::default(),
            definitions: DefinitionFolders::default(),
            memory: MemorySettings::default(),
            limits: Limits::default(),
            collector: None,
        }
    }

    /// This server is none of several, whatever was said: nobody else reaches it.
    pub fn stand_alone(&mut self) {
        if let Some(database) = &mut self.database {
            database.node = None;
        }
    }
}

/// Tools of ours with which agents of a tree tell each other something: it stays among them.
const AMONG_AGENTS: [&str; 10] = [
    "blackboard_write",
    "notify_parent",
    "send_to_peer",
    "lock_paths",
    "unlock_paths",
    "task_create",
    "task_update",
    "task_delete",
    "task_get",
    "task_list",
];

/// Looking and searching are allowed, in memory too, and what agents of a tree tell each other; everything else asks.
pub fn default_permissions() -> PermissionConfig {
    let allow = |category, annotations| PermissionRule {
        tool: "*".into(),
        pattern: None,
        policy: PermissionPolicy::Allow,
        category: Some(category),
        annotations,
    };
    let named = |tool: &str| PermissionRule {
        tool: tool.to_owned(),
        pattern: None,
        policy: PermissionPolicy::Allow,
        category: None,
        annotations: None,
    };
    // Sub-agents may do at most what who starts them may.
    let looking = CategoryFilter::Any(vec![ToolCategory::Read, ToolCategory::Search, ToolCategory::Subagent]);
    let only_reading = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    PermissionConfig {
        default_policy: PermissionPolicy::Ask,
        rules: [allow(looking, None), allow(CategoryFilter::One(ToolCategory::Memory), Some(only_reading))]
            .into_iter()
            .chain(AMONG_AGENTS.map(named))
            .collect(),
    }
}
