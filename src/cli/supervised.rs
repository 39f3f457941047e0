//! Under a supervisor such as systemd (`Type=notify`): it hears when the server answers, reloads and stops, and as long as
//! the server is alive. Without one nothing of this happens.

use std::sync::Arc;
use std::time::Duration;

use crate::base::notify::Supervisor;
use crate::config::Supervision;

/// The supervisor, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Supervised {
    supervisor: Option<Arc<Supervisor>>,
    watchdog: Option<Duration>,
}

impl Supervised {
    /// As the environment says.
    pub(super) fn new(supervision: Supervision) -> Self {
        let Some(address) = supervision.socket else { return Self::default() };
        match Supervisor::at(&address) {
            Ok(supervisor) => Self { supervisor: Some(Arc::new(supervisor)), watchdog: supervision.watchdog },
            Err(cause) => {
                tracing::warn!(%cause, "NOTIFY_SOCKET cannot be used: the supervisor hears nothing");
                Self::default()
            }
        }
    }

    /// The server answers. From now on it says that it lives, to its end: by a timer of the runtime that serves, so that a
    /// runtime which no longer comes to anything says nothing.
    pub(super) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nMAINPID={}\nSTATUS={}", std::process::id(), one_line(status)));
        let Some(watchdog) = self.watchdog else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(watchdog / 2);
            beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                this.say("WATCHDOG=1");
            }
        });
    }

    /// It reads its configuration again.
    pub(super) fn reloading(&self) {
        self.say("RELOADING=1");
    }

    /// It has, with this outcome.
    pub(super) fn reloaded(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// It stops, which may take so long.
    pub(super) fn stopping(&self, grace: Duration) {
        let patience = (grace + Duration::from_secs(10)).as_micros();
        self.say(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={patience}\nSTATUS=turns finish, then everything is stored"
        ));
    }

    fn say(&self, message: &str) {
        let Some(supervisor) = &self.supervisor else { return };
        if let Err(cause) = supervisor.say(message) {
            tracing::debug!(%cause, "the supervisor was not reached");
        }
    }
}

/// A status is one line.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}
