//! What hooks make of a prompt before it is accepted: they may refuse it, put another text into its place, and add texts.
//!
//! What comes of it is the prompt: it is in the log, and is what the model is told, today and after a restart.

use std::sync::Arc;

use crate::app::App;
use crate::app::bodies::check_text;
use crate::base::{limit, text};
use crate::hook::{Hooks, Point, SessionStart, StartSource, Submission, Submitted, Whose, bounded};
use crate::protocol::{ApiError, ErrorCode, Part, PromptContent, PromptMode, SessionView};
use crate::session::{Live, Starting, Workbench as _};

/// What stands in front of what a hook adds: the user has not said it.
const ADDED: &str = "[Added by a hook]\n";

impl App {
    /// A prompt as hooks leave it, and the start of its session where that has something to say.
    ///
    /// # Errors
    /// `FORBIDDEN` with the reason of the hook that refuses it.
    pub(super) async fn hooked<'l>(
        &self,
        live: &'l Arc<Live>,
        (content, mode): (PromptContent, PromptMode),
    ) -> Result<(PromptContent, Option<Starting<'l>>), ApiError> {
        let hooks = self.wardrobe.hooks();
        // The end is told of sessions whose start was.
        let starts = hooks.attends(Point::SessionStart) || hooks.attends(Point::SessionEnd);
        let submits = hooks.attends(Point::PromptSubmit);
        if !starts && !submits {
            return Ok((content, None));
        }
        let view = live.view().await?;
        let starting = if starts { live.start(hooks.as_ref(), || start_of(&view)).await } else { None };
        let mut texts = starting.as_ref().map(|starting| starting.texts().to_vec()).unwrap_or_default();
        let content = match submits {
            true => submitted(hooks.as_ref(), (&view, mode), (content, &mut texts)).await?,
            false => content,
        };
        Ok((with_texts(content, texts), starting))
    }
}

/// What hooks before a prompt make of it. What they add goes behind `texts`.
async fn submitted(
    hooks: &dyn Hooks,
    (view, mode): (&SessionView, PromptMode),
    (content, texts): (PromptContent, &mut Vec<String>),
) -> Result<PromptContent, ApiError> {
    let parts = match &content {
        PromptContent::Text(_) => None,
        PromptContent::Parts(parts) => Some(parts.clone()),
    };
    let mut prompt = Submitted { whose: whose(view), prompt: content.text(), parts, mode };
    match hooks.prompt_submit(prompt.clone()).await {
        Submission::Blocked { reason } => {
            let reason = text::head(&reason, limit::HOOK_TEXTS_BYTES_MAX);
            let error = ApiError::new(ErrorCode::Forbidden, format!("the prompt was blocked by a hook: {reason}"));
            Err(error.with_details(serde_json::json!({ "field": "prompt", "why": "hook", "reason": reason })))
        }
        Submission::Continue { prompt: changed, context } => {
            texts.extend(context);
            let Some(changed) = changed else { return Ok(content) };
            check_text("prompt", &changed, limit::PROMPT_BYTES_MAX)?;
            prompt.put(changed);
            Ok(prompt.parts.map_or(PromptContent::Text(prompt.prompt), PromptContent::Parts))
        }
    }
}

/// A prompt with texts behind it.
fn with_texts(content: PromptContent, texts: Vec<String>) -> PromptContent {
    let texts = bounded(texts);
    if texts.is_empty() {
        return content;
    }
    let mut parts = content.into_parts();
    parts.extend(texts.into_iter().map(|text| Part::Text { text: format!("{ADDED}{text}") }));
    PromptContent::Parts(parts)
}

fn start_of(view: &SessionView) -> SessionStart {
    let source = if view.message_count == 0 && view.turn.is_none() { StartSource::New } else { StartSource::Resumed };
    SessionStart { whose: whose(view), source }
}

fn whose(view: &SessionView) -> Whose {
    Whose {
        session_id: view.session_id.clone(),
        root_session_id: view.lineage.as_ref().and_then(|lineage| lineage.root().cloned()),
        turn_id: None,
        working_directory: view.working_directory.clone(),
    }
}
