//! What the tools of a session are lent for the time of a turn: the outputs of earlier calls, and who tells of instruction files.

use std::path::PathBuf;
use std::sync::Arc;

use super::earlier::LoggedCalls;
use super::history::Conversation;
use super::live::Live;
use crate::prompt::told_path;
use crate::protocol::{Message, Part};
use crate::tool::{Guide, Scope};

/// Lets the turn's calls know who has the outputs of earlier ones, and who tells of instruction files in the places that they touch.
pub(super) fn lend(
    (scope, live): (&Scope, &Arc<Live>),
    guide: Option<Arc<dyn Guide>>,
    conversation: Conversation,
) -> Conversation {
    *scope.earlier.lock() = Some(Arc::new(LoggedCalls(Arc::downgrade(live))));
    if guide.is_some() {
        scope.guided.begin(|| told_files(&conversation.messages));
    }
    *scope.guide.lock() = guide;
    conversation
}

/// The turn's tools are done.
pub(super) fn leave(scope: &Scope, pauses: bool) {
    // A skill is in use until its turn ends.
    if !pauses {
        scope.skill.lock().take();
    }
    *scope.recorder.lock() = None;
    *scope.children.lock() = None;
    *scope.tree.lock() = None;
    *scope.earlier.lock() = None;
    *scope.guide.lock() = None;
}

/// The instruction files that a conversation has the texts of.
fn told_files(messages: &[Message]) -> Vec<PathBuf> {
    let parts = messages.iter().flat_map(|message| match message {
        Message::User(parts) => parts.as_slice(),
        Message::Assistant { .. } | Message::ToolResult { .. } => &[],
    });
    parts.filter_map(|part| if let Part::Text { text } = part { told_path(text) } else { None }).collect()
}
