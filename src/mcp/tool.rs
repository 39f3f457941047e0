//! A tool of a server.

use std::sync::Arc;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ErrorCode, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{Peer, RoleClient};
use tokio_util::sync::CancellationToken;

use super::content::{lenient_outcome, outcome};
use super::explain::{refusal, request_failed};
use super::link::Link;
use super::listing::Listed;
use crate::config::McpTransport;
use crate::permission::Subject;
use crate::protocol::ToolDefinition;
use crate::tool::{Arguments, BoxFuture, Tool, ToolContext, ToolError, ToolOutput, argument_subject};

/// What a server is told about a call that is not waited for any more.
const CANCEL_REASON: &str = "the call was aborted";

/// A tool of a server. The time-out of a call is the registry's: it arrives here as a cancellation.
pub(super) struct McpTool {
    listed: Listed,
    link: Arc<Link>,
}

impl McpTool {
    pub(super) fn new(listed: Listed, link: Arc<Link>) -> Self {
        Self { listed, link }
    }

    async fn call(&self, arguments: Arguments, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let until_cancelled = |_: ()| ToolError::Aborted;
        let peer = tokio::select! {
            biased;
            gone = cancel.cancelled() => return Err(until_cancelled(gone)),
            peer = self.link.ready() => peer.map_err(ToolError::Failed)?,
        };
        let sent = tokio::select! {
            biased;
            gone = cancel.cancelled() => return Err(until_cancelled(gone)),
            sent = self.send(&peer, arguments) => sent,
        };
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.failure(error).await),
        };
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer.unwrap_or(Err(ServiceError::TransportClosed)),
            () = cancel.cancelled() => {
                // Told, and not waited for: what is gone needs no telling.
                let _ = handle.cancel(Some(CANCEL_REASON.to_owned())).await;
                return Err(ToolError::Aborted);
            }
        };
        match answer {
            Ok(answer) => self.understand(answer),
            Err(error) => Err(self.failure(error).await),
        }
    }

    async fn send(
        &self,
        peer: &Peer<RoleClient>,
        arguments: Arguments,
    ) -> Result<RequestHandle<RoleClient>, ServiceError> {
        let params = CallToolRequestParams::new(self.listed.name.clone()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await
    }

    fn understand(&self, answer: ServerResult) -> Result<ToolOutput, ToolError> {
        let understood = match answer {
            ServerResult::CallToolResult(answer) => Some(outcome(answer)),
            ServerResult::EmptyResult(_) => Some(Ok(ToolOutput::default())),
            ServerResult::CustomResult(answer) => lenient_outcome(answer.0),
            _ => None,
        };
        let strange = || Err(ToolError::Failed(self.link.sentence("answered with what is no result of a call")));
        understood.unwrap_or_else(strange)
    }

    async fn failure(&self, error: ServiceError) -> ToolError {
        match &error {
            ServiceError::McpError(refused) if refused.code == ErrorCode::INVALID_PARAMS => {
                ToolError::BadArguments(refusal(refused))
            }
            ServiceError::McpError(refused) => ToolError::Failed(refusal(refused)),
            ServiceError::TransportClosed => ToolError::Failed(self.link.why_it_ended().await),
            ServiceError::TransportSend(_) => {
                self.link.doubt();
                let url = match &self.link.spec().transport {
                    McpTransport::Http { url, .. } => Some(url.as_str()),
                    McpTransport::Stdio { .. } => None,
                };
                let why = request_failed(&error, url);
                ToolError::Failed(self.link.sentence(&format!("could not be asked: {why}")))
            }
            other => ToolError::Failed(self.link.sentence(&format!("failed: {}", request_failed(other, None)))),
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
        Box::pin(self.call(arguments, &context.cancel))
    }
}
