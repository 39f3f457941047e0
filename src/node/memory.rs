//! The long-term memory for programs in JavaScript: what the server's sessions have, over an embedding provider of the program's own.
//!
//! `js/memory.cjs` is the face of it. Vectors come from the object `target`; what they are made of, and how answers are ranked, is the
//! server's own (`memory`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure, NativeBridge};
use super::error::{envelope, parse, to_json};
use crate::base::BoxFuture;
use crate::memory::{Answer, Memories, MemoryError, MemoryManager, Project, Wanted};
use crate::model::{Embedder, ModelError, Vectors};
use crate::provider::LocalEmbedder;
use crate::store::recall::{Keep, KeptEntry, NewEntry, RecallStore};

/// What the face hands over, checked there.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Where the memory lies. None: nowhere, and it ends with the program.
    path: Option<PathBuf>,
    project: String,
    model: String,
    /// The directory of a model that makes the vectors in place of the program's provider.
    directory: Option<PathBuf>,
    max_results: usize,
    similarity_threshold: f64,
    max_entries: usize,
    forget_after_days: Option<u64>,
}

impl Config {
    /// Opens the file, and reads the model that lies here. Blocks.
    fn open(&self, provider: Arc<dyn Embedder>) -> napi::Result<(RecallStore, Arc<dyn Embedder>)> {
        let path = self.path.as_deref();
        let store =
            path.map_or_else(RecallStore::in_memory, RecallStore::open).map_err(|error| failed(&error.into()))?;
        let days = |days: u64| Duration::from_secs(days.saturating_mul(24 * 3600));
        let keep = Keep { entries_max: self.max_entries, unused_max: self.forget_after_days.map(days) };
        let embedder = match &self.directory {
            Some(directory) => Arc::new(local(directory)?) as Arc<dyn Embedder>,
            None => provider,
        };
        Ok((store.keeping(keep), embedder))
    }
}

fn local(directory: &Path) -> napi::Result<LocalEmbedder> {
    LocalEmbedder::open(directory).map_err(|error| {
        let metadata = json!({ "file": error.file });
        envelope("EMBEDDING_ERROR", format!("no model can be read: {error}"), metadata)
    })
}

/// An embedding model in a directory, read when it is first asked.
#[napi]
pub struct NativeEmbedder {
    directory: PathBuf,
    model: Arc<tokio::sync::OnceCell<LocalEmbedder>>,
}

#[napi]
impl NativeEmbedder {
    /// Reads nothing yet.
    #[napi(constructor, catch_unwind)]
    pub fn new(directory: String) -> Self {
        Self { directory: directory.into(), model: Arc::default() }
    }

    /// The vectors of texts.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn embed<'env>(&self, env: &'env Env, texts: String) -> Promised<'env> {
        let texts: Vec<String> = parse("embed", &texts)?;
        let (directory, model) = (self.directory.clone(), Arc::clone(&self.model));
        env.spawn_future(async move {
            let read = || async {
                let read = tokio::task::spawn_blocking(move || local(&directory)).await;
                read.map_err(|error| envelope("EMBEDDING_ERROR", error.to_string(), Value::Null))?
            };
            let vectors = model.get_or_try_init(read).await?.embed(&texts, &CancellationToken::new()).await;
            let vectors = vectors.map_err(|error| envelope("EMBEDDING_ERROR", error.to_string(), Value::Null))?;
            Ok(to_json(&json!({ "embeddings": vectors })))
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
    #[serde(default)]
    metadata: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    query: String,
    max_results: Option<usize>,
    threshold: Option<f64>,
    /// By words alone.
    words: bool,
}

/// Embeds with the program's own provider.
struct JsEmbedder {
    bridge: Arc<Bridge>,
    target: u32,
    model: String,
}

#[derive(Debug, Deserialize)]
struct Embedded {
    embeddings: Vectors,
}

impl Embedder for JsEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vectors, ModelError>> {
        Box::pin(async move {
            let answer = self.bridge.call(self.target, "embed", to_json(&texts), cancel).await;
            let text = answer.map_err(|failure| match failure {
                CallFailure::Threw(message) => ModelError::Transient { message, retry_after: None },
                CallFailure::BadInput(message) => ModelError::Malformed(message),
                CallFailure::Aborted => ModelError::Aborted,
            })?;
            let read: Result<Embedded, _> = serde_json::from_str(&text);
            let Embedded { embeddings } = read.map_err(|error| ModelError::Malformed(error.to_string()))?;
            let length = embeddings.first().map_or(0, Vec::len);
            let fits = |vector: &Vec<f32>| vector.len() == length && vector.iter().all(|number| number.is_finite());
            if embeddings.len() == texts.len() && length > 0 && embeddings.iter().all(fits) {
                return Ok(embeddings);
            }
            let expected = format!("expected {} vectors of one length and of finite numbers", texts.len());
            Err(ModelError::Malformed(expected))
        })
    }
}

/// A memory, once it is open.
#[napi]
pub struct NativeMemory {
    open: Arc<Mutex<Option<(Arc<Memories>, MemoryManager)>>>,
    embedder: Arc<JsEmbedder>,
    config: Arc<Config>,
}

fn failed(error: &MemoryError) -> napi::Error {
    match error {
        MemoryError::Refused { field, .. } => {
            let issue = json!({ "issues": [{ "path": field, "message": error.to_string() }] });
            envelope("CONFIG_VALIDATION", error.to_string(), issue)
        }
        MemoryError::Recall(_) | MemoryError::Aborted => envelope("MEMORY_ERROR", error.to_string(), Value::Null),
    }
}

fn shown(entry: &KeptEntry) -> Value {
    json!({ "id": entry.id, "text": entry.text, "metadata": entry.metadata, "timestamp": entry.created_at })
}

fn scored(answers: &[Answer]) -> Vec<Value> {
    answers.iter().map(|answer| json!({ "entry": shown(&answer.entry), "score": answer.score })).collect()
}

type Promised<'env> = napi::Result<PromiseRaw<'env, String>>;

impl NativeMemory {
    fn manager(&self) -> napi::Result<MemoryManager> {
        let open = self.open.lock().as_ref().map(|(_, manager)| manager.clone());
        open.ok_or_else(|| envelope("MEMORY_ERROR", "the memory is not initialized".to_owned(), Value::Null))
    }
}

#[napi]
impl NativeMemory {
    /// Opens nothing yet. `target` embeds.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, config: String, target: u32) -> napi::Result<Self> {
        let config: Config = parse("createMemoryManager", &config)?;
        let (bridge, model) = (Arc::clone(&bridge.inner), config.model.clone());
        let embedder = Arc::new(JsEmbedder { bridge, target, model });
        Ok(Self { open: Arc::default(), embedder, config: Arc::new(config) })
    }

    /// Opens it. Twice: nothing.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn initialize<'env>(&self, env: &'env Env) -> Promised<'env> {
        let (open, config) = (Arc::clone(&self.open), Arc::clone(&self.config));
        let embedder = Arc::clone(&self.embedder) as Arc<dyn Embedder>;
        env.spawn_future(async move {
            if open.lock().is_some() {
                return Ok("null".to_owned());
            }
            let of = Arc::clone(&config);
            let opened = tokio::task::spawn_blocking(move || of.open(embedder)).await;
            let opened = opened.map_err(|error| envelope("MEMORY_ERROR", error.to_string(), Value::Null))?;
            let (store, embedder) = opened?;
            let wanted = Wanted { results: Some(config.max_results), threshold: Some(config.similarity_threshold) };
            let memories = Memories::new(store, Some(embedder), wanted);
            let manager = memories.of(Project::Named(config.project.clone()));
            // Who was first has opened it; the other one closes with this scope.
            open.lock().get_or_insert((memories, manager));
            Ok("null".to_owned())
        })
    }

    /// Closes it; what comes after fails.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn dispose<'env>(&self, env: &'env Env) -> Promised<'env> {
        let open = self.open.lock().take();
        env.spawn_future(async move {
            if let Some((memories, _)) = open {
                memories.close().await.map_err(|error| failed(&error))?;
            }
            Ok("null".to_owned())
        })
    }

    /// Remembers texts: `{ids, degraded}`.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn add<'env>(&self, env: &'env Env, entries: String) -> Promised<'env> {
        let manager = self.manager()?;
        let given: Vec<Text> = parse("addBatch", &entries)?;
        let entries = given.into_iter().map(|Text { text, metadata }| NewEntry { text, metadata }).collect();
        env.spawn_future(async move {
            let done = manager.add(entries, &CancellationToken::new()).await.map_err(|error| failed(&error))?;
            let ids: Vec<&str> = done.added.iter().map(|one| one.id.as_str()).collect();
            Ok(to_json(&json!({ "ids": ids, "degraded": done.degraded })))
        })
    }

    /// Finds: `{answers, degraded}`.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn search<'env>(&self, env: &'env Env, asked: String) -> Promised<'env> {
        let manager = self.manager()?;
        let Asked { query, max_results, threshold, words } = parse("search", &asked)?;
        let wanted = Wanted { results: max_results, threshold };
        env.spawn_future(async move {
            let found = if words {
                manager.text_search(&query, wanted).await.map(|answers| (answers, None))
            } else {
                let found = manager.search(&query, wanted, &CancellationToken::new()).await;
                found.map(|found| (found.answers, found.degraded))
            };
            let (answers, degraded) = found.map_err(|error| failed(&error))?;
            Ok(to_json(&json!({ "answers": scored(&answers), "degraded": degraded })))
        })
    }

    /// One text, or null.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn get<'env>(&self, env: &'env Env, id: String) -> Promised<'env> {
        let manager = self.manager()?;
        env.spawn_future(async move {
            let found = manager.get(&id).await.map_err(|error| failed(&error))?;
            Ok(to_json(&found.as_ref().map(shown)))
        })
    }

    /// Texts, newest first.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn list<'env>(&self, env: &'env Env, skip: u32, limit: u32) -> Promised<'env> {
        let manager = self.manager()?;
        env.spawn_future(async move {
            let found = manager.list(skip as usize, limit as usize).await.map_err(|error| failed(&error))?;
            Ok(to_json(&found.iter().map(shown).collect::<Vec<_>>()))
        })
    }

    /// Forgets one: whether there was one.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn remove<'env>(&self, env: &'env Env, id: String) -> Promised<'env> {
        let manager = self.manager()?;
        env.spawn_future(async move { Ok(to_json(&manager.delete(&id).await.map_err(|error| failed(&error))?)) })
    }

    /// Forgets all.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn clear<'env>(&self, env: &'env Env) -> Promised<'env> {
        let manager = self.manager()?;
        env.spawn_future(async move { Ok(to_json(&manager.clear().await.map_err(|error| failed(&error))?)) })
    }

    /// How many there are.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn size<'env>(&self, env: &'env Env) -> Promised<'env> {
        let manager = self.manager()?;
        env.spawn_future(async move { Ok(to_json(&manager.size().await.map_err(|error| failed(&error))?)) })
    }
}
