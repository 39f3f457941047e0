//! What hooks hear of behind the work's back: questions that wait, and turns that have ended.

use super::Actor;
use crate::base::limit;
use crate::hook::{News, TurnNews, Whose};
use crate::protocol::{EventBody, TurnId, TurnRecord};

impl Actor {
    /// A question waits for an answer.
    pub(super) fn tell_question(&self, turn: &TurnId, question: &EventBody) {
        let news = match question {
            EventBody::PermissionRequest { request_id, call_id, tool_name, .. } => News::PermissionRequest {
                request_id: request_id.clone(),
                call_id: call_id.clone(),
                tool_name: tool_name.clone(),
            },
            EventBody::ClientRequest { request_id, call_id, question, .. } => News::ClientRequest {
                request_id: request_id.clone(),
                call_id: call_id.clone(),
                question: question.clone(),
            },
            _ => return,
        };
        self.shelf.herald.news(|| (self.whose(Some(turn)), news));
    }

    /// A turn has ended.
    pub(super) fn tell_end(&self, record: &TurnRecord) {
        self.shelf.herald.news(|| {
            let ended = TurnNews {
                status: record.status,
                stop_reason: record.stop_reason,
                result: record.result.as_ref().map(|text| text.chars().take(limit::HOOK_RESULT_CHARS_MAX).collect()),
                error: record.error.as_ref().map(|error| error.message.clone()),
            };
            let under = self.row.lineage.is_some();
            let news = if under { News::SubagentEnded(ended) } else { News::TurnEnded(ended) };
            (self.whose(Some(&record.turn_id)), news)
        });
    }

    fn whose(&self, turn: Option<&TurnId>) -> Whose {
        Whose {
            session_id: self.row.id.clone(),
            root_session_id: self.row.lineage.as_ref().and_then(|lineage| lineage.root().cloned()),
            turn_id: turn.cloned(),
            working_directory: self.row.settings.working_directory.clone(),
        }
    }
}
