//! How each model is told how much to think. The generations differ: older ones take a budget of tokens, newer ones decide
//! for themselves and take an effort, and some of those cannot be told not to think at all. Pure: a name in, words out.
//!
//! Names are read by their parts (`claude`, family, version), so that a version that is not known yet is told what the newest
//! known one is. Models of others that speak this wire take a budget.

use serde::Serialize;

use crate::protocol::Reasoning;
use crate::provider::wire::Spec;

/// The smallest budget that is taken.
const BUDGET_MIN: u64 = 1_024;

/// How a model's thinking is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It does not think.
    Never,
    /// It takes a budget.
    Budget,
    /// It decides; an effort says how much is wanted.
    Adaptive,
}

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways {
    mode: Mode,
    /// It thinks when it is told nothing.
    by_itself: bool,
    /// The word that turns it off. None: it cannot be.
    off: Option<&'static str>,
    /// The word for as much as it can.
    most: &'static str,
    /// Its thinking belongs to the conversation that it came from, to the letter.
    pub(super) bound: bool,
}

/// What a request says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// The member `thinking`. None: nothing.
    pub(super) thinking: Option<Thinking>,
    /// The member `effort` of `output_config`.
    pub(super) effort: Option<&'static str>,
    /// Whether earlier thinking is given back.
    pub(super) gives_back: bool,
}

/// The words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Thinking {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_binding: Option<Binding>,
}

/// What becomes of a block whose conversation has changed: outputs of tools are left out of long ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Binding {
    prefix_mismatch_behavior: &'static str,
}

impl Ways {
    /// What this model takes.
    pub(super) fn of(spec: &Spec) -> Self {
        let plain = Self { mode: Mode::Budget, by_itself: false, off: Some("disabled"), most: "max", bound: false };
        if !spec.facts.reasoning {
            return Self { mode: Mode::Never, ..plain };
        }
        let name = spec.model.to_ascii_lowercase();
        let Some(at) = name.find("claude") else { return plain };
        let parts: Vec<&str> = name[at..].split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let is = |word: &str| parts.contains(&word);
        let version = if is("preview") { (4, 6) } else { version(&parts) };
        let above = is("fable") || is("mythos");
        let off = match () {
            () if above || is("opus") && version >= (5, 5) => None,
            () if is("sonnet") && version >= (5, 5) => Some("between_tools"),
            () => Some("disabled"),
        };
        Self {
            mode: match () {
                () if version < (3, 7) => Mode::Never,
                () if version < (4, 6) => Mode::Budget,
                () => Mode::Adaptive,
            },
            by_itself: above || version >= (5, 0),
            off,
            most: if version >= (4, 7) { "xhigh" } else { "max" },
            bound: version >= if above { (5, 1) } else { (5, 5) },
        }
    }

    /// Whether its answers can be held to a schema by its provider.
    pub(super) fn is_held(spec: &Spec) -> bool {
        let name = spec.model.to_ascii_lowercase();
        let parts =
            name.find("claude").map(|at| name[at..].split(|c: char| !c.is_ascii_alphanumeric()).collect::<Vec<_>>());
        parts.is_some_and(|parts| version(&parts) >= (4, 5))
    }

    /// What a request says. `can_begin`: what the model has said in this turn so far began with thinking, or it has said nothing.
    pub(super) fn plan(&self, reasoning: Reasoning, tokens_max: u64, can_begin: bool) -> Plan {
        let nothing = Plan { thinking: None, effort: None, gives_back: true };
        let thinking = |r#type| Thinking { r#type, budget_tokens: None, display: None, block_binding: None };
        let binding = self.bound.then_some(Binding { prefix_mismatch_behavior: "drop_block" });
        let adaptive = Thinking { display: Some("summarized"), block_binding: binding, ..thinking("adaptive") };
        match (self.mode, reasoning) {
            (Mode::Never, _) => nothing,
            (Mode::Budget, Reasoning::Auto) => nothing,
            (_, Reasoning::None) => match self.off {
                // Where it is off nothing can be said of blocks that do not belong there any more.
                Some(off) => Plan { thinking: Some(thinking(off)), effort: None, gives_back: !self.bound },
                None => Plan { thinking: Some(adaptive), effort: Some("low"), ..nothing },
            },
            (Mode::Budget, level) => {
                let budget = budget(level).min(tokens_max / 2).max(BUDGET_MIN);
                // The API refuses thinking in the middle of a turn that was begun without, and a budget that leaves no room.
                if !can_begin || budget >= tokens_max {
                    return nothing;
                }
                Plan { thinking: Some(Thinking { budget_tokens: Some(budget), ..thinking("enabled") }), ..nothing }
            }
            (Mode::Adaptive, Reasoning::Auto) => {
                // The same as nothing, but that what it thinks is shown.
                Plan { thinking: self.by_itself.then_some(adaptive), ..nothing }
            }
            (Mode::Adaptive, level) => Plan { thinking: Some(adaptive), effort: Some(self.effort(level)), ..nothing },
        }
    }

    fn effort(&self, level: Reasoning) -> &'static str {
        match level {
            Reasoning::Auto | Reasoning::High => "high",
            Reasoning::None | Reasoning::Minimal | Reasoning::Low => "low",
            Reasoning::Medium => "medium",
            Reasoning::Xhigh => self.most,
        }
    }
}

/// The first number among the parts of a name and the one behind it. Dates are none. The newest, where there is no number.
fn version(parts: &[&str]) -> (u32, u32) {
    let number = |part: &&str| part.parse::<u32>().ok().filter(|_| part.len() <= 2);
    let Some(at) = parts.iter().position(|part| number(part).is_some()) else { return (5, 5) };
    let part = |at: usize| parts.get(at).and_then(number);
    (part(at).unwrap_or(5), part(at + 1).unwrap_or(0))
}

/// Tokens of thinking.
fn budget(level: Reasoning) -> u64 {
    match level {
        Reasoning::Auto | Reasoning::None | Reasoning::Minimal => BUDGET_MIN,
        Reasoning::Low => 4_096,
        Reasoning::Medium => 10_240,
        Reasoning::High => 24_576,
        Reasoning::Xhigh => 49_152,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(model: &str) -> Spec {
        Spec { model: model.into(), ..Spec::default() }
    }

    fn said(model: &str, reasoning: Reasoning) -> (Value, Option<&'static str>) {
        let plan = Ways::of(&spec(model)).plan(reasoning, 32_000, true);
        (json!(plan.thinking), plan.effort)
    }

    #[test]
    fn each_generation_is_told_in_its_own_words() {
        let shown = json!({ "type": "adaptive", "display": "summarized" });
        let bound = json!({ "type": "adaptive", "display": "summarized", "block_binding": { "prefix_mismatch_behavior": "drop_block" } });
        let budget = |tokens: u64| json!({ "type": "enabled", "budget_tokens": tokens });
        let off = |word: &str| json!({ "type": word });
        use Reasoning::{Auto, High, Low, Minimal, None as Off, Xhigh};
        #[rustfmt::skip]
        let table = [
            ("claude-3-5-sonnet-20241022", High, Value::Null, None), ("claude-3-opus-20240229", Xhigh, Value::Null, None),
            ("claude-3-7-sonnet-latest", Auto, Value::Null, None), ("claude-3-7-sonnet-latest", Low, budget(4_096), None),
            ("claude-sonnet-4-20250514", Xhigh, budget(16_000), None), ("claude-opus-4-5-20251101", Minimal, budget(1_024), None),
            ("anthropic/claude-haiku-4.5", Off, off("disabled"), None), ("anthropic.claude-opus-4-1-20250805-v1:0", High, budget(16_000), None),
            ("claude-opus-4-6", Auto, Value::Null, None), ("claude-opus-4-6", Xhigh, shown.clone(), Some("max")),
            ("claude-sonnet-4-6", Off, off("disabled"), None), ("claude-opus-4-7", Xhigh, shown.clone(), Some("xhigh")),
            ("claude-mythos-preview", Off, shown.clone(), Some("low")), ("claude-mythos-preview", Xhigh, shown.clone(), Some("max")),
            ("claude-opus-5", Auto, shown.clone(), None), ("claude-opus-5", Off, off("disabled"), None), ("claude-sonnet-5", Minimal, shown.clone(), Some("low")),
            ("claude-fable-5", Off, shown.clone(), Some("low")), ("claude-fable-5-1", Auto, bound.clone(), None),
            ("claude-opus-5-5", Off, bound.clone(), Some("low")), ("claude-sonnet-5-5", Off, off("between_tools"), None),
            ("claude-haiku-5-5", Off, off("disabled"), None), ("claude-haiku-5-5", High, bound.clone(), Some("high")),
            ("claude-opus-latest", High, bound, Some("high")), ("kimi-k3", High, budget(16_000), None), ("glm-6", Auto, Value::Null, None),
            ("kimi-k3", Off, off("disabled"), None),
        ];
        for (model, reasoning, thinking, effort) in table {
            assert_eq!(said(model, reasoning), (thinking, effort), "{model} {reasoning:?}");
        }
    }

    #[test]
    fn what_the_facts_rule_out_is_not_asked_for() {
        let mut spec = spec("claude-opus-5");
        spec.facts.reasoning = false;
        let plan = Ways::of(&spec).plan(Reasoning::High, 32_000, true);
        assert_eq!((plan.thinking, plan.effort), (None, None));
        // No room for it, and a turn that was begun without.
        let ways = Ways::of(&super::tests::spec("claude-haiku-4-5"));
        assert_eq!(ways.plan(Reasoning::High, 1_024, true).thinking, None);
        assert_eq!(ways.plan(Reasoning::High, 32_000, false).thinking, None);
    }

    #[test]
    fn newer_ones_are_held_to_schemas_over_there() {
        #[rustfmt::skip]
        let table = [
            ("claude-sonnet-4-5", true), ("claude-opus-5", true), ("claude-opus-latest", true), ("claude-sonnet-4-20250514", false),
            ("claude-3-7-sonnet-latest", false), ("kimi-k3", false),
        ];
        for (model, want) in table {
            assert_eq!(Ways::is_held(&spec(model)), want, "{model}");
        }
    }

    #[test]
    fn thinking_that_is_bound_is_not_given_back_where_it_is_off() {
        let gives = |model: &str, reasoning| Ways::of(&spec(model)).plan(reasoning, 32_000, true).gives_back;
        assert!(gives("claude-haiku-5-5", Reasoning::Auto) && gives("claude-opus-5-5", Reasoning::None));
        assert!(gives("claude-haiku-4-5", Reasoning::None) && !gives("claude-haiku-5-5", Reasoning::None));
    }
}
