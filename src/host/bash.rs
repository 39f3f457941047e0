//! `bash`: runs a shell command line, and remembers where the shell was left.
//!
//! A command runs in a shell of its own, so variables and functions do not outlive it; the directory
//! does, for as long as the session (or, outside one, the registry), and so does what it exports where that is asked
//! for. The shell itself reports both, on a nameless file that is not part of its output (`bash_shell`); a subshell's `cd` therefore
//! does not count, and neither does one in a call that names its own `cwd`. A shell that is replaced (`exec`), is killed,
//! or sets its own EXIT trap does not report its environment, which stays as it was.
//!
//! Of long output the start and the end are shown; the whole of it goes to a file that `fs_read` pages. What a command
//! leaves running belongs to the session and ends with it.
//!
//! Invariant: a command starts inside the workspace's roots. Where it goes from there is a matter of
//! permission, not of this file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::bash_patch::{BashCall, bash_call};
use super::bash_shell::{
    REPORT_BYTES_MAX, Report, Telling, Variables, changes, given, judged, lay_over, read_report, script, telling,
};
use super::confine::Sandbox;
use super::exec_look::{blocking, flag, follow, text};
use super::fs_common::{changes_git, refused};
use super::fs_guard::Guard;
use super::way_out::{check_leave, leaves, offer};
use crate::base::ear::Exit;
use crate::base::process::{Captured, Ending, Invocation, RunLimits, Slate, Spill, Taps, environment, run_tapped};
use crate::base::sandbox::{Level, denial};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::config::inherited_environment;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, OutputFile, Share, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// How `bash` runs commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BashOptions {
    /// For a command that names no time-out, in milliseconds.
    pub default_timeout_ms: u64,
    /// Bytes of output that the model sees.
    pub output_bytes_max: usize,
    /// Over the inherited environment, and over what is kept from it.
    pub env: BTreeMap<String, String>,
    /// A shell that takes `-c`, by path or by name.
    pub shell: PathBuf,
    /// What commands are held to.
    pub sandbox: Sandbox,
}

impl Default for BashOptions {
    fn default() -> Self {
        Self {
            default_timeout_ms: limit::BASH_TIMEOUT_MS,
            output_bytes_max: limit::PROCESS_OUTPUT_BYTES_MAX,
            env: BTreeMap::new(),
            shell: PathBuf::from("/bin/sh"),
            sandbox: Sandbox::default(),
        }
    }
}

/// The tool.
#[derive(Debug)]
pub struct Bash {
    workspace: Arc<Workspace>,
    options: BashOptions,
}

/// With the arguments by which a command leaves the sandbox.
static CONFINED_DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let mut definition = DEFINITION.clone();
    definition.description.push_str(
        " Commands run in a sandbox: what they may write is limited, and they may lack the network. One that fails \
         because of it says so.",
    );
    offer(&mut definition);
    definition
});

const ENV: &str = "env";
/// The signal that ends a command which is not wanted any more.
const SIGTERM: i32 = 15;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| ToolDefinition {
    name: "bash".into(),
    description: "Runs a command line in a shell. Output is stdout and stderr in the order they came; a command \
                  that fails says `[exit code N]` first. The directory is kept from call to call, variables are \
                  not unless you ask. There is no terminal and no input: use options that do not ask. The call \
                  ends when the shell ends; start a program that shall go on with its output redirected, as in \
                  `server > log 2>&1 &`. Of long output the start and the end are shown, and the whole is kept \
                  in a file for fs_read."
        .into(),
    parameters: parameters(),
    category: Some(ToolCategory::Execute),
    annotations: Some(ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() }),
    // The tool's own time-out always comes first: it keeps the partial output.
    timeout_ms: Some(limit::BASH_TIMEOUT_MS_MAX + 60_000),
    // It cuts its output itself, by bytes, and keeps the end of it too.
    max_output_chars: Some(0),
});

fn parameters() -> Arguments {
    let parameters = json!({
        "command": {"type": "string", "description": "The command line", "required": true},
        "timeout": {
            "type": "number",
            "description": format!("Longest run in milliseconds, from 1 to {}", limit::BASH_TIMEOUT_MS_MAX),
        },
        "cwd": {
            "type": "string",
            "description": "Directory for this command alone, relative to the working directory. Default: where the last command left the shell",
        },
        "env": {
            "type": "object",
            "description": "Variables for this command, by name; null takes one out",
            "additionalProperties": {"type": ["string", "null"]},
        },
        "persist_env": {
            "type": "boolean",
            "description": "Keep what is exported when this command ends (env, export, a sourced file) for the commands after it. Default: false",
        },
    });
    match parameters {
        Value::Object(parameters) => parameters,
        _ => Arguments::new(),
    }
}

impl Bash {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>, options: BashOptions) -> Self {
        Self { workspace, options }
    }

    fn call(&self, arguments: &Arguments) -> BashCall {
        bash_call(&self.workspace, arguments, self.options.sandbox.level() != Some(Level::ReadOnly))
    }

    fn timeout_ms(&self, arguments: &Arguments) -> Result<u64, ToolError> {
        let given = match arguments.get("timeout") {
            None | Some(Value::Null) => return Ok(self.options.default_timeout_ms.min(limit::BASH_TIMEOUT_MS_MAX)),
            Some(given) => given,
        };
        let most = limit::BASH_TIMEOUT_MS_MAX;
        #[allow(clippy::cast_precision_loss, reason = "the limit is far below 2^52")]
        let fits = |ms: &f64| (1.0..=most as f64).contains(ms);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 1 and the limit")]
        given.as_f64().filter(fits).map(|ms| ms.round() as u64).ok_or_else(|| {
            ToolError::BadArguments(format!("`timeout`: expected milliseconds from 1 to {most}, got {given}"))
        })
    }

    /// Where the command starts, and whether the shell's directory is kept afterwards.
    async fn start(&self, arguments: &Arguments, context: &ToolContext) -> Result<(PathBuf, bool), ToolError> {
        let given = text(arguments, "cwd")?;
        let kept = context.scope.shell_directory.lock().clone();
        let (workspace, asked, keeps) = match (&given, kept) {
            (Some(given), _) => (Arc::clone(&self.workspace), given.clone(), false),
            (None, Some(kept)) => (Arc::clone(&self.workspace), kept.to_string_lossy().into_owned(), true),
            (None, None) => {
                let workspace = Arc::clone(&self.workspace);
                blocking(move || workspace.is_there().map_err(|error| refused(&error))).await??;
                return Ok((self.workspace.working_directory().to_owned(), true));
            }
        };
        let resolved = blocking(move || match workspace.resolve(&asked) {
            Ok(path) if path.is_dir() => Ok(path),
            Ok(_) => Err(format!("`cwd`: \"{asked}\" is not a directory")),
            Err(error) => Err(error.to_string()),
        })
        .await?;
        match resolved {
            Ok(path) => Ok((path, keeps)),
            Err(reason) if given.is_some() => Err(ToolError::Failed(reason)),
            Err(_) => {
                let lost = context.scope.shell_directory.lock().take().unwrap_or_default();
                Err(ToolError::Failed(format!(
                    "the command was not run: the shell was in \"{}\", which is no directory any more; it is back in \"{}\" now",
                    lost.display(),
                    self.workspace.working_directory().display()
                )))
            }
        }
    }

    fn invocation(&self, script: String, directory: &Path, environment: Vec<(OsString, OsString)>) -> Invocation {
        Invocation {
            program: self.options.shell.clone().into(),
            arguments: vec!["-c".into(), script.into()],
            directory: directory.to_owned(),
            environment,
            confinement: None,
        }
    }

    /// What this call is held to.
    fn sandbox(&self, arguments: &Arguments) -> Result<Sandbox, ToolError> {
        Ok(if check_leave(arguments)? { Sandbox::default() } else { self.options.sandbox.clone() })
    }

    /// Takes over where the shell ended. What it says is a line for the model, or nothing.
    fn keep(&self, start: &Path, end: &Path, context: &ToolContext) -> String {
        if end == start {
            return String::new();
        }
        if self.workspace.contains(end) {
            *context.scope.shell_directory.lock() = Some(end.to_owned());
            return String::new();
        }
        format!(
            "\n[the shell went to \"{}\", outside the working directory; the next command starts in \"{}\"]",
            end.display(),
            start.display()
        )
    }

    async fn execute(&self, arguments: Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let call = Call::new(self, &arguments)?;
        let sandbox = self.sandbox(&arguments)?;
        let (directory, keeps) = self.start(&arguments, context).await?;
        let usual = environment(inherited_environment(), &self.options.env);
        let kept = context.scope.shell_environment.lock().clone();
        let mut environment = lay_over(usual.clone(), &[&kept, &call.given]);
        let telling =
            if keeps { telling(&self.options.shell, &call.command, &environment) } else { Telling::default() };
        let tells = call.persists || telling.any();
        // Of its own, so that what an earlier command left running cannot tell anything here. Without one (no memory, too many
        // open files) the command still runs: it may be the one that makes room.
        let slate = if tells { blocking(|| Slate::new(REPORT_BYTES_MAX).ok()).await? } else { None };
        environment.push(context.scope.share().mark());
        let mut invocation =
            self.invocation(script(&call.command, telling, slate.as_ref(), call.persists), &directory, environment);
        invocation.confinement = sandbox
            .confinement(
                (&self.workspace, &context.scope),
                // Not what the call or an earlier one has set: a directory for temporary files may be written to.
                &usual,
                Vec::new(),
            )
            .await?;
        let limits = RunLimits { timeout: call.timeout, output_bytes_max: self.options.output_bytes_max };
        let whole = Whole::default();
        let ear = context.events.ear();
        if let Some(ear) = ear {
            ear.begun();
        }
        let taps = Taps {
            follow: follow(context, &DEFINITION.name),
            spill: Some(whole.spill(context.scope.share())),
            slate: slate.clone(),
        };
        let finished = run_tapped(&invocation, limits, &context.cancel, taps).await;
        let finished = finished.map_err(|e| ToolError::failed(e.to_string()))?;
        if let Some(ear) = ear {
            ear.ended(exit(finished.ending));
        }
        let (mut output, details) = whole.told(&finished.output);
        if !matches!(finished.ending, Ending::Cancelled | Ending::TimedOut) {
            let said = match slate {
                Some(slate) => blocking(move || there(read_report(slate.read()))).await?,
                None => Report::default(),
            };
            if let (true, Some(end)) = (keeps, &said.directory) {
                output.push_str(&self.keep(&directory, end, context));
            }
            if call.persists {
                output.push_str(&keep_environment(&usual, said, context));
            }
        }
        let text = match finished.ending {
            Ending::Cancelled if output.is_empty() => return Err(ToolError::Aborted),
            Ending::Cancelled => return Err(ToolError::AbortedAfter(output)),
            Ending::TimedOut => format!("[timeout after {}ms]\n{output}", call.timeout.as_millis()),
            Ending::Exited(code) => {
                let why = sandbox.explain("bash", denial(&output, code == 0), &self.workspace);
                let front = if code == 0 { String::new() } else { format!("[exit code {code}]\n") };
                format!("{front}{output}{why}")
            }
            Ending::Signalled(signal) => format!("[exit code {}]\n{output}", 128 + signal),
        };
        Ok(ToolOutput { text, details, ..ToolOutput::default() })
    }
}

/// How a command ended, for who listens.
fn exit(ending: Ending) -> Exit {
    match ending {
        Ending::Exited(code) => Exit { code: Some(code), signal: None },
        Ending::Signalled(signal) => Exit { code: None, signal: Some(signal) },
        // Its group was ended with a signal that it may have caught.
        Ending::TimedOut | Ending::Cancelled => Exit { code: None, signal: Some(SIGTERM) },
    }
}

/// A call's arguments, read.
struct Call {
    command: String,
    timeout: Duration,
    given: Variables,
    persists: bool,
}

impl Call {
    fn new(bash: &Bash, arguments: &Arguments) -> Result<Self, ToolError> {
        Ok(Self {
            command: command(arguments)?,
            timeout: Duration::from_millis(bash.timeout_ms(arguments)?),
            given: given(arguments, ENV)?,
            persists: flag(arguments, "persist_env")?,
        })
    }
}

/// A shell may be told to have moved to a directory that it took away afterwards.
fn there(mut said: Report) -> Report {
    said.directory = said.directory.filter(|directory| directory.is_dir());
    said
}

/// The whole of an output that is too long to be shown.
#[derive(Clone, Default)]
struct Whole(Arc<Mutex<Keeping>>);

#[derive(Default)]
enum Keeping {
    /// It is not too long, so far.
    #[default]
    Nothing,
    File(OutputFile),
    Failed(String),
}

impl Whole {
    /// What writes it.
    fn spill(&self, share: &Share) -> Spill {
        let (whole, share) = (Arc::clone(&self.0), share.clone());
        Box::new(move |bytes| {
            let mut keeping = whole.lock();
            let written = match &mut *keeping {
                Keeping::File(file) => file.write(bytes),
                Keeping::Nothing | Keeping::Failed(_) => share.begin_output().and_then(|mut file| {
                    file.write(bytes)?;
                    *keeping = Keeping::File(file);
                    Ok(())
                }),
            };
            written.inspect_err(|cause| *keeping = Keeping::Failed(cause.to_string()))
        })
    }

    /// What the model is told of an output, and what programs are told of its file.
    fn told(&self, output: &Captured) -> (String, Option<Value>) {
        match std::mem::take(&mut *self.0.lock()) {
            Keeping::Nothing => (output.text(), None),
            Keeping::Failed(cause) => (output.text_and(&format!("; the whole could not be kept: {cause}")), None),
            Keeping::File(file) => {
                let (kept, total) = (file.keep(), output.total_bytes());
                let (path, part) = (kept.path.display(), kept.bytes);
                let what = if part < total { format!("the first {part} bytes are") } else { "the whole is".to_owned() };
                let details = json!({"outputPath": kept.path, "outputBytes": part, "totalBytes": total});
                (output.text_and(&format!("; {what} in {path}, see fs_read")), Some(details))
            }
        }
    }
}

/// Keeps what the shell exported in the end. What it says is a line for the model, or nothing.
fn keep_environment(usual: &[(OsString, OsString)], said: Report, context: &ToolContext) -> String {
    let why = match said.environment.map(|environment| changes(usual, &environment)) {
        Some(Some(changed)) => {
            *context.scope.shell_environment.lock() = changed;
            return String::new();
        }
        Some(None) => format!("it is larger than {} bytes", limit::SHELL_ENVIRONMENT_BYTES_MAX),
        None => "the shell did not tell it".to_owned(),
    };
    format!("\n[the environment was not kept: {why}]")
}

impl Tool for Bash {
    fn definition(&self) -> &ToolDefinition {
        if self.options.sandbox.level().is_some() { &CONFINED_DEFINITION } else { &DEFINITION }
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        let leaves = self.options.sandbox.level().is_some() && leaves(arguments);
        // A patch that was typed here is judged like one that was not.
        leaves || changes_git(&self.workspace, &self.subject(arguments))
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        Call::new(self, arguments)?;
        self.sandbox(arguments).map(drop)
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("cmd", "command"), ("timeout_ms", "timeout"), ("timeoutMs", "timeout"), ("workdir", "cwd")]
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        let patch = match self.call(arguments) {
            BashCall::Patch(patch) => patch.call.subject(),
            BashCall::Shell | BashCall::Refused(_) => Subject::None,
        };
        match patch {
            Subject::Paths(_) => patch,
            Subject::None | Subject::Command(_) => {
                // Variables that make no sense are refused when it runs.
                let given = given(arguments, ENV).unwrap_or_default();
                let command = arguments.get("command").and_then(Value::as_str);
                command.map_or(patch, |command| Subject::Command(judged(command, &given)))
            }
        }
    }

    fn place(&self, arguments: &Arguments, context: &ToolContext) -> Option<PathBuf> {
        let kept = || context.scope.shell_directory.lock().as_ref().map(|kept| kept.to_string_lossy().into_owned());
        match text(arguments, "cwd").ok()?.or_else(kept) {
            Some(asked) => self.workspace.resolve(&asked).ok(),
            None => Some(self.workspace.working_directory().to_owned()),
        }
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let BashCall::Patch(patch) = self.call(arguments) else { return None };
            let guard = Guard::preview(&self.workspace, context);
            blocking(move || patch.call.preview(&guard)).await.ok()
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let patch = match self.call(&arguments) {
                BashCall::Shell => return self.execute(arguments, context).await,
                BashCall::Refused(why) => return Err(ToolError::Failed(why)),
                BashCall::Patch(patch) => patch,
            };
            patch.check(context)?;
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            blocking(move || patch.call.run(&guard, &cancel)).await?
        })
    }
}

fn command(arguments: &Arguments) -> Result<String, ToolError> {
    let most = limit::BASH_COMMAND_BYTES_MAX;
    let bad = |what: String| Err(ToolError::BadArguments(format!("`command`: expected {what}")));
    match text(arguments, "command")? {
        None => bad("a string, got nothing".into()),
        Some(command) if command.trim().is_empty() => bad("a command line, got an empty string".into()),
        Some(command) if command.contains('\0') => bad("a command line without NUL characters".into()),
        Some(command) if command.len() > most => {
            bad(format!("at most {most} bytes, got {}; write a script with fs_write and run that", command.len()))
        }
        Some(command) => Ok(command),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::protocol::EventBody;

    struct Place {
        directory: tempfile::TempDir,
        bash: Bash,
        context: ToolContext,
    }

    impl Place {
        fn new(options: BashOptions) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(directory.path().join("sub/deep")).unwrap();
            let workspace = Arc::new(Workspace::new(directory.path(), &[]).unwrap());
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
            Self { directory, bash: Bash::new(workspace, options), context }
        }

        fn path(&self, below: &str) -> String {
            self.directory.path().canonicalize().unwrap().join(below).to_string_lossy().into_owned()
        }

        async fn call(&self, arguments: Value) -> Result<String, ToolError> {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            self.bash.run(arguments, &self.context).await.map(|output| output.text)
        }

        async fn says(&self, command: &str) -> String {
            self.call(json!({"command": command})).await.unwrap()
        }
    }

    fn place() -> Place {
        Place::new(BashOptions::default())
    }

    #[tokio::test]
    async fn nothing_runs_where_a_link_leads_since() {
        let place = Place::new(BashOptions::default());
        let (root, elsewhere) = (place.directory.path().canonicalize().unwrap(), tempfile::tempdir().unwrap());
        let away = root.with_extension("away");
        std::fs::rename(&root, &away).unwrap();
        let gone = place.call(json!({ "command": "touch x" })).await.unwrap_err().to_string();
        assert!(gone.contains("does not exist"), "{gone}");
        std::os::unix::fs::symlink(elsewhere.path(), &root).unwrap();
        let led = place.call(json!({ "command": "touch x" })).await.unwrap_err().to_string();
        assert!(led.contains("exchanged for a link"), "{led}");
        std::fs::remove_file(&root).unwrap();
        std::fs::rename(&away, &root).unwrap();
        place.call(json!({ "command": "touch x" })).await.unwrap();
        assert!(place.directory.path().join("x").exists() && !elsewhere.path().join("x").exists());
    }

    #[tokio::test]
    async fn output_and_exit_code() {
        let place = place();
        let table = [
            ("echo out; echo err >&2; echo out", "out\nerr\nout\n"),
            ("echo a; exit 3", "[exit code 3]\na\n"),
            ("false", "[exit code 1]\n"),
            ("kill -9 $$", "[exit code 137]\n"),
            ("(exit 4)", "[exit code 4]\n"),
            ("set -e; false; echo no", "[exit code 1]\n"),
            ("trap 'echo mine' EXIT; exit 5", "[exit code 5]\nmine\n"),
            ("trap", ""),
            ("trap; cd .; trap", ""),
            ("set -e; cd nowhere 2>/dev/null; echo no", "[exit code 2]\n"),
            ("cd nowhere 2>/dev/null || echo $?", "2\n"),
            ("CDPATH=$PWD; cd sub", "HERE/sub\n"),
            ("echo \"$0 $# [$*]\"", "/bin/sh 0 []\n"),
            ("cat", ""),
            ("# a comment", ""),
            ("cat <<E\nit's \"here\"\nE", "it's \"here\"\n"),
        ];
        for (command, want) in table {
            let want = want.replace("HERE", place.path("").trim_end_matches('/'));
            assert_eq!(place.says(command).await, want, "{command}");
        }
    }

    #[tokio::test]
    async fn the_directory_is_kept() {
        let place = place();
        let table = [
            ("pwd", ""),
            ("(cd sub); pwd", ""),
            ("cd sub; pwd", "sub"),
            ("cd deep && pwd; exit 3", "sub/deep"),
            ("pwd", "sub/deep"),
            ("sh -c 'cd /'; cd .. | cat; pwd", "sub/deep"),
            ("cd ..; kill -9 $$", "sub"),
            ("set -C; pwd() { echo fake; }; cd ..", ""),
            ("cd ./sub/deep; pwd; false", "sub/deep"),
            ("cd nowhere; cd nowhere || true; (cd ..); cd .. &", "sub/deep"),
            ("cd ..; trap 'echo bye' EXIT", "sub"),
            ("trap 'cd ..' EXIT; cd deep", "sub"),
            ("cd deep && exec true", "sub/deep"),
            ("cd .. && exec sh -c 'cd deep'", "sub"),
            ("command cd ..", ""),
            ("set -eux; cd sub", "sub"),
            ("eval 'command cd deep'", "sub/deep"),
            ("X=cd; $X ..", "sub"),
            ("chdir deep", "sub/deep"),
            ("set -e; go() { cd \"$1\"; }; go ../..", ""),
            ("echo 'command cd sub' > moves; . ./moves", "sub"),
        ];
        for (command, want) in table {
            place.says(command).await;
            let want = place.path(want);
            assert_eq!(place.says("pwd").await.trim_end(), want.trim_end_matches('/'), "after {command}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_else_tells_where_the_shell_was_left() {
        for shell in ["/bin/sh", "bash"] {
            let place = Place::new(BashOptions { shell: shell.into(), ..BashOptions::default() });
            let told = place.call(json!({"command": "trap", "persist_env": true})).await.unwrap();
            let file = told.split("1<>").nth(1).and_then(|rest| rest.split(';').next()).expect(&told);
            let number = file.strip_prefix("/proc/self/fd/").expect("it has no name that others know");
            // One that goes on telling, by all ways it has, on what it was given.
            let lie = format!("printf '{}\\n\\0X=lie\\0\\0'", place.path("sub/deep"));
            // The other shell has no words for so high a number.
            let inherited = if shell == "bash" { format!("{lie} >&{number};") } else { String::new() };
            let liar =
                format!("cd .; (while :; do {lie} 1<>{file}; {inherited} sleep 0.001; done) >/dev/null 2>&1 & echo $!");
            let begin = Instant::now();
            let call = json!({"command": &liar, "persist_env": true});
            let liar = place.call(call).await.unwrap();
            assert!(begin.elapsed() < Duration::from_secs(8), "it is not waited for");
            for _ in 0..20 {
                let call = json!({"command": format!("cd {}; export X=true", place.path("sub")), "persist_env": true});
                assert_eq!(place.call(call).await.unwrap(), "");
                assert_eq!(place.says("pwd; echo $X").await, format!("{}\ntrue\n", place.path("sub")), "{shell}");
            }
            place.says(&format!("kill {}", liar.trim())).await;
        }
    }

    #[tokio::test]
    async fn cwd_is_for_one_call() {
        let place = place();
        let pwd = json!({"command": "cd deep; pwd", "cwd": "sub"});
        assert_eq!(place.call(pwd).await.unwrap().trim_end(), place.path("sub/deep"));
        assert_eq!(place.says("pwd").await.trim_end(), place.path("").trim_end_matches('/'));
    }

    #[tokio::test]
    async fn it_starts_inside_the_roots() {
        let place = place();
        std::os::unix::fs::symlink("/", place.path("out")).unwrap();
        std::fs::write(place.path("file"), "").unwrap();
        for cwd in ["/", "..", "out", "out/tmp", "sub/../../"] {
            let error = place.call(json!({"command": "pwd", "cwd": cwd})).await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("Path \"{cwd}\" escapes the working directory")), "{error}");
        }
        for cwd in ["file", "missing"] {
            let error = place.call(json!({"command": "pwd", "cwd": cwd})).await.unwrap_err().to_string();
            assert_eq!(error, format!("`cwd`: \"{cwd}\" is not a directory"));
        }
        let text = place.says("cd sub; cd /; pwd").await;
        assert!(text.starts_with("/\n\n[the shell went to \"/\", outside the working directory"), "{text}");
        assert_eq!(place.says("pwd").await.trim_end(), place.path("").trim_end_matches('/'));
    }

    #[tokio::test]
    async fn a_directory_that_is_gone_is_said_once() {
        let place = place();
        place.says("cd sub/deep; rm -r ../../sub").await;
        place.says("mkdir sub; cd sub").await;
        place.call(json!({"command": "rmdir sub", "cwd": "."})).await.unwrap();
        let error = place.call(json!({"command": "touch here"})).await.unwrap_err().to_string();
        assert!(error.starts_with("the command was not run: the shell was in"), "{error}");
        assert_eq!(place.says("ls").await, "");
        let gone = json!({"command": "mkdir zz; cd zz; rmdir ../zz; echo out", "persist_env": true});
        let said = place.call(gone).await.unwrap();
        assert!(
            said.starts_with("out\n") && !said.contains("getcwd"),
            "what our part of the script meets is not shown: {said}"
        );
    }

    #[tokio::test]
    async fn a_time_out_keeps_the_partial_output() {
        let place = place();
        let begin = Instant::now();
        let call = json!({"command": "echo before; setsid sleep 60 & sleep 60", "timeout": 200});
        assert_eq!(place.call(call).await.unwrap(), "[timeout after 200ms]\nbefore\n");
        assert!(begin.elapsed() < Duration::from_secs(8));
    }

    /// Whether a process is there and no zombie.
    fn is_running(id: &str) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", id.trim()));
        state.is_ok_and(|text| !text.contains(") Z "))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_left_the_group_ends_with_it_and_an_abort_tells_the_output() {
        let place = place();
        // One with a session of its own, one that scrubbed its environment as well.
        let command = "echo started; setsid sleep 60 & echo $! > one; env -i setsid sleep 60 & echo $! > two; wait";
        let cancel = place.context.cancel.clone();
        let started = place.path("two");
        let abort = async {
            while !std::fs::read_to_string(&started).is_ok_and(|text| text.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            cancel.cancel();
        };
        let (said, ()) = tokio::join!(place.call(json!({"command": command})), abort);
        assert_eq!(said, Err(ToolError::AbortedAfter("started\n".into())));
        // They were killed; with much to do the system takes a moment to see to that.
        let gone = async {
            for name in ["one", "two"] {
                while is_running(&std::fs::read_to_string(place.path(name)).unwrap()) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_goes_on_ends_with_the_scope() {
        let Place { directory, bash, context } = place();
        let place = Place { directory, bash, context };
        assert_eq!(place.says("setsid sleep 600 > log 2>&1 & echo $!").await.lines().count(), 1);
        let id = place.says("setsid sleep 600 > log 2>&1 & echo $!").await;
        assert_eq!(place.says("true").await, "");
        assert!(is_running(&id), "it goes on from call to call");
        let share = place.context.scope.share().clone();
        drop(place);
        assert!(is_running(&id), "somebody holds its share");
        drop(share);
        let begin = Instant::now();
        while is_running(&id) && begin.elapsed() < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!is_running(&id));
    }

    #[tokio::test]
    async fn a_background_child_does_not_hold_it_up() {
        let begin = Instant::now();
        assert_eq!(place().says("sleep 20 & echo started").await, "started\n");
        assert!(begin.elapsed() < Duration::from_secs(8));
    }

    #[tokio::test]
    async fn what_goes_on_may_go_on_writing() {
        let place = place();
        // More than a pipe holds, once the call is over and nobody listens any more.
        let said =
            place.says("mkfifo gate; (read _ < gate; head -c 300000 /dev/zero; echo late; touch done) & echo on").await;
        assert_eq!(said, "on\n");
        place.says("echo > gate").await;
        let done = place.directory.path().join("done");
        let begin = Instant::now();
        while !done.exists() && begin.elapsed() < Duration::from_secs(8) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(done.exists());
    }

    #[tokio::test]
    async fn an_abort_ends_it() {
        let place = place();
        place.context.cancel.cancel();
        let begin = Instant::now();
        assert_eq!(place.call(json!({"command": "sleep 60"})).await, Err(ToolError::Aborted));
        assert!(begin.elapsed() < Duration::from_secs(8));
    }

    #[tokio::test]
    async fn long_output_is_cut_and_said() {
        let place = Place::new(BashOptions { output_bytes_max: 9, ..BashOptions::default() });
        assert_eq!(place.says("printf 123456789").await, "123456789");
        let said = place.says("printf 'ää\\nää ä\\näää'").await;
        let front = "ää\n\n[… 10 bytes left out …]\nää\n[truncated: 19 bytes total, showing the first 5 and the last 4; the whole is in ";
        let path = said.strip_prefix(front).and_then(|rest| rest.strip_suffix(", see fs_read]")).expect(&said);
        let fs_read = super::super::FsRead::new(Arc::new(Workspace::new(place.directory.path(), &[]).unwrap()));
        let read = async |path: &str, context: &ToolContext| {
            let Value::Object(arguments) = json!({"path": path, "offset": 2}) else { panic!("an object") };
            fs_read.run(arguments, context).await.map(|output| output.text).map_err(|error| error.to_string())
        };
        let want = "     2\tää ä\n     3\täää\n\n(Showing lines 2-3 of 3.)";
        assert_eq!(read(path, &place.context).await.as_deref(), Ok(want));
        let beside = Path::new(path).with_file_name("lock");
        for (path, context) in
            [(path, Place::new(BashOptions::default()).context), (beside.to_str().unwrap(), place.context.clone())]
        {
            let refused = read(path, &context).await.unwrap_err();
            assert!(refused.contains("escapes the working directory"), "{refused}");
        }
        assert!(Path::new(path).exists());
        let path = PathBuf::from(path);
        drop(place);
        assert!(!path.exists(), "it went with its session");
    }

    #[tokio::test]
    async fn a_flood_is_kept_up_to_a_limit_and_costs_no_memory() {
        let place = Place::new(BashOptions { output_bytes_max: 100, ..BashOptions::default() });
        let before = resident_bytes();
        let call = json!({"command": "head -c 100000000 /dev/zero | tr '\\0' x; echo end"});
        let Value::Object(call) = call else { panic!("an object") };
        let output = place.bash.run(call, &place.context).await.unwrap();
        assert!(resident_bytes() < before + 10_000_000, "{before} then {}", resident_bytes());
        let details = output.details.unwrap();
        let path = details["outputPath"].as_str().unwrap();
        assert_eq!(details["totalBytes"], 100_000_004);
        assert_eq!(details["outputBytes"], limit::KEPT_OUTPUT_BYTES_MAX);
        assert_eq!(std::fs::metadata(path).unwrap().len(), limit::KEPT_OUTPUT_BYTES_MAX);
        let want = format!(
            "xend\n\n[truncated: 100000004 bytes total, showing the first 50 and the last 50; the first 67108864 bytes are in {path}, see fs_read]"
        );
        assert!(output.text.ends_with(&want), "{}", output.text);
    }

    /// What this process holds in memory, without the pages of files: those of its own program come as it is first run.
    fn resident_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let held = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        held.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    #[tokio::test]
    async fn variables_are_for_one_call_unless_asked() {
        let place = place();
        let env = json!({"command": "echo $A $B", "env": {"A": "1", "B": "it's", "HOME": null}});
        assert_eq!(place.call(env).await.unwrap(), "1 it's\n");
        assert_eq!(place.says("echo $A${HOME:+home}").await, "home\n");
        let call =
            json!({"command": "export C='2\n3'; D=4; cd sub", "env": {"A": "1", "HOME": null}, "persist_env": true});
        assert_eq!(place.call(call).await.unwrap(), "");
        assert_eq!(
            place.says("echo \"$A $C $D ${HOME-none}\"; pwd").await,
            format!("1 2\n3  none\n{}\n", place.path("sub"))
        );
        let call = json!({"command": "unset A; export HOME=/h; kill -9 $$", "persist_env": true});
        assert_eq!(
            place.call(call).await.unwrap(),
            "[exit code 137]\n\n[the environment was not kept: the shell did not tell it]"
        );
        assert_eq!(place.says("echo $A $HOME").await, "1\n");
        place.call(json!({"command": "export A=5", "persist_env": true, "cwd": "."})).await.unwrap();
        assert_eq!(place.says("echo $A $C; pwd").await, format!("5 2 3\n{}\n", place.path("sub")));
    }

    #[test]
    fn rules_see_the_variables_of_a_call() {
        let place = place();
        let Value::Object(call) = json!({"command": "git fetch", "env": {"GIT_SSH_COMMAND": "x"}}) else { panic!() };
        let want = Subject::Command("export GIT_SSH_COMMAND='x'; git fetch".into());
        assert_eq!(place.bash.subject(&call), want);
    }

    #[tokio::test]
    async fn what_it_writes_is_heard_while_it_runs() {
        let mut place = place();
        let (hear, mut heard) = tokio::sync::mpsc::unbounded_channel();
        place.context.events = crate::tool::ToolEvents::new(move |event| {
            let EventBody::ToolCallOutput { call_id, name, text, .. } = event else { panic!("{event:?}") };
            assert_eq!((call_id.as_str(), name.as_str()), ("c", "bash"));
            let _ = hear.send(text);
        });
        let go = place.path("go");
        let command = format!("echo one; echo two >&2; while ! [ -e {go} ]; do sleep 0.01; done; echo three");
        let run = place.says(&command);
        let hears = async {
            let mut text = String::new();
            while text != "one\ntwo\n" {
                text += &heard.recv().await.unwrap();
            }
            // Only now can it end.
            std::fs::write(&go, "").unwrap();
        };
        let (said, ()) = tokio::join!(run, hears);
        assert_eq!(said, "one\ntwo\nthree\n");
    }

    #[tokio::test]
    async fn options_reach_the_shell() {
        let env = [("MY_TOKEN".to_owned(), "mine".to_owned())].into();
        let place = Place::new(BashOptions { env, shell: "bash".into(), ..BashOptions::default() });
        assert_eq!(place.says("echo $MY_TOKEN ${BASH_VERSION:+bash} $TERM; cd sub").await, "mine bash dumb\n");
        assert_eq!(place.says("pwd").await.trim_end(), place.path("sub"));
        let place = Place::new(BashOptions { default_timeout_ms: 150, ..BashOptions::default() });
        assert_eq!(place.says("sleep 60").await, "[timeout after 150ms]\n");
        let place = Place::new(BashOptions { shell: "/no/shell".into(), ..BashOptions::default() });
        let error = place.call(json!({"command": "pwd"})).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot start /no/shell: "), "{error}");
    }

    #[tokio::test]
    async fn bad_arguments_name_the_field() {
        let place = place();
        #[rustfmt::skip]
        let table = [
            (json!({}), "`command`: expected a string, got nothing"),
            (json!({"command": 1}), "`command`: expected a string, got 1"),
            (json!({"command": " \n"}), "`command`: expected a command line, got an empty string"),
            (json!({"command": "a\u{0}b"}), "`command`: expected a command line without NUL characters"),
            (json!({"command": "x".repeat(120_001)}), "`command`: expected at most 120000 bytes, got 120001; write a script with fs_write and run that"),
            (json!({"command": "pwd", "timeout": 0}), "`timeout`: expected milliseconds from 1 to 3600000, got 0"),
            (json!({"command": "pwd", "timeout": -1}), "`timeout`: expected milliseconds from 1 to 3600000, got -1"),
            (json!({"command": "pwd", "timeout": "5"}), "`timeout`: expected milliseconds from 1 to 3600000, got \"5\""),
            (json!({"command": "pwd", "timeout": 1e300}), "`timeout`: expected milliseconds from 1 to 3600000, got 1e+300"),
            (json!({"command": "pwd", "cwd": 5}), "`cwd`: expected a string, got 5"),
        ];
        for (call, want) in table {
            assert_eq!(place.call(call).await, Err(ToolError::BadArguments(want.into())));
        }
        let longest = format!("echo {}", "x".repeat(119_000));
        assert!(place.says(&longest).await.contains("[truncated: 119001 bytes total"));
    }
}
