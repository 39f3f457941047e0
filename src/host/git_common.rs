//! What the git tools share: how git is run, and how its answer is told.
//!
//! git runs in the working directory, without pager, prompt and editor, and within a time limit. What a
//! repository's own configuration could make a looking command run is switched off (see `git_hostile`): looking is
//! allowed without a question, and must not run anything.
//! An argument that comes from a model never reaches git in the place of an option. Where the sandbox is on, git and what it
//! starts run in it: looking writes nowhere, and only talking to another repository has the network.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::confine::{Reach, Sandbox};
use super::fs_common::{blocking, definition, refused};
use super::git_hostile::{LIST, LOOKING, LOOKING_VARIABLES, WORKTREE, overrides, own_keys, programs, way_overrides};
use super::git_place::{Shared, repository, shared};
use super::git_stray::Stray;
use crate::base::panics::broken;
use crate::base::process::{Confinement, Ending, Invocation, RunLimits, environment, run};
use crate::base::sandbox::denial;
use crate::base::workspace::Workspace;
use crate::base::{limit, text};
use crate::config::inherited_environment;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{ToolContext, ToolError, ToolOutput};

/// Before every command.
const OPTIONS: [&str; 27] = [
    "--no-pager",
    "-c",
    "color.ui=never",
    "-c",
    "color.diff=never",
    "-c",
    "color.status=never",
    "-c",
    "color.branch=never",
    "-c",
    "column.ui=never",
    "-c",
    "column.branch=never",
    "-c",
    "column.status=never",
    "-c",
    "core.quotePath=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "advice.detachedHead=false",
    // Whatever has come into the tree as a submodule is another repository, and runs what that says.
    "-c",
    "submodule.recurse=false",
    "-c",
    "fetch.recurseSubmodules=false",
    "-c",
    "push.recurseSubmodules=no",
];

/// How the git tools run git.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitOptions {
    /// What git and all that it starts (hooks, filters) are held to.
    pub sandbox: Sandbox,
}

/// git in a workspace.
#[derive(Debug, Clone)]
pub(super) struct Git {
    pub(super) workspace: Arc<Workspace>,
    sandbox: Sandbox,
    /// Variables of commands that nobody was asked about.
    alone: Option<BTreeMap<String, String>>,
}

/// How much a command may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It looks.
    Look,
    /// It records what is in the files: the repository changes, its configuration does not.
    Record,
    /// It changes files all over the working tree, and perhaps the configuration.
    Rework,
    /// It talks to another repository.
    Remote,
}

/// One start of git.
struct Started {
    /// None: it reads configuration, and runs nothing whatever that says.
    effect: Option<Effect>,
    /// Its time, and the bytes of output that are kept.
    bounds: (Duration, usize),
}

/// What git said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// Its exit code.
    pub(super) code: i32,
    /// stdout and stderr.
    pub(super) text: String,
}

impl Said {
    /// Its text, or its reason as a failure.
    pub(super) fn success(self) -> Result<ToolOutput, ToolError> {
        match (self.code, self.text.trim()) {
            (0, _) => Ok(self.text.into()),
            (code, "") => Err(ToolError::failed(format!("git ended with exit code {code} and said nothing"))),
            (_, reason) => Err(ToolError::failed(reason)),
        }
    }
}

/// The files of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pathspecs {
    specs: Vec<String>,
    /// They mean themselves; else they have signs in front that say so.
    literal: bool,
}

impl Pathspecs {
    /// The same without these files, which are named from the repository's top.
    pub(super) fn without(self, hidden: &[String]) -> Self {
        if hidden.is_empty() {
            return self;
        }
        let mut specs = self.signed().specs;
        if specs.is_empty() {
            specs.push(":/".to_owned());
        }
        specs.extend(hidden.iter().map(|name| format!(":(top,exclude,literal){name}")));
        Self { specs, literal: false }
    }

    /// The same with signs, for a command that counts on patterns itself, as `stash` does.
    pub(super) fn signed(self) -> Self {
        let sign = |spec: String| if self.literal { format!(":(literal){spec}") } else { spec };
        Self { specs: self.specs.into_iter().map(sign).collect(), literal: false }
    }
}

impl Git {
    /// git for a workspace, held to nothing.
    pub(super) fn new(workspace: Arc<Workspace>) -> Self {
        Self { workspace, sandbox: Sandbox::default(), alone: None }
    }

    /// The same, held to what the options say.
    pub(super) fn with(self, options: GitOptions) -> Self {
        Self { sandbox: options.sandbox, ..self }
    }

    /// The same for what nobody was asked about: no filter of the repository's own runs, and git has these variables.
    pub(super) fn alone(self, variables: BTreeMap<String, String>) -> Self {
        Self { alone: Some(variables), ..self }
    }

    /// `path`, or else the whole of `all` (`.` or the top, `:/`), without the server's own data. Nothing where that is what
    /// the command works on anyway.
    pub(super) fn pathspecs(&self, path: Option<&str>, all: Option<&str>) -> Pathspecs {
        let own = self.workspace.protected_below(self.workspace.working_directory());
        let own: Vec<String> = own.map(|path| format!(":(exclude,literal){}", path.display())).collect();
        if own.is_empty() {
            let specs = path.or(all.filter(|all| *all == ".")).map(str::to_owned);
            return Pathspecs { specs: specs.into_iter().collect(), literal: true };
        }
        let wanted = path.map_or_else(|| all.unwrap_or(":/").to_owned(), |path| format!(":(literal){path}"));
        Pathspecs { specs: [wanted].into_iter().chain(own).collect(), literal: false }
    }

    /// The names that a looking command says, each ended by a NUL.
    pub(super) async fn names(
        &self,
        (arguments, paths): (&[&str], &Pathspecs),
        context: &ToolContext,
    ) -> Result<Vec<String>, ToolError> {
        let specs = std::iter::once("--").chain(paths.specs.iter().map(String::as_str));
        let all: Vec<&str> = arguments.iter().copied().chain(specs).collect();
        let literal: &[&str] = if paths.literal { &["--literal-pathspecs"] } else { &[] };
        let all: Vec<&str> = literal.iter().copied().chain(all).collect();
        let text = self.told(&all, context).await?;
        Ok(text
            .split('\0')
            .map(|name| name.trim_start_matches('\n'))
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// The lines that a looking command says.
    pub(super) async fn lines(&self, arguments: &[&str], context: &ToolContext) -> Result<Vec<String>, ToolError> {
        Ok(self.told(arguments, context).await?.lines().map(str::to_owned).collect())
    }

    /// The whole of what a looking command says.
    async fn told(&self, arguments: &[&str], context: &ToolContext) -> Result<String, ToolError> {
        let bounds = (Duration::from_millis(limit::GIT_TIMEOUT_MS), limit::GIT_CONFIG_BYTES_MAX);
        let mut variables = quiet();
        variables.extend(overrides(&own_keys(&self.configuration(context).await?)));
        let started = Started { effect: Some(Effect::Look), bounds };
        let (said, cut) = self.start(started, (arguments, variables), context).await?;
        if cut {
            return Err(ToolError::failed("it names more files than can be held against the rules: name a `path`"));
        }
        said.success().map(|output| output.text)
    }

    /// Runs git to its end. `arguments` begin with the command; whatever came from a model stands behind `--`,
    /// is joined to its option, or went through [`name`].
    pub(super) async fn run(
        &self,
        effect: Effect,
        arguments: &[&str],
        context: &ToolContext,
    ) -> Result<Said, ToolError> {
        // A path means itself. Not for commands without paths: git's own `stash` counts on patterns.
        self.run_plain(effect, (arguments, arguments.contains(&"--")), context).await
    }

    /// The same on these files.
    pub(super) async fn run_on(
        &self,
        effect: Effect,
        (arguments, paths): (&[&str], &Pathspecs),
        context: &ToolContext,
    ) -> Result<Said, ToolError> {
        if paths.specs.is_empty() {
            return self.run_plain(effect, (arguments, false), context).await;
        }
        let specs = std::iter::once("--").chain(paths.specs.iter().map(String::as_str));
        let all: Vec<&str> = arguments.iter().copied().chain(specs).collect();
        self.run_plain(effect, (&all, paths.literal), context).await
    }

    async fn run_plain(
        &self,
        effect: Effect,
        (arguments, literal): (&[&str], bool),
        context: &ToolContext,
    ) -> Result<Said, ToolError> {
        let timeout_ms = match effect {
            Effect::Look => limit::GIT_TIMEOUT_MS,
            // A commit may run the tests, a push may be long.
            Effect::Record | Effect::Rework | Effect::Remote => limit::GIT_REMOTE_TIMEOUT_MS,
        };
        let workspace = Arc::clone(&self.workspace);
        blocking(move || workspace.is_there().map_err(|e| refused(&e))).await?;
        let mut variables = quiet();
        let listed = self.configuration(context).await?;
        let keys = own_keys(&listed);
        let looks = effect == Effect::Look || self.alone.is_some();
        variables.extend(if looks { overrides(&keys) } else { way_overrides(&keys) });
        variables.extend(self.alone.iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        if keys.contains(&WORKTREE) {
            variables.insert("GIT_WORK_TREE".to_owned(), self.own_tree().await?);
        }
        let bounds = (Duration::from_millis(timeout_ms), limit::PROCESS_OUTPUT_BYTES_MAX);
        let literal: &[&str] = if literal { &["--literal-pathspecs"] } else { &[] };
        let all: Vec<&str> = literal.iter().chain(arguments).copied().collect();
        let started = Started { effect: Some(effect), bounds };
        let (mut said, _) = self.start(started, (&all, variables), context).await?;
        if said.code >= 128 && arguments.first() == Some(&"diff") {
            // Outside of a repository it takes itself for a program of two files, and explains that.
            let look = ["rev-parse", "--git-dir"];
            let (found, _) = self.start(Started { effect: None, bounds }, (&look, quiet()), context).await?;
            said = if found.code == 0 { said } else { found };
        }
        if said.code != 0 && effect != Effect::Look {
            said.text += &self.sandbox.explain("this tool", denial(&said.text, false), &self.workspace);
        }
        Ok(said)
    }

    /// The working tree that lies about the working directory, for a repository whose configuration names one: followed, that would
    /// lead the tools wherever it likes.
    async fn own_tree(&self) -> Result<String, ToolError> {
        let directory = self.workspace.working_directory().to_owned();
        let found = tokio::task::spawn_blocking(move || repository(&directory)).await.ok().flatten();
        found.and_then(|found| found.top.to_str().map(str::to_owned)).ok_or_else(|| {
            ToolError::failed(
                "the repository's configuration puts its working tree elsewhere (core.worktree): take that out",
            )
        })
    }

    /// What a command is held to.
    async fn confinement(
        &self,
        effect: Effect,
        environment: &[(OsString, OsString)],
        context: &ToolContext,
    ) -> Result<Option<Confinement>, ToolError> {
        if self.sandbox.level().is_none() {
            return Ok(None);
        }
        let mut reach = Reach { looks: effect == Effect::Look, ..Reach::default() };
        if effect != Effect::Look {
            // The repository may lie above the roots; without it nothing can be recorded.
            let directory = self.workspace.working_directory().to_owned();
            let found = tokio::task::spawn_blocking(move || repository(&directory)).await.ok().flatten();
            let whole = effect != Effect::Record;
            if let Some(found) = found {
                let places = found.directories.into_iter().chain(whole.then_some(found.top));
                reach.places = places.filter(|place| !self.workspace.contains(place)).collect();
            }
            reach.git_settings = whole;
            reach.network = effect == Effect::Remote;
        }
        self.sandbox.confine((&self.workspace, &context.scope), environment, reach).await
    }

    /// The names of the configuration, with where they come from. Reading them runs nothing.
    async fn configuration(&self, context: &ToolContext) -> Result<String, ToolError> {
        let bounds = (Duration::from_millis(limit::GIT_TIMEOUT_MS), limit::GIT_CONFIG_BYTES_MAX);
        let (said, cut) = self.start(Started { effect: None, bounds }, (&LIST, quiet()), context).await?;
        if cut {
            return Err(ToolError::failed(format!(
                "the repository's configuration is longer than {} bytes, so that it cannot be told what it runs",
                limit::GIT_CONFIG_BYTES_MAX
            )));
        }
        match said.code {
            // git goes on after such a line, and tells it each time: an included file may be anything.
            0 if own_keys(&said.text).iter().any(|key| !key.contains('.')) => Err(ToolError::failed(
                "the repository's configuration, or a file that it includes, has a line in no section: take it out",
            )),
            0 => Ok(said.text),
            // What stands in a file that the configuration includes is no part of the reason.
            _ => Err(ToolError::failed(fatal(&said.text))),
        }
    }

    /// What a changing command may start of the repository's own, for the person who is asked.
    pub(super) async fn programs(&self, context: &ToolContext) -> Option<Value> {
        let listed = self.configuration(context).await.ok()?;
        let look = ["rev-parse", "--git-common-dir"];
        let bounds = (Duration::from_millis(limit::GIT_TIMEOUT_MS), limit::PROCESS_OUTPUT_BYTES_MAX);
        let (said, _) = self.start(Started { effect: None, bounds }, (&look, quiet()), context).await.ok()?;
        let directory = self.workspace.working_directory().join(said.text.trim_end_matches('\n'));
        let find = move || programs(&own_keys(&listed), &directory);
        tokio::task::spawn_blocking(find).await.ok().flatten()
    }

    /// The variable that holds git to the repository that is there now, whatever a program puts into that meanwhile.
    ///
    /// Not for a command that changes something where nothing of the session runs in a sandbox: hooks have the variable too, and what they do
    /// in other repositories would go wrong.
    async fn hold(&self, looks: bool, context: &ToolContext) -> Result<Option<(OsString, OsString)>, ToolError> {
        let workspace = Arc::clone(&self.workspace);
        let caged = context.scope.loopback.get().cloned().flatten();
        let holds = looks || caged.is_some() || self.sandbox.level().is_some();
        let look = move || match (shared(&workspace), caged) {
            (Some(Shared::Led(_)), Some(caged)) => {
                caged.tidy();
                shared(&workspace)
            }
            (found, _) => found,
        };
        match tokio::task::spawn_blocking(look).await.map_err(|e| ToolError::failed(broken(e)))? {
            Some(Shared::In(place)) if holds => Ok(Some(("GIT_COMMON_DIR".into(), place.into_os_string()))),
            Some(Shared::In(_)) | None => Ok(None),
            Some(Shared::Led(file)) => Err(ToolError::failed(format!(
                "{} leads git to another repository, and git did not put it there: see what made it, and take it away",
                file.display()
            ))),
            Some(Shared::Astray(Stray { part, to })) => Err(ToolError::failed(format!(
                "{} leads git out of the working directory, to {}, which does not lead back here as that of a linked worktree or \
                 a submodule does: take it away, or let that place be among the allowed paths",
                part.display(),
                to.display()
            ))),
        }
    }

    /// Runs git once. True: its output was cut.
    async fn start(
        &self,
        Started { effect, bounds: (timeout, output_bytes_max) }: Started,
        (arguments, mut variables): (&[&str], BTreeMap<String, String>),
        context: &ToolContext,
    ) -> Result<(Said, bool), ToolError> {
        let looks = matches!(effect, None | Some(Effect::Look));
        let looking: &[&str] = if looks { &LOOKING } else { &[] };
        if looks {
            variables.extend(LOOKING_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let mut invocation = Invocation {
            program: "git".into(),
            arguments: OPTIONS.iter().chain(looking).chain(arguments).map(OsString::from).collect(),
            directory: self.workspace.working_directory().to_owned(),
            environment: environment(inherited_environment(), &variables),
            confinement: None,
        };
        invocation.environment.extend(self.hold(looks, context).await?);
        if let Some(effect) = effect {
            invocation.confinement = self.confinement(effect, &invocation.environment, context).await?;
        }
        let limits = RunLimits { timeout, output_bytes_max };
        let finished = run(&invocation, limits, &context.cancel).await.map_err(|e| ToolError::failed(e.to_string()))?;
        let (text, cut) = (finished.output.text(), finished.output.is_cut());
        match finished.ending {
            Ending::Exited(code) => Ok((Said { code, text }, cut)),
            Ending::Signalled(signal) => Ok((Said { code: 128 + signal, text }, cut)),
            Ending::Cancelled => Err(ToolError::Aborted),
            Ending::TimedOut => Err(ToolError::failed(format!(
                "git {} was stopped after {} ms. {}",
                arguments.iter().find(|argument| !argument.starts_with("--")).unwrap_or(&""),
                timeout.as_millis(),
                text.trim()
            ))),
        }
    }
}

/// Why git ended, without what it says of single lines of files.
fn fatal(said: &str) -> String {
    let reasons: Vec<&str> = said.lines().filter(|line| line.starts_with("fatal: ")).collect();
    if reasons.is_empty() { "git cannot read its configuration".to_owned() } else { reasons.join("\n") }
}

/// A revision: nothing that git could take for an option. HEAD when none is given.
pub(super) fn revision(argument: &str, given: Option<String>) -> Result<String, ToolError> {
    let given = given.unwrap_or_else(|| "HEAD".to_owned());
    if given.is_empty() || given.starts_with('-') || given.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let shown = text::head(&given, 80);
        return Err(ToolError::BadArguments(format!(
            "`{argument}`: expected a revision such as HEAD~1, got {shown:?}"
        )));
    }
    Ok(given)
}

/// So that nothing asks, and the words are the same everywhere.
fn quiet() -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = [
        ("GIT_EDITOR", ":"),
        ("GIT_SEQUENCE_EDITOR", ":"),
        ("GIT_MERGE_AUTOEDIT", "no"),
        ("GIT_ASKPASS", ""),
        ("LC_ALL", "C.UTF-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if !inherited_environment().iter().any(|(name, _)| name == "GIT_SSH_COMMAND" || name == "GIT_SSH") {
        variables.insert("GIT_SSH_COMMAND".to_owned(), "ssh -oBatchMode=yes".to_owned());
    }
    variables
}

/// A definition as rules know it for a call that only looks.
pub(super) fn looking(definition: &ToolDefinition) -> ToolDefinition {
    let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    ToolDefinition { category: Some(ToolCategory::Read), annotations: Some(annotations), ..definition.clone() }
}

/// A definition whose output is cut by bytes already.
pub(super) fn define(name: &str, category: ToolCategory, description: &str, parameters: Value) -> ToolDefinition {
    ToolDefinition {
        timeout_ms: Some(limit::GIT_REMOTE_TIMEOUT_MS + 60_000),
        max_output_chars: Some(0),
        ..definition(name, category, description, parameters)
    }
}

/// The name of a branch or of a remote: nothing that git could take for an option, a range or an address.
pub(super) fn name(argument: &str, given: String, what: &str) -> Result<String, ToolError> {
    let odd =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, ':' | '+' | '^' | '~' | '?' | '*' | '[' | '\\');
    if given.is_empty() || given.starts_with(['-', '.', '/']) || given.contains(odd) || given.contains("..") {
        let shown = text::head(&given, 80);
        return Err(ToolError::BadArguments(format!("`{argument}`: expected the name of a {what}, got {shown:?}")));
    }
    Ok(given)
}

#[cfg(test)]
pub(super) mod testing {
    //! A repository to try the tools on.

    use std::process::Command;

    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::tool::Tool;

    pub(in crate::host) struct Repository {
        pub(in crate::host) directory: tempfile::TempDir,
        pub(in crate::host) context: ToolContext,
    }

    impl Repository {
        /// One commit with the file `a`, on the branch `main`.
        pub(in crate::host) fn new() -> Self {
            let repository = Self::empty();
            repository.write("a", "one\n");
            repository.git(&["add", "a"]);
            repository.git(&["commit", "-qm", "first"]);
            repository
        }

        pub(in crate::host) fn empty() -> Self {
            let context = ToolContext {
                call_id: "c".into(),
                session: None,
                cancel: CancellationToken::new(),
                scope: Arc::default(),
                events: Default::default(),
                veil: None,
                previewed: Default::default(),
                judged: Default::default(),
                clients: Default::default(),
            };
            let repository = Self { directory: tempfile::tempdir().unwrap(), context };
            repository.git(&["init", "-q", "-b", "main"]);
            for (key, value) in [("user.name", "T"), ("user.email", "t@example.org"), ("commit.gpgsign", "false")] {
                repository.git(&["config", key, value]);
            }
            repository
        }

        pub(in crate::host) fn workspace(&self) -> Arc<Workspace> {
            Arc::new(Workspace::new(self.directory.path(), &[]).unwrap())
        }

        pub(in crate::host) fn write(&self, path: &str, content: &str) {
            let path = self.directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        pub(in crate::host) fn read(&self, path: &str) -> String {
            std::fs::read_to_string(self.directory.path().join(path)).unwrap()
        }

        /// Real git; what it printed.
        pub(in crate::host) fn git(&self, arguments: &[&str]) -> String {
            let output = Command::new("git")
                .args(arguments)
                .current_dir(self.directory.path())
                .env_remove("GIT_DIR")
                .env_remove("GIT_INDEX_FILE")
                .output()
                .unwrap();
            assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        }

        pub(in crate::host) async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<String, String> {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            tool.run(arguments, &self.context).await.map(|output| output.text).map_err(|error| error.to_string())
        }

        /// The same where the rules hide something.
        pub(in crate::host) async fn call_under(
            &self,
            tool: &dyn Tool,
            arguments: Value,
            veil: crate::tool::Veil,
        ) -> Result<String, String> {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let context = ToolContext { veil: Some(veil), ..self.context.clone() };
            tool.run(arguments, &context).await.map(|output| output.text).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_options_ranges_or_addresses() {
        #[rustfmt::skip]
        let table = [
            ("main", true), ("feature/x-1", true), ("v1.2", true), ("ä", true), ("@{-1}", true),
            ("", false), ("-f", false), ("--force", false), ("a..b", false), ("a b", false), ("+main", false), ("a:b", false),
            ("HEAD~1", false), ("HEAD^", false), ("../x", false), ("/x", false), ("https://x/y", false), ("ext::sh -c x", false), ("a\nb", false),
        ];
        for (given, want) in table {
            assert_eq!(name("name", given.to_owned(), "branch").is_ok(), want, "{given:?}");
        }
    }
}
