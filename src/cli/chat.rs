//! `simse chat`: prompts line by line, for terminals that show nothing else and for pipes.

use std::io::IsTerminal;

use serde_json::json;

use super::arguments::Chat;
use super::job::{Answers, Job};
use super::log::Log;
use super::reach::{Reached, Refusal};
use super::show::{Face, Show};
use super::{Exit, screen, signal, typed};
use crate::protocol::TurnStatus;

const HELP: &str = "  /new        begin a new session
  /session    say which session this is
  /help       say this
  /exit       leave; so does the end of the input (Ctrl-D)
A line that ends with \\ goes on on the next one. Other lines that begin with / are commands of the project or the agent.
Ctrl-C stops a turn, and leaves when none runs.";

/// Talks until the input ends.
pub(super) async fn run(arguments: Chat) -> Exit {
    match talked(arguments).await {
        Ok(exit) => exit,
        Err((exit, words)) => {
            screen::last(words);
            exit
        }
    }
}

async fn talked(arguments: Chat) -> Result<Exit, Refusal> {
    let launch = arguments.reach.launch()?;
    let log = Log::start(&launch);
    let mut signals = signal::each().map_err(|cause| (Exit::CannotStart, format!("no signals: {cause}")))?;
    let reached = arguments.reach.server(launch).await?;
    let worked = talk(&arguments, &reached, &mut signals).await;
    let ended = reached.end().await;
    log.flush();
    let exit = worked?;
    ended?;
    Ok(exit)
}

async fn talk(
    arguments: &Chat,
    reached: &Reached,
    signals: &mut tokio::sync::mpsc::Receiver<i32>,
) -> Result<Exit, Refusal> {
    let session = arguments.reach.session(reached).await?;
    let person = std::io::stdin().is_terminal();
    if person {
        screen::line(&format!("session {}, model {}; /help says more", session.session_id, session.model));
    }
    let mut id = session.session_id.clone();
    let lines = Answers::Ask(typed::lines());
    let mut job = Job::new(reached.client.clone(), session.session_id, lines, Show::on(Face::Person));
    let mut exit = Exit::Ok;
    let mut prompt = String::new();
    loop {
        if person {
            screen::piece(if prompt.is_empty() { "> " } else { ". " });
        }
        let typed = tokio::select! {
            typed = job.line() => typed,
            _ = signals.recv() => None,
        };
        let Some(typed) = typed else {
            if person {
                screen::line("");
            }
            if typed::ended_early() {
                return Ok(Exit::Usage);
            }
            if prompt.trim().is_empty() {
                return Ok(exit);
            }
            break;
        };
        if let Some(more) = typed.strip_suffix('\\') {
            prompt.push_str(more);
            prompt.push('\n');
            continue;
        }
        prompt.push_str(&typed);
        let said = std::mem::take(&mut prompt);
        match said.trim() {
            "" => {}
            "/exit" | "/quit" => return Ok(exit),
            "/help" => screen::line(HELP),
            "/session" => screen::line(id.as_str()),
            "/new" => {
                let made = reached.create().await.map_err(|error| (Exit::Failed, error.to_string()))?;
                screen::line(&format!("session {}", made.session_id));
                id = made.session_id.clone();
                job.turn_to(made.session_id);
            }
            _ => exit = say(&mut job, &said, signals).await,
        }
    }
    // The input ended in the middle of a line.
    Ok(say(&mut job, &prompt, signals).await)
}

/// Sends a prompt and waits for its end. What fails is said, and is not the end.
async fn say(job: &mut Job, prompt: &str, signals: &mut tokio::sync::mpsc::Receiver<i32>) -> Exit {
    match job.run(&json!({ "prompt": prompt }), signals).await {
        Ok(turn) if turn.status == TurnStatus::Completed => Exit::Ok,
        Ok(_) => Exit::Failed,
        Err(error) => {
            job.show().line(&format!("  ! {error}"));
            Exit::Failed
        }
    }
}
