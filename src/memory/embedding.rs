//! The embedding model behind its safeguards: a time limit, one more try where that may help, and a rest after a
//! failure, so that nobody waits again and again for an endpoint that is down. A refusal costs no rest: it comes at
//! once, and may be about one text alone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::limit;
use crate::model::retry::{RetryPolicy, jitter};
use crate::model::{Embedder, ModelError, Vectors};

/// How long the model is left alone after it has failed.
const REST: Duration = Duration::from_secs(30);

/// One more try, soon.
const RETRY: RetryPolicy =
    RetryPolicy { attempts_max: 2, base_delay: Duration::from_millis(250), delay_max: Duration::from_secs(2) };

/// A failure that still counts.
struct Failure {
    until: Instant,
    reason: String,
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoVectors {
    /// For people.
    pub reason: String,
    /// The model was there and did not take these texts.
    pub refused: bool,
}

/// An embedding model that may fail.
pub(super) struct Embedding {
    embedder: Arc<dyn Embedder>,
    failure: Mutex<Option<Failure>>,
}

impl Embedding {
    pub(super) fn new(embedder: Arc<dyn Embedder>) -> Self {
        Self { embedder, failure: Mutex::default() }
    }

    pub(super) fn model(&self) -> &str {
        self.embedder.model()
    }

    /// The vector of one text; an error says why there is none.
    pub(super) async fn one(&self, text: &str, cancel: &CancellationToken) -> Result<Vec<f32>, NoVectors> {
        let mut vectors = self.all(&[text.to_owned()], cancel).await?;
        let none = || NoVectors { reason: "the embedding model gave no vector".to_owned(), refused: false };
        vectors.pop().ok_or_else(none)
    }

    /// One vector for each text, all of one length; an error says why there are none.
    pub(super) async fn all(&self, texts: &[String], cancel: &CancellationToken) -> Result<Vectors, NoVectors> {
        if texts.is_empty() {
            return Ok(Vectors::new());
        }
        if let Some(failure) = self.failure.lock().as_ref().filter(|failure| failure.until > Instant::now()) {
            return Err(NoVectors { reason: failure.reason.clone(), refused: false });
        }
        let limit = Duration::from_millis(limit::EMBEDDING_TIMEOUT_MS);
        let asked = tokio::time::timeout(limit, self.ask(texts, cancel)).await;
        let asked = asked.unwrap_or_else(|_| {
            let message = format!("no answer within {} ms", limit::EMBEDDING_TIMEOUT_MS);
            Err(ModelError::Transient { message, retry_after: None })
        });
        let error = match asked {
            Ok(vectors) => {
                *self.failure.lock() = None;
                return Ok(vectors);
            }
            Err(ModelError::Aborted) => return Err(NoVectors { reason: "aborted".to_owned(), refused: false }),
            Err(error) => error,
        };
        let reason = format!("texts were compared by their words alone: the embedding model failed: {error}");
        tracing::warn!(model = self.model(), %error, "the embedding model failed; words alone decide for now");
        let refused = matches!(error, ModelError::Refused(_));
        if !refused {
            *self.failure.lock() = Some(Failure { until: Instant::now() + REST, reason: reason.clone() });
        }
        Err(NoVectors { reason, refused })
    }

    async fn ask(&self, texts: &[String], cancel: &CancellationToken) -> Result<Vectors, ModelError> {
        let mut attempt = 1;
        loop {
            let retry_after = match self.embedder.embed(texts, cancel).await {
                Ok(vectors) => return checked(vectors, texts.len()),
                Err(ModelError::Transient { retry_after, .. }) if attempt < RETRY.attempts_max => retry_after,
                Err(error) => return Err(error),
            };
            let pause = RETRY.delay(attempt, retry_after, jitter());
            tokio::select! {
                () = tokio::time::sleep(pause) => attempt += 1,
                () = cancel.cancelled() => return Err(ModelError::Aborted),
            }
        }
    }
}

/// What every embedder promises, held against what this one did.
fn checked(vectors: Vectors, texts: usize) -> Result<Vectors, ModelError> {
    let length = vectors.first().map_or(0, Vec::len);
    let fits = vectors.len() == texts
        && (1..=limit::EMBEDDING_DIMENSIONS_MAX).contains(&length)
        && vectors.iter().all(|vector| vector.len() == length && vector.iter().all(|number| number.is_finite()));
    if fits {
        return Ok(vectors);
    }
    let max = limit::EMBEDDING_DIMENSIONS_MAX;
    let expected = format!("expected {texts} vectors of one length from 1 to {max}, all of finite numbers");
    Err(ModelError::Malformed(format!("{expected}; got {} of length {length}, or of several", vectors.len())))
}
