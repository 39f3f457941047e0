//! A session as a file: JSON, a line each (docs/export.md). The events are what counts; the head of their chain is in
//! the last line and is checked when the file is read.
//!
//! Writing reads the database and changes nothing in it, also while a server runs. Reading a file believes nothing: every
//! line, the numbers, the chain, and the views against the events. What does not hold is named with its line and field.
//!
//! Invariant: a session is imported as a whole, in one commit, or not at all.

#[cfg(test)]
#[path = "../../fuzz/src/inside/transfer.rs"]
mod inside;
mod line;
mod reading;

use std::io::{self, Write};
use std::sync::Arc;

use line::{End, EventLine, FORMAT, Head, Line, VERSION, put};
pub use reading::{Imported, NotRead};

use crate::protocol::{Event, SessionId};
use crate::store::chain::Chain;
use crate::store::inspect::Fault;
use crate::store::{Inspection, StoreError, Write as Change};

/// Events of one write, about.
const CHUNK: usize = 1_000;

/// Why a session was not written to a file, or not taken from one.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The file does not hold, or cannot be read.
    #[error(transparent)]
    NotRead(#[from] NotRead),
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

impl Imported {
    /// What puts it into a store: one commit.
    pub fn into_changes(self) -> Vec<Change> {
        let id = self.session.id.clone();
        let mut changes = vec![Change::CreateSession(Box::new(self.session.clone()))];
        let mut next = 1;
        for mut turn in self.turns {
            // Each of them has an event, and those that come behind these get higher numbers.
            let kept = turn.put_all_apart(&mut next).into_iter();
            changes.extend(kept.map(|(at, said)| Change::Said(id.clone(), at, Some(Arc::new(said)))));
            changes.push(Change::SaveTurn(Box::new(turn)));
        }
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
