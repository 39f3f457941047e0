//! What becomes of a plan: a session that may only look has answered with one, and its client approves, edits or rejects it.
//!
//! A decision is a prompt with a change of settings beside it, in one commit: approved or edited, the session leaves its plan mode
//! and the next turn carries the plan out; rejected, it stays and plans anew. Nothing leaves the plan mode without a client.

use crate::app::bodies::check_text;
use crate::app::{App, Caller};
use crate::base::limit;
use crate::protocol::{
    ApiError, Configure, PermissionMode, PlanDecision, PlanVerdict, Prompt, PromptContent, PromptMode, SessionId,
    SessionView, TurnStatus,
};
use crate::session::Accepted;

/// The agent that plans, and the one that carries out.
const PLANS: &str = "plan";
const BUILDS: &str = "build";

impl App {
    /// Decides about the plan of a session.
    ///
    /// # Errors
    /// `NOT_FOUND`; `INVALID_ARGUMENT` for what does not go with the decision; `CONFLICT` when the session does not plan, has no
    /// plan yet, works, or has another version.
    pub async fn decide_plan(&self, caller: &Caller, id: &SessionId, body: PlanDecision) -> Result<Accepted, ApiError> {
        caller.at_large()?;
        check(&body)?;
        let view = self.session(caller, id).await?;
        if view.permission_mode != PermissionMode::Plan && view.agent != PLANS {
            let message = "the session does not plan: neither is its permission mode `plan`, nor its agent";
            return Err(refused(message, "not_planning"));
        }
        let plan = self.last_answer(caller, id).await?;
        if plan.is_none() && body.decision != PlanVerdict::Edit {
            return Err(refused("the session has not answered with a plan yet", "no_plan"));
        }
        let goes_on = body.decision != PlanVerdict::Reject;
        let configure = goes_on.then(|| self.leaving(&view, body.permission_mode));
        let prompt = PromptContent::Text(words(&body));
        let (mode, if_version) = (PromptMode::Reject, body.if_version);
        self.prompt(caller, id, Prompt { prompt, mode, configure, turn: None, if_version }).await
    }

    /// The settings in which a plan is carried out.
    fn leaving(&self, view: &SessionView, wanted: Option<PermissionMode>) -> Configure {
        let usual = Some(self.settings().permission_mode).filter(|mode| *mode != PermissionMode::Plan);
        let stays = Some(view.permission_mode).filter(|mode| *mode != PermissionMode::Plan);
        Configure {
            permission_mode: wanted.or(stays).or(usual).or(Some(PermissionMode::Ask)),
            agent: (view.agent == PLANS).then(|| BUILDS.to_owned()),
            ..Configure::default()
        }
    }

    /// What the last turn of a session answered, if it did.
    async fn last_answer(&self, caller: &Caller, id: &SessionId) -> Result<Option<String>, ApiError> {
        let turns = self.turns(caller, id, (None, 1), false).await?;
        let last = turns.items.into_iter().next().filter(|turn| turn.status == TurnStatus::Completed);
        Ok(last.and_then(|turn| turn.result).filter(|text| !text.trim().is_empty()))
    }
}

fn refused(message: &str, why: &str) -> ApiError {
    ApiError::conflict(message).with_details(serde_json::json!({ "why": why }))
}

/// What goes with which decision.
fn check(body: &PlanDecision) -> Result<(), ApiError> {
    let plan = body.plan.as_deref().filter(|plan| !plan.trim().is_empty());
    match (body.decision, plan) {
        (PlanVerdict::Edit, None) => return Err(ApiError::invalid("plan", "the plan as it was edited, not empty")),
        (PlanVerdict::Approve | PlanVerdict::Reject, _) if body.plan.is_some() => {
            return Err(ApiError::invalid("plan", "nothing, unless `decision` is `edit`"));
        }
        (PlanVerdict::Edit | PlanVerdict::Approve | PlanVerdict::Reject, _) => {}
    }
    match body.permission_mode {
        Some(PermissionMode::Plan) => {
            return Err(ApiError::invalid("permissionMode", "`ask`, `accept-edits` or `auto`"));
        }
        Some(_) if body.decision == PlanVerdict::Reject => {
            return Err(ApiError::invalid("permissionMode", "nothing with `reject`, which stays as it is"));
        }
        Some(PermissionMode::Ask | PermissionMode::AcceptEdits | PermissionMode::Auto) | None => {}
    }
    check_text("message", body.message.as_deref().unwrap_or_default(), limit::REASON_BYTES_MAX)?;
    check_text("plan", body.plan.as_deref().unwrap_or_default(), limit::PROMPT_BYTES_MAX / 2)
}

/// What the model is told.
fn words(body: &PlanDecision) -> String {
    let message = body.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let behind = message.map(|message| format!("\n\n{message}")).unwrap_or_default();
    match (body.decision, &body.plan) {
        (PlanVerdict::Edit, Some(plan)) => {
            format!("The plan was changed, and is approved as it stands here. Carry it out.{behind}\n\n{}", plan.trim())
        }
        (PlanVerdict::Edit | PlanVerdict::Approve, _) => {
            format!("The plan is approved. Carry it out as it stands.{behind}")
        }
        (PlanVerdict::Reject, _) => format!("The plan is rejected. Plan anew, and change nothing yet.{behind}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_go_with_a_decision_is_refused_by_name() {
        #[rustfmt::skip]
        let table = [
            (json!({"decision": "approve"}), None),
            (json!({"decision": "approve", "message": "m", "permissionMode": "auto"}), None),
            (json!({"decision": "approve", "plan": "p"}), Some("plan")),
            (json!({"decision": "approve", "permissionMode": "plan"}), Some("permissionMode")),
            (json!({"decision": "edit", "plan": "p"}), None),
            (json!({"decision": "edit"}), Some("plan")),
            (json!({"decision": "edit", "plan": " "}), Some("plan")),
            (json!({"decision": "reject", "message": "m"}), None),
            (json!({"decision": "reject", "permissionMode": "ask"}), Some("permissionMode")),
            (json!({"decision": "reject", "message": "x".repeat(limit::REASON_BYTES_MAX + 1)}), Some("message")),
        ];
        for (body, field) in table {
            let parsed: PlanDecision = serde_json::from_value(body.clone()).expect("a decision");
            let refused =
                check(&parsed).err().and_then(|error| error.0.details).map(|details| details["field"].clone());
            assert_eq!(refused, field.map(serde_json::Value::from), "{body}");
        }
    }

    #[test]
    fn the_model_is_told_what_was_decided() {
        let told = |body: serde_json::Value| words(&serde_json::from_value(body).expect("a decision"));
        assert_eq!(told(json!({"decision": "approve"})), "The plan is approved. Carry it out as it stands.");
        let edited = told(json!({"decision": "edit", "plan": " one ", "message": "mind"}));
        assert_eq!(edited, "The plan was changed, and is approved as it stands here. Carry it out.\n\nmind\n\none");
        assert!(told(json!({"decision": "reject", "message": "too long"})).ends_with("nothing yet.\n\ntoo long"));
    }
}
