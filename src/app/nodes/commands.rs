//! Commands that come over a line of this node for sessions of others: each is carried to the node that has its session, in the order in
//! which they came, controls beside them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::handed::Roads;
use super::{ANSWER_BYTES_MAX, COMMAND_PATH, CallerPassed, Handing, Holder, PATIENCE, PAUSE, Unanswered, Whereabouts};
use crate::app::{App, Caller, Command, Handled, Message, Outcome, Step, Submitted};
use crate::base::http::whole;
use crate::protocol::{ApiError, ErrorCode, SessionId};

/// What a node answers another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    outcome: Outcome,
    replayed: bool,
    accepted: bool,
}

/// A command on its way, and who waits for its steps.
struct Carried {
    caller: Caller,
    command: Command,
    raw: Bytes,
    tell: mpsc::Sender<Step>,
}

/// The ways to other nodes.
#[derive(Default)]
pub(in crate::app) struct Ways {
    /// Of commands, by session.
    lines: Mutex<HashMap<SessionId, mpsc::UnboundedSender<Carried>>>,
    pub(in crate::app) roads: Roads,
}

impl App {
    /// Takes a command on that came as this text; does it here, or has it done where its session is.
    pub fn submit_anywhere(self: &Arc<Self>, caller: Caller, command: Command, raw: Option<Bytes>) -> Submitted {
        let (Some(raw), Some(session)) = (raw, command.session.clone()) else { return self.submit(caller, command) };
        if self.store.cluster().is_none() || command.makes_session() || self.sessions.is_awake(&session) {
            return self.submit(caller, command);
        }
        let (tell, submitted) = self.commands.announced(&command);
        let is_control = command.is_control();
        let carried = Carried { caller, command, raw, tell };
        if is_control {
            let app = Arc::clone(self);
            tokio::spawn(async move { app.carry(carried).await });
        } else {
            self.enqueue(session, carried);
        }
        submitted
    }

    /// Behind those of the same session that came before.
    fn enqueue(self: &Arc<Self>, session: SessionId, carried: Carried) {
        let mut ways = self.ways.lines.lock();
        let carried = match ways.get(&session) {
            // Bounded by the room of its line.
            Some(way) => match way.send(carried) {
                Ok(()) => return,
                Err(back) => back.0,
            },
            None => carried,
        };
        // Unbounded: each line has room for so many commands and no more.
        let (way, mut queue) = mpsc::unbounded_channel();
        drop(way.send(carried));
        ways.insert(session.clone(), way);
        drop(ways);
        let app = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                while let Ok(carried) = queue.try_recv() {
                    app.carry(carried).await;
                }
                // Under the lock: what comes later finds no way, and makes one.
                let mut ways = app.ways.lines.lock();
                if queue.is_empty() {
                    ways.remove(&session);
                    return;
                }
            }
        });
    }

    /// Does a command, here or there. Comes back as soon as the next one of its session may follow.
    async fn carry(self: &Arc<Self>, carried: Carried) {
        let Carried { caller, command, raw, tell } = carried;
        match self.done_elsewhere(&caller, (&command, raw)).await {
            Ok(Some(handled)) => {
                if handled.accepted {
                    drop(tell.try_send(Step::Accepted));
                    drop(tell.try_send(Step::Started));
                }
                drop(tell.try_send(Step::Done(handled)));
            }
            Ok(None) => {
                let mut submitted = self.submit(caller, command);
                tokio::spawn(async move {
                    while let Some(step) = submitted.next().await {
                        drop(tell.try_send(step));
                    }
                });
            }
            Err(error) => drop(tell.try_send(Step::Done(Handled::refused(error)))),
        }
    }

    /// Has it done where its session is. None: that is here.
    async fn done_elsewhere(
        &self,
        caller: &Caller,
        (command, raw): (&Command, Bytes),
    ) -> Result<Option<Handled>, ApiError> {
        let Some(session) = &command.session else { return Ok(None) };
        let repeats = command.id.is_some() || command.key.is_some() || command.is_read();
        let handing = Handing { repeats, waits: !command.is_control() && !command.is_read() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Whereabouts::At(holder) = self.whereabouts(session, !command.is_read()).await? else { return Ok(None) };
            let why = match self.ask_node((&holder, session), caller, (raw.clone(), handing)).await {
                Ok(handled) => return Ok(Some(handled)),
                Err(Unanswered::Undone(why)) => why,
                Err(Unanswered::Unknown(why)) if repeats => why,
                Err(Unanswered::Unknown(why)) => {
                    let message =
                        format!("{}, which has the session, was lost ({why}): it may have been done", holder.name);
                    return Err(ApiError::new(ErrorCode::UpstreamUnavailable, message));
                }
            };
            if Instant::now() >= deadline {
                let message = format!("{}, which has the session, does not answer: {why}", holder.name);
                return Err(ApiError::new(ErrorCode::UpstreamUnavailable, message));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn ask_node(
        &self,
        (holder, session): (&Holder, &SessionId),
        caller: &Caller,
        (raw, handing): (Bytes, Handing),
    ) -> Result<Handled, Unanswered> {
        let strange = |cause: String| Unanswered::Unknown(cause);
        let unsaid = |cause: String| Unanswered::Undone(cause);
        let Some(key) = self.node_key() else { return Err(unsaid("nobody else has the store".into())) };
        let request = http::Request::post(format!("{}{COMMAND_PATH}", holder.url)).body(raw);
        let mut request = request.map_err(|cause| unsaid(cause.to_string()))?;
        let passed = CallerPassed::of(caller, None);
        let signed = key.sign(request.headers_mut(), (&Method::POST, COMMAND_PATH), (holder.number, &passed));
        let answers = signed.map_err(|error| unsaid(error.to_string()))?;
        let lost = self.is_lost(session, holder);
        let answer = self.hand_to((holder, lost), (request, &answers), handing).await?;
        if answer.status() != 200 {
            return Err(strange(format!("it answers with status {}", answer.status())));
        }
        let text = whole(answer, (&holder.url, ANSWER_BYTES_MAX)).await.map_err(|error| strange(error.to_string()))?;
        let Answered { outcome, replayed, accepted } =
            serde_json::from_slice(&text).map_err(|cause| strange(cause.to_string()))?;
        Ok(Handled { outcome: Arc::new(outcome), replayed, accepted })
    }

    /// Does a command that another node has carried here; what is said to it.
    ///
    /// # Errors
    /// When the text is no command of a session.
    pub async fn carried_here(self: &Arc<Self>, caller: Caller, text: &[u8]) -> Result<Vec<u8>, ApiError> {
        let Ok(Message::Command(command)) = Message::parse(text) else {
            return Err(ApiError::invalid("body", "a command"));
        };
        let Handled { outcome, replayed, accepted } = self.submit(caller, *command).end().await;
        let answered = Answered { outcome: Arc::unwrap_or_clone(outcome), replayed, accepted };
        serde_json::to_vec(&answered).map_err(|cause| ApiError::internal(cause.to_string()))
    }
}
