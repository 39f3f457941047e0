//! A session as a file: JSON, a line each (docs/export.md). The events are what counts; the head of their chain is in
//! the last line and is checked when the file is read.
//!
//! Writing reads the database and changes nothing in it, also while a server runs. Reading a file believes nothing: every
//! line, the numbers, the chain, and the views against the events. What does not hold is named with its line and field.
//!
//! Invariant: a session is imported as a whole, in one commit, or not at all.

use std::collections::HashSet;
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::views::Views;
use crate::base::limit;
use crate::protocol::{ClientId, Event, EventBody, SessionId, TurnId};
use crate::store::chain::{Chain, one_line};
use crate::store::inspect::Fault;
use crate::store::{Inspection, SessionRow, StoreError, TurnRow, Write as Change};

/// What the first line says of a file of ours.
const FORMAT: &str = "simse.session";
/// The form of the lines. A reader takes this one.
const VERSION: u64 = 1;
/// Events of one write, about.
const CHUNK: usize = 1_000;

/// Why a session was not written to a file, or not taken from one.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A line of the file does not hold.
    #[error("line {line}, `{field}`: expected {expected}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// Where in it.
        field: String,
        /// What was expected, and what came.
        expected: String,
    },
    /// What is stored is not whole, and a file of it would not be either.
    #[error("the session is damaged, so it was not written whole: {0} (`simse check` tells more)")]
    Damaged(Box<Fault>),
    /// There is no such session.
    #[error("no session {0}")]
    NoSession(SessionId),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("the file: {0}")]
    File(#[from] io::Error),
}

/// One line; it has exactly one of these.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<EventLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<TurnRow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<End>,
}

/// What kind of file it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    format: String,
    version: u64,
    /// The program that wrote it.
    program: String,
    session_id: SessionId,
}

/// An event as streams show it, and nothing else.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventLine {
    seq: u64,
    r#type: String,
    payload: Box<RawValue>,
    session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    at: u64,
}

/// What the file adds up to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct End {
    events: u64,
    turns: u64,
    /// The chain's value behind the last event, in hexadecimal digits.
    chain: String,
}

/// Writes a session as it is at this moment. Gives the number of its events and the head of their chain.
///
/// # Errors
/// [`TransferError`]; then the file is not whole, and has no last line.
pub fn export(inspection: &Inspection, id: &SessionId, out: &mut dyn Write) -> Result<Chain, TransferError> {
    let number = inspection.session_number(id)?.ok_or_else(|| TransferError::NoSession(id.clone()))?;
    let program = format!("simse {}", env!("CARGO_PKG_VERSION"));
    let head = Head { format: FORMAT.to_owned(), version: VERSION, program, session_id: id.clone() };
    put(out, &Line { head: Some(head), ..Line::default() })?;
    let mut broken = None;
    let (inspected, faults) = inspection.session(number, &mut |event| {
        if broken.is_none() {
            let line = Line { event: Some(EventLine::of(event)), ..Line::default() };
            broken = put(out, &line).err();
        }
    })?;
    if let Some(cause) = broken {
        return Err(cause.into());
    }
    if let Some(fault) = faults.into_iter().next() {
        return Err(TransferError::Damaged(Box::new(fault)));
    }
    let inspected = inspected.ok_or_else(|| TransferError::NoSession(id.clone()))?;
    put(out, &Line { session: Some(inspected.row), ..Line::default() })?;
    let turns = inspected.turns.len() as u64;
    for turn in inspected.turns {
        put(out, &Line { turn: Some(turn), ..Line::default() })?;
    }
    let chain = inspected.chain;
    put(out, &Line { end: Some(End { events: chain.seq(), turns, chain: chain.head() }), ..Line::default() })?;
    out.flush()?;
    Ok(chain)
}

fn put(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
    text.push(b'\n');
    out.write_all(&text)
}

impl EventLine {
    fn of(event: &Event) -> Self {
        Self {
            seq: event.seq,
            r#type: event.kind.clone(),
            payload: event.payload.clone(),
            session_id: event.session_id.clone(),
            turn_id: event.turn_id.clone(),
            at: event.at,
        }
    }

    fn into_event(self) -> Event {
        let Self { seq, r#type: kind, payload, session_id, turn_id, at } = self;
        Event { seq, kind, payload, session_id, turn_id, at }
    }
}

/// What is to be imported, whole and checked.
#[derive(Debug)]
pub struct Imported {
    session: SessionRow,
    turns: Vec<TurnRow>,
    events: Vec<Event>,
}

/// A file as far as it has been read.
#[derive(Default)]
struct Reading {
    line: u64,
    id: Option<SessionId>,
    events: Vec<Event>,
    session: Option<SessionRow>,
    turns: Vec<TurnRow>,
    turn_ids: HashSet<TurnId>,
    chain: Chain,
    views: Views,
    over: bool,
}

impl Imported {
    /// Reads a file to its end.
    ///
    /// # Errors
    /// [`TransferError::Line`] with the first line that does not hold.
    pub fn read(from: &mut dyn BufRead) -> Result<Self, TransferError> {
        let mut reading = Reading::default();
        let mut text = Vec::new();
        let mut bytes = 0;
        loop {
            text.clear();
            let room = limit::IMPORT_BYTES_MAX - bytes;
            bytes += from.take(room).read_until(b'\n', &mut text)? as u64;
            reading.line += 1;
            if bytes >= limit::IMPORT_BYTES_MAX {
                let expected = format!("a file of less than {} bytes", limit::IMPORT_BYTES_MAX);
                return Err(reading.refuse("file", expected));
            }
            if text.is_empty() {
                return reading.finish();
            }
            reading.take(&text)?;
        }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.session.id
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Gives it another id, in its events too. Their chain is another one then.
    pub fn rename(&mut self, id: &SessionId) {
        for event in &mut self.events {
            event.session_id = id.clone();
            let Ok(Value::Object(mut payload)) = serde_json::from_str(event.payload.get()) else { continue };
            if let Some(named) = payload.get_mut("sessionId")
                && named.as_str() == Some(self.session.id.as_str())
            {
                *named = Value::from(id.as_str());
                if let Ok(renamed) = RawValue::from_string(Value::Object(payload).to_string()) {
                    event.payload = renamed;
                }
            }
        }
        for turn in &mut self.turns {
            turn.record.session_id = id.clone();
        }
        self.session.id = id.clone();
    }

    /// Gives it to a client. None: to everyone without a client id.
    pub fn give_to(&mut self, client: Option<ClientId>) {
        self.session.client = client;
    }

    /// What puts it into a store: one commit.
    pub fn into_changes(self) -> Vec<Change> {
        let id = self.session.id.clone();
        let mut changes = vec![Change::CreateSession(Box::new(self.session.clone()))];
        changes.extend(self.turns.into_iter().map(|turn| Change::SaveTurn(Box::new(turn))));
        let mut events = self.events.into_iter().peekable();
        while events.peek().is_some() {
            let chunk: Vec<Event> = events.by_ref().take(CHUNK).collect();
            changes.push(Change::Append(id.clone(), Arc::new(chunk)));
        }
        // Once more, behind the events: its row then has their head.
        changes.push(Change::UpdateSession(Box::new(self.session)));
        changes
    }
}

impl Reading {
    fn refuse(&self, field: &str, expected: impl Into<String>) -> TransferError {
        TransferError::Line { line: self.line, field: field.to_owned(), expected: expected.into() }
    }

    fn take(&mut self, text: &[u8]) -> Result<(), TransferError> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let read = serde_path_to_error::deserialize::<_, Line>(&mut json);
        let line = read.map_err(|e| self.refuse(&e.path().to_string(), e.inner().to_string()))?;
        json.end().map_err(|e| self.refuse(".", format!("one JSON object on the line; {e}")))?;
        if self.over {
            return Err(self.refuse(".", "nothing behind the line `end`"));
        }
        match line {
            Line { head: Some(head), event: None, session: None, turn: None, end: None } => self.head(head),
            Line { head: None, event: Some(event), session: None, turn: None, end: None } => self.event(event),
            Line { head: None, event: None, session: Some(session), turn: None, end: None } => self.session(session),
            Line { head: None, event: None, session: None, turn: Some(turn), end: None } => self.turn(turn),
            Line { head: None, event: None, session: None, turn: None, end: Some(end) } => self.end(&end),
            Line { .. } => Err(self.refuse(".", "exactly one of head, event, session, turn, end")),
        }
    }

    fn head(&mut self, head: Head) -> Result<(), TransferError> {
        if self.line != 1 {
            return Err(self.refuse("head", "it in the first line alone"));
        }
        if head.format != FORMAT {
            return Err(self.refuse("head.format", format!("`{FORMAT}`; got `{}`", head.format)));
        }
        if head.version != VERSION {
            let expected = format!("{VERSION}, the form that this program knows; got {}", head.version);
            return Err(self.refuse("head.version", expected));
        }
        self.id = Some(head.session_id);
        Ok(())
    }

    fn event(&mut self, line: EventLine) -> Result<(), TransferError> {
        self.is_ours("event.sessionId", &line.session_id)?;
        if self.session.is_some() {
            return Err(self.refuse("event", "all events before the line `session`"));
        }
        let due = self.events.len() as u64 + 1;
        if line.seq != due {
            return Err(self.refuse("event.seq", format!("{due}; got {}", line.seq)));
        }
        let mut event = line.into_event();
        if let std::borrow::Cow::Owned(flat) = one_line(event.payload.get()) {
            event.payload = RawValue::from_string(flat).map_err(|e| self.refuse("event.payload", e.to_string()))?;
        }
        let tagged = format!(r#"{{"type":{},"payload":{}}}"#, Value::from(event.kind.as_str()), event.payload.get());
        let body: EventBody = serde_json::from_str(&tagged)
            .map_err(|e| self.refuse("event", format!("a known type with its payload; {e}")))?;
        // Of a fork it names the session from which it was forked.
        if (due == 1) != matches!(&body, EventBody::SessionCreated { .. }) {
            return Err(self.refuse("event.type", "`session.created` as event 1, and nowhere else"));
        }
        self.chain.push(&event);
        self.views.push(&event);
        self.events.push(event);
        Ok(())
    }

    fn session(&mut self, row: SessionRow) -> Result<(), TransferError> {
        self.is_ours("session.id", &row.id)?;
        if self.session.is_some() {
            return Err(self.refuse("session", "one such line"));
        }
        self.session = Some(row);
        Ok(())
    }

    fn turn(&mut self, turn: TurnRow) -> Result<(), TransferError> {
        self.is_ours("turn.record.session_id", &turn.record.session_id)?;
        if self.session.is_none() {
            return Err(self.refuse("turn", "turns behind the line `session`"));
        }
        if !self.turn_ids.insert(turn.record.turn_id.clone()) {
            return Err(self.refuse("turn.record.turnId", "each turn once"));
        }
        self.turns.push(turn);
        Ok(())
    }

    fn end(&mut self, end: &End) -> Result<(), TransferError> {
        let Some(session) = &self.session else { return Err(self.refuse("end", "a line `session` before it")) };
        let (events, turns) = (self.events.len() as u64, self.turns.len() as u64);
        if end.events != events || end.turns != turns {
            let expected =
                format!("{events} events and {turns} turns, as there are; got {} and {}", end.events, end.turns);
            return Err(self.refuse("end", expected));
        }
        if end.chain != self.chain.head() {
            let expected =
                format!("{}, the chain of the events above: one of them was changed, or this was", self.chain.head());
            return Err(self.refuse("end.chain", expected));
        }
        if let Some(fault) = self.views.compare(session, &self.turns).into_iter().next() {
            return Err(self.refuse("session", format!("views that follow from the events; {fault}")));
        }
        self.over = true;
        Ok(())
    }

    fn is_ours(&self, field: &str, id: &SessionId) -> Result<(), TransferError> {
        match &self.id {
            Some(ours) if ours == id => Ok(()),
            Some(ours) => Err(self.refuse(field, format!("{ours}, as in line 1; got {id}"))),
            None => Err(self.refuse("head", "a first line that says what the file is")),
        }
    }

    fn finish(self) -> Result<Imported, TransferError> {
        if !self.over {
            return Err(self.refuse("end", "a last line `end`; the file breaks off"));
        }
        let missing = self.refuse("session", "it");
        let session = self.session.ok_or(missing)?;
        Ok(Imported { session, turns: self.turns, events: self.events })
    }
}
