//! What would happen to a call in a session that works as an agent, or stands under others: its own rules, and what holds it back
//! beyond them, as the gate of a turn has it.

use std::path::Path;
use std::sync::Arc;

use super::agent_rules::{AgentRules, Own, agents_above};
use super::children::ceilings;
use super::gate::held_back;
use super::{Manager, Workbench};
use crate::permission::{Facts, Subject};
use crate::protocol::{
    AgentDefinition, ApiError, PermissionExplanation, PermissionPolicy, ToolDefinition, VerdictBasis,
};
use crate::store::SessionRow;
use crate::tool::Arguments;

/// A call that is explained.
#[derive(Debug, Clone, Copy)]
pub struct ExplainedCall<'a> {
    /// Its tool.
    pub definition: &'a ToolDefinition,
    /// What patterns are held against.
    pub subject: &'a Subject,
    /// Where its command would start.
    pub place: Option<&'a Path>,
    /// Its arguments.
    pub arguments: &'a Arguments,
}

impl Manager {
    /// What a session's own rules say of a call (`told`), held to its agent and to the sessions above it.
    ///
    /// # Errors
    /// What the store says; one above works as an agent that is gone.
    pub async fn held_to_others(
        &self,
        (row, agent): (&SessionRow, Option<Arc<AgentDefinition>>),
        bench: &dyn Workbench,
        call: ExplainedCall<'_>,
        mut told: PermissionExplanation,
    ) -> Result<PermissionExplanation, ApiError> {
        let above = if row.lineage.is_some() { self.above(row).await? } else { Vec::new() };
        let facts = Facts::new(&call.definition.name, Some(call.definition), Some(&row.settings.working_directory));
        let facts = facts.at(call.place);
        for (ceiling, row) in ceilings(&self.shelf.terms, &above).iter().zip(&above) {
            let theirs = ceiling.policy.explain(facts, call.subject, ceiling.mode);
            if held_back(theirs.decision) > held_back(told.decision) {
                let reason = format!("session {}, which stands above it, is held to it: {}", row.id, theirs.reason);
                told = PermissionExplanation { reason, session_id: Some(row.id.clone()), ..theirs };
            }
        }
        let agents = agents_above(bench, &above).await.map_err(ApiError)?;
        let works_as = above.iter().filter(|row| row.settings.agent.is_some()).map(|row| Some(row.id.clone()));
        let own = agent.map(|agent| (None, AgentRules::new(agent)));
        for (session_id, agent) in works_as.zip(agents).chain(own) {
            let (decision, reason) = match agent.rule(facts, (call.subject, call.arguments)) {
                Own::GoesOn => continue,
                Own::Asked => (PermissionPolicy::Ask, format!("the rules of the agent `{}` ask", agent.name())),
                Own::Refused(why) => (PermissionPolicy::Deny, why),
            };
            // A yes that was given before covers what is only asked about.
            let covered = decision == PermissionPolicy::Ask && told.source == VerdictBasis::Grant;
            if held_back(decision) > held_back(told.decision) && !covered {
                let agent = Some(agent.name().to_owned());
                let source = VerdictBasis::Agent;
                told = PermissionExplanation {
                    decision,
                    source,
                    reason,
                    session_id,
                    agent,
                    rule: None,
                    grant: None,
                    parts: Vec::new(),
                    ..told
                };
            }
        }
        Ok(told)
    }
}
