//! `simse run`: one prompt for scripts. stdout carries the result, or the events with `--json`; all about them goes to stderr.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::arguments::Run;
use super::job::{Answers, Job};
use super::log::Log;
use super::reach::Refusal;
use super::show::{Face, Show};
use super::{Exit, screen, signal, typed};
use crate::base::text::counted;
use crate::protocol::{TurnRecord, TurnStatus, TurnStop};

/// Longest prompt in bytes; the server has its own limit of characters.
const PROMPT_BYTES_MAX: u64 = 8 << 20;
/// When it is said that standard input is waited for.
const WAITS: Duration = Duration::from_secs(3);
/// Largest schema.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// Runs a prompt to its end.
pub(super) async fn run(arguments: Run) -> Exit {
    match ran(arguments).await {
        Ok(exit) => exit,
        Err((exit, words)) => {
            screen::last(words);
            exit
        }
    }
}

async fn ran(arguments: Run) -> Result<Exit, Refusal> {
    let launch = arguments.reach.launch()?;
    let prompt = body(&arguments).await?;
    let log = Log::start(&launch);
    let mut signals = signal::each().map_err(|cause| (Exit::CannotStart, format!("no signals: {cause}")))?;
    let reached = arguments.reach.server(launch).await?;
    let worked = async {
        let session = arguments.reach.session(&reached).await?;
        if !arguments.json {
            screen::note(&format!("session {}, model {}", session.session_id, session.model));
        }
        let face = if arguments.json { Face::Json } else { Face::Aside };
        let answers = answers(&arguments);
        let mut job = Job::new(reached.client.clone(), session.session_id, answers, Show::on(face));
        let turn = job.run(&Value::Object(prompt), &mut signals).await;
        let turn = turn.map_err(|error| (Exit::Failed, error.to_string()))?;
        if !job.refused().is_empty() {
            let (calls, names) = (counted(job.refused().len(), "call"), job.refused().join(", "));
            screen::note(&format!("{calls} refused, because nobody could be asked: {names}"));
        }
        Ok(told(&turn, arguments.json))
    };
    let worked = worked.await;
    let ended = reached.end().await;
    log.flush();
    let exit = worked?;
    ended?;
    Ok(exit)
}

/// Prints the result, and says what it means for who started us.
fn told(turn: &TurnRecord, json: bool) -> Exit {
    let result = match (&turn.output, &turn.result) {
        (Some(output), _) => Some(output.to_string()),
        (None, Some(result)) => Some(result.clone()),
        (None, None) => None,
    };
    if let Some(result) = result.filter(|_| !json) {
        // A program may want the bytes as they are; a person's terminal is not to be steered.
        let shown = if std::io::stdout().is_terminal() { screen::clean(&result).into_owned() } else { result };
        screen::line(&shown);
    }
    let stopped = |why: &str| {
        screen::note(&format!("simse: the turn was stopped: {why}"));
        Exit::Stopped
    };
    match (turn.status, turn.stop_reason) {
        (_, Some(TurnStop::MaxIterations)) => stopped("the limit of rounds with the model"),
        (_, Some(TurnStop::Budget)) => stopped("a budget is spent"),
        (_, Some(TurnStop::Loop)) => stopped("the model went in a circle"),
        (TurnStatus::Completed, _) => Exit::Ok,
        (TurnStatus::Aborted | TurnStatus::Interrupted, _) => stopped(turn.reason.as_deref().unwrap_or("aborted")),
        (TurnStatus::Failed, _) => {
            let why = turn.error.as_ref().map_or("no reason given", |error| error.message.as_str());
            screen::note(&format!("simse: the turn failed: {}", screen::clean(why)));
            Exit::Failed
        }
        (TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused, _) => Exit::Failed,
    }
}

/// Who answers questions.
fn answers(arguments: &Run) -> Answers {
    if arguments.yes {
        return Answers::Allow("--yes");
    }
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !arguments.json;
    if person { Answers::Ask(typed::lines()) } else { Answers::Refuse }
}

/// What is sent.
async fn body(arguments: &Run) -> Result<Map<String, Value>, Refusal> {
    let said = arguments.prompt.join(" ");
    let wants_input = said == "-" || said.trim().is_empty();
    let piped = if wants_input || is_fed() { input(wants_input).await? } else { String::new() };
    let prompt = match (wants_input, piped.trim().is_empty()) {
        (true, _) => piped,
        (false, true) => said,
        (false, false) => format!("{said}\n\n{piped}"),
    };
    if prompt.trim().is_empty() {
        return Err((Exit::Usage, "expected a prompt: as an argument, or on standard input".to_owned()));
    }
    let mut body = Map::new();
    body.insert("prompt".to_owned(), json!(prompt));
    if let Some(file) = &arguments.schema {
        let schema = schema(file).map_err(|words| (Exit::Usage, format!("--schema: {words}")))?;
        body.insert("turn".to_owned(), json!({ "outputSchema": schema }));
    }
    Ok(body)
}

/// The schema in a file.
fn schema(file: &Path) -> Result<Map<String, Value>, String> {
    let said = |cause: &dyn std::fmt::Display| format!("{}: {cause}", file.display());
    let opened = std::fs::File::open(file).map_err(|cause| said(&cause))?;
    let mut text = Vec::new();
    opened.take(SCHEMA_BYTES_MAX + 1).read_to_end(&mut text).map_err(|cause| said(&cause))?;
    if text.len() as u64 > SCHEMA_BYTES_MAX {
        return Err(said(&format!("expected at most {SCHEMA_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&text).map_err(|cause| said(&format!("expected a JSON object: {cause}")))
}

/// Whether something may come on standard input that somebody meant: a pipe, a file, but no terminal and no device.
fn is_fed() -> bool {
    use rustix::fs::{FileType, fstat};
    let kind = fstat(std::io::stdin()).map(|found| FileType::from_raw_mode(found.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::RegularFile | FileType::Socket))
}

/// All of standard input.
async fn input(wanted: bool) -> Result<String, Refusal> {
    let reading = tokio::task::spawn_blocking(|| {
        let mut text = Vec::new();
        std::io::stdin().lock().take(PROMPT_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    tokio::pin!(reading);
    let read = match tokio::time::timeout(WAITS, &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            let hint = if wanted { "" } else { "; `< /dev/null` says that there is nothing" };
            screen::note(&format!("simse: waiting for the end of standard input{hint}"));
            reading.await
        }
    };
    let failed = |words: String| (Exit::Usage, format!("standard input: {words}"));
    let text = read.map_err(|cause| failed(cause.to_string()))?.map_err(|cause| failed(cause.to_string()))?;
    if text.len() as u64 > PROMPT_BYTES_MAX {
        return Err(failed(format!("expected at most {PROMPT_BYTES_MAX} bytes")));
    }
    String::from_utf8(text).map_err(|_| failed("expected UTF-8".to_owned()))
}
