//! Permission for one call: the gate is asked, and what its answer was about is held to.
//!
//! Invariant: a call whose paths, or whose command's directory, lead elsewhere after a question than before it is not run.

use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::call::{CallEnvironment, Failure, Prepared};
use super::{GateQuestion, Preview};
use crate::base::BoxFuture;
use crate::permission::Facts;
use crate::protocol::{ErrorCode, VerdictSource};
use crate::tool::{Arguments, JudgedPaths, Subject, Tool, ToolContext};

impl Prepared {
    /// `unfit`: the call cannot run, whatever is said. What its paths are judged by, its preview and its run are held to.
    pub(super) async fn permit(
        &mut self,
        environment: &CallEnvironment,
        unfit: bool,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let subject: Subject = self.tool.subject_in(&self.request.arguments, &self.context);
        self.context.judged = JudgedPaths::of(&subject);
        let Self { tool, request, context } = &*self;
        let place = self.place(&subject);
        let preview = ToolPreview { tool: tool.as_ref(), context };
        let definition = Some(tool.judged_as(&request.arguments));
        let facts = Facts::new(&request.name, definition, None).at(place.as_deref());
        if let Some(why) = environment.scope.why_narrowed_to(facts, &subject) {
            return Err(Failure::execution(ErrorCode::Forbidden, &request.name, &why));
        }
        let verdict = environment
            .gate
            .check(
                GateQuestion {
                    request,
                    like: &[],
                    definition,
                    subject: &subject,
                    place: place.as_deref(),
                    insists: tool.insists_in(&request.arguments, context),
                    unfit,
                    asked: false,
                    preview: &preview,
                },
                cancel,
            )
            .await;
        if verdict.allowed {
            return if waited(verdict.by) { self.still_is(&subject, place.as_deref()) } else { Ok(()) };
        }
        // A question that nobody could answer any more is no refusal.
        if verdict.by == VerdictSource::Abort && cancel.is_cancelled() {
            return Err(Failure::execution(ErrorCode::Conflict, &request.name, "aborted"));
        }
        let mut output = format!("Permission denied for tool: \"{}\"", request.name);
        if !verdict.reason.is_empty() {
            output.push_str(&format!(" ({})", verdict.reason));
        }
        Err(Failure::new(ErrorCode::Forbidden, output))
    }

    /// Where its command would start.
    fn place(&self, subject: &Subject) -> Option<PathBuf> {
        match subject {
            Subject::Command(_) => self.tool.place(&self.request.arguments, &self.context),
            Subject::None | Subject::Paths(_) => None,
        }
    }

    /// Whether the paths of the call, or the directory of its command, lead where they led before somebody was asked.
    fn still_is(&self, subject: &Subject, place: Option<&Path>) -> Result<(), Failure> {
        let changed = match subject {
            Subject::None => None,
            Subject::Command(_) => (self.place(subject).as_deref() != place).then_some("the directory of the command"),
            Subject::Paths(_) => {
                let now = self.tool.subject_in(&self.request.arguments, &self.context);
                (now != *subject).then_some("a path of the call")
            }
        };
        let Some(changed) = changed else { return Ok(()) };
        let why = format!(
            "{changed} changed while the question about it was open and leads elsewhere now, so nothing was done: look at \
             what it is, and call again if it is still right"
        );
        Err(Failure::execution(ErrorCode::Conflict, &self.request.name, &why))
    }
}

/// Whether the verdict took its time: somebody was asked.
fn waited(by: VerdictSource) -> bool {
    match by {
        VerdictSource::Policy
        | VerdictSource::Floor
        | VerdictSource::Mode
        | VerdictSource::Agent
        | VerdictSource::Grant => false,
        VerdictSource::Client
        | VerdictSource::Program
        | VerdictSource::Timeout
        | VerdictSource::NoClient
        | VerdictSource::Abort
        | VerdictSource::Hook => true,
    }
}

struct ToolPreview<'t> {
    tool: &'t dyn Tool,
    context: &'t ToolContext,
}

impl std::fmt::Debug for ToolPreview<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolPreview").field("call_id", &self.context.call_id).finish_non_exhaustive()
    }
}

impl Preview for ToolPreview<'_> {
    fn compute<'a>(&'a self, arguments: &'a Arguments) -> BoxFuture<'a, Option<serde_json::Value>> {
        self.tool.preview(arguments, self.context)
    }
}
