//! The chat-completions wire (`POST …/chat/completions`, streamed), as OpenAI and many others speak it.
//!
//! `request` writes what is sent, `assemble` makes events of what comes, `failure` tells the kinds of
//! errors apart. This file only moves bytes between them. `embeddings` is the same endpoint's other wire.
//!
//! Invariants: the key stands in the `Authorization` header and nowhere else, no error repeats it; one
//! stream holds at most `MODEL_REPLY_BYTES_MAX` and waits at most the idle time-out for its next byte.

mod assemble;
mod embeddings;
mod failure;
#[cfg(test)]
#[path = "../../../fuzz/src/inside/answers.rs"]
mod inside;
mod reach;
mod request;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use crate::base::http::{self, Answer, Post};
use crate::base::limit;
use crate::base::sse::SseReader;
use crate::model::{Model, ModelError, ModelEvent, ModelRequest, ModelStream};
use crate::protocol::ToolDefinition;

pub(super) use embeddings::OpenAiEmbedder;
pub use reach::Reach;

use assemble::{Assembler, State};
use failure::{Redactor, from_http, from_status};
use reach::{Heard, Known};
use request::Told;

/// OpenAI's own endpoint.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";
/// The route of the models that talk.
const CHAT: &str = "/chat/completions";
/// Lists of tools whose words are kept.
const TOLD_MAX: usize = 8;
/// How long the end of the stream is waited for when the model has said that it is done.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a model is and how it is spoken to.
#[derive(Clone)]
pub struct OpenAiOptions {
    /// The model's name on the wire, such as `gpt-5`.
    pub model: String,
    /// With or without `/v1` or a slash at its end. None: OpenAI's own.
    pub base_url: Option<String>,
    /// The key. Local servers often want none; OpenAI's own does.
    pub api_key: Option<SecretString>,
    /// Longest silence, before the first byte and between any two.
    pub idle_timeout: Duration,
    /// Whether the model can be shown images.
    pub images: bool,
    /// What is known of the endpoint, shared by its models.
    pub reach: Reach,
}

impl fmt::Debug for OpenAiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base_url = self.base_url.as_deref().map(http::shown_address);
        f.debug_struct("OpenAiOptions").field("model", &self.model).field("base_url", &base_url).finish_non_exhaustive()
    }
}

/// A model behind such an endpoint.
#[derive(Debug)]
pub(super) struct OpenAi {
    id: String,
    endpoint: Arc<Endpoint>,
}

struct Endpoint {
    model: String,
    url: String,
    /// Whether the address was given; OpenAI's own needs a key.
    given: bool,
    api_key: Option<SecretString>,
    redact: Redactor,
    idle_timeout: Duration,
    images: bool,
    known: Known,
    /// The tools of the last requests, each list once.
    told: Mutex<VecDeque<(Arc<[ToolDefinition]>, Arc<Told>)>>,
}

/// The model alone: a key may stand in the address.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Whether there is all that it takes to ask it.
    fn set_up(&self) -> Result<(), ModelError> {
        http::check_url(&self.url)
            .map_err(|error| ModelError::Unavailable(format!("the base URL of the model: {error}")))?;
        if self.api_key.is_none() && !self.given {
            let words = "no API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server that needs none";
            return Err(ModelError::Unauthorized(words.into()));
        }
        Ok(())
    }

    /// Notes a failure that says that the endpoint cannot be used, and hands it on.
    fn lost(&self, error: ModelError) -> ModelError {
        self.known.note(Heard::NoEndpoint, Some(&error));
        error
    }

    /// The same for one that came inside an answer, if it says so.
    fn refused(&self, error: ModelError) -> ModelError {
        if matches!(error, ModelError::Unauthorized(_)) { self.lost(error) } else { error }
    }

    /// The words for these tools.
    fn told(&self, tools: &Arc<[ToolDefinition]>) -> Result<Arc<Told>, ModelError> {
        let known = |all: &VecDeque<(Arc<[ToolDefinition]>, Arc<Told>)>| {
            all.iter().find(|(known, _)| Arc::ptr_eq(known, tools)).map(|(_, told)| Arc::clone(told))
        };
        if let Some(told) = known(&self.told.lock()) {
            return Ok(told);
        }
        let made = Arc::new(Told::of(tools)?);
        let mut all = self.told.lock();
        all.truncate(TOLD_MAX - 1);
        all.push_front((Arc::clone(tools), Arc::clone(&made)));
        Ok(made)
    }
}

impl OpenAi {
    pub fn new(options: OpenAiOptions) -> Self {
        let base_url = options.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let api_key = options.api_key.and_then(trimmed);
        let endpoint = Endpoint {
            url: route_url(base_url, CHAT),
            given: options.base_url.is_some(),
            redact: Redactor::new(api_key.as_ref(), base_url),
            api_key,
            idle_timeout: options.idle_timeout,
            images: options.images,
            known: Known::of(options.reach),
            told: Mutex::default(),
            model: options.model,
        };
        Self { id: format!("openai/{}", endpoint.model), endpoint: Arc::new(endpoint) }
    }
}

impl Model for OpenAi {
    fn id(&self) -> &str {
        &self.id
    }

    fn takes_images(&self) -> bool {
        self.endpoint.images
    }

    fn available(&self) -> Result<(), ModelError> {
        self.endpoint.set_up().and_then(|()| self.endpoint.known.usable())
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        // Whether it works is tried each time: it may again.
        let ready = self.endpoint.set_up();
        let talk = Box::new(Talk {
            endpoint: Arc::clone(&self.endpoint),
            cancel,
            phase: ready.map_or_else(Phase::Failed, |()| Phase::Asking(Box::new(request))),
            ready: VecDeque::new(),
            told: Arc::default(),
        });
        Box::pin(futures_util::stream::unfold(talk, |mut talk| async move {
            let item = talk.next().await?;
            Some((item, talk))
        }))
    }
}

/// One request and its answer.
struct Talk {
    endpoint: Arc<Endpoint>,
    cancel: CancellationToken,
    phase: Phase,
    /// Events that came together and are handed out one by one.
    ready: VecDeque<ModelEvent>,
    /// The tools in the wire's words.
    told: Arc<Told>,
}

enum Phase {
    Asking(Box<ModelRequest>),
    Listening(Box<Listening>),
    Failed(ModelError),
    Over,
}

struct Listening {
    answer: Answer,
    reader: SseReader,
    assembler: Assembler,
}

impl Talk {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let cancel = self.cancel.clone();
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Failed(error) => return Some(Err(error)),
                Phase::Asking(request) => tokio::select! {
                    biased;
                    () = cancel.cancelled() => Phase::Failed(ModelError::Aborted),
                    // Apart: it is large, and this future is made for each piece of the answer.
                    phase = Box::pin(self.ask(*request)) => phase.unwrap_or_else(Phase::Failed),
                },
                Phase::Listening(listening) => tokio::select! {
                    biased;
                    () = cancel.cancelled() => Phase::Failed(ModelError::Aborted),
                    phase = self.listen(listening) => phase.unwrap_or_else(Phase::Failed),
                },
            };
        }
    }

    async fn ask(&mut self, request: ModelRequest) -> Result<Phase, ModelError> {
        let endpoint = Arc::clone(&self.endpoint);
        let redact = endpoint.redact.clone();
        self.told = endpoint.told(&request.tools)?;
        let post = Post {
            url: endpoint.url.clone(),
            bearer: endpoint.api_key.clone(),
            accept: "text/event-stream",
            body: request::encode(&endpoint.model, &request, &self.told)?,
            idle_timeout: endpoint.idle_timeout,
        };
        drop(request);
        let mut answer = http::post(post).await.map_err(|error| endpoint.lost(redact.error(from_http(&error))))?;
        if !(200..300).contains(&answer.status) {
            let (status, retry_after) = (answer.status, answer.retry_after);
            let body = redact.text(answer.text(failure::BODY_BYTES_MAX).await);
            let error = redact.error(from_status(status, retry_after, &body));
            endpoint.known.note(Heard::of_status(status, &error), Some(&error));
            return Err(error);
        }
        endpoint.known.note(Heard::Success, None);
        let mut assembler = Assembler::new(redact);
        if answer.content_type == "application/json" {
            // A server that does not stream: the same words in one piece.
            let body = answer.text(limit::MODEL_REPLY_BYTES_MAX).await;
            assembler.take_whole(&body).map_err(|error| endpoint.refused(error))?;
            self.hand_out(&mut assembler);
            return Ok(Phase::Over);
        }
        let reader = SseReader::new(limit::MODEL_EVENT_BYTES_MAX);
        Ok(Phase::Listening(Box::new(Listening { answer, reader, assembler })))
    }

    /// Takes what was assembled.
    fn hand_out(&mut self, assembler: &mut Assembler) {
        self.ready.extend(assembler.drain().map(|event| self.told.names.restore(event)));
    }

    async fn listen(&mut self, mut listening: Box<Listening>) -> Result<Phase, ModelError> {
        let Listening { answer, reader, assembler } = &mut *listening;
        let piece = match answer.chunk().await {
            Ok(piece) => piece,
            // It had said that it is done: how the connection ends does not matter.
            Err(_) if assembler.state() == State::Stopped => None,
            Err(error) => return Err(assembler.redact(from_http(&error))),
        };
        let Some(piece) = piece else {
            assembler.close()?;
            self.hand_out(assembler);
            return Ok(Phase::Over);
        };
        let mut problem = None;
        reader
            .push(&piece, |event, data| {
                if problem.is_none() {
                    problem = assembler.take(event, data).err();
                }
            })
            .map_err(|error| ModelError::Malformed(format!("the model's stream: {error}")))?;
        self.hand_out(assembler);
        if let Some(error) = problem {
            return Ok(Phase::Failed(self.endpoint.refused(error)));
        }
        match assembler.state() {
            State::Done => {
                listening.answer.finish();
                Ok(Phase::Over)
            }
            State::Stopped => {
                answer.set_idle_timeout(CLOSING_TIMEOUT.min(self.endpoint.idle_timeout));
                Ok(Phase::Listening(listening))
            }
            State::Talking => Ok(Phase::Listening(listening)),
        }
    }
}

/// A key without the blanks and line ends that come along from files. None: nothing is left.
fn trimmed(key: SecretString) -> Option<SecretString> {
    let text = key.expose_secret().trim();
    if text.len() == key.expose_secret().len() && !text.is_empty() {
        return Some(key);
    }
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// The address of a route under a base address. A query of the base, as some endpoints want a version in one, stays behind it.
fn route_url(base: &str, route: &str) -> String {
    let base = base.trim();
    let base = base.split_once('#').map_or(base, |(base, _)| base);
    let (base, query) = base.find('?').map_or((base, ""), |at| base.split_at(at));
    let base = base.trim_end_matches('/');
    let base = base.strip_suffix(CHAT).unwrap_or(base);
    let path = base.split_once("://").map_or(base, |(_, rest)| rest);
    let version = if path.contains('/') { "" } else { "/v1" };
    format!("{base}{version}{route}{query}")
}
