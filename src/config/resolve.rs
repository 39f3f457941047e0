//! Flags over environment over file over defaults, once, at start.
//!
//! The file is TOML: `--config`, else `SIMSE_CONFIG`, else `$XDG_CONFIG_HOME/simse/config.toml` when it is there.

mod homes;
mod limits;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::definitions::DefinitionFolders;
use super::faults::{Fault, faults_of, text_of};
use super::names::spellings;
use super::options::{LogFilter, LogFormat, LogLevel, Options};
use super::origin::{Origin, origins, others};
use super::provider::add_variables;
use super::telemetry;
use super::{
    Bounds, Database, MemorySettings, Names, NodeSettings, OpenAiSettings, SandboxSettings, Settings, Storage,
    TapeSettings, default_permissions,
};
use crate::base::{http, limit};

/// Faults of a file that are told in one line; the rest is counted.
const FAULTS_TOLD: usize = 5;
/// The port when none is named.
const PORT: u16 = 4100;

/// What was said does not make settings. Nothing has happened yet.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that is none of its kind.
    #[error("{place}: expected {expected}")]
    Value {
        /// The flag, the variable, or the key and the file.
        place: String,
        /// What was expected, and what came.
        expected: String,
    },
    /// The file could not be read, or says something that is not known.
    #[error("configuration file {path}: {problem}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        problem: String,
    },
    /// No place for the data.
    #[error(
        "neither HOME nor XDG_DATA_HOME names an absolute directory, so there is no place for the data; name one with --data-dir"
    )]
    NoHome,
}

/// Everything that a start of the standalone server needs.
#[derive(Debug, Clone)]
pub struct Launch {
    /// What the application is told.
    pub settings: Settings,
    /// Where and how the server listens.
    pub listen: Listen,
    /// Where sessions and the token are kept. Absolute; may not exist yet.
    pub data_directory: PathBuf,
    /// How long a stop waits for running turns.
    pub shutdown_grace_ms: u64,
    /// Form of the log.
    pub log_format: LogFormat,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Levels of single modules.
    pub log_filter: Option<LogFilter>,
    /// Gets the port once the server answers.
    pub port_file: Option<PathBuf>,
    /// The file that was read.
    pub config_file: Option<PathBuf>,
    /// All that was said.
    pub said: Options,
    /// Where each setting that was said comes from, by name.
    pub origins: Vec<(&'static str, Origin)>,
}

/// Where and how the server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Host name or address.
    pub host: String,
    /// 0: any free port.
    pub port: u16,
    /// Whether other machines may reach it.
    pub allow_public: bool,
    /// Whether clients need the token of the data directory.
    pub auth: bool,
    /// Certificate and key, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A Unix socket beside the address.
    pub socket: Option<PathBuf>,
    /// Largest body in bytes.
    pub body_bytes_max: usize,
    /// Open connections.
    pub connections_max: usize,
    /// Longest wait for the head of a request.
    pub head_timeout_ms: u64,
    /// Longest wait for a whole request body.
    pub body_timeout_ms: u64,
    /// Longest time in which a client may take nothing of what is sent to it.
    pub write_timeout_ms: u64,
    /// Time between two comments on a silent stream.
    pub heartbeat_ms: u64,
    /// Whether `GET /metrics` needs no token.
    pub metrics_open: bool,
    /// Whether `/mcp` shows what the conformance suite of MCP looks for: never by a setting.
    pub mcp_fixtures: bool,
}

/// The outside, as far as settings come from there.
pub(super) struct Surroundings<'a> {
    /// A variable's value.
    pub(super) lookup: &'a dyn Fn(&str) -> Option<OsString>,
    /// The current directory.
    pub(super) directory: PathBuf,
    /// Below all that is said.
    pub(super) defaults: Options,
}

impl Launch {
    /// Resolves the settings of this process. `file`: what `--config` named. `defaults` stand below all that is said.
    ///
    /// # Errors
    /// [`ConfigError`] that names the place.
    pub fn resolve(flags: Options, file: Option<PathBuf>, defaults: Options) -> Result<Self, ConfigError> {
        let directory = std::env::current_dir().map_err(|cause| ConfigError::Value {
            place: "current directory".to_owned(),
            expected: format!("one that exists and can be read; {cause}"),
        })?;
        let surroundings = Surroundings { lookup: &|name| std::env::var_os(name), directory, defaults };
        resolve(flags, file, &surroundings)
    }
}

impl Launch {
    /// The configuration file of this process when none is named: `SIMSE_CONFIG`, else the usual one where it is there.
    ///
    /// # Errors
    /// When there is no current directory.
    pub fn config_path() -> Result<Option<PathBuf>, ConfigError> {
        let directory = std::env::current_dir().map_err(|cause| ConfigError::Value {
            place: "current directory".to_owned(),
            expected: format!("one that exists and can be read; {cause}"),
        })?;
        let from = Surroundings { lookup: &|name| std::env::var_os(name), directory, defaults: Options::default() };
        let named = path(&from, "SIMSE_CONFIG").map(|named| from.directory.join(named));
        Ok(named.or_else(|| default_config_file(&from).filter(|usual| usual.exists())))
    }
}

/// The same, with everything from outside handed in.
pub(super) fn resolve(flags: Options, file: Option<PathBuf>, from: &Surroundings) -> Result<Launch, ConfigError> {
    let variables = Options::from_variables(from.lookup)?;
    let (config_file, said) = read_file(file, from)?;
    let others = others(from);
    let origins = origins([&flags, &variables, &said, &from.defaults, &others]);
    let all = flags.over(variables).over(said).over(from.defaults.clone()).over(others);
    if let Some(problem) = problems(&all).into_iter().next() {
        return Err(problem);
    }
    launch_of(all, (config_file, origins), from)
}

/// What a start needs, out of all that was said.
pub(super) fn launch_of(
    all: Options,
    (config_file, origins): (Option<PathBuf>, Vec<(&'static str, Origin)>),
    from: &Surroundings,
) -> Result<Launch, ConfigError> {
    let everything = all.clone();
    let data_directory = match &all.data_dir {
        Some(named) => from.directory.join(named),
        None => default_data_directory(from)?,
    };
    let listen = Listen {
        host: all.host.clone().unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: all.port.unwrap_or(PORT),
        allow_public: all.allow_public.unwrap_or(false),
        auth: !all.no_auth.unwrap_or(false),
        tls: tls(&all, from)?,
        socket: all.socket.as_ref().map(|path| from.directory.join(path)),
        body_bytes_max: all.body_bytes_max.unwrap_or(limit::BODY_BYTES_MAX),
        connections_max: all.connections_max.unwrap_or(limit::CONNECTIONS_MAX),
        head_timeout_ms: all.head_timeout_ms.unwrap_or(limit::HEAD_TIMEOUT_MS),
        body_timeout_ms: all.body_timeout_ms.unwrap_or(limit::BODY_TIMEOUT_MS),
        write_timeout_ms: all.write_timeout_ms.unwrap_or(limit::WRITE_TIMEOUT_MS),
        heartbeat_ms: all.heartbeat_ms.unwrap_or(limit::HEARTBEAT_MS),
        metrics_open: all.metrics_open.unwrap_or(false),
        mcp_fixtures: false,
    };
    Ok(Launch {
        listen,
        shutdown_grace_ms: all.shutdown_grace_ms.unwrap_or(limit::SHUTDOWN_GRACE_MS),
        log_format: all.log_format.unwrap_or_default(),
        log_level: all.log_level.unwrap_or_default(),
        log_filter: all.log_filter.clone(),
        port_file: all.port_file.as_ref().map(|path| from.directory.join(path)),
        settings: settings(all, &data_directory, config_file.as_deref(), from)?,
        config_file,
        data_directory,
        said: everything,
        origins,
    })
}

/// Certificate and key: both or none.
pub(super) fn tls(all: &Options, from: &Surroundings) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    let missing = |name: &str, other: &str| ConfigError::Value {
        place: spellings(name),
        expected: format!("a file, because --{other} is there; TLS needs both"),
    };
    match (&all.tls_cert, &all.tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((from.directory.join(certificate), from.directory.join(key)))),
        (Some(_), None) => Err(missing("tls_key", "tls-cert")),
        (None, Some(_)) => Err(missing("tls_cert", "tls-key")),
    }
}

/// The database that has the sessions, and this server among those that share it.
pub(super) fn database(all: &Options, from: &Surroundings) -> Result<Option<Database>, ConfigError> {
    let store = all.store.clone().unwrap_or_default();
    let said = (all.node_url.clone(), all.node_labels.clone().unwrap_or_default());
    let node = NodeSettings::of(said, &store, Names::Flags)
        .map_err(|(place, expected)| ConfigError::Value { place, expected })?;
    Ok(Database::named(store, || text(from, "PGPASSWORD")).map(|database| Database { node, ..database }))
}

fn settings(
    all: Options,
    data_directory: &Path,
    config_file: Option<&Path>,
    from: &Surroundings,
) -> Result<Settings, ConfigError> {
    let collector = telemetry::collector(&all)?;
    let everything = all.clone();
    let said = all.cwd.is_some();
    let cwd = all.cwd.unwrap_or_else(|| from.directory.clone());
    let mut settings = Settings::new(directory("cwd", &from.directory.join(cwd))?);
    settings.collector = collector;
    settings.storage = Storage::Directory(data_directory.to_owned());
    settings.database = database(&everything, from)?;
    let all_of = |name: &str, paths: Option<Vec<PathBuf>>| -> Result<Vec<PathBuf>, ConfigError> {
        paths.unwrap_or_default().iter().map(|path| directory(name, &from.directory.join(path))).collect()
    };
    settings.allowed_roots = all_of("root", all.root)?;
    // Where none was said, it is where the server was started: then each session names its own.
    if said {
        under_a_root(&settings)?;
    }
    settings.allowed_paths = all_of("allowed_path", all.allowed_path)?;
    let (agents, skills) = (all_of("agents_dir", all.agents_dir)?, all_of("skills_dir", all.skills_dir)?);
    let (commands, homes) = (all_of("commands_dir", all.commands_dir)?, homes::definition_homes(from));
    settings.definitions = DefinitionFolders { agents, skills, commands, homes };
    settings.stale_check = all.stale_check.unwrap_or_default();
    let own = [&all.tls_key, &all.socket].map(|path| path.as_ref().map(|path| from.directory.join(path)));
    let own: Vec<PathBuf> = own.into_iter().flatten().collect();
    let sandbox = SandboxSettings::default();
    settings.sandbox = SandboxSettings {
        mode: all.sandbox.unwrap_or(sandbox.mode),
        network: all.sandbox_network.unwrap_or(sandbox.network),
        // What holds keys or is one; and at the socket this user's programs are the owner.
        hidden: own_places(own, config_file, from),
        settings: config_file.map(Path::to_owned),
    };
    models(&mut settings, &everything, from);
    settings.permissions = default_permissions();
    if let Some(policy) = all.default_policy {
        settings.permissions.default_policy = policy;
    }
    settings.permission_mode = all.permission_mode.unwrap_or_default();
    settings.permissions.rules.extend(all.permissions.unwrap_or_default().rules);
    settings.acp_servers = all.acp_servers.unwrap_or_default();
    settings.agent_types = all.agent_types.unwrap_or_default();
    settings.hooks = all.hooks.unwrap_or_default();
    settings.mcp_servers = all.mcp_servers.unwrap_or_default();
    settings.memory = MemorySettings {
        enabled: all.memory.unwrap_or(settings.memory.enabled),
        embedding_model: all.memory_embedding_model,
        model: all.memory_model,
        similarity_threshold: all.memory_similarity_threshold.unwrap_or(settings.memory.similarity_threshold),
        results: all.memory_max_results.unwrap_or(settings.memory.results),
        entries_max: all.memory_entries_max.unwrap_or(settings.memory.entries_max),
        forget_after_days: all.memory_forget_after_days,
    };
    settings.limits = limits::limits(&everything);
    Ok(settings)
}

/// The models, and where their answers come from.
fn models(settings: &mut Settings, all: &Options, from: &Surroundings) {
    let all = all.clone();
    settings.model = all.model;
    settings.openai = OpenAiSettings {
        base_url: all.openai_base_url,
        api_key: all.openai_api_key,
        images: all.openai_images,
        api: all.openai_api,
    };
    settings.providers = all.providers.unwrap_or_default();
    add_variables(&mut settings.providers, &|name| text(from, name));
    settings.model_fallbacks = all.model_fallbacks.unwrap_or_default();
    settings.small_model = all.small_model;
    settings.compaction_model = all.compaction_model;
    settings.find_local_models = all.find_local_models.unwrap_or(true);
    settings.tape = match (all.replay_models, all.record_models) {
        (Some(path), _) => TapeSettings::Replay(from.directory.join(path), all.replay_speed.unwrap_or(0.0)),
        (None, Some(path)) => TapeSettings::Record(from.directory.join(path)),
        (None, None) => TapeSettings::Off,
    };
}

/// What is wrong with the values.
pub(super) fn problems(all: &Options) -> Vec<ConfigError> {
    let refused = |name: &str, expected: String| ConfigError::Value { place: spellings(name), expected };
    let out = |(name, given): (&'static str, u64)| {
        let bounds = Bounds::of(name).filter(|bounds| !bounds.hold(given))?;
        Some(refused(name, format!("{bounds}; got {given}")))
    };
    let mut problems: Vec<_> = all.whole_numbers().into_iter().filter_map(out).collect();
    if let Some(given) = all.memory_similarity_threshold.filter(|given| !(0.0..=1.0).contains(given)) {
        problems.push(refused("memory_similarity_threshold", format!("a number from 0 to 1; got {given}")));
    }
    if all.memory_model.is_some() && all.memory_embedding_model.is_some() {
        let expected = "nothing, because --memory-embedding-model is there: one model makes the vectors";
        problems.push(refused("memory_model", expected.to_owned()));
    }
    if let Some(given) = all.replay_speed.filter(|given| !(given.is_finite() && *given >= 0.0)) {
        problems.push(refused("replay_speed", format!("a number from 0; got {given}")));
    }
    if all.replay_models.is_some() && all.record_models.is_some() {
        let expected = "nothing, because --replay-models is there: what is replayed is not recorded";
        problems.push(refused("record_models", expected.to_owned()));
    }
    if let Some(Err(error)) = all.openai_base_url.as_ref().map(|url| http::check_url(url.expose())) {
        // It repeats nothing of the address.
        let expected = error.to_string();
        let expected = expected.strip_prefix("expected ").map_or(expected.clone(), str::to_owned);
        problems.push(refused("openai_base_url", expected));
    }
    if all.host.as_deref().is_some_and(str::is_empty) {
        problems.push(refused("host", "a host name or address".to_owned()));
    }
    problems
}

/// The directories that are named and are none.
pub(super) fn missing_directories(all: &Options, from: &Surroundings) -> Vec<ConfigError> {
    let named = |name: &'static str, paths: &[PathBuf]| -> Vec<(&'static str, PathBuf)> {
        paths.iter().map(|path| (name, from.directory.join(path))).collect()
    };
    let mut all_named = named("cwd", all.cwd.as_slice());
    all_named.extend(named("root", all.root.as_deref().unwrap_or_default()));
    all_named.extend(named("allowed_path", all.allowed_path.as_deref().unwrap_or_default()));
    all_named.extend(named("agents_dir", all.agents_dir.as_deref().unwrap_or_default()));
    all_named.extend(named("skills_dir", all.skills_dir.as_deref().unwrap_or_default()));
    all_named.extend(named("commands_dir", all.commands_dir.as_deref().unwrap_or_default()));
    all_named.into_iter().filter_map(|(name, path)| directory(name, &path).err()).collect()
}

/// Whether sessions that name no directory may work in theirs.
fn under_a_root(settings: &Settings) -> Result<(), ConfigError> {
    let (roots, cwd) = (&settings.allowed_roots, &settings.working_directory);
    if roots.is_empty() || roots.iter().any(|root| cwd.starts_with(root)) {
        return Ok(());
    }
    let expected = format!("a directory under a root (--root); got {}, in which no session may work", cwd.display());
    Err(ConfigError::Value { place: spellings("cwd"), expected })
}

/// A directory that is there, without links in its path.
fn directory(name: &str, path: &Path) -> Result<PathBuf, ConfigError> {
    let refused = |problem: String| ConfigError::Value {
        place: spellings(name),
        expected: format!("a directory; {}: {problem}", path.display()),
    };
    let found = std::fs::canonicalize(path).map_err(|cause| refused(cause.to_string()))?;
    if found.is_dir() { Ok(found) } else { Err(refused("not a directory".to_owned())) }
}

/// The file and what it says. A file that was named must be there; the default one need not.
fn read_file(named: Option<PathBuf>, from: &Surroundings) -> Result<(Option<PathBuf>, Options), ConfigError> {
    let named = named.or_else(|| path(from, "SIMSE_CONFIG"));
    let (path, required) = match (named, default_config_file(from)) {
        (Some(named), _) => (from.directory.join(named), true),
        (None, Some(default)) => (default, false),
        (None, None) => return Ok((None, Options::default())),
    };
    let refused = |problem: String| ConfigError::File { path: path.clone(), problem };
    let text = match text_of(&path) {
        Ok(text) => text,
        Err(cause) if !required && cause.kind() == std::io::ErrorKind::NotFound => {
            return Ok((None, Options::default()));
        }
        Err(cause) => return Err(refused(cause.to_string())),
    };
    // The reader is more lenient than the schema: it takes arrays for tables, and numbers that TOML does not know.
    let faults = faults_of(&text);
    if !faults.is_empty() {
        return Err(refused(told(&faults)));
    }
    let said: Options = toml::from_str(&text).map_err(|cause| refused(located(&text, &cause)))?;
    let said = within(said, path.parent().unwrap_or(Path::new("/")));
    Ok((Some(path), said))
}

/// What a file says, its paths taken as relative to its directory.
pub(super) fn within(mut said: Options, base: &Path) -> Options {
    let own = [&mut said.cwd, &mut said.data_dir, &mut said.port_file];
    let tapes = [&mut said.record_models, &mut said.replay_models, &mut said.memory_model];
    let doors = [&mut said.tls_cert, &mut said.tls_key, &mut said.socket];
    for relative in own.into_iter().chain(doors).chain(tapes).flatten() {
        *relative = base.join(&relative);
    }
    let folders = [&mut said.agents_dir, &mut said.skills_dir, &mut said.commands_dir];
    for relative in [&mut said.root, &mut said.allowed_path].into_iter().chain(folders).flatten().flatten() {
        *relative = base.join(&relative);
    }
    for server in said.acp_servers.iter_mut().flatten() {
        server.start_within(base);
    }
    for server in said.mcp_servers.iter_mut().flatten() {
        server.start_within(base);
    }
    for provider in said.providers.iter_mut().flatten() {
        provider.start_within(base);
    }
    said
}

/// What is wrong with a file, in one line.
fn told(faults: &[Fault]) -> String {
    let mut told: Vec<String> = faults.iter().take(FAULTS_TOLD).map(ToString::to_string).collect();
    if let Some(more) = faults.len().checked_sub(FAULTS_TOLD).filter(|more| *more > 0) {
        told.push(format!("and {more} more; `simse config check` says them all"));
    }
    told.join("; ")
}

/// What the parser says, with the line, and never the text of the line: it may hold a key.
fn located(text: &str, cause: &toml::de::Error) -> String {
    let before = cause.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| before.matches('\n').count() + 1);
    line.map_or_else(|| cause.message().to_owned(), |line| format!("line {line}: {}", cause.message()))
}

fn default_config_file(from: &Surroundings) -> Option<PathBuf> {
    let base = path(from, "XDG_CONFIG_HOME").or_else(|| Some(path(from, "HOME")?.join(".config")))?;
    Some(base.join("simse/config.toml"))
}

/// What no program of a session has any business with: these files, and the directories of ours that they or the settings lie
/// in. A file that is hidden by itself comes into sight when somebody saves it anew under its name; one in a hidden
/// directory does not.
fn own_places(files: Vec<PathBuf>, config_file: Option<&Path>, from: &Surroundings) -> Vec<PathBuf> {
    let usual = default_config_file(from).and_then(|file| file.parent().map(Path::to_owned));
    let around = files.iter().map(PathBuf::as_path).chain(config_file).filter_map(Path::parent);
    let mut places: Vec<PathBuf> =
        usual.into_iter().chain(around.filter(|it| is_ours(it)).map(Path::to_owned)).collect();
    places.extend(files);
    places.sort();
    places.dedup();
    places
}

/// Whether a directory holds nothing but what is ours, as far as its name says it. Not one that somebody works in: a checkout of
/// ours has that name, too.
fn is_ours(directory: &Path) -> bool {
    let named = directory.file_name().is_some_and(|name| name == "simse" || name == ".simse");
    named && !directory.join(".git").exists()
}

fn default_data_directory(from: &Surroundings) -> Result<PathBuf, ConfigError> {
    let base = path(from, "XDG_DATA_HOME").or_else(|| Some(path(from, "HOME")?.join(".local/share")));
    Ok(base.ok_or(ConfigError::NoHome)?.join("simse"))
}

/// A variable that names an absolute path; relative ones are no good there and count as absent.
fn path(from: &Surroundings, name: &str) -> Option<PathBuf> {
    let found = PathBuf::from((from.lookup)(name).filter(|value| !value.is_empty())?);
    (found.is_absolute() || name == "SIMSE_CONFIG").then_some(found)
}

pub(super) fn text(from: &Surroundings, name: &str) -> Option<String> {
    let value = (from.lookup)(name)?.into_string().ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::config::McpTransport;
    use crate::protocol::PermissionPolicy;

    fn with(file: Option<&str>, variables: &[(&str, &str)], flags: Options) -> Result<Launch, ConfigError> {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::create_dir(home.path().join("within")).unwrap();
        let named = file.map(|text| {
            let path = home.path().join("simse.toml");
            std::fs::write(&path, text).unwrap();
            path
        });
        let home_text = home.path().as_os_str().to_owned();
        let lookup = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(*value));
            found.or_else(|| (name == "HOME").then(|| home_text.clone()))
        };
        resolve(flags, named, &Surroundings { lookup: &lookup, directory: work, defaults: Options::default() })
    }

    #[test]
    fn flags_win_over_environment_over_file_over_defaults() {
        let flags = || Options { port: Some(1), ..Options::default() };
        let variables = [("SIMSE_PORT", "2")];
        let port = |file, variables, flags| with(file, variables, flags).unwrap().listen.port;
        assert_eq!(port(Some("port = 3"), &variables, flags()), 1);
        assert_eq!(port(Some("port = 3"), &variables, Options::default()), 2);
        assert_eq!(port(Some("port = 3"), &[], Options::default()), 3);
        assert_eq!(port(Some("port = 3"), &[("SIMSE_PORT", "")], Options::default()), 3);
        assert_eq!(port(None, &[], Options::default()), PORT);
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_place() {
        #[rustfmt::skip]
        let table: &[(Option<&str>, &[(&str, &str)], &str)] = &[
            (None, &[("SIMSE_PORT", "70000")], "SIMSE_PORT: expected a whole number from 0 to 65535"),
            (None, &[("SIMSE_NO_AUTH", "yes")], "SIMSE_NO_AUTH: expected true, false, 1 or 0"),
            (None, &[("SIMSE_MAX_ITERATIONS", "0")], "--max-iterations (SIMSE_MAX_ITERATIONS, max_iterations): expected a whole number from 1 to 1000000; got 0"),
            (None, &[("SIMSE_MEMORY_SIMILARITY_THRESHOLD", "1.5")], "SIMSE_MEMORY_SIMILARITY_THRESHOLD, memory_similarity_threshold): expected a number from 0 to 1; got 1.5"),
            (None, &[("SIMSE_MEMORY_SIMILARITY_THRESHOLD", "nan")], "expected a number from 0 to 1; got NaN"),
            (None, &[("SIMSE_MEMORY_SIMILARITY_THRESHOLD", "much")], "SIMSE_MEMORY_SIMILARITY_THRESHOLD: expected a number"),
            (Some("memory_model = 'm'\nmemory_embedding_model = 'e'"), &[], "memory_model): expected nothing, because --memory-embedding-model is there"),
            (Some("memory_entries_max = 0"), &[], "line 1: `memory_entries_max`: expected a whole number from 1 to 100000; got 0"),
            (Some("memory_max_results = 101"), &[], "line 1: `memory_max_results`: expected a whole number from 1 to 100; got 101"),
            (None, &[("SIMSE_MEMORY_MAX_RESULTS", "101")], "memory_max_results): expected a whole number from 1 to 100; got 101"),
            (None, &[("SIMSE_CWD", "nowhere")], "--cwd (SIMSE_CWD, cwd): expected a directory;"),
            (None, &[("SIMSE_ROOT", "nowhere")], "--root (SIMSE_ROOT, root): expected a directory;"),
            (Some("root = ['within']"), &[("SIMSE_CWD", ".")], "--cwd (SIMSE_CWD, cwd): expected a directory under a root (--root); got "),
            (Some("store = 'mysql://u:s3cret@h/d'"), &[], "line 1: `store`: expected sqlite, or an address that begins with postgres://"),
            (None, &[("SIMSE_STORE", "s3cret")], "SIMSE_STORE: expected sqlite, or an address that begins with postgres://"),
            (Some("node_url = 'http://u:s3cret@h'"), &[], "line 1: `node_url`: expected http:// or https://, a host and a port, and nothing behind it; got a string"),
            (None, &[("SIMSE_NODE_URL", "h:4000")], "SIMSE_NODE_URL: expected http:// or https://, a host and a port, and nothing behind it"),
            (None, &[("SIMSE_NODE_URL", "http://h:4000")], "--node-url (SIMSE_NODE_URL, node_url): expected to stand beside a `store` that begins with postgres://"),
            (Some("store = 'sqlite'\nnode_labels = ['a']"), &[], "--node-labels (SIMSE_NODE_LABELS, node_labels): expected to stand beside a `store` that begins with postgres://"),
            (Some("store = 'postgres://h/d'"), &[("SIMSE_NODE_LABELS", "a,b")], "--node-labels (SIMSE_NODE_LABELS, node_labels): expected to stand beside --node-url (SIMSE_NODE_URL, node_url)"),
            (Some("store = 'postgres://h/d'\nnode_url = 'http://h:4000'"), &[("SIMSE_NODE_LABELS", "a,b,a")], "node_labels): expected at most 32 labels, each once, of 1 to 64 letters, digits, `.`, `_` or `-`"),
            (None, &[("SIMSE_NODE_LABELS", "a,,b")], "SIMSE_NODE_LABELS: expected names with commas between them"),
            (Some("node_labels = ['a', 'a b']"), &[], "line 1: `node_labels[1]`: expected 1 to 64 letters, digits, `.`, `_` or `-`; got a string"),
            (Some("data_dir = ''"), &[], "line 1: `data_dir`: expected a text that is not empty; got a string"),
            (Some("root = ['within', '']"), &[], "line 1: `root[1]`: expected a text that is not empty; got a string"),
            (None, &[("SIMSE_ROOT", "within:")], "SIMSE_ROOT: expected paths joined by `:`, none of them empty"),
            (Some("root = ['nowhere']"), &[], "--root (SIMSE_ROOT, root): expected a directory;"),
            (Some("prot = 3"), &[], "line 1: `prot` is not known; did you mean `port`?"),
            (Some("\nport = \"x\""), &[], "line 2: `port`: expected a whole number from 0 to 65535; got a string"),
            (Some("[permissions]\nrulez = []"), &[], "line 2: `permissions.rulez` is not known; did you mean `rules`?"),
            (Some("prot = 1\nport = 'x'\nhost = ''\nmodel = 1\nroot = 1\nno_auth = 1\nsocket = 1"), &[], "line 5: `root`: expected an array; got an integer; and 2 more; `simse"),
            (Some("[[permissions.rules]]\ntool = '*'\npolicy = 'deny'\ncategory = []"), &[], "line 4: `permissions.rules[0].category`: expected at least one"),
            (Some("[[permissions.rules]]\ntool = '*'\npolicy = 'deny'\npattern = ''"), &[], "line 4: `permissions.rules[0].pattern`: expected a text that is not empty"),
            (Some("port = "), &[], "line 1: "),
            (Some("\n[[mcp_servers]]\nname = \"a\""), &[], "line 2: `mcp_servers[0].command`: expected a program"),
            (Some("[[mcp_servers]]\nname = \"a\"\ncomand = \"x\""), &[], "line 3: `mcp_servers[0].comand` is not known; did you mean `command`?"),
            (Some("[[acp_servers]]\nname = \"a\"\ncommand = \"\""), &[], "line 3: `acp_servers[0].command`: expected a program"),
            (None, &[("SIMSE_ACP_SERVERS", "x")], "SIMSE_ACP_SERVERS: expected nothing"),
            (None, &[("SIMSE_MCP_SERVERS", "x")], "SIMSE_MCP_SERVERS: expected nothing"),
            (Some("tls_cert = 'c.pem'"), &[], "--tls-key (SIMSE_TLS_KEY, tls_key): expected a file"),
            (None, &[("SIMSE_TLS_KEY", "k.pem")], "--tls-cert (SIMSE_TLS_CERT, tls_cert): expected a file"),
            (None, &[("SIMSE_HEAD_TIMEOUT_MS", "0")], "head_timeout_ms): expected a whole number from 1 to 31536000000; got 0"),
            (None, &[("SIMSE_CONNECTIONS_MAX", "2305843009213693952")], "connections_max): expected a whole number from 1 to 1000000; got 2305843009213693952"),
            (None, &[("SIMSE_CONNECTIONS_MAX", "99999999999999999999")], "SIMSE_CONNECTIONS_MAX: expected a whole number from 1 to 1000000"),
            (None, &[("SIMSE_INTERRUPT_GRACE_MS", "24001")], "interrupt_grace_ms): expected a whole number from 0 to 24000; got 24001"),
            (None, &[("SIMSE_CONFIG", "missing.toml")], "missing.toml: No such file"),
        ];
        for (file, variables, want) in table {
            let error = with(*file, variables, Options::default()).unwrap_err().to_string();
            assert!(error.contains(want), "{error}\nshould say\n{want}");
        }
    }

    #[test]
    fn every_setting_reaches_its_place() {
        let file = "model = 'openai/x'\nopenai_api_key = 'sk-file'\npermission_timeout_ms = 7\nshutdown_grace_ms = 9\n\
            allow_public = true\nno_auth = true\ndefault_policy = 'deny'\nroot = ['.']\nlog_format = 'json'\n\
            tls_cert = 'c.pem'\ntls_key = 'k.pem'\nsocket = 's'\nwrite_timeout_ms = 11\n\
            memory = true\nmemory_embedding_model = 'e'\nmemory_similarity_threshold = 0.5\nmemory_max_results = 7\n\
            memory_entries_max = 8\nmemory_forget_after_days = 9\n\
            [[permissions.rules]]\ntool = 'bash'\npolicy = 'allow'\n\
            [[acp_servers]]\nname = 'c'\ncommand = 'x'\ncwd = 'e'\nenv = { KEY = 'sk-file' }\n\
            [[mcp_servers]]\nname = 'a'\ncommand = 'x'\ncwd = 'd'\nenv = { KEY = 'sk-file' }\n\
            [[mcp_servers]]\nname = 'b'\nurl = 'http://127.0.0.1:1/'\n";
        let launch = with(Some(file), &[("OPENAI_BASE_URL", " http://127.0.0.1:9/v1 ")], Options::default()).unwrap();
        let settings = &launch.settings;
        assert_eq!(settings.model.as_deref(), Some("openai/x"));
        assert_eq!(settings.openai.base_url.as_ref().map(|url| url.expose()), Some("http://127.0.0.1:9/v1"));
        assert_eq!(settings.openai.api_key.as_ref().unwrap().expose_secret(), "sk-file");
        assert_eq!((settings.limits.permission_timeout_ms, launch.shutdown_grace_ms), (7, 9));
        let memory = MemorySettings {
            enabled: true,
            embedding_model: Some("e".into()),
            model: None,
            similarity_threshold: 0.5,
            results: 7,
            entries_max: 8,
            forget_after_days: Some(9),
        };
        assert_eq!(settings.memory, memory);
        assert!(launch.listen.allow_public && !launch.listen.auth);
        assert_eq!(settings.permissions.default_policy, PermissionPolicy::Deny);
        assert_eq!(settings.permissions.rules.last().unwrap().tool, "bash");
        assert_eq!(settings.allowed_roots.len(), 1);
        assert_eq!(settings.mcp_servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let McpTransport::Stdio { cwd: Some(cwd), .. } = &settings.mcp_servers[0].transport else {
            panic!("a program")
        };
        let agents_cwd = settings.acp_servers[0].cwd.as_ref().unwrap();
        assert!(agents_cwd.is_absolute() && agents_cwd.ends_with("e"), "relative to the file: {agents_cwd:?}");
        assert!(cwd.is_absolute() && cwd.ends_with("d"), "relative to the file: {cwd:?}");
        let (certificate, key) = launch.listen.tls.clone().unwrap();
        for (path, name) in [(&certificate, "c.pem"), (&key, "k.pem"), (launch.listen.socket.as_ref().unwrap(), "s")] {
            assert!(path.is_absolute() && path.ends_with(name), "relative to the file: {path:?}");
        }
        assert!(settings.sandbox.hidden.contains(&key), "no command sees it: {:?}", settings.sandbox.hidden);
        assert_eq!(settings.sandbox.settings, launch.config_file, "nor what was read");
        assert_eq!((launch.listen.head_timeout_ms, launch.listen.write_timeout_ms), (limit::HEAD_TIMEOUT_MS, 11));
        assert_eq!(launch.log_format, LogFormat::Json);
        assert!(launch.data_directory.ends_with(".local/share/simse"));
        assert!(!format!("{launch:?}").contains("sk-file"), "a secret would reach the log");
    }

    #[test]
    fn a_server_has_its_database_alone_or_with_others() {
        let node =
            |file, variables| with(Some(file), variables, Options::default()).unwrap().settings.database.unwrap().node;
        assert_eq!(node("store = 'postgres://h/d'", &[]), None);
        let file = "store = 'postgres://h/d'\nnode_url = 'http://10.0.0.7:4000/'\nnode_labels = ['gpu', 'eu-1']";
        let url = |text: &str| text.parse().unwrap();
        let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
        let want = NodeSettings { url: url("http://10.0.0.7:4000"), labels: labels(&["gpu", "eu-1"]) };
        assert_eq!(node(file, &[]), Some(want));
        let want = NodeSettings { url: url("https://h"), labels: labels(&["a", "b"]) };
        assert_eq!(node(file, &[("SIMSE_NODE_URL", "https://h"), ("SIMSE_NODE_LABELS", "a, b")]), Some(want));
    }

    #[test]
    fn directories_of_ours_are_hidden_as_a_whole_and_others_are_not() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        for directory in ["etc/simse", "home/.simse", "src/simse/.git", "etc/other"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        let own_home = at("home").into_os_string();
        let lookup = |name: &str| (name == "HOME").then(|| own_home.clone());
        let from = Surroundings { lookup: &lookup, directory: home.path().to_owned(), defaults: Options::default() };
        let usual = "home/.config/simse";
        #[rustfmt::skip]
        let table: [(Option<&str>, &[&str], &[&str]); 7] = [
            // (the settings, other files, what is hidden)
            (None, &[], &[usual]),
            (Some("home/.config/simse/config.toml"), &[], &[usual]),
            (Some("etc/simse/config.toml"), &["etc/simse/key.pem"], &[usual, "etc/simse", "etc/simse/key.pem"]),
            (Some("home/.simse/a.toml"), &[], &[usual, "home/.simse"]),
            // Somebody's home, a place of many, and a checkout.
            (Some("home/simse.toml"), &["run/simse.sock"], &[usual, "run/simse.sock"]),
            (Some("etc/other/simse.toml"), &["run/simse/sock"], &[usual, "run/simse", "run/simse/sock"]),
            (Some("src/simse/dev.toml"), &[], &[usual]),
        ];
        for (settings, files, want) in table {
            let settings = settings.map(at);
            let mut want: Vec<PathBuf> = want.iter().map(|path| at(path)).collect();
            want.sort();
            let found = own_places(files.iter().map(|path| at(path)).collect(), settings.as_deref(), &from);
            assert_eq!(found, want, "{settings:?} {files:?}");
        }
    }

    #[test]
    fn the_key_of_the_environment_is_used_and_not_shown() {
        let launch = with(None, &[("OPENAI_API_KEY", "sk-env\n")], Options::default()).unwrap();
        assert_eq!(launch.settings.openai.api_key.as_ref().unwrap().expose_secret(), "sk-env");
        let error = with(Some("openai_api_key = 'sk-file'\nopenai_api_key = 'sk-file'"), &[], Options::default());
        assert!(!error.unwrap_err().to_string().contains("sk-file"));
    }
}
