//! An embedding model in a directory, in the form in which Model2Vec writes them: `tokenizer.json`, `model.safetensors`,
//! `config.json`. Such a model is a table: the vector of a text is the mean of its tokens' vectors. No network, no other
//! program, and far less than a millisecond for a text.
//!
//! Invariants: the same files are the same model, wherever they lie, and other files another one; what a directory
//! holds that is not understood is refused by name when it is read, never passed over; the files are read once.

mod charsmap;
mod classes;
mod normalize;
mod pieces;
mod table;
mod tokenizer;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::base::{BoxFuture, limit};
use crate::model::{Embedder, ModelError, Vectors};

use table::Table;
use tokenizer::Tokenizer;

/// Tokens of a text that count.
const TOKENS_MAX: usize = 512;
/// Bytes of the digest that name a model.
const NAME_BYTES: usize = 8;

/// A directory holds no model that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct LocalModelError {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The model of a directory.
pub struct LocalEmbedder {
    name: String,
    model: Arc<(Tokenizer, Table)>,
}

impl std::fmt::Debug for LocalEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalEmbedder").field("name", &self.name).finish_non_exhaustive()
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, LocalModelError> {
    let failed = |problem: String| LocalModelError { file: path.display().to_string(), problem };
    let io = |error: std::io::Error| failed(error.to_string());
    // A pipe or a device would never end.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(failed("expected a file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > bytes_max {
        return Err(failed(format!("expected at most {bytes_max} bytes")));
    }
    Ok(bytes)
}

impl LocalEmbedder {
    /// Reads the model. Blocks, for up to a second with a large one.
    ///
    /// # Errors
    /// [`LocalModelError`] names the file that is missing or is not understood, and why.
    pub fn open(directory: &Path) -> Result<Self, LocalModelError> {
        let mut digest = Sha256::new();
        let mut part = |name: &str, bytes_max: u64| -> Result<(String, Vec<u8>), LocalModelError> {
            let path = directory.join(name);
            let bytes = read(&path, bytes_max)?;
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(&bytes);
            Ok((path.display().to_string(), bytes))
        };
        let (config, tokenizer, weights) = (
            part("config.json", limit::LOCAL_MODEL_JSON_BYTES_MAX)?,
            part("tokenizer.json", limit::LOCAL_MODEL_JSON_BYTES_MAX)?,
            part("model.safetensors", limit::LOCAL_MODEL_BYTES_MAX)?,
        );
        let in_file = |file: &String| {
            let file = file.clone();
            move |problem| LocalModelError { file: file.clone(), problem }
        };
        let read: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_slice(&config.1);
        read.map_err(|error| in_file(&config.0)(error.to_string()))?;
        let words = Tokenizer::read(&tokenizer.1).map_err(in_file(&tokenizer.0))?;
        let table = Table::read(weights.1, words.ids()).map_err(in_file(&weights.0))?;
        let digest = digest.finalize();
        let hex: String = digest.iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: format!("local/{hex}"), model: Arc::new((words, table)) })
    }

    /// The vector of one text, of length one; all zero when the model knows nothing in it.
    fn vector((words, table): &(Tokenizer, Table), text: &str) -> Vec<f32> {
        table.mean(&words.ids_of(text, TOKENS_MAX))
    }
}

impl Embedder for LocalEmbedder {
    fn model(&self) -> &str {
        &self.name
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vectors, ModelError>> {
        let (model, texts, cancel) = (Arc::clone(&self.model), texts.to_vec(), cancel.clone());
        Box::pin(async move {
            let work = move || {
                let one = |text: &String| (!cancel.is_cancelled()).then(|| Self::vector(&model, text));
                texts.iter().map(one).collect::<Option<Vectors>>().ok_or(ModelError::Aborted)
            };
            match tokio::task::spawn_blocking(work).await {
                Ok(vectors) => vectors,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(ModelError::Aborted),
            }
        })
    }
}
