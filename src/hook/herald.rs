//! Tells hooks behind the work's back what they cannot change: notifications, and the ends of sessions.
//!
//! One after the other, in the order in which it happened; nothing waits for it. What is told is bounded: where hooks are so slow that
//! too much waits, the newest is left out, and a line in the log says so.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{Hooks, News, Notification, Point, SessionEnd, Whose};
use crate::base::limit;

/// What is to be told.
enum Told {
    News(Notification),
    End(SessionEnd),
    /// All that came before has been told.
    Done(oneshot::Sender<()>),
}

/// Tells hooks things.
pub struct Herald {
    hooks: Arc<dyn Hooks>,
    line: OnceLock<mpsc::Sender<Told>>,
}

impl std::fmt::Debug for Herald {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Herald").field("busy", &self.line.get().is_some()).finish_non_exhaustive()
    }
}

impl Herald {
    /// One that tells these.
    pub fn new(hooks: Arc<dyn Hooks>) -> Self {
        Self { hooks, line: OnceLock::new() }
    }

    /// Whom it tells.
    pub fn hooks(&self) -> &Arc<dyn Hooks> {
        &self.hooks
    }

    /// Tells news. What they are is asked only where somebody hears them. Never blocks; within a runtime.
    pub fn news(&self, news: impl FnOnce() -> (Whose, News)) {
        if self.hooks.attends(Point::Notification) {
            let (whose, news) = news();
            self.tell(Told::News(Notification { whose, news }));
        }
    }

    /// Tells the end of a session that has started. Never blocks; within a runtime.
    pub fn end(&self, end: SessionEnd) {
        if self.hooks.attends(Point::SessionEnd) {
            self.tell(Told::End(end));
        }
    }

    /// Waits until all has been told that was to be told before, at most for so long.
    pub async fn finish(&self, wait: Duration) {
        let Some(line) = self.line.get() else { return };
        let (tell, done) = oneshot::channel();
        let finished = timeout(wait, async {
            if line.send(Told::Done(tell)).await.is_ok() {
                let _ = done.await;
            }
        });
        if finished.await.is_err() {
            tracing::warn!("hooks have not heard of everything in time");
        }
    }

    fn tell(&self, told: Told) {
        let line = self.line.get_or_init(|| {
            let (line, waiting) = mpsc::channel(limit::HOOK_NEWS_WAITING_MAX);
            tokio::spawn(work(Arc::clone(&self.hooks), waiting));
            line
        });
        if line.try_send(told).is_err() {
            tracing::warn!("too much waits for hooks to hear of it; this is left out");
        }
    }
}

/// Tells one thing after the other, until nobody is left who would say any.
async fn work(hooks: Arc<dyn Hooks>, mut waiting: mpsc::Receiver<Told>) {
    let most = Duration::from_millis(limit::HOOK_NEWS_TIMEOUT_MS);
    while let Some(told) = waiting.recv().await {
        let hooks = Arc::clone(&hooks);
        // A task of its own: one that panics takes nothing with it.
        let telling = tokio::spawn(async move {
            let heard = async {
                match told {
                    Told::News(news) => hooks.notified(news).await,
                    Told::End(end) => hooks.session_end(end).await,
                    Told::Done(done) => drop(done.send(())),
                }
            };
            timeout(most, heard).await.is_ok()
        });
        if !telling.await.unwrap_or(false) {
            tracing::warn!("a hook that was told something failed, or took too long");
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::base::BoxFuture;
    use crate::hook::{EndReason, NoHooks, SessionEnd};

    /// Notes whose ends it hears; panics at that of `bad`.
    struct Ears(Arc<Mutex<Vec<String>>>);

    impl Hooks for Ears {
        fn attends(&self, point: Point) -> bool {
            point == Point::SessionEnd
        }
        fn session_end(&self, end: SessionEnd) -> BoxFuture<'_, ()> {
            Box::pin(async move {
                let id = end.whose.session_id.to_string();
                assert_ne!(id, "bad");
                tokio::task::yield_now().await;
                self.0.lock().push(id);
            })
        }
    }

    fn end(id: &str) -> SessionEnd {
        SessionEnd { whose: whose(id), reason: EndReason::Idle }
    }

    fn whose(id: &str) -> Whose {
        Whose { session_id: id.parse().unwrap(), root_session_id: None, turn_id: None, working_directory: "/w".into() }
    }

    #[tokio::test]
    async fn all_is_told_in_order_and_a_panic_takes_nothing_with_it() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let herald = Herald::new(Arc::new(Ears(Arc::clone(&heard))));
        herald.news(|| unreachable!("nobody hears news"));
        for id in ["one", "bad", "two"] {
            herald.end(end(id));
        }
        herald.finish(Duration::from_secs(10)).await;
        assert_eq!(*heard.lock(), ["one", "two"]);
    }

    #[tokio::test]
    async fn nobody_is_told_nothing() {
        let herald = Herald::new(Arc::new(NoHooks));
        herald.end(end("one"));
        herald.finish(Duration::from_secs(10)).await;
        assert!(herald.line.get().is_none());
    }
}
