//! What a server is told about us, and what is done about its requests and notifications.
//!
//! What it asks, [`Answers`] answer. Log messages go into our log, as many as it can take; progress goes to the call that it is about.

#![allow(deprecated, reason = "servers of today ask for models, list roots and log; the next protocol drops all three")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest, CustomResult, ElicitRequestParams,
    ElicitResult, Implementation, ListRootsResult, LoggingLevel, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, ResourceUpdatedNotificationParam,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::News;
use super::answers::Answers;
use crate::base::{limit, text};

/// Of a message that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 2_000;
/// In which time so many messages are logged.
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Our side of one connection.
pub(super) struct Handler {
    answers: Arc<Answers>,
    tools_changed: Arc<Notify>,
    logged: Mutex<Logged>,
}

/// Messages that were logged in the running window.
struct Logged {
    since: Instant,
    count: usize,
}

impl Handler {
    pub(super) fn new(answers: &Arc<Answers>) -> Self {
        let logged = Mutex::new(Logged { since: Instant::now(), count: 0 });
        Self { answers: Arc::clone(answers), tools_changed: Arc::default(), logged }
    }

    /// Is told when the tools are others.
    pub(super) fn tools_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.tools_changed)
    }

    fn tell(&self, news: News) {
        self.answers.place.tell(&self.answers.server, news);
    }

    /// Whether one more message is logged; tells of those that were not.
    fn may_log(&self) -> bool {
        let mut logged = self.logged.lock();
        if logged.since.elapsed() >= LOG_WINDOW {
            let over = logged.count.saturating_sub(limit::MCP_LOG_MESSAGES_MAX);
            if over > 0 {
                tracing::warn!(
                    server = self.answers.server,
                    over,
                    "an MCP server logs too much; messages were passed over"
                );
            }
            *logged = Logged { since: Instant::now(), count: 0 };
        }
        logged.count += 1;
        logged.count <= limit::MCP_LOG_MESSAGES_MAX
    }

    fn log(&self, message: &LoggingMessageNotificationParam) {
        let said = match &message.data {
            Value::String(said) => said.clone(),
            other => other.to_string(),
        };
        let hidden = self.answers.secrets.hide(&said);
        let said = text::head(&hidden, LOGGED_BYTES_MAX).escape_debug().to_string();
        let (server, logger) = (self.answers.server.as_str(), message.logger.as_deref().unwrap_or_default());
        let logger = text::head(logger, 100).escape_debug().to_string();
        match message.level {
            LoggingLevel::Debug => tracing::debug!(server, logger, said, "an MCP server says"),
            LoggingLevel::Info | LoggingLevel::Notice => tracing::info!(server, logger, said, "an MCP server says"),
            LoggingLevel::Warning => tracing::warn!(server, logger, said, "an MCP server says"),
            _ => tracing::error!(server, logger, said, "an MCP server says"),
        }
    }
}

/// The level from which on our log takes messages.
pub(super) fn own_level() -> LoggingLevel {
    let table = [
        (tracing::Level::DEBUG, LoggingLevel::Debug),
        (tracing::Level::INFO, LoggingLevel::Info),
        (tracing::Level::WARN, LoggingLevel::Warning),
    ];
    let on = |level: &tracing::Level| tracing::level_filters::LevelFilter::current() >= *level;
    table.into_iter().find(|(level, _)| on(level)).map_or(LoggingLevel::Error, |(_, level)| level)
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

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tell(News::ResourcesChanged);
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tell(News::PromptsChanged);
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.tell(News::ResourceUpdated { uri: params.uri });
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let ProgressNotificationParam { progress_token, progress, total, message, .. } = params;
        let message = message.map(|message| self.answers.secrets.hidden(message));
        self.answers.calls.goes_on(&progress_token, super::Progress { progress, total, message });
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        if !self.may_log() {
            return;
        }
        self.log(&params);
        let level = serde_json::to_value(params.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        let data = self.answers.secrets.hidden_in(params.data);
        self.tell(News::Log { level: level.unwrap_or_default(), logger: params.logger, data });
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
