//! `write_stdin`: looks at a session of `exec_command`, types to it, changes its size, ends it.
//!
//! A call without `chars` only looks: rules see it as a reading tool, and it may come again and again. Text is judged as
//! the command line that it would be to a shell (see `typed`), for nobody knows what reads it; one that was judged on a
//! line which another call has changed meanwhile is not typed. To end a program, or to interrupt it, takes no
//! permission of its own: it is the session's. What is typed to a program that runs outside the sandbox is done outside
//! of it, so a person is asked about each such text, whatever the rules allow.
//!
//! Invariant: what is typed is what was judged.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::confine::Sandbox;
use super::exec_command::ExecOptions;
use super::exec_look::{self, Look, flag, follow, number, text};
use super::typed::{Typed, begun_after, typed};
use crate::base::console::{Console, TypedLine};
use crate::base::process::TerminalSize;
use crate::base::sandbox::denial;
use crate::base::workspace::Workspace;
use crate::base::{BoxFuture, limit};
use crate::protocol::{ToolAnnotations, ToolCategory, ToolDefinition};
use crate::tool::{Arguments, Subject, Tool, ToolContext, ToolError, ToolOutput};

/// Wait of a call that types.
const TYPING_WAIT_MS: u64 = 250;
/// Calls of which is remembered on what line they were judged.
const JUDGED_MAX: usize = 64;
/// What the system's terminals take of one line, where they hand on whole lines.
const LINE_BYTES_MAX: usize = 4_095;
/// Ctrl-C. It also interrupts a program that has no terminal.
const INTERRUPT: &str = "\u{3}";

/// The tool.
#[derive(Debug)]
pub struct WriteStdin {
    workspace: Arc<Workspace>,
    sandbox: Sandbox,
    output_tokens: usize,
}

static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| ToolDefinition {
    name: "write_stdin".into(),
    description: "Goes on with a session of exec_command: shows what came since the last call. With `chars` types to \
                  it first (started with `tty`); without, waits 5000 ms or longer, or until it ends."
        .into(),
    parameters: parameters(),
    category: Some(ToolCategory::Execute),
    annotations: Some(ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() }),
    timeout_ms: Some(limit::YIELD_MS_MAX + 60_000),
    // It cuts its output itself, in the middle.
    max_output_chars: Some(0),
});

/// As rules see a call that only looks.
static LOOKING: LazyLock<ToolDefinition> = LazyLock::new(|| ToolDefinition {
    category: Some(ToolCategory::Read),
    annotations: Some(ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() }),
    ..DEFINITION.clone()
});

fn parameters() -> Arguments {
    let mut parameters = Arguments::new();
    let mut add = |name: &str, parameter: Value| parameters.insert(name.to_owned(), parameter);
    add(
        "session_id",
        json!({
            "anyOf": [{"type": "string"}, {"type": "integer"}], "description": "As exec_command named it", "required": true
        }),
    );
    add("chars", json!({"type": "string", "description": "Text to type; \\n sends a line off, \\u0003 is Ctrl-C"}));
    add("kill", json!({"type": "boolean", "description": "End the program and all that it started"}));
    add("rows", json!({"type": "integer", "description": "With cols: new size of the terminal"}));
    add("cols", json!({"type": "integer", "description": "See rows"}));
    exec_look::add_parameters(&mut parameters, TYPING_WAIT_MS);
    parameters
}

impl WriteStdin {
    /// The tool for the sessions that `exec_command` with the same options starts.
    pub fn new(workspace: Arc<Workspace>, options: ExecOptions) -> Self {
        Self { workspace, sandbox: options.sandbox, output_tokens: options.output_tokens }
    }

    /// Whether it runs outside the sandbox in which others run.
    fn is_outside(&self, console: &Console) -> bool {
        self.sandbox.level().is_some() && !console.is_confined()
    }

    async fn execute(&self, arguments: &Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let mut look = Look::new(arguments, self.output_tokens)?;
        let id = id(arguments)?;
        let (chars, kill) = (chars(arguments)?, flag(arguments, "kill")?);
        let size = size(arguments)?;
        let wait = match (chars.is_empty(), size) {
            (true, None) => exec_look::wait(arguments, limit::YIELD_LOOK_MS_MIN, limit::YIELD_LOOK_MS_MIN)?,
            (true, Some(_)) | (false, _) => exec_look::wait(arguments, TYPING_WAIT_MS, limit::YIELD_MS_MIN)?,
        };
        if kill && (!chars.is_empty() || size.is_some()) {
            return Err(ToolError::BadArguments("`kill`: expected no `chars` and no size beside it".to_owned()));
        }
        let consoles = &context.scope.consoles;
        let console = consoles.get(&id).map_err(|error| ToolError::failed(error.to_string()))?;
        if let Some(size) = size {
            resize(&console, &id, size)?;
        }
        let following = console.following(follow(context, &DEFINITION.name));
        let work = async {
            if kill {
                console.end().await;
            } else if !chars.is_empty() {
                let judged = self.is_outside(&console) && typed("", &chars) != Typed::Nothing;
                let call = Call { session: &id, id: &context.call_id, must_be_judged: judged };
                type_in(&console, call, (&chars, look.begun + wait), &mut look).await?;
            }
            console.wait(wait.saturating_sub(look.begun.elapsed())).await;
            Ok::<(), ToolError>(())
        };
        tokio::select! {
            biased;
            // The program goes on: an earlier call started it.
            () = context.cancel.cancelled() => return Err(ToolError::Aborted),
            done = work => done?,
        }
        drop(following);
        let explain = |code: i32, output: &str| match self.is_outside(&console) {
            true => String::new(),
            false => self.sandbox.explain("exec_command", denial(output, code == 0), &self.workspace),
        };
        let (output, code) = look.report(&console, Some(&id), explain);
        if let Some(code) = code {
            consoles.remove(&id, code);
        }
        Ok(output)
    }
}

fn resize(console: &Console, id: &str, size: TerminalSize) -> Result<(), ToolError> {
    match console.resize(size) {
        Some(Err(cause)) => Err(ToolError::failed(format!("the terminal of session {id} keeps its size: {cause}"))),
        None if !console.has_terminal() => Err(no_terminal(id)),
        // One that has ended says so.
        Some(Ok(())) | None => Ok(()),
    }
}

fn no_terminal(id: &str) -> ToolError {
    ToolError::failed(format!(
        "session {id} has no terminal and no input: end it, and start the command again with `tty`, to type to it"
    ))
}

/// A call that types.
#[derive(Clone, Copy)]
struct Call<'a> {
    session: &'a str,
    id: &'a str,
    /// Whether nothing is typed that was not judged with the program in view: one that began meanwhile was not.
    must_be_judged: bool,
}

/// Types what was judged. `deadline` is when to give up on a program that does not read.
async fn type_in(
    console: &Console,
    Call { session: id, id: call, must_be_judged }: Call<'_>,
    (chars, deadline): (&str, Instant),
    look: &mut Look,
) -> Result<(), ToolError> {
    if !console.has_terminal() {
        if chars != INTERRUPT {
            return Err(no_terminal(id));
        }
        console.interrupt();
        return Ok(());
    }
    let before = {
        let mut line = console.line().lock();
        let judged = line.judged.iter().position(|(other, _)| other == call).map(|at| line.judged.remove(at).1);
        if judged.is_none() && must_be_judged {
            return Err(ToolError::failed(format!(
                "nothing was typed: session {id} runs outside the sandbox, and was not there yet when this was judged; type it again"
            )));
        }
        if judged.is_some_and(|judged| judged != line.begun) {
            return Err(ToolError::failed(format!(
                "nothing was typed: another call has typed on the same line of session {id} meanwhile; look at it first"
            )));
        }
        let after = begun_after(&line.begun, chars);
        std::mem::replace(&mut line.begun, after)
    };
    let takes_lines = console.takes_lines();
    let Some(count) = console.write(chars.as_bytes(), deadline).await else {
        look.note("nothing was typed: it has ended");
        return Ok(());
    };
    if count < chars.len() {
        let typed = &chars[..chars.floor_char_boundary(count)];
        console.line().lock().begun = begun_after(&before, typed);
        look.note(&format!("{count} of {} bytes were typed: the program does not read", chars.len()));
    }
    let longest = format!("{before}{chars}").split(['\n', '\r']).map(str::len).max().unwrap_or_default();
    if takes_lines && longest > LINE_BYTES_MAX {
        look.note(&format!(
            "the terminal takes {LINE_BYTES_MAX} bytes of a line and drops the rest, and one had {longest}: write a file instead, or shorter lines"
        ));
    }
    Ok(())
}

impl Tool for WriteStdin {
    fn definition(&self) -> &ToolDefinition {
        &DEFINITION
    }

    fn judged_as(&self, arguments: &Arguments) -> &ToolDefinition {
        match typed("", given(arguments)) {
            Typed::Nothing => &LOOKING,
            Typed::Command(_) => &DEFINITION,
        }
    }

    fn may_repeat(&self, arguments: &Arguments) -> bool {
        given(arguments).is_empty() && arguments.get("kill") != Some(&Value::Bool(true))
    }

    fn subject(&self, arguments: &Arguments) -> Subject {
        match typed("", given(arguments)) {
            Typed::Nothing => Subject::None,
            Typed::Command(line) => Subject::Command(line),
        }
    }

    fn subject_in(&self, arguments: &Arguments, context: &ToolContext) -> Subject {
        let Some(console) = console(arguments, context) else { return self.subject(arguments) };
        let mut line = console.line().lock();
        match typed(&line.begun, given(arguments)) {
            Typed::Nothing => Subject::None,
            Typed::Command(command) => {
                line.note(&context.call_id);
                Subject::Command(command)
            }
        }
    }

    fn insists_in(&self, arguments: &Arguments, context: &ToolContext) -> bool {
        let outside = || console(arguments, context).is_some_and(|console| self.is_outside(&console));
        typed("", given(arguments)) != Typed::Nothing && outside()
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        id(arguments)?;
        chars(arguments).map(drop)
    }

    fn preview<'a>(&'a self, arguments: &'a Arguments, context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        let shown = console(arguments, context).map(|console| {
            let line = format!("{}{}", console.line().lock().begun, given(arguments));
            let mut shown = json!({ "command": console.command(), "line": line });
            if self.is_outside(&console) {
                shown["outsideSandbox"] = true.into();
                shown["note"] = "The session runs outside the sandbox: what is typed is done outside of it.".into();
            }
            shown
        });
        Box::pin(std::future::ready(shown))
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.execute(&arguments, context).await })
    }
}

impl TypedLine {
    /// Remembers on what line a call is judged.
    fn note(&mut self, call: &str) {
        self.judged.retain(|(other, _)| other != call);
        self.judged.push((call.to_owned(), self.begun.clone()));
        if self.judged.len() > JUDGED_MAX {
            self.judged.remove(0);
        }
    }
}

/// The session that a call is about.
fn console(arguments: &Arguments, context: &ToolContext) -> Option<Arc<Console>> {
    context.scope.consoles.get(&id(arguments).ok()?).ok()
}

/// The number of a session. Models write it as a number too.
fn id(arguments: &Arguments) -> Result<String, ToolError> {
    match arguments.get("session_id") {
        Some(Value::String(id)) => Ok(id.clone()),
        Some(Value::Number(id)) if id.is_u64() => Ok(id.to_string()),
        None | Some(Value::Null) => {
            Err(ToolError::BadArguments("`session_id`: expected what exec_command named it, got nothing".to_owned()))
        }
        Some(other) => Err(ToolError::BadArguments(format!("`session_id`: expected a string, got {other}"))),
    }
}

/// What is to be typed, before anything is checked.
fn given(arguments: &Arguments) -> &str {
    arguments.get("chars").and_then(Value::as_str).unwrap_or_default()
}

fn chars(arguments: &Arguments) -> Result<String, ToolError> {
    let chars = text(arguments, "chars")?.unwrap_or_default();
    let most = limit::TYPED_BYTES_MAX;
    if chars.len() <= most {
        return Ok(chars);
    }
    Err(ToolError::BadArguments(format!("`chars`: expected at most {most} bytes, got {}", chars.len())))
}

fn size(arguments: &Arguments) -> Result<Option<TerminalSize>, ToolError> {
    let side = |name: &str| -> Result<Option<u16>, ToolError> {
        let Some(given) = number(arguments, name)? else { return Ok(None) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies in the range")]
        let side = (1.0..=1000.0).contains(&given).then_some(given as u16);
        side.map(Some)
            .ok_or_else(|| ToolError::BadArguments(format!("`{name}`: expected a number from 1 to 1000, got {given}")))
    };
    match (side("rows")?, side("cols")?) {
        (None, None) => Ok(None),
        (Some(rows), Some(columns)) => Ok(Some(TerminalSize { rows, columns })),
        (Some(_), None) => {
            Err(ToolError::BadArguments("`cols`: expected a number beside `rows`, got nothing".to_owned()))
        }
        (None, Some(_)) => {
            Err(ToolError::BadArguments("`rows`: expected a number beside `cols`, got nothing".to_owned()))
        }
    }
}
