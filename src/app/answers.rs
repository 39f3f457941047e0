//! Answers to questions, by clients: to a session's own, and at the session above all to those of the ones under it.

use super::{App, Caller, bodies};
use crate::base::clock;
use crate::protocol::{Access, ApiError, ErrorCode, Feedback, GrantScope, SessionId};
use crate::session::{Answer, Resolved, Says, store_failure};

impl App {
    /// Answers a question.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `NOT_FOUND` for an unknown request; `CONFLICT` for one that has its answer or has expired.
    pub async fn feedback(&self, caller: &Caller, id: &SessionId, body: Feedback) -> Result<Resolved, ApiError> {
        // Whoever was given one session is not who answers for it.
        caller.at_large()?;
        let answer = bodies::check_feedback(body, clock::now_ms())?;
        if let Says::Decision(_, Some(grant)) = &answer.says
            && grant.scope != GrantScope::Session
        {
            caller.needs(Access::Administer)?;
        }
        match self.live(caller, id).await?.answer(answer.clone()).await {
            Err(none) if none.code() == ErrorCode::NotFound => self.answer_below((caller, id), answer, none).await,
            answered => answered,
        }
    }

    /// Answers what a session under this one has asked, whether or not this one still knows of it: it may have had its answer.
    async fn answer_below(
        &self,
        (caller, id): (&Caller, &SessionId),
        answer: Answer,
        none: ApiError,
    ) -> Result<Resolved, ApiError> {
        let row = self.own_row(caller, id).await?;
        let names_one = answer.which.request_id.is_some() || answer.which.call_id.is_some();
        if row.lineage.is_some() || !names_one {
            return Err(none);
        }
        for child in self.sessions.under(&row).await? {
            let asked = self.store.asked(&child.id, &answer.which).await.map_err(|error| store_failure(&error))?;
            if asked {
                return self.live(caller, &child.id).await?.answer(answer).await;
            }
        }
        Err(none)
    }
}
