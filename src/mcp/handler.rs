//! What a server is told about us, and what is done about its requests.
//!
//! What it asks, [`Answers`] answer. What it tells is told where it passes in its order (`order`); here is only what a list is made anew for.

#![allow(deprecated, reason = "servers of today ask for models, list roots and log; the next protocol drops all three")]

use std::sync::Arc;

use rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest, CustomResult, ElicitRequestParams,
    ElicitResult, Implementation, ListRootsResult, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::Notify;

use super::answers::Answers;

/// Our side of one connection.
pub(super) struct Handler {
    answers: Arc<Answers>,
    tools_changed: Arc<Notify>,
}

impl Handler {
    pub(super) fn new(answers: &Arc<Answers>) -> Self {
        Self { answers: Arc::clone(answers), tools_changed: Arc::default() }
    }

    /// Is told when the tools are others.
    pub(super) fn tools_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.tools_changed)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let identity = &self.answers.place.identity;
        let own = Implementation::new(identity.name.clone(), identity.version.clone());
        // The newest that begins with `initialize`; what comes after it is tried before.
        ClientConfig::new(self.answers.capabilities(), own)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(self.answers.roots())
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.answers.sampled(params, (&context.extensions, &context.ct)).await
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.answers.elicited(request, (&context.extensions, &context.ct)).await
    }

    /// What the protocol's own types do not take.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let asked = (request.method.as_str(), request.params.unwrap_or_default());
        self.answers.answer(asked, (&context.extensions, &context.ct)).await.map(CustomResult)
    }
}
