//! Rules of `createToolPermissionResolver`, judged in Rust.

use std::sync::Arc;

use napi_derive::napi;

use super::error::{parse, to_json};
use super::gate::process_directory;
use super::registry::NativeRegistry;
use crate::app::{Judged, Namesakes};
use crate::config::home_directory;
use crate::permission::{Floor, Rules};
use crate::protocol::{PermissionConfig, PermissionPolicy, ToolCallRequest, ToolDefinition};

/// Rules, ready to judge.
#[napi]
pub struct NativeRules {
    pub(super) inner: Arc<Rules>,
    namesakes: Namesakes,
}

#[napi]
impl NativeRules {
    /// Reads a configuration.
    #[napi(constructor, catch_unwind)]
    pub fn new(config: String) -> napi::Result<Self> {
        let config: PermissionConfig = parse("toolPermissions", &config)?;
        let floor = Arc::new(Floor::new(Vec::new(), home_directory()));
        Ok(Self { inner: Arc::new(Rules::new(&config).over(floor)), namesakes: Namesakes::default() })
    }

    /// Why: a `PermissionExplanation` as JSON. `registry` is the one that the definition is of, if any.
    #[napi(catch_unwind)]
    pub fn explain(
        &self,
        request: String,
        definition: Option<String>,
        registry: Option<&NativeRegistry>,
    ) -> napi::Result<String> {
        Ok(to_json(&self.judged(&request, definition, registry)?.explain(&self.inner)))
    }

    /// `allow`, `ask` or `deny`.
    #[napi(catch_unwind)]
    pub fn decide(
        &self,
        request: String,
        definition: Option<String>,
        registry: Option<&NativeRegistry>,
    ) -> napi::Result<&'static str> {
        Ok(match self.judged(&request, definition, registry)?.decide(&self.inner) {
            PermissionPolicy::Allow => "allow",
            PermissionPolicy::Ask => "ask",
            PermissionPolicy::Deny => "deny",
        })
    }
}

impl NativeRules {
    fn judged(
        &self,
        request: &str,
        definition: Option<String>,
        registry: Option<&NativeRegistry>,
    ) -> napi::Result<Judged> {
        let ToolCallRequest { name, arguments, .. } = parse("request", request)?;
        let definition: Option<ToolDefinition> = definition.map(|text| parse("definition", &text)).transpose()?;
        Ok(match registry.and_then(|registry| registry.known(&name)) {
            Some((tool, place)) => Judged::by_tool(tool.as_ref(), arguments, place),
            None => Judged::by_name((&name, arguments), definition, (&self.namesakes, process_directory())),
        })
    }
}
