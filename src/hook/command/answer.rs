//! What a command has said, by its exit code and its output. Pure.
//!
//! 0: what it wrote is its answer, a JSON object where it begins with `{`, a list of texts where it is one, else text. 2: it blocks, and
//! what it wrote to its error stream is why; so does an object with `"blocked": true`. Anything else is a failure, an object with a
//! member that no answer has or one of the wrong type among them: `"blocked": "true"` was meant as something.

use serde_json::{Map, Value};

use super::run::Ran;
use crate::base::process::{Captured, Ending};
use crate::base::{limit, text};

/// The exit code that blocks.
const BLOCKS: i32 = 2;
/// Bytes of a failure that are told.
const TOLD_BYTES_MAX: usize = 2_000;
/// The members of answers, at all points together, and what each is. Null is as if it were not there.
const MEMBERS: [(&str, Kind); 11] = [
    ("blocked", Kind::Flag),
    ("reason", Kind::Text),
    ("arguments", Kind::Object),
    ("output", Kind::Text),
    ("isError", Kind::Flag),
    ("findings", Kind::Texts),
    ("prompt", Kind::Text),
    ("context", Kind::Texts),
    ("messages", Kind::List),
    ("summary", Kind::Text),
    ("focus", Kind::Text),
];

/// What a member of an answer is.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Flag,
    Text,
    Texts,
    List,
    Object,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Flag => value.is_boolean(),
            Self::Text => value.is_string(),
            Self::Texts => value.is_string() || value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Flag => "true or false",
            Self::Text => "a text",
            Self::Texts => "a text or a list of texts",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// It has nothing to say.
    Nothing,
    /// This.
    Text(String),
    /// These.
    Texts(Vec<String>),
    /// Members by name.
    Members(Map<String, Value>),
    /// No, and why.
    Blocked(String),
    /// It failed, and how.
    Failed(String),
}

/// What a run has said that was asked this.
pub(super) fn outcome(ran: &Ran, asked: &Value) -> Outcome {
    let error = || text::head(ran.stderr.text().trim(), TOLD_BYTES_MAX).to_owned();
    let failed = |how: String| {
        Outcome::Failed(match error() {
            said if said.is_empty() => how,
            said => format!("{how}: {said}"),
        })
    };
    match ran.ending {
        Ending::Exited(0) => said(&ran.stdout, asked),
        Ending::Exited(BLOCKS) => Outcome::Blocked(reason(&ran.stderr.text())),
        Ending::Exited(code) => failed(format!("it ended with exit code {code}")),
        Ending::Signalled(signal) => failed(format!("it was ended by signal {signal}")),
        Ending::TimedOut => failed("it did not end in its time".to_owned()),
        Ending::Cancelled => failed("it was ended".to_owned()),
    }
}

fn reason(said: &str) -> String {
    match text::head(said.trim(), limit::HOOK_TEXTS_BYTES_MAX) {
        "" => "a hook blocked it".to_owned(),
        reason => reason.to_owned(),
    }
}

fn said(stdout: &Captured, asked: &Value) -> Outcome {
    let whole = stdout.text();
    let words = whole.trim();
    if words.is_empty() {
        return Outcome::Nothing;
    }
    if words.starts_with('{') {
        if stdout.is_cut() {
            return Outcome::Failed(format!("its output is longer than {} bytes", limit::HOOK_OUTPUT_BYTES_MAX));
        }
        return match serde_json::from_str(words) {
            Ok(members) => of_members(members, asked),
            Err(error) => Outcome::Failed(format!("its output begins like a JSON object, and is none: {error}")),
        };
    }
    match serde_json::from_str(words) {
        Ok(texts) if words.starts_with('[') => Outcome::Texts(texts),
        Ok(_) | Err(_) => Outcome::Text(words.to_owned()),
    }
}

fn of_members(members: Map<String, Value>, asked: &Value) -> Outcome {
    if let Some(wrong) = members.iter().find_map(|(name, value)| wrong(name, value, asked)) {
        return Outcome::Failed(wrong);
    }
    if members.get("blocked") == Some(&Value::Bool(true)) {
        return Outcome::Blocked(reason(members.get("reason").and_then(Value::as_str).unwrap_or_default()));
    }
    Outcome::Members(members)
}

/// Why a member is none of an answer. What it was asked may stand in it: some change one member of that and write the whole.
fn wrong(name: &str, value: &Value, asked: &Value) -> Option<String> {
    let Some((_, kind)) = MEMBERS.iter().find(|(known, _)| *known == name) else {
        let known = MEMBERS.map(|(known, _)| known).join(", ");
        let shown = text::head(name, TOLD_BYTES_MAX);
        return asked.get(name).is_none().then(|| format!("`{shown}`: no member of an answer; expected {known}"));
    };
    // Shown as it is, a text could hold what the reader is not to see.
    let got = match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    (!kind.fits(value)).then(|| format!("`{name}`: expected {}, got {got}", kind.name()))
}

impl Outcome {
    /// The texts under a name, or those that are all of it.
    pub(super) fn into_texts(self, name: &str) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::Texts(texts) => texts,
            Self::Members(mut members) => match members.remove(name) {
                Some(Value::String(text)) => vec![text],
                Some(Value::Array(items)) => {
                    items.into_iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
                }
                Some(_) | None => Vec::new(),
            },
            Self::Nothing | Self::Blocked(_) | Self::Failed(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn captured(text: &str) -> Captured {
        let mut captured = Captured::new(limit::HOOK_OUTPUT_BYTES_MAX);
        captured.push(text.as_bytes());
        captured
    }

    fn ran(ending: Ending, stdout: &str, stderr: &str) -> Ran {
        Ran { ending, stdout: captured(stdout), stderr: captured(stderr) }
    }

    #[test]
    fn an_exit_code_and_an_output_are_an_answer() {
        let members = |value: Value| Outcome::Members(value.as_object().unwrap().clone());
        let (zero, two) = (Ending::Exited(0), Ending::Exited(2));
        #[rustfmt::skip]
        let table = [
            (zero, "", "noise", Outcome::Nothing), (zero, " \n", "", Outcome::Nothing),
            (zero, "a\nb\n", "", Outcome::Text("a\nb".into())), (zero, "7", "", Outcome::Text("7".into())),
            (zero, "[\"a\", \"b\"]", "", Outcome::Texts(vec!["a".into(), "b".into()])),
            (zero, "[warn] a", "", Outcome::Text("[warn] a".into())), (zero, "[1]", "", Outcome::Text("[1]".into())),
            (zero, " {\"focus\": \"f\"}", "", members(json!({ "focus": "f" }))),
            (zero, "{\"blocked\": true, \"reason\": \"no\"}", "", Outcome::Blocked("no".into())),
            (zero, "{\"blocked\": true}", "", Outcome::Blocked("a hook blocked it".into())),
            (zero, "{\"blocked\": false}", "", members(json!({ "blocked": false }))),
            (two, "not this", " no\n", Outcome::Blocked("no".into())), (two, "", "", Outcome::Blocked("a hook blocked it".into())),
            (Ending::Exited(1), "x", "bad", Outcome::Failed("it ended with exit code 1: bad".into())),
            (Ending::Exited(127), "", "", Outcome::Failed("it ended with exit code 127".into())),
            (Ending::Signalled(9), "", "", Outcome::Failed("it was ended by signal 9".into())),
            (Ending::TimedOut, "x", "", Outcome::Failed("it did not end in its time".into())),
        ];
        for (ending, stdout, stderr, want) in table {
            assert_eq!(
                outcome(&ran(ending, stdout, stderr), &json!({ "event": "e" })),
                want,
                "{ending:?} {stdout:?} {stderr:?}"
            );
        }
        let broken = outcome(&ran(zero, "{\"a\": ", ""), &Value::Null);
        assert!(matches!(&broken, Outcome::Failed(why) if why.contains("is none")), "{broken:?}");
        let long = outcome(
            &ran(zero, &format!("{{\"a\": \"{}\"}}", "x".repeat(limit::HOOK_OUTPUT_BYTES_MAX)), ""),
            &Value::Null,
        );
        assert!(matches!(&long, Outcome::Failed(why) if why.contains("longer")), "{long:?}");
    }

    #[test]
    fn a_member_of_the_wrong_type_is_a_failure_and_never_a_yes() {
        let asked = json!({ "event": "tool.execute.before", "request": {} });
        #[rustfmt::skip]
        let table = [
            (json!({ "blocked": "true" }), "`blocked`: expected true or false, got a text"),
            (json!({ "blocked": 1 }), "`blocked`: expected true or false, got 1"),
            (json!({ "blocked": true, "reason": 5 }), "`reason`: expected a text, got 5"),
            (json!({ "prompt": 5 }), "`prompt`: expected a text, got 5"),
            (json!({ "arguments": "{}" }), "`arguments`: expected an object, got a text"),
            (json!({ "output": ["a"] }), "`output`: expected a text, got a list"),
            (json!({ "isError": "no" }), "`isError`: expected true or false, got a text"),
            (json!({ "context": ["a", 1] }), "`context`: expected a text or a list of texts, got a list"),
            (json!({ "findings": {} }), "`findings`: expected a text or a list of texts, got an object"),
            (json!({ "messages": "m" }), "`messages`: expected a list, got a text"),
            (json!({ "focus": false }), "`focus`: expected a text, got false"),
            (json!({ "decision": "block" }), "`decision`: no member of an answer; expected blocked, reason, arguments, output, isError, findings, prompt, context, messages, summary, focus"),
        ];
        for (answer, want) in table {
            let said = outcome(&ran(Ending::Exited(0), &answer.to_string(), ""), &asked);
            assert_eq!(said, Outcome::Failed(want.to_owned()), "{answer}");
        }
        for answer in [
            json!({ "blocked": null, "context": ["a"], "findings": "f" }),
            json!({ "event": "tool.execute.before", "request": { "a": 1 }, "arguments": {} }),
        ] {
            let said = outcome(&ran(Ending::Exited(0), &answer.to_string(), ""), &asked);
            assert_eq!(said, Outcome::Members(answer.as_object().unwrap().clone()));
        }
    }

    #[test]
    fn texts_of_any_form() {
        let members = |value: Value| Outcome::Members(value.as_object().unwrap().clone());
        #[rustfmt::skip]
        let table = [
            (Outcome::Text("a".into()), vec!["a"]), (Outcome::Texts(vec!["a".into(), "b".into()]), vec!["a", "b"]),
            (members(json!({ "context": "a" })), vec!["a"]), (members(json!({ "context": ["a", "b"] })), vec!["a", "b"]),
            (members(json!({ "other": "a" })), vec![]), (members(json!({ "context": 1 })), vec![]), (Outcome::Nothing, vec![]),
        ];
        for (outcome, want) in table {
            assert_eq!(outcome.clone().into_texts("context"), want, "{outcome:?}");
        }
    }
}
