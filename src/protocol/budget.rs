//! What may be spent, what was, and who is told when it is gone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::SessionId;
use super::session::{Cost, Usage};
use super::telling::is_zero;
use super::whole;

/// Where a warning comes: at so many hundredths of a limit.
const WARNING_PERCENT: u128 = 80;

/// What may be spent, all together; what is not named has no limit. Each limit is at least 1, and the money at least 0.000000001.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens, sent and received. A request that has begun ends, so this can be passed by what one request takes.
    #[serde(deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// What they cost, in US dollars, where the prices of the models are known.
    #[serde(rename = "costUsd", alias = "cost_usd", skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// How long turns run, in milliseconds; those that run side by side count each. What runs when it is over is cut off.
    #[serde(alias = "time_ms", deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// Turns that answer prompts.
    #[serde(deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// Calls of tools.
    #[serde(alias = "tool_calls", deserialize_with = "whole::optional", skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
}

/// What was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Spending {
    /// Tokens, sent and received.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// What they cost, in US dollars, where the prices are known.
    #[serde(rename = "costUsd", skip_serializing_if = "Cost::is_zero")]
    pub cost: Cost,
    /// How long turns ran, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub time_ms: u64,
    /// Turns that answered prompts.
    #[serde(skip_serializing_if = "is_zero")]
    pub turns: u64,
    /// Calls of tools.
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
}

/// A kind of what is spent: the name of its limit in a [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BudgetKind {
    /// Tokens.
    Tokens,
    /// Money.
    CostUsd,
    /// Time.
    TimeMs,
    /// Turns.
    Turns,
    /// Calls of tools.
    ToolCalls,
}

impl BudgetKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Tokens, Self::CostUsd, Self::TimeMs, Self::Turns, Self::ToolCalls];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::CostUsd => "costUsd",
            Self::TimeMs => "timeMs",
            Self::Turns => "turns",
            Self::ToolCalls => "toolCalls",
        }
    }
}

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetScope {
    /// A session's, with all that stand under it: that of the one above all is its tree's.
    Session,
    /// A client's, for a span of time.
    Client,
}

/// A budget, and what is spent of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    /// Whose it is.
    pub scope: BudgetScope,
    /// The session, where it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// What may be spent. Empty: as much as it likes.
    pub limits: Budget,
    /// What was.
    pub spent: Spending,
    /// When it begins anew, in milliseconds since 1970. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<u64>,
}

/// A budget of which something is gone, or nearly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetNotice {
    /// What is.
    pub kind: BudgetKind,
    /// The budget.
    #[serde(flatten)]
    pub state: BudgetState,
}

/// `GET /sessions/:id/budget`: all that a session's turns are held to, its own first and its client's last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionBudgets {
    /// Its own with all that stand under it, those of the sessions above it that have limits, and its client's, if it has limits.
    pub budgets: Vec<BudgetState>,
}

impl Spending {
    /// What a request to a model took.
    pub fn of(usage: &Usage) -> Self {
        let counted = usage.input_tokens.saturating_add(usage.output_tokens);
        Self { tokens: counted.max(usage.total_tokens), cost: usage.cost, ..Self::default() }
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: Cost(self.cost.0.saturating_add(other.cost.0)),
            time_ms: self.time_ms.saturating_add(other.time_ms),
            turns: self.turns.saturating_add(other.turns),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
        }
    }

    /// Whether it is nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// So much of one kind; money in thousand-millionths of a dollar.
    pub fn amount(&self, kind: BudgetKind) -> u64 {
        match kind {
            BudgetKind::Tokens => self.tokens,
            BudgetKind::CostUsd => self.cost.0,
            BudgetKind::TimeMs => self.time_ms,
            BudgetKind::Turns => self.turns,
            BudgetKind::ToolCalls => self.tool_calls,
        }
    }
}

impl Budget {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of one kind; money in thousand-millionths of a dollar.
    pub fn limit(&self, kind: BudgetKind) -> Option<u64> {
        match kind {
            BudgetKind::Tokens => self.tokens,
            BudgetKind::CostUsd => self.cost.map(|cost| cost.0),
            BudgetKind::TimeMs => self.time_ms,
            BudgetKind::Turns => self.turns,
            BudgetKind::ToolCalls => self.tool_calls,
        }
    }

    /// The smaller one of each limit.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Self {
            tokens: least(self.tokens, other.tokens),
            cost: least(self.cost, other.cost),
            time_ms: least(self.time_ms, other.time_ms),
            turns: least(self.turns, other.turns),
            tool_calls: least(self.tool_calls, other.tool_calls),
        }
    }

    /// Whether all of one kind is spent.
    pub fn is_gone(&self, kind: BudgetKind, spent: &Spending) -> bool {
        self.limit(kind).is_some_and(|limit| spent.amount(kind) >= limit)
    }

    /// Whether so much of one kind is spent that it is to be said.
    pub fn is_nearly_gone(&self, kind: BudgetKind, spent: &Spending) -> bool {
        let reached = |limit: u64| u128::from(spent.amount(kind)) * 100 >= u128::from(limit) * WARNING_PERCENT;
        self.limit(kind).is_some_and(reached)
    }

    /// The limit that is none, and what it has to be.
    ///
    /// # Errors
    /// The name of the limit, and what was expected.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        for kind in BudgetKind::ALL {
            if self.limit(kind) == Some(0) {
                let expected =
                    if kind == BudgetKind::CostUsd { "dollars, at least 0.000000001" } else { "a whole number from 1" };
                return Err((kind.name(), expected));
            }
            // A number that JavaScript does not know exactly cannot be shown.
            if self.limit(kind).is_some_and(|limit| limit >= 1 << 53) && kind != BudgetKind::CostUsd {
                return Err((kind.name(), "a whole number below 9007199254740992"));
            }
        }
        Ok(())
    }
}

impl BudgetNotice {
    /// For people: what is spent of what.
    pub fn words(&self) -> String {
        let BudgetState { scope, limits, spent, session_id, .. } = &self.state;
        let told = |amount: u64| match self.kind {
            BudgetKind::Tokens => format!("{amount} tokens"),
            BudgetKind::CostUsd => format!("${:.6}", Cost(amount).dollars()),
            BudgetKind::TimeMs => format!("{amount} ms"),
            BudgetKind::Turns => format!("{amount} turns"),
            BudgetKind::ToolCalls => format!("{amount} tool calls"),
        };
        let whose = match (scope, session_id) {
            (BudgetScope::Client, _) => "the client".to_owned(),
            (BudgetScope::Session, Some(id)) => format!("session {id}"),
            (BudgetScope::Session, None) => "the session".to_owned(),
        };
        let limit = limits.limit(self.kind).unwrap_or_default();
        format!("{whose} has spent {} of its budget of {}", told(spent.amount(self.kind)), told(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_gone_when_it_is_reached_and_a_warning_comes_before() {
        let budget = Budget { tokens: Some(10), cost: Some(Cost::of_dollars(1.0)), ..Budget::default() };
        #[rustfmt::skip]
        let table = [
            // (tokens, cost, nearly gone, gone): tokens then cost
            (0, 0.0, [false, false], [false, false]),
            (7, 0.79, [false, false], [false, false]),
            (8, 0.8, [true, true], [false, false]),
            (9, 0.999_999, [true, true], [false, false]),
            (10, 1.0, [true, true], [true, true]),
            (u64::MAX, 9.0, [true, true], [true, true]),
        ];
        for (tokens, dollars, nearly, gone) in table {
            let spent = Spending { tokens, cost: Cost::of_dollars(dollars), turns: 99, ..Spending::default() };
            let kinds = [BudgetKind::Tokens, BudgetKind::CostUsd];
            assert_eq!(kinds.map(|kind| budget.is_nearly_gone(kind, &spent)), nearly, "{tokens} {dollars}");
            assert_eq!(kinds.map(|kind| budget.is_gone(kind, &spent)), gone, "{tokens} {dollars}");
            assert!(!budget.is_gone(BudgetKind::Turns, &spent), "what has no limit is never gone");
        }
    }

    #[test]
    fn a_budget_says_each_thing_once_and_names_what_is_wrong() {
        let both: Budget =
            serde_json::from_str(r#"{"tokens":5,"costUsd":0.5,"timeMs":1,"turns":2,"toolCalls":3}"#).unwrap();
        let file: Budget =
            serde_json::from_str(r#"{"tokens":5,"cost_usd":0.5,"time_ms":1,"turns":2,"tool_calls":3}"#).unwrap();
        assert_eq!(both, file);
        assert_eq!(
            serde_json::to_string(&both).unwrap(),
            r#"{"tokens":5,"costUsd":0.5,"timeMs":1,"turns":2,"toolCalls":3}"#
        );
        assert_eq!(both.check(), Ok(()));
        for (text, field) in [
            (r#"{"tokens":0}"#, "tokens"),
            (r#"{"costUsd":0}"#, "costUsd"),
            (r#"{"costUsd":-1}"#, "costUsd"),
            (r#"{"timeMs":0}"#, "timeMs"),
            (r#"{"turns":0}"#, "turns"),
            (r#"{"toolCalls":9007199254740992}"#, "toolCalls"),
        ] {
            let budget: Budget = serde_json::from_str(text).unwrap();
            assert_eq!(budget.check().unwrap_err().0, field, "{text}");
        }
        assert!(serde_json::from_str::<Budget>(r#"{"token":1}"#).is_err());
    }

    #[test]
    fn the_smaller_limit_of_two_holds() {
        let a = Budget { tokens: Some(5), turns: Some(9), ..Budget::default() };
        let b = Budget { tokens: Some(7), time_ms: Some(3), turns: Some(1), ..Budget::default() };
        let want = Budget { tokens: Some(5), time_ms: Some(3), turns: Some(1), ..Budget::default() };
        assert_eq!((a.within(b), b.within(a)), (want, want));
        assert_eq!(a.within(Budget::default()), a);
    }

    #[test]
    fn what_is_spent_is_what_the_provider_says_or_the_sum() {
        let usage = |input_tokens, output_tokens, total_tokens| Usage {
            input_tokens,
            output_tokens,
            total_tokens,
            ..Usage::default()
        };
        for (usage, want) in [(usage(1, 2, 3), 3), (usage(1, 2, 0), 3), (usage(1, 2, 9), 9), (usage(0, 0, 4), 4)] {
            assert_eq!(Spending::of(&usage).tokens, want);
        }
    }
}
