//! Goes along with what is copied: follows each log by its chain, and adds all of it up to one value, by which both ends are compared.
//!
//! A log counts by the head of its chain, not by its rows: stores may cut them differently.

use std::collections::HashMap;

use ring::digest::{Context, SHA256};

use super::kept::{Kept, KeptListed, KeptRow, KeptSession};
use crate::protocol::SessionId;
use crate::store::StoreError;
use crate::store::chain::{Chain, TAG_BYTES};
use crate::store::record;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sum {
    /// Sessions.
    pub sessions: u64,
    /// Their turns.
    pub turns: u64,
    /// Events, each once where sessions share them.
    pub events: u64,
    /// What all of it adds up to, in hexadecimal digits.
    pub hash: String,
}

/// The log that is being followed.
struct Log {
    number: i64,
    id: SessionId,
    chain: Chain,
    /// The head that its session has, and the event that it stands behind.
    head: Option<(u64, Vec<u8>)>,
    /// Events behind which it was forked, and the chain there.
    forked: Vec<u64>,
}

pub(super) struct Digest {
    hash: Context,
    sum: Sum,
    /// By fork: its parent, and the last event of both.
    forks: HashMap<i64, (i64, u64)>,
    /// By parent: behind which events it was forked.
    points: HashMap<i64, Vec<u64>>,
    /// The chain at these.
    chains: HashMap<(i64, u64), Chain>,
    log: Option<Log>,
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Digest {
    pub(super) fn new() -> Self {
        let sum = Sum { sessions: 0, turns: 0, events: 0, hash: String::new() };
        Self {
            hash: Context::new(&SHA256),
            sum,
            forks: HashMap::new(),
            points: HashMap::new(),
            chains: HashMap::new(),
            log: None,
        }
    }

    /// Takes the next thing. What has to come before it: the end of the log that was followed.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a log is not what was written.
    pub(super) fn take(&mut self, kept: &Kept) -> Result<Option<Kept>, StoreError> {
        let goes_on = matches!(kept, Kept::Turn { .. } | Kept::Row(_));
        let end = if goes_on { None } else { self.end()? };
        match kept {
            Kept::Next(_) | Kept::End { .. } => {}
            Kept::Fork { session, parent, at } => {
                self.add(&["fork", &session.to_string(), &parent.to_string(), &at.to_string()]);
                self.forks.insert(*session, (*parent, unsigned(*at)));
                self.points.entry(*parent).or_default().push(unsigned(*at));
            }
            Kept::Session(session) => self.session(session)?,
            Kept::Ghost(number) => {
                self.add(&["ghost", &number.to_string()]);
                // Whoever reads its log does so under an id of their own.
                let id = "ses_gone".parse().map_err(|_| unexpected("an id"))?;
                self.follow(*number, id, None)?;
            }
            Kept::Turn { id, open, body } => {
                self.sum.turns += 1;
                self.add(&["turn", id, &open.to_string(), body]);
            }
            Kept::Row(row) => self.row(row)?,
            Kept::Said { at, body } => self.add(&["said", &at.to_string(), body]),
            Kept::Question { seq, id, call } => self.add(&["question", &seq.to_string(), id, call]),
            Kept::Listed { client, place, of: KeptListed::Event { session, seq } } => {
                self.add(&["listed", client, &place.to_string(), &session.to_string(), &seq.to_string()]);
            }
            Kept::Listed { client, place, of: KeptListed::Gone { words, at } } => {
                self.add(&["gone", client, &place.to_string(), words, &at.to_string()]);
            }
            Kept::Newest { client, place } => self.add(&["newest", client, &place.to_string()]),
            Kept::Forgotten { place, at } => self.add(&["forgotten", &place.to_string(), &at.to_string()]),
            Kept::Grant { id, body } => self.add(&["grant", id, body]),
            Kept::Spending { client, began, body } => self.add(&["spending", client, &began.to_string(), body]),
            Kept::Outcome { name, at, fingerprint, body } => {
                let print: String = fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
                let body = body.as_deref();
                self.add(&["outcome", name, &at.to_string(), &print, if body.is_some() { "=" } else { "-" }]);
                self.add(&[body.unwrap_or_default()]);
            }
        }
        Ok(end)
    }

    /// What it all adds up to, and the end of the log that was followed last.
    pub(super) fn finish(mut self) -> Result<(Sum, Option<Kept>), StoreError> {
        let end = self.end()?;
        let hash = self.hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok((Sum { hash, ..self.sum }, end))
    }

    /// Each part with its length: they cannot run into each other.
    fn add(&mut self, parts: &[&str]) {
        for part in parts {
            self.hash.update(&(part.len() as u64).to_le_bytes());
            self.hash.update(part.as_bytes());
        }
    }

    fn session(&mut self, session: &KeptSession) -> Result<(), StoreError> {
        self.sum.sessions += 1;
        let KeptSession { number, id, version, created_at, updated_at, message_count, .. } = session;
        let numbers = [*number, i64::from(session.status), *version, *created_at, *updated_at, *message_count];
        let numbers = numbers.map(|number| number.to_string()).join(" ");
        self.add(&["session", id, &numbers, &session.usage, &session.settings]);
        let columns =
            [&session.client, &session.root, &session.lineage, &session.children, &session.spent, &session.shared];
        for column in columns {
            self.add(&[if column.is_some() { "=" } else { "-" }, column.as_deref().unwrap_or_default()]);
        }
        let known = id.parse().map_err(|_| unexpected(&format!("the id `{id}` of session number {number}")))?;
        self.follow(*number, known, session.head.as_ref().map(|(seq, head)| (unsigned(*seq), head.clone())))
    }

    fn follow(&mut self, number: i64, id: SessionId, head: Option<(u64, Vec<u8>)>) -> Result<(), StoreError> {
        let chain = match self.forks.get(&number) {
            None => Chain::default(),
            Some((parent, at)) => *self.chains.get(&(*parent, *at)).ok_or_else(|| StoreError::Damaged {
                session: id.clone(),
                seq: *at,
                cause: "the session that it was forked off from does not have that event".into(),
            })?,
        };
        let forked = self.points.remove(&number).unwrap_or_default();
        let log = Log { number, id, chain, head, forked };
        self.note(&log)?;
        self.log = Some(log);
        Ok(())
    }

    fn row(&mut self, row: &KeptRow) -> Result<(), StoreError> {
        let Some(mut log) = self.log.take() else { return Err(unexpected("a row of a log before its session")) };
        let damaged =
            |seq: u64, cause: &str| StoreError::Damaged { session: log.id.clone(), seq, cause: cause.to_owned() };
        let turn = row.turn.as_deref().map(str::parse).transpose();
        let turn = turn.map_err(|_| damaged(unsigned(row.first), "the id of its turn is none"))?;
        let stored = record::Row {
            session: &log.id,
            turn,
            first_seq: unsigned(row.first),
            at: unsigned(row.at),
            body: &row.body,
        };
        let mut events = Vec::new();
        let (lines, tags) = stored.parted(unsigned(row.count)).map_err(|bad| damaged(bad.seq, &bad.cause))?;
        lines.decode(0, &mut events).map_err(|bad| damaged(bad.seq, &bad.cause))?;
        if events.len() as u64 != unsigned(row.count) {
            return Err(damaged(unsigned(row.first), "a row has another number of events than it says"));
        }
        for (event, tag) in events.iter().zip(tags.chunks(TAG_BYTES)) {
            if event.seq != log.chain.seq() + 1 {
                return Err(damaged(log.chain.seq() + 1, "it is not there"));
            }
            log.chain.push(event);
            if log.chain.tag() != tag {
                return Err(damaged(event.seq, "it is not what was written (its chain does not fit)"));
            }
            self.note(&log)?;
        }
        self.sum.events += events.len() as u64;
        self.log = Some(log);
        Ok(())
    }

    /// Holds the chain against the head where that stands, and remembers it where the log was forked.
    fn note(&mut self, log: &Log) -> Result<(), StoreError> {
        let seq = log.chain.seq();
        if let Some((at, head)) = &log.head
            && *at == seq
            && head.as_slice() != log.chain.value()
        {
            let cause = "something up to it is not what was written (the head of the chain does not fit)".into();
            return Err(StoreError::Damaged { session: log.id.clone(), seq, cause });
        }
        if log.forked.contains(&seq) {
            self.chains.insert((log.number, seq), log.chain);
        }
        Ok(())
    }

    /// The end of the log that was followed.
    fn end(&mut self) -> Result<Option<Kept>, StoreError> {
        let Some(log) = self.log.take() else { return Ok(None) };
        let (seq, head) = (log.chain.seq(), log.chain.value().to_vec());
        if let Some((at, _)) = log.head.filter(|(at, _)| *at > seq) {
            let cause = format!("the log ends before it, and went on to event {at} at least");
            return Err(StoreError::Damaged { session: log.id, seq: seq + 1, cause });
        }
        self.add(&["end", &log.number.to_string(), &seq.to_string(), &log.chain.head()]);
        Ok(Some(Kept::End { seq, head }))
    }
}

fn unexpected(what: &str) -> StoreError {
    StoreError::Io { doing: "copy".into(), cause: format!("{what} cannot be read") }
}
