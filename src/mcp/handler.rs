//! What a server is told about us, and what is done about its requests and notifications.
//!
//! Offered are roots, and where there is somebody to ask, forms and answers of models: sessions have them, and programs that say so.
//! Log messages go into our log, as many as it can take; progress goes to the call that it is about.

#![allow(deprecated, reason = "servers of today ask for models, list roots and log; the next protocol drops all three")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, FormElicitationCapability,
    Implementation, ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    ProtocolVersion, ResourceUpdatedNotificationParam, Root, RootsCapabilities, SamplingCapability,
    UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::elicit::Calls;
use super::{News, Place, Program};
use crate::base::secrets::Secrets;
use crate::base::{http, limit, text};
use crate::config::McpServer;

/// Of a message that is logged, in bytes.
const LOGGED_BYTES_MAX: usize = 2_000;
/// In which time so many messages are logged.
const LOG_WINDOW: Duration = Duration::from_secs(10);
/// What the protocol says of a request that a person refuses.
const REFUSED_BY_USER: ErrorCode = ErrorCode(-1);

/// Our side of one connection.
pub(super) struct Handler {
    server: String,
    /// Never repeated when it says them.
    secrets: Secrets,
    place: Arc<Place>,
    tools_changed: Arc<Notify>,
    calls: Arc<Calls>,
    logged: Mutex<Logged>,
}

/// Messages that were logged in the running window.
struct Logged {
    since: Instant,
    count: usize,
}

impl Handler {
    pub(super) fn new(
        spec: &McpServer,
        (place, calls): (&Arc<Place>, &Arc<Calls>),
        tools_changed: Arc<Notify>,
    ) -> Self {
        Self {
            server: spec.name.clone(),
            secrets: spec.secrets(),
            place: Arc::clone(place),
            tools_changed,
            calls: Arc::clone(calls),
            logged: Mutex::new(Logged { since: Instant::now(), count: 0 }),
        }
    }

    /// Is told when the tools are others.
    pub(super) fn tools_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.tools_changed)
    }

    fn capabilities(&self) -> ClientCapabilities {
        let program = self.place.program.as_ref();
        let mut capabilities = ClientCapabilities::default();
        if self.place.has_clients || program.is_some_and(|program| program.elicits) {
            let mut ways = ElicitationCapability::new().with_form(FormElicitationCapability::new());
            // A program was told of forms alone.
            ways.url = program.is_none().then(UrlElicitationCapability::new);
            capabilities.elicitation = Some(ways);
        }
        if self.place.has_clients || program.is_some_and(|program| program.samples) {
            capabilities.sampling = Some(SamplingCapability::default());
        }
        let mut roots = RootsCapabilities::default();
        roots.list_changed = Some(true);
        capabilities.roots = Some(roots);
        capabilities
    }

    fn tell(&self, news: News) {
        self.place.tell(&self.server, news);
    }

    /// Puts a request to the program, in the protocol's words.
    async fn put<T: DeserializeOwned>(
        &self,
        program: &Program,
        (method, params): (&str, impl Serialize),
        context: &RequestContext<RoleClient>,
    ) -> Result<T, ErrorData> {
        let internal = |error: String| ErrorData::internal_error(error, None);
        let params = serde_json::to_value(params).map_err(|error| internal(error.to_string()))?;
        let params = self.secrets.hidden_in(params);
        let input = json!({ "server": self.server, "method": method, "params": params });
        let answer = (program.answer)(input, context.ct.clone()).await;
        let answer = answer.map_err(|why| ErrorData::new(REFUSED_BY_USER, why, None))?;
        serde_json::from_value(answer).map_err(|error| internal(format!("the program's answer is none: {error}")))
    }

    async fn elicit(
        &self,
        (message, schema): (&str, &Value),
        context: &RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let Some(program) = self.place.program.as_ref().filter(|program| program.elicits) {
            let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
            let result = self.put(program, ("elicitation/create", params), context).await?;
            return Ok(with_defaults(result, schema));
        }
        if !self.place.has_clients {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let (message, schema) = (self.secrets.hide(message), self.secrets.hidden_in(schema.clone()));
        self.calls.elicit(&self.server, (&message, &schema), (&context.extensions, &context.ct)).await
    }

    /// Has a person asked whether a page may be opened, and says whether that is so. Opens nothing: the person does.
    async fn send_to(
        &self,
        (message, url): (&str, &str),
        context: &RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if self.place.program.is_some() || !self.place.has_clients {
            return Err(ErrorData::invalid_params("mode: expected `form`", None));
        }
        if http::check_url(url).is_err() {
            return Err(ErrorData::invalid_params("url: expected an http or https address", None));
        }
        let message = format!("{message}\n\nIt wants this page opened in a browser: {url}");
        let nothing = json!({ "type": "object", "properties": {} });
        let mut result = self.elicit((&message, &nothing), context).await?;
        result.content = None;
        Ok(result)
    }

    /// Whether one more message is logged; tells of those that were not.
    fn may_log(&self) -> bool {
        let mut logged = self.logged.lock();
        if logged.since.elapsed() >= LOG_WINDOW {
            let over = logged.count.saturating_sub(limit::MCP_LOG_MESSAGES_MAX);
            if over > 0 {
                tracing::warn!(server = self.server, over, "an MCP server logs too much; messages were passed over");
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
        let hidden = self.secrets.hide(&said);
        let said = text::head(&hidden, LOGGED_BYTES_MAX).escape_debug().to_string();
        let (server, logger) = (self.server.as_str(), message.logger.as_deref().unwrap_or_default());
        let logger = text::head(logger, 100).escape_debug().to_string();
        match message.level {
            LoggingLevel::Debug => tracing::debug!(server, logger, said, "an MCP server says"),
            LoggingLevel::Info | LoggingLevel::Notice => tracing::info!(server, logger, said, "an MCP server says"),
            LoggingLevel::Warning => tracing::warn!(server, logger, said, "an MCP server says"),
            _ => tracing::error!(server, logger, said, "an MCP server says"),
        }
    }
}

/// A form that was filled in, with the defaults of what was left out.
fn with_defaults(mut result: ElicitResult, schema: &Value) -> ElicitResult {
    let Some(properties) = schema["properties"].as_object().filter(|_| result.action == ElicitationAction::Accept)
    else {
        return result;
    };
    let mut content = match result.content.take() {
        Some(Value::Object(content)) => content,
        None => serde_json::Map::new(),
        other => {
            result.content = other;
            return result;
        }
    };
    for (name, property) in properties {
        if let Some(default) = property.get("default").filter(|_| !content.contains_key(name)) {
            content.insert(name.clone(), default.clone());
        }
    }
    result.content = Some(Value::Object(content));
    result
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

/// A directory as the protocol writes it.
pub(super) fn root(directory: &Path) -> Root {
    use std::os::unix::ffi::OsStrExt as _;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'.' | b'_' | b'~');
    let spelt = |&b: &u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    let path: String = directory.as_os_str().as_bytes().iter().map(spelt).collect();
    let root = Root::new(format!("file://{path}"));
    match directory.file_name() {
        Some(name) => root.with_name(name.to_string_lossy()),
        None => root,
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let identity = &self.place.identity;
        let own = Implementation::new(identity.name.clone(), identity.version.clone());
        // The newest that begins with `initialize`, which every server of today answers.
        ClientConfig::new(self.capabilities(), own).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
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
        let message = message.map(|message| self.secrets.hidden(message));
        self.calls.goes_on(&progress_token, super::Progress { progress, total, message });
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        if !self.may_log() {
            return;
        }
        self.log(&params);
        let level = serde_json::to_value(params.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        let data = self.secrets.hidden_in(params.data);
        self.tell(News::Log { level: level.unwrap_or_default(), logger: params.logger, data });
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.place.roots.borrow().iter().map(|directory| root(directory)).collect()))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if params.tools.is_some() || params.tool_choice.is_some() {
            return Err(ErrorData::invalid_params("tools: expected none, as no tools are offered in sampling", None));
        }
        match self.place.program.as_ref().filter(|program| program.samples) {
            Some(program) => self.put(program, ("sampling/createMessage", params), &context).await,
            None if self.place.has_clients => {
                self.calls.sample(&self.server, (params, &self.secrets), (&context.extensions, &context.ct)).await
            }
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "sampling/createMessage", None)),
        }
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let (message, requested_schema) = match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => (message, requested_schema),
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                return self.send_to((&message, &url), &context).await;
            }
            _ => return Err(ErrorData::invalid_params("mode: expected `form` or `url`", None)),
        };
        let schema = serde_json::to_value(requested_schema)
            .map_err(|error| ErrorData::invalid_params(format!("requestedSchema: {error}"), None))?;
        self.elicit((&message, &schema), &context).await
    }

    /// What the protocol's own types do not take: a form all the same, perhaps.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method == "sampling/createMessage" {
            // Of what kind its content is, the protocol does not know.
            return Err(ErrorData::invalid_params("messages: expected texts and images", None));
        }
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let params = request.params.unwrap_or_default();
        if params["mode"].as_str().is_some_and(|mode| mode != "form") {
            return Err(ErrorData::invalid_params("mode: expected `form`", None));
        }
        let Some(message) = params["message"].as_str() else {
            return Err(ErrorData::invalid_params("message: expected a string", None));
        };
        let result = self.elicit((message, &params["requestedSchema"]), &context).await?;
        serde_json::to_value(result).map(CustomResult).map_err(|e| ErrorData::internal_error(e.to_string(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_root_by_its_address() {
        let table = [
            ("/w", "file:///w", Some("w")),
            ("/a b/ü%", "file:///a%20b/%C3%BC%25", Some("ü%")),
            ("/", "file:///", None),
        ];
        for (directory, uri, name) in table {
            let made = root(Path::new(directory));
            assert_eq!((made.uri.as_str(), made.name.as_deref()), (uri, name));
        }
    }
}
