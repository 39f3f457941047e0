//! Events at the end of a log: rows of them, their chain, and the lists that are kept beside the log.

use super::{Failed, ROW_BYTES_MAX, TURNS_MAX, Writer, key_of};
use crate::protocol::{Event, SessionId, TurnId};
use crate::store::sqlite::fresh::{self, Row};
use crate::store::sqlite::{chained, lifecycle, read};
use crate::store::{Question, StoreError, check_numbers, record};

impl Writer {
    pub(super) fn append(&mut self, id: &SessionId, events: &[Event]) -> Result<(), Failed> {
        let known = self.know(id)?;
        let (number, last_seq, mut chain, anchored) = (known.number, known.last_seq, known.chain, known.anchored);
        check_numbers(last_seq, events)?;
        if events.last().is_some_and(|e| e.seq >= u64::from(u32::MAX)) {
            let cause = format!("session {id} has reached its last event number");
            return Err(StoreError::Io { doing: "append events".into(), cause }.into());
        }
        let mut rest = events;
        while let Some(first) = rest.first() {
            let turn = first.turn_id.as_ref().map(|turn| self.turn_place(id, turn)).transpose()?;
            let goes_on = self.fresh.goes_on(number, (first.seq, turn), anchored);
            let at = goes_on.unwrap_or(first.at);
            let (mut lines, mut tags) = (Vec::new(), Vec::new());
            let mut count = 0;
            for event in rest.iter().take_while(|e| e.turn_id == first.turn_id) {
                record::encode_line(&mut lines, at, event);
                chain.push(event);
                tags.extend(chain.tag());
                count += 1;
                if lines.len() >= ROW_BYTES_MAX {
                    break;
                }
            }
            rest = &rest[count..];
            let is_small = lines.len() + tags.len() <= fresh::ROW_BYTES_MAX;
            let row = Row { first_seq: first.seq, count: count as u64, places: 1, turn, at, lines, tags };
            if is_small && turn.is_some() {
                self.fresh.add(&self.connection, (number, goes_on.is_some()), row)?;
            } else {
                self.fresh.gather(&self.connection, number)?;
                fresh::insert(&self.connection, number, &row)?;
            }
        }
        for (event, question) in events.iter().filter_map(|event| Some((event, Question::of(event)?))) {
            let mut insert =
                self.connection.prepare_cached("INSERT INTO question (key, id, call) VALUES (?1, ?2, ?3)")?;
            insert.execute((key_of(number, event.seq), question.request_id.as_str(), question.call_id))?;
        }
        self.rung.extend(lifecycle::list(&self.connection, number, events)?);
        let anchored = if chain.seq() - anchored >= chained::ANCHOR_EVENTS {
            chained::anchor(&self.connection, number, &chain)?;
            chain.seq()
        } else {
            anchored
        };
        if let (Some(last), Some(known)) = (events.last(), self.known.get_mut(id)) {
            known.last_seq = last.seq;
            (known.chain, known.anchored) = (chain, anchored);
        }
        Ok(())
    }

    /// A turn's place in its session; it gets one when it has none.
    pub(super) fn turn_place(&mut self, session: &SessionId, turn: &TurnId) -> Result<i64, Failed> {
        let known = self.know(session)?;
        if let Some((_, place)) = known.turns.iter().find(|(known, _)| known == turn) {
            return Ok(*place);
        }
        let (number, last) = (known.number, known.last_turn);
        let newest = match known.newest.take() {
            Some(newest) => newest,
            None => read::largest_turn(&self.connection, number)?,
        };
        // Ids are ordered by their time: a new one is told without a look at all turns before it, of which there may be
        // thousands.
        let is_new = turn.as_str() > newest.as_str();
        let there = if is_new { None } else { read::turn_key(&self.connection, number, turn)? };
        let (key, last) = match there {
            Some(key) => (key, last),
            None => self.insert_turn(number, last, turn).map(|key| (key, Some(key)))?,
        };
        let place = key & i64::from(u32::MAX);
        if let Some(known) = self.known.get_mut(session) {
            known.turns.truncate(TURNS_MAX - 1);
            known.turns.push_front((turn.clone(), place));
            known.last_turn = last;
            known.newest = Some(if is_new { turn.as_str().to_owned() } else { newest });
        }
        Ok(place)
    }

    fn insert_turn(&self, number: i64, last: Option<i64>, turn: &TurnId) -> rusqlite::Result<i64> {
        let key = 1 + match last {
            Some(last) => last,
            None => read::last_turn(&self.connection, number)?.unwrap_or_else(|| key_of(number, 0)),
        };
        let mut insert = self.connection.prepare_cached("INSERT INTO turn (key, id, open) VALUES (?1, ?2, 0)")?;
        insert.execute((key, turn.as_str()))?;
        Ok(key)
    }
}
