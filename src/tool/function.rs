//! A tool that is a function: the short way to one of a program's own.

use std::future::Future;
use std::sync::Arc;

use super::{Arguments, Tool, ToolContext, ToolError, ToolOutput};
use crate::base::BoxFuture;
use crate::protocol::ToolDefinition;

/// A definition and what it runs.
struct Function<F> {
    definition: ToolDefinition,
    run: F,
}

/// A tool that runs `run`, which gets arguments that fit the definition.
///
/// A tool whose calls are to be judged by what they touch (a path, a command) implements [`Tool`] itself, with
/// [`Tool::subject`].
pub fn function<F, R>(definition: ToolDefinition, run: F) -> Arc<dyn Tool>
where
    F: Fn(Arguments, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    Arc::new(Function { definition, run })
}

impl<F, R> Tool for Function<F>
where
    F: Fn(Arguments, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin((self.run)(arguments, context.clone()))
    }
}
