//! What `exec_command` and `write_stdin` have in common: how long a call waits, and what it then shows.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::exec_command::code_of;
use crate::base::console::{Console, Piece};
use crate::base::panics::broken;
use crate::base::process::Follow;
use crate::base::{limit, text as cut};
use crate::tool::{Arguments, LiveOutput, ToolContext, ToolError, ToolOutput};

/// From here on a model is told how many sessions there are.
const MANY: usize = limit::CONSOLES_MAX - 4;
/// Bytes that are counted as one token.
const TOKEN_BYTES: usize = 4;

/// One look at a program.
#[derive(Debug)]
pub(super) struct Look {
    /// When the call began to wait.
    pub begun: Instant,
    tokens_max: usize,
    notes: String,
}

/// Adds the arguments that both tools take.
pub(super) fn add_parameters(parameters: &mut Arguments, wait_ms: u64) {
    let (least, most) = (limit::YIELD_MS_MIN, limit::YIELD_MS_MAX);
    parameters.insert(
        "yield_time_ms".into(),
        json!({"type": "number", "description": format!("Longest wait for output, {least} to {most}; default {wait_ms}")}),
    );
    parameters.insert(
        "max_output_tokens".into(),
        json!({"type": "number", "description": "Output to show; of more the middle is cut"}),
    );
}

/// How long a call waits.
pub(super) fn wait(arguments: &Arguments, usual_ms: u64, least_ms: u64) -> Result<Duration, ToolError> {
    #[allow(clippy::cast_precision_loss, reason = "the limits are far below 2^52")]
    let (least, most) = (least_ms as f64, limit::YIELD_MS_MAX as f64);
    #[allow(clippy::cast_precision_loss, reason = "it is far below 2^52")]
    let given = number(arguments, "yield_time_ms")?.unwrap_or(usual_ms as f64);
    Ok(Duration::from_secs_f64(given.clamp(least, most) / 1e3))
}

impl Look {
    /// A look that shows at most so many tokens as the call says, else `usual_tokens`.
    pub(super) fn new(arguments: &Arguments, usual_tokens: usize) -> Result<Self, ToolError> {
        let tokens_max = match number(arguments, "max_output_tokens")? {
            None => usual_tokens,
            Some(given) if given >= 1.0 => {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it saturates, and is positive"
                )]
                let tokens = given as usize;
                tokens.min(limit::CONSOLE_OUTPUT_BYTES_MAX)
            }
            Some(given) => {
                return Err(ToolError::BadArguments(format!("`max_output_tokens`: expected 1 or more, got {given}")));
            }
        };
        Ok(Self { begun: Instant::now(), tokens_max, notes: String::new() })
    }

    /// Adds a line for the model, below the output.
    pub(super) fn note(&mut self, words: &str) {
        let _infallible = write!(self.notes, "\n[{words}]");
    }

    /// Tells that another session had to go.
    pub(super) fn note_replaced(&mut self, id: Option<&str>) {
        if let Some(id) = id {
            self.note(&format!("session {id} was ended to make room: at most {} are kept", limit::CONSOLES_MAX));
        }
    }

    /// Tells that there will soon be no room.
    pub(super) fn note_many(&mut self, count: usize) {
        if count >= MANY {
            self.note(&format!(
                "{count} sessions are open, and at most {} are kept: end what is not needed",
                limit::CONSOLES_MAX
            ));
        }
    }

    /// What there is to say of a console now, and its exit code when that is told. `id` is its number, when it has one;
    /// `explain` adds to the output of one that has ended.
    pub(super) fn report(
        self,
        console: &Console,
        id: Option<&str>,
        explain: impl Fn(i32, &str) -> String,
    ) -> (ToolOutput, Option<i32>) {
        // Before the output is taken: what ends in between is told the next time.
        let code = console.ending().map(code_of);
        let piece = console.take();
        let (output, shown) = show(&piece, self.tokens_max);
        let tokens = tokens(piece.bytes);
        let chunk: String = uuid::Uuid::new_v4().simple().to_string().chars().take(6).collect();
        let wall = self.begun.elapsed();
        let state = match (code, id) {
            (Some(code), _) => format!("Process exited with code {code}"),
            (None, id) => format!("Process running with session ID {}", id.unwrap_or_default()),
        };
        let explained = code.map(|code| explain(code, &output)).unwrap_or_default();
        let text = format!(
            "Chunk ID: {chunk}\nWall time: {:.4} seconds\n{state}\nOriginal token count: {tokens}\nOutput:\n{output}{explained}{}",
            wall.as_secs_f64(),
            self.notes
        );
        let details = json!({
            "chunkId": chunk,
            "wallTimeMs": u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            "exitCode": code,
            "sessionId": id.filter(|_| code.is_none()),
            "originalTokenCount": tokens,
            "outputBytes": piece.bytes,
            "omittedBytes": piece.bytes.saturating_sub(shown),
        });
        (ToolOutput { text, details: Some(details), ..ToolOutput::default() }, code)
    }
}

fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(TOKEN_BYTES as u64)
}

/// A piece of output as it is shown, the middle cut where it is too long, and how many bytes of it are shown.
fn show(piece: &Piece, tokens_max: usize) -> (String, u64) {
    let budget = tokens_max.saturating_mul(TOKEN_BYTES);
    let Piece { head, tail, omitted_bytes, bytes } = piece;
    if head.len() + tail.len() <= budget {
        return match omitted_bytes {
            0 => (head.clone(), *bytes),
            omitted => (format!("{head}\n… {omitted} bytes omitted …\n{tail}"), bytes - omitted),
        };
    }
    let end = if *omitted_bytes == 0 { head } else { tail };
    let last = cut::tail(end, budget / 2);
    let first = cut::head(head, budget - budget / 2);
    let shown = (first.len() + last.len()) as u64;
    (format!("{first}\n…{} tokens truncated…\n{last}", tokens(bytes.saturating_sub(shown))), shown)
}

/// An optional string.
pub(super) fn text(arguments: &Arguments, name: &str) -> Result<Option<String>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(ToolError::BadArguments(format!("`{name}`: expected a string, got {other}"))),
    }
}

/// An optional yes.
pub(super) fn flag(arguments: &Arguments, name: &str) -> Result<bool, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(ToolError::BadArguments(format!("`{name}`: expected true or false, got {other}"))),
    }
}

/// An optional number.
pub(super) fn number(arguments: &Arguments, name: &str) -> Result<Option<f64>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => given
            .as_f64()
            .map(Some)
            .ok_or_else(|| ToolError::BadArguments(format!("`{name}`: expected a number, got {given}"))),
    }
}

/// Who hears of what a command writes while a call of `tool` waits.
pub(super) fn follow(context: &ToolContext, tool: &str) -> Option<Box<dyn Follow>> {
    let live = || LiveOutput::new(context.events.clone(), &context.call_id, tool);
    (context.events.are_taken() || context.events.ear().is_some()).then(|| Box::new(live()) as Box<dyn Follow>)
}

/// Runs work on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| ToolError::failed(format!("file work failed: {}", broken(e))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_is_cut_in_the_middle_and_no_character_in_two() {
        let piece = |head: &str, omitted_bytes: u64, tail: &str| Piece {
            head: head.into(),
            tail: tail.into(),
            omitted_bytes,
            bytes: (head.len() + tail.len()) as u64 + omitted_bytes,
        };
        #[rustfmt::skip]
        let table = [
            (piece("abcd", 0, ""), 1, "abcd", 4),
            (piece("abcdefgh", 0, ""), 1, "ab\n…1 tokens truncated…\ngh", 4),
            (piece("äöüß", 0, ""), 1, "ä\n…1 tokens truncated…\nß", 4),
            (piece("a😀😀b", 0, ""), 2, "a\n…2 tokens truncated…\nb", 2),
            (piece("ab", 96, "yz"), 1, "ab\n… 96 bytes omitted …\nyz", 4),
            (piece("abcd", 92, "wxyz"), 1, "ab\n…24 tokens truncated…\nyz", 4),
            (piece("", 0, ""), 1, "", 0),
        ];
        for (piece, tokens_max, want, shown) in table {
            assert_eq!(show(&piece, tokens_max), (want.to_owned(), shown), "{piece:?}");
        }
    }

    #[test]
    fn waits_are_clamped() {
        let of = |value: Value| {
            let Value::Object(arguments) = json!({ "yield_time_ms": value }) else { panic!("an object") };
            wait(&arguments, 10_000, 250).map(|wait| wait.as_millis())
        };
        let table = [(json!(null), 10_000), (json!(0), 250), (json!(-5), 250), (json!(700), 700), (json!(1e9), 30_000)];
        for (given, want) in table {
            assert_eq!(of(given.clone()), Ok(want), "{given}");
        }
        assert_eq!(
            of(json!("5")),
            Err(ToolError::BadArguments("`yield_time_ms`: expected a number, got \"5\"".into()))
        );
    }
}
