//! What the interface asks of the server, beside what it shows: each call is a task, and comes back as a message.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::super::client::{Client, ClientError};
use super::super::follow::{Follow, News};
use super::dialog::{Choice, Pick};
use super::offers::Offer;
use crate::base::text::percent_encoded;
use crate::protocol::{Event, FilesView, Item, Page, SessionId, SessionView, TaskView};

/// Items of a page of the history.
const PAGE: usize = 200;
/// Longest pause between two attempts to see a session.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Files that are asked for at a time: more than are offered, so that a letter more finds some while its answer is on its way.
const FILES: usize = 100;

/// What comes back. Those of a session carry the number of the look at it: what belongs to an earlier one is passed over.
#[derive(Debug)]
pub(super) enum Message {
    /// The session as it is.
    Opened(u64, Box<SessionView>),
    /// Its next event.
    Event(u64, Box<Event>),
    /// How the line to the server is; None: it is open.
    Line(u64, Option<String>),
    /// The session's own facts are others now.
    Facts(u64, Box<SessionView>),
    /// What lies further back.
    Older(u64, Result<Page<Item>, String>),
    Tasks(u64, Vec<TaskView>),
    /// Another session is to be looked at.
    GoTo(Box<SessionView>),
    /// The lines of a list.
    Listed(Pick, Vec<Choice>),
    /// A text to be read.
    Read(String, String),
    Commands(Vec<Offer>),
    /// Agents that a prompt can begin with.
    Agents(Vec<String>),
    /// The files that some letters mean.
    Files(String, Vec<String>),
    /// How many tokens the session's model can be shown.
    Window(u64),
    /// Something was done, or not.
    Told(bool, String),
    /// A prompt was not taken: it comes back.
    NotSent(String, String),
}

/// The way to the server, for the tasks.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) client: Client,
    pub(super) tell: mpsc::Sender<Message>,
}

impl Work {
    /// Calls in the background; what is made of the answer comes as a message. None: nothing.
    pub(super) fn call(
        &self,
        (method, path): (&'static str, String),
        body: Option<Value>,
        then: impl FnOnce(Result<Value, ClientError>) -> Option<Message> + Send + 'static,
    ) {
        let work = self.clone();
        tokio::spawn(async move {
            let answer = work.client.call(method, &path, body.as_ref()).await;
            if let Some(message) = then(answer) {
                // Who has left hears nothing.
                let _ = work.tell.send(message).await;
            }
        });
    }

    /// The same for what is only done: a failure is told, and success where there are words for it.
    pub(super) fn order(&self, method: &'static str, path: String, body: Option<Value>, done: &'static str) {
        self.call((method, path), body, move |answer| match answer {
            Ok(_) if done.is_empty() => None,
            Ok(_) => Some(Message::Told(true, done.to_owned())),
            Err(error) => Some(Message::Told(false, words(&error))),
        });
    }

    /// Follows a session for as long as the handle lives.
    pub(super) fn follow(&self, id: &SessionId, look: u64) -> AbortOnDropHandle<()> {
        let (work, id) = (self.clone(), id.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut pause = Duration::from_millis(200);
            loop {
                let error = match work.followed(&id, look).await {
                    Ok(()) => return,
                    Err(error) => error,
                };
                let told = work.tell.send(Message::Line(look, Some(words(&error)))).await;
                if told.is_err() || error.is_final() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }))
    }

    async fn followed(&self, id: &SessionId, look: u64) -> Result<(), ClientError> {
        let view: SessionView = self.client.read(&format!("/sessions/{id}?snapshot=true&limit={PAGE}")).await?;
        let after = view.snapshot.as_ref().map_or(view.last_seq, |snapshot| snapshot.seq);
        let mut follow = Follow::new(self.client.clone(), id.to_string(), after, None);
        follow.open().await?;
        let mut told = self.tell.send(Message::Opened(look, Box::new(view))).await;
        while told.is_ok() {
            told = match follow.next().await? {
                News::Event(event) => self.tell.send(Message::Event(look, event)).await,
                News::Broken(why) => self.tell.send(Message::Line(look, Some(why))).await,
                News::Back => self.tell.send(Message::Line(look, None)).await,
            };
        }
        Ok(())
    }

    /// Asks for what lies before a place in the history.
    pub(super) fn older(&self, id: &SessionId, look: u64, before: &str) {
        let path = format!("/sessions/{id}/history?back=true&limit={PAGE}&cursor={before}");
        self.call(("GET", path), None, move |answer| {
            let page = answer.map_err(|error| words(&error));
            let page = page.and_then(|page| serde_json::from_value(page).map_err(|cause| cause.to_string()));
            Some(Message::Older(look, page))
        });
    }

    /// Asks what the session is now.
    pub(super) fn facts(&self, id: &SessionId, look: u64) {
        let path = format!("/sessions/{id}?snapshot=true&limit=1");
        self.call(("GET", path), None, move |answer| {
            let view = serde_json::from_value(answer.ok()?).ok()?;
            Some(Message::Facts(look, Box::new(view)))
        });
    }

    /// Asks for the tasks of the session's tree.
    pub(super) fn tasks(&self, id: &SessionId, look: u64) {
        self.call(("GET", format!("/sessions/{id}/tasks?limit=50")), None, move |answer| {
            let page: Page<TaskView> = serde_json::from_value(answer.ok()?).ok()?;
            Some(Message::Tasks(look, page.items))
        });
    }

    /// Asks which files of the session's directory some letters mean.
    pub(super) fn files(&self, id: &SessionId, letters: &str) {
        let path = format!("/sessions/{id}/files?limit={FILES}&query={}", percent_encoded(letters));
        let letters = letters.to_owned();
        self.call(("GET", path), None, move |answer| {
            let view: FilesView = serde_json::from_value(answer.ok()?).ok()?;
            Some(Message::Files(letters, view.entries.into_iter().map(|entry| entry.path).collect()))
        });
    }
}

/// What the server says, without the call that it answers.
pub(super) fn words(error: &ClientError) -> String {
    match error {
        ClientError::Refused { message, .. } => message.clone(),
        ClientError::Broken { .. } => error.to_string(),
    }
}
