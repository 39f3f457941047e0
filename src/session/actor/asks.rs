//! Questions of the running turn's calls to the session's clients.

use tokio::sync::oneshot;

use super::{Actor, Input};
use crate::base::limit;
use crate::protocol::{ApiError, Decision, EventBody, PermissionVerdict, RequestId, VerdictSource};
use crate::session::ask::{Answer, Open, Question, Resolved, denied};
use crate::session::journal::Entry;
use crate::session::turn::Phase;
use crate::store::{Grant, GrantSubject, Write};

impl Actor {
    /// Puts a gate's question to the clients.
    pub(super) fn put(
        &mut self,
        question: Question,
        named: oneshot::Sender<RequestId>,
        reply: oneshot::Sender<PermissionVerdict>,
    ) {
        let Question { turn, call_id, tool_name, args, preview, deadline, on } = question;
        let running = self.running.as_mut().filter(|running| running.row.record.turn_id == turn);
        let asked = running.and_then(|running| Some((running.phase.after(Input::Ask).ok()?, running)));
        let Some((phase, running)) = asked else {
            let _ = reply.send(denied(VerdictSource::Abort, "the turn was aborted"));
            return;
        };
        let request_id = RequestId::generate();
        let event = EventBody::PermissionRequest {
            request_id: request_id.clone(),
            call_id: call_id.clone(),
            tool_name: tool_name.clone(),
            args,
            preview,
            options: vec![Decision::Allow, Decision::AllowAlways, Decision::Deny],
            deadline,
        };
        if let Err(error) = self.live.journal.emit(&turn, &event) {
            let _ = reply.send(denied(VerdictSource::Abort, format!("the question could not be put: {error}")));
            return;
        }
        running.phase = phase;
        self.asks.add(Open { request_id: request_id.clone(), call_id, grant: Grant { tool: tool_name, on }, reply });
        let _ = named.send(request_id);
    }

    /// Takes a client's answer.
    pub(super) async fn answer(&mut self, answer: &Answer) -> Result<Resolved, ApiError> {
        let request = self.asks.find(&answer.which)?;
        let allowed = match answer.decision {
            Decision::Allow | Decision::AllowAlways => true,
            Decision::Deny => false,
        };
        let reason = answer.message.clone().unwrap_or_default();
        let verdict = PermissionVerdict { allowed, by: VerdictSource::Client, reason };
        let always = answer.decision == Decision::AllowAlways;
        let Some((call_id, grant)) = self.resolve(&request, verdict).await else {
            return Err(ApiError::conflict(format!("permission request {request} is over")));
        };
        if always {
            self.grant(grant).await?;
        }
        Ok(Resolved { request_id: request, call_id, allowed })
    }

    /// Ends a question. None: it had its end already.
    pub(super) async fn resolve(&mut self, request: &RequestId, verdict: PermissionVerdict) -> Option<(String, Grant)> {
        let open = self.asks.settle(request)?;
        let mut verdict = verdict;
        if let Some(running) = &mut self.running {
            let event = EventBody::PermissionResponse {
                request_id: request.clone(),
                call_id: open.call_id.clone(),
                allowed: verdict.allowed,
                by: verdict.by,
                reason: verdict.reason.clone(),
            };
            if let Err(error) = self.live.journal.emit(&running.row.record.turn_id, &event) {
                // What cannot be written down has not happened: the call does not run.
                verdict = denied(VerdictSource::Abort, format!("the answer could not be written down: {error}"));
            }
            if self.asks.is_empty() && running.phase == Phase::Waiting {
                running.phase = running.phase.after(Input::Answered).unwrap_or(running.phase);
            }
        }
        // A call that was cut off no longer waits.
        let _ = open.reply.send(verdict);
        Some((open.call_id, open.grant))
    }

    /// Ends all questions: nobody waits for them any more.
    pub(super) async fn close_asks(&mut self) {
        for request in self.asks.open_ids() {
            self.resolve(&request, denied(VerdictSource::Abort, "the turn has ended")).await;
        }
    }

    async fn grant(&mut self, grant: Grant) -> Result<(), ApiError> {
        if grant.on == GrantSubject::Paths(Vec::new()) || self.row.settings.grants.contains(&grant) {
            return Ok(());
        }
        let mut row = self.row.clone();
        row.settings.grants.push(grant.clone());
        if row.settings.grants.len() > limit::GRANTS_MAX {
            row.settings.grants.remove(0);
        }
        let write = Write::UpdateSession(Box::new(row.clone()));
        let written = self.live.journal.record(|_| Entry { events: Vec::new(), writes: vec![write] }).await;
        written.map_err(|e| crate::session::store_failure(&e))?;
        self.row = row;
        self.policy.grant(&grant);
        Ok(())
    }
}
