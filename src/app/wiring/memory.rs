//! The long-term memory of the settings, and the model that makes its vectors: one of an endpoint, or one of a directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::app::OpenError;
use crate::app::providers::openai_options;
use crate::base::panics::broken;
use crate::config::{MemorySettings, Setting, Settings};
use crate::memory::{Memories, Wanted};
use crate::model::Embedder;
use crate::provider::{self, LocalEmbedder, Reach};
use crate::store::StoreError;
use crate::store::recall::{Keep, RecallStore};

/// Its file in the data directory.
const MEMORY_FILE: &str = "memory.db";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The long-term memory, in the data directory where there is one. None: it is switched off.
pub(in crate::app) async fn memories(
    settings: &Settings,
    data_directory: Option<&Path>,
) -> Result<Option<Arc<Memories>>, OpenError> {
    let memory = &settings.memory;
    if !memory.enabled {
        return Ok(None);
    }
    let keep = keep(memory);
    let path = data_directory.map(|directory| directory.join(MEMORY_FILE));
    let open = move || path.map_or_else(RecallStore::in_memory, |path| RecallStore::open(&path));
    let (opened, of) = (tokio::task::spawn_blocking(open), settings.clone());
    let embedder = tokio::task::spawn_blocking(move || embedder(&of)).await;
    let failed = |e: tokio::task::JoinError| StoreError::Io { doing: "open the memory".into(), cause: broken(e) };
    let (embedder, store) = (embedder.map_err(failed)??, opened.await.map_err(failed)??);
    let wanted = Wanted { results: Some(memory.results), threshold: Some(memory.similarity_threshold) };
    Ok(Some(Memories::new(store.keeping(keep), embedder, wanted)))
}

fn keep(memory: &MemorySettings) -> Keep {
    let days = |days: u64| DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX));
    Keep { entries_max: memory.entries_max, unused_max: memory.forget_after_days.map(days) }
}

/// Why the embedding model that is named would not be taken. Reads a model that lies here.
pub(in crate::app) fn embedder_fault(settings: &Settings) -> Option<OpenError> {
    if settings.memory.enabled { embedder(settings).err() } else { None }
}

fn embedder(settings: &Settings) -> Result<Option<Arc<dyn Embedder>>, OpenError> {
    let memory = &settings.memory;
    let refused = |setting, expected| OpenError::Setting { field: settings.names.of(setting), expected };
    match (memory.model.as_deref(), memory.embedding_model.as_deref()) {
        (None, None) => Ok(None),
        (None, Some(name)) => of_the_endpoint(settings, name).map(Some),
        (Some(directory), None) => {
            let opened = LocalEmbedder::open(directory);
            let opened = opened.map_err(|e| refused(Setting::MemoryModel, format!("the directory of a model; {e}")))?;
            Ok(Some(Arc::new(opened)))
        }
        (Some(_), Some(_)) => {
            let other = settings.names.of(Setting::EmbeddingModel);
            Err(refused(
                Setting::MemoryModel,
                format!("nothing, because {other} is there: one model makes the vectors"),
            ))
        }
    }
}

fn of_the_endpoint(settings: &Settings, name: &str) -> Result<Arc<dyn Embedder>, OpenError> {
    let openai = &settings.openai;
    let name = name.strip_prefix("openai/").unwrap_or(name);
    if (openai.base_url.is_some() || openai.api_key.is_some()) && !name.is_empty() {
        return Ok(provider::openai_embedder(openai_options(settings, name, &Reach::default())));
    }
    let expected = format!(
        "a model of a configured endpoint, got `openai/{name}`; `openai/NAME` needs OPENAI_API_KEY or OPENAI_BASE_URL"
    );
    Err(OpenError::Setting { field: settings.names.of(Setting::EmbeddingModel), expected })
}
