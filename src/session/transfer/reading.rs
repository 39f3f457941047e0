//! A session's file as it is read: nothing in it is believed.
//!
//! Pure but for the reading: bytes in; the session with its events and turns out, or the first line that does not hold.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};

use serde_json::Value;
use serde_json::value::RawValue;

use super::line::{End, EventLine, FORMAT, Head, Line, VERSION};
use crate::base::limit;
use crate::protocol::{ClientId, Event, EventBody, SessionId, TurnId};
use crate::session::granted::drop_imported;
use crate::session::manager::event_of;
use crate::session::views::Views;
use crate::store::chain::{Chain, one_line};
use crate::store::inspect::Fault;
use crate::store::{SessionRow, TurnRow};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
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
    /// The file.
    #[error("the file: {0}")]
    File(#[from] io::Error),
}

/// What is to be imported, whole and checked.
#[derive(Debug)]
pub struct Imported {
    pub(super) session: SessionRow,
    pub(super) turns: Vec<TurnRow>,
    pub(super) events: Vec<Event>,
}

/// A file as far as it has been read.
#[derive(Default)]
struct Reading {
    line: u64,
    id: Option<SessionId>,
    events: Vec<Event>,
    session: Option<SessionRow>,
    /// The line of that.
    session_line: u64,
    turns: Vec<TurnRow>,
    /// The line of each.
    turn_lines: HashMap<TurnId, u64>,
    chain: Chain,
    views: Views,
    over: bool,
}

impl Imported {
    /// Reads a file to its end.
    ///
    /// # Errors
    /// [`NotRead::Line`] with the first line that does not hold.
    pub fn read(from: &mut dyn BufRead) -> Result<Self, NotRead> {
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

    /// Gives it to a client. None: to everyone without a client id. What it stood under, and what stood under it, is not here.
    pub fn give_to(&mut self, client: Option<ClientId>) {
        self.session.client = client;
        self.session.lineage = None;
        self.session.children.clear();
    }
}

/// What was expected, by serde or else `so`, and what came, without a place in the text of one line alone.
fn in_words(so: &str, cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let (came, expected) = text.rsplit_once(", expected ").unwrap_or((text, so));
    format!("{expected}; {came}")
}

impl Reading {
    fn refuse(&self, field: &str, expected: impl Into<String>) -> NotRead {
        NotRead::Line { line: self.line, field: field.to_owned(), expected: expected.into() }
    }

    fn take(&mut self, text: &[u8]) -> Result<(), NotRead> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let read = serde_path_to_error::deserialize::<_, Line>(&mut json);
        let line = read.map_err(|e| {
            let path = e.path().to_string();
            // A member without a name is told by what it stands in.
            self.refuse(if path.is_empty() { "." } else { &path }, in_words("a line of this form", e.inner()))
        })?;
        json.end().map_err(|e| self.refuse(".", in_words("one JSON object on the line", &e)))?;
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

    fn head(&mut self, head: Head) -> Result<(), NotRead> {
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

    fn event(&mut self, line: EventLine) -> Result<(), NotRead> {
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
        let tagged = format!(r#"{{"type":{},"payload":{}}}"#, Value::from(event.kind.as_ref()), event.payload.get());
        serde_json::from_str::<EventBody>(&tagged)
            .map_err(|e| self.refuse("event", in_words("a known type with its payload", &e)))?;
        self.chain.push(&event);
        self.views.push(&event).map_err(|e| self.refuse(&format!("event.{}", e.field), e.expected))?;
        self.events.push(event);
        Ok(())
    }

    fn session(&mut self, row: SessionRow) -> Result<(), NotRead> {
        self.is_ours("session.id", &row.id)?;
        if self.session.is_some() {
            return Err(self.refuse("session", "one such line"));
        }
        (self.session, self.session_line) = (Some(row), self.line);
        Ok(())
    }

    fn turn(&mut self, turn: TurnRow) -> Result<(), NotRead> {
        self.is_ours("turn.record.session_id", &turn.record.session_id)?;
        if self.session.is_none() {
            return Err(self.refuse("turn", "turns behind the line `session`"));
        }
        if turn.places().next().is_some() {
            return Err(self.refuse("turn", "all that was said to it, and not where that was kept"));
        }
        if self.turn_lines.insert(turn.record.turn_id.clone(), self.line).is_some() {
            return Err(self.refuse("turn.record.turnId", "each turn once"));
        }
        self.turns.push(turn);
        Ok(())
    }

    fn end(&mut self, end: &End) -> Result<(), NotRead> {
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
            return Err(self.contradicts(&fault));
        }
        self.over = true;
        Ok(())
    }

    /// A row says something else than the events: its line is named, or this one when there is none.
    fn contradicts(&self, fault: &Fault) -> NotRead {
        let (line, field) = match fault {
            Fault::View { turn: Some(turn), .. } => (self.turn_lines.get(turn).copied().unwrap_or(self.line), "turn"),
            _ => (self.session_line, "session"),
        };
        let expected = format!("views that follow from the events; {fault}");
        NotRead::Line { line, field: field.to_owned(), expected }
    }

    fn is_ours(&self, field: &str, id: &SessionId) -> Result<(), NotRead> {
        match &self.id {
            Some(ours) if ours == id => Ok(()),
            Some(ours) => Err(self.refuse(field, format!("{ours}, as in line 1; got {id}"))),
            None => Err(self.refuse("head", "a first line that says what the file is")),
        }
    }

    fn finish(self) -> Result<Imported, NotRead> {
        if !self.over {
            return Err(self.refuse("end", "a last line `end`; the file breaks off"));
        }
        let missing = self.refuse("session", "it");
        let mut session = self.session.ok_or(missing)?;
        let mut events = self.events;
        for body in drop_imported(&mut session.settings.grants) {
            events.push(event_of(&session.id, events.len() as u64 + 1, None, &body));
        }
        Ok(Imported { session, turns: self.turns, events })
    }
}
