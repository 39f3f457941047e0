//! Permission for the calls of a turn: the verdict (see `policy`), then what the client has granted, then a question.
//!
//! What remains to be asked is put to the session's clients. Fails closed: no answer in time, nobody there, an abort, a fault of the
//! store are all a no, and each question ends in exactly one `permission.response`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::agent_rules::{AgentRules, Own, agents_above};
use super::ask::{About, CallQuestion, End, Question, put_to};
use super::children::{Ceiling, ceilings};
use super::live::Live;
use super::policy::{Policy, Ruling};
use super::{Terms, Workbench};
use crate::agent::{Gate, GateQuestion};
use crate::base::{BoxFuture, clock};
use crate::permission::{Facts, Grants, Subject, grant_place};
use crate::protocol::{
    AgentDefinition, ErrorBody, PermissionMode, PermissionPolicy, PermissionVerdict, ToolCallRequest, ToolDefinition,
    TurnId, VerdictSource,
};
use crate::store::{Grant, GrantSubject, SessionRow};
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
    /// What the sessions above it may do.
    pub(super) ceilings: Vec<Ceiling>,
    /// The session above all, whose clients are asked too.
    pub(super) root: Option<Arc<Live>>,
    /// What the agents of markdown files may not do that it and those above it work as.
    pub(super) agents: Vec<AgentRules>,
}

impl Gate for SessionGate {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(async move {
            let verdict = self.judge(question, cancel).await;
            match self.live.store.out_of_touch().filter(|_| verdict.allowed) {
                None => verdict,
                // What is cancelled meanwhile is looked at by whoever has asked.
                Some(known) => {
                    let known = cancel.run_until_cancelled(known).await;
                    let reason = || "another server may be in this one's place".to_owned();
                    let aborted = || PermissionVerdict { allowed: false, by: VerdictSource::Abort, reason: reason() };
                    known.map_or_else(aborted, |()| verdict)
                }
            }
        })
    }

    fn veil(&self, tool: &ToolDefinition) -> Option<Veil> {
        let facts = Facts::new(&tool.name, Some(tool), Some(&self.directory));
        let own = self.policy.veil(facts, self.mode);
        let above = self.ceilings.iter().filter_map(|above| above.policy.veil(facts, above.mode));
        let hidden = self.agents.iter().filter_map(|agent| agent.hidden(facts, self.mode));
        let agents = hidden.map(|hidden| Veil::new(move |path| hidden.names(path)));
        let all: Vec<Veil> = own.into_iter().chain(above).chain(agents).collect();
        match all.len() {
            0 | 1 => all.into_iter().next(),
            _ => Some(Veil::new(move |path| all.iter().any(|veil| veil.hides(path)))),
        }
    }
}

/// How much a policy holds back.
pub(super) fn held_back(policy: PermissionPolicy) -> u8 {
    match policy {
        PermissionPolicy::Allow => 0,
        PermissionPolicy::Ask => 1,
        PermissionPolicy::Deny => 2,
    }
}

impl SessionGate {
    async fn judge(&self, question: GateQuestion<'_>, cancel: &CancellationToken) -> PermissionVerdict {
        let name = question.request.name.as_str();
        let facts = Facts::new(name, question.definition, Some(&self.directory)).like(question.like).at(question.place);
        let (ruling, by_above) = self.rule(facts, question.subject);
        let verdict = |allowed, by, reason| PermissionVerdict { allowed, by, reason };
        let own = match self.by_agents(facts, question) {
            Own::Refused(why) if ruling.policy != PermissionPolicy::Deny => {
                return verdict(false, VerdictSource::Agent, why);
            }
            other => other,
        };
        match ruling.policy {
            PermissionPolicy::Deny => {
                let (policy, mode) = by_above.map_or((&self.policy, self.mode), |above| (&above.policy, above.mode));
                let reason = policy.reason(facts, question.subject, mode);
                let reason = if by_above.is_some() { format!("a session above it may not: {reason}") } else { reason };
                verdict(false, ruling.by, reason)
            }
            // A call that cannot run is refused without a question.
            PermissionPolicy::Allow | PermissionPolicy::Ask if question.unfit => {
                verdict(true, VerdictSource::Policy, String::new())
            }
            PermissionPolicy::Allow | PermissionPolicy::Ask if question.asked => {
                verdict(true, VerdictSource::Client, "it was asked about as a call of the agent".to_owned())
            }
            PermissionPolicy::Allow if question.insists => self.ask(question, cancel).await,
            PermissionPolicy::Allow if own != Own::Asked => verdict(true, ruling.by, String::new()),
            PermissionPolicy::Allow | PermissionPolicy::Ask
                if !question.insists && self.granted(facts, question.subject) =>
            {
                verdict(true, VerdictSource::Grant, String::new())
            }
            PermissionPolicy::Allow | PermissionPolicy::Ask => self.ask(question, cancel).await,
        }
    }

    /// What is to happen to a call: what holds it back most, of the session's own rules and of those of the sessions above. The
    /// one above that does, where it is one.
    fn rule(&self, facts: Facts<'_>, subject: &Subject) -> (Ruling, Option<&Ceiling>) {
        let mut found = (self.policy.rule(facts, subject, self.mode), None);
        for above in &self.ceilings {
            let ruling = above.policy.rule(facts, subject, above.mode);
            if held_back(ruling.policy) > held_back(found.0.policy) {
                found = (ruling, Some(above));
            }
        }
        found
    }

    /// Whether a yes that was given covers a call: to the session, or to one above it.
    fn granted(&self, facts: Facts<'_>, subject: &Subject) -> bool {
        let above = self.ceilings.iter().map(|above| &above.policy);
        std::iter::once(&self.policy).chain(above).any(|policy| policy.granted(facts, subject).is_some())
    }

    /// What the files of its agents say of a call: what holds it back most.
    fn by_agents(&self, facts: Facts<'_>, question: GateQuestion<'_>) -> Own {
        let mut found = Own::GoesOn;
        for agent in &self.agents {
            match agent.rule(facts, (question.subject, &question.request.arguments)) {
                Own::GoesOn => {}
                Own::Asked => found = Own::Asked,
                refused @ Own::Refused(_) => return refused,
            }
        }
        found
    }

    /// Holds it to what the sessions above may do.
    ///
    /// # Errors
    /// One of them works as an agent that is gone.
    pub(super) async fn hold_to(&mut self, above: &[SessionRow], bench: &dyn Workbench) -> Result<(), ErrorBody> {
        self.ceilings = ceilings(&self.terms, above);
        self.agents = agents_above(bench, above).await?;
        Ok(())
    }

    /// The same for a session that works as this agent.
    pub(super) fn of(mut self, agent: Option<Arc<AgentDefinition>>) -> Self {
        self.agents.extend(agent.map(AgentRules::new));
        self
    }

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
        let question = Question { turn: self.turn.clone(), deadline, about };
        put_to(&self.live, self.root.as_ref(), question, silence).await.verdict()
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
                deserted(&self.live, self.root.as_ref(), Duration::from_millis(grace_ms)).await;
            }
        }
    }
}

/// Ends when no client of the session, nor of the one above all, has been there for so long.
pub(super) async fn deserted(live: &Live, root: Option<&Arc<Live>>, grace: Duration) {
    match root {
        None => live.deserted(grace).await,
        Some(root) => drop(tokio::join!(live.deserted(grace), root.deserted(grace))),
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
