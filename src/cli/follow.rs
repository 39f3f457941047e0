//! A session's events, one after the other without a gap or a repeat, over broken lines and restarts of the server.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError, Events};
use crate::protocol::Event;

/// First pause before a line that broke is opened anew; it doubles with each attempt.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What comes.
pub(super) enum News {
    /// The next event.
    Event(Box<Event>),
    /// The line broke; it is opened anew by the next call. Why, in words.
    Broken(String),
    /// It is open again.
    Back,
}

/// The stream of a session, from one event on.
pub(super) struct Follow {
    client: Client,
    session: String,
    /// The newest event that was told.
    after: u64,
    events: Option<Events>,
    /// Attempts in vain since the line broke.
    attempts: u32,
    /// When the line broke. None: it is open, or was never.
    broken: Option<Instant>,
    /// How long it may be broken. None: for ever.
    patience: Option<Duration>,
}

impl Follow {
    /// The events of a session behind `after`. `patience`: how long the line may be broken.
    pub(super) fn new(client: Client, session: String, after: u64, patience: Option<Duration>) -> Self {
        Self { client, session, after, events: None, attempts: 0, broken: None, patience }
    }

    /// Opens the line, so that a refusal is heard at once.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) async fn open(&mut self) -> Result<(), ClientError> {
        let path = format!("/sessions/{}/events?after={}", self.session, self.after);
        self.events = Some(self.client.events(&path).await?);
        Ok(())
    }

    /// What comes next. Cancel-safe.
    ///
    /// # Errors
    /// The server's refusal, such as of a session that is not there any more, or the end of the patience.
    pub(super) async fn next(&mut self) -> Result<News, ClientError> {
        loop {
            let Some(events) = &mut self.events else {
                if let Some(news) = self.reopen().await? {
                    return Ok(news);
                }
                continue;
            };
            let cause = match events.next().await {
                // What was told before is not told again.
                Ok(Some(event)) if event.seq <= self.after => continue,
                Ok(Some(event)) => {
                    (self.after, self.attempts, self.broken) = (event.seq, 0, None);
                    return Ok(News::Event(Box::new(event)));
                }
                Ok(None) => "the server has ended the stream".to_owned(),
                Err(error) => error.to_string(),
            };
            self.events = None;
            self.broken.get_or_insert_with(Instant::now);
            return Ok(News::Broken(cause));
        }
    }

    /// Tries once to open the line. None: in vain.
    async fn reopen(&mut self) -> Result<Option<News>, ClientError> {
        if self.broken.is_some() {
            let pause = PAUSE_FIRST.saturating_mul(1 << self.attempts.min(10));
            sleep(pause.min(PAUSE_MAX)).await;
        }
        match self.open().await {
            Ok(()) => Ok(self.broken.is_some().then_some(News::Back)),
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                self.attempts = self.attempts.saturating_add(1);
                let since = *self.broken.get_or_insert_with(Instant::now);
                match self.patience {
                    Some(patience) if since.elapsed() >= patience => Err(error),
                    Some(_) | None => Ok(None),
                }
            }
        }
    }
}
