//! Permission for the calls of a turn: the verdict (see `policy`), then what the client has granted, then a question.
//!
//! What remains to be asked is put to the session's clients. Fails closed: no answer in time, nobody there, an abort, a fault of the
//! store are all a no, and each question ends in exactly one `permission.response`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Terms;
use super::ask::{About, CallQuestion, End, Question, put};
use super::live::Live;
use super::policy::Policy;
use crate::agent::{Gate, GateQuestion};
use crate::base::{BoxFuture, clock};
use crate::permission::{Facts, Grants, Subject, grant_place};
use crate::protocol::{
    PermissionMode, PermissionPolicy, PermissionVerdict, ToolCallRequest, ToolDefinition, TurnId, VerdictSource,
};
use crate::store::{Grant, GrantSubject};
use crate::tool::Veil;

/// What a grant for these things is about.
fn grant_subject(subject: &Subject, place: Option<PathBuf>) -> GrantSubject {
    match subject {
        Subject::None => GrantSubject::Any,
        Subject::Command(command) => match place {
            None => GrantSubject::Command(command.clone()),
            Some(directory) => GrantSubject::CommandIn { command: command.clone(), directory },
        },
        Subject::Paths(paths) => GrantSubject::Paths(paths.iter().filter_map(|p| p.resolved.clone()).collect()),
    }
}

fn subject_of(on: &GrantSubject) -> Subject {
    match on {
        GrantSubject::Any => Subject::None,
        GrantSubject::Command(command) | GrantSubject::CommandIn { command, .. } => Subject::Command(command.clone()),
        GrantSubject::Paths(paths) => {
            let path = |p: &PathBuf| crate::permission::PathSubject {
                below: false,
                given: p.display().to_string(),
                resolved: Some(p.clone()),
            };
            Subject::Paths(paths.iter().map(path).collect())
        }
    }
}

/// Adds a grant to others.
pub(super) fn add_grant(grants: &mut Grants, grant: &Grant) {
    let place = match &grant.on {
        GrantSubject::CommandIn { directory, .. } => Some(directory.as_path()),
        GrantSubject::Any | GrantSubject::Command(_) | GrantSubject::Paths(_) => None,
    };
    grants.add(&grant.id, (&grant.tool, &subject_of(&grant.on), place), grant.expires_at);
}

/// The gate of one turn.
pub(super) struct SessionGate {
    pub(super) live: Arc<Live>,
    pub(super) terms: Arc<Terms>,
    pub(super) policy: Arc<Policy>,
    pub(super) turn: TurnId,
    /// The working directory, without links.
    pub(super) directory: PathBuf,
    /// The session's mode in this turn.
    pub(super) mode: PermissionMode,
}

impl Gate for SessionGate {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(async move {
            let name = question.request.name.as_str();
            let facts =
                Facts::new(name, question.definition, Some(&self.directory)).like(question.like).at(question.place);
            let ruling = self.policy.rule(facts, question.subject, self.mode);
            let verdict = |allowed, by, reason| PermissionVerdict { allowed, by, reason };
            match ruling.policy {
                // A call that cannot run is refused without a question.
                PermissionPolicy::Allow | PermissionPolicy::Ask if question.unfit => {
                    verdict(true, VerdictSource::Policy, String::new())
                }
                PermissionPolicy::Allow | PermissionPolicy::Ask if question.asked => {
                    verdict(true, VerdictSource::Client, "it was asked about as a call of the agent".to_owned())
                }
                PermissionPolicy::Allow if question.insists => self.ask(question, cancel).await,
                PermissionPolicy::Allow => verdict(true, ruling.by, String::new()),
                PermissionPolicy::Deny => {
                    verdict(false, ruling.by, self.policy.reason(facts, question.subject, self.mode))
                }
                PermissionPolicy::Ask
                    if !question.insists && self.policy.granted(facts, question.subject).is_some() =>
                {
                    verdict(true, VerdictSource::Grant, String::new())
                }
                PermissionPolicy::Ask => self.ask(question, cancel).await,
            }
        })
    }

    fn veil(&self, tool: &ToolDefinition) -> Option<Veil> {
        self.policy.veil(Facts::new(&tool.name, Some(tool), Some(&self.directory)), self.mode)
    }
}

impl SessionGate {
    /// Puts the question and waits for its end.
    async fn ask(&self, question: GateQuestion<'_>, cancel: &CancellationToken) -> PermissionVerdict {
        let request = question.request;
        let preview = tokio::select! {
            biased;
            () = cancel.cancelled() => return End::no(VerdictSource::Abort, "the turn was aborted").verdict(),
            preview = question.preview.compute(&request.arguments) => preview,
        };
        let wait_ms = self.terms.limits.read().permission_timeout_ms;
        let shown = self.terms.asker.as_ref().and(preview.clone());
        let about = About::Call(Box::new(CallQuestion {
            call_id: request.id.clone(),
            tool_name: request.name.clone(),
            args: request.arguments.clone(),
            preview,
            on: grant_subject(question.subject, grant_place(question.place, &self.directory)),
            each_time: question.insists,
        }));
        let silence = async {
            tokio::select! {
                biased;
                () = cancel.cancelled() => End::no(VerdictSource::Abort, "the turn was aborted"),
                allowed = self.asker(request, shown.as_ref(), cancel) => match allowed {
                    true => End::Yes { by: VerdictSource::Program, reason: String::new() },
                    false => End::no(VerdictSource::Program, ""),
                },
                () = self.nobody() => no_client(),
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => too_late(wait_ms),
            }
        };
        let deadline = clock::now_ms().saturating_add(wait_ms);
        put(&self.live, Question { turn: self.turn.clone(), deadline, about }, silence).await.verdict()
    }

    /// The answer of somebody in this program; never, when there is nobody.
    async fn asker(&self, request: &ToolCallRequest, preview: Option<&Value>, cancel: &CancellationToken) -> bool {
        match &self.terms.asker {
            Some(asker) => asker.ask(request, preview, cancel).await,
            None => std::future::pending().await,
        }
    }

    /// Ends when no client has been there for too long; never, when somebody in this program answers.
    async fn nobody(&self) {
        match &self.terms.asker {
            Some(_) => std::future::pending().await,
            None => {
                let grace_ms = self.terms.limits.read().client_grace_ms;
                self.live.deserted(Duration::from_millis(grace_ms)).await;
            }
        }
    }
}

/// Nobody is there who could answer.
pub(super) fn no_client() -> End {
    End::no(VerdictSource::NoClient, "no client is connected who could be asked")
}

/// Nobody answered in time.
pub(super) fn too_late(wait_ms: u64) -> End {
    End::no(VerdictSource::Timeout, format!("nobody answered within {wait_ms} ms"))
}
