//! `exec_command`: starts a command line that may go on after the call.
//!
//! The call waits a while. A command that has ended by then is told as `bash` tells it; one that has not becomes a
//! session with a number, which `write_stdin` looks at, types to and ends. Sessions live in the call's scope: they
//! go on from turn to turn, and end with the session of the server or with the registry.
//!
//! A call that names a shell, or wants a login shell, is judged as the command line that it is (`zsh -c '…'`): no rule
//! for the command alone covers it.
//!
//! Invariants: a command starts inside the workspace's roots, under the same sandbox and environment as one of
//! `bash`; what an aborted call started is ended, for nobody was told its number.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::bash_patch::{BashCall, bash_call};
use super::bash_shell;
use super::confine::Sandbox;
use super::exec_look::{self, Look, blocking, flag, follow, text};
use super::fs_common::refused;
use super::fs_guard::Guard;
use super::way_out::{check_leave, leaves, offer};
use crate::base::console::Console;
use crate::base::process::{Ending, Invocation, TerminalSize, environment};
use crate::base::sandbox::{Level, denial};
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::config::inherited_environment;
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// How `exec_command` and `write_stdin` work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOptions {
    /// Over the inherited environment, over what is kept from it, and over what is set so that nothing waits for a person.
    pub env: BTreeMap<String, String>,
    /// A shell that takes `-c`, by path or by name.
    pub shell: PathBuf,
    /// Tokens of output that a call shows which does not say.
    pub output_tokens: usize,
    /// What commands are held to.
    pub sandbox: Sandbox,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            env: BTreeMap::new(),
            shell: PathBuf::from("/bin/sh"),
            output_tokens: limit::YIELD_OUTPUT_TOKENS,
            sandbox: Sandbox::default(),
        }
    }
}

/// So that output is plain text in UTF-8, beside what every program here is given.
const PLAIN: [(&str, &str); 5] =
    [("LANG", "C.UTF-8"), ("LC_ALL", "C.UTF-8"), ("LC_CTYPE", "C.UTF-8"), ("COLORTERM", ""), ("GH_PAGER", "cat")];

/// The tool.
#[derive(Debug)]
pub struct ExecCommand {
    workspace: Arc<Workspace>,
    options: ExecOptions,
}

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| ToolDefinition {
    name: "exec_command".into(),
    description: "Runs a command line that may take long or be typed to: a server, a REPL, a watcher. What has not \
                  ended after `yield_time_ms` goes on as a session; `write_stdin` with its session ID shows what \
                  came since, types, and ends it."
        .into(),
    parameters: parameters(),
    category: Some(ToolCategory::Execute),
    annotations: Some(ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() }),
    timeout_ms: Some(limit::YIELD_MS_MAX + 60_000),
    // It cuts its output itself, in the middle.
    max_output_chars: Some(0),
});

/// With the arguments by which a command leaves the sandbox.
static CONFINED_DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let mut definition = DEFINITION.clone();
    definition.description.push_str(" It runs in a sandbox, as commands of bash do.");
    offer(&mut definition);
    definition
});

fn parameters() -> Arguments {
    let mut parameters = Arguments::new();
    let mut add = |name: &str, parameter: Value| parameters.insert(name.to_owned(), parameter);
    add("cmd", json!({"type": "string", "description": "The command line", "required": true}));
    add("workdir", json!({"type": "string", "description": "Directory, relative to the working directory"}));
    add(
        "tty",
        json!({"type": "boolean", "description": "On a terminal, so that it can be typed to; default: no input"}),
    );
    add("shell", json!({"type": "string", "description": "Shell to run it with; the user may be asked"}));
    add(
        "login",
        json!({"type": "boolean", "description": "As a login shell, which reads the user's profile; default false"}),
    );
    exec_look::add_parameters(&mut parameters, limit::YIELD_MS);
    parameters
}

impl ExecCommand {
    /// The tool for a workspace.
    pub fn new(workspace: Arc<Workspace>, options: ExecOptions) -> Self {
        Self { workspace, options }
    }

    /// As `bash` would see the call: a patch typed into it is a patch.
    fn call(&self, arguments: &Arguments) -> BashCall {
        let mut alike = Arguments::new();
        for (here, there) in [("cmd", "command"), ("workdir", "cwd")] {
            if let Some(value) = arguments.get(here) {
                alike.insert(there.to_owned(), value.clone());
            }
        }
        bash_call(&self.workspace, &alike, self.options.sandbox.level() != Some(Level::ReadOnly))
    }

    /// What this call is held to.
    fn sandbox(&self, arguments: &Arguments) -> Result<Sandbox, ToolError> {
        Ok(if check_leave(arguments)? { Sandbox::default() } else { self.options.sandbox.clone() })
    }

    async fn directory(&self, arguments: &Arguments) -> Result<PathBuf, ToolError> {
        let given = text(arguments, "workdir")?;
        let workspace = Arc::clone(&self.workspace);
        let resolve = move || {
            let Some(given) = given else {
                workspace.is_there().map_err(|error| refused(&error))?;
                return Ok(workspace.working_directory().to_owned());
            };
            match workspace.resolve(&given) {
                Ok(path) if path.is_dir() => Ok(path),
                Ok(_) => Err(ToolError::Failed(format!("`workdir`: \"{given}\" is not a directory"))),
                Err(error) => Err(ToolError::Failed(error.to_string())),
            }
        };
        blocking(resolve).await?
    }

    /// What is started.
    async fn invocation(&self, arguments: &Arguments, context: &ToolContext) -> Result<Invocation, ToolError> {
        let command = command(arguments)?;
        let shell = text(arguments, "shell")?.map_or_else(|| self.options.shell.clone(), PathBuf::from);
        if shell.as_os_str().is_empty() {
            return Err(ToolError::BadArguments("`shell`: expected a shell, got an empty string".to_owned()));
        }
        let mut words = vec!["-c".into(), command.into()];
        if flag(arguments, "login")? {
            words.insert(0, "-l".into());
        }
        let plain = PLAIN.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut explicit = BTreeMap::from(plain);
        explicit.extend(self.options.env.clone());
        let mut environment = environment(inherited_environment(), &explicit);
        environment.push(context.scope.share().mark());
        let place = (&*self.workspace, &*context.scope);
        let confinement = self.sandbox(arguments)?.confinement(place, &environment, Vec::new()).await?;
        let directory = self.directory(arguments).await?;
        Ok(Invocation { program: shell.into(), arguments: words, directory, environment, confinement })
    }

    async fn execute(&self, arguments: &Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let mut look = Look::new(arguments, self.options.output_tokens)?;
        let wait = exec_look::wait(arguments, limit::YIELD_MS, limit::YIELD_MS_MIN)?;
        let size = flag(arguments, "tty")?.then(TerminalSize::default);
        let command = command(arguments)?;
        let invocation = self.invocation(arguments, context).await?;
        // Starting a program can take a millisecond. Whoever polls first gets its thread back before.
        tokio::task::yield_now().await;
        look.begun = Instant::now();
        let heard = follow(context, &DEFINITION.name);
        let start = move || Console::start_followed(&invocation, size, (&command, heard));
        let console = blocking(start).await?.map_err(|cause| ToolError::failed(cause.to_string()))?;
        let following = console.following(None);
        let ending = tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                console.end().await;
                return Err(ToolError::Aborted);
            }
            ending = console.wait(wait) => ending,
        };
        drop(following);
        let explain = |code: i32, output: &str| self.explain(arguments, code, output);
        if ending.is_some() {
            return Ok(look.report(&console, None, explain).0);
        }
        let consoles = &context.scope.consoles;
        let (id, replaced) = consoles.add(Arc::clone(&console));
        look.note_replaced(replaced.as_deref());
        look.note_many(consoles.len());
        let (output, code) = look.report(&console, Some(&id), explain);
        if let Some(code) = code {
            consoles.remove(&id, code);
        }
        Ok(output)
    }

    /// What a model is told when the command failed and the sandbox may be why.
    fn explain(&self, arguments: &Arguments, code: i32, output: &str) -> String {
        match self.sandbox(arguments) {
            Ok(sandbox) => sandbox.explain("exec_command", denial(output, code == 0), &self.workspace),
            Err(_) => String::new(),
        }
    }
}

impl Tool for ExecCommand {
    fn definition(&self) -> &ToolDefinition {
        if self.options.sandbox.level().is_some() { &CONFINED_DEFINITION } else { &DEFINITION }
    }

    fn insists(&self, arguments: &Arguments) -> bool {
        self.options.sandbox.level().is_some() && leaves(arguments)
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        command(arguments)?;
        self.sandbox(arguments).map(drop)
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("command", "cmd"), ("cwd", "workdir")]
    }

    fn place(&self, arguments: &Arguments, _: &ToolContext) -> Option<PathBuf> {
        match text(arguments, "workdir").ok()? {
            Some(asked) => self.workspace.resolve(&asked).ok(),
            None => Some(self.workspace.working_directory().to_owned()),
        }
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        if let BashCall::Patch(patch) = self.call(arguments) {
            return patch.call.subject();
        }
        let given = |name: &str| arguments.get(name).and_then(Value::as_str);
        let Some(command) = given("cmd") else { return Subject::None };
        let login = arguments.get("login") == Some(&Value::Bool(true));
        if !login && given("shell").is_none() {
            return Subject::Command(command.to_owned());
        }
        let shell = given("shell").map_or_else(|| self.options.shell.display().to_string(), str::to_owned);
        let login = if login { " -l" } else { "" };
        Subject::Command(format!("{}{login} -c {}", quoted(&shell), quoted(command)))
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
                BashCall::Shell => return self.execute(&arguments, context).await,
                BashCall::Refused(why) => return Err(ToolError::Failed(why)),
                BashCall::Patch(patch) => patch,
            };
            let (guard, cancel) = (Guard::new(&self.workspace, context), context.cancel.clone());
            blocking(move || patch.call.run(&guard, &cancel)).await?
        })
    }
}

fn command(arguments: &Arguments) -> Result<String, ToolError> {
    let most = limit::BASH_COMMAND_BYTES_MAX;
    let bad = |what: String| Err(ToolError::BadArguments(format!("`cmd`: expected {what}")));
    match text(arguments, "cmd")? {
        None => bad("a string, got nothing".into()),
        Some(command) if command.trim().is_empty() => bad("a command line, got an empty string".into()),
        Some(command) if command.contains('\0') => bad("a command line without NUL characters".into()),
        Some(command) if command.len() > most => {
            bad(format!("at most {most} bytes, got {}; write a script with fs_write and run that", command.len()))
        }
        Some(command) => Ok(command),
    }
}

/// One word of a shell's language that means `text`.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { bash_shell::quoted(text) }
}

/// The exit code that a model is told: as a shell tells it.
pub(super) fn code_of(ending: Ending) -> i32 {
    ending.code().unwrap_or(137)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::super::fs_common::testing::context;
    use super::super::write_stdin::WriteStdin;
    use super::*;
    use crate::protocol::EventBody;
    use crate::tool::ToolEvents;

    struct Place {
        directory: tempfile::TempDir,
        exec: ExecCommand,
        stdin: WriteStdin,
        context: ToolContext,
    }

    impl Place {
        fn new(options: ExecOptions) -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(directory.path().join("sub")).unwrap();
            let workspace = Arc::new(Workspace::new(directory.path(), &[]).unwrap());
            let context = context();
            let stdin = WriteStdin::new(Arc::clone(&workspace), options.clone());
            Self { directory, exec: ExecCommand::new(workspace, options), stdin, context }
        }

        async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<ToolOutput, ToolError> {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let call = tool.run(arguments, &self.context);
            tokio::time::timeout(Duration::from_secs(60), call).await.unwrap()
        }

        /// State and output of a call.
        async fn said(&self, tool: &dyn Tool, arguments: Value) -> (String, String) {
            let output = self.call(tool, arguments).await.unwrap();
            let lines: Vec<&str> = output.text.splitn(6, '\n').collect();
            assert!(lines[0].starts_with("Chunk ID: ") && lines[1].starts_with("Wall time: "), "{}", output.text);
            assert!(lines[3].starts_with("Original token count: ") && lines[4] == "Output:", "{}", output.text);
            (lines[2].to_owned(), lines[5].to_owned())
        }

        async fn exec(&self, arguments: Value) -> (String, String) {
            self.said(&self.exec, arguments).await
        }

        async fn stdin(&self, arguments: Value) -> (String, String) {
            self.said(&self.stdin, arguments).await
        }

        async fn fails(&self, tool: &dyn Tool, arguments: Value) -> String {
            self.call(tool, arguments).await.unwrap_err().to_string()
        }
    }

    fn place() -> Place {
        Place::new(ExecOptions::default())
    }

    const RUNS: &str = "Process running with session ID ";

    #[tokio::test]
    async fn what_ends_in_time_is_told_at_once() {
        let place = place();
        let table = [
            ("echo out; echo err >&2; echo out", 0, "out\nerr\nout\n"),
            ("printf ä; exit 3", 3, "ä"),
            ("kill -9 $$", 137, ""),
            ("cat; echo done", 0, "done\n"),
            ("echo \"$TERM $NO_COLOR $LC_ALL $PAGER $GH_PAGER [$COLORTERM]\"", 0, "dumb 1 C.UTF-8 cat cat []\n"),
        ];
        for (command, code, want) in table {
            let (state, output) = place.exec(json!({"cmd": command})).await;
            assert_eq!((state, output), (format!("Process exited with code {code}"), want.to_owned()), "{command}");
        }
        assert!(place.context.scope.consoles.is_empty(), "what has ended has no number");
        let output = place.call(&place.exec, json!({"cmd": "printf 12345"})).await.unwrap();
        let details = output.details.unwrap();
        let known = ["exitCode", "sessionId", "originalTokenCount", "outputBytes", "omittedBytes"].map(|f| &details[f]);
        assert_eq!(known, [&json!(0), &json!(null), &json!(2), &json!(5), &json!(0)]);
        assert!(output.text.contains(&format!("Chunk ID: {}\n", details["chunkId"].as_str().unwrap())));
    }

    #[tokio::test]
    async fn what_goes_on_is_a_session_from_1000_up() {
        let place = place();
        let start = json!({"cmd": "echo one; read x; echo got $x; read y; exit 4", "tty": true, "yield_time_ms": 250});
        let (state, output) = place.exec(start.clone()).await;
        assert_eq!((state, output), (format!("{RUNS}1000"), "one\n".to_owned()));
        assert_eq!(place.exec(start).await.0, format!("{RUNS}1001"));
        let (state, output) = place.stdin(json!({"session_id": "1000", "chars": "ä\n"})).await;
        assert_eq!((state, output), (format!("{RUNS}1000"), "ä\ngot ä\n".to_owned()));
        let (state, output) = place.stdin(json!({"session_id": "1000", "chars": "\n", "yield_time_ms": 20_000})).await;
        assert_eq!((state.as_str(), output.as_str()), ("Process exited with code 4", "\n"));
        let error = place.fails(&place.stdin, json!({"session_id": "1000"})).await;
        assert!(error.starts_with("session 1000 has ended with exit code 4"), "{error}");
        assert!(error.ends_with("there are 1001 (`echo one; read x; echo got $x; read y; exit 4`)"), "{error}");
        let (state, output) = place.stdin(json!({"session_id": "1001", "kill": true})).await;
        assert!(state.starts_with("Process exited with code 1") && output.is_empty(), "{state} {output}");
        assert!(place.context.scope.consoles.is_empty());
    }

    #[tokio::test]
    async fn what_is_written_while_a_call_waits_is_heard() {
        let mut place = place();
        let heard: Arc<Mutex<Vec<(String, String, String)>>> = Arc::default();
        let (all, at) = (Arc::clone(&heard), place.directory.path().to_owned());
        place.context.events = ToolEvents::new(move |event| {
            let EventBody::ToolCallOutput { call_id, name, text, .. } = event else { panic!("{event:?}") };
            // Only now can it go on.
            std::fs::write(at.join(text.lines().last().unwrap()), "").unwrap();
            all.lock().push((call_id, name, text));
        });
        let waits = |word: &str| format!("echo {word}; until test -e {word}; do sleep 0.01; done; ");
        let cmd = format!("{}{}read x; {}echo end", waits("one"), waits("two"), waits("three"));
        let (state, output) = place.exec(json!({"cmd": cmd, "tty": true, "yield_time_ms": 3000})).await;
        assert_eq!((state, output.as_str()), (format!("{RUNS}1000"), "one\ntwo\n"));
        place.context.call_id = "second".into();
        let typed = json!({"session_id": "1000", "chars": "\n", "yield_time_ms": 20_000});
        assert_eq!(place.stdin(typed).await.1, "\nthree\nend\n");
        let heard = heard.lock();
        let of = |call: &str, tool: &str| -> String {
            let own = heard.iter().filter(|(id, name, _)| id == call && name == tool);
            own.map(|(_, _, text)| text.replace("\r\n", "\n")).collect()
        };
        assert_eq!(of("call_1", "exec_command"), "one\ntwo\n");
        assert_eq!(of("second", "write_stdin"), "\nthree\nend\n");
    }

    #[tokio::test]
    async fn a_look_waits_for_the_end_and_no_longer() {
        let place = place();
        let (state, _) = place.exec(json!({"cmd": "sleep 1.5; echo late", "yield_time_ms": 1})).await;
        assert_eq!(state, format!("{RUNS}1000"));
        let begun = Instant::now();
        let (state, output) = place.stdin(json!({"session_id": "1000", "yield_time_ms": 250})).await;
        assert_eq!((state.as_str(), output.as_str()), ("Process exited with code 0", "late\n"));
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(500) && took < Duration::from_millis(4_900), "{took:?}");
    }

    #[tokio::test]
    async fn a_terminal_is_resized_and_interrupted() {
        let place = place();
        let command = "trap 'echo int' INT; while :; do read x; stty size; done";
        place.exec(json!({"cmd": command, "tty": true, "yield_time_ms": 250})).await;
        let (_, output) = place
            .stdin(json!({"session_id": "1000", "rows": 33, "cols": 101, "chars": "\n", "yield_time_ms": 500}))
            .await;
        assert_eq!(output, "\n33 101\n");
        place.stdin(json!({"session_id": "1000", "chars": "\u{3}"})).await;
        place.stdin(json!({"session_id": "1000", "chars": "\n"})).await;
        let (state, output) = place.stdin(json!({"session_id": "1000", "kill": true})).await;
        assert!(state.starts_with("Process exited"), "{state} {output}");
    }

    #[tokio::test]
    async fn without_a_terminal_there_is_no_input_but_an_interrupt() {
        let place = place();
        let command = "trap 'echo int; exit 9' INT; echo ready; while :; do sleep 0.05; done";
        place.exec(json!({"cmd": command, "yield_time_ms": 500})).await;
        for wrong in [json!({"chars": "x"}), json!({"rows": 1, "cols": 1})] {
            let mut call = json!({"session_id": "1000"});
            call.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
            let error = place.fails(&place.stdin, call).await;
            assert!(error.starts_with("session 1000 has no terminal and no input"), "{error}");
        }
        let interrupt = json!({"session_id": "1000", "chars": "\u{3}", "yield_time_ms": 20_000});
        let (state, output) = place.stdin(interrupt).await;
        assert_eq!((state.as_str(), output.as_str()), ("Process exited with code 9", "int\n"));
    }

    #[tokio::test]
    async fn long_output_is_cut_and_memory_bounded() {
        let place = place();
        let (_, output) = place.exec(json!({"cmd": "seq 1 10000", "max_output_tokens": 5})).await;
        assert_eq!(output, "1\n2\n3\n4\n5\n\n…12219 tokens truncated…\n999\n10000\n");
        let flood = json!({"cmd": "yes ääääääää", "yield_time_ms": 1000});
        let output = place.call(&place.exec, flood).await.unwrap();
        let details = output.details.unwrap();
        assert!(details["outputBytes"].as_u64().unwrap() > 2 << 20, "{details}");
        assert!(output.text.len() < 41_000 && !output.text.contains('\u{fffd}'), "{}", output.text.len());
        place.context.scope.consoles.end_all().await;
    }

    #[tokio::test]
    async fn an_abort_ends_what_the_call_started_and_only_stops_looking_at_the_rest() {
        let place = place();
        place.exec(json!({"cmd": "sleep 600", "yield_time_ms": 250})).await;
        let pid = place.directory.path().join("pid");
        let starts = json!({"cmd": "echo $$ > pid; sleep 600", "yield_time_ms": 30_000});
        let cancel = async {
            while std::fs::read_to_string(&pid).map_or(true, |text| !text.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            place.context.cancel.cancel();
        };
        let (result, ()) = tokio::join!(place.call(&place.exec, starts), cancel);
        assert_eq!(result, Err(ToolError::Aborted));
        let left = std::fs::read_to_string(&pid).unwrap();
        assert!(!std::path::Path::new("/proc").join(left.trim()).join("fd").exists(), "it went with the call");
        assert_eq!(place.call(&place.stdin, json!({"session_id": "1000"})).await, Err(ToolError::Aborted));
        assert_eq!(place.context.scope.consoles.get("1000").unwrap().ending(), None, "an earlier call's goes on");
    }

    #[tokio::test]
    async fn it_starts_inside_the_roots_in_the_shell_that_is_named() {
        let place = place();
        let sub = place.directory.path().canonicalize().unwrap().join("sub");
        let (_, output) = place.exec(json!({"cmd": "pwd", "workdir": "sub"})).await;
        assert_eq!(output.trim_end(), sub.to_string_lossy());
        let (_, output) = place.exec(json!({"cmd": "echo ${BASH_VERSION:+bash}; shopt -q login_shell && echo login", "shell": "bash", "login": true})).await;
        assert_eq!(output, "bash\nlogin\n");
        for (workdir, want) in
            [("..", "escapes the working directory"), ("/", "escapes"), ("none", "is not a directory")]
        {
            let error = place.fails(&place.exec, json!({"cmd": "pwd", "workdir": workdir})).await;
            assert!(error.contains(want), "{error}");
        }
        let options = ExecOptions {
            env: [("MINE".to_owned(), "1".to_owned()), ("TERM".to_owned(), "vt100".to_owned())].into(),
            ..ExecOptions::default()
        };
        assert_eq!(Place::new(options).exec(json!({"cmd": "echo $MINE $TERM"})).await.1, "1 vt100\n");
    }

    #[test]
    fn what_rules_are_held_against() {
        let place = place();
        let subject = |arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            place.exec.subject(&arguments)
        };
        let table = [
            (json!({"cmd": "git status"}), "git status"),
            (json!({"cmd": "git status", "shell": "/tmp/evil"}), "/tmp/evil -c 'git status'"),
            (json!({"cmd": "it's", "shell": "a b"}), r"'a b' -c 'it'\''s'"),
            (json!({"cmd": "ls", "login": true}), "/bin/sh -l -c ls"),
        ];
        for (arguments, want) in table {
            assert_eq!(subject(arguments), Subject::Command(want.to_owned()));
        }
        let patch = "apply_patch <<'E'\n*** Begin Patch\n*** Add File: new\n+x\n*** End Patch\nE\n";
        assert!(matches!(subject(json!({"cmd": patch, "workdir": "sub"})), Subject::Paths(_)));
    }

    #[tokio::test]
    async fn a_patch_is_a_patch() {
        let place = place();
        let patch = "apply_patch <<'E'\n*** Begin Patch\n*** Add File: new\n+x\n*** End Patch\nE\n";
        let done = place.call(&place.exec, json!({"cmd": patch, "workdir": "sub"})).await.unwrap().text;
        assert!(done.starts_with("Success."), "{done}");
        assert_eq!(std::fs::read_to_string(place.directory.path().join("sub/new")).unwrap(), "x\n");
    }

    #[tokio::test]
    async fn a_line_that_another_call_changed_is_not_sent_off() {
        let place = place();
        place.exec(json!({"cmd": "cat", "tty": true, "yield_time_ms": 250})).await;
        let arguments = |chars: &str| json!({"session_id": "1000", "chars": chars}).as_object().unwrap().clone();
        let context = |id: &str| ToolContext { call_id: id.into(), ..place.context.clone() };
        let judged = |call: &str, chars: &str| place.stdin.subject_in(&arguments(chars), &context(call));
        assert_eq!(judged("a", "r"), Subject::Command("r".into()));
        assert_eq!(judged("b", "m x\n"), Subject::Command("m x".into()));
        place.stdin.run(arguments("r"), &context("a")).await.unwrap();
        let error = place.stdin.run(arguments("m x\n"), &context("b")).await.unwrap_err().to_string();
        assert!(error.starts_with("nothing was typed: another call has typed on the same line"), "{error}");
        assert_eq!(judged("c", "m x\n"), Subject::Command("rm x".into()));
        place.stdin.run(arguments("m x\n"), &context("c")).await.unwrap();
        assert_eq!(judged("d", "ls\n"), Subject::Command("ls".into()));
        place.context.scope.consoles.end_all().await;
    }

    #[tokio::test]
    async fn what_is_typed_to_a_program_outside_the_sandbox_is_asked_each_time() {
        use crate::base::sandbox::{Mode, support};
        if !support().missing().is_empty() {
            eprintln!("not tested here: there is no sandbox");
            return;
        }
        let sandbox = Sandbox { mode: Mode::WorkspaceWrite, ..Sandbox::default() };
        let place = Place::new(ExecOptions { sandbox, ..ExecOptions::default() });
        let start =
            json!({"cmd": "sh", "tty": true, "yield_time_ms": 250, "outside_sandbox": true, "justification": "why"});
        assert_eq!(place.exec(start).await.0, format!("{RUNS}1000"));
        assert_eq!(place.exec(json!({"cmd": "sh", "tty": true, "yield_time_ms": 250})).await.0, format!("{RUNS}1001"));
        let given = |id: u64, chars: &str| json!({"session_id": id, "chars": chars}).as_object().unwrap().clone();
        let table = [
            (1000, "id\n", true),
            (1000, "", false),
            (1000, "\u{3}", false),
            (1001, "id\n", false),
            (9, "id\n", false),
        ];
        for (id, chars, want) in table {
            assert_eq!(place.stdin.insists_in(&given(id, chars), &place.context), want, "{id} {chars:?}");
        }
        let shown = place.stdin.preview(&given(1000, "id\n"), &place.context).await.unwrap();
        assert_eq!((&shown["outsideSandbox"], &shown["line"]), (&json!(true), &json!("id\n")));
        assert!(shown["note"].as_str().unwrap().contains("outside the sandbox"), "{shown}");
        let shown = place.stdin.preview(&given(1001, "id\n"), &place.context).await.unwrap();
        assert_eq!(shown["outsideSandbox"], json!(null));
        // Judged before there was such a session, as in one round with the call that starts it.
        let error = place.fails(&place.stdin, json!({"session_id": 1000, "chars": "echo a\n"})).await;
        assert!(error.starts_with("nothing was typed: session 1000 runs outside the sandbox"), "{error}");
        place.stdin.subject_in(&given(1000, "echo $((1+1))b\n"), &place.context);
        let (_, output) =
            place.stdin(json!({"session_id": 1000, "chars": "echo $((1+1))b\n", "yield_time_ms": 500})).await;
        assert!(output.contains("\n2b\n"), "{output}");
        place.context.scope.consoles.end_all().await;
    }

    #[tokio::test]
    async fn a_line_that_the_terminal_cuts_is_told() {
        let place = place();
        for (setting, line, cut) in [("", 4_095, false), ("", 4_096, true), ("stty -icanon; ", 4_096, false)] {
            let start = json!({"cmd": format!("{setting}cat > /dev/null"), "tty": true, "yield_time_ms": 500});
            let id = place.exec(start).await.0.replace(RUNS, "");
            let chars = format!("{}\n", "x".repeat(line));
            let (_, output) = place.stdin(json!({"session_id": id, "chars": chars})).await;
            assert_eq!(
                output.contains("[the terminal takes 4095 bytes of a line and drops the rest"),
                cut,
                "{setting}{line}"
            );
        }
        place.context.scope.consoles.end_all().await;
    }

    #[test]
    fn arguments_are_checked_before_anybody_is_asked() {
        use crate::base::sandbox::Mode;
        use crate::tool::validate_call;
        let sandbox = Sandbox { mode: Mode::WorkspaceWrite, ..Sandbox::default() };
        let place = Place::new(ExecOptions { sandbox, ..ExecOptions::default() });
        #[rustfmt::skip]
        let table: [(&dyn Tool, Value, Option<&str>); 6] = [
            (&place.exec, json!({"cmd": "ls"}), None),
            (&place.exec, json!({"cmd": "ls", "outside_sandbox": true}), Some("`justification`: expected the reason")),
            (&place.exec, json!({"cmd": " "}), Some("`cmd`: expected a command line")),
            (&place.stdin, json!({"session_id": 1001}), None),
            (&place.stdin, json!({"session_id": "1001"}), None),
            (&place.stdin, json!({"session_id": true}), Some("`session_id`: expected a string, got true")),
        ];
        for (tool, arguments, want) in table {
            let told = validate_call(tool, arguments.as_object().unwrap()).err().map(|bad| bad.0);
            assert!(told.as_deref().unwrap_or("").starts_with(want.unwrap_or("")), "{told:?}");
            assert_eq!(told.is_some(), want.is_some(), "{arguments}: {told:?}");
        }
    }

    #[test]
    fn looking_is_reading_and_typing_is_not() {
        let place = place();
        let judged = |arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            (place.stdin.judged_as(&arguments).category, place.stdin.may_repeat(&arguments))
        };
        let (read, execute) = (Some(ToolCategory::Read), Some(ToolCategory::Execute));
        let table = [
            (json!({"session_id": "1"}), (read, true)),
            (json!({"session_id": "1", "chars": ""}), (read, true)),
            (json!({"session_id": "1", "kill": true}), (read, false)),
            (json!({"session_id": "1", "chars": "\u{3}"}), (read, false)),
            (json!({"session_id": "1", "chars": "\n"}), (execute, false)),
            (json!({"session_id": "1", "chars": "\u{3}x"}), (execute, false)),
        ];
        for (arguments, want) in table {
            assert_eq!(judged(arguments.clone()), want, "{arguments}");
        }
    }

    #[tokio::test]
    async fn bad_arguments_name_the_field() {
        let place = place();
        place.exec(json!({"cmd": "sleep 600", "yield_time_ms": 250})).await;
        #[rustfmt::skip]
        let table: [(&dyn Tool, Value, &str); 15] = [
            (&place.exec, json!({}), "`cmd`: expected a string, got nothing"),
            (&place.exec, json!({"cmd": " "}), "`cmd`: expected a command line, got an empty string"),
            (&place.exec, json!({"cmd": "a\u{0}"}), "`cmd`: expected a command line without NUL characters"),
            (&place.exec, json!({"cmd": "x".repeat(120_001)}), "`cmd`: expected at most 120000 bytes, got 120001; write a script with fs_write and run that"),
            (&place.exec, json!({"cmd": "ls", "tty": 1}), "`tty`: expected true or false, got 1"),
            (&place.exec, json!({"cmd": "ls", "shell": ""}), "`shell`: expected a shell, got an empty string"),
            (&place.exec, json!({"cmd": "ls", "yield_time_ms": "1"}), "`yield_time_ms`: expected a number, got \"1\""),
            (&place.exec, json!({"cmd": "ls", "max_output_tokens": 0}), "`max_output_tokens`: expected 1 or more, got 0"),
            (&place.exec, json!({"cmd": "ls", "outside_sandbox": true}), "`justification`: expected the reason why the call must leave the sandbox, got nothing"),
            (&place.stdin, json!({"session_id": "7"}), "session 7 is not known; there are 1000 (`sleep 600`)"),
            (&place.stdin, json!({"session_id": "1000", "rows": 5}), "`cols`: expected a number beside `rows`, got nothing"),
            (&place.stdin, json!({"session_id": "1000", "cols": 5}), "`rows`: expected a number beside `cols`, got nothing"),
            (&place.stdin, json!({"session_id": "1000", "rows": 0, "cols": 5}), "`rows`: expected a number from 1 to 1000, got 0"),
            (&place.stdin, json!({"session_id": "1000", "kill": true, "chars": "x"}), "`kill`: expected no `chars` and no size beside it"),
            (&place.stdin, json!({"session_id": "1000", "chars": "x".repeat(65_537)}), "`chars`: expected at most 65536 bytes, got 65537"),
        ];
        for (tool, arguments, want) in table {
            assert_eq!(place.fails(tool, arguments).await, want);
        }
        let nowhere = place.fails(&place.exec, json!({"cmd": "ls", "shell": "/no/shell"})).await;
        assert!(nowhere.starts_with("cannot start /no/shell: "), "{nowhere}");
    }
}
