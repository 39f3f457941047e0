//! What tests and benches need of the addon and no program does: panics, and a tool that does nothing.
//! The package does not export it.

use std::panic::panic_any;
use std::sync::Arc;

use napi_derive::napi;

use super::registry::NativeRegistry;
use crate::protocol::ToolDefinition;
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Nothing,
    Panic,
}

struct Probe {
    definition: ToolDefinition,
    act: Act,
}

impl Probe {
    fn tool(name: &str, act: Act) -> Arc<dyn Tool> {
        let definition = ToolDefinition {
            name: name.to_owned(),
            description: String::from("For tests."),
            parameters: serde_json::Map::new(),
            category: None,
            annotations: None,
            timeout_ms: None,
            max_output_chars: None,
        };
        Arc::new(Self { definition, act })
    }
}

impl Tool for Probe {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn run<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            match self.act {
                Act::Nothing => Ok(ToolOutput::default()),
                Act::Panic => panic_any("a probe panics"),
            }
        })
    }
}

/// Registers `probe_noop`, which does nothing, and `probe_panic`.
#[napi(catch_unwind)]
pub fn probe_register(registry: &NativeRegistry) -> napi::Result<String> {
    registry.add_all(vec![Probe::tool("probe_noop", Act::Nothing), Probe::tool("probe_panic", Act::Panic)])
}

/// Panics in a plain export.
#[napi(catch_unwind)]
pub fn probe_panic_sync() {
    panic_any("a probe panics");
}

/// Panics in a promise.
#[napi]
pub async fn probe_panic_async() {
    tokio::task::yield_now().await;
    panic_any("a probe panics");
}
