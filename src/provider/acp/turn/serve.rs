//! What an agent asks of us in a turn: permission, a form filled in, files read and written, commands run.
//!
//! Files and commands go through our own tools, as any other call: contained, judged, sandboxed, logged, recorded for an undo.
//! What the agent was allowed once is not asked about again when it comes to us to have it done: the very file, the very
//! command. Invariant: each request gets one answer, whatever becomes of the turn.

use std::path::Path;
use std::sync::Arc;

use agent_client_protocol::v1::schema as acp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::calls::{Calls, line_of};
use super::super::connection::Connection;
use super::{INVALID_PARAMS, NOT_FOUND, Talk};
use crate::base::ear::{Ear, Lines};
use crate::base::limit;
use crate::config::AcpPermissionPolicy;
use crate::model::{AgentEvent, FormRequest, Heard, HostCall, Leave, ModelEvent, Reply};
use crate::permission::Subject;
use crate::protocol::{FormReply, PermissionVerdict, ToolCallRequest, ToolCallResult, VerdictSource};
use crate::tool::Form;

/// JSON-RPC: it failed.
const INTERNAL_ERROR: i64 = -32603;
/// The request was withdrawn.
const CANCELLED: i64 = -32800;

/// The answer to a request.
type Answer = Result<Value, (i64, String)>;

/// What came of a request of the agent.
pub(super) enum Answered {
    Permission(Option<PermissionVerdict>, Vec<acp::PermissionOption>, Vec<Granted>),
    Plain(Answer),
    /// None: the form could not be put.
    Form(Option<FormReply>),
    /// Something ended that nobody has asked about.
    Nothing,
}

/// What a request of the agent is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Permission,
    Form,
    Plain,
}

/// What the agent was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Granted {
    Path(String),
    Command(String),
    /// A tool of ours with these arguments.
    Tool(String, String),
}

/// The methods that are ours to answer while a turn runs.
pub(in super::super) fn is_served(method: &str) -> bool {
    matches!(
        method,
        "session/request_permission"
            | "elicitation/create"
            | "fs/read_text_file"
            | "fs/write_text_file"
            | "terminal/create"
            | "terminal/output"
            | "terminal/wait_for_exit"
            | "terminal/kill"
            | "terminal/release"
    )
}

impl Talk {
    /// Takes a request of the agent. Its answer may come later.
    pub(super) async fn request(&mut self, connection: &Connection, (id, method, params): (Value, &str, Value)) {
        self.requests += 1;
        let number = self.requests;
        let wanted = match method {
            "session/request_permission" => Wanted::Permission,
            "elicitation/create" => Wanted::Form,
            _ => Wanted::Plain,
        };
        self.open.insert(number, (id.clone(), wanted));
        let taken = match method {
            "session/request_permission" => match parsed(params) {
                Ok(asked) => {
                    self.asked(connection, number, asked).await;
                    Ok(None)
                }
                Err(problem) => Err(problem),
            },
            "elicitation/create" => self.form(number, params).await.map(|()| None),
            "fs/read_text_file" => match parsed(params) {
                Ok(read) => self.read(number, read).await,
                Err(problem) => Err(problem),
            },
            "fs/write_text_file" => match parsed(params) {
                Ok(write) => self.write(number, write).await,
                Err(problem) => Err(problem),
            },
            "terminal/create" => match parsed(params) {
                Ok(create) => self.create_terminal(number, create).await,
                Err(problem) => Err(problem),
            },
            method => self.terminal(number, method, &params),
        };
        let answer = match taken {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(problem) => Err((INVALID_PARAMS, problem)),
        };
        self.open.remove(&number);
        connection.answer(&id, answer);
    }

    /// The agent does not want an answer any more.
    pub(super) fn withdraw(&mut self, connection: &Connection, id: &Value) {
        let Some(number) = self.open.iter().find(|(_, (its, _))| its == id).map(|(number, _)| *number) else { return };
        self.open.remove(&number);
        connection.answer(id, Err((CANCELLED, "it was withdrawn".to_owned())));
    }

    /// Hands on a form for a person. Read by hand: what it holds is the form's to understand.
    async fn form(&mut self, number: u64, mut params: Value) -> Result<(), String> {
        if params["mode"] != "form" {
            return Err("mode: expected `form`".to_owned());
        }
        let Some(message) = params["message"].as_str().map(str::to_owned) else {
            return Err("message: expected a string".to_owned());
        };
        let (who, schema) = (format!("The agent `{}`", self.agent.name()), params["requestedSchema"].take());
        Form::read(&who, &message, &schema).map_err(|problem| format!("requestedSchema: {problem}"))?;
        let call_id = params["toolCallId"].as_str().map(str::to_owned);
        let (reply, filled) = Reply::channel();
        let request = Box::new(FormRequest { who, call_id, message, schema });
        self.emit(ModelEvent::Agent(AgentEvent::Fill(request, reply))).await;
        self.answers.push(Box::pin(async move { (number, Answered::Form(filled.await.ok())) }));
        Ok(())
    }

    async fn asked(&mut self, connection: &Connection, number: u64, asked: acp::RequestPermissionRequest) {
        let (events, call) = self.calls.ask(asked.tool_call);
        self.emit_own(events).await;
        let options = asked.options;
        let verdict = |allowed| PermissionVerdict { allowed, by: VerdictSource::Policy, reason: String::new() };
        let put = match (self.agent.options.policy, call) {
            (AcpPermissionPolicy::Prompt, Some(call)) => call,
            (AcpPermissionPolicy::AutoApprove, _) => {
                let answered = Answered::Permission(Some(verdict(true)), options, Vec::new());
                return self.answer(connection, number, answered);
            }
            (AcpPermissionPolicy::Deny | AcpPermissionPolicy::Prompt, _) => {
                let answered = Answered::Permission(Some(verdict(false)), options, Vec::new());
                return self.answer(connection, number, answered);
            }
        };
        let (server, directory) = (self.agent.name().to_owned(), self.calls.directory().to_owned());
        let tool = self.tool_meant(&put);
        let question = tokio::task::spawn_blocking(move || Calls::question(&server, &directory, &put)).await;
        let Ok(question) = question else {
            return self.answer(connection, number, Answered::Permission(None, options, Vec::new()));
        };
        let mut allows: Vec<Granted> = match &question.subject {
            Subject::Paths(paths) if question.like.contains(&"fs_write") => {
                paths.iter().map(|path| Granted::Path(path.given.clone())).collect()
            }
            Subject::Command(command) => vec![Granted::Command(command.clone())],
            Subject::Paths(_) | Subject::None => Vec::new(),
        };
        allows.extend(tool);
        let (reply, verdict) = Reply::channel();
        self.emit(ModelEvent::Agent(AgentEvent::Ask(Box::new(question), reply))).await;
        self.answers.push(Box::pin(async move {
            let verdict = verdict.await.ok();
            (number, Answered::Permission(verdict, options, allows))
        }));
    }

    /// What leave it has for that. None: it is refused.
    fn leave(&mut self, what: &Granted) -> Option<Leave> {
        match self.agent.options.policy {
            AcpPermissionPolicy::AutoApprove => Some(Leave::Full),
            // It was asked about this already.
            AcpPermissionPolicy::Prompt => Some(Leave::full_if(self.granted.remove(what))),
            AcpPermissionPolicy::Deny => None,
        }
    }

    /// Has one of our tools do it.
    pub(super) async fn call(&mut self, call: HostCall) -> impl Future<Output = Option<ToolCallResult>> + use<> {
        let (reply, result) = Reply::channel();
        self.emit(ModelEvent::Agent(AgentEvent::Run(Box::new(call), reply))).await;
        async move { result.await.ok() }
    }

    pub(super) fn host_call(&self, (number, name): (u64, &str), arguments: Value, leave: Leave) -> HostCall {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => serde_json::Map::new(),
        };
        let id = format!("{}_{name}_{number}", self.session);
        let request = ToolCallRequest { id, name: name.to_owned(), arguments };
        HostCall { request, leave, ear: Heard::default(), stop: CancellationToken::new() }
    }

    async fn write(&mut self, number: u64, write: acp::WriteTextFileRequest) -> Result<Option<Answer>, String> {
        let path = write.path.display().to_string();
        let Some(leave) = self.leave(&Granted::Path(path.clone())) else {
            return Ok(Some(Err((INTERNAL_ERROR, "files may not be written".to_owned()))));
        };
        let call = self.host_call((number, "fs_write"), json!({ "path": path, "content": write.content }), leave);
        let result = self.call(call).await;
        self.answers.push(Box::pin(async move {
            let answer = match result.await {
                Some(result) if !result.is_error => Ok(json!({})),
                Some(result) => Err((INTERNAL_ERROR, result.output)),
                None => Err((INTERNAL_ERROR, "the turn is over".to_owned())),
            };
            (number, Answered::Plain(answer))
        }));
        Ok(None)
    }

    async fn read(&mut self, number: u64, read: acp::ReadTextFileRequest) -> Result<Option<Answer>, String> {
        let count = read.limit.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
        let first = read.line.map_or(1, |line| usize::try_from(line).unwrap_or(usize::MAX)).max(1);
        let mut arguments = json!({ "path": read.path.display().to_string(), "offset": first });
        if let Some(count) = count.filter(|count| *count > 0) {
            arguments["limit"] = count.into();
        }
        let leave = Leave::full_if(self.agent.options.policy == AcpPermissionPolicy::AutoApprove);
        let mut call = self.host_call((number, "fs_read"), arguments, leave);
        let reader = Arc::new(Reader { lines: Lines { first, count }, text: Mutex::default() });
        call.ear = Heard(Some(Arc::clone(&reader) as Arc<dyn Ear>));
        let result = self.call(call).await;
        let inside = read.path.starts_with(self.calls.directory());
        self.answers.push(Box::pin(async move {
            let result = result.await;
            let text = reader.text.lock().take();
            let answer = match (text, result) {
                (Some(content), _) => Ok(json!({ "content": content })),
                (None, Some(result)) => Err((unread(inside, &read.path).await, result.output)),
                (None, None) => Err((INTERNAL_ERROR, "the turn is over".to_owned())),
            };
            (number, Answered::Plain(answer))
        }));
        Ok(None)
    }

    async fn create_terminal(
        &mut self,
        number: u64,
        create: acp::CreateTerminalRequest,
    ) -> Result<Option<Answer>, String> {
        let words: Vec<&str> = std::iter::once(&create.command).chain(&create.args).map(String::as_str).collect();
        let Some(command) = line_of(&words) else { return Err("command: expected a program".to_owned()) };
        let Some(leave) = self.leave(&Granted::Command(command.clone())) else {
            return Ok(Some(Err((INTERNAL_ERROR, "commands may not be run".to_owned()))));
        };
        let Some((id, terminal)) = self.terminals.add(create.output_byte_limit) else {
            let words = format!("at most {} terminals are open at once", limit::AGENT_TERMINALS_MAX);
            return Ok(Some(Err((INTERNAL_ERROR, words))));
        };
        let cwd = create.cwd.as_deref().unwrap_or_else(|| self.calls.directory());
        let mut arguments =
            json!({ "command": command, "cwd": cwd.display().to_string(), "timeout": limit::BASH_TIMEOUT_MS_MAX });
        if !create.env.is_empty() {
            let variable = |one: &acp::EnvVariable| (one.name.clone(), Value::from(one.value.clone()));
            arguments["env"] = Value::Object(create.env.iter().map(variable).collect());
        }
        let mut call = self.host_call((number, "bash"), arguments, leave);
        call.ear = Heard(Some(Arc::clone(&terminal) as Arc<dyn Ear>));
        call.stop = terminal.stop.clone();
        let result = self.call(call).await;
        let running = Arc::clone(&terminal);
        self.answers.push(Box::pin(async move {
            running.finish(result.await);
            (0, Answered::Nothing)
        }));
        let terminals = self.terminals.clone();
        self.answers.push(Box::pin(async move {
            let answer = match terminal.runs().await {
                Ok(()) => Ok(json!({ "terminalId": id })),
                Err(why) => {
                    terminals.release(&id);
                    Err((INTERNAL_ERROR, why))
                }
            };
            (number, Answered::Plain(answer))
        }));
        Ok(None)
    }

    /// What is asked of a terminal that is there.
    fn terminal(&mut self, number: u64, method: &str, params: &Value) -> Result<Option<Answer>, String> {
        let Some(id) = params["terminalId"].as_str() else { return Err("terminalId: expected a string".to_owned()) };
        let Some(terminal) = self.terminals.get(id) else {
            return Ok(Some(Err((NOT_FOUND, format!("no terminal {id}")))));
        };
        Ok(match method {
            "terminal/output" => Some(Ok(terminal.output())),
            "terminal/kill" => {
                terminal.stop.cancel();
                Some(Ok(json!({})))
            }
            "terminal/release" => {
                self.terminals.release(id);
                Some(Ok(json!({})))
            }
            _ => {
                self.answers.push(Box::pin(async move { (number, Answered::Plain(Ok(terminal.exit().await))) }));
                None
            }
        })
    }

    /// Answers the agent's request of that number.
    pub(super) fn answer(&mut self, connection: &Connection, number: u64, answered: Answered) {
        let Some((id, _)) = self.open.remove(&number) else { return };
        let result = match answered {
            Answered::Permission(verdict, options, allows) => {
                let verdict = verdict.filter(|_| !self.cancel.is_cancelled());
                if verdict.as_ref().is_some_and(|verdict| verdict.allowed) {
                    self.granted.extend(allows);
                }
                Ok(outcome(verdict.map(|verdict| verdict.allowed), &options))
            }
            Answered::Form(reply) => Ok(filled(reply.filter(|_| !self.cancel.is_cancelled()))),
            Answered::Plain(answer) => answer,
            Answered::Nothing => return,
        };
        connection.answer(&id, result);
    }

    /// What nobody will answer any more.
    pub(super) fn close(&mut self, connection: &Connection) {
        for (_, (id, wanted)) in self.open.drain() {
            let answer = match wanted {
                Wanted::Permission => Ok(outcome(None, &[])),
                Wanted::Form => Ok(filled(None)),
                Wanted::Plain => Err((INTERNAL_ERROR, "the turn is over".to_owned())),
            };
            connection.answer(&id, answer);
        }
    }
}

/// Takes the text of a file that is read.
#[derive(Debug)]
struct Reader {
    lines: Lines,
    text: Mutex<Option<String>>,
}

impl Ear for Reader {
    fn wants(&self) -> Option<Lines> {
        Some(self.lines)
    }

    fn read(&self, text: String) {
        *self.text.lock() = Some(text);
    }
}

/// Why a file could not be read: agents know a file that is not there by its code.
async fn unread(inside: bool, path: &Path) -> i64 {
    let path = path.to_owned();
    let missing =
        move || inside && std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    match tokio::task::spawn_blocking(missing).await {
        Ok(true) => NOT_FOUND,
        Ok(false) | Err(_) => INTERNAL_ERROR,
    }
}

fn parsed<T: DeserializeOwned>(params: Value) -> Result<T, String> {
    serde_json::from_value(params).map_err(|error| error.to_string())
}

/// The answer to a question, out of what the agent offers: the least that says it. None: cancelled.
fn outcome(allowed: Option<bool>, options: &[acp::PermissionOption]) -> Value {
    use acp::PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
    let wanted = match allowed {
        Some(true) => [AllowOnce, AllowAlways],
        Some(false) => [RejectOnce, RejectAlways],
        None => return json!({ "outcome": { "outcome": "cancelled" } }),
    };
    let chosen = wanted.iter().find_map(|kind| options.iter().find(|option| option.kind == *kind));
    match chosen {
        Some(option) => json!({ "outcome": { "outcome": "selected", "optionId": option.option_id } }),
        None => {
            tracing::warn!(?allowed, "an agent offers no option for this answer; its question is cancelled");
            json!({ "outcome": { "outcome": "cancelled" } })
        }
    }
}

/// The answer to a form. None: nobody filled it in.
fn filled(reply: Option<FormReply>) -> Value {
    match reply {
        Some(FormReply::Filled(content)) => json!({ "action": "accept", "content": content }),
        Some(FormReply::Declined(_)) => json!({ "action": "decline" }),
        Some(FormReply::Cancelled(_)) | None => json!({ "action": "cancel" }),
    }
}
