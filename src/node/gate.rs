//! Permission for the calls of a registry: rules are judged here, people and foreign resolvers are asked in JavaScript.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure};
use super::error::to_json;
use crate::agent::{Asker, Gate, GateQuestion};
use crate::base::BoxFuture;
use crate::permission::{Facts, Rules};
use crate::protocol::{PermissionPolicy, PermissionVerdict, ToolCallRequest, ToolDefinition, VerdictSource};
use crate::tool::Veil;

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
    /// Where the file tools work: what relative patterns are relative to. None: the process's directory.
    pub(super) working_directory: Arc<Mutex<Option<PathBuf>>>,
}

/// The process's directory, without links. None when it is gone.
pub(super) fn process_directory() -> Option<PathBuf> {
    Path::new(".").canonicalize().ok()
}

/// Without a reason: a registry's refusal is exactly `Permission denied for tool: "X"` (typescript-api.md §2).
fn verdict(allowed: bool, by: VerdictSource) -> PermissionVerdict {
    PermissionVerdict { allowed, by, reason: String::new() }
}

impl RegistryGate {
    async fn decide(&self, question: GateQuestion<'_>, cancel: &CancellationToken) -> PermissionVerdict {
        if self.foreign {
            let Some(preview) = previewed(question, cancel).await else { return verdict(false, VerdictSource::Abort) };
            let input = json!({ "request": question.request, "definition": question.definition, "preview": preview });
            return answer(&self.bridge, self.target, "check", to_json(&input), cancel).await;
        }
        let policy = self.rules.as_ref().map_or(PermissionPolicy::Allow, |rules| {
            let directory = self.working_directory.lock().clone().or_else(process_directory);
            let named =
                Facts::new(&question.request.name, question.definition, directory.as_deref()).at(question.place);
            rules.decide(named.like(question.like), question.subject).policy
        });
        match policy {
            PermissionPolicy::Allow if !question.insists => verdict(true, VerdictSource::Policy),
            PermissionPolicy::Deny => verdict(false, VerdictSource::Policy),
            PermissionPolicy::Allow | PermissionPolicy::Ask if question.unfit => verdict(true, VerdictSource::Policy),
            PermissionPolicy::Allow | PermissionPolicy::Ask if self.asks => {
                let Some(preview) = previewed(question, cancel).await else {
                    return verdict(false, VerdictSource::Abort);
                };
                let input = json!({ "request": question.request, "preview": preview });
                answer(&self.bridge, self.target, "ask", to_json(&input), cancel).await
            }
            PermissionPolicy::Allow | PermissionPolicy::Ask => verdict(false, VerdictSource::NoClient),
        }
    }
}

/// What the call would do. None: it was aborted meanwhile.
async fn previewed(question: GateQuestion<'_>, cancel: &CancellationToken) -> Option<Option<Value>> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        preview = question.preview.compute(&question.request.arguments) => Some(preview),
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
        Ok(text) => verdict(text == "true", VerdictSource::Program),
        Err(CallFailure::Threw(_) | CallFailure::BadInput(_)) => verdict(false, VerdictSource::Program),
        Err(CallFailure::Aborted) => verdict(false, VerdictSource::Abort),
    }
}

impl Gate for RegistryGate {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        if self.rules.is_none() && !self.foreign && !question.insists {
            // Nobody has a say.
            return Box::pin(std::future::ready(verdict(true, VerdictSource::Policy)));
        }
        Box::pin(self.decide(question, cancel))
    }

    fn veil(&self, tool: &ToolDefinition) -> Option<Veil> {
        // First of all: asking the system where we are is dearer than the rest of a call.
        let rules = self.rules.as_ref()?;
        let directory = self.working_directory.lock().clone().or_else(process_directory);
        let hidden = rules.hidden(Facts::new(&tool.name, Some(tool), directory.as_deref()), true)?;
        Some(Veil::new(move |path| hidden.names(path)))
    }
}

/// `onPermissionRequest` of a server.
pub(super) struct JsAsker {
    pub(super) bridge: Arc<Bridge>,
    pub(super) target: u32,
}

impl Asker for JsAsker {
    fn ask<'a>(
        &'a self,
        request: &'a ToolCallRequest,
        preview: Option<&'a Value>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, bool> {
        let input = to_json(&json!({ "request": request, "preview": preview }));
        Box::pin(async move { answer(&self.bridge, self.target, "ask", input, cancel).await.allowed })
    }
}
