//! The line of a turn's tools and hooks to the session's clients: their questions, their notices, and what they show.
//!
//! Fails closed: no answer in time, nobody there, the end of the call or the turn, a fault of the store all cancel a question,
//! and each `client.request` ends in exactly one `client.response`. Notices and what is
//! shown go into the log and no further.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Terms;
use super::ask::{About, End, Question, put_to};
use super::gate::{deserted, no_client, too_late};
use super::live::Live;
use super::sink::TurnSink;
use crate::agent::Sink as _;
use crate::base::{BoxFuture, clock, limit};
use crate::hook::{Asked, Clients, Notice, Whose};
use crate::protocol::{ClientReply, Display, EventBody, NoticeLevel, SessionId, TurnId, VerdictSource};

/// The clients of a session, for the time of one turn.
pub(super) struct SessionClients {
    pub(super) live: Arc<Live>,
    /// The session above all, whose clients are asked too.
    pub(super) root: Option<Arc<Live>>,
    pub(super) terms: Arc<Terms>,
    pub(super) turn: TurnId,
    /// Where the session works.
    pub(super) directory: PathBuf,
    pub(super) sink: Arc<TurnSink>,
    /// Fires when the turn is aborted.
    pub(super) cancel: CancellationToken,
    /// Notices of this turn so far, and what it has shown.
    pub(super) notices: AtomicUsize,
}

impl Clients for SessionClients {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.live.id)
    }

    fn whose(&self) -> Option<Whose> {
        Some(Whose {
            session_id: self.live.id.clone(),
            root_session_id: self.root.as_ref().map(|root| root.id.clone()),
            turn_id: Some(self.turn.clone()),
            working_directory: self.directory.clone(),
        })
    }

    fn ask(&self, asked: Asked) -> BoxFuture<'_, ClientReply> {
        Box::pin(async move {
            let Asked { call_id, question, patience, cancel } = asked;
            let (timeout_ms, grace_ms) = {
                let limits = self.terms.limits.read();
                (limits.permission_timeout_ms, limits.client_grace_ms)
            };
            let patience = patience.unwrap_or(Duration::from_millis(timeout_ms));
            let wait_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).min(limit::ASK_TIMEOUT_MS_MAX);
            let silence = async {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => End::no(VerdictSource::Abort, "the turn was aborted"),
                    () = cancel.cancelled() => End::no(VerdictSource::Abort, "who asked waits no longer"),
                    () = deserted(&self.live, self.root.as_ref(), Duration::from_millis(grace_ms)) => no_client(),
                    () = tokio::time::sleep(Duration::from_millis(wait_ms)) => too_late(wait_ms),
                }
            };
            let deadline = clock::now_ms().saturating_add(wait_ms);
            let about = About::Client { call_id, question };
            let question = Question { turn: self.turn.clone(), deadline, about };
            put_to(&self.live, self.root.as_ref(), question, silence).await.reply()
        })
    }

    fn notify(&self, notice: Notice) {
        let Notice { call_id, level, text } = notice;
        self.tell(EventBody::ClientNotice { call_id, level, text });
    }

    fn show(&self, call_id: Option<String>, display: Display) {
        self.tell(EventBody::ClientDisplay { call_id, display });
    }
}

impl SessionClients {
    /// Tells what nobody answers, as long as it is not too much.
    fn tell(&self, told: EventBody) {
        let told = match self.notices.fetch_add(1, Ordering::Relaxed).cmp(&limit::NOTICES_MAX) {
            std::cmp::Ordering::Less => told,
            std::cmp::Ordering::Equal => EventBody::ClientNotice {
                call_id: None,
                level: NoticeLevel::Warning,
                text: format!("more than {} notices in this turn: the rest is left out", limit::NOTICES_MAX),
            },
            std::cmp::Ordering::Greater => return,
        };
        // A sink that fails is noticed by the turn at its next event; one that is closed takes nothing more.
        let _ = self.sink.emit(told);
    }
}
