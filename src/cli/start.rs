//! `simse start`: the main job, before a person's eyes.
//!
//! A real server in this process, a session on a git repository, a prompt over HTTP, the live events,
//! the change at the end, and a verdict that does not come from the model: the tests are run again,
//! and the commits are counted.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::arguments::Start;
use super::client::ClientError;
use super::example_repository::{self, ExampleError};
use super::job::{Answers, Job};
use super::log::Log;
use super::program::{self, Ran};
use super::running::{Running, StartError};
use super::screen::{clean, excerpt, line, note};
use super::show::Show;
use super::{Exit, curl, screen, serve, signal, typed};
use crate::config::{ConfigError, Launch, LogLevel, Options};
use crate::protocol::TurnStatus;

/// How long a stop waits for the turn: who stops a job by hand does not want to wait for it.
const SHUTDOWN_GRACE_MS: u64 = 1_000;
/// Lines of a test run that are shown.
const TEST_LINES: usize = 14;

/// The job could not be done.
#[derive(Debug, thiserror::Error)]
enum JobError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Example(#[from] ExampleError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{program} is needed for this job and could not be started: {cause}")]
    Program { program: String, cause: std::io::Error },
    #[error("the server's answer: {cause}")]
    Answer { cause: serde_json::Error },
    #[error("{doing}: {cause}")]
    System { doing: &'static str, cause: std::io::Error },
}

/// What is to be done, and where.
struct Task {
    prompt: String,
    directory: PathBuf,
    /// Whether it is the example, made for this run.
    example: bool,
    /// A shell command that decides about success.
    check: Option<String>,
    /// The commit before the job. None: no repository, or no commit in it.
    before: Option<String>,
}

/// Does the job; then serves until a signal, unless `--once`.
pub(super) async fn run(arguments: Start) -> Exit {
    if arguments.prompt.is_none() && arguments.options.cwd.is_some() {
        screen::problem("--cwd needs --prompt: the example has a directory of its own");
        return Exit::Usage;
    }
    if arguments.prompt.as_deref().is_some_and(|prompt| prompt.trim().is_empty()) {
        screen::problem("--prompt: expected some text");
        return Exit::Usage;
    }
    match tempfile::Builder::new().prefix("simse-").tempdir() {
        Ok(place) => in_place(arguments, &place).await,
        Err(cause) => {
            screen::problem(format_args!("cannot make a temporary directory: {cause}"));
            Exit::CannotStart
        }
    }
}

async fn in_place(arguments: Start, place: &TempDir) -> Exit {
    let stop = match signal::stop_requested() {
        Ok(stop) => stop,
        Err(cause) => return report(&JobError::System { doing: "no signals", cause }),
    };
    let once = arguments.once;
    let (running, launch, worked) = match prepared(arguments, place.path(), &stop).await {
        Ok(done) => done,
        Err(error) => return report(&error),
    };
    let (exit, session) = match worked {
        Ok(Done { good: true, session }) => (Exit::Ok, session),
        Ok(Done { good: false, session }) => (Exit::Failed, session),
        Err(error) => (report(&error), String::new()),
    };
    if !once && !stop.is_cancelled() {
        line(&farewell(&running, &launch, &session));
        stop.cancelled().await;
        note("stopping");
    }
    match running.stop().await {
        Ok(()) => exit,
        Err(error) => {
            screen::last(format_args!("not everything could be stored: {error}"));
            Exit::Failed
        }
    }
}

fn report(error: &JobError) -> Exit {
    screen::last(error);
    match error {
        JobError::Config(_) => Exit::Usage,
        JobError::Start(error) => serve::exit_of(error),
        JobError::Example(_)
        | JobError::Client(_)
        | JobError::Program { .. }
        | JobError::Answer { .. }
        | JobError::System { .. } => Exit::Failed,
    }
}

/// A job that was worked on to its end.
#[derive(Default)]
struct Done {
    session: String,
    good: bool,
}

type Worked = Result<Done, JobError>;

/// Makes the example where it is wanted, starts the server, and works.
async fn prepared(
    arguments: Start,
    place: &Path,
    stop: &CancellationToken,
) -> Result<(Running, Launch, Worked), JobError> {
    let example = arguments.prompt.is_none();
    let shop = place.join("corner-shop");
    let mut options = arguments.options;
    if example {
        std::fs::create_dir(&shop).map_err(|cause| JobError::System { doing: "cannot make a directory", cause })?;
        options.root = Some(vec![shop.clone()]);
        options.cwd = Some(shop);
    }
    // Below everything that is said: an own port, an own place for the data, a quiet log.
    let data = place.join("data");
    let own = Options {
        socket: Some(place.join("socket")),
        port: Some(0),
        data_dir: Some(data),
        log_level: Some(LogLevel::Warn),
        shutdown_grace_ms: Some(SHUTDOWN_GRACE_MS),
        ..Options::default()
    };
    let launch = Launch::resolve(options, arguments.config, own)?;
    let log = Log::start(&launch);
    let mut task = Task {
        prompt: arguments.prompt.unwrap_or_else(|| example_repository::PROMPT.to_owned()),
        directory: launch.settings.working_directory.clone(),
        example,
        check: arguments.check,
        before: None,
    };
    make_ready(&mut task).await?;
    line("== Starting the server");
    let running = Running::start(&launch).await?;
    if let Err(error) = running.write_port_file().await {
        drop(running.stop().await);
        return Err(StartError::from(error).into());
    }
    line(&format!("   it listens on {}", running.url));
    let answers = answers(&task, arguments.yes);
    let worked = tokio::select! {
        worked = work(&running, &task, answers) => worked,
        () = stop.cancelled() => {
            note("stopping before the job is done");
            Ok(Done::default())
        }
    };
    log.flush();
    Ok((running, launch, worked))
}

/// The repository before the job, and that its test really fails.
async fn make_ready(task: &mut Task) -> Result<(), JobError> {
    if task.example {
        for needed in ["git", "node"] {
            let found = program::run(&task.directory, needed, &["--version"]).await;
            found.map_err(|cause| JobError::Program { program: needed.to_owned(), cause })?;
        }
        line("== Making a small git repository with a failing test");
        example_repository::create(&task.directory).await?;
        line(&format!("   {}", task.directory.display()));
        line("== Running its tests, before anything is done");
        let ran = tests(task).await?;
        line(excerpt(&summary_of(&ran.output), TEST_LINES).trim_end());
    } else {
        line(&format!("== Working in {}", task.directory.display()));
    }
    task.before = head(&task.directory).await;
    Ok(())
}

/// Who answers permission questions.
fn answers(task: &Task, yes: bool) -> Answers {
    if task.example {
        return Answers::Allow("the repository was made for this run");
    }
    if yes {
        return Answers::Allow("--yes");
    }
    if std::io::stdin().is_terminal() { Answers::Ask(typed::lines()) } else { Answers::Refuse }
}

/// The session and the turn; then the change, and the verdict.
async fn work(running: &Running, task: &Task, answers: Answers) -> Worked {
    line("== Opening a session on it: POST /sessions");
    let client = running.client();
    let created = client.call("POST", "/sessions", Some(&session_body(task))).await?;
    let said = |name: &str| created.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (session, model) = (said("sessionId"), said("model"));
    line(&format!("   session {session}, model {model}"));
    if model.starts_with("demo/") {
        line("   No model is configured, so a built-in script drives the job. It is no language model: it is a");
        line("   recording, with an answer for each way that a call of a tool may end. OPENAI_API_KEY, or");
        line("   OPENAI_BASE_URL with --model openai/NAME, runs the same job on a real model.");
    }
    line("== Sending the prompt, and watching the session's events as they come");
    let id = serde_json::from_value(json!(session)).map_err(|cause| JobError::Answer { cause })?;
    // A signal ends the whole command, and so the turn.
    let (_held, mut signals) = mpsc::channel(1);
    let prompt = json!({ "prompt": task.prompt });
    let turn = Job::new(client, id, answers, Show::default()).run(&prompt, &mut signals).await?;
    show_change(task).await?;
    let good = verdict(task, turn.status == TurnStatus::Completed).await?;
    Ok(Done { session, good })
}

/// The session's rules. A directory of one's own keeps the server's.
fn session_body(task: &Task) -> Value {
    if !task.example {
        return json!({ "workingDirectory": task.directory });
    }
    let allow = |tool: &str, pattern: Option<&str>| match pattern {
        Some(pattern) => json!({ "tool": tool, "pattern": pattern, "policy": "allow" }),
        None => json!({ "tool": tool, "policy": "allow" }),
    };
    let rules = [
        json!({ "tool": "*", "category": ["read", "search"], "policy": "allow" }),
        allow("fs_edit", None),
        allow("fs_write", None),
        allow("bash", Some("node --test *")),
        allow("bash", Some("npm test *")),
    ];
    json!({
        "workingDirectory": task.directory,
        "title": "The failing test of the corner shop",
        "toolPermissions": { "defaultPolicy": "ask", "rules": rules },
    })
}

async fn show_change(task: &Task) -> Result<(), JobError> {
    let now = head(&task.directory).await;
    let (title, arguments): (&str, &[&str]) = match (&task.before, &now) {
        (_, None) => return Ok(()),
        (before, now) if before == now => {
            ("== No new commit; what is changed in the directory", &["diff", "--stat", "-p"])
        }
        _ => ("== The commit", &["show", "--stat", "-p", "HEAD"]),
    };
    line(&format!("\n{title}"));
    let shown = git(&task.directory, arguments).await?;
    for text in clean(&shown.output).lines() {
        line(&format!("   {text}"));
    }
    Ok(())
}

/// Whether the job is done, by what can be seen.
async fn verdict(task: &Task, completed: bool) -> Result<bool, JobError> {
    line("\n== Verdict");
    let mut good = completed;
    line(&format!("   {} the turn ended by itself", mark(good)));
    if task.example || task.check.is_some() {
        let ran = tests(task).await?;
        line(&format!("   {} the tests pass", mark(ran.succeeded)));
        if !ran.succeeded {
            line(excerpt(&summary_of(&ran.output), TEST_LINES).trim_end());
        }
        good &= ran.succeeded;
    }
    if task.example {
        let committed = head(&task.directory).await != task.before;
        line(&format!("   {} there is a new commit", mark(committed)));
        let base = task.before.as_deref().unwrap_or("HEAD");
        let untouched = git(&task.directory, &["diff", "--quiet", base, "--", "test", "package.json"]).await?.succeeded;
        line(&format!("   {} the tests themselves are as they were", mark(untouched)));
        good &= committed && untouched;
    }
    line(if good { "   The job is done." } else { "   The job is not done." });
    Ok(good)
}

fn mark(good: bool) -> &'static str {
    if good { "yes:" } else { "NO: " }
}

/// The example's tests, or what `--check` says.
async fn tests(task: &Task) -> Result<Ran, JobError> {
    let shell;
    let command: &[&str] = match &task.check {
        Some(check) => {
            shell = ["sh", "-c", check.as_str()];
            &shell
        }
        None => example_repository::TEST_COMMAND,
    };
    let (name, arguments) = command.split_first().unwrap_or((&"true", &[]));
    let ran = program::run(&task.directory, name, arguments).await;
    ran.map_err(|cause| JobError::Program { program: (*name).to_owned(), cause })
}

/// The lines of a test run that say how it went: failures and totals.
fn summary_of(output: &str) -> String {
    let telling = |text: &&str| {
        let text = text.trim_start();
        ["not ok", "ok ", "# tests", "# pass", "# fail", "\u{2716}", "\u{2714}", "\u{2139} pass", "\u{2139} fail"]
            .iter()
            .any(|start| text.starts_with(start))
    };
    let lines: Vec<&str> = output.lines().filter(telling).collect();
    if lines.is_empty() { output.to_owned() } else { lines.join("\n") }
}

async fn head(directory: &Path) -> Option<String> {
    let ran = git(directory, &["rev-parse", "--verify", "--quiet", "HEAD"]).await.ok()?;
    ran.succeeded.then(|| ran.output.trim().to_owned())
}

async fn git(directory: &Path, arguments: &[&str]) -> Result<Ran, JobError> {
    let ran = program::run(directory, "git", arguments).await;
    ran.map_err(|cause| JobError::Program { program: "git".to_owned(), cause })
}

/// How to talk to the server that stays up.
fn farewell(running: &Running, launch: &Launch, session: &str) -> String {
    let path = |what: &str| format!("/sessions/{session}{what}");
    let write = "-H 'Content-Type: application/json' ";
    let prompt = format!("{write}-d '{{\"prompt\":\"What did you change?\"}}' ");
    let mut lines = vec![
        format!("\nThe server stays up on {}. In another terminal:", running.url),
        format!("\n  # what it can do\n  {}", curl(running, launch, "", "/tools")),
    ];
    if !session.is_empty() {
        lines.push(format!(
            "\n  # the session, and its events from the first on (Ctrl-C ends)\n  {}",
            curl(running, launch, "", &path(""))
        ));
        lines.push(format!("  {}", curl(running, launch, "-N ", &path("/events"))));
        lines.push(format!(
            "\n  # another prompt, with its events\n  {}",
            curl(running, launch, &format!("-N -H 'Accept: text/event-stream' {prompt}"), &path("/prompt"))
        ));
    }
    lines.push("\nCtrl-C stops it.".to_owned());
    lines.join("\n")
}
