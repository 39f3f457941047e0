//! A model behind HTTP: one request and its answer, from bytes to events. What the bytes mean, its wire says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Answering;
use super::failure::{BODY_BYTES_MAX, Redactor, from_http, from_status};
use super::gate::Pass;
use super::halves::{Halves, without_halves};
use super::place::{Keyed, Place};
use super::reach::{Heard, Known};
use super::tape::Asked;
use super::{Assemble, KeyHeader, Spec, State, Told, Wire, count};
use crate::base::BoxFuture;
use crate::base::http::{self, HttpError, Post};
use crate::base::limit;
use crate::base::sse::SseReader;
use crate::model::{Model, ModelError, ModelEvent, ModelFacts, ModelRequest, ModelStream, Pieces};
use crate::protocol::ToolDefinition;

/// Lists of tools whose words are kept.
const TOLD_MAX: usize = 8;
/// Bytes of an answer that are read at once, if they are there.
const AT_ONCE_BYTES: usize = 16 << 10;
/// How long the end of the stream is waited for when the model has said that it is done.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// A model behind such an endpoint.
pub(in crate::provider) struct HttpModel {
    endpoint: Arc<Endpoint>,
}

pub(super) struct Endpoint {
    pub(super) wire: Arc<dyn Wire>,
    pub(super) spec: Spec,
    pub(super) place: Arc<Place>,
    url: String,
    known: Known,
    /// The tools of the last requests, each list once.
    told: Mutex<VecDeque<(Arc<[ToolDefinition]>, Arc<Told>)>>,
}

/// The model alone: a key may stand in the address.
impl std::fmt::Debug for HttpModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpModel").field("id", &self.endpoint.spec.id).finish_non_exhaustive()
    }
}

impl HttpModel {
    /// A model that is spoken to over that wire, there.
    pub(in crate::provider) fn new(wire: Arc<dyn Wire>, mut spec: Spec, place: Arc<Place>) -> Self {
        let url = wire.url(&place.base_url, &spec.model);
        spec.vendor = wire.vendor().is_some_and(|front| url.starts_with(front));
        let known = Known::of(place.reach.clone());
        Self { endpoint: Arc::new(Endpoint { wire, spec, place, url, known, told: Mutex::default() }) }
    }
}

impl Model for HttpModel {
    fn id(&self) -> &str {
        &self.endpoint.spec.id
    }

    fn facts(&self) -> ModelFacts {
        self.endpoint.spec.facts.clone()
    }

    fn takes_images(&self) -> bool {
        self.endpoint.spec.facts.images
    }

    fn available(&self) -> Result<(), ModelError> {
        self.endpoint.set_up().and_then(|()| self.endpoint.known.usable())
    }

    fn count_tokens<'a>(
        &'a self,
        request: &'a ModelRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>> {
        Box::pin(count::tokens(&self.endpoint, request, cancel))
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
            pass: None,
        });
        Box::pin(Pieces::of(Box::pin(futures_util::stream::unfold(talk, |mut talk| async move {
            let item = talk.next().await?;
            Some((item, talk))
        }))))
    }
}

impl Endpoint {
    /// Whether there is all that it takes to ask it.
    pub(super) fn set_up(&self) -> Result<(), ModelError> {
        self.place.set_up(&self.url)
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
    pub(super) fn told(&self, tools: &Arc<[ToolDefinition]>) -> Result<Arc<Told>, ModelError> {
        let known = |all: &VecDeque<(Arc<[ToolDefinition]>, Arc<Told>)>| {
            all.iter().find(|(known, _)| Arc::ptr_eq(known, tools)).map(|(_, told)| Arc::clone(told))
        };
        if let Some(told) = known(&self.told.lock()) {
            return Ok(told);
        }
        let made = Arc::new(self.wire.tell(tools)?);
        let mut all = self.told.lock();
        all.truncate(TOLD_MAX - 1);
        all.push_front((Arc::clone(tools), Arc::clone(&made)));
        Ok(made)
    }

    /// A request as it is sent.
    pub(super) fn post(&self, (url, accept): (&str, &'static str), body: bytes::Bytes, keyed: &Keyed) -> Post {
        let own = self.wire.headers(&self.spec).iter();
        let own = own.map(|(name, value)| ((*name).to_owned(), SecretString::from(*value)));
        let given = self.place.headers.iter();
        let given = given.map(|(name, value)| (name.clone(), SecretString::from(value.as_str())));
        let mut headers: Vec<(String, SecretString)> = own.chain(given).collect();
        let mut bearer = keyed.key.clone();
        if let KeyHeader::Named(name) = self.wire.key_header() {
            headers.extend(bearer.take().map(|key| (name.to_owned(), key)));
        }
        Post { url: url.to_owned(), bearer, headers, accept, body, idle_timeout: self.place.idle_timeout }
    }

    /// Sends a body and waits for the headers of the answer.
    async fn send(&self, body: bytes::Bytes, keyed: &Keyed) -> Result<Answering, ModelError> {
        let asked = Asked { model: &self.spec.id, wire: self.wire.name(), body: &body, redact: &keyed.redact };
        let tape = self.place.tape.as_ref();
        if let Some(played) = tape.and_then(|tape| tape.answer(asked)) {
            let played = played.map_err(|error| ModelError::Unavailable(error.to_string()))?;
            return Ok(Answering::Taped(played));
        }
        let recording = tape.and_then(|tape| tape.begin(asked));
        let post = self.post((&self.url, "text/event-stream"), body, keyed);
        let answer = http::post(post).await.map_err(|error| self.lost(keyed.redact.error(from_http(&error))))?;
        let recording = recording.map(|mut recording| {
            recording.answered((answer.status, &answer.content_type), answer.retry_after);
            recording
        });
        Ok(Answering::Live(Box::new(answer), recording))
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
    /// Others wait while it lives.
    pass: Option<Pass>,
}

enum Phase {
    Asking(Box<ModelRequest>),
    Listening(Box<Listening>),
    Failed(ModelError),
    Over,
}

struct Listening {
    answer: Answering,
    reader: SseReader,
    /// Something of the body has come that shows what it is.
    begun: bool,
    halves: Halves,
    /// When the model said that it is done.
    stopped: Option<Instant>,
    assembler: Box<dyn Assemble>,
    redact: Redactor,
}

impl Talk {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            let cancel = self.cancel.clone();
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => {
                    self.pass = None;
                    return None;
                }
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
        self.pass = Some(endpoint.place.gate.enter().await);
        self.told = endpoint.told(&request.tools)?;
        let body = endpoint.wire.encode(&endpoint.spec, &request, &self.told)?;
        drop(request);
        let mut keyed = endpoint.place.keyed().await?;
        let mut answer = endpoint.send(body.clone(), &keyed).await?;
        if answer.status() == 401
            && let Some(other) = endpoint.place.refreshed(&keyed).await
        {
            keyed = other;
            answer = endpoint.send(body, &keyed).await?;
        }
        let redact = keyed.redact.clone();
        let status = answer.status();
        if !(200..300).contains(&status) {
            let retry_after = answer.retry_after();
            let body = redact.text(answer.text(BODY_BYTES_MAX).await);
            let error = redact.error(from_status(status, retry_after, &body));
            endpoint.known.note(Heard::of_status(status, &error), Some(&error));
            return Err(error);
        }
        if let Some(error) = answer.unread() {
            return Err(error);
        }
        endpoint.known.note(Heard::Success, None);
        let mut assembler = endpoint.wire.assembler(&endpoint.spec, redact.clone());
        if answer.content_type() == "application/json" || answer.content_type().ends_with("+json") {
            return self.hear_whole((&mut answer, &redact), assembler.as_mut(), &[]).await;
        }
        if answer.content_type() == "text/html" {
            let words = "the model's provider answered with a page for people (text/html): is the base URL right?";
            return Err(ModelError::Malformed(words.to_owned()));
        }
        let reader = SseReader::new(limit::MODEL_EVENT_BYTES_MAX);
        let halves = Halves::default();
        let (begun, stopped) = (false, None);
        Ok(Phase::Listening(Box::new(Listening { answer, reader, begun, halves, stopped, assembler, redact })))
    }

    /// Takes an answer of a server that does not stream: the same words in one piece, of which this was taken already.
    async fn hear_whole(
        &mut self,
        (answer, redact): (&mut Answering, &Redactor),
        assembler: &mut dyn Assemble,
        taken: &[u8],
    ) -> Result<Phase, ModelError> {
        let body = answer.whole(taken, limit::MODEL_REPLY_BYTES_MAX).await;
        let body = body.map_err(|error| redact.error(from_http(&error)))?;
        let body = body.trim_start_matches('\u{feff}');
        assembler.take_whole(&without_halves(body)).map_err(|error| self.endpoint.refused(error))?;
        self.hand_out(assembler);
        Ok(Phase::Over)
    }

    /// Takes what was assembled.
    fn hand_out(&mut self, assembler: &mut dyn Assemble) {
        let (names, prices) = (&self.told.names, self.endpoint.spec.facts.prices);
        for event in assembler.drain() {
            let event = match event {
                ModelEvent::Usage(mut usage) => {
                    if let Some(prices) = prices.filter(|_| usage.cost.is_zero()) {
                        usage.cost = prices.cost(&usage);
                    }
                    ModelEvent::Usage(usage)
                }
                event => names.restore(event),
            };
            // Pieces that came together go on together.
            let event = match self.ready.back_mut() {
                Some(last) => last.join(event),
                None => Some(event),
            };
            self.ready.extend(event);
        }
    }

    /// Nothing more has come: it has ended, or broken (with that error), or it was waited for long enough (None).
    fn came_to_rest(&mut self, mut listening: Box<Listening>, how: Option<Option<HttpError>>) -> Phase {
        let Listening { halves, assembler, redact, .. } = &mut *listening;
        let mut problem = None;
        halves.end(|event, data| problem = assembler.take(event, data).err());
        let talks = assembler.state() == State::Talking;
        let ended = match (problem, how) {
            (Some(error), _) => Err(self.endpoint.refused(error)),
            (None, Some(Some(error))) if talks => Err(redact.error(from_http(&error))),
            // Only the other half of a character was waited for.
            (None, None) if talks => Ok(false),
            // It had said that it is done: how the connection ends does not matter.
            (None, _) => assembler.close().map(|()| true),
        };
        self.hand_out(assembler.as_mut());
        match ended {
            Ok(true) => Phase::Over,
            Ok(false) => Phase::Listening(listening),
            Err(error) => Phase::Failed(error),
        }
    }

    async fn listen(&mut self, mut listening: Box<Listening>) -> Result<Phase, ModelError> {
        let Listening { answer, reader, begun, halves, stopped, assembler, redact } = &mut *listening;
        // In all: signs of life do not begin it anew.
        let closing = CLOSING_TIMEOUT.min(self.endpoint.place.idle_timeout);
        let until = stopped.or_else(|| halves.since()).map(|since| since + closing);
        let mut piece = match within(until, answer.chunk()).await {
            Some(Ok(Some(piece))) => piece,
            other => return Ok(self.came_to_rest(listening, other.map(Result::err))),
        };
        if !*begun && let Some(first) = first_byte(&piece) {
            *begun = true;
            // No line of a stream of events begins so: mostly it is an error, under the name of a stream.
            if matches!(first, b'{' | b'[') {
                return self.hear_whole((answer, redact), assembler.as_mut(), &piece).await;
            }
        }
        let (mut problem, mut bytes) = (None, 0);
        loop {
            bytes += piece.len();
            let mut take = |event: &str, data: &str| {
                if problem.is_none() {
                    problem = assembler.take(event, data).err();
                }
            };
            reader
                .push(&piece, |event, data| halves.take(event, data, &mut take))
                .map_err(|error| ModelError::Malformed(format!("the model's stream: {error}")))?;
            // What has come meanwhile goes on with it.
            let more = bytes < AT_ONCE_BYTES && problem.is_none() && assembler.state() == State::Talking;
            let Some(next) = more.then(|| answer.there()).flatten() else { break };
            piece = next;
        }
        self.hand_out(assembler.as_mut());
        if let Some(error) = problem {
            return Ok(Phase::Failed(self.endpoint.refused(error)));
        }
        match assembler.state() {
            State::Done => {
                listening.answer.finish();
                Ok(Phase::Over)
            }
            State::Stopped => {
                stopped.get_or_insert_with(Instant::now);
                Ok(Phase::Listening(listening))
            }
            State::Talking => Ok(Phase::Listening(listening)),
        }
    }
}

/// What comes until then. None: nothing, however much has come before.
async fn within<T>(until: Option<Instant>, what: impl Future<Output = T>) -> Option<T> {
    match until {
        None => Some(what.await),
        // What never ends is always there.
        Some(until) if Instant::now() >= until => None,
        Some(until) => tokio::time::timeout_at(until, what).await.ok(),
    }
}

/// The first byte of a body that is neither white space nor of a BOM.
fn first_byte(piece: &[u8]) -> Option<u8> {
    piece.iter().copied().find(|byte| !byte.is_ascii_whitespace() && !b"\xEF\xBB\xBF".contains(byte))
}
