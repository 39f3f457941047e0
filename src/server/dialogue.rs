//! One client on a line that carries messages both ways: commands in, answers and events out (contract.md, Commands).
//! The line itself, a socket or a pipe, is somebody else's.
//!
//! What goes out waits in a short queue. When the client takes nothing, the events of its subscriptions stay where
//! they are, in the log, and no further command is read: so a slow client loses nothing and costs nothing.
//! Commands for which there is no room wait, and controls go past them (`room`).
//!
//! Invariants: every message that comes in has exactly one `response`. Events of a session go out in the order of
//! their numbers, each once, and only behind the answer to their subscription.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::out::Out;
use super::room::{Entry, Place, Room, Said};
use crate::app::{
    App, Attending, Begin, Caller, Command, EventReader, Handled, LifecycleReader, Message, Outcome, Response, Step,
    Submitted, Subscribe,
};
use crate::base::limit;
use crate::protocol::{ApiError, EVENT_TYPES, ErrorCode, Event, LIFECYCLE_TYPES, SessionId};

/// The protocol's own version.
const PROTOCOL: &str = "1.0.0";

/// A client and its line.
pub(super) struct Dialogue {
    app: Arc<App>,
    caller: Caller,
    out: Out,
    /// Room for commands under way.
    room: Arc<Room>,
    /// By session; None: all sessions of the caller.
    subscriptions: HashMap<Option<SessionId>, CancellationToken>,
    /// Ends everything that writes here.
    over: CancellationToken,
    /// Everything that writes here.
    tasks: TaskTracker,
    /// Messages without an id so far.
    unnamed: u64,
    /// Whether other servers share the store.
    among_nodes: bool,
    /// Whoever has a line open can be asked.
    _here: Attending,
}

/// The first message on a line.
pub(super) fn ready(transport: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "type": "server_ready", "serverVersion": version, "protocolVersion": PROTOCOL, "transport": transport })
        .to_string()
}

/// The last but one: turns get `grace` to finish, and no new work is taken on.
pub(super) fn shutdown(grace: Duration) -> String {
    let grace_ms = grace.as_millis();
    json!({ "type": "server_shutdown", "reason": "the server is stopping", "timeoutMs": grace_ms }).to_string()
}

impl Dialogue {
    /// A dialogue that writes into `out`.
    pub(super) fn new(app: Arc<App>, caller: Caller, out: Out) -> Self {
        let room = Room::new();
        let (subscriptions, over) = (HashMap::new(), CancellationToken::new());
        let (_here, among_nodes) = (app.attend(&caller), app.is_among_nodes());
        let tasks = TaskTracker::new();
        Self { app, caller, out, room, subscriptions, over, tasks, unnamed: 0, among_nodes, _here }
    }

    /// Takes a message. Waits when too much is under way on this line. False: nobody takes answers any more.
    pub(super) async fn take(&mut self, text: &[u8]) -> bool {
        match Message::parse(text) {
            Ok(Message::Command(command)) => {
                let text = self.among_nodes.then(|| Bytes::copy_from_slice(text)).ok_or(text.len());
                self.command(*command, text).await
            }
            Ok(Message::Subscribe(wish)) => self.subscribe(wish).await,
            Ok(Message::Unsubscribe { id, session }) => self.unsubscribe(id, session).await,
            Err(unread) => self.refuse((unread.id, unread.command.as_deref()), unread.error).await,
        }
    }

    /// Answers a message that could not be taken.
    pub(super) async fn refuse(&self, (id, command): (Option<String>, Option<&str>), error: ApiError) -> bool {
        let handled = Handled::refused(error);
        self.say(response((id.as_deref(), command), &handled)).await
    }

    /// Its room for commands.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Waits until nobody writes here any more.
    pub(super) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn say(&self, frame: String) -> bool {
        self.out.say(frame).await
    }

    async fn command(&mut self, command: Command, text: Result<Bytes, usize>) -> bool {
        let bytes = text.as_ref().map_or_else(|bytes| *bytes, Bytes::len);
        let entry = self.room.enter(Said { command, text: text.ok() }, bytes).await;
        let begin = Begins {
            app: Arc::clone(&self.app),
            caller: self.caller.clone(),
            out: self.out.clone(),
            over: self.over.clone(),
            tasks: self.tasks.clone(),
        };
        match entry {
            Some(Entry::Now(command, place)) => begin.begin(*command, place),
            Some(Entry::First) => {
                let (room, over) = (self.room(), self.over.clone());
                self.tasks.spawn(async move {
                    let all = async { while room.next(|command, place| begin.begin(command, place)).await {} };
                    tokio::select! {
                        () = all => {}
                        () = over.cancelled() => {}
                    }
                });
            }
            Some(Entry::Later) => {}
            None => return false,
        }
        !self.out.is_closed()
    }

    /// What the connection itself is asked is done by it, each time it is asked.
    async fn own(&mut self, (id, command): (Option<String>, &str), answer: Result<Value, ApiError>) -> bool {
        let id = id.unwrap_or_else(|| {
            self.unnamed += 1;
            format!("{}here:{}", crate::app::ANONYMOUS, self.unnamed)
        });
        let handled = match answer.and_then(|data| Handled::done(&data)) {
            Ok(handled) => handled,
            Err(error) => return self.refuse((Some(id), Some(command)), error).await,
        };
        let mark = |step: &str| json!({ "type": step, "id": id, "command": command });
        let mut finished = mark("command_finished");
        finished["success"] = true.into();
        let frames = [mark("command_accepted").to_string(), mark("command_started").to_string(), finished.to_string()];
        for frame in frames {
            if !self.say(frame).await {
                return false;
            }
        }
        self.say(response((Some(&id), Some(command)), &handled)).await
    }

    async fn subscribe(&mut self, wish: Subscribe) -> bool {
        let Subscribe { id, session, after, types } = wish;
        let command = (id, "subscribe");
        self.subscriptions.retain(|_, stop| !stop.is_cancelled());
        let room = self.subscriptions.contains_key(&session) || self.subscriptions.len() < limit::SUBSCRIPTIONS_MAX;
        let known = if session.is_some() { EVENT_TYPES } else { LIFECYCLE_TYPES };
        let opened = match (check_types(types.as_deref(), known), room) {
            (Err(error), _) => Err(error),
            (Ok(()), false) => {
                let message = format!("this connection has {} subscriptions already", limit::SUBSCRIPTIONS_MAX);
                Err(ApiError::new(ErrorCode::ResourceExhausted, message))
            }
            (Ok(()), true) => self.open(session.clone(), after).await,
        };
        let source = match opened {
            Ok(source) => source,
            Err(error) => return self.own(command, Err(error)).await,
        };
        // The one before, if there is one: what it has begun to say comes before the answer.
        if let Some(before) = self.subscriptions.remove(&session) {
            before.cancel();
        }
        let mut said = json!({ "position": source.position() });
        if let Some(since) = source.told_since() {
            said["endsSince"] = since.into();
        }
        let answered = self.own(command, Ok(said)).await;
        let stop = self.over.child_token();
        self.subscriptions.insert(session, stop.clone());
        let out = self.out.clone();
        self.tasks.spawn(async move {
            let told = Events { source, types, out };
            tokio::select! {
                // A frame that has been handed over goes out before it ends.
                () = told.tell() => {}
                () = stop.cancelled() => {}
            }
            stop.cancel();
        });
        answered
    }

    async fn open(&self, session: Option<SessionId>, begin: Begin) -> Result<Source, ApiError> {
        let Some(session) = session else {
            return self.app.lifecycle(&self.caller, begin).await.map(Source::All);
        };
        let after = match begin {
            Begin::Behind(number) => number,
            Begin::Newest => return Err(ApiError::invalid("after", "a whole number, 0 or more")),
        };
        let reader = self.app.events(&self.caller, &session, after).await?;
        Ok(Source::Session(session, reader))
    }

    async fn unsubscribe(&mut self, id: Option<String>, session: Option<SessionId>) -> bool {
        let stopped = match self.subscriptions.remove(&session) {
            Some(stop) => {
                stop.cancel();
                Ok(json!({ "unsubscribed": true }))
            }
            None => {
                let what = session.map_or_else(|| "all sessions".to_owned(), |id| format!("session {id}"));
                Err(ApiError::not_found(format!("subscription to {what} on this connection")))
            }
        };
        self.own((id, "unsubscribe"), stopped).await
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// What begins the commands of a dialogue.
struct Begins {
    app: Arc<App>,
    caller: Caller,
    out: Out,
    over: CancellationToken,
    tasks: TaskTracker,
}

impl Begins {
    fn begin(&self, said: Said, place: Place) {
        let submitted = self.app.submit_anywhere(self.caller.clone(), said.command, said.text);
        let (out, over) = (self.out.clone(), self.over.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = follow(submitted, &out) => {}
                () = over.cancelled() => {}
            }
            drop(place);
        });
    }
}

fn check_types(types: Option<&[String]>, known: &[&str]) -> Result<(), ApiError> {
    let strange = types.unwrap_or_default().iter().find(|name| !known.contains(&name.as_str()));
    strange.map_or(Ok(()), |name| {
        Err(ApiError::unfit("types", format!("some of {}", known.join(", ")), format!("`{name}`")))
    })
}

/// Tells the steps of a command, and its answer.
async fn follow(mut submitted: Submitted, out: &Out) {
    let (id, command) = (submitted.id.clone(), submitted.command);
    let mut mark = json!({ "type": "", "id": id, "command": command });
    if let Some(session) = &submitted.session {
        mark["sessionId"] = session.as_str().into();
    }
    while let Some(step) = submitted.next().await {
        let (kind, handled) = match step {
            Step::Accepted => ("command_accepted", None),
            Step::Started => ("command_started", None),
            Step::Done(handled) => ("command_finished", Some(handled)),
        };
        mark["type"] = kind.into();
        if let Some(handled) = &handled {
            mark["success"] = handled.outcome.error.is_none().into();
            if handled.replayed {
                mark["replayed"] = true.into();
            }
        }
        // What was refused never began, and so does not end.
        let told = handled.as_ref().is_none_or(|handled| handled.accepted);
        if told && !out.say(mark.to_string()).await {
            return;
        }
        if let Some(handled) = handled {
            out.say(response((Some(&id), Some(command)), &handled)).await;
            return;
        }
    }
}

fn response((id, command): (Option<&str>, Option<&str>), handled: &Handled) -> String {
    let outcome: &Outcome = &handled.outcome;
    let success = outcome.error.is_none();
    let response = Response { kind: "response", id, command, success, outcome, replayed: handled.replayed };
    serde_json::to_string(&response).unwrap_or_else(|cause| {
        tracing::error!(%cause, "an answer could not be written as JSON");
        let error = json!({ "code": "INTERNAL", "message": "the answer could not be written as JSON" });
        json!({ "type": "response", "id": id, "command": command, "success": false, "error": error }).to_string()
    })
}

/// Where the events of a subscription come from.
enum Source {
    /// A session's log.
    Session(SessionId, EventReader),
    /// All sessions of the caller: how they come and go.
    All(LifecycleReader),
}

impl Source {
    fn position(&self) -> u64 {
        match self {
            Self::Session(_, reader) => reader.position(),
            Self::All(reader) => reader.position(),
        }
    }

    /// Since when all ends of sessions are told, where some are no longer.
    fn told_since(&self) -> Option<u64> {
        match self {
            Self::Session(..) => None,
            Self::All(reader) => reader.told_since(),
        }
    }

    /// Says that there will be nothing more.
    fn ended(&self, reason: &str) -> String {
        let mut ended = json!({ "type": "subscription_ended", "reason": reason });
        if let Self::Session(session, _) = self {
            ended["sessionId"] = session.as_str().into();
        }
        ended.to_string()
    }
}

/// The events of a subscription.
struct Events {
    source: Source,
    types: Option<Vec<String>>,
    out: Out,
}

impl Events {
    /// Tells them to their end.
    async fn tell(mut self) {
        let reason = loop {
            match self.some().await {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return,
                Ok(None) => break "the session was deleted, or the server stops".to_owned(),
                Err(error) => break error.to_string(),
            }
        };
        self.out.say(self.source.ended(&reason)).await;
    }

    /// Tells the next ones. False: nobody takes them any more. None: there are no more.
    async fn some(&mut self) -> Result<Option<bool>, ApiError> {
        let way = (&self.out, self.types.as_deref());
        match &mut self.source {
            Source::Session(session, reader) => {
                let cursor = reader.position();
                let Some(batch) = reader.next().await? else { return Ok(None) };
                let head = format!(r#""type":"event","sessionId":"{session}""#);
                for event in batch.events.iter().filter(|event| event.seq > cursor) {
                    if !say(way, &head, event).await {
                        return Ok(Some(false));
                    }
                }
            }
            Source::All(reader) => {
                let Some(page) = reader.next().await? else { return Ok(None) };
                for (place, event) in &page.entries {
                    if !say(way, &format!(r#""type":"lifecycle_event","place":{place}"#), event).await {
                        return Ok(Some(false));
                    }
                }
            }
        }
        Ok(Some(true))
    }
}

/// Says an event, if it is one of the types that are wanted. One after the other: what waits is not kept as text.
async fn say((out, types): (&Out, Option<&[String]>), head: &str, event: &Event) -> bool {
    if types.is_some_and(|types| !types.iter().any(|kind| *kind == event.kind)) {
        return true;
    }
    // Plain data: it can be written.
    let Ok(text) = serde_json::to_string(event) else { return true };
    out.say(format!(r#"{{{head},"event":{text}}}"#)).await
}
