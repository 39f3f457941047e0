//! What a prompt would cost: its tokens, as the provider of its model counts them. Nothing is answered, and nothing is kept.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bodies::check_prompt;
use super::{App, Caller};
use crate::context::describe_images;
use crate::model::ModelRequest;
use crate::protocol::{
    Access, ApiError, CountTokens, ErrorCode, Message, Part, Prompt, PromptContent, PromptMode, TokenCount,
};

impl App {
    /// Counts the tokens of a prompt.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a model that there is not, `CONFLICT` for one whose provider does not count, `UPSTREAM_UNAVAILABLE`
    /// with its kind where it fails.
    pub async fn count_tokens(&self, caller: &Caller, body: CountTokens) -> Result<TokenCount, ApiError> {
        caller.at_large()?;
        caller.needs(Access::Work)?;
        let CountTokens { model, prompt, system, tools } = body;
        let id = model.unwrap_or_else(|| self.models.default_id());
        self.check_model("model", &id)?;
        let prompt = Prompt { prompt, mode: PromptMode::default(), configure: None, turn: None, if_version: None };
        check_prompt(&prompt)?;
        let parts = match prompt.prompt {
            PromptContent::Text(text) => vec![Part::Text { text }],
            PromptContent::Parts(parts) => parts,
        };
        let none = || {
            let facts = json!({ "field": "model", "why": "no_token_count", "model": id });
            ApiError::conflict(format!("the provider of `{id}` does not count tokens")).with_details(facts)
        };
        let model = self.models.get(&id).filter(|model| !model.is_agent()).ok_or_else(none)?;
        let mut messages = vec![Message::User(parts)];
        if !model.takes_images() {
            describe_images(&mut messages);
        }
        let tools = if tools { self.tools().into() } else { Vec::new().into() };
        let system = system.unwrap_or_default();
        let request = ModelRequest { system, messages: messages.into(), tools, ..ModelRequest::default() };
        // Who goes away drops this future, and with it the request.
        let cancel = CancellationToken::new();
        let counted = model.count_tokens(&request, &cancel).await.map_err(|error| {
            let kind = json!({ "kind": error.kind() });
            ApiError::new(ErrorCode::UpstreamUnavailable, error.to_string()).with_details(kind)
        })?;
        Ok(TokenCount { model: id.clone(), tokens: counted.ok_or_else(none)? })
    }
}
