//! What is said to a server and told by it, in its order: who waits for a request is known before the request is written, and what a
//! server tells is told on before what it says next is read.
//!
//! The protocol's own task gives each notification to a task of its own, and an answer to whoever waits for it: an answer overtakes the
//! progress that was told before it, and progress may come before its token is known here. So both are seen to where messages pass
//! one by one. What belongs to a subscription, and what the protocol's caches have to know, is passed on all the same.

#![allow(deprecated, reason = "servers of today log; the next protocol drops it")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, GetExtensions as _, GetMeta as _, JsonRpcMessage, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::time::Instant;

use super::answers::Answers;
use super::elicit::Mark;
use super::{News, Progress};
use crate::base::{limit, text};

/// Of a message that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 2_000;
/// In which time so many messages are logged.
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// A transport whose messages are seen as they pass.
pub(super) struct InOrder<T> {
    inner: T,
    answers: Arc<Answers>,
    logged: Logged,
}

/// Messages that were logged in the running window.
struct Logged {
    since: Instant,
    count: usize,
}

impl<T> InOrder<T> {
    pub(super) fn new(inner: T, answers: &Arc<Answers>) -> Self {
        let logged = Logged { since: Instant::now(), count: 0 };
        Self { inner, answers: Arc::clone(answers), logged }
    }

    /// Tells what a server tells. False: it has to go on to the protocol's own task.
    fn hear(&mut self, notification: &ServerNotification) -> bool {
        if notification.get_meta().subscription_id().is_some() {
            return false;
        }
        let news = match notification {
            ServerNotification::ProgressNotification(told) => {
                self.goes_on(&told.params);
                return true;
            }
            ServerNotification::LoggingMessageNotification(told) => {
                self.says(&told.params);
                return true;
            }
            ServerNotification::ResourceListChangedNotification(_) => News::ResourcesChanged,
            ServerNotification::PromptListChangedNotification(_) => News::PromptsChanged,
            ServerNotification::ResourceUpdatedNotification(updated) => {
                News::ResourceUpdated { uri: updated.params.uri.clone() }
            }
            _ => return false,
        };
        self.answers.place.tell(&self.answers.server, news);
        false
    }

    fn goes_on(&self, told: &ProgressNotificationParam) {
        let message = told.message.clone().map(|message| self.answers.secrets.hidden(message));
        let progress = Progress { progress: told.progress, total: told.total, message };
        self.answers.calls.goes_on(&told.progress_token, progress);
    }

    fn says(&mut self, message: &LoggingMessageNotificationParam) {
        if !self.may_log() {
            return;
        }
        self.log(message);
        let level = serde_json::to_value(message.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        let data = self.answers.secrets.hidden_in(message.data.clone());
        let news = News::Log { level: level.unwrap_or_default(), logger: message.logger.clone(), data };
        self.answers.place.tell(&self.answers.server, news);
    }

    /// Whether one more message is logged; tells of those that were not.
    fn may_log(&mut self) -> bool {
        let logged = &mut self.logged;
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

impl<T: Transport<RoleClient>> Transport<RoleClient> for InOrder<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(sent) = &message
            && let Some(mark) = sent.request.extensions().get::<Mark>()
        {
            mark.sent(&sent.id, sent.request.get_meta().get_progress_token());
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = self.inner.receive().await?;
            if !matches!(&message, JsonRpcMessage::Notification(told) if self.hear(&told.notification)) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
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
