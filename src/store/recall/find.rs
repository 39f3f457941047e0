//! Finding the best answers: in memory, with a few looks into the tables; in the tables alone where a project is too large.
//!
//! Both ways find the same, apart from how rare a word is: the tables know that of all projects together.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use super::index::{Candidate, Index};
use super::rank::{self, Bounds, Ranked};
use super::search::embedder_of;
use super::{RecallStore, StoreError, project_of, vector, words};
use crate::base::limit;

/// Vectors that one search compares exactly. There are more candidates only where so many texts are as near as one
/// another; then their codes decide which of them are looked at.
const EXACT_MAX: usize = 2_000;

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// The question.
    pub query: &'a str,
    /// The embedding model, and its vector of the question. None: words alone decide.
    pub vector: Option<(&'a str, &'a [f32])>,
    /// How many answers at most.
    pub results: usize,
    /// The score from which on an answer counts.
    pub threshold: f64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finding {
    /// Places of the answers and their scores, best first.
    pub ranked: Vec<Ranked>,
    /// Texts that have no vector of the model yet, newest first, as many as are embedded at once.
    pub unsettled: Vec<(i64, String)>,
}

impl RecallStore {
    /// The best answers of a project.
    ///
    /// # Errors
    /// What the database says.
    pub fn find(&self, project: &str, sought: &Sought<'_>) -> Result<Finding, StoreError> {
        let unit = sought.vector.and_then(|(_, wanted)| vector::encode(wanted)).map(|data| vector::decode(&data));
        let held = self.indexes.of(project);
        let mut state = held.lock();
        let there = self.with("read what changed in the memory", |connection| {
            // One state of the tables, whatever other processes do meanwhile.
            let transaction = connection.transaction()?;
            let Some((number, texts)) = size_of_project(&transaction, project)? else { return Ok(false) };
            let embedder = sought.vector.map(|(model, _)| embedder_of(&transaction, model)).transpose()?;
            let vectors = embedder.map(|number| number.unwrap_or(-1)).zip(unit.as_ref().map(Vec::len));
            state.refresh((&transaction, &self.indexes), (number, texts), vectors)?;
            Ok(true)
        })?;
        held.weigh(&state);
        self.indexes.trim();
        match state.index() {
            _ if !there => Ok(Finding::default()),
            Some(index) => self.find_in_memory(index, (project, sought), unit.as_deref()),
            None => self.find_in_tables(project, sought),
        }
    }

    fn find_in_memory(
        &self,
        index: &Index,
        (project, sought): (&str, &Sought<'_>),
        unit: Option<&[f32]>,
    ) -> Result<Finding, StoreError> {
        let asked = words::asked(sought.query);
        let failed = |e| super::schema::failure("cut a question into words", &self.path, &e);
        let mut words = index.words(&asked).map_err(failed)?;
        if is_piece(sought.query) && words.iter().all(|found| *found <= 0.0) {
            words = index.only(&self.containing(project, sought.query, sought.results)?);
        }
        let mut candidates = index.candidates(&words, unit, sought);
        let order = |a: &Candidate, b: &Candidate| {
            b.most.total_cmp(&a.most).then(b.words.total_cmp(&a.words)).then(b.key.cmp(&a.key))
        };
        if candidates.len() > EXACT_MAX {
            candidates.select_nth_unstable_by(EXACT_MAX, order);
            candidates.truncate(EXACT_MAX);
        }
        candidates.sort_unstable_by(order);
        let unsettled = if unit.is_some() { index.unsettled(limit::EMBEDDING_BATCH_MAX) } else { Vec::new() };
        self.with("search the memory", |connection| {
            let ranked = exactly(connection, &candidates, (unit, sought))?;
            Ok(Finding { ranked, unsettled: texts_at(connection, &unsettled)? })
        })
    }

    /// The same without an index.
    pub(super) fn find_in_tables(&self, project: &str, sought: &Sought<'_>) -> Result<Finding, StoreError> {
        let mut words = self.by_words(project, sought.query)?;
        if words.is_empty() && is_piece(sought.query) {
            let found = self.containing(project, sought.query, sought.results)?;
            words = found.into_iter().map(|key| (key, 1.0)).collect();
        }
        let (mut near, mut unsettled) = (HashMap::new(), Vec::new());
        if let Some((model, wanted)) = sought.vector {
            near = self.by_nearness(project, model, wanted)?;
            if near.len() < self.count(project)? {
                let of = (model, Some(wanted.len()));
                unsettled = self.without_vector(project, of, limit::EMBEDDING_BATCH_MAX)?;
            }
        }
        Ok(Finding { ranked: rank::rank(&words, &near, (sought.threshold, sought.results)), unsettled })
    }
}

/// A question without words, which is looked for as it stands.
fn is_piece(query: &str) -> bool {
    !query.chars().any(char::is_alphanumeric)
}

/// Compares candidates with the question, those that can be best first, until no other one can be among the best.
fn exactly(
    connection: &Connection,
    candidates: &[Candidate],
    (unit, sought): (Option<&[f32]>, &Sought<'_>),
) -> rusqlite::Result<Vec<Ranked>> {
    let mut find = connection.prepare_cached("SELECT data FROM vector WHERE key = ?")?;
    let mut bounds = Bounds::new(sought.results, sought.threshold);
    let mut ranked = Vec::new();
    for candidate in candidates {
        if candidate.most < bounds.least() {
            break;
        }
        let near = match (candidate.near, unit) {
            (Some(about), Some(unit)) => {
                let exact = find.query_row([candidate.key], |row| {
                    let data = row.get_ref(0)?.as_blob()?;
                    Ok((data.len() == size_of_val(unit)).then(|| vector::cosine(unit, data)))
                });
                // Another process may have taken it away just now.
                Some(exact.optional()?.flatten().unwrap_or(about))
            }
            _ => None,
        };
        let score = rank::score(near, candidate.words);
        if score > 0.0 && score >= sought.threshold {
            bounds.see(score);
            ranked.push(Ranked { key: candidate.key, score, words: candidate.words });
        }
    }
    Ok(rank::best(ranked, sought.results))
}

fn texts_at(connection: &Connection, keys: &[i64]) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut find = connection.prepare_cached("SELECT text FROM entry WHERE key = ?")?;
    let texts = keys.iter().map(|key| find.query_row([key], |row| Ok((*key, row.get(0)?))).optional());
    texts.filter_map(Result::transpose).collect()
}

/// A project's number, and how many texts it has. None: nothing was ever remembered for it.
fn size_of_project(connection: &Connection, project: &str) -> rusqlite::Result<Option<(i64, usize)>> {
    let Some(number) = project_of(connection, project)? else { return Ok(None) };
    let mut find = connection.prepare_cached("SELECT entries FROM project WHERE number = ?")?;
    find.query_row([number], |row| Ok((number, row.get(0)?))).optional()
}
