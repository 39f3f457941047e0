//! Permission for the calls of a registry: rules are judged here, people and foreign resolvers are asked in JavaScript.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure};
use super::error::to_json;
use crate::agent::{Asker, Gate, GateQuestion};
use crate::base::BoxFuture;
use crate::permission::Rules;
use crate::protocol::{PermissionPolicy, PermissionVerdict, ToolCallRequest, VerdictSource};

/// The gate of one registry.
pub(super) struct RegistryGate {
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
    /// Rules of `createToolPermissionResolver`.
    pub(super) rules: Option<Arc<Rules>>,
    /// A resolver of the caller's own.
    pub(super) foreign: bool,
    /// Whether somebody answers an `ask`.
    pub(super) asks: bool,
}

fn verdict(allowed: bool, by: VerdictSource, reason: &str) -> PermissionVerdict {
    PermissionVerdict { allowed, by, reason: reason.to_owned() }
}

impl RegistryGate {
    async fn decide(&self, question: GateQuestion<'_>, cancel: &CancellationToken) -> PermissionVerdict {
        if self.foreign {
            let input = json!({ "request": question.request, "definition": question.definition });
            return answer(&self.bridge, self.target, "check", to_json(&input), cancel).await;
        }
        let Some(rules) = &self.rules else { return verdict(true, VerdictSource::Policy, "") };
        match rules.decide(&question.request.name, question.definition, question.subject) {
            PermissionPolicy::Allow => verdict(true, VerdictSource::Policy, ""),
            PermissionPolicy::Deny => verdict(false, VerdictSource::Policy, "denied by a rule"),
            PermissionPolicy::Ask if self.asks => {
                let input = json!({ "request": question.request });
                answer(&self.bridge, self.target, "ask", to_json(&input), cancel).await
            }
            PermissionPolicy::Ask => verdict(false, VerdictSource::NoClient, "there is nobody to ask"),
        }
    }
}

/// Asks JavaScript for a yes; everything else is no.
async fn answer(
    bridge: &Bridge,
    target: u32,
    operation: &str,
    input: String,
    cancel: &CancellationToken,
) -> PermissionVerdict {
    match bridge.call(target, operation, input, cancel).await {
        Ok(text) => verdict(text == "true", VerdictSource::Program, ""),
        Err(CallFailure::Threw(why) | CallFailure::BadInput(why)) => verdict(false, VerdictSource::Program, &why),
        Err(CallFailure::Aborted) => verdict(false, VerdictSource::Abort, "aborted"),
    }
}

impl Gate for RegistryGate {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(self.decide(question, cancel))
    }
}

/// `onPermissionRequest` of a server.
pub(super) struct JsAsker {
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
}

impl Asker for JsAsker {
    fn ask<'a>(&'a self, request: &'a ToolCallRequest, cancel: &'a CancellationToken) -> BoxFuture<'a, bool> {
        let input = to_json(&json!({ "request": request }));
        Box::pin(async move { answer(&self.bridge, self.target, "ask", input, cancel).await.allowed })
    }
}
