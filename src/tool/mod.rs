//! The seam that every tool fills: host tools, JavaScript handlers, remote ones.
//!
//! A tool is told its arguments after they were validated against its definition, and may run only
//! after permission was given. It stops soon after `ToolContext::cancel` fires.

mod aliases;
mod changes;
mod children;
mod deferred;
mod earlier;
mod estate;
mod events;
mod form;
mod function;
mod guide;
mod in_use;
mod judged;
mod live;
mod marks;
mod output;
mod outputs;
mod registry;
mod schema;
mod subject;
mod told;
mod tree;
mod validate;
mod veil;
mod words;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub use crate::base::BoxFuture;
use crate::base::console::Consoles;
use crate::base::sandbox::Loopback;
pub use crate::hook::Line;
use crate::permission::Facts;
pub use crate::permission::{PathSubject, Subject};
use crate::protocol::{Part, SessionId, ToolDefinition};

pub use aliases::{canonical, means, proper_name};
pub use changes::{ChangeRecorder, Recorded};
pub use children::{ChildState, Children, Spawn};
pub use deferred::told_bytes;
pub use earlier::{EarlierCall, EarlierCalls, WantedCalls};
pub use estate::{Estate, Share, end_estates};
pub use events::ToolEvents;
pub use form::Form;
pub use function::function;
pub use guide::{Guide, Guided};
pub use in_use::{SKILL_TOOL, SkillInUse};
pub use judged::JudgedPaths;
pub use live::LiveOutput;
pub use marks::{ContentHasher, FileMark, FileMarks, FileStamp, Previewed};
pub use output::{bound_output, bound_parts};
pub use outputs::{KeptOutput, OutputFile, Outputs};
pub use registry::{Registry, RegistryError};
pub use schema::{check_output_schema, check_parameters, output_in_words};
pub use subject::{argument_place, argument_subject, unreachable_path};
pub use told::told_schema;
pub use tree::{HeldPath, TaskInput, TaskOrder, Tree};
pub use validate::{BadArguments, hold_to, validate, validate_call};
pub use veil::Veil;

/// A tool's arguments by name.
pub type Arguments = Map<String, Value>;

/// What a call is told about its surroundings.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The call's id.
    pub call_id: String,
    /// The session, when there is one.
    pub session: Option<SessionId>,
    /// Fires on abort and on time-out.
    pub cancel: CancellationToken,
    /// What lives as long as the session (or, outside a session, the registry).
    pub scope: Arc<Scope>,
    /// Takes events of the tool's own, such as `memory.add`.
    pub events: ToolEvents,
    /// What a search passes over. None: nothing, or the tool does not search ([`Tool::searches`]).
    pub veil: Option<Veil>,
    /// What its preview said of the files that it changes.
    pub previewed: Previewed,
    /// Where its paths led when it was judged.
    pub judged: JudgedPaths,
    /// A line to the session's clients: what it asks ends with the call.
    pub clients: Line,
}

/// State that tools keep between the calls of one session. It outlives the time that the session is in memory, within
/// bounds, and ends with the process.
#[derive(Debug, Default)]
pub struct Scope {
    /// Where the shell is. None until the first `cd`.
    pub shell_directory: Mutex<Option<PathBuf>>,
    /// What the shell's environment has beyond the usual, as far as it is to be kept; None: it lacks that variable.
    pub shell_environment: Mutex<BTreeMap<OsString, Option<OsString>>>,
    share: OnceLock<Share>,
    /// Which files were read, and how they were then.
    pub files: FileMarks,
    /// Its programs that go on from call to call.
    pub consoles: Consoles,
    /// Records what the running turn does to files. None: nobody does, or no turn runs.
    pub recorder: Mutex<Option<Arc<dyn ChangeRecorder>>>,
    /// Starts other sessions and hears of them, for the turn that runs. None: it may not, or no turn runs.
    pub children: Mutex<Option<Arc<dyn Children>>>,
    /// What the session shares with the others of its tree. None: no turn runs.
    pub tree: Mutex<Option<Arc<dyn Tree>>>,
    /// Who has the outputs of the session's earlier calls. None: no session runs a turn.
    pub earlier: Mutex<Option<Arc<dyn EarlierCalls>>>,
    /// Who knows what is to be known of the places that calls touch. None: nobody, or no turn runs.
    pub guide: Mutex<Option<Arc<dyn Guide>>>,
    /// What of that was told.
    pub guided: Guided,
    /// The skill that the running turn uses, where it takes tools away.
    pub skill: Mutex<Option<SkillInUse>>,
    /// Where its programs meet that the sandbox keeps from the network. None inside: this machine has none.
    pub loopback: tokio::sync::OnceCell<Option<Arc<Loopback>>>,
}

impl Scope {
    /// Why a tool may not be used while a skill is. None: it may.
    pub fn why_narrowed(&self, tool: &str) -> Option<String> {
        self.skill.lock().as_ref()?.why_not(tool)
    }

    /// Why a call may not be made while a skill is used. None: it may.
    pub fn why_narrowed_to(&self, facts: Facts<'_>, subject: &Subject) -> Option<String> {
        self.skill.lock().as_ref()?.why_not_this(facts, subject)
    }

    /// What its tools leave behind goes where this share goes. Nothing changes when it has one.
    pub fn take_share(&self, share: Share) {
        // One that was remembered has it already.
        let _ = self.share.set(share);
    }

    /// Where what its tools leave behind belongs. Outside a server it is its own, and goes with it.
    pub fn share(&self) -> &Share {
        self.share.get_or_init(Share::default)
    }
}

/// What a tool gives back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model is told.
    pub text: String,
    /// What it is shown beside the text: images. A model that takes none is told their types.
    pub parts: Vec<Part>,
    /// What happened, for programs and people: the diff of a written file. The model is not told.
    pub details: Option<Value>,
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Why a tool failed. The text goes to the model as `Tool "<name>" execution failed: <text>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It says why.
    #[error("{0}")]
    Failed(String),
    /// Its arguments are not what its definition asks for.
    #[error("{0}")]
    BadArguments(String),
    /// What it was judged by is not what it would do any more.
    #[error("{0}")]
    Conflict(String),
    /// It was stopped by an abort.
    #[error("aborted")]
    Aborted,
    /// The same, with what it had said until then.
    #[error("aborted\n{0}")]
    AbortedAfter(String),
}

impl ToolError {
    /// A failure with a sentence.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// Something a model can call.
pub trait Tool: Send + Sync + 'static {
    /// What the model and the client are told about it.
    fn definition(&self) -> &ToolDefinition;

    /// Other names of its arguments that models use: (what they write, what the definition says).
    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether arguments that the definition does not name are handed on. If not, a call with one is refused; a
    /// definition in JSON Schema says so itself (`additionalProperties`).
    fn takes_unknown(&self) -> bool {
        false
    }

    /// Whether it holds its arguments against something of its own. If so, the definition is for the model only.
    fn checks_arguments(&self) -> bool {
        false
    }

    /// What permission patterns are held against. Must be cheap; may look at the file system to resolve a path.
    fn subject(&self, _arguments: &Arguments) -> Subject {
        Subject::None
    }

    /// The same for a call whose meaning depends on the calls before it: a line that is typed in pieces.
    fn subject_in(&self, arguments: &Arguments, _context: &ToolContext) -> Subject {
        self.subject(arguments)
    }

    /// Where a command of it would start; a relative path is as the caller named it. None: where the tool works, or nobody
    /// knows. May look at the file system.
    fn place(&self, arguments: &Arguments, _context: &ToolContext) -> Option<PathBuf> {
        argument_place(arguments)
    }

    /// What rules know of a call: one that only looks may say so, whatever else its tool can do.
    fn judged_as(&self, _arguments: &Arguments) -> &ToolDefinition {
        self.definition()
    }

    /// Whether the same call again is sensible: it looks at something that goes on.
    fn may_repeat(&self, _arguments: &Arguments) -> bool {
        false
    }

    /// Whether it says itself what it does to files ([`Recorded`]). Of any other that may change some, the difference is looked for.
    fn records_changes(&self) -> bool {
        false
    }

    /// Whether it comes upon files that its arguments do not name. Only then is it told what to pass over
    /// ([`ToolContext::veil`]): finding that out costs more than a small call.
    fn searches(&self) -> bool {
        false
    }

    /// Whether a person has to be asked whatever the rules allow: the call leaves the sandbox.
    fn insists(&self, _arguments: &Arguments) -> bool {
        false
    }

    /// The same for a call whose meaning depends on the calls before it: text for a program that runs outside the sandbox.
    fn insists_in(&self, arguments: &Arguments, _context: &ToolContext) -> bool {
        self.insists(arguments)
    }

    /// What is wrong with arguments that fit the definition, as far as that can be told before anybody is asked.
    ///
    /// # Errors
    /// [`ToolError::BadArguments`].
    fn check(&self, _arguments: &Arguments) -> Result<(), ToolError> {
        Ok(())
    }

    /// What would happen, for the person who is asked: a diff, a list of paths. None: the arguments say it all.
    fn preview<'a>(&'a self, _arguments: &'a Arguments, _context: &'a ToolContext) -> BoxFuture<'a, Option<Value>> {
        Box::pin(std::future::ready(None))
    }

    /// Runs it. Blocking work belongs on the blocking pool.
    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}
