//! Prompts, messages into running turns, and how both are taken back.
//!
//! A prompt while a turn runs waits behind it, as everywhere. A cancellation ends the turn that runs, and each prompt of this
//! client that waits: these never begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::desk::{Desk, Heard};
use super::rpc::{Params, RpcError};
use super::told::TurnEnd;
use super::{Answer, Core, content, outcome, params, session_id};
use crate::app::{Aborted, Accepted, Command, Request, Submitted};
use crate::protocol::{
    ApiError, ErrorCode, Part, PromptContent, SessionId, TurnId, TurnRecord, TurnStatus, TurnStop, Usage,
};

/// How often a message is tried to be put into a turn that ends meanwhile.
const STEER_ATTEMPTS: usize = 5;

/// Pause between two looks at whether something is done.
const LOOK: Duration = Duration::from_millis(5);

/// A prompt that has no answer yet.
pub(super) struct Pending {
    pub(super) session: SessionId,
    cancelled: AtomicBool,
    turn: Mutex<Option<TurnId>>,
    /// Fires when it has a turn, or has come to nothing.
    settled: CancellationToken,
}

/// A prompt that was handed in.
pub(super) struct Begun {
    pending: Arc<Pending>,
    desk: Arc<Desk>,
    submitted: Submitted,
}

impl Core {
    /// Hands a prompt in. Its place in the session is that of this call.
    pub(super) async fn begin_prompt(self: Arc<Self>, params: &Params) -> Result<Begun, ApiError> {
        let params::Prompt { session_id: session, prompt, .. } = params.read()?;
        let (session, parts) = (session_id(&session)?, content::parts(&prompt)?);
        let desk = self.desk(&session).await?;
        let body = json!({ "prompt": parts }).to_string();
        let request = Request {
            kind: "prompt",
            session: Some(session.clone()),
            key: None,
            if_version: None,
            fields: Vec::new(),
            body: body.as_bytes(),
        };
        let command = Command::of_request(request)?;
        desk.expect();
        let submitted = self.app.submit(self.caller.clone(), command);
        let settled = CancellationToken::new();
        let pending = Pending { session, cancelled: AtomicBool::new(false), turn: Mutex::new(None), settled };
        let pending = Arc::new(pending);
        self.prompts.lock().push(Arc::clone(&pending));
        Ok(Begun { pending, desk, submitted })
    }

    /// Waits for the end of its turn and says how that was. What is given back beside that is held until it has been said.
    pub(super) async fn finish_prompt(
        self: &Arc<Self>,
        begun: Begun,
        cancel: &CancellationToken,
    ) -> (Answer, Option<Heard>) {
        let pending = Arc::clone(&begun.pending);
        let mut heard = None;
        let answer = self.turn_of(begun, cancel, &mut heard).await;
        pending.settled.cancel();
        self.prompts.lock().retain(|one| !Arc::ptr_eq(one, &pending));
        (answer, heard)
    }

    async fn turn_of(self: &Arc<Self>, begun: Begun, cancel: &CancellationToken, heard: &mut Option<Heard>) -> Answer {
        let Begun { pending, desk, submitted } = begun;
        let accepted = outcome::<Accepted>(submitted.end().await);
        let turn = match accepted {
            Ok(accepted) => accepted.turn_id,
            Err(error) => {
                desk.unexpect();
                return Err(error.into());
            }
        };
        let ended = desk.assign(turn.clone());
        tokio::pin!(ended);
        *pending.turn.lock() = Some(turn.clone());
        pending.settled.cancel();
        if pending.cancelled.load(Ordering::Acquire) {
            self.abort(&desk, &turn);
        }
        let taken_back = tokio::select! {
            biased;
            told = &mut ended => {
                *heard = told.ok();
                false
            }
            () = cancel.cancelled() => {
                // A client that goes leaves its turn to the others.
                if self.over.is_cancelled() {
                    return Err(RpcError::cancelled());
                }
                self.abort(&desk, &turn);
                *heard = ended.await.ok();
                true
            }
        };
        if taken_back {
            return Err(RpcError::cancelled());
        }
        let record = self.app.turn(&self.caller, &pending.session, &turn).await;
        match (record, heard.as_ref().map(|heard| &heard.end)) {
            (Ok(record), _) if record.status.is_terminal() => ended_as(&record),
            // The server has stopped with the turn: its last event was the last that could be read.
            (_, Some(TurnEnd::Completed)) => Ok(json!({ "stopReason": "end_turn" })),
            (_, Some(TurnEnd::Stopped)) => Ok(json!({ "stopReason": "cancelled" })),
            (_, Some(TurnEnd::Failed(error))) => Err(ApiError(error.clone()).into()),
            // The session was left, or deleted.
            (Ok(_), None) if pending.cancelled.load(Ordering::Acquire) => Ok(json!({ "stopReason": "cancelled" })),
            (Ok(_), None) => {
                let message = "the turn goes on, and is told here no more";
                Err(ApiError::new(ErrorCode::UpstreamUnavailable, message).into())
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Waits until all that was asked has been done, but for turns.
    pub(super) async fn settled(&self) {
        let under_way = || {
            let begun = self.prompts.lock().iter().filter(|pending| pending.turn.lock().is_some()).count();
            self.requests.lock().len() > begun
        };
        while under_way() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends a turn at once, also one that waits; one that is just about to begin as soon as it has.
    pub(super) fn abort(self: &Arc<Self>, desk: &Arc<Desk>, turn: &TurnId) {
        desk.cancel_later(turn);
        let (core, desk, body) = (Arc::clone(self), Arc::clone(desk), json!({ "turnId": turn }));
        self.tasks.spawn(async move { core.end(&desk.id, &body).await });
    }

    /// `session/cancel`.
    pub(super) fn cancel_prompts(self: Arc<Self>, session: SessionId) {
        let desk = self.desks.lock().get(&session).cloned();
        let prompts: Vec<Arc<Pending>> =
            self.prompts.lock().iter().filter(|one| one.session == session).cloned().collect();
        prompts.iter().for_each(|pending| pending.cancelled.store(true, Ordering::Release));
        let core = Arc::clone(&self);
        self.tasks.spawn(async move {
            // The newest first: what ends lets begin what waits behind it, and that is never to begin.
            for pending in prompts.iter().rev() {
                tokio::select! {
                    () = pending.settled.cancelled() => {}
                    () = core.over.cancelled() => return,
                }
                let turn = pending.turn.lock().clone();
                if let (Some(desk), Some(turn)) = (&desk, turn) {
                    desk.cancel_later(&turn);
                    core.end(&session, &json!({ "turnId": turn })).await;
                }
            }
            // What runs may be another client's.
            core.end(&session, &json!({})).await;
        });
    }

    /// Aborts a turn. One that is over has ended.
    async fn end(&self, session: &SessionId, body: &Value) {
        let ended: Result<Aborted, ApiError> = self.carry_out("abort", Some(session), body).await;
        if let Err(error) = ended {
            tracing::debug!(%session, %error, "a cancellation found nothing to cancel");
        }
    }

    /// `_session/steering`: puts a message into the running turn.
    pub(super) async fn steer(self: &Arc<Self>, params: &Params) -> Result<Value, ApiError> {
        let params::Prompt { session_id: session, prompt, meta } = params.read()?;
        let (session, parts) = (session_id(&session)?, content::parts(&prompt)?);
        let idle = meta.as_ref().map_or(&Value::Null, |meta| &meta["steering"]["idleBehavior"]);
        let waits = match idle {
            Value::Null => false,
            Value::String(word) if word == "promptRequired" => true,
            other => {
                let expected = "`promptRequired`, or nothing";
                return Err(ApiError::unfit("_meta.steering.idleBehavior", expected, other));
            }
        };
        let desk = self.desk(&session).await?;
        let text = PromptContent::Parts(parts.clone()).text();
        for _ in 0..STEER_ATTEMPTS {
            let view = self.app.session(&self.caller, &session).await?;
            let running = view.turn.map(|turn| turn.turn_id);
            if running.is_none() && waits {
                return Ok(json!({ "outcome": "promptRequired", "reason": "noRunningTurn" }));
            }
            match self.steer_at(&desk, (&parts, &text), (running.as_ref(), view.version)).await {
                Ok(turn) if Some(&turn) == running.as_ref() => return Ok(json!({ "outcome": "injected" })),
                Ok(_) => return Ok(json!({ "outcome": "startedNewTurn" })),
                Err(error) if error.code() == ErrorCode::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok(json!({ "outcome": "failed", "reason": "the session changed meanwhile, again and again" }))
    }

    /// Puts it into the running turn of a session that has this version. Gives back the turn that it went into.
    async fn steer_at(
        self: &Arc<Self>,
        desk: &Arc<Desk>,
        (parts, text): (&[Part], &str),
        (running, version): (Option<&TurnId>, u64),
    ) -> Result<TurnId, ApiError> {
        desk.steers(text);
        desk.expect();
        let body = json!({ "prompt": parts, "ifVersion": version });
        let accepted: Result<Accepted, ApiError> = self.carry_out("steer", Some(&desk.id), &body).await;
        match accepted {
            Ok(Accepted { turn_id, .. }) if Some(&turn_id) == running => {
                desk.unexpect();
                Ok(turn_id)
            }
            Ok(Accepted { turn_id, .. }) => {
                // It has begun a turn, for whose end nobody waits; its prompt is known here.
                desk.adopt(&turn_id);
                desk.knows_steered(text);
                Ok(turn_id)
            }
            Err(error) => {
                desk.unexpect();
                desk.knows_steered(text);
                Err(error)
            }
        }
    }
}

/// How a turn ended, in the words of the protocol.
fn ended_as(record: &TurnRecord) -> Answer {
    let reason = match (record.status, record.stop_reason) {
        (_, Some(TurnStop::ContentFilter | TurnStop::Refusal)) => "refusal",
        (TurnStatus::Failed, reason) if reason != Some(TurnStop::MaxIterations) => return Err(failed(record)),
        (_, Some(TurnStop::MaxTokens)) => "max_tokens",
        (_, Some(TurnStop::MaxIterations)) => "max_turn_requests",
        (TurnStatus::Aborted | TurnStatus::Interrupted, _) | (_, Some(TurnStop::Aborted | TurnStop::Interrupted)) => {
            "cancelled"
        }
        _ => "end_turn",
    };
    let Usage { input_tokens, output_tokens, total_tokens, .. } = record.usage;
    let mut answer = json!({ "stopReason": reason });
    if total_tokens > 0 {
        answer["usage"] =
            json!({ "inputTokens": input_tokens, "outputTokens": output_tokens, "totalTokens": total_tokens });
        let more = [
            ("cachedReadTokens", record.usage.cached_input_tokens),
            ("cachedWriteTokens", record.usage.cache_write_tokens),
            ("thoughtTokens", record.usage.reasoning_tokens),
        ];
        for (name, tokens) in more.into_iter().filter(|(_, tokens)| *tokens > 0) {
            answer["usage"][name] = tokens.into();
        }
    }
    Ok(answer)
}

fn failed(record: &TurnRecord) -> RpcError {
    let error = record.error.clone();
    error.map_or_else(|| ApiError::internal("the turn failed"), ApiError).into()
}
