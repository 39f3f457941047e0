//! Questions of the running turn's calls to the session's clients.

use tokio::sync::oneshot;

use super::{Actor, Explained};
use crate::base::{clock, limit};
use crate::permission::Facts;
use crate::protocol::{
    ApiError, Decision, EventBody, GrantId, GrantScope, PermissionExplanation, PermissionVerdict, RequestId,
    VerdictSource,
};
use crate::session::ask::{Answer, GrantTerms, Open, Question, Resolved, denied};
use crate::session::journal::Entry;
use crate::session::metered::count_answer;
use crate::session::store_failure;
use crate::session::turn::Input;
use crate::store::{Grant, GrantRow, GrantSubject, StoreError, Write};

/// A question that has its end.
pub(super) struct Settled {
    /// The call that asked.
    call_id: String,
    /// What a yes to more than this call would be about.
    wanted: Option<(String, GrantSubject)>,
    /// Whether its end is in the log.
    written: Result<(), StoreError>,
}

impl Actor {
    /// Puts a gate's question to the clients.
    pub(super) fn put(
        &mut self,
        question: Question,
        named: oneshot::Sender<RequestId>,
        reply: oneshot::Sender<PermissionVerdict>,
    ) {
        let Question { turn, call_id, tool_name, args, preview, deadline, on, each_time } = question;
        let running = self.running.as_ref().filter(|running| running.row.record.turn_id == turn);
        if running.is_none_or(|running| running.phase.after(Input::Ask).is_err()) {
            let _ = reply.send(denied(VerdictSource::Abort, "the turn was aborted"));
            return;
        }
        let request_id = RequestId::generate();
        let options = match each_time {
            false => vec![Decision::Allow, Decision::AllowAlways, Decision::Deny],
            true => vec![Decision::Allow, Decision::Deny],
        };
        let wanted = (!each_time).then(|| (tool_name.clone(), on));
        let event = EventBody::PermissionRequest {
            request_id: request_id.clone(),
            call_id: call_id.clone(),
            tool_name: tool_name.clone(),
            args,
            preview,
            options,
            deadline,
        };
        if let Err(error) = self.live.journal.emit(&turn, &event) {
            let _ = reply.send(denied(VerdictSource::Abort, format!("the question could not be put: {error}")));
            return;
        }
        self.terms.meters.asked.count();
        self.asks.add(Open { request_id: request_id.clone(), call_id, wanted, reply });
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
        let Some(Settled { call_id, wanted, written }) = self.resolve(&request, verdict).await else {
            return Err(ApiError::conflict(format!("permission request {request} is over")));
        };
        written.map_err(|e| store_failure(&e))?;
        if let (Some(terms), Some(wanted)) = (answer.grant.filter(|_| allowed), wanted) {
            self.grant(wanted, terms).await?;
        }
        Ok(Resolved { request_id: request, call_id, allowed })
    }

    /// Ends a question: first in the log, then for who asked. None: it had its end already.
    pub(super) async fn resolve(&mut self, request: &RequestId, verdict: PermissionVerdict) -> Option<Settled> {
        let open = self.asks.settle(request)?;
        let (mut verdict, mut written) = (verdict, Ok(()));
        if let Some(running) = &self.running {
            let event = EventBody::PermissionResponse {
                request_id: request.clone(),
                call_id: open.call_id.clone(),
                allowed: verdict.allowed,
                by: verdict.by,
                reason: verdict.reason.clone(),
            };
            written = self.live.journal.emit(&running.row.record.turn_id, &event);
            if written.is_ok() && verdict.by == VerdictSource::Client {
                // Who answered is told so, and that outlives the process.
                written = self.live.journal.flush().await;
            }
            if let Err(error) = &written {
                // What cannot be written down has not happened: the call does not run.
                verdict = denied(VerdictSource::Abort, format!("the answer could not be written down: {error}"));
            }
        }
        count_answer(&self.terms.meters, verdict.allowed, verdict.by);
        // A call that was cut off no longer waits.
        let _ = open.reply.send(verdict);
        Some(Settled { call_id: open.call_id, wanted: open.wanted, written })
    }

    /// Ends all questions: nobody waits for them any more.
    pub(super) async fn close_asks(&mut self) {
        for request in self.asks.open_ids() {
            self.resolve(&request, denied(VerdictSource::Abort, "the turn has ended")).await;
        }
    }

    /// Keeps a yes for as far as it reaches. It counts once it is written down.
    async fn grant(&mut self, (tool, on): (String, GrantSubject), terms: GrantTerms) -> Result<(), ApiError> {
        if on == GrantSubject::Paths(Vec::new()) {
            return Ok(());
        }
        let created_at = clock::now_ms();
        let grant = Grant { id: GrantId::generate(), created_at, expires_at: terms.expires_at, tool, on };
        let project = match terms.scope {
            GrantScope::Once => return Ok(()),
            GrantScope::Session => {
                let mut grants = self.row.settings.grants.clone();
                grants.retain(|old| old.holds(created_at) && !old.says_the_same(&grant));
                grants.push(grant);
                if grants.len() > limit::GRANTS_MAX {
                    grants.remove(0);
                }
                return self.keep_grants(grants).await;
            }
            GrantScope::Project => Some(self.row.settings.working_directory.clone()),
            GrantScope::Always => None,
        };
        let row = GrantRow { client: self.row.client.clone(), project, grant };
        self.terms.saved.save(row).await.map_err(|e| store_failure(&e))
    }

    /// Takes a grant of the session back. False: there is none of that id.
    pub(super) async fn revoke(&mut self, id: &GrantId) -> Result<bool, ApiError> {
        let mut grants = self.row.settings.grants.clone();
        grants.retain(|grant| grant.id != *id);
        if grants.len() == self.row.settings.grants.len() {
            return Ok(false);
        }
        self.keep_grants(grants).await.map(|()| true)
    }

    async fn keep_grants(&mut self, grants: Vec<Grant>) -> Result<(), ApiError> {
        let mut row = self.row.clone();
        row.settings.grants = grants;
        let write = Write::UpdateSession(Box::new(row.clone()));
        let written = self.live.journal.record(|_| Entry { events: Vec::new(), writes: vec![write] }).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        self.policy.set_grants(&self.row.settings.grants);
        Ok(())
    }

    /// What would happen to a call now.
    pub(super) fn explain(&self, call: &Explained) -> PermissionExplanation {
        let facts =
            Facts::new(&call.name, call.definition.as_ref(), Some(self.policy.directory())).at(call.place.as_deref());
        self.policy.explain(facts, &call.subject, self.row.settings.permission_mode)
    }
}
