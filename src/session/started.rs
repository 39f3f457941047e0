//! Whether hooks have heard that a session starts, and what they want its model to be told.
//!
//! Invariants: while a session is in memory its start is told once, before its first prompt is accepted; what hooks say to it goes with
//! the first prompt that is accepted after it; of each start there is one end.

use parking_lot::Mutex as Lock;
use tokio::sync::{Mutex, MutexGuard};

use crate::hook::{EndReason, Herald, Hooks, SessionEnd, SessionStart, Whose};

/// How far a session's start has come.
#[derive(Default)]
pub struct Started {
    /// What hooks have said and no prompt has taken. None: they have not been told.
    texts: Mutex<Option<Vec<String>>>,
    /// Whose end is to be told.
    whose: Lock<Option<Whose>>,
}

/// A session that is being started: others wait with their prompts.
pub struct Starting<'s> {
    texts: MutexGuard<'s, Option<Vec<String>>>,
}

impl Starting<'_> {
    /// What goes with the prompt.
    pub fn texts(&self) -> &[String] {
        self.texts.as_deref().unwrap_or_default()
    }

    /// The prompt was accepted: what went with it is said.
    pub fn said(mut self) {
        *self.texts = Some(Vec::new());
    }
}

impl Started {
    /// Tells that the session starts, unless that was told. None: there is nothing to say any more.
    pub async fn begin(&self, hooks: &dyn Hooks, start: impl FnOnce() -> SessionStart) -> Option<Starting<'_>> {
        let mut texts = self.texts.lock().await;
        if texts.is_none() {
            let start = start();
            *self.whose.lock() = Some(start.whose.clone());
            *texts = Some(hooks.session_start(start).await);
        }
        texts.as_ref().is_some_and(|texts| !texts.is_empty()).then_some(Starting { texts })
    }

    /// Tells that it ends, if it was told that it starts.
    pub(super) fn end(&self, herald: &Herald, reason: EndReason) {
        if let Some(whose) = self.whose.lock().take() {
            herald.end(SessionEnd { whose, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::BoxFuture;
    use crate::hook::StartSource;

    /// Notes what it hears, and has something to say.
    #[derive(Default)]
    struct Ears(Arc<Lock<Vec<String>>>);

    impl Hooks for Ears {
        fn session_start(&self, start: SessionStart) -> BoxFuture<'_, Vec<String>> {
            self.0.lock().push(format!("start {}", start.whose.session_id));
            Box::pin(std::future::ready(vec!["hello".into()]))
        }
        fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
            self.0.lock().push(format!("end {:?}", end.reason));
            Box::pin(std::future::ready(()))
        }
    }

    fn start() -> SessionStart {
        let whose = Whose {
            session_id: "s".parse().unwrap(),
            root_session_id: None,
            turn_id: None,
            working_directory: "/w".into(),
        };
        SessionStart { whose, source: StartSource::New }
    }

    #[tokio::test]
    async fn a_start_is_told_once_and_its_texts_wait_for_a_prompt_that_is_accepted() {
        let heard = Arc::new(Lock::new(Vec::new()));
        let herald = Herald::new(Arc::new(Ears(Arc::clone(&heard))));
        let started = Started::default();
        started.end(&herald, EndReason::Idle);
        let refused = started.begin(herald.hooks().as_ref(), start).await.expect("texts");
        assert_eq!(refused.texts(), ["hello"]);
        drop(refused);
        started.begin(herald.hooks().as_ref(), start).await.expect("still there").said();
        assert!(started.begin(herald.hooks().as_ref(), start).await.is_none());
        started.end(&herald, EndReason::Deleted);
        started.end(&herald, EndReason::Shutdown);
        herald.finish(Duration::from_secs(10)).await;
        assert_eq!(*heard.lock(), ["start s", "end Deleted"]);
    }
}
