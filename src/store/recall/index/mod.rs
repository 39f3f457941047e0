//! A project's texts as a search needs them: words and coded vectors, in memory, in rows.
//!
//! It is made from the tables and can be made again at any time; what changed in them since, in this process or another
//! one, is read before each search (`change`). A search looks through all texts here, and then reads from the tables the
//! vectors of the few that can be among the best: what it finds is what a comparison with every vector would find.
//!
//! Invariants: of one project, so that not even how rare a word is tells of another one; never larger than allowed: who
//! does not fit is searched in the tables alone.

mod codes;
mod held;
mod terms;
mod words;

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Map, Value};

use codes::Codes;
pub(super) use held::Indexes;
use words::{SLOTS_MAX, Words};

use super::rank::{Bounds, score};
use super::{ALL, Sought, body_of, range_of};

/// Texts that are read and cut at once.
const BATCH: usize = 1_000;
/// The key of a slot whose text is gone.
const GONE: i64 = -1;
/// What a slot costs beside its words and numbers: its key, and its place in the table of keys.
const SLOT_BYTES: usize = 48;
/// Slots of gone texts that are always put up with.
const GONE_MAX: usize = 1_000;

/// One project in memory.
pub(super) struct Index {
    /// The last change that it knows of.
    seen: i64,
    /// The key of each slot.
    keys: Vec<i64>,
    places: HashMap<i64, usize>,
    words: Words,
    /// Of the model that was asked for last.
    codes: Option<Codes>,
}

/// A text that can be among the best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub key: i64,
    /// What the words say, as a share of the best.
    pub words: f64,
    /// Its cosine, about. None: it has no vector.
    pub near: Option<f32>,
    /// Its score is not higher than that.
    pub most: f64,
}

/// What was changed: places of texts, and whether it was their vectors alone.
type Changes = Vec<(i64, bool)>;

impl Index {
    fn new(seen: i64) -> rusqlite::Result<Self> {
        Ok(Self { seen, keys: Vec::new(), places: HashMap::new(), words: Words::new()?, codes: None })
    }

    fn bytes(&self) -> usize {
        self.keys.len() * SLOT_BYTES + self.words.bytes() + self.codes.as_ref().map_or(0, Codes::bytes)
    }

    /// The whole project. None: it is larger than `bytes_max`.
    fn read(connection: &Connection, project: i64, bytes_max: usize) -> rusqlite::Result<Option<Self>> {
        let mut index = Self::new(seen_of(connection, project)?)?;
        let mut find = connection.prepare_cached("SELECT key, text, metadata FROM entry WHERE key BETWEEN ? AND ?")?;
        let mut rows = find.query(range_of(project))?;
        let mut texts = Vec::new();
        loop {
            let row = rows.next()?;
            let done = row.is_none();
            if let Some(row) = row {
                let metadata = metadata(row.get_ref(2)?.as_str()?);
                texts.push((row.get(0)?, body_of(row.get_ref(1)?.as_str()?, &metadata)));
            }
            if done || texts.len() == BATCH {
                index.add(&mut texts)?;
            }
            if index.bytes() > bytes_max || index.keys.len() >= SLOTS_MAX {
                return Ok(None);
            }
            if done {
                return Ok(Some(index));
            }
        }
    }

    fn add(&mut self, texts: &mut Vec<(i64, String)>) -> rusqlite::Result<()> {
        let (keys, bodies): (Vec<i64>, Vec<String>) = texts.drain(..).unzip();
        self.words.add(&bodies)?;
        for key in keys {
            self.places.insert(key, self.keys.len());
            self.keys.push(key);
            if let Some(codes) = &mut self.codes {
                codes.add();
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: i64) {
        if let Some(slot) = self.places.remove(&key) {
            self.keys[slot] = GONE;
            self.words.remove(slot);
            if let Some(codes) = &mut self.codes {
                codes.put(slot, None);
            }
        }
    }

    /// Brings it to what the tables are, with the vectors of a model. False: it would be larger than `bytes_max`.
    fn refresh(
        &mut self,
        connection: &Connection,
        (project, vectors): (i64, Option<(i64, usize)>),
        bytes_max: usize,
    ) -> rusqlite::Result<bool> {
        let gone = self.keys.len() - self.places.len();
        let changes = match gone > GONE_MAX && gone > self.places.len() / 2 {
            true => None,
            false => self.changes(connection, project)?,
        };
        match changes {
            Some(changes) => self.follow(connection, &changes)?,
            None => match Self::read(connection, project, bytes_max)? {
                Some(index) => *self = index,
                None => return Ok(false),
            },
        }
        self.seen = seen_of(connection, project)?;
        if let Some((embedder, dimensions)) =
            vectors.filter(|(e, d)| !self.codes.as_ref().is_some_and(|c| c.are(*e, *d)))
        {
            self.codes = None;
            if self.bytes() + self.keys.len() * dimensions > bytes_max {
                return Ok(false);
            }
            self.read_vectors(connection, project, Codes::new(embedder, dimensions, self.keys.len()))?;
        }
        Ok(self.bytes() <= bytes_max && self.keys.len() < SLOTS_MAX)
    }

    /// What was changed since it was last looked at. None: that is no longer known, or so much that it is better made anew.
    fn changes(&self, connection: &Connection, project: i64) -> rusqlite::Result<Option<Changes>> {
        let behind = usize::try_from(seen_of(connection, project)? - self.seen).unwrap_or(usize::MAX);
        if behind == 0 {
            return Ok(Some(Changes::new()));
        }
        if behind > self.places.len() / 2 + BATCH {
            return Ok(None);
        }
        let sql = "SELECT key, min(vector), count(*) FROM change WHERE project = ? AND number > ? GROUP BY key";
        let mut find = connection.prepare_cached(sql)?;
        let mut rows = find.query((project, self.seen))?;
        let (mut changes, mut known) = (Changes::new(), 0);
        while let Some(row) = rows.next()? {
            changes.push((row.get(0)?, row.get(1)?));
            known += row.get::<_, usize>(2)?;
        }
        // A change without a place is one of everything.
        let all = changes.iter().any(|(key, _)| *key == ALL);
        Ok((known == behind && !all).then_some(changes))
    }

    fn follow(&mut self, connection: &Connection, changes: &Changes) -> rusqlite::Result<()> {
        let mut find = connection.prepare_cached("SELECT text, metadata FROM entry WHERE key = ?")?;
        let mut texts = Vec::new();
        for (key, vector) in changes {
            if *vector && self.places.contains_key(key) {
                continue;
            }
            self.remove(*key);
            let text = find
                .query_row([key], |row| Ok(body_of(row.get_ref(0)?.as_str()?, &metadata(row.get_ref(1)?.as_str()?))));
            texts.extend(text.optional()?.map(|body| (*key, body)));
        }
        self.add(&mut texts)?;
        let Some(codes) = &mut self.codes else { return Ok(()) };
        let mut find = connection.prepare_cached("SELECT embedder, data FROM vector WHERE key = ?")?;
        for (key, _) in changes {
            let Some(slot) = self.places.get(key) else { continue };
            let mut rows = find.query([key])?;
            let row = rows.next()?;
            let stored =
                row.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get_ref(1)?.as_blob()?))).transpose()?;
            codes.put(*slot, stored);
        }
        Ok(())
    }

    fn read_vectors(&mut self, connection: &Connection, project: i64, mut codes: Codes) -> rusqlite::Result<()> {
        let (first, last) = range_of(project);
        let sql = "SELECT key, embedder, data FROM vector WHERE key BETWEEN ? AND ?";
        let mut find = connection.prepare_cached(sql)?;
        let mut rows = find.query((first, last))?;
        while let Some(row) = rows.next()? {
            if let Some(slot) = self.places.get(&row.get(0)?) {
                codes.put(*slot, Some((row.get(1)?, row.get_ref(2)?.as_blob()?)));
            }
        }
        self.codes = Some(codes);
        Ok(())
    }

    /// What the words of a question make of each slot.
    pub(super) fn words(&self, asked: &[String]) -> rusqlite::Result<Vec<f64>> {
        self.words.scores(asked)
    }

    /// What `words` would be if these texts alone had a word of the question.
    pub(super) fn only(&self, keys: &[i64]) -> Vec<f64> {
        let mut words = vec![0.0; self.keys.len()];
        keys.iter().filter_map(|key| self.places.get(key)).for_each(|slot| words[*slot] = 1.0);
        words
    }

    /// The newest texts of which the model has said nothing yet, at most `max`.
    pub(super) fn unsettled(&self, max: usize) -> Vec<i64> {
        let Some(codes) = &self.codes else { return Vec::new() };
        let there = self.keys.iter().enumerate().filter(|(slot, key)| **key != GONE && !codes.is_settled(*slot));
        let mut keys: Vec<i64> = there.map(|(_, key)| *key).collect();
        // A text whose topic was changed has a later slot than newer texts.
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.truncate(max);
        keys
    }

    /// Texts that can be among the best, with what is known of each; who can be best comes first. `unit` is the vector
    /// of the question.
    pub(super) fn candidates(&self, words: &[f64], unit: Option<&[f32]>, sought: &Sought<'_>) -> Vec<Candidate> {
        let best = words.iter().copied().fold(0.0, f64::max);
        let share = |slot: usize| if best > 0.0 { words[slot] / best } else { 0.0 };
        let guesses = unit.and_then(|unit| Some(self.codes.as_ref()?.guesses(unit)));
        let guesses = guesses.into_iter().flatten().chain(std::iter::repeat(None));
        let mut bounds = Bounds::new(sought.results, sought.threshold);
        let mut candidates = Vec::new();
        for (slot, (key, guess)) in self.keys.iter().zip(guesses).enumerate() {
            if *key == GONE || (guess.is_none() && words[slot] <= 0.0) {
                continue;
            }
            let words = share(slot);
            let most = score(guess.map(|guess| guess.cosine + guess.error), words);
            if most <= 0.0 || most < bounds.least() {
                continue;
            }
            bounds.see(score(guess.map(|guess| guess.cosine - guess.error), words));
            candidates.push(Candidate { key: *key, words, near: guess.map(|guess| guess.cosine), most });
        }
        candidates.retain(|candidate| candidate.most >= bounds.least());
        candidates
    }
}

/// The last change of a project.
fn seen_of(connection: &Connection, project: i64) -> rusqlite::Result<i64> {
    let mut find = connection.prepare_cached("SELECT changes FROM project WHERE number = ?")?;
    Ok(find.query_row([project], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// Facts about a text; those that cannot be read have no topic.
fn metadata(json: &str) -> Map<String, Value> {
    if json == "{}" { Map::new() } else { serde_json::from_str(json).unwrap_or_default() }
}
