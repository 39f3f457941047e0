//! The seam that every model fills: providers over HTTP, the scripted one, external agents.
//!
//! A model turns a request into a stream of [`ModelEvent`]s. The stream ends with
//! [`ModelEvent::Finished`], or with an error as its last item, and never otherwise.

mod agent;
mod embed;
mod facts;
mod ids;
mod messages;
mod names;
mod pieces;
pub mod retry;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::base::BoxFuture;
use crate::config::McpServer;
use crate::protocol::{AgentOptions, Original, Reasoning, SessionId, ToolCallRequest, ToolDefinition, Usage};

pub use agent::{
    AgentEvent, AgentSession, Carried, ERRANDS_MODEL_ID, Errand, FormRequest, Heard, HostCall, Leave, Question, Reply,
    Steer,
};
pub use embed::{Embedder, Vectors};
pub use facts::{ModelFacts, Prices};
pub use ids::{CallIds, is_named};
pub use messages::Messages;
pub use names::WireNames;
pub use pieces::{Pieces, add_reasoning, add_text};

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The system text; empty for none.
    pub system: String,
    /// The conversation so far, oldest first.
    pub messages: Messages,
    /// What it may call; shared with other requests.
    pub tools: Arc<[ToolDefinition]>,
    /// How much it is to think before it answers.
    pub reasoning: Reasoning,
    /// What its answer has to be: the JSON Schema of an object. None: any text.
    pub output_schema: Option<Arc<serde_json::Value>>,
    /// Whose conversation it is: requests with the same key begin alike, and a provider may keep what they have in common.
    pub cache_key: Option<String>,
    /// What only an agent is told. None for a model that our own loop drives.
    pub agent: Option<AgentRequest>,
}

/// What an agent is told beside the conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentRequest {
    /// The session of ours that it works for, where there is one.
    pub host: Option<SessionId>,
    /// Where the session works; absolute.
    pub directory: PathBuf,
    /// Where else it may work.
    pub directories: Vec<PathBuf>,
    /// The session of its own that goes on, if it has one. It may turn out to be gone.
    pub session: Option<String>,
    /// That one is another's, and to be forked.
    pub fork: bool,
    /// How many of the last messages that session has not heard. All of them without one.
    pub unheard: usize,
    /// What the options of its session are set to; those that are not named are its own affair.
    pub options: AgentOptions,
    /// How much it is to think.
    pub reasoning: Reasoning,
    /// The tool servers that its session is to have.
    pub servers: Arc<[McpServer]>,
    /// What it may call of ours, as far as it is let: they come back as [`AgentEvent::Run`].
    pub tools: Arc<[ToolDefinition]>,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It was done.
    EndTurn,
    /// It wants its calls run.
    ToolUse,
    /// It reached its own limit of tokens.
    Length,
    /// The provider cut it for its content.
    ContentFilter,
    /// It does not want to answer.
    Refusal,
    /// Its provider has paused it: asked again, it goes on with this very reply.
    Paused,
}

/// What comes out of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A piece of text.
    Text(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// A whole call.
    Call(ToolCallRequest),
    /// A call whose arguments are not a JSON object. The loop tells the model so and runs nothing.
    BadCall {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// What is wrong with the arguments.
        problem: String,
    },
    /// Tokens used so far in this request.
    Usage(Usage),
    /// The whole reply in the words of its wire, where the model wants them back as they were. At most once, before the end.
    Original(Arc<Original>),
    /// The stream broke and is tried again; what came before in this request is void.
    Retrying {
        /// Which attempt comes now; the first retry is 2.
        attempt: u32,
        /// How long until then.
        delay: Duration,
        /// Why.
        error: String,
    },
    /// Only of a model that is an agent.
    Agent(AgentEvent),
    /// The end.
    Finished(StopReason),
}

/// Why a model failed. Kinds differ by what the caller does next; never decided by words in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Worth another try: connection cut, 408, 425, 429, 5xx, silence, an overloaded provider.
    #[error("{message}")]
    Transient {
        /// What happened.
        message: String,
        /// What the provider asked to wait.
        retry_after: Option<Duration>,
    },
    /// The key is missing or refused.
    #[error("{0}")]
    Unauthorized(String),
    /// The provider refuses the request as it is: 4xx.
    #[error("{0}")]
    Refused(String),
    /// The conversation does not fit into the model's window.
    #[error("{0}")]
    Overflow(String),
    /// The account has no money or no quota left; waiting does not help.
    #[error("{0}")]
    Spent(String),
    /// The provider takes nothing of this content.
    #[error("{0}")]
    Blocked(String),
    /// What came does not follow the wire format.
    #[error("{0}")]
    Malformed(String),
    /// The model cannot be used at all: no such model, no agent program.
    #[error("{0}")]
    Unavailable(String),
    /// The caller cancelled.
    #[error("aborted")]
    Aborted,
}

impl ModelError {
    /// What kind it is, in one word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Transient { .. } => "transient",
            Self::Unauthorized(_) => "unauthorized",
            Self::Refused(_) => "refused",
            Self::Overflow(_) => "context_overflow",
            Self::Spent(_) => "quota",
            Self::Blocked(_) => "content_filter",
            Self::Malformed(_) => "malformed",
            Self::Unavailable(_) => "unavailable",
            Self::Aborted => "aborted",
        }
    }

    /// The same error in other words.
    #[must_use]
    pub fn reworded(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Transient { message, retry_after } => Self::Transient { message: words(message), retry_after },
            Self::Unauthorized(text) => Self::Unauthorized(words(text)),
            Self::Refused(text) => Self::Refused(words(text)),
            Self::Overflow(text) => Self::Overflow(words(text)),
            Self::Spent(text) => Self::Spent(words(text)),
            Self::Blocked(text) => Self::Blocked(words(text)),
            Self::Malformed(text) => Self::Malformed(words(text)),
            Self::Unavailable(text) => Self::Unavailable(words(text)),
            Self::Aborted => Self::Aborted,
        }
    }

    /// Whether another model may do better: this one cannot be used now, whatever it is asked.
    pub fn is_of_the_model(&self) -> bool {
        match self {
            Self::Transient { .. }
            | Self::Unauthorized(_)
            | Self::Overflow(_)
            | Self::Spent(_)
            | Self::Malformed(_)
            | Self::Unavailable(_) => true,
            Self::Refused(_) | Self::Blocked(_) | Self::Aborted => false,
        }
    }
}

/// The stream of a model.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// A model that can be driven.
pub trait Model: Send + Sync + 'static {
    /// `provider/name`.
    fn id(&self) -> &str;

    /// Whether it can be used now; the error says why not. Must not block and sends nothing.
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] or [`ModelError::Unauthorized`].
    fn available(&self) -> Result<(), ModelError> {
        Ok(())
    }

    /// What is known of it: its window, its abilities, its prices.
    fn facts(&self) -> ModelFacts {
        ModelFacts::default()
    }

    /// Whether it can be shown images. One that cannot is told what they are instead.
    fn takes_images(&self) -> bool {
        self.facts().images
    }

    /// Whether it is an agent: it runs a loop and tools of its own, and answers one request with a whole turn.
    /// Its stream is read on after `cancel` has fired, until it ends.
    fn is_agent(&self) -> bool {
        false
    }

    /// How many tokens a request has, as its provider counts them. None: it does not count.
    ///
    /// # Errors
    /// [`ModelError`], as its stream would end with.
    fn count_tokens<'a>(
        &'a self,
        _request: &'a ModelRequest,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Option<u64>, ModelError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether it only hands on what a client wants done ([`AgentEvent::Carry`]): it has no tools of its own, and no use for
    /// the conversation.
    fn only_carries(&self) -> bool {
        false
    }

    /// Asks it. Nothing is sent before the stream is polled; it ends soon after `cancel` fires.
    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream;
}

/// Models by id, and which one new sessions get. Clones have the same ones, also after a change.
#[derive(Clone, Default)]
pub struct Models {
    now: Arc<RwLock<Listed>>,
    /// Those that can be had and are not shown.
    unlisted: Arc<[Arc<dyn Model>]>,
}

/// Makes a model of an id that is not listed, such as `openai/anything`.
pub type Open = Arc<dyn Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync>;

#[derive(Clone, Default)]
struct Listed {
    entries: Vec<Arc<dyn Model>>,
    default_id: String,
    open: Option<Open>,
    fallbacks: Vec<Arc<dyn Model>>,
    small: Option<Arc<dyn Model>>,
    summing: Option<Arc<dyn Model>>,
    /// Those that were found beside the listed ones.
    found: Vec<Arc<dyn Model>>,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models").field("default_id", &self.default_id()).finish_non_exhaustive()
    }
}

impl Models {
    /// Models and the id of the default one.
    pub fn new(entries: Vec<Arc<dyn Model>>, default_id: impl Into<String>) -> Self {
        let listed = Listed { entries, default_id: default_id.into(), ..Listed::default() };
        Self { now: Arc::new(RwLock::new(listed)), unlisted: Arc::default() }
    }

    /// The same, with models that can be had and are not shown. They stay through [`Self::adopt`].
    #[must_use]
    pub fn with_unlisted(self, unlisted: Vec<Arc<dyn Model>>) -> Self {
        Self { unlisted: unlisted.into(), ..self }
    }

    /// The same, with a maker for ids that are not listed.
    #[must_use]
    pub fn with_open(self, open: Open) -> Self {
        self.now.write().open = Some(open);
        self
    }

    /// The same, with models that are asked, in this order, when another cannot be used.
    #[must_use]
    pub fn with_fallbacks(self, fallbacks: Vec<Arc<dyn Model>>) -> Self {
        self.now.write().fallbacks = fallbacks;
        self
    }

    /// The models that are asked, in this order, when this one cannot be used: those of that list, or the server's. None of an
    /// agent, which has a loop of its own. One that is no longer there is left out.
    pub fn fallbacks_of(&self, model: &Arc<dyn Model>, listed: Option<&[String]>) -> Vec<Arc<dyn Model>> {
        if model.is_agent() {
            return Vec::new();
        }
        let all = match listed {
            Some(ids) => ids.iter().filter_map(|id| self.get(id)).filter(|other| !other.is_agent()).collect(),
            None => self.now.read().fallbacks.clone(),
        };
        all.into_iter().filter(|other| other.id() != model.id()).collect()
    }

    /// The same, with a model for small work, such as titles.
    #[must_use]
    pub fn with_small(self, small: Option<Arc<dyn Model>>) -> Self {
        self.now.write().small = small;
        self
    }

    /// The model for small work. None: there is none.
    pub fn small(&self) -> Option<Arc<dyn Model>> {
        self.now.read().small.clone()
    }

    /// The same, with a model that sums up conversations.
    #[must_use]
    pub fn with_summing(self, summing: Option<Arc<dyn Model>>) -> Self {
        self.now.write().summing = summing;
        self
    }

    /// The model that sums up conversations. None: each session's own does.
    pub fn summing(&self) -> Option<Arc<dyn Model>> {
        self.now.read().summing.clone()
    }

    /// Sets which models were found beside the listed ones; those that were found before are gone.
    pub fn set_found(&self, found: Vec<Arc<dyn Model>>) {
        self.now.write().found = found;
    }

    /// Takes those of `other` instead, for all who have these.
    pub fn adopt(&self, other: &Self) {
        let listed = other.now.read().clone();
        *self.now.write() = listed;
    }

    /// The id that new sessions get.
    pub fn default_id(&self) -> String {
        self.now.read().default_id.clone()
    }

    /// The model of that id. None when nothing provides it.
    pub fn get(&self, id: &str) -> Option<Arc<dyn Model>> {
        let now = self.now.read().clone();
        let mut all = now.entries.iter().chain(&now.found).chain(self.unlisted.iter());
        let listed = all.find(|model| model.id() == id).cloned();
        listed.or_else(|| now.open.as_ref().and_then(|open| open(id)))
    }

    /// All that are listed or were found.
    pub fn list(&self) -> Vec<Arc<dyn Model>> {
        let now = self.now.read();
        let more = now.found.iter().filter(|found| !now.entries.iter().any(|listed| listed.id() == found.id()));
        now.entries.iter().chain(more).cloned().collect()
    }
}
