//! Sessions and turns as callers see them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Snapshot;
use super::agent::AgentOptions;
use super::agent_definition::InteractionMode;
use super::budget::Budget;
use super::command::Reasoning;
use super::compaction::TurnTask;
use super::error::ErrorBody;
use super::event::EventBody;
use super::id::{SessionId, TurnId};
use super::lineage::Lineage;
use super::permission::PermissionMode;
use super::telling::is_zero;

/// The name of our own loop among the agents.
pub const OWN_AGENT: &str = "simse";
/// What the id of a model begins with that is an ACP agent: the agent's name follows.
pub const ACP_PREFIX: &str = "acp/";

/// The agent that answers with this model.
pub fn agent_of(model: &str) -> &str {
    model.strip_prefix(ACP_PREFIX).unwrap_or(OWN_AGENT)
}

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// No turn has run yet.
    Created,
    /// A turn runs, waits or is paused.
    Active,
    /// The last turn ended by itself: with an answer, or by an error (see the turn's record).
    Completed,
    /// The last turn was aborted or interrupted.
    Aborted,
}

/// Where a turn is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnStatus {
    /// Waits for the turn before it.
    Queued,
    /// Works.
    Running,
    /// Waits for an answer of the client.
    Waiting,
    /// Holds between two items until it is resumed.
    Paused,
    /// Ended by itself.
    Completed,
    /// Ended by an error, or by a restart of the server.
    Failed,
    /// Ended by a client, at once.
    Aborted,
    /// Ended by a client, between two items.
    Interrupted,
}

/// Why a turn stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStop {
    /// The model was done.
    EndTurn,
    /// The model reached its own limit of tokens.
    MaxTokens,
    /// The provider cut the answer for its content.
    ContentFilter,
    /// The model refused to answer.
    Refusal,
    /// The limit of rounds with the model.
    MaxIterations,
    /// A budget is spent: the session's, that of one above it, or the client's.
    Budget,
    /// The model went in a circle, and went on when it was told.
    Loop,
    /// A client aborted it.
    Aborted,
    /// A client interrupted it.
    Interrupted,
    /// An error.
    Error,
}

impl TurnStatus {
    /// Whether it can no longer change.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting | Self::Paused => false,
            Self::Completed | Self::Failed | Self::Aborted | Self::Interrupted => true,
        }
    }
}

/// Tokens, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Both together, as the provider says.
    pub total_tokens: u64,
    /// Of the tokens sent, those that the provider had in its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_input_tokens: u64,
    /// Of the tokens sent, those that it put into its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Of the tokens received, those that nobody is shown: the model's reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// What they cost, where the prices are known.
    #[serde(default, rename = "costUsd", skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
}

/// Money, in thousand-millionths of a US dollar; on the wire a number of dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u64);

impl Cost {
    /// Of one dollar.
    const NANO: f64 = 1e9;

    /// In dollars, to be shown.
    #[allow(clippy::cast_precision_loss, reason = "what is lost are less than millionths of a dollar")]
    pub fn usd(self) -> f64 {
        self.0 as f64 / Self::NANO
    }

    /// Whether it is nothing, or not known.
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// In dollars.
    pub fn dollars(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
        let nano = self.0 as f64;
        nano / Self::NANO
    }

    /// Of so many dollars; less than nothing is nothing.
    pub fn of_dollars(dollars: f64) -> Self {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and takes what is no number as 0"
        )]
        let nano = (dollars * Self::NANO).round() as u64;
        Self(nano)
    }
}

impl Serialize for Cost {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::of_dollars)
    }
}

impl JsonSchema for Cost {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cost".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number", "minimum": 0 })
    }
}

impl Usage {
    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            total_tokens: self.total_tokens.saturating_add(other.total_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            cost: Cost(self.cost.0.saturating_add(other.cost.0)),
        }
    }
}

/// A turn's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnRecord {
    /// The turn.
    pub turn_id: TurnId,
    /// Its session.
    pub session_id: SessionId,
    /// Where it is.
    pub status: TurnStatus,
    /// What was asked: the text of the prompt, its first 4,000 bytes. The whole is event `firstSeq`.
    #[serde(default)]
    pub prompt: String,
    /// What it does, where it answers no prompt: it is hidden then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TurnTask>,
    /// When it was accepted.
    pub created_at: u64,
    /// When work began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// The final text of a completed turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The same as data, of a turn that was to answer with some (`outputSchema`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why a failed turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Why an aborted or interrupted turn was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it stopped, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<TurnStop>,
    /// Number of its first event, `session.prompt`. Absent while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<u64>,
    /// Number of its last event, the terminal one. Absent until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// Rounds with the model.
    #[serde(default)]
    pub rounds: u32,
    /// Tokens of all rounds.
    #[serde(default)]
    pub usage: Usage,
}

/// A session as `GET /sessions/:id` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// The session.
    pub session_id: SessionId,
    /// Where it is.
    pub status: SessionStatus,
    /// Successful changes so far; 0 at creation.
    pub version: u64,
    /// When it was created.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Messages so far: the user's, the model's, and tool results.
    pub message_count: u64,
    /// Number of the newest event.
    pub last_seq: u64,
    /// Where its tools work.
    pub working_directory: PathBuf,
    /// Where they may work beside that. Absent: nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<PathBuf>,
    /// What answers: `simse`, our own loop with the model, or an agent of `GET /agents`.
    pub agent: String,
    /// How the agent and its model talk about calls, as far as that was chosen here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction_mode: Option<InteractionMode>,
    /// Its model, `provider/name`; `acp/NAME` of an ACP agent, which chooses its model itself.
    pub model: String,
    /// How much its model thinks before it answers.
    #[serde(default)]
    pub reasoning: Reasoning,
    /// What the options of its agent are set to, as far as that was chosen here.
    #[serde(default, skip_serializing_if = "AgentOptions::is_empty")]
    pub agent_options: AgentOptions,
    /// What it may spend with all that stand under it. Absent: as much as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The models that are asked when its own cannot be used, as far as that was chosen here. Absent: those of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_fallbacks: Option<Vec<String>>,
    /// The tools it may use, in a form that `tools` of its settings takes. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How much it does without asking.
    #[serde(default)]
    pub permission_mode: PermissionMode,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it stands in its tree. Absent: above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Box<Lineage>>,
    /// The turn that runs, waits for an answer or is paused now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnRecord>,
    /// Turns that wait behind it.
    #[serde(default)]
    pub queued: u32,
    /// Questions to the client that wait for an answer, as they stand in the log: `permission.request`, `client.request`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<EventBody>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Where it is exactly, with its newest items. Only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Box<Snapshot>>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Give it back as `cursor` for the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// Answer of `DELETE /sessions/:id`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// Always true.
    pub deleted: bool,
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelPrices {
    /// Sent.
    pub input: f64,
    /// Received, reasoning included.
    pub output: f64,
    /// Sent, and found in the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Sent, and put into the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// A model that sessions can use. What is absent is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelView {
    /// `provider/name`.
    pub id: String,
    /// Whether it can be used now.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether new sessions get it.
    pub default: bool,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Tokens of its window: what is sent and what is received together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens of one reply, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Whether it can be shown images. If not, it is told what they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// Whether it calls tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Whether it can think before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<bool>,
    /// Whether its answer can be held to a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<bool>,
    /// What its tokens cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<ModelPrices>,
}

/// `POST /models/count-tokens`: what a prompt would cost, as the model's provider counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CountTokens {
    /// The model. None: the one that new sessions get.
    #[serde(default)]
    pub model: Option<String>,
    /// The prompt.
    pub prompt: super::PromptContent,
    /// The system text. None: none.
    #[serde(default)]
    pub system: Option<String>,
    /// Whether the tools that sessions have now are counted, too.
    #[serde(default)]
    pub tools: bool,
}

/// Tokens of a request, as its model's provider counts them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenCount {
    /// The model.
    pub model: String,
    /// Tokens that would be sent.
    pub tokens: u64,
}

/// Answer of `GET /models`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelList {
    /// The models.
    pub models: Vec<ModelView>,
}

/// Answer of `GET /health`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok` or `unhealthy`.
    pub status: String,
    /// Now, RFC 3339, UTC.
    pub timestamp: String,
    /// This program's version.
    pub version: String,
    /// Part → `{status, …}`. Who shows no token where one is wanted is told the status alone.
    pub checks: Map<String, Value>,
    /// What is bounded, and how full it is: `?verbose=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<LimitView>>,
}

impl Health {
    /// The same for who has not said who he is: how each part is, and neither why nor what there is.
    #[must_use]
    pub fn brief(mut self) -> Self {
        for check in self.checks.values_mut() {
            if let Value::Object(members) = check {
                members.retain(|name, _| name == "status");
            }
        }
        self.limits = None;
        self
    }
}

/// Answer of `GET /proof/:nonce`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// HMAC-SHA-256 of `simse proof ` and the nonce, by the text `key` of `server.json`, in hexadecimal digits.
    pub proof: String,
}

/// Something that is bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// How much of it is taken now.
    pub used: u64,
    /// How much there is; at it new work is refused, or the oldest of what can be had again goes.
    pub limit: u64,
}

impl LimitView {
    /// One of them.
    pub fn new(name: &str, used: impl TryInto<u64>, limit: impl TryInto<u64>) -> Self {
        let number = |given: Option<u64>| given.unwrap_or(u64::MAX);
        Self { name: name.to_owned(), used: number(used.try_into().ok()), limit: number(limit.try_into().ok()) }
    }
}
