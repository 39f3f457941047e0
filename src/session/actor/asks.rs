//! Questions of the running turn to the session's clients: of its calls for permission, of its tools and hooks for answers.

use tokio::sync::oneshot;

use super::{Actor, Explained};
use crate::base::{clock, limit};
use crate::permission::Facts;
use crate::protocol::{
    ApiError, Decision, EventBody, GrantId, GrantScope, PermissionExplanation, RequestId, VerdictSource,
};
use crate::session::ask::{About, Answer, CallQuestion, End, Fits, GrantTerms, Open, Question, Resolved, Says};
use crate::session::granted::{can_be_told, give, take_back};
use crate::session::journal::Entry;
use crate::session::metered::count_answer;
use crate::session::store_failure;
use crate::session::turn::Input;
use crate::store::{Grant, GrantRow, GrantSubject, StoreError, Write};

/// A question that has its end.
pub(super) struct Settled {
    /// What was asked.
    fits: Fits,
    /// Whether its end is in the log.
    written: Result<(), StoreError>,
}

impl Actor {
    /// Puts a question to the clients.
    pub(super) fn put(
        &mut self,
        question: Question,
        named: oneshot::Sender<(RequestId, Option<EventBody>)>,
        reply: oneshot::Sender<End>,
    ) {
        let Question { turn, deadline, about } = question;
        let running = self.running.as_ref().filter(|running| running.row.record.turn_id == turn);
        if running.is_none_or(|running| running.phase.after(Input::Ask).is_err()) {
            let _ = reply.send(End::no(VerdictSource::Abort, "the turn was aborted"));
            return;
        }
        let request_id = RequestId::generate();
        let (event, fits) = match about {
            About::Call(call) => permission_request(&request_id, *call, deadline),
            About::Client { .. } if self.asks.len() >= limit::OPEN_REQUESTS_MAX => {
                let reason = format!("{} questions are open already", limit::OPEN_REQUESTS_MAX);
                let _ = reply.send(End::no(VerdictSource::Policy, reason));
                return;
            }
            About::Client { call_id, question } => {
                let event = EventBody::ClientRequest {
                    request_id: request_id.clone(),
                    call_id: call_id.clone(),
                    question: question.clone(),
                    deadline,
                };
                (event, Fits::Client { call_id, question })
            }
        };
        if let Err(error) = self.live.journal.emit(&turn, &event) {
            let _ = reply.send(End::no(VerdictSource::Abort, format!("the question could not be put: {error}")));
            return;
        }
        if matches!(fits, Fits::Permission { .. }) {
            self.terms.meters.asked.count();
        }
        self.tell_question(&turn, &event);
        let told = self.row.lineage.is_some().then(|| event.clone());
        self.asks.add(Open { request_id: request_id.clone(), event, fits, reply });
        let _ = named.send((request_id, told));
    }

    /// Takes a client's answer.
    pub(super) async fn answer(&mut self, answer: &Answer) -> Result<Resolved, ApiError> {
        let (request, end) = self.asks.find(answer)?;
        let yes = matches!(end, End::Yes { .. });
        let cancelled = matches!(end, End::No { .. });
        let Some(Settled { fits, written }) = self.resolve(&request, end).await else {
            return Err(ApiError::conflict(format!("request {request} is over")));
        };
        written.map_err(|e| store_failure(&e))?;
        match fits {
            Fits::Client { call_id, .. } => {
                Ok(Resolved { request_id: request, call_id, allowed: None, cancelled: Some(cancelled) })
            }
            Fits::Permission { call_id, wanted } => {
                if let (Says::Decision(_, Some(terms)), Some(wanted), true) = (&answer.says, wanted, yes) {
                    self.grant(wanted, *terms, request.clone()).await?;
                }
                Ok(Resolved { request_id: request, call_id: Some(call_id), allowed: Some(yes), cancelled: None })
            }
        }
    }

    /// Ends a question: first in the log, then for who asked. None: it had its end already.
    pub(super) async fn resolve(&mut self, request: &RequestId, mut end: End) -> Option<Settled> {
        let Open { fits, reply, .. } = self.asks.settle(request)?;
        let mut written = Ok(());
        if let Some(running) = &self.running {
            let event = end.clone().event(request.clone(), &fits);
            written = self.live.journal.emit(&running.row.record.turn_id, &event);
            if written.is_ok() && end.by() == VerdictSource::Client {
                // Who answered is told so, and that outlives the process.
                written = self.live.journal.flush().await;
            }
            if let Err(error) = &written {
                // What cannot be written down has not happened: the call does not run.
                end = End::no(VerdictSource::Abort, format!("the answer could not be written down: {error}"));
            }
        }
        if let Fits::Permission { .. } = &fits {
            count_answer(&self.terms.meters, matches!(end, End::Yes { .. }), end.by());
        }
        // Who was cut off no longer waits.
        let _ = reply.send(end);
        Some(Settled { fits, written })
    }

    /// Ends all questions: nobody waits for them any more.
    pub(super) async fn close_asks(&mut self) {
        for request in self.asks.open_ids() {
            self.resolve(&request, End::no(VerdictSource::Abort, "the turn has ended")).await;
        }
    }

    /// Keeps a yes for as far as it reaches. It counts once it is written down.
    async fn grant(
        &mut self,
        (tool, on): (String, GrantSubject),
        terms: GrantTerms,
        request: RequestId,
    ) -> Result<(), ApiError> {
        if on == GrantSubject::Paths(Vec::new()) {
            return Ok(());
        }
        let created_at = clock::now_ms();
        let grant = Grant { id: GrantId::generate(), created_at, expires_at: terms.expires_at, tool, on };
        let project = match terms.scope {
            GrantScope::Once => return Ok(()),
            GrantScope::Session => {
                let mut grants = self.row.settings.grants.clone();
                let no_text =
                    || ApiError::invalid("scope", "`once`: a path of the call is no text, and cannot be kept");
                let events = give(&mut grants, grant, request).ok_or_else(no_text)?;
                return self.keep_grants(grants, events).await;
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
        match take_back(&mut grants, id) {
            Some(event) => self.keep_grants(grants, vec![event]).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Stores them together with what the log tells of them. Between turns they belong to none.
    async fn keep_grants(&mut self, grants: Vec<Grant>, events: Vec<EventBody>) -> Result<(), ApiError> {
        let turn = self.running.as_ref().map(|running| running.row.record.turn_id.clone());
        let events = events.into_iter().map(|event| (turn.clone(), event)).collect();
        let mut row = self.row.clone();
        row.settings.grants = grants;
        let write = Write::UpdateSession(Box::new(row.clone()));
        let written = self.live.journal.record(|_| Entry { events, writes: vec![write] }).await;
        written.map_err(|e| store_failure(&e))?;
        self.row = row;
        self.policy.set_grants(&self.row.settings.grants);
        Ok(())
    }

    /// What would happen to a call now.
    pub(super) fn explain(&self, call: &Explained) -> PermissionExplanation {
        let facts =
            Facts::new(&call.name, call.definition.as_ref(), Some(self.policy.places().0)).at(call.place.as_deref());
        self.policy.explain(facts, &call.subject, self.row.settings.permission_mode)
    }
}

/// The event of a question about permission, and what its answer has to be.
fn permission_request(request_id: &RequestId, call: CallQuestion, deadline: u64) -> (EventBody, Fits) {
    let CallQuestion { call_id, tool_name, args, preview, on, each_time } = call;
    // What the log cannot tell cannot be kept, either.
    let each_time = each_time || !can_be_told(&on);
    let options = match each_time {
        false => vec![Decision::Allow, Decision::AllowAlways, Decision::Deny],
        true => vec![Decision::Allow, Decision::Deny],
    };
    let wanted = (!each_time).then(|| (tool_name.clone(), on));
    let fits = Fits::Permission { call_id: call_id.clone(), wanted };
    let request_id = request_id.clone();
    let event = EventBody::PermissionRequest { request_id, call_id, tool_name, args, preview, options, deadline };
    (event, fits)
}
