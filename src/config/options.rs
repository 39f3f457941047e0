//! Every setting once: its name in three spellings, its type, and its words in `--help`.
//!
//! `permission_timeout_ms` in the configuration file is `--permission-timeout-ms` as a flag and
//! `SIMSE_PERMISSION_TIMEOUT_MS` in the environment. All are optional here; `resolve` knows the defaults.

mod kinds;

use std::ffi::OsStr;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::kinds::HIDDEN;
use self::kinds::Setting;
use super::{
    AcpServer, Address, AgentType, Bounds, ConfigError, HookCommand, McpServer, NodeUrl, OpenAiApi, Provider,
    StoreAddress,
};
use crate::base::sandbox::Mode as SandboxMode;
use crate::base::workspace::StaleCheck;
use crate::protocol::{Budget, PermissionMode, PermissionPolicy, PermissionRule};

macro_rules! options {
    ($(#[doc = $words:literal] $(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// What was said in one place: flags, environment or file. Higher places win, see [`Options::over`].
        #[derive(Debug, Clone, Default, Deserialize, clap::Args)]
        #[serde(deny_unknown_fields, default)]
        pub struct Options {
            $(#[doc = $words] $(#[$meta])* pub $name: Option<$type>,)*
        }

        impl Options {
            /// These, and where nothing is said here, those of `lower`.
            #[must_use]
            pub fn over(self, lower: Self) -> Self {
                Self { $($name: self.$name.or(lower.$name),)* }
            }

            /// What the variables `SIMSE_…` say. Empty ones count as absent.
            ///
            /// # Errors
            /// [`ConfigError::Value`] that names the variable.
            pub fn from_variables(lookup: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> Result<Self, ConfigError> {
                Ok(Self { $($name: variable(lookup, stringify!($name))?,)* })
            }

            /// Everything that is wrong with the variables `SIMSE_…`.
            pub(super) fn faults_of_variables(lookup: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> Vec<ConfigError> {
                let faults = [$(variable::<$type>(lookup, stringify!($name)).err(),)*];
                faults.into_iter().flatten().collect()
            }

            /// The names, as in the file.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// What each is for, in the same order, as `--help` has it.
            pub(super) const WORDS: &'static [&'static str] = &[$($words,)*];

            /// What is said here, by name, in the order of `--help`. Secrets are left out of it.
            pub fn shown(&self) -> Vec<(&'static str, Value)> {
                let all = [$((stringify!($name), self.$name.as_ref().map(Setting::show)),)*];
                all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
            }

            /// The whole numbers among them, by name.
            pub(super) fn whole_numbers(&self) -> Vec<(&'static str, u64)> {
                let all = [$((stringify!($name), self.$name.as_ref().and_then(Setting::whole_number)),)*];
                all.into_iter().filter_map(|(name, number)| Some((name, number?))).collect()
            }

            /// The names of what is not the same there.
            pub fn changed(&self, there: &Self) -> Vec<&'static str> {
                let same = |same: bool, name| (!same).then_some(name);
                let all = [$(same(is(self.$name.as_ref(), there.$name.as_ref()), stringify!($name)),)*];
                all.into_iter().flatten().collect()
            }

            /// Takes these from there.
            pub fn restore(&mut self, there: &Self, names: &[&str]) {
                $(if names.contains(&stringify!($name)) {
                    self.$name.clone_from(&there.$name);
                })*
            }

            /// The schema of each, by name.
            pub(super) fn schemas() -> Map<String, Value> {
                let mut all = Map::new();
                $(all.insert(stringify!($name).to_owned(), described(<$type>::schema(), $words));)*
                all
            }
        }
    };
}

fn is<T: Setting>(one: Option<&T>, other: Option<&T>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is(other),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn described(mut schema: Value, words: &str) -> Value {
    schema["description"] = words.trim().into();
    schema
}

options! {
    /// Port to listen on; 0 takes any free one [default: 4100]
    #[arg(long, value_name = "PORT", help_heading = "Where it listens")]
    port: u16,
    /// Address to listen on [default: 127.0.0.1, which only this machine can reach]
    #[arg(long, value_name = "HOST", help_heading = "Where it listens")]
    host: String,
    /// Allow an address that other machines can reach; clients then need the token
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Where it listens")]
    allow_public: bool,
    /// Ask no token of clients; only on an address of this machine
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Where it listens")]
    no_auth: bool,
    /// Serve TLS with this certificate: PEM, the server's own first; needs --tls-key
    #[arg(long, value_name = "FILE", help_heading = "Where it listens")]
    tls_cert: PathBuf,
    /// The certificate's key: PEM, without a password
    #[arg(long, value_name = "FILE", help_heading = "Where it listens")]
    tls_key: PathBuf,
    /// Listen on this Unix socket too; programs of the same user need no token there
    #[arg(long, value_name = "PATH", help_heading = "Where it listens")]
    socket: PathBuf,
    /// Let GET /metrics be read without a token [default: it needs one like all else]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Where it listens")]
    metrics_open: bool,
    /// Write the port into this file once the server answers, for programs that start it
    #[arg(long, value_name = "FILE", help_heading = "Where it listens")]
    port_file: PathBuf,
    /// Directory that sessions work in unless they name another [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    cwd: PathBuf,
    /// Directory under which sessions may work; may be given several times [default: --cwd]
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    root: Vec<PathBuf>,
    /// Further directory that the file tools of every session may touch; may be given several times
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    allowed_path: Vec<PathBuf>,
    /// Folder with agents as markdown files, beside those of the project and the user; may be given several times
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    agents_dir: Vec<PathBuf>,
    /// Folder with skills, each a folder with a SKILL.md, beside those of the project and the user; may be given several times
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    skills_dir: Vec<PathBuf>,
    /// Folder with slash commands as markdown files, beside those of the project and the user; may be given several times
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    commands_dir: Vec<PathBuf>,
    /// Where sessions, the token and the log of events are kept [default: ~/.local/share/simse]
    #[arg(long, value_name = "DIR", help_heading = "What it works on")]
    data_dir: PathBuf,
    /// Where sessions are: sqlite, in the data directory, or postgres://USER@HOST/DATABASE, its password in PGPASSWORD [default: sqlite]
    #[arg(long, value_name = "STORE", value_parser = store, help_heading = "What it works on")]
    store: StoreAddress,
    /// Where the other servers of the same database reach this one, such as http://10.0.0.7:4000; with it several share the database of --store, without it one has it alone
    #[arg(long, value_name = "URL", help_heading = "What it works on")]
    node_url: NodeUrl,
    /// Labels of the workspaces that this server reaches, with commas between them; a session with a label lives only on servers that have it
    #[arg(long, value_name = "LABEL", value_delimiter = ',', help_heading = "What it works on")]
    node_labels: Vec<String>,
    /// What commands are held to by the operating system: read-only, workspace-write or off [default: workspace-write]
    #[arg(long, value_name = "MODE", value_parser = sandbox, help_heading = "What it works on")]
    sandbox: SandboxMode,
    /// Let sandboxed commands reach the network
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "What it works on")]
    sandbox_network: bool,
    /// What happens to a tool call that no rule decides: allow, ask or deny [default: ask]
    #[arg(long, value_name = "POLICY", value_parser = policy, help_heading = "What it works on")]
    default_policy: PermissionPolicy,
    /// When a file may be changed that a session did not read, or that has changed since: strict, warn or off [default: warn]
    #[arg(long, value_name = "MODE", value_parser = stale_check, help_heading = "What it works on")]
    stale_check: StaleCheck,
    /// How much new sessions do without asking: plan, ask, accept-edits or auto [default: ask]
    #[arg(long, value_name = "MODE", value_parser = mode, help_heading = "What it works on")]
    permission_mode: PermissionMode,
    /// Rules; in the file only
    #[arg(skip)]
    permissions: FilePermissions,
    /// ACP agents; in the file only
    #[arg(skip)]
    acp_servers: Vec<AcpServer>,
    /// Types of sub-agents; in the file only
    #[arg(skip)]
    agent_types: Vec<AgentType>,
    /// Commands at hook points; in the file only
    #[arg(skip)]
    hooks: Vec<HookCommand>,
    /// MCP servers; in the file only
    #[arg(skip)]
    mcp_servers: Vec<McpServer>,
    /// Providers of models; in the file only
    #[arg(skip)]
    providers: Vec<Provider>,
    /// Model of new sessions, as provider/name, such as openai/gpt-5
    #[arg(long, value_name = "MODEL", help_heading = "Models")]
    model: String,
    /// OpenAI-compatible endpoint, such as http://127.0.0.1:11434/v1 [also: OPENAI_BASE_URL; its key: OPENAI_API_KEY]
    #[arg(long, value_name = "URL", help_heading = "Models")]
    openai_base_url: Address,
    /// The endpoint's key; never a flag, because other users see those
    #[arg(skip)]
    openai_api_key: SecretString,
    /// Wire of the endpoint: openai-chat or openai-responses [default: openai-responses for OpenAI's own address, else openai-chat]
    #[arg(long, value_name = "WIRE", value_parser = openai_api, help_heading = "Models")]
    openai_api: OpenAiApi,
    /// Models that are asked, in this order, when the session's own cannot be used
    #[arg(long, value_name = "MODEL", value_delimiter = ',', help_heading = "Models")]
    model_fallbacks: Vec<String>,
    /// Model for small work: the titles of sessions that nobody has named [default: none, they get no title]
    #[arg(long, value_name = "MODEL", help_heading = "Models")]
    small_model: String,
    /// Model that sums up conversations that become too long [default: each session's own]
    #[arg(long, value_name = "MODEL", help_heading = "Models")]
    compaction_model: String,
    /// Find the models of Ollama and llama.cpp on this machine [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Models")]
    find_local_models: bool,
    /// Record all answers of models in this file, without keys
    #[arg(long, value_name = "FILE", help_heading = "Models")]
    record_models: PathBuf,
    /// Take all answers of models from this recording, and none from the network
    #[arg(long, value_name = "FILE", help_heading = "Models")]
    replay_models: PathBuf,
    /// How fast a recording is given again: 1 as it was, 2 twice as fast, 0 at once [default: 0]
    #[arg(long, value_name = "FACTOR", help_heading = "Models")]
    replay_speed: f64,
    /// Whether the endpoint's models can be shown images [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Models")]
    openai_images: bool,
    /// Let sessions remember things in the data directory, project by project [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Memory")]
    memory: bool,
    /// Embedding model of the endpoint, for finding by meaning, such as openai/text-embedding-3-small [default: none, words decide]
    #[arg(long, value_name = "MODEL", help_heading = "Memory")]
    memory_embedding_model: String,
    /// Directory of an embedding model that this program runs itself (Model2Vec's form), instead of one of the endpoint
    #[arg(long, value_name = "PATH", help_heading = "Memory")]
    memory_model: PathBuf,
    /// How well something must fit to be found, from 0 to 1 [default: 0.3]
    #[arg(long, value_name = "SHARE", help_heading = "Memory")]
    memory_similarity_threshold: f64,
    /// Answers of a search that does not say how many it wants, 1 to 100 [default: 5]
    #[arg(long, value_name = "N", help_heading = "Memory")]
    memory_max_results: usize,
    /// Texts of a project; of more, those that are of least use are forgotten [default: 100000]
    #[arg(long, value_name = "N", help_heading = "Memory")]
    memory_entries_max: usize,
    /// Forget what nobody has noted or found for so many days [default: never]
    #[arg(long, value_name = "DAYS", help_heading = "Memory")]
    memory_forget_after_days: u64,
    /// Longest silence of a model, in milliseconds [default: 120000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    model_idle_timeout_ms: u64,
    /// How long a permission question waits for its answer [default: 120000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    permission_timeout_ms: u64,
    /// How long a question stays open in a session that nobody watches [default: 5000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    client_grace_ms: u64,
    /// How long an interrupted turn may take to stop in order before it is cut off, 24000 at most [default: 10000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    interrupt_grace_ms: u64,
    /// Rest after which a session that nobody uses leaves memory [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    session_idle_ms: u64,
    /// Rest after which the program of an ACP agent or an MCP server is ended until it is needed again; 0: never [default: 600000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    agent_idle_ms: u64,
    /// How long a stop waits for running turns [default: 8000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    shutdown_grace_ms: u64,
    /// Rounds with the model in one turn [default: 200]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    max_iterations: u32,
    /// Percent of its model's window that a conversation fills when it is summed up by itself; 0: only when it does not fit [default: 85]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    compact_percent: u32,
    /// Prompts that may wait in one session [default: 100]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    queued_prompts_max: usize,
    /// Bytes of the prompts that may wait in one session [default: 33554432]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    queued_bytes_max: usize,
    /// Turns that run at once, in all sessions [default: 4000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    turns_max: usize,
    /// Sub-agents that are under way at once under one session, at each depth; more wait [default: 10]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    subagents_running_max: usize,
    /// Sub-agents that are under way or wait under one session; one more is refused [default: 100]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    subagents_max: usize,
    /// How deep sessions spawn others; 1: sub-agents spawn none, 0: nobody does [default: 1]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    subagent_depth: usize,
    /// Sessions that are kept [default: 1000000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    sessions_max: u64,
    /// Open event streams of one session [default: 2000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    streams_per_session_max: usize,
    /// Bytes of files that are kept for undoing what turns did; 0 records nothing [default: 1073741824]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    snapshot_bytes_max: u64,
    /// Bytes of the definitions of tools of MCP servers that a model is told one by one; with more it is told how to find them [default: 16384]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    mcp_told_bytes_max: usize,
    /// Commands of one client in a minute, controls counted apart; 0: no limit [default: 60000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    commands_per_minute: u32,
    /// What each session may spend with its sub-agents: tokens, costUsd, timeMs, turns and toolCalls, such as tokens=1000000,costUsd=5
    #[arg(long, value_name = "BUDGET", value_parser = budget, help_heading = "Limits")]
    session_budget: Budget,
    /// What each client may spend in the span of time of --budget-window-ms, such as costUsd=20,toolCalls=5000
    #[arg(long, value_name = "BUDGET", value_parser = budget, help_heading = "Limits")]
    client_budget: Budget,
    /// The span of time of --client-budget [default: 86400000, a day of UTC]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    budget_window_ms: u64,
    /// Open connections [default: 10000]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    connections_max: usize,
    /// Largest request body in bytes [default: 10000000]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    body_bytes_max: usize,
    /// Longest wait for the head of a request, on an idle connection too [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    head_timeout_ms: u64,
    /// Longest wait for a whole request body [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    body_timeout_ms: u64,
    /// Longest time in which a client may take nothing of what is sent to it [default: 30000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    write_timeout_ms: u64,
    /// Time between two signs of life on a silent event stream [default: 15000]
    #[arg(long, value_name = "MS", help_heading = "Limits")]
    heartbeat_ms: u64,
    /// Form of the log on stderr: text or json [default: text]
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Log")]
    log_format: LogFormat,
    /// How much is logged: off, error, warn, info or debug [default: info]
    #[arg(long, value_name = "LEVEL", value_enum, help_heading = "Log")]
    log_level: LogLevel,
    /// Send traces and logs to this collector by OTLP over HTTP, such as http://127.0.0.1:4318 [also: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", help_heading = "Log")]
    otlp_endpoint: Address,
    /// Headers for it, NAME=VALUE joined by commas; never a flag, because other users see those [also: OTEL_EXPORTER_OTLP_HEADERS]
    #[arg(skip)]
    otlp_headers: SecretString,
    /// What the server is called there [default: simse] [also: OTEL_SERVICE_NAME]
    #[arg(long, value_name = "NAME", help_heading = "Log")]
    otlp_service_name: String,
    /// Levels of single modules over it, such as simse::store=debug,simse::mcp=off [default: none]
    #[arg(long, value_name = "LEVELS", help_heading = "Log")]
    log_filter: LogFilter,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What may be wrong.
    Warn,
    /// Requests too.
    #[default]
    Info,
    /// Everything.
    Debug,
}

/// Levels of single modules of this program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogFilter(Vec<(String, LogLevel)>);

impl LogFilter {
    /// Each module and its level.
    pub fn levels(&self) -> impl Iterator<Item = (&str, LogLevel)> {
        self.0.iter().map(|(module, level)| (module.as_str(), *level))
    }
}

impl std::str::FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |part: &str| {
            let (module, level) = part.trim().split_once('=')?;
            let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
            let named = !module.is_empty() && module.chars().all(word);
            Some((module.to_owned(), LogLevel::parse(OsStr::new(level))?)).filter(|_| named)
        };
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let levels: Option<Vec<_>> = parts.map(one).collect();
        levels.map(Self).ok_or_else(|| format!("expected {}", Self::EXPECTED))
    }
}

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::fmt::Display for LogFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.levels().map(|(module, level)| format!("{module}={}", level.word())).collect();
        f.write_str(&parts.join(","))
    }
}

impl LogLevel {
    fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// `[permissions]` of the file. The rules come after the built-in one, so they win over it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilePermissions {
    /// Rules; the last that matches wins.
    pub rules: Vec<PermissionRule>,
}

/// The policies, as in the file.
pub(super) fn policies() -> Value {
    PermissionPolicy::schema()
}

fn policy(text: &str) -> Result<PermissionPolicy, String> {
    PermissionPolicy::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", PermissionPolicy::EXPECTED))
}

fn sandbox(text: &str) -> Result<SandboxMode, String> {
    SandboxMode::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", SandboxMode::EXPECTED))
}

fn store(text: &str) -> Result<StoreAddress, String> {
    StoreAddress::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", StoreAddress::EXPECTED))
}

fn stale_check(text: &str) -> Result<StaleCheck, String> {
    StaleCheck::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", StaleCheck::EXPECTED))
}

fn budget(text: &str) -> Result<Budget, String> {
    Budget::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", Budget::EXPECTED))
}

fn openai_api(text: &str) -> Result<OpenAiApi, String> {
    OpenAiApi::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", OpenAiApi::EXPECTED))
}

fn mode(text: &str) -> Result<PermissionMode, String> {
    PermissionMode::parse(OsStr::new(text)).ok_or_else(|| format!("expected {}", PermissionMode::EXPECTED))
}

fn variable<T: Setting>(
    lookup: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    name: &str,
) -> Result<Option<T>, ConfigError> {
    let variable = format!("SIMSE_{}", name.to_ascii_uppercase());
    let Some(text) = lookup(&variable).filter(|text| !text.is_empty()) else { return Ok(None) };
    let expected = || Bounds::of(name).map_or_else(|| T::EXPECTED.to_owned(), ToString::to_string);
    T::parse(&text).map(Some).ok_or_else(|| ConfigError::Value { place: variable, expected: expected() })
}
