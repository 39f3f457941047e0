//! A tool of a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ServerResult};

use super::ask::{AskError, ask};
use super::content::{lenient_outcome, outcome};
use super::link::Link;
use super::listing::Listed;
use super::{OnProgress, Progress};
use crate::base::text;
use crate::config::McpTransport;
use crate::permission::Subject;
use crate::protocol::{EventBody, ToolDefinition};
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput, argument_subject};

/// Between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Of what a server says of its progress, in bytes.
const PROGRESS_BYTES_MAX: usize = 500;

/// Asks a server for what a call wants. Its progress is the call's: it is shown, and the call may take its time.
pub(super) async fn ask_for(
    link: &Link,
    request: ClientRequest,
    context: &ToolContext,
) -> Result<ServerResult, ToolError> {
    let told = on_progress(context, link.tool_name(&request));
    let underway = link.calls().begin(&context.clients, Some(told));
    match ask(link, (request, Some(&underway)), &context.cancel).await {
        Ok(answer) => Ok(answer),
        Err(AskError::Aborted) => Err(ToolError::Aborted),
        Err(AskError::Refused(error)) if error.code == ErrorCode::INVALID_PARAMS => {
            Err(ToolError::BadArguments(link.refusal(&error)))
        }
        Err(AskError::Refused(error)) => Err(ToolError::Failed(link.refusal(&error))),
        Err(AskError::NotConnected(why) | AskError::Broken(why) | AskError::NeedsLogin(why)) => {
            Err(ToolError::Failed(why))
        }
    }
}

/// Shows progress as output of the call, a few lines a second.
fn on_progress(context: &ToolContext, name: String) -> OnProgress {
    let (events, call_id) = (context.events.clone(), context.call_id.clone());
    let shown: Mutex<Option<Instant>> = Mutex::default();
    Arc::new(move |progress: Progress| {
        events.goes_on();
        let mut shown = shown.lock();
        let whole = progress.total.is_some_and(|total| progress.progress >= total);
        let often = shown.is_some_and(|at| at.elapsed() < PROGRESS_INTERVAL);
        if (often && !whole) || !events.are_wanted() {
            return;
        }
        *shown = Some(Instant::now());
        drop(shown);
        let total = progress.total.map_or_else(String::new, |total| format!("/{total}"));
        let words = progress
            .message
            .as_deref()
            .map_or_else(String::new, |words| format!(" {}", text::head(words, PROGRESS_BYTES_MAX)));
        let text = format!("[progress {}{total}]{words}\n", progress.progress);
        events.publish(EventBody::ToolCallOutput {
            call_id: call_id.clone(),
            name: name.clone(),
            text,
            skipped_bytes: 0,
        });
    })
}

/// A tool of a server. The time-out of a call is the registry's: it arrives here as a cancellation.
pub(super) struct McpTool {
    listed: Listed,
    link: Arc<Link>,
}

impl McpTool {
    pub(super) fn new(listed: Listed, link: Arc<Link>) -> Self {
        Self { listed, link }
    }

    async fn call(&self, arguments: Arguments, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let params = CallToolRequestParams::new(self.listed.name.clone()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.understand(ask_for(&self.link, request, context).await?)
    }

    /// What it answered. A server that talks about what it was sent tells no secret to the model by that.
    fn understand(&self, answer: ServerResult) -> Result<ToolOutput, ToolError> {
        let output = self.listed.output.as_deref();
        let understood = match answer {
            ServerResult::CallToolResult(answer) => Some(outcome(answer, output)),
            ServerResult::EmptyResult(_) => Some(Ok(ToolOutput::default())),
            ServerResult::CustomResult(answer) => lenient_outcome(answer.0, output),
            _ => None,
        };
        let strange = || Err(ToolError::Failed(self.link.sentence("answered with what is no result of a call")));
        match understood.unwrap_or_else(strange) {
            Ok(ToolOutput { text, parts, details }) => {
                let details = details.map(|details| self.link.told_in(details));
                Ok(ToolOutput { text: self.link.told(text), parts, details })
            }
            Err(ToolError::Failed(said)) => Err(ToolError::Failed(self.link.told(said))),
            Err(error) => Err(error),
        }
    }
}

impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.listed.definition
    }

    /// By its arguments, as for any tool that only they describe. A path is one of the server's: it resolves from
    /// where its program runs, and that of a server elsewhere not at all, so that no pattern allows it.
    fn subject(&self, arguments: &Arguments) -> Subject {
        argument_subject(arguments, |given| match &self.link.spec().transport {
            McpTransport::Stdio { cwd, .. } => {
                let directory = self.link.directory();
                let base = cwd.as_ref().map_or_else(|| directory.to_owned(), |cwd| directory.join(cwd));
                Some(base.join(given))
            }
            McpTransport::Http { .. } => None,
        })
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.call(arguments, context))
    }
}
