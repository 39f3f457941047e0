//! Long-term memory: texts that outlive sessions, found again by words and, with an embedding model, by meaning.
//!
//! [`Memories`] are those of one data directory, a [`MemoryManager`] is one project's view of them, and `tools` is how
//! a model gets at it. How answers are found and ranked stands in `store::recall`.
//!
//! Invariants: a text that was accepted is kept, whatever the embedding model does; without that model, or while it
//! fails, words alone decide, and every answer says so. Texts that have no vector of the present model (they came
//! while it failed, or the model was changed) get one when the project is next searched or added to, a batch at a time.

mod embedding;
mod project;
mod tools;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::base::limit;
use crate::model::Embedder;
use crate::store::StoreError;
use crate::store::recall::{Added, Finding, KeptEntry, Likeness, NewEntry, Ranked, RecallError, RecallStore, Sought};

use embedding::{Embedding, NoVectors};
pub use project::Project;
pub use tools::memory_tools;

/// Texts that are refused in a row before it is taken to be the model and not the texts.
const REFUSALS_MAX: usize = 5;

/// Texts that are told to be much like a new one.
const ALIKE_MAX: usize = 3;
/// Texts that are compared with a new one.
const ALIKE_LOOKED_AT: usize = 20;
/// From this score by meaning and words on a text is much like a new one.
const ALIKE_SCORE: f64 = 0.9;
/// So it is with this share of words in common.
const ALIKE_WORDS: f64 = 0.7;

/// A memory operation failed. Variants differ by what the caller should do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// What was handed in cannot be taken. Hand in something else.
    #[error("`{field}`: expected {expected}")]
    Refused {
        /// The argument.
        field: &'static str,
        /// What was expected, and what came.
        expected: String,
    },
    /// The project's memory is full, or the database said no.
    #[error(transparent)]
    Recall(#[from] RecallError),
    /// The caller cancelled.
    #[error("aborted")]
    Aborted,
}

impl From<StoreError> for MemoryError {
    fn from(error: StoreError) -> Self {
        Self::Recall(error.into())
    }
}

/// What came of remembering.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// For each text, in order: its name, and whether it is new.
    pub added: Vec<Added>,
    /// How many others were forgotten for them.
    pub forgotten: usize,
    /// Why the texts can for now be found by their words only. None: all is well, or no embedding model is set.
    pub degraded: Option<String>,
}

/// One answer of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text and what belongs to it.
    pub entry: KeptEntry,
    /// How well it answers: from 0 to 1.
    pub score: f64,
}

/// What a search has found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Best first.
    pub answers: Vec<Answer>,
    /// Why words alone have decided. None: all is well, or no embedding model is set.
    pub degraded: Option<String>,
}

/// What a search wants, where it differs from the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wanted {
    /// How many answers at most: 1 to [`limit::MEMORY_RESULTS_MAX`].
    pub results: Option<usize>,
    /// The score from which on an answer counts: 0 to 1.
    pub threshold: Option<f64>,
}

/// What is remembered, of all projects.
pub struct Memories {
    store: RecallStore,
    embedding: Option<Embedding>,
    results: usize,
    threshold: f64,
}

impl std::fmt::Debug for Memories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memories").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Memories {
    /// Memories over a store. `defaults` hold where a search says nothing.
    pub fn new(store: RecallStore, embedder: Option<Arc<dyn Embedder>>, defaults: Wanted) -> Arc<Self> {
        Arc::new(Self {
            store,
            embedding: embedder.map(Embedding::new),
            results: defaults.results.unwrap_or(limit::MEMORY_RESULTS),
            threshold: defaults.threshold.unwrap_or(limit::MEMORY_SIMILARITY),
        })
    }

    /// The view of one project.
    pub fn of(self: &Arc<Self>, project: Project) -> MemoryManager {
        MemoryManager { memories: Arc::clone(self), project }
    }

    /// Closes the store; what comes after fails.
    ///
    /// # Errors
    /// When the last of it could not be written.
    pub async fn close(self: &Arc<Self>) -> Result<(), MemoryError> {
        let this = Arc::clone(self);
        blocking(move || Ok(this.store.close()?)).await
    }
}

/// What one project remembers.
#[derive(Debug, Clone)]
pub struct MemoryManager {
    memories: Arc<Memories>,
    project: Project,
}

/// Runs work on the blocking pool. A panic there goes on here.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MemoryError> + Send + 'static,
) -> Result<T, MemoryError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(MemoryError::Aborted),
    }
}

fn refused(field: &'static str, expected: impl Into<String>) -> MemoryError {
    MemoryError::Refused { field, expected: expected.into() }
}

/// A text as it is kept: without blanks around it.
fn checked(field: &'static str, given: &str, bytes_max: usize) -> Result<String, MemoryError> {
    let kept = given.trim();
    if kept.is_empty() {
        return Err(refused(field, "a text that is not empty"));
    }
    if kept.len() > bytes_max {
        return Err(refused(field, format!("at most {bytes_max} bytes, got {}", kept.len())));
    }
    Ok(kept.to_owned())
}

fn checked_entry(entry: NewEntry) -> Result<NewEntry, MemoryError> {
    let text = checked("text", &entry.text, limit::MEMORY_TEXT_BYTES_MAX)?;
    let metadata = Value::Object(entry.metadata.clone()).to_string();
    if metadata.len() > limit::MEMORY_METADATA_BYTES_MAX {
        let max = limit::MEMORY_METADATA_BYTES_MAX;
        return Err(refused("metadata", format!("at most {max} bytes of JSON, got {}", metadata.len())));
    }
    Ok(NewEntry { text, ..entry })
}

impl MemoryManager {
    async fn store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RecallStore, &str) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let (memories, project) = (Arc::clone(&self.memories), self.project.clone());
        blocking(move || work(&memories.store, &project.name())).await
    }

    /// Remembers texts, all or none. One that is known already keeps its name, and takes over facts that come with it.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] for an empty or overlong one; [`RecallError::Full`].
    pub async fn add(&self, entries: Vec<NewEntry>, cancel: &CancellationToken) -> Result<Remembered, MemoryError> {
        if entries.len() > limit::MEMORY_BATCH_MAX {
            let max = limit::MEMORY_BATCH_MAX;
            return Err(refused("entries", format!("at most {max} at once, got {}", entries.len())));
        }
        let entries = entries.into_iter().map(checked_entry).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<String> = entries.iter().map(|entry| entry.text.clone()).collect();
        let kept = self.store(move |store, project| Ok(store.add(project, &entries)?)).await?;
        let (added, forgotten) = (kept.added, kept.forgotten);
        if forgotten > 0 {
            tracing::info!(forgotten, "remembered texts that were of least use were forgotten");
        }
        let Some(embedding) = &self.memories.embedding else {
            return Ok(Remembered { added, forgotten, degraded: None });
        };
        let new: Vec<(i64, String)> =
            added.iter().zip(texts).filter(|(one, _)| one.new).map(|(one, text)| (one.key, text)).collect();
        // The texts are kept: from here on nothing fails, it is only said.
        let degraded = self.embed(embedding, (new, false), cancel).await.err();
        Ok(Remembered { added, forgotten, degraded })
    }

    /// What is remembered about a question, best answers first.
    ///
    /// # Errors
    /// [`MemoryError::Refused`] for an empty or overlong question, and for wishes out of range.
    pub async fn search(&self, query: &str, wanted: Wanted, cancel: &CancellationToken) -> Result<Found, MemoryError> {
        let query = checked("query", query, limit::MEMORY_QUERY_BYTES_MAX)?;
        let bounds = self.bounds(wanted)?;
        let count = self.store(|store, project| Ok(store.count(project)?)).await?;
        if count == 0 {
            return Ok(Found { answers: Vec::new(), degraded: None });
        }
        let Some(embedding) = &self.memories.embedding else {
            let found = self.found(&query, None, bounds).await?;
            return Ok(Found { answers: self.read(found.ranked, bounds.1).await?, degraded: None });
        };
        let vector = embedding.one(&query, cancel).await;
        if cancel.is_cancelled() {
            return Err(MemoryError::Aborted);
        }
        let (found, degraded) = match vector {
            Ok(vector) => (self.by_meaning((embedding, vector), (&query, bounds), cancel).await?, None),
            Err(none) => (self.found(&query, None, bounds).await?, Some(none.reason)),
        };
        Ok(Found { answers: self.read(found.ranked, bounds.1).await?, degraded })
    }

    /// The same by words alone, whether or not there is an embedding model.
    ///
    /// # Errors
    /// As [`Self::search`].
    pub async fn text_search(&self, query: &str, wanted: Wanted) -> Result<Vec<Answer>, MemoryError> {
        let query = checked("query", query, limit::MEMORY_QUERY_BYTES_MAX)?;
        let bounds = self.bounds(wanted)?;
        let found = self.found(&query, None, bounds).await?;
        self.read(found.ranked, bounds.1).await
    }

    fn bounds(&self, wanted: Wanted) -> Result<(f64, usize), MemoryError> {
        let threshold = wanted.threshold.unwrap_or(self.memories.threshold);
        if !(0.0..=1.0).contains(&threshold) {
            return Err(refused("threshold", format!("a number from 0 to 1, got {threshold}")));
        }
        let results = wanted.results.unwrap_or(self.memories.results);
        if !(1..=limit::MEMORY_RESULTS_MAX).contains(&results) {
            let max = limit::MEMORY_RESULTS_MAX;
            return Err(refused("maxResults", format!("a whole number from 1 to {max}, got {results}")));
        }
        Ok((threshold, results))
    }

    /// One text. None: there is none of that name.
    ///
    /// # Errors
    /// What the database says.
    pub async fn get(&self, id: &str) -> Result<Option<KeptEntry>, MemoryError> {
        let id = id.to_owned();
        self.store(move |store, project| Ok(store.get(project, &id)?)).await
    }

    /// Texts, newest first, at most `limit`, behind the first `skip`.
    ///
    /// # Errors
    /// What the database says.
    pub async fn list(&self, skip: usize, limit: usize) -> Result<Vec<KeptEntry>, MemoryError> {
        self.store(move |store, project| Ok(store.list(project, skip, limit)?)).await
    }

    /// Forgets a text. False: there is none of that name.
    ///
    /// # Errors
    /// What the database says.
    pub async fn delete(&self, id: &str) -> Result<bool, MemoryError> {
        let id = id.to_owned();
        self.store(move |store, project| Ok(store.delete(project, &id)?)).await
    }

    /// Forgets everything; how much it was.
    ///
    /// # Errors
    /// What the database says.
    pub async fn clear(&self) -> Result<usize, MemoryError> {
        self.store(|store, project| Ok(store.clear(project)?)).await
    }

    /// How many texts there are.
    ///
    /// # Errors
    /// What the database says.
    pub async fn size(&self) -> Result<usize, MemoryError> {
        self.store(|store, project| Ok(store.count(project)?)).await
    }
}

/// Searching, and giving texts their vectors.
impl MemoryManager {
    /// The best answers, by a model's vector of the question where there is one; twice as many as are wanted, since some
    /// may be much alike.
    async fn found(
        &self,
        query: &str,
        vector: Option<(&str, &[f32])>,
        (threshold, results): (f64, usize),
    ) -> Result<Finding, MemoryError> {
        let query = query.to_owned();
        let vector = vector.map(|(model, vector)| (model.to_owned(), vector.to_vec()));
        self.store(move |store, project| {
            let vector = vector.as_ref().map(|(model, vector)| (model.as_str(), vector.as_slice()));
            Ok(store.find(project, &Sought { query: &query, vector, results: 2 * results, threshold })?)
        })
        .await
    }

    /// Texts and scores of the best of what was found; what is gone by now is left out. They count as used.
    async fn read(&self, ranked: Vec<Ranked>, results: usize) -> Result<Vec<Answer>, MemoryError> {
        self.store(move |store, _| {
            let answers = various(answers(store, &ranked)?, results);
            let keys: Vec<i64> = answers.iter().map(|answer| answer.entry.key).collect();
            if let Err(error) = store.used(&keys) {
                // A full disk, or another process that writes for long, spoils no search.
                tracing::warn!(%error, "it could not be noted which texts were found");
            }
            Ok(answers)
        })
        .await
    }

    /// What is much like a text that was just remembered, best first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn alike(&self, key: i64, text: &str) -> Result<Vec<KeptEntry>, MemoryError> {
        let text = text.to_owned();
        let model = self.memories.embedding.as_ref().map(|embedding| embedding.model().to_owned());
        self.store(move |store, project| {
            let vector = store.vector_of(key)?.filter(|(of, _)| Some(of) == model.as_ref());
            let vector = vector.as_ref().map(|(model, vector)| (model.as_str(), vector.as_slice()));
            let sought = Sought { query: &text, vector, results: ALIKE_LOOKED_AT, threshold: 0.0 };
            let found = answers(store, &store.find(project, &sought)?.ranked)?;
            let likeness = Likeness::of(&text);
            let is_alike = |answer: &Answer| {
                let near = vector.is_some() && answer.score >= ALIKE_SCORE;
                near || likeness.share(&Likeness::of(&answer.entry.text)) >= ALIKE_WORDS
            };
            let alike = found.into_iter().filter(|answer| answer.entry.key != key && is_alike(answer));
            Ok(alike.take(ALIKE_MAX).map(|answer| answer.entry).collect())
        })
        .await
    }

    /// The best answers by meaning and by words; texts that have no vector yet get one first, a batch of them.
    async fn by_meaning(
        &self,
        (embedding, vector): (&Embedding, Vec<f32>),
        (query, bounds): (&str, (f64, usize)),
        cancel: &CancellationToken,
    ) -> Result<Finding, MemoryError> {
        let asked = Some((embedding.model(), vector.as_slice()));
        let mut found = self.found(query, asked, bounds).await?;
        if found.unsettled.is_empty() {
            return Ok(found);
        }
        // Who has no vector after that is judged by words; the question itself was understood.
        match self.embed(embedding, (std::mem::take(&mut found.unsettled), true), cancel).await {
            Ok(0) => Ok(found),
            Ok(_) => self.found(query, asked, bounds).await,
            Err(reason) => {
                tracing::warn!(reason, "remembered texts without a vector could not be given one");
                Ok(found)
            }
        }
    }

    /// Gives texts their vectors; how many got one. An error says why the rest got none. `proven`: the model has just
    /// answered, so that what it refuses now it refuses for the text's sake.
    async fn embed(
        &self,
        embedding: &Embedding,
        (texts, proven): (Vec<(i64, String)>, bool),
        cancel: &CancellationToken,
    ) -> Result<usize, String> {
        let mut done = 0;
        for batch in texts.chunks(limit::EMBEDDING_BATCH_MAX) {
            let (keys, texts): (Vec<i64>, Vec<String>) = batch.iter().cloned().unzip();
            let pairs: Vec<(i64, Vec<f32>)> = match embedding.all(&texts, cancel).await {
                Ok(vectors) => keys.into_iter().zip(vectors).collect(),
                Err(none) if none.refused && (proven || batch.len() > 1) => {
                    self.one_by_one(embedding, (batch, proven), cancel).await?
                }
                Err(none) => return Err(none.reason),
            };
            done += pairs.len();
            let model = embedding.model().to_owned();
            let put = self.store(move |store, _| Ok(store.put_vectors(&model, &pairs)?)).await;
            put.map_err(|error| error.to_string())?;
        }
        Ok(done)
    }

    /// A batch was refused: perhaps for one text in it. When the model is there (`proven`, or it takes some of them),
    /// those that it does not take are never sent again.
    async fn one_by_one(
        &self,
        embedding: &Embedding,
        (texts, proven): (&[(i64, String)], bool),
        cancel: &CancellationToken,
    ) -> Result<Vec<(i64, Vec<f32>)>, String> {
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (key, text) in texts {
            match embedding.one(text, cancel).await {
                Ok(vector) => taken.push((*key, vector)),
                Err(NoVectors { reason, refused: true }) => refused.push((*key, reason)),
                Err(none) => return Err(none.reason),
            }
            // Nothing is taken: it is not about the texts.
            if !proven && taken.is_empty() && refused.len() == REFUSALS_MAX {
                break;
            }
        }
        if let (false, true, Some((_, reason))) = (proven, taken.is_empty(), refused.first()) {
            return Err(reason.clone());
        }
        let model = embedding.model().to_owned();
        let put = move |store: &RecallStore, _: &str| -> Result<(), MemoryError> {
            refused.iter().try_for_each(|(key, _)| Ok(store.put_refused(&model, *key)?))
        };
        self.store(put).await.map_err(|error| error.to_string())?;
        Ok(taken)
    }
}

fn answers(store: &RecallStore, ranked: &[Ranked]) -> Result<Vec<Answer>, StoreError> {
    let entries = store.at(&ranked.iter().map(|one| one.key).collect::<Vec<_>>())?;
    let score = |key: i64| ranked.iter().find(|one| one.key == key).map_or(0.0, |one| one.score);
    Ok(entries.into_iter().map(|entry| Answer { score: score(entry.key), entry }).collect())
}

/// The best answers; one that is much like a better one gives way where there are others.
fn various(answers: Vec<Answer>, results: usize) -> Vec<Answer> {
    if answers.len() <= results {
        return answers;
    }
    let mut taken: Vec<(Likeness, usize)> = Vec::new();
    let mut repeated = Vec::new();
    for (place, answer) in answers.iter().enumerate() {
        let likeness = Likeness::of(&answer.entry.text);
        match taken.iter().any(|(other, _)| other.is_much(&likeness)) {
            true => repeated.push(place),
            false => taken.push((likeness, place)),
        }
        if taken.len() == results {
            break;
        }
    }
    let mut places: Vec<usize> = taken.into_iter().map(|(_, place)| place).chain(repeated).take(results).collect();
    places.sort_unstable();
    let mut places = places.into_iter().peekable();
    let chosen = answers.into_iter().enumerate().filter(|(place, _)| places.next_if_eq(place).is_some());
    chosen.map(|(_, answer)| answer).collect()
}

/// A text and its topic as something to remember.
pub(crate) fn entry_about(text: &str, topic: Option<&str>) -> NewEntry {
    let mut metadata = Map::new();
    if let Some(topic) = topic.map(str::trim).filter(|topic| !topic.is_empty()) {
        metadata.insert("topic".into(), topic.into());
    }
    NewEntry { text: text.to_owned(), metadata }
}
