//! `read_pruned`: an output of an earlier call of this session again, which the conversation no longer shows.
//!
//! Not every wire shows a model the ids of its calls, and those that do show them badly. So a call is found as the model knows it: by
//! its tool, by words of its arguments, by its place among the newest. Without any of these the calls are listed.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fs_common::definition;
use crate::base::{BoxFuture, text};
use crate::protocol::{ToolCategory, ToolDefinition};
use crate::tool::{Arguments, EarlierCall, Tool, ToolContext, ToolError, ToolOutput, WantedCalls};

/// The tool's own name: its outputs are none of those that it gives.
const NAME: &str = "read_pruned";
/// Shorter outputs are never pruned.
const LISTED_CHARS_MIN: usize = 200;
/// Calls in one list.
const LISTED_MAX: usize = 20;
/// Bytes of the arguments that a list shows.
const ARGUMENTS_BYTES_MAX: usize = 120;
/// Characters of an output that are given when nobody says how many, and at most.
const CHARS: usize = 20_000;
const CHARS_MAX: usize = 40_000;
/// The furthest call that can be asked for.
const NTH_MAX: usize = 10_000;

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let parameters = json!({
        "tool": {"type": "string", "description": "The tool that was called"},
        "containing": {"type": "string", "description": "A text in the call's arguments, such as a path or a part of a command"},
        "nth": {"type": "number", "description": "Which of the calls that fit; 1, the newest, if left out"},
        "callId": {"type": "string", "description": "The call's id, as a list gives it"},
        "offset": {"type": "number", "description": "Characters to skip"},
        "limit": {"type": "number", "description": "Characters to give; 20,000 if left out, 40,000 at most"},
    });
    let description = "Gives the whole output of an earlier call of this session, for those that the conversation shows as \
        `[OUTPUT PRUNED — n chars]` only. Name the tool, or a text of its arguments, or nothing for a list of such calls. What \
        it gives is how things were then: read a file or run a command again for how they are now.";
    definition(NAME, ToolCategory::Read, description, parameters)
});

/// The tool.
#[derive(Debug, Default)]
pub struct ReadPruned;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    wanted: WantedCalls,
    /// Nothing says which one.
    lists: bool,
    offset: usize,
    chars: usize,
}

fn given<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

fn whole(arguments: &Arguments, name: &str, (least, most): (usize, usize)) -> Result<Option<usize>, ToolError> {
    let Some(value) = arguments.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and held against both bounds")]
    let whole = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0).map(|n| n as usize);
    let fits = whole.filter(|n| (least..=most).contains(n));
    let expected = || format!("`{name}`: expected a whole number from {least} to {most}, got {value}");
    fits.map(Some).ok_or_else(|| ToolError::BadArguments(expected()))
}

fn asked(arguments: &Arguments) -> Result<Asked, ToolError> {
    let own = |name| given(arguments, name).map(ToOwned::to_owned);
    let (call_id, tool, containing) = (own("callId"), own("tool"), own("containing"));
    let nth = whole(arguments, "nth", (1, NTH_MAX))?;
    let offset = whole(arguments, "offset", (0, usize::MAX >> 12))?;
    let chars = whole(arguments, "limit", (1, CHARS_MAX))?.unwrap_or(CHARS);
    let lists = call_id.is_none() && tool.is_none() && containing.is_none() && nth.is_none();
    // A tool is called by the name that it has here.
    let tool = tool.map(|name| crate::tool::proper_name(&name).map_or(name.clone(), ToOwned::to_owned));
    let chars_min = if call_id.is_some() { 0 } else { LISTED_CHARS_MIN };
    let skip = nth.map_or(0, |nth| nth - 1);
    let count_max = if lists { LISTED_MAX + 1 } else { 1 };
    let wanted = WantedCalls { call_id, tool, containing, chars_min, skip, count_max, without: Some(NAME) };
    Ok(Asked { wanted, lists, offset: offset.unwrap_or(0), chars })
}

impl Tool for ReadPruned {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("call_id", "callId"), ("id", "callId"), ("name", "tool")]
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        asked(arguments).map(drop)
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Asked { wanted, lists, offset, chars } = asked(&arguments)?;
            let earlier = context.scope.earlier.lock().clone();
            let earlier = earlier.ok_or_else(|| ToolError::failed("only a session has earlier calls"))?;
            let found = tokio::select! {
                biased;
                () = context.cancel.cancelled() => return Err(ToolError::Aborted),
                found = earlier.find(&wanted) => found.map_err(ToolError::failed)?,
            };
            if lists {
                return Ok(listed(&found).into());
            }
            let none =
                "no earlier call with an output of 200 characters or more fits; without arguments the calls are listed";
            let call = found.first().ok_or_else(|| ToolError::failed(none))?;
            shown(call, (offset, chars)).map(ToolOutput::from)
        })
    }
}

fn in_short(call: &EarlierCall) -> String {
    let told = serde_json::to_string(&call.arguments).unwrap_or_default();
    let head = text::head(&told, ARGUMENTS_BYTES_MAX);
    let cut = if head.len() < told.len() { "…" } else { "" };
    format!("{} {head}{cut}", call.tool)
}

fn listed(calls: &[EarlierCall]) -> String {
    if calls.is_empty() {
        return "No earlier call has an output of 200 characters or more.".to_owned();
    }
    let mut told = String::from("Earlier calls, the newest first:");
    for call in calls.iter().take(LISTED_MAX) {
        // Writing to a text does not fail.
        let _ = write!(told, "\n- {} — {} chars, callId {}", in_short(call), call.output.chars().count(), call.call_id);
    }
    if calls.len() > LISTED_MAX {
        told.push_str("\nThere are older ones: name the tool or a text of the arguments, and `nth`.");
    }
    told
}

/// A part of an output, with what it is a part of.
fn shown(call: &EarlierCall, (offset, chars): (usize, usize)) -> Result<String, ToolError> {
    let all = call.output.chars().count();
    if offset > 0 && offset >= all {
        let why =
            format!("`offset`: expected less than {all}, which is how many characters the output has, got {offset}");
        return Err(ToolError::BadArguments(why));
    }
    let part: String = call.output.chars().skip(offset).take(chars).collect();
    let end = offset + part.chars().count();
    let rest = if end < all { format!("; go on with offset {end}") } else { String::new() };
    Ok(format!(
        "Output of {} (callId {}), characters {offset} to {end} of {all}{rest}:\n{part}",
        in_short(call),
        call.call_id
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::Map;

    use super::super::fs_common::testing::context;

    #[derive(Debug)]
    struct Calls(Vec<EarlierCall>);

    impl crate::tool::EarlierCalls for Calls {
        fn find<'a>(&'a self, wanted: &'a WantedCalls) -> BoxFuture<'a, Result<Vec<EarlierCall>, String>> {
            let fits = |call: &&EarlierCall| {
                wanted.fits(&call.call_id, &call.tool, &call.arguments)
                    && call.output.chars().count() >= wanted.chars_min
            };
            let found = self.0.iter().filter(fits).skip(wanted.skip).take(wanted.count_max).cloned().collect();
            Box::pin(std::future::ready(Ok(found)))
        }
    }

    fn earlier(id: &str, tool: &str, argument: &str, output: &str) -> EarlierCall {
        let mut arguments = Map::new();
        arguments.insert("path".into(), argument.into());
        EarlierCall { call_id: id.into(), tool: tool.into(), arguments, output: output.into() }
    }

    async fn run(calls: Vec<EarlierCall>, arguments: Value) -> Result<String, String> {
        let context = context();
        *context.scope.earlier.lock() = Some(Arc::new(Calls(calls)));
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let done = ReadPruned.run(arguments, &context).await;
        done.map(|output| output.text).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_call_is_found_as_the_model_knows_it() {
        let long = |c: &str| c.repeat(300);
        let calls = || {
            vec![
                earlier("5", NAME, "a.rs", &long("d")),
                earlier("4", "bash", "ls", "short"),
                earlier("3", "fs_read", "b.rs", &long("c")),
                earlier("2", "fs_read", "a.rs", &long("b")),
                earlier("1", "bash", "make a.rs", &long("ä")),
            ]
        };
        #[rustfmt::skip]
        let table = [
            (json!({"tool": "fs_read"}), "3"), (json!({"tool": "Read"}), "3"), (json!({"tool": "fs_read", "nth": 2}), "2"),
            (json!({"containing": "a.rs"}), "2"), (json!({"containing": "a.rs", "nth": 2}), "1"),
            (json!({"callId": "4"}), "4"), (json!({"callId": "5"}), "5"), (json!({"nth": 1}), "3"),
        ];
        for (arguments, want) in table {
            let told = run(calls(), arguments.clone()).await.unwrap();
            assert!(told.contains(&format!("(callId {want})")), "{arguments}: {told}");
        }
        let told = run(calls(), json!({"callId": "1", "offset": 100, "limit": 50})).await.unwrap();
        let head = "Output of bash {\"path\":\"make a.rs\"} (callId 1), characters 100 to 150 of 300; go on with offset 150:\n";
        assert_eq!(told, format!("{head}{}", "ä".repeat(50)));
        let list = run(calls(), json!({})).await.unwrap();
        assert_eq!(list.lines().count(), 4, "{list}");
        assert!(list.ends_with("\n- bash {\"path\":\"make a.rs\"} — 300 chars, callId 1"), "{list}");
    }

    #[tokio::test]
    async fn what_is_not_there_or_not_understood_is_said() {
        let calls = || vec![earlier("1", "bash", "ls", &"x".repeat(300))];
        #[rustfmt::skip]
        let table = [
            (json!({"tool": "fs_read"}), "no earlier call"), (json!({"callId": "2"}), "no earlier call"),
            (json!({"callId": "1", "offset": 300}), "`offset`: expected less than 300"),
            (json!({"nth": 0}), "`nth`: expected a whole number from 1 to 10000, got 0"),
            (json!({"callId": "1", "limit": 1.5}), "`limit`: expected a whole number from 1 to 40000, got 1.5"),
        ];
        for (arguments, want) in table {
            let why = run(calls(), arguments.clone()).await.unwrap_err();
            assert!(why.contains(want), "{arguments}: {why}");
        }
        assert_eq!(
            run(Vec::new(), json!({})).await.unwrap(),
            "No earlier call has an output of 200 characters or more."
        );
        let outside = ReadPruned.run(Arguments::new(), &context()).await.unwrap_err();
        assert!(outside.to_string().contains("only a session"), "{outside}");
    }

    #[tokio::test]
    async fn a_list_has_an_end() {
        let calls = (0..30).map(|n| earlier(&n.to_string(), "bash", &"y".repeat(500), &"x".repeat(300))).collect();
        let list = run(calls, json!({})).await.unwrap();
        assert_eq!(list.lines().count(), LISTED_MAX + 2, "{list}");
        assert!(list.len() < 5_000 && list.contains("There are older ones"), "{list}");
    }
}
