//! The embeddings wire (`POST …/embeddings`), as OpenAI and many others speak it.
//!
//! Invariants as for the chat-completions wire: the key stands in the `Authorization` header and nowhere else, no
//! error repeats it. What comes back is checked to the last number before anybody sees it: one vector for each text,
//! all of one length, each at the place that its `index` says.

use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{DEFAULT_BASE_URL, OpenAiOptions, VERSION};
use crate::base::http::{self, Post};
use crate::base::{BoxFuture, limit};
use crate::model::{Embedder, ModelError, Vectors};
use crate::provider::wire::{BODY_BYTES_MAX, Redactor, from_http, from_object, from_status, route_url, trimmed};

/// An embedding model behind such an endpoint.
#[derive(Debug)]
pub(in crate::provider) struct OpenAiEmbedder {
    model: String,
    url: String,
    given: bool,
    api_key: Option<SecretString>,
    idle_timeout: Duration,
}

/// An answer, as far as it is needed.
#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    data: Option<Vec<Embedding>>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Embedding {
    /// Some servers leave it out: then the order counts.
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    pub fn new(options: OpenAiOptions) -> Self {
        Self {
            url: route_url(options.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL), VERSION, "/embeddings"),
            given: options.base_url.is_some(),
            api_key: options.api_key.and_then(trimmed),
            idle_timeout: options.idle_timeout,
            model: options.model,
        }
    }

    async fn ask(&self, texts: &[String]) -> Result<Vectors, ModelError> {
        if self.api_key.is_none() && !self.given {
            return Err(ModelError::Unauthorized("no API key for the embedding model".into()));
        }
        let redact = Redactor::new(self.api_key.as_ref(), &self.url);
        let body = json!({ "model": self.model, "input": texts, "encoding_format": "float" });
        let post = Post {
            url: self.url.clone(),
            bearer: self.api_key.clone(),
            headers: Vec::new(),
            accept: "application/json",
            body: body.to_string().into(),
            idle_timeout: self.idle_timeout,
        };
        let mut answer = http::post(post).await.map_err(|error| redact.error(from_http(&error)))?;
        if !(200..300).contains(&answer.status) {
            let (status, retry_after) = (answer.status, answer.retry_after);
            let body = redact.text(answer.text(BODY_BYTES_MAX).await);
            return Err(redact.error(from_status(status, retry_after, &body)));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| redact.error(from_http(&error)))? {
            if bytes.len() + piece.len() > limit::EMBEDDING_REPLY_BYTES_MAX {
                let max = limit::EMBEDDING_REPLY_BYTES_MAX;
                return Err(ModelError::Malformed(format!("the embeddings are longer than {max} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        read(&bytes, texts.len()).map_err(|error| redact.error(error))
    }
}

impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vectors, ModelError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(ModelError::Aborted),
                vectors = self.ask(texts) => vectors,
            }
        })
    }
}

/// The vectors of an answer, in the order of the texts.
fn read(body: &[u8], texts: usize) -> Result<Vectors, ModelError> {
    let malformed = |what: String| ModelError::Malformed(format!("the embeddings: {what}"));
    let reply: Reply = serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
    if let Some(error) = reply.error.filter(|error| !error.is_null()) {
        return Err(from_object(&error));
    }
    let data = reply.data.ok_or_else(|| malformed("no `data`".into()))?;
    if data.len() != texts {
        return Err(malformed(format!("expected {texts} vectors, got {}", data.len())));
    }
    let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); texts];
    let length = data.first().map_or(0, |first| first.embedding.len());
    for (place, Embedding { index, embedding }) in data.into_iter().enumerate() {
        let index = index.unwrap_or(place);
        let slot = vectors.get_mut(index).filter(|slot| slot.is_empty());
        let slot = slot.ok_or_else(|| malformed(format!("index {index} comes twice or lies outside")))?;
        if embedding.len() != length || !(1..=limit::EMBEDDING_DIMENSIONS_MAX).contains(&length) {
            let max = limit::EMBEDDING_DIMENSIONS_MAX;
            let got = embedding.len();
            return Err(malformed(format!("expected vectors of one length from 1 to {max}, got {length} and {got}")));
        }
        if embedding.iter().any(|number| !number.is_finite()) {
            return Err(malformed("a number that is not finite".into()));
        }
        *slot = embedding;
    }
    Ok(vectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_the_last_number() {
        #[rustfmt::skip]
        let table: &[(&str, Result<Vectors, &str>)] = &[
            (r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,0.5]},{"index":1,"embedding":[0,-1]}],"model":"m","usage":{"prompt_tokens":2,"total_tokens":2}}"#,
                Ok(vec![vec![1.0, 0.5], vec![0.0, -1.0]])),
            (r#"{"data":[{"index":1,"embedding":[0]},{"index":0,"embedding":[1]}]}"#, Ok(vec![vec![1.0], vec![0.0]])),
            (r#"{"data":[{"embedding":[1]},{"embedding":[2]}]}"#, Ok(vec![vec![1.0], vec![2.0]])),
            (r#"{"data":[{"index":0,"embedding":[1]}]}"#, Err("expected 2 vectors, got 1")),
            (r#"{"data":[]}"#, Err("expected 2 vectors, got 0")),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#, Err("index 0 comes twice")),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}"#, Err("index 2 comes twice or lies outside")),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}"#, Err("got 1 and 2")),
            (r#"{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}"#, Err("from 1 to")),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1e99]}]}"#, Err("number out of range")),
            (r#"{"data":[{"index":0,"embedding":["1"]},{"index":1,"embedding":[1]}]}"#, Err("invalid type")),
            (r#"{"data":[{"index":0,"embedding":"AACAPw=="}]}"#, Err("invalid type")),
            (r#"{"data":[{"index":0,"embedding":[1]"#, Err("EOF")),
            (r#"{"error":{"message":"no such model","type":"invalid_request_error"}}"#, Err("no such model")),
            (r#"{"object":"list"}"#, Err("no `data`")),
            ("<html>", Err("expected value")),
            ("", Err("EOF")),
        ];
        for (body, want) in table {
            match (read(body.as_bytes(), 2), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, *want, "{body}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{body}: {error}"),
                (got, want) => panic!("{body}: {got:?}, not {want:?}"),
            }
        }
    }
}
