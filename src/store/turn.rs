//! A turn's row as it stands in the database: by short names, without what its key says.

use serde::{Deserialize, Serialize};

use crate::protocol::{
    Configure, Cost, ErrorBody, Held, SessionId, TurnId, TurnRecord, TurnSettings, TurnStatus, TurnStop, TurnTask,
    Usage,
};
use crate::store::{Came, Steers, TurnRow, Waiting};

/// A turn's row without what its key says, in few bytes.
#[derive(Serialize, Deserialize)]
pub(super) struct TurnBody {
    #[serde(rename = "s")]
    status: TurnStatus,
    #[serde(rename = "c")]
    created_at: u64,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    started_at: Option<u64>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<u64>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    output: Option<serde_json::Value>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody>,
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(rename = "n")]
    rounds: u32,
    #[serde(rename = "u")]
    usage: (u64, u64, u64),
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    prompt: Option<Waiting>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    configure: Option<Configure>,
    #[serde(rename = "j", default, skip_serializing_if = "Option::is_none")]
    only: Option<TurnSettings>,
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    first_seq: Option<u64>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    last_seq: Option<u64>,
    #[serde(rename = "t", default, skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(default, rename = "task", skip_serializing_if = "Option::is_none")]
    task: Option<TurnTask>,
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    stop_reason: Option<TurnStop>,
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    held: Option<Held>,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    aborted: Option<String>,
    #[serde(rename = "m", default, skip_serializing_if = "Steers::is_empty")]
    steers: Steers,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    came: Option<Came>,
    #[serde(rename = "v", default, skip_serializing_if = "MoreUsage::is_nothing")]
    more_usage: MoreUsage,
}

/// The tokens of a turn beside those that every provider tells: cached, put into the cache, of reasoning; and the cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MoreUsage(u64, u64, u64, u64);

impl MoreUsage {
    fn of(usage: &Usage) -> Self {
        Self(usage.cached_input_tokens, usage.cache_write_tokens, usage.reasoning_tokens, usage.cost.0)
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn with(self, (input_tokens, output_tokens, total_tokens): (u64, u64, u64)) -> Usage {
        let Self(cached_input_tokens, cache_write_tokens, reasoning_tokens, cost) = self;
        let cost = Cost(cost);
        Usage {
            input_tokens,
            output_tokens,
            total_tokens,
            cached_input_tokens,
            cache_write_tokens,
            reasoning_tokens,
            cost,
        }
    }
}

impl TurnBody {
    /// Whether a session that was forked behind event `upto` has it, too: one that had begun by then, or had ended without.
    pub(super) fn is_shared(&self, upto: u64) -> bool {
        self.first_seq.or(self.last_seq).is_some_and(|seq| seq <= upto)
    }

    pub(super) fn of(turn: &TurnRow) -> Self {
        let record = turn.record.clone();
        let usage = record.usage;
        Self {
            status: record.status,
            created_at: record.created_at,
            started_at: record.started_at,
            ended_at: record.ended_at,
            result: record.result,
            output: record.output,
            error: record.error,
            reason: record.reason,
            rounds: record.rounds,
            usage: (usage.input_tokens, usage.output_tokens, usage.total_tokens),
            more_usage: MoreUsage::of(&usage),
            prompt: turn.prompt.clone(),
            configure: turn.configure.clone(),
            only: turn.only.clone(),
            first_seq: record.first_seq,
            last_seq: record.last_seq,
            text: record.prompt,
            task: record.task,
            stop_reason: record.stop_reason,
            held: turn.held.clone(),
            aborted: turn.aborted.clone(),
            steers: turn.steers.clone(),
            came: turn.came.clone(),
        }
    }

    pub(super) fn into_row(self, session_id: SessionId, turn_id: TurnId) -> TurnRow {
        let record = TurnRecord {
            turn_id,
            session_id,
            status: self.status,
            prompt: self.text,
            task: self.task,
            created_at: self.created_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            result: self.result,
            output: self.output,
            error: self.error,
            reason: self.reason,
            stop_reason: self.stop_reason,
            first_seq: self.first_seq,
            last_seq: self.last_seq,
            rounds: self.rounds,
            usage: self.more_usage.with(self.usage),
        };
        let Self { prompt, configure, only, held, aborted, steers, came, .. } = self;
        TurnRow { record, prompt, configure, only, came, held, aborted, steers }
    }
}
