//! The durable facts of sessions and turns beside the log, as they are stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::protocol::{
    AgentOptions, BoardKey, Budget, ClientId, Configure, GrantId, Held, InteractionMode, Lineage, Merge,
    PermissionConfig, PermissionMode, Reasoning, SessionId, SessionStatus, Spending, TurnId, TurnRecord, TurnSettings,
    Usage,
};
use crate::store::Waiting;

/// A session's durable facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Who may see it. None: everyone without a client id.
    pub client: Option<ClientId>,
    /// Where it is in its life.
    pub status: SessionStatus,
    /// Successful changes so far.
    pub version: u64,
    /// When it was created.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Messages so far.
    pub message_count: u64,
    /// Tokens of all turns.
    pub usage: Usage,
    /// What its own turns have spent since it was created.
    #[serde(default)]
    pub spent: Spending,
    /// Settings.
    pub settings: SessionSettings,
    /// Where it stands in its tree. None: above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Box<Lineage>>,
    /// Runs of sessions under it that it has not done with, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<OpenRun>,
    /// What the sessions of its tree share. Only of one that stands above all.
    #[serde(default, skip_serializing_if = "SharedPlaces::is_empty")]
    pub shared: SharedPlaces,
}

/// Where in the log of the session above all stands what the sessions of its tree share: the values themselves are nowhere else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPlaces {
    /// Of each key of the board: the number of the event that has put its value there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub board: BTreeMap<BoardKey, u64>,
    /// Of each task: the number of the event that says how it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<u64, u64>,
    /// The newest id of a task: none is given twice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_task: u64,
}

impl SharedPlaces {
    /// Whether nothing is shared, and nothing of what was is to be remembered.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A run of a session under another one, which that one has not done with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// The session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// The turn of the other one that began it.
    pub by: TurnId,
    /// Nobody waits for it: the result comes by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// It is over, and the log says so; the model has not heard of it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// What became then of what it did in a working tree of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Merge>,
}

/// What a session was set to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSettings {
    /// Where its tools work.
    pub working_directory: PathBuf,
    /// Where they may work beside that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<PathBuf>,
    /// The agent of a markdown file that it works as; None: our own loop, or the ACP agent that its model is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// How the agent and its model talk about calls; None: as the agent and the model have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction_mode: Option<InteractionMode>,
    /// `provider/name`.
    pub model: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Added to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools it may use; None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Of all tools, those that it may not use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_tools: Vec<String>,
    /// How much its model thinks before it answers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning: Reasoning,
    /// The models that are asked when its own cannot be used; None: those of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_fallbacks: Option<Vec<String>>,
    /// What it may spend with all that stand under it; None: as much as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Its own rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionConfig>,
    /// What the options of its agent are set to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub agent_options: AgentOptions,
    /// How much it does without asking.
    #[serde(default, skip_serializing_if = "is_default")]
    pub permission_mode: PermissionMode,
    /// What a client has allowed for the rest of the session, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
}

impl SessionSettings {
    /// Whether the session may use the tool of that name.
    pub fn has_tool(&self, name: &str) -> bool {
        let holds = |names: &[String]| names.iter().any(|n| n == name);
        self.tools.as_deref().is_none_or(holds) && !holds(&self.without_tools)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An `allow_always`: the same tool on the same things needs no further question. A denial beats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id. One that was written without gets one for as long as it is held.
    #[serde(default = "GrantId::generate")]
    pub id: GrantId,
    /// When it was given; 0: not known.
    #[serde(default)]
    pub created_at: u64,
    /// When it ends. None: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The tool.
    pub tool: String,
    /// On what.
    pub on: GrantSubject,
}

/// What an `allow_always` is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantSubject {
    /// All calls of the tool: it has neither commands nor paths.
    Any,
    /// This command line, where the session works.
    Command(String),
    /// This command line in another directory.
    #[serde(rename = "commandIn")]
    CommandIn {
        /// The line.
        command: String,
        /// The directory: relative to the session's working directory where it lies below it, else absolute.
        directory: PathBuf,
    },
    /// These paths, as they resolve.
    Paths(Vec<PathBuf>),
}

impl Grant {
    /// Whether it still holds.
    pub fn holds(&self, now_ms: u64) -> bool {
        self.expires_at.is_none_or(|end| now_ms < end)
    }

    /// Whether it is about the same.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.tool == other.tool && self.on == other.on
    }
}

/// A grant that outlives its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRow {
    /// Whose it is. None: everyone's without a client id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Sessions in this working directory alone. None: wherever they work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    /// What is granted.
    pub grant: Grant,
}

/// A turn's durable facts: its record, and its prompt while it has not begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRow {
    /// What callers see.
    pub record: TurnRecord,
    /// What to run. Kept while the turn is queued, dropped when its `session.prompt` event is in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Waiting>,
    /// Settings that change when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configure: Option<Configure>,
    /// What holds for it alone, until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<TurnSettings>,
    /// Where its prompt came from. Kept as long as the prompt is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came: Option<Came>,
    /// What a paused turn has to do first when it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Why a client aborted it, while it has not ended: with this it ends as aborted, whatever comes in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
    /// Messages that were accepted for it while it runs and that wait for its next boundary.
    #[serde(default, skip_serializing_if = "Steers::is_empty")]
    pub steers: Steers,
}

/// Where a prompt came from that waits: its turn says so also after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// The id of the request.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The span that it belongs to, as a `traceparent`.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Messages for a running turn. A `session.steer` in the log says that one has reached it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Steers {
    /// Oldest first.
    pub waiting: Vec<Waiting>,
    /// How many of the turn had reached it before the first one that waits.
    pub reached: u32,
}

impl Steers {
    /// Whether there is nothing to be known.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reached == 0
    }

    /// Those of them that have reached the turn, when there are `reached` in all by now, and those that have not.
    pub fn parted(&self, reached: u32) -> (&[Waiting], &[Waiting]) {
        self.waiting.split_at(self.reached_since(reached))
    }

    /// How many of those that wait here have reached the turn, when there are `reached` in all by now.
    fn reached_since(&self, reached: u32) -> usize {
        let new = usize::try_from(reached.saturating_sub(self.reached)).unwrap_or(usize::MAX);
        new.min(self.waiting.len())
    }

    /// Forgets those that have reached the turn, of which there are `reached` in all by now. What of them was kept apart is to be
    /// forgotten in the same commit: where it is.
    #[must_use]
    pub fn forget(&mut self, reached: u32) -> Vec<u64> {
        let gone = self.waiting.drain(..self.reached_since(reached));
        let places = gone.filter_map(|message| message.place()).collect();
        self.reached = self.reached.max(reached);
        places
    }
}

/// What a client has spent in a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSpending {
    /// The client. None: all that say no name.
    pub client: Option<ClientId>,
    /// When the span began, in milliseconds since 1970.
    pub began: u64,
    /// What was spent in it.
    pub spent: Spending,
}
