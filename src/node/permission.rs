//! Rules of `createToolPermissionResolver`, judged in Rust.

use std::sync::Arc;

use napi_derive::napi;

use super::error::parse;
use super::gate::process_directory;
use super::tool::subject_of;
use crate::permission::{Facts, Rules};
use crate::protocol::{PermissionConfig, PermissionPolicy, ToolCallRequest, ToolDefinition};

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
        Ok(Self { inner: Arc::new(Rules::new(&config)) })
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
