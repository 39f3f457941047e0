//! What hooks and tools can say to the clients of their session: questions, which wait for an answer, and notices
//! and what stands on their screens, which do not.
//!
//! A session fills [`Clients`]; hooks and tools get a [`Line`] to it. Fails closed: where there is no session, no client, no
//! answer in time, or no turn any more, a question is cancelled, and says why.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Sampler, Whose};
use crate::base::BoxFuture;
use crate::protocol::{ApiError, ClientQuestion, ClientReply, Display, NoticeLevel, SessionId, VerdictSource};

/// A question on its way.
#[derive(Debug)]
pub struct Asked {
    /// The call that it belongs to, if it belongs to one.
    pub call_id: Option<String>,
    /// What is asked. It can be put.
    pub question: ClientQuestion,
    /// How long it waits. None: as long as the session's questions do.
    pub patience: Option<Duration>,
    /// Ends it.
    pub cancel: CancellationToken,
}

/// A notice on its way.
#[derive(Debug)]
pub struct Notice {
    /// The call that it belongs to, if it belongs to one.
    pub call_id: Option<String>,
    /// How much it matters.
    pub level: NoticeLevel,
    /// What it says.
    pub text: String,
}

/// The clients of a session, for the time of one turn.
pub trait Clients: Send + Sync + 'static {
    /// Whose they are. None: nobody says.
    fn session(&self) -> Option<&SessionId> {
        None
    }

    /// Whose turn it is. None: nobody says.
    fn whose(&self) -> Option<Whose> {
        None
    }

    /// Puts a question and waits for its end, which comes soon after `cancel` has fired.
    fn ask(&self, asked: Asked) -> BoxFuture<'_, ClientReply>;

    /// Shows a notice. Never blocks.
    fn notify(&self, notice: Notice);

    /// Puts something onto the clients' screens, for a call or for the turn. Never blocks.
    fn show(&self, call_id: Option<String>, display: Display);
}

/// A line to the clients. The default leads to nobody.
#[derive(Clone, Default)]
pub struct Line {
    clients: Option<Arc<dyn Clients>>,
    call_id: Option<String>,
    cancel: Option<CancellationToken>,
    sampler: Option<Arc<dyn Sampler>>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("leads", &self.is_open()).field("call_id", &self.call_id).finish_non_exhaustive()
    }
}

impl Line {
    /// A line to these clients. Its questions end when `cancel` fires.
    pub fn new(clients: Arc<dyn Clients>, cancel: CancellationToken) -> Self {
        Self { clients: Some(clients), call_id: None, cancel: Some(cancel), sampler: None }
    }

    /// The same, over which models can be asked too.
    #[must_use]
    pub fn sampling(self, sampler: Arc<dyn Sampler>) -> Self {
        Self { sampler: Some(sampler), ..self }
    }

    /// Who has models answer. None: nobody.
    pub fn sampler(&self) -> Option<&Arc<dyn Sampler>> {
        self.sampler.as_ref()
    }

    /// The call that speaks.
    pub fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }

    /// The same for what one call says.
    #[must_use]
    pub fn for_call(&self, call_id: &str) -> Self {
        Self { call_id: Some(call_id.to_owned()), ..self.clone() }
    }

    /// The same, whose questions end when `cancel` fires.
    #[must_use]
    pub fn until(&self, cancel: CancellationToken) -> Self {
        Self { cancel: Some(cancel), ..self.clone() }
    }

    /// The same for what no single call says.
    #[must_use]
    pub fn for_turn(&self) -> Self {
        Self { call_id: None, ..self.clone() }
    }

    /// Whether both lead to the same clients, in the same turn.
    pub fn joins(&self, other: &Self) -> bool {
        match (&self.clients, &other.clients) {
            (Some(own), Some(others)) => Arc::ptr_eq(own, others),
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => true,
        }
    }

    /// The session whose clients it leads to, if it leads to any.
    pub fn session(&self) -> Option<&SessionId> {
        self.clients.as_ref().and_then(|clients| clients.session())
    }

    /// Whose turn it is, if it leads to anybody.
    pub fn whose(&self) -> Option<Whose> {
        self.clients.as_ref().and_then(|clients| clients.whose())
    }

    /// What ends its questions.
    pub fn cancel(&self) -> CancellationToken {
        self.cancel.clone().unwrap_or_default()
    }

    /// Whether it leads anywhere.
    pub fn is_open(&self) -> bool {
        self.clients.is_some()
    }

    /// Puts a question to the clients and waits for its end. `patience`: how long at most; None: as long as the session's
    /// questions do.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a question that cannot be put. Nobody has seen it then.
    pub async fn ask(&self, question: ClientQuestion, patience: Option<Duration>) -> Result<ClientReply, ApiError> {
        question.check_itself()?;
        let Some(clients) = &self.clients else {
            let reason = "there is no session whose clients could be asked".to_owned();
            return Ok(ClientReply::Cancelled { by: VerdictSource::NoClient, reason });
        };
        let (call_id, cancel) = (self.call_id.clone(), self.cancel());
        Ok(clients.ask(Asked { call_id, question, patience, cancel }).await)
    }

    /// Shows the clients a notice. Without a session nobody sees it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for one that is too long.
    pub fn notify(&self, level: NoticeLevel, text: impl Into<String>) -> Result<(), ApiError> {
        let text = text.into();
        NoticeLevel::check(&text)?;
        if let Some(clients) = &self.clients {
            clients.notify(Notice { call_id: self.call_id.clone(), level, text });
        }
        Ok(())
    }

    /// Puts something onto the clients' screens, where it stands until it is replaced, taken away, or the turn ends. Without a
    /// session nobody sees it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field, for what cannot be shown.
    pub fn show(&self, display: Display) -> Result<(), ApiError> {
        display.check()?;
        if let Some(clients) = &self.clients {
            clients.show(self.call_id.clone(), display);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ErrorCode;

    #[tokio::test]
    async fn a_line_to_nobody_is_cancelled_and_what_cannot_be_put_is_refused() {
        let line = Line::default();
        let confirm = |title: &str| ClientQuestion::Confirm { title: title.to_owned(), message: None };
        let reply = line.ask(confirm("well?"), None).await.expect("can be put");
        assert!(matches!(reply, ClientReply::Cancelled { by: VerdictSource::NoClient, .. }), "{reply:?}");
        assert_eq!(line.ask(confirm(""), None).await.unwrap_err().code(), ErrorCode::InvalidArgument);
        line.notify(NoticeLevel::Info, "seen by nobody").expect("fits");
        assert_eq!(line.notify(NoticeLevel::Info, "x".repeat(20_000)).unwrap_err().code(), ErrorCode::InvalidArgument);
        line.show(Display::Title { text: Some("seen by nobody".into()) }).expect("fits");
        assert_eq!(
            line.show(Display::Title { text: Some("a\nb".into()) }).unwrap_err().code(),
            ErrorCode::InvalidArgument
        );
    }
}
