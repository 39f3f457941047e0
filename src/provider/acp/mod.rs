//! Agents that speak the Agent Client Protocol, version 1, over their standard streams.
//!
//! - `wire`: lines and JSON-RPC messages
//! - `connection`: one running program
//! - `session`: the program when it is needed, and the agent's sessions
//! - `handed`: what its sessions get of tool servers, and of our own tools
//! - `door`: where its tool clients come in, and what they speak
//! - `options`: what a session is set to
//! - `known`: what an agent says of a session beside its turns
//! - `turn`: one prompt and everything until its end
//! - `terminals`: the commands that are run for it
//! - `calls`: the agent's tool calls in our terms
//! - `client`: what a program does with an agent by hand
//! - `context`: what a prompt says
//!
//! One program serves all sessions of a configured server. It starts at the first prompt, and a program that is
//! gone, hangs or does not stop is replaced at the next one; so is one that was ended because no turn used it for a while. Only the protocol's types come from its crate: its own
//! connection neither skips noise nor bounds a line, and runs handlers in no order with answers
//! (docs/adr/0016-acp-agents-are-models.md).

mod calls;
mod client;
mod connection;
mod context;
mod door;
mod handed;
#[cfg(test)]
#[path = "../../../fuzz/src/inside/agents.rs"]
mod inside;
mod known;
mod options;
mod session;
mod terminals;
mod turn;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::base::limit;
use crate::base::secrets::Secrets;
use crate::config::{AcpMcpServers, AcpPermissionPolicy, AcpProfile, AcpTools, ToolBridge, find_program_in};
use crate::model::{Model, ModelError, ModelRequest, ModelStream, Pieces};
use crate::protocol::ACP_PREFIX;

pub use client::{AcpAbilities, AcpSession};
use connection::{Connection, Fault};
use session::Abilities;

/// Events of a turn that nobody has taken yet.
const UNTAKEN_MAX: usize = 64;
/// ACP: a login is needed.
const AUTH_REQUIRED: i64 = -32000;

/// An agent program and how it is used.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The configured server's name. The model's id is `acp/<name>`.
    pub name: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it starts; absolute. Sessions name directories of their own.
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What is never repeated when it says it.
    pub secrets: Secrets,
    /// Which of its agents or modes sessions get.
    pub default_agent: Option<String>,
    /// Longest wait for an answer; never for a prompt's.
    pub timeout: Duration,
    /// What happens when it asks for permission.
    pub policy: AcpPermissionPolicy,
    /// How it is logged in to when it wants that: the id of one of its own methods.
    pub auth_method: Option<String>,
    /// What it is offered to have done for it.
    pub serves: AcpServices,
    /// How long its program may take to end by itself once its input has ended.
    pub exit_grace: Duration,
    /// What it can call of ours.
    pub offer: AcpOffer,
    /// Rest after which its program is ended, until it is needed again. None: it stays.
    pub idle: Option<Duration>,
}

/// What an agent is offered to have done by our tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcpServices {
    /// Text files are read for it.
    pub reads: bool,
    /// Text files are written for it.
    pub writes: bool,
    /// Commands are run for it.
    pub commands: bool,
}

/// What an agent can call of a session's tools, over MCP.
#[derive(Debug, Clone, Default)]
pub struct AcpOffer {
    /// Which of them.
    pub tools: AcpTools,
    /// Whether it connects the session's MCP servers itself.
    pub mcp_servers: AcpMcpServers,
    /// The tools that every agent has itself.
    pub theirs: Arc<[String]>,
    /// What joins its tool client to us. None: it can call none.
    pub bridge: Option<ToolBridge>,
}

/// An agent that answers as a model. Dropping it ends its program.
pub struct AcpAgent {
    id: String,
    agent: Arc<Agent>,
    _end: DropGuard,
}

impl std::fmt::Debug for AcpAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcpAgent").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How much an agent's program has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcpLoad {
    /// Sessions that are open in it.
    pub sessions: usize,
    /// Messages that it has not read.
    pub unread: usize,
    /// Bytes of these.
    pub unread_bytes: usize,
}

/// What the turns of an agent share.
struct Agent {
    options: AcpOptions,
    current: tokio::sync::Mutex<Option<Running>>,
    closing: CancellationToken,
    /// What ends the programs.
    tasks: TaskTracker,
}

struct Running {
    connection: Arc<Connection>,
    abilities: Abilities,
}

impl AcpAgent {
    /// Starts nothing.
    pub fn new(options: AcpOptions) -> Self {
        let closing = CancellationToken::new();
        let id = format!("{ACP_PREFIX}{}", options.name);
        let end = closing.clone().drop_guard();
        let agent = Agent { options, current: tokio::sync::Mutex::default(), closing, tasks: TaskTracker::new() };
        Self { id, agent: Arc::new(agent), _end: end }
    }

    /// What is bounded in its program, and how full it is. None: no program runs.
    pub fn load(&self) -> Option<AcpLoad> {
        // Who starts one holds the lock.
        let current = self.agent.current.try_lock().ok()?;
        let connection = &current.as_ref()?.connection;
        connection.over().is_none().then(|| connection.load())
    }

    /// Ends the program and its group, and waits until they are gone. It is started no more.
    pub async fn stop(&self) {
        self.agent.closing.cancel();
        self.agent.tasks.close();
        self.agent.tasks.wait().await;
    }
}

impl Model for AcpAgent {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_agent(&self) -> bool {
        true
    }

    fn available(&self) -> Result<(), ModelError> {
        program(&self.agent.options).map(drop)
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let agent = Arc::clone(&self.agent);
        let begin = async move {
            let (out, events) = mpsc::channel(UNTAKEN_MAX);
            tokio::spawn(turn::drive(agent, request, cancel, out));
            futures_util::stream::unfold(events, |mut events| async move { Some((events.recv().await?, events)) })
        };
        Box::pin(Pieces::of(Box::pin(futures_util::stream::once(begin).flatten())))
    }
}

/// Where the program lies, which can be started.
fn program(options: &AcpOptions) -> Result<PathBuf, ModelError> {
    let AcpOptions { command, directory, environment, .. } = options;
    if !directory.is_dir() {
        let words = format!("its directory `{}` (cwd) is not there", directory.display());
        return Err(ModelError::Unavailable(words));
    }
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let found = find_program_in(command, directory, path);
    found.ok_or_else(|| {
        let package = AcpProfile::of_command(command).map(|known| format!(" ({})", known.package)).unwrap_or_default();
        ModelError::Unavailable(format!("the program `{command}` is not installed{package}"))
    })
}

impl Agent {
    fn name(&self) -> &str {
        &self.options.name
    }

    /// An error that says which agent it is about, and nothing that it was given in confidence.
    fn named(&self, error: ModelError) -> ModelError {
        let say = |words: String| format!("the agent `{}`: {}", self.name(), self.options.secrets.hide(words));
        error.reworded(say)
    }

    /// Why `method` has no good answer.
    fn fault(&self, method: &str, fault: Fault) -> ModelError {
        self.named(match fault {
            Fault::Gone(why) => ModelError::Unavailable(why),
            Fault::TimedOut(wait) => {
                ModelError::Unavailable(format!("no answer to {method} within {} ms", wait.as_millis()))
            }
            Fault::Malformed(words) => ModelError::Malformed(words),
            Fault::Refused(error) => {
                let mut words = format!("{} ({method}, error {})", error.message, error.code);
                if let Some(data) = &error.data {
                    let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
                    words.push_str(&format!(": {}", crate::base::text::head(&data, limit::ACP_ERROR_BYTES_MAX)));
                }
                if error.code == AUTH_REQUIRED {
                    return self.named(ModelError::Unauthorized(format!("log in to it first: {words}")));
                }
                ModelError::Refused(words)
            }
        })
    }
}
