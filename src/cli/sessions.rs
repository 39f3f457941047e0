//! `simse sessions`: the sessions of a data directory, also while a server runs on it.

use serde_json::to_string;

use super::arguments::Sessions;
use super::client::Client;
use super::reach::Refusal;
use super::{Exit, found, screen};
use crate::base::clock::text_of_ms;
use crate::config::{Launch, LogLevel, Options};
use crate::protocol::{SessionStatus, SessionView};

/// Sessions that are fetched at once.
const PAGE: usize = 100;

/// Lists them, the newest first.
pub(super) async fn run(arguments: Sessions) -> Exit {
    match listed(&arguments).await {
        Ok(()) => Exit::Ok,
        Err((exit, words)) => {
            screen::last(words);
            exit
        }
    }
}

async fn listed(arguments: &Sessions) -> Result<(), Refusal> {
    let options = Options { data_dir: arguments.place.data_dir.clone(), ..Options::default() };
    let own = Options { log_level: Some(LogLevel::Warn), ..Options::default() };
    let launch = Launch::resolve(options, arguments.place.config.clone(), own)
        .map_err(|error| (Exit::Usage, error.to_string()))?;
    let launch = found::with_a_door(launch);
    if let Some(client) = found::neighbour(&launch).await {
        return print(arguments, &client).await;
    }
    if launch.data_directory.exists() && !launch.data_directory.is_dir() {
        return Err((Exit::Usage, format!("{}: expected a directory", launch.data_directory.display())));
    }
    if !launch.data_directory.is_dir() {
        screen::note(&format!("simse: {} is not there yet: no sessions", launch.data_directory.display()));
        return Ok(());
    }
    // Nobody has it: this process has it for a moment.
    let running = found::find(&launch).await.map_err(|error| (super::serve::exit_of(&error), error.to_string()))?;
    match running {
        found::Found::Other(client) => print(arguments, &client).await,
        found::Found::Own(own) => {
            let client = own.client();
            let printed = print(arguments, &client).await;
            let ended = own.stop().await.map_err(|error| (Exit::Failed, error.to_string()));
            printed.and(ended)
        }
    }
}

async fn print(arguments: &Sessions, client: &Client) -> Result<(), Refusal> {
    let mut cursor: Option<String> = None;
    let mut left = arguments.limit;
    while left > 0 {
        let page = client.sessions(cursor.as_deref(), PAGE).await.map_err(|error| (Exit::Failed, error.to_string()))?;
        for view in page.items.iter().take(left) {
            let text = if arguments.json { to_string(view).unwrap_or_default() } else { row(view) };
            screen::line(&text);
        }
        left = left.saturating_sub(page.items.len());
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
    Ok(())
}

/// A session in a line: id, when it was last worked in, what it does, where, and what it is about.
fn row(view: &SessionView) -> String {
    let at = text_of_ms(view.updated_at);
    let at = at.get(..16).unwrap_or(&at).replace('T', " ");
    let status = match (view.turn.is_some(), view.status) {
        (true, _) => "runs",
        (false, SessionStatus::Created) => "new",
        (false, SessionStatus::Active | SessionStatus::Completed) => "idle",
        (false, SessionStatus::Aborted) => "stopped",
    };
    let title = screen::short(view.title.as_deref().unwrap_or("(no title)"), 60);
    let place = screen::short(&view.working_directory.display().to_string(), 200);
    format!("{}  {at}  {status:<7}  {:>4} messages  {title}  {place}", view.session_id, view.message_count)
}
