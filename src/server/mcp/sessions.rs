//! Sessions as tools: a prompt to an agent of this server, the wait for its answer, its events.
//!
//! They work on any session of the caller's. What a session asks while one waits for it is put to the client as a form.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::calls;
use super::methods::{Called, Outcome};
use super::peer::{Lane, Peer, Question};
use super::questions;
use super::tools::{failure, text};
use super::wire::RpcError;
use crate::app::{EventPage, EventReader, parse_json};
use crate::base::limit;
use crate::protocol::{
    Access, ApiError, Configure, Control, CreateSession, EVENT_TYPES, Event, EventBody, Prompt, PromptContent,
    PromptMode, RequestId, SessionId, TurnId, TurnRecord, TurnSettings,
};

/// Events of one answer where nobody says how many.
const EVENTS: usize = 50;

/// One of these tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    /// Gives work to an agent.
    Prompt,
    /// Waits for what comes of it.
    Wait,
    /// Shows a session's events.
    Events,
    /// Ends a turn.
    Abort,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Prompted {
    prompt: String,
    session_id: Option<SessionId>,
    agent: Option<String>,
    model: Option<String>,
    working_directory: Option<std::path::PathBuf>,
    title: Option<String>,
    #[serde(default)]
    mode: PromptMode,
    output_schema: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Waited {
    session_id: SessionId,
    turn_id: Option<TurnId>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shown {
    session_id: SessionId,
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
    types: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Aborted {
    session_id: SessionId,
    turn_id: Option<TurnId>,
    reason: Option<String>,
}

impl Tool {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Prompt, Self::Wait, Self::Events, Self::Abort];

    /// The one of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prompt => "session_prompt",
            Self::Wait => "session_wait",
            Self::Events => "session_events",
            Self::Abort => "session_abort",
        }
    }

    /// As a client is told it.
    pub(super) fn told(self) -> Value {
        let (title, description, properties, required) = match self {
            Self::Prompt => (
                "Prompt a session",
                "Gives work to an agent of this server, in a session of its own, and answers at once with the turn that works on it. Without `sessionId` a new session is made; with it the prompt goes to that one, whose conversation goes on. `session_wait` waits for the answer.",
                json!({
                    "prompt": { "type": "string", "minLength": 1, "description": "What is to be done." },
                    "sessionId": { "type": "string", "description": "The session that goes on. Default: a new one." },
                    "agent": { "type": "string", "description": "Who answers in a new session: `simse`, or an agent of the server." },
                    "model": { "type": "string", "description": "The model, `provider/name`. Default: the server's." },
                    "workingDirectory": { "type": "string", "description": "Where the tools of a new session work. Default: the server's directory." },
                    "title": { "type": "string", "description": "A title of a new session." },
                    "outputSchema": { "type": "object", "description": "The JSON Schema of an object that the answer has to be: `session_wait` gives it as `output`." },
                    "mode": { "type": "string", "enum": ["queue", "steer", "reject"], "description": "What to do while a turn runs. Default: queue." },
                }),
                json!(["prompt"]),
            ),
            Self::Wait => (
                "Wait for a turn",
                "Waits for the end of a session's turn and answers with its final text and record. A turn that takes longer than `timeoutMs` goes on: the answer says how it stands, and it can be waited for again. Progress tells what the model says and which tools it calls.",
                json!({
                    "sessionId": { "type": "string", "description": "The session." },
                    "turnId": { "type": "string", "description": "The turn. Default: the one that runs, else the last." },
                    "timeoutMs": { "type": "integer", "minimum": 0, "maximum": limit::MCP_WAIT_MS_MAX, "description": "Longest wait, in milliseconds. Default: 600000." },
                }),
                json!(["sessionId"]),
            ),
            Self::Events => (
                "Events of a session",
                "The events of a session behind a number, oldest first: what was said, which tools were called, what came of it. `nextCursor` is the `after` of the next page.",
                json!({
                    "sessionId": { "type": "string", "description": "The session." },
                    "after": { "type": "integer", "minimum": 0, "description": "Behind this event. Default: from the first on." },
                    "limit": { "type": "integer", "minimum": 1, "maximum": limit::PAGE_ITEMS_MAX, "description": "At most so many. Default: 50." },
                    "types": { "type": "array", "items": { "type": "string" }, "description": "Only events of these types, such as `tool.call.end`." },
                }),
                json!(["sessionId"]),
            ),
            Self::Abort => (
                "Abort a turn",
                "Ends the turn of a session that runs or is paused, at once: its model, its tools with their processes, its questions.",
                json!({
                    "sessionId": { "type": "string", "description": "The session." },
                    "turnId": { "type": "string", "description": "Only this turn. Default: the one that runs." },
                    "reason": { "type": "string", "description": "Why; goes into the log." },
                }),
                json!(["sessionId"]),
            ),
        };
        let looks = matches!(self, Self::Wait | Self::Events);
        let mut annotations = json!({ "title": title, "readOnlyHint": looks, "openWorldHint": self == Self::Prompt });
        if !looks {
            annotations["destructiveHint"] = (self == Self::Abort).into();
            annotations["idempotentHint"] = false.into();
        }
        let schema =
            json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        let name = self.name();
        let output = json!({ "type": "object" });
        json!({ "name": name, "title": title, "description": description, "inputSchema": schema, "outputSchema": output, "annotations": annotations })
    }

    /// Runs it. What it refuses is a result.
    pub(super) async fn run(self, peer: &Arc<Peer>, called: Called<'_>, lane: &Lane) -> Outcome {
        let done = match self {
            Self::Prompt => prompt(peer, called.arguments).await,
            Self::Wait => wait(peer, called, lane).await,
            Self::Events => events(peer, called.arguments).await,
            Self::Abort => abort(peer, called.arguments).await,
        };
        Ok(done.unwrap_or_else(|error| failure(&error.to_string())))
    }
}

fn arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, ApiError> {
    parse_json(Value::Object(arguments).to_string().as_bytes(), "arguments")
}

/// A result with structure.
fn structured(said: &str, structure: Value) -> Value {
    json!({ "content": [text(said)], "structuredContent": structure, "isError": false })
}

async fn prompt(peer: &Peer, given: Map<String, Value>) -> Result<Value, ApiError> {
    peer.caller.needs(Access::Work)?;
    let Prompted { prompt, session_id, agent, model, working_directory, title, mode, output_schema } =
        arguments(given)?;
    let (session, configure) = match session_id {
        Some(id) => {
            if let Some(field) = [("agent", agent.is_some()), ("workingDirectory", working_directory.is_some())]
                .into_iter()
                .find_map(|(field, given)| given.then_some(field))
            {
                return Err(ApiError::invalid(field, "none beside `sessionId`: it is that of the session"));
            }
            let changes = Configure { model, title, ..Configure::default() };
            (id, (changes != Configure::default()).then_some(changes))
        }
        None => {
            let body = CreateSession { agent, model, working_directory, title, ..CreateSession::default() };
            (peer.app.create_session(&peer.caller, body).await?.session_id, None)
        }
    };
    let turn = output_schema.map(|schema| TurnSettings { output_schema: Some(schema), ..TurnSettings::default() });
    let body = Prompt { prompt: PromptContent::Text(prompt), mode, configure, turn, if_version: None };
    let accepted = peer.app.prompt(&peer.caller, &session, body).await?;
    let structure = json!({ "sessionId": session, "turnId": accepted.turn_id, "status": accepted.status });
    let said =
        format!("Turn {} of session {session} works on it. `session_wait` waits for its answer.", accepted.turn_id);
    Ok(structured(&said, structure))
}

async fn events(peer: &Peer, given: Map<String, Value>) -> Result<Value, ApiError> {
    let Shown { session_id, after, limit, types } = arguments(given)?;
    if let Some(strange) = types.iter().flatten().find(|kind| !EVENT_TYPES.contains(&kind.as_str())) {
        return Err(ApiError::unfit("types", format!("some of {}", EVENT_TYPES.join(", ")), format!("`{strange}`")));
    }
    let page = EventPage { after, limit: limit.unwrap_or(EVENTS), types };
    let page = peer.app.event_page(&peer.caller, &session_id, page).await?;
    let structure = serde_json::to_value(&page).map_err(|cause| ApiError::internal(cause.to_string()))?;
    Ok(structured(&structure.to_string(), structure.clone()))
}

async fn abort(peer: &Peer, given: Map<String, Value>) -> Result<Value, ApiError> {
    peer.caller.needs(Access::Work)?;
    let Aborted { session_id, turn_id, reason } = arguments(given)?;
    let aborted = peer.app.abort(&peer.caller, &session_id, Control { turn_id, reason, if_version: None }).await?;
    let said = format!("Turn {} was aborted.", aborted.turn_id);
    Ok(structured(&said, json!({ "aborted": true, "turnId": aborted.turn_id })))
}

async fn wait(peer: &Arc<Peer>, called: Called<'_>, lane: &Lane) -> Result<Value, ApiError> {
    let Waited { session_id, turn_id, timeout_ms } = arguments(called.arguments)?;
    let longest = timeout_ms.unwrap_or(limit::TOOL_TIMEOUT_MS);
    if longest > limit::MCP_WAIT_MS_MAX {
        return Err(ApiError::unfit("timeoutMs", format!("0 to {}", limit::MCP_WAIT_MS_MAX), longest));
    }
    let view = peer.app.session(&peer.caller, &session_id).await?;
    let turn = match (turn_id, view.turn) {
        (Some(turn), _) => turn,
        (None, Some(turn)) => turn.turn_id,
        (None, None) => {
            let last = peer.app.turns(&peer.caller, &session_id, (None, 10), false).await?.items.into_iter().next();
            last.ok_or_else(|| ApiError::invalid("turnId", "a session that was prompted"))?.turn_id
        }
    };
    let reader =
        calls::reader(peer, &session_id, view.last_seq).await.map_err(|error| ApiError::internal(error.message))?;
    let mut watching =
        Watching { peer, lane, session: &session_id, progress: called.progress, told: 0, open: HashMap::new() };
    for asked in view.requests {
        watching.put(asked);
    }
    let follow = watching.follow(reader, &turn);
    let record = tokio::select! {
        biased;
        () = lane.cancel.cancelled() => return Err(ApiError::conflict("nobody waits any more")),
        () = tokio::time::sleep(Duration::from_millis(longest)) => peer.app.turn(&peer.caller, &session_id, &turn).await?,
        followed = follow => { followed?; peer.app.turn(&peer.caller, &session_id, &turn).await? }
    };
    Ok(told(&record))
}

/// A turn's record, and what a model makes of it.
fn told(record: &TurnRecord) -> Value {
    let said = match (&record.result, &record.error) {
        (Some(result), _) if record.status.is_terminal() => result.clone(),
        (_, Some(error)) => format!("The turn failed: {}", error.message),
        _ if record.status.is_terminal() => {
            format!("The turn was ended. {}", record.reason.clone().unwrap_or_default())
        }
        _ => format!("Turn {} is not over yet: wait for it again.", record.turn_id),
    };
    let structure = serde_json::to_value(record).unwrap_or_default();
    let failed = record.error.is_some();
    json!({ "content": [text(&said)], "structuredContent": structure, "isError": failed })
}

/// Somebody who waits for a turn.
struct Watching<'a> {
    peer: &'a Arc<Peer>,
    lane: &'a Lane,
    session: &'a SessionId,
    progress: Option<Value>,
    told: u64,
    open: HashMap<RequestId, Question>,
}

impl Watching<'_> {
    /// Follows the session to the end of the turn.
    async fn follow(&mut self, mut reader: EventReader, turn: &TurnId) -> Result<(), ApiError> {
        if self.peer.app.turn(&self.peer.caller, self.session, turn).await?.status.is_terminal() {
            return Ok(());
        }
        let mut seen = reader.position();
        while let Some(batch) = reader.next().await? {
            for event in batch.events.iter().filter(|event| event.seq > seen) {
                if self.take(event, turn) {
                    return Ok(());
                }
            }
            seen = batch.last_seq();
        }
        Ok(())
    }

    /// Takes an event in. True: the turn is over.
    fn take(&mut self, event: &Event, turn: &TurnId) -> bool {
        let own = event.turn_id.as_ref() == Some(turn);
        match event.kind.as_ref() {
            "session.completed" | "session.error" | "abort" => return own,
            "stream.delta" | "tool.call.start" if own && self.progress.is_some() => {}
            "permission.request" | "client.request" | "permission.response" | "client.response" => {}
            "subagent.request" | "subagent.response" => {}
            _ => return false,
        }
        match event.body() {
            Some(EventBody::StreamDelta { text }) => self.tell(&text),
            Some(EventBody::ToolCallStart { name, .. }) => self.tell(&format!("calls {name}")),
            Some(EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. }) => {
                self.open.remove(&request_id);
            }
            // It is answered here as if this session asked.
            Some(EventBody::SubagentRequest(asked)) => self.put(*asked.request),
            Some(EventBody::SubagentResponse(ended)) => {
                if let EventBody::PermissionResponse { request_id, .. } | EventBody::ClientResponse { request_id, .. } =
                    ended.response.as_ref()
                {
                    self.open.remove(request_id);
                }
            }
            Some(body) => self.put(body),
            None => {}
        }
        false
    }

    fn tell(&mut self, text: &str) {
        let Some(token) = &self.progress else { return };
        self.told += 1;
        self.lane.stream.hint(calls::progress(token, self.told, text));
    }

    fn put(&mut self, asked: EventBody) {
        let (EventBody::PermissionRequest { request_id, .. } | EventBody::ClientRequest { request_id, .. }) = &asked
        else {
            return;
        };
        let request_id = request_id.clone();
        if let Some(open) = questions::put(self.peer, self.session, (&self.lane.stream, asked)) {
            self.open.insert(request_id, open);
        }
    }
}

impl From<RpcError> for ApiError {
    fn from(error: RpcError) -> Self {
        Self::internal(error.message)
    }
}
