//! Whether a loop goes in circles: decisions without effects, and what the model is told.
//!
//! Four signs: the same call in a row, searches that find nothing, the same reply in a row, and arguments that cannot be
//! read. The first times the model is told, in words that say what to do instead; one that goes on all the same is stopped.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::base::limit;
use crate::protocol::{ToolAnnotations, ToolCallRequest, ToolCallResult, ToolCategory, ToolDefinition};

/// What our own searches say when there is nothing.
const NOTHING_FOUND: [&str; 3] =
    ["No matches found.", "No files found matching the pattern.", "Nothing is remembered about that."];

/// How often something may come in a row before it counts as a circle; 0: as often as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerLimits {
    /// The same call.
    pub identical_calls: u32,
    /// Searches that find nothing.
    pub empty_searches: u32,
    /// The same reply: text and calls.
    pub identical_replies: u32,
    /// Replies whose calls cannot be read.
    pub unreadable_replies: u32,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            identical_calls: limit::IDENTICAL_CALLS_MAX,
            empty_searches: limit::EMPTY_SEARCHES_MAX,
            identical_replies: limit::IDENTICAL_REPLIES_MAX,
            unreadable_replies: limit::UNREADABLE_REPLIES_MAX,
        }
    }
}

/// A call that is not to be run, for its result would be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeated {
    /// How often it has now come in a row.
    pub times: u32,
    /// What the model is told.
    pub told: String,
}

/// What to do about a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// What it asks for.
    GoOn,
    /// Run none of its calls, and tell the model this.
    Tell(String),
    /// Run none of its calls, and end the turn with this.
    Stop(String),
}

/// What is remembered of one turn.
#[derive(Debug, Default)]
pub struct LoopBreaker {
    limits: BreakerLimits,
    last_call: Option<ToolCallRequest>,
    calls: u32,
    empty: u32,
    last_reply: Option<u64>,
    replies: u32,
    unreadable: u32,
}

/// Whether a count is one more full round of a limit.
fn full(count: u32, limit: u32) -> bool {
    limit > 0 && count > 0 && count.is_multiple_of(limit)
}

impl LoopBreaker {
    /// With other limits.
    pub fn new(limits: BreakerLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Looks at a reply before its calls are answered. `unreadable`: none of its calls has arguments that can be read.
    pub fn reply(&mut self, text: &str, calls: &[ToolCallRequest], unreadable: bool) -> Step {
        self.unreadable = if unreadable { self.unreadable.saturating_add(1) } else { 0 };
        let most = self.limits.unreadable_replies;
        if most > 0 && self.unreadable >= most {
            let times = self.unreadable;
            return Step::Stop(format!(
                "The model made calls whose arguments cannot be read {times} times in a row; the turn was stopped."
            ));
        }
        let reply = fingerprint(text, calls);
        self.replies = if self.last_reply == Some(reply) { self.replies.saturating_add(1) } else { 1 };
        self.last_reply = Some(reply);
        let (most, times) = (self.limits.identical_replies, self.replies);
        if most == 0 || unreadable {
            return Step::GoOn;
        }
        match times {
            times if times >= most.saturating_mul(2) => {
                Step::Stop(format!("The model gave the same reply {times} times in a row; the turn was stopped."))
            }
            times if times >= most => Step::Tell(format!(
                "you have given this same reply {times} times in a row, so its calls were not run again. Look at the \
                 results you have: do something else, or answer with what you know and say what is missing."
            )),
            _ => Step::GoOn,
        }
    }

    /// Counts a call that is about to run. Some: it is not to be run.
    pub fn call(&mut self, request: &ToolCallRequest) -> Option<Repeated> {
        let same = self.last_call.as_ref().is_some_and(|l| l.name == request.name && l.arguments == request.arguments);
        self.calls = if same { self.calls.saturating_add(1) } else { 1 };
        if !same {
            self.last_call = Some(request.clone());
        }
        let times = self.calls;
        if self.limits.identical_calls == 0 || times < self.limits.identical_calls {
            return None;
        }
        let told = format!(
            "this same call came {times} times in a row and was not run again, for its result would be the same. \
             Look at the results you have, and do something else."
        );
        Some(Repeated { times, told })
    }

    /// Looks at a result. Some: a hint for the model.
    pub fn result(&mut self, definition: Option<&ToolDefinition>, result: &ToolCallResult) -> Option<String> {
        if result.is_error || !definition.is_some_and(is_search) {
            return None;
        }
        self.empty = if found_nothing(&result.output) { self.empty.saturating_add(1) } else { 0 };
        full(self.empty, self.limits.empty_searches).then(|| {
            format!(
                "{} searches in a row found nothing. What you look for may not be there, or not under these words: list \
                 the directories, search for a shorter or more general pattern, or say that it is not there.",
                self.empty
            )
        })
    }
}

fn fingerprint(text: &str, calls: &[ToolCallRequest]) -> u64 {
    // Compared within one process only, so any hash that is the same there will do.
    let mut hasher = DefaultHasher::new();
    text.trim().hash(&mut hasher);
    for call in calls {
        call.name.hash(&mut hasher);
        call.arguments.hash(&mut hasher);
    }
    hasher.finish()
}

fn is_search(definition: &ToolDefinition) -> bool {
    let looks = |hints: &ToolAnnotations| hints.read_only == Some(true);
    match definition.category {
        Some(ToolCategory::Search) => true,
        Some(ToolCategory::Memory) => definition.annotations.as_ref().is_some_and(looks),
        Some(
            ToolCategory::Read
            | ToolCategory::Edit
            | ToolCategory::Execute
            | ToolCategory::Vfs
            | ToolCategory::Task
            | ToolCategory::Subagent
            | ToolCategory::Other,
        )
        | None => false,
    }
}

fn found_nothing(output: &str) -> bool {
    let output = output.trim();
    matches!(output, "" | "[]" | "{}" | "null") || NOTHING_FOUND.iter().any(|nothing| output.starts_with(nothing))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(name: &str, arguments: Value) -> ToolCallRequest {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        ToolCallRequest { id: "c".into(), name: name.into(), arguments }
    }

    fn definition(category: Option<&str>, read_only: bool) -> ToolDefinition {
        let annotations = json!({ "readOnly": read_only });
        serde_json::from_value(
            json!({ "name": "t", "description": "", "category": category, "annotations": annotations }),
        )
        .unwrap()
    }

    fn result(output: &str, is_error: bool) -> ToolCallResult {
        serde_json::from_value(json!({ "id": "c", "name": "t", "output": output, "isError": is_error })).unwrap()
    }

    #[test]
    fn only_the_same_call_in_a_row_counts() {
        let mut breaker = LoopBreaker::default();
        #[rustfmt::skip]
        let calls = [
            ("a", json!({}), None), ("a", json!({}), None), ("b", json!({}), None), ("a", json!({"x": 1, "y": 2}), None),
            ("a", json!({"y": 2, "x": 1}), None), ("a", json!({"x": 1, "y": 2}), Some(3)), ("a", json!({"x": 1, "y": 2}), Some(4)),
            ("a", json!({"x": 1}), None),
        ];
        for (at, (name, arguments, want)) in calls.into_iter().enumerate() {
            assert_eq!(breaker.call(&call(name, arguments)).map(|r| r.times), want, "call {at}");
        }
    }

    #[test]
    fn a_hint_at_every_fourth_empty_search_in_a_row() {
        let (search, read) = (definition(Some("search"), true), definition(Some("read"), true));
        let (remember, note) = (definition(Some("memory"), true), definition(Some("memory"), false));
        let mut breaker = LoopBreaker::default();
        #[rustfmt::skip]
        let results = [
            (&search, "No matches found.", false, false), (&search, "", false, false), (&read, "a", false, false),
            (&search, "oh", true, false), (&note, "Remembered: 1", false, false),
            (&search, "No files found matching the pattern.\n(Stopped)", false, false), (&remember, "Nothing is remembered about that.", false, true),
            (&search, "[]", false, false), (&search, "a.rs:1: No matches found.", false, false), (&search, "", false, false),
            (&search, "", false, false), (&search, "", false, false), (&search, " \n", false, true),
        ];
        for (at, (definition, output, is_error, want)) in results.into_iter().enumerate() {
            let hint = breaker.result(Some(definition), &result(output, is_error));
            assert_eq!(hint.is_some(), want, "result {at}: {hint:?}");
        }
        assert_eq!(breaker.result(None, &result("", false)), None);
    }

    #[test]
    fn the_same_reply_is_told_and_then_stopped() {
        let mut breaker = LoopBreaker::default();
        let calls = [call("a", json!({"x": 1})), call("b", json!({}))];
        let step = |step: Step| match step {
            Step::GoOn => "on",
            Step::Tell(_) => "tell",
            Step::Stop(_) => "stop",
        };
        let steps: Vec<_> = (0..8).map(|_| step(breaker.reply("again", &calls, false))).collect();
        assert_eq!(steps, ["on", "on", "on", "tell", "tell", "tell", "tell", "stop"]);
        assert_eq!(step(breaker.reply("again", &calls[..1], false)), "on");
        assert_eq!(step(breaker.reply("now", &calls[..1], false)), "on");
        // The same ids are not needed, and blanks around the text do not count.
        let renamed = [ToolCallRequest { id: "other".into(), ..calls[0].clone() }];
        let steps: Vec<_> = (0..3).map(|_| step(breaker.reply("now\n", &renamed, false))).collect();
        assert_eq!(steps, ["on", "on", "tell"]);
    }

    #[test]
    fn unreadable_arguments_stop_at_the_fourth_reply_in_a_row() {
        let mut breaker = LoopBreaker::default();
        let replies = [true, true, true, false, true, true, true, true].into_iter().enumerate();
        let steps: Vec<_> =
            replies.map(|(at, bad)| breaker.reply(&at.to_string(), &[call("a", json!({}))], bad)).collect();
        assert!(steps[..7].iter().all(|step| *step == Step::GoOn), "{steps:?}");
        let Step::Stop(told) = &steps[7] else { panic!("{steps:?}") };
        assert!(told.contains("4 times"), "{told}");
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let none = BreakerLimits { identical_calls: 0, empty_searches: 0, identical_replies: 0, unreadable_replies: 0 };
        let mut breaker = LoopBreaker::new(none);
        let (same, search) = (call("a", json!({})), definition(Some("search"), true));
        for _ in 0..20 {
            assert_eq!(breaker.call(&same), None);
            assert_eq!(breaker.result(Some(&search), &result("", false)), None);
            assert_eq!(breaker.reply("x", std::slice::from_ref(&same), true), Step::GoOn);
        }
    }
}
