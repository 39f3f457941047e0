//! What a server that asks is answered: where it is to work, what a model says, what a person fills in.
//!
//! It may ask over a connection, or end a request with its questions (2026-07-28); the answers are the same. Offered are roots, and where there
//! is somebody to ask, forms, pages to open and answers of models: sessions have them, and programs that say so.

#![allow(deprecated, reason = "servers of today ask for models, list roots and log; the next protocol drops all three")]

use std::path::Path;
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, Extensions, FormElicitationCapability, ListRootsResult, Root,
    RootsCapabilities, SamplingCapability, UrlElicitationCapability,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::elicit::Calls;
use super::{Place, Program};
use crate::base::http;
use crate::base::secrets::Secrets;
use crate::config::McpServer;

/// What the protocol says of a request that a person refuses.
const REFUSED_BY_USER: ErrorCode = ErrorCode(-1);

/// Where a question came from, and what ends the wish for an answer.
pub(super) type Asking<'a> = (&'a Extensions, &'a CancellationToken);

/// Who answers one server.
pub(super) struct Answers {
    pub(super) server: String,
    /// Never repeated when it says them.
    pub(super) secrets: Secrets,
    pub(super) place: Arc<Place>,
    pub(super) calls: Arc<Calls>,
}

impl Answers {
    pub(super) fn new(spec: &McpServer, place: &Arc<Place>, calls: &Arc<Calls>) -> Self {
        Self { server: spec.name.clone(), secrets: spec.secrets(), place: Arc::clone(place), calls: Arc::clone(calls) }
    }

    /// What we say that we can.
    pub(super) fn capabilities(&self) -> ClientCapabilities {
        let program = self.place.program.as_ref();
        let mut capabilities = ClientCapabilities::default();
        if self.place.has_clients || program.is_some_and(|program| program.elicits) {
            let mut ways = ElicitationCapability::new().with_form(FormElicitationCapability::new());
            ways.url = program.is_none_or(|program| program.opens_pages).then(UrlElicitationCapability::new);
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

    /// Puts a request to the program, in the protocol's words.
    async fn put<T: DeserializeOwned>(
        &self,
        program: &Program,
        (method, params): (&str, impl Serialize),
        asking: Asking<'_>,
    ) -> Result<T, ErrorData> {
        let internal = |error: String| ErrorData::internal_error(error, None);
        let params = serde_json::to_value(params).map_err(|error| internal(error.to_string()))?;
        let params = self.secrets.hidden_in(params);
        let input = json!({ "server": self.server, "method": method, "params": params });
        let answer = (program.answer)(input, asking.1.clone()).await;
        if method == "elicitation/create" {
            // What a person was asked and what went wrong then is none of the server's business.
            let failed = |why: String, told: &str| {
                tracing::warn!(server = self.server, why, "the program has no answer for an MCP server");
                internal(told.to_owned())
            };
            let answer = answer.map_err(|why| failed(why, "the question could not be put to a person"))?;
            let wrong = |error: serde_json::Error| failed(error.to_string(), "the program's answer is none");
            return serde_json::from_value(answer).map_err(wrong);
        }
        let answer = answer.map_err(|why| ErrorData::new(REFUSED_BY_USER, why, None))?;
        serde_json::from_value(answer).map_err(|error| internal(format!("the program's answer is none: {error}")))
    }

    async fn elicit(&self, (message, schema): (&str, &Value), asking: Asking<'_>) -> Result<ElicitResult, ErrorData> {
        if let Some(program) = self.place.program.as_ref().filter(|program| program.elicits) {
            let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
            let result = self.put(program, ("elicitation/create", params), asking).await?;
            return Ok(with_defaults(result, schema));
        }
        if !self.place.has_clients {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let (message, schema) = (self.secrets.hide(message), self.secrets.hidden_in(schema.clone()));
        self.calls.elicit(&self.server, (&message, &schema), asking).await
    }

    /// Has a person asked whether a page may be opened, and says whether that is so. Opens nothing: the person does.
    async fn send_to(
        &self,
        (message, url, id): (&str, &str, &str),
        asking: Asking<'_>,
    ) -> Result<ElicitResult, ErrorData> {
        let program = self.place.program.as_ref().filter(|program| program.elicits && program.opens_pages);
        if program.is_none() && (self.place.program.is_some() || !self.place.has_clients) {
            return Err(ErrorData::invalid_params("mode: expected `form`", None));
        }
        if http::check_url(url).is_err() {
            return Err(ErrorData::invalid_params("url: expected an http or https address", None));
        }
        if let Some(program) = program {
            let params = json!({ "mode": "url", "message": message, "url": url, "elicitationId": id });
            let mut result: ElicitResult = self.put(program, ("elicitation/create", params), asking).await?;
            result.content = None;
            return Ok(result);
        }
        let message = format!("{message}\n\nIt wants this page opened in a browser: {url}");
        let nothing = json!({ "type": "object", "properties": {} });
        let mut result = self.elicit((&message, &nothing), asking).await?;
        result.content = None;
        Ok(result)
    }

    pub(super) fn roots(&self) -> ListRootsResult {
        ListRootsResult::new(self.place.roots.borrow().iter().map(|directory| root(directory)).collect())
    }

    /// An answer of a model.
    ///
    /// # Errors
    /// Why there is none, for the server.
    pub(super) async fn sampled(
        &self,
        params: CreateMessageRequestParams,
        asking: Asking<'_>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if params.tools.is_some() || params.tool_choice.is_some() {
            return Err(ErrorData::invalid_params("tools: expected none, as no tools are offered in sampling", None));
        }
        match self.place.program.as_ref().filter(|program| program.samples) {
            Some(program) => self.put(program, ("sampling/createMessage", params), asking).await,
            None if self.place.has_clients => self.calls.sample(&self.server, (params, &self.secrets), asking).await,
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "sampling/createMessage", None)),
        }
    }

    /// What a person says.
    ///
    /// # Errors
    /// Why nobody is asked, for the server.
    pub(super) async fn elicited(
        &self,
        request: ElicitRequestParams,
        asking: Asking<'_>,
    ) -> Result<ElicitResult, ErrorData> {
        let (message, requested_schema) = match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => (message, requested_schema),
            ElicitRequestParams::UrlElicitationParams { message, url, elicitation_id, .. } => {
                return self.send_to((&message, &url, &elicitation_id), asking).await;
            }
            _ => return Err(ErrorData::invalid_params("mode: expected `form` or `url`", None)),
        };
        let schema = serde_json::to_value(requested_schema)
            .map_err(|error| ErrorData::invalid_params(format!("requestedSchema: {error}"), None))?;
        self.elicit((&message, &schema), asking).await
    }

    /// The answer to a question in the protocol's words, of which its types may not take all: a form all the same, perhaps.
    ///
    /// # Errors
    /// Why there is none, for the server.
    pub(super) async fn answer(&self, (method, params): (&str, Value), asking: Asking<'_>) -> Result<Value, ErrorData> {
        fn told<T: Serialize>(result: T) -> Result<Value, ErrorData> {
            serde_json::to_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }
        match method {
            "roots/list" => told(self.roots()),
            "sampling/createMessage" => match serde_json::from_value(params) {
                Ok(params) => told(self.sampled(params, asking).await?),
                // Of what kind its content is, the protocol does not know.
                Err(_) => Err(ErrorData::invalid_params("messages: expected texts and images", None)),
            },
            "elicitation/create" => {
                if let Ok(request) = serde_json::from_value(params.clone()) {
                    return told(self.elicited(request, asking).await?);
                }
                if params["mode"].as_str().is_some_and(|mode| mode != "form") {
                    return Err(ErrorData::invalid_params("mode: expected `form`, or `url` with an address", None));
                }
                let Some(message) = params["message"].as_str() else {
                    return Err(ErrorData::invalid_params("message: expected a string", None));
                };
                told(self.elicit((message, &params["requestedSchema"]), asking).await?)
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)),
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
