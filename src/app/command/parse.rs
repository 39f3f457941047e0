//! From an object to a command: who it is, what it asks for, and under which conditions.
//!
//! The fields around the operation are taken out first; what is left is the body of the route of the same
//! operation, and is held against the same type. Nothing unknown passes.

use serde::Deserialize;
use serde_json::Value;

use super::fields::{Fields, key_of, name_of};
use super::kinds::{
    Cursor, GrantRef, HistoryPaging, KINDS, Kind, Names, Nothing, Paging, Showing, SubscribeBody, TurnRef,
};
use super::sharing::Sharing;
use crate::app::bounds::check_some;
use crate::app::{Begin, parse_json};
use crate::base::limit;
use crate::protocol::whole::Whole;
use crate::protocol::{
    ApiError, Compact, Configure, Control, CreateSession, ExplainCall, Feedback, Fork, GrantId, Prompt, PromptMode,
    SessionId, TurnId, Undo,
};
use crate::store::Fingerprint;

/// What ids that clients choose must not begin with: those of commands without one do.
pub const ANONYMOUS: &str = "anon:";

/// What errors call a whole command.
const WHOLE: &str = "command";

/// A list of what sessions can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// `list_tools`.
    Tools,
    /// `list_agents`.
    Agents,
    /// `list_skills`.
    Skills,
    /// `list_commands`.
    Commands,
    /// `list_models`.
    Models,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `create_session`.
    CreateSession(CreateSession),
    /// `delete_session`, of this version alone if one is named.
    DeleteSession(Option<u64>),
    /// `prompt`.
    Prompt(Prompt),
    /// `steer`: a prompt of that mode.
    Steer(Prompt),
    /// `compact`.
    Compact(Compact),
    /// `abort`.
    Abort(Control),
    /// `configure`, when the session has this version.
    Configure(Configure, Option<u64>),
    /// `interrupt`.
    Interrupt(Control),
    /// `pause`.
    Pause(Control),
    /// `resume`.
    Resume(Control),
    /// `feedback`.
    Feedback(Feedback),
    /// `undo`: what turns did to files.
    Undo(Undo),
    /// `redo`: what was undone.
    Redo(Undo),
    /// `fork`: a new session that goes on from this one.
    Fork(Fork),
    /// A change of what the sessions of a tree share.
    Share(Sharing),
    /// `revoke_grant`.
    RevokeGrant(GrantId),
    /// `explain_permission`.
    ExplainPermission(ExplainCall),
    /// `get_session`; with a snapshot of at most so many items.
    GetSession(Option<usize>),
    /// `get_history`: behind an item or, where that is said, backwards in front of an event; at most so many.
    GetHistory(Option<u64>, usize, bool),
    /// `get_turn`.
    GetTurn(TurnId),
    /// `list_turns`: behind a cursor, at most so many.
    ListTurns(Option<String>, usize),
    /// `list_sessions`: behind a cursor, at most so many.
    ListSessions(Option<String>, usize),
    /// `list_grants`, behind a cursor.
    ListGrants(Option<String>),
    /// What there is of a kind.
    List(Listed),
    /// `get_health`.
    GetHealth,
}

/// How an operation takes its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// In the lane of its session.
    Change,
    /// Beside the lanes, so that it does not wait for what it controls.
    Control,
    /// Beside the lanes; changes nothing.
    Read,
}

/// A message on a socket or a pipe.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A command.
    Command(Box<Command>),
    /// `subscribe`: this connection wants events.
    Subscribe(Subscribe),
    /// `unsubscribe`: it no longer wants them.
    Unsubscribe {
        /// The message's id.
        id: Option<String>,
        /// The session; None: all of the caller's.
        session: Option<SessionId>,
    },
}

/// A wish for events.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// The message's id.
    pub id: Option<String>,
    /// The session whose events are wanted; None: the lifecycle events of all sessions of the caller.
    pub session: Option<SessionId>,
    /// Where to begin: of a session, behind the number of an event.
    pub after: Begin,
    /// Of these types alone.
    pub types: Option<Vec<String>>,
}

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Its id. None: nobody will ask for it again.
    pub id: Option<String>,
    /// Its key: what is the same under one key is done once, whatever its id.
    pub key: Option<String>,
    /// The session that it is about; of a new one, the id it wants.
    pub session: Option<SessionId>,
    /// The ids of commands that must have succeeded before.
    pub depends_on: Vec<String>,
    /// Refuse unless the session has this version.
    pub if_version: Option<u64>,
    /// How the caller calls the version that the session must have.
    pub(super) version_field: &'static str,
    /// What is to be done.
    pub operation: Operation,
    pub(super) fingerprint: Fingerprint,
}

impl Command {
    /// Whether it goes beside what it controls: it never stands in a lane.
    pub fn is_control(&self) -> bool {
        self.operation.kind().1 == Class::Control
    }

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        self.operation.kind().1 == Class::Read
    }

    /// Whether it makes the session that it names.
    pub(in crate::app) fn makes_session(&self) -> bool {
        matches!(self.operation, Operation::CreateSession(_))
    }
}

/// A message that is none; what of it could be read goes into the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Unread {
    /// Its id.
    pub id: Option<String>,
    /// Its type.
    pub command: Option<String>,
    /// What is wrong.
    pub error: ApiError,
}

/// A write over HTTP, as a command.
pub struct Request<'a> {
    /// The type of the command.
    pub kind: &'static str,
    /// The session in its path.
    pub session: Option<SessionId>,
    /// `Idempotency-Key`.
    pub key: Option<String>,
    /// `If-Match`.
    pub if_version: Option<u64>,
    /// Fields beside the body's, from the path or the query.
    pub fields: Vec<(&'static str, Value)>,
    /// The body; empty counts as `{}`.
    pub body: &'a [u8],
}

impl Operation {
    /// Its type, and how it takes its turn.
    pub(super) fn kind(&self) -> (&'static str, Class) {
        match self {
            Self::CreateSession(_) => ("create_session", Class::Change),
            Self::DeleteSession(_) => ("delete_session", Class::Change),
            Self::Prompt(Prompt { mode: PromptMode::Steer, .. }) => ("prompt", Class::Control),
            Self::Prompt(_) => ("prompt", Class::Change),
            Self::Steer(_) => ("steer", Class::Control),
            Self::Compact(_) => ("compact", Class::Change),
            Self::Abort(_) => ("abort", Class::Control),
            Self::Configure(..) => ("configure", Class::Change),
            Self::Interrupt(_) => ("interrupt", Class::Control),
            Self::Pause(_) => ("pause", Class::Control),
            Self::Resume(_) => ("resume", Class::Control),
            Self::Feedback(_) => ("feedback", Class::Control),
            Self::Undo(_) => ("undo", Class::Change),
            Self::Redo(_) => ("redo", Class::Change),
            Self::Fork(_) => ("fork", Class::Change),
            Self::Share(sharing) => (sharing.name(), Class::Change),
            Self::RevokeGrant(_) => ("revoke_grant", Class::Change),
            Self::ExplainPermission(_) => ("explain_permission", Class::Read),
            Self::GetSession(_) => ("get_session", Class::Read),
            Self::GetHistory(..) => ("get_history", Class::Read),
            Self::GetTurn(_) => ("get_turn", Class::Read),
            Self::ListTurns(..) => ("list_turns", Class::Read),
            Self::ListSessions(..) => ("list_sessions", Class::Read),
            Self::ListGrants(_) => ("list_grants", Class::Read),
            Self::List(Listed::Tools) => ("list_tools", Class::Read),
            Self::List(Listed::Agents) => ("list_agents", Class::Read),
            Self::List(Listed::Skills) => ("list_skills", Class::Read),
            Self::List(Listed::Commands) => ("list_commands", Class::Read),
            Self::List(Listed::Models) => ("list_models", Class::Read),
            Self::GetHealth => ("get_health", Class::Read),
        }
    }

    /// Whether its outcome goes into the commit of its effect.
    pub(super) fn rides(&self) -> bool {
        matches!(
            self,
            Self::CreateSession(_)
                | Self::Fork(_)
                | Self::Prompt(_)
                | Self::Steer(_)
                | Self::Compact(_)
                | Self::Configure(..)
                | Self::Share(_)
        )
    }

    /// Of a type, with the fields that are its own.
    fn read(kind: &str, body: &[u8], whole: &str) -> Result<Self, ApiError> {
        Ok(match kind {
            "create_session" => Self::CreateSession(parse_json(body, whole)?),
            "delete_session" => nothing(body, whole, Self::DeleteSession(None))?,
            "prompt" => Self::Prompt(parse_json(body, whole)?),
            "steer" => Self::Steer(steering(body, whole)?),
            "compact" => Self::Compact(parse_json(body, whole)?),
            "abort" => Self::Abort(parse_json(body, whole)?),
            "configure" => {
                let changes = parse_json(body, whole)?;
                check_some(whole, &changes)?;
                Self::Configure(changes, None)
            }
            "interrupt" => Self::Interrupt(parse_json(body, whole)?),
            "pause" => Self::Pause(parse_json(body, whole)?),
            "resume" => Self::Resume(parse_json(body, whole)?),
            "feedback" => Self::Feedback(parse_json(body, whole)?),
            "undo" => Self::Undo(parse_json(body, whole)?),
            "redo" => Self::Redo(parse_json(body, whole)?),
            "fork" => Self::Fork(parse_json(body, whole)?),
            "revoke_grant" => Self::RevokeGrant(parse_json::<GrantRef>(body, whole)?.grant_id),
            "explain_permission" => Self::ExplainPermission(parse_json(body, whole)?),
            "get_session" => Self::GetSession(parse_json::<Showing>(body, whole)?.checked()?),
            "get_history" => parse_json::<HistoryPaging>(body, whole)?.checked()?,
            "get_turn" => Self::GetTurn(parse_json::<TurnRef>(body, whole)?.turn_id),
            "list_turns" => {
                let (cursor, limit) = parse_json::<Paging>(body, whole)?.checked()?;
                Self::ListTurns(cursor, limit)
            }
            "list_sessions" => {
                let (cursor, limit) = parse_json::<Paging>(body, whole)?.checked()?;
                Self::ListSessions(cursor, limit)
            }
            "list_grants" => Self::ListGrants(parse_json::<Cursor>(body, whole)?.cursor),
            "list_tools" => nothing(body, whole, Self::List(Listed::Tools))?,
            "list_agents" => nothing(body, whole, Self::List(Listed::Agents))?,
            "list_skills" => nothing(body, whole, Self::List(Listed::Skills))?,
            "list_commands" => nothing(body, whole, Self::List(Listed::Commands))?,
            "list_models" => nothing(body, whole, Self::List(Listed::Models))?,
            "get_health" => nothing(body, whole, Self::GetHealth)?,
            other => match Sharing::read(other, body, whole)? {
                Some(sharing) => Self::Share(sharing),
                None => return Err(unknown(other)),
            },
        })
    }
}

fn unknown(kind: &str) -> ApiError {
    let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    ApiError::unfit("type", format!("one of {}", known.join(", ")), format!("`{kind}`"))
}

fn nothing(body: &[u8], whole: &str, operation: Operation) -> Result<Operation, ApiError> {
    parse_json::<Nothing>(body, whole).map(|_| operation)
}

/// A prompt that says no other mode.
fn steering(body: &[u8], whole: &str) -> Result<Prompt, ApiError> {
    let prompt: Prompt = parse_json(body, whole)?;
    match parse_json::<Mode>(body, whole)?.mode.unwrap_or(PromptMode::Steer) {
        PromptMode::Steer => Ok(Prompt { mode: PromptMode::Steer, ..prompt }),
        PromptMode::Queue | PromptMode::Reject => Err(ApiError::invalid("mode", "`steer`, or nothing")),
    }
}

/// Whether a prompt says its mode.
#[derive(Deserialize)]
struct Mode {
    #[serde(default)]
    mode: Option<PromptMode>,
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// What is wrong with it, and what of it could be read.
    pub fn parse(text: &[u8]) -> Result<Self, Box<Unread>> {
        let unread = |error| Box::new(Unread { id: None, command: None, error });
        let mut fields: Fields = parse_json(text, WHOLE).map_err(unread)?;
        let (mut id, mut command) = (None, None);
        let read = Self::read(&mut fields, &mut id, &mut command);
        read.map_err(|error| Box::new(Unread { id, command, error }))
    }

    fn read(fields: &mut Fields, id: &mut Option<String>, command: &mut Option<String>) -> Result<Self, ApiError> {
        let given = fields.typed::<String>("id", "a text")?;
        *id = given.map(|text| name_of("id", text)).transpose()?;
        let kind = fields.typed::<String>("type", "the type of a command")?;
        let kind = kind.ok_or_else(|| ApiError::invalid("type", "to be there"))?;
        let Kind { names, .. } = *KINDS.iter().find(|known| known.name == kind).ok_or_else(|| unknown(&kind))?;
        *command = Some(kind.clone());
        let key = fields.typed::<String>("idempotencyKey", "a text")?;
        let key = key.map(|text| key_of("idempotencyKey", text)).transpose()?;
        // Without its ids: what is left is what is asked for.
        let print = if id.is_some() || key.is_some() {
            fields.print([("type", Value::from(kind.as_str()))])?
        } else {
            Fingerprint::default()
        };
        let session = session_of(fields, &kind, names)?;
        if kind == "subscribe" || kind == "unsubscribe" {
            return connection(&kind, fields, id.clone(), session);
        }
        let depends_on = fields.typed::<Vec<String>>("dependsOn", "a list of ids")?.unwrap_or_default();
        if depends_on.len() > limit::DEPENDENCIES_MAX {
            return Err(ApiError::invalid("dependsOn", format!("at most {} ids", limit::DEPENDENCIES_MAX)));
        }
        let if_version = fields.typed::<Whole>("ifSessionVersion", "a whole number, 0 or more")?.map(|given| given.0);
        if let (Some(id), "create_session" | "explain_permission") = (&session, kind.as_str()) {
            fields.push("sessionId", id)?;
        }
        let operation = Operation::read(&kind, &fields.text(), WHOLE)?;
        let version_field = "ifSessionVersion";
        let (id, fingerprint) = (id.clone(), print);
        let mut command = Command { id, key, session, depends_on, if_version, version_field, operation, fingerprint };
        command.settle()?;
        Ok(Self::Command(Box::new(command)))
    }
}

impl Command {
    /// The command that a write over HTTP is.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field.
    pub fn of_request(request: Request<'_>) -> Result<Self, ApiError> {
        let Request { kind, session, key, if_version, fields, body } = request;
        let body = if body.is_empty() { b"{}" } else { body };
        let key = key.map(|text| key_of("Idempotency-Key", text)).transpose()?;
        let mut own: Fields = parse_json(body, "body")?;
        for (name, value) in fields {
            own.push(name, &value)?;
        }
        let operation = Operation::read(kind, &own.text(), "body")?;
        let named = session.as_ref().map(|id| ("sessionId", Value::from(id.as_str())));
        let held = if_version.map(|version| ("ifSessionVersion", Value::from(version)));
        let fingerprint = match key {
            Some(_) => own.print([("type", Value::from(kind))].into_iter().chain(named).chain(held))?,
            None => Fingerprint::default(),
        };
        let session = match &operation {
            Operation::CreateSession(body) => body.session_id.clone(),
            _ => session,
        };
        let (version_field, depends_on) = ("If-Match", Vec::new());
        let mut command =
            Self { id: None, key, session, depends_on, if_version, version_field, operation, fingerprint };
        command.settle()?;
        Ok(command)
    }

    /// Brings a version that is said in two ways to one.
    fn settle(&mut self) -> Result<(), ApiError> {
        let field = self.version_field;
        if self.if_version.is_none() {
            self.version_field = "ifVersion";
        }
        match &mut self.operation {
            Operation::Prompt(Prompt { if_version, .. })
            | Operation::Steer(Prompt { if_version, .. })
            | Operation::Compact(Compact { if_version, .. })
            | Operation::Abort(Control { if_version, .. })
            | Operation::Interrupt(Control { if_version, .. })
            | Operation::Pause(Control { if_version, .. })
            | Operation::Resume(Control { if_version, .. })
            | Operation::Undo(Undo { if_version, .. })
            | Operation::Redo(Undo { if_version, .. }) => {
                if if_version.is_some() && self.if_version.is_some() && *if_version != self.if_version {
                    return Err(ApiError::invalid("ifVersion", format!("the same as `{field}`, or nothing")));
                }
                // It is looked at by whoever makes the change, and so in one go with it.
                *if_version = if_version.or(self.if_version.take());
                self.if_version = None;
                Ok(())
            }
            Operation::Configure(_, if_version) | Operation::DeleteSession(if_version) => {
                *if_version = self.if_version.take();
                Ok(())
            }
            // A request's head is about what the request is about; a message names the session's version.
            Operation::Share(sharing) if field == "If-Match" => {
                if let Some(version) = self.if_version
                    && sharing.hold_to(version)?
                {
                    self.if_version = None;
                }
                Ok(())
            }
            Operation::CreateSession(_) if self.if_version.is_some() => {
                Err(ApiError::invalid(field, "nothing: a new session has no version"))
            }
            _ if self.if_version.is_some() && self.session.is_none() => {
                Err(ApiError::invalid(field, "nothing where no session is named"))
            }
            _ => Ok(()),
        }
    }
}

/// A session that is named where it has to be, and only there.
fn session_of(fields: &mut Fields, kind: &str, names: Names) -> Result<Option<SessionId>, ApiError> {
    let id = fields.typed::<String>("sessionId", "the id of a session")?;
    let id = id.map(|text| text.parse::<SessionId>()).transpose().map_err(|bad| ApiError::unread("sessionId", &bad))?;
    match (names, &id) {
        (Names::Must, None) => Err(ApiError::invalid("sessionId", format!("to be there: `{kind}` is about a session"))),
        (Names::Never, Some(_)) => {
            Err(ApiError::invalid("sessionId", format!("nothing: `{kind}` is about no session")))
        }
        (Names::Must | Names::May, Some(_)) | (Names::May | Names::Never, None) => Ok(id),
    }
}

/// A message about the connection itself.
fn connection(
    kind: &str,
    fields: &Fields,
    id: Option<String>,
    session: Option<SessionId>,
) -> Result<Message, ApiError> {
    if kind == "unsubscribe" {
        parse_json::<Nothing>(&fields.text(), WHOLE)?;
        return Ok(Message::Unsubscribe { id, session });
    }
    let SubscribeBody { after, types } = parse_json(&fields.text(), WHOLE)?;
    let after = begin(after.as_ref(), session.is_none())?;
    Ok(Message::Subscribe(Subscribe { id, session, after, types }))
}

/// Where a subscription begins: with the first event when nothing is said.
fn begin(after: Option<&Value>, all: bool) -> Result<Begin, ApiError> {
    match after {
        None => Ok(Begin::Behind(0)),
        Some(Value::String(word)) if all && word == "newest" => Ok(Begin::Newest),
        Some(given) => {
            let or = if all { ", or `newest`" } else { "" };
            let place = crate::protocol::whole::number(given).ok().map(Begin::Behind);
            place.ok_or_else(|| ApiError::invalid("after", format!("a whole number, 0 or more{or}")))
        }
    }
}
