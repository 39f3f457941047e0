//! Rules of `createToolPermissionResolver`, judged in Rust.

use std::sync::Arc;

use napi_derive::napi;

use super::error::{parse, to_json};
use super::gate::process_directory;
use super::tool::subject_of;
use crate::config::home_directory;
use crate::permission::{Facts, Floor, Rules};
use crate::protocol::{PermissionConfig, PermissionExplanation, PermissionPolicy, ToolCallRequest, ToolDefinition};
use crate::tool::{unreachable_path, validate};

/// Rules, ready to judge.
#[napi]
pub struct NativeRules {
    pub(super) inner: Arc<Rules>,
}

#[napi]
impl NativeRules {
    /// Reads a configuration.
    #[napi(constructor, catch_unwind)]
    pub fn new(config: String) -> napi::Result<Self> {
        let config: PermissionConfig = parse("toolPermissions", &config)?;
        let floor = Arc::new(Floor::new(Vec::new(), home_directory()));
        Ok(Self { inner: Arc::new(Rules::new(&config).over(floor)) })
    }

    /// Why: a `PermissionExplanation` as JSON.
    #[napi(catch_unwind)]
    pub fn explain(&self, request: String, definition: Option<String>) -> napi::Result<String> {
        let request: ToolCallRequest = parse("request", &request)?;
        let definition: Option<ToolDefinition> = definition.map(|text| parse("definition", &text)).transpose()?;
        let directory = process_directory();
        let facts = Facts::new(&request.name, definition.as_ref(), directory.as_deref());
        let subject = subject_of(&request.arguments);
        let told = self.inner.explain(facts, &subject).describe(&self.inner);
        let bad = definition.as_ref().and_then(|known| validate(known, &request.arguments).err());
        let problem = bad.map(|bad| bad.0).or_else(|| unreachable_path(&subject));
        Ok(to_json(&PermissionExplanation { problem, ..told }))
    }

    /// `allow`, `ask` or `deny`.
    #[napi(catch_unwind)]
    pub fn decide(&self, request: String, definition: Option<String>) -> napi::Result<&'static str> {
        let request: ToolCallRequest = parse("request", &request)?;
        let definition: Option<ToolDefinition> = definition.map(|text| parse("definition", &text)).transpose()?;
        let directory = process_directory();
        let facts = Facts::new(&request.name, definition.as_ref(), directory.as_deref());
        Ok(match self.inner.decide(facts, &subject_of(&request.arguments)).policy {
            PermissionPolicy::Allow => "allow",
            PermissionPolicy::Ask => "ask",
            PermissionPolicy::Deny => "deny",
        })
    }
}
