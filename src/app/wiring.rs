//! Picks the implementations: the store, the models, the tools of a session. The only place that does.

mod definitions;
mod hooks;
mod lore;
mod memory;
mod prompts;
pub(super) mod roles;
mod stores;
mod tools;

pub(super) use definitions::allows;
pub(super) use memory::{embedder_fault, memories};
pub(super) use stores::{database_fault, store};

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::OpenError;
use super::roots::{canonical, held, roots};
use super::tool_servers::{Around, ToolServers};
use crate::base::BoxFuture;
use crate::base::panics::broken;
use crate::base::workspace::{StaleCheck, Workspace};
use crate::config::{AgentCatalog, AgentType, ProviderPrompts, Setting, Settings, Storage};
use crate::hook::Hooks;
use crate::host::{self, BashOptions, ExecOptions, GitOptions, Recording, Sandbox};
use crate::mcp::{Logins, Servers};
use crate::memory::{Memories, Project, memory_tools};
use crate::model::Models;
use crate::permission::Floor;
use crate::protocol::{ApiError, ErrorBody, ErrorCode, SessionId, ToolDefinition};
use crate::session::{AgentRole, Equipment, Workbench};
use crate::store::snapshots::SnapshotStore;
use crate::store::{SessionSettings, StoreError};
use crate::tool::{Registry, SKILL_TOOL, Tool};

use lore::Lore;
use tools::Fitted;

/// The name in the data directory of what turns did to files.
const SNAPSHOT_FILE: &str = "snapshots.db";

/// What nobody may do here: the server's own data is part of it.
pub(super) fn floor(settings: &Settings, data_directory: Option<&Path>) -> Arc<Floor> {
    let protected: Vec<PathBuf> = data_directory.map(|data| vec![data.to_owned(), real(data)]).unwrap_or_default();
    Arc::new(Floor::new(protected, settings.home.clone()))
}

/// Who records what turns do to files. None: there is no data directory, or nothing is to be kept.
pub(super) async fn recording(
    settings: &Settings,
    data_directory: Option<&Path>,
) -> Result<Option<Arc<Recording>>, OpenError> {
    let bytes_max = settings.limits.snapshot_bytes_max;
    let Some(directory) = data_directory.filter(|_| bytes_max > 0).map(Path::to_owned) else { return Ok(None) };
    let roots = roots(settings)?;
    let open = move || {
        let store = SnapshotStore::open(&directory.join(SNAPSHOT_FILE), bytes_max)?;
        Ok::<_, StoreError>(Arc::new(Recording::new(Arc::new(store), &directory).under(roots)))
    };
    let opened = tokio::task::spawn_blocking(open).await;
    let doing = "open the record of changes".to_owned();
    Ok(Some(opened.map_err(|e| StoreError::Io { doing, cause: broken(e) })??))
}

/// Fits sessions out with models, tools and system texts.
pub(super) struct Wardrobe {
    models: Models,
    hooks: hooks::AllHooks,
    working_directory: PathBuf,
    /// Under which sessions work; canonical.
    roots: Vec<PathBuf>,
    allowed_paths: Vec<PathBuf>,
    /// Whether other servers have the same sessions: a directory that is missing here may be there on another machine.
    is_shared: bool,
    stale_check: StaleCheck,
    sandbox: Sandbox,
    /// The embedding program's own tools, instead of ours.
    given: Option<Arc<Registry>>,
    definitions: Vec<ToolDefinition>,
    /// Types of sub-agents.
    agent_types: RwLock<Vec<AgentType>>,
    /// Servers that sessions have tools of.
    servers: ToolServers,
    /// Definitions of their tools that a model is told one by one, in bytes.
    told_bytes_max: usize,
    provider_prompts: ProviderPrompts,
    lore: Arc<Lore>,
    /// Finds agents, skills and commands.
    defined: definitions::Defined,
    memories: Option<Arc<Memories>>,
    /// Records what turns do to files.
    recording: Option<Arc<Recording>>,
    /// What sessions were fitted out with last, newest first.
    fitted: Mutex<VecDeque<Fitted>>,
}

impl Wardrobe {
    /// Made once; fails when the working directory does not exist.
    pub(super) fn new(
        settings: &Settings,
        models: Models,
        (hooks, given): (Arc<dyn Hooks>, Option<Arc<Registry>>),
        data_directory: Option<&Path>,
    ) -> Result<Self, OpenError> {
        let working_directory = canonical(settings.names, Setting::WorkingDirectory, &settings.working_directory)?;
        // The working directory is there, so what cannot be followed is one of the others.
        let unusable = |problem: String| OpenError::Setting {
            field: settings.names.of(Setting::AllowedPaths),
            expected: format!("paths that can be followed; {problem}"),
        };
        let sandbox = Sandbox {
            mode: settings.sandbox.mode,
            network: settings.sandbox.network,
            hidden: hidden(settings, data_directory),
            settings: settings.sandbox.settings.iter().map(|file| real(file)).collect(),
        };
        let workspace = Workspace::lenient(&working_directory, &settings.allowed_paths);
        let workspace = workspace.map_err(|error| unusable(error.to_string()))?;
        let tools = host_tools(dressed(workspace, settings.stale_check, &sandbox), &sandbox);
        let definitions = tools.iter().map(|tool| tool.definition().clone()).collect();
        let idle = Some(settings.limits.agent_idle_ms).filter(|idle| *idle > 0).map(Duration::from_millis);
        let kept = kept_in(&settings.storage);
        let logins = kept.as_deref().map(Logins::within).unwrap_or_default();
        let roots = roots(settings)?;
        let servers =
            Servers::with_logins(&settings.mcp_servers, (&working_directory, &logins), idle).map_err(|error| {
                OpenError::Setting {
                    field: format!("mcp_servers[{}].name", error.at),
                    expected: error.to_string().trim_start_matches("expected ").to_owned(),
                }
            })?;
        let around = Around { directory: working_directory.clone(), roots: roots.clone(), data: kept, idle };
        Ok(Self {
            models,
            hooks: hooks::AllHooks::new(settings, hooks)?,
            working_directory,
            roots,
            allowed_paths: settings.allowed_paths.clone(),
            is_shared: settings.database.as_ref().is_some_and(|database| database.node.is_some()),
            stale_check: settings.stale_check,
            sandbox,
            given,
            definitions,
            agent_types: roles::agent_types(settings)?.into(),
            servers: ToolServers::new(servers, logins, around),
            told_bytes_max: settings.limits.mcp_told_bytes_max,
            provider_prompts: settings.provider_prompts.clone(),
            lore: Arc::new(Lore::new(settings.instructions.clone())),
            defined: definitions::Defined::new(settings),
            memories: None,
            recording: None,
            fitted: Mutex::default(),
        })
    }

    /// The hooks as these settings have them. They count when they are set.
    pub(super) fn hooks_of(&self, settings: &Settings) -> Result<Arc<dyn Hooks>, OpenError> {
        self.hooks.with(settings)
    }

    /// From now on these hooks count, but for turns that have begun.
    pub(super) fn set_hooks(&self, hooks: Arc<dyn Hooks>) {
        self.hooks.set(hooks);
    }

    /// The same with somebody who records what turns do to files.
    pub(super) fn with_recording(self, recording: Option<Arc<Recording>>) -> Self {
        Self { recording, ..self }
    }

    /// Where a session's tools work: the very place that was held against the roots, and not one that is looked up after it.
    fn held_workspace(&self, settings: &SessionSettings) -> Result<Workspace, String> {
        let workspace = self.workspace(settings)?;
        self.hold(settings, &workspace).map_err(|refused| refused.0.message)?;
        Ok(workspace)
    }

    /// Where a session's directories lead now, under a root or not.
    fn workspace(&self, settings: &SessionSettings) -> Result<Workspace, String> {
        let workspace = Workspace::lenient(&settings.working_directory, &self.allowed_paths);
        let workspace = workspace.map_err(|error| error.to_string())?;
        // What is protected stays so: a directory more is nobody's way into the server's own data.
        let workspace = if self.is_shared { workspace.found() } else { workspace };
        let workspace = dressed(workspace, self.stale_check, &self.sandbox);
        Ok(workspace.beside(settings.additional_directories.iter().map(PathBuf::as_path)))
    }

    /// Whether a session may work where it does.
    fn hold(&self, settings: &SessionSettings, workspace: &Workspace) -> Result<(), ApiError> {
        let real = workspace.working_directory();
        held(&self.roots, "workingDirectory", (&settings.working_directory, real))?;
        self.hold_apart("workingDirectory", real)?;
        for (at, directory) in settings.additional_directories.iter().enumerate() {
            let field = format!("additionalDirectories[{at}]");
            self.hold_further(&field, directory)?;
        }
        Ok(())
    }

    /// Whether a session may work in a directory beside its own, which was without links when it was named.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with that field.
    pub(super) fn hold_further(&self, field: &str, directory: &Path) -> Result<(), ApiError> {
        // One that is gone has nothing in it, and may come back: `gone` tells of it.
        let real = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        held(&self.roots, field, (directory, &real))?;
        if real != directory {
            let leads = format!("{}, which leads to {}", directory.display(), real.display());
            return Err(ApiError::unfit(field, "a directory that is no link and lies behind none", leads));
        }
        if real.exists() && !real.is_dir() {
            let came = format!("{}, which is none", directory.display());
            return Err(ApiError::unfit(field, "an existing directory", came));
        }
        self.hold_apart(field, &real)
    }

    /// Nobody works in what is the server's own. Without links.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with that field.
    pub(super) fn hold_apart(&self, field: &str, real: &Path) -> Result<(), ApiError> {
        if self.sandbox.hidden.iter().any(|place| real.starts_with(place)) {
            let expected = "a directory that is not in the server's own data";
            return Err(ApiError::unfit(field, expected, real.display()));
        }
        Ok(())
    }

    /// What is to be told of a session's directories: those beside its own that are not there now.
    fn gone(settings: &SessionSettings) -> Vec<String> {
        let all = settings.additional_directories.iter().enumerate().filter(|(_, directory)| !directory.exists());
        all.map(|(at, directory)| format!("`additionalDirectories[{at}]`: {} is not there", directory.display()))
            .collect()
    }

    /// Who records what turns do to files.
    pub(super) fn recording(&self) -> Option<&Arc<Recording>> {
        self.recording.as_ref()
    }

    /// Sets of tools that are kept for the sessions that will use the same.
    pub(super) fn fitted(&self) -> usize {
        self.fitted.lock().len()
    }

    /// The same with a long-term memory.
    pub(super) fn with_memories(self, memories: Option<Arc<Memories>>) -> Self {
        Self { memories, ..self }
    }

    /// The tools of the memory of sessions that work in this directory. A program's own tool of such a name stays.
    fn memory_tools(&self, directory: &Path) -> Vec<Arc<dyn Tool>> {
        let Some(memories) = &self.memories else { return Vec::new() };
        let mut tools = memory_tools(&memories.of(Project::Around(directory.to_owned())));
        let given = self.given.as_ref();
        tools.retain(|tool| given.is_none_or(|given| given.get(&tool.definition().name).is_none()));
        tools
    }

    /// Where sessions work that name no directory; canonical.
    pub(super) fn working_directory(&self) -> &Path {
        &self.working_directory
    }

    /// The servers that sessions have tools of.
    pub(super) fn servers(&self) -> &ToolServers {
        &self.servers
    }

    /// The tools that sessions have now: a tool server adds its own once it is connected.
    pub(super) fn definitions(&self) -> Vec<ToolDefinition> {
        let mut definitions = match &self.given {
            Some(registry) => registry.definitions().to_vec(),
            None => self.definitions.clone(),
        };
        definitions.extend(self.defined.skill_definition());
        let more =
            self.memory_tools(&self.working_directory).into_iter().chain(self.servers.shared().connected_tools());
        definitions.extend(more.map(|tool| tool.definition().clone()));
        definitions
    }

    /// Whether a session may name this tool, which is not there: its server is not connected.
    pub(super) fn may_have(&self, tool: &str) -> bool {
        tool == SKILL_TOOL || self.servers.shared().may_have(tool)
    }
}

/// Where is kept what the user decided for all servers of a data directory, whichever of its numbered ones this one has.
fn kept_in(storage: &Storage) -> Option<PathBuf> {
    match storage {
        Storage::Memory => None,
        Storage::Directory(directory) | Storage::FirstFreeUnder(directory) => Some(directory.clone()),
    }
}

/// Ends the changes of files that a crash interrupted, wherever sessions may work.
pub(super) async fn recover_changes(roots: &[PathBuf], allowed: &[PathBuf]) {
    let places: Vec<Workspace> = roots.iter().filter_map(|root| Workspace::lenient(root, allowed).ok()).collect();
    let work = move || places.iter().map(host::recover_changes).sum::<usize>();
    let ended = tokio::task::spawn_blocking(work).await.unwrap_or_default();
    if ended > 0 {
        tracing::warn!(ended, "changes of files that were interrupted by a crash were brought to their end");
    }
}

/// What the programs of sessions may not see.
fn hidden(settings: &Settings, data_directory: Option<&Path>) -> Vec<PathBuf> {
    data_directory.into_iter().chain(settings.sandbox.hidden.iter().map(PathBuf::as_path)).map(real).collect()
}

/// The same place without links: what lies behind one is what must be hidden. What is not there yet, as a socket is before the
/// server listens, has its directory's place.
fn real(place: &Path) -> PathBuf {
    let beside = || Some(std::fs::canonicalize(place.parent()?).ok()?.join(place.file_name()?));
    std::fs::canonicalize(place).ok().or_else(beside).unwrap_or_else(|| place.to_owned())
}

/// A workspace as sessions have it.
fn dressed(workspace: Workspace, stale_check: StaleCheck, sandbox: &Sandbox) -> Workspace {
    workspace.with_stale_check(stale_check).without(&sandbox.hidden).keeping(&sandbox.settings)
}

/// The names of our own tools: for files, commands and git.
pub(super) fn host_tool_names(settings: &Settings) -> Vec<String> {
    let workspace = Workspace::lenient(&settings.working_directory, &settings.allowed_paths);
    // Where that cannot be followed nothing is opened at all.
    let tools = workspace.map(|workspace| host_tools(workspace, &Sandbox::default())).unwrap_or_default();
    tools.iter().map(|tool| tool.definition().name.clone()).collect()
}

fn host_tools(workspace: Workspace, sandbox: &Sandbox) -> Vec<Arc<dyn Tool>> {
    let workspace = Arc::new(workspace);
    let mut tools = host::filesystem_tools(&workspace);
    tools.push(host::bash_tool(&workspace, BashOptions { sandbox: sandbox.clone(), ..BashOptions::default() }));
    tools.extend(host::exec_tools(&workspace, ExecOptions { sandbox: sandbox.clone(), ..ExecOptions::default() }));
    tools.extend(host::git_tools(&workspace, &GitOptions { sandbox: sandbox.clone() }));
    tools.extend(host::subagent_tools());
    tools.extend(host::sharing_tools(&workspace));
    tools.push(Arc::new(host::ReadPruned));
    tools
}

impl Workbench for Wardrobe {
    fn place(&self, settings: &SessionSettings) -> Result<(), ApiError> {
        // One that cannot be followed has no tools, and one that is gone may come back.
        let Ok(workspace) = self.workspace(settings) else { return Ok(()) };
        self.hold(settings, &workspace)
    }

    fn hooks(&self) -> Arc<dyn Hooks> {
        self.hooks.now()
    }

    fn agents<'a>(&'a self, directory: &'a Path) -> BoxFuture<'a, Arc<AgentCatalog>> {
        Box::pin(self.agent_catalog(directory))
    }

    fn grounds(&self, settings: &SessionSettings) -> Result<host::Grounds, ApiError> {
        let workspace = Arc::new(self.held_workspace(settings).map_err(ApiError::conflict)?);
        Ok(host::Grounds { workspace, options: GitOptions { sandbox: self.sandbox.clone() } })
    }

    fn role(&self, _settings: &SessionSettings, name: &str) -> Option<AgentRole> {
        self.role_of_type(name)
    }

    fn roles(&self, _settings: &SessionSettings) -> Vec<String> {
        self.type_names()
    }

    fn check_model(&self, model: &str) -> Result<(), ApiError> {
        self.knows_model(model)
    }

    fn changes(&self, settings: &SessionSettings) -> Option<(Arc<Recording>, Workspace)> {
        let recording = self.recording.as_ref()?;
        Some((Arc::clone(recording), self.workspace(settings).ok()?))
    }

    fn equip<'a>(
        &'a self,
        session: &'a SessionId,
        settings: &'a SessionSettings,
    ) -> BoxFuture<'a, Result<Equipment, ErrorBody>> {
        Box::pin(async move {
            self.place(settings).map_err(|refused| refused.0)?;
            let model = self.models.get(&settings.model).ok_or_else(|| ErrorBody {
                code: ErrorCode::UpstreamUnavailable,
                message: format!("the model `{}` is no longer configured", settings.model),
                details: None,
            })?;
            let agent = self.definition(settings).await?;
            let own = agent.as_deref();
            let prompt = async {
                if model.is_agent() {
                    self.agent_prompt(settings, own)
                } else {
                    self.system_prompt(session, (settings, own)).await
                }
            };
            let tops = std::iter::once(&settings.working_directory).chain(&settings.additional_directories);
            // An agent reads instruction files itself.
            let guide = self.lore.guide(tops.cloned().collect()).filter(|_| !model.is_agent());
            let (mut system, registry) = tokio::join!(prompt, self.registry(session, (settings, agent.as_ref())));
            if !model.is_agent() && registry.get(SKILL_TOOL).is_some() {
                system.push_str(&self.skills_told(settings, own).await);
            }
            // Tool servers were waited for, and a link may lie there since.
            self.place(settings).map_err(|refused| refused.0)?;
            let fallbacks = self.models.fallbacks_of(&model, settings.model_fallbacks.as_deref());
            let models = self.models.clone();
            // An agent that starts them itself has all of their tools: not where the session has some of them only.
            let whole = settings.tools.is_none() && settings.without_tools.is_empty() && agent.is_none();
            let agent_servers = if model.is_agent() && !model.only_carries() && whole {
                self.servers.told(session, &settings.working_directory).await
            } else {
                Arc::default()
            };
            let hooks = self.hooks.now();
            let notices = Self::gone(settings);
            let mode = definitions::mode(settings, agent.as_deref(), model.as_ref());
            Ok(Equipment {
                model,
                fallbacks,
                system,
                registry,
                hooks,
                models,
                agent_servers,
                guide,
                agent,
                mode,
                notices,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_has_its_real_place_also_before_it_is_there() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().canonicalize().unwrap().join(path);
        for directory in ["work", "run", "conf/simse", "data"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        std::os::unix::fs::symlink(at("run"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("conf/simse"), at("work/conf")).unwrap();
        let mut settings = Settings::new(at("work"));
        settings.sandbox.hidden = vec![at("link/simse.sock"), at("work/conf"), at("none/there")];
        let found = hidden(&settings, Some(&at("data")));
        assert_eq!(found, [at("data"), at("run/simse.sock"), at("conf/simse"), at("none/there")]);
    }

    #[test]
    fn a_settings_file_in_a_root_is_kept_and_a_directory_of_ours_is_hidden() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join(".config/simse")).unwrap();
        let sandbox = Sandbox {
            hidden: vec![home.join(".config/simse")],
            settings: vec![home.join("deep/simse.toml")],
            ..Sandbox::default()
        };
        let workspace = dressed(Workspace::new(&home, &[]).unwrap(), StaleCheck::default(), &sandbox);
        let table = [("deep/simse.toml", true), ("deep", true), ("deep/other.toml", false), ("simse.toml", false)];
        for (path, want) in table {
            assert_eq!(workspace.keeps(&workspace.resolve(path).unwrap()), want, "{path}");
        }
        assert!(workspace.resolve(".config/simse/config.toml").is_err());
    }
}
