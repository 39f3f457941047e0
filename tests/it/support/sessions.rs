//! An app over scripted models, and sessions in it.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use simse::app::{App, Caller, EventPage, Extras};
use simse::config::{Provider, Settings};
use simse::protocol::{CreateSession, EventBody, Prompt, SessionId, TurnRecord};

use super::http::within;

/// One of `[[providers]]`.
pub fn provider(entry: Value) -> Provider {
    serde_json::from_value(entry).expect("a provider")
}

/// An app that works in a directory.
pub async fn open(directory: &Path, change: impl FnOnce(&mut Settings)) -> Arc<App> {
    let mut settings = Settings::new(directory.canonicalize().unwrap());
    change(&mut settings);
    App::open(settings, Extras::default()).await.expect("it opens")
}

/// A new session.
pub async fn session(app: &App, body: Value) -> SessionId {
    let body: CreateSession = serde_json::from_value(body).unwrap();
    app.create_session(&Caller::default(), body).await.expect("a session").session_id
}

/// The turn of a prompt, when it has ended.
pub async fn turn(app: &App, session: &SessionId, body: Value) -> TurnRecord {
    let body: Prompt = serde_json::from_value(body).unwrap();
    let accepted = app.prompt(&Caller::default(), session, body).await.expect("accepted");
    within(app.wait_turn(&Caller::default(), session, &accepted.turn_id)).await.expect("it ends")
}

/// All events of a session so far.
pub async fn events(app: &App, session: &SessionId) -> Vec<EventBody> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let wanted = EventPage { after, limit: 1_000, types: None };
        let page = app.event_page(&Caller::default(), session, wanted).await.expect("events");
        all.extend(page.items.iter().filter_map(simse::protocol::Event::body));
        match page.next_cursor {
            Some(next) => after = next.parse().expect("a number"),
            None => return all,
        }
    }
}
